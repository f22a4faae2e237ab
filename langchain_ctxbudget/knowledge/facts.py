"""What becomes of facts about the user: learned, merged, superseded, pinned, pruned, ranked (seed 001)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import blake2b

from langchain_ctxbudget.errors import FactError
from langchain_ctxbudget.knowledge.records import (
    BY_USER,
    MOST_SOURCES,
    Ending,
    Fact,
    FactCategory,
    LearnedFact,
    Source,
    joined,
)
from langchain_ctxbudget.messages import fold, names_another, one_line, says_more, says_the_opposite, says_the_same
from langchain_ctxbudget.stores import later, utc

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
"""Headings of the categories, in the order of their priority."""
KEPT_PREFERENCES_ABOVE = 0.8
"""Confidence above which a preference stays where the window is tight."""
LEAST_CONFIDENCE, MOST_MERGED_CONFIDENCE = 0.01, 0.99
MOST_NAMED = 3
"""An item that names more known facts as no longer true is not believed in that."""
SOON = timedelta(days=30)
"""How long a statement about a near day holds."""

_DAY = timedelta(days=1)
_NEAR_DAY = re.compile(
    r"\b(?:today|tonight|tomorrow|(?:this|next) (?:week|weekend|month|morning|afternoon|evening|\w+day))\b"
)
_LATELY = re.compile(r"\b(?:yesterday|last (?:week|weekend|month|night|\w+day))\b")
_RANK = {category: rank for rank, category in enumerate(HEADINGS)}


def is_kept_by_hand(fact: Fact) -> bool:
    """Returns whether the user has pinned or written a fact."""
    return fact.pinned or fact.made_by == BY_USER


def is_as_first_said(fact: Fact) -> bool:
    """Returns whether the text of a fact is still the one that it was learned with."""
    return fact.id.partition("-")[0] == _key(fact.category, fact.text)


def begins_later(fact: Fact, now: datetime) -> bool:
    """Returns whether a fact is not true yet."""
    return fact.valid_from is not None and fact.valid_from > now


def holding(facts: Iterable[Fact], now: datetime) -> list[Fact]:
    """Returns the facts that are true now."""
    return [
        fact
        for fact in facts
        if fact.is_current
        and (fact.valid_from is None or utc(fact.valid_from) <= utc(now))
        and (fact.valid_until is None or utc(fact.valid_until) > utc(now))
    ]


def lasting(fact: Fact) -> Fact:
    """Returns a fact that is kept by hand without the end that nobody has said."""
    if fact.valid_until is None or fact.valid_until != _assumed_end(fact.text, fact.last_seen):
        return fact
    return fact.model_copy(update={"valid_until": None})


def _assumed_end(text: str, said: datetime) -> datetime | None:
    return later(said, SOON) if _NEAR_DAY.search(fold(text)) else None


def _key(category: FactCategory, text: str) -> str:
    said = f"{category}\n{fold(one_line(text)).rstrip('.! ')}"
    return "fact/" + blake2b(said.encode(errors="surrogatepass"), digest_size=6).hexdigest()


# How long facts last


def eviction_score(fact: Fact, now: datetime) -> float:
    """Returns the days since a fact was said last, times its category's weight, by its confidence."""
    return (now - fact.last_seen) / _DAY * WEIGHTS[fact.category] / max(LEAST_CONFIDENCE, fact.confidence)


def is_expired(fact: Fact, now: datetime) -> bool:
    """Returns whether a fact is past its `valid_until` or its category's days; a pinned one never is."""
    return not fact.pinned and (_is_over(fact, now) or now - fact.last_seen > EXPIRY_DAYS[fact.category] * _DAY)


def _is_over(fact: Fact, now: datetime) -> bool:
    return fact.valid_until is not None and fact.valid_until <= now


