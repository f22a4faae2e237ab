"""The knowledge of a user as one frozen value: read once, kept until its mark changes, and written.

The value is never changed, only replaced: a prompt that is being made goes on with what it began
with.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from heapq import nlargest
from weakref import WeakKeyDictionary, WeakValueDictionary

from cachetools import LRUCache
from langgraph.store.base import BaseStore, PutOp

from langchain_ctxbudget.errors import StoreError
from langchain_ctxbudget.flow import Flow, Lock, batch
from langchain_ctxbudget.knowledge import records
from langchain_ctxbudget.knowledge.bundles import CATEGORY_OF_BUNDLE, Compiler
from langchain_ctxbudget.knowledge.detection import (
    Detector,
    VectorKind,
    detector_of,
    vector_kind_of,
)
from langchain_ctxbudget.knowledge.records import (
    EntityProfile,
    Fact,
    PhraseRecord,
    Profile,
    RuleRecord,
    TopicProfile,
)
from langchain_ctxbudget.stores import bulk, new_token, put_of
from langchain_ctxbudget.worker import new_mutex

KEPT_USERS = 64
"""Users of a store whose knowledge stays in memory; the one not asked for longest goes first."""
MOST_ITEMS = 1_000
"""Ended facts, topics and entities that are kept of a user, of each kind.

