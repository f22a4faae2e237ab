"""Candidates among the messages of a user's other conversations.

They are searched in memory, by words and vectors; those that are not read, by the store's index.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore, GetOp, Item, SearchItem, SearchOp
from numpy.typing import NDArray

from langchain_ctxbudget import search, stores
from langchain_ctxbudget.flow import Flow, batch, embed, embed_query
from langchain_ctxbudget.history import log
from langchain_ctxbudget.history.log import (
    JOINED,
    LANES,
    PINS,
    conversation_of,
    message_reference,
    read_items,
)
from langchain_ctxbudget.history.other_listing import items_within
from langchain_ctxbudget.history.other_threads import OtherMessage, OtherThread
from langchain_ctxbudget.messages import (
    Preservation,
    date_of,
    is_user,
    plain_text,
    preservation_of,
    speaker,
)
from langchain_ctxbudget.search import Candidate

CANDIDATES = 200
"""Of fewer messages all are candidates; of more, those that may be worth it, and a sample."""
BEST = CANDIDATES // 4
"""The best by words, the best by meaning, and those, evenly spaced, that stand for all others where
scores are compared."""
WITH_NEIGHBOURS = BEST // 4
"""The best ones whose neighbours are candidates, too: a reply may have no word of a query."""
MOST_EMBEDDED = 20_000
"""Messages that are embedded for one prompt; until the next ones embed more, only the words of
others are searched."""
OVERFETCH = 4
"""A search of the store asks for this many times the wanted messages, as many are of conversations
that are read."""


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
            text = self.spoken or self.text
            vector = yield from embed_query(self.embeddings, text)
            self.embedded = (text, vector)


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """A message of another conversation that may be quoted for a query."""

    thread: int
    """The number of its conversation."""
    position: int
    is_typical: bool
    """True for one of those that stand for all."""


@dataclass(slots=True)
class JoinedColumns:
    """The columns of some threads, one after the other."""

    made_for: object = None
    """What they were made for: equal where they are still right."""
    starts: NDArray[np.intp] = field(default_factory=lambda: np.zeros(1, np.intp))
    """The row of each thread's first message, and the row behind the last."""
    may_come: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    """Whether a message may be quoted, and none after it says the same."""
    signs: NDArray[np.uint64] = field(default_factory=lambda: np.zeros((0, 0), np.uint64))
    has_vector: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))

    def threads_of(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Returns the number of the thread to which each row belongs."""
        return np.searchsorted(self.starts, rows, side="right") - 1

    def rows_beside(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Returns the rows of the messages right before and behind some others."""
        threads = self.threads_of(rows)
        beside = [rows - 1, rows + 1]
        within = [
            (neighbours >= self.starts[threads]) & (neighbours < self.starts[threads + 1])
            for neighbours in beside
        ]
        return np.concatenate(beside)[np.concatenate(within)]


def joined_columns(threads: Sequence[OtherThread], earlier: JoinedColumns) -> JoinedColumns:
    """Returns the columns of some threads: the earlier ones, unless a thread has changed."""
    made_for = [
        (id(thread.table), len(thread.table), len(thread.signs), thread.not_own)
        for thread in threads
    ]
    if earlier.made_for == made_for:
        return earlier

    starts = np.cumsum([0, *(len(thread.table) for thread in threads)])
    signs, has_vector = _joined_signs([thread.signs.values for thread in threads], starts)
    quotable = np.concatenate([thread.may_come() for thread in threads])
    sayings = np.concatenate([thread.index.sayings.values for thread in threads])
    return JoinedColumns(
        made_for=made_for,
        starts=starts,
        may_come=quotable & _is_last_of_its_kind(sayings),
        signs=signs,
        has_vector=has_vector,
    )


def _joined_signs(
    signs_of_threads: Sequence[NDArray[np.uint64]], starts: NDArray[np.intp]
) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Returns the signs of the vectors of some threads, by row, and which rows have any.

    Of two kinds of vectors, the longer ones are taken.
    """
    width = max((signs.shape[1] for signs in signs_of_threads if len(signs)), default=0)
    joined = np.zeros((starts[-1], width), np.uint64)
    has_vector = np.zeros(starts[-1], np.bool_)
    for signs, start in zip(signs_of_threads, starts.tolist(), strict=False):
        if len(signs) and signs.shape[1] == width:
            end = start + len(signs)
            joined[start:end] = signs
            has_vector[start:end] = True
    return joined, has_vector


def _is_last_of_its_kind(values: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Returns of every value whether none behind it is the same."""
    _, firsts_from_the_end = np.unique(values[::-1], return_index=True)
    is_last = np.zeros(len(values), np.bool_)
    is_last[len(values) - 1 - firsts_from_the_end] = True
    return is_last


def embed_all(threads: Sequence[OtherThread], query: Query) -> Flow[None]:
    """Embeds messages that have no vector yet, and the query where it can be compared with some.

    Embeddings of a service are asked for candidates alone: nobody waits until it has read all
    conversations. What of these is in segments has its vectors.
    """
    embeddings = query.embeddings
    if isinstance(embeddings, search.LocalEmbeddings):
        left = MOST_EMBEDDED
        for thread in reversed(threads):
            left -= yield from _embed_thread(thread, embeddings, left)
    if any(len(thread.index.vectors) for thread in threads):
        yield from query.embed()


def _embed_thread(thread: OtherThread, embeddings: search.LocalEmbeddings, most: int) -> Flow[int]:
    """Embeds messages of a conversation that have no vector; returns how many.

    It stops with the texts with which there are at least so many as `most`.
    """
    index = thread.index
    if index.embedded_by(f"{stores.embeddings_name(embeddings)} {embeddings.dimensions}"):
        thread.signs = search.Rows(np.uint64)
    embedded = 0
    while embedded < most:
        texts = index.texts_to_embed(thread.table)
        if not texts:
            break
        rows = yield from embed(embeddings, texts)
        index.vectors.extend(search.comparable(rows, embeddings.dimensions))
        embedded += len(texts)
    return embedded


def find_messages(
    threads: Sequence[OtherThread], columns: JoinedColumns, words: Sequence[str], query: Query
) -> list[FoundMessage]:
    """Returns messages of some threads that a query may be about, and some that stand for all."""
    size = len(columns.may_come)
    if size <= CANDIDATES:
        typical = np.arange(size)
        rows = np.flatnonzero(columns.may_come)
    else:
        typical = np.arange(0, size, -(-size // BEST))
        is_chosen = np.zeros(size, np.bool_)
        is_chosen[typical] = True
        for best in _best(threads, columns, words, query):
            is_chosen[best] = True
            is_chosen[columns.rows_beside(best[:WITH_NEIGHBOURS])] = True
        rows = np.flatnonzero(is_chosen & columns.may_come)

    numbers = columns.threads_of(rows)
    positions = rows - columns.starts[numbers]
    is_typical = np.isin(rows, typical)
    found: list[FoundMessage] = []
    for number, position, stands_for_all in zip(
        numbers.tolist(), positions.tolist(), is_typical.tolist(), strict=True
    ):
        if not threads[number].says_nothing(position):
            found.append(FoundMessage(number, position, stands_for_all))
    return found


def _best(
    threads: Sequence[OtherThread], columns: JoinedColumns, words: Sequence[str], query: Query
) -> Iterator[NDArray[np.intp]]:
    """Yields the rows of the best messages by their words, then by their meaning, best first."""
    scores = search.scores_across([thread.index.lexical for thread in threads], words)
    yield search.highest(np.flatnonzero(columns.may_come & (scores > 0)), scores, BEST)
    if query.embeddings is None or query.embedded is None:
        return

    _, vector = query.embedded
    signs = search.signs(np.asarray([vector], np.float32) > 0)[0]
    if len(signs) != columns.signs.shape[1]:
        return
    name = f"{stores.embeddings_name(query.embeddings)} {len(vector)}"
    is_by_these = [thread.index.vectors_by == name for thread in threads]
    is_comparable = columns.has_vector & np.repeat(is_by_these, np.diff(columns.starts))
    unlike = np.bitwise_count(columns.signs ^ signs).sum(axis=1).astype(np.int32)
    yield search.highest(np.flatnonzero(columns.may_come & is_comparable), -unlike, BEST)


def candidates_of(
    store: BaseStore, threads: Sequence[OtherThread], found: Sequence[FoundMessage]
) -> Flow[list[OtherMessage]]:
    """Returns messages as candidates, with the titles of their conversations and their days."""
    numbers = list(dict.fromkeys(message.thread for message in found))
    scopes = [threads[number].conversation.scope for number in numbers]
    items = yield from read_items(store, [scope.place(stores.TITLE) for scope in scopes])
    labels = dict(zip(numbers, map(_title_in, items), strict=True))
    yield from _read_days(store, threads, found)
    vectors = _vectors_of(threads, found)

    candidates = [
        threads[message.thread].candidate(
            message.position,
            label=labels[message.thread],
            age=message.thread,
            is_typical=message.is_typical,
            vector=vectors.get(message),
        )
        for message in found
    ]
    for number in numbers:
        threads[number].last_candidates = {}
    for candidate in candidates:
        threads[candidate.age].last_candidates[candidate.place] = candidate
    return candidates


def _read_days(
    store: BaseStore, threads: Sequence[OtherThread], found: Sequence[FoundMessage]
) -> Flow[None]:
    """Reads when those messages were stored of which no day is known."""
    undated = [
        message for message in found if threads[message.thread].day(message.position) is None
    ]
    places: list[GetOp] = []
    for message in undated:
        thread = threads[message.thread]
        namespace = thread.conversation.scope.namespace(log.MESSAGES)
        places.append(GetOp(namespace, thread.table.place(message.position).key))
    items = yield from read_items(store, places)
    for message, item in zip(undated, items, strict=True):
        if item is not None:
            thread = threads[message.thread]
            thread.stored_at[message.position] = stores.utc(item.created_at)


def _vectors_of(
    threads: Sequence[OtherThread], found: Sequence[FoundMessage]
) -> dict[FoundMessage, search.Vectors]:
    """Returns the vectors of some messages, where they are known."""
    with_vectors: dict[int, list[FoundMessage]] = {}
    for message in found:
        if message.position < len(threads[message.thread].index.vectors):
            with_vectors.setdefault(message.thread, []).append(message)
    vectors: dict[FoundMessage, search.Vectors] = {}
    for number, messages in with_vectors.items():
        positions = np.array([message.position for message in messages])
        rows = threads[number].index.vectors.at(positions)
        vectors.update(zip(messages, rows, strict=True))
    return vectors


def _title_in(item: Item | None) -> str:
    """Returns the title of a conversation as it is stored; the empty text where it has none."""
    if item is None:
        return ""
    return str(stores.from_stored(item.value).get("text") or "")


def search_store(
    store: BaseStore, user_id: str, query: str, labels: set[str]
) -> Flow[list[Candidate]]:
    """Returns the messages of some conversations that the index of a store finds."""
    messages = (stores.ROOT, stores.label(user_id), log.MESSAGES)
    operation = SearchOp(
        messages, filter={"archived": False}, limit=CANDIDATES * OVERFETCH, query=query
    )
    [result] = yield from batch(store, [operation])
    scored = [item for item in cast("list[SearchItem]", result) if item.score is not None]
    items_of: dict[str, list[SearchItem]] = {}
    for item in items_within(scored, messages):
        if item.namespace[-1] in labels:
            items_of.setdefault(item.namespace[-1], []).append(item)

    candidates: list[Candidate] = []
    conversations = yield from _read_conversations(store, messages[:2], [*items_of])
    for label, conversation in conversations.items():
        for item in items_of[label]:
            candidate = conversation.candidate(item)
            if candidate is not None:
                candidates.append(candidate)
    return candidates[:CANDIDATES]


@dataclass(frozen=True, slots=True)
class _StoredConversation:
    """A conversation whose messages the store finds, none of which is read."""

    id: str
    title: str
    pins: Mapping[str, Preservation]
    """What is to become of messages, by their ids."""
    not_own: frozenset[str]
    """The ids of what other users have said in it."""

    def candidate(self, item: Item) -> Candidate | None:
        """Returns a stored message as a candidate; None for one that is not to be quoted."""
        record = stores.MessageRecord.read(item.value, f"message {item.key!r}")
        message = record.to_message()
        text = plain_text(message)
        name = str(message.id)
        is_quotable = (self.pins.get(name) or preservation_of(message)) not in stores.UNQUOTED
        if not is_quotable or record.archived or name in self.not_own:
            return None
        if not text or search.says_nothing(text):
            return None
        return Candidate(
            id=message_reference(self.id, name),
            source="conversations",
            text=text,
            title=self.id,
            label=self.title,
            place=record.place.number,
            speaker=speaker(message),
            from_user=is_user(message),
            date=date_of(message) or stores.utc(item.created_at).date().isoformat(),
            kind="experience",
        )


def _read_conversations(
    store: BaseStore, user: tuple[str, ...], labels: Sequence[str]
) -> Flow[dict[str, _StoredConversation]]:
    """Returns what is stored about some conversations, by label, but for those being deleted."""
    places: list[GetOp] = []
    for label in labels:
        places.append(GetOp((*user, LANES, label), JOINED))
        places.append(GetOp((*user, PINS, label), PINS))
        places.append(GetOp((*user, stores.TITLE, label), stores.TITLE))
        places.append(GetOp((*user, log.GUESTS, label), log.GUESTS))
    items = iter((yield from read_items(store, places)))

    conversations: dict[str, _StoredConversation] = {}
    for label in labels:
        joined, pins, title, guests = (next(items) for _ in range(4))
        if joined is None:  # it is being deleted
            continue
        pinned = stores.PinsRecord.of_item(pins)
        by_others = stores.guests.GuestsRecord.of_item(guests)
        conversations[label] = _StoredConversation(
            id=conversation_of(joined),
            title=_title_in(title),
            pins=pinned.pins if pinned else {},
            not_own=by_others.ids_for(user[1]) if by_others else frozenset(),
        )
    return conversations
