"""How documents are cut, summed up and named: pure functions."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget import TiktokenCounter, TokenCounter
from langchain_ctxbudget.documents.names import names_of, newest_mentions
from langchain_ctxbudget.documents.splitting import Part, Splitter, markdown_parts
from langchain_ctxbudget.documents.summary import extract
from langchain_ctxbudget.errors import InvalidSettingsError

COUNTER = TiktokenCounter()


def splitter(chunk_tokens: int = 32, overlap_tokens: int = 0, counter: TokenCounter = COUNTER) -> Splitter:
    return Splitter(counter, chunk_tokens, overlap_tokens)


def sizes(chunks: list[str]) -> list[int]:
    return [COUNTER.count_text(chunk) for chunk in chunks]


@pytest.mark.parametrize(
    "text",
    ["x" * 5_000, "字" * 2_000, "word " * 2_000, "One. Two! " * 500, "a\n" * 2_000, "\U0001f469\u200d\U0001f680" * 300],
    ids=["run", "han", "words", "sentences", "lines", "emoji"],
)
def test_no_chunk_is_larger_than_asked_for(text: str) -> None:
    chunks = splitter().split(Part(text))
    assert max(sizes(chunks)) <= 32
    assert len(chunks) > 1


@settings(max_examples=60, deadline=None)
@given(st.text(st.sampled_from("ab .\n#,字é\U0001f642\t"), max_size=600), st.integers(0, 8))
def test_without_white_space_nothing_is_lost(text: str, overlap: int) -> None:
    chunks = splitter(16, overlap).split(Part(text))
    assert all(size <= 16 for size in sizes(chunks))
    assert all(chunk in text for chunk in chunks)
    assert set("".join(text.split())) <= set("".join(chunks))
    if not overlap:
        assert "".join("".join(chunks).split()) == "".join(text.split())


def test_a_chunk_begins_with_the_end_of_the_one_before() -> None:
    sentences = [f"Sentence number {number} says little." for number in range(40)]
    chunks = splitter(40, 16).split(Part(" ".join(sentences)))
    assert len(chunks) > 5
    assert all(after.strip().split(".")[0] in before for before, after in pairwise(chunks))


def test_paragraphs_stay_whole_where_they_fit() -> None:
    paragraphs = [f"Paragraph {number} has a few words in it, and then it ends." for number in range(6)]
    chunks = splitter(40).split(Part("\n\n".join(paragraphs)))
    assert all(any(paragraph in chunk for chunk in chunks) for paragraph in paragraphs)


def test_indentation_of_code_stays() -> None:
    code = "def f(x):\n    if x:\n        return 1\n    return 2"
    [part] = markdown_parts(f"# Code\n\n```python\n{code}\n```\n")
    assert code in splitter(256).split(part)[0]


def test_a_megabyte_takes_few_calls_of_the_tokenizer() -> None:
    counter = TiktokenCounter()
    text = "The quick brown fox jumps over the lazy dog, again and again. " * 16_000
    began = time.perf_counter()
    chunks = splitter(256, 32, counter).split(Part(text))
    assert counter.calls < len(text) / 50
    assert time.perf_counter() - began < 30
    assert len(chunks) > 500


def test_a_run_without_borders_takes_few_calls_of_the_tokenizer() -> None:
    counter = TiktokenCounter()
    splitter(256, 0, counter).split(Part("".join(chr(0x4E00 + n * 7 % 20_000) for n in range(100_000))))
    assert counter.calls < 5_000


@pytest.mark.parametrize(("chunk", "overlap"), [(0, 0), (8, 0), (True, 0), (64, -1), (64, 33), (64, 1.5)])
def test_sizes_that_make_no_sense_are_refused(chunk: int, overlap: int) -> None:
    with pytest.raises(InvalidSettingsError):
        Splitter(COUNTER, chunk, overlap)


# Markdown


def test_a_markdown_part_knows_its_headings() -> None:
    parts = markdown_parts("Before.\n# A\nOne.\n## B\nTwo.\n### C ##\nThree.\n# D\nFour.\n")
    assert [(part.heading, part.text.strip().split("\n")[-1]) for part in parts] == [
        ("", "Before."),
        ("A", "One."),
        ("A > B", "Two."),
        ("A > B > C", "Three."),
        ("D", "Four."),
    ]


def test_a_heading_in_a_code_block_is_none() -> None:
    parts = markdown_parts("# A\n````\n# no\n```\n# no\n````\n~~~\n# no\n~~~\n# B\ntext\n")
    assert [part.heading for part in parts] == ["A", "B"]


def test_a_hash_without_a_space_is_no_heading() -> None:
    assert [part.heading for part in markdown_parts("# A\n#tag\n####### seven\ntext")] == ["A"]


def test_headings_without_text_go_with_the_next_part() -> None:
    [part] = markdown_parts("# Title\n\n## Part\n\nText.\n")
    assert (part.heading, part.text) == ("Title > Part", "# Title\n\n## Part\n\nText.\n")


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(["# A", "## B", "text", "", "```", "~~~", "   # C", "\t"]), max_size=20))
def test_markdown_parts_are_the_text(lines: list[str]) -> None:
    text = "\n".join(lines)
    assert "".join("".join(part.text for part in markdown_parts(text)).split()) == "".join(text.split())


# Summaries


def test_a_short_document_is_its_own_summary() -> None:
    assert extract("All of it.", ["All of it."], COUNTER, 50) == "All of it."


@pytest.mark.parametrize("text", ["x" * 20_000, "| a | b |\n" * 900, "One fact about Berlin follows. " * 900])
def test_a_summary_keeps_to_its_tokens_and_is_not_empty(text: str) -> None:
    summary = extract(text, splitter(256).split(Part(text)), COUNTER, 60)
    assert 0 < COUNTER.count_text(summary) <= 60


def test_a_summary_has_what_was_decided() -> None:
    filler = [f"The weather on day {number} was much the same as on any other day." for number in range(300)]
    text = " ".join([*filler[:150], "We decided to use PostgreSQL 16 for the billing service.", *filler[150:]])
    assert "PostgreSQL 16" in extract(text, splitter(256).split(Part(text)), COUNTER, 60)


# Names


def mentioned(said: list[str], *documents: tuple[str, str]) -> list[int]:
    return newest_mentions([names_of(title, source) for title, source in documents], said)


@pytest.mark.parametrize(
    "said",
    [
        "What does setup.md say?",
        "Look at docs/linux/setup.md, please.",
        "see linux/SETUP.md.",
        "The Linux  setup guide is wrong.",
        "`setup.md`",
    ],
)
def test_a_document_is_named_by_file_path_or_title(said: str) -> None:
    assert mentioned([said], ("Linux Setup Guide", "docs/linux/setup.md")) == [0]


@pytest.mark.parametrize("said", ["What does mysetup.md say?", "setup.mdx", "my setup", "linux", "Linux Setup", ""])
def test_what_only_looks_alike_names_nothing(said: str) -> None:
    assert mentioned([said], ("Linux Setup Guide", "docs/linux/setup.md")) == []


def test_a_title_of_one_word_counts_in_quotation_marks() -> None:
    document = ("Budget", "text:1")
    assert mentioned(["What is our budget?"], document) == []
    assert mentioned(["What does “Budget” say?"], document) == [0]
    assert mentioned(["In 2024 it rained."], ("2024", "2024.txt")) == []


@pytest.mark.parametrize("said", ["https://example.com/guide", "example.com/guide/", "see www.example.com/guide"])
def test_a_page_is_named_by_its_address(said: str) -> None:
    assert mentioned([said], ("A page", "https://example.com/guide")) == [0]


@pytest.mark.parametrize(
    ("said", "title", "source"),
    [
        ("请看「用户指南」的第二章", "用户指南", "text:1"),
        ("see Übersicht.md", "x", "Übersicht.md"),
        ("the café menu, please", "Café Menu", "text:1"),
        ("about (the) guide", "(the) guide", "text:1"),
        ("open __init__.py", "x", "pkg/__init__.py"),
    ],
)
def test_a_name_may_be_in_any_script(said: str, title: str, source: str) -> None:
    assert mentioned([said], (title, source)) == [0]


def test_of_files_with_one_name_the_longest_path_is_meant() -> None:
    files = [("One", "a/README.md"), ("Two", "b/README.md")]
    assert mentioned(["What does b/README.md say?"], *files) == [1]
    assert mentioned(["What does README.md say?"], *files) == [0, 1]


def test_the_document_that_was_named_last_comes_first() -> None:
    files = [("First thing", "one.txt"), ("Second thing", "two.txt"), ("Third thing", "three.txt")]
    assert mentioned(["one.txt and two.txt", "now three.txt", "and one.txt"], *files) == [0, 2, 1]
