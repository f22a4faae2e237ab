"""When a session with a user has ended, so that everything new in it is learned from."""

from datetime import datetime

from langchain_ctxbudget.knowledge.presence import NEW_SESSION_AFTER
from langchain_ctxbudget.stores import Scope
from langchain_ctxbudget.worker import new_mutex

MOST_OPEN = 256
"""Conversations of a process that are waited for; of more, the sessions of the oldest end."""
_ENDED_AT_ONCE = 2
"""Sessions that are ended when a message comes: with one more than that begins, they run out."""


class Sessions:
    """Conversations with a few messages that were not learned from, and those that have ended.

    Several threads may use it at once.
    """

    def __init__(self) -> None:
        self._open: dict[Scope, datetime] = {}
        """Conversations with news, and when the last of it came; oldest first."""
        self._ended: dict[Scope, int] = {}
        """Conversations whose sessions have ended, with the fewest words of the user for which a
        model is asked."""
        self._mutex = new_mutex()

    def is_open(self, scope: Scope) -> bool:
        """Returns whether a conversation has news that is waited for."""
        return scope in self._open

    def open_scopes(self) -> list[Scope]:
        """Returns the conversations that have news, oldest first."""
        with self._mutex:
            return list(self._open)

    def note_news(self, scope: Scope, now: datetime) -> None:
        """Notes that a conversation has news now, and that more is waited for."""
        with self._mutex:
            self._open.pop(scope, None)
            self._open[scope] = now

    def drop(self, scope: Scope) -> None:
        """Notes that nothing is waited for in a conversation."""
        with self._mutex:
            self._open.pop(scope, None)

    def idle(self, now: datetime) -> list[Scope]:
        """Returns conversations in which nothing was said for half an hour, a few at a time.

        Where too many are open, the oldest are taken for idle.
        """
        with self._mutex:
            are_too_many = len(self._open) > MOST_OPEN
            oldest = list(self._open.items())[:_ENDED_AT_ONCE]
        return [scope for scope, at in oldest if are_too_many or now - at > NEW_SESSION_AFTER]

    def end(self, scope: Scope, least_words: int) -> None:
        """Notes that the session of a conversation has ended.

        Args:
            scope: The conversation.
            least_words: The words of the user for which a model is asked; the least number counts
                where it is ended several times.
        """
        with self._mutex:
            self._open.pop(scope, None)
            self._ended[scope] = min(least_words, self._ended.get(scope, least_words))

    def take_ended(self, scope: Scope) -> int | None:
        """Returns the words for which a model is asked if a session has ended, and forgets it."""
        with self._mutex:
            return self._ended.pop(scope, None)
