"""The flows behind `UserKnowledge`: listing, editing, explaining and forgetting what is known.

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

from langchain_ctxbudget.errors import InputError, StoreDataError
from langchain_ctxbudget.flow import Flow, T, locked
from langchain_ctxbudget.history import OpenConversation, log
from langchain_ctxbudget.knowledge import (
    fact_merging,
    known,
    merging,
    presence,
    records,
    standing_rules,
)
from langchain_ctxbudget.knowledge.fact_merging import CATEGORIES
from langchain_ctxbudget.knowledge.known import Knowledge
from langchain_ctxbudget.knowledge.learning import Learning
from langchain_ctxbudget.knowledge.presence import Heartbeat
from langchain_ctxbudget.knowledge.profiles import as_of, slug
from langchain_ctxbudget.knowledge.records import (
    BY_USER,
    MOST_CHARACTERS,
    ClientPresence,
    ContextBundle,
    EntityProfile,
    Fact,
    LearnedFact,
    Profile,
    RuleRecord,
    Source,
    TopicProfile,
)
from langchain_ctxbudget.knowledge.standing_rules import StandingRule
from langchain_ctxbudget.messages import fold, one_line, says_the_same, terms
from langchain_ctxbudget.report import plural
from langchain_ctxbudget.stores import Scope, require_id

KnownItem: TypeAlias = Fact | TopicProfile | EntityProfile
K = TypeVar("K", Fact, TopicProfile, EntityProfile)
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
    EntityProfile: ("name", "type", *merging.DETAILS, "compiled_context"),
}
"""The fields that can be changed by hand."""
_NOT_BLANK = ("text", "label", "name", "compiled_context")
"""The fields that must say something."""
_FIELD_OF_TEXT: Mapping[str, str] = {"topic": "label", "entity": "name"}
"""What `text` stands for in a topic and an entity, by the beginning of its id."""
_HEADING_OF_RULES = "Standing rules"
_HEADING_OF_TOPICS = "Topics"
_HEADING_OF_ENTITIES = "People and things"
_HEADINGS = [
    _HEADING_OF_RULES,
    *(category.heading.rstrip(":") for category in CATEGORIES.values()),
    _HEADING_OF_TOPICS,
    _HEADING_OF_ENTITIES,
]


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
    """A standing rule, a fact, a topic or an entity as a line to read."""

    id: str
    heading: str
    text: str
    """All of it that prompts may show."""
    words: str
    """The part that `edit(text=...)` replaces: a fact, the label of a topic, the name of an
    entity; empty for a rule, which is in the user's words."""
    origin: str
    """Whether it is pinned, and who has it from where: "pinned, from 3 messages, by rules"."""
    pinned: bool
    last_said: datetime | None


