"""Tools under a budget in agents of `create_agent`: which are bound, and how others are called."""

from collections.abc import Sequence
from typing import Annotated, Any

import pytest
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    InterruptOnConfig,
    ModelRequest,
)
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, StructuredTool, tool
from langgraph.prebuilt import InjectedState, InjectedStore, ToolRuntime
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command
from pydantic import BaseModel

from langchain_ctxbudget import ContextReport
from langchain_ctxbudget.middleware import ContextBudgetMiddleware
from tests.integration_tests import agents

TOPICS = {
    "weather": "Tells the weather of a city on a day.",
    "invoices": "Lists the unpaid invoices of a customer.",
    "flights": "Finds flights between two airports.",
    "chess": "Suggests a move in a game of chess.",
}
MANY = 10
SETTINGS = {"tool_tokens": 600}


def answer(what: str) -> str:
    return f"answer to {what}"


def topic_tool(topic: str, number: int) -> BaseTool:
    description = f"{TOPICS[topic]} Variant {number}."
    return StructuredTool.from_function(answer, name=f"{topic}_{number}", description=description)


TOOLS = [topic_tool(topic, number) for number in range(MANY) for topic in TOPICS]
QUESTION = ("human", "Which flights go from Rome to Oslo?")


def many(tokens: int = 4_000, **options: Any) -> ContextBudgetMiddleware:
    return agents.budget(tokens, settings=SETTINGS, **options)


def names(tools: Sequence[Any]) -> list[str]:
    return [str(getattr(each, "name", None) or each.get("name")) for each in tools]


def call(name: str, arguments: object = '{"what": "e4"}', key: str = "k") -> AIMessage:
    return agents.wants("call_tool", key=key, name=name, arguments=arguments)


def results(state: dict[str, Any]) -> list[ToolMessage]:
    return [message for message in state["messages"] if isinstance(message, ToolMessage)]


def result_of(*answers: AIMessage, tools: Sequence[Any] = TOOLS, **options: Any) -> ToolMessage:
    """Asks an agent whose model gives these answers, and returns the last result of a call."""
    model = agents.scripted(*answers, "Done.")
    agent = agents.agent_of(model, many(), tools=tools, **options)
    return results(agents.ask(agent, QUESTION))[-1]


# What is bound


def test_an_agents_model_gets_the_tools_that_fit_and_two_for_the_others() -> None:
    model = agents.scripted()
    agents.ask(agents.agent_of(model, many(), tools=TOOLS), QUESTION)
    *chosen, find_tools, call_tool = names(model.bound[0])
    assert {name.split("_")[0] for name in chosen} == {"flights"}
    assert [find_tools, call_tool] == ["find_tools", "call_tool"]


def test_an_agents_model_gets_the_agents_own_tool_objects() -> None:
    model = agents.scripted()
    agents.ask(agents.agent_of(model, many(), tools=TOOLS), QUESTION)
    own = set(map(id, TOOLS))
    assert all(id(each) in own for each in model.bound[0][:-2])


def test_what_is_counted_is_what_is_bound() -> None:
    model = agents.scripted()
    budget = many()
    state = agents.ask(agents.agent_of(model, budget, tools=TOOLS), QUESTION)
    report = ContextReport.from_dict(state["ctxbudget_report"])
    counter = budget.pipeline.engine.target.counter
    tokens = counter.count_messages(model.seen[0]) + counter.count_tools(model.bound[0])
    assert report.total_tokens == tokens


def test_the_recall_tool_takes_no_room_while_it_is_not_bound() -> None:
    with_recall = agents.scripted()
    without = agents.scripted()
    agents.ask(agents.agent_of(with_recall, many(recall_tool=True), tools=TOOLS), QUESTION)
    agents.ask(agents.agent_of(without, many(), tools=TOOLS), QUESTION)
    assert names(with_recall.bound[0]) == names(without.bound[0])


def test_the_list_stays_while_an_agent_loops() -> None:
    model = agents.scripted(call("chess_3"), call("weather_2", key="l"), "Done.")
    agents.ask(agents.agent_of(model, many(), tools=TOOLS), QUESTION)
    first, second, third = model.bound
    assert first == second == third


def test_without_the_setting_all_tools_are_bound_as_they_were_given() -> None:
    model = agents.scripted()
    agents.ask(agents.agent_of(model, agents.budget(4_000), tools=TOOLS), QUESTION)
    assert model.bound[0] == TOOLS


def test_settings_of_a_run_choose_the_tools_too() -> None:
    model = agents.scripted(call("chess_3"), "Done.")
    agent = agents.agent_of(model, agents.budget(4_000), tools=TOOLS)
    config = {"configurable": {**agents.CONFIG["configurable"], "context_settings": SETTINGS}}
    state = agents.ask(agent, QUESTION, config)
    assert names(model.bound[0])[-2:] == ["find_tools", "call_tool"]
    assert results(state)[0].text == "answer to e4"


class Verdict(BaseModel):
    """The verdict on what was asked."""

    good: bool


