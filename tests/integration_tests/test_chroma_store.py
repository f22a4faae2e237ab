"""`ChromaStore` in memory and in a folder: the contract, a model, and what only a real folder shows."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.embeddings import DeterministicFakeEmbedding
from langgraph.store.base import BaseStore, IndexConfig, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget.embeddings import LocalEmbeddings
from langchain_ctxbudget.errors import (
    EmbeddingMismatchError,
    InputError,
    StoreDataError,
    StoreError,
    StoreLockedError,
    StoreReadOnlyError,
)
from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.stores.chroma import ChromaStore
from tests.store_contract import INDEX, SqlStoreContract, StoreContract, StoreFactory, embed, keys


class TestInMemoryStore(StoreContract):
    """LangGraph's own store keeps the contract, so the contract is right."""

    @pytest.fixture
    def store_factory(self) -> StoreFactory:
        return lambda index: InMemoryStore(index=index)


class TestChromaInMemory(SqlStoreContract):
    @pytest.fixture
    def store_factory(self) -> Iterator[StoreFactory]:
        stores: list[ChromaStore] = []

        def factory(index: IndexConfig | None) -> BaseStore:
            stores.append(ChromaStore(index=index))
            return stores[-1]

        yield factory
        for store in stores:
            store.close()


class TestChromaFolder(SqlStoreContract):
    @pytest.fixture
    def store_factory(self, tmp_path: Path) -> Iterator[StoreFactory]:
        stores: list[ChromaStore] = []

        def factory(index: IndexConfig | None) -> BaseStore:
            stores.append(ChromaStore(tmp_path / "store", index=index))
            return stores[-1]

        yield factory
        for store in stores:
            store.close()


