"""An open Chroma: its collections, asked and written in portions; its folder; its errors as ours."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import numpy as np
from chromadb.api import ClientAPI, ServerAPI
from chromadb.api.client import Client
from chromadb.api.collection_configuration import CreateCollectionConfiguration
from chromadb.api.models.Collection import Collection
from chromadb.config import Settings, System
from chromadb.errors import NotFoundError
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from langchain_ctxbudget.background import keep_for_ever
from langchain_ctxbudget.errors import CtxBudgetError, StoreDataError, StoreError, StoreLockedError, StoreReadOnlyError
from langchain_ctxbudget.stores.operations import (
    AFTER_FORK,
    DATABASE_FILE,
    Namespace,
    StoredItem,
    fingerprint,
    id_prefix,
    parse_item_id,
    prefix_fields,
)

Kind = Literal["items", "vectors"]
Row = tuple[str, Any, dict[str, Any]]
"""An id, a vector and metadata."""
Stamped = tuple[int, NDArray[np.float32]]
"""The fingerprint of a value, and a vector of it."""

BUCKETS = 16
"""Collections of each kind: one takes 2.6 MB of memory, and the fuller it is the longer a scan."""
READ_SIZE, CLOUD_SIZE = 2_000, 300
"""Records per request: SQLite takes 32,766 variables in a statement, Chroma Cloud 300 records."""
WRITE_CHARACTERS = 5_000_000
"""Text per write; a server refuses requests of more than 40 MB, and JSON can make six bytes of one character."""
CLOUD_HOST, CLOUD_CONNECTIONS = ".trychroma.com", 10
TIMEOUT = (10.0, 120.0, 120.0, None)
"""Seconds to connect, to read, to write, to wait for a free connection; Chroma itself would wait for ever."""
KNOWN_VECTORS = 50_000
"""Vectors that stay in memory after searches, where no other process can write."""
LEAST_BYTES = 1_000_000
"""With less than this left on its disk, Chroma fails in ways that do not tell why."""

# The smallest graph that Chroma builds, because nothing searches it: ef 400 and M 32 make writes 7 times as
# slow. Every write reads the log since the last sync, so Chroma's 1,000 between two of them is too many.
_CONFIGURATION: CreateCollectionConfiguration = {
    "hnsw": {"space": "l2", "max_neighbors": 2, "ef_construction": 2, "sync_threshold": 100}
}


def bucket_of(namespace: Namespace) -> int:
    """Returns the bucket of a namespace, chosen by its first two labels: the package's are its root and the user."""
    return fingerprint(namespace[:2]) % BUCKETS


def buckets_below(prefix: Namespace) -> Sequence[int]:
    """Returns the buckets that can hold namespaces below a prefix."""
    return (bucket_of(prefix),) if len(prefix) > 1 else range(BUCKETS)


def by_bucket(ids: Iterable[str]) -> dict[int, list[str]]:
    """Groups item ids by the number of their bucket, each once."""
    groups: dict[int, list[str]] = defaultdict(list)
    for id_ in dict.fromkeys(ids):
        groups[bucket_of(parse_item_id(id_)[0])].append(id_)
    return groups


