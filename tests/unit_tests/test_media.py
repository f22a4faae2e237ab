"""Holds media to being known in every form of providers, and to the lines that tell of them."""

import base64
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_ctxbudget.content import Part, has_media
from langchain_ctxbudget.messages import placeholder_of, plain_text, readable_text_of, without_media

DATA = base64.b64encode(bytes(range(250)) * 36).decode()
ADDRESS = "https://example.org/a.png"
FORMS: list[tuple[dict[str, Any], tuple[str, str, int]]] = [
    ({"type": "image", "base64": DATA, "mime_type": "image/png"}, ("image", "image/png", 9_000)),
    ({"type": "image", "url": ADDRESS}, ("image", "", 0)),
    ({"type": "image", "file_id": "file-1"}, ("image", "", 0)),
    (
        {"type": "image", "source_type": "base64", "data": DATA, "mime_type": "image/png"},
        ("image", "image/png", 9_000),
    ),
    (
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}},
        ("image", "image/png", 9_000),
    ),
    ({"type": "image_url", "image_url": {"url": ADDRESS}}, ("image", "", 0)),
    (
        {"type": "image_url", "image_url": f"data:image/png;base64,{DATA}"},
        ("image", "image/png", 9_000),
    ),
    (
        {"type": "input_image", "image_url": f"data:image/png;base64,{DATA}"},
        ("image", "image/png", 9_000),
    ),
    (
        {"type": "image_generation_call", "id": "ig_1", "output_format": "png", "result": DATA},
        ("image", "image/png", 9_000),
    ),
    (
        {
            "type": "file",
            "file": {"file_data": f"data:application/pdf;base64,{DATA}", "filename": "a.pdf"},
        },
        ("file", "application/pdf", 9_000),
    ),
    ({"type": "input_file", "file_id": "file-1"}, ("file", "", 0)),
    (
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": DATA},
        },
        ("file", "application/pdf", 9_000),
    ),
    ({"type": "media", "mime_type": "audio/wav", "data": DATA}, ("audio", "audio/wav", 9_000)),
    ({"type": "input_audio", "input_audio": {"data": DATA, "format": "wav"}}, ("audio", "", 9_000)),
    ({"type": "video", "base64": DATA, "mime_type": "video/mp4"}, ("video", "video/mp4", 9_000)),
]


@pytest.mark.parametrize(("block", "expected"), FORMS)
def test_a_medium_is_known_in_every_form(
    block: dict[str, Any], expected: tuple[str, str, int]
) -> None:
    medium = Part(block).medium
    assert medium is not None
    assert (medium.kind, medium.mime_type, medium.size_bytes) == expected


@pytest.mark.parametrize(("block", "expected"), FORMS)
def test_a_medium_in_a_wrapper_of_langchain_is_the_same(
    block: dict[str, Any], expected: tuple[str, str, int]
) -> None:
    medium = Part({"type": "non_standard", "value": block}).medium
    assert medium is not None
    assert medium.kind == expected[0]


@pytest.mark.parametrize(
    "block",
    [
        "text",
        {"type": "text", "text": "text"},
        {"type": "text-plain", "text": "a list"},
        {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": "a clause"},
        },
        {"type": "search_result", "source": ADDRESS, "title": "Rents", "content": []},
        {"type": "hologram", "data": DATA},
        {},
    ],
)
def test_what_is_text_or_unknown_is_no_medium(block: Any) -> None:
    assert Part(block).medium is None


@pytest.mark.parametrize(
    ("block", "line"),
    [
        ({"type": "image_url", "image_url": {"url": ADDRESS}}, "[image left out]"),
        (
            {"type": "image", "base64": DATA, "mime_type": "image/png"},
            "[image left out: image/png, 9 KB]",
        ),
        (
            {"type": "image", "base64": "QUJD" * 9, "mime_type": "image/png"},
            "[image left out: image/png, 27 bytes]",
        ),
        (
            {"type": "file", "base64": DATA * 200, "filename": "a]\n.pdf"},
            "[file left out: a) .pdf, 1.8 MB]",
        ),
        (
            {"type": "image_generation_call", "result": DATA, "revised_prompt": "A red cat"},
            "[image left out: A red cat, 9 KB]",
        ),
        ({"type": "hologram", "data": DATA}, "[hologram left out: 12 KB]"),
        (
            {"type": "mcp_call", "server_label": "desk", "name": "get_note", "arguments": "{}"},
            "[call of get_note of desk left out]",
        ),
        ({"type": "server_tool_result", "tool_call_id": "s1"}, "[results of a tool left out]"),
        ({"type": "compaction", "encrypted_content": DATA}, "[compaction left out]"),
        ({}, "[content left out]"),
    ],
)
def test_the_line_says_what_is_left_out(block: dict[str, Any], line: str) -> None:
    assert placeholder_of(Part(block)) == line


