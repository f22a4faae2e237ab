"""The knowledge of a user: one frozen value, read once, kept in this process until its mark changes, and written.

The value is never changed, only replaced: a prompt that is being made goes on with what it began with.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from heapq import nlargest
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
from langgraph.store.base import BaseStore, PutOp

from langchain_ctxbudget.background import cached_property, in_child, new_mutex
from langchain_ctxbudget.errors import StoreError
from langchain_ctxbudget.flow import Flow, Lock, batch
from langchain_ctxbudget.knowledge import records
from langchain_ctxbudget.knowledge.detection import Detector, Named
from langchain_ctxbudget.knowledge.profiles import importance_at
from langchain_ctxbudget.knowledge.records import (
    BY_USER,
    ContextBundle,
    EntityProfile,
    Fact,
    KnowledgeMark,
    PhraseRecord,
    Profile,
    TopicConversation,
    TopicProfile,
)
from langchain_ctxbudget.messages import remembering
from langchain_ctxbudget.stores import bulk, new_token, utc

KEPT_USERS = 64
"""Users of a store whose knowledge stays in memory; the one not asked for longest goes first."""
MOST_ENDED = 500
"""Ended facts that are kept; of more, those that ended last."""


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """Everything known about one user."""

    mark: KnowledgeMark = field(default_factory=lambda: KnowledgeMark(mark=""))
    """The token of the version that was read; empty where nothing is stored."""
    facts: tuple[Fact, ...] = ()
    """Current facts."""
    ended: tuple[Fact, ...] = ()
    """Facts that no longer count."""
    topics: tuple[TopicProfile, ...] = ()
    entities: tuple[EntityProfile, ...] = ()
    bundles: Mapping[str, ContextBundle] = field(default_factory=dict)
    """By id."""
    is_read: bool = True
    """False: reading failed, so nothing follows from an item that is missing."""
    is_whole: bool = False
    """The two fields below were read as well; prompts do without them."""
    links: Mapping[tuple[str, str], TopicConversation] = field(default_factory=dict)
    """By topic or entity, and conversation."""
    phrases: tuple[PhraseRecord, ...] = ()
    """Candidates for topics."""

    @cached_property
    def topic_detector(self) -> Detector:
        """Finds topics in a message."""
        return _detector(self.topics)

    @cached_property
    def entity_detector(self) -> Detector:
        """Finds entities in a message."""
        return _detector(self.entities)

    @cached_property
    def by_id(self) -> dict[str, Fact | Profile]:
        """Current facts, topics and entities by id."""
        return {item.id: item for item in (*self.facts, *self.profiles)}

    @cached_property
    def vectors_made_by(self) -> tuple[str | None, int] | None:
        """The model and dimensions of the vectors that a message can be compared with; None without any."""
        return _most_common(self.topics)

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """Topics, then entities."""
        return (*self.topics, *self.entities)

    @property
    def is_empty(self) -> bool:
        """Tells that nothing at all is known."""
        return not (self.facts or self.profiles or self.bundles or self.ended or self.links or self.phrases)

    @cached_property
    def by_hand(self) -> Knowledge:
        """The facts that the user or the application said by hand, and nothing that was learned."""
        facts = tuple(fact for fact in self.facts if fact.made_by == BY_USER)
        return replace(self, facts=facts, topics=(), entities=(), bundles={})

    def with_facts(self, every: Iterable[Fact]) -> Knowledge:
        """Returns the same with these facts, current ones and others."""
        given = list(every)
        current, ended = (tuple(fact for fact in given if fact.is_current is which) for which in (True, False))
        return replace(self, facts=current, ended=ended)


NOTHING = Knowledge()


# Detectors


def _detector(profiles: Sequence[Profile]) -> Detector:
    """Makes a detector by names, terms and vectors; of two found as surely, the more important one comes first."""
    times = (utc(one.last_engaged_at) for one in profiles if one.last_engaged_at)
    newest = max(times, default=datetime.max.replace(tzinfo=UTC))
    made_by = _most_common(profiles)
    none = (0.0,) * (made_by[1] if made_by else 0)
    rows = [one.embedding if (one.embedding_model, len(one.embedding)) == made_by else none for one in profiles]
    named = [
        replace(thing, importance=importance_at(one, newest))
        for thing, one in zip(things(profiles), profiles, strict=True)
    ]
    return Detector(named, np.asarray(rows, np.float32) if made_by else None)


def by_names(profiles: Iterable[Profile]) -> Detector:
    """Makes a detector by names alone; while all names stay, it is the one that was made before."""
    return _by_names(tuple(things(profiles)))


@remembering(4)
def _by_names(named: tuple[Named, ...]) -> Detector:
    return Detector(named)


def things(profiles: Iterable[Profile]) -> list[Named]:
    """Returns profiles in the form that a detector takes; a first name names the only person who has it."""
    every = list(profiles)
    people = (one.name.split(" ", 1) for one in every if isinstance(one, EntityProfile) and one.type == "person")
    first_names = Counter(name[0] for name in people if len(name) > 1 and name[0].isalpha())

    def named(profile: Profile) -> tuple[str, ...]:
        first, _, rest = profile.names[0].partition(" ")
        is_person = isinstance(profile, EntityProfile) and profile.type == "person"
        return (*profile.names, first) if is_person and rest and first_names[first] == 1 else profile.names

    return [Named(id=one.id, names=named(one)) for one in every]


def _most_common(profiles: Sequence[Profile]) -> tuple[str | None, int] | None:
    """Returns the model of most vectors, and their dimensions."""
    models = Counter((profile.embedding_model, len(profile.embedding)) for profile in profiles if profile.embedding)
    return max(models, key=lambda one: (models[one], str(one))) if models else None


# Kept in this process


@dataclass(slots=True)
class _Kept:
    """The knowledge of one user, and the uses of bundles by id since they were written last."""

    knowledge: Knowledge | None = None
    hits: Counter[str] = field(default_factory=Counter)
    misses: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class _Users:
    """The users of one store."""

    kept: OrderedDict[str, _Kept] = field(default_factory=OrderedDict)
    epochs: Counter[str] = field(default_factory=Counter)
    """Erasures by user: work that was begun before must not be written."""
    locks: WeakValueDictionary[str, Lock] = field(default_factory=WeakValueDictionary)


_stores: WeakKeyDictionary[BaseStore, _Users] = WeakKeyDictionary()
_mutex = new_mutex()
in_child(_stores.clear)


@contextmanager
def _users(store: BaseStore) -> Iterator[_Users]:
    with _mutex:
        yield _stores.setdefault(store, _Users())


def _of(store: BaseStore, user_id: str) -> _Kept:
    with _users(store) as users:
        kept = users.kept.setdefault(user_id, _Kept())
        users.kept.move_to_end(user_id)
        if len(users.kept) > KEPT_USERS:
            users.kept.popitem(last=False)
        return kept


def lock_of(store: BaseStore, user_id: str) -> Lock:
    """Returns the lock to hold while a user's knowledge is changed, shared by every pipeline of this process."""
    with _users(store) as users:
        return users.locks.setdefault(user_id, Lock())


