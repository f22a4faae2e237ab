"""Writes conversations as coding agents and tracing tools keep them."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from langchain_core.load import dumpd
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

Record: TypeAlias = dict[str, Any]
DAY = "2026-03-05T10"
START_NANOSECONDS = 1_772_704_800_000_000_000


def said(messages: Sequence[BaseMessage]) -> list[tuple[object, ...]]:
    """Who says what, calls what, and what was answered by what."""
    return [
        (
            message.type,
            message.text,
            [
                (call["name"], call["args"], call["id"])
                for call in getattr(message, "tool_calls", [])
            ],
            getattr(message, "tool_call_id", None),
        )
        for message in messages
    ]


def at(number: int) -> str:
    """A time for something that happens so many seconds after the beginning."""
    return f"{DAY}:{number // 60:02}:{number % 60:02}.000Z"


def as_lines(records: Sequence[Record]) -> bytes:
    return "\n".join(map(json.dumps, records)).encode()


# Sessions


def claude_code(messages: Sequence[BaseMessage]) -> list[Record]:
    """Lines of a session: answers in several lines, results beside each other, a compaction."""
    session = _ClaudeSession()
    for number, message in enumerate(messages):
        if number == len(messages) // 2 and session.parent:
            session.compact()
        if isinstance(message, HumanMessage):
            session.line("user", {"role": "user", "content": message.content})
        elif isinstance(message, ToolMessage):
            result = {
                "type": "tool_result",
                "tool_use_id": message.tool_call_id,
                "content": message.content,
            }
            parent = session.line_of_call[message.tool_call_id]
            session.line("user", {"role": "user", "content": [result]}, parent=parent)
        elif isinstance(message, AIMessage):
            session.answer(message, f"msg-{number}")
    return session.records


class _ClaudeSession:
    def __init__(self) -> None:
        self.records: list[Record] = [
            {"type": "file-history-snapshot", "messageId": "x", "snapshot": {}}
        ]
        self.parent: str | None = None
        self.line_of_call: dict[str, str] = {}

    def line(self, kind: str, message: Record, parent: str | None = None, **more: Any) -> str:
        uuid = f"uuid-{len(self.records)}"
        record = {
            "type": kind,
            "uuid": uuid,
            "parentUuid": parent or self.parent,
            "sessionId": "session-1",
            "isSidechain": False,
            "timestamp": at(len(self.records)),
            "message": message,
        }
        self.records.append(record | more)
        self.parent = uuid
        return uuid

    def answer(self, message: AIMessage, message_id: str) -> None:
        blocks: list[Record] = [{"type": "thinking", "thinking": "Hm.", "signature": "x"}]
        if message.content:
            blocks.append({"type": "text", "text": message.content})
        blocks += [
            {"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["args"]}
            for call in message.tool_calls
        ]
        for block in blocks:
            uuid = self.line(
                "assistant",
                {"role": "assistant", "id": message_id, "model": "claude", "content": [block]},
            )
            if block["type"] == "tool_use":
                self.line_of_call[block["id"]] = uuid
        self.records.append(
            {"type": "queue-operation", "operation": "enqueue", "sessionId": "session-1"}
        )

    def compact(self) -> None:
        last = self.parent
        self.line("system", {}, subtype="compact_boundary", content="Conversation compacted")
        self.records[-1] |= {"parentUuid": None, "logicalParentUuid": last}
        summary = {"role": "user", "content": "This session is being continued."}
        self.line("user", summary, isCompactSummary=True)


def codex(messages: Sequence[BaseMessage]) -> list[Record]:
    """Lines of a session, each message told by an item and by an event."""
    records: list[Record] = [_codex_line(0, "session_meta", {"id": "session-1", "cwd": "/"})]
    surroundings = "<environment_context>\n  <cwd>/</cwd>\n</environment_context>"
    records.append(_codex_line(0, "response_item", _codex_message("user", surroundings)))
    for number, message in enumerate(messages, 1):
        records += [
            _codex_line(number, kind, payload) for kind, payload in _codex_payloads(message)
        ]
    return records


def codex_of_old(messages: Sequence[BaseMessage]) -> list[Record]:
    """Lines of a session before September 2025: items without an envelope, and no events."""
    items = [
        payload
        for message in messages
        for kind, payload in _codex_payloads(message)
        if kind == "response_item"
    ]
    head = {"id": "session-1", "timestamp": at(0), "instructions": None}
    return [head, *items, {"record_type": "state"}]


def _codex_line(number: int, kind: str, payload: Record) -> Record:
    return {"timestamp": at(number), "type": kind, "payload": payload}


def _codex_message(role: str, text: object) -> Record:
    block = {"type": "output_text" if role == "assistant" else "input_text", "text": text}
    return {"type": "message", "role": role, "content": [block]}


def _codex_payloads(message: BaseMessage) -> Iterator[tuple[str, Record]]:
    if isinstance(message, HumanMessage):
        yield "response_item", _codex_message("user", message.content)
        yield "event_msg", {"type": "user_message", "message": message.content}
    elif isinstance(message, ToolMessage):
        output = {"call_id": message.tool_call_id, "output": message.content}
        yield "response_item", {"type": "function_call_output"} | output
    elif isinstance(message, AIMessage):
        yield "response_item", {"type": "reasoning", "summary": [], "encrypted_content": "x"}
        if message.content:
            yield "response_item", _codex_message("assistant", message.content)
            yield "event_msg", {"type": "agent_message", "message": message.content}
        for call in message.tool_calls:
            fields = {"name": call["name"], "call_id": call["id"]}
            arguments = {"arguments": json.dumps(call["args"])}
            yield "response_item", {"type": "function_call"} | fields | arguments


# Traces


def calls_of(messages: Sequence[BaseMessage]) -> Iterator[tuple[int, list[BaseMessage], AIMessage]]:
    """The calls of models in a conversation: a number, what was sent, and the answer."""
    for number, message in enumerate(messages):
        if isinstance(message, AIMessage):
            yield number, list(messages[:number]), message


def openai(message: BaseMessage) -> Record:
    """A message in OpenAI's form."""
    if isinstance(message, ToolMessage):
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": message.content}
    if not isinstance(message, AIMessage):
        return {"role": "user", "content": message.content}
    fields: Record = {"role": "assistant", "content": message.content or None}
    if message.tool_calls:
        fields["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": json.dumps(call["args"])},
            }
            for call in message.tool_calls
        ]
    return fields


