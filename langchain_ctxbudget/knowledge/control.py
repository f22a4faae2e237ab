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
from langchain_ctxbudget.knowledge import repositories as repos
from langchain_ctxbudget.knowledge.facts import begins_later, lasting
from langchain_ctxbudget.knowledge.known import Knowledge
from langchain_ctxbudget.knowledge.learned import LearnedFact
from langchain_ctxbudget.knowledge.merging import line_above
from langchain_ctxbudget.knowledge.records import (
    BY_USER,
    Domain,
    EntityDetails,
    EntityProfile,
    EntityType,
    Fact,
    FactCategory,
    Proficiency,
    Source,
    TopicProfile,
)
from langchain_ctxbudget.messages.sameness import says_the_same
from langchain_ctxbudget.messages.text import one_line, terms
from langchain_ctxbudget.stores.clock import utc
from langchain_ctxbudget.tokens.estimate import estimate_tokens

KnownItem: TypeAlias = Fact | TopicProfile | EntityProfile
T = TypeVar("T")
P = TypeVar("P", TopicProfile, EntityProfile)

MOST_CHARACTERS = 2_000
"""Length of a text given by hand."""


def _line(text: str) -> str:
    if not text.strip():
        raise ValueError("a text must not be blank")
    return one_line(text)


Text = Annotated[str, Field(min_length=1, max_length=MOST_CHARACTERS), AfterValidator(_line)]
Confidence = Annotated[float, Field(gt=0, le=1, strict=True)]
Time = Annotated[AwareDatetime | NaiveDatetime, AfterValidator(utc)]


class FactChanges(BaseModel):
    """The fields of a fact that can be changed by hand."""

    text: Text = ""
    category: FactCategory = "preference"
    confidence: Confidence = 1.0
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
            own = facts.pin([*(one for one in merged if one.id != own.id), own], own.id, now)
        current = [own if one.id == own.id else one for one in merged if one.is_current]
        pruned = facts.prune(current, now)
        ended = (*(one for one in merged if not one.is_current), *pruned.ended)
        return replace(state, facts=pruned.kept, ended=ended), own

    return (yield from _changing(store, user_id, now, change))


def edit(store: BaseStore, user_id: str, item_id: str, changes: Mapping[str, Any], now: datetime) -> Flow[KnownItem]:
    """Changes fields of a fact, a topic or an entity."""

    def change(state: Knowledge) -> tuple[Knowledge, KnownItem]:
        item = _find(state, item_id)
        given = _checked(_CHANGES[type(item)], changes)
        if not given:
            return state, item
        update = _of_fact(item, given) if isinstance(item, Fact) else _of_profile(state, item, given, now)
        new: KnownItem = item.model_copy(update=update)
        if isinstance(new, Fact) and "slot" in given:
            return _with_value(state, new, now)
        return _with(state, new), new

    return (yield from _changing(store, user_id, now, change))


