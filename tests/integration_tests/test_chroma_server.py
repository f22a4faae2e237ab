"""`ChromaStore` on a server that the test starts: requests, event loops, processes, failures."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import httpx
import pytest
from langgraph.store.base import BaseStore, GetOp, IndexConfig, PutOp, SearchOp

from langchain_ctxbudget.errors import BlockedLoopError, EmbeddingMismatchError, StoreDataError, StoreError
from langchain_ctxbudget.stores import chroma_clients, chroma_engine
from langchain_ctxbudget.stores.chroma import ChromaStore
from tests.integration_tests.model_servers import ModelServer, as_json
from tests.servers import LOOPBACK, new_chroma_database
from tests.store_contract import INDEX, SqlStoreContract, StoreFactory, embed, keys

pytestmark = LOOPBACK

Open = Callable[..., ChromaStore]


@pytest.fixture
def open_store(chroma_server: str) -> Iterator[Open]:
    """Opens stores on one new database of the server."""
    with ExitStack() as stack:
        place = {"url": chroma_server, "database": stack.enter_context(new_chroma_database(chroma_server))}
        yield lambda **arguments: stack.enter_context(ChromaStore(**(place | arguments)))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests that go out, blocking ones and, after "await", the others."""
    lines: list[str] = []
    blocking, awaited = httpx.Client.request, httpx.AsyncClient.request

    def note(how: str, method: Any, url: Any) -> None:
        lines.append(f"{how}{method} {str(url).rpartition('/')[2]}")

    def request(self: httpx.Client, method: str, url: str, **named: Any) -> httpx.Response:
        note("", method, url)
        return blocking(self, method, url, **named)

    async def arequest(self: httpx.AsyncClient, method: str, url: str, **named: Any) -> httpx.Response:
        note("await ", method, url)
        return await awaited(self, method, url, **named)

    monkeypatch.setattr(httpx.Client, "request", request)
    monkeypatch.setattr(httpx.AsyncClient, "request", arequest)
    return lines


class TestContract(SqlStoreContract):
    @pytest.fixture
    def store_factory(self, open_store: Open) -> StoreFactory:
        def factory(index: IndexConfig | None) -> BaseStore:
            return open_store(index=index)

        return factory


# Requests.


def test_few_requests(open_store: Open, asked: list[str]) -> None:
    open_store(index=INDEX)
    asked.clear()
    store = open_store(index=INDEX)
    assert asked == ["post collections"]
    store.put(("a", "b"), "k", {"text": "night"})
    asked.clear()
    store.batch([PutOp(("a", "b"), f"k{n}", {"text": f"word{n}"}) for n in range(500)])
    assert asked == ["post get", "post upsert", "post upsert"]
    asked.clear()
    store.batch([GetOp(("a", "b"), f"k{n}") for n in range(500)])
    assert asked == ["post get"]
    asked.clear()
    store.batch([SearchOp(("a", "b"))])
    assert asked == ["post get"]
    asked.clear()
    store.batch([SearchOp(("a", "b"), query="word3", limit=20)])
    assert asked == ["post get", "post get"]
    asked.clear()
    store.delete(("a", "b"), "k")
    assert asked == ["post get", "post delete", "post delete"]


def test_awaited_methods_use_the_native_async_client(open_store: Open, asked: list[str]) -> None:
    store = open_store(index=INDEX)
    asked.clear()

    async def main() -> None:
        await store.aput(("a", "b"), "k", {"text": "night train"})
        assert keys(await store.asearch(("a", "b"), query="night")) == ["k"]
        assert await store.aget(("a", "b"), "k")
        await store.adelete(("a", "b"), "k")

    asyncio.run(main())
    assert asked
    assert all(line.startswith("await ") for line in asked)


def test_new_event_loop_asks_nothing_twice(open_store: Open, asked: list[str]) -> None:
    store = open_store()
    store.put(("a", "b"), "k", {"v": 1})
    asked.clear()
    for n in range(3):
        asyncio.run(store.aput(("a", "b"), "k", {"v": n}))
    assert asked == ["await post get", "await post upsert"] * 3


# Event loops.