def langsmith(messages: Sequence[BaseMessage]) -> list[Record]:
    """Runs, the newest first as `list_runs` returns them."""
    runs = [
        _run(number)
        | {
            "inputs": {"messages": [list(map(dumpd, sent))]},
            "outputs": {"generations": [[{"text": "", "message": dumpd(answer)}]]},
        }
        for number, sent, answer in calls_of(messages)
    ]
    return [*reversed(runs), {"run_type": "tool", "id": "tool", "inputs": {"input": "x"}}]


def langsmith_openai(messages: Sequence[BaseMessage]) -> list[Record]:
    """Runs of OpenAI's client."""
    return [
        _run(number)
        | {
            "inputs": {"messages": list(map(openai, sent)), "model": "m"},
            "outputs": {"choices": [{"index": 0, "message": openai(answer)}]},
        }
        for number, sent, answer in calls_of(messages)
    ]


def _run(number: int) -> Record:
    return {
        "id": f"run-{number}",
        "name": "ChatModel",
        "run_type": "llm",
        "trace_id": f"trace-{number}",
        "start_time": at(number).removesuffix("Z"),
        "end_time": at(number + 1).removesuffix("Z"),
        "extra": {"metadata": {"thread_id": "thread-1"}},
    }


def langfuse(messages: Sequence[BaseMessage]) -> list[Record]:
    """A session, each of its traces with one call."""
    traces = [
        {
            "id": f"trace-{number}",
            "input": None,
            "observations": [
                {"id": f"span-{number}", "type": "SPAN", "input": "x", "output": "y"},
                {
                    "id": f"generation-{number}",
                    "type": "GENERATION",
                    "startTime": at(number),
                    "endTime": at(number + 1),
                    "input": list(map(openai, sent)),
                    "output": json.dumps(openai(answer)),
                },
            ],
        }
        for number, sent, answer in calls_of(messages)
    ]
    return [{"id": "session-1", "traces": list(reversed(traces))}]


def otlp(messages: Sequence[BaseMessage]) -> list[Record]:
    """Spans with messages in parts, a line for each batch."""
    lines: list[Record] = []
    for number, sent, answer in calls_of(messages):
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.conversation.id": "conversation-1",
            "gen_ai.input.messages": json.dumps(list(map(_in_parts, sent))),
            "gen_ai.output.messages": json.dumps([_in_parts(answer)]),
        }
        lines.append(_spans(number, attributes, events=[]))
    return lines


def otlp_events(messages: Sequence[BaseMessage]) -> list[Record]:
    """Spans with an event for each message."""
    lines: list[Record] = []
    for number, sent, answer in calls_of(messages):
        events = [
            _event(f"gen_ai.{fields['role']}.message", fields) for fields in map(openai, sent)
        ]
        events.append(_event("gen_ai.choice", {"index": "0", "message": openai(answer)}))
        attributes = {"gen_ai.conversation.id": "conversation-1"}
        lines.append(_spans(number, attributes, events=events))
    return lines