def _of_fact(fact: Fact, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the update of a fact; a new text makes it the user's own words, which end only when the user says so."""
    own = {"made_by": BY_USER, "valid_until": lasting(fact).valid_until}
    return {**own, **changes} if "text" in changes else dict(changes)


def _of_profile(
    state: Knowledge, item: TopicProfile | EntityProfile, changes: Mapping[str, Any], now: datetime
) -> dict[str, Any]:
    update = {**changes, "made_by": BY_USER, "is_dirty": True, "updated_at": now}
    if isinstance(item, EntityProfile):
        said = {name: changes[name] for name in EntityDetails.model_fields if name in changes}
        if "name" in changes:
            said.setdefault("aliases", (*item.by_hand.aliases, item.name))
        update["by_hand"] = item.by_hand.model_copy(update=said)
    elif (parent := changes.get("parent_slug")) is not None:
        _require_parent(state, item, parent)
    if "proficiency_level" in changes:
        update["proficiency_signals"] = ()  # of which it is computed else
    if {"label", "name"} & changes.keys():  # users go on saying what they used to
        update.setdefault("aliases", tuple(dict.fromkeys((*item.aliases, item.names[0]))))
    return update


def _require_parent(state: Knowledge, topic: TopicProfile, parent: str) -> None:
    """Refuses a parent that does not exist, or that is a part of the topic."""
    by_slug = {one.slug: one for one in state.topics}
    if parent not in by_slug:
        raise InputError(f"parent_slug must be the slug of another topic, not {parent!r}; list the topics for theirs")
    if topic.slug in line_above(by_slug[parent], by_slug):
        raise InputError(f"{parent!r} is {topic.slug!r} or a part of it, and cannot be what it is a part of")


def delete(store: BaseStore, user_id: str, item_id: str, now: datetime) -> Flow[None]:
    """Deletes something that is known, also a fact that has ended."""

    def change(state: Knowledge) -> tuple[Knowledge, None]:
        ended = tuple(fact for fact in state.ended if fact.id != item_id)
        if len(ended) < len(state.ended):
            return replace(state, ended=ended), None
        item = _find(state, item_id)
        current = tuple(fact for fact in state.facts if fact.id != item_id)
        topics, entities, labels = state.topics, state.entities, set[str]()
        if isinstance(item, Fact):
            topics = tuple(_untold(topic, item) for topic in topics)
            entities = tuple(_untold(entity, item) for entity in entities)
            if begins_later(item, now):
                current = tuple(facts.released(current, {item_id}))
        elif isinstance(item, TopicProfile):
            labels = set(item.names)
        return replace(
            state,
            facts=current,
            topics=tuple(topic for topic in topics if topic.id != item_id),
            entities=tuple(entity for entity in entities if entity.id != item_id),
            links={key: link for key, link in state.links.items() if key[0] != item_id},
            phrases=tuple(phrase for phrase in state.phrases if phrase.label not in labels),
        ), None

    yield from _changing(store, user_id, now, change)


def _untold(profile: P, fact: Fact) -> P:
    """Returns a topic or an entity without the sentences that say what a deleted fact says."""
    if isinstance(profile, TopicProfile):
        kept = tuple(one for one in profile.highlights if one.source not in fact.sources)
        return profile if kept == profile.highlights else _dirty(profile, highlights=kept)
    said = set(terms(fact.text))
    left = tuple(text for text in profile.facts if not set(terms(text)) <= said)
    return profile if left == profile.facts else _dirty(profile, facts=left)


def _dirty(profile: P, **update: object) -> P:
    return profile.model_copy(update={**update, "is_dirty": True})


def pin(store: BaseStore, user_id: str, item_id: str, now: datetime, *, pinned: bool) -> Flow[KnownItem]:
    """Keeps something that is known and shows it first, or takes that back."""

    def change(state: Knowledge) -> tuple[Knowledge, KnownItem]:
        item = _find(state, item_id)
        new: KnownItem
        if isinstance(item, Fact):
            new = facts.pin(state.facts, item_id, now) if pinned else facts.unpin(state.facts, item_id)
        else:
            new = item.model_copy(update={"pinned": pinned, "is_dirty": True, "updated_at": now})
        return _with(state, new), new

    return (yield from _changing(store, user_id, now, change))


def sources_of(store: BaseStore, user_id: str, item_id: str) -> Flow[tuple[Source, ...]]:
    """Reads the sources of something that is known, also of a fact that has ended."""
    knowledge = yield from known.read(store, user_id)
    item = knowledge.by_id.get(item_id) or (yield from repos.ENDED.get(store, user_id, item_id))
    if item is None:
        raise InputError(_unknown(item_id))
    return item.sources


def _changing(
    store: BaseStore, user_id: str, now: datetime, change: Callable[[Knowledge], tuple[Knowledge, T]]
) -> Flow[T]:
    """Reads, changes, compiles and writes while nobody else does."""

    def body() -> Flow[T]:
        before = yield from known.read_all(store, user_id)
        after, result = change(before)
        after = learning.compiled(store, user_id, learning.remeasured(after, before, now), now, estimate_tokens)
        yield from known.save(store, user_id, before, after, edited=True)
        return result

    return (yield from locked(known.lock_of(store, user_id), body()))


def _find(state: Knowledge, item_id: str) -> KnownItem:
    if (item := state.by_id.get(item_id)) is None:
        raise InputError(_unknown(item_id))
    return item


def _unknown(item_id: str) -> str:
    return f"Nothing with the id {item_id!r} is known about this user; list facts, topics and entities for their ids"


def _with(state: Knowledge, new: KnownItem) -> Knowledge:
    if isinstance(new, Fact):
        return replace(state, facts=tuple(new if old.id == new.id else old for old in state.facts))
    if isinstance(new, TopicProfile):
        return replace(state, topics=tuple(new if old.id == new.id else old for old in state.topics))
    return replace(state, entities=tuple(new if old.id == new.id else old for old in state.entities))


def _with_value(state: Knowledge, value: Fact, now: datetime) -> tuple[Knowledge, Fact]:
    """Returns a state in which a fact got its slot by hand, and that fact; other values of the slot end."""
    every = facts.sole(_with(state, value).facts, value, now)
    current = tuple(fact for fact in every if fact.is_current)
    ended = tuple(fact for fact in every if not fact.is_current)
    return replace(state, facts=current, ended=(*state.ended, *ended)), next(f for f in current if f.id == value.id)


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
