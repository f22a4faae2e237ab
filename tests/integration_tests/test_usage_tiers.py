"""What becomes of a prompt when little of a usage limit is left (seed 003)."""

from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.store.base import BaseStore, Op, SearchOp
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, KnowledgeBase
from langchain_ctxbudget.budget import Layer, Reason, Status
from langchain_ctxbudget.report import ContextReport
from tests.integration_tests.conftest import Call
from tests.stores import Failing, place_of

USER = "ada"
SCOPE = {"user_id": USER, "conversation_id": "c1"}
ALLOWED = 1_000_000
SPENT = {"healthy": 100_000, "caution": 300_000, "warning": 500_000, "critical": 900_000}
"""Tokens of `ALLOWED` that are spent in each tier."""
TOPICS = [
    {"label": f"Zebra {number}", "context": f"Zebra {number} came from Kenya in {2000 + number}."}
    for number in range(8)
]
ENTITIES = [
    {
        "name": f"Keeper{number}",
        "type": "person",
        "context": f"Looks after meadow {number}.",
    }
    for number in range(4)
]
QUESTION = (
    "Which meadow do Zebra 1, Zebra 2 and Zebra 3 share, and do Keeper1, Keeper2 and Keeper3 "
    "know the manual?"
)
DOCUMENT = Document(
    "Meadow manual. " + "Every meadow is shared by zebras in spring. " * 60,
    metadata={"source": "manual.md", "title": "Meadow manual"},
)


def talk_about_zebras() -> list[BaseMessage]:
    messages: list[BaseMessage] = []
    for number in range(40):
        question = f"What does zebra {number} eat in the morning, and where does it sleep at night?"
        answer = f"Zebra {number} eats grass of meadow {number} and sleeps beside rock {number}. "
        messages += [HumanMessage(question), AIMessage(answer * 4)]
    return messages


def new_pipeline(store: BaseStore | None = None, **settings: Any) -> ContextPipeline:
    usual = {"learn": False, "max_context_tokens": 4_000, "usage_limits": {"month_tokens": ALLOWED}}
    return ContextPipeline({**usual, **settings}, store=store or InMemoryStore())


def spend(pipeline: ContextPipeline, call: Call, tokens: int) -> None:
    usage = {"input_tokens": tokens, "output_tokens": 0, "total_tokens": tokens}
    call(pipeline.usage, "record", usage, **SCOPE)


# -- knowledge


def report_on_knowledge(call: Call, tier: str) -> ContextReport:
    """The report of a prompt with topics, entities and facts, after some of the limit is spent."""
    pipeline = new_pipeline(topics=TOPICS, entities=ENTITIES)
    for number in range(5):
        text = f"Owns farm number {number}"
        call(pipeline.knowledge, "add_fact", text, category="project", user_id=USER)
    spend(pipeline, call, SPENT[tier])
    report: ContextReport = call(pipeline, "assemble", QUESTION, **SCOPE).report
    return report


def knowledge_items(report: ContextReport) -> list[Any]:
    items: list[Any] = []
    for layer in (Layer.PREFERENCES, Layer.TOPICS, Layer.ENTITIES):
        items += report.layer(layer).items
    return items


def are_shown(items: list[Any]) -> list[Any]:
    return [item for item in items if item.status is not Status.OMITTED]


LIMITED_TIERS = pytest.mark.parametrize("tier", ["warning", "critical"])


@pytest.mark.parametrize("tier", ["healthy", "caution"])
def test_with_much_left_all_knowledge_is_let_in(call: Call, tier: str) -> None:
    report = report_on_knowledge(call, tier)

    assert len(are_shown(knowledge_items(report))) > 5


@pytest.mark.parametrize(("tier", "most"), [("warning", 3), ("critical", 1)])
def test_a_tier_lets_in_so_many_topics_entities_and_facts(call: Call, tier: str, most: int) -> None:
    report = report_on_knowledge(call, tier)

    assert 0 < len(are_shown(knowledge_items(report))) <= most


@LIMITED_TIERS
def test_no_memories_are_retrieved_beside_what_a_tier_lets_in(call: Call, tier: str) -> None:
    report = report_on_knowledge(call, tier)

    items = report.layer(Layer.RETRIEVAL).items
    memories = [item for item in items if item.source == "memories"]
    assert are_shown(memories) == []


@LIMITED_TIERS
def test_the_report_says_what_a_usage_limit_leaves_out(call: Call, tier: str) -> None:
    report = report_on_knowledge(call, tier)

    reasons = [item.reason for item in knowledge_items(report)]
    assert Reason.USAGE_LIMIT in reasons


# -- documents


