"""Prompts that only grow: whether a prompt extends the last one or is rebuilt.

While a provider's cache may hold the last prompt, the next one extends it: it is the last prompt,
and more at its end. Once it is full, messages in its middle are left out, or it is rebuilt:
everything in it is chosen anew. `mode.py` decides which of these. This module measures what the
decision depends on, and plans the prompt that was decided on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from langchain_core.messages import ToolMessage

from langchain_ctxbudget.errors import BudgetTooSmallError
from langchain_ctxbudget.history import as_compacted, choose_cut
from langchain_ctxbudget.layers import Place, says_rules_since, tokens_at
from langchain_ctxbudget.prompt.bound_thoughts import read_to_extend, read_to_rebuild
from langchain_ctxbudget.prompt.budgeting import allocate, history_plan, with_history
from langchain_ctxbudget.prompt.extension import GROWTH_POLICY, Extension, with_last_history
from langchain_ctxbudget.prompt.last_prompt import change_since, is_cold
from langchain_ctxbudget.prompt.middle import without_middle
from langchain_ctxbudget.prompt.mode import Case, Growth, Room, decide
from langchain_ctxbudget.prompt.plan import Plan
from langchain_ctxbudget.prompt.savings import uncounted_backgrounds, whole_tokens_with_bound_tools
from langchain_ctxbudget.prompt.tools import (
    is_given_tools_for_left_out,
    lacks_tools_for_left_out,
    loses_tools_for_left_out,
    with_new_tools,
    with_tools_of_last,
    without_tools_for_left_out,
)
from langchain_ctxbudget.report import Cause, Mode
from langchain_ctxbudget.stores import CutRecord


def divide_budget(plan: Plan) -> Plan:
    """Decides whether the prompt extends the last one or is rebuilt, and divides its budget.

    Raises an error where what must be sent does not fit.
    """
    plan = _with_limit(plan)
    conversation = as_compacted(plan.conversation, plan.limit_tokens, plan.request.turn)
    plan = replace(plan, conversation=conversation)
    if plan.growth.is_given and not plan.growth.mode.extends_last:
        return _rebuilt(read_to_rebuild(plan))

    attempt = _attempt_with_room(read_to_extend(plan))
    mode, cause = decide(attempt.case)
    if mode is Mode.REBUILT:
        growth = _growth_of_rebuild(plan.growth, attempt, cause)
        return _rebuilt(read_to_rebuild(replace(plan, growth=growth)))
    extended = attempt.plans[mode]
    return replace(extended, growth=replace(extended.growth, mode=mode, cause=cause))


def _with_limit(plan: Plan) -> Plan:
    """Returns the plan with its limit: the budget, or less where the model's window has less room.

    The window must have room for the answer, too.
    """
    settings = plan.request.settings
    window_tokens = plan.request.allowance.window.tokens
    limit_tokens = settings.max_context_tokens
    if window_tokens is not None:
        room = max(0, window_tokens - plan.request.output_reserve_tokens)
        limit_tokens = min(limit_tokens, room)
    elif settings.output_reserve_tokens:
        plan = plan.with_failures(
            f"output reserve of {settings.output_reserve_tokens:,} tokens not kept: the model's "
            "window is not known (set window_tokens)"
        )
    return replace(plan, limit_tokens=limit_tokens)


# Extending the last prompt


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The attempt to extend the last prompt, as far as it was measured."""

    case: Case
    plans: Mapping[Mode, Plan] = field(default_factory=dict)
    """The plans of the prompts that would extend the last one, by their modes."""
    afforded_tokens: int | None = None
    """What a rebuild may cost instead, in effective tokens; None where that was not worked out."""


def _attempt_with_room(plan: Plan) -> _Attempt:
    """Attempts to extend the last prompt, if there is room for its tools.

    A rebuild may do without those of them that are for what is left out.
    """
    try:
        return _attempt_to_extend(plan)
    except BudgetTooSmallError:
        return _Attempt(Case(turn_goes_on=False))