class ControlFlows:
    """What `UserKnowledge` does, each as one flow for its blocking and its awaitable method."""

    def __init__(self, learning: Learning) -> None:
        self._learning = learning

    @property
    def _store(self) -> BaseStore:
        return self._learning.owner.store

    @property
    def _now(self) -> datetime:
        return self._learning.owner.clock()

    # Lists

    def list_facts(self, user_id: str, *, include_ended: bool) -> Flow[list[Fact]]:
        """Lists current facts in the order of prompts, then ended ones, the newest first."""
        knowledge = yield from known.read(self._store, user_id)
        listed = list(fact_merging.ranked(knowledge.facts))
        if include_ended:
            listed += sorted(
                knowledge.ended_facts,
                key=lambda fact: (fact.ended_at or fact.last_seen, fact.id),
                reverse=True,
            )
        return listed

    def list_rules(self, user_id: str) -> Flow[list[StandingRule]]:
        """Lists the rules that hold in all conversations, in order of time."""
        yield from self._learning.catch_up_with_rules(user_id)
        knowledge = yield from known.read(self._store, user_id)
        return standing_rules.rules_everywhere(knowledge.rules)

    def list_topics(self, user_id: str) -> Flow[list[TopicProfile]]:
        """Lists topics, the most important one first."""
        knowledge = yield from known.read(self._store, user_id)
        return _by_importance(knowledge.topics, self._now)

    def list_entities(self, user_id: str) -> Flow[list[EntityProfile]]:
        """Lists people and things, the most important one first."""
        knowledge = yield from known.read(self._store, user_id)
        return _by_importance(knowledge.entities, self._now)

    def list_bundles(self, user_id: str) -> Flow[list[ContextBundle]]:
        """Lists compiled texts, with the uses that were not written yet."""
        knowledge = yield from known.read(self._store, user_id)
        uses = known.kept_of(self._store, user_id).uses
        return list(merging.with_uses(knowledge.bundles, uses, self._now).values())

    def list_devices(self, user_id: str) -> Flow[list[ClientPresence]]:
        """Lists what a user has open, a record for each device."""
        return presence.devices(self._store, user_id, self._now)

    def list_known(self, user_id: str) -> Flow[list[KnownLine]]:
        """Lists everything as lines to read."""
        knowledge = yield from known.read(self._store, user_id)
        items: list[KnownItem] = [
            *fact_merging.ranked(knowledge.facts),
            *_by_importance(knowledge.topics, self._now),
            *_by_importance(knowledge.entities, self._now),
        ]
        lines = list(map(_line_of_rule, standing_rules.rules_everywhere(knowledge.rules)))
        lines += [_line_of(item, knowledge.bundles) for item in items]
        return sorted(lines, key=lambda line: _HEADINGS.index(line.heading))

    def describe(self, user_id: str) -> Flow[str]:
        """Returns everything as a text in Markdown."""
        lines = yield from self.list_known(user_id)
        parts = [f"# What is known about {user_id}"]
        for heading, group in groupby(lines, key=lambda line: line.heading):
            items = []
            for line in group:
                day = f", {line.last_said.date()}" if line.last_said else ""
                items.append(f"- {line.text} ({line.origin}{day})")
            parts.append(f"## {heading}\n\n" + "\n".join(items))
        return "\n\n".join(parts) + "\n"

    def why(self, item_id: str, user_id: str) -> Flow[list[SourceMessage]]:
        """Returns the messages that an item was learned from, in the order of its sources."""
        knowledge = yield from known.read(self._store, user_id)
        sources = _sources_of(knowledge, item_id)
        messages: dict[Source, SourceMessage] = {}

        def look_up(conversation: OpenConversation) -> Flow[None]:
            yield from ()
            for source in sources:
                if source.conversation_id == conversation.scope.conversation_id:
                    messages[source] = _message_of(source, conversation)

        for conversation_id in dict.fromkeys(source.conversation_id for source in sources):
            yield from self._learning.owner.recall(Scope(user_id, conversation_id), look_up)
        return [messages[source] for source in sources]

    # Changes by hand

    def add_fact(
        self,
        text: str,
        user_id: str,
        *,
        category: records.FactCategory,
        confidence: float,
        slot: str,
        memory_type: records.MemoryType | None,
    ) -> Flow[Fact]:
        """Merges a fact into the known ones as the newest, and returns it as it is known then."""
        now = self._now
        blank = Fact(id="", text="", category="preference", created_at=now, last_seen=now)
        fields = {
            "text": text,
            "category": category,
            "confidence": confidence,
            "memory_type": memory_type,
        }
        values = _checked(blank, fields)
        memory_type = values.pop("memory_type")
        note = LearnedFact(**values, slot=one_line(slot))

        def change(before: Knowledge) -> tuple[Knowledge, Fact]:
            # A fact by hand is the newest, also where another computer's clock is ahead.
            latest = max((now, *(fact.last_seen for fact in before.facts)))
            merged = fact_merging.learn(
                (*before.facts, *before.ended_facts), [note], {}, latest, BY_USER
            )
            alike = [
                fact for fact in merged if fact.is_current and says_the_same(fact.text, note.text)
            ]
            facts_before = {fact.id: fact for fact in before.facts}
            added = min(alike, key=lambda fact: facts_before.get(fact.id) == fact)
            added = added.model_copy(
                update={"made_by": BY_USER, "text": note.text, "memory_type": memory_type}
            )
            all_facts = [added if fact.id == added.id else fact for fact in merged]
            return before.with_facts(fact_merging.pruned(all_facts, now)), added

        return (yield from self._changing(user_id, change))

    def add_topic(self, label: str, user_id: str, fields: Mapping[str, Any]) -> Flow[TopicProfile]:
        """Adds a topic; `InputError` where there is one of this name."""
        key = slug(str(label))
        blank = TopicProfile(
            id=f"topic/{key}", slug=key, label=str(label), made_by=BY_USER, created_at=self._now
        )
        return self._adding(user_id, blank, {"label": label, **fields})

    def add_entity(self, name: str, user_id: str, fields: Mapping[str, Any]) -> Flow[EntityProfile]:
        """Adds a person or a thing; `InputError` where there is one of this name and type."""
        key = f"entity/{fields.get('type', 'concept')}/{one_line(fold(str(name)))}"
        blank = EntityProfile(id=key, name=str(name), made_by=BY_USER, created_at=self._now)
        return self._adding(user_id, blank, {"name": name, **fields})

    def _adding(self, user_id: str, blank: P, fields: Mapping[str, Any]) -> Flow[P]:
        profile = blank.model_copy(update=_checked(blank, fields))

        def change(before: Knowledge) -> tuple[Knowledge, P]:
            if profile.id in before.by_id:
                raise InputError(f"{profile.id!r} is known already; change it with edit")
            return _with_item(before, profile), profile

        return self._changing(user_id, change)

    def edit(self, item_id: str, user_id: str, changes: Mapping[str, Any]) -> Flow[KnownItem]:
        """Changes fields of an item, and returns it as it is then."""
        kind, _, _ = str(item_id).partition("/")
        field_of = {"text": _FIELD_OF_TEXT.get(kind, "text")}
        fields = {field_of.get(name, name): value for name, value in changes.items()}

        def change(before: Knowledge) -> tuple[Knowledge, KnownItem]:
            item = _find(before, item_id)
            values = _checked(item, fields)
            if isinstance(item, Fact):
                edited: KnownItem = _edited_fact(item, values)
            else:
                edited = _edited_profile(item, values, self._now)
            return _with_item(before, edited), edited

        return (yield from self._changing(user_id, change))

    def delete(self, item_id: str, user_id: str) -> Flow[None]:
        """Forgets an item; its messages stay. A rule is lifted."""

        def change(before: Knowledge) -> tuple[Knowledge, None]:
            rule = _rule(before, item_id)
            if rule is not None:
                rules = standing_rules.records_with_lifted(before.rules, rule, self._now)
                return replace(before, rules=rules), None
            if _ended_fact(before, item_id) is not None:
                return replace(before, ended_facts=_without_id(before.ended_facts, item_id)), None
            return _without_item(before, _find(before, item_id)), None

        yield from self._changing(user_id, change)

    def clear(self, user_id: str) -> Flow[None]:
        """Forgets everything, and notes that no conversation is to be learned from once more."""
        known.interrupted(self._store, require_id("user_id", user_id))
        rules: list[RuleRecord] = []

        def pass_over(conversation: OpenConversation) -> Flow[None]:
            yield from self._learning.reader.pass_over(conversation)
            events = standing_rules.events_of(conversation.table, conversation.scope)
            rules.extend(
                standing_rules.record_without_words(event.rule)
                for event in events
                if event.rule.holds_everywhere
            )

        for name in (yield from log.read_conversations(self._store, user_id)):
            with suppress(StoreDataError):  # a damaged one is not learned from
                yield from self._learning.owner.recall(Scope(user_id, name), pass_over)

        def change(before: Knowledge) -> tuple[Knowledge, None]:
            kept = standing_rules.records_once_forgotten(before.rules, rules)
            return replace(known.NOTHING, mark=before.mark, rules=kept), None

        yield from self._changing(user_id, change)

    def pin(self, item_id: str, user_id: str, *, pinned: bool) -> Flow[KnownItem]:
        """Pins an item or takes its pin, and returns it as it is then."""

        def change(before: Knowledge) -> tuple[Knowledge, KnownItem]:
            item = _find(before, item_id)
            if pinned and isinstance(item, Fact):
                fact_merging.require_room_for_pin(before.facts, item)
            changed = item.model_copy(update={"pinned": pinned})
            return _with_item(before, changed), changed

        return (yield from self._changing(user_id, change))

    def _changing(
        self, user_id: str, change: Callable[[Knowledge], tuple[Knowledge, T]]
    ) -> Flow[T]:
        """Reads, changes, compiles and writes while nobody else does.

        Returns what `change` returns beside the knowledge.
        """
        results: list[T] = []

        def changed(before: Knowledge) -> Knowledge:
            after, result = change(before)
            results.append(result)
            return merging.measured_again(after, self._now)

        rewriting = self._learning.rewritten(user_id, changed, edited=True)
        yield from locked(known.lock_of(self._store, require_id("user_id", user_id)), rewriting)
        return results[0]

    # Presence

    def heartbeat(
        self, user_id: str, device_id: str, opened: Mapping[str, Any]
    ) -> Flow[ClientPresence]:
        """Notes what a user has open on a device, predicts what comes up, and prepares for it."""
        require_id("user_id", user_id)
        beat = _validated(Heartbeat, {"device_id": device_id, **opened})
        renewing = self._renewed_presence(user_id, beat)
        device, names = yield from locked(known.lock_of(self._store, user_id), renewing)
        if beat.active_conversation_id:
            scope = Scope(user_id, beat.active_conversation_id)
            if beat.idle:
                self._learning.end_session(scope)
            else:
                self._learning.owner.read_ahead(scope, ", ".join(names))
        return device

    def _renewed_presence(
        self, user_id: str, beat: Heartbeat
    ) -> Flow[tuple[ClientPresence, list[str]]]:
        """Writes a heartbeat; returns the device, and the names of what is likely to come up."""
        knowledge = yield from self._learning.rewritten(user_id, lambda before: before)
        device = yield from presence.renew(self._store, user_id, knowledge, self._now, beat)
        predicted = (*device.predicted_topics, *device.predicted_entities)
        return device, [knowledge.names_by_id[name][0] for name in predicted]


