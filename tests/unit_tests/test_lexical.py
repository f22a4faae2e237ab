"""BM25, and where in a long text a query is answered."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxbudget.messages import terms
from langchain_ctxbudget.search import LexicalIndex, most_about
from langchain_ctxbudget.search.lexical import BM25_B, BM25_K1

TEXT = st.lists(st.sampled_from("abcdef"), max_size=12)
TEXTS = st.lists(TEXT, max_size=20)
WORDS = ("bike", "blue", "garden", "kettle", "the", "雨が")
MARK = st.sampled_from([". ", "! ", "? ", "\n", "。"])


def index_of(texts):
    index = LexicalIndex()
    index.extend(texts)
    return index


def naive_bm25(texts, query):
    """BM25 as its authors write it, one text after the other."""
    mean = sum(map(len, texts)) / len(texts) if texts else 0
    result = []
    for text in texts:
        score = 0.0
        for term in set(query):
            frequency = text.count(term)
            having = sum(term in other for other in texts)
            if frequency:
                idf = math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))
                norm = BM25_K1 * (1 - BM25_B + BM25_B * len(text) / mean)
                score += idf * frequency * (BM25_K1 + 1) / (frequency + norm)
        result.append(score)
    return result


@given(TEXTS, TEXTS, TEXT)
def test_scores_are_those_of_bm25_however_texts_were_added_and_with_another_corpus(
    texts, more, query
):
    first = index_of(texts)
    second = index_of(more)
    assert first.scores(query) == pytest.approx(naive_bm25(texts, query))
    together = [
        *first.scores(query, other_corpus=second),
        *second.scores(query, other_corpus=first),
    ]
    assert together == pytest.approx(naive_bm25([*texts, *more], query))
    for text in more:
        first.extend([text])
    assert np.array_equal(first.scores(query), index_of([*texts, *more]).scores(query))
    assert first.distinct.tolist() == [len(set(text)) for text in [*texts, *more]]


@given(st.lists(st.tuples(st.booleans(), TEXT), max_size=20), TEXT)
def test_a_group_scores_like_one_text_of_all_its_terms(begins_and_texts, query):
    groups = np.cumsum([begins for begins, _ in begins_and_texts], dtype=np.int32)
    groups -= groups[:1] if len(groups) else 0
    joined = [[] for _ in range(groups[-1] + 1 if len(groups) else 0)]
    for group, (_, text) in zip(groups, begins_and_texts, strict=True):
        joined[group] += text
    index = index_of(text for _, text in begins_and_texts)
    assert index.scores(query, groups=groups) == pytest.approx(naive_bm25(joined, query))


@given(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=20), st.sets(st.sampled_from(WORDS)), MARK
)
def test_the_sentence_with_most_wanted_terms_is_found(said, wanted, mark):
    sentences = [f"{word} {word} and {said[at - 1]}{mark}" for at, word in enumerate(said)]
    asked = {term for word in wanted for term in terms(word)}
    shared = [len(asked.intersection(terms(sentence))) for sentence in sentences]
    best = shared.index(max(shared))
    start = len("".join(sentences[:best]))
    assert most_about("".join(sentences), asked) == (start if max(shared) else None)
