"""The promises of `test_valid_prompts`, on many more cases and on every step of real agent traces.

The traces are not part of this repository.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage, convert_to_messages
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.errors import BudgetTooSmallError
from tests.integration_tests.test_valid_prompts import (
    BUDGETS,
    HUMAN,
    SYSTEM_PROMPT,
    TRANSCRIPTS,
    TURNS,
    Cases,
    Messages,
    check_prompt,
    common,
    rounds,
)

TRACES = Path(__file__).parents[3] / "shared" / "eval" / "data" / "tau_airline.dev.jsonl.gz"
TRACE_BUDGETS = (512, 1024, 2048, 4096, 8192)

pytestmark = pytest.mark.slow


def test_ten_thousand_cases_of_tool_traffic_become_prompts_that_providers_accept() -> None:
    cases = Cases()

    @settings(common, max_examples=10_000 // len(BUDGETS))
    @given(TRANSCRIPTS, TURNS)
    def check(transcript: Messages, turn: Messages) -> None:
        cases.check(transcript, turn, BUDGETS)

    check()
    assert cases.prompts + cases.errors >= 10_000
    assert cases.prompts > 3 * cases.errors


def test_long_turns_become_prompts_that_providers_accept() -> None:
    cases = Cases()

    @settings(common, max_examples=60)
    @given(TRANSCRIPTS, HUMAN, st.lists(rounds(), min_size=100, max_size=100))
    def check(transcript: Messages, human: BaseMessage, calls: list[Messages]) -> None:
        rest = [message for part in calls for message in part if not isinstance(message, HumanMessage)]
        cases.check(transcript, [human, *rest], TRACE_BUDGETS)

    check()
    assert cases.prompts > 3 * cases.errors


def traces() -> list[Messages]:
    with gzip.open(TRACES, "rt", encoding="utf-8") as lines:
        return [convert_to_messages(json.loads(line)["messages"]) for line in lines]


@pytest.mark.skipif(not TRACES.exists(), reason="the evaluation data is not beside this checkout")
@pytest.mark.parametrize("own_prompt", [False, True])
def test_every_step_of_a_trace_becomes_a_prompt_that_providers_accept(own_prompt: bool) -> None:
    """A trace begins with a system prompt of some 1,300 tokens, which small budgets cannot hold."""
    store = InMemoryStore()
    prompts = errors = 0
    for number, trace in enumerate(traces()):
        prompt = trace[0].text if own_prompt and isinstance(trace[0], SystemMessage) else SYSTEM_PROMPT
        pipeline = ContextPipeline({"learn": False}, system_prompt=prompt, store=store)
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
    assert prompts + errors == len(TRACE_BUDGETS) * sum(len(trace) - 1 for trace in traces())
    assert prompts > (1 if own_prompt else 50) * errors
