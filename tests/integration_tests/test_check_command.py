"""`ctxbudget check`, as a pipeline of continuous integration runs it."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_ctxbudget.demo import demo_messages
from tests.integration_tests import test_cli
from tests.integration_tests.test_cli import Run
from tests.trace_writers import WRITERS, as_lines
from tests.unit_tests.test_check import CHAT

ROLES = {"human": "user", "ai": "assistant"}
MESSAGES = [{"role": ROLES[message.type], "content": message.text} for message in CHAT]
FULL_DISK = Path("/dev/full")
OPEN = ("--kept", 0, "--cost", 1_000)


def run(*arguments: object) -> Run:
    return test_cli.run("check", *arguments)


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    path = tmp_path / "lockers.json"
    path.write_text(json.dumps({"title": "Lockers", "messages": MESSAGES}), encoding="utf-8")
    return path


def test_an_open_gate_is_0(chat: Path) -> None:
    outcome = run(chat, "--budget", 300, *OPEN)

    assert outcome.code == 0, outcome.err
    assert "\npassed: elastic keeps at least 0 %" in outcome.out


def test_a_closed_gate_is_1(chat: Path) -> None:
    outcome = run(chat, "--budget", 300, "--strategy", "recency")

    assert outcome.code == 1
    assert "1. Lockers, turn 22: the answer used message 1:" in outcome.out


@pytest.mark.parametrize(
    ("content", "arguments", "problem"),
    [
        ("{", [], "ConversationFormatError"),
        (json.dumps([{"role": "user", "content": "Hello?"}]), [], "Nothing to check"),
        (json.dumps(MESSAGES), ["--strategy", "elastc"], "There is no strategy"),
        (json.dumps(MESSAGES), ["--strategy", "summarization"], "needs a model"),
        (json.dumps(MESSAGES), ["--settings", "missing.toml"], "missing.toml"),
    ],
    ids=["cut off", "no answer", "no strategy", "no model", "no settings"],
)
def test_what_cannot_be_used_is_2(
    tmp_path: Path, content: str, arguments: list[str], problem: str
) -> None:
    path = tmp_path / "chat.json"
    path.write_text(content, encoding="utf-8")

    outcome = run(path, *arguments)

    assert outcome.code == 2
    assert outcome.out == ""
    assert problem in outcome.err


def test_a_folder_is_read_and_what_cannot_be_read_is_named(chat: Path) -> None:
    chat.with_name("broken.json").write_text("{", encoding="utf-8")
    other = [{"role": "user", "content": "Good morning"}, *MESSAGES[1:]]
    chat.with_name("other.json").write_text(json.dumps(other), encoding="utf-8")

    outcome = run(chat.parent, "--strategy", "recency", "--json", *OPEN)

    assert outcome.code == 0
    assert len(outcome.json["conversations"]) == 2
    assert "Skipped:" in outcome.err
    assert "broken.json" in outcome.err


def test_an_empty_folder_is_2(tmp_path: Path) -> None:
    assert run(tmp_path).code == 2


@pytest.mark.slow
def test_strategies_stand_beside_each_other(chat: Path) -> None:
    outcome = run(chat, "--budget", 300, "--beside", "recency,ratio@400", "--json", *OPEN)

    total: list[dict[str, Any]] = outcome.json["total"]
    names = [figures["strategy"] for figures in total]
    assert names == ["elastic", "recency", "ratio@400", "full"]


def test_a_junit_report_is_written(chat: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    run(chat, "--strategy", "recency", "--budget", 300, "--junit", report)

    assert ET.parse(report).getroot().get("failures") == "2"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--strategy", "elastc"], "There is no strategy"),
        (["--beside", "elastc"], "There is no strategy"),
        (["--beside", "recency@0"], "There is no strategy"),
        (["--junit", "nowhere/report.xml"], "there is no folder nowhere"),
        (["--junit", "."], "is a folder"),
        (["--price", "mine"], "no price is known"),
        (["--settings", "missing.toml"], "No such file"),
    ],
)
def test_options_are_refused_before_anything_is_read(arguments: list[str], problem: str) -> None:
    outcome = run("no-such-file.json", *arguments)

    assert outcome.code == 2
    assert problem in outcome.err
    assert "no-such-file.json" not in outcome.err


@pytest.mark.parametrize(
    "arguments", [["--kept", "101"], ["--cost", "x"], ["--strategy", "full,recency"]]
)
def test_an_option_with_a_wrong_value_says_so(arguments: list[str]) -> None:
    outcome = run("no-such-file.json", *arguments)

    assert outcome.code == 2
    assert f"argument {arguments[0]}" in outcome.err


@pytest.mark.slow
@pytest.mark.skipif(not FULL_DISK.exists(), reason="the system has no device that is full")
def test_figures_are_printed_though_the_report_cannot_be_written(chat: Path) -> None:
    outcome = run(chat, "--budget", 300, "--junit", FULL_DISK, *OPEN)

    assert outcome.code == 2
    assert "in all" in outcome.out
    assert "--junit" in outcome.err


def test_a_missing_file_is_named_once(tmp_path: Path) -> None:
    outcome = run(tmp_path / "no.json")

    assert outcome.err.count("no.json") == 1


def test_a_conversation_without_a_title_goes_by_its_file(tmp_path: Path) -> None:
    path = tmp_path / "drills.json"
    path.write_text(json.dumps(MESSAGES), encoding="utf-8")

    outcome = run(path, "--budget", 300, "--json", *OPEN)

    assert [one["name"] for one in outcome.json["conversations"]] == ["drills.json"]


def test_settings_of_the_application_are_taken(chat: Path, tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text("max_context_tokens = 350\n", encoding="utf-8")

    outcome = run(chat, "--settings", settings, "--strategy", "recency", "--json", *OPEN)

    assert outcome.json["budget_tokens"] == 350


@pytest.mark.parametrize(
    ("options", "budget_tokens"), [([], 350), (["--budget", 400], 400)], ids=["file", "option"]
)
def test_a_budget_in_its_group_is_taken(
    chat: Path, tmp_path: Path, options: list[Any], budget_tokens: int
) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text('{"budget": {"max_context_tokens": 350}}', encoding="utf-8")

    outcome = run(chat, "--settings", settings, "--strategy", "recency", "--json", *options, *OPEN)

    assert outcome.json["budget_tokens"] == budget_tokens


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("[1, 2]", "must be an object of settings"),
        ('[["learn", false]]', "must be an object of settings"),
        ("null", "must be an object of settings"),
        ('{"max_context_tokens": "x"}', "max_context_tokens"),
        ('{"lern": false}', "lern is no setting"),
        ("{", "Expecting"),
    ],
)
def test_an_error_in_settings_names_their_file(tmp_path: Path, content: str, problem: str) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text(content, encoding="utf-8")

    outcome = run("no-such-file.json", "--settings", settings)

    assert outcome.code == 2
    assert f"--settings {settings}: " in outcome.err
    assert problem in outcome.err


# An agent's session, and an export


def agent_session() -> list[dict[str, Any]]:
    """A session that finds a file, reads others, and comes back to it."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Fix the labels of the shelves."}]
    paths = ["src/shelves/labels.py", *(f"src/rows/row_{number}.py" for number in range(12))]
    for number, path in enumerate([*paths, paths[0]]):
        call = {"name": "read_file", "arguments": json.dumps({"path": path})}
        messages.append(
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": f"c{number}", "type": "function", "function": call}],
            }
        )
        result = f"def row_{number}(): return {number}\n" * 20
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": result})
    return messages


