"""The promises on generated conversations.

It fits, it is valid, it adds up, it is deterministic.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import AssembledContext, ContextPipeline, ContextReport
from langchain_ctxbudget.budget import Status
from langchain_ctxbudget.errors import BudgetTooSmallError
from tests.doubles.providers import check_anthropic, check_openai
from tests.integration_tests import strategies

SCOPE = {"user_id": "ada", "conversation_id": "c1"}
SYSTEM_PROMPT = "You are a careful assistant. <context> stays as it is."

common = settings(deadline=None, suppress_health_check=list(HealthCheck))
quick = settings(common, max_examples=10)
long = settings(common, max_examples=100)


def assembled(
    history: Sequence[BaseMessage], turn: Any, budget: int, changes: dict[str, Any]
) -> AssembledContext | None:
    """The prompt, or None where the budget is below the floors."""
    pipeline = ContextPipeline(
        {"max_context_tokens": budget, **changes},
        system_prompt=SYSTEM_PROMPT,
        store=InMemoryStore(),
        writer_id="w",
    )
    pipeline.add_messages(history, **SCOPE)
    try:
        return pipeline.assemble(turn, **SCOPE)
    except BudgetTooSmallError as error:
        check_floors(error, budget)
        return None


def check_floors(error: BudgetTooSmallError, budget: int) -> None:
    assert error.budget_tokens == budget
    assert sum(error.floors.values()) > budget
    assert error.floors["system prompt"] > 0
    assert error.floors["current message"] > 0
    check_names_every_floor(str(error), error.floors)


def check_names_every_floor(text: str, floors: Mapping[str, int]) -> None:
    assert [name for name in floors if name not in text] == []
    assert [tokens for tokens in floors.values() if f"{tokens:,}" not in text] == []


def current(turn: Any) -> list[BaseMessage]:
    """Returns the messages of a turn, which may be a text or a message."""
    if isinstance(turn, str):
        return [HumanMessage(turn)]
    if isinstance(turn, BaseMessage):
        return [turn]
    return list(turn)


def last_question(messages: Sequence[BaseMessage]) -> HumanMessage:
    return [message for message in messages if isinstance(message, HumanMessage)][-1]


def check_valid(context: AssembledContext, turn: Any, *, may_clip: bool = False) -> None:
    """Providers accept it, and the system prompt and the user's words are byte-identical."""
    assert check_openai(context.messages) == []
    assert check_anthropic(context.messages) == []
    assert context.messages[0].text.startswith(SYSTEM_PROMPT), "the system prompt is as it was"
    sent = last_question(context.messages).text
    if context.report.layer("L7").items[0].status is Status.SHRUNK:
        assert may_clip, "the user's words are clipped only where the settings say so"
        marker = r"\[… [\d,]+ tokens left out[^\]]*…\]"
        assert re.search(marker, sent), "a clip has a marker"
    else:
        question = last_question(current(turn)).text
        assert sent.endswith(question), "the user's words are byte-identical"


def check_adds_up(context: AssembledContext) -> None:
    report = context.report
    for layer in report.layers:
        included = sum(item.tokens for item in layer.items if item.status is not Status.OMITTED)
        assert included + layer.overhead_tokens == layer.used_tokens
    used = sum(layer.used_tokens for layer in report.layers)
    overhead = sum(report.overhead_tokens.values())
    assert used + overhead == report.total_tokens


def check_covers(report: ContextReport, messages: int) -> None:
    """Holds the coverage to name every message of a history once, in order."""
    covered: list[int] = []
    for part in report.coverage:
        covered += range(part.first, part.last + 1)
    assert covered == list(range(1, messages + 1))


def check_can_be_read_back(report: ContextReport) -> None:
    text = json.dumps(report.to_dict())
    assert ContextReport.from_dict(json.loads(text)) == report


def check(
    history: list[BaseMessage],
    turn: Any,
    budget: int,
    changes: dict[str, Any],
    chat_openai: ChatOpenAI,
) -> None:
    context = assembled(history, turn, budget, changes)
    if context is None:
        return
    report = context.report
    assert chat_openai.get_num_tokens_from_messages(context.messages) == report.total_tokens
    assert report.total_tokens <= budget
    check_valid(context, turn, may_clip=changes.get("oversized_message") == "clip")
    check_adds_up(context)
    check_can_be_read_back(report)
    check_covers(report, len(history))


anything = given(
    history=strategies.history,
    turn=strategies.turns,
    budget=strategies.budgets,
    changes=strategies.settings,
)


@pytest.mark.parametrize(
    "examples", [quick, pytest.param(long, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_it_fits_is_valid_and_adds_up_or_names_the_floors(
    chat_openai: ChatOpenAI, examples: settings
) -> None:
    @examples
    @anything
    def holds(history: list[BaseMessage], turn: Any, budget: int, changes: dict[str, Any]) -> None:
        check(history, turn, budget, changes, chat_openai)

    holds()


@quick
@given(history=strategies.history, turn=strategies.turns, changes=strategies.settings)
def test_a_budget_of_exactly_the_floors_is_enough(
    chat_openai: ChatOpenAI, history: list[BaseMessage], turn: Any, changes: dict[str, Any]
) -> None:
    pipeline = ContextPipeline(
        {**changes, "max_context_tokens": 1}, system_prompt=SYSTEM_PROMPT, store=InMemoryStore()
    )
    # A result that comes late has its call in the history.
    pipeline.add_messages(history, **SCOPE)
    with pytest.raises(BudgetTooSmallError) as caught:
        pipeline.assemble(turn, **SCOPE)
    floor = sum(caught.value.floors.values())
    check(history, turn, floor, changes, chat_openai)
    assert assembled(history, turn, floor, changes) is not None


@quick
@anything
def test_the_same_inputs_give_the_same_prompt_and_report(
    history: list[BaseMessage], turn: Any, budget: int, changes: dict[str, Any]
) -> None:
    first = assembled(history, turn, budget, changes)
    second = assembled(history, turn, budget, changes)
    if first is None or second is None:
        assert first is second is None
        return

    assert first.messages == second.messages
    first_report = first.report.to_dict()
    second_report = second.report.to_dict()
    del first_report["timings_ms"]
    del second_report["timings_ms"]
    assert first_report == second_report


@quick
@given(history=strategies.history, turn=strategies.turns)
def test_the_stored_history_is_what_was_added(history: list[BaseMessage], turn: Any) -> None:
    pipeline = ContextPipeline({"max_context_tokens": 400}, store=InMemoryStore())
    ids = pipeline.add_messages(history, **SCOPE)
    pipeline.assemble(turn, settings={"max_context_tokens": 20_000}, **SCOPE)
    kept = ContextPipeline(store=pipeline.store).get_messages(**SCOPE)
    assert [message.id for message in kept] == ids
    assert [message.model_copy(update={"id": None}) for message in kept] == history
