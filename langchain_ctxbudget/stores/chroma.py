"""A LangGraph store over Chroma: batches of operations on items.

A search ranks all vectors below its prefix, exactly: Chroma's index misses one neighbour in six where texts repeat.
`docs/decisions.md` has the figures behind it.
"""

from __future__ import annotations

import asyncio
import json
import math
import operator
import os
import weakref
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from chromadb.api import ClientAPI
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
    TTLConfig,
    ensure_embeddings,
    get_text_at_path,
    tokenize_path,
    validate_op_namespace,
)
from numpy.typing import NDArray

from langchain_ctxbudget.errors import EmbeddingMismatchError, InputError, StoreDataError, StoreError, StoreLockedError
from langchain_ctxbudget.flow import Flow, adrive, drive, embed, embed_query
from langchain_ctxbudget.stores import chroma_collections as collections
from langchain_ctxbudget.stores.base import Clock, utc_now, with_offset
from langchain_ctxbudget.stores.bulk import AFTER_FORK, Namespace, begins_with, embeddings_name
from langchain_ctxbudget.stores.chroma_collections import OpenChroma, StoredItem, item_id, parse_item_id, typed_errors

T = TypeVar("T")
Vector = NDArray[np.float64]
"""Of length 1."""
Hit = tuple[StoredItem, float | None]
"""An item that was found, and its similarity."""

LAYOUT = 2
"""How records are laid out; another version refuses the store."""
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)


class _Put(NamedTuple):
    """A checked write: the value as JSON text (`None` deletes), the texts to embed for it, and its minutes to live."""

    value: str | None
    to_embed: Sequence[str] = ()
    ttl: float | None = None


class ChromaStore(BaseStore):
    """A LangGraph store over Chroma: in memory, in a folder of one process, or on a server of many.

    Behaves as LangGraph's SQL stores: without a query the most recently updated items come first, and a
    store without an index ignores a query (no item has a score then). Values are JSON, read back equal
    (tuples as lists). The score of a search is the exact cosine similarity of an item's best text.

    With `ttl`, items end some minutes after they were last put or read; an item whose time is over is not
    returned any more, and `sweep_ttl` deletes it.

    The `a` methods work in a thread. Processes may write to one server at the same time: the last write of an item
    counts.

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
        self.index_config, self.ttl_config = index, ttl
        self.embeddings = ensure_embeddings(index["embed"]) if index else None
        self._fields = (index.get("fields") or ["$"]) if index else []
        self._dims = index["dims"] if index else 0
        self._clock = with_offset(clock)
        if path is not None:
            self._open: Callable[[], OpenChroma] = partial(collections.of_folder, Path(path).expanduser().resolve())
        elif url is not None:
            self._open = partial(collections.of_server, url, headers or {}, tenant, database)
        else:
            self._open = partial(collections.of_client, client) if client else collections.in_memory
        self._is_folder = path is not None
        self._chroma = self._open()
        self._finalizer = weakref.finalize(self, collections.release, self._chroma)
        try:
            with self._chroma.lock, typed_errors(self._chroma.where):
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

    def sweep_ttl(self) -> int:
        """Deletes the items whose time is over; returns how many. An item that is renewed at this moment stays."""
        chroma = self._opened()
        with chroma.lock, typed_errors(chroma.where):
            return chroma.delete_ended(self._now())

    def _now(self) -> int:
        return (self._clock() - _EPOCH) // _MICROSECOND

    def _opened(self) -> OpenChroma:
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
        self._finalizer = weakref.finalize(self, collections.release, self._chroma)
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

    def _vectors(self, ops: Sequence[Op], puts: Mapping[str, _Put]) -> Flow[dict[tuple[bool, str], Vector]]:
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
        self, ops: Sequence[Op], puts: Mapping[str, _Put], vectors: Mapping[tuple[bool, str], Vector]
    ) -> list[Result]:
        """Reads, writes, and puts off the end of what was read."""
        chroma, now = self._opened(), self._now()
        results: list[Result] = []
        read: list[StoredItem] = []
        with chroma.lock, typed_errors(chroma.where):
            gets = [item_id(op.namespace, op.key) for op in ops if isinstance(op, GetOp)]
            stored = chroma.read([*gets, *puts])
            for op in ops:
                if isinstance(op, GetOp):
                    item = stored.get(item_id(op.namespace, op.key))
                    found: list[Hit] = [(item, None)] if item and item.lives(now) else []
                    results.append(Item(**_answer(item)) if found and item else None)
                elif isinstance(op, SearchOp):
                    query = vectors.get((True, op.query or ""))
                    found = _recent(chroma, op, now) if query is None else _nearest(chroma, op, query, now)
                    results.append([SearchItem(**_answer(item), score=score) for item, score in found])
                else:
                    results.append(_namespaces(chroma, op, now) if isinstance(op, ListNamespacesOp) else None)
                    continue
                read += [item for item, _ in found] if op.refresh_ttl else []
            chroma.write({id_: _written(id_, put, stored.get(id_), vectors, now) for id_, put in puts.items()})
            chroma.put_off({it.id: _end(it.ttl, now) for it in read if it.ttl is not None and it.id not in puts})
        return results


def _written(
    id_: str, put: _Put, old: StoredItem | None, vectors: Mapping[tuple[bool, str], Vector], now: int
) -> StoredItem | None:
    """Returns the item that a put writes; an item that has expired and is still there is a new one."""
    if put.value is None:
        return None
    created = old.created if old and old.lives(now) else now
    flat = b"".join(vectors[False, text].astype("<f4").tobytes() for text in put.to_embed)
    expires = None if put.ttl is None else _end(put.ttl, now)
    return StoredItem(id_, put.value, created, now, b64encode(flat).decode() or None, put.ttl, expires)


def _end(ttl: float, now: int) -> int:
    """Returns when something ends that lives from now on, in microseconds since 1970; kept within 64 bits."""
    return min(now + round(ttl * 60_000_000), 2**62)


def _answer(item: StoredItem) -> dict[str, Any]:
    """Returns the arguments of LangGraph's items."""
    namespace, key = parse_item_id(item.id)
    created, updated = (_EPOCH + count * _MICROSECOND for count in (item.created, item.updated))
    value = json.loads(item.value)
    return {"namespace": namespace, "key": key, "value": value, "created_at": created, "updated_at": updated}


