"""From what was learned of some messages to what is known afterwards: pure, and then written in one go.

Everything here can be done twice: sources are sets, counts are absolute numbers per conversation, and progress is
written last. A process that is killed in between learns the same messages once more, to the same effect.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from langgraph.store.base import BaseStore

from langchain_ctxbudget.flow import Flow, batch, locked
from langchain_ctxbudget.knowledge import bundles, facts, known, presence
from langchain_ctxbudget.knowledge import repositories as repos
from langchain_ctxbudget.knowledge.bundles import (
    compile_composite,
    compile_conversation,
    compile_identity,
    compile_preferences,
    used,
)
from langchain_ctxbudget.knowledge.compiling import compile_all
from langchain_ctxbudget.knowledge.engagement import counted
from langchain_ctxbudget.knowledge.forgetting import without
from langchain_ctxbudget.knowledge.highlights import with_highlights
from langchain_ctxbudget.knowledge.known import Profile
from langchain_ctxbudget.knowledge.learned import Learned
from langchain_ctxbudget.knowledge.merging import merge_entities, merge_topics
from langchain_ctxbudget.knowledge.presence import Prediction
from langchain_ctxbudget.knowledge.profiles import entity_metrics, importance_at, topic_metrics
from langchain_ctxbudget.knowledge.records import (
    BY_USER,
    ClientPresence,
    ContextBundle,
    EntityProfile,
    PhraseRecord,
    ProgressRecord,
    Source,
    TopicConversation,
    TopicProfile,
)
from langchain_ctxbudget.knowledge.state import State, read_state, save
from langchain_ctxbudget.knowledge.taking import Work
from langchain_ctxbudget.stores import bulk
from langchain_ctxbudget.stores.records import Scope

P = TypeVar("P", TopicProfile, EntityProfile)

Extract = Callable[[Sequence[PhraseRecord]], tuple[Learned, Sequence[PhraseRecord]]]
"""Gives what was learned, and what may become a topic."""
Count = Callable[[str], int]

COMPOSITE, COMPOSITE_TOKENS = "composite", 500
"""The bundle of what is likely to come up."""
MOST_FACT_TOKENS = 500
"""What the bundles of facts may cost."""
MOST_OPEN = 20
"""Conversations of which it is compiled what they are about."""
MOST_PROFILES = 1_000
"""Topics, and entities, of one user; of more, the least important ones go."""


def learn(store: BaseStore, work: Work, extract: Extract, now: datetime, count: Count) -> Flow[None]:
    """Take what some messages say into what is known of their user.

    Nothing is done where something of the user was erased since they were taken up, or where somebody else has learned
    from the conversation: they are taken up again.

    Args:
        store: where it is kept.
        work: the messages.
        extract: reads them.
        now: what time it is.
        count: tokens of a text.
    """
    user = work.scope.user_id

    def body() -> Flow[None]:
        if known.epoch_of(store, user) != work.epoch:
            return
        [item] = yield from batch(store, [repos.progress_read(work.scope)])
        if (repos.found(ProgressRecord, item) or ProgressRecord()) != work.progress:
            return
        before, mark = yield from read_state(store, user)
        state = before
        if work.there is not None:
            state = without(state, work.scope.conversation_id, work.there)
        learned, phrases = extract(state.phrases)
        after = updated(replace(state, phrases=tuple(phrases)), work, learned, now)
        after = compiled(store, user, after, now, count)
        yield from save(store, user, before, after, mark)
        yield from bulk.write(store, [repos.progress_write(work.scope, work.done if work.entries else None)])

    yield from locked(known.lock_of(store, user), body())


def forget_messages(
    store: BaseStore, scope: Scope, there: Mapping[str, str], now: datetime, count: Count
) -> Flow[None]:
    """Take out of what is known of a user what comes from messages that a conversation no longer has.

    How often what they spoke of comes up in it is counted again when it is learned from next.

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
        before, mark = yield from read_state(store, user)
        if before == State():
            return
        state = without(before, conversation, there)
        left = {profile.id: profile for profile in state.profiles}
        lost = {profile.id for profile in before.profiles if left[profile.id] != profile}
        gone = {key for key in state.links if key[1] == conversation and (key[0] in lost or not there)}
        links = {key: link for key, link in state.links.items() if key not in gone}
        texts = {key: text for key, text in state.bundles.items() if there or text.conversation_id != conversation}
        state = _measured(replace(state, links=links, bundles=texts), lost | {name for name, _ in gone}, now)
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
        texts = _with_bundle(_of_conversations(state, devices, now, count), made, now)
        yield from save(store, user_id, before, replace(state, bundles=texts), mark)
        told = {
            "predicted_topics": tuple(name for name, _ in likely.topics),
            "predicted_entities": tuple(name for name, _ in likely.entities),
        }
        renewed = [(device, device.model_copy(update=told)) for device in devices if device.is_online]
        yield from bulk.write(store, [repos.PRESENCE.put(user_id, new) for old_, new in renewed if new != old_])
        return likely

    return (yield from locked(known.lock_of(store, user_id), body()))


