"""`ChromaStore` on a server that the test starts.

Requests, event loops, processes, sizes, failures.
"""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
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
        database = stack.enter_context(new_chroma_database(chroma_server))

        def open_one(**arguments: Any) -> ChromaStore:
            store = ChromaStore(url=chroma_server, database=database, **arguments)
            return stack.enter_context(store)

        yield open_one


# -- few requests


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The last parts of the addresses that are asked."""
    names: list[str] = []
    usual = httpx.Client.request

    def noted_request(self: httpx.Client, method: str, url: str, **options: Any) -> httpx.Response:
        names.append(url.rpartition("/")[2])
        return usual(self, method, url, **options)

    monkeypatch.setattr(httpx.Client, "request", noted_request)
    return names


@pytest.fixture
def indexed_store(open_store: Open, requests: list[str]) -> ChromaStore:
    """A store with an item, which has asked nothing yet."""
    store = open_store(index=INDEX)
    store.put(("a", "b"), "k", {"text": "night"})
    requests.clear()
    return store


def test_to_open_a_database_again_takes_one_request(open_store: Open, requests: list[str]) -> None:
    open_store(index=INDEX)
    requests.clear()
    open_store(index=INDEX)
    assert requests == ["collections"]


def five_hundred_puts() -> list[PutOp]:
    return [PutOp(("a", "b"), f"k{number}", {"text": f"word{number}"}) for number in range(500)]


def test_many_puts_take_two_requests(indexed_store: ChromaStore, requests: list[str]) -> None:
    indexed_store.batch(five_hundred_puts())
    assert requests == ["get", "upsert"]


@pytest.mark.parametrize(
    ("operations", "names"),
    [
        pytest.param(
            [GetOp(("a", "b"), f"k{number}") for number in range(500)], ["get"], id="gets"
        ),
        pytest.param([SearchOp(("a", "b"))], ["get", "get"], id="search: ids, items"),
        pytest.param(
            [SearchOp(("a", "b"), query="word3", limit=20)],
            ["get", "get", "get"],
            id="search by meaning: ids, vectors, items",
        ),
        pytest.param([PutOp(("a", "b"), "k", None)], ["get", "delete"], id="delete"),
    ],
)
def test_operations_on_many_items_take_few_requests(
    indexed_store: ChromaStore, requests: list[str], operations: list[Any], names: list[str]
) -> None:
    indexed_store.batch(five_hundred_puts())
    requests.clear()
    indexed_store.batch(operations)
    assert requests == names


def test_a_new_event_loop_asks_nothing_more(
    indexed_store: ChromaStore, requests: list[str]
) -> None:
    asyncio.run(indexed_store.aput(("a", "b"), "k", {"v": 1}))
    assert requests == ["get", "upsert"]


# -- writes


@pytest.mark.parametrize("milliseconds", [0, 6, 12, 18, 24, 30])
async def test_a_cancelled_write_is_whole(open_store: Open, milliseconds: int) -> None:
    store = open_store(index=INDEX)
    await store.aput(("n", "x"), "k", {"text": "old"})

    writing = asyncio.create_task(store.aput(("n", "x"), "k", {"text": "new"}))
    await asyncio.sleep(milliseconds / 1_000)
    writing.cancel()
    await asyncio.wait([writing])

    await store.aput(("n", "y"), "other", {"text": "x"})
    [item] = store.search(("n", "x"), query="old")
    has_the_old_vector = item.score == 1.0
    assert has_the_old_vector == (item.value["text"] == "old")


@pytest.mark.slow
def test_large_values_come_back_whole(open_store: Open) -> None:
    store = open_store()
    value = {"v": "\x01" * 1_000_000}
    store.batch([PutOp(("n", "x"), str(number), value) for number in range(5)])
    items = store.search(("n", "x"), limit=20)
    assert [len(item.value["v"]) for item in items] == [1_000_000] * 5


@pytest.mark.slow
def test_a_value_that_is_too_large_is_an_error_and_not_there(open_store: Open) -> None:
    store = open_store()
    with pytest.raises(StoreError, match="Chroma failed"):
        store.put(("n", "x"), "k", {"v": "x" * 42_000_000})
    assert store.get(("n", "x"), "k") is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        pytest.param("\0", id="null character"),
        pytest.param("\ud83d", id="half a character"),
        pytest.param("\x7f\x1b", id="control characters"),
    ],
)
def test_strange_texts_come_back(open_store: Open, text: str) -> None:
    store = open_store()
    value = {"text": text, text: 1}
    store.put(("n", "y"), text, value)
    assert store.get(("n", "y"), text).value == value


# -- a server that refuses


@dataclass
class RefusingServer:
    """Answers every request with a quota that is exceeded."""

    tokens: list[str] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)

    def refuse(self, client: httpx.Client, method: str, url: str) -> httpx.Response:
        self.tokens.append(client.headers["x-chroma-token"])
        self.requests.append((method.upper(), url))
        message = "Quota exceeded: 'Metadata value size' exceeded quota limit"
        error = {"error": "ChromaError", "message": message}
        return httpx.Response(422, json=error, request=httpx.Request(method, url))


@pytest.fixture
def refusing_server(monkeypatch: pytest.MonkeyPatch) -> RefusingServer:
    server = RefusingServer()

    def request(self: httpx.Client, method: str, url: str, **_: Any) -> httpx.Response:
        return server.refuse(self, method, url)

    monkeypatch.setattr(httpx.Client, "request", request)
    return server


def open_with_token(token: str) -> ChromaStore:
    return ChromaStore(
        url="http://127.0.0.1:1", headers={"x-chroma-token": token}, tenant="t", database="d"
    )


def test_the_error_says_what_the_server_says(refusing_server: RefusingServer) -> None:
    with pytest.raises(StoreError, match="Metadata value size"):
        open_with_token("one")
    url = "http://127.0.0.1:1/api/v2/tenants/t/databases/d/collections"
    assert refusing_server.requests == [("POST", url)]


def test_every_store_sends_its_own_headers(refusing_server: RefusingServer) -> None:
    with pytest.raises(StoreError):
        open_with_token("one")
    with pytest.raises(StoreError):
        open_with_token("two")
    assert refusing_server.tokens == ["one", "two"]


# -- what is no place of a store


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host", "", "http://"])
def test_what_is_no_url_of_a_server_is_an_error(url: str) -> None:
    with pytest.raises(StoreError, match="no URL of a Chroma server"):
        ChromaStore(url=url)


def test_a_database_that_is_not_there_is_an_error(chroma_server: str) -> None:
    with pytest.raises(StoreError, match="nowhere"):
        ChromaStore(url=chroma_server, database="nowhere")


def test_a_store_has_a_folder_or_a_server(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="one of them"):
        ChromaStore(path=tmp_path, url="http://127.0.0.1:1")


def test_a_url_is_no_folder() -> None:
    with pytest.raises(StoreError, match="Pass it as `url`"):
        ChromaStore(path="http://127.0.0.1:1")


def test_a_database_refuses_other_embeddings(open_store: Open) -> None:
    open_store(index=INDEX)
    with pytest.raises(EmbeddingMismatchError, match=r"64 dimensions.*32 dimensions"):
        open_store(index={"dims": 32, "embed": embed})


@pytest.fixture
def bound_socket(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A socket on a free port, for stores that wait a fifth of a second."""
    monkeypatch.setattr(chroma_opening, "TIMEOUT", (1.0, 0.2, 0.2, None))
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound


def test_a_server_that_is_not_there_is_named(bound_socket: socket.socket) -> None:
    url = f"http://127.0.0.1:{bound_socket.getsockname()[1]}"
    with pytest.raises(StoreError, match=rf"{url} cannot be reached.*chroma run"):
        ChromaStore(url=url)


def test_a_server_that_is_silent_is_named_without_its_password(
    bound_socket: socket.socket,
) -> None:
    bound_socket.listen()
    place = f"127.0.0.1:{bound_socket.getsockname()[1]}"

    with pytest.raises(StoreError, match="does not answer") as error:
        ChromaStore(url=f"http://ada:secret@{place}")

    assert f"http://{place}" in str(error.value)
    assert "secret" not in str(error.value)
