"""A LangGraph store over Chroma: in memory, in a folder of one process, or on a server of many.

An item is one record: its value is JSON text in the metadata, and so are its vectors, in base64, so that no writer that
is killed leaves one without the other. A search ranks all vectors below its prefix, exactly: Chroma's index misses one
neighbour in six where texts repeat. `docs/internals/decisions.md` has the figures behind it.
"""

from __future__ import annotations

import asyncio
import json
import operator
import os
import sqlite3
import threading
import weakref
from base64 import b64decode, b64encode
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import blake2b
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar, cast
from urllib.parse import urlsplit

import numpy as np
from chromadb.api import ClientAPI, ServerAPI
from chromadb.api.client import Client
from chromadb.api.collection_configuration import CreateCollectionConfiguration
from chromadb.api.models.Collection import Collection
from chromadb.config import Settings, System
from chromadb.errors import NotFoundError
from filelock import FileLock, Timeout
from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    ensure_embeddings,
    get_text_at_path,
    tokenize_path,
    validate_op_namespace,
)
from numpy.typing import NDArray

from langchain_ctxbudget.background import keep_for_ever
from langchain_ctxbudget.errors import (
    CtxBudgetError,
    EmbeddingMismatchError,
    InputError,
    StoreDataError,
    StoreError,
    StoreLockedError,
)
from langchain_ctxbudget.flow import Flow, adrive, drive, embed, embed_query
from langchain_ctxbudget.stores.base import Clock, utc_now, with_offset
from langchain_ctxbudget.stores.bulk import AFTER_FORK, DATABASE_FILE, Namespace, begins_with, embeddings_name

T = TypeVar("T")
Vectors = NDArray[np.float32]
"""The vectors of an item, each of length 1, one after the other."""

LAYOUT = 2
"""How records are laid out; another version refuses the store."""
BUCKETS = 16
"""Collections, chosen by a namespace's first two labels (the package's are its root and the user): one takes 2.6 MB
of memory, and the fuller it is the longer a scan."""
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
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)

# The smallest graph that Chroma builds, because nothing searches it: ef 400 and M 32 make writes 7 times as
# slow. Every write reads the log since the last sync, so Chroma's 1,000 between two of them is too many.
_CONFIGURATION: CreateCollectionConfiguration = {
    "hnsw": {"space": "l2", "max_neighbors": 2, "ef_construction": 2, "sync_threshold": 100}
}


