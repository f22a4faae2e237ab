"""`ContextBudgetMiddleware` in a real agent.

What the model sees, what the state keeps, whose conversation it is.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain.agents.structured_output import AutoStrategy, ProviderStrategy, ToolStrategy
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command
from pydantic import BaseModel, Field

from tests.cases import few_are_quick
from tests.doubles.recount import recount
from tests.doubles.server import calls, says
from tests.doubles.strict_server import StrictServer
from tests.integration_tests import agents

pytestmark = [pytest.mark.allow_hosts(["127.0.0.1"]), pytest.mark.usefixtures("offline_tiktoken")]


def test_the_report_is_in_the_result() -> None:
    agent = agents.agent_of(agents.scripted(), agents.budget())

    state = agents.ask(agent, ("human", "Hi"))

    assert state["ctxbudget_report"]["total_tokens"] > 0


def test_the_report_is_not_in_the_checkpoint() -> None:
    agent = agents.agent_of(agents.scripted(), agents.budget())

    agents.ask(agent, ("human", "Hi"))

    assert set(agent.get_state(agents.CONFIG).values) == {"messages", "ctxbudget_turn"}


# -- What is counted


class Weather(BaseModel):
    """The weather at a place."""

    place: str = Field(description="where")
    degrees: float | None = None


class Poem(BaseModel):
    """A poem."""

    lines: list[str]


SCHEMA = {
    "title": "Weather",
    "description": "The weather at a place",
    "type": "object",
    "properties": {
        "place": {"type": "string", "description": "where"},
        "degrees": {"type": "number"},
    },
    "required": ["place"],
}
FORMATS: dict[str, Any] = {
    "none": None,
    "tool": ToolStrategy(Weather),
    "union": ToolStrategy(Weather | Poem),
    "dict as tool": ToolStrategy(SCHEMA),
    "provider": ProviderStrategy(Weather),
    "strict provider": ProviderStrategy(Weather, strict=True),
    "dict of the provider": ProviderStrategy(SCHEMA),
    "auto": AutoStrategy(Weather),
    "class": Weather,
    "dict": SCHEMA,
}
PROMPTS: dict[str, Any] = {
    "no prompt": None,
    "text": "You help, and you are brief.",
    "blocks": SystemMessage(
        [{"type": "text", "text": "You help."}, {"type": "text", "text": "You are brief."}]
    ),
}


def names_of_tools(body: Mapping[str, Any]) -> set[str]:
    return {tool["function"]["name"] for tool in body.get("tools", ()) if "function" in tool}


def tell_weather(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Answers in the form that a request wants."""
    if "response_format" in body:
        return says('{"place": "Graz", "degrees": 3}')
    if "Weather" in names_of_tools(body):
        return calls(("w1", "Weather", {"place": "Graz", "degrees": 3}))
    return says("Fine.")


@pytest.mark.parametrize("system_prompt", few_are_quick(PROMPTS.values()), ids=PROMPTS)
@pytest.mark.parametrize("model", ["gpt-4o", pytest.param("gpt-4-turbo", marks=pytest.mark.slow)])
@pytest.mark.parametrize("response_format", FORMATS.values(), ids=FORMATS)
def test_tools_prompt_and_response_format_are_counted_as_sent(
    response_format: Any, model: str, system_prompt: Any
) -> None:
    with StrictServer(tell_weather, max_tokens=agents.BUDGET_TOKENS) as server:
        agent = agents.agent_of(
            agents.openai(server, model),
            agents.budget(recall_tool=True),
            tools=[agents.look_up],
            response_format=response_format,
            system_prompt=system_prompt,
        )
        question = HumanMessage("The weather?")
        state = agents.ask(agent, {"messages": [*agents.long_history(), question]})

    [request] = server.received
    assert recount(request) <= state["ctxbudget_report"]["total_tokens"] <= agents.BUDGET_TOKENS
    assert names_of_tools(request) >= {"look_up", "recall"}
    assert ("structured_response" in state) is (response_format is not None)


def test_the_usage_of_streamed_answers_corrects_the_next_counts() -> None:
    def twice_as_much(body: Any) -> int:
        return 2 * recount(body)

    with StrictServer(lambda _: says("In pieces. " * 10), measure=twice_as_much) as server:
        agent = agents.agent_of(agents.openai(server, stream_usage=True), agents.budget())
        question = {"messages": [("human", "Hi " * 550)]}
        for _ in range(2):  # of an exact count, one that is twice as much could be an accident
            pieces = list(agent.stream(question, agents.CONFIG, stream_mode="messages"))
        state = agents.ask(agent, ("human", "Hi"))

    assert len(pieces) > 5
    assert state["ctxbudget_report"]["total_tokens"] > 1.5 * recount(server.received[-1])


