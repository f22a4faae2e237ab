"""What agents and graphs give back of their reports, and to whom.

And where several of them work at once.
"""

import json
import threading
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command

from langchain_ctxbudget import BudgetedChatMessageHistory, ContextPipeline, build_context_graph
from langchain_ctxbudget.errors import InvalidSettingsError
from langchain_ctxbudget.middleware import ContextBudgetMiddleware
from tests.integration_tests.agents import (
    CONFIG,
    SCOPE,
    agent_of,
    ask,
    budget,
    long_history,
    scripted,
    wants,
)

SECRET = "Xylograph"
"""In the system prompt, a preference, a memory, a name of a topic, and what is said."""
ASKED = {"messages": [*long_history(4), HumanMessage(f"What do I have in my {SECRET}?", id="q")]}
MODES = ("values", "updates", "debug", "custom", "checkpoints", "tasks")


def make_pipeline() -> ContextPipeline:
    topic = {"label": SECRET, "context": f"The {SECRET} is at the lake."}
    settings = {
        "max_context_tokens": 4_000,
        "preferences": [f"Mention the {SECRET}."],
        "topics": [topic],
    }
    pipeline = ContextPipeline(
        settings, system_prompt=f"You help with the {SECRET}.", store=InMemoryStore()
    )
    pipeline.knowledge.add_fact(f"Keeps a boat in the {SECRET}.", user_id="ada")
    return pipeline


def agent_with(pipeline: ContextPipeline, **options: Any) -> Any:
    middleware = ContextBudgetMiddleware(pipeline, **options)
    return create_agent(scripted("Fine."), middleware=[middleware], checkpointer=InMemorySaver())


class State(MessagesState):
    """The two keys that a graph with the context graph as a node needs."""

    llm_input_messages: list[Any]


def graph_with(pipeline: ContextPipeline, **options: Any) -> Any:
    graph = StateGraph(State, output_schema=MessagesState)
    graph.add_node("context", build_context_graph(pipeline, **options))
    graph.add_edge(START, "context")
    graph.add_edge("context", END)
    return graph.compile(checkpointer=InMemorySaver())


WAYS = {
    "middleware": (agent_with, "ctxbudget_report"),
    "graph": (build_context_graph, "context_report"),
}

every_way = pytest.mark.parametrize("way", WAYS)


async def streamed(runnable: Any, stream_mode: Any) -> list[Any]:
    return [
        chunk
        async for chunk in runnable.astream(ASKED, CONFIG, stream_mode=stream_mode, subgraphs=True)
    ]


@pytest.mark.parametrize("way", [agent_with, graph_with])
async def test_without_being_asked_for_no_report_leaves_an_agent(way: Any) -> None:
    agent = way(make_pipeline())
    assert set(await agent.ainvoke(ASKED, CONFIG)) == {"messages"}
    for stream_mode in MODES:
        told = str(await streamed(agent, stream_mode))
        assert "schema_version" not in told
        assert "preview" not in told


@every_way
async def test_a_report_has_numbers_alone_or_texts_as_it_is_asked_for(way: str) -> None:
    make, key = WAYS[way]
    pipeline = make_pipeline()
    told = (await make(pipeline, report="numbers").ainvoke(ASKED, CONFIG))[key]
    report = pipeline.last_report(user_id="ada", conversation_id="c1")
    assert report is not None
    assert SECRET in json.dumps(report.to_dict())
    assert SECRET.lower() not in json.dumps(told).lower()
    assert told["total_tokens"] == report.total_tokens
    assert [layer["used_tokens"] for layer in told["layers"]] == [
        layer.used_tokens for layer in report.layers
    ]
    assert len(json.dumps(told)) < 4_000
    told = (await make(pipeline, report="texts").ainvoke(ASKED, CONFIG))[key]
    report = pipeline.last_report(user_id="ada", conversation_id="c1")
    assert report is not None
    assert told == report.to_dict()


@every_way
def test_another_wish_for_the_report_is_refused(way: str) -> None:
    with pytest.raises(InvalidSettingsError, match="'none', 'numbers' or 'texts'"):
        WAYS[way][0](make_pipeline(), report="all")


# -- The last report, in the process


