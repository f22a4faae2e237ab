"""The messages of a conversation, and columns with a value for each of them.

They only ever grow.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields
from datetime import timedelta
from functools import cached_property
from itertools import islice
from typing import Any, Self, TypeVar, overload

import numpy as np
from langchain_core.messages import BaseMessage
from numpy.typing import NDArray

from langchain_ctxbudget import messages, search
from langchain_ctxbudget.content import listed_calls, with_text_in_front, without_thoughts
from langchain_ctxbudget.history.extractive import Line
from langchain_ctxbudget.messages import (
    Preservation,
    digest,
    fold,
    is_user,
    one_line,
    terms,
    time_of,
    without_machine_text,
)
from langchain_ctxbudget.providers import accepted_name, in_accepted_form, with_name_as_sent
from langchain_ctxbudget.search import subjects
from langchain_ctxbudget.sentences import Said
from langchain_ctxbudget.stores import CHUNK
from langchain_ctxbudget.tokens import TokenCounter

SESSION_GAP = timedelta(hours=4)
"""A longer silence ends a session, as the end of a day does."""
MOST_QUOTED_CHARACTERS = 4_000
"""The cost of quoting a longer message is counted only when it is asked for: it may never be quoted
whole."""
UNKNOWN = -1

T = TypeVar("T")
W = TypeVar("W", str, str | None)
Clips = dict[tuple[int, int, bool], tuple[BaseMessage, int]]
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Entry:
    """One message and everything that is derived from it, except its costs."""

    source: str
    """The JSON of its record."""
    message: BaseMessage
    """The message, under the id that it goes by."""
    fingerprint: str
    digest: str
    """A digest of this message and all before it."""
    date: str | None
    """Its day, or the day of the last message before it that has one."""
    safe_cut: bool
    """True if a cut before it leaves calls and results together."""
    date_shown: str | None
    """The date that the messages before it stand under."""
    pinned: Preservation | None = None
    """The preservation that somebody has pinned it with."""

    @property
    def id(self) -> str:
        """The id that it goes by."""
        return str(self.message.id)

    @cached_property
    def preservation(self) -> Preservation | None:
        """The preservation that the application wants.

        That of `pin` outweighs that of the message.
        """
        return self.pinned or messages.preservation_of(self.message)

    @cached_property
    def sent_message(self) -> BaseMessage:
        """The message as it is sent.

        A user's message has its date above it where that is new, and the speaker's name where no
        provider accepts it as one.
        """
        named = with_name_as_sent(self.message)
        sent = with_text_in_front(named, self._heading)
        return messages.excerpt(sent) if self.preservation == "summarize" else sent

    @property
    def _heading(self) -> str:
        """The line above the message; empty where it needs none."""
        if not messages.is_user(self.message):
            return ""
        parts: list[str] = []
        date = messages.date_of(self.message)
        if date and date != self.date_shown:
            parts.append(date)
        name = self.message.name
        if name and accepted_name(name) is None:
            parts.append(one_line(name))
        return f"[{', '.join(parts)}]\n" if parts else ""

    @cached_property
    def speaker(self) -> str:
        """The name of who says it, else the role."""
        return messages.speaker(self.message)

    @cached_property
    def text(self) -> str:
        """Its words."""
        return messages.plain_text(self.message)

    @cached_property
    def own_words(self) -> str:
        """What somebody says in it themselves."""
        return messages.own_words(self.message)

    def quoted(self, reference: str = "") -> str:
        """Returns the line that quotes the message."""
        return messages.fences.item(self.speaker, self.text, reference)

    def as_line(self, position: int, said: tuple[Said, ...] = ()) -> Line:
        """Returns the message as a summariser reads it; one that is to be dropped says nothing.

        Args:
            position: Its position.
            said: What the sentences of a user's own words are.
        """
        from_user = messages.is_user(self.message)
        if self.preservation == "drop":
            return Line(position, self.speaker, self.date, "", from_user)
        return Line(
            position=position,
            speaker=self.speaker,
            date=self.date,
            text=self.text,
            from_user=from_user,
            own_words=self.own_words if from_user else "",
            said=said,
            calls_tools=bool(listed_calls(self.message)),
        )


class EntryWithoutThoughts(Entry):
    """A message whose thoughts are not sent, as what stood before them has changed."""

    @cached_property
    def sent_message(self) -> BaseMessage:
        """The message as it is sent, without its thoughts."""
        return without_thoughts(super().sent_message)


class PartlyHeld(Sequence[T]):
    """A sequence that holds some of its items, and looks up the others."""

    held: dict[int, T]
    """Those that it holds, by position."""
    _look_up: Callable[[int], T]
    """Returns the item at a position at which none is held."""

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> list[T]: ...
    def __getitem__(self, at: int | slice) -> T | list[T]:
        if isinstance(at, slice):
            return [self._item(position) for position in range(*at.indices(len(self)))]
        if at in self.held:
            return self.held[at]
        return self._item(range(len(self))[at])

    def _item(self, position: int) -> T:
        return self.held.get(position) or self._look_up(position)


class PartlyReplaced(PartlyHeld[T]):
    """A sequence with other items at some positions."""

    def __init__(self, items: Sequence[T], replaced: dict[int, T]) -> None:
        self._items = items
        self.held = replaced
        self._look_up = items.__getitem__

    def __len__(self) -> int:
        return len(self._items)


class Beginning(Sequence[T]):
    """The beginning of a list that is only ever added to, as long as the list is now.

    Nothing is copied.
    """

    def __init__(self, items: Sequence[T], length: int | None = None) -> None:
        self._items = items
        self._length = len(items) if length is None else length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> list[T]: ...
    def __getitem__(self, at: int | slice) -> T | list[T]:
        if isinstance(at, slice):
            return [self._items[position] for position in range(*at.indices(self._length))]
        if 0 <= at < self._length:
            return self._items[at]
        return self._items[range(self._length)[at]]


class Numbering(dict[W, int]):
    """A number for every word, from 0, in the order in which they are asked for."""

    def __missing__(self, word: W) -> int:
        number = len(self)
        self[word] = number
        return number

    def word(self, number: int) -> W:
        """Returns the word that a number stands for."""
        return next(islice(self, number, None))


def coded(numbers: NDArray[np.int32], words: Sequence[W]) -> tuple[list[W], NDArray[np.intp]]:
    """Returns the words that some numbers stand for, each once, and each number's place there."""
    used_numbers, places = np.unique(numbers, return_inverse=True)
    return [words[number] for number in used_numbers.tolist()], places


