"""Runs of LangGraph and LangChain: whose they are, and a pipeline as a step of a chain."""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage, MessageLikeRepresentation, convert_to_messages
from langchain_core.runnables.config import RunnableConfig
from langgraph.store.base import BaseStore
from pydantic import BaseModel

from langchain_ctxbudget import errors
from langchain_ctxbudget.flow import Flow, adrive, drive
from langchain_ctxbudget.messages import (
    checked_messages,
    current_turn,
    digest,
    fingerprint,
    is_one_message,
    split_instructions,
    split_turn,
    unsent_extras_of,
)
from langchain_ctxbudget.pipeline.engine import Engine
from langchain_ctxbudget.pipeline.prompter import Prompter
from langchain_ctxbudget.prompt import Request
from langchain_ctxbudget.providers import system_mark_of
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores import Scope, SharedThread, require_id

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable

_UNSAID: Any = object()
_VALUES = (bool, float, BaseModel, Mapping, list, tuple, set, bytes)
"""Kinds of objects that are no ids, though they have a text."""


@dataclass(kw_only=True, init=False)
class RunContext:
    """The user and the conversation of a run, as LangGraph's runtime context.

    They stand there instead of in `configurable`.

    An application's own context class may inherit from it, as a plain `@dataclass`, or have fields
    of these names; a mapping counts as well. `settings`, which lie over all others, are read of
    this class alone. A context that names no user, or says that it is None, is never the default
    user's. `conversation_id` is for where it is not the thread's.
    """

    user_id: str | None = None
    conversation_id: str | None = None
    persona_id: str | None = None
    device_id: str | None = None
    settings: ContextSettings | Mapping[str, Any] | None = None

    def __init__(
        self,
        *,
        user_id: str | None = _UNSAID,
        conversation_id: str | None = None,
        persona_id: str | None = None,
        device_id: str | None = None,
        settings: ContextSettings | Mapping[str, Any] | None = None,
        **others: object,
    ) -> None:
        if user_id is _UNSAID:
            _refuse_misspelt_user(others)
            self.user_id = None
        else:  # a user who is said to be None is nobody, and never the default user
            self.user_id = "" if user_id is None else user_id
        self.conversation_id = conversation_id
        self.persona_id = persona_id
        self.device_id = device_id
        self.settings = settings
        vars(self).update(others)  # LangGraph Server gives all of `configurable`


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The parts of a LangGraph or LangChain run that a prompt needs."""

    scope: Scope
    thread: str | None = None
    """The id of the thread whose state a run has, whichever conversation it is kept as; None where
    it has no thread."""
    persona_id: str | None = None
    device_id: str | None = None
    settings: ContextSettings | Mapping[str, Any] | None = None
    store: BaseStore | None = None

    def under(self, settings: ContextSettings) -> "Run":
        """Returns the run as a pipeline of these settings keeps it.

        Under its thread, where people share threads.
        """
        if settings.on_foreign_thread != "share" or self.thread is None:
            return self
        return replace(self, scope=Scope(SharedThread.of(self.thread), self.scope.conversation_id))

    def request(
        self,
        config: RunnableConfig,
        request_of_all: Request,
        state: Mapping[str, Any] | None,
        failures: Sequence[str] = (),
    ) -> Request:
        """Returns the run's request, on top of what every run asks for; the state is an agent's."""
        return replace(
            request_of_all,
            settings=self.settings,
            persona_id=self.persona_id,
            device_id=self.device_id,
            background=(state or {}).get("ctxbudget_turn"),
            thread=self.thread,
            task=is_task(config),
            failures=failures,
        )


def run_of(
    config: RunnableConfig,
    default_user: str | None,
    runtime: object = None,
    *,
    agent: str | None = None,
    messages: Sequence[MessageLikeRepresentation] | None = None,
    only_user: str | None = None,
) -> Run:
    """Reads a run: whose it is, and which conversation.

    The user is that of the runtime context, of whatever class it is, else
    `configurable["user_id"]`, else the server's authenticated user, else `only_user`, else
    `default_user`, where no context is the application's own. The conversation is that of the
    context, else `thread_id`, else `session_id`, each `agent` with its own; a run without one is
    told by its first messages. Another user than the server's, or than `only_user`, is a
    `ForeignUserError`.
    """
    configurable = config.get("configurable") or {}
    context = getattr(runtime, "context", None)
    user = _user_of(configurable, context, runtime, default_user, only_user)
    thread = _thread_of(configurable, context)
    conversation = _named("conversation_id", context)
    if conversation is None:
        conversation = thread
    elif thread is None:
        thread = conversation

    if conversation is not None:
        key = _text(conversation)
    elif messages is not None:
        key = _id_of_first_messages(messages)
    else:
        raise errors.MissingScopeError(
            'The run names no conversation: pass config={"configurable": {"thread_id": ...}}'
        )
    if agent:
        key = f"{key} (agent {agent})"
    return Run(
        scope=Scope(user, key, is_kept=conversation is not None),
        thread=None if thread is None else _text(thread),
        persona_id=_named("persona_id", context, configurable),
        device_id=_named("device_id", context, configurable),
        settings=_settings_of(configurable, context),
        store=getattr(runtime, "store", None),
    )


def _thread_of(configurable: Mapping[str, Any], context: object) -> object:
    """Returns the id of a run's thread; None where it has none."""
    for source in (configurable, context):
        for name in ("thread_id", "session_id"):
            thread: object = _named(name, source)
            if thread is not None:
                return thread
    return None


