"""Searching texts by their words: BM25, and where in a long text a query is answered."""

import math
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import accumulate, chain, pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from langchain_ctxbudget.messages import sentence_spans, terms
from langchain_ctxbudget.search.scores import ALL, Numbers, Places, Scores

PackedTerms: TypeAlias = tuple[Sequence[str], Mapping[str, NDArray[Any]]]
"""Terms that are new, and arrays by the names in `PACKED`."""
PACKED = ("term", "distinct", "count")
BM25_K1 = 1.2
"""How much a term counts that a text has again and again (Robertson & Zaragoza 2009)."""
BM25_B = 0.75
"""How much a text's length counts against it, 0 to 1."""
# A posting is one number: the text, and in the lowest bits how often it has the term. While texts
# are restored, the number of the term stands above both.
_COUNT_BITS = 16
_TERM_SHIFT = 40
_MOST_OFTEN = (1 << _COUNT_BITS) - 1
_NOWHERE = array("q")


@dataclass(frozen=True, slots=True)
class UnlistedTexts:
    """Texts of which only a few sums are known: how many they are, and how many have some terms."""

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
        self._lengths = array("i")
        self._distinct = array("i")
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
    def distinct_terms(self) -> Numbers:
        """The number of different terms of each text, shape `(len(self),)`."""
        return np.asarray(self._distinct)

    def extend(self, texts: Iterable[Iterable[str]], query: Collection[str] | None = None) -> None:
        """Adds texts.

        Args:
            texts: Each as its terms or a count of them.
            query: The terms that are indexed, where no others will be asked for.
        """
        for text in texts:
            counts = text if isinstance(text, Counter) else Counter(text)
            indexed: Mapping[str, int] = counts
            if query is not None:
                indexed = {term: counts[term] for term in counts.keys() & query}
            self.add_counted(indexed, counts.total(), len(counts))

    def add_counted(self, counts: Mapping[str, int], length: int, distinct: int) -> None:
        """Adds a text whose terms are counted.

        Args:
            counts: How often it has the terms that are indexed.
            length: The number of all of its terms.
            distinct: The number of its different terms.
        """
        number = len(self)
        for term, count in counts.items():
            posting = number << _COUNT_BITS | min(count, _MOST_OFTEN)
            self.postings.setdefault(term, array("q")).append(posting)
        self._lengths.append(length)
        self._distinct.append(distinct)
        self.total_length += length

    def counts_of(self, number: int, query: Iterable[str]) -> dict[str, int]:
        """Returns how often a text has the terms of a query that it has."""
        counts: dict[str, int] = {}
        for term in query:
            postings = self.postings.get(term, _NOWHERE)
            at = bisect_left(postings, number << _COUNT_BITS)
            if at < len(postings) and postings[at] >> _COUNT_BITS == number:
                counts[term] = postings[at] & _MOST_OFTEN
        return counts

    def having(self, query: Iterable[str], *, every: bool) -> list[int]:
        """Returns the texts that have every one of some terms, or any of them, ascending."""
        texts_by_term = [self._texts_with(term) for term in query]
        if not texts_by_term:
            return []
        combine = np.intersect1d if every else np.union1d
        texts: list[int] = reduce(combine, sorted(texts_by_term, key=len)).tolist()
        return texts

    def _texts_with(self, term: str) -> Numbers:
        return np.asarray(self.postings.get(term, _NOWHERE)[:], np.int64) >> _COUNT_BITS

    def first(self, length: int) -> "LexicalIndex":
        """Returns the index of the first texts alone."""
        other = LexicalIndex()
        for term, postings in self.postings.items():
            end = bisect_left(postings, length << _COUNT_BITS)
            if end:
                other.postings[term] = postings[:end]
        other._lengths = self._lengths[:length]
        other._distinct = self._distinct[:length]
        other.total_length = sum(other._lengths)
        return other

    def packed(self, texts: Iterable[Sequence[str]], first: int) -> PackedTerms:
        """Returns what is stored of the texts from `first` on: new terms, and each text's terms.

        Args:
            texts: The terms of these texts.
            first: The number of the first of them; terms that no text before it has are new.
        """
        numbers = {term: number for number, term in enumerate(self.postings)}
        term_numbers: list[int] = []
        distinct: list[int] = []
        counts: list[int] = []
        for text in texts:
            counted = Counter(text)
            distinct.append(len(counted))
            term_numbers += map(numbers.__getitem__, counted)
            counts += counted.values()
        packed = {"distinct": distinct, "term": term_numbers, "count": counts}
        end = first + len(distinct)
        new_terms = [
            term
            for term, postings in self.postings.items()
            if first <= postings[0] >> _COUNT_BITS < end
        ]
        return new_terms, {name: _smallest_array(values) for name, values in packed.items()}

    def restore(self, blocks: Sequence[PackedTerms]) -> None:
        """Adds the first texts, as `packed` gave them."""
        postings = np.empty(sum(len(arrays["term"]) for _, arrays in blocks), np.int64)
        end = 0
        for _, arrays in blocks:
            start = end
            end += len(arrays["term"])
            self._restore_texts(arrays, postings[start:end])
        new_terms = list(chain.from_iterable(words for words, _ in blocks))
        # By term, then by text. To sort terms alone and to take the rest in their order is slower.
        postings.sort()
        starts = np.searchsorted(postings, np.arange(len(new_terms) + 1) << _TERM_SHIFT).tolist()
        postings &= (1 << _TERM_SHIFT) - 1
        for word, (start, end) in zip(new_terms, pairwise(starts), strict=True):
            self.postings[word] = array("q", postings[start:end].tobytes())
        self.total_length = sum(self._lengths)

    def _restore_texts(
        self, arrays: Mapping[str, NDArray[Any]], postings: NDArray[np.int64]
    ) -> None:
        """Adds the lengths of packed texts, and writes their postings into an array."""
        distinct = arrays["distinct"]
        counts = arrays["count"]
        texts = np.arange(len(self), len(self) + len(distinct))
        np.left_shift(arrays["term"], _TERM_SHIFT, out=postings, dtype=np.int64)
        postings |= np.repeat(texts << _COUNT_BITS, distinct)
        postings |= np.minimum(counts, np.int64(_MOST_OFTEN))

        ends = np.cumsum(distinct, dtype=np.int64)
        counted_before = np.append(0, np.cumsum(counts, dtype=np.int64))
        lengths = counted_before[ends] - counted_before[ends - distinct]
        self._distinct.frombytes(distinct.astype(np.intc).tobytes())
        self._lengths.frombytes(lengths.astype(np.intc).tobytes())

    def scores(
        self,
        query: Iterable[str],
        *,
        groups: Numbers | None = None,
        other_corpus: "LexicalIndex | None" = None,
    ) -> Scores:
        """Returns the BM25 score of every text, or of every group of texts, for a query.

        Args:
            query: Its terms; each counts once.
            groups: The number of every text's group, from 0 and rising; a group counts as one text.
            other_corpus: Texts that count in the rarity of a term and in the mean length, so that
                the scores of both compare.
        """
        query_terms = list(dict.fromkeys(query))
        postings_by_term = [self.postings.get(term, _NOWHERE) for term in query_terms]
        postings = np.concatenate([_NOWHERE, *postings_by_term])
        term_of = np.repeat(np.arange(len(query_terms)), [*map(len, postings_by_term)])
        texts = postings >> _COUNT_BITS
        counts = postings & _MOST_OFTEN
        lengths: NDArray[Any] = np.asarray(self._lengths)
        if groups is not None and len(groups):
            lengths = np.add.reduceat(lengths, _starts(groups))
            group_of = groups[texts]
            # The postings of a group's texts that have a term stand together.
            first = _starts(term_of * np.int64(len(lengths)) + group_of)
            term_of = term_of[first]
            texts = group_of[first]
            counts = np.add.reduceat(counts, first)

        others = other_corpus or LexicalIndex()
        unlisted = self.unlisted if groups is None else UnlistedTexts()
        size = len(lengths) + unlisted.texts + others.size
        total_length = (
            self.total_length
            + unlisted.total_length
            + others.total_length
            + others.unlisted.total_length
        )
        postings_of_terms = np.diff(np.searchsorted(term_of, np.arange(len(query_terms) + 1)))
        rarities: list[float] = []
        for term, having in zip(query_terms, postings_of_terms.tolist(), strict=True):
            elsewhere = unlisted.counts.get(term, 0) + others.count(term)
            rarities.append(_rarity(having + elsewhere, size))
        return _bm25(
            texts,
            counts,
            rarity=np.repeat(rarities, postings_of_terms),
            lengths=lengths,
            mean_length=total_length / max(1, size),
        )

    def count(self, term: str) -> int:
        """Returns how many texts have a term."""
        return len(self.postings.get(term, _NOWHERE)) + self.unlisted.counts.get(term, 0)

    def rarities(
        self, query: Iterable[str], other_corpus: "LexicalIndex | None" = None
    ) -> dict[str, float]:
        """Returns how rare every term of a query is, about what a text scores that has it once.

        Args:
            query: The terms.
            other_corpus: Texts that count as well.
        """
        others = other_corpus or LexicalIndex()
        size = self.size + others.size
        return {
            term: _rarity(self.count(term) + others.count(term), size)
            for term in dict.fromkeys(query)
        }

    def covered(self, rarities: Mapping[str, float], places: Places = ALL) -> Scores:
        """Returns the share of some terms that every text has, 0 to 1; rare terms count for more.

        Args:
            rarities: How rare each term is.
            places: The texts whose shares are returned.
        """
        postings_by_term = [self.postings.get(term, _NOWHERE) for term in rarities]
        rarity: NDArray[Any] = np.repeat(
            [*rarities.values(), 0.0], [*map(len, postings_by_term), 0]
        )
        texts = np.concatenate([_NOWHERE, *postings_by_term]) >> _COUNT_BITS
        summed: NDArray[Any] = np.bincount(texts, rarity, len(self))
        return summed[places] / max(sum(rarities.values()), 1e-9)


