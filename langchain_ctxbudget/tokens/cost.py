"""The cost of messages as they are sent to a model, framing included.

For text, names, roles, tool calls, tool results and images this is, to the token, what
`ChatOpenAI.get_num_tokens_from_messages` answers. Any other block costs its compact JSON.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, SystemMessage, ToolMessage

from langchain_ctxbudget.messages import (
    CALL_BLOCKS,
    Block,
    Count,
    is_text,
    medium_of,
    shown_blocks,
    with_calls,
)
from langchain_ctxbudget.tokens.media_cost import ImageRate, file_tokens, image_block_tokens
from langchain_ctxbudget.tokens.schemas import compact_json

REPLY_TOKENS = 3
"""Every reply is primed with the assistant's role."""
TOOL_CALL_ID_TOKENS = 3
_ROLES = {"human": "user", "ai": "assistant"}


class Framing(NamedTuple):
    """Tokens that a model adds around the text of a message."""

    message_tokens: int = 3
    name_tokens: int = 1
    function_tokens: int = 7
    """The frame of one function, for gpt-4o and later; 10 for the cl100k_base models."""
    image: ImageRate = ImageRate()


def message_tokens(message: BaseMessage, count: Count, framing: Framing) -> int:
    """Returns the tokens of one message."""
    tokens = framing.message_tokens + count(_role(message)) + _name_tokens(message, count, framing)
    # Calls are counted in the form in which they are sent.
    if not is_text(message):
        message = with_calls(message)
    sent_ids: list[Any] = []
    if isinstance(message, AIMessage):
        for call in message.tool_calls:
            tokens += count(json.dumps(call["args"], ensure_ascii=False, default=str))
            tokens += count(call["name"])
        tokens += _audio_tokens(message, count)
        sent_ids = [call["id"] for call in message.tool_calls if call["id"]]
    for block in shown_blocks(message):
        tokens += _block_tokens(block, sent_ids, count, framing.image)
    return tokens


def _role(message: BaseMessage) -> str:
    if isinstance(message, ChatMessage):
        return message.role
    if isinstance(message, SystemMessage):
        return str(message.additional_kwargs.get("__openai_role__", "system"))
    return _ROLES.get(message.type, message.type)


def _name_tokens(message: BaseMessage, count: Count, framing: Framing) -> int:
    """Returns the tokens of a message's name; a tool's result has the id of its call instead."""
    if isinstance(message, ToolMessage):
        return TOOL_CALL_ID_TOKENS
    name = message.name or message.additional_kwargs.get("name")
    if not name:
        return 0
    return count(str(name)) + framing.name_tokens


def _audio_tokens(message: AIMessage, count: Count) -> int:
    """Returns the tokens of a spoken answer, which is sent by its id where it has one."""
    audio = message.additional_kwargs.get("audio")
    if not audio:
        return 0
    if isinstance(audio, Mapping) and "id" in audio:
        audio = {"id": audio["id"]}
    return count(str(audio))


def _block_tokens(block: Block, sent_ids: list[Any], count: Count, rate: ImageRate) -> int:
    """Returns the tokens of one block; a call that is sent as a call costs nothing here."""
    if isinstance(block, str):
        return count(block)
    kind = str(block.get("type"))
    if kind == "text" and "text" in block:
        return count(str(block["text"]))
    medium = medium_of(block)
    if medium is not None and medium.kind == "image":
        return image_block_tokens(block, medium, rate)
    if medium is not None and medium.size_bytes:
        return file_tokens(medium, count)
    is_sent = block.get("id") in sent_ids or block.get("call_id") in sent_ids
    if kind in CALL_BLOCKS and is_sent:
        return 0
    return count(compact_json(block))