def test_many_event_loops_one_after_another(open_store: Open) -> None:
    store = open_store()
    for n in range(10):
        asyncio.run(store.aput(("n", "x"), str(n), {"v": n}))
        gc.collect()  # an open connection would warn, which fails the test
    assert len(store.search((), limit=100)) == 10
    assert not chroma_clients._keepers


def test_event_loops_side_by_side(open_store: Open) -> None:
    store = open_store(index=INDEX)

    async def lane(number: int) -> None:
        async def one(n: int) -> None:
            await store.aput(("n", str(number % 3)), f"{number}-{n}", {"text": f"word{n}"})
            assert await store.asearch(("n", str(number % 3)), query=f"word{n}")

        await asyncio.gather(*(one(n) for n in range(8)))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: asyncio.run(lane(number)), range(6)))
    assert len(store.search((), limit=100)) == 48


def test_store_may_be_closed_in_its_event_loop(open_store: Open) -> None:
    async def main() -> None:
        with open_store() as store:
            await store.aget(("n",), "k")
        for _ in range(100):
            await asyncio.sleep(0.01)
            if not chroma_clients._keepers:
                break
        assert not chroma_clients._keepers
        async with open_store() as store:
            await store.aget(("n",), "k")
        assert not chroma_clients._keepers
        with pytest.raises(StoreError, match="closed"):
            await store.aget(("n",), "k")

    asyncio.run(main())


def test_forgotten_store_leaves_no_connection(chroma_server: str) -> None:
    async def main() -> None:
        store = ChromaStore(url=chroma_server)
        await store.aget(("n",), "k")
        del store
        gc.collect()

    asyncio.run(main())
    gc.collect()
    assert not chroma_clients._keepers


async def test_store_may_be_closed_outside_its_event_loop(open_store: Open) -> None:
    """The fixture closes it when the loop stands still: the connections end with the loop."""
    assert await open_store().aget(("n",), "k") is None


async def test_threads_and_tasks_leave_an_item_and_its_vector_in_step(open_store: Open) -> None:
    store = open_store(index=INDEX)

    def work(lane: int) -> None:
        for n in range(8):
            store.put(("n", "x"), "shared", {"text": f"lane{lane} word{n}"})
            assert keys(store.search(("n", "x"), query="word1")) == ["shared"]

    async def awork(lane: int) -> None:
        for n in range(8):
            await store.aput(("n", "x"), "shared", {"text": f"lane{lane} word{n}"})
            assert keys(await store.asearch(("n", "x"), query="word1")) == ["shared"]

    await asyncio.gather(*(awork(n) for n in range(3)), *(asyncio.to_thread(work, n) for n in range(3)))


async def test_blocking_call_that_would_wait_for_its_own_loop_is_an_error(open_store: Open) -> None:
    store = open_store()
    writing = asyncio.create_task(store.aput(("n", "x"), "k", {"v": 1}))
    await asyncio.sleep(0.001)
    with pytest.raises(BlockedLoopError, match="aput"):
        store.put(("n", "x"), "k", {"v": 2})
    await writing
    store.put(("n", "x"), "k", {"v": 2})


async def test_cancelled_write_is_whole(open_store: Open) -> None:
    store = open_store(index=INDEX)
    await store.aput(("n", "x"), "k", {"text": "old"})
    for n in range(12):
        writing = asyncio.create_task(store.aput(("n", "x"), "k", {"text": f"word{n}"}))
        await asyncio.sleep(0.006 * n)
        writing.cancel()
        await asyncio.wait([writing])
        item = await store.aget(("n", "x"), "k")
        [found] = await store.asearch(("n", "x"), query=item.value["text"])
        assert found.score == pytest.approx(1.0)


# Several processes.

WRITER = """
import sys
from langchain_ctxbudget.stores.chroma import ChromaStore
from tests.store_contract import INDEX
url, database, lane = sys.argv[1:]
with ChromaStore(url=url, database=database, index=INDEX) as store:
    for n in range(10):
        store.put(("n", "x"), f"{lane}-{n}", {"text": f"lane{lane} word{n}"})
        store.put(("n", "x"), "shared", {"text": f"lane{lane} word{n}"})
"""


