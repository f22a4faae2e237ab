"""A conversation as one prompt sees it, and what it remembers of the prompt before.

A `Conversation` reads the table of messages up to its last one. It stays as it is while the talk goes on: a report can
still be asked what another budget would have given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
from langchain_core.messages import BaseMessage
from numpy.typing import NDArray

from langchain_ctxbudget.history.arc import OpenQuestions
from langchain_ctxbudget.history.entry import Entry
from langchain_ctxbudget.history.extractive import Line
from langchain_ctxbudget.history.table import Beginning, Clips, Costs, MessageTable
from langchain_ctxbudget.history.tree import KnownDigests, Spans
from langchain_ctxbudget.history.turn_blocks import TurnBlock, with_block
from langchain_ctxbudget.messages import as_note, as_sent, clip_message
from langchain_ctxbudget.report import CoverageRange, CoverageState, ranges
from langchain_ctxbudget.search import Numbers
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores import CutRecord, Scope, SnapshotRecord
from langchain_ctxbudget.tokens import TokenCounter

MOST_CLIPS = 1_000
"""Messages that were too large for a budget, as they were clipped for it, that are remembered."""


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
    at: datetime | None = None
    """When it was made."""
    coverage: Callable[[], tuple[CoverageRange, ...]] | None
    """Makes its ledger; None where messages have changed since."""


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
    columns: Costs
    exchanges: int
    names: frozenset[str]
    cuts: Mapping[str, CutRecord]
    """Compaction cuts by what they were made for, the one used last at the end."""
    snapshot: SnapshotRecord | None
    """What its prompts show of the facts about the user; None before the first one."""
    last: LastPrompt | None
    sent: Mapping[int, TurnBlock] = field(default_factory=dict)
    """What its human messages were sent with since the last compaction step, by position."""
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
        sent: Mapping[int, TurnBlock] | None = None,
    ) -> Conversation:
        """Returns a conversation as it is now; the caller holds its lock."""
        costs = table.costs(counter)
        return cls(
            scope=scope,
            counter=counter,
            table=table,
            entries=Beginning(table.entries),
            costs=Beginning(costs.tokens),
            columns=costs,
            cost_column=costs.column.values,
            total_tokens=costs.total_tokens,
            safe=Beginning(table.safe),
            kept=tuple(table.kept),
            dropped=tuple(table.dropped),
            quotable=table.quotable.values,
            exchanges=table.exchanges,
            names=frozenset(table.names),
            cuts=dict(cuts or {}),
            snapshot=snapshot,
            last=last,
            sent=dict(sent or {}),
            clips=costs.clips,
        )

    def least_costs(self, positions: NDArray[np.intp]) -> list[int]:
        """Returns what quoting some messages costs at least, about."""
        costs: list[int] = (self.cost_column[positions] * self.table.text_only.values[positions]).tolist()
        return costs

    def quote_costs(self, positions: NDArray[np.intp], *, numbered: bool) -> list[int]:
        """Returns what the lines cost that quote some messages; `UNKNOWN` of those not counted yet."""
        column = self.columns.numbered_quote if numbered else self.columns.quote
        costs: list[int] = column.values[positions].tolist()
        return costs

    def count_quote(self, position: int, *, numbered: bool) -> int:
        """Counts the line that quotes a message, and remembers what it costs."""
        tokens = self.counter.count_text(self.quoted(position, numbered=numbered))
        column = self.columns.numbered_quote if numbered else self.columns.quote
        column.values[position] = tokens
        return tokens

    def quoted(self, position: int, *, numbered: bool) -> str:
        """Returns the line that quotes a message, with its number where it is to be looked up by that."""
        return self.entries[position].quoted(f"#{position + 1} " if numbered else "")

    @property
    def made(self) -> KnownDigests:
        """The digests of spans that are known."""
        return self.table.made

    def bare(self) -> Conversation:
        """Returns what there is to tell of it: messages and costs, without the table and what was made of it."""
        return replace(self, table=MessageTable(), columns=Costs(self.counter), cuts={}, last=None, clips={})

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

    def quotable_lines(self, end: int) -> list[Line]:
        """Returns the messages before a place that may stand in a prompt word for word, results of tools apart."""
        return [
            entry.as_line(position, self.costs[position])
            for position, entry in enumerate(self.entries[:end])
            if entry.message.type != "tool" and entry.is_quotable
        ]

    def spans(self, segment_messages: int) -> Spans:
        """Returns the spans for a size of segments, with all segments that have ended by now."""
        tree = self.table.tree(segment_messages)
        if not self.is_newest:
            tree = tree.shortened(len(self.entries)).grow(self.entries)
        return Spans(self.entries, tree, self.made, self.dropped)

    def shown(self, position: int, most_tokens: int) -> tuple[BaseMessage, int]:
        """Returns a message as it stands among others, clipped to so many tokens unless it is kept, and its cost."""
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

    def sent_again(self, position: int, block: TurnBlock | None) -> BaseMessage:
        """Returns a message whole, as it was sent with its block; without one, as it stands among others."""
        if block is None:
            return self.entries[position].sent
        known = self.columns.with_blocks.get(position)
        if known is None or known[0] is not block:
            sent = as_sent(self.entries[position].message.model_copy(update={"name": block.name}))
            known = self.columns.with_blocks[position] = (block, with_block(sent, block.text))
        return known[1]

    def read_questions(self, end: int) -> OpenQuestions:
        """Returns the questions that the messages before `end` leave open."""
        known = self.table.questions
        if known.read_until > end or not self.is_newest:  # the cut has moved back
            known = OpenQuestions()
        known = known.read(self.lines(known.read_until, end))
        if self.is_newest:
            self.table.questions = known
        return known

    def ledger(self) -> dict[CoverageState, list[str]]:
        """Returns the ids of its messages by their state in its last prompt, in order; each in exactly one.

        Messages that came after that prompt, or all where there was none in this process, are to be verbatim in the
        next one as far as they fit: they count as verbatim, and what the last compaction left behind as it left it.
        """
        states: dict[CoverageState, list[str]] = {"verbatim": [], "summarized": [], "retrieved": [], "omitted": []}
        for part in self._coverage():
            states[part.state] += self.ids(range(part.first - 1, part.last))
        states["verbatim"] += self.ids(range(sum(map(len, states.values())), len(self.entries)))
        return states

    def _coverage(self) -> tuple[CoverageRange, ...]:
        if self.last is not None and self.last.coverage is not None:
            return self.last.coverage()
        if not self.cuts:
            return ()
        cut = list(self.cuts.values())[-1]
        covered = [(line.first, line.end) for line in (*cut.summary, *cut.arc) if line.first < line.end]
        marks: dict[int, CoverageState] = dict.fromkeys(self.dropped, "omitted")
        return ranges(len(self.entries), cut.position, covered, marks | dict.fromkeys(cut.kept, "verbatim"))

    def ids(self, positions: Iterable[int]) -> list[str]:
        """Returns the ids of messages."""
        return [self.entries[position].id for position in positions]
