"""Messages in numbered attributes of spans, as OpenLLMetry and OpenInference write them.

OpenLLMetry's `gen_ai.prompt.0.content` and the like were read from traceloop/openllmetry
(`opentelemetry-instrumentation-openai`, `shared/chat_wrappers.py`, 2025). OpenInference's
`llm.input_messages.0.message.content` was read from Arize-ai/openinference (`spec/llm_spans.md`,
`spec/tool_calling.md` and `spec/multimodal_attributes.md`, 2026). An export of Phoenix may have the
same as lists and objects inside each other.
"""

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.messages import digest
from langchain_ctxbudget.readers.base import JsonObject
from langchain_ctxbudget.readers.calls import said_in, unpacked
from langchain_ctxbudget.readers.fields import object_at, objects_in, text_at

ROOTS = ("gen_ai", "llm")
"""How the names of attributes begin that are looked at."""
NESTED = ("llm", "openinference", "session")
"""Attributes that Phoenix may export as objects."""
MESSAGE_PREFIXES = (
    "gen_ai.prompt.",
    "gen_ai.completion.",
    "llm.input_messages",
    "llm.output_messages",
)
"""How the names of attributes begin that tell messages."""
PART_TYPES = frozenset(
    {"text", "image_url", "image", "input_audio", "file", "document"}
    | {"tool_use", "tool_result", "thinking", "redacted_thinking"}
)
"""The types of parts that content consists of. A text that is JSON of anything else is a text."""


def tells_messages(attributes: JsonObject) -> bool:
    """Tells if a span has messages in numbered attributes."""
    return any(key.startswith(MESSAGE_PREFIXES) for key in attributes)


def told_by_numbers(attributes: JsonObject) -> tuple[list[BaseMessage], list[BaseMessage]]:
    """Returns what a span says was sent and came back."""
    tree = _tree(attributes)
    of_inference = object_at(tree, "llm")
    of_llmetry = object_at(tree, "gen_ai")
    sent = [_of_inference(fields) for fields in _listed(of_inference, "input_messages")]
    answer = [_of_inference(fields) for fields in _listed(of_inference, "output_messages")]
    if not sent and not answer:
        sent = [_of_llmetry(fields, "user") for fields in _listed(of_llmetry, "prompt")]
        # Of several answers to one request, the first went on.
        first = _listed(of_llmetry, "completion")[:1]
        answer = [_of_llmetry(fields, "assistant") for fields in first]
    _give_ids([*sent, *answer])
    return _messages(sent, "user"), _messages(answer, "assistant")


def tools_by_numbers(attributes: JsonObject) -> list[JsonObject]:
    """Returns the tools that a span says were offered."""
    llm = object_at(_tree(attributes), "llm")
    schemas = [object_at(tool, "tool").get("json_schema") for tool in _listed(llm, "tools")]
    tools = objects_in([unpacked(schema) for schema in schemas])
    for function in _listed(object_at(llm, "request"), "functions"):
        described = function | {"parameters": unpacked(function.get("parameters"))}
        tools.append({"type": "function", "function": described})
    return tools


# Attributes as JSON


def flat(attributes: JsonObject) -> JsonObject:
    """Returns attributes with dots in their names, where an export has objects in objects."""
    flattened: JsonObject = {}
    for key, value in attributes.items():
        if key in NESTED and isinstance(value, dict):
            flattened |= _with_dots(value, f"{key}.")
        else:
            flattened[key] = value
    return flattened


def _with_dots(fields: JsonObject, prefix: str) -> JsonObject:
    flattened: JsonObject = {}
    for key, value in fields.items():
        if isinstance(value, dict):
            flattened |= _with_dots(value, f"{prefix}{key}.")
        else:
            flattened[f"{prefix}{key}"] = value
    return flattened


def _tree(attributes: JsonObject) -> JsonObject:
    """Returns the attributes with a known beginning as objects and lists inside each other."""
    known = {key: value for key, value in attributes.items() if key.partition(".")[0] in ROOTS}
    tree: JsonObject = _unfolded(known)
    return tree


