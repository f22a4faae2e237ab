"""The knowledge of a user: one frozen value, read once, kept in this process until its mark changes, and written.

The value is never changed, only replaced: a prompt that is being made goes on with what it began with.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import nlargest
from weakref import WeakKeyDictionary

import numpy as np
from langgraph.store.base import BaseStore

from langchain_ctxbudget.background import new_mutex
from langchain_ctxbudget.errors import StoreError
from langchain_ctxbudget.flow import Flow, Lock, batch
from langchain_ctxbudget.knowledge import records
from langchain_ctxbudget.knowledge.detection import Detector, Named
from langchain_ctxbudget.knowledge.profiles import importance_at
from langchain_ctxbudget.knowledge.records import EntityProfile, Fact, PhraseRecord, Profile, TopicProfile
from langchain_ctxbudget.stores import bulk, new_token, utc

KEPT_USERS = 64
"""Users of a store whose knowledge stays in memory; the one not asked for longest goes first."""
ERASED = "All that was known of the user was erased elsewhere at the same moment: nothing is kept"
MOST_ENDED = 500
"""Ended facts that are kept; of more, those that ended last."""


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """Everything known about one user."""

    mark: records.KnowledgeMark = field(default_factory=lambda: records.KnowledgeMark(mark=""))
    """The token of the version that was read; empty where nothing is stored."""
    facts: tuple[Fact, ...] = ()
    ended: tuple[Fact, ...] = ()
    topics: tuple[TopicProfile, ...] = ()
    entities: tuple[EntityProfile, ...] = ()
    bundles: Mapping[str, records.ContextBundle] = field(default_factory=dict)
    is_read: bool = True
    """False: reading failed, so nothing follows from an item that is missing."""
    links: Mapping[tuple[str, str], records.TopicConversation] = field(default_factory=dict)
    phrases: tuple[PhraseRecord, ...] = ()

    @cached_property
    def topic_detector(self) -> Detector:
        """Finds topics in a message."""
        return _detector(self.topics, self.vectors_made_by)

    @cached_property
    def entity_detector(self) -> Detector:
        """Finds entities in a message."""
        return _detector(self.entities)

    @cached_property
    def by_id(self) -> dict[str, Fact | Profile]:
        """Current facts, topics and entities by id."""
        return {item.id: item for item in (*self.facts, *self.profiles)}

    @cached_property
    def names_by_id(self) -> dict[str, tuple[str, ...]]:
        """The names of topics and entities by id."""
        return {profile.id: profile.names for profile in self.profiles}

    @cached_property
    def vectors_made_by(self) -> tuple[str, int] | None:
        """The model and dimensions of the vectors that a message can be compared with; None without any."""
        made = Counter((one.embedding_model or "", len(one.embedding)) for one in self.topics if one.embedding)
        return max(made, key=lambda one: (made[one], one), default=None)

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """Topics, then entities."""
        return (*self.topics, *self.entities)

    @cached_property
    def by_hand(self) -> Knowledge:
        """The facts that the user or the application said by hand, and nothing that was learned."""
        facts = tuple(fact for fact in self.facts if fact.made_by == records.BY_USER)
        return replace(self, facts=facts, topics=(), entities=(), bundles={})

    def with_facts(self, every: Iterable[Fact]) -> Knowledge:
        """Returns the same with these facts, current ones and others."""
        given = list(every)
        current, ended = (tuple(fact for fact in given if fact.is_current is which) for which in (True, False))
        return replace(self, facts=current, ended=ended)


NOTHING = Knowledge()


# Detectors


def _detector(profiles: Sequence[Profile], made_by: tuple[str, int] | None = None) -> Detector:
    """Makes a detector by names, terms and vectors; of two found as surely, the more important one comes first."""
    newest = max((utc(one.last_engaged_at) for one in profiles if one.last_engaged_at), default=None)
    none = (0.0,) * (made_by[1] if made_by else 0)
    rows = [one.embedding if (one.embedding_model, len(one.embedding)) == made_by else none for one in profiles]
    named = [Named(one.id, one.names, importance_at(one, newest) if newest else 0.0) for one in profiles]
    return Detector(named, np.asarray(rows, np.float32) if made_by else None)


def by_names(profiles: Iterable[Profile]) -> Detector:
    """Makes a detector by names alone."""
    return Detector([Named(one.id, one.names) for one in profiles])


# Kept in this process


@dataclass(slots=True, eq=False)
class Kept:
    """The knowledge of one user in this process; an erasure of something of the user makes another one."""

    knowledge: Knowledge | None = None
    uses: Counter[tuple[str, bool]] = field(default_factory=Counter)
    """How often which bundle was a hit (True) or a miss since that was written last."""


_stores: WeakKeyDictionary[BaseStore, OrderedDict[str, Kept]] = WeakKeyDictionary()
_mutex = new_mutex()
_locks = [Lock() for _ in range(256)]


def kept_of(store: BaseStore, user_id: str) -> Kept:
    """Returns what is kept of a user: work that was begun with another one must not be written."""
    with _mutex:
        users = _stores.setdefault(store, OrderedDict())
        kept = users.setdefault(user_id, Kept())
        users.move_to_end(user_id)
        if len(users) > KEPT_USERS:
            users.popitem(last=False)
        return kept


def lock_of(store: BaseStore, user_id: str) -> Lock:
    """Returns the lock to hold while a user's knowledge is changed, shared by every pipeline of this process."""
    return _locks[hash((id(store), user_id)) % len(_locks)]


