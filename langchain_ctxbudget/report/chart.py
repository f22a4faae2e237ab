"""A report as a bar chart for terminals and logs (the chart of seed 000; this one adds up)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rich.cells import cell_len, chop_cells, set_cell_size

from langchain_ctxbudget.report.palette import OVERHEAD, TIER_COLOURS, colours_of, label_of, share_of_budget
from langchain_ctxbudget.report.wording import facts, shown

PLAIN_WIDTH, LEAST_WIDTH = 80, 40
"""Columns where there is no terminal, and the fewest that a chart has."""
FULL, EMPTY = "█", "░"
MIN_BAR, MAX_BAR = 8, 60
FACT_INDENT = 11
LABEL_WIDTHS = (21, 16, 8)
"""Columns of the labels; the widest that leaves room for bars is taken."""
ALARMS = {"Failed": "#D70000", "Squeezed": "#D78700"}
_STEPS = (0, 95, 135, 175, 215, 255)
"""Brightness of the steps in a terminal's cube of colours."""


class _Row(NamedTuple):
    label: str
    tokens: int
    share: float
    colour: str | None = None
    planned: int | None = None

    @property
    def cells(self) -> tuple[str, str, str]:
        return f"{self.tokens:,}", f"{self.share:.1%}", "" if self.planned is None else f"{self.planned:,}"


class _Columns(NamedTuple):
    """The widths of label, bar and numbers; numbers that are 0 wide are left out."""

    label: int
    bar: int
    numbers: tuple[int, int, int]

    def line(self, label: str, bar: str, cells: tuple[str, str, str]) -> str:
        numbers = (f"{cell:>{width}}" for cell, width in zip(cells, self.numbers, strict=True) if width)
        return f"{fitted(shown(label), self.label - 1)} {bar or ' ' * self.bar}{''.join(numbers)}".rstrip()

    def drawn(self, row: _Row, *, colour: bool) -> str:
        filled = max(0, min(self.bar, round(row.share * self.bar))) or (1 if row.tokens > 0 else 0)
        full = FULL * filled
        if colour and row.colour and full:
            full = painted(full, row.colour)
        return self.line(row.label, full + EMPTY * (self.bar - filled), row.cells)


def render_text(report: Mapping[str, Any], *, width: int = PLAIN_WIDTH, colour: bool = False) -> str:
    """Draws a report.

    Args:
        report: the data of a report, from `ContextReport.to_dict`.
        width: columns to use, at least 40. Below 51 columns there is no room for planned tokens.
        colour: True gives bars the colours of their layers, as in the plots; the text is the same.
    """
    budget, total = report["budget_tokens"], report["total_tokens"]
    rows = list(_rows(report))
    whole = _Row("   Total", total, share_of_budget(total, budget))
    free = _Row("   Free", budget - total, 0.0)
    columns = _columns([*rows, whole, free], max(LEAST_WIDTH, width))
    breadth = columns.label + columns.bar + sum(columns.numbers)
    line = "─" * breadth
    heading = "CONTEXT BUDGET (forecast)" if report["forecast"] else "CONTEXT BUDGET"
    tokens = f"{budget:,} tokens"
    return "\n".join(
        [
            f"{fitted(heading, max(1, breadth - len(tokens) - 1))} {tokens}",
            columns.line("", "", ("used", "share", "planned")),
            line,
            *(columns.drawn(row, colour=colour) for row in rows),
            line,
            columns.drawn(whole, colour=colour),
            columns.line(free.label, "", (free.cells[0], "", "")),
            "",
            *_fact_lines(report, breadth, colour=colour),
        ]
    )


def _rows(report: Mapping[str, Any]) -> Iterator[_Row]:
    budget = report["budget_tokens"]
    colours = colours_of(layer["layer"] for layer in report["layers"])
    for layer in report["layers"]:
        name, used, label = layer["layer"], layer["used_tokens"], label_of(layer["layer"])
        label = f"   {label}" if label == name else label
        yield _Row(label, used, share_of_budget(used, budget), colours[name], layer["allocated_tokens"])
    for name, tokens in report["overhead_tokens"].items():
        yield _Row(f"   {name.capitalize()}", tokens, share_of_budget(tokens, budget), colours[OVERHEAD])


