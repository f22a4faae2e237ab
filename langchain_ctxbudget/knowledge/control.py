"""`pipeline.knowledge`: lists and edits the knowledge about users, and traces it to its messages.

Presence.

A change by hand shows in every conversation at its next turn, and nothing that is learned later
overrides its text.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias, TypeVar

from langchain_core.messages import BaseMessage
from langgraph.store.base import BaseStore
from pydantic import BaseModel, ValidationError

from langchain_ctxbudget.errors import InputError, StoreDataError, checks_names
from langchain_ctxbudget.flow import Flow, T, locked, twins
from langchain_ctxbudget.history import OpenConversation, log
from langchain_ctxbudget.knowledge import facts, known, learning, presence, records
from langchain_ctxbudget.knowledge.known import Knowledge
from langchain_ctxbudget.knowledge.learning import Learning
from langchain_ctxbudget.knowledge.presence import Heartbeat
from langchain_ctxbudget.knowledge.profiles import as_of, slug
from langchain_ctxbudget.knowledge.records import (
    BY_USER,
    MOST_CHARACTERS,
    EntityProfile,
    Fact,
    LearnedFact,
    TopicProfile,
)
from langchain_ctxbudget.messages import fold, one_line, says_the_same, terms
from langchain_ctxbudget.report import plural
from langchain_ctxbudget.stores import Scope, require_id

KnownItem: TypeAlias = Fact | TopicProfile | EntityProfile
M = TypeVar("M", bound=BaseModel)
P = TypeVar("P", TopicProfile, EntityProfile)
EDITABLE: Mapping[type[BaseModel], tuple[str, ...]] = {
    Fact: ("text", "category", "confidence", "memory_type"),
    TopicProfile: (
        "label",
        "aliases",
        "parent_slug",
        "domain",
        "proficiency_level",
        "compiled_context",
    ),
    EntityProfile: ("name", "type", *learning.DETAILS, "compiled_context"),
}
_TEXTS = ("text", "label", "name", "compiled_context")
_SAID_BY: Mapping[str, str] = {"topic": "label", "entity": "name"}
"""The fields of the words for a topic and an entity, by the beginning of its id."""
_HEADINGS = [
    *(heading.rstrip(":") for heading in facts.HEADINGS.values()),
    "Topics",
    "People and things",
]
_PLACES: Mapping[type[BaseModel], str] = {
    Fact: "facts",
    TopicProfile: "topics",
    EntityProfile: "entities",
}


@dataclass(frozen=True, slots=True)
class SourceMessage:
    """A message that something is known from."""

    conversation_id: str
    message_id: str
    message: BaseMessage | None
    """None where it is no longer there."""
    changed: bool = False
    """It was edited since it was learned from."""


class KnownLine(NamedTuple):
    """A fact, a topic or an entity as a line to read."""

    id: str
    heading: str
    text: str
    """All of it that prompts may show."""
    words: str
    """The part that `edit(text=...)` says in other words: a fact, the label of a topic, the name of
    an entity."""
    origin: str
    """Whether it is pinned, and who has it from where: "pinned, from 3 messages, by rules"."""
    pinned: bool
    last_said: datetime | None


@checks_names()
class UserKnowledge:
    """Facts, topics and entities that are known about users, where they come from, and what users have open.

    It is learned in the background and can be changed by hand here; a pipeline has it as
    `knowledge`. Every method has an async twin. Without a user, every method raises
    `MissingScopeError`.

    Example:
        >>> from langchain_ctxbudget import ContextPipeline
        >>> pipeline = ContextPipeline()
        >>> fact = pipeline.knowledge.add_fact(
        ...     "Lives in Lisbon", category="identity", user_id="ada"
        ... )
        >>> [fact.text for fact in pipeline.knowledge.list_facts(user_id="ada")]
        ['Lives in Lisbon']
    """

    def __init__(self, learning: Learning) -> None:
        self._learning = learning

    def _list_facts(self, *, user_id: str, include_ended: bool = False) -> Flow[list[Fact]]:
        """Lists the facts about a user in the order of prompts.

        Then, if asked for, those that have ended.
        """
        knowledge = yield from known.read(self._store, user_id)
        ended = knowledge.ended if include_ended else ()
        newest_first = sorted(
            ended, key=lambda fact: (fact.ended_at or fact.last_seen, fact.id), reverse=True
        )
        return [*facts.ranked(knowledge.facts), *newest_first]

    def _list_topics(self, *, user_id: str) -> Flow[list[TopicProfile]]:
        """Lists the topics of a user, most important first."""
        return _by_importance((yield from known.read(self._store, user_id)).topics, self._now)

    def _list_entities(self, *, user_id: str) -> Flow[list[EntityProfile]]:
        """Lists the people, projects, organisations, tools and concepts of a user, most important first."""
        return _by_importance((yield from known.read(self._store, user_id)).entities, self._now)

    def _list_bundles(self, *, user_id: str) -> Flow[list[records.ContextBundle]]:
        """Lists the texts compiled from a user's knowledge, by id, with the number of prompts that used each."""
        bundles = (yield from known.read(self._store, user_id)).bundles
        return list(
            learning.with_uses(
                bundles, known.kept_of(self._store, user_id).uses, self._now
            ).values()
        )

    def _add_fact(
        self,
        text: str,
        *,
        user_id: str,
        category: records.FactCategory = "preference",
        confidence: float = 1.0,
        slot: str = "",
        memory_type: records.MemoryType | None = None,
    ) -> Flow[Fact]:
        """Adds a fact by hand, such as "Lives in Lisbon"; facts that it contradicts are superseded.

        It has at most 2,000 characters and a `confidence` above 0, up to 1. `slot` names the
        question it answers, as "home": another value of it supersedes this one. `memory_type` says
        how much it counts where facts are sought: "core", "explicit" (default), "experience".
        Raises `InputError` for a value outside its range.
        """
        now = self._now
        blank = Fact(id="", text="", category="preference", created_at=now, last_seen=now)
        said = {"text": text, "category": category, "confidence": confidence}
        given = _checked(blank, {**said, "memory_type": memory_type})
        memory_type = given.pop("memory_type")
        new = LearnedFact(**given, slot=one_line(slot))

        def change(state: Knowledge) -> tuple[Knowledge, Fact]:
            # A fact by hand is the newest, also where another computer's clock is ahead.
            latest = max((now, *(fact.last_seen for fact in state.facts)))
            merged = facts.learn((*state.facts, *state.ended), [new], {}, latest, BY_USER)
            before = {fact.id: fact for fact in state.facts}
            same = (one for one in merged if one.is_current and says_the_same(one.text, new.text))
            fact = min(same, key=lambda one: before.get(one.id) == one)
            own = fact.model_copy(
                update={"made_by": BY_USER, "text": new.text, "memory_type": memory_type}
            )
            every = (own if one.id == own.id else one for one in merged)
            return state.with_facts(facts.pruned(every, now)), own

        return (yield from self._changing(user_id, change))

    def _add_topic(self, /, label: str, *, user_id: str, **fields: Any) -> Flow[TopicProfile]:  # noqa: ANN401 - any field
        """Adds a topic by hand, with the fields that `edit` takes.

        `InputError` where there is one of this name.
        """
        key = slug(str(label))
        blank = TopicProfile(
            id=f"topic/{key}", slug=key, label=str(label), made_by=BY_USER, created_at=self._now
        )
        return self._adding(user_id, blank, {"label": label, **fields})

    def _add_entity(self, /, name: str, *, user_id: str, **fields: Any) -> Flow[EntityProfile]:  # noqa: ANN401 - any field
        """Adds a person or a thing by hand, with the fields that `edit` takes.

        `InputError` where there is one.
        """
        key = f"entity/{fields.get('type', 'concept')}/{one_line(fold(str(name)))}"
        blank = EntityProfile(id=key, name=str(name), made_by=BY_USER, created_at=self._now)
        return self._adding(user_id, blank, {"name": name, **fields})

    def _adding(self, user_id: str, blank: P, fields: Mapping[str, Any]) -> Flow[P]:
        new = blank.model_copy(update=_checked(blank, fields))

        def change(state: Knowledge) -> tuple[Knowledge, P]:
            if new.id in state.by_id:
                raise InputError(f"{new.id!r} is known already; change it with edit")
            return _with(state, new), new

        return self._changing(user_id, change)

    def _edit(self, /, item_id: str, *, user_id: str, **changes: Any) -> Flow[KnownItem]:  # noqa: ANN401 - any field
        """Changes fields of a fact, a topic or an entity by hand, and returns it as it is then.

        Of a fact: `text`, `category`, `confidence`, `memory_type`; of a topic: `label`, `aliases`, `parent_slug`,
        `domain`, `proficiency_level`, `compiled_context`; of an entity: `name`, `type`, `aliases`, `relationship`,
        `facts`, `attributes`, `relations`, `compiled_context`. `text` of these two is the label, or the name. Raises
        `InputError` where there is no such item, no such field, or a value does not fit.
        """
        said_by = _SAID_BY.get(str(item_id).partition("/")[0], "text")
        changes = {said_by if name == "text" else name: value for name, value in changes.items()}

        def change(state: Knowledge) -> tuple[Knowledge, KnownItem]:
            item = _find(state, item_id)
            given = _checked(item, changes)
            if not isinstance(item, Fact):
                if {"label", "name"} & given.keys():  # users go on saying what they used to
                    given = {
                        "aliases": tuple(dict.fromkeys((*item.aliases, item.names[0])))
                    } | given
                given |= {"made_by": BY_USER, "updated_at": self._now}
            elif "text" in given:
                given["made_by"] = BY_USER
            new = item.model_copy(update=given)
            return _with(state, new), new

        return (yield from self._changing(user_id, change))

    def _delete(self, item_id: str, *, user_id: str) -> Flow[None]:
        """Forgets a fact, a topic or an entity; its messages stay.

        Raises `InputError` where there is none.
        """

        def change(state: Knowledge) -> tuple[Knowledge, None]:
            if any(fact.id == item_id for fact in state.ended):
                return replace(
                    state, ended=tuple(fact for fact in state.ended if fact.id != item_id)
                ), None
            item = _find(state, item_id)
            # With a fact go the sentences of entities that say the same, with a topic its phrases.
            said = set(terms(item.text)) if isinstance(item, Fact) else set[str]()
            labels = item.names if isinstance(item, TopicProfile) else ()

            def left(entity: EntityProfile) -> EntityProfile:
                sentences = tuple(
                    one for one in entity.facts if not said or not set(terms(one)) <= said
                )
                return entity.model_copy(update={"facts": sentences})

            return replace(
                state,
                facts=tuple(fact for fact in state.facts if fact.id != item_id),
                topics=tuple(topic for topic in state.topics if topic.id != item_id),
                entities=tuple(left(entity) for entity in state.entities if entity.id != item_id),
                phrases=tuple(phrase for phrase in state.phrases if phrase.label not in labels),
            ), None

        yield from self._changing(user_id, change)

    def _clear(self, *, user_id: str) -> Flow[None]:
        """Forgets everything that is known of a user.

        Conversations stay, and are not learned from once more.
        """
        known.interrupted(self._store, require_id("user_id", user_id))
        for name in (yield from log.read_conversations(self._store, user_id)):
            with suppress(StoreDataError):  # a damaged one is not learned from
                yield from self._learning.owner.recall(
                    Scope(user_id, name), self._learning.pass_over
                )
        yield from self._changing(
            user_id, lambda state: (replace(known.NOTHING, mark=state.mark), None)
        )

    def _pin(self, item_id: str, *, user_id: str, pinned: bool = True) -> Flow[KnownItem]:
        """Keeps a fact, a topic or an entity whatever happens and shows it first.

        `pinned=False` takes that back.

        Raises `FactError` where 10 facts are pinned already, and `InputError` where there is no such item.
        """

        def change(state: Knowledge) -> tuple[Knowledge, KnownItem]:
            item = _find(state, item_id)
            if pinned and isinstance(item, Fact):
                facts.require_room_for_pin(state.facts, item)
            new = item.model_copy(update={"pinned": pinned})
            return _with(state, new), new

        return (yield from self._changing(user_id, change))

    def _why(self, item_id: str, *, user_id: str) -> Flow[list[SourceMessage]]:
        """Returns the messages that an item was learned from, none for one by hand.

        `InputError` if it is unknown.
        """
        knowledge = yield from known.read(self._store, user_id)
        ended = (fact for fact in knowledge.ended if fact.id == item_id)
        sources = (next(ended, None) or _find(knowledge, item_id)).sources
        found: dict[records.Source, SourceMessage] = {}

        def look(conversation: OpenConversation) -> Flow[None]:
            yield from ()
            for source in sources:
                where, key = source.place
                if where == conversation.scope.conversation_id:
                    position = conversation.table.positions.get(key)
                    entry = None if position is None else conversation.table[position]
                    message = entry.message.model_copy(deep=True) if entry else None
                    changed = (
                        entry is not None
                        and bool(source.digest)
                        and entry.fingerprint != source.digest
                    )
                    found[source] = SourceMessage(where, key, message, changed)

        for conversation_id in dict.fromkeys(source.conversation_id for source in sources):
            yield from self._learning.owner.recall(Scope(user_id, conversation_id), look)
        return [found[source] for source in sources]

    def _list_known(self, *, user_id: str) -> Flow[list[KnownLine]]:
        """Lists everything that is known of a user as lines to read.

        Facts, topics, people and things.
        """
        state = yield from known.read(self._store, user_id)
        now = self._now
        items: list[KnownItem] = [*facts.ranked(state.facts), *_by_importance(state.topics, now)]
        items += _by_importance(state.entities, now)
        return sorted(
            (_line(item, state.bundles) for item in items),
            key=lambda line: _HEADINGS.index(line.heading),
        )

    def _describe(self, *, user_id: str) -> Flow[str]:
        """Returns all that is known of a user as a text to read, with the days on which it was said."""
        parts = [f"# What is known about {user_id}"]
        for heading, lines in groupby(
            (yield from self._list_known(user_id=user_id)), key=lambda line: line.heading
        ):
            told = (
                (line, f", {line.last_said.date()}" if line.last_said else "") for line in lines
            )
            parts.append(
                f"## {heading}\n\n"
                + "\n".join(f"- {line.text} ({line.origin}{day})" for line, day in told)
            )
        return "\n\n".join(parts) + "\n"

    def _heartbeat(
        self,
        /,
        *,
        user_id: str,
        device_id: str,
        **opened: Any,  # noqa: ANN401
    ) -> Flow[records.ClientPresence]:
        """Notes what a user has open on a device, predicts the topics and entities to come, and prepares for them.

        Its texts are compiled; a conversation in front is read in the background, with all about it. Noted are
        `active_conversation_id` in front, `visible_conversation_ids` (at most 100), `active_notebook_id`,
        `active_persona_id`, `path` in the application, `local_time` with its UTC offset, `idle` for a user who does
        nothing, which ends the session of the conversation in front. No text has more than 2,000 characters.
        """
        require_id("user_id", user_id)
        beat = _made(Heartbeat, {"device_id": device_id, **opened})
        learning = self._learning

        def body() -> Flow[tuple[records.ClientPresence, list[str]]]:
            state = yield from learning.rewritten(user_id, lambda state: state)
            device = yield from presence.renew(self._store, user_id, state, self._now, beat)
            likely = (*device.predicted_topics, *device.predicted_entities)
            return device, [state.names_by_id[name][0] for name in likely]

        device, names = yield from locked(known.lock_of(self._store, user_id), body())
        if beat.active_conversation_id:
            scope = Scope(user_id, beat.active_conversation_id)
            if beat.idle:
                learning.end_session(scope)
            else:
                learning.owner.read_ahead(scope, ", ".join(names))
        return device

    def _list_devices(self, *, user_id: str) -> Flow[list[records.ClientPresence]]:
        """Lists what a user has open, a record for each device."""
        return presence.devices(self._store, user_id, self._now)

    @property
    def _store(self) -> BaseStore:
        return self._learning.owner.store

    @property
    def _now(self) -> datetime:
        return self._learning.owner.clock()

    def _changing(
        self, user_id: str, change: Callable[[Knowledge], tuple[Knowledge, T]]
    ) -> Flow[T]:
        """Reads, changes, compiles and writes while nobody else does."""
        results: list[T] = []

        def changed(before: Knowledge) -> Knowledge:
            after, result = change(before)
            results.append(result)
            return learning.measured_again(after, self._now)

        rewriting = self._learning.rewritten(user_id, changed, edited=True)
        yield from locked(known.lock_of(self._store, require_id("user_id", user_id)), rewriting)
        return results[0]

    list_facts, alist_facts = twins(_list_facts)
    list_topics, alist_topics = twins(_list_topics)
    list_entities, alist_entities = twins(_list_entities)
    list_bundles, alist_bundles = twins(_list_bundles)
    list_known, alist_known = twins(_list_known)
    add_fact, aadd_fact = twins(_add_fact)
    add_topic, aadd_topic = twins(_add_topic)
    add_entity, aadd_entity = twins(_add_entity)
    edit, aedit = twins(_edit)
    delete, adelete = twins(_delete)
    clear, aclear = twins(_clear)
    pin, apin = twins(_pin)
    why, awhy = twins(_why)
    describe, adescribe = twins(_describe)
    heartbeat, aheartbeat = twins(_heartbeat)
    list_devices, alist_devices = twins(_list_devices)


