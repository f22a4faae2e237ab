"""The context graph: alone, as a node, as a hook; sync and async."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from itertools import pairwise
from threading import Event, Thread
from typing import Annotated, Any

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.store.base import Op, PutOp, Result
from langgraph.store.memory import InMemoryStore
from typing_extensions import TypedDict

from langchain_ctxbudget import ContextPipeline, build_context_graph
from langchain_ctxbudget.errors import InvalidSettingsError
from langchain_ctxbudget.settings import CustomLayer, LayerRequest
from tests.integration_tests.test_pipeline import chat

CONFIG: dict[str, Any] = {"configurable": {"thread_id": "t1", "user_id": "ada"}}
NODES = ["detect_topics", "compute_budget", "fetch_bundles", "compact_history", "retrieve", "assemble"]

Invoke = Callable[..., dict[str, Any]]


@pytest.fixture
def invoke() -> Invoke:
    """Awaits a graph; `test_both_forms` says that the blocking form gives the same."""
    return lambda graph, given, config, context=None: asyncio.run(graph.ainvoke(given, config, context=context))


def make_pipeline(budget: int = 800) -> ContextPipeline:
    return ContextPipeline({"max_context_tokens": budget}, system_prompt="You help.", store=InMemoryStore())


class AgentState(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    llm_input_messages: list[AnyMessage]


def agent(pipeline: ContextPipeline, answers: list[str]) -> Any:
    model = FakeListChatModel(responses=answers)
    graph = StateGraph(AgentState)
    graph.add_node("context", build_context_graph(pipeline, default_user="ada"))
    graph.add_node("model", lambda state: {"messages": [model.invoke(state["llm_input_messages"])]})
    graph.add_edge(START, "context")
    graph.add_edge("context", "model")
    graph.add_edge("model", END)
    return graph.compile(checkpointer=InMemorySaver())


def test_it_has_the_six_named_nodes_in_order() -> None:
    graph = build_context_graph(make_pipeline()).get_graph()
    assert [name for name in graph.nodes if not name.startswith("__")] == NODES


def test_it_gives_what_the_pipeline_gives(invoke: Invoke) -> None:
    messages = chat(80)
    pipeline = make_pipeline()
    pipeline.add_messages(messages, user_id="ada", conversation_id="t1")
    direct = pipeline.assemble(HumanMessage("And now?", id="q"), user_id="ada", conversation_id="t1")
    state = invoke(
        build_context_graph(make_pipeline(), report="numbers"),
        {"messages": [*messages, HumanMessage("And now?", id="q")]},
        CONFIG,
    )
    assert state["llm_input_messages"] == direct.messages
    assert state["report"]["total_tokens"] == direct.report.total_tokens


def test_the_report_and_the_draft_are_not_checkpointed(invoke: Invoke) -> None:
    graph = agent(make_pipeline(), ["First."])
    invoke(graph, {"messages": [("human", "One?")]}, CONFIG)
    saved = graph.get_state(CONFIG).values
    assert set(saved) == {"messages", "llm_input_messages"}


def test_a_prompt_is_begun_again_where_another_run_changed_the_conversation_meanwhile(invoke: Invoke) -> None:
    """A layer's function is called between two nodes, where another run may come in between."""
    came: list[bool] = []

    def interfering(_request: LayerRequest) -> list[str]:
        if not came:
            came.append(True)
            other = [HumanMessage("another run's", id="o"), AIMessage("fine", id="f"), HumanMessage("go", id="g")]
            run = Thread(target=lambda: graph.invoke({"messages": other}, CONFIG))
            run.start()
            run.join()
        return ["one item"]

    layers = [CustomLayer(name="files", items=interfering, ideal_tokens=100)]
    graph = build_context_graph(
        {"max_context_tokens": 4_000, "layers": layers}, system_prompt="You help.", store=InMemoryStore()
    )
    state = invoke(graph, {"messages": [*chat(2), HumanMessage("And now?", id="q")]}, CONFIG)
    assert [message.id for message in state["llm_input_messages"][1:]] == [*(m.id for m in chat(2)), "o", "f", "q"]


async def test_what_is_shown_of_the_user_stays_whichever_step_ends_first() -> None:
    compacted = Event()

    def slow(_request: LayerRequest) -> list[str]:
        compacted.wait(10)
        return ["one item"]

    settings = {"max_context_tokens": 2_000, "layers": [CustomLayer(name="files", items=slow, ideal_tokens=100)]}
    pipeline = ContextPipeline(settings, store=InMemoryStore())
    pipeline.knowledge.add_fact("Lives in Lisbon", category="identity", user_id="ada")
    graph, given = build_context_graph(pipeline), {"messages": [HumanMessage("Hi", id="q")]}

    async def prompt() -> str:
        compacted.clear()
        async for kind, event in graph.astream(given, CONFIG, stream_mode=["custom", "values"]):
            if kind == "custom" and event["ctxbudget"]["step"] == "compact_history":
                compacted.set()
        return str(event["llm_input_messages"][0].text)

    first = await prompt()
    assert "Lives in Lisbon" in first
    assert await prompt() == first


def test_every_node_tells_what_it_did() -> None:
    graph = build_context_graph(make_pipeline())
    given = {"messages": [*chat(60), HumanMessage("And now?", id="q")]}
    events: list[Any] = list(graph.stream(given, CONFIG, stream_mode="custom"))
    told = {event["ctxbudget"]["step"]: event["ctxbudget"] for event in events}
    assert sorted(told) == sorted(NODES)
    assert sum(told["assemble"]["layers"].values()) <= told["assemble"]["tokens"] <= 800
    json.dumps(events)


