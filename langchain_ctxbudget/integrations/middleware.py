"""`ContextBudgetMiddleware`: shows a LangChain agent's model what fits its budget.

It needs the extra `agents`.
"""

from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from time import monotonic
from typing import Annotated, Any, NotRequired

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    SystemMessage,
    ToolMessage,
    convert_to_messages,
)
from langchain_core.runnables import RunnableConfig
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.channels.untracked_value import UntrackedValue
from langgraph.config import get_config
from langgraph.runtime import Runtime
from langgraph.types import Command

from langchain_ctxbudget import messages
from langchain_ctxbudget.content import call_ids
from langchain_ctxbudget.errors import InputError, checks_names
from langchain_ctxbudget.flow import Flow, adrive, drive
from langchain_ctxbudget.installing import install_command
from langchain_ctxbudget.integrations.callbacks import observed_elsewhere
from langchain_ctxbudget.integrations.options import (
    PIPELINE_ARGUMENTS,
    ReportInState,
    newest,
    pipeline_of,
    require_report,
    state_update,
)
from langchain_ctxbudget.integrations.remembering import store_turn
from langchain_ctxbudget.integrations.told import metadata_on_runs, tell_stream
from langchain_ctxbudget.integrations.tool_calls import (
    ReachableTools,
    ToolResult,
    ToolsOfRuns,
    as_answer,
)
from langchain_ctxbudget.integrations.tools import create_compaction_tool, create_recall_tool
from langchain_ctxbudget.messages import fingerprint, plainly_same, split_instructions, split_turn
from langchain_ctxbudget.pipeline import (
    ContextPipeline,
    Engine,
    Prompter,
    Run,
    Session,
    require_default_user,
    run_of,
)
from langchain_ctxbudget.prompt import Request
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.tools import OwnTool, ToolSet, own_kind

try:
    from langchain.agents.middleware import types
    from langchain.agents.structured_output import AutoStrategy, ProviderStrategy, ToolStrategy
except ImportError as error:  # pragma: no cover - the tests have it
    raise ImportError(f"The middleware needs langchain: {install_command('agents')}") from error

NOT_FOLLOWED = (
    "other middleware changed messages before the current turn in the request only: "
    "they are shown as the agent's state has them, so change them there"
)


class ContextBudgetState(types.AgentState[Any]):
    """The state that the middleware adds to an agent's messages."""

    ctxbudget_turn: NotRequired[Annotated[dict[str, Any] | None, types.PrivateStateAttr, newest]]
    """The background of the current turn, checkpointed: while the agent loops over tools it stays
    the same."""
    ctxbudget_report: NotRequired[
        Annotated[dict[str, Any], types.OmitFromInput, UntrackedValue(dict, guard=False)]
    ]
    """The report of the last model call, where it is asked for; not checkpointed."""


