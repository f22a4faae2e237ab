"""Topics and entities: their ids, attributes and scores, and the texts that prompts show.

Numbers are added up from one link per conversation; adding up or merging again gives the same. Days
and hours are UTC. A text (a bundle) has one field per line, most important first, and never costs
more than its cap.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from math import log
from typing import NamedTuple, TypeVar

from langchain_ctxbudget.knowledge import records
from langchain_ctxbudget.knowledge.records import (
    ENGLISH,
    ContextBundle,
    EntityProfile,
    Fact,
    Source,
    TopicProfile,
)
from langchain_ctxbudget.messages import digest, fold, one_line, terms
from langchain_ctxbudget.report import plural
from langchain_ctxbudget.search import shrink_to
from langchain_ctxbudget.settings import ContextSettings, EntityContext
from langchain_ctxbudget.stores import utc
from langchain_ctxbudget.tokens import estimate_tokens

P = TypeVar("P", TopicProfile, EntityProfile)
MOST_DAYS = 100
"""Days that a link remembers, the newest; no streak within one conversation is longer."""
RECENCY = 0.4
FREQUENCY = 0.35
BREADTH = 0.25
HALF_LIFE = timedelta(days=30)
UNKNOWN_IMPORTANCE = 0.5
MANY_MESSAGES = 100
MANY_CONVERSATIONS = 10
MOST_ITEMS = 12
"""Aliases, attributes, relations and facts of an entity: the newest."""
OF_FACTS: Mapping[records.BundleType, records.FactCategory] = {
    "identity_core": "identity",
    "global_prefs": "preference",
}
CAPS: Mapping[str, int] = {
    "topic": 120,
    "entity": 80,
    "identity_core": 500,
    "global_prefs": 500,
    "composite": 500,
}
"""The most tokens that a text may cost."""
FIRST_ATTRIBUTES = ("email", "phone", "title", "department", "location")
"""Attributes that come first, in this order (seed 004)."""
_SIGNS = {"+": "plus", "#": "sharp", ".": "dot"}
"""What tells "C", "C++" and "C#" apart, and ".NET" from "net"."""


def slug(label: str) -> str:
    """Returns folded words joined by hyphens.

    "C" and "C++" have different slugs ("c", "c-plus-plus").
    """
    folded = ENGLISH.telling_signs.sub(
        lambda found: "".join(f" {_SIGNS[sign]} " for sign in found[0]), fold(label)
    )
    words = "".join(
        character if unicodedata.category(character)[0] in "LNM" else " " for character in folded
    )
    return "-".join(words.split())


class Engagement(NamedTuple):
    """A message that names a topic or an entity."""

    at: datetime | None
    tokens: int
    from_user: bool


def engaged(
    link: records.TopicConversation, messages: Sequence[Engagement], *, until: int = 0
) -> records.TopicConversation:
    """Returns a link with more messages of its conversation.

    `until` of its messages are counted then.
    """
    times = [utc(message.at) for message in messages if message.at is not None]
    known = [time for time in (link.first_at, link.last_at, *times) if time is not None]
    hours = Counter(dict(enumerate(link.hours))) + Counter(time.hour for time in times)
    counted = link.messages + len(messages)
    changes = {
        "messages": counted,
        "exchanges": link.exchanges + sum(message.from_user for message in messages),
        "tokens": link.tokens + sum(message.tokens for message in messages),
        "first_at": min(known, default=None),
        "last_at": max(known, default=None),
        "hours": tuple(hours[hour] for hour in range(24)) if hours else (),
        "days": tuple(
            sorted({*link.days, *(time.date().isoformat() for time in times)})[-MOST_DAYS:]
        ),
        "until": max(link.until, until),
        "relevance_score": min(1.0, counted / until) if until else link.relevance_score,
    }
    return link.model_copy(update=changes)


def measured(profile: P, links: Iterable[records.TopicConversation]) -> P:
    """Returns a topic or an entity with its numbers computed from its conversations."""
    counted = [link for link in links if link.messages]
    hours = [
        sum(column) for column in zip(*(link.hours for link in counted if link.hours), strict=True)
    ]
    days = {date.fromisoformat(day).toordinal() for link in counted for day in link.days}
    last_day = max(days, default=0)
    changes = {
        "total_conversations": len(counted),
        "total_messages": sum(link.messages for link in counted),
        "total_acus": sum(link.exchanges for link in counted),
        "total_tokens_spent": sum(link.tokens for link in counted),
        "first_engaged_at": min(
            (utc(link.first_at) for link in counted if link.first_at), default=None
        ),
        "last_engaged_at": max(
            (utc(link.last_at) for link in counted if link.last_at), default=None
        ),
        "engagement_streak": next(
            length for length in range(len(days) + 1) if last_day - length not in days
        ),
        "peak_hour": hours.index(max(hours)) if hours else None,
    }
    return profile.model_copy(update=changes)


def as_of(profile: P, now: datetime) -> P:
    """Returns a topic or an entity with its importance at a time instead of when it was counted last."""
    return profile.model_copy(update={"importance_score": importance_at(profile, now)})


def importance_at(profile: records.Profile, now: datetime) -> float:
    """Returns the importance of a topic or an entity at a time, 0 to 1; that of a pinned one is 1.

    `0.4 * recency + 0.35 * frequency + 0.25 * breadth`, each at most 1: `0.5 ** (days since the last time / 30)`,
    `log(1 + messages) / log(101)` and `conversations / 10`.
    """
    if profile.pinned or not profile.total_messages:
        return 1.0 if profile.pinned else UNKNOWN_IMPORTANCE
    last = profile.last_engaged_at
    ago = max(utc(now) - utc(last), timedelta()) if last else timedelta.max
    frequency = min(1.0, log(1 + profile.total_messages) / log(1 + MANY_MESSAGES))
    breadth = min(1.0, profile.total_conversations / MANY_CONVERSATIONS)
    return RECENCY * float(0.5 ** (ago / HALF_LIFE)) + FREQUENCY * frequency + BREADTH * breadth


# What is learned of them


def merge_topics(
    known: Sequence[TopicProfile],
    learned: records.Learned,
    sources: Mapping[str, Source],
    now: datetime,
) -> tuple[TopicProfile, ...]:
    """Merges learned topics into the known ones; one is the same under any of its names."""
    topics = {topic.slug: topic for topic in known}

    def called(label: str) -> TopicProfile | None:
        same = (one for one in topics.values() if label and is_called(one, label))
        return topics.get(slug(label)) or next(same, None)

    for new in learned.topics:
        came_from = [sources[key] for key in new.message_ids if key in sources]
        label = _short(new.label)
        if not came_from or not (key := slug(label)):
            continue
        blank = TopicProfile(
            id=f"topic/{key}", slug=key, label=label, made_by=learned.made_by, created_at=now
        )
        old = called(label) or blank
        changes: dict[str, object] = {
            "aliases": _names(old.label, (*old.aliases, *new.aliases, new.label))
        }
        if old.made_by != records.BY_USER and not {*came_from} <= {*old.sources}:
            changes["domain"] = new.domain or old.domain
            changes["proficiency_level"] = (
                old.proficiency_level if new.proficiency == "unknown" else new.proficiency
            )
        topics[old.slug] = _changed(old, changes, came_from, now)
    for new in learned.topics:
        child = called(new.label)
        parent = called(new.parent)
        if (
            child
            and parent
            and child.slug not in (parent.slug, parent.parent_slug)
            and not child.parent_slug
        ):
            topics[child.slug] = child.model_copy(update={"parent_slug": parent.slug})
    return tuple(topics.values())


def is_called(topic: TopicProfile, label: str) -> bool:
    """Returns whether a label has the stems of one of a topic's names, in any order."""

    def key(name: str) -> tuple[str, ...]:
        folded = fold(name)
        return (
            *sorted(set(terms(folded)) or {one_line(folded)}),
            *ENGLISH.telling_signs.findall(folded),
        )

    return key(label) in map(key, topic.names)


