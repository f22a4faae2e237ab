"""How facts about the user are learned, merged, superseded, ranked and forgotten.

Everything here is a function from facts to facts. What a prompt shows of them is in `facts.py`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from langchain_ctxbudget import messages
from langchain_ctxbudget.errors import FactError
from langchain_ctxbudget.knowledge import records
from langchain_ctxbudget.knowledge.records import BY_USER, Fact, LearnedFact, Source
from langchain_ctxbudget.messages import (
    digest,
    fold,
    one_line,
    replaces,
    says_the_opposite,
    says_the_same,
    terms,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryPolicy:
    """What is particular about the facts of one category."""

    heading: str
    """The line above them in a prompt, without its line break."""
    lasts_days: int
    """Days after which a fact has expired that was not said again."""
    eviction_weight: float
    """How much a day of age counts where facts have to be evicted."""


CATEGORIES: Mapping[records.FactCategory, CategoryPolicy] = {
    "project": CategoryPolicy(heading="Current work:", lasts_days=60, eviction_weight=0.8),
    "preference": CategoryPolicy(heading="Preferences:", lasts_days=180, eviction_weight=0.3),
    "identity": CategoryPolicy(heading="About user:", lasts_days=365, eviction_weight=0.5),
}
"""The categories in the order of their priority."""
PRIORITIES = {category: place for place, category in enumerate(CATEGORIES)}
"""The place of each category in that order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactPolicy:
    """How many facts are kept of a user, and how sure they can become."""

    hard_cap: int = 150
    """Current facts above which facts are evicted, until `prune_threshold` of them are left."""
    prune_threshold: int = 120
    """Current facts above which expired ones end."""
    most_pinned: int = 10
    """Facts that a user can pin."""
    least_confidence: float = 0.01
    """The confidence of a fact of which its reader is not sure at all."""
    most_merged_confidence: float = 0.99
    """The confidence that a fact can reach by being said again."""
    most_superseded: int = 3
    """A note that names more known facts as no longer true is not believed in that."""


FACT_POLICY = FactPolicy()
_DAY = timedelta(days=1)


# How long facts last


def eviction_score(fact: Fact, now: datetime) -> float:
    """Returns how readily a fact is evicted: its age in days, weighted, divided by its confidence.

    The age counts from when it was said last; the weight is that of its category.
    """
    age_days = (now - fact.last_seen) / _DAY
    return age_days * CATEGORIES[fact.category].eviction_weight / fact.confidence


def is_expired(fact: Fact, now: datetime) -> bool:
    """Returns whether a fact has outlasted the days of its category; a pinned one never has."""
    if fact.pinned:
        return False
    return now - fact.last_seen > CATEGORIES[fact.category].lasts_days * _DAY


def pruned(facts: Iterable[Fact], now: datetime) -> list[Fact]:
    """Returns the facts after those were ended that are too many.

    Above 120 current facts, the expired ones end. Where more than 150 are left then, those with
    the highest eviction score end, until 120 remain. Pinned facts are never ended. A fact that has
    ended stays in the list, with the reason.
    """
    all_facts = list(facts)
    current = [fact for fact in all_facts if fact.is_current]
    expired = _to_expire(current, now)
    expired_ids = {fact.id for fact in expired}
    remaining = [fact for fact in current if fact.id not in expired_ids]

    ended = {fact.id: _ended(fact, "expired", now) for fact in expired}
    for fact in _to_evict(remaining, now):
        ended[fact.id] = _ended(fact, "evicted", now)
    return [ended.get(fact.id, fact) for fact in all_facts]


def _to_expire(current: Sequence[Fact], now: datetime) -> list[Fact]:
    """Returns the expired facts, if there are so many facts that these end."""
    if len(current) <= FACT_POLICY.prune_threshold:
        return []
    return [fact for fact in current if is_expired(fact, now)]


def _to_evict(remaining: Sequence[Fact], now: datetime) -> list[Fact]:
    """Returns the facts that are too many, those with the highest eviction score."""
    if len(remaining) <= FACT_POLICY.hard_cap:
        return []
    evictable = [fact for fact in remaining if not fact.pinned]
    evictable.sort(key=lambda fact: (-eviction_score(fact, now), fact.id))
    return evictable[: len(remaining) - FACT_POLICY.prune_threshold]


def _ended(fact: Fact, reason: records.Ending, now: datetime) -> Fact:
    return fact.model_copy(update={"ended": reason, "ended_at": now})


