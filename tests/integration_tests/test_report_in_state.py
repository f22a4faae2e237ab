"""What agents and graphs give back of their reports, and to whom.

And where several of them work at once.
"""

import json
import threading
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import pytest
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command

from langchain_ctxbudget import (
    BudgetedChatMessageHistory,
    ContextPipeline,
    ContextReport,
    build_context_graph,
)
from langchain_ctxbudget.errors import InvalidSettingsError
from langchain_ctxbudget.middleware import ContextBudgetMiddleware
from tests.integration_tests.agents import (
    CONFIG,
    SCOPE,
    agent_of,
    ask,
    budget,
    long_history,
    scripted,
    wants,
)

SECRET = "Xylograph"
"""In the system prompt, a preference, a memory, a name of a topic, and the question."""
STATE = {"messages": [*long_history(4), HumanMessage(f"What do I have in my {SECRET}?", id="q")]}
MODES = ("values", "updates", "debug", "custom", "checkpoints", "tasks")


def make_pipeline() -> ContextPipeline:
    topic = {"label": SECRET, "context": f"The {SECRET} is at the lake."}
    settings = {
        "max_context_tokens": 4_000,
        "preferences": [f"Mention the {SECRET}."],
        "topics": [topic],
    }
    pipeline = ContextPipeline(
        settings, system_prompt=f"You help with the {SECRET}.", store=InMemoryStore()
    )
    pipeline.knowledge.add_fact(f"Keeps a boat in the {SECRET}.", user_id="ada")
    return pipeline


def agent_with(pipeline: ContextPipeline, **options: Any) -> Any:
    middleware = ContextBudgetMiddleware(pipeline, **options)
    return create_agent(scripted("Fine."), middleware=[middleware], checkpointer=InMemorySaver())


class State(MessagesState):
    """The two keys that a graph with the context graph as a node needs."""

    llm_input_messages: list[Any]


def graph_with(pipeline: ContextPipeline, **options: Any) -> Any:
    graph = StateGraph(State, output_schema=MessagesState)
    graph.add_node("context", build_context_graph(pipeline, **options))
    graph.add_edge(START, "context")
    graph.add_edge("context", END)
    return graph.compile(checkpointer=InMemorySaver())


Make = Callable[..., Any]

every_way = pytest.mark.parametrize(
    ("make", "key"),
    [(agent_with, "ctxbudget_report"), (build_context_graph, "context_report")],
    ids=["middleware", "graph"],
)


async def streamed(runnable: Any, stream_mode: Any) -> list[Any]:
    return [
        chunk
        async for chunk in runnable.astream(STATE, CONFIG, stream_mode=stream_mode, subgraphs=True)
    ]


@pytest.mark.parametrize("make", [agent_with, graph_with])
async def test_without_being_asked_for_no_report_is_in_a_state(make: Make) -> None:
    agent = make(make_pipeline())

    state = await agent.ainvoke(STATE, CONFIG)

    assert set(state) == {"messages"}


@pytest.mark.parametrize("stream_mode", MODES)
@pytest.mark.parametrize("make", [agent_with, graph_with])
async def test_without_being_asked_for_no_report_is_streamed(make: Make, stream_mode: str) -> None:
    chunks = str(await streamed(make(make_pipeline()), stream_mode))

    assert "schema_version" not in chunks
    assert "preview" not in chunks


def last_report(pipeline: ContextPipeline) -> ContextReport:
    report = pipeline.last_report(user_id="ada", conversation_id="c1")
    assert report is not None
    return report


@every_way
async def test_a_report_may_have_numbers_alone(make: Make, key: str) -> None:
    pipeline = make_pipeline()

    state = await make(pipeline, report="numbers").ainvoke(STATE, CONFIG)

    numbers = state[key]
    report = last_report(pipeline)
    assert numbers["total_tokens"] == report.total_tokens
    layers = [layer["used_tokens"] for layer in numbers["layers"]]
    assert layers == [layer.used_tokens for layer in report.layers]


@every_way
async def test_a_report_of_numbers_has_no_texts(make: Make, key: str) -> None:
    pipeline = make_pipeline()

    state = await make(pipeline, report="numbers").ainvoke(STATE, CONFIG)

    numbers = json.dumps(state[key])
    assert SECRET in json.dumps(last_report(pipeline).to_dict())
    assert SECRET.lower() not in numbers.lower()
    assert len(numbers) < 4_000


@every_way
async def test_a_report_may_have_its_texts(make: Make, key: str) -> None:
    pipeline = make_pipeline()
    await make(pipeline, report="numbers").ainvoke(STATE, CONFIG)

    state = await make(pipeline, report="texts").ainvoke(STATE, CONFIG)

    assert state[key] == last_report(pipeline).to_dict()


@every_way
def test_another_wish_for_the_report_is_refused(make: Make, key: str) -> None:
    with pytest.raises(InvalidSettingsError, match="'none', 'numbers' or 'texts'"):
        make(make_pipeline(), report="all")


# -- The last report, in the process


ADA_1 = {"user_id": "ada", "conversation_id": "c1"}
ADA_2 = {"user_id": "ada", "conversation_id": "c2"}
BOB_1 = {"user_id": "bob", "conversation_id": "c1"}
BOB_2 = {"user_id": "bob", "conversation_id": "c2"}


class Reports(NamedTuple):
    """The reports of one prompt in each of three conversations."""

    ada_1: ContextReport
    ada_2: ContextReport
    bob_1: ContextReport


@pytest.fixture
def pipeline() -> ContextPipeline:
    return ContextPipeline(store=InMemoryStore())