def scores_together(first: LexicalIndex, second: LexicalIndex, query: Collection[str]) -> Scores:
    """Returns the scores of the texts of two indexes as if they were one."""
    return np.concatenate(
        (first.scores(query, other_corpus=second), second.scores(query, other_corpus=first))
    )


def scores_across(indexes: Sequence[LexicalIndex], query: Iterable[str]) -> Scores:
    """Returns the scores of the texts of indexes, one after the other, as if they were one."""
    starts = [0, *accumulate(map(len, indexes))]
    postings_by_term: list[NDArray[np.int64]] = []
    rarities: list[float] = []
    for term in dict.fromkeys(query):
        shifted: list[Sequence[int] | NDArray[np.int64]] = [_NOWHERE]
        for index, start in zip(indexes, starts, strict=False):
            if term in index.postings:
                shifted.append(np.asarray(index.postings[term]) + (start << _COUNT_BITS))
        postings_by_term.append(np.concatenate(shifted))
        rarities.append(_rarity(len(postings_by_term[-1]), starts[-1]))
    postings = np.concatenate([_NOWHERE, *postings_by_term])
    lengths: NDArray[Any] = np.concatenate([_NOWHERE, *(index.lengths for index in indexes)])
    return _bm25(
        texts=postings >> _COUNT_BITS,
        counts=postings & _MOST_OFTEN,
        rarity=np.repeat(rarities, [*map(len, postings_by_term)]),
        lengths=lengths,
        mean_length=float(lengths.sum()) / max(1, len(lengths)),
    )


