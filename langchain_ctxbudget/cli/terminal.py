"""Printing on a terminal: text that does not steer it, tables without frames, progress bars."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from langchain_ctxbudget.errors import StoreError
from langchain_ctxbudget.report import shown
from langchain_ctxbudget.stores import DATABASE_FILE

Row: TypeAlias = tuple[str, *tuple[str | Text, ...]]
"""An id or a name, and the other cells."""
DEFAULT_USER = "me"


def printable(text: str) -> str:
    r"""Returns a text whose control characters, lines and tabs apart, are shown, not obeyed.

    >>> printable("red \x1b[31m")
    'red ␛[31m'
    """
    return "".join(part if part in "\n\t" else shown(part) for part in re.split(r"([\n\t])", text))


def tell(text: str, *, style: str = "", stderr: bool = False) -> None:
    """Prints a text of any origin, without markup."""
    Console(stderr=stderr, highlight=False).print(Text(printable(text), style=style), soft_wrap=True)


def progress_bar() -> Progress:
    """Returns a bar with count and remaining time on standard error, which is not in what may be piped on."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True))


def cell(text: str, notes: Iterable[str] = ()) -> Text:
    """Returns a text without markup, with dim lines below it."""
    lines = [Text(printable(text)), *(Text(printable(note), style="dim") for note in notes if note)]
    return Text("\n").join(lines)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Row], *, numbers: int) -> None:
    """Prints an aligned table without frames, which leaves 80 columns to what it says.

    The first column has ids or names, the last `numbers` columns are narrow and stand at the right.
    """
    drawn = Table(title=printable(title), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=0)
    for place, heading in enumerate(columns):
        is_number = place >= len(columns) - numbers
        drawn.add_column(heading, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    for row in rows:
        drawn.add_row(*(value if isinstance(value, Text) else cell(value) for value in row))
    Console(highlight=False).print(drawn)


def require_store(folder: Path) -> None:
    """Raises `StoreError` where there is no store in a folder, as opening one would make it."""
    if not (folder / DATABASE_FILE).is_file():
        raise StoreError(f"There is no store in {folder}: `ctxbudget import FILE --store FOLDER` makes one")
