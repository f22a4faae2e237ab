"""`ChromaStore` beyond the contract: a model, exact search, folders, processes, damage."""

import gc
import json
import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import chromadb
import pytest
from chromadb.errors import InternalError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.embeddings import DeterministicFakeEmbedding
from langgraph.store.base import GetOp, IndexConfig, InvalidNamespaceError, PutOp, SearchOp
from langgraph.store.memory import _compare_values

from langchain_ctxbudget import ChromaStore
from langchain_ctxbudget.errors import (
    EmbeddingMismatchError,
    InputError,
    StoreDataError,
    StoreError,
    StoreLockedError,
)
from langchain_ctxbudget.stores.chroma_search import matches
from tests.stores import INDEX, embed, keys

PARTS: IndexConfig = {**INDEX, "fields": ["parts[*]"]}


@pytest.fixture
def store() -> Iterator[ChromaStore]:
    with ChromaStore() as opened:
        yield opened


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_a_folder_is_opened_again_and_again_in_one_process(tmp_path: Path) -> None:
    """Chroma closes its connections in its own time.

    A second SQLite beside them ended the process (SIGBUS).
    """
    done = run(
        "import sys\nfrom langchain_ctxbudget import ChromaStore\n"
        "for number in range(400):\n    with ChromaStore(sys.argv[1]) as store:\n"
        "        store.put(('a', 'b'), f'key {number % 7}', {'x': number})\n        store.search(('a',))\n"
        "print(number)",
        str(tmp_path),
    )
    assert (done.returncode, done.stdout.strip()) == (0, "399"), done.stderr


# A model: random operations on the store and on a plain dict.

LABELS = st.sampled_from(["a", "b", "it's", "ü 😀", "x" * 300])
NAMESPACE = st.lists(LABELS, min_size=1, max_size=3).map(tuple)
KEY = st.sampled_from(["k", 'quote"', "$ne", "a.b", "nul\0", "n/1", "n/2", ""]) | st.text(
    max_size=5
)
LEAF = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
JSON = st.recursive(
    LEAF, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)
VALUE = st.dictionaries(st.sampled_from(["v", "w"]) | st.text(max_size=3), JSON, max_size=3)
OPERATION = st.tuples(NAMESPACE, KEY, st.none() | VALUE)
PLACES = st.sampled_from([("a",), ("a", "x"), ("a", "x", "deep"), ("b", "x"), ("b",)])
WORDS = st.lists(st.sampled_from(["one", "two", "one two", "three", ""]), max_size=3)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(OPERATION, min_size=1, max_size=5), max_size=8), NAMESPACE)
def test_behaves_like_a_dict(
    batches: list[list[tuple[Any, str, Any]]], prefix: tuple[str, ...]
) -> None:
    model: dict[tuple[tuple[str, ...], str], tuple[int, dict[str, Any]]] = {}
    ticks = iter(range(1_000_000))
    with ChromaStore(
        clock=lambda: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=next(ticks))
    ) as store:
        for turn, batch in enumerate(batches):
            store.batch([PutOp(*operation) for operation in batch])
            for namespace, key, value in batch:
                if value is None:
                    model.pop((namespace, key), None)
                else:
                    model[namespace, key] = (turn, value)
            for (namespace, key), (_, value) in model.items():
                assert json.dumps(store.get(namespace, key).value) == json.dumps(value)
        below = {place: kept for place, kept in model.items() if place[0][: len(prefix)] == prefix}
        found_items = store.search(prefix, limit=1000)
        assert {(item.namespace, item.key) for item in found_items} == set(below)
        turns = [below[item.namespace, item.key][0] for item in found_items]
        assert turns == sorted(turns, reverse=True)
        assert store.list_namespaces(limit=1000) == sorted({namespace for namespace, _ in model})


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.lists(st.tuples(PLACES, st.sampled_from("klm"), st.none() | WORDS), max_size=4),
        max_size=8,
    )
)
def test_answers_from_memory_are_those_of_a_store_that_remembers_nothing(
    batches: list[list[Any]],
) -> None:
    places = [("a",), ("a", "x"), ("a", "x", "deep"), ("b", "x"), ("b",)]
    with ChromaStore(index=PARTS) as store:

        def answers() -> list[Any]:
            prefixes: list[tuple[str, ...]] = [(), ("a",), ("a", "x"), ("b",), ("c",)]
            searches = [SearchOp(prefix, query="one three", limit=50) for prefix in prefixes]
            gets = [GetOp(place, key) for place in places for key in "kl"]
            return [repr(result) for result in store.batch([*searches, *gets])]

        for batch in batches:
            store.batch(
                [
                    PutOp(ns, key, None if parts is None else {"parts": parts})
                    for ns, key, parts in batch
                ]
            )
            from_memory = answers()
            store._chroma.records.forget()
            assert from_memory == answers()


