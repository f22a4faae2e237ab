"""Prompts that only grow: whether a prompt extends the last one or is rebuilt.

While a provider's cache may hold the last prompt, the next one extends it: it is the last prompt,
and more at its end. Where that is full, messages in its middle are left out, or it is rebuilt, and
everything is chosen anew. `mode.py` decides which; here its case is measured, and the prompt that
was decided on is planned.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from langchain_core.messages import ToolMessage

from langchain_ctxbudget.layers import Place, tokens_at
from langchain_ctxbudget.prompt.budgeting import allocate, history_plan, with_history
from langchain_ctxbudget.prompt.extension import GROWTH_POLICY, Extension, with_last_history
from langchain_ctxbudget.prompt.last_prompt import change_since, is_cold
from langchain_ctxbudget.prompt.middle import without_middle
from langchain_ctxbudget.prompt.mode import Case, Cause, Growth, Mode, Room, decide
from langchain_ctxbudget.prompt.plan import Plan, PlannedTurn
from langchain_ctxbudget.prompt.savings import uncounted_backgrounds, whole_tokens
from langchain_ctxbudget.prompt.turn_room import given_turn
from langchain_ctxbudget.stores import CutRecord


def divide_budget(plan: Plan) -> Plan:
    """Measures what must be sent, refuses what cannot fit, and divides the rest."""
    plan = _with_limit(plan)
    plan = replace(plan, turn=PlannedTurn(given=given_turn(plan)))
    if plan.growth.is_given and not plan.growth.extends_last:
        return _rebuilt(allocate(plan))

    attempt = _measured(plan)
    mode, cause = decide(attempt.case)
    if mode is Mode.REBUILT:
        growth = _growth_of_rebuild(plan.growth, attempt, cause)
        return _rebuilt(allocate(replace(plan, growth=growth)))
    planned = attempt.plans[mode]
    return replace(planned, growth=replace(planned.growth, mode=mode, cause=cause))


def _with_limit(plan: Plan) -> Plan:
    """Returns the plan with the most tokens that it may have."""
    settings = plan.request.settings
    window = plan.request.window.tokens
    room = settings.max_context_tokens
    if window is not None:
        room = max(0, window - plan.request.output_reserve_tokens)
    elif reserve := settings.output_reserve_tokens:
        plan = plan.with_failures(
            f"output reserve of {reserve:,} tokens not kept: the model's window is not known "
            "(set window_tokens)"
        )
    return replace(plan, limit_tokens=min(settings.max_context_tokens, room))


# Extending the last prompt


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The attempt to extend the last prompt, measured as far as its mode depends on it."""

    case: Case
    plans: Mapping[Mode, Plan] = field(default_factory=dict)
    """The prompts that extend the last one and were measured."""
    afforded_tokens: int | None = None
    """What a rebuild may cost instead, in effective tokens; None where that was not worked out."""


def _measured(plan: Plan) -> _Attempt:
    """Measures the case of a prompt.

    What costs time is measured only while the last prompt may still be extended.
    """
    case = Case(grows=plan.grows, has_last=bool(plan.conversation.cuts))
    if not _is_open(case):
        return _Attempt(case)

    is_given = plan.growth.is_given
    growth = replace(plan.growth, mode=Mode.EXTENDED, is_cold=is_given and plan.growth.is_cold)
    extended = allocate(replace(plan, growth=growth))
    record = history_plan(extended).record
    if record is None:
        return _Attempt(replace(case, has_last=False))
    case = replace(
        case,
        is_cold=not is_given and is_cold(extended),
        turn_goes_on=_turn_goes_on(extended, record),
        is_in_loop=_is_in_loop(plan),
    )
    if not _is_open(case):
        return _Attempt(case)

    whole = with_last_history(extended)
    was_something_said = record.begun != len(whole.conversation.entries)
    case = replace(case, change=change_since(whole, record), was_something_said=was_something_said)
    if not _is_open(case):
        return _Attempt(case)
    if not was_something_said:
        return _Attempt(case, {Mode.REPEATED: _repeated_rebuild(whole, record)})
    return _measured_at_its_end(case, extended, Extension.of(whole, record))


def _is_open(case: Case) -> bool:
    """Tells whether the last prompt may still be extended, so that more is to be measured."""
    mode, _ = decide(case)
    return mode.extends_last


def _is_in_loop(plan: Plan) -> bool:
    """Tells whether the turn has results of calls already."""
    return any(isinstance(message, ToolMessage) for message in plan.request.turn)


def _turn_goes_on(plan: Plan, record: CutRecord) -> bool:
    """Tells whether the turn can be sent as the last prompt has sent it, and more at its end."""
    turn = plan.turn
    if record.begun == len(plan.conversation.entries):
        # This is the turn of the rebuild: it has outgrown nothing, or still has the room of then.
        as_planned = (turn.stage, turn.room_tokens) == (record.long, record.turn_tokens)
        return not turn.stage or as_planned
    return not turn.stage and not turn.fitted.groups_when_shortened


