"""Bundles: texts compiled before they are needed, of every topic and entity, of who the user is and what they prefer.

A text has one field per line, most important first, and never costs more than its cap. Whoever puts it into a prompt
neutralises what looks like a fence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Literal

from langchain_ctxbudget.knowledge.facts import shown
from langchain_ctxbudget.knowledge.records import BundleType, ContextBundle, EntityProfile, Fact, TopicProfile
from langchain_ctxbudget.messages import one_line, sentences, terms
from langchain_ctxbudget.search import shrink_to
from langchain_ctxbudget.stores import later, utc

CAPS: Mapping[BundleType, int] = {"topic": 120, "entity": 80}
"""The most tokens that a bundle may cost."""
OTHER_TOKENS = 500
LIFETIME = timedelta(days=7)
"""After this a bundle is compiled again when something is learned."""
FIRST_ATTRIBUTES = ("email", "phone", "title", "department", "location")
"""Attributes that come first, in this order (seed 004)."""
MOST_ATTRIBUTES = 5
MOST_LISTED = 8
_LEAST_TOKENS = 3
"""Less room is not worth another line."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a bundle."""

    text: str
    ids: tuple[str, ...] = ()
    """The items that it shows."""
    divisible: bool = False
    """A part of it is better than nothing."""


@dataclass(frozen=True, kw_only=True)
class Compiler:
    """Compiles bundles; one that is fresh and shows nothing new stays the same object.

    Args:
        now: the time.
        count: returns the tokens of a text.
        old: the bundles so far, by id.
        cap_tokens: the most that one may cost; 0: what is right for its kind.

    Example:
        >>> from datetime import UTC
        >>> brewing = TopicProfile(
        ...     id="topic/brewing", slug="brewing", label="Brewing", compiled_context="Owns a 20 l kettle."
        ... )
        >>> print(Compiler(now=datetime(2026, 1, 1, tzinfo=UTC), count=len).topic(brewing).compiled_prompt)
        Brewing
        Owns a 20 l kettle.
    """

    now: datetime
    count: Callable[[str], int]
    old: Mapping[str, ContextBundle] = field(default_factory=dict)
    cap_tokens: int = 0

    def topic(
        self,
        profile: TopicProfile,
        facts: Sequence[Fact] = (),
        parent: TopicProfile | None = None,
        children: Sequence[TopicProfile] = (),
    ) -> ContextBundle:
        """Compiles what is known of a topic: the facts about it and its children, as far as they fit."""
        lines = _topic_lines(profile, facts, parent, children)
        return self._made("topic", profile.id, lines, priority=profile.importance_score)

    def entity(self, profile: EntityProfile, facts: Sequence[Fact] = ()) -> ContextBundle:
        """Compiles what is known of a person or a thing."""
        return self._made("entity", profile.id, _entity_lines(profile, facts), priority=profile.importance_score)

    def of_facts(self, kind: Literal["identity_core", "global_prefs"], facts: Sequence[Fact]) -> ContextBundle:
        """Compiles who the user is (`identity_core`), or what the user prefers (`global_prefs`)."""
        category = "identity" if kind == "identity_core" else "preference"
        return self._made(kind, kind, [_fact_line(fact) for fact in facts if fact.category == category])

    def _made(
        self,
        kind: BundleType,
        key: str,
        lines: Sequence[Line],
        *,
        priority: float = 1.0,
    ) -> ContextBundle:
        cap_tokens, old = self.cap_tokens or CAPS.get(kind, OTHER_TOKENS), self.old.get(key)
        made_from = blake2b(repr((cap_tokens, lines)).encode(errors="surrogatepass"), digest_size=8).hexdigest()
        if old and old.made_from == made_from and is_fresh(old, self.now):
            return old
        text, ids = _fitted(lines, self.count, cap_tokens)
        kept = old.model_dump(include={"last_used_at", "hit_count", "miss_count"}) if old else {}
        return ContextBundle(
            id=key,
            bundle_type=kind,
            compiled_prompt=text,
            token_count=self.count(text) if text else 0,
            composition=ids,
            made_from=made_from,
            version=old.version + (text != old.compiled_prompt) if old else 1,
            priority=priority,
            compiled_at=self.now,
            expires_at=later(utc(self.now), LIFETIME),
            **kept,
        )


