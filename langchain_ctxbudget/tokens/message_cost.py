"""The cost of messages and images as they are sent to a model, framing included.

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

import binascii
import json
import struct
from collections.abc import Mapping
from math import ceil
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

from langchain_ctxbudget.tokens.schema_cost import FUNCTION_TOKENS, Count, json_tokens

REPLY_TOKENS = 3
"""Every reply is primed with the assistant's role."""
TOOL_CALL_ID_TOKENS = 3

_CALL_BLOCKS = frozenset({"tool_use", "tool_call", "tool_call_chunk", "invalid_tool_call", "function_call"})
_IMAGE_BLOCKS = frozenset({"image_url", "input_image", "image"})
_TILE, _LONG_SIDE, _SHORT_SIDE = 512, 2048, 768
_PATCH, _MOST_PATCHES = 32, 1_536
_JPEG_SEGMENTS = 1_000
# Start-of-frame markers: C0 to CF without the tables C4 (Huffman), C8 (reserved) and CC (arithmetic coding).
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_SCAN = 0xDA
_BMP_CORE_HEADER = 12
LOW_DETAIL_TOKENS = 85
TILE_TOKENS = 170
MOST_TILES = 8
"""After resizing no image is larger than 2,048 x 768."""


class ImageRate(NamedTuple):
    """The price of an image for a model, in tokens (OpenAI's vision guide, "Calculating costs")."""

    base_tokens: int = LOW_DETAIL_TOKENS
    tile_tokens: int = TILE_TOKENS
    patch_tokens: float = 0.0
    """For each of at most 1,536 patches of 32 x 32 pixels; never less than by the tiles, as `ChatOpenAI` counts."""


_RATES = (
    ("gpt-4o-mini", ImageRate(base_tokens=2_833, tile_tokens=5_667)),
    ("gpt-4.1-mini", ImageRate(patch_tokens=1.62)),
    ("gpt-4.1-nano", ImageRate(patch_tokens=2.46)),
    ("gpt-5-mini", ImageRate(patch_tokens=1.62)),
    ("gpt-5-nano", ImageRate(patch_tokens=2.46)),
    ("o4-mini", ImageRate(patch_tokens=1.72)),
)
"""The rate for each beginning of a model's name. All others cost as gpt-4o does, or less."""


class Framing(NamedTuple):
    """Tokens that a model adds around what is said."""

    message_tokens: int = 3
    name_tokens: int = 1
    function_tokens: int = FUNCTION_TOKENS
    image: ImageRate = ImageRate()


def message_tokens(message: BaseMessage, count: Count, framing: Framing) -> int:
    """Returns the tokens of one message."""
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
    """Returns the calls as they are sent: the message's own, else those in the form of the provider."""
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
    """Returns the tokens of a call in the old form, and of the reference to an answer that was spoken."""
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
    """Reads an image in any of the forms in which providers and LangChain write it."""
    inner = block.get("image_url") or block.get("source")
    place = inner if isinstance(inner, Mapping) else block
    image = place.get("url") or place.get("data") or place.get("base64")
    if isinstance(inner, str):
        image = inner
    low_detail = block["type"] != "image" and place.get("detail") == "low"
    return image_tokens(image if isinstance(image, str) else None, low_detail=low_detail, rate=rate)


# Images


def image_rate(model: str) -> ImageRate:
    """Returns the price of images for a model of that name."""
    return next((rate for start, rate in _RATES if model.lower().startswith(start)), ImageRate())


def image_tokens(image: str | None, *, low_detail: bool = False, rate: ImageRate = ImageRate()) -> int:  # noqa: B008
    """Returns the tokens of an image; the dearest that the rule can give where its size cannot be read.

    Args:
        image: its data URL, or its bytes in base64; a link or None where there is no more.
        low_detail: True where the request asks for `detail="low"`.
        rate: the model's.
    """
    if low_detail and not rate.patch_tokens:
        return rate.base_tokens
    size = image_size(image) if image else None
    tiles = MOST_TILES if size is None else image_tiles(*size)
    patches = _MOST_PATCHES if size is None else _patches(*size)
    return max(rate.base_tokens + rate.tile_tokens * tiles, ceil(patches * rate.patch_tokens))


