"""What a user has said in other conversations than the open one.

Read once a process, and searched whole.

Other conversations are opened for reading, apart from those in which somebody talks: from their
sealed segments, and from the log what is in no segment yet. A prompt looks whether anything is new,
searches the words and vectors of all messages in memory, and takes a few as candidates. Their texts
are read when they are shown. What was read from the log is stored in segments in the background, to
the last message: the next process reads no log.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore, GetOp, Item, SearchItem, SearchOp
from numpy.typing import NDArray

from langchain_ctxbudget import search, stores
from langchain_ctxbudget.errors import BlockedLoopError
from langchain_ctxbudget.flow import Flow, Lock, batch, embed, embed_query, locked, with_fallback
from langchain_ctxbudget.history import editing, log, segments
from langchain_ctxbudget.history.columns import MessageIndex
from langchain_ctxbudget.history.conversation import OpenConversation
from langchain_ctxbudget.history.extractive import CHARACTERS_PER_TOKEN
from langchain_ctxbudget.history.log import (
    JOINED,
    LANES,
    PINS,
    conversation_of,
    message_reference,
    read_items,
)
from langchain_ctxbudget.history.table import MessageTable
from langchain_ctxbudget.messages import (
    date_of,
    is_user,
    plain_text,
    preservation_of,
    speaker,
    terms,
    time_of,
)
from langchain_ctxbudget.search import Candidate, Kind
from langchain_ctxbudget.settings import Source
from langchain_ctxbudget.worker import keep_newest, new_mutex

MOST_SEARCHED = 20_000
"""Messages of a user's other conversations that are searched: of those that were written to
last."""
MOST_IN_MEMORY = 100_000
"""Messages of other conversations, of all users together, that stay in memory."""
CANDIDATES = 200
"""Of fewer messages all are candidates; of more, those that may be worth it, and a sample."""
BEST = CANDIDATES // 4
"""The best by words, the best by meaning, and those, evenly spaced, that stand for all others where
scores are compared."""
WITH_NEIGHBOURS = BEST // 4
"""The best ones whose neighbours are candidates, too: a reply may have no word of a query."""
LISTED = 1_024
"""Heads of lanes that are looked at, those that were written last."""
OVERFETCH = 4
"""A search of the store asks for this many times the wanted messages, as many are of conversations
that are read."""
MEASURED = 16
"""The first messages of a conversation, by which the tokens of its others are estimated."""
FEWEST_TERMS = 3
"""A message with no more different terms may say nothing."""


@dataclass(slots=True)
class OtherThread:
    """Another conversation as it was read last."""

    conversation: OpenConversation
    state: object = None
    """Its heads and pins when it was read; None before."""
    signs: search.Rows = field(default_factory=lambda: search.Rows(np.uint64))
    """The signs of every vector's values, by which those that are near to a query are found."""
    stored_at: list[datetime | None] = field(default_factory=list)
    """The time at which every message was stored, where it is known: not all segments tell."""
    not_own: frozenset[str] = frozenset()
    """The ids of what other users have said in it, which is never quoted as the user's."""
    sealed_for: object = None
    """Its contents when something new to be stored in segments was looked for last."""
    measured: tuple[int, float] = (0, 1.0)
    """The number of messages that were measured, and the tokens of a term in them."""
    made: dict[int, "OtherMessage"] = field(default_factory=dict)
    """The candidates of the last prompt, by their positions; none where its messages were read
    since."""

    @property
    def table(self) -> MessageTable:
        """Its messages."""
        return self.conversation.table

    @property
    def index(self) -> MessageIndex:
        """Their words and vectors."""
        return self.conversation.table.search_index

    def take_guests(self, stored: Item | None) -> None:
        """Takes in which of its messages other users have said."""
        record = stores.guests.GuestsRecord.found(stored)
        user = stores.label(self.conversation.scope.user_id)
        self.not_own = record.ids_for(user) if record else frozenset()

    def may_come(self) -> NDArray[np.bool_]:
        """Returns of every message whether it may be quoted."""
        quotable = self.table.quotable
        places = [
            self.table.positions[name] for name in self.not_own if name in self.table.positions
        ]
        if places:
            quotable = quotable.copy()
            quotable[places] = False
        return quotable

    @property
    def contents(self) -> object:
        """What it consists of; equal to an earlier one where there is nothing new to store."""
        return id(self.table), len(self.table), self.index.vectors_by, len(self.index.vectors)

    def takes_news(self) -> bool:
        """Tells whether something may be new to be stored in segments.

        Of the same contents, only once.
        """
        if self.sealed_for == self.contents:
            return False
        self.sealed_for = self.contents
        if len(self.index.links) < len(self.index.vectors) or None in self.stored_at:
            return True
        return next(segments.lacking(self.conversation, rests=True), None) is not None

    def note_times(self) -> None:
        """Takes in the times of messages that are new."""
        if not self.stored_at:
            self.stored_at = [*self.conversation.times]
        known = self.conversation.stored_at or {}
        new = range(len(self.stored_at), len(self.table))
        self.stored_at += [known.get(self.table.place(position).key) for position in new]
        self.conversation.stored_at = {}
        self.conversation.times = self.stored_at

    def day(self, position: int) -> str | None:
        """Returns the day of a message.

        Its own or that of those before it, else the day on which it was stored.
        """
        day = self.table.day(position)
        stored_at = self.stored_at[position]
        if day is None and stored_at is not None:
            return stored_at.date().isoformat()
        return day

    def tokens_per_term(self) -> float:
        """Returns about how many tokens a text has for each of its terms."""
        size = min(MEASURED, len(self.table))
        if self.measured[0] != size:
            tokens = sum(len(entry.text) / CHARACTERS_PER_TOKEN for entry in self.table[:size])
            lengths = self.index.lexical.lengths[:size]
            self.measured = size, float(tokens / max(1, int(lengths.sum())))
        return self.measured[1]

    def as_read(self) -> "ReadThread":
        """Returns its messages as they are now."""
        table = self.table
        title = self.conversation.scope.conversation_id
        return ReadThread(
            title, table, self.index.lexical, self.stored_at, len(table), self.not_own
        )

    def candidate(self, position: int, **known: Any) -> "OtherMessage":  # noqa: ANN401 - the fields that are given
        """Returns a message as a candidate, that of the last prompt where it is the same."""
        made = self.made.get(position)
        if made is not None and made.is_known_as(**known, vectors_by=self.index.vectors_by):
            return made
        lexical = self.index.lexical
        length = int(lexical.lengths[position])
        digest, saying, folded, first_person = self.index.known_of(position)
        return OtherMessage(
            title=self.conversation.scope.conversation_id,
            place=position,
            date=self.day(position),
            stored_at=self.stored_at[position],
            length=length,
            distinct=int(lexical.distinct[position]),
            tokens=int(length * self.tokens_per_term()) + 1,
            digest=digest,
            saying=(saying, folded),
            first_person=first_person,
            speaker=self.index.speaker_of(position),
            from_user=bool(self.table.human.values[position]),
            vectors_by=self.index.vectors_by,
            table=self.table,
            lexical=lexical,
            **known,
        )