# Searches.


def _recent(chroma: OpenChroma, op: SearchOp, now: int) -> list[Hit]:
    """Finds items below a prefix, those updated last first, then by id."""
    found = [item for item in chroma.items_below(tuple(op.namespace_prefix)) if _passes(item, op, now)]
    found.sort(key=lambda item: (-item.updated, item.id))
    return [(item, None) for item in _page(found, op)]


def _nearest(chroma: OpenChroma, op: SearchOp, query: Vector, now: int) -> list[Hit]:
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
    found: list[Hit] = []
    for first in range(0, len(ranked), wanted + 50):
        some = ranked[first : first + wanted + 50]
        items |= chroma.read(id_ for id_ in some if id_ not in items)
        found += [(items[id_], best[id_]) for id_ in some if id_ in items and _passes(items[id_], op, now)]
        if len(found) >= wanted:
            break
    return _page(found, op)


def _namespaces(chroma: OpenChroma, op: ListNamespacesOp, now: int) -> list[Namespace]:
    """Lists the namespaces that hold something, sorted, cut to the depth and page that are asked for."""
    conditions = op.match_conditions or ()
    if unknown := {condition.match_type for condition in conditions} - {"prefix", "suffix"}:
        raise InputError(f"Unknown match types {unknown}. Use 'prefix' or 'suffix'.")
    prefixes = [condition.path for condition in conditions if condition.match_type == "prefix"]
    suffixes = [condition.path[::-1] for condition in conditions if condition.match_type == "suffix"]
    fixed = max((tuple(takewhile(lambda label: label != "*", path)) for path in prefixes), key=len, default=())
    found = {
        namespace[: op.max_depth]
        for namespace in chroma.namespaces_below(fixed, now)
        if all(begins_with(namespace, path) for path in prefixes)
        and all(begins_with(namespace[::-1], path) for path in suffixes)
    }
    return _page(sorted(found), op)


