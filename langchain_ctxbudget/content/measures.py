"""How large media are: pixels of images, pages of PDFs, seconds of sound, read from their bytes.

Only headers are read, by functions of a few lines each: of PNG, JPEG, GIF and WebP images, and of
WAV recordings. The pages of a PDF are counted by `pypdf` where it is installed. Bytes that are not
what they look like have no size; nothing here ever raises.
"""

import binascii
import re
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from typing import NamedTuple

from cachetools import LRUCache

from langchain_ctxbudget.content.media import Medium
from langchain_ctxbudget.worker import new_mutex


class Size(NamedTuple):
    """Width and height of an image, in pixels."""

    width: int
    height: int


class Measures(NamedTuple):
    """What the bytes of a medium tell of it; None where they do not, or are somewhere else."""

    size: Size | None = None
    """Of an image."""
    pages: int | None = None
    """Of a PDF."""
    seconds: float | None = None
    """Of a recording."""


_NOTHING = Measures()
_CHARACTERS_OF_FORMAT = 64
"""How much base64 is decoded to see which format an image has."""
_FIRST_CHARACTERS = 65_536
"""How much base64 is decoded first: most headers are much shorter."""
_MOST_CHARACTERS = 4_000_000
"""How much is decoded if the header ends later: a JPEG has its size behind its thumbnail."""
_PNG_HEADER = 24
_GIF_HEADER = 10
_WEBP_HEADER = 30
"""Bytes up to the end of the size, as each form of images has it."""
_MARK = 0xFF
"""The byte with which every marker of a JPEG begins."""
_PDF_PAGE = re.compile(rb"/Type\s*/Page\b")
PDF_TYPE = "application/pdf"
"""The MIME type of a PDF."""
_PDF = b"%PDF"
_PDF_IN_BASE64 = "JVBERi"
_known: LRUCache[tuple[int, int], Measures] = LRUCache(1_024)
"""Measures of the media that were asked for last; a turn is counted again at each of its rounds."""
_mutex = new_mutex()


def measures_of(medium: Medium) -> Measures:
    """Returns what the bytes of a medium tell of its size."""
    if not medium.payload:
        return _NOTHING
    # The key is a hash, so that no payload is kept alive.
    key = (hash(medium.payload), len(medium.payload))
    with _mutex:
        measures = _known.get(key)
    if measures is None:
        measures = _measured(medium)
        with _mutex:
            _known[key] = measures
    return measures


def is_pdf(medium: Medium) -> bool:
    """Tells if a file is a PDF, by its type, its name or its first bytes."""
    if medium.mime_type == PDF_TYPE or medium.name.lower().endswith(".pdf"):
        return True
    if isinstance(medium.payload, bytes):
        return medium.payload.startswith(_PDF)
    return medium.payload.startswith(_PDF_IN_BASE64)


def decoded(payload: str | bytes) -> bytes:
    """Returns the bytes of base64; none where it cannot be read."""
    if isinstance(payload, bytes):
        return payload
    characters = "".join(payload.split())
    whole = len(characters) // 4 * 4
    with suppress(ValueError):
        return binascii.a2b_base64(characters[:whole])
    return b""


def _measured(medium: Medium) -> Measures:
    if medium.kind == "image":
        return Measures(size=_size_in(medium.payload))
    if medium.kind == "audio":
        return Measures(seconds=_wav_seconds(decoded(medium.payload)))
    if medium.kind == "file" and is_pdf(medium):
        return Measures(pages=_pdf_pages(decoded(medium.payload)))
    return _NOTHING


# Images


class _ImageFormat(NamedTuple):
    """A format of images."""

    mime_type: str
    beginning: re.Pattern[bytes]
    """How its bytes begin."""
    size_in: Callable[[bytes], Size | None]
    """Reads the size of an image from its bytes."""


def image_type_of(medium: Medium) -> str:
    """Returns the MIME type of an image by its first bytes; empty where they do not tell."""
    if medium.kind != "image" or not medium.payload:
        return ""
    image_format = _format_of(decoded(medium.payload[:_CHARACTERS_OF_FORMAT]))
    return "" if image_format is None else image_format.mime_type


