"""How much two sentences are about the same thing, by the rare runs of characters in both.

Runs of characters find "payments/" in "the payments package", and a word in another form in any
language; runs that are rare in the reader's data count most, so common words count next to nothing.
"""

import numpy as np
from numpy.typing import NDArray

from langchain_ctxbudget.messages import cached_until_forgotten
from langchain_ctxbudget.sentences.features import Family, features_of, placed
from langchain_ctxbudget.sentences.reader import RARITY_STEP, packaged_weights

RARITY_POWER = 4
"""The power of a run's rarity by which it counts."""
SMALLEST_LENGTH = 1e-9
"""A text without runs has a length of 0, by which nothing can be divided."""


@cached_until_forgotten(65_536)
def likeness(first: str, second: str) -> float:
    """Returns how alike two sentences are, from 0 to 1: the cosine of their weighted runs."""
    buckets, weights = _runs(first)
    other_buckets, other_weights = _runs(second)
    _, places, other_places = np.intersect1d(
        buckets, other_buckets, assume_unique=True, return_indices=True
    )
    return float(weights[places] @ other_weights[other_places])


@cached_until_forgotten(1_024)
def _runs(text: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Returns the buckets of a text's runs, each once, and their weights, of length 1."""
    features = features_of(placed([text]), families=(Family.RUN,))
    buckets = np.unique(features.buckets)
    known = packaged_weights().rarity[buckets].astype(np.float64) * RARITY_STEP
    rarity = np.where(known > 0, known, 1.0)  # what no training data have is rare
    weights = rarity**RARITY_POWER
    length = max(float(np.linalg.norm(weights)), SMALLEST_LENGTH)
    return buckets, weights / length