class ContextBudgetMiddleware(types.AgentMiddleware[ContextBudgetState, Any, Any]):
    """Decides for every model call of an agent what its model sees.

    The messages in the agent's state stay as they are.

    Everything is counted as it is sent, with the tokenizer and the window of the model that
    answers; usage that it reports corrects the counts. Messages before the current turn are copied
    to the pipeline's store, so that they can be compacted, retrieved, and looked up with the recall
    tool.

    User and conversation are the run's (`user_id`, `thread_id`, or a `RunContext`); without a
    thread a run is a conversation of its own, in memory only. An agent in a tool of another one
    needs a name (`agent`).

    Put it last in the list, so that additions of other middleware are counted, marks for a
    provider's cache among them; behind it belongs only what repeats a finished request (retries).
    Middleware that changes messages before the current turn must change the state. It takes the
    place of `SummarizationMiddleware`, which deletes from the state.

    Example:
        >>> from langchain.agents import create_agent
        >>> from langchain_core.language_models import FakeListChatModel
        >>> budget = ContextBudgetMiddleware(
        ...     {"max_context_tokens": 4_000}, default_user="ada", report="numbers"
        ... )
        >>> agent = create_agent(FakeListChatModel(responses=["Hi!"]), middleware=[budget])
        >>> state = agent.invoke(
        ...     {"messages": [("human", "Hello")]}, {"configurable": {"thread_id": "c1"}}
        ... )
        >>> state["messages"][-1].content, state["ctxbudget_report"]["budget_tokens"]
        ('Hi!', 4000)
    """

    state_schema = ContextBudgetState

    @checks_names(ContextSettings.model_fields, PIPELINE_ARGUMENTS)
    def __init__(
        self,
        pipeline: ContextPipeline | ContextSettings | Mapping[str, Any] | None = None,
        *,
        default_user: str | None = None,
        recall_tool: bool = True,
        compaction_tool: bool = False,
        runtime_store: bool = True,
        agent: str | None = None,
        report: ReportInState = "none",
    ) -> None:
        """Sets up; nothing is read, written or loaded before it is needed.

        Args:
            pipeline: the pipeline, or the settings of one that is made here; its system prompt
                stands in front of the agent's.
            default_user: the user where neither run nor context names one; without one that is an
                error.
            recall_tool: True gives the agent a tool to look up messages that its prompt no longer
                shows.
            compaction_tool: True gives it one to have older messages compacted now, for instance
                between two tasks.
            runtime_store: as for `build_context_graph`.
            agent: as for `build_context_graph`.
            report: what the agent's state has of its last report, as `ctxbudget_report`: `"none"`,
                its `"numbers"`, or also the `"texts"` that it quotes. Where it is asked for, the
                run's custom stream has an event `ctxbudget` of every prompt, too.
        """
        super().__init__()
        require_default_user(default_user)
        self.pipeline = pipeline_of(pipeline)
        self._default_user = default_user
        self._runtime_store = runtime_store
        self._agent = agent
        self._report = require_report(report)
        options: dict[str, Any] = {
            "default_user": default_user,
            "runtime_store": runtime_store,
            "agent": agent,
        }
        self._tools_of_runs = ToolsOfRuns()
        self.tools = []
        if recall_tool:
            self.tools.append(create_recall_tool(self.pipeline, **options))
        if compaction_tool:
            self.tools.append(create_compaction_tool(self.pipeline, **options))

    def wrap_model_call(
        self,
        request: types.ModelRequest[Any],
        handler: Callable[[types.ModelRequest[Any]], types.ModelResponse[Any]],
    ) -> types.ExtendedModelResponse[Any]:
        """Calls the model with a prompt that fits its budget."""
        engine, session, prompt_request = drive(self._with_prompt(request))
        with observed_elsewhere(), metadata_on_runs(session.finished.receipt):
            began = monotonic()
            response = handler(prompt_request)
            seconds = monotonic() - began
        return self._finished(engine, session, response, seconds)

    async def awrap_model_call(
        self,
        request: types.ModelRequest[Any],
        handler: Callable[[types.ModelRequest[Any]], Awaitable[types.ModelResponse[Any]]],
    ) -> types.ExtendedModelResponse[Any]:
        """Calls the model with a prompt that fits its budget; see `wrap_model_call`."""
        engine, session, prompt_request = await adrive(self._with_prompt(request))
        with observed_elsewhere(), metadata_on_runs(session.finished.receipt):
            began = monotonic()
            response = await handler(prompt_request)
            seconds = monotonic() - began
        return self._finished(engine, session, response, seconds)

    def _with_prompt(
        self, request: types.ModelRequest[Any]
    ) -> Flow[tuple[Engine, Session, types.ModelRequest[Any]]]:
        """Assembles the prompt of one model call, for the model that answers."""
        request, failures = self._with_recall(request)
        parts = _split_request(request)
        run, engine = self._run(get_config(), request.runtime, request.state)
        engine = engine.for_model(_model_of_call(request))
        schemas = _schemas(request)
        prompt_request = run.request(
            get_config(),
            Request(
                tools=schemas.tools,
                response_format=schemas.response_format,
                cache_mark=request.model_settings.get("cache_control"),
                binds_chosen_tools=True,
            ),
            request.state,
            [*parts.failures, *failures],
        )
        session = yield from Prompter(engine, run.scope).answer(
            parts.history, parts.turn, prompt_request
        )
        tell_stream(request.runtime, session.finished, self._report)
        messages: list[Any] = list(session.finished.messages)
        system = None
        if messages and isinstance(messages[0], SystemMessage):
            system = messages.pop(0)
        tools = schemas.bound(session.finished.tools)
        reachable = ReachableTools(engine, request.tools, session.plan.tools.names)
        self._tools_of_runs.note(run.scope, reachable)
        return (
            engine,
            session,
            request.override(messages=messages, system_message=system, tools=tools),
        )

    def wrap_tool_call(
        self,
        request: types.ToolCallRequest,
        handler: Callable[[types.ToolCallRequest], ToolResult],
    ) -> ToolResult:
        """Runs a call of a tool that is not bound as if it were, or says how it can be called."""
        routed = self._routed(request)
        if isinstance(routed, ToolMessage):
            return routed
        return as_answer(request, routed, handler(routed))

    async def awrap_tool_call(
        self,
        request: types.ToolCallRequest,
        handler: Callable[[types.ToolCallRequest], Awaitable[ToolResult]],
    ) -> ToolResult:
        """Runs a call of a tool that is not bound as if it were; see `wrap_tool_call`."""
        routed = self._routed(request)
        if isinstance(routed, ToolMessage):
            return routed
        return as_answer(request, routed, await handler(routed))

    def _routed(self, request: types.ToolCallRequest) -> types.ToolCallRequest | ToolMessage:
        """Returns the call to run in the place of one, or what the model is told instead."""
        runtime = request.runtime
        run, engine = self._run(runtime.config, runtime, request.state)
        tools = self._tools_of_runs.find(run.scope)
        if tools is None:  # another process has asked the model
            tools = ReachableTools(engine, runtime.tools)
        return tools.routed(request)

    def _finished(
        self,
        engine: Engine,
        session: Session,
        response: types.ModelResponse[Any] | AIMessage,
        seconds: float,
    ) -> types.ExtendedModelResponse[Any]:
        """Returns the response with report and background for the agent's state.

        The usage that the response tells corrects the counts.
        """
        if isinstance(response, AIMessage):
            response = types.ModelResponse(result=[response])
        for message in response.result:
            if isinstance(message, AIMessage) and message.usage_metadata:
                # Usage of several calls, or of another prompt, corrects nothing.
                with suppress(InputError):
                    engine.observe(message, session.finished.report, seconds=seconds)
                break
        update = state_update(session, self._report, "ctxbudget_report")
        return types.ExtendedModelResponse(model_response=response, command=Command(update=update))

    def after_agent(self, state: ContextBudgetState, runtime: Runtime[Any]) -> None:
        """Stores the turn that has ended; where that fails, the next turn does it."""
        drive(self._store_turn(state, runtime))

    async def aafter_agent(self, state: ContextBudgetState, runtime: Runtime[Any]) -> None:
        """Stores the turn that has ended; where that fails, the next turn does it."""
        await adrive(self._store_turn(state, runtime))

    def _store_turn(self, state: ContextBudgetState, runtime: Runtime[Any]) -> Flow[None]:
        run, engine = self._run(get_config(), runtime, state)
        yield from store_turn(engine, run, state["messages"], get_config())

    def _run(
        self, config: RunnableConfig, runtime: object, state: Mapping[str, Any]
    ) -> tuple[Run, Engine]:
        messages = state.get("messages") or ()
        run = run_of(config, self._default_user, runtime, agent=self._agent, messages=messages)
        run = run.under(self.pipeline.settings)
        return run, self.pipeline.engine.over_store(run.store if self._runtime_store else None)

    def _with_recall(
        self, request: types.ModelRequest[Any]
    ) -> tuple[types.ModelRequest[Any], list[str]]:
        """Takes the recall tool from a model that binds no tools.

        Returns also what the report says of that.
        """
        model_type = type(request.model)
        binds_tools = model_type.bind_tools is not BaseChatModel.bind_tools
        others = [tool for tool in request.tools if own_kind(tool) is not OwnTool.RECALL]
        if binds_tools or len(others) == len(request.tools):
            return request, []
        failure = (
            f"{model_type.__name__} cannot bind tools, so the agent has no recall tool: "
            "set recall_tool=False"
        )
        return request.override(tools=others), [failure]


