"""With a large budget the middleware changes nothing.

Requests and outcomes are those of an agent without it.
"""

import asyncio
from collections.abc import Callable, Sequence
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


Models = list[Scripted]
Shape = Callable[[Callable[..., Any]], tuple[Models, list[Any]]]


def first(number: int = 0) -> HumanMessage:
    return HumanMessage(f"Question {number}?", id=f"q{number}")


def parallel_calls_and_failing_tools(agent: Callable[..., Any]) -> tuple[Models, list[Any]]:
    model = scripted(
        wants("look_up", "fail", "look_up", topic="garden"), "It is in the shed.", "Yes."
    )
    made = agent(model, tools=[look_up, fail])
    return [model], [ask(made, first(number)) for number in range(2)]


def structured_output(agent: Callable[..., Any]) -> tuple[Models, list[Any]]:
    model = scripted(
        wants("Place", room="cellar"),
        wants("look_up", topic="roof"),
        wants("Place", key="b", room="attic"),
    )
    made = agent(model, tools=[look_up], response_format=ToolStrategy(Place))
    return [model], [ask(made, first(number)) for number in range(2)]


def interrupts_and_resume(agent: Callable[..., Any]) -> tuple[Models, list[Any]]:
    model = scripted(
        wants("book", what="a table"), wants("look_up", key="b", topic="inn"), "Booked."
    )
    made = agent(model, HumanInTheLoopMiddleware({"look_up": True}), tools=[look_up, book])
    asked = ask(made, first())
    resumed = ask(made, Command(resume="yes"))
    approved = ask(made, Command(resume={"decisions": [{"type": "approve"}]}))
    return [model], [asked["__interrupt__"][0].value, resumed["__interrupt__"][0].value, approved]


def streaming(agent: Callable[..., Any]) -> tuple[Models, list[Any]]:
    model = scripted(wants("look_up", topic="bike"), "It is blue.")
    made = agent(model, tools=[look_up])

    async def chunks() -> list[Any]:
        return [
            one
            async for one in made.astream(
                {"messages": [first()]}, CONFIG, stream_mode=["messages", "values"]
            )
        ]

    tokens = [chunk[0].content for mode, chunk in asyncio.run(chunks()) if mode == "messages"]
    return [model], [tokens, made.get_state(CONFIG).values]


def retries(agent: Callable[..., Any]) -> tuple[Models, list[Any]]:
    model = Failing(responses=[AIMessage("There.")], fails=2)
    made = agent(model, behind=[ModelRetryMiddleware(max_retries=3, initial_delay=0, jitter=False)])
    return [model], [ask(made, first())]


def fallbacks(agent: Callable[..., Any]) -> tuple[Models, list[Any]]:
    broken = Failing(responses=[AIMessage("Never.")], fails=9)
    other = scripted(wants("look_up", topic="car"), "In May.")
    made = agent(broken, ModelFallbackMiddleware(other), tools=[look_up])
    return [broken, other], [ask(made, first())]


def time_travel(agent: Callable[..., Any]) -> tuple[Models, list[Any]]:
    model = scripted("One.", "Two.", "Another two.", "Three.")
    made = agent(model)
    for number in range(2):
        ask(made, first(number))
    before = next(
        one
        for one in made.get_state_history(CONFIG)
        if len(one.values["messages"]) == 3 and one.next == ("model",)
    )
    config = {"configurable": {**before.config["configurable"], "user_id": "ada"}}
    again = asyncio.run(made.ainvoke(None, config))
    return [model], [again, ask(made, first(3))]


SHAPES: Sequence[Shape] = (
    parallel_calls_and_failing_tools,
    structured_output,
    interrupts_and_resume,
    streaming,
    retries,
    fallbacks,
    time_travel,
)


def plain(value: Any, names: dict[str, str]) -> Any:
    """Returns an outcome without what differs between two runs.

    Ids that nobody has given, and our own keys.
    """
    if isinstance(value, BaseMessage):
        name = names.setdefault(str(value.id), f"message {len(names)}")
        return {**value.model_dump(exclude={"id"}), "id": name}
    if isinstance(value, BaseModel):
        return value.model_dump()
    if isinstance(value, dict):
        return {
            key: plain(one, names)
            for key, one in value.items()
            if not str(key).startswith("ctxbudget")
        }
    return [plain(one, names) for one in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_requests_and_outcomes_are_those_of_an_agent_without_the_middleware(shape: Shape) -> None:
    seen = []
    for ours in ([], [budget(1_000_000)]):

        def agent(
            model: Any,
            *before: Any,
            behind: Sequence[Any] = (),
            ours: Any = tuple(ours),
            **options: Any,
        ) -> Any:
            return agent_of(model, *before, *ours, *behind, system_prompt="You help.", **options)

        models, outcomes = shape(agent)
        sent = [
            [[(one.type, one.content) for one in request] for request in model.seen]
            for model in models
        ]
        calls = [
            [[getattr(one, "tool_calls", None) for one in request] for request in model.seen]
            for model in models
        ]
        bound = [
            [[str(getattr(tool, "name", tool)) for tool in tools] for tools in model.bound]
            for model in models
        ]
        seen.append((sent, calls, bound, plain(outcomes, {})))
    without, with_it = seen
    assert with_it == without
