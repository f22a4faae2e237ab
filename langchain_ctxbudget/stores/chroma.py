"""A LangGraph store over Chroma: in memory, in a folder of one process, or on a server of many.

An item is one record: its value as JSON, its times and its vectors in base64 are one text in the
metadata, so that no writer that is killed leaves one without the other. A search ranks all vectors
below its prefix, exactly: Chroma's index misses one neighbour in six where texts repeat.
`docs/internals/decisions.md` has the figures behind it.
"""

import asyncio
import json
import operator
import os
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar, cast
from urllib.parse import urlsplit

import chromadb_rust_bindings as engine  # type: ignore[import-untyped]
import numpy as np
from cachetools import LRUCache
from chromadb.api import ServerAPI
from chromadb.api.client import Client
from chromadb.api.collection_configuration import CreateCollectionConfiguration
from chromadb.api.models.Collection import Collection
from chromadb.api.rust import RustBindingsAPI
from chromadb.config import Settings, System
from chromadb.errors import NotFoundError
from langgraph.store import base as base_store
from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    Item,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
)
from numpy.typing import NDArray
from overrides import override
from pybase64 import b64decode, b64encode_as_string
from pydantic_core import from_json

from langchain_ctxbudget import errors
from langchain_ctxbudget.stores.base import Clock, utc_now, with_offset
from langchain_ctxbudget.stores.bulk import DATABASE_FILE, Namespace, begins_with, embeddings_name
from langchain_ctxbudget.stores.chroma_files import Folder
from langchain_ctxbudget.tokens import encodable
from langchain_ctxbudget.worker import AFTER_FORK

