"""An open Chroma: its collections, its folder, its errors; every piece of I/O as a flow."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from chromadb.api import ClientAPI
from chromadb.api.collection_configuration import CreateCollectionConfiguration
from chromadb.api.models.Collection import Collection
from chromadb.errors import NotFoundError

from langchain_ctxbudget.errors import (
    BlockedLoopError,
    CtxBudgetError,
    StoreDataError,
    StoreError,
    StoreReadOnlyError,
)
from langchain_ctxbudget.flow import Call, Flow, Lock, adrive, drive, locked
from langchain_ctxbudget.stores.chroma_clients import Server, start
from langchain_ctxbudget.stores.folder import lock_folder
from langchain_ctxbudget.stores.matching import (
    Namespace,
    bucket_of,
    buckets_below,
    id_prefix,
    parse_item_id,
    prefix_query,
)
from langchain_ctxbudget.stores.operations import Record
from langchain_ctxbudget.stores.vector_cache import VectorCache

T = TypeVar("T")

BUCKETS = 16
"""Collections of each kind: one takes 2.6 MB of memory, and the fuller it is the longer a scan."""

LAYOUT = 1
"""How records are laid out; recorded in every store, to be refused by versions that do not know it."""

READ_SIZE = 2_000
"""Records per read; SQLite refuses statements with more than 32,766 variables."""

CLOUD_SIZE = 300
"""Records per read and per write that Chroma Cloud allows."""

WRITE_CHARACTERS = 5_000_000
"""Text per write; a server refuses requests of more than 40 MB, and JSON can make six bytes of one character."""

NUMBER_CHARACTERS = 24
"""What a number of a vector takes at most, as JSON text."""

SYNC_THRESHOLD = 100
"""Writes to a collection after which Chroma takes them over from its log."""

Kind = Literal["items", "vectors"]
Row = tuple[str, Any, dict[str, Any]]

# The smallest graph that Chroma builds, because nothing searches it: ef 400 and M 32 make writes 7 times as
# slow. Every write reads the log since the last sync, so Chroma's 1,000 between two of them is too many.
_CONFIGURATION: CreateCollectionConfiguration = {
    "hnsw": {"space": "l2", "max_neighbors": 2, "ef_construction": 2, "sync_threshold": SYNC_THRESHOLD}
}


@dataclass(slots=True)
class Engine:
    """An open Chroma, and what the stores over it share.

    Over a server, flows run side by side, in threads and tasks, and what reads or writes both collections of a
    bucket has it to itself. A Chroma in this process does one flow at a time, always in a thread.
    """

    client: ClientAPI
    where: str
    stop: Callable[[], object]
    server: Server | None = None
    stores: int = 1
    lock: threading.RLock = field(default_factory=threading.RLock)
    locks: Sequence[Lock] = field(default_factory=lambda: [Lock() for _ in range(BUCKETS)])
    collections: dict[str, Collection] = field(default_factory=dict)
    vectors: VectorCache | None = None
    """Only where nobody else can write."""
    folder: Path | None = None
    """Where it is, if it belongs to this process."""

    def run(self, flow: Flow[T]) -> T:
        """Run a flow in this thread.

        Raises:
            BlockedLoopError: a task of this thread's event loop has what the flow needs to itself.
        """
        if not self.server:
            with self.lock:
                return drive(flow)
        try:
            return drive(flow)
        except BlockedLoopError:
            raise BlockedLoopError(
                "A task of this event loop writes to the same part of the store, and a blocking call would stop it "
                "for ever. Await the async method instead, for instance `aput`"
            ) from None

    async def arun(self, flow: Flow[T]) -> T:
        """Run a flow in this task, or for a Chroma in this process in a worker thread."""
        return await (adrive(flow) if self.server else asyncio.to_thread(self.run, flow))

    def alone(self, buckets: Iterable[int], flow: Flow[T]) -> Flow[T]:
        """Run a flow while no other one has these buckets; always in the same order, so that none waits for ever."""
        if self.server:
            for number in sorted(set(buckets), reverse=True):
                flow = locked(self.locks[number], flow)
        return flow

    def whole(self, make: Callable[[], Flow[T]]) -> Flow[T]:
        """A flow of several writes that is waited for to its end, also when its task is cancelled."""
        result: T = yield Call(lambda: drive(make()), lambda: adrive(make()), writes=True)
        return result

    def _find(self, method: Literal["get_collection", "create_collection"], **arguments: Any) -> Flow[Collection]:  # noqa: ANN401 - Chroma's
        server, asked = self.server, {"embedding_function": None, **arguments}
        with typed_errors(self.where):
            found: Collection = yield Call(
                lambda: getattr(self.client, method)(**asked),
                lambda: server.find(method, **asked),  # type: ignore[union-attr]
            )
        self.collections[found.name] = found
        return found

    def _bucket(self, kind: Kind, number: int) -> Flow[Collection | None]:
        """One collection, or `None` if nothing was ever written to it."""
        name = f"ctxbudget-{kind}-{number:02}"
        if name in self.collections:
            return self.collections[name]
        try:
            return (yield from self._find("get_collection", name=name))
        except StoreError as error:
            if isinstance(error.__cause__, NotFoundError):
                return None
            raise

    def exists(self, kind: Kind, number: int) -> Flow[bool]:
        """Whether anything was ever written to a bucket."""
        return (yield from self._bucket(kind, number)) is not None

    def _ask(self, bucket: Collection, method: str, *, writes: bool = False, **arguments: Any) -> Flow[Any]:  # noqa: ANN401
        """Call a method of a collection."""
        server = self.server

        async def asynchronous() -> Any:  # noqa: ANN401
            twin = (await server.here()).twin(bucket)  # type: ignore[union-attr]
            return await getattr(twin, method)(**arguments)

        with typed_errors(self.where):
            return (yield Call(lambda: getattr(bucket, method)(**arguments), asynchronous, writes))

    def _size(self) -> int:
        return CLOUD_SIZE if self.server and self.server.is_cloud else READ_SIZE

    def get(self, kind: Kind, number: int, **arguments: Any) -> Flow[Mapping[str, Any]]:  # noqa: ANN401
        """What Chroma's `get` finds in a bucket."""
        if bucket := (yield from self._bucket(kind, number)):
            found: Mapping[str, Any] = yield from self._ask(bucket, "get", **arguments)
            return found
        return {"ids": [], "metadatas": [], "embeddings": []}

    def ids(self, kind: Kind, number: int, where: Mapping[str, Any] | None) -> Flow[list[str]]:
        """The ids in a bucket that pass a filter; Chroma Cloud gives them by pages."""
        if not (self.server and self.server.is_cloud):
            found = yield from self.get(kind, number, where=where, include=[])
            return list(found["ids"])
        ids: list[str] = []
        while True:
            found = yield from self.get(kind, number, where=where, include=[], limit=CLOUD_SIZE, offset=len(ids))
            ids += found["ids"]
            if len(found["ids"]) < CLOUD_SIZE:
                return ids

    def below(
        self, kind: Kind, prefix: Namespace, include: Sequence[str], use: Callable[[Mapping[str, Any]], object]
    ) -> Flow[None]:
        """Hand over all records below a prefix as Chroma gives them, page by page.

        Where fingerprints collide, records from elsewhere are among them: `id_prefix` tells.
        """
        where, start_of_id, size = prefix_query(prefix), id_prefix(prefix), self._size()
        for number in buckets_below(prefix, BUCKETS):
            if self.server:  # where a request costs more than records read twice
                found = yield from self.get(kind, number, where=where, include=include, limit=size)
                if len(found["ids"]) < size:
                    use(found)
                    continue
            ids = yield from self.ids(kind, number, where)
            ids = [id_ for id_ in ids if id_.startswith(start_of_id)]
            for some in _pages(ids, size):
                use((yield from self.get(kind, number, ids=some, include=include)))

    def read(self, ids: Iterable[str]) -> Flow[dict[str, Record]]:
        """The records with these ids, wherever they are."""
        records = {}
        for number, group in by_bucket(ids).items():
            for some in _pages(group, self._size()):
                found = yield from self.get("items", number, ids=some, include=["metadatas"])
                for id_, fields in zip(found["ids"], found["metadatas"], strict=True):
                    records[id_] = Record.from_fields(id_, fields)
        return records

    def write(self, kind: Kind, number: int, rows: Sequence[Row]) -> Flow[None]:
        """Put rows of id, vector and metadata into one bucket, over those with the same ids."""
        if not rows:
            return
        bucket = (yield from self._bucket(kind, number)) or (
            yield from self._find(
                "create_collection",
                name=f"ctxbudget-{kind}-{number:02}",
                configuration=_CONFIGURATION,
                get_or_create=True,
            )
        )
        for some in _portions(rows, self._size()):
            ids, embeddings, metadatas = map(list, zip(*some, strict=True))
            with self._following(kind) as cache:
                yield from self._ask(bucket, "upsert", writes=True, ids=ids, embeddings=embeddings, metadatas=metadatas)
                if cache:
                    cache.put(ids, embeddings, [fields["of"] for fields in metadatas])

    def update(self, number: int, fields: Mapping[str, Mapping[str, Any]]) -> Flow[None]:
        """Set some fields of items that exist, by id."""
        if bucket := (yield from self._bucket("items", number)):
            for some in _pages(list(fields), self._size()):
                metadatas = [dict(fields[id_]) for id_ in some]
                yield from self._ask(bucket, "update", writes=True, ids=some, metadatas=metadatas)

    def delete(self, kind: Kind, number: int, ids: Sequence[str], where: Mapping[str, Any] | None = None) -> Flow[None]:
        """Delete the records with these ids, where they exist and pass the filter."""
        if ids and (bucket := (yield from self._bucket(kind, number))):
            for some in _pages(ids, self._size()):
                with self._following(kind) as cache:
                    yield from self._ask(bucket, "delete", writes=True, ids=some, where=where)
                    if cache:
                        cache.remove(some)

    @contextmanager
    def _following(self, kind: Kind) -> Iterator[VectorCache | None]:
        """What knows vectors and has to follow a write; after one that failed it knows nothing."""
        cache = self.vectors if kind == "vectors" else None
        try:
            yield cache
        except BaseException:
            if cache:
                cache.clear()
            raise