def openllmetry(messages: Sequence[BaseMessage]) -> list[Record]:
    """Spans of OpenLLMetry, with an attribute for each field of each message."""
    lines: list[Record] = []
    for number, sent, answer in calls_of(messages):
        attributes = {"traceloop.association.properties.thread_id": "thread-1"}
        for place, message in enumerate(sent):
            attributes |= _of_openllmetry(f"gen_ai.prompt.{place}", openai(message))
        attributes |= _of_openllmetry("gen_ai.completion.0", openai(answer))
        lines.append(_spans(number, attributes, events=[]))
    return lines


def _of_openllmetry(prefix: str, fields: Record) -> Record:
    told = {f"{prefix}.{key}": value for key, value in fields.items() if key != "tool_calls"}
    for place, call in enumerate(fields.get("tool_calls", [])):
        told[f"{prefix}.tool_calls.{place}.id"] = call["id"]
        for key, value in call["function"].items():
            told[f"{prefix}.tool_calls.{place}.{key}"] = value
    return told


def openinference(messages: Sequence[BaseMessage]) -> list[Record]:
    """Spans of OpenInference, with an attribute for each field of each message."""
    lines: list[Record] = []
    for number, sent, answer in calls_of(messages):
        attributes = {"openinference.span.kind": "LLM", "session.id": "session-1"}
        for place, message in enumerate(sent):
            attributes |= _of_openinference(f"llm.input_messages.{place}", openai(message))
        attributes |= _of_openinference("llm.output_messages.0", openai(answer))
        lines.append(_spans(number, attributes, events=[]))
    return lines


def _of_openinference(prefix: str, fields: Record) -> Record:
    told = {
        f"{prefix}.message.{key}": value for key, value in fields.items() if key != "tool_calls"
    }
    for place, call in enumerate(fields.get("tool_calls", [])):
        inner = f"{prefix}.message.tool_calls.{place}.tool_call"
        told[f"{inner}.id"] = call["id"]
        for key, value in call["function"].items():
            told[f"{inner}.function.{key}"] = value
    return told


def _spans(number: int, attributes: Record, events: list[Record]) -> Record:
    span = {
        "traceId": f"trace-{number}",
        "spanId": f"span-{number}",
        "startTimeUnixNano": str(START_NANOSECONDS + number * 1_000_000_000),
        "endTimeUnixNano": str(START_NANOSECONDS + (number + 1) * 1_000_000_000),
        "attributes": _typed(attributes),
        "events": events,
    }
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


def _typed(attributes: Record) -> list[Record]:
    return [
        {
            "key": key,
            "value": {"stringValue": value if isinstance(value, str) else json.dumps(value)},
        }
        for key, value in attributes.items()
        if value is not None
    ]


def _event(name: str, fields: Record) -> Record:
    told = {key: value for key, value in fields.items() if key != "role"}
    if "tool_call_id" in told:
        told["id"] = told.pop("tool_call_id")
    return {"name": name, "attributes": _typed(told)}


def _in_parts(message: BaseMessage) -> Record:
    if isinstance(message, ToolMessage):
        result = {
            "type": "tool_call_response",
            "id": message.tool_call_id,
            "response": message.content,
        }
        return {"role": "tool", "parts": [result]}
    parts: list[Record] = []
    if message.content:
        parts.append({"type": "text", "content": message.content})
    if not isinstance(message, AIMessage):
        return {"role": "user", "parts": parts}
    for call in message.tool_calls:
        arguments = {"id": call["id"], "name": call["name"], "arguments": call["args"]}
        parts.append({"type": "tool_call"} | arguments)
    return {"role": "assistant", "parts": parts}


def gemini(messages: Sequence[BaseMessage]) -> list[Record]:
    """Requests with their responses."""
    return [
        {
            "contents": list(map(_content, sent)),
            "candidates": [{"content": _content(answer)}],
        }
        for _, sent, answer in calls_of(messages)
    ]


def _content(message: BaseMessage) -> Record:
    parts: list[Record] = []
    if isinstance(message, ToolMessage):
        response = {"name": "tool", "response": {"result": message.content}}
        parts.append({"functionResponse": response | {"id": message.tool_call_id}})
    elif message.content:
        parts.append({"text": message.content})
    if not isinstance(message, AIMessage):
        return {"role": "user", "parts": parts}
    parts += [
        {"functionCall": {"id": call["id"], "name": call["name"], "args": call["args"]}}
        for call in message.tool_calls
    ]
    return {"role": "model", "parts": parts}


WRITERS: dict[str, Callable[[Sequence[BaseMessage]], list[Record]]] = {
    "claude-code": claude_code,
    "codex": codex,
    "codex of old": codex_of_old,
    "langsmith": langsmith,
    "langsmith, openai": langsmith_openai,
    "langfuse": langfuse,
    "otlp": otlp,
    "otlp, events": otlp_events,
    "openllmetry": openllmetry,
    "openinference": openinference,
    "gemini": gemini,
}
