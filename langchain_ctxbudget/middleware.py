"""`ContextBudgetMiddleware`: what a LangChain agent's model sees, within its budget; needs the extra `agents`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired, Unpack

from langchain.agents.middleware.types import (
    AgentMiddleware,
    AgentState,
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
    OmitFromInput,
    PrivateStateAttr,
)
from langchain.agents.structured_output import AutoStrategy, ProviderStrategy, ToolStrategy
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage, convert_to_messages
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.channels.untracked_value import UntrackedValue
from langgraph.config import get_config
from langgraph.runtime import Runtime
from langgraph.types import Command

from langchain_ctxbudget.callbacks import observed_elsewhere
from langchain_ctxbudget.core.cache_markers import EPHEMERAL
from langchain_ctxbudget.core.calls import call_ids
from langchain_ctxbudget.core.messages import (
    flattened,
    instruction,
    marks_of_instructions,
    model_of,
    split_instructions,
)
from langchain_ctxbudget.core.turns import split_turn
from langchain_ctxbudget.draft import Draft
from langchain_ctxbudget.engine import Engine
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.flow import Flow, adrive, drive
from langchain_ctxbudget.opening import Request
from langchain_ctxbudget.pipeline import ContextPipeline
from langchain_ctxbudget.pipeline_options import PipelineOptions, pipeline_of
from langchain_ctxbudget.progress import progress
from langchain_ctxbudget.retrieval.quotes import has_recall_tool
from langchain_ctxbudget.runs import run_of
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.steps import STEPS
from langchain_ctxbudget.tools import create_recall_tool
from langchain_ctxbudget.tracing import described

NOT_FOLLOWED = (
    "other middleware changed messages before the current turn in the request only: they are shown as the agent's "
    "state has them, so change them there"
)


class ContextBudgetState(AgentState[Any]):
    """What the middleware keeps in an agent's state beside the messages."""

    ctxbudget_turn: NotRequired[Annotated[dict[str, Any], PrivateStateAttr]]
    """The context block of the current turn, checkpointed: while the agent loops over tools it stays the same."""
    ctxbudget_report: NotRequired[Annotated[dict[str, Any], UntrackedValue, OmitFromInput]]
    """The account of the last model call's prompt, `ContextReport.to_dict()`; not checkpointed."""


