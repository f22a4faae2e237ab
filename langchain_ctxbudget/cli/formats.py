"""Conversations from files: messages, ChatGPT exports, LangGraph states, turns of an evaluation set.

A file is JSON or JSONL, gzipped or not; the content tells the format, never the file's name. A file is read as a whole
or not at all, and every error names the file and the record.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
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
Accepted are, as JSON or JSONL, gzipped or not:
  openai      messages with "role" and "content", or objects with "messages"
  langchain   messages as messages_to_dict, model_dump or dumps write them, or objects with "messages"
  chatgpt     conversations.json of a data export: objects with "mapping"
  langgraph   states: objects with "values" or "channel_values" that hold "messages"
  evaluation  objects with "id" and "turns\""""
MOST_LISTED, SEEN_CHARACTERS = 20, 60
MAX_BYTES = 512 * 2**20
"""The largest file that is read, packed or not: as Python objects it takes several times as much."""
MAX_UNPACKED, MAX_RATIO = 16 * 2**20, 30
"""Bytes that a gzip file may always hold, and how many times its own size above that; more is made to fill memory."""
ROLES = ("system", "developer", "user", "assistant", "tool", "function")
LANGCHAIN_TYPES = {"human", "ai", "system", "tool", "function", "chat"}
MILLISECONDS_FROM = 1e11  # as seconds this is the year 5138, as milliseconds 1973
CHATGPT_CLASSES: Mapping[object, type[BaseMessage]] = {
    "user": HumanMessage,
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
        ConversationFormatError: the file cannot be opened, is too large (512 MiB; gzipped, 16 MiB or 30 times its own
            size when unpacked), or is not of an accepted format; it says where.
    """
    try:
        size = Path(path).stat().st_size
        data = Path(path).read_bytes() if size <= MAX_BYTES else b""
    except (OSError, ValueError) as error:
        raise ConversationFormatError(f"{path}: cannot be read ({getattr(error, 'strerror', error)})") from error
    if size > MAX_BYTES:
        raise ConversationFormatError(
            f"{path}: {size:,} bytes, more than the {MAX_BYTES:,} that are read of one file. Nothing was imported; "
            f"split it into several files"
        )
    return parse_conversations(data, name=str(path))


def parse_conversations(data: bytes, *, name: str) -> list[ConversationFile]:
    """Reads the conversations in the bytes of a file; `name` is its name in errors.

    Raises:
        ConversationFormatError: the bytes are not of an accepted format; it says where.
    """
    try:
        with _placed(name):
            return _with_ids(_conversations(list(_records(_text(data)))))
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
    fitting = list(conversations)
    if title is not None:
        wanted = title.casefold()
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


def _text(data: bytes) -> str:
    if data.startswith(b"PK\x03\x04"):
        raise ConversationFormatError("a zip archive; unpack it and give the conversations.json in it")
    if data.startswith(b"\x1f\x8b"):
        limit = min(MAX_BYTES, max(MAX_UNPACKED, MAX_RATIO * len(data)))
        packed = len(data)
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
                data = stream.read(limit + 1)
        except (EOFError, OSError, zlib.error) as error:
            raise ConversationFormatError(f"damaged gzip data ({error}); copy the file again") from error
        if len(data) > limit:
            raise ConversationFormatError(
                f"{packed:,} bytes of gzip data hold more than {limit:,} bytes, the most that is unpacked of them; "
                f"where you trust the file, unpack it (gunzip) and give the unpacked one"
            )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConversationFormatError(f"line {line}: byte {error.start:,} is not UTF-8 text") from error


def _records(text: str) -> Iterator[tuple[str, Any]]:
    """Yields the items of a JSON list, the lines of JSONL, or one JSON value, each with its place."""
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
    place = f"line {line}, column {error.colno}"
    if not text[error.pos :].strip() or error.msg.startswith("Unterminated string"):
        return ConversationFormatError(f"{place}: the file ends here, in the middle of a value; copy it again")
    return ConversationFormatError(f"{place}: not JSON or JSONL ({error.msg}), saw {text[error.pos :][:20]!r}")


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


def _with_ids(conversations: Sequence[ConversationFile]) -> list[ConversationFile]:
    """Gives every conversation and message an id of its own, the same ones every time.

    A conversation without one is named after its messages up to the first answer, so that it keeps its id when it goes
    on; a message after its conversation and position.
    """

    def opening_id(messages: Sequence[BaseMessage]) -> str:
        answer = next((place for place, one in enumerate(messages) if isinstance(one, AIMessage)), len(messages))
        opening = "".join(fingerprint(message) for message in messages[: answer + 1])
        return f"conversation-{blake2b(opening.encode(), digest_size=8).hexdigest()}"

    keys = _unique([found.conversation_id or opening_id(found.messages) for found in conversations])
    named = []
    for key, found in zip(keys, conversations, strict=True):
        ids = _unique([message.id or f"{key}-{number}" for number, message in enumerate(found.messages, 1)])
        messages = [message.model_copy(update={"id": own}) for message, own in zip(found.messages, ids, strict=True)]
        named.append(replace(found, conversation_id=key, messages=messages))
    return named


def _unique(ids: Sequence[str]) -> list[str]:
    """Returns the ids with a number behind every repetition; no first occurrence changes."""
    taken, used, repetitions = set(ids), set[str](), Counter[str]()
    result = []
    for wanted in ids:
        given = wanted
        while given in used or (given != wanted and given in taken):
            repetitions[wanted] += 1
            given = f"{wanted}-{repetitions[wanted] + 1}"
        used.add(given)
        result.append(given)
    return result


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


def _conversation(value: object) -> ConversationFile:
    """Returns the conversation that a JSON object holds; its id may be empty, and messages may lack theirs."""
    fields = value if isinstance(value, dict) else {}
    title, key = fields.get("title"), fields.get("conversation_id") or fields.get("id")
    checkpoint = fields.get("checkpoint")
    state = fields if "channel_values" in fields or not isinstance(checkpoint, dict) else checkpoint
    if "mapping" in fields:
        messages = _chatgpt_messages(fields)
    elif "turns" in fields:
        turns = _required(fields["turns"], list, "turns")
        messages = _each("turns", turns, lambda turn: _evaluation_turn(turn, turns[0]["speaker"]))
    elif values := fields.get("values") or state.get("channel_values"):
        messages = _each("messages", _required(values, dict, "values").get("messages"))
        configurable = (fields.get("config") or {}).get("configurable")
        holders = (configurable, fields.get("metadata"), checkpoint, fields)
        key = next((holder["thread_id"] for holder in holders if holder and holder.get("thread_id")), None)
    elif "messages" in fields:
        messages = _each("messages", fields["messages"])
    else:
        raise ValueError(f"expected a message or a conversation, saw {_seen(value)}\n{ACCEPTED}")
    title = title if isinstance(title, str) else None
    return ConversationFile(conversation_id=_identifier(key) or "", title=title, messages=messages)


def _each(name: str, values: object, read: Callable[[Any], BaseMessage] = _message) -> list[BaseMessage]:
    found = []
    for number, value in enumerate(_required(values, list, name)):
        with _placed(f"{name}[{number}]"):
            found.append(read(value))
    return found


def _evaluation_turn(turn: dict[str, Any], human: str) -> BaseMessage:
    """Returns a turn of an evaluation set: the first speaker is the human, everyone else the assistant."""
    cls, extra = (HumanMessage if turn["speaker"] == human else AIMessage), _created_at(turn.get("time"))
    return cls(turn["text"], name=turn["speaker"], id=_identifier(turn.get("id")), additional_kwargs=extra)


def _chatgpt_messages(conversation: Mapping[str, Any]) -> list[BaseMessage]:
    """Returns the messages of a ChatGPT export as the user last saw them: edits and new answers are branches of a tree.

    OpenAI publishes no schema; this follows public descriptions of real exports (2023 to 2026).
    """
    tree: dict[Any, Any] = _required(conversation["mapping"], dict, "mapping")

    def written(key: object) -> float:
        time = (tree[key].get("message") or {}).get("create_time")
        return float(time) if isinstance(time, int | float) and abs(time) < MILLISECONDS_FROM else 0.0

    path: dict[str, Any] = {}
    place: Any = conversation.get("current_node")
    if place not in tree and tree:
        place = max(reversed(tree), key=written)  # the last of those that were written last
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
    if role not in CHATGPT_CLASSES:
        raise ValueError(f"author.role: expected one of {', '.join(map(str, CHATGPT_CLASSES))}, saw {_seen(role)}")
    hidden = (message.get("metadata") or {}).get("is_visually_hidden_from_conversation")
    text = _rendered(content, by_user=role == "user")
    if hidden or not text.strip() or content.get("content_type") in NOT_SAID:
        return None
    name, extra = author.get("name") or ("tool" if role == "tool" else None), _created_at(message.get("create_time"))
    return CHATGPT_CLASSES[role](text, id=_identifier(message.get("id")) or key, name=name, additional_kwargs=extra)


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
