"""What users and applications do with what is known, by hand: list, add, edit, delete, pin, ask where it comes from.

A change by hand shows in every conversation at its next turn, and nothing that is learned later overrides its text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

from langchain_core.messages import BaseMessage
from langgraph.store.base import BaseStore
from pydantic import ValidationError

from langchain_ctxbudget.core.estimate import estimate_tokens
from langchain_ctxbudget.core.sameness import says_the_same
from langchain_ctxbudget.core.text import one_line, terms
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.flow import Flow, locked
from langchain_ctxbudget.knowledge import facts, known, learning
from langchain_ctxbudget.knowledge import repositories as repos
from langchain_ctxbudget.knowledge.bundle_lines import utc
from langchain_ctxbudget.knowledge.learned import LearnedFact
from langchain_ctxbudget.knowledge.merging import line_above
from langchain_ctxbudget.knowledge.news import begins_later, lasting
from langchain_ctxbudget.knowledge.records import (
    BY_USER,
    EntityDetails,
    EntityProfile,
    Fact,
    FactCategory,
    Source,
    TopicProfile,
)
from langchain_ctxbudget.knowledge.state import State, read_state, save

KnownItem: TypeAlias = Fact | TopicProfile | EntityProfile
T = TypeVar("T")
P = TypeVar("P", TopicProfile, EntityProfile)

EDITABLE: Mapping[type[Fact | TopicProfile | EntityProfile], tuple[str, ...]] = {
    Fact: ("text", "category", "confidence", "slot", "valid_from", "valid_until"),
    TopicProfile: ("label", "aliases", "parent_slug", "domain", "proficiency_level", "compiled_context"),
    EntityProfile: (
        "name",
        "type",
        "aliases",
        "relationship",
        "facts",
        "attributes",
        "relations",
        "compiled_context",
    ),
}
"""The fields that can be changed by hand; the others are computed."""
MOST_CHARACTERS = 2_000
"""Of a text given by hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceMessage:
    """A message that something is known from."""

    conversation_id: str
    message_id: str
    message: BaseMessage | None
    """None where it is no longer there."""
    changed: bool = False
    """Whether it was edited since it was learned from."""


def read(store: BaseStore, user_id: str) -> Flow[known.Knowledge]:
    """What is known about a user."""
    return (yield from known.read(store, user_id))


def read_facts(store: BaseStore, user_id: str, *, include_ended: bool) -> Flow[list[Fact]]:
    """The facts about a user, in the order in which they would be shown; then those that have ended, newest first."""
    knowledge = yield from known.read(store, user_id)
    current = list(facts.ranked(knowledge.facts))
    if not include_ended:
        return current
    ended = yield from repos.ENDED.all(store, user_id)
    return [*current, *sorted(ended, key=lambda fact: (fact.ended_at or fact.last_seen, fact.id), reverse=True)]


def add_fact(
    store: BaseStore,
    user_id: str,
    text: str,
    category: FactCategory,
    now: datetime,
    *,
    confidence: float,
    pinned: bool,
    slot: str,
) -> Flow[Fact]:
    """Say something about a user by hand; what it contradicts is superseded.

    Raises:
        FactError: 10 facts are pinned already.
        InputError: there is no text, or a value outside its range.
    """
    said = _required_text(text)
    probe = {"id": "fact/new", "text": said, "category": category, "created_at": now, "last_seen": now}
    _checked(Fact, {**probe, "confidence": _confidence(confidence)})
    new = LearnedFact(text=said, category=category, confidence=confidence, slot=one_line(slot))

    def change(state: State) -> tuple[State, Fact]:
        # What is said by hand is the newest, also where another computer's clock is ahead.
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
    """Change something that is known by hand.

    Raises:
        InputError: there is no such item, or no such field, or a value that does not fit.
    """

    def change(state: State) -> tuple[State, KnownItem]:
        item = _find(state, item_id)
        allowed = EDITABLE[type(item)]
        if wrong := sorted(set(changes) - set(allowed)):
            raise InputError(f"{', '.join(wrong)} of {item_id!r} cannot be edited; what can are {', '.join(allowed)}")
        if not changes:
            return state, item
        _require_values(changes)
        update = _of_fact(item, changes) if isinstance(item, Fact) else _of_profile(state, item, changes, now)
        new: KnownItem = _checked(type(item), {**item.model_dump(), **update})
        if isinstance(new, Fact) and "slot" in changes:
            return _with_value(state, new, now)
        return _with(state, new), new

    return (yield from _changing(store, user_id, now, change))