def epoch_of(store: BaseStore, user_id: str) -> int:
    """Returns a number that every erasure of something of the user renews."""
    with _users(store) as users:
        return users.epochs[user_id]


def interrupted(store: BaseStore, user_id: str, *, erased: bool = False) -> None:
    """Notes that messages of a user, or with `erased` all of them, are deleted: work under way is not written."""
    with _users(store) as users:
        users.epochs[user_id] += 1
        if erased:
            users.kept.pop(user_id, None)


def note_use(store: BaseStore, user_id: str, hits: Iterable[str], misses: Iterable[str]) -> None:
    """Counts the bundles that a prompt could use as they are, and those it could not; written with the next change."""
    kept = _of(store, user_id)
    kept.hits.update(hits)
    kept.misses.update(misses)


def take_use(store: BaseStore, user_id: str) -> tuple[Counter[str], Counter[str]]:
    """Returns the hits and misses that were not written yet, and forgets them."""
    kept = _of(store, user_id)
    taken = kept.hits, kept.misses
    kept.hits, kept.misses = Counter(), Counter()
    return taken


def last_known(store: BaseStore, user_id: str) -> Knowledge:
    """Returns what was read last, for when reading fails."""
    return _of(store, user_id).knowledge or Knowledge(is_read=False)


# Read and written


