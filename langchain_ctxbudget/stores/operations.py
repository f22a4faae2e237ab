"""A batch of LangGraph store operations, checked before anything is read or written. Pure functions."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Self, TypeVar

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

from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.stores.matching import (
    Namespace,
    check_filter,
    from_microseconds,
    item_id,
    namespace_matches,
    parse_item_id,
    to_json,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Record:
    """An item as it is stored.

    Attributes:
        id: its namespace and key, see `item_id`.
        text: its value as JSON text.
        created: when it was first put, in microseconds since 1970.
        updated: when it was last put, in microseconds since 1970.
        vectors: how many vectors were made for it.
        ttl: how long it lives after it was last put or read, in minutes; `None` for ever.
        expires: when it ends, in microseconds since 1970; of no meaning without `ttl`.
    """

    id: str
    text: str
    created: int
    updated: int
    vectors: int
    ttl: float | None = None
    expires: int | None = None

    @classmethod
    def from_fields(cls, id_: str, fields: Mapping[str, Any]) -> Self:
        """Read what `fields` wrote."""
        text, created, updated, vectors = (fields[name] for name in ("value", "created", "updated", "vectors"))
        return cls(id_, text, created, updated, vectors, fields.get("ttl"), fields.get("expires"))

    def fields(self) -> dict[str, str | float | None]:
        """The record as flat metadata, without its id; `None` removes a field that is there."""
        numbers = {"created": self.created, "updated": self.updated, "vectors": self.vectors}
        return {"value": self.text, **numbers, "ttl": self.ttl, "expires": self.expires}

    def lives(self, now: int) -> bool:
        """Whether its time is not over yet."""
        return self.ttl is None or self.expires is None or self.expires > now

    def value(self) -> object:
        """The value, read back from JSON."""
        return json.loads(self.text)

    def _parts(self) -> dict[str, Any]:
        namespace, key = parse_item_id(self.id)
        moments = {"created_at": from_microseconds(self.created), "updated_at": from_microseconds(self.updated)}
        return {"namespace": namespace, "key": key, "value": self.value(), **moments}

    def item(self) -> Item:
        """The answer to a get."""
        return Item(**self._parts())

    def search_item(self, score: float | None = None) -> SearchItem:
        """An answer to a search."""
        return SearchItem(**self._parts(), score=score)


@dataclass(frozen=True, slots=True)
class Put:
    """A checked write: the value as JSON text (`None` deletes), the texts to embed for it, and its minutes to live."""

    namespace: Namespace
    text: str | None
    to_embed: Sequence[str] = ()
    ttl: float | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """A checked batch: what it reads, what it writes by item id, what has to be embedded for it."""

    ops: Sequence[Op]
    puts: Mapping[str, Put]
    texts: Sequence[str]
    queries: Sequence[str]


def plan(ops: Iterable[Op], fields: Sequence[str] | None) -> Plan:
    """Check a batch; the last put of a key counts.

    Args:
        ops: the operations.
        fields: the paths that are indexed unless a put says otherwise; `None` without an index.

    Raises:
        InputError: an operation that is none, a value that is not JSON, an unknown filter operator, a time to live
            that is no number.
        InvalidNamespaceError: a label that LangGraph does not allow.
    """
    ops = list(ops)
    puts: dict[str, Put] = {}
    queries = []
    for op in ops:
        if not isinstance(op, GetOp | SearchOp | ListNamespacesOp | PutOp):
            raise InputError(f"{op!r} is not an operation of a LangGraph store.")
        validate_op_namespace(op)
        if isinstance(op, PutOp):
            id_ = item_id(op.namespace, op.key)
            puts.pop(id_, None)
            puts[id_] = _put(op, fields)
        elif isinstance(op, SearchOp):
            check_filter(op.filter)
            if op.query and fields is not None:
                queries.append(op.query)
    texts = dict.fromkeys(text for put in puts.values() for text in put.to_embed)
    return Plan(ops, puts, list(texts), list(dict.fromkeys(queries)))


def _put(op: PutOp, fields: Sequence[str] | None) -> Put:
    if op.value is None:
        return Put(op.namespace, None)
    if not isinstance(op.value, Mapping):
        raise InputError(f"The value of {op.key!r} is a {type(op.value).__name__}; a store keeps dicts.")
    text, ttl = to_json(op.value), _minutes(op.ttl)
    if fields is None or op.index is False:
        return Put(op.namespace, text, ttl=ttl)
    paths = fields if op.index is None else op.index
    value = json.loads(text)
    found = (part for path in paths for part in get_text_at_path(value, path if path == "$" else tokenize_path(path)))
    return Put(op.namespace, text, list(dict.fromkeys(part for part in found if part.strip())), ttl)


def _minutes(ttl: object) -> float | None:
    if ttl is None:
        return None
    if isinstance(ttl, bool) or not isinstance(ttl, int | float) or not math.isfinite(ttl):
        raise InputError(f"A time to live is a number of minutes, or None for ever; not {ttl!r}.")
    return max(float(ttl), 0.0)


def expiry(ttl: float | None, now: int) -> int | None:
    """When something ends that lives from now on, in microseconds since 1970; kept within 64 bits."""
    return None if ttl is None else min(now + round(ttl * 60_000_000), 2**62)


def fixed_prefix(conditions: Iterable[MatchCondition]) -> Namespace:
    """The labels that every namespace meeting the conditions starts with."""
    paths = (condition.path for condition in conditions if condition.match_type == "prefix")
    return max((tuple(takewhile(lambda label: label != "*", path)) for path in paths), key=len, default=())


def list_namespaces(op: ListNamespacesOp, namespaces: Iterable[Namespace]) -> list[Namespace]:
    """The namespaces that an operation asks for, sorted, cut to its depth and page."""
    conditions = op.match_conditions or ()
    found = (ns for ns in namespaces if all(namespace_matches(ns, condition) for condition in conditions))
    return page(sorted({ns[: op.max_depth] for ns in found}), op.limit, op.offset)


def page(found: Sequence[T], limit: int, offset: int) -> list[T]:
    """`limit` elements after `offset`; none where either makes no sense."""
    return list(found[max(offset, 0) : max(offset, 0) + max(limit, 0)])
