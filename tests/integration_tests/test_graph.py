"""The context graph gives the pipeline's prompts: alone, as a node, in a chain, as a hook."""

import asyncio
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import create_react_agent
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, TiktokenCounter, build_context_graph
from langchain_ctxbudget.errors import InvalidSettingsError
from langchain_ctxbudget.integrations.graph import context_nodes
from tests.integration_tests.agents import look_up, scripted
from tests.integration_tests.conftest import Invoke
from tests.integration_tests.test_pipeline import chat

CONFIG: dict[str, Any] = {"configurable": {"thread_id": "t1", "user_id": "ada"}}
NODES = [
    "detect_topics",
    "compute_budget",
    "fetch_bundles",
    "compact_history",
    "retrieve",
    "assemble",
]


def make_pipeline(budget: int = 800) -> ContextPipeline:
    return ContextPipeline(
        {"max_context_tokens": budget}, system_prompt="You help.", store=InMemoryStore()
    )


def test_it_has_the_six_named_nodes_in_order() -> None:
    graph = build_context_graph(make_pipeline()).get_graph()
    assert [name for name in graph.nodes if not name.startswith("__")] == NODES


def test_it_gives_what_the_pipeline_gives(invoke: Invoke) -> None:
    messages = chat(80)
    question = HumanMessage("And now?", id="q")
    pipeline = make_pipeline()
    pipeline.add_messages(messages, user_id="ada", conversation_id="t1")
    direct = pipeline.assemble(question, user_id="ada", conversation_id="t1")

    graph = build_context_graph(make_pipeline(), report="numbers")
    state = invoke(graph, {"messages": [*messages, question]}, CONFIG)

    assert state["llm_input_messages"] == direct.messages
    assert state["context_report"]["total_tokens"] == direct.report.total_tokens


def test_a_prompt_is_begun_again_where_another_run_changed_the_conversation() -> None:
    graph = build_context_graph(make_pipeline(4_000))
    others = [
        HumanMessage("another run's", id="o"),
        AIMessage("fine", id="f"),
        HumanMessage("go", id="g"),
    ]
    own: Any = {"messages": [*chat(2), HumanMessage("And now?", id="q")]}

    updates: dict[str, Any] = {}
    for update in graph.stream(own, CONFIG, stream_mode="updates"):
        if "fetch_bundles" in update:
            graph.invoke({"messages": others}, CONFIG)
        updates |= update

    prompt = updates["assemble"]["llm_input_messages"]
    ids = [message.id for message in prompt[1:]]
    assert ids == ["h0", "a0", "h1", "a1", "o", "f", "q"]


# A prompt and tools of the hook

INSTRUCTION = "Be brief. " * 30


@pytest.fixture(
    scope="module", params=[INSTRUCTION, SystemMessage(INSTRUCTION)], ids=["text", "message"]
)
def with_prompt_and_tools(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The state after a hook that was given a prompt and tools."""
    graph = build_context_graph(
        make_pipeline(), prompt=request.param, tools=[look_up], report="numbers"
    )
    messages: Any = {"messages": [*chat(80), HumanMessage("And now?")]}
    return dict(asyncio.run(graph.ainvoke(messages, CONFIG)))


def test_a_prompt_that_the_hook_was_given_stands_once(
    with_prompt_and_tools: dict[str, Any],
) -> None:
    system = with_prompt_and_tools["llm_input_messages"][0].text
    assert system.count("You help.") == 1
    assert system.count("Be brief.") == 30


def test_tools_that_the_hook_was_given_are_counted(with_prompt_and_tools: dict[str, Any]) -> None:
    messages = TiktokenCounter().count_messages(with_prompt_and_tools["llm_input_messages"])
    report = with_prompt_and_tools["context_report"]
    [tools] = [layer["used_tokens"] for layer in report["layers"] if layer["layer"] == "L8"]
    assert tools > 0
    assert report["total_tokens"] == messages + tools
    assert report["total_tokens"] <= 800


def test_a_prompt_that_is_a_function_is_refused() -> None:
    with pytest.raises(InvalidSettingsError, match="prompt must be a string"):
        build_context_graph(make_pipeline(), prompt=lambda state: state["messages"])  # type: ignore[arg-type]


# As a node, in a chain, as a hook


class WithPlace(MessagesState):
    """A state that has a place for what the graph gives."""

    llm_input_messages: list[Any]


def as_node(state: Any, node: Any) -> Any:
    return StateGraph(state).add_node("context", node).add_edge(START, "context").compile()


def test_a_state_without_a_place_for_the_messages_is_refused(invoke: Invoke) -> None:
    outer = as_node(MessagesState, build_context_graph(make_pipeline()))
    with pytest.raises(InvalidSettingsError, match="'llm_input_messages'"):
        invoke(outer, {"messages": [HumanMessage("Hello")]}, CONFIG)


def test_single_nodes_refuse_a_state_without_a_place(invoke: Invoke) -> None:
    outer = as_node(MessagesState, context_nodes(make_pipeline())["assemble"])
    with pytest.raises(InvalidSettingsError, match="'llm_input_messages'"):
        invoke(outer, {"messages": [HumanMessage("Hello")]}, CONFIG)


def test_a_state_with_a_place_for_the_messages_gets_them(invoke: Invoke) -> None:
    outer = as_node(WithPlace, build_context_graph(make_pipeline()))
    state = invoke(outer, {"messages": [HumanMessage("Hello")]}, CONFIG)
    assert state["llm_input_messages"][-1].content == "Hello"


def test_a_node_that_calls_the_graph_itself_needs_no_place() -> None:
    graph = build_context_graph(make_pipeline())
    contents: list[str] = []

    def node(state: Any, config: RunnableConfig) -> dict[str, Any]:
        prompt = graph.invoke({"messages": state["messages"]}, config)["llm_input_messages"]
        contents.append(prompt[-1].content)
        return {}

    as_node(MessagesState, node).invoke({"messages": [HumanMessage("Hello")]}, CONFIG)
    assert contents == ["Hello"]


def test_a_graph_in_a_chain_within_a_node_needs_no_place(invoke: Invoke) -> None:
    def answer(state: Any) -> dict[str, Any]:
        return {"messages": [AIMessage(state["llm_input_messages"][-1].content)]}

    chain = build_context_graph(make_pipeline()) | answer
    state = invoke(as_node(MessagesState, chain), {"messages": [HumanMessage("Hello")]}, CONFIG)
    assert state["messages"][-1].content == "Hello"


@pytest.mark.filterwarnings("ignore:create_react_agent")
def test_a_hook_of_an_agent_has_a_place_from_the_agent(invoke: Invoke) -> None:
    hook = build_context_graph(make_pipeline())
    agent = create_react_agent(scripted("Hello!"), [], pre_model_hook=hook)
    state = invoke(agent, {"messages": [HumanMessage("Hi")]}, CONFIG)
    assert state["messages"][-1].content == "Hello!"
