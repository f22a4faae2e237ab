"""Changes of what is known by hand: add, edit, delete, pin, and the messages that an item comes from.

A change by hand shows in every conversation at its next turn, and nothing that is learned later overrides its text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any, TypeAlias, TypeVar

from langchain_core.messages import BaseMessage
from langgraph.store.base import BaseStore
from pydantic import AfterValidator, AwareDatetime, BaseModel, Field, NaiveDatetime, ValidationError

from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.flow import Flow, locked
from langchain_ctxbudget.knowledge import facts, known, learning
from langchain_ctxbudget.knowledge.known import Knowledge
from langchain_ctxbudget.knowledge.profiles import line_above
from langchain_ctxbudget.knowledge.records import (
    BY_USER,
    Domain,
    EntityDetails,
    EntityProfile,
    EntityType,
    Fact,
    FactCategory,
    LearnedFact,
    Proficiency,
    Profile,
    Source,
    TopicProfile,
)
from langchain_ctxbudget.messages import one_line, says_the_same, terms
from langchain_ctxbudget.stores import utc

KnownItem: TypeAlias = Fact | TopicProfile | EntityProfile
T = TypeVar("T")

MOST_CHARACTERS = 2_000
"""Length of a text given by hand."""


def _line(text: str) -> str:
    if not text.strip():
        raise ValueError("a text must not be blank")
    return one_line(text)


Text = Annotated[str, Field(min_length=1, max_length=MOST_CHARACTERS), AfterValidator(_line)]
Time = Annotated[AwareDatetime | NaiveDatetime, AfterValidator(utc)]


class FactChanges(BaseModel):
    """The fields of a fact that can be changed by hand."""

    text: Text = ""
    category: FactCategory = "preference"
    confidence: Annotated[float, Field(gt=0, le=1, strict=True)] = 1.0
    slot: Annotated[str, AfterValidator(one_line)] = ""
    valid_from: Time | None = None
    valid_until: Time | None = None


class TopicChanges(BaseModel):
    """The fields of a topic that can be changed by hand."""

    label: Text = ""
    aliases: tuple[str, ...] = ()
    parent_slug: str | None = None
    domain: Domain = "personal"
    proficiency_level: Proficiency = "unknown"
    compiled_context: Text | None = None


class EntityChanges(EntityDetails):
    """The fields of an entity that can be changed by hand."""

    name: Text = ""
    type: EntityType = "concept"
    compiled_context: Text | None = None


_CHANGES: Mapping[type[BaseModel], type[BaseModel]] = {
    Fact: FactChanges,
    TopicProfile: TopicChanges,
    EntityProfile: EntityChanges,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceMessage:
    """A message that something is known from."""

    conversation_id: str
    message_id: str
    message: BaseMessage | None
    """None where it is no longer there."""
    changed: bool = False
    """It was edited since it was learned from."""


def read_facts(store: BaseStore, user_id: str, *, include_ended: bool) -> Flow[list[Fact]]:
    """Reads the facts about a user in the order of prompts; then those that have ended, newest first."""
    if not include_ended:
        return list(facts.ranked((yield from known.read(store, user_id)).facts))
    knowledge = yield from known.read_all(store, user_id)
    ended = sorted(knowledge.ended, key=lambda fact: (fact.ended_at or fact.last_seen, fact.id), reverse=True)
    return [*facts.ranked(knowledge.facts), *ended]


def add_fact(store: BaseStore, user_id: str, values: Mapping[str, Any], now: datetime, *, pinned: bool) -> Flow[Fact]:
    """Adds a fact with the given `FactChanges`; facts that it contradicts are superseded."""
    new = LearnedFact(**_checked(FactChanges, values))
    said = new.text

    def change(state: Knowledge) -> tuple[Knowledge, Fact]:
        # A fact by hand is the newest, also where another computer's clock is ahead.
        latest = max((now, *(fact.last_seen for fact in state.facts)))
        merged = facts.learn((*state.facts, *state.ended), [new], {}, latest, BY_USER)
        before = {fact.id: fact for fact in state.facts}
        telling = [one for one in merged if one.is_current and (one.text == said or says_the_same(one.text, said))]
        fact = next((one for one in telling if before.get(one.id) != one), telling[0])
        own = fact.model_copy(update={"made_by": BY_USER, "text": said})
        if pinned:
            own = facts.pin((one for one in merged if one.id != own.id), own, now)
        return learning.with_facts(state, (own if one.id == own.id else one for one in merged), now), own

    return (yield from _changing(store, user_id, now, change))


def edit(store: BaseStore, user_id: str, item_id: str, changes: Mapping[str, Any], now: datetime) -> Flow[KnownItem]:
    """Changes fields of a fact, a topic or an entity."""

    def change(state: Knowledge) -> tuple[Knowledge, KnownItem]:
        item = _find(state, item_id)
        given = _checked(_CHANGES[type(item)], changes)
        if not given:
            return state, item
        if not isinstance(item, Fact):
            profile = item.model_copy(update=_of_profile(state, item, given, now))
            return _with(state, profile), profile
        if "text" in given:  # the user's own words, which end only when the user says so
            given = {"made_by": BY_USER, "valid_until": facts.lasting(item).valid_until, **given}
        fact = item.model_copy(update=given)
        state = _with(state, fact)
        if "slot" in given:
            every = {one.id: one for one in facts.sole(state.facts, fact, now)}
            fact = every[fact.id]
            current = tuple(one for one in every.values() if one.is_current)
            ended = (*state.ended, *(one for one in every.values() if not one.is_current))
            state = replace(state, facts=current, ended=ended)
        return state, fact

    return (yield from _changing(store, user_id, now, change))


def _of_profile(state: Knowledge, item: Profile, changes: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    update = {**changes, "made_by": BY_USER, "updated_at": now}
    if isinstance(item, EntityProfile):
        said = {name: changes[name] for name in EntityDetails.model_fields if name in changes}
        if "name" in changes:
            said.setdefault("aliases", (*item.by_hand.aliases, item.name))
        update["by_hand"] = item.by_hand.model_copy(update=said)
    elif (parent := changes.get("parent_slug")) is not None:
        by_slug = {one.slug: one for one in state.topics}
        if parent not in by_slug:
            raise InputError(
                f"parent_slug must be the slug of another topic, not {parent!r}; list the topics for theirs"
            )
        if item.slug in line_above(by_slug[parent], by_slug):
            raise InputError(f"{parent!r} is {item.slug!r} or a part of it, and cannot be what it is a part of")
    if "proficiency_level" in changes:
        update["proficiency_learned"] = False
    if {"label", "name"} & changes.keys():  # users go on saying what they used to
        update.setdefault("aliases", tuple(dict.fromkeys((*item.aliases, item.names[0]))))
    return update


def delete(store: BaseStore, user_id: str, item_id: str, now: datetime) -> Flow[None]:
    """Deletes something that is known, also a fact that has ended."""

    def change(state: Knowledge) -> tuple[Knowledge, None]:
        ended = tuple(fact for fact in state.ended if fact.id != item_id)
        if len(ended) < len(state.ended):
            return replace(state, ended=ended), None
        item = _find(state, item_id)
        if isinstance(item, Fact):
            return _without_fact(state, item, now), None
        labels = item.names if isinstance(item, TopicProfile) else ()
        return replace(
            state,
            topics=tuple(topic for topic in state.topics if topic.id != item_id),
            entities=tuple(entity for entity in state.entities if entity.id != item_id),
            links={key: link for key, link in state.links.items() if key[0] != item_id},
            phrases=tuple(phrase for phrase in state.phrases if phrase.label not in labels),
        ), None

    yield from _changing(store, user_id, now, change)


def _without_fact(state: Knowledge, fact: Fact, now: datetime) -> Knowledge:
    """Returns a state without a fact, and without the sentences of topics and entities that say the same."""
    said = set(terms(fact.text))
    current = [one for one in state.facts if one.id != fact.id]
    if facts.begins_later(fact, now):
        current = facts.released(current, {fact.id})

    def untold_topic(topic: TopicProfile) -> TopicProfile:
        left = tuple(one for one in topic.highlights if one.source not in fact.sources)
        return topic.model_copy(update={"highlights": left})

    def untold_entity(entity: EntityProfile) -> EntityProfile:
        return entity.model_copy(update={"facts": tuple(one for one in entity.facts if not set(terms(one)) <= said)})

    return replace(
        state,
        facts=tuple(current),
        topics=tuple(map(untold_topic, state.topics)),
        entities=tuple(map(untold_entity, state.entities)),
    )


def pin(store: BaseStore, user_id: str, item_id: str, now: datetime, *, pinned: bool) -> Flow[KnownItem]:
    """Keeps something that is known and shows it first, or takes that back."""

    def change(state: Knowledge) -> tuple[Knowledge, KnownItem]:
        item = _find(state, item_id)
        new: KnownItem = item.model_copy(update={"pinned": pinned})
        if not isinstance(new, Fact):
            new = new.model_copy(update={"updated_at": now})
        elif pinned and isinstance(item, Fact):
            new = facts.pin(state.facts, item, now)
        return _with(state, new), new

    return (yield from _changing(store, user_id, now, change))


def sources_of(store: BaseStore, user_id: str, item_id: str) -> Flow[tuple[Source, ...]]:
    """Reads the sources of something that is known, also of a fact that has ended."""
    knowledge = yield from known.read_all(store, user_id)
    ended = (fact for fact in knowledge.ended if fact.id == item_id)
    return (next(ended, None) or _find(knowledge, item_id)).sources


def _changing(
    store: BaseStore, user_id: str, now: datetime, change: Callable[[Knowledge], tuple[Knowledge, T]]
) -> Flow[T]:
    """Reads, changes, compiles and writes while nobody else does."""

    def body() -> Flow[T]:
        before = yield from known.read_all(store, user_id)
        after, result = change(before)
        after = learning.compiled(store, user_id, learning.remeasured(after, before, now), now)
        yield from known.save(store, user_id, before, after, edited=True)
        return result

    return (yield from locked(known.lock_of(store, user_id), body()))


def _find(state: Knowledge, item_id: str) -> KnownItem:
    if (item := state.by_id.get(item_id)) is None:
        raise InputError(
            f"Nothing with the id {item_id!r} is known about this user; list facts, topics and entities for their ids"
        )
    return item


def _with(state: Knowledge, new: KnownItem) -> Knowledge:
    if isinstance(new, Fact):
        return replace(state, facts=tuple(new if old.id == new.id else old for old in state.facts))
    if isinstance(new, TopicProfile):
        return replace(state, topics=tuple(new if old.id == new.id else old for old in state.topics))
    return replace(state, entities=tuple(new if old.id == new.id else old for old in state.entities))


def _checked(kind: type[BaseModel], values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the given fields in their own types; `InputError` where one cannot be changed, or does not fit."""
    if wrong := sorted(set(values) - set(kind.model_fields)):
        allowed = ", ".join(kind.model_fields)
        raise InputError(f"{', '.join(wrong)} cannot be edited; the fields that can are {allowed}")
    try:
        made = kind.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"][:1]))
        raise InputError(f"{where} cannot be {first['input']!r:.100}: {first['msg']}") from error
    return {name: getattr(made, name) for name in made.model_fields_set}