def merge_entities(
    known: Sequence[EntityProfile],
    learned: records.Learned,
    sources: Mapping[str, Source],
    now: datetime,
) -> tuple[EntityProfile, ...]:
    """Merges learned entities into the known ones; one that was written by hand stays as it is.

    It is the same one if a name of one is a name of the other and they are of one type, or one of
    them is only a concept. A person's first name is that person where no other known one has it.
    """
    entities = {entity.id: entity for entity in known}
    for new in learned.entities:
        came_from = [sources[key] for key in new.message_ids if key in sources]
        name = _short(new.name)
        if not came_from or not name:
            continue
        key = f"entity/{new.type}/{one_line(fold(name))}"
        blank = EntityProfile(
            id=key, name=name, type=new.type, made_by=learned.made_by, created_at=now
        )
        old = _same_entity(entities.values(), new, name) or entities.get(key, blank)
        changes: dict[str, object] = {}
        if old.made_by != records.BY_USER:
            told = {what: _short(value) for what, value in new.attributes}
            longest = max(old.name, name, key=lambda one: len(one.split()))
            shown = longest if old.type == "person" else old.name
            changes = {
                "name": shown,
                "type": new.type if old.type == "concept" else old.type,
                "aliases": _names(shown, (*old.aliases, *new.aliases, old.name, name)),
                "relationship": new.relationship or old.relationship,
                "attributes": tuple((dict(old.attributes) | told).items())[-MOST_ITEMS:],
                "relations": tuple(dict.fromkeys((*old.relations, *new.relations)))[-MOST_ITEMS:],
                "facts": tuple(dict.fromkeys((*old.facts, *map(_short, new.facts))))[-MOST_ITEMS:],
            }
        entities[old.id] = _changed(old, changes, came_from, now)
    return tuple(entities.values())


