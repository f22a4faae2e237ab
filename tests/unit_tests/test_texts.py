"""How texts are read: words, sentences, names, artifacts, in any script.

And that none breaks out of its fence.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxbudget import EstimatingCounter, TiktokenCounter
from langchain_ctxbudget.messages import (
    MAX_SENTENCE_CHARACTERS,
    artifacts,
    fences,
    sentences,
    terms,
    units,
    word_count,
)


def test_terms_leave_out_what_a_contraction_adds():
    for mark in ("'", "\u2019"):
        text = (
            "It's the bike I've sold, Ann's; they'll say I'm mad, you're not, he'd ride, we can't."
        )
        assert terms(text.replace("'", mark)) == ["bike", "sold", "ann", "say", "mad", "ride"]


@pytest.mark.parametrize("script", ["中文", "かな", "カナ", "한국", "ไทย", "ខ្មែរ", "ລາວ", "မြန်"])
def test_scripts_without_spaces_are_read_in_pairs(script):
    text = script * 2
    assert terms(text) == [text[i : i + 2] for i in range(len(text) - 1)]


@given(
    st.text(st.characters(codec="ascii"))
    | st.from_regex(r"([A-Za-z0-9_'.-]+[ \n\x1c]){1,9}", fullmatch=True)
)
def test_ascii_is_read_as_any_other_text_is(text):
    other = f"{text} …"  # which is no word, and not ASCII
    assert (terms(text), word_count(text)) == (terms(other), word_count(other))


@given(st.text(alphabet="ab.!?。！」\"') \n"))
def test_sentences_lose_nothing_but_white_space(text):
    assert "".join("".join(sentences(text)).split()) == "".join(text.split())


LOAN = "```python\nclass Loan:\n    pass\n\ndef due_on(day):\n    return day + 7\n```"
SAID = [
    ("We met. Ada came late.", ["We met.", "Ada came late."]),
    ("Es war am 17. Oktober. Ada kam.", ["Es war am 17. Oktober.", "Ada kam."]),
    (
        "- first point\n* second point\n3. third point",
        ["first point", "second point", "third point"],
    ),
    ("## Plan\n\n-----\n=====\nBuy oil.", ["Plan", "Buy oil."]),
    (
        "There is an R. Dunne here. Mrs. Abernathy came.",
        ["There is an R. Dunne here.", "Mrs. Abernathy came."],
    ),
    ("谢谢！我住在柏林。", ["谢谢！", "我住在柏林。"]),
    (" \n \n", []),
    (
        "The label is aluminium. It survives oil.",
        ["The label is aluminium. It survives oil."],
    ),  # it leans on the first
    (f"Look:\n{LOAN}\nThat is all.", ["Look:", "That is all."]),
    ("So:\n| tool | price |\n|---|---|\n| drill | 3 |\n| saw | 4 |", ["So:"]),
    ('{"deep": {"er": {"id": 7}}, "status": "open", "none": null}', []),
    (
        'Hm.\n[called read_file({"path": "src/a.py"})]\ntotal = add(1)',
        ["Hm.", '[called read_file({"path": "src/a.py"})]'],
    ),
]


def test_prose_is_read_in_sentences_and_what_is_none_is_left_out():
    assert [(text, units(text)) for text, said in SAID if units(text) != said] == []


@given(st.text())
def test_every_unit_is_one_line_of_bounded_length(text):
    assert all(
        len(u) <= MAX_SENTENCE_CHARACTERS and u == " ".join(u.split()) and u for u in units(text)
    )


def test_artifacts_are_files_functions_and_classes():
    for text, names in (
        ("See src/app/index.ts and ./main.py.", ("src/app/index.ts", "main.py")),
        ("Call fetch_user() or store.save(item) now.", ("fetch_user()", "store.save()")),
        (
            "```python\nclass Ladder:\ndef add(a):\n    return sqlite3.connect(a)\n```",
            ("Ladder", "add()"),
        ),
        ("e.g. word(s), https://a.b/c.html, 3.5 and `ok`", ()),
    ):
        assert set(artifacts([text])) == set(names)


HOSTILE = (
    'a|a-|\n |`|` |(|A a|{|[{|def |a.py|a()|```|"|a, |A. |[called a(|It. |if |a=|a.\n|a_-/'.split(
        "|"
    )
)


def test_a_long_run_is_read_in_one_pass():
    for text in (*HOSTILE, "|a", "| "):
        long = text * (200_000 // len(text))  # quadratic time would take hours here
        assert units(long) is not None
        assert len(artifacts([long])) <= 1


NAMES = (fences.CONTEXT, fences.SUMMARY, fences.ARC, fences.PREFERENCES)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "form", ["<{}>", "</{}>", "< / {} >", "<{} x='1'>", "<\n/\t{}\n>", "<{}/>", "</{}"]
)
def test_an_imitation_of_a_fence_is_no_fence(name, form):
    assert fences.as_data(form.format(name)) == "‹" + form.format(name)[1:]


def mathematical(name, first):
    """A name in the letters of another alphabet that has a form for each from a to z."""
    return "".join(
        letter if letter == "_" else chr(first + ord(letter) - ord("a")) for letter in name
    )


def test_what_only_looks_like_a_fence_is_none():
    for change in (
        lambda name: f"<\u200b/{name}>",
        lambda name: f"< / {' '.join(name)} >",
        lambda name: f"<\\/{name}>",
        lambda name: f"\uff1c\uff0f{name}\uff1e",
        lambda name: f"<{name}\U000e0041>",
        lambda name: f"</{mathematical(name, 0x1D41A)}>",
    ):
        for name in NAMES:
            assert fences.as_data(change(name)) == "‹" + change(name)[1:]


def test_other_text_stays_as_it_is():
    for text in (
        "a < b",
        "<contextual>",
        "<b>context</b>",
        "List<Context2>",
        "&lt;context>",
        "\uff1ctext\uff1e",
    ):
        assert fences.as_data(text) == text


@given(
    st.lists(
        st.sampled_from(
            ["- a", "[b]", "## c", "<d>", "e ", "\t", "\n", "\r", "\v", "\x1d", "\x85", "\u2028"]
        )
    )
)
def test_the_words_of_an_item_stay_and_every_further_line_is_blank_or_indented(parts):
    text = "".join(parts)
    item = fences.as_item(text)
    assert item.split() == text.split()
    assert item.count("\n") == len(item.splitlines() or [""]) - 1 + item.endswith("\n")
    assert all(not line or (line[0] == " " and line.strip()) for line in item.splitlines()[1:])


@given(st.lists(st.text(alphabet="ab \n\t-[#<./\r\u2028\u3000é京\ud83d", min_size=1), max_size=4))
@pytest.mark.parametrize("counter", [TiktokenCounter(), EstimatingCounter()])
def test_items_cost_together_what_they_cost_one_by_one(counter, texts):
    lines = [f"- {fences.as_item(text)}\n" for text in texts] + [fences.closing("context")]
    assert counter.count_text("".join(lines)) == sum(map(counter.count_text, lines))
