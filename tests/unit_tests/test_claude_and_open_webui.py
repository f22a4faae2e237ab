"""Tests that exports of Claude and Open WebUI are read, and nothing that was said is lost."""

import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from langchain_ctxbudget.readers import ReadConversation, parse_conversations

AT = "2026-08-03T09:12:00Z"
DATED = {"created_at": AT}


def only(value: object) -> ReadConversation:
    """The only conversation of a file with this JSON."""
    [conversation] = parse_conversations(json.dumps(value).encode()).conversations
    return conversation


def texts(conversation: ReadConversation) -> list[object]:
    return [message.content for message in conversation.messages]


def message(key: str, sender: str, words: str | None, **more: Any) -> dict[str, Any]:
    return {"uuid": key, "sender": sender, "text": words, "created_at": AT} | more


def export(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"uuid": "c1", "name": "Bread", "chat_messages": list(messages)} | more


ROOT = "00000000-0000-4000-8000-000000000000"
QUESTION = message("q", "human", "Rye?", parent_message_uuid=ROOT)


def test_a_claude_export_keeps_titles_ids_and_times() -> None:
    conversation = only([export(QUESTION, message("a", "assistant", "Yes"))])

    assert (conversation.conversation_id, conversation.title) == ("c1", "Bread")
    assert conversation.messages == [
        HumanMessage("Rye?", id="q", additional_kwargs=DATED),
        AIMessage("Yes", id="a", additional_kwargs=DATED),
    ]


BRANCHED = (
    QUESTION,
    message("old", "assistant", "No", parent_message_uuid="q"),
    message("new", "assistant", "Yes", parent_message_uuid="q", created_at="2026-08-03T09:13:00Z"),
)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        pytest.param({}, ["Rye?", "Yes"], id="the newest"),
        pytest.param({"current_leaf_message_uuid": "old"}, ["Rye?", "No"], id="the one seen last"),
    ],
)
def test_one_branch_is_the_conversation(more: dict[str, Any], expected: list[object]) -> None:
    conversation = only(export(*BRANCHED, **more))

    assert texts(conversation) == expected
    assert len(conversation.branches) == 1


BLOCK = "```\nThis block is not supported on your current device yet.\n```"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"text": "Yes", "content": []}, "Yes", id="text only"),
        pytest.param(
            {"text": "", "content": [{"type": "text", "text": "Yes"}]}, "Yes", id="content only"
        ),
        pytest.param(
            {"text": None, "content": [{"type": "text", "text": "Yes"}]}, "Yes", id="a null text"
        ),
        pytest.param(
            {"text": "Let me think.Yes", "content": [{"type": "text", "text": "Yes"}]},
            "Yes",
            id="thoughts in the text",
        ),
        pytest.param(
            {"content": [{"type": "thinking", "thinking": "Hm"}, {"type": "text", "text": "Yes"}]},
            "Yes",
            id="thoughts in content",
        ),
        pytest.param({"text": f"Yes\n{BLOCK}"}, "Yes", id="a placeholder"),
        pytest.param(
            {"content": [{"type": "voice_note", "title": "Note", "text": "Yes"}]},
            "Note\nYes",
            id="a voice note",
        ),
    ],
)
def test_words_are_read_wherever_they_stand(fields: dict[str, Any], expected: str) -> None:
    answer = message("a", "assistant", None, **fields)

    assert texts(only(export(QUESTION, answer)))[1:] == [expected]


def test_pasted_texts_are_documents_and_files_are_named() -> None:
    pasted = {"file_name": "a.txt", "extracted_content": "Flour 1200"}
    asked = message(
        "q",
        "human",
        "Rye?",
        attachments=[pasted, {"file_name": "b.bin", "file_type": "bin"}],
        files=[{"file_name": "loaf.png", "file_kind": "image"}],
    )

    assert texts(only(export(asked))) == [
        [
            {"type": "text", "text": "Rye?\n\n[file: b.bin, bin]\n\n[image: loaf.png]"},
            {
                "type": "text-plain",
                "text": "Flour 1200",
                "mime_type": "text/plain",
                "title": "a.txt",
            },
        ]
    ]


