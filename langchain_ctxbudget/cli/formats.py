"""Conversations from files: messages, exports of ChatGPT and Claude, turns of an evaluation set.

A file is JSON or JSONL; the content tells the format, never the file's name. A file is read as a whole or not at all,
and every error names the file and the record.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    BaseMessageChunk,
    HumanMessage,
    SystemMessage,
    convert_to_messages,
    message_chunk_to_message,
    messages_from_dict,
)
from langchain_core.messages.tool import invalid_tool_call, tool_call
from pydantic import ValidationError

from langchain_ctxbudget.errors import ConversationFormatError
from langchain_ctxbudget.messages import fingerprint, split_instructions

T = TypeVar("T")

ACCEPTED = """\
Accepted are, as JSON or JSONL:
  openai      messages with "role" and "content", or objects with "messages"
  langchain   messages as messages_to_dict, model_dump or dumps write them, or objects with "messages"
  chatgpt     conversations.json of a data export: objects with "mapping"
  claude      conversations.json of a data export: objects with "chat_messages"
  evaluation  objects with "id" and "turns\""""
PACKED = {
    b"PK\x03\x04": "a zip archive; unpack it and give the conversations.json in it",
    b"\x1f\x8b": "gzip data; unpack it (gunzip) and give the unpacked file",
}
MOST_LISTED, SEEN_CHARACTERS = 20, 60
ROLES = ("system", "developer", "user", "assistant", "tool", "function")
LANGCHAIN_TYPES = {"human", "ai", "system", "tool", "function", "chat"}
MILLISECONDS_FROM = 1e11  # as seconds this is the year 5138, as milliseconds 1973
EXPORTED: Mapping[object, type[BaseMessage]] = {
    "user": HumanMessage,
    "human": HumanMessage,
    "assistant": AIMessage,
    "tool": AIMessage,  # the browser, python or files: on the assistant's side, as no call stands before it
    "system": SystemMessage,
}
NOT_SAID = {"thoughts", "reasoning_recap", "user_editable_context", "model_editable_context"}
OWN_WORDS = {"text", "multimodal_text", "audio_transcription", "code", "execution_output"}
"""Everything else in a user's message is quoted, and stands between `<document>` tags."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationFile:
    """One conversation as it was read from a file."""

    conversation_id: str
    """The file's own, else one made from how the conversation begins."""
    title: str | None
    messages: list[BaseMessage]
    """In order, each with an id that is unique in the conversation; `name` and `additional_kwargs["created_at"]` (ISO
    8601) where the file has them."""

    @property
    def label(self) -> str:
        """The title, else the id."""
        return self.title or self.conversation_id


def read_conversations(path: Path | str) -> list[ConversationFile]:
    """Reads every conversation of a file.

    Raises:
        ConversationFormatError: the file cannot be opened, or is not of an accepted format; it says where.
    """
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise ConversationFormatError(f"{path}: cannot be read ({getattr(error, 'strerror', error)})") from error
    return parse_conversations(data, name=str(path))


def parse_conversations(data: bytes, *, name: str) -> list[ConversationFile]:
    """Reads the conversations in the bytes of a file; `name` is its name in errors.

    Raises:
        ConversationFormatError: the bytes are not of an accepted format; it says where.
    """
    try:
        with _placed(name):
            return list(_with_ids(_conversations(list(_records(data)))))
    except RecursionError as error:
        raise ConversationFormatError(f"{name}: nested too deeply. Nothing was imported.") from error
    except ConversationFormatError as error:
        problem, *accepted = str(error).split("\n", 1)
        raise ConversationFormatError("\n".join([f"{problem}. Nothing was imported.", *accepted])) from error


def pick_conversation(conversations: Sequence[ConversationFile], *, title: str | None = None) -> ConversationFile:
    """Returns the one conversation, or the one with a title.

    Args:
        conversations: of one file.
        title: the title or the id, or a part of it that no other has; upper and lower case are the same.

    Raises:
        ConversationFormatError: none fits, or several do; the error lists the titles.
    """
    wanted = (title or "").casefold()
    fitting = [c for c in conversations if wanted in (c.label.casefold(), c.conversation_id.casefold())]
    fitting = fitting or [c for c in conversations if wanted in c.label.casefold()]
    if len(fitting) == 1:
        return fitting[0]
    found = f"{len(fitting)} conversations" if title is None else f"{title!r} fits {len(fitting)} conversations"
    listed = fitting or conversations
    lines = [f"  {c.label}  ({c.conversation_id}, {len(c.messages)} messages)" for c in listed[:MOST_LISTED]]
    more = [f"  and {len(listed) - MOST_LISTED:,} more"] if len(listed) > MOST_LISTED else []
    raise ConversationFormatError("\n".join([f"{found}: choose one by its title or id", *lines, *more]))


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
    except (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError) as error:
        problem = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            problem = f"{'.'.join(map(str, first['loc'][:2]))}: {first['msg']}"
        raise ConversationFormatError(f"{place}: {problem}" if place else problem) from error


