"""Conversations on which the model has failed, until it is asked again."""

from dataclasses import dataclass
from datetime import datetime

from cachetools import FIFOCache

from langchain_ctxbudget import llm
from langchain_ctxbudget.knowledge.sessions import MOST_OPEN
from langchain_ctxbudget.stores import Scope
from langchain_ctxbudget.worker import new_mutex

_FAILED_BEFORE = "its model has failed before"


@dataclass(frozen=True)
class _Outage:
    until: datetime
    """The time at which the model is asked again."""
    problem: str
    """What a report says of it."""


class Outages:
    """The conversations that wait for their model, and until when.

    Several threads may use it at once. Of more than are kept, the oldest are forgotten: what they
    wait for is in the store.
    """

    def __init__(self) -> None:
        self._outages: FIFOCache[Scope, _Outage] = FIFOCache(MOST_OPEN)
        self._mutex = new_mutex()

    def problem_of(self, scope: Scope) -> str | None:
        """Returns what a report says of a conversation that waits for its model."""
        with self._mutex:
            outage = self._outages.get(scope)
        return None if outage is None else outage.problem

    def begin(self, scope: Scope, until: datetime, problem: str) -> None:
        """Notes that the model has failed, with what a report is to say of it."""
        with self._mutex:
            self._outages[scope] = _Outage(until, problem)

    def go_on(self, scope: Scope, until: datetime, first: int) -> None:
        """Notes that the model is not asked before a time, whatever it has failed with.

        Args:
            scope: The conversation.
            until: The time.
            first: The position of the first message that waits.
        """
        problem = self.problem_of(scope) or f"{_FAILED_BEFORE}; {waiting_in_words(first, until)}"
        self.begin(scope, until, problem)

    def end(self, scope: Scope) -> None:
        """Notes that a conversation waits for its model no more."""
        with self._mutex:
            self._outages.pop(scope, None)

    def take_due(self, now: datetime) -> list[Scope]:
        """Returns the conversations whose waits are over, and forgets them."""
        if not self._outages:
            return []
        with self._mutex:
            due = [scope for scope, outage in self._outages.items() if outage.until <= now]
            for scope in due:
                del self._outages[scope]
        return due


def waiting_in_words(first: int, until: datetime) -> str:
    """Returns what a report says of messages that wait for their model.

    Args:
        first: The position of the first of them.
        until: The time at which the model is asked again.
    """
    again = (
        f"it reads everything from message {first + 1} on again, not before {llm.time_text(until)}"
    )
    return f"{again}; rules learn meanwhile"
