"""`ContextBudgetMiddleware`: shows a LangChain agent's model what fits its budget.

Needs the extra `agents`.
"""

from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, NotRequired

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    SystemMessage,
    ToolMessage,
    convert_to_messages,
)
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.channels.untracked_value import UntrackedValue
from langgraph.config import get_config
from langgraph.runtime import Runtime
from langgraph.types import Command

from langchain_ctxbudget import messages
from langchain_ctxbudget.errors import InputError, checks_names
from langchain_ctxbudget.flow import Flow, adrive, drive, twins
from langchain_ctxbudget.integrations.callbacks import observed_elsewhere
from langchain_ctxbudget.integrations.options import (
    ReportInState,
    newest,
    pipeline_of,
    require_report,
    state_update,
)
from langchain_ctxbudget.integrations.tools import create_compaction_tool, create_recall_tool
from langchain_ctxbudget.messages import (
    call_ids,
    fingerprint,
    plainly_same,
    split_instructions,
    split_turn,
)
from langchain_ctxbudget.pipeline import (
    ContextPipeline,
    Engine,
    Run,
    Session,
    is_task,
    require_default_user,
    run_of,
)
from langchain_ctxbudget.prompt import Request
from langchain_ctxbudget.retrieval import recall_tool
from langchain_ctxbudget.settings import ContextSettings

try:
    from langchain.agents.middleware import types
    from langchain.agents.structured_output import AutoStrategy, ProviderStrategy, ToolStrategy
except ImportError as error:  # pragma: no cover - the tests have it
    raise ImportError(
        "The middleware needs langchain: pip install 'langchain-ctxbudget[agents]'"
    ) from error

