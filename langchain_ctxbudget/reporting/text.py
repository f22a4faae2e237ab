"""A report as a bar chart for terminals and logs (the chart of seed 000; this one adds up)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_ctxbudget.reporting.facts import facts
from langchain_ctxbudget.reporting.parts import OVERHEAD, colours_of, share_of
from langchain_ctxbudget.reporting.screen import fitted, painted, shown, wrapped

FULL, EMPTY = "█", "░"
LEAST_WIDTH = 40
MIN_BAR, MAX_BAR = 8, 60
FACT_INDENT = 11
LABEL_WIDTHS = (21, 16, 8)
"""Columns of the labels; the widest that leaves room for bars is taken."""
ALARMS = {"Failed": "#D70000", "Squeezed": "#D78700"}
TIER_COLOURS = {"healthy": "#00AF00", "caution": "#AFAF00", "warning": "#D78700", "critical": "#D70000"}


@dataclass(frozen=True, slots=True)
class _Row:
    """What stands in one row of the chart."""

    label: str
    tokens: int
    share: float
    colour: str | None = None
    planned: int | None = None

    @property
    def cells(self) -> tuple[str, str, str]:
        return f"{self.tokens:,}", f"{self.share:.1%}", "" if self.planned is None else f"{self.planned:,}"


@dataclass(frozen=True, slots=True)
class _Columns:
    """How wide what is; numbers that are 0 wide are left out."""

    label: int
    bar: int
    numbers: tuple[int, int, int]

    @property
    def width(self) -> int:
        return self.label + self.bar + sum(self.numbers)

    def line(self, label: str, bar: str, cells: tuple[str, str, str]) -> str:
        """One row; a bar takes as many columns as it may, whatever its colours."""
        numbers = (f"{cell:>{width}}" for cell, width in zip(cells, self.numbers, strict=True) if width)
        return f"{fitted(shown(label), self.label - 1)} {bar or ' ' * self.bar}{''.join(numbers)}".rstrip()


def render_text(report: Mapping[str, Any], *, width: int = 80, colour: bool = False) -> str:
    """Draw a report.

    Args:
        report: what `ContextReport.to_dict` gives.
        width: columns to use, at least 40. Below 51 columns there is no room for what was planned.
        colour: whether bars have the colours of their layers, as in the plots; the text is the same.
    """
    budget, total = report["budget_tokens"], report["total_tokens"]
    rows = list(_rows(report))
    whole = _Row("   Total", total, share_of(total, budget))
    free = _Row("   Free", budget - total, 0.0)
    columns = _columns([*rows, whole, free], max(LEAST_WIDTH, width))
    line = "─" * columns.width
    heading = "CONTEXT BUDGET (forecast)" if report["forecast"] else "CONTEXT BUDGET"
    tokens = f"{budget:,} tokens"
    return "\n".join(
        [
            f"{fitted(heading, max(1, columns.width - len(tokens) - 1))} {tokens}",
            columns.line("", "", ("used", "share", "planned")),
            line,
            *(_drawn(row, columns, colour=colour) for row in rows),
            line,
            _drawn(whole, columns, colour=colour),
            columns.line(free.label, "", (free.cells[0], "", "")),
            "",
            *_fact_lines(report, columns.width, colour=colour),
        ]
    )


def _rows(report: Mapping[str, Any]) -> Iterator[_Row]:
    budget = report["budget_tokens"]
    colours = colours_of(layer["layer"] for layer in report["layers"])
    for layer in report["layers"]:
        name, used = layer["layer"], layer["used_tokens"]
        label = f"   {layer['title']}" if name == layer["title"] else f"{name} {layer['title']}"
        yield _Row(label, used, share_of(used, budget), colours[name], layer["allocated_tokens"])
    for name, tokens in report["overhead_tokens"].items():
        yield _Row(f"   {name.capitalize()}", tokens, share_of(tokens, budget), colours[OVERHEAD])


def _columns(rows: Sequence[_Row], width: int) -> _Columns:
    """The widest columns that leave room for bars, and then for the numbers."""
    longest = [max(map(len, cells)) + 1 for cells in zip(*(row.cells for row in rows), strict=True)]
    used, share, planned = (max(least, most) for least, most in zip((9, 7, 11), longest, strict=True))
    all_three, without_planned, used_only = (used, share, planned), (used, share, 0), (used, 0, 0)
    wide, narrow, least = LABEL_WIDTHS
    for label, numbers in ((wide, all_three), (narrow, all_three), (narrow, without_planned), (least, used_only)):
        bar = width - label - sum(numbers)
        if bar >= MIN_BAR:
            return _Columns(label, min(MAX_BAR, bar), numbers)
    return _Columns(least, max(1, width - least - used), (used, 0, 0))


def _drawn(row: _Row, columns: _Columns, *, colour: bool) -> str:
    filled = max(0, min(columns.bar, round(row.share * columns.bar))) or (1 if row.tokens > 0 else 0)
    full = FULL * filled
    if colour and row.colour and full:
        full = painted(full, row.colour)
    return columns.line(row.label, full + EMPTY * (columns.bar - filled), row.cells)


def _fact_lines(report: Mapping[str, Any], width: int, *, colour: bool) -> Iterator[str]:
    tier = {"Usage": TIER_COLOURS[report["usage"]["tier"]]} if report.get("usage") else {}
    alarms = {**ALARMS, **tier} if colour else {}
    for label, text in facts(report):
        name = painted(label, alarms[label]) if label in alarms else label
        first, *rest = wrapped(shown(" ".join(text.split())), width - FACT_INDENT)
        yield f"{name}{' ' * (FACT_INDENT - len(label))}{first}".rstrip()
        yield from (" " * FACT_INDENT + line for line in rest)


def render_items(report: Mapping[str, Any], *, layers: Sequence[str], width: int = 100) -> str:
    """The items of some layers, one per line, with their reasons."""
    lines: list[str] = []
    for layer in report["layers"]:
        if layer["layer"] not in layers:
            continue
        for item in layer["items"]:
            head = f"{layer['layer']} {item['status']:<8} {item['reason']:<14} {item['tokens']:>6,}  "
            lines.append(f"{head}{item['preview'][: max(10, width - len(head))]}")
        lines.extend(
            f"{layer['layer']} omitted  {reason:<14} {count:>6,} more"
            for reason, count in layer["more_omitted"].items()
        )
    return "\n".join(map(shown, lines))
