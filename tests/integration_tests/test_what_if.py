"""What another budget would have given: no I/O, no model, and close to the truth."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.store.base import Op, Result
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, ContextReport, LocalEmbeddings
from langchain_ctxbudget.errors import BudgetTooSmallError, CtxBudgetError, InvalidSettingsError
from tests.integration_tests import strategies as made

SCOPE = {"user_id": "ada", "conversation_id": "c1"}
ALLOCATIONS: list[Any] = [
    "elastic",
    {"strategy": "elastic", "profile": "seed"},
    "ratio",
    "fixed",
    "dynamic",
    "prioritized",
]
RICH: dict[str, Any] = {
    "topics": [{"label": "garden", "context": "The garden is behind the house. " * 20}],
    "entities": [{"name": "Ben", "type": "person", "context": "Ben is the neighbour. " * 10}],
    "preferences": ["Answer briefly."],
    "memories": ["Lives in Bonn.", "Has a dog."],
    "layers": [
        {"name": "files", "items": ["main.py " * 20, "other.py " * 300], "ideal_tokens": 600}
    ],
}
QUESTION = "What did Ben say about lamp 7 in the garden?"


def chat(exchanges: int, start: int = 0) -> list[BaseMessage]:
    messages: list[BaseMessage] = []
    for number in range(start, start + exchanges):
        day = {"created_at": f"2026-{1 + number // 28 % 12:02d}-{1 + number % 28:02d}T09:00:00"}
        question = f"Which lamp did Ben mean with number {number}?"
        answer = f"Lamp {number} stands in room {number % 7}, we decided that on the {number}th, and it costs 42,50 €."
        messages.append(HumanMessage(question, id=f"h{number}", additional_kwargs=day))
        messages.append(AIMessage(answer, id=f"a{number}", additional_kwargs=day))
    return messages


def pipeline(budget: int, history: Sequence[BaseMessage] = (), **changes: Any) -> ContextPipeline:
    parts = {
        name: changes.pop(name)
        for name in ("store", "embeddings", "token_counter")
        if name in changes
    }
    new = ContextPipeline(
        {"max_context_tokens": budget, "learn": False, **changes},
        system_prompt="You are a careful assistant. <context> stays as it is.",
        writer_id="w",
        **{"store": InMemoryStore(), **parts},
    )
    new.add_messages(history, **SCOPE)
    return new


def flat_tool(number: int) -> dict[str, Any]:
    """A function as OpenAI's documentation writes it."""
    properties = {
        "query": {"type": "string", "description": f"What to look for in register {number}."},
        "limit": {"type": "integer", "description": "How many entries to return at most."},
        "order": {
            "type": "string",
            "enum": ["newest", "oldest", "name"],
            "description": "The order of the entries.",
        },
        "archived": {"type": "boolean"},
    }
    parameters = {"type": "object", "properties": properties, "required": ["query"]}
    description = f"Look something up in register {number} of the workshop."
    function = {
        "name": f"search_register_{number}",
        "description": description,
        "parameters": parameters,
    }
    return {"type": "function", "function": function}


def check_forecast(forecast: ContextReport, budget: int) -> None:
    assert forecast.forecast
    assert ContextReport.from_dict(forecast.to_dict()) == forecast  # which checks that it adds up
    assert forecast.total_tokens <= budget == forecast.budget_tokens


def said(report: ContextReport) -> dict[str, Any]:
    data = report.to_dict()
    return {
        key: data[key]
        for key in data
        if key not in ("forecast", "timings_ms", "tokenizer_calls", "stability")
    }


