"""The cost of messages, images, tools and response formats as they are sent to a model, framing included.

For text, names, roles, tool calls, tool results and images this is, to the token, what
`ChatOpenAI.get_num_tokens_from_messages` answers. As there, Pillow reads the size of an image; without it, and where
the size cannot be read, an image counts as the most expensive one. The bytes of files, sounds and videos are estimated,
never counted as text. Any other block costs its compact JSON, tools what OpenAI's cookbook says or more, a response
format its compact JSON and a frame.
"""

import binascii
import json
import re
from collections.abc import Mapping, Sequence
from io import BytesIO
from math import ceil
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, SystemMessage, ToolMessage
from langchain_core.utils.function_calling import convert_to_openai_function, convert_to_openai_tool
from pydantic import BaseModel

from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.messages import (
    CALL_BLOCKS,
    Block,
    Count,
    Medium,
    is_text,
    medium_of,
    shown_blocks,
    with_calls,
)
from langchain_ctxbudget.tokens.prices import PRICE_LIST
from langchain_ctxbudget.worker import keep_newest, new_mutex

REPLY_TOKENS = 3
"""Every reply is primed with the assistant's role."""
TOOL_CALL_ID_TOKENS = 3
TOOLS_END_TOKENS = RESPONSE_FORMAT_TOKENS = 12
"""Nothing is published about response formats; they are counted with the frame of the tools."""
_PROPERTY_TOKENS = _ENUM_TOKENS = 3
_PDF_PAGE = re.compile(rb"/Type\s*/Page\b")
_PDF = "JVBERi"
"""The base64 of `%PDF`, with which every PDF begins."""
_MOST_KNOWN_PAGES = 1_024
_known_pages: dict[tuple[int, int], int] = {}
"""Pages of the PDFs that were counted last; a turn is counted again at each of its steps."""
_mutex = new_mutex()
_PAGE_TOKENS = 3_000
"""A page of a PDF: the most that Anthropic says its text takes, "PDF support"; with OpenAI and
Google it takes less."""
_PAGE_BYTES = 30_000
"""What a page is taken to have in a PDF whose pages cannot be counted, as they are compressed."""
_FILE_BYTES_PER_TOKEN = 10
"""Of a file of any other kind: its text is compressed, or stands among fonts and pictures."""
_RECORDING_BYTES_PER_TOKEN = 100
"""Of sound and video: 32 tokens a second (Google's "Audio understanding") at 3 KB a second, a low
rate for speech."""
_ROLES = {"human": "user", "ai": "assistant"}
_TILE = 512
_LONG_SIDE = 2048
_SHORT_SIDE = 768
_MOST_TILES = 8
"""After resizing no image is larger than 2,048 x 768."""
_PATCH = 32
_MOST_PATCHES = 1_536
_SEARCHED_CHARACTERS = 65_536, 4_000_000
"""How much base64 is decoded to find the size of an image, and how much if it is not there: a JPEG
has it behind its thumbnail."""


class ImageRate(NamedTuple):
    """The price of an image for a model, in tokens (OpenAI's vision guide, "Calculating costs")."""

    base_tokens: int = 85
    tile_tokens: int = 170
    patch_tokens: float = 0.0
    """For each of at most 1,536 patches of 32 x 32 pixels; never less than by the tiles, as
    `ChatOpenAI` counts."""


_RATES = {name: ImageRate(**rate) for name, rate in PRICE_LIST["image_rates"].items()}
"""The rate for each beginning of a model's name. All others cost as gpt-4o does, or less."""


class Framing(NamedTuple):
    """Tokens that a model adds around the text of a message."""

    message_tokens: int = 3
    name_tokens: int = 1
    function_tokens: int = 7
    """The frame of one function, for gpt-4o and later; 10 for the cl100k_base models."""
    image: ImageRate = ImageRate()


def compact_json(value: object) -> str:
    """Returns a value as JSON without spaces, with the text of whatever JSON cannot hold."""
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):  # keys that are no strings, and circles
        return repr(value)


def message_tokens(message: BaseMessage, count: Count, framing: Framing) -> int:
    """Returns the tokens of one message."""
    tokens = framing.message_tokens + count(_role(message))
    if isinstance(message, ToolMessage):  # its name is not sent
        tokens += TOOL_CALL_ID_TOKENS
    elif name := message.name or message.additional_kwargs.get("name"):
        tokens += count(str(name)) + framing.name_tokens
    message = (
        message if is_text(message) else with_calls(message)
    )  # in the form in which they are sent
    calls = message.tool_calls if isinstance(message, AIMessage) else []
    for call in calls:
        tokens += count(json.dumps(call["args"], ensure_ascii=False, default=str)) + count(
            call["name"]
        )
    if isinstance(message, AIMessage) and (spoken := message.additional_kwargs.get("audio")):
        sent = {"id": spoken["id"]} if isinstance(spoken, Mapping) and "id" in spoken else spoken
        tokens += count(str(sent))
    sent_ids = [call["id"] for call in calls if call["id"]]
    return tokens + sum(
        _block_tokens(block, sent_ids, count, framing.image) for block in shown_blocks(message)
    )


