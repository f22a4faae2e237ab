"""Messages: who said what when, which one it is, and how it is shown to a model."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy, deepcopy
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any, Literal, NamedTuple, cast, get_args

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.base import BaseMessageChunk, message_to_dict
from langchain_core.messages.modifier import RemoveMessage
from langchain_core.messages.utils import message_chunk_to_message
from pydantic_core import to_jsonable_python

from langchain_ctxbudget.errors import EmptyMessageError, InputError, UnsupportedContentError
from langchain_ctxbudget.messages import calls, fences
from langchain_ctxbudget.messages.calls import Block, blocks_of
from langchain_ctxbudget.messages.media import medium_of, words_inside
from langchain_ctxbudget.messages.text import (
    ENGLISH,
    LABEL_CHARACTERS,
    clipped,
    digest,
    fold,
    iso_date,
    one_line,
    read_time,
    without_pasted,
)
from langchain_ctxbudget.messages.turns import group, is_empty, same_beginning

_MARKS = "-#[]* "
"""Lines and headings begin with these: a name must not look like one."""
_ROLE_NAMES = {"user", "assistant", "system", "tool", "ai", "human", "developer", "function"}
_SAID = ("text", "input_text", "output_text")
"""Types of blocks that hold what somebody says, of LangChain and the providers, and of OpenAI's
Responses."""
_PLAIN_BLOCK = {"type", "text", "id", "index"}
_PLAIN_TYPES = {"human", "ai", "system"}
_CALLS = ("tool_calls", "invalid_tool_calls")
_COMPARED = ("additional_kwargs", *_CALLS, "tool_call_id", "status", "role")
_SEEN = {"id", "content", "name", *_COMPARED}
MOST_LOOKED_AT = 2_048
"""Of more messages than this, older ones are known by identity alone."""
_sorted_json = json.JSONEncoder(sort_keys=True).encode
_ROLES = {"human": "user", "ai": "assistant", "system": "system", "function": "function"}


def speaker(message: BaseMessage) -> str:
    """Returns who said it: the name, else the role.

    On one line, and as data, since names may come from anywhere.
    """
    role = _ROLES.get(message.type, getattr(message, "role", message.type))
    name = one_line((message.name or "").replace(":", " ")).lstrip(_MARKS)
    likeness = ENGLISH.no_letters.sub("", fold(name))
    if likeness in _ROLE_NAMES and likeness != role:
        name = f"{role} named {name}"  # or words would pass for someone else's
    said = (
        " ".join(filter(None, ("tool", name))) if isinstance(message, ToolMessage) else name or role
    )
    return fences.as_data(one_line(said))


def date_of(message: BaseMessage) -> str | None:
    """Returns the day it was said, `YYYY-MM-DD`, where `additional_kwargs["created_at"]` tells.

    See `read_time`.
    """
    created_at = message.additional_kwargs.get("created_at")
    if created_at is None:
        return None
    if day := iso_date(created_at):  # the day there, whatever the offset
        return day
    at = read_time(created_at)
    return at.date().isoformat() if at else None


def time_of(message: BaseMessage) -> datetime | None:
    """Returns the time it was said, in UTC; None where it tells none, or none that can be read.

    See `read_time`.
    """
    at = read_time(message.additional_kwargs.get("created_at"))
    try:
        return at.astimezone(UTC) if at else None
    except OverflowError:
        return None


def unread_time(message: BaseMessage) -> str | None:
    """Returns the `created_at` of a message where it has one that cannot be read as a time, shortened."""
    created_at = message.additional_kwargs.get("created_at")
    if created_at is None or created_at == "" or date_of(message) is not None:
        return None
    return clipped(repr(created_at), LABEL_CHARACTERS)


def plain_text(message: BaseMessage) -> str:
    """Returns a message as text.

    Its words, a mention of its calls, and of blocks that are not text or thoughts.

    Of a search result, a document of text or another block with words these are told, too.
    """
    message = (
        calls.with_text_result(message)
        if isinstance(message, ToolMessage)
        else calls.with_calls(message)
    )
    parts: list[str] = []
    for block in blocks_of(message):
        if (text := _words(block)) is not None:
            parts.append(text)
        elif isinstance(block, dict):
            kind = block.get("type", "content")
            if kind not in (*calls.CALL_BLOCKS, *calls.THOUGHTS) or calls.is_raw(block, message):
                parts.append(f"[{kind}]")
                if kind not in calls.CALL_BLOCKS and medium_of(block) is None:
                    parts += words_inside(block)
    parts += [
        f"[called {call['name']}({json.dumps(call['args'], ensure_ascii=False, default=str)})]"
        for call in calls.listed_calls(message)
    ]
    return "\n".join(part for part in map(str.strip, parts) if part)


def own_words(message: BaseMessage) -> str:
    """Returns the words that somebody says themselves.

    Of a user, nothing pasted or that LangChain wrote for them.
    """
    if isinstance(message, HumanMessage) and message.additional_kwargs.get("lc_source"):
        return ""
    said = [
        _words(block) or ""
        for block in blocks_of(message)
        if isinstance(block, str) or block.get("type") in _SAID
    ]
    text = "\n".join(filter(None, map(str.strip, said)))
    return without_pasted(text).strip() if isinstance(message, HumanMessage) else text


def _words(block: Block) -> str | None:
    text = block if isinstance(block, str) else block.get("text")
    return text if isinstance(text, str) else None


def model_of(answer: BaseMessage) -> str | None:
    """Returns the model that a provider says has answered; None where it does not say."""
    names = (answer.response_metadata.get(key) for key in ("model_name", "model"))
    return next((name for name in names if isinstance(name, str) and name), None)


def fingerprint(message: BaseMessage) -> str:
    """Returns a digest of a message.

    Two messages with the same one are the same but for their ids.
    """
    said: dict[str, Any] = {"type": message.type, "content": message.content, "name": message.name}
    said["kwargs"] = message.additional_kwargs
    if isinstance(message, AIMessage):
        made: dict[str, Any] = {"calls": message.tool_calls, "invalid": message.invalid_tool_calls}
        said |= {
            kind: [(call["name"], call["args"], call["id"]) for call in calls]
            for kind, calls in made.items()
        }
    if isinstance(message, ToolMessage):
        said["result"] = (message.tool_call_id, message.status)
    if isinstance(message, ChatMessage):
        said["role"] = message.role
    text = _sorted_json(said if _is_plain(message) else as_json_data(said))
    return digest(text).hex()


def _is_plain(message: BaseMessage) -> bool:
    """Tells at a glance if a message is text and nothing else, as most are.

    No call, no result, no data.
    """
    given = message.additional_kwargs.items()
    return (
        message.type in _PLAIN_TYPES
        and isinstance(message.content, str)
        # A key may be what no UTF-8 can hold.
        and all(isinstance(it, str) and isinstance(key, str) and key.isascii() for key, it in given)
        and not any(getattr(message, calls, ()) for calls in _CALLS)
    )


def plainly_same(one: BaseMessage, other: BaseMessage) -> bool:
    """Tells at a glance if two messages have the same fingerprint; True and 1 are not the same."""
    if one is other:
        return True
    if type(one) is not type(other) or one.content != other.content or one.name != other.name:
        return False
    ours = one.__dict__
    theirs = other.__dict__
    with suppress(
        Exception
    ):  # arrays do not say whether they are equal, and others raise what they like
        return all(
            (mine := ours.get(name)) is (their := theirs.get(name))
            or (mine == their and repr(mine) == repr(their))
            for name in (_COMPARED if isinstance(one.content, str) else (*_COMPARED, "content"))
            if ours.get(name) or theirs.get(name)
        )
    return False


class SeenMessages(NamedTuple):
    """Messages, and a copy of what the newest said when they were looked at, as somebody may change them in place."""

    messages: Sequence[BaseMessage] = ()
    said: tuple[Mapping[str, object], ...] = ()

    def begin(self, given: Sequence[BaseMessage]) -> bool:
        """Tells if the given messages begin with these very objects, unchanged as far as can be seen."""
        with suppress(Exception):  # whatever an artifact raises that is compared
            return same_beginning(self.messages, given) and self.said == (
                *map(vars, self.messages[-len(self.said) :]),
            )
        return False

    def grown(self, given: Sequence[BaseMessage]) -> "SeenMessages":
        """Returns all given messages, which begin with these, as they are now."""
        new = given[max(len(self.messages), len(given) - MOST_LOOKED_AT) :]
        return SeenMessages(given, (*self.said, *map(_as_seen, new))[-MOST_LOOKED_AT:])


def _as_seen(message: BaseMessage) -> dict[str, object]:
    """Returns what a message says, as a copy.

    Most of it is text, or there is none, and that is copied fast.
    """
    mutable = (
        (name, it)
        for name, it in vars(message).items()
        if name in _SEEN and not isinstance(it, str)
    )
    return {**vars(message), **{name: deepcopy(it) if it else copy(it) for name, it in mutable}}


def as_json_data(value: object) -> Any:  # noqa: ANN401 - JSON can be anything
    """Returns a value as JSON can hold it.

    Bytes as base64, NaN and infinities as text, all else as its `repr`.
    """
    try:
        return json.loads(
            json.dumps(to_jsonable_python(value, bytes_mode="base64", fallback=repr)),
            parse_constant=str,
        )
    except (ValueError, RecursionError) as error:
        raise UnsupportedContentError(
            f"A message has something that JSON cannot hold ({error}): it is nested too deeply, contains itself, or "
            f"has a number of thousands of digits. Store it as text"
        ) from error


def message_data(message: BaseMessage) -> dict[str, Any]:
    """Returns a message as JSON can hold it; a tool's artifact that it cannot hold becomes None."""
    artifact = getattr(message, "artifact", None)
    bare = message if artifact is None else message.model_copy(update={"artifact": None})
    data: dict[str, Any] = as_json_data(message_to_dict(bare))
    if artifact is not None and not isinstance(artifact, Iterator):  # to read it would use it up
        with suppress(
            Exception
        ):  # whatever an object of the application's raises when it is looked at
            data["data"]["artifact"] = as_json_data(artifact)
    return data


