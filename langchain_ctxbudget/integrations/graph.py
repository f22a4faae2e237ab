"""`build_context_graph`: the six steps of a prompt as a LangGraph graph, one node a step."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, NotRequired, cast
from weakref import ReferenceType

from langchain_core.messages import (
    AnyMessage,
    BaseMessage,
    BaseMessageChunk,
    RemoveMessage,
    SystemMessage,
)
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.channels import BinaryOperatorAggregate
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import get_runtime
from langgraph.types import Checkpointer
from typing_extensions import TypedDict

from langchain_ctxbudget import prompt as prompts
from langchain_ctxbudget.errors import InvalidSettingsError, checks_names
from langchain_ctxbudget.flow import Flow, adrive, drive
from langchain_ctxbudget.integrations.options import (
    PIPELINE_ARGUMENTS,
    ReportInState,
    newest,
    pipeline_of,
    require_report,
    state_update,
)
from langchain_ctxbudget.integrations.told import tell_stream
from langchain_ctxbudget.integrations.tool_calls import TOOLS_KEY
from langchain_ctxbudget.messages import instruction
from langchain_ctxbudget.pipeline import (
    ContextPipeline,
    Prompter,
    RunContext,
    require_default_user,
    run_of,
)
from langchain_ctxbudget.prompt import Request
from langchain_ctxbudget.settings import ContextSettings

NODES = (*prompts.STEPS, prompts.LAST_STEP)
SENT_KEY = "llm_input_messages"
"""The key of a state that has the messages to send."""
_KEPT_FOR_MODEL = {
    SENT_KEY: f"`{SENT_KEY}: list[AnyMessage]`; the model is called with its value",
    TOOLS_KEY: f"`{TOOLS_KEY}: list[str]`; the tools that it names are bound to the model",
}
"""What a graph's state needs so that its model gets what a prompt has chosen, by its keys."""


class ContextInput(TypedDict):
    """An agent's messages, the current turn last, and the turn's background."""

    messages: Annotated[list[AnyMessage], add_messages]
    ctxbudget_turn: NotRequired[Annotated[dict[str, Any] | None, newest]]


class ContextOutput(TypedDict):
    """The messages to send, the names of the tools to bind, a report, and the turn's background.

    An agent's state keeps the background.
    """

    llm_input_messages: list[AnyMessage]
    llm_input_tools: NotRequired[list[str]]
    context_report: NotRequired[Annotated[dict[str, Any] | None, newest]]
    ctxbudget_turn: NotRequired[Annotated[dict[str, Any] | None, newest]]


class ContextState(ContextInput, ContextOutput):
    """The state between nodes: what each step but the last one has decided, as plain data.

    A step reads what the steps before it have written, or what a node of the application's own has
    written in their place; where nobody has, it decides itself. It writes its own channel, and sets
    channels to None that are out of date by that.
    """

    detected: NotRequired[prompts.DetectedTopics | None]
    budget: NotRequired[prompts.BudgetShares | None]
    bundles: NotRequired[list[prompts.Item] | None]
    """Topics, entities and layers of the application's own, as they stand in front of the user's
    words."""
    history: NotRequired[prompts.SummarizedHistory | None]
    retrieved: NotRequired[list[prompts.Item] | None]


class ContextGraph(CompiledStateGraph[ContextState, RunContext, ContextInput, ContextOutput]):
    """The six steps as a graph.

    It refuses to be a node of a graph whose state has no key for the messages to send, or for the
    tools to bind where it chooses them.
    """

    def __init__(self, *, kept_keys: Sequence[str] = (SENT_KEY,), **parts: Any) -> None:
        super().__init__(**parts)
        self.kept_keys = kept_keys

    def stream(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        **options: Any,
    ) -> Iterator[Any]:
        """Runs the steps; `invoke` does so by this, too."""
        if _is_node_of_run(self, config):
            _require_places(config, self.kept_keys)
        return super().stream(input, config, **options)

    def astream(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        **options: Any,
    ) -> AsyncIterator[Any]:
        """Runs the steps; `ainvoke` does so by this, too."""
        if _is_node_of_run(self, config):
            _require_places(config, self.kept_keys)
        return super().astream(input, config, **options)


