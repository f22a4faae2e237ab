"""Runs of LangGraph and LangChain: whose they are, and a pipeline as a step of a chain."""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage, MessageLikeRepresentation, convert_to_messages
from langchain_core.runnables.config import RunnableConfig
from langgraph.store.base import BaseStore
from pydantic import BaseModel

from langchain_ctxbudget import errors
from langchain_ctxbudget.flow import Flow, adrive, drive
from langchain_ctxbudget.messages import (
    checked,
    current_turn,
    digest,
    fingerprint,
    flattened,
    split_instructions,
    split_turn,
)
from langchain_ctxbudget.pipeline.engine import Engine
from langchain_ctxbudget.prompt import Request
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores import Scope, SharedThread, require_id

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable

_UNSAID: Any = object()


@dataclass(kw_only=True, init=False)
class RunContext:
    """The user and the conversation of a run, as LangGraph's runtime context instead of in `configurable`.

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
        self.user_id = None if user_id is _UNSAID else "" if user_id is None else user_id
        if user_id is _UNSAID:
            _refuse_misspelt_user(others)
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
        asked: Request,
        state: Mapping[str, Any] | None,
        failures: Sequence[str] = (),
    ) -> Request:
        """Returns the run's request, on top of what every run asks for; the state is an agent's."""
        return replace(
            asked,
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
    thread = None
    for source, name in product((configurable, context), ("thread_id", "session_id")):
        thread = _said(name, source) if thread is None else thread
    conversation = _said("conversation_id", context)
    if conversation is None:
        conversation = thread
    elif thread is None:
        thread = conversation
    if conversation is None and messages is None:
        raise errors.MissingScopeError(
            'The run names no conversation: pass config={"configurable": {"thread_id": ...}}'
        )
    key = _own_id(messages or ()) if conversation is None else _text(conversation)
    settings = (
        context if isinstance(context, ContextSettings) else getattr(context, "settings", None)
    )
    ours = isinstance(context, RunContext | ContextSettings) and settings is not None
    return Run(
        scope=Scope(
            user, f"{key} (agent {agent})" if agent else key, is_kept=conversation is not None
        ),
        thread=None if thread is None else _text(thread),
        persona_id=_said("persona_id", context, configurable),
        device_id=_said("device_id", context, configurable),
        settings=settings if ours else configurable.get("context_settings"),
        store=getattr(runtime, "store", None),
    )


def require_default_user(default_user: str | None) -> None:
    """Raises `MissingScopeError` for a default user who is given, and is no text or an empty one."""
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
    """Returns True if a tool of another agent runs this one, so that its input is its whole task."""
    namespace = str(config.get("configurable", {}).get("checkpoint_ns") or "")
    return any(part.startswith("tools:") for part in namespace.split("|")[:-1])


def _user_of(
    configurable: Mapping[str, Any],
    context: object,
    runtime: object,
    default_user: str | None,
    only_user: str | None,
) -> str:
    named = _said("user_id", context, configurable)
    server = configurable.get("langgraph_auth_user") or getattr(
        getattr(runtime, "server_info", None), "user", None
    )
    signed_in = _said("identity", server)
    served = configurable.get("assistant_id") or configurable.get("graph_id")
    if served and None not in (named, signed_in) and str(named) != str(signed_in):
        raise errors.ForeignUserError(
            f"The run is that of the authenticated user {str(signed_in)!r}, but names the user {str(named)!r}. Leave "
            f"user_id out; a service that works for others authenticates as them, in the server's own handler"
        )
    user = next((one for one in (named, signed_in, only_user) if one is not None), None)
    if user is None and isinstance(context, Mapping):
        _refuse_misspelt_user(context)
    if user is None and _says_no_more(context, configurable):
        user = default_user
    if user is None or (isinstance(user, str) and not user):
        ways = 'pass config={"configurable": {"user_id": ...}}'
        advice = f"for a single user, set default_user, and a thread_id is enough; for several, {ways} or "
        advice += "context=RunContext(user_id=...)"
        if context is not None and default_user is not None:
            advice = f"{ways}, or give its context ({type(context).__name__}) a user_id: it may be anybody's"
        raise errors.MissingScopeError(f"The run names no user: {advice}")
    if only_user is not None and _text(user) != only_user:
        raise errors.ForeignUserError(
            f"The retriever is that of the user {only_user!r}, but the run is that of {str(user)!r}. Leave user_id "
            f"out, and each run reads what is its own user's"
        )
    return _text(user)


def _refuse_misspelt_user(names: Iterable[object]) -> None:
    if near := [name for name in names if str(name).casefold() in ("userid", "user-id")]:
        raise errors.InvalidSettingsError(
            f"A run's context has no {near[0]!r} (is 'user_id' meant?)"
        )


def _says_no_more(context: object, configurable: Mapping[str, Any]) -> bool:
    """Returns True where a context is none of the application's own.

    Absent, empty, or a copy of `configurable`.
    """
    if context is None or isinstance(context, ContextSettings):
        return True
    if not isinstance(context, Mapping | RunContext):
        return False
    said = (
        context
        if isinstance(context, Mapping)
        else {k: v for k, v in vars(context).items() if v is not None}
    )
    return all(key in configurable and configurable[key] == value for key, value in said.items())


def _own_id(messages: Sequence[MessageLikeRepresentation]) -> str:
    """Returns an id for a run without a thread, of its first messages.

    It stays while an agent loops over tools.
    """
    history, turn = split_turn(convert_to_messages(messages))
    said = "\n".join(f"{message.id} {fingerprint(message)}" for message in (*history, *turn[:1]))
    return f"run without a thread {digest(said, 8).hex()}"


def _said(name: str, *sources: object) -> Any:  # noqa: ANN401 - ids of any kind
    """Returns the id of the first source that has one.

    An empty text is none, and a blank one is an id as any other.
    """
    for source in sources:
        value = source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)
        is_missing = value is None or (isinstance(value, str) and not value)
        if not is_missing:
            return value
    return None


def _text(key: object) -> str:
    """Returns an id as text.

    An object whose text is not the same in another run is an `InvalidSettingsError`.
    """
    is_record = isinstance(
        key, bool | float | BaseModel | Mapping | list | tuple | set | bytes
    ) or is_dataclass(key)
    if is_record or callable(key) or _is_told_by_address(key):
        raise errors.InvalidSettingsError(f"user_id and thread_id must be text, not {key!r}")
    return str(key)


def _is_told_by_address(key: object) -> bool:
    """Returns True for an object whose text is where it lies in the memory, as that of a plain class."""
    return type(key).__str__ is object.__str__ and type(key).__repr__ is object.__repr__


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
    same_for_all = Request(tools=tools, response_format=response_format)

    def flow(given: object, config: RunnableConfig) -> Flow[list[BaseMessage]]:
        state = given if isinstance(given, Mapping) else None
        instructions, said = _turn(given) if state is None else ([], _state(state))
        run = run_of(config, default_user, current_runtime(), messages=said)
        if (
            state is not None
        ):  # a turn alone stands behind what the application has stored of its user
            run = run.under(engine.settings)
        used = engine.over(run.store if runtime_store else None)
        asked = run.request(
            config, replace(same_for_all, instructions=instructions), state, flattened(said)
        )
        if state is None:
            return (yield from used.assemble(run.scope, said, asked)).messages
        return (yield from used.answer(run.scope, *split_turn(said), asked)).finished.messages

    from langchain_core.runnables import RunnableLambda  # noqa: PLC0415 - takes 0.2 s

    async def ainvoke(given: object, config: RunnableConfig) -> list[BaseMessage]:
        return await adrive(flow(given, config))

    asynchronous: Callable[..., Coroutine[Any, Any, list[BaseMessage]]] = ainvoke
    step = RunnableLambda(
        lambda given, config: drive(flow(given, config)), asynchronous, name="context_budget"
    )
    return step.with_config(run_name="context_budget", tags=["ctxbudget"])


def _state(given: Mapping[str, Any]) -> list[BaseMessage]:
    if "messages" not in given:
        raise errors.InputError(
            f"A mapping must have an agent's 'messages'; it has {sorted(given)}. To answer one of its values, put a "
            f"step in front that picks it: itemgetter('input') | ..."
        )
    return _converted(given["messages"])


def _turn(given: Any) -> tuple[list[str], list[BaseMessage]]:  # noqa: ANN401 - whatever a chain hands over
    """Returns the texts of the system messages in front of a turn, and the turn."""
    given = given.to_messages() if hasattr(given, "to_messages") else given  # a prompt's value
    if not isinstance(given, list | tuple):
        return [], current_turn(given)
    instructions, said = split_instructions(checked(_converted(given), "messages"))
    history, turn = split_turn(said)
    if history:
        raise errors.InputError(
            f"{len(history)} messages stand before the current turn, and the pipeline adds the stored conversation. "
            f'Leave them out, or give {{"messages": [...]}}: then the stored conversation is made equal to them'
        )
    return instructions, current_turn(turn)


def _converted(given: Any) -> list[BaseMessage]:  # noqa: ANN401
    try:
        return convert_to_messages(given)
    except (NotImplementedError, TypeError, ValueError) as error:
        raise errors.UnsupportedContentError(
            f"messages must be what a chat model takes: {error}"
        ) from error
