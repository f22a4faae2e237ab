"""What messages, images and tools cost: `ChatOpenAI`'s count where it has one, never 0 by accident."""

from __future__ import annotations

import base64
import binascii
import io
import json
import math
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from PIL import Image
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from langchain_ctxbudget.core.image_cost import MOST_TILES, ImageRate, image_rate, image_size, image_tiles, image_tokens
from langchain_ctxbudget.core.schema_cost import PAYLOAD_CHARACTERS, compact_json
from langchain_ctxbudget.core.tokens import TiktokenCounter

COUNTER = TiktokenCounter()
count = COUNTER.count_text


def said(content: Any, **fields: Any) -> int:
    """Tokens of a human message with this content, less its framing."""
    return COUNTER.count_message(HumanMessage(content, **fields)) - COUNTER.count_message(HumanMessage(""))


def picture(width: int = 600, height: int = 400, form: str = "PNG", **options: Any) -> str:
    """The base64 of a real image."""
    file = io.BytesIO()
    Image.new("RGB", (width, height)).save(file, form, **options)
    return base64.b64encode(file.getvalue()).decode()


# -- the same as ChatOpenAI

# ChatOpenAI raises on what looks like a special token.
TEXT = st.text(max_size=30).filter(lambda text: "<|" not in text)
NAME = st.text("abcdefgh_-0123", min_size=1, max_size=12)
ARGUMENTS = st.dictionaries(
    TEXT, st.one_of(TEXT, st.integers(), st.none(), st.lists(st.booleans(), max_size=3)), max_size=3
)
CALL_ID = st.sampled_from(["call_1", "call_2", "call_3"])
PICTURES = [
    ("image/png", picture(64, 64)),
    ("image/png", picture(3000, 1000)),
    ("image/jpeg", picture(900, 1200, "JPEG")),
    ("image/gif", picture(513, 512, "GIF")),
    ("image/webp", picture(2049, 700, "WEBP")),
]


def image_blocks(mime_type: str, data: str) -> list[dict[str, Any]]:
    """Every form in which langchain-openai takes an image."""
    url = f"data:{mime_type};base64,{data}"
    return [
        *({"type": "image_url", "image_url": {"url": url, "detail": detail}} for detail in ("low", "high", "auto")),
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "image", "source_type": "base64", "mime_type": mime_type, "data": data},
        {"type": "image", "source_type": "url", "url": url},
        {"type": "image", "base64": data, "mime_type": mime_type},
        {"type": "image", "base64": data, "mime_type": mime_type, "extras": {"detail": "low"}},
        {"type": "image", "url": url},
        {"type": "image", "url": url, "detail": "low"},
        {"type": "image", "source": {"type": "base64", "media_type": mime_type, "data": data}},
        {"type": "image", "source": {"type": "url", "url": url}},
    ]


IMAGE_BLOCKS = [block for mime_type, data in PICTURES for block in image_blocks(mime_type, data)]
TEXT_BLOCK = st.builds(
    lambda text, extra: {"type": "text", "text": text, **extra},
    TEXT,
    st.sampled_from([{}, {"id": "t1"}, {"annotations": []}, {"extras": {"prompt_cache_breakpoint": True}}]),
)
# By index, so that a failure does not print every image.
IMAGE_BLOCK = st.integers(0, len(IMAGE_BLOCKS) - 1).map(lambda index: IMAGE_BLOCKS[index])
BLOCKS = st.lists(st.one_of(TEXT, TEXT_BLOCK, IMAGE_BLOCK), max_size=4)
CONTENT = st.one_of(TEXT, BLOCKS)
CALLS = st.lists(
    st.builds(lambda name, args, id_: {"name": name, "args": args, "id": id_}, NAME, ARGUMENTS, CALL_ID), max_size=2
)
INVALID_CALLS = st.lists(
    st.builds(lambda name, args, id_: {"name": name, "args": args, "id": id_, "error": "bad"}, NAME, TEXT, CALL_ID),
    max_size=2,
)
RAW_CALL = st.builds(
    lambda name, arguments, id_: {
        "id": id_,
        "type": "function",
        "index": 0,
        "function": {"name": name, "arguments": arguments},
    },
    NAME,
    st.one_of(TEXT.map("no JSON: {}".format), ARGUMENTS.map(json.dumps)),
    CALL_ID,
)
EXTRAS = st.fixed_dictionaries(
    {},
    optional={
        "tool_calls": st.lists(RAW_CALL, max_size=2),
        "function_call": st.fixed_dictionaries({"name": NAME, "arguments": TEXT}),
        "audio": st.fixed_dictionaries({"id": CALL_ID, "data": TEXT}),
        "name": NAME,
        "created_at": st.just("2026-01-02T03:04:05"),
    },
)
OPTIONAL_NAME = st.one_of(st.none(), st.just(""), NAME)


