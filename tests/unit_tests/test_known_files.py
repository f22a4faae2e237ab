"""The known texts of files, and the lines of them that an agent's prompt shows."""

from langchain_ctxbudget.history import known_files
from langchain_ctxbudget.history.known_files import Focus, KnownFile

FILE = KnownFile({number: f"name_of_line_{number} = {number}" for number in range(1, 101)}, read=1)


def test_an_edit_moves_the_lines_behind_it() -> None:
    edited = FILE.edited("line_2 = 2\nname_of_line_3", "line_2 = 0\nadded = 1\nname_of_line_3")
    assert [edited.lines[number] for number in (1, 2, 3, 4, 5)] == [
        "name_of_line_1 = 1", "name_of_line_2 = 0", "added = 1", "name_of_line_3 = 3", "name_of_line_4 = 4",
    ]  # fmt: skip
    assert edited.lines[101] == "name_of_line_100 = 100"


def test_an_edit_of_what_is_not_known_changes_nothing() -> None:
    assert FILE.edited("something else", "new") == FILE


def test_a_part_that_was_read_replaces_the_same_lines_only() -> None:
    part = known_files.read_lines("    50→changed\n    51→too", {"file_path": "a.py", "offset": 50, "limit": 2})
    merged = FILE.with_part(part, call=7)
    assert (merged.lines[49], merged.lines[50], merged.lines[51]) == ("name_of_line_49 = 49", "changed", "too")
    assert len(merged.lines) == len(FILE.lines)


def test_lines_without_numbers_are_counted_from_where_reading_began() -> None:
    assert known_files.read_lines("a\nb", {"path": "a.py", "start_line": 7}) == {7: "a", 8: "b"}


def test_lines_that_were_named_by_number_are_chosen_and_fit_the_budget() -> None:
    values = known_files.worth({"src/a.py": FILE}, Focus(places={"a.py": [(60, 62)] * 3}), calls=2)
    chosen = known_files.chosen_lines({"src/a.py": FILE}, values, len, 200, {})
    assert all(f"{number}\tname_of_line_{number} = {number}\n" in chosen["src/a.py"] for number in (60, 61, 62))
    assert 100 < len(f"- src/a.py\n{chosen['src/a.py']}") <= 200


def test_lines_that_the_prompt_says_already_are_not_chosen() -> None:
    values = known_files.worth({"a.py": FILE}, Focus(places={"a.py": [(60, 62)] * 3}), calls=2)
    said = known_files.said_lines("60→name_of_line_60 = 60\n61→name_of_line_61 = 61")
    chosen = known_files.chosen_lines({"a.py": FILE}, values, len, 200, {"a.py": said})["a.py"]
    assert "line_62" in chosen
    assert "line_60" not in chosen
