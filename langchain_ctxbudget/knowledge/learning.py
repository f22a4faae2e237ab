"""What is known after messages were learned from, and after some are gone; how texts of it are compiled.

Everything here can be done twice: sources are sets, counts are absolute numbers per conversation, and progress is
written last. A process that is killed in between learns the same messages once more, to the same effect.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeVar

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.store.base import BaseStore

from langchain_ctxbudget.background import cached_property
from langchain_ctxbudget.history import Beginning, Entry
from langchain_ctxbudget.knowledge import facts, known
from langchain_ctxbudget.knowledge.bundles import Compiler
from langchain_ctxbudget.knowledge.known import Knowledge, by_names
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
from langchain_ctxbudget.messages import fold, is_user, own_words, units
from langchain_ctxbudget.stores import Scope, utc
from langchain_ctxbudget.tokens import estimate_tokens

P = TypeVar("P", TopicProfile, EntityProfile)

MOST_MARKS = 32
BEFORE_MESSAGES = 4
"""Messages before the new ones that a model is shown, to understand them."""
LOOK_BACK = 1_000
"""Messages before the new ones that tell who else writes."""
MOST_FACTS = 10
"""Facts of the user that one bundle is offered."""
MOST_PROFILES = 1_000
"""Topics, and entities, of one user; of more, the least important ones go."""
MOST_HIGHLIGHTS = 4
"""Of a topic; of more, the newest."""
FEWEST_CHARACTERS, MOST_HIGHLIGHT_CHARACTERS = 20, 160
"""A shorter sentence says little, a longer one is left to retrieval."""

_WORD = re.compile(r"[^\W_]+")


# The messages that are learned from


@dataclass(frozen=True, kw_only=True)
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

    @cached_property
    def said(self) -> list[Said]:
        """The words in them that may be learned from."""
        return self._said(self.first, len(self.entries))

    @property
    def before(self) -> list[Said]:
        """The messages right before them."""
        return self._said(max(0, self.first - BEFORE_MESSAGES), self.first)

    def _said(self, first: int, end: int) -> list[Said]:
        others = others_in(self.entries[max(0, self.first - LOOK_BACK) :], self.scope.user_id)
        return as_said(self.entries[first:end], others)

    def until_said(self, count: int) -> Work:
        """The same, up to the `count`th of the messages that say something; what follows is for the next time."""
        if count >= len(self.said):
            return self
        places = range(self.first, len(self.entries))
        end = next(place for place in places if self.entries[place].id == self.said[count].id)
        return replace(self, entries=Beginning(self.entries, end))

    @property
    def done(self) -> ProgressRecord | None:
        """The progress once they were learned from: the newest marks, and fewer of the older ones."""
        if not self.entries:
            return None
        before = [mark for mark in self.progress.marks if fits(self.entries, mark)]
        if len(before) >= MOST_MARKS:
            before[: MOST_MARKS // 2] = before[: MOST_MARKS // 2 : 2]
        last = len(self.entries), self.entries[-1].digest
        return ProgressRecord(position=last[0], marks=(*before, last))


def fits(entries: Sequence[Entry], mark: tuple[int, str]) -> bool:
    """Returns whether nothing before a mark of progress has changed since."""
    position, digest = mark
    return 0 < position <= len(entries) and entries[position - 1].digest == digest


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


def as_said(entries: Sequence[Entry], others: Collection[str] = ()) -> list[Said]:
    """Returns messages as an extraction reads them: words of people and of the assistant, and nothing else."""
    read: list[Said] = []
    for entry in entries:
        message = entry.message
        text = own_words(message) if isinstance(message, HumanMessage | AIMessage) else ""
        if text and entry.preservation != "drop":
            from_user = is_user(message) and message.name not in others
            digest, at = entry.fingerprint, time_of(entry)
            read.append(Said(id=entry.id, digest=digest, text=text, from_user=from_user, speaker=entry.speaker, at=at))
    return read


def time_of(entry: Entry) -> datetime | None:
    """Returns the time of a message that tells it; UTC where it names no offset."""
    try:
        at = datetime.fromisoformat(str(entry.message.additional_kwargs.get("created_at")))
        return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    except (ValueError, OverflowError):  # no date, or one that is another day, of no year that there is, in UTC
        return None


# What they say is merged


def updated(state: Knowledge, work: Work, learned: Learned, now: datetime) -> Knowledge:
    """Returns the state after some messages."""
    conversation = work.scope.conversation_id
    said_at = {one.id: one.at for one in work.said if one.at}
    # What an assistant or somebody else says teaches nothing, whatever a model makes of it.
    own = {
        one.id: Source(conversation_id=conversation, message_id=one.id, digest=one.digest)
        for one in work.said
        if one.from_user
    }
    every = facts.learn((*state.facts, *state.ended), learned.facts, own, now, learned.made_by, said_at=said_at)
    after = replace(
        state.with_facts(facts.pruned(every, now)),
        topics=merge_topics(state.topics, learned, own, now),
        entities=merge_entities(state.entities, learned, own, now),
    )
    after = _counted(_with_highlights(after, work, own), work)
    both = {**after.links, **state.links}
    links = {name for (name, at) in both if state.links.get((name, at)) != after.links.get((name, at))}
    after = measured_again(after, links | changed(state, after), now)
    topics, entities = _most_important(after.topics, now), _most_important(after.entities, now)
    kept = {profile.id for profile in (*topics, *entities)}
    left = {key: link for key, link in after.links.items() if key[0] in kept}
    return replace(after, topics=topics, entities=entities, links=left)


def changed(before: Knowledge, after: Knowledge) -> set[str]:
    """Returns the ids of the topics and entities that are not as they were."""
    old = {profile.id: profile for profile in before.profiles}
    return {profile.id for profile in after.profiles if old.get(profile.id) != profile}


def measured_again(state: Knowledge, ids: Collection[str], now: datetime) -> Knowledge:
    """Returns the state with new metrics of some topics and entities, without those that nothing speaks for."""
    of: dict[str, list[TopicConversation]] = {name: [] for name in ids}
    for (name, _), link in state.links.items():
        if name in of:
            of[name].append(link)

    def stays(profile: Profile) -> bool:
        return bool(profile.sources or profile.total_messages or profile.pinned or profile.made_by == BY_USER)

    topics = (measured(topic, of[topic.id], now) if topic.id in of else topic for topic in state.topics)
    entities = (measured(entity, of[entity.id], now) if entity.id in of else entity for entity in state.entities)
    return replace(state, topics=tuple(filter(stays, topics)), entities=tuple(filter(stays, entities)))


def _most_important(profiles: tuple[P, ...], now: datetime) -> tuple[P, ...]:
    ranked = sorted(profiles, key=lambda p: (not p.pinned, p.made_by != BY_USER, -importance_at(p, now), p.id))
    gone = {profile.id for profile in ranked[MOST_PROFILES:]}
    return tuple(profile for profile in profiles if profile.id not in gone)


def _with_highlights(state: Knowledge, work: Work, own: Mapping[str, Source]) -> Knowledge:
    """Returns a state with what the user says about topics in new messages; questions say nothing."""
    detector = by_names(state.topics)
    found: defaultdict[str, dict[str, Highlight]] = defaultdict(dict)
    for said in (one for one in work.said if one.from_user and detector.named(one.text)):
        date = said.at.date().isoformat() if said.at else None
        for sentence in units(said.text):
            if FEWEST_CHARACTERS <= len(sentence) <= MOST_HIGHLIGHT_CHARACTERS and not sentence.endswith("?"):
                for name in detector.named(sentence):
                    found[name].pop(sentence, None)
                    found[name][sentence] = Highlight(text=sentence, date=date, source=own[said.id])

    def highlighted(topic: TopicProfile) -> TopicProfile:
        new = found[topic.id]
        every = (*(one for one in topic.highlights if one.text not in new), *new.values())
        return topic.model_copy(update={"highlights": every[-MOST_HIGHLIGHTS:]}) if new else topic

    return replace(state, topics=tuple(map(highlighted, state.topics)))


def _counted(state: Knowledge, work: Work) -> Knowledge:
    """Returns a state with links in which the new messages are counted; all of them where some have changed."""
    conversation, detector = work.scope.conversation_id, by_names(state.profiles)
    first, links = work.first, dict(state.links)
    if work.there is not None:
        first, links = 0, {key: link for key, link in links.items() if key[1] != conversation}
    found: defaultdict[str, list[Engagement]] = defaultdict(list)
    for position in range(first, len(work.entries)):
        entry = work.entries[position]
        text = own_words(entry.message) if isinstance(entry.message, HumanMessage | AIMessage) else ""
        for name in detector.named(text) if text else ():
            link = links.get((name, conversation))
            if link is None or position >= link.until:
                tokens, from_user = work.costs[position], is_user(entry.message)
                found[name].append(Engagement(at=time_of(entry), tokens=tokens, from_user=from_user))
    for name, messages in found.items():
        new = TopicConversation(topic_id=name, conversation_id=conversation)
        link = links.get((name, conversation), new)
        links[name, conversation] = engaged(link, messages, until=len(work.entries))
    return replace(state, links=links)


# What is known without some messages


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

    def of_topic(topic: TopicProfile) -> TopicProfile:
        highlights = tuple(one for one in topic.highlights if kept([one.source]))
        return topic.model_copy(update={"sources": kept(topic.sources), "highlights": highlights})

    def of_entity(entity: EntityProfile) -> EntityProfile:
        left = kept(entity.sources)
        is_unsure = len(entity.sources) >= MOST_SOURCES and (entity.id, conversation_id) in state.links
        if left == entity.sources and not is_unsure:
            return entity
        lost = {} if entity.made_by == BY_USER else {name: EntityProfile.model_fields[name].default for name in DETAILS}
        return entity.model_copy(update={"sources": left, **lost})

    def of_phrase(phrase: PhraseRecord) -> PhraseRecord:
        left = kept(phrase.sources)
        days = tuple(day for one, day in zip(phrase.sources, phrase.days, strict=False) if one in left)
        return phrase.model_copy(update={"sources": left, "days": days})

    def is_lost(fact: Fact) -> bool:
        left = kept(fact.sources)
        # What a model has written may say something of every message of a conversation that it comes from.
        elsewhere = facts.is_as_first_said(fact) and any(one.conversation_id != conversation_id for one in left)
        unsure = not left or (fact.made_by != BY_RULES and not elsewhere)
        return left != fact.sources and unsure and not facts.is_kept_by_hand(fact)

    every = (*state.facts, *state.ended)
    gone = {fact.id: fact.superseded_by for fact in every if is_lost(fact)}

    def of_fact(fact: Fact) -> Fact:
        by = fact.superseded_by
        while by in gone:
            by = gone[by]
        back = {"ended": None, "ended_at": None} if by is None and fact.superseded_by else {}
        return fact.model_copy(update={**back, "superseded_by": by, "sources": kept(fact.sources)})

    return replace(
        state.with_facts(of_fact(fact) for fact in every if fact.id not in gone),
        topics=tuple(map(of_topic, state.topics)),
        entities=tuple(map(of_entity, state.entities)),
        phrases=tuple(phrase for phrase in map(of_phrase, state.phrases) if phrase.sources),
    )


DETAILS = ("relationship", "aliases", "facts", "attributes", "relations")
"""The fields of an entity that are said of it."""


# Texts


def compiled(store: BaseStore, user_id: str, state: Knowledge, now: datetime) -> Knowledge:
    """Returns the state with every missing, changed or expired bundle compiled, and uses counted.

    A fact belongs to the topics and entities that it names.
    """
    compiler = Compiler(now=now, count=estimate_tokens, old=state.bundles)
    about = _facts_about(state.profiles, state.facts)
    by_slug = {topic.slug: topic for topic in state.topics}
    parts: defaultdict[str | None, list[TopicProfile]] = defaultdict(list)
    for child in sorted(state.topics, key=lambda topic: (-importance_at(topic, now), topic.id)):
        parts[child.parent_slug].append(child)
    made = [
        *(
            compiler.topic(topic, about[topic.id], by_slug.get(topic.parent_slug or ""), parts[topic.slug])
            for topic in state.topics
        ),
        *(compiler.entity(entity, about[entity.id]) for entity in state.entities),
        compiler.of_facts("identity_core", facts.ranked(state.facts)),
        compiler.of_facts("global_prefs", facts.ranked(state.facts)),
    ]
    texts = {text.id: text for text in made if "/" in text.id or text.compiled_prompt}
    hits, misses = known.take_use(store, user_id)
    for key in texts.keys() & (hits.keys() | misses.keys()):
        old = texts[key]
        counts = {"hit_count": old.hit_count + hits[key], "miss_count": old.miss_count + misses[key]}
        texts[key] = old.model_copy(update={**counts, "last_used_at": now})

    def clean(profile: P) -> P:
        """Returns a profile whose bundle is up to date: the same object where it was already."""
        version = texts[profile.id].version
        if not profile.is_dirty and profile.context_version == version:
            return profile
        return profile.model_copy(update={"is_dirty": False, "context_version": version})

    return replace(
        state, topics=tuple(map(clean, state.topics)), entities=tuple(map(clean, state.entities)), bundles=texts
    )


def _facts_about(profiles: Iterable[Profile], given: Iterable[Fact]) -> defaultdict[str, list[Fact]]:
    """Returns the facts that name each profile: pinned ones, then the surest, then the newest."""
    detector = by_names(profiles)
    about: defaultdict[str, list[Fact]] = defaultdict(list)
    for fact in sorted(given, key=lambda f: (not f.pinned, -f.confidence, -utc(f.last_seen).timestamp(), f.id)):
        for name in detector.named(fact.text):
            if len(about[name]) < MOST_FACTS:
                about[name].append(fact)
    return about
