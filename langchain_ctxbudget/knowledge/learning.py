"""Merges what was learned from messages into what is known, and takes out what came from messages that are gone.

Everything here can be done twice: sources are sets, counts are absolute numbers per conversation, and progress is
written last. A process that is killed in between learns the same messages once more, to the same effect.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from typing import TypeVar

import numpy as np
from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.store.base import BaseStore

from langchain_ctxbudget.flow import Flow, batch, embed, locked
from langchain_ctxbudget.history import Entry
from langchain_ctxbudget.knowledge import facts, known, presence, records
from langchain_ctxbudget.knowledge.bundles import Compiler
from langchain_ctxbudget.knowledge.detection import Detector
from langchain_ctxbudget.knowledge.known import Knowledge, by_names, entity_by_hand, things
from langchain_ctxbudget.knowledge.presence import Prediction
from langchain_ctxbudget.knowledge.profiles import (
    Engagement,
    engaged,
    importance_at,
    measured,
    merge_entities,
    merge_topics,
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
    Learned,
    PhraseRecord,
    Profile,
    ProgressRecord,
    Said,
    Source,
    TopicConversation,
    TopicProfile,
)
from langchain_ctxbudget.messages import fold, is_user, own_words, result_ids
from langchain_ctxbudget.messages import units as sentences_of
from langchain_ctxbudget.search import units
from langchain_ctxbudget.stores import Scope, bulk, embeddings_name, utc
from langchain_ctxbudget.tokens import estimate_tokens

P = TypeVar("P", TopicProfile, EntityProfile)

Extract = Callable[[Sequence[PhraseRecord]], tuple[Learned, Sequence[PhraseRecord]]]
"""Gives what was learned, and what may become a topic."""
Links = Mapping[tuple[str, str], TopicConversation]

MOST_MARKS = 32
BEFORE_MESSAGES = 4
"""Messages before the new ones that a model is shown, to understand them."""
MOST_FACTS = 10
"""Facts of the user that one bundle is offered."""
MOST_OPEN = 20
"""Conversations of which it is compiled what they are about."""
MOST_PROFILES = 1_000
"""Topics, and entities, of one user; of more, the least important ones go."""
MOST_HIGHLIGHTS = 4
"""Of a topic; of more, the newest."""
FEWEST_CHARACTERS, MOST_HIGHLIGHT_CHARACTERS = 20, 160
"""A shorter sentence says little, a longer one is left to retrieval."""
LOOK_BACK = 1_000
"""Messages before the new ones in which a new topic or entity is looked for."""

_WORD = re.compile(r"[^\W_]+")


# The messages that are learned from


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Messages that are to be learned from."""

    scope: Scope
    entries: Sequence[Entry]
    """The conversation from its beginning to the last of them."""
    costs: Sequence[int]
    """What each of these costs, in tokens."""
    first: int
    """The position of the first of them."""
    progress: ProgressRecord
    """As it was found."""
    there: Mapping[str, str] | None
    """All messages of the conversation, and what each says, as a fingerprint; None: those that were learned from have
    not changed."""
    epoch: int
    """Of the user's knowledge when they were taken up."""
    from_tools: bool = False
    """True: a model learns from results of tools, too."""

    @property
    def said(self) -> list[Said]:
        """The words in them that may be learned from."""
        others = others_in(self.entries, self.scope.user_id)
        return as_said(self.entries[self.first :], from_tools=self.from_tools, others=others)

    @property
    def before(self) -> list[Said]:
        """The messages right before them."""
        entries = self.entries[max(0, self.first - BEFORE_MESSAGES) : self.first]
        return as_said(entries, from_tools=False, others=others_in(self.entries, self.scope.user_id))

    def until_said(self, count: int) -> Work:
        """The same, up to the `count`th of the messages that say something; what follows is for the next time."""
        said = self.said
        if count >= len(said):
            return self
        places = range(self.first, len(self.entries))
        end = next(place for place in places if self.entries[place].id == said[count].id)
        return replace(self, entries=self.entries[:end])

    @property
    def done(self) -> ProgressRecord:
        """The progress once they were learned from."""
        before = (mark for mark in self.progress.marks if fits(self.entries, mark))
        marks = thinned((*before, (len(self.entries), self.entries[-1].digest)))
        return ProgressRecord(position=len(self.entries), marks=marks)


