"""`forecast` tells what the next prompt will cost, and changes nothing."""

import asyncio
import copy
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, ContextReport, CostForecast
from langchain_ctxbudget.errors import BudgetTooSmallError, EmptyMessageError
from langchain_ctxbudget.pipeline.chat import Chat

MODEL = "gpt-5"
LIFETIME = 300
QUESTION = "What did we say about the river?"
WORDS = "river bike train garden invoice python roof oven letter museum violin ticket".split()


@tool
def look_up(what: str) -> str:
    """Looks something up."""
    return what


@dataclass
class Talk:
    """A conversation whose clock a test moves."""

    chat: Chat
    store: InMemoryStore
    now: datetime = datetime(2026, 1, 1, tzinfo=UTC)

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def take_turn(self, rng: random.Random, **options: Any) -> None:
        context = self.chat.assemble(sentence(rng, 40), **options)
        self.chat.add(context.turn, AIMessage(sentence(rng, 120)))


def sentence(rng: random.Random, words: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(words)) + "."


def new_talk(turns: int, **changes: Any) -> Talk:
    """A conversation of some turns, one a minute, whose prompts a provider caches."""
    store = InMemoryStore()
    chosen = {"max_context_tokens": 3_000, "learn": False, **changes}
    pipeline = ContextPipeline(
        chosen, model=MODEL, store=store, writer_id="w", clock=lambda: talk.now
    )
    talk = Talk(pipeline.conversation("c1", user_id="ada"), store)
    rng = random.Random(7)
    for _ in range(turns):
        talk.take_turn(rng)
        talk.wait(60)
    return talk


def told(report: ContextReport) -> dict[str, Any]:
    """What a report tells of what a forecast tells, too."""
    stability = report.stability
    return {
        "total_tokens": report.total_tokens,
        "cached_tokens": stability.cached_tokens,
        "effective_tokens": stability.effective_tokens,
        "whole_effective_tokens": stability.whole_effective_tokens,
        "mode": stability.mode,
        "cause": stability.cause,
    }


def foretold(forecast: CostForecast) -> dict[str, Any]:
    return {
        name: getattr(forecast, name)
        for name in (
            "total_tokens",
            "cached_tokens",
            "effective_tokens",
            "whole_effective_tokens",
            "mode",
            "cause",
        )
    }


def loop() -> list[BaseMessage]:
    """A turn whose model has called a tool."""
    call = {"name": "look_up", "args": {"what": "river"}, "id": "call1"}
    return [
        HumanMessage(QUESTION, id="q"),
        AIMessage("", tool_calls=[call], id="a"),
        ToolMessage("The river is wide.", tool_call_id="call1", id="r"),
    ]


Turn = str | list[BaseMessage]
CASES = [
    pytest.param(0, 0, QUESTION, {}, ("rebuilt", "first"), id="first"),
    pytest.param(6, 0, QUESTION, {}, ("extended", "has_room"), id="warm"),
    pytest.param(6, LIFETIME, QUESTION, {}, ("rebuilt", "cold"), id="cold"),
    pytest.param(6, 0, QUESTION, {"tools": [look_up]}, ("rebuilt", "other_tools"), id="tools"),
    pytest.param(
        6,
        0,
        QUESTION,
        {"response_format": {"title": "Answer", "type": "object", "properties": {}}},
        ("rebuilt", "other_tools"),
        id="response format",
    ),
    pytest.param(
        6, 0, QUESTION, {"settings": {"emphasis": "recall"}}, ("rebuilt", "first"), id="settings"
    ),
    pytest.param(17, 0, QUESTION, {}, ("shortened", "full"), id="full"),
    pytest.param(6, 0, loop(), {"tools": [look_up]}, ("rebuilt", "other_tools"), id="loop"),
]


@pytest.mark.parametrize(("turns", "pause", "message", "options", "mode"), CASES)
def test_a_forecast_is_what_the_next_report_tells(
    turns: int, pause: float, message: Turn, options: dict[str, Any], mode: tuple[str, str]
) -> None:
    talk = new_talk(turns)
    talk.wait(pause)

    forecast = talk.chat.forecast(message, **options)

    assert (forecast.mode, forecast.cause) == mode
    assert foretold(forecast) == told(talk.chat.assemble(message, **options).report)


@pytest.mark.parametrize(("turns", "pause", "message", "options", "mode"), CASES)
def test_a_forecast_changes_nothing(
    turns: int, pause: float, message: Turn, options: dict[str, Any], mode: tuple[str, str]
) -> None:
    asked, unasked = new_talk(turns), new_talk(turns)
    for talk in (asked, unasked):
        talk.wait(pause)
    stored = stored_items(asked)
    last = asked.chat.last_report()

    asked.chat.forecast(message, **options)

    assert stored_items(asked) == stored
    assert asked.chat.last_report() is last
    prompts = [talk.chat.assemble(message, **options) for talk in (asked, unasked)]
    assert words_of(prompts[0].messages) == words_of(prompts[1].messages)


