"""What a store over Chroma writes: items with their vectors, later ends of life, and the end of it. Flows, no I/O.

An item says how many vectors it has, and is written before and deleted after them: whenever a writer is killed,
no vector is left that no item knows of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.stores.chroma_engine import BUCKETS, Engine, Row, by_bucket
from langchain_ctxbudget.stores.dense import Vector
from langchain_ctxbudget.stores.matching import expired_query, fingerprint, prefix_fields
from langchain_ctxbudget.stores.operations import Put, Record, expiry

SWEEP_SIZE = 100
"""Expired items that are read at once, with their values."""


def put(chroma: Engine, puts: Mapping[str, Put], vectors: Mapping[str, Vector], now: int) -> Flow[None]:
    """Write and delete items, by id."""
    old = yield from chroma.read(puts)
    for number, ids in by_bucket(puts).items():
        known = {id_: old[id_] for id_ in ids if id_ in old}
        yield from _forget(chroma, number, known.values(), {id_: len(puts[id_].to_embed) for id_ in ids})
        yield from chroma.delete("items", number, [id_ for id_ in known if puts[id_].text is None])
        items: list[Row] = []
        dense: list[Row] = []
        for id_ in ids:
            one = puts[id_]
            if one.text is None:
                continue
            # An item that has expired and is still there is a new one.
            created = known[id_].created if id_ in known and known[id_].lives(now) else now
            record = Record(id_, one.text, created, now, len(one.to_embed), one.ttl, expiry(one.ttl, now))
            below = prefix_fields(one.namespace)
            items.append((id_, [1.0], {**record.fields(), **below}))
            fields = {"of": fingerprint(one.text), **below}
            dense += ((f"{id_}#{n}", vectors[text], fields) for n, text in enumerate(one.to_embed))
        yield from chroma.write("items", number, items)
        yield from chroma.write("vectors", number, dense)


def _forget(chroma: Engine, number: int, records: Iterable[Record], kept: Mapping[str, int]) -> Flow[None]:
    stale = [f"{record.id}#{n}" for record in records for n in range(kept.get(record.id, 0), record.vectors)]
    yield from chroma.delete("vectors", number, stale)


def refresh(chroma: Engine, ids: Iterable[str], now: int) -> Flow[None]:
    """Let items that were read live for their whole time from now on, as they are when their bucket is free."""
    for number, group in by_bucket(ids).items():
        yield from chroma.alone([number], _refresh(chroma, number, group, now))


def _refresh(chroma: Engine, number: int, ids: Iterable[str], now: int) -> Flow[None]:
    records = yield from chroma.read(ids)
    living = (record for record in records.values() if record.ttl is not None and record.lives(now))
    yield from chroma.update(number, {record.id: {"expires": expiry(record.ttl, now)} for record in living})


def sweep(chroma: Engine, number: int, now: int) -> Flow[int]:
    """Delete what has expired in a bucket; returns how many items.

    An item that another process renews at this moment stays.
    """
    where, swept = expired_query(now), 0
    while True:
        found = yield from chroma.get("items", number, where=where, include=["metadatas"], limit=SWEEP_SIZE)
        if not found["ids"]:
            return swept
        records = [Record.from_fields(*pair) for pair in zip(found["ids"], found["metadatas"], strict=True)]
        yield from _forget(chroma, number, records, {})
        yield from chroma.delete("items", number, found["ids"], where)
        swept += len(records)


def sweep_all(chroma: Engine, now: int) -> Flow[int]:
    """Delete what has expired, one bucket after another, so that nobody waits long."""
    swept = 0
    for number in range(BUCKETS):
        swept += yield from chroma.alone([number], sweep(chroma, number, now))
    return swept
