"""The promises on generated conversations.

It fits, it is valid, it adds up, it is deterministic.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import AssembledContext, ContextPipeline, ContextReport
from langchain_ctxbudget.budget import Status
from langchain_ctxbudget.errors import BudgetTooSmallError
from tests.integration_tests import strategies as made
from tests.integration_tests.provider_rules import check_anthropic, check_openai

SCOPE = {"user_id": "ada", "conversation_id": "c1"}
SYSTEM_PROMPT = "You are a careful assistant. <context> stays as it is."

common = settings(deadline=None, suppress_health_check=list(HealthCheck))
quick = settings(common, max_examples=50)
long = settings(common, max_examples=400)


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
    assert sum(error.floors.values()) > error.budget_tokens == budget
    assert error.floors["L0 system prompt"] > 0
    assert error.floors["L7 current message"] > 0
    assert all(
        name in str(error) and f"{tokens:,}" in str(error) for name, tokens in error.floors.items()
    )


def current(turn: Any) -> list[BaseMessage]:
    if isinstance(turn, str):
        return [HumanMessage(turn)]
    return [turn] if isinstance(turn, BaseMessage) else list(turn)


def check_valid(context: AssembledContext, turn: Any, *, may_clip: bool = False) -> None:
    """Providers accept it, and the system prompt and the user's words are byte-identical."""
    assert check_openai(context.messages) == check_anthropic(context.messages) == []
    human = [m for m in current(turn) if isinstance(m, HumanMessage)][-1]
    sent = [m for m in context.messages if isinstance(m, HumanMessage)][-1]
    if context.report.layer("L7").items[0].status is Status.SHRUNK:
        assert may_clip, "the user's words are clipped only where the settings say so"
        assert re.search(r"\[… [\d,]+ tokens left out[^\]]*…\]", sent.text), (
            "a clip without a marker"
        )
    else:
        assert sent.text.endswith(human.text), "the user's words are byte-identical"
    assert context.messages[0].text.startswith(SYSTEM_PROMPT), "so is the system prompt"


def check_adds_up(context: AssembledContext) -> None:
    report = context.report
    for layer in report.layers:
        included = sum(item.tokens for item in layer.items if item.status is not Status.OMITTED)
        assert included + layer.overhead_tokens == layer.used_tokens
    assert (
        sum(layer.used_tokens for layer in report.layers) + sum(report.overhead_tokens.values())
        == report.total_tokens
    )


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
    assert (
        chat_openai.get_num_tokens_from_messages(context.messages)
        == context.report.total_tokens
        <= budget
    )
    check_valid(context, turn, may_clip=changes.get("oversized_message") == "clip")
    check_adds_up(context)
    assert (
        ContextReport.from_dict(json.loads(json.dumps(context.report.to_dict()))) == context.report
    )
    covered = [n for part in context.report.coverage for n in range(part.first, part.last + 1)]
    assert covered == list(range(1, len(history) + 1))


anything = given(history=made.history, turn=made.turns, budget=made.budgets, changes=made.settings)


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
@given(history=made.history, turn=made.turns, changes=made.settings)
def test_a_budget_of_exactly_the_floors_is_enough(
    chat_openai: ChatOpenAI, history: list[BaseMessage], turn: Any, changes: dict[str, Any]
) -> None:
    pipeline = ContextPipeline(
        {**changes, "max_context_tokens": 1}, system_prompt=SYSTEM_PROMPT, store=InMemoryStore()
    )
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
    first, second = (assembled(history, turn, budget, changes) for _ in range(2))
    if first is None or second is None:
        assert first is second is None
        return
    assert first.messages == second.messages
    reports = [context.report.to_dict() for context in (first, second)]
    for report in reports:
        del report["timings_ms"]
    assert reports[0] == reports[1]


@quick
@given(history=made.history, turn=made.turns)
def test_the_stored_history_is_what_was_given(history: list[BaseMessage], turn: Any) -> None:
    pipeline = ContextPipeline({"max_context_tokens": 400}, store=InMemoryStore())
    ids = pipeline.add_messages(history, **SCOPE)
    pipeline.assemble(turn, settings={"max_context_tokens": 20_000}, **SCOPE)
    kept = ContextPipeline(store=pipeline.store).get_messages(**SCOPE)
    assert [message.id for message in kept] == ids
    assert [message.model_copy(update={"id": None}) for message in kept] == history
