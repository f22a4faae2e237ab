"""The context graph: alone, as a node, as a hook; sync and async."""

from __future__ import annotations

import asyncio
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from threading import Event, Thread
from typing import Annotated, Any

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.store.memory import InMemoryStore
from pydantic import BaseModel
from typing_extensions import TypedDict

from langchain_ctxbudget import ContextPipeline, build_context_graph
from langchain_ctxbudget.errors import ForeignUserError, InvalidSettingsError, MessageConflictError, MissingScopeError
from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.runs import RunContext
from langchain_ctxbudget.settings import CustomLayer, LayerRequest
from langchain_ctxbudget.stores.records import Scope
from tests.integration_tests.test_pipeline import chat

CONFIG: dict[str, Any] = {"configurable": {"thread_id": "t1", "user_id": "ada"}}
NODES = ["detect_topics", "compute_budget", "fetch_bundles", "compact_history", "retrieve", "assemble"]

Invoke = Callable[..., dict[str, Any]]


@pytest.fixture(params=["sync", "async"])
def invoke(request: pytest.FixtureRequest) -> Invoke:
    def asynchronous(graph: Any, given: Any, config: Any, context: Any = None) -> dict[str, Any]:
        return asyncio.run(graph.ainvoke(given, config, context=context))

    def synchronous(graph: Any, given: Any, config: Any, context: Any = None) -> dict[str, Any]:
        return graph.invoke(given, config, context=context)

    return synchronous if request.param == "sync" else asynchronous


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
        build_context_graph(make_pipeline()), {"messages": [*messages, HumanMessage("And now?", id="q")]}, CONFIG
    )
    assert state["llm_input_messages"] == direct.messages
    assert state["report"]["total_tokens"] == direct.report.total_tokens


def test_the_report_times_every_step(invoke: Invoke) -> None:
    state = invoke(build_context_graph(make_pipeline()), {"messages": [("human", "Hello")]}, CONFIG)
    assert list(state["report"]["timings_ms"]) == ["open", *NODES]


def test_a_tool_loop_keeps_the_turn_together(invoke: Invoke) -> None:
    turn: list[BaseMessage] = [
        HumanMessage("What is the weather?", id="q"),
        AIMessage("", id="c", tool_calls=[{"name": "weather", "args": {}, "id": "1"}]),
        ToolMessage("rain", id="r", tool_call_id="1"),
    ]
    state = invoke(build_context_graph(make_pipeline()), {"messages": [*chat(60), *turn]}, CONFIG)
    assert [message.id for message in state["llm_input_messages"][-3:]] == ["q", "c", "r"]


def test_an_agent_with_it_stores_what_an_agent_without_it_would(invoke: Invoke) -> None:
    graph = agent(make_pipeline(), [f"Answer {number}." for number in range(60)])
    for number in range(60):
        state = invoke(
            graph, {"messages": [("human", f"Question {number}, at some length, about the garden?")]}, CONFIG
        )
    expected = [
        text for n in range(60) for text in (f"Question {n}, at some length, about the garden?", f"Answer {n}.")
    ]
    assert [message.content for message in state["messages"]] == expected
    assert len(state["llm_input_messages"]) < 121


def test_the_agent_s_history_is_copied_into_the_store(invoke: Invoke) -> None:
    pipeline = make_pipeline()
    graph = agent(pipeline, ["First.", "Second."])
    invoke(graph, {"messages": [("human", "One?")]}, CONFIG)
    invoke(graph, {"messages": [("human", "Two?")]}, CONFIG)
    kept = pipeline.get_messages(user_id="ada", conversation_id="t1")
    assert [message.content for message in kept] == ["One?", "First."]


def test_the_report_and_the_draft_are_not_checkpointed(invoke: Invoke) -> None:
    graph = agent(make_pipeline(), ["First."])
    invoke(graph, {"messages": [("human", "One?")]}, CONFIG)
    saved = graph.get_state(CONFIG).values
    assert set(saved) == {"messages", "llm_input_messages"}


def test_system_messages_at_the_beginning_join_the_system_prompt(invoke: Invoke) -> None:
    messages = [SystemMessage("You are a pirate.", id="s"), *chat(80), HumanMessage("And now?")]
    state = invoke(build_context_graph(make_pipeline()), {"messages": messages}, CONFIG)
    assert state["llm_input_messages"][0].text.startswith("You help.\n\nYou are a pirate.")


def test_two_runs_on_one_thread_at_once_do_not_get_each_other_s_history() -> None:
    pipeline = make_pipeline()
    scope = Scope("ada", "t1")
    first = drive(pipeline.engine.open_turn(scope, chat(2), [HumanMessage("go")]))
    drive(pipeline.engine.open_turn(scope, [HumanMessage("another agent's")], [HumanMessage("go")]))
    with pytest.raises(MessageConflictError, match="a conversation of its own"):
        drive(pipeline.engine.run_step("compute_budget", first))


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
    assert [message.id for message in state["llm_input_messages"][1:]] == [*(m.id for m in chat(2)), "q"]


