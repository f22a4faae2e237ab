"""One learned fact: where and when it was said, and what it says of the facts that are known (seed 001)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Self

from langchain_ctxbudget.core.sameness import names_another, says_more, says_the_opposite, says_the_same
from langchain_ctxbudget.core.text import fold, one_line
from langchain_ctxbudget.knowledge.learned import LearnedFact
from langchain_ctxbudget.knowledge.records import BY_USER, MOST_SOURCES, Fact, FactCategory, Source

LEAST_CONFIDENCE, MOST_MERGED_CONFIDENCE = 0.01, 0.99
MOST_NAMED = 3
"""Known facts that one item may name as no longer true; one that names more is not believed in that."""
SOON = timedelta(days=30)
"""How long something holds that is said of a day near the one on which it is said."""

_SOON = re.compile(
    r"\b(?:today|tonight|tomorrow|(?:this|next) (?:week|weekend|month|morning|afternoon|evening|\w+day))\b"
)
_ID_BYTES = 6


def speaks_of_soon(text: str) -> bool:
    """Whether a text speaks of a day near the one on which it is said."""
    return bool(_SOON.search(fold(text)))


def lasting(fact: Fact) -> Fact:
    """A fact that the user keeps by hand: without the end that nobody has said."""
    if fact.valid_until is None or fact.valid_until != _assumed_end(fact.text, fact.last_seen):
        return fact
    return fact.model_copy(update={"valid_until": None})


def _assumed_end(text: str, said: datetime) -> datetime | None:
    return said + SOON if speaks_of_soon(text) else None


def begins_later(fact: Fact, now: datetime) -> bool:
    """Whether a fact is not true yet."""
    return fact.valid_from is not None and fact.valid_from > now


def same_slot(one: str, other: str) -> bool:
    """Whether both name the same slot, in any case."""
    return bool(one) and fold(one) == fold(other)


def _is_kept(fact: Fact) -> bool:
    """Whether the user keeps it by hand."""
    return fact.pinned or fact.made_by == BY_USER


def _key(category: FactCategory, text: str) -> str:
    said = f"{category}\n{fold(one_line(text)).rstrip('.! ')}"
    return "fact/" + blake2b(said.encode(errors="surrogatepass"), digest_size=_ID_BYTES).hexdigest()


@dataclass(frozen=True, slots=True)
class News:
    """A learned fact, where it was said and when."""

    fact: LearnedFact
    key: str
    sources: tuple[Source, ...]
    said: datetime
    made_by: str
    only_ends: bool
    """Whether it says no more than that the value of its slot is no longer true."""

    @classmethod
    def of(
        cls,
        fact: LearnedFact,
        sources: Mapping[str, Source],
        said_at: Mapping[str, datetime],
        now: datetime,
        made_by: str,
    ) -> Self | None:
        """None where there is no text, or where it names messages and none of them is known."""
        text = one_line(fact.text)
        found = [message for message in dict.fromkeys(fact.message_ids) if message in sources]
        if not text or (fact.message_ids and not found):
            return None
        said = max((said_at[message] for message in found if message in said_at), default=now)
        confidence = min(1.0, max(LEAST_CONFIDENCE, fact.confidence))
        return cls(
            fact=replace(
                fact,
                text=text,
                slot=one_line(fact.slot),
                confidence=confidence,
                supersedes=fact.supersedes if len(fact.supersedes) <= MOST_NAMED else (),
            ),
            key=_key(fact.category, text),
            sources=tuple(sources[message] for message in found),
            said=min(now, said),
            made_by=made_by,
            only_ends=bool(fact.slot.strip()) and fact.valid_until is not None and fact.valid_until <= max(now, said),
        )

    @property
    def ended_at(self) -> datetime:
        """When what it supersedes stopped being true."""
        if self.only_ends and self.fact.valid_until:
            return self.fact.valid_until
        return max(self.said, self.fact.valid_from or self.said)

    @property
    def slot(self) -> str:
        """What it gives a value for."""
        return "" if self.only_ends else self.fact.slot

    @property
    def valid_from(self) -> datetime | None:
        """When it began to be true, or will."""
        return self.fact.valid_until if self.only_ends else self.fact.valid_from

    @property
    def valid_until(self) -> datetime | None:
        """When it stops being true."""
        if self.only_ends:
            return None
        return self.fact.valid_until or (None if self.made_by == BY_USER else _assumed_end(self.fact.text, self.said))

    def says(self, other: Fact) -> bool:
        """Whether it is another fact once more."""
        return self._is_of_kind(other) and says_the_same(other.text, self.fact.text)

    def _is_of_kind(self, other: Fact) -> bool:
        """Whether another fact is of its category, or was before that was changed by hand, as its id tells."""
        category = self.fact.category
        return other.category == category or other.id.partition("-")[0] == _key(category, other.text)

    def is_in(self, other: Fact) -> bool:
        """Whether it was learned from the same messages before, whatever became of that."""
        digests = {_place(source): source.digest for source in other.sources}
        if not self.sources or any(digests.get(_place(source)) != source.digest for source in self.sources):
            return False
        return other.id == self.fact.same_as or other.id.partition("-")[0] == self.key or self.says(other)

    def same_among(self, facts: Iterable[Fact]) -> Fact | None:
        """The current fact that it says once more."""
        current = [fact for fact in facts if fact.is_current]
        named = (fact for fact in current if fact.id == self.fact.same_as)
        return next(named, None) or next((fact for fact in current if self.says(fact)), None)

    def ends(self, other: Fact) -> bool:
        """Whether both cannot be true at the same time."""
        if self.names(other):
            return True
        if same_slot(self.fact.slot, other.slot):
            # "No longer works at Acme" does not end "Works at Globex".
            return not (self.only_ends and names_another(self.fact.text, other.text))
        return self.opposes(other)

    def names(self, other: Fact) -> bool:
        """Whether it is told to end another fact; what the user keeps by hand takes more than that."""
        return other.id in self.fact.supersedes and not _is_kept(other)

    def opposes(self, other: Fact) -> bool:
        """Whether it says the opposite."""
        return self._is_of_kind(other) and says_the_opposite(other.text, self.fact.text)

    def lets_stand(self, fact: Fact, rival: Fact, now: datetime) -> bool:
        """Whether it, as this fact, and a rival are true one after the other: one of them only begins later.

        Of something planned, its opposite now is the end; not so where that was known to last until then.
        """
        if begins_later(fact, now):
            return not begins_later(rival, now)
        is_given_up = self.names(rival) or (self.opposes(rival) and fact.superseded_by != rival.id)
        return begins_later(rival, now) and not is_given_up

    def as_fact(self, fact_id: str, now: datetime) -> Fact:
        """A fact of its own."""
        return Fact(
            id=fact_id,
            text=self.fact.text,
            category=self.fact.category,
            confidence=self.fact.confidence,
            slot=self.slot,
            sources=_bounded(self.sources),
            made_by=self.made_by,
            created_at=now,
            last_seen=self.said,
            valid_from=self.valid_from,
            valid_until=self.valid_until,
        )

    def merged_into(self, known: Fact) -> Fact:
        """A known fact that is said once more."""
        if self.made_by == BY_USER:
            known = lasting(known)
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
            until = self.fact.valid_until if _is_kept(known) and not self.only_ends else self.valid_until
            changes["valid_until"] = until or (None if was_over else known.valid_until)
            changes["superseded_by"] = None if was_over else known.superseded_by
        if is_new and self.sources and len(known.sources) < MOST_SOURCES:
            # Of a full list, it is not known which messages have counted.
            merged = 1 - (1 - known.confidence) * (1 - self.fact.confidence)
            changes["confidence"] = max(known.confidence, min(MOST_MERGED_CONFIDENCE, merged))
        is_named = known.id == self.fact.same_as and known.made_by != BY_USER
        if is_named and says_more(self.fact.text, known.text):
            changes |= {"text": self.fact.text, "made_by": self.made_by}
        return known.model_copy(update=changes)


def _place(source: Source) -> tuple[str, str]:
    return source.conversation_id, source.message_id


def _bounded(sources: tuple[Source, ...]) -> tuple[Source, ...]:
    return sources if len(sources) <= MOST_SOURCES else (sources[0], *sources[1 - MOST_SOURCES :])
