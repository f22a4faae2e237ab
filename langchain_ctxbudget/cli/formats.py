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
  langchain   messages as messages_to_dict, model_dump or dumps write them, or objects with \
"messages"
  chatgpt     conversations.json of a data export: objects with "mapping"
  claude      conversations.json of a data export: objects with "chat_messages\""""
MOST_LISTED = 20
"""Conversations that an error lists."""
TIME_KEYS = ("created_at", "create_time", "timestamp")
ID_KEYS = ("conversation_id", "thread_id", "id", "uuid")
TITLE_KEYS = ("title", "name")
LEAST_MILLISECONDS = 1e11
"""A number this large is a time in milliseconds (1973 at least); as seconds it is the year 5138."""
SPOKEN_CONTENT = {"text", "multimodal_text", "code", "execution_output"}
"""Types of content in a ChatGPT export that somebody said; others are pages, files and thoughts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationFile:
    """One conversation as it was read from a file."""

    conversation_id: str
    """The file's own, else a hash of the conversation's beginning, which stays as it grows."""
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

    Raises:
        ConversationFormatError: The file cannot be read as a whole; it says where.
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

    Raises:
        ConversationFormatError: None matches, or several do; it lists the candidates.
    """
    matches = _matches(conversations, (title or "").casefold())
    if len(matches) == 1:
        return matches[0]
    name = title or "the file"
    lines = [f"{name!r} fits {len(matches)} conversations: choose one by its title or id"]
    for candidate in (matches or conversations)[:MOST_LISTED]:
        count = len(candidate.messages)
        lines.append(f"  {candidate.label}  ({candidate.conversation_id}, {count} messages)")
    raise ConversationFormatError("\n".join(lines))


def _matches(conversations: Sequence[ConversationFile], title: str) -> Sequence[ConversationFile]:
    """Returns the conversations with this title or id, else those whose title holds it."""
    exact = [
        conversation
        for conversation in conversations
        if title in (conversation.label.casefold(), conversation.conversation_id.casefold())
    ]
    if exact:
        return exact
    return [
        conversation for conversation in conversations if title in conversation.label.casefold()
    ]


def read_one(path: Path, title: str | None) -> tuple[str, str, list[BaseMessage]]:
    """Returns the id, the instructions and the other messages of one conversation of a file."""
    conversation = pick_conversation(read_conversations(path), title=title)
    instructions, messages = split_instructions(conversation.messages)
    return conversation.conversation_id, "\n\n".join(instructions), messages


@contextmanager
def _placed(place: str) -> Iterator[None]:
    """Makes a `ConversationFormatError` of whatever goes wrong inside, with the place in front."""
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
    if isinstance(value, list):
        return value
    return [value]


def _each(name: str, values: Iterable[Any], read: Callable[[Any], T]) -> list[T]:
    """Reads values one by one; an error names the one that it is about."""
    results: list[T] = []
    for number, value in enumerate(values, 1):
        with _placed(f"{name} {number}"):
            results.append(read(value))
    return results


def _conversation(fields: Any) -> ConversationFile:  # noqa: ANN401 - JSON
    """Returns the conversation that a JSON object holds."""
    messages = _each("message", _reader_of(fields)(fields), _message)
    key = next((fields[key] for key in ID_KEYS if fields.get(key)), None)
    title = next((fields[key] for key in TITLE_KEYS if isinstance(fields.get(key), str)), None)
    return ConversationFile(
        conversation_id=_id_of_beginning(messages) if key is None else str(key),
        title=title,
        messages=messages,
    )


def _reader_of(fields: Any) -> Callable[[dict[str, Any]], Iterable[Any]]:  # noqa: ANN401 - JSON
    """Returns the reader of a JSON object, which is told by a field that only its format has."""
    if isinstance(fields, dict):
        for name, reader in READERS.items():
            if name in fields:
                return reader
    raise ValueError(f"neither a message nor a conversation\n{ACCEPTED}")


