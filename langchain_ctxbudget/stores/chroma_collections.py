"""An open Chroma: where it runs, and its items, which are read and written in portions.

An item is one record: its value is JSON text in the metadata, and so are its vectors, in base64, so that no writer that
is killed leaves one without the other. Chroma wants a vector of its own, which is a single number and never searched.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from base64 import b64decode
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast
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
from langchain_ctxbudget.errors import CtxBudgetError, StoreDataError, StoreError, StoreLockedError
from langchain_ctxbudget.stores.bulk import AFTER_FORK, DATABASE_FILE, Namespace

Vectors = NDArray[np.float32]
"""The vectors of an item, one after the other."""

BUCKETS = 16
"""Collections: one takes 2.6 MB of memory, and the fuller it is the longer a scan."""
READ_SIZE = 2_000
"""Ids per request: SQLite takes 32,766 variables in a statement."""
WRITE_CHARACTERS = 5_000_000
"""Text per write; a server refuses requests of more than 40 MB, and JSON can make six bytes of one character."""
INDEXED_DEPTH = 8
"""Prefixes of a namespace that are indexed; deeper ones are told apart by reading the ids."""
TIMEOUT = (10.0, 120.0, 120.0, None)
"""Seconds to connect, to read, to write, to wait for a free connection; Chroma itself would wait for ever."""
KNOWN_VECTORS = 50_000
"""Items whose vectors stay in memory after searches, where no other process can write."""
RECENT_ITEMS, RECENT_CHARACTERS = 1_000, 10_000
"""Items that stay in memory after they were read or written, where no other process can write, and their size."""

# The smallest graph that Chroma builds, because nothing searches it: ef 400 and M 32 make writes 7 times as
# slow. Every write reads the log since the last sync, so Chroma's 1,000 between two of them is too many.
_CONFIGURATION: CreateCollectionConfiguration = {
    "hnsw": {"space": "l2", "max_neighbors": 2, "ef_construction": 2, "sync_threshold": 100}
}


# Ids and items.


def item_id(namespace: Namespace, key: str) -> str:
    r"""Returns the id of an item: its labels and key as a JSON list in ASCII, so that no two items share one.

    >>> item_id(("users", "ada"), "naïve")
    '["users", "ada", "na\\u00efve"]'
    """
    return json.dumps([*namespace, key])


def parse_item_id(text: str) -> tuple[Namespace, str]:
    """Returns the namespace and the key of an id."""
    *namespace, key = json.loads(text)
    return tuple(namespace), key


def _fingerprint(namespace: Namespace) -> int:
    """Returns a signed 64-bit hash of a namespace that is the same in every process."""
    digest = blake2b(json.dumps(namespace).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _prefix_fields(namespace: Namespace) -> dict[str, int]:
    """Returns the fingerprints of a namespace's prefixes, which find an item by any of them."""
    return {f"p{length}": _fingerprint(namespace[:length]) for length in range(1, len(namespace[:INDEXED_DEPTH]) + 1)}


def _bucket_of(namespace: Namespace) -> int:
    """Returns the bucket of a namespace, chosen by its first two labels: the package's are its root and the user."""
    return _fingerprint(namespace[:2]) % BUCKETS