# Values and vectors.


def test_any_json_is_a_value_and_nothing_else(store: ChromaStore) -> None:
    values: list[dict[str, Any]] = [
        {"nested": [{"a": [1, 1.0, True, None, "x"]}]},
        {"big": 2**200, "small": 5e-324, "negative zero": -0.0},
        {"$set": {"$gt": 1}, "": "empty key", "nul\0": "nul\0", "half": "\ud83d"},
    ]
    for value in values:
        store.put(("n",), "k", value)
        assert json.dumps(store.get(("n",), "k").value) == json.dumps(value)
    endless: dict[str, Any] = {}
    endless["self"] = endless
    for wrong, says in (
        ({"v": {1, 2}}, "set is not JSON"),
        ({"v": float("nan")}, "not JSON"),
        (endless, "Circular"),
    ):
        with pytest.raises(InputError, match=says):
            store.put(("n",), "k", wrong)
    with pytest.raises(NotImplementedError, match="TTL"):
        store.put(("n",), "k", {}, ttl=1)
    with pytest.raises(InputError, match="without `ttl`"):
        store.batch([PutOp(("n",), "k", {}, ttl=1)])


@pytest.mark.slow
def test_more_items_than_sqlite_takes_in_one_statement(store: ChromaStore) -> None:
    store.batch([PutOp(("n",), str(n), {"n": n}) for n in range(32_770)])
    assert len(store.search(("n",), limit=40_000)) == 32_770


def test_embeddings_that_fail_leave_nothing_behind() -> None:
    for size, error in ((0, ConnectionError), (8, EmbeddingMismatchError), (64, StoreError)):

        def wrong(texts: list[str], size: int = size) -> list[list[float]]:
            if not size:
                raise ConnectionError
            return [[float("nan")] * size for _ in texts]

        with ChromaStore(index={**INDEX, "embed": wrong}) as store:
            with pytest.raises(error):
                store.put(("n",), "k", {"text": "x"})
            assert store.get(("n",), "k") is None


# Several stores, threads and lifetimes.


def test_a_store_in_memory_is_its_own() -> None:
    with ChromaStore() as one, ChromaStore() as two:
        one.put(("n",), "k", {"v": 1})
        assert two.get(("n",), "k") is None
    with pytest.raises(StoreError, match="closed"):
        one.get(("n",), "k")


# A folder.

OPEN = """
import os, sys
from langchain_ctxbudget import ChromaStore
store = ChromaStore(sys.argv[1])
print([item.key for item in store.search(())], flush=True)
for n in range(30):
    store.put(("n",), f"theirs {n}", {"v": n})
os.kill(os.getpid(), 9)
"""


def test_reopened_folder_gives_the_same_answers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def answers(store: ChromaStore) -> list[Any]:
        return [
            store.search((), limit=300),
            store.search((), query="word3", limit=20),
            store.list_namespaces(),
        ]

    with caplog.at_level(logging.WARNING), ChromaStore(tmp_path, index=INDEX) as store:
        store.batch(
            [
                PutOp(("n", str(n % 5)), str(n), {"text": f"word{n % 9} word{n % 4}"})
                for n in range(250)
            ]
        )
        before = answers(store)
    with ChromaStore(tmp_path, index=INDEX) as store:
        assert answers(store) == before
        assert len(before[0]) == 250
    assert not caplog.records


