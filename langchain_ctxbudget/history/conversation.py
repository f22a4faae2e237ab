"""A conversation: as it is in memory between prompts, and as one prompt sees it."""

from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import cast
from weakref import WeakValueDictionary

import numpy as np
from langchain_core.messages import BaseMessage, ToolMessage

from langchain_ctxbudget.content import has_media, has_more_than_text, parts_of, with_parts
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.flow import Flow, Lock, T, locked
from langchain_ctxbudget.history.backgrounds import Background, with_background, words_of
from langchain_ctxbudget.history.columns import (
    UNKNOWN,
    Beginning,
    Clips,
    Costs,
    Entry,
    PartlyReplaced,
)
from langchain_ctxbudget.history.extractive import Line
from langchain_ctxbudget.history.log import Folded, Heads, News, fold, in_order
from langchain_ctxbudget.history.table import PRESERVATIONS, MessageTable
from langchain_ctxbudget.history.tree import Spans
from langchain_ctxbudget.history.work_state import MOST_MESSAGES, WorkState
from langchain_ctxbudget.messages import (
    Preservation,
    SeenMessages,
    clip_message,
    without_machine_text,
    without_media,
)
from langchain_ctxbudget.providers import COMMON, Profile, in_accepted_form, with_accepted_name
from langchain_ctxbudget.report import CoverageRange, CoverageState, ranges
from langchain_ctxbudget.search import Numbers
from langchain_ctxbudget.settings import ContextSettings, ToolKind
from langchain_ctxbudget.stores import (
    CHUNK,
    CutRecord,
    MessageRecord,
    Place,
    Scope,
    SegmentRecord,
    SnapshotRecord,
)
from langchain_ctxbudget.tokens import TokenCounter
from langchain_ctxbudget.worker import keep_newest, new_mutex

MAX_OPEN = 256
"""The number of conversations that are kept in memory. The one unused for longest goes first, and
is read again when needed."""
MOST_CUTS = 8
"""The number of budgets for which a conversation remembers where verbatim history begins."""
MOST_BACK = 8
"""The user's last messages among which the last one is looked for that no program has written."""
WITHOUT_MEDIA = -1
"""Stands among the clips of a message for the message without its media, in place of a limit in
tokens."""


