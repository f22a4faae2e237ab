"""Facts about the user (seed 001).

Learned, merged, superseded, pinned, pruned, and shown in layer L1.

The stable zone of a prompt begins with L1, so a conversation shows the same facts until it is
compacted, until the user changes something by hand, or until one of them ends. Retrieval may quote
what was learned since.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from langchain_ctxbudget import messages
from langchain_ctxbudget.budget import MEMORIES_HEADING, MEMORY_MAX, Fragment, Layer, Reason, Status
from langchain_ctxbudget.errors import FactError
from langchain_ctxbudget.knowledge import records
from langchain_ctxbudget.knowledge.known import Knowledge
from langchain_ctxbudget.knowledge.profiles import OF_FACTS
from langchain_ctxbudget.knowledge.records import BY_USER, ContextBundle, Fact, LearnedFact, Source
from langchain_ctxbudget.messages import (
    Count,
    digest,
    fences,
    fold,
    one_line,
    says_the_opposite,
    says_the_same,
    terms,
)
from langchain_ctxbudget.search import Candidate, Kind, pack
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores import SnapshotRecord

HARD_CAP = 150
PRUNE_THRESHOLD = 120
"""Above the first, facts are evicted down to the second; above the second, expired ones end."""
MAX_PINNED = 10
EXPIRY_DAYS: Mapping[records.FactCategory, int] = {
    "project": 60,
    "preference": 180,
    "identity": 365,
}
WEIGHTS: Mapping[records.FactCategory, float] = {"project": 0.8, "preference": 0.3, "identity": 0.5}
HEADINGS: Mapping[records.FactCategory, str] = {
    "project": "Current work:",
    "preference": "Preferences:",
    "identity": "About user:",
}
"""Headings of the categories, in the order of their priority."""
KEPT_PREFERENCES_ABOVE = 0.8
"""Confidence above which a preference stays where the window is tight."""
LEAST_CONFIDENCE = 0.01
MOST_MERGED_CONFIDENCE = 0.99
MOST_NAMED = 3
"""An item that names more known facts as no longer true is not believed in that."""
_DAY = timedelta(days=1)
_RANK = {category: rank for rank, category in enumerate(HEADINGS)}


# How they last


def eviction_score(fact: Fact, now: datetime) -> float:
    """Returns the days since a fact was said last, times its category's weight, by its confidence."""
    return (now - fact.last_seen) / _DAY * WEIGHTS[fact.category] / fact.confidence


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
        loose = sorted(
            (one for one in left if not one.pinned),
            key=lambda one: (-eviction_score(one, now), one.id),
        )
        gone |= {
            fact.id: _ended(fact, "evicted", now) for fact in loose[: len(left) - PRUNE_THRESHOLD]
        }
    return [gone.get(fact.id, fact) for fact in every]


def _ended(fact: Fact, reason: records.Ending, now: datetime, **changes: object) -> Fact:
    return fact.model_copy(update={"ended": reason, "ended_at": now, **changes})


def require_room_for_pin(facts: Iterable[Fact], fact: Fact) -> None:
    """Raises a `FactError` where 10 other current facts are pinned."""
    if not fact.pinned and sum(other.pinned for other in facts) >= MAX_PINNED:
        raise FactError(
            f"At most {MAX_PINNED} facts can be pinned: unpin one of them before pinning {fact.id!r}"
        )


