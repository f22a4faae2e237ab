"""Dividing a budget among the layers, and writing each layer within what it gets.

What must be sent is measured first; a strategy divides the rest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain

from langchain_core.messages import HumanMessage, SystemMessage

from langchain_ctxbudget import budget as budgets
from langchain_ctxbudget import errors, history
from langchain_ctxbudget.budget import Allocation, Exchange, Fragment, Layer, Situation
from langchain_ctxbudget.history import (
    CONTEXT_FRAME,
    Conversation,
    with_headings,
    work_state,
)
from langchain_ctxbudget.knowledge import MAX_TOPICS, facts, subjects
from langchain_ctxbudget.messages import (
    fences,
    is_user,
    joined_repairs,
    newest_that_fit,
    with_distinct_ids,
)
from langchain_ctxbudget.prompt.assembly import (
    NO_FIRST_QUESTION,
    fragments_of,
    has_human,
    messages_of,
)
from langchain_ctxbudget.prompt.fitting import counted_extras
from langchain_ctxbudget.prompt.mode import Mode
from langchain_ctxbudget.prompt.plan import Plan, PlannedTurn, Preferences
from langchain_ctxbudget.prompt.turn_room import LONGEST_WALK, planned_turn
from langchain_ctxbudget.retrieval import recall_tool

SUMMARY_SHARE = 0.04
"""The share of the budget that the summary may take at a rebuild, whatever else wants room."""
COLD_SUMMARY_SHARE = 0.015
"""The same where no cache holds the last prompt: then quotes take the room."""
LAST_EXCHANGE_SHARE = 0.5
"""The last exchange stays whole, calls and results included, if it takes at most this share."""


def allocate(plan: Plan) -> Plan:
    """Divides the share of the limit that the user's usage tier lets in.

    Where what must be sent does not fit in that, all of the limit is divided.
    """
    plan = replace(plan, extras=counted_extras(plan))
    identity_tokens = _identity_tokens(plan)
    lowered = replace(plan, limit_tokens=int(plan.limit_tokens * plan.request.tier.budget_share))
    try:
        return _allocated(lowered, identity_tokens)
    except errors.BudgetError:
        if lowered.limit_tokens == plan.limit_tokens:
            raise
        # What must be sent is sent, however little is left of a usage limit.
        return _allocated(plan, identity_tokens)


def _identity_tokens(plan: Plan) -> int:
    """Returns what the system prompt costs; raises an error if it takes too much of the window."""
    text = plan.request.system_prompt
    window = plan.request.window.tokens
    share = plan.request.settings.max_system_share
    tokens = plan.counter.count_text(text) if text else 0
    if window is not None and tokens > window * share:
        most = f"{share:.0%} of the model's window of {window:,} tokens"
        raise errors.SystemPromptTooLargeError(
            tokens, int(window * share), most, "max_system_share"
        )
    return tokens


def _allocated(plan: Plan, identity_tokens: int) -> Plan:
    """Fits the turn into its room, and asks the strategy what every layer gets."""
    framing_tokens = _framing_tokens(plan, has_system_prompt=identity_tokens > 0)
    plan = replace(plan, turn=planned_turn(plan, identity_tokens, framing_tokens))
    exchanges = newest_exchanges(plan.conversation)
    keep, keep_tokens = _kept_messages(plan, exchanges)
    situation = _situation(
        plan,
        identity_tokens=identity_tokens,
        framing_tokens=framing_tokens,
        exchanges=exchanges,
        keep_tokens=keep_tokens,
    )
    strategy = plan.request.settings.allocation
    allocation = _checked(strategy.allocate(situation), situation)

    is_limited = plan.request.tier.history_messages is not None
    if allocation.keep_messages is not None and not is_limited:
        # The strategy has its own wish: as many of those as fit what it gave the history.
        costs = history.newest_costs(plan.conversation, allocation.keep_messages, plan.limit_tokens)
        keep = newest_that_fit(costs, allocation.tokens[Layer.HISTORY])
    # A report counts both work states as arc. The strategy saw that of the stored messages as
    # overhead, and that of the turn as free room of the turn.
    tokens = dict(allocation.tokens)
    tokens[Layer.ARC] += plan.turn.work.most_tokens
    tokens[Layer.MESSAGE] -= plan.turn.work.own_tokens
    return replace(plan, allocation=replace(allocation, tokens=tokens, keep_messages=keep))


def _framing_tokens(plan: Plan, *, has_system_prompt: bool) -> int:
    """Returns what a prompt costs before any layer has a text in it.

    A turn that begins with an assistant's message has a line in front of it.
    """
    tokens = plan.counter.count_messages([])
    if has_system_prompt:
        tokens += plan.counter.count_message(SystemMessage(""))
    if not isinstance(plan.request.turn[0], HumanMessage):
        tokens += plan.counter.count_message(HumanMessage(NO_FIRST_QUESTION))
    return tokens


def _situation(
    plan: Plan,
    *,
    identity_tokens: int,
    framing_tokens: int,
    exchanges: tuple[Exchange, ...],
    keep_tokens: int,
) -> Situation:
    """Measures all that a strategy must know to divide the budget."""
    settings = plan.request.settings
    conversation = plan.conversation
    turn = plan.turn
    count = plan.counter.count_text
    preferences = facts.preference_fragments(settings, count)
    memories = facts.memory_fragments(settings, count)
    facts_tokens, learned_tokens = _facts_tokens(plan)
    topic_lines = [topic.line for topic in plan.detected.topics if topic.line][:MAX_TOPICS]
    entity_lines = [entity.line for entity in plan.detected.entities if entity.line]
    entity_lines = entity_lines[: settings.entity_context.most_entities]
    fences_tokens = sum(map(count, _fence_texts(plan, has_preferences=bool(preferences))))
    heading_tokens = count(budgets.MEMORIES_HEADING) if memories else 0
    memory_tokens = facts_tokens + sum(part.tokens for part in memories) + heading_tokens
    overhead_tokens = (
        framing_tokens + fences_tokens + sum(plan.extras.values()) + turn.work.stored_tokens
    )
    return Situation(
        total_tokens=plan.growth.level_tokens or plan.limit_tokens,
        overhead_tokens=overhead_tokens,
        identity_tokens=identity_tokens,
        preferences_tokens=sum(fragment.tokens for fragment in preferences),
        memory_tokens=memory_tokens,
        learned_tokens=learned_tokens,
        message_tokens=turn.tokens + turn.free_tokens,
        message_count=len(conversation.entries),
        history_tokens=history.history_tokens(conversation, plan.limit_tokens),
        keep_tokens=keep_tokens,
        pinned_tokens=history.pinned_tokens(
            conversation, plan.limit_tokens, settings.keep_important
        ),
        exchanges=exchanges,
        topic_count=len(topic_lines),
        topic_tokens=sum(map(count, topic_lines)),
        entity_count=len(entity_lines),
        entity_tokens=sum(map(count, entity_lines)),
        custom=tuple(layer.spec for layer in settings.layers),
        depth=settings.depth,
        prioritize_history=settings.prioritize_history,
        emphasis=settings.emphasis,
        grown_tokens=plan.limit_tokens,
    )


def _facts_tokens(plan: Plan) -> tuple[int, int]:
    """Returns what the facts about the user cost at most, and how much of that is learned.

    The facts of the conversation's snapshot are shown, or all facts if this prompt takes a new one.
    """
    count = plan.counter.count_text
    remembered = plan.request.remembered
    versions = [remembered.shown_facts]
    if remembered.learned_since:
        versions.append(remembered.all)
    all_tokens = by_hand_tokens = 0
    for shown in versions:
        by_hand = [fact for fact in shown if fact.is_kept_by_hand]
        all_tokens = max(all_tokens, facts.facts_tokens(shown, count))
        by_hand_tokens = max(by_hand_tokens, facts.facts_tokens(by_hand, count))
    return all_tokens, max(0, all_tokens - by_hand_tokens)


def _fence_texts(plan: Plan, *, has_preferences: bool) -> list[str]:
    """Returns the fences that this prompt may need; their cost is not there for the layers."""
    texts = [*CONTEXT_FRAME]
    for layer, found in plan.detected.subjects.items():
        if found:
            texts.append(subjects.SECTIONS[layer])
    if has_preferences or plan.request.settings.memories or plan.request.remembered.all:
        texts += [fences.opening(fences.PREFERENCES), fences.closing(fences.PREFERENCES)]
    return texts


def newest_exchanges(conversation: Conversation) -> tuple[Exchange, ...]:
    """Returns the newest exchanges of a conversation, newest first."""
    exchanges: list[Exchange] = []
    messages = tokens = 0
    end = len(conversation.entries)
    # No more is decoded than is looked at.
    for position in range(end - 1, max(0, end - LONGEST_WALK) - 1, -1):
        messages += 1
        tokens += conversation.costs[position]
        if is_user(conversation.entries[position].message):
            exchanges.append(Exchange(messages, tokens))
            messages = tokens = 0
            if len(exchanges) == budgets.MOST_EXCHANGES:
                break
    return tuple(exchanges)


def _kept_messages(plan: Plan, exchanges: Sequence[Exchange]) -> tuple[int, int]:
    """Returns how many of the newest messages stay word for word in any case, and their tokens.

    The last exchange stays: all of it if it is not too large, else the messages at its end. Except
    under a usage limit, so do earlier messages while all of them together are small.
    """
    wanted = plan.request.settings.keep_messages
    # So many exchanges are `wanted` messages where none has calls, and more where some have.
    sizes = [exchange.messages for exchange in exchanges[: wanted // 2]]
    costs = history.newest_costs(plan.conversation, max(wanted, sum(sizes)), plan.limit_tokens)
    keep = min(wanted, exchanges[0].messages) if exchanges else 0
    if sizes:
        last_exchange_tokens = sum(costs[len(costs) - sizes[0] :])
        if last_exchange_tokens <= plan.limit_tokens * LAST_EXCHANGE_SHARE:
            keep = sizes[0]
    if plan.request.tier.history_messages is None:
        share = history.keep_share(plan.limit_tokens)
        keep = max(keep, newest_that_fit(costs, int(plan.limit_tokens * share)))
    return keep, sum(costs[len(costs) - keep :])


def _checked(allocation: object, situation: Situation) -> Allocation:
    """Returns what a strategy has allocated, completed by what must be sent.

    Raises an error if that is no allocation, or more than there is.
    """
    if not isinstance(allocation, Allocation):
        raise errors.InvalidSettingsError(
            f"A strategy gives an Allocation, as `share_out` does, not {allocation!r}"
        )
    required = situation.required
    layers = (*Layer, *(spec.layer for spec in situation.custom))
    shared = {layer: allocation.tokens.get(layer, 0) for layer in layers if layer not in required}
    grants = {**shared, "reserve": allocation.reserve_tokens}  # the names of an error, too
    are_valid = all(type(tokens) is int and tokens >= 0 for tokens in grants.values())
    if not are_valid or sum(grants.values()) > situation.free_tokens:
        raise errors.InvalidAllocationError(allocation.strategy, situation.free_tokens, grants)
    return replace(allocation, tokens={**shared, **required})


# The background's layers


def with_bundles(plan: Plan) -> Plan:
    """Writes topics, entities and the application's own layers within their budgets.

    It writes nothing where an earlier call has chosen the background already, nor where the turn
    has no human message, in front of which a background stands.
    """
    if plan.fixed is not None or not has_human(plan.turn.groups):
        return plan
    return replace(plan, bundles=bundles_within(plan, plan.allocated.tokens))


def bundles_within(plan: Plan, tokens: Mapping[str, int]) -> subjects.Bundles:
    """Returns the layers of the background, except retrieval, each within its tokens.

    They leave out what an earlier background of the prompt says already.
    """
    settings = plan.request.settings
    count = plan.counter.count_text
    found = subjects.render(
        plan.detected,
        count,
        topic_tokens=tokens[Layer.TOPICS],
        entity_tokens=tokens[Layer.ENTITIES],
        most_entities=settings.entity_context.most_entities,
    )
    bundles = [found]
    for layer in settings.layers:
        items = plan.own_items[layer.name]
        bundles.append(subjects.render_own(layer, items, count, tokens[layer.name]))
    earlier = fragments_of(plan.history.backgrounds.values())
    shown_before = {(part.layer, part.text) for part in earlier}
    fragments: list[Fragment] = []
    for bundle in bundles:
        fragments += [
            part for part in bundle.fragments if (part.layer, part.text) not in shown_before
        ]
    omitted = chain.from_iterable(bundle.omitted for bundle in bundles)
    return replace(found, fragments=tuple(fragments), omitted=tuple(omitted))


# Preferences and history


def with_preferences(plan: Plan) -> Plan:
    """Writes the preferences and the facts about the user within the budget of their layer."""
    settings = plan.request.settings
    count = plan.counter.count_text
    remembered = plan.request.remembered
    if (
        plan.history.is_rebuilt and not plan.growth.adds_background
    ):  # the cached prompt is lost in any case
        remembered = remembered.renewed()
    all_preferences = facts.preference_fragments(settings, count)
    all_memories = facts.memory_fragments(settings, count)

    tokens_left = _preferences_room(plan)
    preferences = facts.packed(all_preferences, count, tokens_left)
    tokens_left -= sum(part.tokens for part in preferences)

    most_memories = _most_memories(plan)
    memories = facts.packed(all_memories, count, tokens_left)[:most_memories]
    tokens_left -= sum(part.tokens for part in memories)
    if memories:
        tokens_left -= count(memories[0].heading)

    most_facts = None if most_memories is None else most_memories - len(memories)
    lines, facts_shown = facts.fact_fragments(
        remembered.shown_facts, count, tokens_left, titled=bool(memories), most=most_facts
    )
    chosen = Preferences(
        shown_fragments=(*preferences, *memories, *lines), facts=facts_shown, remembered=remembered
    )

    left_out = [
        part for part in (*all_preferences, *all_memories) if part not in chosen.shown_fragments
    ]
    is_limited = most_facts is not None and len(facts_shown) >= most_facts
    left_out += _facts_left_out(plan, chosen, is_limited=is_limited)
    return replace(plan, preferences=replace(chosen, left_out=tuple(left_out)))


def _most_memories(plan: Plan) -> int | None:
    """Returns how many memories and facts a usage limit lets in; None if any number.

    They get half of its items, rounded down.
    """
    limit = plan.request.tier.knowledge_items
    return None if limit is None else limit // 2


def _facts_left_out(plan: Plan, chosen: Preferences, *, is_limited: bool) -> list[Fragment]:
    """Returns the facts that are not shown, with the reason why.

    `is_limited` says that a usage limit lets in no more of them.
    """
    count = plan.counter.count_text
    learned_since = {fact.id for fact in chosen.remembered.learned_since}
    return [
        facts.left_out(fact, count, since=fact.id in learned_since, limited=is_limited)
        for fact in chosen.facts_left_out
    ]


def _preferences_room(plan: Plan) -> int:
    """Returns the tokens for preferences and facts.

    If the prompt extends the last one, these are at least as many as that one had: it must show
    again what that one has shown.
    """
    tokens = plan.allocated.tokens[Layer.PREFERENCES]
    cut = plan.history.record
    if plan.growth.extends_last and cut is not None:
        return max(tokens, cut.preferences_tokens)
    return tokens


def history_plan(plan: Plan) -> history.HistoryPlan:
    """Returns the history's part of the budget; from it the history decides where it is cut."""
    allocation = plan.allocated
    summary_share = COLD_SUMMARY_SHARE if plan.growth.is_cold else SUMMARY_SHARE
    return history.HistoryPlan(
        conversation=plan.conversation,
        settings=plan.request.settings,
        room=history.HistoryRoom(
            total_tokens=plan.limit_tokens,
            history_tokens=allocation.tokens[Layer.HISTORY],
            arc_tokens=allocation.tokens[Layer.ARC] - plan.turn.work.most_tokens,
            work_tokens=plan.turn.work.stored_tokens,
            summary_tokens=int(plan.limit_tokens * summary_share) if plan.grows else 0,
            fits_whole=allocation.fits_whole,
            keep=allocation.keep_messages or 0,
            most_messages=plan.request.tier.history_messages,
        ),
        follows=history.Follows(
            grows=plan.grows,
            extends_last=plan.growth.extends_last,
            clips_new=plan.growth.mode is Mode.CLIPPED,
        ),
        cut_key=plan.cut_key,
        recall_tool=recall_tool(plan.request.tools),
    )


