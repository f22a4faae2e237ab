"""A LangGraph store over Chroma.

Items and vectors are apart, each in 16 collections by the first two labels of a namespace (`docs/decisions.md` has the
figures). An item is one record with its value as JSON text in the metadata; Chroma wants a vector of it, which is a
single number. A vector is a record per embedded text, with a fingerprint of the value that it was made from: after a
killed writer, or while another process writes, vectors of a value that has changed are not used.

A search ranks all vectors below its prefix, exactly: Chroma's index misses one neighbour in six where texts repeat.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np
from chromadb.api import ClientAPI
from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    ListNamespacesOp,
    Op,
    Result,
    SearchOp,
    TTLConfig,
    ensure_embeddings,
)
from numpy.typing import NDArray

from langchain_ctxbudget.errors import EmbeddingMismatchError, StoreDataError, StoreError, StoreLockedError
from langchain_ctxbudget.flow import Flow, adrive, drive, embed, embed_query
from langchain_ctxbudget.stores import buckets
from langchain_ctxbudget.stores.buckets import (
    BUCKETS,
    READ_SIZE,
    Buckets,
    Row,
    bucket_of,
    buckets_below,
    by_bucket,
    filter_expired,
)
from langchain_ctxbudget.stores.clock import Clock, utc_now, with_offset
from langchain_ctxbudget.stores.operations import (
    AFTER_FORK,
    Namespace,
    Put,
    StoredItem,
    checked_puts,
    embeddings_name,
    expiry,
    fingerprint,
    fixed_prefix,
    id_prefix,
    item_id,
    list_namespaces,
    page,
    parse_item_id,
    prefix_fields,
    to_microseconds,
)

Vectors = Mapping[str, NDArray[np.float64]]
"""Vectors of length 1, by text."""
Hit = tuple[StoredItem, float | None]
"""An item that was found, and its similarity."""

LAYOUT = 1
"""How records are laid out; a version that does not know it refuses the store."""
SWEEP_SIZE = 100
"""Expired items that are read at once."""


class ChromaStore(BaseStore):
    """A LangGraph store over Chroma: in memory, in a folder of one process, or on a server of many.

    Behaves as LangGraph's SQL stores: without a query the most recently updated items come first, and a
    store without an index ignores a query (no item has a score then). Values are JSON, read back equal
    (tuples as lists). The score of a search is the exact cosine similarity of an item's best text.

    With `ttl`, items end some minutes after they were last put or read; an item whose time is over is not
    returned any more, and `sweep_ttl` deletes it.

    The `a` methods work in a thread; opening, closing and sweeping block. Processes may write to one server at the
    same time: the last write of an item counts, and for a moment a search may miss an item that is being replaced.

    Chroma Cloud is a server too: `ChromaStore(url="https://api.trychroma.com", headers={"x-chroma-token": key},
    tenant=..., database=...)`. Requests keep to its 300 records; what goes over another of its quotas (ids, values)
    is a `StoreError` that says so.

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
        clock: Clock = utc_now,
    ) -> None:
        """Opens a store.

        Args:
            path: the folder; made where it is missing. Without `path`, `url` and `client`, a private store in memory.
            url: a Chroma server, such as `http://localhost:8000` (`chroma run --path FOLDER` starts one).
            headers: sent with every request to the server, for instance a token.
            tenant: the tenant of the database on the server.
            database: the database on the server.
            client: an open Chroma client to use instead; the caller closes it.
            index: `dims`, `embed` and `fields`, as in LangGraph's stores; without it, no dense search.
            ttl: `default_ttl` (minutes) and `refresh_on_read`, as in LangGraph's stores.
            clock: gives the time of reads and writes, in UTC where it names no offset.

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
        self.index_config, self.ttl_config = index, ttl
        self.embeddings = ensure_embeddings(index["embed"]) if index else None
        self._fields = (index.get("fields") or ["$"]) if index else None
        self._dims = index["dims"] if index else 0
        self._clock = with_offset(clock)
        if path is not None:
            self._open: Callable[[], Buckets] = partial(buckets.of_folder, Path(path).expanduser().resolve())
        elif url is not None:
            self._open = partial(buckets.of_server, url, headers or {}, tenant, database)
        else:
            self._open = partial(buckets.of_client, client) if client else buckets.in_memory
        self._is_folder = path is not None
        self._buckets = self._open()
        self._finalizer = weakref.finalize(self, buckets.release, self._buckets)
        try:
            with self._buckets.alone(), buckets.typed_errors(self._buckets.where):
                self._record_embeddings(self._buckets)
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        index = f", index={embeddings_name(self.embeddings)!r}" if self.embeddings else ""
        return f"ChromaStore({self._buckets.where!r}{index}{'' if self._finalizer.alive else ', closed'})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Releases the folder, the memory or the connections; closing twice does nothing."""
        if self._buckets.process == os.getpid():
            with self._buckets.alone():
                self._finalizer()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Runs operations: reads see the store as it was before, the last put of a key counts.

        Raises:
            InputError: an operation that makes no sense; nothing is written.
            StoreError: the store cannot be read or written.
        """
        todo = list(ops)
        puts = checked_puts(todo, self._fields)
        return self._run(todo, puts, *drive(self._embed(todo, puts)))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Runs operations as `batch` does, in a worker thread."""
        todo = list(ops)
        puts = checked_puts(todo, self._fields)
        return await asyncio.to_thread(self._run, todo, puts, *(await adrive(self._embed(todo, puts))))

    def sweep_ttl(self) -> int:
        """Deletes the items whose time is over; returns how many. An item that is renewed at this moment stays."""
        opened, where, swept = self._opened(), filter_expired(to_microseconds(self._clock())), 0
        for number in range(BUCKETS):
            with opened.alone([number]):
                while items := opened.items(number, where=where, limit=SWEEP_SIZE):
                    opened.delete_vectors(number, items, {})
                    opened.delete("items", number, [item.id for item in items], where)
                    swept += len(items)
        return swept

    def _opened(self) -> Buckets:
        """Returns what is open in this process; the child of a fork connects to a server anew."""
        opened = self._buckets
        if not self._finalizer.alive:
            raise StoreError("The store is closed. Open a new one.")
        if opened.process == os.getpid():
            return opened
        if not opened.on_server:
            raise (StoreLockedError if self._is_folder else StoreError)(
                f"The store {opened.where} belongs to the parent of this process, which was forked. {AFTER_FORK}"
            )
        self._finalizer()
        self._buckets = self._open()
        self._finalizer = weakref.finalize(self, buckets.release, self._buckets)
        return self._buckets

    def _record_embeddings(self, opened: Buckets) -> None:
        """Writes down with which embeddings the store is written, or compares."""
        about = opened.client.get_or_create_collection(
            "ctxbudget-store", metadata={"layout": LAYOUT}, embedding_function=None
        )
        known = dict(about.metadata or {})
        if known.get("layout") != LAYOUT:
            raise StoreDataError(
                f"The store {opened.where} has layout {known.get('layout')}; this version reads layout {LAYOUT}. "
                "Update langchain-ctxbudget."
            )
        if self.embeddings is None:
            return
        mine = {"embedding": embeddings_name(self.embeddings), "dims": self._dims}
        theirs = {name: known[name] for name in mine if name in known}
        if not theirs:
            about.modify(metadata=known | mine)
        elif theirs != mine:
            raise EmbeddingMismatchError(
                f"The store {opened.where} was written with {theirs['embedding']} ({theirs['dims']} dimensions), "
                f"but is opened with {mine['embedding']} ({mine['dims']} dimensions). Open it with the embeddings "
                "it was written with, or put the items into a new store."
            )

    def _embed(self, ops: Sequence[Op], puts: Mapping[str, Put]) -> Flow[tuple[Vectors, Vectors]]:
        """Makes the vectors of a batch's texts, and of its queries."""
        if self.embeddings is None:
            return {}, {}
        texts = list(dict.fromkeys(text for put in puts.values() for text in put.to_embed))
        queries = list(dict.fromkeys(op.query for op in ops if isinstance(op, SearchOp) and op.query))
        embedded = yield from embed(self.embeddings, texts)
        asked = []
        for query in queries:
            asked.append((yield from embed_query(self.embeddings, query)))  # noqa: PERF401 - a flow
        return self._units(texts, embedded), self._units(queries, asked)

    def _units(self, texts: Sequence[str], embedded: Sequence[Sequence[float]]) -> Vectors:
        lengths = {len(vector) for vector in embedded}
        if lengths - {self._dims}:
            raise EmbeddingMismatchError(
                f"The index has dims={self._dims}, but the embeddings gave vectors of length {sorted(lengths)}. "
                "Set dims to what they give."
            )
        vectors = np.asarray(embedded, dtype=np.float64).reshape(len(texts), self._dims)
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.isfinite(norms).all():
            raise StoreError("The embeddings gave numbers that are not finite.")
        return dict(zip(texts, np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0), strict=True))

    def _run(self, ops: Sequence[Op], puts: Mapping[str, Put], vectors: Vectors, queries: Vectors) -> list[Result]:
        """Reads, writes, and puts off the end of what was read."""
        opened, now = self._opened(), to_microseconds(self._clock())
        used = {bucket_of(put.namespace) for put in puts.values()}
        for op in ops:
            if isinstance(op, SearchOp) and op.query in queries:  # items and vectors are to be of one moment
                used.update(buckets_below(op.namespace_prefix))
        results: list[Result] = []
        read: list[StoredItem] = []
        with opened.alone(used):
            got = opened.read(item_id(op.namespace, op.key) for op in ops if isinstance(op, GetOp))
            for op in ops:
                if isinstance(op, GetOp):
                    item = got.get(item_id(op.namespace, op.key))
                    living = [item] if item and item.lives(now) else []
                    results.append(living[0].item() if living else None)
                    read += living if op.refresh_ttl else []
                elif isinstance(op, SearchOp):
                    query = queries.get(op.query or "")
                    hits = _recent(opened, op, now) if query is None else _nearest(opened, op, query, now)
                    results.append([item.search_item(score) for item, score in hits])
                    read += [item for item, _ in hits] if op.refresh_ttl else []
                else:
                    results.append(_namespaces(opened, op, now) if isinstance(op, ListNamespacesOp) else None)
            _put(opened, puts, vectors, now)
        for number, ids in by_bucket(item.id for item in read if item.ttl is not None).items():
            with opened.alone([number]):  # as they are by now
                items = [item for item in opened.read(ids).values() if item.ttl is not None and item.lives(now)]
                opened.update(number, {item.id: {"expires": expiry(item.ttl, now)} for item in items})
        return results


