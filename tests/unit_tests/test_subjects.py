"""Where a conversation turns to another subject."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.core.subjects import AFTER, NEVER, limit, links, subjects

COOKING, CYCLING = [1.0, 0.0], [0.0, 1.0]


def vectors(*rows):
    return np.array(rows, np.float32)


def limits(*texts):
    return np.array([limit(text, from_user=True) for text in texts], np.float32)


def test_another_subject_begins_where_what_follows_is_unlike_what_was():
    found = links(vectors(*[COOKING] * 5, *[CYCLING] * 5))
    numbers = subjects(np.zeros(10, np.int32), found, limits(*["text"] * 10))
    assert numbers.tolist() == [0] * 5 + [1] * 5


def test_one_strange_text_is_no_subject():
    found = links(vectors(*[COOKING] * 5, CYCLING, *[COOKING] * 5))
    assert not subjects(np.zeros(11, np.int32), found, limits(*["text"] * 11)).any()


def test_only_a_user_begins_a_subject():
    never = np.full(10, limit("text", from_user=False), np.float32)
    assert not subjects(np.zeros(10, np.int32), links(vectors(*[COOKING] * 5, *[CYCLING] * 5)), never).any()


@pytest.mark.parametrize("text", ["Hello. All is done.", "hi!", "Good morning, Ann", "  I'm back"])
def test_who_greets_begins_a_subject_more_easily(text):
    assert limit(text, from_user=True) > limit("What next?", from_user=True)


@pytest.mark.parametrize("text", ["Highlands", "Heyday", "Say hi to her", ""])
def test_other_words_are_no_greeting(text):
    assert limit(text, from_user=True) == limit("What next?", from_user=True)


def test_time_begins_a_session_whatever_is_said():
    session = np.array([3, 3, 4, 6], np.int32)
    assert subjects(session, np.ones(4, np.float32), limits(*["text"] * 4)).tolist() == [0, 0, 1, 2]


def test_texts_without_a_vector_begin_nothing():
    assert not subjects(np.zeros(3, np.int32), np.zeros(0, np.float32), limits("a", "b", "c")).any()


@settings(deadline=None)
@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 5))
def test_links_of_the_newest_texts_are_those_of_all(size, start, seed):
    rows = np.random.default_rng(seed).standard_normal((size, 3)).astype(np.float32)
    assert links(rows, start) == pytest.approx(links(rows)[start:], abs=1e-6)


@settings(deadline=None)
@given(st.integers(AFTER, 20), st.integers(0, 5))
def test_a_link_is_final_when_enough_has_followed(size, seed):
    rows = np.random.default_rng(seed).standard_normal((size, 3)).astype(np.float32)
    final = size - AFTER + 1
    assert links(rows[:-1])[: final - 1] == pytest.approx(links(rows)[: final - 1], abs=1e-6)


def test_every_link_is_above_never():
    assert (links(vectors(COOKING, [-1.0, 0.0], [0.0, 0.0])) > NEVER).all()
