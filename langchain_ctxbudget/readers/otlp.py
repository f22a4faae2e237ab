"""Spans of calls of models by OpenTelemetry's GenAI conventions, as JSON.

The format was read from open-telemetry/semantic-conventions: `gen-ai-input-messages.json`,
`gen-ai-output-messages.json` and `gen-ai-system-instructions.json` (2026), and `gen-ai-events.md`
as of version 1.36 for the earlier events on spans; and from opentelemetry-proto for OTLP in JSON.
What OpenLLMetry and OpenInference write instead of these, `readers.numbered` reads.
Spans as the SDK for Python writes them with `to_json(indent=None)`, one a line, are read as well.
Events that are written as log records, beside the spans, are not.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from langchain_ctxbudget.readers.base import JsonObject
from langchain_ctxbudget.readers.calls import (
    ROLES,
    CallDetails,
    CallReader,
    request_from,
    said_in,
    unpacked,
    usage_in,
    utc_time,
)
from langchain_ctxbudget.readers.fields import id_at, object_at, objects_in, text_at
from langchain_ctxbudget.readers.growing import Request
from langchain_ctxbudget.readers.message_forms import (
    call_of,
    content_from,
    plain_content,
    split_calls,
)
from langchain_ctxbudget.readers.numbered import (
    flat,
    tells_messages,
    told_by_numbers,
    tools_by_numbers,
)
from langchain_ctxbudget.readers.pieces import text_of_result

PREFIXES = ("gen_ai.", "llm.", "openinference.")
"""How the names of attributes of spans of GenAI begin."""
INPUT = "gen_ai.input.messages"
OUTPUT = "gen_ai.output.messages"
INSTRUCTIONS = "gen_ai.system_instructions"
CHOICE = "gen_ai.choice"
EARLIER_EVENTS = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
"""The role of what an event of version 1.36 tells."""
NO_CALLS = ("invoke_agent", "create_agent", "execute_tool", "invoke_workflow", "embeddings")
"""Operations that call no model themselves; an agent's span repeats what the calls in it have."""
THREADS = (
    "gen_ai.conversation.id",
    "session.id",
    "traceloop.association.properties.thread_id",
    "traceloop.association.properties.session_id",
    "traceloop.association.properties.conversation_id",
)
"""Attributes that tell a thread; the last ones are of OpenLLMetry."""
MODELS = ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name")
USAGE = "gen_ai.usage."
USAGE_OF_OPENINFERENCE = {
    "llm.token_count.prompt": "input_tokens",
    "llm.token_count.completion": "output_tokens",
    "llm.token_count.prompt_details.cache_read": "cache_read",
}
MODALITIES = ("image", "audio", "video")
NANOSECONDS = 1_000_000_000


class Otlp(CallReader):
    """Reads spans of calls of models; of a trace without any, those of agents."""

    name: ClassVar[str] = "otlp"
    accepts: ClassVar[str] = (
        "OpenTelemetry spans of GenAI calls as JSON, of OpenLLMetry and OpenInference, too: "
        'objects with "resourceSpans", or spans with "gen_ai." or "llm." attributes'
    )

    def recognises(self, record: JsonObject) -> bool:
        """Tells if a record has spans, or is one of a call of a model."""
        if isinstance(record.get("resourceSpans"), list):
            return True
        attributes = record.get("attributes")
        if not isinstance(attributes, dict):
            return False
        is_nested = isinstance(attributes.get("llm"), dict)
        return is_nested or any(key.startswith(PREFIXES) for key in attributes)

    def calls_in(self, records: Sequence[JsonObject]) -> Iterable[JsonObject]:
        """Returns the spans of calls of models, the earliest first, with plain attributes."""
        traces: defaultdict[str, list[JsonObject]] = defaultdict(list)
        for span in map(_plain_span, _spans_in(records)):
            if _has_messages(span):
                traces[span["trace"]].append(span)
        spans: list[JsonObject] = []
        for of_trace in traces.values():
            spans += [span for span in of_trace if not _is_no_call(span)] or of_trace
        return sorted(spans, key=lambda span: (span["start"], span["span"]))

    def request_of(self, call: JsonObject) -> Request:
        """Returns what a span tells of a call."""
        attributes = object_at(call, "attributes")
        tools = objects_in(_value_of(attributes.get("gen_ai.tool.definitions")))
        details = CallDetails(
            thread=id_at(attributes, THREADS),
            sent_at=utc_time(call.get("start_time")),
            answered_at=utc_time(call.get("end_time")),
            model=text_at(attributes, *MODELS),
            usage=usage_in(_usage(attributes)),
            tools=tools or tools_by_numbers(attributes),
        )
        if INPUT in attributes or OUTPUT in attributes:
            sent = [
                *_instructions(_value_of(attributes.get(INSTRUCTIONS))),
                *_messages(_value_of(attributes.get(INPUT))),
            ]
            return request_from(sent, _messages(_value_of(attributes.get(OUTPUT))), details)
        if tells_messages(attributes):
            return request_from(*told_by_numbers(attributes), details)
        return request_from(*_told_by_events(objects_in(call.get("events"))), details)