def _attempt_to_extend(plan: Plan) -> _Attempt:
    """Measures the case of a prompt, and plans it as an extension of the last one.

    It stops as soon as it is known that the last prompt cannot be extended.
    """
    case = Case(grows=plan.grows, without_last=_cause_without_cuts(plan))
    if not _may_extend(case):
        return _Attempt(case)

    is_given = plan.growth.is_given
    growth = replace(plan.growth, mode=Mode.EXTENDED, is_cold=is_given and plan.growth.is_cold)
    without_history, record = _with_tools_of_last(replace(plan, growth=growth))
    if record is None:
        return _Attempt(replace(case, without_last=_cause_without_record(plan)))
    case = replace(
        case,
        is_cold=not is_given and is_cold(without_history),
        turn_goes_on=_turn_goes_on(without_history, record),
        is_in_loop=_is_in_loop(plan),
    )
    newest = _newest_cut(plan)
    if newest is not None and loses_tools_for_left_out(plan, record, newest):
        case = replace(case, change=Cause.OTHER_TOOLS)
    if not _may_extend(case):
        return _Attempt(case)

    extended = with_last_history(without_history)
    case = replace(
        case,
        change=change_since(extended, record),
        was_something_said=record.begun != len(plan.conversation.entries),
    )
    if not _may_extend(case):
        return _Attempt(case)
    if not case.was_something_said:
        return _Attempt(case, {Mode.REPEATED: _repeated_rebuild(extended, record)})
    return _with_measured_room(case, without_history, Extension.of(extended, record))


def _with_tools_of_last(plan: Plan) -> tuple[Plan, CutRecord | None]:
    """Divides the budget of a prompt that has the last one's tools, and also returns the last cut.

    Which cut that is depends on the room of the turn, which depends on the tools.
    """
    expected = _last_cut(plan)
    allocated = allocate(with_tools_of_last(plan, expected))
    record = history_plan(allocated).record
    if record is not None and expected is not None and record.tools != expected.tools:
        allocated = allocate(with_tools_of_last(plan, record))
        record = history_plan(allocated).record
    return allocated, record


def _last_cut(plan: Plan) -> CutRecord | None:
    """Returns the cut of the last prompt, as far as it can be told before the turn is measured."""
    return next((cut for cut in plan.cuts if cut is not None), None)


def _newest_cut(plan: Plan) -> CutRecord | None:
    """Returns the cut that was made last.

    A turn outgrows its room after it began, so of two of one turn it is that with the larger room.
    """
    newest = None
    for cut in plan.cuts:
        if cut is not None and (newest is None or cut.begun >= newest.begun):
            newest = cut
    return newest


def _cause_without_cuts(plan: Plan) -> Cause | None:
    """Returns why a conversation has no prompt that could be extended; None where it has one.

    An edit ends those that show what was changed.
    """
    if plan.conversation.cuts:
        return None
    return Cause.FIRST if plan.conversation.last is None else Cause.EDITED


def _cause_without_record(plan: Plan) -> Cause:
    """Returns why no prompt with the same cut could be extended."""
    if plan.conversation.compaction is None:
        return Cause.FIRST
    return Cause.COMPACTED


def _may_extend(case: Case) -> bool:
    """Tells whether the last prompt may be extended, as far as its case is measured."""
    mode, _ = decide(case)
    return mode.extends_last


def _is_in_loop(plan: Plan) -> bool:
    """Tells whether the turn has results of calls already."""
    return any(isinstance(message, ToolMessage) for message in plan.request.turn)


def _turn_goes_on(plan: Plan, record: CutRecord) -> bool:
    """Tells whether the turn can be sent as the last prompt has sent it, and more at its end.

    It can while it has not outgrown its usual room. In the turn of the rebuild, it also can while
    it has the larger room that was planned for it there. It cannot once something of it is left out
    that the model has no tool to look up.
    """
    turn = plan.turn
    is_something_left_out = bool(turn.fitted.left_out or turn.fitted.clipped)
    if is_something_left_out and lacks_tools_for_left_out(plan):
        return False
    has_usual_room = turn.stage == 0
    is_turn_of_rebuild = record.begun == len(plan.conversation.entries)
    if is_turn_of_rebuild:
        has_room_of_rebuild = turn.stage == record.long and turn.room_tokens == record.turn_tokens
        return has_usual_room or has_room_of_rebuild
    return has_usual_room and turn.fitted.groups_when_shortened == 0


