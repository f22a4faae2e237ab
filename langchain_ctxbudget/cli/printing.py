"""Printing on a terminal: text that does not steer it, tables without frames, progress bars."""

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from pydantic import BaseModel
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from langchain_ctxbudget.messages import plain_text
from langchain_ctxbudget.prompt import AssembledContext
from langchain_ctxbudget.report import with_visible_controls

Row: TypeAlias = Sequence[str | Text]
PREVIEW_LINES = 14
"""Lines of a message that are printed; those of the newest one are printed all."""
PREVIEW_COLUMNS = 160
LONGEST_ID = len("00000000-0000-0000-0000-000000000000")


def printable(text: str) -> str:
    """Returns a text whose control characters, lines and tabs apart, are shown, not obeyed."""
    parts = re.split(r"([\n\t])", text)
    return "".join(part if part in "\n\t" else with_visible_controls(part) for part in parts)


def tell(text: str, *, style: str = "", stderr: bool = False) -> None:
    """Prints a text of any origin, without markup."""
    console = Console(stderr=stderr, highlight=False)
    console.print(Text(printable(text), style=style), soft_wrap=True)


def print_json(data: Mapping[str, Any]) -> None:
    """Prints data, records and times in it as plain data."""
    text = json.dumps(data, indent=2, default=_plain)
    sys.stdout.write(f"{text}\n")


def _plain(value: BaseModel | datetime) -> object:
    """Returns a record or a time as JSON has it."""
    if isinstance(value, datetime):
        return value.isoformat()
    return value.model_dump(mode="json")


def progress_bar() -> Progress:
    """Returns a bar with count and remaining time.

    It stands on standard error, so that it is not in what is piped on.
    """
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )


def cell(text: str, note: str = "") -> Text:
    """Returns a text without markup, with a dim line below it."""
    line = f"\n{note}" if note else ""
    return Text(printable(text)).append(line, style="dim")


def _as_cell(value: str | Text) -> Text:
    if isinstance(value, Text):
        return value
    return cell(value)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Prints an aligned table without frames; the last column is narrow and stands at the right.

    The first column has ids, which stay whole where they are not very long: they are there to be
    copied.
    """
    lines = list(rows)
    table = Table(
        title=printable(title),
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        padding=0,
    )
    id_columns = max((len(str(row[0])) for row in lines), default=0)
    table.add_column(columns[0], overflow="fold", min_width=min(LONGEST_ID, id_columns))
    for heading in columns[1:-1]:
        table.add_column(heading, overflow="fold")
    table.add_column(columns[-1], justify="right", no_wrap=True)
    for row in lines:
        table.add_row(*map(_as_cell, row))
    Console(highlight=False).print(table)


def print_prompt(context: AssembledContext) -> None:
    """Prints a prompt: its report, and its messages in short."""
    console = Console(highlight=False)
    console.print(context.report)
    console.print()
    console.rule("[bold]the prompt")
    for number, message in enumerate(context.messages, 1):
        parts = [f"{number:>3}", message.type]
        if message.name:
            parts.append(message.name)
        console.print(Text(" ".join(parts), style="bold cyan"))
        text = printable(plain_text(message))
        if number < len(context.messages):
            text = _shortened(text)
        console.print(Text(text), soft_wrap=True)


def _shortened(text: str) -> str:
    """Returns the first lines of a text, the long ones cut."""
    lines = text.splitlines()
    preview = [_shortened_line(line) for line in lines[:PREVIEW_LINES]]
    if len(lines) > PREVIEW_LINES:
        preview.append(f"… {len(lines) - PREVIEW_LINES} more lines (--json has them)")
    return "\n".join(preview)


def _shortened_line(line: str) -> str:
    if len(line) <= PREVIEW_COLUMNS:
        return line
    return line[: PREVIEW_COLUMNS - 1] + "…"
