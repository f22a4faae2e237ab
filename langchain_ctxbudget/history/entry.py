"""One message of an open conversation, and what is known about it."""

from __future__ import annotations

from dataclasses import dataclass

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.core.calls import is_user
from langchain_ctxbudget.core.digest import Line
from langchain_ctxbudget.core.preservation import Preservation
from langchain_ctxbudget.stores.records import MessageRecord


@dataclass(slots=True)
class Entry:
    """One message and what is known about it."""

    id: str
    record: MessageRecord
    message: BaseMessage
    """As it was given."""
    sent: BaseMessage
    """As it stands in a prompt."""
    tokens: int
    """What `sent` costs."""
    fingerprint: str
    digest: str
    """A digest of this message and all before it."""
    speaker: str
    date: str | None
    text: str
    safe_cut: bool
    """Whether a cut right before it leaves calls and results together."""
    open_calls: frozenset[str]
    """Calls not answered yet after it."""
    date_shown: str | None
    """The date that the newest human message up to here stands under."""
    heading: str | None
    """What stands above it in a prompt."""
    preservation: Preservation | None = None
    """What the application wants to become of it."""

    def order(self) -> tuple[int, str, int]:
        """What entries are sorted by."""
        return self.record.place.order

    @property
    def is_quotable(self) -> bool:
        """Whether it may stand in a prompt word for word, though it is not among the recent ones."""
        return bool(self.text) and self.preservation not in ("drop", "summarize")

    @property
    def mark(self) -> int:
        """A number that follows from what it says."""
        return int(self.fingerprint[:8], 16)

    def as_line(self, position: int) -> Line:
        """The message as a summariser reads it; one that is to be dropped says nothing."""
        return Line(
            position=position,
            speaker=self.speaker,
            date=self.date,
            text="" if self.preservation == "drop" else self.text,
            from_user=is_user(self.message),
        )
