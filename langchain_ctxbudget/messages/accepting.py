"""Which messages are accepted from an application, and in which forms."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

from langchain_core.messages import (
    BaseMessage,
    HumanMessage,
    MessageLikeRepresentation,
    convert_to_messages,
)
from langchain_core.messages.base import BaseMessageChunk
from langchain_core.messages.modifier import RemoveMessage
from langchain_core.messages.utils import message_chunk_to_message
from pydantic import ValidationError

from langchain_ctxbudget.content import unreadable_in
from langchain_ctxbudget.errors import EmptyMessageError, UnsupportedContentError
from langchain_ctxbudget.messages.fingerprints import MOST_LOOKED_AT
from langchain_ctxbudget.messages.messages import KEY, WHOLE, require_preservation
from langchain_ctxbudget.messages.text import one_line
from langchain_ctxbudget.messages.turns import is_beginning_of, is_empty

Turn: TypeAlias = MessageLikeRepresentation | Sequence[MessageLikeRepresentation]
"""The user's message, in any form that LangChain's chat models take, or the turn so far, a list."""
USUAL_ROLES = ("user", "assistant", "system", "tool")
OTHER_ROLES = ("human", "ai", "developer", "function")
"""Further roles of messages that LangChain knows: `convert_to_messages` of langchain-core 1.7."""
ROLE_AND_TEXT = 2


def is_one_message(given: object) -> bool:
    """Tells if this is one message, in any form that LangChain's chat models take.

    A tuple that begins with a string is one, of a role and a text; a list is several messages.
    """
    if isinstance(given, tuple):
        return bool(given) and isinstance(given[0], str)
    return isinstance(given, BaseMessage | str | Mapping)


def _is_list(given: object) -> bool:
    """Tells if this is a list of something, or another sequence that is no text."""
    return isinstance(given, Sequence) and not isinstance(given, str | bytes)


def checked_messages(
    messages: Sequence[MessageLikeRepresentation], argument: str, known: Sequence[object] = ()
) -> list[BaseMessage]:
    """Returns messages of LangChain's classes after a check, chunks in their plain class.

    Args:
        messages: What an application gave.
        argument: The name of the argument, for errors.
        known: Messages that were checked before; of these, only the newest are looked at again.

    Raises:
        UnsupportedContentError: One is no message that can be stored.
    """
    if is_one_message(messages):
        raise UnsupportedContentError(
            f"{argument} must be a list of messages, and this is a single one: put it into a list"
        )
    if not _is_list(messages):
        raise UnsupportedContentError(
            f"{argument} must be a list of messages, not {_with_article(messages)}"
        )
    first = 0
    if is_beginning_of(known, messages):
        first = max(0, len(known) - MOST_LOOKED_AT)
    unchecked = messages[first:]
    has_plain_types = WHOLE.issuperset(map(type, unchecked))
    if has_plain_types and not any(map(_needs_check, cast("list[BaseMessage]", unchecked))):
        return list(cast("list[BaseMessage]", messages))

    checked = list(map(_without_chunks, cast("list[BaseMessage]", messages[:first])))
    for index, given in enumerate(unchecked, start=first):
        place = f"{argument}[{index}]"
        message = _as_message(given, place)
        _require_storable(message, place)
        checked.append(_without_chunks(message))
    return checked


def _needs_check(message: BaseMessage) -> bool:
    """Tells if a message of a plain class has something in it that may not be stored."""
    return not isinstance(message.content, str) or KEY in message.additional_kwargs


def _without_chunks(message: BaseMessage) -> BaseMessage:
    """Returns a message in its plain class."""
    return message_chunk_to_message(message) if isinstance(message, BaseMessageChunk) else message


def _as_message(given: object, place: str) -> BaseMessage:
    """Returns what an application gave as a message of LangChain's.

    A string is the user's words. A tuple or a dict has a role and a content.
    """
    if isinstance(given, BaseMessage):
        return given
    try:
        [message] = convert_to_messages([cast("MessageLikeRepresentation", given)])
    except (AttributeError, KeyError, NotImplementedError, TypeError, ValueError) as error:
        raise UnsupportedContentError(f"{place} {_why_no_message(given, error)}") from error
    return message


def _why_no_message(given: object, error: Exception) -> str:
    """Says why something is not a message, and what would be one. It repeats no content."""
    if isinstance(given, Mapping):
        return _why_no_message_of_mapping(given, error)
    if not isinstance(given, tuple | list):
        return (
            f"is {_with_article(given)}, not a message: give a string, a dict with 'role' and "
            "'content', or a message of LangChain's"
        )
    if len(given) != ROLE_AND_TEXT:
        return f"is {_with_article(given)} of {len(given)}: a message has 2, a role and a text"
    return _why_not_in_role(given[0], error)


def _why_no_message_of_mapping(given: Mapping[Any, Any], error: Exception) -> str:
    """Says why a dict is not a message."""
    role = given.get("role", given.get("type"))
    if role is None or "content" not in given:
        missing = "'role'" if role is None else "'content'"
        keys = ", ".join(repr(key) for key in given) or "no keys"
        return f"is a dict without {missing}; it has {keys}"
    return _why_not_in_role(role, error)


def _why_not_in_role(role: object, error: Exception) -> str:
    """Says why something with a role is not a message."""
    if not isinstance(role, str) or role not in USUAL_ROLES + OTHER_ROLES:
        roles = ", ".join(map(repr, USUAL_ROLES))
        return f"has the role {role!r}: it must be one of {roles}"
    if isinstance(error, ValidationError):
        fields = dict.fromkeys(str(problem["loc"][0]) for problem in error.errors())
        return f"has the role {role!r}, and a wrong kind of value in {', '.join(map(repr, fields))}"
    if isinstance(error, KeyError):
        return f"has the role {role!r}, and lacks {error}"
    return f"has the role {role!r}, and cannot be read: {one_line(str(error))}"


def _with_article(value: object) -> str:
    """Returns the name of a value's type with its article."""
    if value is None:
        return "None"
    name = type(value).__name__
    article = "an" if name[0].lower() in "aeiou" else "a"
    return f"{article} {name}"


