"""`ChromaStore` in a folder: opened again, by one process, damaged, with other embeddings."""

import gc
import logging
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import chromadb
import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding
from langgraph.store.base import IndexConfig, PutOp

from langchain_ctxbudget import ChromaStore
from langchain_ctxbudget.errors import (
    EmbeddingMismatchError,
    StoreDataError,
    StoreError,
    StoreLockedError,
)
from tests.stores import INDEX, embed, keys

DATABASE = "chroma.sqlite3"


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )


# -- opened again

OPEN_400_TIMES = """
import sys
from langchain_ctxbudget import ChromaStore

for number in range(400):
    with ChromaStore(sys.argv[1]) as store:
        store.put(("a", "b"), f"key {number % 7}", {"x": number})
        store.search(("a",))
print(number)
"""


@pytest.mark.slow
def test_a_folder_is_opened_again_and_again_in_one_process(tmp_path: Path) -> None:
    """Chroma closes its connections in its own time.

    A second SQLite beside them ended the process (SIGBUS).
    """
    process = run(OPEN_400_TIMES, str(tmp_path))
    assert process.returncode == 0, process.stderr
    assert process.stdout.strip() == "399"


def test_a_folder_that_is_opened_again_gives_the_same_answers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def answers(store: ChromaStore) -> list[Any]:
        return [
            store.search((), limit=300),
            store.search((), query="word3", limit=20),
            store.list_namespaces(),
        ]

    puts = [
        PutOp(("n", str(number % 5)), str(number), {"text": f"word{number % 9} word{number % 4}"})
        for number in range(250)
    ]
    with caplog.at_level(logging.WARNING), ChromaStore(tmp_path, index=INDEX) as store:
        store.batch(puts)
        before = answers(store)

    with ChromaStore(tmp_path, index=INDEX) as store:
        assert answers(store) == before
    assert len(before[0]) == 250
    assert caplog.records == []


def test_records_with_a_field_for_everything_are_read(tmp_path: Path) -> None:
    with ChromaStore(tmp_path) as store:
        store.put(("a",), "k", {"n": 1})
    client = chromadb.PersistentClient(str(tmp_path))
    [collection] = [each for each in client.list_collections() if each.count() > 0]
    metadata = {"value": '{"n":2}', "created": 1, "updated": 2, "vectors": ""}

    collection.update(collection.get()["ids"], metadatas=[metadata])

    with ChromaStore(tmp_path) as store:
        assert store.search(("a",))[0].value == {"n": 2}


