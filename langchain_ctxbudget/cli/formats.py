"""Conversations from files: messages of OpenAI and LangChain, exports of ChatGPT and Claude.

A file is JSON or JSONL; the content tells the format, never the file's name. A file is read as a
whole or not at all, and every error names the file and the record.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from langchain_core.messages import AIMessage, BaseMessage, convert_to_messages, messages_from_dict

from langchain_ctxbudget.errors import ConversationFormatError
from langchain_ctxbudget.messages import digest, fingerprint, split_instructions

T = TypeVar("T")
ACCEPTED = """\
Accepted are, as JSON or JSONL:
  openai      messages with "role" and "content", or objects with "messages"
  langchain   messages as messages_to_dict, model_dump or dumps write them, or objects with "messages"
  chatgpt     conversations.json of a data export: objects with "mapping"
  claude      conversations.json of a data export: objects with "chat_messages\""""
MOST_LISTED = 20
TIMES = ("created_at", "create_time", "timestamp")
MILLISECONDS_FROM = 1e11  # as seconds this is the year 5138, as milliseconds 1973
TYPED = {"text", "multimodal_text", "code", "execution_output"}
"""Contents of a ChatGPT export that somebody has said; the others are pages, files and thoughts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationFile:
    """One conversation as it was read from a file."""

    conversation_id: str
    """The file's own, else a hash of how the conversation begins, which stays as it grows."""
    title: str | None
    messages: list[BaseMessage]
    """In order, with `name` and `additional_kwargs["created_at"]` (ISO 8601) where the file has
    them."""

    @property
    def label(self) -> str:
        """The title, else the id."""
        return self.title or self.conversation_id


def read_conversations(path: Path | str) -> list[ConversationFile]:
    """Reads every conversation of a file.

    A `ConversationFormatError` says where it cannot be read.
    """
    with _placed(str(path)):
        return parse_conversations(Path(path).read_bytes())


def parse_conversations(data: bytes) -> list[ConversationFile]:
    """Reads the conversations in the bytes of a file, as `read_conversations` does."""
    with _placed("the file"):
        records = _records(data.decode("utf-8-sig"))
        if not records:
            raise ValueError(f"has no messages\n{ACCEPTED}")
    if isinstance(records[0], dict) and ("role" in records[0] or "type" in records[0]):
        records = [{"messages": records}]
    return _each("conversation", records, _conversation)


def pick_conversation(
    conversations: Sequence[ConversationFile], *, title: str | None = None
) -> ConversationFile:
    """Returns the only conversation, or the one whose title or id matches.

    An error lists the candidates.
    """
    wanted = (title or "").casefold()
    fitting = [
        c for c in conversations if wanted in (c.label.casefold(), c.conversation_id.casefold())
    ]
    fitting = fitting or [c for c in conversations if wanted in c.label.casefold()]
    if len(fitting) == 1:
        return fitting[0]
    lines = [
        f"  {c.label}  ({c.conversation_id}, {len(c.messages)} messages)"
        for c in fitting or conversations
    ]
    found = (
        f"{title or 'the file'!r} fits {len(fitting)} conversations: choose one by its title or id"
    )
    raise ConversationFormatError("\n".join([found, *lines[:MOST_LISTED]]))


def read_one(path: Path, title: str | None) -> tuple[str, str, list[BaseMessage]]:
    """Returns the id, the instructions and the other messages of the one conversation that is chosen of a file."""
    chosen = pick_conversation(read_conversations(path), title=title)
    instructions, messages = split_instructions(chosen.messages)
    return chosen.conversation_id, "\n\n".join(instructions), messages


@contextmanager
def _placed(place: str) -> Iterator[None]:
    """Puts the place in front of whatever goes wrong inside, and makes a `ConversationFormatError` of it."""
    try:
        yield
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        OSError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        problem = f"{error} is missing" if isinstance(error, KeyError) else error
        raise ConversationFormatError(f"{place}: {problem}") from error


def _records(text: str) -> list[Any]:
    """Returns the items of a JSON list, the lines of JSONL, or one JSON value."""
    try:
        value = json.loads(text, strict=False)
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise
        value = _each("line", filter(str.strip, text.split("\n")), json.loads)
    return value if isinstance(value, list) else [value]


