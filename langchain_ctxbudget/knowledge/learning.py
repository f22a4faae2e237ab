"""Merges what was learned from messages into what is known, and takes out what came from messages that are gone.

Everything here can be done twice: sources are sets, counts are absolute numbers per conversation, and progress is
written last. A process that is killed in between learns the same messages once more, to the same effect.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import TypeVar

from langgraph.store.base import BaseStore

from langchain_ctxbudget.flow import Flow, batch, locked
from langchain_ctxbudget.history.entry import Entry
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
from langchain_ctxbudget.knowledge.detection import Detector
from langchain_ctxbudget.knowledge.facts import is_as_first_said, is_kept_by_hand
from langchain_ctxbudget.knowledge.known import Knowledge, Profile, by_names, entity_by_hand, things
from langchain_ctxbudget.knowledge.learned import Learned
from langchain_ctxbudget.knowledge.merging import merge_entities, merge_topics
from langchain_ctxbudget.knowledge.presence import Prediction
from langchain_ctxbudget.knowledge.profiles import (
    Engagement,
    engaged,
    entity_metrics,
    importance_at,
    sentiment_of,
    topic_metrics,
)
from langchain_ctxbudget.knowledge.records import (
    BY_RULES,
    BY_USER,
    MOST_SOURCES,
    ClientPresence,
    ContextBundle,
    EntityProfile,
    Fact,
    Highlight,
    PhraseRecord,
    ProgressRecord,
    Source,
    TopicConversation,
    TopicProfile,
)
from langchain_ctxbudget.knowledge.taking import Work, time_of
from langchain_ctxbudget.messages.calls import is_user
from langchain_ctxbudget.messages.messages import own_words
from langchain_ctxbudget.messages.prose import units
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
    """Merges what messages say into what is known of their user.

    It does nothing where something of the user was erased since they were taken, or somebody else has learned from the
    conversation: they are taken again.
    """
    user = work.scope.user_id

    def body() -> Flow[None]:
        if known.epoch_of(store, user) != work.epoch:
            return
        [item] = yield from batch(store, [repos.progress_read(work.scope)])
        if (repos.found(ProgressRecord, item) or ProgressRecord()) != work.progress:
            return
        before = yield from known.read_all(store, user)
        state = before
        if work.there is not None:
            state = without(state, work.scope.conversation_id, work.there)
        learned, phrases = extract(state.phrases)
        after = updated(replace(state, phrases=tuple(phrases)), work, learned, now)
        after = compiled(store, user, after, now, count)
        yield from known.save(store, user, before, after)
        yield from bulk.write(store, [repos.progress_write(work.scope, work.done if work.entries else None)])

    yield from locked(known.lock_of(store, user), body())


def forget_messages(
    store: BaseStore, scope: Scope, there: Mapping[str, str], now: datetime, count: Count
) -> Flow[None]:
    """Takes out of what is known what comes from messages that a conversation no longer has.

    Mentions in it are counted again when it is learned from next.
    """
    user, conversation = scope.user_id, scope.conversation_id

    def body() -> Flow[None]:
        known.interrupted(store, user)
        before = yield from known.read_all(store, user)
        if before.is_empty:
            return
        state = without(before, conversation, there)
        left = {profile.id: profile for profile in state.profiles}
        lost = {profile.id for profile in before.profiles if left[profile.id] != profile}
        gone = {key for key in state.links if key[1] == conversation and (key[0] in lost or not there)}
        links = {key: link for key, link in state.links.items() if key not in gone}
        texts = {key: text for key, text in state.bundles.items() if there or text.conversation_id != conversation}
        state = _measured(replace(state, links=links, bundles=texts), lost | {name for name, _ in gone}, now)
        yield from known.save(store, user, before, compiled(store, user, state, now, count))

    yield from locked(known.lock_of(store, user), body())


def warm(store: BaseStore, user_id: str, now: datetime, count: Count) -> Flow[Prediction]:
    """Predict what is likely to come up on a user's devices, and compile the texts of it.

    The devices remember what was predicted, and a composite bundle has the texts together.
    """

    def body() -> Flow[Prediction]:
        before = yield from known.read_all(store, user_id)
        devices = yield from presence.devices(store, user_id, now)
        likely = presence.predict(devices, before.topics, before.entities, before.links.values(), now)
        state = compiled(store, user_id, before, now, count)
        ids = [name for name, _ in (*likely.topics, *likely.entities)]
        parts = [state.bundles[name] for name in ids if name in state.bundles]
        old = state.bundles.get(COMPOSITE)
        made = compile_composite(parts, now=now, count=count, cap_tokens=COMPOSITE_TOKENS, before=old)
        texts = _with_bundle(_of_conversations(state, devices, now, count), made, now)
        yield from known.save(store, user_id, before, replace(state, bundles=texts))
        told = {
            "predicted_topics": tuple(name for name, _ in likely.topics),
            "predicted_entities": tuple(name for name, _ in likely.entities),
        }
        renewed = [(device, device.model_copy(update=told)) for device in devices if device.is_online]
        yield from bulk.write(store, [repos.PRESENCE.put(user_id, new) for old_, new in renewed if new != old_])
        return likely

    return (yield from locked(known.lock_of(store, user_id), body()))


def _of_conversations(
    state: Knowledge, devices: Sequence[ClientPresence], now: datetime, count: Count
) -> dict[str, ContextBundle]:
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


def updated(state: Knowledge, work: Work, learned: Learned, now: datetime) -> Knowledge:
    """Returns the state after some messages."""
    conversation = work.scope.conversation_id
    said_at = {said.id: said.at for said in work.said if said.at}
    # What an assistant or somebody else says teaches nothing, whatever a model makes of it.
    own = {
        said.id: Source(conversation_id=conversation, message_id=said.id, digest=said.digest)
        for said in work.said
        if said.from_user or said.from_tool
    }
    every = (*state.facts, *state.ended)
    merged = facts.learn(every, learned.facts, own, now, learned.made_by, said_at=said_at)
    pruned = facts.prune(merged, now)
    topics = with_highlights(merge_topics(state.topics, learned, own, now), work)
    entities = merge_entities(state.entities, learned, own, now)
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


def remeasured(after: Knowledge, before: Knowledge, now: datetime) -> Knowledge:
    """Returns the state with new metrics of everything that was changed by hand."""
    old = {profile.id: profile for profile in before.profiles}
    return _measured(after, {profile.id for profile in after.profiles if old.get(profile.id) != profile}, now)


def _measured(state: Knowledge, ids: Collection[str], now: datetime) -> Knowledge:
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


def _capped(state: Knowledge, now: datetime) -> Knowledge:
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


def compiled(store: BaseStore, user_id: str, state: Knowledge, now: datetime, count: Count) -> Knowledge:
    """Returns the state with every dirty, missing or expired bundle compiled, and uses counted.

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
    before = old.get(new.id)
    if before is not None and before.compiled_prompt == new.compiled_prompt and bundles.is_fresh(before, now):
        return dict(old)
    rest = {key: bundle for key, bundle in old.items() if key != new.id}
    return {**rest, new.id: new} if new.compiled_prompt else rest


