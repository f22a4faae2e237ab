"""Usage that comes back by itself: a real client, a server on this machine, and the pipeline that made the prompt."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import AssembledContext, ContextPipeline, ContextReport, EstimatingCounter
from langchain_ctxbudget.integrations.callbacks import ContextUsageHandler, observed_elsewhere
from tests.integration_tests.openai_server import Fault, OpenAIServer, says

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

Ask = Callable[[ChatOpenAI, Sequence[BaseMessage], ContextUsageHandler], None]
WORDS = "The lamp stands on the shelf next to the window. "


def measure(body: Mapping[str, Any]) -> int:
    """A tokenizer that makes a token of every second character."""
    return sum(len(json.dumps(message["content"], ensure_ascii=False)) // 2 for message in body["messages"])


def streamed(body: Mapping[str, Any]) -> Fault:
    """An answer in pieces, with its usage at the end where it is asked for; a whole one where it is not."""
    if not body.get("stream"):
        return Fault()
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}
    choices: list[list[Mapping[str, Any]]] = [
        [{"index": 0, "delta": {"role": "assistant", "content": "On the "}, "finish_reason": None}],
        [{"index": 0, "delta": {"content": "shelf."}, "finish_reason": "stop"}],
    ]
    chunks: list[Mapping[str, Any]] = [{**head, "choices": choice} for choice in choices]
    if (body.get("stream_options") or {}).get("include_usage"):
        tokens = measure(body)
        usage = {"prompt_tokens": tokens, "completion_tokens": 5, "total_tokens": tokens + 5}
        chunks.append({**head, "choices": [], "usage": usage})
    events = [*map(json.dumps, chunks), "[DONE]"]
    return Fault(body="".join(f"data: {event}\n\n" for event in events).encode())


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(lambda _: says("On the shelf."), measure) as running:
        running.fault_of = streamed
        yield running


@pytest.fixture
def model(server: OpenAIServer, offline_tiktoken: None) -> ChatOpenAI:
    return ChatOpenAI(model="m", base_url=server.url, api_key="not-used", max_retries=0, stream_usage=True)


def _invoke(model: ChatOpenAI, messages: Sequence[BaseMessage], handler: ContextUsageHandler) -> None:
    model.invoke(list(messages), config={"callbacks": [handler]})


def _ainvoke(model: ChatOpenAI, messages: Sequence[BaseMessage], handler: ContextUsageHandler) -> None:
    asyncio.run(model.ainvoke(list(messages), config={"callbacks": [handler]}))


def _stream(model: ChatOpenAI, messages: Sequence[BaseMessage], handler: ContextUsageHandler) -> None:
    assert len(list(model.stream(list(messages), config={"callbacks": [handler]}))) > 1


def _astream(model: ChatOpenAI, messages: Sequence[BaseMessage], handler: ContextUsageHandler) -> None:
    async def run() -> int:
        return len([chunk async for chunk in model.astream(list(messages), config={"callbacks": [handler]})])

    assert asyncio.run(run()) > 1


@pytest.fixture(params=[_invoke, _ainvoke, _stream, _astream], ids=lambda way: way.__name__.strip("_"))
def ask(request: pytest.FixtureRequest) -> Ask:
    """Asks the model in one of the four ways."""
    way: Ask = request.param
    return way


class Watched(ContextPipeline):
    """Keeps what it was told."""

    told: list[tuple[int, str]]

    def observe_usage(
        self,
        usage_metadata: Mapping[str, Any] | AIMessage | None,
        *,
        report: ContextReport | None = None,
        model: str | None = None,
    ) -> float:
        assert isinstance(usage_metadata, AIMessage)
        assert usage_metadata.usage_metadata is not None
        assert report is not None
        self.told.append((usage_metadata.usage_metadata["input_tokens"], report.conversation_id))
        return super().observe_usage(usage_metadata, report=report, model=model)


def pipeline() -> Watched:
    made = Watched({"max_context_tokens": 4_000}, token_counter=EstimatingCounter(), store=InMemoryStore())
    made.told = []
    return made


def prompt(made: ContextPipeline, conversation_id: str = "c1", content: Any = WORDS * 50) -> AssembledContext:
    message = HumanMessage(content)
    return made.assemble(message, user_id="ada", conversation_id=conversation_id)


def test_the_usage_of_an_answer_corrects_the_next_prompt(ask: Ask, model: ChatOpenAI, server: OpenAIServer) -> None:
    made = pipeline()
    handler = ContextUsageHandler(made)
    first = prompt(made)
    ask(model, first.messages, handler)
    measured = measure(server.received[0])
    assert (handler.observed, handler.ignored) == (1, 0)
    assert first.report.total_tokens < measured <= prompt(made).report.total_tokens


def test_the_usage_belongs_to_its_prompt_and_not_to_the_last(ask: Ask, model: ChatOpenAI, server: OpenAIServer) -> None:
    made = pipeline()
    context = prompt(made)
    prompt(made, "c2", "Hello")
    ask(model, context.messages, ContextUsageHandler(made))
    assert made.told == [(measure(server.received[0]), "c1")]


def test_a_prompt_to_which_something_was_added_is_unmatched(ask: Ask, model: ChatOpenAI) -> None:
    made = pipeline()
    handler = ContextUsageHandler(made)
    context = prompt(made)
    ask(model, [*context.messages, HumanMessage("Be brief.")], handler)
    ask(model, context.messages, handler)
    assert (handler.observed, handler.ignored, handler.unmatched) == (1, 0, 1)


def test_a_call_that_is_observed_elsewhere_is_not_unmatched(model: ChatOpenAI) -> None:
    made = pipeline()
    handler = ContextUsageHandler(made)
    with observed_elsewhere():
        _invoke(model, [HumanMessage(WORDS)], handler)
    assert handler.unmatched == 0


def test_a_usage_that_cannot_be_is_logged_and_the_answer_stands(
    model: ChatOpenAI, server: OpenAIServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.measure = lambda _: 10**9
    made = pipeline()
    handler = ContextUsageHandler(made)
    with caplog.at_level(logging.WARNING):
        answer = model.invoke(prompt(made).messages, config={"callbacks": [handler]})
    assert answer.content == "On the shelf."
    assert (handler.observed, handler.ignored) == (0, 1)
    assert [(record.name, record.levelname) for record in caplog.records] == [
        ("langchain_ctxbudget.integrations.callbacks", "WARNING")
    ]
    assert "cannot be its usage" in caplog.text


CONVERSATIONS = 4


def _in_threads(model: ChatOpenAI, contexts: Sequence[AssembledContext], handler: ContextUsageHandler) -> None:
    with ThreadPoolExecutor(len(contexts)) as pool:
        list(pool.map(lambda context: _invoke(model, context.messages, handler), contexts))


def _in_tasks(model: ChatOpenAI, contexts: Sequence[AssembledContext], handler: ContextUsageHandler) -> None:
    async def run() -> None:
        config: Any = {"callbacks": [handler]}
        await asyncio.gather(*(model.ainvoke(context.messages, config=config) for context in contexts))

    asyncio.run(run())


@pytest.mark.parametrize("run", [_in_threads, _in_tasks])
def test_conversations_at_once_do_not_mix_up(run: Callable[..., None], model: ChatOpenAI, server: OpenAIServer) -> None:
    made = pipeline()
    handler = ContextUsageHandler(made)
    together = threading.Barrier(CONVERSATIONS, timeout=20)

    def answer(_: Mapping[str, Any]) -> Mapping[str, Any]:
        together.wait()  # nobody is answered before everybody has asked
        return says("On the shelf.")

    server.answer = answer
    contexts = [prompt(made, f"c{n}", f"{n} {WORDS * (10 * n + 1)}") for n in range(CONVERSATIONS)]
    run(model, contexts, handler)
    expected = sorted(
        (measure({"messages": [{"content": message.content} for message in context.messages]}), f"c{n}")
        for n, context in enumerate(contexts)
    )
    assert sorted(made.told) == expected
    assert handler.observed == CONVERSATIONS