def test_processes_write_at_the_same_time(chroma_server: str) -> None:
    with new_chroma_database(chroma_server) as database:
        command = [sys.executable, "-c", WRITER, chroma_server, database]
        writers = [subprocess.Popen([*command, str(n)], stderr=subprocess.PIPE) for n in range(3)]
        assert [(writer.communicate()[1], writer.returncode) for writer in writers] == [(b"", 0)] * 3
        with ChromaStore(url=chroma_server, database=database, index=INDEX) as store:
            assert len(store.search(("n", "x"), limit=1_000)) == 31
            found = store.search(("n", "x"), query="lane2 word3", limit=1_000)
            assert {*keys(found)} - {"shared"} == {f"{lane}-{n}" for lane in range(3) for n in range(10)}


def test_what_another_store_writes_is_seen(open_store: Open) -> None:
    one, two = open_store(index=INDEX), open_store(index=INDEX)
    assert two.search((), query="night") == []
    one.put(("n", "x"), "k", {"text": "night train"})
    assert keys(two.search((), query="night")) == ["k"]


# Sizes.


def test_batch_of_more_than_a_request_takes(open_store: Open) -> None:
    store = open_store()
    store.batch([PutOp(("n", "x"), str(n), {"v": "\x01" * 1_000_000}) for n in range(8)])
    assert [len(item.value["v"]) for item in store.search(("n", "x"), limit=20)] == [1_000_000] * 8


def test_value_that_no_request_takes_is_a_typed_error(open_store: Open) -> None:
    store = open_store()
    with pytest.raises(StoreError, match="too large"):
        store.put(("n", "x"), "k", {"v": "x" * 42_000_000})
    assert store.get(("n", "x"), "k") is None


@pytest.mark.parametrize("text", ["\0", "\ud83d", "\x7f\x1b"])
def test_characters_that_others_refuse(open_store: Open, text: str) -> None:
    store = open_store()
    store.put(("n", "x"), text, {"text": text, text: 1})
    assert store.get(("n", "x"), text).value == {"text": text, text: 1}


def test_more_items_than_one_read_takes(open_store: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chroma_engine, "READ_SIZE", 10)
    store = open_store(index=INDEX)
    store.batch([PutOp(("n", "x"), str(n), {"text": f"word{n}"}) for n in range(35)])
    assert len(store.search(("n", "x"), limit=100)) == 35
    assert len(store.search(("n", "x"), query="word1", limit=100)) == 35
    assert len(store.batch([GetOp(("n", "x"), str(n)) for n in range(35)])) == 35


# Chroma Cloud, as far as a server of one machine can show it.


