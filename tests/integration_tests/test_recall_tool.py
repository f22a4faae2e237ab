"""The recall tool: alone, in a tool node and in an agent; sync and async; whose conversation it reads."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import BaseTool
from langchain_core.tools import tool as tool_of_langchain
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import MessagesState
from langgraph.prebuilt import ToolNode
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, interrupt

from langchain_ctxbudget import ContextPipeline, build_context_graph, create_recall_tool
from langchain_ctxbudget.errors import InvalidSettingsError, MissingScopeError
from langchain_ctxbudget.retrieval.recall import QUOTES
from langchain_ctxbudget.runs import RunContext

SCOPE: dict[str, str] = {"user_id": "ada", "conversation_id": "t1"}
CONFIG: dict[str, Any] = {"configurable": {"thread_id": "t1", "user_id": "ada"}}
LOG = "".join(f"10:{i // 60 % 60:02}:{i % 60:02} INFO request {i * 7919:08x} took {i} ms\n" for i in range(4_000))

Invoke = Callable[..., Any]


@pytest.fixture(params=["sync", "async"])
def invoke(request: pytest.FixtureRequest) -> Invoke:
    """Invokes a tool or a graph, in its blocking or its async form."""

    def synchronous(runnable: Any, *args: Any, **kwargs: Any) -> Any:
        return runnable.invoke(*args, **kwargs)

    def asynchronous(runnable: Any, *args: Any, **kwargs: Any) -> Any:
        return asyncio.run(runnable.ainvoke(*args, **kwargs))

    return synchronous if request.param == "sync" else asynchronous


def make_pipeline(store: BaseStore | None = None, messages: int = 40) -> ContextPipeline:
    pipeline = ContextPipeline({"max_context_tokens": 800}, store=store or InMemoryStore())
    history: list[BaseMessage] = [
        HumanMessage(f"Message {i} is about the garden.", id=f"m-{i}") for i in range(1, messages + 1)
    ]
    history[6] = HumanMessage("My bicycle is blue.", id="m-bike", name="ada")
    pipeline.add_messages(history, **SCOPE)
    return pipeline


class Scripted(GenericFakeChatModel):
    """A model that gives answers one after the other, and lets tools be bound."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