def with_call_blocks(message: AIMessage, also_in_content: bool) -> AIMessage:
    """As Anthropic's models answer: the calls stand in the content as well."""
    if not also_in_content or not message.tool_calls:
        return message
    blocks = [{"type": "tool_use", "id": c["id"], "name": c["name"], "input": c["args"]} for c in message.tool_calls]
    content = [message.content] if isinstance(message.content, str) else message.content
    return message.model_copy(update={"content": [*content, *blocks]})


MESSAGE = st.one_of(
    st.builds(HumanMessage, CONTENT, name=OPTIONAL_NAME),
    st.builds(HumanMessage, CONTENT, additional_kwargs=st.fixed_dictionaries({"name": NAME})),
    st.builds(SystemMessage, CONTENT, name=OPTIONAL_NAME),
    st.builds(SystemMessage, CONTENT, additional_kwargs=st.just({"__openai_role__": "developer in chief"})),
    st.builds(ChatMessage, CONTENT, role=st.sampled_from(["user", "critic", "assistant", "developer"])),
    st.builds(FunctionMessage, CONTENT, name=NAME),
    st.builds(ToolMessage, CONTENT, tool_call_id=CALL_ID, name=OPTIONAL_NAME),
    st.builds(
        with_call_blocks,
        st.builds(
            AIMessage,
            CONTENT,
            name=OPTIONAL_NAME,
            tool_calls=CALLS,
            invalid_tool_calls=INVALID_CALLS,
            additional_kwargs=EXTRAS,
        ),
        st.booleans(),
    ),
)


@settings(deadline=None, max_examples=600, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(messages=st.lists(MESSAGE, max_size=4))
def test_messages_cost_what_chat_openai_says(chat_openai: ChatOpenAI, messages: list[BaseMessage]) -> None:
    assert COUNTER.count_messages(messages) == chat_openai.get_num_tokens_from_messages(messages)


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(width=st.integers(1, 3_000), height=st.integers(1, 3_000))
def test_images_of_any_size_cost_what_chat_openai_says(chat_openai: ChatOpenAI, width: int, height: int) -> None:
    # Of a side that vanishes when the other is brought to 2,048 pixels, `ChatOpenAI` makes no tiles; here it is one.
    assume(max(width, height) <= 2_048 * min(width, height))
    file = io.BytesIO()
    Image.new("1", (width, height)).save(file, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
    messages: list[BaseMessage] = [HumanMessage([{"type": "image_url", "image_url": {"url": url}}])]
    assert COUNTER.count_messages(messages) == chat_openai.get_num_tokens_from_messages(messages)


def test_no_messages_cost_the_priming_of_the_reply(chat_openai: ChatOpenAI) -> None:
    assert COUNTER.count_messages([]) == chat_openai.get_num_tokens_from_messages([]) == 3


def test_messages_add_up() -> None:
    messages = [SystemMessage("Be brief."), HumanMessage("Hi", name="ada"), AIMessage("Hello!")]
    assert COUNTER.count_messages(messages) == sum(map(COUNTER.count_message, messages)) + 3


# -- images


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    width=st.integers(1, 4_000),
    height=st.integers(1, 60),
    tall=st.booleans(),
    form=st.sampled_from(["PNG", "GIF", "JPEG", "WEBP", "BMP"]),
)
def test_the_size_of_an_image_is_read_from_its_header(width: int, height: int, tall: bool, form: str) -> None:
    size = (height, width) if tall else (width, height)
    assert image_size(f"data:image/x;base64,{picture(*size, form)}") == size


def jpeg_with_exif() -> str:
    exif = Image.Exif()
    exif[0x010E] = "a description " * 3_000
    return picture(321, 123, "JPEG", exif=exif, icc_profile=b"p" * 100_000)


@pytest.mark.parametrize(
    "image",
    [
        jpeg_with_exif(),
        picture(321, 123, "JPEG", progressive=True),
        picture(321, 123, "WEBP", lossless=True),
        picture(321, 123, "WEBP", exif=b"Exif\0\0" + b"x" * 100),
        base64.encodebytes(base64.b64decode(jpeg_with_exif())).decode(),
        base64.b64encode(b"BM" + bytes(12) + b"\x0c\0\0\0" + b"\x41\x01\x7b\0" + bytes(20)).decode(),
        base64.b64encode(b"BM" + bytes(12) + b"\x28\0\0\0" + b"\x41\x01\0\0\x85\xff\xff\xff" + bytes(20)).decode(),
    ],
    ids=[
        "EXIF and profile",
        "progressive",
        "WebP lossless",
        "WebP extended",
        "wrapped lines",
        "old BMP",
        "BMP from top",
    ],
)
def test_the_size_is_read_from_special_forms(image: str) -> None:
    assert image_size(image) == (321, 123)


def test_the_size_is_read_without_decoding_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    image = base64.b64encode(base64.b64decode(jpeg_with_exif()) + bytes(3_000_000)).decode()
    decoded: list[int] = []
    real = binascii.a2b_base64
    monkeypatch.setattr(binascii, "a2b_base64", lambda text: decoded.append(len(text)) or real(text))
    assert image_size(image) == (321, 123)
    assert sum(decoded) < 500


@pytest.mark.parametrize(
    "image", [picture(), picture(form="JPEG"), picture(form="WEBP"), picture(form="BMP"), picture(form="GIF")]
)
def test_no_cut_off_header_raises(image: str) -> None:
    for length in range(60):
        assert image_size(image[:length]) in (None, (600, 400))


@settings(deadline=None)
@given(st.one_of(st.text(), st.binary().map(lambda data: base64.b64encode(data).decode())))
def test_no_image_data_raises(data: str) -> None:
    image_size(data)
    image_size(f"data:image/png;base64,{data}")


def test_no_size_costs_more_than_an_unknown_image() -> None:
    sides = (1, 2, 511, 512, 513, 767, 768, 769, 1_024, 1_536, 2_047, 2_048, 2_049, 4_096, 5_000, 10_000, 65_535)
    assert max(image_tiles(width, height) for width in sides for height in sides) == MOST_TILES


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}},
        {"type": "image_url", "image_url": "https://example.org/cat.png"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "image_url", "image_url": {"url": "data:image/svg+xml;utf8,<svg/>"}},
        {"type": "image_url", "image_url": {}},
        {"type": "image_url"},
        {"type": "image", "file_id": "file-1"},
        {"type": "image", "source": {"type": "file", "file_id": "file-1"}},
        {"type": "input_image", "file_id": "file-1"},
    ],
)
def test_an_image_whose_size_cannot_be_read_costs_the_dearest(block: dict[str, Any]) -> None:
    assert said([block]) == 1_445


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image_url", "image_url": f"data:image/png;base64,{picture(64, 64)}"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{picture(64, 64)}", "detail": "high"},
    ],
)
def test_an_image_as_a_plain_url_is_read(block: dict[str, Any]) -> None:
    assert said([block]) == 255


