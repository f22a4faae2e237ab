"""How much two sentences are about the same thing, by the rare runs of characters in both.

Runs of characters find "payments/" in "the payments package", and a word in another form in any
language. Those that are rare in the reader's data count most, and common words next to nothing.
"""

from collections.abc import Sequence
from unicodedata import category

import numpy as np
from numpy.typing import NDArray

from langchain_ctxbudget.messages import cached_until_forgotten
from langchain_ctxbudget.sentences.features import BUCKETS, Family, features_of, placed
from langchain_ctxbudget.sentences.reader import RARITY_STEP, packaged_weights

RUN_POWER = 4
"""A run counts by this power of its rarity."""
READ_AT_ONCE = 256
"""Texts whose runs are found together."""
SMALLEST_LENGTH = 1e-9
"""Stands for the length 0 of a text without runs, by which nothing can be divided."""


@cached_until_forgotten(65_536)
def likeness(first: str, second: str) -> float:
    """Returns how alike two sentences are, from 0 to 1: the cosine of their weighted runs."""
    buckets, weights = _runs(first)
    other_buckets, other_weights = _runs(second)
    if not len(other_buckets):
        return 0.0
    places = other_buckets.searchsorted(buckets)
    places[places == len(other_buckets)] = 0
    in_both = other_buckets[places] == buckets
    return float(weights[in_both] @ other_weights[places[in_both]])


def share_said_by(text: str, other: str, *, within: str | None = None) -> float:
    """Returns how much of what a text says another one says, too, from 0 to 1.

    Marks such as commas do not count.

    Args:
        text: The text.
        other: The other one.
        within: Of the text, only what this third one says, too, counts; None for all of it.
    """
    buckets, weights = _runs(_without_marks(text))
    if within is not None:
        is_within = np.isin(buckets, _runs(_without_marks(within))[0])
        buckets = buckets[is_within]
        weights = weights[is_within]
    in_both = np.isin(buckets, _runs(_without_marks(other))[0])
    all_of_it = float(weights @ weights)
    return float(weights[in_both] @ weights[in_both]) / max(all_of_it, SMALLEST_LENGTH)


def _without_marks(text: str) -> str:
    """Returns the words of a text, without punctuation and symbols."""
    return "".join(" " if category(character)[0] in "PS" else character for character in text)


@cached_until_forgotten(1_024)
def _runs(text: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Returns the buckets of a text's runs, each once, and their weights, of length 1."""
    [runs] = _runs_of_each([text])
    return runs


def _runs_of_each(texts: Sequence[str]) -> list[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Returns for each text the buckets of its runs, and their weights; see `_runs`."""
    if not texts:
        return []
    sentences = [sentence for text in texts for sentence in placed([text])]
    features = features_of(sentences, families=(Family.RUN,))
    ends = np.searchsorted(features.owners, np.arange(len(texts)), side="right")
    rarities = packaged_weights().rarity
    runs: list[tuple[NDArray[np.int64], NDArray[np.float64]]] = []
    begin = 0
    for end in ends.tolist():
        buckets = np.unique(features.buckets[begin:end])
        known = rarities[buckets].astype(np.float64) * RARITY_STEP
        rarity = np.where(known > 0, known, 1.0)  # runs that the data do not have are rare
        weights = rarity**RUN_POWER
        length = max(float(np.linalg.norm(weights)), SMALLEST_LENGTH)
        runs.append((buckets, weights / length))
        begin = end
    return runs


class ComparedTexts:
    """Texts of which each is compared with all before it at once; more can be added."""

    def __init__(self) -> None:
        self._ends = np.zeros(1, np.int64)
        """Where the runs of each text end, behind a 0."""
        self._owners = np.zeros(0, np.int64)
        """The number of the text that each run is of."""
        self._buckets = np.zeros(0, np.int64)
        self._weights = np.zeros(0)
        self._looked_for = np.zeros(BUCKETS)

    def add(self, texts: Sequence[str]) -> None:
        """Adds texts behind the others."""
        runs: list[tuple[NDArray[np.int64], NDArray[np.float64]]] = []
        for first in range(0, len(texts), READ_AT_ONCE):
            runs += _runs_of_each(texts[first : first + READ_AT_ONCE])
        counts = np.array([len(buckets) for buckets, _ in runs], np.int64)
        known = len(self._ends) - 1
        owners = np.repeat(np.arange(known, known + len(texts)), counts)
        self._ends = np.concatenate([self._ends, self._ends[-1] + np.cumsum(counts)])
        self._owners = np.concatenate([self._owners, owners])
        self._buckets = np.concatenate([self._buckets, *(buckets for buckets, _ in runs)])
        self._weights = np.concatenate([self._weights, *(weights for _, weights in runs)])

    def with_earlier(self, number: int) -> NDArray[np.float64]:
        """Returns how alike a text is to each one before it, from 0 to 1.

        Args:
            number: The number of the text, from 0.
        """
        begin, end = self._ends[number : number + 2].tolist()
        return self._likeness(self._buckets[begin:end], self._weights[begin:end], number)

    def with_text(self, text: str, first: int) -> NDArray[np.float64]:
        """Returns how alike each of the first texts is to another one, from 0 to 1.

        Args:
            text: The other one.
            first: How many of these texts.
        """
        return self._likeness(*_runs(text), first)

    def _likeness(
        self, buckets: NDArray[np.int64], weights: NDArray[np.float64], first: int
    ) -> NDArray[np.float64]:
        """Returns how alike each of the first texts is to one with some runs."""
        end = self._ends[first]
        self._looked_for[buckets] = weights
        products = self._looked_for[self._buckets[:end]] * self._weights[:end]
        self._looked_for[buckets] = 0
        likeness = np.bincount(self._owners[:end], products, minlength=first)
        return likeness.astype(np.float64, copy=False)
