"""What is known of a user, as it is kept: which record is where, and how it is read and written.

Below `(ROOT, user, "knowledge")` is a namespace for each kind, with one item per record; its key is the label of what
names the record. In the namespace itself is a mark that every change renews: whoever has seen it need not read again.
How far a conversation was learned from, and what it shows of the facts, is kept with the conversation.

Writes are operations, not flows: what belongs together, of several kinds, is written in one batch. None of it gets
into a store's vector index, where the user's messages are found by what they say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from langgraph.store.base import BaseStore, GetOp, Item, PutOp

from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.knowledge.records import (
    ClientPresence,
    ContextBundle,
    EntityProfile,
    Fact,
    KnowledgeMark,
    PhraseRecord,
    ProgressRecord,
    SnapshotRecord,
    TopicConversation,
    TopicProfile,
)
from langchain_ctxbudget.stores import bulk
from langchain_ctxbudget.stores.records import ROOT, Record, Scope, label, require_id

KNOWLEDGE, MARK = "knowledge", "mark"
PROGRESS, LEARNING = "progress", "learning"
SNAPSHOT = "snapshot"
MOST_ENDED = 500
"""Facts that are no longer current and are kept; of more, those that ended last."""

R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True)
class Repository(Generic[R]):
    """All records of one kind.

    Example:
        >>> from langgraph.store.memory import InMemoryStore
        >>> from langchain_ctxbudget.flow import batch, drive
        >>> store = InMemoryStore()
        >>> topic = TopicProfile(id="topic/cycling", slug="cycling", label="Cycling")
        >>> _ = drive(batch(store, [TOPICS.put("ada", topic)]))
        >>> [each.label for each in drive(TOPICS.all(store, "ada"))]
        ['Cycling']
    """

    kind: str
    record: type[R]
    key: Callable[[R], str]
    """What names a record; no two of a user have the same."""

    def place(self, user_id: str, name: str) -> GetOp:
        """Where a record is.

        Args:
            user_id: whose.
            name: what `key` gives for it.

        Raises:
            MissingScopeError: no user.
        """
        return GetOp(self._namespace(user_id), label(name))

    def get(self, store: BaseStore, user_id: str, name: str) -> Flow[R | None]:
        """Read a record; None where there is none.

        Raises:
            StoreDataError: there is something else.
        """
        [item] = yield from batch(store, [self.place(user_id, name)])
        return found(self.record, item)

    def all(self, store: BaseStore, user_id: str) -> Flow[list[R]]:
        """Read every record of a user, sorted by key.

        Raises:
            StoreDataError: one that cannot be read; the message names it.
        """
        items = yield from bulk.read_all(store, self._namespace(user_id))
        records = (found(self.record, item) for item in items)
        return sorted((record for record in records if record is not None), key=self.key)

    def put(self, user_id: str, record: R) -> PutOp:
        """The write of a record, in place of the one of the same key."""
        return _put(self.place(user_id, self.key(record)), record)

    def delete(self, user_id: str, name: str) -> PutOp:
        """The deletion of a record; nothing where there is none."""
        return _put(self.place(user_id, name), None)

    def changes(self, user_id: str, before: Iterable[R], after: Iterable[R]) -> list[PutOp]:
        """The writes that make some records others; what is the same object in both is not even compared."""
        was, becomes = list(before), list(after)
        same = {id(one) for one in was} & {id(one) for one in becomes}
        old, new = ({self.key(one): one for one in all_ if id(one) not in same} for all_ in (was, becomes))
        written = [self.put(user_id, one) for key, one in new.items() if old.get(key) != one]
        return [*written, *(self.delete(user_id, key) for key in old if key not in new)]

    def _namespace(self, user_id: str) -> tuple[str, ...]:
        return (*_of_user(user_id), self.kind)


def link_key(topic_id: str, conversation_id: str) -> str:
    """What names the link of a topic or entity to a conversation."""
    return f"{label(topic_id)}{label(conversation_id)}"  # a label ends with the only `~` that it has


FACTS = Repository("facts", Fact, lambda fact: fact.id)
"""Those that are current."""
ENDED = Repository("ended", Fact, lambda fact: fact.id)
"""Those that are not."""
TOPICS = Repository("topics", TopicProfile, lambda topic: topic.id)
ENTITIES = Repository("entities", EntityProfile, lambda entity: entity.id)
LINKS = Repository("links", TopicConversation, lambda link: link_key(link.topic_id, link.conversation_id))
"""Of topics and of entities."""
BUNDLES = Repository("bundles", ContextBundle, lambda bundle: bundle.id)
PRESENCE = Repository("presence", ClientPresence, lambda presence: presence.device_id)
PHRASES = Repository("phrases", PhraseRecord, lambda phrase: phrase.phrase)


def ending(store: BaseStore, user_id: str, facts: Collection[Fact]) -> Flow[list[PutOp]]:
    """The writes that move facts which have ended out of the current ones.

    They also delete what `MOST_ENDED` leaves no room for.
    """
    if not facts:
        return []
    ended = {fact.id: fact for fact in [*(yield from ENDED.all(store, user_id)), *facts]}
    newest_first = sorted(ended.values(), key=lambda fact: (fact.ended_at or fact.last_seen, fact.id), reverse=True)
    kept = {fact.id for fact in newest_first[:MOST_ENDED]}
    return [
        *(ENDED.put(user_id, fact) for fact in facts if fact.id in kept),
        *(ENDED.delete(user_id, fact.id) for fact in newest_first[MOST_ENDED:]),
        *(FACTS.delete(user_id, fact.id) for fact in facts),
    ]


def mark_read(user_id: str) -> GetOp:
    """Where the mark of what is known of a user is."""
    return GetOp(_of_user(user_id), MARK)


def mark_write(user_id: str, mark: KnowledgeMark | None) -> PutOp:
    """Renews the mark; None removes it."""
    return _put(mark_read(user_id), mark)


def progress_read(scope: Scope) -> GetOp:
    """Where it says how far a conversation was learned from."""
    return GetOp(scope.namespace(LEARNING), PROGRESS)


def progress_write(scope: Scope, progress: ProgressRecord | None) -> PutOp:
    """Says how far a conversation was learned from; None: not at all."""
    return _put(progress_read(scope), progress)


def snapshot_read(scope: Scope) -> GetOp:
    """Where it is kept what a conversation shows of the facts."""
    return GetOp(scope.namespace(SNAPSHOT), SNAPSHOT)


def snapshot_write(scope: Scope, snapshot: SnapshotRecord | None) -> PutOp:
    """Keeps what a conversation shows of the facts; None removes it."""
    return _put(snapshot_read(scope), snapshot)


def found(record: type[R], item: object) -> R | None:
    """The record that a `GetOp` has found; None where it has found none.

    Raises:
        StoreDataError: it has found something else.
    """
    if not isinstance(item, Item):
        return None
    return record.read(item.value, f"{item.key!r} in {'/'.join(item.namespace)}")


def _of_user(user_id: str) -> tuple[str, ...]:
    return (ROOT, label(require_id("user_id", user_id)), KNOWLEDGE)


def _put(at: GetOp, record: Record | None) -> PutOp:
    return PutOp(at.namespace, at.key, None if record is None else record.to_value(), index=False)
