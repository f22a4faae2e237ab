"""What was used is kept on every store: by conversation, by user and month, in as many lanes as there are writers."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.store.base import BaseStore, Op, PutOp, Result, SearchOp
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ChromaStore, ContextPipeline, flow
from langchain_ctxbudget.stores import bulk
from langchain_ctxbudget.stores.records import Scope, label
from langchain_ctxbudget.stores.usage_ledger import USAGE, Ledger, of_session, of_user
from langchain_ctxbudget.tokens.prices import NO_USAGE, Usage

MONTH = "2026-11"
SCOPE = Scope("ada", "c1")
ONE = Usage(calls=1, input_tokens=1_000_000, cached_tokens=3, output_tokens=7, cost=0.123456789, unpriced_calls=1)
USERS = ["ada", "ad", "ada2", "ada@example.com", "a_a", "a%a", "nul \0", "half \ud800", "\U0001f642", "x" * 500]


def call(it: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    return getattr(it, name)(*args, **kwargs)


def read(ledger: Ledger, store: BaseStore, scope: Scope = SCOPE, month: str = MONTH) -> tuple[Usage, Usage]:
    found = call(flow, "drive", ledger.read(store, scope, month))
    assert isinstance(found, tuple)
    return found


def test_two_processes_that_write_to_one_place_lose_nothing(store: BaseStore) -> None:
    first, second = Ledger(), Ledger()
    for _ in range(3):
        for ledger in (first, second):
            ledger.note(SCOPE, ONE, None, MONTH)
            call(flow, "drive", ledger.write(store, SCOPE))
    six = Usage(
        calls=6,
        input_tokens=6_000_000,
        cached_tokens=18,
        output_tokens=42,
        cost=0.740740734,
        unpriced_calls=6,
    )
    for ledger in (first, second, Ledger()):
        assert read(ledger, store) == (six, six)


def test_no_user_reads_what_another_has_used(store: BaseStore) -> None:
    ledger = Ledger()
    for number, user in enumerate(USERS, 1):
        ledger.note(Scope(user, "c1"), Usage(calls=number), None, MONTH)
        call(flow, "drive", ledger.write(store, Scope(user, "c1")))
    found = [read(Ledger(), store, Scope(user, "c1")) for user in USERS]
    assert found == [(Usage(calls=number), Usage(calls=number)) for number in range(1, len(USERS) + 1)]


def test_a_cleared_conversation_is_no_longer_counted_and_its_month_is(store: BaseStore) -> None:
    pipeline = ContextPipeline(store=store)
    for conversation in ("c1", MONTH):
        scope = Scope("ada", conversation)
        ledger = Ledger()
        ledger.note(scope, ONE, None, MONTH)
        call(flow, "drive", ledger.write(store, scope))
        ledger.forget(scope)
        call(pipeline, "clear", user_id="ada", conversation_id=conversation)
        call(flow, "drive", ledger.write(store, scope))
        assert read(ledger, store, scope)[0] == NO_USAGE
    assert read(Ledger(), store) == (NO_USAGE, ONE + ONE)
    pipeline.close()


def test_of_an_erased_user_no_usage_is_left(store: BaseStore) -> None:
    pipeline, ledger = ContextPipeline(store=store), Ledger()
    for user in ("ada", "ada2"):
        ledger.note(Scope(user, "c1"), ONE, None, MONTH)
        call(flow, "drive", ledger.write(store, Scope(user, "c1")))
    ledger.erase("ada")
    assert call(pipeline, "erase_user", user_id="ada") >= 2
    call(flow, "drive", ledger.write(store, SCOPE))
    [left] = call(flow, "drive", flow.batch(store, [SearchOp(of_user("ada"), limit=100)]))
    assert [item for item in left if item.namespace[1] == label("ada")] == []
    assert read(ledger, store, Scope("ada2", "c1")) == (ONE, ONE)
    pipeline.close()


def test_what_was_used_is_part_of_an_export(store: BaseStore) -> None:
    pipeline, ledger = ContextPipeline(store=store), Ledger()
    ledger.note(SCOPE, ONE, "gpt-4o", MONTH)
    call(flow, "drive", ledger.write(store, SCOPE))
    lines = call(pipeline, "export_user", user_id="ada")
    assert sum('"usage", "2026-11"' in line for line in lines) == 1
    assert sum('"spent", "c1~"' in line for line in lines) == 1
    pipeline.close()


@pytest.mark.parametrize("kind", [InMemoryStore, ChromaStore])
def test_nothing_of_it_is_found_by_a_search_for_what_was_said(kind: type[BaseStore]) -> None:
    embedded: list[str] = []

    def embed(texts: list[str]) -> list[list[float]]:
        embedded.extend(texts)
        return [[1.0, 0.0] for _ in texts]

    store = kind(index={"dims": 2, "embed": embed, "fields": ["$"]})  # type: ignore[call-arg]
    ledger = Ledger()
    ledger.note(SCOPE, ONE, "gpt-4o", MONTH)
    flow.drive(ledger.write(store, SCOPE))
    assert embedded == []
    with ContextPipeline(store=store) as pipeline:
        pipeline.add_messages([HumanMessage("gpt-4o")], user_id="ada", conversation_id="c1")
    assert read(Ledger(), store) == (ONE, ONE)


class Slow(InMemoryStore):
    """Holds up the write of usage until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.let_go = threading.Event(), threading.Event()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        todo = list(ops)
        if any(isinstance(op, PutOp) and op.value and USAGE in op.namespace for op in todo):
            self.begun.set()
            assert self.let_go.wait(10)
        return super().batch(todo)