T = TypeVar("T")
Vectors = NDArray[np.float32]
"""The vectors of an item, each of length 1, one after the other."""
_Put: TypeAlias = tuple[str | None, Sequence[str]]
"""A checked write: the value as JSON text (`None` deletes), and the texts to embed for it."""
BUCKETS = 16
"""Collections, chosen by a namespace's first two labels: one takes 2.6 MB, and the fuller it is the
longer a scan."""
REQUEST_SIZE = 500
"""Items per request: SQLite takes 32,766 variables in a statement, a server 40 MB."""
TIMEOUT = (10.0, 120.0, 120.0, None)
"""Seconds to connect, to read, to write, to wait for a free connection; Chroma itself would wait
for ever."""
KNOWN_ITEMS = 1_024
LARGEST_KNOWN = 16_384
"""Items, and characters of one, that stay in memory once they are read or written, where no other
process writes."""
KNOWN_VECTORS = 50_000
"""Items whose ids and vectors stay in memory after searches, likewise."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

# The smallest graph that Chroma builds, because nothing searches it: ef 400 and M 32 make writes 7
# times as slow. Every write reads the log since the last sync, so Chroma's 1,000 between two of
# them is too many.
_CONFIGURATION: CreateCollectionConfiguration = {
    "hnsw": {"space": "l2", "max_neighbors": 2, "ef_construction": 2, "sync_threshold": 100}
}


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
            path: the folder; made where it is missing. Without `path` and `url`, a private store in memory.
            url: a Chroma server, such as `http://localhost:8000` (`chroma run --path FOLDER` starts one).
            headers: sent with every request to the server, for instance a token.
            tenant: the tenant of the database on the server.
            database: the database on the server.
            index: `dims`, `embed` and `fields`, as in LangGraph's stores; without it, no dense search.
            clock: gives the time of writes, in UTC where it names no offset.

        Raises:
            StoreError: the folder cannot be written (`StoreLockedError`: it is open in another process) or read
                (`StoreDataError`), or the server not reached.
            EmbeddingMismatchError: the store was written with other embeddings.
        """
        if path is not None and url is not None:
            raise errors.StoreError("A store has a path or a url. Give one of them.")
        if "://" in str(path):
            raise errors.StoreError(f"{str(path)!r} is a URL, not a folder. Pass it as `url`.")
        self.index_config = index
        self.embeddings = base_store.ensure_embeddings(index["embed"]) if index else None
        self._fields = (index.get("fields") or ["$"]) if index else []
        self._dims = index["dims"] if index else 0
        self._clock = with_offset(clock)
        if url is not None:
            self._chroma = _open_server(url, headers or {}, tenant, database)
        else:
            self._chroma = _open(None if path is None else Path(path).expanduser().resolve())
        self._finalizer = weakref.finalize(self, self._chroma.release)
        try:
            with self._chroma.lock, _typed_errors(self._chroma.where):
                self._record_embeddings()
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        """Names the folder or the server."""
        if self._chroma.folder is not None:
            return f"ChromaStore({self._chroma.where!r})"
        if self._chroma.disconnect is not None:
            return f"ChromaStore(url={self._chroma.where!r})"
        return "ChromaStore()"

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
            StoreError: there is no room, other code in this process has the database open, or the store is on a server
                (stop it, and open its folder here).
        """
        chroma = self._chroma
        self._require_open()
        if chroma.disconnect:
            raise errors.StoreError(
                f"The files of the Chroma server {chroma.where} are not within reach. Stop it, and open its folder as "
                "`ChromaStore(FOLDER)` to call `vacuum` there."
            )
        with chroma.lock, _typed_errors(chroma.where):
            chroma.vacuum()

    async def avacuum(self) -> None:
        """Rewrites the files of a folder as `vacuum` does, in a worker thread."""
        await asyncio.to_thread(self.vacuum)

    def _require_open(self) -> None:
        if not self._finalizer.alive:
            raise errors.StoreError("The store is closed. Open a new one.")
        chroma = self._chroma
        if chroma.process != os.getpid():
            raise errors.StoreError(
                f"The store {chroma.where} belongs to the parent of this process. {AFTER_FORK}"
            )

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Runs operations: reads see the store as it was before, the last put of a key counts.

        Raises:
            InputError: an operation that makes no sense; nothing is written.
            StoreError: the store cannot be read or written.
        """
        todo = list(ops)
        chroma = self._chroma
        puts = self._checked_puts(todo)
        vectors = self._embedded(text for _, texts in puts.values() for text in texts)
        asked = self._embedded(
            (op.query or "" for op in todo if isinstance(op, SearchOp)), as_queries=True
        )
        self._require_open()
        now = (self._clock() - _EPOCH) // _MICROSECOND
        results = list[Result]()
        with chroma.lock, _typed_errors(chroma.where), chroma.working():
            stored = chroma.read(
                [*(_item_id(op.namespace, op.key) for op in todo if isinstance(op, GetOp)), *puts]
            )
            for op in todo:
                if isinstance(op, GetOp):
                    id_ = _item_id(op.namespace, op.key)
                    results.append(Item(**stored[id_].answer(id_)) if id_ in stored else None)
                elif isinstance(op, SearchOp):
                    results.append(_found(chroma, op, asked.get(op.query or "")))
                else:
                    results.append(
                        _namespaces(chroma, op)
                        if isinstance(op, base_store.ListNamespacesOp)
                        else None
                    )
            new: dict[str, _StoredItem | None] = {}
            for id_, (value, texts) in puts.items():
                flat = b64encode_as_string(
                    b"".join(vectors[text].astype("<f4").tobytes() for text in texts)
                )
                created = stored[id_].created if id_ in stored else now
                new[id_] = None if value is None else _StoredItem(created, now, flat, value)
            chroma.write(new)
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Runs operations as `batch` does, in a worker thread."""
        return await asyncio.to_thread(self.batch, list(ops))

    def _record_embeddings(self) -> None:
        """Writes down with which embeddings the store is written, or compares."""
        about = self._chroma.client.get_or_create_collection(
            "ctxbudget-store", embedding_function=None
        )
        if self.embeddings is None:
            return
        known = dict(about.metadata or {})
        mine = {"embedding": embeddings_name(self.embeddings), "dims": self._dims}
        if not known:
            about.modify(metadata=mine)
        elif known != mine:
            raise errors.EmbeddingMismatchError(
                f"The store {self._chroma.where} was written with {known['embedding']} ({known['dims']} dimensions), "
                f"but is opened with {mine['embedding']} ({mine['dims']} dimensions). Open it with the embeddings "
                "it was written with, or put the items into a new store."
            )

    def _checked_puts(self, ops: Iterable[Op]) -> dict[str, _Put]:
        """Checks a batch and returns its writes by item id; the last put of a key counts."""
        puts: dict[str, _Put] = {}
        for op in ops:
            base_store.validate_op_namespace(op)
            if isinstance(op, PutOp):
                if op.ttl is not None:
                    raise errors.InputError(
                        "Items of a ChromaStore do not end by themselves: put them without `ttl`."
                    )
                puts[_item_id(op.namespace, op.key)] = (
                    (None, []) if op.value is None else self._checked(op, op.value)
                )
        return puts

    def _checked(self, op: PutOp, value: Mapping[str, Any]) -> _Put:
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except (TypeError, ValueError, RecursionError) as error:
            raise errors.InputError(
                f"The value is not JSON: {error}. Store text, numbers, lists or dicts."
            ) from error
        if encodable(text) != text:  # half of a surrogate pair, which only an escape can carry
            text = json.dumps(value, separators=(",", ":"))
        paths = [] if op.index is False or not self._fields else op.index or self._fields
        places = (path if path == "$" else base_store.tokenize_path(path) for path in paths)
        found = [base_store.get_text_at_path(value, place) for place in places]
        return text, list(dict.fromkeys(part for parts in found for part in parts if part.strip()))

    def _embedded(
        self, texts: Iterable[str], *, as_queries: bool = False
    ) -> dict[str, NDArray[Any]]:
        """Returns the vector of every text that says something, each of length 1."""
        wanted = list(dict.fromkeys(filter(None, texts)))
        if self.embeddings is None or not wanted:
            return {}
        made = (
            list(map(self.embeddings.embed_query, wanted))
            if as_queries
            else self.embeddings.embed_documents(wanted)
        )
        if lengths := {len(vector) for vector in made} - {self._dims}:
            raise errors.EmbeddingMismatchError(
                f"The index has dims={self._dims}, but the embeddings gave vectors of length {sorted(lengths)}. "
                "Set dims to what they give."
            )
        vectors = np.asarray(made, dtype=np.float64)
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.isfinite(norms).all():
            raise errors.StoreError("The embeddings gave numbers that are not finite.")
        return dict(zip(wanted, vectors / np.where(norms > 0, norms, 1), strict=True))


def _found(chroma: "_OpenChroma", op: SearchOp, query: NDArray[Any] | None) -> list[SearchItem]:
    """Finds items below a prefix.

    Those updated last first, or the most similar to a query first, then by id.
    """
    prefix = tuple(op.namespace_prefix)
    last = max(op.offset, 0) + max(op.limit, 0)
    found: list[tuple[str, _StoredItem, float | None]] = []
    if query is None:
        ranked = sorted(
            chroma.read(chroma.ids_below(prefix)).items(),
            key=lambda item: (-item[1].updated, item[0]),
        )
        found = [(id_, item, None) for id_, item in ranked if _passes(item, op)]
    elif last and (vectors := chroma.vectors_below(prefix)):
        matrix = np.concatenate(list(vectors.values())).reshape(-1, len(query)).astype(np.float64)
        # Rounded, because the last bits depend on how many vectors are multiplied at once.
        scores = iter(np.clip(np.round(matrix @ query, 9), -1, 1).tolist())
        best = {
            id_: max(next(scores) for _ in range(len(flat) // len(query)))
            for id_, flat in vectors.items()
        }
        ids = sorted(best, key=lambda id_: (-best[id_], id_))
        while ids and len(found) < last:
            some = ids[: last + 50]
            ids = ids[last + 50 :]
            read = chroma.read(some)
            found += [
                (id_, read[id_], best[id_])
                for id_ in some
                if id_ in read and _passes(read[id_], op)
            ]
    return [SearchItem(**item.answer(id_), score=score) for id_, item, score in _page(found, op)]


def _namespaces(chroma: "_OpenChroma", op: base_store.ListNamespacesOp) -> list[Namespace]:
    """Lists the namespaces that hold something, sorted, cut to the depth and page that are asked for."""
    conditions = op.match_conditions or ()
    prefixes = [condition.path for condition in conditions if condition.match_type == "prefix"]
    suffixes = [
        condition.path[::-1] for condition in conditions if condition.match_type == "suffix"
    ]
    fixed = max(
        (tuple(takewhile(lambda label: label != "*", path)) for path in prefixes),
        key=len,
        default=(),
    )
    found = {
        namespace[: op.max_depth]
        for namespace in set(map(_namespace_of, chroma.ids_below(fixed)))
        if all(begins_with(namespace, path) for path in prefixes)
        and all(begins_with(namespace[::-1], path) for path in suffixes)
    }
    return _page(sorted(found), op)


def _page(found: Sequence[T], op: SearchOp | base_store.ListNamespacesOp) -> list[T]:
    """Returns the elements that an operation asks for.

    None where its limit or offset makes no sense.
    """
    return list(found[max(op.offset, 0) : max(op.offset, 0) + max(op.limit, 0)])


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": operator.eq, "$ne": operator.ne, "$gt": operator.gt, "$gte": operator.ge, "$lt": operator.lt,
    "$lte": operator.le,
}  # fmt: skip


def _passes(item: "_StoredItem", op: SearchOp) -> bool:
    """Returns whether an item passes a filter; a missing field counts as `None`."""
    if not op.filter:
        return True
    value = json.loads(item.value)
    return all(matches(value.get(name), wanted) for name, wanted in op.filter.items())


def matches(value: object, wanted: object) -> bool:
    """Returns whether a value equals another, or passes all of the `$` operators that are given."""
    if not isinstance(wanted, Mapping) or not any(str(name).startswith("$") for name in wanted):
        return value == wanted
    if unknown := wanted.keys() - _OPERATORS.keys():
        raise errors.InputError(
            f"Unknown operator {unknown.pop()} in a filter. Known: {', '.join(_OPERATORS)}."
        )
    try:
        return all(_OPERATORS[name](value, operand) for name, operand in wanted.items())
    except TypeError:  # the two are in no order
        return False


# Items, and their ids: labels and key as a JSON list in ASCII, so that no two share one.


class _StoredItem(NamedTuple):
    """An item as it is stored, in one text, as Chroma writes several rows for every field of a record."""

    created: int
    updated: int
    """In microseconds since 1970."""
    vectors: str
    """In base64, of 32-bit numbers."""
    value: str
    """JSON text."""

    @classmethod
    def unpacked(cls, fields: Mapping[str, Any]) -> Self:
        """Reads the metadata of a record; in older ones every field is there by its name."""
        if (packed := str(fields["value"])).startswith("{"):
            return cls(**{name: fields[name] for name in cls._fields})
        created, updated, vectors, value = packed.split(" ", 3)
        return cls(int(created), int(updated), vectors, value)

    @property
    def flat_vectors(self) -> Vectors:
        return np.frombuffer(b64decode(self.vectors), np.dtype("<f4"))

    def answer(self, id_: str) -> dict[str, Any]:
        """Returns the arguments of LangGraph's items."""
        *labels, key = json.loads(id_)
        created, updated = (_EPOCH + count * _MICROSECOND for count in (self.created, self.updated))
        times = {"created_at": created, "updated_at": updated}
        try:
            value = from_json(
                self.value, cache_strings=False
            )  # of long strings in a third of the time
        except ValueError:  # half of a surrogate pair
            value = json.loads(self.value)
        return {"namespace": tuple(labels), "key": key, "value": value, **times}