def image_tiles(width: int, height: int) -> int:
    """Returns the tiles of 512 x 512 pixels that an image of this size has after the provider's resizing."""
    if max(width, height) > _LONG_SIDE:
        if width > height:
            width, height = _LONG_SIDE, height * _LONG_SIDE // width
        else:
            width, height = width * _LONG_SIDE // height, _LONG_SIDE
    if min(width, height) > _SHORT_SIDE:
        if width > height:
            width, height = width * _SHORT_SIDE // height, _SHORT_SIDE
        else:
            width, height = _SHORT_SIDE, height * _SHORT_SIDE // width
    return ceil(max(1, height) / _TILE) * ceil(max(1, width) / _TILE)


def _patches(width: int, height: int) -> int:
    """Returns patches of 32 x 32 pixels; a larger image is shrunk to the most that there may be."""
    return min(_MOST_PATCHES, ceil(width / _PATCH) * ceil(height / _PATCH))


def image_size(image: str) -> tuple[int, int] | None:
    """Reads width and height in pixels from the header of a PNG, GIF, JPEG, WebP or BMP; None where it says nothing.

    Neither the image nor the whole of its base64 is decoded: base64 can be entered at any group of 4 characters.
    """
    payload = image.partition(",")[2] if image.startswith("data:") else image
    if any(space in payload for space in "\r\n\t "):
        payload = "".join(payload.split())
    try:
        size = _size(payload)
    except (struct.error, ValueError, IndexError):  # binascii.Error is a ValueError
        return None
    return size if size and min(size) > 0 else None


def _size(payload: str) -> tuple[int, int] | None:
    head = _peek(payload, 0, 32)
    if head.startswith(b"\x89PNG\r\n\x1a\n") and head[12:16] == b"IHDR":
        return _pair(">II", head, 16)
    if head.startswith((b"GIF87a", b"GIF89a")):
        return _pair("<HH", head, 6)
    if head.startswith(b"\xff\xd8"):
        return _jpeg_size(payload)
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return _webp_size(head)
    return _bmp_size(head) if head.startswith(b"BM") else None


def _jpeg_size(payload: str) -> tuple[int, int] | None:
    """Reads the size in the first frame header; segments before it (EXIF, colour profiles) are stepped over."""
    offset = 2
    for _ in range(_JPEG_SEGMENTS):
        segment = _peek(payload, offset, 9)
        if segment[:1] != b"\xff":
            return None
        marker, length = struct.unpack_from(">BH", segment, 1)
        if marker in _JPEG_FRAMES:
            height, width = _pair(">HH", segment, 5)
            return width, height
        if marker == _JPEG_SCAN:
            return None
        offset += 1 if marker == 0xFF else 2 + length  # noqa: PLR2004 - a fill byte
    return None


def _webp_size(head: bytes) -> tuple[int, int] | None:
    if head[12:16] == b"VP8 ":
        width, height = _pair("<HH", head, 26)
        return width & 0x3FFF, height & 0x3FFF  # the upper two bits are a scale
    if head[12:16] == b"VP8L":
        bits = int.from_bytes(head[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if head[12:16] == b"VP8X":
        return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
    return None


def _bmp_size(head: bytes) -> tuple[int, int]:
    if head[14] == _BMP_CORE_HEADER:
        return _pair("<HH", head, 18)
    width, height = _pair("<ii", head, 18)
    return width, abs(height)  # a negative height means rows from the top


def _pair(layout: str, data: bytes, offset: int) -> tuple[int, int]:
    first, second = struct.unpack_from(layout, data, offset)
    return first, second


def _peek(payload: str, offset: int, size: int) -> bytes:
    """Returns some bytes of a base64 text: 4 characters hold 3 bytes."""
    raw = binascii.a2b_base64(payload[offset // 3 * 4 : -(-(offset + size) // 3) * 4])
    return raw[offset % 3 : offset % 3 + size]
