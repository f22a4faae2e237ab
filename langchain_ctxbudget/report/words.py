"""A report in words: the fate of one message or item, and what changed since another report."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import pairwise
from typing import TYPE_CHECKING

from langchain_ctxbudget.budget import Layer, Reason, Status
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.report.html import render_lines
from langchain_ctxbudget.report.view import JOINED, STATES, label_of, plural, shown

if TYPE_CHECKING:
    from langchain_ctxbudget.report.report import ContextReport, CoverageRange, CoverageState, LayerReport, ReportItem

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
NAMED_RANGES = 4
"""Ranges of messages that a line names; what is beyond them is counted."""
_SUMMARY = ("summary line", "summary lines")
_KINDS = {
    "L1": ("line", "lines"),
    "L2": ("topic", "topics"),
    "L3": ("entity", "entities"),
    "L4": _SUMMARY,
    "L7": ("message", "messages"),
    "messages": ("past message", "past messages"),
    "conversations": ("message of another conversation", "messages of other conversations"),
    "memories": ("fact", "facts"),
    "documents": ("document", "documents"),
}
"""One item and several of them, by layer or, for retrieved ones, by source."""
_SETTINGS = {
    "budget_tokens": "Budget",
    "window_tokens": "Window",
    "output_reserve_tokens": "Reserve",
    "allocation_strategy": "Strategy",
    "history_strategy": "History",
    "settings_from": "Settings",
    "tokenizer": "Tokenizer",
    "count_mode": "Counted",
    "last_resort": "Squeezed",
    "forecast": "Forecast",
}


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PartChange:
    """The change of a layer, or of overhead that no layer owns; in tokens.

    Example:
        >>> PartChange(name="L5", before=100, after=160, came={"documents": 2}).words
        '2 documents came'
    """

    name: str
    """The short name of a layer, the name of one of the application's own, or that of an overhead."""
    before: int
    after: int
    came: Mapping[str, int] = field(default_factory=dict)
    """Items that are new in the prompt, by kind."""
    went: Mapping[str, int] = field(default_factory=dict)
    """Items that are gone, by kind."""
    changed: Mapping[str, int] = field(default_factory=dict)
    """Items with another text, size or form, by kind."""

    @property
    def change(self) -> int:
        """Tokens more, or less."""
        return self.after - self.before

    @property
    def words(self) -> str:
        """The items that came, went and changed."""
        kinds = (("came", self.came), ("went", self.went), ("changed", self.changed))
        return ", ".join(f"{count:,} {what} {verb}" for verb, counts in kinds for what, count in counts.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageChange:
    """Messages in a row that changed their state in the same way; positions count from 1, both ends included.

    Example:
        >>> MessageChange(first=41, last=60, before="verbatim", after="summarized").words
        'verbatim -> behind the summary'
    """

    first: int
    last: int
    before: CoverageState | None
    """None: there was no such message."""
    after: CoverageState | None
    """None: there is no such message any more."""

    @property
    def words(self) -> str:
        """The states before and after."""
        after = STATES[self.after][0] if self.after else "gone"
        return f"{STATES[self.before][0]} -> {after}" if self.before else f"new, {after}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportDiff:
    """The change from one report of a conversation to another; `ContextReport.diff` makes it.

    `sum(part.change for part in (*layers, *overhead)) == total_change`.

    Example:
        >>> from langchain_ctxbudget import ContextPipeline
        >>> pipeline = ContextPipeline({"preferences": ["Be brief."]})
        >>> reports = [
        ...     pipeline.assemble("Hello", user_id="ada", conversation_id="c1", settings=changes).report
        ...     for changes in ({}, {"preferences": []})
        ... ]
        >>> print(reports[1].diff(reports[0]))
        Total -16: 8 of 12,000 tokens
        L1 -4: 1 line went
        Framing -12
    """

    total_before: int
    total_after: int
    budget_tokens: int
    """Of the later report."""
    layers: tuple[PartChange, ...]
    """All layers of both reports."""
    overhead: tuple[PartChange, ...]
    messages: tuple[MessageChange, ...]
    """In order of their positions."""
    compaction_step: bool
    """True where the later prompt's stable zone was rewritten."""
    settings: tuple[tuple[str, str, str], ...]
    """Name, value before, value after."""
    notes: tuple[str, ...]
    """Failures and repairs that came or went."""

    @property
    def total_change(self) -> int:
        """Tokens more, or less."""
        return self.total_after - self.total_before

    @property
    def lines(self) -> tuple[str, ...]:
        """The difference in words: total, layers, overhead, settings, failures and repairs."""
        layers = ((part, self._layer_words(part)) for part in self.layers)
        found = [
            *(f"{part.name} {part.change:+,}{said and f': {said}'}" for part, said in layers if said or part.change),
            *(f"{part.name.capitalize()} {part.change:+,}" for part in self.overhead if part.change),
            *(f"{name} {before} -> {after}" for name, before, after in self.settings),
            *self.notes,
        ]
        if not found and not self.total_change:
            return ("Nothing changed.",)
        total = f"Total {self.total_change:+,}: {self.total_after:,} of {self.budget_tokens:,} tokens"
        return (total, *map(shown, found))

    def _layer_words(self, part: PartChange) -> str:
        words = [part.words]
        if part.name == Layer.HISTORY:
            words.append(_message_words(self.messages))
            if self.compaction_step and (part.change or any(words)):
                words.insert(0, "compaction step")
        return "; ".join(filter(None, words))

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def _repr_html_(self) -> str:
        """The lines, for notebooks."""
        return render_lines("What changed", self.lines)


def difference(report: ContextReport, before: ContextReport) -> ReportDiff:
    """Compares a report with an earlier one of its conversation; see `ContextReport.diff`."""
    for name in ("user", "conversation"):
        mine, other = getattr(report, f"{name}_id"), getattr(before, f"{name}_id")
        if mine != other:
            raise InputError(f"Only reports of one {name} can be compared; these are of {mine!r} and of {other!r}")
    ours, theirs = ({str(part.layer): part for part in one.layers} for one in (report, before))
    old, new = before.overhead_tokens, report.overhead_tokens
    return ReportDiff(
        total_before=before.total_tokens,
        total_after=report.total_tokens,
        budget_tokens=report.budget_tokens,
        layers=tuple(_part_change(name, theirs.get(name), ours.get(name)) for name in {**ours, **theirs}),
        overhead=tuple(
            PartChange(name=name, before=old.get(name, 0), after=new.get(name, 0)) for name in {**new, **old}
        ),
        messages=tuple(_message_changes(before.coverage, report.coverage)),
        compaction_step=report.stability.compaction_step,
        settings=tuple(_settings(before, report)),
        notes=tuple(_notes(before, report)),
    )


def _part_change(name: str, before: LayerReport | None, after: LayerReport | None) -> PartChange:
    old, new = _in_prompt(before), _in_prompt(after)
    came, went, changed = (Counter[tuple[str, str]]() for _ in range(3))
    for key in {**new, **old}:
        mine, theirs = new.get(key, []), old.get(key, [])
        for one, other in zip(mine, theirs, strict=False):
            alike = (one.tokens, one.status, one.preview) == (other.tokens, other.status, other.preview)
            changed[_kind(name, one)] += not alike
        came.update(_kind(name, one) for one in mine[len(theirs) :])
        went.update(_kind(name, one) for one in theirs[len(mine) :])

    def in_words(counts: Counter[tuple[str, str]]) -> dict[str, int]:
        return {kind[count > 1]: count for kind, count in counts.items() if count}

    return PartChange(
        name=name,
        before=before.used_tokens if before else 0,
        after=after.used_tokens if after else 0,
        came=in_words(came),
        went=in_words(went),
        changed=in_words(changed),
    )


def _in_prompt(part: LayerReport | None) -> dict[str, list[ReportItem]]:
    """Returns the items that a layer sends, by id. Messages of the history are told by their ranges."""
    found: defaultdict[str, list[ReportItem]] = defaultdict(list)
    for item in part.items if part else ():
        told = part is not None and part.layer == Layer.HISTORY and item.reason is not Reason.SUMMARY
        if item.status is not Status.OMITTED and not told:
            found[item.id].append(item)
    return found


def _kind(layer: str, item: ReportItem) -> tuple[str, str]:
    if item.reason is Reason.SUMMARY:
        return _SUMMARY
    return _KINDS.get(item.source) or _KINDS.get(layer, ("item", "items"))


def _message_changes(before: Sequence[CoverageRange], after: Sequence[CoverageRange]) -> Iterator[MessageChange]:
    """Yields ranges of messages whose state changed; the work is bounded by the ranges, not by the messages."""
    points = sorted({point for part in (*before, *after) for point in (part.first, part.last + 1)})
    last: MessageChange | None = None
    for first, end in pairwise(points):
        states = _state_at(before, first), _state_at(after, first)
        if last and (states != (last.before, last.after)):
            yield last
            last = None
        if states[0] != states[1]:
            start = last.first if last else first
            last = MessageChange(first=start, last=end - 1, before=states[0], after=states[1])
    if last:
        yield last


def _state_at(ranges: Sequence[CoverageRange], position: int) -> CoverageState | None:
    place = bisect_right(ranges, position, key=lambda part: part.first) - 1
    return ranges[place].state if place >= 0 and position <= ranges[place].last else None


def _message_words(changes: Sequence[MessageChange]) -> str:
    """Names the messages that changed their state; those only found or not found for this message are told by L5."""
    by_words: defaultdict[str, list[MessageChange]] = defaultdict(list)
    for change in changes:
        states = {change.before, change.after}
        if "retrieved" not in states or states & {None, "verbatim"}:
            by_words[change.words].append(change)
    said = []
    for words, several in by_words.items():
        named = [str(c.first) if c.first == c.last else f"{c.first}-{c.last}" for c in several[:NAMED_RANGES]]
        more = sum(change.last - change.first + 1 for change in several[NAMED_RANGES:])
        noun = "message" if len(several) == 1 and several[0].first == several[0].last else "messages"
        said.append(f"{noun} {', '.join(named)}{f' and {more:,} more' if more else ''}: {words}")
    return "; ".join(said)


def _settings(before: ContextReport, after: ContextReport) -> Iterator[tuple[str, str, str]]:
    def value(of: object, name: str) -> str:
        found = getattr(of, name, None)
        if isinstance(found, bool):
            return "yes" if found else "no"
        if isinstance(found, int):
            return f"{found:,}"
        return (" < ".join(map(str, found)) if isinstance(found, tuple) else str(found or "")) or "none"

    places: list[tuple[object, object, str, str]] = [(before, after, *one) for one in _SETTINGS.items()]
    places += [(before.usage, after.usage, *one) for one in (("tier", "Tier"), ("forced", "Forced"))]
    for old, new, name, title in places:
        if value(old, name) != value(new, name):
            yield title, value(old, name), value(new, name)


def _notes(before: ContextReport, after: ContextReport) -> Iterator[str]:
    def notes(one: ContextReport) -> Counter[str]:
        failed = [f"failed: {failure}" for failure in one.failures]
        return Counter([*failed, *(f"repaired: {r.kind} {r.message_id}: {r.detail}" for r in one.repairs)])

    old, new = notes(before), notes(after)
    yield from (f"Newly {note}" for note in (new - old).elements())
    yield from (f"No longer {note}" for note in (old - new).elements())
