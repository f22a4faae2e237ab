"""The store of whoever was given none."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable

from langgraph.store.base import Op, Result
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget.errors import StoreError
from langchain_ctxbudget.stores.operations import AFTER_FORK


class PrivateStore(InMemoryStore):
    """LangGraph's store in memory, for threads, tasks and the one process that made it."""

    def __init__(self) -> None:
        super().__init__()
        self._process = os.getpid()
        self._mutex = threading.Lock()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Runs operations, one batch at a time.

        Raises:
            StoreError: this process is the child of the one that made the store, which would not see what is written.
        """
        if self._process != os.getpid():
            raise StoreError(
                f"The store in memory belongs to the parent of this process, which was forked. {AFTER_FORK}"
            )
        with self._mutex:
            return super().batch(ops)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Runs operations; there is nothing to wait for."""
        return self.batch(ops)

    def close(self) -> None:
        """Lets go of what is in it."""
        self._data.clear()
