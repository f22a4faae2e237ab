"""Calls of tools in another form: listed in `tool_calls`, under other ids and names, as text.

Everybody reads listed calls. A call that is an item of OpenAI's Responses API is read by that API
alone, which reads custom calls twice if they are listed, too.

| as it is given | as it is sent |
|---|---|
| `invalid_tool_calls` (arguments that are no JSON object: some servers refuse it) | `tool_calls` |
| blocks `custom_tool_call`, which one provider reads, and reads twice | in `tool_calls` alone |
| a call that is not in `tool_calls`, a result in place of a `ToolMessage` | its JSON as text |
| a call that is an item, without the id of that item | `tool_calls` |
"""

import json
from collections.abc import Collection, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolCall, ToolMessage

from langchain_ctxbudget.content.blocks import (
    Block,
    blocks_of,
    fields_of,
    json_text,
    type_of,
)
from langchain_ctxbudget.content.calls import (
    CALL_BLOCKS,
    CUSTOM_CALL,
    ITEM_CALLS,
    call_id_of,
    is_raw,
    is_result,
    listed_calls,
)
from langchain_ctxbudget.content.items import without_ids_of_items
from langchain_ctxbudget.content.media import without_media_inside
from langchain_ctxbudget.content.results import block_of_value, with_text_result

UNREADABLE = "unreadable_arguments"
"""The only argument of a call whose arguments are no JSON object: what was written there."""
_NO_ARGUMENTS = frozenset({"type", "id", "call_id", "status", "index", "pending_safety_checks"})
"""Keys of an item that do not say what is to be done."""
_KEYS_OF_ARGUMENTS = ("input", "args", "arguments")


def in_one_form(message: BaseMessage) -> BaseMessage:
    """Returns a message with its calls, or its result, in the form that every provider reads."""
    if isinstance(message, ToolMessage):
        return with_text_result(message)
    return with_calls(message)


def raw_text(block: Block) -> Block:
    """Returns a block as text: its own text, or its JSON without the bytes of media."""
    return block_of_value(without_media_inside(fields_of(block)))


# Calls that LangChain lists


def with_calls(message: BaseMessage) -> BaseMessage:
    """Returns a message with all its calls in `tool_calls`, and custom ones there alone.

    A message that has them there already is returned as it is. A call whose arguments cannot be
    read loses its block, as its provider would read them there.
    """
    if not isinstance(message, AIMessage):
        return message
    broken = {call["id"] for call in message.invalid_tool_calls}
    if broken:
        message = _with_valid_calls(message)
    blocks = blocks_of(message)
    rest = [block for block in blocks if not _is_in_calls_alone(block, message, broken)]
    if len(rest) == len(blocks):
        return message
    return without_ids_of_items(message.model_copy(update={"content": rest}))


def _is_in_calls_alone(block: Block, message: BaseMessage, broken: Collection[str | None]) -> bool:
    """Tells if a call stands in `tool_calls` alone: a custom one, or one with broken arguments."""
    kind = type_of(block)
    if kind == CUSTOM_CALL:
        return not is_raw(block, message)
    return kind in CALL_BLOCKS and call_id_of(block) in broken


def _with_valid_calls(message: AIMessage) -> AIMessage:
    """Returns a message whose invalid calls are valid: their text is their only argument."""
    calls = list(message.tool_calls)
    for call in message.invalid_tool_calls:
        arguments = {UNREADABLE: call["args"] or ""}
        calls.append(
            ToolCall(name=call["name"] or "", args=arguments, id=call["id"], type="tool_call")
        )
    return message.model_copy(update={"tool_calls": calls, "invalid_tool_calls": []})


def with_calls_as(message: AIMessage, ids: Sequence[str], names: Sequence[str]) -> BaseMessage:
    """Returns a message whose calls have other ids, and those that are listed other names.

    Blocks of calls and ids of items, which still say the former ones, are left out.

    Args:
        message: The message; it is not changed.
        ids: The new ids, in the order of `ids_of_sent_calls`.
        names: The new names of the calls that are listed.
    """
    listed = listed_calls(message)
    calls = [
        {**call, "id": call_id, "name": name}
        for call, call_id, name in zip(listed, ids, names, strict=False)
    ]
    changes: dict[str, Any] = {"tool_calls": calls}
    if not isinstance(message.content, str):
        changes["content"] = _with_calls_of_items(message.content, ids[len(listed) :]) or ""
    return without_ids_of_items(message.model_copy(update=changes))


def _with_calls_of_items(blocks: Sequence[Block], ids: Sequence[str]) -> list[Block]:
    """Returns blocks without those of listed calls, and with other ids for calls that are items."""
    content: list[Block] = []
    further_ids = iter(ids)
    for block in blocks:
        kind = type_of(block)
        if kind in ITEM_CALLS:
            content.append({**fields_of(block), "call_id": next(further_ids)})
        elif kind not in CALL_BLOCKS:
            content.append(block)
    return content


# Calls that it does not list


def with_listed(message: AIMessage, blocks: Sequence[Block]) -> BaseMessage:
    """Returns a message that lists the calls in some of its blocks.

    These go out of the content, and so do the ids of other items.
    """
    calls = [*message.tool_calls, *map(_listed, blocks)]
    rest = [block for block in message.content if block not in blocks]
    listed = message.model_copy(update={"tool_calls": calls, "content": rest or ""})
    return without_ids_of_items(listed)


def without_items(message: BaseMessage, sent: Collection[str] = ()) -> BaseMessage:
    """Returns a message without ids of items, reasoning, and the provider's own calls sent before.

    A call that may not stand without the id of its item is listed.

    Args:
        message: Any message; it is not changed.
        sent: Ids of items that were sent before.
    """
    bare = without_ids_of_items(message, sent)
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
    kind = type_of(block)
    if kind in ITEM_CALLS:
        name = ITEM_CALLS[kind].name
    else:
        name = str(fields_of(block).get("name") or "")
    return ToolCall(
        name=name,
        args=_as_object(_arguments_in(block)),
        id=call_id_of(block) or None,
        type="tool_call",
    )


def _arguments_in(block: Block) -> object:
    """Returns the arguments of a call, of an item what it says is to be done."""
    fields = fields_of(block)
    if type_of(block) in ITEM_CALLS:
        return {key: value for key, value in fields.items() if key not in _NO_ARGUMENTS}
    for key in _KEYS_OF_ARGUMENTS:
        if key in fields:
            return fields[key]
    return {}


def _as_object(arguments: object) -> dict[str, Any]:
    """Returns arguments as an object; a text that is none becomes the only argument."""
    if isinstance(arguments, str):
        read = _object_in(arguments)
        return {UNREADABLE: arguments} if read is None else read
    if isinstance(arguments, dict):
        return arguments
    return {UNREADABLE: json_text(arguments)}


def _object_in(text: str) -> dict[str, Any] | None:
    """Returns the object that a text of JSON is; None for any other text."""
    try:
        value = json.loads(text, strict=False)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
