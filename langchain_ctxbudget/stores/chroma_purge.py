"""What Chroma keeps of deleted records, and how it lets go of them.

Chroma writes to a log first, and keeps what a collection has not taken over from it: up to the last 100 writes of each,
deleted values among them. It has no call that empties the log, but further writes do.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import get_args

from langchain_ctxbudget.errors import StoreError
from langchain_ctxbudget.flow import Call, Flow
from langchain_ctxbudget.stores.chroma_engine import BUCKETS, SYNC_THRESHOLD, Engine, Kind, Row
from langchain_ctxbudget.stores.folder import DATABASE_FILE
from langchain_ctxbudget.stores.matching import Namespace, buckets_below, item_id
from langchain_ctxbudget.stores.operations import Record


def purge(chroma: Engine, prefix: Namespace, dims: int | None) -> Flow[None]:
    """Have the log emptied of the buckets below a prefix, and the free pages of a folder's database.

    Args:
        chroma: the engine.
        prefix: of namespaces.
        dims: of the vectors, where there may be some.
    """
    for number in buckets_below(prefix, BUCKETS):
        for kind in get_args(Kind):
            length = 1 if kind == "items" else dims
            if length and (yield from chroma.exists(kind, number)):
                yield from chroma.whole(partial(_fill, chroma, kind, number, length))
    if chroma.folder is not None:
        folder = chroma.folder

        async def asynchronous() -> None:
            _vacuum(folder)  # reached in a worker thread only: a folder has no server

        yield Call(lambda: _vacuum(folder), asynchronous)


def _fill(chroma: Engine, kind: Kind, number: int, length: int) -> Flow[None]:
    """Write items whose time was over long ago, which nobody is shown, and delete them."""
    rows: list[Row] = []
    for n in range(SYNC_THRESHOLD + 1):
        filler = Record(item_id(("ctxbudget-purge",), str(n)), "{}", 0, 0, 0, ttl=1.0, expires=0)
        items = kind == "items"
        rows.append((filler.id if items else f"{filler.id}#0", [0.0] * length, filler.fields() if items else {"of": 0}))
    yield from chroma.write(kind, number, rows)
    yield from chroma.delete(kind, number, [id_ for id_, _, _ in rows])


def _vacuum(folder: Path) -> None:
    """Write the database anew, without free pages; the caller has it to itself."""
    try:
        with closing(sqlite3.connect(folder / DATABASE_FILE, isolation_level=None)) as connection:
            connection.execute("VACUUM")
    except sqlite3.Error as error:
        raise StoreError(
            f"The database of the store {folder} could not be vacuumed ({error}): what was deleted may still be on its "
            f"disk. Close the store and run `chroma vacuum --path {folder} --force`."
        ) from error
