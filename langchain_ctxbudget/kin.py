"""What was made for the stores and models of runs, kept for the next run with the same."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")

MOST_KIN = 16
"""Stores, and kinds of models, for which something is kept."""


class Kin(Generic[T]):
    """A bounded cache; the one unused for longest goes first. It is forgotten, not closed: a run may be using it."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._made: OrderedDict[Hashable, tuple[object, T]] = OrderedDict()

    def find(self, key: Hashable, made_for: object, make: Callable[[], T]) -> T:
        """What was made for a key, or something new.

        Args:
            key: by which it is found.
            made_for: what it is made for; held, so that its identity can be the key.
            make: makes it.
        """
        with self._mutex:
            kept = self._made.pop(key, None)
            made = make() if kept is None else kept[1]
            self._made[key] = made_for, made
            if len(self._made) > MOST_KIN:
                self._made.popitem(last=False)
        return made

    def all(self) -> list[T]:
        """Everything that is kept."""
        with self._mutex:
            return [made for _, made in self._made.values()]
