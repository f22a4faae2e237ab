"""`ContextBudgetMiddleware` in a real agent: what the model sees, what the state keeps, whose conversation it is."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Mapping, Sequence
from itertools import count as counting
from itertools import product
from typing import Annotated, Any, Required

import pytest
from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain.agents.structured_output import AutoStrategy, ProviderStrategy, ToolStrategy
from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, RemoveMessage, SystemMessage
from langchain_core.tools import BaseTool, ToolException, tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, interrupt
from pydantic import BaseModel, Field, SecretStr

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.integrations.middleware import ContextBudgetMiddleware
from langchain_ctxbudget.settings import CustomLayer
from tests.integration_tests.openai_server import calls, says
from tests.integration_tests.scripted_agent import as_stored
from tests.integration_tests.strict_openai_server import StrictOpenAIServer, recount

pytestmark = [pytest.mark.allow_hosts(["127.0.0.1"]), pytest.mark.usefixtures("offline_tiktoken")]

CONFIG: dict[str, Any] = {"configurable": {"thread_id": "c1", "user_id": "ada"}}
BUDGET_TOKENS = 1_500
WAYS = ("invoke", "ainvoke", "stream", "astream")

Ask = Callable[..., dict[str, Any]]
"""From an agent, what is given to it and the config to its state at the end."""


def run_agent(
    way: str, agent: Any, given: object, config: Mapping[str, Any] = CONFIG, **options: Any
) -> dict[str, Any]:
    asked: Any = {"messages": [given]} if isinstance(given, tuple | BaseMessage) else given

    async def streamed() -> Any:
        return [state async for state in agent.astream(asked, config, stream_mode="values", **options)][-1]

    match way:
        case "invoke":
            return dict(agent.invoke(asked, config, **options))
        case "ainvoke":
            return dict(asyncio.run(agent.ainvoke(asked, config, **options)))
        case "stream":
            return dict(list(agent.stream(asked, config, stream_mode="values", **options))[-1])
        case _:
            return dict(asyncio.run(streamed()))


@pytest.fixture(params=["ainvoke"])
def ask(request: pytest.FixtureRequest) -> Ask:
    """Runs an agent; where many ways matter, a test is marked with `in_two_ways`."""
    return lambda *args, **options: run_agent(request.param, *args, **options)


in_two_ways = pytest.mark.parametrize("ask", ["invoke", "astream"], indirect=True)


class Scripted(FakeMessagesListChatModel):
    """A model that gives answers one after the other, and keeps what it saw and what was bound to it."""

    seen: list[list[BaseMessage]] = Field(default_factory=list)
    bound: list[Sequence[Any]] = Field(default_factory=list)

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        self.bound.append(tools)
        return self

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        self.seen.append(messages)
        result = super()._generate(messages, *args, **kwargs)
        for generation in result.generations:  # else an answer that is given again has the id that it got before
            generation.message = generation.message.model_copy(deep=True)
        return result


class ListedState(AgentState[Any]):
    """A state that adds up lists: the user's messages and the results of tools stay without ids."""

    messages: Required[Annotated[list[AnyMessage], operator.add]]


def scripted(*answers: str | AIMessage) -> Scripted:
    return Scripted(
        responses=[AIMessage(given) if isinstance(given, str) else given for given in answers or ("Fine.",)]
    )


def wants(*names: str, key: str = "k", **arguments: Any) -> AIMessage:
    made = [{"name": name, "args": arguments, "id": f"{key}{n}"} for n, name in enumerate(names)]
    return AIMessage("", id=f"ai-{key}", tool_calls=made)


def budget(tokens: int = BUDGET_TOKENS, *, recall_tool: bool = False, **options: Any) -> ContextBudgetMiddleware:
    settings = {"max_context_tokens": tokens, **options.pop("settings", {})}
    options = {"store": InMemoryStore(), "report": "texts", **options}
    return ContextBudgetMiddleware(settings, recall_tool=recall_tool, **options)


def agent_of(model: Any, *middleware: Any, tools: Sequence[Any] = (), **options: Any) -> Any:
    options.setdefault("checkpointer", InMemorySaver())
    return create_agent(model, list(tools), middleware=list(middleware), **options)


def openai(server: StrictOpenAIServer, model: str = "gpt-4o", **options: Any) -> ChatOpenAI:
    return ChatOpenAI(model=model, api_key=SecretStr("x"), base_url=server.url, max_retries=0, **options)


@tool
def look_up(topic: str, lines: int = 3) -> str:
    """Look a topic up."""
    return "\n".join(f"{topic}, note {n}: it was written down on day {n * 7}." for n in range(lines))


def _fail(topic: str) -> str:
    """Look up what cannot be found."""
    raise ToolException(f"no {topic}")


fail = tool("fail")(_fail)
fail.handle_tool_error = True


@tool
def book(what: str) -> str:
    """Book something."""
    return f"{what}: {interrupt({'question': what})}"


