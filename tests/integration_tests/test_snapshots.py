"""Reports that are kept: the newest so many, without what they quote, within one user."""

import json
from collections.abc import Callable

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.store.base import BaseStore, Op, PutOp
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, ContextReport
from langchain_ctxbudget.pipeline.snapshots import SNAPSHOTS
from langchain_ctxbudget.stores import Scope
from tests.stores import Failing

SCOPE: dict[str, str] = {"user_id": "ada", "conversation_id": "c1"}
BIKE = [HumanMessage("My bike is blue."), AIMessage("Nice!")]
QUESTIONS = [
    "Which colour is my bike?",
    "Is it red or green?",
    "Where is it now?",
    "Who sold it to me?",
    "When did I buy it?",
]


def pipeline_that_keeps_three(store: BaseStore) -> ContextPipeline:
    return ContextPipeline({"keep_snapshots": 3, "learn": False}, store=store)


def without_quotes(report: ContextReport) -> ContextReport:
    """Returns a report as it is kept: the previews of its items are empty."""
    data = report.to_dict()
    for layer in data["layers"]:
        for item in layer["items"]:
            item["preview"] = ""
    return ContextReport.from_dict(data)


def reports_of(pipeline: ContextPipeline, *questions: str) -> list[ContextReport]:
    """Returns the reports of some prompts, once their snapshots are written."""
    contexts = [pipeline.assemble(question, **SCOPE) for question in questions]
    assert pipeline.flush(30)
    return [context.report for context in contexts]


@pytest.fixture
def pipeline(store: BaseStore) -> ContextPipeline:
    """A pipeline with a conversation of two messages."""
    pipeline = pipeline_that_keeps_three(store)
    pipeline.add_messages(BIKE, **SCOPE)
    return pipeline


def test_the_newest_three_are_the_reports_of_their_prompts(pipeline: ContextPipeline) -> None:
    reports = reports_of(pipeline, *QUESTIONS)

    snapshots = pipeline.snapshots.list(**SCOPE)

    kept_reports = [without_quotes(report) for report in reports]
    assert [snapshot.report for snapshot in snapshots] == kept_reports[2:]


def test_a_snapshot_names_its_conversation_and_its_length(pipeline: ContextPipeline) -> None:
    reports_of(pipeline, "Which colour is my bike?")

    [snapshot] = pipeline.snapshots.list(**SCOPE)

    assert snapshot.conversation_id == "c1"
    assert snapshot.messages == 2


@pytest.mark.parametrize("limit", [1, 2])
def test_a_limit_leaves_the_newest(pipeline: ContextPipeline, limit: int) -> None:
    reports_of(pipeline, *QUESTIONS)
    snapshots = pipeline.snapshots.list(**SCOPE)

    assert pipeline.snapshots.list(limit=limit, **SCOPE) == snapshots[-limit:]


def test_a_snapshot_is_found_by_its_id(pipeline: ContextPipeline) -> None:
    reports_of(pipeline, *QUESTIONS)
    newest = pipeline.snapshots.list(**SCOPE)[2]

    assert pipeline.snapshots.get(newest.id, **SCOPE) == newest


def test_another_user_has_no_snapshots(pipeline: ContextPipeline) -> None:
    reports_of(pipeline, *QUESTIONS)

    assert pipeline.snapshots.list(user_id="bob", conversation_id="c1") == []


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"user_id": "bob", "conversation_id": "c1"},
        {"user_id": "ada", "conversation_id": "c2"},
    ],
    ids=["another user", "another conversation"],
)
def test_an_id_finds_nothing_elsewhere(
    pipeline: ContextPipeline, elsewhere: dict[str, str]
) -> None:
    reports_of(pipeline, *QUESTIONS)
    newest = pipeline.snapshots.list(**SCOPE)[2]

    assert pipeline.snapshots.get(newest.id, **elsewhere) is None


def test_an_export_has_the_snapshots(pipeline: ContextPipeline) -> None:
    reports_of(pipeline, *QUESTIONS)

    kinds = [json.loads(line)["kind"] for line in pipeline.export_user(user_id="ada")]

    assert kinds.count(SNAPSHOTS) == 3


def clear(pipeline: ContextPipeline) -> None:
    pipeline.clear(**SCOPE)


def erase_user(pipeline: ContextPipeline) -> None:
    pipeline.erase_user(user_id="ada")


@pytest.mark.parametrize("erase", [clear, erase_user])
def test_erasing_leaves_no_snapshot(
    store: BaseStore, erase: Callable[[ContextPipeline], None]
) -> None:
    pipeline = pipeline_that_keeps_three(store)
    reports_of(pipeline, "Hello", "Hello again")
    pipeline.assemble("One that is still to be written", **SCOPE)

    erase(pipeline)
    pipeline.flush()

    snapshots = pipeline.snapshots.list(**SCOPE)
    assert [snapshot for snapshot in snapshots if snapshot.report.total_tokens] == []


@pytest.mark.parametrize("word", ["xylophone", "marimba", "secret"])
def test_no_word_of_the_conversation_is_in_a_snapshot(word: str) -> None:
    store = InMemoryStore()
    pipeline = pipeline_that_keeps_three(store)
    exchange = [HumanMessage("The secret word is xylophone."), AIMessage("I will keep it.")]
    pipeline.add_messages(exchange, **SCOPE)
    reports_of(pipeline, "What was the secret word?")
    reports_of(pipeline, "What was the secret word? Was it marimba?")

    items = store.search(Scope("ada", "c1").namespace(SNAPSHOTS))
    records = [json.dumps(item.value) for item in items]

    assert len(records) == 2
    assert word not in records[0]
    assert word not in records[1]


def is_a_snapshot(op: Op) -> bool:
    return isinstance(op, PutOp) and SNAPSHOTS in op.namespace


def nothing(op: Op) -> bool:
    return False


def test_a_report_says_that_its_snapshot_was_not_written() -> None:
    store = Failing()
    pipeline = pipeline_that_keeps_three(store)
    store.fails = is_a_snapshot

    [report] = reports_of(pipeline, "one")

    failures = "\n".join(report.failures)
    assert "snapshot not written: OSError: the disk is gone" in failures


def test_a_snapshot_is_written_after_one_that_was_not() -> None:
    store = Failing()
    pipeline = pipeline_that_keeps_three(store)
    store.fails = is_a_snapshot
    reports_of(pipeline, "one")

    store.fails = nothing
    [report] = reports_of(pipeline, "two")

    [snapshot] = pipeline.snapshots.list(**SCOPE)
    assert snapshot.report == without_quotes(report)
