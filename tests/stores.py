"""Every store that the package runs on, by name: new and empty, for blocking or for awaited use."""

import hashlib
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import Any, cast
from uuid import uuid4

import pytest
from langgraph.store.base import BaseStore, IndexConfig, Op, Result
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import AsyncPostgresStore, PostgresStore
from langgraph.store.postgres.base import PostgresIndexConfig
from psycopg import AsyncConnection
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool

from langchain_ctxbudget import ChromaStore
from tests.servers import LOOPBACK, new_chroma_database, new_postgres_schema

ON_THIS_MACHINE = ("memory", "chroma", "chroma-folder")
ON_SERVERS = (pytest.param("chroma-server", marks=LOOPBACK), "postgres")
EVERY_STORE = (*ON_THIS_MACHINE, *ON_SERVERS)

NewStore = Callable[..., BaseStore]
"""From an index configuration, or nothing, to a new, empty store."""


def embed(texts: list[str]) -> list[list[float]]:
    vectors = []
    for text in texts:
        vector = [0.0] * 64
        for word in text.lower().split():
            vector[hashlib.sha256(word.encode()).digest()[0] % 64] += 1.0
        vectors.append(vector)
    return vectors


INDEX: IndexConfig = {"dims": 64, "embed": embed, "fields": ["text"]}


def keys(items: list[Any]) -> list[str]:
    return [item.key for item in items]


class Failing(InMemoryStore):
    """Fails where it is told to."""

    fails: Callable[[Op], object] = staticmethod(lambda _: False)

    def _checked(self, ops: Iterable[Op]) -> list[Op]:
        todo = list(ops)
        if any(map(self.fails, todo)):
            raise OSError("the disk is gone")
        return todo

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        return super().batch(self._checked(ops))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return await super().abatch(self._checked(ops))


def place_of(op: Op) -> Collection[str]:
    return getattr(op, "namespace", None) or getattr(op, "namespace_prefix", ())


class _Pool(AsyncConnectionPool[AsyncConnection[DictRow]]):
    async def getconn(self, timeout: float | None = None) -> AsyncConnection[DictRow]:  # noqa: ASYNC109 - theirs
        await self.open()
        return await super().getconn(timeout)


@contextmanager
def blocking_stores(kind: str, request: pytest.FixtureRequest) -> Iterator[NewStore]:
    """Makes new, empty stores of one kind, and closes them at the end.

    Args:
        kind: its name.
        request: of the fixture or test, to ask for what the kind needs: a folder, a server.
    """
    with ExitStack() as stack:

        def new(index: IndexConfig | None = None) -> BaseStore:
            if kind == "memory":
                return InMemoryStore(index=index)
            if kind == "postgres":
                return stack.enter_context(_postgres_store(request, index))[0]
            where: dict[str, Any] = {}
            if kind == "chroma-folder":
                where["path"] = request.getfixturevalue("tmp_path") / uuid4().hex
            if kind == "chroma-server":
                where["url"] = request.getfixturevalue("chroma_server")
                where["database"] = stack.enter_context(new_chroma_database(where["url"]))
            return stack.enter_context(ChromaStore(**where, index=index))

        yield new


@asynccontextmanager
async def new_stores(
    kind: str, request: pytest.FixtureRequest, *, asynchronous: bool = False
) -> AsyncIterator[NewStore]:
    """Makes stores as `blocking_stores` does, or asynchronous ones.

    Of Postgres that is another class, and its stores are bound to the event loop in which they were
    made.
    """
    if kind != "postgres" or not asynchronous:
        with blocking_stores(kind, request) as new:
            yield new
        return
    async with AsyncExitStack() as stack:

        def new_postgres(index: IndexConfig | None = None) -> BaseStore:
            _, dsn = stack.enter_context(_postgres_store(request, index))
            options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
            pool = _Pool(dsn, min_size=1, max_size=4, kwargs=options, open=False)
            stack.push_async_callback(pool.close)
            return AsyncPostgresStore(pool, index=cast("PostgresIndexConfig | None", index))

        yield new_postgres


@contextmanager
def _postgres_store(
    request: pytest.FixtureRequest, index: IndexConfig | None
) -> Iterator[tuple[PostgresStore, str]]:
    with (
        new_postgres_schema(request.getfixturevalue("postgres")) as dsn,
        PostgresStore.from_conn_string(
            dsn, index=cast("PostgresIndexConfig | None", index)
        ) as store,
    ):
        store.setup()
        yield store, dsn
