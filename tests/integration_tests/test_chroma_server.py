"""`ChromaStore` on a server that the test starts.

Requests, event loops, processes, sizes, failures.
"""

import asyncio
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from langgraph.store.base import GetOp, PutOp, SearchOp

from langchain_ctxbudget import ChromaStore
from langchain_ctxbudget.errors import EmbeddingMismatchError, StoreError
from langchain_ctxbudget.stores import chroma_opening
from tests.servers import LOOPBACK, new_chroma_database
from tests.stores import INDEX, embed

pytestmark = LOOPBACK

Open = Callable[..., ChromaStore]


@pytest.fixture
def open_store(chroma_server: str) -> Iterator[Open]:
    """Opens stores on one new database of the server."""
    with ExitStack() as stack:
        place = {
            "url": chroma_server,
            "database": stack.enter_context(new_chroma_database(chroma_server)),
        }
        yield lambda **arguments: stack.enter_context(ChromaStore(**(place | arguments)))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """The requests that go out: the last part of their address, and their body."""
    requests: list[tuple[str, Any]] = []
    usual = httpx.Client.request

    def request(self: httpx.Client, method: str, url: str, **named: Any) -> httpx.Response:
        requests.append((url.rpartition("/")[2], json.loads(named.get("content") or "null")))
        return usual(self, method, url, **named)

    monkeypatch.setattr(httpx.Client, "request", request)
    return requests


def test_few_requests(open_store: Open, asked: list[tuple[str, Any]]) -> None:
    def during(*ops: Any) -> list[str]:
        asked.clear()
        store.batch(ops)
        return [name for name, _ in asked]

    open_store(index=INDEX)
    asked.clear()
    store = open_store(index=INDEX)
    assert [name for name, _ in asked] == ["collections"]
    store.put(("a", "b"), "k", {"text": "night"})
    puts = (PutOp(("a", "b"), f"k{n}", {"text": f"word{n}"}) for n in range(500))
    assert during(*puts) == ["get", "upsert"]
    assert during(*(GetOp(("a", "b"), f"k{n}") for n in range(500))) == ["get"]
    assert during(SearchOp(("a", "b"))) == ["get", "get"], "ids, items"
    assert during(SearchOp(("a", "b"), query="word3", limit=20)) == ["get", "get", "get"], (
        "ids, vectors, items"
    )
    assert during(PutOp(("a", "b"), "k", None)) == ["get", "delete"]
    asked.clear()
    asyncio.run(store.aput(("a", "b"), "k", {"v": 1}))
    assert [name for name, _ in asked] == ["get", "upsert"], "a new event loop asks nothing more"


async def test_cancelled_write_is_whole(open_store: Open) -> None:
    store = open_store(index=INDEX)
    await store.aput(("n", "x"), "k", {"text": "old"})
    for n in range(6):
        writing = asyncio.create_task(store.aput(("n", "x"), "k", {"text": f"word{n}"}))
        await asyncio.sleep(0.006 * n)
        writing.cancel()
        await asyncio.wait([writing])
        await store.aput(("n", "y"), "other", {"text": "x"})
        [found] = store.search(("n", "x"), query="old")
        assert found.score == float(embed([found.value["text"]]) == embed(["old"]))


@pytest.mark.slow
def test_sizes(open_store: Open) -> None:
    store = open_store()
    store.batch([PutOp(("n", "x"), str(n), {"v": "\x01" * 1_000_000}) for n in range(5)])
    assert [len(item.value["v"]) for item in store.search(("n", "x"), limit=20)] == [1_000_000] * 5
    with pytest.raises(StoreError, match="Chroma failed"):
        store.put(("n", "x"), "k", {"v": "x" * 42_000_000})
    assert store.get(("n", "x"), "k") is None
    for text in ("\0", "\ud83d", "\x7f\x1b"):
        store.put(("n", "y"), text, {"text": text, text: 1})
        assert store.get(("n", "y"), text).value == {"text": text, text: 1}


def test_every_store_sends_its_own_headers_and_says_what_the_server_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refusal = {
        "error": "ChromaError",
        "message": "Quota exceeded: 'Metadata value size' exceeded quota limit",
    }
    sent: list[str] = []

    def refuse(self: httpx.Client, method: str, url: str, **_: Any) -> httpx.Response:
        sent.append(self.headers["x-chroma-token"])
        assert (method.upper(), url) == (
            "POST",
            "http://127.0.0.1:1/api/v2/tenants/t/databases/d/collections",
        )
        return httpx.Response(422, json=refusal, request=httpx.Request(method, url))

    monkeypatch.setattr(httpx.Client, "request", refuse)
    for token in ("one", "two"):
        with pytest.raises(StoreError, match="Metadata value size"):
            ChromaStore(
                url="http://127.0.0.1:1",
                headers={"x-chroma-token": token},
                tenant="t",
                database="d",
            )
    assert sent == ["one", "two"]


def test_what_is_no_place_of_a_store(
    chroma_server: str, tmp_path: Path, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[tuple[dict[str, Any], str]] = [
        *(
            ({"url": url}, "no URL of a Chroma server")
            for url in ("localhost:8000", "ftp://host", "", "http://")
        ),
        ({"url": chroma_server, "database": "nowhere"}, "nowhere"),
        ({"path": tmp_path, "url": "http://127.0.0.1:1"}, "one of them"),
        ({"path": "http://127.0.0.1:1"}, "Pass it as `url`"),
    ]
    for place, says in places:
        with pytest.raises(StoreError, match=says):
            ChromaStore(**place)
    open_store(index=INDEX)
    with pytest.raises(EmbeddingMismatchError, match=r"64 dimensions.*32 dimensions"):
        open_store(index={"dims": 32, "embed": embed})
    monkeypatch.setattr(chroma_opening, "TIMEOUT", (1.0, 0.2, 0.2, None))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(StoreError, match=rf"{url} cannot be reached.*chroma run"):
            ChromaStore(url=url)
        listener.listen()
        with pytest.raises(StoreError, match="does not answer") as error:
            ChromaStore(url=url.replace("://", "://ada:secret@"))
        assert url in str(error.value)
        assert "secret" not in str(error.value)
