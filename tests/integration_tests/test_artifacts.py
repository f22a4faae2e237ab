"""What tools hand to the application beside what the model reads: it can be anything, and no provider gets it."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, build_context_graph
from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.integrations.chat_history import window_of
from langchain_ctxbudget.stores.records import Scope
from tests.integration_tests.agents import CONFIG, agent_of, ask, budget, scripted, wants
from tests.integration_tests.conftest import Call

SCOPE = {"user_id": "ada", "conversation_id": "c1"}


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


ANYTHING = pytest.mark.parametrize(
    "make", [threading.Lock, itself, Unsaid, lambda: iter("abc")], ids=["lock", "itself", "no repr", "iterator"]
)


@ANYTHING
def test_an_agent_goes_on_with_it(make: Any) -> None:
    artifact, middleware = make(), budget()
    agent = agent_of(scripted(wants("measure"), "5 m."), middleware, tools=[with_artifact(artifact)], checkpointer=None)
    state = ask(agent, HumanMessage("How long is it?"))
    assert state["messages"][2].artifact is artifact
    assert len(middleware.pipeline.get_messages(**SCOPE)) == 4


@ANYTHING
def test_the_next_turn_goes_on_with_it(make: Any) -> None:
    artifact, middleware = make(), budget()
    agent = agent_of(scripted("Fine."), middleware, checkpointer=None)
    said = [*turn(artifact), AIMessage("5 m.", id="a"), HumanMessage("Thanks!", id="h2")]
    assert ask(agent, {"messages": said})["messages"][2].artifact is artifact


def test_an_iterator_is_not_used_up() -> None:
    artifact = iter("abc")
    agent = agent_of(scripted("5 m."), budget(), checkpointer=None)
    ask(agent, {"messages": turn(artifact)})
    assert list(artifact) == ["a", "b", "c"]


def test_the_graph_goes_on_with_it() -> None:
    state = build_context_graph(store=InMemoryStore()).invoke({"messages": turn(threading.Lock())}, CONFIG)
    assert state["llm_input_messages"][-1].text == "It is 5 m long."


def test_a_prompt_has_none(call: Call) -> None:
    pipeline = ContextPipeline(store=InMemoryStore())
    sent = call(pipeline, "assemble", turn({"metres": 5}), **SCOPE).messages
    assert [message.artifact for message in sent if isinstance(message, ToolMessage)] == [None]


def test_a_window_has_none(call: Call) -> None:
    pipeline = ContextPipeline(store=InMemoryStore())
    call(pipeline, "add_messages", turn({"metres": 5}), **SCOPE)
    sent = drive(window_of(pipeline.engine, Scope("ada", "c1"), 500))
    assert [message.artifact for message in sent if isinstance(message, ToolMessage)] == [None]


def test_the_turn_keeps_its_own(call: Call) -> None:
    given = turn({"metres": 5})
    call(ContextPipeline(store=InMemoryStore()), "assemble", given, **SCOPE)
    assert given[-1].artifact == {"metres": 5}


def test_what_json_can_hold_is_stored(call: Call) -> None:
    pipeline, found = ContextPipeline(store=InMemoryStore()), Document("A bicycle.", metadata={"room": "cellar"})
    call(pipeline, "add_messages", turn([found]), **SCOPE)
    assert call(pipeline, "get_messages", **SCOPE)[-1].artifact == [found.model_dump()]
