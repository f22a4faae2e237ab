"""Vectors that a search leaves in memory: the same answers as from Chroma, whatever was written since."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.store.base import PutOp

from langchain_ctxbudget.errors import StoreError
from langchain_ctxbudget.stores import vector_cache
from langchain_ctxbudget.stores.chroma import ChromaStore
from langchain_ctxbudget.stores.vector_cache import VectorCache, Vectors
from tests.store_contract import INDEX, keys

PARTS: Any = {**INDEX, "fields": ["parts[*]"]}
NAMESPACES = [("a",), ("a", "x"), ("a", "x", "deep"), ("b", "x"), ("b",)]
PREFIXES = [(), ("a",), ("a", "x"), ("b",), ("c",)]
WORDS = st.lists(st.sampled_from(["one", "two", "one two", "three", ""]), max_size=3)
WRITE = st.tuples(st.sampled_from(NAMESPACES), st.sampled_from("klm"), st.none() | WORDS)


def answers(store: ChromaStore) -> list[Any]:
    found = [store.search(prefix, query="one three", limit=50) for prefix in PREFIXES]
    return [[(item.namespace, item.key, item.value, item.score) for item in items] for items in found]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(WRITE, min_size=1, max_size=4), min_size=1, max_size=8))
def test_answers_are_those_of_a_store_that_remembers_nothing(batches: list[list[tuple[Any, str, Any]]]) -> None:
    with ChromaStore(index=PARTS) as store:
        for batch in batches:
            store.batch([PutOp(ns, key, None if parts is None else {"parts": parts}) for ns, key, parts in batch])
            from_memory = answers(store)
            assert store._chroma.vectors
            store._chroma.vectors.clear()
            assert from_memory == answers(store)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ChromaStore]:
    with ChromaStore(tmp_path, index=INDEX) as opened:
        opened.put(("a", "x"), "k", {"text": "night train"})
        yield opened


def test_second_search_asks_for_no_vectors(store: ChromaStore, monkeypatch: pytest.MonkeyPatch) -> None:
    assert keys(store.search(("a", "x"), query="night")) == ["k"]
    [bucket] = [each for name, each in store._chroma.collections.items() if "vectors" in name]
    monkeypatch.setattr(bucket, "get", None)
    assert keys(store.search(("a", "x"), query="night")) == ["k"]


def test_what_another_store_of_the_folder_writes_is_found(store: ChromaStore, tmp_path: Path) -> None:
    store.search((), query="night")
    with ChromaStore(tmp_path, index=INDEX) as other:
        other.put(("a", "x"), "l", {"text": "night"})
    with ChromaStore(tmp_path) as unindexed:
        unindexed.put(("a", "x"), "k", {"text": "bread"})
    assert keys(store.search((), query="night")) == ["l"]


def test_swept_items_leave_it(store: ChromaStore) -> None:
    store.put(("a", "x"), "ends", {"text": "night"}, ttl=0)
    store.search(("a", "x"), query="night")
    assert store._chroma.vectors
    assert store._chroma.vectors.get(("a", "x")).ids == ['["a", "x", "k"]#0', '["a", "x", "ends"]#0']  # type: ignore[union-attr]
    store.sweep_ttl()
    assert store._chroma.vectors.get(("a", "x")).ids == ['["a", "x", "k"]#0']  # type: ignore[union-attr]


def test_failed_write_empties_it(store: ChromaStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_named: Any) -> None:
        raise OSError("disk")

    store.search(("a", "x"), query="night")
    assert store._chroma.vectors
    [bucket] = [each for name, each in store._chroma.collections.items() if "vectors" in name]
    with monkeypatch.context() as patch:
        patch.setattr(bucket, "upsert", fail)
        with pytest.raises(StoreError, match="disk"):
            store.put(("a", "x"), "l", {"text": "night"})
    assert store._chroma.vectors.get(("a", "x")) is None


def test_client_of_the_caller_has_none_because_others_may_write() -> None:
    client = chromadb.EphemeralClient()
    with ChromaStore(client=client, index=INDEX) as store:
        assert store._chroma.vectors is None
    client.delete_collection("ctxbudget-store")


def ten_vectors(label: str) -> Vectors:
    vectors = Vectors()
    vectors.put([f'["{label}", "{n}"]#0' for n in range(10)], np.zeros((10, 64)), [0] * 10)
    return vectors


def test_what_was_searched_longest_ago_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_cache, "CACHE_BYTES", 2 * ten_vectors("a").size)
    cache = VectorCache()
    cache.keep(("a",), ten_vectors("a"))
    cache.keep(("b",), ten_vectors("b"))
    cache.get(("a",))
    cache.keep(("c",), ten_vectors("c"))
    assert [label for label in "abc" if cache.get((label,))] == ["a", "c"]


def test_too_many_vectors_push_nothing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    small = ten_vectors("a")
    monkeypatch.setattr(vector_cache, "CACHE_BYTES", small.size)
    cache = VectorCache()
    cache.keep(("a",), small)
    large = ten_vectors("a")
    large.put(['["b", "k"]#0'], np.zeros((1, 64)), [0])
    cache.keep((), large)
    assert (cache.get(("a",)), cache.get(())) == (small, None)


def test_it_stays_within_its_bound_while_writes_add_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_cache, "CACHE_BYTES", 25_000)
    cache = VectorCache()
    cache.keep(("a",), Vectors())
    for n in range(100):
        cache.put([f'["a", "{n}"]#0'], [[0.0] * 64], [0])
    assert cache.get(("a",)) is None
