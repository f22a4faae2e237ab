"""The texts that are compiled from what is known before they are needed: one per topic, entity, and for the rest.

A text is lines of data, every field on one line; whoever renders it neutralises what looks like a fence. It never costs
more than its cap. Beside it stands a single line of it, for when the whole does not fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from langchain_ctxbudget.core.text import one_line
from langchain_ctxbudget.knowledge.bundle_lines import (
    BELOW,
    HEADED,
    LISTED,
    Count,
    Line,
    described,
    entity_lines,
    fact_text,
    fitted,
    holding,
    listing,
    topic_lines,
    utc,
)
from langchain_ctxbudget.knowledge.records import (
    BundleType,
    ContextBundle,
    EntityProfile,
    Fact,
    FactCategory,
    TopicProfile,
)

TOPIC_TOKENS, ENTITY_TOKENS = 120, 80
"""What a bundle is meant to cost at most, where nothing else is asked for."""
COMPRESSED_TOKENS = 25
LIFETIME = timedelta(days=7)
"""After this a bundle is compiled again, whether anything changed or not."""
PRIMARY_PERCENT = 70
"""The first topic gets this share, the second one the rest (seed 000)."""
MAX_TOPICS, MAX_ENTITIES = 2, 3


def compile_topic(
    profile: TopicProfile,
    facts: Sequence[Fact],
    parent: TopicProfile | None,
    children: Sequence[TopicProfile],
    *,
    now: datetime,
    count: Count,
    cap_tokens: int,
    before: ContextBundle | None = None,
) -> ContextBundle:
    """What should be known when a topic comes up.

    Args:
        profile: of the topic.
        facts: about it, most important first; those that no longer or not yet hold are left out.
        parent: what it is a part of.
        children: what is a part of it, most important first.
        now: when it is compiled.
        count: tokens of a text.
        cap_tokens: what the text may cost.
        before: the bundle that this one replaces.

    Example:
        >>> from datetime import UTC
        >>> brewing = TopicProfile(
        ...     id="topic/brewing", slug="brewing", label="Brewing", compiled_context="Owns a 20 l kettle."
        ... )
        >>> bundle = compile_topic(
        ...     brewing, (), None, (), now=datetime(2026, 1, 1, tzinfo=UTC), count=len, cap_tokens=200
        ... )
        >>> print(bundle.compiled_prompt)
        Brewing
        Owns a 20 l kettle.
    """
    lines = topic_lines(profile, holding(facts, now), parent, children)
    return _compiled(
        lines,
        HEADED,
        count,
        cap_tokens,
        before,
        id=profile.id,
        bundle_type="topic",
        topic_profile_id=profile.id,
        priority=profile.importance_score,
        compiled_at=now,
        expires_at=_expiry(facts, now),
    )


def compile_entity(
    profile: EntityProfile,
    facts: Sequence[Fact],
    *,
    now: datetime,
    count: Count,
    cap_tokens: int,
    before: ContextBundle | None = None,
) -> ContextBundle:
    """What should be known when a person or a thing is spoken of, in the order of seed 004.

    Args:
        profile: of the entity.
        facts: about the user that concern it, most important first; its own are in the profile.
        now: when it is compiled.
        count: tokens of a text.
        cap_tokens: what the text may cost.
        before: the bundle that this one replaces.

    Example:
        >>> from datetime import UTC
        >>> sarah = EntityProfile(id="entity/person/sarah", name="Sarah", type="person", relationship="cofounder")
        >>> bundle = compile_entity(sarah, (), now=datetime(2026, 1, 1, tzinfo=UTC), count=len, cap_tokens=200)
        >>> print(bundle.compiled_prompt)
        Sarah (person)
        cofounder
    """
    lines = entity_lines(profile, holding(facts, now))
    return _compiled(
        lines,
        HEADED,
        count,
        cap_tokens,
        before,
        id=profile.id,
        bundle_type="entity",
        entity_profile_id=profile.id,
        priority=profile.importance_score,
        compiled_at=now,
        expires_at=_expiry(facts, now),
    )


def compile_identity(
    facts: Sequence[Fact],
    *,
    now: datetime,
    count: Count,
    cap_tokens: int,
    persona_id: str | None = None,
    before: ContextBundle | None = None,
) -> ContextBundle:
    """Who the user is: the facts of category identity, one per line.

    Args:
        facts: of all categories, most important first.
        now: when it is compiled.
        count: tokens of a text.
        cap_tokens: what the text may cost.
        persona_id: for which persona, None for all.
        before: the bundle that this one replaces.
    """
    return _of_facts(
        "identity_core",
        "identity",
        facts,
        now=now,
        count=count,
        cap_tokens=cap_tokens,
        persona_id=persona_id,
        before=before,
    )


def compile_preferences(
    facts: Sequence[Fact],
    *,
    now: datetime,
    count: Count,
    cap_tokens: int,
    persona_id: str | None = None,
    before: ContextBundle | None = None,
) -> ContextBundle:
    """What the user prefers: the facts of category preference, one per line.

    Args:
        facts: of all categories, most important first.
        now: when it is compiled.
        count: tokens of a text.
        cap_tokens: what the text may cost.
        persona_id: for which persona, None for all.
        before: the bundle that this one replaces.
    """
    return _of_facts(
        "global_prefs",
        "preference",
        facts,
        now=now,
        count=count,
        cap_tokens=cap_tokens,
        persona_id=persona_id,
        before=before,
    )


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
    """What a conversation is about.

    Args:
        topics: of it, most important first.
        entities: of it, most important first.
        conversation_id: which one.
        now: when it is compiled.
        count: tokens of a text.
        cap_tokens: what the text may cost.
        before: the bundle that this one replaces.
    """
    lines = [
        *listing("Topics: ", [(one_line(topic.label), topic.id) for topic in topics]),
        *listing("People and things: ", [(described(entity), entity.id) for entity in entities]),
    ]
    return _compiled(
        lines,
        LISTED,
        count,
        cap_tokens,
        before,
        id=f"conversation/{conversation_id}",
        bundle_type="conversation",
        conversation_id=conversation_id,
        priority=max([0.0, *(one.importance_score for one in topics), *(one.importance_score for one in entities)]),
        compiled_at=now,
        expires_at=now + LIFETIME,
    )


def compile_composite(
    parts: Sequence[ContextBundle],
    *,
    now: datetime,
    count: Count,
    cap_tokens: int,
    bundle_id: str = "composite",
    before: ContextBundle | None = None,
) -> ContextBundle:
    """Several bundles in one: each whole where it fits, else its one line, else not at all.

    Args:
        parts: most important first.
        now: when it is compiled.
        count: tokens of a text.
        cap_tokens: what the text may cost.
        bundle_id: what it is known by.
        before: the bundle that this one replaces.
    """
    whole = [Line(part.compiled_prompt, (part.id,), short=part.compressed_prompt) for part in parts]
    return _compiled(
        whole,
        LISTED,
        count,
        cap_tokens,
        before,
        id=bundle_id,
        bundle_type="composite",
        priority=max((part.priority for part in parts), default=0.0),
        compiled_at=now,
        expires_at=min((part.expires_at for part in parts if part.expires_at), default=now + LIFETIME),
    )


def is_fresh(bundle: ContextBundle, now: datetime) -> bool:
    """Whether a bundle can be used as it is: nothing that it shows has changed, and it has not expired."""
    return not bundle.is_dirty and (bundle.expires_at is None or utc(bundle.expires_at) > utc(now))


def needs(bundle: ContextBundle | None, now: datetime) -> bool:
    """Whether a bundle is to be compiled: it is not there, or not fresh."""
    return bundle is None or not is_fresh(bundle, now)


def used(bundle: ContextBundle, hits: int, misses: int, now: datetime) -> ContextBundle:
    """A bundle that was asked for.

    Args:
        bundle: which one.
        hits: how often it could be given as it should be.
        misses: how often it was dirty, or had expired.
        now: when it was asked for last.
    """
    return bundle.model_copy(
        update={
            "use_count": bundle.use_count + hits + misses,
            "hit_count": bundle.hit_count + hits,
            "miss_count": bundle.miss_count + misses,
            "last_used_at": now,
        }
    )


def shares(budget_tokens: int, number: int) -> tuple[int, ...]:
    """What each of so many topics may cost: all for one, else 70 % for the first and the rest for the second.

    >>> shares(100, 1), shares(100, 2), shares(100, 5)
    ((100,), (70, 30), (70, 30))
    """
    if number < MAX_TOPICS:
        return (budget_tokens,) * max(0, number)
    primary = budget_tokens * PRIMARY_PERCENT // 100
    return primary, budget_tokens - primary


def equal_shares(budget_tokens: int, number: int) -> tuple[int, ...]:
    """What each of so many entities may cost, of at most three.

    >>> equal_shares(100, 2), equal_shares(100, 5)
    ((50, 50), (33, 33, 33))
    """
    given = max(0, min(number, MAX_ENTITIES))
    return (budget_tokens // max(1, given),) * given


def _of_facts(
    kind: BundleType,
    category: FactCategory,
    facts: Sequence[Fact],
    *,
    now: datetime,
    count: Count,
    cap_tokens: int,
    persona_id: str | None,
    before: ContextBundle | None,
) -> ContextBundle:
    own = [fact for fact in facts if fact.category == category]
    lines = [Line(fact_text(fact), (fact.id,)) for fact in holding(own, now)]
    return _compiled(
        lines,
        LISTED,
        count,
        cap_tokens,
        before,
        id=f"{kind}/{persona_id}" if persona_id else kind,
        bundle_type=kind,
        persona_id=persona_id,
        priority=1.0,
        compiled_at=now,
        expires_at=_expiry(own, now),
    )


def _expiry(facts: Iterable[Fact], now: datetime) -> datetime:
    """When a bundle is to be compiled again at the latest: also when one of its facts begins or ends to hold."""
    turns = [
        utc(time)
        for fact in facts
        if fact.is_current
        for time in (fact.valid_from, fact.valid_until)
        if time is not None and utc(time) > utc(now)
    ]
    return min((*turns, utc(now) + LIFETIME))


def _compiled(
    lines: Sequence[Line],
    marks: tuple[str, str],
    count: Count,
    cap_tokens: int,
    before: ContextBundle | None,
    **fields: Any,  # noqa: ANN401 - of a bundle
) -> ContextBundle:
    """A bundle with its texts, made of these lines; `marks` stand between the parts of its one line."""
    text, tokens, ids = fitted(lines, BELOW, count, cap_tokens)
    shorter = [replace(line, text=one_line(line.short or line.text).rstrip(".")) for line in lines]
    short, short_tokens, _ = fitted(shorter, marks, count, min(cap_tokens, COMPRESSED_TOKENS))
    if before is not None:
        fields["version"] = before.version + (text != before.compiled_prompt)
        fields |= {name: getattr(before, name) for name in ("last_used_at", "use_count", "hit_count", "miss_count")}
    return ContextBundle(
        compiled_prompt=text,
        token_count=tokens,
        compressed_prompt=short,
        compressed_token_count=short_tokens,
        composition=ids,
        **fields,
    )
