"""An open Chroma: its collections, its folder, its errors. With `chroma`, the only module that imports `chromadb`."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from chromadb.api import ClientAPI, ServerAPI
from chromadb.api.client import Client
from chromadb.api.collection_configuration import CreateCollectionConfiguration
from chromadb.api.models.Collection import Collection
from chromadb.config import Settings, System
from chromadb.errors import ChromaError, NotFoundError

from langchain_ctxbudget.errors import StoreDataError, StoreError, StoreReadOnlyError
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

BUCKETS = 16
"""Collections of each kind: one takes 2.6 MB of memory, and the fuller it is the longer a scan."""

LAYOUT = 1
"""How records are laid out; recorded in every store, to be refused by versions that do not know it."""

READ_SIZE = 2_000
"""Records per read; SQLite refuses statements with more than 32,766 variables."""

Kind = Literal["items", "vectors"]
Row = tuple[str, Any, dict[str, Any]]

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
class Engine:
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

    def write(self, kind: Kind, number: int, rows: Sequence[Row]) -> None:
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


_folders: dict[Path, Engine] = {}
_folders_lock = threading.RLock()  # a garbage collection inside the lock may release another store


def _start(folder: Path | None) -> tuple[_PrivateClient, System]:
    settings = Settings(
        anonymized_telemetry=False, is_persistent=folder is not None, persist_directory=str(folder or "")
    )
    system = System(settings)
    system.start()
    return _PrivateClient(system), system


def open_engine(folder: Path | None) -> Engine:
    """The Chroma of a folder, shared by the stores of this process, or a new one in memory."""
    if folder is None:
        client, system = _start(None)
        return Engine(client, system.stop, stores=1)
    with _folders_lock:
        if folder not in _folders:
            lock = lock_folder(folder)
            try:
                with typed_errors(str(folder)):
                    client, system = _start(folder)
            except BaseException:
                lock.release()
                raise

            def stop() -> None:
                del _folders[folder]
                system.stop()
                lock.release()

            _folders[folder] = Engine(client, stop)
        _folders[folder].stores += 1
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
        if not isinstance(error, ChromaError) and type(error).__name__ != "PanicException":
            raise
        text = str(error)
        if "malformed" in text or "not a database" in text:
            message = f"The store {where} is damaged: {text}. Nothing was deleted: restore it from a copy."
            raise StoreDataError(message) from error
        if "readonly" in text or "read-only" in text:
            raise StoreReadOnlyError(f"The store {where} cannot be written: {text}.") from error
        raise StoreError(f"Chroma failed on the store {where}: {text}") from error