@pytest.mark.parametrize("erase", ["clear", "erase_user"])
def test_what_is_being_written_while_it_is_erased_is_erased_too(erase: str) -> None:
    store = Slow()
    with ContextPipeline({"learn": False}, store=store) as pipeline:
        scope = {"user_id": "ada", "conversation_id": "c1"}
        pipeline.add_messages([HumanMessage("Hello")], **scope)
        arguments = scope if erase == "clear" else {"user_id": "ada"}
        writing = threading.Thread(target=lambda: pipeline.usage.record({"input_tokens": 5}, **scope))
        erasing = threading.Thread(target=lambda: getattr(pipeline, erase)(**arguments))
        writing.start()
        assert store.begun.wait(10)
        erasing.start()
        erasing.join(0.2)
        store.let_go.set()
        for thread in (writing, erasing):
            thread.join(10)
        pipeline.flush()
        assert pipeline.usage.of_session(**scope) == NO_USAGE
        assert pipeline.usage.of_month(user_id="ada").calls == (1 if erase == "clear" else 0)
        assert not store.search(of_session(SCOPE))


def test_what_another_process_has_erased_is_not_written_again_by_a_pipeline() -> None:
    store, scope = InMemoryStore(), {"user_id": "ada", "conversation_id": "c1"}
    with ContextPipeline({"learn": False}, store=store) as pipeline:
        pipeline.usage.record({"input_tokens": 5}, **scope)
        flow.drive(bulk.delete_below(store, of_user("ada"), "", ""))
        pipeline.usage.record({"input_tokens": 7}, **scope)
        assert pipeline.usage.of_session(**scope).input_tokens == 7
        assert pipeline.usage.of_month(user_id="ada").input_tokens == 7


def test_every_pipeline_of_a_process_forgets_what_one_erases() -> None:
    store, scope = InMemoryStore(), {"user_id": "ada", "conversation_id": "c1"}
    with ContextPipeline(store=store) as one, ContextPipeline(store=store) as other:
        one.usage.record({"input_tokens": 5}, **scope)
        other.erase_user(user_id="ada")
        one.usage.record({"input_tokens": 7}, **scope)
        assert other.usage.of_session(**scope).input_tokens == 7
