"""Whose run it is: user, conversation, settings and store of a LangGraph or LangChain run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.store.base import BaseStore

from langchain_ctxbudget.errors import ForeignUserError, InvalidSettingsError, MissingScopeError
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores.records import Scope

ALIKE = 0.85
"""From here on, as `difflib` measures it, a name is taken for another one misspelt."""


@dataclass(frozen=True, kw_only=True, init=False)
class RunContext:
    """What a run may say of itself as LangGraph's runtime context, instead of in `configurable`.

    An application's own context class may inherit from it. A graph that runs as a part of another one sees the context
    of that one; only this class, or plain `ContextSettings`, is looked at. Other names than these are left alone, as
    LangGraph Server gives all of `configurable` as context; one that is nearly the same is refused
    (`InvalidSettingsError`), or a conversation would be stored under a default user.

    Example:
        >>> from langchain_ctxbudget import build_context_graph
        >>> graph = build_context_graph()
        >>> config = {"configurable": {"thread_id": "c1"}}
        >>> state = graph.invoke({"messages": [("human", "Hello")]}, config, context=RunContext(user_id="ada"))
        >>> state["llm_input_messages"][-1].content
        'Hello'
    """

    user_id: str | None = None
    conversation_id: str | None = None
    """Where it is not the thread's id, for instance of one of several agents that work in one thread."""
    persona_id: str | None = None
    """Whose saved settings apply."""
    settings: ContextSettings | Mapping[str, Any] | None = None
    """These lie over all others."""

    def __init__(
        self,
        *,
        user_id: str | None = None,
        conversation_id: str | None = None,
        persona_id: str | None = None,
        settings: ContextSettings | Mapping[str, Any] | None = None,
        **others: object,
    ) -> None:
        given = {
            "user_id": user_id,
            "conversation_id": conversation_id,
            "persona_id": persona_id,
            "settings": settings,
        }
        _refuse_misspelt(others, [name for name, value in given.items() if value is None])
        for name, value in given.items():
            object.__setattr__(self, name, value)


def _refuse_misspelt(names: Iterable[str], missing: Sequence[str]) -> None:
    """Make sure that no name stands for one of ours.

    Raises:
        InvalidSettingsError: one is nearly the same.
    """
    ours = {_letters(name): name for name in missing}
    for name in names:
        if near := get_close_matches(_letters(name), ours, n=1, cutoff=ALIKE):
            raise InvalidSettingsError(f"RunContext has no {name!r}; is {ours[near[0]]!r} meant?")


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name)).casefold()


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What is known of a run."""

    scope: Scope
    persona_id: str | None = None
    settings: ContextSettings | Mapping[str, Any] | None = None
    store: BaseStore | None = None
    """That the graph was compiled with."""


def run_of(
    config: RunnableConfig, default_user: str | None, runtime: object = None, *, agent: str | None = None
) -> Run:
    """What a run says of itself.

    The user is that of our runtime context, else `configurable["user_id"]`, else the server's authenticated user, else
    the default. On LangGraph Server, whose clients write the first two, whoever is signed in and names somebody else is
    refused. The conversation is that of our runtime context, else the run's `thread_id`, else its `session_id`.

    Args:
        config: of the run.
        default_user: the user where the run names none.
        runtime: LangGraph's, where there is one.
        agent: the agent's name where several work in one thread; each has a conversation of its own then.

    Raises:
        ForeignUserError: LangGraph Server has authenticated another user than the one that is named.
        InvalidSettingsError: an id is no text.
        MissingScopeError: the run names no conversation, or no user and there is no default.
    """
    configurable = config.get("configurable") or {}
    given = getattr(runtime, "context", None)
    ours = given if isinstance(given, RunContext) else RunContext()
    settings = given if isinstance(given, ContextSettings) else ours.settings
    named, signed_in = _first(ours.user_id, configurable.get("user_id")), _signed_in(configurable, runtime)
    served = configurable.get("assistant_id") or configurable.get("graph_id")
    if served and named is not None and signed_in is not None and str(named) != str(signed_in):
        raise ForeignUserError(
            f"The run is that of the authenticated user {str(signed_in)!r}, but names the user {str(named)!r}. Leave "
            f"user_id out; a service that works for others authenticates as them, in the server's own handler"
        )
    user = _first(named, signed_in, default_user)
    if _is_blank(user):
        raise MissingScopeError(
            'The run names no user: pass config={"configurable": {"user_id": ...}} or context=RunContext(user_id=...), '
            "or set a default_user"
        )
    conversation = _first(ours.conversation_id, configurable.get("thread_id"), configurable.get("session_id"))
    if _is_blank(conversation):
        raise MissingScopeError('The run names no conversation: pass config={"configurable": {"thread_id": ...}}')
    key = _text(conversation)
    return Run(
        scope=Scope(_text(user), f"{key} (agent {agent})" if agent else key),
        persona_id=_first(ours.persona_id, configurable.get("persona_id")),
        settings=configurable.get("context_settings") if settings is None else settings,
        store=getattr(runtime, "store", None),
    )


def _first(*given: Any) -> Any:  # noqa: ANN401 - ids of any kind
    """The first that is given; 0 is an id, and an empty text is a mistake, not a wish for the next one."""
    return next((value for value in given if value is not None), None)


def _is_blank(key: object) -> bool:
    return key is None or not str(key).strip()


def _signed_in(configurable: Mapping[str, Any], runtime: object) -> object:
    """The identity of the user that LangGraph Server has authenticated."""
    user = configurable.get("langgraph_auth_user") or getattr(getattr(runtime, "server_info", None), "user", None)
    return user.get("identity") if isinstance(user, Mapping) else getattr(user, "identity", None)


def _text(key: object) -> str:
    """An id as text, as LangGraph takes numbers and UUIDs for a thread.

    Raises:
        InvalidSettingsError: it is a container, which is surely a mistake.
    """
    if isinstance(key, Mapping | list | tuple | set | bytes):
        raise InvalidSettingsError(f"user_id and thread_id must be text, not {key!r}")
    return str(key)


def current_runtime() -> object:
    """The runtime of the LangGraph run that goes on here; None where there is none."""
    from langgraph.runtime import get_runtime  # noqa: PLC0415 - not needed where nothing runs

    try:
        return get_runtime()
    except (RuntimeError, KeyError):
        return None