def content_id(print_of_message: str, occurrence: int) -> str:
    """Returns the id of a message that has none.

    Its fingerprint, and how often it was said before.
    """
    return f"m-{print_of_message}-{occurrence}"


def checked(
    messages: Sequence[BaseMessage], argument: str, known: Sequence[object] = ()
) -> list[BaseMessage]:
    """Returns messages whole, chunks in their plain class; refuses all else.

    Of `known` ones it looks at the newest.
    """
    if isinstance(messages, str | bytes | dict) or not isinstance(messages, Sequence):
        raise UnsupportedContentError(
            f"{argument} must be a list of LangChain messages, not {type(messages).__name__}"
        )
    new = (
        messages[max(0, len(known) - MOST_LOOKED_AT) :]
        if same_beginning(known, messages)
        else messages
    )
    if WHOLE.issuperset(map(type, new)) and not any(
        KEY in message.additional_kwargs for message in new
    ):
        return list(messages)
    for index, message in enumerate(messages):
        place = f"{argument}[{index}]"
        if not isinstance(message, BaseMessage):
            raise UnsupportedContentError(
                f"{place} is a {type(message).__name__}, not a LangChain message; "
                f"`langchain_core.messages.convert_to_messages` converts dicts and tuples"
            )
        if isinstance(message, RemoveMessage):
            raise UnsupportedContentError(
                f"{place} is a RemoveMessage: call `sync` with the messages that stay"
            )
        if KEY in message.additional_kwargs:
            require_preservation(
                message.additional_kwargs[KEY], f"{place}.additional_kwargs[{KEY!r}]"
            )
    return [
        message_chunk_to_message(one) if isinstance(one, BaseMessageChunk) else one
        for one in messages
    ]


