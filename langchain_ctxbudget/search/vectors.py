"""Vectors of texts: arrays that grow, cosines without what all texts share, and where a subject ends.

What the texts of a conversation share (its language, its tone, its people) makes all of them alike, so their mean is
taken off before a cosine is. The mean is that of the first texts, renewed when there are a quarter more: it depends on
the texts alone, and between two of its changes a new text costs nothing for the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from langchain_ctxbudget.search.ranking import Numbers, Scores

Vectors = NDArray[np.float32]

FEW, GROWTH = 32, 1.25
"""Fewer texts than this have no mean worth the name: others that are compared join it."""
DECIMALS = 6
"""The last bits depend on how many vectors are multiplied at once, so cosines are rounded."""
NEVER_RENEWED = -1
_WORD, _TINY, _FIRST_CAPACITY = 64, 1e-9, 64
_AT_ONCE = 8_192
"""Vectors that are made wide at once."""

BEFORE, AFTER = 4, 3
"""Texts before a place and from it on that are compared."""
UNLIKE, UNLIKE_AFTER_GREETING, NEVER = 0.15, 0.3, -2.0
"""Cosines below which two stretches of text have nothing to do with each other; after a greeting more readily."""
_GREETING = re.compile(
    r"\W*(?:hi|hello|hey|hiya|greetings|good (?:morning|afternoon|evening|day)|i['’]m back)\b",  # noqa: RUF001
    re.IGNORECASE,
)


class Rows:
    """Numbers, or vectors of one width; adding a row costs the same however many there are."""

    def __init__(self, dtype: DTypeLike) -> None:
        self._buffer: NDArray[Any] = np.zeros(0, dtype)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    @property
    def values(self) -> NDArray[Any]:
        """All of them, not copied; shape `(len(self),)` or `(len(self), width)`."""
        return self._buffer[: self._length]

    def extend(self, new: Sequence[Any] | NDArray[Any]) -> None:
        """Adds some.

        Raises:
            ValueError: vectors of another width, or of different ones.
        """
        rows = np.asarray(new, dtype=self._buffer.dtype)
        if not len(rows):
            return
        width = self._buffer.shape[1:] if self._length else rows.shape[1:]
        end = self._length + len(rows)
        if not self._length or end > len(self._buffer):
            bigger = np.zeros((max(end, 2 * self._length, _FIRST_CAPACITY), *width), rows.dtype)
            bigger[: self._length] = self.values if self._length else 0
            self._buffer = bigger
        self._buffer[self._length : end] = rows
        self._length = end

    def truncate(self, length: int) -> None:
        """Keeps only the first ones."""
        self._length = min(self._length, length)

    def some(self, numbers: NDArray[np.intp]) -> Rows:
        """Returns some of them, by number."""
        few = Rows(self._buffer.dtype)
        few._buffer, few._length = self._buffer[numbers], len(numbers)
        return few

    def copy(self) -> Rows:
        """Returns the same ones, to grow by themselves."""
        twin = Rows(self._buffer.dtype)
        twin._buffer, twin._length = self.values.copy(), self._length
        return twin


class CentredVectors:
    """Vectors in the order in which they were added, each of length 1."""

    def __init__(self) -> None:
        self._rows, self._lengths = Rows(np.float16), Rows(np.float32)
        """The vectors, in the precision in which they are stored, and the length of each without the mean."""
        self._signs: list[Rows] = []
        """Of each vector the signs of its values without the mean, 64 a column; made when they are first asked for."""
        self._mean: Vectors = np.zeros(0, np.float32)
        self._in_mean = 0
        self.absent: list[int] = []
        """Numbers of texts that the embeddings gave no usable vector; they are similar to nothing."""

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def width(self) -> int:
        """The number of values of each; 0 while there are none."""
        return self._rows.values.shape[1] if len(self) else 0

    @property
    def units(self) -> Vectors:
        """The vectors, of length 1; shape `(len(self), dimensions)`."""
        return self.at(slice(None))

    def at(self, places: slice | NDArray[np.intp]) -> Vectors:
        """Returns some of the vectors."""
        return np.asarray(self._rows.values[places], np.float32)

    def _pieces(self, first: int, end: int) -> Iterator[Vectors]:
        """Yields some vectors, a few thousand at once."""
        return (self.at(slice(start, min(start + _AT_ONCE, end))) for start in range(first, end, _AT_ONCE))

    def extend(self, vectors: Sequence[Sequence[float]] | NDArray[Any], absent: Iterable[int] = ()) -> None:
        """Adds some.

        Raises:
            ValueError: a value is not a number, or the vectors have not one width.
        """
        self.restore(units(np.asarray(vectors, np.float32)).astype(np.float16), absent)

    def restore(self, units: NDArray[np.float16], absent: Iterable[int]) -> None:
        """Adds some that have length 1, in the precision in which they are stored."""
        first = len(self)
        self._rows.extend(units)
        self.absent += [first + number for number in absent]

    def truncate(self, length: int) -> None:
        """Keeps only the first ones."""
        self._rows.truncate(length)
        self._lengths.truncate(length)
        for signs in self._signs:
            signs.truncate(length)
        self.absent = [number for number in self.absent if number < length]
        if length < self._in_mean:
            self._in_mean = 0

    def copy(self) -> CentredVectors:
        """Returns the same ones, to grow by themselves."""
        twin = CentredVectors()
        twin._rows, twin._lengths = self._rows.copy(), self._lengths.copy()
        twin._in_mean, twin._mean, twin.absent = self._in_mean, self._mean, self.absent.copy()
        return twin

    def some(self, numbers: NDArray[np.intp]) -> CentredVectors:
        """Returns some of them, compared as they are among all."""
        self._renew()
        few = CentredVectors()
        few._rows, few._lengths = self._rows.some(numbers), self._lengths.some(numbers)
        few._mean, few._in_mean = self._mean, NEVER_RENEWED
        few.absent = np.flatnonzero(np.isin(numbers, self.absent)).tolist()
        return few

    def likeness(self, query: NDArray[Any]) -> NDArray[np.int16]:
        """Returns in how many signs every vector is like a query: the more, the smaller is the angle between them."""
        [target] = units(np.asarray([query], np.float32))
        self._renew()
        asked = _signs((target - self._mean)[np.newaxis])[0]
        self._signs = self._signs or [Rows(np.uint64) for _ in asked]
        for rows in self._pieces(len(self._signs[0]), len(self)):
            for column, own in zip(self._signs, _signs(rows - self._mean).T, strict=True):
                column.extend(own)
        found = np.full(len(self), self.width, np.int16)
        for column, sign in zip(self._signs, asked, strict=True):
            found -= np.bitwise_count(column.values ^ sign)
        return found

    def similarities(self, query: NDArray[Any], others: Vectors | None = None) -> Scores:
        """Returns the cosine of every vector with a query, all without the mean: first of the others, then of its own.

        Raises:
            ValueError: a value is not a number.
        """
        [target] = units(np.asarray([query], np.float32))
        more = np.zeros((0, target.size), np.float32) if others is None or not len(others) else units(others)
        if len(self) < FEW and self._in_mean != NEVER_RENEWED:
            rows = np.concatenate((more, self.units.reshape(-1, target.size)))
            mean = rows.mean(axis=0) if len(rows) else target
            cosines = _cosines(rows - mean, target - mean)
        else:
            self._renew()
            aim = target - self._mean
            length = max(float(np.linalg.norm(aim)), _TINY)
            own = (self.units @ aim - self._mean @ aim) / (np.maximum(self._lengths.values, _TINY) * length)
            cosines = np.concatenate((_cosines(more - self._mean, aim), own), dtype=np.float64)
        found: Scores = np.round(cosines, DECIMALS)
        found[[len(more) + number for number in self.absent]] = 0
        return found

    def _renew(self) -> None:
        """Brings the mean, and the lengths without it, up to date; each step of the mean has a quarter more texts."""
        if self._in_mean == NEVER_RENEWED:
            return
        counted = FEW
        while (following := int(counted * GROWTH)) <= len(self):
            counted = following
        if counted != self._in_mean:
            sums = [rows.sum(axis=0, dtype=np.float64) for rows in self._pieces(0, min(counted, len(self)))]
            self._in_mean, self._mean = counted, (np.sum(sums, axis=0) / min(counted, len(self))).astype(np.float32)
            self._lengths.truncate(0)
            self._signs = []
        for new in self._pieces(len(self._lengths), len(self)):
            squares = np.einsum("ij,ij->i", new, new) - 2 * (new @ self._mean) + self._mean @ self._mean
            self._lengths.extend(np.sqrt(np.maximum(squares, 0)))


def _signs(rows: Vectors) -> NDArray[np.uint64]:
    """Returns the signs of vectors, one bit each, in whole numbers of 64."""
    bits = np.zeros((len(rows), -(-rows.shape[1] // _WORD) * _WORD), np.bool_)
    bits[:, : rows.shape[1]] = rows > 0
    return np.packbits(bits, axis=1).view(np.uint64)


def _cosines(rows: Vectors, target: Vectors) -> Scores:
    lengths = np.linalg.norm(rows, axis=-1) * np.linalg.norm(target)
    return np.asarray(rows @ target / np.maximum(lengths, _TINY), np.float64)


def units(vectors: Vectors) -> Vectors:
    """Returns vectors of length 1; those without any length stay.

    Raises:
        ValueError: a value is not a number.
    """
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    if not np.isfinite(lengths).all():
        raise ValueError("the embeddings hold values that are not numbers (NaN or infinite)")
    return np.asarray(vectors / np.where(lengths > _TINY, lengths, 1), np.float32)


def comparable(vectors: Sequence[Sequence[float]], width: int) -> tuple[Vectors, tuple[int, ...]]:
    """Returns vectors as they came, and the numbers of those that cannot be compared, which are zeros.

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
    """Returns the vector of a query, if it can be compared with vectors of a width (0: there are none yet).

    Raises:
        ValueError: a value is not a number, or it has another width.
    """
    target = np.asarray(vector, np.float32)
    units(target)
    if width and target.size != width:
        raise ValueError(f"the vector of the query has {target.size} dimensions, and those of the texts have {width}")
    return target


