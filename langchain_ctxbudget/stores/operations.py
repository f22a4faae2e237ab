"""The operations of a LangGraph store without a database: ids, JSON values, filters, namespaces, checked batches."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from itertools import takewhile
from typing import Any, Self, TypeVar

from langchain_core.embeddings import Embeddings
from langgraph.store.base import (
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    SearchItem,
    SearchOp,
    get_text_at_path,
    tokenize_path,
    validate_op_namespace,
)
from langgraph.store.base.embed import EmbeddingsLambda

from langchain_ctxbudget.errors import InputError

T = TypeVar("T")
Namespace = tuple[str, ...]

INDEXED_DEPTH = 8
"""Prefixes of a namespace that are indexed; deeper ones are told apart by reading the ids."""
DATABASE_FILE = "chroma.sqlite3"
"""The file in a store's folder that holds the items."""
AFTER_FORK = (
    "Open stores and make pipelines after the fork (gunicorn: without --preload or in `post_fork`; Celery: in "
    "`worker_process_init`; multiprocessing: `spawn`), or give them a store that processes share: ChromaStore(url=...)."
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def embeddings_name(embeddings: Embeddings) -> str:
    """Returns the name of embeddings in a store: their model, else their function or class."""
    if isinstance(embeddings, EmbeddingsLambda):
        function = getattr(embeddings, "func", None) or embeddings.afunc
        return str(getattr(function, "__name__", type(function).__name__))
    names = (getattr(embeddings, name, None) for name in ("model", "model_name"))
    return next((name for name in names if isinstance(name, str) and name), type(embeddings).__name__)


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


def id_prefix(prefix: Namespace) -> str:
    """Returns the beginning of every id below a prefix."""
    return json.dumps(prefix)[:-1] + ", " if prefix else "["


def fingerprint(value: str | Namespace) -> int:
    """Returns a signed 64-bit hash of a text or a namespace that is the same in every process."""
    text = value if isinstance(value, str) else json.dumps(value)
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


def prefix_fields(namespace: Namespace) -> dict[str, int]:
    """Returns the fingerprints of a namespace's prefixes, which find an item by any of them."""
    return {f"p{length}": fingerprint(namespace[:length]) for length in range(1, len(namespace[:INDEXED_DEPTH]) + 1)}


def to_microseconds(moment: datetime) -> int:
    """Returns the microseconds since 1970 of a moment that knows its time zone."""
    return (moment - _EPOCH) // _MICROSECOND


def expiry(ttl: float | None, now: int) -> int | None:
    """Returns when something ends that lives from now on, in microseconds since 1970; kept within 64 bits."""
    return None if ttl is None else min(now + round(ttl * 60_000_000), 2**62)


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An item as it is stored; times are in microseconds since 1970, `ttl` in minutes."""

    id: str
    value: str
    """JSON text."""
    created: int
    updated: int
    vectors: int
    """How many belong to it."""
    ttl: float | None = None
    """How long it lives after it was last put or read; `None` for ever."""
    expires: int | None = None
    """When it ends; of no meaning without `ttl`."""

    @classmethod
    def from_fields(cls, id_: str, fields: Mapping[str, Any]) -> Self:
        """Reads the metadata that `fields` wrote, without the fingerprints of its namespace."""
        return cls(id_, **{name: value for name, value in fields.items() if name in cls.__slots__})

    def fields(self) -> dict[str, str | float | None]:
        """Returns the item as flat metadata; `None` removes a field that is there."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "id"}

    def lives(self, now: int) -> bool:
        """Returns whether its time is not over yet."""
        return self.ttl is None or self.expires is None or self.expires > now

    def passes(self, wanted: Mapping[str, Any] | None) -> bool:
        """Returns whether the value passes a filter."""
        return not wanted or matches(json.loads(self.value), wanted)

    def item(self) -> Item:
        """Returns the answer to a get."""
        namespace, key = parse_item_id(self.id)
        created, updated = (_EPOCH + count * _MICROSECOND for count in (self.created, self.updated))
        return Item(namespace=namespace, key=key, value=json.loads(self.value), created_at=created, updated_at=updated)

    def search_item(self, score: float | None) -> SearchItem:
        """Returns an answer to a search."""
        it = self.item()
        return SearchItem(it.namespace, it.key, it.value, it.created_at, it.updated_at, score)


# Batches.


@dataclass(frozen=True, slots=True)
class Put:
    """A checked write: the value as JSON text (`None` deletes), the texts to embed for it, and its minutes to live."""

    namespace: Namespace
    value: str | None
    to_embed: Sequence[str] = ()
    ttl: float | None = None


def checked_puts(ops: Iterable[Op], fields: Sequence[str] | None) -> dict[str, Put]:
    """Checks a batch and returns its writes by item id; the last put of a key counts."""
    puts: dict[str, Put] = {}
    for op in ops:
        if not isinstance(op, GetOp | SearchOp | ListNamespacesOp | PutOp):
            raise InputError(f"{op!r} is not an operation of a LangGraph store.")
        validate_op_namespace(op)
        if isinstance(op, PutOp):
            id_ = item_id(op.namespace, op.key)
            puts.pop(id_, None)
            puts[id_] = _checked(op, fields)
    return puts


def _checked(op: PutOp, fields: Sequence[str] | None) -> Put:
    if op.value is None:
        return Put(op.namespace, None)
    if not isinstance(op.value, dict):
        raise InputError(f"The value of {op.key!r} is a {type(op.value).__name__}; a store keeps dicts.")
    ttl = op.ttl
    if ttl is not None and (isinstance(ttl, bool) or not isinstance(ttl, int | float) or not math.isfinite(ttl)):
        raise InputError(f"A time to live is a number of minutes, or None for ever; not {ttl!r}.")
    text = to_json(op.value)
    paths: Sequence[str] = () if fields is None or op.index is False else fields if op.index is None else op.index
    value = json.loads(text) if paths else None
    found = (part for path in paths for part in get_text_at_path(value, path if path == "$" else tokenize_path(path)))
    to_embed = list(dict.fromkeys(part for part in found if part.strip()))
    return Put(op.namespace, text, to_embed, None if ttl is None else max(float(ttl), 0.0))


def to_json(value: Mapping[str, Any]) -> str:
    """Returns a value as JSON text that reads back equal (tuples as lists)."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        reads_back = _same(json.loads(text), value)
    except (TypeError, ValueError, RecursionError) as error:
        problem = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise InputError(f"The value is not JSON: {problem}. Store text, numbers, lists or dicts.") from error
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


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[object, object], bool]:
    """Compares two numbers or two texts; anything else does not match."""

    def compared(value: object, bound: object) -> bool:
        texts = isinstance(value, str) and isinstance(bound, str)
        return (texts or (_is_number(value) and _is_number(bound))) and compare(value, bound)

    return compared


_OPERATORS: dict[str, Callable[[object, object], bool]] = {
    "$eq": _same,
    "$ne": lambda value, other: not _same(value, other),
    "$gt": _ordered(operator.gt),
    "$gte": _ordered(operator.ge),
    "$lt": _ordered(operator.lt),
    "$lte": _ordered(operator.le),
}


def matches(value: object, wanted: object) -> bool:
    """Returns whether a value passes a filter: equality, `$` operators, or a dict of filters for its fields.

    A field that is missing counts as `None`, as in LangGraph's `InMemoryStore`.
    """
    if isinstance(wanted, Mapping):
        if any(str(key).startswith("$") for key in wanted):
            if unknown := wanted.keys() - _OPERATORS.keys():
                raise InputError(f"Unknown operators {unknown} in a filter. Known: {', '.join(_OPERATORS)}.")
            return all(_OPERATORS[name](value, operand) for name, operand in wanted.items())
        return isinstance(value, dict) and all(matches(value.get(key), inner) for key, inner in wanted.items())
    if isinstance(wanted, list | tuple):
        return isinstance(value, list) and len(value) == len(wanted) and all(map(matches, value, wanted))
    return _same(value, wanted)


# Namespaces.


def namespace_matches(namespace: Namespace, condition: MatchCondition) -> bool:
    """Returns whether a namespace starts (or ends) with a condition's path, `*` standing for any one label."""
    length = len(condition.path)
    if condition.match_type not in ("prefix", "suffix"):
        raise InputError(f"Unknown match type {condition.match_type!r}. Use 'prefix' or 'suffix'.")
    if len(namespace) < length:
        return False
    part = namespace[:length] if condition.match_type == "prefix" else namespace[len(namespace) - length :]
    return all(wanted in ("*", label) for label, wanted in zip(part, condition.path, strict=True))


def fixed_prefix(op: ListNamespacesOp) -> Namespace:
    """Returns the labels that every namespace which an operation asks for starts with."""
    paths = (condition.path for condition in op.match_conditions or () if condition.match_type == "prefix")
    return max((tuple(takewhile(lambda label: label != "*", path)) for path in paths), key=len, default=())


def list_namespaces(op: ListNamespacesOp, namespaces: Iterable[Namespace]) -> list[Namespace]:
    """Returns the namespaces that an operation asks for, sorted, cut to its depth and page."""
    conditions = op.match_conditions or ()
    found = (ns for ns in namespaces if all(namespace_matches(ns, condition) for condition in conditions))
    return page(sorted({ns[: op.max_depth] for ns in found}), op.limit, op.offset)


def page(found: Sequence[T], limit: int, offset: int) -> list[T]:
    """Returns `limit` elements after `offset`; none where either makes no sense."""
    return list(found[max(offset, 0) : max(offset, 0) + max(limit, 0)])