@dataclass(frozen=True, slots=True)
class SentWith:
    """What a provider's cache tells prompts apart by, besides their messages."""

    model: str
    system_prompt: str
    tools: tuple[tuple[str, int], ...]
    """The tokens of the tools and of the response format, by their names."""
    names_of_tools: tuple[str, ...] = ()
    """The names of the tools, where the prompt chose them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastPrompt:
    """What a conversation remembers of its last prompt."""

    messages: Sequence[BaseMessage]
    costs: Sequence[int]
    """What each of them costs, in tokens."""
    stable: int
    """The number of messages at its beginning that stay from prompt to prompt."""
    turn_state: tuple[int, int]
    """How often its turn had outgrown its room, so that history is planned otherwise; and the
    number of groups that it had when rounds gave way last."""
    squeezed: bool
    """True if something of its stable zone was left out for that turn alone."""
    whole_tokens: int = 0
    """What the next prompt would begin with if everything were sent each time."""
    turn: Sequence[BaseMessage]
    background: Background | None
    settings: ContextSettings
    coverage: Callable[[], tuple[CoverageRange, ...]] | None
    """Returns its ledger; None where messages have changed since."""
    at: datetime | None = None
    """When it was sent."""
    sent_with: SentWith


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
        profile: Profile = COMMON,
    ) -> None:
        """Reads the messages as they are now; the caller holds the conversation's lock."""
        self.scope = scope
        self.table = table
        self.counter = counter
        self.profile = profile
        """What the model's provider accepts."""
        self.digest = table.digest()
        self.entries: Sequence[Entry] = Beginning(table)
        self.use_costs(table.costs(counter))
        self.safe = cast("Sequence[bool]", table.safe.values.data)
        """Whether a cut before each message leaves calls and results together."""
        preservations = table.preservations.values
        self.kept_positions = np.flatnonzero(preservations == PRESERVATIONS.index("keep")).tolist()
        """Positions of the messages that stay word for word."""
        self.dropped_positions = np.flatnonzero(
            preservations == PRESERVATIONS.index("drop")
        ).tolist()
        """Positions of the messages that no prompt shows."""
        self.quotable = table.quotable
        """Whether each may stand in a prompt word for word, though it is not among the recent
        ones."""
        self.exchanges = int(np.count_nonzero(table.human.values))
        self.names = frozenset(table.names)
        """Everyone who has spoken under a name."""
        self.cuts: Mapping[str, CutRecord] = {}
        """The cuts in use, by their keys, the one used last at the end."""
        self.snapshot: SnapshotRecord | None = None
        self.last: LastPrompt | None = None
        self.has_recall_tool = False
        """True if the model can look up what is left out: lines in place of media say so."""
        self.backgrounds: Mapping[int, Background] = {}
        """The backgrounds with which human messages were sent, by position."""
        self.thinking: Conversation | None = None
        """It as it is with all thoughts; None where this is it."""
        self.without_thoughts: Container[int] = ()
        """The positions of the messages whose thoughts are not sent."""
        self.whole: Conversation | None = None
        """It as it is without a compaction by the provider; None where this is it."""
        self.compaction: range | None = None
        """The positions of the message with the compaction by the provider that is in use, and of
        the results of its calls: nothing before them is sent. Those of the turn count on from the
        stored messages. None where no compaction is in use."""

    @property
    def compaction_key(self) -> str:
        """What tells the cuts behind a compaction by the provider apart from others.

        Within the turn of the compaction, the user's message stands in front of it.
        """
        if self.compaction is None:
            return ""
        start = self.compaction.start
        when = "this turn, " if start >= len(self.entries) else ""
        return when + _compaction_key(self.profile.compactions, start)

    @property
    def first(self) -> int:
        """The position of the first message that the provider reads."""
        if self.compaction is None:
            return 0
        return min(self.compaction.start, len(self.entries))

    @property
    def last_words_of_user(self) -> str:
        """What the user said last, in a message that no program has written.

        Empty where that is further back than the user's last few messages.
        """
        by_humans = np.flatnonzero(self.table.human.values[: len(self.entries)])
        for position in reversed(by_humans[-MOST_BACK:].tolist()):
            words = without_machine_text(self.entries[position].text)
            if words:
                return words
        return ""

    def use_costs(self, costs: Costs) -> None:
        """Takes what every message costs, and what else is known of that."""
        self.columns = costs
        self.clips = costs.clips
        self.use_cost_column(costs.column.values)

    def use_cost_column(self, column: Numbers) -> None:
        """Takes what every message costs."""
        self.cost_column = column
        self.costs: Sequence[int] = column.data  # whole numbers of Python, not copied
        self.total_tokens = int(column.sum())

    def counted_anew(self) -> "Conversation":
        """Returns it with costs that are counted now, and none that were counted earlier."""
        if self.thinking is not None:
            return self.thinking.counted_anew()
        costs = Costs()
        costs.grow(self.entries, self.counter)
        other = copy(self)
        other.use_costs(costs)
        return other

    def after_prompts(
        self,
        *,
        cuts: Mapping[str, CutRecord],
        snapshot: SnapshotRecord | None,
        last: LastPrompt | None,
        backgrounds: Mapping[int, Background],
    ) -> "Conversation":
        """Returns it with what is known of its earlier prompts."""
        other = copy(self)
        other.cuts = cuts
        other.snapshot = snapshot
        other.last = last
        other.backgrounds = backgrounds
        return other

    def with_cuts_alone(self, cuts: Mapping[str, CutRecord], clips: Clips) -> "Conversation":
        """Returns it without its last prompt, for another look at a finished prompt.

        Args:
            cuts: The cuts that it has.
            clips: The clipped messages that it knows; more of them are added to these.
        """
        other = copy(self)
        other.cuts = cuts
        other.last = None
        other.clips = clips
        return other

    def with_recall_tool(self, *, is_bound: bool) -> "Conversation":
        """Returns it for a model that can look up what is left out, or that cannot."""
        other = copy(self)
        other.has_recall_tool = is_bound
        return other

    def behind_compaction(self, compaction: range, cost_column: Numbers) -> "Conversation":
        """Returns it as the provider reads it behind its own compaction.

        Args:
            compaction: The positions of the message with the compaction and of its results.
            cost_column: What every message costs, shape (messages,).
        """
        other = copy(self)
        other.whole = self
        other.compaction = compaction
        other.use_cost_column(cost_column)
        return other

    def without_compactions(self) -> "Conversation":
        """Returns it for a provider that reads compactions as texts: all else is as it was said."""
        other = copy(self)
        other.whole = self
        other.profile = replace(self.profile, compactions="")
        return other

    def with_bare_entries(self, bare: dict[int, Entry], cost_column: Numbers) -> "Conversation":
        """Returns it with some messages that are sent without their thoughts.

        Args:
            bare: These messages, by position.
            cost_column: What every message costs, shape (messages,).
        """
        other = copy(self)
        other.thinking = self
        other.without_thoughts = bare.keys()
        other.entries = PartlyReplaced(self.entries, bare)
        other.use_cost_column(cost_column)
        return other

    def count_quote(self, position: int, most_tokens: int, *, numbered: bool) -> int | None:
        """Returns the cost of the line that quotes a message, in tokens; it is counted once.

        Returns None where it is more than `most_tokens`.
        """
        rows = self.columns.numbered_quote if numbered else self.columns.quote
        tokens = int(rows.values[position])
        if tokens == UNKNOWN:
            tokens = self.counter.count_text(self.quoted(position, numbered=numbered))
            rows.values[position] = tokens
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
        if position is None or position >= len(self.entries):
            return None
        return position

    def lines(self, first: int, end: int) -> list[Line]:
        """Returns messages as a summariser reads them."""
        return self.table.readings.lines(self.entries, first, end)

    def spans(self, span_messages: int) -> Spans:
        """Returns the spans for a size of spans, with all spans that have ended by now."""
        tree = self.table.tree(span_messages)
        if not self.is_newest:
            tree = tree.shortened(len(self.entries)).grow(self.entries)
        return Spans(self.entries, tree, self.table.span_digests, self.table.readings)

    def clipped_message(
        self, position: int, most_tokens: int, media_tokens: int = 0
    ) -> tuple[BaseMessage, int]:
        """Returns a message as a prompt shows it, and its cost in tokens.

        It is clipped to `most_tokens` unless it is kept. Its media may take `media_tokens` besides;
        where they take more, lines stand in place of the first ones.
        """
        entry = self.entries[position]
        cost = self.costs[position]
        is_whole = entry.preservation == "keep" or self._is_compaction(position)
        if cost <= most_tokens or is_whole:
            return entry.sent_message, cost

        own_media_tokens = self.media_tokens(position) if media_tokens else 0
        limit = most_tokens + own_media_tokens
        if own_media_tokens > media_tokens:
            limit = max(most_tokens, media_tokens)
        key = (position, limit, self.has_recall_tool)
        if key not in self.clips:
            self.clips[key] = self._clipped(position, limit)
        return self.clips[key]

    def is_before_compaction(self, position: int) -> bool:
        """Returns whether the provider ignores a message, as it has compacted it."""
        return self.compaction is not None and position < self.compaction.start

    def _is_compaction(self, position: int) -> bool:
        """Returns whether a message holds the compaction that is in use."""
        return self.compaction is not None and position == self.compaction.start

    def _clipped(self, position: int, most_tokens: int) -> tuple[BaseMessage, int]:
        """Returns a message that is clipped, and its cost in tokens."""
        entry = self.entries[position]
        clipped = clip_message(
            entry.sent_message,
            self.counter.count_message,
            self.counter.count_text,
            most_tokens,
            reference=f"#{position + 1}",
            keeps_media=False,
            names_media=self.has_recall_tool,
        )
        if clipped is None:
            return entry.sent_message, self.costs[position]
        return clipped, self.counter.count_message(in_accepted_form(clipped))

    def media_tokens(self, position: int) -> int:
        """Returns what the media of a message cost; 0 where it has none.

        Search results, documents and JSON of a tool count as media: in part they are not what they
        are whole.
        """
        message = self.entries[position].sent_message
        is_result = isinstance(message, ToolMessage)
        if not (has_more_than_text(message) if is_result else has_media(message)):
            return 0
        key = (position, WITHOUT_MEDIA, False)
        if key not in self.clips:
            bare = without_media(message)
            if is_result:
                texts = [part for part in parts_of(bare) if part.plain_text is not None]
                bare = with_parts(bare, texts)
            self.clips[key] = (bare, self.counter.count_message(in_accepted_form(bare)))
        _, bare_tokens = self.clips[key]
        return max(0, self.costs[position] - bare_tokens)

    def sent_again(self, position: int, background: Background) -> BaseMessage:
        """Returns a message whole, as it was sent with its background."""
        message = self.entries[position].message
        named = message.model_copy(update={"name": background.name})
        return with_background(with_accepted_name(named), background.text)

    def read_work(self, end: int, kinds: Mapping[str, ToolKind]) -> WorkState:
        """Returns what the calls before `end` have left behind."""
        work = self.table.work
        if work.read_until > end or work.kinds != kinds:
            work = WorkState(kinds, read_until=max(0, end - MOST_MESSAGES))
        if work.read_until < end:
            unread = range(work.read_until, end)
            work = work.copy().read(
                (position, self.entries[position].sent_message) for position in unread
            )
        self.table.work = work
        return work

    def ledger(self) -> dict[CoverageState, list[str]]:
        """Returns the ids of its messages by their state in its last prompt.

        Those after it count as verbatim.
        """
        ids = self.table.ids[: len(self.entries)]
        states: dict[CoverageState, list[str]] = {
            "verbatim": [],
            "summarized": [],
            "retrieved": [],
            "omitted": [],
        }
        covered = 0
        for part in self._coverage():
            ids_of_part = ids[part.first - 1 : part.last]
            states[part.state] += ids_of_part
            covered += len(ids_of_part)
        states["verbatim"] += ids[covered:]
        return states

    def _coverage(self) -> Sequence[CoverageRange]:
        """Returns the states of its messages in its last prompt, in ranges.

        Where that is not in memory, they follow from the cut that was used last.
        """
        if self.last is not None and self.last.coverage is not None:
            return self.last.coverage()
        if not self.cuts:
            return ()
        cut = list(self.cuts.values())[-1]
        lines = (*cut.summary, *cut.arc)
        covered = [(line.first, line.end) for line in lines if line.first < line.end]
        for position, maker in self.table.compactions.items():
            if _compaction_key(maker, position) in cut.cut_key:
                covered.append((0, position))
        marks: dict[int, CoverageState] = {}
        marks |= dict.fromkeys(self.dropped_positions, "omitted")
        marks |= dict.fromkeys(range(*cut.left_out), "omitted")
        marks |= dict.fromkeys(cut.kept, "verbatim")
        return ranges(len(self.entries), cut.position, covered, marks)


