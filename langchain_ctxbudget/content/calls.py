"""Calls of tools and their results: which block is one, and which call it belongs to.

LangChain lists the calls of a message in `tool_calls`, or in `invalid_tool_calls` where their
arguments are no JSON object. Blocks hold them as well, in a form of Anthropic's, OpenAI's or
LangChain's. A call that is an item of OpenAI's Responses API stands in a block alone.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_ctxbudget.content.beside import has_parts_beside
from langchain_ctxbudget.content.blocks import Block, fields_of, type_of
from langchain_ctxbudget.content.items import STANDARD_CALLS

CUSTOM_CALL = "custom_tool_call"
CUSTOM_RESULT = "custom_tool_call_output"
CALL_BLOCKS = (*STANDARD_CALLS, "tool_use", "function_call", CUSTOM_CALL)
"""Types of blocks that are calls of functions, which LangChain lists (its own, Anthropic's,
OpenAI's)."""
TEXT_RESULT = "function_call_output"
RESULT_BLOCKS = ("tool_result", TEXT_RESULT, CUSTOM_RESULT)
"""Types of blocks that are the results of such calls."""
KEYS_OF_CALL_IDS = ("call_id", "tool_call_id", "tool_use_id")
"""Keys under which blocks of any type name a call."""
_KEY_OF_APPROVED_CALL = "approval_request_id"
"""The key under which an approval names the request that it answers."""


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
"""The calls that are items, by the types of their blocks."""
ITEM_RESULTS = frozenset(call.result_type for call in ITEM_CALLS.values())
_ALL_CALLS = frozenset({*CALL_BLOCKS, *ITEM_CALLS})
_ALL_RESULTS = frozenset({*RESULT_BLOCKS, *ITEM_RESULTS})


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


# Calls


def is_call(block: Block) -> bool:
    """Tells if a block is a call of a tool that the application runs, in any provider's form."""
    return type_of(block) in _ALL_CALLS


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
    in_content = map(call_id_of, filter(is_call, message.content))
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


def ids_of_sent_calls(message: BaseMessage) -> list[str]:
    """Returns the ids of the calls that are sent with a message: of listed ones, then of items."""
    if is_text(message):
        return []
    listed = [call["id"] or "" for call in listed_calls(message)]
    return listed + item_call_ids(message)


# Results


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


def is_item_result(message: BaseMessage) -> bool:
    """Tells if a tool message is sent as the result of an item, as the screen of a computer is."""
    return str(message.additional_kwargs.get("type")) in ITEM_RESULTS


def only_answers(message: BaseMessage) -> bool:
    """Tells if a message is nothing but results of calls, in whoever's name it stands."""
    if isinstance(message, ToolMessage):
        return True
    if not isinstance(message.content, list) or not message.content:
        return False
    return all(map(is_result, message.content))


# Both


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
    for key in (*KEYS_OF_CALL_IDS, _KEY_OF_APPROVED_CALL):  # OpenAI's have one of their own, too
        if key in fields:
            return str(fields[key] or "")
    if is_call(block) or type_of(block) in ITEM_RESULTS:
        return str(fields.get("id") or "")
    return ""
