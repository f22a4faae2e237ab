"""What a store over Chroma searches: by time, by similarity, and which namespaces there are. Flows, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from langgraph.store.base import ListNamespacesOp, SearchOp

from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.stores.chroma_engine import BUCKETS, READ_SIZE, Engine
from langchain_ctxbudget.stores.dense import Vector
from langchain_ctxbudget.stores.matching import (
    Namespace,
    buckets_below,
    expired_query,
    fingerprint,
    id_prefix,
    matches,
    parse_item_id,
    prefix_query,
)
from langchain_ctxbudget.stores.operations import Record, fixed_prefix, list_namespaces, page
from langchain_ctxbudget.stores.vector_cache import Vectors

Hit = tuple[Record, float | None]
"""A record that was found, and its similarity."""


def recent(chroma: Engine, op: SearchOp, now: int) -> Flow[list[Hit]]:
    """Items below a prefix, most recently updated first, then by id."""
    start, records = id_prefix(op.namespace_prefix), list[Record]()

    def use(found: Mapping[str, Any]) -> None:
        for id_, fields in zip(found["ids"], found["metadatas"], strict=True):
            record = Record.from_fields(id_, fields)
            if id_.startswith(start) and record.lives(now) and (not op.filter or matches(record.value(), op.filter)):
                records.append(record)

    yield from chroma.below("items", op.namespace_prefix, ["metadatas"], use)
    records.sort(key=lambda record: (-record.updated, record.id))
    return [(record, None) for record in page(records, op.limit, op.offset)]


def nearest(chroma: Engine, op: SearchOp, query: Vector, now: int) -> Flow[list[Hit]]:
    """Items below a prefix that have vectors, most similar first, then by id."""
    vectors = yield from _vectors(chroma, tuple(op.namespace_prefix))
    if not vectors.ids:
        return []
    # Rounded, because the last bits depend on how many vectors are multiplied at once.
    scores = np.clip(np.round(vectors.numbers @ query, 9), -1, 1)
    owners = (id_.rpartition("#")[0] for id_ in vectors.ids)
    hits = sorted(zip((-scores).tolist(), owners, vectors.versions, strict=True))
    wanted = max(op.offset, 0) + max(op.limit, 0)
    step = min(wanted + 50, READ_SIZE)
    best: dict[str, Hit] = {}
    for first in range(0, len(hits), step):
        if len(best) >= wanted:
            break
        some = hits[first : first + step]
        records = yield from chroma.read(owner for _, owner, _ in some)
        for negative, owner, version in some:
            record = records.get(owner)
            if record is None or owner in best or version != fingerprint(record.text) or not record.lives(now):
                continue
            if op.filter is None or matches(record.value(), op.filter):
                best[owner] = (record, -negative)
    return page(list(best.values()), op.limit, op.offset)


def _vectors(chroma: Engine, prefix: Namespace) -> Flow[Vectors]:
    """All vectors below a prefix."""
    if chroma.vectors and (known := chroma.vectors.get(prefix)):
        return known
    vectors, start = Vectors(), id_prefix(prefix)

    def use(found: Mapping[str, Any]) -> None:
        vectors.put(found["ids"], found["embeddings"], [fields["of"] for fields in found["metadatas"]])

    yield from chroma.below("vectors", prefix, ["embeddings", "metadatas"], use)
    for id_ in [id_ for id_ in vectors.ids if not id_.startswith(start)]:
        vectors.remove(id_)
    if chroma.vectors:
        chroma.vectors.keep(prefix, vectors)
    return vectors


def namespaces(chroma: Engine, op: ListNamespacesOp, now: int) -> Flow[list[Namespace]]:
    """The namespaces that hold something, read from the ids alone."""
    prefix = fixed_prefix(op.match_conditions or ())
    start, where, expired = id_prefix(prefix), prefix_query(prefix), expired_query(now)
    found: set[Namespace] = set()
    for number in buckets_below(prefix, BUCKETS):
        ids = yield from chroma.ids("items", number, where)
        gone = set((yield from chroma.ids("items", number, expired)) if ids else ())
        found |= {parse_item_id(id_)[0] for id_ in ids if id_.startswith(start) and id_ not in gone}
    return list_namespaces(op, found)
