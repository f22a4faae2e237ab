"""Messages read into parts: what each block of LangChain and of the providers is."""

from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_ctxbudget.content import (
    Kind,
    Part,
    has_media,
    parts_of,
    text_part,
    with_parts,
    with_text_in_front,
)

CALL = {"name": "look", "args": {"at": "shed"}, "id": "c1"}
TOOL_USE = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}


@pytest.mark.parametrize(
    ("block", "kind"),
    [
        ("Hello", Kind.TEXT),
        ({"type": "text", "text": "Hello"}, Kind.TEXT),
        ({"type": "input_text", "text": "Hello"}, Kind.TEXT),
        ({"type": "image_url", "image_url": {"url": "https://x.invalid/a.png"}}, Kind.IMAGE),
        ({"type": "input_image", "file_id": "file-1"}, Kind.IMAGE),
        ({"type": "image_generation_call", "id": "ig_1", "result": "aaaa"}, Kind.IMAGE),
        ({"type": "input_audio", "input_audio": {"data": "aaaa", "format": "wav"}}, Kind.AUDIO),
        ({"type": "media", "mime_type": "video/mp4", "data": "aaaa"}, Kind.VIDEO),
        ({"type": "file", "file": {"file_data": "aaaa"}}, Kind.FILE),
        ({"type": "thinking", "thinking": "Hm.", "signature": "s"}, Kind.REASONING),
        ({"type": "non_standard", "value": {"type": "redacted_thinking"}}, Kind.REASONING),
        (TOOL_USE, Kind.CALL),
        ({"type": "function_call", "call_id": "c1", "id": "fc_1"}, Kind.CALL),
        ({"type": "computer_call", "call_id": "c1", "id": "cu_1"}, Kind.CALL),
        ({"type": "tool_result", "tool_use_id": "c1", "content": "5 m"}, Kind.RESULT),
        ({"type": "web_search_call", "id": "ws_1"}, Kind.SERVER_CALL),
        ({"type": "server_tool_use", "id": "s1", "name": "web_search"}, Kind.SERVER_CALL),
        ({"type": "executable_code", "code": "1 + 1"}, Kind.SERVER_CALL),
        ({"type": "web_search_tool_result", "tool_use_id": "s1"}, Kind.SERVER_RESULT),
        ({"type": "code_execution_result", "output": "2"}, Kind.SERVER_RESULT),
        ({"type": "citation", "url": "https://x.invalid"}, Kind.CITATION),
        ({"type": "refusal", "refusal": "No."}, Kind.REFUSAL),
        ({"type": "compaction", "content": "The plan is green."}, Kind.COMPACTION),
        ({"type": "hologram"}, Kind.UNKNOWN),
        ({"no": "type"}, Kind.UNKNOWN),
    ],
    ids=lambda value: value["type"] if isinstance(value, dict) and "type" in value else None,
)
def test_the_kind_of_a_part(block: Any, kind: Kind) -> None:
    assert Part(block).kind is kind


def test_only_media_are_media() -> None:
    kinds = {Kind.IMAGE, Kind.AUDIO, Kind.VIDEO, Kind.FILE}
    image = Part({"type": "image", "base64": "aaaa"})

    assert image.is_media
    assert image.kind in kinds
    assert not Part("words").is_media


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (
            {"type": "search_result", "title": "Sheds", "content": [{"text": "5 m"}]},
            ["Sheds", "5 m"],
        ),
        ({"type": "json", "json": {"long": 5}}, ['{"long": 5}']),
        ({"type": "hologram", "data": "A" * 400}, []),
    ],
)
def test_the_words_inside_a_part(block: Any, words: list[str]) -> None:
    assert list(Part(block).words) == words


def test_a_payload_is_measured_and_no_text() -> None:
    part = Part({"type": "hologram", "data": "A" * 400})

    assert part.payload_characters == 400


@pytest.mark.parametrize(
    ("block", "call_id"),
    [
        (TOOL_USE, "c1"),
        ({"type": "function_call", "call_id": "c1", "id": "fc_1"}, "c1"),
        ({"type": "computer_call", "call_id": "c1", "id": "cu_1"}, "c1"),
        ({"type": "tool_result", "tool_use_id": "c1"}, "c1"),
        ({"type": "text", "text": "x", "id": "msg_1"}, ""),
        ("words", ""),
    ],
)
def test_the_call_that_a_part_belongs_to(block: Any, call_id: str) -> None:
    assert Part(block).call_id == call_id


@pytest.mark.parametrize(
    ("block", "provider"),
    [
        ({"type": "thinking", "thinking": "Hm."}, "anthropic"),
        ({"type": "web_search_call", "id": "ws_1"}, "openai"),
        ({"type": "executable_code", "code": "1"}, "google"),
        ({"type": "text", "text": "x"}, ""),
    ],
)
def test_whose_form_a_part_is_in(block: Any, provider: str) -> None:
    assert Part(block).provider == provider


def test_a_call_that_langchain_lists_is_listed() -> None:
    [part] = parts_of(AIMessage([TOOL_USE], tool_calls=[CALL]))

    assert part.is_listed_call
    assert not part.is_raw


def test_a_call_that_langchain_does_not_list_is_raw() -> None:
    [part] = parts_of(HumanMessage([TOOL_USE]))

    assert part.is_raw
    assert not part.is_listed_call


def test_the_screen_of_a_computer_tool_is_an_image() -> None:
    screen = ToolMessage(
        "data:image/png;base64,aaaa",
        tool_call_id="c1",
        additional_kwargs={"type": "computer_call_output"},
    )

    assert [part.kind for part in parts_of(screen)] == [Kind.IMAGE]
    assert has_media(screen)


def test_a_part_does_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        Part("words").block = "others"  # type: ignore[misc]


def test_a_text_may_stand_for_another_part() -> None:
    picture = Part({"type": "image", "base64": "aaaa"})
    line = text_part("[image left out]", in_place_of=picture)

    assert line.plain_text == "[image left out]"
    assert line.in_place_of is picture


@pytest.mark.parametrize(
    ("content", "with_front"),
    [
        ("words", "In front: words"),
        (["words"], [{"type": "text", "text": "In front: "}, "words"]),
    ],
)
def test_a_text_in_front_leaves_the_content_as_it_is(content: Any, with_front: Any) -> None:
    message = HumanMessage(content)

    assert with_text_in_front(message, "In front: ").content == with_front
    assert message.content == content


TYPES = st.sampled_from(
    [
        "",
        "computer_call_output",
        "compaction",
        "document",
        "file",
        "image",
        "image_url",
        "json",
        "media",
        "non_standard",
        "text",
        "thinking",
        "tool_result",
        "tool_use",
        "x_call",
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["type", "text", "url", "data", "id"]), inner, max_size=3)
    ),
    max_leaves=6,
)
KEYS = st.sampled_from(
    ["text", "id", "call_id", "value", "source", "image_url", "data", "output", "extras", "json"]
)
BLOCKS = st.text(max_size=8) | st.builds(
    lambda kind, fields: {"type": kind, **fields}, TYPES, st.dictionaries(KEYS, VALUES, max_size=3)
)


@given(st.lists(BLOCKS, max_size=4))
def test_any_content_is_read_and_written_as_it_was(content: list[Any]) -> None:
    message = HumanMessage(content)
    parts = parts_of(message)

    assert with_parts(message, parts).content == content
    for part in parts:
        assert isinstance(part.kind, Kind)
        assert part.is_media is (part.medium is not None)
        assert all(isinstance(text, str) for text in part.words)
        assert isinstance(part.call_id, str)
