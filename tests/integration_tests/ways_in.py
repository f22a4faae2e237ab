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
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, Durability
from pydantic import SecretStr
from typing_extensions import TypedDict

from langchain_ctxbudget import (
    BudgetedChatMessageHistory,
    ContextPipeline,
    build_context_graph,
    build_remember_node,
)
from langchain_ctxbudget.middleware import ContextBudgetMiddleware
from langchain_ctxbudget.report import ContextReport
from tests.doubles.strict_server import StrictServer
from tests.integration_tests.scripted_agent import (
    SYSTEM_PROMPT,
    Script,
    Turn,
    as_stored,
    book,
    named,
    run_tool,
)

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
        """The model, bound to the tools if there are any."""
        if self.tools:
            return self.model.bind_tools(self.tools)
        return self.model

    @property
    def tool_node(self) -> ToolNode:
        return ToolNode(list(self.tools), wrap_tool_call=self.named)

    @property
    def window_tokens(self) -> int:
        return self.pipeline.settings.max_context_tokens - ROOM_FOR_SYSTEM_AND_REST

    def named(self, request: Any, execute: Callable[[Any], Any]) -> Any:
        """Executes a call; its result gets a name, where results have names."""
        result = execute(request)
        if self.named_results:
            return named(result)
        return result

    def results(self, calls: Sequence[ToolCall], decision: str) -> list[Any]:
        """Executes the calls of a loop of the application's own."""

        def execute(call: ToolCall) -> Any:
            return run_tool(call, decision)

        return [self.named(call, execute) for call in calls]


class Agent:
    """An agent that answers a user; the pipeline keeps the messages."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    def say(self, turn: Turn) -> None:
        if self.begin(turn):
            self.resume(turn)

    def begin(self, turn: Turn) -> bool:
        """Begins a turn; returns whether the user is to decide something before it goes on."""
        raise NotImplementedError

    def resume(self, turn: Turn) -> None:
        """Goes on with what the user has decided."""
        raise NotImplementedError

    def messages(self) -> list[BaseMessage]:
        return self.parts.pipeline.get_messages(**self.parts.scope)

    def edit(self, message: BaseMessage) -> None:
        self.parts.pipeline.edit_message(message.id or "", message, **self.parts.scope)

    def rewind(self, kept: Sequence[BaseMessage]) -> None:
        """Goes back to the first messages, from which another branch begins."""
        self.parts.pipeline.sync(kept, **self.parts.scope)

    def take_over(self, messages: Sequence[BaseMessage]) -> None:
        """Keeps messages of somebody else."""
        self.parts.pipeline.add_messages(messages, **self.parts.scope)

    def saved(self) -> Any:
        """What another process needs to go on with this agent's work."""
        raise NotImplementedError

    def restore(self, saved: Any) -> None:
        """Goes on with another agent's work."""
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

    def _run(self, graph_input: object) -> Any:
        """Runs the graph from where it was rewound to, if it was."""
        config = self.config
        self.config = self.parts.config
        return self.graph.invoke(graph_input, config, durability=self.parts.durability)

    def messages(self) -> list[BaseMessage]:
        return list(self.graph.get_state(self.parts.config).values["messages"])

    def edit(self, message: BaseMessage) -> None:
        self.take_over([message])

    def take_over(self, messages: Sequence[BaseMessage]) -> None:
        self.graph.update_state(self.parts.config, {"messages": list(messages)})

    def rewind(self, kept: Sequence[BaseMessage]) -> None:
        config = self.parts.config
        earlier = self._state_after(kept).config["configurable"]
        self.config = {**config, "configurable": {**config["configurable"], **earlier}}

    def _state_after(self, messages: Sequence[BaseMessage]) -> Any:
        """The finished turn after which the graph had these messages."""
        for state in self.graph.get_state_history(self.parts.config):
            if state.values.get("messages") == messages and not state.next:
                return state
        raise LookupError("no turn has ended with these messages")

    def saved(self) -> Any:
        saver = self.parts.saver
        return dict(saver.storage), dict(saver.writes), dict(saver.blobs)

    def restore(self, saved: Any) -> None:
        storage, writes, blobs = saved
        saver = self.parts.saver
        saver.storage.update(storage)
        saver.writes.update(writes)
        saver.blobs.update(blobs)

    def loop(
        self,
        state: type[Any],
        prompt: Callable[[Any], list[BaseMessage]],
        context: Any = None,
        remember: Any = None,
    ) -> Any:
        """An agent's loop as LangGraph's documentation writes it.

        Args:
            state: of the graph.
            prompt: what the model is sent, from the state.
            context: a node in front of the model, if there is one.
            remember: a node where a turn ends, if there is one.
        """
        graph = StateGraph(state)
        reply_as_state = RunnableLambda(lambda reply: {"messages": [reply]})
        model = RunnableLambda(prompt) | self.parts.bound | reply_as_state
        graph.add_node("model", model)
        graph.add_node("tools", self.parts.tool_node)
        first = "model"
        if context is not None:
            first = "context"
            graph.add_node("context", context)
            graph.add_edge("context", "model")
        graph.add_edge(START, first)
        end = END
        if remember is not None:
            end = "remember"
            graph.add_node(end, remember)
        graph.add_conditional_edges("model", tools_condition, {"tools": "tools", END: end})
        graph.add_edge("tools", first)
        return graph.compile(checkpointer=self.parts.saver)


