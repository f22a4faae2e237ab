"""What another budget would have given: no I/O, no model, and close to the truth."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.store.base import BaseStore, Op, Result
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, ContextReport, LocalEmbeddings
from langchain_ctxbudget.errors import BudgetTooSmallError, CtxBudgetError, InvalidSettingsError
from tests.integration_tests import strategies

SCOPE: dict[str, Any] = {"user_id": "ada", "conversation_id": "c1"}
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


def date_of(number: int) -> str:
    month = 1 + number // 28 % 12
    day = 1 + number % 28
    return f"2026-{month:02d}-{day:02d}T09:00:00"


def chat(exchanges: int) -> list[BaseMessage]:
    messages: list[BaseMessage] = []
    for number in range(exchanges):
        extras = {"created_at": date_of(number)}
        question = f"Which lamp did Ben mean with number {number}?"
        answer = (
            f"Lamp {number} stands in room {number % 7}, we decided that on the {number}th, "
            "and it costs 42,50 €."
        )
        messages.append(HumanMessage(question, id=f"h{number}", additional_kwargs=extras))
        messages.append(AIMessage(answer, id=f"a{number}", additional_kwargs=extras))
    return messages


def new_pipeline(
    budget: int,
    history: Sequence[BaseMessage] = (),
    *,
    store: BaseStore | None = None,
    embeddings: Embeddings | None = None,
    **settings: Any,
) -> ContextPipeline:
    pipeline = ContextPipeline(
        {"max_context_tokens": budget, "learn": False, **settings},
        system_prompt="You are a careful assistant. <context> stays as it is.",
        writer_id="w",
        store=store or InMemoryStore(),
        embeddings=embeddings,
    )
    pipeline.add_messages(history, **SCOPE)
    return pipeline


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
    function = {
        "name": f"search_register_{number}",
        "description": f"Look something up in register {number} of the workshop.",
        "parameters": parameters,
    }
    return {"type": "function", "function": function}


def check_forecast(forecast: ContextReport, budget: int) -> None:
    """It says that it is one, adds up, and fits the budget."""
    assert forecast.forecast
    assert ContextReport.from_dict(forecast.to_dict()) == forecast  # which checks that it adds up
    assert forecast.budget_tokens == budget
    assert forecast.total_tokens <= budget


NOT_COMPARED = {"forecast", "timings_ms", "tokenizer_calls", "stability"}
"""Keys of a report in which a forecast differs from the report of a real prompt."""


def comparable(report: ContextReport) -> dict[str, Any]:
    return {key: value for key, value in report.to_dict().items() if key not in NOT_COMPARED}


# -- a forecast does no work


class WatchedStore(InMemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.batches = 0

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        self.batches += 1
        return super().batch(ops)


class WatchedEmbeddings(LocalEmbeddings):
    def __init__(self) -> None:
        super().__init__()
        self.requests = 0

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.requests += 1
        return super().embed_documents(texts)


@dataclass(frozen=True)
class WatchedForecasts:
    """Three forecasts, and what was read and embedded for them."""

    report: ContextReport
    forecasts: Sequence[ContextReport]
    batches: int
    embedding_requests: int


@pytest.fixture(scope="module", params=[0, 100], ids=["no history", "long history"])
def watched(request: pytest.FixtureRequest) -> WatchedForecasts:
    store = WatchedStore()
    embeddings = WatchedEmbeddings()
    pipeline = new_pipeline(2_000, chat(request.param), store=store, embeddings=embeddings, **RICH)
    context = pipeline.assemble(
        QUESTION, tools=[flat_tool(1)], response_format=flat_tool(2), **SCOPE
    )
    batches_before = store.batches
    requests_before = embeddings.requests
    forecasts = pipeline.what_if(budgets=[700, 2_000, 20_000])
    return WatchedForecasts(
        report=context.report,
        forecasts=forecasts,
        batches=store.batches - batches_before,
        embedding_requests=embeddings.requests - requests_before,
    )


def test_a_forecast_reads_and_writes_nothing(watched: WatchedForecasts) -> None:
    assert watched.batches == 0


def test_a_forecast_embeds_nothing(watched: WatchedForecasts) -> None:
    assert watched.embedding_requests == 0


def test_each_budget_has_a_forecast_that_fits_it(watched: WatchedForecasts) -> None:
    smallest, same, largest = watched.forecasts

    check_forecast(smallest, 700)
    check_forecast(same, 2_000)
    check_forecast(largest, 20_000)


def test_the_report_of_a_prompt_is_no_forecast(watched: WatchedForecasts) -> None:
    assert not watched.report.forecast


# -- a forecast is close to the truth

TOOLS = [flat_tool(1), flat_tool(2)]


@dataclass(frozen=True)
class Assembled:
    """A pipeline after a prompt of 2,500 tokens, and the prompt's report."""

    pipeline: ContextPipeline
    report: ContextReport
    settings: dict[str, Any]

    def report_of_a_fresh_pipeline(self, budget: int) -> ContextReport:
        pipeline = new_pipeline(budget, chat(100), **self.settings)
        return pipeline.assemble(QUESTION, tools=TOOLS, **SCOPE).report


