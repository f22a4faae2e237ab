"""Tests that an export of ChatGPT is read as it is now, and nothing that was said is lost."""

import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from langchain_ctxbudget.readers import ReadConversation, parse_conversations


def only(value: object) -> ReadConversation:
    """The only conversation of a file with this JSON."""
    [conversation] = parse_conversations(json.dumps(value).encode()).conversations
    return conversation


def texts(conversation: ReadConversation) -> list[object]:
    return [message.content for message in conversation.messages]


def node(key: str, parent: str | None, role: object, *parts: object, **more: Any) -> Any:
    """A message of a ChatGPT export, with more fields of it."""
    message = {
        "id": key,
        "author": {"role": role, "name": None, "metadata": {}},
        "content": {"content_type": "text", "parts": list(parts)},
    }
    return {"id": key, "parent": parent, "message": message | more}


ROOT = {"id": "root", "parent": None, "message": None}


def export(*nodes: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A conversation of a ChatGPT export, with more fields of it."""
    conversation = {
        "title": "Bread",
        "conversation_id": "c1",
        "current_node": nodes[-1]["id"],
        "mapping": {node["id"]: node for node in [ROOT, *nodes]},
    }
    return conversation | more


BRANCHED = (
    node("q", "root", "user", "Rye?", create_time=1_785_748_320.0),
    node("old", "q", "assistant", "No", create_time=1_785_748_330.0),
    node("new", "q", "assistant", "Yes", create_time=1_785_748_340.0),
    node("thanks", "old", "user", "Pity", create_time=1_785_748_335.0),
)


def test_a_chatgpt_export_keeps_titles_ids_and_times() -> None:
    conversation = only([export(*BRANCHED[:2])])

    assert conversation.conversation_id == "c1"
    assert conversation.title == "Bread"
    assert conversation.messages == [
        HumanMessage("Rye?", id="q", additional_kwargs={"created_at": "2026-08-03T09:12:00+00:00"}),
        AIMessage("No", id="old", additional_kwargs={"created_at": "2026-08-03T09:12:10+00:00"}),
    ]


@pytest.mark.parametrize(
    ("current", "expected"),
    [("thanks", ["Rye?", "No", "Pity"]), ("new", ["Rye?", "Yes"])],
)
def test_the_path_goes_to_the_current_node(current: str, expected: list[object]) -> None:
    assert texts(only(export(*BRANCHED, current_node=current))) == expected


@pytest.mark.parametrize("current", [None, "gone"])
def test_without_a_current_node_the_newest_branch_is_read(current: str | None) -> None:
    assert texts(only(export(*BRANCHED, current_node=current))) == ["Rye?", "Yes"]


def test_a_missing_current_node_is_noted() -> None:
    assert only(export(*BRANCHED, current_node="gone")).notes


def test_other_branches_are_kept_beside_the_conversation() -> None:
    [other] = only(export(*BRANCHED, current_node="new")).branches

    assert texts(other) == ["Rye?", "No", "Pity"]
    assert (other.conversation_id, other.title) == ("c1-branch-1", "Bread (branch 1)")


PAGE = {"content_type": "tether_quote", "text": "I live in Rome."}
THOUGHTS = {"content_type": "thoughts", "thoughts": [{"content": "private"}]}
HIDDEN = {"is_visually_hidden_from_conversation": True}


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(node("1", "root", "user", "About me", metadata=HIDDEN), id="hidden"),
        pytest.param(node("1", "root", "assistant", "superseded", weight=0), id="superseded"),
        pytest.param(node("1", "root", "assistant", "  "), id="blank"),
        pytest.param(node("1", "root", "assistant", content=None), id="empty"),
        pytest.param(node("1", "root", "assistant", content=THOUGHTS), id="thoughts"),
    ],
)
def test_what_nobody_said_is_not_read(message: dict[str, Any]) -> None:
    said = node("2", "1", "user", "Rye?")

    assert texts(only(export(message, said))) == ["Rye?"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param({"content_type": "text", "parts": ["a", None, "b"]}, "a\nb", id="text"),
        pytest.param(
            {"content_type": "code", "language": "python", "text": "x = 1"}, "x = 1", id="code"
        ),
        pytest.param(
            {
                "content_type": "multimodal_text",
                "parts": [{"asset_pointer": "file-service://x"}, PAGE, "Hm?"],
            },
            "[file: x]\nI live in Rome.\nHm?",
            id="words beside a file and a page",
        ),
    ],
)
def test_what_was_said_is_read(content: dict[str, Any], expected: str) -> None:
    assert texts(only(export(node("1", "root", "assistant", content=content)))) == [expected]


def test_what_a_tool_printed_is_the_assistants() -> None:
    author = {"role": "tool", "name": "python", "metadata": {}}

    [message] = only(export(node("1", "root", "tool", "2", author=author))).messages

    assert message.type == "ai"


QUESTION = node("q", "root", "user", "Rye?")


def said_by(role: str, content: dict[str, Any], **more: Any) -> list[object]:
    """What a message with this content says behind a question."""
    return texts(only(export(QUESTION, node("1", "q", role, content=content, **more))))[1:]


SPOKEN = {"content_type": "audio_transcription", "text": "Rye, please.", "direction": "in"}
SOUND = {
    "content_type": "real_time_user_audio_video_asset_pointer",
    "audio_asset_pointer": {"asset_pointer": "sediment://file_1"},
}
PICTURE = {"content_type": "image_asset_pointer", "asset_pointer": "sediment://file_2"}
ATTACHED = [
    {"id": "file_2", "name": "loaf.png", "mime_type": "image/png"},
    {"id": "file_3", "name": "notes.pdf", "mime_type": "application/pdf"},
]


@pytest.mark.parametrize(
    ("parts", "metadata", "expected"),
    [
        pytest.param([SOUND, SPOKEN], {}, "Rye, please.", id="a voice"),
        pytest.param([SOUND], {}, "[audio: file_1]", id="a voice without its words"),
        pytest.param([PICTURE, "This"], {}, "[image: file_2]\nThis", id="a picture"),
        pytest.param(
            [PICTURE, "This"],
            {"attachments": ATTACHED},
            "[image: loaf.png]\nThis\n[file: notes.pdf, application/pdf]",
            id="a picture and a file with names",
        ),
    ],
)
def test_voices_are_words_and_files_are_named(
    parts: list[Any], metadata: dict[str, Any], expected: str
) -> None:
    content = {"content_type": "multimodal_text", "parts": parts}

    assert said_by("user", content, metadata=metadata) == [expected]


@pytest.mark.parametrize(
    ("text", "references", "expected"),
    [
        pytest.param("Rye \ue200cite\ue202turn0search1\ue201.", [], "Rye.", id="a source"),
        pytest.param(
            "Rye \ue200cite\ue202turn0search1\ue201.",
            [{"matched_text": "\ue200cite\ue202turn0search1\ue201", "alt": "([Mill](https://m))"}],
            "Rye ([Mill](https://m)).",
            id="a source with a link",
        ),
        pytest.param(
            'In \ue200entity\ue202["city","Rome","Italy"]\ue201 now',
            [],
            "In Rome now",
            id="a name inside a mark",
        ),
        pytest.param(
            "Rye【4:0†notes.pdf】, or oats【1†source】", [], "Rye, or oats", id="older marks"
        ),
        pytest.param("Rye \ue200cite", [], "Rye cite", id="a mark that was cut off"),
    ],
)
def test_marks_of_citations_are_made_readable(
    text: str, references: list[dict[str, Any]], expected: str
) -> None:
    content = {"content_type": "text", "parts": [text]}

    answer = said_by("assistant", content, metadata={"content_references": references})

    assert answer == [expected]


CODE = {"content_type": "code", "text": "print(2)"}
OUTPUT = {"content_type": "execution_output", "text": "2"}


def tool(key: str, parent: str, name: str, content: dict[str, Any]) -> Any:
    """A message of a tool."""
    return node(key, parent, "tool", author={"role": "tool", "name": name}, content=content)


def test_a_tool_is_called_and_answers_once() -> None:
    call = node("c", "q", "assistant", content=CODE, recipient="python")
    more = {"content_type": "tether_quote", "title": "Mill", "url": "https://m", "text": "Rye 1200"}

    messages = only(
        export(QUESTION, call, tool("r", "c", "python", OUTPUT), tool("s", "r", "python", more))
    ).messages

    assert messages[1:] == [
        AIMessage(
            "",
            id="c",
            tool_calls=[
                {"name": "python", "args": {"input": "print(2)"}, "id": "c", "type": "tool_call"}
            ],
        ),
        ToolMessage("2\n\nMill\nhttps://m\nRye 1200", id="r", tool_call_id="c", name="python"),
    ]


def test_a_call_without_a_result_is_words() -> None:
    assert said_by("assistant", CODE, recipient="python") == ["print(2)"]


@pytest.mark.parametrize(
    ("recipient", "text", "expected"),
    [
        pytest.param(
            "canmore.create_textdoc",
            json.dumps({"name": "Recipe", "type": "document", "content": "500 g of rye"}),
            "[canvas: Recipe]\n500 g of rye",
            id="a document",
        ),
        pytest.param(
            "canmore.update_textdoc",
            json.dumps({"updates": [{"pattern": ".*", "replacement": "600 g of rye"}]}),
            "[canvas: the document]\n600 g of rye",
            id="a change",
        ),
        pytest.param(
            "canmore.comment_textdoc",
            json.dumps({"comments": [{"pattern": "rye", "comment": "Which?"}]}),
            "[canvas: the document]\nWhich?",
            id="a comment",
        ),
        pytest.param("canmore.create_textdoc", "{bro", "[canvas: the document]\n{bro", id="broken"),
        pytest.param("bio", "Likes rye.", "[memory: Likes rye.]", id="a memory"),
    ],
)
def test_what_is_written_beside_the_conversation_is_said(
    recipient: str, text: str, expected: str
) -> None:
    content = {"content_type": "text", "parts": [text]}
    call = node("c", "q", "assistant", content=content, recipient=recipient)
    done = tool("r", "c", recipient, {"content_type": "text", "parts": ["Done."]})

    assert texts(only(export(QUESTION, call, done)))[1:] == [expected]


@pytest.mark.parametrize(
    "content",
    [
        {"content_type": "user_editable_context", "user_instructions": "Be brief."},
        {"content_type": "model_editable_context", "model_set_context": "Be brief."},
    ],
)
def test_custom_instructions_and_memories_are_instructions(content: dict[str, Any]) -> None:
    laid_down = node("i", "root", "user", content=content, metadata=HIDDEN)
    asked = node("q", "i", "user", "Rye?")

    assert only(export(laid_down, asked)).messages[0] == SystemMessage("Be brief.", id="i")


def test_the_report_of_a_deep_research_is_said() -> None:
    report = {"content": {"parts": ["Rye is old."]}}
    state = json.dumps({"status": "completed", "report_message": report})
    content = {"content_type": "text", "parts": ["{}"]}

    answer = said_by("tool", content, metadata={"chatgpt_sdk": {"widget_state": state}})

    assert answer == ["Rye is old."]


def test_a_conversation_of_an_unknown_role_is_skipped_by_its_title() -> None:
    strange = export(node("1", "root", "robot", "Rye?"), title="Strange")

    result = parse_conversations(json.dumps([strange, export(QUESTION)]).encode())

    assert [one.title for one in result.conversations] == ["Bread"]
    assert [str(one) for one in result.skipped] == [
        "Strange: message '1' has the unknown role 'robot'"
    ]


def test_a_message_without_an_id_is_named_by_its_number() -> None:
    strange = export(node("1", "root", "robot", "Rye?"), title="Strange")
    del strange["mapping"]["1"]["message"]["id"]

    result = parse_conversations(json.dumps([strange, export(QUESTION)]).encode())

    [skipped] = result.skipped
    assert skipped.reason.startswith("message 2 has the unknown role")
