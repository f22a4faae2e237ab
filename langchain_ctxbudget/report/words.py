"""A report in words: the fate of one message or item, and what changed since another report."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import groupby, pairwise, zip_longest
from typing import TYPE_CHECKING

from langchain_ctxbudget.budget import Layer, Reason, Status
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.report.view import JOINED, STATES, label_of, plural, render_lines, shown

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


class InWords:
    """Lines of text that are printed as they are, and drawn as a card in notebooks."""

    title: str
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def _repr_html_(self) -> str:
        return render_lines(self.title, self.lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place of an item, or the one it would have had."""

    layer: str
    number: int
    """Its place among the items of the layer, from 1."""
    of: int
    """The number of items that the report lists there."""
    item: ReportItem


@dataclass(frozen=True, kw_only=True)
class Explanation(InWords):
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

    title: str
    lines: tuple[str, ...]
    """All of it in words."""
    position: int | None
    """Of the message, from 1, where that is known."""
    coverage: CoverageRange | None
    """The messages around it that are in the same state."""
    places: tuple[Place, ...]
    """The items that have this id."""


def explanation(report: ContextReport, what: str | int) -> Explanation:
    """Explains a message or an item of a report; see `ContextReport.explain`."""
    if not isinstance(what, str | int) or isinstance(what, bool):
        raise InputError(f"A message or item is asked for by its id or its position, not by {what!r}")
    messages = report.coverage[-1].last if report.coverage else 0
    places = [
        Place(layer=str(part.layer), number=number, of=len(part.items), item=item)
        for part in report.layers
        for number, item in enumerate(part.items, 1)
    ]
    name = what if isinstance(what, str) else f"message {what}"
    found = [place for place in places if place.item.id == name]
    found = found or [place for place in places if name in place.item.id.split(JOINED)]  # as results with their call
    number = _POSITION.fullmatch(name)
    position = int(number[1]) if number and (not found or name.startswith("message ")) else None
    around = next((part for part in report.coverage if position and part.first <= position <= part.last), None)
    if around is None and (not found or isinstance(what, int)):
        raise InputError(_unknown(what, messages, [place.item.id for place in places]))
    lines = [line for place in found for line in _place_lines(place)]
    if around:
        span = f"messages {around.first}-{around.last}" if around.first < around.last else f"message {around.first}"
        others = f", as are {span}" if around.first < around.last else ""
        back = [f"  {GET_BACK.format(position=position)}"] if around.state in ("summarized", "omitted") else []
        means = f"  {STATE_MEANS[around.state].format(range=span)}"
        lines = [f"message {position:,} of {messages:,}: {STATES[around.state][0]}{others}", means, *back, *lines]
    return Explanation(
        title=f"Explained: {what}",
        lines=tuple(map(shown, lines)),
        position=position if around else None,
        coverage=around,
        places=tuple(found),
    )


def _place_lines(place: Place) -> Iterator[str]:
    """Yields an item in words; of a retrieved one also what speaks for it and against it, the strongest first."""
    item = place.item
    would = "it would have cost " if item.status is Status.OMITTED else ""
    source = f", {SOURCES.get(item.source, item.source)}" if item.source else ""
    where = f"item {place.number:,} of {place.of:,} in {label_of(place.layer)}{source}"
    yield f"{item.id}: {where}, {item.status}, {would}{plural(item.tokens, 'token')}"
    yield f"  {item.reason}: {item.reason.meaning}."
    sides: dict[str, list[str]] = {"for": [], "against": []}
    for name, score in sorted(item.scores.items(), key=lambda part: (-abs(part[1]), part[0])):
        if abs(score) > LEAST_SCORE:
            sides["for" if score > 0 else "against"].append(f"{SCORES.get(name, name)} ({score:+.2f})")
    yield from (f"  speaks {side} it: {', '.join(said)}" for side, said in sides.items() if said)
    if item.preview:
        yield f'  "{item.preview}"'


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
    """The change of a layer, or of overhead that no layer owns; in tokens."""

    name: str
    """The short name of a layer, the name of one of the application's own, or that of an overhead."""
    before: int
    after: int
    words: str = ""
    """The items that came, went and changed (another text, size or form), by kind."""

    @property
    def change(self) -> int:
        """Tokens more, or less."""
        return self.after - self.before


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageChange:
    """Messages in a row that changed their state in the same way; positions count from 1, both ends included."""

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