# Spans


def _spans_in(records: Iterable[JsonObject]) -> Iterator[JsonObject]:
    for record in records:
        if not isinstance(record.get("resourceSpans"), list):
            yield record
        for resource in objects_in(record.get("resourceSpans")):
            for scope in objects_in(resource.get("scopeSpans")):
                yield from objects_in(scope.get("spans"))


def _plain_span(span: JsonObject) -> JsonObject:
    """Returns a span with its ids, times, attributes and events under the same keys in any form.

    What the event with all details of a call says is added to the attributes.
    """
    context = object_at(span, "context")
    attributes = _attributes(span.get("attributes"))
    events: list[JsonObject] = []
    for event in objects_in(span.get("events")):
        told = _attributes(event.get("attributes"))
        events.append({"name": text_at(event, "name"), "attributes": told})
        attributes = {
            key: value for key, value in told.items() if key in (INPUT, OUTPUT, INSTRUCTIONS)
        } | attributes
    start_time = _seconds(span.get("startTimeUnixNano")) or span.get("start_time")
    return {
        "name": text_at(span, "name"),
        "trace": str(span.get("traceId") or context.get("trace_id")),
        "span": str(span.get("spanId") or context.get("span_id")),
        "start": str(span.get("startTimeUnixNano") or span.get("start_time")),
        "start_time": start_time,
        "end_time": _seconds(span.get("endTimeUnixNano")) or span.get("end_time"),
        "attributes": attributes,
        "events": events,
    }


def _seconds(nanoseconds: Any) -> float | None:  # noqa: ANN401 - JSON
    """Returns a time in seconds; OTLP in JSON has numbers of 64 bits as texts."""
    if not isinstance(nanoseconds, str | int) or not str(nanoseconds).isdecimal():
        return None
    return int(nanoseconds) / NANOSECONDS


def _attributes(value: Any) -> JsonObject:  # noqa: ANN401 - JSON
    """Returns attributes as plain JSON; OTLP has them as a list of keys and typed values."""
    if isinstance(value, dict):
        return flat(value)
    return {
        pair["key"]: _typed(pair.get("value"))
        for pair in objects_in(value)
        if isinstance(pair.get("key"), str)
    }


