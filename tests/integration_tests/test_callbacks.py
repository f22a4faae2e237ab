"""Usage that comes back by itself: a real client, a server on this machine, and the pipeline that made the prompt."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import AssembledContext, ContextPipeline, EstimatingCounter
from langchain_ctxbudget.integrations.callbacks import ContextUsageHandler, observed_elsewhere
from tests.integration_tests.openai_server import OpenAIServer, says

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

WORDS = "The lamp stands on the shelf next to the window. "
CONVERSATIONS = 4


def measure(body: Mapping[str, Any]) -> int:
    """A tokenizer that makes a token of every second character."""
    return sum(len(json.dumps(message["content"], ensure_ascii=False)) // 2 for message in body["messages"])


def measured(context: AssembledContext) -> int:
    return measure({"messages": [{"content": message.content} for message in context.messages]})


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(lambda _: says("On the shelf."), measure) as running:
        yield running


@pytest.fixture
def model(server: OpenAIServer, offline_tiktoken: None) -> ChatOpenAI:
    return ChatOpenAI(model="m", base_url=server.url, api_key="not-used", max_retries=0, stream_usage=True)


async def _in_pieces(model: ChatOpenAI, messages: Any, config: Any) -> list[Any]:
    return [chunk async for chunk in model.astream(messages, config)]


WAYS: dict[str, Callable[..., Any]] = {
    "invoke": lambda model, *given: model.invoke(*given),
    "ainvoke": lambda model, *given: asyncio.run(model.ainvoke(*given)),
    "stream": lambda model, *given: list(model.stream(*given)),
    "astream": lambda model, *given: asyncio.run(_in_pieces(model, *given)),
}


def ask(model: ChatOpenAI, messages: list[Any], handler: ContextUsageHandler, way: str = "invoke") -> Any:
    return WAYS[way](model, messages, {"callbacks": [handler]})


@pytest.fixture
def pipeline() -> ContextPipeline:
    return ContextPipeline({"max_context_tokens": 4_000}, token_counter=EstimatingCounter(), store=InMemoryStore())


def prompt(pipeline: ContextPipeline, conversation_id: str = "c1", content: Any = WORDS * 50) -> AssembledContext:
    return pipeline.assemble(HumanMessage(content), user_id="ada", conversation_id=conversation_id)


def used(pipeline: ContextPipeline, conversation_id: str) -> int:
    return pipeline.usage.of_session(user_id="ada", conversation_id=conversation_id).input_tokens


@pytest.mark.parametrize("way", WAYS)
def test_the_usage_of_an_answer_corrects_the_next(way: str, pipeline: ContextPipeline, model: ChatOpenAI) -> None:
    handler, first = ContextUsageHandler(pipeline), prompt(pipeline)
    ask(model, first.messages, handler, way)
    assert handler.observed == 1
    assert first.report.total_tokens < measured(first) <= prompt(pipeline).report.total_tokens


def test_the_usage_belongs_to_its_prompt_and_not_to_the_last(pipeline: ContextPipeline, model: ChatOpenAI) -> None:
    context = prompt(pipeline)
    prompt(pipeline, "c2", "Hello")
    ask(model, context.messages, ContextUsageHandler(pipeline))
    assert (used(pipeline, "c1"), used(pipeline, "c2")) == (measured(context), 0)


def test_a_prompt_to_which_something_was_added_is_unmatched_unless_it_is_observed_elsewhere(
    pipeline: ContextPipeline, model: ChatOpenAI
) -> None:
    handler, context = ContextUsageHandler(pipeline), prompt(pipeline)
    ask(model, [*context.messages, HumanMessage("Be brief.")], handler)
    ask(model, context.messages, handler)
    with observed_elsewhere():
        ask(model, [HumanMessage(WORDS)], handler)
    assert handler.observed == 1


def test_a_usage_that_cannot_be_is_logged_and_the_answer_stands(
    pipeline: ContextPipeline, model: ChatOpenAI, server: OpenAIServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.measure = lambda _: 10**9
    handler = ContextUsageHandler(pipeline)
    with caplog.at_level(logging.WARNING):
        assert ask(model, prompt(pipeline).messages, handler).content == "On the shelf."
    assert handler.observed == 0
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "cannot be its usage" in caplog.text


def _in_threads(model: ChatOpenAI, prompts: list[Any], handler: ContextUsageHandler) -> None:
    with ThreadPoolExecutor(len(prompts)) as pool:
        list(pool.map(lambda messages: ask(model, messages, handler), prompts))


def test_conversations_at_once_do_not_mix_up(
    pipeline: ContextPipeline, model: ChatOpenAI, server: OpenAIServer
) -> None:
    handler = ContextUsageHandler(pipeline)
    together = threading.Barrier(CONVERSATIONS, timeout=20)

    def answer(_: Mapping[str, Any]) -> Mapping[str, Any]:
        together.wait()  # nobody is answered before everybody has asked
        return says("On the shelf.")

    server.answer = answer
    contexts = [prompt(pipeline, f"c{n}", f"{n} {WORDS * (10 * n + 1)}") for n in range(CONVERSATIONS)]
    _in_threads(model, [context.messages for context in contexts], handler)
    assert [used(pipeline, f"c{n}") for n in range(CONVERSATIONS)] == list(map(measured, contexts))
    assert handler.observed == CONVERSATIONS