def read(store: BaseStore, user_id: str, found: object = None, *, marked: bool = False) -> Flow[Knowledge]:
    """Reads what a prompt needs to know about a user, where the mark, which may be `found` already, has changed."""
    if not marked:
        [found] = yield from batch(store, [records.mark_place(user_id)])
    mark, kept = records.found(KnowledgeMark, found), _of(store, user_id)
    if mark is None:
        kept.knowledge = None
        return NOTHING
    if kept.knowledge is not None and kept.knowledge.mark == mark:
        return kept.knowledge
    known = Knowledge(
        mark=mark,  # read before what it marks, so never newer
        topics=tuple((yield from records.TOPICS.all(store, user_id))),
        entities=tuple((yield from records.ENTITIES.all(store, user_id))),
        bundles={bundle.id: bundle for bundle in (yield from records.BUNDLES.all(store, user_id))},
    ).with_facts((yield from records.FACTS.all(store, user_id)))
    _of(store, user_id).knowledge = known
    return known


def read_all(store: BaseStore, user_id: str) -> Flow[Knowledge]:
    """Reads everything that is known about a user, where the mark has changed."""
    known = yield from read(store, user_id)
    if known is NOTHING or known.is_whole:
        return known
    links = yield from records.LINKS.all(store, user_id)
    phrases = yield from records.PHRASES.all(store, user_id)
    linked = {(link.topic_id, link.conversation_id): link for link in links}
    whole = replace(known, is_whole=True, links=linked, phrases=_newest_last(phrases))
    _of(store, user_id).knowledge = whole
    return whole


def _newest_last(phrases: Iterable[PhraseRecord]) -> tuple[PhraseRecord, ...]:
    return tuple(sorted(phrases, key=lambda one: (one.last_at is not None and one.last_at.timestamp(), one.phrase)))


def save(store: BaseStore, user_id: str, before: Knowledge, after: Knowledge, *, edited: bool = False) -> Flow[None]:
    """Writes what has changed, and then the mark; nothing where nothing has.

    The order makes a kill in between harmless, as learning again has the same effect: bundles are there before what
    they show is clean, a fact ends before another one takes its place, phrases are counted last. With `edited`, it was
    changed by hand, and every conversation renews its snapshot.

    Raises:
        StoreError: another process has erased the user since `before` was read; what was written is deleted again.
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
    for device in (yield from records.PRESENCE.all(store, user_id)) if gone else ():
        if not gone.isdisjoint((*device.predicted_topics, *device.predicted_entities)):
            none = {"predicted_topics": (), "predicted_entities": ()}  # until the next heartbeat
            puts.append(records.PRESENCE.put(user_id, device.model_copy(update=none)))
    mark = KnowledgeMark(mark=new_token(), edited=new_token() if edited else before.mark.edited)
    kept_mark = None if after.is_empty and not edited else mark
    try:
        is_alone = yield from _write(store, user_id, puts, before.mark, kept_mark)
    except BaseException:
        _of(store, user_id).knowledge = None  # some of it may be written
        raise
    saved = replace(after, mark=mark, is_whole=True, ended=ended, phrases=_newest_last(after.phrases))
    saved.topic_detector.detect("")  # built here, so that no prompt has to wait for it
    saved.entity_detector.detect("")
    _of(store, user_id).knowledge = saved if is_alone else None


def _write(
    store: BaseStore, user_id: str, puts: Sequence[PutOp], old: KnowledgeMark, new: KnowledgeMark | None
) -> Flow[bool]:
    """Writes the changes and the new mark; tells that nobody else has written meanwhile."""
    begun = old if old.mark else KnowledgeMark(mark="begun")
    # Without a mark nobody would look for what is written.
    is_alone = begun is old or (yield from _marked(store, user_id, begun)) == old
    yield from bulk.write(store, puts)
    found = yield from _marked(store, user_id, new)
    place = records.mark_place(user_id)
    if not found.mark:
        yield from bulk.write(store, [*(put._replace(value=None) for put in puts), records.written(place, None)])
        raise StoreError("All that was known of the user was erased elsewhere at the same moment: nothing is kept")
    if is_alone and found == begun:
        return True
    # Both have written, and the other one perhaps by hand.
    yield from bulk.write(store, [records.written(place, KnowledgeMark(mark=new_token(), edited=new_token()))])
    return False


def _marked(store: BaseStore, user_id: str, mark: KnowledgeMark | None) -> Flow[KnowledgeMark]:
    """Renews or removes the mark; returns the one before, which tells who else has written."""
    place = records.mark_place(user_id)
    found, _ = yield from batch(store, [place, records.written(place, mark)])
    return records.found(KnowledgeMark, found) or KnowledgeMark(mark="")
