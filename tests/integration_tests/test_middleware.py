"""`ContextBudgetMiddleware` in a real agent.

What the model sees, what the state keeps, whose conversation it is.
"""

import asyncio
from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain.agents.structured_output import AutoStrategy, ProviderStrategy, ToolStrategy
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import HumanMessage, SystemMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command
from pydantic import BaseModel, Field

from tests.integration_tests import agents
from tests.integration_tests.openai_server import calls, says
from tests.integration_tests.strict_openai_server import StrictOpenAIServer, recount

pytestmark = [pytest.mark.allow_hosts(["127.0.0.1"]), pytest.mark.usefixtures("offline_tiktoken")]


def test_the_report_is_in_the_result_and_not_in_the_checkpoint() -> None:
    agent = agents.agent_of(agents.scripted(), agents.budget())
    assert agents.ask(agent, ("human", "Hi"))["ctxbudget_report"]["total_tokens"] > 0
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
FORMATS = {
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


def tells_weather(body: Mapping[str, Any]) -> Mapping[str, Any]:
    named = {made["function"]["name"] for made in body.get("tools", ()) if "function" in made}
    if "response_format" in body:
        return says('{"place": "Graz", "degrees": 3}')
    return (
        calls(("w1", "Weather", {"place": "Graz", "degrees": 3}))
        if "Weather" in named
        else says("Fine.")
    )


@pytest.mark.parametrize("wanted", FORMATS)
def test_tools_prompt_and_response_format_are_counted_as_they_are_sent(wanted: str) -> None:
    given: Any = FORMATS[wanted]
    for model, prompt in product(("gpt-4o", "gpt-4-turbo"), PROMPTS):
        with StrictOpenAIServer(tells_weather, max_tokens=agents.BUDGET_TOKENS) as server:
            options = {
                "tools": [agents.look_up],
                "response_format": given,
                "system_prompt": PROMPTS[prompt],
            }
            agent = agents.agent_of(
                agents.openai(server, model), agents.budget(recall_tool=True), **options
            )
            state = agents.ask(
                agent, {"messages": [*agents.long_history(8), HumanMessage("The weather?")]}
            )
        [sent] = server.received
        assert recount(sent) <= state["ctxbudget_report"]["total_tokens"] <= agents.BUDGET_TOKENS
        assert {made["function"]["name"] for made in sent["tools"]} >= {"look_up", "recall"}
        assert ("structured_response" in state) == (given is not None)


def test_the_usage_of_streamed_answers_corrects_the_next_counts() -> None:
    with StrictOpenAIServer(
        lambda _: says("In pieces. " * 10), measure=lambda body: 2 * recount(body)
    ) as server:
        agent = agents.agent_of(agents.openai(server, stream_usage=True), agents.budget())
        for _ in range(2):  # of an exact count, one that is twice as much could be an accident
            pieces = list(
                agent.stream(
                    {"messages": [("human", "Hi " * 550)]}, agents.CONFIG, stream_mode="messages"
                )
            )
        state = agents.ask(agent, ("human", "Hi"))
    assert len(pieces) > 5
    assert state["ctxbudget_report"]["total_tokens"] > 1.5 * recount(server.received[-1])


# -- The turn while an agent loops


@pytest.mark.parametrize("by", ["tool", "middleware"])
def test_an_interrupt_is_resumed_elsewhere_with_the_same_prompt(by: str) -> None:
    store = InMemoryStore()
    saver = InMemorySaver()
    clock = agents.clock_layer()
    wanted = agents.wants(
        "book" if by == "tool" else "look_up",
        **({"what": "a table"} if by == "tool" else {"topic": "tree"}),
    )
    models = []
    for given in (
        {"messages": [*agents.long_history(), HumanMessage("Which tree?", id="q")]},
        None,
    ):
        model = agents.scripted(wanted, "Done.") if given else agents.scripted("Done.")
        before = [HumanInTheLoopMiddleware({"look_up": True})] if by == "middleware" else []
        middleware = agents.budget(settings={"layers": [clock]}, store=store)
        agent = agents.agent_of(
            model, *before, middleware, tools=[agents.book, agents.look_up], checkpointer=saver
        )
        answer: Any = "yes" if by == "tool" else {"decisions": [{"type": "approve"}]}
        state = agents.ask(agent, given or Command(resume=answer))
        models.append(model)
    [[first], [second]] = [model.seen for model in models]
    assert [m.model_dump_json() for m in second[: len(first)]] == [
        m.model_dump_json() for m in first
    ]
    assert [message.type for message in second[len(first) :]] == ["ai", "tool"]
    assert state["messages"][-1].text == "Done."


# -- Many at once, and inside of others


async def test_many_conversations_at_once_keep_apart() -> None:
    middleware = agents.budget()
    agent = agents.agent_of(agents.scripted(*[f"Answer {n}." for n in range(200)]), middleware)
    configs = [{"configurable": {"thread_id": f"c{n}", "user_id": f"u{n % 3}"}} for n in range(12)]
    for n in range(3):
        asked = {"messages": [("human", f"Turn {n}")]}
        await asyncio.gather(*(agent.ainvoke(asked, config) for config in configs))
    for config in configs:
        scope = {
            "user_id": config["configurable"]["user_id"],
            "conversation_id": config["configurable"]["thread_id"],
        }
        kept = middleware.pipeline.get_messages(**scope)
        assert kept == agent.get_state(config).values["messages"]
        assert [message.text for message in kept[::2]] == ["Turn 0", "Turn 1", "Turn 2"]


def test_a_model_that_cannot_bind_tools_answers_without_the_recall_tool_and_that_is_told() -> None:
    model = FakeListChatModel(responses=["Fine."])
    state = agents.ask(agents.agent_of(model, agents.budget(recall_tool=True)), ("human", "Hi"))
    assert state["messages"][-1].text == "Fine."
    assert state["ctxbudget_report"]["overhead_tokens"].get("tool schemas", 0) == 0
    [told] = state["ctxbudget_report"]["failures"]
    assert f"{type(model).__name__} cannot bind tools" in told
