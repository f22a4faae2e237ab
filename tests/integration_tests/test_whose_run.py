"""Whose run it is, by every way in: a context of any class, a server's users, and runs without a thread."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.store.memory import InMemoryStore
from pydantic import BaseModel
from typing_extensions import TypedDict

from langchain_ctxbudget import (
    BudgetedRetriever,
    ContextPipeline,
    ContextSettings,
    build_context_graph,
    create_recall_tool,
)
from langchain_ctxbudget.errors import ForeignUserError, InvalidSettingsError, MissingScopeError
from langchain_ctxbudget.integrations.middleware import ContextBudgetMiddleware
from langchain_ctxbudget.pipeline.runs import RunContext
from tests.integration_tests.agents import long_history, look_up, scripted, wants

Way = Callable[..., Any]
"""From a pipeline, a config and a context to what a run gives or shows; `default_user` and others are options."""


@dataclass
class Plain:
    user_id: str | None = None
    plan: str = "free"


@dataclass(frozen=True, slots=True)
class Frozen:
    user_id: str | None = None


@dataclass
class Mine(RunContext):
    plan: str = "free"


class Model(BaseModel):
    user_id: str | None = None


class Mapped(TypedDict, total=False):
    user_id: str | None


class Tupled(NamedTuple):
    user_id: str | None = None


class Thing:
    def __init__(self, user_id: str | None = None) -> None:
        self.user_id = user_id


@dataclass
class Application:
    """A context that has nothing to do with users."""

    database: str = "db"


KINDS: dict[str, Any] = {
    "dataclass": Plain,
    "frozen dataclass": Frozen,
    "inherited": Mine,
    "ours": RunContext,
    "pydantic": Model,
    "TypedDict": Mapped,
    "NamedTuple": Tupled,
    "object": Thing,
}
THREAD: dict[str, Any] = {"thread_id": "t1"}
MESSAGES: list[BaseMessage] = [HumanMessage("My boat is red.", id="m1"), AIMessage("Nice.", id="m2")]
ASKED = {"messages": [*MESSAGES, HumanMessage("Which boat?", id="m3")]}


def run(runnable: Any, given: Any, configurable: dict[str, Any], context: Any = None) -> Any:
    options: dict[str, Any] = {} if context is None else {"context": context}
    return runnable.invoke(given, {"configurable": configurable}, **options)


def in_a_node(step: Callable[[Any], Any]) -> Any:
    """A graph of the application's own, with a context of any kind."""
    graph = StateGraph(MessagesState)
    graph.add_node("step", step)
    graph.add_edge(START, "step")
    graph.add_edge("step", END)
    return graph.compile()


def by_middleware(pipeline: ContextPipeline, configurable: Any, context: Any, **options: Any) -> Any:
    middleware = ContextBudgetMiddleware(pipeline, **options)
    agent = create_agent(scripted("Fine."), middleware=[middleware])
    return run(agent, ASKED, configurable, context)


def by_graph(pipeline: ContextPipeline, configurable: Any, context: Any, **options: Any) -> Any:
    return run(build_context_graph(pipeline, **options), ASKED, configurable, context)


def by_node(pipeline: ContextPipeline, configurable: Any, context: Any, **options: Any) -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("context", build_context_graph(pipeline, **options))
    graph.add_edge(START, "context")
    graph.add_edge("context", END)
    return run(graph.compile(), ASKED, configurable, context)


def by_runnable(pipeline: ContextPipeline, configurable: Any, context: Any, **options: Any) -> Any:
    step = pipeline.as_runnable(**options)
    graph = in_a_node(lambda state: step.invoke({"messages": state["messages"]}) and {})
    return run(graph, ASKED, configurable, context)


WAYS: dict[str, Way] = {"middleware": by_middleware, "graph": by_graph, "node": by_node, "runnable": by_runnable}

every_way = pytest.mark.parametrize("way", WAYS)


def users_of(store: InMemoryStore) -> set[str]:
    return {namespace[1] for namespace in store.list_namespaces(max_depth=2)} - {"shared", "counts"}


@every_way
def test_the_user_of_a_context_of_any_kind_counts(way: str) -> None:
    for name, kind in KINDS.items():
        store, configurable = InMemoryStore(), {**THREAD, "user_id": "eve"}
        WAYS[way](ContextPipeline(store=store), configurable, kind(user_id="ada"), default_user="nobody")
        assert users_of(store) == {"ada~"}, name


