"""Holds costs of messages, images and tools to `ChatOpenAI`'s count, and never to 0 by accident."""

import base64
import io
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.function import FunctionMessage
from langchain_openai import ChatOpenAI
from PIL import Image

from langchain_ctxbudget.tokens import CalibratedCounter, TiktokenCounter
from langchain_ctxbudget.tokens.schemas import compact_json

COUNTER = TiktokenCounter()
count = COUNTER.count_text


EMPTY_HUMAN = COUNTER.count_message(HumanMessage(""))
EMPTY_ASSISTANT = COUNTER.count_message(AIMessage(""))


def human_tokens(*blocks: Any) -> int:
    """Tokens of a human message of these blocks, less its framing."""
    return COUNTER.count_message(HumanMessage(list(blocks))) - EMPTY_HUMAN


def assistant_tokens(*blocks: Any) -> int:
    """Tokens of an assistant's message of these blocks, less its framing."""
    return COUNTER.count_message(AIMessage(list(blocks))) - EMPTY_ASSISTANT


def picture(width: int = 600, height: int = 400, form: str = "PNG", **options: Any) -> str:
    """The base64 of a real image."""
    file = io.BytesIO()
    Image.new("RGB", (width, height)).save(file, form, **options)
    return base64.b64encode(file.getvalue()).decode()


# ChatOpenAI raises on what looks like a special token.
TEXT = st.text(max_size=30).filter(lambda text: "<|" not in text)
NAME = st.text("abcdefgh_-0123", min_size=1, max_size=12)
ARGUMENTS = st.dictionaries(
    TEXT, TEXT | st.integers() | st.none() | st.lists(st.booleans(), max_size=3), max_size=3
)
CALL_ID = st.sampled_from(["call_1", "call_2", "call_3"])
PICTURES = [
    ("image/png", picture(64, 64)),
    ("image/png", picture(3000, 1000)),
    ("image/jpeg", picture(900, 1200, "JPEG")),
    ("image/png", picture(513, 512)),
    ("image/jpeg", picture(2049, 700, "JPEG")),
]


def image_blocks(mime_type: str, data: str) -> list[dict[str, Any]]:
    """Every form in which langchain-openai takes an image."""
    url = f"data:{mime_type};base64,{data}"
    return [
        {"type": "image_url", "image_url": {"url": url, "detail": "low"}},
        {"type": "image_url", "image_url": {"url": url, "detail": "high"}},
        {"type": "image", "source_type": "base64", "mime_type": mime_type, "data": data},
        {"type": "image", "base64": data, "mime_type": mime_type},
        {"type": "image", "url": url, "detail": "low"},
        {"type": "image", "source": {"type": "base64", "media_type": mime_type, "data": data}},
    ]


IMAGE_BLOCKS: list[dict[str, Any]] = []
for image_type, image_data in PICTURES:
    IMAGE_BLOCKS += image_blocks(image_type, image_data)
TEXT_BLOCK = st.builds(
    lambda text, extra: {"type": "text", "text": text, **extra},
    TEXT,
    st.sampled_from(
        [{}, {"id": "t1"}, {"annotations": []}, {"extras": {"prompt_cache_breakpoint": True}}]
    ),
)
# By index, so that a failure does not print every image.
IMAGE_BLOCK = st.integers(0, len(IMAGE_BLOCKS) - 1).map(lambda index: IMAGE_BLOCKS[index])
BLOCKS = st.lists(st.one_of(TEXT, TEXT_BLOCK, IMAGE_BLOCK), max_size=4)
CONTENT = st.one_of(TEXT, BLOCKS)
CALLS = st.lists(
    st.fixed_dictionaries({"name": NAME, "args": ARGUMENTS, "id": CALL_ID}), max_size=2
)
EXTRAS = st.fixed_dictionaries(
    {}, optional={"audio": st.fixed_dictionaries({"id": CALL_ID, "data": TEXT}), "name": NAME}
)
OPTIONAL_NAME = st.one_of(st.none(), st.just(""), NAME)


