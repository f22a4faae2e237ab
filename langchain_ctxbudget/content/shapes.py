"""The shapes in which LangChain and the providers write media, and media written in another one."""

import mimetypes
import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from langchain_ctxbudget.content.blocks import Block
from langchain_ctxbudget.content.measures import PDF_TYPE, decoded, image_type_of, is_pdf
from langchain_ctxbudget.content.media import Medium


class Shape(Enum):
    """A shape in which a block has a medium, named after whoever has made it."""

    STANDARD = "LangChain's own: `base64`, `url` or `file_id`"
    EARLIER = "LangChain's own before version 1, with `source_type`"
    CHAT = "of OpenAI's Chat Completions: `image_url`, `input_audio`, `file`"
    RESPONSES = "of OpenAI's Responses: `input_image`, `input_file`"
    SOURCE = "Anthropic's: a `source`"
    MEDIA = "Google's: `media`"
    CONVERSE = "Bedrock's: an object under the name of its type"
    DOCUMENT = "Mistral's: `document_url`"
    OTHER = "any other, or one of these without what it must have"


class Carrier(Enum):
    """What a block has of a medium."""

    BYTES = "its bytes"
    ADDRESS = "where it can be fetched"
    FILE_ID = "the id under which a provider keeps it"


_KEPT = ("cache_control",)
"""Keys of a block that say something to a provider beside the medium, in every shape."""
_KEPT_IN_STANDARD = (*_KEPT, "media_resolution", "media_processing")
"""Those in LangChain's own shape."""
_TEXT_TYPES = re.compile(r"|text/.+|application/(.+\+)?(json|xml|yaml|x-yaml|javascript|sql|toml)")
"""MIME types of texts; of a file that tells none, its bytes tell."""
_NOT_PLAIN = ("\n", "\r", " ", "-", "_")
"""What base64 in lines has, and that for addresses."""
_PLAIN = str.maketrans("-_", "+/")
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_LOOK = 100
"""So many characters at either end of a payload are looked at, which may have millions."""


def carrier_of(medium: Medium) -> Carrier | None:
    """Returns what a block has of a medium: the bytes if it has them; None if it has nothing."""
    if medium.payload:
        return Carrier.BYTES
    if medium.address:
        return Carrier.ADDRESS
    return Carrier.FILE_ID if medium.file_id else None


def shape_of(block: Block) -> Shape:
    """Returns the shape in which a block has a medium."""
    if isinstance(block, str):
        return Shape.OTHER
    for shape, has_shape in _SHAPES.items():
        if has_shape(block):
            return shape
    return Shape.OTHER


def _is_earlier(block: Mapping[str, Any]) -> bool:
    match block:
        case {"source_type": "base64", "data": str(), "mime_type": str()}:
            return True
        case {"source_type": "url", "url": str(address)}:
            return not _is_data(address)
        case {"source_type": "id", "id": str()}:
            return True
        case _:
            return False


def _is_standard(block: Mapping[str, Any]) -> bool:
    match block:
        case {"source_type": _}:
            return False
        case {"type": "image" | "audio" | "video" | "file", "base64": data}:
            return isinstance(data, str) and "mime_type" in block
        case {"type": "image" | "audio" | "video" | "file", "url": str(address)}:
            return not _is_data(address)
        case {"type": "image" | "audio" | "video" | "file", "file_id": str()}:
            return True
        case _:
            return False


def _is_data(address: str) -> bool:
    """Tells if an address is the bytes themselves."""
    return address.startswith("data:")


def _is_of_chat(block: Mapping[str, Any]) -> bool:
    match block:
        case {"type": "image_url", "image_url": {"url": str()}}:
            return True
        case {"type": "input_audio", "input_audio": {"data": str(), "format": str()}}:
            return True
        case {"type": "file", "file": {"file_data": str(data), "filename": str()}}:
            return _is_data(data)
        case {"type": "file", "file": {"file_id": str()}}:
            return True
        case {"type": "video_url", "video_url": {"url": str()}}:
            return True
        case _:
            return False


