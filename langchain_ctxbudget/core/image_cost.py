"""What an image costs: its size, read from the header of its data, and the tiles of that size.

The rule is the one of OpenAI's vision guide as `ChatOpenAI` applies it. Neither the image nor the whole of its
base64 text is decoded: a header says how large an image is, and base64 can be entered at any group of 4 characters.
"""

from __future__ import annotations

import binascii
import struct
from math import ceil
from typing import NamedTuple

LOW_DETAIL_TOKENS = 85
TILE_TOKENS = 170
MOST_TILES = 8
"""After resizing no image is larger than 2,048 x 768."""


class ImageRate(NamedTuple):
    """What a model charges for an image, in tokens (OpenAI's vision guide, "Calculating costs")."""

    base_tokens: int = LOW_DETAIL_TOKENS
    tile_tokens: int = TILE_TOKENS
    patch_tokens: float = 0.0
    """Of each of at most 1,536 patches of 32 x 32 pixels; such a model never costs less than by the tiles, which is
    how `ChatOpenAI` counts it."""


_RATES = (
    ("gpt-4o-mini", ImageRate(base_tokens=2_833, tile_tokens=5_667)),
    ("gpt-4.1-mini", ImageRate(patch_tokens=1.62)),
    ("gpt-4.1-nano", ImageRate(patch_tokens=2.46)),
    ("gpt-5-mini", ImageRate(patch_tokens=1.62)),
    ("gpt-5-nano", ImageRate(patch_tokens=2.46)),
    ("o4-mini", ImageRate(patch_tokens=1.72)),
)
"""By the beginning of the model's name. All others cost as gpt-4o does, or less."""
_PATCH, _MOST_PATCHES = 32, 1_536


_TILED = ImageRate()


def image_rate(model: str) -> ImageRate:
    """What a model of that name charges for images."""
    return next((rate for start, rate in _RATES if model.lower().startswith(start)), _TILED)


_TILE = 512
_LONG_SIDE = 2048
_SHORT_SIDE = 768
_JPEG_SEGMENTS = 1_000
# Start-of-frame markers: C0 to CF without the tables C4 (Huffman), C8 (reserved) and CC (arithmetic coding).
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_SCAN = 0xDA
_BMP_CORE_HEADER = 12


def image_tokens(image: str | None, *, low_detail: bool = False, rate: ImageRate = _TILED) -> int:
    """Tokens of an image.

    Args:
        image: its data URL, or its bytes in base64; a link or None where there is no more. Where the size cannot be
            read (a link, a file id, an unknown format), it is the dearest that the rule can give.
        low_detail: whether the request asks for `detail="low"`.
        rate: what the model charges.
    """
    if low_detail and not rate.patch_tokens:
        return rate.base_tokens
    size = image_size(image) if image else None
    tiles = MOST_TILES if size is None else image_tiles(*size)
    patches = _MOST_PATCHES if size is None else _patches(*size)
    return max(rate.base_tokens + rate.tile_tokens * tiles, ceil(patches * rate.patch_tokens))


def image_tiles(width: int, height: int) -> int:
    """Tiles of 512 x 512 pixels that an image of this size in pixels has after the provider's resizing."""
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
    """Patches of 32 x 32 pixels; a larger image is shrunk to the most that there may be."""
    return min(_MOST_PATCHES, ceil(width / _PATCH) * ceil(height / _PATCH))


def image_size(image: str) -> tuple[int, int] | None:
    """Width and height in pixels from the header of a PNG, GIF, JPEG, WebP or BMP; None where it says nothing.

    Args:
        image: a data URL, or the bytes in base64.
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
    """The size in the first frame header; segments before it (EXIF, colour profiles) are stepped over."""
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
    """Some bytes of a base64 text: 4 characters hold 3 bytes."""
    raw = binascii.a2b_base64(payload[offset // 3 * 4 : -(-(offset + size) // 3) * 4])
    return raw[offset % 3 : offset % 3 + size]
