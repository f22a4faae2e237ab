"""A LangGraph store over Chroma: in memory, in a folder of one process, or on a server of many.

`docs/internals/decisions.md` has the figures behind it.
"""

import asyncio
import os
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    ListNamespacesOp,
    Op,
    Result,
    SearchOp,
)

from langchain_ctxbudget import errors
from langchain_ctxbudget.stores.bulk import embeddings_name
from langchain_ctxbudget.stores.chroma_opening import open_local, open_server, typed_errors
from langchain_ctxbudget.stores.chroma_records import StoredItem, item_id, microseconds_of
from langchain_ctxbudget.stores.chroma_search import list_namespaces, search
from langchain_ctxbudget.stores.chroma_writes import (
    TextIndex,
    VectorsByText,
    checked_puts,
    texts_of,
)
from langchain_ctxbudget.stores.clocks import Clock, utc_now, with_offset
from langchain_ctxbudget.worker import AFTER_FORK


class ChromaStore(BaseStore):
    """A LangGraph store over Chroma: in memory, in a folder of one process, or on a server of many.

    Behaves as LangGraph's SQL stores: without a query the most recently updated items come first,
    and a store without an index ignores a query. Values are JSON. The score of a search is the
    exact cosine similarity of an item's best text. The `a` methods work in a thread. Of several
    processes on one server, the last write of an item counts.

    Example:
        >>> with ChromaStore() as store:
        ...     store.put(("users", "ada"), "home", {"city": "Paris"})
        ...     store.get(("users", "ada"), "home").value
        {'city': 'Paris'}
    """

    @errors.checks_names()
    def __init__(
        self,
        path: str | Path | None = None,
        *,
        url: str | None = None,
        headers: Mapping[str, str] | None = None,
        tenant: str = "default_tenant",
        database: str = "default_database",
        index: IndexConfig | None = None,
        clock: Clock = utc_now,
    ) -> None:
        """Opens a store.

        Args:
            path: the folder; made where it is missing. Without `path` and `url`, a private store in
                memory.
            url: a Chroma server, such as `http://localhost:8000` (`chroma run --path FOLDER` starts
                one).
            headers: sent with every request to the server, for instance a token.
            tenant: the tenant of the database on the server.
            database: the database on the server.
            index: `dims`, `embed` and `fields`, as in LangGraph's stores; without it, no dense
                search.
            clock: gives the time of writes, in UTC where it names no offset.

        Raises:
            StoreError: the folder cannot be written (`StoreLockedError`: it is open in another
                process) or read (`StoreDataError`), or the server not reached.
            EmbeddingMismatchError: the store was written with other embeddings.
        """
        if path is not None and url is not None:
            raise errors.StoreError("A store has a path or a url. Give one of them.")
        if "://" in str(path):
            raise errors.StoreError(f"{str(path)!r} is a URL, not a folder. Pass it as `url`.")

        self._index = TextIndex.of(index)
        self.index_config = index
        self.embeddings = self._index.embeddings
        self._clock = with_offset(clock)
        if url is not None:
            self._chroma = open_server(url, headers or {}, tenant, database)
        elif path is not None:
            self._chroma = open_local(Path(path).expanduser().resolve())
        else:
            self._chroma = open_local(None)
        self._finalizer = weakref.finalize(self, self._chroma.release)

        try:
            with self._chroma.lock, typed_errors(self._chroma.where):
                self._record_embeddings()
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"ChromaStore({self._chroma.place})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Releases the folder, the memory or the connections; closing twice does nothing."""
        if self._chroma.process == os.getpid():
            with self._chroma.lock:
                self._finalizer()

    def vacuum(self) -> None:
        """Rewrites the files of a folder without what was deleted, for instance after `erase_user`.

        What is deleted is found by no read, but stays in the bytes of the database until it is
        written over: texts, and the ids of users. Everything that uses the store waits: 0.1
        seconds, and 3 with 100,000 records; the disk needs room for a second copy. A store in
        memory has nothing to rewrite.

        Raises:
            StoreError: there is no room, other code in this process has the database open, or the
                store is on a server (stop it, and open its folder here).
        """
        self._require_open()
        chroma = self._chroma
        if chroma.is_server:
            raise errors.StoreError(
                f"The files of the Chroma server {chroma.where} are not within reach. Stop it, and "
                "open its folder as `ChromaStore(FOLDER)` to call `vacuum` there."
            )
        with chroma.lock, typed_errors(chroma.where):
            chroma.vacuum()

    async def avacuum(self) -> None:
        """Rewrites the files of a folder as `vacuum` does, in a worker thread."""
        await asyncio.to_thread(self.vacuum)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Runs operations: reads see the store as it was before, the last put of a key counts.

        Raises:
            InputError: an operation that makes no sense; nothing is written.
            StoreError: the store cannot be read or written.
        """
        operations = list(ops)
        puts = checked_puts(operations, self._index)
        vectors = self._index.vectors_of_texts(texts_of(puts.values()))
        searches = [op for op in operations if isinstance(op, SearchOp)]
        queries = self._index.vectors_of_queries(op.query or "" for op in searches)

        self._require_open()
        now = microseconds_of(self._clock())
        gets = [item_id(op.namespace, op.key) for op in operations if isinstance(op, GetOp)]
        chroma = self._chroma
        with chroma.lock, typed_errors(chroma.where), chroma.working():
            items = chroma.records.read([*gets, *puts])
            results = [self._result(op, items, queries) for op in operations]
            changes: dict[str, StoredItem | None] = {}
            for id_, put in puts.items():
                created = now
                if id_ in items:
                    created = items[id_].created
                changes[id_] = put.to_item(vectors, created=created, updated=now)
            chroma.records.write(changes)
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Runs operations as `batch` does, in a worker thread."""
        return await asyncio.to_thread(self.batch, list(ops))

    def _result(self, op: Op, items: Mapping[str, StoredItem], queries: VectorsByText) -> Result:
        """Returns what an operation reads; None for a write.

        Args:
            op: the operation.
            items: the items that the batch gets, by id.
            queries: the vector of each query of the batch.
        """
        if isinstance(op, GetOp):
            id_ = item_id(op.namespace, op.key)
            if id_ not in items:
                return None
            return items[id_].to_item(id_)
        if isinstance(op, SearchOp):
            return search(self._chroma.records, op, queries.get(op.query or ""))
        if isinstance(op, ListNamespacesOp):
            return list_namespaces(self._chroma.records, op)
        return None

    def _require_open(self) -> None:
        if not self._finalizer.alive:
            raise errors.StoreError("The store is closed. Open a new one.")
        if self._chroma.process != os.getpid():
            raise errors.StoreError(
                f"The store {self._chroma.where} belongs to the parent of this process. "
                f"{AFTER_FORK}"
            )

    def _record_embeddings(self) -> None:
        """Writes down with which embeddings the store is written, or compares."""
        description = self._chroma.client.get_or_create_collection(
            "ctxbudget-store", embedding_function=None
        )
        if self.embeddings is None:
            return
        recorded = dict(description.metadata or {})
        current = {"embedding": embeddings_name(self.embeddings), "dims": self._index.dims}
        if not recorded:
            description.modify(metadata=current)
        elif recorded != current:
            raise errors.EmbeddingMismatchError(
                f"The store {self._chroma.where} was written with {recorded['embedding']} "
                f"({recorded['dims']} dimensions), but is opened with {current['embedding']} "
                f"({current['dims']} dimensions). Open it with the embeddings "
                "it was written with, or put the items into a new store."
            )
