"""Media in messages: which block is a picture, a sound or a file, and how large it is.

Blocks come in the forms of LangChain, OpenAI, Anthropic and Google: with bytes as base64 or a data
URL, with the address of a file, or with the id that the provider gave it. A block of any other type
may hold texts (a search result, a document) and payloads that nobody reads (base64, encrypted
contents).
"""

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from langchain_ctxbudget.content.blocks import Block, fields_of, json_text

MediumKind = Literal["image", "audio", "video", "file"]

_KINDS: Mapping[str, MediumKind] = {
    "image": "image",
    "image_url": "image",
    "input_image": "image",
    "computer_screenshot": "image",
    "image_generation_call": "image",
    "audio": "audio",
    "input_audio": "audio",
    "video": "video",
    "video_url": "video",
    "input_video": "video",
    "file": "file",
    "input_file": "file",
    "document": "file",
    "document_url": "file",
    "text-plain": "file",
    "media": "file",
}
"""The kind of medium of every type of block that has one; of `media`, the MIME type says more."""
SCREEN = "computer_call_output"
_NESTED = ("image_url", "source", "file", "input_audio", "audio", "video_url", "inline_data")
"""Keys under which a provider keeps the medium in an object of its own."""
_PAYLOADS = ("base64", "data", "file_data", "result")
_ADDRESSES = ("url", "image_url", "file_url", "video_url", "document_url", "file_uri")
_MIME_TYPES = ("mime_type", "media_type")
_NAMES = ("filename", "title", "name", "document_name", "revised_prompt")
"""The last one says what an image shows that a tool of OpenAI's has made."""
_DETAILS = ("detail", "media_resolution")
_NO_WORDS = frozenset(
    {
        "type",
        "id",
        "call_id",
        "tool_use_id",
        "tool_call_id",
        "item_id",
        "status",
        "signature",
        "cache_control",
        "index",
        "role",
        "extras",
        "mime_type",
        "media_type",
        "file_id",
        "container_id",
    }
)
"""Keys of a block under which a name, a number or a setting stands: no words and no payload."""
_ENCRYPTED = frozenset({"encrypted_content", "encrypted_index", "encrypted_stdout"})
"""Keys under which payloads stand, however short."""
UNREAD = _NO_WORDS | _ENCRYPTED
"""Keys of a block under which a reader would read nothing."""
_DEEPEST = 16
"""Blocks are not read further down than this."""
_DATA_URL = re.compile(r"data:[\w.+-]+/[\w.+-]+[;,]")
_BASE64 = re.compile(r"[A-Za-z0-9+/_=\s-]+")
_SHORTEST_PAYLOAD = 100
"""Characters; a shorter text is no payload, whatever it looks like."""
_LONGEST_WORD = 60
"""Characters; base64 is broken into lines of 64 or 76, and the words of a text are shorter on
average."""


class Medium(NamedTuple):
    """A picture, a sound, a video or a file in a message."""

    kind: MediumKind
    mime_type: str = ""
    """Such as `image/png`; empty where the block does not say."""
    name: str = ""
    """The name of the file or the title of the document; empty where there is none."""
    payload: str | bytes = ""
    """Its bytes, as base64 or as they are; empty where the block has an address or an id alone."""
    size_bytes: int = 0
    """The number of its bytes; 0 where they are not in the block."""
    detail: str = ""
    """How closely the provider is to look at it, such as `low`; empty where nothing says so."""
    address: str = ""
    """Where it can be fetched; empty where nothing says so."""
    file_id: str = ""
    """The id under which a provider keeps it; empty where it has none."""

    @property
    def base64(self) -> str:
        """Its bytes as base64; empty where it has none."""
        if isinstance(self.payload, bytes):
            return b64encode(self.payload).decode()
        return self.payload


def medium_of(block: Block) -> Medium | None:
    """Returns the medium that a content block is.

    None for a block of any other kind, and for a document of text.
    """
    fields = _shown_fields(block)
    block_type = str(fields.get("type", ""))
    kind = _KINDS.get(block_type)
    if kind is None or _is_of_text(fields):
        return None

    nested = [fields[key] for key in _NESTED if isinstance(fields.get(key), Mapping)]
    medium = _medium_in([fields, *nested], kind)
    if block_type != "image":
        medium = medium._replace(detail=first_text([fields, *nested], _DETAILS))
    if block_type == "media":
        return medium._replace(kind=_kind_of(medium.mime_type))
    return medium


def _medium_in(places: Sequence[Mapping[str, Any]], kind: MediumKind) -> Medium:
    """Returns a medium by what a block, and the objects in it, say of it."""
    payload = _first(places, _PAYLOADS)
    address = first_text(places, _ADDRESSES)
    mime_type = first_text(places, _MIME_TYPES)
    for text in (payload, address):
        if isinstance(text, str) and text.startswith("data:"):
            header, _, payload = text.partition(",")
            mime_type = _type_in_header(header) or mime_type

    output_format = first_text(places, ("output_format",))
    if not mime_type and output_format:  # of an image that was generated
        mime_type = f"{kind}/{output_format}"
    return Medium(
        kind=kind,
        mime_type=mime_type,
        name=first_text(places, _NAMES),
        payload=payload or "",
        size_bytes=_byte_count(payload),
        address="" if address.startswith("data:") else address,
        file_id=_file_id_in(places),
    )


