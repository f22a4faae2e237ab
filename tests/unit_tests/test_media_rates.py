"""Holds what images, files and recordings cost to what each provider documents."""

import base64
import io
import struct
import wave
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage
from PIL import Image

from langchain_ctxbudget.content import Medium, Size, measures_of
from langchain_ctxbudget.content.measures import image_size
from langchain_ctxbudget.providers import ANTHROPIC, COMMON, GOOGLE, OPENAI, Profile
from langchain_ctxbudget.tokens import EstimatingCounter, TiktokenCounter, counter_for

# Each from the provider's own page; see the profiles.
DOCUMENTED = [
    (OPENAI, "gpt-4o", (1_024, 1_024), 765),
    (OPENAI, "gpt-4o", (2_048, 4_096), 1_105),
    (OPENAI, "gpt-4o-mini", (1_024, 1_024), 25_501),
    (OPENAI, "gpt-5", (1_024, 1_024), 630),
    (OPENAI, "o3", (1_024, 1_024), 675),
    (OPENAI, "gpt-4.1-mini", (1_024, 1_024), 1_659),
    (OPENAI, "gpt-4.1-mini-2025-04-14", (1_800, 2_400), 2_353),
    (OPENAI, "gpt-5.2", (1_800, 2_400), 1_452),
    (OPENAI, "gpt-5.5", (2_560, 1_440), 3_600),
    (OPENAI, "openai/gpt-5.6-sol", (8_000, 3_200), 25_000),
    (ANTHROPIC, "claude-opus-4-7", (2_560, 1_440), 4_784),
    (ANTHROPIC, "claude-opus-5", (3_840, 2_160), 4_784),
    (ANTHROPIC, "claude-opus-5", (2_000, 1_500), 3_888),
    (ANTHROPIC, "claude-sonnet-4-5", (1_920, 1_080), 1_560),
    (ANTHROPIC, "us.anthropic.claude-sonnet-4-5-20250929-v1:0", (2_000, 1_500), 1_564),
    (ANTHROPIC, "claude-3-5-haiku-latest", (1_000, 1_000), 1_296),
    (ANTHROPIC, "claude-haiku-4-5", (200, 200), 64),
    (GOOGLE, "gemini-2.5-flash", (384, 384), 258),
    (GOOGLE, "gemini-2.5-flash", (4_000, 4_000), 9_288),
    (GOOGLE, "models/gemini-3-pro-preview", (4_000, 4_000), 1_120),
]


@pytest.mark.parametrize(("profile", "model", "size", "tokens"), DOCUMENTED)
def test_an_image_costs_what_the_provider_documents(
    profile: Profile, model: str, size: tuple[int, int], tokens: int
) -> None:
    assert profile.media.rates_for(model).image.tokens(Size(*size)) == tokens


@pytest.mark.parametrize(
    ("model", "tokens"), [("gpt-4o", 85), ("gpt-4o-mini", 2_833), ("gpt-5.2", 256)]
)
def test_low_detail_costs_the_least(model: str, tokens: int) -> None:
    image = OPENAI.media.rates_for(model).image

    assert image.tokens(Size(3_000, 2_000), "low") == tokens


def test_a_resolution_may_be_asked_for() -> None:
    image = GOOGLE.media.rates_for("gemini-3-flash").image

    assert image.tokens(None, "media_resolution_low") == 280


@pytest.mark.parametrize("profile", [COMMON, OPENAI, ANTHROPIC, GOOGLE])
@given(width=st.integers(1, 10**7), height=st.integers(1, 10**7))
@settings(max_examples=50, deadline=None)
def test_an_image_of_any_size_costs_something(profile: Profile, width: int, height: int) -> None:
    for model in ("", *profile.media.images_of_families):
        assert profile.media.rates_for(model).image.tokens(Size(width, height)) > 0


# Where it stands makes no difference


def encoded(image: Image.Image, form: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


SCREEN = base64.b64encode(encoded(Image.new("RGB", (2_560, 1_440)))).decode()


@pytest.mark.parametrize(
    ("model", "tokens"),
    [("anthropic:claude-opus-4-7", 4_784), ("gpt-4o", 1_105), ("gpt-5.5", 3_600)],
)
def test_a_counter_counts_images_as_its_model_does(model: str, tokens: int) -> None:
    from langchain_anthropic import ChatAnthropic  # noqa: PLC0415 - takes a second

    name = model.removeprefix("anthropic:")
    counter = counter_for(name if name == model else ChatAnthropic(model=name, api_key="x"))
    image = {"type": "image", "base64": SCREEN, "mime_type": "image/png"}

    added = counter.count_message(HumanMessage([image])) - counter.count_message(HumanMessage([]))
    assert added == tokens


def test_a_given_counter_takes_the_rates_of_the_model() -> None:
    counter = EstimatingCounter().with_media(OPENAI.media.rates_for("gpt-4o"))

    assert counter.media == OPENAI.media.rates_for("gpt-4o")
    assert counter.count_text("tea") == EstimatingCounter().count_text("tea")


@pytest.mark.parametrize(
    "block",
    [
        {"type": "tool_result", "tool_use_id": "x", "content": "IMAGE"},
        {"type": "computer_call_output", "call_id": "x", "note": {"inner": ["IMAGE"]}},
    ],
)
def test_an_image_inside_another_block_is_no_text(block: dict[str, Any]) -> None:
    image = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": SCREEN * 20},
    }
    holder = {
        key: [image] if value == "IMAGE" else value for key, value in block.items() if key != "note"
    }
    if "note" in block:
        holder["note"] = {"inner": [image]}

    assert 1_105 < TiktokenCounter().count_message(HumanMessage([holder])) < 1_200