def _superseded(fact: Fact, by: Fact, now: datetime) -> Fact:
    """Returns a fact that has ended because another one took its place, and its pin."""
    ended = _ended(fact, "superseded", now)
    return ended.model_copy(update={"superseded_by": by.id, "pinned": False})


def require_room_for_pin(facts: Iterable[Fact], fact: Fact) -> None:
    """Raises a `FactError` if a fact is not pinned yet and 10 others are."""
    most = FACT_POLICY.most_pinned
    if not fact.pinned and sum(other.pinned for other in facts) >= most:
        raise FactError(
            f"At most {most} facts can be pinned: unpin one of them before pinning {fact.id!r}"
        )


def ranked(facts: Iterable[Fact]) -> tuple[Fact, ...]:
    """Returns the current facts in the order in which prompts show them.

    Pinned facts come first, then those of the more important category, then the surer, then the
    newer.
    """

    def priority(fact: Fact) -> tuple[bool, int, float, float, str]:
        return (
            not fact.pinned,
            PRIORITIES[fact.category],
            -fact.confidence,
            -fact.last_seen.timestamp(),
            fact.id,
        )

    return tuple(sorted((fact for fact in facts if fact.is_current), key=priority))


# How facts are learned


def learn(
    known: Iterable[Fact],
    notes: Iterable[LearnedFact],
    sources: Mapping[str, Source],
    now: datetime,
    made_by: str,
    *,
    said_at: Mapping[str, datetime] | None = None,
) -> list[Fact]:
    """Merges what was learned into the known facts, ended ones included, and returns all of them.

    Of two facts that cannot both be true, the one that was said later stays, and takes over the
    pin of the other. A note that names no message of `sources` is not learned. Learning the same
    again changes nothing.

    Args:
        known: The facts about the user so far.
        notes: What was learned, in the order in which it was said.
        sources: The messages that facts may come from, by id.
        now: The time at which they are learned.
        made_by: Who has learned them: `BY_RULES`, `BY_USER` or the name of a model.
        said_at: When these messages were said, by id, as far as that is known.
    """
    facts = {fact.id: fact for fact in known}
    for note in notes:
        statement = _statement_of(note, sources, said_at or {}, now, made_by)
        if statement is None:
            continue
        if any(_was_learned_before(statement, note, fact) for fact in facts.values()):
            continue
        if note.is_uncertain and not _takes_a_place(statement, note, facts.values()):
            continue
        for fact in _changed_by(statement, note, facts, now):
            facts[fact.id] = fact
    return list(facts.values())


def _takes_a_place(statement: Fact, note: LearnedFact, facts: Iterable[Fact]) -> bool:
    """Returns whether a known fact was true until a statement was said."""
    earlier = [fact for fact in facts if fact.is_current and fact.last_seen <= statement.last_seen]
    return any(_contradicts(statement, note, fact) for fact in earlier)


def _changed_by(
    statement: Fact, note: LearnedFact, facts: Mapping[str, Fact], now: datetime
) -> list[Fact]:
    """Returns the facts that a statement changes: those that it ends, then the one that it is."""
    current = [fact for fact in facts.values() if fact.is_current]
    same = _said_again(statement, note, current)
    if same is not None:
        fact = _repeated(same, statement, note)
        current.remove(same)
    else:
        fact = statement.model_copy(update={"id": _free_id(statement.id, facts)})

    rivals = [other for other in current if _contradicts(statement, note, other)]
    winner = max(rivals, key=lambda rival: rival.last_seen, default=fact)
    losers = [fact]
    if winner.last_seen <= fact.last_seen:
        winner = fact
        losers = rivals

    superseded = [_superseded(loser, winner, now) for loser in losers]
    if any(loser.pinned for loser in losers):
        winner = winner.model_copy(update={"pinned": True})
    return [*superseded, winner]


def _statement_of(
    note: LearnedFact,
    sources: Mapping[str, Source],
    said_at: Mapping[str, datetime],
    now: datetime,
    made_by: str,
) -> Fact | None:
    """Returns a note as the fact that it would be if nothing else were known.

    None where it has no text, or names messages and none of them is among the sources.
    """
    text = one_line(note.text)
    message_ids = [key for key in dict.fromkeys(note.message_ids) if key in sources]
    if not text or (note.message_ids and not message_ids):
        return None

    identity = f"{note.category}\n{fold(text).rstrip('.! ')}"
    last_said = max((said_at[key] for key in message_ids if key in said_at), default=now)
    return Fact(
        id=f"fact/{digest(identity, 6).hex()}",
        text=text,
        category=note.category,
        confidence=min(1.0, max(FACT_POLICY.least_confidence, note.confidence)),
        slot=one_line(note.slot),
        sources=records.joined((), (sources[key] for key in message_ids)),
        made_by=made_by,
        created_at=now,
        last_seen=min(now, last_said),
    )


