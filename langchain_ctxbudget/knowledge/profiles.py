"""Topics and entities: their ids and names, how much they matter, and how learned ones are merged.

Their numbers are sums over one link per conversation, so adding up or merging the same again gives
the same. Days and hours are UTC.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from math import log
from typing import TypeVar

from langchain_ctxbudget.knowledge import records
from langchain_ctxbudget.knowledge.records import (
    ENGLISH,
    EntityProfile,
    LearnedEntity,
    LearnedTopic,
    Profile,
    Source,
    TopicConversation,
    TopicProfile,
)
from langchain_ctxbudget.messages import fold, one_line, terms
from langchain_ctxbudget.stores import utc

P = TypeVar("P", TopicProfile, EntityProfile)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportancePolicy:
    """How the importance of a topic or an entity, 0 to 1, is made up."""

    recency: float = 0.4
    """The weight of how lately it came up."""
    frequency: float = 0.35
    """The weight of how many messages are about it."""
    breadth: float = 0.25
    """The weight of how many conversations are about it."""
    half_life: timedelta = timedelta(days=30)
    """The time after which recency counts half."""
    many_messages: int = 100
    """Messages of which the frequency is full."""
    many_conversations: int = 10
    """Conversations of which the breadth is full."""
    unknown: float = 0.5
    """The importance of what has not come up yet."""


IMPORTANCE = ImportancePolicy()
MOST_DAYS = 100
"""Days that a link remembers, the newest; no streak within one conversation is longer."""
MOST_DETAILS = 12
"""Aliases, attributes, relations and facts that an entity keeps; of more, the newest."""
_SIGNS = {"+": "plus", "#": "sharp", ".": "dot"}
"""The signs that tell "C", "C++" and "C#" apart, and ".NET" from "net"."""


# Names


def slug(label: str) -> str:
    """Returns the folded words of a label, joined by hyphens: "c-plus-plus" for "C++"."""
    spelled_out = ENGLISH.telling_signs.sub(
        lambda match: "".join(f" {_SIGNS[sign]} " for sign in match[0]), fold(label)
    )
    words = "".join(_letter_or_blank(character) for character in spelled_out)
    return "-".join(words.split())


def _letter_or_blank(character: str) -> str:
    """Returns a letter, a digit or a mark on one as it is, and a blank for anything else."""
    return character if unicodedata.category(character)[0] in "LNM" else " "


def is_called(topic: TopicProfile, label: str) -> bool:
    """Returns whether a label has the stems of one of a topic's names, in any order."""
    stems = _stems_of(label)
    return any(_stems_of(name) == stems for name in topic.names)


def _stems_of(name: str) -> tuple[str, ...]:
    """Returns the stems of a name in a fixed order, and the signs that tell it from others."""
    folded = fold(name)
    stems = set(terms(folded)) or {one_line(folded)}
    return (*sorted(stems), *ENGLISH.telling_signs.findall(folded))


def _short(text: str) -> str:
    return one_line(text)[: records.MOST_TEXT_CHARACTERS]


def _aliases_beside(name: str, others: Sequence[str]) -> tuple[str, ...]:
    """Returns other names than the first one, each once, spelled as it was at first."""
    spellings: dict[str, str] = {}
    for other in reversed(others):
        spellings[fold(one_line(other))] = _short(other)
    aliases = [
        spelling for key, spelling in reversed(spellings.items()) if key not in ("", fold(name))
    ]
    return tuple(aliases[:MOST_DETAILS])


# Numbers


@dataclass(frozen=True, slots=True)
class Engagement:
    """A message that names a topic or an entity."""

    at: datetime | None
    tokens: int
    from_user: bool


def engaged(
    link: TopicConversation, messages: Sequence[Engagement], *, until: int = 0
) -> TopicConversation:
    """Returns the link to a conversation with more of its messages counted.

    Args:
        link: What was counted of the conversation so far.
        messages: The messages that name the topic or entity, none of them counted yet.
        until: How many messages of the conversation, from its first, have been looked at then.
    """
    times = [utc(message.at) for message in messages if message.at is not None]
    all_times = [time for time in (link.first_at, link.last_at, *times) if time is not None]
    days = {*link.days, *(time.date().isoformat() for time in times)}
    count = link.messages + len(messages)
    relevance = link.relevance_score
    if until:
        relevance = min(1.0, count / until)
    changes = {
        "messages": count,
        "exchanges": link.exchanges + sum(message.from_user for message in messages),
        "tokens": link.tokens + sum(message.tokens for message in messages),
        "first_at": min(all_times, default=None),
        "last_at": max(all_times, default=None),
        "hours": _hours_with(link.hours, times),
        "days": tuple(sorted(days)[-MOST_DAYS:]),
        "until": max(link.until, until),
        "relevance_score": relevance,
    }
    return link.model_copy(update=changes)


