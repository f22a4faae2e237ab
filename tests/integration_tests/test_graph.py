"""The context graph: alone, as a node, as a hook; sync and async."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
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
from langchain_ctxbudget.errors import MessageConflictError, MissingScopeError
from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.stores.records import Scope
from tests.integration_tests.test_pipeline import chat

CONFIG: dict[str, Any] = {"configurable": {"thread_id": "t1", "user_id": "ada"}}
NODES = ["detect_topics", "compute_budget", "fetch_bundles", "compact_history", "retrieve", "assemble"]

Invoke = Callable[..., dict[str, Any]]


@pytest.fixture(params=["sync", "async"])
def invoke(request: pytest.FixtureRequest) -> Invoke:
    def asynchronous(graph: Any, *args: Any) -> dict[str, Any]:
        return asyncio.run(graph.ainvoke(*args))

    return (lambda graph, *args: graph.invoke(*args)) if request.param == "sync" else asynchronous


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
    with pytest.raises(MessageConflictError, match="thread_id of its own"):
        drive(pipeline.engine.run_step("detect_topics", first))


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
