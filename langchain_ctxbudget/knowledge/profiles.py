"""Topics and entities: their ids, what is learned of them, and their numbers, added up from one link per conversation.

Adding up or merging again gives the same. Days and hours are UTC.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from math import log
from typing import NamedTuple, TypeVar

from langchain_ctxbudget.knowledge.records import (
    BY_USER,
    EntityProfile,
    EntityType,
    Learned,
    LearnedEntity,
    Source,
    TopicConversation,
    TopicProfile,
    joined,
)
from langchain_ctxbudget.messages import fold, one_line, terms
from langchain_ctxbudget.stores import utc

P = TypeVar("P", TopicProfile, EntityProfile)

MOST_DAYS = 100
"""Days that a link remembers, the newest; no streak within one conversation is longer."""
RECENCY, FREQUENCY, BREADTH = 0.4, 0.35, 0.25
"""What each counts in importance."""
HALF_LIFE = timedelta(days=30)
MANY_MESSAGES, MANY_CONVERSATIONS = 100, 10
"""So many are as good as more."""
MOST_ITEMS = 12
"""Aliases, attributes, relations and facts of an entity; of more, the newest."""
MOST_CHARACTERS = 200
"""Of a name, and of one text about an entity."""

_SIGNS = {"+": "plus", "#": "sharp", ".": "dot"}
_TELLING_SIGNS = re.compile(r"[+#]+|(?<![^\W_])\.(?=[^\W_])")
"""What tells "C", "C++" and "C#" apart, and ".NET" from "net"."""


def slug(label: str) -> str:
    """Returns folded words joined by hyphens; "C" and "C++" have different slugs.

    >>> slug("Home brewing"), slug("C++"), slug(".NET")
    ('home-brewing', 'c-plus-plus', 'dot-net')
    """
    folded = _TELLING_SIGNS.sub(lambda found: "".join(f" {_SIGNS[sign]} " for sign in found[0]), fold(label))
    words = "".join(character if unicodedata.category(character)[0] in "LNM" else " " for character in folded).split()
    return "-".join(words or (f"u{ord(character):x}" for character in one_line(folded)))


def topic_id(slug: str) -> str:
    """Returns the id of the topic with a slug."""
    return f"topic/{slug}"


def entity_id(entity_type: EntityType, name: str) -> str:
    """Returns the id of an entity, the same one in any case and spacing.

    >>> entity_id("person", "Sarah  Chen")
    'entity/person/sarah chen'
    """
    return f"entity/{entity_type}/{one_line(fold(name))}"


# Numbers


class Engagement(NamedTuple):
    """A message that names a topic or an entity."""

    at: datetime | None
    """The time of the message; without an offset, UTC."""
    tokens: int
    from_user: bool


def engaged(link: TopicConversation, messages: Sequence[Engagement], *, until: int = 0) -> TopicConversation:
    """Returns a link with more messages of its conversation; `until` of its messages are counted then."""
    times = [utc(message.at) for message in messages if message.at is not None]
    known = [time for time in (link.first_at, link.last_at, *times) if time is not None]
    hours = Counter(dict(enumerate(link.hours))) + Counter(time.hour for time in times)
    counted = link.messages + len(messages)
    return link.model_copy(
        update={
            "messages": counted,
            "exchanges": link.exchanges + sum(message.from_user for message in messages),
            "tokens": link.tokens + sum(message.tokens for message in messages),
            "first_at": min(known, default=None),
            "last_at": max(known, default=None),
            "hours": tuple(hours[hour] for hour in range(24)) if hours else (),
            "days": tuple(sorted({*link.days, *(time.date().isoformat() for time in times)})[-MOST_DAYS:]),
            "until": max(link.until, until),
            "relevance_score": min(1.0, counted / until) if until else link.relevance_score,
        }
    )


def measured(profile: P, links: Iterable[TopicConversation], now: datetime) -> P:
    """Returns a topic or an entity with its numbers computed from its conversations, and its importance now."""
    counted = [link for link in links if link.messages]
    hours = [sum(column) for column in zip(*(link.hours for link in counted if link.hours), strict=True)]
    days = {date.fromisoformat(day).toordinal() for link in counted for day in link.days}
    last_day = max(days, default=0)
    renewed = profile.model_copy(
        update={
            "total_conversations": len(counted),
            "total_messages": sum(link.messages for link in counted),
            "total_acus": sum(link.exchanges for link in counted),
            "total_tokens_spent": sum(link.tokens for link in counted),
            "first_engaged_at": min((utc(link.first_at) for link in counted if link.first_at), default=None),
            "last_engaged_at": max((utc(link.last_at) for link in counted if link.last_at), default=None),
            "engagement_streak": next(length for length in range(len(days) + 1) if last_day - length not in days),
            "peak_hour": hours.index(max(hours)) if hours else None,
        }
    )
    return as_of(renewed, now)


def as_of(profile: P, now: datetime) -> P:
    """Returns a topic or an entity with its importance at a time instead of when it was counted last."""
    return profile.model_copy(update={"importance_score": importance_at(profile, now)})


def importance_at(profile: TopicProfile | EntityProfile, now: datetime) -> float:
    """Returns the importance of a topic or an entity at a time, 0 to 1; that of a pinned one is 1.

    `0.4 * recency + 0.35 * frequency + 0.25 * breadth`, with

    - recency: `0.5 ** (days since the last time / 30)`; 0 where no message has a time;
    - frequency: `log(1 + messages) / log(101)`, at most 1;
    - breadth: `conversations / 10`, at most 1.
    """
    if profile.pinned:
        return 1.0
    last = profile.last_engaged_at
    ago = max(utc(now) - utc(last), timedelta()) if last else timedelta.max
    frequency = min(1.0, log(1 + profile.total_messages) / log(1 + MANY_MESSAGES))
    breadth = min(1.0, profile.total_conversations / MANY_CONVERSATIONS)
    return RECENCY * float(0.5 ** (ago / HALF_LIFE)) + FREQUENCY * frequency + BREADTH * breadth


# What is learned of them


def merge_topics(
    known: Sequence[TopicProfile], learned: Learned, sources: Mapping[str, Source], now: datetime
) -> tuple[TopicProfile, ...]:
    """Merges learned topics into the known ones; one is the same under any of its names."""
    topics = {topic.slug: topic for topic in known}
    for new in learned.topics:
        came_from, label = _found(new.message_ids, sources), _short(new.label)
        if not slug(label) or not came_from:
            continue
        old = _topic(topics, label) or TopicProfile(
            id=topic_id(slug(label)), slug=slug(label), label=label, made_by=learned.made_by, created_at=now
        )
        changes: dict[str, object] = {}
        if old.made_by != BY_USER and new.domain:
            changes["domain"] = new.domain
        if old.made_by != BY_USER and new.proficiency and not {*came_from} <= {*old.sources}:
            changes["proficiency_level"] = new.proficiency
        changes["aliases"] = _names(old.label, (*old.aliases, *new.aliases, new.label))
        topics[old.slug] = _changed(old, changes, came_from, now)
    for new in learned.topics:
        child, parent = _topic(topics, new.label), _topic(topics, new.parent or "")
        if child and parent and child.parent_slug is None and child.slug not in line_above(parent, topics):
            topics[child.slug] = child.model_copy(update={"parent_slug": parent.slug})
    return tuple(topics.values())


def _topic(topics: Mapping[str, TopicProfile], label: str) -> TopicProfile | None:
    if not label:
        return None
    return topics.get(slug(label)) or next((topic for topic in topics.values() if is_called(topic, label)), None)


def is_called(topic: TopicProfile, label: str) -> bool:
    """Returns whether a label has the stems of one of a topic's names, in any order."""
    return _key(label) in map(_key, topic.names)


