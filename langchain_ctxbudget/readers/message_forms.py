"""One message in the forms of OpenAI's Chat Completions, Anthropic's Messages, and LangChain."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    InvalidToolCall,
    ToolCall,
    ToolMessage,
    convert_to_messages,
    messages_from_dict,
)

from langchain_ctxbudget.readers.base import READING_ERRORS, JsonObject, reason_of
from langchain_ctxbudget.readers.fields import TIME_KEYS, time_at
from langchain_ctxbudget.readers.pieces import time_kwargs

CALL = "tool_use"
RESULT = "tool_result"
TEXT = "text"
LANGCHAIN_TYPES = frozenset(
    {"human", "ai", "system", "tool", "function", "chat", "remove", "constructor"}
)
"""The `type` of a message as LangChain writes it."""


def is_message(record: JsonObject) -> bool:
    """Tells if a record is a message in one of the forms."""
    return isinstance(record.get("role"), str) or record.get("type") in LANGCHAIN_TYPES


def messages_in(values: Iterable[Any]) -> list[BaseMessage]:
    """Returns the messages that JSON objects hold.

    Raises:
        ValueError: One of them is no message; the text has its number.
    """
    messages: list[BaseMessage] = []
    for number, value in enumerate(values, 1):
        try:
            messages += messages_of(value)
        except READING_ERRORS as error:
            raise ValueError(f"message {number}: {reason_of(error)}") from error
    return messages


def messages_of(fields: JsonObject) -> list[BaseMessage]:
    """Returns the messages that one JSON object holds.

    It is one, except where a user's message of Anthropic's form has results of calls: these are
    messages of their own. Fields that a message has no place for stay in its kwargs.
    """
    # A `ChatMessage` of LangChain has a role as well.
    if "role" not in fields or fields.get("type") == "chat":
        return [_langchain_message(fields)]
    data = {name: value for name, value in fields.items() if name not in TIME_KEYS}
    time = time_at(fields)
    if time is not None:
        data["created_at"] = time
    if isinstance(data.get("content"), list):
        data["content"] = plain_content(data["content"])
    if data["role"] == "assistant":
        return [_answer(data)]
    return list(_in_pieces(data))


def _langchain_message(fields: JsonObject) -> BaseMessage:
    data = dict(fields.get("kwargs") or fields.get("data") or fields)
    return messages_from_dict([{"type": data.get("type") or fields["type"], "data": data}])[0]


def plain_content(blocks: list[Any]) -> str | list[Any]:
    """Returns content without marks for caches; a single text becomes a string.

    The same message then looks the same in every request that repeats it.
    """
    content = [_without_mark(block) for block in blocks]
    match content:
        case [{"type": "text", "text": str(text), **others}] if not others:
            return text
        case _:
            return content


def content_from(blocks: list[Any]) -> str | list[Any]:
    """Returns the content that blocks make; an empty text where there are none."""
    if not blocks:
        return ""
    return plain_content(blocks)


def _without_mark(block: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(block, dict) and "cache_control" in block:
        return {key: value for key, value in block.items() if key != "cache_control"}
    return block


def _answer(data: JsonObject) -> AIMessage:
    """Returns an assistant's message with its calls, listed beside the content or in it."""
    listed = data.pop("tool_calls", None) or []
    data["content"] = data.get("content") or ""
    [message] = convert_to_messages([data])
    calls, invalid = split_calls([*map(_listed_call, listed), *_calls_in(data["content"])])
    return AIMessage.model_validate(
        message.model_dump() | {"tool_calls": calls, "invalid_tool_calls": invalid}
    )


def _listed_call(call: JsonObject) -> ToolCall | InvalidToolCall:
    """Returns a call of OpenAI's form."""
    function = call.get("function") or call.get("custom") or {}
    arguments = function.get("arguments") or function.get("input")
    return call_of(function["name"], arguments, call.get("id"))


def _calls_in(content: str | list[Any]) -> Iterator[ToolCall | InvalidToolCall]:
    """Yields the calls in content of Anthropic's form."""
    for block in content:
        if isinstance(block, dict) and block.get("type") == CALL:
            yield call_of(block["name"], block.get("input"), block.get("id"))


def call_of(
    name: str,
    arguments: Any,  # noqa: ANN401 - JSON
    call_id: str | None,
) -> ToolCall | InvalidToolCall:
    """Returns a call; where its arguments are no JSON object, as they broke off, an invalid one."""
    args = arguments or {}
    if isinstance(args, str):
        try:
            args = json.loads(args, strict=False)
        except ValueError as error:
            return InvalidToolCall(
                type="invalid_tool_call",
                name=name,
                args=str(arguments),
                id=call_id,
                error=reason_of(error),
            )
    if not isinstance(args, dict):
        args = {"input": args}
    return ToolCall(type="tool_call", name=name, args=args, id=call_id)


def split_calls(
    calls: Iterable[ToolCall | InvalidToolCall],
) -> tuple[list[ToolCall], list[InvalidToolCall]]:
    """Returns the calls whose arguments can be read, and the others."""
    valid: list[ToolCall] = []
    invalid: list[InvalidToolCall] = []
    for call in calls:
        if call["type"] == "tool_call":
            valid.append(call)
        else:
            invalid.append(call)
    return valid, invalid


def _in_pieces(data: JsonObject) -> Iterator[BaseMessage]:
    """Yields a message that is no answer; results of calls in its content are split off."""
    content = data.get("content")
    if not isinstance(content, list) or not any(map(_is_result, content)):
        yield from convert_to_messages([data])
        return
    others: list[Any] = []
    for block in content:
        if not _is_result(block):
            others.append(block)
            continue
        if others:
            yield from convert_to_messages([data | {"content": plain_content(others)}])
            others = []
        yield _result_in(block, data)
    if others:
        yield from convert_to_messages([data | {"content": plain_content(others)}])


def _is_result(block: Any) -> bool:  # noqa: ANN401 - JSON
    return isinstance(block, dict) and block.get("type") == RESULT


def _result_in(block: JsonObject, data: JsonObject) -> ToolMessage:
    return ToolMessage(
        _content_of_result(block.get("content")),
        tool_call_id=block["tool_use_id"],
        status="error" if block.get("is_error") is True else "success",
        additional_kwargs=time_kwargs(data.get("created_at")),
    )


def _content_of_result(content: Any) -> str | list[Any]:  # noqa: ANN401 - JSON
    if isinstance(content, list):
        return plain_content(content)
    return content or ""
