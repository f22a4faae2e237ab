"""A conversation as it is in memory between prompts, as one prompt sees it, and those that are open."""

from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import cast
from weakref import WeakValueDictionary

import numpy as np
from langchain_core.messages import BaseMessage

from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.flow import Flow, Lock, T, locked
from langchain_ctxbudget.history.arc import OpenQuestions
from langchain_ctxbudget.history.backgrounds import Background, with_background, words_of
from langchain_ctxbudget.history.columns import UNKNOWN, Beginning, Costs, Entry
from langchain_ctxbudget.history.extractive import Line
from langchain_ctxbudget.history.log import Heads, News, fold, in_order
from langchain_ctxbudget.history.table import PRESERVATIONS, MessageTable
from langchain_ctxbudget.history.tree import Spans
from langchain_ctxbudget.history.work_state import MOST_MESSAGES, WorkState
from langchain_ctxbudget.messages import (
    Preservation,
    SeenMessages,
    as_note,
    as_sent,
    clip_message,
    has_media,
    without_media,
)
from langchain_ctxbudget.report import CoverageRange, CoverageState, ranges
from langchain_ctxbudget.search import Numbers
from langchain_ctxbudget.settings import ContextSettings, ToolKind
from langchain_ctxbudget.stores import (
    CutRecord,
    MessageRecord,
    Scope,
    SegmentRecord,
    SnapshotRecord,
)
from langchain_ctxbudget.tokens import TokenCounter
from langchain_ctxbudget.worker import keep_newest, new_mutex

