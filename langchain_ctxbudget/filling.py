"""What producers make within the budgets they were told, and what becomes of tokens that they leave."""

from __future__ import annotations

from dataclasses import replace

from langchain_ctxbudget.budgeting import CONTEXT_FRAME, JOINS, excess_tokens
from langchain_ctxbudget.core.assembly import group_tokens, has_human, with_headings, without_least
from langchain_ctxbudget.core.layers import Layer, Reason, Status
from langchain_ctxbudget.core.turns import distinct
from langchain_ctxbudget.draft import Draft
from langchain_ctxbudget.history import compact
from langchain_ctxbudget.knowledge import custom, remembered, subjects
from langchain_ctxbudget.retrieval import quotes
from langchain_ctxbudget.retrieval.selecting import select


def fill_knowledge(draft: Draft) -> None:
    """Make the text of preferences, topics, entities and the application's own layers within their budgets."""
    fill_preferences(draft)
    fill_bundles(draft)


def fill_bundles(draft: Draft) -> None:
    """Make the text of topics, entities and the application's own layers within their budgets."""
    tokens, count = draft.allocated.tokens, draft.counter.count_text
    if draft.fixed is not None:
        return
    _render_subjects(draft, tokens[Layer.TOPICS], tokens[Layer.ENTITIES])
    for layer in draft.settings.layers:
        draft.own[layer.name] = custom.render(layer, draft.own_items[layer.name], count, tokens[layer.name])


def fill_preferences(draft: Draft) -> None:
    """Make the text of preferences, and of what is known about the user, within the budget of their layer."""
    count, known = draft.counter.count_text, draft.remembered
    given = remembered.preference_fragments(draft.settings, count)
    memories = remembered.memory_fragments(draft.settings, count)
    room = draft.allocated.tokens[Layer.PREFERENCES]
    preferences = remembered.fitting(given, room)
    room -= sum(fragment.tokens for fragment in preferences)
    most = subjects.facts_within(draft.tier)
    shown = remembered.packed(memories, count, room)[:most]
    room -= sum(fragment.tokens for fragment in shown) + (count(shown[0].heading) if shown else 0)
    facts, draft.facts_shown = remembered.fact_fragments(
        known.shown, count, room, titled=bool(shown), most=None if most is None else most - len(shown)
    )
    draft.preferences = (*preferences, *shown, *facts)
    since = {fact.id for fact in known.learned_since}
    limited = most is not None and len(draft.facts_shown) >= most - len(shown)
    draft.preferences_left_out = (
        *(part for part in (*given, *memories) if part not in draft.preferences),
        *(remembered.left_out(fact, count, since=fact.id in since, limited=limited) for fact in draft.facts_left_out),
    )


def _render_subjects(draft: Draft, topic_tokens: int, entity_tokens: int) -> None:
    draft.bundles = subjects.render(
        draft.detected,
        draft.counter.count_text,
        topic_tokens=topic_tokens,
        entity_tokens=entity_tokens,
    )


def fill_history(draft: Draft, *, renew: bool = False) -> None:
    """Choose what of the history is verbatim; a new cut is set in the conversation.

    Args:
        draft: a prompt with its allocation.
        renew: whether what stands for the older messages is written anew in any case.
    """
    allocation, conversation = draft.allocated, draft.conversation
    tokens = allocation.tokens
    draft.history = compact.view(
        conversation,
        draft.settings,
        fits_whole=allocation.fits_whole,
        made_for=draft.made_for,
        budget_tokens=draft.limit_tokens,
        history_tokens=tokens[Layer.HISTORY],
        arc_tokens=tokens[Layer.ARC],
        keep=allocation.keep_messages or 0,
        most=draft.tier.history_messages,
        renew=renew,
    )
    known = draft.remembered
    if draft.history.step and known.is_read and not known.due:  # the prompt is rewritten from here on in any case
        draft.remembered = known.renewed()
        fill_preferences(draft)
    turn, repairs = distinct(draft.turn_groups, draft.history.groups)
    draft.turn_groups, draft.turn_repairs = tuple(turn), (*draft.turn_repairs, *repairs)