def test_a_forecast_reads_writes_and_embeds_nothing() -> None:
    asked: list[object] = []

    class WatchedStore(InMemoryStore):
        def batch(self, ops: Iterable[Op]) -> list[Result]:
            asked.append(ops)
            return super().batch(ops)

    class WatchedEmbeddings(LocalEmbeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            asked.append(texts)
            return super().embed_documents(texts)

    for exchanges in (0, 100):
        new = pipeline(
            2_000, chat(exchanges), store=WatchedStore(), embeddings=WatchedEmbeddings(), **RICH
        )
        report = new.assemble(
            QUESTION, tools=[flat_tool(1)], response_format=flat_tool(2), **SCOPE
        ).report
        asked.clear()
        for forecast in new.what_if(budgets=[700, 2_000, 20_000]):
            check_forecast(forecast, forecast.budget_tokens)
        assert asked == []
        assert not report.forecast


@pytest.mark.parametrize("allocation", ALLOCATIONS, ids=str)
def test_at_the_same_budget_it_is_the_report_and_at_another_close_to_a_fresh_pipeline(
    allocation: Any,
) -> None:
    """Within 8 % of the budget: the cut stays while it can."""
    changes = {"allocation": allocation, **RICH}
    tools = [flat_tool(1), flat_tool(2)]
    asked = pipeline(2_500, chat(100), **changes)
    report = asked.assemble(QUESTION, tools=tools, **SCOPE).report
    assert said(asked.what_if([2_500])[0]) == said(report)
    for budget in (1_200, 20_000):
        [forecast] = asked.what_if([budget])
        real = (
            pipeline(budget, chat(100), **changes).assemble(QUESTION, tools=tools, **SCOPE).report
        )
        check_forecast(forecast, budget)
        assert forecast.history_strategy == real.history_strategy
        assert sum(forecast.coverage_counts().values()) == sum(real.coverage_counts().values())
        assert forecast.total_tokens == pytest.approx(real.total_tokens, abs=0.08 * budget)


def test_a_budget_below_the_floors_is_the_error_of_a_real_assembly_and_one_that_is_no_count_is_an_error() -> (
    None
):
    asked = pipeline(2_000, chat(100))
    asked.assemble(QUESTION, **SCOPE)
    with pytest.raises(BudgetTooSmallError) as forecast:
        asked.what_if([10])
    with pytest.raises(BudgetTooSmallError) as real:
        pipeline(10, chat(100)).assemble(QUESTION, **SCOPE)
    assert str(forecast.value) == str(real.value)
    for budget in (0, 1.5, "1000"):
        with pytest.raises(InvalidSettingsError, match="max_context_tokens"):
            asked.what_if([budget])  # type: ignore[list-item]


def test_after_an_edit_a_forecast_still_answers_for_the_messages_that_it_is_about() -> None:
    for place, edited in (
        (0, HumanMessage("Something else.", id="h0")),
        (-1, AIMessage("Else.", id="a99")),
        (-1, None),
    ):
        new = pipeline(1_500, messages := chat(100))
        new.assemble(QUESTION, **SCOPE)
        before = said(new.what_if([1_000])[0])
        changed = (
            [*messages[:place], *([edited] if edited else [])] if place else [edited, *messages[1:]]
        )
        new.sync(changed, **SCOPE)
        assert said(new.what_if([1_000])[0]) == before


@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=40)
@given(
    history=made.history,
    turn=made.turns,
    budget=st.integers(50, 3_000),
    other=made.budgets,
    changes=made.settings,
)
def test_any_forecast_adds_up(
    history: list[BaseMessage], turn: Any, budget: int, other: int, changes: dict[str, Any]
) -> None:
    asked = pipeline(budget, history, **changes)
    try:
        report = asked.assemble(turn, **SCOPE).report
    except BudgetTooSmallError:
        return
    assert said(asked.what_if([budget])[0]) == said(report)
    try:
        [forecast] = asked.what_if([other])
    except CtxBudgetError as error:
        with pytest.raises(type(error)):
            pipeline(other, history, **changes).assemble(turn, **SCOPE)
        return
    check_forecast(forecast, other)
    assert sum(forecast.coverage_counts().values()) == len(history)
