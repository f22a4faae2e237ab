"""Producers make their texts within the budgets they were told; tokens that they leave flow to others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from langchain_ctxbudget.budget.layers import Layer, Reason, Status
from langchain_ctxbudget.history.compact import HistoryPlan, HistoryRoom, HistoryView
from langchain_ctxbudget.knowledge import custom, facts_layer, subjects
from langchain_ctxbudget.messages.turns import distinct
from langchain_ctxbudget.prompt.assembly import group_tokens, has_human, with_headings, without_least
from langchain_ctxbudget.prompt.budgeting import CONTEXT_FRAME, JOINS, excess_tokens
from langchain_ctxbudget.prompt.plan import Plan, Preferences
from langchain_ctxbudget.retrieval.recall import has_recall_tool
from langchain_ctxbudget.retrieval.selecting import MIXED_SECTION, OWN_SECTION, select


def with_bundles(plan: Plan) -> Plan:
    """Makes the text of topics, entities and the application's own layers within their budgets."""
    if plan.fixed is not None:
        return plan
    tokens, count = plan.allocated.tokens, plan.counter.count_text
    own = {
        layer.name: custom.render(layer, plan.own_items[layer.name], count, tokens[layer.name])
        for layer in plan.request.settings.layers
    }
    return plan.but(bundles=_bundles(plan, tokens), own=own)


def _bundles(plan: Plan, tokens: Mapping[str, int]) -> subjects.Bundles:
    return subjects.render(
        plan.detected,
        plan.counter.count_text,
        topic_tokens=tokens[Layer.TOPICS],
        entity_tokens=tokens[Layer.ENTITIES],
    )


def with_preferences(plan: Plan) -> Plan:
    """Makes the text of preferences, and of what is known about the user, within the budget of their layer.

    The facts that a conversation shows stay, except where the prompt is rewritten in any case.
    """
    settings, tier, count = plan.request.settings, plan.request.tier, plan.counter.count_text
    known = plan.request.remembered.renewed() if plan.history.step else plan.request.remembered
    given = facts_layer.preference_fragments(settings, count)
    memories = facts_layer.memory_fragments(settings, count)
    room = plan.allocated.tokens[Layer.PREFERENCES]
    preferences = facts_layer.fitting(given, room)
    room -= sum(fragment.tokens for fragment in preferences)
    most = subjects.facts_within(tier)
    shown = facts_layer.packed(memories, count, room)[:most]
    room -= sum(fragment.tokens for fragment in shown) + (count(shown[0].heading) if shown else 0)
    facts, facts_shown = facts_layer.fact_fragments(
        known.shown, count, room, titled=bool(shown), most=None if most is None else most - len(shown)
    )
    chosen = Preferences(shown=(*preferences, *shown, *facts), facts=facts_shown, remembered=known)
    since = {fact.id for fact in known.learned_since}
    limited = most is not None and len(facts_shown) >= most - len(shown)
    left_out = (
        *(part for part in (*given, *memories) if part not in chosen.shown),
        *(facts_layer.left_out(fact, count, since=fact.id in since, limited=limited) for fact in chosen.facts_left_out),
    )
    return plan.but(preferences=replace(chosen, left_out=left_out))


def history_plan(plan: Plan) -> HistoryPlan:
    """Returns what the budget allows the history."""
    allocation = plan.allocated
    return HistoryPlan(
        plan.conversation,
        HistoryRoom(
            settings=plan.request.settings,
            fits_whole=allocation.fits_whole,
            cut_key=plan.cut_key,
            budget_tokens=plan.limit_tokens,
            history_tokens=allocation.tokens[Layer.HISTORY],
            arc_tokens=allocation.tokens[Layer.ARC],
            keep=allocation.keep_messages or 0,
            most=plan.request.tier.history_messages,
        ),
    )


def with_history(plan: Plan, view: HistoryView) -> Plan:
    """Takes in the history, and makes the preferences, which change with it."""
    groups, repairs = distinct(plan.turn.groups, view.groups)
    turn = replace(plan.turn, groups=tuple(groups), repairs=(*plan.turn.repairs, *repairs))
    return with_preferences(plan.but(turn=turn, history=view))