class ChromaStore(BaseStore):
    """A LangGraph store over Chroma: in memory, in a folder of one process, or on a server of many.

    Behaves as LangGraph's SQL stores: without a query the most recently updated items come first, and a
    store without an index ignores a query (no item has a score then). Values are JSON, read back equal
    (tuples as lists). The score of a search is the exact cosine similarity of an item's best text.

    The `a` methods work in a thread. Processes may write to one server at the same time: the last write of an item
    counts.

    Example:
        >>> with ChromaStore() as store:
        ...     store.put(("users", "ada"), "home", {"city": "Paris"})
        ...     store.get(("users", "ada"), "home").value
        {'city': 'Paris'}
    """

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
            clock: gives the time of writes, in UTC where it names no offset.

        Raises:
            StoreError: the folder cannot be written; the server cannot be reached, or does not know the tenant or
                the database.
            StoreLockedError: the folder is open in another process.
            StoreDataError: the folder holds something that this version cannot read.
            EmbeddingMismatchError: the store was written with other embeddings.
        """
        if sum(each is not None for each in (path, url, client)) > 1:
            raise StoreError("A store has a path, a url or a client. Give one of them.")
        if "://" in str(path):
            raise StoreError(f"{str(path)!r} is a URL, not a folder. Pass it as `url`.")
        self.index_config = index
        self.embeddings = ensure_embeddings(index["embed"]) if index else None
        self._fields = (index.get("fields") or ["$"]) if index else []
        self._dims = index["dims"] if index else 0
        self._clock = with_offset(clock)
        if path is not None:
            self._open: Callable[[], _OpenChroma] = partial(_open_folder, Path(path).expanduser().resolve())
        elif url is not None:
            self._open = partial(_open_server, url, headers or {}, tenant, database)
        else:
            self._open = partial(_open_client, client)
        self._is_folder = path is not None
        self._chroma = self._open()
        self._finalizer = weakref.finalize(self, _release, self._chroma)
        try:
            with self._chroma.lock, _typed_errors(self._chroma.where):
                self._record_embeddings()
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        index = f", index={embeddings_name(self.embeddings)!r}" if self.embeddings else ""
        return f"ChromaStore({self._chroma.where!r}{index}{'' if self._finalizer.alive else ', closed'})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Releases the folder, the memory or the connections; closing twice does nothing."""
        if self._chroma.process == os.getpid():
            with self._chroma.lock:
                self._finalizer()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Runs operations: reads see the store as it was before, the last put of a key counts.

        Raises:
            InputError: an operation that makes no sense; nothing is written.
            StoreError: the store cannot be read or written.
        """
        todo = list(ops)
        puts = _checked_puts(todo, self._fields)
        return self._run(todo, puts, drive(self._vectors(todo, puts)))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Runs operations as `batch` does, in a worker thread."""
        todo = list(ops)
        puts = _checked_puts(todo, self._fields)
        return await asyncio.to_thread(self._run, todo, puts, await adrive(self._vectors(todo, puts)))

    def _opened(self) -> _OpenChroma:
        """Returns what is open in this process; the child of a fork connects to a server anew."""
        chroma = self._chroma
        if not self._finalizer.alive:
            raise StoreError("The store is closed. Open a new one.")
        if chroma.process == os.getpid():
            return chroma
        if not chroma.on_server:
            raise (StoreLockedError if self._is_folder else StoreError)(
                f"The store {chroma.where} belongs to the parent of this process, which was forked. {AFTER_FORK}"
            )
        self._finalizer()
        self._chroma = self._open()
        self._finalizer = weakref.finalize(self, _release, self._chroma)
        return self._chroma

    def _record_embeddings(self) -> None:
        """Writes down with which embeddings the store is written, or compares."""
        where = self._chroma.where
        about = self._chroma.client.get_or_create_collection(
            "ctxbudget-store", metadata={"layout": LAYOUT}, embedding_function=None
        )
        known = dict(about.metadata or {})
        if known.get("layout") != LAYOUT:
            raise StoreDataError(
                f"The store {where} has layout {known.get('layout')}; this version of langchain-ctxbudget reads "
                f"layout {LAYOUT}."
            )
        if self.embeddings is None:
            return
        mine = {"embedding": embeddings_name(self.embeddings), "dims": self._dims}
        theirs = {name: known[name] for name in mine if name in known}
        if not theirs:
            about.modify(metadata=known | mine)
        elif theirs != mine:
            raise EmbeddingMismatchError(
                f"The store {where} was written with {theirs['embedding']} ({theirs['dims']} dimensions), "
                f"but is opened with {mine['embedding']} ({mine['dims']} dimensions). Open it with the embeddings "
                "it was written with, or put the items into a new store."
            )

    def _vectors(self, ops: Sequence[Op], puts: Mapping[str, _Put]) -> Flow[dict[tuple[bool, str], NDArray[Any]]]:
        """Makes the vectors of a batch's texts and queries, by whether it is a query and the text."""
        if self.embeddings is None:
            return {}
        texts = list(dict.fromkeys(text for put in puts.values() for text in put.to_embed))
        queries = list(dict.fromkeys(op.query for op in ops if isinstance(op, SearchOp) and op.query))
        made = list((yield from embed(self.embeddings, texts)))
        for query in queries:
            made.append((yield from embed_query(self.embeddings, query)))  # noqa: PERF401 - a flow
        if lengths := {len(vector) for vector in made} - {self._dims}:
            raise EmbeddingMismatchError(
                f"The index has dims={self._dims}, but the embeddings gave vectors of length {sorted(lengths)}. "
                "Set dims to what they give."
            )
        vectors = np.asarray(made, dtype=np.float64).reshape(len(made), self._dims)
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.isfinite(norms).all():
            raise StoreError("The embeddings gave numbers that are not finite.")
        keys = [*((False, text) for text in texts), *((True, query) for query in queries)]
        return dict(zip(keys, np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0), strict=True))

    def _run(
        self, ops: Sequence[Op], puts: Mapping[str, _Put], vectors: Mapping[tuple[bool, str], NDArray[Any]]
    ) -> list[Result]:
        """Reads, then writes."""
        chroma, now = self._opened(), (self._clock() - _EPOCH) // _MICROSECOND
        results: list[Result] = []
        with chroma.lock, _typed_errors(chroma.where):
            stored = chroma.read([*(_item_id(op.namespace, op.key) for op in ops if isinstance(op, GetOp)), *puts])
            for op in ops:
                if isinstance(op, GetOp):
                    item = stored.get(_item_id(op.namespace, op.key))
                    results.append(Item(**item.answer()) if item else None)
                elif isinstance(op, SearchOp):
                    query = vectors.get((True, op.query or ""))
                    found = _recent(chroma, op) if query is None else _nearest(chroma, op, query)
                    results.append([SearchItem(**item.answer(), score=score) for item, score in found])
                else:
                    results.append(_namespaces(chroma, op) if isinstance(op, ListNamespacesOp) else None)
            new: dict[str, _StoredItem | None] = {}
            for id_, put in puts.items():
                old = stored.get(id_)
                flat = b"".join(vectors[False, text].astype("<f4").tobytes() for text in put.to_embed)
                encoded = b64encode(flat).decode() or None
                created = old.created if old else now
                new[id_] = None if put.value is None else _StoredItem(id_, put.value, created, now, encoded)
            chroma.write(new)
        return results


