"""The messages of a conversation with everything derived from each, in order; it only ever grows.

Whoever changes messages makes another table. The texts of sealed messages are kept deflated, and
inflated when somebody looks.
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b
from itertools import islice, pairwise, takewhile
from typing import Any, TypeVar

import numpy as np
from langchain_core.messages import BaseMessage, ToolMessage
from numpy.typing import NDArray

from langchain_ctxbudget import messages
from langchain_ctxbudget.content import compaction_by, has_media, has_thoughts
from langchain_ctxbudget.history.columns import (
    UNKNOWN,
    Arrays,
    Columns,
    Costs,
    Entry,
    MessageIndex,
    Numbering,
    PartlyHeld,
    coded,
)
from langchain_ctxbudget.history.readings import Readings
from langchain_ctxbudget.history.tree import KnownDigests, Spans, Tree
from langchain_ctxbudget.history.work_state import WorkState
from langchain_ctxbudget.messages import OpenCalls, Preservation
from langchain_ctxbudget.search import Rows
from langchain_ctxbudget.stores import MessageRecord, Place
from langchain_ctxbudget.tokens import TokenCounter
from langchain_ctxbudget.worker import keep_newest

T = TypeVar("T")
TEXTS_TOGETHER = 16
"""The number of texts that are deflated together, so that few are inflated where one is looked at;
a segment is a multiple of it."""
MOST_DECODED = 8_192
"""The number of messages that stay objects, which the garbage collector looks at; beyond it, those
of segments are inflated when they are shown."""
MOST_LOOKED_UP = 2_048
"""The number of messages that stay objects because somebody has looked at them after that."""
MOST_UNSEALED = 1_024
"""The number of messages beyond `MOST_DECODED` that stay objects until a segment is stored. With
more, as where nothing is stored, the oldest are deflated in memory."""
MOST_UNREAD = 32_768
"""The number of messages that may stay objects because no prompt has read them yet: what it reads
of each would have to be inflated several times."""
DEFLATED_TOGETHER = 64
"""The number of messages beyond all that before any is deflated."""
MOST_UNTIMED = 8
"""The number of messages whose time cannot be read that a report names."""
NO_CALLS = OpenCalls()
FACTS = np.dtype(
    [
        ("clock", np.int64),
        ("number", np.int64),
        ("state", np.int64),
        ("lane", np.int32),
        ("date", np.int32),
        ("date_shown", np.int32),
        ("named", np.bool_),
    ]
)
"""What is known of a message without its text: its place; numbers of words."""
CODED = ("lane", "date", "date_shown")
"""The facts that are numbers of words."""
PRESERVATIONS: tuple[Preservation | None, ...] = (None, "keep", "summarize", "drop")
"""By number; what is summarised or dropped is not quoted."""


class MessageTable(Columns, PartlyHeld[Entry]):
    """The messages of a conversation, and everything derived from them."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.positions: dict[str, int] = {}
        """The position of each message, by its id."""
        self.names: dict[str, int] = {}
        """Everyone who has spoken under a name, with the position of the first message."""
        self._first_nameless: int | None = None
        """The position of the first human message without a name."""
        self.open_calls: dict[int, OpenCalls] = {}
        """The calls that wait for results behind a message, by its position."""
        self.compactions: dict[int, str] = {}
        """The messages that hold a compaction of a provider, by position, and whose it is."""
        self.thoughts: dict[int, None] = {}
        """The messages that hold thoughts of a model, by position, in order."""
        self.media: dict[int, None] = {}
        """The messages that hold media, by position, in order."""
        self.untimed: dict[int, str] = {}
        """The newest messages of which `created_at` cannot be read as a time, by position, with its
        value."""

        # The columns: each has a row for every message. Segments store them under these names.
        self.facts = Rows(FACTS)
        self.preservations = Rows(np.int8)
        self.fingerprints = Rows("V16")
        """Of each message a digest of what it says."""
        self.digests = Rows("V16")
        """Of each message a digest of all up to it."""
        self.safe = Rows(np.bool_)
        """Whether a cut before a message leaves calls and results together."""
        self.says = Rows(np.bool_)
        """Whether a message has words."""
        self.human = Rows(np.bool_)
        """Whether a human says it."""

        self.search_index = MessageIndex()
        self.trees: dict[int, Tree] = {}
        """The spans, by their wanted size."""
        self.work = WorkState()
        self._readings = Readings()
        self.span_digests = KnownDigests()
        """The digests of spans, by extraction and by a model."""
        self.counted: dict[str, Costs] = {}
        """What every message costs, by the identity of the counter."""
        self._words: Numbering[str | None] = Numbering()
        self._preserved = (UNKNOWN, "")
        """The length that `preserved` was asked for last, and its answer."""

        self.held = {}
        """The newest messages at least, and all that are in no segment."""
        self._look_up = lru_cache(MOST_LOOKED_UP)(self._decode)
        self._inflated = lru_cache(MOST_LOOKED_UP // TEXTS_TOGETHER)(_inflate)
        self._sealed: dict[int, bytes] = {}
        """The texts of the messages of stored segments, a few together, by the position of the
        first one."""
        self._begun: dict[int, bytes] = {}
        """Likewise the last texts of tails, which are fewer."""

    def __len__(self) -> int:
        return len(self.ids)

    def _decode(self, position: int) -> Entry:
        """Returns the entry of a message of which only the deflated text is kept."""
        first = position - position % TEXTS_TOGETHER
        deflated = self._sealed.get(first) or self._begun[first]
        text = self._inflated(deflated)[position % TEXTS_TOGETHER].decode()
        message = MessageRecord(place=self.place(position), text=text).to_message()
        if str(message.id) != self.ids[position]:
            message = message.model_copy(update={"id": self.ids[position]})
        return Entry(
            source=text,
            message=message,
            fingerprint=self.fingerprint(position),
            digest=self.digest(position + 1),
            date=self.day(position),
            safe_cut=bool(self.safe.values[position]),
            date_shown=self._date_shown(position),
            pinned=PRESERVATIONS[self.preservations.values[position]],
        )

    def _date_shown(self, position: int) -> str | None:
        """Returns the date that the newest human message before a position stands under."""
        if position == 0:
            return None
        return self._words.word(int(self.facts.values[position - 1]["date_shown"]))

    def day(self, position: int) -> str | None:
        """Returns the day of a message, or of the last one before it that has one."""
        return self._words.word(int(self.facts.values[position]["date"]))

    @property
    def quotable(self) -> NDArray[np.bool_]:
        """Whether each message may be quoted.

        It has words, and nobody wants it summarised or dropped.
        """
        is_wanted: NDArray[np.bool_] = self.preservations.values < PRESERVATIONS.index("summarize")
        return self.says.values & is_wanted

    def digest(self, length: int | None = None) -> str:
        """Returns a digest of all messages, or of the first `length` ones."""
        end = len(self) if length is None else length
        if end == 0:
            return ""
        return str(self.digests.values[end - 1].tobytes().hex())

    def holds(self, length: int, digest: str) -> bool:
        """Returns whether the first `length` messages have this digest."""
        if length == 0:
            return True
        return length <= len(self) and self.digest(length) == digest

    def preserved(self, length: int) -> str:
        """Returns a digest of the preservation of each of the first messages."""
        known_length, digest = self._preserved
        if known_length != length:  # what a table says of a message never changes
            preservations = self.preservations.values[:length].tobytes()
            digest = blake2b(preservations, digest_size=8).hexdigest()
            self._preserved = (length, digest)
        return digest

    def fingerprint(self, position: int) -> str:
        """Returns the fingerprint of a message."""
        return str(self.fingerprints.values[position].tobytes().hex())

    @property
    def only_speaker(self) -> str | None:
        """The name under which all human messages are; None if one has no name or another one."""
        names = [name for name, first in self.names.items() if self.human.values[first]]
        if len(names) != 1 or self._first_nameless is not None:
            return None
        return names[0]

    def times_said(self, fingerprint: str) -> int:
        """Returns how many messages have a fingerprint."""
        # Two numbers are compared many times faster than sixteen bytes.
        first, second = np.frombuffer(bytes.fromhex(fingerprint), np.int64)
        halves = self.fingerprints.values.view(np.int64).reshape(-1, 2)
        with_first = halves[halves[:, 0] == first]
        return int(np.count_nonzero(with_first[:, 1] == second))

    def place(self, position: int) -> Place:
        """Returns where a message is in the log."""
        fact = self.facts.values[position]
        return Place(
            lane=str(self._words.word(int(fact["lane"]))),
            clock=int(fact["clock"]),
            number=int(fact["number"]),
            state=int(fact["state"]),
        )

    def record(self, position: int) -> MessageRecord:
        """Returns the record of a message."""
        named = bool(self.facts.values[position]["named"])
        return MessageRecord(place=self.place(position), text=self[position].source, named=named)

    def at_place(self, key: str) -> int | None:
        """Returns the position of the message of a record, by the record's key."""
        lane, _, number = key.rpartition("/")
        facts = self.facts.values
        is_in_lane = facts["lane"] == self._words.get(lane, UNKNOWN)
        [positions] = np.nonzero((facts["number"] == int(number)) & is_in_lane)
        return int(positions[0]) if len(positions) else None

    def lane_counts(self, length: int, counts: Mapping[str, int]) -> dict[str, int]:
        """Returns how many records of every lane come before those of messages from `length` on.

        Args:
            length: The position of the first of these messages.
            counts: The number of records of every lane.
        """
        facts = self.facts.values[length:]
        lanes = list(self._words)
        counts_before = dict(counts)
        for lane, number in zip(facts["lane"].tolist(), facts["number"].tolist(), strict=True):
            name = str(lanes[lane])
            counts_before[name] = min(counts_before[name], number)
        return counts_before

    # Adding messages

    def append(
        self, record: MessageRecord, message: BaseMessage, pinned: Preservation | None = None
    ) -> None:
        """Adds a message at the end, under the id that it goes by."""
        position = len(self)
        safe, open_calls = self.open_calls.get(position - 1, NO_CALLS).after(message)
        date = messages.date_of(message)
        entry = self._next_entry(record, message, date=date, safe=safe, pinned=pinned)
        self._add_row(record, entry, date)
        self.ids.append(entry.id)
        self.positions[entry.id] = position
        self.held[position] = entry
        if open_calls != NO_CALLS:
            self.open_calls[position] = open_calls
        maker = compaction_by(message)
        if maker:
            self.compactions[position] = maker
        if has_thoughts(message):
            self.thoughts[position] = None
        if has_media(message):
            self.media[position] = None
        if message.name and not isinstance(message, ToolMessage):
            self.names.setdefault(message.name, position)
        if not message.name and self._first_nameless is None and messages.is_user(message):
            self._first_nameless = position
        if date is None:
            unread = messages.unread_time(message)
            if unread is not None:
                keep_newest(self.untimed, position, unread, MOST_UNTIMED)
        self._let_go_of_oldest()

    def _next_entry(
        self,
        record: MessageRecord,
        message: BaseMessage,
        *,
        date: str | None,
        safe: bool,
        pinned: Preservation | None,
    ) -> Entry:
        """Returns the entry of a message that comes next."""
        position = len(self)
        last_digest = ""
        last_date = None
        if position > 0:
            last_digest = self[-1].digest
            last_date = self[-1].date
        fingerprint = messages.fingerprint(message)
        chained = blake2b(last_digest.encode(), digest_size=16)
        chained.update(f"{message.id}\0{fingerprint}".encode(errors="surrogatepass"))
        return Entry(
            source=record.text,
            message=message,
            fingerprint=fingerprint,
            digest=chained.hexdigest(),
            date=date or last_date,
            safe_cut=safe,
            date_shown=self._date_shown(position),
            pinned=pinned,
        )

    def _add_row(self, record: MessageRecord, entry: Entry, date: str | None) -> None:
        """Adds to the columns what is known of the next message."""
        is_human = messages.is_user(entry.message)
        date_shown = entry.date_shown
        if is_human and date:
            date_shown = date
        place = record.place
        fact = (
            place.clock,
            place.number,
            place.state,
            self._words[place.lane],
            self._words[entry.date],
            self._words[date_shown],
            record.named,
        )
        self.facts.extend(np.array([fact], FACTS))
        self.fingerprints.extend(np.frombuffer(bytes.fromhex(entry.fingerprint), "V16"))
        self.digests.extend(np.frombuffer(bytes.fromhex(entry.digest), "V16"))
        self.preservations.extend([PRESERVATIONS.index(entry.preservation)])
        self.safe.extend([entry.safe_cut])
        self.says.extend([bool(entry.text) and not messages.is_only_media(entry.message)])
        self.human.extend([is_human])

    def told_untimed(self) -> list[str]:
        """Returns the report's line about messages of which the time cannot be read."""
        if not self.untimed:
            return []
        places = ", ".join(
            f"{self.ids[position]!r} ({value})" for position, value in self.untimed.items()
        )
        accepted = "it is a time in ISO 8601, a Unix time in seconds or milliseconds, or a datetime"
        return [f"created_at cannot be read, so these messages have no time: {places}; {accepted}"]

    # Changed messages

    def changed(
        self, length: int, pins: Mapping[int, Preservation | None] | None = None
    ) -> "MessageTable":
        """Returns the table of the first messages, some with other pins.

        It keeps all derived data that is still valid. The search index goes over to it: where this
        table is searched again, that is read anew.
        """
        if length >= len(self) and not pins:
            return self
        pins = pins or {}
        other = self._beginning(length)
        for position, pinned in pins.items():
            entry = replace(self[position], pinned=pinned)
            other.held[position] = entry
            other.preservations.values[position] = PRESERVATIONS.index(entry.preservation)

        repinned = sorted(pins)
        for identity, costs in self.counted.items():
            other.counted[identity] = costs.changed(length, repinned)
        other.search_index = self.search_index.first(length)
        self.search_index = MessageIndex()

        unchanged = min(pins, default=length)
        for size, tree in self.trees.items():
            other.trees[size] = tree.shortened(unchanged)
        other.span_digests = self.span_digests.copy(other.trees.values())
        if self.work.read_until <= unchanged:
            other.work = self.work
        return other

    def _beginning(self, length: int) -> "MessageTable":
        """Returns the table of the first messages without what is derived of several of them."""
        other = MessageTable()
        other.take_columns(self, length)
        other.ids = self.ids[:length]
        other.positions = dict(zip(other.ids, range(length), strict=True))
        other.names = {name: first for name, first in self.names.items() if first < length}
        if self._first_nameless is not None and self._first_nameless < length:
            other._first_nameless = self._first_nameless
        other._readings = self._readings.first(length)
        other.open_calls = _before(length, self.open_calls)
        other.compactions = _before(length, self.compactions)
        other.thoughts = _before(length, self.thoughts)
        other.media = _before(length, self.media)
        other.untimed = _before(length, self.untimed)
        other._words.update(self._words)
        other._sealed = {
            first: texts
            for first, texts in self._sealed.items()
            if first + TEXTS_TOGETHER <= length
        }
        other.held = _before(length, self.held)
        for position in range(TEXTS_TOGETHER * len(other._sealed), length):
            other.held[position] = self[position]
        return other

    @property
    def readings(self) -> Readings:
        """What the user's sentences are, of all messages."""
        self._readings.read(self, self.human.values)
        return self._readings

    @property
    def unread(self) -> int:
        """How many messages the reader of sentences has not read yet."""
        return len(self.ids) - self._readings.read_until

    def has_outdated_readings(self, first: int) -> bool:
        """Tells whether the stored segment from a position on has no readings of this reader."""
        return first in self._readings.outdated

    def note_readings_stored(self, first: int) -> None:
        """Notes that the segment from a position on is stored with what this reader has read."""
        self._readings.outdated.discard(first)

    def tree(self, span_messages: int) -> Tree:
        """Returns the tree for a size of spans, with all spans that have ended by now."""
        tree = self.trees.get(span_messages, Tree(span_messages)).grow(self)
        self.trees[span_messages] = tree
        return tree

    def read_ahead(self, length: int, span_messages: int) -> None:
        """Prepares the messages from `length` on for compaction, so that no prompt has to.

        More than a span of them are read when a prompt needs them.
        """
        if not 0 < len(self) - length <= span_messages:
            return
        tree_before = self.trees.get(span_messages, Tree(span_messages))
        tree = self.tree(span_messages)
        if tree is not tree_before:
            newest_nodes = tree.complete(len(self), len(tree_before.keys))[-2:]
            for node in newest_nodes:
                Spans(self, tree, self.span_digests, self.readings).extracted(node)

    def costs(self, counter: TokenCounter) -> Costs:
        """Returns what every message costs by a counter; each is counted once."""
        costs = self.counted.setdefault(counter.identity, Costs())
        costs.grow(self, counter)
        return costs

    def forget_costs(self, counter: TokenCounter) -> None:
        """Forgets what the messages cost by a counter: whoever asks next counts them all."""
        self.counted.pop(counter.identity, None)

    # Sealed segments

    def packed(self, first: int, end: int, pinned: Iterable[int]) -> tuple[dict[str, Any], Arrays]:
        """Returns some messages without their texts, as plain data and arrays.

        `pinned` are the positions of messages with pins: these are not packed.
        """
        arrays = self.arrays(first, end)
        for position in pinned:
            unpinned = messages.preservation_of(self[position].message)
            arrays["preservations"][position - first] = PRESERVATIONS.index(unpinned)

        words = list(self._words)
        coded_words: dict[str, list[str | None]] = {}
        for name in CODED:
            coded_words[name], arrays["facts"][name] = coded(arrays["facts"][name], words)

        data: dict[str, Any] = {
            "ids": self.ids[first:end],
            "names": {name: at - first for name, at in self.names.items() if first <= at < end},
            "calls": _between(first, end, self.open_calls),
            "untimed": _between(first, end, self.untimed),
            "readings": self.readings.packed(first, end),
        }
        nameless = self._first_nameless
        if nameless is None or not first <= nameless < end:
            data["nameless"] = None
        else:
            data["nameless"] = nameless - first
        compactions = _between(first, end, self.compactions)
        if compactions:
            data["compactions"] = compactions
        thoughts = [offset for offset, _ in _between(first, end, self.thoughts)]
        if thoughts:
            data["thoughts"] = thoughts
        media = [offset for offset, _ in _between(first, end, self.media)]
        if media:
            data["media"] = media
        return {**data, **coded_words}, arrays

    def unpack(self, data: Mapping[str, Any], arrays: Arrays, texts: bytes) -> None:
        """Adds messages that were packed."""
        begin = len(self)
        facts = arrays["facts"].copy()
        for name in CODED:
            numbers = np.array([self._words[word] for word in data[name]])
            facts[name] = numbers[facts[name]]
        self.extend({**arrays, "facts": facts})
        self.ids += data["ids"]
        self.positions |= zip(data["ids"], range(begin, len(self.ids)), strict=True)
        self.names = {name: begin + at for name, at in data["names"].items()} | self.names
        # Segments that were made before names mattered do not tell: somebody may have had none.
        nameless = data.get("nameless", 0)
        if self._first_nameless is None and nameless is not None:
            self._first_nameless = begin + nameless
        for offset, (waiting, early, age) in data["calls"]:
            self.open_calls[begin + offset] = OpenCalls(tuple(waiting), tuple(early), age)
        # Segments that were made before there were tails do not have these.
        for offset, value in data.get("untimed", ()):
            keep_newest(self.untimed, begin + offset, value, MOST_UNTIMED)
        for offset, maker in data.get("compactions", ()):
            self.compactions[begin + offset] = maker
        for offset in data.get("thoughts", ()):
            self.thoughts[begin + offset] = None
        # Segments that were made before media were noted do not tell: then these are not looked at.
        for offset in data.get("media", ()):
            self.media[begin + offset] = None
        self._readings.take(data.get("readings"), begin, len(self.ids))
        self.keep_sealed(begin, len(self), texts)

    def keep_sealed(self, first: int, end: int, texts: bytes) -> None:
        """Takes the texts of a segment, and lets go of the oldest messages beyond so many."""
        starts = range(first, end, TEXTS_TOGETHER)
        lengths = np.frombuffer(texts, np.int32, len(starts))
        ends = np.append(0, lengths.cumsum()) + lengths.nbytes
        for start, (begin, stop) in zip(starts, pairwise(ends), strict=True):
            is_full = start + TEXTS_TOGETHER <= end
            kept = self._sealed if is_full else self._begun
            kept[start] = texts[begin:stop]
        self._let_go_before(end)

    def _let_go_before(self, end: int) -> None:
        """Lets go of the oldest messages beyond so many, whose texts are kept up to a position."""
        most_gone = max(0, len(self.held) - MOST_DECODED)
        deflated = takewhile(lambda position: position < end, self.held)
        for position in list(islice(deflated, most_gone)):
            del self.held[position]

    def seal_in_memory(self) -> None:
        """Keeps the texts of all messages but the last few as segments do.

        As objects they take ten times the memory.
        """
        end = self._deflate_until(len(self) - 1)
        for position in [position for position in self.held if position < end]:
            del self.held[position]

    def _let_go_of_oldest(self) -> None:
        """Keeps of the oldest messages the texts alone, as segments do, beyond so many objects."""
        most_held = MOST_DECODED + MOST_UNSEALED
        if len(self.held) < most_held + DEFLATED_TOGETHER:
            return
        end = len(self) - most_held
        if len(self.held) < MOST_UNREAD + DEFLATED_TOGETHER:
            end = min(end, self._read_until)
        self._let_go_before(self._deflate_until(end))

    @property
    def _read_until(self) -> int:
        """The number of messages of which everything is read that a prompt reads of each."""
        counted = [len(costs.column) for costs in self.counted.values()]
        return min(len(self.search_index), *counted) if counted else 0

    def _deflate_until(self, length: int) -> int:
        """Deflates the first texts that are not yet, and returns where those that are end now.

        As they are deflated a few together, that may be a little before `length`.
        """
        first = TEXTS_TOGETHER * len(self._sealed)
        end = max(first, length - length % TEXTS_TOGETHER)
        if end > first:
            self.keep_sealed(first, end, packed_texts(self[first:end]))
        return end


def packed_texts(entries: Sequence[Entry]) -> bytes:
    """Returns the texts of messages in their stored form."""
    parts: list[bytes] = []
    for first in range(0, len(entries), TEXTS_TOGETHER):
        texts = [entry.source.encode() for entry in entries[first : first + TEXTS_TOGETHER]]
        parts.append(zlib.compress(b"\0".join(texts), 1))
    lengths = np.array([len(part) for part in parts], np.int32)
    return lengths.tobytes() + b"".join(parts)


def _inflate(deflated: bytes) -> list[bytes]:
    """Returns the texts that were deflated together."""
    return zlib.decompress(deflated).split(b"\0")


def _before(length: int, by_position: Mapping[int, T]) -> dict[int, T]:
    """Returns what is known of the first messages."""
    return {position: value for position, value in by_position.items() if position < length}


def _between(first: int, end: int, by_position: Mapping[int, T]) -> list[tuple[int, T]]:
    """Returns what is known of some messages, each with its distance from the first of them."""
    places = [position for position in range(first, end) if position in by_position]
    return [(position - first, by_position[position]) for position in places]
