"""What is counted and kept in the background arrives in the store.

After failures, at a pipeline's end, and not where a conversation is cleared or a user erased.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from time import sleep
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatResult
from langgraph.store.base import BaseStore, Op, PutOp

from langchain_ctxbudget import ChromaStore, ContextPipeline
from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.integrations.callbacks import ContextUsageHandler
from langchain_ctxbudget.middleware import ContextBudgetMiddleware
from langchain_ctxbudget.pipeline.usage import Ledger, of_month, of_session
from langchain_ctxbudget.stores import ROOT, Scope, bulk, label
from langchain_ctxbudget.tokens import Usage
from tests.stores import Failing

SCOPE: Any = {"user_id": "ada", "conversation_id": "c1"}
USAGE: Any = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
SETTINGS = {"learn": False, "keep_snapshots": 3}


class Refusing(Failing):
    """A store that notes what it is asked to put, and puts it only when it is willing."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: list[Op] = []
        self.fails = self.refuses

    def refuses(self, op: Op) -> bool:
        if isinstance(op, PutOp):
            self.refused.append(op)
            return True
        return False

    def become_willing(self) -> None:
        self.fails = lambda _: False


@pytest.mark.parametrize(
    "end", [ContextPipeline.flush, ContextPipeline.close], ids=["flush", "close"]
)
def test_what_could_not_be_written_is_written_at_the_end(
    end: Callable[[ContextPipeline], object],
) -> None:
    store = Refusing()
    pipeline = ContextPipeline(SETTINGS, store=store)
    report = pipeline.assemble("Hello", **SCOPE).report
    pipeline.observe_usage(USAGE, report=report)
    assert pipeline.engine.workspace.workers.bookkeeping.worker.flush(30)
    assert store.refused

    store.become_willing()
    end(pipeline)

    with ContextPipeline(SETTINGS, store=store) as other:
        assert other.usage.of_session(**SCOPE).total_tokens == 110


COUNT = """
import sys
from langchain_ctxbudget import ChromaStore, ContextPipeline

store = ChromaStore(sys.argv[1])
pipeline = ContextPipeline({"learn": False, "keep_snapshots": 3}, store=store)
report = pipeline.assemble("Hello", user_id="ada", conversation_id="c1").report
usage = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
pipeline.observe_usage(usage, report=report)
"""


@pytest.fixture(scope="module")
def ended_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContextPipeline]:
    """A pipeline on the store of a process that ended without closing anything."""
    folder = tmp_path_factory.mktemp("store")
    subprocess.run([sys.executable, "-c", COUNT, str(folder)], check=True, timeout=120)
    with ChromaStore(folder) as store, ContextPipeline(store=store) as pipeline:
        yield pipeline


@pytest.mark.slow
def test_a_process_that_ends_has_written_its_usage(ended_process: ContextPipeline) -> None:
    assert ended_process.usage.of_session(**SCOPE).calls == 1


@pytest.mark.slow
def test_a_process_that_ends_has_written_its_snapshots(ended_process: ContextPipeline) -> None:
    assert len(ended_process.snapshots.list(**SCOPE)) == 1