def _item_id(namespace: Namespace, key: str) -> str:
    return json.dumps([*namespace, key])


def _namespace_of(item_id: str) -> Namespace:
    return tuple(json.loads(item_id)[:-1])


def _fingerprint(namespace: Namespace) -> int:
    """Returns a signed 64-bit hash of a namespace that is the same in every process."""
    return int.from_bytes(
        blake2b(json.dumps(namespace).encode(), digest_size=8).digest(), "big", signed=True
    )


def _by_bucket(ids: Iterable[str], size: int) -> Iterator[tuple[int, list[str]]]:
    """Splits item ids, each once, into requests to one bucket of a size that a server takes."""
    buckets: dict[int, list[str]] = defaultdict(list)
    for id_ in dict.fromkeys(ids):
        buckets[_fingerprint(_namespace_of(id_)[:2]) % BUCKETS].append(id_)
    for number, found in buckets.items():
        for first in range(0, len(found), size):
            yield number, found[first : first + size]


_opened: "list[_OpenChroma]" = []
"""All that are open. In the child of a fork those of the parent stay here for ever: its threads are
not there, and its locks and connections are shared."""
_opening = threading.RLock()  # a garbage collection inside the lock may release another store
_started_in: set[int] = set()


@dataclass(eq=False)
class _OpenChroma:
    """The collections of an open Chroma, which the stores of one process over one folder share.

    A Chroma in this process does one thing at a time, under `lock`; a server does many.
    """

    client: "_Client"
    where: str
    folder: Folder | None = None
    disconnect: Callable[[], object] | None = None
    """Closes the connections to a server."""
    has_failed: bool = False
    """True after an error of the engine over a folder, whose connections may then hold on to what
    they had begun."""
    is_private: bool = True
    lock: AbstractContextManager[object] = field(default_factory=threading.RLock)
    process: int = field(default_factory=os.getpid)
    stores: int = 1
    collections: dict[str, Collection] = field(default_factory=dict)
    listed: dict[Namespace, dict[str, Vectors | None]] = field(default_factory=dict)
    """The ids below the prefixes that were searched, and their vectors once these are read, in step
    with writes."""
    recent: "LRUCache[str, _StoredItem | None]" = field(
        default_factory=lambda: LRUCache(KNOWN_ITEMS)
    )
    """Items that were read or written last, None for one that is not there."""

    def __post_init__(self) -> None:
        _opened.append(self)

    def release(self) -> None:
        """Lets go of it; the last store of a folder closes it, but not in the child of a fork."""
        if self.process == os.getpid():
            with _opening:
                self.stores -= 1
                if not self.stores:
                    _opened.remove(self)
                    self.close()

    def close(self) -> None:
        """Stops the engine, or closes the connections, and leaves the folder."""
        if self.disconnect:
            self.disconnect()
        else:
            self.client.own_system.stop()
        if self.folder:
            self.folder.leave()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Starts the engine anew where it failed before, for instance on a full disk, and notes where it fails."""
        if self.folder and self.has_failed:
            self.client.own_system.stop()
            self.folder.wait_until_closed()
            self._restart(self.folder)
        try:
            yield
        except errors.CtxBudgetError:
            raise
        except BaseException:
            self.has_failed = True
            raise

    def vacuum(self) -> None:
        """Rewrites a folder's database without what was deleted, while the engine is stopped."""
        if self.folder is None:
            return
        self.client.own_system.stop()
        self.has_failed = True  # until it runs again
        try:
            self.folder.vacuum()
        finally:
            self._restart(self.folder)

    def _restart(self, folder: Folder) -> None:
        self.collections = {}
        self.client = _start(folder.path)
        self.has_failed = False

    def _collection(self, number: int, *, make: bool = False) -> Collection | None:
        """Returns a collection, or `None` where nothing was ever written to it."""
        name = f"ctxbudget-items-{number:02}"
        if name not in self.collections:
            try:
                self.collections[name] = self.client.get_collection(name, embedding_function=None)
            except NotFoundError:
                if not make:
                    return None
                self.collections[name] = self.client.create_collection(
                    name, configuration=_CONFIGURATION, embedding_function=None, get_or_create=True
                )
        return self.collections[name]

    def ids_below(self, prefix: Namespace) -> list[str]:
        """Returns the ids of the items below a prefix, which some are found by, and all told by their labels."""
        if prefix in self.listed:
            return [*self.listed[prefix]]
        where: dict[str, Any] | None = {f"p{len(prefix)}": _fingerprint(prefix)} if prefix else None
        begin = json.dumps(prefix)[:-1] + ", " if prefix else "["
        found: list[str] = []
        for number in [_fingerprint(prefix[:2]) % BUCKETS] if len(prefix) > 1 else range(BUCKETS):
            if collection := self._collection(number):
                found += [
                    id_
                    for id_ in collection.get(where=where, include=[])["ids"]
                    if id_.startswith(begin)
                ]
        if (
            self.is_private and (room := KNOWN_VECTORS - len(found)) > 0
        ):  # else Chroma looks at every item each time
            others = self.listed if sum(1 + len(ids) for ids in self.listed.values()) < room else {}
            self.listed = {**others, prefix: dict.fromkeys(found)}
        return found

    def read(self, ids: Iterable[str]) -> dict[str, _StoredItem]:
        """Returns the items with these ids, wherever they are."""
        asked = dict.fromkeys(ids)
        found = {id_: self.recent[id_] for id_ in asked if id_ in self.recent}
        for number, some in _by_bucket(asked.keys() - found.keys(), REQUEST_SIZE):
            found |= dict.fromkeys(some)
            if collection := self._collection(number):
                got = collection.get(ids=some, include=["metadatas"])
                for id_, fields in zip(got["ids"], got["metadatas"] or [], strict=True):
                    found[id_] = _StoredItem.unpacked(fields)
        self._keep(found)
        return {id_: item for id_, item in found.items() if item}

    def _keep(self, items: "Mapping[str, _StoredItem | None]") -> None:
        """Keeps items in memory, where nobody else can write them; those unused for longest go."""
        if not self.is_private:
            return
        for id_, item in items.items():
            if item is None or len(item.value) + len(item.vectors) <= LARGEST_KNOWN:
                self.recent[id_] = item
            else:
                self.recent.pop(id_, None)

    def vectors_below(self, prefix: Namespace) -> Mapping[str, Vectors]:
        """Returns all vectors below a prefix, by item."""
        below = dict.fromkeys(self.ids_below(prefix)) | self.listed.get(prefix, {})
        items = self.read(id_ for id_, vectors in below.items() if vectors is None)
        below |= {id_: item.flat_vectors for id_, item in items.items()}
        if prefix in self.listed:
            self.listed[prefix] = below
        return {
            id_: vectors for id_, vectors in below.items() if vectors is not None and len(vectors)
        }

    def write(self, items: Mapping[str, _StoredItem | None]) -> None:
        """Writes items by id, over those that there are; `None` deletes one."""
        new = {id_: item for id_, item in items.items() if item}
        try:
            for number, some in _by_bucket(items.keys() - new.keys(), REQUEST_SIZE):
                if collection := self._collection(number):
                    collection.delete(ids=some)
                    self._wrote(some)
            for number, some in _by_bucket(new, REQUEST_SIZE):
                named = ((" ".join(map(str, new[id_])), _namespace_of(id_)) for id_ in some)
                metadatas: list[
                    Any
                ] = [  # the fingerprint of each prefix of its namespace finds an item
                    {"value": own}
                    | {f"p{n}": _fingerprint(name[:n]) for n in range(1, len(name) + 1)}
                    for own, name in named
                ]
                made = cast("Collection", self._collection(number, make=True))
                vectors = np.ones(
                    (len(some), 1), np.float32
                )  # it wants some, which nobody searches
                made.upsert(ids=some, embeddings=vectors, metadatas=metadatas)
                self._wrote(some)
        except BaseException:  # nobody knows how far it came
            self.listed = {}
            self.recent.clear()
            raise
        self._keep(items)
        for id_, item in items.items() if self.listed else ():
            name = _namespace_of(id_)
            for prefix in (name[:length] for length in range(len(name) + 1)):
                self.listed.get(prefix, {}).pop(id_, None)
                self.listed.get(prefix, {}).update({id_: item.flat_vectors} if item else {})

    def _wrote(self, ids: Sequence[str]) -> None:
        """Notes that Chroma has confirmed a write."""
        if self.folder:
            self.folder.wrote(len(ids))


