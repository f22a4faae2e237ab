"""Results that come late: in a turn, or behind a cut, while their calls stand before it."""

from collections.abc import Collection, Mapping, Sequence
from itertools import islice

from langchain_core.messages import AIMessage, BaseMessage, ToolCall

from langchain_ctxbudget.content import answered_ids, call_ids, is_text, listed_call
from langchain_ctxbudget.history.conversation import Conversation

LONGEST_WALK = 1_000
"""The most messages before a late result that are looked at for its call."""

Numbered = tuple[list[BaseMessage], list[int | None]]
"""Messages, and the position of each; None for one that only stands in."""


def late_calls(
    conversation: Conversation, messages: Sequence[BaseMessage], end: int
) -> dict[str, ToolCall]:
    """Returns the calls whose results are among some messages, but not the calls themselves.

    They are looked for among the messages before `end`.
    """
    answered: set[str] = set()
    called: set[str] = set()
    for message in messages:
        if not is_text(message):
            answered.update(answered_ids(message))
            called.update(call_ids(message))
    late = answered - called
    return _calls_before(conversation, late, end) if late else {}


def _calls_before(
    conversation: Conversation, ids: Collection[str], end: int
) -> dict[str, ToolCall]:
    """Returns the newest calls with some ids among the messages before `end`."""
    found: dict[str, ToolCall] = {}
    for position in islice(reversed(range(end)), LONGEST_WALK):
        message = conversation.entries[position].message
        for call_id in call_ids(message):
            if call_id not in ids or call_id in found:
                continue
            call = listed_call(message, call_id)
            if call is not None:
                found[call_id] = call
        if len(found) == len(ids):
            break
    return found


def with_calls_again(
    messages: Sequence[BaseMessage], positions: Sequence[int | None], calls: Mapping[str, ToolCall]
) -> Numbered:
    """Returns messages with each of some calls once more, right before its first result."""
    shown: list[BaseMessage] = []
    places: list[int | None] = []
    unshown = dict(calls)
    for message, position in zip(messages, positions, strict=True):
        for call_id in answered_ids(message):
            call = unshown.pop(call_id, None)
            if call is not None:
                shown.append(AIMessage("", tool_calls=[call]))
                places.append(None)
        shown.append(message)
        places.append(position)
    return shown, places