def _is_node_of_run(graph: ContextGraph, config: RunnableConfig | None) -> bool:
    """Tells whether a run calls a graph as one of its nodes, not from a function in a node.

    LangGraph drops what a state has no key for, and tells no node of the state that it is in. So
    this looks at the task that runs, by names that are LangGraph's own; where it cannot be found,
    nothing is checked.
    """
    call = (config or {}).get("configurable", {}).get("__pregel_call")
    find_task = next(iter(getattr(call, "args", ())), None)
    task = find_task() if isinstance(find_task, ReferenceType) else None
    runnables = list(getattr(getattr(task, "proc", None), "steps", ()))
    for position, runnable in enumerate(runnables):
        if runnable is graph and all(map(_writes_channels, runnables[position + 1 :])):
            return True
    return False


def _writes_channels(runnable: object) -> bool:
    return type(runnable).__name__ == "ChannelWrite"


def _require_places(config: RunnableConfig | None, keys: Sequence[str]) -> None:
    """Refuses a state that has no place for what the model is to get."""
    read = (config or {}).get("configurable", {}).get("__pregel_read")
    if read is None:
        return
    for key in keys:
        try:
            read(key)
        except KeyError as error:
            raise InvalidSettingsError(
                f"The graph's state has no key {key!r}, so what this node gives would be lost. "
                f"Add it to the state: {_KEPT_FOR_MODEL[key]}"
            ) from error


class ContextNode(Runnable[ContextState, dict[str, Any]]):
    """One step as a node, in both forms; LangGraph makes its trace."""

    def __init__(
        self,
        name: str,
        step: Callable[[str, ContextState, RunnableConfig], Flow[dict[str, Any]]],
        kept_keys: Sequence[str],
    ) -> None:
        self.name = name
        self._step = step
        self._kept_keys = kept_keys

    def invoke(
        self,
        input: ContextState,
        config: RunnableConfig | None = None,
        **_: Any,
    ) -> dict[str, Any]:
        """Runs the step."""
        if self.name == prompts.LAST_STEP:
            _require_places(config, self._kept_keys)
        return drive(self._step(str(self.name), input, config or {}))

    async def ainvoke(
        self,
        input: ContextState,
        config: RunnableConfig | None = None,
        **_: Any,
    ) -> dict[str, Any]:
        """Runs the step."""
        if self.name == prompts.LAST_STEP:
            _require_places(config, self._kept_keys)
        return await adrive(self._step(str(self.name), input, config or {}))


@checks_names(ContextSettings.model_fields, PIPELINE_ARGUMENTS)
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
    """Builds the context pipeline as a compiled graph, to invoke, or to add as a node to a graph.

    The graph goes from `{"messages": [...]}` to `{"llm_input_messages": [...], "ctxbudget_turn":
    {...}}`, and with tools also to `"llm_input_tools"`: the names of those to bind, which are fewer
    with the setting `tool_tokens`; see `create_tool_search`. The conversation in the store is first
    made equal to the messages before the current turn (`sync`); those in the state are not changed.
    User and conversation are the run's (`user_id`, `thread_id`, or a `RunContext`), as are
    `persona_id`, `device_id` and `context_settings`; without a thread a run is a conversation of
    its own, in memory only.

    Args:
        pipeline: the pipeline, or the settings of one that is made here.
        default_user: the user where the run names none; without one that is an error.
        prompt: the agent's own instructions, behind the pipeline's system prompt; to be given here
            alone.
        tools: all tools of the model, hand-off tools included; counted as they are sent.
        response_format: a schema that the model must answer in; counted as it is sent.
        runtime_store: True keeps conversations in the store that the graph was compiled with, where
            there is one.
        agent: the agent's name where several work in one thread: each has a conversation of its own
            then.
        report: what `context_report` has of the report: `"none"`, its `"numbers"`, or also the
            `"texts"` that it quotes. Where it is asked for, the run's custom stream has an event
            `ctxbudget` of the prompt, too.
        nodes: nodes of your own in the place of some of the six, by name; each writes the channel
            of its step.
        checkpointer: False keeps no checkpoints of the steps, as they have a copy of the history
            for every call.

    Example:
        >>> from langchain_ctxbudget import build_context_graph
        >>> graph = build_context_graph({"max_context_tokens": 4_000}, default_user="ada")
        >>> state = graph.invoke(
        ...     {"messages": [("human", "Hello")]}, {"configurable": {"thread_id": "c1"}}
        ... )
        >>> state["llm_input_messages"][-1].content
        'Hello'
    """
    agent_request = _request_of_agent(prompt, tools, response_format)
    own_nodes = dict(nodes or {})
    _require_nodes(own_nodes)
    engine = pipeline_of(pipeline).engine
    kept_keys = [SENT_KEY]
    if engine.settings.tool_tokens is not None:
        kept_keys.append(TOOLS_KEY)
    require_report(report)
    require_default_user(default_user)

    def step(name: str, state: ContextState, config: RunnableConfig) -> Flow[dict[str, Any]]:
        run = run_of(config, default_user, get_runtime(), agent=agent, messages=state["messages"])
        run = run.under(engine.settings)
        request = run.request(config, agent_request, state)
        run_engine = engine.over_store(run.store if runtime_store else None)
        session, update = yield from Prompter(run_engine, run.scope).run_step(
            name, state["messages"], request, state
        )
        if session.context is None:
            return update
        tell_stream(get_runtime(), session.context, report)
        update = {
            SENT_KEY: session.context.messages,
            **state_update(session, report, "context_report"),
        }
        if tools:
            update[TOOLS_KEY] = [*session.plan.tools.names]
        return update

    graph = StateGraph(
        ContextState, RunContext, input_schema=ContextInput, output_schema=ContextOutput
    )
    for before, name in pairwise((START, *NODES)):
        graph.add_node(name, own_nodes.get(name) or ContextNode(name, step, kept_keys))
        graph.add_edge(before, name)
    graph.add_edge(prompts.LAST_STEP, END)
    graph.channels["messages"] = _channel_of_messages()
    compiled = graph.compile(name="context_budget", checkpointer=checkpointer)
    parts = {name: part for name, part in vars(compiled).items() if name != "__orig_class__"}
    return ContextGraph(kept_keys=kept_keys, **parts).with_config(tags=["ctxbudget"])