# What the user said about topics lately

MOST_HIGHLIGHTS = 4
"""Of a topic; of more, the newest."""
FEWEST_CHARACTERS, MOST_HIGHLIGHT_CHARACTERS = 20, 160
"""A shorter sentence says little, a longer one is left to retrieval."""


def with_highlights(topics: Sequence[TopicProfile], work: Work) -> tuple[TopicProfile, ...]:
    """Returns topics with what the user says about them in new messages; questions say nothing."""
    detector = by_names(topics)
    found: defaultdict[str, list[Highlight]] = defaultdict(list)
    for said in work.said:
        if not said.from_user or not detector.named(said.text):
            continue
        source = Source(conversation_id=work.scope.conversation_id, message_id=said.id, digest=said.digest)
        for sentence in units(said.text):
            if sentence.endswith("?") or not FEWEST_CHARACTERS <= len(sentence) <= MOST_HIGHLIGHT_CHARACTERS:
                continue
            date = said.at.date().isoformat() if said.at else None
            for name in detector.named(sentence):
                found[name].append(Highlight(text=sentence, date=date, source=source))
    return tuple(_with_newest(topic, found[topic.id]) if topic.id in found else topic for topic in topics)


def _with_newest(topic: TopicProfile, new: Sequence[Highlight]) -> TopicProfile:
    newest = {highlight.text: highlight for highlight in reversed((*topic.highlights, *new))}
    kept = tuple(newest.values())[MOST_HIGHLIGHTS - 1 :: -1]
    if kept == topic.highlights:
        return topic
    return topic.model_copy(update={"highlights": kept, "is_dirty": True})


# Which messages are about what is known

LOOK_BACK = 1_000
"""Messages before the new ones in which a new topic or entity is looked for."""
Links = Mapping[tuple[str, str], TopicConversation]


def counted(
    links: Links,
    topics: Sequence[TopicProfile],
    entities: Sequence[EntityProfile],
    work: Work,
    new: Collection[str],
) -> tuple[dict[tuple[str, str], TopicConversation], set[str]]:
    """Returns the links with the new messages counted, and the ids of what they are about.

    Older messages are counted, too, for what is known only now, or is named for the first time.
    """
    conversation = work.scope.conversation_id
    first, after, touched = work.first, dict(links), set[str]()
    if work.changed:
        first = 0
        for key in [key for key in after if key[1] == conversation]:
            del after[key]
            touched.add(key[0])
    everything: tuple[Profile, ...] = (*topics, *entities)
    found = _naming(by_names(everything), work.entries, first)
    uncounted = {*new, *found} - {name for name, where in after if where == conversation}
    fresh = [thing for thing in things(everything) if thing.id in uncounted] if uncounted else []
    back = max(0, first - LOOK_BACK)
    if fresh and back < first:
        for name, positions in _naming(Detector(fresh), work.entries[:first], back).items():
            found[name] = [*positions, *found.get(name, ())]
    engagement = cache(
        lambda position: _engagement(work.entries[position], work.costs[position])
    )  # a long one names many
    for name, positions in found.items():
        key = (name, conversation)
        link = after.get(key, TopicConversation(topic_id=name, conversation_id=conversation))
        messages = [engagement(position) for position in positions if position >= link.until]
        if not messages:
            continue
        after[key] = engaged(link, messages, until=len(work.entries))
        touched.add(name)
    return after, touched