def _role(message: BaseMessage) -> str:
    if isinstance(message, ChatMessage):
        return message.role
    if isinstance(message, SystemMessage):
        return str(message.additional_kwargs.get("__openai_role__", "system"))
    return _ROLES.get(message.type, message.type)


def _block_tokens(block: Block, sent_ids: list[Any], count: Count, rate: ImageRate) -> int:
    if isinstance(block, str):
        return count(block)
    kind = str(block.get("type"))
    if kind == "text" and "text" in block:
        return count(str(block["text"]))
    if (medium := medium_of(block)) is not None:
        if medium.kind == "image":
            return _image_block_tokens(block, medium, rate)
        if medium.size_bytes:
            return _file_tokens(medium, count)
    if kind in CALL_BLOCKS and (block.get("id") in sent_ids or block.get("call_id") in sent_ids):
        return 0
    return count(compact_json(block))


def image_rate(model: str) -> ImageRate:
    """Returns the price of images for a model of that name."""
    return next(
        (rate for start, rate in _RATES.items() if model.lower().startswith(start)), ImageRate()
    )


def _image_block_tokens(block: Mapping[str, Any], medium: Medium, rate: ImageRate) -> int:
    """Returns the tokens of an image in any of the forms in which providers and LangChain write it."""
    inner = block.get("image_url")
    place = inner if isinstance(inner, Mapping) else block
    low_detail = block["type"] != "image" and place.get("detail") == "low"
    return image_tokens(medium.payload or None, low_detail=low_detail, rate=rate)


def _file_tokens(medium: Medium, count: Count) -> int:
    """Estimates the tokens of a file, a sound or a video by its bytes.

    A file of text costs its text.
    """
    if medium.kind in ("audio", "video"):
        return ceil(medium.size_bytes / _RECORDING_BYTES_PER_TOKEN)
    if medium.mime_type.startswith("text/"):
        return count(_decoded(medium.payload).decode("utf-8", "replace"))
    if medium.mime_type == "application/pdf" or medium.payload.startswith(_PDF):
        return _pages(medium.payload) * _PAGE_TOKENS
    return ceil(medium.size_bytes / _FILE_BYTES_PER_TOKEN)


def _pages(payload: str) -> int:
    """Returns about how many pages a PDF has; at least one."""
    key = hash(payload), len(payload)  # no file is kept alive
    if (known := _known_pages.get(key)) is not None:
        return known
    data = _decoded(payload)
    pages = len(_PDF_PAGE.findall(data)) or ceil(len(data) / _PAGE_BYTES) or 1
    with _mutex:
        return keep_newest(_known_pages, key, pages, _MOST_KNOWN_PAGES)