def called(*blocks: dict[str, Any]) -> list[BaseMessage]:
    answer = message("a", "assistant", None, content=list(blocks))
    return only(export(QUESTION, answer)).messages[1:]


FIND = {"type": "tool_use", "name": "find", "input": {"q": "rye"}}
FOUND = {"type": "tool_result", "name": "find", "content": [{"type": "text", "text": "Rye 1200"}]}


@pytest.mark.parametrize("call_id", [None, "t1"])
def test_calls_and_results_are_paired_with_ids_and_without(call_id: str | None) -> None:
    call, result, answer = called(
        FIND | {"id": call_id}, FOUND | {"tool_use_id": call_id}, {"type": "text", "text": "Rye."}
    )

    assert isinstance(call, AIMessage)
    assert isinstance(result, ToolMessage)
    assert call.tool_calls[0]["args"] == {"q": "rye"}
    assert result.tool_call_id == call.tool_calls[0]["id"]
    assert (result.text, answer.text, answer.id) == ("Rye 1200", "Rye.", "a-2")


def test_an_artifact_is_said() -> None:
    written = {"title": "Recipe", "command": "create", "content": "500 g of rye"}
    [answer] = called(
        {"type": "tool_use", "name": "artifacts", "input": written},
        {"type": "tool_result", "name": "artifacts", "content": "OK"},
    )

    assert answer.text == "[artifact: Recipe]\n500 g of rye"


def test_a_project_is_its_instructions_and_documents() -> None:
    document = {"uuid": "d", "filename": "a.txt", "content": "Flour 1200", "created_at": AT}
    project = {"uuid": "p", "name": "Bakery", "prompt_template": "Be brief.", "docs": [document]}

    conversation = only([project])

    assert conversation.title == "Project Bakery"
    assert conversation.messages[0] == SystemMessage("Be brief.")
    assert conversation.messages[1].text == ""
    assert conversation.messages[1].content[0]["text"] == "Flour 1200"  # type: ignore[index]


def test_the_memory_is_in_claudes_words() -> None:
    memory = {"conversations_memory": "Likes rye.", "project_memories": {"p": "Bakes."}}

    assert only([memory]).messages == [AIMessage("Likes rye."), AIMessage("Bakes.")]


# Open WebUI


def chat(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    nodes = {one["id"]: one for one in messages}
    history = {"messages": nodes, "currentId": messages[-1]["id"]}
    return {"id": "c1", "title": "Bread", "chat": {"history": history} | more}


ASKED = {"id": "q", "parentId": None, "role": "user", "content": "Rye?", "timestamp": 1_785_748_320}


def test_a_chat_keeps_titles_ids_and_times() -> None:
    conversation = only([chat(ASKED)])

    assert (conversation.conversation_id, conversation.title) == ("c1", "Bread")
    assert conversation.messages == [
        HumanMessage("Rye?", id="q", additional_kwargs={"created_at": "2026-08-03T09:12:00+00:00"})
    ]


def test_a_chat_without_a_tree_is_read_from_its_list() -> None:
    assert texts(only({"id": "c1", "chat": {"messages": [ASKED]}})) == ["Rye?"]


def test_the_system_prompt_of_a_chat_is_in_front() -> None:
    conversation = only(chat(ASKED, params={"system": "Be brief."}))

    assert conversation.messages[0] == SystemMessage("Be brief.")


def test_files_of_a_chat_are_read_or_named() -> None:
    files = [
        {"type": "image", "url": "data:image/png;base64,AA=="},
        {"type": "file", "name": "a.txt", "file": {"data": {"content": "Flour 1200"}}},
    ]

    [asked] = only(chat(ASKED | {"files": files})).messages

    assert asked.content == [
        {"type": "text", "text": "Rye?\n\n[image: without a name]"},
        {"type": "text-plain", "text": "Flour 1200", "mime_type": "text/plain", "title": "a.txt"},
    ]
