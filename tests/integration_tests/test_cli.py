"""The command, as a user runs it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, HumanMessage, messages_to_dict

from langchain_ctxbudget import ChromaStore, ContextPipeline
from langchain_ctxbudget.cli.__main__ import main
from langchain_ctxbudget.demo import DEMO_EVIDENCE_IDS, DEMO_QUESTION, demo_messages

CHAT = [
    {"role": "user", "content": "My bike is blue.", "id": "m1"},
    {"role": "assistant", "content": "Nice!", "id": "m2"},
]


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def assemble(
    capsys: pytest.CaptureFixture[str], path: Path, *options: object
) -> tuple[int, str, str]:
    return run(
        capsys,
        "assemble",
        "--conversation",
        path,
        "--message",
        "Which colour?",
        "--budget",
        500,
        *options,
    )


def test_demo_shows_prompt_and_report_and_finds_what_was_said_early(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = run(capsys, "demo")
    assert code == 0
    assert all(text in out for text in (DEMO_QUESTION, "CONTEXT BUDGET", "Total"))
    assert out.index(" of 4,000 tokens: ") < out.index("CONTEXT BUDGET") < out.index("the prompt")
    assert out.count("stands in the prompt word for word; trim_messages does not have it.") == len(
        DEMO_EVIDENCE_IDS
    )
    code, out, _ = run(capsys, "demo", "--json")
    prompt = "\n".join(str(message["data"]["content"]) for message in json.loads(out)["messages"])
    evidence = [
        str(message.content) for message in demo_messages() if message.id in DEMO_EVIDENCE_IDS
    ]
    assert (code, len(evidence)) == (0, 2)
    assert all(text in prompt for text in evidence)


def test_the_budget_is_divided_by_the_strategy_that_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = run(capsys, "demo", "--allocation", "ratio")
    assert (code, "Strategy   ratio 30/40/30\n" in out) == (0, True)


@pytest.mark.parametrize("shell", [one for one in ("bash", "fish") if shutil.which(one)])
def test_a_shell_completes_commands_and_options(
    capsys: pytest.CaptureFixture[str], shell: str
) -> None:
    code, script, _ = run(capsys, "--completion", shell)
    bash = "COMP_WORDS=(ctxbudget {}); COMP_CWORD={}; _ctxbudget; echo ${{COMPREPLY[@]}}"
    ask = bash if shell == "bash" else "complete -C 'ctxbudget {}'"
    asked = "\n".join(
        [ask.format("de", 1), ask.format("replay --se", 2), ask.format("dashboard --d", 2)]
    )
    said = subprocess.run(
        [shell], input=f"{script}\n{asked}", capture_output=True, text=True, check=True
    )
    assert (code, said.stdout.split(), said.stderr) == (0, ["demo", "--settings", "--demo"], "")


@pytest.mark.parametrize(
    ("name", "text"),
    [("s.toml", "max_context_tokens = 900"), ("s.json", '{"max_context_tokens": 900}')],
)
def test_a_file_of_settings_is_below_the_options(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, chat_file: Path, name: str, text: str
) -> None:
    settings = tmp_path / name
    settings.write_text(text, encoding="utf-8")
    given = ("replay", chat_file, "--compare", "elastic,recency@2k", "--settings", settings)
    said = run(capsys, *given)[1]
    assert "900 tokens for a prompt" in said
    assert "recency@2000" in said
    assert "700 tokens for a prompt" in run(capsys, *given, "--budget", 700)[1]
    settings.write_text("{", encoding="utf-8")
    assert run(capsys, *given)[0] == 1


def test_what_cannot_be_is_an_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, err = run(capsys, "demo", "--budget", 1)
    assert (code, out, "L0 system prompt" in err) == (1, "", True)
    strange = tmp_path / "strange.json"
    strange.write_text('{"hello": 1}', encoding="utf-8")
    code, out, err = assemble(capsys, strange)
    assert (code, out, "ConversationFormatError" in err) == (1, "", True)
    assert all(name in err for name in ("openai", "langchain", "chatgpt", "claude"))
    with pytest.raises(SystemExit):
        main(["demo", "--allocation", "nonsense"])
    assert "invalid choice: 'nonsense'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "number"), [("4000", 4_000), ("4,000", 4_000), ("4k", 4_000), ("2K", 2_000)]
)
def test_a_budget_is_said_in_tokens_or_thousands(
    capsys: pytest.CaptureFixture[str], text: str, number: int
) -> None:
    code, out, _ = run(capsys, "demo", "--json", "--budget", text)
    assert (code, json.loads(out)["report"]["budget_tokens"]) == (0, number)
    for wrong in ("many", "-4", "4kk", "1.5", "0.0001k"):
        with pytest.raises(SystemExit):
            main(["demo", f"--budget={wrong}"])
        assert "is no number of tokens" in capsys.readouterr().err


def test_every_command_has_help_and_a_line_in_the_help_of_the_bare_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = run(capsys)
    lines = [line.split() for line in out.splitlines()]
    assert code == 0
    for command in ("demo", "assemble", "replay", "import", "inspect", "dashboard"):
        assert any(line[0] == command and len(line) > 3 for line in lines if line)
        with pytest.raises(SystemExit) as ended:
            main([command, "--help"])
        assert ended.value.code == 0
        assert f"ctxbudget {command}" in capsys.readouterr().out


def test_assemble_reads_a_conversation_from_a_file(
    capsys: pytest.CaptureFixture[str], chat_file: Path
) -> None:
    code, out, _ = assemble(capsys, chat_file, "--model", "gpt-4o")
    assert code == 0
    assert all(
        text in out for text in ("My bike is blue.", "Which colour?", "Window     128,000 tokens")
    )
    chat_file.write_text(
        json.dumps([{"role": "system", "content": "Be a pirate."}, *CHAT]), encoding="utf-8"
    )
    code, out, _ = assemble(capsys, chat_file, "--json")
    data = json.loads(out)
    assert [message["type"] for message in data["messages"]] == ["system", "human", "ai", "human"]
    assert data["messages"][0]["data"]["content"] == "Be a pirate."
    assert data["report"]["total_tokens"] <= data["report"]["budget_tokens"] == 500


def test_control_characters_do_not_reach_the_terminal(
    capsys: pytest.CaptureFixture[str], chat_file: Path
) -> None:
    said = {"role": "user", "content": "red \x1b[31m alert \ud83d"}
    chat_file.write_text(json.dumps({"id": "x \ud83d", "messages": [said]}), encoding="utf-8")
    code, out, _ = assemble(capsys, chat_file)
    assert (code, "alert" in out, "\x1b" in out) == (0, True, False)


def test_import_writes_into_a_store_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "dump.json"
    store = tmp_path / "store"
    messages = [HumanMessage("My bike is blue.", id="m1"), AIMessage("Nice!", id="m2")]
    path.write_text(json.dumps(messages_to_dict(messages))[:-20], encoding="utf-8")
    code, _, err = run(capsys, "import", path, "--store", store)
    assert (code, "line 1 column" in err, store.exists()) == (1, True, False)
    path.write_text(json.dumps(messages_to_dict(messages)), encoding="utf-8")
    for _ in range(2):
        code, out, err = run(capsys, "import", path, "--store", store, "--user", "ada")
        assert (code, "messages" in out, "2/2" in err) == (
            0,
            True,
            True,
        )  # the progress is not in what may be piped on
    with ChromaStore(store) as opened:
        pipeline = ContextPipeline(store=opened)
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
    assert (code, "--replace" in err) == (1, True)
    assert run(capsys, "import", chat_file, "--store", tmp_path / "store", "--replace")[0] == 0
    with ChromaStore(tmp_path / "store") as store:
        kept = ContextPipeline(store=store).get_messages(user_id="me", conversation_id="c1")
    assert [message.content for message in kept] == ["My bike is red."]


def test_the_module_runs_on_any_terminal() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "langchain_ctxbudget.cli", "demo"],
        capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"CONTEXT BUDGET" in done.stdout  # without box characters: question marks
