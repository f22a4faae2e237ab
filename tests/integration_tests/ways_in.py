"""Every way into the package, each to run a scripted conversation.

One blocking form, see `test_both_forms`.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolCall,
)
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, Durability
from pydantic import SecretStr
from typing_extensions import TypedDict

from langchain_ctxbudget import BudgetedChatMessageHistory, ContextPipeline, build_context_graph
from langchain_ctxbudget.middleware import ContextBudgetMiddleware
from langchain_ctxbudget.report import ContextReport
from tests.integration_tests.scripted_agent import (
    SYSTEM_PROMPT,
    Script,
    Turn,
    as_stored,
    book,
    named,
    run_tool,
)
from tests.integration_tests.strict_openai_server import StrictOpenAIServer

USER = "ada"
ROOM_FOR_SYSTEM_AND_REST = 600
"""In tokens: what stands in a prompt beside a window."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What an agent is made of."""

    model: ChatOpenAI
    pipeline: ContextPipeline
    tools: Sequence[Any] = ()
    thread: str = "c1"
    saver: InMemorySaver = field(default_factory=InMemorySaver)
    durability: Durability = "async"
    recall_tool: bool = False
    named_results: bool = False

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
        return ToolNode(list(self.tools), wrap_tool_call=self.named)

    @property
    def window_tokens(self) -> int:
        return self.pipeline.settings.max_context_tokens - ROOM_FOR_SYSTEM_AND_REST

    def named(self, request: Any, execute: Callable[[Any], Any]) -> Any:
        return named(execute(request)) if self.named_results else execute(request)

    def results(self, calls: Sequence[ToolCall], decision: str) -> list[Any]:
        return [self.named(call, lambda made: run_tool(made, decision)) for call in calls]


class Agent:
    """One that is told what the user says; the pipeline keeps what was said."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    def say(self, turn: Turn) -> None:
        if self.begin(turn):
            self.resume(turn)

    def begin(self, turn: Turn) -> bool:
        raise NotImplementedError

    def resume(self, turn: Turn) -> None:
        raise NotImplementedError

    def messages(self) -> list[BaseMessage]:
        return self.parts.pipeline.get_messages(**self.parts.scope)

    def edit(self, message: BaseMessage) -> None:
        self.parts.pipeline.edit_message(message.id or "", message, **self.parts.scope)

    def rewind(self, kept: Sequence[BaseMessage]) -> None:
        self.parts.pipeline.sync(kept, **self.parts.scope)

    def take_over(self, messages: Sequence[BaseMessage]) -> None:
        self.parts.pipeline.add_messages(messages, **self.parts.scope)

    def saved(self) -> Any:
        raise NotImplementedError

    def restore(self, saved: Any) -> None:
        raise NotImplementedError


# -- Graphs, which keep their messages


class PlainState(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


class ContextState(PlainState):
    llm_input_messages: list[AnyMessage]


class ContextStateWithTurn(ContextState):
    ctxbudget_turn: dict[str, Any]


class GraphAgent(Agent):
    """A compiled graph with a checkpointer."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.config = parts.config
        self.graph: Any = self.build()

    def build(self) -> Any:
        raise NotImplementedError

    def begin(self, turn: Turn) -> bool:
        return "__interrupt__" in self._run({"messages": [turn.message]})

    def resume(self, turn: Turn) -> None:
        assert "__interrupt__" not in self._run(Command(resume=turn.decision))

    def _run(self, given: object) -> Any:
        config = self.config
        self.config = self.parts.config
        return self.graph.invoke(given, config, durability=self.parts.durability)

    def messages(self) -> list[BaseMessage]:
        return list(self.graph.get_state(self.parts.config).values["messages"])

    def edit(self, message: BaseMessage) -> None:
        self.take_over([message])

    def take_over(self, messages: Sequence[BaseMessage]) -> None:
        self.graph.update_state(self.parts.config, {"messages": list(messages)})

    def rewind(self, kept: Sequence[BaseMessage]) -> None:
        config = self.parts.config
        states = self.graph.get_state_history(config)
        earlier = next(
            state for state in states if state.values.get("messages") == kept and not state.next
        )
        self.config = {
            **config,
            "configurable": {**config["configurable"], **earlier.config["configurable"]},
        }

    def saved(self) -> Any:
        saver = self.parts.saver
        return [dict(kept) for kept in (saver.storage, saver.writes, saver.blobs)]

    def restore(self, saved: Any) -> None:
        saver = self.parts.saver
        places: tuple[dict[Any, Any], ...] = (saver.storage, saver.writes, saver.blobs)
        for place, values in zip(places, saved, strict=True):
            place.update(values)

    def loop(
        self, state: type[Any], prompt: Callable[[Any], list[BaseMessage]], context: Any = None
    ) -> Any:
        """An agent's loop as LangGraph's documentation writes it, with or without a node in front of the model."""
        graph = StateGraph(state)
        bound = self.parts.bound
        first = "model"
        graph.add_node(
            "model",
            RunnableLambda(prompt) | bound | RunnableLambda(lambda reply: {"messages": [reply]}),
        )
        graph.add_node("tools", self.parts.tool_node)
        if context is not None:
            first = "context"
            graph.add_node("context", context)
            graph.add_edge("context", "model")
        graph.add_edge(START, first)
        graph.add_conditional_edges("model", tools_condition)
        graph.add_edge("tools", first)
        return graph.compile(checkpointer=self.parts.saver)


