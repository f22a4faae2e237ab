"""Receipts: spans of OpenTelemetry, metadata on the model's run, and events in a stream."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, HumanMessage
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from langchain_ctxbudget import (
    AssembledContext,
    BudgetedRetriever,
    ContextPipeline,
    ContextReport,
    KnowledgeBase,
    build_context_graph,
    create_recall_tool,
)
from langchain_ctxbudget.errors import BudgetTooSmallError
from langchain_ctxbudget.receipts import COMPACTED
from tests.integration_tests import agents
from tests.stores import embed

pytestmark = pytest.mark.usefixtures("offline_tiktoken")
IDS: Any = {"user_id": "ada", "conversation_id": "c1"}
RUN: Any = {"configurable": {"user_id": "ada", "thread_id": "c1"}}
SETTINGS = {"max_context_tokens": 900, "learn": False}
LONG = "We talk about the garden, the weather and the long road to the lake. " * 8


class Spans:
    """An application that traces, and what it has recorded."""

    def __init__(self, provider: TracerProvider) -> None:
        self._exporter = InMemorySpanExporter()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = provider.get_tracer("application")

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    @property
    def of_prompts(self) -> list[ReadableSpan]:
        return self.named("assemble_prompt")

    def clear(self) -> None:
        self._exporter.clear()


def tell_of(provider: TracerProvider, monkeypatch: pytest.MonkeyPatch) -> Spans:
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return Spans(provider)


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    """What an application records that has set up OpenTelemetry."""
    return tell_of(TracerProvider(), monkeypatch)


@pytest.fixture
def pipeline() -> Iterator[ContextPipeline]:
    with ContextPipeline(SETTINGS) as pipeline:
        yield pipeline


def talk(pipeline: ContextPipeline, turns: int) -> list[ContextReport]:
    reports = []
    for number in range(turns):
        context = pipeline.assemble(f"Question {number}. {LONG}", **IDS)
        reports.append(context.report)
        pipeline.add_messages([*context.turn, AIMessage(f"Answer {number}. {LONG}")], **IDS)
    return reports


def was_made(context: AssembledContext) -> bool:
    """Whether the report of a prompt was made by now."""
    forms: list[Any] = [context.account, context.receipt]
    return any(form.cache_info().currsize for form in forms)


def parts_of(told: dict[str, Any], prefix: str) -> int:
    layers = [int(value) for name, value in told.items() if name.startswith(f"{prefix}layer_")]
    return sum(layers) + int(told[f"{prefix}overhead_tokens"])


# -- Off


def test_no_report_is_made_where_no_provider_is_set(pipeline: ContextPipeline) -> None:
    assert not was_made(pipeline.assemble("Hello", **IDS))


def test_no_report_is_made_without_the_api(
    pipeline: ContextPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")

    assert not was_made(pipeline.assemble("Hello", **IDS))


def test_no_report_is_made_for_a_trace_that_is_not_sampled(
    pipeline: ContextPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans = tell_of(TracerProvider(sampler=ALWAYS_OFF), monkeypatch)

    assert not was_made(pipeline.assemble("Hello", **IDS))
    assert spans.of_prompts == []


# -- Prompts


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.text(max_size=300), min_size=1, max_size=4))
def test_a_span_adds_up_as_its_report(spans: Spans, texts: list[str]) -> None:
    spans.clear()
    reports = []
    with ContextPipeline(SETTINGS) as pipeline:
        for text in texts:
            context = pipeline.assemble(f"{text} {LONG}", **IDS)
            reports.append(context.report)
            pipeline.add_messages([*context.turn, AIMessage(LONG)], **IDS)

    for span, report in zip(spans.of_prompts, reports, strict=True):
        told = dict(span.attributes or {})
        numbers = report.receipt("ctxbudget.")
        assert {name: told[name] for name in numbers} == numbers
        assert parts_of(told, "ctxbudget.") == told["ctxbudget.total_tokens"]
        both = (told["ctxbudget.cached_tokens"], told["ctxbudget.new_tokens"])
        assert sum(map(int, both)) == report.total_tokens  # type: ignore[arg-type]


def test_both_forms_tell_the_same(spans: Spans) -> None:
    for assemble in (agents_sync, agents_async):
        with ContextPipeline(SETTINGS) as pipeline:
            assemble(pipeline)

    blocking, awaited = [dict(span.attributes or {}) for span in spans.of_prompts]
    for told in (blocking, awaited):
        del told["ctxbudget.milliseconds"]
    assert blocking == awaited


def agents_sync(pipeline: ContextPipeline) -> None:
    pipeline.assemble("Hello", **IDS)


def agents_async(pipeline: ContextPipeline) -> None:
    asyncio.run(pipeline.aassemble("Hello", **IDS))


@pytest.mark.parametrize("assemble", [agents_sync, agents_async])
def test_the_span_is_a_child_of_the_current_one(
    spans: Spans, pipeline: ContextPipeline, assemble: Callable[[ContextPipeline], None]
) -> None:
    with spans.tracer.start_as_current_span("turn") as turn:
        assemble(pipeline)

    [span] = spans.of_prompts
    assert span.parent is not None
    assert span.parent.span_id == turn.get_span_context().span_id


def test_what_happens_for_a_prompt_is_within_its_span(spans: Spans) -> None:
    class Traced(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            with spans.tracer.start_as_current_span("embed"):
                return embed(texts)

        def embed_query(self, text: str) -> list[float]:
            return self.embed_documents([text])[0]

    with ContextPipeline(SETTINGS, embeddings=Traced()) as pipeline:
        talk(pipeline, 8)

    prompts = {span.context.span_id for span in spans.of_prompts if span.context}
    parents = {span.parent.span_id for span in spans.named("embed") if span.parent}
    assert prompts & parents


def test_an_error_is_told_by_its_type_alone(spans: Spans) -> None:
    with (
        ContextPipeline({"max_context_tokens": 20}) as pipeline,
        pytest.raises(BudgetTooSmallError),
    ):
        pipeline.assemble(LONG, **IDS)

    [span] = spans.of_prompts
    assert dict(span.attributes or {})["error.type"] == "BudgetTooSmallError"
    assert not span.status.is_ok
    assert span.status.description is None
    assert span.events == ()


@pytest.mark.parametrize("asks", [False, True])
def test_texts_are_told_only_where_they_are_asked_for(spans: Spans, *, asks: bool) -> None:
    with ContextPipeline({**SETTINGS, "trace_texts": asks}) as pipeline:
        pipeline.assemble("A quaint question", **IDS)

    [span] = spans.of_prompts
    assert ("A quaint question" in span.to_json()) is asks
    assert "ada" not in span.to_json()


def test_a_graph_has_one_span_a_prompt(spans: Spans, pipeline: ContextPipeline) -> None:
    graph: Any = build_context_graph(pipeline)

    graph.invoke({"messages": [("human", "Hello")]}, RUN)

    assert len(spans.of_prompts) == 1


# -- The span of the model call


@pytest.mark.parametrize(
    ("operation", "turns", "is_marked"),
    [("chat", 8, True), ("chat", 1, False), ("invoke_agent", 8, False)],
)
def test_the_span_of_a_model_call_is_marked_once_compacted(
    spans: Spans, pipeline: ContextPipeline, operation: str, turns: int, *, is_marked: bool
) -> None:
    talk(pipeline, turns - 1)
    with spans.tracer.start_as_current_span(
        "call", attributes={"gen_ai.operation.name": operation}
    ):
        pipeline.assemble("And now?", **IDS)

    [call] = spans.named("call")
    assert (COMPACTED in dict(call.attributes or {})) is is_marked
    assert dict(spans.of_prompts[-1].attributes or {}).get(COMPACTED) == ((turns > 1) or None)


# -- Memory


@pytest.mark.parametrize("asks", [False, True])
def test_the_recall_tool_is_a_search_in_memory(spans: Spans, *, asks: bool) -> None:
    with ContextPipeline({**SETTINGS, "trace_texts": asks}) as pipeline:
        pipeline.add_messages([HumanMessage("My bike is blue.")], **IDS)
        create_recall_tool(pipeline).invoke({"query": "bike"}, RUN)

    [span] = spans.named("search_memory")
    told = dict(span.attributes or {})
    assert told["gen_ai.operation.name"] == "search_memory"
    assert told["gen_ai.conversation.id"] == "c1"
    assert told["gen_ai.memory.record.count"] == 1
    assert told.get("gen_ai.memory.query.text") == ("bike" if asks else None)


def test_a_reference_is_the_record_that_is_looked_up(
    spans: Spans, pipeline: ContextPipeline
) -> None:
    pipeline.add_messages([HumanMessage("My bike is blue."), AIMessage("Noted.")], **IDS)

    create_recall_tool(pipeline).invoke({"reference": "1-2"}, RUN)

    told = dict(spans.named("search_memory")[0].attributes or {})
    assert (told["gen_ai.memory.record.id"], told["gen_ai.memory.record.count"]) == ("1-2", 2)


def test_a_retriever_is_a_search_in_memory(spans: Spans, pipeline: ContextPipeline) -> None:
    pipeline.add_messages([HumanMessage("My bike is blue.")], **IDS)

    BudgetedRetriever(pipeline=pipeline, user_id="ada").invoke("bike")

    [span] = spans.named("search_memory")
    assert dict(span.attributes or {})["gen_ai.memory.record.count"] == 1


def test_a_search_in_documents_is_a_retrieval(spans: Spans) -> None:
    base = KnowledgeBase(user_id="ada")
    base.add("The kettle is descaled with citric acid.", metadata={"source": "kettle"})

    base.search("kettle")

    [span] = spans.named("retrieval")
    assert dict(span.attributes or {})["ctxbudget.documents"] == 1


def test_learning_upserts_memory(spans: Spans) -> None:
    with ContextPipeline({"learn_every": 1}) as pipeline:
        pipeline.add_messages([HumanMessage("I live in Graz."), AIMessage("Nice.")], **IDS)
        pipeline.flush()

    told = dict(spans.named("upsert_memory")[0].attributes or {})
    assert (told["ctxbudget.messages"], told["ctxbudget.by_model"]) == (2, False)


# -- LangChain and LangGraph


class Listener(BaseCallbackHandler):
    """Notes the metadata of every run of a model."""

    def __init__(self) -> None:
        self.metadata: list[dict[str, Any]] = []

    def on_chat_model_start(
        self, *args: Any, metadata: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        self.metadata.append(dict(metadata or {}))


@pytest.mark.parametrize("is_awaited", [False, True])
def test_the_run_of_the_model_has_the_numbers_as_metadata(*, is_awaited: bool) -> None:
    listener = Listener()
    agent = agents.agent_of(agents.scripted(), agents.budget(recall_tool=True))
    config: Any = {**agents.CONFIG, "callbacks": [listener]}
    state: Any = {"messages": [("human", "Hello")]}
    if is_awaited:
        report = asyncio.run(agent.ainvoke(state, config))["ctxbudget_report"]
    else:
        report = agent.invoke(state, config)["ctxbudget_report"]

    [told] = listener.metadata
    assert told["ctxbudget_total_tokens"] == report["total_tokens"]
    assert parts_of(told, "ctxbudget_") == report["total_tokens"]
    for layer in report["layers"]:
        assert told[f"ctxbudget_layer_{layer['layer']}_tokens"] == layer["used_tokens"]
    assert told["thread_id"] == "c1"


def test_a_stream_has_the_numbers_as_a_custom_event() -> None:
    agent = agents.agent_of(agents.scripted(), agents.budget(report="numbers"))

    [event] = agent.stream({"messages": [("human", "Hello")]}, agents.CONFIG, stream_mode="custom")

    told = event["ctxbudget"]
    assert told["line"].startswith(f"{told['total_tokens']} of 1,500 tokens: ")
    assert "report" not in told


def test_the_event_of_a_graph_has_texts_where_they_are_asked_for(
    pipeline: ContextPipeline,
) -> None:
    graph: Any = build_context_graph(pipeline, report="texts")

    [event] = graph.stream({"messages": [("human", "Hello")]}, RUN, stream_mode="custom")

    assert ContextReport.from_dict(event["ctxbudget"]["report"]).total_tokens > 0


def test_a_stream_has_no_event_where_no_report_is_asked_for(pipeline: ContextPipeline) -> None:
    graph: Any = build_context_graph(pipeline)

    assert [*graph.stream({"messages": [("human", "Hello")]}, RUN, stream_mode="custom")] == []