# Operations, checked.


class _Put(NamedTuple):
    """A checked write: the value as JSON text (`None` deletes), and the texts to embed for it."""

    value: str | None
    to_embed: Sequence[str] = ()


def _checked_puts(ops: Iterable[Op], fields: Sequence[str]) -> dict[str, _Put]:
    """Checks a batch and returns its writes by item id; the last put of a key counts."""
    puts: dict[str, _Put] = {}
    for op in ops:
        if not isinstance(op, GetOp | SearchOp | ListNamespacesOp | PutOp):
            raise InputError(f"{op!r} is not an operation of a LangGraph store.")
        validate_op_namespace(op)
        if isinstance(op, PutOp):
            id_ = _item_id(op.namespace, op.key)
            puts.pop(id_, None)
            puts[id_] = _Put(None) if op.value is None else _checked(op, op.value, fields)
    return puts


def _checked(op: PutOp, given: object, fields: Sequence[str]) -> _Put:
    if not isinstance(given, dict):
        raise InputError(f"The value of {op.key!r} is a {type(given).__name__}; a store keeps dicts.")
    if op.ttl is not None:
        raise InputError("Items of a ChromaStore do not end by themselves: put them without `ttl`.")
    text = _to_json(given)
    paths = [] if op.index is False or not fields else fields if op.index is None else op.index
    value = json.loads(text) if paths else None
    found = (part for path in paths for part in get_text_at_path(value, path if path == "$" else tokenize_path(path)))
    return _Put(text, list(dict.fromkeys(part for part in found if part.strip())))


