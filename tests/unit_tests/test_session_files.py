"""Tests what is particular to session files of Claude Code and Codex."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

from langchain_ctxbudget.readers import ReadConversation, parse_conversations
from tests.trace_writers import Record, as_lines


def read(*records: Record) -> list[ReadConversation]:
    return list(parse_conversations(as_lines(records)).conversations)


def texts(conversation: ReadConversation) -> list[str]:
    return [message.text for message in conversation.messages]


# Claude Code


def line(uuid: str, parent: str | None, kind: str, **fields: Any) -> Record:
    return {"type": kind, "uuid": uuid, "parentUuid": parent, "sessionId": "s1"} | fields


def user(uuid: str, parent: str | None, content: object, **fields: Any) -> Record:
    return line(uuid, parent, "user", message={"role": "user", "content": content}, **fields)


def answer(uuid: str, parent: str | None, *blocks: Record, **message: Any) -> Record:
    fields = {"role": "assistant", "id": f"msg-{uuid}", "content": list(blocks)} | message
    return line(uuid, parent, "assistant", message=fields)


def words(text: str) -> Record:
    return {"type": "text", "text": text}


def call(call_id: str) -> Record:
    return {"type": "tool_use", "id": call_id, "name": "Read", "input": {"path": "a.py"}}


def result(call_id: str, content: object, **fields: Any) -> list[Record]:
    block = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    return [block | fields]


def test_a_branch_that_was_left_is_beside_the_one_that_went_on() -> None:
    [conversation] = read(
        user("1", None, "Rye?"),
        answer("2", "1", words("No.")),
        user("3", "2", "Pity"),
        user("4", "2", "Oats?"),
        answer("5", "4", words("Yes.")),
    )

    assert texts(conversation) == ["Rye?", "No.", "Oats?", "Yes."]
    assert [texts(branch) for branch in conversation.branches] == [["Rye?", "No.", "Pity"]]


@pytest.mark.parametrize("gone", ["9", None], ids=["not in the file", "none, as a boundary has"])
def test_what_stood_before_a_compaction_is_read_once(gone: str | None) -> None:
    boundary = {"parentUuid": gone, "logicalParentUuid": "2", "subtype": "compact_boundary"}
    [conversation] = read(
        user("1", None, "Rye?"),
        answer("2", "1", words("Yes.")),
        line("3", None, "system", content="Conversation compacted") | boundary,
        user("4", "3", "They asked for rye.", isCompactSummary=True),
        user("5", "4", "How much?"),
    )

    assert texts(conversation) == ["Rye?", "Yes.", "How much?"]
    assert conversation.branches == ()


def test_messages_that_a_compaction_kept_stay_in_order() -> None:
    [conversation] = read(
        user("1", None, "Rye?"),
        line("2", None, "system", subtype="compact_boundary", logicalParentUuid="4"),
        user("3", "2", "A summary.", isCompactSummary=True),
        answer("4", "3", words("Yes.")),
        user("5", "4", "How much?"),
    )

    assert texts(conversation) == ["Rye?", "Yes.", "How much?"]


def test_a_summary_of_what_is_not_in_the_file_stays() -> None:
    [conversation] = read(
        line("1", None, "system", subtype="compact_boundary", logicalParentUuid="0"),
        user("2", "1", "They asked for rye.", isCompactSummary=True),
        user("3", "2", "How much?"),
    )

    assert texts(conversation) == ["They asked for rye.", "How much?"]
    assert conversation.messages[0].additional_kwargs["lc_source"] == "summarization"


def test_a_subagent_is_a_conversation_of_its_own() -> None:
    session, agent = read(
        user("1", None, "Look around"),
        answer("2", "1", call("c1")),
        user("a", None, "Find rye", isSidechain=True, agentId="x"),
        answer("b", "a", words("Found.")) | {"isSidechain": True, "agentId": "x"},
        user("3", "2", result("c1", "Found.")),
    )

    assert texts(session) == ["Look around", "", "Found."]
    assert agent.conversation_id == "s1-agent-x"
    assert texts(agent) == ["Find rye", "Found."]


def queued(**fields: Any) -> Record:
    attachment = {"type": "queued_command", "commandMode": "prompt", "prompt": "Oats, please"}
    return line("3", "2", "attachment", attachment=attachment | fields)


STEERING = {
    "type": "queue-operation",
    "operation": "remove",
    "sessionId": "s1",
    "content": "Oats, please",
}


@pytest.mark.parametrize(
    "typed",
    [[queued()], [STEERING], [queued(), STEERING], [STEERING, user("3", "2", "Oats, please")]],
    ids=["attached", "in the queue only", "both", "the queue and a line"],
)
def test_words_typed_while_the_model_works_are_read_once(typed: list[Record]) -> None:
    parent = next((record["uuid"] for record in typed if "uuid" in record), "2")
    [conversation] = read(
        user("1", None, "Rye?"),
        answer("2", "1", words("Looking.")),
        *typed,
        answer("4", parent, words("Oats, then.")),
    )

    assert texts(conversation) == ["Rye?", "Looking.", "Oats, please", "Oats, then."]
    assert "lc_source" not in conversation.messages[2].additional_kwargs


@pytest.mark.parametrize(
    ("record", "text"),
    [
        pytest.param(user("2", "1", "A skill.", isMeta=True), "A skill.", id="a skill"),
        pytest.param(
            queued(commandMode="task-notification") | {"uuid": "2", "parentUuid": "1"},
            "Oats, please",
            id="a notification",
        ),
        pytest.param(
            line(
                "2",
                "1",
                "attachment",
                attachment={
                    "type": "file",
                    "displayPath": "a.py",
                    "content": {"type": "text", "file": {"content": "x = 1"}},
                },
            ),
            "Contents of a.py:\nx = 1",
            id="a file",
        ),
        *[
            pytest.param(user("2", "1", text), text, id=text)
            for text in (
                "<command-name>/clear</command-name>\n<command-args></command-args>",
                "<local-command-stdout>Cleared</local-command-stdout>",
                "<bash-stdout>a.py</bash-stdout><bash-stderr></bash-stderr>",
                "[Request interrupted by user for tool use]",
            )
        ],
    ],
)
def test_what_the_program_says_is_marked(record: Record, text: str) -> None:
    [conversation] = read(user("1", None, "Rye?"), record)

    assert conversation.messages[1].text == text
    assert conversation.messages[1].additional_kwargs["lc_source"] == "claude_code"


def test_words_behind_a_command_are_the_users() -> None:
    text = "<command-name>/plan</command-name>\n<command-args>Use rye</command-args>"

    [conversation] = read(user("1", None, text))

    assert "lc_source" not in conversation.messages[0].additional_kwargs


def test_notices_that_no_model_wrote_are_left_out() -> None:
    [conversation] = read(
        user("1", None, "Rye?"),
        answer("2", "1", words("API Error"), model="<synthetic>"),
        line("3", "2", "system", subtype="turn_duration"),
        line("4", "3", "attachment", attachment={"type": "hook_success"}),
    )

    assert texts(conversation) == ["Rye?"]


def test_tokens_are_counted_with_those_of_the_cache() -> None:
    usage = {
        "input_tokens": 10,
        "output_tokens": 5,
        "cache_read_input_tokens": 200,
        "cache_creation_input_tokens": 30,
    }
    [conversation] = read(
        user("1", None, "Rye?"), answer("2", "1", words("Yes."), model="claude-x", usage=usage)
    )

    reply = conversation.messages[1]
    assert isinstance(reply, AIMessage)
    assert reply.usage_metadata is not None
    assert reply.usage_metadata["input_tokens"] == 240
    assert reply.usage_metadata["input_token_details"] == {"cache_read": 200, "cache_creation": 30}
    assert reply.response_metadata["model_name"] == "claude-x"


def test_a_failed_result_is_marked() -> None:
    [conversation] = read(
        user("1", None, "Rye?"),
        answer("2", "1", call("c1")),
        user("3", "2", result("c1", [words("no such file")], is_error=True)),
    )

    assert conversation.messages[2].text == "no such file"
    assert conversation.messages[2].status == "error"  # type: ignore[attr-defined]


def test_an_image_stays_with_the_words_beside_it() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A="}}
    [conversation] = read(user("1", None, [words("Is this rye?"), image]))

    assert conversation.messages == [HumanMessage([words("Is this rye?"), image], id="1")]


@pytest.mark.parametrize(
    ("records", "title"),
    [
        ([{"type": "summary", "summary": "Rye", "leafUuid": "1"}], "Rye"),
        ([{"type": "summary", "summary": "Elsewhere", "leafUuid": "other"}], None),
        (
            [
                {"type": "custom-title", "customTitle": "Mine", "sessionId": "s1"},
                {"type": "ai-title", "aiTitle": "Made", "sessionId": "s1"},
            ],
            "Mine",
        ),
    ],
)
def test_a_session_has_the_title_of_the_user_or_else_one_made(
    records: list[Record], title: str | None
) -> None:
    [conversation] = read(*records, user("1", None, "Rye?"))

    assert conversation.title == title


def test_a_resumed_copy_replaces_the_session_it_began_with() -> None:
    first = [user("1", None, "Rye?"), answer("2", "1", words("Yes."))]
    copy = [record | {"sessionId": "s2"} for record in [*first, user("3", "2", "How much?")]]

    result = parse_conversations(as_lines([*first, *copy]))

    assert [texts(one) for one in result.conversations] == [["Rye?", "Yes.", "How much?"]]


# Codex


def codex(kind: str, **payload: Any) -> Record:
    return {"timestamp": "2026-03-05T10:00:00.000Z", "type": kind, "payload": payload}


def item(item_type: str, **fields: Any) -> Record:
    return codex("response_item", type=item_type, **fields)


def message(role: str, text: str) -> Record:
    kind = "output_text" if role == "assistant" else "input_text"
    return item("message", role=role, content=[{"type": kind, "text": text}])


def event(event_type: str, **fields: Any) -> Record:
    return codex("event_msg", type=event_type, **fields)


META = codex("session_meta", id="x1", base_instructions={"text": "You are Codex."})
ASKED = [message("user", "Rye?"), event("user_message", message="Rye?")]


def test_what_codex_says_in_the_users_name_is_marked() -> None:
    agents = "# AGENTS.md instructions for /\n\nUse tabs."

    [conversation] = read(META, message("user", agents), *ASKED, message("assistant", "Yes."))

    assert conversation.messages[0] == SystemMessage("You are Codex.")
    assert texts(conversation)[1:] == [agents, "Rye?", "Yes."]
    marks = [one.additional_kwargs.get("lc_source") for one in conversation.messages]
    assert marks == [None, "codex", None, None]


def test_what_only_an_event_tells_is_said() -> None:
    [conversation] = read(META, event("user_message", message="Rye?"), message("assistant", "Yes."))

    assert texts(conversation)[1:] == ["Rye?", "Yes."]


def test_every_kind_of_call_finds_its_result() -> None:
    [conversation] = read(
        META,
        *ASKED,
        item("custom_tool_call", name="apply_patch", input="*** Begin", call_id="c1"),
        item("local_shell_call", action={"type": "exec", "command": ["ls"]}, call_id="c2"),
        item("function_call", name="shell", arguments='{"command": ["ls"', call_id="c3"),
        item(
            "custom_tool_call_output", call_id="c1", output=[{"type": "input_text", "text": "Done"}]
        ),
        item("function_call_output", call_id="c2", output={"content": "none", "success": False}),
        item("function_call_output", call_id="c3", output="bad JSON"),
    )

    reply = conversation.messages[2]
    assert isinstance(reply, AIMessage)
    assert [(one["name"], one["id"]) for one in reply.tool_calls] == [
        ("apply_patch", "c1"),
        ("local_shell", "c2"),
    ]
    assert [one["id"] for one in reply.invalid_tool_calls] == ["c3"]
    assert texts(conversation)[3:] == ["Done", "none", "bad JSON"]


def test_thoughts_and_searches_stand_in_the_answer() -> None:
    [conversation] = read(
        META,
        *ASKED,
        item("reasoning", summary=[{"type": "summary_text", "text": "Hm"}], encrypted_content="x"),
        item("web_search_call", status="completed", action={"type": "search", "query": "rye"}),
        message("assistant", "Yes."),
        event("token_count", info={"last_token_usage": {"input_tokens": 9, "output_tokens": 2}}),
    )

    reply = conversation.messages[2]
    assert isinstance(reply, AIMessage)
    assert [block["type"] for block in reply.content if isinstance(block, dict)] == [
        "reasoning",
        "web_search_call",
        "text",
    ]
    assert reply.usage_metadata is not None
    assert reply.usage_metadata["total_tokens"] == 11


def test_turns_that_were_taken_back_are_a_branch() -> None:
    [conversation] = read(
        META,
        *ASKED,
        message("assistant", "Yes."),
        message("user", "Oats?"),
        event("user_message", message="Oats?"),
        event("thread_rolled_back", num_turns=1),
        event("thread_name_updated", thread_name="Flour"),
    )

    assert conversation.title == "Flour"
    assert texts(conversation)[1:] == ["Rye?", "Yes."]
    assert [texts(branch)[1:] for branch in conversation.branches] == [["Rye?", "Yes.", "Oats?"]]


def test_a_compaction_of_codex_says_nothing_again() -> None:
    [conversation] = read(META, *ASKED, codex("compacted", message="They asked for rye."))

    assert texts(conversation)[1:] == ["Rye?"]


def test_sessions_in_one_file_stay_apart() -> None:
    other = codex("session_meta", id="x2")
    fork = codex("session_meta", id="x3", forked_from_id="x2")

    result = read(META, *ASKED, fork, other, *ASKED, message("assistant", "Yes."))

    assert [one.conversation_id for one in result] == ["x1", "x3"]