def split_instructions(messages: Sequence[BaseMessage]) -> tuple[list[str], list[BaseMessage]]:
    """Splits off the texts of the system messages that a conversation begins with."""
    first = list(takewhile(lambda message: isinstance(message, SystemMessage), messages))
    return list(map(instruction, first)), list(messages[len(first) :])


def instruction(message: BaseMessage) -> str:
    """Returns the text of a system message.

    Blocks without a blank between them are paragraphs of it.
    """
    text = ""
    for part in (_words(block) or "" for block in blocks_of(message)):
        apart = not (text and part) or text[-1].isspace() or part[0].isspace()
        text += part if apart else f"\n\n{part}"
    return text


def flattened(messages: Sequence[BaseMessage]) -> list[str]:
    """Returns the report's line where the first system messages have more than text, which is not sent."""
    first = takewhile(lambda said: isinstance(said, SystemMessage), messages)
    marks: dict[str, None] = {}
    for block in (
        block for message in first for block in blocks_of(message) if isinstance(block, dict)
    ):
        is_text = block.get("type") == "text"
        other = f"a block of type {block.get('type')!r}"
        marks |= dict.fromkeys(
            (key for key in block if key not in _PLAIN_BLOCK) if is_text else [other]
        )
    for_cache = "for marks of a provider's cache set cache_markers"
    return (
        [f"system messages are sent as one text, without {', '.join(marks)}; {for_cache}"]
        if marks
        else []
    )