def limit(text: str, *, from_user: bool) -> float:
    """Returns the cosine with what stands before it below which a text begins a subject (TextTiling: Hearst 1997)."""
    if not from_user:
        return NEVER
    return UNLIKE_AFTER_GREETING if _GREETING.match(text) else UNLIKE


def links(vectors: Vectors, start: int = 0) -> Vectors:
    """Returns the cosine of each text, with those after it, with those before it, `(texts - start,)`; 1 for the first.

    A text's link is final when `AFTER - 1` more texts follow.
    """
    first = max(0, start - BEFORE)
    rows = vectors[first:]
    before, after = np.zeros_like(rows), rows.copy()
    for distance in range(1, min(BEFORE, len(rows) - 1) + 1):
        before[distance:] += rows[:-distance]
    for distance in range(1, min(AFTER, len(rows))):
        after[:-distance] += rows[distance:]
    norms = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
    similarity: Vectors = np.einsum("ij,ij->i", before, after) / np.maximum(norms, np.float32(1e-9))
    if not first and len(similarity):
        similarity[0] = 1.0
    return similarity[start - first :]


def subjects(session: Numbers, links: Vectors, limits: Vectors) -> Numbers:
    """Returns the number of every text's subject, from 0 and never falling: sessions, cut where a subject begins."""
    starts = np.diff(session, prepend=session[:1]) > 0
    known = min(len(links), len(limits), len(session))
    starts[:known] |= links[:known] < limits[:known]
    return np.cumsum(starts, dtype=np.int32)