def test_an_agent_comes_back_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_text("\n".join(map(json.dumps, agent_session())), encoding="utf-8")

    outcome = run(path, "--strategy", "recency", "--budget", 600, "--json")

    sources = [case["loss"]["message"] for case in outcome.json["worst"]]
    assert 2 in sources


def test_an_export_of_claude_is_checked(tmp_path: Path) -> None:
    senders = {"user": "human", "assistant": "assistant"}
    chat = [{"sender": senders[row["role"]], "text": row["content"]} for row in MESSAGES]
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([{"name": "Lockers", "chat_messages": chat}]), encoding="utf-8")

    outcome = run(path, "--strategy", "recency", "--budget", 300)

    assert outcome.code == 1
    assert "   “The locker code is QX-771-B" in outcome.out


def export_of_chatgpt() -> dict[str, Any]:
    """An export of ChatGPT: a tree that has the messages one after the other."""
    nodes: dict[str, Any] = {"0": {"id": "0", "parent": None, "message": None}}
    for number, row in enumerate(MESSAGES, 1):
        message = {
            "id": str(number),
            "author": {"role": row["role"]},
            "content": {"content_type": "text", "parts": [row["content"]]},
        }
        nodes[str(number)] = {
            "id": str(number),
            "parent": str(number - 1),
            "message": message,
        }
    return {"title": "Lockers", "mapping": nodes, "current_node": str(len(MESSAGES))}


