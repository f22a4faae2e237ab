"""How documents are cut, summed up and named: pure functions."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget import TiktokenCounter
from langchain_ctxbudget.documents.catalogue import names_of, newest_mentions
from langchain_ctxbudget.documents.splitting import extract, markdown_parts, split

COUNTER = TiktokenCounter()


def chunks_of(text: str, chunk_tokens: int = 32, overlap_tokens: int = 0) -> list[str]:
    return split(text, COUNTER, chunk_tokens, overlap_tokens)


@settings(max_examples=40)
@given(st.text(st.sampled_from("ab .\n#,字é\U0001f642\t"), max_size=600), st.integers(0, 8))
def test_without_white_space_nothing_is_lost(text: str, overlap: int) -> None:
    chunks = chunks_of(text, 16, overlap)

    for chunk in chunks:
        assert COUNTER.count_text(chunk) <= 16
        assert chunk in text
    assert set("".join(text.split())) <= set("".join(chunks))
    if overlap == 0:
        assert "".join("".join(chunks).split()) == "".join(text.split())


# Markdown


NESTED = "Before.\n# A\nOne.\n## B\nTwo.\n### C ##\nThree.\n# D\nFour.\n"


def test_a_markdown_part_knows_its_headings() -> None:
    parts = markdown_parts(NESTED)

    assert [part.heading for part in parts] == ["", "A", "A > B", "A > B > C", "D"]


def test_a_markdown_part_has_the_text_below_its_heading() -> None:
    last_lines = [part.text.strip().split("\n")[-1] for part in markdown_parts(NESTED)]

    assert last_lines == ["Before.", "One.", "Two.", "Three.", "Four."]


def test_a_comment_in_code_is_no_heading() -> None:
    parts = markdown_parts("# A\n````\n# no\n```\n# no\n````\n~~~\n# no\n~~~\n# B\ntext\n")

    assert [part.heading for part in parts] == ["A", "B"]


def test_a_markdown_part_keeps_its_code() -> None:
    code = "def f(x):\n    if x:\n        return 1\n    return 2"

    [part] = markdown_parts(f"# Code\n\n```python\n{code}\n```\n")

    assert code in chunks_of(part.text, 256)[0]


# Fences of code


LINES = "\n\n".join(
    f"step_{number} = prepare(step_{number - 1}, {number})" for number in range(1, 40)
)
SHORT_FENCE = "```python\nopen_gate()\n\nfill_lock()\n```"
LONG_FENCE = f"```python\n{LINES[:400]}\n```"
BEFORE_CODE = "The lock is worked by hand. Two people stand on either side of the gate. " * 2
AFTER_CODE = "Then the boat goes on. The gate stays open for the next one in the line. " * 2


def around(fence: str) -> str:
    return f"{BEFORE_CODE}\n\n{fence}\n\n{AFTER_CODE}"


@pytest.mark.parametrize(
    "fence",
    [
        SHORT_FENCE,
        LONG_FENCE,
        SHORT_FENCE.replace("```", "~~~~"),
        "    ```sh\n    ls\n\n    pwd\n    ```",
    ],
    ids=["shorter than a chunk", "longer than a chunk", "of tildes", "in a list"],
)
@pytest.mark.parametrize("overlap", [0, 16])
def test_a_fence_of_code_stands_whole_in_one_chunk(fence: str, overlap: int) -> None:
    chunks = chunks_of(around(fence), 64, overlap)

    assert len(chunks) > 1
    assert any(fence.strip() in chunk for chunk in chunks)


@pytest.mark.parametrize("overlap", [0, 16])
def test_no_chunk_has_half_a_fence(overlap: int) -> None:
    text = "\n\n".join([around(SHORT_FENCE), around(LONG_FENCE), around(f"```\n{LINES}\n```")])

    for chunk in chunks_of(text, 48, overlap):
        assert chunk.count("```") % 2 == 0


def test_a_very_long_fence_is_cut_between_its_lines_into_fences() -> None:
    chunks = chunks_of(f"```python\n{LINES}\n```", 48)

    assert {chunk.splitlines()[0] for chunk in chunks} == {"```python"}
    assert {chunk.splitlines()[-1] for chunk in chunks} == {"```"}
    assert max(map(COUNTER.count_text, chunks)) <= 48


def test_of_a_very_long_fence_no_line_is_lost() -> None:
    chunks = chunks_of(f"```python\n{LINES}\n```", 48)

    code = [line for chunk in chunks for line in chunk.splitlines()[1:-1] if line]
    assert code == LINES.split("\n\n")


@pytest.mark.parametrize(
    "text",
    ["```python\nopen_gate()", "``` one line ```\ntext", "text with ``` in it", "~~~\nx\n```"],
    ids=["never closed", "code in a line", "marks in a line", "closed by others"],
)
def test_what_is_no_fence_is_split_as_text(text: str) -> None:
    chunks = chunks_of(f"{text}\n\n{BEFORE_CODE * 3}", 16)

    assert max(map(COUNTER.count_text, chunks)) <= 16


# Summaries


WEATHER = "The weather on day {} was much the same as on any other day."
DECISION = "We decided to use PostgreSQL 16 for the billing service."
BEFORE = " ".join(WEATHER.format(day) for day in range(150))
AFTER = " ".join(WEATHER.format(day) for day in range(150, 300))
WITH_A_DECISION = f"{BEFORE} {DECISION} {AFTER}"


def summary_of(text: str) -> str:
    return extract(text, chunks_of(text, 256), COUNTER, 60)


@pytest.mark.parametrize(
    "text",
    [
        "x" * 20_000,
        "| a | b |\n" * 900,
        "One fact about Berlin follows. " * 900,
        WITH_A_DECISION,
    ],
    ids=["a word", "a table", "one sentence", "many sentences"],
)
def test_a_summary_keeps_to_its_tokens(text: str) -> None:
    assert 0 < COUNTER.count_text(summary_of(text)) <= 60


def test_a_summary_has_what_was_decided() -> None:
    assert DECISION in summary_of(WITH_A_DECISION)


# Names of documents


GUIDE = ("Linux Setup Guide", "docs/linux/setup.md")
BUDGET = ("Budget", "text:1")
PAGE = ("A page", "https://example.com/guide")
TWO = [("One", "a/README.md"), ("Two", "b/README.md")]
THREE = [("First thing", "one.txt"), ("Second thing", "two.txt"), ("Third thing", "three.txt")]
Documents = list[tuple[str, str]]
"""Titles and sources."""


def mentioned(documents: Documents, *messages: str) -> list[int]:
    """The places of the documents that messages mention, the newest mention first."""
    names = [names_of(title, source) for title, source in documents]
    return newest_mentions(names, messages)


@pytest.mark.parametrize(
    ("text", "document"),
    [
        ("What does setup.md say?", GUIDE),
        ("See docs/linux/setup.md.", GUIDE),
        ("see linux/SETUP.md.", GUIDE),
        ("The Linux  setup guide is wrong.", GUIDE),
        ("`setup.md`", GUIDE),
        ("What does “Budget” say?", BUDGET),
        ("https://example.com/guide", PAGE),
        ("example.com/guide/", PAGE),
        ("see www.example.com/guide", PAGE),
        ("请看「用户指南」的第二章", ("用户指南", "text:1")),
        ("see Übersicht.md", ("x", "Übersicht.md")),
    ],
)
def test_a_document_is_known_by_file_path_address_or_title(
    text: str, document: tuple[str, str]
) -> None:
    assert mentioned([document], text) == [0]


@pytest.mark.parametrize(
    ("text", "document"),
    [
        ("What does mysetup.md say?", GUIDE),
        ("setup.mdx", GUIDE),
        ("my setup", GUIDE),
        ("linux", GUIDE),
        ("Linux Setup", GUIDE),
        ("What is our budget?", BUDGET),
    ],
)
def test_a_document_is_not_known_by_a_part_of_its_name(
    text: str, document: tuple[str, str]
) -> None:
    assert mentioned([document], text) == []


def test_of_two_files_of_one_name_a_path_names_one() -> None:
    assert mentioned(TWO, "What does b/README.md say?") == [1]


def test_of_two_files_of_one_name_the_name_names_both() -> None:
    assert mentioned(TWO, "What does README.md say?") == [0, 1]


def test_documents_stand_by_their_newest_mention() -> None:
    mentions = mentioned(THREE, "one.txt and two.txt", "now three.txt", "and one.txt")

    assert mentions == [0, 2, 1]