def test_the_tool_of_a_structured_answer_is_always_bound() -> None:
    model = agents.scripted(agents.wants("Verdict", good=True))
    agent = agents.agent_of(model, many(), tools=TOOLS, response_format=ToolStrategy(Verdict))
    state = agents.ask(agent, QUESTION)
    assert names(model.bound[0])[-1] == "Verdict"
    assert state["structured_response"] == Verdict(good=True)


def test_an_agent_that_answers_in_a_schema_gets_its_own_tool_objects() -> None:
    model = agents.scripted(agents.wants("Verdict", good=True))
    agent = agents.agent_of(model, many(), tools=TOOLS, response_format=Verdict)
    agents.ask(agent, QUESTION)
    assert all(isinstance(each, BaseTool) for each in model.bound[0])


class Choosing(AgentMiddleware[Any, Any, Any]):
    """Has the model call a tool that does not fit the question."""

    async def awrap_model_call(self, request: ModelRequest[Any], handler: Any) -> Any:
        return await handler(request.override(tool_choice="chess_7"))


def test_a_tool_that_the_model_must_call_is_bound() -> None:
    model = agents.scripted()
    agents.ask(agents.agent_of(model, Choosing(), many(), tools=TOOLS), QUESTION)
    assert "chess_7" in names(model.bound[0])


# Calls of tools that are not bound


def test_a_tool_that_is_not_bound_can_be_called() -> None:
    assert result_of(call("chess_3")).text == "answer to e4"


def test_a_tool_that_is_not_bound_can_be_called_in_blocking_code() -> None:
    agent = agents.agent_of(agents.scripted(call("chess_3"), "Done."), many(), tools=TOOLS)
    state = agent.invoke({"messages": [QUESTION]}, agents.CONFIG)
    assert results(state)[0].text == "answer to e4"


def test_a_model_that_gives_its_arguments_as_an_object_is_understood() -> None:
    assert result_of(call("chess_3", {"what": "d4"})).text == "answer to d4"


def test_the_result_answers_the_call_that_the_model_has_made() -> None:
    result = result_of(call("chess_3"))
    assert (result.tool_call_id, result.name) == ("k0", "call_tool")


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (call("chess_3", "{}"), "missing: what"),
        (call("chess_3", "e4"), "not the JSON text of an object"),
        (call("nothing_1"), "There is no tool 'nothing_1'."),
        (agents.wants("nothing_1", what="x"), "There is no tool 'nothing_1'."),
        (agents.wants("chess_3", what="e4"), "- what (string, required)"),
        (agents.wants("call_tool", what="e4"), "name: Field required"),
    ],
    ids=["missing", "no JSON", "unknown", "unknown by its name", "not bound", "nameless"],
)
def test_a_call_that_cannot_be_made_is_answered(answer: AIMessage, told: str) -> None:
    result = result_of(answer)
    assert result.status == "error"
    assert told in result.text
    assert len(result.text) < 500


def test_a_model_that_was_told_how_calls_the_tool_by_its_name() -> None:
    wanted = agents.wants("chess_3", what="e4")
    assert result_of(wanted, agents.wants("chess_3", key="l", what="e4")).text == "answer to e4"


def test_a_tool_that_was_found_can_be_called_by_its_name() -> None:
    search = agents.wants("find_tools", key="f", query="a move in a game of chess")
    assert result_of(search, agents.wants("chess_3", what="e4")).text == "answer to e4"


def test_a_search_tells_how_to_call_what_it_finds() -> None:
    result = result_of(agents.wants("find_tools", query="a move in a game of chess"))
    assert "what (string, required)" in result.text


def test_a_search_tells_which_tools_the_model_has() -> None:
    result = result_of(agents.wants("find_tools", query="flights between two airports"))
    assert "You have these already, call them directly: flights_" in result.text


class Adding(AgentMiddleware[Any, Any, Any]):
    """Gives a tool that the agent does not have."""

    async def awrap_model_call(self, request: ModelRequest[Any], handler: Any) -> Any:
        added = StructuredTool.from_function(answer, name="violin", description="Tunes a violin.")
        return await handler(request.override(tools=[*request.tools, added]))


def ask_with_added_tool(message: AIMessage) -> ToolMessage:
    model = agents.scripted(message, "Done.")
    return results(agents.ask(agents.agent_of(model, Adding(), many(), tools=TOOLS), QUESTION))[0]


def test_a_tool_that_other_middleware_gives_is_found() -> None:
    assert "violin" in ask_with_added_tool(agents.wants("find_tools", query="tune a violin")).text


def test_a_tool_that_other_middleware_gives_can_be_called() -> None:
    assert ask_with_added_tool(call("violin")).text == "answer to e4"


def test_the_calls_of_another_process_are_run() -> None:
    middleware = many()
    agent = agents.agent_of(
        agents.scripted(call("chess_3"), "Done."),
        middleware,
        tools=TOOLS,
        interrupt_before=["tools"],
    )
    agents.ask(agent, QUESTION)
    again = agents.agent_of(
        agents.scripted("Done."), many(), tools=TOOLS, checkpointer=agent.checkpointer
    )
    assert results(agents.ask(again, None))[0].text == "answer to e4"


