"""Which past texts answer a message: lexical and dense scores, fused, and worth per token.

The formula is a small part of what a prototype of this package measured: z-scores of BM25 and cosine, summed;
neighbours lend a share of their score; and since a budget buys tokens, not items, the length counts.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Scores: TypeAlias = NDArray[np.float64]

BM25_K1, BM25_B = 1.2, 0.75
LEXICAL_WEIGHT, DENSE_WEIGHT = 0.43, 0.57
NEIGHBOURS = ((-1, 0.15), (-2, 0.10), (1, 0.10), (2, 0.05))
"""A hit's neighbours: the turn after a hit gets 15 % of its score, and so on."""
RELEVANCE_POWER, RELEVANCE_OFFSET = 3.0, 0.15
LENGTH_POWER, LENGTH_OFFSET = 0.8, 4.0
VARIETY_POWER = 0.25
"""A text of many different terms says more than its length costs; "Show me." says nothing."""
RELEVANCE_FLOOR = 0.0
"""A text less relevant than the average one is not worth its tokens, even where there is room."""


class LexicalIndex:
    """BM25 over texts that are only ever added (Robertson & Zaragoza 2009, k1 1.2, b 0.75).

    Adding a text does not touch the others; a query reads only the texts that share a term with it.

    Example:
        >>> index = LexicalIndex()
        >>> index.extend([["blue", "bike"], ["red", "car"]])
        >>> index.scores(["bike"]).argmax().item()
        0
    """

    def __init__(self) -> None:
        self._postings: dict[str, array[int]] = {}
        """For every term the texts that have it, each as its number and how often."""
        self._lengths = array("i")
        self._total_length = 0
        self._distinct = array("i")

    def __len__(self) -> int:
        return len(self._lengths)

    def copy(self) -> LexicalIndex:
        """An index of the same texts that grows by itself."""
        twin = LexicalIndex()
        twin._postings = {term: postings[:] for term, postings in self._postings.items()}
        twin._lengths, twin._distinct = self._lengths[:], self._distinct[:]
        twin._total_length = self._total_length
        return twin

    def extend(self, texts: Iterable[Sequence[str]]) -> None:
        """Add texts, each as its terms."""
        for text in texts:
            number = len(self._lengths)
            counts: dict[str, int] = {}
            for term in text:
                counts[term] = counts.get(term, 0) + 1
            for term, count in counts.items():
                if term not in self._postings:
                    self._postings[term] = array("i")
                self._postings[term].extend((number, count))
            self._lengths.append(len(text))
            self._distinct.append(len(counts))
            self._total_length += len(text)

    def distinct_terms(self, end: int) -> list[int]:
        """How many different terms each of the first `end` texts has."""
        return self._distinct[:end].tolist()

    def scores(self, query: Iterable[str]) -> Scores:
        """The score of every text for a query, shape `(len(self),)`; zero where no term is shared."""
        size = len(self._lengths)
        scores = np.zeros(size)
        lengths = np.array(self._lengths)
        mean = self._total_length / size if size else 0.0
        for term in dict.fromkeys(query):
            postings = self._postings.get(term)
            if not postings:
                continue
            numbers, counts = np.array(postings).reshape(-1, 2).T
            idf = math.log(1 + (size - len(numbers) + 0.5) / (len(numbers) + 0.5))
            norm = BM25_K1 * (1 - BM25_B + BM25_B * lengths[numbers] / mean)
            scores[numbers] += idf * counts * (BM25_K1 + 1) / (counts + norm)
        return scores


def z_scores(scores: Scores) -> Scores:
    """Scores with mean 0 and standard deviation 1; zeros where all are alike."""
    if not scores.size or np.ptp(scores) == 0:  # a deviation of rounding errors is none
        return np.zeros_like(scores)
    deviation = scores.std()
    return (scores - scores.mean()) / deviation if deviation > 0 else np.zeros_like(scores)


def cosine(vectors: NDArray[np.float32], query: NDArray[np.float32]) -> Scores:
    """Cosine similarity of every row with a query after taking off the rows' mean, shape `(rows,)`.

    Args:
        vectors: shape `(rows, dimensions)`.
        query: shape `(dimensions,)`.

    Raises:
        ValueError: a vector holds something that is not a number.
    """
    if not len(vectors):
        return np.zeros(0)
    mean = vectors.mean(axis=0)
    rows, target = vectors - mean, query - mean
    norms = np.linalg.norm(rows, axis=1) * np.linalg.norm(target)
    similarity: Scores = (rows @ target / np.maximum(norms, 1e-12)).astype(np.float64)
    if not np.isfinite(similarity).all():
        raise ValueError("the embeddings hold values that are not numbers (NaN or infinite)")
    return similarity


def relevance(lexical: Scores, dense: Scores | None) -> Scores:
    """Lexical and dense scores fused, with what neighbours lend; shape as given, in the order of time."""
    own = z_scores(lexical)
    if dense is not None:
        own = LEXICAL_WEIGHT * own + DENSE_WEIGHT * z_scores(dense)
    fused = own.copy()
    for offset, weight in NEIGHBOURS:
        if abs(offset) >= len(own):
            continue
        if offset < 0:
            fused[-offset:] += weight * own[:offset]
        else:
            fused[:-offset] += weight * own[offset:]
    return fused


def value_per_token(relevances: Scores, costs: Sequence[int], distinct_terms: Sequence[int]) -> Scores:
    """Relevance, length and variety as one key to pack by: higher is a better use of a token.

    Args:
        relevances: what `relevance` gave; shape `(texts,)`.
        costs: what each text costs, in tokens.
        distinct_terms: how many different terms each has.
    """
    if not len(relevances):
        return relevances
    low, high = relevances.min(), relevances.max()
    scaled = (relevances - low) / (high - low) if high > low else np.ones_like(relevances)
    length = np.log(np.asarray(costs, dtype=np.float64) + LENGTH_OFFSET)
    variety = np.log1p(np.asarray(distinct_terms, dtype=np.float64))
    key: Scores = RELEVANCE_POWER * np.log(scaled + RELEVANCE_OFFSET) - LENGTH_POWER * length + VARIETY_POWER * variety
    return key
