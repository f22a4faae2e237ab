"""Every shape of tool traffic becomes a prompt that providers accept, by rules that know nothing of this package."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from itertools import count, islice
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import (
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_messages,
)
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import AssembledContext, ContextPipeline
from langchain_ctxbudget.errors import BudgetTooSmallError
from langchain_ctxbudget.messages import call_ids
from tests.integration_tests.provider_rules import check_anthropic, check_openai
from tests.unit_tests.test_turns import TRANSCRIPTS, ai, result

SYSTEM_PROMPT = "You are a careful assistant."
BUDGETS = (100, 150, 256, 512, 1024, 2048, 4096, 8000)
TRACES = Path(__file__).parents[3] / "shared" / "eval" / "data" / "tau_airline.dev.jsonl.gz"
TRACE_BUDGETS = (512, 2048)

Messages = list[BaseMessage]
TURNS = st.tuples(st.sampled_from(["Who booked it?", "word " * 400]), TRANSCRIPTS).map(
    lambda of: [HumanMessage(of[0]), *(one for one in of[1] if not isinstance(one, HumanMessage | ChatMessage))]
)


def numbered(messages: Sequence[BaseMessage], prefix: str) -> Messages:
    """The messages with ids of their own."""
    return [message.model_copy(update={"id": f"{prefix}{number}"}) for number, message in enumerate(messages)]


def check_prompt(context: AssembledContext, pipeline: ContextPipeline, turn: Sequence[BaseMessage]) -> None:
    """A prompt fits, is valid, and holds what it must of the current turn, a human message and what came after it."""
    assert check_openai(context.messages) == []
    assert check_anthropic(context.messages) == []
    report = context.report
    assert pipeline.token_counter.count_messages(context.messages) == report.total_tokens <= report.budget_tokens
    sent = {message.id for message in context.messages}
    assert turn[0].id in sent
    last = next(message for message in reversed(turn) if not isinstance(message, ToolMessage | FunctionMessage))
    if call_ids(last):
        assert last.id in sent


class Cases:
    """One pipeline for many cases, each in a conversation of its own."""

    def __init__(self) -> None:
        self.pipeline = ContextPipeline({"learn": False}, system_prompt=SYSTEM_PROMPT, store=InMemoryStore())
        self.numbers = count()
        self.prompts = self.errors = 0

    def check(self, transcript: Messages, turn: Messages, budgets: Sequence[int]) -> None:
        """Check the prompts of one transcript at some budgets."""
        history, turn = numbered(transcript, "m"), numbered(turn, "t")
        scope = {"user_id": "ada", "conversation_id": f"c{next(self.numbers)}"}
        self.pipeline.add_messages(history, **scope)
        for budget in budgets:
            try:
                context = self.pipeline.assemble(turn, settings={"max_context_tokens": budget}, **scope)
            except BudgetTooSmallError:
                self.errors += 1
                continue
            check_prompt(context, self.pipeline, turn)
            assert context.report.total_tokens <= budget
            self.prompts += 1
        assert self.pipeline.get_messages(**scope) == history


@pytest.fixture(scope="module")
def cases() -> Cases:
    return Cases()


common = settings(deadline=None, suppress_health_check=list(HealthCheck), database=None)


@settings(common, max_examples=45)
@given(transcript=TRANSCRIPTS, turn=TURNS, budget=st.sampled_from(BUDGETS))
def test_any_tool_traffic_becomes_a_prompt_that_providers_accept(
    cases: Cases, transcript: Messages, turn: Messages, budget: int
) -> None:
    cases.check(transcript, turn, [budget])


@pytest.mark.parametrize("budget", [512, 2048])
def test_a_turn_of_a_hundred_calls_becomes_a_prompt_that_providers_accept(cases: Cases, budget: int) -> None:
    turn: Messages = [HumanMessage("Read all pages.")]
    for page in range(100):
        turn += [ai(f"call-{page}"), result(f"call-{page}", "found " * 40)]
    before = cases.errors
    cases.check([], turn, [budget])
    assert cases.errors == before


# Many more cases, and every step of real agent traces


def traces() -> list[Messages]:
    with gzip.open(TRACES, "rt", encoding="utf-8") as lines:
        return [convert_to_messages(json.loads(line)["messages"]) for line in islice(lines, 0, None, 3)]


@pytest.mark.slow
@pytest.mark.skipif(not TRACES.exists(), reason="the evaluation data is not beside this checkout")
def test_every_step_of_a_trace_becomes_a_prompt_that_providers_accept() -> None:
    """The traces of a real agent are not part of this repository; every third one is taken."""
    store = InMemoryStore()
    prompts = errors = 0
    for number, trace in enumerate(traces()):
        pipeline = ContextPipeline({"learn": False}, system_prompt=SYSTEM_PROMPT, store=store)
        scope = {"user_id": "ada", "conversation_id": f"trace {number}"}
        said = [message for message in trace if not isinstance(message, SystemMessage)]
        messages = [message.model_copy(update={"id": f"m{place}"}) for place, message in enumerate(said)]
        start = 0
        for end in range(1, len(messages) + 1):
            if isinstance(messages[end - 1], HumanMessage):
                pipeline.add_messages(messages[start : end - 1], **scope)
                start = end - 1
            turn = messages[start:end]
            for budget in TRACE_BUDGETS:
                try:
                    context = pipeline.assemble(turn, settings={"max_context_tokens": budget}, **scope)
                except BudgetTooSmallError:
                    errors += 1
                    continue
                if isinstance(turn[0], HumanMessage):
                    check_prompt(context, pipeline, turn)
                prompts += 1
        assert pipeline.get_messages(**scope) == messages[:start]
    assert prompts > 50 * errors
