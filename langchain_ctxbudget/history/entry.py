"""One message of a conversation, and everything about it that does not depend on how tokens are counted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b

from langchain_core.messages import BaseMessage, ToolMessage

from langchain_ctxbudget.history.extractive import Line
from langchain_ctxbudget.messages import (
    OpenCalls,
    Preservation,
    as_sent,
    date_of,
    excerpt,
    fences,
    fingerprint,
    is_plain,
    is_user,
    plain_text,
    preservation_of,
    provider_name,
    speaker,
)
from langchain_ctxbudget.stores import MessageRecord


@dataclass(frozen=True, slots=True)
class Entry:
    """One message and what is known about it."""

    id: str
    record: MessageRecord
    message: BaseMessage
    """As it was given."""
    sent: BaseMessage
    """As it stands in a prompt."""
    fingerprint: str
    digest: str
    """Of this message and all before it."""
    speaker: str
    date: str | None
    text: str
    safe_cut: bool
    """A cut right before it leaves calls and results together."""
    open_calls: OpenCalls
    """Calls that are not answered yet after it."""
    date_shown: str | None
    """The date that the newest human message up to here stands under."""
    heading: str | None
    """The line above it in a prompt."""
    preservation: Preservation | None = None
    """What the application wants to become of it."""

    @classmethod
    def after(
        cls, last: Entry | None, record: MessageRecord, message: BaseMessage, pinned: Preservation | None
    ) -> Entry:
        """Reads a message, under the id that it goes by, that follows another one.

        What `pin` asked for outweighs what the message says of its preservation.
        """
        date, human = date_of(message), is_user(message)
        shown = last.date_shown if last else None
        safe, open_calls = True, last.open_calls if last else OpenCalls()
        if open_calls != OpenCalls() or not is_plain(message):  # plain words open nothing that must not be cut
            safe, open_calls = open_calls.after(message)
        said, key = fingerprint(message), str(message.id)
        chain = blake2b((last.digest if last else "").encode(), digest_size=16)
        chain.update(f"{key}\0{said}".encode(errors="surrogatepass"))
        heading = _heading(message, date, shown) if human else None
        preservation = pinned or preservation_of(message)
        return cls(
            id=key,
            record=record,
            message=message,
            sent=_sent(message, heading, preservation),
            fingerprint=said,
            digest=chain.hexdigest(),
            speaker=speaker(message),
            date=date or (last.date if last else None),
            text=plain_text(message),
            safe_cut=safe,
            open_calls=open_calls,
            date_shown=(date if human and date else None) or shown,
            heading=heading,
            preservation=preservation,
        )

    def kept_as(self, pinned: Preservation | None) -> Entry:
        """Returns the same message with another pin."""
        preservation = pinned or preservation_of(self.message)
        return replace(self, preservation=preservation, sent=_sent(self.message, self.heading, preservation))

    @property
    def state(self) -> int:
        """The number of the agent's state that it comes from; see `Place`."""
        return self.record.place.state

    @property
    def is_quotable(self) -> bool:
        """It may stand in a prompt word for word, though it is not among the recent ones."""
        return bool(self.text) and self.preservation not in ("drop", "summarize")

    @property
    def speaking_name(self) -> str | None:
        """The name under which somebody speaks; results of tools have none."""
        return None if isinstance(self.message, ToolMessage) else self.message.name

    @property
    def date_heading(self) -> str:
        """The line above quotes of its day; empty where that is not known."""
        return f"[{self.date}]\n" if self.date else ""

    def quoted(self, reference: str = "") -> str:
        """Returns the line that quotes the message."""
        return fences.item(self.speaker, self.text, reference)

    def as_line(self, position: int, tokens: int = 0) -> Line:
        """Returns the message as a summariser reads it; one that is to be dropped says nothing."""
        text = "" if self.preservation == "drop" else self.text
        return Line(position, self.speaker, self.date, text, is_user(self.message), tokens)


def _sent(message: BaseMessage, heading: str | None, preservation: Preservation | None) -> BaseMessage:
    sent = as_sent(message, heading=heading)
    return excerpt(sent) if preservation == "summarize" else sent


def _heading(message: BaseMessage, date: str | None, shown: str | None) -> str | None:
    """Returns the line above a human message: its date where that is new, its speaker where the name cannot be sent."""
    lost = message.name if message.name and provider_name(message.name) is None else None
    parts = [part for part in (date if date != shown else None, lost) if part]
    return f"[{', '.join(parts)}]" if parts else None