def _file_id_in(places: Sequence[Mapping[str, Any]]) -> str:
    """Returns the id of a file; before version 1, LangChain had it as `id`."""
    is_earlier = any(place.get("source_type") == "id" for place in places)
    return first_text(places, ("file_id", "id") if is_earlier else ("file_id",))


def _type_in_header(header: str) -> str:
    """Returns the MIME type in what stands before the comma of a data URL."""
    mime_type, _, _ = header.removeprefix("data:").partition(";")
    return mime_type


def _shown_fields(block: Block) -> dict[str, Any]:
    """Returns the fields of a block; of a computer tool's output, those of the screen in it."""
    fields = fields_of(block)
    output = fields.get("output")
    if fields.get("type") == SCREEN and isinstance(output, Mapping):
        return dict(output)
    return fields


def _is_of_text(fields: Mapping[str, Any]) -> bool:
    """Tells if a document or a file is given as text rather than as bytes, an address or an id."""
    source = fields.get("source")
    if isinstance(source, str):
        return True
    if isinstance(source, Mapping) and source.get("type") in ("text", "content"):
        return True
    return isinstance(fields.get("text"), str)


def _first(places: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> str | bytes | None:
    """Returns the first text, or bytes, that stands under one of some keys."""
    for place in places:
        for key in keys:
            value = place.get(key)
            if isinstance(value, str | bytes) and value:
                return value
    return None


def first_text(places: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> str:
    """Returns the first value under one of some keys where it is a text, else an empty one."""
    value = _first(places, keys)
    return value if isinstance(value, str) else ""


def _byte_count(payload: str | bytes | None) -> int:
    """Returns how many bytes a payload holds; four characters of base64 are three bytes."""
    if isinstance(payload, str):
        return len(payload) * 3 // 4
    return len(payload or b"")


def _kind_of(mime_type: str) -> MediumKind:
    match mime_type.partition("/")[0]:
        case "image":
            return "image"
        case "audio":
            return "audio"
        case "video":
            return "video"
        case _:
            return "file"


# Media inside other blocks


def media_inside(block: Block) -> list[Medium]:
    """Returns the media that stand in a block of another kind, as in a raw result of a tool."""
    return list(_media_in_value(fields_of(block)))


def _media_in_value(value: object, depth: int = 0) -> Iterator[Medium]:
    if depth >= _DEEPEST:
        return
    for inner in _inner_values(value):
        medium = medium_of(inner) if isinstance(inner, dict) else None
        if medium is None:
            yield from _media_in_value(inner, depth + 1)
        else:
            yield medium


def without_media_inside(value: Any, depth: int = 0) -> Any:  # noqa: ANN401 - any JSON
    """Returns a value of a block with a note in place of the media in it, without other bytes."""
    if isinstance(value, dict):
        return _fields_without_media(value, depth)
    if isinstance(value, list | tuple):
        return [without_media_inside(inner, depth + 1) for inner in value]
    is_data_url = isinstance(value, str) and _DATA_URL.match(value)
    return "" if is_data_url or isinstance(value, bytes) else value


def _fields_without_media(fields: dict[str, Any], depth: int) -> Any:  # noqa: ANN401 - any JSON
    medium = medium_of(fields) if depth else None
    if medium is not None:
        return f"[{medium.kind} left out]"
    if depth >= _DEEPEST:
        return ""
    kept: dict[str, Any] = {}
    for key, inner in fields.items():
        is_left_out = _is_payload_under(key, inner)
        kept[key] = "" if is_left_out else without_media_inside(inner, depth + 1)
    return kept


def _is_payload_under(key: object, value: object) -> bool:
    """Tells if a value is the bytes of a medium; what is encrypted stands under other keys."""
    return key in _PAYLOADS and isinstance(value, str) and is_payload(value)


def _inner_values(value: object) -> Sequence[object]:
    if isinstance(value, Mapping):
        return list(value.values())
    return value if isinstance(value, list | tuple) else ()


# What a reader reads


def words_inside(block: Block) -> list[str]:
    """Returns the texts that a reader would read of a block that is neither a text nor a medium."""
    fields = fields_of(block)
    if fields.get("type") == "json" and "json" in fields:
        return [json_text(fields["json"])]
    in_order = dict(sorted(fields.items(), key=_is_object))
    texts = texts_inside(in_order, UNREAD)
    return [text for text in texts if text.strip() and not is_payload(text)]


def _is_object(field: tuple[str, object]) -> bool:
    """Tells if the value of a field holds others: these are read behind, say, its title."""
    _, value = field
    return isinstance(value, Mapping | list | tuple)


def texts_inside(
    value: object, hidden: frozenset[str] = _NO_WORDS, depth: int = 0
) -> Iterator[str]:
    """Yields every text in a block, but for those under hidden keys, in order."""
    if isinstance(value, str):
        yield value
    elif depth < _DEEPEST:
        for inner in _values_of(value, hidden):
            yield from texts_inside(inner, hidden, depth + 1)


def _values_of(value: object, hidden: frozenset[str]) -> list[object]:
    """Returns what stands in a list or in an object, but for what is under hidden keys."""
    if isinstance(value, Mapping):
        return [inner for key, inner in value.items() if key not in hidden]
    if isinstance(value, list | tuple):
        return list(value)
    return []


def is_payload(text: str) -> bool:
    """Tells if a text is data that nobody reads: a data URL, base64, or something encrypted."""
    if _DATA_URL.match(text):
        return True
    if len(text) < _SHORTEST_PAYLOAD or len(text) <= _LONGEST_WORD * len(text.split()):
        return False
    return _BASE64.fullmatch(text) is not None