def _key(label: str) -> tuple[str, ...]:
    folded = fold(label)
    return (*sorted(set(terms(folded)) or {one_line(folded)}), *_TELLING_SIGNS.findall(folded))


def line_above(topic: TopicProfile, by_slug: Mapping[str, TopicProfile]) -> set[str]:
    """Returns the slugs of a topic and of everything above it."""
    found: set[str] = set()
    above: TopicProfile | None = topic
    while above is not None and above.slug not in found:
        found.add(above.slug)
        above = by_slug.get(above.parent_slug or "")
    return found


def merge_entities(
    known: Sequence[EntityProfile], learned: Learned, sources: Mapping[str, Source], now: datetime
) -> tuple[EntityProfile, ...]:
    """Merges learned entities into the known ones; what was said of one by hand stays.

    It is the same one if a name of one is a name of the other and they are of one type, or one of them is only a
    concept. A person's first name is that person where no other known one has it.
    """
    entities = {entity.id: entity for entity in known}
    for new in learned.entities:
        came_from, name = _found(new.message_ids, sources), _short(new.name)
        if not name or not came_from:
            continue
        key = entity_id(new.type, name)
        old = _same_entity(entities.values(), new, name) or entities.get(key)
        old = old or EntityProfile(id=key, name=name, type=new.type, made_by=learned.made_by, created_at=now)
        if old.made_by == BY_USER:  # what was written by hand stays as it is
            entities[old.id] = _changed(old, {}, came_from, now)
            continue
        longer = old.type == "person" and len(name.split()) > len(old.name.split())
        shown = name if longer else old.name
        said, told = dict(old.attributes), {key: _short(value) for key, value in new.attributes}
        changes: dict[str, object] = {
            "name": shown,
            "type": new.type if old.type == "concept" else old.type,
            "aliases": _names(shown, (*old.aliases, *new.aliases, old.name, name)),
            "relationship": new.relationship or old.relationship,
            "attributes": tuple((said | told).items())[-MOST_ITEMS:],
            "relations": tuple(dict.fromkeys((*old.relations, *new.relations)))[-MOST_ITEMS:],
            "facts": tuple(dict.fromkeys((*old.facts, *filter(None, map(_short, new.facts)))))[-MOST_ITEMS:],
        }
        entities[old.id] = _changed(old, changes, came_from, now)
    return tuple(entities.values())


