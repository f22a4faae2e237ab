"""Reports that are kept: off the hot path, the newest so many, without what they quote, within one user."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.store.base import BaseStore, PutOp
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ChromaStore, ContextPipeline
from langchain_ctxbudget.errors import InputError, MissingScopeError, StoreDataError
from langchain_ctxbudget.stores.records import Scope
from langchain_ctxbudget.stores.snapshots import SNAPSHOTS, without_previews

SCOPE = {"user_id": "ada", "conversation_id": "c1"}


def call(it: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    return getattr(it, name)(*args, **kwargs)


class Full(InMemoryStore):
    """Takes no reports for a while."""

    full = True

    def batch(self, ops: Any) -> Any:
        listed = list(ops)
        if self.full and any(isinstance(op, PutOp) and SNAPSHOTS in op.namespace for op in listed):
            raise OSError("no space left")
        return super().batch(listed)


def pipeline(store: BaseStore | None = None, keep: int = 3) -> ContextPipeline:
    return ContextPipeline({"keep_snapshots": keep, "learn": False}, store=store or InMemoryStore())


def ask(it: ContextPipeline, *questions: str, **scope: str) -> list[Any]:
    contexts = [call(it, "assemble", question, **(scope or SCOPE)) for question in questions]
    assert it.flush(30)
    return [context.report for context in contexts]


def kept(it: ContextPipeline, **scope: str) -> list[Any]:
    found: list[Any] = call(it.snapshots, "list", **(scope or SCOPE))
    return found


def test_a_snapshot_is_the_report_of_its_prompt_without_previews(store: BaseStore) -> None:
    it = pipeline(store)
    call(it, "add_messages", [HumanMessage("My bike is blue."), AIMessage("Nice!")], **SCOPE)
    [report] = ask(it, "Which colour is my bike?")
    [snapshot] = kept(it)
    assert snapshot.report == without_previews(report)
    assert (snapshot.conversation_id, snapshot.messages) == ("c1", 2)
    assert call(it.snapshots, "latest", **SCOPE) == snapshot
    assert call(it.snapshots, "get", snapshot.id, **SCOPE) == snapshot


def test_nothing_that_was_said_is_in_a_snapshot() -> None:
    store = InMemoryStore()
    it = pipeline(store)
    call(it, "add_messages", [HumanMessage("The secret word is xylophone."), AIMessage("I will keep it.")], **SCOPE)
    ask(it, "What was the secret word? Was it marimba?")
    records = [item.value for item in store.search(Scope(**SCOPE).namespace(SNAPSHOTS))]
    assert len(records) == 1
    assert not {"xylophone", "marimba", "secret"} & set(json.dumps(records).replace('"', " ").split())


def test_the_latest_so_many_stay_oldest_first(store: BaseStore) -> None:
    it = pipeline(store)
    reports = ask(it, *("word " * number for number in range(1, 8)))
    assert [one.report.total_tokens for one in kept(it)] == [report.total_tokens for report in reports[-3:]]
    assert len(call(it.snapshots, "list", limit=2, **SCOPE)) == 2


def test_a_restart_goes_on_with_those_that_were_kept(tmp_path: Path) -> None:
    for number in range(3):
        with ChromaStore(tmp_path / "store") as store, pipeline(store) as it:
            ask(it, f"{number} a", f"{number} b")
            assert len(kept(it)) == min(3, 2 * (number + 1))


@pytest.mark.parametrize("restarted", [False, True], ids=["same process", "after a restart"])
def test_the_newest_stay_where_the_clock_was_set_back(*, restarted: bool) -> None:
    store, now = InMemoryStore(), [datetime(2026, 11, 1, 12, tzinfo=UTC)]

    def at_that_time() -> ContextPipeline:
        return ContextPipeline({"keep_snapshots": 3, "learn": False}, store=store, clock=lambda: now[0])

    it = at_that_time()
    before = ask(it, *("word " * number for number in range(1, 4)))
    now[0] -= timedelta(hours=1)
    it = at_that_time() if restarted else it
    after = ask(it, *("word " * number for number in range(5, 7)))
    expected = [report.total_tokens for report in (before[-1], *after)]
    assert [one.report.total_tokens for one in kept(it)] == expected


def test_without_the_setting_nothing_is_kept() -> None:
    it = pipeline(keep=0)
    ask(it, "Hello")
    assert kept(it) == []
    assert call(it.snapshots, "latest", **SCOPE) is None


def test_nothing_is_written_while_a_prompt_is_made() -> None:
    class Watched(InMemoryStore):
        """Notes which threads write."""

        def __init__(self) -> None:
            super().__init__()
            self.writers: set[str] = set()

        def batch(self, ops: Any) -> Any:
            listed = list(ops)
            if any(isinstance(op, PutOp) for op in listed):
                self.writers.add(threading.current_thread().name)
            return super().batch(listed)

    store = Watched()
    it = pipeline(store)
    ask(it, "Hello", "Hello again")
    assert len(kept(it)) == 2
    assert threading.current_thread().name not in store.writers


def test_another_user_has_none_of_them(store: BaseStore) -> None:
    it = pipeline(store)
    ask(it, "Hello")
    [mine] = kept(it)
    assert kept(it, user_id="bob", conversation_id="c1") == []
    assert call(it.snapshots, "get", mine.id, user_id="bob", conversation_id="c1") is None
    assert call(it.snapshots, "get", mine.id, user_id="ada", conversation_id="c2") is None


@pytest.mark.parametrize("gone", ["clear", "erase_user"])
def test_erasing_leaves_none(store: BaseStore, gone: str) -> None:
    it = pipeline(store)
    ask(it, "Hello", "Hello again")
    call(it, "assemble", "One that is still to be written", **SCOPE)
    call(it, gone, **(SCOPE if gone == "clear" else {"user_id": "ada"}))
    it.flush()
    assert [one for one in kept(it) if one.report.total_tokens] == []


def test_what_another_pipeline_erases_is_not_written_later() -> None:
    store = Full()
    it, other = pipeline(store), pipeline(store)
    ask(it, "one that waits")
    store.full = False
    call(other, "erase_user", user_id="ada")
    ask(it, "another one")
    assert len(kept(it)) == 1


def test_an_export_has_them() -> None:
    it = pipeline()
    ask(it, "Hello")
    lines = [json.loads(line) for line in call(it, "export_user", user_id="ada")]
    assert sum(SNAPSHOTS in line["namespace"] for line in lines) == 1


def test_where_they_cannot_be_written_the_next_report_says_so_and_they_are_written_later() -> None:
    store = Full()
    it = pipeline(store)
    ask(it, "one")
    [report] = ask(it, "two")
    assert any("snapshots and usage not written: OSError: no space left" in failure for failure in report.failures)
    store.full = False
    ask(it, "three")
    assert len(kept(it)) == 3, "the first two had waited"


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, None])
def test_a_limit_is_a_count(limit: Any) -> None:
    with pytest.raises(InputError, match="limit must be a whole number of at least 1"):
        call(pipeline().snapshots, "list", limit=limit, **SCOPE)


def test_without_a_user_nothing_is_read() -> None:
    with pytest.raises(MissingScopeError):
        call(pipeline().snapshots, "list", user_id="", conversation_id="c1")


@pytest.mark.parametrize(
    "value", [{"report": {}}, {"created_at": "2026-11-01T00:00:00Z", "messages": 1, "report": {"schema_version": 99}}]
)
def test_a_damaged_snapshot_is_named(value: dict[str, Any]) -> None:
    store = InMemoryStore()
    store.put(Scope(**SCOPE).namespace(SNAPSHOTS), "broken", value)
    with pytest.raises(StoreDataError, match="broken"):
        kept(pipeline(store))
