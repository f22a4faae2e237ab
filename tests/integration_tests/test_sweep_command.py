"""`ctxbudget sweep`, on a Chroma folder, a Chroma server and PostgreSQL."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from langgraph.store.base import BaseStore
from langgraph.store.postgres import PostgresStore

from langchain_ctxbudget import ChromaStore
from tests.integration_tests.test_cli import run
from tests.integration_tests.test_retention import OLD, YOUNG, exchanges, pipeline_over
from tests.servers import LOOPBACK, new_postgres_schema


def fill(store: BaseStore) -> None:
    with pipeline_over(store) as pipeline:
        for user in ("ada", "bo"):
            chat = pipeline.conversation("c1", user_id=user)
            chat.add(*exchanges(OLD, 2, 100), *exchanges(YOUNG, 1, 5))


def left(store: BaseStore) -> list[int]:
    """Returns how many messages each of the two users has."""
    with pipeline_over(store) as pipeline:
        chats = [pipeline.conversation("c1", user_id=user) for user in ("ada", "bo")]
        return [len(chat.messages()) for chat in chats]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with ChromaStore(tmp_path) as store:
        fill(store)
    return tmp_path


def sweep(folder: Path, *options: str, age: str = "90d") -> dict[str, int]:
    done = run("sweep", "--store", folder, "--older-than", age, "--json", *options)
    assert done.code == 0, done.err
    counts: dict[str, int] = done.json
    return counts


def test_old_messages_of_all_users_are_erased(folder: Path) -> None:
    counts = sweep(folder)
    assert (counts["messages"], counts["users"]) == (8, 2)
    with ChromaStore(folder) as store:
        assert left(store) == [2, 2]


@pytest.mark.slow
def test_the_files_have_no_byte_of_them(folder: Path) -> None:
    sweep(folder)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert [path.name for path in files if OLD.encode() in path.read_bytes()] == []


@pytest.mark.slow
def test_a_dry_run_erases_nothing(folder: Path) -> None:
    assert sweep(folder, "--dry-run")["messages"] == 8
    with ChromaStore(folder) as store:
        assert left(store) == [6, 6]


@pytest.mark.slow
def test_one_user_is_swept(folder: Path) -> None:
    sweep(folder, "--user", "ada")
    with ChromaStore(folder) as store:
        assert left(store) == [2, 6]


@pytest.mark.parametrize(
    ("options", "age"),
    [(["--kind", "facts,snapshots"], "90d"), ([], "2500h"), ([], "15w")],
    ids=["other kinds", "hours", "weeks"],
)
def test_nothing_else_is_erased(folder: Path, options: list[str], age: str) -> None:
    assert sweep(folder, *options, age=age)["messages"] == 0


@pytest.mark.slow
def test_a_table_tells_what_was_erased(folder: Path) -> None:
    done = run("sweep", "--store", folder, "--older-than", "90d", "--keep", "pinned")
    assert done.code == 0
    assert "2 users looked at." in done.out


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--older-than", "90"], "'90' is no age, such as 90d, 12h or 2w"),
        (["--older-than", "9d", "--kind", "files"], "there are messages, facts"),
        (["--older-than", "9d", "--keep", "all"], "there are pinned, rules"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, options: list[str], error: str) -> None:
    done = run("sweep", "--store", tmp_path, *options)
    assert done.code == 2
    assert error in done.err


@pytest.mark.slow
def test_what_cannot_be_swept_is_told_by_the_exit_code(folder: Path) -> None:
    with ChromaStore(folder) as store, pipeline_over(store) as pipeline:
        pipeline.add_messages(exchanges(OLD, 1, 5), user_id="eve" * 100, conversation_id="c1")
    done = run("sweep", "--store", folder, "--older-than", "90d")
    assert done.code == 1
    assert "users not swept: 1" in done.err


def test_a_folder_without_a_store_is_refused(tmp_path: Path) -> None:
    done = run("sweep", "--store", tmp_path, "--older-than", "90d")
    assert done.code == 1
    assert "There is no store" in done.err


@contextmanager
def postgres_store(dsn: str) -> Iterator[BaseStore]:
    with PostgresStore.from_conn_string(dsn) as store:
        store.setup()
        yield store


@pytest.mark.slow
def test_a_postgresql_is_swept(postgres: str) -> None:
    with new_postgres_schema(postgres) as dsn:
        with postgres_store(dsn) as store:
            fill(store)
        assert run("sweep", "--store", dsn, "--older-than", "90d").code == 0
        with postgres_store(dsn) as store:
            assert left(store) == [2, 2]


@pytest.mark.slow
@LOOPBACK
def test_a_chroma_server_is_swept(chroma_server: str) -> None:
    with ChromaStore(url=chroma_server) as store:
        fill(store)
    assert run("sweep", "--store", chroma_server, "--older-than", "90d").code == 0
    with ChromaStore(url=chroma_server) as store, pipeline_over(store) as pipeline:
        assert left(store) == [2, 2]
        for user in ("ada", "bo"):
            pipeline.erase_user(user_id=user)


@pytest.mark.slow
def test_a_postgresql_that_is_down_is_an_error() -> None:
    place = "postgresql://ada:secret@/nothing?host=/nowhere"
    done = run("sweep", "--store", place, "--older-than", "90d")
    assert (done.code, "secret" in done.err) == (1, False)
    assert "StoreError: PostgreSQL cannot be used" in done.err


@pytest.mark.slow
def test_a_postgresql_without_tables_is_an_error(postgres: str) -> None:
    with new_postgres_schema(postgres) as dsn:
        done = run("sweep", "--store", dsn, "--older-than", "90d")
    assert done.code == 1
    assert "has no tables of a LangGraph store" in " ".join(done.err.split())
