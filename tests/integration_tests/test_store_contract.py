"""The contract of a store on every back end; LangGraph's own keep it, so the contract is right."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.store.base import GetOp
from langgraph.store.postgres import AsyncPostgresStore, PostgresStore

from langchain_ctxbudget import ContextPipeline
from tests.integration_tests.conftest import Run
from tests.servers import LOOPBACK
from tests.store_contract import INDEX, SqlStoreContract, Store, StoreContract
from tests.stores import new_stores

SCOPE: dict[str, Any] = {"user_id": "ada", "conversation_id": "c"}
POSTGRES_DIFFERS = {
    "test_filters_of_objects": "takes every object in a filter for operators, and has no equality with a missing field",
    "test_numbers_are_ordered_as_numbers": "orders as text, numbers included: '10' is below '9'",
    "test_missing_and_other_kinds_are_not_in_order": "orders as text, numbers included: '10' is below '9'",
}
"""Where LangGraph's Postgres stores are not as the contract wants: the beginning of a test's name, and what they do."""


class TestInMemoryStore(StoreContract):
    kind = "memory"


class TestChromaInMemory(SqlStoreContract):
    kind = "chroma"


@pytest.mark.slow
class TestChromaFolder(SqlStoreContract):
    kind = "chroma-folder"


@pytest.mark.slow
@LOOPBACK
class TestChromaServer(SqlStoreContract):
    kind = "chroma-server"


@pytest.mark.slow
class TestPostgres(SqlStoreContract):
    kind = "postgres"

    @pytest.fixture(params=[False, True], ids=["sync", "async"])
    def asynchronous(self, request: pytest.FixtureRequest) -> bool:
        return bool(request.param)

    @pytest.fixture(autouse=True)
    def known_difference(self, request: pytest.FixtureRequest) -> None:
        for beginning, reason in POSTGRES_DIFFERS.items():
            if request.node.name.startswith(beginning):
                request.applymarker(pytest.mark.xfail(reason=reason, raises=(AssertionError, ValueError), strict=True))

    async def test_async_methods_are_those_of_the_async_store(self, store: Store, asynchronous: bool) -> None:
        assert type(store.store) is (AsyncPostgresStore if asynchronous else PostgresStore)


@pytest.mark.parametrize(
    "kind",
    ["memory", "chroma", *(pytest.param(kind, marks=[LOOPBACK, pytest.mark.slow]) for kind in ["chroma-server"])],
)
async def test_awaited_methods_give_what_the_others_give(kind: str, request: pytest.FixtureRequest) -> None:
    async with new_stores(kind, request) as new:
        blocking, awaited = Store(new(INDEX), asynchronous=False), Store(new(INDEX), asynchronous=True)
        for number in range(12):
            for store in (blocking, awaited):
                await store("put", ("n", str(number % 2)), f"k{number}", {"text": "x" + " y" * number, "n": number})
                await store("delete", ("n", "0"), "k4")
        for call in (
            lambda store: store("get", ("n", "1"), "k3"),
            lambda store: store("search", ("n",), filter={"n": {"$gt": 2}}, limit=5),
            lambda store: store("search", ("n", "0"), query="y x", limit=4),
            lambda store: store("batch", [GetOp(("n", "0"), "k4"), GetOp(("n", "0"), "k2")]),
        ):
            one, other = [await call(store) for store in (blocking, awaited)]
            assert repr(one).partition("created_at")[0] == repr(other).partition("created_at")[0]
        for store in (blocking, awaited):
            assert await store("list_namespaces") == [("n", "0"), ("n", "1")]


# Either of LangGraph's Postgres classes under either form of the pipeline.


@pytest.mark.slow
async def test_an_awaited_pipeline_on_the_blocking_postgres_store(request: pytest.FixtureRequest) -> None:
    async with new_stores("postgres", request) as new:
        pipeline = ContextPipeline(store=new())
        await pipeline.aadd_messages([HumanMessage("My bike is blue."), AIMessage("Nice!")], **SCOPE)
        context = await pipeline.aassemble("Which colour is my bike?", **SCOPE)
    assert [message.type for message in context.messages] == ["human", "ai", "human"]


@pytest.mark.slow
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
