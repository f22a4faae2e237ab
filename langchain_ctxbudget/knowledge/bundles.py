"""Bundles: texts compiled from what is known before they are needed, one per topic and entity, and a few others.

A text never costs more than its cap; beside it stands one line of it for when the whole does not fit. Whoever puts it
into a prompt neutralises what looks like a fence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any

from langchain_ctxbudget.knowledge.bundle_lines import (
    BELOW,
    HEADED,
    LISTED,
    Count,
    Line,
    entity_lines,
    fact_line,
    fitted,
    holding,
    listing,
    topic_lines,
)
from langchain_ctxbudget.knowledge.records import (
    BundleType,
    ContextBundle,
    EntityProfile,
    Fact,
    FactCategory,
    TopicProfile,
)
from langchain_ctxbudget.messages.text import one_line
from langchain_ctxbudget.stores.clock import later, utc

TOPIC_TOKENS, ENTITY_TOKENS, COMPRESSED_TOKENS = 120, 80, 25
LIFETIME = timedelta(days=7)
"""After this a bundle is compiled again in any case."""
PRIMARY_PERCENT = 70
"""Share of the first of two topics (seed 000)."""
MAX_TOPICS, MAX_ENTITIES = 2, 3


def compile_topic(
    profile: TopicProfile,
    facts: Sequence[Fact],
    parent: TopicProfile | None,
    children: Sequence[TopicProfile],
    *,
    now: datetime,
    count: Count,
    cap_tokens: int = TOPIC_TOKENS,
    before: ContextBundle | None = None,
) -> ContextBundle:
    """Compiles the text for when a topic comes up: its facts and children, most important first, as far as they fit.

    The bundle so far (`before`) is returned where it is fresh and nothing in it changes.

    Example:
        >>> from datetime import UTC
        >>> brewing = TopicProfile(
        ...     id="topic/brewing", slug="brewing", label="Brewing", compiled_context="Owns a 20 l kettle."
        ... )
        >>> print(compile_topic(brewing, (), None, (), now=datetime(2026, 1, 1, tzinfo=UTC), count=len).compiled_prompt)
        Brewing
        Owns a 20 l kettle.
    """
    lines = topic_lines(profile, holding(facts, now), parent, children)
    own = {"id": profile.id, "topic_profile_id": profile.id, "priority": profile.importance_score}
    return _compiled("topic", lines, HEADED, _expiry(facts, now), now, count, cap_tokens, before, own)


def compile_entity(
    profile: EntityProfile,
    facts: Sequence[Fact],
    *,
    now: datetime,
    count: Count,
    cap_tokens: int = ENTITY_TOKENS,
    before: ContextBundle | None = None,
) -> ContextBundle:
    """Compiles the text for when a person or a thing comes up; arguments as of `compile_topic`."""
    lines = entity_lines(profile, holding(facts, now))
    own = {"id": profile.id, "entity_profile_id": profile.id, "priority": profile.importance_score}
    return _compiled("entity", lines, HEADED, _expiry(facts, now), now, count, cap_tokens, before, own)


def compile_identity(
    facts: Sequence[Fact], *, now: datetime, count: Count, cap_tokens: int, before: ContextBundle | None = None
) -> ContextBundle:
    """Compiles who the user is: the facts of category identity."""
    return _of_facts("identity_core", "identity", facts, now, count, cap_tokens, before)


def compile_preferences(
    facts: Sequence[Fact], *, now: datetime, count: Count, cap_tokens: int, before: ContextBundle | None = None
) -> ContextBundle:
    """Compiles what the user prefers: the facts of category preference."""
    return _of_facts("global_prefs", "preference", facts, now, count, cap_tokens, before)


def compile_conversation(
    topics: Sequence[TopicProfile],
    entities: Sequence[EntityProfile],
    conversation_id: str,
    *,
    now: datetime,
    count: Count,
    cap_tokens: int,
    before: ContextBundle | None = None,
) -> ContextBundle:
    """Compiles what a conversation is about: its topics and entities, most important first."""
    people = [(f"{one_line(e.name)} ({one_line(e.relationship or e.type)})", e.id) for e in entities]
    lines = [
        *listing("Topics: ", [(one_line(topic.label), topic.id) for topic in topics]),
        *listing("People and things: ", people),
    ]
    priority = max([0.0, *(one.importance_score for one in topics), *(one.importance_score for one in entities)])
    own = {"id": f"conversation/{conversation_id}", "conversation_id": conversation_id, "priority": priority}
    return _compiled("conversation", lines, LISTED, later(now, LIFETIME), now, count, cap_tokens, before, own)


def compile_composite(
    parts: Sequence[ContextBundle],
    *,
    now: datetime,
    count: Count,
    cap_tokens: int,
    before: ContextBundle | None = None,
) -> ContextBundle:
    """Joins bundles, most important first: each whole where it fits, else its one line, else not at all."""
    lines = [Line(part.compiled_prompt, (part.id,), short=part.compressed_prompt) for part in parts]
    expiry = min((part.expires_at for part in parts if part.expires_at), default=later(now, LIFETIME))
    own = {"id": "composite", "priority": max((part.priority for part in parts), default=0.0)}
    return _compiled("composite", lines, LISTED, expiry, now, count, cap_tokens, before, own)


def is_fresh(bundle: ContextBundle, now: datetime) -> bool:
    """Tells that nothing a bundle shows has changed, and that it has not expired."""
    return not bundle.is_dirty and (bundle.expires_at is None or utc(bundle.expires_at) > utc(now))


def used(bundle: ContextBundle, hits: int, misses: int, now: datetime) -> ContextBundle:
    """Counts the times when a bundle was asked for and was fresh (hits), or was not (misses)."""
    return bundle.model_copy(
        update={
            "use_count": bundle.use_count + hits + misses,
            "hit_count": bundle.hit_count + hits,
            "miss_count": bundle.miss_count + misses,
            "last_used_at": now,
        }
    )


def shares(budget_tokens: int, number: int) -> tuple[int, ...]:
    """Divides a budget among topics: all for one, else 70 % for the first and the rest for the second.

    >>> shares(100, 1), shares(100, 2), shares(100, 5)
    ((100,), (70, 30), (70, 30))
    """
    if number < MAX_TOPICS:
        return (budget_tokens,) * max(0, number)
    primary = budget_tokens * PRIMARY_PERCENT // 100
    return primary, budget_tokens - primary


def equal_shares(budget_tokens: int, number: int) -> tuple[int, ...]:
    """Divides a budget equally among at most three entities.

    >>> equal_shares(100, 2), equal_shares(100, 5)
    ((50, 50), (33, 33, 33))
    """
    given = max(0, min(number, MAX_ENTITIES))
    return (budget_tokens // max(1, given),) * given


def _of_facts(  # noqa: PLR0917
    kind: BundleType,
    category: FactCategory,
    facts: Sequence[Fact],
    now: datetime,
    count: Count,
    cap_tokens: int,
    before: ContextBundle | None,
) -> ContextBundle:
    own = [fact for fact in facts if fact.category == category]
    lines = [fact_line(fact) for fact in holding(own, now)]
    return _compiled(
        kind, lines, LISTED, _expiry(own, now), now, count, cap_tokens, before, {"id": kind, "priority": 1.0}
    )


def _expiry(facts: Iterable[Fact], now: datetime) -> datetime:
    """Returns the time of the next compilation: when a fact begins or ceases to be true, or after the lifetime."""
    times = (time for fact in facts if fact.is_current for time in (fact.valid_from, fact.valid_until) if time)
    return min((later(utc(now), LIFETIME), *(utc(time) for time in times if utc(time) > utc(now))))


def _compiled(  # noqa: PLR0917
    kind: BundleType,
    lines: Sequence[Line],
    marks: tuple[str, str],
    expires_at: datetime,
    now: datetime,
    count: Count,
    cap_tokens: int,
    before: ContextBundle | None,
    own: dict[str, Any],
) -> ContextBundle:
    """Compiles lines; `marks` separate the parts of the one-line form."""
    made_from = blake2b(repr((cap_tokens, lines)).encode(errors="surrogatepass"), digest_size=8).hexdigest()
    is_same = before is not None and before.made_from == made_from and is_fresh(before, now)
    if before is not None and is_same and before.expires_at and utc(before.expires_at) <= utc(expires_at):
        return before
    text, tokens, ids = fitted(lines, BELOW, count, cap_tokens)
    shorter = [replace(line, text=one_line(line.short or line.text).rstrip(".")) for line in lines]
    short, short_tokens, _ = fitted(shorter, marks, count, min(cap_tokens, COMPRESSED_TOKENS))
    if before is not None:
        own["version"] = before.version + (text != before.compiled_prompt)
        own |= {name: getattr(before, name) for name in ("last_used_at", "use_count", "hit_count", "miss_count")}
    return ContextBundle(
        bundle_type=kind,
        compiled_prompt=text,
        token_count=tokens,
        compressed_prompt=short,
        compressed_token_count=short_tokens,
        composition=ids,
        made_from=made_from,
        compiled_at=now,
        expires_at=expires_at,
        **own,
    )
