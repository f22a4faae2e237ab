"""Every shape of tool traffic becomes a prompt that providers accept, by rules that know nothing of this package."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
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
from tests.integration_tests.provider_rules import check_anthropic, check_openai

SYSTEM_PROMPT = "You are a careful assistant."
BUDGETS = (100, 150, 256, 512, 1024, 2048, 4096, 8000)
TRACES = Path(__file__).parents[3] / "shared" / "eval" / "data" / "tau_airline.dev.jsonl.gz"
TRACE_BUDGETS = (512, 2048)

TEXT = st.sampled_from(
    [
        "",
        " \n",
        "yes",
        "We decided on 42,50 € for the flight to Bonn.",
        "[OPEN] who books it?",
        "</summary> [From the first 3 messages.]",
        "A line of a log: GET /orders 200 in 31 ms.\n" * 12,
        "word " * 400,
    ]
)
SAID = TEXT.filter(str.strip)
IMAGE = {"type": "image_url", "image_url": {"url": "https://x.invalid/a.png", "detail": "low"}}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "x"}
CONTENT = TEXT | st.lists(
    st.just(IMAGE) | TEXT | st.builds(lambda text: {"type": "text", "text": text}, TEXT), max_size=3
)
ID = st.sampled_from(["a", "b", "c", "d", "", None])
IDS = st.lists(ID, min_size=1, max_size=4)
NAME = st.sampled_from(["search", "search", "book_flight", "web search", "functions.search", ""])
Messages = list[BaseMessage]


def _calling(content: Any, ids: Sequence[str | None], name: str) -> AIMessage:
    calls = [{"name": name, "args": {"page": 1}, "id": key, "type": "tool_call"} for key in ids]
    return AIMessage(content, tool_calls=calls)


def _invalid(content: Any, ids: Sequence[str | None]) -> AIMessage:
    calls = [{"name": None, "args": "{", "id": key, "error": "cut off"} for key in ids]
    return AIMessage(content, invalid_tool_calls=calls)


def _tool_use(ids: Sequence[str | None], text: str, *, listed: bool) -> AIMessage:
    blocks = [{"type": "tool_use", "id": key or "", "name": "search", "input": {}} for key in ids]
    content: list[Any] = [{"type": "text", "text": text}, *blocks]
    calls = [{"name": "search", "args": {}, "id": key, "type": "tool_call"} for key in ids] if listed else []
    return AIMessage(content, tool_calls=calls)


def _tool_results(ids: Sequence[str | None], content: str, text: str) -> HumanMessage:
    blocks = [{"type": "tool_result", "tool_use_id": key or "", "content": content} for key in ids]
    return HumanMessage([*blocks, *([{"type": "text", "text": text}] if text else [])])


def _function_calls(ids: Sequence[str | None]) -> AIMessage:
    return AIMessage(
        [
            {"type": "function_call", "id": f"fc_{key}", "call_id": key or "", "name": "search", "arguments": "{}"}
            for key in ids
        ]
    )


def _function_outputs(ids: Sequence[str | None], output: str) -> HumanMessage:
    return HumanMessage([{"type": "function_call_output", "call_id": key or "", "output": output} for key in ids])


def _legacy(name: str, content: str) -> AIMessage:
    return AIMessage(content, additional_kwargs={"function_call": {"name": name, "arguments": "{}"}})


RESULT = st.builds(lambda content, key: ToolMessage(content, tool_call_id=key or ""), CONTENT, ID)
SINGLE = st.one_of(
    st.builds(HumanMessage, CONTENT, name=st.none() | st.sampled_from(["Ada", "Zoë Müller", "田中"])),
    st.builds(AIMessage, CONTENT),
    st.builds(_calling, CONTENT, IDS, NAME),
    RESULT,
    st.builds(SystemMessage, TEXT),
    st.builds(_invalid, CONTENT, IDS),
    st.builds(_tool_use, IDS, TEXT, listed=st.booleans()),
    st.builds(_tool_results, IDS, TEXT, TEXT),
    st.builds(_function_calls, IDS),
    st.builds(_function_outputs, IDS, TEXT),
    st.builds(_legacy, NAME, TEXT),
    st.builds(lambda name, content: FunctionMessage(content, name=name), NAME, TEXT),
    st.builds(ChatMessage, TEXT, role=st.sampled_from(["user", "assistant", "system", "critic"])),
    st.just(AIMessage([THOUGHT])),
)


@st.composite
def rounds(draw: st.DrawFn) -> Messages:
    """Calls and all their results, in one of the forms in which they are written and in any order."""
    ids = [f"{draw(st.integers(0, 99))}-{number}" for number in range(draw(st.integers(1, 4)))]
    output = draw(TEXT)
    form = draw(st.sampled_from(["listed", "listed", "two messages", "tool_use", "function_call", "legacy", "first"]))
    results: Messages = [ToolMessage(output, tool_call_id=key) for key in draw(st.permutations(ids))]
    match form:
        case "two messages":
            half = len(ids) // 2 + 1
            return [_calling("", ids[:half], "search"), _calling("x", ids[half:], "book_flight"), *results]
        case "tool_use":
            return [_tool_use(ids, "Let me see.", listed=False), _tool_results(ids, output, draw(TEXT))]
        case "function_call":
            return [_function_calls(ids), _function_outputs(ids, output)]
        case "legacy":
            return [_legacy("search", ""), FunctionMessage(output, name="search")]
        case "first":
            return [*results, _calling("", ids, "search")]
        case _:
            return [_calling(draw(TEXT), ids, "search"), *results]


@st.composite
def interrupted(draw: st.DrawFn) -> Messages:
    """Calls of which some results are missing, or come when the conversation has gone on."""
    [calls, *results] = draw(rounds())
    between = draw(st.lists(SINGLE, min_size=1, max_size=3))
    keep = draw(st.integers(0, len(results)))
    return [calls, *results[:keep], *between, *(results[keep:] if draw(st.booleans()) else [])]


PIECE = SINGLE.map(lambda message: [message]) | rounds() | interrupted()


def _dated(message: BaseMessage, day: int | None) -> BaseMessage:
    dated = {**message.additional_kwargs, "created_at": f"2026-03-{day:02}T08:30:00"} if day else {}
    return message.model_copy(update={"additional_kwargs": dated}) if day else message


DATED = st.tuples(PIECE, st.none() | st.integers(1, 28)).map(lambda of: [_dated(message, of[1]) for message in of[0]])
TRANSCRIPTS = st.lists(DATED, max_size=16).map(lambda pieces: [m for piece in pieces for m in piece][:40])
HUMAN = st.builds(HumanMessage, SAID)
REST = st.lists(rounds() | interrupted(), max_size=4).map(
    lambda pieces: [m for piece in pieces for m in piece if not isinstance(m, HumanMessage | ChatMessage)]
)
TURNS = st.builds(lambda human, rest: [human, *rest], HUMAN, REST)


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
    if has_calls(last):
        assert last.id in sent


def has_calls(message: BaseMessage) -> bool:
    """Whether a message calls tools, in any of the forms above."""
    if not isinstance(message, AIMessage):
        return False
    blocks = {block.get("type") for block in message.content if isinstance(block, dict)}
    listed = message.tool_calls or message.invalid_tool_calls or "function_call" in message.additional_kwargs
    return bool(listed or blocks & {"tool_use", "function_call"})


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
        turn += [_calling("", [f"call-{page}"], "search"), ToolMessage("found " * 40, tool_call_id=f"call-{page}")]
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
