"""`build_context_graph`: the six steps of `ContextPipeline.assemble` as a LangGraph graph, one node a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Annotated, Any, NotRequired

from langchain_core.messages import AnyMessage, SystemMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels.untracked_value import UntrackedValue
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import get_runtime
from typing_extensions import TypedDict

from langchain_ctxbudget.errors import InvalidSettingsError, MessageConflictError
from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.integrations.options import ReportInState, in_state, newest, pipeline_of, require_report
from langchain_ctxbudget.messages import flattened, instruction, split_turn
from langchain_ctxbudget.pipeline import ContextPipeline, Engine, Run, RunContext, Session, run_of, runnable_of
from langchain_ctxbudget.prompt import LAST_STEP, STEPS, Request
from langchain_ctxbudget.settings import ContextSettings

MOST_ATTEMPTS = 3
"""The most times a prompt is begun because another run has changed the conversation meanwhile."""
NODES = (*STEPS, LAST_STEP)


class ContextInput(TypedDict):
    """The graph's input: an agent's messages, the current turn last, and the turn's context block."""

    messages: Annotated[list[AnyMessage], add_messages]
    ctxbudget_turn: NotRequired[Annotated[dict[str, Any] | None, newest]]


class ContextOutput(TypedDict):
    """The graph's output: the messages to send, a report where asked for, and the turn's context block.

    `ctxbudget_turn` belongs into the checkpointed state of an agent that calls tools: while the turn goes on, the same
    block stands in front of the user's words.
    """

    llm_input_messages: list[AnyMessage]
    report: NotRequired[Annotated[dict[str, Any], UntrackedValue(dict, guard=False)]]
    ctxbudget_turn: NotRequired[Annotated[dict[str, Any] | None, newest]]


class ContextState(ContextInput, ContextOutput):
    """The state between nodes."""

    prompt: Annotated[str, UntrackedValue(str, guard=False)]


class _OnItsWay(str):
    """A name that streams show; the session behind it is this process's alone, and never checkpointed."""

    __slots__ = ("session",)
    session: Session


def build_context_graph(
    pipeline: ContextPipeline | ContextSettings | Mapping[str, Any] | None = None,
    *,
    default_user: str | None = None,
    prompt: str | SystemMessage | None = None,
    tools: Sequence[Any] = (),
    response_format: object = None,
    runtime_store: bool = True,
    agent: str | None = None,
    report: ReportInState = "none",
) -> CompiledStateGraph[ContextState, RunContext, ContextInput, ContextOutput]:
    """Builds the context pipeline as a compiled graph, to invoke, or to add as a node to a graph with `messages`.

    The graph goes from `{"messages": [...]}` to `{"llm_input_messages": [...], "ctxbudget_turn": {...}}`. The
    conversation in the store is first made equal to the messages before the current turn (`sync`); those in state are
    not changed. User and conversation are the run's (`user_id`, `thread_id`, or a `RunContext`), as are `persona_id`,
    `device_id` and `context_settings`; without a thread a run is a conversation of its own, in memory only.

    Args:
        pipeline: the pipeline, or the settings of one that is made here.
        default_user: the user where the run names none; without one that is an error.
        prompt: the agent's own instructions, behind the pipeline's system prompt. Do not give them to the agent as
            well: `create_react_agent(prompt=...)` adds them behind this graph, uncounted.
        tools: the tools of the model, hand-off tools included; counted as they are sent.
        response_format: a schema that the model must answer in; counted as it is sent.
        runtime_store: True keeps conversations in the store that the graph was compiled with, where there is one.
        agent: the agent's name where several work in one thread: each has a conversation of its own then.
        report: what the graph gives of its report: `"none"`, its `"numbers"`, or also the `"texts"` that it quotes.

    Example:
        >>> from langchain_ctxbudget import build_context_graph
        >>> graph = build_context_graph({"max_context_tokens": 4_000}, default_user="ada")
        >>> state = graph.invoke({"messages": [("human", "Hello")]}, {"configurable": {"thread_id": "c1"}})
        >>> state["llm_input_messages"][-1].content
        'Hello'
    """
    given = instruction(prompt) if isinstance(prompt, SystemMessage) else prompt
    if given is not None and not isinstance(given, str):
        raise InvalidSettingsError(f"prompt must be a string or a SystemMessage, not {type(given).__name__}")
    asked = Request(instructions=(given,) if given else (), tools=tools, response_format=response_format)
    engine, wanted = pipeline_of(pipeline).engine, require_report(report)

    def step(name: str, state: ContextState, config: RunnableConfig) -> Flow[dict[str, Any]]:
        run = run_of(config, default_user, get_runtime(), agent=agent, messages=state["messages"])
        request = run.request(config, asked, state, flattened(state["messages"]))
        session = yield from _brought_to(name, state, run, engine.over(run.store if runtime_store else None), request)
        if session.context is None:
            on_its_way = _OnItsWay(f"prompt for {session.conversation.scope.conversation_id!r}: {name}")
            on_its_way.session = session
            return {"prompt": on_its_way}
        return {"llm_input_messages": session.context.messages, "prompt": "", **in_state(session, wanted, "report")}

    graph = StateGraph(ContextState, RunContext, input_schema=ContextInput, output_schema=ContextOutput)
    for before, name in pairwise((START, *NODES)):
        graph.add_node(name, runnable_of(partial(step, name), name))
        graph.add_edge(before, name)
    graph.add_edge(LAST_STEP, END)
    # As a part of another graph it keeps no checkpoints of its own: a copy of the history for every call of the model.
    return graph.compile(name="context_budget", checkpointer=False).with_config(tags=["ctxbudget"])


def _brought_to(name: str, state: ContextState, run: Run, engine: Engine, request: Request) -> Flow[Session]:
    """Runs a step, and those before it that the session has not seen, as a run may have been resumed here.

    The prompt is begun again where another run on the same thread has changed the conversation.
    """
    session: Session | None = getattr(state.get("prompt"), "session", None)
    attempts = 0
    while True:
        try:
            if session is None:
                session = yield from engine.open_turn(run.scope, *split_turn(state["messages"]), request)
            for step in NODES[: NODES.index(name) + 1]:
                if step not in session.timings_ms:
                    yield from engine.run_step(step, session)
        except MessageConflictError:
            session, attempts = None, attempts + 1
            if attempts == MOST_ATTEMPTS:
                raise
        else:
            return session