# Items


def _by_importance(profiles: Iterable[P], now: datetime) -> list[P]:
    """Returns topics or entities with their importance now, the most important one first."""
    measured = [as_of(profile, now) for profile in profiles]
    return sorted(measured, key=lambda profile: (-profile.importance_score, profile.id))


def _line_of(item: KnownItem, bundles: Mapping[str, ContextBundle]) -> KnownLine:
    """Returns an item as a line to read."""
    if isinstance(item, Fact):
        return KnownLine(
            id=item.id,
            heading=CATEGORIES[item.category].heading.rstrip(":"),
            text=item.text,
            words=item.text,
            origin=_origin_of(item),
            pinned=item.pinned,
            last_said=item.last_seen,
        )
    heading = _HEADING_OF_ENTITIES
    if isinstance(item, TopicProfile):
        heading = _HEADING_OF_TOPICS
    name = item.names[0]
    return KnownLine(
        id=item.id,
        heading=heading,
        text="; ".join(bundles[item.id].compiled_prompt.splitlines()) or name,
        words=name,
        origin=_origin_of(item),
        pinned=item.pinned,
        last_said=item.last_engaged_at,
    )


def _line_of_rule(rule: StandingRule) -> KnownLine:
    """Returns a rule that holds everywhere as a line to read."""
    origin = "by hand"
    if rule.made_by != BY_USER:
        origin = f"from 1 message, by {rule.made_by}"
    return KnownLine(
        id=rule.id,
        heading=_HEADING_OF_RULES,
        text=rule.text,
        words="",
        origin=origin,
        pinned=False,
        last_said=rule.since,
    )


