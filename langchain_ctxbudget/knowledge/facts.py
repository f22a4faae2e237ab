"""What becomes of facts about the user: learned, merged, superseded, pinned, pruned, selected (seed 001)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from langchain_ctxbudget.core.packing import pack
from langchain_ctxbudget.core.text import fold
from langchain_ctxbudget.errors import FactError
from langchain_ctxbudget.knowledge.learned import LearnedFact
from langchain_ctxbudget.knowledge.news import (
    LEAST_CONFIDENCE,
    News,
    begins_later,
    lasting,
    same_slot,
    speaks_of_soon,
)
from langchain_ctxbudget.knowledge.records import Ending, Fact, FactCategory, Source

HARD_CAP, PRUNE_THRESHOLD = 150, 120
"""Above the first, facts are evicted down to the second; above the second, expired ones end."""
MAX_PINNED = 10
EXPIRY_DAYS: Mapping[FactCategory, int] = {"project": 60, "preference": 180, "identity": 365}
WEIGHTS: Mapping[FactCategory, float] = {"project": 0.8, "preference": 0.3, "identity": 0.5}
HEADINGS: Mapping[FactCategory, str] = {
    "project": "Current work:",
    "preference": "Preferences:",
    "identity": "About user:",
}
"""What stands above the facts of a category, in the order of their priority."""
KEPT_PREFERENCES_ABOVE = 0.8
"""Confidence from which on (exclusive) a preference stays where the window is tight."""

_DAY = timedelta(days=1)
_LATELY = re.compile(r"\b(?:yesterday|last (?:week|weekend|month|night|\w+day))\b")
_RANK = {category: rank for rank, category in enumerate(HEADINGS)}


# How long facts last


def eviction_score(fact: Fact, now: datetime) -> float:
    """How dispensable a fact is: days since it was said last, times its category's weight, by its confidence."""
    return (now - fact.last_seen) / _DAY * WEIGHTS[fact.category] / max(LEAST_CONFIDENCE, fact.confidence)


def is_expired(fact: Fact, now: datetime) -> bool:
    """Whether a fact was not said for longer than its category lasts, or is past its `valid_until`; never if pinned."""
    if fact.pinned:
        return False
    return _is_over(fact, now) or now - fact.last_seen > EXPIRY_DAYS[fact.category] * _DAY


def _is_over(fact: Fact, now: datetime) -> bool:
    return fact.valid_until is not None and fact.valid_until <= now


@dataclass(frozen=True, slots=True)
class Pruned:
    """The current facts after pruning."""

    kept: tuple[Fact, ...]
    """In the given order."""
    ended: tuple[Fact, ...]
    """Those that ended by it, with the reason: expired ones, then evicted ones."""


def prune(facts: Iterable[Fact], now: datetime) -> Pruned:
    """End expired facts where there are more than 120 current ones, and evict down to 120 where 150 are not enough.

    Evicted are those with the highest score, of equal ones the first by id; pinned ones never. Facts that had ended
    before are in neither part of the result.
    """
    current = [fact for fact in facts if fact.is_current]
    gone: dict[str, Fact] = {}
    if len(current) > PRUNE_THRESHOLD:
        gone |= {fact.id: _ended(fact, "expired", now) for fact in current if is_expired(fact, now)}
    left = [fact for fact in current if fact.id not in gone]
    if len(left) > HARD_CAP:
        loose = sorted(
            (fact for fact in left if not fact.pinned), key=lambda fact: (-eviction_score(fact, now), fact.id)
        )
        gone |= {fact.id: _ended(fact, "evicted", now) for fact in loose[: len(left) - PRUNE_THRESHOLD]}
    return Pruned(tuple(fact for fact in current if fact.id not in gone), tuple(gone.values()))


def _ended(fact: Fact, reason: Ending, now: datetime) -> Fact:
    return fact.model_copy(update={"ended": reason, "ended_at": now})


