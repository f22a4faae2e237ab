"""The records of a conversation: messages, writers, segments, cuts, snapshots and pins."""

import json
from datetime import datetime
from typing import Any, NamedTuple, Self

from langchain_core.messages import BaseMessage, messages_from_dict
from pydantic import Field, ValidationError

from langchain_ctxbudget.content import readable_content
from langchain_ctxbudget.errors import StoreDataError
from langchain_ctxbudget.messages import (
    Preservation,
    encodable,
    message_data,
    plain_text,
    preservation_of,
)
from langchain_ctxbudget.report import HistoryStrategy
from langchain_ctxbudget.stores.base import AS_TEXT, Record

SAID = "said"
"""The field of a message's text in a store with an index."""
EMBEDDED_CHARACTERS = 4_000
"""Characters of a text that are embedded: models read about 8,000 tokens, and no text should be
stored twice."""
EXTRACTION = "extraction"
"""Named as the maker, in place of a model, where a summary consists of the conversation's own
sentences."""
UNQUOTED: tuple[Preservation, ...] = ("summarize", "drop")
"""Messages that the application wants treated so are not quoted in other conversations."""


# The log


class Place(Record):
    """The place of a message in a conversation that several writers append to.

    Every writer has its own lane and counts in it; its clock is always past every message it has
    seen (Lamport 1978). Sorted by clock, lane and number, every reader sees one order, and no two
    writers ever append the same record.
    """

    clock: int = Field(ge=0)
    lane: str
    number: int = Field(ge=0)
    state: int = 0
    """The number of the agent's state that it comes from; a state that has lost all stored messages
    is the next."""

    @property
    def order(self) -> tuple[int, str, int]:
        """The key by which places are sorted."""
        return (self.clock, self.lane, self.number)

    @property
    def key(self) -> str:
        """The key of its record."""
        return place_key(self.lane, self.number)


def place_key(lane: str, number: int) -> str:
    """Returns the key of the record that a writer appended as its `number`th, from 0."""
    return f"{lane}/{number}"


def _message_of(stored: dict[str, Any]) -> BaseMessage:
    """Returns a message from its data; JSON as a text where its content has what is no block."""
    try:
        return messages_from_dict([stored])[0]
    except ValidationError:
        fields = stored["data"]
        readable = {**fields, "content": readable_content(fields["content"])}
        return messages_from_dict([{**stored, "data": readable}])[0]


class MessageRecord(Record):
    """One message of a conversation, as it was given.

    The message is JSON text, because a database may give the keys of an object back in another
    order, and a prompt must not depend on where it was kept.
    """

    place: Place
    text: str
    """The message as JSON."""
    named: bool = True
    """True if the application gave it its id."""
    archived: bool = False
    """True if it was taken out of the conversation and is kept aside."""

    @classmethod
    def read(cls, value: dict[str, Any], where: str) -> Self:
        """Reads a record from its stored form, without the text for the index."""
        return super().read({key: part for key, part in value.items() if key != SAID}, where)

    @classmethod
    def of(cls, message: BaseMessage, place: Place, *, named: bool = True) -> "MessageRecord":
        """Makes the record of a message that has an id.

        Bytes become base64; what else is not JSON becomes text.
        """
        data = message_data(message)
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        if encodable(text) != text:
            text = json.dumps(data)
        return cls(place=place, text=text, named=named)

    def to_message(self) -> BaseMessage:
        """Returns the message as it was given.

        What is no block stands in it as JSON: it was stored before such contents were refused.

        Raises:
            StoreDataError: the record holds no message.
        """
        try:
            return _message_of(json.loads(self.text))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise StoreDataError(
                f"message {self.place.key!r} is no message that can be read: {error}"
            ) from error

    def to_indexed_value(self) -> dict[str, Any]:
        """Returns the form for a store with an index: with its text, where that may be quoted.

        The text does not say whose it is: a name outweighs everything else in a mean of word
        vectors. A message with NUL, which is stored as one text, is not found by what it says.
        """
        value = self.to_value()
        if self.archived or AS_TEXT in value:
            return value
        message = self.to_message()
        if preservation_of(message) in UNQUOTED:
            return value
        text = plain_text(message)[:EMBEDDED_CHARACTERS].encode(errors="replace").decode()
        if not text:
            return value
        return {**value, SAID: text}


class ChangeRecord(Record):
    """The keys of records that a writer has changed or deleted since; readers read them again."""

    changed: tuple[str, ...]


