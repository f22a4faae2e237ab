"""Holds the known texts of files to their edits, and to the lines that an agent can use."""

import pytest

from langchain_ctxbudget.history import known_files
from langchain_ctxbudget.history.known_files import Focus, KnownFile

FILE = KnownFile({number: (f"name_of_line_{number} = {number}", 1) for number in range(1, 101)})


@pytest.mark.parametrize(
    ("number", "line", "call"),
    [
        (1, "name_of_line_1 = 1", 1),
        (2, "name_of_line_2 = 0", 2),
        (3, "added = 1", 2),
        (4, "name_of_line_3 = 3", 2),
        (5, "name_of_line_4 = 4", 1),
        (101, "name_of_line_100 = 100", 1),
    ],
)
def test_an_edit_moves_the_lines_behind_it(number: int, line: str, call: int) -> None:
    edited = FILE.edited("line_2 = 2\nname_of_line_3", "line_2 = 0\nadded = 1\nname_of_line_3", 2)

    assert edited.lines[number] == (line, call)


@pytest.mark.parametrize(
    ("replace_all", "changed_lines"),
    [
        pytest.param(True, 100, id="every occurrence"),
        pytest.param(False, 1, id="the first"),
        pytest.param("false", 1, id="the first, said as a text"),
    ],
)
def test_an_edit_of_every_occurrence_changes_every_line(
    replace_all: bool | str, changed_lines: int
) -> None:
    edit = {"old_string": "name_of", "new_string": "word_of", "replace_all": replace_all}
    [(old, new, every)] = known_files.replacements(edit)

    edited = FILE.edited(old, new, 2, every=every)

    changed = [line for line, call in edited.lines.values() if "word_of" in line and call == 2]
    assert len(changed) == changed_lines


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("<<<<<<< SEARCH\n=======\n" * 2_000, id="blocks"),
        pytest.param("<<<<<<< SEARCH\n" + "=====\nabc\n" * 20_000, id="rules"),
    ],
)
def test_many_blocks_without_an_end_are_read_at_once(text: str) -> None:
    assert list(known_files.replacements(text)) == []


def test_a_long_word_that_names_no_file_is_read_at_once() -> None:
    assert not known_files.focus_of("x" * 200_000, "", "", (), "").files


def lines_named_by_number() -> str:
    """Returns what of the file is shown in 200 characters after lines 60 to 62 were named."""
    files = {"src/a.py": FILE}
    focus = Focus(places={"a.py": [(60, 62), (60, 62), (60, 62)]})
    values = known_files.worth(files, focus, calls=2)
    return known_files.chosen_lines(files, values, len, 200, {})["src/a.py"]


@pytest.mark.parametrize("number", [60, 61, 62])
def test_lines_that_were_named_by_number_are_chosen(number: int) -> None:
    assert f"{number}\tname_of_line_{number} = {number}\n" in lines_named_by_number()


def test_chosen_lines_use_their_budget_with_the_name_of_their_file() -> None:
    assert 100 < len(f"- src/a.py\n{lines_named_by_number()}") <= 200


def test_a_line_that_recurs_in_its_file_stays_among_its_neighbours() -> None:
    condition = "if error is not None:"
    file = KnownFile(
        {
            1: ("first_of_all = 1", 1),
            2: (condition, 1),
            3: ("first_of_all = 1", 1),
            4: (condition, 1),
        }
    )
    values = known_files.worth({"a.py": file}, Focus(), 2)

    chosen = known_files.chosen_lines({"a.py": file}, values, len, 500, {"a.py": {condition}})

    assert chosen["a.py"].count(condition) == 2
