"""The places of a user's knowledge in a store, and the operations that read and write each kind of record.

Below `(ROOT, user, "knowledge")` every kind has a namespace with one item per record. The namespace itself holds a mark
that every change renews. Progress and snapshots stand with their conversation. Nothing here gets into a vector index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from langgraph.store.base import BaseStore, GetOp, Item, PutOp

from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.knowledge.records import (
    ClientPresence,
    ContextBundle,
    EntityProfile,
    Fact,
    PhraseRecord,
    TopicConversation,
    TopicProfile,
)
from langchain_ctxbudget.stores import bulk
from langchain_ctxbudget.stores.records import ROOT, Record, Scope, label, require_id

KNOWLEDGE, LEARNING, SNAPSHOT = "knowledge", "learning", "snapshot"
R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True)
class Repository(Generic[R]):
    """All records of one kind.

    Raises:
        MissingScopeError: no user.
        StoreDataError: a record cannot be read; the message names it.
    """

    kind: str
    record: type[R]
    key: Callable[[R], str]
    """Returns the name of a record, unique for the user."""

    def place(self, user_id: str, name: str) -> GetOp:
        """Returns the place of a record."""
        return GetOp((*_of_user(user_id), self.kind), label(name))

    def all(self, store: BaseStore, user_id: str) -> Flow[list[R]]:
        """Reads every record of a user, sorted by key."""
        items = yield from bulk.read_all(store, (*_of_user(user_id), self.kind))
        records = (found(self.record, item) for item in items)
        return sorted((record for record in records if record is not None), key=self.key)

    def put(self, user_id: str, record: R) -> PutOp:
        """Writes a record in place of the one with its key."""
        return written(self.place(user_id, self.key(record)), record)

    def delete(self, user_id: str, name: str) -> PutOp:
        """Deletes a record."""
        return written(self.place(user_id, name), None)

    def changes(self, user_id: str, before: Iterable[R], after: Iterable[R]) -> list[PutOp]:
        """Returns the writes that turn some records into others, deletions first."""
        was, becomes = list(before), list(after)
        same = {id(one) for one in was} & {id(one) for one in becomes}
        old, new = ({self.key(one): one for one in all_ if id(one) not in same} for all_ in (was, becomes))
        changed = (self.put(user_id, one) for key, one in new.items() if old.get(key) != one)
        return [*(self.delete(user_id, key) for key in old if key not in new), *changed]


FACTS = Repository("facts", Fact, lambda fact: fact.id)
"""Current facts."""
ENDED = Repository("ended", Fact, lambda fact: fact.id)
"""Facts that were superseded, expired or evicted."""
TOPICS = Repository("topics", TopicProfile, lambda topic: topic.id)
ENTITIES = Repository("entities", EntityProfile, lambda entity: entity.id)
LINKS = Repository("links", TopicConversation, lambda link: f"{label(link.topic_id)}{label(link.conversation_id)}")
BUNDLES = Repository("bundles", ContextBundle, lambda bundle: bundle.id)
PRESENCE = Repository("presence", ClientPresence, lambda presence: presence.device_id)
PHRASES = Repository("phrases", PhraseRecord, lambda phrase: phrase.phrase)


def mark_place(user_id: str) -> GetOp:
    """Returns the place of the mark of a user's knowledge."""
    return GetOp(_of_user(user_id), "mark")


def progress_place(scope: Scope) -> GetOp:
    """Returns the place of a conversation's progress in learning."""
    return GetOp(scope.namespace(LEARNING), "progress")


def snapshot_place(scope: Scope) -> GetOp:
    """Returns the place of a conversation's snapshot of the facts."""
    return GetOp(scope.namespace(SNAPSHOT), SNAPSHOT)


def written(place: GetOp, record: Record | None) -> PutOp:
    """Returns the write of a record at a place; None removes what is there."""
    return PutOp(place.namespace, place.key, None if record is None else record.to_value(), index=False)


def found(record: type[R], item: object) -> R | None:
    """Returns the record that a `GetOp` has found; None where it has found none."""
    if not isinstance(item, Item):
        return None
    return record.read(item.value, f"{item.key!r} in {'/'.join(item.namespace)}")


def _of_user(user_id: str) -> tuple[str, ...]:
    return (ROOT, label(require_id("user_id", user_id)), KNOWLEDGE)