def test_an_input_image_of_low_detail_is_cheap() -> None:
    assert said([{"type": "input_image", "image_url": "https://example.org/cat.png", "detail": "low"}]) == 85


# -- what ChatOpenAI does not count


@pytest.mark.parametrize(
    "block",
    [
        {"type": "thinking", "thinking": "The user wants to know the hour.", "signature": "c2ln"},
        {"type": "reasoning", "reasoning": "The user wants to know the hour."},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "The hour."}]},
        {"type": "redacted_thinking", "data": "b3BhcXVl"},
        {"type": "file", "file_id": "file-1"},
        {"type": "video", "url": "https://example.org/a.mp4"},
        {"type": "audio", "file_id": "audio-1"},
        {"type": "text-plain", "text": "a document", "mime_type": "text/plain"},
        {"type": "refusal", "refusal": "I cannot do that."},
        {"type": "tool_use", "id": "elsewhere", "name": "clock", "input": {"zone": "CET"}},
        {"type": "tool_use", "name": "clock", "input": {}},
        {"type": "text"},
        {"text": "a block of Bedrock"},
        {"type": "of tomorrow", "value": [1, 2, 3]},
        {},
    ],
)
def test_a_block_without_a_rule_costs_its_compact_json(block: dict[str, Any]) -> None:
    tokens = COUNTER.count_message(AIMessage([block])) - COUNTER.count_message(AIMessage(""))
    assert tokens == count(compact_json(block)) > 0


@pytest.mark.parametrize(
    "block",
    [
        {"type": "tool_use", "id": "call_1", "name": "clock", "input": {"zone": "CET"}},
        {"type": "tool_call", "id": "call_1", "name": "clock", "args": {"zone": "CET"}},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "clock", "arguments": "{}"},
    ],
)
def test_a_call_that_is_in_the_content_as_well_is_counted_once(block: dict[str, Any]) -> None:
    calls = [{"name": "clock", "args": {"zone": "CET"}, "id": "call_1"}]
    once = COUNTER.count_message(AIMessage("", tool_calls=calls))
    assert COUNTER.count_message(AIMessage([block], tool_calls=calls)) == once


