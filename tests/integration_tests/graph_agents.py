"""Agents of LangGraph, which keeps their messages: with a context node, a hook, the middleware, and without them."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

from langchain_core.messages import (
    AnyMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
)
from langchain_core.runnables import RunnableLambda
from langgraph.channels.untracked_value import UntrackedValue
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import tools_condition
from langgraph.types import Command
from typing_extensions import TypedDict

from langchain_ctxbudget import build_context_graph
from langchain_ctxbudget.flow import Call, Flow
from tests.integration_tests.agents import (
    Agent,
    Parts,
    anamed,
    invoke,
    named_result,
)
from tests.integration_tests.scripted_agent import SYSTEM_PROMPT, Turn


class GraphAgent(Agent):
    """A compiled graph with a checkpointer."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.config = parts.config
        self.graph: Any = self.build()

    def build(self) -> Any:
        raise NotImplementedError

    def begin(self, turn: Turn) -> Flow[bool]:
        state = yield from self._run({"messages": [turn.message]})
        return "__interrupt__" in state

    def resume(self, turn: Turn) -> Flow[None]:
        state = yield from self._run(Command(resume=turn.decision))
        assert "__interrupt__" not in state

    def _run(self, given: object) -> Flow[dict[str, Any]]:
        config, durability = self.config, self.parts.durability
        self.config = self.parts.config
        state: dict[str, Any] = yield from invoke(self.graph, given, config, durability=durability)
        return state

    def messages(self) -> Flow[list[BaseMessage]]:
        config = self.parts.config
        state = yield Call(lambda: self.graph.get_state(config), lambda: self.graph.aget_state(config))
        messages: list[BaseMessage] = state.values["messages"]
        return messages

    def edit(self, message: BaseMessage) -> Flow[None]:
        yield from self.take_over([message])

    def take_over(self, messages: Sequence[BaseMessage]) -> Flow[None]:
        config, values = self.parts.config, {"messages": list(messages)}
        yield Call(lambda: self.graph.update_state(config, values), lambda: self.graph.aupdate_state(config, values))

    def rewind(self, kept: Sequence[BaseMessage]) -> Flow[None]:
        """Name the checkpoint that the next turn goes on from."""
        config = self.parts.config

        async def ahistory() -> list[Any]:
            return [state async for state in self.graph.aget_state_history(config)]

        states = yield Call(lambda: list(self.graph.get_state_history(config)), ahistory)
        earlier = next(state for state in states if state.values.get("messages") == kept and not state.next)
        self.config = {**config, "configurable": {**config["configurable"], **earlier.config["configurable"]}}

    def saved(self) -> Any:
        saver = self.parts.saver
        assert isinstance(saver, InMemorySaver)
        return [dict(kept) for kept in (saver.storage, saver.writes, saver.blobs)]

    def restore(self, saved: Any) -> None:
        saver = self.parts.saver
        assert isinstance(saver, InMemorySaver)
        places: tuple[dict[Any, Any], ...] = (saver.storage, saver.writes, saver.blobs)
        for place, values in zip(places, saved, strict=True):
            place.update(values)


class PlainState(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


class ContextState(PlainState):
    llm_input_messages: list[AnyMessage]
    report: Annotated[dict[str, Any], UntrackedValue]


class ContextStateWithTurn(ContextState):
    ctxbudget_turn: dict[str, Any]


class WithoutThePackage(GraphAgent):
    """The agent that all others are compared with.

    It sends the current turn alone: what the script answers depends on nothing else, and sending 200 turns whole takes
    minutes.
    """

    def build(self) -> Any:
        return _loop(self.parts, PlainState, lambda state: [SystemMessage(SYSTEM_PROMPT), *_newest_turn(state)])


class NodeOfAGraph(GraphAgent):
    """The context graph is a node in front of the model."""

    state: type[Any] = ContextState

    def build(self) -> Any:
        node = build_context_graph(self.parts.pipeline, tools=self.parts.tools)
        return _loop(self.parts, self.state, lambda state: state["llm_input_messages"], node)


class NodeOfAGraphWithTurn(NodeOfAGraph):
    """The same; the agent's state keeps the context block of the current turn."""

    state = ContextStateWithTurn


class PreModelHook(GraphAgent):
    """The context graph is the hook of LangGraph's older agent."""

    def build(self) -> Any:
        parts = self.parts
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            from langgraph.prebuilt import create_react_agent  # noqa: PLC0415

            return create_react_agent(
                parts.model,
                parts.tool_node,
                pre_model_hook=build_context_graph(parts.pipeline, tools=parts.tools),
                checkpointer=parts.saver,
            )


class Middleware(GraphAgent):
    """LangChain's agent with our middleware."""

    def build(self) -> Any:
        from langchain.agents import create_agent  # noqa: PLC0415
        from langchain.agents.middleware import AgentMiddleware  # noqa: PLC0415

        from langchain_ctxbudget.integrations.middleware import ContextBudgetMiddleware  # noqa: PLC0415

        parts = self.parts

        class Named(AgentMiddleware[Any, Any]):
            def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
                return named_result(request, handler)

            async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
                return await anamed(request, handler)

        budget = ContextBudgetMiddleware(parts.pipeline, recall_tool=parts.recall_tool)
        middleware: list[AgentMiddleware[Any, Any]] = [Named(), budget] if parts.named_results else [budget]
        return create_agent(parts.model, list(parts.tools), middleware=middleware, checkpointer=parts.saver)


def _newest_turn(state: PlainState) -> list[AnyMessage]:
    asked = max(n for n, message in enumerate(state["messages"]) if isinstance(message, HumanMessage))
    return state["messages"][asked:]


def _loop(parts: Parts, state: type[Any], prompt: Callable[[Any], list[BaseMessage]], context: Any = None) -> Any:
    """An agent's loop as LangGraph's documentation writes it, with or without a node in front of the model."""
    graph = StateGraph(state)
    graph.add_node("model", RunnableLambda(prompt) | parts.bound | RunnableLambda(lambda reply: {"messages": [reply]}))
    graph.add_node("tools", parts.tool_node)
    first = "model"
    if context is not None:
        first = "context"
        graph.add_node("context", context)
        graph.add_edge("context", "model")
    graph.add_edge(START, first)
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", first)
    return graph.compile(checkpointer=parts.saver)
