"""The cost of images, files, sounds and videos.

As in `ChatOpenAI`, Pillow reads the size of an image; without Pillow, and where the size cannot be
read, an image counts as the most expensive one. The bytes of files, sounds and videos are
estimated, never counted as text.
"""

import binascii
import re
from io import BytesIO
from math import ceil

from cachetools import LRUCache

from langchain_ctxbudget.content import Medium
from langchain_ctxbudget.messages import Count
from langchain_ctxbudget.providers import COMMON, FileRates, ImageRate
from langchain_ctxbudget.worker import new_mutex

_TILE = 512
"""Pixels of the side of a tile."""
_LONG_SIDE = 2048
_SHORT_SIDE = 768
"""After the provider's resizing no image is larger than 2,048 x 768 pixels."""
_MOST_TILES = 8
"""The tiles of the largest image."""
_PATCH = 32
"""Pixels of the side of a patch."""
_MOST_PATCHES = 1_536
_SEARCHED_CHARACTERS = (65_536, 4_000_000)
"""How much base64 is decoded to find the size of an image, and how much if it is not there: a JPEG
has it behind its thumbnail."""
_PDF_PAGE = re.compile(rb"/Type\s*/Page\b")
_PDF = "JVBERi"
"""The base64 of `%PDF`, with which every PDF begins."""
_known_pages: LRUCache[tuple[int, int], int] = LRUCache(1_024)
"""Pages of the PDFs that were counted last; a turn is counted again at each of its rounds."""
_mutex = new_mutex()


def image_tokens(
    image: str, *, low_detail: bool = False, rate: ImageRate = COMMON.framing.image
) -> int:
    """Returns the tokens of an image; the most that the rule can give where its size is not known.

    Args:
        image: base64 or a data URL; empty where it is somewhere else.
        low_detail: True for an image that is sent with `"detail": "low"`.
        rate: of the model.
    """
    if low_detail and not rate.patch_tokens:
        return rate.base_tokens
    tiles = _MOST_TILES
    patches = _MOST_PATCHES
    size = image_size(image) if image else None
    if size is not None:
        width, height = size
        tiles = _tiles(width, height)
        patches = min(_MOST_PATCHES, ceil(width / _PATCH) * ceil(height / _PATCH))
    by_tiles = rate.base_tokens + rate.tile_tokens * tiles
    return max(by_tiles, ceil(patches * rate.patch_tokens))


def _tiles(width: int, height: int) -> int:
    """Returns the tiles of 512 x 512 pixels that an image has after the provider's resizing."""
    short, long = sorted((width, height))
    if long > _LONG_SIDE:
        short = short * _LONG_SIDE // long
        long = _LONG_SIDE
    if short > _SHORT_SIDE:
        long = long * _SHORT_SIDE // short
        short = _SHORT_SIDE
    return ceil(max(1, short) / _TILE) * ceil(max(1, long) / _TILE)


def image_size(image: str) -> tuple[int, int] | None:
    """Reads width and height in pixels from the header of an image.

    Returns None where the header cannot be read, or Pillow is not installed.
    """
    payload = image
    if image.startswith("data:"):
        payload = image.partition(",")[2]
    for characters in _SEARCHED_CHARACTERS:
        try:
            from PIL import Image  # noqa: PLC0415 - not every installation has it

            return Image.open(BytesIO(_decoded(payload[:characters]))).size
        except Exception:  # noqa: BLE001 - whatever a header, or the library that reads it, raises
            if len(payload) <= characters:
                break
    return None


def file_tokens(medium: Medium, count: Count, rates: FileRates) -> int:
    """Estimates the tokens of a file, a sound or a video by its bytes; a text costs its text."""
    if medium.kind in ("audio", "video"):
        return ceil(medium.size_bytes / rates.recording_bytes_per_token)
    if medium.mime_type.startswith("text/"):
        return count(_decoded(medium.payload).decode("utf-8", "replace"))
    if medium.mime_type == "application/pdf" or medium.payload.startswith(_PDF):
        return _pages(medium.payload, rates) * rates.page_tokens
    return ceil(medium.size_bytes / rates.file_bytes_per_token)


def _pages(payload: str, rates: FileRates) -> int:
    """Returns about how many pages a PDF has; at least one."""
    # The key is a hash, so that no file is kept alive.
    key = (hash(payload), len(payload))
    with _mutex:
        pages = _known_pages.get(key)
    if pages is None:
        data = _decoded(payload)
        pages = len(_PDF_PAGE.findall(data)) or ceil(len(data) / rates.page_bytes) or 1
        with _mutex:
            _known_pages[key] = pages
    return pages


def _decoded(payload: str) -> bytes:
    """Returns the bytes of base64; none where it cannot be read."""
    characters = "".join(payload.split())
    whole = len(characters) // 4 * 4
    try:
        return binascii.a2b_base64(characters[:whole])
    except ValueError:
        return b""