def _to_json(value: Mapping[str, Any]) -> str:
    """Returns a value as JSON text that reads back equal (tuples as lists)."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"The value is not JSON: {error}. Store text, numbers, lists or dicts.") from error
    if not _has_text_keys(value):
        raise InputError("The value is not JSON: one of its keys is not a string.")
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can carry
        return json.dumps(value, separators=(",", ":"))
    return text


def _has_text_keys(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _has_text_keys(inner) for key, inner in value.items())
    return not isinstance(value, list | tuple) or all(map(_has_text_keys, value))


# Searches.


def _recent(chroma: _OpenChroma, op: SearchOp) -> list[tuple[_StoredItem, float | None]]:
    """Finds items below a prefix, those updated last first, then by id."""
    found = [item for item in chroma.items_below(tuple(op.namespace_prefix)) if _passes(item, op)]
    found.sort(key=lambda item: (-item.updated, item.id))
    return [(item, None) for item in _page(found, op)]


def _nearest(chroma: _OpenChroma, op: SearchOp, query: NDArray[Any]) -> list[tuple[_StoredItem, float | None]]:
    """Finds items below a prefix that have vectors, the most similar first, then by id."""
    vectors, items = chroma.vectors_below(tuple(op.namespace_prefix))
    wanted = max(op.offset, 0) + max(op.limit, 0)
    if not vectors or not wanted:
        return []
    matrix = np.concatenate(list(vectors.values())).reshape(-1, len(query)).astype(np.float64)
    # Rounded, because the last bits depend on how many vectors are multiplied at once.
    scores = iter(np.clip(np.round(matrix @ query, 9), -1, 1).tolist())
    best = {id_: max(next(scores) for _ in range(len(flat) // len(query))) for id_, flat in vectors.items()}
    ranked = sorted(best, key=lambda id_: (-best[id_], id_))
    found: list[tuple[_StoredItem, float | None]] = []
    for first in range(0, len(ranked), wanted + 50):
        some = ranked[first : first + wanted + 50]
        items |= chroma.read(id_ for id_ in some if id_ not in items)
        found += [(items[id_], best[id_]) for id_ in some if id_ in items and _passes(items[id_], op)]
        if len(found) >= wanted:
            break
    return _page(found, op)


def _namespaces(chroma: _OpenChroma, op: ListNamespacesOp) -> list[Namespace]:
    """Lists the namespaces that hold something, sorted, cut to the depth and page that are asked for."""
    conditions = op.match_conditions or ()
    if unknown := {condition.match_type for condition in conditions} - {"prefix", "suffix"}:
        raise InputError(f"Unknown match types {unknown}. Use 'prefix' or 'suffix'.")
    prefixes = [condition.path for condition in conditions if condition.match_type == "prefix"]
    suffixes = [condition.path[::-1] for condition in conditions if condition.match_type == "suffix"]
    fixed = max((tuple(takewhile(lambda label: label != "*", path)) for path in prefixes), key=len, default=())
    found = {
        namespace[: op.max_depth]
        for namespace in chroma.namespaces_below(fixed)
        if all(begins_with(namespace, path) for path in prefixes)
        and all(begins_with(namespace[::-1], path) for path in suffixes)
    }
    return _page(sorted(found), op)


def _page(found: Sequence[T], op: SearchOp | ListNamespacesOp) -> list[T]:
    """Returns the elements that an operation asks for; none where its limit or offset makes no sense."""
    return list(found[max(op.offset, 0) : max(op.offset, 0) + max(op.limit, 0)])


def _passes(item: _StoredItem, op: SearchOp) -> bool:
    return not op.filter or matches(json.loads(item.value), op.filter)


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": operator.eq,
    "$ne": operator.ne,
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def matches(value: object, wanted: object) -> bool:
    """Returns whether a value passes a filter: equality, `$` operators, or a dict of filters for its fields.

    A field that is missing counts as `None`, as in LangGraph's `InMemoryStore`.
    """
    if isinstance(wanted, list | tuple):
        return isinstance(value, list) and len(value) == len(wanted) and all(map(matches, value, wanted))
    if not isinstance(wanted, Mapping):
        return value == wanted
    if not any(str(name).startswith("$") for name in wanted):
        return isinstance(value, dict) and all(matches(value.get(name), inner) for name, inner in wanted.items())
    if unknown := wanted.keys() - _OPERATORS.keys():
        raise InputError(f"Unknown operator {unknown.pop()} in a filter. Known: {', '.join(_OPERATORS)}.")
    try:
        return all(_OPERATORS[name](value, operand) for name, operand in wanted.items())
    except TypeError:  # the two are in no order
        return False


# Ids and items.


def _item_id(namespace: Namespace, key: str) -> str:
    """Returns the id of an item: its labels and key as a JSON list in ASCII, so that no two items share one."""
    return json.dumps([*namespace, key])


def _namespace_of(item_id: str) -> Namespace:
    return tuple(json.loads(item_id)[:-1])


def _fingerprint(namespace: Namespace) -> int:
    """Returns a signed 64-bit hash of a namespace that is the same in every process."""
    digest = blake2b(json.dumps(namespace).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _prefix_fields(namespace: Namespace) -> dict[str, int]:
    """Returns the fingerprints of a namespace's prefixes, which find an item by any of them."""
    return {f"p{length}": _fingerprint(namespace[:length]) for length in range(1, len(namespace[:INDEXED_DEPTH]) + 1)}


def _requests(ids: Iterable[str], size: Callable[[str], int] = lambda _: 0) -> Iterator[tuple[int, list[str]]]:
    """Splits item ids, each once, into requests to a bucket of a number and a size that a server takes."""
    groups: dict[int, list[str]] = defaultdict(list)
    sizes = Counter[int]()
    for id_ in dict.fromkeys(ids):
        number, own = _fingerprint(_namespace_of(id_)[:2]) % BUCKETS, size(id_)
        if groups[number] and (len(groups[number]) == READ_SIZE or sizes[number] + own > WRITE_CHARACTERS):
            yield number, groups.pop(number)
            del sizes[number]
        groups[number].append(id_)
        sizes[number] += own
    yield from groups.items()


