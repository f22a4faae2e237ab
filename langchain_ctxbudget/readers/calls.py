"""Readers of traces: files in which each record is a call of a model, with all that it was sent."""

import json
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.ai import InputTokenDetails, UsageMetadata

from langchain_ctxbudget.readers.base import (
    READING_ERRORS,
    JsonObject,
    ReadConversation,
    Reader,
    Unread,
    id_of_beginning,
    reason_of,
)
from langchain_ctxbudget.readers.fields import iso_time, objects_in, text_at
from langchain_ctxbudget.readers.growing import Request, grown, key_of
from langchain_ctxbudget.readers.items import messages_of_items
from langchain_ctxbudget.readers.message_forms import is_message, messages_of

THREAD_KEYS = ("thread_id", "session_id", "conversation_id")
"""Under these keys of its metadata LangChain and LangSmith look for a thread."""
ROLES = {"human": "user", "ai": "assistant", "model": "assistant"}
"""Roles that traces use beside OpenAI's."""
CLASSES = {
    "HumanMessage": "human",
    "HumanMessageChunk": "human",
    "AIMessage": "ai",
    "AIMessageChunk": "ai",
    "SystemMessage": "system",
    "SystemMessageChunk": "system",
    "ToolMessage": "tool",
    "ToolMessageChunk": "tool",
}
"""The types of LangChain's classes. A trace of LangChain.js tells only these."""
OF_CHUNKS = ("tool_call_chunks", "chunk_position")
"""Fields that only parts of a message have, as they were streamed."""
INPUT_TOKENS = ("input_tokens", "prompt_tokens", "input", "promptTokens")
OUTPUT_TOKENS = ("output_tokens", "completion_tokens", "output", "completionTokens")
CACHED_TOKENS = ("cache_read", "cache_read_input_tokens", "input_cached_tokens", "cached_tokens")
_ITEM_TYPES = ("_call", "_call_output", "reasoning")
"""How the types of items of the Responses API end, that are no messages."""
_WRAPPED = ("message", "output", "input", "response")
"""Keys under which a trace has the messages, of several the first."""


