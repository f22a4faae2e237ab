"""Lexical and dense scores, fused, and worth per token."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.core.ranking import (
    BM25_B,
    BM25_K1,
    DENSE_WEIGHT,
    LEXICAL_WEIGHT,
    NEIGHBOURS,
    LexicalIndex,
    cosine,
    relevance,
    value_per_token,
    z_scores,
)

TEXT = st.lists(st.sampled_from("abcdef"), max_size=12)
TEXTS = st.lists(TEXT, max_size=20)
FLOATS = st.lists(st.floats(-100, 100), max_size=30).map(np.array)


def naive_bm25(texts, query):
    """BM25 as its authors write it, one text after the other."""
    mean = sum(map(len, texts)) / len(texts) if texts else 0
    result = []
    for text in texts:
        score = 0.0
        for term in set(query):
            frequency, having = text.count(term), sum(term in other for other in texts)
            if frequency:
                idf = math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))
                norm = BM25_K1 * (1 - BM25_B + BM25_B * len(text) / mean)
                score += idf * frequency * (BM25_K1 + 1) / (frequency + norm)
        result.append(score)
    return result


@settings(deadline=None)
@given(TEXTS, TEXT)
def test_lexical_scores_are_those_of_bm25(texts, query):
    index = LexicalIndex()
    index.extend(texts)
    assert index.scores(query) == pytest.approx(naive_bm25(texts, query))


@settings(deadline=None)
@given(TEXTS, TEXT)
def test_adding_one_by_one_is_adding_at_once(texts, query):
    at_once, one_by_one = LexicalIndex(), LexicalIndex()
    at_once.extend(texts)
    for text in texts:
        one_by_one.extend([text])
    assert np.array_equal(at_once.scores(query), one_by_one.scores(query))


@settings(deadline=None)
@given(TEXTS, TEXTS, TEXT)
def test_a_copy_grows_by_itself(texts, more, query):
    index = LexicalIndex()
    index.extend(texts)
    before, copy = index.scores(query), index.copy()
    copy.extend(more)
    assert copy.scores(query) == pytest.approx(naive_bm25([*texts, *more], query))
    assert np.array_equal(index.scores(query), before)


@settings(deadline=None)
@given(TEXTS)
def test_the_index_is_as_long_as_its_texts(texts):
    index = LexicalIndex()
    index.extend(texts)
    assert len(index) == len(texts) == len(index.scores(["a"]))


def test_a_query_term_counts_once():
    index = LexicalIndex()
    index.extend([["a"], ["b"]])
    assert np.array_equal(index.scores(["a", "a"]), index.scores(["a"]))


def test_without_a_shared_term_every_score_is_zero():
    index = LexicalIndex()
    index.extend([["a"], []])
    assert index.scores(["z"]).tolist() == [0, 0]


@settings(deadline=None)
@given(FLOATS)
def test_z_scores_have_mean_zero_and_deviation_one_or_are_zeros(scores):
    result = z_scores(scores)
    assert not result.any() or (abs(result.mean()) < 1e-6 and result.std() == pytest.approx(1, rel=1e-3))


@settings(deadline=None)
@given(st.floats(-1e6, 1e6), st.integers(0, 200))
def test_z_scores_of_like_scores_are_zeros(value, size):
    assert not z_scores(np.full(size, value)).any()


def test_cosine_compares_directions_around_the_mean():
    vectors = np.array([[2, 1], [1, 2], [0, 0]], dtype=np.float32)
    similarity = cosine(vectors, np.array([3, 1], dtype=np.float32))
    assert similarity == pytest.approx([2 / math.sqrt(4), 0, -2 / math.sqrt(8)], abs=1e-6)


def test_cosine_of_a_single_row_is_zero():
    assert cosine(np.ones((1, 4), dtype=np.float32), np.ones(4, dtype=np.float32)).tolist() == [0]


def test_cosine_of_no_rows_is_empty():
    assert cosine(np.ones((0, 4), dtype=np.float32), np.ones(4, dtype=np.float32)).tolist() == []


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_vectors_that_are_not_numbers_are_refused(bad):
    with np.errstate(invalid="ignore"), pytest.raises(ValueError, match="not numbers"):
        cosine(np.array([[bad, 1], [1, 2]], dtype=np.float32), np.ones(2, dtype=np.float32))


def test_a_hit_lends_its_neighbours_a_share():
    own = z_scores(np.array([0.0, 0, 0, 1, 0, 0, 0]))
    lent = relevance(np.array([0.0, 0, 0, 1, 0, 0, 0]), None) - own
    expected = np.zeros(7)
    for offset, weight in NEIGHBOURS:
        for i in range(7):
            if 0 <= i + offset < 7:
                expected[i] += weight * own[i + offset]
    assert lent == pytest.approx(expected)


def test_the_message_after_a_hit_gains_more_than_the_one_before():
    fused = relevance(np.array([0.0, 0, 0, 1, 0, 0, 0]), None)
    assert fused[3] > fused[4] > fused[2] > fused[0]


@settings(deadline=None)
@given(st.integers(0, 4))
def test_short_conversations_have_a_relevance_each(size):
    assert len(relevance(np.arange(size, dtype=float), np.arange(size, dtype=float))) == size


def test_lexical_and_dense_scores_are_weighed():
    lexical, dense = np.array([1.0] + [0.0] * 9), np.array([0.0] * 9 + [1.0])
    fused = relevance(lexical, dense)
    assert fused[9] - fused[0] == pytest.approx((DENSE_WEIGHT - LEXICAL_WEIGHT) * np.ptp(z_scores(dense)), abs=0.2)


def test_relevance_does_not_change_what_it_is_given():
    lexical = np.array([1.0, 0, 0])
    relevance(lexical, lexical)
    assert lexical.tolist() == [1, 0, 0]


@settings(deadline=None)
@given(FLOATS, st.integers(1, 1000))
def test_at_the_same_cost_the_more_relevant_is_worth_at_least_as_much(relevances, cost):
    keys = value_per_token(relevances, [cost] * len(relevances), [3] * len(relevances))
    assert (np.diff(keys[np.argsort(relevances)]) >= 0).all()


@settings(deadline=None)
@given(st.lists(st.integers(0, 10_000), min_size=1))
def test_at_the_same_relevance_the_cheaper_is_worth_at_least_as_much(costs):
    keys = value_per_token(np.ones(len(costs)), costs, [3] * len(costs))
    assert (np.diff(keys[np.argsort(costs, kind="stable")]) <= 0).all()


@settings(deadline=None)
@given(FLOATS)
def test_every_value_is_a_number(relevances):
    nothing = [0] * len(relevances)
    assert np.isfinite(value_per_token(relevances, nothing, nothing)).all()


def test_at_the_same_relevance_and_cost_more_different_terms_are_worth_more():
    assert value_per_token(np.ones(2), [10, 10], [1, 8]).argmax() == 1


def test_distinct_terms_counts_every_term_of_a_text_once():
    index = LexicalIndex()
    index.extend([["a", "b", "a"], [], ["c"]])
    assert index.distinct_terms(2) == [2, 0]