def _bm25(
    texts: NDArray[Any],
    counts: NDArray[Any],
    rarity: NDArray[Any],
    lengths: NDArray[Any],
    mean_length: float,
) -> Scores:
    """Returns the score of every text, from the places where a text has a term.

    Args:
        texts: The number of the text, for each place.
        counts: How often it has the term there.
        rarity: How rare the term is.
        lengths: The number of terms of every text.
        mean_length: Their mean, or that of a larger corpus.
    """
    if not len(texts):
        return np.zeros(len(lengths))
    norms = BM25_K1 * (1 - BM25_B + BM25_B / mean_length * lengths[texts])
    summed: NDArray[Any] = np.bincount(
        texts, rarity * (counts * (BM25_K1 + 1) / (counts + norms)), len(lengths)
    )
    return summed


def _rarity(having: int, size: int) -> float:
    """Returns how rare a term is that so many of all texts have (inverse document frequency)."""
    return math.log(1 + (size - having + 0.5) / (having + 0.5))


def most_about(text: str, wanted: Collection[str]) -> int | None:
    """Returns where the sentence begins that has most of some terms; None where none has any.

    Lines right before it that have other terms of them belong to it: "port: 80" stands above "name:
    mail".
    """
    wanted_terms = set(wanted)
    spans = sentence_spans(text)
    shared = [wanted_terms.intersection(terms(text[begin:end])) for begin, end in spans]
    if not any(shared):
        return None
    first = max(range(len(spans)), key=lambda number: len(shared[number]))
    found = shared[first]
    while first > 0 and shared[first - 1] - found:
        _, end = spans[first - 1]
        begin, _ = spans[first]
        if "\n" not in text[end:begin]:
            break
        first -= 1
        found |= shared[first]
    begin, _ = spans[first]
    return begin


def _starts(rising: NDArray[Any]) -> NDArray[np.intp]:
    """Returns the places of the first of equal values that stand together."""
    is_start = np.ones(len(rising), np.bool_)
    is_start[1:] = rising[1:] != rising[:-1]
    return np.flatnonzero(is_start)


def _smallest_array(values: Sequence[int]) -> NDArray[Any]:
    """Returns numbers from 0 on as an array of the smallest type that holds them all."""
    return np.array(values, np.min_scalar_type(max(values, default=0)))
