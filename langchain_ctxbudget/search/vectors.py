"""The vectors of a conversation's texts, compared without what they all have in common.

What the texts of a conversation share (its language, its tone, its people) makes all of them alike, so their mean is
taken off before a cosine is. The mean is that of the first texts, renewed when there are a quarter more: it depends on
the texts alone, and between two of its changes a new text costs nothing for the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langchain_ctxbudget.search.rows import Rows

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
        self.absent: list[int] = []
        """Numbers of texts that the embeddings gave no usable vector; they are similar to nothing."""
        self._mean: Vectors = np.zeros(0, np.float32)
        self._lengths = Rows(np.float32)
        """Of each without the mean."""

    def __len__(self) -> int:
        return len(self._rows)

    def extend(self, vectors: Sequence[Sequence[float]] | NDArray[Any], absent: Iterable[int] = ()) -> None:
        """Add some.

        Args:
            vectors: one per text.
            absent: which of them only stand for one that is absent.

        Raises:
            ValueError: a value is not a number, or the vectors have not one width.
        """
        first = len(self)
        self._rows.extend(units(np.asarray(vectors, np.float32)))
        self.absent += [first + number for number in absent]

    def truncate(self, length: int) -> None:
        """Keep only the first ones."""
        self._rows.truncate(length)
        self._lengths.truncate(length)
        self.absent = [number for number in self.absent if number < length]
        if length < self._counted:
            self._counted = 0  # the mean has some that are gone

    def copy(self) -> CentredVectors:
        """The same ones, to grow by themselves."""
        twin = CentredVectors()
        twin._rows, twin._lengths = self._rows.copy(), self._lengths.copy()
        twin._counted, twin._mean, twin.absent = self._counted, self._mean, self.absent.copy()
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
        [target] = units(np.asarray([query], np.float32))
        more = np.zeros((0, target.size), np.float32) if others is None or not len(others) else units(others)
        found = _rounded(self._few(target, more) if len(self) < FEW else self._many(target, more))
        found[[len(more) + number for number in self.absent]] = 0
        return found

    def _few(self, target: Vectors, others: Vectors) -> NDArray[np.float64]:
        rows = np.concatenate((others, self.units.reshape(-1, target.size)))
        mean = rows.mean(axis=0) if len(rows) else target
        return _cosines(rows - mean, target - mean)

    def _many(self, target: Vectors, others: Vectors) -> NDArray[np.float64]:
        self._renew()
        aim = target - self._mean
        length = max(float(np.linalg.norm(aim)), _TINY)
        own = (self.units @ aim - self._mean @ aim) / (np.maximum(self._lengths.values, _TINY) * length)
        return np.concatenate((_cosines(others - self._mean, aim), own), dtype=np.float64)

    @property
    def width(self) -> int:
        """How many values each has; 0 while there are none."""
        return self.units.shape[1] if len(self) else 0

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


def comparable(vectors: Sequence[Sequence[float]], width: int) -> tuple[Vectors, tuple[int, ...]]:
    """Vectors as they came, and the numbers of those that cannot be compared, which are zeros.

    Those hold values that are not numbers, or have another width. One such vector must not cost the other texts theirs.
    """
    rows, absent = np.zeros((len(vectors), width), np.float32), []
    for number, vector in enumerate(vectors):
        row = np.asarray(vector, np.float32)
        if row.shape == (width,) and np.isfinite(np.linalg.norm(row)):
            rows[number] = row
        else:
            absent.append(number)
    return rows, tuple(absent)


def as_query(vector: Sequence[float], width: int = 0) -> Vectors:
    """The vector of a query, if it can be compared.

    It is looked at first: where it is sound, so are the embeddings, and what else they give that is not is a matter of
    the single text.

    Args:
        vector: as the embeddings gave it.
        width: of the vectors that it is compared with; 0 where there are none yet.

    Raises:
        ValueError: a value is not a number, or it has another width.
    """
    target = np.asarray(vector, np.float32)
    units(target)
    if width and target.size != width:
        raise ValueError(f"the vector of the query has {target.size} dimensions, and those of the texts have {width}")
    return target


def _rounded(similarities: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rounded, because the last bits depend on how many vectors are multiplied at once."""
    return np.asarray(np.round(similarities, DECIMALS), np.float64)


def _cosines(rows: Vectors, target: Vectors) -> NDArray[np.float64]:
    lengths = np.linalg.norm(rows, axis=-1) * np.linalg.norm(target)
    similarity: NDArray[np.float64] = np.asarray(rows @ target / np.maximum(lengths, _TINY), np.float64)
    return similarity