@dataclass(frozen=True, eq=False)
class OtherMessage:
    """A message of another conversation as a candidate; its text is read when somebody looks."""

    source: ClassVar[Source] = "conversations"
    kind: ClassVar[Kind] = "experience"
    certainty: ClassVar[float] = 1.0
    metadata: ClassVar[Mapping[str, Any]] = {}

    title: str
    """The id of its conversation."""
    label: str
    """The title of its conversation, where that has one."""
    place: int
    """Its position there."""
    date: str | None
    stored_at: datetime | None
    age: int
    """The number of its conversation among those of the user, from the one that was written to
    first."""
    length: int
    """The number of its terms."""
    distinct: int
    """The number of its different terms."""
    tokens: int
    """About its tokens."""
    digest: int
    """A digest of its text."""
    saying: tuple[int, int]
    """Digests of who says what, and of what in one form."""
    first_person: float
    """Words of the first person, as a share of all."""
    speaker: str
    """The name of who says it, else the role."""
    from_user: bool
    """A human says it."""
    is_typical: bool
    """It is one of those that stand for all."""
    vector: search.Vectors | None = field(repr=False)
    """Its vector, where it is known."""
    vectors_by: str
    table: MessageTable = field(repr=False)
    lexical: search.LexicalIndex = field(repr=False)

    def is_known_as(
        self,
        *,
        label: str,
        age: int,
        is_typical: bool,
        vector: search.Vectors | None,
        vectors_by: str,
    ) -> bool:
        """Tells whether a candidate that was made for another prompt is the one that this prompt needs."""
        is_same_place = self.label == label and self.age == age and self.is_typical == is_typical
        is_same_vector = self.vectors_by == vectors_by and (self.vector is None) == (vector is None)
        return is_same_place and is_same_vector

    @property
    def id(self) -> str:
        """Its id among all messages of the user."""
        return message_reference(self.title, self.table.ids[self.place])

    @cached_property
    def text(self) -> str:
        """Its words."""
        return self.table[self.place].text


