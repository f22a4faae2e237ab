"""What becomes of facts about the user: learned, merged, superseded, pinned, pruned, selected (seed 001)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Self

from langchain_ctxbudget.core.packing import pack
from langchain_ctxbudget.core.sameness import names_another, says_more, says_the_opposite, says_the_same
from langchain_ctxbudget.core.text import fold, one_line
from langchain_ctxbudget.errors import FactError
from langchain_ctxbudget.knowledge.learned import LearnedFact
from langchain_ctxbudget.knowledge.records import BY_USER, MOST_SOURCES, Ending, Fact, FactCategory, Source

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
LEAST_CONFIDENCE, MOST_MERGED_CONFIDENCE = 0.01, 0.99

_DAY = timedelta(days=1)
_SOON = re.compile(
    r"\b(?:today|tonight|tomorrow|(?:this|next) (?:week|weekend|month|morning|afternoon|evening|\w+day))\b"
)
_LATELY = re.compile(r"\b(?:yesterday|last (?:week|weekend|month|night|\w+day))\b")
SOON = timedelta(days=30)
"""How long something holds that is said of a day near the one on which it is said."""
_RANK = {category: rank for rank, category in enumerate(HEADINGS)}
_ID_BYTES = 6


# How long facts last


def eviction_score(fact: Fact, now: datetime) -> float:
    """How dispensable a fact is: days since it was said last, times its category's weight, by its confidence."""
    return (now - fact.last_seen) / _DAY * WEIGHTS[fact.category] / max(LEAST_CONFIDENCE, fact.confidence)


def is_expired(fact: Fact, now: datetime) -> bool:
    """Whether a fact was not said for longer than its category lasts, or is past its `valid_until`; never if pinned."""
    if fact.pinned:
        return False
    is_over = fact.valid_until is not None and fact.valid_until <= now
    return is_over or now - fact.last_seen > EXPIRY_DAYS[fact.category] * _DAY


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


def pin(facts: Iterable[Fact], fact_id: str) -> Fact:
    """The fact, pinned: always kept, and shown first.

    Raises:
        FactError: it is not a current one, or 10 others are pinned.
    """
    current = {fact.id: fact for fact in facts if fact.is_current}
    fact = _known(current, fact_id)
    pinned = sum(other.pinned for other in current.values())
    if not fact.pinned and pinned >= MAX_PINNED:
        raise FactError(
            f"At most {MAX_PINNED} facts can be pinned, and {pinned} are: unpin one of them before pinning {fact_id!r}"
        )
    return fact.model_copy(update={"pinned": True})


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
    folded = fold(fact.text)
    is_relative = _SOON.search(folded) or _LATELY.search(folded)
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
    that has ended. Learning the same from the same messages again changes nothing.

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
        news = _News.of(item, sources, said_at or {}, now)
        if news is None or any(news.is_in(fact) for fact in facts.values()):
            continue
        same = news.same_among(facts.values())
        fact = news.merged_into(same, made_by) if same else news.as_fact(_free_id(news.key, facts), now, made_by)
        rivals = [other for other in facts.values() if other.is_current and other.id != fact.id and news.ends(other)]
        newest = max(rivals, key=lambda other: other.last_seen, default=fact)
        if newest.last_seen > fact.last_seen:
            facts[fact.id], facts[newest.id] = _superseded(fact, newest, newest.last_seen, now)
            continue
        for rival in rivals:
            facts[rival.id], fact = _superseded(rival, fact, news.ended_at, now)
        facts[fact.id] = fact
    return list(facts.values())


def _superseded(old: Fact, new: Fact, at: datetime, now: datetime) -> tuple[Fact, Fact]:
    """Both, the old one ended and its pin on the new one."""
    changes = {
        "superseded_by": new.id,
        "valid_until": at if old.valid_until is None else min(at, old.valid_until),
        "pinned": False,
    }
    pinned = new.model_copy(update={"pinned": old.pinned or new.pinned})
    return _ended(old, "superseded", now).model_copy(update=changes), pinned


def _key(category: FactCategory, text: str) -> str:
    said = f"{category}\n{fold(one_line(text)).rstrip('.! ')}"
    return "fact/" + blake2b(said.encode(errors="surrogatepass"), digest_size=_ID_BYTES).hexdigest()


def _free_id(key: str, taken: Mapping[str, Fact]) -> str:
    number, free = 1, key
    while free in taken:
        number += 1
        free = f"{key}-{number}"
    return free