def _recent(opened: Buckets, op: SearchOp, now: int) -> list[Hit]:
    """Finds items below a prefix, those updated last first, then by id."""
    items = opened.items_below(tuple(op.namespace_prefix))
    found = [item for item in items if item.lives(now) and item.passes(op.filter)]
    found.sort(key=lambda item: (-item.updated, item.id))
    return [(item, None) for item in page(found, op.limit, op.offset)]


def _nearest(opened: Buckets, op: SearchOp, query: NDArray[np.float64], now: int) -> list[Hit]:
    """Finds items below a prefix that have vectors, the most similar first, then by id."""
    vectors = opened.vectors_below(tuple(op.namespace_prefix))
    wanted = max(op.offset, 0) + max(op.limit, 0)
    if not vectors or not wanted:
        return []
    matrix = np.concatenate([vector for _, vector in vectors.values()]).reshape(len(vectors), -1).astype(np.float64)
    # Rounded, because the last bits depend on how many vectors are multiplied at once.
    scores = np.clip(np.round(matrix @ query, 9), -1, 1).tolist()
    owners = ((id_.rpartition("#")[0], version) for id_, (version, _) in vectors.items())
    ranked = sorted((-score, owner, version) for score, (owner, version) in zip(scores, owners, strict=True))
    best: dict[str, Hit] = {}
    step = min(wanted + 50, READ_SIZE)
    for first in range(0, len(ranked), step):
        some = ranked[first : first + step]
        items = opened.read(owner for _, owner, _ in some)
        for negative, owner, version in some:
            item = items.get(owner) if owner not in best else None
            if item and version == fingerprint(item.value) and item.lives(now) and item.passes(op.filter):
                best[owner] = (item, -negative)
        if len(best) >= wanted:
            break
    return page(list(best.values()), op.limit, op.offset)


