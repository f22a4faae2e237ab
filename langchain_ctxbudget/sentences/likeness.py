"""How much two sentences are about the same thing, by the rare runs of characters in both.

Runs of characters find "payments/" in "the payments package", and a word in another form in any
language. Those that are rare in the reader's data count most, and common words next to nothing.
"""

from collections.abc import Sequence

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
    """Texts of which each is compared with many others at once."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.runs: list[tuple[NDArray[np.int64], NDArray[np.float64]]] = []
        """The buckets of each text, and their weights."""
        for first in range(0, len(texts), READ_AT_ONCE):
            self.runs += _runs_of_each(texts[first : first + READ_AT_ONCE])
        counts = [len(buckets) for buckets, _ in self.runs]
        self._ends = np.append(0, np.cumsum(counts, dtype=np.int64))
        self._owners = np.repeat(np.arange(len(texts)), counts)
        self._buckets = np.concatenate([np.zeros(0, np.int64), *(run[0] for run in self.runs)])
        self._weights = np.concatenate([np.zeros(0), *(run[1] for run in self.runs)])
        self._looked_for = np.zeros(BUCKETS)

    def likeness(self, first: int, of: "ComparedTexts", number: int) -> NDArray[np.float64]:
        """Returns how alike each of the first texts is to another one, from 0 to 1.

        Args:
            first: How many of these texts.
            of: The texts that have the other one.
            number: Its number there, from 0.
        """
        buckets, weights = of.runs[number]
        end = self._ends[first]
        self._looked_for[buckets] = weights
        products = self._looked_for[self._buckets[:end]] * self._weights[:end]
        self._looked_for[buckets] = 0
        likeness = np.bincount(self._owners[:end], products, minlength=first)
        return likeness.astype(np.float64, copy=False)