def statuses_of_documents(call: Call, tier: str) -> set[Status]:
    store = InMemoryStore()
    call(KnowledgeBase(store, user_id=USER), "add", [DOCUMENT])
    pipeline = new_pipeline(store, max_context_tokens=8_000)
    spend(pipeline, call, SPENT[tier])
    question = "What does manual.md say of a meadow in spring?"
    report = call(pipeline, "assemble", question, **SCOPE).report
    items = report.layer(Layer.RETRIEVAL).items
    return {item.status for item in items if item.source == "documents"}


@pytest.mark.parametrize(
    ("tier", "status"),
    [
        ("healthy", Status.INCLUDED),
        ("caution", Status.INCLUDED),
        ("warning", Status.SHRUNK),
    ],
)
def test_documents_come_whole_or_as_summaries(call: Call, tier: str, status: Status) -> None:
    assert status in statuses_of_documents(call, tier)


def test_of_a_critical_limit_no_document_is_shown(call: Call) -> None:
    assert statuses_of_documents(call, "critical") <= {Status.OMITTED}


# -- what is forced


@pytest.mark.parametrize("forced", ["knowledge", "documents", "history", "budget"])
def test_what_is_forced_is_let_in_and_nothing_else(call: Call, forced: str) -> None:
    report = report_with_forced(call, forced)

    assert is_knowledge_let_in(report) == (forced == "knowledge")
    assert are_documents_let_in(report) == (forced == "documents")
    assert is_history_let_in(report) == (forced == "history")
    assert is_budget_let_in(report) == (forced == "budget")


@pytest.mark.parametrize("forced", ["knowledge", "documents", "history", "budget"])
def test_the_report_says_what_is_forced(call: Call, forced: str) -> None:
    report = report_with_forced(call, forced)

    assert report.usage is not None
    assert report.usage.forced == (forced,)


def report_with_forced(call: Call, forced: str) -> ContextReport:
    """The report of a prompt for which there is something of everything, and hardly a limit."""
    store = InMemoryStore()
    call(KnowledgeBase(store, user_id=USER), "add", [DOCUMENT])
    pipeline = new_pipeline(store, topics=TOPICS, entities=ENTITIES, max_context_tokens=16_000)
    call(pipeline, "add_messages", talk_about_zebras(), **SCOPE)
    spend(pipeline, call, SPENT["critical"])
    question = f"{QUESTION} See manual.md."
    settings = {"force_include": [forced]}
    report: ContextReport = call(pipeline, "assemble", question, settings=settings, **SCOPE).report
    return report


def is_knowledge_let_in(report: ContextReport) -> bool:
    reasons = [item.reason for item in report.layer(Layer.TOPICS).items]
    return Reason.USAGE_LIMIT not in reasons


def are_documents_let_in(report: ContextReport) -> bool:
    sources = [item.source for item in report.layer(Layer.RETRIEVAL).items]
    return "documents" in sources


def is_history_let_in(report: ContextReport) -> bool:
    return report.coverage_counts()["verbatim"] > 2


def is_budget_let_in(report: ContextReport) -> bool:
    return report.budget_tokens == 16_000


# -- which limit counts


@pytest.fixture
def limited_twice(call: Call) -> ContextPipeline:
    """A pipeline whose session has spent most of its limit, and less of the month's."""
    limits = {"month_tokens": 1_000_000, "session_tokens": 500_000}
    pipeline = new_pipeline(usage_limits=limits)
    spend(pipeline, call, 300_000)
    return pipeline


def test_the_limit_of_which_least_is_left_counts(
    call: Call, limited_twice: ContextPipeline
) -> None:
    usage = call(limited_twice, "assemble", "Hello", **SCOPE).report.usage

    assert usage.limit == "session_tokens"
    assert usage.tier == "warning"


def test_the_month_is_that_of_all_conversations(call: Call, limited_twice: ContextPipeline) -> None:
    other = {"user_id": USER, "conversation_id": "c2"}

    usage = call(limited_twice, "assemble", "Hello", **other).report.usage

    assert usage.limit == "month_tokens"
    assert usage.tier == "caution"


# -- usage that cannot be read


def is_search_of_usage(op: Op) -> bool:
    if not isinstance(op, SearchOp):
        return False
    return "usage" in place_of(op) or "spent" in place_of(op)


def test_where_usage_cannot_be_read_the_report_says_so(call: Call) -> None:
    store = Failing()
    store.fails = is_search_of_usage
    pipeline = new_pipeline(store)
    spend(pipeline, call, 900_000)

    report = call(pipeline, "assemble", "Hello", **SCOPE).report

    assert report.usage is None
    failures = "\n".join(report.failures)
    assert "usage not read: OSError: the disk is gone" in failures
