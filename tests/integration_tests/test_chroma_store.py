"""`ChromaStore` beyond the contract: values, embeddings, filters, requests that make no sense."""

import json
from collections.abc import Iterator
from typing import Any

import chromadb
import pytest
from chromadb.errors import InternalError
from langgraph.store.base import GetOp, InvalidNamespaceError, PutOp, SearchOp

from langchain_ctxbudget import ChromaStore
from langchain_ctxbudget.errors import EmbeddingMismatchError, InputError, StoreError
from tests.stores import INDEX, keys


@pytest.fixture
def store() -> Iterator[ChromaStore]:
    with ChromaStore() as opened:
        yield opened


# -- values


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({"nested": [{"a": [1, 1.0, True, None, "x"]}]}, id="nested"),
        pytest.param({"big": 2**200, "small": 5e-324, "negative zero": -0.0}, id="numbers"),
        pytest.param(
            {"$set": {"$gt": 1}, "": "empty key", "nul\0": "nul\0", "half": "\ud83d"}, id="texts"
        ),
    ],
)
def test_any_json_is_a_value(store: ChromaStore, value: dict[str, Any]) -> None:
    store.put(("n",), "k", value)
    assert json.dumps(store.get(("n",), "k").value) == json.dumps(value)


def endless() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["self"] = value
    return value


@pytest.mark.parametrize(
    ("value", "error"),
    [
        pytest.param({"v": {1, 2}}, "set is not JSON", id="a set"),
        pytest.param({"v": float("nan")}, "not JSON", id="not a number"),
        pytest.param(endless(), "Circular", id="a circle"),
    ],
)
def test_what_is_not_json_is_no_value(
    store: ChromaStore, value: dict[str, Any], error: str
) -> None:
    with pytest.raises(InputError, match=error):
        store.put(("n",), "k", value)


def test_a_put_takes_no_time_to_live(store: ChromaStore) -> None:
    with pytest.raises(NotImplementedError, match="TTL"):
        store.put(("n",), "k", {}, ttl=1)


def test_a_batch_takes_no_time_to_live(store: ChromaStore) -> None:
    with pytest.raises(InputError, match="without `ttl`"):
        store.batch([PutOp(("n",), "k", {}, ttl=1)])


@pytest.mark.slow
def test_more_items_than_sqlite_takes_in_one_statement(store: ChromaStore) -> None:
    store.batch([PutOp(("n",), str(number), {"n": number}) for number in range(32_770)])
    assert len(store.search(("n",), limit=40_000)) == 32_770


# -- embeddings


def unreachable(texts: list[str]) -> list[list[float]]:
    raise ConnectionError


def too_short(texts: list[str]) -> list[list[float]]:
    return [[float("nan")] * 8 for _ in texts]


def no_numbers(texts: list[str]) -> list[list[float]]:
    return [[float("nan")] * 64 for _ in texts]


@pytest.mark.parametrize(
    ("embed", "error"),
    [
        (unreachable, ConnectionError),
        (too_short, EmbeddingMismatchError),
        (no_numbers, StoreError),
    ],
)
def test_embeddings_that_fail_leave_nothing_behind(embed: Any, error: type[Exception]) -> None:
    with ChromaStore(index={**INDEX, "embed": embed}) as store:
        with pytest.raises(error):
            store.put(("n",), "k", {"text": "x"})
        assert store.get(("n",), "k") is None


def test_a_write_that_failed_leaves_no_vector_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    upsert = chromadb.Collection.upsert

    def upsert_and_fail(self: chromadb.Collection, **arguments: Any) -> None:
        upsert(self, **arguments)
        raise InternalError("broken")

    with ChromaStore(index=INDEX) as store:
        store.put(("a", "x"), "k", {"text": "night train"})
        assert keys(store.search(("a", "x"), query="night")) == ["k"]

        with monkeypatch.context() as patch:
            patch.setattr(chromadb.Collection, "upsert", upsert_and_fail)
            with pytest.raises(StoreError, match="broken"):
                store.put(("a", "x"), "l", {"text": "night"})

        assert keys(store.search(("a", "x"), query="night")) == ["l", "k"]


# -- lifetimes


def test_a_store_in_memory_is_its_own() -> None:
    with ChromaStore() as store, ChromaStore() as other:
        store.put(("n",), "k", {"v": 1})
        assert other.get(("n",), "k") is None


def test_a_closed_store_answers_nothing() -> None:
    store = ChromaStore()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.get(("n",), "k")


# -- filters


@pytest.fixture(scope="module")
def filtered_store() -> Iterator[ChromaStore]:
    with ChromaStore() as opened:
        yield opened


@pytest.mark.parametrize(
    ("value", "condition", "matches"),
    [
        (True, True, True),
        (1, 1.0, True),
        ({"$gt": 1}, {"$eq": {"$gt": 1}}, True),
        ({"a": 1}, {"a": 1}, True),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ({"a": 1, "b": 2}, {"$eq": {"a": 1}}, False),
        (None, {"$gt": 1}, False),
        ("b", {"$gt": "a"}, True),
        ("5", {"$gt": 4}, False),
        ("x", {"a": 1}, False),
    ],
)
def test_a_filter_finds_a_value(
    filtered_store: ChromaStore, value: Any, condition: Any, *, matches: bool
) -> None:
    filtered_store.put(("n",), "k", {"v": value})
    items = filtered_store.search(("n",), filter={"v": condition})
    assert keys(items) == (["k"] if matches else [])


@pytest.mark.parametrize("condition", [{"$in": [1]}, {"$ne": 1, "b": 2}])
def test_an_unknown_operator_of_a_filter_is_an_error(
    filtered_store: ChromaStore, condition: Any
) -> None:
    filtered_store.put(("n",), "k", {"v": 1})
    with pytest.raises(InputError, match="Unknown operator"):
        filtered_store.search(("n",), filter={"v": condition})


# -- operations that make no sense


def test_a_value_that_makes_no_sense_spoils_its_batch(store: ChromaStore) -> None:
    with pytest.raises(InputError):
        store.batch([PutOp(("n",), "good", {}), PutOp(("n",), "k", {"v": {1}})])
    assert store.search(()) == []


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param(GetOp(("a.b",), "k"), id="a dot"),
        pytest.param(SearchOp(("",)), id="an empty label"),
        pytest.param(PutOp(("\0",), "k", {}), id="a null character"),
    ],
)
def test_a_namespace_that_makes_no_sense_spoils_its_batch(
    store: ChromaStore, operation: Any
) -> None:
    with pytest.raises(InvalidNamespaceError):
        store.batch([PutOp(("n",), "good", {}), operation])
    assert store.search(()) == []