def asks(**arguments: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": "recall", "args": arguments, "id": "call-1", "type": "tool_call"}])


def agent(tool: BaseTool, *calls: AIMessage, others: Sequence[Any] = (), **options: Any) -> Any:
    model = Scripted(messages=iter([*calls, AIMessage("Done.")]))
    return create_agent(model, tools=[tool, *others], **{"checkpointer": InMemorySaver(), **options})


def results(state: dict[str, Any], name: str = "recall") -> list[str]:
    return [m.content for m in state["messages"] if isinstance(m, ToolMessage) and m.name == name]


@tool_of_langchain
def read_log() -> str:
    """Read the log of the server."""
    return LOG


READS = AIMessage("", tool_calls=[{"name": "read_log", "args": {}, "id": "call-log", "type": "tool_call"}])
QUESTION: dict[str, Any] = {"messages": [HumanMessage("What does the log say?", id="q")]}


def node_of(tool: BaseTool, messages: Sequence[BaseMessage], **options: Any) -> Any:
    """A graph with a tool node alone; its state begins with these messages."""
    graph = StateGraph(MessagesState, options.pop("context_schema", None))
    graph.add_node("begin", lambda state: {"messages": messages})
    graph.add_node("tools", ToolNode([tool]))
    graph.add_edge(START, "begin")
    graph.add_edge("begin", "tools")
    graph.add_edge("tools", END)
    return graph.compile(**options)


def test_it_answers_a_query(invoke: Invoke, store: BaseStore) -> None:
    tool = create_recall_tool(make_pipeline(store))
    assert "#7 ada: My bicycle is blue.\n" in invoke(tool, {"query": "Which colour has the bicycle?"}, CONFIG)


def test_it_answers_a_reference(invoke: Invoke, store: BaseStore) -> None:
    tool = create_recall_tool(make_pipeline(store))
    assert invoke(tool, {"reference": "m-bike"}, CONFIG) == f"{QUOTES}#7 ada: My bicycle is blue.\n"


@pytest.mark.parametrize("arguments", [{}, {"query": "bicycle", "reference": "7"}, {"query": " ", "reference": ""}])
def test_neither_or_both_is_told_what_to_give(invoke: Invoke, arguments: dict[str, str]) -> None:
    assert invoke(create_recall_tool(make_pipeline()), arguments, CONFIG).startswith("Give exactly one")


@pytest.mark.parametrize("arguments", [{"query": "bicycle", "reference": ""}, {"query": None, "reference": "7"}])
def test_an_argument_without_content_counts_as_left_out(invoke: Invoke, arguments: dict[str, Any]) -> None:
    assert "bicycle" in invoke(create_recall_tool(make_pipeline()), arguments, CONFIG)


def test_what_another_pipeline_has_added_is_seen(invoke: Invoke) -> None:
    store = InMemoryStore()
    tool = create_recall_tool(make_pipeline(store))
    invoke(tool, {"reference": "1"}, CONFIG)
    ContextPipeline(store=store).add_messages([HumanMessage("A late word.")], **SCOPE)
    assert "A late word." in invoke(tool, {"reference": "41"}, CONFIG)


def test_prompts_stay_the_same_after_a_recall(invoke: Invoke) -> None:
    plain, asked = make_pipeline(), make_pipeline()
    for pipeline in (plain, asked):
        pipeline.assemble("What is in the garden?", **SCOPE)
    invoke(create_recall_tool(asked), {"query": "bicycle"}, CONFIG)
    expected = plain.assemble("Which bicycle?", **SCOPE).messages
    assert asked.assemble("Which bicycle?", **SCOPE).messages == expected


# Limits


@pytest.mark.parametrize("arguments", [{"query": "garden"}, {"reference": "1-40"}, {"reference": "nope"}, {}])
@pytest.mark.parametrize("limit", [64, 200])
def test_an_answer_is_within_the_limit(invoke: Invoke, limit: int, arguments: dict[str, str]) -> None:
    pipeline = make_pipeline()
    answer = invoke(create_recall_tool(pipeline, max_tokens=limit), arguments, CONFIG)
    assert 0 < pipeline.token_counter.count_text(answer) <= limit


@pytest.mark.parametrize("limit", [63, 0, -1, True, 100.0, "100"])
def test_a_limit_that_is_too_small_or_no_number_is_an_error(limit: Any) -> None:
    with pytest.raises(InvalidSettingsError, match="max_tokens must be a whole number of at least 64"):
        create_recall_tool(make_pipeline(), max_tokens=limit)


# Whose conversation


def test_another_user_with_the_same_thread_gets_nothing(invoke: Invoke) -> None:
    tool = create_recall_tool(make_pipeline())
    config = {"configurable": {"thread_id": "t1", "user_id": "eve"}}
    answers = [invoke(tool, arguments, config) for arguments in ({"query": "bicycle"}, {"reference": "m-bike"})]
    assert set(answers) == {"Nothing is stored of this conversation yet."}


def test_another_thread_of_the_user_gets_nothing(invoke: Invoke) -> None:
    config = {"configurable": {"thread_id": "t2", "user_id": "ada"}}
    answer = invoke(create_recall_tool(make_pipeline()), {"reference": "7"}, config)
    assert answer == "Nothing is stored of this conversation yet."


@pytest.mark.parametrize("configurable", [{}, {"thread_id": "t1"}, {"user_id": "ada"}])
@pytest.mark.parametrize("arguments", [{"query": "bicycle"}, {"reference": "7"}, {}])
def test_a_run_without_a_scope_is_an_error(
    invoke: Invoke, configurable: dict[str, str], arguments: dict[str, str]
) -> None:
    with pytest.raises(MissingScopeError):
        invoke(create_recall_tool(make_pipeline()), arguments, {"configurable": configurable})


def test_the_default_user_is_taken_where_the_run_names_none(invoke: Invoke) -> None:
    tool = create_recall_tool(make_pipeline(), default_user="ada")
    assert "bicycle" in invoke(tool, {"reference": "7"}, {"configurable": {"thread_id": "t1"}})


def test_the_default_user_does_not_outweigh_the_run(invoke: Invoke) -> None:
    tool = create_recall_tool(make_pipeline(), default_user="ada")
    answer = invoke(tool, {"reference": "7"}, {"configurable": {"thread_id": "t1", "user_id": "eve"}})
    assert "bicycle" not in answer


def test_a_scope_among_the_arguments_is_not_taken(invoke: Invoke) -> None:
    arguments = {
        "reference": "7",
        "user_id": "ada",
        "thread_id": "t1",
        "default_user": "ada",
        "config": {"configurable": {"user_id": "ada", "thread_id": "t1"}},
    }
    tool = create_recall_tool(make_pipeline())
    answer = invoke(tool, arguments, {"configurable": {"thread_id": "t1", "user_id": "eve"}})
    assert answer == "Nothing is stored of this conversation yet."


# What a model sees


def test_its_schema_has_the_two_arguments_only() -> None:
    function = convert_to_openai_tool(create_recall_tool(make_pipeline()))["function"]
    assert sorted(function["parameters"]["properties"]) == ["query", "reference"]
    assert not function["parameters"].get("required")


def test_its_schema_can_be_counted() -> None:
    pipeline = make_pipeline()
    tool = create_recall_tool(pipeline)
    report = pipeline.assemble("Hello", tools=[tool], **SCOPE).report
    assert report.total_tokens >= pipeline.token_counter.count_tools([tool])


def test_its_name_can_be_chosen() -> None:
    assert create_recall_tool(make_pipeline(), name="look_up").name == "look_up"


# In graphs


def test_an_agent_looks_up_a_message(invoke: Invoke) -> None:
    tool = create_recall_tool(make_pipeline())
    state = invoke(agent(tool, asks(query="bicycle")), {"messages": [HumanMessage("Which colour?")]}, CONFIG)
    assert state["messages"][-1].content == "Done."
    assert "My bicycle is blue." in results(state)[0]


def test_an_agent_of_another_user_with_the_same_thread_looks_up_nothing(invoke: Invoke) -> None:
    tool = create_recall_tool(make_pipeline())
    config = {"configurable": {"thread_id": "t1", "user_id": "eve"}}
    calls = (asks(query="bicycle"), asks(reference="m-bike"), asks(reference="7"))
    state = invoke(agent(tool, *calls), {"messages": [HumanMessage("Which colour?")]}, config)
    assert len(results(state)) == 3
    assert "blue" not in "".join(results(state))


def test_a_call_with_a_wrong_argument_is_answered(invoke: Invoke) -> None:
    tool = create_recall_tool(make_pipeline())
    state = invoke(agent(tool, asks(reference=["7"])), {"messages": [HumanMessage("Which colour?")]}, CONFIG)
    assert "reference" in results(state)[0]


def test_an_agent_without_a_user_fails(invoke: Invoke) -> None:
    tool = create_recall_tool(make_pipeline())
    with pytest.raises(MissingScopeError):
        invoke(
            agent(tool, asks(reference="7")), {"messages": [HumanMessage("?")]}, {"configurable": {"thread_id": "t"}}
        )


def test_a_graph_reads_on_what_its_context_has_left_out(invoke: Invoke) -> None:
    pipeline = ContextPipeline({"max_context_tokens": 800}, store=InMemoryStore())
    log = ToolMessage(LOG, tool_call_id="call-0", id="m-log")
    history = [
        HumanMessage("Run it.", id="m-1"),
        AIMessage("", id="m-2", tool_calls=[{"name": "run", "args": {}, "id": "call-0", "type": "tool_call"}]),
        log,
        AIMessage("It ran.", id="m-3"),
    ]
    graph = StateGraph(MessagesState)
    graph.add_node("context", build_context_graph(pipeline))
    graph.add_node("model", lambda state: {"messages": [asks(reference="m-log@5000")]})
    graph.add_node("tools", ToolNode([create_recall_tool(pipeline, max_tokens=300)]))
    graph.add_edge(START, "context")
    graph.add_edge("context", "model")
    graph.add_edge("model", "tools")
    graph.add_edge("tools", END)
    state = invoke(graph.compile(), {"messages": [*history, HumanMessage("What did it say?", id="m-4")]}, CONFIG)
    answer = state["messages"][-1].content
    assert answer.startswith(f"{QUOTES}#3@5000 tool: {LOG[5000:5050].splitlines()[0]}\n")
    assert pipeline.token_counter.count_text(answer) <= 300


# What a run brings along


def test_the_run_context_names_the_conversation(invoke: Invoke) -> None:
    tool = create_recall_tool(make_pipeline())
    wrong = {"configurable": {"thread_id": "t2", "user_id": "eve"}}
    context = RunContext(user_id="ada", conversation_id="t1")
    state = invoke(
        agent(tool, asks(reference="7"), context_schema=RunContext), {"messages": ["?"]}, wrong, context=context
    )
    assert "bicycle" in results(state)[0]


def test_the_run_context_outweighs_the_config_and_the_default(invoke: Invoke) -> None:
    tool = create_recall_tool(make_pipeline(), default_user="ada")
    graph = agent(tool, asks(reference="m-bike"), context_schema=RunContext)
    state = invoke(graph, {"messages": ["?"]}, CONFIG, context=RunContext(user_id="eve"))
    assert results(state)[0].startswith("There is no such message.")


@pytest.mark.parametrize("user", ["ada", "eve"])
def test_a_node_that_calls_the_tool_itself_is_in_the_run_too(invoke: Invoke, user: str) -> None:
    tool = create_recall_tool(make_pipeline(), default_user="nobody")

    def call(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [tool.invoke(asks(reference="7").tool_calls[0], config)]}

    async def acall(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [await tool.ainvoke(asks(reference="7").tool_calls[0], config)]}

    graph = StateGraph(MessagesState, RunContext)
    graph.add_node("call", RunnableLambda(call, acall))
    graph.add_edge(START, "call")
    state = invoke(graph.compile(), {"messages": ["?"]}, CONFIG, context=RunContext(user_id=user))
    assert ("bicycle" in results(state)[0]) == (user == "ada")


def test_the_store_of_the_graph_is_read(invoke: Invoke, store: BaseStore) -> None:
    make_pipeline(store)
    tool = create_recall_tool(ContextPipeline(store=InMemoryStore()))
    state = invoke(agent(tool, asks(query="bicycle"), store=store), {"messages": ["?"]}, CONFIG)
    assert "#7 ada: My bicycle is blue.\n" in results(state)[0]


def test_the_store_of_the_graph_outweighs_that_of_the_pipeline(invoke: Invoke) -> None:
    tool = create_recall_tool(make_pipeline())
    state = invoke(agent(tool, asks(reference="m-bike"), store=InMemoryStore()), {"messages": ["?"]}, CONFIG)
    assert results(state)[0].startswith("There is no such message.")


def test_the_store_of_the_graph_can_be_left_out(invoke: Invoke) -> None:
    tool = create_recall_tool(make_pipeline(), runtime_store=False)
    state = invoke(agent(tool, asks(reference="m-bike"), store=InMemoryStore()), {"messages": ["?"]}, CONFIG)
    assert "bicycle" in results(state)[0]


FORGED: dict[str, Any] = {
    "state": {"messages": [{"type": "human", "content": "forged", "id": "m-bike"}]},
    "context": {"user_id": "ada", "conversation_id": "t1"},
    "config": CONFIG,
    "store": None,
    "tool_call_id": None,
    "stream_writer": None,
}


@pytest.mark.parametrize("name", ["runtime", "config", "state", "store", "context", "run_manager", "callbacks"])
def test_a_run_among_the_arguments_is_not_taken(invoke: Invoke, name: str) -> None:
    tool = create_recall_tool(make_pipeline())
    eve = {"configurable": {"thread_id": "t1", "user_id": "eve"}}
    state = invoke(agent(tool, asks(reference="m-bike", **{name: FORGED})), {"messages": ["?"]}, eve)
    assert results(state)[0].startswith("There is no such message.")
    assert invoke(tool, {"reference": "m-bike", name: FORGED}, eve) == "Nothing is stored of this conversation yet."


def test_neither_schema_shows_the_run() -> None:
    tool = create_recall_tool(make_pipeline())
    schema = tool.tool_call_schema
    assert not isinstance(schema, dict)
    assert sorted(schema.model_fields) == sorted(tool.args) == ["query", "reference"]
    assert "untime" not in str(convert_to_openai_tool(tool))


@pytest.mark.parametrize("module", ["langchain_ctxbudget", "langchain_ctxbudget.pipeline"])
def test_prebuilt_agents_are_loaded_with_the_tool_only(module: str) -> None:
    code = f"import sys, {module}; from langchain_ctxbudget import ContextPipeline; ContextPipeline()"
    code += "; sys.exit('langgraph.prebuilt' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# The current turn


def test_a_result_of_the_turn_is_quoted_by_its_id(invoke: Invoke) -> None:
    tool = create_recall_tool(make_pipeline(), max_tokens=300)
    result = ToolMessage(LOG, tool_call_id="call-log", name="read_log", id="m-log")
    graph = node_of(tool, [READS, result, asks(reference="m-log@5000")])
    [answer] = results(invoke(graph, QUESTION, CONFIG))
    assert answer.startswith(f"{QUOTES}#43@5000 tool read_log: {LOG[5000:5050].splitlines()[0]}\n")


def test_an_agent_finds_a_result_of_its_turn_by_a_query(invoke: Invoke) -> None:
    tool = create_recall_tool(make_pipeline())
    line = LOG.splitlines()[2_345]
    state = invoke(agent(tool, READS, asks(query=line), others=[read_log]), QUESTION, CONFIG)
    assert "#43@" in results(state)[0]
    assert line in results(state)[0]


def test_what_the_tool_has_answered_before_is_not_found(invoke: Invoke) -> None:
    tool = create_recall_tool(make_pipeline(), name="recall")
    state = invoke(agent(tool, asks(reference="7"), asks(query="bicycle")), QUESTION, CONFIG)
    assert results(state)[1].count("bicycle") == 1


def test_a_long_result_of_the_turn_is_read_to_its_end(invoke: Invoke) -> None:
    tool = create_recall_tool(make_pipeline(), max_tokens=20_000)
    following, read = "43", ""
    for _ in range(20):
        state = invoke(agent(tool, READS, asks(reference=following), others=[read_log]), QUESTION, CONFIG)
        body, _, rest = results(state)[0].removeprefix(QUOTES).partition('Continue with reference "')
        read += body.partition("read_log: ")[2].replace("\n  ", "\n")[:-1]
        following = rest.partition('"')[0]
        if not following:
            break
    assert read == LOG.strip()


def test_parallel_calls_are_answered_each(invoke: Invoke) -> None:
    calls = [
        {"name": "recall", "args": arguments, "id": f"call-{i}", "type": "tool_call"}
        for i, arguments in enumerate(
            [{"reference": "7"}, {"query": "bicycle"}, {"reference": "1"}, {"reference": "42"}]
        )
    ]
    tool = create_recall_tool(make_pipeline())
    state = invoke(agent(tool, READS, AIMessage("", tool_calls=calls), others=[read_log]), QUESTION, CONFIG)
    first, second, third, fourth = results(state)
    assert first == f"{QUOTES}#7 ada: My bicycle is blue.\n"
    assert "My bicycle is blue." in second
    assert third == f"{QUOTES}#1 user: Message 1 is about the garden.\n"
    assert fourth == f"{QUOTES}#42 assistant: [called read_log({{}})]\n"


def test_the_state_of_another_user_is_not_quoted_later(invoke: Invoke) -> None:
    tool = create_recall_tool(make_pipeline())
    invoke(agent(tool, READS, asks(query="request"), others=[read_log]), QUESTION, CONFIG)
    eve = {"configurable": {"thread_id": "t1", "user_id": "eve"}}
    for arguments in ({"query": "request"}, {"reference": "43"}, {"reference": "q"}):
        assert invoke(tool, arguments, eve) == "Nothing is stored of this conversation yet."


def test_what_the_state_has_edited_is_quoted_as_it_has_it(invoke: Invoke) -> None:
    edited = HumanMessage("My bicycle is green.", id="m-bike", name="ada")
    graph = node_of(create_recall_tool(make_pipeline()), [edited, asks(reference="7")])
    [answer] = results(invoke(graph, {"messages": []}, CONFIG))
    assert answer == f"{QUOTES}#7 ada: My bicycle is green.\n"


@pytest.mark.parametrize("wrap", [list, lambda messages: {"messages": messages}])
def test_a_state_of_any_form_is_read(wrap: Callable[[list[BaseMessage]], Any], invoke: Invoke) -> None:
    result = ToolMessage("All is well.", tool_call_id="call-log", name="read_log", id="m-log")
    node = ToolNode([create_recall_tool(make_pipeline())])
    messages = [*QUESTION["messages"], READS, result, asks(reference="m-log")]

    def call(state: MessagesState, config: RunnableConfig) -> Any:
        given = node.invoke(wrap(messages), config)
        return given if isinstance(given, dict) else {"messages": given}

    async def acall(state: MessagesState, config: RunnableConfig) -> Any:
        given = await node.ainvoke(wrap(messages), config)
        return given if isinstance(given, dict) else {"messages": given}

    graph = StateGraph(MessagesState)
    graph.add_node("call", RunnableLambda(call, acall))
    graph.add_edge(START, "call")
    [answer] = results(invoke(graph.compile(), {"messages": []}, CONFIG))
    assert answer == f"{QUOTES}#43 tool read_log: All is well.\n"


def test_outside_of_a_graph_the_turn_that_was_assembled_last_is_quoted(invoke: Invoke) -> None:
    pipeline = make_pipeline()
    result = ToolMessage("All is well.", tool_call_id="call-log", name="read_log", id="m-log")
    pipeline.assemble([*QUESTION["messages"], READS, result], **SCOPE)
    tool = create_recall_tool(pipeline)
    assert invoke(tool, {"reference": "m-log"}, CONFIG) == f"{QUOTES}#43 tool read_log: All is well.\n"
    assert "#43 tool read_log: All is well.\n" in invoke(tool, {"query": "Is all well?"}, CONFIG)


def test_an_interrupted_turn_is_quoted_after_it_is_resumed_elsewhere(invoke: Invoke) -> None:
    @tool_of_langchain
    def approve() -> str:
        """Ask the user."""
        return str(interrupt("May I?"))

    approves = AIMessage("", tool_calls=[{"name": "approve", "args": {}, "id": "call-2", "type": "tool_call"}])
    store, saver = InMemoryStore(), InMemorySaver()
    others = [read_log, approve]
    first = agent(create_recall_tool(make_pipeline(store)), READS, approves, others=others, checkpointer=saver)
    invoke(first, QUESTION, CONFIG)
    tool = create_recall_tool(ContextPipeline(store=store), max_tokens=300)
    second = agent(tool, asks(reference="43@5000"), asks(reference="7"), others=others, checkpointer=saver)
    state = invoke(second, Command(resume="yes"), CONFIG)
    page, bicycle = results(state)
    assert page.startswith(f"{QUOTES}#43@5000 tool read_log: {LOG[5000:5050].splitlines()[0]}\n")
    assert bicycle == f"{QUOTES}#7 ada: My bicycle is blue.\n"


def test_a_range_of_the_turn_is_quoted_after_history_by_the_same_numbers_in_the_next_turn(invoke: Invoke) -> None:
    pipeline = ContextPipeline(store=InMemoryStore())
    graph = StateGraph(MessagesState)
    graph.add_node("context", build_context_graph(pipeline))
    graph.add_node("model", lambda state: {"messages": [asks(reference="1-3")]})
    graph.add_node("tools", ToolNode([create_recall_tool(pipeline)]))
    graph.add_edge(START, "context")
    graph.add_edge("context", "model")
    graph.add_edge("model", "tools")
    graph.add_edge("tools", END)
    compiled = graph.compile(checkpointer=InMemorySaver())
    turn = [HumanMessage("Hello.", id="m-1"), AIMessage("Hi.", id="m-2"), HumanMessage("How are you?", id="m-3")]
    answers = [results(invoke(compiled, {"messages": said}, CONFIG))[-1] for said in (turn, [HumanMessage("And now?")])]
    assert answers[0] == answers[1] == f"{QUOTES}#1 user: Hello.\n#2 assistant: Hi.\n#3 user: How are you?\n"