class WithoutThePackage(GraphAgent):
    """The agent that all others are compared with.

    It sends the current turn alone: what the script answers depends on nothing else.
    """

    def build(self) -> Any:
        def newest_turn(state: PlainState) -> list[BaseMessage]:
            asked = max(
                n
                for n, message in enumerate(state["messages"])
                if isinstance(message, HumanMessage)
            )
            return [SystemMessage(SYSTEM_PROMPT), *state["messages"][asked:]]

        return self.loop(PlainState, newest_turn)


class NodeOfAGraph(GraphAgent):
    state: type[Any] = ContextState

    def build(self) -> Any:
        node = build_context_graph(self.parts.pipeline, tools=self.parts.tools)
        return self.loop(self.state, lambda state: state["llm_input_messages"], node)


class NodeOfAGraphWithTurn(NodeOfAGraph):
    state = ContextStateWithTurn


class PreModelHook(GraphAgent):
    def build(self) -> Any:
        parts = self.parts
        hook = build_context_graph(parts.pipeline, tools=parts.tools)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            from langgraph.prebuilt import create_react_agent  # noqa: PLC0415

            return create_react_agent(
                parts.model, parts.tool_node, pre_model_hook=hook, checkpointer=parts.saver
            )


class Middleware(GraphAgent):
    def build(self) -> Any:
        parts = self.parts

        class Named(AgentMiddleware[Any, Any]):
            def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
                return parts.named(request, handler)

        budget = ContextBudgetMiddleware(parts.pipeline, recall_tool=parts.recall_tool)
        return create_agent(
            parts.model, list(parts.tools), middleware=[Named(), budget], checkpointer=parts.saver
        )


# -- Loops of the application's own


class PlainLoop(Agent):
    """`pipeline.assemble` with the turn so far, and `add_messages` when it is done.

    The model is asked until it calls nothing more; before a booking the user decides.
    """

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.said: list[Any] = []
        """The turn so far."""

    def prompt(self) -> list[BaseMessage]:
        return self.parts.pipeline.assemble(
            list(self.said), **self.parts.scope, tools=self.parts.tools
        ).messages

    def begin(self, turn: Turn) -> bool:
        self.said = [turn.message]
        return self._go_on(turn)

    def _go_on(self, turn: Turn) -> bool:
        while True:
            reply = self.parts.bound.invoke(self.prompt())
            self.said.append(reply)
            if not reply.tool_calls:
                self.end()
                return False
            if any(call["name"] == book.name for call in reply.tool_calls):
                return True
            self.said += self.parts.results(reply.tool_calls, turn.decision)

    def end(self) -> None:
        self.take_over(self.said)

    def resume(self, turn: Turn) -> None:
        self.said += self.parts.results(self.said[-1].tool_calls, turn.decision)
        assert not self._go_on(turn)

    def saved(self) -> Any:
        return self.said

    def restore(self, saved: Any) -> None:
        self.said = saved


