"""The command, as a user runs it."""

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, messages_to_dict

from langchain_ctxbudget import ChromaStore, ContextPipeline
from langchain_ctxbudget.cli.__main__ import main
from langchain_ctxbudget.cli.demo_screen import GLYPHS
from langchain_ctxbudget.demo import DEMO_EVIDENCE_IDS, DEMO_QUESTION, demo_messages

CHAT = [
    {"role": "user", "content": "My bike is blue.", "id": "m1"},
    {"role": "assistant", "content": "Nice!", "id": "m2"},
]
MESSAGES = [HumanMessage("My bike is blue.", id="m1"), AIMessage("Nice!", id="m2")]
COMMANDS = ("demo", "assemble", "replay", "check", "import", "inspect", "sweep", "dashboard")


@dataclass(frozen=True)
class Run:
    """What a run of the command gave."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Stream(TextIOWrapper):
    """A stream that keeps what is written to it, as UTF-8."""

    def __init__(self) -> None:
        self.content = BytesIO()
        super().__init__(self.content, encoding="utf-8", newline="", write_through=True)

    @property
    def text(self) -> str:
        return self.content.getvalue().decode()


def run(*arguments: object) -> Run:
    out = Stream()
    err = Stream()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as end:  # argparse ends the program
            code = int(end.code or 0)
    return Run(code, out.text, err.text)


def assemble(path: Path, *options: object) -> Run:
    arguments = ["--conversation", path, "--message", "Which colour?", "--budget", 500]
    return run("assemble", *arguments, *options)


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


# -- the demo


@pytest.fixture(scope="module")
def demo() -> Run:
    return run("demo")


@pytest.fixture(scope="module")
def demo_with_prompt() -> Run:
    return run("demo", "--prompt", "--allocation", "ratio")


@pytest.fixture(scope="module")
def demo_as_json() -> Run:
    return run("demo", "--json")


def test_the_demo_succeeds(demo: Run) -> None:
    assert demo.code == 0


def words_of(text: str) -> str:
    return " ".join(text.split())


def test_the_demo_asks_its_question(demo: Run) -> None:
    assert DEMO_QUESTION in words_of(demo.out)


def test_the_demo_fits_one_screen(demo: Run) -> None:
    assert len(demo.out.splitlines()) <= 40


@pytest.mark.parametrize("position", [17, 19])
def test_the_demo_tells_where_each_prompt_has_the_answer(demo: Run, position: int) -> None:
    assert f"not found found in message {position} of 278:" in words_of(demo.out)


def test_the_demo_tells_what_both_cost(demo: Run) -> None:
    assert words_of(demo.out).count(" % cached, paid like ") == 2
    assert words_of(demo.out).count("new tokens a turn") >= 1


def test_each_part_of_the_bar_has_a_glyph_of_its_own(demo: Run) -> None:
    glyphs = re.findall(rf"([{GLYPHS}]) \w[\w ]* [\d,]+(?:   |\n)", demo.out)

    assert len(glyphs) >= 6
    assert len(set(glyphs)) == len(glyphs)


def test_the_demo_says_how_the_dashboard_is_installed(demo: Run) -> None:
    assert "[dashboard]" in demo.out


@pytest.mark.slow
def test_the_demo_shows_the_whole_prompt_where_it_is_asked_for(demo_with_prompt: Run) -> None:
    report = demo_with_prompt.out.index(" of 4,000 tokens: ")
    assert report < demo_with_prompt.out.index(" the prompt ")


@pytest.mark.slow
def test_the_demo_of_another_question_tells_no_answer() -> None:
    assert "The answer" not in run("demo", "--message", "Who chairs the board?").out


@pytest.mark.slow
def test_the_demo_as_json_succeeds(demo_as_json: Run) -> None:
    assert demo_as_json.code == 0


@pytest.mark.slow
@pytest.mark.parametrize("key", DEMO_EVIDENCE_IDS)
def test_the_demo_finds_what_was_said_early(demo_as_json: Run, key: str) -> None:
    prompt = "\n".join(str(message["data"]["content"]) for message in demo_as_json.json["messages"])
    [evidence] = [message for message in demo_messages() if message.id == key]
    assert str(evidence.content) in prompt


def test_the_demo_has_two_pieces_of_evidence() -> None:
    assert len(DEMO_EVIDENCE_IDS) == 2


@pytest.mark.slow
def test_the_budget_is_divided_by_the_strategy_that_is_named(demo_with_prompt: Run) -> None:
    assert "Allocation ratio 30/40/30\n" in demo_with_prompt.out


@pytest.mark.slow
def test_the_module_runs_on_any_terminal() -> None:
    process = subprocess.run(
        [sys.executable, "-W", "error", "-m", "langchain_ctxbudget", "demo"],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=False,
    )
    assert process.returncode == 0
    assert process.stderr == b""
    assert b"ctxbudget" in process.stdout  # without block characters: question marks


# -- options


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("2K", 2_000),
        pytest.param("4000", 4_000, marks=pytest.mark.slow),
        pytest.param("4,000", 4_000, marks=pytest.mark.slow),
        pytest.param("4k", 4_000, marks=pytest.mark.slow),
    ],
)
def test_a_budget_is_a_number_of_tokens_or_thousands(text: str, tokens: int) -> None:
    demo = run("demo", "--json", "--budget", text)
    assert demo.code == 0
    assert demo.json["report"]["budget_tokens"] == tokens


@pytest.mark.parametrize("text", ["many", "-4", "4kk", "1.5", "0.0001k"])
def test_what_is_no_number_of_tokens_is_an_error(text: str) -> None:
    demo = run("demo", f"--budget={text}")
    assert demo.code == 2
    assert "is no number of tokens" in demo.err


@pytest.mark.slow
def test_a_budget_that_is_too_small_is_an_error() -> None:
    demo = run("demo", "--budget", 1)
    assert demo.code == 1
    assert demo.out == ""
    assert "system prompt" in demo.err


def test_an_unknown_strategy_is_an_error() -> None:
    demo = run("demo", "--allocation", "nonsense")
    assert demo.code == 2
    assert "invalid choice: 'nonsense'" in demo.err


@pytest.fixture(params=["s.toml", "s.json"])
def settings_file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Settings of 900 tokens."""
    texts = {"s.toml": "max_context_tokens = 900", "s.json": '{"max_context_tokens": 900}'}
    path = tmp_path / request.param
    path.write_text(texts[request.param], encoding="utf-8")
    return path


