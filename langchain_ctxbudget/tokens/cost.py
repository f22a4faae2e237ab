"""The cost of messages as they are sent to a model, framing included.

For text, names, roles, tool calls, tool results and images this is, to the token, what
`ChatOpenAI.get_num_tokens_from_messages` answers. Any other block costs its compact JSON,
without a mark for a cache and but for the media in it.
"""

import json
from math import ceil

from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, SystemMessage, ToolMessage

from langchain_ctxbudget.content import (
    Kind,
    Part,
    is_text,
    media_inside,
    only_text_of,
    parts_of,
    with_calls,
    without_media_inside,
)
from langchain_ctxbudget.messages import Count
from langchain_ctxbudget.providers import Framing, MediaRates, without_mark
from langchain_ctxbudget.tokens.media_cost import medium_tokens
from langchain_ctxbudget.tokens.schemas import compact_json

REPLY_TOKENS = 3
"""Every reply is primed with the assistant's role."""
TOOL_CALL_ID_TOKENS = 3
CHARACTERS_OF_COMPACTION_PER_TOKEN = 4
"""Of a compaction that only its provider can read. OpenAI does not say what one costs: about four
bytes of text are a token, and encrypted text is a third longer, so this is rather too much."""
_ROLES = {"human": "user", "ai": "assistant"}


def message_tokens(message: BaseMessage, count: Count, framing: Framing, rates: MediaRates) -> int:
    """Returns the tokens of one message."""
    tokens = framing.message_tokens + count(_role(message)) + _name_tokens(message, count, framing)
    # Calls are counted in the form in which they are sent.
    if not is_text(message):
        message = with_calls(message)
    sent_ids: list[object] = []
    if isinstance(message, AIMessage):
        for call in message.tool_calls:
            tokens += count(json.dumps(call["args"], ensure_ascii=False, default=str))
            tokens += count(call["name"])
        sent_ids = [call["id"] for call in message.tool_calls if call["id"]]
    text = only_text_of(message)
    if text is not None:
        return tokens + count(text)
    for part in parts_of(message):
        tokens += _part_tokens(part, sent_ids, count, rates)
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


def _sound_tokens(part: Part, count: Count) -> int:
    """Returns the tokens of a spoken answer without a transcript, which is sent by its id."""
    audio = dict(part.block) if isinstance(part.block, dict) else {}
    audio.pop("type", None)
    if "id" in audio:
        audio = {"id": audio["id"]}
    return count(str(without_media_inside(audio)))


def _part_tokens(part: Part, sent_ids: list[object], count: Count, rates: MediaRates) -> int:
    """Returns the tokens of one part; a call that is sent as a call costs nothing here."""
    if part.plain_text is not None:
        return count(part.plain_text)
    if part.key and part.is_media:
        return _sound_tokens(part, count)
    if part.medium is not None:
        return medium_tokens(part.medium, count, rates)
    if part.is_function_call and part.call_id in sent_ids:
        return 0
    return _block_tokens(part, count, rates)


def _block_tokens(part: Part, count: Count, rates: MediaRates) -> int:
    """Returns the tokens of a block that is neither a text, nor a medium, nor a call."""
    if part.kind is Kind.COMPACTION:
        return _compaction_tokens(part, count)
    block = without_mark(part.block)
    whole = compact_json(block)
    readable = compact_json(without_media_inside(block))
    tokens = count(readable)
    media = media_inside(block)
    if media:
        return tokens + sum(medium_tokens(medium, count, rates) for medium in media)
    left_out_bytes = (len(whole) - len(readable)) * 3 // 4
    return tokens + ceil(left_out_bytes / rates.file_bytes_per_token)


def _compaction_tokens(part: Part, count: Count) -> int:
    """Returns the tokens of a provider's compaction, estimated where only its provider reads it."""
    words_tokens = sum(map(count, part.words))
    return words_tokens + part.payload_characters // CHARACTERS_OF_COMPACTION_PER_TOKEN
