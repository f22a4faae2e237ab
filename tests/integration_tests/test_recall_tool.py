"""The recall tool: alone, in a tool node and in an agent; sync and async; whose conversation it reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import MessagesState
from langgraph.prebuilt import ToolNode
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, build_context_graph, create_recall_tool
from langchain_ctxbudget.errors import InvalidSettingsError, MissingScopeError
from langchain_ctxbudget.retrieval.recall import QUOTES

SCOPE: dict[str, str] = {"user_id": "ada", "conversation_id": "t1"}
CONFIG: dict[str, Any] = {"configurable": {"thread_id": "t1", "user_id": "ada"}}
LOG = "".join(f"10:{i // 60 % 60:02}:{i % 60:02} INFO request {i * 7919:08x} took {i} ms\n" for i in range(4_000))

Invoke = Callable[..., Any]


@pytest.fixture(params=["sync", "async"])
def invoke(request: pytest.FixtureRequest) -> Invoke:
    """Invokes a tool or a graph, in its blocking or its async form."""

    def asynchronous(runnable: Any, *args: Any) -> Any:
        return asyncio.run(runnable.ainvoke(*args))

    return (lambda runnable, *args: runnable.invoke(*args)) if request.param == "sync" else asynchronous


def make_pipeline(store: BaseStore | None = None, messages: int = 40) -> ContextPipeline:
    pipeline = ContextPipeline({"max_context_tokens": 800}, store=store or InMemoryStore())
    history: list[BaseMessage] = [
        HumanMessage(f"Message {i} is about the garden.", id=f"m-{i}") for i in range(1, messages + 1)
    ]
    history[6] = HumanMessage("My bicycle is blue.", id="m-bike", name="ada")
    pipeline.add_messages(history, **SCOPE)
    return pipeline


class Scripted(GenericFakeChatModel):
    """A model that gives answers one after the other, and lets tools be bound."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