def _with_measured_room(case: Case, without_history: Plan, extension: Extension) -> _Attempt:
    """Measures the room at the end of the last prompt, and what could make more room.

    Args:
        case: what is measured so far.
        without_history: the plan that extends the last prompt, before it has its history.
        extension: the same with its history, before anything more is left out or clipped.
    """
    case = replace(case, room=extension.room)
    plans = {Mode.EXTENDED: extension.finished()}
    _, cause = decide(case)
    if cause is Cause.HAS_ROOM:
        return _Attempt(case, plans)

    # What the model has no tool to look up is left out by a rebuild alone, which binds the tool.
    may_leave_out = not lacks_tools_for_left_out(without_history)
    afforded_tokens = None
    if not case.is_in_loop:
        affordable = extension.affordable
        afforded_tokens = affordable.tokens
        rebuilt_tokens = without_history.limit_tokens * GROWTH_POLICY.rebuild_share
        is_for_recall = without_history.request.settings.quotes_anew
        pays = is_for_recall or affordable.new_tokens >= rebuilt_tokens
        is_due = pays or _is_full_again(extension)
        shortened = None
        if may_leave_out and not is_for_recall:
            shortened = without_middle(extension, affordable, is_due=is_due)
        case = replace(case, pays_for_rebuild=pays, can_lose_middle=shortened is not None)
        if shortened is not None:
            plans[Mode.SHORTENED] = shortened

    if case.room is Room.OVER and may_leave_out and not case.can_lose_middle:
        growth = replace(without_history.growth, mode=Mode.CLIPPED)
        clipped_plan = with_last_history(replace(without_history, growth=growth))
        clipped = Extension.of(clipped_plan, extension.record)
        if says_rules_since(clipped_plan.view, extension.record.begun):
            case = replace(case, room_if_clipped=clipped.room)
        plans[Mode.CLIPPED] = clipped.finished()
    return _Attempt(case, plans, afforded_tokens)


def _is_full_again(extension: Extension) -> bool:
    """Tells whether the prompt is full right after its middle was left out.

    Savings are counted then, and no background was sent since.
    """
    return extension.savings is not None and not uncounted_backgrounds(
        extension.plan, extension.record
    )


def _repeated_rebuild(plan: Plan, record: CutRecord) -> Plan:
    """Returns the plan of the last rebuild once more, with what the turn has got since.

    The record of that rebuild says up to which level it filled the prompt. A cold one filled it up
    to the limit. It could cost that level, and what was left of the savings.
    """
    level = record.level_tokens
    growth = replace(
        plan.growth,
        mode=Mode.REPEATED,
        is_cold=level >= plan.limit_tokens,
        afforded_tokens=record.saved_tokens + int(plan.request.cache_terms.cost(level)),
        level_tokens=level,
    )
    return with_history(allocate(replace(plan, growth=growth)), plan.history)


# Rebuilding


def _growth_of_rebuild(growth: Growth, attempt: _Attempt, cause: Cause) -> Growth:
    """Returns the growth of a rebuild: its cause, whether it is cold, and what it may cost."""
    growth = replace(growth, mode=Mode.REBUILT, cause=cause)
    case = attempt.case
    if not case.grows:
        return growth
    # If what stands before the messages has changed, nothing of the last prompt is cached. In a
    # loop of calls, the prompt of the last call may be.
    has_lost_cache = case.change is not None and not case.is_in_loop
    is_known_cold = growth.is_given and growth.is_cold
    growth = replace(growth, is_cold=is_known_cold or has_lost_cache)
    if attempt.afforded_tokens is None:
        return growth
    return replace(growth, afforded_tokens=attempt.afforded_tokens)


def _rebuilt(plan: Plan) -> Plan:
    """Returns the plan of a rebuild, with tools that are chosen for its message.

    Tools for what is left out are bound once the prompt leaves something out, and then stay. They
    are left out themselves where what must be sent leaves no room for them.
    """
    last = _newest_cut(plan)
    try:
        return _rebuilt_with_tools_for_left_out(plan, last)
    except BudgetTooSmallError:
        if not is_given_tools_for_left_out(plan):
            raise
    return _with_level(without_tools_for_left_out(plan, last))