def test_records_with_a_field_for_everything_are_read(tmp_path: Path) -> None:
    with ChromaStore(tmp_path) as store:
        store.put(("a",), "k", {"n": 1})
    client = chromadb.PersistentClient(str(tmp_path))
    [collection] = (one for one in client.list_collections() if one.count())
    metadata = {"value": '{"n":2}', "created": 1, "updated": 2, "vectors": ""}
    collection.update(collection.get()["ids"], metadatas=[metadata])
    with ChromaStore(tmp_path) as store:
        assert store.search(("a",))[0].value == {"n": 2}


def test_a_folder_belongs_to_the_stores_of_one_process(tmp_path: Path) -> None:
    with (
        ChromaStore(tmp_path) as one,
        ChromaStore(str(tmp_path / ".." / tmp_path.name), index=INDEX) as two,
    ):
        for text, found in (("night", ["mine"]), ("bread", [])):
            (two if found else one).put(("n",), "mine", {"text": text})
            assert keys(two.search((), query="night")) == found, (
                "what another store of the folder writes is known"
            )
        one.close()
        refused = run(OPEN, str(tmp_path))
        assert StoreLockedError.__name__ in refused.stderr
        assert "Chroma server" in refused.stderr
    ChromaStore(tmp_path)  # and one that is forgotten frees its folder
    gc.collect()
    killed = run(OPEN, str(tmp_path))
    assert (killed.stdout, killed.returncode) == ("['mine']\n", -9), killed.stderr
    with ChromaStore(tmp_path) as store:
        assert len(store.search((), limit=100)) == 31, (
            "a killed process leaves no lock, and every finished put"
        )


def test_embeddings_are_recorded_with_the_store(tmp_path: Path) -> None:
    with ChromaStore(tmp_path) as store:
        store.put(("n",), "old", {"text": "night train"})
    with ChromaStore(tmp_path, index=INDEX) as store:  # a folder may get an index later
        store.put(("n",), "new", {"text": "night bread"})
        assert keys(store.search((), query="night train")) == ["new"]
    with pytest.raises(
        EmbeddingMismatchError, match=r"embed \(64.*DeterministicFakeEmbedding \(64"
    ):
        ChromaStore(tmp_path, index={"dims": 64, "embed": DeterministicFakeEmbedding(size=64)})
    with pytest.raises(EmbeddingMismatchError, match=r"64 dimensions.*32 dimensions"):
        ChromaStore(tmp_path, index={"dims": 32, "embed": embed})
    with ChromaStore(tmp_path) as store:
        assert [(item.key, item.score) for item in store.search((), query="x")] == [
            ("new", None),
            ("old", None),
        ]


def test_a_write_that_failed_leaves_no_vector_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    with ChromaStore(index=INDEX) as store:
        store.put(("a", "x"), "k", {"text": "night train"})
        assert keys(store.search(("a", "x"), query="night")) == ["k"]
        upsert = chromadb.Collection.upsert

        def late(self: chromadb.Collection, **arguments: Any) -> None:
            upsert(self, **arguments)
            raise InternalError("broken")

        with monkeypatch.context() as patch:
            patch.setattr(chromadb.Collection, "upsert", late)
            with pytest.raises(StoreError, match="broken"):
                store.put(("a", "x"), "l", {"text": "night"})
        assert keys(store.search(("a", "x"), query="night")) == ["l", "k"]


