"""Tool calls and their results in LangChain's form, which all providers read.

| as it is given | as it is sent |
|---|---|
| `invalid_tool_calls` (arguments that are no JSON object: some servers refuse it) | `tool_calls` |
| blocks `custom_tool_call`, which one provider reads, and reads twice | in `tool_calls` alone |
| a block `custom_tool_call_output` in the tool message of its call | its text |
| a call that is not in `tool_calls`, a result in place of a `ToolMessage` | its JSON as text |
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall, ToolMessage

from langchain_ctxbudget.content.beside import has_parts_beside
from langchain_ctxbudget.content.blocks import (
    Block,
    blocks_of,
    fields_of,
    json_text,
    text_block,
    type_of,
)
from langchain_ctxbudget.content.items import STANDARD_CALLS, without_items
from langchain_ctxbudget.content.media import without_media_inside

_CUSTOM_CALL = "custom_tool_call"
_CUSTOM_RESULT = "custom_tool_call_output"
CALL_BLOCKS = (*STANDARD_CALLS, "tool_use", "function_call", _CUSTOM_CALL)
"""Types of content blocks that are calls (Anthropic, LangChain, OpenAI)."""
THOUGHTS = frozenset({"thinking", "redacted_thinking", "reasoning", "reasoning_content"})
RESULT_BLOCKS = ("tool_result", "function_call_output", _CUSTOM_RESULT)
_KEYS_OF_CALL_IDS = ("call_id", "tool_call_id", "tool_use_id", "approval_request_id")
"""Keys under which blocks of any type name a call."""


class ItemCall(NamedTuple):
    """A call that the application runs and LangChain does not list: an item of Responses."""

    name: str
    """What a tool is called that does the same."""
    result_type: str
    """The type of the item that answers it."""


ITEM_CALLS: Mapping[str, ItemCall] = {
    "computer_call": ItemCall("computer", "computer_call_output"),
    "shell_call": ItemCall("shell", "shell_call_output"),
    "local_shell_call": ItemCall("local_shell", "local_shell_call_output"),
    "apply_patch_call": ItemCall("apply_patch", "apply_patch_call_output"),
    "mcp_approval_request": ItemCall("mcp_approval", "mcp_approval_response"),
}
"""By the types of their blocks."""
ITEM_RESULTS = frozenset(call.result_type for call in ITEM_CALLS.values())
_ALL_CALLS = frozenset({*CALL_BLOCKS, *ITEM_CALLS})
_ALL_RESULTS = frozenset({*RESULT_BLOCKS, *ITEM_RESULTS})
UNREADABLE = "unreadable_arguments"
"""The argument that arguments become which are no JSON object."""


def is_text(message: BaseMessage) -> bool:
    """Tells if a message is plain text of a user or a model, and nothing else, as most are.

    It is a quick look: a message of a subclass is not recognised.
    """
    if not isinstance(message.content, str):
        return False
    if type(message) is not AIMessage:
        return type(message) is HumanMessage
    if message.tool_calls or message.invalid_tool_calls:
        return False
    return not (message.additional_kwargs and has_parts_beside(message))


# Thoughts


def is_thought(block: Block) -> bool:
    """Tells if a block is reasoning of a model, in any provider's form."""
    return type_of(block) in THOUGHTS


def without_trailing_thoughts(blocks: Sequence[Block], message: BaseMessage) -> list[Block]:
    """Returns blocks of a content without the thoughts at their end, which lead to nothing.

    The Responses API refuses reasoning without the item that it led to, and Anthropic a message
    that ends with thinking: an answer was cut off there. Calls that stand in `tool_calls` alone are
    sent behind the content, so they follow.
    """
    if not isinstance(message, AIMessage) or not _all_calls_in(blocks, message):
        return list(blocks)
    end = len(blocks)
    while end and is_thought(blocks[end - 1]):
        end -= 1
    return list(blocks[:end])


def _all_calls_in(blocks: Sequence[Block], message: BaseMessage) -> bool:
    """Tells if every call of a message has a block among these."""
    ids: set[str] = set()
    for block in blocks:
        if type_of(block) in _ALL_CALLS:
            fields = fields_of(block)
            ids.add(str(fields.get("id")))
            ids.add(str(fields.get("call_id")))
    return ids.issuperset(call_ids(message))


# Calls


def listed_calls(message: BaseMessage) -> list[dict[str, Any]]:
    """Returns the valid calls of a message, which LangChain lists in `tool_calls`."""
    if not isinstance(message, AIMessage):
        return []
    return [dict(call) for call in message.tool_calls]


def call_ids(message: BaseMessage) -> tuple[str, ...]:
    """Returns the ids of the calls that a message makes, in any form and valid or not.

    A call without an id has an empty one.
    """
    if not isinstance(message, AIMessage):
        return ()
    listed = _listed_ids(message)
    if isinstance(message.content, str):
        return listed
    in_content = [call_id_of(block) for block in message.content if type_of(block) in _ALL_CALLS]
    return (*listed, *(call_id for call_id in in_content if call_id not in listed))


def _listed_ids(message: AIMessage) -> tuple[str, ...]:
    """Returns the ids of the calls that LangChain lists, valid or not."""
    calls = (*message.tool_calls, *message.invalid_tool_calls)
    return tuple(call["id"] or "" for call in calls)