def words_of(messages: list[BaseMessage]) -> list[tuple[str, str]]:
    return [(message.type, message.text) for message in messages]


def stored_items(talk: Talk) -> dict[Any, Any]:
    items = {}
    for namespace in talk.store.list_namespaces(limit=1_000):
        for item in talk.store.search(namespace, limit=1_000):
            items[namespace, item.key] = copy.deepcopy(item.value)
    return items


Event = tuple[int, bool]
"""Seconds before a turn, and whether it has tools."""


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(
    events=st.lists(
        st.tuples(st.sampled_from([5, 60, 290, 301, 4_000]), st.booleans()), min_size=1, max_size=9
    ),
    budget=st.sampled_from([1_200, 2_500]),
)
def test_every_forecast_of_a_conversation_comes_true(events: list[Event], budget: int) -> None:
    talk = new_talk(0, max_context_tokens=budget)
    rng = random.Random(1)
    for seconds, has_tools in events:
        talk.wait(seconds)
        options = {"tools": [look_up]} if has_tools else {}
        message = sentence(rng, 40)

        forecast = talk.chat.forecast(message, **options)

        context = talk.chat.assemble(message, **options)
        assert foretold(forecast) == told(context.report)
        talk.chat.add(context.turn, AIMessage(sentence(rng, 200)))


def test_the_cost_of_a_cold_turn_is_told_before_it_is_cold() -> None:
    talk = new_talk(12)

    forecast = talk.chat.forecast(QUESTION)

    talk.wait(forecast.seconds_until_cold + 1)
    later = talk.chat.assemble(QUESTION).report.stability
    assert later.cause == "cold"
    assert forecast.cold_effective_tokens == later.effective_tokens > forecast.effective_tokens


def test_a_forecast_tells_when_the_last_prompt_turns_cold() -> None:
    talk = new_talk(12)
    talk.wait(30)

    assert talk.chat.forecast(QUESTION).seconds_until_cold == LIFETIME - 90


@pytest.mark.parametrize(
    ("turns", "pause", "changes"),
    [
        pytest.param(0, 0, {}, id="first prompt"),
        pytest.param(12, LIFETIME, {}, id="after a pause"),
        pytest.param(1, 0, {}, id="too small to be cached"),
        pytest.param(12, 0, {"cache_lifetime_seconds": 0}, id="no cache"),
    ],
)
def test_without_a_cached_prompt_the_turn_costs_the_same_later(
    turns: int, pause: float, changes: dict[str, Any]
) -> None:
    talk = new_talk(turns, **changes)
    talk.wait(pause)

    forecast = talk.chat.forecast(QUESTION)

    assert (forecast.seconds_until_cold, forecast.cached_tokens) == (0, 0)
    assert forecast.cold_effective_tokens == forecast.effective_tokens


def test_a_prompt_that_is_cached_for_ever_never_turns_cold() -> None:
    forecast = new_talk(12, cache_lifetime_seconds=1e15).chat.forecast(QUESTION)

    assert forecast.seconds_until_cold > 1e14
    assert forecast.cold_effective_tokens is None
    assert forecast.cold_dollars is None


def test_dollars_are_at_the_price_of_the_model() -> None:
    talk = new_talk(12)

    forecast = talk.chat.forecast(QUESTION)

    assert forecast.dollars == pytest.approx(forecast.effective_tokens * 1.25 / 1e6)
    assert forecast.whole_dollars == pytest.approx(forecast.whole_effective_tokens * 1.25 / 1e6)


def test_without_a_price_no_dollars_are_told() -> None:
    forecast = ContextPipeline().forecast("Hello", user_id="ada", conversation_id="c1")

    assert (forecast.dollars, forecast.whole_dollars, forecast.cold_dollars) == (None, None, None)


@pytest.mark.parametrize(
    ("turns", "text"),
    [
        pytest.param(
            0,
            "rebuilt (there is no earlier prompt to go on from): 15 tokens, 0 cached; paid "
            "for: 15 ($0.0000); sending everything: 15 ($0.0000)",
            id="first",
        ),
        pytest.param(12, r"cold in 240 seconds, then", id="warm"),
    ],
)
def test_a_forecast_reads_as_a_line(turns: int, text: str) -> None:
    assert text in str(new_talk(turns).chat.forecast(QUESTION))


Forecast = Callable[[Chat, Any], CostForecast]


@pytest.mark.parametrize(
    "forecast",
    [
        pytest.param(lambda chat, message: chat.forecast(message), id="blocking"),
        pytest.param(lambda chat, message: asyncio.run(chat.aforecast(message)), id="awaited"),
    ],
)
@pytest.mark.parametrize(
    ("message", "error"),
    [("", EmptyMessageError), ("long " * 5_000, BudgetTooSmallError)],
    ids=["empty", "too large"],
)
def test_a_turn_that_cannot_be_sent_has_no_forecast(
    forecast: Forecast, message: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        forecast(new_talk(1).chat, message)