def test_an_export_of_chatgpt_is_checked(tmp_path: Path) -> None:
    (tmp_path / "conversations.json").write_text(json.dumps([export_of_chatgpt()]), "utf-8")
    (tmp_path / "user.json").write_text(json.dumps({"id": "u", "email": "a@example.org"}), "utf-8")

    outcome = run(tmp_path, "--strategy", "recency", "--budget", 300)

    assert outcome.code == 1
    assert "Skipped" not in outcome.err
    assert "   “The locker code is QX-771-B" in outcome.out


CODING: list[BaseMessage] = [HumanMessage("Fix the labels of the shelves.")]
for number, name in enumerate(["labels", "rows", "walls", "labels"]):
    call = {"name": "Read", "args": {"path": f"src/{name}.py"}, "id": f"c{number}"}
    CODING.append(AIMessage("", tool_calls=[call]))
    CODING.append(ToolMessage(f"def {name}(): ...\n" * 20, tool_call_id=f"c{number}"))
CODING.append(AIMessage("Done."))


@pytest.mark.parametrize(("writer", "more"), [("claude-code", 0), ("codex", 1)])
def test_a_coding_session_is_checked(writer: str, more: int, tmp_path: Path) -> None:
    """Codex writes where it works as a first message of the user."""
    path = tmp_path / "session.jsonl"
    path.write_bytes(as_lines(WRITERS[writer](CODING)))

    outcome = run(path, "--strategy", "recency", "--budget", 500, "--json", *OPEN)

    assert outcome.code == 0, outcome.err
    [conversation] = outcome.json["conversations"]
    assert conversation["messages"] == len(CODING) + more
    assert conversation["strategies"][0]["prompts"] == 5


def test_a_memory_beside_an_export_is_not_replayed(tmp_path: Path) -> None:
    (tmp_path / "conversations.json").write_text(json.dumps([export_of_chatgpt()]), "utf-8")
    memory = [{"conversations_memory": "Likes rye.", "project_memories": {"p": "Bakes."}}]
    (tmp_path / "memories.json").write_text(json.dumps(memory), "utf-8")

    outcome = run(tmp_path, "--strategy", "recency", "--budget", 300, "--json", *OPEN)

    assert [one["name"] for one in outcome.json["conversations"]] == ["Lockers"]
    assert outcome.json["skipped"] == []


def test_a_memory_alone_is_nothing_to_check(tmp_path: Path) -> None:
    path = tmp_path / "memories.json"
    path.write_text(json.dumps([{"conversations_memory": "Likes rye."}]), "utf-8")

    outcome = run(path)

    assert outcome.code == 2
    assert "no conversation to replay, only Memory of Claude" in outcome.err


@pytest.mark.slow
def test_the_bundled_conversation_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "demo.json"
    rows = [{"role": ROLES[it.type], "content": it.text} for it in demo_messages()]
    path.write_text(json.dumps(rows), encoding="utf-8")

    outcome = run(path, "--budget", 4_000, "--beside", "recency", "--json", *OPEN)

    ours, recency, full = outcome.json["total"]
    assert ours["cost_percent"] < full["cost_percent"] < recency["cost_percent"]