def _hours_with(hours: Sequence[int], times: Iterable[datetime]) -> tuple[int, ...]:
    """Returns how many messages came at each hour of the day, with those of some times added."""
    counts = Counter(dict(enumerate(hours)))
    counts.update(time.hour for time in times)
    if not counts.total():
        return ()
    return tuple(counts[hour] for hour in range(24))


def measured(profile: P, links: Iterable[TopicConversation]) -> P:
    """Returns a topic or an entity with its numbers computed from its conversations."""
    counted = [link for link in links if link.messages]
    first_times = [utc(link.first_at) for link in counted if link.first_at]
    last_times = [utc(link.last_at) for link in counted if link.last_at]
    changes = {
        "total_conversations": len(counted),
        "total_messages": sum(link.messages for link in counted),
        "total_acus": sum(link.exchanges for link in counted),
        "total_tokens_spent": sum(link.tokens for link in counted),
        "first_engaged_at": min(first_times, default=None),
        "last_engaged_at": max(last_times, default=None),
        "engagement_streak": _streak_of(counted),
        "peak_hour": _peak_hour_of(counted),
    }
    return profile.model_copy(update=changes)


def _streak_of(links: Iterable[TopicConversation]) -> int:
    """Returns how many days in a row, up to the last one, something came up."""
    days: set[int] = set()
    for link in links:
        days.update(date.fromisoformat(day).toordinal() for day in link.days)
    last_day = max(days, default=0)
    streak = 0
    while last_day - streak in days:
        streak += 1
    return streak


def _peak_hour_of(links: Iterable[TopicConversation]) -> int | None:
    """Returns the hour of the day with the most messages; None where no message has a time."""
    columns = [link.hours for link in links if link.hours]
    if not columns:
        return None
    totals = [sum(hour) for hour in zip(*columns, strict=True)]
    return totals.index(max(totals))


def as_of(profile: P, now: datetime) -> P:
    """Returns a topic or an entity with its importance at a time."""
    return profile.model_copy(update={"importance_score": importance_at(profile, now)})


def importance_at(profile: Profile, now: datetime) -> float:
    """Returns the importance of a topic or an entity at a time, 0 to 1; that of a pinned one is 1.

    `0.4 * recency + 0.35 * frequency + 0.25 * breadth`, each at most 1:
    `0.5 ** (days since the last time / 30)`, `log(1 + messages) / log(101)`, `conversations / 10`.
    """
    if profile.pinned:
        return 1.0
    if not profile.total_messages:
        return IMPORTANCE.unknown

    recency = 0.0
    if profile.last_engaged_at:
        age = max(utc(now) - utc(profile.last_engaged_at), timedelta())
        recency = float(0.5 ** (age / IMPORTANCE.half_life))
    most = log(1 + IMPORTANCE.many_messages)
    frequency = min(1.0, log(1 + profile.total_messages) / most)
    breadth = min(1.0, profile.total_conversations / IMPORTANCE.many_conversations)
    return (
        IMPORTANCE.recency * recency
        + IMPORTANCE.frequency * frequency
        + IMPORTANCE.breadth * breadth
    )


# Learned topics


def merge_topics(
    known: Iterable[TopicProfile],
    learned: records.Learned,
    sources: Mapping[str, Source],
    now: datetime,
) -> tuple[TopicProfile, ...]:
    """Returns the known topics with the learned ones merged into them.

    Two topics are the same if one is called by any name of the other. A topic that names no message
    of `sources` is not learned.
    """
    topics = {topic.slug: topic for topic in known}
    for note in learned.topics:
        topic = _merged_topic(note, topics, learned.made_by, sources, now)
        if topic is not None:
            topics[topic.slug] = topic
    for note in learned.topics:
        child = _topic_called(note.label, topics)
        parent = _topic_called(note.parent, topics)
        if child and parent and _can_be_part_of(child, parent):
            topics[child.slug] = child.model_copy(update={"parent_slug": parent.slug})
    return tuple(topics.values())


def _merged_topic(
    note: LearnedTopic,
    topics: Mapping[str, TopicProfile],
    made_by: str,
    sources: Mapping[str, Source],
    now: datetime,
) -> TopicProfile | None:
    """Returns the topic of a note, with what the note adds; None where it says nothing usable."""
    note_sources = _sources_of(note, sources)
    label = _short(note.label)
    key = slug(label)
    if not note_sources or not key:
        return None

    topic = _topic_called(label, topics)
    if topic is None:
        topic = TopicProfile(
            id=f"topic/{key}", slug=key, label=label, made_by=made_by, created_at=now
        )
    changes: dict[str, object] = {
        "aliases": _aliases_beside(topic.label, (*topic.aliases, *note.aliases, note.label))
    }
    is_new = not set(note_sources) <= set(topic.sources)
    if is_new and topic.made_by != records.BY_USER:
        if note.domain:
            changes["domain"] = note.domain
        if note.proficiency != "unknown":
            changes["proficiency_level"] = note.proficiency
    return _changed(topic, changes, note_sources, now)