class Columns:
    """An object whose attributes of type `Rows` have a row for every message."""

    def rows(self) -> dict[str, search.Rows]:
        """Returns the columns by name."""
        return {name: rows for name, rows in vars(self).items() if isinstance(rows, search.Rows)}

    def arrays(self, first: int, end: int) -> dict[str, NDArray[Any]]:
        """Returns what the columns say of some messages."""
        return {name: rows.values[first:end].copy() for name, rows in self.rows().items()}

    def extend(self, arrays: Arrays) -> None:
        """Takes in what columns said of messages that come next."""
        for name, rows in self.rows().items():
            if name in arrays:
                rows.extend(arrays[name])

    def take_columns(self, other: "Columns", length: int) -> None:
        """Takes what another object's columns say of the first messages."""
        for name, rows in other.rows().items():
            first_rows = deepcopy(rows)
            first_rows.truncate(length)
            setattr(self, name, first_rows)


class Costs(Columns):
    """The cost of every message by one counter, in tokens."""

    def __init__(self) -> None:
        self.column = search.Rows(np.int32)
        """Its cost as a message of a prompt, framing included; 0 where it is left out of every
        prompt."""
        self.quote = search.Rows(np.int32)
        """Its cost as a line that quotes it; `UNKNOWN` until that is counted."""
        self.numbered_quote = search.Rows(np.int32)
        """Its cost as a line that quotes it with its number; `UNKNOWN` until that is counted."""
        self.clips: Clips = {}
        """Messages as they were clipped, and their costs, by position and limit."""
        self.bare: dict[int, tuple[Entry, int]] = {}
        """Messages without their thoughts, and their costs, by position, where that was asked."""

    def grow(self, entries: Sequence[Entry], counter: TokenCounter) -> None:
        """Counts the messages that are new.

        With a local counter, also the lines that would quote them.
        """
        # Messages whose pins have changed are shown otherwise now.
        for position in np.flatnonzero(self.column.values == UNKNOWN).tolist():
            self.column.values[position] = _cost(entries[position], counter)

        for new_entries in _few_at_a_time(entries, len(self.column)):
            self.column.extend([_cost(entry, counter) for entry in new_entries])
            self.numbered_quote.extend([UNKNOWN] * len(new_entries))
            self.quote.extend([_quote_cost(entry, counter) for entry in new_entries])

    def without_thoughts(
        self, position: int, entry: Entry, counter: TokenCounter
    ) -> tuple[Entry, int]:
        """Returns a message without its thoughts, and its cost then, in tokens."""
        if position not in self.bare:
            bare = EntryWithoutThoughts(
                **{field.name: getattr(entry, field.name) for field in fields(entry)}
            )
            self.bare[position] = (bare, _cost(bare, counter))
        return self.bare[position]

    def changed(self, length: int, positions: Sequence[int]) -> "Costs":
        """Returns the costs of the first messages.

        Those at `positions` (ascending) have changed, and are counted anew.
        """
        other = Costs()
        other.take_columns(self, length)
        for position in positions:
            if position < len(other.column):
                other.column.values[position] = UNKNOWN
        first_changed = positions[0] if positions else length
        other.clips = {key: clip for key, clip in self.clips.items() if key[0] < first_changed}
        other.bare = {at: entry for at, entry in self.bare.items() if at < first_changed}
        return other


