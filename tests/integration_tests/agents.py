"""Agents of `create_agent` with our middleware, and models that answer from a list."""

import asyncio
import operator
from collections.abc import Mapping, Sequence
from itertools import count as counting
from typing import Annotated, Any, Required

from langchain.agents import AgentState, create_agent
from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolCall
from langchain_core.tools import ToolException, tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from langgraph.types import interrupt
from pydantic import Field, SecretStr

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.middleware import ContextBudgetMiddleware
from langchain_ctxbudget.settings import CustomLayer
from tests.doubles.strict_server import StrictServer

CONFIG: dict[str, Any] = {"configurable": {"thread_id": "c1", "user_id": "ada"}}
SCOPE = {"user_id": "ada", "conversation_id": "c1"}
BUDGET_TOKENS = 1_500


def ask(
    agent: Any, question: object, config: Mapping[str, Any] = CONFIG, **options: Any
) -> dict[str, Any]:
    """Awaits an agent that gets a message, or a state.

    `test_both_forms` says that the blocking form gives the same.
    """
    state = question
    if isinstance(question, tuple | BaseMessage):
        state = {"messages": [question]}
    return dict(asyncio.run(agent.ainvoke(state, config, **options)))


class Scripted(FakeMessagesListChatModel):
    """A model that gives answers one after the other; it keeps what it saw and what was bound."""

    seen: list[list[BaseMessage]] = Field(default_factory=list)
    bound: list[Sequence[Any]] = Field(default_factory=list)

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        self.bound.append(tools)
        return self

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        self.seen.append(messages)
        result = super()._generate(messages, *args, **kwargs)
        for generation in result.generations:
            # Else an answer that is given again has the id that it got before.
            generation.message = generation.message.model_copy(deep=True)
        return result


class ListedState(AgentState[Any]):
    """A state that adds up lists: the user's messages and the results of tools stay without ids."""

    messages: Required[Annotated[list[AnyMessage], operator.add]]


def scripted(*answers: str | AIMessage) -> Scripted:
    """A model with these answers; without any it says that it is fine."""
    responses: list[BaseMessage] = []
    for answer in answers or ("Fine.",):
        message = AIMessage(answer) if isinstance(answer, str) else answer
        responses.append(message)
    return Scripted(responses=responses)


def wants(*names: str, key: str = "k", **arguments: Any) -> AIMessage:
    """An answer that calls these tools, all with the same arguments."""
    calls = [
        ToolCall(name=name, args=arguments, id=f"{key}{number}")
        for number, name in enumerate(names)
    ]
    return AIMessage("", id=f"ai-{key}", tool_calls=calls)


def budget(
    tokens: int = BUDGET_TOKENS, *, recall_tool: bool = False, **options: Any
) -> ContextBudgetMiddleware:
    """The middleware of a pipeline; options are those of either, and `settings`."""
    settings = {"max_context_tokens": tokens, **options.pop("settings", {})}
    own: dict[str, Any] = {"report": "texts"}
    for name in ("default_user", "runtime_store", "agent", "compaction_tool", "report"):
        if name in options:
            own[name] = options.pop(name)
    options.setdefault("store", InMemoryStore())
    pipeline = ContextPipeline(settings, **options)
    return ContextBudgetMiddleware(pipeline, recall_tool=recall_tool, **own)


def agent_of(model: Any, *middleware: Any, tools: Sequence[Any] = (), **options: Any) -> Any:
    options.setdefault("checkpointer", InMemorySaver())
    return create_agent(model, list(tools), middleware=list(middleware), **options)


def openai(server: StrictServer, model: str = "gpt-4o", **options: Any) -> ChatOpenAI:
    return ChatOpenAI(
        model=model, api_key=SecretStr("x"), base_url=server.url, max_retries=0, **options
    )


@tool
def look_up(topic: str, lines: int = 3) -> str:
    """Look a topic up."""
    notes = [f"{topic}, note {n}: it was written down on day {n * 7}." for n in range(lines)]
    return "\n".join(notes)


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
    """So many notes that the user has the assistant keep."""
    text = (
        "The apple tree by the shed was planted in March by Uncle Ferdinand, "
        "before the roof was mended."
    )
    messages: list[BaseMessage] = []
    for number in range(length):
        messages.append(HumanMessage(f"Note {number}: {text}", id=f"h{number}"))
        messages.append(AIMessage(f"I keep note {number}.", id=f"a{number}"))
    return messages


def clock_layer() -> CustomLayer:
    """A layer that says something else each time that it is asked."""
    times = counting(1)
    return CustomLayer(
        name="clock", items=lambda _: [f"It is {next(times)} o'clock."], ideal_tokens=50
    )
