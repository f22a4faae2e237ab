"""What rules are to learn from, and since when, conversation by conversation.

What a prompt shows must not depend on how far a thread in the background has come. So each reading
is noted when it becomes due, with its end and its time, and a prompt has done what is still due.
Whoever does it, and whenever, the same messages are read together, at the same time by the clock.
"""

from dataclasses import dataclass
from datetime import datetime

from langchain_ctxbudget.stores import Scope
from langchain_ctxbudget.worker import new_mutex


@dataclass(frozen=True, slots=True, eq=False)
class DueReading:
    """Messages of a conversation that rules are to learn from."""

    at: datetime
    """When it became due: what is learned is learned at this time."""
    end: int | None = None
    """The position behind the last of the messages; None for all, as the session has ended."""


class DueReadings:
    """The readings that are due and not done.

    Several threads may use it at once.
    """

    def __init__(self) -> None:
        self._due: dict[Scope, tuple[DueReading, ...]] = {}
        """Those of each conversation, oldest first."""
        self._mutex = new_mutex()

    def add(self, scope: Scope, reading: DueReading) -> None:
        """Notes that a reading has become due."""
        with self._mutex:
            self._due[scope] = (*self._due.get(scope, ()), reading)

    def first_of(self, scope: Scope) -> DueReading | None:
        """Returns the reading of a conversation that is to be done next."""
        readings = self._due.get(scope, ())
        return readings[0] if readings else None

    def end_of(self, scope: Scope) -> int:
        """Returns the position behind the last message that a noted reading of it ends with."""
        ends = [reading.end or 0 for reading in self._due.get(scope, ())]
        return max(ends, default=0)

    def scopes_of(self, user_id: str) -> list[Scope]:
        """Returns the conversations of a user that are to be read, oldest first."""
        with self._mutex:
            return [scope for scope in self._due if scope.user_id == user_id]

    def remove(self, scope: Scope, reading: DueReading) -> None:
        """Notes that a reading is done; it may have been done twice."""
        with self._mutex:
            remaining = [one for one in self._due.pop(scope, ()) if one is not reading]
            if remaining:
                self._due[scope] = tuple(remaining)

    def drop(self, scope: Scope) -> None:
        """Notes that nothing is due in a conversation."""
        with self._mutex:
            self._due.pop(scope, None)