@pytest.fixture(scope="module", params=ALLOCATIONS, ids=str)
def assembled(request: pytest.FixtureRequest) -> Assembled:
    settings = {"allocation": request.param, **RICH}
    pipeline = new_pipeline(2_500, chat(100), **settings)
    report = pipeline.assemble(QUESTION, tools=TOOLS, **SCOPE).report
    return Assembled(pipeline, report, settings)


def test_the_forecast_of_the_same_budget_is_the_report(assembled: Assembled) -> None:
    [forecast] = assembled.pipeline.what_if([2_500])

    assert comparable(forecast) == comparable(assembled.report)


@pytest.mark.parametrize("budget", [1_200, 20_000])
def test_the_forecast_of_another_budget_is_close_to_the_truth(
    assembled: Assembled, budget: int
) -> None:
    """Within 8 % of the budget: the cut stays while it can."""
    [forecast] = assembled.pipeline.what_if([budget])

    real = assembled.report_of_a_fresh_pipeline(budget)
    check_forecast(forecast, budget)
    assert forecast.history_strategy == real.history_strategy
    assert sum(forecast.coverage_counts().values()) == sum(real.coverage_counts().values())
    assert forecast.total_tokens == pytest.approx(real.total_tokens, abs=0.08 * budget)


# -- budgets that are refused


@pytest.fixture(scope="module")
def with_history() -> ContextPipeline:
    pipeline = new_pipeline(2_000, chat(100))
    pipeline.assemble(QUESTION, **SCOPE)
    return pipeline


def test_a_budget_below_the_floors_is_the_error_of_a_prompt(with_history: ContextPipeline) -> None:
    with pytest.raises(BudgetTooSmallError) as forecast:
        with_history.what_if([10])
    with pytest.raises(BudgetTooSmallError) as real:
        new_pipeline(10, chat(100)).assemble(QUESTION, **SCOPE)

    assert str(forecast.value) == str(real.value)


@pytest.mark.parametrize("budget", [0, 1.5, "1000"])
def test_a_budget_that_is_no_count_is_refused(with_history: ContextPipeline, budget: Any) -> None:
    with pytest.raises(InvalidSettingsError, match="max_context_tokens"):
        with_history.what_if([budget])


# -- messages that change behind a forecast


def with_another_first(messages: list[BaseMessage]) -> list[BaseMessage]:
    return [HumanMessage("Something else.", id="h0"), *messages[1:]]


def with_another_last(messages: list[BaseMessage]) -> list[BaseMessage]:
    return [*messages[:-1], AIMessage("Else.", id="a99")]


def without_the_last(messages: list[BaseMessage]) -> list[BaseMessage]:
    return messages[:-1]


@pytest.mark.parametrize("edited", [with_another_first, with_another_last, without_the_last])
def test_after_an_edit_a_forecast_is_still_about_the_old_messages(
    edited: Callable[[list[BaseMessage]], list[BaseMessage]],
) -> None:
    pipeline = new_pipeline(1_500, chat(100))
    pipeline.assemble(QUESTION, **SCOPE)
    [before] = pipeline.what_if([1_000])

    pipeline.sync(edited(chat(100)), **SCOPE)

    [after] = pipeline.what_if([1_000])
    assert comparable(after) == comparable(before)


# -- any forecast


@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=40)
@given(
    history=strategies.history,
    turn=strategies.turns,
    budget=st.integers(50, 3_000),
    other=strategies.budgets,
    changes=strategies.settings,
)
def test_any_forecast_adds_up(
    history: list[BaseMessage], turn: Any, budget: int, other: int, changes: dict[str, Any]
) -> None:
    pipeline = new_pipeline(budget, history, **changes)
    try:
        report = pipeline.assemble(turn, **SCOPE).report
    except BudgetTooSmallError:
        return

    [same] = pipeline.what_if([budget])
    assert comparable(same) == comparable(report)

    try:
        [forecast] = pipeline.what_if([other])
    except CtxBudgetError as error:
        with pytest.raises(type(error)):
            new_pipeline(other, history, **changes).assemble(turn, **SCOPE)
        return
    check_forecast(forecast, other)
    assert sum(forecast.coverage_counts().values()) == len(history)
