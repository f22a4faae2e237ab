"""The records of conversations and the labels under which they are stored; saved settings.

Clocks.
"""

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, Self, TypeAlias
from urllib.parse import quote, unquote
from uuid import uuid4

from langchain_core.messages import BaseMessage, messages_from_dict
from langgraph.store.base import BaseStore, GetOp, Item, PutOp
from pydantic import BaseModel, ConfigDict, Field

from langchain_ctxbudget.errors import (
    ForeignUserError,
    InvalidSettingsError,
    MissingScopeError,
    StoreDataError,
)
from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.messages import (
    Preservation,
    digest,
    message_data,
    plain_text,
    preservation_of,
)
from langchain_ctxbudget.report import HistoryStrategy
from langchain_ctxbudget.tokens import encodable

Clock: TypeAlias = Callable[[], datetime]
ROOT = "ctxbudget"
SETTINGS = "settings"
TITLE = "title"
LONGEST_LABEL = 200
_AS_TEXT = "json"
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


def label(text: str) -> str:
    """Returns a namespace label for any text; no label is the beginning of another.

    LangGraph refuses dots, and SQL stores may look for a prefix with `LIKE`, where `%` and `_`
    match anything and `ada` finds `ada2`. Long texts are cut and told apart by a hash: PostgreSQL
    takes 2,700 bytes of namespace and key.

    >>> label("ada@example.com"), label("a_b")
    ('ada@example=2Ecom~', 'a=5Fb~')
    """
    quoted = quote(text, safe=" @+", errors="surrogatepass")
    for character in "._~":
        quoted = quoted.replace(character, f"%{ord(character):02X}")
    quoted = quoted.replace("%", "=")
    if len(quoted) > LONGEST_LABEL:
        quoted = f"{quoted[:LONGEST_LABEL]}!{digest(text).hex()}"
    return f"{quoted}~"


def unlabelled(name: str) -> str:
    """Returns the text of a label; of a long one, its beginning and the hash."""
    return unquote(name.removesuffix("~").replace("=", "%"), errors="surrogatepass")


def storable(value: dict[str, Any]) -> dict[str, Any]:
    """Returns a value that every store can hold.

    PostgreSQL refuses NUL and half of a surrogate pair in texts.
    """
    text = json.dumps(value, ensure_ascii=False)
    return {_AS_TEXT: json.dumps(value)} if "\\u0000" in text or encodable(text) != text else value


def stored(value: dict[str, Any]) -> dict[str, Any]:
    """Returns the value that `storable` was given.

    A damaged one stays as it is, and is no record.
    """
    if value.keys() != {_AS_TEXT}:
        return value
    try:
        return dict(json.loads(value[_AS_TEXT]))
    except (TypeError, ValueError):
        return value


class SharedThread(str):
    """The user id that stands for everybody in a thread that people share; no user can have it.

    Texts of this form are refused as ids of users, unless they are of this type.
    """

    __slots__ = ()
    BEGINNING: ClassVar[str] = "ctxbudget-shared-thread "

    @classmethod
    def of(cls, thread_id: str) -> Self:
        """Returns the user id of a thread, each thread with its own."""
        return cls(cls.BEGINNING + digest(thread_id).hex())


def require_id(name: str, value: object) -> str:
    """Returns an id that is a text."""
    if not isinstance(value, str) or not value:
        raise MissingScopeError(
            f"{name} must be a non-empty string, not {value!r}: it is part of every read and write"
        )
    if (
        value.startswith(SharedThread.BEGINNING)
        and not isinstance(value, SharedThread)
        and name == "user_id"
    ):
        raise ForeignUserError(
            f"user_id cannot be {value!r}: it stands for a thread that people share; `shared_conversation` gives that"
        )
    return value


