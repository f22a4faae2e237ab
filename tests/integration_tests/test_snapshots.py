"""Reports that are kept: the newest so many, without what they quote, within one user."""

import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.store.base import BaseStore, PutOp
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, ContextReport
from langchain_ctxbudget.pipeline.snapshots import SNAPSHOTS
from langchain_ctxbudget.stores import Scope
from tests.stores import Failing

SCOPE: Any = {"user_id": "ada", "conversation_id": "c1"}
PLACE = Scope(**SCOPE).namespace(SNAPSHOTS)


def pipeline(store: BaseStore | None = None, keep: int = 3) -> ContextPipeline:
    return ContextPipeline({"keep_snapshots": keep, "learn": False}, store=store or InMemoryStore())


def kept(report: ContextReport) -> ContextReport:
    """A report as it is kept: it quotes nothing."""
    data = report.to_dict()
    for layer in data["layers"]:
        layer["items"] = [{**item, "preview": ""} for item in layer["items"]]
    return ContextReport.from_dict(data)


def ask(it: ContextPipeline, *questions: str) -> list[Any]:
    contexts = [it.assemble(question, **SCOPE) for question in questions]
    assert it.flush(30)
    return [context.report for context in contexts]


def test_the_latest_so_many_are_the_reports_of_their_prompts(store: BaseStore) -> None:
    it = pipeline(store)
    it.add_messages([HumanMessage("My bike is blue."), AIMessage("Nice!")], **SCOPE)
    reports = ask(it, *("Which colour is my bike? " * number for number in range(1, 6)))
    found = it.snapshots.list(**SCOPE)
    assert [one.report for one in found] == [kept(report) for report in reports[-3:]]
    assert (found[0].conversation_id, found[0].messages) == ("c1", 2)
    assert it.snapshots.list(limit=2, **SCOPE) == found[1:]
    assert (
        it.snapshots.list(limit=1, **SCOPE)[0] == it.snapshots.get(found[2].id, **SCOPE) == found[2]
    )
    assert it.snapshots.list(user_id="bob", conversation_id="c1") == []
    for other in (
        {"user_id": "bob", "conversation_id": "c1"},
        {"user_id": "ada", "conversation_id": "c2"},
    ):
        assert it.snapshots.get(found[2].id, **other) is None
    assert sum(json.loads(line)["kind"] == SNAPSHOTS for line in it.export_user(user_id="ada")) == 3


@pytest.mark.parametrize("gone", ["clear", "erase_user"])
def test_erasing_leaves_none(store: BaseStore, gone: str) -> None:
    it = pipeline(store)
    ask(it, "Hello", "Hello again")
    it.assemble("One that is still to be written", **SCOPE)
    getattr(it, gone)(**(SCOPE if gone == "clear" else {"user_id": "ada"}))
    it.flush()
    assert [one for one in it.snapshots.list(**SCOPE) if one.report.total_tokens] == []


def test_nothing_that_was_said_is_in_a_snapshot() -> None:
    store = InMemoryStore()
    it = pipeline(store)
    it.add_messages(
        [HumanMessage("The secret word is xylophone."), AIMessage("I will keep it.")], **SCOPE
    )
    ask(it, "What was the secret word?")
    ask(it, "What was the secret word? Was it marimba?")
    _, record = [json.dumps(item.value) for item in store.search(PLACE)]
    assert not {"xylophone", "marimba", "secret"} & set(record.replace('"', " ").split())


def test_where_one_cannot_be_written_its_report_says_so_and_the_next_is() -> None:
    store = Failing()
    it = pipeline(store)
    store.fails = lambda op: isinstance(op, PutOp) and SNAPSHOTS in op.namespace
    [report] = ask(it, "one")
    assert any(
        "snapshot not written: OSError: the disk is gone" in failure for failure in report.failures
    )
    store.fails = lambda _: False
    [report] = ask(it, "two")
    assert [one.report for one in it.snapshots.list(**SCOPE)] == [kept(report)]