class RunnableInALoop(PlainLoop):
    """`pipeline.as_runnable` with the messages of an application that keeps its own."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.runnable = parts.pipeline.as_runnable(tools=parts.tools)
        self.state: list[BaseMessage] = []

    def prompt(self) -> list[BaseMessage]:
        return self.runnable.invoke({"messages": [*self.state, *self.said]}, self.parts.config)

    def take_over(self, messages: Sequence[BaseMessage]) -> None:
        self.state += messages

    def messages(self) -> list[BaseMessage]:
        return self.state

    def edit(self, message: BaseMessage) -> None:
        self.state = [message if known.id == message.id else known for known in self.state]

    def rewind(self, kept: Sequence[BaseMessage]) -> None:
        self.state = list(kept)

    def saved(self) -> Any:
        return self.state, self.said

    def restore(self, saved: Any) -> None:
        self.state, self.said = saved


class WindowInALoop(PlainLoop):
    """A chat history that is written at once; the prompt is its window behind a system message."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.history = BudgetedChatMessageHistory(
            parts.thread, user_id=USER, pipeline=parts.pipeline
        )
        self.written: list[BaseMessage] = []

    def prompt(self) -> list[BaseMessage]:
        self.end()
        return [SystemMessage(SYSTEM_PROMPT), *self.history.window(self.parts.window_tokens)]

    def end(self) -> None:
        self.history.add_messages(
            [m for m in self.said if not any(m is known for known in self.written)]
        )
        self.written = list(self.said)


WITH_TOOLS: dict[str, type[Agent]] = {
    "node": NodeOfAGraph,
    "node and turn": NodeOfAGraphWithTurn,
    "hook": PreModelHook,
    "middleware": Middleware,
    "loop": PlainLoop,
    "runnable": RunnableInALoop,
    "window": WindowInALoop,
}

# -- A conversation


def model_at(url: str) -> ChatOpenAI:
    return ChatOpenAI(model="gpt-4o", base_url=url, api_key=SecretStr("not-used"), max_retries=0)


def make_pipeline(budget_tokens: int, store: BaseStore | None = None) -> ContextPipeline:
    settings = {"max_context_tokens": budget_tokens, "learn": False}
    return ContextPipeline(settings, system_prompt=SYSTEM_PROMPT, store=store or InMemoryStore())


@dataclass(frozen=True, slots=True)
class Outcome:
    stored: list[dict[str, Any]]
    refused: list[str]
    received: list[Mapping[str, Any]]
    reports: list[ContextReport]


def outcome_of(way: type[Agent], script: Script, *, budget_tokens: int, **parts: Any) -> Outcome:
    """Run a conversation one way, against a server that refuses more than the budget.

    Args:
        way: into the package.
        script: what is said.
        budget_tokens: of the pipeline, and of the server unless the package is not used.
        parts: what else the agent is made of.
    """
    reports: list[ContextReport] = []
    limit = None if way is WithoutThePackage else budget_tokens
    with StrictOpenAIServer(max_tokens=limit) as server, make_pipeline(budget_tokens) as pipeline:

        def answer(body: Mapping[str, Any]) -> Mapping[str, Any]:
            if pipeline.engine.recent.last is not None:
                report = pipeline.engine.recent.last.report()
                reports.append(report)
            return script.answer(body)

        server.answer = answer
        stored = converse(
            way(Parts(model=model_at(server.url), pipeline=pipeline, **parts)), script.turns
        )
        return Outcome(
            [as_stored(message) for message in stored],
            server.refused,
            list(server.received),
            reports,
        )


def converse(agent: Agent, turns: Sequence[Turn]) -> list[BaseMessage]:
    for turn in turns:
        agent.say(turn)
    return agent.messages()