def _channel_of_messages() -> BinaryOperatorAggregate[list[AnyMessage]]:
    """Returns the channel for an agent's messages, which come into it all at once."""
    channel = BinaryOperatorAggregate(list[AnyMessage], _with_messages)
    channel.key = "messages"
    return channel


def _with_messages(left: list[AnyMessage], right: Any) -> list[AnyMessage]:
    """Adds messages to those of a state, as LangGraph's `add_messages` does.

    A history that comes into an empty state is taken as it is. `add_messages` asks each message
    twice whether it removes another one, which takes most of the time of a long history.
    """
    if not left and isinstance(right, list) and _are_complete(right):
        return list(right)
    return cast("list[AnyMessage]", add_messages(cast("Any", left), right))


def _are_complete(messages: list[Any]) -> bool:
    """Returns whether these are messages as a state keeps them, each with an id of its own."""
    for kind in set(map(type, messages)):
        if not issubclass(kind, BaseMessage):
            return False
        if issubclass(kind, BaseMessageChunk | RemoveMessage):
            return False
    ids = {message.id for message in messages}
    return len(ids) == len(messages) and None not in ids


def _request_of_agent(
    prompt: str | SystemMessage | None, tools: Sequence[Any], response_format: object
) -> Request:
    """Returns what an agent adds to every request: its instructions, tools and response format.

    Raises:
        InvalidSettingsError: The prompt is neither a text nor a system message.
    """
    if isinstance(prompt, SystemMessage):
        prompt = instruction(prompt)
    if prompt is not None and not isinstance(prompt, str):
        raise InvalidSettingsError(
            f"prompt must be a string or a SystemMessage, not {type(prompt).__name__}"
        )
    instructions = (prompt,) if prompt else ()
    return Request(instructions=instructions, tools=tools, response_format=response_format)


def _require_nodes(nodes: Mapping[str, Any]) -> None:
    """Raises `InvalidSettingsError` where a node is to take the place of one that there is not."""
    unknown = nodes.keys() - {*NODES}
    if unknown:
        raise InvalidSettingsError(
            f"there are no nodes {sorted(unknown)}; the nodes are {', '.join(NODES)}"
        )


def context_nodes(*given: Any, **options: Any) -> dict[str, Any]:
    """Returns the steps of `build_context_graph`, by name.

    They are for a graph of your own with the state `ContextState`.
    """
    graph = build_context_graph(*given, **options)
    return {name: node.runnable for name, node in graph.builder.nodes.items()}
