"""Reads one JSON value as a conversation: messages, a LangGraph state, a ChatGPT export, turns of an evaluation set."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
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

T = TypeVar("T")

ACCEPTED = """\
Accepted are, as JSON or JSONL, gzipped or not:
  openai      messages with "role" and "content", or objects with "messages"
  langchain   messages as messages_to_dict, model_dump or dumps write them, or objects with "messages"
  chatgpt     conversations.json of a data export: objects with "mapping"
  langgraph   states: objects with "values" or "channel_values" that hold "messages"
  evaluation  objects with "id" and "turns\""""
ROLES = ("system", "developer", "user", "assistant", "tool", "function")
LANGCHAIN_TYPES = {"human", "ai", "system", "tool", "function", "chat"}
TIMES = ("created_at", "create_time", "timestamp")
MILLISECONDS_FROM = 1e11  # as seconds this is the year 5138, as milliseconds 1973
SEEN_CHARACTERS = 60

CHATGPT_CLASSES: Mapping[object, type[BaseMessage]] = {
    "user": HumanMessage,
    "assistant": AIMessage,
    "tool": AIMessage,  # the browser, python or files: on the assistant's side, as no call stands before it
    "system": SystemMessage,
}
NOT_SAID = {"thoughts", "reasoning_recap", "user_editable_context", "model_editable_context"}
OWN_WORDS = {"text", "multimodal_text", "audio_transcription", "code", "execution_output"}
"""Everything else in a user's message is quoted, and stands between `<document>` tags."""
TEXT_FIELDS = ("text", "result", "summary", "content", "output")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationFile:
    """One conversation as it was read from a file.

    Attributes:
        conversation_id: the file's own, else one made from how the conversation begins.
        title: the file's own, if it has one.
        messages: in order, every one with an id that is unique in the conversation; `name` and
            `additional_kwargs["created_at"]` (ISO 8601) where the file has them.
    """

    conversation_id: str
    title: str | None
    messages: list[BaseMessage]

    @property
    def label(self) -> str:
        """The title, else the id."""
        return self.title or self.conversation_id