@pytest.fixture
def reports(pipeline: ContextPipeline) -> Reports:
    return Reports(
        ada_1=pipeline.assemble("I am Ada, in the first.", **ADA_1).report,
        ada_2=pipeline.assemble("I am Ada, in the second.", **ADA_2).report,
        bob_1=pipeline.assemble("I am Bob.", **BOB_1).report,
    )


def test_each_conversation_of_a_user_has_its_last_report(
    pipeline: ContextPipeline, reports: Reports
) -> None:
    assert pipeline.last_report(**ADA_1) == reports.ada_1
    assert pipeline.last_report(**ADA_2) == reports.ada_2
    assert pipeline.last_report(**BOB_1) == reports.bob_1
    assert pipeline.last_report(**BOB_2) is None


def test_the_last_report_goes_with_its_conversation(
    pipeline: ContextPipeline, reports: Reports
) -> None:
    pipeline.clear(**ADA_2)

    assert pipeline.last_report(**ADA_1) == reports.ada_1
    assert pipeline.last_report(**ADA_2) is None
    assert pipeline.last_report(**BOB_1) == reports.bob_1


def test_the_last_report_goes_with_its_user(pipeline: ContextPipeline, reports: Reports) -> None:
    pipeline.erase_user(user_id="ada")

    assert pipeline.last_report(**ADA_1) is None
    assert pipeline.last_report(**ADA_2) is None
    assert pipeline.last_report(**BOB_1) == reports.bob_1


# -- Several at once


@tool
def delegate(task: str, call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
    """Have a helper do a task.

    All that the helper's state has is handed over, as deepagents does.
    """
    middleware = ContextBudgetMiddleware(report="numbers", agent=task)
    helper = create_agent(scripted("Part done."), middleware=[middleware])
    graph = build_context_graph(report="numbers", agent=f"graph {task}")
    helper_input: Any = {"messages": [HumanMessage(task)]}

    state = dict(helper.invoke(helper_input))
    graph_state = dict(graph.invoke(helper_input))

    state["ctxbudget_turn"] = graph_state.get("ctxbudget_turn")
    answer = {"role": "tool", "content": state["messages"][-1].text, "tool_call_id": call_id}
    return Command(update={**state, "messages": [answer]})


@pytest.mark.slow
def test_sub_agents_that_hand_their_state_over_do_not_clash() -> None:
    calls = wants("delegate", "delegate", "delegate", task="a part")
    middleware = ContextBudgetMiddleware(report="numbers")
    agent = create_agent(scripted(calls, "All done."), [delegate], middleware=[middleware])

    state = ask(agent, HumanMessage("Do it all."))

    assert state["messages"][-1].text == "All done."
    assert state["ctxbudget_report"]["conversation_id"] == "c1"


# -- Artifacts: what tools hand to the application beside what the model reads. They can be
# anything, and no provider gets them.


class WithoutRepr:
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


every_artifact = pytest.mark.parametrize(
    "make",
    [threading.Lock, itself, WithoutRepr, lambda: iter("abc")],
    ids=["lock", "itself", "no repr", "iterator"],
)


@pytest.mark.slow
@every_artifact
def test_an_agent_goes_on_with_any_artifact(make: Make) -> None:
    artifact = make()
    middleware = budget()
    agent = agent_of(
        scripted(wants("measure"), "5 m."),
        middleware,
        tools=[with_artifact(artifact)],
        checkpointer=None,
    )

    state = ask(agent, HumanMessage("How long is it?"))

    assert state["messages"][2].artifact is artifact
    assert len(middleware.pipeline.get_messages(**SCOPE)) == 4


@every_artifact
def test_an_agent_goes_on_with_an_artifact_of_an_earlier_turn(make: Make) -> None:
    artifact = make()
    agent = agent_of(scripted("Fine."), budget(), checkpointer=None)
    answer = AIMessage("5 m.", id="a")
    thanks = HumanMessage("Thanks!", id="h2")

    state = ask(agent, {"messages": [*turn(artifact), answer, thanks]})

    assert state["messages"][2].artifact is artifact


def test_a_prompt_has_no_artifact(pipeline: ContextPipeline) -> None:
    messages = pipeline.assemble(turn({"metres": 5}), **SCOPE).messages

    assert artifacts(messages) == [None]


def test_a_prompt_of_a_graph_has_no_artifact() -> None:
    state = build_context_graph().invoke({"messages": turn(threading.Lock())}, CONFIG)

    assert artifacts(state["llm_input_messages"]) == [None]


def test_a_window_has_no_artifact(pipeline: ContextPipeline) -> None:
    history = BudgetedChatMessageHistory("c1", user_id="ada", pipeline=pipeline)
    history.add_messages(turn({"metres": 5}))

    assert artifacts(history.window(500)) == [None]


def test_a_turn_keeps_its_own_artifact(pipeline: ContextPipeline) -> None:
    messages = turn({"metres": 5})

    pipeline.assemble(messages, **SCOPE)
    history = BudgetedChatMessageHistory("c1", user_id="ada", pipeline=pipeline)
    history.add_messages(messages)
    history.window(500)

    assert messages[-1].artifact == {"metres": 5}


def test_an_artifact_that_json_can_hold_is_stored(pipeline: ContextPipeline) -> None:
    bicycle = Document("A bicycle.", metadata={"room": "cellar"})
    pipeline.add_messages(turn([bicycle]), **SCOPE)

    [*_, result] = pipeline.get_messages(**SCOPE)

    assert artifacts([result]) == [[bicycle.model_dump()]]
