"""With a large budget the middleware changes nothing.

Requests and outcomes are those of an agent without it.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from langchain.agents.middleware import (
    HumanInTheLoopMiddleware,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
)
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.types import Command
from pydantic import BaseModel

from tests.integration_tests.agents import (
    CONFIG,
    Scripted,
    agent_of,
    ask,
    book,
    budget,
    fail,
    look_up,
    scripted,
    wants,
)


class Place(BaseModel):
    """Where something is."""

    room: str


class Failing(Scripted):
    """Fails at its first calls."""

    fails: int = 1

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        if len(self.seen) < self.fails:
            self.seen.append(messages)
            raise ConnectionError("busy")
        return super()._generate(messages, *args, **kwargs)


class AgentMaker:
    """Makes an agent, with the middleware of this package or without it."""

    def __init__(self, *, with_package: bool) -> None:
        self._middleware = [budget(1_000_000)] if with_package else []

    def __call__(self, model: Any, *before: Any, behind: Sequence[Any] = (), **options: Any) -> Any:
        """Makes an agent whose other middleware stands before ours and behind it."""
        middleware = [*before, *self._middleware, *behind]
        return agent_of(model, *middleware, system_prompt="You help.", **options)


Models = list[Scripted]
Outcomes = list[Any]
Shape = Callable[[AgentMaker], tuple[Models, Outcomes]]


def question(number: int = 0) -> HumanMessage:
    return HumanMessage(f"Question {number}?", id=f"q{number}")


def parallel_calls_and_failing_tools(new_agent: AgentMaker) -> tuple[Models, Outcomes]:
    calls = wants("look_up", "fail", "look_up", topic="garden")
    model = scripted(calls, "It is in the shed.", "Yes.")
    agent = new_agent(model, tools=[look_up, fail])

    first = ask(agent, question(0))
    second = ask(agent, question(1))

    return [model], [first, second]


def structured_output(new_agent: AgentMaker) -> tuple[Models, Outcomes]:
    model = scripted(
        wants("Place", room="cellar"),
        wants("look_up", topic="roof"),
        wants("Place", key="b", room="attic"),
    )
    agent = new_agent(model, tools=[look_up], response_format=ToolStrategy(Place))

    first = ask(agent, question(0))
    second = ask(agent, question(1))

    return [model], [first, second]


def interrupts_and_resume(new_agent: AgentMaker) -> tuple[Models, Outcomes]:
    model = scripted(
        wants("book", what="a table"), wants("look_up", key="b", topic="inn"), "Booked."
    )
    approval = HumanInTheLoopMiddleware({"look_up": True})
    agent = new_agent(model, approval, tools=[look_up, book])

    first = ask(agent, question())
    resumed = ask(agent, Command(resume="yes"))
    approved = ask(agent, Command(resume={"decisions": [{"type": "approve"}]}))

    interrupts = [outcome["__interrupt__"][0].value for outcome in (first, resumed)]
    return [model], [*interrupts, approved]


async def chunks_of(agent: Any) -> list[tuple[str, Any]]:
    state = {"messages": [question()]}
    stream = agent.astream(state, CONFIG, stream_mode=["messages", "values"])
    return [chunk async for chunk in stream]


def streaming(new_agent: AgentMaker) -> tuple[Models, Outcomes]:
    model = scripted(wants("look_up", topic="bike"), "It is blue.")
    agent = new_agent(model, tools=[look_up])

    chunks = asyncio.run(chunks_of(agent))

    tokens = [chunk[0].content for mode, chunk in chunks if mode == "messages"]
    return [model], [tokens, agent.get_state(CONFIG).values]


def retries(new_agent: AgentMaker) -> tuple[Models, Outcomes]:
    model = Failing(responses=[AIMessage("There.")], fails=2)
    retrying = ModelRetryMiddleware(max_retries=3, initial_delay=0, jitter=False)
    agent = new_agent(model, behind=[retrying])

    outcome = ask(agent, question())

    return [model], [outcome]


def fallbacks(new_agent: AgentMaker) -> tuple[Models, Outcomes]:
    broken = Failing(responses=[AIMessage("Never.")], fails=9)
    other = scripted(wants("look_up", topic="car"), "In May.")
    agent = new_agent(broken, ModelFallbackMiddleware(other), tools=[look_up])

    outcome = ask(agent, question())

    return [broken, other], [outcome]


def is_before_the_second_answer(state: Any) -> bool:
    return len(state.values["messages"]) == 3 and state.next == ("model",)


def time_travel(new_agent: AgentMaker) -> tuple[Models, Outcomes]:
    model = scripted("One.", "Two.", "Another two.", "Three.")
    agent = new_agent(model)
    ask(agent, question(0))
    ask(agent, question(1))
    states = filter(is_before_the_second_answer, agent.get_state_history(CONFIG))
    earlier = next(states).config["configurable"]

    again = asyncio.run(agent.ainvoke(None, {"configurable": {**earlier, "user_id": "ada"}}))
    following = ask(agent, question(3))

    return [model], [again, following]


SHAPES: Sequence[Shape] = (
    parallel_calls_and_failing_tools,
    structured_output,
    interrupts_and_resume,
    streaming,
    retries,
    fallbacks,
    time_travel,
)


def comparable(value: Any, names: dict[str, str]) -> Any:
    """Returns an outcome without what differs between two runs.

    That is ids that nobody chose, and our own keys of a state.
    """
    if isinstance(value, BaseMessage):
        name = names.setdefault(str(value.id), f"message {len(names)}")
        return {**value.model_dump(exclude={"id"}), "id": name}
    if isinstance(value, BaseModel):
        return value.model_dump()
    if isinstance(value, Mapping):
        keys = [key for key in value if not str(key).startswith("ctxbudget")]
        return {key: comparable(value[key], names) for key in keys}
    if isinstance(value, list | tuple):
        return [comparable(item, names) for item in value]
    return value


@dataclass(frozen=True)
class Run:
    """What the models of an agent were asked, and what came of it."""

    models: Models
    outcomes: Outcomes

    @property
    def requests(self) -> list[list[BaseMessage]]:
        """The messages of every request, model by model."""
        requests: list[list[BaseMessage]] = []
        for model in self.models:
            requests += model.seen
        return requests

    @property
    def requests_of_each_model(self) -> list[int]:
        return [len(model.seen) for model in self.models]

    @property
    def tools(self) -> list[list[list[str]]]:
        """The names of the tools that each model was bound to, each time."""
        return [list(map(names_of, model.bound)) for model in self.models]


def names_of(tools: Sequence[Any]) -> list[str]:
    return [str(getattr(tool, "name", tool)) for tool in tools]


def run_of(shape: Shape, *, with_package: bool) -> Run:
    models, outcomes = shape(AgentMaker(with_package=with_package))
    return Run(models, outcomes)


def contents(messages: Sequence[BaseMessage]) -> list[Any]:
    return [(message.type, message.content) for message in messages]


def tool_calls(messages: Sequence[BaseMessage]) -> list[Any]:
    return [getattr(message, "tool_calls", None) for message in messages]


@pytest.fixture(scope="module", params=SHAPES, ids=lambda shape: shape.__name__)
def runs(request: pytest.FixtureRequest) -> tuple[Run, Run]:
    """A run with the middleware and one without it, for all tests of a shape."""
    return (
        run_of(request.param, with_package=True),
        run_of(request.param, with_package=False),
    )


def test_each_model_is_asked_as_often(runs: tuple[Run, Run]) -> None:
    ours, plain = runs

    assert sum(plain.requests_of_each_model) > 0
    assert ours.requests_of_each_model == plain.requests_of_each_model


def test_requests_have_the_same_messages(runs: tuple[Run, Run]) -> None:
    ours, plain = runs

    assert list(map(contents, ours.requests)) == list(map(contents, plain.requests))


def test_requests_have_the_same_tool_calls(runs: tuple[Run, Run]) -> None:
    ours, plain = runs

    assert list(map(tool_calls, ours.requests)) == list(map(tool_calls, plain.requests))


def test_the_same_tools_are_bound(runs: tuple[Run, Run]) -> None:
    ours, plain = runs

    assert ours.tools == plain.tools


def test_the_outcomes_are_the_same(runs: tuple[Run, Run]) -> None:
    ours, plain = runs

    assert comparable(ours.outcomes, {}) == comparable(plain.outcomes, {})
