"""What becomes of a prompt when little of a usage limit is left (seed 003)."""

from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.store.base import BaseStore, SearchOp
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, KnowledgeBase
from langchain_ctxbudget.budget import TIERS, Layer, Reason, Status
from tests.integration_tests.conftest import Call
from tests.stores import Failing, place_of

USER = "ada"
SCOPE = {"user_id": USER, "conversation_id": "c1"}
ALLOWED = 1_000_000
LEFT = {"healthy": 0.9, "caution": 0.7, "warning": 0.5, "critical": 0.1}
HISTORY = [
    message
    for number in range(40)
    for message in (
        HumanMessage(
            f"What does zebra {number} eat in the morning, and where does it sleep at night?"
        ),
        AIMessage(
            f"Zebra {number} eats grass of meadow {number} and sleeps beside rock {number}. " * 4
        ),
    )
]
TOPICS = [
    {"label": f"Zebra {n}", "context": f"Zebra {n} came from Kenya in {2000 + n}."}
    for n in range(8)
]
ENTITIES = [
    {"name": f"Keeper{n}", "type": "person", "context": f"Looks after meadow {n}."}
    for n in range(4)
]
QUESTION = "Which meadow do Zebra 1, Zebra 2 and Zebra 3 share, and do Keeper1, Keeper2 and Keeper3 know the manual?"


def pipeline(store: BaseStore | None = None, **settings: Any) -> ContextPipeline:
    about = {"learn": False, "max_context_tokens": 4_000, "usage_limits": {"month_tokens": ALLOWED}}
    return ContextPipeline({**about, **settings}, store=store or InMemoryStore())


def spend(it: ContextPipeline, call: Call, left: float, **scope: str) -> None:
    tokens = round((1 - left) * ALLOWED)
    usage = {"input_tokens": tokens, "output_tokens": 0, "total_tokens": tokens}
    call(it.usage, "record", usage, **(scope or SCOPE))


@pytest.fixture(params=list(LEFT))
def tier(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def test_topics_entities_and_facts_together_are_no_more_than_the_tier_lets_in(
    call: Call, tier: str
) -> None:
    most = next(one.knowledge_items for one in TIERS if one.name == tier)
    it = pipeline(topics=TOPICS, entities=ENTITIES)
    for number in range(5):
        call(
            it.knowledge, "add_fact", f"Owns farm number {number}", category="project", user_id=USER
        )
    spend(it, call, LEFT[tier])
    report = call(it, "assemble", QUESTION, **SCOPE).report
    layers = [report.layer(layer) for layer in (Layer.PREFERENCES, Layer.TOPICS, Layer.ENTITIES)]
    shown = [item for layer in layers for item in layer.items if item.status is not Status.OMITTED]
    memories = [item for item in report.layer(Layer.RETRIEVAL).items if item.source == "memories"]
    memories = [item for item in memories if item.status is not Status.OMITTED]
    if most is None:
        assert len(shown) > 5
        return
    assert 0 < len(shown) <= most
    assert memories == []
    left_out = [
        item for layer in layers for item in layer.items if item.reason is Reason.USAGE_LIMIT
    ]
    assert left_out, "what the limit leaves out says so"


DOCUMENT = Document(
    "Meadow manual. " + "Every meadow is shared by zebras in spring. " * 60,
    metadata={"source": "manual.md", "title": "Meadow manual"},
)


@pytest.mark.parametrize(
    ("tier", "statuses"),
    [
        ("healthy", {Status.INCLUDED}),
        ("caution", {Status.INCLUDED}),
        ("warning", {Status.SHRUNK}),
        ("critical", set()),
    ],
    indirect=["tier"],
)
def test_documents_come_whole_as_summaries_or_not_at_all(
    call: Call, tier: str, statuses: set[Status]
) -> None:
    store = InMemoryStore()
    call(KnowledgeBase(store, user_id=USER), "add", [DOCUMENT])
    it = pipeline(store, max_context_tokens=8_000)
    spend(it, call, LEFT[tier])
    report = call(it, "assemble", "What does manual.md say of a meadow in spring?", **SCOPE).report
    found = [item for item in report.layer(Layer.RETRIEVAL).items if item.source == "documents"]
    assert {item.status for item in found if item.status is not Status.OMITTED} >= statuses
    assert statuses or all(item.status is Status.OMITTED for item in found)


@pytest.mark.parametrize("forced", ["knowledge", "documents", "history", "budget"])
def test_what_is_forced_is_let_in_however_little_is_left(call: Call, forced: str) -> None:
    store = InMemoryStore()
    call(KnowledgeBase(store, user_id=USER), "add", [DOCUMENT])
    it = pipeline(store, topics=TOPICS, entities=ENTITIES, max_context_tokens=16_000)
    call(it, "add_messages", HISTORY, **SCOPE)
    spend(it, call, LEFT["critical"])
    question = f"{QUESTION} See manual.md."
    report = call(it, "assemble", question, settings={"force_include": [forced]}, **SCOPE).report
    shown = {
        "knowledge": len(report.layer(Layer.TOPICS).items) > 1,
        "documents": any(
            item.source == "documents" for item in report.layer(Layer.RETRIEVAL).items
        ),
        "history": report.coverage_counts()["verbatim"] > 2,
        "budget": report.budget_tokens == 16_000,
    }
    limited = {
        "knowledge": not any(
            item.reason is Reason.USAGE_LIMIT for item in report.layer(Layer.TOPICS).items
        ),
        "documents": shown["documents"],
        "history": shown["history"],
        "budget": shown["budget"],
    }
    assert limited == {name: name == forced for name in limited}
    assert report.usage is not None
    assert report.usage.forced == (forced,)


def test_the_most_restrictive_of_session_and_month_counts(call: Call) -> None:
    it = pipeline(usage_limits={"month_tokens": ALLOWED, "session_tokens": ALLOWED // 2})
    spend(it, call, 0.7)
    here = call(it, "assemble", "Hello", **SCOPE).report.usage
    assert (here.limit, here.tier) == ("session_tokens", "warning")
    there = call(it, "assemble", "Hello", user_id=USER, conversation_id="c2").report.usage
    assert (there.limit, there.tier) == ("month_tokens", "caution"), (
        "the month is that of all conversations"
    )


def test_where_usage_cannot_be_read_the_turn_goes_on_and_the_report_says_so(call: Call) -> None:
    store = Failing()
    store.fails = lambda op: isinstance(op, SearchOp) and {"usage", "spent"} & set(place_of(op))
    it = pipeline(store)
    spend(it, call, 0.1)
    report = call(it, "assemble", "Hello", **SCOPE).report
    assert report.usage is None
    assert any(
        "usage not read: OSError: the disk is gone" in failure for failure in report.failures
    )