def _same_entity(
    known: Iterable[EntityProfile], new: records.LearnedEntity, name: str
) -> EntityProfile | None:
    names = {fold(one) for one in (name, *new.aliases)}
    alike = [
        entity
        for entity in known
        if entity.type == new.type or "concept" in (entity.type, new.type)
    ]
    if same := next((entity for entity in alike if names & set(map(fold, entity.names))), None):
        return same
    first, *rest = fold(name).split()
    # "Sarah Chen", where "Sarah" is known, or the other way round.
    people = [
        (entity, fold(entity.name)) for entity in alike if "person" == entity.type == new.type
    ]
    namesakes = [
        entity for entity, called in people if (called if rest else called.split()[0]) == first
    ]
    return namesakes[0] if len(namesakes) == 1 else None


def _short(text: str) -> str:
    return one_line(text)[: records.MOST_TEXT_CHARACTERS]


def _names(label: str, others: Sequence[str]) -> tuple[str, ...]:
    found = {fold(one_line(other)): _short(other) for other in reversed(others)}
    return tuple(name for key, name in reversed(found.items()) if key not in ("", fold(label)))[
        :MOST_ITEMS
    ]


def _changed(
    old: P, changes: Mapping[str, object], came_from: Iterable[Source], now: datetime
) -> P:
    new = old.model_copy(update={**changes, "sources": records.joined(old.sources, came_from)})
    return old if new == old else new.model_copy(update={"updated_at": now})


# Their texts