def _origin_of(item: KnownItem) -> str:
    """Returns in words whether an item is pinned, and who has it from where."""
    origin = "by hand"
    if item.made_by != BY_USER:
        origin = f"from {plural(len(item.sources), 'message')}, by {item.made_by}"
    return f"pinned, {origin}" if item.pinned else origin


def _message_of(source: Source, conversation: OpenConversation) -> SourceMessage:
    """Returns the message of a source as it is in its conversation now."""
    position = conversation.table.positions.get(source.message_id)
    if position is None:
        return SourceMessage(source.conversation_id, source.message_id, None)
    entry = conversation.table[position]
    return SourceMessage(
        source.conversation_id,
        source.message_id,
        entry.message.model_copy(deep=True),
        changed=bool(source.digest) and entry.fingerprint != source.digest,
    )


def _ended_fact(knowledge: Knowledge, item_id: str) -> Fact | None:
    """Returns the ended fact with an id, if there is one."""
    return next((fact for fact in knowledge.ended_facts if fact.id == item_id), None)


def _rule(knowledge: Knowledge, item_id: str) -> StandingRule | None:
    """Returns the rule with an id that holds everywhere, if there is one."""
    rules = standing_rules.rules_everywhere(knowledge.rules)
    return next((rule for rule in rules if rule.id == item_id), None)


def _sources_of(knowledge: Knowledge, item_id: str) -> tuple[Source, ...]:
    """Returns the messages that an item comes from; `InputError` where there is no such item."""
    rule = _rule(knowledge, item_id)
    if rule is None:
        item = _ended_fact(knowledge, item_id) or _find(knowledge, item_id)
        return item.sources
    if not rule.message_id:
        return ()
    source = Source(
        conversation_id=rule.conversation_id, message_id=rule.message_id, digest=rule.digest
    )
    return (source,)