class Buckets:
    """The collections of an open Chroma, which the stores of one process over one folder share.

    A Chroma in this process does one thing at a time. On a server reads run side by side, and whoever writes to a
    bucket, or reads both of its collections, has it to itself among the threads of this process.
    """

    def __init__(
        self,
        client: ClientAPI,
        where: str,
        close: Callable[[], object],
        *,
        on_server: bool = False,
        is_cloud: bool = False,
        is_private: bool = False,
    ) -> None:
        """Takes an open client; where nobody else can write to it (`is_private`), vectors may stay in memory."""
        self.client, self.where, self.close, self.on_server = client, where, close, on_server
        self.process, self.stores = os.getpid(), 1
        self._size = CLOUD_SIZE if is_cloud else READ_SIZE
        self._locks = [threading.RLock() for _ in range(BUCKETS if on_server else 1)]
        self._collections: dict[str, Collection] = {}
        self._known: dict[Namespace, dict[str, Stamped]] | None = {} if is_private else None
        """The vectors below the prefixes that were searched, in step with every write."""

    @contextmanager
    def alone(self, numbers: Iterable[int] = range(BUCKETS)) -> Iterator[None]:
        """Keeps other threads of this process from some buckets; always in one order, so that none waits for ever."""
        with ExitStack() as stack:
            for number in sorted(set(numbers)) if self.on_server else [0]:
                stack.enter_context(self._locks[number])
            yield

    def _collection(self, kind: Kind, number: int, *, make: bool = False) -> Collection | None:
        """Returns a collection, or `None` where nothing was ever written to it."""
        name = f"ctxbudget-{kind}-{number:02}"
        if name not in self._collections:
            try:
                self._collections[name] = self.client.get_collection(name, embedding_function=None)
            except NotFoundError:
                if not make:
                    return None
                self._collections[name] = self.client.create_collection(
                    name, configuration=_CONFIGURATION, embedding_function=None, get_or_create=True
                )
        return self._collections[name]

    def _get(self, kind: Kind, number: int, **arguments: Any) -> Mapping[str, Any]:  # noqa: ANN401 - Chroma's
        with typed_errors(self.where):
            collection = self._collection(kind, number)
            found: Mapping[str, Any] = {"ids": [], "metadatas": [], "embeddings": []}
            return collection.get(**arguments) if collection else found

    def items(self, number: int, **arguments: Any) -> list[StoredItem]:  # noqa: ANN401 - Chroma's
        """Returns items of a bucket, by the arguments of Chroma's `get`."""
        found = self._get("items", number, include=["metadatas"], **arguments)
        return [StoredItem.from_fields(*pair) for pair in zip(found["ids"], found["metadatas"], strict=True)]

    def read(self, ids: Iterable[str]) -> dict[str, StoredItem]:
        """Returns the items with these ids, wherever they are."""
        pages = [(number, some) for number, group in by_bucket(ids).items() for some in self._pages(group)]
        return {item.id: item for number, some in pages for item in self.items(number, ids=some)}

    def ids(self, number: int, where: Mapping[str, Any] | None, kind: Kind = "items") -> list[str]:
        """Returns the ids in a bucket that pass a filter; Chroma Cloud gives them by pages."""
        limit = CLOUD_SIZE if self._size == CLOUD_SIZE else None
        ids: list[str] = []
        while True:
            some = self._get(kind, number, where=where, include=[], limit=limit, offset=len(ids))["ids"]
            ids += some
            if limit is None or len(some) < limit:
                return ids

    def _below(self, kind: Kind, prefix: Namespace, include: str) -> Iterator[tuple[str, Any, Any]]:
        """Yields the id, the metadata and what else is included of every record below a prefix."""
        where, start = filter_below(prefix), id_prefix(prefix)  # fingerprints may collide
        fields = ["metadatas", include]
        for number in buckets_below(prefix):
            pages = [self._get(kind, number, where=where, include=fields, limit=self._size)] if self.on_server else []
            if not pages or len(pages[0]["ids"]) == self._size:  # over HTTP a request costs more than a second read
                ids = self._pages(self.ids(number, where, kind))
                pages = [self._get(kind, number, ids=some, include=fields) for some in ids]
            for found in pages:
                rows = zip(found["ids"], found["metadatas"], found[include], strict=True)
                yield from (row for row in rows if row[0].startswith(start))

    def items_below(self, prefix: Namespace) -> list[StoredItem]:
        """Returns all items below a prefix, in no order."""
        return [StoredItem.from_fields(id_, fields) for id_, fields, _ in self._below("items", prefix, "metadatas")]

    def vectors_below(self, prefix: Namespace) -> dict[str, Stamped]:
        """Returns all vectors below a prefix, by id."""
        if self._known is not None and prefix in self._known:
            return self._known[prefix]
        rows = self._below("vectors", prefix, "embeddings")
        vectors: dict[str, Stamped] = {id_: (fields["of"], np.asarray(it, np.float32)) for id_, fields, it in rows}
        if self._known is not None and len(vectors) <= KNOWN_VECTORS:
            if sum(map(len, self._known.values())) + len(vectors) > KNOWN_VECTORS:
                self._known.clear()
            self._known[prefix] = vectors
        return vectors

    def write(self, kind: Kind, number: int, rows: Sequence[Row]) -> None:
        """Puts rows into a bucket, over those with the same ids."""
        for some in self._portions(rows):
            ids, embeddings, metadatas = map(list, zip(*some, strict=True))
            with self._changing(kind, number) as collection:
                collection.upsert(ids=ids, embeddings=embeddings, metadatas=metadatas)
                for id_, vector, fields in some if kind == "vectors" else ():
                    self._follow(id_, (fields["of"], np.asarray(vector, np.float32)))

    def update(self, number: int, fields: Mapping[str, Mapping[str, Any]]) -> None:
        """Sets some fields of items that exist, by id."""
        for ids in self._pages(list(fields)):
            with self._changing("items", number) as collection:
                collection.update(ids=ids, metadatas=[dict(fields[id_]) for id_ in ids])

    def delete(self, kind: Kind, number: int, ids: Sequence[str], where: Mapping[str, Any] | None = None) -> None:
        """Deletes the records with these ids, where they exist and pass the filter."""
        for some in self._pages(ids):
            with self._changing(kind, number) as collection:
                collection.delete(ids=some, where=where)
                for id_ in some if kind == "vectors" else ():
                    self._follow(id_, None)

    def delete_vectors(self, number: int, items: Iterable[StoredItem], kept: Mapping[str, int]) -> None:
        """Deletes the vectors of items, but for the first so many of some."""
        ids = [f"{item.id}#{n}" for item in items for n in range(kept.get(item.id, 0), item.vectors)]
        self.delete("vectors", number, ids)

    @contextmanager
    def _changing(self, kind: Kind, number: int) -> Iterator[Any]:
        """Gives a collection to write to; after a failure nobody knows how far it came, and no vector is known."""
        try:
            with typed_errors(self.where):
                yield self._collection(kind, number, make=True)
        except BaseException:
            if self._known and kind == "vectors":
                self._known.clear()
            raise

    def _follow(self, id_: str, vector: Stamped | None) -> None:
        """Puts a vector that was written among the known ones, or takes one out that was deleted."""
        if not self._known:
            return
        namespace, _ = parse_item_id(id_.rpartition("#")[0])
        for length in range(len(namespace) + 1):
            if (vectors := self._known.get(namespace[:length])) is not None:
                vectors.pop(id_, None)
                if vector:
                    vectors[id_] = vector

    def _pages(self, ids: Sequence[str]) -> Iterator[list[str]]:
        return (list(ids[first : first + self._size]) for first in range(0, len(ids), self._size))

    def _portions(self, rows: Sequence[Row]) -> Iterator[list[Row]]:
        """Splits rows into portions of a number and of a length that a server takes."""
        portion: list[Row] = []
        length = 0
        for row in rows:
            own = len(str(row[2].get("value", ""))) + 24 * len(row[1])  # the most that a number takes as JSON
            if portion and (len(portion) == self._size or length + own > WRITE_CHARACTERS):
                yield portion
                portion, length = [], 0
            portion.append(row)
            length += own
        if portion:
            yield portion


