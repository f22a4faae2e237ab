"""Calls of tools that a model does not have: they are run as if it had them, or answered.

What is done for the tools of an agent, and for those of a `ToolNode` of one's own.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

from cachetools import LRUCache
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command
from pydantic import ValidationError

from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.pipeline import (
    CallInput,
    Engine,
    found_tools,
    runnable_tool,
    search_tools,
    wanted_call,
)
from langchain_ctxbudget.tools import (
    OwnTool,
    ToolSet,
    already_bound,
    not_bound,
    not_found,
    own_kind,
)
from langchain_ctxbudget.worker import new_mutex

MOST_RUNS = 1_000
"""Runs whose tools are remembered between a model's answer and its calls."""
TOOLS_KEY = "llm_input_tools"
"""The key of a state that has the names of the tools to bind."""
ToolResult: TypeAlias = ToolMessage | Command[Any]


@dataclass(frozen=True)
class ReachableTools:
    """All tools that a model may call, and which of them it has."""

    engine: Engine
    """Searches them."""
    given: Sequence[Any]
    """All tools of the application."""
    bound: Collection[str] | None = None
    """The names of the tools that the model has; None where that is not known."""

    @cached_property
    def known(self) -> ToolSet:
        """The same tools, as a model reads them."""
        return ToolSet.of(self.given)

    @cached_property
    def for_search(self) -> Sequence[BaseTool]:
        """The tools by which a model finds the others, and calls what it has found."""
        return search_tools(self.known, self._found)

    def _found(self, query: str) -> Flow[str]:
        yield from self.engine.ready()
        embeddings = self.engine.workspace.embeddings
        counter = self.engine.target.counter
        bound = self.bound or ()
        return (yield from found_tools(self.known, query, embeddings, counter, bound))

    @property
    def _required(self) -> Collection[str]:
        """The names of the tools that every prompt binds, also one that another process made."""
        return self.engine.workspace.settings.required_tools

    def routed(self, request: ToolCallRequest) -> ToolCallRequest | ToolMessage:
        """Returns the call to run in the place of one, or what the model is told instead."""
        name = request.tool_call["name"]
        match _kind(request):
            case OwnTool.FIND:
                find_tools, _ = self.for_search
                return request.override(tool=find_tools)
            case OwnTool.CALL:
                return self._wanted(request)
            case None:
                return self._direct(request, name)
            case _:
                return request

    def _wanted(self, request: ToolCallRequest) -> ToolCallRequest | ToolMessage:
        """Returns the call that a model wants to have made by `call_tool`."""
        try:
            given = CallInput.model_validate(request.tool_call["args"])
        except ValidationError:  # the tool itself says what is wrong
            _, call_tool = self.for_search
            return request.override(tool=call_tool)
        if given.name in (self.bound or ()) or given.name in self._required:
            # By its own name alone, so that whoever approves calls by name sees this one.
            return _refusal(request, already_bound(given.name))
        call = wanted_call(self.known, given.name, given.arguments)
        if isinstance(call, str):
            return _refusal(request, call)
        tool_call = request.tool_call.copy()
        tool_call["name"] = given.name
        tool_call["args"] = call.arguments
        return request.override(tool_call=tool_call, tool=call.tool)

    def _direct(self, request: ToolCallRequest, name: str) -> ToolCallRequest | ToolMessage:
        """Returns a call of a tool by its own name, if the model may call it like that."""
        tool = self.known.named(name)
        if tool is None:
            return request if request.tool is not None else _refusal(request, not_found(name))
        is_bound = self.bound is None or name in self.bound
        if not is_bound and not _was_told(request.state, name):
            return _refusal(request, not_bound(tool))
        if request.tool is None:
            runnable = runnable_tool(tool)
            return request if runnable is None else request.override(tool=runnable)
        return request