def _model_of_call(request: types.ModelRequest[Any]) -> Any:
    """Returns the model of a request, with the settings of this call: they may choose an API."""
    if not request.model_settings:
        return request.model
    return request.model.bind(**request.model_settings)


@dataclass(frozen=True, slots=True)
class _RequestParts:
    """A request of an agent, taken apart."""

    history: list[BaseMessage]
    """The messages before the current turn, with the agent's instructions in front."""
    turn: list[BaseMessage]
    failures: list[str]
    """What the report is to say of it."""


def _split_request(request: types.ModelRequest[Any]) -> _RequestParts:
    """Takes a request apart whose messages other middleware may have changed.

    The history is what the agent's state has before the current turn, with the agent's answers to
    calls that could not be read. Everything else in the request belongs to the turn; system
    messages at its beginning are instructions.
    """
    state = request.state.get("messages") or request.messages
    stored: list[BaseMessage] = list(state)
    if not messages.WHOLE.issuperset(map(type, state)):
        stored = [*convert_to_messages(state)]
    before, turn = split_turn(stored)
    history = before
    failures: list[str] = []
    is_changed = len(request.messages) != len(state)
    if is_changed or not messages.is_beginning_of(request.messages, state):
        changed = _ChangedRequest(stored, before, convert_to_messages(request.messages))
        history = changed.history
        turn = changed.turn
        if not changed.keeps_history:
            failures.append(NOT_FOLLOWED)
    _, rest = split_instructions(turn)
    instructions = turn[: len(turn) - len(rest)]
    system = request.system_message
    if system is not None:
        failures += messages.unsent_extras_of([system])
        instructions = [system, *instructions]
    return _RequestParts([*instructions, *history], rest, failures)