Of ended facts, those that ended last; of topics and entities, the most important ones."""
ERASED = "All that was known of the user was erased elsewhere at the same moment: nothing is kept"


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """Everything known about one user."""

    mark: records.KnowledgeMark = field(default_factory=lambda: records.KnowledgeMark(mark=""))
    """The token of the version that was read; empty where nothing is stored."""
    facts: tuple[Fact, ...] = ()
    ended_facts: tuple[Fact, ...] = ()
    rules: tuple[RuleRecord, ...] = ()
    """Standing rules that hold everywhere, or that were changed by hand."""
    topics: tuple[TopicProfile, ...] = ()
    entities: tuple[EntityProfile, ...] = ()
    bundles: Mapping[str, records.ContextBundle] = field(default_factory=dict)
    is_read: bool = True
    """False: reading failed, so nothing follows from an item that is missing."""
    links: Mapping[tuple[str, str], records.TopicConversation] = field(default_factory=dict)
    """By the id of the topic or entity and that of the conversation."""
    phrases: tuple[PhraseRecord, ...] = ()

    @cached_property
    def topic_detector(self) -> Detector:
        """Finds topics in a message."""
        return detector_of(self.topics, self.vectors_made_by)

    @cached_property
    def entity_detector(self) -> Detector:
        """Finds entities in a message."""
        return detector_of(self.entities, self.vectors_made_by)

    @cached_property
    def by_id(self) -> dict[str, Fact | Profile]:
        """Current facts, topics and entities by id."""
        return {item.id: item for item in (*self.facts, *self.profiles)}

    @cached_property
    def names_by_id(self) -> dict[str, tuple[str, ...]]:
        """The names of topics and entities by id."""
        return {profile.id: profile.names for profile in self.profiles}

    @cached_property
    def vectors_made_by(self) -> VectorKind | None:
        """The model and dimensions of the vectors that a message can be compared with.

        None where there are none.
        """
        for profile in self.profiles:
            if profile.embedding:
                return vector_kind_of(profile)
        return None

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """Topics, then entities."""
        return (*self.topics, *self.entities)

    @cached_property
    def by_hand(self) -> "Knowledge":
        """Only the items that the user or the application wrote by hand."""
        facts = tuple(fact for fact in self.facts if fact.made_by == records.BY_USER)
        topics = tuple(topic for topic in self.topics if _is_by_hand_alone(topic))
        entities = tuple(entity for entity in self.entities if _is_by_hand_alone(entity))
        # One that a message elsewhere has taken back must not come back.
        rules = tuple(rule for rule in self.rules if rule.is_by_hand_or_lifted)
        personas = [one for one in self.bundles.values() if one.bundle_type == "composite"]
        bundles = [*_compiled(topics, entities, facts), *personas]
        return replace(
            self,
            facts=facts,
            rules=rules,
            topics=topics,
            entities=entities,
            bundles={bundle.id: bundle for bundle in bundles},
        )

    def with_facts(self, facts: Iterable[Fact]) -> "Knowledge":
        """Returns the same with these facts, current ones and ended ones."""
        current: list[Fact] = []
        ended: list[Fact] = []
        for fact in facts:
            if fact.is_current:
                current.append(fact)
            else:
                ended.append(fact)
        return replace(self, facts=tuple(current), ended_facts=tuple(ended))


NOTHING = Knowledge()


def _is_by_hand_alone(profile: Profile) -> bool:
    return profile.made_by == records.BY_USER and not profile.sources


def _compiled(
    topics: Iterable[TopicProfile], entities: Iterable[EntityProfile], facts: Sequence[Fact]
) -> list[records.ContextBundle]:
    """Returns the texts of topics, entities and facts, as if compiled long ago."""
    compiler = Compiler(now=datetime.min.replace(tzinfo=UTC))
    return [
        *map(compiler.topic, topics),
        *map(compiler.entity, entities),
        *(compiler.of_facts(kind, facts) for kind in CATEGORY_OF_BUNDLE),
    ]


# Kept in this process


@dataclass(slots=True, eq=False)
class KeptKnowledge:
    """The knowledge of one user in this process.

    An erasure of something of the user makes another one.
    """

    knowledge: Knowledge | None = None
    uses: Counter[tuple[str, bool]] = field(default_factory=Counter)
    """How often which bundle was a hit (True) or a miss since that was written last."""


_stores: WeakKeyDictionary[BaseStore, LRUCache[str, KeptKnowledge]] = WeakKeyDictionary()
_mutex = new_mutex()
_locks: WeakValueDictionary[tuple[int, str], Lock] = WeakValueDictionary()


def kept_of(store: BaseStore, user_id: str) -> KeptKnowledge:
    """Returns the cache of a user.

    Work that was begun with an earlier cache must not be written.
    """
    with _mutex:
        users = _stores.get(store)
        if users is None:
            users = _stores[store] = LRUCache(KEPT_USERS)
        return users.setdefault(user_id, KeptKnowledge())


def lock_of(store: BaseStore, user_id: str) -> Lock:
    """Returns the lock to hold while a user's knowledge is changed.

    Every pipeline of this process has the same one.
    """
    with _mutex:  # it lives while somebody holds it or waits for it, and so does the store
        return _locks.setdefault((id(store), user_id), Lock())


def interrupted(store: BaseStore, user_id: str) -> None:
    """Drops a user's cache because data is erased.

    Work under way is not written, and knowledge is read anew.
    """
    with _mutex:
        users = _stores.get(store)
        if users is not None:
            users.pop(user_id, None)


def note_use(store: BaseStore, user_id: str, used: Mapping[str, bool]) -> None:
    """Counts the bundles that a prompt wanted, and whether it could use each as it is.

    The counts are written with the next change.
    """
    kept_of(store, user_id).uses.update(used.items())


def take_uses(store: BaseStore, user_id: str) -> Counter[tuple[str, bool]]:
    """Returns what `note_use` has counted of a user since this was asked last."""
    kept = kept_of(store, user_id)
    uses = kept.uses
    kept.uses = Counter()
    return uses


# Read and written


def read(
    store: BaseStore, user_id: str, found: object = None, *, marked: bool = False
) -> Flow[Knowledge]:
    """Reads the knowledge about a user, unless it is kept here and its mark has not changed.

    Args:
        store: The store.
        user_id: The user.
        found: The item of the mark, where the caller has read it.
        marked: Whether the caller has.
    """
    if not marked:
        [found] = yield from batch(store, [records.mark_place(user_id)])
    mark = records.KnowledgeMark.of_item(found)
    kept = kept_of(store, user_id)
    if mark is None:
        kept.knowledge = None
        return NOTHING
    if kept.knowledge is not None and kept.knowledge.mark == mark:
        return kept.knowledge

    # The mark was read before what it marks, so what is kept under it is never older.
    links = yield from records.LINKS.all(store, user_id)
    topics = yield from records.TOPICS.all(store, user_id)
    entities = yield from records.ENTITIES.all(store, user_id)
    bundles = yield from records.BUNDLES.all(store, user_id)
    phrases = yield from records.PHRASES.all(store, user_id)
    rules = yield from records.RULES.all(store, user_id)
    facts = yield from records.FACTS.all(store, user_id)
    knowledge = Knowledge(
        mark=mark,
        topics=tuple(topics),
        entities=tuple(entities),
        bundles={bundle.id: bundle for bundle in bundles},
        links={(link.topic_id, link.conversation_id): link for link in links},
        phrases=tuple(phrases),
        rules=tuple(rules),
    ).with_facts(facts)
    kept_of(store, user_id).knowledge = knowledge
    return knowledge


def save(
    store: BaseStore, user_id: str, before: Knowledge, after: Knowledge, *, edited: bool = False
) -> Flow[None]:
    """Writes what has changed, and then the mark; nothing where nothing has.

    Args:
        store: The store.
        user_id: The user.
        before: The knowledge as it was read.
        after: The knowledge as it is to be.
        edited: Whether it was changed by hand, so that every conversation renews its snapshot.

    Raises:
        StoreError: Another process has erased the user since `before` was read; nothing is kept.
    """
    after = _with_newest_ended(after)
    puts = _differences(user_id, before, after)
    if not puts:
        return
    puts += yield from _without_predictions_of_gone(store, user_id, before, after)

    place = records.mark_place(user_id)
    kept = kept_of(store, user_id)
    [item] = yield from batch(store, [place])
    stored_mark = records.KnowledgeMark.of_item(item)
    if stored_mark is None and before.mark.mark:
        raise StoreError(ERASED)

    old_mark = stored_mark or before.mark
    mark = _mark_after(old_mark, edited=edited)
    try:
        yield from bulk.write(store, puts)
        [last, _] = yield from batch(store, [place, put_of(place, mark)])
        if stored_mark and last is None:
            yield from _take_back(store, [*puts, put_of(place, None)])
            raise StoreError(ERASED)  # noqa: TRY301
    except BaseException:
        kept.knowledge = None  # some of it may be written
        raise

    kept.knowledge = None
    was_alone = records.KnowledgeMark.of_item(last) == stored_mark
    if was_alone and old_mark == before.mark:
        kept.knowledge = _with_detectors(replace(after, mark=mark))


def _mark_after(old: records.KnowledgeMark, *, edited: bool) -> records.KnowledgeMark:
    """Returns the mark of knowledge that has changed."""
    edited_token = new_token() if edited else old.edited
    return records.KnowledgeMark(mark=new_token(), edited=edited_token)


def _with_newest_ended(knowledge: Knowledge) -> Knowledge:
    """Returns the knowledge with as many ended facts as are kept, the newest first."""
    newest = nlargest(
        MOST_ITEMS,
        knowledge.ended_facts,
        key=lambda fact: (fact.ended_at or fact.last_seen, fact.id),
    )
    return replace(knowledge, ended_facts=tuple(newest))


def _differences(user_id: str, before: Knowledge, after: Knowledge) -> list[PutOp]:
    """Returns the writes that turn what was known into what is known now.

    Their order makes a kill in between harmless, as learning again has the same effect: a fact ends
    before another one takes its place, and phrases are counted last.
    """
    facts_before = (*before.ended_facts, *before.facts)
    facts_after = (*after.ended_facts, *after.facts)
    return [
        *records.BUNDLES.changes(user_id, before.bundles.values(), after.bundles.values()),
        *records.TOPICS.changes(user_id, before.topics, after.topics),
        *records.ENTITIES.changes(user_id, before.entities, after.entities),
        *records.LINKS.changes(user_id, before.links.values(), after.links.values()),
        *records.RULES.changes(user_id, before.rules, after.rules),
        *records.FACTS.changes(user_id, facts_before, facts_after),
        *records.PHRASES.changes(user_id, before.phrases, after.phrases),
    ]


def _without_predictions_of_gone(
    store: BaseStore, user_id: str, before: Knowledge, after: Knowledge
) -> Flow[list[PutOp]]:
    """Returns the writes that take predictions back, where a topic or an entity is known no more.

    The next heartbeat predicts again.
    """
    remaining_ids = {profile.id for profile in after.profiles}
    if all(profile.id in remaining_ids for profile in before.profiles):
        return []
    devices = yield from records.PRESENCE.all(store, user_id)
    nothing = {"predicted_topics": (), "predicted_entities": ()}
    changed = [device.model_copy(update=nothing) for device in devices]
    return records.PRESENCE.changes(user_id, devices, changed)


def _take_back(store: BaseStore, puts: Iterable[PutOp]) -> Flow[None]:
    """Removes every item that some writes have written."""
    yield from bulk.write(store, [put._replace(value=None) for put in puts])


def _with_detectors(knowledge: Knowledge) -> Knowledge:
    """Builds the detectors of a value now, so that no prompt has to wait for them; returns it."""
    _ = knowledge.topic_detector
    _ = knowledge.entity_detector
    return knowledge