def fill_leftovers(draft: Draft) -> None:
    """Let what is left flow to the layers of the volatile zone that have more to say, in the order of priority.

    Each gets one turn and grows at most to what its strategy allows. Retrieval is one of them: it takes what the
    layers before it leave. The stable zone does not grow: a summary that changed with the current message would
    rewrite the prompt.
    """
    if not has_human(draft.turn_groups):
        return
    left = _left_tokens(draft)
    allocation = draft.allocated
    budgets = dict(allocation.tokens)
    floors = {layer.name: layer.min_tokens for layer in draft.settings.layers}
    names = [Layer.TOPICS, Layer.ENTITIES, Layer.RETRIEVAL, *(layer.name for layer in draft.settings.layers)]
    for name in sorted(names, key=lambda name: (-allocation.priority_of(name), name)):
        before = _used_tokens(draft, name)
        limit = allocation.limit_of(name)
        if name == Layer.RETRIEVAL:
            _retrieve(draft, min(left, limit))
        elif _wants_more(draft, name):
            wider = max(budgets[name], min(before + left, limit))
            if wider >= max(allocation.floor_of(name), floors.get(name, 0)):
                budgets[name] = wider
                _render_again(draft, name, budgets)
        left -= _used_tokens(draft, name) - before


def shrink_fixed(draft: Draft) -> None:
    """Take from the context block that was chosen for the turn what has no room any more, the least valuable first."""
    counter, allocation = draft.counter, draft.allocated
    names = {part.layer for part in draft.fixed or ()}
    order = sorted(names, key=lambda name: (allocation.priority_of(name), name))
    content = draft.content
    while (excess := excess_tokens(draft, content)) > 0:
        smaller, gone = without_least(content, counter, excess, order)
        if smaller == content:
            break
        content = smaller
        draft.pruned += [replace(part, status=Status.OMITTED, reason=Reason.PRUNED) for part in gone]
    draft.fixed = content.volatile


def _left_tokens(draft: Draft) -> int:
    """What the request may still cost, the frame of the context block taken off where nothing is in it yet."""
    content = draft.content
    frame = 0 if content.volatile else sum(map(draft.counter.count_text, CONTEXT_FRAME))
    return max(0, -excess_tokens(draft, content) - frame - JOINS)


def _retrieve(draft: Draft, budget_tokens: int) -> None:
    if draft.pool is None:
        return
    if draft.tier.history_messages is not None and not (draft.pool.others or draft.pool.named):
        # What a usage limit takes from verbatim history must not come back as quotes, where all of it is small.
        most = int(draft.conversation.total_tokens * draft.tier.budget_share)
        budget_tokens = min(budget_tokens, most - _history_tokens(draft))
    room = budget_tokens - max(map(draft.counter.count_text, (quotes.OWN_SECTION, quotes.MIXED_SECTION)))
    style = quotes.Style(references=quotes.has_recall_tool(draft.tools))
    shown = {position for part in draft.history.groups for position in part.positions if position < draft.history.cut}
    draft.retrieved = select(
        draft.conversation,
        draft.pool,
        draft.history.cut,
        max(0, room),
        shown=shown,
        in_short=draft.history.shortened,
        style=style,
    )


def _history_tokens(draft: Draft) -> int:
    """What is shown of the history costs, verbatim and in short."""
    view = draft.history
    verbatim = sum(group_tokens(part, draft.counter) for part in view.groups)
    return verbatim + sum(part.tokens for part in (*view.summary, *view.arc))


def _render_again(draft: Draft, name: str, budgets: dict[str, int]) -> None:
    own = next((layer for layer in draft.settings.layers if layer.name == name), None)
    if own is None:
        section = subjects.SECTIONS[Layer(name)]
        budgets[name] -= draft.counter.count_text(section)  # an allocation is for the lines alone
        _render_subjects(draft, budgets[Layer.TOPICS], budgets[Layer.ENTITIES])
    else:
        count = draft.counter.count_text
        draft.own[name] = custom.render(own, draft.own_items[name], count, budgets[name])


def _wants_more(draft: Draft, name: str) -> bool:
    if name in draft.own:
        return draft.own[name].wants_more
    shrunk = any(part.layer == name and part.status is Status.SHRUNK for part in draft.bundles.fragments)
    return shrunk or any(layer == name and item.reason is Reason.NO_ROOM for layer, item in draft.bundles.omitted)


def _used_tokens(draft: Draft, name: str) -> int:
    """What a layer of the volatile zone costs, its headings included."""
    fragments = [fragment for fragment in draft.content.volatile if fragment.layer == name]
    if not fragments:
        return 0
    return sum(map(draft.counter.count_text, (fragments[0].section, *with_headings(fragments))))
