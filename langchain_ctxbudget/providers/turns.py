"""Puts a line where a provider wants a turn of somebody else between two others.

An assistant's message with calls may stand right behind another message of an assistant: where two
agents speak one after the other, or where the user's message between them is left out. Gemini
refuses such calls. The user may speak right behind the results of calls, before the agent was done.
Mistral refuses that.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_ctxbudget.content import call_ids
from langchain_ctxbudget.messages import Group
from langchain_ctxbudget.providers.profile import Profile
from langchain_ctxbudget.providers.stretch import GOES_ON, Change, Placed, Repair, Stretch

_GOES_ON = Change("turn_order", f"{GOES_ON} stands before its calls, as an answer comes first")
_ANSWERED = Change("turn_order", f"{GOES_ON} stands before it, as the results have no answer")


def with_turns_before_calls(stretch: Stretch, profile: Profile) -> tuple[Stretch, list[Repair]]:
    """Returns messages with a line between an answer and calls of an assistant right behind it."""
    if not profile.calls_follow_others:
        return stretch, []
    return _with_lines(stretch, HumanMessage, _calls_behind_answer, _GOES_ON)


def with_answers_behind_results(stretch: Stretch, profile: Profile) -> tuple[Stretch, list[Repair]]:
    """Returns messages with a line between results and a user's message right behind them."""
    if not profile.answers_follow_results:
        return stretch, []
    return _with_lines(stretch, AIMessage, _lacks_answer, _ANSWERED)


def _with_lines(
    stretch: Stretch,
    speaker: type[HumanMessage | AIMessage],
    lacks_line: Callable[[BaseMessage | None, BaseMessage], bool],
    change: Change,
) -> tuple[Stretch, list[Repair]]:
    """Returns messages with a line before each that lacks one, and the repairs for that.

    Args:
        stretch: The messages.
        speaker: The kind of message that a line is.
        lacks_line: Tells of two messages in a row whether a line must stand between them.
        change: What a report says of it.
    """
    sent: list[Placed] = []
    repairs: list[Repair] = []
    before: BaseMessage | None = None
    for placed in stretch.placed:
        if lacks_line(before, placed.message):
            sent.append(Placed(speaker(GOES_ON)))
            repairs.append(change.repair_of(placed.message))
        sent.append(placed)
        before = placed.message
    return replace(stretch, placed=sent), repairs


def answered_before(
    history: Sequence[Group], turn: Sequence[Group], profile: Profile
) -> tuple[list[Group], list[Repair]]:
    """Returns a history that a turn may stand behind, and the repair for that.

    Where the history ends with results and the user has spoken then, a line answers these. Where it
    ends with an answer and the turn begins with calls, a line of the user stands between them.
    """
    groups = list(history)
    if not (groups and turn):
        return groups, []
    last = groups[-1]
    before = last.messages[-1]
    first = turn[0].messages[0]
    if profile.answers_follow_results and _lacks_answer(before, first):
        groups[-1] = replace(last, messages=(*last.messages, AIMessage(GOES_ON)))
        return groups, [_ANSWERED.repair_of(first)]
    if profile.calls_follow_others and _calls_behind_answer(before, first):
        groups[-1] = replace(last, messages=(*last.messages, HumanMessage(GOES_ON)))
        return groups, [_GOES_ON.repair_of(first)]
    return groups, []


def _lacks_answer(before: BaseMessage | None, message: BaseMessage) -> bool:
    """Tells if the user speaks in a message right behind a result."""
    return isinstance(before, ToolMessage) and isinstance(message, HumanMessage)


def _calls_behind_answer(before: BaseMessage | None, message: BaseMessage) -> bool:
    """Tells if a message makes calls right behind another one of an assistant."""
    return isinstance(before, AIMessage) and bool(call_ids(message))