def long_history(length: int = 40) -> list[BaseMessage]:
    words = "The apple tree by the shed was planted in March by Uncle Ferdinand, before the roof was mended."
    return [
        made
        for n in range(length)
        for made in (HumanMessage(f"Note {n}: {words}", id=f"h{n}"), AIMessage(f"I keep note {n}.", id=f"a{n}"))
    ]


def clock_layer() -> CustomLayer:
    """A layer that says something else each time that it is asked."""
    times = counting(1)
    return CustomLayer(name="clock", items=lambda _: [f"It is {next(times)} o'clock."], ideal_tokens=50)


# -- State


@in_two_ways
def test_state_s_messages_are_those_of_an_agent_without_the_middleware(ask: Ask) -> None:
    answers = [
        "First.",
        wants("look_up", "look_up", "fail", topic="garden"),
        "Second.",
        wants("look_up", key="b", topic="roof", lines=200),
        "Third.",
    ]
    kept = []
    for middleware in ([], [budget()]):
        agent = agent_of(scripted(*answers), *middleware, tools=[look_up, fail])
        for n in range(3):
            state = ask(agent, HumanMessage(f"Question {n}?", id=f"q{n}"))
        kept.append([as_stored(message) | {"id": None} for message in state["messages"]])
    assert kept[0] == kept[1]


def test_the_report_is_in_the_result_and_not_in_the_checkpoint(ask: Ask) -> None:
    agent = agent_of(scripted(), budget())
    assert ask(agent, ("human", "Hi"))["ctxbudget_report"]["total_tokens"] > 0
    assert set(agent.get_state(CONFIG).values) == {"messages", "ctxbudget_turn"}


def test_the_context_block_is_neither_asked_for_nor_given() -> None:
    agent = agent_of(scripted(), budget())
    assert "ctxbudget_turn" not in agent.get_input_jsonschema()["properties"]
    assert "ctxbudget_report" not in agent.get_input_jsonschema()["properties"]
    assert set(agent.get_output_jsonschema()["properties"]) >= {"messages", "ctxbudget_report"}
    assert "ctxbudget_turn" not in agent.get_output_jsonschema()["properties"]
    assert "ctxbudget_turn" not in agent.invoke({"messages": [("human", "Hi")]}, CONFIG)


def test_what_is_taken_out_of_the_state_is_no_longer_known_in_other_threads() -> None:
    with ContextPipeline(store=InMemoryStore(), settings={"learn_every": 1}) as pipeline:
        model = scripted("Fine.")
        agent = agent_of(model, ContextBudgetMiddleware(pipeline=pipeline, recall_tool=False))
        elsewhere = {"configurable": {"thread_id": "c2", "user_id": "ada"}}
        run_agent("invoke", agent, HumanMessage("I am allergic to penicillin.", id="said"))
        assert pipeline.flush(30)
        run_agent("invoke", agent, HumanMessage("Hello.", id="one"), elsewhere)
        agent.update_state(CONFIG, {"messages": [RemoveMessage("said")]})
        run_agent("invoke", agent, HumanMessage("Hello.", id="again"))
        run_agent("invoke", agent, HumanMessage("Hello.", id="two"), elsewhere)
        known = ["penicillin" in "".join(message.text for message in prompt[:-1]) for prompt in model.seen]
        assert known == [False, True, False, False]


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
    "properties": {"place": {"type": "string", "description": "where"}, "degrees": {"type": "number"}},
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
    "blocks": SystemMessage([{"type": "text", "text": "You help."}, {"type": "text", "text": "You are brief."}]),
}


def tells_weather(body: Mapping[str, Any]) -> Mapping[str, Any]:
    named = {made["function"]["name"] for made in body.get("tools", ()) if "function" in made}
    if "response_format" in body:
        return says('{"place": "Graz", "degrees": 3}')
    return calls(("w1", "Weather", {"place": "Graz", "degrees": 3})) if "Weather" in named else says("Fine.")


@pytest.mark.parametrize("wanted", FORMATS)
def test_tools_prompt_and_response_format_are_counted_as_they_are_sent(wanted: str) -> None:
    given: Any = FORMATS[wanted]
    for model, prompt in product(("gpt-4o", "gpt-4-turbo"), PROMPTS):
        with StrictOpenAIServer(tells_weather, max_tokens=BUDGET_TOKENS) as server:
            options = {"tools": [look_up], "response_format": given, "system_prompt": PROMPTS[prompt]}
            agent = agent_of(openai(server, model), budget(recall_tool=True), **options)
            state = run_agent("invoke", agent, {"messages": [*long_history(8), HumanMessage("The weather?")]})
        [sent] = server.received
        assert recount(sent) <= state["ctxbudget_report"]["total_tokens"] <= BUDGET_TOKENS
        assert {made["function"]["name"] for made in sent["tools"]} >= {"look_up", "recall"}
        assert ("structured_response" in state) == (given is not None)


