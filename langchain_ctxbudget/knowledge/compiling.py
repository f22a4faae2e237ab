"""Every bundle of a user's topics and entities brought up to date: what is clean stays as it is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from langchain_ctxbudget.core.text import one_line
from langchain_ctxbudget.knowledge.bundle_lines import Count, fact_text, holding, utc
from langchain_ctxbudget.knowledge.bundles import (
    ENTITY_TOKENS,
    TOPIC_TOKENS,
    compile_entity,
    compile_topic,
    needs,
)
from langchain_ctxbudget.knowledge.known import by_names
from langchain_ctxbudget.knowledge.profiles import as_of
from langchain_ctxbudget.knowledge.records import ContextBundle, EntityProfile, Fact, TopicProfile

Profile = TypeVar("Profile", TopicProfile, EntityProfile)

MOST_FACTS = 10
"""Facts of the user that one bundle is offered."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """What is known, with nothing dirty in it."""

    topics: tuple[TopicProfile, ...]
    entities: tuple[EntityProfile, ...]
    bundles: dict[str, ContextBundle]
    """By id. Those of topics and entities that are no longer known are gone, those of another type as they were."""


def compile_all(  # noqa: PLR0917 - what is known, and what it is compiled with
    topics: Sequence[TopicProfile],
    entities: Sequence[EntityProfile],
    facts: Sequence[Fact],
    old: Mapping[str, ContextBundle],
    now: datetime,
    count: Count,
    *,
    topic_cap: int = TOPIC_TOKENS,
    entity_cap: int = ENTITY_TOKENS,
) -> Compiled:
    """Compile what is dirty, missing or expired, or shows something of another item that is no longer so.

    A fact belongs to the topics and entities that it names.

    Args:
        topics: all.
        entities: all.
        facts: all; those that no longer or not yet hold are left out.
        old: the bundles that there are, by id.
        now: what time it is.
        count: tokens of a text.
        topic_cap: what the text of a topic may cost.
        entity_cap: what the text of an entity may cost.
    """
    about = _facts_about(topics, entities, holding(facts, now))
    by_slug = {topic.slug: topic for topic in topics}
    children: defaultdict[str | None, list[TopicProfile]] = defaultdict(list)
    below = [as_of(topic, now) for topic in topics if topic.parent_slug]
    for child in sorted(below, key=lambda topic: (-topic.importance_score, topic.id)):
        children[child.parent_slug].append(child)
    bundles = {key: bundle for key, bundle in old.items() if bundle.bundle_type not in ("topic", "entity")}
    new_topics: list[TopicProfile] = []
    for topic in topics:
        own, parent, parts = about[topic.id], by_slug.get(topic.parent_slug or ""), children[topic.slug]
        before, related = old.get(topic.id), tuple(fact.id for fact in own)
        names = {fact.id: fact_text(fact) for fact in own} | {part.id: part.label for part in parts}
        names |= {parent.id: parent.label} if parent else {}
        added = any(part.is_dirty and part.id not in before.composition for part in parts) if before else True
        changed = topic.is_dirty or added or related != topic.related_memory_ids
        if before is None or changed or needs(before, now) or not _still_so(before, names):
            before = compile_topic(topic, own, parent, parts, now=now, count=count, cap_tokens=topic_cap, before=before)
        bundles[topic.id] = before
        new_topics.append(_clean(topic, before.version, related_memory_ids=related))
    new_entities: list[EntityProfile] = []
    for entity in entities:
        own, before = about[entity.id], old.get(entity.id)
        added = any(utc(fact.created_at) > utc(before.compiled_at) for fact in own) if before else True
        names = {fact.id: fact_text(fact) for fact in own}
        if before is None or entity.is_dirty or added or needs(before, now) or not _still_so(before, names):
            before = compile_entity(entity, own, now=now, count=count, cap_tokens=entity_cap, before=before)
        bundles[entity.id] = before
        new_entities.append(_clean(entity, before.version))
    return Compiled(tuple(new_topics), tuple(new_entities), bundles)


def _clean(profile: Profile, version: int, **also: tuple[str, ...]) -> Profile:
    """A profile whose bundle is up to date; the same object where it was said to be."""
    state: dict[str, object] = {"is_dirty": False, "context_version": version, **also}
    if all(getattr(profile, name) == value for name, value in state.items()):
        return profile
    return profile.model_copy(update=state)


def _facts_about(
    topics: Iterable[TopicProfile], entities: Iterable[EntityProfile], facts: Iterable[Fact]
) -> defaultdict[str, list[Fact]]:
    """The facts that name each topic and entity: the pinned ones, then the surest and the newest ones first."""
    detector = by_names((*topics, *entities))
    about: defaultdict[str, list[Fact]] = defaultdict(list)
    for fact in sorted(
        facts, key=lambda fact: (not fact.pinned, -fact.confidence, -utc(fact.last_seen).timestamp(), fact.id)
    ):
        for name in detector.named(fact.text):
            if len(about[name]) < MOST_FACTS:
                about[name].append(fact)
    return about


def _still_so(bundle: ContextBundle, names: Mapping[str, str]) -> bool:
    """Whether everything else that a bundle is made of is still what it shows."""
    lines = bundle.compiled_prompt.splitlines()

    def is_shown(key: str) -> bool:
        if key not in names:
            return False
        text = one_line(names[key])
        return text in lines if key.startswith("fact/") else text in bundle.compiled_prompt

    return all(key == bundle.id or is_shown(key) for key in bundle.composition)