def _columns(rows: Sequence[_Row], width: int) -> _Columns:
    """Returns the widest columns that leave room for bars, and then for the numbers."""
    longest = [max(map(len, cells)) + 1 for cells in zip(*(row.cells for row in rows), strict=True)]
    used, share, planned = (max(least, most) for least, most in zip((9, 7, 11), longest, strict=True))
    all_three, without_planned, used_only = (used, share, planned), (used, share, 0), (used, 0, 0)
    wide, narrow, least = LABEL_WIDTHS
    for label, numbers in (
        (wide, all_three),
        (narrow, all_three),
        (narrow, without_planned),
        (least, without_planned),
        (least, used_only),
    ):
        bar = width - label - sum(numbers)
        if bar >= MIN_BAR:
            return _Columns(label, min(MAX_BAR, bar), numbers)
    return _Columns(least, max(1, width - least - used), used_only)


def _fact_lines(report: Mapping[str, Any], width: int, *, colour: bool) -> Iterator[str]:
    tier = {"Usage": TIER_COLOURS[report["usage"]["tier"]]} if report.get("usage") else {}
    alarms = {**ALARMS, **tier} if colour else {}
    for label, text in facts(report):
        name = painted(label, alarms[label]) if label in alarms else label
        first, *rest = wrapped(shown(" ".join(text.split())), width - FACT_INDENT)
        yield f"{name}{' ' * (FACT_INDENT - len(label))}{first}".rstrip()
        yield from (" " * FACT_INDENT + line for line in rest)


def render_items(report: Mapping[str, Any], *, layers: Sequence[str], width: int = 100) -> str:
    """Lists the items of some layers, one per line, with their reasons."""
    lines: list[str] = []
    for layer in report["layers"]:
        if layer["layer"] not in layers:
            continue
        for item in layer["items"]:
            head = f"{layer['layer']} {item['status']:<8} {item['reason']:<14} {item['tokens']:>6,}  "
            lines.append(f"{head}{item['preview'][: max(10, width - len(head))]}")
        for reason, count in layer["more_omitted"].items():
            lines.append(f"{layer['layer']} omitted  {reason:<14} {count:>6,} more")
    return "\n".join(map(shown, lines))


def fitted(text: str, columns: int) -> str:
    """Returns a text in exactly so many columns: filled up with spaces, or cut with an ellipsis.

    >>> fitted("北京", 6), fitted("Conversation", 6)
    ('北京  ', 'Conve…')
    """
    if cell_len(text) > columns:
        text = f"{set_cell_size(text, columns - 1)}…"
    return set_cell_size(text, columns)


def wrapped(text: str, columns: int) -> list[str]:
    """Returns a text in lines of at most so many columns; a longer word is broken.

    >>> wrapped("two 北京北京北京 words", 9)
    ['two', '北京北京', '北京', 'words']
    """
    lines = [""]
    for word in text.split():
        for piece in chop_cells(word, columns) if cell_len(word) > columns else [word]:
            longer = f"{lines[-1]} {piece}" if lines[-1] else piece
            if cell_len(longer) <= columns:
                lines[-1] = longer
            else:
                lines.append(piece)
    return lines


def painted(text: str, colour: str) -> str:
    r"""Returns a text in the colour of a terminal's cube that is nearest to `#RRGGBB`.

    >>> painted("bar", "#E8702A")
    '\x1b[38;5;166mbar\x1b[0m'
    """
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    steps = [min(range(6), key=lambda step: abs(_STEPS[step] - brightness)) for brightness in (red, green, blue)]
    return f"\x1b[38;5;{16 + 36 * steps[0] + 6 * steps[1] + steps[2]}m{text}\x1b[0m"
