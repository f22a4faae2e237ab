"""The node behind the model of a graph stores the turn that has ended, as the middleware does."""

import operator
import warnings
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, create_react_agent
from langgraph.store.memory import InMemoryStore
from typing_extensions import TypedDict

from langchain_ctxbudget import ContextPipeline, build_context_graph, build_remember_node
from langchain_ctxbudget.errors import InputError, InvalidSettingsError
from tests.integration_tests.agents import look_up, scripted, wants
from tests.integration_tests.conftest import Invoke

SETTINGS = {"max_context_tokens": 2_000, "learn": False}
RULE = "From now on, in every chat, never use emoji, please."
LIFTED = "You may use emoji again, forget that rule about never using emoji."


class State(MessagesState):
    llm_input_messages: list[AnyMessage]
    ctxbudget_turn: dict[str, Any]


@dataclass
class FieldsState:
    """A state that is no mapping."""

    messages: Annotated[list[AnyMessage], add_messages]
    llm_input_messages: list[AnyMessage] = field(default_factory=list)


def run_of(thread: str, user: str = "ada") -> dict[str, Any]:
    return {"configurable": {"thread_id": thread, "user_id": user}}


def texts(pipeline: ContextPipeline, thread: str, user: str = "ada") -> list[str]:
    messages = pipeline.get_messages(user_id=user, conversation_id=thread)
    return [message.text for message in messages]


def graph_of(pipeline: ContextPipeline, state: Any = State, **options: Any) -> Any:
    """Context, model and the node that remembers, one after the other."""
    graph = StateGraph(state)
    graph.add_sequence(
        [
            ("context", build_context_graph(pipeline)),
            ("model", lambda _: {"messages": [AIMessage("Noted.")]}),
            ("remember", build_remember_node(pipeline)),
        ]
    )
    graph.add_edge(START, "context")
    return graph.compile(checkpointer=InMemorySaver(), **options)


@pytest.fixture
def pipeline() -> ContextPipeline:
    return ContextPipeline(SETTINGS, store=InMemoryStore())


def said(text: str) -> dict[str, Any]:
    return {"messages": [HumanMessage(text)]}


def test_a_turn_is_stored_as_it_ends(pipeline: ContextPipeline, invoke: Invoke) -> None:
    invoke(graph_of(pipeline), said("My bike is green."), run_of("a"))
    assert texts(pipeline, "a") == ["My bike is green.", "Noted."]


def test_another_thread_finds_the_last_exchange(pipeline: ContextPipeline) -> None:
    graph = graph_of(pipeline)
    graph.invoke(said("My locker code is 4711."), run_of("a"))
    state = graph.invoke(said("What is my locker code?"), run_of("b"))
    assert "4711" in state["llm_input_messages"][-1].text


def test_a_rule_that_was_lifted_last_stays_lifted(pipeline: ContextPipeline) -> None:
    graph = graph_of(pipeline)
    for text in (RULE, "Hello there.", LIFTED):
        graph.invoke(said(text), run_of("a"))
    restarted = ContextPipeline(SETTINGS, store=pipeline.store)
    assert restarted.conversation("a", user_id="ada").rules() == []


def test_it_uses_the_store_of_the_run(pipeline: ContextPipeline) -> None:
    store = InMemoryStore()
    graph_of(pipeline, store=store).invoke(said("Hello"), run_of("a"))
    assert texts(ContextPipeline(SETTINGS, store=store), "a") == ["Hello", "Noted."]


def test_the_next_prompt_begins_as_the_last_one(pipeline: ContextPipeline) -> None:
    graph = graph_of(pipeline)
    first = graph.invoke(said("My bike is green."), run_of("a"))["llm_input_messages"]
    second = graph.invoke(said("Which colour is it?"), run_of("a"))["llm_input_messages"]
    assert second[: len(first)] == first


def test_a_state_may_be_a_dataclass(pipeline: ContextPipeline) -> None:
    graph_of(pipeline, FieldsState).invoke(said("Hello"), run_of("a"))
    assert texts(pipeline, "a") == ["Hello", "Noted."]


def test_the_state_stays_as_it_is(pipeline: ContextPipeline) -> None:
    state = {"messages": [HumanMessage("Hello"), AIMessage("Noted.")]}
    assert build_remember_node(pipeline).invoke(state, run_of("a")) == {}  # type: ignore[arg-type]


def test_it_waits_while_the_model_calls_tools(pipeline: ContextPipeline) -> None:
    state = {"messages": [HumanMessage("Hello"), wants("look_up", topic="tea")]}
    build_remember_node(pipeline).invoke(state, run_of("a"))  # type: ignore[arg-type]
    assert texts(pipeline, "a") == []


