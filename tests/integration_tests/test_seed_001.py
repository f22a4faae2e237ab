"""What seed 001 says of facts, memory budget, eviction, extraction and sessions is what happens."""

from collections.abc import Iterable
from datetime import timedelta
from threading import Event
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import (
    AssembledContext,
    ContextPipeline,
    ContextReport,
    ContextSettings,
)
from langchain_ctxbudget.errors import FactError
from langchain_ctxbudget.knowledge.fact_merging import CATEGORIES, FACT_POLICY, eviction_score
from langchain_ctxbudget.layers.history import FIRST_MESSAGES, LAST_MESSAGES
from langchain_ctxbudget.pipeline.stored import ConversationStatus
from tests.integration_tests.plain_reader import reading_plainly
from tests.integration_tests.seeds import ADA, C1, NOW, new_pipeline, talk

pytestmark = pytest.mark.slow


# What is known, in the prompt

WORK_AND_PREFERENCES: list[tuple[str, Any]] = [
    ("Building a local-first AI chat app with WebLLM", "project"),
    ("Currently implementing a memory extraction system", "project"),
    ("Prefers direct answers without preamble", "preference"),
    ("Uses TypeScript, minimal abstraction", "preference"),
]
IDENTITY: tuple[str, Any] = ("Solo developer based in Copenhagen", "identity")
PROMPT = """\
## What you know about this user
Current work:
- Building a local-first AI chat app with WebLLM
- Currently implementing a memory extraction system
Preferences:
- Prefers direct answers without preamble
- Uses TypeScript, minimal abstraction
About user:
- Solo developer based in Copenhagen"""


def context_of(facts: list[tuple[str, Any]]) -> AssembledContext:
    """A prompt with these facts, the first of which is the newest."""
    clock = [NOW]
    pipeline = new_pipeline(clock)
    for number, (text, category) in enumerate(reversed(facts)):
        clock.append(NOW + timedelta(seconds=number))
        pipeline.knowledge.add_fact(text, **ADA, category=category)
    return pipeline.assemble("Hi", **C1)


def test_facts_are_grouped_by_category_with_a_dash_for_each() -> None:
    context = context_of([*WORK_AND_PREFERENCES, IDENTITY])
    assert PROMPT in context.messages[0].text


def test_a_category_without_facts_has_no_heading() -> None:
    context = context_of(WORK_AND_PREFERENCES)
    assert "About user:" not in context.messages[0].text


@pytest.fixture(scope="module")
def report_with_facts() -> ContextReport:
    return context_of([*WORK_AND_PREFERENCES, IDENTITY]).report


def test_a_report_tells_the_tokens_of_memory(report_with_facts: ContextReport) -> None:
    assert report_with_facts.layer("L1").used_tokens > 0


def test_a_report_tells_the_total_of_tokens(report_with_facts: ContextReport) -> None:
    assert report_with_facts.total_tokens > report_with_facts.layer("L1").used_tokens


def test_a_report_tells_the_share_that_is_used(report_with_facts: ContextReport) -> None:
    assert 0 < report_with_facts.total_tokens / report_with_facts.budget_tokens < 1


def test_pinned_facts_come_first_then_categories_then_confidence() -> None:
    pipeline = new_pipeline()
    facts: list[tuple[str, Any, float]] = [
        ("Lives in Rome", "identity", 0.9),
        ("Likes tea", "preference", 0.5),
        ("Likes jazz", "preference", 0.9),
        ("Builds a kayak", "project", 0.5),
    ]
    for text, category, confidence in facts:
        pipeline.knowledge.add_fact(text, **ADA, category=category, confidence=confidence)
    dog = pipeline.knowledge.add_fact("Has a dog", **ADA, category="identity", confidence=0.4)
    pipeline.knowledge.pin(dog.id, **ADA)

    texts = [fact.text for fact in pipeline.knowledge.list_facts(**ADA)]

    assert texts == ["Has a dog", "Builds a kayak", "Likes jazz", "Likes tea", "Lives in Rome"]


