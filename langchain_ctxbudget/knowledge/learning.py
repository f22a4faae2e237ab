"""From what was learned of some messages to what is known afterwards: pure, and then written in one go.

Everything here can be done twice: sources are sets, counts are absolute numbers per conversation, and progress is
written last. A process that is killed in between learns the same messages once more, to the same effect.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar
from uuid import uuid4

from langgraph.store.base import BaseStore, PutOp

from langchain_ctxbudget.flow import Flow, locked
from langchain_ctxbudget.knowledge import bundles, facts, known, presence
from langchain_ctxbudget.knowledge import repositories as repos
from langchain_ctxbudget.knowledge.bundles import compile_composite, compile_identity, compile_preferences, used
from langchain_ctxbudget.knowledge.compiling import compile_all
from langchain_ctxbudget.knowledge.engagement import counted
from langchain_ctxbudget.knowledge.highlights import with_highlights
from langchain_ctxbudget.knowledge.known import Knowledge, Profile
from langchain_ctxbudget.knowledge.learned import Learned
from langchain_ctxbudget.knowledge.merging import merge_entities, merge_topics
from langchain_ctxbudget.knowledge.presence import Prediction
from langchain_ctxbudget.knowledge.profiles import entity_metrics, topic_metrics
from langchain_ctxbudget.knowledge.records import (
    BY_USER,
    ContextBundle,
    EntityProfile,
    Fact,
    KnowledgeMark,
    PhraseRecord,
    Source,
    TopicConversation,
    TopicProfile,
)
from langchain_ctxbudget.knowledge.repositories import Repository
from langchain_ctxbudget.knowledge.taking import Work
from langchain_ctxbudget.stores import bulk
from langchain_ctxbudget.stores.records import Record, Scope

R = TypeVar("R", bound=Record)
P = TypeVar("P", TopicProfile, EntityProfile)

Extract = Callable[[Sequence[PhraseRecord]], tuple[Learned, Sequence[PhraseRecord]]]
"""Gives what was learned, and what may become a topic."""
Count = Callable[[str], int]

COMPOSITE, COMPOSITE_TOKENS = "composite", 500
"""The bundle of what is likely to come up."""
MOST_FACT_TOKENS = 500
"""What the bundles of facts may cost."""
MOST_PROFILES = 1_000
"""Topics, and entities, of one user; of more, the least important ones go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All that is kept of a user's knowledge."""

    facts: tuple[Fact, ...] = ()
    ended: tuple[Fact, ...] = ()
    """Facts that are no longer current: those that end now, and, where messages have changed, all."""
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


def learn(store: BaseStore, work: Work, extract: Extract, now: datetime, count: Count) -> Flow[bool]:
    """Take what some messages say into what is known of their user; False where it was erased meanwhile.

    Args:
        store: where it is kept.
        work: the messages.
        extract: reads them.
        now: what time it is.
        count: tokens of a text.
    """
    user = work.scope.user_id

    def body() -> Flow[bool]:
        if known.epoch_of(store, user) != work.epoch:
            return False
        before, mark = yield from read_state(store, user, with_ended=work.changed)
        state = before
        if work.changed:
            state = without(state, work.scope.conversation_id, work.there)
        learned, phrases = extract(state.phrases)
        after = updated(replace(state, phrases=tuple(phrases)), work, learned, now)
        after = compiled(store, user, after, now, count)
        yield from save(store, user, before, after, mark)
        yield from bulk.write(store, [repos.progress_write(work.scope, work.done)])
        return True

    return (yield from locked(known.lock_of(store, user), body()))


def forget_messages(
    store: BaseStore, scope: Scope, there: Mapping[str, str], now: datetime, count: Count
) -> Flow[None]:
    """Take out of what is known of a user what comes from messages that a conversation no longer has.

    What it has is counted again when it is learned from next.

    Args:
        store: where it is kept.
        scope: the conversation.
        there: the messages that it has, and a fingerprint of each; none where it is about to be deleted.
        now: what time it is.
        count: tokens of a text.
    """
    user, conversation = scope.user_id, scope.conversation_id

    def body() -> Flow[None]:
        known.interrupted(store, user)
        before, mark = yield from read_state(store, user, with_ended=True)
        if before == State():
            return
        state = without(before, conversation, there)
        links = {key: link for key, link in state.links.items() if there or key[1] != conversation}
        touched = {key[0] for key in state.links if key not in links}
        left = {profile.id: profile for profile in state.profiles}
        lost = {profile.id for profile in before.profiles if left.get(profile.id) != profile}
        state = _measured(replace(state, links=links), touched | lost, now)
        yield from save(store, user, before, compiled(store, user, state, now, count), mark)

    yield from locked(known.lock_of(store, user), body())


