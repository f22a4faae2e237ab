"""Bundles and vectors of a user's topics and entities brought up to date: what shows nothing new stays as it is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

import numpy as np
from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore

from langchain_ctxbudget.flow import Flow, embed, locked
from langchain_ctxbudget.knowledge import known
from langchain_ctxbudget.knowledge.bundle_lines import Count, holding
from langchain_ctxbudget.knowledge.bundles import compile_entity, compile_topic
from langchain_ctxbudget.knowledge.profiles import importance_at
from langchain_ctxbudget.knowledge.records import ContextBundle, EntityProfile, Fact, TopicProfile
from langchain_ctxbudget.search.vectors import units
from langchain_ctxbudget.stores.clock import utc
from langchain_ctxbudget.stores.operations import embeddings_name

P = TypeVar("P", TopicProfile, EntityProfile)

MOST_FACTS = 10
"""Facts of the user that one bundle is offered."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """Topics, entities and bundles by id, with nothing dirty among them."""

    topics: tuple[TopicProfile, ...]
    entities: tuple[EntityProfile, ...]
    bundles: dict[str, ContextBundle]


def compile_all(  # noqa: PLR0917
    topics: Sequence[TopicProfile],
    entities: Sequence[EntityProfile],
    facts: Sequence[Fact],
    old: Mapping[str, ContextBundle],
    now: datetime,
    count: Count,
) -> Compiled:
    """Compiles the bundles that are missing or expired, or that show something else now.

    A fact belongs to the topics and entities that it names. Bundles of topics and entities that are gone go as well;
    those of other types stay as they are.
    """
    about = _facts_about((*topics, *entities), holding(facts, now))
    by_slug = {topic.slug: topic for topic in topics}
    parts: defaultdict[str | None, list[TopicProfile]] = defaultdict(list)
    for child in sorted(topics, key=lambda topic: (-importance_at(topic, now), topic.id)):
        parts[child.parent_slug].append(child)
    bundles = {key: bundle for key, bundle in old.items() if bundle.bundle_type not in ("topic", "entity")}
    for topic in topics:
        own, parent = about[topic.id], by_slug.get(topic.parent_slug or "")
        before = old.get(topic.id)
        bundles[topic.id] = compile_topic(topic, own, parent, parts[topic.slug], now=now, count=count, before=before)
    for entity in entities:
        before = old.get(entity.id)
        bundles[entity.id] = compile_entity(entity, about[entity.id], now=now, count=count, before=before)
    return Compiled(
        tuple(_clean(one, bundles, related_memory_ids=tuple(fact.id for fact in about[one.id])) for one in topics),
        tuple(_clean(one, bundles) for one in entities),
        bundles,
    )


def _clean(profile: P, bundles: Mapping[str, ContextBundle], **also: tuple[str, ...]) -> P:
    """Returns a profile whose bundle is up to date: the same object where it was already."""
    state = {"is_dirty": False, "context_version": bundles[profile.id].version, **also}
    if all(getattr(profile, name) == value for name, value in state.items()):
        return profile
    return profile.model_copy(update=state)


def _facts_about(
    profiles: Iterable[TopicProfile | EntityProfile], facts: Iterable[Fact]
) -> defaultdict[str, list[Fact]]:
    """Returns the facts that name each profile: pinned ones, then the surest, then the newest."""
    detector = known.by_names(profiles)
    about: defaultdict[str, list[Fact]] = defaultdict(list)
    for fact in sorted(facts, key=lambda f: (not f.pinned, -f.confidence, -utc(f.last_seen).timestamp(), f.id)):
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