@pytest.fixture
def store() -> Iterator[ChromaStore]:
    with ChromaStore() as opened:
        yield opened


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own."""
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


# A model: random operations on the store and on a plain dict.

LABELS = st.sampled_from(["a", "b", "it's", "ü 😀", "x" * 300])
NAMESPACE = st.lists(LABELS, min_size=1, max_size=3).map(tuple)
KEY = st.sampled_from(["k", 'quote"', "$ne", "a.b", "nul\0", "line\n", ""]) | st.text(max_size=5)
LEAF = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
JSON = st.recursive(LEAF, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)
VALUE = st.dictionaries(st.sampled_from(["v", "w"]) | st.text(max_size=3), JSON, max_size=3)
OPERATION = st.tuples(NAMESPACE, KEY, st.none() | VALUE)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(OPERATION, min_size=1, max_size=5), max_size=8), NAMESPACE)
def test_behaves_like_a_dict(batches: list[list[tuple[Any, str, Any]]], prefix: tuple[str, ...]) -> None:
    model: dict[tuple[tuple[str, ...], str], tuple[int, dict[str, Any]]] = {}
    ticks = iter(range(1_000_000))
    with ChromaStore(clock=lambda: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=next(ticks))) as store:
        for turn, batch in enumerate(batches):
            store.batch([PutOp(*operation) for operation in batch])
            for namespace, key, value in batch:
                if value is None:
                    model.pop((namespace, key), None)
                else:
                    model[namespace, key] = (turn, value)
            for (namespace, key), (_, value) in model.items():
                found = store.get(namespace, key)
                assert found is not None
                assert json.dumps(found.value) == json.dumps(value)
        below = {place: kept for place, kept in model.items() if place[0][: len(prefix)] == prefix}
        found_items = store.search(prefix, limit=1000)
        assert {(item.namespace, item.key) for item in found_items} == set(below)
        turns = [below[item.namespace, item.key][0] for item in found_items]
        assert turns == sorted(turns, reverse=True)
        assert store.list_namespaces(limit=1000) == sorted({namespace for namespace, _ in model})


# Values, keys and labels are data.


@pytest.mark.parametrize(
    "value",
    [
        {"nested": [{"a": [1, 1.0, True, None, "x"]}]},
        {"big": 2**200, "small": 5e-324, "negative zero": -0.0},
        {"": "empty key", "$gt": 1, "chroma:document": "reserved", "a.b": {"c'\"": "\0\n\u2028"}},
        {"half of a pair": "\ud83d"},
        {"large": "x" * 1_000_000},
        {},
    ],
    ids=["nested", "numbers", "keys", "surrogate", "large", "empty"],
)
def test_values_are_read_back_as_they_were(store: ChromaStore, value: dict[str, Any]) -> None:
    store.put(("n",), "k", value)
    [found] = store.search(("n",))
    assert json.dumps(found.value) == json.dumps(value)


@pytest.mark.parametrize("key", ["'; DROP TABLE embeddings; --", "x" * 100_000, "\0", "😀\n", "", '["a"]', "\ud83d"])
def test_keys_and_labels_are_data(store: ChromaStore, key: str) -> None:
    namespace = ("n", key.replace("\0", "0") or "empty")
    store.put(namespace, key, {"v": 1})
    assert [(item.namespace, item.key) for item in store.search(namespace)] == [(namespace, key)]
    store.delete(namespace, key)
    assert store.search(()) == []


@pytest.mark.parametrize("bad", [float("nan"), {1, 2}, b"bytes", {1: "a"}, datetime.now(UTC)])
def test_what_is_not_json_is_refused_with_its_place(store: ChromaStore, bad: object) -> None:
    with pytest.raises(InputError, match="JSON"):
        store.put(("n",), "k", {"list": [bad]})
    assert store.get(("n",), "k") is None


@pytest.mark.slow
def test_more_items_than_sqlite_takes_in_one_statement(store: ChromaStore) -> None:
    store.batch([PutOp(("n",), str(n), {"n": n}) for n in range(33_000)])
    assert len(store.search(("n",), limit=40_000)) == 33_000


# Search.


def test_search_is_exact_where_texts_repeat() -> None:
    random = np.random.default_rng(0)
    vectors = {f"t{n}": random.normal(size=16) for n in range(500)} | {"yes": np.ones(16)}
    index: IndexConfig = {"dims": 16, "embed": lambda texts: [vectors[t].tolist() for t in texts], "fields": ["text"]}
    texts = [f"t{n}" for n in range(500)] + ["yes"] * 1500
    with ChromaStore(index=index) as store:
        store.batch([PutOp(("n",), f"{n:04}", {"text": text}) for n, text in enumerate(texts)])
        found = store.search(("n",), query="t7", limit=50)
    scores = {
        t: float(v @ vectors["t7"] / np.linalg.norm(v) / np.linalg.norm(vectors["t7"])) for t, v in vectors.items()
    }
    best = sorted((scores[text] for text in texts), reverse=True)[:50]
    assert [item.score for item in found] == pytest.approx(best, abs=1e-6)


def test_two_builds_give_the_same_list() -> None:
    texts = [f"word{n % 40} word{n % 7}" for n in range(300)]
    lists = []
    for order in (range(300), reversed(range(300))):
        with ChromaStore(index=INDEX) as store:
            for n in order:
                store.put(("n",), str(n), {"text": texts[n]})
            lists.append([(item.key, item.score) for item in store.search(("n",), query="word3 word5", limit=100)])
    assert lists[0] == lists[1]


def sentences(count: int) -> list[str]:
    """Sentences that differ, from words that repeat; one in ten is a short answer that many give."""
    random = np.random.default_rng(1)
    parts = [
        "I|we|my sister|the engineer|our neighbour|nobody|the whole team|a customer".split("|"),
        "booked|lost|repaired|sold|forgot|asked about|compared|painted|measured|recommends".split("|"),
        "a night train|the blue bicycle|three invoices|the database index|a wedding cake|an old map|two flights"
        "|the server logs|a pair of shoes|the tax form|her umbrella|the test suite".split("|"),
        "to Lisbon|in the garden|before lunch|for the second time|without a ticket|near the harbour|in 2019"
        "|after the meeting|because of the rain|on behalf of Ada|under pressure|with great care".split("|"),
    ]
    answers = ["yes", "thanks!", "No, not yet.", "Which one?"]
    return [
        answers[n % 4]
        if n % 10 == 0
        else f"{' '.join(part[random.integers(len(part))] for part in parts)}, note {n % 997}"
        for n in range(count)
    ]


@pytest.mark.slow
def test_search_of_ten_thousand_sentences_is_that_of_brute_force() -> None:
    texts, embeddings = sentences(10_000), LocalEmbeddings()
    order = np.random.default_rng(2).permutation(len(texts))
    queries = ["When does the night train to Lisbon leave?", "thanks", "who repaired the bicycle", texts[123], "2019"]
    vectors = np.asarray(embeddings.embed_documents(texts))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    index: IndexConfig = {"dims": 256, "embed": embeddings, "fields": ["text"]}
    builds = []
    for numbers in (range(len(texts)), order.tolist()):
        with ChromaStore(index=index) as store:
            store.batch([PutOp(("n", "x"), str(n), {"text": texts[n]}) for n in numbers])
            searches: list[Any] = [SearchOp(("n", "x"), query=query, limit=50) for query in queries]
            builds.append([[(item.key, item.score) for item in found] for found in store.batch(searches)])
    assert builds[0] == builds[1]
    for query, found in zip(queries, builds[0], strict=True):
        scores = vectors @ np.asarray(embeddings.embed_query(query))
        scores /= np.linalg.norm(embeddings.embed_query(query))
        assert [score for _, score in found] == pytest.approx(np.sort(scores)[::-1][:50].tolist(), abs=1e-6)
        assert [scores[int(key)] for key, _ in found] == pytest.approx([score for _, score in found], abs=1e-6)


def test_vectors_of_another_value_are_not_used(tmp_path: Path) -> None:
    """A writer that was killed between an item and its vectors leaves the old ones."""
    with ChromaStore(tmp_path, index=INDEX) as store:
        store.put(("n",), "k", {"text": "night train"})
        with ChromaStore(tmp_path) as unindexed:
            record = drive(unindexed._chroma.read(['["n", "k"]']))['["n", "k"]']
            fields: dict[str, Any] = record.fields() | {"value": '{"text":"bread"}'}
            [bucket] = [c for name, c in unindexed._chroma.collections.items() if "items" in name]
            bucket.update(ids=['["n", "k"]'], metadatas=[fields])
        assert store.get(("n",), "k").value == {"text": "bread"}
        assert store.search(("n",), query="night train") == []


def vectors_in(store: ChromaStore) -> int:
    return sum(bucket.count() for name, bucket in store._chroma.collections.items() if "vectors" in name)


def test_no_vector_outlives_its_text() -> None:
    index: IndexConfig = {"dims": 64, "embed": embed, "fields": ["parts[*]"]}
    with ChromaStore(index=index) as store:
        store.put(("n",), "shrinks", {"parts": ["a", "b", "c"]})
        store.put(("n",), "goes", {"parts": ["d", "e"]})
        assert vectors_in(store) == 5
        store.put(("n",), "shrinks", {"parts": ["f"]})
        store.delete(("n",), "goes")
        assert vectors_in(store) == 1
        store.put(("n",), "shrinks", {"parts": ["f"]}, index=False)
        assert vectors_in(store) == 0


def test_no_embedding_is_made_without_need() -> None:
    calls: list[str] = []

    def counted(texts: list[str]) -> list[list[float]]:
        calls.extend(texts)
        return embed(texts)

    with ChromaStore(index={"dims": 64, "embed": counted, "fields": ["text"]}) as store:
        store.batch([PutOp(("n",), key, {"text": "same"}) for key in "abc"])
        store.put(("n",), "d", {"text": "not indexed"}, index=False)
        store.put(("n",), "e", {"text": "  "})
        store.search(("n",))
        store.delete(("n",), "a")
    assert calls == ["same"]


async def test_asynchronous_embeddings_are_awaited() -> None:
    async def embed_later(texts: list[str]) -> list[list[float]]:
        await asyncio.sleep(0)
        return embed(texts)

    with ChromaStore(index={"dims": 64, "embed": embed_later, "fields": ["text"]}) as store:
        await store.aput(("n",), "k", {"text": "night train"})
        assert [item.score for item in await store.asearch(("n",), query="night train")] == pytest.approx([1.0])


def test_failing_embeddings_leave_nothing_behind() -> None:
    def fail(texts: list[str]) -> list[list[float]]:
        raise ConnectionError

    with ChromaStore(index={"dims": 64, "embed": fail, "fields": ["text"]}) as store:
        with pytest.raises(ConnectionError):
            store.put(("n",), "k", {"text": "x"})
        assert store.get(("n",), "k") is None


def test_vectors_of_the_wrong_length_are_refused() -> None:
    with ChromaStore(index={"dims": 8, "embed": embed, "fields": ["text"]}) as store:
        with pytest.raises(EmbeddingMismatchError, match=r"dims=8.*\[64\]"):
            store.put(("n",), "k", {"text": "x"})
        assert store.get(("n",), "k") is None


# Several stores, threads and lifetimes.


def test_default_stores_do_not_see_each_other() -> None:
    with ChromaStore() as one, ChromaStore() as two:
        one.put(("n",), "k", {"v": 1})
        assert two.get(("n",), "k") is None
        assert two.list_namespaces() == []


def test_default_store_does_not_meddle_with_the_clients_of_others(store: ChromaStore) -> None:
    other = chromadb.EphemeralClient()
    store.put(("n",), "k", {"v": 1})
    assert not [c.name for c in other.list_collections() if c.name.startswith("ctxbudget")]


def test_client_of_the_caller_is_used_and_left_open() -> None:
    client = chromadb.EphemeralClient()
    with ChromaStore(client=client) as store:
        store.put(("mine",), "k", {"v": 1})
    with ChromaStore(client=client) as again:
        assert again.get(("mine",), "k").value == {"v": 1}
        again.delete(("mine",), "k")


def test_closed_store_says_so() -> None:
    store = ChromaStore()
    store.close()
    store.close()
    assert repr(store).endswith("closed)")
    with pytest.raises(StoreError, match="closed"):
        store.get(("n",), "k")


@pytest.mark.slow
def test_memory_is_released_by_close_and_by_garbage_collection() -> None:
    done = run(
        """