def newest_turn(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """The newest message of the user, and what follows it."""
    start = 0
    for number, message in enumerate(messages):
        if isinstance(message, HumanMessage):
            start = number
    return list(messages[start:])


class WithoutThePackage(GraphAgent):
    """The agent that all others are compared with.

    It sends the current turn alone: what the script answers depends on nothing else.
    """

    def build(self) -> Any:
        def prompt(state: PlainState) -> list[BaseMessage]:
            return [SystemMessage(SYSTEM_PROMPT), *newest_turn(state["messages"])]

        return self.loop(PlainState, prompt)


class NodeOfAGraph(GraphAgent):
    state: type[Any] = ContextState
    remembers = False

    def build(self) -> Any:
        node = build_context_graph(self.parts.pipeline, tools=self.parts.tools)
        remember = build_remember_node(self.parts.pipeline) if self.remembers else None
        return self.loop(self.state, lambda state: state["llm_input_messages"], node, remember)


class NodesOfAGraphWithTurn(NodeOfAGraph):
    """Both nodes, and a state that keeps the background, as the page on graphs says."""

    state = ContextStateWithTurn
    remembers = True


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


class NamedResults(AgentMiddleware[Any, Any]):
    """Gives the results of tools their names, where the parts say so."""

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        self.parts = parts

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        return self.parts.named(request, handler)


class Middleware(GraphAgent):
    def build(self) -> Any:
        parts = self.parts
        middleware = [
            NamedResults(parts),
            ContextBudgetMiddleware(parts.pipeline, recall_tool=parts.recall_tool),
        ]
        return create_agent(
            parts.model, list(parts.tools), middleware=middleware, checkpointer=parts.saver
        )


# -- Loops of the application's own


class PlainLoop(Agent):
    """`pipeline.assemble` with the turn so far, and `add_messages` when it is done.

    The model is asked until it calls nothing more; before a booking the user decides.
    """

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.turn: list[Any] = []
        """The messages of the turn so far."""

    def prompt(self) -> list[BaseMessage]:
        context = self.parts.pipeline.assemble(
            list(self.turn), **self.parts.scope, tools=self.parts.tools
        )
        return context.messages

    def begin(self, turn: Turn) -> bool:
        self.turn = [turn.message]
        return self._go_on(turn)

    def _go_on(self, turn: Turn) -> bool:
        while True:
            reply = self.parts.bound.invoke(self.prompt())
            self.turn.append(reply)
            if not reply.tool_calls:
                self.end()
                return False
            if any(call["name"] == book.name for call in reply.tool_calls):
                return True
            self.turn += self.parts.results(reply.tool_calls, turn.decision)

    def end(self) -> None:
        """Keeps the turn."""
        self.take_over(self.turn)

    def resume(self, turn: Turn) -> None:
        self.turn += self.parts.results(self.turn[-1].tool_calls, turn.decision)
        assert not self._go_on(turn)

    def saved(self) -> Any:
        return self.turn

    def restore(self, saved: Any) -> None:
        self.turn = saved


class RunnableInALoop(PlainLoop):
    """`pipeline.as_runnable` with the messages of an application that keeps its own."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.runnable = parts.pipeline.as_runnable(tools=parts.tools)
        self.state: list[BaseMessage] = []

    def prompt(self) -> list[BaseMessage]:
        return self.runnable.invoke({"messages": [*self.state, *self.turn]}, self.parts.config)

    def take_over(self, messages: Sequence[BaseMessage]) -> None:
        self.state += messages

    def messages(self) -> list[BaseMessage]:
        return self.state

    def edit(self, message: BaseMessage) -> None:
        ids = [earlier.id for earlier in self.state]
        for place, key in enumerate(ids):
            if key == message.id:
                self.state[place] = message

    def rewind(self, kept: Sequence[BaseMessage]) -> None:
        self.state = list(kept)

    def saved(self) -> Any:
        return self.state, self.turn

    def restore(self, saved: Any) -> None:
        self.state, self.turn = saved


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
        written = set(map(id, self.written))
        new = [message for message in self.turn if id(message) not in written]
        self.history.add_messages(new)
        self.written = list(self.turn)


WITH_TOOLS: dict[str, type[Agent]] = {
    "middleware": Middleware,
    "node": NodeOfAGraph,
    "node and turn": NodesOfAGraphWithTurn,
    "hook": PreModelHook,
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
    """What a conversation has left behind."""

    stored: list[dict[str, Any]]
    refused: list[str]
    received: list[Mapping[str, Any]]
    reports: list[ContextReport]


def outcome_of(way: type[Agent], script: Script, *, budget_tokens: int, **parts: Any) -> Outcome:
    """Runs a conversation one way, against a server that refuses more than the budget.

    Args:
        way: the way into the package.
        script: the turns of the user, and the answers of the model.
        budget_tokens: of the pipeline, and of the server unless the package is not used.
        parts: what else the agent is made of.
    """
    reports: list[ContextReport] = []
    limit: int | None = budget_tokens
    if way is WithoutThePackage:
        limit = None
    with StrictServer(max_tokens=limit) as server, make_pipeline(budget_tokens) as pipeline:

        def answer(body: Mapping[str, Any]) -> Mapping[str, Any]:
            last_prompt = pipeline.engine.recent.last
            if last_prompt is not None:
                reports.append(last_prompt.report())
            return script.answer(body)

        server.answer = answer
        agent = way(Parts(model=model_at(server.url), pipeline=pipeline, **parts))
        messages = converse(agent, script.turns)
        return Outcome(
            stored=[as_stored(message) for message in messages],
            refused=server.refused,
            received=list(server.received),
            reports=reports,
        )


def converse(agent: Agent, turns: Sequence[Turn]) -> list[BaseMessage]:
    """Has an agent answer all turns; returns what is stored then."""
    for turn in turns:
        agent.say(turn)
    return agent.messages()
