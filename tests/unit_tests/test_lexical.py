"""Holds word search to BM25 as its authors write it, and to the sentence that answers a query."""

import itertools
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


def index_of(texts):
    index = LexicalIndex()
    index.extend(texts)
    return index


def naive_bm25(texts, query):
    """Scores one text after the other, as the authors of BM25 write it."""
    if not texts:
        return []

    mean_length = sum(len(text) for text in texts) / len(texts)
    scores = []
    for text in texts:
        score = 0.0
        for term in set(query):
            frequency = text.count(term)
            if frequency:
                texts_with_term = sum(term in other for other in texts)
                rarity = math.log(
                    1 + (len(texts) - texts_with_term + 0.5) / (texts_with_term + 0.5)
                )
                norm = BM25_K1 * (1 - BM25_B + BM25_B * len(text) / mean_length)
                score += rarity * frequency * (BM25_K1 + 1) / (frequency + norm)
        scores.append(score)
    return scores


@given(TEXTS, TEXTS, TEXT)
def test_scores_are_those_of_bm25_with_and_without_another_corpus(texts, more_texts, query):
    first = index_of(texts)
    second = index_of(more_texts)

    together = [
        *first.scores(query, other_corpus=second),
        *second.scores(query, other_corpus=first),
    ]

    assert first.scores(query) == pytest.approx(naive_bm25(texts, query))
    assert together == pytest.approx(naive_bm25([*texts, *more_texts], query))


@given(TEXTS, TEXTS, TEXT)
def test_an_index_that_grows_after_a_search_is_as_made_at_once(texts, more_texts, query):
    grown = index_of(texts)
    grown.scores(query)
    for text in more_texts:
        grown.extend([text])
    at_once = index_of([*texts, *more_texts])

    assert np.array_equal(grown.scores(query), at_once.scores(query))
    assert grown.distinct_terms.tolist() == [len(set(text)) for text in [*texts, *more_texts]]


@given(st.lists(st.lists(TEXT, min_size=1, max_size=4), max_size=6), TEXT)
def test_a_group_scores_like_one_text_of_all_its_terms(text_groups, query):
    index = LexicalIndex()
    numbers = []
    joined = []
    for number, group in enumerate(text_groups):
        index.extend(group)
        numbers += [number] * len(group)
        joined.append(list(itertools.chain(*group)))

    scores = index.scores(query, groups=np.asarray(numbers, np.int32))

    assert scores == pytest.approx(naive_bm25(joined, query))


WORDS = ("bike", "blue", "garden", "kettle", "the", "雨が")
MARK = st.sampled_from([". ", "! ", "? ", "\n", "。"])


def overlaps(sentences, wanted):
    return [len(wanted.intersection(terms(sentence))) for sentence in sentences]


@given(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=20), st.sets(st.sampled_from(WORDS)), MARK
)
def test_a_passage_begins_at_or_before_the_sentence_with_most_wanted_terms(
    words, wanted_words, mark
):
    sentences = []
    previous = words[-1]
    for word in words:
        sentences.append(f"{word} {word} and {previous}{mark}")
        previous = word
    wanted = set(terms(" ".join(wanted_words)))

    start = most_about("".join(sentences), wanted)

    overlap = overlaps(sentences, wanted)
    if max(overlap) == 0:
        assert start is None
    else:
        begins = [len("".join(sentences[:number])) for number in range(len(sentences))]
        begin = begins.index(start)
        best = overlap.index(max(overlap))
        assert begin <= best
        assert all(overlap[begin:best])


def test_a_passage_begins_with_the_lines_right_before_that_have_other_terms() -> None:
    text = "limits: none\nport: 8148\nimage: registry/mail\nowner: Ann"

    start = most_about(text, terms("the port and the image of mail"))

    assert start == text.index("port")


def test_a_passage_of_prose_begins_with_the_sentence_itself() -> None:
    text = "The port is dear to Ann. The image of the mail stands in the hall."

    start = most_about(text, terms("the port and the image of mail"))

    assert start == text.index("The image")