class WithoutKnowledge(InMemoryStore):
    """A store in which nothing that is known of a user can be read."""

    def batch(self, ops: Iterable[Any]) -> list[Any]:
        operations = list(ops)
        for operation in operations:
            if "knowledge" in getattr(operation, "namespace", ()):
                raise OSError("the disk is gone")
        return super().batch(operations)


@pytest.fixture(scope="module")
def context_without_memory() -> AssembledContext:
    store = WithoutKnowledge()
    pipeline = ContextPipeline({"learn": False}, store=store, system_prompt="You help.")
    return pipeline.assemble("Hi", **C1)


def test_a_chat_goes_on_without_memory_that_cannot_be_read(
    context_without_memory: AssembledContext,
) -> None:
    assert context_without_memory.messages[0].text == "You help."


def test_a_report_tells_of_memory_that_cannot_be_read(
    context_without_memory: AssembledContext,
) -> None:
    failures = "\n".join(context_without_memory.report.failures)
    assert "the disk is gone" in failures


# The budget


def memory_tokens_beside(exchanges: int) -> int:
    """The tokens of memories beside a conversation, of far too many, in the profile `seed`."""
    memories = [
        f"Kettle number {number} of the collection is made of copper and stands on shelf {number}."
        for number in range(60)
    ]
    profile = {"strategy": "elastic", "profile": "seed"}
    pipeline = new_pipeline(max_context_tokens=3_000, memories=memories, allocation=profile)
    pipeline.add_messages(talk(exchanges), **C1)
    layer = pipeline.assemble("Hi", **C1).report.layer("L1")
    return sum(item.tokens for item in layer.items if item.status == "included")


def test_memories_have_at_most_500_tokens() -> None:
    """25 % would be more."""
    assert 450 < memory_tokens_beside(0) <= 500


def test_beside_a_long_conversation_memories_have_150_tokens() -> None:
    assert 110 < memory_tokens_beside(200) <= 150


def test_tokens_are_kept_free_for_the_answer() -> None:
    pipeline = new_pipeline(output_reserve_tokens=1_000, window_tokens=8_192)
    assert pipeline.assemble("Hi", **C1).report.output_reserve_tokens == 1_000


def test_without_room_the_first_2_messages_stay() -> None:
    assert FIRST_MESSAGES == 2


def test_without_room_the_last_6_messages_stay() -> None:
    assert LAST_MESSAGES == 6


@pytest.fixture(scope="module")
def tight_system_prompt() -> str:
    """The system prompt of a prompt that is too small for four facts."""
    pipeline = new_pipeline(max_context_tokens=138)
    facts: list[tuple[str, Any, float]] = [
        ("Builds a kayak of cedar in the shed behind the house", "project", 0.5),
        ("Prefers answers that begin with the result of it all", "preference", 0.9),
        ("Likes the tea from the shop on the corner of the road", "preference", 0.8),
        ("Lives in the old mill of the village beside the lake", "identity", 0.9),
    ]
    for text, category, confidence in facts:
        pipeline.knowledge.add_fact(text, **ADA, category=category, confidence=confidence)
    question = "What did I want to know about it, and why was that so much to ask? " * 2
    return pipeline.assemble(question, **C1).messages[0].text


@pytest.mark.parametrize("word", ["kayak", "result"], ids=["work", "a sure preference"])
def test_without_room_work_and_sure_preferences_stay(tight_system_prompt: str, word: str) -> None:
    assert word in tight_system_prompt


@pytest.mark.parametrize("word", ["tea", "mill"], ids=["another preference", "identity"])
def test_without_room_other_facts_give_way(tight_system_prompt: str, word: str) -> None:
    assert word not in tight_system_prompt


# Compaction


@pytest.mark.parametrize(
    ("setting", "default"),
    [("compaction_trigger", 0.8), ("keep_messages", 6), ("learn_every", 5)],
)
def test_settings_have_the_defaults_of_the_seed(setting: str, default: float) -> None:
    assert getattr(ContextSettings(), setting) == default