@pytest.mark.parametrize(
    "data",
    [bytes(range(256)) * 40, b"%PDF-1.7 " + b"some text in a file, " * 500, bytes(10_000)]
    + [random.Random(seed).randbytes(3_072 + seed) for seed in range(40)],
)
def test_long_base64_costs_a_fixed_share_that_is_not_below_its_tokens(data: bytes) -> None:
    payload = base64.b64encode(data).decode()
    block = {"type": "file", "mime_type": "application/pdf", "base64": payload}
    fresh = TiktokenCounter()
    tokens = fresh.count_message(HumanMessage([block])) - fresh.count_message(HumanMessage(""))
    assert tokens >= count(compact_json(block))
    # The padding is left in the JSON.
    characters = len(payload.rstrip("="))
    assert tokens == count(compact_json({**block, "base64": payload[characters:]})) + math.ceil(characters * 0.75)


def test_long_base64_is_not_tokenized() -> None:
    seen: list[int] = []

    class Watching(TiktokenCounter):
        def _count(self, text: str) -> int:
            seen.append(len(text))
            return super()._count(text)

    Watching().count_message(HumanMessage([{"type": "file", "data": "QUJD" * PAYLOAD_CHARACTERS}]))
    assert max(seen) < 100


def test_text_with_special_tokens_is_counted_everywhere() -> None:
    text = "<|endoftext|>"
    calls = [{"name": "f", "args": {"x": text}, "id": "1"}]
    message = AIMessage([text, {"type": "thinking", "thinking": text}], name=text, tool_calls=calls)
    assert COUNTER.count_message(message) > 4 * count(text)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=6,
)
KIND = st.sampled_from(
    ["text", "image", "image_url", "input_image", "file", "audio", "tool_use", "function_call", "thinking", "other"]
)
ANY_BLOCK = st.builds(
    lambda kind, fields: {**fields, **kind},
    st.fixed_dictionaries({}, optional={"type": st.one_of(KIND, JSON)}),
    st.dictionaries(
        st.sampled_from(["text", "url", "image_url", "source", "base64", "data", "id", "detail", "call_id"]),
        JSON,
        max_size=3,
    ),
)


@settings(deadline=None, max_examples=400)
@given(
    st.lists(st.one_of(TEXT, ANY_BLOCK), max_size=3),
    st.dictionaries(st.sampled_from(["tool_calls", "function_call", "audio", "name"]), JSON, max_size=3),
)
def test_no_message_raises(content: list[Any], extra: dict[str, Any]) -> None:
    try:
        message = AIMessage(content, additional_kwargs=extra)
    except (TypeError, AttributeError, ValueError):
        assume(False)  # LangChain itself refuses it
    assert COUNTER.count_message(message) > 0
    assert COUNTER.count_message(HumanMessage(content)) > 0


def test_arguments_that_are_no_json_are_counted_as_text() -> None:
    call = {"name": "f", "args": {"when": object, "who": {1, 2}}, "id": "1"}
    assert COUNTER.count_message(AIMessage("", tool_calls=[call])) > 10


def test_a_circle_is_counted() -> None:
    block: dict[str, Any] = {"type": "other"}
    block["self"] = block
    assert compact_json(block) == repr(block)


# -- tools and response formats


@tool
def get_weather(city: str, unit: str = "celsius") -> str:
    """Tells the weather of a city."""
    return f"{city} {unit}"


class Booking(BaseModel):
    """Books a table."""

    guests: int = Field(description="How many people come.")
    notes: list[str] = Field(default_factory=list)


class Answer(TypedDict):
    """An answer with its source."""

    text: str
    source: str


def divide(dividend: int, divisor: int) -> float:
    """Divides two numbers."""
    return dividend / divisor


def test_no_tools_cost_nothing() -> None:
    assert COUNTER.count_tools([]) == 0


def test_functions_cost_what_the_published_rule_says() -> None:
    weather = {
        "type": "function",
        "function": {
            "name": "get_current_weather",
            "description": "Get the current weather in a given location.",
            "parameters": {
                "type": "object",
                "properties": {
                    "location": {"type": "string", "description": "The city and state."},
                    "unit": {"type": "string", "description": "The unit.", "enum": ["celsius", "fahrenheit"]},
                },
            },
        },
    }
    rule = (
        (7 + count("get_current_weather:Get the current weather in a given location"))
        + (3 + 3 + count("location:string:The city and state") + 3 + count("unit:string:The unit"))
        + (-3 + 3 + count("celsius") + 3 + count("fahrenheit"))
    )
    assert COUNTER.count_tools([weather]) == max(rule, count(compact_json(weather))) + 12