def replay(chat_file: Path, settings_file: Path, *options: object) -> Run:
    compared = ["--compare", "elastic,recency@2k", "--settings", settings_file]
    return run("replay", chat_file, *compared, *options)


def test_a_file_of_settings_counts(chat_file: Path, settings_file: Path) -> None:
    replayed = replay(chat_file, settings_file)
    assert "900 tokens for a prompt" in replayed.out
    assert "recency@2000" in replayed.out


def test_options_are_above_a_file_of_settings(chat_file: Path, settings_file: Path) -> None:
    replayed = replay(chat_file, settings_file, "--budget", 700)
    assert "700 tokens for a prompt" in replayed.out


def test_a_broken_file_of_settings_is_an_error(chat_file: Path, settings_file: Path) -> None:
    settings_file.write_text("{", encoding="utf-8")
    assert replay(chat_file, settings_file).code == 1


# -- help


@pytest.fixture(scope="module")
def bare() -> Run:
    """The command without arguments."""
    return run()


def test_the_bare_command_succeeds(bare: Run) -> None:
    assert bare.code == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_the_bare_command_describes_every_command(bare: Run, command: str) -> None:
    lines = [line.split() for line in bare.out.splitlines()]
    described = [words[0] for words in lines if len(words) > 3]
    assert command in described


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str) -> None:
    helped = run(command, "--help")
    assert helped.code == 0
    assert f"ctxbudget {command}" in helped.out


SHELLS = {
    "bash": (
        "COMP_WORDS=(ctxbudget {words}); COMP_CWORD={place}; _ctxbudget; echo ${{COMPREPLY[@]}}"
    ),
    "fish": "complete -C 'ctxbudget {words}'",
}
"""How a shell is asked for completions."""


