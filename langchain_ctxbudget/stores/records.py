"""What is kept, under which labels, and how a user's scope becomes a namespace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import quote

from langchain_core.messages import BaseMessage, message_to_dict, messages_from_dict
from pydantic import BaseModel, ConfigDict, ValidationError

from langchain_ctxbudget.core.compaction import Strategy
from langchain_ctxbudget.core.digest import EXTRACTION
from langchain_ctxbudget.core.messages import as_json_data
from langchain_ctxbudget.core.preservation import Preservation
from langchain_ctxbudget.errors import MissingScopeError, StoreDataError

ROOT = "ctxbudget"


def label(text: str) -> str:
    """A namespace label for any text: LangGraph refuses dots and empty labels (an e-mail has dots)."""
    return quote(text, safe=" @+", errors="surrogatepass").replace(".", "%2E")


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose conversation it is; part of every read and write.

    Raises:
        MissingScopeError: an id is missing.
    """

    user_id: str
    conversation_id: str

    def __post_init__(self) -> None:
        for name, value in (("user_id", self.user_id), ("conversation_id", self.conversation_id)):
            if not isinstance(value, str) or not value:
                raise MissingScopeError(
                    f"{name} must be a non-empty string, not {value!r}: "
                    f"nothing is read or written without a user and a conversation"
                )

    def namespace(self, kind: str) -> tuple[str, ...]:
        """The namespace of one kind of record of this conversation."""
        return (ROOT, label(self.user_id), kind, label(self.conversation_id))


class Record(BaseModel):
    """The base of every record: immutable, no unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def read(cls, value: dict[str, Any], where: str) -> Self:
        """A record from its stored form.

        Raises:
            StoreDataError: it is not one.
        """
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            raise StoreDataError(f"{where} is not a {cls.__name__}: {error}") from error


class Place(Record):
    """Where a message stands in a conversation that several writers append to.

    Every writer has its own lane and counts in it; its clock is always past every message it has seen
    (Lamport 1978). Sorted by clock, lane and number, every reader sees one order, and no two writers ever
    write the same record.
    """

    clock: int
    lane: str
    number: int

    @property
    def key(self) -> tuple[int, str, int]:
        """What places are sorted by."""
        return (self.clock, self.lane, self.number)


class MessageRecord(Record):
    """One message of a conversation, as it was given."""

    id: str
    place: Place
    message: dict[str, Any]

    @classmethod
    def of(cls, message: BaseMessage, place: Place) -> MessageRecord:
        """The record of a message that has an id; bytes in it become base64, what else is not JSON text."""
        return cls(
            id=str(message.id),
            place=place,
            message=as_json_data(message_to_dict(message)),
        )

    def to_message(self) -> BaseMessage:
        """The message as it was given.

        Raises:
            StoreDataError: the record holds no message of a known kind.
        """
        try:
            return messages_from_dict([self.message])[0]
        except (KeyError, TypeError, ValueError) as error:
            raise StoreDataError(f"message {self.id!r} is no message that can be read: {error}") from error


class LaneRecord(Record):
    """How far a writer has come; what readers look at to see whether anything is new."""

    clock: int
    count: int
    """Messages it has appended."""
    edits: int = 0
    """Times it has changed or removed messages."""

    def token(self, lane: str) -> str:
        """A text that no other write of any writer has."""
        return f"{lane}/{self.count}/{self.edits}"


class CutRecord(Record):
    """Where verbatim history begins, and what stands for the messages before it."""

    position: int
    """How many messages are not verbatim, but for those that are kept."""
    made_for: str
    """Budget, tokenizer and strategy that it was made for: pipelines that differ in them do not move each other's."""
    digest: str
    """A digest of the messages before the cut: another one means that they have changed."""
    strategy: Strategy = "windowed"
    room_tokens: int = 0
    """What verbatim messages could cost when it was made."""
    pinned_room_tokens: int = 0
    """What messages that are kept from before it could cost."""
    kept: tuple[int, ...] = ()
    """Positions before it that stay verbatim."""
    dropped: tuple[int, ...] = ()
    """Positions before it that stand in no summary."""
    cleared: int = 0
    """Results of tools before this position are shown in short."""
    summary: tuple[SummaryLine, ...]
    arc: tuple[SummaryLine, ...]
    waiting: tuple[str, ...] = ()
    """Hashes of the spans that a model had not written about yet."""


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
    """What it is worth; the least is taken out first."""


class CutsRecord(Record):
    """The cuts of a conversation that are in use, the one used last at the end."""

    cuts: tuple[CutRecord, ...]


class PinsRecord(Record):
    """What was asked for by `pin`, by message id."""

    pins: dict[str, Preservation] = {}


CutRecord.model_rebuild()
CutsRecord.model_rebuild()