@every_way
def test_a_context_that_names_no_user_is_never_that_of_the_default_one(way: str) -> None:
    empty = [kind(user_id=blank) for blank in ("", "  ") for kind in KINDS.values()]
    for context in (*empty, Application(), {"database": "db"}, Mine(), Plain(), Thing(), RunContext(persona_id="p")):
        store = InMemoryStore()
        with pytest.raises(MissingScopeError, match=r"give its context .* a user_id"):
            WAYS[way](ContextPipeline(store=store), THREAD, context, default_user="nobody")
        assert users_of(store) == set()


@every_way
def test_beside_a_context_that_names_no_user_the_config_s_counts(way: str) -> None:
    for context in (Application(), {"database": "db"}, Plain(user_id=""), RunContext(persona_id="p")):
        for named in ({"user_id": "ada"}, {"langgraph_auth_user": {"identity": "ada"}}):
            store = InMemoryStore()
            WAYS[way](ContextPipeline(store=store), {**THREAD, **named}, context, default_user="nobody")
            assert users_of(store) == {"ada~"}


@every_way
def test_a_context_that_says_nothing_is_none(way: str) -> None:
    for context in ({}, RunContext(), ContextSettings(max_context_tokens=9_000)):
        store = InMemoryStore()
        WAYS[way](ContextPipeline(store=store), THREAD, context, default_user="nobody")
        assert users_of(store) == {"nobody~"}


@every_way
def test_a_user_that_is_nearly_named_is_not_the_default_one(way: str) -> None:
    configurable = {**THREAD, "userId": "ada"}  # as LangGraph Server gives a client's configurable as context
    with pytest.raises(InvalidSettingsError, match="user_id"):
        WAYS[way](ContextPipeline(), configurable, {"userId": "ada"}, default_user="nobody")


@every_way
def test_on_a_server_no_context_names_another_user_than_the_authenticated_one(way: str) -> None:
    served = {**THREAD, "graph_id": "agent", "langgraph_auth_user": {"identity": "eve"}}
    for kind in KINDS.values():
        with pytest.raises(ForeignUserError, match="names the user 'ada'"):
            WAYS[way](ContextPipeline(), served, kind(user_id="ada"))


@every_way
def test_without_authentication_a_server_s_user_is_the_default_one(way: str) -> None:
    store = InMemoryStore()
    served = {**THREAD, "graph_id": "agent", "user_id": "", "langgraph_auth_user": None, "model": "small"}
    WAYS[way](ContextPipeline(store=store), served, {"model": "small"}, default_user="developer")
    assert users_of(store) == {"developer~"}


def test_a_context_s_conversation_persona_and_device_count() -> None:
    @dataclass
    class Said:
        user_id: str = "ada"
        conversation_id: str = "c9"
        persona_id: str = "pirate"
        device_id: str = "phone"

    store = InMemoryStore()
    pipeline = ContextPipeline(store=store)
    pipeline.save_settings({"allocation": "ratio"}, user_id="ada", persona_id="pirate")
    by_graph(pipeline, THREAD, Said())
    assert pipeline.list_conversations(user_id="ada") == ["c9"]
    report = pipeline.last_report(user_id="ada", conversation_id="c9")
    assert report is not None
    assert "persona" in report.settings_from


def test_the_recall_tool_reads_for_the_user_of_any_context() -> None:
    pipeline = ContextPipeline(store=InMemoryStore())
    pipeline.add_messages(MESSAGES, user_id="ada", conversation_id="t1")
    recall = create_recall_tool(pipeline, default_user="nobody")
    agent = create_agent(scripted(wants("recall", reference="1"), "Red."), [recall])
    for context in (Plain(user_id="ada"), {"user_id": "ada"}):
        state = run(agent, {"messages": [HumanMessage("Which boat?", id="q")]}, THREAD, context)
        assert "boat is red" in state["messages"][-2].text


@pytest.mark.parametrize("fixed", [True, False])
def test_a_retriever_reads_for_the_user_of_any_context(fixed: bool) -> None:
    pipeline = ContextPipeline(store=InMemoryStore())
    pipeline.add_messages(MESSAGES, user_id="ada", conversation_id="t1")
    whose: dict[str, Any] = {"user_id": "ada"} if fixed else {"default_user": "nobody"}
    retriever = BudgetedRetriever(pipeline=pipeline, k=1, **whose)
    found: list[str] = []

    def step(_: Any) -> dict[str, Any]:
        found.extend(document.page_content for document in retriever.invoke("Which boat?"))
        return {}

    graph = in_a_node(step)
    graph.invoke(ASKED, {"configurable": THREAD}, context=Plain(user_id="ada"))
    assert found == ["My boat is red."]
    other = ForeignUserError if fixed else MissingScopeError
    with pytest.raises(other):
        graph.invoke(ASKED, {"configurable": THREAD}, context=Plain(user_id="eve" if fixed else None))