def with_leftovers(plan: Plan) -> Plan:
    """Lets what is left flow to the layers of the volatile zone that have more to say, in the order of priority.

    Each gets one turn and grows at most to what its strategy allows. Retrieval is one of them: it takes what the
    layers before it leave. The stable zone does not grow: a summary that changed with the current message would
    rewrite the prompt.
    """
    if not has_human(plan.turn.groups):
        return plan
    left = _left_tokens(plan)
    allocation, layers = plan.allocated, plan.request.settings.layers
    budgets = dict(allocation.tokens)
    floors = {layer.name: layer.min_tokens for layer in layers}
    names = [Layer.TOPICS, Layer.ENTITIES, Layer.RETRIEVAL, *(layer.name for layer in layers)]
    for name in sorted(names, key=lambda name: (-allocation.priority_of(name), name)):
        before = _used_tokens(plan, name)
        limit = allocation.limit_of(name)
        if name == Layer.RETRIEVAL:
            plan = _with_retrieved(plan, min(left, limit))
        elif _wants_more(plan, name):
            wider = max(budgets[name], min(before + left, limit))
            if wider >= max(allocation.floor_of(name), floors.get(name, 0)):
                budgets[name] = wider
                plan = _rendered_again(plan, name, budgets)
        left -= _used_tokens(plan, name) - before
    return plan


def with_shrunk_block(plan: Plan) -> Plan:
    """Takes from the context block that was chosen before what has no room any more, the least valuable first."""
    names = {part.layer for part in plan.fixed or ()}
    order = sorted(names, key=lambda name: (plan.allocated.priority_of(name), name))
    content, pruned = plan.content, list(plan.pruned)
    while (excess := excess_tokens(plan, content)) > 0:
        smaller, gone = without_least(content, plan.counter, excess, order)
        if smaller == content:
            break
        content = smaller
        pruned += [replace(part, status=Status.OMITTED, reason=Reason.PRUNED) for part in gone]
    return plan.but(fixed=content.volatile, pruned=tuple(pruned))


def _left_tokens(plan: Plan) -> int:
    """Returns what the request may still cost, the frame of the context block taken off where nothing is in it yet."""
    content = plan.content
    frame = 0 if content.volatile else sum(map(plan.counter.count_text, CONTEXT_FRAME))
    return max(0, -excess_tokens(plan, content) - frame - JOINS)


def _with_retrieved(plan: Plan, budget_tokens: int) -> Plan:
    pool, tier, history = plan.pool, plan.request.tier, plan.history
    if pool is None:
        return plan
    if tier.history_messages is not None and not (pool.others or pool.named):
        # What a usage limit takes from verbatim history must not come back as quotes, where all of it is small.
        most = int(plan.conversation.total_tokens * tier.budget_share)
        budget_tokens = min(budget_tokens, most - _history_tokens(plan))
    room = budget_tokens - max(map(plan.counter.count_text, (OWN_SECTION, MIXED_SECTION)))
    shown = {position for part in history.groups for position in part.positions if position < history.cut}
    retrieved = select(
        plan.conversation,
        pool,
        history.cut,
        max(0, room),
        shown=shown,
        in_short=history.shortened,
        numbered=has_recall_tool(plan.request.tools),
    )
    return plan.but(retrieved=retrieved)


def _history_tokens(plan: Plan) -> int:
    """Returns what is shown of the history costs, verbatim and in short."""
    view = plan.history
    verbatim = sum(group_tokens(part, plan.counter) for part in view.groups)
    return verbatim + sum(part.tokens for part in (*view.summary, *view.arc))


def _rendered_again(plan: Plan, name: str, budgets: dict[str, int]) -> Plan:
    own = next((layer for layer in plan.request.settings.layers if layer.name == name), None)
    count = plan.counter.count_text
    if own is None:
        budgets[name] -= count(subjects.SECTIONS[Layer(name)])  # an allocation is for the lines alone
        return plan.but(bundles=_bundles(plan, budgets))
    return plan.but(own={**plan.own, name: custom.render(own, plan.own_items[name], count, budgets[name])})


def _wants_more(plan: Plan, name: str) -> bool:
    if name in plan.own:
        return plan.own[name].wants_more
    shrunk = any(part.layer == name and part.status is Status.SHRUNK for part in plan.bundles.fragments)
    return shrunk or any(layer == name and item.reason is Reason.NO_ROOM for layer, item in plan.bundles.omitted)


def _used_tokens(plan: Plan, name: str) -> int:
    """Returns what a layer of the volatile zone costs, its headings included."""
    fragments = [fragment for fragment in plan.content.volatile if fragment.layer == name]
    if not fragments:
        return 0
    return sum(map(plan.counter.count_text, (fragments[0].section, *with_headings(fragments))))
