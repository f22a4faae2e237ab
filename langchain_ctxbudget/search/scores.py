"""Scores of many texts at once: the best of them, and how far each stands from the mean."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Scores: TypeAlias = NDArray[np.float64]
Numbers: TypeAlias = NDArray[np.int32]
Places: TypeAlias = NDArray[np.intp] | slice
ALL = slice(None)


def highest(numbers: NDArray[np.intp], scores: NDArray[Any], most: int) -> NDArray[np.intp]:
    """Returns the numbers of the texts with the highest scores, the highest first.

    Of texts with equal scores, the first ones are taken.

    Args:
        numbers: The texts among which to choose.
        scores: The scores of all texts.
        most: How many to return at most.
    """
    candidates = scores[numbers]
    if len(numbers) > most > 0:
        # Sorting all of many is slow. The best scores of many columns show what is high enough.
        is_enough = _is_among_best(candidates, most)
        numbers = numbers[is_enough]
        candidates = candidates[is_enough]
    return numbers[np.argsort(-candidates, kind="stable")][:most]


def _is_among_best(scores: NDArray[Any], most: int) -> NDArray[np.bool_]:
    """Returns which scores may be among the highest: at least `most` of them, hardly more."""
    columns = 4 * most
    rows = scores[: len(scores) // columns * columns].reshape(-1, columns)
    best = rows.max(axis=0) if len(rows) > 1 else scores
    enough = np.partition(best, len(best) - most)[len(best) - most]
    is_enough: NDArray[np.bool_] = scores >= enough
    return is_enough


def z_scores(scores: Scores, sample: Places = ALL, of: Places = ALL) -> Scores:
    """Returns by how many standard deviations scores differ from the mean.

    Args:
        scores: The scores of all texts.
        sample: The texts whose mean and deviation count.
        of: The texts whose z-scores are returned.

    Returns:
        Zeros where all scores of the sample are equal.
    """
    sampled = scores[sample]
    chosen = scores[of]
    if not sampled.size or np.ptp(sampled) == 0:  # a deviation of rounding errors is none
        return np.zeros_like(chosen)
    deviations: Scores = (chosen - sampled.mean()) / sampled.std()
    return deviations