def test_its_state_is_plain_data_between_nodes() -> None:
    graph = build_context_graph(make_pipeline())
    given = {"messages": [*chat(60), HumanMessage("And now?", id="q")]}
    for _, update in graph.stream(given, CONFIG, stream_mode=["updates", "values"]):
        json.dumps(update, default=lambda value: value.model_dump() if isinstance(value, BaseMessage) else 1 / 0)


def test_a_run_that_is_resumed_between_two_nodes_makes_the_same_prompt(invoke: Invoke) -> None:
    given = {"messages": [*chat(60), HumanMessage("And now?", id="q")]}
    whole = invoke(build_context_graph(make_pipeline()), given, CONFIG)
    for node in NODES[1:]:
        graph = build_context_graph(make_pipeline())
        graph.checkpointer = InMemorySaver()
        list(graph.stream(given, CONFIG, interrupt_before=[node]))
        state = invoke(graph, None, CONFIG)
        assert state["llm_input_messages"] == whole["llm_input_messages"], node


class LoopState(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    llm_input_messages: list[AnyMessage]
    ctxbudget_turn: dict[str, Any]


def looping(pipeline: ContextPipeline, saver: InMemorySaver, script: list[AIMessage], seen: list[Any]) -> Any:
    """An agent that calls a tool until its script has no more calls, and is interrupted before every call."""
    answers = iter(script)

    def model(state: LoopState) -> dict[str, Any]:
        seen.append(state["llm_input_messages"])
        return {"messages": [next(answers)]}

    def run_tools(state: LoopState) -> dict[str, Any]:
        calls = getattr(state["messages"][-1], "tool_calls", [])
        return {"messages": [ToolMessage("some result " * 20, tool_call_id=call["id"]) for call in calls]}

    graph = StateGraph(LoopState)
    graph.add_node("context", build_context_graph(pipeline, default_user="ada", tools=[TOOL]))
    graph.add_node("model", model)
    graph.add_node("tools", run_tools)
    graph.add_edge(START, "context")
    graph.add_edge("context", "model")
    graph.add_conditional_edges(
        "model", lambda state: "tools" if getattr(state["messages"][-1], "tool_calls", None) else END
    )
    graph.add_edge("tools", "context")
    return graph.compile(checkpointer=saver, interrupt_before=["tools"])


TOOL = {"name": "look", "description": "Look something up.", "parameters": {"type": "object", "properties": {}}}


def call_of(number: int) -> AIMessage:
    return AIMessage("", id=f"call{number}", tool_calls=[{"name": "look", "args": {}, "id": f"c{number}"}])


def test_the_block_stays_the_same_after_an_interrupt_in_another_process(invoke: Invoke) -> None:
    """The layer gives something else each time; only the state knows what was chosen when the turn began."""
    asked: list[int] = []

    def changing(_request: LayerRequest) -> list[str]:
        asked.append(1)
        return [f"asked {len(asked)} times"]

    layer = CustomLayer(name="files", items=changing, ideal_tokens=100)
    store, saver, seen = InMemoryStore(), InMemorySaver(), []
    given: Any = {"messages": [*chat(30), HumanMessage("What now?", id="q")]}
    script = [call_of(0), call_of(1), call_of(2), AIMessage("Done.", id="done")]
    for start in range(4):  # every interrupt is resumed by a pipeline that has seen nothing
        pipeline = ContextPipeline({"max_context_tokens": 4_000, "layers": [layer]}, store=store)
        invoke(looping(pipeline, saver, script[start:], seen), given, CONFIG)
        given = None
    asking = [next(m.text for m in prompt if m.text.endswith("What now?")) for prompt in seen]
    assert len(asking) == 4
    assert set(asking) == {asking[0]}
    assert "asked 1 times" in asking[0]
    assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(seen))


def test_the_store_of_the_run_outweighs_the_pipeline_s(invoke: Invoke) -> None:
    own, of_the_run = InMemoryStore(), InMemoryStore()
    for preferred, used in ((True, of_the_run), (False, own)):
        graph = build_context_graph({}, store=own, default_user="ada", runtime_store=preferred)
        graph.store = of_the_run
        invoke(graph, {"messages": [*chat(2), HumanMessage("Hi", id="q")]}, CONFIG)
        kept = ContextPipeline(store=used).get_messages(user_id="ada", conversation_id="t1")
        assert kept == chat(2)


@pytest.mark.parametrize(
    ("given", "options", "why"),
    [
        (ContextPipeline(), {"system_prompt": "x"}, "made already"),
        ({}, {"sistem_prompt": "x"}, "Unknown options sistem_prompt"),
        ({}, {"settings": {}}, "settings as the first argument"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(given: Any, options: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidSettingsError, match=why):
        build_context_graph(given, **options)


class Full(InMemoryStore):
    """Takes no messages."""

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        todo = list(ops)
        if any(isinstance(op, PutOp) and "messages" in op.namespace for op in todo):
            raise OSError("disk full")
        return super().batch(todo)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return self.batch(ops)


def test_a_store_that_cannot_be_written_does_not_stop_the_turn(invoke: Invoke) -> None:
    pipeline = ContextPipeline({"max_context_tokens": 800}, store=Full())
    state = invoke(
        build_context_graph(pipeline, report="texts"), {"messages": [*chat(40), HumanMessage("And now?")]}, CONFIG
    )
    assert state["llm_input_messages"][-1].text.endswith("And now?")
    assert "disk full" in state["report"]["failures"][0]