MESSAGE = st.one_of(
    st.builds(HumanMessage, CONTENT, name=OPTIONAL_NAME),
    st.builds(HumanMessage, CONTENT, additional_kwargs=st.fixed_dictionaries({"name": NAME})),
    st.builds(SystemMessage, CONTENT, name=OPTIONAL_NAME),
    st.builds(
        SystemMessage, CONTENT, additional_kwargs=st.just({"__openai_role__": "developer in chief"})
    ),
    st.builds(
        ChatMessage, CONTENT, role=st.sampled_from(["user", "critic", "assistant", "developer"])
    ),
    st.builds(FunctionMessage, CONTENT, name=NAME),
    st.builds(ToolMessage, CONTENT, tool_call_id=CALL_ID, name=OPTIONAL_NAME),
    st.builds(AIMessage, CONTENT, name=OPTIONAL_NAME, tool_calls=CALLS, additional_kwargs=EXTRAS),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(messages=st.lists(MESSAGE, max_size=4))
def test_messages_cost_what_chat_openai_says(
    chat_openai: ChatOpenAI, messages: list[BaseMessage]
) -> None:
    assert COUNTER.count_messages(messages) == chat_openai.get_num_tokens_from_messages(messages)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    width=st.integers(1, 3_000),
    height=st.integers(1, 60) | st.integers(1, 1_500),
    tall=st.booleans(),
    form=st.sampled_from(["PNG", "JPEG"]),
)
def test_images_of_any_size_cost_what_chat_openai_says(
    chat_openai: ChatOpenAI, width: int, height: int, tall: bool, form: str
) -> None:
    if tall:
        width, height = height, width
    url = f"data:image/x;base64,{picture(width, height, form)}"

    # Of a side that vanishes when the other is brought to 2,048 pixels, `ChatOpenAI` makes no
    # tiles; here it is one.
    if max(width, height) <= 2_048 * min(width, height):
        messages: list[BaseMessage] = [
            HumanMessage([{"type": "image_url", "image_url": {"url": url}}])
        ]
        assert COUNTER.count_messages(messages) == chat_openai.get_num_tokens_from_messages(
            messages
        )


UNKNOWN_SIZE = [
    "https://example.org/cat.png",
    "data:image/png;base64,AAAA",
    "data:image/svg+xml;utf8,<svg/>",
]


@pytest.mark.parametrize("url", UNKNOWN_SIZE)
def test_an_image_whose_size_cannot_be_read_costs_the_dearest(url: str) -> None:
    assert human_tokens({"type": "image_url", "image_url": {"url": url}}) == 1_445


@pytest.mark.parametrize("url", UNKNOWN_SIZE)
def test_an_address_alone_costs_as_one_with_details(url: str) -> None:
    assert human_tokens({"type": "image_url", "image_url": url}) == 1_445


@pytest.mark.parametrize(
    "block",
    [
        {"type": "input_image", "file_id": "file-1"},
        {"type": "image", "source": {"type": "file", "file_id": "file-1"}},
    ],
    ids=["OpenAI", "Anthropic"],
)
def test_an_image_that_is_stored_elsewhere_costs_the_dearest(block: dict[str, Any]) -> None:
    assert human_tokens(block) == 1_445


def test_a_picture_that_the_model_has_drawn_costs_as_any_other() -> None:
    drawn = {
        "type": "image_generation_call",
        "id": "ig_1",
        "status": "completed",
        "result": picture(1024, 1024),
    }

    assert assistant_tokens(drawn) == 765


SQUARE = f"data:image/png;base64,{picture(1024, 1024)}"
SCREEN = {"type": "computer_screenshot", "image_url": SQUARE}


def test_a_screen_of_a_computer_tool_costs_as_any_other() -> None:
    assert human_tokens(SCREEN) == 765


def test_a_screen_in_a_wrapper_costs_as_any_other() -> None:
    output = {"type": "computer_call_output", "call_id": "c", "output": SCREEN}

    assert human_tokens({"type": "non_standard", "value": output}) == 765


def test_a_correction_leaves_the_bytes_of_a_screen_out_of_the_text() -> None:
    message = ToolMessage(
        SQUARE, tool_call_id="c", additional_kwargs={"type": "computer_call_output"}
    )

    tokens = CalibratedCounter(COUNTER, 2.0).count_message(message)

    assert tokens == 2 * COUNTER.count_message(message)
    assert tokens < 2_000


PDF_BYTES = (
    b"%PDF-1.4\n"
    b"1 0 obj << /Type /Pages /Count 3 >> endobj\n" + b"<< /Type /Page /Parent 1 0 R >>\n" * 3
)