def _unfolded(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Returns JSON whose keys have no dots: `{"a.0.b": 1}` becomes `{"a": [{"b": 1}]}`."""
    if isinstance(value, list):
        return [_unfolded(item) for item in value]
    if isinstance(value, dict):
        return _list_if_numbered(_unfolded_object(value))
    return value


def _unfolded_object(fields: JsonObject) -> JsonObject:
    """Returns an object whose keys have no dots: what stood behind them is an object in it."""
    unfolded: JsonObject = {}
    inner: dict[str, JsonObject] = {}
    for key, item in fields.items():
        first, dot, rest = key.partition(".")
        if dot:
            inner.setdefault(first, {})[rest] = item
        else:
            unfolded[key] = _unfolded(item)
    for key, items in inner.items():
        unfolded[key] = _unfolded(items)
    return unfolded


def _list_if_numbered(fields: JsonObject) -> JsonObject | list[Any]:
    """Returns an object whose keys are all numbers as a list, any other as it is."""
    if not fields or not all(map(str.isdecimal, fields)):
        return fields
    return [fields[key] for key in sorted(fields, key=int)]


def _listed(fields: JsonObject, key: str) -> list[JsonObject]:
    """Returns the objects of a list, which may be JSON in a text."""
    return objects_in(_unfolded(unpacked(fields.get(key))))


# Messages in OpenAI's form


def _messages(values: Iterable[JsonObject], role: str) -> list[BaseMessage]:
    messages: list[BaseMessage] = []
    for fields in values:
        if fields["content"] or fields["tool_calls"] or fields["tool_call_id"]:
            told = {key: value for key, value in fields.items() if value or key == "content"}
            messages += said_in(told, role)
    return messages


def _of_llmetry(fields: JsonObject, role: str) -> JsonObject:
    """Returns a message of OpenLLMetry. Content in parts is JSON there, and calls may be."""
    role = text_at(fields, "role") or role
    content = fields.get("content") or fields.get("refusal")
    parts = unpacked(content)
    if role != "tool" and _are_parts(parts):
        content = parts
    calls = objects_in(unpacked(fields.get("tool_calls")))
    function = object_at(fields, "function_call")
    if function:
        calls.append(function)
    return _message(role, content, [_call(call) for call in calls], fields)


def _are_parts(value: Any) -> bool:  # noqa: ANN401 - JSON
    """Tells if a value is content in parts."""
    if not isinstance(value, list) or not value:
        return False
    return all(isinstance(part, dict) and part.get("type") in PART_TYPES for part in value)


def _of_inference(fields: JsonObject) -> JsonObject:
    """Returns a message of OpenInference."""
    message = object_at(fields, "message")
    content: Any = message.get("content")
    parts = objects_in(message.get("contents"))
    if parts:
        content = [_block(object_at(part, "message_content")) for part in parts]
    calls = [object_at(call, "tool_call") for call in objects_in(message.get("tool_calls"))]
    if message.get("function_call_name"):
        arguments = message.get("function_call_arguments_json")
        calls.append({"name": message["function_call_name"], "arguments": arguments})
    role = text_at(message, "role") or "assistant"
    if message.get("tool_call_id") and role != "assistant":
        role = "tool"
    return _message(role, content, [_call(call) for call in calls], message)


def _message(role: str, content: Any, calls: list[JsonObject], fields: JsonObject) -> JsonObject:  # noqa: ANN401 - JSON
    """Returns a message in OpenAI's form, with every key that is asked for later."""
    if role == "function":
        role = "tool"
    return {
        "role": role,
        "content": content or "",
        "tool_calls": calls,
        "tool_call_id": fields.get("tool_call_id"),
    }


def _call(call: JsonObject) -> JsonObject:
    """Returns a call in OpenAI's form; some have the function's fields beside the id."""
    function = object_at(call, "function") or call
    named = {"name": function.get("name"), "arguments": function.get("arguments")}
    return {"id": call.get("id"), "type": "function", "function": named}


def _block(content: JsonObject) -> JsonObject:
    text = content.get("text")
    image = object_at(object_at(content, "image"), "image")
    if content.get("type") == "reasoning":
        return {"type": "reasoning", "reasoning": text or ""}
    if isinstance(text, str):
        return {"type": "text", "text": text}
    if image.get("url"):
        return {"type": "image_url", "image_url": {"url": image["url"]}}
    return {"type": "non_standard", "value": content}


def _give_ids(messages: Iterable[JsonObject]) -> None:
    """Gives an id to each call without one, and to each result without one that of its call.

    The id is made of the call itself, so it is the same in every request that repeats it. The
    oldest call without a result is the one that is answered.
    """
    times: Counter[str] = Counter()
    unanswered: list[str] = []
    for message in messages:
        for call in message["tool_calls"]:
            if not call["id"]:
                made = digest(json.dumps(call["function"], sort_keys=True), 6).hex()
                times[made] += 1
                call["id"] = f"call-{made}-{times[made]}"
            unanswered.append(call["id"])
        if message["role"] != "tool":
            continue
        if not message["tool_call_id"]:
            message["tool_call_id"] = unanswered[0] if unanswered else "no-call"
        if message["tool_call_id"] in unanswered:
            unanswered.remove(message["tool_call_id"])