def pruned(facts: Iterable[Fact], now: datetime) -> list[Fact]:
    """Ends expired facts above 120 current ones, and evicts those with the highest score where 150 are not enough.

    Pinned facts stay; those that end stay among the facts, with the reason.
    """
    every = list(facts)
    current = [fact for fact in every if fact.is_current]
    gone: dict[str, Fact] = {}
    if len(current) > PRUNE_THRESHOLD:
        gone |= {fact.id: _ended(fact, "expired", now) for fact in current if is_expired(fact, now)}
    left = [fact for fact in current if fact.id not in gone]
    if len(left) > HARD_CAP:
        loose = sorted((one for one in left if not one.pinned), key=lambda one: (-eviction_score(one, now), one.id))
        gone |= {fact.id: _ended(fact, "evicted", now) for fact in loose[: len(left) - PRUNE_THRESHOLD]}
    return [gone.get(fact.id, fact) for fact in every]


def _ended(fact: Fact, reason: Ending, now: datetime) -> Fact:
    return fact.model_copy(update={"ended": reason, "ended_at": now})


def pin(facts: Iterable[Fact], fact: Fact, now: datetime) -> Fact:
    """Returns a current fact, pinned: always kept, shown first, and without an end that nobody has said.

    Raises:
        FactError: 10 others are pinned that are not over.
    """
    pinned = sum(other.pinned and other.is_current and not _is_over(other, now) for other in facts)
    if not fact.pinned and pinned >= MAX_PINNED:
        raise FactError(
            f"At most {MAX_PINNED} facts can be pinned, and {pinned} are: unpin one of them before pinning {fact.id!r}"
        )
    return lasting(fact).model_copy(update={"pinned": True})


# What a prompt shows of them


def ranked(facts: Iterable[Fact]) -> tuple[Fact, ...]:
    """Returns the current facts: pinned ones, then project, preference, identity, then the surer, then the newer."""

    def priority(fact: Fact) -> tuple[bool, int, float, float, str]:
        return not fact.pinned, _RANK[fact.category], -fact.confidence, -fact.last_seen.timestamp(), fact.id

    return tuple(sorted((fact for fact in facts if fact.is_current), key=priority))


def shown(fact: Fact) -> str:
    """Returns the text that a prompt shows, with the day on which it was said where it speaks of days by that.

    >>> from datetime import UTC
    >>> now = datetime(2026, 5, 1, tzinfo=UTC)
    >>> shown(Fact(id="f", text="Flies to Rome next week", category="project", created_at=now, last_seen=now))
    'Flies to Rome next week (said 2026-05-01)'
    """
    text = fold(fact.text)
    is_relative = _NEAR_DAY.search(text) or _LATELY.search(text)
    return f"{fact.text} (said {fact.last_seen.date().isoformat()})" if is_relative else fact.text


def grouped(facts: Iterable[Fact]) -> tuple[tuple[str, tuple[Fact, ...]], ...]:
    """Returns facts under the headings of their categories; headings without facts are left out."""
    given = tuple(facts)
    groups = ((heading, tuple(fact for fact in given if fact.category == kind)) for kind, heading in HEADINGS.items())
    return tuple((heading, group) for heading, group in groups if group)


def stays_where_it_is_tight(fact: Fact) -> bool:
    """Returns whether a fact is pinned, about work, or a preference more certain than 0.8."""
    is_sure = fact.category == "preference" and fact.confidence > KEPT_PREFERENCES_ABOVE
    return fact.pinned or fact.category == "project" or is_sure


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
    """Merges learned facts into the known ones; those that end stay among them, with the reason.

    A fact that says the same as a current one gives it its sources, and makes it more certain by `1 - (1 - a)(1 - b)`,
    at most 0.99; the text changes only where `same_as` says more and the user did not write it. Facts that are named by
    `supersedes`, have another value for the same slot, or say the opposite end as superseded and hand on their pin,
    but for those that were said later: then the learned one has ended. What begins later ends what is true now only
    then. Learning the same from the same messages again changes nothing.

    Args:
        known: all that is known, also what has ended.
        learned: in the order in which it was said.
        sources: by message id; a fact that names only other messages is not learned.
        now: the time for all that has none.
        made_by: who learned it.
        said_at: when messages were said, by id.
    """
    facts = {fact.id: fact for fact in known}
    for item in learned:
        news = _news(item, sources, said_at or {}, now, made_by)
        if news is None or any(news.is_in(fact) for fact in facts.values()):
            continue
        current = [fact for fact in facts.values() if fact.is_current]
        named = (fact for fact in current if fact.id == news.fact.same_as)
        same = next(named, None) or next((fact for fact in current if news.says(fact)), None)
        fact = news.merged_into(same) if same else news.as_fact(facts, now)
        rivals = [other for other in current if other.id != fact.id and news.ends(other)]
        beside = [rival for rival in rivals if news.lets_stand(fact, rival, now)]
        against = [rival for rival in rivals if rival not in beside]
        newest = max(against, key=lambda other: other.last_seen, default=fact)
        if newest.last_seen > fact.last_seen:
            facts = _settled(facts, newest, [fact], [], at=newest.last_seen, now=now)
        else:
            facts = _settled(facts, fact, against, beside, at=news.ended_at, now=now)
    return list(facts.values())