import gc, sys
from langgraph.store.base import PutOp
from langchain_ctxbudget.stores.chroma import ChromaStore
def resident():
    gc.collect()
    return int(next(l for l in open("/proc/self/status") if l.startswith("VmRSS")).split()[1]) // 1024
def fill(close):
    store = ChromaStore()
    store.batch([PutOp(("n", str(n)), "k", {"v": "x" * 100_000}) for n in range(400)])
    grown = resident()
    if close:
        store.close()
        assert store is not None
    return grown
first = fill(True)
for n in range(6):
    last = fill(n % 2 == 0)
print(first, last)
"""
    )
    first, last = map(int, done.stdout.split())
    assert last < first * 2, done.stderr


def test_threads_lose_nothing(store: ChromaStore) -> None:
    def work(lane: int) -> None:
        for n in range(20):
            store.put(("n", str(lane)), str(n), {"v": n})
            store.search(("n",), limit=3)
            assert store.get(("n", str(lane)), str(n)).value == {"v": n}

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert len(store.search(("n",), limit=1000)) == 160


def test_threads_leave_an_item_and_its_vector_in_step() -> None:
    with ChromaStore(index=INDEX) as store:

        def work(lane: int) -> None:
            for n in range(25):
                store.put(("n",), "shared", {"text": f"lane{lane} word{n}"})
                found = store.search(("n",), query="word1")
                assert keys(found) == ["shared"]

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))


async def test_tasks_lose_nothing(store: ChromaStore) -> None:
    await asyncio.gather(*(store.aput(("n",), str(n), {"v": n}) for n in range(50)))
    assert len(await store.asearch(("n",), limit=100)) == 50


# A folder.


def test_reopened_folder_gives_the_same_answers(tmp_path: Path) -> None:
    def answers(store: ChromaStore) -> list[Any]:
        return [store.search(()), store.search((), query="word3", limit=20), store.list_namespaces()]

    with ChromaStore(tmp_path, index=INDEX) as store:
        for n in range(250):
            store.put(("n", str(n % 5)), str(n), {"text": f"word{n % 9} word{n % 4}"})
        before = answers(store)
    with ChromaStore(tmp_path, index=INDEX) as store:
        assert answers(store) == before


def test_two_stores_of_one_process_share_a_folder(tmp_path: Path) -> None:
    with ChromaStore(tmp_path) as one, ChromaStore(str(tmp_path / ".." / tmp_path.name)) as two:
        one.put(("n",), "k", {"v": 1})
        assert two.get(("n",), "k").value == {"v": 1}
        one.close()
        two.put(("n",), "k", {"v": 2})
        assert two.get(("n",), "k").value == {"v": 2}


OPEN = """
import sys
from langchain_ctxbudget.stores.chroma import ChromaStore
with ChromaStore(sys.argv[1]) as store:
    print([item.key for item in store.search(())])
    store.put(("n",), "theirs", {"v": 2})
