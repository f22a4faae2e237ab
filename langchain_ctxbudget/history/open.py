"""The conversations that are open in this process: what is in memory of each, and a bounded cache of them."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
from langchain_core.messages import BaseMessage
from langgraph.store.base import BaseStore
from pydantic import TypeAdapter, ValidationError

from langchain_ctxbudget.background import beginning_anew, new_mutex
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.flow import Flow, Lock, T, locked
from langchain_ctxbudget.history.blocks import REMADE, Block, Opened
from langchain_ctxbudget.history.conversation import Conversation, LastPrompt
from langchain_ctxbudget.history.entry import Entries, Entry
from langchain_ctxbudget.history.log import Heads, News, fold, in_order
from langchain_ctxbudget.history.other_conversations import OtherConversations
from langchain_ctxbudget.history.table import MessageTable
from langchain_ctxbudget.history.turn_blocks import TurnBlock, words_of
from langchain_ctxbudget.messages import Preservation
from langchain_ctxbudget.stores import CutRecord, MessageRecord, Place, Scope, SnapshotRecord
from langchain_ctxbudget.tokens import TokenCounter

MAX_OPEN = 256
"""Conversations kept in memory; the one unused for longest goes first, and is read again when needed."""
MOST_CUTS = 8
"""Budgets for which a conversation remembers where verbatim history begins."""


class Mark(NamedTuple):
    """A place in a lane."""

    number: int
    """So many of its records are before it."""
    born: str
    """Of the lane; another one means that the lane is not the one that was meant."""


_BOOKMARK: TypeAdapter[dict[str, Mark]] = TypeAdapter(dict[str, Mark])
"""A place in a conversation, by lane."""


def _text(bookmark: Mapping[str, Mark]) -> str:
    return urlsafe_b64encode(_BOOKMARK.dump_json(dict(bookmark))).decode()


def _parsed(text: str) -> dict[str, Mark]:
    try:
        return _BOOKMARK.validate_json(urlsafe_b64decode(text))
    except (ValidationError, ValueError, TypeError) as error:
        raise InputError(f"{text!r} is no bookmark; pass `before` or `after` of an earlier page") from error


@dataclass(frozen=True, slots=True)
class MessagePage:
    """A part of a conversation.

    Attributes:
        messages: in the order of the conversation.
        before: where the page begins: `get_page(before=...)` gives the messages before it. None at the beginning.
        after: where the conversation ended when it was read: `get_page(after=...)` gives what has been said since.

    Example:
        >>> from langchain_core.messages import HumanMessage
        >>> from langchain_ctxbudget import ContextPipeline
        >>> pipeline, ada = ContextPipeline(), {"user_id": "ada", "conversation_id": "c1"}
        >>> _ = pipeline.add_messages([HumanMessage("one"), HumanMessage("two")], **ada)
        >>> page = pipeline.get_page(limit=1, **ada)
        >>> [message.content for message in page.messages]
        ['two']
        >>> [message.content for message in pipeline.get_page(before=page.before, **ada).messages]
        ['one']
    """

    messages: list[BaseMessage]
    before: str | None
    after: str


@dataclass(slots=True)
class OpenConversation:
    """What is in memory of a conversation; whoever uses it holds its lock."""

    scope: Scope
    lock: Lock = field(default_factory=Lock)
    table: MessageTable = field(default_factory=MessageTable)
    heads: Heads | None = None
    """How far every writer had come when it was read; None before that."""
    joined: bool = False
    """The others were told that this process writes, too."""
    untold: set[str] = field(default_factory=set)
    """Keys of records that were changed here, of which the others could not be told yet."""
    failed_writes: int = 0
    """The number of writes that have failed; one that did may still arrive."""
    doubles: list[MessageRecord] = field(default_factory=list)
    """Records of messages that several writers appended, but for the first."""
    renamed: set[str] = field(default_factory=set)
    """Keys of the records whose messages go by another id than they have."""
    archived: dict[str, list[Place]] = field(default_factory=dict)
    """Places of messages that were taken out and kept aside, by id."""
    newest_state: int = 0
    """The last one of the agent's states that wrote here, or that is about to; see `Place`."""
    forgotten: int = 0
    """The number of messages of which the state that was copied last held none."""
    warned: bool = False
    """The log was told of such a state."""
    pins: dict[str, Preservation] = field(default_factory=dict)
    """What was asked for by `pin`, by message id; it outweighs what the message says."""
    cuts: dict[str, CutRecord] = field(default_factory=dict)
    """By what they were made for, the one used last at the end."""
    cuts_unsaved: bool = False
    """The store could not be told of the newest one."""
    snapshot: SnapshotRecord | None = None
    """What its prompts show of the facts about the user; None before the first one."""
    snapshot_unsaved: bool = False
    """The store does not know it yet."""
    learned: tuple[int, str] = (0, "")
    """How many of its messages were learned from, as far as is known here, and the digest of these."""
    other_conversations: OtherConversations = field(default_factory=OtherConversations)
    """What was read of the user's other conversations."""
    last: LastPrompt | None = None
    blocks: list[Block] = field(default_factory=list)
    """The sealed blocks of its messages, as far as they are stored."""
    remade: str = ""
    """The problem with the blocks that were stored, for the next report."""
    sent: dict[int, TurnBlock] = field(default_factory=dict)
    """What human messages were sent with, by position; the newest may not be stored yet, and its message neither."""
    sent_read: int = 0
    """Of so many messages it is known whether they have one."""

    @property
    def entries(self) -> Entries:
        """Its messages."""
        return self.table.entries

    @property
    def positions(self) -> Mapping[str, int]:
        """Where each message stands, by id."""
        return self.table.positions

    @property
    def digest(self) -> str:
        """A digest of all its messages."""
        return self.table.digest

    def seen_with(self, counter: TokenCounter) -> Conversation:
        """Returns the conversation as it is now, counted for a model."""
        sent = {at: block for at, block in self.sent.items() if self._stands(block)}
        return Conversation.of(
            self.scope, self.table, counter, cuts=self.cuts, snapshot=self.snapshot, last=self.last, sent=sent
        )

    def _stands(self, block: TurnBlock) -> bool:
        """Returns whether the message of a block is stored, and everything before its turn is what it was."""
        at = block.position
        is_there = at < len(self.entries) and self.table.holds(block.before, block.history)
        return is_there and words_of(self.entries[at].message) == block.said

    def keep_block(self, block: TurnBlock) -> None:
        """Keeps the block of the newest prompt, to be written with its message."""
        if block.before >= 0:
            self.sent[block.position] = block

    def blocks_of(self, messages: Sequence[BaseMessage]) -> list[TurnBlock]:
        """Returns the blocks to be written with messages that come next."""
        places = enumerate(messages, len(self.entries))
        found = ((self.sent.get(at), message) for at, message in places)
        return [block for block, message in found if block is not None and block.said == words_of(message)]

    def reset(self) -> None:
        """Forgets everything, as if it had not been read yet."""
        new = OpenConversation(self.scope, self.lock, failed_writes=self.failed_writes)
        for one in fields(self):
            setattr(self, one.name, getattr(new, one.name))

    def begin_with(self, opened: Opened) -> None:
        """Begins with what was stored of its messages; what has come since is read from the log."""
        self.blocks, self.table = opened.blocks, opened.table
        self.heads = Heads(None, dict(opened.lanes))
        self.remade = REMADE if opened.damaged else ""
        if head := opened.head:
            self.doubles = [record for record in head.doubles if opened.holds(record.place)]
            self.renamed, self.newest_state = set(head.renamed), head.newest_state
            held = {key: [place for place in its if opened.holds(place)] for key, its in head.archived.items()}
            self.archived = {key: places for key, places in held.items() if places}

    def take_in(self, news: News, *, whole: bool = False) -> None:
        """Takes in what was read of the log, or all of it; messages before the first difference stay as they are."""
        position = 0 if whole else self._first_touched(news)
        self.blocks = [] if whole else self.blocks  # another log
        old = self.entries[position:]
        records = {} if whole else {r.place.key: r for r in (*(entry.record for entry in old), *self.doubles)}
        records = {key: r for key, r in records.items() if key not in news.changed}
        records |= {key: record for key, record in news.changed.items() if record is not None and not whole}
        records |= {record.place.key: record for record in news.messages}
        left = {} if whole else {k: [p for p in ps if p.key not in news.changed] for k, ps in self.archived.items()}
        self.archived = {key: places for key, places in left.items() if places}

        def known(key: str) -> str | None:
            return self.entries.fingerprint(at) if (at := self.positions.get(key, position)) < position else None

        folded = fold(in_order(records.values()), known)
        pairs = zip(old, folded.messages, strict=False)
        differ = (i for i, (o, (r, m)) in enumerate(pairs) if o.record != r or o.id != m.id)
        same = next(differ, min(len(old), len(folded.messages)))
        if position + same < len(self.entries):
            self.table = self.table.first(position + same)
            self.blocks = [block for block in self.blocks if block.end <= position + same]
            self.last = self.last and replace(self.last, coverage=None, turn=(), block=None)
        for record, message in folded.messages[same:]:
            self.table.append(record, message, self.pins.get(str(message.id)))
            self.newest_state = max(self.newest_state, record.place.state)
        self.doubles = list(folded.doubles)
        self.renamed = {key for key in self.renamed if key not in records and key not in news.changed}
        self.renamed |= set(folded.renamed)
        if whole or news.changed:
            self.table.made.read_again()
            self.sent.clear()  # any of them may quote what has changed; the stored ones are deleted with it
            self.sent_read = 0 if whole else self.sent_read
        for key, places in folded.archived.items():
            self.archived.setdefault(key, []).extend(places)

    def _first_touched(self, news: News) -> int:
        """Returns the position of the first message that news may change."""
        changed = [record for record in news.changed.values() if record is not None]
        orders = [record.place.order for record in (*news.messages[:1], *changed)]
        starts = [bisect_left(self.entries, order, key=lambda entry: entry.record.place.order) for order in orders]
        starts += [at for key in news.changed if (at := self.entries.position(key)) is not None]
        return min(starts, default=len(self.entries))

    def entry(self, message_id: str) -> Entry | None:
        """Returns a message by its id, or None where there is none."""
        position = self.positions.get(message_id)
        return None if position is None else self.entries[position]

    def lane(self, writer_id: str) -> str:
        """Returns the lane that a writer goes on with."""
        return f"{writer_id}.{self.failed_writes}" if self.failed_writes else writer_id

    def places_of(self, message_id: str) -> list[Place]:
        """Returns where a message's records are, its doubles among them; nowhere where there is no such message."""
        entry = self.entry(message_id)
        doubles = (double.place for double in self.doubles if double.to_message().id == message_id)
        return [] if entry is None else [entry.record.place, *doubles]

    def pin(self, pins: Mapping[str, Preservation]) -> None:
        """Makes these the pins; only messages whose preservation changes are shown and counted anew."""
        changed = {key for key in {*pins, *self.pins} if pins.get(key) != self.pins.get(key)}
        self.pins = dict(pins)
        self.table = self.table.pinned(pins, changed)

    def use(self, cut: CutRecord) -> None:
        """Keeps a cut as the one used last; only the last few are kept."""
        self.cuts.pop(cut.cut_key, None)
        self.cuts[cut.cut_key] = cut
        while len(self.cuts) > MOST_CUTS:
            del self.cuts[next(iter(self.cuts))]

    def cut_is_valid(self, cut: CutRecord) -> bool:
        """Returns whether a cut was made for the messages that stand before it now."""
        read = max(cut.position, cut.cleared)
        is_known = read > 0 or cut.strategy == "full"
        return is_known and cut.begun <= len(self.entries) and self.table.holds(read, cut.digest)

    def page(self, limit: int | None, before: str | None, after: str | None) -> MessagePage:
        """Returns the newest messages, or the newest before a bookmark, or all after one.

        Raises:
            InputError: it is no bookmark.
        """
        lanes = self.heads.lanes if self.heads else {}
        bookmark = before if after is None else after
        known = {} if bookmark is None else _parsed(bookmark)
        marks = {lane: mark for lane, mark in known.items() if lane in lanes and lanes[lane].born == mark.born}
        earlier = self.entries.before({lane: mark.number for lane, mark in marks.items()})
        is_wanted = np.ones(len(self.entries), bool) if bookmark is None else earlier == (after is None)
        wanted: list[int] = np.flatnonzero(is_wanted).tolist()
        if after is None:
            begin = max(0, len(wanted) - (limit or len(wanted)))
            left, wanted = wanted[:begin], wanted[begin:]
            marks = {lane: Mark(number, lanes[lane].born) for lane, number in self.entries.reached(left).items()}
        ends = {name: Mark(lane.count, lane.born) for name, lane in lanes.items()}
        return MessagePage([self.entries[at].message for at in wanted], _text(marks) if marks else None, _text(ends))

    def new_to_learn(self) -> int | None:
        """Returns how many messages were not learned from; None: some that were have changed."""
        return len(self.entries) - self.learned[0] if self.table.holds(*self.learned) else None


