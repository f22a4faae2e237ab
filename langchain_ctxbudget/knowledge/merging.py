"""Topics and entities that were learned, taken into those that are known: the same one is updated, not added again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

from langchain_ctxbudget.knowledge.learned import Learned, LearnedEntity, LearnedTopic
from langchain_ctxbudget.knowledge.profiles import entity_id, similar, slug, topic_id
from langchain_ctxbudget.knowledge.records import BY_USER, MOST_SOURCES, EntityProfile, Source, TopicProfile
from langchain_ctxbudget.messages.text import fold, one_line

Profile = TypeVar("Profile", TopicProfile, EntityProfile)

MOST_ALIASES = 12
MOST_FACTS = 12
"""What is remembered to be said about an entity; of more, the newest."""
MOST_ATTRIBUTES = MOST_RELATIONS = 12
MOST_RELATED_MESSAGES = 20
MOST_SIGNALS = 10
MOST_CHARACTERS = 200
"""Of one text about an entity."""


def merge_topics(
    known: Sequence[TopicProfile], learned: Learned, sources: Mapping[str, Source], now: datetime
) -> tuple[TopicProfile, ...]:
    """Merges learned topics into the known ones; one is the same under any of its names."""
    topics = {topic.id: topic for topic in known}
    for new in learned.topics:
        came_from = _found(new.message_ids, sources)
        label = one_line(new.label)[:MOST_CHARACTERS]
        if not slug(label) or not came_from:
            continue
        old = topics.get(topic_id(slug(label))) or _similar(topics.values(), label)
        if old is None:
            old = TopicProfile(
                id=topic_id(slug(label)), slug=slug(label), label=label, made_by=learned.made_by, created_at=now
            )
        topics[old.id] = _updated_topic(old, new, came_from, now)
    return tuple(_with_parents(topics.values(), learned.topics))


def _similar(topics: Iterable[TopicProfile], label: str) -> TopicProfile | None:
    wanted = TopicProfile(id=topic_id(slug(label)), slug=slug(label), label=label)
    return next((topic for topic in topics if similar(topic, wanted)), None)


def _updated_topic(old: TopicProfile, new: LearnedTopic, came_from: Sequence[Source], now: datetime) -> TopicProfile:
    changes: dict[str, object] = {
        "aliases": _names(old.label, (*old.aliases, *new.aliases, new.label)),
        "sources": _joined(old.sources, came_from),
        "related_acu_ids": _newest(
            (*old.related_acu_ids, *(f"{one.conversation_id}/{one.message_id}" for one in came_from)),
            MOST_RELATED_MESSAGES,
        ),
    }
    is_news = not {*came_from} <= {*old.sources}
    if new.domain and old.made_by != BY_USER:
        changes["domain"] = new.domain
    if new.proficiency and is_news and old.made_by != BY_USER:
        changes["proficiency_signals"] = (*old.proficiency_signals, new.proficiency)[-MOST_SIGNALS:]
    return _changed(old, changes, now)


def _with_parents(topics: Iterable[TopicProfile], learned: Sequence[LearnedTopic]) -> list[TopicProfile]:
    by_slug = {topic.slug: topic for topic in topics}
    for new in learned:
        if not new.parent:
            continue
        child = by_slug.get(slug(new.label)) or _similar(by_slug.values(), new.label)
        parent = by_slug.get(slug(new.parent)) or _similar(by_slug.values(), new.parent)
        if child and parent and child.parent_slug is None and child.slug not in line_above(parent, by_slug):
            by_slug[child.slug] = child.model_copy(update={"parent_slug": parent.slug, "is_dirty": True})
    return list(by_slug.values())


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
    """Merges learned entities into the known ones.

    It is the same one if a name of one is a name of the other and they are of one type, or one of them is only a
    concept. A person's first name is that person where no other known one has it.
    """
    entities = {entity.id: entity for entity in known}
    for new in learned.entities:
        came_from = _found(new.message_ids, sources)
        name = one_line(new.name)[:MOST_CHARACTERS]
        if not name or not came_from:
            continue
        old = _same_entity(entities.values(), new, name) or entities.get(entity_id(new.type, name))
        if old is None:
            old = EntityProfile(
                id=entity_id(new.type, name), name=name, type=new.type, made_by=learned.made_by, created_at=now
            )
        entities[old.id] = _updated_entity(old, new, name, came_from, now)
    return tuple(entities.values())


def _same_entity(known: Iterable[EntityProfile], new: LearnedEntity, name: str) -> EntityProfile | None:
    names = {fold(one) for one in (name, *new.aliases)}
    alike = [entity for entity in known if entity.type == new.type or "concept" in (entity.type, new.type)]
    for entity in alike:
        if names & {fold(one) for one in (entity.name, *entity.aliases)}:
            return entity
    if new.type != "person":
        return None
    people = [entity for entity in alike if entity.type == "person"]
    first, *rest = fold(name).split()
    if rest:  # "Sarah Chen", where "Sarah" is known
        namesakes = [entity for entity in people if fold(entity.name) == first]
    else:
        namesakes = [entity for entity in people if fold(entity.name).split()[:1] == [first]]
    return namesakes[0] if len(namesakes) == 1 else None


def _updated_entity(
    old: EntityProfile, new: LearnedEntity, name: str, came_from: Sequence[Source], now: datetime
) -> EntityProfile:
    by_hand = old.made_by == BY_USER
    longer = old.type == "person" and len(name.split()) > len(old.name.split())
    shown = name if longer and not by_hand else old.name
    attributes = {key: one_line(value)[:MOST_CHARACTERS] for key, value in new.attributes}
    attributes = attributes | dict(old.attributes) if by_hand else dict(old.attributes) | attributes
    relations = dict.fromkeys((*((one.relation, one.target) for one in old.relations), *new.relations))
    said = (one_line(text)[:MOST_CHARACTERS] for text in new.facts)
    return _changed(
        old,
        {
            "name": shown,
            "type": new.type if old.type == "concept" and not by_hand else old.type,
            "aliases": _names(shown, (*old.aliases, *new.aliases, old.name, name)),
            "relationship": (by_hand and old.relationship) or new.relationship or old.relationship,
            "attributes": tuple(list(attributes.items())[-MOST_ATTRIBUTES:]),
            "relations": tuple(
                {"relation": how, "target": target} for how, target in list(relations)[-MOST_RELATIONS:]
            ),
            "facts": _newest((*old.facts, *(text for text in said if text)), MOST_FACTS),
            "sources": _joined(old.sources, came_from),
        },
        now,
    )


def _found(message_ids: Iterable[str], sources: Mapping[str, Source]) -> list[Source]:
    return [sources[key] for key in dict.fromkeys(message_ids) if key in sources]


def _joined(old: Sequence[Source], new: Sequence[Source]) -> tuple[Source, ...]:
    again = {(one.conversation_id, one.message_id) for one in new}
    kept = [one for one in old if (one.conversation_id, one.message_id) not in again]
    all_of_them = [*kept, *new] if len(kept) < len(old) or new else list(old)
    if len(all_of_them) > MOST_SOURCES:
        all_of_them = [all_of_them[0], *all_of_them[1 - MOST_SOURCES :]]
    return tuple(all_of_them)


def _names(label: str, others: Iterable[str]) -> tuple[str, ...]:
    found = {fold(one_line(other)): one_line(other)[:MOST_CHARACTERS] for other in reversed(list(others))}
    found.pop(fold(label), None)
    found.pop("", None)
    return tuple(reversed(found.values()))[:MOST_ALIASES]


def _newest(texts: Iterable[str], most: int) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))[-most:]


def _changed(old: Profile, changes: Mapping[str, object], now: datetime) -> Profile:
    new = type(old).model_validate({**old.model_dump(), **changes})
    shown = {key for key in changes if key not in ("sources", "related_acu_ids", "aliases")}
    if new == old:
        return old
    dirty = old.is_dirty or any(getattr(new, key) != getattr(old, key) for key in shown)
    return new.model_copy(update={"is_dirty": dirty, "updated_at": now})
