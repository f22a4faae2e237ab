"""Makes the figures and the measured tables of `research/retrieval.md`; offline, and the same bytes every time.

    PYTHONPATH=benchmarks python research/retrieval_figures.py [ROWS.json ...]

What was measured is kept in `research/retrieval.json`, because the data are not in the repository. Files that the
option `--json` of `context_quality.py`, `trial_emphasis.py` and `trial_retrieval.py` has written replace rows of it; of
these the page's comments say the commands.
"""  # noqa: INP001 - a script, not a package

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

import trial_emphasis
import trial_retrieval
from budgeting_figures import REPRODUCIBLE, shortened
from quality import scoring, showing

HERE = Path(__file__).parent
FOLDER, PAGE = HERE / "figures", HERE / "retrieval.md"
MEASURED = HERE / "retrieval.json"
KEYS = {"emphasis": ("data", "budget", "emphasis"), "system": ("data", "system", "budget"), "part": ("data", "part")}
"""Which rows there are, by the field that tells them from the others, and what names one of them."""
METADATA = re.compile(r" *<metadata>.*?</metadata>\n", re.DOTALL)

Rows = Sequence[Mapping[str, Any]]


def updated(measured: Mapping[str, Rows], files: Iterable[Path]) -> dict[str, list[Mapping[str, Any]]]:
    """What was measured, with the rows of files in the place of those that they measure anew."""
    by_key = {
        kind: {tuple(row[name] for name in names): row for row in measured.get(kind, ())}
        for kind, names in KEYS.items()
    }
    for path in files:
        for row in json.loads(path.read_text(encoding="utf-8")):
            [kind] = [name for name in KEYS if name in row]
            by_key[kind][tuple(row[name] for name in KEYS[kind])] = row
    return {kind: list(rows.values()) for kind, rows in by_key.items()}


def table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table in Markdown, numbers to the right."""
    ruler = "|---|" + "--:|" * (len(header) - 1)
    return "\n".join([f"| {' | '.join(header)} |", ruler, *(f"| {' | '.join(line)} |" for line in lines)])


def emphasis_table(rows: Rows) -> str:
    """A line per data set, budget and emphasis."""
    header = ("data, budget, emphasis", "recall", "cost", "zone kept", "zone", "turns per step")
    return table(
        header,
        (
            (
                f"{row['data']} {row['budget']:,} `{row['emphasis']}`",
                *(f"{row[name]:.1f}" for name in ("recall", "cost", "stable", "history", "step")),
            )
            for row in rows
        ),
    )


def system_table(rows: Rows) -> str:
    """A line per system, a column per data set and budget, the best in bold."""
    columns = sorted({(row["data"], row["budget"]) for row in rows})
    recall = {(row["system"], row["data"], row["budget"]): row["recall"] for row in rows}
    best = {column: max(value for key, value in recall.items() if key[1:] == column) for column in columns}
    lines = []
    for system in dict.fromkeys(row["system"] for row in rows):
        values = [(recall.get((system, *column)), best[column]) for column in columns]
        shown = ["-" if value is None else f"**{value}**" if value == most else f"{value}" for value, most in values]
        lines.append([system, *shown, f"{sum(row['over'] for row in rows if row['system'] == system)}"])
    return table(["", *(f"{data} {budget:,}" for data, budget in columns), "over"], lines)


def part_table(rows: Rows) -> str:
    """As `trial_retrieval.py` shows it."""
    header, lines = trial_retrieval.cells(
        [trial_retrieval.Loss(**{**row, "recall": {int(b): v for b, v in row["recall"].items()}}) for row in rows]
    )
    return table(header, lines)


def with_table(page: str, kind: str, drawn: str) -> str:
    """A page with a table between its two marks."""
    begin, end = f"<!-- {kind} table -->\n", f"<!-- end of {kind} table -->"
    before, _, rest = page.partition(begin)
    return f"{before}{begin}{drawn}\n{end}{rest.partition(end)[2]}"


def main(*files: str) -> None:
    """Take up new rows, and write figures and tables."""
    measured = json.loads(MEASURED.read_text(encoding="utf-8")) if MEASURED.is_file() else {}
    known = updated(measured, map(Path, files))
    lines = {kind: ",\n".join(json.dumps(row) for row in rows) for kind, rows in known.items()}
    MEASURED.write_text("{" + ",\n".join(f'"{kind}": [\n{text}\n]' for kind, text in lines.items()) + "}\n", "utf-8")
    page = PAGE.read_text(encoding="utf-8")
    for kind, draw in (("emphasis", emphasis_table), ("system", system_table), ("part", part_table)):
        if known[kind]:
            page = with_table(page, kind, draw(known[kind]))
    PAGE.write_text(page, encoding="utf-8")
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(REPRODUCIBLE)
        emphasis, systems = FOLDER / "retrieval_emphasis.svg", FOLDER / "retrieval_systems.svg"
        trial_emphasis.plot([trial_emphasis.Row(**row) for row in known["emphasis"]], emphasis)
        showing.plot([scoring.Row(**row) for row in known["system"]], systems)
    for path in (emphasis, systems):
        path.write_text(shortened(METADATA.sub("", path.read_text(encoding="utf-8"))), encoding="utf-8")
        sys.stdout.write(f"{path.stat().st_size:>8,} bytes  {path.name}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
