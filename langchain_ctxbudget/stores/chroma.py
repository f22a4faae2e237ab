"""A LangGraph store over Chroma. The only module that imports `chromadb`.

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
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, cast

import numpy as np
from chromadb.api import ClientAPI, ServerAPI
from chromadb.api.client import Client
from chromadb.api.collection_configuration import CreateCollectionConfiguration
from chromadb.api.models.Collection import Collection
from chromadb.api.types import Include
from chromadb.config import Settings, System
from chromadb.errors import ChromaError, NotFoundError
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

from langchain_ctxbudget.errors import (
    EmbeddingMismatchError,
    StoreDataError,
    StoreError,
    StoreReadOnlyError,
)
from langchain_ctxbudget.stores.dense import DenseIndex, Embedded, Vector, identity
from langchain_ctxbudget.stores.folder import lock_folder
from langchain_ctxbudget.stores.matching import (
    Namespace,
    bucket_of,
    buckets_below,
    fingerprint,
    id_prefix,
    item_id,
    matches,
    parse_item_id,
    prefix_fields,
    prefix_query,
    to_microseconds,
)
from langchain_ctxbudget.stores.operations import Plan, Put, Record, fixed_prefix, list_namespaces, page, plan

BUCKETS = 16
"""Collections of each kind: one takes 2.6 MB of memory, and the fuller it is the longer a scan."""

LAYOUT = 1
"""How records are laid out; recorded in every store, to be refused by versions that do not know it."""

READ_SIZE = 2_000
"""Records per read; SQLite refuses statements with more than 32,766 variables."""

Kind = Literal["items", "vectors"]
_Row = tuple[str, Any, dict[str, Any]]

# The smallest graph that Chroma builds, because nothing searches it: ef 400 and M 32 make writes 7 times as
# slow. Every write reads the log since the last sync, so Chroma's 1,000 between two of them is too many.
_CONFIGURATION: CreateCollectionConfiguration = {
    "hnsw": {"space": "l2", "max_neighbors": 2, "ef_construction": 2, "sync_threshold": 100}
}


class _PrivateClient(Client):
    """A client with a Chroma of its own; `chromadb.EphemeralClient` shares one with the whole process."""

    def __init__(self, system: System) -> None:
        self._server = system.instance(ServerAPI)  # type: ignore[type-abstract]


@dataclass(slots=True)
class _Chroma:
    """An open Chroma, and what the stores over it share."""

    client: ClientAPI
    stop: Callable[[], object]
    stores: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)
    collections: dict[str, Collection] = field(default_factory=dict)

    def bucket(self, kind: Kind, number: int) -> Collection | None:
        """One collection, or `None` if nothing was ever written to it."""
        name = f"ctxbudget-{kind}-{number:02}"
        if name not in self.collections:
            try:
                self.collections[name] = self.client.get_collection(name, embedding_function=None)
            except NotFoundError:
                return None
        return self.collections[name]

    def write(self, kind: Kind, number: int, rows: Sequence[_Row]) -> None:
        """Put rows of id, vector and metadata into one collection, over those with the same ids."""
        size = min(READ_SIZE, self.client.get_max_batch_size())
        for first in range(0, len(rows), size):
            ids, embeddings, metadatas = zip(*rows[first : first + size], strict=True)
            bucket = self.bucket(kind, number) or self.client.create_collection(
                f"ctxbudget-{kind}-{number:02}",
                configuration=_CONFIGURATION,
                embedding_function=None,
                get_or_create=True,
            )
            bucket.upsert(ids=list(ids), embeddings=list(embeddings), metadatas=list(metadatas))

    def delete(self, kind: Kind, number: int, ids: Sequence[str]) -> None:
        """Delete the records with these ids, where they exist."""
        if bucket := self.bucket(kind, number):
            for first in range(0, len(ids), READ_SIZE):
                bucket.delete(ids=list(ids[first : first + READ_SIZE]))

    def below(self, kind: Kind, prefix: Namespace) -> Iterator[tuple[Collection, list[str]]]:
        """The ids of all records below a prefix, some at a time, with their collection."""
        start = id_prefix(prefix)
        for number in buckets_below(prefix, BUCKETS):
            if bucket := self.bucket(kind, number):
                found = bucket.get(where=cast("Any", prefix_query(prefix)), include=[])["ids"]
                ids = [id_ for id_ in found if id_.startswith(start)]
                for first in range(0, len(ids), READ_SIZE):
                    yield bucket, ids[first : first + READ_SIZE]

    def records(self, bucket: Collection, ids: list[str]) -> Iterator[Record]:
        """The records with these ids, in no order, without those that do not exist."""
        for first in range(0, len(ids), READ_SIZE):
            found = bucket.get(ids=ids[first : first + READ_SIZE], include=["metadatas"])
            for id_, fields in zip(found["ids"], found["metadatas"] or [], strict=True):
                yield Record.from_fields(id_, fields)

    def read(self, ids: Iterable[str]) -> dict[str, Record]:
        """The records with these ids, wherever they are."""
        groups = defaultdict(list)
        for id_ in dict.fromkeys(ids):
            groups[bucket_of(parse_item_id(id_)[0], BUCKETS)].append(id_)
        buckets = ((self.bucket("items", number), group) for number, group in groups.items())
        return {record.id: record for b, group in buckets if b for record in self.records(b, group)}


_folders: dict[Path, _Chroma] = {}
_folders_lock = threading.RLock()  # a garbage collection inside the lock may release another store


def _start(folder: Path | None) -> tuple[_PrivateClient, System]:
    settings = Settings(
        anonymized_telemetry=False, is_persistent=folder is not None, persist_directory=str(folder or "")
    )
    system = System(settings)
    system.start()
    return _PrivateClient(system), system


def _open(folder: Path | None) -> _Chroma:
    """The Chroma of a folder, shared by the stores of this process, or a new one in memory."""
    if folder is None:
        client, system = _start(None)
        return _Chroma(client, system.stop, stores=1)
    with _folders_lock:
        if folder not in _folders:
            lock = lock_folder(folder)
            try:
                with _typed_errors(str(folder)):
                    client, system = _start(folder)
            except BaseException:
                lock.release()
                raise

            def stop() -> None:
                del _folders[folder]
                system.stop()
                lock.release()

            _folders[folder] = _Chroma(client, stop)
        _folders[folder].stores += 1
        return _folders[folder]


def _release(chroma: _Chroma) -> None:
    with _folders_lock:
        chroma.stores -= 1
        if not chroma.stores:
            chroma.stop()


@contextmanager
def _typed_errors(where: str) -> Iterator[None]:
    """Chroma's errors as ours."""
    try:
        yield
    except BaseException as error:  # the engine panics on some damage, and a panic is no Exception
        if not isinstance(error, ChromaError) and type(error).__name__ != "PanicException":
            raise
        text = str(error)
        if "malformed" in text or "not a database" in text:
            message = f"The store {where} is damaged: {text}. Nothing was deleted: restore it from a copy."
            raise StoreDataError(message) from error
        if "readonly" in text or "read-only" in text:
            raise StoreReadOnlyError(f"The store {where} cannot be written: {text}.") from error
        raise StoreError(f"Chroma failed on the store {where}: {text}") from error


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
            self._chroma = _open(folder)
        else:
            self._chroma = _Chroma(client, lambda: None, stores=1) if client else _open(None)
        self._finalizer = weakref.finalize(self, _release, self._chroma)
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
        with self._chroma.lock, _typed_errors(self._where):
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
            items: list[_Row] = []
            dense: list[_Row] = []
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
