"""A message of a conversation, and what is known of it however tokens are counted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from langchain_core.messages import BaseMessage

from langchain_ctxbudget import messages
from langchain_ctxbudget.history.extractive import Line
from langchain_ctxbudget.messages import Preservation


@dataclass(frozen=True)
class Entry:
    """One message, and what is known of it but for its costs."""

    source: str
    """The JSON of its record."""
    message: BaseMessage
    """The message, under the id that it goes by."""
    fingerprint: str
    digest: str
    """A digest of this message and all before it."""
    date: str | None
    safe_cut: bool
    shown: str | None
    """The date that the messages before it stand under."""
    pinned: Preservation | None = None

    @property
    def id(self) -> str:
        """The id that it goes by."""
        return str(self.message.id)

    @cached_property
    def preservation(self) -> Preservation | None:
        """The preservation that the application wants; that of `pin` outweighs that of the message."""
        return self.pinned or messages.preservation_of(self.message)

    @cached_property
    def sent(self) -> BaseMessage:
        """The message as it is sent, with its date above it where that is new, or its speaker where no name can be."""
        parts, name = list[str](), self.message.name
        if messages.is_user(self.message):
            date = messages.date_of(self.message)
            parts += [date] if date and date != self.shown else []
            parts += [name] if name and messages.provider_name(name) is None else []
        sent = messages.as_sent(self.message, heading=f"[{', '.join(parts)}]" if parts else None)
        return messages.excerpt(sent) if self.preservation == "summarize" else sent

    @cached_property
    def speaker(self) -> str:
        """The name of who says it, else the role."""
        return messages.speaker(self.message)

    @cached_property
    def text(self) -> str:
        """Its words."""
        return messages.plain_text(self.message)

    def quoted(self, reference: str = "") -> str:
        """Returns the line that quotes the message."""
        return messages.fences.item(self.speaker, self.text, reference)

    def as_line(self, position: int) -> Line:
        """Returns the message as a summariser reads it; one that is to be dropped says nothing."""
        text = "" if self.preservation == "drop" else self.text
        return Line(position, self.speaker, self.date, text, messages.is_user(self.message))