@pytest.mark.parametrize("shell", [name for name in SHELLS if shutil.which(name)])
@pytest.mark.parametrize(
    ("words", "place", "completion"),
    [
        pytest.param("de", 1, "demo", id="a command"),
        pytest.param("replay --se", 2, "--settings", id="an option"),
        pytest.param("dashboard --d", 2, "--demo", id="an option of another command"),
    ],
)
def test_a_shell_completes_commands_and_options(
    shell: str, words: str, place: int, completion: str
) -> None:
    script = run("--completion", shell)
    question = SHELLS[shell].format(words=words, place=place)

    process = subprocess.run(
        [shell], input=f"{script.out}\n{question}", capture_output=True, text=True, check=True
    )

    assert script.code == 0
    assert process.stdout.split() == [completion]
    assert process.stderr == ""


# -- assemble


@pytest.mark.parametrize("text", ["My bike is blue.", "Which colour?", "Window     128,000 tokens"])
def test_assemble_shows_the_prompt_and_the_window(chat_file: Path, text: str) -> None:
    assembled = assemble(chat_file, "--model", "gpt-4o")
    assert assembled.code == 0
    assert text in assembled.out


@pytest.fixture
def pirate(chat_file: Path) -> Any:
    """What assemble gives as JSON for a conversation with a system prompt."""
    write_json(chat_file, [{"role": "system", "content": "Be a pirate."}, *CHAT])
    return assemble(chat_file, "--json").json


def test_assemble_gives_messages_as_json(pirate: Any) -> None:
    types = [message["type"] for message in pirate["messages"]]
    assert types == ["system", "human", "ai", "human"]


def test_assemble_begins_with_the_system_prompt_of_the_file(pirate: Any) -> None:
    assert pirate["messages"][0]["data"]["content"] == "Be a pirate."


def test_assemble_keeps_the_budget(pirate: Any) -> None:
    assert pirate["report"]["budget_tokens"] == 500
    assert pirate["report"]["total_tokens"] <= 500


def test_a_file_in_no_known_format_is_an_error(tmp_path: Path) -> None:
    write_json(tmp_path / "strange.json", {"hello": 1})
    assembled = assemble(tmp_path / "strange.json")
    assert assembled.code == 1
    assert assembled.out == ""
    assert "ConversationFormatError" in assembled.err


@pytest.mark.parametrize("name", ["openai", "langchain", "chatgpt", "claude"])
def test_the_error_names_the_formats_that_are_known(tmp_path: Path, name: str) -> None:
    write_json(tmp_path / "strange.json", {"hello": 1})
    assert name in assemble(tmp_path / "strange.json").err


def test_control_characters_do_not_reach_the_terminal(chat_file: Path) -> None:
    message = {"role": "user", "content": "red \x1b[31m alert \ud83d"}
    write_json(chat_file, {"id": "x \ud83d", "messages": [message]})
    assembled = assemble(chat_file)
    assert assembled.code == 0
    assert "alert" in assembled.out
    assert "\x1b" not in assembled.out


# -- import


def test_a_file_that_is_cut_off_is_an_error_and_makes_no_store(tmp_path: Path) -> None:
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps(messages_to_dict(MESSAGES))[:-20], encoding="utf-8")

    imported = run("import", dump, "--store", tmp_path / "store")

    assert imported.code == 1
    assert "line 1 column" in imported.err
    assert not (tmp_path / "store").exists()


@pytest.fixture(scope="module")
def imported_twice(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Run]]:
    """A store into which a file was imported twice, and both runs."""
    folder = tmp_path_factory.mktemp("imported")
    write_json(folder / "dump.json", messages_to_dict(MESSAGES))
    arguments = ["import", folder / "dump.json", "--store", folder / "store", "--user", "ada"]
    return folder / "store", [run(*arguments), run(*arguments)]