def _typed(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Returns the plain value of a typed one."""
    if not isinstance(value, dict) or len(value) != 1:
        return value
    [(kind, plain)] = value.items()
    if kind == "intValue":
        return int(plain)
    if kind == "arrayValue":
        return [_typed(item) for item in plain.get("values") or []]
    if kind == "kvlistValue":
        return _attributes(plain.get("values"))
    return plain


def _has_messages(span: JsonObject) -> bool:
    attributes = span["attributes"]
    if INPUT in attributes or OUTPUT in attributes or tells_messages(attributes):
        return True
    return any(event["name"] in (*EARLIER_EVENTS, CHOICE) for event in span["events"])


def _is_no_call(span: JsonObject) -> bool:
    attributes = span["attributes"]
    kind = attributes.get("openinference.span.kind", "LLM")
    return kind != "LLM" or attributes.get("gen_ai.operation.name") in NO_CALLS


def _usage(attributes: JsonObject) -> JsonObject:
    """Returns the tokens of a call under the names that `usage_in` knows."""
    usage = {
        key.removeprefix(USAGE): value for key, value in attributes.items() if key.startswith(USAGE)
    }
    if "cache_read.input_tokens" in usage:
        usage["cache_read"] = usage["cache_read.input_tokens"]
    for key, name in USAGE_OF_OPENINFERENCE.items():
        if key in attributes:
            usage[name] = attributes[key]
    return usage


def _value_of(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Returns an attribute that is JSON in a text, as most have it, or the value itself."""
    return json.loads(value) if isinstance(value, str) else value


# Messages in parts


def _instructions(parts: Any) -> list[BaseMessage]:  # noqa: ANN401 - JSON
    content = [_block_of(part) for part in objects_in(parts)]
    return [SystemMessage(plain_content(content))] if content else []


def _messages(values: Any) -> list[BaseMessage]:  # noqa: ANN401 - JSON
    """Returns messages in the form of the conventions, or of OpenAI, which some write instead."""
    messages: list[BaseMessage] = []
    for fields in objects_in(values):
        if isinstance(fields.get("parts"), list):
            messages += _in_parts(fields)
        else:
            messages += said_in(fields, "user")
    return messages


def _in_parts(fields: JsonObject) -> Iterator[BaseMessage]:
    """Yields the messages of one in parts, in their order; a result of a call is one of its own."""
    role = ROLES.get(str(fields.get("role")), fields.get("role"))
    name = text_at(fields, "name")
    parts: list[JsonObject] = []
    for part in objects_in(fields["parts"]):
        if part.get("type") == "tool_call_response":
            yield from _without_results(parts, role, name)
            parts = []
            yield _result(part)
        else:
            parts.append(part)
    yield from _without_results(parts, role, name)


def _without_results(
    parts: Sequence[JsonObject], role: str | None, name: str | None
) -> Iterator[BaseMessage]:
    """Yields a message of parts that are no results; only an assistant makes calls."""
    calls = [part for part in parts if part.get("type") == "tool_call"]
    content = [_block_of(part) for part in parts if part.get("type") != "tool_call"]
    if calls or (content and role == "assistant"):
        yield _answer(content, calls)
    elif content and role == "system":
        yield SystemMessage(plain_content(content))
    elif content:
        yield HumanMessage(plain_content(content), name=name)


def _answer(content: list[Any], calls: Sequence[JsonObject]) -> AIMessage:
    made = [call_of(call["name"], call.get("arguments"), id_at(call, ("id",))) for call in calls]
    valid, invalid = split_calls(made)
    return AIMessage(content_from(content), tool_calls=valid, invalid_tool_calls=invalid)


def _result(part: JsonObject) -> ToolMessage:
    text = text_of_result(part.get("response", part.get("result")))
    return ToolMessage(text, tool_call_id=id_at(part, ("id",)) or "")


def _block_of(part: JsonObject) -> JsonObject:
    """Returns a part as a block of LangChain."""
    modality = part.get("modality")
    kind = modality if modality in MODALITIES else "file"
    content = part.get("content")
    mime_type: JsonObject = {}
    if part.get("mime_type"):
        mime_type["mime_type"] = part["mime_type"]
    match part.get("type"):
        case "text":
            return {"type": "text", "text": content if isinstance(content, str) else ""}
        case "reasoning":
            return {"type": "reasoning", "reasoning": content}
        case "blob":
            return {"type": kind, "base64": content} | mime_type
        case "uri":
            return {"type": kind, "url": part.get("uri")} | mime_type
        case "file":
            return {"type": kind, "file_id": part.get("file_id")} | mime_type
        case _:
            return {"type": "non_standard", "value": part}


# Events before version 1.37


def _told_by_events(
    events: Iterable[JsonObject],
) -> tuple[list[BaseMessage], list[BaseMessage]]:
    """Returns what the events of a span say was sent and came back."""
    sent: list[BaseMessage] = []
    answer: list[BaseMessage] = []
    for event in events:
        told = {key: unpacked(value) for key, value in event["attributes"].items()}
        if event["name"] == CHOICE and not answer:
            message = object_at(told, "message") or told
            answer = said_in({"role": "assistant"} | message, "assistant")
        elif event["name"] in EARLIER_EVENTS:
            role = EARLIER_EVENTS[event["name"]]
            fields = {"role": role, "tool_call_id": told.get("id")} | told
            sent += said_in(fields, role)
    return sent, answer
