"""The difference between two reports of one conversation, in numbers and in words."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from langchain_ctxbudget.budget.layers import Layer, Reason, Status
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.report.html import render_lines
from langchain_ctxbudget.report.palette import STATES
from langchain_ctxbudget.report.wording import shown

if TYPE_CHECKING:
    from langchain_ctxbudget.report.report import ContextReport, CoverageRange, CoverageState, LayerReport, ReportItem

NAMED_RANGES = 4
"""Ranges of messages that a line names; what is beyond them is counted."""
_PLURALS = {
    "item": "items",
    "line": "lines",
    "topic": "topics",
    "entity": "entities",
    "message": "messages",
    "summary line": "summary lines",
    "past message": "past messages",
    "message of another conversation": "messages of other conversations",
    "fact": "facts",
    "document": "documents",
}
_KINDS = {"L1": "line", "L2": "topic", "L3": "entity", "L4": "summary line", "L7": "message"}
_SOURCE_KINDS = {
    "messages": "past message",
    "conversations": "message of another conversation",
    "memories": "fact",
    "documents": "document",
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
_USAGE = {"tier": "Tier", "forced": "Forced"}


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
        if self.before is None:
            return f"new, {_state(self.after)}"
        return f"{_state(self.before)} -> {_state(self.after)}"


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
        layers = (line for part in self.layers for line in self._layer_lines(part))
        overhead = (f"{part.name.capitalize()} {part.change:+,}" for part in self.overhead if part.change)
        settings = (f"{name} {before} -> {after}" for name, before, after in self.settings)
        found = [shown(line) for line in (*layers, *overhead, *settings, *self.notes)]
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
    """Compares a report with an earlier one of its conversation; see `ContextReport.diff`."""
    for name in ("user", "conversation"):
        mine, other = getattr(report, f"{name}_id"), getattr(before, f"{name}_id")
        if mine != other:
            raise InputError(f"Only reports of one {name} can be compared; these are of {mine!r} and of {other!r}")
    ours, theirs = ({part.layer: part for part in one.layers} for one in (report, before))
    old, new = before.overhead_tokens, report.overhead_tokens
    return ReportDiff(
        total_before=before.total_tokens,
        total_after=report.total_tokens,
        budget_tokens=report.budget_tokens,
        layers=tuple(_part_change(name, theirs.get(name), ours.get(name)) for name in dict.fromkeys([*ours, *theirs])),
        overhead=tuple(
            PartChange(name=name, before=old.get(name, 0), after=new.get(name, 0))
            for name in dict.fromkeys([*new, *old])
        ),
        messages=tuple(_message_changes(before.coverage, report.coverage)),
        compaction_step=report.stability.compaction_step,
        settings=tuple(_settings(before, report)),
        notes=tuple(_notes(before, report)),
    )


def _part_change(name: str, before: LayerReport | None, after: LayerReport | None) -> PartChange:
    old, new = (_in_prompt(part) for part in (before, after))
    came, went, changed = Counter[str](), Counter[str](), Counter[str]()
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
    """Returns the items that a layer sends, by id. Messages of the history are told by their ranges."""
    found: defaultdict[str, list[ReportItem]] = defaultdict(list)
    for item in part.items if part else ():
        told = part is not None and part.layer == Layer.HISTORY and item.reason is not Reason.SUMMARY
        if item.status is not Status.OMITTED and not told:
            found[item.id].append(item)
    return found


def _kind(layer: str, item: ReportItem) -> str:
    """Returns the kind of an item, in the singular."""
    if item.reason is Reason.SUMMARY:
        return "summary line"
    return _SOURCE_KINDS.get(item.source) or _KINDS.get(layer, "item")


def _in_words(counts: Counter[str]) -> dict[str, int]:
    return {kind if count == 1 else _PLURALS[kind]: count for kind, count in counts.items() if count}


def _message_changes(before: Sequence[CoverageRange], after: Sequence[CoverageRange]) -> Iterator[MessageChange]:
    """Yields ranges of messages whose state changed; the work is bounded by the ranges, not by the messages."""
    points = sorted({point for part in (*before, *after) for point in (part.first, part.last + 1)})
    changes = deque(
        (first, end - 1, old, new)
        for first, end in pairwise(points)
        if (old := _state_at(before, first)) != (new := _state_at(after, first))
    )
    while changes:
        first, last, old, new = changes.popleft()
        while changes and changes[0] == (last + 1, changes[0][1], old, new):
            last = changes.popleft()[1]
        yield MessageChange(first=first, last=last, before=old, after=new)


def _state_at(ranges: Sequence[CoverageRange], position: int) -> CoverageState | None:
    place = bisect_right(ranges, position, key=lambda part: part.first) - 1
    return ranges[place].state if place >= 0 and position <= ranges[place].last else None


def _state(state: CoverageState | None) -> str:
    return STATES[state][0] if state else "gone"


def _message_words(changes: Iterable[MessageChange]) -> str:
    """Names the messages that changed their state; those only found or not found for this message are told by L5."""
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


def _settings(before: ContextReport, after: ContextReport) -> Iterator[tuple[str, str, str]]:
    for ones, names in (((before, after), _SETTINGS), ((before.usage, after.usage), _USAGE)):
        for name, title in names.items():
            old, new = (_value(getattr(one, name, None)) for one in ones)
            if old != new:
                yield title, old, new


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return (" < ".join(map(str, value)) if isinstance(value, tuple) else str(value or "")) or "none"


def _notes(before: ContextReport, after: ContextReport) -> Iterator[str]:
    old, new = (
        Counter(
            [
                *(f"failed: {failure}" for failure in one.failures),
                *(f"repaired: {r.kind} {r.message_id}: {r.detail}" for r in one.repairs),
            ]
        )
        for one in (before, after)
    )
    yield from (f"Newly {note}" for note in (new - old).elements())
    yield from (f"No longer {note}" for note in (old - new).elements())
