"""One writer at a time for a document, in this process.

By document, and not by store object: where every request opens a store, all of them lead to the same records.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from weakref import WeakValueDictionary

from langchain_ctxbudget.flow import Call, Flow, Lock, T

_locks: WeakValueDictionary[str, Lock] = WeakValueDictionary()
_mutex = threading.Lock()
under_way: set[str] = set()
"""The documents that this process writes now, by id."""


def alone(documents: Iterable[str], flow: Flow[T]) -> Flow[T]:
    """Run a flow while nobody else in this process writes the same documents.

    Args:
        documents: their ids.
        flow: what writes them.

    Raises:
        BlockedLoopError: a task of the event loop that this call blocks writes one of them.
    """
    with _mutex:  # in one order, so that no two wait for each other
        locks = {key: _locks.setdefault(key, Lock()) for key in sorted(documents)}
    held: list[str] = []
    try:
        for key, lock in locks.items():
            yield Call(lock.acquire, lock.aacquire)
            held.append(key)
            under_way.add(key)
        return (yield from flow)
    finally:
        for key in held:
            under_way.discard(key)
            locks[key].release()