@dataclass(frozen=True, slots=True)
class _StoredItem:
    """An item as it is stored; times are in microseconds since 1970."""

    id: str
    value: str
    """JSON text."""
    created: int
    updated: int
    vectors: str | None = None
    """In base64, of 32-bit numbers."""

    @property
    def flat_vectors(self) -> Vectors:
        return np.frombuffer(b64decode(self.vectors or ""), np.dtype("<f4"))

    def fields(self) -> dict[str, Any]:
        """Returns it as flat metadata; `None` removes a field that is there."""
        fields = asdict(self)
        return fields | _prefix_fields(_namespace_of(fields.pop("id")))

    def answer(self) -> dict[str, Any]:
        """Returns the arguments of LangGraph's items."""
        *namespace, key = json.loads(self.id)
        created, updated = (_EPOCH + count * _MICROSECOND for count in (self.created, self.updated))
        return {
            "namespace": tuple(namespace), "key": key, "value": json.loads(self.value), "created_at": created,
            "updated_at": updated,
        }  # fmt: skip


# Reading and writing.


class _OpenChroma:
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
        """Takes an open client; where nobody else can write to it (`is_private`), items may stay in memory."""
        self.client, self.where, self.close, self.on_server = client, where, close, on_server
        self.process, self.stores = os.getpid(), 1
        self.lock: AbstractContextManager[object] = nullcontext() if on_server else threading.RLock()
        self._is_private = is_private
        self._collections: dict[str, Collection] = {}
        self._known: dict[Namespace, dict[str, Vectors]] = {}
        """The vectors below the prefixes that were searched, in step with every write."""
        self._recent: dict[str, _StoredItem] = {}
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

    def _get(self, number: int, **arguments: Any) -> Iterator[_StoredItem]:  # noqa: ANN401 - Chroma's
        if collection := self._collection(number):
            found = collection.get(include=["metadatas"], **arguments)
            for id_, fields in zip(found["ids"], found["metadatas"] or [], strict=True):
                known: dict[str, Any] = {name: it for name, it in fields.items() if name in _StoredItem.__slots__}
                yield _StoredItem(id_, **known)

    def _ids(self, number: int, where: dict[str, Any] | None) -> list[str]:
        collection = self._collection(number)
        return collection.get(where=where, include=[])["ids"] if collection else []

    def read(self, ids: Iterable[str]) -> dict[str, _StoredItem]:
        """Returns the items with these ids, wherever they are."""
        wanted = dict.fromkeys(ids)
        found = {id_: self._recent[id_] for id_ in wanted if id_ in self._recent}
        for number, some in _requests(id_ for id_ in wanted if id_ not in found):
            read = {item.id: item for item in self._get(number, ids=some)}
            self._remember(read)
            found |= read
        return found

    def _remember(self, items: Mapping[str, _StoredItem]) -> None:
        if self._is_private and len(items) <= RECENT_ITEMS // 10:
            self._recent |= {id_: item for id_, item in items.items() if len(item.value) < RECENT_CHARACTERS}
            for id_ in list(self._recent)[: max(0, len(self._recent) - RECENT_ITEMS)]:
                del self._recent[id_]

    def items_below(self, prefix: Namespace) -> Iterator[_StoredItem]:
        """Yields every item below a prefix, in no order."""
        buckets, where, start = _below(prefix)
        for number in buckets:
            found = list(self._get(number, where=where, limit=READ_SIZE))
            if len(found) == READ_SIZE:
                read = {item.id for item in found}
                found += self.read(id_ for id_ in self._ids(number, where) if id_ not in read).values()
            yield from (item for item in found if item.id.startswith(start))

    def namespaces_below(self, prefix: Namespace) -> set[Namespace]:
        """Returns the namespaces below a prefix that hold something, read from the ids alone."""
        buckets, where, start = _below(prefix)
        ids = (id_ for number in buckets for id_ in self._ids(number, where))
        return {_namespace_of(id_) for id_ in ids if id_.startswith(start)}

    def vectors_below(self, prefix: Namespace) -> tuple[Mapping[str, Vectors], dict[str, _StoredItem]]:
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

    def write(self, items: Mapping[str, _StoredItem | None]) -> None:
        """Writes items by id, over those that there are; `None` deletes one."""
        new = {id_: item for id_, item in items.items() if item}
        for id_ in items:
            self._recent.pop(id_, None)
        try:
            for number, some in _requests(id_ for id_ in items if id_ not in new):
                self._for_writing(number).delete(ids=some)
            for number, some in _requests(new, lambda id_: len(new[id_].value) + len(new[id_].vectors or "")):
                metadatas: list[Any] = [new[id_].fields() for id_ in some]
                # Chroma wants a vector of its own: a single number, never searched.
                vectors = np.ones((len(some), 1), np.float32)
                self._for_writing(number).upsert(ids=some, embeddings=vectors, metadatas=metadatas)
        except BaseException:  # nobody knows how far it came
            self._known.clear()
            raise
        self._remember(new)
        for prefix, known in self._known.items():
            *_, start = _below(prefix)
            for id_, item in items.items():
                if id_.startswith(start):
                    known.pop(id_, None)
                    if item and item.vectors:
                        known[id_] = item.flat_vectors


