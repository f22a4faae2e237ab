"""A folder with files cut off, lost, overwritten or without room.

Every message is there, or an error says whose.
"""

import os
import random
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path

import chromadb
import pytest
from langchain_core.messages import HumanMessage
from langgraph.store.base import PutOp

from langchain_ctxbudget import ChromaStore, ContextPipeline
from langchain_ctxbudget.errors import StoreDataError, StoreError
from tests.cases import few_are_quick
from tests.processes import FORKED

ADA = "ada@example.com"
BOB = "bob@example.com"
SETTINGS = {"learn": False, "max_context_tokens": 4_000}
INDEX_FILES = (
    "data_level0.bin",
    "header.bin",
    "index_metadata.pickle",
    "length.bin",
    "link_lists.bin",
)
PREFILLED = 10_500
"""Records in the folder before the first kill."""
KILLS = 60


def halved(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def removed(path: Path) -> None:
    path.unlink()


def overwritten(path: Path) -> None:
    path.write_bytes(random.Random(1).randbytes(path.stat().st_size))


DAMAGES = [halved, emptied, removed, overwritten]


def text_of(user: str, number: int) -> str:
    return f"{user} says {number}: " + "word " * (number % 40)


def add(store: ChromaStore, user: str, numbers: Sequence[int], conversation: str = "c1") -> None:
    with ContextPipeline(SETTINGS, store=store) as pipeline:
        messages = [HumanMessage(text_of(user, number), id=f"m{number}") for number in numbers]
        pipeline.add_messages(messages, user_id=user, conversation_id=conversation)


def texts(store: ChromaStore, user: str, conversation: str = "c1") -> list[str]:
    with ContextPipeline(SETTINGS, store=store) as pipeline:
        messages = pipeline.get_messages(user_id=user, conversation_id=conversation)
    return [message.text for message in messages]


def expected_texts(user: str, count: int) -> list[str]:
    return [text_of(user, number) for number in range(count)]


def write_and_die(folder: str) -> None:
    """Writes to two users, closes, opens again, writes more and dies.

    The last messages are in SQLite's log alone.
    """
    with ChromaStore(folder) as store:
        for user in (ADA, BOB):
            add(store, user, range(150))
    store = ChromaStore(folder)
    for user in (ADA, BOB):
        add(store, user, range(150, 160))
    os.kill(os.getpid(), signal.SIGKILL)


def keep_indexes(folder: str) -> None:
    """Lets Chroma itself write to the folder, which keeps its indexes in files."""
    ids = ["[]", *[f'["x", "{number}"]' for number in range(60)]]
    client = chromadb.PersistentClient(folder)
    for collection in client.list_collections():
        if collection.count():
            for _ in range(3):
                collection.upsert(ids, embeddings=[[1.0]] * 61)
            collection.delete(ids)


def run(target: Callable[..., None], *arguments: str) -> int | None:
    process = FORKED.Process(target=target, args=arguments)
    process.start()
    process.join()
    return process.exitcode


@pytest.fixture(scope="module")
def killed_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("killed") / "store"
    assert run(write_and_die, str(folder)) == -signal.SIGKILL
    return folder


@pytest.fixture(scope="module")
def indexed_folder(killed_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with index files of Chroma's, as older versions and servers leave them."""
    folder = tmp_path_factory.mktemp("indexed") / "store"
    shutil.copytree(killed_folder, folder)
    assert run(keep_indexes, str(folder)) == 0
    return folder


@pytest.fixture
def folder(killed_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(killed_folder, tmp_path / "store"))


def all_is_there(folder: Path) -> bool:
    with ChromaStore(folder) as store:
        texts_of_both = [texts(store, ADA), texts(store, BOB)]
    return texts_of_both == [expected_texts(ADA, 160), expected_texts(BOB, 160)]


# Files that hold nothing of their own


@pytest.mark.slow
def test_a_store_keeps_no_index_files(folder: Path) -> None:
    assert all_is_there(folder)
    assert [path.name for path in folder.iterdir() if path.is_dir()] == []


@pytest.mark.parametrize("damage", few_are_quick(DAMAGES))
@pytest.mark.parametrize("name", few_are_quick(INDEX_FILES, 2))
def test_a_damaged_index_file_costs_nothing(
    indexed_folder: Path,
    tmp_path: Path,
    name: str,
    damage: Callable[[Path], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = Path(shutil.copytree(indexed_folder, tmp_path / "store"))
    files = list(folder.glob(f"*/{name}"))
    assert files != []
    for file in files:
        damage(file)

    assert all_is_there(folder)
    warnings = [message for message in caplog.messages if "index folders" in message]
    assert len(warnings) == 1
    assert list(folder.glob(f"*/{name}")) == []


@pytest.mark.slow
def test_a_folder_that_a_server_cannot_read_is_mended_by_opening_it(
    indexed_folder: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(indexed_folder, tmp_path / "store"))
    for path in folder.glob("*/index_metadata.pickle"):
        halved(path)
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    assert run(keep_indexes, str(copy)) != 0

    assert all_is_there(folder)

    assert run(keep_indexes, str(folder)) == 0
    assert all_is_there(folder)


def test_index_files_of_other_collections_stay(tmp_path: Path) -> None:
    with ChromaStore(tmp_path) as store:
        add(store, ADA, range(3))
    assert run(keep_own_collection, str(tmp_path)) == 0
    files_before = sorted(path.name for path in tmp_path.glob("*/*"))
    assert files_before != []

    with ChromaStore(tmp_path) as store:
        assert len(texts(store, ADA)) == 3
        store.vacuum()

    assert sorted(path.name for path in tmp_path.glob("*/*")) == files_before
    assert run(read_own_collection, str(tmp_path)) == 0


def keep_own_collection(folder: str) -> None:
    own = chromadb.PersistentClient(folder).create_collection("recipes", embedding_function=None)
    for first in range(0, 1_500, 300):
        ids = [str(number) for number in range(first, first + 300)]
        own.upsert(
            ids,
            embeddings=[[float(key), 1.0] for key in ids],
            metadatas=[{"value": "no JSON {"} for _ in ids],
        )


def read_own_collection(folder: str) -> None:
    own = chromadb.PersistentClient(folder).get_collection("recipes", embedding_function=None)
    assert own.query([[700.0, 1.0]], n_results=1)["ids"] == [["700"]]
    assert own.query([[1499.0, 1.0]], n_results=1)["ids"] == [["1499"]]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["chroma.sqlite3-shm", "ctxbudget.state", "ctxbudget.lock"])
def test_a_damaged_file_beside_the_data_costs_nothing(
    folder: Path, name: str, damage: Callable[[Path], None]
) -> None:
    damage(folder / name)
    assert all_is_there(folder)


# Files that hold data


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_log_is_an_error_that_says_how_much(
    folder: Path, damage: Callable[[Path], None]
) -> None:
    damage(folder / "chroma.sqlite3-wal")
    with pytest.raises(
        StoreDataError, match=r"The last \d+ of \d+ writes are not in .*chroma.sqlite3-wal"
    ):
        ChromaStore(folder)


def write_once_and_die(folder: str) -> None:
    add(ChromaStore(folder), ADA, range(3))
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_log_of_a_folder_that_was_never_closed_is_an_error(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    assert run(write_once_and_die, str(tmp_path)) == -signal.SIGKILL
    damage(tmp_path / "chroma.sqlite3-wal")
    with pytest.raises(StoreDataError, match="all users"):
        ChromaStore(tmp_path)


def test_without_the_state_file_what_is_left_of_a_log_is_read(folder: Path) -> None:
    removed(folder / "chroma.sqlite3-wal")
    removed(folder / "ctxbudget.state")
    with ChromaStore(folder) as store:
        assert texts(store, ADA)[:150] == expected_texts(ADA, 150)


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_database_is_an_error_that_names_users(
    folder: Path, damage: Callable[[Path], None], is_closed: bool
) -> None:
    if is_closed:
        assert all_is_there(folder)
    damage(folder / "chroma.sqlite3")
    with pytest.raises(StoreDataError, match=rf"chroma.sqlite3.*(all users|{ADA})"):
        ChromaStore(folder)


def test_an_error_names_the_users_whose_records_are_damaged(tmp_path: Path) -> None:
    with ChromaStore(tmp_path) as store, ContextPipeline(SETTINGS, store=store) as pipeline:
        for user in (ADA, BOB):
            long = "long " * 10_000 + f"in the middle of {user} " + "long " * 10_000
            pipeline.add_messages([HumanMessage(long)], user_id=user, conversation_id="c1")
        store.vacuum()
    database = tmp_path / "chroma.sqlite3"
    marker = f"in the middle of {BOB}".encode()
    content = database.read_bytes()
    assert marker in content
    database.write_bytes(content.replace(marker, bytes(len(marker))))  # an index has a copy

    with pytest.raises(StoreDataError, match=BOB) as caught:
        ChromaStore(tmp_path)

    assert ADA not in str(caught.value)


def test_an_empty_database_in_place_of_a_used_one_is_an_error(folder: Path, tmp_path: Path) -> None:
    with ChromaStore(tmp_path / "other"):
        pass
    for name in ("chroma.sqlite3-wal", "chroma.sqlite3-shm"):
        (folder / name).unlink()
    shutil.copy(tmp_path / "other" / "chroma.sqlite3", folder)
    with pytest.raises(StoreDataError, match="writes are not in"):
        ChromaStore(folder)


@pytest.mark.slow
def test_a_folder_that_was_closed_is_not_checked(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert all_is_there(folder)
    monkeypatch.setattr("langchain_ctxbudget.stores.chroma_files.sqlite3.connect", None)
    assert all_is_there(folder)


@pytest.mark.slow
def test_chromas_log_stays_short(tmp_path: Path) -> None:
    """Every write reads it from where the index last was.

    A Chroma that no longer empties it makes writes slow.
    """
    with ChromaStore(tmp_path) as store:
        for number in range(250):
            store.put(("a", "b"), str(number), {"v": number})
    with ChromaStore(tmp_path) as store:
        store.get(("a", "b"), "1")
    assert run(assert_log_is_short, str(tmp_path)) == 0


def assert_log_is_short(folder: str) -> None:
    import sqlite3  # noqa: PLC0415 - in a process of its own

    connection = sqlite3.connect(Path(folder) / "chroma.sqlite3")
    assert connection.execute("SELECT count(*) FROM embeddings_queue").fetchone()[0] <= 101


# Kills


def write_without_end(folder: str, name: str, size: int, sender: Connection) -> None:
    """Adds messages to a conversation of its own, and sends how many the store has confirmed."""
    with ChromaStore(folder) as store, ContextPipeline(SETTINGS, store=store) as pipeline:
        count = 0
        while True:
            messages = [
                HumanMessage(text_of(ADA, number), id=f"m{number}")
                for number in range(count, count + size)
            ]
            pipeline.add_messages(messages, user_id=ADA, conversation_id=name)
            count += size
            sender.send(count)


def confirmed_before_a_kill(folder: Path, name: str, size: int, seconds: float) -> int:
    receiver, sender = FORKED.Pipe(duplex=False)
    with receiver:
        process = FORKED.Process(target=write_without_end, args=(str(folder), name, size, sender))
        process.start()
        sender.close()
        count = receiver.recv()
        time.sleep(seconds)
        process.kill()
        with suppress(EOFError):
            while True:
                count = receiver.recv()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    return int(count)


NOTES = ("ctxbudget", "ada=40example=2Ecom~", "notes")


def fill_with_notes(folder: Path) -> None:
    with ChromaStore(folder) as store:
        for first in range(0, PREFILLED, 500):
            store.batch([PutOp(NOTES, str(key), {"v": key}) for key in range(first, first + 500)])


@pytest.mark.slow
def test_sixty_kills_lose_no_confirmed_message(tmp_path: Path) -> None:
    chance = random.Random(7)
    fill_with_notes(tmp_path)
    confirmed: dict[str, int] = {}
    for kill in range(KILLS):
        name = f"c{kill}"
        size = 50 if kill % 2 else 2
        confirmed[name] = confirmed_before_a_kill(tmp_path, name, size, chance.uniform(0, 0.4))
        with ChromaStore(tmp_path) as store:
            kept = texts(store, ADA, name)
        assert kept[: confirmed[name]] == expected_texts(ADA, confirmed[name]), name

    with ChromaStore(tmp_path) as store:
        lost = [name for name in confirmed if len(texts(store, ADA, name)) < confirmed[name]]
        assert lost == []
        assert len(store.search(NOTES, limit=PREFILLED + 1)) == PREFILLED


# A full disk


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A file system in memory of a few megabytes.

    Skips the test where this user may not mount one.
    """
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "ctxbudget-test", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def add_until_it_fails(store: ChromaStore) -> int:
    """Adds ten messages at a time until there is no room; returns how many are confirmed."""
    count = 0
    with ContextPipeline(SETTINGS, store=store) as pipeline:
        while count < 100_000:
            messages = [
                HumanMessage(text_of(ADA, number), id=f"m{number}")
                for number in range(count, count + 10)
            ]
            try:
                pipeline.add_messages(messages, user_id=ADA, conversation_id="c1")
            except StoreError:
                return count
            count += 10
    raise AssertionError("it never failed")


@pytest.mark.slow
@pytest.mark.parametrize("reopens", [False, True], ids=["goes on", "reopens"])
def test_a_full_disk_is_an_error_and_with_room_again_all_is_there(
    tmp_path: Path, reopens: bool
) -> None:
    with small_disk(tmp_path / "disk", 14) as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(4 * 1024 * 1024))
        store = ChromaStore(disk / "store")
        count = add_until_it_fails(store)
        assert count > 100

        if reopens:
            store.close()
        ballast.unlink()
        if reopens:
            store = ChromaStore(disk / "store")
        assert texts(store, ADA)[:count] == expected_texts(ADA, count)

        add(store, ADA, range(90_000, 90_010))
        store.close()
        require_all_and_ten_more(disk / "store", count)


def require_all_and_ten_more(folder: Path, count: int) -> None:
    """All that were confirmed are there, and those that were added with room again."""
    with ChromaStore(folder) as store:
        kept = texts(store, ADA)
    assert kept[:count] == expected_texts(ADA, count)
    later = [text_of(ADA, number) for number in range(90_000, 90_010)]
    assert [text for text in later if text not in kept] == []


def write_under_a_limit(folder: str, sender: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (3 * 1024 * 1024, resource.RLIM_INFINITY))
    with ChromaStore(folder) as store:
        count = add_until_it_fails(store)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        add(store, ADA, range(90_000, 90_010))
        sender.send(count)


def test_files_that_may_not_grow_are_an_error_and_then_all_is_there(tmp_path: Path) -> None:
    """As on a full disk, where none can be mounted."""
    receiver, sender = FORKED.Pipe(duplex=False)
    process = FORKED.Process(target=write_under_a_limit, args=(str(tmp_path), sender))
    process.start()
    sender.close()
    with receiver:
        count = receiver.recv()
    process.join()
    require_all_and_ten_more(tmp_path, count)


# Vacuum


@pytest.mark.slow
def test_a_vacuum_waits_for_other_threads_and_disturbs_none(tmp_path: Path) -> None:
    with ChromaStore(tmp_path) as store, ChromaStore(tmp_path) as other:

        def put_sixty() -> None:
            for number in range(60):
                other.put(("a", "b"), str(number), {"v": number})

        with ThreadPoolExecutor(1) as pool:
            puts = pool.submit(put_sixty)
            for _ in range(3):
                store.vacuum()
            puts.result()
        assert len(store.search(("a",), limit=100)) == 60


def test_writes_go_on_after_a_vacuum_and_a_restart(tmp_path: Path) -> None:
    with ChromaStore(tmp_path) as store:
        add(store, ADA, range(5))
        store.vacuum()
        add(store, ADA, range(5, 10))
        store.vacuum()
    with ChromaStore(tmp_path) as store:
        add(store, ADA, range(10, 15))
    with ChromaStore(tmp_path) as store:
        assert texts(store, ADA) == expected_texts(ADA, 15)


async def test_a_vacuum_can_be_awaited(tmp_path: Path) -> None:
    with ChromaStore(tmp_path) as store:
        store.put(("a", "b"), "k", {"v": 1})
        await store.avacuum()
        assert store.get(("a", "b"), "k") is not None


def test_a_store_in_memory_needs_no_vacuum() -> None:
    with ChromaStore() as store:
        store.put(("a", "b"), "k", {"v": 1})
        store.vacuum()
        assert store.get(("a", "b"), "k") is not None
