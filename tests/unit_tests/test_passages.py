"""The part of a long text that is about a query."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.core.passages import passage, pieces
from langchain_ctxbudget.core.text import terms

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


@given(TEXTS)
def test_a_piece_knows_its_terms(text):
    assert all(piece.terms == set(terms(text[piece.start : piece.end])) for piece in pieces(text))


@pytest.mark.parametrize("text", ["x" * 100_000, "word " * 20_000, "字" * 50_000, "a.b" * 30_000, "\n" * 50_000])
def test_no_piece_is_very_long(text):
    assert max(piece.end - piece.start for piece in pieces(text)) <= 400


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


def test_of_equal_passages_the_shortest_counts_and_of_these_the_first():
    text = "The bike is in the long dark cellar. A bike. My bike."
    assert shown(text, {"bike"}, 9) == "A bike. "


def test_where_there_is_room_the_passage_goes_on():
    text = "It rained. The bike is blue. It was late. We slept. Then it was day."
    assert shown(text, {"bike"}, 32) == "The bike is blue. It was late. "


def test_at_the_end_of_a_text_the_passage_begins_earlier():
    assert shown("It rained. It was late. The bike is blue.", {"bike"}, 35) == "It was late. The bike is blue."


def test_a_text_without_a_wanted_term_has_no_passage():
    assert passage(pieces("It rained. It was late."), {"bike"}, 100) is None


def test_where_nothing_is_wanted_there_is_no_passage():
    assert passage(pieces("It rained."), (), 100) is None


def test_no_text_has_no_passage():
    assert passage(pieces(""), {"bike"}, 100) is None
