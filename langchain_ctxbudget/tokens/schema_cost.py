"""The cost of tool schemas, response formats and of everything without a rule, which is counted as compact JSON.

`ChatOpenAI` does not count either. Function schemas are counted by the rule that the OpenAI cookbook publishes
("How to count tokens with tiktoken", section 7), which knows one level of properties; no tool costs less than its
compact JSON, which knows all of them. A response format costs its compact JSON and a frame.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Any

from langchain_core.utils.function_calling import convert_to_openai_function, convert_to_openai_tool
from pydantic import BaseModel

from langchain_ctxbudget.errors import InputError

Count = Callable[[str], int]
"""Tokens of a text."""

FUNCTION_TOKENS = 7
"""Frame of one function for gpt-4o and later; 10 for the cl100k_base models."""
TOOLS_END_TOKENS = 12
RESPONSE_FORMAT_TOKENS = 12
"""The frame of a response format. Nothing is published; the frame of the tools is taken."""
PAYLOAD_CHARACTERS = 4_096
"""Base64 of at least this length is not tokenized."""
PAYLOAD_TOKENS_PER_CHARACTER = 0.75
"""One token per decoded byte. Base64 of random bytes costs 0.68 to 0.73 tokens per character in o200k_base; what can
be compressed costs less."""

_PROPERTIES_TOKENS = 3
_PROPERTY_TOKENS = 3
_ENUM_TOKENS = -3
_ENUM_ITEM_TOKENS = 3
_PAYLOAD = re.compile(rf"(?<![\w+/-])[A-Za-z0-9+/_-]{{{PAYLOAD_CHARACTERS},}}")


def compact_json(value: object) -> str:
    """Returns a value as JSON without spaces, with the text of whatever JSON cannot hold."""
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):  # keys that are no strings, and circles
        return repr(value)


def json_tokens(value: object, count: Count) -> int:
    """Returns the tokens of a value as compact JSON, long base64 in it at its fixed rate."""
    text = compact_json(value)
    if len(text) < PAYLOAD_CHARACTERS:
        return count(text)
    rest = _PAYLOAD.sub("", text)
    return count(rest) + ceil((len(text) - len(rest)) * PAYLOAD_TOKENS_PER_CHARACTER)


def require_schemas(tools: object, response_format: object) -> None:
    """Raises an `InputError` for what is no list of tools, and no response format."""
    if isinstance(tools, str | bytes | Mapping) or not isinstance(tools, Sequence):
        raise InputError(f"tools must be a list of tools, not {type(tools).__name__}; one tool is a list of one")
    for number, tool in enumerate(tools):
        if tool is None or isinstance(tool, str | bytes | int | float):
            raise InputError(f"tools[{number}] is {tool!r}: give a LangChain tool, a function, a class or a schema")
    if isinstance(response_format, str | bytes | int | float | Sequence):
        raise InputError(f"response_format must be a class or a schema, not {response_format!r}")


def tools_tokens(tools: Sequence[Any], count: Count, function_tokens: int = FUNCTION_TOKENS) -> int:
    """Returns the tokens of tool schemas as they are sent; each function has a frame of `function_tokens`."""
    if not tools:
        return 0
    return sum(_tool_tokens(tool, count, function_tokens) for tool in tools) + TOOLS_END_TOKENS


def response_format_tokens(response_format: Any, count: Count) -> int:  # noqa: ANN401 - schemas come in any type
    """Returns the tokens of a response format as it is sent; 0 for None."""
    if response_format is None:
        return 0
    schema = response_format
    if not isinstance(schema, type | Mapping):
        schema = getattr(schema, "schema", schema)
    return max(json_tokens(form, count) for form in _sent_formats(schema)) + RESPONSE_FORMAT_TOKENS


def _sent_formats(schema: Any) -> list[Any]:  # noqa: ANN401
    """Returns the forms in which a response format may be sent: LangChain's, and a pydantic class's own."""
    if isinstance(schema, Mapping) and "type" in schema and "properties" not in schema:
        return [schema]  # {"type": "json_object"}, or a whole {"type": "json_schema", ...}
    try:
        forms = [{**convert_to_openai_function(schema)}]
    except Exception:  # noqa: BLE001 - whatever a schema class does when it is asked for its schema
        return [_json_schema(schema)]
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        forms.append({"name": schema.__name__, "schema": _strict(schema.model_json_schema())})
    return [{"type": "json_schema", "json_schema": {**form, "strict": True}} for form in forms]


def _strict(schema: Any) -> Any:  # noqa: ANN401
    """Returns a schema in the strict form: all fields of every object required, no others allowed."""
    if isinstance(schema, Mapping):
        strict = {key: _strict(value) for key, value in schema.items()}
        properties = strict.get("properties")
        if isinstance(properties, dict):
            strict |= {"required": list(properties), "additionalProperties": False}
        return strict
    return [_strict(part) for part in schema] if isinstance(schema, list) else schema


def _tool_tokens(tool: Any, count: Count, function_tokens: int) -> int:  # noqa: ANN401
    schema = _sent_tool(tool)
    tokens = json_tokens(schema, count)
    function = schema.get("function") if isinstance(schema, Mapping) else None
    if isinstance(function, Mapping):
        tokens = max(tokens, function_tokens + _function_tokens(function, count))
    return tokens


def _sent_tool(tool: Any) -> Any:  # noqa: ANN401
    try:
        return convert_to_openai_tool(tool)
    except Exception:  # noqa: BLE001 - a tool that only its provider knows is sent as it is
        return _json_schema(tool)


def _json_schema(value: Any) -> Any:  # noqa: ANN401
    """Returns the JSON schema of a pydantic class; anything else as it is."""
    if isinstance(value, type) and issubclass(value, BaseModel):
        return value.model_json_schema()
    return value


def _function_tokens(function: Mapping[str, Any], count: Count) -> int:
    """Returns the tokens of one function by the published rule."""
    tokens = count(f"{function.get('name', '')}:{_described(function)}")
    parameters = function.get("parameters")
    properties = parameters.get("properties") if isinstance(parameters, Mapping) else None
    if not isinstance(properties, Mapping) or not properties:
        return tokens
    tokens += _PROPERTIES_TOKENS
    for key, value in properties.items():
        schema = value if isinstance(value, Mapping) else {}
        tokens += _PROPERTY_TOKENS + count(f"{key}:{schema.get('type', '')}:{_described(schema)}")
        items = schema.get("enum")
        if isinstance(items, Sequence):
            tokens += _ENUM_TOKENS + sum(_ENUM_ITEM_TOKENS + count(str(item)) for item in items)
    return tokens


def _described(schema: Mapping[str, Any]) -> str:
    return str(schema.get("description") or "").removesuffix(".")