@contextmanager
def placed(place: str) -> Iterator[None]:
    """Puts the place in front of whatever goes wrong inside, and makes a `ConversationFormatError` of it."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError) as error:
        problem = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            problem = f"{'.'.join(map(str, first['loc'][:2]))}: {first['msg']}"
        raise ConversationFormatError(f"{place}: {problem}" if place else problem) from error


def is_message(value: object) -> bool:
    """Tells a message from a conversation."""
    return isinstance(value, dict) and ("role" in value or _langchain_type(value) is not None)


def read_message(value: Any) -> BaseMessage:  # noqa: ANN401 - JSON
    """Returns the message that a JSON object holds; a chunk of a stream becomes a whole message."""
    if not is_message(value):
        raise ValueError(f"expected a message with a role, or a type and content, saw {_seen(value)}")
    kind = _langchain_type(value)
    if kind is None:
        return _openai_message(dict(value))
    data = dict(value.get("kwargs") or value.get("data") or value)
    [message] = messages_from_dict([{"type": kind, "data": data | {"content": data["content"] or ""}}])
    return message_chunk_to_message(message) if isinstance(message, BaseMessageChunk) else message


def read_conversation(value: object) -> ConversationFile:
    """Returns the conversation that a JSON object holds; its id may be empty, and messages may lack theirs."""
    fields = value if isinstance(value, dict) else {}
    title, key = fields.get("title"), fields.get("conversation_id") or fields.get("id")
    checkpoint = fields.get("checkpoint")
    state = fields if "channel_values" in fields or not isinstance(checkpoint, dict) else checkpoint
    if "mapping" in fields:
        messages = _chatgpt_messages(fields)
    elif "turns" in fields:
        turns = _required(fields["turns"], list, "turns")
        messages = _each("turns", turns, lambda turn: _turn(turn, turns[0]["speaker"]))
    elif values := fields.get("values") or state.get("channel_values"):
        messages, key = _each("messages", _required(values, dict, "values").get("messages")), _thread_id(fields)
    elif "messages" in fields:
        messages = _each("messages", fields["messages"])
    else:
        raise ValueError(f"expected a message or a conversation, saw {_seen(value)}\n{ACCEPTED}")
    title = title if isinstance(title, str) else None
    return ConversationFile(conversation_id=_identifier(key) or "", title=title, messages=messages)


def _each(name: str, values: object, read: Callable[[Any], BaseMessage] = read_message) -> list[BaseMessage]:
    found = []
    for number, value in enumerate(_required(values, list, name)):
        with placed(f"{name}[{number}]"):
            found.append(read(value))
    return found


def _langchain_type(value: Mapping[str, Any]) -> str | None:
    """The type as `messages_from_dict` takes it, of each of the forms that LangChain writes."""
    kind = value["id"][-1] if "lc" in value and isinstance(value.get("id"), list) else value.get("type")
    if not isinstance(kind, str) or not value.keys() & {"kwargs", "data", "content"}:
        return None
    name = kind.removesuffix("Chunk").removesuffix("Message").lower()
    return (kind if kind.endswith("Chunk") else name) if name in LANGCHAIN_TYPES else None


def _openai_message(fields: dict[str, Any]) -> BaseMessage:
    """The message of a dict with a role; fields that a message has no place for stay in `additional_kwargs`.

    LangChain refuses a whole list for one call whose arguments are no JSON object; here it is an invalid call.
    """
    role = fields["role"]
    if role not in ROLES:
        raise ValueError(f"role: expected one of {', '.join(ROLES)}, saw {_seen(role)}")
    if role == "assistant":
        fields.setdefault("content", "")
    fields |= {"content": fields["content"] or "", "id": _identifier(fields.get("id"))}
    calls = fields.pop("tool_calls", None) or []
    times = [_created_at(fields.pop(name, None)) for name in TIMES]
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


def _thread_id(state: Mapping[str, Any]) -> object:
    """The id of the thread of a LangGraph state, from wherever it stands."""
    holders = ((state.get("config") or {}).get("configurable"), state.get("metadata"), state.get("checkpoint"), state)
    return next((holder["thread_id"] for holder in holders if holder and holder.get("thread_id")), None)


def _turn(turn: dict[str, Any], human: str) -> BaseMessage:
    """A turn of an evaluation set: the first speaker is the human, everyone else the assistant."""
    cls, extra = (HumanMessage if turn["speaker"] == human else AIMessage), _created_at(turn.get("time"))
    return cls(turn["text"], name=turn["speaker"], id=_identifier(turn.get("id")), additional_kwargs=extra)


def _chatgpt_messages(conversation: Mapping[str, Any]) -> list[BaseMessage]:
    """The messages of a ChatGPT export as the user last saw them: edits and new answers are branches of a tree.

    OpenAI publishes no schema; this follows public descriptions of real exports (2023 to 2026).
    """
    tree: dict[Any, Any] = _required(conversation["mapping"], dict, "mapping")
    path: dict[str, Any] = {}
    place: Any = conversation.get("current_node")
    if place not in tree and tree:
        place = max(enumerate(tree), key=lambda node: (_seconds(tree[node[1]]), node[0]))[1]
    while place in tree:
        if place in path:
            raise ValueError(f"node {place!r} is its own ancestor")
        path[place] = _required(tree[place], dict, f"node {place!r}")
        place = path[place].get("parent")
    found = []
    for key, node in reversed(path.items()):
        with placed(f"node {key!r}"):
            message = node.get("message")
            found.append(_chatgpt_message(message, key) if message and message.get("weight") != 0 else None)
    return [message for message in found if message]


def _seconds(node: dict[str, Any]) -> float:
    time = (node.get("message") or {}).get("create_time")
    return float(time) if isinstance(time, int | float) and abs(time) < MILLISECONDS_FROM else 0.0


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
    """The text of a message's content, or of one of its parts that is an object; `[its kind]` where it has none."""
    kind = content.get("content_type") or "text"
    if kind.endswith("_asset_pointer"):
        return f"[{kind.split('_', 1)[0]}: {content.get('asset_pointer', '')}]"
    parts = [
        part if isinstance(part, str) else _rendered(part or {}, by_user=by_user) for part in content.get("parts") or ()
    ]
    texts = [str(content[name]) for name in TEXT_FIELDS if content.get(name)]
    text = "\n".join(filter(None, parts)) or next(iter(texts), "")
    if not text:
        return "" if not content or content.keys() & {"parts", *TEXT_FIELDS} else f"[{kind}]"
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
    """The time of a message: ISO 8601 as it is written, or Unix seconds or milliseconds; empty without one."""
    if isinstance(value, int | float):
        value = datetime.fromtimestamp(value / 1000 if abs(value) >= MILLISECONDS_FROM else value, UTC).isoformat()
    return {"created_at": value} if value and datetime.fromisoformat(value) else {}


def _seen(value: object) -> str:
    """The beginning of a value, for errors."""
    return "nothing" if value is None else json.dumps(value)[:SEEN_CHARACTERS]