def warm(store: BaseStore, user_id: str, now: datetime, count: Count) -> Flow[Prediction]:
    """Predict what is likely to come up on a user's devices, and compile the texts of it.

    The devices remember what was predicted, and a composite bundle has the texts together.
    """

    def body() -> Flow[Prediction]:
        before, mark = yield from read_state(store, user_id)
        devices = yield from presence.devices(store, user_id, now)
        likely = presence.predict(devices, before.topics, before.entities, before.links.values(), now)
        state = compiled(store, user_id, before, now, count)
        ids = [name for name, _ in (*likely.topics, *likely.entities)]
        parts = [state.bundles[name] for name in ids if name in state.bundles]
        old = state.bundles.get(COMPOSITE)
        made = compile_composite(parts, now=now, count=count, cap_tokens=COMPOSITE_TOKENS, before=old)
        state = replace(state, bundles=_with_bundle(state.bundles, made, now))
        yield from save(store, user_id, before, state, mark)
        told = {
            "predicted_topics": tuple(name for name, _ in likely.topics),
            "predicted_entities": tuple(name for name, _ in likely.entities),
        }
        renewed = [(device, device.model_copy(update=told)) for device in devices if device.is_online]
        yield from bulk.write(store, [repos.PRESENCE.put(user_id, new) for old_, new in renewed if new != old_])
        return likely

    return (yield from locked(known.lock_of(store, user_id), body()))


def read_state(store: BaseStore, user_id: str, *, with_ended: bool = False) -> Flow[tuple[State, KnowledgeMark]]:
    """All that is kept of a user's knowledge, and its mark."""
    knowledge = yield from known.read(store, user_id)
    if knowledge is known.NOTHING:
        return State(), knowledge.mark
    links = yield from repos.LINKS.all(store, user_id)
    phrases = yield from repos.PHRASES.all(store, user_id)
    ended = (yield from repos.ENDED.all(store, user_id)) if with_ended else []
    state = State(
        facts=knowledge.facts,
        ended=tuple(ended),
        topics=knowledge.topics,
        entities=knowledge.entities,
        links={(link.topic_id, link.conversation_id): link for link in links},
        phrases=tuple(phrases),
        bundles=knowledge.bundles,
    )
    return state, knowledge.mark


def updated(state: State, work: Work, learned: Learned, now: datetime) -> State:
    """What is known after some messages.

    Args:
        state: what was known.
        work: the messages.
        learned: what they say.
        now: what time it is.
    """
    conversation = work.scope.conversation_id
    sources = {
        entry.id: Source(conversation_id=conversation, message_id=entry.id, digest=entry.fingerprint)
        for entry in work.new
    }
    said_at = {said.id: said.at for said in work.said if said.at}
    merged = facts.learn(state.facts, learned.facts, sources, now, learned.made_by, said_at=said_at)
    pruned = facts.prune(merged, now)
    topics = with_highlights(merge_topics(state.topics, learned, sources, now), work)
    entities = merge_entities(state.entities, learned, sources, now)
    old = {profile.id: profile for profile in state.profiles}
    everything: tuple[Profile, ...] = (*topics, *entities)
    new = {profile.id: profile for profile in everything}
    links, touched = counted(state.links, topics, entities, work, new=new.keys() - old.keys())
    changed = {key for key, profile in new.items() if old.get(key) != profile}
    superseded = (fact for fact in merged if not fact.is_current)
    ended = {fact.id: fact for fact in (*state.ended, *superseded, *pruned.ended)}
    after = replace(
        state,
        facts=pruned.kept,
        ended=tuple(ended.values()),
        topics=topics,
        entities=entities,
        links=links,
    )
    return _capped(_measured(after, touched | changed, now))