"""


def test_second_process_is_refused_while_the_folder_is_open(tmp_path: Path) -> None:
    with ChromaStore(tmp_path):
        done = run(OPEN, str(tmp_path))
    assert done.returncode
    assert StoreLockedError.__name__ in done.stderr
    assert "Chroma server" in done.stderr


def test_second_process_is_refused_while_one_of_two_stores_is_open(tmp_path: Path) -> None:
    with ChromaStore(tmp_path):
        ChromaStore(tmp_path).close()
        assert StoreLockedError.__name__ in run(OPEN, str(tmp_path)).stderr


def test_processes_may_follow_each_other(tmp_path: Path) -> None:
    with ChromaStore(tmp_path) as store:
        store.put(("n",), "mine", {"v": 1})
    done = run(OPEN, str(tmp_path))
    assert done.stdout == "['mine']\n", done.stderr
    with ChromaStore(tmp_path) as store:
        assert keys(store.search(())) == ["theirs", "mine"]


def test_forgotten_store_frees_its_folder(tmp_path: Path) -> None:
    ChromaStore(tmp_path)
    gc.collect()
    assert run(OPEN, str(tmp_path)).returncode == 0


def test_killed_process_leaves_no_lock_and_every_finished_put(tmp_path: Path) -> None:
    done = run(
        """
