"""What the commands print with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from rich import box
from rich.table import Table
from rich.text import Text

Row: TypeAlias = tuple[str, *tuple[str | Text, ...]]
"""What it is about, and the other cells."""
_CONTROL_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"} | {127: 0x2421}
WIDEST_ID = 34
"""Columns; longer ids go on in the next line."""


def printable(text: str) -> str:
    r"""A text whose control characters are shown, not obeyed: a conversation must not steer the terminal.

    >>> printable("red \x1b[31m")
    'red ␛[31m'
    """
    return text.translate(_CONTROL_PICTURES)


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
    shown = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=0)
    for place, heading in enumerate(columns):
        is_number = place >= len(columns) - numbers
        fixed = is_number or place == 0
        shown.add_column(heading, justify="right" if is_number else "left", no_wrap=fixed, overflow="fold")
    for name, *rest in rows:
        shown.add_row(_folded(name), *(value if isinstance(value, Text) else cell(value) for value in rest))
    return shown


def _folded(name: str) -> Text:
    """An id in lines that can be put together again: not cut at blanks, nor where the terminal likes to."""
    parts = [name[start : start + WIDEST_ID] for start in range(0, len(name), WIDEST_ID)]
    return Text(printable("\n".join(parts)))
