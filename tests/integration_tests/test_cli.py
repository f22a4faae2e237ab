"""The command, as a user runs it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, HumanMessage, messages_to_dict

from langchain_ctxbudget import ChromaStore, ContextPipeline
from langchain_ctxbudget.cli import main
from langchain_ctxbudget.demo import DEMO_EVIDENCE_IDS, DEMO_QUESTION, demo_messages

CHAT = [
    {"role": "user", "content": "My bike is blue.", "id": "m1"},
    {"role": "assistant", "content": "Nice!", "id": "m2"},
]


@pytest.fixture
def chat_file(tmp_path: Path) -> Path:
    path = tmp_path / "chat.json"
    path.write_text(json.dumps(CHAT), encoding="utf-8")
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_demo_prints_the_prompt_and_its_report(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "demo")
    assert code == 0
    assert DEMO_QUESTION in out
    assert "CONTEXT BUDGET" in out
    assert "Total" in out


def test_demo_finds_what_was_said_near_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "demo", "--json")
    prompt = "\n".join(str(message["data"]["content"]) for message in json.loads(out)["messages"])
    evidence = [str(message.content) for message in demo_messages() if message.id in DEMO_EVIDENCE_IDS]
    assert code == 0
    assert evidence
    assert all(text in prompt for text in evidence)


def test_demo_at_a_budget_of_one_token_names_the_floors(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "demo", "--budget", 1)
    assert (code, out) == (1, "")
    assert "L0 system prompt" in err


def test_assemble_reads_a_conversation_from_a_file(capsys: pytest.CaptureFixture[str], chat_file: Path) -> None:
    code, out, _ = run(capsys, "assemble", "--conversation", chat_file, "--message", "Which colour?", "--budget", 500)
    assert code == 0
    assert "My bike is blue." in out
    assert "Which colour?" in out


def test_assemble_gives_json(capsys: pytest.CaptureFixture[str], chat_file: Path) -> None:
    code, out, _ = run(
        capsys, "assemble", "--conversation", chat_file, "--message", "Which colour?", "--budget", 500, "--json"
    )
    data = json.loads(out)
    assert code == 0
    assert [message["type"] for message in data["messages"]] == ["human", "ai", "human"]
    assert data["report"]["total_tokens"] <= data["report"]["budget_tokens"] == 500


def test_a_file_of_no_accepted_format_is_an_error_that_lists_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "strange.json"
    path.write_text('{"hello": 1}', encoding="utf-8")
    code, out, err = run(capsys, "assemble", "--conversation", path, "--message", "Hi", "--budget", 500)
    assert (code, out) == (1, "")
    assert "ConversationFormatError" in err
    assert all(name in err for name in ("openai", "langchain", "chatgpt", "langgraph", "evaluation"))


def test_a_half_written_file_imports_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "cut.json"
    path.write_text(json.dumps(CHAT)[:-20], encoding="utf-8")
    code, _, err = run(capsys, "import", path, "--store", tmp_path / "store")
    assert code == 1
    assert "ConversationFormatError" in err
    assert not (tmp_path / "store").exists()


def test_import_writes_into_a_store_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "dump.json"
    messages = [HumanMessage("My bike is blue.", id="m1"), AIMessage("Nice!", id="m2")]
    path.write_text(json.dumps(messages_to_dict(messages)), encoding="utf-8")
    for _ in range(2):
        code, out, _ = run(capsys, "import", path, "--store", tmp_path / "store", "--user", "ada")
        assert code == 0
        assert "messages" in out
    with ChromaStore(tmp_path / "store") as store:
        pipeline = ContextPipeline(store=store)
        [conversation] = pipeline.list_conversations(user_id="ada")
        assert pipeline.get_messages(user_id="ada", conversation_id=conversation) == messages


def test_an_imported_file_with_a_changed_message_writes_nothing_unless_it_may_replace(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, chat_file: Path
) -> None:
    chat_file.write_text(json.dumps({"id": "c1", "messages": CHAT}), encoding="utf-8")
    assert run(capsys, "import", chat_file, "--store", tmp_path / "store")[0] == 0
    changed = [{**CHAT[0], "content": "My bike is red."}]
    chat_file.write_text(json.dumps({"id": "c1", "messages": changed}), encoding="utf-8")
    code, _, err = run(capsys, "import", chat_file, "--store", tmp_path / "store")
    assert code == 1
    assert "--replace" in err
    assert run(capsys, "import", chat_file, "--store", tmp_path / "store", "--replace")[0] == 0
    with ChromaStore(tmp_path / "store") as store:
        kept = ContextPipeline(store=store).get_messages(user_id="me", conversation_id="c1")
    assert [message.content for message in kept] == ["My bike is red."]


def test_a_system_message_in_the_file_is_the_system_prompt(capsys: pytest.CaptureFixture[str], chat_file: Path) -> None:
    chat_file.write_text(json.dumps([{"role": "system", "content": "Be a pirate."}, *CHAT]), encoding="utf-8")
    code, out, _ = run(
        capsys, "assemble", "--conversation", chat_file, "--message", "Which colour?", "--budget", 500, "--json"
    )
    assert code == 0
    assert json.loads(out)["messages"][0]["data"]["content"] == "Be a pirate."


def test_control_characters_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str], chat_file: Path) -> None:
    chat_file.write_text(json.dumps([{"role": "user", "content": "red \x1b[31m alert"}]), encoding="utf-8")
    _, out, _ = run(capsys, "assemble", "--conversation", chat_file, "--message", "Hm?", "--budget", 500, "--items")
    assert "alert" in out
    assert "\x1b" not in out


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_a_terminal_without_box_characters_gets_question_marks(encoding: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "langchain_ctxbudget.cli", "demo"],
        capture_output=True, env={**os.environ, "PYTHONIOENCODING": encoding}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_installed_command_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "langchain_ctxbudget.cli", "demo"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not done.stderr


@pytest.mark.parametrize(
    ("given", "named"),
    [("ratio", "ratio 30/40/30"), ('{"strategy": "elastic", "profile": "seed"}', "elastic (seed)")],
)
def test_the_budget_is_divided_by_the_strategy_that_is_named(
    capsys: pytest.CaptureFixture[str], given: str, named: str
) -> None:
    code, out, _ = run(capsys, "demo", "--allocation", given)
    assert code == 0
    assert f"Strategy   {named}\n" in out


@pytest.mark.parametrize("given", ["nonsense", '{"strategy": "ratio"', '{"strategy": "ratio", "memory": 5}'])
def test_a_strategy_that_is_none_is_an_error(capsys: pytest.CaptureFixture[str], given: str) -> None:
    code, out, err = run(capsys, "demo", "--allocation", given)
    assert (code, out) == (1, "")
    assert "InvalidSettingsError" in err


def test_what_if_tells_what_other_budgets_would_have_given(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "demo", "--what-if", "1000,20000")
    assert code == 0
    assert re.search(r"layer +┃ 4,000 ┃ 1,000 ┃ 20,000", out)
    assert re.search(r"messages verbatim +│ +\d+ │ +\d+ │ +278", out)


def test_what_if_wants_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["demo", "--what-if", "many"])
    assert "not a list of whole numbers: 'many'" in capsys.readouterr().err


def test_a_model_s_window_is_in_the_report(capsys: pytest.CaptureFixture[str], chat_file: Path) -> None:
    code, out, _ = run(
        capsys, "assemble", "--conversation", chat_file, "--message", "Hi", "--budget", 500, "--model", "gpt-4o"
    )
    assert code == 0
    assert "Window     128,000 tokens" in out
