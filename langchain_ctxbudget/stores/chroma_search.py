"""Searching the items of a Chroma: by meaning, by filters, by namespaces.

A search ranks all vectors below its prefix, exactly: Chroma's index misses one neighbour in six
where texts repeat.
"""

import json
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any, TypeAlias, TypeVar

import numpy as np
from langgraph.store.base import (
    ListNamespacesOp,
    NamespaceMatchType,
    NamespacePath,
    SearchItem,
    SearchOp,
)
from numpy.typing import NDArray

from langchain_ctxbudget import errors
from langchain_ctxbudget.stores.bulk import Namespace, begins_with
from langchain_ctxbudget.stores.chroma_records import Records, StoredItem, Vectors, namespace_of

T = TypeVar("T")
Query: TypeAlias = NDArray[np.float64]
"""The vector of a query, of length 1."""


def search(records: Records, op: SearchOp, query: Query | None) -> list[SearchItem]:
    """Returns the items below a prefix that an operation asks for.

    Without the vector of a query those updated last come first, otherwise the most similar.
    """
    if query is None:
        return _last_updated(records, op)
    return _most_similar(records, op, query)


def _last_updated(records: Records, op: SearchOp) -> list[SearchItem]:
    items = records.read(records.ids_below(tuple(op.namespace_prefix)))
    ids = [id_ for id_, item in items.items() if _passes(item, op)]
    ids.sort(key=lambda id_: (-items[id_].updated, id_))
    return [items[id_].to_search_item(id_, score=None) for id_ in _page(ids, op)]


def _most_similar(records: Records, op: SearchOp, query: Query) -> list[SearchItem]:
    last = max(op.offset, 0) + max(op.limit, 0)
    if not last:
        return []
    vectors = records.vectors_below(tuple(op.namespace_prefix))
    if not vectors:
        return []

    scores = _best_scores(vectors, query)
    ranked = sorted(scores, key=lambda id_: (-scores[id_], id_))
    hits: dict[str, StoredItem] = {}
    size = last + 50  # some do not pass the filter
    for first in range(0, len(ranked), size):
        ids = ranked[first : first + size]
        items = records.read(ids)
        hits |= {id_: items[id_] for id_ in ids if id_ in items and _passes(items[id_], op)}
        if len(hits) >= last:
            break
    return [hits[id_].to_search_item(id_, scores[id_]) for id_ in _page(list(hits), op)]


def _best_scores(vectors: Mapping[str, Vectors], query: Query) -> dict[str, float]:
    """Returns the cosine similarity of each item's best text, by item id."""
    dims = len(query)
    matrix = np.concatenate(list(vectors.values())).reshape(-1, dims).astype(np.float64)
    # Rounded, because the last bits depend on how many vectors are multiplied at once.
    scores = np.clip(np.round(matrix @ query, 9), -1, 1)
    texts = np.array([len(flat) // dims for flat in vectors.values()])
    first_texts = np.cumsum(texts) - texts
    best = np.maximum.reduceat(scores, first_texts)
    return dict(zip(vectors, best.tolist(), strict=True))


def list_namespaces(records: Records, op: ListNamespacesOp) -> list[Namespace]:
    """Returns the namespaces that hold something, sorted.

    They are cut to the depth, and to the page, that the operation asks for.
    """
    prefixes = _paths(op, "prefix")
    suffixes = _paths(op, "suffix")
    longest = max(map(_labels_before_wildcard, prefixes), key=len, default=())
    namespaces = set(map(namespace_of, records.ids_below(longest)))
    matching = {
        namespace[: op.max_depth]
        for namespace in namespaces
        if _is_between(namespace, prefixes, suffixes)
    }
    return _page(sorted(matching), op)


def _paths(op: ListNamespacesOp, match_type: NamespaceMatchType) -> list[NamespacePath]:
    """Returns the paths that a namespace has to begin with, or to end with."""
    conditions = op.match_conditions or ()
    return [condition.path for condition in conditions if condition.match_type == match_type]


def _is_between(
    namespace: Namespace, prefixes: Iterable[NamespacePath], suffixes: Iterable[NamespacePath]
) -> bool:
    """Returns whether a namespace begins with all prefixes and ends with all suffixes."""
    if not all(begins_with(namespace, path) for path in prefixes):
        return False
    return all(begins_with(namespace[::-1], path[::-1]) for path in suffixes)


def _labels_before_wildcard(path: NamespacePath) -> Namespace:
    return tuple(takewhile(lambda label: label != "*", path))


def _page(elements: Sequence[T], op: SearchOp | ListNamespacesOp) -> list[T]:
    """Returns the elements between an operation's offset and limit; negative ones count as 0."""
    first = max(op.offset, 0)
    return list(elements[first : first + max(op.limit, 0)])


# Filters

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": operator.eq,
    "$ne": operator.ne,
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def _passes(item: StoredItem, op: SearchOp) -> bool:
    """Returns whether an item passes a filter; a missing field counts as None."""
    if not op.filter:
        return True
    value = json.loads(item.value)
    return all(matches(value.get(name), condition) for name, condition in op.filter.items())


def matches(value: object, condition: object) -> bool:
    """Returns whether a value equals another, or passes all of the `$` operators of a condition.

    Raises:
        InputError: there is no such operator.
    """
    if not isinstance(condition, Mapping) or not any(
        str(name).startswith("$") for name in condition
    ):
        return value == condition
    unknown = condition.keys() - _OPERATORS.keys()
    if unknown:
        raise errors.InputError(
            f"Unknown operator {unknown.pop()} in a filter. Known: {', '.join(_OPERATORS)}."
        )
    try:
        return all(_OPERATORS[name](value, operand) for name, operand in condition.items())
    except TypeError:  # the two are in no order
        return False
