"""Layer L1: how the user wants to be answered, and what is known about them, a snapshot per conversation.

The stable zone of a prompt begins with it, so a conversation shows the same facts until it is compacted, until
the user changes something by hand, or until one of them ends. Retrieval may quote what was learned since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate
from typing import Any

from langgraph.store.base import BaseStore

from langchain_ctxbudget.budget import MEMORIES_HEADING, MEMORY_MAX, Fragment, Layer, Reason, Status
from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.knowledge.facts import HEADINGS, is_kept_by_hand, ranked, shown, stays_where_it_is_tight
from langchain_ctxbudget.knowledge.known import Knowledge, read
from langchain_ctxbudget.knowledge.records import BY_USER, Fact
from langchain_ctxbudget.messages import fences
from langchain_ctxbudget.search import Candidate, Kind, pack
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores import SnapshotRecord

SMALLEST_MEMORY_TOKENS = 4
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


def facts_of(knowledge: Knowledge, snapshot: SnapshotRecord | None) -> FactsLayer:
    """Returns the facts that a conversation may show, given its snapshot so far, if any."""
    if not knowledge.is_read:
        return FactsLayer(due=False, is_read=False)
    edited, facts = knowledge.mark.edited, knowledge.facts
    said = dict(snapshot.facts) if snapshot else {}
    before = tuple(fact for fact in facts if fact.id in said)
    is_same = len(before) == len(said) and all(_fingerprint(fact) == said[fact.id] for fact in before)
    if snapshot is None or snapshot.edited != edited or not is_same:
        return FactsLayer(shown=facts, edited=edited)
    since = tuple(fact for fact in facts if fact.id not in said)
    return FactsLayer(shown=before, learned_since=since, due=False, edited=edited)


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
        _fragment(f"memory {number}", text, count, heading=MEMORIES_HEADING, value=-1_000.0 - number)
        for number, text in enumerate(settings.memories, 1)
    )


def fact_fragments(
    given: Iterable[Fact], count: Count, budget_tokens: int, *, titled: bool, most: int | None = None
) -> tuple[tuple[Fragment, ...], tuple[Fact, ...]]:
    """Writes the facts that fit a budget as lines under the headings of seed 001; returns these facts as well.

    Facts that the user keeps by hand come first. With `titled`, the section's title stands in the prompt already.
    """
    left, headings, chosen = budget_tokens, dict[str, str](), list[Fact]()
    for fact in sorted(ranked(given), key=lambda fact: not is_kept_by_hand(fact)) if budget_tokens > 0 else ():
        above = "" if fact.category in headings else _heading(fact, titled=titled or bool(headings))
        cost = (count(above) if above else 0) + count(_line(shown(fact)))
        if cost <= left and (most is None or len(chosen) < most):
            left -= cost
            headings.setdefault(fact.category, above)
            chosen.append(fact)
    in_order = [fact for category in HEADINGS for fact in chosen if fact.category == category]
    fragments = [
        _fragment(
            fact.id,
            shown(fact),
            count,
            reason=Reason.PINNED if fact.pinned else Reason.REMEMBERED,
            heading=_heading(fact, titled=titled or fact.category != in_order[0].category),
            value=-2_000.0 - place,
            expendable=not stays_where_it_is_tight(fact),
        )
        for place, fact in enumerate(in_order)
    ]
    return tuple(fragments), tuple(chosen)


def _heading(fact: Fact, *, titled: bool) -> str:
    return f"{'' if titled else MEMORIES_HEADING}{HEADINGS[fact.category]}\n"


def facts_tokens(given: Iterable[Fact], count: Count) -> int:
    """Returns the cost of facts with their headings; counting ends above the most that they may cost in any case."""
    known = tuple(given)
    above = {f"{HEADINGS[fact.category]}\n" for fact in known}
    total = sum(map(count, (MEMORIES_HEADING, *above))) if known else 0
    for fact in known:
        total += count(_line(shown(fact)))
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


def fitting(fragments: Sequence[Fragment], budget_tokens: int) -> tuple[Fragment, ...]:
    """Returns the first fragments that fit a budget together."""
    used = accumulate(fragment.tokens for fragment in fragments)
    return tuple(fragment for fragment, tokens in zip(fragments, used, strict=True) if tokens <= budget_tokens)


def packed(fragments: Sequence[Fragment], count: Count, budget_tokens: int) -> tuple[Fragment, ...]:
    """Returns as many fragments as fit a budget with their common heading; one that is too large is skipped."""
    if not fragments:
        return ()
    room = budget_tokens - count(fragments[0].heading)
    taken = pack(range(len(fragments)), lambda number: fragments[number].tokens, room, SMALLEST_MEMORY_TOKENS)
    return tuple(fragments[number] for number in sorted(taken))


# For retrieval


def as_candidates(
    memories: Iterable[Fragment], known: Iterable[Fact], *, conversation_id: str | None = None
) -> tuple[Candidate, ...]:
    """Returns what is known about the user and not shown as texts that retrieval may quote.

    Of the open conversation, no fact is quoted, as its message can be.
    """
    found = [
        Candidate(id=part.id, source="memories", text=part.text.removeprefix("- ").strip(), place=place, kind="fact")
        for place, part in enumerate(part for part in memories if part.id.startswith("memory"))
    ]
    for fact in known:
        if all(one.conversation_id != conversation_id for one in fact.sources):
            kind: Kind = "core" if fact.pinned else "explicit" if fact.made_by == BY_USER else "fact"
            kind = "project" if kind == "fact" and fact.category == "project" else kind
            date, place = fact.last_seen.date().isoformat(), len(found)
            found.append(Candidate(id=fact.id, source="memories", text=shown(fact), place=place, kind=kind, date=date))
    return tuple(found)


def all_candidates(
    store: BaseStore, user_id: str, settings: ContextSettings, count: Count
) -> Flow[tuple[Candidate, ...]]:
    """Reads everything that is known about a user, in no conversation in particular."""
    known = yield from read(store, user_id)
    facts = (known if settings.learn else known.by_hand).facts
    return as_candidates(memory_fragments(settings, count), facts)
