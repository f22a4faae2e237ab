"""Lost connections: a typed error says so, and a pipeline over a pool goes on by itself."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import psycopg
import pytest
from langchain_core.messages import HumanMessage
from langgraph.store.base import InvalidNamespaceError, Result
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import AsyncPostgresStore, PostgresStore
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.errors import StoreError
from tests.servers import new_postgres_schema

SCOPE: Any = {"user_id": "ada", "conversation_id": "c1"}
SETTINGS = {"learn": False}
APPLICATION = "ctxbudget-lost"
"""The name by which the server knows the connections that are cut."""


@pytest.fixture
def schema(postgres: str) -> Iterator[str]:
    with new_postgres_schema(postgres) as dsn:
        with PostgresStore.from_conn_string(dsn) as store:
            store.setup()
        yield f"{dsn}&application_name={APPLICATION}"


def cut_connections(postgres: str) -> None:
    query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connections = connection.execute(query, (APPLICATION,)).fetchall()
    assert connections


# A connection to Postgres


CALLS: dict[str, Callable[[ContextPipeline], object]] = {
    "adding": lambda pipeline: pipeline.add_messages([HumanMessage("two")], **SCOPE),
    "reading": lambda pipeline: pipeline.get_messages(**SCOPE),
    "a page": lambda pipeline: pipeline.get_page(**SCOPE),
    "settings": lambda pipeline: pipeline.save_settings({"learn": False}, user_id="ada"),
    "an export": lambda pipeline: pipeline.export_user(user_id="ada"),
    "erasing": lambda pipeline: pipeline.erase_user(user_id="ada"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_lost_connection_is_a_store_error(
    schema: str, postgres: str, call: Callable[[ContextPipeline], object]
) -> None:
    with PostgresStore.from_conn_string(schema) as store:
        ContextPipeline(SETTINGS, store=store).add_messages([HumanMessage("one")], **SCOPE)
        cut_connections(postgres)

        with pytest.raises(StoreError, match=r"PostgresStore.*opened again") as raised:
            call(ContextPipeline(SETTINGS, store=store))

    assert isinstance(raised.value.__cause__, psycopg.Error)


AWAITED_CALLS: dict[str, Callable[[ContextPipeline], Awaitable[object]]] = {
    "adding": lambda pipeline: pipeline.aadd_messages([HumanMessage("two")], **SCOPE),
    "an export": lambda pipeline: pipeline.aexport_user(user_id="ada"),
}


@pytest.mark.parametrize("call", AWAITED_CALLS.values(), ids=AWAITED_CALLS)
async def test_a_lost_connection_is_a_store_error_when_awaited(
    schema: str, postgres: str, call: Callable[[ContextPipeline], Awaitable[object]]
) -> None:
    async with AsyncPostgresStore.from_conn_string(schema) as store:
        pipeline = ContextPipeline(SETTINGS, store=store)
        await pipeline.aadd_messages([HumanMessage("one")], **SCOPE)
        cut_connections(postgres)

        with pytest.raises(StoreError, match="AsyncPostgresStore") as raised:
            await call(pipeline)

    assert isinstance(raised.value.__cause__, psycopg.Error)


def test_over_a_pool_it_goes_on_and_nothing_is_lost(schema: str, postgres: str) -> None:
    options: dict[str, Any] = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    with ConnectionPool(schema, min_size=1, max_size=1, kwargs=options) as pool:
        pipeline = ContextPipeline(SETTINGS, store=PostgresStore(pool))
        pipeline.add_messages([HumanMessage("one")], **SCOPE)
        cut_connections(postgres)
        with pytest.raises(StoreError):
            pipeline.add_messages([HumanMessage("two")], **SCOPE)

        pipeline.add_messages([HumanMessage("two")], **SCOPE)

        texts = [message.text for message in pipeline.get_messages(**SCOPE)]
        assert texts == ["one", "two"]


# Any other store


class Raising(InMemoryStore):
    """A store of the application's own whose every use raises an error."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def batch(self, ops: Any) -> list[Result]:
        raise self.error


class DriverError(Exception):
    """As a database's driver has its own."""


def test_errors_of_any_driver_are_store_errors() -> None:
    error = DriverError("gone")

    with pytest.raises(StoreError, match="gone") as raised:
        ContextPipeline(SETTINGS, store=Raising(error)).get_messages(**SCOPE)

    assert raised.value.__cause__ is error


@pytest.mark.parametrize(
    "error", [TypeError("wrong"), OSError("chosen"), InvalidNamespaceError("wrong")], ids=repr
)
def test_errors_of_no_driver_stay_what_they_are(error: Exception) -> None:
    with pytest.raises(type(error)) as raised:
        ContextPipeline(SETTINGS, store=Raising(error)).get_messages(**SCOPE)

    assert raised.value is error
