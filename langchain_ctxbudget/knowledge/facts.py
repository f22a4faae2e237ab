"""What becomes of facts about the user: learned, merged, superseded, pinned, pruned, ranked (seed 001)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
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
from langchain_ctxbudget.stores import utc

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

_DAY = timedelta(days=1)
_RELATIVE_DAY = re.compile(
    r"\b(?:today|tonight|tomorrow|yesterday"
    r"|(?:this|next|last) (?:week|weekend|month|night|morning|afternoon|evening|\w+day))\b"
)
_LONG_AGO = datetime.min.replace(tzinfo=UTC)
_RANK = {category: rank for rank, category in enumerate(HEADINGS)}


def is_kept_by_hand(fact: Fact) -> bool:
    """Returns whether the user has pinned or written a fact."""
    return fact.pinned or fact.made_by == BY_USER


def is_as_first_said(fact: Fact) -> bool:
    """Returns whether the text of a fact is still the one that it was learned with."""
    return fact.id.partition("-")[0] == _key(fact.category, fact.text)


def begins_later(fact: Fact, now: datetime) -> bool:
    """Returns whether a fact is not true yet."""
    return fact.valid_from is not None and utc(fact.valid_from) > utc(now)


def holding(facts: Iterable[Fact], now: datetime) -> list[Fact]:
    """Returns the facts that are true now; of one slot, the one that has begun last."""
    found = [fact for fact in facts if fact.is_current and not begins_later(fact, now) and not _is_over(fact, now)]
    begun: dict[str, datetime] = {}
    for fact in found:
        if fact.slot and fact.valid_from:
            slot, begin = fold(fact.slot), utc(fact.valid_from)
            begun[slot] = max(begin, begun.get(slot, begin))
    return [fact for fact in found if utc(fact.valid_from or fact.last_seen) >= begun.get(fold(fact.slot), _LONG_AGO)]


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
    return fact.valid_until is not None and utc(fact.valid_until) <= utc(now)


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
    """Returns a current fact, pinned: always kept, and shown first.

    Raises:
        FactError: 10 others are pinned that are not over.
    """
    pinned = sum(other.pinned and other.is_current and not _is_over(other, now) for other in facts)
    if not fact.pinned and pinned >= MAX_PINNED:
        raise FactError(
            f"At most {MAX_PINNED} facts can be pinned, and {pinned} are: unpin one of them before pinning {fact.id!r}"
        )
    return fact.model_copy(update={"pinned": True})


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
    is_relative = _RELATIVE_DAY.search(fold(fact.text))
    return f"{fact.text} (said {fact.last_seen.date().isoformat()})" if is_relative else fact.text


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
    but for those that were said later: then the learned one has ended. What begins later ends nothing before (see
    `holding`). Learning the same from the same messages again changes nothing.

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
        if news is None or any(_was_learned(news, fact) for fact in facts.values()):
            continue
        current = [fact for fact in facts.values() if fact.is_current]
        named = (fact for fact in current if fact.id == item.same_as)
        same = next(named, None) or next((fact for fact in current if _says(news.fact, fact)), None)
        keys = (news.fact.id, *(f"{news.fact.id}-{number}" for number in range(2, len(facts) + 3)))
        free = next(key for key in keys if key not in facts)
        fact = _merged(same, news) if same else news.fact.model_copy(update={"id": free})
        rivals = [other for other in current if other.id != fact.id and _ends(news, fact, other, now)]
        newest = max(rivals, key=lambda other: other.last_seen, default=fact)
        if newest.last_seen > fact.last_seen:
            facts = _settled(facts, newest, [fact], at=newest.last_seen, now=now)
        else:
            facts = _settled(facts, fact, rivals, at=news.ended_at, now=now)
    return list(facts.values())


@dataclass(frozen=True, slots=True)
class _News:
    """A learned fact as it would be known."""

    fact: Fact
    item: LearnedFact
    only_ends: bool
    """It says no more than that the value of its slot is no longer true."""
    ended_at: datetime
    """The time at which what it supersedes stopped being true."""


def _news(
    item: LearnedFact, sources: Mapping[str, Source], said_at: Mapping[str, datetime], now: datetime, made_by: str
) -> _News | None:
    """Returns None where there is no text, or where it names messages and none of them is known."""
    text, slot = one_line(item.text), one_line(item.slot)
    found = [message for message in dict.fromkeys(item.message_ids) if message in sources]
    if not text or (item.message_ids and not found):
        return None
    said = max((said_at[message] for message in found if message in said_at), default=now)
    end = item.valid_until if slot and item.valid_until and item.valid_until <= max(now, said) else None
    said = min(now, said)
    fact = Fact(
        id=_key(item.category, text),
        text=text,
        category=item.category,
        confidence=min(1.0, max(LEAST_CONFIDENCE, item.confidence)),
        slot="" if end else slot,
        sources=joined((), (sources[message] for message in found)),
        made_by=made_by,
        created_at=now,
        last_seen=said,
        valid_from=end or item.valid_from,
        valid_until=None if end else item.valid_until,
    )
    supersedes = item.supersedes if len(item.supersedes) <= MOST_NAMED else ()
    item = replace(item, slot=slot, supersedes=supersedes)
    return _News(fact, item, only_ends=end is not None, ended_at=end or max(said, item.valid_from or said))


def _is_of_kind(fact: Fact, other: Fact) -> bool:
    """Returns whether another fact is of its category, or was before that was changed by hand, as its id tells."""
    return other.category == fact.category or other.id.partition("-")[0] == _key(fact.category, other.text)


def _says(fact: Fact, other: Fact) -> bool:
    return _is_of_kind(fact, other) and says_the_same(other.text, fact.text)


def _same_slot(fact: Fact, slot: str) -> bool:
    return bool(slot) and fold(fact.slot) == fold(slot)


def _was_learned(news: _News, other: Fact) -> bool:
    """Returns whether it was learned from the same messages before, whatever became of that."""
    if not news.fact.sources or not {*news.fact.sources} <= {*other.sources}:
        return False
    same_id = other.id == news.item.same_as or other.id.partition("-")[0] == news.fact.id
    return same_id or _says(news.fact, other)


def _ends(news: _News, fact: Fact, other: Fact, now: datetime) -> bool:
    """Returns whether both cannot be true at the same time; of what is kept by hand, it takes more than being named."""
    is_named = other.id in news.item.supersedes and not is_kept_by_hand(other)
    opposes = _is_of_kind(news.fact, other) and says_the_opposite(other.text, news.fact.text)
    if begins_later(fact, now) != begins_later(other, now):
        return begins_later(other, now) and (is_named or opposes)  # a plan that is given up
    if not is_named and _same_slot(other, news.item.slot):
        # "No longer works at Acme" does not end "Works at Globex".
        return not (news.only_ends and names_another(news.fact.text, other.text))
    return is_named or opposes


def _merged(known: Fact, news: _News) -> Fact:
    """Returns a known fact that is said once more."""
    new = news.fact
    places = {source.place for source in known.sources}
    changes: dict[str, object] = {
        "sources": joined(known.sources, new.sources),
        "slot": known.slot or new.slot,
        "valid_from": known.valid_from or new.valid_from,
    }
    if not new.sources or any(source.place not in places for source in new.sources):
        changes["last_seen"] = max(known.last_seen, new.last_seen)
        changes["valid_until"] = new.valid_until or (None if _is_over(known, new.last_seen) else known.valid_until)
        if new.sources and len(known.sources) < MOST_SOURCES:
            # Of a full list, it is not known which messages have counted.
            merged = 1 - (1 - known.confidence) * (1 - new.confidence)
            changes["confidence"] = max(known.confidence, min(MOST_MERGED_CONFIDENCE, merged))
    if known.id == news.item.same_as and known.made_by != BY_USER and says_more(new.text, known.text):
        changes |= {"text": new.text, "made_by": new.made_by}
    return known.model_copy(update=changes)


def _settled(
    facts: Mapping[str, Fact], fact: Fact, against: Iterable[Fact], *, at: datetime, now: datetime
) -> dict[str, Fact]:
    """Returns facts with one among them that ends some at a time, and takes over their pin."""
    settled = dict(facts)
    for rival in against:
        if rival.pinned:
            fact = fact.model_copy(update={"pinned": True})
        changes = {"superseded_by": fact.id, "valid_until": min(at, rival.valid_until or at), "pinned": False}
        settled[rival.id] = _ended(rival, "superseded", now).model_copy(update=changes)
    settled[fact.id] = fact
    return settled