import os, sys
from langchain_ctxbudget.stores.chroma import ChromaStore
store = ChromaStore(sys.argv[1])
for n in range(30):
    store.put(("n",), str(n), {"v": n})
os.kill(os.getpid(), 9)
""",
        str(tmp_path),
    )
    assert done.returncode == -9
    with ChromaStore(tmp_path) as store:
        assert len(store.search((), limit=100)) == 30


def test_other_embeddings_are_refused_by_name(tmp_path: Path) -> None:
    ChromaStore(tmp_path, index=INDEX).close()
    with pytest.raises(EmbeddingMismatchError, match=r"embed \(64.*DeterministicFakeEmbedding \(64"):
        ChromaStore(tmp_path, index={"dims": 64, "embed": DeterministicFakeEmbedding(size=64)})
    with pytest.raises(EmbeddingMismatchError, match=r"64 dimensions.*32 dimensions"):
        ChromaStore(tmp_path, index={"dims": 32, "embed": embed})
    ChromaStore(tmp_path, index=INDEX).close()


def test_indexed_folder_may_be_opened_without_index(tmp_path: Path) -> None:
    with ChromaStore(tmp_path, index=INDEX) as store:
        store.put(("n",), "old", {"text": "night train"})
    with ChromaStore(tmp_path) as store:
        store.put(("n",), "new", {"text": "bread"})
        assert [(item.key, item.score) for item in store.search((), query="night")] == [("new", None), ("old", None)]


def test_folder_may_get_an_index_later(tmp_path: Path) -> None:
    with ChromaStore(tmp_path) as store:
        store.put(("n",), "old", {"text": "night train"})
    with ChromaStore(tmp_path, index=INDEX) as store:
        store.put(("n",), "new", {"text": "night bread"})
        assert keys(store.search((), query="night train")) == ["new"]
        assert len(store.search(())) == 2


def test_file_in_place_of_the_folder(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("mine")
    with pytest.raises(StoreError, match="is a file"):
        ChromaStore(path)
    assert path.read_text() == "mine"


@pytest.mark.parametrize("what", ["folder", "database"])
def test_write_protected_store_is_refused(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "store"
    ChromaStore(folder).close()
    path = folder if what == "folder" else folder / "chroma.sqlite3"
    mode = path.stat().st_mode
    path.chmod(mode & ~0o222)
    try:
        with pytest.raises(StoreReadOnlyError, match=str(folder)):
            ChromaStore(folder)
    finally:
        path.chmod(mode)
    ChromaStore(folder).close()


def test_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be written"):
        ChromaStore(tmp_path / "file" / "store")


@pytest.mark.parametrize(
    "damage", [b"no database" * 100, b"SQLite format 3\0" + b"\xff" * 9000], ids=["text", "header"]
)
def test_damaged_database_is_named_and_left_alone(tmp_path: Path, damage: bytes) -> None:
    ChromaStore(tmp_path).close()
    path = tmp_path / "chroma.sqlite3"
    path.write_bytes(damage)
    with pytest.raises(StoreDataError, match=str(path)):
        ChromaStore(tmp_path)
    assert path.read_bytes() == damage


def test_store_of_a_later_version_is_refused(tmp_path: Path) -> None:
    with ChromaStore(tmp_path) as store:
        store._chroma.client.get_collection("ctxbudget-store", embedding_function=None).modify(metadata={"layout": 2})
    with pytest.raises(StoreDataError, match="layout 2"):
        ChromaStore(tmp_path)


def test_damage_found_while_reading_is_a_typed_error(tmp_path: Path) -> None:
    with ChromaStore(tmp_path) as store:
        store.batch([PutOp(("n",), str(n), {"v": "x" * 500}) for n in range(500)])
    path = tmp_path / "chroma.sqlite3"
    data = bytearray(path.read_bytes())
    data[40 * 4096 :] = b"\xff" * (len(data) - 40 * 4096)
    path.write_bytes(data)
    with pytest.raises(StoreDataError, match="damaged"), ChromaStore(tmp_path) as store:
        store.search((), limit=1000)


def test_opening_logs_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), ChromaStore(tmp_path, index=INDEX) as store:
        store.put(("n",), "k", {"text": "x"})
        store.search((), query="x")
    assert not caplog.records
