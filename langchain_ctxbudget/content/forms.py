"""Calls and results put into another form: listed in `tool_calls`, in a message of their own.

A call that is an item of OpenAI's Responses API is read by that API alone. Everybody reads listed
calls, and results in tool messages.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolCall, ToolMessage

from langchain_ctxbudget.content import items
from langchain_ctxbudget.content.blocks import (
    Block,
    blocks_of,
    fields_of,
    json_text,
    text_block,
    type_of,
)
from langchain_ctxbudget.content.calls import (
    ITEM_CALLS,
    ITEM_RESULTS,
    UNREADABLE,
    call_id_of,
    is_result,
)
from langchain_ctxbudget.content.media import SCREEN
from langchain_ctxbudget.content.parts import Part, parts_of

_NO_ARGUMENTS = frozenset({"type", "id", "call_id", "status", "index", "pending_safety_checks"})
"""Keys of such a call that do not say what is to be done."""
_KEYS_OF_ARGUMENTS = ("input", "args", "arguments")
_ADDRESSES = ("data:", "http:", "https:")
_CHECKS = "acknowledged_safety_checks"


# Calls


def with_listed(message: AIMessage, blocks: Sequence[Block]) -> BaseMessage:
    """Returns a message with the calls in some of its blocks in `tool_calls`.

    These go out of the content, and so do the ids of other items.
    """
    calls = [*message.tool_calls, *map(_listed, blocks)]
    rest = [block for block in message.content if block not in blocks]
    listed = message.model_copy(update={"tool_calls": calls, "content": rest or ""})
    return items.without_items(listed)


def without_items(message: BaseMessage, sent: Collection[str] = ()) -> BaseMessage:
    """Returns a message without ids of items, reasoning, and the provider's own calls sent before.

    A call that may not stand without its id is listed.

    Args:
        message: Any message; it is not changed.
        sent: Ids of items that were sent before.
    """
    bare = items.without_items(message, sent)
    if bare is message or not isinstance(bare, AIMessage):
        return bare
    nameless = [
        block
        for block in blocks_of(bare)
        if type_of(block) in ITEM_CALLS and "id" not in fields_of(block)
    ]
    return with_listed(bare, nameless) if nameless else bare


def listed_call(message: BaseMessage, call_id: str) -> ToolCall | None:
    """Returns the call of a message with an id as LangChain lists it; None if it has none."""
    if not isinstance(message, AIMessage):
        return None
    for call in message.tool_calls:
        if call["id"] == call_id:
            return call
    for block in blocks_of(message):
        if call_id_of(block) == call_id and not is_result(block):
            return _listed(block)
    return None


def _listed(block: Block) -> ToolCall:
    """Returns a call as LangChain lists it."""
    fields = fields_of(block)
    kind = type_of(block)
    if kind in ITEM_CALLS:
        name = ITEM_CALLS[kind].name
        arguments: object = {
            key: value for key, value in fields.items() if key not in _NO_ARGUMENTS
        }
    else:
        name = str(fields.get("name") or "")
        arguments = next((fields[key] for key in _KEYS_OF_ARGUMENTS if key in fields), {})
    return ToolCall(
        name=name, args=_as_object(arguments), id=call_id_of(block) or None, type="tool_call"
    )


def _as_object(arguments: object) -> dict[str, Any]:
    """Returns arguments as an object; a text that is none becomes the only argument."""
    if isinstance(arguments, str):
        try:
            read = json.loads(arguments, strict=False)
        except ValueError:
            read = None
        arguments = read if isinstance(read, dict) else {UNREADABLE: arguments}
    return arguments if isinstance(arguments, dict) else {UNREADABLE: json_text(arguments)}


# Results


def result_of(block: Block, message: BaseMessage) -> ToolMessage:
    """Returns a result that is a block of another message as a message of its own."""
    fields = fields_of(block)
    content = next((fields[key] for key in ("content", "output") if fields.get(key)), "")
    status = fields.get("status")
    if isinstance(content, Mapping):
        content = [content]
    if isinstance(content, list) and not _are_blocks(content):
        content = json_text(content)
    if not content and isinstance(status, str):
        content = status
    is_error = fields.get("is_error") is True or status == "failed"
    return ToolMessage(
        [dict(part) for part in content] if isinstance(content, list) else str(content),
        tool_call_id=call_id_of(block),
        status="error" if is_error else "success",
        additional_kwargs=_screen_fields(fields),
        id=message.id,
    )


def _are_blocks(values: Sequence[object]) -> bool:
    """Tells if values are blocks of a content."""
    return all(isinstance(value, Mapping) and "type" in value for value in values)


def _screen_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what stands beside the content of a computer's screen; of other results, nothing."""
    if fields.get("type") != SCREEN:
        return {}
    beside = {"type": SCREEN}
    return {**beside, _CHECKS: fields[_CHECKS]} if _CHECKS in fields else beside