def remeasured(after: State, before: State, now: datetime) -> State:
    """What is known with the metrics of everything computed anew that was changed by hand."""
    old = {profile.id: profile for profile in before.profiles}
    return _measured(after, {profile.id for profile in after.profiles if old.get(profile.id) != profile}, now)


def _measured(state: State, ids: Collection[str], now: datetime) -> State:
    """The metrics of some topics and entities computed anew; what nothing speaks of any more goes."""
    of: dict[str, list[TopicConversation]] = {name: [] for name in ids}
    for (name, _), link in state.links.items():
        if name in of:
            of[name].append(link)
    topics = (topic_metrics(t, of[t.id], now) if t.id in of else t for t in state.topics)
    entities = (entity_metrics(e, of[e.id], now) if e.id in of else e for e in state.entities)
    return replace(
        state,
        topics=tuple(topic for topic in topics if _stays(topic)),
        entities=tuple(entity for entity in entities if _stays(entity)),
    )


def _stays(profile: TopicProfile | EntityProfile) -> bool:
    spoken = profile.total_messages if isinstance(profile, TopicProfile) else profile.mention_count
    return bool(profile.sources or spoken or profile.pinned or profile.made_by == BY_USER)


def _capped(state: State) -> State:
    """At most `MOST_PROFILES` topics and as many entities; those that the user has made or pinned stay."""
    topics, entities = _most_important(state.topics), _most_important(state.entities)
    if len(topics) == len(state.topics) and len(entities) == len(state.entities):
        return state
    capped = replace(state, topics=topics, entities=entities)
    kept = {profile.id for profile in capped.profiles}
    return replace(capped, links={key: link for key, link in state.links.items() if key[0] in kept})


def _most_important(profiles: tuple[P, ...]) -> tuple[P, ...]:
    if len(profiles) <= MOST_PROFILES:
        return profiles
    ranked = sorted(profiles, key=lambda p: (not p.pinned, p.made_by != BY_USER, -p.importance_score, p.id))
    kept = {profile.id for profile in ranked[:MOST_PROFILES]}
    return tuple(profile for profile in profiles if profile.id in kept)


def without(state: State, conversation_id: str, there: Mapping[str, str]) -> State:
    """What is known without what came from messages that are no longer there, or say something else.

    A fact that they superseded counts again. What they said about an entity is not told apart from what others did: of
    one that loses a source, the details are dropped, too.

    Args:
        state: what is known, all facts that have ended among it.
        conversation_id: whose messages have changed.
        there: the messages that it has, and a fingerprint of each.
    """

    def kept(sources: Iterable[Source]) -> tuple[Source, ...]:
        return tuple(
            source
            for source in sources
            if source.conversation_id != conversation_id or there.get(source.message_id) == source.digest
        )

    def remaining(all_facts: Iterable[Fact]) -> list[Fact]:
        found = [(fact, kept(fact.sources)) for fact in all_facts]
        return [
            fact if left == fact.sources else fact.model_copy(update={"sources": left})
            for fact, left in found
            if left or not fact.sources or fact.made_by == BY_USER
        ]

    current, ended = remaining(state.facts), remaining(state.ended)
    gone = {fact.id for fact in (*state.facts, *state.ended)} - {fact.id for fact in (*current, *ended)}
    restored = [fact for fact in ended if fact.superseded_by in gone]
    back = {"ended": None, "ended_at": None, "superseded_by": None, "valid_until": None}
    return replace(
        state,
        facts=(*current, *(fact.model_copy(update=back) for fact in restored)),
        ended=tuple(fact for fact in ended if fact not in restored),
        topics=tuple(_without_sources(topic, kept) for topic in state.topics),
        entities=tuple(
            entity if (left := kept(entity.sources)) == entity.sources else _without_details(entity, left)
            for entity in state.entities
        ),
        phrases=tuple(
            phrase.model_copy(update={"sources": kept(phrase.sources), "counts": counts})
            for phrase in state.phrases
            if (counts := tuple(count for count in phrase.counts if count[0] != conversation_id or there))
        ),
    )


def _without_sources(topic: TopicProfile, kept: Callable[[Iterable[Source]], tuple[Source, ...]]) -> TopicProfile:
    left = kept(topic.sources)
    highlights = tuple(one for one in topic.highlights if kept([one.source]))
    if left == topic.sources and highlights == topic.highlights:
        return topic
    return topic.model_copy(update={"sources": left, "highlights": highlights, "is_dirty": True})


