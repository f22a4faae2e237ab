"""The promises of the budget under every strategy, from the settings to the prompt that is sent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.budget import Allocation, Reason, Situation, Status, share_out
from langchain_ctxbudget.errors import BudgetTooSmallError, InvalidAllocationError, SystemPromptTooLargeError
from langchain_ctxbudget.settings import CustomLayer, LayerRequest
from tests.integration_tests import strategies as made
from tests.integration_tests.conftest import Call
from tests.integration_tests.test_promises import SCOPE, SYSTEM_PROMPT, check, check_adds_up, check_floors

KINDS = tuple(made.allocations())
COMMON = settings(deadline=None, suppress_health_check=list(HealthCheck))
QUICK = settings(COMMON, max_examples=15)


# P1: it fits, whatever the strategy


@QUICK
@given(history=made.history, turn=made.turns, budget=made.budgets, by_strategy=made.settings_by_strategy())
def test_it_fits_under_every_strategy(
    chat_openai: ChatOpenAI, history: list[BaseMessage], turn: Any, budget: int, by_strategy: dict[str, dict[str, Any]]
) -> None:
    for changes in by_strategy.values():
        check(history, turn, budget, changes, chat_openai)


@QUICK
@given(
    history=made.history,
    turn=made.turns,
    changes=made.settings,
    room=st.tuples(st.integers(1, 3_000), st.integers(0, 1_000)),
)
def test_prompt_and_output_reserve_fit_the_window(
    chat_openai: ChatOpenAI, history: list[BaseMessage], turn: Any, changes: dict[str, Any], room: tuple[int, int]
) -> None:
    window, reserve = room
    limits = {"max_system_share": 1.0, "window_tokens": window, "output_reserve_tokens": reserve}
    settings = {**changes, "max_context_tokens": 2_500, **limits}
    pipeline = ContextPipeline(settings, system_prompt=SYSTEM_PROMPT, store=InMemoryStore())
    pipeline.add_messages(history, **SCOPE)
    limit = min(2_500, max(0, window - reserve))
    try:
        context = pipeline.assemble(turn, **SCOPE)
    except BudgetTooSmallError as error:
        check_floors(error, limit)
        return
    except SystemPromptTooLargeError as error:
        assert error.floors["L0 system prompt"] > error.budget_tokens >= limit  # noqa: PT017 - allowed, not expected
        return
    assert chat_openai.get_num_tokens_from_messages(context.messages) == context.report.total_tokens <= limit
    check_adds_up(context)


# A conversation to divide a budget for

PLACES = ("Bonn", "Oslo", "Lima", "Kyoto", "Quito", "Turin", "Accra", "Perth", "Malmö", "Davos")


def talk(exchanges: int) -> list[BaseMessage]:
    """About 50 tokens an exchange."""
    messages: list[BaseMessage] = []
    for number in range(exchanges):
        place = PLACES[number % len(PLACES)]
        messages.append(HumanMessage(f"Trip {number}: what did we plan for {place}, and who has the tickets?"))
        messages.append(
            AIMessage(f"For {place} we planned day {number}: museum, harbour, dinner; Ada has ticket {number}.")
        )
    return messages


# Two phases


# Ratio


# Strategies of the application's own


class Generous:
    """Gives away more than there is."""

    name = "generous"

    def __init__(self, **tokens: int) -> None:
        self.tokens = tokens

    def allocate(self, situation: Situation) -> Allocation:
        """Whatever it was told."""
        allocation = share_out(self.name, situation, [], fits_whole=True)
        reserve = self.tokens.get("reserve", 0)
        return replace(allocation, tokens={**allocation.tokens, **self.tokens}, reserve_tokens=reserve)


@pytest.mark.parametrize(
    ("tokens", "table"),
    [
        ({"L6": 700, "L2": 500}, {"L6": 700, "L2": 500, "L5": 0, "reserve": 0}),
        ({"L6": 700, "reserve": 500}, {"L6": 700, "reserve": 500}),
        ({"notes": 10_000}, {"notes": 10_000, "L6": 0}),
        ({"L5": -1}, {"L5": -1}),
        ({"reserve": -1}, {"reserve": -1}),
    ],
)
def test_a_strategy_that_gives_away_more_than_there_is_is_an_error_with_the_table(
    call: Call, tokens: dict[str, int], table: dict[str, int]
) -> None:
    notes = CustomLayer(name="notes", items=["one"], ideal_tokens=10)
    changes = {"max_context_tokens": 1_000, "allocation": Generous(**tokens), "layers": [notes]}
    pipeline = ContextPipeline(changes, store=InMemoryStore())
    with pytest.raises(InvalidAllocationError, match="The strategy 'generous' gave") as caught:
        call(pipeline, "assemble", "Hello", **SCOPE)
    assert {name: caught.value.floors[name] for name in table} == table
    assert set(caught.value.floors) == {"L1", "L2", "L3", "L4", "L5", "L6", "notes", "reserve"}
    assert 900 < caught.value.budget_tokens < 1_000
    assert all(f"{number:,}" in str(caught.value) for number in table.values())


# Layers of the application's own


def files(items: Any, **sizes: Any) -> CustomLayer:
    return CustomLayer(name="open files", items=items, **{"ideal_tokens": 200, **sizes})


def with_layer(call: Call, layer: CustomLayer, message: Any = "What is open?", **changes: Any) -> Any:
    pipeline = ContextPipeline({"max_context_tokens": 1_000, "layers": [layer], **changes}, store=InMemoryStore())
    return call(pipeline, "assemble", message, **SCOPE)


@pytest.mark.parametrize("allocation", KINDS[:1] + KINDS[2:])
def test_the_items_of_an_own_layer_stand_in_the_prompt_and_in_the_report(call: Call, allocation: str) -> None:
    asked: list[LayerRequest] = []

    def look(request: LayerRequest) -> list[str]:
        asked.append(request)
        return ["main.py: prints", "test.py: tests"]

    context = with_layer(call, files(look, heading="Files"), allocation=allocation)
    [request] = asked
    assert (request.query, request.user_id, request.conversation_id) == ("What is open?", "ada", "c1")
    assert request.budget_tokens > 0
    block = context.messages[-1].text
    assert "## Files\n- main.py: prints\n- test.py: tests\n" in block
    part = context.report.layer("open files")
    assert [(item.id, item.status, item.reason) for item in part.items] == [
        ("open files 1", Status.INCLUDED, Reason.CONFIGURED),
        ("open files 2", Status.INCLUDED, Reason.CONFIGURED),
    ]
    assert (part.title, part.allocated_tokens >= part.used_tokens > 0) == ("open files", True)
    check_adds_up(context)


# What does not change with the current message, and what is not lost


@pytest.mark.parametrize("allocation", ["elastic", {"strategy": "elastic", "profile": "seed"}, "ratio", "prioritized"])
def test_what_is_known_about_the_user_does_not_change_with_the_message(allocation: Any) -> None:
    memories = [f"Ada likes the number {number} very much." for number in range(60)]
    pipeline = ContextPipeline(
        {"max_context_tokens": 3_000, "memories": memories, "allocation": allocation}, store=InMemoryStore()
    )
    pipeline.add_messages(talk(6), **SCOPE)
    turns = ["Hi", "Hi " + "word " * 300, "Hi there", "Hi " + "word " * 500]
    first = {pipeline.assemble(turn, **SCOPE).messages[0].text for turn in turns}
    assert len(first) == 1
