"""The first layer: how the user wants to be answered, and what is known about them, a snapshot per conversation.

The stable zone of a prompt begins with it, so what a conversation shows of the facts stays as it is: until the
conversation is compacted, until the user changes something by hand, and until something that it shows is no longer
true. What was learned in between may be quoted by retrieval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b

from langgraph.store.base import BaseStore

from langchain_ctxbudget.core import fences
from langchain_ctxbudget.core.allocation.wants import MEMORY_MAX
from langchain_ctxbudget.core.assembly import Fragment
from langchain_ctxbudget.core.candidates import Candidate, Kind
from langchain_ctxbudget.core.last_resort import MEMORIES_HEADING
from langchain_ctxbudget.core.layers import Layer, Reason, Status
from langchain_ctxbudget.core.packing import pack
from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.knowledge import facts
from langchain_ctxbudget.knowledge.bundle_lines import holding
from langchain_ctxbudget.knowledge.known import Knowledge, read, shown
from langchain_ctxbudget.knowledge.records import BY_USER, Fact, SnapshotRecord
from langchain_ctxbudget.settings import ContextSettings

SMALLEST_MEMORY_TOKENS = 4
_MEMORY = "memory"
Count = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class Remembered:
    """The facts that a conversation may show."""

    shown: tuple[Fact, ...] = ()
    """Of the snapshot; where a new one is due, all."""
    learned_since: tuple[Fact, ...] = ()
    """Those that the snapshot does not have."""
    due: bool = True
    """Whether what is shown now becomes the snapshot."""
    edited: str = ""
    """The user's last change by hand."""
    is_read: bool = True
    """False: what is known could not be read, so that nothing becomes the snapshot."""

    @property
    def either(self) -> tuple[tuple[Fact, ...], tuple[Fact, ...]]:
        """What is shown, and what a new snapshot could show: room is kept for both, so that either fits."""
        return self.shown, self.all

    @property
    def all(self) -> tuple[Fact, ...]:
        """Every fact that may be known in this conversation."""
        return (*self.shown, *self.learned_since)

    def renewed(self) -> Remembered:
        """The same, with a new snapshot due."""
        if not self.is_read:
            return self
        return Remembered(shown=self.all, edited=self.edited)


def remembered(knowledge: Knowledge, snapshot: SnapshotRecord | None, now: datetime) -> Remembered:
    """What a conversation may show of what is known.

    Args:
        knowledge: what is known now.
        snapshot: what the conversation has shown so far; None: nothing yet.
        now: facts that do not hold now are left out.
    """
    if not knowledge.is_read:
        return Remembered(due=False, is_read=False)
    edited = knowledge.mark.edited
    current = {fact.id: fact for fact in holding(knowledge.facts, now)}
    if snapshot is None or snapshot.edited != edited:
        return Remembered(shown=tuple(current.values()), edited=edited)
    if any(key not in current or fingerprint(current[key]) != said for key, said in snapshot.facts):
        return Remembered(shown=tuple(current.values()), edited=edited)
    known = dict(snapshot.facts)
    return Remembered(
        shown=tuple(fact for fact in current.values() if fact.id in known),
        learned_since=tuple(fact for fact in current.values() if fact.id not in known),
        due=False,
        edited=edited,
    )


def snapshot_of(shown: Iterable[Fact], edited: str) -> SnapshotRecord:
    """What a conversation shows, as it is kept: without the texts, which belong to the facts alone."""
    return SnapshotRecord(facts=tuple((fact.id, fingerprint(fact)) for fact in shown), edited=edited)


def fingerprint(fact: Fact) -> str:
    """Another one for every text and place in the prompt."""
    said = f"{fact.category}\n{fact.pinned}\n{facts.shown(fact)}"
    return blake2b(said.encode(errors="surrogatepass"), digest_size=8).hexdigest()


# As text


def preference_fragments(settings: ContextSettings, count: Count) -> tuple[Fragment, ...]:
    """Personality, response style and custom instructions as lines, in the order in which they stay longest."""
    named = [
        *((f"manner {number}", text) for number, text in enumerate(settings.manner, 1)),
        *((f"preference {number}", text) for number, text in enumerate(settings.preferences, 1)),
    ]
    return tuple(_fragment(name, text, "", -float(place), count) for place, (name, text) in enumerate(named, 1))


def memory_fragments(settings: ContextSettings, count: Count) -> tuple[Fragment, ...]:
    """What the settings say about the user, as lines; worth less than any preference."""
    return tuple(
        _fragment(f"{_MEMORY} {number}", text, MEMORIES_HEADING, -1_000.0 - number, count)
        for number, text in enumerate(settings.memories, 1)
    )