MAX_OPEN = 256
"""Conversations kept in memory; the one unused for longest goes first, and is read again when
needed."""
MOST_CUTS = 8
"""Budgets for which a conversation remembers where verbatim history begins."""
WITHOUT_MEDIA = -1
"""Stands among the clips of a message, in place of a number of tokens, for the message without its
media."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastPrompt:
    """What a conversation remembers of its last prompt."""

    messages: Sequence[BaseMessage]
    costs: Sequence[int]
    stable: int
    long_turn: tuple[int, int]
    """How often its turn had outgrown its room, so that history is planned otherwise; and the
    number of groups that it had when steps gave way last."""
    squeezed: bool
    """True if something of its stable zone was left out for that turn alone."""
    whole_tokens: int = 0
    turn: Sequence[BaseMessage]
    background: Background | None
    settings: ContextSettings
    coverage: Callable[[], tuple[CoverageRange, ...]] | None
    """Makes its ledger; None where messages have changed since."""
    at: datetime | None = None
    sent_with: object = None


class Conversation:
    """The messages of a conversation at one moment, with what they cost for one model.

    Nothing in it changes while the talk goes on: a report can still be asked what another budget
    would have given.
    """

    def __init__(
        self,
        scope: Scope,
        table: MessageTable,
        counter: TokenCounter,
        longest_call_id: int | None = None,
    ) -> None:
        """Reads the messages as they are now; the caller holds the conversation's lock."""
        self.scope = scope
        self.table = table
        self.counter = counter
        self.longest_call_id = longest_call_id
        """How many characters the model's provider takes for the id of a call; None: any number."""
        self.digest = table.digest()
        self.entries: Sequence[Entry] = Beginning(table)
        self.use_costs(table.costs(counter))
        self.safe = cast("Sequence[bool]", table.safe.values.data)
        wanted = table.preservations.values
        self.kept = np.flatnonzero(wanted == PRESERVATIONS.index("keep")).tolist()
        self.dropped = np.flatnonzero(wanted == PRESERVATIONS.index("drop")).tolist()
        self.quotable = table.says.values & (wanted < PRESERVATIONS.index("summarize"))
        """Whether each may stand in a prompt word for word, though it is not among the recent
        ones."""
        self.exchanges, self.names = (
            int(np.count_nonzero(table.human.values)),
            frozenset(table.names),
        )
        self.cuts: Mapping[str, CutRecord] = {}
        self.snapshot: SnapshotRecord | None = None
        self.last: LastPrompt | None = None
        self.sent: Mapping[int, Background] = {}

    def use_costs(self, costs: Costs) -> None:
        """Takes what every message costs."""
        self.columns = costs
        self.cost_column: Numbers = costs.column.values
        self.costs: Sequence[int] = self.cost_column.data  # whole numbers of Python, not copied
        self.total_tokens = int(self.cost_column.sum())
        self.clips = costs.clips

    def counted_anew(self) -> "Conversation":
        """Returns it with costs that are counted now.

        No column, clip or turn that was counted earlier is used.
        """
        costs = Costs()
        costs.grow(self.entries, self.counter)
        other = copy(self)
        other.use_costs(costs)
        return other

    def but(self, **changes: object) -> "Conversation":
        """Returns it with some of its parts replaced."""
        other = copy(self)
        vars(other).update(changes)
        return other

    def count_quote(self, position: int, most_tokens: int, *, numbered: bool) -> int | None:
        """Returns the cost of the line that quotes a message, counted once.

        None where it is more than so much.
        """
        column = (self.columns.numbered_quote if numbered else self.columns.quote).values
        if (tokens := int(column[position])) == UNKNOWN:
            tokens = column[position] = self.counter.count_text(
                self.quoted(position, numbered=numbered)
            )
        return tokens if tokens <= most_tokens else None

    def quoted(self, position: int, *, numbered: bool) -> str:
        """Returns the line that quotes a message.

        `numbered` adds the number by which it can be looked up.
        """
        return self.entries[position].quoted(f"#{position + 1} " if numbered else "")

    @property
    def is_newest(self) -> bool:
        """True if nothing has been added to its table since."""
        return len(self.table) == len(self.entries)

    def position(self, message_id: str | None) -> int | None:
        """Returns where a message stands, or None where there is none of this id."""
        position = self.table.positions.get(message_id or "")
        return None if position is None or position >= len(self.entries) else position

    def lines(self, first: int, end: int) -> list[Line]:
        """Returns messages as a summariser reads them."""
        return [
            entry.as_line(first + offset) for offset, entry in enumerate(self.entries[first:end])
        ]

    def spans(self, span_messages: int) -> Spans:
        """Returns the spans for a size of spans, with all spans that have ended by now."""
        tree = self.table.tree(span_messages)
        if not self.is_newest:
            tree = tree.shortened(len(self.entries)).grow(self.entries)
        return Spans(self.entries, tree, self.table.made)

    def shown(
        self, position: int, most_tokens: int, media_tokens: int = 0
    ) -> tuple[BaseMessage, int]:
        """Returns a message as a prompt shows it, and its cost.

        Clipped to a number of tokens unless it is kept.

        Its media may take so many tokens besides; where they take more, lines stand in place of the
        first ones.
        """
        entry = self.entries[position]
        cost = self.costs[position]
        if cost <= most_tokens or entry.preservation == "keep":
            return entry.sent, cost
        besides_tokens = self.media_tokens(position) if media_tokens else 0
        if besides_tokens > media_tokens:
            most_tokens = max(most_tokens, media_tokens)
            besides_tokens = 0
        key = (position, most_tokens + besides_tokens)
        if key not in self.clips:
            count = self.counter.count_message
            reference = f"#{position + 1}"
            clipped = clip_message(
                entry.sent,
                count,
                self.counter.count_text,
                sum(key[1:]),
                reference=reference,
                keeps_media=False,
            )
            self.clips[key] = (
                (entry.sent, cost) if clipped is None else (clipped, count(as_note(clipped)))
            )
        return self.clips[key]

    def media_tokens(self, position: int) -> int:
        """Returns what the media of a message cost; 0 where it has none."""
        entry = self.entries[position]
        cost = self.costs[position]
        if not has_media(entry.sent):
            return 0
        key = (position, WITHOUT_MEDIA)
        if key not in self.clips:
            told = without_media(entry.sent)
            self.clips[key] = told, self.counter.count_message(as_note(told))
        return max(0, cost - self.clips[key][1])

    def sent_again(self, position: int, background: Background) -> BaseMessage:
        """Returns a message whole, as it was sent with its background."""
        return with_background(
            as_sent(self.entries[position].message.model_copy(update={"name": background.name})),
            background.text,
        )

    def read_questions(self, end: int) -> OpenQuestions:
        """Returns the questions that the messages before `end` leave open."""
        known = self.table.questions
        table = self.table
        if known.read_until > end or not table.holds(
            known.read_until, known.digest
        ):  # stored ones are of their time
            known = OpenQuestions()
        table.questions = replace(
            known.read(self.lines(known.read_until, end)), digest=table.digest(end)
        )
        return table.questions

    def read_work(self, end: int, kinds: Mapping[str, ToolKind]) -> WorkState:
        """Returns what the calls before `end` have left behind."""
        known = self.table.work
        if known.read_until > end or known.kinds != kinds:
            known = WorkState(kinds, read_until=max(0, end - MOST_MESSAGES))
        if known.read_until < end:
            known = known.copy().read(
                (at, self.entries[at].sent) for at in range(known.read_until, end)
            )
        self.table.work = known
        return known

    def ledger(self) -> dict[CoverageState, list[str]]:
        """Returns the ids of its messages by their state in its last prompt.

        Those after it count as verbatim.
        """
        ids = self.table.ids[: len(self.entries)]
        known = tuple[CoverageRange, ...]()
        if self.last is not None and self.last.coverage is not None:
            known = self.last.coverage()
        elif self.cuts:
            cut = list(self.cuts.values())[-1]
            covered = [
                (line.first, line.end) for line in (*cut.summary, *cut.arc) if line.first < line.end
            ]
            marks: dict[int, CoverageState] = dict.fromkeys(
                (*self.dropped, *range(*cut.left_out)), "omitted"
            )
            known = ranges(
                len(ids), cut.position, covered, marks | dict.fromkeys(cut.kept, "verbatim")
            )
        states: dict[CoverageState, list[str]] = {
            "verbatim": [],
            "summarized": [],
            "retrieved": [],
            "omitted": [],
        }
        for part in known:
            states[part.state] += ids[part.first - 1 : part.last]
        states["verbatim"] += ids[sum(map(len, states.values())) :]
        return states


