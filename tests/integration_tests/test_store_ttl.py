"""Items that end: the contract over every Chroma, and what only ours does."""

from __future__ import annotations

import gc
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import BaseStore, GetOp, PutOp, SearchOp, TTLConfig

from langchain_ctxbudget.errors import InputError, StoreError
from langchain_ctxbudget.stores.chroma import ChromaStore
from tests.servers import LOOPBACK, new_chroma_database
from tests.store_contract import INDEX, TtlStoreContract, TtlStoreFactory, keys


class Clock:
    """Goes on when told, and by a microsecond whenever it is read."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(microseconds=1)
        return self.now

    def wait(self, minutes: float) -> None:
        self.now += timedelta(minutes=minutes)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "folder", pytest.param("server", marks=LOOPBACK)])
def new_store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Callable[..., ChromaStore]]:
    with ExitStack() as stack:
        place: dict[str, Any] = {}
        if request.param == "folder":
            place = {"path": tmp_path / "store"}
        elif request.param == "server":
            url = request.getfixturevalue("chroma_server")
            place = {"url": url, "database": stack.enter_context(new_chroma_database(url))}
        yield lambda **arguments: stack.enter_context(ChromaStore(**place, clock=clock, **arguments))


class TestChroma(TtlStoreContract):
    @pytest.fixture
    def ttl_store_factory(self, new_store: Callable[..., ChromaStore]) -> TtlStoreFactory:
        def factory(ttl: TTLConfig | None) -> BaseStore:
            return new_store(ttl=ttl)

        return factory

    @pytest.fixture
    def wait(self, clock: Clock) -> Callable[[float], None]:
        return clock.wait


def vectors_in(store: ChromaStore) -> int:
    return sum(bucket.count() for name, bucket in store._chroma.collections.items() if "vectors" in name)


def test_search_by_similarity_leaves_out_what_has_ended(new_store: Callable[..., ChromaStore], clock: Clock) -> None:
    store = new_store(index=INDEX)
    store.put(("n",), "gone", {"text": "night train"}, ttl=1)
    store.put(("n",), "here", {"text": "night"})
    clock.wait(2)
    assert keys(store.search(("n",), query="night train")) == ["here"]


def test_search_by_similarity_puts_off_the_end_of_what_it_returns(
    new_store: Callable[..., ChromaStore], clock: Clock
) -> None:
    store = new_store(index=INDEX)
    store.put(("n",), "first", {"text": "night train"}, ttl=1)
    store.put(("n",), "second", {"text": "night"}, ttl=1)
    clock.wait(0.6)
    assert keys(store.search(("n",), query="night train", limit=1)) == ["first"]
    clock.wait(0.6)
    assert keys(store.search(("n",))) == ["first"]


def test_sweep_takes_the_vectors_along(new_store: Callable[..., ChromaStore], clock: Clock) -> None:
    store = new_store(index={**INDEX, "fields": ["parts[*]"]})
    store.put(("n",), "gone", {"parts": ["a", "b"]}, ttl=1)
    store.put(("n",), "here", {"parts": ["c"]})
    clock.wait(2)
    assert store.sweep_ttl() == 1
    assert vectors_in(store) == 1


def test_sweep_goes_through_every_namespace_by_pages(new_store: Callable[..., ChromaStore], clock: Clock) -> None:
    store = new_store()
    store.batch([PutOp((f"n{n % 40}", "x"), str(n), {"v": n}, ttl=1 + n % 2) for n in range(1_000)])
    clock.wait(1.5)
    assert store.sweep_ttl() == 500
    assert len(store.search((), limit=1_000)) == 500


def test_value_that_has_ended_is_replaced_by_a_new_item(new_store: Callable[..., ChromaStore], clock: Clock) -> None:
    store = new_store()
    store.put(("n",), "k", {"v": 1}, ttl=1)
    clock.wait(2)
    store.put(("n",), "k", {"v": 2})
    item = store.get(("n",), "k")
    assert (item.value, item.created_at) == ({"v": 2}, item.updated_at)


def test_reading_changes_nothing_but_the_end(new_store: Callable[..., ChromaStore], clock: Clock) -> None:
    store = new_store()
    store.put(("n",), "k", {"v": 1}, ttl=1)
    before = store.get(("n",), "k")
    assert store.get(("n",), "k") == before


def test_put_in_the_batch_of_a_get_decides_about_the_end(new_store: Callable[..., ChromaStore], clock: Clock) -> None:
    store = new_store()
    store.put(("n",), "k", {"v": 1}, ttl=1)
    store.batch([GetOp(("n",), "k"), SearchOp(("n",)), PutOp(("n",), "k", {"v": 2})])
    clock.wait(2)
    assert store.get(("n",), "k").value == {"v": 2}


def test_late_refresh_of_a_replaced_value_ends_nothing(new_store: Callable[..., ChromaStore], clock: Clock) -> None:
    """Another process may put off the end of what it has read, when the value has been replaced by one for ever."""
    store = new_store()
    store.put(("n",), "k", {"v": 1})
    [bucket] = [each for name, each in store._chroma.collections.items() if "items" in name]
    bucket.update(ids=['["n", "k"]'], metadatas=[{"expires": 1}])
    assert store.sweep_ttl() == 0
    assert store.get(("n",), "k").value == {"v": 1}


def test_ends_outlive_a_restart(tmp_path: Path, clock: Clock) -> None:
    with ChromaStore(tmp_path, clock=clock) as store:
        store.put(("n",), "k", {}, ttl=1)
    clock.wait(2)
    with ChromaStore(tmp_path, clock=clock) as store:
        assert store.get(("n",), "k") is None


def test_plain_operation_has_no_default_end(clock: Clock) -> None:
    """As in LangGraph's stores, where `put` and `aput` fill in the default."""
    with ChromaStore(ttl={"default_ttl": 1}, clock=clock) as store:
        store.batch([PutOp(("n",), "k", {})])
        clock.wait(2)
        assert store.get(("n",), "k") is not None


