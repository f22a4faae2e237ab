"""Searching texts by their words: BM25, and where in a long text a query is answered."""

import math
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from langchain_ctxbudget.messages import sentences, terms
from langchain_ctxbudget.search.ranking import ALL, Numbers, Places, Scores

PackedTerms: TypeAlias = tuple[Sequence[str], Mapping[str, NDArray[Any]]]
PACKED = ("term", "distinct", "count")
BM25_K1 = 1.2
BM25_B = 0.75
_OFTEN = 16
_TERM = 40
_MOST_OFTEN = 0xFFFF
"""A posting is one number: how often, in the lowest bits, and above them the text."""
_NOWHERE = array("q")


@dataclass(frozen=True, slots=True)
class UnlistedTexts:
    """Texts of which only their number, their length, and how many of them have some terms is known."""

    texts: int = 0
    total_length: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)


class LexicalIndex:
    """BM25 over texts that are only ever added (Robertson & Zaragoza 2009, k1 1.2, b 0.75).

    A query reads only the texts that share a term with it. An index must not be extended while it
    is searched.
    """

    def __init__(self) -> None:
        self.postings: dict[str, array[int]] = {}
        """For every term the texts that have it, each with how often."""
        self._lengths, self._distinct = array("i"), array("i")
        self.total_length = 0
        self.unlisted = UnlistedTexts()
        """Further texts that were searched: they count in how rare a term is, and are not
        ranked."""

    def __len__(self) -> int:
        return len(self._lengths)

    @property
    def size(self) -> int:
        """The number of texts, with those that are not ranked."""
        return len(self) + self.unlisted.texts

    @property
    def lengths(self) -> Numbers:
        """The number of terms of each text, shape `(len(self),)`."""
        return np.asarray(self._lengths)

    @property
    def distinct(self) -> Numbers:
        """The number of different terms of each text, shape `(len(self),)`."""
        return np.asarray(self._distinct)

    def extend(self, texts: Iterable[Iterable[str]], query: Collection[str] | None = None) -> None:
        """Adds texts, each as its terms or a count of them.

        Those of one `query` are enough where no other is asked.
        """
        for number, text in enumerate(texts, len(self)):
            counts = text if isinstance(text, Counter) else Counter(text)
            for term in counts if query is None else counts.keys() & query:
                self.postings.setdefault(term, array("q")).append(
                    number << _OFTEN | min(counts[term], _MOST_OFTEN)
                )
            self._lengths.append(counts.total())
            self._distinct.append(len(counts))
            self.total_length += self._lengths[-1]

    def add_counted(self, counts: Mapping[str, int], length: int, distinct: int) -> None:
        """Adds a text of another index.

        How often it has the terms of a query, and the numbers of all of its terms.
        """
        number = len(self)
        for term, often in counts.items():
            self.postings.setdefault(term, array("q")).append(
                number << _OFTEN | min(often, _MOST_OFTEN)
            )
        self._lengths.append(length)
        self._distinct.append(distinct)
        self.total_length += length

    def counts_of(self, number: int, query: Iterable[str]) -> dict[str, int]:
        """Returns how often a text has the terms of a query that it has."""
        found: dict[str, int] = {}
        for term in query:
            postings = self.postings.get(term, _NOWHERE)
            at = bisect_left(postings, number << _OFTEN)
            if at < len(postings) and postings[at] >> _OFTEN == number:
                found[term] = postings[at] & _MOST_OFTEN
        return found

    def having(self, query: Iterable[str], *, every: bool) -> list[int]:
        """Returns the texts that have every one of some terms, or any of them, ascending."""
        found: list[set[int]] = [
            {posting >> _OFTEN for posting in self.postings.get(term, _NOWHERE)[:]}
            for term in query
        ]
        if not found:
            return []
        return sorted(set.intersection(*found) if every else set.union(*found))

    def first(self, length: int) -> "LexicalIndex":
        """Returns the index of the first texts alone."""
        other = LexicalIndex()
        for term, postings in self.postings.items():
            if kept := bisect_left(postings, length << _OFTEN):
                other.postings[term] = postings[:kept]
        other._lengths = self._lengths[:length]
        other._distinct = self._distinct[:length]
        other.total_length = sum(other._lengths)
        return other

    def packed(self, texts: Iterable[Sequence[str]], first: int) -> PackedTerms:
        """Returns the terms that no text before `first` has, and by number those that each text from there on has."""
        numbers = {term: number for number, term in enumerate(self.postings)}
        counted = [Counter(text) for text in texts]
        arrays = {
            "distinct": [len(counts) for counts in counted],
            "term": [numbers[term] for counts in counted for term in counts],
            "count": [count for counts in counted for count in counts.values()],
        }
        new = [
            term
            for term, having in self.postings.items()
            if first <= having[0] >> _OFTEN < first + len(counted)
        ]
        return new, {
            name: np.array(of, np.min_scalar_type(max(of, default=0)))
            for name, of in arrays.items()
        }

    def restore(self, blocks: Sequence[PackedTerms]) -> None:
        """Adds the first texts, as `packed` gave them."""
        postings = np.empty(sum(len(of["term"]) for _, of in blocks), np.int64)
        end = 0
        for term, distinct, counts in ([of[name] for name in PACKED] for _, of in blocks):
            part = postings[end : end + len(term)]
            end = end + len(term)
            np.left_shift(term, _TERM, out=part, dtype=np.int64)
            part |= np.repeat(np.arange(len(self), len(self) + len(distinct)) << _OFTEN, distinct)
            part |= np.minimum(counts, np.int64(_MOST_OFTEN))
            before = np.append(0, np.cumsum(counts, dtype=np.int64))
            ends = np.cumsum(distinct, dtype=np.int64)
            self._distinct.frombytes(distinct.astype(np.intc).tobytes())
            self._lengths.frombytes(
                (before[ends] - before[ends - distinct]).astype(np.intc).tobytes()
            )
        new = [*chain.from_iterable(words for words, _ in blocks)]
        # by term, then by text; to sort terms alone and take the rest in their order is slower
        postings.sort()
        starts = np.searchsorted(postings, np.arange(len(new) + 1) << _TERM).tolist()
        postings &= (1 << _TERM) - 1
        for word, (start, end) in zip(new, pairwise(starts), strict=True):
            self.postings[word] = array("q", postings[start:end].tobytes())
        self.total_length = sum(self._lengths)

    def scores(
        self,
        query: Iterable[str],
        *,
        groups: Numbers | None = None,
        background: "LexicalIndex | None" = None,
    ) -> Scores:
        """Returns the score of every text for the different terms of a query, or of every group (from 0 on, rising).

        The texts of `background` count in the rarity of a term and the mean length, so that the
        scores of both compare.
        """
        terms = [*dict.fromkeys(query)]
        found = [self.postings.get(term, _NOWHERE) for term in terms]
        every = np.concatenate([_NOWHERE, *found])
        which = np.repeat(np.arange(len(terms)), [*map(len, found)])
        texts = every >> _OFTEN
        counts = every & _MOST_OFTEN
        lengths: NDArray[Any] = np.asarray(self._lengths)
        if groups is not None and len(groups):
            lengths = np.add.reduceat(lengths, _starts(groups))
            keys = which * np.int64(len(lengths)) + groups[texts]
            first = _starts(keys)  # of the texts of a group that have a term
            which = which[first]
            texts = groups[texts[first]]
            counts = np.add.reduceat(counts, first)
        others = background or LexicalIndex()
        unlisted = self.unlisted if groups is None else UnlistedTexts()
        size = len(lengths) + unlisted.texts + others.size
        total = (
            self.total_length
            + unlisted.total_length
            + others.total_length
            + others.unlisted.total_length
        )
        own = np.diff(np.searchsorted(which, np.arange(len(terms) + 1))).tolist()
        beside = [unlisted.counts.get(term, 0) + others.count(term) for term in terms]
        rarity = [_rarity(number + more, size) for number, more in zip(own, beside, strict=True)]
        return _bm25(texts, counts, np.repeat(rarity, own), lengths, total / max(1, size))

    def count(self, term: str) -> int:
        """Returns how many texts have a term."""
        return len(self.postings.get(term, _NOWHERE)) + self.unlisted.counts.get(term, 0)

    def rarities(
        self, query: Iterable[str], background: "LexicalIndex | None" = None
    ) -> dict[str, float]:
        """Returns how rare every term of a query is among all texts.

        About what a text scores that has it once.
        """
        others = background or LexicalIndex()
        size = self.size + others.size
        return {
            term: _rarity(self.count(term) + others.count(term), size)
            for term in dict.fromkeys(query)
        }

    def covered(self, rare: Mapping[str, float], places: Places = ALL) -> Scores:
        """Returns the share of some terms that every text has, or the texts at some places, by how rare they are."""
        having = [self.postings.get(term, _NOWHERE) for term in rare]
        each: NDArray[Any] = np.repeat([*rare.values(), 0.0], [*map(len, having), 0])
        found: NDArray[Any] = np.bincount(
            np.concatenate([_NOWHERE, *having]) >> _OFTEN, each, len(self)
        )
        return found[places] / max(sum(rare.values()), 1e-9)