def _same_entity(known: Iterable[EntityProfile], new: LearnedEntity, name: str) -> EntityProfile | None:
    names = {fold(one) for one in (name, *new.aliases)}
    alike = [entity for entity in known if entity.type == new.type or "concept" in (entity.type, new.type)]
    for entity in alike:
        if names & set(map(fold, entity.names)):
            return entity
    if new.type != "person":
        return None
    first, *rest = fold(name).split()
    # "Sarah Chen", where "Sarah" is known, or the other way round.
    people = [(entity, fold(entity.name)) for entity in alike if entity.type == "person"]
    namesakes = [entity for entity, called in people if (called if rest else called.split()[0]) == first]
    return namesakes[0] if len(namesakes) == 1 else None


def _found(message_ids: Iterable[str], sources: Mapping[str, Source]) -> list[Source]:
    return [sources[key] for key in dict.fromkeys(message_ids) if key in sources]


def _short(text: str) -> str:
    return one_line(text)[:MOST_CHARACTERS]


def _names(label: str, others: Sequence[str]) -> tuple[str, ...]:
    found = {fold(one_line(other)): _short(other) for other in reversed(others)}
    return tuple(name for key, name in reversed(found.items()) if key not in ("", fold(label)))[:MOST_ITEMS]


def _changed(old: P, changes: Mapping[str, object], came_from: Iterable[Source], now: datetime) -> P:
    new = old.model_copy(update={**changes, "sources": joined(old.sources, came_from)})
    return old if new == old else new.model_copy(update={"updated_at": now})