def _rebuilt_with_tools_for_left_out(plan: Plan, last: CutRecord | None) -> Plan:
    """Returns the plan of a rebuild, which has the tools for what is left out if it needs them."""
    rebuilt = _with_level(with_new_tools(plan, last, is_something_left_out=False))
    if lacks_tools_for_left_out(rebuilt) and not _shows_everything(rebuilt):
        rebuilt = _with_level(with_new_tools(plan, last, is_something_left_out=True))
    return rebuilt


def _shows_everything(plan: Plan) -> bool:
    """Tells whether a rebuilt prompt shows all that was said, in full."""
    if plan.turn.fitted.left_out or plan.turn.fitted.clipped:
        return False
    planned = history_plan(plan)
    is_compacted = plan.conversation.compaction is not None
    return choose_cut(planned).whole and not planned.clips_whole and not is_compacted


def _with_level(plan: Plan) -> Plan:
    """Divides the budget of a rebuild, and decides to which level it fills the prompt.

    If no cache holds the last prompt, the rebuild costs nothing and fills all of it. Otherwise it
    leaves room, so that the next prompts can grow.
    """
    plan = allocate(plan)
    if not plan.grows:
        return plan
    growth = plan.growth
    was_cache_checked = growth.afforded_tokens is not None or growth.is_given
    has_lost_cache = growth.is_cold or (not was_cache_checked and is_cold(plan))
    # A turn that has outgrown its usual room has room to grow in: other texts may fill the rest.
    if has_lost_cache or plan.turn.stage or plan.request.settings.quotes_anew:
        growth = replace(
            growth,
            is_cold=True,
            level_tokens=plan.limit_tokens,
            afforded_tokens=int(plan.request.cache_terms.cost(whole_tokens_with_bound_tools(plan))),
        )
        return replace(plan, growth=growth)

    level = _level_tokens(plan)
    if plan.turn.free_tokens and not _was_compaction_asked_for(plan):
        level = max(level, _level_in_loop(plan))
    return allocate(replace(plan, growth=replace(growth, level_tokens=level)))


def _was_compaction_asked_for(plan: Plan) -> bool:
    """Tells whether the application called `compact`, to make room, since the last prompt."""
    last = plan.conversation.cuts.get(plan.cut_key)
    return last is not None and not last.prefix


def _level_tokens(plan: Plan) -> int:
    """Returns the tokens up to which a rebuild fills the prompt.

    They are those of what must be sent, and a share of the rest.
    """
    tokens = plan.allocated.tokens
    required = tokens_at(tokens, Place.SYSTEM_PROMPT, Place.TURN) + sum(plan.extras.values())
    rest = max(0, plan.limit_tokens - required)
    level = required + int(rest * GROWTH_POLICY.rebuild_share)
    return max(level, _smallest_cached_level(plan))


def _smallest_cached_level(plan: Plan) -> int:
    """Returns the tokens of the smallest prompt that is cached; 0 where the limit is below that.

    A rebuilt prompt has as many: with fewer, the next ones would have to be paid for in full.
    """
    smallest = plan.request.cache_terms.smallest_tokens
    return smallest if smallest < plan.limit_tokens else 0


def _level_in_loop(plan: Plan) -> int:
    """Returns the tokens up to which a rebuild in a loop fills the prompt.

    It is half of what sending everything costs, if savings pay for that. Each further call of the
    loop then saves the price of reading the other half: where that is a tenth, about ten calls pay
    for the rebuild.
    """
    # The limit itself is the level of a cold rebuild.
    level = min(plan.limit_tokens - 1, whole_tokens_with_bound_tools(plan) // 2)
    if plan.growth.afforded_tokens is not None:
        terms = plan.request.cache_terms
        level = min(level, int(plan.growth.afforded_tokens / terms.write_price))
    return max(level, _smallest_cached_level(plan))


def next_rebuild(plan: Plan, tokens: int) -> tuple[int, int]:
    """Estimates in how many turns a prompt of `tokens` is full, and its tokens once rebuilt."""
    conversation = plan.conversation
    exchange_tokens = conversation.total_tokens / max(1, conversation.exchanges)
    turns = int(max(0, plan.limit_tokens - tokens) / max(1.0, exchange_tokens))
    return turns, _level_tokens(plan)
