"""A report as a chart: in text for terminals and logs, in colour for notebooks."""

from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from langchain_ctxbudget.report.colours import (
    LAYER_COLOURS,
    OTHERS,
    OVERHEAD,
    colours_of,
    label_of,
)
from langchain_ctxbudget.report.wording import facts, plural, with_visible_controls

if TYPE_CHECKING:
    from langchain_ctxbudget.report.report import ContextReport, LayerReport, ReportItem

FULL = "█"
EMPTY = "░"
LABEL_COLUMNS = 21
NUMBER_COLUMNS = (9, 7, 11)
"""Columns of the three numbers of a row: tokens used, share of the budget, tokens planned."""
MIN_BAR_COLUMNS = 8
MAX_BAR_COLUMNS = 60
FACT_COLUMNS = 11
"""Columns of the label of a fact below the chart."""
CARD_COLUMNS = 100
"""Columns of the chart in a notebook."""
_CARD_STYLE = (
    "overflow-x:auto;white-space:pre;color:inherit;background:none;font-size:12px;line-height:1.35"
)

Draw = Callable[[str, str], str]
"""Writes a text in a colour; `""` is no colour."""


def _plain(text: str, _colour: str) -> str:
    return text


def _coloured(text: str, colour: str) -> str:
    """Returns HTML in a colour that is darker on a light page and lighter on a dark one."""
    if not colour:
        return escape(text)
    mixed = f"color-mix(in srgb,{colour} 62%,currentColor)"
    return f"<span style='color:{mixed}'>{escape(text)}</span>"


def render_html(report: "ContextReport") -> str:
    """Draws the same chart in colour, with all items behind a fold.

    It is preformatted, so that it looks alike in every notebook.
    """
    label = plural(sum(len(layer.items) for layer in report.layers), "item")
    uncounted = sum(sum(layer.more_omitted.values()) for layer in report.layers)
    if uncounted:
        label += f" and {uncounted:,} more that are left out"
    fold = f"<summary style='cursor:pointer'>{label}</summary>{''.join(_item_rows(report))}"
    chart = render_chart(report, CARD_COLUMNS, _coloured)
    return f"<pre style='{_CARD_STYLE}'>{chart}\n<details>{fold}</details></pre>"


def render_chart(report: "ContextReport", width: int, draw: Draw = _plain) -> str:
    """Draws a bar chart of about `width` columns, with the facts below it."""
    return "\n".join(_Chart(report, width, draw).lines())


class _Chart:
    """A chart while it is drawn: its columns, and how a text gets its colour."""

    def __init__(self, report: "ContextReport", width: int, draw: Draw) -> None:
        room = width - LABEL_COLUMNS - sum(NUMBER_COLUMNS)
        self._report = report
        self._draw = draw
        self._bar_columns = max(MIN_BAR_COLUMNS, min(MAX_BAR_COLUMNS, room))
        self._columns = LABEL_COLUMNS + self._bar_columns + sum(NUMBER_COLUMNS)

    def lines(self) -> list[str]:
        report = self._report
        rule = "─" * self._columns
        free_tokens = f"{report.budget_tokens - report.total_tokens:,}"
        return [
            self._heading(),
            self._line("", "", ("used", "share", "planned")),
            rule,
            *self._rows(),
            rule,
            self._row("Total", report.total_tokens, ""),
            self._line("   Free", "", (free_tokens, "", "")),
            "",
            *self._fact_lines(),
        ]

    def _heading(self) -> str:
        title = "CONTEXT BUDGET"
        if self._report.forecast:
            title += " (forecast)"
        tokens = f"{self._report.budget_tokens:,} tokens"
        return f"{_fitted(title, self._columns - len(tokens) - 1)} {tokens}"

    def _rows(self) -> Iterator[str]:
        colours = colours_of(layer.layer for layer in self._report.layers)
        for layer in self._report.layers:
            planned = f"{layer.allocated_tokens:,}"
            yield self._row(layer.layer, layer.used_tokens, colours[layer.layer], planned)
        for name, tokens in self._report.overhead_tokens.items():
            yield self._row(name.capitalize(), tokens, OTHERS[OVERHEAD])

    def _row(self, name: str, tokens: int, colour: str, planned: str = "") -> str:
        label = label_of(name) if name in LAYER_COLOURS else f"   {name}"
        share = tokens / self._report.budget_tokens
        filled = max(0, min(self._bar_columns, round(share * self._bar_columns)))
        if not filled and tokens > 0:
            filled = 1
        bar = FULL * filled + EMPTY * (self._bar_columns - filled)
        return self._line(label, bar, (f"{tokens:,}", f"{share:.1%}", planned), colour)

    def _line(self, label: str, bar: str, cells: Sequence[str], colour: str = "") -> str:
        numbers = ""
        for cell, columns in zip(cells, NUMBER_COLUMNS, strict=True):
            numbers += f"{cell:>{columns}}"
        return (
            self._draw(f"{_fitted(label, LABEL_COLUMNS - 1)} ", "")
            + self._draw(bar or " " * self._bar_columns, colour)
            + self._draw(numbers.rstrip(), "")
        )

    def _fact_lines(self) -> Iterator[str]:
        from rich.console import Console  # noqa: PLC0415 - when something is drawn
        from rich.text import Text  # noqa: PLC0415

        for label, text in facts(self._report):
            one_line = Text(with_visible_controls(" ".join(text.split())))
            wrapped = one_line.wrap(Console(), self._columns - FACT_COLUMNS)
            for number, part in enumerate(wrapped):
                beginning = label if number == 0 else ""
                yield self._draw(f"{beginning:<{FACT_COLUMNS}}{part.plain}".rstrip(), "")


def _fitted(text: str, columns: int) -> str:
    """Returns a text that takes exactly so many columns, with an ellipsis where it is cut."""
    from rich.text import Text  # noqa: PLC0415 - when something is drawn

    label = Text(with_visible_controls(text))
    label.truncate(columns, overflow="ellipsis", pad=True)
    return label.plain


def _item_rows(report: "ContextReport") -> Iterator[str]:
    """Yields a line for every item, and for those of each reason that are only counted."""
    colours = colours_of(layer.layer for layer in report.layers)
    for layer in report.layers:
        mark = _layer_mark(layer, colours[layer.layer])
        for item in layer.items:
            cells = escape(_item_cells(item))
            yield f"<div title='{escape(with_visible_controls(item.id))}'>{mark}{cells}</div>"
        for reason, count in layer.more_omitted.items():
            yield f"<div>{mark}omitted  {count:,} more: {reason.replace('_', ' ')}</div>"


def _layer_mark(layer: "LayerReport", colour: str) -> str:
    return _coloured(FULL, colour) + escape(_fitted(f" {layer.layer}", LABEL_COLUMNS // 2))


def _item_cells(item: "ReportItem") -> str:
    reason = ", ".join(filter(None, (item.reason.replace("_", " "), item.source)))
    why = _fitted(reason, LABEL_COLUMNS)
    return f"{item.status:<9}{why}{item.tokens:>7,}  {with_visible_controls(item.preview)}"