def _find(knowledge: Knowledge, item_id: str) -> KnownItem:
    """Returns the current fact, the topic or the entity with an id; `InputError` without one."""
    item = knowledge.by_id.get(item_id) if isinstance(item_id, str) else None
    if item is None:
        raise InputError(
            f"Nothing with the id {item_id!r} is known about this user; list what is known, "
            "and take an id from there"
        )
    return item


def _with_item(knowledge: Knowledge, item: KnownItem) -> Knowledge:
    """Returns the knowledge with an item, in place of the one with its id if there is one."""
    if isinstance(item, Fact):
        return replace(knowledge, facts=_replaced(knowledge.facts, item))
    if isinstance(item, TopicProfile):
        return replace(knowledge, topics=_replaced(knowledge.topics, item))
    return replace(knowledge, entities=_replaced(knowledge.entities, item))


def _replaced(items: Iterable[K], item: K) -> tuple[K, ...]:
    by_id = {other.id: other for other in items}
    by_id[item.id] = item
    return tuple(by_id.values())


def _without_item(knowledge: Knowledge, item: KnownItem) -> Knowledge:
    """Returns the knowledge without an item.

    With a fact go the sentences of entities that say the same, with a topic its phrases.
    """
    if isinstance(item, Fact):
        fact_terms = set(terms(item.text))
        entities = [_without_sentences(entity, fact_terms) for entity in knowledge.entities]
        return replace(
            knowledge, facts=_without_id(knowledge.facts, item.id), entities=tuple(entities)
        )
    if isinstance(item, TopicProfile):
        phrases = [phrase for phrase in knowledge.phrases if phrase.label not in item.names]
        return replace(
            knowledge, topics=_without_id(knowledge.topics, item.id), phrases=tuple(phrases)
        )
    return replace(knowledge, entities=_without_id(knowledge.entities, item.id))


def _without_id(items: Iterable[K], item_id: str) -> tuple[K, ...]:
    return tuple(item for item in items if item.id != item_id)


def _without_sentences(entity: EntityProfile, fact_terms: set[str]) -> EntityProfile:
    """Returns an entity without the sentences that say nothing but what a fact says."""
    if not fact_terms:
        return entity
    sentences = tuple(
        sentence for sentence in entity.facts if not set(terms(sentence)) <= fact_terms
    )
    return entity.model_copy(update={"facts": sentences})


def _edited_fact(fact: Fact, values: Mapping[str, Any]) -> Fact:
    """Returns a fact with other values; it is the user's once its text is."""
    changes = dict(values)
    if "text" in values:
        changes["made_by"] = BY_USER
    return fact.model_copy(update=changes)


def _edited_profile(profile: Profile, values: Mapping[str, Any], now: datetime) -> Profile:
    """Returns a topic or an entity with other values; its old name stays an alias."""
    changes = {**values, "made_by": BY_USER, "updated_at": now}
    is_renamed = "label" in values or "name" in values
    if is_renamed and "aliases" not in values:  # users go on saying what they used to
        changes["aliases"] = tuple(dict.fromkeys((*profile.aliases, profile.names[0])))
    return profile.model_copy(update=changes)


# Values by hand


def _checked(item: KnownItem, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns values for fields of an item in the types of these fields, texts on one line.

    Raises:
        InputError: A field cannot be changed by hand, or a value does not fit it.
    """
    editable = EDITABLE[type(item)]
    unknown = sorted(set(values) - set(editable))
    if unknown:
        raise InputError(
            f"{', '.join(unknown)} cannot be edited; the fields that can are {', '.join(editable)}"
        )
    validated = _validated(type(item), {**dict(item), **values})
    checked = {name: getattr(validated, name) for name in values}
    for name, value in checked.items():
        if isinstance(value, str):
            _require_text(name, value)
            checked[name] = one_line(value)
    return checked


def _require_text(name: str, value: str) -> None:
    if name in _NOT_BLANK and not 0 < len(value.strip()) <= MOST_CHARACTERS:
        rule = f"it must not be blank, and has at most {MOST_CHARACTERS} characters"
        raise InputError(f"{name} cannot be {value!r:.100}: {rule}")


def _validated(kind: type[M], values: Mapping[str, Any]) -> M:
    """Returns a model of these values; an `InputError` names the first field that is wrong."""
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"][:1]))
        raise InputError(f"{where} cannot be {first['input']!r:.100}: {first['msg']}") from error