def filter_below(prefix: Namespace) -> dict[str, int] | None:
    """Filters by the fingerprint of a prefix, the longest that is indexed; `None` for all items."""
    return dict([prefix_fields(prefix).popitem()]) if prefix else None


def filter_expired(now: int) -> dict[str, Any]:
    """Filters items whose time is over.

    Only an item with a `ttl` has an end: a reader of another process, which has put off the end of a value that was
    replaced in between, must not give one to its successor.
    """
    return {"$and": [{"ttl": {"$gte": 0}}, {"expires": {"$lte": now}}]}


# Opening and closing.


class _Client(Client):
    """A client with a Chroma of its own; Chroma's share one in a process, and ask a server three times to open."""

    def __init__(self, settings: Settings, tenant: str, database: str) -> None:
        self.own_system = System(settings)
        self.own_system.start()
        self._server = self.own_system.instance(ServerAPI)  # type: ignore[type-abstract]
        self.tenant, self.database = tenant, database


_folders: dict[tuple[int, Path], Buckets] = {}
"""The folders that are open, by process: stores of one process share them."""
_folders_lock = threading.RLock()  # a garbage collection inside the lock may release another store
_started_in: set[int] = set()
"""The process in which Chroma's engine was started."""


def in_memory() -> Buckets:
    """Opens a new Chroma in memory."""
    client = _start(None)
    return Buckets(client, "in memory", client.own_system.stop, is_private=True)


def of_client(client: ClientAPI) -> Buckets:
    """Takes a client of the caller's, who closes it."""
    return Buckets(client, repr(client), lambda: None)


def of_folder(folder: Path) -> Buckets:
    """Opens a folder, or returns it where this process has it open."""
    with _folders_lock:
        key = (os.getpid(), folder)
        if key in _folders:
            _folders[key].stores += 1
            return _folders[key]
        lock = _locked(folder)
        try:
            with typed_errors(str(folder)):
                client = _start(folder)
        except BaseException:
            lock.release()
            raise

        def close() -> None:
            del _folders[key]
            client.own_system.stop()
            lock.release()

        _folders[key] = Buckets(client, str(folder), close, is_private=True)
        return _folders[key]


