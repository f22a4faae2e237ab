"""`ContextBudgetMiddleware`: whose run it is, its store, the recall tool; many runs at once, and inside of others."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.integrations.middleware import ContextBudgetMiddleware
from langchain_ctxbudget.pipeline.runs import RunContext
from tests.integration_tests.test_middleware import (
    Ask,
    Scripted,
    agent_of,
    ask,
    budget,
    long_history,
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


# -- Whose run it is, and which store


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


class Wrapped(Scripted):
    """A model that hands tools on to one that binds none."""

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return FakeListChatModel(responses=[""]).bind_tools(tools)


@pytest.mark.parametrize("model", [FakeListChatModel(responses=["Fine."]), Wrapped(responses=[AIMessage("Fine.")])])
def test_a_model_that_cannot_bind_tools_answers_without_the_recall_tool_and_that_is_told(ask: Ask, model: Any) -> None:
    state = ask(agent_of(model, budget(recall_tool=True)), ("human", "Hi"))
    assert state["messages"][-1].text == "Fine."
    assert state["ctxbudget_report"]["overhead_tokens"].get("tool schemas", 0) == 0
    [told] = state["ctxbudget_report"]["failures"]
    assert f"{type(model).__name__} cannot bind tools" in told