def _few_at_a_time(entries: Sequence[Entry], first: int) -> Iterator[Sequence[Entry]]:
    """Yields the messages from a position on, a few at a time: most may have to be inflated."""
    for start in range(first, len(entries), CHUNK):
        yield entries[start : start + CHUNK]


def _cost(entry: Entry, counter: TokenCounter) -> int:
    """Returns what a message costs in a prompt, in tokens."""
    if entry.preservation == "drop":
        return 0
    return counter.count_alone(in_accepted_form(entry.sent_message))


def _quote_cost(entry: Entry, counter: TokenCounter) -> int:
    """Returns what the line that quotes a message costs, if that is counted ahead."""
    if counter.is_local and len(entry.text) <= MOST_QUOTED_CHARACTERS:
        return counter.count_text(entry.quoted())
    return UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class _IndexRow:
    """What the columns of an index say of one message."""

    session: int
    speaker: int
    day: int
    first_person: float
    limit: float
    saying: int
    folded: int
    text: int
    asks: bool

    @classmethod
    def of(cls, entry: Entry, session: int, speaker: int) -> Self:
        """Returns what is known of a message; session and speaker are numbers."""
        asked = without_machine_text(entry.text) if is_user(entry.message) else ""
        saying_digest, folded_digest = saying(entry.speaker, entry.text)
        return cls(
            session=session,
            speaker=speaker,
            day=search.day_number(entry.date),
            first_person=search.first_person(entry.text),
            limit=search.limit(asked or entry.text, from_user=bool(asked)),
            saying=saying_digest,
            folded=folded_digest,
            text=short_digest(entry.text),
            asks="?" in (asked if is_user(entry.message) else entry.text),
        )