def _records(data: bytes) -> Iterator[tuple[str, Any]]:
    """Yields the items of a JSON list, the lines of JSONL, or one JSON value, each with its place."""
    if advice := next((advice for start, advice in PACKED.items() if data.startswith(start)), None):
        raise ConversationFormatError(advice)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data.count(b"\n", 0, error.start)
        raise ConversationFormatError(f"line {before + 1}: byte {error.start:,} is not UTF-8 text") from error
    if not text.strip():
        raise ConversationFormatError("the file is empty")
    try:
        value = _loads(text)
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise _syntax(text, error, error.lineno) from error
    else:
        yield from ((f"[{n}]", item) for n, item in enumerate(value)) if isinstance(value, list) else [("", value)]
        return
    for number, line in enumerate(text.split("\n"), 1):  # strings in JSON may hold the other separators
        if line.strip():
            try:
                yield f"line {number}", _loads(line)
            except json.JSONDecodeError as error:
                raise _syntax(line, error, number) from error


def _loads(text: str) -> Any:  # noqa: ANN401 - JSON
    """Reads JSON in which NaN and Infinity, which JSON does not have, are null."""
    return json.loads(text, strict=False, parse_constant=lambda _: None)


def _syntax(text: str, error: json.JSONDecodeError, line: int) -> ConversationFormatError:
    ends = not text[error.pos :].strip() or error.msg.startswith("Unterminated string")
    seen = f"not JSON or JSONL ({error.msg}), saw {text[error.pos :][:20]!r}"
    problem = "the file ends here, in the middle of a value; copy it again" if ends else seen
    return ConversationFormatError(f"line {line}, column {error.colno}: {problem}")


def _conversations(records: Sequence[tuple[str, Any]]) -> list[ConversationFile]:
    if not records:
        raise ConversationFormatError(f"an empty list\n{ACCEPTED}")
    are_messages = _is_message(records[0][1])
    noun, read = ("messages", _message) if are_messages else ("conversations", _conversation)
    found: list[Any] = []
    for place, value in records:
        with _placed(f"{noun}{place}" if place.startswith("[") else place):
            found.append(read(value))
    return [ConversationFile(conversation_id="", title=None, messages=found)] if are_messages else found


def _with_ids(conversations: Sequence[ConversationFile]) -> Iterator[ConversationFile]:
    """Gives every conversation and message an id of its own, the same ones every time.

    A conversation without one is named after its messages up to the first answer, so that it keeps its id when it goes
    on; a message after its conversation and position.
    """

    def opening_id(messages: Sequence[BaseMessage]) -> str:
        answer = next((place for place, one in enumerate(messages) if isinstance(one, AIMessage)), len(messages))
        opening = "".join(fingerprint(message) for message in messages[: answer + 1])
        return f"conversation-{blake2b(opening.encode(), digest_size=8).hexdigest()}"

    keys = _unique([found.conversation_id or opening_id(found.messages) for found in conversations])
    for key, found in zip(keys, conversations, strict=True):
        ids = _unique([message.id or f"{key}-{number}" for number, message in enumerate(found.messages, 1)])
        messages = [message.model_copy(update={"id": own}) for message, own in zip(found.messages, ids, strict=True)]
        yield replace(found, conversation_id=key, messages=messages)


def _unique(ids: Sequence[str]) -> Iterator[str]:
    """Yields the ids with a number behind every repetition; no first occurrence changes."""
    taken, used = set(ids), set[str]()
    for wanted in ids:
        numbered = (f"{wanted}-{number}" for number in count(2))
        given = wanted if wanted not in used else next(one for one in numbered if one not in taken)
        used.add(given)
        taken.add(given)
        yield given


# Messages


def _is_message(value: object) -> bool:
    return isinstance(value, dict) and ("role" in value or _langchain_type(value) is not None)


