"""A conversation as one prompt sees it, and the table of its messages.

The table is only ever added to; whatever changes messages makes another table. So a `Conversation`, which reads a table
up to its last message, stays as it is while the talk goes on: its report can still be asked what another budget would
have given. What is known of a message is worked out once, when it is added or when it is first needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from langchain_core.messages import BaseMessage
from numpy.typing import NDArray

from langchain_ctxbudget.history.digest import Line
from langchain_ctxbudget.history.entry import Entry
from langchain_ctxbudget.history.message_index import MessageIndex
from langchain_ctxbudget.history.open_questions import OpenQuestions
from langchain_ctxbudget.history.spans import KnownDigests, Spans
from langchain_ctxbudget.history.tree import Tree
from langchain_ctxbudget.history.turn_block import TurnBlock
from langchain_ctxbudget.messages.calls import is_user
from langchain_ctxbudget.messages.clipping import clip_message
from langchain_ctxbudget.messages.preservation import Preservation
from langchain_ctxbudget.messages.turns import as_note
from langchain_ctxbudget.report.report import CoverageRange
from langchain_ctxbudget.search.ranking import Numbers
from langchain_ctxbudget.search.vectors import Rows
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores.records import CutRecord, MessageRecord, Scope, SnapshotRecord
from langchain_ctxbudget.tokens.counters import TokenCounter

MOST_CLIPS = 1_000
"""Messages that were too large for a budget, as they were clipped for it, that are remembered."""
MOST_COUNTERS = 4
"""Counters whose costs are kept; the one unused for longest goes first."""

Clips = dict[tuple[int, int], tuple[BaseMessage, int]]
"""Large messages as they were clipped, and what that costs, by position and limit."""


class Costs:
    """A column of the table: what every message costs by one counter, in tokens."""

    def __init__(self, counter: TokenCounter) -> None:
        """Begins with no messages."""
        self.counter = counter
        self.tokens: list[int] = []
        self.column = Rows(np.int32)
        self.total = 0
        self.clips: Clips = {}

    def grow(self, entries: Sequence[Entry]) -> None:
        """Counts the messages that are new."""
        new = [self._of(entry) for entry in entries[len(self.tokens) :]]
        self.tokens += new
        self.column.extend(new)
        self.total += sum(new)

    def _of(self, entry: Entry) -> int:
        return 0 if entry.preservation == "drop" else self.counter.count_message(as_note(entry.sent))

    def changed(self, entries: Sequence[Entry], positions: Sequence[int]) -> Costs:
        """Returns the costs of messages that are the same up to the first of some positions.

        Args:
            entries: all messages as they are now.
            positions: of those that are shown otherwise, ascending; all that follow the last one stay as they are.
        """
        other = Costs(self.counter)
        other.tokens = self.tokens[: len(entries)]
        for position in positions:
            if position < len(other.tokens):
                other.tokens[position] = self._of(entries[position])
        other.column.extend(other.tokens)
        other.total = sum(other.tokens)
        first = positions[0] if positions else len(entries)
        other.clips = {key: clip for key, clip in self.clips.items() if key[0] < first}
        return other


class MessageTable:
    """The messages of a conversation and what is known of each, in order; only ever added to."""

    def __init__(self) -> None:
        """Begins with no messages."""
        self.entries: list[Entry] = []
        self.safe: list[bool] = []
        self.positions: dict[str, int] = {}
        self.occurrences: Counter[str] = Counter()
        self.names: set[str] = set()
        """Everyone who has spoken under a name."""
        self.kept: list[int] = []
        """Positions of the messages that stay verbatim while they fit."""
        self.dropped: list[int] = []
        """Positions of those that are left out of prompts."""
        self.quotable = Rows(np.bool_)
        self.exchanges = 0
        """The number of its messages that are a human's."""
        self.newest_state = 0
        self.index = MessageIndex()
        self.trees: dict[int, Tree] = {}
        """The compaction tree for every size of segments that was asked for."""
        self.questions = OpenQuestions()
        self.made = KnownDigests()
        self._costs: list[Costs] = []

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def digest(self) -> str:
        """A digest of all its messages."""
        return self.entries[-1].digest if self.entries else ""

    def append(self, record: MessageRecord, message: BaseMessage, pinned: Preservation | None = None) -> None:
        """Adds a message at the end."""
        self._take(Entry.after(self.entries[-1] if self.entries else None, record, message, pinned))

    def _take(self, entry: Entry) -> None:
        position = len(self.entries)
        if entry.speaking_name:
            self.names.add(entry.speaking_name)
        if entry.preservation == "keep":
            self.kept.append(position)
        if entry.preservation == "drop":
            self.dropped.append(position)
        self.quotable.extend([entry.is_quotable])
        self.newest_state = max(self.newest_state, entry.state)
        self.positions[entry.id] = position
        self.occurrences[entry.fingerprint] += 1
        self.exchanges += is_user(entry.message)
        self.safe.append(entry.safe_cut)
        self.entries.append(entry)

    def first(self, length: int) -> MessageTable:
        """Returns the table of the first messages alone; what was made of them stays."""
        if length >= len(self.entries):
            return self
        other = self._changed(self.entries[:length], [])
        other.index = other.index.first(length)
        return other

    def pinned(self, pins: Mapping[str, Preservation], changed: Iterable[str]) -> MessageTable:
        """Returns the table in which some messages have other pins.

        Args:
            pins: what was asked for, by message id.
            changed: ids of those for which it may be something else than before.
        """
        positions = sorted(self.positions[key] for key in changed if key in self.positions)
        if not positions:
            return self
        entries = list(self.entries)
        for position in positions:
            entries[position] = entries[position].kept_as(pins.get(entries[position].id))
        return self._changed(entries, positions)

    def _changed(self, entries: Sequence[Entry], positions: Sequence[int]) -> MessageTable:
        other = MessageTable()
        for entry in entries:
            other._take(entry)
        other.newest_state = self.newest_state
        # The index goes on with the new table; where this one is searched again, it is read anew.
        other.index, self.index = self.index, MessageIndex()
        other.made = self.made.copy()
        other._costs = [costs.changed(entries, positions) for costs in self._costs]
        first = positions[0] if positions else len(entries)
        other.trees = {size: tree.shortened(first) for size, tree in self.trees.items()}
        other.made.keep(other.trees.values())
        if self.questions.read_until <= first:
            other.questions = self.questions
        return other

    def tree(self, segment_messages: int) -> Tree:
        """Returns the compaction tree for a size of segments, with all segments that have ended by now."""
        tree = self.trees.get(segment_messages, Tree(segment_messages)).grow(self.entries)
        self.trees[segment_messages] = tree
        return tree

    def costs(self, counter: TokenCounter) -> Costs:
        """Returns what every message costs by a counter; each is counted once."""
        known = next((costs for costs in self._costs if costs.counter is counter), None) or Costs(counter)
        self._costs = [*(costs for costs in self._costs if costs is not known), known][-MOST_COUNTERS:]
        known.grow(self.entries)
        return known

    def holds(self, position: int, digest: str) -> bool:
        """Returns whether it begins with so many messages of this digest."""
        return position <= len(self.entries) and (not position or self.entries[position - 1].digest == digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastPrompt:
    """What a conversation remembers of the prompt that was made last."""

    messages: Sequence[BaseMessage]
    costs: Sequence[int]
    """What each of them cost, in tokens."""
    stable: int
    """The number of messages in its stable zone."""
    long_turn: int
    """How often its turn had outgrown its room, for which history is planned otherwise."""
    squeezed: bool
    """Something of its stable zone had to be left out for that turn alone."""
    turn: Sequence[BaseMessage]
    """The current turn, which is not among the messages of the conversation yet."""
    block: TurnBlock | None
    settings: ContextSettings
    coverage: tuple[CoverageRange, ...] | None
    """Its ledger; None where messages have changed since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """The messages of a conversation at one moment, with what they cost for one model; nothing in it changes."""

    scope: Scope
    counter: TokenCounter
    table: MessageTable
    entries: Sequence[Entry]
    costs: Sequence[int]
    """What each costs as it stands in a prompt, in tokens."""
    cost_column: Numbers
    total_tokens: int
    safe: Sequence[bool]
    """A cut right before that message leaves calls and results together."""
    kept: Sequence[int]
    dropped: Sequence[int]
    quotable: NDArray[np.bool_]
    exchanges: int
    names: frozenset[str]
    cuts: Mapping[str, CutRecord] = field(default_factory=dict)
    """Compaction cuts by what they were made for, the one used last at the end."""
    snapshot: SnapshotRecord | None = None
    """What its prompts show of the facts about the user; None before the first one."""
    last: LastPrompt | None = None
    clips: Clips = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        scope: Scope,
        table: MessageTable,
        counter: TokenCounter,
        *,
        cuts: Mapping[str, CutRecord] | None = None,
        snapshot: SnapshotRecord | None = None,
        last: LastPrompt | None = None,
    ) -> Conversation:
        """Returns a conversation as it is now; the caller holds its lock."""
        costs = table.costs(counter)
        return cls(
            scope=scope,
            counter=counter,
            table=table,
            entries=table.entries[:],
            costs=costs.tokens[:],
            cost_column=costs.column.values,
            total_tokens=costs.total,
            safe=table.safe[:],
            kept=tuple(table.kept),
            dropped=tuple(table.dropped),
            quotable=table.quotable.values,
            exchanges=table.exchanges,
            names=frozenset(table.names),
            cuts=dict(cuts or {}),
            snapshot=snapshot,
            last=last,
            clips=costs.clips,
        )

    @property
    def made(self) -> KnownDigests:
        """The digests of spans that are known."""
        return self.table.made

    @property
    def digest(self) -> str:
        """A digest of all its messages."""
        return self.entries[-1].digest if self.entries else ""

    @property
    def is_newest(self) -> bool:
        """Nothing has been added to its table since."""
        return len(self.table) == len(self.entries)

    def position(self, message_id: str | None) -> int | None:
        """Returns where a message stands, or None where there is none of this id."""
        position = self.table.positions.get(message_id or "")
        return None if position is None or position >= len(self.entries) else position

    def lines(self, first: int, end: int) -> list[Line]:
        """Returns messages as a summariser reads them."""
        return [entry.as_line(first + offset) for offset, entry in enumerate(self.entries[first:end])]

    def spans(self, segment_messages: int) -> Spans:
        """Returns the spans for a size of segments, with all segments that have ended by now."""
        tree = self.table.tree(segment_messages)
        if not self.is_newest:
            tree = tree.shortened(len(self.entries)).grow(self.entries)
        return Spans(self.entries, tree, self.made, self.dropped)

    def shown(self, position: int, most_tokens: int) -> tuple[BaseMessage, int]:
        """Returns a message as it stands among others, and what it costs.

        It is clipped where it is too large, unless it is kept.

        Args:
            position: of the message.
            most_tokens: what it may cost.
        """
        entry, cost = self.entries[position], self.costs[position]
        if cost <= most_tokens or entry.preservation == "keep":
            return entry.sent, cost
        key = (position, most_tokens)
        if key not in self.clips:
            count, number = self.counter.count_message, f"#{position + 1}"
            clipped = clip_message(entry.sent, count, self.counter.count_text, most_tokens, reference=number)
            while len(self.clips) >= MOST_CLIPS:
                del self.clips[next(iter(self.clips))]
            self.clips[key] = (entry.sent, cost) if clipped is None else (clipped, count(as_note(clipped)))
        return self.clips[key]

    def read_questions(self, end: int) -> OpenQuestions:
        """Returns the questions that the messages before `end` leave open."""
        known = self.table.questions
        if known.read_until > end or not self.is_newest:  # the cut has moved back
            known = OpenQuestions()
        known = known.read(self.lines(known.read_until, end))
        if self.is_newest:
            self.table.questions = known
        return known

    def ids(self, positions: Iterable[int]) -> list[str]:
        """Returns the ids of messages."""
        return [self.entries[position].id for position in positions]
