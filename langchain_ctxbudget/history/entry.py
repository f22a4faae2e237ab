"""One message of a conversation, and everything about it that does not depend on how tokens are counted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, NamedTuple, overload

import numpy as np
from langchain_core.messages import BaseMessage, ToolMessage
from numpy.typing import NDArray

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
from langchain_ctxbudget.search import Rows
from langchain_ctxbudget.stores import MessageRecord, Place

MOST_DECODED = 4_096
"""Messages of sealed blocks that stay decoded after somebody has looked at them."""
NO_CALLS = OpenCalls()
NO_WORD = -1
FACTS = np.dtype(
    [
        *((name, np.int64) for name in ("clock", "number", "state")),
        *((name, np.int32) for name in ("lane", "date", "date_shown")),
        *((name, np.bool_) for name in ("named", "safe_cut")),
        *((name, "S32") for name in ("fingerprint", "digest")),
    ]
)
"""What is known of a message without its text; lanes and dates are numbers of words."""
CODED = ("lane", "date", "date_shown")


class Known(NamedTuple):
    """What follows of a message from those before it."""

    fingerprint: str
    digest: str
    date: str | None
    date_shown: str | None
    safe_cut: bool
    open_calls: OpenCalls


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
        date, shown = date_of(message), last.date_shown if last else None
        safe, open_calls = True, last.open_calls if last else NO_CALLS
        if open_calls != NO_CALLS or not is_plain(message):  # plain words open nothing that must not be cut
            safe, open_calls = open_calls.after(message)
        said, key = fingerprint(message), str(message.id)
        chain = blake2b((last.digest if last else "").encode(), digest_size=16)
        chain.update(f"{key}\0{said}".encode(errors="surrogatepass"))
        known = Known(
            fingerprint=said,
            digest=chain.hexdigest(),
            date=date or (last.date if last else None),
            date_shown=(date if is_user(message) and date else None) or shown,
            safe_cut=safe,
            open_calls=open_calls,
        )
        return cls.read(record, message, known, shown, pinned)

    @classmethod
    def read(
        cls,
        record: MessageRecord,
        message: BaseMessage,
        known: Known,
        shown: str | None,
        pinned: Preservation | None = None,
    ) -> Entry:
        """Reads a message of which is known what follows from those before it; `shown` is the date they stand under."""
        heading = _heading(message, date_of(message), shown) if is_user(message) else None
        preservation = pinned or preservation_of(message)
        return cls(
            **known._asdict(),
            id=str(message.id),
            record=record,
            message=message,
            sent=_sent(message, heading, preservation),
            speaker=speaker(message),
            text=plain_text(message),
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


class Entries(Sequence[Entry]):
    """The messages of a conversation, only ever added to; those of sealed blocks are decoded when somebody looks."""

    def __init__(self) -> None:
        """Begins with none."""
        self.ids: list[str] = []
        self.facts = Rows(FACTS)
        self.open_calls: dict[int, OpenCalls] = {}
        """Calls that are not answered yet, by the position of the message that they are open after."""
        self._words: list[str] = []
        self._numbers: dict[str | None, int] = {None: NO_WORD}
        self._texts: list[str | None] = []
        """The JSON of sealed messages."""
        self._entries: list[Entry | None] = []
        self._decoded: dict[int, Entry] = {}

    def __len__(self) -> int:
        """Returns the number of messages."""
        return len(self.ids)

    @overload
    def __getitem__(self, at: int) -> Entry: ...
    @overload
    def __getitem__(self, at: slice) -> list[Entry]: ...
    def __getitem__(self, at: int | slice) -> Entry | list[Entry]:
        """Returns a message, or a list of some."""
        if isinstance(at, slice):
            return [self._at(position) for position in range(*at.indices(len(self)))]
        return self._at(range(len(self))[at])

    def __iter__(self) -> Iterator[Entry]:
        """Goes through the messages."""
        return map(self._at, range(len(self)))

    def _at(self, position: int) -> Entry:
        return self._entries[position] or self._decoded.get(position) or self._decode(position)

    def _decode(self, position: int) -> Entry:
        fact, place = self.facts.values[position], self.place(position)
        text = self._texts[position] or ""
        record = MessageRecord(place=place, text=text, named=bool(fact["named"]))
        message = record.to_message()
        if str(message.id) != self.ids[position]:
            message = message.model_copy(update={"id": self.ids[position]})
        known = Known(
            fingerprint=fact["fingerprint"].decode(),
            digest=fact["digest"].decode(),
            date=self._word(fact["date"]),
            date_shown=self._word(fact["date_shown"]),
            safe_cut=bool(fact["safe_cut"]),
            open_calls=self.open_calls.get(position, NO_CALLS),
        )
        shown = self._word(self.facts.values[position - 1]["date_shown"]) if position else None
        if len(self._decoded) >= MOST_DECODED:
            self._decoded = {}
        entry = self._decoded[position] = Entry.read(record, message, known, shown)
        return entry

    def _word(self, number: int) -> str | None:
        return None if number == NO_WORD else self._words[number]

    def _number(self, word: str | None) -> int:
        if word not in self._numbers:
            self._numbers[word] = len(self._words)
            self._words.append(str(word))
        return self._numbers[word]

    def peek(self, position: int) -> Entry | None:
        """Returns a message where it is decoded."""
        return self._entries[position] or self._decoded.get(position)

    def position(self, key: str) -> int | None:
        """Returns where the message of a record stands, by the record's key."""
        lane, _, number = key.rpartition("/")
        facts, code = self.facts.values, self._numbers.get(lane, NO_WORD)
        [found] = np.nonzero((facts["number"] == int(number)) & (facts["lane"] == code))
        return int(found[0]) if len(found) else None

    def before(self, marks: Mapping[str, int]) -> NDArray[np.bool_]:
        """Returns of every message whether its record is one of the first ones of its lane, so many of each lane."""
        most = np.array([marks.get(word, 0) for word in self._words] or [0])
        facts = self.facts.values
        found: NDArray[np.bool_] = facts["number"] < most[facts["lane"]]
        return found

    def reached(self, positions: Sequence[int]) -> dict[str, int]:
        """Returns how far into every lane some messages, in order, reach."""
        facts = self.facts.values[list(positions)]
        numbers = zip(facts["lane"].tolist(), facts["number"].tolist(), strict=True)
        return {self._words[lane]: number + 1 for lane, number in numbers}

    def marks(self, length: int, counts: Mapping[str, int]) -> dict[str, int]:
        """Returns how many records of every lane are before the first one of the messages after so many."""
        facts = self.facts.values[length:]
        found = dict(counts)
        for lane, number in zip(facts["lane"].tolist(), facts["number"].tolist(), strict=True):
            found[self._words[lane]] = min(found[self._words[lane]], number)
        return found

    def place(self, position: int) -> Place:
        """Returns where a message is in the log."""
        fact = self.facts.values[position]
        numbers = {name: int(fact[name]) for name in ("clock", "number", "state")}
        return Place(lane=self._words[fact["lane"]], **numbers)

    def digest(self, length: int) -> str:
        """Returns the digest of so many messages from the beginning."""
        digest: bytes = self.facts.values[length - 1]["digest"] if length else b""
        return digest.decode()

    def fingerprint(self, position: int) -> str:
        """Returns the fingerprint of a message."""
        digest: bytes = self.facts.values[position]["fingerprint"]
        return digest.decode()

    def append(self, entry: Entry) -> None:
        """Adds a message."""
        place = entry.record.place
        fact = (
            *(place.clock, place.number, place.state),
            *map(self._number, (place.lane, entry.date, entry.date_shown)),
            *(entry.record.named, entry.safe_cut, entry.fingerprint, entry.digest),
        )
        if entry.open_calls != NO_CALLS:
            self.open_calls[len(self)] = entry.open_calls
        self.facts.extend(np.array([fact], FACTS))
        self.ids.append(entry.id)
        self._texts.append(None)
        self._entries.append(entry)

    def first(self, length: int) -> Entries:
        """Returns the first ones, to grow by themselves."""
        other = Entries()
        other.ids, other._texts, other._entries = self.ids[:length], self._texts[:length], self._entries[:length]
        other.open_calls = {at: calls for at, calls in self.open_calls.items() if at < length}
        other._words, other._numbers = self._words.copy(), self._numbers.copy()
        other._decoded = {at: entry for at, entry in self._decoded.items() if at < length}
        other.facts = self.facts.copy()
        other.facts.truncate(length)
        return other

    def change(self, position: int, entry: Entry) -> None:
        """Puts the same message with another pin in its place."""
        self._entries[position] = entry

    def let_go(self, first: int, end: int, but: Collection[int]) -> None:
        """Keeps only the texts of some messages, but for those that are pinned; who shows one decodes it."""
        for position in range(first, end):
            if position not in but and (entry := self._entries[position]) is not None:
                self._texts[position], self._entries[position] = entry.record.text, None

    def packed(self, first: int, end: int) -> dict[str, Any]:
        """Returns some messages as plain data and one array."""
        facts: NDArray[Any] = self.facts.values[first:end].copy()
        words: dict[str, list[str | None]] = {}
        for name in CODED:
            used, facts[name] = np.unique(facts[name], return_inverse=True)
            words[name] = [self._word(number) for number in used]
        calls = {at - first: self.open_calls[at] for at in range(first, end) if at in self.open_calls}
        texts = [self._texts[at] or self._at(at).record.text for at in range(first, end)]
        return {
            "ids": self.ids[first:end],
            "texts": texts,
            "words": words,
            "calls": list(calls.items()),
            "facts": facts,
        }

    def unpack(
        self,
        facts: NDArray[Any],
        *,
        ids: Sequence[str],
        texts: Sequence[str],
        words: dict[str, list[str | None]],
        calls: Iterable[tuple[int, tuple[Sequence[str], Sequence[str], int]]],
    ) -> None:
        """Adds messages that were packed."""
        begin, facts = len(self), facts.copy()
        for name in CODED:
            numbers = np.array([self._number(word) for word in words[name]], np.int32)
            facts[name] = numbers[facts[name]]
        self.facts.extend(facts)
        for at, (waiting, early, age) in calls:
            self.open_calls[begin + at] = OpenCalls(tuple(waiting), tuple(early), age)
        self.ids += ids
        self._texts += texts
        self._entries += [None] * len(ids)
