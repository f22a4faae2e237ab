"""LangGraph stores as a whole: many items at once, and whether they search by meaning."""

import json
import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from langchain_core.embeddings import Embeddings
from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)
from langgraph.store.base.embed import EmbeddingsLambda
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.stores.base import from_stored, unlabelled
from langchain_ctxbudget.stores.records import Place

T = TypeVar("T")
Namespace = tuple[str, ...]
PAGE = 10_000
"""Items per search: every page reads the namespace again."""
CHUNK = 1_000
"""Operations per batch."""
DATABASE_FILE = "chroma.sqlite3"
"""The name that Chroma gives to the database in a folder."""
_log = logging.getLogger(__name__)


class PrivateStore(InMemoryStore):
    """LangGraph's store in memory, of a pipeline that was given none."""

    def is_empty(self) -> bool:
        """Returns whether nothing is stored."""
        return not any(self._data.values())  # LangGraph keeps namespaces that were only read


def has_index(store: BaseStore) -> bool:
    """Returns whether a store searches by meaning, as LangGraph's stores and `ChromaStore` tell."""
    return bool(getattr(store, "index_config", None))


def embeddings_name(embeddings: Embeddings) -> str:
    """Returns the name of embeddings in a store: their model, else their function or class."""
    if isinstance(embeddings, EmbeddingsLambda):
        function = getattr(embeddings, "func", None) or embeddings.afunc
        return str(getattr(function, "__name__", type(function).__name__))
    for attribute in ("model", "model_name"):
        name = getattr(embeddings, attribute, None)
        if isinstance(name, str) and name:
            return name
    return type(embeddings).__name__


def begins_with(namespace: Namespace, path: Namespace) -> bool:
    """Returns whether a namespace begins with a path, in which `*` stands for any one label."""
    if len(namespace) < len(path):
        return False
    pairs = zip(namespace, path, strict=False)
    return all(wanted in ("*", label) for label, wanted in pairs)


# Reading


def read_all(store: BaseStore, namespace: Namespace) -> Flow[list[Item]]:
    """Returns every item of a namespace."""
    items = yield from read_below(store, namespace)
    return [item for item in items if item.namespace == namespace]


def read_below(store: BaseStore, path: Namespace) -> Flow[list[Item]]:
    """Returns every item of every namespace that begins with a path."""
    items = yield from _read_pages(store, SearchOp(path))
    # Some stores find more than was asked for.
    return [item for item in items if item.namespace[: len(path)] == path]


def read_namespaces(
    store: BaseStore, path: Namespace, *, max_depth: int | None = None
) -> Flow[list[Namespace]]:
    """Returns every namespace that begins with a path, in which `*` stands for any label.

    With `max_depth`, their first labels alone, each beginning once.
    """
    condition = MatchCondition("prefix", path)
    namespaces = yield from _read_pages(store, ListNamespacesOp((condition,), max_depth))
    # Some stores find more than was asked for.
    return [namespace for namespace in namespaces if begins_with(namespace, path)]


def _read_pages(store: BaseStore, op: SearchOp | ListNamespacesOp) -> Flow[list[Any]]:
    """Returns all results of an operation, however many there are."""
    results: list[Any] = []
    while True:
        [result] = yield from batch(store, [op._replace(limit=PAGE, offset=len(results))])
        page = cast("list[Any]", result)
        results += page
        if len(page) < PAGE:
            return results


# Writing


def chunks(elements: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yields elements in parts that one batch takes."""
    for first in range(0, len(elements), CHUNK):
        yield elements[first : first + CHUNK]


def write(store: BaseStore, puts: Sequence[PutOp]) -> Flow[None]:
    """Writes or deletes any number of items."""
    for chunk in chunks(puts):
        yield from batch(store, chunk)


def write_messages(store: BaseStore, puts: Sequence[PutOp]) -> Flow[None]:
    """Writes messages; where they cannot be embedded, without an index.

    They are not found by meaning then.
    """
    try:
        yield from write(store, puts)
    except Exception as error:
        if not any(put.index for put in puts):
            raise
        _log.warning("Written again without the index: %s: %s", type(error).__name__, error)
        yield from write(store, [_without_index(put) for put in puts])


def _without_index(put: PutOp) -> PutOp:
    if put.index:
        return put._replace(index=False)
    return put


def deletions_of(items: Iterable[Item]) -> list[PutOp]:
    """Returns the writes that delete items."""
    return [PutOp(item.namespace, item.key, None) for item in items]


def delete_below(
    store: BaseStore,
    path: Namespace,
    last: str,
    first_key: str,
    *,
    uncounted: Collection[str] = (),
) -> Flow[int]:
    """Deletes every item of every namespace that begins with a path.

    Returns how many items there were, without those of uncounted namespaces.

    Args:
        store: where they are.
        path: the labels that the namespaces begin with; `*` stands for any label.
        last: the label of namespaces that go after the others.
        first_key: the key of the item of those namespaces that goes before all others.
        uncounted: the labels of namespaces whose items are made from others.
    """
    count = 0
    while True:
        namespaces = yield from read_namespaces(store, path)
        head_places = [GetOp(namespace, first_key) for namespace in namespaces if last in namespace]
        results = yield from batch(store, head_places)
        heads = [item for item in results if isinstance(item, Item)]
        yield from write(store, deletions_of(heads))

        deleted = len(heads)
        count += len(heads)
        for namespace in sorted(namespaces, key=lambda labels: last in labels):
            items = yield from read_all(store, namespace)
            yield from write(store, deletions_of(items))
            deleted += len(items)
            if not set(namespace).intersection(uncounted):
                count += len(items)
        if not deleted:  # what somebody wrote at the same moment is deleted, too
            return count


# Exporting


def export_below(store: BaseStore, path: Namespace, *, without: Collection[str]) -> Flow[list[str]]:
    """Returns every item below a path as a line of JSON.

    A line says in words what it is, and of which conversation. Messages come first, in their order,
    as LangChain's dicts, but for damaged ones: they are exported as they are stored.

    Args:
        store: where they are.
        path: the labels that their namespaces begin with.
        without: the labels of namespaces that are left out.
    """
    items = yield from read_below(store, path)
    kept = [item for item in items if not set(item.namespace).intersection(without)]
    exported = [_exported(item, path) for item in kept]
    exported.sort(key=lambda line: line.sort_key)
    return [line.text for line in exported]


@dataclass(frozen=True)
class _ExportedItem:
    """A line of an export."""

    sort_key: tuple[Any, ...]
    """Messages first, then by namespace, place of the message, and key."""
    text: str


def _exported(item: Item, path: Namespace) -> _ExportedItem:
    labels = item.namespace[len(path) :]
    value = from_stored(item.value)
    order: tuple[Any, ...] = ()
    if {"place", "text"} <= value.keys():
        with suppress(TypeError, ValueError, RecursionError):
            message = json.loads(value["text"])
            order = Place.model_validate(value["place"]).order
            others = {key: part for key, part in value.items() if key not in ("place", "text")}
            value = {"message": message, **others}

    line: dict[str, Any] = {"kind": "/".join(name for name in labels if not name.endswith("~"))}
    for name in labels:
        if name.endswith("~"):
            line["conversation_id"] = unlabelled(name)
    line |= {
        "key": item.key,
        "value": value,
        "created_at": item.created_at.isoformat(),
        "updated_at": item.updated_at.isoformat(),
    }
    return _ExportedItem(
        sort_key=("message" not in value, item.namespace, order, item.key), text=json.dumps(line)
    )