def fits(entries: Sequence[Entry], mark: tuple[int, str]) -> bool:
    """Returns whether nothing before a mark of progress has changed since."""
    position, digest = mark
    return 0 < position <= len(entries) and entries[position - 1].digest == digest


def thinned(marks: Sequence[tuple[int, str]]) -> tuple[tuple[int, str], ...]:
    """Returns at most `MOST_MARKS` marks: the newest half, and every other one of the older ones.

    >>> len(thinned([(n, "") for n in range(100)])) <= MOST_MARKS
    True
    """
    kept = list(marks)
    while len(kept) > MOST_MARKS:
        old = kept[: len(kept) - MOST_MARKS // 2]
        kept = [*old[::2], *kept[len(old) :]]
    return tuple(kept)


def others_in(entries: Sequence[Entry], user_id: str) -> frozenset[str]:
    """Returns the names of those who write beside the user.

    A message without a name is the user's, and so is one whose name is the user's id, or the beginning of it, or begins
    with it, in any case and punctuation. Where nobody writes but under one name, that is the user, whatever it is.
    """
    people = [entry.message for entry in entries if isinstance(entry.message, HumanMessage)]
    names = {message.name for message in people if message.name}
    if not names or (len(names) == 1 and not any(is_user(message) and not message.name for message in people)):
        return frozenset()
    user = _WORD.findall(fold(user_id))
    words = {name: _WORD.findall(fold(name)) for name in names}
    same = {name for name in names if words[name] == user}
    sizes = {name: min(len(words[name]), len(user)) for name in names}
    alike = {name for name, size in sizes.items() if size > 0 and words[name][:size] == user[:size]}
    return frozenset(names - (same or (alike if len(alike) == 1 else set())))


def as_said(entries: Sequence[Entry], *, from_tools: bool, others: Collection[str] = ()) -> list[Said]:
    """Returns messages as an extraction reads them, but for those without words."""
    read: list[Said] = []
    for entry in entries:
        message = entry.message
        is_result = bool(result_ids(message)) and not is_user(message)
        text = ""
        if is_result:
            text = entry.text if from_tools else ""
        elif isinstance(message, HumanMessage | AIMessage):
            text = own_words(message)
        if text and entry.preservation != "drop":
            one = Said(
                id=entry.id,
                digest=entry.fingerprint,
                text=text,
                from_user=is_user(message) and message.name not in others,
                from_tool=is_result,
                speaker=entry.speaker,
                at=time_of(entry),
            )
            read.append(one)
    return read


def time_of(entry: Entry) -> datetime | None:
    """Returns the time of a message that tells it; UTC where it names no offset."""
    said = entry.message.additional_kwargs.get("created_at")
    if not isinstance(said, str):
        return None
    try:
        at = datetime.fromisoformat(said)
        return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    except (ValueError, OverflowError):  # no date, or one that is another day, of no year that there is, in UTC
        return None


# What they say is merged


def learn(store: BaseStore, work: Work, extract: Extract, now: datetime) -> Flow[None]:
    """Merges what messages say into what is known of their user.

    It does nothing where something of the user was erased since they were taken, or somebody else has learned from the
    conversation: they are taken again.
    """
    user, place = work.scope.user_id, records.progress_place(work.scope)

    def body() -> Flow[None]:
        if known.epoch_of(store, user) != work.epoch:
            return
        [item] = yield from batch(store, [place])
        if (records.found(ProgressRecord, item) or ProgressRecord()) != work.progress:
            return
        before = yield from known.read_all(store, user)
        state = before if work.there is None else without(before, work.scope.conversation_id, work.there)
        learned, phrases = extract(state.phrases)
        after = updated(replace(state, phrases=tuple(phrases)), work, learned, now)
        yield from known.save(store, user, before, compiled(store, user, after, now))
        yield from bulk.write(store, [records.written(place, work.done if work.entries else None)])

    yield from locked(known.lock_of(store, user), body())


def forget_messages(store: BaseStore, scope: Scope, there: Mapping[str, str], now: datetime) -> Flow[None]:
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
        lost = _changed(before, state)
        gone = {key for key in state.links if key[1] == conversation and (key[0] in lost or not there)}
        links = {key: link for key, link in state.links.items() if key not in gone}
        texts = {key: text for key, text in state.bundles.items() if there or text.conversation_id != conversation}
        state = _measured(replace(state, links=links, bundles=texts), lost | {name for name, _ in gone}, now)
        yield from known.save(store, user, before, compiled(store, user, state, now))

    yield from locked(known.lock_of(store, user), body())


def warm(store: BaseStore, user_id: str, now: datetime) -> Flow[Prediction]:
    """Predicts what is likely to come up on a user's devices, and compiles the texts of it.

    The devices remember what was predicted, and a composite bundle has the texts together.
    """

    def body() -> Flow[Prediction]:
        before = yield from known.read_all(store, user_id)
        devices = yield from presence.devices(store, user_id, now)
        likely = presence.predict(devices, before.topics, before.entities, before.links.values(), now)
        state = compiled(store, user_id, before, now)
        told = {
            "predicted_topics": tuple(name for name, _ in likely.topics),
            "predicted_entities": tuple(name for name, _ in likely.entities),
        }
        ids = (*told["predicted_topics"], *told["predicted_entities"])
        compiler = Compiler(now=now, count=estimate_tokens, old=state.bundles)
        made = [compiler.composite([state.bundles[name] for name in ids if name in state.bundles])]
        made += _of_conversations(compiler, state, devices)
        texts = {key: text for key, text in state.bundles.items() if text.bundle_type not in _MADE_OF_OTHERS}
        texts |= {text.id: text for text in made if text.compiled_prompt}
        yield from known.save(store, user_id, before, replace(state, bundles=texts))
        renewed = [(device, device.model_copy(update=told)) for device in devices if device.is_online]
        yield from bulk.write(store, [records.PRESENCE.put(user_id, new) for old, new in renewed if new != old])
        return likely

    return (yield from locked(known.lock_of(store, user_id), body()))


_MADE_OF_OTHERS = ("composite", "conversation")


def _of_conversations(
    compiler: Compiler, state: Knowledge, devices: Sequence[ClientPresence]
) -> Iterable[ContextBundle]:
    online = [device for device in devices if device.is_online]
    opened = [(device.active_conversation_id, *device.visible_conversation_ids) for device in online]
    for conversation in list(dict.fromkeys(name for names in opened for name in names if name))[:MOST_OPEN]:
        links = [link for (_, where), link in state.links.items() if where == conversation]
        ranks = {link.topic_id: -link.relevance_score for link in links}
        topics = sorted((one for one in state.topics if one.id in ranks), key=lambda one: (ranks[one.id], one.id))
        entities = sorted((one for one in state.entities if one.id in ranks), key=lambda one: (ranks[one.id], one.id))
        yield compiler.conversation(conversation, topics, entities)


def updated(state: Knowledge, work: Work, learned: Learned, now: datetime) -> Knowledge:
    """Returns the state after some messages."""
    conversation, said = work.scope.conversation_id, work.said
    said_at = {one.id: one.at for one in said if one.at}
    # What an assistant or somebody else says teaches nothing, whatever a model makes of it.
    own = {
        one.id: Source(conversation_id=conversation, message_id=one.id, digest=one.digest)
        for one in said
        if one.from_user or one.from_tool
    }
    every = (*state.facts, *state.ended)
    after = with_facts(state, facts.learn(every, learned.facts, own, now, learned.made_by, said_at=said_at), now)
    topics = _with_highlights(merge_topics(state.topics, learned, own, now), work)
    after = replace(after, topics=topics, entities=merge_entities(state.entities, learned, own, now))
    new = {profile.id for profile in after.profiles} - {profile.id for profile in state.profiles}
    links, touched = _counted(state.links, after.profiles, work, new)
    after = _measured(replace(after, links=links), touched | _changed(state, after), now)
    topics, entities = _most_important(after.topics, now), _most_important(after.entities, now)
    kept = {profile.id for profile in (*topics, *entities)}
    links = {key: link for key, link in after.links.items() if key[0] in kept}
    return replace(after, topics=topics, entities=entities, links=links)


def with_facts(state: Knowledge, every: Iterable[Fact], now: datetime) -> Knowledge:
    """Returns a state with these facts, of which those that are too many or too old end."""
    left = facts.pruned(every, now)
    return replace(
        state,
        facts=tuple(fact for fact in left if fact.is_current),
        ended=tuple(fact for fact in left if not fact.is_current),
    )


def remeasured(after: Knowledge, before: Knowledge, now: datetime) -> Knowledge:
    """Returns the state with new metrics of everything that was changed by hand."""
    return _measured(after, _changed(before, after), now)


def _changed(before: Knowledge, after: Knowledge) -> set[str]:
    old = {profile.id: profile for profile in before.profiles}
    return {profile.id for profile in after.profiles if old.get(profile.id) != profile}


def _measured(state: Knowledge, ids: Collection[str], now: datetime) -> Knowledge:
    of: dict[str, list[TopicConversation]] = {name: [] for name in ids}
    for (name, _), link in state.links.items():
        if name in of:
            of[name].append(link)
    topics = (measured(topic, of[topic.id], now) if topic.id in of else topic for topic in state.topics)
    entities = (measured(entity, of[entity.id], now) if entity.id in of else entity for entity in state.entities)
    return replace(state, topics=tuple(filter(_stays, topics)), entities=tuple(filter(_stays, entities)))


def _stays(profile: Profile) -> bool:
    return bool(profile.sources or profile.total_messages or profile.pinned or profile.made_by == BY_USER)


def _most_important(profiles: tuple[P, ...], now: datetime) -> tuple[P, ...]:
    if len(profiles) <= MOST_PROFILES:
        return profiles
    ranked = sorted(profiles, key=lambda p: (not p.pinned, p.made_by != BY_USER, -importance_at(p, now), p.id))
    kept = {profile.id for profile in ranked[:MOST_PROFILES]}
    return tuple(profile for profile in profiles if profile.id in kept)


# Texts and vectors


def compiled(store: BaseStore, user_id: str, state: Knowledge, now: datetime) -> Knowledge:
    """Returns the state with every missing, changed or expired bundle compiled, and uses counted.

    A fact belongs to the topics and entities that it names. Bundles that are made of others are gone where they show
    what is no longer so; whoever predicts makes them again.
    """
    compiler = Compiler(now=now, count=estimate_tokens, old=state.bundles)
    about = _facts_about(state.profiles, facts.holding(state.facts, now))
    by_slug = {topic.slug: topic for topic in state.topics}
    parts: defaultdict[str | None, list[TopicProfile]] = defaultdict(list)
    for child in sorted(state.topics, key=lambda topic: (-importance_at(topic, now), topic.id)):
        parts[child.parent_slug].append(child)
    texts = {}
    for topic in state.topics:
        parent = by_slug.get(topic.parent_slug or "")
        texts[topic.id] = compiler.topic(topic, about[topic.id], parent, parts[topic.slug])
    for entity in state.entities:
        texts[entity.id] = compiler.entity(entity, about[entity.id])
    for key, text in state.bundles.items():
        if text.bundle_type in _MADE_OF_OTHERS and all(texts.get(p) == state.bundles.get(p) for p in text.composition):
            texts[key] = text
    ordered = facts.ranked(state.facts)
    of_facts = (compiler.of_facts("identity_core", ordered), compiler.of_facts("global_prefs", ordered))
    texts |= {text.id: text for text in of_facts if text.compiled_prompt}
    hits, misses = known.take_use(store, user_id)
    for key in texts.keys() & (hits.keys() | misses.keys()):
        old = texts[key]
        counts = {
            "hit_count": old.hit_count + hits[key],
            "miss_count": old.miss_count + misses[key],
        }
        texts[key] = old.model_copy(update={**counts, "last_used_at": now})
    return replace(
        state,
        topics=tuple(
            _clean(topic, texts, related_memory_ids=tuple(fact.id for fact in about[topic.id]))
            for topic in state.topics
        ),
        entities=tuple(_clean(entity, texts) for entity in state.entities),
        bundles=texts,
    )


def _clean(profile: P, texts: Mapping[str, ContextBundle], **also: tuple[str, ...]) -> P:
    """Returns a profile whose bundle is up to date: the same object where it was already."""
    state = {"is_dirty": False, "context_version": texts[profile.id].version, **also}
    if all(getattr(profile, name) == value for name, value in state.items()):
        return profile
    return profile.model_copy(update=state)


def _facts_about(profiles: Iterable[Profile], given: Iterable[Fact]) -> defaultdict[str, list[Fact]]:
    """Returns the facts that name each profile: pinned ones, then the surest, then the newest."""
    detector = by_names(profiles)
    about: defaultdict[str, list[Fact]] = defaultdict(list)
    for fact in sorted(given, key=lambda f: (not f.pinned, -f.confidence, -utc(f.last_seen).timestamp(), f.id)):
        for name in detector.named(fact.text):
            if len(about[name]) < MOST_FACTS:
                about[name].append(fact)
    return about


def embed_topics(store: BaseStore, user_id: str, embeddings: Embeddings, *, anew: bool = False) -> Flow[int]:
    """Gives every topic of a user a vector that has none of this model; returns the number of these topics.

    The model works while nobody waits, so what was changed meanwhile is left as it is. With `anew`, topics that seem to
    have a vector of this model get one as well, as it may have other dimensions.
    """
    model = embeddings_name(embeddings)
    knowledge = yield from known.read(store, user_id)
    missing = [". ".join(topic.names) for topic in knowledge.topics if anew or topic.embedding_model != model]
    rows = yield from embed(embeddings, missing)
    if not missing:
        return 0
    vectors = units(np.asarray(rows, np.float32)).round(6).tolist()
    made = dict(zip(missing, map(tuple, vectors), strict=True))
    epoch = known.epoch_of(store, user_id)

    def body() -> Flow[None]:
        if known.epoch_of(store, user_id) != epoch:
            return
        before = yield from known.read_all(store, user_id)
        topics = tuple(
            topic.model_copy(update={"embedding": made[". ".join(topic.names)], "embedding_model": model})
            if (topic.embedding_model, len(topic.embedding)) != (model, len(vectors[0]))
            and ". ".join(topic.names) in made
            else topic
            for topic in before.topics
        )
        yield from known.save(store, user_id, before, replace(before, topics=topics))

    yield from locked(known.lock_of(store, user_id), body())
    return len(missing)


# What messages say about what is known


def _with_highlights(topics: Sequence[TopicProfile], work: Work) -> tuple[TopicProfile, ...]:
    """Returns topics with what the user says about them in new messages; questions say nothing."""
    detector = by_names(topics)
    found: defaultdict[str, list[Highlight]] = defaultdict(list)
    for said in work.said:
        if not said.from_user or not detector.named(said.text):
            continue
        source = Source(conversation_id=work.scope.conversation_id, message_id=said.id, digest=said.digest)
        for sentence in sentences_of(said.text):
            if sentence.endswith("?") or not FEWEST_CHARACTERS <= len(sentence) <= MOST_HIGHLIGHT_CHARACTERS:
                continue
            date = said.at.date().isoformat() if said.at else None
            for name in detector.named(sentence):
                found[name].append(Highlight(text=sentence, date=date, source=source))
    return tuple(_with_newest(topic, found[topic.id]) if topic.id in found else topic for topic in topics)


def _with_newest(topic: TopicProfile, new: Sequence[Highlight]) -> TopicProfile:
    newest = {highlight.text: highlight for highlight in reversed((*topic.highlights, *new))}
    return topic.model_copy(update={"highlights": tuple(newest.values())[MOST_HIGHLIGHTS - 1 :: -1]})


def _counted(
    links: Links, profiles: Sequence[Profile], work: Work, new: Collection[str]
) -> tuple[dict[tuple[str, str], TopicConversation], set[str]]:
    """Returns the links with the new messages counted, and the ids of what they are about.

    Older messages are counted, too, for what is known only now, or is named for the first time.
    """
    conversation = work.scope.conversation_id
    first, after, touched = work.first, dict(links), set[str]()
    if work.there is not None:
        first = 0
        for key in [key for key in after if key[1] == conversation]:
            del after[key]
            touched.add(key[0])
    found = _naming(by_names(profiles), work.entries, first)
    uncounted = {*new, *found} - {name for name, where in after if where == conversation}
    fresh = [thing for thing in things(profiles) if thing.id in uncounted] if uncounted else []
    back = max(0, first - LOOK_BACK)
    if fresh and back < first:
        for name, positions in _naming(Detector(fresh), work.entries[:first], back).items():
            found[name] = [*positions, *found.get(name, ())]

    @cache  # a long one names many
    def engagement(position: int) -> Engagement:
        entry = work.entries[position]
        return Engagement(at=time_of(entry), tokens=work.costs[position], from_user=is_user(entry.message))

    for name, positions in found.items():
        key = (name, conversation)
        link = after.get(key, TopicConversation(topic_id=name, conversation_id=conversation))
        if messages := [engagement(position) for position in positions if position >= link.until]:
            after[key] = engaged(link, messages, until=len(work.entries))
            touched.add(name)
    return after, touched


def _naming(detector: Detector, entries: Sequence[Entry], first: int) -> dict[str, list[int]]:
    found: defaultdict[str, list[int]] = defaultdict(list)
    for position in range(first, len(entries)):
        message = entries[position].message
        if message.type in ("human", "ai") and (text := own_words(message)):
            for name in detector.named(text):
                found[name].append(position)
    return found


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

    def without_sources(topic: TopicProfile) -> TopicProfile:
        highlights = tuple(one for one in topic.highlights if kept([one.source]))
        return topic.model_copy(update={"sources": kept(topic.sources), "highlights": highlights})

    def without_details(entity: EntityProfile) -> EntityProfile:
        left = kept(entity.sources)
        is_unsure = len(entity.sources) >= MOST_SOURCES and (entity.id, conversation_id) in state.links
        if left == entity.sources and not is_unsure:
            return entity
        return entity_by_hand(entity).model_copy(update={"sources": left})

    def uncounted(phrase: PhraseRecord) -> PhraseRecord:
        left = kept(phrase.sources)
        lost = len(phrase.sources) - len(left)
        if there and not lost:
            return phrase
        counts = dict(phrase.counts)
        is_known = any(source.conversation_id == conversation_id for source in left)
        counts[conversation_id] = counts.get(conversation_id, 0) - lost if is_known else 0
        some = tuple((name, count) for name, count in counts.items() if count > 0)
        return phrase.model_copy(update={"sources": left, "counts": some})

    return replace(
        _without_facts(state, conversation_id, kept),
        topics=tuple(map(without_sources, state.topics)),
        entities=tuple(map(without_details, state.entities)),
        phrases=tuple(phrase for phrase in map(uncounted, state.phrases) if phrase.counts),
    )


def _without_facts(state: Knowledge, conversation_id: str, kept: Kept) -> Knowledge:
    left = {fact.id: fact for fact in (*state.facts, *state.ended)}
    gone: dict[str, Fact] = {}
    for fact in list(left.values()):
        sources = kept(fact.sources)
        if sources == fact.sources:
            continue
        # What a model has written may say something of every message of a conversation that it comes from.
        said_elsewhere = facts.is_as_first_said(fact) and any(one.conversation_id != conversation_id for one in sources)
        is_lost = not sources or (fact.made_by != BY_RULES and not said_elsewhere)
        if is_lost and not facts.is_kept_by_hand(fact):
            gone[fact.id] = left.pop(fact.id)
        else:
            left[fact.id] = fact.model_copy(update={"sources": sources})
    for fact in list(left.values()):
        by = fact.superseded_by
        while by in gone:
            by = gone[by].superseded_by
        if by != fact.superseded_by:
            back = {} if by else {"ended": None, "ended_at": None, "valid_until": None}
            left[fact.id] = fact.model_copy(update={**back, "superseded_by": by})
    return replace(
        state,
        facts=tuple(fact for fact in left.values() if fact.is_current),
        ended=tuple(fact for fact in left.values() if not fact.is_current),
    )