def _compaction_key(maker: str, position: int) -> str:
    """Returns what the names of cuts behind a compaction by a provider have in them."""
    return f"compacted by {maker} in message {position + 1}, "


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
    """True once all readers know this writer's lane, and it knows theirs."""
    failed_writes: int = 0
    """How many writes have failed, each of which may still arrive: the next one takes another
    lane."""
    doubles: list[MessageRecord] = field(default_factory=list)
    """Records of messages that several writers appended, but for the first."""
    archived: dict[str, str] = field(default_factory=dict)
    """Ids of messages that were taken out and kept aside, by the keys of their records."""
    newest_state: int = 0
    """The last one of the agent's states that wrote here, or that is about to; see `Place`."""
    seen_state: tuple[SeenMessages, str] = (SeenMessages(), "")
    """An agent's messages that were last found equal to the stored ones (or to their beginning),
    and their digest."""
    forgotten: int = 0
    """The number of stored messages that the last state had forgotten, where it held none of
    them."""
    has_logged_forgotten: bool = False
    """True if the program's log says that the conversation goes on from the store."""
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
    """The cuts in use, by their keys, the one used last at the end."""
    cuts_unsaved: bool = False
    snapshot: SnapshotRecord | None = None
    snapshot_unsaved: bool = False
    learned: tuple[int, str] = (0, "")
    """The number of messages that were learned from, by the last look, and their digest."""
    suspended: tuple[tuple[int, int], ...] = ()
    """Where messages stand from which nothing was learned, by the last look: a game, for one."""
    stored_at: dict[str, datetime] | None = None
    """The time at which each record was stored, by key, where somebody wants to know: segments do
    not tell."""
    last: LastPrompt | None = None
    snapshots: list[str] | None = None
    """The ids of the reports of its prompts that are kept; None before they were read."""
    call_kept: bytes | None = None
    """A digest of the last call that this process has kept with it; None before that."""
    times: Sequence[datetime | None] = ()
    """The time at which each of its first messages was stored, as far as that is known."""
    segments: list[SegmentRecord] = field(default_factory=list)
    named_segments: Sequence[SegmentRecord] = ()
    """The segments that the stored head names, as far as is known; damaged ones are among them."""
    remade: str = ""
    """Why the report says that segments are made again; empty where they are not."""
    backgrounds: dict[int, Background] = field(default_factory=dict)
    """The backgrounds with which human messages were sent, by position; the newest may not be
    stored yet, as its message."""
    backgrounds_read: int = 0
    """The number of messages that were checked for a background."""

    def seen_with(self, counter: TokenCounter, profile: Profile = COMMON) -> Conversation:
        """Returns the conversation as it is now, counted for a model of a provider."""
        table = self.table
        backgrounds = {
            position: background
            for position, background in self.backgrounds.items()
            if position < len(table) and words_of(table[position].message) == background.said
        }
        conversation = Conversation(self.scope, table, counter, profile)
        return conversation.after_prompts(
            cuts=dict(self.cuts), snapshot=self.snapshot, last=self.last, backgrounds=backgrounds
        )

    def reset(self) -> None:
        """Forgets everything, as if it had not been read yet."""
        unread = OpenConversation(self.scope, self.lock, failed_writes=self.failed_writes)
        for attribute in fields(self):
            setattr(self, attribute.name, getattr(unread, attribute.name))

    def take_in(self, news: News, *, whole: bool = False) -> None:
        """Takes in news of the log, or the `whole` log.

        Messages before the first difference stay. Many new messages are taken in a few at a time,
        as they take ten times the memory as objects.
        """
        is_compared = bool(news.changed) or (whole and bool(self.table))
        if is_compared:
            self._take_in(news, whole=whole)
            return
        for number, part in enumerate(_few_at_a_time(news)):
            self._take_in(part, whole=whole and number == 0)

    def _take_in(self, news: News, *, whole: bool) -> None:
        """Takes in news as a whole."""
        start = 0 if whole else self._first_touched(news)
        old = [self.table.record(position) for position in range(start, len(self.table))]
        if whole:  # another log
            self.segments = []
            self.doubles = []
            self.archived = {}
            self.backgrounds_read = 0
            folded = self._fold(news, start, known=())
        else:
            folded = self._fold(news, start, known=(*old, *self.doubles))
        length = start + self._unchanged(start, old, folded)
        if length < len(self.table):
            self._forget_from(length)
        for record, message in folded.messages[length - start :]:
            self.table.append(record, message, self.pins.get(str(message.id)))
            self.newest_state = max(self.newest_state, record.place.state)

        self.doubles = list(folded.doubles)
        still_archived = {
            key: name for key, name in self.archived.items() if key not in news.changed
        }
        self.archived = still_archived | folded.archived
        if whole or news.changed:
            self._forget_written()

    def _fold(self, news: News, start: int, known: Iterable[MessageRecord]) -> Folded:
        """Returns the messages from a position on, of the records that are known and of news."""
        table = self.table
        records: dict[str, MessageRecord | None] = {}
        for record in (*known, *news.messages):
            records[record.place.key] = record
        records |= news.changed

        def fingerprint_before(message_id: str) -> str | None:
            position = table.positions.get(message_id, start)
            if position >= start:
                return None
            return table.fingerprint(position)

        standing = [record for record in records.values() if record is not None]
        return fold(in_order(standing), fingerprint_before)

    def _unchanged(self, start: int, old: Sequence[MessageRecord], folded: Folded) -> int:
        """Returns how many of the messages from a position on are as they were.

        Args:
            start: The position.
            old: Their records.
            folded: The messages from there on as they are now.
        """
        unchanged = 0
        old_ids = self.table.ids[start:]
        for old_id, old_record, (record, message) in zip(
            old_ids, old, folded.messages, strict=False
        ):
            if old_id != message.id or old_record != record:
                break
            unchanged += 1
        return unchanged

    def _forget_from(self, length: int) -> None:
        """Forgets the messages from a position on, and what is known because of them."""
        self.table = self.table.changed(length)
        self.seen_state = (SeenMessages(), "")  # or it would keep what is forgotten
        self.segments = [segment for segment in self.segments if segment.end <= length]
        if self.last is not None:
            self.last = replace(self.last, coverage=None, turn=(), background=None)

    def _forget_written(self) -> None:
        """Forgets what a model wrote, and backgrounds: they may quote what has changed.

        What is stored of them is deleted with it; the rest is read again.
        """
        digests = self.table.span_digests
        digests.digests = {}
        digests.failures = {}
        digests.looked_up = set()
        digests.refusals = {}
        self.backgrounds.clear()

    def _first_touched(self, news: News) -> int:
        """Returns the position of the first message that news may change."""
        table = self.table
        first = len(table)
        changed = [record for record in news.changed.values() if record is not None]
        for record in (*news.messages[:1], *changed):
            first = min(first, self._position_in_order(record.place))
        for key in news.changed:
            position = table.at_place(key)
            if position is not None:
                first = min(first, position)
        return first

    def _position_in_order(self, place: Place) -> int:
        """Returns the position at which a message of a place belongs; nearly always the end."""
        table = self.table
        if not table or table.place(len(table) - 1).order < place.order:
            return len(table)
        positions = range(len(table))
        return bisect_left(positions, place.order, key=lambda at: table.place(at).order)

    def keys_of(self, message_id: str) -> list[str]:
        """Returns the keys of a message's records, its doubles among them.

        There are none where there is no such message.
        """
        position = self.table.positions.get(message_id)
        if position is None:
            return []
        doubles = [double for double in self.doubles if double.to_message().id == message_id]
        return [self.table.place(position).key, *(double.place.key for double in doubles)]

    def keys_by_message(self) -> dict[str, list[str]]:
        """Returns the keys of the records of every message, its doubles among them, by its id."""
        keys = {name: [self.table.place(at).key] for at, name in enumerate(self.table.ids)}
        for double in self.doubles:
            message_id = str(double.to_message().id)
            if message_id in keys:
                keys[message_id].append(double.place.key)
        return keys

    def pin(self, pins: Mapping[str, Preservation]) -> None:
        """Replaces the pins; only messages whose preservation changes are counted anew."""
        changed: dict[int, Preservation | None] = {}
        for message_id in {*pins, *self.pins}:
            position = self.table.positions.get(message_id)
            if position is not None and pins.get(message_id) != self.pins.get(message_id):
                changed[position] = pins.get(message_id)
        self.pins = dict(pins)
        self.table = self.table.changed(len(self.table), changed)
        self.cuts = {key: cut for key, cut in self.cuts.items() if self.cut_is_valid(cut)}

    def use(self, cut: CutRecord) -> None:
        """Keeps a cut as the one used last; only the last few are kept."""
        keep_newest(self.cuts, cut.cut_key, cut, MOST_CUTS)

    def cut_is_valid(self, cut: CutRecord) -> bool:
        """Returns whether a cut was made for the messages that stand before it now."""
        _, end_left_out = cut.left_out
        not_verbatim = max(cut.position, end_left_out)
        read = max(not_verbatim, cut.cleared)
        if cut.begun > len(self.table):
            return False
        if not (read or cut.begun or cut.strategy == "full"):
            return False
        if not_verbatim and self.table.preserved(not_verbatim) != cut.preserved:
            return False
        return self.table.holds(read, cut.digest)

    def page(self, limit: int | None = None, before: str | None = None) -> MessagePage:
        """Returns the newest messages, or the newest before one, by its id.

        Where there is no limit, these are all.
        """
        if before is not None:
            require_known(self, [before])
        end = len(self.table) if before is None else self.table.positions[before]
        first = max(0, end - limit) if limit else 0
        messages = [entry.message for entry in self.table[first:end]]
        first_id = self.table.ids[first] if first else None
        return MessagePage(messages, before=first_id, version=self.table.digest())