class CallReader(Reader):
    """Reads calls of models. Those of one growing conversation become one conversation."""

    repeats: ClassVar[bool] = True

    @abstractmethod
    def calls_in(self, records: Sequence[JsonObject]) -> Iterable[JsonObject]:
        """Returns the calls of models in some records, in the order in which they were sent."""

    @abstractmethod
    def request_of(self, call: JsonObject) -> Request:
        """Returns what a call was sent, and what came back."""

    def conversations(self, records: Sequence[JsonObject]) -> Iterator[ReadConversation | Unread]:
        """Yields what the calls have grown into; a call that cannot be read stands alone."""
        requests: list[Request] = []
        unread: list[Unread] = []
        for call in self.calls_in(records):
            try:
                requests.append(self.request_of(call))
            except READING_ERRORS as error:
                unread.append(Unread([call], reason_of(error)))
        yield from unread
        conversations = grown(requests)
        if not conversations and not unread:
            yield Unread(records, "no call of a model in it has messages")
        for conversation in conversations:
            messages = conversation.with_instructions()
            yield ReadConversation(
                conversation_id=conversation.thread or id_of_beginning(messages),
                messages=messages,
                tools=tuple(conversation.tools),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDetails:
    """What a trace tells of a call beside its messages."""

    thread: str | None = None
    sent_at: str | None = None
    """ISO 8601."""
    answered_at: str | None = None
    """ISO 8601."""
    model: str | None = None
    usage: UsageMetadata | None = None
    tools: Sequence[JsonObject] = ()


def request_from(
    sent: Sequence[BaseMessage], answer: Sequence[BaseMessage], details: CallDetails
) -> Request:
    """Returns a call, with dates where the trace tells them.

    What was sent behind the last answer is new, so it was said when the call was made; when older
    messages were said, an earlier call tells. The state of a graph repeats what was sent; it is
    taken once.
    """
    is_state = len(answer) > 1
    if is_state:
        repeated = set(map(key_of, answer))
        sent = [message for message in sent if key_of(message) not in repeated]
    messages = list(sent)
    place = len(messages)
    while place and not isinstance(messages[place - 1], AIMessage):
        place -= 1
        messages[place] = _dated(messages[place], details.sent_at)
    for message in answer:
        answered = message
        if not is_state:
            answered = _dated(message, details.answered_at)
        messages.append(_with_details(answered, details))
    return Request(messages=messages, thread=details.thread, tools=details.tools)


def _dated(message: BaseMessage, time: str | None) -> BaseMessage:
    if time is None or message.additional_kwargs.get("created_at"):
        return message
    kwargs = message.additional_kwargs | {"created_at": time}
    return message.model_copy(update={"additional_kwargs": kwargs})


def _with_details(message: BaseMessage, details: CallDetails) -> BaseMessage:
    """Returns an answer with the model and the tokens, where it does not tell them itself."""
    if not isinstance(message, AIMessage):
        return message
    update: dict[str, Any] = {}
    if message.usage_metadata is None and details.usage is not None:
        update["usage_metadata"] = details.usage
    metadata = message.response_metadata
    if details.model is not None and not metadata.get("model_name"):
        update["response_metadata"] = metadata | {"model_name": details.model}
    return message.model_copy(update=update)


# The forms in which traces have messages


def said_in(value: Any, role: str) -> list[BaseMessage]:  # noqa: ANN401 - JSON
    """Returns the messages in the input or the output of a call, whichever form they have.

    These are the forms of LangChain, OpenAI (both APIs) and Anthropic, their responses, and texts;
    all of them as they are, or as JSON in a text.

    Args:
        value: The input or the output.
        role: The role of a text without one.
    """
    if isinstance(value, str):
        return _said_in_text(value, role)
    if isinstance(value, list):
        return _said_in_list(value, role)
    if isinstance(value, dict):
        return _said_in_object(value, role)
    return []


def _said_in_text(text: str, role: str) -> list[BaseMessage]:
    """Returns the messages of which a text is the JSON; else the text as one message."""
    value = unpacked(text)
    if value is not text:
        messages = said_in(value, role)
        if messages:
            return messages
    if not text.strip():
        return []
    return messages_of({"role": role, "content": text})


def unpacked(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Returns the object or list that a text is the JSON of; any other value as it is."""
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _said_in_list(values: list[Any], role: str) -> list[BaseMessage]:
    objects = objects_in(values)
    if any(_is_item(item) for item in objects):
        return messages_of_items(objects)
    messages: list[BaseMessage] = []
    for value in values:
        messages += said_in(value, role)
    return messages


def _is_item(record: JsonObject) -> bool:
    item_type = text_at(record, "type") or ""
    return item_type == "message" or item_type.endswith(_ITEM_TYPES)


def _said_in_object(fields: JsonObject, role: str) -> list[BaseMessage]:
    if tool_in(fields):
        return []
    if is_message(fields):
        return messages_of(_in_known_form(fields))
    for key in ("messages", "prompts"):
        if isinstance(fields.get(key), list):
            return [*_instructions(fields), *said_in(fields[key], role)]
    answers = _answers_in(fields)
    if answers:
        return said_in(_first_answer(answers), "assistant")
    for key in _WRAPPED:
        if fields.get(key):
            return [*_instructions(fields), *said_in(fields[key], role)]
    return _said_as(role, fields.get("content") or fields.get("text"))


def _answers_in(fields: JsonObject) -> list[Any]:
    """Returns the answers to one request, as LangChain and OpenAI list them."""
    for key in ("generations", "choices"):
        answers = fields.get(key)
        if isinstance(answers, list) and answers:
            return answers
    return []


def _first_answer(answers: list[Any]) -> Any:  # noqa: ANN401 - JSON
    """Returns the first of several answers to one request, which is the one that went on."""
    if isinstance(answers[0], list):
        return answers[0][0]
    return answers[0]


def _said_as(role: str, content: Any) -> list[BaseMessage]:  # noqa: ANN401 - JSON
    """Returns content as a message of a role; none where there is nothing in it."""
    if not isinstance(content, str | list) or not content:
        return []
    return messages_of({"role": role, "content": content})


def _instructions(fields: JsonObject) -> list[BaseMessage]:
    """Returns the instructions that Anthropic and OpenAI's Responses have beside the messages."""
    messages: list[BaseMessage] = []
    for key in ("system", "instructions"):
        messages += _said_as("system", fields.get(key))
    return messages


def tool_in(fields: JsonObject) -> JsonObject | None:
    """Returns the tool that Langfuse's handler for LangChain writes as a message, if it is one."""
    content = fields.get("content")
    if fields.get("role") != "tool" or not isinstance(content, dict):
        return None
    if "function" not in content and "input_schema" not in content:
        return None
    return content


def _in_known_form(fields: JsonObject) -> JsonObject:
    """Returns a message of a trace in the form that its library has it in."""
    if fields.get("type") == "constructor" and isinstance(fields.get("kwargs"), dict):
        return _with_type_of_class(fields)
    role = fields.get("role")
    if not isinstance(role, str):
        return fields
    changed: JsonObject = {"role": ROLES.get(role, role)}
    if fields.get("content") is None:
        changed["content"] = ""
    if isinstance(fields.get("tool_calls"), list):
        changed["tool_calls"] = [_openai_call(call) for call in fields["tool_calls"]]
    return fields | changed


def _with_type_of_class(fields: JsonObject) -> JsonObject:
    """Returns a message as `dumps` writes it, with the type for which its class stands."""
    data = {key: value for key, value in fields["kwargs"].items() if key not in OF_CHUNKS}
    path = fields.get("id")
    if isinstance(path, list) and path:
        class_name = path[-1]
        if isinstance(class_name, str) and class_name in CLASSES:
            data["type"] = CLASSES[class_name]
    return fields | {"kwargs": data}


def _openai_call(call: JsonObject) -> JsonObject:
    """Returns a call of LangChain's form in OpenAI's; any other as it is."""
    if "name" not in call:
        return call
    function = {"name": call["name"], "arguments": call.get("args", call.get("arguments"))}
    return {"id": call.get("id"), "type": "function", "function": function}


def usage_in(fields: JsonObject) -> UsageMetadata | None:
    """Returns the tokens of a call, under the names that OpenAI, LangChain and Langfuse use."""
    sent = _count_at(fields, INPUT_TOKENS)
    answered = _count_at(fields, OUTPUT_TOKENS)
    if sent is None or answered is None:
        return None
    usage = UsageMetadata(input_tokens=sent, output_tokens=answered, total_tokens=sent + answered)
    cached = _count_at(fields, CACHED_TOKENS)
    if cached is not None:
        usage["input_token_details"] = InputTokenDetails(cache_read=cached)
    return usage


def _count_at(fields: JsonObject, keys: Sequence[str]) -> int | None:
    for key in keys:
        value = fields.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def utc_time(value: Any) -> str | None:  # noqa: ANN401 - JSON
    """Returns a time of a trace as ISO 8601; one without a zone is in UTC."""
    time = iso_time(value)
    if time is None or time.endswith("Z") or "+" in time[10:] or "-" in time[10:]:
        return time
    return f"{time}+00:00"