@dataclass(frozen=True, slots=True)
class MessagePage:
    """A part of a conversation.

    Example:
        >>> from langchain_core.messages import HumanMessage
        >>> from langchain_ctxbudget import ContextPipeline
        >>> chat = ContextPipeline().conversation("c1", user_id="ada")
        >>> ids = chat.add(HumanMessage("one"), HumanMessage("two"))
        >>> [message.content for message in chat.page(before=chat.page(limit=1).before).messages]
        ['one']
    """

    messages: list[BaseMessage]
    before: str | None
    """The id of the first of them: `page(before=...)` gives those before it. None at the
    beginning."""
    version: str
    """Another one as soon as a message is added, changed or removed."""


@dataclass(slots=True)
class OpenConversation:
    """A conversation in memory; its user holds its lock."""

    scope: Scope
    lock: Lock = field(default_factory=Lock)
    table: MessageTable = field(default_factory=MessageTable)
    heads: Heads | None = None
    """The heads of all lanes when the log was read; None before that."""
    joined: bool = False
    failed_writes: int = 0
    doubles: list[MessageRecord] = field(default_factory=list)
    """Records of messages that several writers appended, but for the first."""
    archived: dict[str, str] = field(default_factory=dict)
    """Ids of messages that were taken out and kept aside, by the keys of their records."""
    newest_state: int = 0
    """The last one of the agent's states that wrote here, or that is about to; see `Place`."""
    seen: tuple[SeenMessages, str] = (SeenMessages(), "")
    """An agent's messages that were last found equal to the stored ones (or to their beginning),
    and their digest."""
    forgotten: int = 0
    """The number of stored messages that the last state had forgotten, where it held none of
    them."""
    told: bool = False
    """True if the log says that the conversation goes on from the store."""
    owned_thread: str | None = None
    """The thread that was found to be the user's, since the log was read last."""
    own_turn: frozenset[str] = frozenset()
    """Ids of what the user has said in the run that was answered last."""
    apart: "OpenConversation | None" = None
    """The messages of a run whose thread is another user's, in memory only."""
    apart_because: str = ""
    """Why it is in memory only, and apart from all that is stored of its user; nothing where it is
    not."""
    pins: dict[str, Preservation] = field(default_factory=dict)
    cuts: dict[str, CutRecord] = field(default_factory=dict)
    cuts_unsaved: bool = False
    snapshot: SnapshotRecord | None = None
    snapshot_unsaved: bool = False
    learned: tuple[int, str] = (0, "")
    """The number of messages that were learned from, by the last look, and their digest."""
    stored_at: dict[str, datetime] | None = None
    """The time at which each record was stored, by key, where somebody wants to know: segments do
    not tell."""
    last: LastPrompt | None = None
    snapshots: list[str] | None = None
    """The ids of the reports of its prompts that are kept; None before they were read."""
    times: Sequence[datetime | None] = ()
    """The time at which each of its first messages was stored, as far as that is known."""
    segments: list[SegmentRecord] = field(default_factory=list)
    named_segments: Sequence[SegmentRecord] = ()
    """The segments that the stored head names, as far as is known; damaged ones are among them."""
    remade: str = ""
    sent: dict[int, Background] = field(default_factory=dict)
    """The backgrounds with which human messages were sent, by position; the newest may not be
    stored yet, as its message."""
    sent_read: int = 0
    """The number of messages that were checked for a background."""
    under_way: object = None

    def seen_with(self, counter: TokenCounter, longest_call_id: int | None = None) -> Conversation:
        """Returns the conversation as it is now, counted for a model, whose provider may limit the ids of calls."""
        table = self.table
        sent = {
            at: it
            for at, it in self.sent.items()
            if at < len(table) and words_of(table[at].message) == it.said
        }
        seen = Conversation(self.scope, table, counter, longest_call_id)
        return seen.but(cuts=dict(self.cuts), snapshot=self.snapshot, last=self.last, sent=sent)

    def reset(self) -> None:
        """Forgets everything, as if it had not been read yet."""
        new = OpenConversation(self.scope, self.lock, failed_writes=self.failed_writes)
        for one in fields(self):
            setattr(self, one.name, getattr(new, one.name))

    def take_in(self, news: News, *, whole: bool = False) -> None:
        """Takes in news of the log, or the `whole` log.

        Messages before the first difference stay.
        """
        position = 0 if whole else self._first_touched(news)
        old = [
            (self.table.record(at), self.table.ids[at]) for at in range(position, len(self.table))
        ]
        if whole:  # another log
            self.segments = []
            self.doubles = []
            self.archived = {}
            self.sent_read = 0
        known = [] if whole else [*(record for record, _ in old), *self.doubles]
        records: dict[str, MessageRecord | None] = {
            record.place.key: record for record in (*known, *news.messages)
        }
        records |= news.changed

        def said_before(key: str) -> str | None:
            return (
                self.table.fingerprint(at)
                if (at := self.table.positions.get(key, position)) < position
                else None
            )

        folded = fold(in_order(record for record in records.values() if record), said_before)
        pairs = zip(old, folded.messages, strict=False)
        differ = (
            i
            for i, (before, (record, message)) in enumerate(pairs)
            if before != (record, message.id)
        )
        same = next(differ, min(len(old), len(folded.messages)))
        if position + same < len(self.table):
            self.table = self.table.changed(position + same)
            self.seen = SeenMessages(), ""  # or it would keep what is forgotten
            self.segments = [segment for segment in self.segments if segment.end <= position + same]
            self.last = self.last and replace(self.last, coverage=None, turn=(), background=None)
        for record, message in folded.messages[same:]:
            self.table.append(record, message, self.pins.get(str(message.id)))
            self.newest_state = max(self.newest_state, record.place.state)
        self.doubles = list(folded.doubles)
        self.archived = {
            key: name for key, name in self.archived.items() if key not in news.changed
        } | folded.archived
        if whole or news.changed:
            made = self.table.made  # what the model wrote is read again
            made.digests, made.failures, made.looked_up = {}, {}, set()
            made.refusals = {}
            # any of them may quote what has changed; the stored ones are deleted with it
            self.sent.clear()

    def _first_touched(self, news: News) -> int:
        """Returns the position of the first message that news may change."""
        changed = [record for record in news.changed.values() if record is not None]
        orders = [record.place.order for record in (*news.messages[:1], *changed)]
        every = range(len(self.table))
        starts = [
            bisect_left(every, order, key=lambda at: self.table.place(at).order) for order in orders
        ]
        starts += [at for key in news.changed if (at := self.table.at_place(key)) is not None]
        return min(starts, default=len(self.table))

    def keys_of(self, message_id: str) -> list[str]:
        """Returns the keys of a message's records, its doubles among them.

        None where there is no such message.
        """
        position = self.table.positions.get(message_id)
        doubles = (
            double.place.key for double in self.doubles if double.to_message().id == message_id
        )
        return [] if position is None else [self.table.place(position).key, *doubles]

    def pin(self, pins: Mapping[str, Preservation]) -> None:
        """Replaces the pins; only messages whose preservation changes are counted anew."""
        positions = self.table.positions
        changed = {
            key
            for key in {*pins, *self.pins} & positions.keys()
            if pins.get(key) != self.pins.get(key)
        }
        self.pins = dict(pins)
        self.table = self.table.changed(
            len(self.table), {positions[key]: pins.get(key) for key in changed}
        )
        self.cuts = {key: cut for key, cut in self.cuts.items() if self.cut_is_valid(cut)}

    def use(self, cut: CutRecord) -> None:
        """Keeps a cut as the one used last; only the last few are kept."""
        keep_newest(self.cuts, cut.cut_key, cut, MOST_CUTS)

    def cut_is_valid(self, cut: CutRecord) -> bool:
        """Returns whether a cut was made for the messages that stand before it now."""
        stands = max(cut.position, cut.left_out[1])
        read = max(stands, cut.cleared)
        if cut.begun > len(self.table) or not (read or cut.begun or cut.strategy == "full"):
            return False
        return (not stands or self.table.preserved(stands) == cut.preserved) and self.table.holds(
            read, cut.digest
        )

    def page(self, limit: int | None = None, before: str | None = None) -> MessagePage:
        """Returns the newest messages, or the newest before one, by its id.

        All where there is no limit.
        """
        if before is not None:
            require_known(self, [before])
        end = len(self.table) if before is None else self.table.positions[before]
        first = max(0, end - limit) if limit else 0
        messages = [entry.message for entry in self.table[first:end]]
        return MessagePage(messages, self.table.ids[first] if first else None, self.table.digest())


