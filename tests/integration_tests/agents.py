"""What an agent is to the tests of the ways into the package: its parts, and what happens to it.

What an agent does is a flow (`langchain_ctxbudget.flow`), so that every way is written once for sync and async.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ToolCall,
    ToolMessage,
)
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import ToolNode
from langgraph.types import Durability

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.flow import Call, Flow
from tests.integration_tests.scripted_agent import Turn, named, run_tool

USER = "ada"
Tools = Sequence[Any]


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What an agent is made of."""

    model: ChatOpenAI
    pipeline: ContextPipeline
    tools: Tools = ()
    thread: str = "c1"
    saver: BaseCheckpointSaver[Any] = field(default_factory=InMemorySaver)
    durability: Durability = "async"
    recall_tool: bool = False
    """Whether the middleware brings its tool."""
    named_results: bool = False
    """Whether results of tools have the same ids every time; a prompt refers to a clipped result by its id."""

    @property
    def config(self) -> RunnableConfig:
        return {"configurable": {"thread_id": self.thread, "user_id": USER}, "recursion_limit": 100}

    @property
    def scope(self) -> dict[str, Any]:
        return {"user_id": USER, "conversation_id": self.thread}

    @property
    def bound(self) -> Runnable[Any, AIMessage]:
        return self.model.bind_tools(self.tools) if self.tools else self.model

    @property
    def tool_node(self) -> ToolNode:
        if not self.named_results:
            return ToolNode(list(self.tools))
        return ToolNode(list(self.tools), wrap_tool_call=named_result, awrap_tool_call=anamed)

    def results(self, calls: Sequence[ToolCall], decision: str) -> list[ToolMessage]:
        """What a loop's own calls of the tools give."""
        results = [run_tool(call, decision) for call in calls]
        return list(map(named, results)) if self.named_results else results


def named_result(request: Any, execute: Callable[[Any], Any]) -> Any:
    return named(execute(request))


async def anamed(request: Any, execute: Callable[[Any], Awaitable[Any]]) -> Any:
    return named(await execute(request))


class Agent:
    """One that is told what the user says, and keeps what was said."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    def say(self, turn: Turn) -> Flow[None]:
        """Run a turn to its end."""
        waits = yield from self.begin(turn)
        if waits:
            yield from self.resume(turn)

    def begin(self, turn: Turn) -> Flow[bool]:
        """Run a turn; tells whether it waits for the user's decision."""
        raise NotImplementedError

    def resume(self, turn: Turn) -> Flow[None]:
        """Go on with the user's decision."""
        raise NotImplementedError

    def messages(self) -> Flow[list[BaseMessage]]:
        """What was said, as it is kept."""
        raise NotImplementedError

    def edit(self, message: BaseMessage) -> Flow[None]:
        """Put a message in the place of the one with its id."""
        raise NotImplementedError

    def rewind(self, kept: Sequence[BaseMessage]) -> Flow[None]:
        """Go on from an earlier state, which had only the first messages."""
        raise NotImplementedError

    def take_over(self, messages: Sequence[BaseMessage]) -> Flow[None]:
        """Begin a conversation with messages of another one."""
        raise NotImplementedError

    def saved(self) -> Any:
        """What another process needs in order to go on, besides the store; it can be pickled."""
        raise NotImplementedError

    def restore(self, saved: Any) -> None:
        """Take up what another process saved."""
        raise NotImplementedError


def invoke(runnable: Runnable[Any, Any], *args: Any, **kwargs: Any) -> Flow[Any]:
    return (yield Call(lambda: runnable.invoke(*args, **kwargs), lambda: runnable.ainvoke(*args, **kwargs)))


def stored_messages(parts: Parts) -> Flow[list[BaseMessage]]:
    """The messages of a conversation in the store."""
    pipeline, scope = parts.pipeline, parts.scope
    messages: list[BaseMessage] = yield Call(
        lambda: pipeline.get_messages(**scope), lambda: pipeline.aget_messages(**scope)
    )
    return messages


def room_without(parts: Parts, taken: int) -> int:
    """The budget without what the rest of a prompt takes, in tokens."""
    return parts.pipeline.settings.max_context_tokens - taken