def _of_conversations(
    state: State, devices: Sequence[ClientPresence], now: datetime, count: Count
) -> dict[str, ContextBundle]:
    """The bundles with one for each conversation that is open on a device, of what it is about, and for no other."""
    texts = {key: bundle for key, bundle in state.bundles.items() if bundle.bundle_type != "conversation"}
    online = [device for device in devices if device.is_online]
    opened = [(device.active_conversation_id, *device.visible_conversation_ids) for device in online]
    for conversation in list(dict.fromkeys(name for names in opened for name in names if name))[:MOST_OPEN]:
        links = [link for (_, where), link in state.links.items() if where == conversation]
        ranks = {link.topic_id: -link.relevance_score for link in links}
        topics = sorted((one for one in state.topics if one.id in ranks), key=lambda one: (ranks[one.id], one.id))
        entities = sorted((one for one in state.entities if one.id in ranks), key=lambda one: (ranks[one.id], one.id))
        old = state.bundles.get(f"conversation/{conversation}")
        made = compile_conversation(
            topics, entities, conversation, now=now, count=count, cap_tokens=COMPOSITE_TOKENS, before=old
        )
        texts = _with_bundle(texts | ({made.id: old} if old else {}), made, now)
    return texts


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
    # What an assistant or somebody else says of the user is no fact, whatever a model makes of it.
    own = {said.id: sources[said.id] for said in work.said if said.from_user or said.from_tool}
    every = (*state.facts, *state.ended)
    merged = facts.learn(every, learned.facts, own, now, learned.made_by, said_at=said_at)
    pruned = facts.prune(merged, now)
    topics = with_highlights(merge_topics(state.topics, learned, sources, now), work)
    entities = merge_entities(state.entities, learned, sources, now)
    old = {profile.id: profile for profile in state.profiles}
    everything: tuple[Profile, ...] = (*topics, *entities)
    new = {profile.id: profile for profile in everything}
    links, touched = counted(state.links, topics, entities, work, new=new.keys() - old.keys())
    changed = {key for key, profile in new.items() if old.get(key) != profile}
    after = replace(
        state,
        facts=pruned.kept,
        ended=(*(fact for fact in merged if not fact.is_current), *pruned.ended),
        topics=topics,
        entities=entities,
        links=links,
    )
    return _capped(_measured(after, touched | changed, now), now)


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


def _capped(state: State, now: datetime) -> State:
    """At most `MOST_PROFILES` topics and as many entities; those that the user has made or pinned stay."""
    topics, entities = _most_important(state.topics, now), _most_important(state.entities, now)
    if len(topics) == len(state.topics) and len(entities) == len(state.entities):
        return state
    capped = replace(state, topics=topics, entities=entities)
    kept = {profile.id for profile in capped.profiles}
    return replace(capped, links={key: link for key, link in state.links.items() if key[0] in kept})


def _most_important(profiles: tuple[P, ...], now: datetime) -> tuple[P, ...]:
    if len(profiles) <= MOST_PROFILES:
        return profiles
    ranked = sorted(profiles, key=lambda p: (not p.pinned, p.made_by != BY_USER, -importance_at(p, now), p.id))
    kept = {profile.id for profile in ranked[:MOST_PROFILES]}
    return tuple(profile for profile in profiles if profile.id in kept)


def compiled(store: BaseStore, user_id: str, state: State, now: datetime, count: Count) -> State:
    """What is known with every bundle that is dirty, missing or expired compiled, and uses counted.

    Those that are made of others are gone where they show what is no longer so; whoever predicts makes them again.
    """
    made = compile_all(state.topics, state.entities, state.facts, state.bundles, now, count)
    texts = {
        key: bundle
        for key, bundle in made.bundles.items()
        if bundle.bundle_type not in ("composite", "conversation")
        or all(made.bundles.get(part) == state.bundles.get(part) for part in bundle.composition)
    }
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