class _ChangedRequest:
    """The messages of a request that differ from those of the agent's state."""

    def __init__(
        self,
        stored: Sequence[BaseMessage],
        before: Sequence[BaseMessage],
        requested: Sequence[BaseMessage],
    ) -> None:
        self.history: list[BaseMessage] = []
        """The messages of the state before the turn, with answers that the state does not have."""
        self.turn: list[BaseMessage] = []
        self._before = before
        self._seen: list[BaseMessage] = []
        """The messages of the request that stand for those before the turn."""
        self._answers: defaultdict[int, list[BaseMessage]] = defaultdict(list)
        """Answers to calls that could not be read, by the position of the message with the calls.

        The state gets them with the next message."""
        self._sort(requested, _positions_in_state(stored, requested))
        for position, message in enumerate(before):
            self.history += [message, *self._answers[position]]
        if not self.turn:
            self.history, self.turn = split_turn(requested)

    @property
    def keeps_history(self) -> bool:
        """Whether the messages before the turn are the same as in the state."""
        return len(self._seen) == len(self._before) and all(
            map(plainly_same, self._seen, self._before)
        )

    def _sort(self, requested: Sequence[BaseMessage], positions: Sequence[int | None]) -> None:
        """Gives every message of the request to the history or to the turn."""
        last = len(self._before)
        for message, position in zip(requested, positions, strict=True):
            if position is not None:
                last = position
                part = self._seen if position < len(self._before) else self.turn
                part.append(message)
            elif last < len(self._before) and _answers_unreadable(message, self._before[last]):
                self._answers[last].append(message)
            elif not _is_stand_in(message, self._before):
                self.turn.append(message)


@dataclass(frozen=True, slots=True)
class _Schemas:
    """The schemas of a request: of its tools, and of its response format."""

    tools: list[Any]
    """The tools as the model gets them, with those for a structured answer."""
    response_format: object
    given: Sequence[Any]
    """The agent's own tools, which stand first among them, in the same order."""

    def bound(self, chosen: Sequence[Any]) -> list[Any]:
        """Returns the agent's own tools that a prompt has chosen, and those of the package.

        The agent binds the tools for its structured answer itself.
        """
        own = {id(tool): given for tool, given in zip(self.tools, self.given, strict=False)}
        answers = set(map(id, self.tools[len(self.given) :]))
        return [own.get(id(tool), tool) for tool in chosen if id(tool) not in answers]


def _schemas(request: types.ModelRequest[Any]) -> _Schemas:
    """Returns the tools and the response format as the agent will bind them.

    The agent decides at the call whether a schema goes as the provider's format or as a tool; both
    are counted then.
    """
    given = request.tools
    tools: list[Any] = list(given)
    wanted: Any = request.response_format
    if wanted is None:
        tools = [_required(tool) if _is_wanted(tool, request) else tool for tool in tools]
        return _Schemas(tools, request.model_settings.get("response_format"), given)
    if isinstance(wanted, ToolStrategy):
        return _Schemas([*tools, *_answer_tools(wanted.schema)], None, given)
    strict_tools = _strict_tools(ToolSet.of(tools))
    if isinstance(wanted, ProviderStrategy):
        return _Schemas([*strict_tools], wanted.to_model_kwargs()["response_format"], given)
    schema: Any = wanted.schema if isinstance(wanted, AutoStrategy) else wanted
    response_format = ProviderStrategy(schema=schema).to_model_kwargs()["response_format"]
    return _Schemas([*strict_tools, *_answer_tools(schema)], response_format, given)


