"""What the commands print with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from rich import box
from rich.table import Table
from rich.text import Text

from langchain_ctxbudget.reporting.screen import shown

Row: TypeAlias = tuple[str, *tuple[str | Text, ...]]
"""What it is about, and the other cells."""
_LINES_AND_TABS = re.compile(r"([\n\t])")
WIDEST_ID = 34
"""Columns; longer ids go on in the next line."""


def printable(text: str) -> str:
    r"""A text whose control characters, lines and tabs apart, are shown, not obeyed: it must not steer the terminal.

    >>> printable("red \x1b[31m")
    'red ␛[31m'
    """
    return "".join(part if part in "\n\t" else shown(part) for part in _LINES_AND_TABS.split(text))


def shortened(text: str, characters: int) -> str:
    """A text, or its beginning with an ellipsis."""
    return text if len(text) <= characters else f"{text[: characters - 1].rstrip()}…"


def cell(text: str, notes: Iterable[str] = ()) -> Text:
    """A text as it stands, without markup, with dim lines below it."""
    lines = [Text(printable(text)), *(Text(printable(note), style="dim") for note in notes if note)]
    return Text("\n").join(lines)


def table(title: str, columns: Sequence[str], rows: Sequence[Row], *, numbers: int) -> Table:
    """An aligned table without frames, which leaves 80 columns to what it says.

    Args:
        title: what it shows.
        columns: their headings; the first one names what a row is about, the second one may take several lines.
        rows: a cell for each column.
        numbers: how many of the last columns are narrow and stand at the right.
    """
    drawn = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=0)
    for place, heading in enumerate(columns):
        is_number = place >= len(columns) - numbers
        fixed = is_number or place == 0
        drawn.add_column(heading, justify="right" if is_number else "left", no_wrap=fixed, overflow="fold")
    for name, *rest in rows:
        drawn.add_row(_folded(name), *(value if isinstance(value, Text) else cell(value) for value in rest))
    return drawn


def _folded(name: str) -> Text:
    """An id in lines that can be put together again: not cut at blanks, nor where the terminal likes to."""
    parts = [name[start : start + WIDEST_ID] for start in range(0, len(name), WIDEST_ID)]
    return Text(printable("\n".join(parts)))
