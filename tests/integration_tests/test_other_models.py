"""Windows in the pipeline, and counts that usage corrects."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, EstimatingCounter
from langchain_ctxbudget.errors import BudgetTooSmallError, InputError
from langchain_ctxbudget.tokens import CalibratedCounter
from tests.integration_tests import strategies as made
from tests.integration_tests.test_promises import check_adds_up, check_floors

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

SCOPE = {"user_id": "ada", "conversation_id": "c1"}
SYSTEM_PROMPT = "You are a careful assistant. <context> stays as it is."
CLAUDE = "claude-sonnet-4-5"
QUESTION = "Where does lamp 7 stand?"

common = settings(deadline=None, suppress_health_check=list(HealthCheck))
quick = settings(common, max_examples=40)


def chat(exchanges: int, start: int = 0) -> list[BaseMessage]:
    messages: list[BaseMessage] = []
    for number in range(start, start + exchanges):
        messages.append(HumanMessage(f"Where does lamp {number} stand?", id=f"h{number}"))
        answer = f"Lamp {number} stands in room {number % 7}, and it costs {number},50 € in the shop of Zoë."
        messages.append(AIMessage(answer, id=f"a{number}"))
    return messages


def profiled(window: int, answer: int = 0, **rest: Any) -> ChatOpenAI:
    profile: Any = {"max_input_tokens": window, "max_output_tokens": answer}
    return ChatOpenAI(model="gpt-4o", api_key="not-used", profile=profile, **rest)


def pipeline(budget: int = 12_000, **rest: Any) -> ContextPipeline:
    rest.setdefault("store", InMemoryStore())
    return ContextPipeline({"max_context_tokens": budget, "learn": False}, system_prompt=SYSTEM_PROMPT, **rest)


# Usage that was observed


UNUSABLE: list[Any] = [
    *({"input_tokens": value} for value in (-1, "100", None, 1.5, True, float("nan"))),
    *({}, {"total_tokens": 5}, "100", 100, [("input_tokens", 1)]),
]


def test_usage_that_is_none_is_an_error() -> None:
    made_for = pipeline(model=CLAUDE)
    made_for.assemble("Hi", **SCOPE)
    for usage in UNUSABLE:
        with pytest.raises(InputError, match="input_tokens"):
            made_for.observe_usage(usage)
    assert made_for.observe_usage(None) == 1.0


shares = st.floats(0.3, 3.0, allow_nan=False)


@quick
@given(history=made.history, turn=made.turns, budget=made.budgets, share=shares, changes=made.settings)
def test_with_any_correction_it_fits_and_adds_up(
    history: list[BaseMessage], turn: Any, budget: int, share: float, changes: dict[str, Any]
) -> None:
    made_for = ContextPipeline(
        {**changes, "max_context_tokens": budget},
        system_prompt=SYSTEM_PROMPT,
        store=InMemoryStore(),
        token_counter=EstimatingCounter(),
    )
    known = made_for.assemble("word " * 300, settings={"max_context_tokens": 12_000}, **SCOPE).report
    made_for.observe_usage({"input_tokens": max(1, round(known.total_tokens * share))}, report=known)
    made_for.add_messages(history, **SCOPE)
    try:
        context = made_for.assemble(turn, **SCOPE)
    except BudgetTooSmallError as error:
        check_floors(error, budget)
        return
    counter = made_for.token_counter
    if any("with the corrections by observed usage" in failure for failure in context.report.failures):
        assert isinstance(counter, CalibratedCounter)
        counter = counter.inner  # the corrections alone would have refused it
    assert counter.count_messages(context.messages) == context.report.total_tokens <= budget
    check_adds_up(context)