def by_bucket(ids: Iterable[str]) -> dict[int, list[str]]:
    """Item ids by the number of their bucket, each once."""
    groups: dict[int, list[str]] = defaultdict(list)
    for id_ in dict.fromkeys(ids):
        groups[bucket_of(parse_item_id(id_)[0], BUCKETS)].append(id_)
    return groups


def _pages(ids: Sequence[str], size: int) -> Iterator[list[str]]:
    return (list(ids[first : first + size]) for first in range(0, len(ids), size))


def _portions(rows: Sequence[Row], size: int) -> Iterator[list[Row]]:
    """Rows in portions of a number and of a length that a server takes."""
    portion: list[Row] = []
    length = 0
    for row in rows:
        _, vector, fields = row
        own = len(str(fields.get("value", ""))) + NUMBER_CHARACTERS * len(vector)
        if portion and (len(portion) == size or length + own > WRITE_CHARACTERS):
            yield portion
            portion, length = [], 0
        portion.append(row)
        length += own
    if portion:
        yield portion


_folders: dict[Path, Engine] = {}
_folders_lock = threading.RLock()  # a garbage collection inside the lock may release another store


def in_memory() -> Engine:
    """A new Chroma in memory."""
    client, system = start(None)
    return Engine(client, "in memory", system.stop, vectors=VectorCache())


