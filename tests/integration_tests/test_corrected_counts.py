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
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import AssembledContext, ContextPipeline, EstimatingCounter
from langchain_ctxbudget.errors import BudgetTooSmallError, InputError
from langchain_ctxbudget.integrations.callbacks import ContextUsageHandler, observed_elsewhere
from langchain_ctxbudget.tokens import CalibratedCounter
from tests.integration_tests import strategies as made
from tests.integration_tests.openai_server import OpenAIServer, says
from tests.integration_tests.test_promises import SYSTEM_PROMPT, check_adds_up, check_floors

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

SCOPE = {"user_id": "ada", "conversation_id": "c1"}
BOB = {"user_id": "bob", "conversation_id": "c2"}
LONG = "Tell me more. " * 150


def pipeline() -> ContextPipeline:
    return ContextPipeline(
        {"max_context_tokens": 3_000}, model="claude-sonnet-4-5", store=InMemoryStore()
    )


def answer(tokens: int, **rest: Any) -> AIMessage:
    usage: Any = {"input_tokens": tokens, "output_tokens": 5, "total_tokens": tokens + 5}
    return AIMessage(**{"content": "Fine.", "usage_metadata": usage, **rest})


SEARCH: Any = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
SERVER_SIDE: tuple[dict[str, Any], ...] = (
    {"content": [SEARCH]},
    *(
        {"content": [{"type": kind}]}
        for kind in ("mcp_call", "server_tool_use", "executable_code", "server_tool_call")
    ),
    {"content": [{"type": "non_standard", "value": {"type": "mcp_call"}}]},
)


def test_an_answer_for_which_the_provider_ran_tools_corrects_nothing_and_counts_as_used() -> None:
    it = pipeline()
    report = it.assemble(LONG, **SCOPE).report
    for shape in SERVER_SIDE:
        it.observe_usage(answer(3 * report.total_tokens, **shape), report=report)
    assert it.assemble(LONG, **BOB).report.total_tokens == report.total_tokens
    assert it.usage.of_session(**SCOPE).calls == len(SERVER_SIDE)
    calls: Any = [
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "find", "arguments": "{}"}
    ]
    it.observe_usage(
        answer(int(1.3 * report.total_tokens), content=calls), report=report
    )  # the application's own
    assert it.assemble(LONG, **BOB).report.total_tokens >= 1.3 * report.total_tokens


UNUSABLE: list[Any] = [
    *({"input_tokens": value} for value in (-1, "100", None, 1.5, True, float("nan"))),
    *({}, {"total_tokens": 5}, {"output_tokens": 5}, "100", 100, [("input_tokens", 1)]),
    {"input_tokens": 5, "input_token_details": {"cache_read": -1}},
]


def test_usage_that_is_none_is_an_error() -> None:
    made_for = pipeline()
    made_for.assemble("Hi", **SCOPE)
    for usage in UNUSABLE:
        with pytest.raises(InputError, match=r"input_tokens|cache_read"):
            made_for.observe_usage(usage)
    assert made_for.observe_usage(None) == 1.0


shares = st.floats(0.3, 3.0, allow_nan=False)


@pytest.mark.slow
@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=40)
@given(
    history=made.history, turn=made.turns, budget=made.budgets, share=shares, changes=made.settings
)
def test_with_any_correction_it_fits_and_adds_up(
    history: list[BaseMessage], turn: Any, budget: int, share: float, changes: dict[str, Any]
) -> None:
    made_for = ContextPipeline(
        {**changes, "max_context_tokens": budget},
        system_prompt=SYSTEM_PROMPT,
        store=InMemoryStore(),
        token_counter=EstimatingCounter(),
    )
    known = made_for.assemble(
        "word " * 300, settings={"max_context_tokens": 12_000}, **SCOPE
    ).report
    made_for.observe_usage(
        {"input_tokens": max(1, round(known.total_tokens * share))}, report=known
    )
    made_for.add_messages(history, **SCOPE)
    try:
        context = made_for.assemble(turn, **SCOPE)
    except BudgetTooSmallError as error:
        check_floors(error, budget)
        return
    counter = made_for.token_counter
    if any(
        "with the corrections by observed usage" in failure for failure in context.report.failures
    ):
        assert isinstance(counter, CalibratedCounter)
        counter = counter.inner  # the corrections alone would have refused it
    assert counter.count_messages(context.messages) == context.report.total_tokens <= budget
    check_adds_up(context)