@dataclass(slots=True)
class Query:
    """What somebody asks, and its vector once that was needed."""

    text: str
    embeddings: Embeddings | None = None
    spoken: str = ""
    """What is embedded of it, such as without the names of those who speak; all of it where this is
    empty."""
    embedded: tuple[str, Sequence[float]] | None = None
    """What of it was embedded, and the vector."""

    def embed(self) -> Flow[None]:
        """Embeds it, if that was not done yet."""
        if self.embedded is None and self.embeddings is not None:
            said = self.spoken or self.text
            self.embedded = said, (yield from embed_query(self.embeddings, said))


class LookedThrough(NamedTuple):
    """The messages that were searched for candidates, as far as a ranking has to know of them all."""

    texts: int = 0
    total_length: int = 0
    counts: Mapping[str, int] = {}
    """In how many of them a term of the query occurs."""


class ReadThread(NamedTuple):
    """The messages of another conversation as they were when a prompt was made."""

    title: str
    """The id of the conversation."""
    table: MessageTable
    lexical: search.LexicalIndex
    stored_at: Sequence[datetime | None]
    size: int
    not_own: frozenset[str] = frozenset()
    """The ids of what other users have said in it."""

    def time_of(self, position: int) -> datetime | None:
        """Returns when a message was said, else when it was stored; None where neither is known."""
        said_at = time_of(self.table[position].message)
        return stores.utc(said_at) if said_at else self.stored_at[position]

    def messages_with(
        self, words: Iterable[str], *, every: bool, after: int, most: int
    ) -> list[int]:
        """Returns the last few messages behind one that a human says and that have some words, the last one first."""
        found: list[int] = []
        for position in reversed(self.lexical.having(words, every=every)):
            if position <= after or len(found) == most:
                break
            is_users = position < self.size and self.table.human.values[position]
            if is_users and self.table.ids[position] not in self.not_own:
                found.append(position)
        return found


class Elsewhere(NamedTuple):
    """What was found in a user's other conversations."""

    candidates: Sequence[OtherMessage | Candidate] = ()
    looked_through: LookedThrough = LookedThrough()
    threads: Sequence[ReadThread] = ()
    """The conversations that were searched, the one written to first at the beginning."""


NOWHERE = Elsewhere()


class _Listed(NamedTuple):
    """A conversation as the store lists it."""

    label: str
    lanes: tuple[tuple[str, Any], ...]
    messages: int
    pins: SearchItem | None
    beside: Sequence[Item] | None
    """All that is stored about its lanes, where all was listed."""

    @property
    def state(self) -> object:
        """What tells whether anything of it has changed since it was read."""
        return self.lanes, self.pins and self.pins.value


@dataclass(slots=True)
class _Joint:
    """The columns of some threads, one after the other."""

    made_for: object = None
    starts: NDArray[np.intp] = field(default_factory=lambda: np.zeros(1, np.intp))
    may_come: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    """Whether a message may be quoted, and none after it says the same."""
    signs: NDArray[np.uint64] = field(default_factory=lambda: np.zeros((0, 0), np.uint64))
    has_vector: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))


