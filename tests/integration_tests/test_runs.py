"""Runs bring a user, a conversation, a store and a model along, or none of them."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import FakeListChatModel
from langchain_core.language_models.base import LangSmithParams
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
from langchain_ctxbudget.pipeline import Prompter, RunContext, run_of
from langchain_ctxbudget.providers import ANTHROPIC, GOOGLE, Profile
from langchain_ctxbudget.stores import Scope
from tests.integration_tests.agents import scripted
from tests.integration_tests.test_pipeline import chat

Way = Callable[..., Any]
"""Runs a pipeline with a config and a context; `default_user` and others are options."""


# -- What applications give as a context


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


KINDS = [Plain, Frozen, Mine, RunContext, Model, Mapped, Tupled, Thing]
"""Contexts that can name a user."""
WITHOUT_USER: list[Any] = [
    Application(),
    {"database": "db"},
    Mine(),
    Plain(),
    Thing(),
    RunContext(persona_id="p"),
]


# -- The ways to run


THREAD: dict[str, Any] = {"thread_id": "t1"}
MESSAGES: list[BaseMessage] = [
    HumanMessage("My boat is red.", id="m1"),
    AIMessage("Nice.", id="m2"),
]
STATE = {"messages": [*MESSAGES, HumanMessage("Which boat?", id="m3")]}


def run(runnable: Any, configurable: dict[str, Any], context: Any) -> Any:
    config = {"configurable": configurable}
    if context is None:
        return runnable.invoke(STATE, config)
    return runnable.invoke(STATE, config, context=context)


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
    agent = create_agent(scripted("Fine."), middleware=[middleware], store=store)
    return run(agent, configurable, context)


def by_graph(
    pipeline: ContextPipeline, configurable: Any, context: Any, store: Any = None, **options: Any
) -> Any:
    graph = build_context_graph(pipeline, **options)
    graph.store = store
    return run(graph, configurable, context)


def by_node(
    pipeline: ContextPipeline, configurable: Any, context: Any, store: Any = None, **options: Any
) -> Any:
    graph = in_a_node(build_context_graph(pipeline, **options), store)
    return run(graph, configurable, context)


def by_runnable(
    pipeline: ContextPipeline, configurable: Any, context: Any, store: Any = None, **options: Any
) -> Any:
    step = pipeline.as_runnable(**options)

    def node(state: State) -> dict[str, Any]:
        step.invoke({"messages": state["messages"]})
        return {}

    return run(in_a_node(node, store), configurable, context)


every_way = pytest.mark.parametrize("way", [by_middleware, by_graph, by_node, by_runnable])
every_kind = pytest.mark.parametrize("kind", KINDS)


# -- Whose a run is


def type_name(context: object) -> str:
    return type(context).__name__


def users_of(way: Way, configurable: dict[str, Any], context: Any) -> set[str]:
    """Returns whose conversations are in the store after a run, by their labels there."""
    store = InMemoryStore()
    pipeline = ContextPipeline({"learn": False}, store=store)
    way(pipeline, THREAD | configurable, context, default_user="nobody")
    return users_in(store)


def users_in(store: InMemoryStore) -> set[str]:
    return {namespace[1] for namespace in store.list_namespaces(max_depth=2)} - {"shared"}


def check_refused(
    way: Way, configurable: dict[str, Any], context: Any, error: type[Exception], message: str
) -> None:
    """Holds a run to be refused with an error, and to leave nothing."""
    store = InMemoryStore()
    pipeline = ContextPipeline({"learn": False}, store=store)
    with pytest.raises(error, match=message):
        way(pipeline, THREAD | configurable, context, default_user="nobody")
    assert users_in(store) == set()


@every_way
@every_kind
def test_the_user_of_the_context_wins(way: Way, kind: Any) -> None:
    assert users_of(way, {"user_id": "eve"}, kind(user_id="ada")) == {"ada~"}


@every_way
@every_kind
def test_an_empty_user_is_an_error(way: Way, kind: Any) -> None:
    message = r"give its context .* a user_id"
    check_refused(way, {}, kind(user_id=""), MissingScopeError, message)


@every_way
@pytest.mark.parametrize("context", WITHOUT_USER, ids=type_name)
def test_a_context_without_a_user_is_an_error(way: Way, context: Any) -> None:
    check_refused(way, {}, context, MissingScopeError, r"give its context .* a user_id")


@every_way
@every_kind
def test_a_user_of_blanks_is_a_user(way: Way, kind: Any) -> None:
    assert users_of(way, {"user_id": "eve"}, kind(user_id="  ")) == {"  ~"}


@every_way
@pytest.mark.parametrize("context", [*WITHOUT_USER, Plain(user_id="")], ids=type_name)
def test_the_user_of_the_config_counts_where_the_context_has_none(way: Way, context: Any) -> None:
    assert users_of(way, {"user_id": "ada"}, context) == {"ada~"}


@every_way
@pytest.mark.parametrize("context", WITHOUT_USER, ids=type_name)
def test_the_user_of_the_server_counts_where_the_context_has_none(way: Way, context: Any) -> None:
    configurable = {"langgraph_auth_user": {"identity": "ada"}}
    assert users_of(way, configurable, context) == {"ada~"}


@every_way
@pytest.mark.parametrize(
    "context",
    [{}, RunContext(), ContextSettings(max_context_tokens=9_000)],
    ids=["nothing", "an empty context", "settings"],
)
def test_the_default_user_counts_where_a_run_says_nothing(way: Way, context: Any) -> None:
    assert users_of(way, {}, context) == {"nobody~"}


@every_way
def test_the_default_user_counts_for_an_anonymous_client(way: Way) -> None:
    configurable = {
        "graph_id": "agent",
        "user_id": "",
        "langgraph_auth_user": None,
        "model": "small",
    }
    assert users_of(way, configurable, {"model": "small"}) == {"nobody~"}


@every_way
def test_a_misspelt_user_is_an_error(way: Way) -> None:
    names = {"userId": "ada"}
    check_refused(way, names, names, InvalidSettingsError, "is 'user_id' meant")


@every_way
@every_kind
def test_a_client_of_a_server_names_no_other_user(way: Way, kind: Any) -> None:
    configurable = {"graph_id": "agent", "langgraph_auth_user": {"identity": "eve"}}
    message = "names the user 'ada'"
    check_refused(way, configurable, kind(user_id="ada"), ForeignUserError, message)


@dataclass
class Whole:
    user_id: str = "ada"
    conversation_id: str = "c9"
    persona_id: str = "pirate"
    device_id: str = "phone"


def test_a_context_names_the_conversation() -> None:
    pipeline = ContextPipeline(store=InMemoryStore())

    by_graph(pipeline, THREAD, Whole())

    assert pipeline.list_conversations(user_id="ada") == ["c9"]


def test_a_context_names_the_persona() -> None:
    pipeline = ContextPipeline(store=InMemoryStore())
    pipeline.save_settings({"allocation": "ratio"}, user_id="ada", persona_id="pirate")

    by_graph(pipeline, THREAD, Whole())

    report = pipeline.last_report(user_id="ada", conversation_id="c9")
    assert report is not None
    assert "persona" in report.settings_from


# -- Runs without a thread

ADA: dict[str, Any] = {"user_id": "ada"}


def pipeline_with_a_boat() -> ContextPipeline:
    """Returns a pipeline that keeps and learns what it can, with a message about a boat."""
    settings = {"keep_snapshots": 5, "learn_every": 1, "max_context_tokens": 500}
    pipeline = ContextPipeline(settings, store=InMemoryStore())
    boat = HumanMessage("My boat is called Aurora.")
    pipeline.add_messages([boat], user_id="ada", conversation_id="t1")
    pipeline.flush(30)
    return pipeline


@every_way
def test_a_run_without_a_thread_changes_nothing_in_the_store(way: Way) -> None:
    pipeline = pipeline_with_a_boat()
    before = pipeline.export_user(user_id="ada")

    way(pipeline, ADA, None)

    assert pipeline.flush(30)
    assert pipeline.export_user(user_id="ada") == before


@every_way
def test_a_run_without_a_thread_is_told_so_in_its_report(way: Way) -> None:
    pipeline = pipeline_with_a_boat()

    way(pipeline, ADA, None)

    report = pipeline.engine.recent.last.report()
    assert report is not None
    assert "thread_id" in "\n".join(report.failures)


def test_runs_without_a_thread_do_not_see_each_other() -> None:
    pipeline = ContextPipeline(store=InMemoryStore())
    model = scripted("Fine.")
    agent = create_agent(model, middleware=[ContextBudgetMiddleware(pipeline)])

    for number in range(3):
        messages = [*MESSAGES[:number], HumanMessage(f"Word {number}.")]
        agent.invoke({"messages": messages}, {"configurable": ADA})

    first, second, third = map(str, model.seen)
    assert "Word 0." in first
    assert "Word 0." not in second
    assert "Word 0." not in third
    assert pipeline.list_conversations(user_id="ada") == []
    assert pipeline.engine.workspace.open_conversations.all() == {}


# -- What becomes of what was made for runs


SCOPE = {"user_id": "ada", "conversation_id": "t1"}
CONFIG: dict[str, Any] = {"configurable": {"thread_id": "t1", "user_id": "ada"}}


def scope_of(agent: str | None, thread: str) -> Scope:
    return run_of({"configurable": {"thread_id": thread}}, "ada", agent=agent).scope


def test_agents_with_names_have_conversations_of_their_own() -> None:
    scopes = {
        scope_of(None, "t"),
        scope_of(None, "t/a"),
        scope_of("a", "t"),
        scope_of("a", "t/a"),
        scope_of("b", "t"),
        scope_of("b", "t/a"),
    }
    assert len(scopes) == 6


@every_way
def test_the_store_of_the_run_outweighs_the_pipeline_s(way: Way) -> None:
    own = InMemoryStore()
    of_the_run = InMemoryStore()
    pipeline = ContextPipeline({"learn": False}, store=own)

    way(pipeline, THREAD | ADA, None, of_the_run, runtime_store=True)

    assert ContextPipeline(store=of_the_run).get_messages(**SCOPE)[:2] == MESSAGES
    assert own.search(()) == []


@every_way
def test_a_pipeline_may_keep_to_its_own_store(way: Way) -> None:
    own = InMemoryStore()
    of_the_run = InMemoryStore()
    pipeline = ContextPipeline({"learn": False}, store=own)

    way(pipeline, THREAD | ADA, None, of_the_run, runtime_store=False)

    assert ContextPipeline(store=own).get_messages(**SCOPE)[:2] == MESSAGES
    assert of_the_run.search(()) == []


class Served(NamedTuple):
    """A pipeline, and a store of a run in which it has a conversation."""

    pipeline: ContextPipeline
    store: InMemoryStore


@pytest.fixture
def served() -> Served:
    pipeline = ContextPipeline(store=InMemoryStore())
    store = InMemoryStore()
    graph = in_a_node(build_context_graph(pipeline), store)
    graph.invoke({"messages": [*chat(3), HumanMessage("And now?")]}, CONFIG)
    assert store.search(())
    return Served(pipeline, store)


def test_clearing_reaches_the_stores_of_runs(served: Served) -> None:
    served.pipeline.clear(**SCOPE)

    assert ContextPipeline(store=served.store).get_messages(**SCOPE) == []


def test_erasing_reaches_the_stores_of_runs(served: Served) -> None:
    assert served.pipeline.erase_user(user_id="ada") > 0

    assert served.store.search(()) == []


def of_openai(name: str) -> ChatOpenAI:
    return ChatOpenAI(model=name, api_key="x")  # type: ignore[arg-type]


@pytest.mark.slow
def test_more_models_at_once_than_are_kept_do_not_close_each_other() -> None:
    engine = ContextPipeline({"max_context_tokens": 800}, store=InMemoryStore()).engine

    def tokens_of_a_prompt(number: int) -> int:
        variant = engine.for_model(of_openai(f"gpt-4o-{number}"))
        prompter = Prompter(variant, Scope("ada", f"t{number}"))
        draft = drive(prompter.answer(chat(3), [HumanMessage("Hi")]))
        assert draft.context is not None
        return draft.context.report.total_tokens

    with ThreadPoolExecutor(8) as pool:
        totals = set(pool.map(tokens_of_a_prompt, range(48)))

    assert len(totals) == 1


class NamelessModel(FakeListChatModel):
    """A model that tells its provider, and not its name."""

    provider: str

    def _get_ls_params(self, **_: object) -> LangSmithParams:  # type: ignore[override]
        return LangSmithParams(ls_provider=self.provider)


@pytest.mark.parametrize(("provider", "profile"), [("anthropic", ANTHROPIC), ("google", GOOGLE)])
def test_a_model_without_a_name_has_its_own_provider(provider: str, profile: Profile) -> None:
    engine = ContextPipeline(model="gpt-4o", store=InMemoryStore()).engine

    of_run = engine.for_model(NamelessModel(responses=["Fine."], provider=provider))

    assert of_run.target.profile is profile


def test_models_without_names_of_two_providers_are_two_targets() -> None:
    engine = ContextPipeline(model="gpt-4o", store=InMemoryStore()).engine
    models = [NamelessModel(responses=["Fine."], provider=name) for name in ("anthropic", "google")]

    names = [engine.for_model(model).target.profile.name for model in models]

    assert names == ["anthropic", "google"]
