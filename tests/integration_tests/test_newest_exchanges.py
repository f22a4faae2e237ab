"""The newest exchanges stay word for word, also where an agent has called tools in them."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_ctxbudget import ContextPipeline
from tests.integration_tests.summary_models import USER

pytestmark = pytest.mark.slow

EMPHASES = pytest.mark.parametrize("emphasis", ["recall", "balanced", "cache"])


def exchange_with_calls(number: int, calls: int, words: int) -> list[BaseMessage]:
    """A question, so many calls with results of so many short sentences, and the answer."""
    messages: list[BaseMessage] = [HumanMessage(f"Question {number}?", id=f"q{number}")]
    for step in range(calls):
        call_id = f"c{number}-{step}"
        call = {"name": "look", "args": {"at": step}, "id": call_id, "type": "tool_call"}
        messages.append(AIMessage("", tool_calls=[call], id=f"a{number}-{step}"))
        result = "It is so. " * words
        messages.append(ToolMessage(result, tool_call_id=call_id, id=f"t{number}-{step}"))
    messages.append(AIMessage(f"Answer {number}.", id=f"z{number}"))
    return messages


def three_exchanges(calls: int) -> list[list[BaseMessage]]:
    return [exchange_with_calls(number, calls, words=1) for number in range(3)]


def long_talk() -> list[BaseMessage]:
    messages: list[BaseMessage] = []
    for number in range(0, 120, 2):
        place = f"We speak about place {number} at some length. " * 12
        next_place = f"We speak about place {number + 1} at some length. " * 12
        messages.append(HumanMessage(place, id=f"m{number}"))
        messages.append(AIMessage(next_place, id=f"m{number + 1}"))
    return messages


def ids_of(messages: Sequence[BaseMessage]) -> set[str]:
    return {str(message.id) for message in messages}


@dataclass(frozen=True)
class Prompt:
    """What was sent after a long talk and some newest messages."""

    ids: set[str]
    total_tokens: int
    newest_tokens: int
    """What the newest messages cost whole."""


def prompt_after(newest: Sequence[BaseMessage], budget: int, emphasis: str) -> Prompt:
    settings = {"max_context_tokens": budget, "emphasis": emphasis, "learn": False}
    pipeline = ContextPipeline(settings)
    pipeline.add_messages([*long_talk(), *newest], **USER)

    context = pipeline.assemble("And now?", **USER)

    return Prompt(
        ids=ids_of(context.messages),
        total_tokens=context.report.total_tokens,
        newest_tokens=pipeline.token_counter.count_messages(newest),
    )


@EMPHASES
@pytest.mark.parametrize(
    ("budget", "calls"), [(1_024, 0), (1_024, 1), (4_096, 0), (4_096, 1), (4_096, 3)]
)
def test_three_exchanges_stay_where_they_fit_a_quarter(
    budget: int, calls: int, emphasis: str
) -> None:
    first, second, last = three_exchanges(calls)
    newest = [*first, *second, *last]

    prompt = prompt_after(newest, budget, emphasis)

    assert prompt.newest_tokens <= budget * 0.25
    assert ids_of(newest) <= prompt.ids
    assert prompt.total_tokens <= budget


@EMPHASES
def test_of_three_exchanges_over_a_quarter_the_last_stays(emphasis: str) -> None:
    first, second, last = three_exchanges(calls=3)

    prompt = prompt_after([*first, *second, *last], 1_024, emphasis)

    assert prompt.newest_tokens > 256
    assert ids_of(last) <= prompt.ids
    assert prompt.total_tokens <= 1_024


@EMPHASES
@pytest.mark.parametrize(("budget", "words"), [(1_024, 12), (4_096, 51)])
def test_the_last_exchange_stays_whole_up_to_half_of_the_budget(
    budget: int, words: int, emphasis: str
) -> None:
    last = exchange_with_calls(1, calls=6, words=words)

    prompt = prompt_after(last, budget, emphasis)

    assert budget * 0.25 < prompt.newest_tokens < budget * 0.5
    assert ids_of(last) <= prompt.ids
    assert prompt.total_tokens <= budget


@EMPHASES
@pytest.mark.parametrize(("budget", "words"), [(1_024, 12), (4_096, 51)])
def test_of_a_last_exchange_over_the_budget_the_newest_messages_stay(
    budget: int, words: int, emphasis: str
) -> None:
    last = exchange_with_calls(1, calls=60, words=words)

    prompt = prompt_after(last, budget, emphasis)

    assert prompt.newest_tokens > budget
    assert ids_of(last[-5:]) <= prompt.ids
    assert prompt.total_tokens <= budget