def test_reads_and_writes_keep_to_the_quotas_of_the_cloud(open_store: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    bodies: list[dict[str, Any]] = []
    blocking = httpx.Client.request

    def request(self: httpx.Client, method: str, url: str, **named: Any) -> httpx.Response:
        if url.endswith(("/get", "/upsert", "/delete")):
            bodies.append(json.loads(named["content"]))
        return blocking(self, method, url, **named)

    monkeypatch.setattr(httpx.Client, "request", request)
    monkeypatch.setattr(chroma_clients, "CLOUD_HOSTS", ("127.0.0.1",))
    store = open_store(index=INDEX)
    store.batch([PutOp(("n", "x"), str(n), {"text": f"word{n}"}) for n in range(700)])
    assert len(store.search(("n", "x"), limit=1_000)) == 700
    assert len(store.search(("n", "x"), query="word1", limit=1_000)) == 700
    assert store.list_namespaces() == [("n", "x")]
    store.batch([PutOp(("n", "x"), str(n), None) for n in range(700)])
    assert len(bodies) > 15
    for body in bodies:
        assert len(body.get("ids") or []) <= 300
        assert body.get("ids") or body["limit"] <= 300


def test_quota_that_is_exceeded_is_a_typed_error() -> None:
    refusal = {"error": "ChromaError", "message": "Quota exceeded: 'Metadata value size' exceeded quota limit"}
    with (
        ModelServer({}, otherwise=as_json(refusal, 422)) as server,
        pytest.raises(StoreError, match=r"A quota of http.* is exceeded.*Metadata value size.*run a server"),
    ):
        ChromaStore(url=server.url)


# Headers, addresses, failures.


def test_every_store_sends_its_own_headers() -> None:
    with ModelServer({}, otherwise=as_json({"error": "Forbidden", "message": "no"}, 403)) as server:
        for token in ("one", "two"):
            with pytest.raises(StoreError, match="no"):
                ChromaStore(url=server.url, headers={"x-chroma-token": token}, tenant="t", database="d")
        assert [asked.headers["x-chroma-token"] for asked in server.asked] == ["one", "two"]
        assert server.lines == ["POST /api/v2/tenants/t/databases/d/collections"] * 2


def test_every_store_sends_its_own_headers_from_one_event_loop(chroma_server: str) -> None:
    sent: list[str] = []

    async def note(request: httpx.Request) -> None:
        sent.append(request.headers["x-chroma-token"])

    async def main() -> None:
        async with AsyncExitStack() as stack:
            for token in ("one", "two"):
                store = ChromaStore(url=chroma_server, headers={"x-chroma-token": token})
                await stack.enter_async_context(store)
                assert store._chroma.server
                client = (await store._chroma.server.here())._server._get_client()  # type: ignore[attr-defined]
                client.event_hooks = {"request": [note]}
                await store.aget(("n",), "k")

    asyncio.run(main())
    assert list(dict.fromkeys(sent)) == ["one", "two"]


def test_certificates_are_checked_in_both_forms() -> None:
    server = chroma_clients.Server("https://127.0.0.1:1", {}, "t", "d")
    assert server._about["chroma_server_ssl_verify"] is True
    server.close()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def test_server_that_is_not_there_is_named() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(StoreError, match=rf"{url} cannot be reached.*chroma run"):
        ChromaStore(url=url)


@pytest.mark.parametrize("form", ["sync", "async"])
def test_server_that_has_gone_is_named(open_store: Open, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store()
    gone = f"http://127.0.0.1:{free_port()}/api/v2"
    assert store._chroma.server
    monkeypatch.setattr(store._chroma.server._blocking, "_api_url", gone)
    monkeypatch.setitem(store._chroma.server._about, "chroma_server_host", gone.removesuffix("/api/v2"))
    with pytest.raises(StoreError, match="cannot be reached"):
        asyncio.run(store.aget(("n",), "k")) if form == "async" else store.get(("n",), "k")


def test_server_that_does_not_answer_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chroma_clients, "TIMEOUT", (1.0, 0.2, 0.2, None))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        begin = time.monotonic()
        with pytest.raises(StoreError, match="does not answer"):
            ChromaStore(url=f"http://127.0.0.1:{listener.getsockname()[1]}")
        assert time.monotonic() - begin < 5


def test_unknown_database_is_named(chroma_server: str) -> None:
    with pytest.raises(StoreError, match="nowhere"):
        ChromaStore(url=chroma_server, database="nowhere")


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host", "", "http://"])
def test_what_is_no_address_of_a_server(url: str) -> None:
    with pytest.raises(StoreError, match="no URL of a Chroma server"):
        ChromaStore(url=url)


def test_a_store_has_one_place(tmp_path: Any) -> None:
    with pytest.raises(StoreError, match="one of them"):
        ChromaStore(tmp_path, url="http://127.0.0.1:1")


def test_password_in_the_address_is_not_shown(chroma_server: str) -> None:
    with ChromaStore(url=chroma_server.replace("://", "://ada:secret@")) as store:
        assert chroma_server in repr(store)
        assert "secret" not in repr(store)


def test_other_embeddings_are_refused(open_store: Open) -> None:
    open_store(index=INDEX)
    with pytest.raises(EmbeddingMismatchError, match=r"64 dimensions.*32 dimensions"):
        open_store(index={"dims": 32, "embed": embed})


def test_store_of_a_later_version_is_refused(open_store: Open) -> None:
    client = open_store()._chroma.client
    client.get_collection("ctxbudget-store", embedding_function=None).modify(metadata={"layout": 99})
    with pytest.raises(StoreDataError, match="layout 99"):
        open_store()
