"""Results in a turn whose calls stand in the history: they stand behind these.

A turn has such a call once more, before its result. Where the history of the prompt has the call,
the result moves there, in place of a stand-in or of an earlier result.
"""

from collections.abc import Sequence
from dataclasses import replace

from langchain_core.messages import ToolMessage

from langchain_ctxbudget.content import call_ids
from langchain_ctxbudget.history import HistoryView
from langchain_ctxbudget.layers import group_tokens
from langchain_ctxbudget.messages import Group
from langchain_ctxbudget.prompt.plan import Plan
from langchain_ctxbudget.providers import NO_RESULT, REPLACED_RESULT, Repair


def with_results_in_history(plan: Plan, view: HistoryView) -> tuple[Plan, HistoryView]:
    """Returns a plan and its history, with late results behind calls that the history shows."""
    calls = plan.turn.given.calls_before
    if not calls:
        return plan, view
    ids = {plan.conversation.profile.call_ids.accepted(call_id) for call_id in calls}
    staying: list[Group] = []
    moved_tokens = 0
    for group in plan.turn.groups:
        changed = _with_results(view, group, plan) if _is_late(group, ids) else None
        if changed is None:
            staying.append(group)
        else:
            view = changed
            moved_tokens += group_tokens(group, plan.counter)
    turn = replace(
        plan.turn,
        groups=tuple(staying),
        tokens=plan.turn.tokens - moved_tokens,
        room_tokens=plan.turn.room_tokens - moved_tokens,
    )
    return replace(plan, turn=turn), view


def _is_late(group: Group, ids: set[str]) -> bool:
    """Tells if a group of the turn is a call of the history once more, with its result."""
    made = call_ids(group.messages[0])
    return bool(made) and ids.issuperset(made)


def _with_results(view: HistoryView, late: Group, plan: Plan) -> HistoryView | None:
    """Returns the history with the results of a group behind their calls; None without these."""
    results = [message for message in late.messages if isinstance(message, ToolMessage)]
    for result in results:
        number = _number_answering(view.groups, result.tool_call_id)
        if number is None:
            return None
        view = _with_result(view, number, result, plan)
    return view


def _number_answering(groups: Sequence[Group], call_id: str) -> int | None:
    """Returns the number of the last group that has a result of a call; None where none has."""
    for number in reversed(range(len(groups))):
        if call_id in _answered_in(groups[number]):
            return number
    return None


def _answered_in(group: Group) -> list[str | None]:
    """Returns the id of the call that each message of a group answers; None where it is none."""
    return [getattr(message, "tool_call_id", None) for message in group.messages]


def _with_result(view: HistoryView, number: int, result: ToolMessage, plan: Plan) -> HistoryView:
    """Returns the history with a result in place of the one that a group has, or of a stand-in."""
    group = view.groups[number]
    at = _answered_in(group).index(result.tool_call_id)
    earlier = group.messages[at]
    if earlier == result:
        return view

    positions = group.positions
    if earlier.content == NO_RESULT and not earlier.id:
        repairs = _without_missing(view.repairs, group, result)
    else:
        detail = "left out: the call has a newer result"
        repairs = (*view.repairs, Repair(REPLACED_RESULT, earlier.id or "", detail))
        if len(positions) == len(group.messages):
            positions = (*positions[:at], *positions[at + 1 :])
    messages = (*group.messages[:at], result, *group.messages[at + 1 :])
    groups = list(view.groups)
    groups[number] = Group(messages, positions)
    view.costs.add(result, plan.counter.count_message(result))
    return replace(view, groups=tuple(groups), repairs=repairs)


def _without_missing(
    repairs: Sequence[Repair], group: Group, result: ToolMessage
) -> tuple[Repair, ...]:
    """Returns repairs without the one that tells that a result of a group is missing."""
    detail = f"a stand-in answers call {result.tool_call_id!r}"
    missing = Repair("missing_result", group.messages[0].id or "", detail)
    return tuple(repair for repair in repairs if repair != missing)
