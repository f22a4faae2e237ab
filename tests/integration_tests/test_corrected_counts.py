"""Counts that usage corrects: accidents change nothing, a correction refuses nothing."""

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import AssembledContext, ContextPipeline, EstimatingCounter
from langchain_ctxbudget.errors import BudgetTooSmallError, InputError
from langchain_ctxbudget.integrations.callbacks import ContextUsageHandler, observed_elsewhere
from langchain_ctxbudget.tokens import CalibratedCounter, TokenCounter
from tests.doubles.server import OpenAIServer, says
from tests.integration_tests import strategies as made
from tests.integration_tests.test_promises import SYSTEM_PROMPT, check_adds_up, check_floors

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

SCOPE = {"user_id": "ada", "conversation_id": "c1"}
BOB = {"user_id": "bob", "conversation_id": "c2"}
LONG = "Tell me more. " * 150


# -- what is observed by hand


def claude_pipeline() -> ContextPipeline:
    return ContextPipeline(
        {"max_context_tokens": 3_000}, model="claude-sonnet-4-5", store=InMemoryStore()
    )


def answer(input_tokens: int, content: Any) -> AIMessage:
    usage = UsageMetadata(input_tokens=input_tokens, output_tokens=5, total_tokens=input_tokens + 5)
    return AIMessage(content=content, usage_metadata=usage)


@pytest.mark.parametrize(
    "part",
    [
        pytest.param({"type": "web_search_call", "id": "ws_1", "status": "completed"}, id="search"),
        pytest.param({"type": "mcp_call"}, id="mcp"),
        pytest.param({"type": "server_tool_use"}, id="server tool"),
        pytest.param({"type": "executable_code"}, id="code"),
        pytest.param({"type": "server_tool_call"}, id="server tool call"),
        pytest.param({"type": "non_standard", "value": {"type": "mcp_call"}}, id="non-standard"),
    ],
)
def test_an_answer_for_which_the_provider_ran_tools_only_counts(part: dict[str, Any]) -> None:
    """Its tokens are used, but they say nothing about the prompt."""
    pipeline = claude_pipeline()
    report = pipeline.assemble(LONG, **SCOPE).report

    pipeline.observe_usage(answer(3 * report.total_tokens, [part]), report=report)

    assert pipeline.assemble(LONG, **BOB).report.total_tokens == report.total_tokens
    assert pipeline.usage.of_session(**SCOPE).calls == 1


def test_an_answer_that_calls_the_applications_tools_corrects() -> None:
    pipeline = claude_pipeline()
    report = pipeline.assemble(LONG, **SCOPE).report
    call = {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "c1",
        "name": "find",
        "arguments": "{}",
    }

    pipeline.observe_usage(answer(int(1.3 * report.total_tokens), [call]), report=report)

    corrected = pipeline.assemble(LONG, **BOB).report
    assert corrected.total_tokens >= 1.3 * report.total_tokens


@pytest.fixture(scope="module")
def asked_pipeline() -> ContextPipeline:
    """A pipeline that has assembled a prompt."""
    pipeline = claude_pipeline()
    pipeline.assemble("Hi", **SCOPE)
    return pipeline


@pytest.mark.parametrize(
    "usage",
    [
        {"input_tokens": -1},
        {"input_tokens": "100"},
        {"input_tokens": None},
        {"input_tokens": 1.5},
        {"input_tokens": True},
        {"input_tokens": float("nan")},
        {},
        {"total_tokens": 5},
        {"output_tokens": 5},
        "100",
        100,
        [("input_tokens", 1)],
        {"input_tokens": 5, "input_token_details": {"cache_read": -1}},
    ],
    ids=repr,
)
def test_what_is_no_usage_is_an_error(asked_pipeline: ContextPipeline, usage: Any) -> None:
    with pytest.raises(InputError, match=r"input_tokens|cache_read"):
        asked_pipeline.observe_usage(usage)
    assert asked_pipeline.observe_usage(None) == 1.0