def test_the_line_names_the_reference_under_which_it_is_shown_again() -> None:
    block = {"type": "image", "base64": DATA, "mime_type": "image/png"}
    assert placeholder_of(Part(block), "#12") == '[image left out: image/png, 9 KB; recall "#12"]'
    assert (
        placeholder_of(Part({"type": "hologram", "data": DATA}), "#12")
        == "[hologram left out: 12 KB]"
    )


def test_words_beside_data_are_not_told_as_left_out() -> None:
    block = {"type": "hologram", "title": "A vase", "data": DATA}
    assert readable_text_of(Part(block)) == "[hologram]\nA vase\n[data left out: 12 KB]"


RESULT = {
    "type": "search_result",
    "source": ADDRESS,
    "title": "Rents",
    "content": [{"type": "text", "text": "They rise.", "citations": {"enabled": True}}],
}


@pytest.mark.parametrize(
    ("block", "text"),
    [
        (RESULT, f"[search_result]\n{ADDRESS}\nRents\nThey rise."),
        (
            {"type": "document", "source": {"type": "text", "data": "A clause."}, "title": "Lease"},
            "[document]\nLease\nA clause.",
        ),
        (
            {"type": "code_execution_result", "code_execution_result": "55\n", "outcome": 1},
            "[Result of code_execution]\n55",
        ),
        (
            {
                "type": "web_search_call",
                "action": {"type": "find_in_page", "url": "https://a.example", "pattern": "fox"},
            },
            "[web_search: https://a.example, pattern: fox]",
        ),
        (
            {
                "type": "server_tool_use",
                "name": "text_editor_code_execution",
                "input": {"command": "create", "path": "a.py", "file_text": "print(1)"},
            },
            "[text_editor_code_execution: create, path: a.py, file_text: print(1)]",
        ),
        ({"type": "json", "json": {"rent": 700}}, '[json]\n{"rent": 700}'),
        (
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "A clause."},
            },
            "[document]\nA clause.",
        ),
        (
            {
                "type": "web_search_tool_result",
                "content": [{"title": "Rents", "encrypted_content": DATA}],
            },
            "[Result of web_search]\n- Rents",
        ),
        ({"type": "hologram", "note": "It turns.", "id": "h-1"}, "[hologram]\nIt turns."),
    ],
)
def test_a_block_is_told_by_the_words_in_it(block: dict[str, Any], text: str) -> None:
    assert readable_text_of(Part(block)) == text


def test_the_words_of_a_search_result_are_among_those_of_its_message() -> None:
    assert "They rise." in plain_text(ToolMessage([RESULT], tool_call_id="c1"))


def test_a_block_that_contains_itself_is_told() -> None:
    block: dict[str, Any] = {"type": "hologram", "note": "It turns."}
    block["parts"] = [block]
    assert readable_text_of(Part(block)).startswith("[hologram]\nIt turns.")


def test_a_message_without_its_media_keeps_its_texts() -> None:
    content: Any = [
        {"type": "text", "text": "Look:"},
        {"type": "image", "url": ADDRESS},
        "and tell.",
    ]
    message = HumanMessage(content)
    line = {"type": "text", "text": "[image left out]"}
    assert without_media(message).content == [{"type": "text", "text": "Look:"}, line, "and tell."]
    assert has_media(message)
    assert not has_media(without_media(message))


def test_reasoning_stays_with_a_call_that_the_provider_has_run() -> None:
    """Refused with "Item 'ci_1' was provided without its required 'reasoning' item: 'rs_1'"."""
    thought = {"type": "reasoning", "id": "rs_1", "summary": []}
    call = {"type": "code_interpreter_call", "id": "ci_1", "code": "6 * 7", "outputs": []}
    other_thought = {"type": "reasoning", "id": "rs_2", "summary": []}
    picture = {"type": "image_generation_call", "id": "ig_1", "result": "iVBORw0KGgo" + "A" * 400}

    shown = without_media(AIMessage([thought, call, other_thought, picture]))

    assert shown.content[:2] == [thought, call]
    assert [block["type"] for block in shown.content[2:]] == ["text"]  # type: ignore[index]
