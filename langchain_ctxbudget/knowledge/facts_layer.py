"""Layer L1: how the user wants to be answered, and what is known about them, a snapshot per conversation.

The stable zone of a prompt begins with it, so a conversation shows the same facts until it is compacted, until
the user changes something by hand, or until one of them is no longer true. Retrieval may quote what was learned since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Any

from langgraph.store.base import BaseStore

from langchain_ctxbudget.budget import MEMORIES_HEADING, MEMORY_MAX, Fragment, Layer, Reason, Status
from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.knowledge.facts import (
    grouped,
    holding,
    is_kept_by_hand,
    ranked,
    shown,
    stays_where_it_is_tight,
)
from langchain_ctxbudget.knowledge.known import Knowledge, read
from langchain_ctxbudget.knowledge.records import BY_USER, Fact
from langchain_ctxbudget.messages import fences
from langchain_ctxbudget.search import Candidate, Kind, pack
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores import SnapshotRecord

SMALLEST_MEMORY_TOKENS = 4
_MEMORY = "memory"
Count = Callable[[str], int]


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

    def renewed(self) -> FactsLayer:
        """Returns the same with a new snapshot due."""
        return FactsLayer(shown=self.all, edited=self.edited) if self.is_read else self


def facts_of(knowledge: Knowledge, snapshot: SnapshotRecord | None, now: datetime) -> FactsLayer:
    """Returns the facts that a conversation may show, given its snapshot so far, if any."""
    if not knowledge.is_read:
        return FactsLayer(due=False, is_read=False)
    edited = knowledge.mark.edited
    current = {fact.id: fact for fact in holding(knowledge.facts, now)}
    known = dict(snapshot.facts) if snapshot else {}
    everything = tuple(current.values())
    if snapshot is None or snapshot.edited != edited:
        return FactsLayer(shown=everything, edited=edited)
    if any(key not in current or _fingerprint(current[key]) != said for key, said in known.items()):
        return FactsLayer(shown=everything, edited=edited)
    return FactsLayer(
        shown=tuple(fact for fact in everything if fact.id in known),
        learned_since=tuple(fact for fact in everything if fact.id not in known),
        due=False,
        edited=edited,
    )


def snapshot_of(facts: Iterable[Fact], edited: str) -> SnapshotRecord:
    """Returns the record of what a conversation shows, without the texts, which belong to the facts alone."""
    return SnapshotRecord(facts=tuple((fact.id, _fingerprint(fact)) for fact in facts), edited=edited)


def _fingerprint(fact: Fact) -> str:
    said = f"{fact.category}\n{fact.pinned}\n{shown(fact)}"
    return blake2b(said.encode(errors="surrogatepass"), digest_size=8).hexdigest()


# As text


def preference_fragments(settings: ContextSettings, count: Count) -> tuple[Fragment, ...]:
    """Writes personality, response style and custom instructions as lines; the first stay longest."""
    named = [
        *((f"manner {number}", text) for number, text in enumerate(settings.manner, 1)),
        *((f"preference {number}", text) for number, text in enumerate(settings.preferences, 1)),
    ]
    return tuple(_fragment(name, text, count, value=-float(place)) for place, (name, text) in enumerate(named, 1))


def memory_fragments(settings: ContextSettings, count: Count) -> tuple[Fragment, ...]:
    """Writes the memories of the settings as lines, worth less than any preference."""
    return tuple(
        _fragment(f"{_MEMORY} {number}", text, count, heading=MEMORIES_HEADING, value=-1_000.0 - number)
        for number, text in enumerate(settings.memories, 1)
    )


def fact_fragments(
    given: Iterable[Fact], count: Count, budget_tokens: int, *, titled: bool, most: int | None = None
) -> tuple[tuple[Fragment, ...], tuple[Fact, ...]]:
    """Writes the facts that fit a budget as lines under the headings of seed 001; returns these facts as well.

    Facts that the user keeps by hand come first. With `titled`, the section's title stands in the prompt already.
    """
    known = tuple(given)
    if not known or budget_tokens <= 0:
        return (), ()
    title = "" if titled else MEMORIES_HEADING
    by_hand = tuple(filter(is_kept_by_hand, known))
    chosen: tuple[Fact, ...] = ()
    for some, among in ((by_hand, by_hand), ([fact for fact in known if not is_kept_by_hand(fact)], known)):
        headings = (f"{heading}\n" for heading, _ in grouped(among))
        room = budget_tokens - sum(map(count, (title, *headings))) - sum(_cost(fact, count) for fact in chosen)
        order = ranked(some)
        chosen += tuple(order[n] for n in pack(range(len(order)), lambda n: _cost(order[n], count), room, 1))  # noqa: B023
    chosen = chosen[:most]
    fragments: list[Fragment] = []
    for heading, group in grouped(chosen):
        above = f"{heading}\n" if fragments else f"{title}{heading}\n"
        fragments += [
            _fragment(
                fact.id,
                shown(fact),
                count,
                reason=Reason.PINNED if fact.pinned else Reason.REMEMBERED,
                heading=above,
                value=-2_000.0 - place,
                expendable=not stays_where_it_is_tight(fact),
            )
            for place, fact in enumerate(group, len(fragments))
        ]
    return tuple(fragments), chosen


def facts_tokens(given: Iterable[Fact], count: Count) -> int:
    """Returns the cost of facts with their headings; counting ends above the most that they may cost in any case."""
    known = tuple(given)
    if not known:
        return 0
    total = sum(count(f"{heading}\n") for heading, _ in grouped(known)) + count(MEMORIES_HEADING)
    for fact in known:
        total += _cost(fact, count)
        if total > MEMORY_MAX:
            break
    return total


def left_out(fact: Fact, count: Count, *, since: bool, limited: bool = False) -> Fragment:
    """Returns a fact that is not shown, for the report: learned since, near a usage limit, or without room."""
    reason = Reason.NEXT_SNAPSHOT if since else Reason.USAGE_LIMIT if limited else Reason.NO_ROOM
    return _fragment(fact.id, shown(fact), count, reason=reason, status=Status.OMITTED)


def _fragment(name: str, text: str, count: Count, reason: Reason = Reason.CONFIGURED, **rest: Any) -> Fragment:  # noqa: ANN401
    line = _line(text)
    return Fragment(layer=Layer.PREFERENCES, id=name, text=line, tokens=count(line), reason=reason, **rest)


def _line(text: str) -> str:
    return f"- {fences.as_item(text.strip())}\n"


def _cost(fact: Fact, count: Count) -> int:
    return count(_line(shown(fact)))


def fitting(fragments: Sequence[Fragment], budget_tokens: int) -> tuple[Fragment, ...]:
    """Returns the first fragments that fit a budget together."""
    used = 0
    for place, fragment in enumerate(fragments):
        used += fragment.tokens
        if used > budget_tokens:
            return tuple(fragments[:place])
    return tuple(fragments)


def packed(fragments: Sequence[Fragment], count: Count, budget_tokens: int) -> tuple[Fragment, ...]:
    """Returns as many fragments as fit a budget with their common heading; one that is too large is skipped."""
    if not fragments:
        return ()
    room = budget_tokens - count(fragments[0].heading)
    taken = pack(range(len(fragments)), lambda number: fragments[number].tokens, room, SMALLEST_MEMORY_TOKENS)
    return tuple(fragments[number] for number in sorted(taken))


# For retrieval


def as_candidates(
    memories: Iterable[Fragment], known: Sequence[Fact], *, conversation_id: str | None = None
) -> tuple[Candidate, ...]:
    """Returns what is known about the user and not shown as texts that retrieval may quote.

    Of the open conversation, no fact is quoted, as its message can be.
    """
    given = [
        Candidate(id=part.id, source="memories", text=part.text.removeprefix("- ").strip(), place=place, kind="fact")
        for place, part in enumerate(part for part in memories if part.id.startswith(_MEMORY))
    ]
    others = [fact for fact in known if all(one.conversation_id != conversation_id for one in fact.sources)]
    learned = [
        Candidate(
            id=fact.id,
            source="memories",
            text=shown(fact),
            place=place,
            kind=_kind(fact),
            date=fact.last_seen.date().isoformat(),
        )
        for place, fact in enumerate(others, len(given))
    ]
    return (*given, *learned)


def all_candidates(
    store: BaseStore, user_id: str, settings: ContextSettings, now: datetime, count: Count
) -> Flow[tuple[Candidate, ...]]:
    """Reads everything that is known about a user, in no conversation in particular."""
    known = yield from read(store, user_id)
    facts = (known if settings.learn else known.by_hand).facts
    return as_candidates(memory_fragments(settings, count), holding(facts, now))


def _kind(fact: Fact) -> Kind:
    if fact.pinned:
        return "core"
    if fact.made_by == BY_USER:
        return "explicit"
    return "project" if fact.category == "project" else "fact"