def _line(item: KnownItem, bundles: Mapping[str, records.ContextBundle]) -> KnownLine:
    by = (
        "by hand"
        if item.made_by == BY_USER
        else f"from {plural(len(item.sources), 'message')}, by {item.made_by}"
    )
    origin = f"{'pinned, ' if item.pinned else ''}{by}"
    if isinstance(item, Fact):
        heading = facts.HEADINGS[item.category].rstrip(":")
        return KnownLine(
            item.id, heading, item.text, item.text, origin, item.pinned, item.last_seen
        )
    heading = _HEADINGS[-2 if isinstance(item, TopicProfile) else -1]
    words = item.names[0]
    text = "; ".join(bundles[item.id].compiled_prompt.splitlines()) or words
    return KnownLine(item.id, heading, text, words, origin, item.pinned, item.last_engaged_at)


def _by_importance(profiles: Iterable[P], now: datetime) -> list[P]:
    """Returns topics or entities with their importance now, the most important one first."""
    return sorted(
        (as_of(profile, now) for profile in profiles),
        key=lambda one: (-one.importance_score, one.id),
    )


def _find(state: Knowledge, item_id: str) -> KnownItem:
    if not isinstance(item_id, str) or (item := state.by_id.get(item_id)) is None:
        raise InputError(
            f"Nothing with the id {item_id!r} is known about this user; `list_known` tells the ids"
        )
    return item