def ranked(facts: Iterable[Fact]) -> tuple[Fact, ...]:
    """Returns the current facts.

    Pinned ones, then project, preference, identity, then the surer, then the newer.
    """

    def priority(fact: Fact) -> tuple[bool, int, float, float, str]:
        return (
            not fact.pinned,
            _RANK[fact.category],
            -fact.confidence,
            -fact.last_seen.timestamp(),
            fact.id,
        )

    return tuple(sorted((fact for fact in facts if fact.is_current), key=priority))


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
    """Merges learned facts, in the order in which they were said, into the known ones, ended ones included.

    Of two that cannot both be true, the one that was said later stays, and takes over the pin of
    the other. A fact that names no message of `sources` is not learned; learning from the same
    again changes nothing.
    """
    facts = {fact.id: fact for fact in known}
    for item in learned:
        new = _new(item, sources, said_at or {}, now, made_by)
        if new is None or any(_was_learned(new, item, fact) for fact in facts.values()):
            continue
        current = [fact for fact in facts.values() if fact.is_current]
        same = next((fact for fact in current if fact.id == item.same_as), None)
        alike = (fact for fact in current if says_the_same(fact.text, new.text))
        same = same or next(
            (fact for fact in alike if fold(fact.slot) == fold(new.slot or fact.slot)), None
        )
        keys = (new.id, *(f"{new.id}-{number}" for number in range(2, len(facts) + 3)))
        free = next(key for key in keys if key not in facts)
        fact = _merged(same, new, item) if same else new.model_copy(update={"id": free})
        rivals = [other for other in current if other.id != fact.id and _ends(item, new, other)]
        newest = max(rivals, key=lambda other: other.last_seen, default=fact)
        gone, stays = ([fact], newest) if newest.last_seen > fact.last_seen else (rivals, fact)
        if any(one.pinned for one in gone):
            stays = stays.model_copy(update={"pinned": True})
        facts |= {
            one.id: _ended(one, "superseded", now, superseded_by=stays.id, pinned=False)
            for one in gone
        }
        facts[stays.id] = stays
    return list(facts.values())


def _new(
    item: LearnedFact,
    sources: Mapping[str, Source],
    said_at: Mapping[str, datetime],
    now: datetime,
    made_by: str,
) -> Fact | None:
    """Returns a learned fact as it would be known.

    None where it names messages and none of them is there.
    """
    text = one_line(item.text)
    found = [message for message in dict.fromkeys(item.message_ids) if message in sources]
    if not text or (item.message_ids and not found):
        return None
    said = f"{item.category}\n{fold(text).rstrip('.! ')}"
    return Fact(
        id=f"fact/{digest(said, 6).hex()}",
        text=text,
        category=item.category,
        confidence=min(1.0, max(LEAST_CONFIDENCE, item.confidence)),
        slot=one_line(item.slot),
        sources=records.joined((), (sources[message] for message in found)),
        made_by=made_by,
        created_at=now,
        last_seen=min(
            now, max((said_at[message] for message in found if message in said_at), default=now)
        ),
    )


def _was_learned(new: Fact, item: LearnedFact, other: Fact) -> bool:
    """Returns whether it was learned from the same messages before, whatever became of that."""
    if not new.sources or not {*new.sources} <= {*other.sources}:
        return False
    return (
        new.id == other.id.partition("-")[0]
        or other.id == item.same_as
        or says_the_same(other.text, new.text)
    )


def _ends(item: LearnedFact, new: Fact, other: Fact) -> bool:
    """Returns whether a new fact ends another.

    A fact kept by hand does not end by being named alone.
    """
    if (
        len(item.supersedes) <= MOST_NAMED
        and other.id in item.supersedes
        and not other.is_kept_by_hand
    ):
        return True
    if item.is_narrow and other.last_seen <= new.last_seen:
        return False
    slots, others = (
        {fold(one_line(part)) for part in text.split(",")} - {""}
        for text in (item.slot, other.slot)
    )
    was_next = terms(other.text)[:2] == terms(new.text)[:2] and any(
        f"next {slot}" in others for slot in slots
    )
    return not slots.isdisjoint(others) or was_next or says_the_opposite(other.text, new.text)


def _merged(known: Fact, new: Fact, item: LearnedFact) -> Fact:
    """Returns a known fact that is said once more."""
    places = {source.place for source in known.sources}
    changes: dict[str, object] = {
        "sources": records.joined(known.sources, new.sources),
        "slot": known.slot or new.slot,
    }
    if not new.sources or any(source.place not in places for source in new.sources):
        changes["last_seen"] = max(known.last_seen, new.last_seen)
        if new.sources and len(known.sources) < records.MOST_SOURCES:
            # Of a full list, it is not known which messages have counted.
            merged = 1 - (1 - known.confidence) * (1 - new.confidence)
            changes["confidence"] = max(known.confidence, min(MOST_MERGED_CONFIDENCE, merged))
    if (
        known.id == item.same_as
        and known.made_by != BY_USER
        and messages.says_more(new.text, known.text)
    ):
        changes |= {"text": new.text, "made_by": new.made_by}
    return known.model_copy(update=changes)


# What a conversation shows of them