def _measured_at_its_end(case: Case, extended: Plan, whole: Extension) -> _Attempt:
    """Measures the room at the end of the last prompt, and what could make more of it.

    Args:
        case: what is measured so far.
        extended: the plan that extends the last prompt, without its history.
        whole: the same with all of its history.
    """
    case = replace(case, room=whole.room)
    plans = {Mode.EXTENDED: whole.finished()}
    _, cause = decide(case)
    if cause is Cause.HAS_ROOM:
        return _Attempt(case, plans)

    afforded_tokens = None
    if not case.is_in_loop:
        affordable = whole.affordable
        afforded_tokens = affordable.tokens
        pays = affordable.pays(extended.limit_tokens * GROWTH_POLICY.rebuild_share)
        shorter = without_middle(whole, affordable, is_due=pays or _is_full_again(whole))
        case = replace(case, pays_for_rebuild=pays, can_lose_middle=shorter is not None)
        if shorter is not None:
            plans[Mode.SHORTENED] = shorter

    if case.room is Room.OVER and not case.can_lose_middle:
        growth = replace(extended.growth, mode=Mode.CLIPPED)
        in_short = with_last_history(replace(extended, growth=growth))
        clipped = Extension.of(in_short, whole.record)
        case = replace(case, room_if_clipped=clipped.room)
        plans[Mode.CLIPPED] = clipped.finished()
    return _Attempt(case, plans, afforded_tokens)


def _is_full_again(full: Extension) -> bool:
    """Tells whether no background was sent since savings were counted.

    Then a middle was left out right before.
    """
    return full.savings is not None and not uncounted_backgrounds(full.plan, full.record)


def _repeated_rebuild(plan: Plan, record: CutRecord) -> Plan:
    """Returns the plan of the last rebuild again, with what the turn has got since.

    What that rebuild found out is read from its record: its level, whether it was cold, and what it
    could cost, which is what it cost and what was left over.
    """
    level = record.level_tokens
    growth = replace(
        plan.growth,
        mode=Mode.REPEATED,
        is_cold=level >= plan.limit_tokens,
        afforded_tokens=record.saved_tokens + level,
        level_tokens=level,
    )
    return with_history(allocate(replace(plan, growth=growth)), plan.history)


# Rebuilding


def _growth_of_rebuild(growth: Growth, attempt: _Attempt, cause: Cause) -> Growth:
    """Returns what is known of a rebuild once the last prompt cannot be extended."""
    growth = replace(growth, mode=Mode.REBUILT, cause=cause)
    case = attempt.case
    if not case.grows:
        return growth
    # What stands before the messages has changed, so nothing of the last prompt is cached. (In a
    # loop of calls, the prompt of the last call may be.)
    has_lost_cache = case.change is not None and not case.is_in_loop
    is_known_cold = growth.is_given and growth.is_cold
    growth = replace(growth, is_cold=is_known_cold or has_lost_cache)
    if attempt.afforded_tokens is None:
        return growth
    return replace(growth, afforded_tokens=attempt.afforded_tokens)


def _rebuilt(plan: Plan) -> Plan:
    """Returns the plan of a rebuild, with the level up to which it fills the prompt.

    A cold one fills all of it; another one leaves room, so that the next prompts can grow.
    """
    if not plan.grows:
        return plan
    growth = plan.growth
    is_known = growth.afforded_tokens is not None or growth.is_given
    # A turn that has outgrown its room got what it needs to grow: the rest may fill the prompt.
    if growth.is_cold or plan.turn.stage or (not is_known and is_cold(plan)):
        growth = replace(
            growth,
            is_cold=True,
            level_tokens=plan.limit_tokens,
            afforded_tokens=whole_tokens(plan),
        )
        return replace(plan, growth=growth)

    level = _level_tokens(plan)
    if plan.turn.free_tokens and not _was_asked_for(plan):
        level = max(level, _level_in_loop(plan))
    return allocate(replace(plan, growth=replace(growth, level_tokens=level)))


def _was_asked_for(plan: Plan) -> bool:
    """Tells whether `compact` has made the last cut, to make room, and no prompt has used it."""
    last = plan.conversation.cuts.get(plan.cut_key)
    return last is not None and not last.prefix


def _level_in_loop(plan: Plan) -> int:
    """Returns what a rebuilt prompt may fill in a loop, whose next calls will all send it again.

    It is half of what sending everything costs. Each call then saves a tenth of the other half, the
    price where it is cached, so that about ten calls pay for the rebuild.
    """
    level = min(plan.limit_tokens - 1, whole_tokens(plan) // 2)
    afforded_tokens = plan.growth.afforded_tokens
    return level if afforded_tokens is None else min(level, afforded_tokens)


def _level_tokens(plan: Plan) -> int:
    """Returns what a rebuilt prompt fills: what must be sent, and a share of the rest."""
    tokens = plan.allocated.tokens
    required = tokens_at(tokens, Place.SYSTEM_PROMPT, Place.TURN) + sum(plan.extras.values())
    rest = max(0, plan.limit_tokens - required)
    return required + int(rest * GROWTH_POLICY.rebuild_share)


def next_rebuild(plan: Plan, tokens: int) -> tuple[int, int]:
    """Estimates in how many turns a prompt of `tokens` is full, and what it has once rebuilt."""
    conversation = plan.conversation
    exchange_tokens = conversation.total_tokens / max(1, conversation.exchanges)
    turns = int(max(0, plan.limit_tokens - tokens) / max(1.0, exchange_tokens))
    return turns, _level_tokens(plan)