def test_settings_of_the_model_that_lengthen_the_request_are_counted() -> None:
    from langchain.agents.middleware import wrap_model_call  # noqa: PLC0415

    form = {"type": "json_schema", "json_schema": {"name": "Weather", "schema": SCHEMA}}

    @wrap_model_call
    def set_format(request: Any, handler: Any) -> Any:
        return handler(request.override(model_settings={"response_format": form}))

    with StrictOpenAIServer(tells_weather) as server:
        state = run_agent("invoke", agent_of(openai(server), set_format, budget(), tools=[look_up]), ("human", "Hi"))
    assert recount(server.received[0]) <= state["ctxbudget_report"]["total_tokens"]


@in_two_ways
def test_a_long_run_with_tools_is_valid_and_within_budget(ask: Ask) -> None:
    def answer(body: Mapping[str, Any]) -> Mapping[str, Any]:
        last = body["messages"][-1]
        step = 0 if last["role"] == "user" else int(last["tool_call_id"][-1]) + 1
        key = f"k{len(server.received)}"
        wanted = (
            (f"{key}-{step}", "look_up", {"topic": "garden", "lines": 150}),
            (f"{key}+{step}", "fail", {"topic": "roof"}),
        )
        return calls(*wanted) if step < 2 else says("Done with it, and everything is written down. " * 5)

    reports = []
    with StrictOpenAIServer(answer, max_tokens=BUDGET_TOKENS) as server:
        agent = agent_of(openai(server), budget(), tools=[look_up, fail], system_prompt="You help.")
        for n in range(6):
            state = ask(agent, ("human", f"Question {n} about the garden and the roof?"))
            reports.append(state["ctxbudget_report"])
    assert server.refused == []
    assert len(server.received) == 18
    assert all(report["total_tokens"] <= BUDGET_TOKENS for report in reports)


def test_the_usage_of_streamed_answers_corrects_the_next_counts() -> None:
    with StrictOpenAIServer(lambda _: says("In pieces. " * 10), measure=lambda body: 2 * recount(body)) as server:
        agent = agent_of(openai(server, stream_usage=True), budget())
        for _ in range(2):  # of an exact count, one that is twice as much could be an accident
            pieces = list(agent.stream({"messages": [("human", "Hi " * 550)]}, CONFIG, stream_mode="messages"))
        state = run_agent("invoke", agent, ("human", "Hi"))
    assert len(pieces) > 5
    assert state["ctxbudget_report"]["total_tokens"] > 1.5 * recount(server.received[-1])


# -- The turn while an agent loops


def loop(
    model: Scripted, middleware: ContextBudgetMiddleware, ask: Ask, tools: Sequence[BaseTool] = (look_up,)
) -> None:
    ask(agent_of(model, middleware, tools=tools), {"messages": [*long_history(), HumanMessage("Which tree?", id="q")]})


def words_of_user(messages: Sequence[BaseMessage]) -> BaseMessage:
    return next(message for message in reversed(messages) if message.id == "q")


STEPS_OF_LOOP = [wants("look_up", key=f"s{n}", topic="tree") for n in range(5)]


def test_the_context_block_is_the_same_while_an_agent_loops(ask: Ask) -> None:
    model = scripted(*STEPS_OF_LOOP, "Done.")
    loop(model, budget(settings={"layers": [clock_layer()]}), ask)
    assert len(model.seen) == 6
    assert "o'clock" in words_of_user(model.seen[0]).text
    assert {words_of_user(messages).model_dump_json() for messages in model.seen} == {
        words_of_user(model.seen[0]).model_dump_json()
    }


@pytest.mark.parametrize("by", ["tool", "middleware"])
def test_an_interrupt_is_resumed_elsewhere_with_the_same_prompt(ask: Ask, by: str) -> None:
    store, saver, clock = InMemoryStore(), InMemorySaver(), clock_layer()
    wanted = wants(
        "book" if by == "tool" else "look_up", **({"what": "a table"} if by == "tool" else {"topic": "tree"})
    )
    models = []
    for given in ({"messages": [*long_history(), HumanMessage("Which tree?", id="q")]}, None):
        model = scripted(wanted, "Done.") if given else scripted("Done.")
        before = [HumanInTheLoopMiddleware({"look_up": True})] if by == "middleware" else []
        middleware = budget(settings={"layers": [clock]}, store=store)
        agent = agent_of(model, *before, middleware, tools=[book, look_up], checkpointer=saver)
        answer: Any = "yes" if by == "tool" else {"decisions": [{"type": "approve"}]}
        state = ask(agent, given or Command(resume=answer))
        models.append(model)
    [[first], [second]] = [model.seen for model in models]
    assert [m.model_dump_json() for m in second[: len(first)]] == [m.model_dump_json() for m in first]
    assert [message.type for message in second[len(first) :]] == ["ai", "tool"]
    assert state["messages"][-1].text == "Done."
