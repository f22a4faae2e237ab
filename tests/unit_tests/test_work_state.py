"""The work state of an agent: what is read out of calls whose tools nobody knows."""

from itertools import chain, pairwise
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_ctxbudget import ContextPipeline, ContextSettings
from langchain_ctxbudget.history.work_state import ToolUse, WorkState, most_tokens, names_in

HERE = {"command": "cat > b.py <<'EOF'\na = 1\nb = 2\nEOF"}
WORK = f"/home/{'a_long_name/' * 5}project"
PATHS = ("src/first/module.py", "src/second/module.py")
READ = [("Read", {"path": f"{WORK}/{path}"}, "x = 1") for path in PATHS]
FOUND = ("Search", {"pattern": "module.py"}, "\n".join(PATHS))
LIST = [
    {"content": "Write the parser", "status": "completed"},
    {"content": "Test it", "status": "in_progress"},
]


def a_call(
    number: int, name: str, args: dict[str, Any], result: str, *, status: str = "success"
) -> list[BaseMessage]:
    made = {"name": name, "args": args, "id": f"call {number}", "type": "tool_call"}
    told = ToolMessage(result, tool_call_id=f"call {number}", status=status)
    return [AIMessage("", tool_calls=[made]), told]


def told(*steps: tuple[str, dict[str, Any], str], budget: int = 1_000, said: str = "") -> str:
    messages = [message for i, step in enumerate(steps) for message in a_call(i, *step)]
    lines = WorkState().read(enumerate(messages)).lines(len, budget, said)
    return "".join(line.heading * (not line.order) + line.text for line in lines)