def as_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    ("block", "tokens"),
    [
        ({"type": "file", "base64": as_base64(PDF_BYTES), "mime_type": "application/pdf"}, 9_000),
        (
            {
                "type": "input_file",
                "file_data": f"data:application/pdf;base64,{as_base64(PDF_BYTES)}",
            },
            9_000,
        ),
        (
            {"type": "file", "base64": as_base64(bytes(300_000)), "mime_type": "application/pdf"},
            30_000,
        ),
        ({"type": "file", "base64": as_base64(b"word " * 500), "mime_type": "text/plain"}, 501),
        (
            {"type": "file", "base64": as_base64(bytes(30_000)), "mime_type": "application/zip"},
            3_000,
        ),
        ({"type": "audio", "base64": as_base64(bytes(30_000)), "mime_type": "audio/wav"}, 300),
        (
            {
                "type": "input_audio",
                "input_audio": {"data": as_base64(bytes(30_000)), "format": "wav"},
            },
            300,
        ),
        ({"type": "video", "base64": as_base64(bytes(300_000)), "mime_type": "video/mp4"}, 3_000),
    ],
)
def test_bytes_of_files_are_not_counted_as_text(block: dict[str, Any], tokens: int) -> None:
    assert human_tokens(block) == tokens


@pytest.mark.parametrize(
    "block",
    [
        {"type": "thinking", "thinking": "The user wants to know the hour.", "signature": "c2ln"},
        {"type": "text"},
        {"text": "a block of Bedrock"},
        {"type": "of tomorrow", "value": [1, 2, 3]},
        {},
    ],
    ids=["thinking", "no text", "no type", "unknown", "empty"],
)
def test_a_block_without_a_rule_costs_its_compact_json(block: dict[str, Any]) -> None:
    tokens = assistant_tokens(block)

    assert tokens == count(compact_json(block))
    assert tokens > 0


@pytest.mark.parametrize(
    "block",
    [
        {"type": "tool_use", "id": "call_1", "name": "clock"},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "clock"},
    ],
    ids=["Anthropic", "OpenAI"],
)
def test_a_call_in_any_form_is_counted_once_as_it_is_sent(block: dict[str, Any]) -> None:
    calls = [{"name": "clock", "args": {"zone": "CET"}, "id": "call_1"}]

    tokens = COUNTER.count_message(AIMessage([block], tool_calls=calls))

    assert tokens == COUNTER.count_message(AIMessage("", tool_calls=calls))


def weather_tool(unit: dict[str, Any]) -> dict[str, Any]:
    location = {"type": "string", "description": "The city and state."}
    return {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Get it.",
            "parameters": {
                "type": "object",
                "properties": {"location": location, "unit": unit},
            },
        },
    }


def test_a_tool_costs_the_published_rule_or_its_compact_json() -> None:
    tool = weather_tool(
        {"type": "string", "description": "The unit.", "enum": ["celsius", "fahrenheit"]}
    )

    function = 7 + count("weather:Get it")
    location = 3 + count("location:string:The city and state")
    unit = 3 + count("unit:string:The unit")
    units = -3 + (3 + count("celsius")) + (3 + count("fahrenheit"))
    rule = function + 3 + location + unit + units
    assert COUNTER.count_tools([tool]) == max(rule, count(compact_json(tool))) + 12


def test_a_tool_with_more_than_the_rule_sees_costs_compact_json() -> None:
    nested = {"type": "string", "description": "x " * 50}
    tool = weather_tool(
        {
            "type": "string",
            "description": "",
            "enum": ["celsius", "fahrenheit"],
            "properties": {"nested": nested},
        }
    )

    assert COUNTER.count_tools([tool]) == count(compact_json(tool)) + 12


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "json_object"},
        {
            "type": "json_schema",
            "json_schema": {"name": "n", "schema": {"type": "object", "properties": {}}},
        },
        {
            "title": "T",
            "description": "d",
            "type": "object",
            "properties": {"a": {"type": "string"}},
        },
    ],
    ids=["any object", "a named schema", "a schema alone"],
)
def test_a_response_format_costs_at_least_its_compact_json(schema: dict[str, Any]) -> None:
    assert COUNTER.count_response_format(schema) >= count(compact_json(schema)) + 12


def test_a_compaction_costs_its_words() -> None:
    block = {"type": "compaction", "content": "The plan is green."}
    assert assistant_tokens(block) == count("The plan is green.")


def test_an_encrypted_compaction_costs_a_quarter_of_its_characters() -> None:
    block = {"type": "compaction", "encrypted_content": "gAAAA" + "x7Q" * 665}
    assert assistant_tokens(block) == 500