def scores_together(first: LexicalIndex, second: LexicalIndex, query: Collection[str]) -> Scores:
    """Returns the scores of the texts of two indexes as if they were one."""
    return np.concatenate(
        (first.scores(query, background=second), second.scores(query, background=first))
    )


def scores_across(indexes: Sequence[LexicalIndex], query: Iterable[str]) -> Scores:
    """Returns the scores of the texts of indexes, one after the other, as if they were one."""
    starts = [0, *accumulate(map(len, indexes))]
    found: list[NDArray[np.int64]] = []
    rarities: list[float] = []
    for term in dict.fromkeys(query):
        having = [
            np.asarray(index.postings[term]) + (start << _OFTEN)
            for index, start in zip(indexes, starts, strict=False)
            if term in index.postings
        ]
        found.append(np.concatenate([_NOWHERE, *having]))
        rarities.append(_rarity(len(found[-1]), starts[-1]))
    every = np.concatenate([_NOWHERE, *found])
    lengths: NDArray[Any] = np.concatenate([_NOWHERE, *(index.lengths for index in indexes)])
    mean = float(lengths.sum()) / max(1, len(lengths))
    return _bm25(
        every >> _OFTEN, every & _MOST_OFTEN, np.repeat(rarities, [*map(len, found)]), lengths, mean
    )


def _bm25(
    texts: NDArray[Any],
    counts: NDArray[Any],
    rarity: NDArray[Any],
    lengths: NDArray[Any],
    mean: float,
) -> Scores:
    """Returns the score of every text, of the places where one has a term.

    Its number, how often, how rare that is.
    """
    if not len(texts):
        return np.zeros(len(lengths))
    norms = BM25_K1 * (1 - BM25_B + BM25_B / mean * lengths[texts])
    summed: NDArray[Any] = np.bincount(
        texts, rarity * (counts * (BM25_K1 + 1) / (counts + norms)), len(lengths)
    )
    return summed


def _rarity(having: int, size: int) -> float:
    return math.log(1 + (size - having + 0.5) / (having + 0.5))


def most_about(text: str, wanted: Collection[str]) -> int | None:
    """Returns where the sentence begins that has most of some terms; None where none has any."""
    best = max(
        sentences(text), key=lambda said: len({*wanted}.intersection(terms(said))), default=""
    )
    return None if {*wanted}.isdisjoint(terms(best)) else text.find(best)


def _starts(rising: NDArray[Any]) -> NDArray[np.intp]:
    return np.flatnonzero(np.concatenate((rising[:1] == rising[:1], rising[1:] != rising[:-1])))