class OpenConversations:
    """Open conversations by scope, the one used last at the end.

    The one unused for longest goes first.
    """

    def __init__(self) -> None:
        self._mutex = new_mutex()
        self._open: dict[Scope, OpenConversation] = {}
        self._locks: WeakValueDictionary[Scope, Lock] = WeakValueDictionary()
        """The locks in use: a conversation that is let go of and opened again meanwhile waits for
        its lock."""

    def using(self, scope: Scope, body: Callable[[OpenConversation], Flow[T]]) -> Flow[T]:
        """Runs a flow with a conversation, alone."""
        with self._mutex:
            conversation = self._open.get(scope) or OpenConversation(
                scope, self._locks.setdefault(scope, Lock())
            )
            keep_newest(
                self._open, scope, conversation, MAX_OPEN
            )  # whoever is using another one goes on with it
        return (yield from locked(conversation.lock, body(conversation)))

    def all(self) -> dict[Scope, OpenConversation]:
        """Returns every open conversation; use one under its lock only."""
        with self._mutex:
            return dict(self._open)

    def find(self, scope: Scope) -> OpenConversation | None:
        """Returns a conversation if it is open; use it under its lock only."""
        with self._mutex:
            return self._open.get(scope)

    def alone(self, scope: Scope, body: Flow[T]) -> Flow[T]:
        """Runs a flow while nobody uses a conversation, which is not opened for that."""
        with self._mutex:
            opened = self._open.get(scope)
            lock = opened.lock if opened else self._locks.setdefault(scope, Lock())
        return (yield from locked(lock, body))

    def drop(self, scope: Scope) -> None:
        """Lets go of a conversation."""
        with self._mutex:
            self._open.pop(scope, None)


def require_known(
    conversation: OpenConversation, ids: Iterable[str], others: Container[str] = ()
) -> None:
    """Makes sure that a conversation has messages, else raises an `InputError`."""
    if unknown := [
        key for key in ids if key not in conversation.table.positions and key not in others
    ]:
        raise InputError(
            f"The conversation {conversation.scope.conversation_id!r} has no messages {unknown}; ids are what "
            f"`add_messages` returns and `get_messages` shows"
        )
