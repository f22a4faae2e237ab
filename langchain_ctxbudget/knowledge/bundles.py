"""The texts about topics, people, the user and personas that are compiled before a prompt.

A text (a bundle) has one line per statement, the most important first. What was learned never costs
more in it than the cap of its kind; what was written by hand stands whole.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from langchain_ctxbudget.knowledge import records
from langchain_ctxbudget.knowledge.profiles import importance_at
from langchain_ctxbudget.knowledge.records import (
    ContextBundle,
    EntityProfile,
    Fact,
    TopicProfile,
)
from langchain_ctxbudget.messages import digest, one_line
from langchain_ctxbudget.report import plural
from langchain_ctxbudget.settings import ContextSettings, EntityContext
from langchain_ctxbudget.stores import utc
from langchain_ctxbudget.tokens import estimate_tokens

CATEGORY_OF_BUNDLE: Mapping[records.BundleType, records.FactCategory] = {
    "identity_core": "identity",
    "global_prefs": "preference",
}
"""The facts that the texts about the user are compiled from."""
CAPS: Mapping[str, int] = {
    "topic": 120,
    "entity": 80,
    "identity_core": 500,
    "global_prefs": 500,
    "composite": 500,
}
"""The most tokens that what was learned may cost in a text of a kind."""
FIRST_ATTRIBUTES = ("email", "phone", "title", "department", "location")
"""Attributes of an entity that come first, in this order."""


@dataclass(frozen=True, kw_only=True)
class Compiler:
    """Compiles texts; one of the old ones that shows nothing new stays the same object."""

    now: datetime
    old: Mapping[str, ContextBundle] = field(default_factory=dict)
    """The texts so far, by id."""
    entities: EntityContext = field(default_factory=EntityContext)

    def topic(
        self, profile: TopicProfile, facts: Sequence[Fact] = (), parent: TopicProfile | None = None
    ) -> ContextBundle:
        """Compiles the text of a topic and the facts about it; empty if only its name is known."""
        head = one_line(profile.label)
        if parent:
            head += f" (part of {one_line(parent.label)})"
        description = one_line(profile.compiled_context or "")
        engagement = _engagement_lines(profile)

        by_hand: list[str] = []
        learned: list[str] = []
        if description:
            by_hand = [head, description]
            learned = engagement
        elif facts:
            learned = [head, *engagement]
        priority = importance_at(profile, self.now)
        return self._compiled("topic", profile.id, by_hand, [*learned, *_lines_of(facts)], priority)

    def entity(self, profile: EntityProfile, facts: Sequence[Fact] = ()) -> ContextBundle:
        """Compiles the text of a person or a thing; empty if only its name is known.

        Behind the name stand the description by hand, the relationship to the user, attributes,
        relations to others, and what was said about it, newest first.
        """
        head = f"{one_line(profile.name)} ({profile.type})"
        description = one_line(profile.compiled_context or "")
        details = self._detail_lines(profile)

        by_hand: list[str] = []
        learned: list[str] = []
        if profile.made_by == records.BY_USER and (description or details):
            by_hand = [head, description, *details]
        elif description:
            by_hand = [head, description]
            learned = details
        elif details or facts:
            learned = [head, *details]
        priority = importance_at(profile, self.now)
        return self._compiled(
            "entity", profile.id, by_hand, [*learned, *_lines_of(facts)], priority
        )

    def _detail_lines(self, profile: EntityProfile) -> list[str]:
        """Returns what is known of an entity beside its description, the most important first."""
        details = [
            profile.relationship or "",
            *self._attribute_lines(profile),
            self._relations_line(profile),
            *reversed(profile.facts),
        ]
        return [line for line in map(one_line, details) if line]

    def _attribute_lines(self, profile: EntityProfile) -> list[str]:
        """Returns an entity's most important attributes, of each the newest value."""
        values = {name: value for name, value in profile.attributes if value.strip()}
        places = {name: place for place, name in enumerate(FIRST_ATTRIBUTES)}
        names = sorted(values, key=lambda name: places.get(name.casefold(), len(places)))
        shown_names = names[: self.entities.attributes_per_entity]
        return [f"{name}: {values[name]}" for name in shown_names]

    def _relations_line(self, profile: EntityProfile) -> str:
        """Returns an entity's relations to others; empty where there are none to show."""
        if not self.entities.relationships:
            return ""
        related = ", ".join(one_line(" ".join(pair)) for pair in profile.relations)
        return f"Related: {related}" if related else ""

    def of_facts(self, kind: records.BundleType, facts: Sequence[Fact]) -> ContextBundle:
        """Compiles who the user is (`identity_core`), or what the user prefers (`global_prefs`)."""
        category = CATEGORY_OF_BUNDLE[kind]
        shown = [fact for fact in facts if fact.category == category]
        return self._compiled(kind, kind, [], _lines_of(shown))

    def persona(self, persona_id: str, settings: ContextSettings) -> ContextBundle:
        """Compiles who the assistant is as a persona, and how it answers."""
        lines = [one_line(text) for text in (*settings.manner, *settings.preferences)]
        return self._compiled("composite", f"persona/{persona_id}", [], lines)

    def _compiled(
        self,
        kind: records.BundleType,
        bundle_id: str,
        by_hand: Iterable[str],
        learned: Iterable[str],
        priority: float = 1.0,
    ) -> ContextBundle:
        """Compiles lines, each text once.

        Args:
            kind: The kind of the text.
            bundle_id: Its id.
            by_hand: What the user or the application has written; all of it stands in the text.
            learned: The other lines, of which those stand in it that fit the cap of the kind.
            priority: Its priority.
        """
        whole_lines = list(dict.fromkeys(line for line in by_hand if line))
        all_lines = list(dict.fromkeys(line for line in (*whole_lines, *learned) if line))
        made_from = digest("\n".join(all_lines)).hex()
        old = self.old.get(bundle_id)
        if old and old.made_from == made_from:
            return old

        learned_lines = _lines_within(CAPS[kind], all_lines[len(whole_lines) :])
        text = "\n".join((*whole_lines, *learned_lines))
        version = 1
        if old:
            version = old.version + (text != old.compiled_prompt)
        tokens = estimate_tokens(text) if text else 0
        changes: dict[str, object] = {
            "compiled_prompt": text,
            "token_count": tokens,
            "made_from": made_from,
            "version": version,
            "priority": priority,
            "compiled_at": self.now,
        }
        blank = ContextBundle(
            id=bundle_id, bundle_type=kind, compiled_prompt="", token_count=0, compiled_at=self.now
        )
        return (old or blank).model_copy(update=changes)


def _lines_of(facts: Iterable[Fact]) -> list[str]:
    """Returns a line for each fact."""
    return [one_line(fact.shown) for fact in facts]


def _engagement_lines(profile: TopicProfile) -> list[str]:
    """Returns how much the user knows of a topic, and how often and when it came up."""
    lines = []
    if profile.proficiency_level != "unknown":
        lines.append(f"The user's level: {profile.proficiency_level}")
    if profile.total_conversations:
        line = f"Came up in {plural(profile.total_conversations, 'conversation')}"
        times = [time for time in (profile.first_engaged_at, profile.last_engaged_at) if time]
        days = dict.fromkeys(utc(time).date().isoformat() for time in times)
        if days:
            line += f", {' to '.join(days)}"
        lines.append(line)
    return lines


def _lines_within(cap_tokens: int, lines: Iterable[str]) -> list[str]:
    """Returns the lines that fit a cap together; none where the first, the name, does not."""
    shown: list[str] = []
    for line in lines:
        if estimate_tokens("\n".join((*shown, line))) <= cap_tokens:
            shown.append(line)
        elif not shown:
            break
    return shown