# What LangGraph injects


@tool
def says_state(what: str, state: Annotated[dict[str, Any], InjectedState]) -> str:
    """Paints a house."""
    return f"{what} after {len(state['messages'])} messages"


@tool
def says_store(what: str, store: Annotated[BaseStore, InjectedStore]) -> str:
    """Paints a house."""
    return f"{what} with {type(store).__name__}"


@tool
def says_runtime(what: str, runtime: ToolRuntime[Any, Any]) -> str:
    """Paints a house."""
    return f"{what} for {runtime.tool_call_id}"


@tool
def says_command(what: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
    """Paints a house."""
    message = ToolMessage(f"{what} by command", tool_call_id=tool_call_id)
    return Command(update={"messages": [message]})


@pytest.mark.parametrize(
    ("injected", "text"),
    [
        (says_state, "e4 after 2 messages"),
        (says_store, "e4 with InMemoryStore"),
        (says_runtime, "e4 for k0"),
        (says_command, "e4 by command"),
    ],
    ids=["state", "store", "runtime", "command"],
)
def test_a_tool_that_is_not_bound_gets_what_langgraph_injects(
    injected: BaseTool, text: str
) -> None:
    result = result_of(call(injected.name), tools=[*TOOLS, injected], store=InMemoryStore())
    assert result.text == text


def test_a_tool_that_ends_the_turn_does_so_when_it_is_not_bound() -> None:
    final = StructuredTool.from_function(
        answer, name="final", description="Paints a house.", return_direct=True
    )
    model = agents.scripted(call("final"), "Never said.")
    state = agents.ask(agents.agent_of(model, many(), tools=[*TOOLS, final]), QUESTION)
    assert state["messages"][-1].text == "answer to e4"


# Beside approval by people


def deletes(request: Any) -> bool:
    return str(request.tool_call["args"].get("name")) == "chess_3"


@pytest.mark.parametrize("mode", ["batched", "per_call"])
def test_people_may_be_asked_before_a_tool_is_called_by_call_tool(mode: Any) -> None:
    ask = InterruptOnConfig(allowed_decisions=["approve", "reject"], when=deletes)
    approval = HumanInTheLoopMiddleware({"call_tool": ask}, interrupt_mode=mode)
    model = agents.scripted(call("weather_2"), call("chess_3", key="l"), "Done.")
    state = agents.ask(agents.agent_of(model, approval, many(), tools=TOOLS), QUESTION)
    assert len(state["__interrupt__"]) == 1
    assert [result.tool_call_id for result in results(state)] == ["k0"]


APPROVED = {**SETTINGS, "required_tools": ["chess_3"]}


def of_approved(*answers: Any) -> dict[str, Any]:
    """The state of an agent that asks people before one tool, by its name."""
    ask = InterruptOnConfig(allowed_decisions=["approve", "reject"])
    approval = HumanInTheLoopMiddleware({"chess_3": ask})
    budget = ContextBudgetMiddleware(
        {"max_context_tokens": 4_000, **APPROVED}, default_user="ada", recall_tool=False
    )
    model = agents.scripted(*answers)
    return dict(agents.ask(agents.agent_of(model, approval, budget, tools=TOOLS), QUESTION))


def test_a_required_tool_is_not_called_by_call_tool() -> None:
    [result] = results(of_approved(call("chess_3"), "Done."))
    assert result.text == "chess_3 was not called, as it is among your tools: call it directly."


def test_people_are_asked_before_a_required_tool_is_called() -> None:
    direct = AIMessage("", tool_calls=[{"name": "chess_3", "args": {"what": "e4"}, "id": "d"}])
    assert len(of_approved(direct, "Done.")["__interrupt__"]) == 1


# Tools for what is left out


def greeted(middleware: ContextBudgetMiddleware) -> dict[str, Any]:
    state = agents.ask(agents.agent_of(agents.scripted(), middleware), ("human", "Hello"))
    return dict(state["ctxbudget_report"])


def test_a_greeting_costs_no_recall_tool() -> None:
    with_tool = greeted(agents.budget(recall_tool=True))["total_tokens"]
    assert with_tool == greeted(agents.budget(recall_tool=False))["total_tokens"]


def recall_is_bound(model: Any) -> list[bool]:
    return ["recall" in names(bound) for bound in model.bound]


def test_the_recall_tool_is_bound_once_something_is_left_out() -> None:
    model = agents.scripted()
    agent = agents.agent_of(model, agents.budget(recall_tool=True))
    history = agents.long_history()
    agents.ask(agent, {"messages": [*history, ("human", "And now?")]})
    assert recall_is_bound(model) == [True]


@pytest.mark.slow
def test_the_recall_tool_stays_bound() -> None:
    model = agents.scripted()
    agent = agents.agent_of(model, agents.budget(recall_tool=True))
    history: list[Any] = agents.long_history()
    agents.ask(agent, {"messages": [*history, ("human", "And now?")]})
    for _ in range(3):
        agents.ask(agent, ("human", "And now?"))
    assert recall_is_bound(model) == [True] * 4