def with_history(plan: Plan, view: history.HistoryView) -> Plan:
    """Returns the plan with its history, and with all that depends on what the history shows.

    These are the ids of calls in the turn, the turn's work state, and the preferences.
    """
    groups, repairs = with_distinct_ids(
        plan.turn.groups, view.groups, plan.conversation.longest_call_id
    )
    repairs = joined_repairs(plan.turn.repairs, repairs)
    turn = replace(plan.turn, groups=tuple(groups), repairs=tuple(repairs))
    if not turn.work.lines:
        turn = _with_work(plan, turn, _work_of_turn(plan, view))
    return with_preferences(replace(plan, turn=turn, history=view))


def _with_work(plan: Plan, turn: PlannedTurn, work: tuple[Fragment, ...]) -> PlannedTurn:
    """Returns a turn whose note tells the work state in some lines, if there are any."""
    if not work:
        return turn
    lines = "".join(with_headings(work))
    text = f"{fences.opening(fences.ARC)}{lines}{fences.closing(fences.ARC)}"
    free_tokens = max(0, turn.free_tokens - plan.counter.count_text(text))
    return replace(
        turn, note=turn.note + text, work=replace(turn.work, lines=work), free_tokens=free_tokens
    )


def _work_of_turn(plan: Plan, view: history.HistoryView) -> tuple[Fragment, ...]:
    """Returns lines that tell the turn's work state as it was when rounds gave way last.

    What the prompt says elsewhere is left out. The lines are kept, so that the next calls of a loop
    send the same ones.
    """
    turn = plan.turn
    work = turn.fitted.work_when_shortened
    count = plan.counter.count_text
    frame = (fences.opening(fences.ARC), fences.closing(fences.ARC))
    most_tokens = turn.work.own_tokens - sum(map(count, frame))
    if work is None or most_tokens <= 0 or not has_human(turn.groups):
        return ()
    # Rounds that came later do not count as said elsewhere: the lines must stay the same until
    # rounds give way again.
    later = {group.positions for group in turn.given.groups[turn.fitted.groups_when_shortened :]}
    earlier = [group for group in turn.groups if group.positions not in later]
    shown_text = "".join(part.text for part in view.arc)
    shown_text += work_state.text_with_calls(messages_of((*view.groups, *earlier)))
    key = (most_tokens, shown_text)
    if work.key != key:  # the kept lines were written for another place
        work.lines = work.state.lines(count, most_tokens - work.code_tokens, shown_text, work)
        work.key = key
    return history.fragments(Layer.ARC, work.lines, count)