def test_two_steps_that_do_not_need_each_other_run_side_by_side(invoke: Invoke) -> None:
    ran: list[str] = []

    def slow(_request: LayerRequest) -> list[str]:
        ran.append("begins")
        compacted.wait(10)
        ran.append("ends")
        return ["one item"]

    compacted = Event()
    graph = build_context_graph({"layers": [CustomLayer(name="files", items=slow, ideal_tokens=100)]})
    config = {"configurable": CONFIG["configurable"]}

    def watch(graph: Any, *args: Any) -> list[str]:
        seen = []
        for event in graph.stream(*args, stream_mode="custom"):
            seen.append(event["ctxbudget"]["step"])
            if seen[-1] == "compact_history":
                compacted.set()
        return seen

    seen = watch(graph, {"messages": [HumanMessage("Hi", id="q")]}, config)
    assert seen.index("compact_history") < seen.index("fetch_bundles")
    assert ran == ["begins", "ends"]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_what_is_shown_of_the_user_stays_whichever_step_ends_first(mode: str) -> None:
    compacted = Event()

    def slow(_request: LayerRequest) -> list[str]:
        compacted.wait(10)
        return ["one item"]

    def watched(events: list[Any]) -> str:
        compacted.clear()
        return str(events[-1][1]["llm_input_messages"][0].text)

    def see(kind: str, event: Any) -> tuple[str, Any]:
        if kind == "custom" and event["ctxbudget"]["step"] == "compact_history":
            compacted.set()
        return kind, event

    settings = {"max_context_tokens": 2_000, "layers": [CustomLayer(name="files", items=slow, ideal_tokens=100)]}
    pipeline = ContextPipeline(settings, store=InMemoryStore())
    pipeline.knowledge.add_fact("Lives in Lisbon", category="identity", user_id="ada")
    graph, given = build_context_graph(pipeline), {"messages": [HumanMessage("Hi", id="q")]}
    modes: Any = ["custom", "values"]

    async def streamed() -> list[Any]:
        return [see(*event) async for event in graph.astream(given, CONFIG, stream_mode=modes)]

    def prompt() -> str:
        if mode == "async":
            return watched(asyncio.run(streamed()))
        return watched([see(*event) for event in graph.stream(given, CONFIG, stream_mode=modes)])

    first = prompt()
    assert "Lives in Lisbon" in first
    assert prompt() == first


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_every_node_tells_what_it_did(mode: str) -> None:
    graph = build_context_graph(make_pipeline())
    given = {"messages": [*chat(60), HumanMessage("And now?", id="q")]}
    if mode == "sync":
        events = list(graph.stream(given, CONFIG, stream_mode="custom"))
    else:

        async def collect() -> list[Any]:
            return [event async for event in graph.astream(given, CONFIG, stream_mode="custom")]

        events = asyncio.run(collect())
    told = {event["ctxbudget"]["step"]: event["ctxbudget"] for event in events}
    assert sorted(told) == sorted(NODES)
    assert told["compact_history"]["messages"] == 120
    assert told["assemble"]["tokens"] <= told["assemble"]["budget_tokens"] == 800
    json.dumps(events)


def test_marks_of_a_system_message_that_are_lost_are_told(invoke: Invoke) -> None:
    marked: Any = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}, "Be kind."]
    given = {"messages": [SystemMessage(marked), HumanMessage("Hi", id="q")]}
    state = invoke(build_context_graph(make_pipeline()), given, CONFIG)
    assert state["llm_input_messages"][0].content == "You help.\n\nBe brief.\n\nBe kind."
    assert any("without cache_control" in told for told in state["report"]["failures"])


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


def test_the_runtime_context_outweighs_configurable(invoke: Invoke) -> None:
    pipeline = make_pipeline()
    graph = build_context_graph(pipeline, default_user="eve")
    context = RunContext(user_id="bob", conversation_id="c9", settings={"max_context_tokens": 300})
    given = {"messages": [*chat(1), HumanMessage("Hi", id="q")]}
    state = invoke(graph, given, CONFIG, context)
    assert state["report"]["budget_tokens"] == 300
    assert pipeline.get_messages(user_id="bob", conversation_id="c9") == chat(1)


def test_another_s_runtime_context_is_not_looked_at(invoke: Invoke) -> None:
    @dataclass
    class Theirs:
        settings: str = "dark mode"
        user_id: str = "theirs"

    parent = StateGraph(AgentState, context_schema=Theirs)
    parent.add_node("context", build_context_graph(make_pipeline(), default_user="ada"))
    parent.add_edge(START, "context")
    parent.add_edge("context", END)
    state = invoke(parent.compile(), {"messages": [HumanMessage("Hi", id="q")]}, CONFIG, Theirs())
    assert [message.content for message in state["llm_input_messages"]] == ["You help.", "Hi"]


def test_a_pipeline_is_made_of_settings_and_options() -> None:
    graph = build_context_graph({"max_context_tokens": 400}, system_prompt="You help.", default_user="ada")
    state = graph.invoke({"messages": [("human", "Hi")]}, CONFIG)
    assert state["llm_input_messages"][0].content == "You help."
    assert state["report"]["budget_tokens"] == 400


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


