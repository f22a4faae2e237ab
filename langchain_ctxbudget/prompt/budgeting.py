"""Dividing a budget among the layers, and writing each layer within what it gets.

What must be sent is measured first; a strategy divides the rest.
"""

from collections.abc import Sequence
from dataclasses import replace

from langchain_core.messages import HumanMessage, SystemMessage

from langchain_ctxbudget import budget as budgets
from langchain_ctxbudget import errors, history, layers
from langchain_ctxbudget.budget import (
    Allocation,
    AllocationStrategy,
    Exchange,
    Fragment,
    Layer,
    Situation,
)
from langchain_ctxbudget.history import (
    CONTEXT_FRAME,
    Conversation,
    with_headings,
    work_state,
)
from langchain_ctxbudget.layers import Place, PromptLayer, View
from langchain_ctxbudget.messages import (
    fences,
    is_user,
    newest_that_fit,
)
from langchain_ctxbudget.prompt.assembly import (
    has_human,
    messages_of,
)
from langchain_ctxbudget.prompt.fitting import counted_extras
from langchain_ctxbudget.prompt.late_results import with_results_in_history
from langchain_ctxbudget.prompt.plan import Plan, PlannedTurn
from langchain_ctxbudget.prompt.turn import places_by_arrival
from langchain_ctxbudget.prompt.turn_room import LONGEST_WALK, planned_turn
from langchain_ctxbudget.providers import (
    UsedIds,
    answered_before,
    joined_repairs,
    opening_before,
    regrouped,
)
from langchain_ctxbudget.tokens import CalibratedCounter

SUMMARY_SHARE = 0.04
"""The share of the budget that the summary may take at a rebuild, whatever else wants room."""
COLD_SUMMARY_SHARE = 0.015
"""The same where no cache holds the last prompt: then quotes take the room."""
LAST_EXCHANGE_SHARE = 0.5
"""The last exchange stays whole, calls and results included, if it takes at most this share."""


def _with_extras(plan: Plan) -> Plan:
    """Returns the plan with what tools and response format cost."""
    extras = counted_extras(plan)
    uncorrected = extras
    if isinstance(plan.counter, CalibratedCounter):
        uncorrected = counted_extras(replace(plan, counter=plan.counter.inner))
    return replace(plan, extras=extras, uncorrected_extras=uncorrected)


def allocate(plan: Plan) -> Plan:
    """Divides the share of the limit that the user's usage tier lets in.

    Where what must be sent does not fit in that, all of the limit is divided.
    """
    plan = _with_extras(plan)
    identity_tokens = _identity_tokens(plan)
    lowered = replace(
        plan, limit_tokens=int(plan.limit_tokens * plan.request.allowance.tier.budget_share)
    )
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
    window = plan.request.allowance.window.tokens
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
        plan, framing_tokens=framing_tokens, exchanges=exchanges, keep_tokens=keep_tokens
    )
    allocation = _checked(_divided(plan.request.settings.allocation, situation), situation)

    is_limited = plan.request.allowance.tier.history_messages is not None
    if allocation.keep_messages is not None and not is_limited:
        # The strategy has its own wish: as many of those as fit what it gave the history.
        costs = history.newest_costs(plan.conversation, allocation.keep_messages, plan.limit_tokens)
        keep = newest_that_fit(costs, layers.verbatim_tokens(allocation.tokens))
    turn = plan.turn_view
    tokens = dict(allocation.tokens)
    for layer in plan.layers:
        tokens[layer.name] = layer.granted_tokens(tokens.get(layer.name, 0), turn)
    return replace(plan, allocation=replace(allocation, tokens=tokens, keep_messages=keep))


def _divided(strategy: AllocationStrategy, situation: Situation) -> object:
    """Returns what a strategy gives; a `StrategyError` where it fails."""
    try:
        return strategy.allocate(situation)
    except errors.CtxBudgetError:
        raise
    except Exception as error:
        name = getattr(strategy, "name", "")
        raise errors.StrategyError(
            f"The strategy {name!r} ({type(strategy).__name__}.allocate) failed with "
            f"{type(error).__name__}: {error}. Mend it, or choose another one by the setting "
            "allocation"
        ) from error


def _framing_tokens(plan: Plan, *, has_system_prompt: bool) -> int:
    """Returns what a prompt costs before any layer has a text in it.

    A turn that begins with an assistant's message has a line in front of it.
    """
    tokens = plan.counter.count_messages([])
    if has_system_prompt:
        tokens += plan.counter.count_message(SystemMessage(""))
    opening = opening_before(plan.request.turn[0], plan.conversation.profile)
    if opening:
        tokens += plan.counter.count_message(HumanMessage(opening))
    return tokens