def _topic_called(label: str, topics: Mapping[str, TopicProfile]) -> TopicProfile | None:
    """Returns the topic with the slug of a label, else the first one that is called so."""
    topic = topics.get(slug(label))
    if topic is not None or not label:
        return topic
    return next((topic for topic in topics.values() if is_called(topic, label)), None)


def _can_be_part_of(child: TopicProfile, parent: TopicProfile) -> bool:
    """Returns whether a topic without a parent can get one, so that neither is part of itself."""
    return not child.parent_slug and child.slug not in (parent.slug, parent.parent_slug)


# Learned entities


def merge_entities(
    known: Iterable[EntityProfile],
    learned: records.Learned,
    sources: Mapping[str, Source],
    now: datetime,
) -> tuple[EntityProfile, ...]:
    """Returns the known entities with the learned ones merged into them.

    Two are the same if they share a name and are of one type, or one of them is only a concept. A
    first name alone is a known person where no other known one has it. What was written by hand
    stays as it is.
    """
    entities = {entity.id: entity for entity in known}
    for note in learned.entities:
        entity = _merged_entity(note, entities, learned.made_by, sources, now)
        if entity is not None:
            entities[entity.id] = entity
    return tuple(entities.values())


def _merged_entity(
    note: LearnedEntity,
    entities: Mapping[str, EntityProfile],
    made_by: str,
    sources: Mapping[str, Source],
    now: datetime,
) -> EntityProfile | None:
    """Returns the entity of a note, with what the note adds; None where it says nothing usable."""
    note_sources = _sources_of(note, sources)
    name = _short(note.name)
    if not note_sources or not name:
        return None

    key = f"entity/{note.type}/{one_line(fold(name))}"
    entity = _same_entity(note, name, entities.values()) or entities.get(key)
    if entity is None:
        entity = EntityProfile(id=key, name=name, type=note.type, made_by=made_by, created_at=now)
    changes: dict[str, object] = {}
    if entity.made_by != records.BY_USER:
        changes = _details_of(note, name, entity)
    return _changed(entity, changes, note_sources, now)


def _details_of(note: LearnedEntity, name: str, entity: EntityProfile) -> dict[str, object]:
    """Returns the fields of an entity after what a note says of it; of a person the longer name."""
    entity_type = note.type if entity.type == "concept" else entity.type
    best_name = entity.name
    if entity.type == "person" and len(name.split()) > len(entity.name.split()):
        best_name = name
    attributes = dict(entity.attributes)
    attributes.update((attribute, _short(value)) for attribute, value in note.attributes)
    relations = dict.fromkeys((*entity.relations, *note.relations))
    sentences = dict.fromkeys((*entity.facts, *map(_short, note.facts)))
    return {
        "name": best_name,
        "type": entity_type,
        "aliases": _aliases_beside(best_name, (*entity.aliases, *note.aliases, entity.name, name)),
        "relationship": note.relationship or entity.relationship,
        "attributes": tuple(attributes.items())[-MOST_DETAILS:],
        "relations": tuple(relations)[-MOST_DETAILS:],
        "facts": tuple(sentences)[-MOST_DETAILS:],
    }


def _same_entity(
    note: LearnedEntity, name: str, entities: Iterable[EntityProfile]
) -> EntityProfile | None:
    """Returns the known entity that a note is about, by any of its names; None where it is new."""
    candidates = [entity for entity in entities if _may_be(entity, note)]
    names = {fold(one) for one in (name, *note.aliases)}
    for entity in candidates:
        if not names.isdisjoint(map(fold, entity.names)):
            return entity
    if note.type != "person":
        return None
    people = [entity for entity in candidates if entity.type == "person"]
    namesakes = list(_namesakes(fold(name), people))
    return namesakes[0] if len(namesakes) == 1 else None


def _may_be(entity: EntityProfile, note: LearnedEntity) -> bool:
    """Returns whether an entity may be the one of a note, by their types.

    A concept may turn out to be anything, but nobody's brother is somebody's cat.
    """
    if entity.type == note.type:
        return True
    if note.relationship and entity.relationship and note.relationship != entity.relationship:
        return False
    return "concept" in (entity.type, note.type)


def _namesakes(name: str, people: Iterable[EntityProfile]) -> Iterator[EntityProfile]:
    """Yields the people of whom one name is the first name: "Sarah" and "Sarah Chen"."""
    first_name, *rest = name.split()
    for person in people:
        known_name = fold(person.name)
        compared = known_name if rest else known_name.split()[0]
        if compared == first_name:
            yield person


# What both have in common


def _sources_of(note: LearnedTopic | LearnedEntity, sources: Mapping[str, Source]) -> list[Source]:
    return [sources[key] for key in note.message_ids if key in sources]


def _changed(
    profile: P, changes: Mapping[str, object], note_sources: Iterable[Source], now: datetime
) -> P:
    """Returns a profile with other fields and more sources, updated now if anything changes."""
    all_sources = records.joined(profile.sources, note_sources)
    changed = profile.model_copy(update={**changes, "sources": all_sources})
    if changed == profile:
        return profile
    return changed.model_copy(update={"updated_at": now})