def _require_storable(message: BaseMessage, place: str) -> None:
    """Raises an error unless this is a message that can be stored."""
    if isinstance(message, RemoveMessage):
        raise UnsupportedContentError(
            f"{place} is a RemoveMessage: call `sync` with the messages that stay"
        )
    unreadable = unreadable_in(message)
    if unreadable:
        raise UnsupportedContentError(
            f"{place}.{unreadable}: no provider reads that; leave it out, or give it as a text"
        )
    if KEY in message.additional_kwargs:
        require_preservation(message.additional_kwargs[KEY], f"{place}.additional_kwargs[{KEY!r}]")


def current_turn(message: Turn) -> list[BaseMessage]:
    """Returns the current turn as a list: a message of the user stands for itself.

    Raises:
        UnsupportedContentError: It is a single message of somebody else, or no message.
        EmptyMessageError: There is nothing to answer. Results alone may answer calls of the
            conversation, which is not known here.
    """
    if is_one_message(message):
        single = _as_message(message, "message")
        if not isinstance(single, HumanMessage):
            raise UnsupportedContentError(
                "message must be the user's, or the turn so far as a list, not a single "
                f"{type(single).__name__}"
            )
        message = [single]
    elif not _is_list(message):
        raise UnsupportedContentError(
            "message must be the user's words, or the turn so far as a list of messages, not "
            f"{_with_article(message)}"
        )
    turn = checked_messages(cast("Sequence[MessageLikeRepresentation]", message), "message")
    _require_question(turn)
    return turn


def _require_question(turn: Sequence[BaseMessage]) -> None:
    """Raises an error for a turn in which there is nothing to answer."""
    if not turn:
        raise EmptyMessageError("message is an empty list: give at least the message to answer")
    questions = [position for position, part in enumerate(turn) if isinstance(part, HumanMessage)]
    for position in questions:
        if is_empty(turn[position]):
            raise EmptyMessageError(
                f"message has no content at position {position}: say what is to be answered"
            )
    if not questions and all(map(is_empty, turn)):
        raise EmptyMessageError("message has nothing that can be sent: it has no content")