def _situation(
    plan: Plan, *, framing_tokens: int, exchanges: tuple[Exchange, ...], keep_tokens: int
) -> Situation:
    """Measures all that a strategy must know to divide the budget: what each layer asks for."""
    settings = plan.request.settings
    frame_tokens = sum(map(plan.counter.count_text, CONTEXT_FRAME))
    situation = Situation(
        total_tokens=plan.growth.level_tokens or plan.limit_tokens,
        overhead_tokens=framing_tokens + frame_tokens + sum(plan.extras_beside_tools.values()),
        identity_tokens=0,
        preferences_tokens=0,
        message_tokens=0,
        message_count=0,
        history_tokens=0,
        keep_tokens=keep_tokens,
        exchanges=exchanges,
        depth=settings.depth,
        prioritize_history=settings.prioritize_history,
        emphasis=settings.emphasis,
        grown_tokens=plan.limit_tokens,
    )
    view = plan.view
    for layer in plan.layers:
        situation = layer.measured(situation, view)
    return situation


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
    if plan.request.allowance.tier.history_messages is None:
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


# The layers


def with_bundles(plan: Plan) -> Plan:
    """Writes the layers of the background, except quotes, within their budgets.

    It writes nothing where an earlier call has chosen the background already, nor where the turn
    has no human message, in front of which a background stands.
    """
    if plan.fixed is not None or not has_human(plan.turn.groups):
        return plan
    view = plan.view
    for layer in plan.layers:
        if layer.place is Place.BACKGROUND:
            plan = with_items(plan, layer, view, plan.allocated.tokens[layer.name])
    return plan


def with_items(plan: Plan, layer: PromptLayer, view: View, tokens: int) -> Plan:
    """Writes a layer of the background within its tokens.

    It leaves out what an earlier background of the prompt says already.
    """
    chosen = layer.items(view, tokens)
    if layer.place is Place.BACKGROUND:
        earlier = sorted(plan.history.backgrounds.items())
        backgrounds = [background.fragments for _, background in earlier]
        chosen = layer.not_shown_before(view, chosen, backgrounds)
    return plan.with_chosen(layer, chosen)


def _with_stable_layers(plan: Plan) -> Plan:
    """Writes the layers that stand before the turn within their budgets."""
    view = plan.view
    chosen = dict(plan.chosen)
    for layer in plan.layers:
        if layer.place in (Place.STABLE, Place.HISTORY):
            chosen[layer.name] = layer.items(view, plan.allocated.tokens[layer.name])
    return replace(plan, chosen=chosen)


# The history


def history_plan(plan: Plan) -> history.HistoryPlan:
    """Returns the history's part of the budget; from it the history decides where it is cut."""
    allocation = plan.allocated
    summary_share = COLD_SUMMARY_SHARE if plan.growth.is_cold else SUMMARY_SHARE
    return history.HistoryPlan(
        conversation=plan.conversation,
        settings=plan.request.settings,
        room=history.HistoryRoom(
            total_tokens=plan.limit_tokens,
            history_tokens=layers.verbatim_tokens(allocation.tokens),
            arc_tokens=layers.lines_tokens(allocation.tokens, plan.turn_view),
            work_tokens=plan.turn.work.stored_tokens,
            summary_tokens=int(plan.limit_tokens * summary_share) if plan.grows else 0,
            fits_whole=allocation.fits_whole,
            keep=allocation.keep_messages or 0,
            most_messages=plan.request.allowance.tier.history_messages,
        ),
        continuation=plan.continuation,
        cut_key=plan.cut_key,
        recall_tool=plan.recall_tool,
    )


def with_history(plan: Plan, view: history.HistoryView) -> Plan:
    """Returns the plan with its history, and with all that depends on what the history shows.

    These are the ids of calls in the turn, the turn's work state, and the stable layers.
    """
    plan, view = with_results_in_history(plan, view)
    view = _with_answered_results(plan, view)
    used = UsedIds.of(messages_of(view.groups))
    groups, repairs = regrouped(plan.turn.groups, plan.conversation.profile, used)
    repairs = joined_repairs(plan.turn.repairs, repairs)
    turn = replace(plan.turn, groups=tuple(groups), repairs=tuple(repairs))
    if not turn.work.lines:
        turn = _with_work(plan, turn, _work_of_turn(plan, view))
    return _with_stable_layers(replace(plan, turn=turn, history=view))


def _with_answered_results(plan: Plan, view: history.HistoryView) -> history.HistoryView:
    """Returns the history with a line behind its end, where a provider wants one here."""
    groups, repairs = answered_before(view.groups, plan.turn.groups, plan.conversation.profile)
    if not repairs:
        return view
    line = groups[-1].messages[-1]
    view.costs.add(line, plan.counter.count_message(line))
    untold = [repair for repair in repairs if repair not in plan.turn.repairs]
    return replace(view, groups=tuple(groups), repairs=(*view.repairs, *untold))


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
    given = turn.given.groups
    places = places_by_arrival(given)[turn.fitted.groups_when_shortened :]
    later = {given[place].positions for place in places}
    earlier = [group for group in turn.groups if group.positions not in later]
    shown_text = "".join(part.text for part in view.arc)
    shown_text += work_state.text_with_calls(messages_of((*view.groups, *earlier)))
    key = (most_tokens, shown_text)
    if work.key != key:  # the kept lines were written for another place
        work.lines = work.state.lines(count, most_tokens - work.code_tokens, shown_text, work)
        work.key = key
    return layers.work_items(work.lines, count)
