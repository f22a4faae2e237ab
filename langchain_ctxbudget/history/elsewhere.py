"""What a user has said in other conversations than the open one.

Read once a process, and searched whole.

Other conversations are opened for reading, apart from those in which somebody talks: from their
sealed segments, and from the log what is in no segment yet. A prompt looks whether anything is new,
searches the words and vectors of all messages in memory, and takes a few as candidates. Their texts
are read when they are shown. What was read from the log is stored in segments in the background, to
the last message: the next process reads no log.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from langgraph.store.base import BaseStore, GetOp

from langchain_ctxbudget import stores
from langchain_ctxbudget.errors import BlockedLoopError
from langchain_ctxbudget.flow import Flow, Lock, locked, with_fallback
from langchain_ctxbudget.history import log, segments
from langchain_ctxbudget.history.conversation import OpenConversation
from langchain_ctxbudget.history.log import JOINED, LANES, conversation_of, read_items
from langchain_ctxbudget.history.other_listing import ListedConversation, list_conversations
from langchain_ctxbudget.history.other_search import (
    CANDIDATES,
    JoinedColumns,
    Query,
    candidates_of,
    embed_all,
    find_messages,
    joined_columns,
    search_store,
)
from langchain_ctxbudget.history.other_threads import OtherMessage, OtherThread, ReadThread
from langchain_ctxbudget.history.table import MessageTable
from langchain_ctxbudget.messages import terms
from langchain_ctxbudget.search import Candidate
from langchain_ctxbudget.worker import new_mutex

MOST_SEARCHED = 100_000
"""Messages of a user's other conversations that are searched, of whole conversations: the one that
was written to last, and before it those that fit."""
MOST_IN_MEMORY = 200_000
"""Messages of other conversations, of all users together, that stay in memory; a process takes some
300 MB for them."""
MESSAGES_OF_AN_EMPTY_ONE = 100
"""A conversation takes as much memory as so many messages besides its own: what a service for many
users has in memory are short ones."""


class LookedThrough(NamedTuple):
    """All messages that were searched for candidates, as far as a ranking has to know of them."""

    texts: int = 0
    total_length: int = 0
    counts: Mapping[str, int] = {}
    """In how many of them a term of the query occurs."""


class Elsewhere(NamedTuple):
    """What was found in a user's other conversations."""

    candidates: Sequence[OtherMessage | Candidate] = ()
    looked_through: LookedThrough = LookedThrough()
    threads: Sequence[ReadThread] = ()
    """The conversations that were searched, the one written to first at the beginning."""


NOWHERE = Elsewhere()