def test_the_status_of_a_conversation_tells_its_compaction() -> None:
    pipeline = new_pipeline(max_context_tokens=2_000)
    pipeline.add_messages(talk(100), **C1)
    total_tokens = pipeline.assemble("And now?", **C1).report.total_tokens

    status = pipeline.status(**C1)

    assert status.compaction_stage == "multi_level"
    assert status.saved_tokens > total_tokens


# Facts that end


@pytest.mark.parametrize(
    ("category", "confidence", "score"),
    [
        ("project", 0.8, 30.0),  # 30 days * 0.8 / 0.8
        ("preference", 0.5, 18.0),  # 30 days * 0.3 / 0.5
        ("identity", 0.5, 30.0),  # 30 days * 0.5 / 0.5
    ],
)
def test_eviction_scores_are_age_times_weight_by_confidence(
    category: Any, confidence: float, score: float
) -> None:
    knowledge = new_pipeline().knowledge
    fact = knowledge.add_fact("Builds a kayak", **ADA, category=category, confidence=confidence)
    later = fact.last_seen + timedelta(days=30)
    assert eviction_score(fact, later) == pytest.approx(score, abs=1e-6)


@pytest.mark.parametrize(
    ("category", "days"), [("project", 60), ("preference", 180), ("identity", 365)]
)
def test_a_category_lasts_for_its_days(category: Any, days: int) -> None:
    assert CATEGORIES[category].lasts_days == days


def test_there_are_three_categories() -> None:
    assert sorted(CATEGORIES) == ["identity", "preference", "project"]


@pytest.mark.parametrize(
    ("cap", "number"), [("hard_cap", 150), ("prune_threshold", 120), ("most_pinned", 10)]
)
def test_facts_have_caps(cap: str, number: int) -> None:
    assert getattr(FACT_POLICY, cap) == number


@pytest.mark.parametrize(
    ("facts", "days", "current", "ended"),
    [
        pytest.param(50, 61, 51, 0, id="expired facts stay up to 120"),
        pytest.param(120, 61, 1, 120, id="expired facts beyond 120 end"),
        pytest.param(150, 1, 120, 31, id="of more than 150 facts 120 stay"),
    ],
)
def test_facts_end_when_there_are_too_many(facts: int, days: int, current: int, ended: int) -> None:
    """When one more is added, days later."""
    clock = [NOW]
    knowledge = new_pipeline(clock).knowledge
    for number in range(facts):
        text = f"Owns {number} {number}th kettle of copper"
        knowledge.add_fact(text, **ADA, category="project")
    clock.append(NOW + timedelta(days=days))
    knowledge.add_fact("Sells tea", **ADA, category="project")

    is_current = [fact.is_current for fact in knowledge.list_facts(**ADA, include_ended=True)]

    assert is_current.count(True) == current
    assert is_current.count(False) == ended


def test_at_most_10_facts_are_pinned() -> None:
    knowledge = new_pipeline().knowledge
    for number in range(10):
        fact = knowledge.add_fact(f"Owns {number} {number}th kettle of copper", **ADA)
        knowledge.pin(fact.id, **ADA)
    eleventh = knowledge.add_fact("Owns 10 10th kettle of copper", **ADA)

    with pytest.raises(FactError) as caught:
        knowledge.pin(eleventh.id, **ADA)

    assert caught.type is FactError


def test_of_two_homes_the_one_that_was_said_last_is_known() -> None:
    pipeline = ContextPipeline(clock=lambda: NOW)
    messages = [
        HumanMessage("I live in Lisbon."),
        AIMessage("I see."),
        HumanMessage("I live in Porto now."),
    ]
    with reading_plainly():
        pipeline.add_messages(messages, **C1)
        pipeline.end_session(**C1)
        pipeline.flush()
    assert fact_texts(pipeline) == ['"I live in Porto now."']


# When facts are extracted


def fact_texts(pipeline: ContextPipeline) -> list[str]:
    return [fact.text for fact in pipeline.knowledge.list_facts(**ADA)]