@pytest.mark.parametrize("time", [0, 1], ids=["the first time", "the second time"])
def test_an_import_succeeds(imported_twice: tuple[Path, list[Run]], time: int) -> None:
    imported = imported_twice[1][time]
    assert imported.code == 0
    assert "messages" in imported.out


@pytest.mark.parametrize("time", [0, 1], ids=["the first time", "the second time"])
def test_the_progress_is_not_in_what_may_be_piped_on(
    imported_twice: tuple[Path, list[Run]], time: int
) -> None:
    assert "2/2" in imported_twice[1][time].err


def test_a_file_that_is_imported_twice_is_stored_once(
    imported_twice: tuple[Path, list[Run]],
) -> None:
    with ChromaStore(imported_twice[0]) as store:
        pipeline = ContextPipeline(store=store)
        [conversation] = pipeline.list_conversations(user_id="ada")
        assert pipeline.get_messages(user_id="ada", conversation_id=conversation) == MESSAGES


@pytest.fixture(scope="module")
def imported_export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of Claude with a chat that cannot be read, and one with another branch."""
    chat = [
        {"uuid": "q", "sender": "human", "text": "My bike is blue."},
        {"uuid": "old", "sender": "assistant", "text": "So?", "parent_message_uuid": "q"},
        {"uuid": "new", "sender": "assistant", "text": "Nice!", "parent_message_uuid": "q"},
    ]
    broken = {"uuid": "c2", "name": "Lost", "chat_messages": [{"uuid": "x", "sender": "robot"}]}
    path = tmp_path_factory.mktemp("export") / "export.json"
    write_json(path, [{"uuid": "c1", "name": "Bike", "chat_messages": chat}, broken])
    return path


def test_an_import_tells_what_was_skipped(imported_export: Path, tmp_path: Path) -> None:
    imported = run("import", imported_export, "--store", tmp_path / "store", "--no-learn")

    assert imported.code == 0
    assert "Skipped: Lost: message 'x' has the unknown sender 'robot'" in imported.err
    assert contents(tmp_path / "store") == ["My bike is blue.", "Nice!"]


@pytest.mark.parametrize(("options", "count"), [([], 1), (["--branches"], 2)])
def test_other_branches_are_imported_if_asked(
    imported_export: Path, tmp_path: Path, options: list[str], count: int
) -> None:
    imported = run("import", imported_export, "--store", tmp_path / "store", "--no-learn", *options)

    assert ("--branches imports" in imported.out) == (not options)
    with ChromaStore(tmp_path / "store") as store:
        assert len(ContextPipeline(store=store).list_conversations(user_id="me")) == count


def test_an_assembled_prompt_as_json_is_not_mixed_with_what_was_skipped(
    imported_export: Path,
) -> None:
    assembled = assemble(imported_export, "--json")

    assert assembled.json["messages"]
    assert "Skipped: Lost" in assembled.err


@pytest.fixture
def changed_chat(chat_file: Path, tmp_path: Path) -> Path:
    """A file whose message was imported with other words."""
    write_json(chat_file, {"id": "c1", "messages": CHAT})
    assert run("import", chat_file, "--store", tmp_path / "store").code == 0
    changed = {"role": "user", "content": "My bike is red.", "id": "m1"}
    write_json(chat_file, {"id": "c1", "messages": [changed]})
    return chat_file


def contents(folder: Path) -> list[Any]:
    with ChromaStore(folder) as store:
        pipeline = ContextPipeline(store=store)
        messages = pipeline.get_messages(user_id="me", conversation_id="c1")
    return [message.content for message in messages]


def test_an_import_does_not_replace_a_changed_message(changed_chat: Path, tmp_path: Path) -> None:
    imported = run("import", changed_chat, "--store", tmp_path / "store")
    assert imported.code == 1
    assert "--replace" in imported.err
    assert contents(tmp_path / "store") == ["My bike is blue.", "Nice!"]


def test_an_import_that_may_replace_a_changed_message_does_so(
    changed_chat: Path, tmp_path: Path
) -> None:
    imported = run("import", changed_chat, "--store", tmp_path / "store", "--replace")
    assert imported.code == 0
    assert contents(tmp_path / "store") == ["My bike is red."]
