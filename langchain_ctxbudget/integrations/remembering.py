"""`build_remember_node`: stores a turn that has ended, behind the model of a graph."""

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, MessageLikeRepresentation
from langchain_core.runnables import Runnable, RunnableConfig

from langchain_ctxbudget.errors import InputError, checks_names
from langchain_ctxbudget.flow import Flow, adrive, drive
from langchain_ctxbudget.integrations.options import PIPELINE_ARGUMENTS, require_pipeline
from langchain_ctxbudget.messages import checked_messages, is_user
from langchain_ctxbudget.pipeline import (
    ContextPipeline,
    Engine,
    Run,
    StoredConversation,
    current_runtime,
    is_task,
    require_default_user,
    run_of,
)


class RememberNode(Runnable[Any, dict[str, Any]]):
    """A node that stores the messages of a state whose turn has ended, and changes nothing in it.

    Where they cannot be stored, the next prompt of the conversation stores them, or says that it
    cannot.
    """

    name = "remember"

    def __init__(
        self,
        pipeline: ContextPipeline,
        *,
        default_user: str | None,
        runtime_store: bool,
        agent: str | None,
    ) -> None:
        self._pipeline = pipeline
        self._default_user = default_user
        self._runtime_store = runtime_store
        self._agent = agent

    def invoke(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        **_: Any,
    ) -> dict[str, Any]:
        """Stores the state's messages."""
        drive(self._remember(input, config or {}))
        return {}

    async def ainvoke(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        **_: Any,
    ) -> dict[str, Any]:
        """Stores the state's messages; the async form of `invoke`."""
        await adrive(self._remember(input, config or {}))
        return {}

    def _remember(self, state: object, config: RunnableConfig) -> Flow[None]:
        messages = _messages_of(state)
        run = run_of(
            config, self._default_user, current_runtime(), agent=self._agent, messages=messages
        )
        run = run.under(self._pipeline.settings)
        engine = self._pipeline.engine.over_store(run.store if self._runtime_store else None)
        if has_ended(messages):
            yield from store_turn(engine, run, messages, config)


def _messages_of(state: object) -> list[BaseMessage]:
    """Returns the messages of a graph's state: a mapping, or an object with fields."""
    found = (
        state.get("messages") if isinstance(state, Mapping) else getattr(state, "messages", None)
    )
    if not isinstance(found, Sequence) or isinstance(found, str):
        raise InputError(
            "The state has no list of 'messages', so there is nothing to remember: add "
            "`messages: Annotated[list[AnyMessage], add_messages]` to it"
        )
    return checked_messages(found, "messages")


def has_ended(messages: Sequence[BaseMessage]) -> bool:
    """Tells whether the last turn has ended: nobody waits for an answer, or for a tool's result."""
    if not messages:
        return True
    last = messages[-1]
    return not is_user(last) and not (isinstance(last, AIMessage) and last.tool_calls)


def store_turn(
    engine: Engine,
    run: Run,
    messages: Sequence[MessageLikeRepresentation],
    config: RunnableConfig,
) -> Flow[None]:
    """Stores the messages of an agent's state whose turn has ended.

    A run without a thread is over with its turn, and nothing of it is kept.

    Args:
        engine: the engine over the store that the conversation is kept in.
        run: whose conversation it is.
        messages: all messages of the state.
        config: that of the run.
    """
    if not run.scope.is_kept:
        engine.workspace.open_conversations.drop(run.scope)
        return
    stored = StoredConversation(engine.workspace, run.scope)
    yield from stored.copy_state(messages, thread_id=run.thread, task=is_task(config))


@checks_names(of_pipeline=PIPELINE_ARGUMENTS)
def build_remember_node(
    pipeline: ContextPipeline,
    *,
    default_user: str | None = None,
    runtime_store: bool = True,
    agent: str | None = None,
) -> RememberNode:
    """Builds the node that stores a turn once the model has answered.

    `build_context_graph` stands in front of the model and stores what was said before the current
    turn. Without this node the last exchange of a thread is stored when that thread runs next:
    until then no other thread of the user finds it, and a rule that it lifts still holds after a
    restart. Put the node where a turn ends, or give it to `create_react_agent` as
    `post_model_hook`. It waits while the model calls tools, or has not answered yet. The state
    stays as it is.

    Args:
        pipeline: the pipeline of the context graph.
        default_user: as for `build_context_graph`; give both the same.
        runtime_store: as for `build_context_graph`; give both the same.
        agent: as for `build_context_graph`; give both the same.

    Raises:
        InvalidSettingsError: the pipeline is none; settings alone would make another one, which
            keeps its messages elsewhere.

    Example:
        >>> from langchain_core.messages import AIMessage, AnyMessage
        >>> from langgraph.graph import START, MessagesState, StateGraph
        >>> from langchain_ctxbudget import (
        ...     ContextPipeline,
        ...     build_context_graph,
        ...     build_remember_node,
        ... )
        >>> class State(MessagesState):
        ...     llm_input_messages: list[AnyMessage]
        >>> pipeline = ContextPipeline()
        >>> graph = StateGraph(State).add_sequence(
        ...     [
        ...         ("context", build_context_graph(pipeline)),
        ...         ("model", lambda state: {"messages": [AIMessage("Noted!")]}),
        ...         ("remember", build_remember_node(pipeline)),
        ...     ]
        ... )
        >>> agent = graph.add_edge(START, "context").compile()
        >>> run = {"configurable": {"thread_id": "c1", "user_id": "ada"}}
        >>> state = agent.invoke({"messages": [("human", "My bike is blue.")]}, run)
        >>> chat = pipeline.conversation("c1", user_id="ada")
        >>> [message.text for message in chat.messages()]
        ['My bike is blue.', 'Noted!']
    """
    require_pipeline(pipeline, "give it the one of the context graph")
    require_default_user(default_user)
    return RememberNode(
        pipeline, default_user=default_user, runtime_store=runtime_store, agent=agent
    )
