"""The fate of one message or one item, and its reason, in words."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from langchain_ctxbudget.budget.layers import Status
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.report.html import render_lines
from langchain_ctxbudget.report.view import JOINED, STATES, label_of, plural, shown

if TYPE_CHECKING:
    from langchain_ctxbudget.report.report import ContextReport, CoverageRange, ReportItem

SCORES = {
    "lexical": "its words",
    "dense": "its meaning",
    "neighbours": "the messages around it",
    "session": "its session",
    "relevance": "how relevant it is among all",
    "length": "its length",
    "variety": "how many different words it has",
    "speaker_length": "how long its speaker's messages are",
    "speaker": "who says it",
    "first_person": "speaking of oneself",
    "date": "its date",
    "opening": "opening its session",
    "recency": "its age",
    "priority": "its kind",
    "repetition": "saying what a better one says",
}
"""The subject of every part of the ranking."""
SOURCES = {
    "messages": "a past message of this conversation",
    "conversations": "a message of another conversation",
    "memories": "known about the user",
    "documents": "from a document",
}
STATE_MEANS = {
    "verbatim": "It is sent word for word, in L6.",
    "retrieved": "It was found for the current message and is quoted in L5.",
    "summarized": "Not word for word: a summary of {range}, or a shortened form, stands for it.",
    "omitted": "Nothing in this prompt stands for it. It is still stored.",
}
GET_BACK = (
    'The recall tool quotes it word for word (reference "{position}"); `pipeline.pin` with its id has it verbatim from '
    "the next compaction step on."
)
NEAREST, LONGEST_NAME = 3, 80
LEAST_SCORE = 0.0005
_POSITION = re.compile(r"(?:message |#)?([0-9]{1,9})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place of an item, or the one it would have had.

    Example:
        >>> from langchain_ctxbudget import ContextPipeline
        >>> report = ContextPipeline().assemble("Hello", user_id="ada", conversation_id="c1").report
        >>> [place] = report.explain("human").places
        >>> place.layer, place.item.tokens, place.meaning
        ('L7', 5, 'always sent: system prompt, current message and the newest calls with their results')
    """

    layer: str
    title: str
    number: int
    """Its place among the items of the layer, from 1."""
    of: int
    """The number of items that the report lists there."""
    item: ReportItem

    @property
    def meaning(self) -> str:
        """The reason in words."""
        return self.item.reason.meaning

    @property
    def lines(self) -> tuple[str, ...]:
        """All of it in words; of a retrieved item also what speaks for it and against it, the strongest first."""
        item = self.item
        would = "it would have cost " if item.status is Status.OMITTED else ""
        source = f", {SOURCES.get(item.source, item.source)}" if item.source else ""
        where = f"item {self.number:,} of {self.of:,} in {label_of(self.layer)}{source}"
        parts = sorted(item.scores.items(), key=lambda part: (-abs(part[1]), part[0]))
        worth = [(f"{SCORES.get(name, name)} ({score:+.2f})", score) for name, score in parts]
        sides = {
            "for": [said for said, score in worth if score > LEAST_SCORE],
            "against": [said for said, score in worth if score < -LEAST_SCORE],
        }
        return (
            f"{item.id}: {where}, {item.status}, {would}{plural(item.tokens, 'token')}",
            f"  {item.reason}: {self.meaning}.",
            *(f"  speaks {side} it: {', '.join(said)}" for side, said in sides.items() if said),
            *([f'  "{item.preview}"'] if item.preview else []),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The fate of a message or an item; `ContextReport.explain` makes it.

    Example:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> from langchain_ctxbudget import ContextPipeline
        >>> pipeline, said = ContextPipeline(), [HumanMessage("Hi"), AIMessage("Hello!")]
        >>> ids = pipeline.add_messages(said, user_id="ada", conversation_id="c1")
        >>> report = pipeline.assemble("And now?", user_id="ada", conversation_id="c1").report
        >>> print(report.explain(2))
        message 2 of 2: verbatim, as are messages 1-2
          It is sent word for word, in L6.
    """

    what: str | int
    """The id or the position that was asked for."""
    position: int | None
    """Of the message, from 1, where that is known."""
    messages: int
    """The number of messages in the conversation."""
    coverage: CoverageRange | None
    """The messages around it that are in the same state."""
    places: tuple[Place, ...]
    """The items that have this id."""

    @property
    def lines(self) -> tuple[str, ...]:
        """All of it in words."""
        lines = []
        if self.coverage and self.position:
            first, last, state = self.coverage.first, self.coverage.last, self.coverage.state
            span = f"messages {first}-{last}" if first < last else f"message {first}"
            around = f", as are {span}" if first < last else ""
            lines.append(f"message {self.position:,} of {self.messages:,}: {STATES[state][0]}{around}")
            lines.append(f"  {STATE_MEANS[state].format(range=span)}")
            if state in ("summarized", "omitted"):
                lines.append(f"  {GET_BACK.format(position=self.position)}")
        return tuple(map(shown, [*lines, *(line for place in self.places for line in place.lines)]))

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def _repr_html_(self) -> str:
        """The lines, for notebooks."""
        return render_lines(f"Explained: {self.what}", self.lines)


def explanation(report: ContextReport, what: str | int) -> Explanation:
    """Explains a message or an item of a report; see `ContextReport.explain`."""
    if not isinstance(what, str | int) or isinstance(what, bool):
        raise InputError(f"A message or item is asked for by its id or its position, not by {what!r}")
    messages = report.coverage[-1].last if report.coverage else 0
    places = [
        Place(layer=str(part.layer), title=part.title, number=number, of=len(part.items), item=item)
        for part in report.layers
        for number, item in enumerate(part.items, 1)
    ]

    def places_of(name: str) -> list[Place]:
        """The items with an id; else those of which it is a part, as results stand with their call."""
        exact = [place for place in places if place.item.id == name]
        return exact or [place for place in places if name in place.item.id.split(JOINED)]

    found = places_of(what) if isinstance(what, str) else []
    position = what if isinstance(what, int) else None
    if isinstance(what, str) and (number := _POSITION.fullmatch(what)) and (not found or what.startswith("message ")):
        position = int(number[1])
    coverage = next((part for part in report.coverage if position and part.first <= position <= part.last), None)
    if isinstance(what, int) and coverage:
        found = places_of(f"message {what}")
    if not found and coverage is None:
        raise InputError(_unknown(what, messages, [place.item.id for place in places]))
    return Explanation(
        what=what,
        position=position if coverage else None,
        messages=messages,
        coverage=coverage,
        places=tuple(found),
    )


def _unknown(what: str | int, messages: int, ids: Iterable[str]) -> str:
    positions = f"it has messages 1 to {messages:,}" if messages else "its conversation has no messages yet"
    if isinstance(what, int):
        return f"This report knows no message {what!r}: {positions}"
    known = dict.fromkeys(name for one in ids for name in (one, *one.split(JOINED)))
    what = what if len(what) <= LONGEST_NAME else f"{what[:LONGEST_NAME]}…"
    near = get_close_matches(what, known, n=NEAREST, cutoff=0.5)
    nearest = f"; nearest are {', '.join(map(repr, near))}" if near else ""
    return (
        f"This report knows no {what!r}{nearest}. It lists {len(known):,} ids; {positions}, and those behind a summary "
        "are asked for by position (`pipeline.coverage` has their ids)"
    )
