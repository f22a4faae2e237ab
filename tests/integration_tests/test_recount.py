"""The finished prompt is counted again, apart from what made it.

A wrong total is mended, or is a typed error.
"""

import pickle
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import (
    AssembledContext,
    ContextPipeline,
    TiktokenCounter,
    TokenCounter,
    build_context_graph,
)
from langchain_ctxbudget.errors import CtxBudgetError, TokenCountError
from langchain_ctxbudget.history import compact
from langchain_ctxbudget.tokens import CalibratedCounter

SCOPE: dict[str, Any] = {"user_id": "ada", "conversation_id": "c1"}
EXACT = TiktokenCounter()
QUESTION = HumanMessage("Which part is blue?")
BUDGET = 700
LARGE_BUDGET = 20_000


def history() -> list[BaseMessage]:
    """Returns twelve exchanges about parts."""
    messages: list[BaseMessage] = []
    for number in range(12):
        messages.append(HumanMessage(f"What of part {number}? " * 8))
        messages.append(AIMessage(f"Part {number} is blue. " * 8))
    return messages


class AtFirst(TiktokenCounter):
    """Counts an answer of history as a single token the first time that it is asked for it."""

    def __init__(self) -> None:
        super().__init__()
        self.times_counted: Counter[str] = Counter()

    def count_message(self, message: BaseMessage) -> int:
        self.times_counted[message.text] += 1
        if message.text.startswith("Part") and self.times_counted[message.text] == 1:
            return 1
        return super().count_message(message)


class Restless(TiktokenCounter):
    """Counts a message differently each time."""

    def __init__(self) -> None:
        super().__init__()
        self.calls_so_far = 0

    def count_message(self, message: BaseMessage) -> int:
        self.calls_so_far += 1
        return super().count_message(message) + self.calls_so_far % 7


class WithTemplate(TiktokenCounter):
    """Counts lists by a rule of its own, which does not add up."""

    def count_messages(self, messages: Sequence[BaseMessage]) -> int:
        gaps = max(0, len(messages) - 1)
        return super().count_messages(messages) + 2 * gaps


class WithArtifacts(TiktokenCounter):
    """Counts what a prompt's copies do not have."""

    def count_message(self, message: BaseMessage) -> int:
        tokens = super().count_message(message)
        if getattr(message, "artifact", None) is not None:
            tokens += 5
        return tokens


class Characters(TiktokenCounter):
    """Counts a token for every character."""

    def _count(self, text: str) -> int:
        return len(text)


def pipeline_with(counter: TokenCounter = EXACT, **settings: Any) -> ContextPipeline:
    pipeline = ContextPipeline(
        {"learn": False, **settings}, token_counter=counter, store=InMemoryStore()
    )
    pipeline.add_messages(history(), **SCOPE)
    return pipeline


def tight_pipeline(counter: TokenCounter = EXACT) -> ContextPipeline:
    """Returns a pipeline whose budget holds a part of the history."""
    return pipeline_with(counter, max_context_tokens=BUDGET)


def is_made_again(context: AssembledContext) -> bool:
    return any("made again" in failure for failure in context.report.failures)


def test_a_prompt_with_right_counts_is_made_once() -> None:
    context = tight_pipeline().assemble(QUESTION, **SCOPE)

    assert context.report.total_tokens == EXACT.count_messages(context.messages)
    assert not is_made_again(context)


# -- What the package remembers is wrong


