"""The messages of a conversation and what is known of each, worked out once; only ever added to.

Whatever changes messages makes another table. What depends on the model, the cost of every message, is a column of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, TypeVar, overload

import numpy as np
from langchain_core.messages import BaseMessage
from numpy.typing import NDArray

from langchain_ctxbudget.history.arc import OpenQuestions
from langchain_ctxbudget.history.entry import Entries, Entry
from langchain_ctxbudget.history.tree import KnownDigests, Tree
from langchain_ctxbudget.history.turn_blocks import TurnBlock
from langchain_ctxbudget.messages import Preservation, as_note, digest, fold, is_user, one_line, terms
from langchain_ctxbudget.search import (
    AFTER,
    CentredVectors,
    LexicalIndex,
    Numbers,
    Rows,
    Texts,
    day_number,
    first_person,
    is_name,
    limit,
    links,
    packed_terms,
    subjects,
)
from langchain_ctxbudget.stores import MessageRecord
from langchain_ctxbudget.tokens import TokenCounter

MOST_COUNTERS = 4
"""Counters whose costs are kept; the one unused for longest goes first."""
SESSION_GAP_SECONDS = 4 * 3_600
"""A longer silence ends a session, as the end of a day does."""
EMBEDDED_AT_ONCE = 2_048
"""Texts whose vectors are asked for in one call: vectors as lists take eight times the memory that they are kept in."""

MOST_READ_AHEAD = 4_000
"""A message of more characters may never be quoted whole: what that would cost is counted when it is asked."""
UNKNOWN = -1
"""Stands for a cost that was not counted yet."""

T = TypeVar("T")
Clips = dict[tuple[int, int], tuple[BaseMessage, int]]
"""Large messages as they were clipped, and what that costs, by position and limit."""


class Beginning(Sequence[T]):
    """A list that is only ever added to, as far as it went: nothing is copied."""

    __slots__ = ("_all", "_length")

    def __init__(self, every: Sequence[T], length: int | None = None) -> None:
        """Takes what is in the list by now, or less of it."""
        self._all, self._length = every, len(every) if length is None else length

    def __len__(self) -> int:
        """Returns the number of items."""
        return self._length

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> list[T]: ...
    def __getitem__(self, at: int | slice) -> T | list[T]:
        """Returns an item, or a list of some."""
        if isinstance(at, slice):
            return [self._all[i] for i in range(*at.indices(self._length))]
        if not -self._length <= at < self._length:
            raise IndexError(at)
        return self._all[at if at >= 0 else at + self._length]

    def __iter__(self) -> Iterator[T]:
        """Goes through the items."""
        return islice(self._all, self._length)


class Costs:
    """Columns of the table: what every message costs by one counter, in tokens."""

    def __init__(self, counter: TokenCounter) -> None:
        """Begins with no messages."""
        self.counter = counter
        self.tokens: list[int] = []
        self.total_tokens = 0
        self.column = Rows(np.int32)
        """Its cost as a message of a prompt, framing included; 0 of one that is left out of all."""
        self.quote, self.numbered_quote = Rows(np.int32), Rows(np.int32)
        """Its cost as a line that quotes it, also with its number; `UNKNOWN` until that is counted."""
        self.clips: Clips = {}
        self.with_blocks: dict[int, tuple[TurnBlock, BaseMessage]] = {}
        """Human messages with the blocks that they were sent with, by position."""

    def restore(self, known: Mapping[str, NDArray[Any]], entries: Sequence[Entry]) -> None:
        """Takes over what was counted before; what is `UNKNOWN` of it is counted."""
        for name, rows in columns(self).items():
            rows.extend(known[name])
        for position in np.flatnonzero(self.column.values == UNKNOWN).tolist():
            self.column.values[position] = self._of(entries[position])
        self.tokens = self.column.values.tolist()
        self.total_tokens = sum(self.tokens)

    def packed(self, first: int, end: int, pinned: Sequence[int]) -> dict[str, NDArray[Any]]:
        """Returns what some messages cost; `UNKNOWN` for those that are pinned, as pins come and go."""
        known = {name: rows.values[first:end].copy() for name, rows in columns(self).items()}
        known["column"][[position - first for position in pinned]] = UNKNOWN
        return known

    def grow(self, entries: Sequence[Entry]) -> None:
        """Counts the messages that are new, also as lines where counting costs nobody anything."""
        start, count = len(self.tokens), self.counter.count_text
        self._extend([self._of(entry) for entry in entries[start:]])
        self.numbered_quote.extend([UNKNOWN] * (len(entries) - start))
        ahead = MOST_READ_AHEAD if self.counter.is_local else -1
        self.quote.extend([count(entry.quoted()) if len(entry.text) <= ahead else UNKNOWN for entry in entries[start:]])
        for heading in {entry.date_heading for entry in entries[start:]} if self.counter.is_local else ():
            count(heading)  # the counter remembers it

    def _extend(self, tokens: list[int]) -> None:
        self.tokens += tokens
        self.total_tokens += sum(tokens)
        self.column.extend(tokens)

    def _of(self, entry: Entry) -> int:
        return 0 if entry.preservation == "drop" else self.counter.count_message(as_note(entry.sent))

    def changed(self, entries: Sequence[Entry], positions: Sequence[int]) -> Costs:
        """Returns the costs of messages of which those at some positions, ascending, are shown otherwise."""
        other = Costs(self.counter)
        tokens = self.tokens[: len(entries)]
        for position in positions:
            if position < len(tokens):
                tokens[position] = self._of(entries[position])
        other._extend(tokens)
        other.quote.extend(self.quote.values[: len(tokens)])
        other.numbered_quote.extend(self.numbered_quote.values[: len(tokens)])
        first = positions[0] if positions else len(entries)
        other.clips = {key: clip for key, clip in self.clips.items() if key[0] < first}
        return other


class MessageIndex:
    """Columns of the table that retrieval reads: words, vectors and circumstances, read when first searched."""

    def __init__(self) -> None:
        """Begins with no messages."""
        self.lexical = LexicalIndex()
        self.vectors = CentredVectors()
        self.speakers: dict[str, int] = {}
        """A number for everyone who speaks."""
        self.said: set[int] = set()
        """Digests of all texts."""
        self.elsewhere: dict[bytes, NDArray[np.float32]] = {}
        """Vectors of texts of other conversations that are compared with them, by digests of the texts."""
        self._session, self._speaker, self._day = (Rows(np.int32) for _ in range(3))
        self._first_person, self._limits, self._links = (Rows(np.float32) for _ in range(3))
        self._saying, self._folded, self._said = (Rows(np.int64) for _ in range(3))
        self.vectors_by, self.stored_by = "", ""
        """The name of the embeddings that made the vectors; of those that made stored ones, until it is compared."""

    def __len__(self) -> int:
        """Returns the number of messages that were read."""
        return len(self._session)

    def read(self, entries: Sequence[Entry]) -> None:
        """Takes in the messages that are new at the end of a conversation."""
        start = len(self)
        new = entries[start:]
        self.lexical.extend(terms(searched_text(entry.speaker, entry.text)) for entry in new)
        session = int(self._session.values[-1]) if start else 0
        sessions: list[int] = []
        for position, entry in enumerate(new, start):
            session += bool(position) and _begins_session(entries[position - 1], entry)
            sessions.append(session)
        self._session.extend(sessions)
        self._speaker.extend([self.speakers.setdefault(entry.speaker, len(self.speakers)) for entry in new])
        self._day.extend([day_number(entry.date) for entry in new])
        self._first_person.extend([first_person(entry.text) for entry in new])
        sayings = [saying(entry.speaker, entry.text) for entry in new]
        self._saying.extend([said for said, _ in sayings])
        self._folded.extend([folded for _, folded in sayings])
        self._limits.extend([limit(entry.text, from_user=is_user(entry.message)) for entry in new])
        self._note([short_digest(entry.text) for entry in new])

    def _note(self, said: Sequence[int] | NDArray[np.int64]) -> None:
        self._said.extend(said)
        self.said.update(self._said.values[len(self._said) - len(said) :].tolist())

    @property
    def sayings(self) -> NDArray[np.int64]:
        """Digests of who said it and what; shape `(len(self),)`."""
        return self._saying.values

    @property
    def folded(self) -> NDArray[np.int64]:
        """Digests of what was said, in one form; shape `(len(self),)`."""
        return self._folded.values

    def texts(self, costs: Numbers, places: NDArray[np.intp], session: Numbers) -> Texts:
        """Returns what is known of the messages at some places, of all messages' costs in tokens and sessions."""
        chosen = session[places]
        return Texts(
            session=chosen,
            costs=costs[places],
            distinct=self.lexical.distinct[places],
            speaker=self._speaker.values[places],
            first_person=self._first_person.values[places],
            day=self._day.values[places],
            place=places,
            opens=(places == 0) | (chosen != session[places - 1]),
        )

    @property
    def days(self) -> Numbers:
        """The date of every message as a number; 0 where there is none."""
        return self._day.values

    def subjects(self) -> Numbers:
        """Returns the number of every message's subject: its session, cut where another subject begins."""
        if len(self.vectors) > len(self._links):  # the last ones depend on what follows them
            self._links.truncate(max(0, len(self._links) - AFTER + 1))
            self._links.extend(links(self.vectors.units, len(self._links)))
        return subjects(self._session.values, self._links.values, self._limits.values)

    def texts_to_embed(self, entries: Sequence[Entry]) -> list[str]:
        """Returns the first texts that have no vector yet; none where all have one."""
        start = len(self.vectors)
        return [entry.text for entry in entries[start : start + EMBEDDED_AT_ONCE]]

    def first(self, length: int) -> MessageIndex:
        """Returns the index of the first messages alone; words are read again, vectors stay."""
        if length >= len(self) and length >= len(self.vectors):
            return self
        other = MessageIndex()
        for name, rows in columns(self).items():
            setattr(other, name, rows.copy())
            getattr(other, name).truncate(length)
        other._links.truncate(max(0, length - AFTER + 1))
        other.vectors, other.elsewhere = self.vectors.copy(), self.elsewhere
        other.vectors_by, other.stored_by = self.vectors_by, self.stored_by
        other.vectors.truncate(length)
        other.lexical = self.lexical.first(length)
        known = int(other._speaker.values.max(initial=-1))
        other.speakers = {name: number for name, number in self.speakers.items() if number <= known}
        other.said = set(other._said.values.tolist())
        return other

    def packed(self, first: int, end: int, entries: Sequence[Entry]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Returns what is known of some messages but for their vectors, as plain data and arrays."""
        arrays = {name: rows.values[first:end] for name, rows in columns(self).items() if name != "_links"}
        used, arrays["_speaker"] = np.unique(arrays["_speaker"], return_inverse=True)
        names = list(self.speakers)
        words, arrays["terms"] = packed_terms(searched_text(entry.speaker, entry.text) for entry in entries[first:end])
        return {"speakers": [names[number] for number in used], "terms": words}, arrays

    def unpack(
        self, data: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> tuple[list[str], NDArray[Any], int]:
        """Takes in what was packed, but for the words, which it returns for the lexical index."""
        numbers = [self.speakers.setdefault(name, len(self.speakers)) for name in data["speakers"]]
        for name, rows in columns(self).items():
            if name not in ("_links", "_speaker", "_said"):
                rows.extend(arrays[name])
        self._speaker.extend(np.array(numbers, np.int32)[arrays["_speaker"]])
        self._note(arrays["_said"])
        return data["terms"], arrays["terms"], len(arrays["_day"])

    @property
    def final_vectors(self) -> int:
        """The number of messages whose vectors, and what follows from those around them, are known for good."""
        return max(0, min(len(self.vectors), len(self._links) + 1 - AFTER))

    def packed_vectors(self, first: int, end: int) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Returns the vectors of some messages."""
        absent = [number - first for number in self.vectors.absent if first <= number < end]
        units = self.vectors.units[first:end].astype(np.float16)
        return {"absent": absent}, {"units": units, "links": self._links.values[first:end]}

    def embedded_by(self, name: str) -> bool:
        """Says by which embeddings the vectors are made; returns whether stored ones of others had to be forgotten."""
        other, self.stored_by, self.vectors_by = self.stored_by not in ("", name), "", name
        if other:
            self.vectors = CentredVectors()
            self._links.truncate(0)
        return other

    def restore_vectors(self, data: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Takes in vectors that were packed."""
        self.vectors.restore(arrays["units"], data["absent"])
        self._links.extend(arrays["links"])


def columns(owner: object) -> dict[str, Rows]:
    """Returns everything of an object that is a column."""
    return {name: rows for name, rows in vars(owner).items() if isinstance(rows, Rows)}


def searched_text(speaker: str, text: str) -> str:
    """Returns a text with the name of who said it, where that is a name."""
    return f"{speaker} {text}" if is_name(speaker) else text


def saying(speaker: str, text: str) -> tuple[int, int]:
    """Returns a digest of who says something and what, and one of what, by which repetitions are known."""
    folded = one_line(fold(text))
    return short_digest(f"{speaker}\0{folded}"), short_digest(folded)


def short_digest(text: str) -> int:
    """Returns a number that stands for a text."""
    return int.from_bytes(digest(text)[:8], "little", signed=True)


def _begins_session(before: Entry, entry: Entry) -> bool:
    if before.date != entry.date:
        return True
    earlier, later = _moment(before), _moment(entry)
    return earlier is not None and later is not None and later - earlier > SESSION_GAP_SECONDS


def _moment(entry: Entry) -> float | None:
    """Returns when a message was said, in seconds; None where that is not known to the second."""
    try:
        moment = datetime.fromisoformat(str(entry.message.additional_kwargs.get("created_at")))
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


class MessageTable:
    """The messages of a conversation and what is known of each, in order; only ever added to."""

    def __init__(self) -> None:
        """Begins with no messages."""
        self.entries = Entries()
        self.safe: list[bool] = []
        self.positions: dict[str, int] = {}
        self.names: dict[str, int] = {}
        """Everyone who has spoken under a name, with the position of the first message."""
        self.kept: list[int] = []
        """Positions of the messages that stay verbatim while they fit."""
        self.dropped: list[int] = []
        """Positions of those that are left out of prompts."""
        self.quotable, self.text_only, self.human = (Rows(np.bool_) for _ in range(3))
        """Whether it may be quoted, whether its content is one text and no list of parts, whether a human says it."""
        self.index = MessageIndex()
        self.trees: dict[int, Tree] = {}
        """The compaction tree for every size of segments that was asked for."""
        self.questions = OpenQuestions()
        self.made = KnownDigests()
        self.counted: list[Costs] = []
        """What the messages cost, by counter, the one used last at the end."""
        self.stored_costs: dict[str, dict[str, NDArray[Any]]] = {}
        """What was counted before this process, by counter, until it is asked for."""

    def __len__(self) -> int:
        """Returns the number of messages."""
        return len(self.entries)

    @property
    def digest(self) -> str:
        """A digest of all its messages."""
        return self.entries.digest(len(self))

    @property
    def exchanges(self) -> int:
        """The number of its messages that are a human's."""
        return int(self.human.values.sum())

    def holds(self, position: int, digest: str) -> bool:
        """Returns whether it begins with so many messages of this digest."""
        return position <= len(self) and (not position or self.entries.digest(position) == digest)

    def times_said(self, fingerprint: str) -> int:
        """Returns how many messages say the same."""
        return int((self.entries.facts.values["fingerprint"] == fingerprint.encode()).sum())

    def append(self, record: MessageRecord, message: BaseMessage, pinned: Preservation | None = None) -> None:
        """Adds a message at the end."""
        entry = Entry.after(self.entries[-1] if self.entries else None, record, message, pinned)
        position = len(self)
        if entry.speaking_name:
            self.names.setdefault(entry.speaking_name, position)
        for preservation, positions in (("keep", self.kept), ("drop", self.dropped)):
            if entry.preservation == preservation:
                positions.append(position)
        self.quotable.extend([entry.is_quotable])
        self.text_only.extend([isinstance(entry.message.content, str)])
        self.human.extend([is_user(entry.message)])
        self.positions[entry.id] = position
        self.safe.append(entry.safe_cut)
        self.entries.append(entry)

    def pinned_in(self, first: int, end: int, pins: Iterable[str]) -> list[int]:
        """Returns the positions of the pinned messages among some."""
        return [at for key in pins if (at := self.positions.get(key)) is not None and first <= at < end]

    def packed(self, first: int, end: int, pins: Iterable[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Returns some messages as plain data and arrays, as if none was pinned."""
        data = self.entries.packed(first, end)
        arrays = {name: rows.values[first:end].copy() for name, rows in columns(self).items()}
        plain = {at: self.entries[at].kept_as(None) for at in self.pinned_in(first, end, pins)}
        for at, entry in plain.items():
            arrays["quotable"][at - first] = entry.is_quotable
        for preservation, places in (("keep", self.kept), ("drop", self.dropped)):
            said = [at for at, entry in plain.items() if entry.preservation == preservation]
            own = [at for at in places if first <= at < end and at not in plain]
            data[preservation] = [at - first for at in sorted([*own, *said])]
        data["names"] = {name: at - first for name, at in self.names.items() if first <= at < end}
        return data, {**arrays, "facts": data.pop("facts")}

    def unpack(self, data: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Adds messages that were packed."""
        begin = len(self)
        for name, rows in columns(self).items():
            rows.extend(arrays[name])
        self.kept += [begin + at for at in data.pop("keep")]
        self.dropped += [begin + at for at in data.pop("drop")]
        for name, at in data.pop("names").items():
            self.names.setdefault(name, begin + at)
        self.safe += arrays["facts"]["safe_cut"].tolist()
        self.positions |= zip(data["ids"], range(begin, begin + len(data["ids"])), strict=True)
        self.entries.unpack(arrays["facts"], **data)

    def first(self, length: int) -> MessageTable:
        """Returns the table of the first messages alone; what was made of them stays."""
        if length >= len(self):
            return self
        other = self._copied(length)
        other.index = other.index.first(length)
        return other

    def pinned(self, pins: Mapping[str, Preservation], changed: Iterable[str]) -> MessageTable:
        """Returns the table in which the messages of some ids have other pins."""
        positions = sorted(self.positions[key] for key in changed if key in self.positions)
        if not positions:
            return self
        other = self._copied(len(self))
        for position in positions:
            entry = self.entries[position].kept_as(pins.get(self.entries[position].id))
            other.entries.change(position, entry)
            other.quotable.values[position] = entry.is_quotable
            for preservation, places in (("keep", other.kept), ("drop", other.dropped)):
                places[:] = sorted(
                    {*places, position} if entry.preservation == preservation else {*places} - {position}
                )
        other.counted = [costs.changed(other.entries, positions) for costs in self.counted]
        for known in other.stored_costs.values():
            column = known["column"]
            column[[position for position in positions if position < len(column)]] = UNKNOWN
        other.keep_derived(self, positions[0])
        return other

    def _copied(self, length: int) -> MessageTable:
        other = MessageTable()
        other.entries, other.safe = self.entries.first(length), self.safe[:length]
        other.positions = dict(zip(other.entries.ids, range(length), strict=True))
        other.names = {name: at for name, at in self.names.items() if at < length}
        other.kept, other.dropped = ([at for at in places if at < length] for places in (self.kept, self.dropped))
        for name, rows in columns(self).items():
            setattr(other, name, rows.copy())
            getattr(other, name).truncate(length)
        # The index goes on with the new table; where this one is searched again, it is read anew.
        other.index, self.index = self.index, MessageIndex()
        other.made = self.made.copy()
        other.counted = [costs.changed(other.entries, []) for costs in self.counted]
        other.stored_costs = {
            key: {name: column[:length].copy() for name, column in known.items()}
            for key, known in self.stored_costs.items()
        }
        other.keep_derived(self, length)
        return other

    def keep_derived(self, before: MessageTable, first: int) -> None:
        """Takes over what another table has made of the messages before a position."""
        self.trees = {size: tree.shortened(first) for size, tree in before.trees.items()}
        self.made.keep(self.trees.values())
        if before.questions.read_until <= first:
            self.questions = before.questions

    def tree(self, segment_messages: int) -> Tree:
        """Returns the compaction tree for a size of segments, with all segments that have ended by now."""
        tree = self.trees.get(segment_messages, Tree(segment_messages)).grow(self.entries)
        self.trees[segment_messages] = tree
        return tree

    def costs(self, counter: TokenCounter) -> Costs:
        """Returns what every message costs by a counter; each is counted once."""
        known = next((costs for costs in self.counted if costs.counter is counter), None) or Costs(counter)
        if counter.identity in self.stored_costs and not len(known.column):
            known.restore(self.stored_costs.pop(counter.identity), self.entries)
        self.counted = [*(costs for costs in self.counted if costs is not known), known][-MOST_COUNTERS:]
        known.grow(self.entries)
        return known