_locks: WeakKeyDictionary[BaseStore, WeakValueDictionary[Scope, Lock]] = WeakKeyDictionary()
"""The locks of conversations, shared by every pipeline of this process: an erasure waits for all that write."""
_locks_mutex = new_mutex()


def in_use(store: BaseStore) -> list[Scope]:
    """Returns the conversations in a store that anybody in this process has open."""
    with _locks_mutex:
        return list(_locks.get(store, ()))


class OpenConversations:
    """Open conversations by scope, the one used last at the end; one that is in use is never dropped."""

    def __init__(self, limit: int = MAX_OPEN) -> None:
        """Begins with none open; keeps at most `limit`."""
        self._limit = limit
        self._mutex = new_mutex()
        self._open: dict[Scope, OpenConversation] = {}
        self._users: dict[Scope, int] = {}
        beginning_anew(self)

    def begin_anew(self) -> None:
        """Has none open, as a thread that is gone may have been changing any of them."""
        self._open, self._users = {}, {}

    def using(self, store: BaseStore, scope: Scope, body: Callable[[OpenConversation], Flow[T]]) -> Flow[T]:
        """Runs a flow with a conversation in a store, alone."""
        with self._mutex, _locks_mutex:
            lock = _locks.setdefault(store, WeakValueDictionary()).setdefault(scope, Lock())
            conversation = self._open.pop(scope, None) or OpenConversation(scope, lock)
            self._open[scope] = conversation
            self._users[scope] = self._users.get(scope, 0) + 1
        try:
            return (yield from locked(conversation.lock, body(conversation)))
        finally:
            with self._mutex:
                self._users[scope] -= 1
                if not self._users[scope]:
                    del self._users[scope]
                idle = [known for known in self._open if known not in self._users]
                for known in idle[: max(0, len(self._open) - self._limit)]:
                    del self._open[known]

    def all(self) -> dict[Scope, OpenConversation]:
        """Returns every conversation that is open; whoever uses one holds its lock."""
        with self._mutex:
            return dict(self._open)

    def drop(self, scope: Scope) -> None:
        """Lets go of a conversation, unless somebody is using it."""
        with self._mutex:
            if scope not in self._users:
                self._open.pop(scope, None)

    def let_go(self, user_id: str) -> None:
        """Lets go of a user's conversations that nobody uses."""
        with self._mutex:
            for scope in [one for one in self._open if one.user_id == user_id and one not in self._users]:
                del self._open[scope]
