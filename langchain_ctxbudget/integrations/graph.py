"""`build_context_graph`: the six steps of `ContextPipeline.assemble` as a LangGraph graph, one node a step."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, NotRequired

from langchain_core.messages import AnyMessage, SystemMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import get_runtime
from langgraph.types import Checkpointer
from typing_extensions import TypedDict
from langchain_ctxbudget import prompt as prompts
from langchain_ctxbudget.errors import InvalidSettingsError, checks_names
from langchain_ctxbudget.flow import Flow, adrive, drive
from langchain_ctxbudget.integrations.options import ReportInState, newest, pipeline_of, require_report, state_update
from langchain_ctxbudget.messages import instruction
from langchain_ctxbudget.pipeline import ContextPipeline, RunContext, run_of
from langchain_ctxbudget.prompt import Request
from langchain_ctxbudget.settings import ContextSettings

NODES = (*prompts.STEPS, prompts.LAST_STEP)


class ContextInput(TypedDict):
    """An agent's messages, the current turn last, and the turn's context block."""

    messages: Annotated[list[AnyMessage], add_messages]
    ctxbudget_turn: NotRequired[Annotated[dict[str, Any] | None, newest]]


class ContextOutput(TypedDict):
    """The messages to send, a report where asked for, and the turn's context block, which an agent's state keeps."""

    llm_input_messages: list[AnyMessage]
    context_report: NotRequired[Annotated[dict[str, Any] | None, newest]]
    ctxbudget_turn: NotRequired[Annotated[dict[str, Any] | None, newest]]


class ContextState(ContextInput, ContextOutput):
    """The state between nodes: what each step but the last one has decided, as plain data.

    A step reads what those before it have written, whoever has; where nobody has, it decides itself. It writes its own
    channel, and sets to None what is out of date by that.
    """

    detected: NotRequired[prompts.DetectedTopics | None]
    budget: NotRequired[prompts.BudgetShares | None]
    bundles: NotRequired[list[prompts.Item] | None]
    """Topics, entities and layers of the application's own, as they stand in front of the user's words."""
    history: NotRequired[prompts.SummarizedHistory | None]
    retrieved: NotRequired[list[prompts.Item] | None]


class ContextNode(Runnable[ContextState, dict[str, Any]]):
    """One step as a node, in both forms; LangGraph makes its trace."""

    def __init__(self, name: str, step: Callable[[str, ContextState, RunnableConfig], Flow[dict[str, Any]]]) -> None:
        self.name, self._step = name, step

    def invoke(self, input: ContextState, config: RunnableConfig | None = None, **_: Any) -> dict[str, Any]:  # noqa: A002, ANN401 - as the base class has it
        """Runs the step."""
        return drive(self._step(str(self.name), input, config or {}))

    async def ainvoke(self, input: ContextState, config: RunnableConfig | None = None, **_: Any) -> dict[str, Any]:  # noqa: A002, ANN401 - as the base class has it
        """Runs the step."""
        return await adrive(self._step(str(self.name), input, config or {}))


@checks_names(ContextSettings.model_fields)
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
    nodes: Mapping[str, Any] | None = None,
    checkpointer: Checkpointer = False,
) -> CompiledStateGraph[ContextState, RunContext, ContextInput, ContextOutput]:
    """Builds the context pipeline as a compiled graph, to invoke, or to add as a node to a graph with `messages`.

    The graph goes from `{"messages": [...]}` to `{"llm_input_messages": [...], "ctxbudget_turn": {...}}`. The
    conversation in the store is first made equal to the messages before the current turn (`sync`); those in state are
    not changed. User and conversation are the run's (`user_id`, `thread_id`, or a `RunContext`), as are `persona_id`,
    `device_id` and `context_settings`; without a thread a run is a conversation of its own, in memory only.

    Args:
        pipeline: the pipeline, or the settings of one that is made here.
        default_user: the user where the run names none; without one that is an error.
        prompt: the agent's own instructions, behind the pipeline's system prompt; to be given here alone.
        tools: the tools of the model, hand-off tools included; counted as they are sent.
        response_format: a schema that the model must answer in; counted as it is sent.
        runtime_store: True keeps conversations in the store that the graph was compiled with, where there is one.
        agent: the agent's name where several work in one thread: each has a conversation of its own then.
        report: what `context_report` has of the report: `"none"`, its `"numbers"`, or also the `"texts"` it quotes.
        nodes: nodes of your own in the place of some of the six, by name; each writes the channel of its step.
        checkpointer: False keeps no checkpoints of the steps, as they have a copy of the history for every call.

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
    own = {**(nodes or {})}
    if unknown := own.keys() - {*NODES}:
        raise InvalidSettingsError(f"there are no nodes {sorted(unknown)}; the nodes are {', '.join(NODES)}")
    asked = Request(instructions=(given,) if given else (), tools=tools, response_format=response_format)
    engine = pipeline_of(pipeline).engine
    require_report(report)

    def step(name: str, state: ContextState, config: RunnableConfig) -> Flow[dict[str, Any]]:
        run = run_of(config, default_user, get_runtime(), agent=agent, messages=state["messages"])
        run = run.under(engine.settings)
        request = run.request(config, asked, state)
        over = engine.over(run.store if runtime_store else None)
        session, update = yield from over.run_node(name, run.scope, state["messages"], request, state=state)
        if session.context is None:
            return update
        return {"llm_input_messages": session.context.messages, **state_update(session, report, "context_report")}

    graph = StateGraph(ContextState, RunContext, input_schema=ContextInput, output_schema=ContextOutput)
    for before, name in pairwise((START, *NODES)):
        graph.add_node(name, own.get(name) or ContextNode(name, step))
        graph.add_edge(before, name)
    graph.add_edge(prompts.LAST_STEP, END)
    return graph.compile(name="context_budget", checkpointer=checkpointer).with_config(tags=["ctxbudget"])


def context_nodes(*given: Any, **options: Any) -> dict[str, Any]:  # noqa: ANN401 - as below
    """Returns the steps of `build_context_graph`, by name, for a graph of your own with the state `ContextState`."""
    return {name: node.runnable for name, node in build_context_graph(*given, **options).builder.nodes.items()}
