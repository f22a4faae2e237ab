"""The finished prompt is counted again, apart from what made it.

A wrong total is mended, or is a typed error.
"""

import pickle
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, TiktokenCounter, build_context_graph
from langchain_ctxbudget.errors import CtxBudgetError, TokenCountError
from langchain_ctxbudget.history import compact
from langchain_ctxbudget.tokens import CalibratedCounter

SCOPE: dict[str, Any] = {"user_id": "ada", "conversation_id": "c1"}
EXACT = TiktokenCounter()
SAID: list[BaseMessage] = [
    message
    for number in range(12)
    for message in (
        HumanMessage(f"What of part {number}? " * 8),
        AIMessage(f"Part {number} is blue. " * 8),
    )
]
ASKED = HumanMessage("Which part is blue?")
BUDGET = 700


class AtFirst(TiktokenCounter):
    """Counts an answer of history as a single token the first time that it is asked for it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()

    def count_message(self, message: BaseMessage) -> int:
        self.asked[message.text] += 1
        if message.text.startswith("Part") and self.asked[message.text] == 1:
            return 1
        return super().count_message(message)


class Restless(TiktokenCounter):
    """Counts every message otherwise each time."""

    def __init__(self) -> None:
        super().__init__()
        self.more = 0

    def count_message(self, message: BaseMessage) -> int:
        self.more += 1
        return super().count_message(message) + self.more % 7


class WithTemplate(TiktokenCounter):
    """Counts lists by a rule of its own, which does not add up."""

    def count_messages(self, messages: Sequence[BaseMessage]) -> int:
        return super().count_messages(messages) + 2 * max(0, len(messages) - 1)


class WithArtifacts(TiktokenCounter):
    """Counts what a prompt's copies do not have."""

    def count_message(self, message: BaseMessage) -> int:
        return super().count_message(message) + 5 * (getattr(message, "artifact", None) is not None)


def pipeline_with(counter: TiktokenCounter | None = None, **options: Any) -> ContextPipeline:
    pipeline = ContextPipeline(
        {"learn": False, "max_context_tokens": BUDGET, **options},
        token_counter=counter,
        store=InMemoryStore(),
    )
    pipeline.add_messages(SAID, **SCOPE)
    return pipeline


def is_made_again(failures: Sequence[str]) -> bool:
    return any("made again" in line for line in failures)


def test_a_prompt_with_right_counts_is_made_once() -> None:
    context = pipeline_with().assemble(ASKED, **SCOPE)
    assert context.report.total_tokens == EXACT.count_messages(context.messages)
    assert not is_made_again(context.report.failures)