def interrupted(store: BaseStore, user_id: str) -> None:
    """Notes that something of a user is erased: work under way is not written, and what is known is read anew."""
    with _mutex:
        _stores.get(store, OrderedDict[str, Kept]()).pop(user_id, None)


def note_use(store: BaseStore, user_id: str, hits: Iterable[str], misses: Iterable[str]) -> None:
    """Counts the bundles that a prompt could use as they are, and those it could not; written with the next change."""
    kept_of(store, user_id).uses.update([*((name, True) for name in hits), *((name, False) for name in misses)])


def last_known(store: BaseStore, user_id: str) -> Knowledge:
    """Returns what was read last, for when reading fails."""
    return kept_of(store, user_id).knowledge or Knowledge(is_read=False)


# Read and written


def read(store: BaseStore, user_id: str, found: object = None, *, marked: bool = False) -> Flow[Knowledge]:
    """Reads what is known about a user, where the mark, which may be `found` already, has changed."""
    if not marked:
        [found] = yield from batch(store, [records.mark_place(user_id)])
    mark, kept = records.found(records.KnowledgeMark, found), kept_of(store, user_id)
    if mark is None:
        kept.knowledge = None
        return NOTHING
    if kept.knowledge is not None and kept.knowledge.mark == mark:
        return kept.knowledge
    links = yield from records.LINKS.all(store, user_id)
    known = Knowledge(
        mark=mark,  # read before what it marks, so never newer
        topics=tuple((yield from records.TOPICS.all(store, user_id))),
        entities=tuple((yield from records.ENTITIES.all(store, user_id))),
        bundles={bundle.id: bundle for bundle in (yield from records.BUNDLES.all(store, user_id))},
        links={(link.topic_id, link.conversation_id): link for link in links},
        phrases=tuple((yield from records.PHRASES.all(store, user_id))),
    ).with_facts((yield from records.FACTS.all(store, user_id)))
    kept_of(store, user_id).knowledge = known
    return known


def save(store: BaseStore, user_id: str, before: Knowledge, after: Knowledge, *, edited: bool = False) -> Flow[None]:
    """Writes what has changed, and then the mark; nothing where nothing has.

    The order makes a kill in between harmless, as learning again has the same effect: bundles are there before what
    they show is clean, a fact ends before another one takes its place, phrases are counted last. With `edited`, it was
    changed by hand, and every conversation renews its snapshot. Whatever another process has written meanwhile stays,
    and is read before anything is shown again.

    Raises:
        StoreError: another process has erased the user since `before` was read; nothing is kept.
    """
    ended = tuple(nlargest(MOST_ENDED, after.ended, key=lambda fact: (fact.ended_at or fact.last_seen, fact.id)))
    puts = [
        *records.BUNDLES.changes(user_id, before.bundles.values(), after.bundles.values()),
        *records.TOPICS.changes(user_id, before.topics, after.topics),
        *records.ENTITIES.changes(user_id, before.entities, after.entities),
        *records.LINKS.changes(user_id, before.links.values(), after.links.values()),
        *records.FACTS.changes(user_id, (*before.ended, *before.facts), (*ended, *after.facts)),
        *records.PHRASES.changes(user_id, before.phrases, after.phrases),
    ]
    if not puts:
        return
    gone = {profile.id for profile in before.profiles} - {profile.id for profile in after.profiles}
    devices = (yield from records.PRESENCE.all(store, user_id)) if gone else []
    none = {"predicted_topics": (), "predicted_entities": ()}  # until the next heartbeat
    puts += records.PRESENCE.changes(user_id, devices, [device.model_copy(update=none) for device in devices])
    place, kept = records.mark_place(user_id), kept_of(store, user_id)
    [item] = yield from batch(store, [place])
    found = records.found(records.KnowledgeMark, item)
    if found is None and before.mark.mark:
        raise StoreError(ERASED)
    old = found or before.mark
    mark = records.KnowledgeMark(mark=new_token(), edited=new_token() if edited else old.edited)
    try:
        yield from bulk.write(store, puts)
        [last, _] = yield from batch(store, [place, records.written(place, mark)])
        if found and last is None:
            yield from bulk.write(store, [put._replace(value=None) for put in (*puts, records.written(place, None))])
            raise StoreError(ERASED)  # noqa: TRY301 - nothing is known any more
    except BaseException:
        kept.knowledge = None  # some of it may be written
        raise
    saved = replace(after, mark=mark, ended=ended)
    _ = saved.topic_detector, saved.entity_detector  # built here, so that no prompt has to wait for them
    is_alone = old == before.mark and records.found(records.KnowledgeMark, last) == found
    kept.knowledge = saved if is_alone else None