@dataclass(frozen=True, slots=True)
class _News:
    """A learned fact, where it was said and when."""

    fact: LearnedFact
    key: str
    sources: tuple[Source, ...]
    said: datetime
    only_ends: bool
    """Whether it says no more than that the value of its slot is no longer true."""

    @classmethod
    def of(
        cls, fact: LearnedFact, sources: Mapping[str, Source], said_at: Mapping[str, datetime], now: datetime
    ) -> Self | None:
        """None where there is no text, or where it names messages and none of them is known."""
        text = one_line(fact.text)
        found = [message for message in dict.fromkeys(fact.message_ids) if message in sources]
        if not text or (fact.message_ids and not found):
            return None
        said = max((said_at[message] for message in found if message in said_at), default=now)
        confidence = min(1.0, max(LEAST_CONFIDENCE, fact.confidence))
        return cls(
            fact=replace(fact, text=text, slot=one_line(fact.slot), confidence=confidence),
            key=_key(fact.category, text),
            sources=tuple(sources[message] for message in found),
            said=min(now, said),
            only_ends=bool(fact.slot.strip()) and fact.valid_until is not None and fact.valid_until <= max(now, said),
        )

    @property
    def ended_at(self) -> datetime:
        """When what it supersedes stopped being true."""
        return (self.only_ends and self.fact.valid_until) or self.said

    @property
    def slot(self) -> str:
        return "" if self.only_ends else self.fact.slot

    @property
    def valid_from(self) -> datetime | None:
        return self.fact.valid_until if self.only_ends else self.fact.valid_from

    @property
    def valid_until(self) -> datetime | None:
        if self.only_ends:
            return None
        return self.fact.valid_until or (self.said + SOON if _SOON.search(fold(self.fact.text)) else None)

    def says(self, other: Fact) -> bool:
        return other.category == self.fact.category and says_the_same(other.text, self.fact.text)

    def is_in(self, other: Fact) -> bool:
        """Whether it was learned from the same messages before, whatever became of it."""
        digests = {_place(source): source.digest for source in other.sources}
        if not self.sources or any(digests.get(_place(source)) != source.digest for source in self.sources):
            return False
        return other.id == self.fact.same_as or other.id.partition("-")[0] == self.key or self.says(other)

    def same_among(self, facts: Iterable[Fact]) -> Fact | None:
        current = [fact for fact in facts if fact.is_current]
        named = (fact for fact in current if fact.id == self.fact.same_as)
        return next(named, None) or next((fact for fact in current if self.says(fact)), None)

    def ends(self, other: Fact) -> bool:
        """Whether both cannot be true at the same time."""
        if other.id in self.fact.supersedes:
            return True
        if self.fact.slot and fold(self.fact.slot) == fold(other.slot):
            # "No longer works at Acme" does not end "Works at Globex".
            return not (self.only_ends and names_another(self.fact.text, other.text))
        return other.category == self.fact.category and says_the_opposite(other.text, self.fact.text)

    def as_fact(self, fact_id: str, now: datetime, made_by: str) -> Fact:
        return Fact(
            id=fact_id,
            text=self.fact.text,
            category=self.fact.category,
            confidence=self.fact.confidence,
            slot=self.slot,
            sources=_bounded(self.sources),
            made_by=made_by,
            created_at=now,
            last_seen=self.said,
            valid_from=self.valid_from,
            valid_until=self.valid_until,
        )

    def merged_into(self, known: Fact, made_by: str) -> Fact:
        places = {_place(source): source for source in known.sources}
        is_new = not self.sources or any(_place(source) not in places for source in self.sources)
        places |= {_place(source): source for source in self.sources}
        changes: dict[str, object] = {
            "sources": _bounded(tuple(places.values())),
            "slot": known.slot or self.slot,
            "valid_from": known.valid_from or self.valid_from,
        }
        if is_new:
            was_over = known.valid_until is not None and known.valid_until <= self.said
            changes["last_seen"] = max(known.last_seen, self.said)
            changes["valid_until"] = self.valid_until or (None if was_over else known.valid_until)
        if is_new and self.sources and len(known.sources) < MOST_SOURCES:
            # Of a full list, it is not known which messages have counted.
            merged = 1 - (1 - known.confidence) * (1 - self.fact.confidence)
            changes["confidence"] = max(known.confidence, min(MOST_MERGED_CONFIDENCE, merged))
        is_named = known.id == self.fact.same_as and known.made_by != BY_USER
        if is_named and says_more(self.fact.text, known.text):
            changes |= {"text": self.fact.text, "made_by": made_by}
        return known.model_copy(update=changes)


def _place(source: Source) -> tuple[str, str]:
    return source.conversation_id, source.message_id


def _bounded(sources: tuple[Source, ...]) -> tuple[Source, ...]:
    return sources if len(sources) <= MOST_SOURCES else (sources[0], *sources[1 - MOST_SOURCES :])