class MessageIndex(Columns):
    """The words, vectors and circumstances of messages, for retrieval.

    Read when they are first searched.
    """

    def __init__(self) -> None:
        self.lexical = search.LexicalIndex()
        self.vectors = search.CentredVectors()
        self.speakers: Numbering[str] = Numbering()
        self.text_digests: set[int] = set()
        """Digests of all texts."""
        self.vectors_by = ""
        """The name of the embeddings that made the vectors."""
        self.encoded = search.CentredVectors()
        """Sentence vectors of the first messages: those that are encoded already."""
        self.encoded_by = ""
        """The name of the encoder that made them."""

        # The columns: each has a row for every message. Segments store them under these names.
        self.days = search.Rows(np.int32)
        self._session = search.Rows(np.int32)
        """The number of the session that a message belongs to."""
        self.speaker = search.Rows(np.int32)
        """The number of the speaker."""
        self._first_person = search.Rows(np.float32)
        """The share of words that the speaker says of themselves."""
        self._limits = search.Rows(np.float32)
        """The cosine below which a message begins a subject, by its words."""
        self.links = search.Rows(np.float32)
        """The cosine of the messages before and behind the place in front of a message."""
        self.sayings = search.Rows(np.int64)
        """Digests of who says it and what."""
        self.folded = search.Rows(np.int64)
        """Digests of what is said, in one form."""
        self._said = search.Rows(np.int64)
        """Digests of the texts."""
        self.asks = search.Rows(np.bool_)
        """Whether a message has a question."""

        self._subjects: search.Numbers = np.zeros(0, np.int32)
        self._settled = 0
        """The number of messages whose subjects are known for good."""
        self._usual_limit = 0.0
        """The cosine below which one of the user's messages begins a subject, by the links of the
        settled messages."""

    def __len__(self) -> int:
        return len(self._session)

    def read(self, entries: Sequence[Entry]) -> None:
        """Takes in the messages that are new at the end of a conversation."""
        for new_entries in _few_at_a_time(entries, len(self)):
            self._read(entries, new_entries)

    def _read(self, entries: Sequence[Entry], new_entries: Sequence[Entry]) -> None:
        """Takes in the messages that come next, some of all entries."""
        start = len(self)
        self.lexical.extend(
            terms(searched_text(entry.speaker, entry.text)) for entry in new_entries
        )
        session = int(self._session.values[-1]) if start else 0
        rows: list[_IndexRow] = []
        for position, entry in enumerate(new_entries, start):
            if position > 0 and _begins_session(entries[position - 1], entry):
                session += 1
            rows.append(_IndexRow.of(entry, session, self.speakers[entry.speaker]))

        columns = {
            "session": self._session,
            "speaker": self.speaker,
            "day": self.days,
            "first_person": self._first_person,
            "limit": self._limits,
            "saying": self.sayings,
            "folded": self.folded,
            "text": self._said,
            "asks": self.asks,
        }
        for name, column in columns.items():
            column.extend([getattr(row, name) for row in rows])
        self.text_digests.update(row.text for row in rows)

    def speaker_of(self, position: int) -> str:
        """Returns the name of who says a message, else the role."""
        return list(self.speakers)[int(self.speaker.values[position])]

    def known_of(self, position: int) -> tuple[int, int, int, float]:
        """Returns what is known of a message.

        These are digests of its text, of who says what, and of what is said in one form; and the
        share of the first person.
        """
        return (
            int(self._said.values[position]),
            int(self.sayings.values[position]),
            int(self.folded.values[position]),
            float(self._first_person.values[position]),
        )

    def texts(
        self, costs: search.Numbers, places: NDArray[np.intp], session: search.Numbers
    ) -> search.Texts:
        """Returns the features of the messages at `places`.

        `costs` and `session` have a value for every message.
        """
        sessions = session[places]
        begins_session = sessions != session[places - 1]
        return search.Texts(
            session=sessions,
            costs=costs[places],
            distinct_terms=self.lexical.distinct_terms[places],
            speaker=self.speaker.values[places],
            first_person=self._first_person.values[places],
            day=self.days.values[places],
            place=places,
            opens=(places == 0) | begins_session,
        )

    def subjects(self) -> search.Numbers:
        """Returns the number of every message's subject.

        A session is a subject, or several where another one begins within it.
        """
        self._extend_links()
        self._renew_usual_limit()
        settled = min(self._settled, len(self._subjects))
        first = max(0, settled - 1)
        numbers = subjects(
            self._session.values[first:],
            self.links.values[first:],
            self._limits.values[first:],
            self._usual_limit,
        )
        if settled:  # they are counted on from the last one that is known
            numbers += self._subjects[settled - 1] - numbers[0]
        self._subjects = np.concatenate((self._subjects[:first], numbers))
        self._settled = self.final_vectors
        return self._subjects

    def _extend_links(self) -> None:
        """Works out the links of messages that have got vectors."""
        if len(self.vectors) <= len(self.links):
            return
        # The last links depend on what follows them.
        self.links.truncate(max(0, len(self.links) - search.AFTER + 1))
        start = len(self.links)
        first = max(0, start - search.BEFORE)
        vectors = self.vectors.at(slice(first, None))
        self.links.extend(search.links(vectors, start - first))

    def _renew_usual_limit(self) -> None:
        """Works out the limit again where more links count for it.

        Then no message's subject is settled any more.
        """
        counted_before = search.texts_in_mean(self._settled)
        counted = search.texts_in_mean(self.final_vectors)
        if self._settled < search.FEW or counted != counted_before:
            self._usual_limit = search.usual_limit(
                self._session.values, self.links.values[: self.final_vectors]
            )
            self._settled = 0

    def texts_to_embed(self, entries: Sequence[Entry]) -> list[str]:
        """Returns the first texts that have no vector yet; none where all have one.

        Not all at once: the lists that embeddings return take eight times the memory of vectors.
        """
        start = len(self.vectors)
        return [entry.text for entry in entries[start : start + CHUNK]]

    def first(self, length: int) -> "MessageIndex":
        """Returns the index of the first messages alone; words are read again, vectors stay."""
        if length >= max(len(self), len(self.vectors), len(self.encoded)):
            return self
        other = MessageIndex()
        other.take_columns(self, length)
        other.links.truncate(max(0, length - search.AFTER + 1))
        other.vectors = deepcopy(self.vectors)
        other.vectors_by = self.vectors_by
        other.vectors.truncate(length)
        other.encoded = deepcopy(self.encoded)
        other.encoded_by = self.encoded_by
        other.encoded.truncate(length)
        other.lexical = self.lexical.first(length)
        last_speaker = int(other.speaker.values.max(initial=UNKNOWN))
        other.speakers.update(
            (name, number) for name, number in self.speakers.items() if number <= last_speaker
        )
        other.text_digests = set(other._said.values.tolist())
        return other

    def packed(
        self, first: int, end: int, entries: Sequence[Entry]
    ) -> tuple[dict[str, Any], Arrays]:
        """Returns the columns of some messages, except their vectors, as plain data and arrays."""
        arrays = self.arrays(first, end)
        speakers, arrays["speaker"] = coded(arrays["speaker"], list(self.speakers))
        del arrays["links"]
        terms_of_each = [
            terms(searched_text(entry.speaker, entry.text)) for entry in entries[first:end]
        ]
        words, word_arrays = self.lexical.packed(terms_of_each, first)
        return {"speakers": speakers, "terms": words}, {**arrays, **word_arrays}

    def unpack(self, data: Mapping[str, Any], arrays: Arrays) -> search.PackedTerms:
        """Takes in the packed columns of the next messages.

        Returns their words, which are restored all together.
        """
        speakers = np.array([self.speakers[name] for name in data["speakers"]])
        self.extend({**arrays, "speaker": speakers[arrays["speaker"]]})
        self.text_digests.update(arrays["_said"].tolist())
        return data["terms"], {name: arrays[name].copy() for name in search.PACKED}

    @property
    def final_vectors(self) -> int:
        """The number of messages whose vectors and links will not change."""
        return max(0, min(len(self.vectors), len(self.links) + 1 - search.AFTER))

    def embedded_by(self, name: str) -> bool:
        """Notes which embeddings make the vectors.

        Returns True if vectors of other embeddings were dropped for it.
        """
        is_other = self.vectors_by not in ("", name)
        self.vectors_by = name
        if is_other:
            self.vectors = search.CentredVectors()
            self.links.truncate(0)
            self._settled = 0
        return is_other

    def encoded_with(self, name: str) -> None:
        """Notes which encoder makes the sentence vectors; those of another one are dropped."""
        if self.encoded_by not in ("", name):
            self.encoded = search.CentredVectors()
        self.encoded_by = name

    def texts_to_encode(self, entries: Sequence[Entry], most: int) -> list[str]:
        """Returns the first few texts that have no sentence vector yet."""
        start = len(self.encoded)
        return [entry.text for entry in entries[start : start + most]]


def searched_text(speaker: str, text: str) -> str:
    """Returns a text with the name of who said it, where that is a name."""
    return f"{speaker} {text}" if search.is_name(speaker) else text


def saying(speaker: str, text: str) -> tuple[int, int]:
    """Returns digests by which repetitions are known.

    One is of who says something and what, one of what is said.
    """
    folded = one_line(fold(text))
    return short_digest(f"{speaker}\0{folded}"), short_digest(folded)


def short_digest(text: str) -> int:
    """Returns a number that stands for a text."""
    return int.from_bytes(digest(text)[:8], "little", signed=True)


def _begins_session(before: Entry, entry: Entry) -> bool:
    """Returns whether a message begins another session than the message before it is in."""
    if before.date != entry.date:
        return True
    earlier = time_of(before.message)
    later = time_of(entry.message)
    return earlier is not None and later is not None and later - earlier > SESSION_GAP