def _few_at_a_time(news: News) -> Iterator[News]:
    """Yields news in parts that follow each other, with a few messages each; at least one part."""
    for first in range(0, max(1, len(news.messages)), CHUNK):
        yield replace(news, messages=news.messages[first : first + CHUNK])


class OpenConversations:
    """Open conversations by scope. The one unused for longest is let go of first."""

    def __init__(self) -> None:
        self._mutex = new_mutex()
        self._open: dict[Scope, OpenConversation] = {}
        self._locks: WeakValueDictionary[Scope, Lock] = WeakValueDictionary()
        """The locks in use: a conversation that is let go of and opened again meanwhile waits for
        its lock."""

    def using(self, scope: Scope, body: Callable[[OpenConversation], Flow[T]]) -> Flow[T]:
        """Runs a flow with a conversation, alone."""
        with self._mutex:
            conversation = self._open.get(scope)
            if conversation is None:
                lock = self._locks.setdefault(scope, Lock())
                conversation = OpenConversation(scope, lock)
            # Whoever is using one that is let go of goes on with it.
            keep_newest(self._open, scope, conversation, MAX_OPEN)
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
    known = conversation.table.positions
    unknown = [
        message_id for message_id in ids if message_id not in known and message_id not in others
    ]
    if unknown:
        raise InputError(
            f"The conversation {conversation.scope.conversation_id!r} has no messages {unknown}; "
            f"ids are what `add_messages` returns and `get_messages` shows"
        )
