"""How documents are cut, summed up and named: pure functions."""

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
    assert all(COUNTER.count_text(chunk) <= 16 and chunk in text for chunk in chunks)
    assert set("".join(text.split())) <= set("".join(chunks))
    if not overlap:
        assert "".join("".join(chunks).split()) == "".join(text.split())


def test_a_markdown_part_knows_its_headings_and_keeps_its_code() -> None:
    parts = markdown_parts("Before.\n# A\nOne.\n## B\nTwo.\n### C ##\nThree.\n# D\nFour.\n")
    assert [(part.heading, part.text.strip().split("\n")[-1]) for part in parts] == [
        ("", "Before."),
        ("A", "One."),
        ("A > B", "Two."),
        ("A > B > C", "Three."),
        ("D", "Four."),
    ]
    parts = markdown_parts("# A\n````\n# no\n```\n# no\n````\n~~~\n# no\n~~~\n# B\ntext\n")
    assert [part.heading for part in parts] == ["A", "B"]
    code = "def f(x):\n    if x:\n        return 1\n    return 2"
    [part] = markdown_parts(f"# Code\n\n```python\n{code}\n```\n")
    assert code in chunks_of(part.text, 256)[0]


def test_a_summary_keeps_to_its_tokens_and_has_what_was_decided() -> None:
    filler = [
        f"The weather on day {number} was much the same as on any other day."
        for number in range(300)
    ]
    decision = "We decided to use PostgreSQL 16 for the billing service."
    decided = " ".join([*filler[:150], decision, *filler[150:]])
    for text in [
        "x" * 20_000,
        "| a | b |\n" * 900,
        "One fact about Berlin follows. " * 900,
        decided,
    ]:
        summary = extract(text, chunks_of(text, 256), COUNTER, 60)
        assert 0 < COUNTER.count_text(summary) <= 60
        assert (decision in text) == (decision in summary)


GUIDE = ("Linux Setup Guide", "docs/linux/setup.md")
BUDGET = ("Budget", "text:1")
PAGE = ("A page", "https://example.com/guide")
TWO = (("One", "a/README.md"), ("Two", "b/README.md"))
THREE = (("First thing", "one.txt"), ("Second thing", "two.txt"), ("Third thing", "three.txt"))


def test_documents_are_known_by_file_path_address_or_title() -> None:
    for said, documents, found in (
        *(
            (it, [GUIDE], [0])
            for it in ("What does setup.md say?", "See docs/linux/setup.md.", "see linux/SETUP.md.")
        ),
        *((it, [GUIDE], [0]) for it in ("The Linux  setup guide is wrong.", "`setup.md`")),
        *(
            (it, [GUIDE], [])
            for it in ("What does mysetup.md say?", "setup.mdx", "my setup", "linux", "Linux Setup")
        ),
        ("What is our budget?", [BUDGET], []),
        ("What does “Budget” say?", [BUDGET], [0]),
        *(
            (it, [PAGE], [0])
            for it in (
                "https://example.com/guide",
                "example.com/guide/",
                "see www.example.com/guide",
            )
        ),
        ("请看「用户指南」的第二章", [("用户指南", "text:1")], [0]),
        ("see Übersicht.md", [("x", "Übersicht.md")], [0]),
        ("What does b/README.md say?", TWO, [1]),
        ("What does README.md say?", TWO, [0, 1]),
        ("one.txt and two.txt|now three.txt|and one.txt", THREE, [0, 2, 1]),
    ):
        assert (
            newest_mentions(
                [names_of(title, source) for title, source in documents], said.split("|")
            )
            == found
        )