def _naming(detector: Detector, entries: Sequence[Entry], first: int) -> dict[str, list[int]]:
    found: defaultdict[str, list[int]] = defaultdict(list)
    for position in range(first, len(entries)):
        message = entries[position].message
        if message.type not in ("human", "ai") or not (text := own_words(message)):
            continue
        for name in detector.named(text):
            found[name].append(position)
    return found


def _engagement(entry: Entry, tokens: int) -> Engagement:
    return Engagement(
        at=time_of(entry),
        tokens=tokens,
        from_user=is_user(entry.message),
        sentiment=sentiment_of(own_words(entry.message)),
    )


# What is known without some messages

Kept = Callable[[Iterable[Source]], tuple[Source, ...]]
"""Those of some sources that are still there."""


def without(state: Knowledge, conversation_id: str, there: Mapping[str, str]) -> Knowledge:
    """Returns the state without what came from messages that are no longer there, or say something else.

    A fact that is kept by hand stays. One that they superseded counts again, unless something else stands in its place.
    An entity that loses a source loses all details but those said by hand, as nothing tells who said which.
    """

    def kept(sources: Iterable[Source]) -> tuple[Source, ...]:
        return tuple(
            source
            for source in sources
            if source.conversation_id != conversation_id or there.get(source.message_id) == source.digest
        )

    def is_unsure(entity: EntityProfile) -> bool:
        return len(entity.sources) >= MOST_SOURCES and (entity.id, conversation_id) in state.links

    current, ended = _without_facts(state, conversation_id, kept)
    return replace(
        state,
        facts=current,
        ended=ended,
        topics=tuple(_without_sources(topic, conversation_id, there, kept) for topic in state.topics),
        entities=tuple(
            _without_details(entity, left)
            if (left := kept(entity.sources)) != entity.sources or is_unsure(entity)
            else entity
            for entity in state.entities
        ),
        phrases=tuple(
            one for phrase in state.phrases if (one := _uncounted(phrase, conversation_id, there, kept)).counts
        ),
    )


def _without_facts(state: Knowledge, conversation_id: str, kept: Kept) -> tuple[tuple[Fact, ...], tuple[Fact, ...]]:
    left = {fact.id: fact for fact in (*state.facts, *state.ended)}
    current = {fact.id for fact in state.facts}
    gone: dict[str, Fact] = {}
    for fact in list(left.values()):
        sources = kept(fact.sources)
        # What a model has written may say something of every message of a conversation that it comes from.
        said_elsewhere = is_as_first_said(fact) and any(one.conversation_id != conversation_id for one in sources)
        is_lost = not sources or (fact.made_by != BY_RULES and not said_elsewhere)
        if fact.sources != sources and is_lost and not is_kept_by_hand(fact):
            gone[fact.id] = left.pop(fact.id)
        elif sources != fact.sources:
            left[fact.id] = fact.model_copy(update={"sources": sources})
    for fact in list(left.values()):
        by = fact.superseded_by
        while by in gone:
            by = gone[by].superseded_by
        if by == fact.superseded_by:
            continue
        back = {} if by else {"ended": None, "ended_at": None, "valid_until": None}
        left[fact.id] = fact.model_copy(update={**back, "superseded_by": by})
        if not by:
            current.add(fact.id)
    return (
        tuple(fact for fact in left.values() if fact.id in current),
        tuple(fact for fact in left.values() if fact.id not in current),
    )


def _without_sources(topic: TopicProfile, conversation_id: str, there: Mapping[str, str], kept: Kept) -> TopicProfile:
    place = f"{conversation_id}/"
    left = {
        "sources": kept(topic.sources),
        "highlights": tuple(one for one in topic.highlights if kept([one.source])),
        "related_acu_ids": tuple(
            one for one in topic.related_acu_ids if not one.startswith(place) or one.removeprefix(place) in there
        ),
    }
    if all(getattr(topic, name) == value for name, value in left.items()):
        return topic
    return topic.model_copy(update={**left, "is_dirty": True})


def _without_details(entity: EntityProfile, sources: tuple[Source, ...]) -> EntityProfile:
    return entity_by_hand(entity).model_copy(update={"sources": sources, "is_dirty": True})


def _uncounted(phrase: PhraseRecord, conversation_id: str, there: Mapping[str, str], kept: Kept) -> PhraseRecord:
    left = kept(phrase.sources)
    lost = len(phrase.sources) - len(left)
    if there and not lost:
        return phrase
    counts = dict(phrase.counts)
    is_known = any(source.conversation_id == conversation_id for source in left)
    counts[conversation_id] = counts.get(conversation_id, 0) - lost if is_known else 0
    return phrase.model_copy(
        update={"sources": left, "counts": tuple((name, count) for name, count in counts.items() if count > 0)}
    )
