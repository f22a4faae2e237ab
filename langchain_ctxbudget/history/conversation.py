"""An open conversation: everything about it that is kept in memory, brought up to date by what is new.

Each message is read once: its cost, its search terms, its vector and what summaries keep of it are made when they are
first needed and then stay. An edit or a removal takes back exactly what was made from there on.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from langchain_core.messages import BaseMessage, ToolMessage

from langchain_ctxbudget.core.block import TurnBlock
from langchain_ctxbudget.core.calls import is_user, provider_name
from langchain_ctxbudget.core.clipping import clip_message
from langchain_ctxbudget.core.digest import Line
from langchain_ctxbudget.core.messages import as_sent, date_of, fingerprint, is_plain, plain_text, speaker
from langchain_ctxbudget.core.preservation import Preservation, excerpt, preservation_of
from langchain_ctxbudget.core.questions import OpenQuestions
from langchain_ctxbudget.core.report import CoverageRange
from langchain_ctxbudget.core.tokens import TokenCounter
from langchain_ctxbudget.core.turns import as_note, safe_cuts
from langchain_ctxbudget.flow import Lock
from langchain_ctxbudget.history.elsewhere import Elsewhere
from langchain_ctxbudget.history.entry import Entry
from langchain_ctxbudget.history.search_index import SearchIndex
from langchain_ctxbudget.history.spans import Made, Spans
from langchain_ctxbudget.knowledge.records import SnapshotRecord
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores.message_log import Heads, News, fold, in_order
from langchain_ctxbudget.stores.records import CutRecord, MessageRecord, Place, Scope

MOST_CUTS = 8
"""Budgets for which a conversation remembers where verbatim history begins."""
MOST_CLIPS = 1_000
"""Messages that were too large for a budget, as they were clipped for it, that are remembered."""


@dataclass(slots=True)
class Conversation:
    """The working set of one conversation; whoever uses it holds its lock."""

    scope: Scope
    counter: TokenCounter
    lock: Lock = field(default_factory=Lock)
    heads: Heads | None = None
    """How far every writer had come when it was read; None before that."""
    joined: bool = False
    """Whether the others were told that this process writes, too."""
    untold: set[str] = field(default_factory=set)
    """Keys of records that were changed here, of which the others could not be told yet."""
    failed_writes: int = 0
    """How often a write has failed; one that did may still arrive."""
    entries: list[Entry] = field(default_factory=list)
    doubles: list[MessageRecord] = field(default_factory=list)
    """Records of messages that several writers appended, but for the first."""
    renamed: set[str] = field(default_factory=set)
    """Keys of the records whose messages go by another id than they have."""
    archived: dict[str, list[Place]] = field(default_factory=dict)
    """Where messages are that were taken out and kept aside, by id."""
    costs: list[int] = field(default_factory=list)
    safe: list[bool] = field(default_factory=list)
    total_tokens: int = 0
    exchanges: int = 0
    """How many of its messages are a human's."""
    positions: dict[str, int] = field(default_factory=dict)
    occurrences: Counter[str] = field(default_factory=Counter)
    names: set[str] = field(default_factory=set)
    """Everyone who has spoken under a name."""
    search: SearchIndex = field(default_factory=SearchIndex)
    elsewhere: Elsewhere = field(default_factory=Elsewhere)
    """What was read of the user's other conversations."""
    pins: dict[str, Preservation] = field(default_factory=dict)
    """What was asked for by `pin`, by message id; it outweighs what the message says."""
    kept: list[int] = field(default_factory=list)
    """Positions of the messages that stay verbatim while they fit."""
    dropped: list[int] = field(default_factory=list)
    """Positions of those that are left out of prompts."""
    trees: dict[int, Spans] = field(default_factory=dict)
    """The compaction tree for every size of segments that was asked for."""
    made: Made = field(default_factory=Made)
    """What a model has written about spans."""
    questions: OpenQuestions = field(default_factory=OpenQuestions)
    clips: dict[tuple[int, int], tuple[BaseMessage, int]] = field(default_factory=dict)
    """Large messages as they were clipped, by position and limit."""
    cuts: dict[str, CutRecord] = field(default_factory=dict)
    """By what they were made for, the one used last at the end."""
    cuts_unsaved: bool = False
    """Whether the store could not be told of the newest one."""
    snapshot: SnapshotRecord | None = None
    """What its prompts show of the facts about the user; None before the first one."""
    snapshot_unsaved: bool = False
    """Whether the store does not know it yet."""
    learned: tuple[int, str] = (0, "")
    """How many of its messages were learned from, as far as is known here, and the digest of these."""
    learning_problem: str = ""
    """Why the model could not learn from it the last time."""
    previous: list[tuple[BaseMessage, int]] = field(default_factory=list)
    """The last prompt's messages and what they cost."""
    previous_stable: int = 0
    """How many of them were its stable zone."""
    previous_long: int = 0
    """How often its turn had outgrown its room, for which history is planned otherwise."""
    turn: Sequence[BaseMessage] = ()
    """The current turn of the last prompt, which is not among the entries yet."""
    chosen: tuple[TurnBlock, ContextSettings] | None = None
    """Its context block, and the settings that it was chosen under."""
    squeezed: bool = False
    """Whether something of its stable zone had to be left out for that turn alone."""
    coverage: tuple[CoverageRange, ...] | None = None
    """The ledger of the last prompt."""

    def reset(self) -> None:
        """Forget everything, as if it had not been read yet."""
        new = Conversation(self.scope, self.counter, self.lock, failed_writes=self.failed_writes)
        for name in self.__slots__:
            setattr(self, name, getattr(new, name))

    def take_in(self, news: News, *, whole: bool = False) -> None:
        """Take in what was read of the log; messages before the first difference are not looked at again.

        Args:
            news: what is new, or everything.
            whole: whether it is everything.
        """
        position = 0 if whole else self._first_touched(news)
        old = self.entries[position:]
        records = {record.place.key: record for record in news.messages}
        if whole:
            self.archived = {}
        else:
            changed = {key: record for key, record in news.changed.items() if record is not None}
            kept = {r.place.key: r for r in (*(entry.record for entry in old), *self.doubles)}
            records = {key: r for key, r in kept.items() if key not in news.changed} | changed | records
            left = {key: [p for p in places if p.key not in news.changed] for key, places in self.archived.items()}
            self.archived = {key: places for key, places in left.items() if places}

        def known(key: str) -> str | None:
            return self.entries[at].fingerprint if (at := self.positions.get(key, position)) < position else None

        folded = fold(in_order(records.values()), known)
        pairs = zip(old, folded.messages, strict=False)
        same = next((i for i, (o, (r, m)) in enumerate(pairs) if o.record != r or o.id != m.id), None)
        same = min(len(old), len(folded.messages)) if same is None else same
        self._truncate(position + same)
        for record, message in folded.messages[same:]:
            self.append(record, message)
        self.doubles = list(folded.doubles)
        self.renamed = {key for key in self.renamed if key not in records and key not in news.changed}
        self.renamed |= set(folded.renamed)
        if whole or news.changed:
            self.made.read_again()
        for key, places in folded.archived.items():
            self.archived.setdefault(key, []).extend(places)

    def _first_touched(self, news: News) -> int:
        """The position of the first message that news may change."""
        changed = [record for record in news.changed.values() if record is not None]
        starts = [bisect_left(self.entries, r.place.order, key=Entry.order) for r in (*news.messages[:1], *changed)]
        known = (
            {entry.record.place.key: position for position, entry in enumerate(self.entries)} if news.changed else {}
        )
        starts += [known[key] for key in news.changed if key in known]
        return min(starts, default=len(self.entries))

    def entry(self, message_id: str) -> Entry | None:
        """A message by its id, or None where there is none."""
        position = self.positions.get(message_id)
        return None if position is None else self.entries[position]

    def fingerprint_of(self, message_id: str) -> str | None:
        """The fingerprint of a message, or None where there is none of this id."""
        entry = self.entry(message_id)
        return entry.fingerprint if entry else None

    def lane(self, writer_id: str) -> str:
        """The lane that a writer goes on with."""
        return f"{writer_id}.{self.failed_writes}" if self.failed_writes else writer_id

    def places_of(self, message_id: str) -> list[Place]:
        """Where a message's records are, its doubles among them; nowhere where there is no such message."""
        entry = self.entry(message_id)
        doubles = (double.place for double in self.doubles if double.to_message().id == message_id)
        return [] if entry is None else [entry.record.place, *doubles]

    def append(self, record: MessageRecord, message: BaseMessage) -> None:
        """Take in a message at the end."""
        last = self.entries[-1] if self.entries else None
        date = date_of(message)
        human = is_user(message)
        shown = last.date_shown if last else None
        open_calls = last.open_calls if last else frozenset()
        safe = True
        if open_calls or not is_plain(message):  # plain words open nothing that must not be cut
            waiting = set(open_calls)
            [safe] = safe_cuts([message], waiting)
            open_calls = frozenset(waiting)
        said = fingerprint(message)
        chain = blake2b((last.digest if last else "").encode(), digest_size=16)
        key = str(message.id)
        chain.update(f"{key}\0{said}".encode(errors="surrogatepass"))
        entry = Entry(
            id=key,
            record=record,
            message=message,
            sent=message,
            tokens=0,
            fingerprint=said,
            digest=chain.hexdigest(),
            speaker=speaker(message),
            date=date or (last.date if last else None),
            text=plain_text(message),
            safe_cut=safe,
            open_calls=open_calls,
            date_shown=(date if human and date else None) or shown,
            heading=_heading(message, date, shown) if human else None,
            preservation=self.pins.get(key) or preservation_of(message),
        )
        self._show(entry)
        if name := _speaking_name(message):
            self.names.add(name)
        if entry.preservation == "keep":
            self.kept.append(len(self.entries))
        if entry.preservation == "drop":
            self.dropped.append(len(self.entries))
        self.positions[entry.id] = len(self.entries)
        self.occurrences[said] += 1
        self.exchanges += human
        self.entries.append(entry)
        self.costs.append(entry.tokens)
        self.safe.append(safe)
        self.total_tokens += entry.tokens

    def _show(self, entry: Entry) -> None:
        """Make the form in which a message stands in a prompt, and count it."""
        sent = as_sent(entry.message, heading=entry.heading)
        entry.sent = excerpt(sent) if entry.preservation == "summarize" else sent
        self._count(entry)

    def _count(self, entry: Entry) -> None:
        entry.tokens = 0 if entry.preservation == "drop" else self.counter.count_message(as_note(entry.sent))

    def pin(self, pins: Mapping[str, Preservation]) -> None:
        """Make these the pins; only messages whose preservation changes are shown and counted anew."""
        changed = {key for key in {*pins, *self.pins} if pins.get(key) != self.pins.get(key)}
        self.pins = dict(pins)
        positions = sorted(self.positions[key] for key in changed if key in self.positions)
        for position in positions:
            entry = self.entries[position]
            entry.preservation = pins.get(entry.id) or preservation_of(entry.message)
            self._show(entry)
            self.total_tokens += entry.tokens - self.costs[position]
            self.costs[position] = entry.tokens
        if positions:
            self.kept = [i for i, entry in enumerate(self.entries) if entry.preservation == "keep"]
            self.dropped = [i for i, entry in enumerate(self.entries) if entry.preservation == "drop"]
            self.search.show_again(self.entries, positions)
            self._forget_derived(positions[0])

    def recount(self, counter: TokenCounter) -> None:
        """Count every message again, with another counter."""
        self.counter = counter
        for entry in self.entries:
            self._count(entry)
        self.costs = [entry.tokens for entry in self.entries]
        self.total_tokens = sum(self.costs)
        self.search.show_again(self.entries)
        self.clips = {}

    def adopt(self, other: Conversation) -> None:
        """Take over what is known about the same conversation elsewhere, so that it need not be read again."""
        self.entries = [replace(entry) for entry in other.entries]
        self.heads, self.doubles, self.renamed = other.heads, list(other.doubles), set(other.renamed)
        self.archived = {key: list(places) for key, places in other.archived.items()}
        self.safe, self.positions, self.exchanges = list(other.safe), dict(other.positions), other.exchanges
        self.occurrences, self.names = Counter(other.occurrences), set(other.names)
        self.search = other.search.copy()
        self.pins, self.kept, self.dropped = dict(other.pins), list(other.kept), list(other.dropped)
        self.trees = {size: spans.copy() for size, spans in other.trees.items()}
        self.made, self.questions = other.made.copy(), other.questions.copy()
        self.cuts = dict(other.cuts)
        self.snapshot, self.snapshot_unsaved = other.snapshot, other.snapshot_unsaved
        self.recount(self.counter)

    def _truncate(self, length: int) -> None:
        gone = self.entries[length:]
        if not gone:
            return
        for entry in gone:
            del self.positions[entry.id]
            self.occurrences[entry.fingerprint] -= 1
        del self.entries[length:], self.costs[length:], self.safe[length:]
        del self.kept[bisect_left(self.kept, length) :], self.dropped[bisect_left(self.dropped, length) :]
        self.total_tokens = sum(self.costs)
        self.exchanges = sum(is_user(entry.message) for entry in self.entries)
        self.names = {name for entry in self.entries if (name := _speaking_name(entry.message))}
        self.coverage, self.turn, self.chosen = None, (), None
        self._forget_derived(length)
        self.search = self.search.truncated(self.entries)

    def _forget_derived(self, position: int) -> None:
        """Take back what was made of the messages from here on."""
        for spans in self.trees.values():
            spans.truncate(position)
        if self.questions.read_until > position:
            self.questions = OpenQuestions()
        self.clips = {key: clip for key, clip in self.clips.items() if key[0] < position}

    @property
    def digest(self) -> str:
        """A digest of all its messages."""
        return self.entries[-1].digest if self.entries else ""

    def digest_before(self, position: int) -> str:
        """A digest of the messages before a position, without those that are dropped."""
        if not position:
            return ""
        dropped = self.dropped[: bisect_left(self.dropped, position)]
        return "-".join([self.entries[position - 1].digest, *self.ids(dropped)])

    def new_to_learn(self) -> int | None:
        """How many messages were not learned from, as far as is known here; None: some that were have changed."""
        position, digest = self.learned
        if position > len(self.entries) or (position and self.entries[position - 1].digest != digest):
            return None
        return len(self.entries) - position

    def lines(self, first: int, end: int) -> list[Line]:
        """Messages as a summariser reads them."""
        return [entry.as_line(first + offset) for offset, entry in enumerate(self.entries[first:end])]

    def spans(self, segment_messages: int) -> Spans:
        """The compaction tree for a size of segments, with all segments that have ended by now."""
        if segment_messages not in self.trees:
            self.trees[segment_messages] = Spans(segment_messages)
        tree = self.trees[segment_messages]
        tree.grow(self.entries, self.safe)
        return tree

    def shown(self, position: int, most_tokens: int) -> tuple[BaseMessage, int]:
        """A message as it stands among others, and what it costs: clipped where it is too large, unless it is kept.

        Args:
            position: which message.
            most_tokens: what it may cost.
        """
        entry = self.entries[position]
        if entry.tokens <= most_tokens or entry.preservation == "keep":
            return entry.sent, entry.tokens
        key = (position, most_tokens)
        if key not in self.clips:
            count, number = self.counter.count_message, f"#{position + 1}"
            clipped = clip_message(entry.sent, count, self.counter.count_text, most_tokens, reference=number)
            while len(self.clips) >= MOST_CLIPS:
                del self.clips[next(iter(self.clips))]
            self.clips[key] = (entry.sent, entry.tokens) if clipped is None else (clipped, count(as_note(clipped)))
        return self.clips[key]

    def read_questions(self, end: int) -> OpenQuestions:
        """The questions that the messages before `end` leave open."""
        if self.questions.read_until > end:  # the cut has moved back
            self.questions = OpenQuestions()
        self.questions.read(self.lines(self.questions.read_until, end))
        return self.questions

    def use(self, cut: CutRecord) -> None:
        """Keep a cut as the one used last; only the last few are kept."""
        self.cuts.pop(cut.made_for, None)
        self.cuts[cut.made_for] = cut
        while len(self.cuts) > MOST_CUTS:
            del self.cuts[next(iter(self.cuts))]

    def cut_is_valid(self, cut: CutRecord) -> bool:
        """Whether a cut was made for the messages that stand before it now."""
        read = max(cut.position, cut.cleared)
        return 0 < read <= len(self.entries) and self.entries[read - 1].digest == cut.digest

    def ids(self, positions: Iterable[int]) -> list[str]:
        """The ids of messages."""
        return [self.entries[position].id for position in positions]


def _speaking_name(message: BaseMessage) -> str | None:
    return None if isinstance(message, ToolMessage) else message.name


def _heading(message: BaseMessage, date: str | None, shown: str | None) -> str | None:
    """What stands above a human message: its date where that is new, its speaker where the name cannot be sent."""
    lost = message.name if message.name and provider_name(message.name) is None else None
    parts = [part for part in (date if date != shown else None, lost) if part]
    return f"[{', '.join(parts)}]" if parts else None