@dataclass(frozen=True, slots=True)
class Scope:
    """The user and the conversation; part of every read and write."""

    user_id: str
    conversation_id: str
    is_kept: bool = True
    """False for a run without a thread, a conversation in memory only; its scope equals no other,
    whatever its id."""

    def __post_init__(self) -> None:
        require_id("user_id", self.user_id)
        require_id("conversation_id", self.conversation_id)

    @property
    def is_shared(self) -> bool:
        """True for a thread that people share.

        It is nobody's, and teaches nothing about anybody.
        """
        return isinstance(self.user_id, SharedThread)

    def namespace(self, kind: str) -> tuple[str, ...]:
        """Returns the namespace of one kind of record of this conversation."""
        return (ROOT, label(self.user_id), kind, label(self.conversation_id))

    def place(self, kind: str) -> GetOp:
        """Returns the place of this conversation's only record of a kind."""
        return GetOp(self.namespace(kind), kind)


def new_token() -> str:
    """Returns a text that no other call has returned or will return."""
    return uuid4().hex


class Record(BaseModel):
    """The base of every record: immutable, no unknown fields."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", defer_build=True, validate_by_name=True, validate_by_alias=True
    )

    @classmethod
    def read(cls, value: dict[str, Any], where: str) -> Self:
        """Reads a record from its stored form."""
        try:
            return cls.model_validate(stored(value))
        except (TypeError, ValueError) as error:
            raise StoreDataError(f"{where} is not a {cls.__name__}: {error}") from error

    @classmethod
    def found(cls, item: object) -> Self | None:
        """Reads the record that a `GetOp` has found; None where it has found none."""
        return (
            cls.read(item.value, f"{item.key!r} in {'/'.join(item.namespace)}")
            if isinstance(item, Item)
            else None
        )

    def to_value(self) -> dict[str, Any]:
        """Returns the form in which it is stored."""
        return storable(self.model_dump(mode="json", by_alias=True))


def written(place: GetOp, record: Record | None) -> PutOp:
    """Returns the write of a record at a place; None removes the record there."""
    return PutOp(
        place.namespace, place.key, None if record is None else record.to_value(), index=False
    )


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


class MessageRecord(Record):
    """One message of a conversation, as it was given.

    The message is JSON text, because a database may give the keys of an object back in another
    order, and a prompt must not depend on where it was kept.
    """

    place: Place
    text: str
    named: bool = True
    """True if the application gave it its id."""
    archived: bool = False
    """True if it was taken out of the conversation and is kept aside."""

    @classmethod
    def read(cls, value: dict[str, Any], where: str) -> Self:
        """Reads a record from its stored form, without the text for the index."""
        return super().read({key: part for key, part in value.items() if key != SAID}, where)

    def to_indexed_value(self) -> dict[str, Any]:
        """Returns the form for a store with an index: with its text, where that may be quoted.

        Without who has said it: a name outweighs everything else in a mean of word vectors. A
        message with NUL, which is stored as one text, is not found by what it says.
        """
        value = self.to_value()
        if (
            self.archived
            or _AS_TEXT in value
            or preservation_of(message := self.to_message()) in UNQUOTED
        ):
            return value
        said = plain_text(message)[:EMBEDDED_CHARACTERS].encode(errors="replace").decode()
        return {**value, SAID: said} if said else value

    @classmethod
    def of(cls, message: BaseMessage, place: Place, *, named: bool = True) -> "MessageRecord":
        """Makes the record of a message that has an id.

        Bytes become base64, what else is not JSON becomes text.
        """
        data = message_data(message)
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        return cls(
            place=place, text=text if encodable(text) == text else json.dumps(data), named=named
        )

    def to_message(self) -> BaseMessage:
        """Returns the message as it was given."""
        try:
            return messages_from_dict([json.loads(self.text)])[0]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise StoreDataError(
                f"message {self.place.key!r} is no message that can be read: {error}"
            ) from error


class ChangeRecord(Record):
    """The keys of records that a writer has changed or deleted since; readers read them again."""

    changed: tuple[str, ...]


class LaneRecord(Record):
    """The head of a writer's lane, by which readers see whether anything is new."""

    born: str
    """A token of this lane alone: a lane that is made again under the same name gets another
    one."""
    clock: int = Field(ge=0)
    """The clock of the newest record."""
    count: int = Field(ge=0)
    """The number of records in it: messages and changes."""


