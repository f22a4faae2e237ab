"""What becomes of facts about the user: learned, merged, superseded, pinned, pruned, ranked (seed 001)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
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
_RANK = {category: rank for rank, category in enumerate(HEADINGS)}


def is_kept_by_hand(fact: Fact) -> bool:
    """Returns whether the user has pinned or written a fact."""
    return fact.pinned or fact.made_by == BY_USER


def is_as_first_said(fact: Fact) -> bool:
    """Returns whether the text of a fact is still the one that it was learned with."""
    return _base(fact) == _key(fact.category, fact.text)


def _key(category: FactCategory, text: str) -> str:
    said = f"{category}\n{fold(one_line(text)).rstrip('.! ')}"
    return "fact/" + blake2b(said.encode(errors="surrogatepass"), digest_size=6).hexdigest()


def _base(fact: Fact) -> str:
    """Returns the id that a fact had by what it first said."""
    return fact.id.partition("-")[0]


# How long facts last


def eviction_score(fact: Fact, now: datetime) -> float:
    """Returns the days since a fact was said last, times its category's weight, by its confidence."""
    return (now - fact.last_seen) / _DAY * WEIGHTS[fact.category] / max(LEAST_CONFIDENCE, fact.confidence)


def is_expired(fact: Fact, now: datetime) -> bool:
    """Returns whether a fact is past its category's days; a pinned one never is."""
    return not fact.pinned and now - fact.last_seen > EXPIRY_DAYS[fact.category] * _DAY


def pruned(facts: Iterable[Fact], now: datetime) -> list[Fact]:
    """Ends expired facts above 120 current ones, and evicts those with the highest score where 150 are not enough.

    Pinned facts stay; those that end stay among the facts, with the reason.
    """
    every = list(facts)
    current = [fact for fact in every if fact.is_current]
    gone: dict[str, Fact] = {}
    if len(current) > PRUNE_THRESHOLD:
        gone = {fact.id: _ended(fact, "expired", now) for fact in current if is_expired(fact, now)}
    left = [fact for fact in current if fact.id not in gone]
    if len(left) > HARD_CAP:
        loose = sorted((one for one in left if not one.pinned), key=lambda one: (-eviction_score(one, now), one.id))
        gone |= {fact.id: _ended(fact, "evicted", now) for fact in loose[: len(left) - PRUNE_THRESHOLD]}
    return [gone.get(fact.id, fact) for fact in every]


def _ended(fact: Fact, reason: Ending, now: datetime, **changes: object) -> Fact:
    return fact.model_copy(update={"ended": reason, "ended_at": now, **changes})


def pin(facts: Iterable[Fact], fact: Fact) -> Fact:
    """Returns a current fact, pinned: always kept, and shown first.

    Raises:
        FactError: 10 others are pinned.
    """
    pinned = sum(other.pinned and other.is_current for other in facts)
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
    but for those that were said later: then the learned one has ended. Learning the same from the same messages again
    changes nothing.

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
        new = _new(item, sources, said_at or {}, now, made_by)
        if new is None or any(_was_learned(new, item, fact) for fact in facts.values()):
            continue
        current = [fact for fact in facts.values() if fact.is_current]
        same = next((fact for fact in current if fact.id == item.same_as), None)
        same = same or next((fact for fact in current if _says(new, fact)), None)
        keys = (new.id, *(f"{new.id}-{number}" for number in range(2, len(facts) + 3)))
        free = next(key for key in keys if key not in facts)
        fact = _merged(same, new, item) if same else new.model_copy(update={"id": free})
        rivals = [other for other in current if other.id != fact.id and _ends(item, new, other)]
        newest = max(rivals, key=lambda other: other.last_seen, default=fact)
        gone, stays = ([fact], newest) if newest.last_seen > fact.last_seen else (rivals, fact)
        if any(one.pinned for one in gone):
            stays = stays.model_copy(update={"pinned": True})
        facts |= {one.id: _ended(one, "superseded", now, superseded_by=stays.id, pinned=False) for one in gone}
        facts[stays.id] = stays
    return list(facts.values())


def _new(
    item: LearnedFact, sources: Mapping[str, Source], said_at: Mapping[str, datetime], now: datetime, made_by: str
) -> Fact | None:
    """Returns a learned fact as it would be known; None where it names messages and none of them is there."""
    text = one_line(item.text)
    found = [message for message in dict.fromkeys(item.message_ids) if message in sources]
    if not text or (item.message_ids and not found):
        return None
    return Fact(
        id=_key(item.category, text),
        text=text,
        category=item.category,
        confidence=min(1.0, max(LEAST_CONFIDENCE, item.confidence)),
        slot="" if item.only_ends else one_line(item.slot),
        sources=joined((), (sources[message] for message in found)),
        made_by=made_by,
        created_at=now,
        last_seen=min(now, max((said_at[message] for message in found if message in said_at), default=now)),
    )


def _is_of_kind(fact: Fact, other: Fact) -> bool:
    """Returns whether another fact is of its category, or was before that was changed by hand, as its id tells."""
    return other.category == fact.category or _base(other) == _key(fact.category, other.text)


def _says(fact: Fact, other: Fact) -> bool:
    return _is_of_kind(fact, other) and says_the_same(other.text, fact.text)


def _was_learned(new: Fact, item: LearnedFact, other: Fact) -> bool:
    """Returns whether it was learned from the same messages before, whatever became of that."""
    if not new.sources or not {*new.sources} <= {*other.sources}:
        return False
    return other.id == item.same_as or _base(other) == new.id or _says(new, other)


def _ends(item: LearnedFact, new: Fact, other: Fact) -> bool:
    """Returns whether both cannot be true at the same time; of what is kept by hand, it takes more than being named."""
    if len(item.supersedes) <= MOST_NAMED and other.id in item.supersedes and not is_kept_by_hand(other):
        return True
    slot = fold(one_line(item.slot))
    if slot and fold(other.slot) == slot:
        # "No longer works at Acme" does not end "Works at Globex".
        return not (item.only_ends and names_another(new.text, other.text))
    return _is_of_kind(new, other) and says_the_opposite(other.text, new.text)


def _merged(known: Fact, new: Fact, item: LearnedFact) -> Fact:
    """Returns a known fact that is said once more."""
    places = {source.place for source in known.sources}
    changes: dict[str, object] = {
        "sources": joined(known.sources, new.sources),
        "slot": known.slot or new.slot,
    }
    if not new.sources or any(source.place not in places for source in new.sources):
        changes["last_seen"] = max(known.last_seen, new.last_seen)
        if new.sources and len(known.sources) < MOST_SOURCES:
            # Of a full list, it is not known which messages have counted.
            merged = 1 - (1 - known.confidence) * (1 - new.confidence)
            changes["confidence"] = max(known.confidence, min(MOST_MERGED_CONFIDENCE, merged))
    if known.id == item.same_as and known.made_by != BY_USER and says_more(new.text, known.text):
        changes |= {"text": new.text, "made_by": new.made_by}
    return known.model_copy(update=changes)