@dataclass(frozen=True, slots=True)
class FactsLayer:
    """The facts that a conversation may show."""

    shown: tuple[Fact, ...] = ()
    """The facts of the snapshot; all facts where a new one is due."""
    learned_since: tuple[Fact, ...] = ()
    """The facts that the snapshot does not have."""
    due: bool = True
    """The facts shown now become the snapshot."""
    edited: str = ""
    """The mark of the user's last change by hand."""
    is_read: bool = True
    """False: reading failed, so nothing becomes the snapshot."""

    @property
    def all(self) -> tuple[Fact, ...]:
        """Every fact that may be known in this conversation."""
        return (*self.shown, *self.learned_since)

    def renewed(self) -> "FactsLayer":
        """Returns the same with a new snapshot due."""
        return FactsLayer(shown=self.all, edited=self.edited) if self.is_read else self


def facts_of(knowledge: Knowledge, snapshot: SnapshotRecord | None) -> FactsLayer:
    """Returns the facts that a conversation may show, given its snapshot so far, if any."""
    if not knowledge.is_read:
        return FactsLayer(due=False, is_read=False)
    edited = knowledge.mark.edited
    facts = knowledge.facts
    said = dict(snapshot.facts) if snapshot else {}
    before = tuple(fact for fact in facts if said.get(fact.id) == _fingerprint(fact))
    if snapshot is None or snapshot.edited != edited or len(before) < len(said):
        return FactsLayer(shown=facts, edited=edited)
    since = tuple(fact for fact in facts if fact.id not in said)
    return FactsLayer(shown=before, learned_since=since, due=False, edited=edited)


def snapshot_of(facts: Iterable[Fact], edited: str) -> SnapshotRecord:
    """Returns the record of what a conversation shows, without the texts, which belong to the facts alone."""
    return SnapshotRecord(
        facts=tuple((fact.id, _fingerprint(fact)) for fact in facts), edited=edited
    )


def _fingerprint(fact: Fact) -> str:
    return digest(f"{fact.category}\n{fact.pinned}\n{fact.shown}", 8).hex()


def preference_fragments(settings: ContextSettings, count: Count) -> tuple[Fragment, ...]:
    """Writes personality, response style and custom instructions as lines.

    The first stay longest.
    """
    named = [(f"manner {number}", text) for number, text in enumerate(settings.manner, 1)]
    named += [(f"preference {number}", text) for number, text in enumerate(settings.preferences, 1)]
    return tuple(
        _fragment(name, text, count, value=-float(place))
        for place, (name, text) in enumerate(named, 1)
    )


def memory_fragments(settings: ContextSettings, count: Count) -> tuple[Fragment, ...]:
    """Writes the memories of the settings as lines, worth less than any preference."""
    return tuple(
        _fragment(
            f"memory {number}", text, count, heading=MEMORIES_HEADING, value=-1_000.0 - number
        )
        for number, text in enumerate(settings.memories, 1)
    )


def fact_fragments(
    given: Iterable[Fact],
    count: Count,
    budget_tokens: int,
    *,
    titled: bool,
    most: int | None = None,
) -> tuple[tuple[Fragment, ...], tuple[Fact, ...]]:
    """Writes the facts that fit a budget as lines under the headings of seed 001.

    Returns these facts as well.

    Facts that the user keeps by hand come first. With `titled`, the section's title stands in the
    prompt already. Where the window is tight, only pinned facts, work and preferences more certain
    than 0.8 stay.
    """
    left = budget_tokens
    headings = dict[str, str]()
    chosen = list[Fact]()
    for fact in (
        sorted(ranked(given), key=lambda fact: not fact.is_kept_by_hand)
        if budget_tokens > 0
        else ()
    ):
        above = "" if fact.category in headings else _heading(fact, titled=titled or bool(headings))
        cost = (count(above) if above else 0) + count(_line(fact.shown))
        if cost <= left and (most is None or len(chosen) < most):
            left -= cost
            headings.setdefault(fact.category, above)
            chosen.append(fact)
    in_order = [fact for category in HEADINGS for fact in chosen if fact.category == category]
    fragments = []
    for place, fact in enumerate(in_order):
        is_sure = fact.category == "preference" and fact.confidence > KEPT_PREFERENCES_ABOVE
        part = _fragment(
            fact.id,
            fact.shown,
            count,
            reason=Reason.PINNED if fact.pinned else Reason.REMEMBERED,
            heading=_heading(fact, titled=titled or fact.category != in_order[0].category),
            value=-2_000.0 - place,
            expendable=not (fact.pinned or fact.category == "project" or is_sure),
        )
        fragments.append(part)
    return tuple(fragments), tuple(chosen)