# -- Runs without a thread

ADA: dict[str, Any] = {"user_id": "ada"}


@every_way
def test_a_run_without_a_thread_leaves_nothing_in_the_store_and_loses_nothing(way: str) -> None:
    store = InMemoryStore()
    pipeline = ContextPipeline({"keep_snapshots": 5, "learn_every": 1, "max_context_tokens": 500}, store=store)
    pipeline.add_messages([HumanMessage("My boat is called Aurora.")], user_id="ada", conversation_id="t1")
    pipeline.flush(30)
    before = pipeline.export_user(user_id="ada")
    WAYS[way](pipeline, ADA, None)
    assert pipeline.flush(30)
    assert pipeline.export_user(user_id="ada") == before


@every_way
def test_a_run_without_a_thread_is_told_in_its_report_and_logged_once(
    way: str, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = ContextPipeline(store=InMemoryStore())
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            WAYS[way](pipeline, ADA, None)
            report = pipeline.engine.recent.report
            assert report is not None
            assert [told for told in report.failures if "thread_id" in told]
    assert len([record for record in caplog.records if "thread_id" in record.message]) == 1


def by_agent(pipeline: ContextPipeline, model: Any) -> Any:
    return create_agent(model, [look_up], middleware=[ContextBudgetMiddleware(pipeline)])


def by_loop(pipeline: ContextPipeline, model: Any) -> Any:
    """The context graph as a node of an agent's loop."""
    tools = [look_up, create_recall_tool(pipeline)]

    class State(MessagesState):
        llm_input_messages: list[Any]
        ctxbudget_turn: dict[str, Any]

    graph = StateGraph(State)
    graph.add_node("context", build_context_graph(pipeline, tools=tools))
    graph.add_node("model", lambda state: {"messages": [model.invoke(state["llm_input_messages"])]})
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "context")
    graph.add_edge("context", "model")
    graph.add_conditional_edges("model", lambda state: "tools" if state["messages"][-1].tool_calls else END)
    graph.add_edge("tools", "context")
    return graph.compile()


LOOPS = {"middleware": by_agent, "node": by_loop}


@pytest.mark.parametrize("way", LOOPS)
def test_an_agent_without_a_thread_gets_the_prompts_of_one_with_a_thread(way: str) -> None:
    calls = [wants("look_up", key=f"k{n}", topic=f"subject {n}", lines=8) for n in range(3)]
    prompts, answers = [], []
    for thread in ({}, THREAD):
        model = scripted(*calls, wants("recall", key="r", query="apple tree note 3"), "Done.")
        agent = LOOPS[way](ContextPipeline({"max_context_tokens": 2_500}, store=InMemoryStore()), model)
        state = run(agent, {"messages": [*long_history(60), HumanMessage("And now?", id="q")]}, ADA | thread)
        prompts.append([[(message.type, message.text) for message in seen] for seen in model.seen])
        answers.append([message.text for message in state["messages"] if message.type == "tool"])
    assert len(prompts[0]) == 5
    assert prompts[0] == prompts[1]
    assert answers[0] == answers[1]
    assert "note 3" in answers[0][-1]


@pytest.mark.parametrize("way", LOOPS)
def test_runs_without_a_thread_do_not_see_each_other(way: str) -> None:
    pipeline = ContextPipeline(store=InMemoryStore())
    model = scripted("Fine.")
    agent = LOOPS[way](pipeline, model)
    for number in range(3):
        agent.invoke({"messages": [*MESSAGES[:number], HumanMessage(f"Word {number}.")]}, {"configurable": ADA})
    assert ["Word 0." in str(seen) for seen in model.seen] == [True, False, False]
    assert pipeline.list_conversations(user_id="ada") == []


def test_an_agent_s_runs_without_a_thread_do_not_pile_up_in_memory() -> None:
    pipeline = ContextPipeline(store=InMemoryStore())
    agent = by_agent(pipeline, scripted("Fine."))
    for number in range(3):
        agent.invoke({"messages": [HumanMessage(f"Word {number}.")]}, {"configurable": ADA})
    assert pipeline.engine.workspace.open_conversations.all() == {}
