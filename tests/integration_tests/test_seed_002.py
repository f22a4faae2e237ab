"""What seed 002 says of ratios, history, ranking of memories and analytics is what happens."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import (
    ContextPipeline,
    ContextReport,
    ContextSettings,
    EstimatingCounter,
    TiktokenCounter,
)
from langchain_ctxbudget.errors import InvalidSettingsError, SystemPromptTooLargeError
from langchain_ctxbudget.search import PRIORITIES
from tests.integration_tests.seeds import ADA, C1, NOW, new_pipeline, talk

pytestmark = pytest.mark.slow


# Ratios


def ratio(**shares: float) -> Any:
    allocation: Any = {"strategy": "ratio", **shares}
    return ContextSettings(allocation=allocation).allocation


@pytest.mark.parametrize(
    ("share", "default"), [("memory", 0.3), ("history", 0.4), ("reserve", 0.3)]
)
def test_ratios_have_defaults(share: str, default: float) -> None:
    assert getattr(ratio(), share) == default


@pytest.mark.parametrize(
    ("memory", "history", "reserve"),
    [
        pytest.param(0.35, 0.35, 0.3, id="custom"),
        pytest.param(0.3, 0.4, 0.34, id="a sum of 1.04"),
        pytest.param(0.4, 0.3, 0.3, id="memory-heavy"),
        pytest.param(0.2, 0.5, 0.3, id="history-heavy"),
    ],
)
def test_ratios_that_sum_to_about_one_are_kept(
    memory: float, history: float, reserve: float
) -> None:
    allocation = ratio(memory=memory, history=history, reserve=reserve)
    assert allocation.memory == memory
    assert allocation.history == history
    assert allocation.reserve == reserve


def test_ratios_that_sum_to_more_are_refused() -> None:
    with pytest.raises(InvalidSettingsError):
        ratio(memory=0.3, history=0.4, reserve=0.36)


@pytest.fixture(scope="module")
def report_of_ratios() -> ContextReport:
    """A report of a prompt of 32,768 tokens for a conversation that is longer."""
    pipeline = new_pipeline(max_context_tokens=32_768, allocation="ratio")
    pipeline.add_messages(talk(900), **C1)
    return pipeline.assemble("And now?", **C1).report


def percent_of_rest(report: ContextReport, tokens: int) -> int:
    """The percentage of what system prompt and message leave."""
    tokens_left = 32_768 - report.layer("L0").used_tokens - report.layer("L7").used_tokens
    return round(100 * tokens / tokens_left)


def test_history_has_40_percent(report_of_ratios: ContextReport) -> None:
    arc_tokens = report_of_ratios.layer("L4").allocated_tokens
    history_tokens = report_of_ratios.layer("L6").allocated_tokens
    assert percent_of_rest(report_of_ratios, arc_tokens + history_tokens) == 40


def test_the_reserve_has_30_percent(report_of_ratios: ContextReport) -> None:
    reserve_tokens = report_of_ratios.output_reserve_tokens
    assert percent_of_rest(report_of_ratios, reserve_tokens) == 30


def test_a_system_prompt_may_have_a_quarter_of_the_window() -> None:
    assert ContextSettings().max_system_share == 0.25


def test_a_system_prompt_of_more_than_a_quarter_is_refused() -> None:
    """It has about 300 tokens of 1,000."""
    pipeline = ContextPipeline(
        {"learn": False, "window_tokens": 1_000}, system_prompt="You help with pears. " * 60
    )
    with pytest.raises(SystemPromptTooLargeError):
        pipeline.assemble("Hi", **C1)


def test_tokens_may_be_kept_free_for_the_answer() -> None:
    assert ContextSettings(output_reserve_tokens=4_096).output_reserve_tokens == 4_096


# Counting

SENTENCE = "Hello, world! This is a test."


def test_the_sentence_of_the_seed_has_9_tokens() -> None:
    """By o200k_base."""
    assert TiktokenCounter().count_text(SENTENCE) == 9


def test_an_estimate_is_never_below_the_tokens() -> None:
    assert EstimatingCounter().count_text(SENTENCE) >= 9


def test_a_second_prompt_counts_at_most_five_texts() -> None:
    pipeline = new_pipeline()
    pipeline.add_messages(talk(50), **C1)
    pipeline.assemble("And now?", **C1)
    assert pipeline.assemble("And now?", **C1).report.tokenizer_calls <= 5


# History


def test_the_three_newest_exchanges_stand_word_for_word() -> None:
    pipeline = new_pipeline(max_context_tokens=2_000, allocation="ratio")
    messages = talk(100)
    pipeline.add_messages(messages, **C1)

    prompt = pipeline.assemble("And now?", **C1).messages

    newest = [message.text for message in messages[-6:]]
    assert [message.text for message in prompt[-7:-1]] == newest


def shown_by_wish(pipeline: ContextPipeline) -> list[str]:
    """How the messages begin that a prompt shows or drops for what they are."""
    layer = pipeline.assemble("And now?", **C1).report.layer("L6")
    reasons = ("important", "pinned", "dropped")
    return [item.preview[:26] for item in layer.items if item.reason in reasons]


def talk_with_a_decision() -> list[Any]:
    messages = talk(100)
    messages[40] = HumanMessage(
        "Then it is settled: we graft the old Williams pears onto quince, and ask Mrs. Field for"
        " six rootstocks."
    )
    return messages


def test_a_message_is_kept_whole_by_hand() -> None:
    pipeline = new_pipeline(max_context_tokens=2_000, keep_important=0.0)
    ids = pipeline.add_messages(talk_with_a_decision(), **C1)
    pipeline.pin(ids[4], preservation="keep", **C1)
    assert shown_by_wish(pipeline) == ["In year 2 we planted 6 pea"]


def test_a_decision_is_kept_whole_by_analysis() -> None:
    pipeline = new_pipeline(max_context_tokens=2_000, keep_important=0.03)
    pipeline.add_messages(talk_with_a_decision(), **C1)
    assert shown_by_wish(pipeline) == ["Then it is settled: we gra"]


def test_a_message_is_left_out_by_hand() -> None:
    """Of a prompt that has room for all."""
    pipeline = new_pipeline()
    ids = pipeline.add_messages(talk(3), **C1)
    pipeline.pin(ids[2], preservation="drop", **C1)

    texts = [message.text for message in pipeline.assemble("And now?", **C1).messages]

    assert [text for text in texts if "In year 1" in text] == []


class ReadCounter(InMemoryStore):
    """A store that counts the records that are read."""

    read = 0

    def batch(self, ops: Iterable[Any]) -> list[Any]:
        results = super().batch(ops)
        for result in results:
            if isinstance(result, list):
                self.read += len(result)
            elif result is not None:
                self.read += 1
        return results


def test_a_new_process_reads_at_most_600_records_of_2000_messages() -> None:
    store = ReadCounter()
    with ContextPipeline({"learn": False}, store=store) as pipeline:
        pipeline.add_messages(talk(1_000), **C1)
        pipeline.assemble("And now?", **C1)
        pipeline.flush()
    store.read = 0

    ContextPipeline({"learn": False}, store=store).assemble("And now?", **C1)

    assert store.read <= 600


# Memories


@pytest.mark.parametrize(
    ("weights", "beginning"),
    [
        pytest.param((1, 0, 0, 0), "- Like", id="by similarity"),
        pytest.param((0, 1, 0, 0), "- Sure", id="by how certain they are"),
        pytest.param((0, 0, 1, 0), "- New", id="by recency"),
        pytest.param((0, 0, 0, 1), "- Core", id="by type"),
        pytest.param((0.4, 0.3, 0.2, 0.1), "- Sure", id="by all"),
    ],
)
def test_the_weights_of_memories_decide_which_is_quoted(
    weights: tuple[float, ...], beginning: str
) -> None:
    """One of four about a kayak that have no room among the facts that are shown."""
    clock = [NOW - timedelta(days=400)]
    pipeline = new_pipeline(clock, retrieval={"memory_weights": weights, "most_items": 1})
    for number in range(40):
        shed = f"Builds shed {number} beside the road to the old mill of the village"
        pipeline.knowledge.add_fact(shed, **ADA, category="project")
    add_memory(
        pipeline, "Core: the kayak is red, and so are both of its paddles", memory_type="core"
    )
    add_memory(
        pipeline, "Sure: the kayak was made of cedar by a neighbour of theirs", confidence=0.9
    )
    add_memory(pipeline, "Like: what colour the kayak has was never a question")
    clock.append(NOW)
    add_memory(
        pipeline, "New: the kayak was lent to the people of the lake house, for a whole summer"
    )

    layer = pipeline.assemble("What colour has the kayak?", **C1).report.layer("L5")

    quotes = [item.preview for item in layer.items if item.status == "included"]
    assert quotes[0].startswith(f"{beginning}:")


def add_memory(
    pipeline: ContextPipeline, text: str, memory_type: Any = "experience", confidence: float = 0.5
) -> None:
    pipeline.knowledge.add_fact(text, **ADA, memory_type=memory_type, confidence=confidence)


def test_types_of_memories_have_priorities() -> None:
    """Core, explicit, fact, project, experience."""
    assert list(PRIORITIES.values()) == [100, 90, 80, 75, 70]


# Analytics


@pytest.fixture(scope="module")
def analyzed() -> ContextPipeline:
    """A pipeline with a short conversation and a long one, and two prompts of each."""
    pipeline = new_pipeline(keep_snapshots=10, max_context_tokens=2_000)
    for name, exchanges in (("c1", 2), ("c2", 100)):
        conversation: Any = {"user_id": "ada", "conversation_id": name}
        pipeline.add_messages(talk(exchanges), **conversation)
        pipeline.assemble("And now?", **conversation)
        pipeline.assemble("And now?", **conversation)
    return pipeline


@pytest.mark.parametrize(
    ("conversation", "prompts", "saves"),
    [
        pytest.param("c1", 2, False, id="of a conversation"),
        pytest.param(None, 4, True, id="of a user"),
    ],
)
def test_analytics_tell_prompts_shares_and_savings(
    analyzed: ContextPipeline, conversation: str | None, prompts: int, saves: bool
) -> None:
    analytics = analyzed.snapshots.analytics(user_id="ada", conversation_id=conversation)
    assert analytics.prompts == prompts
    assert 0 < analytics.mean_share <= 1
    assert (analytics.saved_tokens > 0) == saves
    assert analytics.layers["L7"][0] > 0