def _is_of_responses(block: Mapping[str, Any]) -> bool:
    match block:
        case {"type": "input_image", "image_url": str()}:
            return True
        case {"type": "input_file", "file_data": str(data), "filename": str()}:
            return _is_data(data)
        case {"type": "input_image" | "input_file", "file_id": str()}:
            return True
        case {"type": "input_file", "file_url": str()}:
            return True
        case _:
            return False


def _has_source(block: Mapping[str, Any]) -> bool:
    match block:
        case {
            "type": "image" | "document" | "video",
            "source": {"type": "base64" | "url" | "file"},
        }:
            return True
        case _:
            return False


def _is_media(block: Mapping[str, Any]) -> bool:
    match block:
        case {"type": "media", "data": str() | bytes(), "mime_type": str()}:
            return True
        case {"type": "media", "file_uri": str()}:
            return "data" not in block
        case _:
            return False


def _is_of_converse(block: Mapping[str, Any]) -> bool:
    return isinstance(block.get(str(block.get("type"))), Mapping) and block["type"] in (
        "image",
        "document",
        "video",
    )


def _is_document(block: Mapping[str, Any]) -> bool:
    match block:
        case {"type": "document_url", "document_url": str()}:
            return True
        case _:
            return False


_SHAPES: Mapping[Shape, Callable[[Mapping[str, Any]], bool]] = {
    Shape.EARLIER: _is_earlier,
    Shape.STANDARD: _is_standard,
    Shape.CHAT: _is_of_chat,
    Shape.RESPONSES: _is_of_responses,
    Shape.SOURCE: _has_source,
    Shape.MEDIA: _is_media,
    Shape.CONVERSE: _is_of_converse,
    Shape.DOCUMENT: _is_document,
}
"""What tells a shape."""


# What a medium is


def with_told_type(medium: Medium, block: Block) -> Medium:
    """Returns a medium with the MIME type that a block of OpenAI's tells as a format."""
    match block:
        case {"type": "input_audio", "input_audio": {"format": str(sound_format)}}:
            return medium._replace(mime_type=f"audio/{sound_format}")
        case _:
            return medium


def with_true_type(medium: Medium) -> Medium:
    """Returns a medium as its bytes are: with the type that they tell, in plain base64."""
    medium = _in_plain_base64(medium)
    mime_type = image_type_of(medium) or medium.mime_type
    if not mime_type and is_pdf(medium):
        mime_type = PDF_TYPE
    if not mime_type and medium.name:
        mime_type = mimetypes.guess_type(medium.name)[0] or ""
    return medium if mime_type == medium.mime_type else medium._replace(mime_type=mime_type)


def _in_plain_base64(medium: Medium) -> Medium:
    """Returns a medium whose base64 every provider reads: in one line, with `+` and `/`, padded."""
    payload = medium.payload
    if isinstance(payload, bytes):
        return medium
    if any(character in payload for character in _NOT_PLAIN):
        payload = "".join(payload.split()).translate(_PLAIN)
    payload += "=" * (-len(payload) % 4)
    return medium if payload == medium.payload else medium._replace(payload=payload)


def is_base64(medium: Medium) -> bool:
    """Tells if the bytes of a medium are there as such, or as what begins and ends like base64."""
    payload = medium.payload
    if isinstance(payload, bytes):
        return True
    return all(map(_BASE64.fullmatch, (payload[:_LOOK], payload[-_LOOK:])))


def text_in(medium: Medium) -> str | None:
    """Returns the text of a file whose bytes are a text; None for any other."""
    if not _TEXT_TYPES.fullmatch(medium.mime_type):
        return None
    try:
        text = decoded(medium.payload).decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


# Written in a shape


def written(medium: Medium, shape: Shape, block: Block = "") -> dict[str, Any]:
    """Returns a block with a medium in a shape.

    Args:
        medium: The medium; a block in this shape can hold what the block had of it.
        shape: One of the shapes that are written: not `EARLIER`, `CONVERSE` or `OTHER`.
        block: The block that it stood in; what else that says of it to a provider is kept.
    """
    new_block = _WRITERS[shape](medium)
    if isinstance(block, str):
        return new_block
    kept = _KEPT_IN_STANDARD if shape is Shape.STANDARD else _KEPT
    return {**new_block, **{key: block[key] for key in kept if key in block}}