def test_a_folder_that_cannot_be_used_is_named_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "file"
    folder = tmp_path / "store"
    file.write_text("mine")
    for path in (file, file / "store"):
        with pytest.raises(StoreError, match=str(path)):
            ChromaStore(path)
    assert file.read_text() == "mine"
    with ChromaStore(folder) as store:
        store.batch([PutOp(("n",), str(n), {"v": "x" * 500}) for n in range(500)])
    path = folder / "chroma.sqlite3"
    log = folder / "chroma.sqlite3-wal"
    for _ in range(200):  # Chroma's engine closes its connections a moment later
        if not log.exists():
            break
        time.sleep(0.05)
    whole = path.read_bytes()
    half = whole[: 40 * 4096] + b"\xff" * (len(whole) - 40 * 4096)
    unnamed = b"x" * 16 + whole[16:]
    no_tables = whole[:100] + b"\xff" * 3996 + whole[4096:]
    for damage in (
        b"no database" * 100,
        b"SQLite format 3\0" + b"\xff" * 9000,
        half,
        unnamed,
        no_tables,
        whole[:50],
    ):
        path.write_bytes(damage)
        with pytest.raises(StoreDataError, match=str(folder)), ChromaStore(folder) as store:
            store.search((), limit=1_000)
    path.unlink()
    path.mkdir()
    with pytest.raises(StoreError, match="cannot be opened") as refused:
        ChromaStore(folder)
    path.rmdir()
    path.write_bytes(whole)
    ChromaStore(folder).close()  # it is not locked by an opening that failed
    del refused  # which was not collected until now


# Filters, and puts that make no sense.

SIMPLE = (
    st.none()
    | st.integers(-2, 2)
    | st.sampled_from(["a", "b"])
    | st.lists(st.integers(0, 1), max_size=2)
)
NUMBER = st.integers() | st.floats(allow_nan=False)


def test_filters() -> None:
    for value, wanted, expected in (
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
    ):
        assert matches(value, wanted) is expected, (value, wanted)
    for unknown in ({"$in": [1]}, {"$ne": 1, "b": 2}):
        with pytest.raises(InputError, match="Unknown operator"):
            matches(1, unknown)


@given(SIMPLE, SIMPLE, st.sampled_from(["plain", "$eq", "$ne"]), NUMBER, NUMBER)
def test_comparisons_are_those_of_langgraph(
    value: object, wanted: object, how: str, one: float, two: float
) -> None:
    condition = wanted if how == "plain" else {how: wanted}
    assert matches(value, condition) == _compare_values(value, condition)
    results = [matches(one, {name: two}) for name in ("$lt", "$lte", "$gt", "$gte")]
    assert results == [one < two, one <= two, one > two, one >= two]


def test_an_operation_that_makes_no_sense_spoils_its_batch() -> None:
    with ChromaStore() as store:
        with pytest.raises(InputError):
            store.batch([PutOp(("n",), "good", {}), PutOp(("n",), "k", {"v": {1}})])
        for op in (GetOp(("a.b",), "k"), SearchOp(("",)), PutOp(("\0",), "k", {})):
            with pytest.raises(InvalidNamespaceError):
                store.batch([PutOp(("n",), "good", {}), op])
        assert store.search(()) == []


def test_a_search_in_a_folder_asks_chroma_for_ids_once_and_still_finds_what_was_written_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filtered: list[object] = []
    get = chromadb.Collection.get

    def counted(self: Any, *args: Any, where: Any = None, **options: Any) -> Any:
        filtered.extend([where] if where else [])
        return get(self, *args, where=where, **options)

    monkeypatch.setattr(chromadb.Collection, "get", counted)
    with ChromaStore(tmp_path) as store:
        store.put(("ada", "lanes", "c1"), "w", {"count": 1})
        for count in range(1, 4):
            assert len(store.search(("ada", "lanes"))) == count
            store.put(("ada", "lanes", f"d{count}"), "w", {"count": count})
        store.delete(("ada", "lanes", "c1"), "w")
        assert sorted(item.namespace[-1] for item in store.search(("ada", "lanes"))) == [
            "d1",
            "d2",
            "d3",
        ]
    assert len(filtered) == 1
