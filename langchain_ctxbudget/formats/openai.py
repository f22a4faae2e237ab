"""OpenAI chat messages."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, InvalidToolCall, ToolCall, convert_to_messages
from langchain_core.messages.tool import invalid_tool_call, tool_call

from langchain_ctxbudget.formats.document import Node, loads

ROLES = ("system", "developer", "user", "assistant", "tool", "function")

_TIMES = ("created_at", "create_time", "timestamp")
_INSTEAD_OF_CONTENT = ("tool_calls", "function_call", "refusal", "audio")


def is_message(value: object) -> bool:
    """Whether a JSON value looks like an OpenAI chat message."""
    return isinstance(value, dict) and "role" in value


def read_message(node: Node) -> BaseMessage:
    """The message that an OpenAI message dict holds.

    `convert_to_messages` does most of it; but it refuses a whole file for one tool call whose arguments are
    not a JSON object (here: an entry in `invalid_tool_calls`), and it knows no times (here:
    `additional_kwargs["created_at"]`, from `created_at`, `create_time` or `timestamp`). Fields without a
    place in a LangChain message are kept in `additional_kwargs`.

    Raises:
        ConversationFormatError: the role is unknown, or a field is not what the role asks for.
    """
    role = node.get("role")
    if role.text() not in ROLES:
        raise role.error(f"one of {', '.join(ROLES)}")
    _check_content(node)
    fields: dict[str, Any] = node.plain()
    raw_calls = fields.pop("tool_calls", None)
    time = next((time for key in _TIMES if (time := node.get(key).time())), None)
    fields = {key: value for key, value in fields.items() if key not in _TIMES}
    fields |= {"id": node.get("id").identifier(), "content": fields.get("content")}
    if time:
        fields["created_at"] = time
    with node.building(f"{role.text()} message"):
        message = convert_to_messages([fields])[0]
    if isinstance(message, AIMessage) and raw_calls:
        message.tool_calls, message.invalid_tool_calls = _read_calls(node.get("tool_calls"))
    return message


def _check_content(node: Node) -> None:
    fields = node.fields()
    if "content" not in fields and not any(fields.get(key) for key in _INSTEAD_OF_CONTENT):
        raise node.get("content").error("the content")
    content = node.get("content")
    if isinstance(content.value, list):
        for part in content.items():
            if not isinstance(part.value, str):
                part.get("type").text()
    elif not isinstance(content.value, str | None):
        raise content.error("a string, a list of parts or null")


def _read_calls(calls: Node) -> tuple[list[ToolCall], list[InvalidToolCall]]:
    valid: list[ToolCall] = []
    invalid: list[InvalidToolCall] = []
    for call in calls.items():
        # A call in LangChain's own form has "name" and "args" at its top.
        is_openai = "function" in call.fields()
        function = call.get("function") if is_openai else call
        name, identifier = function.get("name").text(), call.get("id").identifier()
        arguments = function.get("arguments" if is_openai else "args")
        args = _parse(arguments)
        if isinstance(args, dict):
            valid.append(tool_call(name=name, args=args, id=identifier))
        else:
            invalid.append(
                invalid_tool_call(
                    name=name, args=arguments.text(), id=identifier, error="the arguments are not a JSON object"
                )
            )
    return valid, invalid


def _parse(arguments: Node) -> Any:  # noqa: ANN401
    """The arguments as they are, parsed where they are JSON in a string; None where they cannot be."""
    if not isinstance(arguments.value, str):
        return {} if arguments.value is None else arguments.plain()
    if not arguments.value.strip():
        return {}
    try:
        return Node(loads(arguments.value), arguments.place).plain()
    except (ValueError, RecursionError):
        return None
