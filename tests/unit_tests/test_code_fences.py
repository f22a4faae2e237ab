"""Fences of code in a text, and parts of a text that begin or end in one."""

import pytest

from langchain_ctxbudget.messages import code_fences, with_borders

TEXT = "Do this:\n\n```python\nopen_gate()\nfill_lock()\n```\n\nThen wait."


def part(beginning: str, end: str) -> str:
    """The part of the text from some words on up to the end of others."""
    return with_borders(TEXT, TEXT.index(beginning), TEXT.index(end) + len(end))


def test_a_fence_is_found_with_its_code() -> None:
    [fence] = code_fences(TEXT)

    assert TEXT[fence.start : fence.end] == "```python\nopen_gate()\nfill_lock()\n```"
    assert TEXT[fence.body_start : fence.body_end] == "open_gate()\nfill_lock()\n"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("```\na\n```\n~~~\nb\n~~~", 2),
        ("````\n```\na\n```\n````", 1),
        ("```\n```", 1),
        ("```\nnever closed", 0),
        ("```a```\n```b```", 0),
        ("~~~\na\n```", 0),
        ("``\na\n``", 0),
    ],
)
def test_a_fence_stands_between_lines_of_the_same_marks(text: str, number: int) -> None:
    assert len(code_fences(text)) == number


@pytest.mark.parametrize(
    ("beginning", "end", "expected"),
    [
        ("Do", "wait.", TEXT),
        ("Then", "wait.", "… Then wait."),
        ("Do", "this:", "Do this: …"),
        ("Do", "open_gate()", "Do this:\n\n```python\nopen_gate() …\n```"),
        ("fill_lock", "wait.", "…\n```python\nfill_lock()\n```\n\nThen wait."),
        ("open_gate", "open_gate()", "…\n```python\nopen_gate() …\n```"),
        ("Do", "```py", "Do this: …"),
        ("Do", "fill_lock()\n``", "Do this:\n\n```python\nopen_gate()\nfill_lock()\n``` …"),
    ],
    ids=["all", "end", "beginning", "ends in", "begins in", "within", "opening", "closing"],
)
def test_a_part_has_both_borders_of_its_code(beginning: str, end: str, expected: str) -> None:
    assert part(beginning, end) == expected
