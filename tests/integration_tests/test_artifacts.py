"""What tools hand to the application beside what the model reads: it can be anything, and no provider gets it."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import BudgetedChatMessageHistory, ContextPipeline, build_context_graph
from tests.integration_tests.agents import CONFIG, SCOPE, agent_of, ask, budget, scripted, wants


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
    "make", [threading.Lock, itself, Unsaid, lambda: iter("abc")], ids=["lock", "itself", "no repr", "iterator"]
)
def test_an_agent_goes_on_with_it_in_this_turn_and_in_the_next(make: Any) -> None:
    artifact, middleware = make(), budget()
    agent = agent_of(scripted(wants("measure"), "5 m."), middleware, tools=[with_artifact(artifact)], checkpointer=None)
    state = ask(agent, HumanMessage("How long is it?"))
    assert state["messages"][2].artifact is artifact
    assert len(middleware.pipeline.get_messages(**SCOPE)) == 4
    agent = agent_of(scripted("Fine."), budget(), checkpointer=None)
    said = [*turn(artifact), AIMessage("5 m.", id="a"), HumanMessage("Thanks!", id="h2")]
    assert ask(agent, {"messages": said})["messages"][2].artifact is artifact


def test_neither_prompt_nor_graph_nor_window_has_one_and_the_turn_keeps_its_own() -> None:
    pipeline, given = ContextPipeline(store=InMemoryStore()), turn({"metres": 5})
    assert artifacts(pipeline.assemble(given, **SCOPE).messages) == [None]
    state = build_context_graph().invoke({"messages": turn(threading.Lock())}, CONFIG)
    assert artifacts(state["llm_input_messages"]) == [None]
    history = BudgetedChatMessageHistory("c1", user_id="ada", pipeline=pipeline)
    history.add_messages(given)
    assert artifacts(history.window(500)) == [None]
    assert given[-1].artifact == {"metres": 5}


def test_what_json_can_hold_is_stored() -> None:
    pipeline, found = ContextPipeline(store=InMemoryStore()), Document("A bicycle.", metadata={"room": "cellar"})
    pipeline.add_messages(turn([found]), **SCOPE)
    assert pipeline.get_messages(**SCOPE)[-1].artifact == [found.model_dump()]