def with_lisbon(messages: int, **options: Any) -> ContextPipeline:
    """A pipeline with a conversation of so many messages, the first of which tells a fact."""
    pipeline = ContextPipeline(**options)
    answers = [AIMessage(f"I see {number}.") for number in range(messages - 1)]
    pipeline.add_messages([HumanMessage("I live in Lisbon."), *answers], **C1)
    return pipeline


def test_five_messages_are_extracted() -> None:
    pipeline = with_lisbon(5)
    pipeline.flush()
    assert len(fact_texts(pipeline)) == 1


def test_four_messages_are_not_extracted() -> None:
    pipeline = with_lisbon(4)
    pipeline.flush()
    assert fact_texts(pipeline) == []


def test_two_messages_are_not_extracted() -> None:
    pipeline = with_lisbon(2)
    pipeline.flush()
    assert fact_texts(pipeline) == []


def test_the_end_of_a_session_extracts_it() -> None:
    pipeline = with_lisbon(2)
    pipeline.end_session(**C1)
    pipeline.flush()
    assert len(fact_texts(pipeline)) == 1


def test_an_idle_heartbeat_extracts_a_session() -> None:
    """It stands for the page being hidden."""
    pipeline = with_lisbon(2)
    pipeline.knowledge.heartbeat(**ADA, device_id="d", active_conversation_id="c1", idle=True)
    pipeline.flush()
    assert len(fact_texts(pipeline)) == 1


def test_half_an_hour_without_a_message_extracts_a_session() -> None:
    clock = [NOW]
    pipeline = with_lisbon(2, clock=lambda: clock[-1])
    clock.append(NOW + timedelta(minutes=31))
    pipeline.add_messages([HumanMessage("Hello.")], user_id="ben", conversation_id="c9")
    pipeline.flush()
    assert len(fact_texts(pipeline)) == 1


def test_closing_extracts_a_session() -> None:
    """It stands for the page being left."""
    store = InMemoryStore()
    with_lisbon(2, store=store).close()
    assert len(fact_texts(ContextPipeline(store=store))) == 1


def test_the_next_session_extracts_one_whose_process_ended() -> None:
    store = InMemoryStore()
    with_lisbon(1, store=store).flush()  # by now it is noted that there is a session that waits
    pipeline = ContextPipeline(store=store)
    pipeline.add_messages([HumanMessage("Hello.")], user_id="ada", conversation_id="c2")
    pipeline.flush()
    assert len(fact_texts(pipeline)) == 1


# The status of an extraction


def status_after(exchanges: int) -> ConversationStatus:
    pipeline = ContextPipeline(clock=lambda: NOW)
    pipeline.add_messages(talk(exchanges), **C1)
    pipeline.flush()
    return pipeline.status(**C1)


def test_after_one_exchange_nothing_was_extracted() -> None:
    status = status_after(1)
    assert not status.is_extracting
    assert status.last_extraction is None


def test_after_five_exchanges_the_status_tells_the_last_extraction() -> None:
    status = status_after(5)
    assert not status.is_extracting
    assert status.last_extraction == NOW


class WaitingModel(BaseChatModel):
    """A model that answers when it is let go."""

    let_go: Any

    @property
    def _llm_type(self) -> str:
        return "waiting"

    def _generate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
        self.let_go.wait(10)
        answer = '{"facts": [], "topics": [], "entities": [], "summary": "Pears were planted."}'
        return ChatResult(generations=[ChatGeneration(message=AIMessage(answer))])


def test_the_status_tells_what_a_model_works_on() -> None:
    let_go = Event()
    pipeline = ContextPipeline(
        {"max_context_tokens": 2_000},
        summary_model=WaitingModel(let_go=let_go),
        system_prompt="You help.",
    )
    pipeline.add_messages(talk(100), **C1)
    pipeline.assemble("And now?", **C1)

    status = pipeline.status(**C1)
    assert status.is_extracting
    assert status.is_compacting

    let_go.set()
    pipeline.flush()

    status = pipeline.status(**C1)
    assert not status.is_extracting
    assert not status.is_compacting