def of_server(url: str, headers: Mapping[str, str], tenant: str, database: str) -> Buckets:
    """Connects to a Chroma server."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise StoreError(f"{url!r} is no URL of a Chroma server. Give one like 'http://localhost:8000'.")
    is_cloud = parts.hostname.endswith(CLOUD_HOST)
    settings = Settings(
        anonymized_telemetry=False,
        chroma_api_impl="chromadb.api.fastapi.FastAPI",
        chroma_server_host=url,
        chroma_server_http_port=8000,  # asked for, and not used where the host is a URL
        chroma_server_headers=dict(headers),
        chroma_http_max_connections=CLOUD_CONNECTIONS if is_cloud else None,
    )
    client = _Client(settings, tenant, database)
    session = client._server._session  # type: ignore[attr-defined]  # noqa: SLF001 - it has no time limit
    session.timeout = TIMEOUT
    where = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return Buckets(client, where, session.close, on_server=True, is_cloud=is_cloud)


def release(opened: Buckets) -> None:
    """Lets go of what a store has open; the last store of a folder closes it, but not in the child of a fork."""
    if opened.process != os.getpid():
        keep_for_ever(opened)
        return
    with _folders_lock:
        opened.stores -= 1
        if not opened.stores:
            opened.close()


def _start(folder: Path | None) -> _Client:
    """Starts Chroma in this process: over a folder, or in memory."""
    if _started_in - {os.getpid()}:
        raise StoreError(f"Chroma was in use in this process before it was forked, and cannot run here. {AFTER_FORK}")
    _started_in.add(os.getpid())
    settings = Settings(
        anonymized_telemetry=False, is_persistent=folder is not None, persist_directory=str(folder or "")
    )
    return _Client(settings, Client.tenant, Client.database)


def _locked(folder: Path) -> FileLock:
    """Makes a folder where it is missing, checks it, and keeps other processes out until the lock is released."""
    if folder.exists() and not folder.is_dir():
        raise StoreError(f"{folder} is a file; a store needs a folder. Give another path.")
    database = folder / DATABASE_FILE
    # Threads share the lock, and the garbage collector may release it from any of them.
    lock = FileLock(folder / "ctxbudget.lock", timeout=0, thread_local=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in (folder, database):  # root, too, is to respect write protection
            if path.exists() and not (path.stat().st_mode & 0o222 and os.access(path, os.W_OK)):
                raise PermissionError(None, f"{path.name} is read-only")
        lock.acquire()
    except Timeout:
        raise StoreLockedError(
            f"The store in {folder} is open in another process. Close it there first, or let both "
            f"processes use one Chroma server (`chroma run --path {folder}`)."
        ) from None
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise _full(str(folder), str(error.strerror)) from error
        raise StoreReadOnlyError(
            f"The store in {folder} cannot be written ({error.strerror or error}). "
            "Make the folder writable, or give another path."
        ) from error
    try:
        if database.exists():  # a damaged file has no list of tables; what a killed process left half done is undone
            with closing(sqlite3.connect(f"{database.as_uri()}?mode=rw", uri=True)) as connection:
                connection.execute("SELECT name FROM sqlite_master").fetchall()
    except sqlite3.DatabaseError as error:
        lock.release()
        raise StoreDataError(
            f"{database} is not a database that can be read ({error}). Nothing was changed: restore it from a "
            "copy, or move the folder away to start a new store."
        ) from error
    return lock


# Errors.

_FULL = ("disk is full", "No space left on device", "os error 28")
_DAMAGED = (StoreDataError, "is damaged: {0}. Nothing was deleted: restore it from a copy.")
_READ_ONLY = (StoreReadOnlyError, "cannot be written: {0}.")
_ADVICE: Mapping[str, tuple[type[StoreError], str]] = {
    "malformed": _DAMAGED,
    "not a database": _DAMAGED,
    "readonly": _READ_ONLY,
    "read-only": _READ_ONLY,
    "too large": (StoreError, "refused a write as too large; a server takes 40 MB at once. Store smaller values."),
    "uota ": (StoreError, "has a quota that is exceeded: {0}. Store less in an item, or ask for a higher quota."),
}
"""Signs in a message of Chroma's, and what to say of the store then."""


@contextmanager
def typed_errors(where: str) -> Iterator[None]:
    """Raises Chroma's errors as ours."""
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
    on_disk = Path(where).is_dir()  # a server's disk is not here
    if any(sign in text for sign in _FULL) or (on_disk and shutil.disk_usage(where).free < LEAST_BYTES):
        return _full(where, text)
    for sign, (kind, advice) in _ADVICE.items():
        if sign in text:
            return kind(f"The store {where} {advice.format(text)}")
    return StoreError(f"Chroma failed on the store {where}: {text}")


def _full(where: str, problem: str) -> StoreError:
    return StoreError(
        f"The disk of the store {where} is full ({problem}). Free some space and write again: what was written before "
        "is kept, what has failed is not."
    )