def current_turn(message: str | BaseMessage | Sequence[BaseMessage]) -> list[BaseMessage]:
    """Returns the current turn as a list: a string or a human message stands for itself.

    Refuses an empty one.
    """
    if isinstance(message, BaseMessage) and not isinstance(message, HumanMessage):
        raise UnsupportedContentError(
            f"message must be a string, a HumanMessage or the turn so far as a list, not a single "
            f"{type(message).__name__}"
        )
    given = HumanMessage(message) if isinstance(message, str) else message
    turn = checked([given] if isinstance(given, BaseMessage) else given, "message")
    if not turn:
        raise EmptyMessageError("message is an empty list: give at least the message to answer")
    for position, part in enumerate(turn):
        if isinstance(part, HumanMessage) and is_empty(part):
            raise EmptyMessageError(
                f"message has no content at position {position}: say what is to be answered"
            )
    if not any(isinstance(part, HumanMessage) for part in turn) and not group(turn)[0]:
        raise EmptyMessageError(
            "message has nothing that can be sent: no content, or results that answer no call"
        )
    return turn


def as_sent(message: BaseMessage, *, heading: str | None = None) -> BaseMessage:
    """Returns a message as it is sent.

    A name that every provider accepts, a heading on its own line.
    """
    changes: dict[str, Any] = {}
    name = None if isinstance(message, ToolMessage) else message.name
    if name and (clean := calls.provider_name(name)) != name:
        changes["name"] = clean
    if heading:
        first = f"{heading}\n"
        said = message.content
        changes["content"] = (
            first + said if isinstance(said, str) else [{"type": "text", "text": first}, *said]
        )
    return message.model_copy(update=changes) if changes else message


Preservation = Literal["keep", "summarize", "drop"]
"""Verbatim while it fits; only in short and in summaries; not in prompts at all (the recall tool
still finds it)."""
KEY = "ctxbudget"
"""The key in `additional_kwargs`."""
WHOLE = frozenset({HumanMessage, AIMessage, ToolMessage, SystemMessage})
EXCERPT_CHARACTERS = 100
"""The length of an excerpt of a message that is only summarised (seed 002)."""


def require_preservation(value: object, where: str) -> Preservation:
    """Returns a preservation if the value is one, else raises `InputError`."""
    if value not in get_args(Preservation):
        raise InputError(f'{where} must be "keep", "summarize" or "drop", not {value!r}')
    return cast("Preservation", value)


def preservation_of(message: BaseMessage) -> Preservation | None:
    """Returns the wish in a message, or None."""
    value = message.additional_kwargs.get(KEY)
    return cast("Preservation", value) if value in get_args(Preservation) else None


def excerpt(message: BaseMessage) -> BaseMessage:
    """Returns the beginning of a message that is only summarised, and its calls.

    A short one stays as it is.
    """
    text = one_line(message.text)
    is_text = isinstance(message.content, str)
    if len(text) > EXCERPT_CHARACTERS:
        text = f"[Earlier: {text[:EXCERPT_CHARACTERS].rstrip()}…]"
    elif is_text:
        return message
    kept = [
        one
        for one in blocks_of(message)
        if isinstance(one, dict) and one.get("type") in calls.CALL_BLOCKS
    ]
    said = [{"type": "text", "text": text or "[Earlier: an attachment]"}, *kept]
    return message.model_copy(update={"content": text if is_text else said})