class OtherConversations:
    """The conversations of one user, read for the prompts of the others.

    Used by one prompt at a time.
    """

    def __init__(self, on_news: Callable[[stores.Scope], object] | None = None) -> None:
        """Takes a function that hears of conversations with something new to store in segments."""
        self.lock = Lock()
        self.writing = Lock()
        """Held while segments are written; it is taken before `lock`."""
        self.threads: dict[str, OtherThread] = {}
        """By the label of the conversation; the one that was written to first comes first."""
        self._on_news = on_news
        self._columns = JoinedColumns()

    @property
    def room(self) -> int:
        """The memory that they take, in messages of a long conversation."""
        threads = [*self.threads.values()]  # another thread may read one more meanwhile
        return sum(MESSAGES_OF_AN_EMPTY_ONE + len(thread.table) for thread in threads)

    # Letting go

    def forget(self, scope: stores.Scope) -> Flow[None]:
        """Lets go of a conversation, once nobody reads any more."""

        def forget_alone() -> Flow[None]:
            yield from ()
            self.threads.pop(stores.label(scope.conversation_id), None)
            self._columns = JoinedColumns()

        yield from locked(self.lock, forget_alone())

    def forget_all(self) -> Flow[None]:
        """Lets go of all conversations, once nothing of them is being written any more."""

        def forget_alone() -> Flow[None]:
            yield from ()
            self.threads = {}
            self._columns = JoinedColumns()

        yield from locked(self.writing, locked(self.lock, forget_alone()))

    # Storing in segments

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
        table = thread.table
        times = yield from _read_times(store, thread)
        head = yield from segments.read_head(store, scope)
        vectors_by = head.vectors_by if head else ""
        preparing = _prepare(thread, opened, table, times, vectors_by)
        heads, sealed = yield from locked(self.lock, preparing)
        if sealed is None:
            return False

        stored_heads = yield from log.read_heads(store, scope, heads)
        stored_segments = tuple(head.segments if head else ())
        if stored_heads != heads or stored_segments != tuple(thread.conversation.named_segments):
            return False
        yield from segments.write_resting(store, thread.conversation, sealed, head)
        yield from locked(self.lock, _note_sealed(thread, sealed))
        if opened is not None and _is_same(opened, thread):
            opened.segments = [*sealed.segments]
        return True

    # Reading and searching

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
        reading = self._read_alone(store, user_id, query, without, problems)
        try:
            return (yield from locked(self.lock, reading))
        except BlockedLoopError:
            # A blocking call in an event loop, one of whose tasks reads: it reads for itself.
            separate = OtherConversations()
            return (yield from separate._read_alone(store, user_id, query, without, problems))

    def _read_alone(
        self, store: BaseStore, user_id: str, query: Query, without: str | None, failures: list[str]
    ) -> Flow[Elsewhere]:
        """Does what `read` says, for a caller that holds the lock.

        The open conversation (`without`) is known by its label.
        """
        listed = yield from list_conversations(store, user_id)
        self._forget_but({conversation.label for conversation in listed})
        others = [conversation for conversation in listed if conversation.label != without]
        searched, left_out = _divided(others)
        threads = yield from self._bring_up(store, user_id, searched, failures)

        words = terms(query.text)
        looked_through = _look_through(threads, words)
        if looked_through.texts > CANDIDATES:
            by_words = "other conversations searched by their words alone"
            yield from with_fallback(embed_all(threads, query), None, by_words, failures)
        candidates: list[OtherMessage | Candidate] = []
        candidates += yield from self._search(store, threads, words, query)
        if left_out:
            has_index = stores.has_index(store)
            failures.append(_not_read(left_out, looked_through.texts, has_index=has_index))
            if has_index and query.text.strip():
                labels = {conversation.label for conversation in left_out}
                candidates += yield from search_store(store, user_id, query.text, labels)
        self._tell_news(threads)
        return Elsewhere(candidates, looked_through, [thread.as_read() for thread in threads])

    def _search(
        self, store: BaseStore, threads: Sequence[OtherThread], words: Sequence[str], query: Query
    ) -> Flow[list[OtherMessage]]:
        """Returns the messages of threads that a query may be about, with what is read of them."""
        if not threads:
            return []
        for thread in threads:
            thread.note_signs()
            thread.table.seal_in_memory()
        self._columns = joined_columns(threads, self._columns)
        found = find_messages(threads, self._columns, words, query)
        return (yield from candidates_of(store, threads, found))

    def _forget_but(self, labels: set[str]) -> None:
        """Lets go of the conversations that are no more."""
        for label in [*self.threads]:
            if label not in labels:
                del self.threads[label]

    def _bring_up(
        self,
        store: BaseStore,
        user_id: str,
        listed: Sequence[ListedConversation],
        failures: list[str],
    ) -> Flow[list[OtherThread]]:
        """Reads what is new in some conversations, and returns those that have messages."""
        labels = [conversation.label for conversation in listed]
        unknown = [label for label in labels if label not in self.threads]
        opened = yield from _open(store, user_id, unknown)
        for label, conversation in opened.items():
            self.threads[label] = OtherThread(conversation)

        yield from self._refresh(store, listed, failures)
        threads = [self.threads.get(label) for label in labels]
        return [thread for thread in threads if thread is not None and len(thread.table)]

    def _refresh(
        self, store: BaseStore, listed: Sequence[ListedConversation], failures: list[str]
    ) -> Flow[None]:
        """Reads what is new in known conversations; lets go of those that cannot be read."""
        changed: list[ListedConversation] = []
        for conversation in listed:
            thread = self.threads.get(conversation.label)
            if thread is not None and thread.state != conversation.state:
                changed.append(conversation)
        # Written before the messages that they tell of, so they are as new as these.
        scopes = [self.threads[it.label].conversation.scope for it in changed]
        places = [scope.place(log.GUESTS) for scope in scopes]
        guests = yield from read_items(store, places)
        problems: list[str] = []
        for conversation, stored_guests in zip(changed, guests, strict=True):
            thread = self.threads[conversation.label]
            try:
                thread.note_guests(stored_guests)
                yield from thread.refresh(store, conversation)
            except Exception as error:  # noqa: BLE001 - whatever is wrong with one, the others can be searched
                del self.threads[conversation.label]
                problems.append(f"{type(error).__name__}: {error}")
            else:
                thread.state = conversation.state
                thread.last_candidates = {}
        if problems:
            failures.append(f"{len(problems)} other conversations not searched: {problems[0]}")

    def _tell_news(self, threads: Sequence[OtherThread]) -> None:
        """Tells of each conversation in which something may be new to be stored in segments."""
        if self._on_news is None:
            return
        for thread in threads:
            if thread.takes_news():
                self._on_news(thread.conversation.scope)


