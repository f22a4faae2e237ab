"""The part of a long text that is about a query."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.messages.text import terms
from langchain_ctxbudget.search.passages import passage, pieces

WORDS = ("bike", "blue", "garden", "kettle", "the", "it", "雨が", "降る")
MARKS = (". ", "! ", "? ", "\n", "\n\n", " ", "。", ', "so." ', "... ", "")
SAID = st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(MARKS)), max_size=40).map(
    lambda pairs: "".join(word + mark for word, mark in pairs)
)
TEXTS = st.one_of(SAID, st.text(max_size=120), st.lists(SAID, max_size=30).map("".join))
WANTED = st.sets(st.sampled_from([*(t for word in WORDS for t in terms(word)), "absent"]), max_size=4)


def shown(text, wanted, most):
    part = passage(pieces(text), wanted, most)
    return None if part is None else text[part[0] : part[1]]


def wanted_terms(found, first, last, wanted):
    return len(wanted.intersection(*[frozenset().union(*(piece.terms for piece in found[first : last + 1]))]))


@given(TEXTS)
def test_pieces_one_after_the_other_are_the_text(text):
    assert "".join(text[piece.start : piece.end] for piece in pieces(text)) == text


@pytest.mark.parametrize("unit", ["a. ", "a.", "?", "\n", "x\n", "。", "One more. "])
def test_even_a_text_of_two_megabytes_has_no_more_than_some_thousand_pieces(unit):
    text = unit * (2_000_000 // len(unit))
    found = pieces(text)
    assert len(found) < 20_000
    assert found[0].start == 0
    assert found[-1].end == len(text)
    assert all(one.end == two.start for one, two in pairwise(found))


@settings(deadline=None)
@given(TEXTS, WANTED, st.integers(0, 200))
def test_a_passage_is_whole_pieces_that_fit_and_have_a_wanted_term(text, wanted, most):
    found = pieces(text)
    part = passage(found, wanted, most)
    if part is None:
        assert all(piece.end - piece.start > most for piece in found if piece.terms & wanted)
        return
    start, end = part
    assert 0 < end - start <= most
    assert start in {piece.start for piece in found}
    assert end in {piece.end for piece in found}
    assert any(piece.terms & wanted for piece in found if start <= piece.start < end)


@settings(deadline=None)
@given(TEXTS, WANTED, st.integers(1, 200))
def test_no_other_passage_that_fits_has_more_of_the_wanted_terms(text, wanted, most):
    found = pieces(text)
    part = passage(found, wanted, most)
    counts = [
        wanted_terms(found, first, last, wanted)
        for first in range(len(found))
        for last in range(first, len(found))
        if found[last].end - found[first].start <= most
    ]
    inside = [number for number, piece in enumerate(found) if part and part[0] <= piece.start < part[1]]
    has = wanted_terms(found, inside[0], inside[-1], wanted) if inside else 0
    assert has == max(counts, default=0)


@settings(deadline=None)
@given(TEXTS, WANTED, st.integers(0, 200), st.integers(0, 200))
def test_more_room_never_shows_fewer_of_the_wanted_terms(text, wanted, room, more):
    def count(most):
        return len(wanted & set().union(*(pieces_of.terms for pieces_of in pieces(shown(text, wanted, most) or ""))))

    assert count(room) <= count(room + more)


def test_a_text_without_a_wanted_term_has_no_passage():
    assert passage(pieces("It rained. It was late."), {"bike"}, 100) is None
