"""The cost of tools and response formats as they are sent to a model.

Tools cost what OpenAI's cookbook says, or their compact JSON where that is more. A response format
costs its compact JSON and a frame.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.utils.function_calling import convert_to_openai_function, convert_to_openai_tool
from pydantic import BaseModel

from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.messages import Count

TOOLS_END_TOKENS = 12
RESPONSE_FORMAT_TOKENS = TOOLS_END_TOKENS
"""Nothing is published about response formats; they are counted with the frame of the tools."""
_PROPERTY_TOKENS = 3
_ENUM_TOKENS = 3
_NOT_IN_WINDOW = frozenset({"extras", "metadata", "cache_control", "defer_loading"})
"""Keys of a tool that tell a provider how to send it, or an application what it is."""


_NO_TOOLS = (str, bytes, int, float, type(None))


def compact_json(value: object) -> str:
    """Returns a value as JSON without spaces, with the text of whatever JSON cannot hold."""
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):  # keys that are no strings, and circles
        return repr(value)


def require_schemas(tools: object, response_format: object) -> None:
    """Raises an `InputError` unless these are a list of tools and a response format."""
    if isinstance(tools, str | bytes | Mapping) or not isinstance(tools, Sequence):
        raise InputError(
            f"tools must be a list of tools, not {type(tools).__name__}; one tool is a list of one"
        )
    wrong = tuple(kind for kind in set(map(type, tools)) if issubclass(kind, _NO_TOOLS))
    for number, tool in enumerate(tools if wrong else ()):
        if isinstance(tool, wrong):
            raise InputError(
                f"tools[{number}] is {tool!r}: "
                "give a LangChain tool, a function, a class or a schema"
            )
    if isinstance(response_format, str | bytes | int | float | Sequence):
        raise InputError(f"response_format must be a class or a schema, not {response_format!r}")


def schemas_text(tools: Sequence[Any], response_format: object) -> str:
    """Returns tools and response format as one text, which differs where one of them does."""
    formats = [] if response_format is None else _sent_formats(response_format)
    return compact_json([*map(tool_schema, tools), *formats]) if tools or formats else ""


def tools_tokens(tools: Sequence[Any], count: Count, function_tokens: int) -> int:
    """Returns the tokens of tool schemas as they are sent.

    Args:
        tools: LangChain tools, functions, classes or schemas.
        count: counts a text.
        function_tokens: the frame of one function.
    """
    if not tools:
        return 0
    return TOOLS_END_TOKENS + sum(tool_tokens(tool, count, function_tokens) for tool in tools)


def tool_schema(tool: Any) -> Any:  # noqa: ANN401 - tools come in any type
    """Returns a tool as a model reads it, without what tells its provider how to send it."""
    try:
        schema: Any = convert_to_openai_tool(tool)
    except Exception:  # noqa: BLE001 - a tool that only its provider knows is sent as it is
        schema = _json_schema(tool)
    if isinstance(schema, Mapping):
        schema = {key: value for key, value in schema.items() if key not in _NOT_IN_WINDOW}
    return schema


def tool_tokens(tool: Any, count: Count, function_tokens: int) -> int:  # noqa: ANN401
    """Returns the tokens of one tool as it is sent, without the frame of all of them."""
    schema = tool_schema(tool)
    by_json = count(compact_json(schema))
    function = schema.get("function") if isinstance(schema, Mapping) else None
    if not isinstance(function, Mapping):
        return by_json
    return max(by_json, function_tokens + _function_tokens(function, count))


def _function_tokens(function: Mapping[str, Any], count: Count) -> int:
    """Returns the tokens of one function by the published rule."""
    tokens = count(_line(function.get("name", ""), "", function))
    parameters = function.get("parameters")
    properties = parameters.get("properties") if isinstance(parameters, Mapping) else None
    if not isinstance(properties, Mapping) or not properties:
        return tokens
    tokens += _PROPERTY_TOKENS * (1 + len(properties))
    for name, value in properties.items():
        schema = value if isinstance(value, Mapping) else {}
        tokens += count(_line(name, f"{schema.get('type', '')}:", schema))
        choices = schema.get("enum")
        if isinstance(choices, Sequence):
            tokens += _ENUM_TOKENS * (len(choices) - 1)
            tokens += sum(count(str(choice)) for choice in choices)
    return tokens


def _line(name: object, kind: str, schema: Mapping[str, Any]) -> str:
    """Returns a function or a property in the form in which the rule counts it."""
    description = str(schema.get("description") or "").removesuffix(".")
    return f"{name}:{kind}{description}"


def response_format_tokens(response_format: Any, count: Count) -> int:  # noqa: ANN401 - schemas come in any type
    """Returns the tokens of a response format as it is sent; 0 for None."""
    if response_format is None:
        return 0
    schema = response_format
    if not isinstance(response_format, type | Mapping):
        schema = getattr(response_format, "schema", response_format)
    costs = [count(compact_json(form)) for form in _sent_formats(schema)]
    return max(costs) + RESPONSE_FORMAT_TOKENS


def response_schema(response_format: object) -> dict[str, Any] | None:
    """Returns a response format as it may be sent at most; it costs the same. None for None."""
    if response_format is None:
        return None
    schema = response_format
    if not isinstance(response_format, type | Mapping):
        schema = getattr(response_format, "schema", response_format)
    longest: dict[str, Any] = max(_sent_formats(schema), key=lambda form: len(compact_json(form)))
    return longest


def _sent_formats(schema: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    """Returns the forms in which a response format may be sent.

    They are LangChain's, and a pydantic class's own.
    """
    if isinstance(schema, Mapping) and "type" in schema and "properties" not in schema:
        # {"type": "json_object"}, or a whole {"type": "json_schema", ...}
        return [{**schema}]
    try:
        forms = [{**convert_to_openai_function(schema)}]
    except Exception:  # noqa: BLE001 - whatever a schema class does when it is asked for its schema
        return [_json_schema(schema)]
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        forms.append({"name": schema.__name__, "schema": _strict(schema.model_json_schema())})
    return [{"type": "json_schema", "json_schema": {**form, "strict": True}} for form in forms]


def _strict(schema: Any) -> Any:  # noqa: ANN401
    """Returns a schema in the strict form: all fields are required, no others are allowed."""
    if isinstance(schema, list):
        return [_strict(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    strict = {key: _strict(value) for key, value in schema.items()}
    properties = strict.get("properties")
    if isinstance(properties, dict):
        strict |= {"required": list(properties), "additionalProperties": False}
    return strict


def _json_schema(value: Any) -> Any:  # noqa: ANN401
    """Returns the JSON schema of a pydantic class; anything else as it is."""
    if isinstance(value, type) and issubclass(value, BaseModel):
        return value.model_json_schema()
    return value