def bundles_used(
    given: Sequence[Fact],
    shown: Iterable[Fragment],
    persona_id: str | None,
    bundles: Mapping[str, ContextBundle],
) -> dict[str, bool]:
    """Returns the compiled texts of these facts and of a persona, and whether each stands in a prompt as it is."""
    used: dict[str, bool] = {}
    for kind, category in OF_FACTS.items():
        if said := {one_line(fact.shown) for fact in given if fact.category == category}:
            used[kind] = kind in bundles and said <= {*bundles[kind].compiled_prompt.splitlines()}
    if persona := bundles.get(key := f"persona/{persona_id}"):
        lines = {one_line(part.text.removeprefix("- ")) for part in shown}
        used[key] = lines.issuperset(persona.compiled_prompt.splitlines())
    return used


def _heading(fact: Fact, *, titled: bool) -> str:
    return f"{'' if titled else MEMORIES_HEADING}{HEADINGS[fact.category]}\n"


def facts_tokens(given: Iterable[Fact], count: Count) -> int:
    """Returns the cost of facts with their headings.

    Counting ends above the most that they may cost in any case.
    """
    known = tuple(given)
    above = {f"{HEADINGS[fact.category]}\n" for fact in known}
    total = sum(map(count, (MEMORIES_HEADING, *above))) if known else 0
    for fact in known:
        total += count(_line(fact.shown))
        if total > MEMORY_MAX:
            break
    return total


def left_out(fact: Fact, count: Count, *, since: bool, limited: bool = False) -> Fragment:
    """Returns a fact that is not shown, for the report.

    Learned since, near a usage limit, or without room.
    """
    reason = Reason.NEXT_SNAPSHOT if since else Reason.USAGE_LIMIT if limited else Reason.NO_ROOM
    return _fragment(fact.id, fact.shown, count, reason=reason, status=Status.OMITTED)


def _fragment(
    name: str,
    text: str,
    count: Count,
    reason: Reason = Reason.CONFIGURED,
    **rest: Any,  # noqa: ANN401
) -> Fragment:
    line = _line(text)
    return Fragment(
        layer=Layer.PREFERENCES, id=name, text=line, tokens=count(line), reason=reason, **rest
    )


_line = messages.remembering(4_096)(lambda text: f"- {fences.as_item(text.strip())}\n")


def packed(fragments: Sequence[Fragment], count: Count, budget_tokens: int) -> tuple[Fragment, ...]:
    """Returns as many fragments as fit a budget with their common heading.

    One that is too large is skipped.
    """
    if not fragments:
        return ()
    room = budget_tokens - count(fragments[0].heading)
    return tuple(
        fragments[number]
        for number in pack(dict(enumerate(part.tokens for part in fragments)), room)
    )


def as_candidates(
    memories: Iterable[Fragment], known: Iterable[Fact], *, conversation_id: str | None = None
) -> tuple[Candidate, ...]:
    """Returns the facts about the user that the prompt does not show, as texts that retrieval may quote.

    Of the open conversation, no fact is quoted, as its message can be.
    """
    found = [
        Candidate(
            id=part.id,
            source="memories",
            text=part.text.removeprefix("- ").strip(),
            place=place,
            kind="fact",
        )
        for place, part in enumerate(part for part in memories if part.id.startswith("memory"))
    ]
    for fact in known:
        if all(one.conversation_id != conversation_id for one in fact.sources):
            learned: Kind = "project" if fact.category == "project" else "fact"
            given: Kind = fact.memory_type or ("explicit" if fact.made_by == BY_USER else learned)
            kind: Kind = "core" if fact.pinned else given
            date = fact.last_seen.date().isoformat()
            sure = 1.0 if fact.pinned else fact.confidence
            about: dict[str, Any] = {
                "text": fact.shown,
                "place": len(found),
                "date": date,
                "certainty": sure,
            }
            found.append(Candidate(id=fact.id, source="memories", kind=kind, **about))
    return tuple(found)