@pytest.fixture
def filtered_gets(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The conditions of what is asked of Chroma not by id."""
    conditions: list[object] = []
    get = chromadb.Collection.get

    def noted_get(self: Any, *args: Any, where: Any = None, **options: Any) -> Any:
        if where:
            conditions.append(where)
        return get(self, *args, where=where, **options)

    monkeypatch.setattr(chromadb.Collection, "get", noted_get)
    return conditions


def test_searches_ask_chroma_for_ids_once_and_find_what_is_new(
    tmp_path: Path, filtered_gets: list[object]
) -> None:
    found = []
    with ChromaStore(tmp_path) as store:
        store.put(("ada", "lanes", "c1"), "w", {"count": 1})
        for number in range(1, 4):
            found.append(len(store.search(("ada", "lanes"))))
            store.put(("ada", "lanes", f"d{number}"), "w", {"count": number})
        store.delete(("ada", "lanes", "c1"), "w")
        last_items = store.search(("ada", "lanes"))

    assert found == [1, 2, 3]
    assert sorted(item.namespace[-1] for item in last_items) == ["d1", "d2", "d3"]
    assert len(filtered_gets) == 1


# -- of one process

PUT_30_AND_DIE = """
import os, sys
from langchain_ctxbudget import ChromaStore

store = ChromaStore(sys.argv[1])
print([item.key for item in store.search(())], flush=True)
for number in range(30):
    store.put(("n",), f"theirs {number}", {"v": number})
os.kill(os.getpid(), 9)
"""


def test_stores_of_a_folder_know_what_the_others_write(tmp_path: Path) -> None:
    same_folder = str(tmp_path / ".." / tmp_path.name)
    with ChromaStore(tmp_path) as plain, ChromaStore(same_folder, index=INDEX) as indexed:
        indexed.put(("n",), "mine", {"text": "night"})
        assert keys(indexed.search((), query="night")) == ["mine"]

        plain.put(("n",), "mine", {"text": "bread"})
        assert keys(indexed.search((), query="night")) == []


def test_a_folder_of_another_process_is_locked(tmp_path: Path) -> None:
    with ChromaStore(tmp_path) as store, ChromaStore(tmp_path):
        store.close()  # one of two
        refused = run(PUT_30_AND_DIE, str(tmp_path))
    assert StoreLockedError.__name__ in refused.stderr
    assert "Chroma server" in refused.stderr


def test_a_forgotten_store_frees_its_folder(tmp_path: Path) -> None:
    ChromaStore(tmp_path).put(("n",), "mine", {"v": 1})
    gc.collect()

    process = run(PUT_30_AND_DIE, str(tmp_path))

    assert process.stdout == "['mine']\n", process.stderr
    assert process.returncode == -9


def test_a_killed_process_leaves_no_lock_and_every_finished_put(tmp_path: Path) -> None:
    killed = run(PUT_30_AND_DIE, str(tmp_path))
    assert killed.returncode == -9, killed.stderr
    with ChromaStore(tmp_path) as store:
        assert len(store.search((), limit=100)) == 30


# -- embeddings


@pytest.fixture
def indexed_folder(tmp_path: Path) -> Path:
    """A folder that got an index after its first item."""
    with ChromaStore(tmp_path) as store:
        store.put(("n",), "old", {"text": "night train"})
    with ChromaStore(tmp_path, index=INDEX) as store:
        store.put(("n",), "new", {"text": "night bread"})
    return tmp_path


def test_a_folder_may_get_an_index_later(indexed_folder: Path) -> None:
    with ChromaStore(indexed_folder, index=INDEX) as store:
        assert keys(store.search((), query="night train")) == ["new"]


@pytest.mark.parametrize(
    ("index", "error"),
    [
        pytest.param(
            {"dims": 64, "embed": DeterministicFakeEmbedding(size=64)},
            r"embed \(64.*DeterministicFakeEmbedding \(64",
            id="another model",
        ),
        pytest.param(
            {"dims": 32, "embed": embed}, r"64 dimensions.*32 dimensions", id="other dimensions"
        ),
    ],
)
def test_a_folder_refuses_other_embeddings(
    indexed_folder: Path, index: IndexConfig, error: str
) -> None:
    with pytest.raises(EmbeddingMismatchError, match=error):
        ChromaStore(indexed_folder, index=index)


def test_a_folder_may_be_opened_without_its_index(indexed_folder: Path) -> None:
    with ChromaStore(indexed_folder) as store:
        items = store.search((), query="x")
    assert [(item.key, item.score) for item in items] == [("new", None), ("old", None)]


# -- that cannot be used


@pytest.mark.parametrize("place", ["file", "file/store"])
def test_a_file_is_no_folder_and_is_left_alone(tmp_path: Path, place: str) -> None:
    file = tmp_path / "file"
    file.write_text("mine")

    with pytest.raises(StoreError, match=str(tmp_path / place)):
        ChromaStore(tmp_path / place)

    assert file.read_text() == "mine"


@pytest.fixture(scope="module")
def whole_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 500 items, all of them in its database."""
    folder = tmp_path_factory.mktemp("whole")
    with ChromaStore(folder) as store:
        store.batch([PutOp(("n",), str(number), {"v": "x" * 500}) for number in range(500)])
    for _ in range(200):  # Chroma's engine closes its connections a moment later
        if not (folder / f"{DATABASE}-wal").exists():
            break
        time.sleep(0.05)
    return folder


@pytest.fixture
def folder(whole_folder: Path, tmp_path: Path) -> Path:
    """A copy of a folder with 500 items."""
    copied = tmp_path / "store"
    shutil.copytree(whole_folder, copied)
    return copied


@pytest.fixture
def whole(whole_folder: Path) -> bytes:
    return (whole_folder / DATABASE).read_bytes()


def check_names_damage(folder: Path, database: bytes) -> None:
    (folder / DATABASE).write_bytes(database)
    with pytest.raises(StoreDataError, match=str(folder)), ChromaStore(folder) as store:
        store.search((), limit=1_000)


@pytest.mark.parametrize(
    "database",
    [
        pytest.param(b"no database" * 100, id="text"),
        pytest.param(b"SQLite format 3\0" + b"\xff" * 9000, id="nothing behind the head"),
    ],
)
def test_what_is_no_database_is_named(folder: Path, database: bytes) -> None:
    check_names_damage(folder, database)


def test_a_database_whose_second_part_is_destroyed_is_named(folder: Path, whole: bytes) -> None:
    first_pages = whole[: 40 * 4096]
    lost = len(whole) - len(first_pages)
    check_names_damage(folder, first_pages + b"\xff" * lost)


def test_a_database_with_another_head_is_named(folder: Path, whole: bytes) -> None:
    check_names_damage(folder, b"x" * 16 + whole[16:])


def test_a_database_without_its_tables_is_named(folder: Path, whole: bytes) -> None:
    check_names_damage(folder, whole[:100] + b"\xff" * 3996 + whole[4096:])


def test_a_database_that_ends_early_is_named(folder: Path, whole: bytes) -> None:
    check_names_damage(folder, whole[:50])


def test_an_opening_that_failed_does_not_lock_the_folder(folder: Path, whole: bytes) -> None:
    database = folder / DATABASE
    database.unlink()
    database.mkdir()
    with pytest.raises(StoreError, match="cannot be opened") as refused:
        ChromaStore(folder)

    database.rmdir()
    database.write_bytes(whole)
    ChromaStore(folder).close()

    del refused  # which was not collected until now