def _namespaces(opened: Buckets, op: ListNamespacesOp, now: int) -> list[Namespace]:
    """Lists the namespaces that hold something, read from the ids alone."""
    prefix = fixed_prefix(op)
    start, found = id_prefix(prefix), set[Namespace]()
    for number in buckets_below(prefix):
        ids = opened.ids(number, buckets.filter_below(prefix))
        gone = set(opened.ids(number, filter_expired(now)) if ids else ())
        found |= {parse_item_id(id_)[0] for id_ in ids if id_.startswith(start) and id_ not in gone}
    return list_namespaces(op, found)


def _put(opened: Buckets, puts: Mapping[str, Put], vectors: Vectors, now: int) -> None:
    """Writes and deletes items.

    An item says how many vectors it has, and is written before and deleted after them: whenever a writer is
    killed, no vector is left that no item knows of.
    """
    old = opened.read(puts)
    for number, ids in by_bucket(puts).items():
        known = {id_: old[id_] for id_ in ids if id_ in old}
        opened.delete_vectors(number, known.values(), {id_: len(puts[id_].to_embed) for id_ in ids})
        opened.delete("items", number, [id_ for id_ in known if puts[id_].value is None])
        items: list[Row] = []
        dense: list[Row] = []
        for id_ in ids:
            put = puts[id_]
            if put.value is None:
                continue
            # An item that has expired and is still there is a new one.
            created = known[id_].created if id_ in known and known[id_].lives(now) else now
            item = StoredItem(id_, put.value, created, now, len(put.to_embed), put.ttl, expiry(put.ttl, now))
            below = prefix_fields(put.namespace)
            items.append((id_, [1.0], {**item.fields(), **below}))
            fields = {"of": fingerprint(put.value), **below}
            dense += ((f"{id_}#{n}", vectors[text], fields) for n, text in enumerate(put.to_embed))
        opened.write("items", number, items)
        opened.write("vectors", number, dense)