def _each(name: str, values: Iterable[Any], read: Callable[[Any], T]) -> list[T]:
    """Reads values one by one; an error names the one that it is about."""
    found = []
    for number, value in enumerate(values, 1):
        with _placed(f"{name} {number}"):
            found.append(read(value))
    return found


def _conversation(fields: dict[str, Any]) -> ConversationFile:
    name = (
        next((name for name in READERS if name in fields), None)
        if isinstance(fields, dict)
        else None
    )
    if name is None:
        raise ValueError(f"neither a message nor a conversation\n{ACCEPTED}")
    messages = _each("message", READERS[name](fields), _message)
    key = next(
        (fields[one] for one in ("conversation_id", "thread_id", "id", "uuid") if fields.get(one)),
        None,
    )
    if key is None:
        answer = next(
            (place for place, one in enumerate(messages) if isinstance(one, AIMessage)),
            len(messages),
        )
        opening = "".join(map(fingerprint, messages[: answer + 1]))
        key = f"conversation-{digest(opening, 8).hex()}"
    title = next(
        (fields[one] for one in ("title", "name") if isinstance(fields.get(one), str)), None
    )
    return ConversationFile(conversation_id=str(key), title=title, messages=messages)


def _message(fields: dict[str, Any]) -> BaseMessage:
    """Returns the message that a JSON object holds.

    Fields of OpenAI without a place in it stay in its kwargs.
    """
    if "role" in fields and fields.get("type") != "chat":  # a `ChatMessage` has both
        times = [_created_at(fields.get(name)) for name in TIMES]
        said = {name: value for name, value in fields.items() if name not in TIMES} | next(
            filter(None, times), {}
        )
        if calls := said.get("tool_calls"):  # one without arguments may have an empty text for them
            functions = (
                {**call["function"], "arguments": call["function"].get("arguments") or "{}"}
                for call in calls
            )
            said["tool_calls"] = [
                {**call, "function": one} for call, one in zip(calls, functions, strict=True)
            ]
        return convert_to_messages(
            [{"content": "", **said} if said["role"] == "assistant" else said]
        )[0]
    data = dict(fields.get("kwargs") or fields.get("data") or fields)
    return messages_from_dict([{"type": data.get("type") or fields["type"], "data": data}])[0]


def _of_claude(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for said in fields["chat_messages"]:
        if said["text"].strip():
            about = {"id": said.get("uuid"), "created_at": said.get("created_at")}
            yield {"role": said["sender"], "content": said["text"], **about}


def _of_chatgpt(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the conversation as the user last saw it.

    An export is a tree whose branches are edits and new answers.
    """
    tree = fields["mapping"]
    place = fields.get("current_node")
    path: list[Any] = []
    while place is not None and len(path) < len(tree):
        path.append(tree[place].get("message") or {})
        place = tree[place].get("parent")
    for said in reversed(path):
        content = said.get("content") or {}
        text = "\n".join(
            part for part in content.get("parts") or [content.get("text")] if isinstance(part, str)
        )
        hidden = (said.get("metadata") or {}).get(
            "is_visually_hidden_from_conversation"
        ) or said.get("weight") == 0
        if text.strip() and not hidden and content.get("content_type") in TYPED:
            role = said["author"]["role"].replace(
                "tool", "assistant"
            )  # no call stands before what a tool says
            yield {
                "role": role,
                "content": text,
                "id": said.get("id"),
                "created_at": said.get("create_time"),
            }


READERS: Mapping[str, Callable[[dict[str, Any]], Iterable[Any]]] = {
    "mapping": _of_chatgpt,
    "chat_messages": _of_claude,
    "messages": lambda fields: fields["messages"],
}
"""The reader of an object that has a field of this name; it yields messages."""


def _created_at(value: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """Returns the time of a message: ISO 8601 as it is written, or Unix seconds or milliseconds.

    Empty without one.
    """
    if isinstance(value, int | float):
        value = datetime.fromtimestamp(
            value / 1000 if abs(value) >= MILLISECONDS_FROM else value, UTC
        ).isoformat()
    return {"created_at": value} if value and datetime.fromisoformat(value) else {}
