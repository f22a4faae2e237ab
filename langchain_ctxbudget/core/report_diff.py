"""What changed between two reports of one conversation, in numbers and in words."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from langchain_ctxbudget.core.layers import Layer, Reason, Status
from langchain_ctxbudget.core.report_parts import CoverageRange, CoverageState, LayerReport, ReportItem
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.reporting.html import render_lines
from langchain_ctxbudget.reporting.parts import STATES
from langchain_ctxbudget.reporting.screen import shown

if TYPE_CHECKING:
    from langchain_ctxbudget.core.report import ContextReport

NAMED_RANGES = 4
"""Ranges of messages that a line names; what is beyond them is counted."""
_ITEM, _MESSAGE, _SUMMARY_LINE = ("item", "items"), ("message", "messages"), ("summary line", "summary lines")
_WORDS = {
    Layer.PREFERENCES: ("line", "lines"),
    Layer.TOPICS: ("topic", "topics"),
    Layer.ENTITIES: ("entity", "entities"),
    Layer.ARC: _SUMMARY_LINE,
    Layer.MESSAGE: _MESSAGE,
}
_SOURCES = {
    "messages": ("past message", "past messages"),
    "conversations": ("message of another conversation", "messages of other conversations"),
    "memories": ("fact", "facts"),
    "documents": ("document", "documents"),
}
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
class PartChange:
    """What changed in a layer, or in what no layer owns; in tokens.

    Example:
        >>> PartChange(name="L5", before=100, after=160, came={"documents": 2}).words
        '2 documents came'
    """

    name: str
    """The short name of a layer, the name of one of the application's own, or that of an overhead."""
    before: int
    after: int
    came: Mapping[str, int] = field(default_factory=dict)
    """How many items are in the prompt that were not, by what they are."""
    went: Mapping[str, int] = field(default_factory=dict)
    """How many are in it no more."""
    changed: Mapping[str, int] = field(default_factory=dict)
    """How many have another text, size or form."""

    @property
    def change(self) -> int:
        """Tokens more, or less."""
        return self.after - self.before

    @property
    def words(self) -> str:
        """What came, went and changed."""
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
        """From which state to which."""
        if self.before is None:
            return f"new, {_state(self.after)}"
        return f"{_state(self.before)} -> {_state(self.after)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportDiff:
    """What changed from one report of a conversation to another; `ContextReport.diff` makes it.

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
        >>> print(reports[0].diff(reports[0]))
        Nothing changed.
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
    """Whether the later report is of a prompt whose stable zone was rewritten."""
    settings: tuple[tuple[str, str, str], ...]
    """What it is, before, after."""
    notes: tuple[str, ...]
    """Failures and repairs that came or went."""

    @property
    def total_change(self) -> int:
        """Tokens more, or less."""
        return self.total_after - self.total_before

    @property
    def lines(self) -> tuple[str, ...]:
        """The difference in words: total, layers, overhead, settings, failures and repairs."""
        parts = (*(line for part in self.layers for line in self._layer_lines(part)), *_overhead_lines(self.overhead))
        settings = (f"{name} {before} -> {after}" for name, before, after in self.settings)
        found = [shown(line) for line in (*parts, *settings, *self.notes)]
        if not found and not self.total_change:
            return ("Nothing changed.",)
        return (f"Total {self.total_change:+,}: {self.total_after:,} of {self.budget_tokens:,} tokens", *found)

    def _layer_lines(self, part: PartChange) -> Iterator[str]:
        words = [part.words]
        if part.name == Layer.HISTORY:
            words.append(_message_words(self.messages))
            if self.compaction_step and (part.change or any(words)):
                words.insert(0, "compaction step")
        said = "; ".join(filter(None, words))
        if said or part.change:
            yield f"{part.name} {part.change:+,}{': ' if said else ''}{said}"

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def _repr_html_(self) -> str:
        """The lines, for notebooks."""
        return render_lines("What changed", self.lines)


def difference(report: ContextReport, before: ContextReport) -> ReportDiff:
    """What changed from one report to another.

    Args:
        report: the later one.
        before: the earlier one.

    Raises:
        InputError: they are of different users or conversations.
    """
    for what, mine, other in (
        ("user", report.user_id, before.user_id),
        ("conversation", report.conversation_id, before.conversation_id),
    ):
        if mine != other:
            raise InputError(f"Only reports of one {what} can be compared; these are of {mine!r} and of {other!r}")
    ours, theirs = ({part.layer: part for part in one.layers} for one in (report, before))
    overhead = dict.fromkeys([*report.overhead_tokens, *before.overhead_tokens])
    return ReportDiff(
        total_before=before.total_tokens,
        total_after=report.total_tokens,
        budget_tokens=report.budget_tokens,
        layers=tuple(_part_change(name, theirs.get(name), ours.get(name)) for name in dict.fromkeys([*ours, *theirs])),
        overhead=tuple(
            PartChange(name=name, before=before.overhead_tokens.get(name, 0), after=report.overhead_tokens.get(name, 0))
            for name in overhead
        ),
        messages=tuple(_message_changes(before.coverage, report.coverage)),
        compaction_step=report.stability.compaction_step,
        settings=tuple(_settings(before, report)),
        notes=tuple(_notes(before, report)),
    )


def _part_change(name: str, before: LayerReport | None, after: LayerReport | None) -> PartChange:
    old, new = (_in_prompt(part) for part in (before, after))
    came: Counter[str] = Counter()
    went: Counter[str] = Counter()
    changed: Counter[str] = Counter()
    for key in dict.fromkeys([*new, *old]):
        mine, theirs = new.get(key, []), old.get(key, [])
        for one, other in zip(mine, theirs, strict=False):
            alike = (one.tokens, one.status, one.preview) == (other.tokens, other.status, other.preview)
            changed[_kind(name, one)] += not alike
        came.update(_kind(name, one) for one in mine[len(theirs) :])
        went.update(_kind(name, one) for one in theirs[len(mine) :])
    return PartChange(
        name=str(name),
        before=before.used_tokens if before else 0,
        after=after.used_tokens if after else 0,
        came=_in_words(came),
        went=_in_words(went),
        changed=_in_words(changed),
    )


def _in_prompt(part: LayerReport | None) -> dict[str, list[ReportItem]]:
    """The items that a layer sends, by id. Messages of the history are told by their ranges."""
    found: defaultdict[str, list[ReportItem]] = defaultdict(list)
    for item in part.items if part else ():
        told = part is not None and part.layer == Layer.HISTORY and item.reason is not Reason.SUMMARY
        if item.status is not Status.OMITTED and not told:
            found[item.id].append(item)
    return found


def _kind(layer: str, item: ReportItem) -> str:
    """What an item is, in the singular."""
    if item.reason is Reason.SUMMARY:
        return _SUMMARY_LINE[0]
    return _SOURCES.get(item.source, _WORDS.get(Layer(layer), _ITEM) if layer in set(Layer) else _ITEM)[0]


_PLURALS = dict([_ITEM, _MESSAGE, _SUMMARY_LINE, *_WORDS.values(), *_SOURCES.values()])


def _in_words(counts: Counter[str]) -> dict[str, int]:
    return {what if count == 1 else _PLURALS[what]: count for what, count in counts.items() if count}


def _message_changes(before: Sequence[CoverageRange], after: Sequence[CoverageRange]) -> Iterator[MessageChange]:
    """Ranges of messages whose state changed; the work is bounded by the ranges, not by the messages."""
    points = sorted({point for part in (*before, *after) for point in (part.first, part.last + 1)})
    found: MessageChange | None = None
    starts = [[part.first for part in side] for side in (before, after)]
    for first, end in pairwise(points):
        old, new = (_state_at(side, firsts, first) for side, firsts in zip((before, after), starts, strict=True))
        if found and (found.last, found.before, found.after) == (first - 1, old, new):
            found = MessageChange(first=found.first, last=end - 1, before=old, after=new)
            continue
        if found:
            yield found
        found = MessageChange(first=first, last=end - 1, before=old, after=new) if old != new else None
    if found:
        yield found


def _state_at(ranges: Sequence[CoverageRange], firsts: Sequence[int], position: int) -> CoverageState | None:
    number = bisect_right(firsts, position) - 1
    return ranges[number].state if number >= 0 and position <= ranges[number].last else None


def _state(state: CoverageState | None) -> str:
    return STATES[state][0] if state else "gone"


def _message_words(changes: Iterable[MessageChange]) -> str:
    """Which messages changed their state; what was only found or not found for this message is told by L5."""
    by_words: defaultdict[str, list[MessageChange]] = defaultdict(list)
    for change in changes:
        states = {change.before, change.after}
        if "retrieved" not in states or states & {None, "verbatim"}:
            by_words[change.words].append(change)
    return "; ".join(f"{_positions(several)}: {words}" for words, several in by_words.items())


def _positions(changes: Sequence[MessageChange]) -> str:
    named = [str(c.first) if c.first == c.last else f"{c.first}-{c.last}" for c in changes[:NAMED_RANGES]]
    more = sum(change.last - change.first + 1 for change in changes[NAMED_RANGES:])
    single = len(changes) == 1 and changes[0].first == changes[0].last
    return f"message{'' if single else 's'} {', '.join(named)}{f' and {more:,} more' if more else ''}"


def _overhead_lines(parts: Iterable[PartChange]) -> Iterator[str]:
    return (f"{part.name.capitalize()} {part.change:+,}" for part in parts if part.change)


def _settings(before: ContextReport, after: ContextReport) -> Iterator[tuple[str, str, str]]:
    for name, title in _SETTINGS.items():
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            yield title, _value(old), _value(new)
    old, new = (one.usage for one in (before, after))
    for title, name in (("Tier", "tier"), ("Forced", "forced")):
        values = [_value(getattr(usage, name) if usage else None) for usage in (old, new)]
        if values[0] != values[1]:
            yield title, values[0], values[1]


def _value(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case tuple():
            return " < ".join(map(str, value)) or "none"
        case None:
            return "none"
        case _:
            return str(value)


def _notes(before: ContextReport, after: ContextReport) -> Iterator[str]:
    for title, old, new in (
        ("failed", list(before.failures), list(after.failures)),
        ("repaired", *([f"{r.kind} {r.message_id}: {r.detail}" for r in one.repairs] for one in (before, after))),
    ):
        yield from (f"Newly {title}: {text}" for text in (Counter(new) - Counter(old)).elements())
        yield from (f"No longer {title}: {text}" for text in (Counter(old) - Counter(new)).elements())