# -- any correction


shares = st.floats(0.3, 3.0, allow_nan=False)


@pytest.mark.slow
@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=40)
@given(
    history=made.history, turn=made.turns, budget=made.budgets, share=shares, changes=made.settings
)
def test_with_any_correction_it_fits_and_adds_up(
    history: list[BaseMessage], turn: Any, budget: int, share: float, changes: dict[str, Any]
) -> None:
    pipeline = ContextPipeline(
        {**changes, "max_context_tokens": budget},
        system_prompt=SYSTEM_PROMPT,
        store=InMemoryStore(),
        token_counter=EstimatingCounter(),
    )
    observe_share(pipeline, share)
    pipeline.add_messages(history, **SCOPE)
    try:
        context = pipeline.assemble(turn, **SCOPE)
    except BudgetTooSmallError as error:
        check_floors(error, budget)
        return
    counter = counter_of(pipeline, context)
    assert context.report.total_tokens == counter.count_messages(context.messages)
    assert context.report.total_tokens <= budget
    check_adds_up(context)


def observe_share(pipeline: ContextPipeline, share: float) -> None:
    """Corrects a pipeline by an answer that used this share of the tokens that were counted."""
    changes = {"max_context_tokens": 12_000}
    report = pipeline.assemble("word " * 300, settings=changes, **SCOPE).report
    tokens = max(1, round(report.total_tokens * share))
    pipeline.observe_usage({"input_tokens": tokens}, report=report)


def counter_of(pipeline: ContextPipeline, context: AssembledContext) -> TokenCounter:
    """What a prompt was counted with: not corrected where the corrections would refuse it."""
    counter = pipeline.token_counter
    notice = "with the corrections by observed usage"
    if not any(notice in failure for failure in context.report.failures):
        return counter
    assert isinstance(counter, CalibratedCounter)
    return counter.inner


# -- usage that comes back by itself: a real client, and a server on this machine


WORDS = "The lamp stands on the shelf next to the window. "