def _is_wanted(tool: Any, request: types.ModelRequest[Any]) -> bool:
    """Tells whether the model must call a tool."""
    choice: Any = request.tool_choice
    if isinstance(choice, Mapping):
        choice = choice.get("function", choice)
        choice = choice.get("name") if isinstance(choice, Mapping) else None
    return isinstance(choice, str) and getattr(tool, "name", None) == choice


class _Same:
    """An object as a key of a cache, which is the same as no other one."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value


def _answer_tools(schema: Any) -> tuple[Any, ...]:
    """Returns the tools by which a model gives its structured answer."""
    return _answer_tools_of(_Same(schema))


# The same objects each time, so that the tools of a call are read once.
@lru_cache(maxsize=32)
def _answer_tools_of(schema: _Same) -> tuple[Any, ...]:
    return tuple(
        {
            "name": spec.name,
            "description": spec.description,
            "parameters": spec.json_schema,
            "extras": OwnTool.REQUIRED.mark,
        }
        for spec in ToolStrategy(schema=schema.value).schema_specs
    )


def _required(tool: Any) -> Any:
    """Returns the schema of a tool that is bound in any case."""
    return _required_of(_Same(tool))


@lru_cache(maxsize=32)
def _required_of(tool: _Same) -> Any:
    return _schema_of(tool.value, strict=None, kind=OwnTool.REQUIRED)


@lru_cache(maxsize=32)
def _strict_tools(known: ToolSet) -> tuple[Any, ...]:
    """Returns tools as OpenAI's models bind them beside a response format: their longest form."""
    return tuple(
        _schema_of(tool.given, strict=True, kind=own_kind(tool.given)) for tool in known.tools
    )


def _schema_of(tool: Any, *, strict: bool | None, kind: OwnTool | None) -> Any:
    """Returns the schema of a tool as it is bound, with what stands beside it."""
    try:
        schema = convert_to_openai_tool(tool, strict=strict)
    except Exception:  # noqa: BLE001 - a tool that only its provider knows is sent as it is
        return tool
    extras = {**(getattr(tool, "extras", None) or {}), **(kind.mark if kind else {})}
    return {**schema, "extras": extras} if extras else schema


def _answers_unreadable(message: BaseMessage, call: BaseMessage) -> bool:
    """Tells whether a message answers one of the calls of another that could not be read."""
    if not isinstance(message, ToolMessage) or not isinstance(call, AIMessage):
        return False
    return message.tool_call_id in [unreadable["id"] for unreadable in call.invalid_tool_calls]


def _is_stand_in(message: BaseMessage, history: Sequence[BaseMessage]) -> bool:
    """Tells whether a message stands in for a result in the history, for this request alone."""
    if message.id is not None or not isinstance(message, ToolMessage):
        return False
    return any(message.tool_call_id in call_ids(earlier) for earlier in history)


def _positions_in_state(
    stored: Sequence[BaseMessage], requested: Sequence[BaseMessage]
) -> list[int | None]:
    """Returns the position in the state of each message of a request; None for an added one."""
    keys = [message.id or fingerprint(message) for message in stored]
    wanted = [message.id or fingerprint(message) for message in requested]
    if _stand_where_they_stood(wanted, keys):
        return list(range(len(keys)))
    positions: defaultdict[str, deque[int]] = defaultdict(deque)
    for position, key in enumerate(keys):
        positions[key].append(position)
    found: list[int | None] = []
    for key in wanted:
        queue = positions[key]
        found.append(queue.popleft() if queue else None)
    return found


def _stand_where_they_stood(wanted: Sequence[str], stored: Sequence[str]) -> bool:
    """Tells whether a request has all messages of the state in their places, changed at most.

    Args:
        wanted: The keys of the messages of the request.
        stored: Those of the messages of the state.
    """
    if len(wanted) != len(stored):
        return False
    changed = {key for key, own in zip(wanted, stored, strict=True) if key != own}
    return changed.isdisjoint(stored)