def sole(facts: Iterable[Fact], value: Fact, now: datetime) -> list[Fact]:
    """Returns the facts where one was given its slot by hand: it supersedes the other values of that slot."""
    known = {fact.id: fact for fact in facts}
    rivals = [one for one in known.values() if one.is_current and one.id != value.id and _same_slot(one, value.slot)]
    beside = [rival for rival in rivals if begins_later(rival, now) != begins_later(value, now)]
    against = [rival for rival in rivals if rival not in beside]
    return list(_settled(known, value, against, beside, at=now, now=now).values())


def released(facts: Iterable[Fact], gone: Collection[str]) -> list[Fact]:
    """Returns the facts, of which none ends any more because of a plan that is given up."""
    return [
        fact.model_copy(update={"valid_until": None, "superseded_by": None})
        if fact.is_current and fact.superseded_by in gone
        else fact
        for fact in facts
    ]


@dataclass(frozen=True, slots=True)
class _News:
    """A learned fact, where it was said and when."""

    fact: LearnedFact
    key: str
    sources: tuple[Source, ...]
    said: datetime
    made_by: str
    only_ends: bool
    """It says no more than that the value of its slot is no longer true."""

    slot: str
    valid_from: datetime | None
    valid_until: datetime | None
    ended_at: datetime
    """The time at which what it supersedes stopped being true."""

    def says(self, other: Fact) -> bool:
        return self._is_of_kind(other) and says_the_same(other.text, self.fact.text)

    def opposes(self, other: Fact) -> bool:
        return self._is_of_kind(other) and says_the_opposite(other.text, self.fact.text)

    def _is_of_kind(self, other: Fact) -> bool:
        """Returns whether another fact is of its category, or was before that was changed by hand, as its id tells."""
        category = self.fact.category
        return other.category == category or other.id.partition("-")[0] == _key(category, other.text)

    def is_in(self, other: Fact) -> bool:
        """Returns whether it was learned from the same messages before, whatever became of that."""
        if not self.sources or not {*self.sources} <= {*other.sources}:
            return False
        return other.id == self.fact.same_as or other.id.partition("-")[0] == self.key or self.says(other)

    def names(self, other: Fact) -> bool:
        """Returns whether it is told to end another fact; what is kept by hand takes more than that."""
        return other.id in self.fact.supersedes and not is_kept_by_hand(other)

    def ends(self, other: Fact) -> bool:
        """Returns whether both cannot be true at the same time."""
        if self.names(other):
            return True
        if _same_slot(other, self.fact.slot):
            # "No longer works at Acme" does not end "Works at Globex".
            return not (self.only_ends and names_another(self.fact.text, other.text))
        return self.opposes(other)

    def lets_stand(self, fact: Fact, rival: Fact, now: datetime) -> bool:
        """Returns whether it, as this fact, and a rival are true one after the other: one only begins later.

        Of something planned, its opposite now is the end; not so where that was known to last until then.
        """
        if begins_later(fact, now):
            return not begins_later(rival, now)
        is_given_up = self.names(rival) or (self.opposes(rival) and fact.superseded_by != rival.id)
        return begins_later(rival, now) and not is_given_up

    def as_fact(self, known: Collection[str], now: datetime) -> Fact:
        number, free = 1, self.key
        while free in known:
            number += 1
            free = f"{self.key}-{number}"
        return Fact(
            id=free,
            text=self.fact.text,
            category=self.fact.category,
            confidence=self.fact.confidence,
            slot=self.slot,
            sources=joined((), self.sources),
            made_by=self.made_by,
            created_at=now,
            last_seen=self.said,
            valid_from=self.valid_from,
            valid_until=self.valid_until,
        )

    def merged_into(self, known: Fact) -> Fact:
        """Returns a known fact that is said once more."""
        if self.made_by == BY_USER:
            known = lasting(known)
        places = {source.place for source in known.sources}
        changes: dict[str, object] = {
            "sources": joined(known.sources, self.sources),
            "slot": known.slot or self.slot,
            "valid_from": known.valid_from or self.valid_from,
        }
        if not self.sources or any(source.place not in places for source in self.sources):
            was_over = _is_over(known, self.said)
            until = self.fact.valid_until if is_kept_by_hand(known) and not self.only_ends else self.valid_until
            changes["last_seen"] = max(known.last_seen, self.said)
            changes["valid_until"] = until or (None if was_over else known.valid_until)
            changes["superseded_by"] = None if was_over else known.superseded_by
            if self.sources and len(known.sources) < MOST_SOURCES:
                # Of a full list, it is not known which messages have counted.
                merged = 1 - (1 - known.confidence) * (1 - self.fact.confidence)
                changes["confidence"] = max(known.confidence, min(MOST_MERGED_CONFIDENCE, merged))
        is_named = known.id == self.fact.same_as and known.made_by != BY_USER
        if is_named and says_more(self.fact.text, known.text):
            changes |= {"text": self.fact.text, "made_by": self.made_by}
        return known.model_copy(update=changes)


