"""An open conversation: everything about it that is kept in memory, brought up to date by what is new.

Each message is read once: its cost, its search terms, its vector and the sentences worth keeping are made when
they are first needed and then stay. An edit or a removal takes back exactly what was made from there on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b

import numpy as np
from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage
from numpy.typing import NDArray

from langchain_ctxbudget.core.extractive import SEGMENT_MESSAGES, Line, Sentence, keep_sentences
from langchain_ctxbudget.core.messages import as_sent, date_of, fingerprint, plain_text, speaker
from langchain_ctxbudget.core.ranking import LexicalIndex
from langchain_ctxbudget.core.text import terms
from langchain_ctxbudget.core.tokens import TokenCounter
from langchain_ctxbudget.core.turns import as_note, provider_name, safe_cuts
from langchain_ctxbudget.flow import Lock
from langchain_ctxbudget.stores.records import CutRecord, LaneRecord, MessageRecord, Scope

MOST_CUTS = 8
"""Budgets for which a conversation remembers where verbatim history begins."""


@dataclass(slots=True)
class Entry:
    """One message and what is known about it."""

    record: MessageRecord
    message: BaseMessage
    """As it was given."""
    sent: BaseMessage
    """As it stands in a prompt."""
    tokens: int
    """What `sent` costs."""
    fingerprint: str
    digest: str
    """A digest of this message and all before it."""
    speaker: str
    date: str | None
    text: str
    safe_cut: bool
    """Whether a cut right before it leaves calls and results together."""
    open_calls: frozenset[str]
    """Calls not answered yet after it."""
    date_shown: str | None
    """The date that the newest human message up to here stands under."""
    line_tokens: int | None = None
    """What it costs as a retrieved item, once that was counted."""

    @property
    def id(self) -> str:
        """The message's id."""
        return self.record.id