def _langchain_type(value: Mapping[str, Any]) -> str | None:
    """Returns the type as `messages_from_dict` takes it, of each of the forms that LangChain writes."""
    kind = value["id"][-1] if "lc" in value and isinstance(value.get("id"), list) else value.get("type")
    if not isinstance(kind, str) or not value.keys() & {"kwargs", "data", "content"}:
        return None
    name = kind.removesuffix("Chunk").removesuffix("Message").lower()
    return (kind if kind.endswith("Chunk") else name) if name in LANGCHAIN_TYPES else None


def _message(value: Any) -> BaseMessage:  # noqa: ANN401 - JSON
    """Returns the message that a JSON object holds; a chunk of a stream becomes a whole message."""
    if not _is_message(value):
        raise ValueError(f"expected a message with a role, or a type and content, saw {_seen(value)}")
    kind = _langchain_type(value)
    if kind is None:
        return _openai_message(dict(value))
    data = dict(value.get("kwargs") or value.get("data") or value)
    [message] = messages_from_dict([{"type": kind, "data": data | {"content": data["content"] or ""}}])
    return message_chunk_to_message(message) if isinstance(message, BaseMessageChunk) else message


def _openai_message(fields: dict[str, Any]) -> BaseMessage:
    """Returns the message of a dict with a role; fields without a place in it stay in `additional_kwargs`.

    LangChain refuses a whole list for one call whose arguments are no JSON object; here it is an invalid call.
    """
    role = fields["role"]
    if role not in ROLES:
        raise ValueError(f"role: expected one of {', '.join(ROLES)}, saw {_seen(role)}")
    if role == "assistant":
        fields.setdefault("content", "")
    fields |= {"content": fields["content"] or "", "id": _identifier(fields.get("id"))}
    calls = fields.pop("tool_calls", None) or []
    times = [_created_at(fields.pop(name, None)) for name in ("created_at", "create_time", "timestamp")]
    [message] = convert_to_messages([fields | next(filter(None, times), {})])
    if isinstance(message, AIMessage):
        for call in calls:
            _add_call(message, call)
    return message


def _add_call(message: AIMessage, call: dict[str, Any]) -> None:
    function, key = call.get("function", call), _identifier(call.get("id"))
    given = function.get("arguments", function.get("args"))
    try:
        arguments = json.loads(given) if isinstance(given, str) and given.strip() else given or {}
    except ValueError:
        arguments = None
    name, problem = function["name"], "the arguments are not a JSON object"
    if isinstance(arguments, dict):
        message.tool_calls.append(tool_call(name=name, args=arguments, id=key))
    else:
        message.invalid_tool_calls.append(invalid_tool_call(name=name, args=str(given), id=key, error=problem))


# Conversations


def _conversation(value: object) -> ConversationFile:
    """Returns the conversation that a JSON object holds; its id may be empty, and messages may lack theirs."""
    fields: dict[str, Any] = value if isinstance(value, dict) else {}
    read = next((read for name, read in READERS.items() if name in fields), None)
    if read is None:
        raise ValueError(f"expected a message or a conversation, saw {_seen(value)}\n{ACCEPTED}")
    key = next((fields[name] for name in ("conversation_id", "thread_id", "id", "uuid") if fields.get(name)), None)
    title = next((fields[name] for name in ("title", "name") if isinstance(fields.get(name), str)), None)
    return ConversationFile(conversation_id=_identifier(key) or "", title=title, messages=read(fields))


def _each(name: str, values: object, read: Callable[[Any], BaseMessage] = _message) -> list[BaseMessage]:
    found = []
    for number, value in enumerate(_required(values, list, name)):
        with _placed(f"{name}[{number}]"):
            found.append(read(value))
    return found


def _of_evaluation(fields: dict[str, Any]) -> list[BaseMessage]:
    """Returns the turns of an evaluation set: the first speaker is the human, everyone else the assistant."""
    turns = _required(fields["turns"], list, "turns")

    def read(turn: dict[str, Any]) -> BaseMessage:
        cls = HumanMessage if turn["speaker"] == turns[0]["speaker"] else AIMessage
        extra, key = _created_at(turn.get("time")), _identifier(turn.get("id"))
        return cls(turn["text"], name=turn["speaker"], id=key, additional_kwargs=extra)

    return _each("turns", turns, read)


