"""Arrays that grow: adding a row costs the same however many there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_FIRST_CAPACITY = 64


class Rows:
    """Numbers, or vectors of one width, in the order in which they were added.

    Example:
        >>> rows = Rows(np.int32)
        >>> rows.extend([1, 2, 3])
        >>> rows.values.sum().item()
        6
    """

    def __init__(self, dtype: DTypeLike) -> None:
        self._dtype = dtype
        self._buffer: NDArray[Any] = np.zeros(0, dtype)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    @property
    def values(self) -> NDArray[Any]:
        """All of them, not copied; shape `(len(self),)` or `(len(self), width)`."""
        return self._buffer[: self._length]

    def extend(self, new: Sequence[Any] | NDArray[Any]) -> None:
        """Add some.

        Raises:
            ValueError: vectors of another width, or of different ones.
        """
        rows = np.asarray(new, dtype=self._dtype)
        if not len(rows):
            return
        if not self._length:
            self._buffer = np.zeros((_FIRST_CAPACITY, *rows.shape[1:]), self._dtype)
        end = self._length + len(rows)
        if end > len(self._buffer):
            bigger = np.zeros((max(end, 2 * len(self._buffer)), *self._buffer.shape[1:]), self._dtype)
            bigger[: self._length] = self.values
            self._buffer = bigger
        self._buffer[self._length : end] = rows
        self._length = end

    def truncate(self, length: int) -> None:
        """Keep only the first ones."""
        self._length = min(self._length, length)

    def copy(self) -> Rows:
        """The same ones, to grow by themselves."""
        twin = Rows(self._dtype)
        twin._buffer, twin._length = self.values.copy(), self._length
        return twin