class ContextBudgetMiddleware(AgentMiddleware[ContextBudgetState, Any, Any]):
    """Decides for every model call of an agent what its model sees; the agent's own messages stay as they are.

    The system prompt, the tools and the response format are counted as they are sent. Window and tokenizer are those of
    the model that answers, also where other middleware has chosen another one; a model that does not tell them is
    counted as the pipeline counts. Messages before the current turn are copied to the pipeline's store, so that they
    can be compacted, retrieved, and looked up with the recall tool, which the agent gets. What a provider reports as
    used corrects the counts.

    The conversation is the run's `thread_id`, the user its `user_id` (both `configurable`), else the server's
    authenticated user, else `default_user`; `RunContext` as runtime context outweighs both. An agent that is called in
    a tool of another one runs in its thread: give it a `RunContext` with a `conversation_id` of its own.

    Put it last in the list: what middleware before it adds to system prompt, tools and messages is then counted. Added
    messages are sent with the current turn. Messages before that are shown as the agent's state has them: what is to
    change them, such as redaction, must change the state; where it changes the request alone the report says so. Behind
    it belongs only what marks or repeats a finished request (prompt caching, retries). Middleware that has another
    model answer (`ModelFallbackMiddleware`) stands before it, so that the other model gets a prompt of its own. It
    takes the place of `SummarizationMiddleware`, which deletes from the state what it summarizes.

    Example:
        >>> from langchain.agents import create_agent
        >>> from langchain_core.language_models import FakeListChatModel
        >>> from langgraph.checkpoint.memory import InMemorySaver
        >>> budget = ContextBudgetMiddleware({"max_context_tokens": 4_000}, default_user="ada", recall_tool=False)
        >>> agent = create_agent(
        ...     FakeListChatModel(responses=["Hi!"]), middleware=[budget], checkpointer=InMemorySaver()
        ... )
        >>> state = agent.invoke({"messages": [("human", "Hello")]}, {"configurable": {"thread_id": "c1"}})
        >>> state["messages"][-1].content, state["ctxbudget_report"]["budget_tokens"]
        ('Hi!', 4000)
    """

    state_schema = ContextBudgetState

    def __init__(
        self,
        pipeline: ContextPipeline | ContextSettings | Mapping[str, Any] | None = None,
        *,
        default_user: str | None = None,
        recall_tool: bool = True,
        runtime_store: bool = True,
        agent: str | None = None,
        **options: Unpack[PipelineOptions],
    ) -> None:
        """Set up; nothing is read, written or loaded before it is needed.

        Args:
            pipeline: what assembles, or the settings of one that is made here. Its system prompt stands in front of
                the agent's.
            default_user: the user where the run names none; without one that is an error.
            recall_tool: whether the agent gets a tool to look up what its prompt no longer shows.
            runtime_store: whether conversations are kept in the store that the agent was created with, where there is
                one, and not in the pipeline's.
            agent: the agent's name where several work in one thread, for instance one that is another one's tool: each
                has a conversation of its own then.
            options: what else `ContextPipeline` takes, where no pipeline is given.

        Raises:
            InvalidSettingsError: a pipeline and options, or an option that there is not.
        """
        super().__init__()
        self.pipeline = pipeline_of(pipeline, options)
        self._default_user, self._runtime_store, self._agent = default_user, runtime_store, agent
        self.tools = (
            [create_recall_tool(self.pipeline, default_user=default_user, runtime_store=runtime_store, agent=agent)]
            if recall_tool
            else []
        )

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ExtendedModelResponse[Any]:
        """Have the model see what fits its budget."""
        engine = self._engine_for(request)
        draft = drive(self._shape(engine, request))
        with described(_context(draft).report), observed_elsewhere():
            response = handler(_shaped(request, draft))
        return _finished(engine, draft, response)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ExtendedModelResponse[Any]:
        """Have the model see what fits its budget; see `wrap_model_call`."""
        engine = self._engine_for(request)
        draft = await adrive(self._shape(engine, request))
        with described(_context(draft).report), observed_elsewhere():
            response = await handler(_shaped(request, draft))
        return _finished(engine, draft, response)

    def after_agent(self, state: ContextBudgetState, runtime: Runtime[Any]) -> None:
        """Store the turn that has ended; where that fails, the next turn does it."""
        drive(self._store(state, runtime))

    async def aafter_agent(self, state: ContextBudgetState, runtime: Runtime[Any]) -> None:
        """Store the turn that has ended; see `after_agent`."""
        await adrive(self._store(state, runtime))

    def _shape(self, engine: Engine, request: ModelRequest[Any]) -> Flow[Draft]:
        """The prompt of one model call."""
        run = run_of(get_config(), self._default_user, request.runtime, agent=self._agent)
        asked = _Asked.of(request)
        tools, response_format = _schemas(request)
        draft = yield from engine.answer(
            run.scope,
            asked.history,
            asked.turn,
            Request(
                tools=tools,
                response_format=response_format,
                settings=run.settings,
                persona_id=run.persona_id,
                block=request.state.get("ctxbudget_turn"),
                failures=[*asked.failures, *self._replaced(request.tools)],
            ),
        )
        for name in STEPS if request.runtime else ():
            request.runtime.stream_writer({"ctxbudget": {"step": name, **progress(name, draft)}})
        return draft

    def _replaced(self, tools: Sequence[Any]) -> list[str]:
        """What a report says where a tool of the agent's has the name of the recall tool, and so takes its place."""
        names = () if has_recall_tool(tools) else {tool.name for tool in self.tools}
        return [
            f"the agent has a tool {tool.name!r} of its own, which takes the place of the recall tool: give it another "
            f"name, or set recall_tool=False"
            for tool in tools
            if getattr(tool, "name", None) in names
        ]

    def _store(self, state: ContextBudgetState, runtime: Runtime[Any]) -> Flow[None]:
        run = run_of(get_config(), self._default_user, runtime, agent=self._agent)
        engine = self.pipeline.engine.over(run.store if self._runtime_store else None)
        yield from engine.keep(run.scope, state["messages"])

    def _engine_for(self, request: ModelRequest[Any]) -> Engine:
        """The engine for the model that answers, over the run's store."""
        store = getattr(request.runtime, "store", None) if self._runtime_store else None
        return self.pipeline.engine.over(store).for_model(request.model)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is asked of the model: the history that the agent keeps, and the turn that is answered."""

    history: list[BaseMessage]
    """With the request's instructions in front."""
    turn: list[BaseMessage]
    failures: list[str]

    @classmethod
    def of(cls, request: ModelRequest[Any]) -> _Asked:
        """Read a request whose messages other middleware may have changed.

        History is what the agent's state has before the current turn: only that is kept, and can be compacted and
        found again. Everything else that the request has is answered as the turn; system messages at its beginning are
        instructions.
        """
        given = convert_to_messages(request.messages)
        kept = list(request.state.get("messages") or given)
        history, _ = split_turn(kept)
        known = {message.id for message in history}
        turn = [message for message in given if message.id not in known and not _repairs(message, history)]
        if not turn:
            history, turn = split_turn(given)
        failures = [] if [m for m in given if m.id in known] == history else [NOT_FOLLOWED]
        system = [] if request.system_message is None else [SystemMessage(instruction(request.system_message))]
        if request.system_message is not None and not _in_texts(request.system_message):
            failures += flattened([request.system_message])
        notes, turn = split_instructions(turn)
        return cls([*system, *map(SystemMessage, notes), *history], turn, failures)