def measure(body: Mapping[str, Any]) -> int:
    """The tokens of a request, as the server counts them: half of its characters."""
    contents = [message["content"] for message in body["messages"]]
    return sum(len(json.dumps(content, ensure_ascii=False)) // 2 for content in contents)


def measured(context: AssembledContext) -> int:
    return measure({"messages": [{"content": message.content} for message in context.messages]})


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(lambda _: says("On the shelf."), measure) as server:
        yield server


@pytest.fixture
def model(server: OpenAIServer, offline_tiktoken: None) -> ChatOpenAI:
    return ChatOpenAI(
        model="m", base_url=server.url, api_key="not-used", max_retries=0, stream_usage=True
    )


async def _in_pieces(model: ChatOpenAI, messages: Any, config: Any) -> list[Any]:
    return [chunk async for chunk in model.astream(messages, config)]


WAYS: dict[str, Callable[..., Any]] = {
    "invoke": lambda model, *arguments: model.invoke(*arguments),
    "ainvoke": lambda model, *arguments: asyncio.run(model.ainvoke(*arguments)),
    "stream": lambda model, *arguments: list(model.stream(*arguments)),
    "astream": lambda model, *arguments: asyncio.run(_in_pieces(model, *arguments)),
}


def ask(
    model: ChatOpenAI, messages: list[Any], handler: ContextUsageHandler, way: str = "invoke"
) -> Any:
    return WAYS[way](model, messages, {"callbacks": [handler]})


@pytest.fixture
def estimated() -> ContextPipeline:
    return ContextPipeline(
        {"max_context_tokens": 4_000}, token_counter=EstimatingCounter(), store=InMemoryStore()
    )


def prompt(
    estimated: ContextPipeline, conversation_id: str = "c1", content: Any = WORDS * 50
) -> AssembledContext:
    return estimated.assemble(HumanMessage(content), user_id="ada", conversation_id=conversation_id)


@pytest.mark.parametrize("way", WAYS)
def test_the_usage_of_an_answer_corrects_the_next(
    way: str, estimated: ContextPipeline, model: ChatOpenAI
) -> None:
    handler = ContextUsageHandler(estimated)
    first = prompt(estimated)
    ask(model, first.messages, handler, way)
    assert handler.observed == 1
    assert first.report.total_tokens < measured(first)
    assert prompt(estimated).report.total_tokens >= measured(first)


def test_the_usage_of_the_prompt_itself_is_observed(
    estimated: ContextPipeline, model: ChatOpenAI
) -> None:
    handler = ContextUsageHandler(estimated)
    ask(model, prompt(estimated).messages, handler)
    assert handler.observed == 1


def test_the_usage_of_a_prompt_with_an_addition_is_not_observed(
    estimated: ContextPipeline, model: ChatOpenAI
) -> None:
    handler = ContextUsageHandler(estimated)
    context = prompt(estimated)
    ask(model, [*context.messages, HumanMessage("Be brief.")], handler)
    assert handler.observed == 0


def test_usage_that_is_observed_elsewhere_is_not_observed(
    estimated: ContextPipeline, model: ChatOpenAI
) -> None:
    handler = ContextUsageHandler(estimated)
    context = prompt(estimated)
    with observed_elsewhere():
        ask(model, context.messages, handler)
    assert handler.observed == 0


@pytest.fixture
def impossible_usage(
    estimated: ContextPipeline,
    model: ChatOpenAI,
    server: OpenAIServer,
    caplog: pytest.LogCaptureFixture,
) -> tuple[Any, int]:
    """An answer with a usage of a hundred million tokens, and how many usages were observed."""
    server.measure = lambda _: 100_000_000
    handler = ContextUsageHandler(estimated)
    with caplog.at_level(logging.WARNING):
        answer = ask(model, prompt(estimated).messages, handler)
    return answer, handler.observed


def test_an_answer_stands_whatever_its_usage_is(impossible_usage: tuple[Any, int]) -> None:
    answer, _ = impossible_usage
    assert answer.content == "On the shelf."


def test_a_usage_that_cannot_be_is_not_observed(impossible_usage: tuple[Any, int]) -> None:
    _, observed = impossible_usage
    assert observed == 0


@pytest.mark.usefixtures("impossible_usage")
def test_a_usage_that_cannot_be_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    [record] = caplog.get_records("setup")
    assert record.levelname == "WARNING"
    assert "cannot be its usage" in record.getMessage()


def test_every_usage_belongs_to_its_prompt_in_conversations_at_once(
    estimated: ContextPipeline, model: ChatOpenAI, server: OpenAIServer
) -> None:
    handler = ContextUsageHandler(estimated)
    together = threading.Barrier(4, timeout=20)

    def answer_together(_: Mapping[str, Any]) -> Mapping[str, Any]:
        together.wait()  # nobody is answered before everybody has asked
        return says("On the shelf.")

    server.answer = answer_together
    contexts = {
        "c0": prompt(estimated, "c0", f"0 {WORDS}"),
        "c1": prompt(estimated, "c1", f"1 {WORDS * 11}"),
        "c2": prompt(estimated, "c2", f"2 {WORDS * 21}"),
        "c3": prompt(estimated, "c3", f"3 {WORDS * 31}"),
    }

    with ThreadPoolExecutor(4) as pool:
        answers = [
            pool.submit(ask, model, context.messages, handler) for context in contexts.values()
        ]
        for answered in answers:
            answered.result()

    used = {key: input_tokens(estimated, key) for key in contexts}
    assert used == {key: measured(context) for key, context in contexts.items()}
    assert handler.observed == 4


def input_tokens(pipeline: ContextPipeline, conversation_id: str) -> int:
    return pipeline.usage.of_session(user_id="ada", conversation_id=conversation_id).input_tokens