def _requests(ids: Iterable[str], size: Callable[[str], int] = lambda _: 0) -> Iterator[tuple[int, list[str]]]:
    """Splits item ids, each once, into requests to a bucket of a number and a size that a server takes."""
    groups: dict[int, list[str]] = defaultdict(list)
    sizes = Counter[int]()
    for id_ in dict.fromkeys(ids):
        number, own = _bucket_of(parse_item_id(id_)[0]), size(id_)
        if groups[number] and (len(groups[number]) == READ_SIZE or sizes[number] + own > WRITE_CHARACTERS):
            yield number, groups.pop(number)
            del sizes[number]
        groups[number].append(id_)
        sizes[number] += own
    yield from groups.items()


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An item as it is stored; times are in microseconds since 1970, `ttl` in minutes."""

    id: str
    value: str
    """JSON text."""
    created: int
    updated: int
    vectors: str | None = None
    """In base64, of 32-bit numbers."""
    ttl: float | None = None
    """How long it lives after it was last put or read; `None` for ever."""
    expires: int | None = None
    """When it ends; of no meaning without `ttl`."""

    @property
    def flat_vectors(self) -> Vectors:
        """Returns its vectors, one after the other."""
        return np.frombuffer(b64decode(self.vectors or ""), np.dtype("<f4"))

    def lives(self, now: int) -> bool:
        """Returns whether its time is not over yet."""
        return self.ttl is None or self.expires is None or self.expires > now


# Reading and writing.


class OpenChroma:
    """The collections of an open Chroma, which the stores of one process over one folder share.

    A Chroma in this process does one thing at a time, under `lock`; a server does many.
    """

    def __init__(
        self,
        client: ClientAPI,
        where: str,
        close: Callable[[], object],
        *,
        on_server: bool = False,
        is_private: bool = False,
    ) -> None:
        """Takes an open client; where nobody else can write to it (`is_private`), vectors may stay in memory."""
        self.client, self.where, self.close, self.on_server = client, where, close, on_server
        self.process, self.stores = os.getpid(), 1
        self.lock: AbstractContextManager[object] = nullcontext() if on_server else threading.RLock()
        self._is_private = is_private
        self._collections: dict[str, Collection] = {}
        self._known: dict[Namespace, dict[str, Vectors]] = {}
        """The vectors below the prefixes that were searched, in step with every write."""
        self._recent: dict[str, StoredItem] = {}
        """Items by id, in step with every write: what every turn reads, as the heads of a log, is asked for once."""

    def _collection(self, number: int, *, make: bool = False) -> Collection | None:
        """Returns a collection, or `None` where nothing was ever written to it."""
        name = f"ctxbudget-items-{number:02}"
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

    def _for_writing(self, number: int) -> Collection:
        return cast("Collection", self._collection(number, make=True))

    def _get(self, number: int, **arguments: Any) -> Iterator[StoredItem]:  # noqa: ANN401 - Chroma's
        if collection := self._collection(number):
            found = collection.get(include=["metadatas"], **arguments)
            for id_, fields in zip(found["ids"], found["metadatas"] or [], strict=True):
                known: dict[str, Any] = {name: it for name, it in fields.items() if name in StoredItem.__slots__}
                yield StoredItem(id_, **known)

    def _ids(self, number: int, where: dict[str, Any] | None) -> list[str]:
        collection = self._collection(number)
        return collection.get(where=where, include=[])["ids"] if collection else []

    def read(self, ids: Iterable[str]) -> dict[str, StoredItem]:
        """Returns the items with these ids, wherever they are."""
        wanted = dict.fromkeys(ids)
        found = {id_: self._recent[id_] for id_ in wanted if id_ in self._recent}
        for number, some in _requests(id_ for id_ in wanted if id_ not in found):
            read = {item.id: item for item in self._get(number, ids=some)}
            self._remember(read)
            found |= read
        return found

    def _remember(self, items: Mapping[str, StoredItem]) -> None:
        if self._is_private and len(items) <= RECENT_ITEMS // 10:
            self._recent |= {id_: item for id_, item in items.items() if len(item.value) < RECENT_CHARACTERS}
            for id_ in list(self._recent)[: max(0, len(self._recent) - RECENT_ITEMS)]:
                del self._recent[id_]

    def items_below(self, prefix: Namespace) -> Iterator[StoredItem]:
        """Yields every item below a prefix, in no order."""
        start, where = _id_prefix(prefix), _below(prefix)  # fingerprints may collide
        for number in _buckets_below(prefix):
            found = list(self._get(number, where=where, limit=READ_SIZE))
            if len(found) == READ_SIZE:
                read = {item.id for item in found}
                found += self.read(id_ for id_ in self._ids(number, where) if id_ not in read).values()
            yield from (item for item in found if item.id.startswith(start))

    def namespaces_below(self, prefix: Namespace, now: int) -> set[Namespace]:
        """Returns the namespaces below a prefix in which something lives, read from the ids alone."""
        start, found = _id_prefix(prefix), set[Namespace]()
        for number in _buckets_below(prefix):
            ids = self._ids(number, _below(prefix))
            ended = set(self._ids(number, _ended(now)) if ids else ())
            found |= {parse_item_id(id_)[0] for id_ in ids if id_.startswith(start) and id_ not in ended}
        return found

    def vectors_below(self, prefix: Namespace) -> tuple[Mapping[str, Vectors], dict[str, StoredItem]]:
        """Returns all vectors below a prefix, by item, and the items where they had to be read."""
        if prefix in self._known:
            return self._known[prefix], {}
        items = {item.id: item for item in self.items_below(prefix) if item.vectors}
        vectors = {id_: item.flat_vectors for id_, item in items.items()}
        if self._is_private and len(vectors) <= KNOWN_VECTORS:
            if sum(map(len, self._known.values())) + len(vectors) > KNOWN_VECTORS:
                self._known.clear()
            self._known[prefix] = vectors
        return vectors, items

    def write(self, items: Mapping[str, StoredItem | None]) -> None:
        """Writes items by id, over those that there are; `None` deletes one."""
        new = {id_: item for id_, item in items.items() if item}
        for id_ in items:
            self._recent.pop(id_, None)
        try:
            for number, some in _requests(id_ for id_ in items if id_ not in new):
                self._for_writing(number).delete(ids=some)
            for number, some in _requests(new, lambda id_: len(new[id_].value) + len(new[id_].vectors or "")):
                metadatas: list[Any] = [_fields(new[id_]) for id_ in some]
                vectors = np.ones((len(some), 1), np.float32)
                self._for_writing(number).upsert(ids=some, embeddings=vectors, metadatas=metadatas)
        except BaseException:  # nobody knows how far it came
            self._known.clear()
            raise
        self._remember(new)
        for id_, item in items.items() if self._known else ():
            namespace, _ = parse_item_id(id_)
            for length in range(len(namespace) + 1):
                if (known := self._known.get(namespace[:length])) is not None:
                    known.pop(id_, None)
                    if item and item.vectors:
                        known[id_] = item.flat_vectors

    def put_off(self, ends: Mapping[str, int]) -> None:
        """Sets when items end, by id."""
        for number, some in _requests(ends):
            for id_ in some:
                self._recent.pop(id_, None)
            self._for_writing(number).update(ids=some, metadatas=[{"expires": ends[id_]} for id_ in some])

    def delete_ended(self, now: int) -> int:
        """Deletes the items whose time is over; returns how many. One that is renewed at this moment stays."""
        ended = [id_ for number in range(BUCKETS) for id_ in self._ids(number, _ended(now))]
        for number, some in _requests(ended):
            self._for_writing(number).delete(ids=some, where=_ended(now))
        self._known.clear()
        self._recent.clear()
        return len(ended)


def _fields(item: StoredItem) -> dict[str, Any]:
    """Returns an item as flat metadata; `None` removes a field that is there."""
    fields = {name: getattr(item, name) for name in item.__slots__ if name != "id"}
    return fields | _prefix_fields(parse_item_id(item.id)[0])


def _id_prefix(prefix: Namespace) -> str:
    """Returns the beginning of every id below a prefix."""
    return json.dumps(prefix)[:-1] + ", " if prefix else "["


def _buckets_below(prefix: Namespace) -> Sequence[int]:
    return (_bucket_of(prefix),) if len(prefix) > 1 else range(BUCKETS)


def _below(prefix: Namespace) -> dict[str, Any] | None:
    """Filters by the fingerprint of a prefix, the longest that is indexed; `None` for all items."""
    return dict([_prefix_fields(prefix).popitem()]) if prefix else None


def _ended(now: int) -> dict[str, Any]:
    """Filters items whose time is over.

    Only an item with a `ttl` has an end: a reader of another process, which has put off the end of a value that was
    replaced in between, must not give one to its successor.
    """
    return {"$and": [{"ttl": {"$gte": 0}}, {"expires": {"$lte": now}}]}


# Opening and closing.


class _Client(Client):
    """A client with a Chroma of its own; Chroma's share one in a process, and ask a server three times to open."""

    def __init__(self, settings: Settings, tenant: str = "default_tenant", database: str = "default_database") -> None:
        self.own_system = System(settings)
        self.own_system.start()
        self._server = self.own_system.instance(ServerAPI)  # type: ignore[type-abstract]
        self.tenant, self.database = tenant, database