# -- Usage that comes back by itself: a real client, a server on this machine, and the pipeline that
# made the prompt


WORDS = "The lamp stands on the shelf next to the window. "
CONVERSATIONS = 4


def measure(body: Mapping[str, Any]) -> int:
    return sum(
        len(json.dumps(message["content"], ensure_ascii=False)) // 2 for message in body["messages"]
    )


def measured(context: AssembledContext) -> int:
    return measure({"messages": [{"content": message.content} for message in context.messages]})


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(lambda _: says("On the shelf."), measure) as running:
        yield running


@pytest.fixture
def model(server: OpenAIServer, offline_tiktoken: None) -> ChatOpenAI:
    return ChatOpenAI(
        model="m", base_url=server.url, api_key="not-used", max_retries=0, stream_usage=True
    )


async def _in_pieces(model: ChatOpenAI, messages: Any, config: Any) -> list[Any]:
    return [chunk async for chunk in model.astream(messages, config)]


WAYS: dict[str, Callable[..., Any]] = {
    "invoke": lambda model, *given: model.invoke(*given),
    "ainvoke": lambda model, *given: asyncio.run(model.ainvoke(*given)),
    "stream": lambda model, *given: list(model.stream(*given)),
    "astream": lambda model, *given: asyncio.run(_in_pieces(model, *given)),
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
    assert first.report.total_tokens < measured(first) <= prompt(estimated).report.total_tokens


def test_a_prompt_to_which_something_was_added_is_unmatched_unless_it_is_observed_elsewhere(
    estimated: ContextPipeline, model: ChatOpenAI
) -> None:
    handler = ContextUsageHandler(estimated)
    context = prompt(estimated)
    ask(model, [*context.messages, HumanMessage("Be brief.")], handler)
    ask(model, context.messages, handler)
    with observed_elsewhere():
        ask(model, [HumanMessage(WORDS)], handler)
    assert handler.observed == 1


def test_a_usage_that_cannot_be_is_logged_and_the_answer_stands(
    estimated: ContextPipeline,
    model: ChatOpenAI,
    server: OpenAIServer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server.measure = lambda _: 10**8
    handler = ContextUsageHandler(estimated)
    with caplog.at_level(logging.WARNING):
        assert ask(model, prompt(estimated).messages, handler).content == "On the shelf."
    assert handler.observed == 0
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "cannot be its usage" in caplog.text


def test_every_usage_belongs_to_its_prompt_also_of_conversations_at_once(
    estimated: ContextPipeline, model: ChatOpenAI, server: OpenAIServer
) -> None:
    handler = ContextUsageHandler(estimated)
    together = threading.Barrier(CONVERSATIONS, timeout=20)

    def answer(_: Mapping[str, Any]) -> Mapping[str, Any]:
        together.wait()  # nobody is answered before everybody has asked
        return says("On the shelf.")

    server.answer = answer
    contexts = [
        prompt(estimated, f"c{n}", f"{n} {WORDS * (10 * n + 1)}") for n in range(CONVERSATIONS)
    ]
    with ThreadPoolExecutor(CONVERSATIONS) as pool:
        list(pool.map(lambda context: ask(model, context.messages, handler), contexts))
    used = [
        estimated.usage.of_session(user_id="ada", conversation_id=f"c{n}")
        for n in range(CONVERSATIONS)
    ]
    assert [one.input_tokens for one in used] == list(map(measured, contexts))
    assert handler.observed == CONVERSATIONS
