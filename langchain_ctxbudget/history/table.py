"""The messages of a conversation with everything derived from each, in order; it only ever grows.

Whoever changes messages makes another table. Texts of sealed messages are inflated when somebody
looks.
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b
from itertools import islice, pairwise, takewhile
from typing import Any, overload

import numpy as np
from langchain_core.messages import BaseMessage, ToolMessage
from numpy.typing import NDArray

from langchain_ctxbudget import messages
from langchain_ctxbudget.history.arc import OpenQuestions
from langchain_ctxbudget.history.columns import (
    UNKNOWN,
    Arrays,
    Columns,
    Costs,
    Entry,
    MessageIndex,
    Numbering,
    coded,
)
from langchain_ctxbudget.history.extractive import candidates_of
from langchain_ctxbudget.history.tree import KnownDigests, Spans, Tree
from langchain_ctxbudget.history.work_state import WorkState
from langchain_ctxbudget.messages import OpenCalls, Preservation
from langchain_ctxbudget.search import Rows
from langchain_ctxbudget.stores import MessageRecord, Place
from langchain_ctxbudget.tokens import TokenCounter
from langchain_ctxbudget.worker import keep_newest

TEXTS_TOGETHER = 16
"""Texts that are deflated together, so that few are inflated where one is looked at; a segment is a
multiple of them."""
MOST_DECODED = 8_192
"""Messages that stay objects, which the garbage collector looks at; of more, those of segments are
inflated if shown."""
MOST_UNTIMED = 8
"""Messages whose time cannot be read that a report names."""
NO_CALLS = OpenCalls()
FACTS = np.dtype(
    [
        *((name, np.int64) for name in ("clock", "number", "state")),
        *((name, np.int32) for name in ("lane", "date", "date_shown")),
        ("named", np.bool_),
    ]
)
"""What is known of a message without its text: its place; numbers of words."""
CODED = ("lane", "date", "date_shown")
PRESERVATIONS: tuple[Preservation | None, ...] = (None, "keep", "summarize", "drop")
"""By number; what is summarised or dropped is not quoted."""


class MessageTable(Columns, Sequence[Entry]):
    """The messages of a conversation, and everything derived from them."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.positions: dict[str, int] = {}
        self.names: dict[str, int] = {}
        """Everyone who has spoken under a name, with the position of the first message."""
        self.open_calls: dict[int, OpenCalls] = {}
        self.facts, self.preservations = Rows(FACTS), Rows(np.int8)
        self.fingerprints, self.digests = Rows("V16"), Rows("V16")
        """Of each message a digest of what it says, and one of all up to it."""
        self.untimed: dict[int, str] = {}
        """The newest messages of which `created_at` cannot be read as a time, by position, with its
        value."""
        self.safe, self.says, self.human = (Rows(np.bool_) for _ in range(3))
        """What a prompt asks of all messages: whether one is a safe cut, has words, and is said by
        a human."""
        self.search_index = MessageIndex()
        self.trees: dict[int, Tree] = {}
        self.questions = OpenQuestions()
        self.work = WorkState()
        self.made = KnownDigests()
        self.counted: dict[str, Costs] = {}
        self._words: Numbering[str | None] = Numbering()
        self.decoded: dict[int, Entry] = {}
        """The newest messages at least, and all that are in no segment."""
        self._made = lru_cache(MOST_DECODED)(self._decode)
        self._texts = lru_cache(MOST_DECODED // TEXTS_TOGETHER)(
            lambda deflated: zlib.decompress(deflated).split(b"\0")
        )
        self._sealed: dict[int, bytes] = {}
        """The texts of the messages of stored segments, a few together, by the position of the
        first one."""
        self._begun: dict[int, bytes] = {}
        """Likewise the last texts of tails, which are fewer."""
        self._preserved = UNKNOWN, ""

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, at: int) -> Entry: ...
    @overload
    def __getitem__(self, at: slice) -> list[Entry]: ...
    def __getitem__(self, at: int | slice) -> Entry | list[Entry]:
        if isinstance(at, slice):
            return [
                self.decoded.get(position) or self._made(position)
                for position in range(*at.indices(len(self)))
            ]
        at += len(self) if at < 0 else 0
        return self.decoded.get(at) or self._made(range(len(self))[at])

    def _decode(self, position: int) -> Entry:
        first = position - position % TEXTS_TOGETHER
        deflated = self._sealed[first] if first in self._sealed else self._begun[first]
        text = self._texts(deflated)[position % TEXTS_TOGETHER].decode()
        message = MessageRecord(place=self.place(position), text=text).to_message()
        if str(message.id) != self.ids[position]:
            message = message.model_copy(update={"id": self.ids[position]})
        date = list(self._words)[self.facts.values[position]["date"]]
        known = (
            self.fingerprint(position),
            self.digest(position + 1),
            date,
            bool(self.safe.values[position]),
        )
        return Entry(
            text,
            message,
            *known,
            self._shown(position),
            PRESERVATIONS[self.preservations.values[position]],
        )

    def _shown(self, position: int) -> str | None:
        """Returns the date that the newest human message before a position stands under."""
        return (
            list(self._words)[self.facts.values[position - 1]["date_shown"]] if position else None
        )

    def day(self, position: int) -> str | None:
        """Returns the day of a message, or of the last one before it that has one."""
        return list(self._words)[int(self.facts.values[position]["date"])]

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
        return str(self.digests.values[end - 1].tobytes().hex()) if end else ""

    def holds(self, length: int, digest: str) -> bool:
        """Returns whether the first `length` messages have this digest."""
        return length <= len(self) and (not length or self.digest(length) == digest)

    def preserved(self, length: int) -> str:
        """Returns a digest of the preservation of each of the first messages."""
        if (known := self._preserved)[0] != length:  # what a table says of a message never changes
            wanted = self.preservations.values[:length].tobytes()
            known = self._preserved = length, blake2b(wanted, digest_size=8).hexdigest()
        return known[1]

    def fingerprint(self, position: int) -> str:
        """Returns the fingerprint of a message."""
        return str(self.fingerprints.values[position].tobytes().hex())

    def times_said(self, fingerprint: str) -> int:
        """Returns how many messages say the same."""
        first, second = np.frombuffer(
            bytes.fromhex(fingerprint), np.int64
        )  # compared many times faster than bytes
        halves = self.fingerprints.values.view(np.int64).reshape(-1, 2)
        return int(np.count_nonzero(halves[halves[:, 0] == first, 1] == second))

    def place(self, position: int) -> Place:
        """Returns where a message is in the log."""
        fact = self.facts.values[position]
        numbers = {name: int(fact[name]) for name in ("clock", "number", "state")}
        return Place(lane=str(list(self._words)[fact["lane"]]), **numbers)

    def record(self, position: int) -> MessageRecord:
        """Returns the record of a message."""
        named = bool(self.facts.values[position]["named"])
        return MessageRecord(place=self.place(position), text=self[position].source, named=named)

    def at_place(self, key: str) -> int | None:
        """Returns the position of the message of a record, by the record's key."""
        lane, _, number = key.rpartition("/")
        facts = self.facts.values
        code = self._words.get(lane, -1)
        [found] = np.nonzero((facts["number"] == int(number)) & (facts["lane"] == code))
        return int(found[0]) if len(found) else None

    def lane_counts(self, length: int, counts: Mapping[str, int]) -> dict[str, int]:
        """Returns how many records of every lane come before the first record of the messages from `length` on."""
        facts = self.facts.values[length:]
        words = list(self._words)
        found = dict(counts)
        for lane, number in zip(facts["lane"].tolist(), facts["number"].tolist(), strict=True):
            name = str(words[lane])
            found[name] = min(found[name], number)
        return found

    def append(
        self, record: MessageRecord, message: BaseMessage, pinned: Preservation | None = None
    ) -> None:
        """Adds a message at the end, under the id that it goes by."""
        position = len(self)
        last = self[-1] if self.ids else None
        date = messages.date_of(message)
        shown = self._shown(position)
        is_human = messages.is_user(message)
        safe, open_calls = self.open_calls.get(position - 1, NO_CALLS).after(message)
        said = messages.fingerprint(message)
        key = str(message.id)
        chained = blake2b((last.digest if last else "").encode(), digest_size=16)
        chained.update(f"{key}\0{said}".encode(errors="surrogatepass"))
        known = said, chained.hexdigest(), date or (last.date if last else None), safe, shown
        entry = Entry(record.text, message, *known, pinned)
        place = record.place
        words = (record.place.lane, entry.date, (date if is_human else None) or shown)
        fact = (
            place.clock,
            place.number,
            place.state,
            *(self._words[word] for word in words),
            record.named,
        )
        self.facts.extend(np.array([fact], FACTS))
        for digests, it in ((self.fingerprints, said), (self.digests, entry.digest)):
            digests.extend(np.frombuffer(bytes.fromhex(it), "V16"))
        self.preservations.extend([PRESERVATIONS.index(entry.preservation)])
        self.safe.extend([safe])
        self.says.extend([bool(entry.text)])
        self.human.extend([is_human])
        self.ids.append(key)
        self.positions[key] = position
        self.decoded[position] = entry
        if open_calls != NO_CALLS:
            self.open_calls[position] = open_calls
        if message.name and not isinstance(message, ToolMessage):
            self.names.setdefault(message.name, position)
        if date is None and (value := messages.unread_time(message)) is not None:
            keep_newest(self.untimed, position, value, MOST_UNTIMED)

    def told_untimed(self) -> list[str]:
        """Returns the report's line about messages of which the time cannot be read."""
        if not self.untimed:
            return []
        places = ", ".join(
            f"{self.ids[position]!r} ({value})" for position, value in self.untimed.items()
        )
        accepted = "it is a time in ISO 8601, a Unix time in seconds or milliseconds, or a datetime"
        return [f"created_at cannot be read, so these messages have no time: {places}; {accepted}"]

    def changed(
        self, length: int, pins: Mapping[int, Preservation | None] | None = None
    ) -> "MessageTable":
        """Returns the table of the first messages, some with other pins.

        Keeps all derived data that is still valid.
        """
        if length >= len(self) and not pins:
            return self
        pins = pins or {}
        same = min(pins, default=length)
        other = MessageTable()
        other.take_columns(self, length)
        other.ids = self.ids[:length]
        other.positions = dict(zip(other.ids, range(length), strict=True))
        other.names = {name: at for name, at in self.names.items() if at < length}
        other._words.update(self._words)
        for name in ("open_calls", "decoded", "untimed"):
            setattr(
                other, name, {at: value for at, value in getattr(self, name).items() if at < length}
            )
        other._sealed = {
            begin: texts
            for begin, texts in self._sealed.items()
            if begin + TEXTS_TOGETHER <= length
        }
        other.decoded |= {at: self[at] for at in range(TEXTS_TOGETHER * len(other._sealed), length)}
        for at, pinned in pins.items():
            entry = other.decoded[at] = replace(self[at], pinned=pinned)
            other.preservations.values[at] = PRESERVATIONS.index(entry.preservation)
        other.counted = {
            name: costs.changed(length, sorted(pins)) for name, costs in self.counted.items()
        }
        # The index goes on with the new table; where this one is searched again, it is read anew.
        other.search_index, self.search_index = self.search_index.first(length), MessageIndex()
        other.trees = {size: tree.shortened(same) for size, tree in self.trees.items()}
        other.made = self.made.copy(other.trees.values())
        other.questions = self.questions if self.questions.read_until <= same else other.questions
        other.work = self.work if self.work.read_until <= same else other.work
        return other

    def tree(self, span_messages: int) -> Tree:
        """Returns the compaction tree for a size of spans, with all spans that have ended by now."""
        tree = self.trees.get(span_messages, Tree(span_messages)).grow(self)
        self.trees[span_messages] = tree
        return tree

    def read_ahead(self, length: int, span_messages: int) -> None:
        """Prepares the messages from `length` on for compaction, so that no prompt has to.

        More than a span of them are read when a prompt needs them.
        """
        if not 0 < len(self) - length <= span_messages:
            return
        for position in range(length, len(self)):
            candidates_of(self[position].as_line(position))
        ended = self.trees.get(span_messages, Tree(span_messages))
        tree = self.tree(span_messages)
        if tree is not ended:
            for node in tree.complete(len(self), len(ended.keys))[-2:]:
                Spans(self, tree, self.made).extracted(node)

    def costs(self, counter: TokenCounter) -> Costs:
        """Returns what every message costs by a counter; each is counted once."""
        known = self.counted.setdefault(counter.identity, Costs())
        known.grow(self, counter)
        return known

    def forget_costs(self, counter: TokenCounter) -> None:
        """Forgets what the messages cost by a counter: whoever asks next counts them all."""
        self.counted.pop(counter.identity, None)

    # Sealed segments

    def packed(self, first: int, end: int, pinned: Iterable[int]) -> tuple[dict[str, Any], Arrays]:
        """Returns some messages but for their texts as plain data and arrays, as if none was pinned."""
        arrays = self.arrays(first, end)
        words = list(self._words)
        of = dict[str, list[str | None]]()
        for at in pinned:
            arrays["preservations"][at - first] = PRESERVATIONS.index(
                messages.preservation_of(self[at].message)
            )
        for name in CODED:
            of[name], arrays["facts"][name] = coded(arrays["facts"][name], words)
        return {
            "ids": self.ids[first:end],
            "names": {name: at - first for name, at in self.names.items() if first <= at < end},
            "calls": [
                (at - first, self.open_calls[at])
                for at in range(first, end)
                if at in self.open_calls
            ],
            "untimed": [
                (at - first, value) for at, value in self.untimed.items() if first <= at < end
            ],
            **of,
        }, arrays

    def unpack(self, data: Mapping[str, Any], arrays: Arrays, texts: bytes) -> None:
        """Adds messages that were packed."""
        begin = len(self)
        facts = arrays["facts"].copy()
        for name in CODED:
            facts[name] = np.array([*map(self._words.__getitem__, data[name])])[facts[name]]
        self.extend({**arrays, "facts": facts})
        self.ids += data["ids"]
        self.positions |= zip(data["ids"], range(begin, len(self.ids)), strict=True)
        self.names = {name: begin + at for name, at in data["names"].items()} | self.names
        for at, (waiting, early, age) in data["calls"]:
            self.open_calls[begin + at] = OpenCalls(tuple(waiting), tuple(early), age)
        for at, value in data.get(
            "untimed", ()
        ):  # not in segments that were made before there were tails
            keep_newest(self.untimed, begin + at, value, MOST_UNTIMED)
        self.keep_sealed(begin, len(self), texts)

    def keep_sealed(self, first: int, end: int, texts: bytes) -> None:
        """Takes the texts of a segment, and lets go of the oldest messages beyond so many."""
        starts = range(first, end, TEXTS_TOGETHER)
        lengths = np.frombuffer(texts, np.int32, len(starts))
        ends = pairwise(np.append(0, lengths.cumsum()) + lengths.nbytes)
        for at, (begin, stop) in zip(starts, ends, strict=True):
            kept = self._sealed if at + TEXTS_TOGETHER <= end else self._begun
            kept[at] = texts[begin:stop]
        for at in [
            *islice(takewhile(end.__gt__, self.decoded), max(0, len(self.decoded) - MOST_DECODED))
        ]:
            del self.decoded[at]

    def seal_in_memory(self) -> None:
        """Keeps the texts of all messages but the last few as segments do.

        As objects they take ten times the memory.
        """
        first = TEXTS_TOGETHER * len(self._sealed)
        end = max(first, TEXTS_TOGETHER * ((len(self) - 1) // TEXTS_TOGETHER))
        if end > first:
            self.keep_sealed(first, end, packed_texts(self[first:end]))
        for at in [at for at in self.decoded if at < end]:
            del self.decoded[at]


def packed_texts(entries: Sequence[Entry]) -> bytes:
    """Returns the texts of messages in their stored form."""
    some = (
        entries[first : first + TEXTS_TOGETHER] for first in range(0, len(entries), TEXTS_TOGETHER)
    )
    parts = [zlib.compress(b"\0".join(entry.source.encode() for entry in few), 1) for few in some]
    return np.array([*map(len, parts)], np.int32).tobytes() + b"".join(parts)