def asks(**arguments: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": "recall", "args": arguments, "id": "call-1", "type": "tool_call"}])


def agent(tool: BaseTool, *calls: AIMessage) -> Any:
    model = Scripted(messages=iter([*calls, AIMessage("Done.")]))
    return create_agent(model, tools=[tool], checkpointer=InMemorySaver())


def results(state: dict[str, Any]) -> list[str]:
    return [message.content for message in state["messages"] if isinstance(message, ToolMessage)]


def test_it_answers_a_query(invoke: Invoke, store: BaseStore) -> None:
    tool = create_recall_tool(make_pipeline(store))
    assert "#7 ada: My bicycle is blue.\n" in invoke(tool, {"query": "Which colour has the bicycle?"}, CONFIG)


def test_it_answers_a_reference(invoke: Invoke, store: BaseStore) -> None:
    tool = create_recall_tool(make_pipeline(store))
    assert invoke(tool, {"reference": "m-bike"}, CONFIG) == f"{QUOTES}#7 ada: My bicycle is blue.\n"


@pytest.mark.parametrize("arguments", [{}, {"query": "bicycle", "reference": "7"}, {"query": " ", "reference": ""}])
def test_neither_or_both_is_told_what_to_give(invoke: Invoke, arguments: dict[str, str]) -> None:
    assert invoke(create_recall_tool(make_pipeline()), arguments, CONFIG).startswith("Give exactly one")


@pytest.mark.parametrize("arguments", [{"query": "bicycle", "reference": ""}, {"query": None, "reference": "7"}])
def test_an_argument_without_content_counts_as_left_out(invoke: Invoke, arguments: dict[str, Any]) -> None:
    assert "bicycle" in invoke(create_recall_tool(make_pipeline()), arguments, CONFIG)


def test_what_another_pipeline_has_added_is_seen(invoke: Invoke) -> None:
    store = InMemoryStore()
    tool = create_recall_tool(make_pipeline(store))
    invoke(tool, {"reference": "1"}, CONFIG)
    ContextPipeline(store=store).add_messages([HumanMessage("A late word.")], **SCOPE)
    assert "A late word." in invoke(tool, {"reference": "41"}, CONFIG)


def test_prompts_stay_the_same_after_a_recall(invoke: Invoke) -> None:
    plain, asked = make_pipeline(), make_pipeline()
    for pipeline in (plain, asked):
        pipeline.assemble("What is in the garden?", **SCOPE)
    invoke(create_recall_tool(asked), {"query": "bicycle"}, CONFIG)
    expected = plain.assemble("Which bicycle?", **SCOPE).messages
    assert asked.assemble("Which bicycle?", **SCOPE).messages == expected


# Limits


@pytest.mark.parametrize("arguments", [{"query": "garden"}, {"reference": "1-40"}, {"reference": "nope"}, {}])
@pytest.mark.parametrize("limit", [64, 200])
def test_an_answer_is_within_the_limit(invoke: Invoke, limit: int, arguments: dict[str, str]) -> None:
    pipeline = make_pipeline()
    answer = invoke(create_recall_tool(pipeline, max_tokens=limit), arguments, CONFIG)
    assert 0 < pipeline.token_counter.count_text(answer) <= limit


@pytest.mark.parametrize("limit", [63, 0, -1, True, 100.0, "100"])
def test_a_limit_that_is_too_small_or_no_number_is_an_error(limit: Any) -> None:
    with pytest.raises(InvalidSettingsError, match="max_tokens must be a whole number of at least 64"):
        create_recall_tool(make_pipeline(), max_tokens=limit)


# Whose conversation


def test_another_user_with_the_same_thread_gets_nothing(invoke: Invoke) -> None:
    tool = create_recall_tool(make_pipeline())
    config = {"configurable": {"thread_id": "t1", "user_id": "eve"}}
    answers = [invoke(tool, arguments, config) for arguments in ({"query": "bicycle"}, {"reference": "m-bike"})]
    assert set(answers) == {"Nothing is stored of this conversation yet."}


def test_another_thread_of_the_user_gets_nothing(invoke: Invoke) -> None:
    config = {"configurable": {"thread_id": "t2", "user_id": "ada"}}
    answer = invoke(create_recall_tool(make_pipeline()), {"reference": "7"}, config)
    assert answer == "Nothing is stored of this conversation yet."


@pytest.mark.parametrize("configurable", [{}, {"thread_id": "t1"}, {"user_id": "ada"}])
@pytest.mark.parametrize("arguments", [{"query": "bicycle"}, {"reference": "7"}, {}])
def test_a_run_without_a_scope_is_an_error(
    invoke: Invoke, configurable: dict[str, str], arguments: dict[str, str]
) -> None:
    with pytest.raises(MissingScopeError):
        invoke(create_recall_tool(make_pipeline()), arguments, {"configurable": configurable})


def test_the_default_user_is_taken_where_the_run_names_none(invoke: Invoke) -> None:
    tool = create_recall_tool(make_pipeline(), default_user="ada")
    assert "bicycle" in invoke(tool, {"reference": "7"}, {"configurable": {"thread_id": "t1"}})


def test_the_default_user_does_not_outweigh_the_run(invoke: Invoke) -> None:
    tool = create_recall_tool(make_pipeline(), default_user="ada")
    answer = invoke(tool, {"reference": "7"}, {"configurable": {"thread_id": "t1", "user_id": "eve"}})
    assert "bicycle" not in answer


def test_a_scope_among_the_arguments_is_not_taken(invoke: Invoke) -> None:
    arguments = {
        "reference": "7",
        "user_id": "ada",
        "thread_id": "t1",
        "default_user": "ada",
        "config": {"configurable": {"user_id": "ada", "thread_id": "t1"}},
    }
    tool = create_recall_tool(make_pipeline())
    answer = invoke(tool, arguments, {"configurable": {"thread_id": "t1", "user_id": "eve"}})
    assert answer == "Nothing is stored of this conversation yet."


# What a model sees


def test_its_schema_has_the_two_arguments_only() -> None:
    function = convert_to_openai_tool(create_recall_tool(make_pipeline()))["function"]
    assert sorted(function["parameters"]["properties"]) == ["query", "reference"]
    assert not function["parameters"].get("required")


def test_its_schema_can_be_counted() -> None:
    pipeline = make_pipeline()
    tool = create_recall_tool(pipeline)
    report = pipeline.assemble("Hello", tools=[tool], **SCOPE).report
    assert report.total_tokens >= pipeline.token_counter.count_tools([tool])


def test_its_name_can_be_chosen() -> None:
    assert create_recall_tool(make_pipeline(), name="look_up").name == "look_up"


# In graphs


def test_an_agent_looks_up_a_message(invoke: Invoke) -> None:
    tool = create_recall_tool(make_pipeline())
    state = invoke(agent(tool, asks(query="bicycle")), {"messages": [HumanMessage("Which colour?")]}, CONFIG)
    assert state["messages"][-1].content == "Done."
    assert "My bicycle is blue." in results(state)[0]


def test_an_agent_of_another_user_with_the_same_thread_looks_up_nothing(invoke: Invoke) -> None:
    tool = create_recall_tool(make_pipeline())
    config = {"configurable": {"thread_id": "t1", "user_id": "eve"}}
    calls = (asks(query="bicycle"), asks(reference="m-bike"))
    state = invoke(agent(tool, *calls), {"messages": [HumanMessage("Which colour?")]}, config)
    assert set(results(state)) == {"Nothing is stored of this conversation yet."}


def test_a_call_with_a_wrong_argument_is_answered(invoke: Invoke) -> None:
    tool = create_recall_tool(make_pipeline())
    state = invoke(agent(tool, asks(reference=["7"])), {"messages": [HumanMessage("Which colour?")]}, CONFIG)
    assert "reference" in results(state)[0]


def test_an_agent_without_a_user_fails(invoke: Invoke) -> None:
    tool = create_recall_tool(make_pipeline())
    with pytest.raises(MissingScopeError):
        invoke(
            agent(tool, asks(reference="7")), {"messages": [HumanMessage("?")]}, {"configurable": {"thread_id": "t"}}
        )


def test_a_graph_reads_on_what_its_context_has_left_out(invoke: Invoke) -> None:
    pipeline = ContextPipeline({"max_context_tokens": 800}, store=InMemoryStore())
    log = ToolMessage(LOG, tool_call_id="call-0", id="m-log")
    history = [
        HumanMessage("Run it.", id="m-1"),
        AIMessage("", id="m-2", tool_calls=[{"name": "run", "args": {}, "id": "call-0", "type": "tool_call"}]),
        log,
        AIMessage("It ran.", id="m-3"),
    ]
    graph = StateGraph(MessagesState)
    graph.add_node("context", build_context_graph(pipeline))
    graph.add_node("model", lambda state: {"messages": [asks(reference="m-log@5000")]})
    graph.add_node("tools", ToolNode([create_recall_tool(pipeline, max_tokens=300)]))
    graph.add_edge(START, "context")
    graph.add_edge("context", "model")
    graph.add_edge("model", "tools")
    graph.add_edge("tools", END)
    state = invoke(graph.compile(), {"messages": [*history, HumanMessage("What did it say?", id="m-4")]}, CONFIG)
    answer = state["messages"][-1].content
    assert answer.startswith(f"{QUOTES}#3@5000 tool: {LOG[5000:5050].splitlines()[0]}\n")
    assert pipeline.token_counter.count_text(answer) <= 300
