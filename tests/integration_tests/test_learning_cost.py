"""What learning costs: a job reads and writes only what it must, and a prompt reads no more for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.store.base import BaseStore, PutOp, Result
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, ContextSettings
from langchain_ctxbudget.core.detection import Detector
from langchain_ctxbudget.core.report import LISTED_OMISSIONS
from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.knowledge import known
from langchain_ctxbudget.knowledge.subjects import detect
from langchain_ctxbudget.settings import Topic
from tests.integration_tests.conftest import Call
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


def test_a_job_reads_nothing_again_that_nobody_has_changed() -> None:
    store = Writes(InMemoryStore())
    learned(store, STORY, "c1")
    learned(store, NOTHING_NEW, "c2")
    assert not store.searches


def test_what_somebody_else_has_learned_is_read_by_the_next_job() -> None:
    data = InMemoryStore()
    here, there = Writes(data), Writes(data)
    learned(here, STORY, "c1")
    learned(there, ["I live in Lisbon."], "c2")
    learned(here, NOTHING_NEW, "c3")
    assert here.searches


@pytest.mark.parametrize("how", ["edit_message", "remove_messages", "clear"])
def test_where_nothing_is_known_a_removal_looks_for_nothing_of_it(call: Call, how: str) -> None:
    counts = []
    for learn in (True, False):
        store = Writes(InMemoryStore())
        where: Any = {**ADA, "conversation_id": "c1"}
        with ContextPipeline({"learn": learn}, store=store) as pipeline:
            pipeline.add_messages([HumanMessage("Hello", id="m1"), HumanMessage("Bye", id="m2")], **where)
            store.reset()
            given: dict[str, tuple[Any, ...]] = {
                "edit_message": ("m1", HumanMessage("Hi")),
                "remove_messages": (["m1"],),
                "clear": (),
            }
            call(pipeline, how, *given[how], **where)
        counts.append((store.searches, len(store.written)))
    assert counts[0] == counts[1]


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


def test_what_finds_names_is_built_once_where_nobody_is_called_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    store = InMemoryStore()
    learned(store, STORY, "c1")
    learned(store, NOTHING_NEW, "c2")
    built: list[int] = []
    new: Callable[..., None] = Detector.__init__
    monkeypatch.setattr(
        Detector, "__init__", lambda self, things, *rest: (built.append(1), new(self, things, *rest))[1]
    )
    learned(store, NOTHING_NEW, "c3")
    assert not built


def test_the_prompt_after_a_job_does_not_have_to_build_what_finds_names(monkeypatch: pytest.MonkeyPatch) -> None:
    store = InMemoryStore()
    learned(store, STORY, "c1")
    monkeypatch.setattr(Detector, "__init__", lambda *_: pytest.fail("built for a prompt"))
    with ContextPipeline(store=store) as pipeline:
        pipeline.assemble("How is Sarah's home brewing?", **ADA, conversation_id="c1")


def test_what_was_said_by_hand_is_picked_out_once() -> None:
    store = InMemoryStore()
    learned(store, STORY, "c1")
    knowledge = drive(known.read(store, "ada"))
    assert known.shown(knowledge, learned=False) is known.shown(knowledge, learned=False) is not knowledge


def test_users_who_were_not_asked_for_lately_do_not_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "KEPT_USERS", 2)
    monkeypatch.setattr(known, "KEPT_LEARNERS", 1)
    store = Writes(InMemoryStore())
    learned(store, STORY, "c1")
    for user in ("bob", "cy"):
        drive(known.read(store, user))
        store.reset()
        drive(known.read(store, "ada"))
        assert not store.searches
    learned(store, NOTHING_NEW, "c2")
    assert store.searches  # what only learning needs
    for user in ("bob", "cy", "dan"):
        drive(known.read(store, user))
    store.reset()
    drive(known.read(store, "ada"))
    assert store.searches


def test_no_more_of_what_is_declared_is_counted_than_a_report_lists() -> None:
    topics = [Topic(label=f"Topic {number}", context="About it.") for number in range(LISTED_OMISSIONS + 7)]
    counted: list[str] = []
    found = detect(
        "Hello", ContextSettings(topics=topics), count=lambda text: len(counted) + (counted.append(text) or 0)
    )
    assert len(found.omitted) == len(counted) == LISTED_OMISSIONS
    assert [number for *_, number in found.learned_elsewhere] == [7]
