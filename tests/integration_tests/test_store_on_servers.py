"""The contract of a store on servers: `ChromaStore` over HTTP, and LangGraph's own Postgres stores as yardstick."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.store.base import GetOp, PutOp
from langgraph.store.postgres import AsyncPostgresStore, PostgresStore

from langchain_ctxbudget import ContextPipeline
from tests.integration_tests.conftest import Run
from tests.servers import LOOPBACK
from tests.store_contract import INDEX, SqlStoreContract, Store, keys
from tests.stores import NewStore, new_stores

SCOPE: dict[str, Any] = {"user_id": "ada", "conversation_id": "c"}

POSTGRES_DIFFERS = {
    "{'deep': {'er': True}}": "takes every object in a filter for operators: no equality with an object",
    "{'none': None}": "has no equality of None with a missing field",
    "test_numbers_are_ordered_as_numbers": "orders as text, numbers included: '10' is below '9'",
    "test_missing_and_other_kinds_are_not_in_order": "orders as text, numbers included: '10' is below '9'",
}
"""Where LangGraph's Postgres stores are not as the contract wants: part of a test's name, and what they do."""


class OnAServer(SqlStoreContract):
    """Makes the stores in the event loop of the test, to which asynchronous Postgres stores are bound."""

    kind: str

    @pytest.fixture
    async def store_factory(self, request: pytest.FixtureRequest, asynchronous: bool) -> AsyncIterator[NewStore]:
        async with new_stores(self.kind, request, asynchronous=asynchronous) as new:
            yield new

    @pytest.fixture
    async def store(self, store_factory: NewStore, asynchronous: bool) -> Store:
        return Store(store_factory(), asynchronous=asynchronous)

    @pytest.fixture
    async def indexed(self, store_factory: NewStore, asynchronous: bool) -> Store:
        return Store(store_factory(INDEX), asynchronous=asynchronous)


@LOOPBACK
class TestChromaServer(OnAServer):
    kind = "chroma-server"


class TestPostgres(OnAServer):
    kind = "postgres"

    @pytest.fixture(autouse=True)
    def known_difference(self, request: pytest.FixtureRequest) -> None:
        for part, reason in POSTGRES_DIFFERS.items():
            if part in request.node.name:
                request.applymarker(pytest.mark.xfail(reason=reason, raises=(AssertionError, ValueError), strict=True))

    async def test_async_methods_are_those_of_the_async_store(self, store: Store, asynchronous: bool) -> None:
        assert type(store.store) is (AsyncPostgresStore if asynchronous else PostgresStore)

    # What Postgres refuses, and what whoever writes to it has to know. No contract: `ChromaStore` takes all of it.

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("k", {"text": "nul \0"}),
            ("nul \0", {}),
            ("k", {"text": "half a pair \ud800"}),
            ("k", {"number": float("nan")}),
            ("".join(map(chr, range(0x4E00, 0x4E00 + 1000))), {}),
        ],
        ids=["nul in a value", "nul in a key", "lone surrogate", "nan", "key of 3,000 bytes"],
    )
    async def test_an_item_that_postgres_refuses_spoils_its_whole_batch(
        self, store: Store, key: str, value: dict[str, Any]
    ) -> None:
        with pytest.raises((psycopg.Error, UnicodeEncodeError)):
            await store("batch", [PutOp(("good",), "k", {}), PutOp(("bad",), key, value)])
        assert keys(await store("search", ())) == []

    async def test_postgres_takes_16_383_puts_at_once(self, store: Store) -> None:
        puts = [PutOp(("n",), str(number), {}) for number in range(16_384)]
        with pytest.raises(psycopg.OperationalError, match="number of parameters"):
            await store("batch", puts)
        await store("batch", puts[1:])
        refused, taken = await store("batch", [GetOp(("n",), "0"), GetOp(("n",), "1")])
        assert (refused, taken.key) == (None, "1")

    async def test_postgres_gives_a_large_float_back_as_a_whole_number(self, store: Store) -> None:
        await store("put", ("n",), "k", {"number": 1e23})
        assert (await store("get", ("n",), "k")).value == {"number": 10**23} != {"number": 1e23}


# Either of LangGraph's Postgres classes under either form of the pipeline.


async def test_an_awaited_pipeline_on_the_blocking_postgres_store(request: pytest.FixtureRequest) -> None:
    async with new_stores("postgres", request) as new:
        pipeline = ContextPipeline(store=new())
        await pipeline.aadd_messages([HumanMessage("My bike is blue."), AIMessage("Nice!")], **SCOPE)
        context = await pipeline.aassemble("Which colour is my bike?", **SCOPE)
    assert [message.type for message in context.messages] == ["human", "ai", "human"]


def test_a_blocking_pipeline_on_the_awaited_postgres_store(request: pytest.FixtureRequest, run: Run) -> None:
    """From another thread than that of its event loop."""

    async def in_its_loop() -> list[str]:
        async with new_stores("postgres", request, asynchronous=True) as new:
            pipeline = ContextPipeline(store=new())

            def turn() -> list[str]:
                pipeline.add_messages([HumanMessage("My bike is blue."), AIMessage("Nice!")], **SCOPE)
                return [message.type for message in pipeline.assemble("Which colour?", **SCOPE).messages]

            with ThreadPoolExecutor() as threads:
                return await asyncio.get_running_loop().run_in_executor(threads, turn)

    assert run(in_its_loop()) == ["human", "ai", "human"]