class SegmentRecord(Record):
    """A sealed segment of messages, as the head of a conversation's segments names it."""

    end: int
    lanes: dict[str, LaneRecord]
    """How far the segment reaches into each lane."""
    parts: dict[str, str]
    """A hash of each part, by name."""


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
    """From this position on large messages have their media; None in a record of before there was
    this."""
    summary: tuple[SummaryLine, ...]
    arc: tuple[SummaryLine, ...]
    waiting: tuple[str, ...] = ()
    """Hashes of the spans that a model had not written about yet."""
    clipped: bool = False
    """True where all is verbatim, but for messages that are too large and shown in short."""
    begun: int = 0
    """The number of messages when it was made: the human ones behind it stand with the blocks they
    were sent with."""
    prefix: str = ""
    """A digest of what stands before the messages, and of the tools."""
    at: datetime | None = None
    level_tokens: int = 0
    """The most that the prompt could cost for which it was made."""
    preferences_tokens: int = 0
    """The most that preferences and facts about the user may cost in front of it."""
    left_out: tuple[int, int] = (0, 0)
    """The first of the messages behind it that are left out since, and the one behind the last."""
    saved_tokens: int = 0
    """Tokens that prompts had saved, compared with sending everything, when there were
    `saved_until` messages."""
    saved_until: int = 0
    long: int = 0
    turn_tokens: int = 0
    turn_groups: int = 0
    """The stage of the turn, its room, and the number of its groups, when it was made."""


class CutsRecord(Record):
    """The cuts of a conversation that are in use, the one used last at the end."""

    cuts: tuple[CutRecord, ...]


class SnapshotRecord(Record):
    """The facts about the user that a conversation shows until its snapshot is renewed."""

    facts: tuple[tuple[str, str], ...] = ()
    """The id of each, and a fingerprint of its text: a deleted fact must not live on here."""
    edited: str = ""
    """The mark of the user's last change by hand that is part of it."""


class PinsRecord(Record):
    """The preservation that `pin` asked for, by message id."""

    pins: dict[str, Preservation] = {}


def settings_place(user_id: str, persona_id: str | None) -> GetOp:
    """Returns where settings are kept, always within the user's own labels."""
    key = "user" if persona_id is None else f"persona {label(require_id('persona_id', persona_id))}"
    return GetOp((ROOT, label(require_id("user_id", user_id)), SETTINGS), key)


def settings_in(item: object) -> dict[str, Any]:
    """Returns the settings in a stored item; none where there is none."""
    return deepcopy(stored(item.value)) if isinstance(item, Item) else {}


def read_settings(store: BaseStore, at: GetOp) -> Flow[dict[str, Any]]:
    """Reads saved settings."""
    [found] = yield from batch(store, [at])
    return settings_in(found)


def write_settings(store: BaseStore, at: GetOp, changes: Mapping[str, Any]) -> Flow[None]:
    """Saves settings over those that are there; an empty mapping removes them."""
    try:
        plain = json.loads(json.dumps(dict(changes)))
    except (TypeError, ValueError) as error:
        raise InvalidSettingsError(
            f"Settings can be saved as plain data only ({error}): give a strategy as its name or a mapping; a layer "
            f"with a function belongs into the pipeline's settings"
        ) from error
    yield from batch(
        store, [PutOp(at.namespace, at.key, storable(plain) if plain else None, index=False)]
    )


def utc_now() -> datetime:
    """Returns the time in UTC."""
    return datetime.now(UTC)


def with_offset(clock: Clock) -> Clock:
    """Returns a clock whose times have an offset; times without one are taken as UTC."""
    if not callable(clock):
        raise InvalidSettingsError(f"clock must be a function that gives the time, not {clock!r}")

    def now() -> datetime:
        time = clock()
        if not isinstance(time, datetime):
            raise InvalidSettingsError(
                f"clock must give a datetime, not {time!r}: for instance datetime.now(UTC)"
            )
        return time if time.utcoffset() is not None else time.replace(tzinfo=UTC)

    return now


def utc(time: datetime) -> datetime:
    """Returns a time in UTC; one without an offset is UTC already."""
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