@dataclass(frozen=True, kw_only=True)
class Compiler:
    """Compiles texts.

    One of the `old` ones (by id) that shows nothing new stays the same object.
    """

    now: datetime
    old: Mapping[str, ContextBundle] = field(default_factory=dict)
    entities: EntityContext = field(default_factory=EntityContext)

    def topic(
        self, profile: TopicProfile, facts: Sequence[Fact] = (), parent: TopicProfile | None = None
    ) -> ContextBundle:
        """Compiles the text of a topic and the facts about it; empty if only its name is known."""
        head = one_line(profile.label) + (f" (part of {one_line(parent.label)})" if parent else "")
        lines = [head, self._by_hand("topic", head, profile)]
        if profile.proficiency_level != "unknown":
            lines.append(f"The user's level: {profile.proficiency_level}")
        if profile.total_conversations:
            times = (time for time in (profile.first_engaged_at, profile.last_engaged_at) if time)
            span = " to ".join(dict.fromkeys(utc(time).date().isoformat() for time in times))
            lines.append(
                f"Came up in {plural(profile.total_conversations, 'conversation')}{', ' * bool(span)}{span}"
            )
        shown = lines if lines[1] or facts else []
        return self._made("topic", shown, facts, profile.id, importance_at(profile, self.now))

    def entity(self, profile: EntityProfile, facts: Sequence[Fact] = ()) -> ContextBundle:
        """Compiles the text of a person or a thing, in the order of seed 004.

        Empty if only its name is known.
        """
        values = {
            name: value for name, value in profile.attributes if value.strip()
        }  # the newest of each
        place = {name: number for number, name in enumerate(FIRST_ATTRIBUTES)}
        names = sorted(values, key=lambda name: place.get(name.casefold(), len(place)))
        relations = profile.relations if self.entities.relationships else ()
        related = ", ".join(one_line(" ".join(one)) for one in relations)
        head = f"{one_line(profile.name)} ({profile.type})"
        texts = [
            self._by_hand("entity", head, profile),
            profile.relationship or "",
            *(f"{name}: {values[name]}" for name in names[: self.entities.attributes_per_entity]),
            f"Related: {related}" if related else "",
            *reversed(profile.facts),
        ]
        lines = [head, *map(one_line, texts)] if any(map(str.strip, texts)) or facts else []
        return self._made("entity", lines, facts, profile.id, importance_at(profile, self.now))

    def of_facts(self, kind: records.BundleType, facts: Sequence[Fact]) -> ContextBundle:
        """Compiles who the user is (`identity_core`), or what the user prefers (`global_prefs`)."""
        return self._made(
            kind, [], [fact for fact in facts if fact.category == OF_FACTS[kind]], kind
        )

    def persona(self, persona_id: str, settings: ContextSettings) -> ContextBundle:
        """Compiles who the assistant is as a persona, and how it answers."""
        lines = [*map(one_line, (*settings.manner, *settings.preferences))]
        return self._made("composite", lines, (), f"persona/{persona_id}")

    def _by_hand(self, kind: records.BundleType, head: str, profile: records.Profile) -> str:
        """Returns the description written by hand, as much of it as fits behind the name."""
        text = one_line(profile.compiled_context or "")
        return (
            shrink_to(text, lambda part: estimate_tokens(f"{head}\n{part}"), CAPS[kind], str.split)
            or ""
        )

    def _made(
        self,
        kind: records.BundleType,
        lines: Sequence[str],
        facts: Sequence[Fact],
        key: str,
        priority: float = 1.0,
    ) -> ContextBundle:
        """Takes the name, and of the lines and facts behind it those that fit the cap, each text once."""
        every = list(
            dict.fromkeys(filter(None, (*lines, *(one_line(fact.shown) for fact in facts))))
        )
        made_from = digest("\n".join(every)).hex()
        old = self.old.get(key)
        if old and old.made_from == made_from:
            return old
        shown: list[str] = []
        for line in every:
            if estimate_tokens("\n".join((*shown, line))) <= CAPS[kind]:
                shown.append(line)
            elif not shown:
                break
        text = "\n".join(shown)
        made: dict[str, object] = {
            "compiled_prompt": text,
            "token_count": estimate_tokens(text) if text else 0,
            "made_from": made_from,
            "version": old.version + (text != old.compiled_prompt) if old else 1,
            "priority": priority,
            "compiled_at": self.now,
        }
        blank = ContextBundle(
            id=key, bundle_type=kind, compiled_prompt="", token_count=0, compiled_at=self.now
        )
        return (old or blank).model_copy(update=made)