def _size_in(payload: str | bytes) -> Size | None:
    """Returns the size of an image by its first bytes, or by more of them where it stands later."""
    for most in (_FIRST_CHARACTERS, _MOST_CHARACTERS):
        size = image_size(decoded(payload[:most]))
        if size is not None or len(payload) <= most:
            return size
    return None


def image_size(data: bytes) -> Size | None:
    """Reads the size of a PNG, JPEG, GIF or WebP image from its header; None where it cannot be."""
    image_format = _format_of(data)
    size = None if image_format is None else image_format.size_in(data)
    return size if size is not None and min(size) > 0 else None


def _format_of(data: bytes) -> _ImageFormat | None:
    """Returns the format of an image by how its bytes begin; None for any other bytes."""
    for image_format in _IMAGE_FORMATS:
        if image_format.beginning.match(data):
            return image_format
    return None


def _png_size(data: bytes) -> Size | None:
    if len(data) < _PNG_HEADER or data[12:16] != b"IHDR":
        return None
    return Size(int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big"))


def _gif_size(data: bytes) -> Size | None:
    if len(data) < _GIF_HEADER:
        return None
    return Size(int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little"))


def _webp_size(data: bytes) -> Size | None:
    """Returns the size of a WebP image in one of its three forms."""
    if len(data) < _WEBP_HEADER:
        return None
    match data[12:16]:
        case b"VP8 ":
            if data[23:26] != b"\x9d\x01\x2a":
                return None
            width = int.from_bytes(data[26:28], "little") & 0x3FFF
            return Size(width, int.from_bytes(data[28:30], "little") & 0x3FFF)
        case b"VP8L":
            bits = int.from_bytes(data[21:25], "little")
            return Size((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
        case b"VP8X":
            width = int.from_bytes(data[24:27], "little") + 1
            return Size(width, int.from_bytes(data[27:30], "little") + 1)
        case _:
            return None


_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers of a JPEG behind which its size stands."""
_WITHOUT_LENGTH = frozenset({0x01, *range(0xD0, 0xD9)})


def _jpeg_size(data: bytes) -> Size | None:
    """Returns the size of a JPEG: it stands in the segment of its frame, behind others."""
    at = 2
    while at + 9 <= len(data) and data[at] == _MARK:
        marker = data[at + 1]
        if marker in _FRAMES:
            height = int.from_bytes(data[at + 5 : at + 7], "big")
            return Size(int.from_bytes(data[at + 7 : at + 9], "big"), height)
        if marker == _MARK:  # a byte that only fills
            at += 1
        elif marker in _WITHOUT_LENGTH:
            at += 2
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None


_IMAGE_FORMATS = (
    _ImageFormat("image/png", re.compile(rb"\x89PNG\r\n\x1a\n"), _png_size),
    _ImageFormat("image/jpeg", re.compile(rb"\xff\xd8\xff"), _jpeg_size),
    _ImageFormat("image/gif", re.compile(rb"GIF8"), _gif_size),
    _ImageFormat("image/webp", re.compile(rb"RIFF.{4}WEBP", re.DOTALL), _webp_size),
)


# PDFs and recordings


def _pdf_pages(data: bytes) -> int | None:
    """Returns the pages of a PDF; without `pypdf` those that are not compressed."""
    with suppress(Exception):  # it is not installed, or the file is broken
        from pypdf import PdfReader  # noqa: PLC0415 - not every installation has it

        return len(PdfReader(BytesIO(data), strict=True).pages) or None
    return len(_PDF_PAGE.findall(data)) or None


def _wav_seconds(data: bytes) -> float | None:
    """Returns how long a WAV recording is; None for any other sound."""
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        return None
    bytes_per_second = 0
    at = 12
    while at + 8 <= len(data):
        length = int.from_bytes(data[at + 4 : at + 8], "little")
        if data[at : at + 4] == b"fmt ":
            bytes_per_second = int.from_bytes(data[at + 16 : at + 20], "little")
        if data[at : at + 4] == b"data":
            # A recording that was streamed does not know its length.
            sound_bytes = min(length, len(data) - at - 8)
            return sound_bytes / bytes_per_second if bytes_per_second else None
        at += 8 + length + length % 2
    return None
