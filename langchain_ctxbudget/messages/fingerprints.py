"""Which message it is: fingerprints, comparisons at a glance, and messages as JSON."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    InvalidToolCall,
    ToolCall,
    ToolMessage,
)
from langchain_core.messages.base import message_to_dict
from pydantic_core import to_jsonable_python

from langchain_ctxbudget.errors import UnsupportedContentError
from langchain_ctxbudget.messages.text import digest
from langchain_ctxbudget.messages.turns import is_beginning_of

_PLAIN_TYPES = {"human", "ai", "system"}
_CALLS = ("tool_calls", "invalid_tool_calls")
_COMPARED = ("additional_kwargs", *_CALLS, "tool_call_id", "status", "role")
"""Fields that make messages differ, besides type, content and name."""
_SEEN = {"id", "content", "name", *_COMPARED}
MOST_LOOKED_AT = 2_048
"""Of more messages than this, older ones are known by identity alone."""
_sorted_json = json.JSONEncoder(sort_keys=True).encode


def fingerprint(message: BaseMessage) -> str:
    """Returns a digest of what a message says.

    Two messages with the same digest differ in their ids at most.
    """
    fields: dict[str, Any] = {
        "type": message.type,
        "content": message.content,
        "name": message.name,
        "kwargs": message.additional_kwargs,
    }
    if isinstance(message, AIMessage):
        fields["calls"] = _what_is_called(message.tool_calls)
        fields["invalid"] = _what_is_called(message.invalid_tool_calls)
    if isinstance(message, ToolMessage):
        fields["result"] = (message.tool_call_id, message.status)
    if isinstance(message, ChatMessage):
        fields["role"] = message.role
    if not _is_plain(message):
        fields = as_json_data(fields)
    return digest(_sorted_json(fields)).hex()


def _what_is_called(
    calls: Sequence[ToolCall] | Sequence[InvalidToolCall],
) -> list[tuple[object, object, object]]:
    """Returns the names, arguments and ids of calls."""
    return [(call["name"], call["args"], call["id"]) for call in calls]


def _is_plain(message: BaseMessage) -> bool:
    """Tells if a message is text and nothing else, as most are: no call, no result, no data."""
    if message.type not in _PLAIN_TYPES or not isinstance(message.content, str):
        return False
    for key, value in message.additional_kwargs.items():
        # A key may be what no UTF-8 can hold.
        if not (isinstance(value, str) and isinstance(key, str) and key.isascii()):
            return False
    return not any(getattr(message, field, ()) for field in _CALLS)


def content_id(print_of_message: str, occurrence: int) -> str:
    """Returns an id for a message that has none.

    It is made of the fingerprint, and of how often the same was said before.
    """
    return f"m-{print_of_message}-{occurrence}"


def plainly_same(one: BaseMessage, other: BaseMessage) -> bool:
    """Tells if two messages surely have the same fingerprint, without computing one.

    True and 1 are not the same.
    """
    if one is other:
        return True
    if type(one) is not type(other) or one.content != other.content or one.name != other.name:
        return False
    fields: tuple[str, ...] = _COMPARED
    if not isinstance(one.content, str):
        fields = (*_COMPARED, "content")
    ours = one.__dict__
    theirs = other.__dict__
    # Arrays do not say whether they are equal, and others raise what they like.
    with suppress(Exception):
        return all(_are_plainly_same(ours.get(field), theirs.get(field)) for field in fields)
    return False


def _are_plainly_same(value: object, other: object) -> bool:
    if not (value or other):
        return True
    return value is other or (value == other and repr(value) == repr(other))


@dataclass(frozen=True, slots=True)
class SeenMessages:
    """Messages, and a copy of what the newest held when they were looked at.

    Somebody may change them in place.
    """

    messages: Sequence[BaseMessage] = ()
    copies: tuple[Mapping[str, object], ...] = ()

    def begin(self, given: Sequence[BaseMessage]) -> bool:
        """Tells if messages begin with these very objects, unchanged as far as can be seen."""
        with suppress(Exception):  # whatever an artifact raises that is compared
            if not is_beginning_of(self.messages, given):
                return False
            newest = self.messages[-len(self.copies) :]
            return self.copies == tuple(map(vars, newest))
        return False

    def grown(self, given: Sequence[BaseMessage]) -> "SeenMessages":
        """Returns all given messages, which begin with these, as they are now."""
        first = max(len(self.messages), len(given) - MOST_LOOKED_AT)
        copies = (*self.copies, *map(_copy_of, given[first:]))
        return SeenMessages(given, copies[-MOST_LOOKED_AT:])


def _copy_of(message: BaseMessage) -> dict[str, object]:
    """Returns the fields of a message, those that are compared later as copies.

    Most are texts or empty, and copying these costs little.
    """
    fields = dict(vars(message))
    for name in _SEEN.intersection(fields):
        value = fields[name]
        if not isinstance(value, str):
            fields[name] = deepcopy(value) if value else copy(value)
    return fields


def as_json_data(value: object) -> Any:  # noqa: ANN401 - JSON can be anything
    """Returns a value as JSON can hold it.

    Bytes become base64, NaN and infinities become text, all else becomes its `repr`.
    """
    try:
        plain = to_jsonable_python(value, bytes_mode="base64", fallback=repr)
        return json.loads(json.dumps(plain), parse_constant=str)
    except (ValueError, RecursionError) as error:
        raise UnsupportedContentError(
            f"A message has something that JSON cannot hold ({error}): it is nested too deeply, "
            f"contains itself, or has a number of thousands of digits. Store it as text"
        ) from error


def message_data(message: BaseMessage) -> dict[str, Any]:
    """Returns a message as JSON can hold it; a tool's artifact that it cannot hold becomes None."""
    artifact = getattr(message, "artifact", None)
    if artifact is not None:
        message = message.model_copy(update={"artifact": None})
    data: dict[str, Any] = as_json_data(message_to_dict(message))
    if artifact is None or isinstance(artifact, Iterator):  # to read it would use it up
        return data
    with suppress(Exception):  # whatever an application's object raises when it is looked at
        data["data"]["artifact"] = as_json_data(artifact)
    return data