NOT_FOLLOWED = (
    "other middleware changed messages before the current turn in the request only: they are shown as the agent's "
    "state has them, so change them there"
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

    The agent's own messages stay as they are.

    Everything is counted as it is sent, with the tokenizer and the window of the model that
    answers; usage that it reports corrects the counts. Messages before the current turn are copied
    to the pipeline's store, so that they can be compacted, retrieved, and looked up with the recall
    tool.

    User and conversation are the run's (`user_id`, `thread_id`, or a `RunContext`); without a
    thread a run is a conversation of its own, in memory only. An agent in a tool of another one
    needs a name (`agent`).

    Put it last in the list, so that additions of other middleware are counted; behind it belongs
    only what marks or repeats a finished request (prompt caching, retries). Middleware that changes
    messages before the current turn must change the state. It takes the place of
    `SummarizationMiddleware`, which deletes from the state.

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

    @checks_names(ContextSettings.model_fields)
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
            pipeline: the pipeline, or the settings of one that is made here; its system prompt stands in front of the
                agent's.
            default_user: the user where neither run nor context names one; without one that is an error.
            recall_tool: True gives the agent a tool to look up messages that its prompt no longer shows.
            compaction_tool: True gives it one to have older messages compacted now, for instance between two tasks.
            runtime_store: as for `build_context_graph`.
            agent: as for `build_context_graph`.
            report: what the agent's state has of its last report, as `ctxbudget_report`: `"none"`, its `"numbers"`, or
                also the `"texts"` that it quotes.
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
        self.tools = [create_recall_tool(self.pipeline, **options)] if recall_tool else []
        self.tools += [create_compaction_tool(self.pipeline, **options)] if compaction_tool else []

    def wrap_model_call(
        self,
        request: types.ModelRequest[Any],
        handler: Callable[[types.ModelRequest[Any]], types.ModelResponse[Any]],
    ) -> types.ExtendedModelResponse[Any]:
        """Calls the model with a prompt that fits its budget."""
        engine, session, shaped = drive(self._with_prompt(request))
        with observed_elsewhere():
            response = handler(shaped)
        return self._finished(engine, session, response)

    async def awrap_model_call(
        self,
        request: types.ModelRequest[Any],
        handler: Callable[[types.ModelRequest[Any]], Awaitable[types.ModelResponse[Any]]],
    ) -> types.ExtendedModelResponse[Any]:
        """Calls the model with a prompt that fits its budget; see `wrap_model_call`."""
        engine, session, shaped = await adrive(self._with_prompt(request))
        with observed_elsewhere():
            response = await handler(shaped)
        return self._finished(engine, session, response)

    def _with_prompt(
        self, request: types.ModelRequest[Any]
    ) -> Flow[tuple[Engine, Session, types.ModelRequest[Any]]]:
        """Assembles the prompt of one model call, for the model that answers."""
        request, failures = self._with_recall(request)
        history, turn, problems = _split_request(request)
        run, engine = self._run(request.runtime, request.state)
        engine = engine.for_model(request.model)
        tools, response_format = _schemas(request)
        asked = Request(tools=tools, response_format=response_format)
        wanted = run.request(get_config(), asked, request.state, [*problems, *failures])
        session = yield from engine.answer(run.scope, history, turn, wanted)
        messages: list[Any] = list(session.finished.messages)
        system = messages.pop(0) if messages and isinstance(messages[0], SystemMessage) else None
        return engine, session, request.override(messages=messages, system_message=system)

    def _finished(
        self, engine: Engine, session: Session, response: types.ModelResponse[Any] | AIMessage
    ) -> types.ExtendedModelResponse[Any]:
        """Returns the response with report and background for the agent's state.

        Its usage corrects the counts.
        """
        whole = (
            types.ModelResponse(result=[response]) if isinstance(response, AIMessage) else response
        )
        answer = next(
            (m for m in whole.result if isinstance(m, AIMessage) and m.usage_metadata), None
        )
        if answer is not None and answer.usage_metadata:
            with suppress(
                InputError
            ):  # usage of several calls, or of another prompt, corrects nothing
                engine.observe(answer, session.finished.report)
        update = state_update(session, self._report, "ctxbudget_report")
        return types.ExtendedModelResponse(model_response=whole, command=Command(update=update))

    def _after_agent(self, state: ContextBudgetState, runtime: Runtime[Any]) -> Flow[None]:
        """Stores the turn that has ended; where that fails, the next turn does it."""
        run, engine = self._run(runtime, state)
        if run.scope.is_kept:
            messages = convert_to_messages(state["messages"])
            task = is_task(get_config())
            yield from engine.workspace.copy_state(
                run.scope, messages, thread=run.thread, task=task
            )
        else:
            engine.workspace.open_conversations.drop(run.scope)

    after_agent, aafter_agent = twins(_after_agent)

    def _run(self, runtime: Runtime[Any] | None, state: Mapping[str, Any]) -> tuple[Run, Engine]:
        messages = state.get("messages") or ()
        run = run_of(
            get_config(), self._default_user, runtime, agent=self._agent, messages=messages
        )
        run = run.under(self.pipeline.settings)
        return run, self.pipeline.engine.over(run.store if self._runtime_store else None)

    def _with_recall(
        self, request: types.ModelRequest[Any]
    ) -> tuple[types.ModelRequest[Any], list[str]]:
        """Takes the recall tool from a model that binds none.

        Returns also what the report says of that.
        """
        if (
            not recall_tool(request.tools)
            or type(request.model).bind_tools is not BaseChatModel.bind_tools
        ):
            return request, []
        others = [tool for tool in request.tools if not recall_tool([tool])]
        return request.override(tools=others), [
            f"{type(request.model).__name__} cannot bind tools, so the agent has no recall tool: set recall_tool=False"
        ]


def _split_request(
    request: types.ModelRequest[Any],
) -> tuple[list[BaseMessage], list[BaseMessage], list[str]]:
    """Reads a request whose messages other middleware may have changed.

    Returns the history, instructions in front; the turn; and what is to be reported. The history is what the agent's
    state has before the current turn, with the agent's answers to calls in it that could not be read. Everything else
    in the request belongs to the turn; system messages at its beginning are instructions.
    """
    asked = request.messages
    state = request.state.get("messages") or request.messages
    kept = (
        list(state) if messages.WHOLE.issuperset(map(type, state)) else convert_to_messages(state)
    )
    before, turn = split_turn(kept)
    history = before
    followed = True
    if len(asked) != len(state) or not messages.same_beginning(asked, state):
        given = convert_to_messages(asked)
        seen: list[BaseMessage] = []
        turn = []
        answers: defaultdict[int, list[BaseMessage]] = defaultdict(list)
        last = len(before)
        for message, place in zip(given, _places_in_state(kept, given), strict=True):
            if place is not None:
                last = place
                (seen if place < len(before) else turn).append(message)
            elif last < len(before) and _answers_unreadable(message, before[last]):
                answers[last].append(message)  # the state gets it with the next one
            elif not _is_stand_in(message, before):
                turn.append(message)
        history = [it for place, message in enumerate(before) for it in (message, *answers[place])]
        followed = len(seen) == len(before) and all(map(plainly_same, seen, before))
        if not turn:
            history, turn = split_turn(given)
    failures = [] if followed else [NOT_FOLLOWED]
    instructions, turn = split_instructions(turn)
    if (system := request.system_message) is not None:
        failures += messages.flattened([system])
        instructions = [messages.instruction(system), *instructions]
    return [*map(SystemMessage, instructions), *history], turn, failures


def _schemas(request: types.ModelRequest[Any]) -> tuple[list[Any], object]:
    """Returns the tools and the response format as the agent will bind them.

    The agent decides at the call whether a schema goes as the provider's format or as a tool; both
    are counted then.
    """
    tools: list[Any] = list(request.tools)
    wanted: Any = request.response_format
    if wanted is None:
        return tools, request.model_settings.get("response_format")
    schema: Any = (
        wanted.schema
        if isinstance(wanted, ToolStrategy | ProviderStrategy | AutoStrategy)
        else wanted
    )
    answers: list[Any] = []
    if not isinstance(wanted, ProviderStrategy):
        specs = (
            wanted if isinstance(wanted, ToolStrategy) else ToolStrategy(schema=schema)
        ).schema_specs
        answers = [
            {"name": it.name, "description": it.description, "parameters": it.json_schema}
            for it in specs
        ]
    if isinstance(wanted, ToolStrategy):
        return [*tools, *answers], None
    provider = wanted if isinstance(wanted, ProviderStrategy) else ProviderStrategy(schema=schema)
    return [*map(_strict, tools), *answers], provider.to_model_kwargs()["response_format"]


def _strict(tool: Any) -> Any:
    """Returns a tool as OpenAI's models bind it beside a response format: its longest form."""
    try:
        return convert_to_openai_tool(tool, strict=True)
    except Exception:  # noqa: BLE001 - a tool that only its provider knows is sent as it is
        return tool


def _answers_unreadable(message: BaseMessage, call: BaseMessage) -> bool:
    unreadable = call.invalid_tool_calls if isinstance(call, AIMessage) else ()
    return isinstance(message, ToolMessage) and message.tool_call_id in [
        made["id"] for made in unreadable
    ]


def _is_stand_in(message: BaseMessage, history: Sequence[BaseMessage]) -> bool:
    """Returns True for a message that stands in for the result of a call in history, for this request alone."""
    ids = (call_id for said in history for call_id in call_ids(said))
    return message.id is None and isinstance(message, ToolMessage) and message.tool_call_id in ids


def _places_in_state(kept: Sequence[BaseMessage], given: Sequence[BaseMessage]) -> list[int | None]:
    """Returns the place in the state of each message of a request.

    None for one that other middleware added.
    """
    if len(given) == len(kept):  # changed, at most
        return list(range(len(kept)))
    places: defaultdict[str, deque[int]] = defaultdict(deque)
    for place, message in enumerate(kept):
        places[message.id or fingerprint(message)].append(place)
    found = (places[message.id or fingerprint(message)] for message in given)
    return [queue.popleft() if queue else None for queue in found]