def _settings_of(
    configurable: Mapping[str, Any], context: object
) -> ContextSettings | Mapping[str, Any] | None:
    """Returns the settings of a run: those of a context of ours, else those of `configurable`."""
    if isinstance(context, ContextSettings):
        return context
    if isinstance(context, RunContext) and context.settings is not None:
        return context.settings
    return configurable.get("context_settings")


def require_default_user(default_user: str | None) -> None:
    """Raises `MissingScopeError` for a default user whose id is no text, or an empty one."""
    if default_user is not None:
        require_id("default_user", default_user)


def current_runtime() -> object:
    """Returns the runtime of the current LangGraph run; None outside of one."""
    from langgraph.runtime import get_runtime  # noqa: PLC0415 - not needed where nothing runs

    try:
        return get_runtime()
    except (RuntimeError, KeyError):
        return None


def is_task(config: RunnableConfig) -> bool:
    """Returns True if a tool of another agent runs this one: its input is its whole task."""
    namespace = str(config.get("configurable", {}).get("checkpoint_ns") or "")
    return any(part.startswith("tools:") for part in namespace.split("|")[:-1])


def _user_of(
    configurable: Mapping[str, Any],
    context: object,
    runtime: object,
    default_user: str | None,
    only_user: str | None,
) -> str:
    """Returns the user of a run; see `run_of`."""
    named = _named("user_id", context, configurable)
    signed_in = _signed_in_user(configurable, runtime)
    if configurable.get("assistant_id") or configurable.get("graph_id"):
        _require_same_user(named, signed_in)

    user = _first_given(named, signed_in, only_user)
    if user is None:
        _refuse_misspelt_user(configurable)
        _refuse_misspelt_user(context if isinstance(context, Mapping) else ())
    if user is None and _says_no_more(context, configurable):
        user = default_user
    if _is_missing(user):
        raise _no_user(context, default_user)
    if only_user is not None and _text(user) != only_user:
        raise errors.ForeignUserError(
            f"The retriever is that of the user {only_user!r}, but the run is that of "
            f"{str(user)!r}. Leave user_id out, and each run reads what is its own user's"
        )
    return _text(user)


def _require_same_user(named: object, signed_in: object) -> None:
    """Raises `ForeignUserError` where a server's run names another user than the signed in one."""
    if named is None or signed_in is None or str(named) == str(signed_in):
        return
    raise errors.ForeignUserError(
        f"The run is that of the authenticated user {str(signed_in)!r}, but names the user "
        f"{str(named)!r}. Leave user_id out; a service that works for others authenticates as "
        "them, in the server's own handler"
    )


def _signed_in_user(configurable: Mapping[str, Any], runtime: object) -> object:
    """Returns the id of the user whom the server has authenticated; None where there is none."""
    server_info = getattr(runtime, "server_info", None)
    server_user = configurable.get("langgraph_auth_user") or getattr(server_info, "user", None)
    identity: object = _named("identity", server_user)
    return identity


def _first_given(*values: object) -> object:
    for value in values:
        if value is not None:
            return value
    return None


def _no_user(context: object, default_user: str | None) -> errors.MissingScopeError:
    """Returns the error for a run that names no user, with the ways to name one."""
    ways = 'pass config={"configurable": {"user_id": ...}}'
    if context is not None and default_user is not None:
        kind = type(context).__name__
        return errors.MissingScopeError(
            f"The run names no user: {ways}, or give its context ({kind}) a user_id: it may be "
            "anybody's"
        )
    return errors.MissingScopeError(
        'The run names no user: for a single user, add default_user="me", as in '
        'ContextBudgetMiddleware(default_user="me"); '
        f"for several, {ways} or context=RunContext(user_id=...)"
    )


def _refuse_misspelt_user(names: Iterable[object]) -> None:
    for name in names:
        if str(name).casefold() in ("userid", "user-id"):
            raise errors.InvalidSettingsError(
                f"A run names no user by {name!r} (is 'user_id' meant?)"
            )


def _says_no_more(context: object, configurable: Mapping[str, Any]) -> bool:
    """Returns True where a context is none of the application's own.

    Absent, empty, or a copy of `configurable`.
    """
    if context is None or isinstance(context, ContextSettings):
        return True
    if not isinstance(context, Mapping | RunContext):
        return False
    values: Mapping[str, object] = context if isinstance(context, Mapping) else _given_in(context)
    return all(key in configurable and configurable[key] == value for key, value in values.items())


def _given_in(context: RunContext) -> dict[str, object]:
    return {name: value for name, value in vars(context).items() if value is not None}