def test_a_handler_does_not_count_what_the_middleware_observes(
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


class Slow(GenericFakeChatModel):
    """A model that answers after a while."""

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        sleep(0.02)
        return super()._generate(*args, **kwargs)


@pytest.mark.parametrize("way", ["middleware", "handler"])
def test_the_time_of_an_answer_is_booked(way: str) -> None:
    model = Slow(messages=iter([AIMessage("Good day!", usage_metadata=USAGE)]))
    if way == "middleware":
        budget = ContextBudgetMiddleware(SETTINGS, default_user="ada")
        pipeline = budget.pipeline
        agent: Any = create_agent(model, middleware=[budget])
        agent.invoke({"messages": [("human", "Hello")]}, {"configurable": {"thread_id": "c1"}})
    else:
        pipeline = ContextPipeline(SETTINGS)
        context = pipeline.assemble("Hello", **SCOPE)
        model.invoke(context.messages, {"callbacks": [ContextUsageHandler(pipeline)]})
    used = pipeline.usage.of_session(**SCOPE)
    assert (used.timed_calls, used.seconds >= 0.02) == (1, True)


# -- what was used is kept by conversation, and by user and month


MONTH = "2026-11"
ONE_CALL = Usage(
    calls=1,
    input_tokens=1_000_000,
    cached_tokens=3,
    output_tokens=7,
    cost=0.123456789,
    unpriced_calls=1,
)


ADA_C1 = Scope("ada", "c1")
ADA2_C1 = Scope("ada2", "c1")


class Writer:
    """A writer of usage with a ledger of its own."""

    def __init__(self, store: BaseStore) -> None:
        self.ledger = Ledger()
        self.store = store

    def use(self, scope: Scope) -> None:
        self.ledger.note(scope, ONE_CALL, MONTH)
        self.write(scope.user_id)

    def write(self, user_id: str) -> None:
        drive(self.ledger.write(self.store, user_id))

    def session(self, scope: Scope) -> Usage:
        return drive(self.ledger.read(self.store, scope.user_id, of_session(scope))).used

    def month(self, user_id: str) -> Usage:
        return drive(self.ledger.read(self.store, user_id, of_month(user_id, MONTH))).used


def use_and_clear(store: BaseStore, conversation_id: str) -> Writer:
    """A writer that notes usage, forgets the conversation, and writes once it is cleared."""
    scope = Scope("ada", conversation_id)
    writer = Writer(store)
    writer.use(scope)
    writer.ledger.forget(scope)
    with ContextPipeline(store=store) as pipeline:
        pipeline.clear(user_id="ada", conversation_id=conversation_id)
    writer.write("ada")
    return writer


@pytest.mark.parametrize("conversation_id", ["c1", MONTH])
def test_a_cleared_conversation_has_used_nothing(store: BaseStore, conversation_id: str) -> None:
    writer = use_and_clear(store, conversation_id)
    assert writer.session(Scope("ada", conversation_id)) == Usage()


def test_clearing_leaves_the_month(store: BaseStore) -> None:
    use_and_clear(store, "c1")
    use_and_clear(store, MONTH)

    reader = Writer(store)

    assert reader.session(ADA_C1) == Usage()
    assert reader.month("ada") == ONE_CALL + ONE_CALL


@pytest.mark.parametrize(("kind", "lines"), [('"usage/2026-11"', 3), ('"spent"', 1)])
def test_an_export_has_a_line_for_every_writer(store: BaseStore, kind: str, lines: int) -> None:
    use_and_clear(store, "c1")
    use_and_clear(store, MONTH)
    writer = Writer(store)
    writer.use(ADA_C1)
    writer.use(ADA2_C1)

    with ContextPipeline(store=store) as pipeline:
        exported = list(pipeline.export_user(user_id="ada"))

    assert sum(kind in line for line in exported) == lines


def use_and_erase(store: BaseStore) -> Writer:
    """A writer for two users of whom one, ada, is erased."""
    use_and_clear(store, "c1")
    writer = Writer(store)
    writer.use(ADA_C1)
    writer.use(ADA2_C1)
    writer.ledger.erase("ada")
    with ContextPipeline(store=store) as pipeline:
        pipeline.erase_user(user_id="ada")
    writer.write("ada")
    return writer


def test_erasing_leaves_nothing_of_a_user(store: BaseStore) -> None:
    use_and_erase(store)
    assert not drive(bulk.read_below(store, (ROOT, label("ada"))))


def test_erasing_leaves_what_another_user_has_used(store: BaseStore) -> None:
    writer = use_and_erase(store)
    assert writer.session(ADA2_C1) == ONE_CALL
    assert writer.month("ada2") == ONE_CALL