def test_it_waits_where_the_model_has_not_answered(pipeline: ContextPipeline) -> None:
    build_remember_node(pipeline).invoke(said("Hello"), run_of("a"))  # type: ignore[arg-type]
    assert texts(pipeline, "a") == []


def test_it_reads_calls_of_plain_data(pipeline: ContextPipeline) -> None:
    calls = [{"name": "look_up", "args": {}, "id": "k0"}]
    answer = {"role": "assistant", "content": "", "tool_calls": calls}
    state: Any = {"messages": [("human", "Hello"), answer]}
    build_remember_node(pipeline).invoke(state, run_of("a"))
    assert texts(pipeline, "a") == []


def test_it_may_stand_there_twice(pipeline: ContextPipeline) -> None:
    node = build_remember_node(pipeline)
    state: Any = {"messages": [HumanMessage("Hello"), AIMessage("Noted.")]}
    for _ in range(2):
        node.invoke(state, run_of("a"))
    assert texts(pipeline, "a") == ["Hello", "Noted."]


def test_a_fork_and_its_way_back_leave_what_each_state_has(pipeline: ContextPipeline) -> None:
    graph = graph_of(pipeline)
    for text in ("One", "Two"):
        graph.invoke(said(text), run_of("a"))
    ended = [state.config for state in graph.get_state_history(run_of("a")) if not state.next]
    newest, oldest = [{"configurable": {**end["configurable"], "user_id": "ada"}} for end in ended]
    graph.invoke(said("Other"), oldest)
    assert texts(pipeline, "a") == ["One", "Noted.", "Other", "Noted."]
    graph.invoke(said("Three"), newest)
    assert texts(pipeline, "a") == ["One", "Noted.", "Two", "Noted.", "Three", "Noted."]


class ListedState(TypedDict, total=False):
    """A state that adds up lists, so that messages keep the ids that they have, or none."""

    messages: Annotated[list[AnyMessage], operator.add]
    llm_input_messages: list[AnyMessage]
    ctxbudget_turn: dict[str, Any]


@pytest.mark.parametrize("state", [State, ListedState])
def test_a_second_agent_in_a_turn_sees_it_once(pipeline: ContextPipeline, state: Any) -> None:
    graph = StateGraph(state)
    steps: list[tuple[str, Any]] = []
    for agent in ("first", "second"):
        steps.append((f"context of {agent}", build_context_graph(pipeline)))
        steps.append((agent, lambda _: {"messages": [AIMessage("Noted.")]}))
        steps.append((f"{agent} remembers", build_remember_node(pipeline)))
    agents = graph.add_sequence(steps).add_edge(START, steps[0][0]).compile()
    sent = agents.invoke(said("Hello"), run_of("a"))["llm_input_messages"]
    assert [message.text for message in sent] == ["Hello", "Noted."]
    assert texts(pipeline, "a") == ["Hello", "Noted.", "Noted."]


def test_nothing_is_stored_in_another_users_thread(pipeline: ContextPipeline) -> None:
    graph = graph_of(pipeline)
    graph.invoke(said("I am Ada."), run_of("a"))
    graph.invoke(said("I am Bob."), run_of("a", "bob"))
    assert texts(pipeline, "a", "bob") == []


def test_agents_in_one_thread_have_conversations_of_their_own(pipeline: ContextPipeline) -> None:
    state = {"messages": [HumanMessage("Hello"), AIMessage("Noted.")]}
    build_remember_node(pipeline, agent="writer").invoke(state, run_of("a"))  # type: ignore[arg-type]
    assert pipeline.list_conversations(user_id="ada") == ["a (agent writer)"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_it_is_a_post_model_hook(pipeline: ContextPipeline, invoke: Invoke) -> None:
    model = scripted(wants("look_up", topic="tea"), "Found.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        agent = create_react_agent(
            model,
            ToolNode([look_up]),
            pre_model_hook=build_context_graph(pipeline, tools=[look_up]),
            post_model_hook=build_remember_node(pipeline),
            checkpointer=InMemorySaver(),
        )
    invoke(agent, said("What do you know about tea?"), run_of("a"))
    stored = pipeline.get_messages(user_id="ada", conversation_id="a")
    assert [message.type for message in stored] == ["human", "ai", "tool", "ai"]


def test_settings_are_no_pipeline() -> None:
    with pytest.raises(InvalidSettingsError, match="the one of the context graph"):
        build_remember_node({"max_context_tokens": 4_000})  # type: ignore[arg-type]


@pytest.mark.parametrize("state", [{"input": "Hello"}, {"messages": "Hello"}])
def test_a_state_without_messages_is_an_error(pipeline: ContextPipeline, state: Any) -> None:
    with pytest.raises(InputError, match="no list of 'messages'"):
        build_remember_node(pipeline).invoke(state, run_of("a"))
