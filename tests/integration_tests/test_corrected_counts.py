"""Counts that usage corrects: accidents change nothing, a correction refuses nothing, and a restart knows it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from langgraph.store.base import BaseStore, PutOp
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.errors import BudgetTooSmallError
from tests.integration_tests.conftest import Call
from tests.integration_tests.test_pipeline import chat
from tests.stores import Failing, place_of

SCOPE = {"user_id": "ada", "conversation_id": "c1"}
BOB = {"user_id": "bob", "conversation_id": "c2"}
CLAUDE = "claude-sonnet-4-5"
LONG = "Tell me more. " * 150
MODELS = pytest.mark.parametrize("model", ["gpt-4o", CLAUDE], ids=["exact", "estimated"])


def pipeline(budget: int = 3_000, model: str = CLAUDE, store: BaseStore | None = None) -> ContextPipeline:
    return ContextPipeline({"max_context_tokens": budget}, model=model, store=store or InMemoryStore())


def answer(tokens: int, **rest: Any) -> AIMessage:
    usage: Any = {"input_tokens": tokens, "output_tokens": 5, "total_tokens": tokens + 5}
    return AIMessage(**{"content": "Fine.", "usage_metadata": usage, **rest})


SEARCH: Any = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
SERVER_SIDE: tuple[dict[str, Any], ...] = (
    {"content": [SEARCH]},
    *({"content": [{"type": kind}]} for kind in ("mcp_call", "server_tool_use", "executable_code", "server_tool_call")),
    {"content": [{"type": "non_standard", "value": {"type": "mcp_call"}}]},
    {"additional_kwargs": {"tool_outputs": [SEARCH]}},
    {"additional_kwargs": {"executed_tools": [{"type": "search"}]}},
    {"response_metadata": {"usage": {"server_tool_use": {"web_search_requests": 1}}}},
)


def test_an_answer_for_which_the_provider_ran_tools_corrects_nothing_and_counts_as_used() -> None:
    it = pipeline()
    report = it.assemble(LONG, **SCOPE).report
    for shape in SERVER_SIDE:
        it.observe_usage(answer(3 * report.total_tokens, **shape), report=report)
    assert it.assemble(LONG, **BOB).report.total_tokens == report.total_tokens
    assert it.usage.of_session(**SCOPE).calls == len(SERVER_SIDE)
    calls: Any = [{"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "find", "arguments": "{}"}]
    it.observe_usage(answer(int(1.3 * report.total_tokens), content=calls), report=report)  # the application's own
    assert it.assemble(LONG, **BOB).report.total_tokens >= 1.3 * report.total_tokens


def poisoned(budget: int, model: str) -> ContextPipeline:
    """A pipeline whose counts are three times too high."""
    it = pipeline(budget, model)
    report = it.assemble(LONG, settings={"max_context_tokens": 12_000}, user_id="eve", conversation_id="c9").report
    for _ in range(4):
        it.observe_usage({"input_tokens": 3 * report.uncorrected_tokens}, report=report)
    return it


@MODELS
def test_a_correction_alone_refuses_no_prompt_and_the_report_says_so(call: Call, model: str) -> None:
    it = poisoned(1_500, model)
    call(it, "add_messages", chat(40), **SCOPE)
    context = call(it, "assemble", LONG, **SCOPE)
    report = context.report
    assert report.total_tokens == report.uncorrected_tokens <= report.budget_tokens <= 1_500
    assert [message.type for message in context.messages] == ["human"], "it is sent alone"
    assert any("with the corrections by observed usage" in failure for failure in report.failures)
    it.observe_usage({"input_tokens": report.uncorrected_tokens}, report=report)
    for _ in range(12):  # what is measured for it puts the correction right
        it.observe_usage({"input_tokens": report.uncorrected_tokens}, report=report)
    assert call(it, "assemble", LONG, **SCOPE).report.failures == ()


@settings(deadline=None, max_examples=10, suppress_health_check=list(HealthCheck))
@given(st.integers(60, 1_500), st.integers(1, 250), st.sampled_from(["gpt-4o", CLAUDE]))
def test_whatever_fits_without_corrections_is_sent_with_them(budget: int, words: int, model: str) -> None:
    question = "Where is lamp seven? " * words
    plain, corrected = pipeline(budget, model), poisoned(budget, model)
    try:
        plain.assemble(question, **SCOPE)
    except BudgetTooSmallError:
        with pytest.raises(BudgetTooSmallError):
            corrected.assemble(question, **SCOPE)
        return
    report = corrected.assemble(question, **SCOPE).report
    assert max(report.total_tokens, report.uncorrected_tokens) <= report.budget_tokens <= budget


# A restart


def observed(it: ContextPipeline, call: Call, share: float) -> int:
    """What the same prompt counts after the provider has measured it; written down."""
    report = call(it, "assemble", LONG, **SCOPE).report
    it.observe_usage({"input_tokens": int(share * report.uncorrected_tokens)}, report=report)
    total: int = call(it, "assemble", LONG, **SCOPE).report.total_tokens
    assert it.flush(30)
    return total


@MODELS
def test_a_restart_knows_the_corrections_of_its_model(call: Call, model: str) -> None:
    store = InMemoryStore()
    total = observed(pipeline(model=model, store=store), call, 1.2)
    first = call(pipeline(model=model, store=store), "assemble", LONG, **SCOPE).report
    assert first.total_tokens == total > first.uncorrected_tokens
    assert call(pipeline(model="gpt-4.1", store=store), "assemble", LONG, **SCOPE).report.total_tokens < total
    [kept] = store.search(("ctxbudget", "counts"))
    assert kept.value["model"] == model


def test_corrections_that_cannot_be_read_leave_the_turn_alone_and_are_read_later(call: Call) -> None:
    store = Failing()
    total = observed(pipeline(store=store), call, 1.2)
    it = pipeline(store=store)
    store.fails = lambda op: "counts" in place_of(op) and not isinstance(op, PutOp)
    report = call(it, "assemble", LONG, **SCOPE).report
    assert "corrections of the counts not read: OSError: the disk is gone" in report.failures
    store.fails = lambda _: False
    later = call(it, "assemble", LONG, **SCOPE).report
    assert (later.total_tokens, later.failures) == (total, ())
