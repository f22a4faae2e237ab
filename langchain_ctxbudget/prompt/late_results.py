"""Results in a turn whose calls stand in the history: they stand behind these.

A turn has such a call once more, before its result. Where the history of the prompt has the call,
the result moves there, in place of a stand-in or of an earlier result.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from langchain_core.messages import ToolMessage

from langchain_ctxbudget.content import call_ids
from langchain_ctxbudget.history import HistoryView, late_calls
from langchain_ctxbudget.layers import group_tokens
from langchain_ctxbudget.messages import Group
from langchain_ctxbudget.prompt.plan import Plan
from langchain_ctxbudget.providers import (
    NO_RESULT,
    REPLACED_RESULT,
    Repair,
)


def with_results_in_history(plan: Plan, view: HistoryView) -> tuple[Plan, HistoryView]:
    """Returns a plan and its history, with late results behind calls that the history shows."""
    conversation = plan.conversation
    calls = late_calls(conversation, plan.request.turn, len(conversation.entries))
    if not calls:
        return plan, view
    ids = {conversation.profile.call_ids.accepted(call_id) for call_id in calls}
    staying: list[Group] = []
    for group in plan.turn.groups:
        moved = _with_results(view, group, plan) if _is_late(group, ids) else None
        if moved is None:
            staying.append(group)
        else:
            view = moved
    moved_tokens = sum(
        group_tokens(group, plan.counter) for group in plan.turn.groups if group not in staying
    )
    turn = replace(plan.turn, groups=tuple(staying), tokens=plan.turn.tokens - moved_tokens)
    return replace(plan, turn=turn), view


def _is_late(group: Group, ids: Collection[str]) -> bool:
    """Tells if a group of the turn is a call of the history once more, with its result."""
    made = call_ids(group.messages[0])
    return bool(made) and set(made) <= set(ids)


def _with_results(view: HistoryView, late: Group, plan: Plan) -> HistoryView | None:
    """Returns the history with the results of a group behind their calls; None without these."""
    results = [message for message in late.messages if isinstance(message, ToolMessage)]
    for result in results:
        place = _group_calling(view.groups, result.tool_call_id)
        if place is None:
            return None
        view = _with_result(view, place, result, plan)
    return view


def _group_calling(groups: Sequence[Group], call_id: str) -> int | None:
    """Returns the number of the last group that has a result of a call; None where none has."""
    for number in reversed(range(len(groups))):
        answered = [getattr(message, "tool_call_id", None) for message in groups[number].messages]
        if call_id in answered:
            return number
    return None


def _with_result(view: HistoryView, place: int, result: ToolMessage, plan: Plan) -> HistoryView:
    """Returns the history with a result in place of the one that a group has, or of a stand-in."""
    group = view.groups[place]
    answered = [getattr(message, "tool_call_id", None) for message in group.messages]
    at = answered.index(result.tool_call_id)
    earlier = group.messages[at]
    if earlier == result:
        return view
    messages = [*group.messages[:at], result, *group.messages[at + 1 :]]
    positions = group.positions
    repairs = list(view.repairs)
    if earlier.content == NO_RESULT and not earlier.id:
        told = f"a stand-in answers call {result.tool_call_id!r}"
        asked_by = group.messages[0].id or ""
        repairs = [
            repair
            for repair in repairs
            if (repair.kind, repair.message_id, repair.detail) != ("missing_result", asked_by, told)
        ]
    else:
        repairs.append(
            Repair(REPLACED_RESULT, earlier.id or "", "left out: the call has a newer result")
        )
        if len(positions) == len(messages):
            positions = (*positions[:at], *positions[at + 1 :])

    groups = list(view.groups)
    groups[place] = Group(tuple(messages), positions)
    view.costs.add(result, plan.counter.count_message(result))
    return replace(view, groups=tuple(groups), repairs=tuple(repairs))
