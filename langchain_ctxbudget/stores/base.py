"""What all records share: their labels, a form that all stores can hold, users, conversations."""

import json
from dataclasses import dataclass
from typing import Any, ClassVar, Self
from urllib.parse import quote, unquote
from uuid import uuid4

from langgraph.store.base import GetOp, Item, PutOp
from pydantic import BaseModel, ConfigDict

from langchain_ctxbudget.errors import ForeignUserError, MissingScopeError, StoreDataError
from langchain_ctxbudget.messages import digest, encodable

ROOT = "ctxbudget"
"""The first label of everything that is stored."""
TITLE = "title"
"""The kind of the record with a conversation's title."""
AS_TEXT = "json"
"""The only key of a value that is stored as one text."""
LONGEST_LABEL = 200
"""Characters of a label that are kept of a text; a longer one ends with a hash."""


# Labels and values


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


def to_stored(value: dict[str, Any]) -> dict[str, Any]:
    """Returns a value that every store can hold.

    PostgreSQL refuses NUL and half of a surrogate pair in texts.
    """
    text = json.dumps(value, ensure_ascii=False)
    if "\\u0000" in text or encodable(text) != text:
        return {AS_TEXT: json.dumps(value)}
    return value


def from_stored(value: dict[str, Any]) -> dict[str, Any]:
    """Returns the value that `to_stored` was given; a damaged one is returned as it is."""
    if value.keys() != {AS_TEXT}:
        return value
    try:
        return dict(json.loads(value[AS_TEXT]))
    except (TypeError, ValueError):
        return value


# Users and conversations


def user_of(name: str) -> str | None:
    """Returns the id of the user whose records have a label; None where it is in short, or none's.

    >>> user_of(label("ada@example.com"))
    'ada@example.com'
    """
    text = unlabelled(name)
    if text.startswith(SharedThread.BEGINNING):
        text = SharedThread(text)
    return text if label(text) == name else None


class SharedThread(str):
    """The user id that stands for everybody in a thread that people share; no user can have it.

    Texts of this form are refused as ids of users, unless they are of this type.
    """

    __slots__ = ()
    BEGINNING: ClassVar[str] = "ctxbudget-shared-thread "

    @classmethod
    def of(cls, thread_id: str) -> Self:
        """Returns the user id of a thread; each thread has its own."""
        return cls(cls.BEGINNING + digest(thread_id).hex())


def require_id(name: str, value: object) -> str:
    """Returns an id that is a text.

    Args:
        name: what it is the id of, as the parameter is called.
        value: the id.

    Raises:
        MissingScopeError: it is no text, or empty.
        ForeignUserError: a user's id has the form of a shared thread's.
    """
    if not isinstance(value, str) or not value:
        raise MissingScopeError(
            f"{name} must be a non-empty string, not {value!r}: it is part of every read and write"
        )
    has_shared_form = value.startswith(SharedThread.BEGINNING)
    if name == "user_id" and has_shared_form and not isinstance(value, SharedThread):
        raise ForeignUserError(
            f"user_id cannot be {value!r}: it stands for a thread that people share; "
            "`shared_conversation` gives that"
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

    @property
    def path(self) -> tuple[str, ...]:
        """The path of everything that is stored of this conversation, of whatever kind."""
        return self.namespace("*")

    def place(self, kind: str) -> GetOp:
        """Returns the place of this conversation's only record of a kind."""
        return GetOp(self.namespace(kind), kind)


# Records


class Record(BaseModel):
    """The base of every record: immutable, no unknown fields."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", defer_build=True, validate_by_name=True, validate_by_alias=True
    )

    @classmethod
    def read(cls, value: dict[str, Any], where: str) -> Self:
        """Reads a record from its stored form.

        Args:
            value: the stored form.
            where: the place of the record, for errors.

        Raises:
            StoreDataError: it is no such record.
        """
        try:
            return cls.model_validate(from_stored(value))
        except (TypeError, ValueError) as error:
            raise StoreDataError(f"{where} is not a {cls.__name__}: {error}") from error

    @classmethod
    def of_item(cls, item: object) -> Self | None:
        """Reads the record that a `GetOp` has found; None where it has found none."""
        if not isinstance(item, Item):
            return None
        return cls.read(item.value, f"{item.key!r} in {'/'.join(item.namespace)}")

    def to_value(self) -> dict[str, Any]:
        """Returns the form in which it is stored."""
        return to_stored(self.model_dump(mode="json", by_alias=True))


def put_of(place: GetOp, record: Record | None) -> PutOp:
    """Returns the write of a record at a place; None removes the record there."""
    value: dict[str, Any] | None = None
    if record is not None:
        value = record.to_value()
    return PutOp(place.namespace, place.key, value, index=False)


def new_token() -> str:
    """Returns a text that no other call has returned or will return."""
    return uuid4().hex
