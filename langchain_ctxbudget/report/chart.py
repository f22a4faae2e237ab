"""A report as lines with bars: plain text for logs, in colour for terminals and notebooks."""

from collections.abc import Iterable, Iterator
from html import escape
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from langchain_ctxbudget.report.colours import (
    OTHERS,
    OVERHEAD,
    STATUSES,
    colours_of,
    label_of,
    on_dark,
)
from langchain_ctxbudget.report.wording import (
    facts,
    percent,
    plural,
    summed_up,
    with_visible_controls,
)

if TYPE_CHECKING:
    from rich.text import Text

    from langchain_ctxbudget.report.report import ContextReport, LayerReport, ReportItem

FULL = "█"
LABEL_COLUMNS = 23
NUMBER_COLUMNS = (10, 7)
"""Columns of the two numbers of a row: tokens, and their share of the budget."""
GAP = "  "
"""Between the numbers and the bar."""
MIN_BAR_COLUMNS = 8
MAX_BAR_COLUMNS = 60
FACT_COLUMNS = 11
"""Columns of the label of a fact below the bars."""
CARD_COLUMNS = 100
"""Columns of the lines in a notebook."""
STATUS_COLUMNS = 14
REASON_COLUMNS = 30
"""Columns of what became of an item, and why."""
_CARD_STYLE = (
    "overflow-x:auto;white-space:pre;color:inherit;background:none;font-size:12px;line-height:1.35"
)


class Piece(NamedTuple):
    """A part of a line, with its look."""

    text: str
    colour: str = ""
    """On a light ground; empty for that of the text around it."""
    bold: bool = False


class Part(NamedTuple):
    """A part of a prompt: its name for readers, its tokens, and its colour on a light ground."""

    name: str
    tokens: int
    colour: str


Line: TypeAlias = tuple[Piece, ...]


def render_text(report: "ContextReport", width: int) -> str:
    """Draws a report as plain text of about `width` columns."""
    lines = ["".join(piece.text for piece in line) for line in _lines(report, width)]
    return "\n".join(lines)


def render_terminal(report: "ContextReport", width: int) -> "Text":
    """Draws a report in colour, for rich to print: without any where a terminal wants none."""
    from rich.text import Text  # noqa: PLC0415 - when something is drawn

    lines = []
    for line in _lines(report, width):
        text = Text(no_wrap=True, overflow="fold")
        for piece in line:
            style = f"bold {on_dark(piece.colour)}" if piece.bold else on_dark(piece.colour)
            text.append(piece.text, style=style.strip())
        lines.append(text)
    return Text("\n").join(lines)


def render_html(report: "ContextReport") -> str:
    """Draws a report in colour for a notebook, with all items behind a fold.

    It is preformatted, so that it looks alike in every notebook.
    """
    label = f"All {plural(sum(len(layer.items) for layer in report.layers), 'item')}"
    uncounted = sum(sum(layer.more_omitted.values()) for layer in report.layers)
    if uncounted:
        label += f", and {uncounted:,} more that were left out"
    fold = f"<summary style='cursor:pointer'>{label}</summary>{''.join(_item_rows(report))}"
    lines = ["".join(map(_as_html, line)) for line in _lines(report, CARD_COLUMNS)]
    text = "\n".join(lines)
    return f"<pre style='{_CARD_STYLE}'>{text}\n<details>{fold}</details></pre>"


def _as_html(piece: Piece) -> str:
    """Returns a piece in a colour that is darker on a light page and lighter on a dark one."""
    text = escape(piece.text)
    if piece.bold:
        text = f"<b>{text}</b>"
    if not piece.colour:
        return text
    mixed = f"color-mix(in srgb,{piece.colour} 62%,currentColor)"
    return f"<span style='color:{mixed}'>{text}</span>"


