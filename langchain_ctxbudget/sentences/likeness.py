"""How much two sentences are about the same thing, by the rare runs of characters in both.

Runs of characters find "payments/" in "the payments package", and a word in another form in any
language. Those that are rare in the reader's data count most, and common words next to nothing.
"""

import numpy as np
from numpy.typing import NDArray

from langchain_ctxbudget.messages import cached_until_forgotten
from langchain_ctxbudget.sentences.features import Family, features_of, placed
from langchain_ctxbudget.sentences.reader import RARITY_STEP, packaged_weights

RUN_POWER = 4
"""A run counts by this power of its rarity."""
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
    features = features_of(placed([text]), families=(Family.RUN,))
    buckets = np.unique(features.buckets)
    known = packaged_weights().rarity[buckets].astype(np.float64) * RARITY_STEP
    rarity = np.where(known > 0, known, 1.0)  # runs that the data do not have are rare
    weights = rarity**RUN_POWER
    length = max(float(np.linalg.norm(weights)), SMALLEST_LENGTH)
    return buckets, weights / length