def _decoded(payload: str) -> bytes:
    """Returns the bytes of base64; none where it cannot be read."""
    plain = "".join(payload.split())
    try:
        return binascii.a2b_base64(plain[: len(plain) // 4 * 4])
    except ValueError:
        return b""


def image_tokens(
    image: str | None,
    *,
    low_detail: bool = False,
    rate: ImageRate = ImageRate(),  # noqa: B008
) -> int:
    """Returns the tokens of an image.

    The most that the rule can give where its size cannot be read.
    """
    if low_detail and not rate.patch_tokens:
        return rate.base_tokens
    tiles = _MOST_TILES
    patches = _MOST_PATCHES
    if size := image_size(image) if image else None:
        tiles = _tiles(*size)
        patches = ceil(size[0] / _PATCH) * ceil(size[1] / _PATCH)
    return max(
        rate.base_tokens + rate.tile_tokens * tiles,
        ceil(min(_MOST_PATCHES, patches) * rate.patch_tokens),
    )


def _tiles(width: int, height: int) -> int:
    """Returns the tiles of 512 x 512 pixels that an image of this size has after the provider's resizing."""
    short, long = sorted((width, height))
    if long > _LONG_SIDE:
        short = short * _LONG_SIDE // long
        long = _LONG_SIDE
    if short > _SHORT_SIDE:
        short, long = _SHORT_SIDE, long * _SHORT_SIDE // short
    return ceil(max(1, short) / _TILE) * ceil(max(1, long) / _TILE)


def image_size(image: str) -> tuple[int, int] | None:
    """Reads width and height in pixels from the header of an image.

    None where it or Pillow is not there.
    """
    payload = image.partition(",")[2] if image.startswith("data:") else image
    for characters in _SEARCHED_CHARACTERS:
        try:
            from PIL import Image  # noqa: PLC0415 - not every installation has it

            return Image.open(BytesIO(_decoded(payload[:characters]))).size
        except Exception:  # noqa: BLE001 - whatever a header, or the library that reads it, raises
            if len(payload) <= characters:
                break
    return None


def require_schemas(tools: object, response_format: object) -> None:
    """Raises an `InputError` unless these are a list of tools and a response format."""
    if isinstance(tools, str | bytes | Mapping) or not isinstance(tools, Sequence):
        raise InputError(
            f"tools must be a list of tools, not {type(tools).__name__}; one tool is a list of one"
        )
    for number, tool in enumerate(tools):
        if tool is None or isinstance(tool, str | bytes | int | float):
            raise InputError(
                f"tools[{number}] is {tool!r}: give a LangChain tool, a function, a class or a schema"
            )
    if isinstance(response_format, str | bytes | int | float | Sequence):
        raise InputError(f"response_format must be a class or a schema, not {response_format!r}")


def tools_tokens(tools: Sequence[Any], count: Count, function_tokens: int) -> int:
    """Returns the tokens of tool schemas as they are sent.

    Each function has a frame of `function_tokens`.
    """
    tokens = TOOLS_END_TOKENS if tools else 0
    for tool in tools:
        try:
            schema = convert_to_openai_tool(tool)
        except Exception:  # noqa: BLE001 - a tool that only its provider knows is sent as it is
            schema = _json_schema(tool)
        function = schema.get("function") if isinstance(schema, Mapping) else None
        by_rule = (
            function_tokens + _function_tokens(function, count)
            if isinstance(function, Mapping)
            else 0
        )
        tokens += max(count(compact_json(schema)), by_rule)
    return tokens


def _function_tokens(function: Mapping[str, Any], count: Count) -> int:
    """Returns the tokens of one function by the published rule."""

    def named(name: object, kind: str, schema: Mapping[str, Any]) -> int:
        return count(f"{name}:{kind}{str(schema.get('description') or '').removesuffix('.')}")

    tokens = named(function.get("name", ""), "", function)
    parameters = function.get("parameters")
    properties = parameters.get("properties") if isinstance(parameters, Mapping) else None
    if not isinstance(properties, Mapping) or not properties:
        return tokens
    tokens += _PROPERTY_TOKENS * (1 + len(properties))
    for key, value in properties.items():
        schema = value if isinstance(value, Mapping) else {}
        tokens += named(key, f"{schema.get('type', '')}:", schema)
        if isinstance(items := schema.get("enum"), Sequence):
            tokens += _ENUM_TOKENS * (len(items) - 1) + sum(count(str(item)) for item in items)
    return tokens


def response_format_tokens(response_format: Any, count: Count) -> int:  # noqa: ANN401 - schemas come in any type
    """Returns the tokens of a response format as it is sent; 0 for None."""
    if response_format is None:
        return 0
    is_schema = isinstance(response_format, type | Mapping)
    schema = response_format if is_schema else getattr(response_format, "schema", response_format)
    return max(count(compact_json(form)) for form in _sent_formats(schema)) + RESPONSE_FORMAT_TOKENS


def _sent_formats(schema: Any) -> list[Any]:  # noqa: ANN401
    """Returns the forms in which a response format may be sent.

    LangChain's, and a pydantic class's own.
    """
    if isinstance(schema, Mapping) and "type" in schema and "properties" not in schema:
        return [schema]  # {"type": "json_object"}, or a whole {"type": "json_schema", ...}
    try:
        forms = [{**convert_to_openai_function(schema)}]
    except Exception:  # noqa: BLE001 - whatever a schema class does when it is asked for its schema
        return [_json_schema(schema)]
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        forms.append({"name": schema.__name__, "schema": _strict(schema.model_json_schema())})
    return [{"type": "json_schema", "json_schema": {**form, "strict": True}} for form in forms]


def _strict(schema: Any) -> Any:  # noqa: ANN401
    """Returns a schema in the strict form.

    All fields of every object required, no others allowed.
    """
    if isinstance(schema, Mapping):
        strict = {key: _strict(value) for key, value in schema.items()}
        if isinstance(properties := strict.get("properties"), dict):
            strict |= {"required": list(properties), "additionalProperties": False}
        return strict
    return [_strict(part) for part in schema] if isinstance(schema, list) else schema


def _json_schema(value: Any) -> Any:  # noqa: ANN401
    """Returns the JSON schema of a pydantic class; anything else as it is."""
    return (
        value.model_json_schema()
        if isinstance(value, type) and issubclass(value, BaseModel)
        else value
    )