def test_the_last_report_is_that_of_the_user_and_the_conversation_and_goes_with_them() -> None:
    pipeline = ContextPipeline(store=InMemoryStore())
    scopes = [
        {"user_id": user, "conversation_id": key}
        for user, key in [("ada", "c1"), ("ada", "c2"), ("bob", "c1")]
    ]
    made = [pipeline.assemble(f"I am {scope}", **scope).report for scope in scopes]
    assert [pipeline.last_report(**scope) for scope in scopes] == made
    assert pipeline.last_report(user_id="bob", conversation_id="c2") is None
    pipeline.clear(**scopes[1])
    assert [pipeline.last_report(**scope) for scope in scopes] == [made[0], None, made[2]]
    pipeline.erase_user(user_id="ada")
    assert [pipeline.last_report(**scope) for scope in scopes] == [None, None, made[2]]


# -- Several at once


@tool
def delegate(task: str, call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
    """Have a helper do a task.

    All that the helper's state has is handed over, as deepagents does.
    """
    helper = create_agent(
        scripted("Part done."), middleware=[ContextBudgetMiddleware(report="numbers", agent=task)]
    )
    state = dict(helper.invoke({"messages": [HumanMessage(task)]}))
    graph = build_context_graph(report="numbers", agent=f"graph {task}")
    state |= {
        "ctxbudget_turn": dict(graph.invoke({"messages": [HumanMessage(task)]})).get(
            "ctxbudget_turn"
        )
    }
    answer = {"role": "tool", "content": state["messages"][-1].text, "tool_call_id": call_id}
    return Command(update={**state, "messages": [answer]})


def test_sub_agents_that_hand_their_state_over_at_once_do_not_clash() -> None:
    calls = wants("delegate", "delegate", "delegate", task="a part")
    middleware = ContextBudgetMiddleware(report="numbers")
    agent = create_agent(scripted(calls, "All done."), [delegate], middleware=[middleware])
    state = ask(agent, HumanMessage("Do it all."))
    assert state["messages"][-1].text == "All done."
    assert state["ctxbudget_report"]["conversation_id"] == "c1"


# -- What tools hand to the application beside what the model reads: it can be anything, and no
# provider gets it


class Unsaid:
    def __repr__(self) -> str:
        raise ValueError


def itself() -> list[Any]:
    ring: list[Any] = []
    ring.append(ring)
    return ring


def with_artifact(artifact: object) -> BaseTool:
    @tool(response_format="content_and_artifact")
    def measure() -> tuple[str, Any]:
        """Measure it."""
        return "It is 5 m long.", artifact

    return measure


def turn(artifact: object) -> list[Any]:
    result = ToolMessage("It is 5 m long.", tool_call_id="k0", artifact=artifact, id="r")
    return [HumanMessage("How long is it?", id="h"), wants("measure"), result]


def artifacts(messages: list[BaseMessage]) -> list[Any]:
    return [message.artifact for message in messages if isinstance(message, ToolMessage)]


@pytest.mark.parametrize(
    "make",
    [threading.Lock, itself, Unsaid, lambda: iter("abc")],
    ids=["lock", "itself", "no repr", "iterator"],
)
def test_an_agent_goes_on_with_it_in_this_turn_and_in_the_next(make: Any) -> None:
    artifact = make()
    middleware = budget()
    agent = agent_of(
        scripted(wants("measure"), "5 m."),
        middleware,
        tools=[with_artifact(artifact)],
        checkpointer=None,
    )
    assert ask(agent, HumanMessage("How long is it?"))["messages"][2].artifact is artifact
    assert len(middleware.pipeline.get_messages(**SCOPE)) == 4
    agent = agent_of(scripted("Fine."), budget(), checkpointer=None)
    said = [*turn(artifact), AIMessage("5 m.", id="a"), HumanMessage("Thanks!", id="h2")]
    assert ask(agent, {"messages": said})["messages"][2].artifact is artifact


def test_neither_prompt_nor_graph_nor_window_has_one_and_the_turn_keeps_its_own() -> None:
    pipeline = ContextPipeline(store=InMemoryStore())
    given = turn({"metres": 5})
    assert artifacts(pipeline.assemble(given, **SCOPE).messages) == [None]
    state = build_context_graph().invoke({"messages": turn(threading.Lock())}, CONFIG)
    assert artifacts(state["llm_input_messages"]) == [None]
    history = BudgetedChatMessageHistory("c1", user_id="ada", pipeline=pipeline)
    history.add_messages(given)
    assert artifacts(history.window(500)) == [None]
    assert given[-1].artifact == {"metres": 5}


def test_what_json_can_hold_is_stored() -> None:
    pipeline = ContextPipeline(store=InMemoryStore())
    found = Document("A bicycle.", metadata={"room": "cellar"})
    pipeline.add_messages(turn([found]), **SCOPE)
    assert pipeline.get_messages(**SCOPE)[-1].artifact == [found.model_dump()]