def pin(facts: Iterable[Fact], fact_id: str, now: datetime) -> Fact:
    """The fact, pinned: always kept, and shown first. It loses an end that nobody has said.

    Raises:
        FactError: it is not a current one, or 10 others are pinned that are not over.
    """
    current = {fact.id: fact for fact in facts if fact.is_current}
    fact = _known(current, fact_id)
    pinned = sum(other.pinned and not _is_over(other, now) for other in current.values())
    if not fact.pinned and pinned >= MAX_PINNED:
        raise FactError(
            f"At most {MAX_PINNED} facts can be pinned, and {pinned} are: unpin one of them before pinning {fact_id!r}"
        )
    return _pinned(fact)


def _pinned(fact: Fact) -> Fact:
    return lasting(fact).model_copy(update={"pinned": True})


def unpin(facts: Iterable[Fact], fact_id: str) -> Fact:
    """The fact, no longer pinned.

    Raises:
        FactError: it is not a current one.
    """
    fact = _known({fact.id: fact for fact in facts if fact.is_current}, fact_id)
    return fact.model_copy(update={"pinned": False})


def _known(current: Mapping[str, Fact], fact_id: str) -> Fact:
    if fact_id not in current:
        raise FactError(f"{fact_id!r} is none of the {len(current)} current facts; list the facts for their ids")
    return current[fact_id]


# What a prompt shows of them


def select(facts: Iterable[Fact], cost: Callable[[Fact], int], budget_tokens: int) -> tuple[Fact, ...]:
    """The current facts that fit a budget, best first.

    Best are pinned ones, then project before preference before identity, then the more confident, then those said
    last, then the first by id. One that does not fit is skipped; later, smaller ones may still fit. The seed keeps 50
    tokens free because it estimates; counts are exact here, so the budget is used to the last token.

    Args:
        facts: to choose from.
        cost: what taking a fact costs, in tokens; asked at most once per fact, in the order of the result.
        budget_tokens: what they may cost together.
    """
    order = ranked(facts)
    return tuple(order[i] for i in pack(range(len(order)), lambda i: cost(order[i]), budget_tokens, 1))


def ranked(facts: Iterable[Fact]) -> tuple[Fact, ...]:
    """The current facts, best first; see `select`."""
    return tuple(sorted((fact for fact in facts if fact.is_current), key=_priority))


def _priority(fact: Fact) -> tuple[bool, int, float, float, str]:
    return not fact.pinned, _RANK[fact.category], -fact.confidence, -fact.last_seen.timestamp(), fact.id


def shown(fact: Fact) -> str:
    """The text of a fact as a prompt shows it: with the day on which it was said, where it speaks of days by that.

    >>> from datetime import UTC
    >>> now = datetime(2026, 5, 1, tzinfo=UTC)
    >>> shown(Fact(id="f", text="Flies to Rome next week", category="project", created_at=now, last_seen=now))
    'Flies to Rome next week (said 2026-05-01)'
    """
    is_relative = speaks_of_soon(fact.text) or _LATELY.search(fold(fact.text))
    return f"{fact.text} (said {fact.last_seen.date().isoformat()})" if is_relative else fact.text


def grouped(facts: Iterable[Fact]) -> tuple[tuple[str, tuple[Fact, ...]], ...]:
    """Facts under the headings of their categories; headings without facts are left out."""
    given = tuple(facts)
    groups = ((heading, tuple(fact for fact in given if fact.category == kind)) for kind, heading in HEADINGS.items())
    return tuple((heading, group) for heading, group in groups if group)


def reduced(facts: Iterable[Fact]) -> tuple[Fact, ...]:
    """What stays where the window is tight: pinned ones, work, and preferences that are more certain than 0.8."""
    return tuple(
        fact
        for fact in facts
        if fact.pinned
        or fact.category == "project"
        or (fact.category == "preference" and fact.confidence > KEPT_PREFERENCES_ABOVE)
    )


# How they are learned


