"""LangGraph stores as a whole: many items at once, and whether they search by meaning."""

import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

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
from langchain_ctxbudget.stores.base import Place, stored, unlabelled

Namespace = tuple[str, ...]
PAGE = 10_000
"""Items per search: every page reads the namespace again."""
CHUNK = 1_000
DATABASE_FILE = "chroma.sqlite3"
_log = logging.getLogger(__name__)


class PrivateStore(InMemoryStore):
    """LangGraph's store in memory, of a pipeline that was given none."""


def has_index(store: BaseStore) -> bool:
    """Returns whether a store searches by meaning, as LangGraph's stores and `ChromaStore` tell."""
    return bool(getattr(store, "index_config", None))


def embeddings_name(embeddings: Embeddings) -> str:
    """Returns the name of embeddings in a store: their model, else their function or class."""
    if isinstance(embeddings, EmbeddingsLambda):
        function = getattr(embeddings, "func", None) or embeddings.afunc
        return str(getattr(function, "__name__", type(function).__name__))
    names = (getattr(embeddings, name, None) for name in ("model", "model_name"))
    return next(
        (name for name in names if isinstance(name, str) and name), type(embeddings).__name__
    )


def begins_with(namespace: Namespace, path: Namespace) -> bool:
    """Returns whether a namespace begins with the labels of a path, in which `*` stands for any one."""
    pairs = zip(namespace, path, strict=False)
    return len(namespace) >= len(path) and all(wanted in ("*", label) for label, wanted in pairs)


def read_all(store: BaseStore, namespace: Namespace) -> Flow[list[Item]]:
    """Returns every item of a namespace."""
    return [
        item for item in (yield from read_below(store, namespace)) if item.namespace == namespace
    ]


def read_below(store: BaseStore, path: Namespace) -> Flow[list[Item]]:
    """Returns every item of every namespace that begins with a path.

    Some stores find more than was asked for.
    """
    return [
        item
        for item in (yield from _every(store, SearchOp(path)))
        if item.namespace[: len(path)] == path
    ]


def read_namespaces(store: BaseStore, path: Namespace) -> Flow[list[Namespace]]:
    """Returns every namespace that begins with a path, in which `*` stands for any label."""
    found = yield from _every(store, ListNamespacesOp((MatchCondition("prefix", path),)))
    return [one for one in found if begins_with(one, path)]  # here, too, some stores find more


def _every(store: BaseStore, op: SearchOp | ListNamespacesOp) -> Flow[list[Any]]:
    found: list[Any] = []
    while True:
        [result] = yield from batch(store, [op._replace(limit=PAGE, offset=len(found))])
        found += (page := cast("list[Any]", result))
        if len(page) < PAGE:
            return found


def write(store: BaseStore, puts: Sequence[PutOp]) -> Flow[None]:
    """Writes or deletes any number of items."""
    for first in range(0, len(puts), CHUNK):
        yield from batch(store, puts[first : first + CHUNK])


def write_messages(store: BaseStore, puts: Sequence[PutOp]) -> Flow[None]:
    """Writes messages, without an index where they cannot be embedded.

    They are not found by meaning then.
    """
    try:
        yield from write(store, puts)
    except Exception as error:
        if not any(put.index for put in puts):
            raise
        _log.warning("Written again without the index: %s: %s", type(error).__name__, error)
        yield from write(store, [put._replace(index=False) if put.index else put for put in puts])


def delete_below(
    store: BaseStore, path: Namespace, last: str, first_key: str, *, derived: str = ""
) -> Flow[int]:
    """Deletes every item of every namespace that begins with a path, in which `*` stands for any label.

    Namespaces with the label `last` go after the others, but for their item `first_key`, which goes
    first. Returns how many items there were, without those of namespaces with the label `derived`,
    which are made from the others.
    """
    count = 0
    while True:
        namespaces = yield from read_namespaces(store, path)
        heads = yield from batch(
            store, [GetOp(one, first_key) for one in namespaces if last in one]
        )
        there = [item for item in heads if isinstance(item, Item)]
        yield from write(store, [PutOp(item.namespace, item.key, None) for item in there])
        found = len(there)
        records = len(there)
        for namespace in sorted(namespaces, key=lambda one: last in one):
            items = yield from read_all(store, namespace)
            yield from write(store, [PutOp(namespace, item.key, None) for item in items])
            found += len(items)
            if derived not in namespace:
                records += len(items)
        count += records
        if not found:  # what somebody wrote at the same moment is deleted, too
            return count


def export_below(store: BaseStore, path: Namespace, *, without: str) -> Flow[list[str]]:
    """Returns every item of every namespace that begins with a path and has not this label, as lines of JSON.

    A line says in words what it is, and of which conversation. Messages come first, in their order,
    as LangChain's dicts, but for damaged ones: they are exported as they are stored.
    """
    lines = []
    for item in (yield from read_below(store, path)):
        if without in item.namespace:
            continue
        below = item.namespace[len(path) :]
        of = [("conversation_id", unlabelled(part)) for part in below if part.endswith("~")]
        value = stored(item.value)
        order: tuple[Any, ...] = ()
        if {"place", "text"} <= value.keys():
            with suppress(TypeError, ValueError, RecursionError):
                message = json.loads(value["text"])
                order = Place.model_validate(value["place"]).order
                value = {"message": message} | {
                    key: value[key] for key in value if key not in ("place", "text")
                }
        kind = "/".join(part for part in below if not part.endswith("~"))
        times = {
            "created_at": item.created_at.isoformat(),
            "updated_at": item.updated_at.isoformat(),
        }
        line = json.dumps({"kind": kind, **dict(of), "key": item.key, "value": value, **times})
        lines.append((("message" not in value, item.namespace, order, item.key), line))
    return [line for _, line in sorted(lines)]
