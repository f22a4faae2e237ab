"""What is known without some messages: pure; what only they said is gone, and what they superseded counts again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from langchain_ctxbudget.knowledge.known import entity_by_hand
from langchain_ctxbudget.knowledge.records import (
    BY_RULES,
    BY_USER,
    MOST_SOURCES,
    EntityProfile,
    Fact,
    PhraseRecord,
    Source,
    TopicProfile,
)
from langchain_ctxbudget.knowledge.state import State
from langchain_ctxbudget.knowledge.taking import ARCHIVED

Kept = Callable[[Iterable[Source]], tuple[Source, ...]]
"""Those of some sources that are still there."""


def without(state: State, conversation_id: str, there: Mapping[str, str]) -> State:
    """What is known without what came from messages that are no longer there, or say something else.

    A fact that they superseded counts again, unless something else stands in its place. What they said about an entity
    is not told apart from what others did: of one that loses a source, all details go but for those said by hand.

    Args:
        state: what is known.
        conversation_id: whose messages have changed.
        there: the messages that it has, and a fingerprint of each.
    """

    def kept(sources: Iterable[Source]) -> tuple[Source, ...]:
        return tuple(
            source
            for source in sources
            if source.conversation_id != conversation_id or there.get(source.message_id) in (source.digest, ARCHIVED)
        )

    def is_unsure(entity: EntityProfile) -> bool:
        """Whether it may know something from a message that its list of sources had no room for."""
        return len(entity.sources) >= MOST_SOURCES and (entity.id, conversation_id) in state.links

    current, ended = _without_facts(state, kept)
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


def _without_facts(state: State, kept: Kept) -> tuple[tuple[Fact, ...], tuple[Fact, ...]]:
    """The current facts and those that have ended."""
    left = {fact.id: fact for fact in (*state.facts, *state.ended)}
    current = {fact.id for fact in state.facts}
    gone: dict[str, Fact] = {}
    for fact in list(left.values()):
        sources = kept(fact.sources)
        # What a model has written may say something of every message that it comes from.
        is_lost = not sources or fact.made_by != BY_RULES
        if fact.sources != sources and is_lost and fact.made_by != BY_USER:
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
    """A phrase with the messages that it loses taken off its counts; of all its messages, where it knows none left."""
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