@pytest.mark.parametrize(
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
        ("sh", HERE, "write"),
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
def test_the_kind_of_a_call_follows_from_its_arguments(
    name: str, args: dict[str, Any], kind: str
) -> None:
    assert ToolUse.of(name, args, {}).kind == kind
    assert ToolUse.of(name, args, {name: "run"}).kind == "run", "unless the application says it"


@pytest.mark.parametrize(
    "args",
    [
        {"file_path": "b.py", "old_string": "a", "new_string": "c"},
        {"path": "b.py", "edits": [{"oldText": "a", "newText": "c"}]},
        {"path": "b.py", "diff": "<<<<<<< SEARCH\na = 1\n=======\nc = 1\n>>>>>>> REPLACE"},
        {"input": "*** Update File: b.py\n@@\n-a = 1\n+c = 1\n*** End Patch"},
    ],
)
def test_the_text_of_a_file_follows_the_edits_of_common_tools(args: dict[str, Any]) -> None:
    steps = [
        *a_call(0, "Read", {"file_path": "b.py"}, "a = 1\na = 2"),
        *a_call(1, "tool", args, "done"),
    ]
    assert WorkState().read(enumerate(steps)).texts["b.py"].lines[1][0] == "c = 1"


def test_a_read_without_numbers_is_of_the_whole_file_whatever_else_it_says() -> None:
    for second, said, kept in (
        ({"path": "b.py", "explanation": "Again."}, "c", False),
        ({"path": "b.py", "start_line": 1, "end_line": 1}, "c", True),
        ({"path": "b.py", "end_line": 2, "start_line": 1}, "c", True),
        ({"path": "b.py", "page": 2}, "c", True),
        (
            {"path": "b.py", "offset": "9" * 5_000},
            "9" * 5_000 + "\tc",
            True,
        ),  # more digits than Python reads
        ({"command": "cat b.py"}, "cat: b.py: No such file or directory", True),
        ({"command": "cat b.py"}, "c\n[exit code 1]", True),
    ):
        steps = [*a_call(0, "read", {"path": "b.py"}, "a\nb"), *a_call(1, "read", second, said)]
        known = WorkState().read(enumerate(steps)).texts["b.py"].lines
        assert (2 in known) == kept
        assert known[1][0] == ("c" if not kept or "start_line" in second else "a")


def test_a_here_document_that_failed_is_a_failed_command_and_no_file() -> None:
    for said in (
        "failed with exit code 1\n",
        "timed out after 9s",
        "fatal: no",
        "tee: b.py: Permission denied",
    ):
        state = WorkState().read(enumerate(a_call(0, "sh", HERE, said)))
        failed = [bool(ran.failed) for ran in state.commands.values()]
        assert (state.files, state.texts, failed) == ({}, {}, [True]), said


def test_the_text_of_a_file_is_unknown_once_a_command_has_written_to_it() -> None:
    for command in ("echo c >> b.py", "tee -a b.py <<'E'\nc\nE", "cat > b.py <<E\nc\nE"):
        steps = [*a_call(0, "sh", HERE, ""), *a_call(1, "sh", {"command": command}, "")]
        assert not WorkState().read(enumerate(steps)).texts, command


def test_to_dos_that_are_made_and_changed_one_by_one_are_told_until_they_are_done() -> None:
    titles = ("Write the parser", "Test it", "Tell others")
    made = [
        ("TaskCreate", {"subject": title}, f"Task #{i} created: {title}")
        for i, title in enumerate(titles, 1)
    ]
    states = {"1": "completed", "2": "in_progress"}
    changes = [("TaskUpdate", {"taskId": i, "status": state}, "ok") for i, state in states.items()]
    assert told(*made, *changes).startswith("# To do\n- Test it (in progress)\n- Tell others\n#")


def test_a_file_about_errors_is_no_failed_read() -> None:
    said = (
        '"""The error types of the package."""',
        "# Error handling",
        "// error codes",
        "Handling of error messages",
    )
    cases = [
        *((text, False) for text in said),
        ("Error: no such file", True),
        ("<error>No.</error>", True),
    ]
    for text, failed in cases:
        assert ("# Last error" in told(("Read", {"path": "src/errors.py"}, text))) == failed, text


def test_names_are_paths_symbols_hashes_ids_urls_codes_numbers_of_things_and_days_and_no_small_numbers() -> (
    None
):
    for text, names in (
        (
            "see src/app.py:12, getUser in commit a02cdeb, https://x.org/a",
            "src/app.py getUser a02cdeb https://x.org/a",
        ),
        (
            "OBUT9V, at 10:15:00 on 2024-05-27, item 9523456873, 2 x 128 USD",
            "OBUT9V 2024-05-27 9523456873",
        ),
    ):
        assert set(names_in(text)) == {*names.split()}


def test_it_tells_how_files_commands_plans_and_errors_stand() -> None:
    text = told(
        ("Write", {"file_path": "src/new_one.py", "content": "x"}, "done"),
        ("Edit", {"file_path": "src/old_one.py", "old_string": "a", "new_string": "b"}, "done"),
        ("Edit", {"file_path": "src/old_one.py", "old_string": "b", "new_string": "c"}, "done"),
        ("Read", {"file_path": "src/read_one.py"}, "text"),
        (
            "Bash",
            {"command": "cat src/gone_one.py"},
            "cat: src/gone_one.py: No such file or directory",
        ),
        ("Bash", {"command": "make test"}, "compiling\nError: no rule\nExit code 2"),
        ("Bash", {"command": "ls"}, "a b"),
        ("TodoWrite", {"todos": LIST}, "ok"),
    )
    assert "- make test: Error: no rule (not resolved yet)" in text
    assert "- ls: no error" in text
    assert "- Test it (in progress)" in text
    assert "Write the parser" not in text
    assert "src/new_one.py: made" in text
    assert "src/old_one.py: changed 2 times" in text
    assert "# Files read\n- src/read_one.py\n" in text, "and none that could not be read"


def test_an_error_is_resolved_once_the_same_command_ends_well() -> None:
    assert "(resolved since)" in told(
        *(("Bash", {"command": "make"}, said) for said in ("fatal: no such file", "ok"))
    )


def test_a_name_that_was_given_often_and_lately_comes_before_others() -> None:
    steps = [("Grep", {"pattern": f"old_name_{i}"}, "") for i in range(20)]
    text = told(*steps, ("Grep", {"pattern": "new_name"}, ""), budget=60)
    assert ("new_name" in text, "old_name_1," in text) == (True, False)


def test_a_name_that_a_search_found_alone_comes_before_one_of_many_in_a_file() -> None:
    many = " ".join(f"name_{i:03}" for i in range(100))
    text = told(
        ("Grep", {"pattern": "x"}, "src/found.py"),
        ("Read", {"file_path": "src/a.py"}, many),
        budget=90,
    )
    assert ("src/found.py" in text, "name_099" in text) == (True, False)


def test_a_few_files_have_their_place_among_many_names_and_say_how_they_stand_though_the_prompt_names_them() -> (
    None
):
    change = {"file_path": "src/changed_one.py", "old_string": "a", "new_string": "b"}
    many = ("Grep", {"pattern": " ".join(f"some_name_{i}" for i in range(100))}, "")
    steps = (many, ("Edit", change, "done"), ("Read", {"file_path": "src/read_one.py"}, "x"))
    text = told(*steps, budget=600)
    assert (
        text.index("src/changed_one.py: changed")
        < text.index("src/read_one.py")
        < text.index("some_name_")
    )
    assert "- changed_one.py: changed" in told(*steps, budget=600, said="Mend src/changed_one.py.")


def test_changed_files_are_all_told_though_one_has_its_path_within_another_and_they_share_a_name() -> (
    None
):
    paths = ["lib/main.py", "src/main.py", "main.py", "main.pyi"]
    state = told(
        *(("Write", {"path": path, "content": "x"}, "ok") for path in paths), said="lib/main.py"
    )
    assert sorted(state.splitlines()[1].removeprefix("- ").split(", ")) == sorted(
        f"{path}: made" for path in paths
    )


def test_it_keeps_its_budget_and_grows_only_when_calls_have_doubled() -> None:
    steps = [("Read", {"file_path": f"src/file_{i}.py"}, "x") for i in range(100)]
    assert len(told(*steps, budget=500)) <= 500
    assert [most_tokens(calls, 100_000) for calls in (0, 1, 2, 3, 4, 500)] == [
        0,
        80,
        160,
        160,
        320,
        5_800,
    ]
    assert most_tokens(500, 2_000) == 500


def test_names_that_imitate_a_fence_are_harmless() -> None:
    assert "</conversation_arc>" not in told(
        ("Bash", {"command": "</conversation_arc> rm"}, "error: x")
    )


@pytest.mark.parametrize("in_turn", [False, True])
def test_what_stands_before_the_cut_is_told_and_reported_though_a_call_was_never_answered(
    *, in_turn: bool
) -> None:
    every = (
        a_call(i, "Read", {"file_path": f"src/some_file_{i % 7}.py"}, f"line {i}\n" * 150)
        for i in range(60)
    )
    steps = [message for place, message in enumerate(chain.from_iterable(every)) if place != 11]
    pipeline = ContextPipeline(
        settings=ContextSettings(max_context_tokens=3_000), system_prompt="You are an agent."
    )
    asked = [HumanMessage("Read everything."), *steps]
    if not in_turn:
        pipeline.add_messages([*asked, AIMessage("Done.")], user_id="ada", conversation_id="c1")
    context = pipeline.assemble(
        asked if in_turn else "What now?", user_id="ada", conversation_id="c1"
    )
    arc = next(layer for layer in context.report.layers if layer.layer == "L4")
    assert any(item.id.startswith("lines of" if in_turn else "files read") for item in arc.items)
    assert sum(item.tokens for item in arc.items) <= (1_800 if in_turn else 750)
    assert "src/some_file_3.py" in repr(context.messages)
    assert context.report.total_tokens <= 3_000


def test_a_turn_of_300_calls_keeps_the_words_of_the_user_and_renews_its_work_state_at_steps_only() -> (
    None
):
    every = (
        a_call(i, "look_at", {"what": f"src/file_{i}.py"}, f"line {i} " * (20 + i % 50))
        for i in range(300)
    )
    steps = [*chain.from_iterable(every)]
    pipeline = ContextPipeline({"max_context_tokens": 4_000, "tool_kinds": {"look_at": "read"}})
    told = list[tuple[str, bool]]()
    for end in range(560, 601, 2):
        turn = [HumanMessage("Look at everything, please."), *steps[:end]]
        context = pipeline.assemble(turn, user_id="ada", conversation_id="c1")
        assert context.report.total_tokens <= 4_000
        assert context.messages[-1].text.startswith(f"line {end // 2 - 1} ")
        told.append((context.messages[0].text, context.report.stability.compaction_step))
    assert all(
        text.endswith("Look at everything, please.") and "# Files read\n" in text
        for text, _ in told
    )
    assert [is_step for _, (_, is_step) in pairwise(told)] == [
        one[0] != two[0] for one, two in pairwise(told)
    ]
    assert len({text for text, _ in told}) < len(told) / 2


def test_lines_that_the_user_named_by_number_stay_in_a_long_turn_and_stand_there_once() -> None:
    code = "\n".join(f"    value_of_line_{number} = {number}" for number in range(1, 401))
    steps = a_call(0, "Read", {"file_path": "src/wall.py"}, code)
    for i in range(1, 40):
        steps += a_call(i, "Bash", {"command": f"make part_{i}"}, f"part {i} was made " * 60)
    turn = [HumanMessage("Please mend src/wall.py:300, the wall is crooked there."), *steps]
    context = ContextPipeline({"max_context_tokens": 4_000}).assemble(
        turn, user_id="ada", conversation_id="c1"
    )
    told = "\n".join(message.text for message in context.messages)
    assert "300\t    value_of_line_300 = 300\n" in told
    assert told.count("value_of_line_300 ") == 1
    assert context.report.total_tokens <= 4_000


def test_the_last_error_of_a_tool_names_the_tool() -> None:
    text = told(
        (
            "run_tests",
            {"target": "tests/test_a.py"},
            "FAILED tests/test_a.py::test_b - AssertionError: 3 != 4",
        )
    )
    assert '- run_tests {"target": "tests/test_a.py"}: FAILED tests/test_a.py::test_b' in text


def test_a_name_within_another_one_is_told_once_and_long_paths_from_the_directory_of_the_work() -> (
    None
):
    state = told(*READ, FOUND)
    assert f"relative paths are below {WORK}" in state
    assert [state.count(one) for one in (*PATHS, "module.py", WORK)] == [1, 1, 2, 1]


def test_of_two_checkouts_the_one_in_which_commands_run_is_told_as_the_directory_of_the_work() -> (
    None
):
    steps = [*READ, *(("Read", {"path": f"{WORK}-two/{path}"}, "x = 1") for path in PATHS), FOUND]
    assert "relative paths" not in told(*steps)
    assert f"paths are below {WORK}-two\n" in told(
        *steps, ("Bash", {"command": f"cd {WORK}-two && make"}, "")
    )