def _lines(report: "ContextReport", width: int) -> Iterator[Line]:
    """Yields the lines of a report: a sentence, a bar for every part, and the facts."""
    numbers = sum(NUMBER_COLUMNS)
    room = width - LABEL_COLUMNS - numbers - len(GAP)
    bar_columns = max(MIN_BAR_COLUMNS, min(MAX_BAR_COLUMNS, room))
    columns = LABEL_COLUMNS + numbers + len(GAP) + bar_columns
    for part in _wrapped(summed_up(report), columns):
        yield (Piece(part, bold=True),)
    yield ()
    yield from _rows(report, bar_columns)
    yield ()
    for label, text in facts(report):
        for number, part in enumerate(_wrapped(text, columns - FACT_COLUMNS)):
            beginning = label if number == 0 else ""
            yield (Piece(f"{beginning:<{FACT_COLUMNS}}{part}".rstrip()),)


def parts_of(report: "ContextReport") -> list[Part]:
    """Returns everything in a prompt that takes tokens, in the order of the report."""
    colours = colours_of(layer.layer for layer in report.layers)
    parts = [
        Part(label_of(layer.layer), layer.used_tokens, colours[layer.layer])
        for layer in report.layers
    ]
    parts += [
        Part(name.capitalize(), tokens, OTHERS[OVERHEAD])
        for name, tokens in report.overhead_tokens.items()
    ]
    return [part for part in parts if part.tokens]


def _rows(report: "ContextReport", bar_columns: int) -> Iterator[Line]:
    """Yields a row for everything that takes tokens, and one for what is free."""
    for label, tokens, colour in parts_of(report):
        share = tokens / report.budget_tokens
        filled = max(0, min(bar_columns, round(share * bar_columns)))
        if tokens > 0:
            filled = max(1, filled)
        yield (_row(label, tokens, share), Piece(FULL * filled, colour))
    free_tokens = report.budget_tokens - report.total_tokens
    free = _row("Free", free_tokens, free_tokens / report.budget_tokens)
    yield (free._replace(text=free.text.rstrip()),)


def _row(label: str, tokens: int, share: float) -> Piece:
    tokens_columns, share_columns = NUMBER_COLUMNS
    name = _fitted(label, LABEL_COLUMNS)
    return Piece(f"{name}{tokens:>{tokens_columns},}{percent(share):>{share_columns}}{GAP}")


def _wrapped(text: str, columns: int) -> list[str]:
    """Returns a text as lines of at most so many columns."""
    from rich.console import Console  # noqa: PLC0415 - when something is drawn
    from rich.text import Text  # noqa: PLC0415

    one_line = Text(with_visible_controls(" ".join(text.split())))
    return [line.plain.rstrip() for line in one_line.wrap(Console(), columns)]


def _fitted(text: str, columns: int) -> str:
    """Returns a text that takes exactly so many columns, with an ellipsis where it is cut.

    Its last column is blank.
    """
    from rich.text import Text  # noqa: PLC0415 - when something is drawn

    label = Text(with_visible_controls(text))
    label.truncate(columns - 1, overflow="ellipsis", pad=True)
    return f"{label.plain} "


def _item_rows(report: "ContextReport") -> Iterator[str]:
    """Yields a line for every item, and for those of each reason that are only counted."""
    colours = colours_of(layer.layer for layer in report.layers)
    for layer in report.layers:
        mark = _layer_mark(layer, colours[layer.layer])
        for item in layer.items:
            cells = escape(_item_cells(item))
            yield f"<div title='{escape(with_visible_controls(item.id))}'>{mark}{cells}</div>"
        for reason, count in layer.more_omitted.items():
            yield f"<div>{mark}left out      {count:,} more: {reason.replace('_', ' ')}</div>"


def _layer_mark(layer: "LayerReport", colour: str) -> str:
    name = _fitted(f" {label_of(layer.layer)}", LABEL_COLUMNS)
    return _as_html(Piece(FULL, colour)) + escape(name)


def _item_cells(item: "ReportItem") -> str:
    status = f"{STATUSES[item.status]:<{STATUS_COLUMNS}}"
    why = _fitted(_joined((item.reason.replace("_", " "), item.source)), REASON_COLUMNS)
    return f"{status}{why}{item.tokens:>7,}  {with_visible_controls(item.preview)}"


def _joined(parts: Iterable[str]) -> str:
    return ", ".join(filter(None, parts))