def _id_of_first_messages(messages: Sequence[MessageLikeRepresentation]) -> str:
    """Returns an id for a run without a thread.

    It stays while an agent loops over tools.
    """
    history, turn = split_turn(convert_to_messages(messages))
    lines = [f"{message.id} {fingerprint(message)}" for message in (*history, *turn[:1])]
    text = "\n".join(lines)
    return f"run without a thread {digest(text, 8).hex()}"


def _named(name: str, *sources: object) -> Any:  # noqa: ANN401 - ids of any kind
    """Returns the id of the first source that has one.

    An empty text is none, and a blank one is an id as any other.
    """
    for source in sources:
        read = source.get if isinstance(source, Mapping) else partial(getattr, source)
        value = read(name, None)
        if not _is_missing(value):
            return value
    return None


def _is_missing(key: object) -> bool:
    return key is None or (isinstance(key, str) and not key)


def _text(key: object) -> str:
    """Returns an id as text.

    An object whose text is not the same in another run is an `InvalidSettingsError`.
    """
    is_value = isinstance(key, _VALUES) or is_dataclass(key)
    if is_value or callable(key) or _has_address_as_text(key):
        raise errors.InvalidSettingsError(f"user_id and thread_id must be text, not {key!r}")
    return str(key)


def _has_address_as_text(key: object) -> bool:
    """Returns True for an object whose text is its place in memory, as that of a plain class."""
    kind = type(key)
    return kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__


# A step of a chain


def context_runnable(
    engine: Engine,
    default_user: str | None,
    tools: Sequence[Any],
    response_format: object,
    *,
    runtime_store: bool,
) -> "Runnable[Any, list[BaseMessage]]":
    """Returns a runnable from the turn to answer to the messages to send.

    See `ContextPipeline.as_runnable`.
    """
    require_default_user(default_user)
    request_of_all = Request(tools=tools, response_format=response_format)

    def flow(step_input: object, config: RunnableConfig) -> Flow[list[BaseMessage]]:
        if isinstance(step_input, Mapping) and "role" not in step_input:
            return of_state(step_input, config)
        return of_turn(step_input, config)

    def of_state(state: Mapping[str, Any], config: RunnableConfig) -> Flow[list[BaseMessage]]:
        messages = _messages_of_state(state)
        run = run_of(config, default_user, current_runtime(), messages=messages)
        run = run.under(engine.settings)
        request = run.request(config, request_of_all, state, unsent_extras_of(messages))
        history, turn = split_turn(messages)
        session = yield from prompter_of(run).answer(history, turn, request)
        return session.finished.messages

    def of_turn(turn_input: object, config: RunnableConfig) -> Flow[list[BaseMessage]]:
        # A turn alone stands behind what the application has stored of its user: even where people
        # share threads, it is kept as that user's.
        system, turn = _turn_of(turn_input)
        instructions, _ = split_instructions(system)
        run = run_of(config, default_user, current_runtime(), messages=turn)
        request_of_turn = replace(
            request_of_all, instructions=instructions, system_mark=system_mark_of(system)
        )
        request = run.request(config, request_of_turn, None, unsent_extras_of(system))
        context = yield from prompter_of(run).assemble(turn, request)
        return context.messages

    def prompter_of(run: Run) -> Prompter:
        return Prompter(engine.over_store(run.store if runtime_store else None), run.scope)

    async def ainvoke(step_input: object, config: RunnableConfig) -> list[BaseMessage]:
        return await adrive(flow(step_input, config))

    from langchain_core.runnables import RunnableLambda  # noqa: PLC0415 - takes 0.2 s

    asynchronous: Callable[..., Coroutine[Any, Any, list[BaseMessage]]] = ainvoke
    step = RunnableLambda(
        lambda step_input, config: drive(flow(step_input, config)),
        asynchronous,
        name="context_budget",
    )
    return step.with_config(run_name="context_budget", tags=["ctxbudget"])


def _messages_of_state(state: Mapping[str, Any]) -> list[BaseMessage]:
    if "messages" not in state:
        raise errors.InputError(
            f"A mapping must have an agent's 'messages'; it has {sorted(state)}. To answer one of "
            "its values, put a step in front that picks it: itemgetter('input') | ..."
        )
    return checked_messages(state["messages"], "messages")


def _turn_of(step_input: Any) -> tuple[list[BaseMessage], list[BaseMessage]]:  # noqa: ANN401 - of a chain
    """Returns the system messages in front of a turn, and the turn."""
    if hasattr(step_input, "to_messages"):  # a prompt's value
        step_input = step_input.to_messages()
    if is_one_message(step_input) or not isinstance(step_input, Sequence):
        return [], current_turn(step_input)
    given = checked_messages(step_input, "messages")
    _, messages = split_instructions(given)
    system = given[: len(given) - len(messages)]
    history, turn = split_turn(messages)
    if history:
        raise errors.InputError(
            f"{len(history)} messages stand before the current turn, and the pipeline adds the "
            'stored conversation. Leave them out, or give {"messages": [...]}: then the stored '
            "conversation is made equal to them"
        )
    return system, current_turn(turn)