def _id_of_beginning(messages: Sequence[BaseMessage]) -> str:
    """Returns a hash of the messages up to the first answer."""
    opening = ""
    for message in messages:
        opening += fingerprint(message)
        if isinstance(message, AIMessage):
            break
    return f"conversation-{digest(opening, 8).hex()}"


def _message(fields: dict[str, Any]) -> BaseMessage:
    """Returns the message that a JSON object holds.

    Fields of OpenAI's format that a message has no place for stay in its kwargs.
    """
    # A `ChatMessage` of LangChain has a role as well.
    if "role" in fields and fields.get("type") != "chat":
        return _openai_message(fields)
    data = dict(fields.get("kwargs") or fields.get("data") or fields)
    return messages_from_dict([{"type": data.get("type") or fields["type"], "data": data}])[0]


def _openai_message(fields: dict[str, Any]) -> BaseMessage:
    data = {name: value for name, value in fields.items() if name not in TIME_KEYS}
    for key in TIME_KEYS:
        time = _created_at(fields.get(key))
        if time:
            data["created_at"] = time
            break
    if data.get("tool_calls"):
        data["tool_calls"] = [_with_arguments(call) for call in data["tool_calls"]]
    if data["role"] == "assistant":
        data.setdefault("content", "")
    return convert_to_messages([data])[0]


def _with_arguments(call: dict[str, Any]) -> dict[str, Any]:
    """Returns a call whose arguments are JSON; without any, some exports have an empty text."""
    function = call["function"]
    return {**call, "function": {**function, "arguments": function.get("arguments") or "{}"}}


def _of_claude(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for message in fields["chat_messages"]:
        if message["text"].strip():
            yield {
                "role": message["sender"],
                "content": message["text"],
                "id": message.get("uuid"),
                "created_at": message.get("created_at"),
            }


def _of_chatgpt(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the conversation as the user last saw it.

    An export is a tree whose branches are edits and new answers.
    """
    tree = fields["mapping"]
    node = fields.get("current_node")
    path: list[Any] = []
    while node is not None and len(path) < len(tree):
        path.append(tree[node].get("message") or {})
        node = tree[node].get("parent")
    for message in reversed(path):
        text = _chatgpt_text(message)
        if text.strip() and not _is_hidden(message):
            # What a tool says has no call in front of it, so it counts as the assistant's.
            role = message["author"]["role"].replace("tool", "assistant")
            yield {
                "role": role,
                "content": text,
                "id": message.get("id"),
                "created_at": message.get("create_time"),
            }


def _chatgpt_text(message: dict[str, Any]) -> str:
    """Returns what somebody said in a message; nothing for pages, files and thoughts."""
    content = message.get("content") or {}
    if content.get("content_type") not in SPOKEN_CONTENT:
        return ""
    parts = content.get("parts") or [content.get("text")]
    return "\n".join(part for part in parts if isinstance(part, str))


def _is_hidden(message: dict[str, Any]) -> bool:
    metadata = message.get("metadata") or {}
    return bool(metadata.get("is_visually_hidden_from_conversation")) or message.get("weight") == 0


READERS: Mapping[str, Callable[[dict[str, Any]], Iterable[Any]]] = {
    "mapping": _of_chatgpt,
    "chat_messages": _of_claude,
    "messages": lambda fields: fields["messages"],
}
"""The reader of an object that has a field of this name; it yields messages."""


def _created_at(value: Any) -> str | None:  # noqa: ANN401 - JSON
    """Returns the time of a message as ISO 8601; it may be Unix seconds or milliseconds."""
    if isinstance(value, int | float):
        seconds = value / 1000 if abs(value) >= LEAST_MILLISECONDS else value
        return datetime.fromtimestamp(seconds, UTC).isoformat()
    if not value:
        return None
    datetime.fromisoformat(value)  # raises a ValueError for what is no time
    return str(value)
