"""Runs bring a user, a conversation, a store and a model along, or none of them."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.store.memory import InMemoryStore
from pydantic import BaseModel
from typing_extensions import TypedDict

from langchain_ctxbudget import ContextPipeline, ContextSettings, build_context_graph
from langchain_ctxbudget.errors import ForeignUserError, InvalidSettingsError, MissingScopeError
from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.middleware import ContextBudgetMiddleware
from langchain_ctxbudget.pipeline import RunContext, run_of
from langchain_ctxbudget.prompt import Request
from langchain_ctxbudget.stores import Scope
from tests.integration_tests.agents import scripted
from tests.integration_tests.test_pipeline import chat

Way = Callable[..., Any]
"""From a pipeline, a config and a context to what a run gives or shows; `default_user` and others
are options."""


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
    database: str = "db"


KINDS: tuple[Any, ...] = (Plain, Frozen, Mine, RunContext, Model, Mapped, Tupled, Thing)
THREAD: dict[str, Any] = {"thread_id": "t1"}
MESSAGES: list[BaseMessage] = [
    HumanMessage("My boat is red.", id="m1"),
    AIMessage("Nice.", id="m2"),
]
ASKED = {"messages": [*MESSAGES, HumanMessage("Which boat?", id="m3")]}


def run(runnable: Any, given: Any, configurable: dict[str, Any], context: Any = None) -> Any:
    options: dict[str, Any] = {} if context is None else {"context": context}
    return runnable.invoke(given, {"configurable": configurable}, **options)


class State(MessagesState):
    """The two keys that a graph with the context graph as a node needs."""

    llm_input_messages: list[BaseMessage]


def in_a_node(step: Any, store: InMemoryStore | None = None) -> Any:
    graph = StateGraph(State)
    graph.add_node("step", step)
    graph.add_edge(START, "step")
    graph.add_edge("step", END)
    return graph.compile(store=store)


def by_middleware(
    pipeline: ContextPipeline, configurable: Any, context: Any, store: Any = None, **options: Any
) -> Any:
    middleware = ContextBudgetMiddleware(pipeline, **options)
    return run(
        create_agent(scripted("Fine."), middleware=[middleware], store=store),
        ASKED,
        configurable,
        context,
    )


def by_graph(
    pipeline: ContextPipeline, configurable: Any, context: Any, store: Any = None, **options: Any
) -> Any:
    graph = build_context_graph(pipeline, **options)
    graph.store = store
    return run(graph, ASKED, configurable, context)


def by_node(
    pipeline: ContextPipeline, configurable: Any, context: Any, store: Any = None, **options: Any
) -> Any:
    return run(
        in_a_node(build_context_graph(pipeline, **options), store), ASKED, configurable, context
    )


def by_runnable(
    pipeline: ContextPipeline, configurable: Any, context: Any, store: Any = None, **options: Any
) -> Any:
    step = pipeline.as_runnable(**options)
    graph = in_a_node(lambda state: step.invoke({"messages": state["messages"]}) and {}, store)
    return run(graph, ASKED, configurable, context)


WAYS: dict[str, Way] = {
    "middleware": by_middleware,
    "graph": by_graph,
    "node": by_node,
    "runnable": by_runnable,
}

every_way = pytest.mark.parametrize("way", WAYS)


NOBODY = (MissingScopeError, r"give its context .* a user_id")
NO_USER: list[Any] = [
    Application(),
    {"database": "db"},
    Mine(),
    Plain(),
    Thing(),
    RunContext(persona_id="p"),
]
SERVED = {"graph_id": "agent", "langgraph_auth_user": {"identity": "eve"}}
CLIENT = {"graph_id": "agent", "user_id": "", "langgraph_auth_user": None, "model": "small"}
WHOSE: list[tuple[dict[str, Any], Any, Any]] = [
    *(({"user_id": "eve"}, kind(user_id="ada"), "ada~") for kind in KINDS),
    *(({}, context, NOBODY) for context in (*(kind(user_id="") for kind in KINDS), *NO_USER)),
    *(({"user_id": "eve"}, kind(user_id="  "), "  ~") for kind in KINDS),
    *(({"user_id": "ada"}, context, "ada~") for context in (*NO_USER, Plain(user_id=""))),
    *(({"langgraph_auth_user": {"identity": "ada"}}, context, "ada~") for context in NO_USER),
    *(
        ({}, context, "nobody~")
        for context in ({}, RunContext(), ContextSettings(max_context_tokens=9_000))
    ),
    ({"userId": "ada"}, {"userId": "ada"}, (InvalidSettingsError, "is 'user_id' meant")),
    *((SERVED, kind(user_id="ada"), (ForeignUserError, "names the user 'ada'")) for kind in KINDS),
    (CLIENT, {"model": "small"}, "nobody~"),
]
"""What a run says, its context, and whose it is then, or the error."""


@every_way
def test_a_run_is_that_of_the_user_it_names_and_of_the_default_one_only_where_it_says_nothing(
    way: str,
) -> None:
    for configurable, context, outcome in WHOSE:
        store = InMemoryStore()
        pipeline = ContextPipeline({"learn": False}, store=store)
        if isinstance(outcome, str):
            WAYS[way](pipeline, THREAD | configurable, context, default_user="nobody")
        else:
            with pytest.raises(outcome[0], match=outcome[1]):
                WAYS[way](pipeline, THREAD | configurable, context, default_user="nobody")
        users = {namespace[1] for namespace in store.list_namespaces(max_depth=2)} - {"shared"}
        assert users == ({outcome} if isinstance(outcome, str) else set()), (configurable, context)


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


# -- Runs without a thread

ADA: dict[str, Any] = {"user_id": "ada"}


@every_way
def test_a_run_without_a_thread_leaves_nothing_in_the_store_loses_nothing_and_is_told_in_its_report(
    way: str,
) -> None:
    store = InMemoryStore()
    pipeline = ContextPipeline(
        {"keep_snapshots": 5, "learn_every": 1, "max_context_tokens": 500}, store=store
    )
    pipeline.add_messages(
        [HumanMessage("My boat is called Aurora.")], user_id="ada", conversation_id="t1"
    )
    pipeline.flush(30)
    before = pipeline.export_user(user_id="ada")
    WAYS[way](pipeline, ADA, None)
    assert pipeline.flush(30)
    assert pipeline.export_user(user_id="ada") == before
    report = pipeline.engine.recent.last.report()
    assert report is not None
    assert [told for told in report.failures if "thread_id" in told]


def test_runs_without_a_thread_do_not_see_each_other() -> None:
    pipeline = ContextPipeline(store=InMemoryStore())
    model = scripted("Fine.")
    agent = create_agent(model, middleware=[ContextBudgetMiddleware(pipeline)])
    for number in range(3):
        agent.invoke(
            {"messages": [*MESSAGES[:number], HumanMessage(f"Word {number}.")]},
            {"configurable": ADA},
        )
    assert ["Word 0." in str(seen) for seen in model.seen] == [True, False, False]
    assert pipeline.list_conversations(user_id="ada") == []
    assert pipeline.engine.workspace.open_conversations.all() == {}


# -- What becomes of what was made for runs

SCOPE = {"user_id": "ada", "conversation_id": "t1"}
CONFIG: dict[str, Any] = {"configurable": {"thread_id": "t1", "user_id": "ada"}}


def scope_of(
    default_user: str | None = None, agent: str | None = None, **configurable: Any
) -> Scope:
    return run_of({"configurable": configurable}, default_user, agent=agent).scope


def test_agents_with_names_have_conversations_of_their_own() -> None:
    scopes = {
        scope_of("ada", name, thread_id=thread)
        for name in (None, "a", "b")
        for thread in ("t", "t/a")
    }
    assert len(scopes) == 6


@every_way
def test_the_store_of_the_run_outweighs_the_pipeline_s(way: str) -> None:
    own = InMemoryStore()
    of_the_run = InMemoryStore()
    for preferred, used, other in ((True, of_the_run, own), (False, own, of_the_run)):
        pipeline = ContextPipeline({"learn": False}, store=own)
        before = len(other.search(()))
        WAYS[way](pipeline, THREAD | ADA, None, of_the_run, runtime_store=preferred)
        assert (
            ContextPipeline(store=used).get_messages(user_id="ada", conversation_id="t1")[:2]
            == MESSAGES
        )
        assert len(other.search(())) == before


def test_erasing_and_clearing_reach_the_stores_of_runs() -> None:
    store, pipeline = InMemoryStore(), ContextPipeline(store=InMemoryStore())
    graph = in_a_node(build_context_graph(pipeline), store)
    graph.invoke({"messages": [*chat(3), HumanMessage("And now?")]}, CONFIG)
    assert store.search(())
    pipeline.clear(**SCOPE)
    assert ContextPipeline(store=store).get_messages(**SCOPE) == []
    graph.invoke({"messages": [*chat(3), HumanMessage("And now?")]}, CONFIG)
    assert store.search(())
    assert pipeline.erase_user(user_id="ada") > 0
    assert store.search(()) == []


def of_openai(name: str = "gpt-4o") -> ChatOpenAI:
    return ChatOpenAI(model=name, api_key="x")  # type: ignore[arg-type]


def test_more_models_at_once_than_are_kept_do_not_close_each_other() -> None:
    engine = ContextPipeline({"max_context_tokens": 800}, store=InMemoryStore()).engine

    def ask(number: int) -> int:
        made = engine.for_model(of_openai(f"gpt-4o-{number}"))
        draft = drive(
            made.answer(Scope("ada", f"t{number}"), chat(3), [HumanMessage("Hi")], Request())
        )
        assert draft.context is not None
        return draft.context.report.total_tokens

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(ask, range(48)))) == 1