def is_fresh(bundle: ContextBundle, now: datetime) -> bool:
    """Tells that nothing a bundle shows has changed, and that it has not expired."""
    return not bundle.is_dirty and (bundle.expires_at is None or utc(bundle.expires_at) > utc(now))


# The lines


def _fact_line(fact: Fact) -> Line:
    return Line(one_line(shown(fact)), (fact.id,))


def _topic_lines(
    profile: TopicProfile, facts: Sequence[Fact], parent: TopicProfile | None, children: Sequence[TopicProfile]
) -> list[Line]:
    """Returns the lines of a topic, most important first; none where only its name and its counts are known."""
    context = _context(profile.compiled_context)
    sources = {source.place for fact in facts for source in fact.sources}
    known = [
        *map(_fact_line, facts),
        *(
            Line(f"{one.date}: {one_line(one.text)}" if one.date else one_line(one.text))
            for one in reversed(profile.highlights)
            if one.source.place not in sources  # a fact says it already
        ),
        *_listing("Includes: ", [(one_line(child.label), child.id) for child in children]),
    ]
    if not (context or known):
        return []
    name = one_line(profile.label) + (f" (part of {one_line(parent.label)})" if parent else "")
    lines = [Line(name, (profile.id, *([parent.id] if parent else [])), divisible=True), *context]
    if profile.proficiency_level != "unknown":
        lines.append(Line(f"The user's level: {profile.proficiency_level}"))
    if number := profile.total_conversations:
        days = [utc(time).date().isoformat() for time in (profile.first_engaged_at, profile.last_engaged_at) if time]
        span = " to ".join(dict.fromkeys(days))
        lines.append(Line(f"Came up in {number} conversation{'s' * (number > 1)}{', ' * bool(span)}{span}"))
    return [*lines, *known]


def _entity_lines(profile: EntityProfile, facts: Sequence[Fact]) -> list[Line]:
    """Returns the lines of an entity in the order of seed 004; none where only its name is known."""
    own = [set(terms(text)) for text in profile.facts]
    values = {name: value for name, value in profile.attributes if value.strip()}  # the newest of each
    place = {name: number for number, name in enumerate(FIRST_ATTRIBUTES)}
    names = sorted(values, key=lambda name: place.get(name.casefold(), len(place)))[:MOST_ATTRIBUTES]
    known = [
        *_context(profile.compiled_context),
        *([Line(one_line(profile.relationship))] if profile.relationship else []),
        *(Line(one_line(f"{name}: {values[name]}")) for name in names),
        *_listing("Related: ", [(one_line(f"{one.relation} {one.target}"), "") for one in profile.relations]),
        *(Line(one_line(text)) for text in reversed(profile.facts)),
        # A fact that says no more than the entity's own is left out.
        *(_fact_line(fact) for fact in facts if not any(len(one) > 1 and one <= set(terms(fact.text)) for one in own)),
    ]
    head = Line(f"{one_line(profile.name)} ({profile.type})", (profile.id,), divisible=True)
    return [head, *known] if known else []


def _context(text: str | None) -> list[Line]:
    return [Line(one_line(text), divisible=True)] if text else []


def _listing(heading: str, items: Sequence[tuple[str, str]]) -> list[Line]:
    """Returns one line of several names, each given with its id."""
    named = [(name, key) for name, key in items if name][:MOST_LISTED]
    text = heading + ", ".join(name for name, _ in named)
    return [Line(text, tuple(key for _, key in named if key), divisible=True)] if named else []


def _fitted(lines: Iterable[Line], count: Callable[[str], int], cap_tokens: int) -> tuple[str, tuple[str, ...]]:
    """Takes lines in order as long as they fit a cap, each text once; returns the text and the ids that it shows."""
    text, ids = "", dict[str, None]()
    for line in {line.text: line for line in lines if line.text}.values():
        lead = f"{text}\n" if text else ""
        if cap_tokens - (count(lead) if lead else 0) < _LEAST_TOKENS:
            break

        def behind(part: str, lead: str = lead) -> int:
            return count(lead + part)

        splits = (sentences, str.split) if line.divisible else ()
        parts = [line.text, *(shrink_to(line.text, behind, cap_tokens, split) or "" for split in splits)]
        if part := next((part for part in parts if part and behind(part) <= cap_tokens), ""):
            text = lead + part
            ids |= dict.fromkeys(line.ids)
    return text, tuple(ids)
