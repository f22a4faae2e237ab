"""What a message says in sentences, and which artifacts it names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxbudget.messages import MAX_SENTENCE_CHARACTERS, artifacts, units

LOAN = "```python\nclass Loan:\n    pass\n\ndef due_on(day):\n    return day + 7\n```"
SAID = [
    ("We met. Ada came late.", ["We met.", "Ada came late."]),
    ("- first point\n* second point\n3. third point", ["first point", "second point", "third point"]),
    ("## Plan\n\n-----\n=====\nBuy oil.", ["Plan", "Buy oil."]),
    ("There is an R. Dunne here. Mrs. Abernathy came.", ["There is an R. Dunne here.", "Mrs. Abernathy came."]),
    ("谢谢！我住在柏林。", ["谢谢！", "我住在柏林。"]),
    (" \n \n", []),
    ("The label is aluminium. It survives oil.", ["The label is aluminium. It survives oil."]),  # it leans on the first
    (f"Look:\n{LOAN}\nThat is all.", ["Look:", "[python code: Loan, due_on()]", "That is all."]),
    ("| tool | price |\n|---|---|\n| drill | 3 |\n| saw | 4 |", ["[table of 2 rows: tool, price]"]),
    ('{"deep": {"er": {"id": 7}}, "status": "open", "none": null}', ["[JSON: status: open, id: 7]"]),
    ('[called read_file({"path": "src/a.py"})]', ["[called read_file: path: src/a.py]"]),
]


def test_prose_is_read_in_sentences_and_what_is_none_is_named():
    assert [(text, units(text)) for text, said in SAID if units(text) != said] == []


@given(st.text())
def test_every_unit_is_one_line_of_bounded_length(text):
    assert all(len(u) <= MAX_SENTENCE_CHARACTERS and u == " ".join(u.split()) and u for u in units(text))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("See src/app/index.ts and ./main.py.", ("src/app/index.ts", "main.py")),
        ("Call fetch_user() or store.save(item) now.", ("fetch_user()", "store.save()")),
        ("The `UserStore` and the `Ladder` in `cache.py`.", ("cache.py", "UserStore", "Ladder")),
        ("```python\ndef add(a):\n    return sqlite3.connect(a)\n```", ("add()",)),
        ("Node.js, e.g. word(s), https://a.b/c.html, 3.5 and `ok`", ()),
        ('[called read_file({"path": "src/a.py"})]', ("src/a.py",)),
        ("", ()),
    ],
)
def test_artifacts_are_files_functions_and_classes(text, names):
    assert set(artifacts([text])) == set(names)


HOSTILE = 'a|a-|\n |`|` |(|A a|{|[{|def |a.py|a()|```|"|a, |A. |[called a(|It. |if |a=|a.\n|a_-/'.split("|")


@pytest.mark.parametrize("text", [*HOSTILE, "|a", "| "])
def test_a_long_run_is_read_in_one_pass(text):
    long = text * (200_000 // len(text))  # quadratic time would take hours here
    assert units(long) is not None
    assert len(artifacts([long])) <= 1
