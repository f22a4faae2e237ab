"""The vectors that searches have read, kept in memory where nobody else can write.

Handing over all numbers again is nearly all that a search costs Chroma.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langchain_ctxbudget.stores.matching import Namespace, parse_item_id

CACHE_BYTES = 64_000_000
"""What one open Chroma keeps at most."""

ROW_BYTES = 400
"""What a vector takes besides its numbers: its id, twice, and its version."""


class Vectors:
    """Vectors by id, each with the fingerprint of the value it was made from; in no order."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.versions: list[int] = []
        self._rows: dict[str, int] = {}
        self._numbers: NDArray[np.float32] = np.empty((0, 0), np.float32)

    @property
    def numbers(self) -> NDArray[np.float64]:
        """One row for every id."""
        return self._numbers[: len(self.ids)].astype(np.float64)

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return self._numbers.nbytes + ROW_BYTES * (len(self.ids) + 1)

    def put(self, ids: Sequence[str], numbers: Any, versions: Sequence[int]) -> None:  # noqa: ANN401 - lists, arrays
        """Add vectors, or replace those with the same ids."""
        if not ids:
            return
        new = np.asarray(numbers, dtype=np.float32)
        needed = len(self.ids) + len(ids)
        if needed > len(self._numbers):
            grown = np.empty((max(needed, len(self._numbers) * 3 // 2), new.shape[1]), np.float32)
            if self.ids:
                grown[: len(self.ids)] = self._numbers[: len(self.ids)]
            self._numbers = grown
        for id_, vector, version in zip(ids, new, versions, strict=True):
            row = self._rows.setdefault(id_, len(self.ids))
            if row == len(self.ids):
                self.ids.append(id_)
                self.versions.append(version)
            self._numbers[row], self.versions[row] = vector, version

    def remove(self, id_: str) -> None:
        """Take one out, if it is there; the last one takes its row."""
        row = self._rows.pop(id_, None)
        if row is None:
            return
        last, version = self.ids.pop(), self.versions.pop()
        if last != id_:
            self.ids[row], self.versions[row], self._rows[last] = last, version, row
            self._numbers[row] = self._numbers[len(self.ids)]


class VectorCache:
    """The vectors below the prefixes that were searched last, in step with every write."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Namespace, Vectors] = OrderedDict()

    def get(self, prefix: Namespace) -> Vectors | None:
        """All vectors below a prefix, if they are known."""
        if vectors := self._kept.get(prefix):
            self._kept.move_to_end(prefix)
        return vectors

    def keep(self, prefix: Namespace, vectors: Vectors) -> None:
        """Know these as all vectors below a prefix, unless they alone are too many."""
        if vectors.size <= CACHE_BYTES:
            self._kept[prefix] = vectors
            self._shrink()

    def put(self, ids: Sequence[str], numbers: Sequence[Any], versions: Sequence[int]) -> None:
        """Take over what was written."""
        for id_, vector, version in zip(ids, numbers, versions, strict=True):
            for vectors in self._above(id_):
                vectors.put([id_], [vector], [version])
        self._shrink()

    def remove(self, ids: Iterable[str]) -> None:
        """Take over what was deleted."""
        for id_ in ids:
            for vectors in self._above(id_):
                vectors.remove(id_)

    def clear(self) -> None:
        """Know nothing, for instance after a write of which nobody knows how far it came."""
        self._kept.clear()

    def _above(self, id_: str) -> list[Vectors]:
        if not self._kept:
            return []
        namespace, _ = parse_item_id(id_.rpartition("#")[0])
        prefixes = (namespace[:length] for length in range(len(namespace) + 1))
        return [self._kept[prefix] for prefix in prefixes if prefix in self._kept]

    def _shrink(self) -> None:
        size = sum(vectors.size for vectors in self._kept.values())
        while size > CACHE_BYTES:
            _, vectors = self._kept.popitem(last=False)
            size -= vectors.size