def _require_values(changes: Mapping[str, Any]) -> None:
    for field in ("text", "label", "name", "compiled_context"):
        if field in changes and not (field == "compiled_context" and changes[field] is None):
            _required_text(changes[field])
    if "confidence" in changes:
        _confidence(changes["confidence"])


def _of_fact(fact: Fact, changes: Mapping[str, Any]) -> dict[str, Any]:
    """What changes of a fact: only another text makes it the user's own words, which end when the user says so."""
    own = {"made_by": BY_USER, "valid_until": lasting(fact).valid_until}
    return {**own, **changes} if "text" in changes else dict(changes)


def _of_profile(
    state: State, item: TopicProfile | EntityProfile, changes: Mapping[str, Any], now: datetime
) -> dict[str, Any]:
    """What changes of a topic or an entity."""
    update = {**changes, "made_by": BY_USER, "is_dirty": True, "updated_at": now}
    if isinstance(item, EntityProfile):
        update["by_hand"] = _said_by_hand(item, changes)
    if isinstance(item, TopicProfile) and (parent := changes.get("parent_slug")) is not None:
        _require_parent(state, item, parent)
    if "proficiency_level" in changes:  # which is computed from these
        update["proficiency_signals"] = ()
    if {"label", "name"} & changes.keys():  # users go on saying what they used to
        name = item.label if isinstance(item, TopicProfile) else item.name
        update.setdefault("aliases", tuple(dict.fromkeys((*item.aliases, name))))
    return update