class _Engine(RustBindingsAPI):
    """Chroma's engine over a folder, with its index in memory.

    Nothing searches that index. In files, which Chroma rewrites in place, it makes a folder
    unreadable where a process is killed or the disk is full in that moment, and keeps the ids of
    deleted records.
    """

    @override
    def start(self) -> None:
        folder = Path(self._system.settings.require("persist_directory"))
        database = engine.SqliteDBConfig(
            hash_type=engine.MigrationHash.MD5,
            migration_mode=engine.MigrationMode.Apply,
            url=str(folder / DATABASE_FILE),
        )
        self.bindings = engine.Bindings(
            allow_reset=False,
            sqlite_db_config=database,
            persist_path=None,
            hnsw_cache_size=self.hnsw_cache_size,
        )

    @override
    def stop(self) -> None:
        vars(self).pop("bindings", None)  # it may be stopped twice


class _Client(Client):
    """A client with a Chroma of its own.

    Chroma's share one in a process, and ask a server three times to open.
    """

    def __init__(
        self, settings: Settings, tenant: str = "default_tenant", database: str = "default_database"
    ) -> None:
        self.own_system = System(settings)
        self.own_system.start()
        self._server = self.own_system.instance(ServerAPI)  # type: ignore[type-abstract]
        self.tenant = tenant
        self.database = database


