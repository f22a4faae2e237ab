"""What is counted and kept in the background arrives in the store.

After failures, in bursts, at a pipeline's end.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.store.base import BaseStore, Op, PutOp

from langchain_ctxbudget import ChromaStore, ContextPipeline
from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.integrations.callbacks import ContextUsageHandler
from langchain_ctxbudget.middleware import ContextBudgetMiddleware
from langchain_ctxbudget.pipeline.usage import Ledger, of_month, of_session
from langchain_ctxbudget.stores import ROOT, Scope, bulk, label
from langchain_ctxbudget.tokens import Usage
from tests.integration_tests.conftest import Call
from tests.stores import Failing

SCOPE: Any = {"user_id": "ada", "conversation_id": "c1"}
USAGE: Any = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
SETTINGS = {"learn": False, "keep_snapshots": 3}


@pytest.mark.parametrize(
    "end", [ContextPipeline.flush, ContextPipeline.close], ids=["flush", "close"]
)
def test_what_could_not_be_written_is_written_at_the_end(
    call: Call, end: Callable[[ContextPipeline], object]
) -> None:
    store = Failing()
    refused = list[Op]()
    store.fails = lambda op: isinstance(op, PutOp) and (refused.append(op) or True)
    it = ContextPipeline(SETTINGS, store=store)
    it.observe_usage(USAGE, report=call(it, "assemble", "Hello", **SCOPE).report)
    assert it.engine.workspace.bookkeeping.worker.flush(30)
    assert refused
    store.fails = lambda _: False
    end(it)
    assert drive(Ledger().read(store, "ada", of_session(Scope("ada", "c1")))).total_tokens == 110


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


def test_a_call_that_the_middleware_observes_is_not_counted_again_by_a_handler(
    store: BaseStore,
) -> None:
    budget = ContextBudgetMiddleware(
        ContextPipeline(SETTINGS, store=store), default_user="ada", recall_tool=False
    )
    model = GenericFakeChatModel(messages=iter([AIMessage("Good day!", usage_metadata=USAGE)]))
    handler = ContextUsageHandler(budget.pipeline)
    config: Any = {"configurable": {"thread_id": "c1"}, "callbacks": [handler]}
    agent: Any = create_agent(model, middleware=[budget])
    agent.invoke({"messages": [("human", "Hello")]}, config)
    assert budget.pipeline.usage.of_session(**SCOPE).calls == 1


# -- What was used is kept on every store: by conversation, by user and month, in as many lanes as
# there are writers


MONTH = "2026-11"
LEDGER_SCOPE = Scope("ada", "c1")
ONE = Usage(
    calls=1,
    input_tokens=1_000_000,
    cached_tokens=3,
    output_tokens=7,
    cost=0.123456789,
    unpriced_calls=1,
)


def used(ledger: Ledger, store: BaseStore, scope: Scope = LEDGER_SCOPE, usage: Usage = ONE) -> None:
    ledger.note(scope, usage, MONTH)
    drive(ledger.write(store, scope.user_id))


def read(ledger: Ledger, store: BaseStore, scope: Scope = LEDGER_SCOPE) -> tuple[Usage, Usage]:
    user = scope.user_id
    session = of_session(scope)
    month = of_month(scope.user_id, MONTH)
    return drive(ledger.read(store, user, session)), drive(ledger.read(store, user, month))


def test_clearing_leaves_the_month_and_erasing_nothing(store: BaseStore) -> None:
    with ContextPipeline(store=store) as pipeline:
        for conversation in ("c1", MONTH):
            scope = Scope("ada", conversation)
            ledger = Ledger()
            used(ledger, store, scope)
            ledger.forget(scope)
            pipeline.clear(user_id="ada", conversation_id=conversation)
            drive(ledger.write(store, "ada"))
            assert read(ledger, store, scope)[0] == Usage()
        assert read(Ledger(), store) == (Usage(), ONE + ONE)
        used(ledger := Ledger(), store)
        used(ledger, store, Scope("ada2", "c1"))
        lines = pipeline.export_user(user_id="ada")
        assert [sum(kind in line for line in lines) for kind in ('"usage/2026-11"', '"spent"')] == [
            3,
            1,
        ]
        ledger.erase("ada")
        pipeline.erase_user(user_id="ada")
        drive(ledger.write(store, "ada"))
        assert not drive(bulk.read_below(store, (ROOT, label("ada"))))
        assert read(ledger, store, Scope("ada2", "c1")) == (ONE, ONE)