class LaneRecord(Record):
    """The head of a writer's lane, by which readers see whether anything is new."""

    born: str
    """A token of this lane alone: a lane that is made again under the same name gets another."""
    clock: int = Field(ge=0)
    """The clock of the newest record."""
    count: int = Field(ge=0)
    """The number of records in it: messages and changes."""


class SegmentRecord(Record):
    """A sealed segment of messages, as the head of a conversation's segments names it."""

    end: int
    """The position behind its last message."""
    lanes: dict[str, LaneRecord]
    """How far the segment reaches into each lane."""
    parts: dict[str, str]
    """A hash of each part, by name."""


# Cuts


class SummaryLine(Record):
    """One line of a summary or of the arc."""

    position: int
    """The message that it comes from."""
    order: int = 0
    """Its place among the lines of that message."""
    heading: str
    text: str
    first: int = 0
    """The position of the first message that it stands for."""
    end: int = 0
    """The position behind the last one; the same for a line that stands for none, as a title."""
    made_by: str = EXTRACTION
    """`extraction`, or the model that wrote it."""
    value: float = 0.0
    """The line with the least value is taken out first."""


class CutRecord(Record):
    """The beginning of verbatim history, and what stands for the messages before it."""

    position: int
    """The number of messages that are not verbatim, but for those that are kept."""
    cut_key: str
    """Budget, tokenizer and strategy that it was made for: pipelines that differ in them do not
    move each other's."""
    digest: str
    """A digest of the messages before the cut: another one means that they have changed."""
    strategy: HistoryStrategy = "windowed"
    kept: tuple[int, ...] = ()
    """Positions before it that stay verbatim."""
    preserved: str = ""
    """A digest of the preservation of each message before the cut."""
    cleared: int = 0
    """Results of tools before this position are shown in short."""
    media_from: int | None = None
    """From this position on large messages have their media; None in older records."""
    summary: tuple[SummaryLine, ...]
    arc: tuple[SummaryLine, ...]
    waiting: tuple[str, ...] = ()
    """Hashes of the spans that a model had not written about yet."""
    clipped: bool = False
    """True where all is verbatim, but for messages that are too large and shown in short."""
    begun: int = 0
    """The number of messages when it was made: the user's messages behind it stand with the
    backgrounds that they were sent with."""
    prefix: str = ""
    """A digest of what stands before the messages, and of the tools."""
    at: datetime | None = None
    """The time of the request that it was written for."""
    level_tokens: int = 0
    """The most that the prompt could cost for which it was made."""
    preferences_tokens: int = 0
    """The most that preferences and facts about the user may cost in front of it."""
    left_out: tuple[int, int] = (0, 0)
    """The first of the messages behind it that are left out since, and the one behind the last."""
    rules_within: tuple[str, ...] = ()
    """The rules that the user lays down in these, a line each."""
    saved_tokens: int = 0
    """Tokens that prompts had saved, compared with sending everything, when there were
    `saved_until` messages."""
    saved_until: int = 0
    """The number of messages up to which `saved_tokens` counts."""
    long: int = 0
    """The stage of the turn when it was made; 0 where the turn was not long."""
    turn_tokens: int = 0
    """The room of the turn when it was made."""
    turn_groups: int = 0
    """The number of the turn's groups of messages when it was made."""
    tools: tuple[str, ...] = ()
    """The names of the tools that were bound, where the prompt chose them."""


class CutsRecord(Record):
    """The cuts of a conversation that are in use, the one used last at the end."""

    cuts: tuple[CutRecord, ...]


# What an application or the user has chosen


class ShownFact(NamedTuple):
    """A fact as a conversation shows it: a deleted fact must not live on here, so without words."""

    id: str
    fingerprint: str
    """A digest of its text and category."""
    last_seen: datetime | None = None
    """When it had been said last; None in older records."""


class SnapshotRecord(Record):
    """The facts about the user that a conversation shows until its snapshot is renewed."""

    facts: tuple[ShownFact, ...] = ()
    """They are in the order in which they were chosen."""
    edited: str = ""
    """The mark of the user's last change by hand that is part of it."""
    rules: tuple[str, ...] = ()
    """The ids of the rules from other conversations that it shows."""


class PinsRecord(Record):
    """The preservation that `pin` asked for, by message id."""

    pins: dict[str, Preservation] = Field(default_factory=dict)
