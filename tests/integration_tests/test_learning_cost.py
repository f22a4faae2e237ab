"""What learning costs: a job reads and writes only what it must, and a prompt reads no more for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from langchain_core.messages import HumanMessage
from langgraph.store.base import BaseStore, PutOp, Result
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from tests.log_contract import Counting

ADA: Any = {"user_id": "ada"}
STORY = (
    "My favourite colour is amber.",
    "Sarah, my sister, works at Acme.",
    "I am learning home brewing. The home brewing kettle is new.",
    "Sarah likes my home brewing.",
    "Today the home brewing went well.",
)
NOTHING_NEW = ("Right.", "Go on.", "I see.", "Thanks.", "Good.")


class Writes(Counting):
    """A store that also notes what is written."""

    def reset(self) -> None:
        super().reset()
        self.written: list[tuple[str, ...]] = []

    def _counted(self, ops: Any, results: list[Result]) -> list[Result]:
        self.written += [(*op.namespace, op.key) for op in ops if isinstance(op, PutOp)]
        return super()._counted(ops, results)


def learned(store: BaseStore, texts: Iterable[str], conversation: str, **settings: Any) -> None:
    """Learn from messages as the end of a session does; what is counted in the store is the job alone."""
    where: Any = {**ADA, "conversation_id": conversation}
    with ContextPipeline({"learn_every": 1_000, **settings}, store=store) as pipeline:
        pipeline.add_messages([HumanMessage(text) for text in texts], **where)
        if isinstance(store, Counting):
            store.reset()
        pipeline.end_session(**where)
        assert pipeline.flush(30)


def test_messages_that_say_nothing_new_write_how_far_they_were_read_and_nothing_else() -> None:
    store = Writes(InMemoryStore())
    learned(store, STORY, "c1")
    assert len(store.written) > 1
    learned(store, NOTHING_NEW, "c2")
    [written] = store.written
    assert written[-1] == "progress"


def test_a_prompt_reads_no_more_with_learning_switched_on() -> None:
    data = InMemoryStore()
    learned(data, STORY, "c1")
    counts = []
    for learn in (True, False):
        store = Counting(data)
        where: Any = {**ADA, "conversation_id": "c1"}
        with ContextPipeline({"learn": learn}, store=store) as pipeline:
            pipeline.assemble("How is Sarah's home brewing?", **where)
            store.reset()
            pipeline.assemble("What does Sarah say of the home brewing?", **where)
        counts.append((store.batches, store.operations))
    assert counts[0] == counts[1]