def _divided(
    conversations: Sequence[ListedConversation],
) -> tuple[list[ListedConversation], list[ListedConversation]]:
    """Divides conversations into those that are searched and those that are too many.

    The last one always is searched, and before it all that have room: a long one does not keep out
    a short one that is older.
    """
    left = MOST_SEARCHED
    searched: list[ListedConversation] = []
    left_out: list[ListedConversation] = []
    for conversation in reversed(conversations):
        if searched and conversation.messages > left:
            left_out.append(conversation)
            continue
        searched.append(conversation)
        left -= conversation.messages
    return searched[::-1], left_out[::-1]


def _look_through(threads: Sequence[OtherThread], words: Sequence[str]) -> LookedThrough:
    lexicals = [thread.index.lexical for thread in threads]
    counts: dict[str, int] = {}
    for word in dict.fromkeys(words):
        counts[word] = sum(lexical.count(word) for lexical in lexicals)
    return LookedThrough(
        texts=sum(len(thread.table) for thread in threads),
        total_length=sum(lexical.total_length for lexical in lexicals),
        counts=counts,
    )


def _not_read(
    conversations: Sequence[ListedConversation], searched: int, *, has_index: bool
) -> str:
    """Returns the line that tells of conversations that are not in memory."""
    messages = sum(conversation.messages for conversation in conversations)
    how = "by the index of the store" if has_index else "not"
    return (
        f"other conversations: {searched:,} messages were searched, "
        f"and {messages:,} of too long or too old ones {how}"
    )


def _open(
    store: BaseStore, user_id: str, labels: Sequence[str]
) -> Flow[dict[str, OpenConversation]]:
    """Returns conversations with what their segments tell, by their labels.

    Empty ones where segments cannot be read.
    """
    namespace = (stores.ROOT, stores.label(user_id), LANES)
    items = yield from read_items(store, [GetOp((*namespace, label), JOINED) for label in labels])
    scopes = {
        label: stores.Scope(user_id, conversation_of(item))
        for label, item in zip(labels, items, strict=True)
        if item is not None  # else it is being deleted
    }
    opened = {label: OpenConversation(scope, stored_at={}) for label, scope in scopes.items()}
    try:
        yield from segments.read_together(store, [*opened.values()])
    except Exception:  # noqa: BLE001 - they are derived: the log is read, and tells what is wrong with the store
        return {label: OpenConversation(scope, stored_at={}) for label, scope in scopes.items()}
    return opened


