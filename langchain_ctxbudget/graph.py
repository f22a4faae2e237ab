"""The six steps as a LangGraph graph: the same code as `ContextPipeline.assemble`, one node a step."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired, Unpack

from langchain_core.messages import AnyMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.channels.untracked_value import UntrackedValue
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import get_runtime
from typing_extensions import TypedDict

from langchain_ctxbudget.core.messages import flattened
from langchain_ctxbudget.core.turns import split_turn
from langchain_ctxbudget.draft import Draft
from langchain_ctxbudget.errors import MessageConflictError
from langchain_ctxbudget.flow import Flow, adrive, drive
from langchain_ctxbudget.opening import Request
from langchain_ctxbudget.pipeline import ContextPipeline
from langchain_ctxbudget.pipeline_options import PipelineOptions, pipeline_of
from langchain_ctxbudget.progress import progress
from langchain_ctxbudget.runs import Run, RunContext, run_of
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.tracing import describe_run

MOST_ATTEMPTS = 3
"""Times that a prompt is begun again because another run has changed the conversation meanwhile."""
BEFORE: dict[str, tuple[str, ...]] = {
    "detect_topics": (),
    "compute_budget": ("detect_topics",),
    "fetch_bundles": ("compute_budget",),
    "compact_history": ("compute_budget",),
    "retrieve": ("fetch_bundles", "compact_history"),
    "assemble": ("retrieve",),
}
"""What every node waits for; what does not wait for each other runs side by side."""
FIRST, LAST = "detect_topics", "assemble"


class ContextInput(TypedDict):
    """What the graph reads: an agent's messages, the current turn last, and the turn's context block."""

    messages: Annotated[list[AnyMessage], add_messages]
    ctxbudget_turn: NotRequired[dict[str, Any]]


class ContextOutput(TypedDict):
    """What the graph gives: what to send, its account as plain data, and the context block of the turn.

    `ctxbudget_turn` belongs into the checkpointed state of an agent that calls tools: as long as the turn goes on, the
    same block stands in front of the user's words.
    """

    llm_input_messages: list[AnyMessage]
    report: Annotated[dict[str, Any], UntrackedValue]
    ctxbudget_turn: NotRequired[dict[str, Any]]


class ContextState(ContextInput, ContextOutput):
    """The state between nodes."""

    prompt: Annotated[str, UntrackedValue(str, guard=False)]
    """A name for the prompt on its way."""


class _OnItsWay(str):
    """A name for streams to show; the draft behind it is this process's alone, and never checkpointed."""

    __slots__ = ("draft",)
    draft: Draft

    @classmethod
    def of(cls, draft: Draft, step: str) -> _OnItsWay:
        """A name for a draft that has come so far."""
        name = cls(f"prompt for {draft.conversation.scope.conversation_id!r}: {step}")
        name.draft = draft
        return name


def build_context_graph(
    pipeline: ContextPipeline | ContextSettings | Mapping[str, Any] | None = None,
    *,
    default_user: str | None = None,
    tools: Sequence[Any] = (),
    response_format: object = None,
    runtime_store: bool = True,
    agent: str | None = None,
    **options: Unpack[PipelineOptions],
) -> CompiledStateGraph[ContextState, RunContext, ContextInput, ContextOutput]:
    """The context pipeline as a compiled graph, to invoke, or to add as a node to a graph with `messages`.

    Nodes: `detect_topics`, `compute_budget`, `fetch_bundles` beside `compact_history`, `retrieve`, `assemble`; each
    tells what it did as a custom stream event. The conversation in the store is first made equal to the messages before
    the current turn (`sync`), so that they can be compacted and found again; what the state does not have any more is
    archived. The messages in state are not changed; let a checkpointer keep them. The conversation is the run's
    `thread_id`, the user its `user_id` (both `configurable`), else the server's authenticated user; `RunContext` as
    runtime context outweighs both. A run may also name a `persona_id`, whose saved settings apply, and
    `context_settings`, which lie over all others.

    Args:
        pipeline: what assembles, or the settings of one that is made here.
        default_user: the user where the run names none; without one that is an error.
        tools: what the model will be bound to; counted as it is sent.
        response_format: a schema that the model must answer in; counted as it is sent.
        runtime_store: whether conversations are kept in the store that the graph was compiled with, where there is one,
            and not in the pipeline's.
        agent: the agent's name where several work in one thread: each has a conversation of its own then.
        options: what else `ContextPipeline` takes, where no pipeline is given.

    Returns:
        a graph from `{"messages": [...]}` to `{"llm_input_messages": [...], "report": {...}, "ctxbudget_turn": {...}}`.

    Raises:
        InvalidSettingsError: a pipeline and options, or an option that there is not.

    Example:
        >>> from langchain_ctxbudget import build_context_graph
        >>> graph = build_context_graph({"max_context_tokens": 4_000}, default_user="ada")
        >>> state = graph.invoke({"messages": [("human", "Hello")]}, {"configurable": {"thread_id": "c1"}})
        >>> state["llm_input_messages"][-1].content
        'Hello'
    """
    nodes = _Nodes(pipeline_of(pipeline, options), default_user, runtime_store, agent, tools, response_format)
    graph = StateGraph(ContextState, RunContext, input_schema=ContextInput, output_schema=ContextOutput)
    for name, before in BEFORE.items():
        graph.add_node(name, nodes.node(name))
        if before:
            graph.add_edge(list(before) if len(before) > 1 else before[0], name)
    graph.add_edge(START, FIRST)
    graph.add_edge(LAST, END)
    # As a part of another graph it keeps no checkpoints of its own: a copy of the history for every call of the model.
    return graph.compile(name="context_budget", checkpointer=False).with_config(tags=["ctxbudget"])