def _repairs(message: BaseMessage, history: Sequence[BaseMessage]) -> bool:
    """Whether a message is the agent's own answer to a call in its history that could not be read."""
    if message.id is not None or not isinstance(message, ToolMessage):
        return False
    return any(message.tool_call_id in call_ids(said) for said in history)


def _context(draft: Draft) -> Any:  # noqa: ANN401
    assert draft.context is not None  # noqa: S101 - the last step sets it
    return draft.context


def _shaped(request: ModelRequest[Any], draft: Draft) -> ModelRequest[Any]:
    """The request with the messages of a prompt."""
    messages: list[Any] = list(_context(draft).messages)
    system = messages.pop(0) if messages and isinstance(messages[0], SystemMessage) else None
    return request.override(messages=messages, system_message=system and _in_blocks(system, request.system_message))


def _in_texts(message: SystemMessage) -> bool:
    """Whether a system message is text and nothing else, in blocks or not."""
    return isinstance(message.content, str) or all(
        isinstance(block, str) or block.get("type") == "text" for block in message.content
    )


def _in_blocks(system: SystemMessage, given: SystemMessage | None) -> SystemMessage:
    """A prompt's system message with the agent's own blocks in it, where they tell a provider what to cache."""
    if given is None or not marks_of_instructions([given]) or not _in_texts(given) or not instruction(given):
        return system
    ends = [text.strip("\n") for text in system.text.split(instruction(given), 1)]
    before, after = ([{"type": "text", "text": text}] if text else [] for text in ends)
    blocks = [*before, *given.content, *after]
    if not isinstance(system.content, str):  # it is marked itself
        last = blocks[-1] if isinstance(blocks[-1], dict) else {"type": "text", "text": blocks[-1]}
        blocks[-1] = {**last, "cache_control": dict(EPHEMERAL)}
    return SystemMessage(blocks)


def _finished(engine: Engine, draft: Draft, response: ModelResponse[Any] | AIMessage) -> ExtendedModelResponse[Any]:
    """The response, with report and context block for the agent's state; counts are corrected by its usage."""
    whole = ModelResponse(result=[response]) if isinstance(response, AIMessage) else response
    report = _context(draft).report
    _observe(engine, whole.result, report)
    update: dict[str, Any] = {"ctxbudget_report": report.to_dict()}
    if draft.block is not None:
        update["ctxbudget_turn"] = draft.block.to_dict()
    return ExtendedModelResponse(model_response=whole, command=Command(update=update))


def _observe(engine: Engine, result: Sequence[BaseMessage], report: Any) -> None:  # noqa: ANN401
    answer = next((m for m in result if isinstance(m, AIMessage) and m.usage_metadata), None)
    if answer is None or not answer.usage_metadata:
        return
    try:
        engine.observe(answer.usage_metadata, report, model_of(answer))
    except InputError:  # of several calls, or of another prompt: it corrects nothing
        return


def _schemas(request: ModelRequest[Any]) -> tuple[list[Any], object]:
    """The tools and the response format as the agent will bind them.

    Whether a schema goes as a format of the provider's or as a tool is the agent's decision at the call; where it is
    open, both are counted.
    """
    tools: list[Any] = list(request.tools)
    wanted: Any = request.response_format
    if wanted is None:
        return tools, request.model_settings.get("response_format")
    if not isinstance(wanted, ToolStrategy | ProviderStrategy | AutoStrategy):
        wanted = AutoStrategy(schema=wanted)
    answers: list[Any] = []
    if isinstance(wanted, ToolStrategy | AutoStrategy):
        strategy = wanted if isinstance(wanted, ToolStrategy) else ToolStrategy(schema=wanted.schema)
        answers = [
            {"name": spec.name, "description": spec.description, "parameters": spec.json_schema}
            for spec in strategy.schema_specs
        ]
    if isinstance(wanted, ToolStrategy):
        return [*tools, *answers], None
    provider = wanted if isinstance(wanted, ProviderStrategy) else ProviderStrategy(schema=wanted.schema)
    return [*map(_strict, tools), *answers], provider.to_model_kwargs()["response_format"]


def _strict(tool: Any) -> Any:  # noqa: ANN401
    """A tool as OpenAI's models bind it beside a response format: its longest form."""
    try:
        return convert_to_openai_tool(tool, strict=True)
    except Exception:  # noqa: BLE001 - a tool that only its provider knows is sent as it is
        return tool