def _was_learned_before(statement: Fact, note: LearnedFact, fact: Fact) -> bool:
    """Returns whether a fact came from the same messages before, whatever became of it."""
    if not statement.sources or not set(statement.sources) <= set(fact.sources):
        return False
    return (
        statement.id == fact.id.partition("-")[0]
        or fact.id == note.same_as
        or says_the_same(fact.text, statement.text)
    )


def _said_again(statement: Fact, note: LearnedFact, current: Sequence[Fact]) -> Fact | None:
    """Returns the fact that a statement says again: the one that its note names, or one like it."""
    for fact in current:
        if fact.id == note.same_as:
            return fact
    for fact in current:
        answers_the_same = not statement.slot or fold(fact.slot) == fold(statement.slot)
        if answers_the_same and says_the_same(fact.text, statement.text):
            return fact
    return None


def _free_id(fact_id: str, facts: Mapping[str, Fact]) -> str:
    """Returns the id, or the id with the first number behind it that no fact has."""
    free_id = fact_id
    number = 1
    while free_id in facts:
        number += 1
        free_id = f"{fact_id}-{number}"
    return free_id


def _contradicts(statement: Fact, note: LearnedFact, fact: Fact) -> bool:
    """Returns whether a statement and a known fact cannot both be true.

    A fact that is kept by hand does not end by being named in the note alone.
    """
    is_named = len(note.supersedes) <= FACT_POLICY.most_superseded and fact.id in note.supersedes
    if is_named and not fact.is_kept_by_hand:
        return True
    if _is_replaced_in_own_words(fact, statement):
        return True

    slots = _slots_of(note.slot)
    known_slots = _slots_of(fact.slot)
    if not slots.isdisjoint(known_slots):
        return True
    if _has_come_true(slots, known_slots) and _begin_alike(statement, fact):
        return True
    return says_the_opposite(fact.text, statement.text)


def _is_replaced_in_own_words(fact: Fact, statement: Fact) -> bool:
    """Returns whether the later one of two quotations takes the place of the other one."""
    if not all(map(records.is_quotation, (fact.text, statement.text))):
        return False
    words = records.quoted_words(fact.text)
    words_now = records.quoted_words(statement.text)
    if statement.last_seen < fact.last_seen:
        return replaces(words, words_now)
    return replaces(words_now, words)


def _slots_of(text: str) -> set[str]:
    """Returns the questions that a fact answers, folded: "Job, employer" answers two."""
    return {fold(one_line(part)) for part in text.split(",")} - {""}


def _has_come_true(slots: Iterable[str], known_slots: set[str]) -> bool:
    """Returns whether a known fact tells what comes next in one of some slots ("next employer")."""
    return any(f"next {slot}" in known_slots for slot in slots)


def _begin_alike(statement: Fact, fact: Fact) -> bool:
    """Returns whether the first two terms of two facts are the same."""
    return terms(fact.text)[:2] == terms(statement.text)[:2]


def _repeated(fact: Fact, statement: Fact, note: LearnedFact) -> Fact:
    """Returns a known fact after it was said once more."""
    changes: dict[str, object] = {
        "sources": records.joined(fact.sources, statement.sources),
        "slot": fact.slot or statement.slot,
    }

    has_new_source = _names_another_message(statement, fact)
    if has_new_source or not statement.sources:
        changes["last_seen"] = max(fact.last_seen, statement.last_seen)
    # Of a full list, it is not known which messages have counted.
    if has_new_source and len(fact.sources) < records.MOST_SOURCES:
        changes["confidence"] = _merged_confidence(fact, statement)

    is_refined = fact.id == note.same_as and messages.says_more(statement.text, fact.text)
    if is_refined and fact.made_by != BY_USER:
        changes["text"] = statement.text
        changes["made_by"] = statement.made_by
    return fact.model_copy(update=changes)


def _names_another_message(statement: Fact, fact: Fact) -> bool:
    """Returns whether a statement comes from a message that a fact does not come from."""
    places = {source.place for source in fact.sources}
    return any(source.place not in places for source in statement.sources)


def _merged_confidence(fact: Fact, statement: Fact) -> float:
    """Returns how sure a fact is that was said twice: wrong only if both were wrong."""
    merged = 1 - (1 - fact.confidence) * (1 - statement.confidence)
    return max(fact.confidence, min(FACT_POLICY.most_merged_confidence, merged))