def _below(prefix: Namespace) -> tuple[Sequence[int], dict[str, Any] | None, str]:
    """Returns where items below a prefix are: their buckets, a filter (`None` for all), the beginning of their ids.

    The filter is by the longest prefix that is indexed, and fingerprints may collide: the id decides.
    """
    where: dict[str, Any] | None = dict([_prefix_fields(prefix).popitem()]) if prefix else None
    buckets = (_fingerprint(prefix[:2]) % BUCKETS,) if len(prefix) > 1 else range(BUCKETS)
    return buckets, where, json.dumps(prefix)[:-1] + ", " if prefix else "["


# Opening and closing.


class _Client(Client):
    """A client with a Chroma of its own; Chroma's share one in a process, and ask a server three times to open."""

    def __init__(self, settings: Settings, tenant: str = "default_tenant", database: str = "default_database") -> None:
        self.own_system = System(settings)
        self.own_system.start()
        self._server = self.own_system.instance(ServerAPI)  # type: ignore[type-abstract]
        self.tenant, self.database = tenant, database


_folders: dict[tuple[int, Path], _OpenChroma] = {}
"""The folders that are open, by process."""
_folders_lock = threading.RLock()  # a garbage collection inside the lock may release another store
_started_in: set[int] = set()
"""The process in which Chroma's engine was started."""


def _open_client(client: ClientAPI | None) -> _OpenChroma:
    """Takes a client of the caller's, who closes it; without one, makes a Chroma in memory."""
    if client:
        return _OpenChroma(client, repr(client), lambda: None)
    own = _start(None)
    return _OpenChroma(own, "in memory", own.own_system.stop, is_private=True)


def _open_folder(folder: Path) -> _OpenChroma:
    """Opens a folder, or returns it where this process has it open."""
    with _folders_lock:
        key = (os.getpid(), folder)
        if key in _folders:
            _folders[key].stores += 1
            return _folders[key]
        lock = _locked(folder)
        try:
            with _typed_errors(str(folder)):
                client = _start(folder)
        except BaseException:
            lock.release()
            raise

        def close() -> None:
            del _folders[key]
            client.own_system.stop()
            lock.release()

        _folders[key] = _OpenChroma(client, str(folder), close, is_private=True)
        return _folders[key]


def _open_server(url: str, headers: Mapping[str, str], tenant: str, database: str) -> _OpenChroma:
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
    return _OpenChroma(client, where, session.close, on_server=True)


def _release(opened: _OpenChroma) -> None:
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
def _typed_errors(where: str) -> Iterator[None]:
    """Raises Chroma's errors as ours."""
    try:
        yield
    except BaseException as error:  # the engine panics on some damage, and a panic is no Exception
        panic = type(error).__name__ == "PanicException"
        if isinstance(error, CtxBudgetError) or not (isinstance(error, Exception) or panic):
            raise
        if type(error).__module__.startswith("httpx"):
            raise StoreError(
                f"The Chroma server {where} cannot be reached, or does not answer ({type(error).__name__}: {error}). "
                "Check the URL, or start a server: `chroma run --path FOLDER`."
            ) from error
        raise StoreError(f"Chroma failed on the store {where}: {error}") from error
