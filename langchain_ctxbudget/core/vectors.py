"""The vectors of a conversation's texts, compared without what they all have in common.

What the texts of a conversation share (its language, its tone, its people) makes all of them alike, so their mean is
taken off before a cosine is. The mean is that of the first texts, renewed when there are a quarter more: it depends on
the texts alone, and between two of its changes a new text costs nothing for the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langchain_ctxbudget.core.rows import Rows

Vectors = NDArray[np.float32]

GROWTH = 1.25
FEW = 32
"""Fewer texts than this have no mean worth the name: others that are compared join it."""
DECIMALS = 6
_TINY = 1e-9


class CentredVectors:
    """Vectors in the order in which they were added, each of length 1.

    Example:
        >>> vectors = CentredVectors()
        >>> vectors.extend([[1.0, 0.0], [0.0, 1.0]])
        >>> vectors.similarities(np.array([1.0, 0.1])).argmax().item()
        0
    """

    def __init__(self) -> None:
        self._rows = Rows(np.float32)
        self._counted = 0
        """How many of them are in the mean."""
        self._mean: Vectors = np.zeros(0, np.float32)
        self._lengths = Rows(np.float32)
        """Of each without the mean."""

    def __len__(self) -> int:
        return len(self._rows)

    def extend(self, vectors: Sequence[Sequence[float]] | NDArray[Any]) -> None:
        """Add some.

        Raises:
            ValueError: a value is not a number, or the vectors have not one width.
        """
        self._rows.extend(units(np.asarray(vectors, np.float32)))

    def truncate(self, length: int) -> None:
        """Keep only the first ones."""
        self._rows.truncate(length)
        self._lengths.truncate(length)
        if length < self._counted:
            self._counted = 0  # the mean has some that are gone

    def copy(self) -> CentredVectors:
        """The same ones, to grow by themselves."""
        twin = CentredVectors()
        twin._rows, twin._lengths = self._rows.copy(), self._lengths.copy()
        twin._counted, twin._mean = self._counted, self._mean
        return twin

    def similarities(self, query: NDArray[Any], others: Vectors | None = None) -> NDArray[np.float64]:
        """The cosine of every vector with a query, all without the mean.

        Args:
            query: shape `(dimensions,)`.
            others: vectors to compare as well; shape `(others, dimensions)`.

        Returns:
            shape `(others + len(self),)`: first the others', then its own.

        Raises:
            ValueError: a value is not a number.
        """
        rows = self._rows.values
        [target] = units(np.asarray([query], np.float32))
        more = np.zeros((0, target.size), np.float32) if others is None or not len(others) else units(others)
        if len(rows) < FEW:
            rows = np.concatenate((more, rows.reshape(-1, target.size)))
            mean = rows.mean(axis=0) if len(rows) else target
            return _rounded(_cosines(rows - mean, target - mean))
        self._renew()
        aim = target - self._mean
        length = max(float(np.linalg.norm(aim)), _TINY)
        own = (rows @ aim - self._mean @ aim) / (np.maximum(self._lengths.values, _TINY) * length)
        return _rounded(np.concatenate((_cosines(more - self._mean, aim), own), dtype=np.float64))

    @property
    def units(self) -> Vectors:
        """The vectors themselves, of length 1; shape `(len(self), dimensions)`."""
        return self._rows.values

    def _renew(self) -> None:
        """Bring the mean, and the lengths without it, up to date."""
        rows, counted = self._rows.values, _counted(len(self._rows))
        if counted != self._counted:
            self._counted, self._mean = counted, rows[:counted].mean(axis=0, dtype=np.float64).astype(np.float32)
            self._lengths.truncate(0)
        new = rows[len(self._lengths) :]
        squares = np.einsum("ij,ij->i", new, new) - 2 * (new @ self._mean) + self._mean @ self._mean
        self._lengths.extend(np.sqrt(np.maximum(squares, 0)))


def _counted(size: int) -> int:
    """How many of so many vectors are in the mean: the last step of a row in which each is a quarter above the last."""
    counted = FEW
    while (following := int(counted * GROWTH)) <= size:
        counted = following
    return min(counted, size)


def units(vectors: Vectors) -> Vectors:
    """Vectors of length 1; those without any length stay."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    if not np.isfinite(lengths).all():
        raise ValueError("the embeddings hold values that are not numbers (NaN or infinite)")
    return np.asarray(vectors / np.where(lengths > _TINY, lengths, 1), np.float32)


def _rounded(similarities: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rounded, because the last bits depend on how many vectors are multiplied at once."""
    return np.asarray(np.round(similarities, DECIMALS), np.float64)


def _cosines(rows: Vectors, target: Vectors) -> NDArray[np.float64]:
    lengths = np.linalg.norm(rows, axis=-1) * np.linalg.norm(target)
    similarity: NDArray[np.float64] = np.asarray(rows @ target / np.maximum(lengths, _TINY), np.float64)
    return similarity