@pytest.mark.parametrize("ttl", [float("nan"), float("inf"), "5", True])
def test_time_that_is_no_number_of_minutes(ttl: Any) -> None:
    with ChromaStore() as store, pytest.raises(InputError, match="minutes"):
        store.put(("n",), "k", {}, ttl=ttl)


@pytest.mark.parametrize(("ttl", "lasts"), [(0, False), (-1, False), (1e300, True)])
def test_extreme_times(ttl: float, lasts: bool, clock: Clock) -> None:
    with ChromaStore(clock=clock) as store:
        store.put(("n",), "k", {}, ttl=ttl)
        assert (store.get(("n",), "k") is not None) is lasts
        assert store.sweep_ttl() == (0 if lasts else 1)


# The sweeper.

SECOND = 1 / 60


def until(true: Callable[[], object]) -> None:
    give_up = time.monotonic() + 10
    while not true():
        assert time.monotonic() < give_up
        time.sleep(0.01)


def stored(store: ChromaStore) -> int:
    return sum(bucket.count() for bucket in store._chroma.collections.values())


def sweepers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "ttl-sweeper"]


def test_sweeper_deletes_from_time_to_time(clock: Clock) -> None:
    with ChromaStore(ttl={"sweep_interval_minutes": 0.01 * SECOND}, clock=clock) as store:
        store.start_ttl_sweeper()
        for key in "ab":
            store.put(("n",), key, {}, ttl=1)
            assert stored(store) == 1
            clock.wait(2)
            until(lambda: stored(store) == 0)


def test_sweeper_starts_once_and_stops() -> None:
    with ChromaStore(ttl={"default_ttl": 1}) as store:
        store.start_ttl_sweeper(1)
        store.start_ttl_sweeper(1)
        assert len(sweepers()) == 1
        assert store.stop_ttl_sweeper(timeout=5)
        assert not sweepers()
        assert store.stop_ttl_sweeper()
        store.start_ttl_sweeper(1)
        assert len(sweepers()) == 1


def test_cancelled_future_stops_the_sweeper() -> None:
    with ChromaStore(ttl={"default_ttl": 1}) as store:
        store.start_ttl_sweeper(1).cancel()
        until(lambda: not sweepers())


def test_without_a_configuration_there_is_no_sweeper() -> None:
    with ChromaStore() as store:
        assert store.start_ttl_sweeper().done()
        assert not sweepers()


def test_closing_the_store_stops_the_sweeper() -> None:
    store = ChromaStore(ttl={"default_ttl": 1})
    store.start_ttl_sweeper(1)
    store.close()
    assert not sweepers()
    with pytest.raises(StoreError, match="closed"):
        store.start_ttl_sweeper()


def test_forgotten_store_is_collected_while_its_sweeper_runs() -> None:
    store = ChromaStore(ttl={"default_ttl": 1})
    store.start_ttl_sweeper(1)
    forgotten = weakref.ref(store)
    del store
    gc.collect()
    assert forgotten() is None
    until(lambda: not sweepers())


def test_failed_sweep_is_told_and_the_next_one_works(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    broken = threading.Event()

    def time_or_failure() -> datetime:
        if broken.is_set():
            raise OSError("no clock")
        return clock()

    with ChromaStore(ttl={"default_ttl": 1}, clock=time_or_failure) as store:
        store.put(("n",), "k", {})
        clock.wait(2)
        broken.set()
        store.start_ttl_sweeper(0.01 * SECOND)
        with caplog.at_level(logging.ERROR):
            until(lambda: "A sweep failed" in caplog.text)
        broken.clear()
        until(lambda: stored(store) == 0)