# PDFs, recordings, other files


def pdf(pages: int) -> str:
    from pypdf import PdfWriter  # noqa: PLC0415 - not every installation has it

    writer = PdfWriter()
    for _ in range(pages):
        writer.add_blank_page(200, 200)
    writer.compress_identical_objects()
    file = io.BytesIO()
    writer.write(file)
    return base64.b64encode(file.getvalue()).decode()


def cost(block: dict[str, Any]) -> int:
    counter = TiktokenCounter()
    return counter.count_message(HumanMessage([block])) - counter.count_message(HumanMessage([]))


PDF = "application/pdf"


@pytest.mark.parametrize(
    "block",
    [
        {"type": "file", "base64": pdf(3), "mime_type": PDF},
        {"type": "file", "file": {"file_data": f"data:{PDF};base64,{pdf(3)}", "filename": "a"}},
        {"type": "input_file", "file_data": f"data:{PDF};base64,{pdf(3)}", "filename": "a.pdf"},
        {"type": "document", "source": {"type": "base64", "media_type": PDF, "data": pdf(3)}},
        {"type": "media", "mime_type": PDF, "data": base64.b64decode(pdf(3))},
    ],
)
def test_a_pdf_costs_its_pages(block: dict[str, Any]) -> None:
    assert cost(block) == 9_000


def test_a_pdf_that_cannot_be_read_costs_by_its_bytes() -> None:
    data = base64.b64encode(b"%PDF-1.7\n" + bytes(300_000)).decode()

    assert cost({"type": "file", "base64": data, "mime_type": PDF}) == 33_000


@pytest.mark.parametrize(
    "block",
    [
        {"type": "file", "file_id": "file-1", "mime_type": PDF},
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "input_file", "file_id": "file-1"},
        {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
        {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}},
        {"type": "media", "mime_type": PDF, "file_uri": "https://example.org/files/1"},
        {"type": "audio", "url": "https://example.org/a.mp3"},
    ],
)
def test_a_file_that_is_somewhere_else_costs_a_full_page(block: dict[str, Any]) -> None:
    assert cost(block) == 3_000


def wav(seconds: int) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as recording:
        recording.setnchannels(1)
        recording.setsampwidth(2)
        recording.setframerate(8_000)
        recording.writeframes(bytes(16_000 * seconds))
    return file.getvalue()


def test_a_recording_costs_its_seconds() -> None:
    data = base64.b64encode(wav(10)).decode()

    assert cost({"type": "audio", "base64": data, "mime_type": "audio/wav"}) == 320


# Headers

FORMS = [
    ("PNG", {}),
    ("GIF", {}),
    ("JPEG", {}),
    ("JPEG", {"progressive": True}),
    ("WEBP", {}),
    ("WEBP", {"lossless": True}),
    ("WEBP", {"exif": b"Exif\x00\x00" + bytes(9)}),
]


@pytest.mark.parametrize(("form", "options"), FORMS)
@pytest.mark.parametrize("size", [(1, 1), (640, 480), (1_023, 2_049)])
def test_the_size_of_an_image_is_read(
    form: str, options: dict[str, Any], size: tuple[int, int]
) -> None:
    assert image_size(encoded(Image.new("RGB", size, "teal"), form, **options)) == size


def test_the_size_of_a_jpeg_may_stand_behind_much_else() -> None:
    data = encoded(Image.new("RGB", (64, 32)), "JPEG")
    thumbnail = b"\xff\xe1" + struct.pack(">H", 60_002) + bytes(60_000)
    medium = Medium("image", payload=base64.b64encode(data[:2] + thumbnail + data[2:]).decode())

    assert measures_of(medium).size == (64, 32)


@pytest.mark.slow
@given(
    st.sampled_from([encoded(Image.new("RGB", (9, 9)), form) for form, _ in FORMS[:5]]), st.data()
)
@settings(max_examples=200, deadline=None)
def test_broken_bytes_have_no_size_or_some(data: bytes, choices: st.DataObject) -> None:
    broken = bytearray(data[: choices.draw(st.integers(0, len(data)))])
    for at in choices.draw(st.lists(st.integers(0, max(0, len(broken) - 1)), max_size=4)):
        if broken:
            broken[at] = choices.draw(st.integers(0, 255))

    size = image_size(bytes(broken))
    assert size is None or min(size) > 0


@given(st.binary(max_size=300))
@settings(max_examples=100, deadline=None)
def test_no_bytes_are_too_strange_to_be_measured(data: bytes) -> None:
    for beginning in (b"", b"%PDF-1.7\n", b"RIFF0000WAVE"):
        payload = base64.b64encode(beginning + data).decode()
        for kind in ("image", "audio", "file"):
            measures_of(Medium(kind, payload=payload))  # type: ignore[arg-type]