def test_the_published_rule_counts_where_it_is_dearer_than_json() -> None:
    properties = {key: {"enum": ["a"] * 200} for key in "xyz"}
    many = {"type": "function", "function": {"name": "f", "parameters": {"properties": properties}}}
    rule = 7 + count("f:") + 3 + 3 * (3 - 3 + 200 * 4) + sum(count(f"{key}::") for key in "xyz")
    assert COUNTER.count_tools([many]) == rule + 12 > count(compact_json(many)) + 12


@pytest.mark.parametrize(
    "given_tool",
    [
        get_weather,
        Booking,
        Answer,
        divide,
        {"type": "web_search"},
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
        {"name": "lookup", "description": "Looks up.", "input_schema": {"type": "object", "properties": {}}},
        {"google_search": {}},
        {"strange": object()},
        object(),
    ],
)
def test_any_tool_costs_something(given_tool: Any) -> None:
    assert COUNTER.count_tools([given_tool]) > 12


def test_a_tool_costs_at_least_its_compact_json() -> None:
    schema = {
        "type": "function",
        "function": {
            "name": "deep",
            "description": "Has nested properties, which the published rule does not see.",
            "parameters": {
                "type": "object",
                "properties": {
                    "a": {"type": "object", "properties": {"b": {"type": "string", "description": "x " * 50}}}
                },
            },
        },
    }
    assert COUNTER.count_tools([schema]) >= count(json.dumps(schema, separators=(",", ":"), ensure_ascii=False))


def test_the_same_tools_cost_the_same_and_are_tokenized_once() -> None:
    counter = TiktokenCounter()
    first = counter.count_tools([get_weather, Booking])
    calls = counter.calls
    assert counter.count_tools([get_weather, Booking]) == first
    assert counter.calls == calls


def test_no_response_format_costs_nothing() -> None:
    assert COUNTER.count_response_format(None) == 0


class Strategy:
    def __init__(self, schema: Any) -> None:
        self.schema = schema


@pytest.mark.parametrize("schema", [Booking, Answer, Strategy(Booking)])
def test_a_schema_costs_more_than_the_names_in_it(schema: Any) -> None:
    names = "guests notes How many people come" if schema is not Answer else "text source An answer with"
    assert COUNTER.count_response_format(schema) > count(names) + 12


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "json_object"},
        {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object", "properties": {}}}},
        {"type": "object", "properties": {"a": {"type": "string"}}},
        {"title": "T", "description": "d", "type": "object", "properties": {"a": {"type": "string"}}},
    ],
)
def test_a_response_format_costs_at_least_its_compact_json(schema: dict[str, Any]) -> None:
    assert COUNTER.count_response_format(schema) >= count(compact_json(schema)) + 12


# -- images by model


@pytest.mark.parametrize(
    ("model", "size", "tokens"),
    [
        ("gpt-4o", (1024, 1024), 85 + 4 * 170),
        ("gpt-4o-mini", (1024, 1024), 2_833 + 4 * 5_667),
        ("gpt-4.1-mini", (1024, 1024), 1_659),  # 32 x 32 patches at 1.62
        ("gpt-4.1-mini", (4_000, 4_000), 2_489),  # shrunk to 1,536 patches
        ("o4-mini-2025-04-16", (1024, 1024), 1_762),
        ("gpt-4.1-mini", (64, 64), 255),  # as `ChatOpenAI` counts it, which is more
    ],
)
def test_an_image_costs_what_the_model_charges(model: str, size: tuple[int, int], tokens: int) -> None:
    image = f"data:image/png;base64,{picture(*size)}"
    assert image_tokens(image, rate=image_rate(model)) == tokens


def test_a_link_costs_the_dearest_that_the_model_charges() -> None:
    assert image_tokens(None, rate=image_rate("gpt-4.1-nano")) == math.ceil(1_536 * 2.46)


def test_low_detail_costs_the_base_where_there_are_tiles() -> None:
    assert image_tokens(None, low_detail=True, rate=ImageRate(base_tokens=7)) == 7
    assert image_tokens(None, low_detail=True, rate=image_rate("gpt-5-mini")) == 2_489


def test_a_counter_for_a_model_knows_what_the_model_charges_for_images() -> None:
    message = HumanMessage([{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}])
    mini, plain = TiktokenCounter("gpt-4o-mini"), TiktokenCounter("gpt-4o")
    assert mini.count_message(message) - plain.count_message(message) == 2_833 + 8 * 5_667 - 1_445
