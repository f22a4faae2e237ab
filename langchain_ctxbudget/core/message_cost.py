"""What a message costs as it is sent to a model, framing included.

For text, names, roles, tool calls, tool results and images this is, to the token, what
`ChatOpenAI.get_num_tokens_from_messages` answers. Where that function says nothing, or raises, this one has a rule:

| content | `ChatOpenAI` | here |
|---|---|---|
| image whose size cannot be read (link, file id, other format) | fetched, 0 or an error | the dearest (gpt-4o: 1,445) |
| file, audio, video | 0 or an error | compact JSON, long base64 at 0.75 tokens per character |
| thinking, reasoning | 0 or an error | compact JSON, as other providers are sent it |
| a call in the content that is also in `tool_calls` | 0 or an error | 0: it is sent once |
| a call in the content alone | 0 or an error | compact JSON |
| any other block | an error | compact JSON |
| text that looks like a special token | an error | as text |
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from langchain_ctxbudget.core.image_cost import ImageRate, image_tokens
from langchain_ctxbudget.core.schema_cost import FUNCTION_TOKENS, Count, json_tokens

REPLY_TOKENS = 3
"""Every reply is primed with the assistant's role."""
TOOL_CALL_ID_TOKENS = 3

_CALL_BLOCKS = frozenset({"tool_use", "tool_call", "tool_call_chunk", "invalid_tool_call", "function_call"})
_IMAGE_BLOCKS = frozenset({"image_url", "input_image", "image"})


class Framing(NamedTuple):
    """Tokens that a model adds around what is said."""

    message_tokens: int = 3
    name_tokens: int = 1
    function_tokens: int = FUNCTION_TOKENS
    image: ImageRate = ImageRate()


def message_tokens(message: BaseMessage, count: Count, framing: Framing) -> int:
    """Tokens of one message.

    Args:
        message: any LangChain message.
        count: how texts are counted.
        framing: what the model adds.
    """
    tokens = framing.message_tokens + count(_role(message))
    if isinstance(message, ToolMessage):  # its name is not sent
        tokens += TOOL_CALL_ID_TOKENS
    elif name := message.name or message.additional_kwargs.get("name"):
        tokens += count(str(name)) + framing.name_tokens
    calls: list[Any] = []
    if isinstance(message, AIMessage):
        calls = _calls(message)
        tokens += sum(_call_tokens(call, count) for call in calls) + _extra_tokens(message, count)
    if isinstance(message.content, str):
        return tokens + count(message.content)
    sent_ids = [call["id"] for call in calls if isinstance(call, Mapping) and call.get("id")]
    return tokens + sum(_block_tokens(block, sent_ids, count, framing.image) for block in message.content)


def _role(message: BaseMessage) -> str:
    match message:
        case ChatMessage():
            return message.role
        case HumanMessage():
            return "user"
        case AIMessage():
            return "assistant"
        case SystemMessage():
            return str(message.additional_kwargs.get("__openai_role__", "system"))
        case FunctionMessage():
            return "function"
        case _:
            return message.type


def _calls(message: AIMessage) -> list[Any]:
    """The calls as they are sent: the message's own, else those in the form of the provider."""
    if message.tool_calls or message.invalid_tool_calls:
        return [
            *(
                _function(call["id"], call["name"], json.dumps(call["args"], ensure_ascii=False, default=str))
                for call in message.tool_calls
            ),
            *(_function(call["id"], call["name"], call["args"]) for call in message.invalid_tool_calls),
        ]
    raw = message.additional_kwargs.get("tool_calls")
    return raw if isinstance(raw, list) else []


def _function(call_id: str | None, name: str | None, arguments: str | None) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _call_tokens(call: Any, count: Count) -> int:  # noqa: ANN401 - `additional_kwargs` holds anything
    function = call.get("function") if isinstance(call, Mapping) else None
    if isinstance(function, Mapping) and call.get("type") == "function":
        return count(str(function.get("arguments") or "")) + count(str(function.get("name") or ""))
    return json_tokens(call, count)


def _extra_tokens(message: AIMessage, count: Count) -> int:
    """A call in the old form, and the reference to an answer that was spoken."""
    tokens = 0
    extra = message.additional_kwargs
    has_calls = message.tool_calls or message.invalid_tool_calls or "tool_calls" in extra
    if "function_call" in extra and not has_calls and extra["function_call"]:
        tokens += count(str(extra["function_call"]))
    if audio := extra.get("audio"):
        has_id = isinstance(audio, Mapping) and "id" in audio
        tokens += count(str({"id": audio["id"]})) if has_id else json_tokens(audio, count)
    return tokens


def _block_tokens(block: str | Mapping[str, Any], sent_ids: list[Any], count: Count, rate: ImageRate) -> int:
    if isinstance(block, str):
        return count(block)
    kind = str(block.get("type"))
    if kind == "text" and "text" in block:
        return count(str(block["text"]))
    if kind in _IMAGE_BLOCKS:
        return _image_tokens(block, rate)
    if kind in _CALL_BLOCKS and (block.get("id") in sent_ids or block.get("call_id") in sent_ids):
        return 0
    return json_tokens(block, count)


def _image_tokens(block: Mapping[str, Any], rate: ImageRate) -> int:
    """An image in any of the forms in which providers and LangChain write it."""
    inner = block.get("image_url") or block.get("source")
    place = inner if isinstance(inner, Mapping) else block
    image = place.get("url") or place.get("data") or place.get("base64")
    if isinstance(inner, str):
        image = inner
    low_detail = block["type"] != "image" and place.get("detail") == "low"
    return image_tokens(image if isinstance(image, str) else None, low_detail=low_detail, rate=rate)
