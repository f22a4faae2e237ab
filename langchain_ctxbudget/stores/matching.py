"""What a store decides without reading: ids, JSON text, filters and namespace patterns. Pure functions."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any

from langgraph.store.base import MatchCondition

from langchain_ctxbudget.errors import InputError

Namespace = tuple[str, ...]

INDEXED_DEPTH = 8
"""Prefixes of a namespace that are indexed; deeper ones are told apart by reading the ids."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def item_id(namespace: Namespace, key: str) -> str:
    r"""The id of an item: its labels and key as a JSON list in ASCII, so that no two items share one.

    >>> item_id(("users", "ada"), "naïve")
    '["users", "ada", "na\\u00efve"]'
    """
    return json.dumps([*namespace, key])


def parse_item_id(text: str) -> tuple[Namespace, str]:
    """The namespace and key that `item_id` wrote."""
    *namespace, key = json.loads(text)
    return tuple(namespace), key


def fingerprint(text: str) -> int:
    """A 64-bit hash that is the same in every process, as a signed integer."""
    digest = blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def prefix_fields(namespace: Namespace) -> dict[str, int]:
    """What finds an item by any prefix of its namespace: one fingerprint for each length."""
    lengths = range(1, min(len(namespace), INDEXED_DEPTH) + 1)
    return {f"p{length}": fingerprint(json.dumps(namespace[:length])) for length in lengths}


def prefix_query(prefix: Namespace) -> dict[str, int] | None:
    """The filter on `prefix_fields` for items below a prefix, or `None` for all items."""
    return dict([prefix_fields(prefix).popitem()]) if prefix else None


def expired_query(now: int) -> dict[str, Any]:
    """The filter on metadata for items whose time is over.

    Only an item with a `ttl` has an end: a reader of another process, which has put off the end of a value that was
    replaced in between, must not give one to its successor.
    """
    return {"$and": [{"ttl": {"$gte": 0}}, {"expires": {"$lte": now}}]}


def id_prefix(prefix: Namespace) -> str:
    """How every id below a prefix starts; the last word where fingerprints collide or end too early."""
    return json.dumps(prefix)[:-1] + ", " if prefix else "["


def bucket_of(namespace: Namespace, buckets: int) -> int:
    """The bucket of a namespace, by its first two labels (for this package: its root and the user)."""
    return fingerprint(json.dumps(namespace[:2])) % buckets


def buckets_below(prefix: Namespace, buckets: int) -> Iterable[int]:
    """The buckets that can hold namespaces below a prefix: one, or all where it has under two labels."""
    return (bucket_of(prefix, buckets),) if len(prefix) > 1 else range(buckets)


def to_microseconds(moment: datetime) -> int:
    """Microseconds since 1970, exact; the moment must know its time zone."""
    return (moment - _EPOCH) // _MICROSECOND


def from_microseconds(count: int) -> datetime:
    """The moment in UTC that `to_microseconds` counted."""
    return _EPOCH + count * _MICROSECOND


def to_json(value: Mapping[str, Any]) -> str:
    """A value as JSON text that reads back equal (tuples as lists).

    Raises:
        InputError: something in it is not JSON; the message says where.
    """
    try:
        _require_json(value, "value")
        text = json.dumps(value, default=dict, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except RecursionError:
        raise InputError("The value is nested too deeply, or contains itself. Flatten it.") from None
    except ValueError as error:
        raise error if isinstance(error, InputError) else InputError(f"The value is not JSON: {error}.") from error
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can carry
        return json.dumps(value, default=dict, separators=(",", ":"))
    return text


def _require_json(value: object, where: str) -> None:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise InputError(f"{where} has the key {key!r}; the keys of JSON are strings.")
            _require_json(inner, f"{where}[{key!r}]")
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            _require_json(inner, f"{where}[{index}]")
    elif value is not None and not isinstance(value, str | int | float):
        kind = type(value).__name__
        raise InputError(f"{where} is a {kind}, which JSON does not have. Store text, numbers, lists or dicts.")


def _same(left: object, right: object) -> bool:
    """Equality as JSON has it: `true` is not 1, but 1 is 1.0."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(_same, left, right))
    return left == right


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[object, object], bool]:
    """A comparison of two numbers or two texts; anything else does not match."""

    def compared(value: object, bound: object) -> bool:
        if isinstance(value, str) and isinstance(bound, str):
            return compare(value, bound)
        numbers = all(isinstance(x, int | float) and not isinstance(x, bool) for x in (value, bound))
        return numbers and compare(value, bound)

    return compared


_OPERATORS: dict[str, Callable[[object, object], bool]] = {
    "$eq": _same,
    "$ne": lambda value, other: not _same(value, other),
    "$gt": _ordered(operator.gt),
    "$gte": _ordered(operator.ge),
    "$lt": _ordered(operator.lt),
    "$lte": _ordered(operator.le),
}


def check_filter(wanted: object) -> None:
    """Make sure that every operator of a filter is known.

    Raises:
        InputError: an operator that is not.
    """
    if isinstance(wanted, Mapping):
        operators = any(str(key).startswith("$") for key in wanted)
        for key, inner in wanted.items():
            if operators and key not in _OPERATORS:
                raise InputError(f"Unknown operator {key!r} in a filter. Known: {', '.join(_OPERATORS)}.")
            if not operators:
                check_filter(inner)


def matches(value: object, wanted: object) -> bool:
    """Whether a value passes a filter: equality, `$` operators, or a dict of filters for its fields.

    A field that is missing counts as `None`, as in LangGraph's `InMemoryStore`.
    """
    if isinstance(wanted, Mapping):
        if any(str(key).startswith("$") for key in wanted):
            return all(_OPERATORS[name](value, operand) for name, operand in wanted.items())
        return isinstance(value, dict) and all(matches(value.get(key), inner) for key, inner in wanted.items())
    if isinstance(wanted, list | tuple):
        return isinstance(value, list) and len(value) == len(wanted) and all(map(matches, value, wanted))
    return _same(value, wanted)


def namespace_matches(namespace: Namespace, condition: MatchCondition) -> bool:
    """Whether a namespace starts (or ends) with the condition's path, `*` standing for any one label.

    Raises:
        InputError: a condition that is neither prefix nor suffix.
    """
    length = len(condition.path)
    if condition.match_type not in ("prefix", "suffix"):
        raise InputError(f"Unknown match type {condition.match_type!r}. Use 'prefix' or 'suffix'.")
    if len(namespace) < length:
        return False
    part = namespace[:length] if condition.match_type == "prefix" else namespace[len(namespace) - length :]
    return all(wanted in ("*", label) for label, wanted in zip(part, condition.path, strict=True))
