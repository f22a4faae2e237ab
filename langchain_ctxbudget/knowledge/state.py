"""All that is kept of a user's knowledge, read and written as a whole: what has changed, and last that it has."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from uuid import uuid4

from langgraph.store.base import BaseStore, PutOp

from langchain_ctxbudget.errors import StoreError
from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.knowledge import known
from langchain_ctxbudget.knowledge import repositories as repos
from langchain_ctxbudget.knowledge.known import Counts, Knowledge, Profile
from langchain_ctxbudget.knowledge.records import (
    ContextBundle,
    EntityProfile,
    Fact,
    KnowledgeMark,
    PhraseRecord,
    TopicConversation,
    TopicProfile,
)
from langchain_ctxbudget.stores import bulk

_BEGUN = KnowledgeMark(mark="begun")


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All that is kept of a user's knowledge."""

    facts: tuple[Fact, ...] = ()
    """The current ones."""
    ended: tuple[Fact, ...] = ()
    """Those that are no longer."""
    topics: tuple[TopicProfile, ...] = ()
    entities: tuple[EntityProfile, ...] = ()
    links: Mapping[tuple[str, str], TopicConversation] = field(default_factory=dict)
    """By topic or entity, and conversation."""
    phrases: tuple[PhraseRecord, ...] = ()
    bundles: Mapping[str, ContextBundle] = field(default_factory=dict)

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """Topics, then entities."""
        return (*self.topics, *self.entities)


def read_state(store: BaseStore, user_id: str) -> Flow[tuple[State, KnowledgeMark]]:
    """All that is kept of a user's knowledge, and its mark."""
    knowledge = yield from known.read(store, user_id)
    if knowledge is known.NOTHING:
        return State(), knowledge.mark
    counts = yield from known.read_counts(store, user_id, knowledge.mark)
    current = {fact.id for fact in knowledge.facts}
    state = State(
        facts=knowledge.facts,
        # What is among both is current: whoever ended it did not come to the end of it.
        ended=tuple(fact for fact in counts.ended if fact.id not in current),
        topics=knowledge.topics,
        entities=knowledge.entities,
        links=counts.links,
        phrases=counts.phrases,
        bundles=knowledge.bundles,
    )
    return state, knowledge.mark


def save(
    store: BaseStore, user_id: str, before: State, after: State, mark: KnowledgeMark, *, edited: bool = False
) -> Flow[None]:
    """Write what has changed, and then the mark; nothing where nothing has.

    Whoever is killed in between leaves something that can be learned again to the same effect: bundles are there before
    what they show is no longer dirty, a fact is noted as ended before it is taken from the current ones, and that is
    done before what stands in its place is there; phrases are counted last.

    Args:
        store: where.
        user_id: whose.
        before: as it was read.
        after: as it is to be.
        mark: of `before`.
        edited: whether it was changed by hand.

    Raises:
        StoreError: another process has erased the user since `before` was read; what was written is deleted again.
    """
    ended = nlargest(repos.MOST_ENDED, after.ended, key=lambda fact: (fact.ended_at or fact.last_seen, fact.id))
    old = {fact.id: fact for fact in before.ended}
    ending = yield from repos.ending(store, user_id, [fact for fact in ended if old.get(fact.id) != fact])
    puts = [
        *repos.BUNDLES.changes(user_id, before.bundles.values(), after.bundles.values()),
        *repos.TOPICS.changes(user_id, before.topics, after.topics),
        *repos.ENTITIES.changes(user_id, before.entities, after.entities),
        *repos.LINKS.changes(user_id, before.links.values(), after.links.values()),
        *ending,
        *repos.FACTS.changes(user_id, before.facts, after.facts),
        *(repos.ENDED.delete(user_id, key) for key in old.keys() - {fact.id for fact in ended}),
        *repos.PHRASES.changes(user_id, before.phrases, after.phrases),
    ]
    if not puts:
        return
    gone = {profile.id for profile in before.profiles} - {profile.id for profile in after.profiles}
    puts += yield from _unpredicted(store, user_id, gone)
    renewed = KnowledgeMark(mark=uuid4().hex, edited=uuid4().hex if edited else mark.edited)
    knowledge = Knowledge(
        mark=renewed, facts=after.facts, topics=after.topics, entities=after.entities, bundles=after.bundles
    )
    try:
        is_alone = yield from _written(store, user_id, puts, mark, None if after == State() and not edited else renewed)
    except BaseException:  # some of it may be written: it is read again
        known.drop(store, user_id)
        raise
    if is_alone:
        known.keep(store, user_id, knowledge, Counts(after.links, after.phrases, tuple(ended)))
    else:
        known.drop(store, user_id)


def _written(
    store: BaseStore, user_id: str, puts: Sequence[PutOp], old: KnowledgeMark, new: KnowledgeMark | None
) -> Flow[bool]:
    """Write what has changed, and a new mark in the place of the old one; whether nobody else has written meanwhile.

    Raises:
        StoreError: another process has erased the user.
    """
    begun = old if old.mark else _BEGUN
    # Where there is no mark, nothing is looked for.
    is_alone = begun is old or (yield from _marked(store, user_id, begun)) == old
    yield from bulk.write(store, puts)
    found = yield from _marked(store, user_id, new)
    if not found.mark:
        yield from bulk.write(store, [*(put._replace(value=None) for put in puts), repos.mark_write(user_id, None)])
        raise StoreError("All that was known of the user was erased elsewhere at the same moment: nothing is kept")
    if is_alone and found == begun:
        return True
    # What is there now is of both, and the other one may have changed it by hand.
    both = KnowledgeMark(mark=uuid4().hex, edited=uuid4().hex)
    yield from bulk.write(store, [repos.mark_write(user_id, both)])
    return False


def _marked(store: BaseStore, user_id: str, mark: KnowledgeMark | None) -> Flow[KnowledgeMark]:
    """Renew the mark, or remove it; the one that stood there before, which tells who else has written."""
    found, _ = yield from batch(store, [repos.mark_read(user_id), repos.mark_write(user_id, mark)])
    return repos.found(KnowledgeMark, found) or KnowledgeMark(mark="")


def _unpredicted(store: BaseStore, user_id: str, gone: Collection[str]) -> Flow[list[PutOp]]:
    """The writes after which no device expects what is no longer known."""
    puts = []
    for device in (yield from repos.PRESENCE.all(store, user_id)) if gone else ():
        expected = device.model_copy(
            update={
                "predicted_topics": tuple(name for name in device.predicted_topics if name not in gone),
                "predicted_entities": tuple(name for name in device.predicted_entities if name not in gone),
            }
        )
        if expected != device:
            puts.append(repos.PRESENCE.put(user_id, expected))
    return puts
