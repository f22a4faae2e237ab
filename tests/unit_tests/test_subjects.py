"""Where a conversation turns to another subject."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.search import AFTER, limit, links, subjects
from langchain_ctxbudget.search.vectors import NEVER

COOKING, CYCLING = [1.0, 0.0], [0.0, 1.0]


def vectors(*rows):
    return np.array(rows, np.float32)


def numbers(rows, *, from_user=True):
    limits = np.full(len(rows), limit("text", from_user=from_user), np.float32)
    return subjects(np.zeros(len(rows), np.int32), links(vectors(*rows)), limits).tolist()


def test_a_subject_begins_where_what_follows_a_users_words_is_unlike_what_was():
    assert numbers([COOKING] * 5 + [CYCLING] * 5) == [0] * 5 + [1] * 5
    assert numbers([COOKING] * 5 + [CYCLING] + [COOKING] * 5) == [0] * 11  # one strange text is no subject
    assert numbers([COOKING] * 5 + [CYCLING] * 5, from_user=False) == [0] * 10
    limits = np.full(4, limit("text", from_user=True), np.float32)
    assert subjects(np.array([3, 3, 4, 6], np.int32), np.ones(4, np.float32), limits).tolist() == [0, 0, 1, 2]
    assert not subjects(np.zeros(4, np.int32), np.zeros(0, np.float32), limits).any()  # texts without vectors


def test_who_greets_begins_a_subject_more_easily():
    plain = limit("What next?", from_user=True)
    assert all(
        limit(text, from_user=True) > plain for text in ["Hello. All is done.", "hi!", "Good morning", "  I'm back"]
    )
    assert all(limit(text, from_user=True) == plain for text in ["Highlands", "Heyday", "Say hi to her", ""])


@settings(deadline=None)
@given(st.integers(AFTER, 20), st.integers(0, 12), st.integers(0, 5))
def test_links_are_final_when_enough_has_followed_and_can_be_made_of_the_newest_alone(size, start, seed):
    rows = np.random.default_rng(seed).standard_normal((size, 3)).astype(np.float32)
    final = size - AFTER
    assert links(rows[:-1])[:final] == pytest.approx(links(rows)[:final], abs=1e-6)
    assert links(rows, min(start, size)) == pytest.approx(links(rows)[min(start, size) :], abs=1e-6)
    assert (links(vectors(COOKING, [-1.0, 0.0], [0.0, 0.0])) > NEVER).all()