def _with(state: Knowledge, new: KnownItem) -> Knowledge:
    """Returns a state with an item, in place of the one with its id if there is one."""
    name = _PLACES[type(new)]
    items = {one.id: one for one in getattr(state, name)} | {new.id: new}
    every: dict[str, Any] = {name: tuple(items.values())}
    return replace(state, **every)


def _checked(item: KnownItem, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the given fields of an item in their own types.

    `InputError` where one cannot be changed, or is wrong.
    """
    allowed = EDITABLE[type(item)]
    if wrong := sorted(set(values) - set(allowed)):
        raise InputError(
            f"{', '.join(wrong)} cannot be edited; the fields that can are {', '.join(allowed)}"
        )
    made = _made(type(item), {**dict(item), **values})
    given = {name: getattr(made, name) for name in values}
    for name, value in given.items():
        if isinstance(value, str):
            if name in _TEXTS and not 0 < len(value.strip()) <= MOST_CHARACTERS:
                said = f"it must not be blank, and has at most {MOST_CHARACTERS} characters"
                raise InputError(f"{name} cannot be {value!r:.100}: {said}")
            given[name] = one_line(value)
    return given


def _made(kind: type[M], values: Mapping[str, Any]) -> M:
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"][:1]))
        raise InputError(f"{where} cannot be {first['input']!r:.100}: {first['msg']}") from error