def poisoned(view: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a history the costs of other messages, as where ids of freed objects were taken for theirs."""

    def with_wrong_costs(*given: Any) -> Any:
        made = view(*given)
        made.costs._costs = {key: (message, 5) for key, (message, _) in made.costs._costs.items()}
        return made

    return with_wrong_costs


def test_wrong_known_costs_are_found_and_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = pipeline_with()
    monkeypatch.setattr(compact.HistoryPlan, "view", poisoned(compact.HistoryPlan.view))
    context = pipeline.assemble(ASKED, **SCOPE)
    assert context.report.total_tokens == EXACT.count_messages(context.messages) <= BUDGET
    assert is_made_again(context.report.failures)


async def test_wrong_known_costs_are_found_in_async_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = pipeline_with()
    monkeypatch.setattr(compact.HistoryPlan, "view", poisoned(compact.HistoryPlan.view))
    context = await pipeline.aassemble(ASKED, **SCOPE)
    assert context.report.total_tokens == EXACT.count_messages(context.messages) <= BUDGET


def test_wrong_known_costs_are_found_in_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact.HistoryPlan, "view", poisoned(compact.HistoryPlan.view))
    graph = build_context_graph(ContextPipeline({"learn": False, "max_context_tokens": BUDGET}))
    run: Any = {"configurable": {"user_id": "ada", "thread_id": "c1"}}
    state = graph.invoke({"messages": [*SAID, ASKED]}, run)
    assert EXACT.count_messages(state["llm_input_messages"]) <= BUDGET


def test_wrong_known_costs_are_found_in_a_forecast(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = pipeline_with()
    context = pipeline.assemble(ASKED, **SCOPE)
    monkeypatch.setattr(compact.HistoryPlan, "view", poisoned(compact.HistoryPlan.view))
    [forecast] = pipeline.what_if([BUDGET])
    assert forecast.total_tokens == context.report.total_tokens


def test_columns_that_are_wrong_make_no_prompt_that_is_over() -> None:
    pipeline = pipeline_with()
    pipeline.assemble(ASKED, **SCOPE)
    [conversation] = pipeline.engine.workspace.open_conversations.all().values()
    for costs in conversation.table.counted.values():
        costs.column.values[:] = 1
    context = pipeline.assemble(ASKED, **SCOPE)
    assert context.report.total_tokens == EXACT.count_messages(context.messages) <= BUDGET
    assert is_made_again(context.report.failures)
    assert not is_made_again(pipeline.assemble(ASKED, **SCOPE).report.failures)


def test_a_counter_that_was_wrong_at_first_is_asked_again() -> None:
    context = pipeline_with(AtFirst(), max_context_tokens=20_000).assemble(ASKED, **SCOPE)
    assert context.report.total_tokens == EXACT.count_messages(context.messages)
    assert is_made_again(context.report.failures)


def test_a_counter_that_stays_inconsistent_is_a_typed_error() -> None:
    with pytest.raises(TokenCountError) as caught:
        pipeline_with(Restless()).assemble(ASKED, **SCOPE)
    error = caught.value
    assert isinstance(error, CtxBudgetError)
    assert error.planned_tokens != error.counted_tokens
    assert error.budget_tokens == BUDGET
    for number in (error.planned_tokens, error.counted_tokens, error.budget_tokens):
        assert f"{number:,}" in str(error)
    assert "report it" in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_rule_for_lists_that_does_not_add_up_is_told_and_no_error() -> None:
    context = pipeline_with(WithTemplate()).assemble(ASKED, **SCOPE)
    assert context.report.total_tokens == EXACT.count_messages(context.messages)
    [told] = [line for line in context.report.failures if "WithTemplate.count_messages" in line]
    assert f"{WithTemplate().count_messages(context.messages):,}" in told


def test_a_counter_that_sees_more_than_what_is_sent_counts_what_is_sent() -> None:
    counter = WithArtifacts()
    call = {"name": "look", "args": {}, "id": "a"}
    turn = [
        ASKED,
        AIMessage("", tool_calls=[call]),
        ToolMessage("Blue.", tool_call_id="a", artifact={"raw": 1}),
    ]
    context = pipeline_with(counter).assemble(turn, **SCOPE)
    assert context.report.total_tokens == counter.count_messages(context.messages)


@pytest.mark.parametrize("factor", [None, 1.3], ids=["plain", "corrected"])
@pytest.mark.parametrize("markers", ["none", "anthropic"])
def test_cache_marks_and_corrections_do_not_change_the_total(
    markers: str, factor: float | None
) -> None:
    counter = EXACT if factor is None else CalibratedCounter(EXACT, factor)
    pipeline = ContextPipeline(
        {"learn": False, "cache_markers": markers},
        token_counter=counter,
        store=InMemoryStore(),
    )
    pipeline.add_messages(SAID, **SCOPE)
    context = pipeline.assemble(ASKED, **SCOPE)
    assert context.report.total_tokens == counter.count_messages(context.messages)
    assert not is_made_again(context.report.failures)


def test_halves_of_characters_count_as_they_are_sent() -> None:
    class Characters(TiktokenCounter):
        def _count(self, text: str) -> int:
            return len(text)

    counter = Characters()
    context = pipeline_with(counter, max_context_tokens=20_000).assemble(
        "half \ud83d\ude42 of it \ud83d", **SCOPE
    )
    assert context.report.total_tokens == counter.count_messages(context.messages)
    assert not is_made_again(context.report.failures)