def item_call_ids(message: BaseMessage) -> list[str]:
    """Returns the ids of a message's calls that are items, which LangChain does not list."""
    if not isinstance(message, AIMessage) or isinstance(message.content, str):
        return []
    return [call_id_of(block) for block in message.content if type_of(block) in ITEM_CALLS]


def answered_ids(message: BaseMessage) -> tuple[str, ...]:
    """Returns the ids of the calls whose results a message has, in any form."""
    if isinstance(message, ToolMessage):
        return (message.tool_call_id,)
    if isinstance(message.content, str):
        return ()
    return tuple(call_id_of(block) for block in message.content if is_result(block))


def is_result(block: Block) -> bool:
    """Tells if a block is the result of a call, in any provider's form."""
    return type_of(block) in _ALL_RESULTS


def only_answers(message: BaseMessage) -> bool:
    """Tells if a message is nothing but results of calls, in whoever's name it stands."""
    if isinstance(message, ToolMessage):
        return True
    return isinstance(message.content, list) and _are_all_results(message.content)


def _are_all_results(blocks: Sequence[Block]) -> bool:
    return bool(blocks) and all(map(is_result, blocks))


def with_calls(message: BaseMessage) -> BaseMessage:
    """Returns a message with all its calls in `tool_calls`, and custom ones there alone.

    A message that has them there already is returned as it is. A block of a call whose arguments
    cannot be read goes, as its provider would read them there.
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
    return without_items(message.model_copy(update={"content": rest}))


def _is_in_calls_alone(block: Block, message: BaseMessage, broken: Collection[str | None]) -> bool:
    """Tells if a call stands in `tool_calls` alone: a custom one, or one with broken arguments."""
    kind = type_of(block)
    if kind == _CUSTOM_CALL:
        return not is_raw(block, message)
    return kind in CALL_BLOCKS and call_id_of(block) in broken


def _with_valid_calls(message: AIMessage) -> AIMessage:
    """Makes the invalid calls of a message valid: their text becomes their only argument."""
    calls = list(message.tool_calls)
    for call in message.invalid_tool_calls:
        arguments = {UNREADABLE: call["args"] or ""}
        calls.append(
            ToolCall(name=call["name"] or "", args=arguments, id=call["id"], type="tool_call")
        )
    return message.model_copy(update={"tool_calls": calls, "invalid_tool_calls": []})


def is_raw(block: Block, message: BaseMessage) -> bool:
    """Tells if a block is a call that is not in `tool_calls`, or a result in no `ToolMessage`."""
    if isinstance(message, ToolMessage):
        return False
    kind = type_of(block)
    if kind in RESULT_BLOCKS:
        return True
    if kind not in CALL_BLOCKS:
        return False
    return not isinstance(message, AIMessage) or call_id_of(block) not in _listed_ids(message)


def call_id_of(block: Block) -> str:
    """Returns the id of the call that a block is, or that it answers; empty where there is none."""
    fields = fields_of(block)
    for key in _KEYS_OF_CALL_IDS:  # OpenAI's calls have an id of their own, too
        if key in fields:
            return str(fields[key] or "")
    if type_of(block) in _ALL_CALLS or type_of(block) in ITEM_RESULTS:
        return str(fields.get("id") or "")
    return ""


def raw_text(block: Block) -> Block:
    """Returns a block as text: its own text, or its JSON without the bytes of media."""
    return _json_block(without_media_inside(fields_of(block)))


def with_text_result(message: ToolMessage) -> ToolMessage:
    """Returns the result of a custom tool as text; any other as it is."""
    if _CUSTOM_RESULT not in map(type_of, blocks_of(message)):
        return message
    blocks: list[Block] = []
    for block in blocks_of(message):
        if type_of(block) == _CUSTOM_RESULT:
            output = fields_of(block).get("output") or ""
            blocks.append(_json_block(output))
        else:
            blocks.append(block)
    return message.model_copy(update={"content": blocks})


def in_one_form(message: BaseMessage) -> BaseMessage:
    """Returns a message with its calls, or its result, in the form that every provider reads."""
    if isinstance(message, ToolMessage):
        return with_text_result(message)
    return with_calls(message)


def _json_block(value: object) -> Block:
    """Returns a text, or another value as JSON, as a block."""
    if isinstance(value, str):
        return text_block(value)
    return text_block(json_text(value))


def with_calls_as(message: AIMessage, ids: Sequence[str], names: Sequence[str]) -> BaseMessage:
    """Returns a message whose calls have these ids, and those that are listed these names.

    Blocks and items that still have the former ones are left out.
    """
    calls: list[dict[str, Any]] = []
    for call, call_id, name in zip(listed_calls(message), ids, names, strict=False):
        calls.append({**call, "id": call_id, "name": name})
    ids_of_items = iter(ids[len(calls) :])
    content: str | list[Block] = message.content
    if not isinstance(content, str):
        blocks = [block for block in content if type_of(block) not in CALL_BLOCKS]
        content = [
            {**fields_of(block), "call_id": next(ids_of_items)}
            if type_of(block) in ITEM_CALLS
            else block
            for block in blocks
        ] or ""
    return without_items(message.model_copy(update={"tool_calls": calls, "content": content}))