# Screens


def as_screen(result: ToolMessage) -> ToolMessage | None:
    """Returns a result as `langchain-openai` sends the screen of a computer.

    None where it has no picture: the Responses API takes nothing else for a screen.
    """
    pictures = [picture for part in parts_of(result) if (picture := _picture_of(part))]
    if not pictures:
        return None
    is_sent = isinstance(result.content, str) or "input_image" in map(type_of, result.content)
    if result.additional_kwargs.get("type") == SCREEN and is_sent:
        return result
    beside = {**result.additional_kwargs, **_screen_fields_in(result), "type": SCREEN}
    return result.model_copy(update={"content": pictures[:1], "additional_kwargs": beside})


def as_ordinary_result(result: ToolMessage) -> ToolMessage:
    """Returns a result as that of any tool; one that is in this form already as it is."""
    kind = result.additional_kwargs.get("type")
    has_items = any(type_of(part.block) in ITEM_RESULTS for part in parts_of(result))
    if kind not in ITEM_RESULTS and not has_items:
        return result
    beside = {
        key: value
        for key, value in result.additional_kwargs.items()
        if key != _CHECKS and (key != "type" or value not in ITEM_RESULTS)
    }
    content: str | list[Block] = result.content
    if has_items or not isinstance(content, str) or content.startswith(_ADDRESSES):
        content = [_ordinary_block(part) for part in parts_of(result)]
    return result.model_copy(update={"content": content, "additional_kwargs": beside})


def _screen_fields_in(result: ToolMessage) -> dict[str, Any]:
    """Returns what stands beside a screen, where the screen is a block of a result."""
    for part in parts_of(result):
        if part.type == SCREEN:
            return _screen_fields(fields_of(part.block))
    return {}


def _ordinary_block(part: Part) -> Block:
    """Returns a part of a result as everybody reads it."""
    picture = _picture_of(part)
    if picture and "image_url" in picture:
        return {"type": "image_url", "image_url": {"url": picture["image_url"]}}
    if part.text is not None:
        return text_block(part.text)
    if part.type in ITEM_RESULTS:
        return text_block("\n".join(part.words))
    return part.block


def _picture_of(part: Part) -> dict[str, Any]:
    """Returns the picture that a part is as the Responses API reads it; empty for other parts."""
    if part.medium is None or part.medium.kind != "image":
        return {}
    fields = fields_of(part.block)
    output = fields.get("output")
    if part.type == SCREEN and isinstance(output, Mapping):
        fields = dict(output)
    address = _address_in(fields)
    if not address and part.medium.payload:
        address = f"data:{part.medium.mime_type or 'image/png'};base64,{part.medium.base64}"
    if address:
        return {"type": "input_image", "image_url": address}
    file_id = fields.get("file_id")
    return {"type": "input_image", "file_id": file_id} if file_id else {}


def _address_in(fields: Mapping[str, Any]) -> str:
    """Returns where a picture is, or its bytes in a data URL; empty where neither is said."""
    for key in ("image_url", "url", "source"):
        value = fields.get(key)
        if isinstance(value, Mapping):
            value = value.get("url")
        if isinstance(value, str) and value.startswith(_ADDRESSES):
            return value
    return ""