# -- The turn while an agent loops


class Interrupted(NamedTuple):
    """What the models before and after an interrupt saw, and the state at the end."""

    before: list[BaseMessage]
    after: list[BaseMessage]
    state: dict[str, Any]


def interrupted_agent(call: Any, approval: Any, *middleware: Any) -> Interrupted:
    """Resumes an agent with a new model and a new middleware over the same stores."""
    store = InMemoryStore()
    saver = InMemorySaver()
    clock = agents.clock_layer()

    def agent_of(model: Any) -> Any:
        ours = agents.budget(settings={"layers": [clock]}, store=store)
        tools = [agents.book, agents.look_up]
        return agents.agent_of(model, *middleware, ours, tools=tools, checkpointer=saver)

    first_model = agents.scripted(call, "Done.")
    question = HumanMessage("Which tree?", id="q")
    agents.ask(agent_of(first_model), {"messages": [*agents.long_history(), question]})

    second_model = agents.scripted("Done.")
    state = agents.ask(agent_of(second_model), Command(resume=approval))

    [before] = first_model.seen
    [after] = second_model.seen
    return Interrupted(before, after, state)


@pytest.fixture(scope="module", params=["tool", "middleware"])
def interrupted(request: pytest.FixtureRequest) -> Interrupted:
    if request.param == "tool":
        return interrupted_agent(agents.wants("book", what="a table"), "yes")
    return interrupted_agent(
        agents.wants("look_up", topic="tree"),
        {"decisions": [{"type": "approve"}]},
        HumanInTheLoopMiddleware({"look_up": True}),
    )


def test_an_interrupt_is_resumed_elsewhere_with_the_same_prompt(interrupted: Interrupted) -> None:
    beginning = interrupted.after[: len(interrupted.before)]

    assert json_of(beginning) == json_of(interrupted.before)


def json_of(messages: list[BaseMessage]) -> list[str]:
    return [message.model_dump_json() for message in messages]


def test_after_an_interrupt_the_call_and_its_result_are_added(interrupted: Interrupted) -> None:
    added = interrupted.after[len(interrupted.before) :]

    assert [message.type for message in added] == ["ai", "tool"]


def test_an_agent_that_is_resumed_comes_to_its_end(interrupted: Interrupted) -> None:
    assert interrupted.state["messages"][-1].text == "Done."


# -- Many at once, and inside of others


async def test_many_conversations_at_once_keep_apart() -> None:
    middleware = agents.budget()
    answers = [f"Answer {number}." for number in range(200)]
    agent = agents.agent_of(agents.scripted(*answers), middleware)
    scopes = [
        {"user_id": f"u{number % 3}", "conversation_id": f"c{number}"} for number in range(12)
    ]

    for number in range(3):
        question = {"messages": [("human", f"Turn {number}")]}
        await asyncio.gather(*(agent.ainvoke(question, config_of(scope)) for scope in scopes))

    for scope in scopes:
        log = middleware.pipeline.get_messages(**scope)
        assert log == agent.get_state(config_of(scope)).values["messages"]
        assert [message.text for message in log[::2]] == ["Turn 0", "Turn 1", "Turn 2"]


def config_of(scope: Mapping[str, str]) -> dict[str, Any]:
    return {"configurable": {"thread_id": scope["conversation_id"], "user_id": scope["user_id"]}}


class TestAModelThatCannotBindTools:
    @pytest.fixture
    def state(self) -> dict[str, Any]:
        model = FakeListChatModel(responses=["Fine."])
        agent = agents.agent_of(model, agents.budget(recall_tool=True))
        return agents.ask(agent, ("human", "Hi"))

    def test_it_answers_without_the_recall_tool(self, state: dict[str, Any]) -> None:
        assert state["messages"][-1].text == "Fine."
        [tools] = [layer for layer in state["ctxbudget_report"]["layers"] if layer["layer"] == "L8"]
        assert tools["used_tokens"] == 0

    def test_the_report_tells_of_it(self, state: dict[str, Any]) -> None:
        [failure] = state["ctxbudget_report"]["failures"]
        assert "FakeListChatModel cannot bind tools" in failure
