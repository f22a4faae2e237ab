"""The newest exchanges stay word for word, also where an agent has called tools in them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_ctxbudget import ContextPipeline

SCOPE = {"user_id": "ada", "conversation_id": "c1"}
BUDGETS = pytest.mark.parametrize("budget", [1_024, 4_096])
EMPHASES = pytest.mark.parametrize("emphasis", ["recall", "balanced", "cache"])
SHARE = 0.25
"""Of the budget, which the last three exchanges may take."""


def exchange(number: int, calls: int, words: int = 6) -> list[BaseMessage]:
    """A question, some calls one after the other, and the answer."""
    said: list[BaseMessage] = [HumanMessage(f"Question {number}?", id=f"q{number}")]
    for step in range(calls):
        call = {"name": "look", "args": {"at": step}, "id": f"c{number}-{step}", "type": "tool_call"}
        said += [
            AIMessage("", tool_calls=[call], id=f"a{number}-{step}"),
            ToolMessage("It is so. " * words, tool_call_id=f"c{number}-{step}", id=f"t{number}-{step}"),
        ]
    return [*said, AIMessage(f"Answer {number}.", id=f"z{number}")]


def long_talk() -> list[BaseMessage]:
    """More than any budget here holds."""
    return [
        (HumanMessage, AIMessage)[number % 2](f"We speak about place {number} at some length. " * 12, id=f"m{number}")
        for number in range(120)
    ]


def sent(budget: int, emphasis: str, newest: Sequence[Sequence[BaseMessage]]) -> tuple[set[str | None], int]:
    """The ids of the messages that are sent, and what the newest exchanges cost whole."""
    pipeline = ContextPipeline({"max_context_tokens": budget, "emphasis": emphasis, "learn": False})
    messages = [message for part in newest for message in part]
    pipeline.add_messages([*long_talk(), *messages], **SCOPE)
    context = pipeline.assemble("And now?", **SCOPE)
    assert context.report.total_tokens <= budget
    return {message.id for message in context.messages}, pipeline.engine.target.counter.count_messages(messages)


@BUDGETS
@EMPHASES
@pytest.mark.parametrize("calls", [0, 1, 3])
def test_the_last_three_exchanges_stay_where_they_fit_a_quarter(budget: int, emphasis: str, calls: int) -> None:
    newest = [exchange(number, calls, words=1) for number in range(3)]
    found, cost = sent(budget, emphasis, newest)
    assert cost <= budget * SHARE or (budget, calls) == (1_024, 3)
    stay = newest if cost <= budget * SHARE else newest[-1:]
    assert {message.id for part in stay for message in part} <= found


@BUDGETS
@EMPHASES
def test_the_last_exchange_stays_whole_up_to_half_of_the_budget(budget: int, emphasis: str) -> None:
    newest = exchange(1, 6, words=budget // 80)
    found, cost = sent(budget, emphasis, [newest])
    assert budget * SHARE < cost < budget / 2
    assert {message.id for message in newest} <= found


@BUDGETS
@EMPHASES
def test_of_a_last_exchange_that_is_too_large_the_newest_messages_stay(budget: int, emphasis: str) -> None:
    newest = exchange(1, 60, words=budget // 80)
    found, cost = sent(budget, emphasis, [newest])
    assert cost > budget
    assert {message.id for message in newest[-5:]} <= found