def _of_claude(fields: dict[str, Any]) -> list[BaseMessage]:
    """Returns the messages of a Claude export: what was said, and the names of attached files."""

    def read(said: dict[str, Any]) -> BaseMessage:
        files = [*(said.get("attachments") or ()), *(said.get("files") or ())]
        text = "\n".join([said["text"], *(f"[{one.get('file_name') or 'a file'}]" for one in files)])
        extra, key = _created_at(said.get("created_at")), _identifier(said.get("uuid"))
        return EXPORTED[said["sender"]](text, id=key, additional_kwargs=extra)

    return [one for one in _each("chat_messages", fields["chat_messages"], read) if one.text.strip()]


def _of_chatgpt(conversation: dict[str, Any]) -> list[BaseMessage]:
    """Returns the messages of a ChatGPT export as the user last saw them: edits and new answers are branches of a tree.

    OpenAI publishes no schema; this follows public descriptions of real exports (2023 to 2026).
    """
    tree: dict[Any, Any] = _required(conversation["mapping"], dict, "mapping")

    path: dict[str, Any] = {}
    place: Any = conversation.get("current_node")
    if place not in tree and tree:
        raise ValueError(f"current_node: expected a node of the mapping, saw {_seen(place)}")
    while place in tree:
        if place in path:
            raise ValueError(f"node {place!r} is its own ancestor")
        path[place] = _required(tree[place], dict, f"node {place!r}")
        place = path[place].get("parent")
    found = []
    for key, node in reversed(path.items()):
        with _placed(f"node {key!r}"):
            message = node.get("message")
            found.append(_chatgpt_message(message, key) if message and message.get("weight") != 0 else None)
    return [message for message in found if message]


def _chatgpt_message(message: dict[str, Any], key: str) -> BaseMessage | None:
    content, author = message.get("content") or {}, _required(message.get("author"), dict, "author")
    role: Any = author.get("role")
    if role not in EXPORTED:
        raise ValueError(f"author.role: expected one of {', '.join(map(str, EXPORTED))}, saw {_seen(role)}")
    hidden = (message.get("metadata") or {}).get("is_visually_hidden_from_conversation")
    text = _rendered(content, by_user=role == "user")
    if hidden or not text.strip() or content.get("content_type") in NOT_SAID:
        return None
    name, extra = author.get("name") or ("tool" if role == "tool" else None), _created_at(message.get("create_time"))
    return EXPORTED[role](text, id=_identifier(message.get("id")) or key, name=name, additional_kwargs=extra)


def _rendered(content: dict[str, Any], *, by_user: bool) -> str:
    """Returns the text of a message's content, or of a part that is an object; `[its kind]` where it has none."""
    kind = content.get("content_type") or "text"
    if kind.endswith("_asset_pointer"):
        return f"[{kind.split('_', 1)[0]}: {content.get('asset_pointer', '')}]"
    parts = [
        part if isinstance(part, str) else _rendered(part or {}, by_user=by_user) for part in content.get("parts") or ()
    ]
    fields = ("text", "result", "summary", "content", "output")
    text = "\n".join(filter(None, parts)) or next((str(content[name]) for name in fields if content.get(name)), "")
    if not text:
        return "" if not content or content.keys() & {"parts", *fields} else f"[{kind}]"
    if kind in ("code", "execution_output"):
        return f"```\n{text}\n```"
    return f"<document>\n{text}\n</document>" if by_user and kind not in OWN_WORDS else text


READERS: Mapping[str, Callable[[dict[str, Any]], list[BaseMessage]]] = {
    "mapping": _of_chatgpt,
    "chat_messages": _of_claude,
    "turns": _of_evaluation,
    "messages": lambda fields: _each("messages", fields["messages"]),
}
"""The reader of an object that has a field of this name."""


def _required(value: object, kind: type[T], name: str) -> T:
    if not isinstance(value, kind):
        raise ValueError(f"{name}: expected a {kind.__name__}, saw {_seen(value)}")  # noqa: TRY004 - about the file
    return value


def _identifier(value: object) -> str | None:
    return str(value) if isinstance(value, str | int) and value != "" else None


def _created_at(value: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """Returns the time of a message: ISO 8601 as it is written, or Unix seconds or milliseconds; empty without one."""
    if isinstance(value, int | float):
        value = datetime.fromtimestamp(value / 1000 if abs(value) >= MILLISECONDS_FROM else value, UTC).isoformat()
    return {"created_at": value} if value and datetime.fromisoformat(value) else {}


def _seen(value: object) -> str:
    return "nothing" if value is None else json.dumps(value)[:SEEN_CHARACTERS]
