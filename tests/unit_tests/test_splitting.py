"""How documents are cut, summed up and named: pure functions."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget import TiktokenCounter, TokenCounter
from langchain_ctxbudget.documents.find import Names, newest_mentions
from langchain_ctxbudget.documents.load import Part, Splitter, markdown_parts
from langchain_ctxbudget.documents.write import extract
from langchain_ctxbudget.errors import InvalidSettingsError

COUNTER = TiktokenCounter()


def splitter(chunk_tokens: int = 32, overlap_tokens: int = 0, counter: TokenCounter = COUNTER) -> Splitter:
    return Splitter(counter, chunk_tokens, overlap_tokens)


def sizes(chunks: list[str]) -> list[int]:
    return [COUNTER.count_text(chunk) for chunk in chunks]


def test_no_chunk_is_larger_than_asked_for() -> None:
    for text in [
        "x" * 5_000,
        "字" * 2_000,
        "word " * 2_000,
        "One. Two! " * 500,
        "a\n" * 2_000,
        "\U0001f469\u200d\U0001f680" * 300,
    ]:
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


def test_sizes_that_make_no_sense_are_refused() -> None:
    for chunk, overlap in [(0, 0), (8, 0), (True, 0), (64, -1), (64, 33), (64, 1.5)]:
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


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(["# A", "## B", "text", "", "```", "~~~", "   # C", "\t"]), max_size=20))
def test_markdown_parts_are_the_text(lines: list[str]) -> None:
    text = "\n".join(lines)
    assert "".join("".join(part.text for part in markdown_parts(text)).split()) == "".join(text.split())


# Summaries


def test_a_summary_keeps_to_its_tokens_and_is_not_empty() -> None:
    for text in ["x" * 20_000, "| a | b |\n" * 900, "One fact about Berlin follows. " * 900]:
        summary = extract(text, splitter(256).split(Part(text)), COUNTER, 60)
        assert 0 < COUNTER.count_text(summary) <= 60


def test_a_summary_has_what_was_decided() -> None:
    filler = [f"The weather on day {number} was much the same as on any other day." for number in range(300)]
    text = " ".join([*filler[:150], "We decided to use PostgreSQL 16 for the billing service.", *filler[150:]])
    assert "PostgreSQL 16" in extract(text, splitter(256).split(Part(text)), COUNTER, 60)


# Names


def mentioned(said: list[str], *documents: tuple[str, str]) -> list[int]:
    return newest_mentions([Names.of(title, source) for title, source in documents], said)


def test_a_document_is_named_by_file_path_or_title() -> None:
    for said in [
        "What does setup.md say?",
        "Look at docs/linux/setup.md, please.",
        "see linux/SETUP.md.",
        "The Linux  setup guide is wrong.",
        "`setup.md`",
    ]:
        assert mentioned([said], ("Linux Setup Guide", "docs/linux/setup.md")) == [0]


def test_what_only_looks_alike_names_nothing() -> None:
    for said in ["What does mysetup.md say?", "setup.mdx", "my setup", "linux", "Linux Setup", ""]:
        assert mentioned([said], ("Linux Setup Guide", "docs/linux/setup.md")) == []


def test_a_title_of_one_word_counts_in_quotation_marks() -> None:
    document = ("Budget", "text:1")
    assert mentioned(["What is our budget?"], document) == []
    assert mentioned(["What does “Budget” say?"], document) == [0]
    assert mentioned(["In 2024 it rained."], ("2024", "2024.txt")) == []


def test_a_page_is_named_by_its_address() -> None:
    for said in ["https://example.com/guide", "example.com/guide/", "see www.example.com/guide"]:
        assert mentioned([said], ("A page", "https://example.com/guide")) == [0]


def test_a_name_may_be_in_any_script() -> None:
    for said, title, source in [
        ("请看「用户指南」的第二章", "用户指南", "text:1"),
        ("see Übersicht.md", "x", "Übersicht.md"),
        ("the café menu, please", "Café Menu", "text:1"),
        ("about (the) guide", "(the) guide", "text:1"),
        ("open __init__.py", "x", "pkg/__init__.py"),
    ]:
        assert mentioned([said], (title, source)) == [0]


def test_of_files_with_one_name_the_longest_path_is_meant() -> None:
    files = [("One", "a/README.md"), ("Two", "b/README.md")]
    assert mentioned(["What does b/README.md say?"], *files) == [1]
    assert mentioned(["What does README.md say?"], *files) == [0, 1]


def test_the_document_that_was_named_last_comes_first() -> None:
    files = [("First thing", "one.txt"), ("Second thing", "two.txt"), ("Third thing", "three.txt")]
    assert mentioned(["one.txt and two.txt", "now three.txt", "and one.txt"], *files) == [0, 2, 1]
