"""BM25 over texts that are only ever added."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from langchain_ctxbudget.search.ranking import Numbers, Scores

BM25_K1, BM25_B = 1.2, 0.75


class LexicalIndex:
    """BM25 over texts that are only ever added (Robertson & Zaragoza 2009, k1 1.2, b 0.75).

    Adding a text does not touch the others; a query reads only the texts that share a term with it. An index must
    not be extended while it is searched.

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
        self.total_length = 0
        """How many terms all texts have together."""
        self._distinct = array("i")

    def __len__(self) -> int:
        return len(self._lengths)

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
            self.total_length += len(text)

    def distinct_terms(self, end: int) -> Numbers:
        """How many different terms each of the first `end` texts has, shape `(end,)`."""
        return np.array(self._distinct[:end], dtype=np.int32)

    def documents_with(self, term: str) -> int:
        """How many texts have a term."""
        return len(self._postings.get(term, ())) // 2

    def scores(self, query: Iterable[str], *, background: LexicalIndex | None = None) -> Scores:
        """The score of every text for a query, shape `(len(self),)`; zero where no term is shared.

        Args:
            query: terms; one that comes twice counts once.
            background: another index, whose texts count in how rare a term is and how long a text is on average, so
                that the scores of both compare.
        """
        scores = np.zeros(len(self))
        if not self.total_length:
            return scores
        others = LexicalIndex() if background is None else background
        size = len(self) + len(others)
        norms = _length_norms(_view(self._lengths), (self.total_length + others.total_length) / size)
        for term, numbers, counts in self._found(query):
            idf = _idf(len(numbers) + others.documents_with(term), size)
            scores[numbers] += idf * _saturated(counts, norms[numbers])
        return scores

    def group_scores(self, query: Iterable[str], groups: Numbers) -> Scores:
        """The score of groups of texts for a query, each group read as one text, shape `(groups[-1] + 1,)`.

        Args:
            query: terms; one that comes twice counts once.
            groups: the group of every text, shape `(len(self),)`, from 0 and never falling.
        """
        size = int(groups[-1]) + 1 if len(groups) else 0
        scores = np.zeros(size)
        if not self.total_length:
            return scores
        lengths = np.bincount(groups, _view(self._lengths), size).astype(np.float64, copy=False)
        norms = _length_norms(lengths, self.total_length / size)
        for _, numbers, counts in self._found(query):
            inside = np.bincount(groups[numbers], counts, size).astype(np.float64, copy=False)
            idf = _idf(int(np.count_nonzero(inside)), size)
            scores += idf * _saturated(inside, norms)
        return scores

    def _found(self, query: Iterable[str]) -> Iterator[tuple[str, Numbers, Numbers]]:
        """Every term of a query that is known, with the numbers of the texts that have it and how often each does."""
        for term in dict.fromkeys(query):
            if postings := self._postings.get(term):
                pairs = _view(postings)
                yield term, pairs[::2], pairs[1::2]


def _view(numbers: array[int]) -> Numbers:
    """An array's memory, not copied; while the view lives the array cannot grow."""
    return np.frombuffer(numbers, dtype=np.intc) if numbers else np.zeros(0, np.intc)


def _idf(documents: int, size: int) -> float:
    return math.log(1 + (size - documents + 0.5) / (documents + 0.5))


def _length_norms(lengths: Numbers | Scores, mean: float) -> Scores:
    return np.asarray(BM25_K1 * (1 - BM25_B + BM25_B / mean * lengths), dtype=np.float64)


def _saturated(counts: Numbers | Scores, norms: Scores) -> Scores:
    return np.asarray(counts * (BM25_K1 + 1) / (counts + norms), dtype=np.float64)
