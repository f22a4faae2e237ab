"""Prompts that a graph makes step by step, between its own nodes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langchain_ctxbudget.history import OpenConversation
from langchain_ctxbudget.stores import Scope
from langchain_ctxbudget.worker import keep_newest, new_mutex

if TYPE_CHECKING:
    from langchain_ctxbudget.pipeline.session import Session

MOST_UNDER_WAY = 256
"""Prompts that are kept between two steps; one more, and the oldest is begun again."""


@dataclass(frozen=True, slots=True)
class _UnderWay:
    conversation: OpenConversation
    session: "Session"


class SessionsUnderWay:
    """The prompts that are between two of their steps, by conversation; for threads and tasks."""

    def __init__(self) -> None:
        self._mutex = new_mutex()
        self._sessions: dict[Scope, _UnderWay] = {}

    def find(self, conversation: OpenConversation) -> "Session | None":
        """Returns the prompt that is under way.

        None where there is none, or it was begun before the conversation was opened again.
        """
        with self._mutex:
            found = self._sessions.get(conversation.scope)
        if found is None or found.conversation is not conversation:
            return None
        return found.session

    def keep(self, conversation: OpenConversation, session: "Session") -> None:
        """Keeps a prompt until its next step."""
        under_way = _UnderWay(conversation, session)
        with self._mutex:
            keep_newest(self._sessions, conversation.scope, under_way, MOST_UNDER_WAY)

    def finish(self, conversation: OpenConversation) -> None:
        """Lets go of a prompt after its last step."""
        with self._mutex:
            self._sessions.pop(conversation.scope, None)

    def forget(self, is_gone: Callable[[Scope], bool]) -> None:
        """Lets go of the prompts of some conversations, which quote them."""
        with self._mutex:
            for scope in [scope for scope in self._sessions if is_gone(scope)]:
                del self._sessions[scope]
