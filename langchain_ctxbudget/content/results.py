"""Results of calls in another form: in messages of their own, as the screen of a computer, as text.

Everybody reads results in tool messages. A result that is an item of OpenAI's Responses API is read
by that API alone: of a computer it is a picture of the screen, and nothing else.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage

from langchain_ctxbudget.content.blocks import (
    Block,
    blocks_of,
    fields_of,
    json_text,
    text_block,
    type_of,
)
from langchain_ctxbudget.content.calls import (
    CUSTOM_RESULT,
    ITEM_RESULTS,
    TEXT_RESULT,
    call_id_of,
    is_item_result,
)
from langchain_ctxbudget.content.media import SCREEN, Medium
from langchain_ctxbudget.content.parts import Part, parts_of
from langchain_ctxbudget.content.shapes import Carrier, Shape, carrier_of, written

_CHECKS = "acknowledged_safety_checks"
"""The key under which a screen has the checks that the application has acknowledged."""
_ADDRESSES = ("http:", "https:")
_SCREENSHOT_TYPE = "image/png"
"""What a picture is taken for whose type nothing tells."""


def with_text_result(message: ToolMessage) -> ToolMessage:
    """Returns the result of a custom tool as text; any other as it is."""
    if CUSTOM_RESULT not in map(type_of, blocks_of(message)):
        return message
    blocks: list[Block] = []
    for block in blocks_of(message):
        if type_of(block) == CUSTOM_RESULT:
            blocks.append(block_of_value(fields_of(block).get("output") or ""))
        else:
            blocks.append(block)
    return message.model_copy(update={"content": blocks})


def block_of_value(value: object) -> Block:
    """Returns a text, or another value as JSON, as a block."""
    if isinstance(value, str):
        return text_block(value)
    return text_block(json_text(value))


# Results in blocks of other messages


def result_of(block: Block, message: BaseMessage) -> ToolMessage:
    """Returns a result that is a block of another message as a message of its own."""
    fields = fields_of(block)
    return ToolMessage(
        _content_in(fields),
        tool_call_id=call_id_of(block),
        status="error" if _has_failed(fields) else "success",
        additional_kwargs=_screen_fields(fields),
        id=message.id,
    )


def block_of_result(result: ToolMessage) -> Block:
    """Returns a result as a block of another message, in a form that can hold any result.

    `result_of` makes the same message of it again; no checks of a computer's screen are kept.
    """
    block: dict[str, Any] = {
        "type": TEXT_RESULT,
        "call_id": result.tool_call_id,
        "output": result.content,
    }
    if result.status == "error":
        block["is_error"] = True
    return block


def _content_in(fields: Mapping[str, Any]) -> str | list[Any]:
    """Returns what a result says, as the content of a message; its status where it says nothing."""
    content = fields.get("content") or fields.get("output")
    if not content:
        status = fields.get("status")
        return status if isinstance(status, str) else ""
    if isinstance(content, Mapping):
        content = [content]
    if not isinstance(content, list):
        return str(content)
    if _are_blocks(content):
        return [dict(block) for block in content]
    return json_text(content)


def _are_blocks(values: Sequence[object]) -> bool:
    """Tells if values are blocks of a content."""
    return all(isinstance(value, Mapping) and "type" in value for value in values)


def _has_failed(fields: Mapping[str, Any]) -> bool:
    """Tells if a result says that the call has failed."""
    return fields.get("is_error") is True or fields.get("status") == "failed"


# Screens of a computer


def as_screen(result: ToolMessage) -> ToolMessage | None:
    """Returns a result as `langchain-openai` sends the screen of a computer.

    None where it has no picture: the Responses API takes nothing else for a screen.
    """
    pictures = list(filter(None, map(_picture_in, parts_of(result))))
    if not pictures:
        return None
    is_sent = isinstance(result.content, str) or "input_image" in map(type_of, result.content)
    if result.additional_kwargs.get("type") == SCREEN and is_sent:
        return result
    screen = written(pictures[0], Shape.RESPONSES)
    beside = {**result.additional_kwargs, **_screen_fields_in(result), "type": SCREEN}
    return result.model_copy(update={"content": [screen], "additional_kwargs": beside})


def _screen_fields_in(result: ToolMessage) -> dict[str, Any]:
    """Returns what stands beside a screen, where the screen is a block of a result."""
    for part in parts_of(result):
        if part.type == SCREEN:
            return _screen_fields(fields_of(part.block))
    return {}


def _screen_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what stands beside the content of a computer's screen; of other results, nothing."""
    if fields.get("type") != SCREEN:
        return {}
    beside = {"type": SCREEN}
    if _CHECKS in fields:
        beside[_CHECKS] = fields[_CHECKS]
    return beside


def _picture_in(part: Part) -> Medium | None:
    """Returns the picture that a part is, as it is sent in a screen; None for any other part."""
    medium = part.medium
    if medium is None or medium.kind != "image":
        return None
    carrier = carrier_of(medium)
    is_unreachable = carrier is Carrier.ADDRESS and not medium.address.startswith(_ADDRESSES)
    if carrier is None or is_unreachable:
        return None
    return medium._replace(mime_type=medium.mime_type or _SCREENSHOT_TYPE, detail="")


# Results of any tool


def as_ordinary_result(result: ToolMessage) -> ToolMessage:
    """Returns a result as that of any tool; one that is in this form already as it is."""
    parts = parts_of(result)
    has_items = any(part.type in ITEM_RESULTS for part in parts)
    if not is_item_result(result) and not has_items:
        return result
    changes: dict[str, Any] = {"additional_kwargs": _without_screen_fields(result)}
    if has_items or any(map(_picture_in, parts)) or not isinstance(result.content, str):
        changes["content"] = list(map(_ordinary_block, parts))
    return result.model_copy(update=changes)


def _without_screen_fields(result: ToolMessage) -> dict[str, Any]:
    """Returns what stands beside a result, without what makes an item of it."""
    beside = {key: value for key, value in result.additional_kwargs.items() if key != _CHECKS}
    if is_item_result(result):
        del beside["type"]
    return beside


def _ordinary_block(part: Part) -> Block:
    """Returns a part of a result as everybody reads it."""
    picture = _picture_in(part)
    if picture is not None and carrier_of(picture) is not Carrier.FILE_ID:
        return written(picture, Shape.CHAT)
    if part.text is not None:
        return text_block(part.text)
    if part.type in ITEM_RESULTS:
        return text_block("\n".join(part.words))
    return part.block