_folders: dict[tuple[int, Path], OpenChroma] = {}
"""The folders that are open, by process."""
_folders_lock = threading.RLock()  # a garbage collection inside the lock may release another store
_started_in: set[int] = set()
"""The process in which Chroma's engine was started."""


def in_memory() -> OpenChroma:
    """Opens a new Chroma in memory."""
    client = _start(None)
    return OpenChroma(client, "in memory", client.own_system.stop, is_private=True)


def of_client(client: ClientAPI) -> OpenChroma:
    """Takes a client of the caller's, who closes it."""
    return OpenChroma(client, repr(client), lambda: None)


def of_folder(folder: Path) -> OpenChroma:
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

        _folders[key] = OpenChroma(client, str(folder), close, is_private=True)
        return _folders[key]


def of_server(url: str, headers: Mapping[str, str], tenant: str, database: str) -> OpenChroma:
    """Connects to a Chroma server."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise StoreError(f"{url!r} is no URL of a Chroma server. Give one like 'http://localhost:8000'.")
    settings = Settings(
        anonymized_telemetry=False,
        chroma_api_impl="chromadb.api.fastapi.FastAPI",
        chroma_server_host=url,
        chroma_server_http_port=8000,  # asked for, and not used where the host is a URL
        chroma_server_headers=dict(headers),
    )
    client = _Client(settings, tenant, database)
    session = client._server._session  # type: ignore[attr-defined]  # noqa: SLF001 - it has no time limit
    session.timeout = TIMEOUT
    where = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return OpenChroma(client, where, session.close, on_server=True)


def release(opened: OpenChroma) -> None:
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
    return _Client(
        Settings(anonymized_telemetry=False, is_persistent=folder is not None, persist_directory=str(folder or ""))
    )


def _locked(folder: Path) -> FileLock:
    """Makes a folder where it is missing, and keeps other processes out until the lock is released.

    SQLite keeps a write-ahead log, where the file system lets it: a write takes 4 ms instead of 30. That is set before
    Chroma opens the file, because below its connections it would break them (chroma-core/chroma#7040).
    """
    database = folder / DATABASE_FILE
    # Threads share the lock, and the garbage collector may release it from any of them.
    lock = FileLock(folder / "ctxbudget.lock", timeout=0, thread_local=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("SELECT name FROM sqlite_master").fetchall()  # a damaged file has no list of tables
            connection.execute("PRAGMA journal_mode=WAL")
    except Timeout:
        raise StoreLockedError(
            f"The store in {folder} is open in another process. Close it there first, or let both "
            f"processes use one Chroma server (`chroma run --path {folder}`)."
        ) from None
    except OSError as error:
        raise StoreError(f"The folder {folder} cannot be opened and written: {error}") from error
    except sqlite3.DatabaseError as error:
        lock.release()
        raise StoreDataError(f"{database} cannot be read ({error}). Nothing was changed.") from error
    return lock


@contextmanager
def typed_errors(where: str) -> Iterator[None]:
    """Raises Chroma's errors as ours."""
    try:
        yield
    except BaseException as error:  # the engine panics on some damage, and a panic is no Exception
        panic = type(error).__name__ == "PanicException"
        if isinstance(error, CtxBudgetError) or not (isinstance(error, Exception) or panic):
            raise
        if type(error).__module__.partition(".")[0] == "httpx":
            raise StoreError(
                f"The Chroma server {where} cannot be reached, or does not answer ({type(error).__name__}: {error}). "
                "Check the URL, or start a server: `chroma run --path FOLDER`."
            ) from error
        damaged = any(sign in str(error) for sign in ("malformed", "not a database"))
        raise (StoreDataError if damaged else StoreError)(f"Chroma failed on the store {where}: {error}") from error