def _said_by_hand(entity: EntityProfile, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The details of an entity that were not learned, after a change by hand."""
    said = {name: changes[name] for name in EntityDetails.model_fields if name in changes}
    if "name" in changes:  # users go on saying what they used to
        said.setdefault("aliases", (*entity.by_hand.aliases, entity.name))
    return entity.by_hand.model_dump() | said


def delete(store: BaseStore, user_id: str, item_id: str, now: datetime) -> Flow[None]:
    """Forget something that is known, also a fact that has ended.

    Raises:
        InputError: there is no such item.
    """

    def change(state: State) -> tuple[State, None]:
        left = tuple(fact for fact in state.ended if fact.id != item_id)
        if len(left) < len(state.ended):
            return replace(state, ended=left), None
        item = _find(state, item_id)
        labels = {item.label, *item.aliases} if isinstance(item, TopicProfile) else set()
        topics, entities = state.topics, state.entities
        if isinstance(item, Fact):
            topics = tuple(_untold(topic, item) for topic in topics)
            entities = tuple(_untold(entity, item) for entity in entities)
        left = tuple(fact for fact in state.facts if fact.id != item_id)
        if isinstance(item, Fact) and begins_later(item, now):
            left = tuple(facts.released(left, {item_id}))
        return replace(
            state,
            facts=left,
            topics=tuple(topic for topic in topics if topic.id != item_id),
            entities=tuple(entity for entity in entities if entity.id != item_id),
            links={key: link for key, link in state.links.items() if key[0] != item_id},
            phrases=tuple(phrase for phrase in state.phrases if phrase.label not in labels),
        ), None

    yield from _changing(store, user_id, now, change)


def _untold(profile: P, fact: Fact) -> P:
    """A topic or an entity without what it says of a fact that is deleted."""
    if isinstance(profile, TopicProfile):
        left: dict[str, object] = {
            "highlights": tuple(one for one in profile.highlights if one.source not in fact.sources)
        }
    else:
        said = set(terms(fact.text))
        left = {"facts": tuple(text for text in profile.facts if not set(terms(text)) <= said)}
    if all(getattr(profile, name) == value for name, value in left.items()):
        return profile
    return profile.model_copy(update={**left, "is_dirty": True})


def _require_parent(state: State, topic: TopicProfile, parent: object) -> None:
    """Refuse a parent that there is not, or that is a part of the topic.

    Raises:
        InputError: it is one of these.
    """
    by_slug = {one.slug: one for one in state.topics}
    if not isinstance(parent, str) or parent not in by_slug:
        raise InputError(f"parent_slug must be the slug of another topic, not {parent!r}; list the topics for theirs")
    if topic.slug in line_above(by_slug[parent], by_slug):
        raise InputError(f"{parent!r} is {topic.slug!r} or a part of it, and cannot be what it is a part of")


def pin(store: BaseStore, user_id: str, item_id: str, now: datetime, *, pinned: bool) -> Flow[KnownItem]:
    """Keep something that is known, and show it first; or no longer.

    Raises:
        FactError: 10 facts are pinned already.
        InputError: there is no such item.
    """

    def change(state: State) -> tuple[State, KnownItem]:
        item = _find(state, item_id)
        new: KnownItem
        if isinstance(item, Fact):
            new = facts.pin(state.facts, item_id, now) if pinned else facts.unpin(state.facts, item_id)
        else:
            new = item.model_copy(update={"pinned": pinned, "is_dirty": True, "updated_at": now})
        return _with(state, new), new

    return (yield from _changing(store, user_id, now, change))


def sources_of(store: BaseStore, user_id: str, item_id: str) -> Flow[tuple[Source, ...]]:
    """Where something is known from, also a fact that has ended.

    Raises:
        InputError: there is no such item.
    """
    knowledge = yield from known.read(store, user_id)
    item = knowledge.by_id.get(item_id) or (yield from repos.ENDED.get(store, user_id, item_id))
    if item is None:
        raise InputError(_unknown(item_id))
    return item.sources


def _changing(
    store: BaseStore,
    user_id: str,
    now: datetime,
    change: Callable[[State], tuple[State, T]],
) -> Flow[T]:
    """Make a change of the whole state, alone; its bundles are compiled at once."""

    def body() -> Flow[T]:
        before, mark = yield from read_state(store, user_id)
        after, result = change(before)
        after = learning.compiled(store, user_id, learning.remeasured(after, before, now), now, estimate_tokens)
        yield from save(store, user_id, before, after, mark, edited=True)
        return result

    return (yield from locked(known.lock_of(store, user_id), body()))


def _find(state: State, item_id: str) -> KnownItem:
    items: tuple[KnownItem, ...] = (*state.facts, *state.profiles)
    for item in items:
        if item.id == item_id:
            return item
    raise InputError(_unknown(item_id))


def _unknown(item_id: str) -> str:
    return f"Nothing with the id {item_id!r} is known about this user; list facts, topics and entities for their ids"


def _with(state: State, new: KnownItem) -> State:
    if isinstance(new, Fact):
        return replace(state, facts=tuple(new if old.id == new.id else old for old in state.facts))
    if isinstance(new, TopicProfile):
        return replace(state, topics=tuple(new if old.id == new.id else old for old in state.topics))
    return replace(state, entities=tuple(new if old.id == new.id else old for old in state.entities))


def _with_value(state: State, value: Fact, now: datetime) -> tuple[State, Fact]:
    """A state with a fact that was given its slot by hand, and that fact; other values of the slot end."""
    every = facts.sole(_with(state, value).facts, value, now)
    current = tuple(fact for fact in every if fact.is_current)
    ended = tuple(fact for fact in every if not fact.is_current)
    return replace(state, facts=current, ended=(*state.ended, *ended)), next(f for f in current if f.id == value.id)


def _checked(kind: type[Any], values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - of the kind
    try:
        made = kind.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"{where} cannot be {first.get('input')!r}: {first['msg']}") from error
    times = {name: utc(time) for name in kind.model_fields if isinstance(time := getattr(made, name), datetime)}
    return made.model_copy(update=times)


def _required_text(text: object) -> str:
    if not isinstance(text, str) or not text.strip() or len(text) > MOST_CHARACTERS:
        given = f"{len(text):,} characters" if isinstance(text, str) else repr(text)
        raise InputError(f"A text must have 1 to {MOST_CHARACTERS:,} characters, not {given}")
    return one_line(text)


def _confidence(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 1:
        raise InputError(f"confidence must be above 0 and up to 1, not {value!r}")
    return float(value)