def fact_fragments(
    given: Iterable[Fact], count: Count, budget_tokens: int, *, titled: bool, most: int | None = None
) -> tuple[tuple[Fragment, ...], tuple[Fact, ...]]:
    """The facts that fit a budget as lines under the headings of seed 001, and the facts themselves.

    Args:
        given: to choose from.
        count: tokens of a text.
        budget_tokens: what they may cost, headings included.
        titled: whether the section's title stands there already.
        most: how many at most; None: as many as fit.
    """
    known = tuple(given)
    if not known or budget_tokens <= 0:
        return (), ()
    title = "" if titled else MEMORIES_HEADING
    headings = [f"{heading}\n" for heading, _ in facts.grouped(known)]
    room = budget_tokens - sum(map(count, (title, *headings)))
    chosen = facts.select(known, lambda fact: count(_line(facts.shown(fact))), room)[:most]
    expendable = {fact.id for fact in chosen} - {fact.id for fact in facts.reduced(chosen)}
    fragments: list[Fragment] = []
    for heading, group in facts.grouped(chosen):
        above = f"{heading}\n" if fragments else f"{title}{heading}\n"
        for fact in group:
            reason = Reason.PINNED if fact.pinned else Reason.REMEMBERED
            value = -2_000.0 - len(fragments)
            fragments.append(
                _fragment(
                    fact.id, facts.shown(fact), above, value, count, reason=reason, is_expendable=fact.id in expendable
                )
            )
    return tuple(fragments), chosen


def facts_tokens(given: Iterable[Fact], count: Count) -> int:
    """What facts would cost with their headings; no more than they may cost in any case is counted."""
    known = tuple(given)
    if not known:
        return 0
    total = sum(count(f"{heading}\n") for heading, _ in facts.grouped(known)) + count(MEMORIES_HEADING)
    for fact in known:
        total += count(_line(facts.shown(fact)))
        if total > MEMORY_MAX:
            break
    return total


def _fragment(
    name: str,
    text: str,
    heading: str,
    value: float,
    count: Count,
    *,
    reason: Reason = Reason.CONFIGURED,
    is_expendable: bool = False,
) -> Fragment:
    line = _line(text)
    return Fragment(
        layer=Layer.PREFERENCES,
        id=name,
        text=line,
        tokens=count(line),
        reason=reason,
        heading=heading,
        value=value,
        expendable=is_expendable,
    )


def _line(text: str) -> str:
    return f"- {fences.as_item(text.strip())}\n"


def left_out(fact: Fact, count: Count, *, since: bool, limited: bool = False) -> Fragment:
    """A fact that is not shown, for the report: it was learned since, a usage limit is near, or there is no room."""
    reason = Reason.NEXT_SNAPSHOT if since else Reason.USAGE_LIMIT if limited else Reason.NO_ROOM
    line = _line(facts.shown(fact))
    return Fragment(
        layer=Layer.PREFERENCES, id=fact.id, text=line, tokens=count(line), reason=reason, status=Status.OMITTED
    )


def as_candidates(
    memories: Iterable[Fragment], known: Sequence[Fact], *, conversation_id: str | None = None
) -> tuple[Candidate, ...]:
    """What is known about the user and not shown, as texts that retrieval may quote.

    Args:
        memories: given in the settings.
        known: facts; one that comes from the open conversation is not quoted, as its message can be.
        conversation_id: of the open conversation.
    """
    configured = [part for part in memories if part.id.startswith(_MEMORY)]
    given = [
        Candidate(id=part.id, source="memories", text=part.text.removeprefix("- ").strip(), place=place, kind="fact")
        for place, part in enumerate(configured)
    ]
    elsewhere = [fact for fact in known if all(one.conversation_id != conversation_id for one in fact.sources)]
    learned = [
        Candidate(
            id=fact.id,
            source="memories",
            text=facts.shown(fact),
            place=place,
            kind=_kind(fact),
            date=fact.last_seen.date().isoformat(),
        )
        for place, fact in enumerate(elsewhere, len(given))
    ]
    return (*given, *learned)


def all_candidates(
    store: BaseStore, user_id: str, settings: ContextSettings, now: datetime, count: Count
) -> Flow[tuple[Candidate, ...]]:
    """Everything that is known about a user, in no conversation in particular."""
    knowledge = shown((yield from read(store, user_id)), learned=settings.learn)
    return as_candidates(memory_fragments(settings, count), holding(knowledge.facts, now))


def _kind(fact: Fact) -> Kind:
    if fact.pinned:
        return "core"
    if fact.made_by == BY_USER:
        return "explicit"
    return "project" if fact.category == "project" else "fact"


def fitting(fragments: Sequence[Fragment], budget_tokens: int) -> tuple[Fragment, ...]:
    """The first fragments that fit a budget together."""
    used = 0
    result: list[Fragment] = []
    for fragment in fragments:
        if used + fragment.tokens > budget_tokens:
            break
        used += fragment.tokens
        result.append(fragment)
    return tuple(result)


def packed(fragments: Sequence[Fragment], count: Count, budget_tokens: int) -> tuple[Fragment, ...]:
    """As many fragments as fit a budget with their common heading; one that is too large is skipped."""
    if not fragments:
        return ()
    room = budget_tokens - count(fragments[0].heading)
    costs = [fragment.tokens for fragment in fragments]
    taken = pack(range(len(fragments)), costs.__getitem__, room, SMALLEST_MEMORY_TOKENS)
    return tuple(fragments[number] for number in sorted(taken))