def _open(path: Path | None) -> _OpenChroma:
    """Opens a folder, or returns it where this process has it open.

    Without one, makes a Chroma in memory.
    """
    with _opening, ExitStack() as opened:
        for chroma in _opened:
            if (
                path
                and chroma.folder
                and (chroma.folder.path, chroma.process) == (path, os.getpid())
            ):
                chroma.stores += 1
                return chroma
        folder = Folder(path) if path else None
        if folder:
            opened.callback(folder.release)
        if _started_in - {os.getpid()}:
            raise errors.StoreError(
                f"Chroma was in use in this process before it was forked. {AFTER_FORK}"
            )
        _started_in.add(os.getpid())
        client = _start(path)
        opened.callback(client.own_system.stop)
        if folder:
            folder.begin()
        opened.pop_all()
        return _OpenChroma(client, str(path or "in memory"), folder=folder)


def _start(folder: Path | None) -> _Client:
    """Starts Chroma's engine over a folder, or in memory."""
    settings = Settings(anonymized_telemetry=False)
    if folder:
        settings = Settings(
            anonymized_telemetry=False,
            chroma_api_impl=f"{_Engine.__module__}.{_Engine.__qualname__}",
            is_persistent=True,
            persist_directory=str(folder),
        )
    with _typed_errors(str(folder or "in memory")):
        return _Client(settings)


def _open_server(url: str, headers: Mapping[str, str], tenant: str, database: str) -> _OpenChroma:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise errors.StoreError(
            f"{url!r} is no URL of a Chroma server. Give one like 'http://localhost:8000'."
        )
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
    return _OpenChroma(
        client, where, disconnect=session.close, is_private=False, lock=nullcontext()
    )


@contextmanager
def _typed_errors(where: str) -> Iterator[None]:
    try:
        yield
    except BaseException as error:  # the engine panics on some damage, and a panic is no Exception
        panic = type(error).__name__ == "PanicException"
        if isinstance(error, errors.CtxBudgetError) or not (isinstance(error, Exception) or panic):
            raise
        if type(error).__module__.startswith("httpx"):
            raise errors.StoreError(
                f"The Chroma server {where} cannot be reached, or does not answer ({type(error).__name__}: {error}). "
                "Check the URL, or start a server: `chroma run --path FOLDER`."
            ) from error
        is_damaged = any(
            said in str(error) for said in ("disk image is malformed", "file is not a database")
        )
        kind = errors.StoreDataError if is_damaged else errors.StoreError
        raise kind(f"Chroma failed on the store {where}: {error}") from error
