"""The six steps as a LangGraph graph: the same code as `ContextPipeline.assemble`, one node a step."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any

from langchain_core.messages import AnyMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.channels.untracked_value import UntrackedValue
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.graph.state import CompiledStateGraph
from typing_extensions import TypedDict

from langchain_ctxbudget.core.turns import split_turn
from langchain_ctxbudget.draft import Draft
from langchain_ctxbudget.errors import MissingScopeError
from langchain_ctxbudget.flow import Flow, adrive, drive
from langchain_ctxbudget.pipeline import ContextPipeline
from langchain_ctxbudget.steps import STEPS
from langchain_ctxbudget.stores.records import Scope


class ContextInput(TypedDict):
    """What the graph reads: an agent's messages, the current turn last."""

    messages: Annotated[list[AnyMessage], add_messages]


class ContextOutput(TypedDict):
    """What the graph gives: what to send, and its account as plain data."""

    llm_input_messages: list[AnyMessage]
    report: Annotated[dict[str, Any], UntrackedValue]


class ContextState(ContextInput, ContextOutput):
    """The state between nodes; the draft is never checkpointed."""

    draft: Annotated[Draft, UntrackedValue]


def build_context_graph(
    pipeline: ContextPipeline,
    *,
    default_user: str | None = None,
    tools: Sequence[Any] = (),
    response_format: object = None,
) -> CompiledStateGraph[ContextState, None, ContextInput, ContextOutput]:
    """The context pipeline as a compiled graph, to invoke, or to add as a node to a graph with `messages`.

    Nodes: `detect_topics`, `compute_budget`, `fetch_bundles`, `compact_history`, `retrieve`, `assemble`.
    The conversation in the pipeline's store is first made equal to the messages before the current turn (`sync`), so
    that they can be compacted and found again; what the state does not have any more is archived. The messages in state
    are not changed; let a checkpointer keep them. The conversation is the run's
    `thread_id`, the user its `user_id` (both `configurable`), else the server's authenticated user. A run may also
    name a `persona_id`, whose saved settings apply, and `context_settings`, which lie over all others.

    Args:
        pipeline: what assembles.
        default_user: the user where the run names none; without one that is an error.
        tools: what the model will be bound to; counted as it is sent.
        response_format: a schema that the model must answer in; counted as it is sent.

    Returns:
        a graph from `{"messages": [...]}` to `{"llm_input_messages": [...], "report": {...}}`.

    Example:
        >>> from langchain_ctxbudget import ContextPipeline, build_context_graph
        >>> graph = build_context_graph(ContextPipeline(), default_user="ada")
        >>> state = graph.invoke({"messages": [("human", "Hello")]}, {"configurable": {"thread_id": "c1"}})
        >>> state["llm_input_messages"][-1].content
        'Hello'
    """
    engine = pipeline.engine

    def first(state: ContextState, config: RunnableConfig) -> Flow[dict[str, Any]]:
        scope = scope_of(config, default_user)
        history, turn = split_turn(state["messages"])
        configurable = config.get("configurable") or {}
        draft = yield from engine.open_turn(
            scope,
            history,
            turn,
            tools=tools,
            response_format=response_format,
            overrides=configurable.get("context_settings"),
            persona_id=configurable.get("persona_id"),
        )
        yield from engine.run_step("detect_topics", draft)
        return {"draft": draft}

    def middle(name: str) -> Callable[[ContextState, RunnableConfig], Flow[dict[str, Any]]]:
        def step(state: ContextState, _config: RunnableConfig) -> Flow[dict[str, Any]]:
            yield from engine.run_step(name, state["draft"])
            return {"draft": state["draft"]}

        return step

    def last(state: ContextState, _config: RunnableConfig) -> Flow[dict[str, Any]]:
        yield from engine.run_step("assemble", state["draft"])
        context = state["draft"].context
        assert context is not None  # noqa: S101 - the step sets it
        return {"llm_input_messages": context.messages, "report": context.report.to_dict()}

    graph = StateGraph(ContextState, input_schema=ContextInput, output_schema=ContextOutput)
    names = list(STEPS)
    for name in names:
        flow = {names[0]: first, names[-1]: last}.get(name) or middle(name)
        graph.add_node(name, _node(name, flow))
    for before, after in zip([START, *names], [*names, END], strict=True):
        graph.add_edge(before, after)
    return graph.compile(name="context")


def _node(
    name: str, flow: Callable[[ContextState, RunnableConfig], Flow[dict[str, Any]]]
) -> RunnableLambda[ContextState, dict[str, Any]]:
    """One node for both modes, from one flow."""

    def run(state: ContextState, config: RunnableConfig) -> dict[str, Any]:
        return drive(flow(state, config))

    async def arun(state: ContextState, config: RunnableConfig) -> dict[str, Any]:
        return await adrive(flow(state, config))

    asynchronous: Callable[..., Coroutine[Any, Any, dict[str, Any]]] = arun
    return RunnableLambda(run, asynchronous, name=name)


def scope_of(config: RunnableConfig, default_user: str | None) -> Scope:
    """Whose conversation a run is about.

    Raises:
        MissingScopeError: the run names no thread, or no user and there is no default.
    """
    configurable = config.get("configurable") or {}
    signed_in = configurable.get("langgraph_auth_user")
    identity = signed_in.get("identity") if isinstance(signed_in, dict) else getattr(signed_in, "identity", None)
    user = configurable.get("user_id") or identity or default_user
    if not user:
        raise MissingScopeError(
            'The run names no user: pass config={"configurable": {"user_id": ...}}, or give '
            "build_context_graph a default_user"
        )
    thread = configurable.get("thread_id")
    if not thread:
        raise MissingScopeError('The run names no conversation: pass config={"configurable": {"thread_id": ...}}')
    return Scope(str(user), str(thread))
