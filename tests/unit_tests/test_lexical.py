"""BM25 over texts that are only ever added."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.search.lexical import BM25_B, BM25_K1, LexicalIndex

TEXT = st.lists(st.sampled_from("abcdef"), max_size=12)
TEXTS = st.lists(TEXT, max_size=20)


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
@given(TEXTS, TEXTS, TEXT)
def test_with_each_other_as_background_two_indexes_score_like_one(texts, more, query):
    first, second = LexicalIndex(), LexicalIndex()
    first.extend(texts)
    second.extend(more)
    scores = [*first.scores(query, background=second), *second.scores(query, background=first)]
    assert scores == pytest.approx(naive_bm25([*texts, *more], query))


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), TEXT), min_size=1, max_size=20), TEXT)
def test_a_group_scores_like_one_text_of_all_its_terms(begins_and_texts, query):
    groups = np.cumsum([begins for begins, _ in begins_and_texts], dtype=np.int32)
    groups -= groups[0]
    index = LexicalIndex()
    index.extend(text for _, text in begins_and_texts)
    joined = [[] for _ in range(groups[-1] + 1)]
    for group, (_, text) in zip(groups, begins_and_texts, strict=True):
        joined[group] += text
    assert index.group_scores(query, groups) == pytest.approx(naive_bm25(joined, query))


def test_an_empty_index_has_no_groups():
    assert len(LexicalIndex().group_scores(["a"], np.zeros(0, np.int32))) == 0


def test_documents_with_a_term_are_counted_once_each():
    index = LexicalIndex()
    index.extend([["a", "a"], ["b"], ["a"]])
    assert [index.documents_with(term) for term in "abz"] == [2, 1, 0]


def test_an_index_can_grow_after_it_was_searched():
    index = LexicalIndex()
    index.extend([["a"]])
    scores, distinct = index.scores(["a"]), index.distinct_terms(1)
    index.extend([["a", "b"]])
    assert (len(scores), len(distinct), len(index.scores(["a"]))) == (1, 1, 2)


def test_distinct_terms_counts_every_term_of_a_text_once():
    index = LexicalIndex()
    index.extend([["a", "b", "a"], [], ["c"]])
    assert index.distinct_terms(2).tolist() == [2, 0]
