"""What a reader of conversations is, and what it returns."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from json import JSONDecodeError
from typing import Any, ClassVar, TypeAlias

from langchain_core.messages import AIMessage, BaseMessage

from langchain_ctxbudget.messages import digest, fingerprint

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object, as `json.loads` returns it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadConversation:
    """One conversation as it was read."""

    conversation_id: str
    """The file's own, else `id_of_beginning`, which stays as the conversation grows."""
    title: str | None = None
    messages: list[BaseMessage]
    """In order, with `name` and `additional_kwargs["created_at"]` (ISO 8601) where the file has
    them."""
    tools: tuple[JsonObject, ...] = ()
    """The tools that the model was offered, as the file defines them."""
    notes: tuple[str, ...] = ()
    """What a user should know about the reading, such as "the file names no current message"."""
    is_dialogue: bool = True
    """False for notes and documents beside conversations, such as a memory or a project: nobody
    answers in them, so there is nothing to replay."""
    file_name: str = ""
    """The file that it was read from; within an archive or a folder, with its folders there."""
    branches: tuple["ReadConversation", ...] = ()
    """What was said on other branches: edited questions and new answers. Each is a whole
    conversation from the first message on."""

    @property
    def label(self) -> str:
        """The title; else the name of the file, and the id where the file has one."""
        if self.title or not self.file_name:
            return self.title or self.conversation_id
        if self.conversation_id == id_of_beginning(self.messages):
            return self.file_name
        return f"{self.file_name} ({self.conversation_id})"


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something in a file that could not be read."""

    name: str
    """The title or id of a conversation, else its place, such as "line 3"."""
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Unread:
    """Records of one conversation that could not be read."""

    records: Sequence[JsonObject]
    reason: str


class Reader(ABC):
    """Reads the files of one kind. It is one module, and one line in `readers.registry`.

    A record is a JSON object: an item of a list, a line of JSONL, or the whole file. All records of
    a file go to the reader that recognises the most of them.
    """

    name: ClassVar[str]
    """One word, such as "chatgpt"."""
    accepts: ClassVar[str]
    """Where such a file is from and how it is told, in half a line for the error message."""
    repeats: ClassVar[bool] = False
    """Whether a record repeats the messages before it, as a request to a model does. Of several
    such conversations, one whose messages begin another's is left out."""

    @abstractmethod
    def recognises(self, record: JsonObject) -> bool:
        """Tells if a record is of this kind, by its content. It raises nothing."""

    @abstractmethod
    def conversations(self, records: Sequence[JsonObject]) -> Iterable[ReadConversation | Unread]:
        """Returns the conversations of a file; those that cannot be read, with the reason."""


class GroupReader(Reader):
    """Reads conversations one by one.

    `groups` puts together the records of each conversation; `read` reads one such group. A group
    that cannot be read is left out, and the others are read all the same.
    """

    def conversations(self, records: Sequence[JsonObject]) -> Iterator[ReadConversation | Unread]:
        """Yields the conversation of each group, or why it cannot be read."""
        for group in self.groups(records):
            try:
                yield self.read(group)
            except READING_ERRORS as error:
                yield Unread(group, reason_of(error))

    def groups(self, records: Sequence[JsonObject]) -> Iterable[Sequence[JsonObject]]:
        """Returns the records of each conversation: one each, unless a reader says otherwise."""
        return [[record] for record in records]

    @abstractmethod
    def read(self, records: Sequence[JsonObject]) -> ReadConversation:
        """Returns the conversation that some records hold.

        Raises:
            ValueError: They cannot be read; the text says why. Any other of `READING_ERRORS`, as
                wrongly built JSON causes them, means the same.
        """


READING_ERRORS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What wrongly built JSON causes in code that reads it."""


def reason_of(error: Exception) -> str:
    """Returns the first line of what an error says, in words."""
    if isinstance(error, KeyError):
        return f"{error} is missing"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, JSONDecodeError):
        return f"is no JSON: {error}"
    if isinstance(error, UnicodeDecodeError):
        return (
            f"is no text in {error.encoding.upper()} (see byte {error.start:,}): save it as UTF-8"
        )
    if isinstance(error, RecursionError):
        return "is nested too deeply"
    return str(error).strip().partition("\n")[0] or type(error).__name__


def id_of_beginning(messages: Sequence[BaseMessage]) -> str:
    """Returns an id made of the messages up to the first answer."""
    opening = ""
    for message in messages:
        opening += fingerprint(message)
        if isinstance(message, AIMessage):
            break
    return f"conversation-{digest(opening, 8).hex()}"
