"""`ContextBudgetMiddleware`: whose run it is, its store, the recall tool; many runs at once, and inside of others."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AnyMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.errors import InvalidSettingsError, MissingScopeError
from langchain_ctxbudget.middleware import ContextBudgetMiddleware
from langchain_ctxbudget.runs import RunContext
from tests.integration_tests.test_middleware import (
    Ask,
    Scripted,
    agent_of,
    ask,
    budget,
    clock_layer,
    long_history,
    look_up,
    run_agent,
    scripted,
    wants,
)

__all__ = ["ask"]

# -- The recall tool


def test_the_recall_tool_finds_what_the_prompt_does_not_show(ask: Ask) -> None:
    history = long_history(100)
    aside = "It has nothing to do with what we talk about here. " * 20
    history[0] = HumanMessage(f"{aside}My bicycle is blue. {aside}", id="h0")
    model = scripted(wants("recall", query="colour of the bicycle"), "Blue.")
    state = ask(
        agent_of(model, budget(recall_tool=True)), {"messages": [*history, HumanMessage("Which tree?", id="q")]}
    )
    assert "My bicycle is blue." not in "".join(message.text for message in model.seen[0])
    assert "My bicycle is blue." in state["messages"][-2].text


def test_the_recall_tool_reads_the_conversation_of_the_run_alone(ask: Ask) -> None:
    middleware = budget(recall_tool=True)
    ask(agent_of(scripted(), middleware), ("human", "My bicycle is blue."))
    model = scripted(wants("recall", query="my bicycle"), "Unknown.")
    config = {"configurable": {"thread_id": "c1", "user_id": "eve"}}
    state = ask(agent_of(model, middleware), ("human", "Which bicycle?"), config)
    [result] = [message for message in state["messages"] if isinstance(message, ToolMessage)]
    assert "blue" not in result.text


def test_without_the_recall_tool_the_agent_has_no_other_tools() -> None:
    model = scripted()
    run_agent("invoke", agent_of(model, budget(), tools=[look_up]), ("human", "Hi"))
    assert [[made.name for made in bound] for bound in model.bound] == [["look_up"]]


# -- Whose run it is, and which store


def test_a_run_without_a_thread_is_refused(ask: Ask) -> None:
    with pytest.raises(MissingScopeError, match="thread_id"):
        ask(agent_of(scripted(), budget(default_user="ada"), checkpointer=None), ("human", "Hi"), {})


def test_a_run_without_a_user_is_refused(ask: Ask) -> None:
    with pytest.raises(MissingScopeError, match="user_id"):
        ask(agent_of(scripted(), budget()), ("human", "Hi"), {"configurable": {"thread_id": "c1"}})


@pytest.mark.parametrize(
    ("configurable", "context", "user", "conversation"),
    [
        ({}, None, "nobody", "c1"),
        ({"user_id": "ada"}, None, "ada", "c1"),
        ({"langgraph_auth_user": {"identity": "eve"}}, None, "eve", "c1"),
        ({"user_id": "ada", "langgraph_auth_user": {"identity": "eve"}}, None, "ada", "c1"),
        ({"user_id": "ada"}, RunContext(user_id="bob", conversation_id="other"), "bob", "other"),
    ],
)
def test_the_conversation_is_that_of_the_run(
    ask: Ask, configurable: dict[str, Any], context: RunContext | None, user: str, conversation: str
) -> None:
    middleware = budget(default_user="nobody")
    agent = agent_of(scripted(), middleware, context_schema=RunContext)
    ask(agent, ("human", "Hi"), {"configurable": {"thread_id": "c1", **configurable}}, context=context)
    kept = middleware.pipeline.get_messages(user_id=user, conversation_id=conversation)
    assert [message.text for message in kept] == ["Hi", "Fine."]


def test_settings_of_a_run_s_context_lie_over_the_pipeline_s(ask: Ask) -> None:
    agent = agent_of(scripted(), budget(), context_schema=RunContext)
    state = ask(agent, ("human", "Hi"), context=RunContext(settings={"max_context_tokens": 700}))
    assert state["ctxbudget_report"]["budget_tokens"] == 700


def test_a_context_of_the_application_s_own_does_not_matter(ask: Ask) -> None:
    agent = agent_of(scripted(), budget(), context_schema=dict)
    assert ask(agent, ("human", "Hi"), context={"user_id": "x"})["messages"][-1].text == "Fine."


@pytest.mark.parametrize("runtime_store", [True, False])
def test_the_agent_s_store_is_used_where_that_is_wanted(ask: Ask, runtime_store: bool) -> None:
    given, own = InMemoryStore(), InMemoryStore()
    middleware = budget(store=own, runtime_store=runtime_store, recall_tool=True)
    model = scripted(wants("recall", query="bicycle"), "Blue.")
    state = ask(agent_of(model, middleware, store=given), ("human", "My bicycle is blue."))
    used, other = (given, own) if runtime_store else (own, given)
    kept = ContextPipeline(store=used).get_messages(user_id="ada", conversation_id="c1")
    assert kept == state["messages"]
    assert other.list_namespaces() == []


def test_a_pipeline_and_options_are_refused() -> None:
    with pytest.raises(InvalidSettingsError):
        ContextBudgetMiddleware(ContextPipeline(), system_prompt="You help.")


# -- Many at once, and inside of others


@pytest.mark.parametrize("mode", ["threads", "tasks"])
def test_many_conversations_at_once_keep_apart(mode: str) -> None:
    middleware = budget()
    model = scripted(*[f"Answer {n}." for n in range(200)])
    agent = agent_of(model, middleware)
    configs = [{"configurable": {"thread_id": f"c{n}", "user_id": f"u{n % 3}"}} for n in range(12)]
    turns = [(n, config) for n in range(3) for config in configs]

    async def tasks() -> None:
        for n in range(3):
            asked = {"messages": [("human", f"Turn {n}")]}
            await asyncio.gather(*(agent.ainvoke(asked, config) for config in configs))

    if mode == "tasks":
        asyncio.run(tasks())
    else:
        with ThreadPoolExecutor(4) as pool:
            list(
                pool.map(
                    lambda config: [agent.invoke({"messages": [("human", f"Turn {n}")]}, config) for n in range(3)],
                    configs,
                )
            )
    assert len(turns) == len(model.seen)
    for config in configs:
        scope = {"user_id": config["configurable"]["user_id"], "conversation_id": config["configurable"]["thread_id"]}
        kept = middleware.pipeline.get_messages(**scope)
        assert kept == agent.get_state(config).values["messages"]
        assert [message.text for message in kept[::2]] == ["Turn 0", "Turn 1", "Turn 2"]


def test_an_agent_with_a_name_is_a_node_of_another_graph(ask: Ask) -> None:
    middleware, model = budget(), scripted("One.", "Two.")
    parent = StateGraph(MessagesState)
    parent.add_node("helper", create_agent(model, [], middleware=[middleware], name="helper"))
    parent.add_edge(START, "helper")
    graph = parent.compile(checkpointer=InMemorySaver())
    ask(graph, ("human", "First?"))
    state = ask(graph, ("human", "Second?"))
    assert [message.text for message in state["messages"]] == ["First?", "One.", "Second?", "Two."]
    assert [message.text for message in model.seen[1]] == ["First?", "One.", "Second?"]
    assert middleware.pipeline.get_messages(user_id="ada", conversation_id="c1") == state["messages"]


def delegating(
    middleware: ContextBudgetMiddleware, parts: int, helpers: ContextBudgetMiddleware | None = None, **context: Any
) -> tuple[Any, Scripted, Scripted]:
    """An agent that has another one as a tool, with the same middleware or its own, and calls it so often at once."""
    helper_model, model = scripted("Part done."), scripted(wants(*["delegate"] * parts, task="a part"), "All done.")
    helper = create_agent(helper_model, [], middleware=[helpers or middleware], context_schema=RunContext)

    @tool
    def delegate(task: str) -> str:
        """Have a helper do a task."""
        made: list[AnyMessage] = helper.invoke({"messages": [HumanMessage(task)]}, **context)["messages"]
        return made[-1].text

    return agent_of(model, middleware, tools=[delegate], context_schema=RunContext), model, helper_model


@pytest.mark.parametrize("context", [{}, {"context": RunContext(conversation_id="helper")}])
def test_an_agent_as_a_tool_sees_its_task_alone_and_its_caller_goes_on(ask: Ask, context: dict[str, Any]) -> None:
    middleware = budget()
    agent, model, helper = delegating(middleware, 1, **context)
    state = ask(agent, {"messages": [*long_history(4), HumanMessage("Do it all.", id="q")]})
    assert [[message.text for message in seen] for seen in helper.seen] == [["a part"]]
    assert [message.type for message in model.seen[1][-3:]] == ["human", "ai", "tool"]
    assert model.seen[1][: len(model.seen[0])] == model.seen[0]
    assert middleware.pipeline.get_messages(user_id="ada", conversation_id="c1") == state["messages"]


@pytest.mark.parametrize("name", [None, "helper"])
def test_several_agents_as_tools_at_once_see_their_tasks_alone(ask: Ask, name: str | None) -> None:
    middleware = budget()
    helpers = ContextBudgetMiddleware(middleware.pipeline, default_user="ada", agent=name)
    agent, _, helper = delegating(middleware, 3, helpers)
    state = ask(agent, {"messages": [*long_history(4), HumanMessage("Do it all.", id="q")]})
    assert [[message.text for message in seen] for seen in helper.seen] == [["a part"]] * 3
    assert state["messages"][-1].text == "All done."
    assert middleware.pipeline.get_messages(user_id="ada", conversation_id="c1") == state["messages"]


def test_an_agent_with_a_name_leaves_the_conversation_of_its_caller_alone(ask: Ask) -> None:
    middleware = budget()
    agent, *_ = delegating(middleware, 1, ContextBudgetMiddleware(middleware.pipeline, default_user="ada", agent="h"))
    ask(agent, {"messages": [*long_history(4), HumanMessage("Do it all.", id="q")]})
    kept = middleware.pipeline.get_messages(user_id="ada", conversation_id="c1 (agent h)")
    assert [message.text for message in kept] == ["a part", "Part done."]
    assert middleware.pipeline.list_conversations(user_id="ada") == ["c1", "c1 (agent h)"]


@tool("recall")
def own_recall(what: str) -> str:
    """Call a product back."""
    return what


def told_of_recall(*tools: Any, **options: Any) -> list[str]:
    agent = agent_of(scripted("Fine."), budget(**options), tools=tools)
    report = run_agent("invoke", agent, ("human", "Hi"))["ctxbudget_report"]
    return [failure for failure in report["failures"] if "'recall'" in failure]


def test_a_tool_that_takes_the_place_of_the_recall_tool_is_told() -> None:
    assert len(told_of_recall(own_recall, recall_tool=True)) == 1


def test_a_tool_of_that_name_is_no_matter_without_the_recall_tool() -> None:
    assert told_of_recall(own_recall, recall_tool=False) == told_of_recall(recall_tool=True) == []


def test_a_turn_goes_on_from_a_checkpoint_in_postgres(postgres: str) -> None:
    first, second = scripted(wants("look_up", topic="lamps")), scripted("On the shelf.")
    config: dict[str, Any] = {"configurable": {"thread_id": str(uuid4()), "user_id": "ada"}}
    layer = clock_layer()
    with PostgresSaver.from_conn_string(postgres) as saver:
        saver.setup()

        def agent(model: Scripted, **options: Any) -> Any:  # of another process: it knows nothing but the checkpoint
            middleware = budget(settings={"layers": [layer]})
            return agent_of(model, middleware, tools=[look_up], checkpointer=saver, **options)

        run_agent("invoke", agent(first, interrupt_before=["tools"]), ("human", "Where is it?"), config)
        state = run_agent("invoke", agent(second), None, config)
    assert [message.type for message in state["messages"]] == ["human", "ai", "tool", "ai"]
    assert second.seen[0][0].text == first.seen[0][0].text
    assert "It is 1 o'clock." in first.seen[0][0].text
