"""A LangGraph store over Chroma.

Two kinds of collections, each split into `BUCKETS` by the first two labels of a namespace:

- `items`: one record per item, found by id or by prefix; its value is JSON text in the metadata. Chroma
  wants a vector for every record: here it is the same single number for all.
- `vectors`: one record per embedded text, with its vector and a fingerprint of the value it was made from,
  so that a vector of a value that has changed since (a writer was killed in between, another process is
  writing) is not used.

A search ranks all vectors below its prefix; where no other process can write, those of the last searches stay in
memory. Chroma's approximate index misses one neighbour in six where texts repeat ("yes", "thanks"); figures are in
`docs/decisions.md`.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from chromadb.api import ClientAPI
from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchOp,
    TTLConfig,
)

from langchain_ctxbudget.errors import EmbeddingMismatchError, StoreDataError, StoreError
from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.stores.chroma_clients import Server
from langchain_ctxbudget.stores.chroma_engine import (
    BUCKETS,
    LAYOUT,
    Engine,
    in_memory,
    of_client,
    of_folder,
    of_server,
    release,
    typed_errors,
)
from langchain_ctxbudget.stores.chroma_purge import purge
from langchain_ctxbudget.stores.chroma_reads import namespaces, nearest, recent
from langchain_ctxbudget.stores.chroma_writes import put, refresh, sweep_all
from langchain_ctxbudget.stores.dense import DenseIndex, Embedded, identity
from langchain_ctxbudget.stores.matching import bucket_of, buckets_below, item_id, to_microseconds
from langchain_ctxbudget.stores.operations import Plan, Record, plan
from langchain_ctxbudget.stores.ttl import DEFAULT_MINUTES, Sweeper


class ChromaStore(BaseStore):
    """A LangGraph store over Chroma: in memory, in a folder of one process, or on a server of many.

    Behaves as LangGraph's SQL stores: without a query the most recently updated items come first, and a
    store without an index ignores a query (no item has a score then). Values are JSON, read back equal
    (tuples as lists). The score of a search is the exact cosine similarity of an item's best text.

    With `ttl`, items end some minutes after they were last put or read; an item whose time is over is not
    returned any more, and a sweep deletes it (`sweep_ttl`, or `start_ttl_sweeper` for a thread that does).

    On a server, the `a` methods use Chroma's own async client, one for each event loop. Its connections are
    closed with the loop (`asyncio.run` does), or before by `async with` or `aclose`. Processes may write to
    one server at the same time: the last write of an item counts, and for a moment a search may miss an item
    that is being replaced. Opening a store asks the server once, and blocks for it.

    Chroma Cloud is a server too: `ChromaStore(url="https://api.trychroma.com", headers={"x-chroma-token": key},
    tenant=..., database=...)`. Reads and writes keep to its 300 records at once. Its other default quotas (in 2026
    an id of 128 bytes: namespace and key as JSON; a value of 4,096 bytes) can be raised on request, so its own answer
    decides: what goes over one is a `StoreError` that says so, and other items of the same batch may be written. The
    cloud cannot be reached by the tests of this package: they run on a server of one machine.

    Example:
        >>> with ChromaStore() as store:
        ...     store.put(("users", "ada"), "home", {"city": "Paris"})
        ...     store.get(("users", "ada"), "home").value
        {'city': 'Paris'}
    """

    supports_ttl = True

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        url: str | None = None,
        headers: Mapping[str, str] | None = None,
        tenant: str = "default_tenant",
        database: str = "default_database",
        client: ClientAPI | None = None,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Open a store.

        Args:
            path: the folder; made where it is missing. Without `path`, `url` and `client`, a private store in memory.
            url: a Chroma server, such as `http://localhost:8000` (`chroma run --path FOLDER` starts one).
            headers: sent with every request to the server, for instance a token.
            tenant: whose database on the server it is.
            database: the database on the server.
            client: an open Chroma client to use instead; the caller closes it.
            index: `dims`, `embed` and `fields`, as in LangGraph's stores; without it, no dense search.
            ttl: `default_ttl` (minutes), `refresh_on_read` and `sweep_interval_minutes`, as in LangGraph's stores.
            clock: gives the time of reads and writes, with its time zone.

        Raises:
            StoreError: the server cannot be reached, or does not know the tenant or the database.
            StoreLockedError: the folder is open in another process.
            StoreReadOnlyError: the folder cannot be written.
            StoreDataError: the folder holds something that this version cannot read.
            EmbeddingMismatchError: the store was written with other embeddings.
        """
        if sum(each is not None for each in (path, url, client)) > 1:
            raise StoreError("A store has a path, a url or a client. Give one of them.")
        if "://" in str(path):
            raise StoreError(f"{str(path)!r} is a URL, not a folder. Pass it as `url`.")
        self.index_config = index
        self.ttl_config = ttl
        self._index = DenseIndex.from_config(index) if index else None
        self.embeddings = self._index.embeddings if self._index else None
        self._clock = clock
        if path is not None:
            self._chroma = of_folder(Path(path).expanduser().resolve())
        elif url is not None:
            self._chroma = of_server(Server(url, headers or {}, tenant, database))
        else:
            self._chroma = of_client(client) if client else in_memory()
        self._sweeper = Sweeper(self.sweep_ttl)
        self._finalizer = weakref.finalize(self, _end, self._sweeper, self._chroma)
        try:
            with self._chroma.lock, typed_errors(self._chroma.where):
                self._record_embeddings()
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        index = f", index={identity(self.embeddings)!r}" if self.embeddings else ""
        return f"ChromaStore({self._chroma.where!r}{index}{'' if self._finalizer.alive else ', closed'})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def close(self) -> None:
        """Stop the sweeper and release the folder, the memory or the connections; closing twice does nothing."""
        # On a server it may wait for a task of the event loop that runs here: it ends by itself.
        self._sweeper.stop(0 if self._chroma.server else None)
        with self._chroma.lock:
            self._finalizer()

    async def aclose(self) -> None:
        """Do what `close` does, and wait for the connections of this event loop to end."""
        if self._chroma.server:
            await self._chroma.server.aclose()
        await asyncio.to_thread(self.close)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations: reads see the store as it was before, the last put of a key counts.

        Raises:
            InputError: an operation that makes no sense; nothing is written.
            StoreError: the store cannot be read or written.
            BlockedLoopError: on a server, where a task of the running event loop is writing; await `abatch` instead.
        """
        batch = plan(ops, self._index.fields if self._index else None)
        return self._chroma.run(self._batch(batch, self._index.embed(batch) if self._index else Embedded({}, {})))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations as `batch` does: on a server awaiting it, else in a worker thread."""
        batch = plan(ops, self._index.fields if self._index else None)
        embedded = await self._index.aembed(batch) if self._index else Embedded({}, {})
        return await self._chroma.arun(self._batch(batch, embedded))

    def sweep_ttl(self) -> int:
        """Delete the items whose time is over; returns how many."""
        return self._chroma.run(self._sweep())

    async def asweep_ttl(self) -> int:
        """Delete the items whose time is over; returns how many."""
        return await self._chroma.arun(self._sweep())

    def purge(self, namespace_prefix: tuple[str, ...] = ()) -> None:
        """Have Chroma let go of what was deleted below a prefix: its log, and in a folder free pages of its database.

        On a server the pages stay until somebody runs `chroma vacuum --path FOLDER --force` there. Vectors of deleted
        items stay in the files of Chroma's index, where nothing reads them any more.
        """
        self._chroma.run(self._purge(namespace_prefix))

    async def apurge(self, namespace_prefix: tuple[str, ...] = ()) -> None:
        """Have Chroma let go of what was deleted below a prefix; see `purge`."""
        await self._chroma.arun(self._purge(namespace_prefix))

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> Future[None]:
        """Delete expired items from time to time in a thread; without a `ttl` configuration, do nothing.

        Args:
            sweep_interval_minutes: minutes between two sweeps; `None` takes the configuration's, else 5.

        Returns:
            A future whose cancelling ends the thread. Closing the store, or forgetting it, ends it too.
        """
        self._require_open()
        if not self.ttl_config:
            nothing: Future[None] = Future()
            nothing.set_result(None)
            return nothing
        configured = self.ttl_config.get("sweep_interval_minutes")
        return self._sweeper.start(float(sweep_interval_minutes or configured or DEFAULT_MINUTES))

    def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """Stop the sweeper; whether it has ended within the timeout (seconds, `None` waits)."""
        return self._sweeper.stop(timeout)

    def _require_open(self) -> None:
        if not self._finalizer.alive:
            raise StoreError("The store is closed. Open a new one.")

    def _now(self) -> int:
        return to_microseconds(self._clock())

    def _record_embeddings(self) -> None:
        """Write down with which embeddings the store is written, or compare."""
        about = self._chroma.client.get_or_create_collection(
            "ctxbudget-store", metadata={"layout": LAYOUT}, embedding_function=None
        )
        known = dict(about.metadata or {})
        self._dims = int(known.get("dims", 0)) or (self._index.dims if self._index else None)
        where = self._chroma.where
        if known.get("layout") != LAYOUT:
            raise StoreDataError(
                f"The store {where} has layout {known.get('layout')}; this version reads layout {LAYOUT}. "
                "Update langchain-ctxbudget."
            )
        if self._index is None:
            return
        mine = {"embedding": identity(self._index.embeddings), "dims": self._index.dims}
        theirs = {name: known[name] for name in mine if name in known}
        if not theirs:
            about.modify(metadata=known | mine)
        elif theirs != mine:
            raise EmbeddingMismatchError(
                f"The store {where} was written with {theirs['embedding']} ({theirs['dims']} dimensions), "
                f"but is opened with {mine['embedding']} ({mine['dims']} dimensions). Open it with the embeddings "
                "it was written with, or put the items into a new store."
            )

    def _batch(self, batch: Plan, embedded: Embedded) -> Flow[list[Result]]:
        """Read, write, and put off the end of what was read."""
        self._require_open()
        touched: list[str] = []
        results = yield from self._chroma.alone(_both_kinds(batch, embedded), self._steps(batch, embedded, touched))
        yield from refresh(self._chroma, touched, self._now())
        return results

    def _steps(self, batch: Plan, embedded: Embedded, touched: list[str]) -> Flow[list[Result]]:
        chroma, now = self._chroma, self._now()
        gets = (item_id(op.namespace, op.key) for op in batch.ops if isinstance(op, GetOp))
        found = yield from chroma.read(gets)
        results: list[Result] = []
        read: list[Record] = []
        for op in batch.ops:
            if isinstance(op, GetOp):
                record = found.get(item_id(op.namespace, op.key))
                living = [record] if record and record.lives(now) else []
                results.append(living[0].item() if living else None)
                read += living if op.refresh_ttl else []
            elif isinstance(op, SearchOp):
                query = embedded.queries.get(op.query or "")
                hits = yield from (recent(chroma, op, now) if query is None else nearest(chroma, op, query, now))
                results.append([record.search_item(score) for record, score in hits])
                read += [record for record, _ in hits] if op.refresh_ttl else []
            elif isinstance(op, ListNamespacesOp):
                results.append((yield from namespaces(chroma, op, now)))
            else:
                results.append(None)
        if batch.puts:
            yield from chroma.whole(lambda: put(chroma, batch.puts, embedded.documents, now))
        touched += [record.id for record in read if record.ttl is not None]
        return results

    def _purge(self, prefix: tuple[str, ...]) -> Flow[None]:
        self._require_open()
        yield from purge(self._chroma, prefix, self._dims)

    def _sweep(self) -> Flow[int]:
        self._require_open()
        return (yield from sweep_all(self._chroma, self._now()))


def _both_kinds(batch: Plan, embedded: Embedded) -> Iterable[int]:
    """The buckets of which a batch reads or writes items together with vectors."""
    for op in batch.ops:
        if isinstance(op, PutOp):
            yield bucket_of(op.namespace, BUCKETS)
        elif isinstance(op, SearchOp) and op.query in embedded.queries:
            yield from buckets_below(op.namespace_prefix, BUCKETS)


def _end(sweeper: Sweeper, chroma: Engine) -> None:
    sweeper.tell()
    release(chroma)
