"""Tools under a budget in graphs of one's own, and in `create_react_agent`."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, NotRequired

import pytest
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, create_react_agent, tools_condition
from langgraph.prebuilt.chat_agent_executor import AgentState
from langgraph.store.memory import InMemoryStore
from typing_extensions import TypedDict

from langchain_ctxbudget import ContextPipeline, build_context_graph, create_tool_search
from langchain_ctxbudget.errors import InvalidSettingsError
from tests.integration_tests.agents import CONFIG, scripted, wants
from tests.integration_tests.test_tools_of_agents import QUESTION, SETTINGS, TOOLS, names

NOON = datetime(2026, 11, 26, 12, tzinfo=UTC)


def make_pipeline(
    store: InMemoryStore | None = None, later: timedelta = timedelta(), **changes: Any
) -> ContextPipeline:
    settings = {"max_context_tokens": 4_000, "learn": False, **SETTINGS, **changes}
    return ContextPipeline(settings, store=store or InMemoryStore(), clock=lambda: NOON + later)


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    llm_input_messages: NotRequired[list[AnyMessage]]
    llm_input_tools: NotRequired[list[str]]
    ctxbudget_turn: NotRequired[dict[str, Any]]


class ReactState(AgentState):
    llm_input_tools: NotRequired[list[str]]
    ctxbudget_turn: NotRequired[dict[str, Any]]


def node_of(search: Any) -> ToolNode:
    return ToolNode(
        [*TOOLS, *search.tools],
        wrap_tool_call=search.wrap_tool_call,
        awrap_tool_call=search.awrap_tool_call,
    )


def own_graph(model: Any, pipeline: ContextPipeline) -> Any:
    search = create_tool_search(pipeline, TOOLS)

    def answer(state: State) -> dict[str, Any]:
        bound = model.bind_tools(search.bound(state["llm_input_tools"]))
        return {"messages": [bound.invoke(state["llm_input_messages"])]}

    graph = StateGraph(State)
    graph.add_node("context", build_context_graph(pipeline, tools=TOOLS))
    graph.add_node("model", answer)
    graph.add_node("tools", node_of(search))
    graph.add_edge(START, "context")
    graph.add_edge("context", "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "context")
    return graph.compile(checkpointer=InMemorySaver())


def react_agent(model: Any, pipeline: ContextPipeline) -> Any:
    search = create_tool_search(pipeline, TOOLS)

    def with_tools(state: Any, _runtime: Any) -> Any:
        return model.bind_tools(search.bound(state["llm_input_tools"]))

    return create_react_agent(
        with_tools,
        node_of(search),
        pre_model_hook=build_context_graph(pipeline, tools=TOOLS),
        state_schema=ReactState,
    )


KINDS = {"own graph": own_graph, "react agent": react_agent}
every_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
pytestmark = [
    pytest.mark.filterwarnings("ignore:create_react_agent"),
    pytest.mark.filterwarnings("ignore:AgentState"),
]


def called(make: Any, *answers: AIMessage) -> tuple[Any, list[ToolMessage]]:
    """Returns the model of a graph after a question, and the results of its calls."""
    model = scripted(*answers, "Done.")
    state = make(model, make_pipeline()).invoke({"messages": [QUESTION]}, CONFIG)
    return model, [each for each in state["messages"] if isinstance(each, ToolMessage)]


CALL = wants("call_tool", name="chess_3", arguments='{"what": "e4"}')


@every_kind
def test_the_tools_that_fit_are_bound(make: Any) -> None:
    model, _ = called(make)
    *chosen, find_tools, call_tool = names(model.bound[0])
    assert {name.split("_")[0] for name in chosen} == {"flights"}
    assert [find_tools, call_tool] == ["find_tools", "call_tool"]


@every_kind
def test_a_tool_that_is_not_bound_can_be_called(make: Any) -> None:
    _, [result] = called(make, CALL)
    assert (result.text, result.tool_call_id, result.name) == ("answer to e4", "k0", "call_tool")


@every_kind
def test_a_call_by_name_of_a_tool_that_is_not_bound_is_answered(make: Any) -> None:
    _, [result] = called(make, wants("chess_3", what="e4"))
    assert "- what (string, required)" in result.text


@every_kind
def test_a_search_tells_which_tools_the_model_has(make: Any) -> None:
    _, [result] = called(make, wants("find_tools", query="flights between two airports"))
    assert "You have these already, call them directly: flights_" in result.text


@every_kind
def test_the_list_stays_while_a_graph_loops(make: Any) -> None:
    model, _ = called(make, CALL)
    first, second = map(names, model.bound)
    assert first == second


def test_a_call_works_without_the_wrapper_of_the_tool_node() -> None:
    search = create_tool_search(make_pipeline(), TOOLS)
    call_tool = search.tools[1]
    assert call_tool.invoke({"name": "chess_3", "arguments": '{"what": "e4"}'}) == "answer to e4"


def test_all_tools_are_bound_where_no_prompt_has_chosen() -> None:
    assert create_tool_search(make_pipeline(), TOOLS).bound(None) == TOOLS


def test_a_graph_without_a_place_for_the_names_is_refused() -> None:
    class Lacking(TypedDict):
        messages: Annotated[list[AnyMessage], add_messages]
        llm_input_messages: NotRequired[list[AnyMessage]]

    graph = StateGraph(Lacking)
    graph.add_node("context", build_context_graph(make_pipeline(), tools=TOOLS))
    graph.add_edge(START, "context")
    with pytest.raises(InvalidSettingsError, match="llm_input_tools: list"):
        graph.compile().invoke({"messages": [QUESTION]}, CONFIG)


# Two processes


NAMED = ["chess_3", "weather_5", "find_tools", "call_tool"]


def with_named_tools(before: str, goes_on_with: ContextPipeline) -> dict[str, Any]:
    """Returns the state after a graph whose state names other tools than the prompt has chosen.

    The names are written before a node, and a graph of another pipeline goes on from there.
    """
    saver = InMemorySaver()
    config: Any = {"configurable": {**CONFIG["configurable"], "checkpoint_ns": ""}}
    graph = build_context_graph(make_pipeline(), tools=TOOLS, checkpointer=saver)
    list(graph.stream({"messages": [QUESTION]}, config, interrupt_before=[before]))
    budget = graph.get_state(config).values["budget"]
    graph.update_state(config, {"budget": {**budget, "tools": NAMED}})
    graph = build_context_graph(
        goes_on_with, tools=TOOLS, checkpointer=saver, report="numbers", runtime_store=False
    )
    return dict(graph.invoke(None, config))


@pytest.mark.parametrize("before", ["fetch_bundles", "compact_history", "retrieve", "assemble"])
def test_another_process_binds_the_tools_that_the_state_names(before: str) -> None:
    state = with_named_tools(before, make_pipeline(later=timedelta(hours=3)))
    assert {*state["llm_input_tools"]} == {*NAMED}


def test_the_tools_that_the_state_names_are_counted() -> None:
    pipeline = make_pipeline(later=timedelta(hours=3))
    state = with_named_tools("assemble", pipeline)
    bound = create_tool_search(pipeline, TOOLS).bound(state["llm_input_tools"])
    counter = pipeline.engine.target.counter
    tokens = counter.count_messages(state["llm_input_messages"]) + counter.count_tools(bound)
    assert state["context_report"]["total_tokens"] == tokens