def _page(found: Sequence[T], op: SearchOp | ListNamespacesOp) -> list[T]:
    """Returns the elements that an operation asks for; none where its limit or offset makes no sense."""
    return list(found[max(op.offset, 0) : max(op.offset, 0) + max(op.limit, 0)])


def _passes(item: StoredItem, op: SearchOp, now: int) -> bool:
    return item.lives(now) and (not op.filter or matches(json.loads(item.value), op.filter))


# Puts.


def _checked_puts(ops: Iterable[Op], fields: Sequence[str]) -> dict[str, _Put]:
    """Checks a batch and returns its writes by item id; the last put of a key counts."""
    puts: dict[str, _Put] = {}
    for op in ops:
        if not isinstance(op, GetOp | SearchOp | ListNamespacesOp | PutOp):
            raise InputError(f"{op!r} is not an operation of a LangGraph store.")
        validate_op_namespace(op)
        if isinstance(op, PutOp):
            id_ = item_id(op.namespace, op.key)
            puts.pop(id_, None)
            puts[id_] = _Put(None) if op.value is None else _checked(op, op.value, fields)
    return puts


def _checked(op: PutOp, given: object, fields: Sequence[str]) -> _Put:
    if not isinstance(given, dict):
        raise InputError(f"The value of {op.key!r} is a {type(given).__name__}; a store keeps dicts.")
    if op.ttl is not None and not (type(op.ttl) in (int, float) and math.isfinite(op.ttl)):
        raise InputError(f"A time to live is a number of minutes, or None for ever; not {op.ttl!r}.")
    text = _to_json(given)
    paths = [] if op.index is False or not fields else fields if op.index is None else op.index
    value = json.loads(text) if paths else None
    found = (part for path in paths for part in get_text_at_path(value, path if path == "$" else tokenize_path(path)))
    to_embed = list(dict.fromkeys(part for part in found if part.strip()))
    return _Put(text, to_embed, None if op.ttl is None else max(float(op.ttl), 0.0))


def _to_json(value: Mapping[str, Any]) -> str:
    """Returns a value as JSON text that reads back equal (tuples as lists)."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        reads_back = _same(json.loads(text), value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"The value is not JSON: {error}. Store text, numbers, lists or dicts.") from error
    if not reads_back:
        raise InputError("The value is not JSON: one of its keys is not a string.")
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can carry
        return json.dumps(value, separators=(",", ":"))
    return text


# Filters.


def _same(left: object, right: object) -> bool:
    """Compares as JSON does: `true` is not 1, but 1 is 1.0."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(_same, left, right))
    return left == right


_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": _same,
    "$ne": lambda value, operand: not _same(value, operand),
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def _compares(value: object, name: str, operand: object) -> bool:
    """Applies one operator; only two numbers, or two texts, are in an order."""
    if name not in _ORDERS:
        raise InputError(f"Unknown operator {name} in a filter. Known: {', '.join(_ORDERS)}.")
    texts = isinstance(value, str) and isinstance(operand, str)
    numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in (value, operand))
    return (name in ("$eq", "$ne") or texts or numbers) and bool(_ORDERS[name](value, operand))


def matches(value: object, wanted: object) -> bool:
    """Returns whether a value passes a filter: equality, `$` operators, or a dict of filters for its fields.

    A field that is missing counts as `None`, as in LangGraph's `InMemoryStore`.
    """
    if isinstance(wanted, Mapping):
        if any(str(key).startswith("$") for key in wanted):
            return all(_compares(value, name, operand) for name, operand in wanted.items())
        return isinstance(value, dict) and all(matches(value.get(key), inner) for key, inner in wanted.items())
    if isinstance(wanted, list | tuple):
        return isinstance(value, list) and len(value) == len(wanted) and all(map(matches, value, wanted))
    return _same(value, wanted)