def learn(
    known: Iterable[Fact],
    learned: Sequence[LearnedFact],
    sources: Mapping[str, Source],
    now: datetime,
    made_by: str,
    *,
    said_at: Mapping[str, datetime] | None = None,
) -> list[Fact]:
    """The known facts with the learned ones merged in; those that ended stay among them, with the reason.

    What says the same as a current fact (`same_as`, or `says_the_same`) is merged into it: it gets the sources and
    is more certain by `1 - (1 - a)(1 - b)`, at most 0.99; its text is replaced only where `same_as` says more and the
    user did not write it. Facts that are named by `supersedes`, have another value for the same slot, or say the
    opposite end as superseded and hand on their pin, but for those that were said later: then it is the learned one
    that has ended. An item that names more than 3 facts is not believed in that, and pinned and hand-written ones do
    not end by being named. What begins later ends what is true now only then. Learning the same from the same messages
    again changes nothing.

    Args:
        known: all that is known, also what has ended; what the user deleted is not among them.
        learned: in the order in which it was said.
        sources: by message id; a fact that names only other messages is not learned.
        now: the time for all that has none.
        made_by: who learned it.
        said_at: when messages were said, by id.
    """
    facts = {fact.id: fact for fact in known}
    for item in learned:
        news = News.of(item, sources, said_at or {}, now, made_by)
        if news is None or any(news.is_in(fact) for fact in facts.values()):
            continue
        same = news.same_among(facts.values())
        fact = news.merged_into(same) if same else news.as_fact(_free_id(news.key, facts), now)
        rivals = [other for other in facts.values() if other.is_current and other.id != fact.id and news.ends(other)]
        beside = [rival for rival in rivals if news.lets_stand(fact, rival, now)]
        against = [rival for rival in rivals if rival not in beside]
        newest = max(against, key=lambda other: other.last_seen, default=fact)
        if newest.last_seen > fact.last_seen:
            facts = _settled(facts, newest, [fact], [], at=newest.last_seen, now=now)
        else:
            facts = _settled(facts, fact, against, beside, at=news.ended_at, now=now)
    return list(facts.values())


def sole(facts: Iterable[Fact], value: Fact, now: datetime) -> list[Fact]:
    """The facts where one of them was given its slot by hand: no other one is a value of that at the same time."""
    known = {fact.id: fact for fact in facts}
    rivals = [
        one for one in known.values() if one.is_current and one.id != value.id and same_slot(one.slot, value.slot)
    ]
    later = begins_later(value, now)
    beside = [rival for rival in rivals if begins_later(rival, now) != later]
    against = [rival for rival in rivals if rival not in beside]
    return list(_settled(known, value, against, beside, at=now, now=now).values())


def released(facts: Iterable[Fact], gone: Collection[str]) -> list[Fact]:
    """The facts, of which none ends any more because something begins that was planned and is given up."""
    return [
        fact.model_copy(update={"valid_until": None, "superseded_by": None})
        if fact.is_current and fact.superseded_by in gone
        else fact
        for fact in facts
    ]


def _settled(
    facts: Mapping[str, Fact],
    fact: Fact,
    against: Sequence[Fact],
    beside: Sequence[Fact],
    *,
    at: datetime,
    now: datetime,
) -> dict[str, Fact]:
    """Facts with one among them that ends some at a time, and is true before or after others."""
    settled = dict(facts)
    for rival in against:
        settled[rival.id], fact = _superseded(rival, fact, at, now)
    settled[fact.id] = fact
    settled = {
        one.id: one for one in released(settled.values(), {rival.id for rival in against if begins_later(rival, now)})
    }
    for other in beside:
        first, then = (other.id, fact.id) if begins_later(fact, now) else (fact.id, other.id)
        settled[first] = _until(settled[first], settled[then])
    return settled


def _until(fact: Fact, plan: Fact) -> Fact:
    """A fact that ends when something else begins, if not before."""
    if plan.valid_from is None or (fact.valid_until is not None and fact.valid_until <= plan.valid_from):
        return fact
    return fact.model_copy(update={"valid_until": plan.valid_from, "superseded_by": plan.id})


def _superseded(old: Fact, new: Fact, at: datetime, now: datetime) -> tuple[Fact, Fact]:
    """Both, the old one ended and its pin on the new one."""
    changes = {
        "superseded_by": new.id,
        "valid_until": at if old.valid_until is None else min(at, old.valid_until),
        "pinned": False,
    }
    heir = _pinned(new) if old.pinned else new
    return _ended(old, "superseded", now).model_copy(update=changes), heir


def _free_id(key: str, taken: Mapping[str, Fact]) -> str:
    number, free = 1, key
    while free in taken:
        number += 1
        free = f"{key}-{number}"
    return free
