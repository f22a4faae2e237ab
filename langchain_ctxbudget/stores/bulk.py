"""Many items at once: whole namespaces, read, found and deleted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import cast

from langgraph.store.base import BaseStore, GetOp, Item, ListNamespacesOp, MatchCondition, Op, PutOp, SearchOp

from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.stores.records import stored

PAGE = 10_000
"""Items per search: every page reads the namespace again."""
CHUNK = 1_000
"""Items per read or write by id."""


def read_all(store: BaseStore, namespace: tuple[str, ...]) -> Flow[list[Item]]:
    """Returns every item of a namespace."""
    return [item for item in (yield from read_below(store, namespace)) if item.namespace == namespace]


def read_below(store: BaseStore, path: tuple[str, ...]) -> Flow[list[Item]]:
    """Returns every item of every namespace that begins with a path."""
    items: list[Item] = []
    while True:
        results = yield from batch(store, [SearchOp(path, limit=PAGE, offset=len(items))])
        page = cast("list[Item]", results[0])
        items.extend(page)
        if len(page) < PAGE:
            # A store that looks for a prefix as text finds more than was asked for.
            return [item for item in items if item.namespace[: len(path)] == path]


def read_namespaces(store: BaseStore, path: tuple[str, ...]) -> Flow[list[tuple[str, ...]]]:
    """Returns every namespace that begins with a path, in which `*` stands for any label."""
    found: list[tuple[str, ...]] = []
    while True:
        wanted = ListNamespacesOp((MatchCondition("prefix", path),), limit=PAGE, offset=len(found))
        results = yield from batch(store, [wanted])
        page = cast("list[tuple[str, ...]]", results[0])
        found.extend(page)
        if len(page) < PAGE:
            # A store that looks for a prefix as text finds more than was asked for.
            return [one for one in found if len(one) >= len(path) and all(map(_fits, one, path))]


def _fits(label: str, wanted: str) -> bool:
    return wanted in ("*", label)


def write(store: BaseStore, puts: Sequence[PutOp]) -> Flow[None]:
    """Writes or deletes any number of items."""
    for first in range(0, len(puts), CHUNK):
        yield from batch(store, cast("Sequence[Op]", puts[first : first + CHUNK]))


def delete_below(store: BaseStore, path: tuple[str, ...], last: str, first_key: str) -> Flow[int]:
    """Deletes every item of every namespace that begins with a path; returns how many there were.

    Args:
        store: where.
        path: of labels, in which `*` stands for any.
        last: namespaces with this label are deleted after the others.
        first_key: but for the item of this key, which is deleted first.
    """
    count = 0
    while True:
        namespaces = yield from read_namespaces(store, path)
        heads = yield from batch(store, [GetOp(one, first_key) for one in namespaces if last in one])
        there = [item for item in heads if isinstance(item, Item)]
        yield from write(store, [PutOp(item.namespace, item.key, None) for item in there])
        found = len(there)
        for namespace in sorted(namespaces, key=lambda one: last in one):
            items = yield from read_all(store, namespace)
            yield from write(store, [PutOp(namespace, item.key, None) for item in items])
            found += len(items)
        count += found
        if not found:  # what somebody wrote at the same moment is deleted, too
            return count


def export_below(store: BaseStore, path: tuple[str, ...]) -> Flow[list[str]]:
    """Returns every item of every namespace that begins with a path, as lines of JSON."""
    lines = []
    for namespace in sorted((yield from read_namespaces(store, path))):
        items = yield from read_all(store, namespace)
        for item in sorted(items, key=lambda item: item.key):
            line = {"namespace": list(namespace), "key": item.key, "value": stored(item.value)}
            times = {"created_at": item.created_at.isoformat(), "updated_at": item.updated_at.isoformat()}
            lines.append(json.dumps(line | times))
    return lines
