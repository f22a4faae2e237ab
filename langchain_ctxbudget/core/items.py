"""The items of OpenAI's Responses that an answer is made of, as its content names them by their ids.

Responses refuses an id that comes twice, and reasoning that is not followed by the item that it led to, which it knows
by its id. So a message is sent with the ids of all its items, or without them and without its reasoning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import BaseMessage

_PREFIXES = {"text": "msg_", "output_text": "msg_", "refusal": "msg_", "reasoning": "rs_"}
_STANDARD_CALLS = ("tool_call", "invalid_tool_call")
"""LangChain's own blocks have the id of a call as theirs, and that of its item among the extras."""


def item_ids(message: BaseMessage) -> set[str]:
    """The ids of the items in a message."""
    if isinstance(message.content, str):
        return set()
    return {key for block in message.content if isinstance(block, dict) and (key := _item_id(block))}


def without_items(message: BaseMessage) -> BaseMessage:
    """A message that says the same without the ids of items, and without the reasoning of one; itself if it has none.

    What the provider runs itself (searches, for example) is known by its id alone, and stays.
    """
    if not item_ids(message):
        return message
    blocks = [
        _without_id(block) if isinstance(block, dict) and _item_id(block) else block
        for block in message.content
        if isinstance(block, str) or block.get("type") != "reasoning" or not _item_id(block)
    ]
    return message.model_copy(update={"content": blocks})


def _item_id(block: Mapping[str, Any]) -> str | None:
    if block.get("type") in _STANDARD_CALLS:
        extras = block.get("extras")
        key = extras.get("item_id") if isinstance(extras, Mapping) else None
        return key if isinstance(key, str) else None
    key = block.get("id")
    if not isinstance(key, str) or not key:
        return None
    prefix = _PREFIXES.get(str(block.get("type")))
    return key if "call_id" in block or (prefix and key.startswith(prefix)) else None


def _without_id(block: Mapping[str, Any]) -> dict[str, Any]:
    if block.get("type") in _STANDARD_CALLS:
        return {**block, "extras": {key: value for key, value in block["extras"].items() if key != "item_id"}}
    return {key: value for key, value in block.items() if key != "id"}