def _without_details(entity: EntityProfile, sources: tuple[Source, ...]) -> EntityProfile:
    if entity.made_by == BY_USER:
        return entity.model_copy(update={"sources": sources})
    details = {"facts": (), "attributes": (), "relations": (), "relationship": None, "aliases": ()}
    return entity.model_copy(update={"sources": sources, "is_dirty": True, **details})


def compiled(store: BaseStore, user_id: str, state: State, now: datetime, count: Count) -> State:
    """What is known with every bundle that is dirty, missing or expired compiled, and uses counted."""
    made = compile_all(state.topics, state.entities, state.facts, state.bundles, now, count)
    texts = dict(made.bundles)
    ordered = facts.ranked(state.facts)
    for key, of_facts in (("identity_core", compile_identity), ("global_prefs", compile_preferences)):
        made_of = of_facts(ordered, now=now, count=count, cap_tokens=MOST_FACT_TOKENS, before=texts.get(key))
        texts = _with_bundle(texts, made_of, now)
    hits, misses = known.take_use(store, user_id)
    for key in texts.keys() & (hits.keys() | misses.keys()):
        texts[key] = used(texts[key], hits[key], misses[key], now)
    return replace(state, topics=made.topics, entities=made.entities, bundles=texts)


def _with_bundle(old: Mapping[str, ContextBundle], new: ContextBundle, now: datetime) -> dict[str, ContextBundle]:
    """The bundles with another one; what says the same and is fresh stays, and what says nothing is none."""
    before = old.get(new.id)
    if before is not None and before.compiled_prompt == new.compiled_prompt and bundles.is_fresh(before, now):
        return dict(old)
    rest = {key: bundle for key, bundle in old.items() if key != new.id}
    return {**rest, new.id: new} if new.compiled_prompt else rest


def save(
    store: BaseStore, user_id: str, before: State, after: State, mark: KnowledgeMark, *, edited: bool = False
) -> Flow[None]:
    """Write what has changed, and then the mark; nothing where nothing has.

    Args:
        store: where.
        user_id: whose.
        before: as it was read.
        after: as it is to be.
        mark: of `before`.
        edited: whether it was changed by hand.
    """
    puts = [
        *_changes(repos.TOPICS, user_id, before.topics, after.topics),
        *_changes(repos.ENTITIES, user_id, before.entities, after.entities),
        *_changes(repos.LINKS, user_id, before.links.values(), after.links.values()),
        *_changes(repos.PHRASES, user_id, before.phrases, after.phrases),
        *_changes(repos.BUNDLES, user_id, before.bundles.values(), after.bundles.values()),
    ]
    new = [fact for fact in after.ended if fact not in before.ended]
    puts += yield from repos.ending(store, user_id, new)
    puts += [repos.ENDED.delete(user_id, fact.id) for fact in before.ended if fact.id not in _ids(after.ended)]
    puts += _changes(repos.FACTS, user_id, before.facts, after.facts)
    if not puts:
        return
    renewed = KnowledgeMark(mark=uuid4().hex, edited=uuid4().hex if edited else mark.edited)
    if not mark.mark:  # where there is no mark, nothing is looked for
        yield from bulk.write(store, [repos.mark_write(user_id, KnowledgeMark(mark="begun"))])
    yield from bulk.write(store, puts)
    yield from bulk.write(store, [repos.mark_write(user_id, renewed)])
    knowledge = Knowledge(
        mark=renewed, facts=after.facts, topics=after.topics, entities=after.entities, bundles=after.bundles
    )
    known.keep(store, user_id, knowledge)


def _ids(items: Iterable[Fact]) -> set[str]:
    return {fact.id for fact in items}


def _changes(of: Repository[R], user_id: str, before: Iterable[R], after: Iterable[R]) -> list[PutOp]:
    """The writes that make one list of records another one."""
    old, new = {of.key(one): one for one in before}, {of.key(one): one for one in after}
    written = [of.put(user_id, one) for key, one in new.items() if old.get(key) != one]
    return [*written, *(of.delete(user_id, key) for key in old if key not in new)]