def _read_times(store: BaseStore, thread: OtherThread) -> Flow[dict[int, datetime]]:
    """Reads when the messages of the next segments that do not tell were stored, by position.

    So no prompt has to.
    """
    table = thread.table
    times = [*thread.stored_at]
    untold: list[range] = []
    first = 0
    for segment in thread.conversation.segments:
        if segment.end <= len(times) and None in times[first : segment.end]:
            untold.append(range(first, segment.end))
        first = segment.end
    positions = [*itertools.chain.from_iterable(untold[: segments.SEALED_AT_ONCE])]
    namespace = thread.conversation.scope.namespace(log.MESSAGES)
    places = [GetOp(namespace, table.place(position).key) for position in positions]
    items = yield from read_items(store, places)
    return {
        position: stores.utc(item.created_at)
        for position, item in zip(positions, items, strict=True)
        if item is not None
    }


def _prepare(
    thread: OtherThread,
    opened: OpenConversation | None,
    table: MessageTable,
    times: Mapping[int, datetime],
    vectors_by: str,
) -> Flow[tuple[log.Heads | None, segments.Sealed | None]]:
    """Works out what is to be stored of a conversation.

    Returns it behind the heads of the log that was read. Notes the times at which messages were
    stored, unless the table in which they stood is another one by now. Vectors by other embeddings
    than those of the stored ones are not stored.
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
    with_vectors = vectors_by in ("", thread.index.vectors_by)
    sealed = segments.prepare(conversation, rests=True, with_vectors=with_vectors)
    return conversation.heads, sealed


def _note_sealed(thread: OtherThread, sealed: segments.Sealed) -> Flow[None]:
    """Notes what was stored of a conversation, unless it was read anew meanwhile."""
    yield from ()
    if thread.table is sealed.table:
        thread.conversation.segments = [*sealed.segments]
    thread.conversation.named_segments = sealed.segments


def _is_same(opened: OpenConversation, thread: OtherThread) -> bool:
    """Returns True if an open conversation is the same as what was read of it."""
    heads = thread.conversation.heads
    return opened.heads == heads and opened.table.digest() == thread.table.digest()


class Libraries:
    """The other conversations of every user that stay in memory; for threads and tasks."""

    def __init__(
        self,
        on_news: Callable[[stores.Scope], object] | None = None,
        *,
        most_in_memory: int = MOST_IN_MEMORY,
    ) -> None:
        """Sets up without conversations.

        Args:
            on_news: Hears of conversations with something new to store in segments.
            most_in_memory: The most memory that they take, in messages of a long conversation.
        """
        self._mutex = new_mutex()
        self._most_in_memory = most_in_memory
        self._of: dict[str, OtherConversations] = {}
        """By user; the one who was served last comes last."""
        self._on_news = on_news

    def of(self, user_id: str) -> OtherConversations:
        """Returns those of a user; those of others are let go of where there is no room for all."""
        with self._mutex:
            library = self._of.pop(user_id, None) or OtherConversations(self._on_news)
            total = library.room + sum(other.room for other in self._of.values())
            for other in [*self._of]:
                if total <= self._most_in_memory:
                    break
                total -= self._of.pop(other).room
            self._of[user_id] = library
            return library

    def forget(self, scope: stores.Scope) -> Flow[None]:
        """Lets go of a conversation."""
        library = self._known(scope.user_id)
        if library is not None:
            yield from library.forget(scope)

    def seal(
        self, store: BaseStore, scope: stores.Scope, opened: OpenConversation | None
    ) -> Flow[bool]:
        """Stores what is known of a conversation in segments, as `OtherConversations.seal` says."""
        library = self._known(scope.user_id)
        return library is not None and (yield from library.seal(store, scope, opened))

    def erase(self, user_id: str) -> Flow[None]:
        """Lets go of a user's conversations, once nothing of them is being written any more."""
        with self._mutex:
            library = self._of.pop(user_id, None)
        if library is not None:
            yield from library.forget_all()

    def _known(self, user_id: str) -> OtherConversations | None:
        with self._mutex:
            return self._of.get(user_id)