def _news(
    fact: LearnedFact, sources: Mapping[str, Source], said_at: Mapping[str, datetime], now: datetime, made_by: str
) -> _News | None:
    """Returns None where there is no text, or where it names messages and none of them is known."""
    text = one_line(fact.text)
    found = [message for message in dict.fromkeys(fact.message_ids) if message in sources]
    if not text or (fact.message_ids and not found):
        return None
    said = max((said_at[message] for message in found if message in said_at), default=now)
    only_ends = bool(fact.slot.strip()) and fact.valid_until is not None and fact.valid_until <= max(now, said)
    said = min(now, said)
    assumed = None if made_by == BY_USER else _assumed_end(text, said)
    slot = one_line(fact.slot)
    confidence = min(1.0, max(LEAST_CONFIDENCE, fact.confidence))
    supersedes = fact.supersedes if len(fact.supersedes) <= MOST_NAMED else ()
    return _News(
        fact=replace(fact, text=text, slot=slot, confidence=confidence, supersedes=supersedes),
        key=_key(fact.category, text),
        sources=tuple(sources[message] for message in found),
        said=said,
        made_by=made_by,
        only_ends=only_ends,
        slot="" if only_ends else slot,
        valid_from=fact.valid_until if only_ends else fact.valid_from,
        valid_until=None if only_ends else fact.valid_until or assumed,
        ended_at=fact.valid_until if only_ends and fact.valid_until else max(said, fact.valid_from or said),
    )


def _same_slot(fact: Fact, slot: str) -> bool:
    return bool(slot) and fold(fact.slot) == fold(slot)


def _settled(
    facts: Mapping[str, Fact],
    fact: Fact,
    against: Sequence[Fact],
    beside: Sequence[Fact],
    *,
    at: datetime,
    now: datetime,
) -> dict[str, Fact]:
    """Returns facts with one among them that ends some at a time, and is true before or after others."""
    settled = dict(facts)
    for rival in against:
        if rival.pinned:
            fact = lasting(fact).model_copy(update={"pinned": True})
        until = at if rival.valid_until is None else min(at, rival.valid_until)
        changes = {"superseded_by": fact.id, "valid_until": until, "pinned": False}
        settled[rival.id] = _ended(rival, "superseded", now).model_copy(update=changes)
    settled[fact.id] = fact
    given_up = {rival.id for rival in against if begins_later(rival, now)}
    settled = {one.id: one for one in released(settled.values(), given_up)}
    for other in beside:
        first, then = (other.id, fact.id) if begins_later(fact, now) else (fact.id, other.id)
        begin, end = settled[then].valid_from, settled[first].valid_until
        if begin and (end is None or end > begin):
            settled[first] = settled[first].model_copy(update={"valid_until": begin, "superseded_by": then})
    return settled
