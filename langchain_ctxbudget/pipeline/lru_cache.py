"""A bounded cache of what was made for objects."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from langchain_ctxbudget.background import new_mutex

T = TypeVar("T")


class LruCache(Generic[T]):
    """Things by key, shared by threads; the one unused for longest goes first. It is let go of, not closed.

    Example:
        >>> cache: LruCache[list[int]] = LruCache(limit=2)
        >>> cache.find("a", None, list) is cache.find("a", None, list)
        True
    """

    def __init__(self, limit: int = 16) -> None:
        """Begins empty.

        Args:
            limit: the number of things that are kept.
        """
        self._limit = limit
        self._mutex = new_mutex()
        self._kept: OrderedDict[Hashable, tuple[object, T]] = OrderedDict()

    def find(self, key: Hashable, held: object, make: Callable[[], T]) -> T:
        """Returns what is kept under a key, or something new.

        Args:
            key: of the thing.
            held: what it is made for; held, so that its identity can be the key.
            make: makes it.
        """
        with self._mutex:
            kept = self._kept.pop(key, None)
            made = make() if kept is None else kept[1]
            self._kept[key] = held, made
            if len(self._kept) > self._limit:
                self._kept.popitem(last=False)
        return made

    def all(self) -> list[T]:
        """Returns everything that is kept."""
        with self._mutex:
            return [made for _, made in self._kept.values()]
