"""The newest exchanges stay word for word, also where an agent has called tools in them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_ctxbudget import ContextPipeline

SCOPE = {"user_id": "ada", "conversation_id": "c1"}
SHARE = 0.25
"""Of the budget, which the last three exchanges may take."""


def exchange(number: int, calls: int, words: int) -> list[BaseMessage]:
    """A question, some calls one after the other, and the answer."""
    said: list[BaseMessage] = [HumanMessage(f"Question {number}?", id=f"q{number}")]
    for step in range(calls):
        call = {"name": "look", "args": {"at": step}, "id": f"c{number}-{step}", "type": "tool_call"}
        said += [
            AIMessage("", tool_calls=[call], id=f"a{number}-{step}"),
            ToolMessage("It is so. " * words, tool_call_id=f"c{number}-{step}", id=f"t{number}-{step}"),
        ]
    return [*said, AIMessage(f"Answer {number}.", id=f"z{number}")]


def sent(budget: int, emphasis: str, newest: Sequence[Sequence[BaseMessage]]) -> tuple[set[str | None], int]:
    """The ids of the messages that are sent, and what the newest exchanges cost whole."""
    pipeline = ContextPipeline({"max_context_tokens": budget, "emphasis": emphasis, "learn": False})
    long_talk = [
        (HumanMessage, AIMessage)[number % 2](f"We speak about place {number} at some length. " * 12, id=f"m{number}")
        for number in range(120)
    ]
    messages = [message for part in newest for message in part]
    pipeline.add_messages([*long_talk, *messages], **SCOPE)
    context = pipeline.assemble("And now?", **SCOPE)
    assert context.report.total_tokens <= budget
    return {message.id for message in context.messages}, pipeline.engine.target.counter.count_messages(messages)


@pytest.mark.parametrize("budget", [1_024, 4_096])
@pytest.mark.parametrize("emphasis", ["recall", "balanced", "cache"])
def test_the_newest_exchanges_stay_as_far_as_they_fit(budget: int, emphasis: str) -> None:
    for calls in (0, 1, 3):  # the last three, where they fit a quarter of the budget
        newest = [exchange(number, calls, words=1) for number in range(3)]
        found, cost = sent(budget, emphasis, newest)
        assert cost <= budget * SHARE or (budget, calls) == (1_024, 3)
        stay = newest if cost <= budget * SHARE else newest[-1:]
        assert {message.id for part in stay for message in part} <= found
    last = exchange(1, 6, words=budget // 80)  # the last one whole, up to half of it
    found, cost = sent(budget, emphasis, [last])
    assert budget * SHARE < cost < budget / 2
    assert {message.id for message in last} <= found
    last = exchange(1, 60, words=budget // 80)  # of one that is too large, the newest messages
    found, cost = sent(budget, emphasis, [last])
    assert cost > budget
    assert {message.id for message in last[-5:]} <= found
