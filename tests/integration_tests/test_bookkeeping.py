"""What is counted and kept in the background arrives in the store: after failures, in bursts, at a pipeline's end."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.store.base import Op, PutOp
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ChromaStore, ContextPipeline
from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.integrations.callbacks import ContextUsageHandler
from langchain_ctxbudget.integrations.middleware import ContextBudgetMiddleware
from langchain_ctxbudget.stores import Ledger, Scope, month_of
from langchain_ctxbudget.tokens import Usage
from tests.integration_tests.conftest import Call

SCOPE: Any = {"user_id": "ada", "conversation_id": "c1"}
USAGE: Any = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
SETTINGS = {"learn": False, "keep_snapshots": 3}


class Store(InMemoryStore):
    """Takes no writes while it is down, and lets them wait while it is slow."""

    down = False

    def __init__(self) -> None:
        super().__init__()
        self.fast = threading.Event()
        self.fast.set()
        self.refused = threading.Event()

    def batch(self, ops: Any) -> Any:
        listed = list(ops)
        self._admit(listed)
        return super().batch(listed)

    async def abatch(self, ops: Any) -> Any:
        listed = list(ops)
        self._admit(listed)
        return await super().abatch(listed)

    def _admit(self, ops: list[Op]) -> None:
        if any(isinstance(op, PutOp) for op in ops):
            self.fast.wait(30)
            if self.down:
                self.refused.set()
                raise OSError("no space left")


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store()
    yield made
    made.fast.set()


def written(store: Store, conversation_id: str = "c1") -> Usage:
    """What another process would find."""
    session, _ = drive(Ledger().read(store, Scope("ada", conversation_id), month_of(datetime.now().astimezone())))
    return session


def answered(store: Store, call: Call, conversation_id: str = "c1") -> ContextPipeline:
    """A pipeline that has made a prompt and has seen what the answer used."""
    it = ContextPipeline(SETTINGS, store=store)
    context = call(it, "assemble", "Hello", user_id="ada", conversation_id=conversation_id)
    it.observe_usage(USAGE, report=context.report)
    return it


@pytest.mark.parametrize("end", [ContextPipeline.flush, ContextPipeline.close], ids=["flush", "close"])
def test_what_could_not_be_written_is_written_at_the_end(
    store: Store, call: Call, end: Callable[[ContextPipeline], object]
) -> None:
    store.down = True
    it = answered(store, call)
    assert it.engine.workspace.bookkeeping.worker.flush(30)
    assert store.refused.is_set()
    store.down = False
    end(it)
    assert written(store).total_tokens == 110
    assert len(ContextPipeline(store=store).snapshots.list(**SCOPE)) == 1


def test_what_a_pipeline_counted_is_written_after_it_was_let_go_of(store: Store) -> None:
    store.fast.clear()
    it = answered(store, call=lambda of, name, *args, **options: getattr(of, name)(*args, **options))
    other = it.assemble("Hello", user_id="ada", conversation_id="c2")
    it.observe_usage(USAGE, report=other.report)
    del it, other
    gc.collect()
    store.fast.set()
    assert eventually(lambda: written(store, "c2").calls == 1)


def eventually(holds: Callable[[], bool], seconds: float = 30) -> bool:
    until = time.monotonic() + seconds
    while not holds() and time.monotonic() < until:
        time.sleep(0.02)
    return holds()


COUNTS = """
import sys
from langchain_ctxbudget import ChromaStore, ContextPipeline
store = ChromaStore(sys.argv[1])
pipeline = ContextPipeline({"learn": False, "keep_snapshots": 3}, store=store)
report = pipeline.assemble("Hello", user_id="ada", conversation_id="c1").report
pipeline.observe_usage({"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}, report=report)
"""


def test_a_process_that_ends_without_closing_anything_has_written_it(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", COUNTS, str(tmp_path)], check=True, timeout=120)
    with ChromaStore(tmp_path) as opened, ContextPipeline(store=opened) as it:
        assert it.usage.of_session(**SCOPE).calls == 1
        assert len(it.snapshots.list(**SCOPE)) == 1


def test_a_call_that_the_middleware_observes_is_not_counted_again_by_a_handler(store: Store) -> None:
    budget = ContextBudgetMiddleware(ContextPipeline(SETTINGS, store=store), default_user="ada", recall_tool=False)
    model = GenericFakeChatModel(messages=iter([AIMessage("Good day!", usage_metadata=USAGE)]))
    handler = ContextUsageHandler(budget.pipeline)
    config: Any = {"configurable": {"thread_id": "c1"}, "callbacks": [handler]}
    agent: Any = create_agent(model, middleware=[budget])
    agent.invoke({"messages": [("human", "Hello")]}, config)
    assert budget.pipeline.usage.of_session(**SCOPE).calls == 1