@dataclass(frozen=True, slots=True)
class _Nodes:
    """The nodes of one graph."""

    pipeline: ContextPipeline
    default_user: str | None
    runtime_store: bool
    agent: str | None
    tools: Sequence[Any]
    response_format: object

    def node(self, name: str) -> RunnableLambda[ContextState, dict[str, Any]]:
        """One node for both modes, from one flow."""

        def run(state: ContextState, config: RunnableConfig) -> dict[str, Any]:
            return drive(self._step(name, state, config))

        async def arun(state: ContextState, config: RunnableConfig) -> dict[str, Any]:
            return await adrive(self._step(name, state, config))

        asynchronous: Callable[..., Coroutine[Any, Any, dict[str, Any]]] = arun
        return RunnableLambda(run, asynchronous, name=name)

    def _step(self, name: str, state: ContextState, config: RunnableConfig) -> Flow[dict[str, Any]]:
        """Run a step, tell of it, and say what is to be known in the state."""
        draft = yield from self._brought_to(name, state, config)
        get_stream_writer()({"ctxbudget": {"step": name, **progress(name, draft)}})
        if name != LAST:
            return {"prompt": _OnItsWay.of(draft, name)}
        context = draft.context
        assert context is not None  # noqa: S101 - the last step sets it
        describe_run(context.report)
        found = {"llm_input_messages": context.messages, "report": context.report.to_dict(), "prompt": ""}
        return found | ({"ctxbudget_turn": draft.block.to_dict()} if draft.block else {})

    def _brought_to(self, name: str, state: ContextState, config: RunnableConfig) -> Flow[Draft]:
        """Run a step, and those before it that a draft has not seen: a run may have been resumed here.

        Another run on the same thread may have changed the conversation; then the prompt is begun again.
        """
        run = run_of(config, self.default_user, get_runtime(), agent=self.agent)
        engine = self.pipeline.engine.over(run.store if self.runtime_store else None)
        draft: Draft | None = getattr(state.get("prompt"), "draft", None)
        for attempt in range(1, MOST_ATTEMPTS + 1):
            try:
                if draft is None:
                    draft = yield from engine.open_turn(
                        run.scope, *split_turn(state["messages"]), self._request(run, state)
                    )
                for step in _needed(name):
                    if step not in draft.timings_ms:
                        yield from engine.run_step(step, draft)
            except MessageConflictError:
                if attempt == MOST_ATTEMPTS:
                    raise
                draft = None
            else:
                return draft
        raise AssertionError("the last attempt returns or raises")

    def _request(self, run: Run, state: ContextState) -> Request:
        return Request(
            tools=self.tools,
            response_format=self.response_format,
            settings=run.settings,
            persona_id=run.persona_id,
            block=state.get("ctxbudget_turn"),
            failures=flattened(state["messages"]),
        )


def _needed(name: str) -> list[str]:
    """A step and everything that it waits for, in order."""
    before = [step for earlier in BEFORE[name] for step in _needed(earlier)]
    return [*dict.fromkeys(before), name]
