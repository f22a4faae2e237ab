"""The work state of an agent: what is read out of calls whose tools nobody knows."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_ctxbudget import AssembledContext, ContextPipeline, ContextSettings
from langchain_ctxbudget.history.tool_kinds import ToolUse
from langchain_ctxbudget.history.work_state import WorkState, most_tokens, names_in

Arguments = dict[str, Any]
Round = tuple[str, Arguments, str]
"""The tool of a call, its arguments and its result."""
LIST = [
    {"content": "Write the parser", "status": "completed"},
    {"content": "Test it", "status": "in_progress"},
]
WRITE_B = {"command": "cat > b.py <<'EOF'\na = 1\nb = 2\nEOF"}
"""A here document."""


def messages_of_a_round(number: int, name: str, args: Arguments, result: str) -> list[BaseMessage]:
    call_id = f"call {number}"
    call = {"name": name, "args": args, "id": call_id, "type": "tool_call"}
    return [AIMessage("", tool_calls=[call]), ToolMessage(result, tool_call_id=call_id)]


def messages_of(*rounds: Round) -> list[BaseMessage]:
    messages: list[BaseMessage] = []
    for number, (name, args, result) in enumerate(rounds):
        messages += messages_of_a_round(number, name, args, result)
    return messages


def state_of(*rounds: Round) -> WorkState:
    return WorkState().read(enumerate(messages_of(*rounds)))


def text_of(*rounds: Round, budget: int = 1_000, said: str = "") -> str:
    """The work state as it stands in a prompt that says something else already."""
    return lines_of(state_of(*rounds), budget, said)


def lines_of(state: WorkState, budget: int = 1_000, said: str = "") -> str:
    text = ""
    for line in state.lines(len, budget, said):
        if not line.order:
            text += line.heading
        text += line.text
    return text


# Kinds of calls


KINDS = pytest.mark.parametrize(
    ("name", "args", "kind"),
    [
        ("Read", {"file_path": "b.py", "offset": None, "content": None}, "read"),
        ("x", {"path": "b.py", "search": "a", "replace": "b"}, "edit"),
        ("x", {"target_file": "b.py", "instructions": "Mend it.", "code_edit": "..."}, "edit"),
        ("apply_patch", {"input": "*** Begin Patch\n*** Update File: a.py\n"}, "edit"),
        ("make", {"filename": "b.py", "content": "x"}, "write"),
        ("make", {"filename": "b.py", "content": "a patch:\n+++ b/a.py\n"}, "write"),
        ("sh", {"command": ["bash", "-lc", "make test"]}, "run"),
        ("sh", {"command": ["bash", "-lc", "cd src && nl -ba b.py | sed -n '3,9p'"]}, "read"),
        ("sh", WRITE_B, "write"),
        ("sh", {"command": "tee -a <<'EOF'\na = 1\nEOF"}, "run"),
        ("sh", {"command": "cat > /dev/null <<'EOF'\na = 1\nEOF"}, "run"),
        ("sh", {"command": "cat > b.py <<'EOF'\na = 1\nEOF\nmake\nEOF"}, "run"),
        ("ls", {"dir_path": "src"}, "other"),
        ("grep", {"pattern": "def f", "path": "src"}, "search"),
        ("sh", {"command": "git commit -m \"$(cat <<'EOF'\nb\nEOF\n)\""}, "run"),
        ("plan", {"items": LIST}, "todo"),
        ("Task", {"description": "Look for it", "prompt": "Look for it."}, "other"),
        ("TaskOutput", {"task_id": "2", "block": True}, "other"),
        ("weather", {"city": "Rome"}, "other"),
    ],
)


@KINDS
def test_the_kind_of_a_call_follows_from_its_arguments(
    name: str, args: Arguments, kind: str
) -> None:
    assert ToolUse.of(name, args, {}).kind == kind


@KINDS
def test_the_kind_of_a_call_is_what_the_application_says(
    name: str, args: Arguments, kind: str
) -> None:
    del kind  # of its arguments

    assert ToolUse.of(name, args, {name: "run"}).kind == "run"


# Texts of files


@pytest.mark.parametrize(
    "args",
    [
        {"file_path": "b.py", "old_string": "a", "new_string": "c"},
        {"path": "b.py", "edits": [{"oldText": "a", "newText": "c"}]},
        {"path": "b.py", "diff": "<<<<<<< SEARCH\na = 1\n=======\nc = 1\n>>>>>>> REPLACE"},
        {"input": "*** Update File: b.py\n@@\n-a = 1\n+c = 1\n*** End Patch"},
    ],
    ids=["old and new string", "list of edits", "search and replace", "patch"],
)
def test_the_text_of_a_file_follows_the_edits_of_common_tools(args: Arguments) -> None:
    state = state_of(
        ("Read", {"file_path": "b.py"}, "a = 1\na = 2"),
        ("tool", args, "done"),
    )

    assert state.texts["b.py"].lines[1][0] == "c = 1"


def lines_after_a_second_read(args: Arguments, result: str) -> dict[int, str]:
    """The lines that are known of b.py, which was two lines long when it was read first."""
    state = state_of(("read", {"path": "b.py"}, "a\nb"), ("read", args, result))
    return {number: line[0] for number, line in state.texts["b.py"].lines.items()}


def test_a_read_without_numbers_is_of_the_whole_file() -> None:
    args = {"path": "b.py", "explanation": "Again."}

    assert lines_after_a_second_read(args, "c") == {1: "c"}


@pytest.mark.parametrize(
    "args",
    [
        {"path": "b.py", "start_line": 1, "end_line": 1},
        {"path": "b.py", "end_line": 2, "start_line": 1},
    ],
)
def test_a_read_of_some_lines_replaces_these_alone(args: Arguments) -> None:
    assert lines_after_a_second_read(args, "c") == {1: "c", 2: "b"}


@pytest.mark.parametrize(
    ("args", "result"),
    [
        ({"path": "b.py", "page": 2}, "c"),
        ({"path": "b.py", "offset": "9" * 5_000}, "9" * 5_000 + "\tc"),
        ({"command": "cat b.py"}, "cat: b.py: No such file or directory"),
        ({"command": "cat b.py"}, "c\n[exit code 1]"),
    ],
    ids=["another page", "more digits than Python reads", "no such file", "failed"],
)
def test_a_read_of_something_else_replaces_nothing(args: Arguments, result: str) -> None:
    lines = lines_after_a_second_read(args, result)

    assert lines[1] == "a"
    assert lines[2] == "b"


@pytest.mark.parametrize(
    "result",
    [
        "failed with exit code 1\n",
        "timed out after 9s",
        "fatal: no",
        "tee: b.py: Permission denied",
    ],
)
def test_a_here_document_that_failed_is_a_failed_command_and_no_file(result: str) -> None:
    state = state_of(("sh", WRITE_B, result))

    assert state.files == {}
    assert state.texts == {}
    [command] = state.commands.values()
    assert command.failed


@pytest.mark.parametrize(
    "command", ["echo c >> b.py", "tee -a b.py <<'E'\nc\nE", "cat > b.py <<E\nc\nE"]
)
def test_the_text_of_a_file_is_unknown_once_a_command_wrote_to_it(command: str) -> None:
    state = state_of(("sh", WRITE_B, ""), ("sh", {"command": command}, ""))

    assert not state.texts


# To-dos and errors


def test_to_dos_that_change_one_by_one_are_told_until_they_are_done() -> None:
    text = text_of(
        ("TaskCreate", {"subject": "Write the parser"}, "Task #1 created: Write the parser"),
        ("TaskCreate", {"subject": "Test it"}, "Task #2 created: Test it"),
        ("TaskCreate", {"subject": "Tell others"}, "Task #3 created: Tell others"),
        ("TaskUpdate", {"taskId": "1", "status": "completed"}, "ok"),
        ("TaskUpdate", {"taskId": "2", "status": "in_progress"}, "ok"),
    )

    assert text.startswith("# To do\n- Test it (in progress)\n- Tell others\n#")


@pytest.mark.parametrize(
    "text",
    [
        '"""The error types of the package."""',
        "# Error handling",
        "// error codes",
        "Handling of error messages",
    ],
)
def test_a_file_about_errors_is_no_failed_read(text: str) -> None:
    assert "# Last error" not in text_of(("Read", {"path": "src/errors.py"}, text))


@pytest.mark.parametrize("text", ["Error: no such file", "<error>No.</error>"])
def test_a_read_that_ends_with_an_error_failed(text: str) -> None:
    assert "# Last error" in text_of(("Read", {"path": "src/errors.py"}, text))


@pytest.mark.parametrize(
    ("budget", "commands"), [(1_000, ["make", "ls", "pwd"]), (260, ["ls", "pwd"])]
)
def test_the_newest_commands_stand_in_order_of_time(budget: int, commands: list[str]) -> None:
    rounds = [("Bash", {"command": command}, "ok") for command in ("make", "ls", "pwd")]

    lines = "".join(f"- {command}: no error\n" for command in commands)
    assert text_of(*rounds, budget=budget) == f"# Commands, in order of time\n{lines}"


def after(failed: str, *commands: str) -> str:
    """The work state after a command has failed and others have ended well."""
    rounds = [("Bash", {"command": failed}, "Exit code 1")]
    rounds += [("Bash", {"command": command}, "ok") for command in commands]
    return text_of(*rounds)


@pytest.mark.parametrize(
    ("failed", "commands"),
    [
        ("pytest a", ["cd x && pytest a && ruff check"]),
        ("cd x && pytest a", ["cd x && ruff check && pytest a"]),
        ("pytest a", ["pytest a 2>&1 | tail -5"]),
        ("pytest a && ruff check", ["pytest a", "ruff check"]),
        ("git commit -m 'a; b && c'", ["git add . && git commit -m 'a; b && c'"]),
    ],
)
def test_a_command_that_succeeds_resolves_the_error_of_its_part(
    failed: str, commands: list[str]
) -> None:
    assert "(resolved since)" in after(failed, *commands)


@pytest.mark.parametrize(
    ("failed", "commands"),
    [
        ("pytest a", ["cd x && pytest b"]),
        ("pytest a && ruff check", ["ruff check"]),
        ("cd x && pytest a", ["cd y && pytest a"]),
        ("pytest a", ["pytest a || true"]),
        ("pytest a", ["echo 'pytest a; pytest a'"]),
        ("cd x", ["cd y"]),
    ],
)
def test_another_command_that_succeeds_resolves_nothing(failed: str, commands: list[str]) -> None:
    assert "(not resolved yet)" in after(failed, *commands)


def test_a_part_that_succeeded_before_resolves_nothing() -> None:
    text = text_of(
        ("Bash", {"command": "pytest a && ruff check"}, "ok"),
        ("Bash", {"command": "pytest a"}, "Exit code 1"),
    )

    assert "(not resolved yet)" in text


def test_an_error_is_resolved_once_the_same_command_ends_well() -> None:
    make = {"command": "make"}

    text = text_of(("Bash", make, "fatal: no such file"), ("Bash", make, "ok"))

    assert "(resolved since)" in text


def test_a_command_resolves_no_search_for_the_same_words() -> None:
    calling, result = messages_of_a_round(0, "Grep", {"pattern": "make"}, "Error: timed out")
    failed = result.model_copy(update={"status": "error"})
    made = messages_of_a_round(1, "Bash", {"command": "make"}, "ok")

    state = WorkState().read(enumerate([calling, failed, *made]))

    assert "(not resolved yet)" in lines_of(state)


@pytest.mark.parametrize("result", ["", " \n"])
@pytest.mark.parametrize(
    ("name", "args", "line"),
    [
        ("Bash", {"command": "make"}, "- make: failed, an error without a message"),
        ("Bash", {"command": "make"}, "- make: an error without a message (not resolved yet)"),
        ("Grep", {"pattern": "x"}, "- x: an error without a message (not resolved yet)"),
        (
            "Write",
            {"path": "src/b.py", "content": "x"},
            "- b.py: the last change failed (an error without a message)",
        ),
    ],
)
def test_an_error_without_a_text_is_told_as_a_failure(
    result: str, name: str, args: Arguments, line: str
) -> None:
    calling, answer = messages_of_a_round(1, name, args, result)
    failed = answer.model_copy(update={"status": "error"})

    state = WorkState().read(enumerate([calling, failed]))

    assert line in lines_of(state)


def test_the_last_error_of_a_tool_names_the_tool() -> None:
    error = "FAILED tests/test_a.py::test_b - AssertionError: 3 != 4"

    text = text_of(("run_tests", {"target": "tests/test_a.py"}, error))

    assert '- run_tests {"target": "tests/test_a.py"}: FAILED tests/test_a.py::test_b' in text


# How things stand


@pytest.fixture(scope="module")
def a_session() -> str:
    """The work state after files were made, changed and read, and commands were run."""
    old = "src/old_one.py"
    return text_of(
        ("Write", {"file_path": "src/new_one.py", "content": "x"}, "done"),
        ("Edit", {"file_path": old, "old_string": "a", "new_string": "b"}, "done"),
        ("Edit", {"file_path": old, "old_string": "b", "new_string": "c"}, "done"),
        ("Read", {"file_path": "src/read_one.py"}, "text"),
        ("Bash", {"command": "cat src/gone.py"}, "cat: src/gone.py: No such file or directory"),
        ("Bash", {"command": "make test"}, "compiling\nError: no rule\nExit code 2"),
        ("Bash", {"command": "ls"}, "a b"),
        ("TodoWrite", {"todos": LIST}, "ok"),
    )


@pytest.mark.parametrize(
    "line",
    [
        "- make test: Error: no rule (not resolved yet)",
        "- ls: no error",
        "- Test it (in progress)",
        "src/new_one.py: made",
        "src/old_one.py: changed 2 times",
    ],
)
def test_it_tells_how_files_commands_and_plans_stand(a_session: str, line: str) -> None:
    assert line in a_session


def test_what_is_done_is_not_told(a_session: str) -> None:
    assert "Write the parser" not in a_session


def test_files_that_could_not_be_read_are_not_among_those_read(a_session: str) -> None:
    assert "# Files read\n- src/read_one.py\n" in a_session


# Names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (
            "see src/app.py:12, getUser in commit a02cdeb, https://x.org/a",
            {"src/app.py", "getUser", "a02cdeb", "https://x.org/a"},
        ),
        (
            "OBUT9V, at 10:15:00 on 2024-05-27, item 9523456873, 2 x 128 USD",
            {"OBUT9V", "2024-05-27", "9523456873"},
        ),
    ],
    ids=["paths, symbols, hashes and URLs", "codes, days and numbers of things, no small ones"],
)
def test_names_are_what_somebody_may_look_for_again(text: str, names: set[str]) -> None:
    assert set(names_in(text)) == names


def search_for(name: str, result: str = "") -> Round:
    return "Grep", {"pattern": name}, result


def test_a_name_that_was_given_lately_comes_before_others() -> None:
    searches = [search_for(f"old_name_{number}") for number in range(20)]

    text = text_of(*searches, search_for("new_name"), budget=90)

    assert "new_name" in text
    assert "old_name_1," not in text


def test_a_name_that_a_search_found_alone_comes_before_one_of_many() -> None:
    many = " ".join(f"name_{number:03}" for number in range(100))

    text = text_of(
        search_for("x", "src/found.py"), ("Read", {"file_path": "src/a.py"}, many), budget=150
    )

    assert "src/found.py" in text
    assert "name_099" not in text


@pytest.mark.parametrize(
    ("rounds", "line"),
    [
        ([("Read", {"file_path": "src/a.py"}, "x = some_name")], "- a.py: some_name\n"),
        ([("Bash", {"command": "make"}, "built 1d332f0ab")], "- make: 1d332f0ab\n"),
        ([("Bash", {"command": "make"}, "src/a.py:3: some_name")], "- a.py: some_name\n"),
        ([("Grep", {"pattern": "x"}, "src/found.py")], "- files seen: src/found.py\n"),
        (
            [
                ("Read", {"file_path": "src/a.py"}, "x = some_name"),
                ("Bash", {"command": "make"}, "some_name"),
            ],
            "- a.py: some_name\n",
        ),
    ],
    ids=["file", "command", "hit", "file that was seen", "file rather than command"],
)
def test_a_name_stands_with_its_file_or_command(rounds: list[Round], line: str) -> None:
    assert line in text_of(*rounds)


def test_a_name_of_the_user_says_so() -> None:
    state = WorkState().read([(0, HumanMessage("Look at some_name."))])

    assert "- said by the user: some_name\n" in lines_of(state)


def test_a_name_that_only_the_assistant_has_said_is_left_out() -> None:
    state = WorkState().read([(0, AIMessage("I look at some_name."))])

    assert lines_of(state) == ""


@pytest.mark.parametrize(
    "text", ["jq .user.login", "a </tool_use_error> b", r"a\nb", ".name", "<picture/>"]
)
def test_fields_and_tags_are_no_names(text: str) -> None:
    assert dict(names_in(text)) == {}


def test_a_line_break_of_json_does_not_begin_a_name() -> None:
    assert dict(names_in(r'"{\nsome_name"')) == {"some_name": 1}


def test_names_that_imitate_a_fence_are_harmless() -> None:
    text = text_of(("Bash", {"command": "</conversation_arc> rm"}, "error: x"))

    assert "</conversation_arc>" not in text


# Files


MANY_NAMES = search_for(" ".join(f"some_name_{number}" for number in range(100)))
CHANGED_AND_READ: list[Round] = [
    MANY_NAMES,
    (
        "Edit",
        {"file_path": "src/changed_one.py", "old_string": "a", "new_string": "b"},
        "done",
    ),
    ("Read", {"file_path": "src/read_one.py"}, "x"),
]


def test_a_few_files_have_their_place_before_many_names() -> None:
    text = text_of(*CHANGED_AND_READ, budget=600)

    changed = text.index("src/changed_one.py: changed")
    assert changed < text.index("src/read_one.py") < text.index("some_name_")


def test_a_file_that_the_prompt_names_says_how_it_stands() -> None:
    text = text_of(*CHANGED_AND_READ, budget=600, said="Mend src/changed_one.py.")

    assert "- changed_one.py: changed" in text


def test_changed_files_are_all_told_though_they_share_a_name() -> None:
    paths = ("lib/main.py", "src/main.py", "main.py", "main.pyi")

    text = text_of(
        *(("Write", {"path": path, "content": "x"}, "ok") for path in paths), said="lib/main.py"
    )

    files = text.splitlines()[1].removeprefix("- ").split(", ")
    assert sorted(files) == [
        "lib/main.py: made",
        "main.py: made",
        "main.pyi: made",
        "src/main.py: made",
    ]


WORK = f"/home/{'a_long_name/' * 5}project"
FIRST = "src/first/module.py"
SECOND = "src/second/module.py"
READS: list[Round] = [
    ("Read", {"path": f"{WORK}/{FIRST}"}, "x = 1"),
    ("Read", {"path": f"{WORK}/{SECOND}"}, "x = 1"),
]
READS_OF_THE_SECOND_CHECKOUT: list[Round] = [
    ("Read", {"path": f"{WORK}-two/{FIRST}"}, "x = 1"),
    ("Read", {"path": f"{WORK}-two/{SECOND}"}, "x = 1"),
]
BOTH_FOUND: Round = ("Search", {"pattern": "module.py"}, f"{FIRST}\n{SECOND}")


def test_long_paths_are_told_from_the_directory_of_the_work() -> None:
    text = text_of(*READS, BOTH_FOUND)

    assert f"relative paths are below {WORK}" in text
    assert text.count(WORK) == 1


def test_a_name_within_another_one_is_told_once() -> None:
    text = text_of(*READS, BOTH_FOUND)

    assert text.count(FIRST) == 1
    assert text.count(SECOND) == 1
    assert text.count("module.py") == 2


def test_of_two_checkouts_neither_is_the_directory_of_the_work() -> None:
    text = text_of(*READS, *READS_OF_THE_SECOND_CHECKOUT, BOTH_FOUND)

    assert "relative paths" not in text


def test_a_checkout_in_which_commands_run_is_where_the_work_is() -> None:
    make = ("Bash", {"command": f"cd {WORK}-two && make"}, "")

    text = text_of(*READS, *READS_OF_THE_SECOND_CHECKOUT, BOTH_FOUND, make)

    assert f"paths are below {WORK}-two\n" in text


# The budget


def test_it_keeps_its_budget() -> None:
    reads: list[Round] = [
        ("Read", {"file_path": f"src/file_{number}.py"}, "x") for number in range(100)
    ]

    assert len(text_of(*reads, budget=500)) <= 500


@pytest.mark.parametrize(
    ("calls", "tokens"), [(0, 0), (1, 80), (2, 160), (3, 160), (4, 320), (500, 5_800)]
)
def test_it_grows_only_when_calls_have_doubled(calls: int, tokens: int) -> None:
    assert most_tokens(calls, 100_000) == tokens


def test_it_grows_to_a_quarter_of_the_prompt_at_most() -> None:
    assert most_tokens(500, 2_000) == 500


# In a prompt


def sixty_reads_of_which_one_was_never_answered() -> list[BaseMessage]:
    messages = messages_of(
        *(
            ("Read", {"file_path": f"src/some_file_{number % 7}.py"}, f"line {number}\n" * 150)
            for number in range(60)
        )
    )
    return messages[:11] + messages[12:]


READ_EVERYTHING = [
    HumanMessage("Read everything."),
    *sixty_reads_of_which_one_was_never_answered(),
]


@dataclass
class Told:
    """A prompt within 3,000 tokens, and the items of its arc."""

    context: AssembledContext

    @property
    def items(self) -> Any:
        [arc] = [layer for layer in self.context.report.layers if layer.layer == "L4"]
        return arc.items


@pytest.fixture(scope="module")
def told_between_turns() -> Told:
    pipeline = ContextPipeline(
        settings=ContextSettings(max_context_tokens=3_000), system_prompt="You are an agent."
    )
    turn = [*READ_EVERYTHING, AIMessage("Done.")]
    pipeline.add_messages(turn, user_id="ada", conversation_id="c1")
    return Told(pipeline.assemble("What now?", user_id="ada", conversation_id="c1"))


@pytest.fixture(scope="module")
def told_in_a_turn() -> Told:
    pipeline = ContextPipeline(
        settings=ContextSettings(max_context_tokens=3_000), system_prompt="You are an agent."
    )
    return Told(pipeline.assemble(READ_EVERYTHING, user_id="ada", conversation_id="c1"))


@pytest.fixture(params=["told_between_turns", "told_in_a_turn"])
def prompt_of_reads(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@pytest.mark.slow
def test_what_stands_before_the_cut_is_told(prompt_of_reads: Told) -> None:
    assert "src/some_file_3.py" in repr(prompt_of_reads.context.messages)
    assert prompt_of_reads.context.report.total_tokens <= 3_000


@pytest.mark.slow
def test_files_read_before_the_cut_are_reported(told_between_turns: Told) -> None:
    assert any(item.id.startswith("files read") for item in told_between_turns.items)
    assert sum(item.tokens for item in told_between_turns.items) <= 750


def test_lines_read_before_the_cut_of_a_turn_are_reported(told_in_a_turn: Told) -> None:
    assert any(item.id.startswith("lines of") for item in told_in_a_turn.items)
    assert sum(item.tokens for item in told_in_a_turn.items) <= 1_800


@pytest.fixture(scope="module")
def long_turn() -> list[AssembledContext]:
    """Prompts of a turn of 300 calls, after each of its last twenty."""
    calls = messages_of(
        *(
            ("look_at", {"what": f"src/file_{i}.py"}, f"line {i} " * (20 + i % 50))
            for i in range(300)
        )
    )
    question = HumanMessage("Look at everything, please.")
    pipeline = ContextPipeline({"max_context_tokens": 4_000, "tool_kinds": {"look_at": "read"}})
    return [
        pipeline.assemble([question, *calls[:end]], user_id="ada", conversation_id="c1")
        for end in range(560, 601, 2)
    ]


@pytest.mark.slow
def test_every_prompt_of_a_long_turn_is_within_its_budget(
    long_turn: list[AssembledContext],
) -> None:
    assert max(context.report.total_tokens for context in long_turn) <= 4_000


@pytest.mark.slow
def test_every_prompt_of_a_long_turn_ends_with_the_last_result(
    long_turn: list[AssembledContext],
) -> None:
    for number, context in enumerate(long_turn, 279):
        assert context.messages[-1].text.startswith(f"line {number} ")


@pytest.mark.slow
def test_a_long_turn_keeps_the_words_of_the_user_and_the_work_state(
    long_turn: list[AssembledContext],
) -> None:
    for context in long_turn:
        assert context.messages[0].text.endswith("Look at everything, please.")
        assert "# Files read\n" in context.messages[0].text


@pytest.mark.slow
def test_a_long_turn_renews_its_work_state_at_steps_only(
    long_turn: list[AssembledContext],
) -> None:
    for before, after in pairwise(long_turn):
        is_renewed = before.messages[0].text != after.messages[0].text
        assert after.report.stability.compaction_step == is_renewed


@pytest.mark.slow
def test_a_long_turn_renews_its_work_state_seldom(long_turn: list[AssembledContext]) -> None:
    texts = {context.messages[0].text for context in long_turn}

    assert len(texts) <= 10  # of 21 prompts


def test_lines_that_the_user_named_stay_in_a_long_turn_once() -> None:
    code = "\n".join(f"    value_of_line_{number} = {number}" for number in range(1, 401))
    parts = [
        ("Bash", {"command": f"make part_{number}"}, f"part {number} was made " * 60)
        for number in range(1, 40)
    ]
    rounds = messages_of(("Read", {"file_path": "src/wall.py"}, code), *parts)
    question = HumanMessage("Please mend src/wall.py:300, the wall is crooked there.")

    context = ContextPipeline({"max_context_tokens": 4_000}).assemble(
        [question, *rounds], user_id="ada", conversation_id="c1"
    )

    prompt = "\n".join(message.text for message in context.messages)
    assert "300\t    value_of_line_300 = 300\n" in prompt
    assert prompt.count("value_of_line_300 ") == 1
    assert context.report.total_tokens <= 4_000


def test_of_a_long_listing_a_few_names_are_told() -> None:
    files = [f"{number:04}_step.sql" for number in range(40)]

    text = text_of(("Bash", {"command": "ls migrations"}, "\n".join(files)))

    assert sum(name in text for name in files) == 8
