"""Printing on a terminal: text that does not steer it, tables without frames, progress bars."""

import argparse
import json
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from langchain_ctxbudget.errors import InvalidSettingsError
from langchain_ctxbudget.report import shown

Row: TypeAlias = Sequence[str | Text]
DEFAULT_USER = "me"
LONGEST_ID = len("00000000-0000-0000-0000-000000000000")
_TOKENS = re.compile(r"(\d[\d,]*)(k?)", re.IGNORECASE)


def tokens(text: str) -> int:
    """Reads a number of tokens, as an option has it: `4000`, `12,000` or `4k`."""
    if found := _TOKENS.fullmatch(text.strip()):
        return int(found[1].replace(",", "")) * (1_000 if found[2] else 1)
    raise argparse.ArgumentTypeError(f"{text!r} is no number of tokens, such as 4000 or 4k")


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """Reads the settings in the file, TOML or JSON, that `--settings` names; a `--budget` goes before its own."""
    path: Path | None = options.settings
    found = dict[str, Any]()
    try:
        if path is not None:
            read = json.loads if path.suffix == ".json" else tomllib.loads
            found = dict(read(path.read_text(encoding="utf-8")))
    except (OSError, TypeError, ValueError) as error:
        raise InvalidSettingsError(f"--settings {path}: {error}") from error
    return found | ({} if options.budget is None else {"max_context_tokens": options.budget})


def printable(text: str) -> str:
    """Returns a text whose control characters, lines and tabs apart, are shown, not obeyed."""
    return "".join(part if part in "\n\t" else shown(part) for part in re.split(r"([\n\t])", text))


def tell(text: str, *, style: str = "", stderr: bool = False) -> None:
    """Prints a text of any origin, without markup."""
    Console(stderr=stderr, highlight=False).print(Text(printable(text), style=style), soft_wrap=True)


def print_json(data: Mapping[str, Any]) -> None:
    """Prints data, records in it as plain data."""
    sys.stdout.write(json.dumps(data, indent=2, default=lambda record: record.model_dump(mode="json")) + "\n")


def progress_bar() -> Progress:
    """Returns a bar with count and remaining time on standard error, which is not in what may be piped on."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True))


def cell(text: str, note: str = "") -> Text:
    """Returns a text without markup, with a dim line below it."""
    return Text(printable(text)).append(f"\n{note}" if note else "", style="dim")


def print_table(title: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Prints an aligned table without frames; the last column is narrow and stands at the right.

    The first column has ids, which stay whole where they are not very long: they are there to be copied.
    """
    lines = list(rows)
    whole = min(LONGEST_ID, max((len(str(row[0])) for row in lines), default=0))
    drawn = Table(title=printable(title), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=0)
    for place, heading in enumerate(columns[:-1]):
        drawn.add_column(heading, overflow="fold", min_width=None if place else whole)
    drawn.add_column(columns[-1], justify="right", no_wrap=True)
    for row in lines:
        drawn.add_row(*(value if isinstance(value, Text) else cell(value) for value in row))
    Console(highlight=False).print(drawn)