def of_client(client: ClientAPI) -> Engine:
    """A client of the caller's, who closes it."""
    return Engine(client, repr(client), lambda: None)


def of_server(server: Server) -> Engine:
    """A Chroma server."""
    return Engine(server.client, server.where, server.close, server)


def of_folder(folder: Path) -> Engine:
    """The Chroma of a folder, shared by the stores of this process."""
    with _folders_lock:
        if folder in _folders:
            _folders[folder].stores += 1
            return _folders[folder]
        lock = lock_folder(folder)
        try:
            with typed_errors(str(folder)):
                client, system = start(folder)
        except BaseException:
            lock.release()
            raise

        def stop() -> None:
            del _folders[folder]
            system.stop()
            lock.release()

        _folders[folder] = Engine(client, str(folder), stop, vectors=VectorCache(), folder=folder)
        return _folders[folder]


def release(chroma: Engine) -> None:
    """Let go of an engine; the last store that does stops it."""
    with _folders_lock:
        chroma.stores -= 1
        if not chroma.stores:
            chroma.stop()


@contextmanager
def typed_errors(where: str) -> Iterator[None]:
    """Chroma's errors as ours."""
    try:
        yield
    except BaseException as error:  # the engine panics on some damage, and a panic is no Exception
        panic = type(error).__name__ == "PanicException"
        if isinstance(error, CtxBudgetError) or not (isinstance(error, Exception) or panic):
            raise
        raise _typed(where, error) from error


def _typed(where: str, error: BaseException) -> StoreError:
    text = str(error)
    if type(error).__module__.partition(".")[0] == "httpx":
        return StoreError(
            f"The Chroma server {where} cannot be reached, or does not answer ({type(error).__name__}: {text}). "
            "Check the URL, or start a server: `chroma run --path FOLDER`."
        )
    if "malformed" in text or "not a database" in text:
        return StoreDataError(f"The store {where} is damaged: {text}. Nothing was deleted: restore it from a copy.")
    if "readonly" in text or "read-only" in text:
        return StoreReadOnlyError(f"The store {where} cannot be written: {text}.")
    if "Payload too large" in text:
        return StoreError(
            f"The server {where} refused a write as too large; a Chroma server takes 40 MB at once. "
            "Store smaller values."
        )
    if "quota" in text.lower():
        return StoreError(
            f"A quota of {where} is exceeded: {text}. Store shorter keys and smaller values, ask for a higher "
            "quota, or run a server of your own."
        )
    return StoreError(f"Chroma failed on the store {where}: {text}")
