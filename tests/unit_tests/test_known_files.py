"""The known texts of files, and the lines of them that an agent's prompt shows."""

from langchain_ctxbudget.history import known_files
from langchain_ctxbudget.history.known_files import Focus, KnownFile

FILE = KnownFile({number: (f"name_of_line_{number} = {number}", 1) for number in range(1, 101)})


def test_an_edit_moves_the_lines_behind_it() -> None:
    edited = FILE.edited("line_2 = 2\nname_of_line_3", "line_2 = 0\nadded = 1\nname_of_line_3", 2)
    assert [edited.lines[number] for number in (1, 2, 3, 4, 5, 101)] == [
        ("name_of_line_1 = 1", 1), ("name_of_line_2 = 0", 2), ("added = 1", 2), ("name_of_line_3 = 3", 2),
        ("name_of_line_4 = 4", 1), ("name_of_line_100 = 100", 1),
    ]  # fmt: skip


def test_an_edit_of_every_occurrence_changes_every_line() -> None:
    for wanted, changed in ((True, 100), (False, 1), ("false", 1)):
        edit = {"old_string": "name_of", "new_string": "word_of", "replace_all": wanted}
        [(old, new, every)] = known_files.replacements(edit)
        edited = FILE.edited(old, new, 2, every=every)
        assert (
            sum("word_of" in line and call == 2 for line, call in edited.lines.values()) == changed
        )


def test_many_blocks_without_an_end_are_read_at_once() -> None:
    for text in ("<<<<<<< SEARCH\n=======\n" * 2_000, "<<<<<<< SEARCH\n" + "=====\nabc\n" * 20_000):
        assert not [*known_files.replacements(text)]


def test_a_long_word_that_names_no_file_is_read_at_once() -> None:
    assert not known_files.focus_of("x" * 200_000, "", "", (), "").files


def test_lines_that_were_named_by_number_are_chosen_and_fit_the_budget() -> None:
    values = known_files.worth({"src/a.py": FILE}, Focus(places={"a.py": [(60, 62)] * 3}), calls=2)
    chosen = known_files.chosen_lines({"src/a.py": FILE}, values, len, 200, {})
    assert all(
        f"{number}\tname_of_line_{number} = {number}\n" in chosen["src/a.py"]
        for number in (60, 61, 62)
    )
    assert 100 < len(f"- src/a.py\n{chosen['src/a.py']}") <= 200


def test_a_line_that_recurs_in_its_file_stays_among_its_neighbours() -> None:
    file = KnownFile(
        dict(enumerate([("first_of_all = 1", 1), ("if error is not None:", 1)] * 2, 1))
    )
    worth = known_files.worth({"a.py": file}, Focus(), 2)
    said = {"a.py": {"if error is not None:"}}
    chosen = known_files.chosen_lines({"a.py": file}, worth, len, 500, said)
    assert chosen["a.py"].count("if error is not None:") == 2