def _standard(medium: Medium) -> dict[str, Any]:
    carrier = carrier_of(medium)
    new_block: dict[str, Any] = {"type": medium.kind}
    if carrier is Carrier.BYTES:
        new_block["base64"] = medium.base64
    elif carrier is Carrier.ADDRESS:
        new_block["url"] = medium.address
    else:
        new_block["file_id"] = medium.file_id
    if medium.mime_type:
        new_block["mime_type"] = medium.mime_type
    if medium.name and medium.kind == "file":
        new_block["filename"] = medium.name
    return new_block


def _for_chat(medium: Medium) -> dict[str, Any]:
    match medium.kind:
        case "image":
            image = {"url": _address_of(medium)}
            if medium.detail:
                image["detail"] = medium.detail
            return {"type": "image_url", "image_url": image}
        case "audio":
            sound = {"data": medium.base64, "format": medium.mime_type.partition("/")[2]}
            return {"type": "input_audio", "input_audio": sound}
        case "video":
            return {"type": "video_url", "video_url": {"url": _address_of(medium)}}
        case _:
            return {"type": "file", "file": _file_of(medium)}


def _for_responses(medium: Medium) -> dict[str, Any]:
    if medium.kind != "image":
        return {"type": "input_file", **_file_of(medium)}
    image: dict[str, Any] = {"type": "input_image"}
    if carrier_of(medium) is Carrier.FILE_ID:
        image["file_id"] = medium.file_id
    else:
        image["image_url"] = _address_of(medium)
    if medium.detail:
        image["detail"] = medium.detail
    return image


def _file_of(medium: Medium) -> dict[str, str]:
    """Returns a file as both of OpenAI's APIs have it."""
    carrier = carrier_of(medium)
    if carrier is Carrier.FILE_ID:
        return {"file_id": medium.file_id}
    if carrier is Carrier.ADDRESS:
        return {"file_url": medium.address}
    name = medium.name or f"file{mimetypes.guess_extension(medium.mime_type) or ''}"
    return {"filename": name, "file_data": _address_of(medium)}


def _with_source(medium: Medium) -> dict[str, Any]:
    kind = "document" if medium.kind == "file" else medium.kind
    carrier = carrier_of(medium)
    if carrier is Carrier.BYTES:
        source = {"type": "base64", "media_type": medium.mime_type, "data": medium.base64}
    elif carrier is Carrier.ADDRESS:
        source = {"type": "url", "url": medium.address}
    else:
        source = {"type": "file", "file_id": medium.file_id}
    new_block: dict[str, Any] = {"type": kind, "source": source}
    if kind == "document" and medium.name:
        new_block["title"] = medium.name
    return new_block


def _as_media(medium: Medium) -> dict[str, Any]:
    new_block: dict[str, Any] = {"type": "media"}
    if carrier_of(medium) is Carrier.BYTES:
        new_block["data"] = medium.base64
    else:
        new_block["file_uri"] = medium.address or medium.file_id
    if medium.mime_type:
        new_block["mime_type"] = medium.mime_type
    return new_block


def _as_document(medium: Medium) -> dict[str, Any]:
    new_block = {"type": "document_url", "document_url": _address_of(medium)}
    if medium.name:
        new_block["document_name"] = medium.name
    return new_block


def _address_of(medium: Medium) -> str:
    """Returns where a medium is, or its bytes in a data URL."""
    if carrier_of(medium) is Carrier.BYTES:
        return f"data:{medium.mime_type};base64,{medium.base64}"
    return medium.address


_WRITERS: Mapping[Shape, Callable[[Medium], dict[str, Any]]] = {
    Shape.STANDARD: _standard,
    Shape.CHAT: _for_chat,
    Shape.RESPONSES: _for_responses,
    Shape.SOURCE: _with_source,
    Shape.MEDIA: _as_media,
    Shape.DOCUMENT: _as_document,
}
