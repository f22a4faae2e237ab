"""A LangGraph store over Chroma.

Two kinds of collections, each split into `BUCKETS` by the first two labels of a namespace:

- `items`: one record per item, found by id or by prefix; its value is JSON text in the metadata. Chroma
  wants a vector for every record: here it is the same single number for all.
- `vectors`: one record per embedded text, with its vector and a fingerprint of the value it was made from,
  so that a vector of a value that has changed since (a writer was killed in between) is not used.

A search reads the vectors below its prefix and ranks all of them. Chroma's approximate index misses one
neighbour in six where texts repeat ("yes", "thanks"); figures are in `docs/decisions.md`.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self, cast

import numpy as np
from chromadb.api import ClientAPI
from chromadb.api.types import Include
from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    ListNamespacesOp,
    Op,
    Result,
    SearchItem,
    SearchOp,
)

from langchain_ctxbudget.errors import EmbeddingMismatchError, StoreDataError, StoreError
from langchain_ctxbudget.stores.chroma_engine import (
    BUCKETS,
    LAYOUT,
    READ_SIZE,
    Engine,
    Row,
    open_engine,
    release,
    typed_errors,
)
from langchain_ctxbudget.stores.dense import DenseIndex, Embedded, Vector, identity
from langchain_ctxbudget.stores.matching import (
    Namespace,
    bucket_of,
    fingerprint,
    item_id,
    matches,
    parse_item_id,
    prefix_fields,
    to_microseconds,
)
from langchain_ctxbudget.stores.operations import Plan, Put, Record, fixed_prefix, list_namespaces, page, plan


class ChromaStore(BaseStore):
    """A LangGraph store over Chroma: in memory, or in a folder of one process.

    Behaves as LangGraph's SQL stores: without a query the most recently updated items come first, and a
    store without an index ignores a query (no item has a score then). Values are JSON, read back equal
    (tuples as lists). The score of a search is the exact cosine similarity of an item's best text.

    Example:
        >>> with ChromaStore() as store:
        ...     store.put(("users", "ada"), "home", {"city": "Paris"})
        ...     store.get(("users", "ada"), "home").value
        {'city': 'Paris'}
    """

    supports_ttl = False

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        index: IndexConfig | None = None,
        client: ClientAPI | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Open a store.

        Args:
            path: the folder; made where it is missing. Without it (and a client), a private store in memory.
            index: `dims`, `embed` and `fields`, as in LangGraph's stores; without it, no dense search.
            client: an open Chroma client to use instead; the caller closes it.
            clock: gives the time of writes, with its time zone.

        Raises:
            StoreLockedError: the folder is open in another process.
            StoreReadOnlyError: the folder cannot be written.
            StoreDataError: the folder holds something that this version cannot read.
            EmbeddingMismatchError: the store was written with other embeddings.
        """
        if path is not None and client is not None:
            raise StoreError("A store has a path or a client, not both. Leave one out.")
        self.index_config = index
        self._index = DenseIndex.from_config(index) if index else None
        self.embeddings = self._index.embeddings if self._index else None
        self._clock = clock
        self._where = repr(client) if client else "in memory"
        if path is not None:
            folder = Path(path).expanduser().resolve()
            self._where = str(folder)
            self._chroma = open_engine(folder)
        else:
            self._chroma = Engine(client, lambda: None, stores=1) if client else open_engine(None)
        self._finalizer = weakref.finalize(self, release, self._chroma)
        try:
            with self._using():
                self._record_embeddings()
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        index = f", index={identity(self.embeddings)!r}" if self.embeddings else ""
        return f"ChromaStore({self._where!r}{index}{'' if self._finalizer.alive else ', closed'})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the folder or the memory; closing twice does nothing."""
        with self._chroma.lock:
            self._finalizer()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations: reads see the store as it was before, the last put of a key counts."""
        batch = plan(ops, self._index.fields if self._index else None)
        return self._run(batch, self._index.embed(batch) if self._index else Embedded({}, {}))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations as `batch` does, in a worker thread."""
        batch = plan(ops, self._index.fields if self._index else None)
        embedded = await self._index.aembed(batch) if self._index else Embedded({}, {})
        return await asyncio.to_thread(self._run, batch, embedded)

    @contextmanager
    def _using(self) -> Iterator[None]:
        with self._chroma.lock, typed_errors(self._where):
            if not self._finalizer.alive:
                raise StoreError("The store is closed. Open a new one.")
            yield

    def _record_embeddings(self) -> None:
        """Write down with which embeddings the store is written, or compare."""
        about = self._chroma.client.get_or_create_collection(
            "ctxbudget-store", metadata={"layout": LAYOUT}, embedding_function=None
        )
        known = dict(about.metadata or {})
        if known.get("layout") != LAYOUT:
            raise StoreDataError(
                f"The store {self._where} has layout {known.get('layout')}; this version reads layout {LAYOUT}. "
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
                f"The store {self._where} was written with {theirs['embedding']} ({theirs['dims']} dimensions), "
                f"but is opened with {mine['embedding']} ({mine['dims']} dimensions). Open it with the embeddings "
                "it was written with, or put the items into a new store."
            )

    def _run(self, batch: Plan, embedded: Embedded) -> list[Result]:
        with self._using():
            gets = (item_id(op.namespace, op.key) for op in batch.ops if isinstance(op, GetOp))
            found = self._chroma.read(gets)
            results: list[Result] = []
            for op in batch.ops:
                if isinstance(op, GetOp):
                    record = found.get(item_id(op.namespace, op.key))
                    results.append(record.item() if record else None)
                elif isinstance(op, SearchOp):
                    query = embedded.queries.get(op.query or "")
                    results.append(self._recent(op) if query is None else self._nearest(op, query))
                elif isinstance(op, ListNamespacesOp):
                    results.append(self._namespaces(op))
                else:
                    results.append(None)
            if batch.puts:
                self._write(batch.puts, embedded.documents)
        return results

    def _namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        prefix = fixed_prefix(op.match_conditions or ())
        ids = (id_ for _, some in self._chroma.below("items", prefix) for id_ in some)
        return list_namespaces(op, {parse_item_id(id_)[0] for id_ in ids})

    def _recent(self, op: SearchOp) -> list[SearchItem]:
        """Items below a prefix, most recently updated first, then by id."""
        below = self._chroma.below("items", op.namespace_prefix)
        records = [record for bucket, ids in below for record in self._chroma.records(bucket, ids)]
        if op.filter:
            records = [record for record in records if matches(record.value(), op.filter)]
        records.sort(key=lambda record: (-record.updated, record.id))
        return [record.search_item() for record in page(records, op.limit, op.offset)]

    def _nearest(self, op: SearchOp, query: Vector) -> list[SearchItem]:
        """Items below a prefix that have vectors, most similar first, then by id."""
        hits: list[tuple[float, str, int]] = []
        include: Include = ["embeddings", "metadatas"]
        for bucket, ids in self._chroma.below("vectors", op.namespace_prefix):
            found = bucket.get(ids=ids, include=include)
            # Rounded, because the last bits depend on how many vectors are multiplied at once.
            scores = np.clip(np.round(np.asarray(found["embeddings"], dtype=np.float64) @ query, 9), -1, 1)
            owners = (id_.rpartition("#")[0] for id_ in found["ids"])
            versions = (int(cast("int", fields["of"])) for fields in found["metadatas"] or [])
            hits += zip((-scores).tolist(), owners, versions, strict=True)
        hits.sort()
        wanted = max(op.offset, 0) + max(op.limit, 0)
        step = min(wanted + 50, READ_SIZE)
        best: dict[str, SearchItem] = {}
        for first in range(0, len(hits), step):
            if len(best) >= wanted:
                break
            some = hits[first : first + step]
            records = self._chroma.read(owner for _, owner, _ in some)
            for negative, owner, version in some:
                record = records.get(owner)
                if record is None or owner in best or version != fingerprint(record.text):
                    continue
                if op.filter is None or matches(record.value(), op.filter):
                    best[owner] = record.search_item(-negative)
        return page(list(best.values()), op.limit, op.offset)

    def _write(self, puts: Mapping[str, Put], vectors: Mapping[str, Vector]) -> None:
        old = self._chroma.read(puts)
        now = to_microseconds(self._clock())
        groups: dict[int, dict[str, Put]] = defaultdict(dict)
        for id_, put in puts.items():
            groups[bucket_of(put.namespace, BUCKETS)][id_] = put
        for number, group in groups.items():
            # An item says how many vectors it has, and is written before and deleted after them: whenever
            # a writer is killed, no vector is left that no item knows of.
            known = {id_: old[id_] for id_ in group if id_ in old}
            stale = [
                f"{id_}#{n}" for id_, record in known.items() for n in range(len(group[id_].to_embed), record.vectors)
            ]
            self._chroma.delete("vectors", number, stale)
            self._chroma.delete("items", number, [id_ for id_ in known if group[id_].text is None])
            items: list[Row] = []
            dense: list[Row] = []
            for id_, put in group.items():
                if put.text is None:
                    continue
                created = known[id_].created if id_ in known else now
                record = Record(id_, put.text, created, now, len(put.to_embed))
                below = prefix_fields(put.namespace)
                items.append((id_, [1.0], {**record.fields(), **below}))
                fields = {"of": fingerprint(put.text), **below}
                dense += ((f"{id_}#{n}", vectors[text], fields) for n, text in enumerate(put.to_embed))
            self._chroma.write("items", number, items)
            self._chroma.write("vectors", number, dense)
