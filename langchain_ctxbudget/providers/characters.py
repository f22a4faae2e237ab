"""Replaces characters that UTF-8 cannot hold, since requests are sent in UTF-8."""

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.content import is_text
from langchain_ctxbudget.messages import encodable, plain_text
from langchain_ctxbudget.providers.profile import Profile
from langchain_ctxbudget.providers.stretch import Change

_JOINED = Change("characters", "halves of characters are sent joined, or as �")
_NOT_SENT = ("id", "artifact")
"""Fields of a message that no provider is sent."""


def with_sendable_characters(
    message: BaseMessage, _profile: Profile
) -> tuple[BaseMessage, Sequence[Change]]:
    """Returns a message whose texts UTF-8 can hold, and what was changed in its words."""
    if _is_bare_ascii(message):
        return message, ()
    changes: dict[str, Any] = {}
    for name, value in vars(message).items():
        if name not in _NOT_SENT and not _is_sendable(value):
            changes[name] = _sendable(value)
    if not changes:
        return message, ()
    sendable = message.model_copy(update=changes)
    words = plain_text(message)
    if encodable(words) == words:  # what was changed is not said, as in metadata
        return sendable, ()
    return sendable, [_JOINED]


def _is_bare_ascii(message: BaseMessage) -> bool:
    """Tells at a glance if a message is an ASCII text and little else, as most are."""
    if not is_text(message) or not str(message.content).isascii():
        return False
    return not (message.name or message.additional_kwargs or message.response_metadata)


def _is_sendable(value: object) -> bool:
    """Tells if UTF-8 can hold all texts in a value."""
    if isinstance(value, str):
        return value.isascii() or encodable(value) == value
    if isinstance(value, dict):
        return all(_is_sendable(key) and _is_sendable(part) for key, part in value.items())
    if isinstance(value, list):
        return all(map(_is_sendable, value))
    return True


def _sendable(value: Any) -> Any:  # noqa: ANN401 - whatever a message holds
    """Returns a value whose texts UTF-8 can hold."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {_sendable(key): _sendable(part) for key, part in value.items()}
    if isinstance(value, list):
        return list(map(_sendable, value))
    return value
