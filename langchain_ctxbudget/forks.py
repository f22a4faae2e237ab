"""Resets locks, objects and names in the child of a fork, where only the thread that forked goes on.

A lock that another thread held would be held there for ever, and its work is half done.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Protocol, TypeVar
from uuid import uuid4
from weakref import WeakSet


class _BeginsAnew(Protocol):
    def begin_anew(self) -> None:
        """Resets the object."""


T = TypeVar("T")
B = TypeVar("B", bound=_BeginsAnew)
F = TypeVar("F", bound=Callable[[], None])


class cached_property(functools.cached_property[T]):  # noqa: N801 - as it is known
    """The standard library's without its lock of Python 3.11, which no child of a fork could let go."""

    def __init__(self, function: Callable[[Any], T]) -> None:
        super().__init__(function)
        self.lock = nullcontext()


_mutexes: WeakSet[Any] = WeakSet()
_objects: WeakSet[_BeginsAnew] = WeakSet()
_functions: list[Callable[[], None]] = []
_kept: list[object] = []
_name: list[str] = []


def new_mutex() -> threading.Lock:
    """Returns a lock that is free in the child of a fork, whoever held it."""
    mutex = threading.Lock()
    _mutexes.add(mutex)
    return mutex


def new_import_lock() -> threading.RLock:
    """Returns a lock for large imports, which a fork waits for: the child could never finish one that is half done."""
    lock = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock


def beginning_anew(owner: B) -> B:
    """Registers an object whose `begin_anew` is called in the child of a fork, with all mutexes free."""
    _objects.add(owner)
    return owner


def in_child(function: F) -> F:
    """Registers a function that is called in the child of a fork, before any object begins anew."""
    _functions.append(function)
    return function


def keep_for_ever(thing: object) -> None:
    """Keeps a parent's object from being closed in the child: its threads are gone, its connections are shared."""
    _kept.append(thing)


def renamed(writer: str) -> str:
    """Returns the name of the parent's writer in this child; no two processes may write under one."""
    return f"{writer}.{_name[0]}"


def _begin_anew() -> None:
    for mutex in list(_mutexes):
        mutex._at_fork_reinit()  # noqa: SLF001 - as the standard library does with its own
    _name[:] = [uuid4().hex]
    for function in _functions:
        function()
    for each in list(_objects):
        each.begin_anew()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_begin_anew)