class OtherConversations:
    """The conversations of one user, read for the prompts of the others.

    Used by one prompt at a time.
    """

    def __init__(self, on_news: Callable[[stores.Scope], object] | None = None) -> None:
        """Takes a function that is told of each conversation of which something new may be stored in segments."""
        self.lock = Lock()
        self.writing = Lock()
        """Held while segments are written; it is taken before `lock`."""
        self.threads: dict[str, OtherThread] = {}
        """By the label of the conversation; the one that was written to first comes first."""
        self._on_news = on_news
        self._joint = _Joint()

    @property
    def messages(self) -> int:
        """The number of messages that are in memory."""
        return sum(len(thread.table) for thread in self.threads.values())

    def forget(self, scope: stores.Scope) -> Flow[None]:
        """Lets go of a conversation, once nobody reads any more."""

        def body() -> Flow[None]:
            yield from ()
            self.threads.pop(stores.label(scope.conversation_id), None)
            self._joint = _Joint()

        yield from locked(self.lock, body())

    def forget_all(self) -> Flow[None]:
        """Lets go of all conversations, once nothing of them is being written any more."""

        def body() -> Flow[None]:
            yield from ()
            self.threads = {}
            self._joint = _Joint()

        yield from locked(self.writing, locked(self.lock, body()))

    def seal(
        self, store: BaseStore, scope: stores.Scope, opened: OpenConversation | None
    ) -> Flow[bool]:
        """Stores what is known of a conversation in segments; returns whether there may be more.

        The caller holds the lock of the conversation, and gives it where it is open. Nothing is
        written where the conversation has changed since it was read, or others have written
        segments.
        """
        return (yield from locked(self.writing, self._seal_alone(store, scope, opened)))

    def _seal_alone(
        self, store: BaseStore, scope: stores.Scope, opened: OpenConversation | None
    ) -> Flow[bool]:
        thread = self.threads.get(stores.label(scope.conversation_id))
        if thread is None:
            return False
        conversation = thread.conversation
        table = thread.table
        times = yield from _read_times(store, thread)
        known = yield from segments.read_head(store, scope)
        vectors_by = known.vectors_by if known else ""
        heads, sealed = yield from locked(
            self.lock, _prepare(thread, opened, table, times, vectors_by)
        )
        if sealed is None:
            return False
        now = yield from log.read_heads(store, scope, heads)
        if now != heads or tuple(known.segments if known else ()) != tuple(
            conversation.named_segments
        ):
            return False
        yield from segments.write_resting(store, conversation, sealed, known)
        yield from locked(self.lock, _note_sealed(thread, sealed))
        if opened is not None and _is_same(opened, thread):
            opened.segments = [*sealed.segments]
        return True

    def read(
        self,
        store: BaseStore,
        user_id: str,
        query: Query,
        *,
        without_conversation: str | None,
        failures: list[str] | None = None,
    ) -> Flow[Elsewhere]:
        """Returns the messages of a user's other conversations that a query may be about.

        What of a conversation cannot be read is in `failures`.
        """
        user_id = stores.require_id("user_id", user_id)
        without = None if without_conversation is None else stores.label(without_conversation)
        problems = [] if failures is None else failures
        library = self
        try:
            return (
                yield from locked(
                    library.lock, library.read_alone(store, user_id, query, without, problems)
                )
            )
        except (
            BlockedLoopError
        ):  # a blocking call in an event loop, one of whose tasks reads: it reads for itself
            library = OtherConversations()
            return (yield from library.read_alone(store, user_id, query, without, problems))

    def read_alone(
        self, store: BaseStore, user_id: str, query: Query, without: str | None, failures: list[str]
    ) -> Flow[Elsewhere]:
        """Does what `read` says, for a caller that holds the lock.

        The open conversation is known by its label.
        """
        listed = yield from _list(store, user_id)
        others = [one for one in listed if one.label != without]
        taken = _newest(others)
        read = others[len(others) - taken :]
        beyond = others[: len(others) - taken]
        threads = yield from self._bring_up(
            store, user_id, read, {one.label for one in listed}, failures
        )
        words = terms(query.text)
        looked_through = LookedThrough(
            texts=sum(len(thread.table) for thread in threads),
            total_length=sum(thread.index.lexical.total_length for thread in threads),
            counts={
                word: sum(thread.index.lexical.count(word) for thread in threads)
                for word in dict.fromkeys(words)
            },
        )
        if looked_through.texts > CANDIDATES:
            by_words = "other conversations searched by their words alone"
            yield from with_fallback(_embed_all(threads, query), None, by_words, failures)
        for thread in threads:
            _take_signs(thread)
            thread.table.seal_in_memory()
        chosen, typical = self._choose(threads, words, query)
        found = yield from _candidates(store, threads, chosen, typical)
        more: Sequence[Candidate] = ()
        if beyond:
            failures.append(
                f"other conversations: the newest {looked_through.texts:,} messages were searched, and "
                f"{sum(one.messages for one in beyond):,} older ones "
                + ("by the index of the store" if stores.has_index(store) else "not")
            )
            if query.text.strip() and stores.has_index(store):
                more = yield from _search_store(
                    store, user_id, query.text, {one.label for one in beyond}
                )
        for thread in threads:
            if self._on_news is not None and thread.takes_news():
                self._on_news(thread.conversation.scope)
        seen = [thread.as_read() for thread in threads]
        return Elsewhere((*found, *more), looked_through, seen)

    def _bring_up(
        self,
        store: BaseStore,
        user_id: str,
        read: Sequence[_Listed],
        there: set[str],
        failures: list[str],
    ) -> Flow[list[OtherThread]]:
        """Reads what is new in some conversations, and returns them, the one written to first at the beginning."""
        for label in [*self.threads]:
            if label not in there:
                del self.threads[label]
        new = [one.label for one in read if one.label not in self.threads]
        namespace = (stores.ROOT, stores.label(user_id), LANES)
        items = yield from read_items(store, [GetOp((*namespace, label), JOINED) for label in new])
        scopes = {
            label: stores.Scope(user_id, conversation_of(item))
            for label, item in zip(new, items, strict=True)
            if item is not None  # else it is being deleted
        }
        opened = yield from _open(store, scopes)
        self.threads |= {label: OtherThread(conversation) for label, conversation in opened.items()}
        known = [one for one in read if one.label in self.threads]
        changed = [one for one in known if self.threads[one.label].state != one.state]
        # Written before the messages that they tell of, so they are as new as these.
        places = [self.threads[one.label].conversation.scope.place(log.GUESTS) for one in changed]
        guests = yield from read_items(store, places)
        problems: list[str] = []
        for one, said_by_others in zip(changed, guests, strict=True):
            thread = self.threads[one.label]
            try:
                thread.take_guests(said_by_others)
                yield from _refresh(store, thread, one)
            except Exception as error:  # noqa: BLE001 - whatever is wrong with one, the others can be searched
                del self.threads[one.label]
                problems.append(f"{type(error).__name__}: {error}")
            else:
                thread.state = one.state
                thread.made = {}
        if problems:
            failures.append(f"{len(problems)} other conversations not searched: {problems[0]}")
        threads = [self.threads[one.label] for one in read if one.label in self.threads]
        return [thread for thread in threads if len(thread.table)]

    def _together(self, threads: Sequence[OtherThread]) -> _Joint:
        """Returns the columns of some threads; made anew where one of them has changed."""
        made_for = [
            (id(thread.table), len(thread.table), len(thread.signs), thread.not_own)
            for thread in threads
        ]
        if self._joint.made_for == made_for:
            return self._joint
        sizes = [len(thread.table) for thread in threads]
        width = max(
            (thread.signs.values.shape[1] for thread in threads if len(thread.signs)), default=0
        )
        signs = np.zeros((sum(sizes), width), np.uint64)
        has_vector = np.zeros(sum(sizes), np.bool_)
        quotable = np.concatenate([thread.may_come() for thread in threads])
        sayings = np.concatenate([thread.index.sayings.values for thread in threads])
        starts = np.cumsum([0, *sizes])
        for thread, start in zip(threads, starts.tolist(), strict=False):
            end = start + len(thread.signs)
            if end > start and thread.signs.values.shape[1] == width:
                signs[start:end] = thread.signs.values
                has_vector[start:end] = True
        newest = len(sayings) - 1 - np.unique(sayings[::-1], return_index=True)[1]
        is_newest = np.zeros(len(sayings), np.bool_)
        is_newest[newest] = True
        self._joint = _Joint(made_for, starts, quotable & is_newest, signs, has_vector)
        return self._joint

    def _choose(
        self,
        threads: Sequence[OtherThread],
        words: Sequence[str],
        query: Query,
    ) -> tuple[list[tuple[int, int]], set[int]]:
        """Returns candidates, each as the number of its thread and its position, and which of them stand for all."""
        if not threads:
            return [], set()
        joint = self._together(threads)
        size = len(joint.may_come)
        if size <= CANDIDATES:
            numbers = np.flatnonzero(joint.may_come)
            typical = np.arange(size)
        else:
            typical = np.arange(0, size, -(-size // BEST))
            is_chosen = np.zeros(size, np.bool_)
            is_chosen[typical] = True
            for best in _best(threads, joint, words, query):
                is_chosen[best] = True
                of = np.searchsorted(joint.starts, best[:WITH_NEIGHBOURS], side="right") - 1
                for step in (-1, 1):
                    beside = best[:WITH_NEIGHBOURS] + step
                    within = (beside >= joint.starts[of]) & (beside < joint.starts[of + 1])
                    is_chosen[beside[within]] = True
            numbers = np.flatnonzero(is_chosen & joint.may_come)
        of = np.searchsorted(joint.starts, numbers, side="right") - 1
        positions = (numbers - joint.starts[of]).tolist()
        chosen = [
            (number, position)
            for number, position in zip(of.tolist(), positions, strict=True)
            if not _says_nothing(threads[number], position)
        ]
        sampled = set(typical.tolist())
        starts = joint.starts.tolist()
        return chosen, {
            at
            for at, (number, position) in enumerate(chosen)
            if starts[number] + position in sampled
        }


def _best(
    threads: Sequence[OtherThread], joint: _Joint, words: Sequence[str], query: Query
) -> Iterator[NDArray[np.intp]]:
    """Yields the numbers of the best messages by their words, and of those by their meaning, the best first."""
    scores = search.scores_across([thread.index.lexical for thread in threads], words)
    yield search.highest(np.flatnonzero(joint.may_come & (scores > 0)), scores, BEST)
    if query.embeddings is None or query.embedded is None:
        return
    _, vector = query.embedded
    target = search.signs(np.asarray([vector], np.float32) > 0)[0]
    if len(target) == joint.signs.shape[1]:
        name = f"{stores.embeddings_name(query.embeddings)} {len(vector)}"
        of_these = np.repeat(
            [thread.index.vectors_by == name for thread in threads], np.diff(joint.starts)
        )
        unlike = np.bitwise_count(joint.signs ^ target).sum(axis=1).astype(np.int32)
        may_come = joint.may_come & joint.has_vector & of_these
        yield search.highest(np.flatnonzero(may_come), -unlike, BEST)


def _candidates(
    store: BaseStore,
    threads: Sequence[OtherThread],
    chosen: Sequence[tuple[int, int]],
    typical: set[int],
) -> Flow[list[OtherMessage]]:
    """Returns messages as candidates, with the titles of their conversations and their days."""
    names = {number: threads[number].conversation.scope for number, _ in chosen}
    titles = yield from read_items(store, [scope.place(stores.TITLE) for scope in names.values()])
    labels = {
        number: str(stores.stored(item.value).get("text") or "") if item is not None else ""
        for number, item in zip(names, titles, strict=True)
    }
    undated = [(number, at) for number, at in chosen if threads[number].day(at) is None]
    places = [
        GetOp(names[number].namespace(log.MESSAGES), threads[number].table.place(at).key)
        for number, at in undated
    ]
    items = yield from read_items(store, places)
    for (number, at), item in zip(undated, items, strict=True):
        if item is not None:
            threads[number].stored_at[at] = stores.utc(item.created_at)
    vectors = _vectors_of(threads, chosen)
    candidates = [
        threads[number].candidate(
            position,
            label=labels[number],
            age=number,
            is_typical=at in typical,
            vector=vectors.get((number, position)),
        )
        for at, (number, position) in enumerate(chosen)
    ]
    for number in names:
        threads[number].made = {}
    for one in candidates:
        threads[one.age].made[one.place] = one
    return candidates


def _vectors_of(
    threads: Sequence[OtherThread], chosen: Sequence[tuple[int, int]]
) -> dict[tuple[int, int], search.Vectors]:
    """Returns the vectors of some messages, where they are known."""
    of: dict[int, list[int]] = {}
    for number, position in chosen:
        if position < len(threads[number].index.vectors):
            of.setdefault(number, []).append(position)
    found: dict[tuple[int, int], search.Vectors] = {}
    for number, positions in of.items():
        rows = threads[number].index.vectors.at(np.array(positions))
        found |= zip(((number, position) for position in positions), rows, strict=True)
    return found


def _says_nothing(thread: OtherThread, position: int) -> bool:
    """Tells whether a message is a courtesy, and would be quoted for nothing."""
    if thread.index.lexical.distinct[position] > FEWEST_TERMS:
        return False
    return search.is_courtesy(thread.table[position].text)


def _list(store: BaseStore, user_id: str) -> Flow[list[_Listed]]:
    """Returns the conversations of a user that were written to last, the one written to first at the beginning."""
    user = (stores.ROOT, stores.label(user_id))
    lanes, pins = yield from batch(
        store, [SearchOp((*user, kind), limit=LISTED) for kind in (LANES, PINS)]
    )
    of: dict[str, list[SearchItem]] = {}
    beside: dict[str, list[SearchItem]] = {}
    for item in _within(cast("list[SearchItem]", lanes), (*user, LANES)):
        beside.setdefault(item.namespace[-1], []).append(item)
        if item.key != JOINED:
            of.setdefault(item.namespace[-1], []).append(item)
    lists_all = len(cast("list[SearchItem]", lanes)) < LISTED
    pinned = {
        item.namespace[-1]: item for item in _within(cast("list[SearchItem]", pins), (*user, PINS))
    }
    newest = {
        label: max(item.updated_at.timestamp() for item in items) for label, items in of.items()
    }
    listed: list[_Listed] = []
    for label in sorted(of, key=lambda label: (newest[label], label)):
        heads = (
            sorted((item.key, item.value) for item in of[label])
            if len(of[label]) == 1
            else _sorted(of[label])
        )
        counts = (log.lane_of(key, value).count for key, value in heads)
        of_lanes = beside[label] if lists_all else None
        listed.append(_Listed(label, tuple(heads), sum(counts), pinned.get(label), of_lanes))
    return listed


def _sorted(items: Iterable[SearchItem]) -> list[tuple[str, Any]]:
    return [(item.key, item.value) for item in sorted(items, key=lambda item: item.key)]


def _newest(others: Sequence[_Listed]) -> int:
    """Returns how many conversations, from the end of a list, have together no more messages than are searched."""
    total = taken = 0
    for one in reversed(others):
        total += one.messages
        if taken and total > MOST_SEARCHED:
            break
        taken += 1
    return taken


def _open(
    store: BaseStore, scopes: Mapping[str, stores.Scope]
) -> Flow[dict[str, OpenConversation]]:
    """Returns conversations with what their segments tell, by their labels.

    Empty ones where segments cannot be read.
    """
    opened = {label: OpenConversation(scope, stored_at={}) for label, scope in scopes.items()}
    try:
        yield from segments.read_together(store, [*opened.values()])
    except Exception:  # noqa: BLE001 - they are derived: the log is read, and tells what is wrong with the store
        return {label: OpenConversation(scope, stored_at={}) for label, scope in scopes.items()}
    return opened


def _refresh(store: BaseStore, thread: OtherThread, listed: _Listed) -> Flow[None]:
    """Reads what is new in a conversation, and what it is to know of its messages."""
    before = thread.table
    if listed.beside is None:
        yield from editing.refresh(store, thread.conversation)
    else:
        yield from editing.read_until(store, thread.conversation, log.heads_in(listed.beside))
    pinned = stores.PinsRecord.found(listed.pins)
    thread.conversation.pin(pinned.pins if pinned else {})
    thread.index.read(thread.table)
    if thread.table is not before:  # other messages than before
        thread.measured = 0, 1.0
        thread.signs = search.Rows(np.uint64)
        thread.stored_at = thread.stored_at[: _same(before, thread.table)]
    thread.note_times()
    thread.tokens_per_term()


def _read_times(store: BaseStore, thread: OtherThread) -> Flow[dict[int, datetime]]:
    """Reads when the messages of the next segments that do not tell were stored, by position.

    So no prompt has to.
    """
    table = thread.table
    known = [*thread.stored_at]
    unknown: list[range] = []
    first = 0
    for segment in thread.conversation.segments:
        if segment.end <= len(known) and None in known[first : segment.end]:
            unknown.append(range(first, segment.end))
        first = segment.end
    positions = [*itertools.chain.from_iterable(unknown[: segments.SEALED_AT_ONCE])]
    namespace = thread.conversation.scope.namespace(log.MESSAGES)
    places = [GetOp(namespace, table.place(position).key) for position in positions]
    items = yield from read_items(store, places)
    found = zip(positions, items, strict=True)
    return {position: stores.utc(item.created_at) for position, item in found if item is not None}


def _prepare(
    thread: OtherThread,
    opened: OpenConversation | None,
    table: MessageTable,
    times: Mapping[int, datetime],
    vectors_by: str,
) -> Flow[tuple[log.Heads | None, segments.Sealed | None]]:
    """Works out what is to be stored of a conversation, and returns it behind the heads of the log that was read.

    It takes in the times at which messages were stored, unless the table in which they stood is
    another one by now. Vectors by other embeddings than those of the stored ones are not stored.
    """
    yield from ()
    conversation = thread.conversation
    if thread.table is table:
        for position, stored_at in times.items():
            thread.stored_at[position] = stored_at
    if opened is not None and _is_same(opened, thread):
        conversation.segments = [*opened.segments]
        conversation.named_segments = tuple(opened.segments)
    if len(thread.index.links) < len(thread.index.vectors):
        thread.index.subjects()
    sealed = segments.prepare(
        conversation, rests=True, with_vectors=vectors_by in ("", thread.index.vectors_by)
    )
    return conversation.heads, sealed


def _note_sealed(thread: OtherThread, sealed: segments.Sealed) -> Flow[None]:
    """Notes what was stored of a conversation, unless it was read anew meanwhile."""
    yield from ()
    if thread.table is sealed.table:
        thread.conversation.segments = [*sealed.segments]
    thread.conversation.named_segments = sealed.segments


def _is_same(opened: OpenConversation, thread: OtherThread) -> bool:
    """Tells whether an open conversation and what was read of it are the same."""
    return (
        opened.heads == thread.conversation.heads and opened.table.digest() == thread.table.digest()
    )


def _same(one: MessageTable, other: MessageTable) -> int:
    """Returns how many messages at the beginning of two tables are the same."""
    length = min(len(one), len(other))
    differ = np.flatnonzero(one.digests.values[:length] != other.digests.values[:length])
    return int(differ[0]) if len(differ) else length


def _take_signs(thread: OtherThread) -> None:
    """Notes the signs of the vectors that are new."""
    known = len(thread.signs)
    vectors = thread.index.vectors
    if known > len(vectors):
        thread.signs = search.Rows(np.uint64)
        known = 0
    if known < len(vectors):
        thread.signs.extend(search.signs(vectors.rows.values[known:] > 0))


def _embed_all(threads: Sequence[OtherThread], query: Query) -> Flow[None]:
    """Embeds the messages that have no vector yet, and the query, where there is something to compare it with.

    Embeddings of a service are asked for candidates alone: nobody waits until it has read all
    conversations. What of these is in segments has its vectors.
    """
    embeddings = query.embeddings
    if isinstance(embeddings, search.LocalEmbeddings):
        name = f"{stores.embeddings_name(embeddings)} {embeddings.dimensions}"
        for thread in threads:
            index = thread.index
            if index.embedded_by(name):
                thread.signs = search.Rows(np.uint64)
            while texts := index.texts_to_embed(thread.table):
                rows = yield from embed(embeddings, texts)
                index.vectors.extend(search.comparable(rows, embeddings.dimensions))
    if any(len(thread.index.vectors) for thread in threads):
        yield from query.embed()


def _within(items: Iterable[SearchItem], prefix: tuple[str, ...]) -> list[SearchItem]:
    """Returns the items that are a conversation's; a store may look for a prefix as text."""
    return [item for item in items if item.namespace[:-1] == prefix]


def _search_store(
    store: BaseStore, user_id: str, query: str, labels: set[str]
) -> Flow[list[Candidate]]:
    """Returns the messages of some conversations that the index of a store finds."""
    messages = (stores.ROOT, stores.label(user_id), log.MESSAGES)
    asked = SearchOp(
        messages, filter={"archived": False}, limit=CANDIDATES * OVERFETCH, query=query
    )
    [result] = yield from batch(store, [asked])
    scored = [item for item in cast("list[SearchItem]", result) if item.score is not None]
    found = [item for item in _within(scored, messages) if item.namespace[-1] in labels]
    return (yield from _stored_candidates(store, found))[:CANDIDATES]


def _stored_candidates(store: BaseStore, found: Sequence[Item]) -> Flow[list[Candidate]]:
    """Returns stored messages as candidates, but for those that are not to be quoted."""
    of: dict[str, list[Item]] = {}
    for item in found:
        of.setdefault(item.namespace[-1], []).append(item)
    user = found[0].namespace[:2] if found else ()
    kinds = ((LANES, JOINED), (PINS, PINS), (stores.TITLE, stores.TITLE), (log.GUESTS, log.GUESTS))
    about = iter(
        (
            yield from read_items(
                store, [GetOp((*user, kind, label), key) for label in of for kind, key in kinds]
            )
        )
    )
    made: list[Candidate] = []
    for items in of.values():
        joined, pins, title, guests = (next(about) for _ in kinds)
        if joined is None:  # it is being deleted
            continue
        pinned = known.pins if (known := stores.PinsRecord.found(pins)) else {}
        by_others = stores.guests.GuestsRecord.found(guests)
        not_own = by_others.ids_for(str(user[1])) if by_others else frozenset()
        for item in items:
            record = stores.MessageRecord.read(item.value, f"message {item.key!r}")
            message = record.to_message()
            text = plain_text(message)
            name = str(message.id)
            is_quoted = (pinned.get(name) or preservation_of(message)) not in stores.UNQUOTED
            is_shown = is_quoted and not record.archived and name not in not_own
            if not text or not is_shown or search.is_courtesy(text):
                continue
            made.append(
                Candidate(
                    id=message_reference(conversation_of(joined), name),
                    source="conversations",
                    text=text,
                    title=conversation_of(joined),
                    label=str(stores.stored(title.value).get("text") or "")
                    if title is not None
                    else "",
                    place=record.place.number,
                    speaker=speaker(message),
                    from_user=is_user(message),
                    date=date_of(message) or stores.utc(item.created_at).date().isoformat(),
                    kind="experience",
                )
            )
    return made


class Libraries:
    """The other conversations of every user that stay in memory; for threads and tasks."""

    def __init__(self, on_news: Callable[[stores.Scope], object] | None = None) -> None:
        """Takes what is told of every conversation of which something new may be stored in segments."""
        self._mutex = new_mutex()
        self._of: dict[str, OtherConversations] = {}
        self._on_news = on_news

    def of(self, user_id: str) -> OtherConversations:
        """Returns those of a user.

        Of the users who were served last, so many stay as there is room for.
        """
        with self._mutex:
            known = self._of.get(user_id) or OtherConversations(self._on_news)
            found = keep_newest(self._of, user_id, known, len(self._of) + 1)
            total = sum(library.messages for library in [*self._of.values()])
            for other in [*self._of][:-1]:
                if total <= MOST_IN_MEMORY:
                    break
                total -= self._of.pop(other).messages
            return found

    def forget(self, scope: stores.Scope) -> Flow[None]:
        """Lets go of a conversation."""
        with self._mutex:
            known = self._of.get(scope.user_id)
        if known is not None:
            yield from known.forget(scope)

    def seal(
        self, store: BaseStore, scope: stores.Scope, opened: OpenConversation | None
    ) -> Flow[bool]:
        """Stores what is known of a conversation in segments, as `OtherConversations.seal` says."""
        with self._mutex:
            known = self._of.get(scope.user_id)
        return known is not None and (yield from known.seal(store, scope, opened))

    def erase(self, user_id: str) -> Flow[None]:
        """Lets go of a user's conversations, once nothing of them is being written any more."""
        with self._mutex:
            known = self._of.pop(user_id, None)
        if known is not None:
            yield from known.forget_all()
