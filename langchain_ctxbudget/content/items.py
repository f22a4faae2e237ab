"""Items of OpenAI's Responses API, which content blocks stand for.

The Responses API refuses an id of an item that comes twice, and reasoning that is not followed
by the item that it led to. So a message is sent with the ids of all its items, or without them and
without its reasoning. Reasoning that nothing follows in its message is left out: the answer was cut
off. A call that the provider has run itself (a search, for example) is known by its id alone: a
second time, it is left out. The first time it keeps its id, and the reasoning in front of it.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage

from langchain_ctxbudget.content.blocks import Block, blocks_of, fields_of

STANDARD_CALLS = ("tool_call", "invalid_tool_call")
"""LangChain's own blocks have the id of a call as theirs, and that of its item among the extras."""
_BEGINNING_OF_ID = re.compile(
    r"(?:msg|rs|fc|ctc|cu|sh|lsh|apc|(ws|fs|ci|ig|cmp|mcp[a-z]?|ts[a-z]?))_"
)
"""In the group stands the beginning of the id of an item that the provider has run itself."""
_SAID_BEFORE = "[The same as before.]"


class Item(NamedTuple):
    """An item of the Responses API, which a content block stands for."""

    id: str
    is_run_by_provider: bool
    """True for a call that the provider has run itself, which is known by its id alone."""


def item_ids(message: BaseMessage) -> set[str]:
    """Returns the ids of the items of the Responses API in a message."""
    if isinstance(message.content, str):
        return set()
    items = map(item_of, message.content)
    return {item.id for item in items if item}


def loses_items(message: BaseMessage, shorter: BaseMessage) -> bool:
    """Tells if the shorter form of a message lacks an item that the message has."""
    return not item_ids(message) <= item_ids(shorter)


def item_of(block: Block) -> Item | None:
    """Returns the item that a block stands for; None if it stands for none."""
    item_id = _item_id(fields_of(block))
    if not isinstance(item_id, str):
        return None
    beginning = _BEGINNING_OF_ID.match(item_id)
    if beginning is None:
        return None
    return Item(item_id, is_run_by_provider=bool(beginning[1]))


def _item_id(fields: Mapping[str, Any]) -> object:
    """Returns the value in the place where a block of this type keeps the id of its item."""
    kind = fields.get("type")
    if kind in STANDARD_CALLS:
        extras = fields.get("extras")
        return extras.get("item_id") if isinstance(extras, Mapping) else None
    if kind == "server_tool_result":
        return fields.get("tool_call_id")
    return fields.get("id")


def without_ids_of_items(message: BaseMessage, sent: Collection[str] = ()) -> BaseMessage:
    """Returns a message without ids of items, reasoning, and the provider's own calls sent before.

    Reasoning that led to a call of the provider's own stays with that call.

    Args:
        message: Any message; it is not changed.
        sent: Ids of items that were sent before.
    """
    if not item_ids(message):
        return message
    content: list[Block] = []
    leads_to_call = False
    for block in reversed(blocks_of(message)):
        leads_to_call = _stays_with_call(block, sent, leads_to_call=leads_to_call)
        rest = block if leads_to_call else _without_item(block, sent)
        if rest is not None:
            content.append(rest)
    content.reverse()
    if content:
        return message.model_copy(update={"content": content})
    has_calls = isinstance(message, AIMessage) and bool(message.tool_calls)
    return message.model_copy(update={"content": "" if has_calls else _SAID_BEFORE})


def _stays_with_call(block: Block, sent: Collection[str], *, leads_to_call: bool) -> bool:
    """Tells if a block is a call of the provider's own, or reasoning right before one.

    Args:
        block: Any block.
        sent: Ids of items that were sent before: these do not stay.
        leads_to_call: True if that is so of the block behind it.
    """
    item = item_of(block)
    if item is None or item.id in sent:
        return False
    is_reasoning = fields_of(block).get("type") == "reasoning"
    return item.is_run_by_provider or (leads_to_call and is_reasoning)


def _without_item(block: Block, sent: Collection[str]) -> Block | None:
    """Returns a block without the id of its item; None where nothing of it may be sent."""
    item = item_of(block)
    if item is None:
        return block
    if item.is_run_by_provider and item.id not in sent:
        return block
    fields = fields_of(block)
    if fields["type"] in STANDARD_CALLS:
        return {**fields, "extras": _without_key(fields["extras"], "item_id")}
    if item.is_run_by_provider or fields["type"] == "reasoning":
        return None
    return _without_key(fields, "id")


def _without_key(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key != name}