def test_it_is_drawn() -> None:
    drawn = build_context_graph(make_pipeline()).get_graph().draw_mermaid()
    assert "compute_budget --> compact_history" in drawn
    assert "compute_budget --> fetch_bundles" in drawn


def test_no_thread_is_an_error(invoke: Invoke) -> None:
    with pytest.raises(MissingScopeError, match="thread_id"):
        invoke(build_context_graph(make_pipeline(), default_user="ada"), {"messages": [("human", "Hello")]}, {})


def test_no_user_is_an_error(invoke: Invoke) -> None:
    with pytest.raises(MissingScopeError, match="user_id"):
        invoke(
            build_context_graph(make_pipeline()),
            {"messages": [("human", "Hello")]},
            {"configurable": {"thread_id": "t"}},
        )


def test_the_server_s_user_is_the_user(invoke: Invoke) -> None:
    pipeline = make_pipeline()
    config = {"configurable": {"thread_id": "t1", "langgraph_auth_user": {"identity": "eve"}}}
    invoke(build_context_graph(pipeline, default_user="ada"), {"messages": [*chat(1), HumanMessage("Hi")]}, config)
    assert pipeline.get_messages(user_id="eve", conversation_id="t1") == chat(1)
    assert pipeline.get_messages(user_id="ada", conversation_id="t1") == []


def test_who_is_signed_in_to_a_server_cannot_name_somebody_else(invoke: Invoke) -> None:
    """Clients of LangGraph Server write `configurable` and context themselves."""
    graph = build_context_graph(make_pipeline())
    signed_in = {"thread_id": "t1", "graph_id": "agent", "langgraph_auth_user": {"identity": "eve"}}
    given = {"messages": [HumanMessage("Hi")]}
    with pytest.raises(ForeignUserError, match="names the user 'ada'"):
        invoke(graph, given, {"configurable": {**signed_in, "user_id": "ada"}})
    with pytest.raises(ForeignUserError, match="names the user 'ada'"):
        invoke(graph, given, {"configurable": signed_in}, {"user_id": "ada", "thread_id": "t1"})
    state = invoke(graph, given, {"configurable": {**signed_in, "user_id": "eve"}})
    assert state["report"]["user_id"] == "eve"


def test_a_store_that_cannot_be_written_does_not_stop_the_turn(invoke: Invoke) -> None:
    from tests.integration_tests.test_pipeline import FailingStore  # noqa: PLC0415

    pipeline = ContextPipeline({"max_context_tokens": 800}, store=FailingStore("messages"))
    state = invoke(build_context_graph(pipeline), {"messages": [*chat(40), HumanMessage("And now?")]}, CONFIG)
    assert state["llm_input_messages"][-1].text.endswith("And now?")
    assert "disk full" in state["report"]["failures"][0]


def test_it_is_a_pre_model_hook_as_it_is(invoke: Invoke) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from langgraph.prebuilt import create_react_agent  # noqa: PLC0415

        hooked = create_react_agent(
            FakeListChatModel(responses=["Fine."]), [], pre_model_hook=build_context_graph(make_pipeline())
        )
    state = invoke(hooked, {"messages": [*chat(40), HumanMessage("How are you?")]}, CONFIG)
    assert state["messages"][-1].content == "Fine."
    assert len(state["messages"]) == 82


def test_a_run_s_own_settings_lie_over_the_pipeline_s(invoke: Invoke) -> None:
    config = {"configurable": {**CONFIG["configurable"], "context_settings": {"max_context_tokens": 500}}}
    state = invoke(build_context_graph(make_pipeline()), {"messages": [HumanMessage("Hello")]}, config)
    assert (state["report"]["budget_tokens"], state["report"]["settings_from"]) == (500, ["pipeline", "call"])


def test_a_run_s_persona_has_its_saved_settings(invoke: Invoke) -> None:
    pipeline = make_pipeline()
    pipeline.save_settings({"allocation": "ratio"}, user_id="ada", persona_id="pirate")
    config = {"configurable": {**CONFIG["configurable"], "persona_id": "pirate"}}
    state = invoke(build_context_graph(pipeline), {"messages": [HumanMessage("Hello")]}, config)
    assert state["report"]["allocation_strategy"] == "ratio 30/40/30"


def test_a_response_format_is_counted(invoke: Invoke) -> None:
    class Answer(BaseModel):
        text: str

    graph = build_context_graph(make_pipeline(), response_format=Answer)
    state = invoke(graph, {"messages": [HumanMessage("Hello")]}, CONFIG)
    assert state["report"]["overhead_tokens"]["response format"] > 0


def test_the_pipeline_knows_the_last_report_of_a_graph(invoke: Invoke) -> None:
    pipeline = make_pipeline()
    invoke(build_context_graph(pipeline), {"messages": [*chat(60), HumanMessage("And now?")]}, CONFIG)
    [forecast] = pipeline.what_if([400])
    assert forecast.total_tokens <= 400