def as_answer(request: ToolCallRequest, run: ToolCallRequest, result: ToolResult) -> ToolResult:
    """Returns the result of a call as the answer to the call that the model has made.

    It has the name that the model has called, as Google wants it. The result of a tool that ends
    the agent's turn keeps its own name: LangChain tells by this that it does.
    """
    is_same = run.tool_call["name"] == request.tool_call["name"]
    ends_turn = run.tool is not None and run.tool.return_direct
    if is_same or ends_turn or not isinstance(result, ToolMessage):
        return result
    return result.model_copy(update={"name": request.tool_call["name"]})


class ToolsOfRuns:
    """The tools of the last model call of each run."""

    def __init__(self) -> None:
        self._mutex = new_mutex()
        self._tools: LRUCache[Hashable, ReachableTools] = LRUCache(MOST_RUNS)

    def note(self, run: Hashable, tools: ReachableTools) -> None:
        """Remembers the tools of a model call."""
        with self._mutex:
            self._tools[run] = tools

    def find(self, run: Hashable) -> ReachableTools | None:
        """Returns the tools of a run's last model call; None if another process has made it."""
        with self._mutex:
            return self._tools.get(run)


class ToolSearch:
    """The tools by which a model gets at others, and what a `ToolNode` does with their calls.

    `create_tool_search` makes it.
    """

    def __init__(self, engine: Engine, tools: Sequence[Any]) -> None:
        self._reachable = ReachableTools(engine, tuple(tools))

    @property
    def tools(self) -> list[BaseTool]:
        """The tools `find_tools` and `call_tool`."""
        return [*self._reachable.for_search]

    def bound(self, names: Sequence[str] | None) -> list[Any]:
        """Returns the tools to bind to a model.

        Args:
            names: the names that a prompt has chosen, as `llm_input_tools` has them; None for all
                tools of the application.
        """
        known = self._reachable.known.tools
        if names is None:
            return [tool.given for tool in known]
        wanted = frozenset(names)
        bound = [tool.given for tool in known if tool.name in wanted or not tool.is_function]
        return bound + [tool for tool in self.tools if tool.name in wanted]

    def wrap_tool_call(
        self,
        request: ToolCallRequest,
        execute: Callable[[ToolCallRequest], ToolResult],
    ) -> ToolResult:
        """Runs a call of a tool that is not bound as if it were; for `ToolNode`."""
        routed = self._routed(request)
        if isinstance(routed, ToolMessage):
            return routed
        return as_answer(request, routed, execute(routed))

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        execute: Callable[[ToolCallRequest], Awaitable[ToolResult]],
    ) -> ToolResult:
        """Runs a call of a tool that is not bound as if it were; for `ToolNode`."""
        routed = self._routed(request)
        if isinstance(routed, ToolMessage):
            return routed
        return as_answer(request, routed, await execute(routed))

    def _routed(self, request: ToolCallRequest) -> ToolCallRequest | ToolMessage:
        bound = request.state.get(TOOLS_KEY) if isinstance(request.state, Mapping) else None
        return replace(self._reachable, bound=bound).routed(request)


def _kind(request: ToolCallRequest) -> OwnTool | None:
    """Returns which of the package's tools a call means; None for one of the application's."""
    if request.tool is not None:
        return own_kind(request.tool)
    name = request.tool_call["name"]
    return OwnTool(name) if name in (OwnTool.FIND, OwnTool.CALL) else None


def _refusal(request: ToolCallRequest, text: str) -> ToolMessage:
    """Returns the answer to a call that is not made."""
    return ToolMessage(
        text,
        name=request.tool_call["name"],
        tool_call_id=request.tool_call["id"],
        status="error",
    )


def _was_told(state: object, name: str) -> bool:
    """Tells whether a result in an agent's state has told the model how to call a tool."""
    messages = state.get("messages") if isinstance(state, Mapping) else state
    if not isinstance(messages, Sequence):
        return False
    as_word = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.name == name:
                return True
            if message.name == OwnTool.FIND and as_word.search(message.text):
                return True
    return False
