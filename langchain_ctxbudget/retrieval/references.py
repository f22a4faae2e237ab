"""References by which messages of a conversation are looked up.

A reference names messages as the report's coverage numbers them, from 1 on: `#41`, `#41-60`,
`#41:10-20` for lines 10 to 20, and `#41@1200` from its character 1,200 on.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import dropwhile

from langchain_core.messages import (
    BaseMessage,
    BaseMessageChunk,
    SystemMessage,
    ToolMessage,
    message_chunk_to_message,
)

from langchain_ctxbudget.history import Conversation, Entry
from langchain_ctxbudget.messages import content_id, date_of, fences, fingerprint, is_user

_NUMBER = "[0-9]{1,12}"
_TO = rf"(?:\s*(?:[-\u2010-\u2015]|to)\s*#?({_NUMBER}))?"
_NUMBERS = re.compile(rf"(?:messages?\s*)?#?({_NUMBER})(?:@({_NUMBER}))?{_TO}", re.IGNORECASE)
_LINES = re.compile(rf"(.+):({_NUMBER}){_TO}", re.IGNORECASE)
_QUOTATION = "\"'`“”‘’[]() \t\r\n."  # noqa: RUF001 - what models put around a reference
LINE_BREAK = re.compile(r"(\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])")


@dataclass(frozen=True, slots=True)
class Transcript:
    """The messages of a conversation by position.

    First the stored ones, then those that only an agent's state has.
    """

    conversation: Conversation
    rest: Sequence[Entry] = ()
    question: str | None = None
    """The id of the one that the current turn is to answer, where it is not stored."""
    tool: str = ""
    """The name of the recall tool, whose calls and results are not found."""

    @classmethod
    def of(
        cls, conversation: Conversation, state: Sequence[BaseMessage] | None, *, tool: str
    ) -> "Transcript":
        """Returns what can be quoted now.

        Args:
            conversation: The stored messages.
            state: The messages of an agent; where it has none, those of the last turn.
            tool: The name of the recall tool.
        """
        if state is None:
            state = conversation.last.turn if conversation.last else ()
        rest = _entries_not_stored(conversation, state)
        questions = [entry.id for entry in rest if is_user(entry.message)]
        return cls(conversation, rest, questions[-1] if questions else None, tool)

    def __len__(self) -> int:
        return len(self.conversation.entries) + len(self.rest)

    def __getitem__(self, position: int) -> Entry:
        stored = self.conversation.entries
        if position < len(stored):
            return stored[position]
        return self.rest[position - len(stored)]

    def position(self, message_id: str) -> int | None:
        """Returns where a message stands, or None where there is none of this id."""
        stored = self.conversation.position(message_id)
        if stored is not None:
            return stored
        first = len(self.conversation.entries)
        positions = {entry.id: position for position, entry in enumerate(self.rest, first)}
        return positions.get(message_id)

    def is_searched(self, position: int) -> bool:
        """Tells whether a query may find a message.

        It finds nothing that is dropped, and nothing that repeats the query.
        """
        entry = self[position]
        if not entry.text or entry.preservation == "drop" or entry.id == self.question:
            return False
        message = entry.message
        if isinstance(message, ToolMessage) and message.name == self.tool:
            return False
        return all(call["name"] != self.tool for call in getattr(message, "tool_calls", ()))


def _entries_not_stored(conversation: Conversation, state: Sequence[object]) -> list[Entry]:
    """Returns the messages of a state that the conversation does not have.

    System messages at its beginning are left out.
    """
    entries: dict[str, Entry] = {}
    date = conversation.entries[-1].date if conversation.entries else None
    for message in dropwhile(lambda message: isinstance(message, SystemMessage), state):
        if not isinstance(message, BaseMessage):
            continue
        if conversation.position(message.id) is not None:
            continue
        print_of_message = fingerprint(message)
        key = message.id
        if not key and not conversation.table.times_said(print_of_message):
            # Without an id, a message is new where the conversation has none that says the same.
            key = content_id(print_of_message, 1)
        if not key:
            continue
        whole = message
        if isinstance(message, BaseMessageChunk):
            whole = message_chunk_to_message(message)
        date = date_of(whole) or date
        entries[key] = Entry(
            source="",
            message=whole.model_copy(update={"id": key}),
            fingerprint=print_of_message,
            digest="",
            date=date,
            safe_cut=False,
            date_shown=None,
        )
    return list(entries.values())


@dataclass(frozen=True, slots=True)
class Reference:
    """Messages by position, and the characters of the first one to begin at and to end before."""

    first: int
    last: int
    offset: int = 0
    """The first character, of the first message."""
    end: int | None = None
    """The character to end before, where it names lines."""
    lines: str = ""
    """The lines as the reference names them, `:10-20`."""

    def __str__(self) -> str:
        """The form in which the next call can pass it."""
        offset = f"@{self.offset}" if self.offset else ""
        place = f"#{self.first + 1}{offset}{self.lines}"
        if self.first == self.last:
            return place
        return f"{place}-{self.last + 1}"


def resolved(transcript: Transcript, reference: str) -> Reference | None:
    """Returns the messages that a reference names, or the lines of one; None if there are none."""
    named = _messages_named(transcript, reference)
    if named is not None:
        return named
    match = _LINES.fullmatch(reference.strip(_QUOTATION))
    if match is None:
        return None
    named = _messages_named(transcript, match[1])
    if named is None:
        return None
    first_line, last_line = sorted((int(match[2]), int(match[3] or match[2])))
    return _lines_of(transcript, named, first_line, last_line)


def _messages_named(transcript: Transcript, reference: str) -> Reference | None:
    """Returns the messages that a reference names by number or id.

    `#` begins a number. Without it ids come first, which may look like a number.
    """
    plain = reference.strip(_QUOTATION)
    numbered = _messages_numbered(transcript, plain)
    if numbered is not None and plain.startswith("#"):
        return numbered
    position = transcript.position(plain)
    if position is None:
        return numbered
    return Reference(position, position)


def _messages_numbered(transcript: Transcript, reference: str) -> Reference | None:
    """Returns the messages that a reference names by their numbers, from 1 on."""
    match = _NUMBERS.fullmatch(reference)
    if match is None:
        return None
    first, last = sorted((int(match[1]), int(match[3] or match[1])))
    if not 1 <= first <= len(transcript):
        return None
    return Reference(first - 1, min(last, len(transcript)) - 1, offset=int(match[2] or 0))


def _lines_of(
    transcript: Transcript, message: Reference, first_line: int, last_line: int
) -> Reference:
    """Returns some lines of a message, by their numbers from 1 on."""
    text = fences.as_data(transcript[message.first].text)
    starts = [0, *(found.end() for found in LINE_BREAK.finditer(text))]
    first = min(max(1, first_line), len(starts))
    last = min(max(1, last_line), len(starts))
    return Reference(
        message.first,
        message.first,
        offset=max(message.offset, starts[first - 1]),
        end=starts[last] if last < len(starts) else None,
        lines=f":{first}-{last}",
    )
