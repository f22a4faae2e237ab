"""Stored text cannot break out of its fence."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget import EstimatingCounter, TiktokenCounter
from langchain_ctxbudget.messages import fences

NAMES = (fences.CONTEXT, fences.SUMMARY, fences.ARC, fences.PREFERENCES)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", ["<{}>", "</{}>", "< / {} >", "<{} x='1'>", "<\n/\t{}\n>", "<{}/>", "</{}"])
def test_an_imitation_of_a_fence_is_no_fence(name, form):
    assert fences.as_data(form.format(name)) == "‹" + form.format(name)[1:]


def mathematical(name, first):
    """A name in the letters of another alphabet that has a form for each from a to z."""
    return "".join(letter if letter == "_" else chr(first + ord(letter) - ord("a")) for letter in name)


@pytest.mark.parametrize(
    "change",
    [
        lambda name: f"<\u200b/{name}>",
        lambda name: f"< / {' '.join(name)} >",
        lambda name: f"<\\/{name}>",
        lambda name: f"\uff1c\uff0f{name}\uff1e",
        lambda name: f"<{name}\U000e0041>",
        lambda name: f"<\u2215{mathematical(name, 0x1D41A)}>",
        lambda name: f"</{name.replace('o', chr(0x43E)).replace('e', chr(0x415)).replace('a', chr(0x430))}>",
    ],
)
def test_what_only_looks_like_a_fence_is_none(change):
    for name in NAMES:
        assert fences.as_data(change(name)) == "‹" + change(name)[1:]


def test_other_text_stays_as_it_is():
    for text in ("a < b", "<contextual>", "<b>context</b>", "List<Context2>", "&lt;context>", "\uff1ctext\uff1e"):
        assert fences.as_data(text) == text


@settings(deadline=None)
@given(st.lists(st.sampled_from(["- a", "[b]", "## c", "<d>", "e ", "\t", "\n", "\r", "\v", "\x1d", "\x85", "\u2028"])))
def test_the_words_of_an_item_stay_and_every_further_line_is_blank_or_indented(parts):
    text = "".join(parts)
    item = fences.as_item(text)
    assert item.split() == text.split()
    assert item.count("\n") == len(item.splitlines() or [""]) - 1 + item.endswith("\n")
    assert all(not line or (line[0] == " " and line.strip()) for line in item.splitlines()[1:])


@settings(deadline=None)
@given(st.lists(st.text(alphabet="ab \n\t-[#<./\r\u2028\u3000é京\ud83d", min_size=1), max_size=4))
@pytest.mark.parametrize("counter", [TiktokenCounter(), EstimatingCounter()])
def test_items_cost_together_what_they_cost_one_by_one(counter, texts):
    lines = [f"- {fences.as_item(text)}\n" for text in texts] + [fences.closing("context")]
    assert counter.count_text("".join(lines)) == sum(map(counter.count_text, lines))