@dataclass(slots=True)
class Conversation:
    """The working set of one conversation; whoever uses it holds its lock."""

    scope: Scope
    counter: TokenCounter
    lock: Lock = field(default_factory=Lock)
    lanes: dict[str, LaneRecord] | None = None
    """How far every writer had come when it was read; None before that."""
    latest: str | None = None
    """The token of the last write that was seen."""
    entries: list[Entry] = field(default_factory=list)
    costs: list[int] = field(default_factory=list)
    safe: list[bool] = field(default_factory=list)
    total_tokens: int = 0
    positions: dict[str, int] = field(default_factory=dict)
    occurrences: Counter[str] = field(default_factory=Counter)
    names: set[str] = field(default_factory=set)
    """Everyone who has spoken under a name."""
    lexical: LexicalIndex = field(default_factory=LexicalIndex)
    vectors: NDArray[np.float32] | None = None
    segments: list[tuple[Sentence, ...]] = field(default_factory=list)
    cuts: dict[str, CutRecord] = field(default_factory=dict)
    """By what they were made for, the one used last at the end."""
    previous: list[tuple[BaseMessage, int]] = field(default_factory=list)
    """The last prompt's messages and what they cost."""

    def update(self, records: Sequence[MessageRecord]) -> None:
        """Make this the conversation of these records; what stays the same is not read again."""
        same = 0
        for entry, record in zip(self.entries, records, strict=False):
            if entry.record.place != record.place or entry.record.message != record.message:
                break
            same += 1
        self._truncate(same)
        for record in records[same:]:
            self.append(record, record.to_message())

    def append(self, record: MessageRecord, message: BaseMessage) -> None:
        """Take in a message at the end."""
        last = self.entries[-1] if self.entries else None
        date = date_of(message)
        human = isinstance(message, HumanMessage)
        sent = as_sent(message, heading=_heading(message, date, last.date_shown if last else None) if human else None)
        waiting = set(last.open_calls) if last else set()
        [safe] = safe_cuts([message], waiting)
        said = fingerprint(message)
        chain = blake2b((last.digest if last else "").encode(), digest_size=16)
        chain.update(f"{record.id}\0{said}".encode(errors="surrogatepass"))
        entry = Entry(
            record=record,
            message=message,
            sent=sent,
            tokens=self.counter.count_message(as_note(sent)),
            fingerprint=said,
            digest=chain.hexdigest(),
            speaker=speaker(message),
            date=date or (last.date if last else None),
            text=plain_text(message),
            safe_cut=safe,
            open_calls=frozenset(waiting),
            date_shown=(date if human and date else None) or (last.date_shown if last else None),
        )
        if name := _speaking_name(message):
            self.names.add(name)
        self.positions[entry.id] = len(self.entries)
        self.occurrences[said] += 1
        self.entries.append(entry)
        self.costs.append(entry.tokens)
        self.safe.append(safe)
        self.total_tokens += entry.tokens

    def recount(self, counter: TokenCounter) -> None:
        """Count every message again, with another counter."""
        self.counter = counter
        for entry in self.entries:
            entry.tokens, entry.line_tokens = counter.count_message(as_note(entry.sent)), None
        self.costs = [entry.tokens for entry in self.entries]
        self.total_tokens = sum(self.costs)

    def adopt(self, other: Conversation) -> None:
        """Take over what is known about the same conversation elsewhere, so that it need not be read again."""
        self.entries = [replace(entry) for entry in other.entries]
        self.lanes, self.latest = None if other.lanes is None else dict(other.lanes), other.latest
        self.safe, self.positions = list(other.safe), dict(other.positions)
        self.occurrences, self.names = Counter(other.occurrences), set(other.names)
        self.lexical, self.vectors = other.lexical.copy(), other.vectors
        self.segments, self.cuts = list(other.segments), dict(other.cuts)
        self.recount(self.counter)

    def _truncate(self, length: int) -> None:
        gone = self.entries[length:]
        if not gone:
            return
        for entry in gone:
            del self.positions[entry.id]
            self.occurrences[entry.fingerprint] -= 1
        del self.entries[length:], self.costs[length:], self.safe[length:]
        self.total_tokens = sum(self.costs)
        self.names = {name for entry in self.entries if (name := _speaking_name(entry.message))}
        del self.segments[length // SEGMENT_MESSAGES :]
        if len(self.lexical) > length:
            self.lexical = LexicalIndex()
        if self.vectors is not None:
            self.vectors = self.vectors[:length]

    @property
    def digest(self) -> str:
        """A digest of all its messages."""
        return self.entries[-1].digest if self.entries else ""

    def index_until(self, end: int) -> None:
        """Bring the lexical index up to the messages before `end`."""
        if len(self.lexical) > end:  # the cut has moved back
            self.lexical = LexicalIndex()
        start = len(self.lexical)
        self.lexical.extend(terms(f"{entry.speaker} {entry.text}") for entry in self.entries[start:end])

    def texts_to_embed(self, end: int) -> list[str]:
        """The texts before `end` that have no vector yet."""
        start = 0 if self.vectors is None else len(self.vectors)
        return [entry.text for entry in self.entries[start:end]]

    def add_vectors(self, vectors: Sequence[Sequence[float]]) -> None:
        """Take in the vectors of `texts_to_embed`."""
        new = np.asarray(vectors, dtype=np.float32)
        self.vectors = new if self.vectors is None else np.concatenate((self.vectors, new))

    def kept_sentences(self, end: int) -> list[Sentence]:
        """What the summariser kept of the messages before `end`; whole segments are read once."""
        whole = end // SEGMENT_MESSAGES
        for number in range(len(self.segments), whole):
            first = number * SEGMENT_MESSAGES
            self.segments.append(keep_sentences(self._lines(first, first + SEGMENT_MESSAGES)))
        rest = keep_sentences(self._lines(whole * SEGMENT_MESSAGES, end))
        return [sentence for segment in self.segments[:whole] for sentence in segment] + list(rest)

    def _lines(self, first: int, end: int) -> list[Line]:
        return [
            Line(
                position=first + offset,
                speaker=entry.speaker,
                date=entry.date,
                text=entry.text,
                from_user=isinstance(entry.message, HumanMessage),
            )
            for offset, entry in enumerate(self.entries[first:end])
        ]

    def use(self, cut: CutRecord) -> None:
        """Keep a cut as the one used last; only the last few are kept."""
        self.cuts.pop(cut.made_for, None)
        self.cuts[cut.made_for] = cut
        while len(self.cuts) > MOST_CUTS:
            del self.cuts[next(iter(self.cuts))]

    def cut_is_valid(self, cut: CutRecord) -> bool:
        """Whether a cut was made for the messages that stand before it now."""
        if not 0 < cut.position <= len(self.entries):
            return False
        return self.entries[cut.position - 1].digest == cut.digest


def _speaking_name(message: BaseMessage) -> str | None:
    return None if isinstance(message, ToolMessage) else message.name


def _heading(message: BaseMessage, date: str | None, shown: str | None) -> str | None:
    """What stands above a human message: its date where that is new, its speaker where the name cannot be sent."""
    lost = message.name if message.name and provider_name(message.name) is None else None
    parts = [part for part in (date if date != shown else None, lost) if part]
    return f"[{', '.join(parts)}]" if parts else None