def poison_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives a history the costs of other messages.

    That is what happens where ids of freed objects are taken for theirs.
    """
    true_costs = compact.known_costs

    def wrong_costs(*arguments: Any) -> Any:
        costs = true_costs(*arguments)
        costs._costs = {key: (message, 5) for key, (message, _) in costs._costs.items()}
        return costs

    monkeypatch.setattr(compact, "known_costs", wrong_costs)


def test_wrong_known_costs_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = tight_pipeline()
    poison_costs(monkeypatch)

    context = pipeline.assemble(QUESTION, **SCOPE)

    tokens = EXACT.count_messages(context.messages)
    assert context.report.total_tokens == tokens
    assert tokens <= BUDGET
    assert is_made_again(context)


async def test_wrong_known_costs_are_found_in_async_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = tight_pipeline()
    poison_costs(monkeypatch)

    context = await pipeline.aassemble(QUESTION, **SCOPE)

    tokens = EXACT.count_messages(context.messages)
    assert context.report.total_tokens == tokens
    assert tokens <= BUDGET


def test_wrong_known_costs_are_found_in_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    poison_costs(monkeypatch)
    graph = build_context_graph(ContextPipeline({"learn": False, "max_context_tokens": BUDGET}))
    config: Any = {"configurable": {"user_id": "ada", "thread_id": "c1"}}

    state = graph.invoke({"messages": [*history(), QUESTION]}, config)

    assert EXACT.count_messages(state["llm_input_messages"]) <= BUDGET


def test_wrong_known_costs_are_found_in_a_forecast(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = tight_pipeline()
    context = pipeline.assemble(QUESTION, **SCOPE)
    poison_costs(monkeypatch)

    [forecast] = pipeline.what_if([BUDGET])

    assert forecast.total_tokens == context.report.total_tokens


@pytest.fixture
def pipeline_with_wrong_columns() -> ContextPipeline:
    """A pipeline in which every message of history is known to cost one token."""
    pipeline = tight_pipeline()
    pipeline.assemble(QUESTION, **SCOPE)
    [conversation] = pipeline.engine.workspace.open_conversations.all().values()
    for costs in conversation.table.counted.values():
        costs.column.values[:] = 1
    return pipeline


def test_wrong_columns_make_no_prompt_that_is_over(
    pipeline_with_wrong_columns: ContextPipeline,
) -> None:
    context = pipeline_with_wrong_columns.assemble(QUESTION, **SCOPE)

    tokens = EXACT.count_messages(context.messages)
    assert context.report.total_tokens == tokens
    assert tokens <= BUDGET
    assert is_made_again(context)


def test_wrong_columns_are_not_used_again(pipeline_with_wrong_columns: ContextPipeline) -> None:
    pipeline_with_wrong_columns.assemble(QUESTION, **SCOPE)

    next_context = pipeline_with_wrong_columns.assemble(QUESTION, **SCOPE)

    assert not is_made_again(next_context)


# -- A counter is wrong


def test_a_counter_that_was_wrong_at_first_is_asked_again() -> None:
    pipeline = pipeline_with(AtFirst(), max_context_tokens=LARGE_BUDGET)

    context = pipeline.assemble(QUESTION, **SCOPE)

    assert context.report.total_tokens == EXACT.count_messages(context.messages)
    assert is_made_again(context)


@pytest.fixture
def count_error() -> TokenCountError:
    """What an assembly raises whose counter stays inconsistent."""
    with pytest.raises(TokenCountError) as caught:
        tight_pipeline(Restless()).assemble(QUESTION, **SCOPE)
    return caught.value


def test_an_inconsistent_counter_is_a_typed_error(count_error: TokenCountError) -> None:
    assert isinstance(count_error, CtxBudgetError)
    assert count_error.planned_tokens != count_error.counted_tokens
    assert count_error.budget_tokens == BUDGET


def test_a_count_error_names_its_numbers(count_error: TokenCountError) -> None:
    text = str(count_error)
    assert f"{count_error.planned_tokens:,}" in text
    assert f"{count_error.counted_tokens:,}" in text
    assert "700" in text


def test_a_count_error_says_what_to_do(count_error: TokenCountError) -> None:
    assert "report it" in str(count_error)


def test_a_count_error_can_be_pickled(count_error: TokenCountError) -> None:
    copy = pickle.loads(pickle.dumps(count_error))
    assert str(copy) == str(count_error)


def test_a_rule_for_lists_that_does_not_add_up_is_no_error() -> None:
    context = tight_pipeline(WithTemplate()).assemble(QUESTION, **SCOPE)

    assert context.report.total_tokens == EXACT.count_messages(context.messages)


def test_a_rule_for_lists_that_does_not_add_up_is_reported() -> None:
    context = tight_pipeline(WithTemplate()).assemble(QUESTION, **SCOPE)

    failures = context.report.failures
    [notice] = [failure for failure in failures if "WithTemplate.count_messages" in failure]
    assert f"{WithTemplate().count_messages(context.messages):,}" in notice


# -- What is counted is what is sent


def test_a_counter_that_sees_more_counts_what_is_sent() -> None:
    counter = WithArtifacts()
    call = {"name": "look", "args": {}, "id": "a"}
    turn = [
        QUESTION,
        AIMessage("", tool_calls=[call]),
        ToolMessage("Blue.", tool_call_id="a", artifact={"raw": 1}),
    ]

    context = tight_pipeline(counter).assemble(turn, **SCOPE)

    assert context.report.total_tokens == counter.count_messages(context.messages)


@pytest.mark.parametrize(
    "counter", [EXACT, CalibratedCounter(EXACT, 1.3)], ids=["plain", "corrected"]
)
@pytest.mark.parametrize("markers", ["none", "anthropic"])
def test_cache_marks_and_corrections_keep_the_total(markers: str, counter: TokenCounter) -> None:
    context = pipeline_with(counter, cache_markers=markers).assemble(QUESTION, **SCOPE)

    assert context.report.total_tokens == counter.count_messages(context.messages)
    assert not is_made_again(context)


def test_halves_of_characters_count_as_they_are_sent() -> None:
    counter = Characters()
    pipeline = pipeline_with(counter, max_context_tokens=LARGE_BUDGET)

    context = pipeline.assemble("half \ud83d\ude42 of it \ud83d", **SCOPE)

    assert context.report.total_tokens == counter.count_messages(context.messages)
    assert not is_made_again(context)