@dataclass(frozen=True, kw_only=True)
class ReportDiff(InWords):
    """The change from one report of a conversation to another; `ContextReport.diff` makes it.

    `sum(part.change for part in (*layers, *overhead)) == total_change`.

    Example:
        >>> from langchain_ctxbudget import ContextPipeline
        >>> pipeline, who = ContextPipeline(), {"user_id": "ada", "conversation_id": "c1"}
        >>> before, after = (pipeline.assemble(text, **who).report for text in ("Hello", "Hello again"))
        >>> print(after.diff(before))
        Total +1: 9 of 12,000 tokens
        L7 +1: 1 message changed
    """

    title: str
    lines: tuple[str, ...]
    """The difference in words: total, layers, overhead, settings, failures and repairs."""
    total_change: int
    """Tokens more, or less."""
    layers: tuple[PartChange, ...]
    """All layers of both reports."""
    overhead: tuple[PartChange, ...]
    messages: tuple[MessageChange, ...]
    """In order of their positions."""
    settings: tuple[tuple[str, str, str], ...]
    """Name, value before, value after; failures and repairs are among them."""


def difference(report: ContextReport, before: ContextReport) -> ReportDiff:
    """Compares a report with an earlier one of its conversation; see `ContextReport.diff`."""
    for name in ("user", "conversation"):
        mine, other = getattr(report, f"{name}_id"), getattr(before, f"{name}_id")
        if mine != other:
            raise InputError(f"Only reports of one {name} can be compared; these are of {mine!r} and of {other!r}")
    messages = tuple(_message_changes(before.coverage, report.coverage))
    moved = _message_words(messages)
    ours, theirs = ({str(part.layer): part for part in one.layers} for one in (report, before))
    layers = [_part_change(name, theirs.get(name), ours.get(name)) for name in {**ours, **theirs}]
    for place, part in enumerate(layers):
        if part.name == Layer.HISTORY:
            words = "; ".join(filter(None, (part.words, moved)))
            if report.stability.compaction_step and (part.change or words):
                words = "; ".join(filter(None, ("compaction step", words)))
            layers[place] = replace(part, words=words)
    overhead = [
        PartChange(name=name, before=before.overhead_tokens.get(name, 0), after=report.overhead_tokens.get(name, 0))
        for name in {**report.overhead_tokens, **before.overhead_tokens}
    ]
    old, new = _conditions(before), _conditions(report)
    settings = [(title, old[title], new[title]) for title in new if old[title] != new[title]]
    change = report.total_tokens - before.total_tokens
    lines = [
        *(
            f"{part.name} {part.change:+,}{part.words and f': {part.words}'}"
            for part in layers
            if part.words or part.change
        ),
        *(f"{part.name.capitalize()} {part.change:+,}" for part in overhead if part.change),
        *(f"{title} {value} -> {other}" for title, value, other in settings),
    ]
    total = f"Total {change:+,}: {report.total_tokens:,} of {report.budget_tokens:,} tokens"
    return ReportDiff(
        title="What changed",
        lines=(total, *map(shown, lines)) if lines else ("Nothing changed.",),
        total_change=change,
        layers=tuple(layers),
        overhead=tuple(overhead),
        messages=messages,
        settings=tuple(settings),
    )


def _part_change(name: str, before: LayerReport | None, after: LayerReport | None) -> PartChange:
    old, new = _in_prompt(before), _in_prompt(after)
    counts: dict[str, Counter[tuple[str, str]]] = {verb: Counter() for verb in ("came", "went", "changed")}
    for key in {**new, **old}:
        for one, other in zip_longest(new.get(key, []), old.get(key, [])):
            if other is None or one is None:
                counts["came" if one else "went"][_kind(name, one or other)] += 1
            elif (one.tokens, one.status, one.preview) != (other.tokens, other.status, other.preview):
                counts["changed"][_kind(name, one)] += 1
    said = (f"{count:,} {kind[count > 1]} {verb}" for verb, kinds in counts.items() for kind, count in kinds.items())
    used_before, used_after = (part.used_tokens if part else 0 for part in (before, after))
    return PartChange(name=name, before=used_before, after=used_after, words=", ".join(said))


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
    spans = ((first, end, _state_at(before, first), _state_at(after, first)) for first, end in pairwise(points))
    for (old, new), same in groupby(spans, key=lambda span: span[2:]):
        if old != new:
            parts = list(same)
            yield MessageChange(first=parts[0][0], last=parts[-1][1] - 1, before=old, after=new)


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


def _conditions(report: ContextReport) -> dict[str, str]:
    """Returns what stands beside the numbers, by its title."""
    usage = report.usage
    values: dict[str, object] = {title: getattr(report, name) for name, title in _SETTINGS.items()}
    values |= {"Tier": usage and usage.tier, "Forced": usage and usage.forced, "Failed": report.failures}
    values["Repaired"] = tuple(f"{one.kind} {one.message_id}: {one.detail}" for one in report.repairs)

    def text(value: object) -> str:
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, int):
            return f"{value:,}"
        return (", ".join(value) if isinstance(value, tuple) else str(value or "")) or "none"

    return {title: text(value) for title, value in values.items()}
