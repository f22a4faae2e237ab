"""Rows as a table and as a plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path

from rich.table import Table

from quality.scoring import Row

OURS = "ctxbudget"
COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8A8A8A", "#B8A200"]
"""Apart for the colour-blind (Okabe and Ito); grey and a darker yellow for their last two."""
MARKERS = "osD^vPX*"


def table(rows: Sequence[Row]) -> Table:
    """All rows; the best recall of each budget in bold."""
    drawn = Table(title="evidence recall within a token budget")
    for name in Row._fields:
        drawn.add_column(name, justify="left" if name in {"data", "system"} else "right")
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        same = [other for other in rows if (other.data, other.budget) == (row.data, row.budget)]
        best = row.recall == max(other.recall for other in same)
        last = following is None or (following.data, following.budget) != (row.data, row.budget)
        drawn.add_row(*map(cell, row), style="bold" if best else "", end_section=last)
    return drawn


def markdown(rows: Sequence[Row]) -> str:
    """The same as Markdown."""
    lines = ["| " + " | ".join(Row._fields) + " |", "|---|---|" + "--:|" * (len(Row._fields) - 2)]
    return "\n".join([*lines, *("| " + " | ".join(map(cell, row)) + " |" for row in rows)])


def cell(value: float | str | None) -> str:
    """A value as it is shown."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:.1f}"


def plot(rows: Sequence[Row], path: Path) -> None:
    """Recall over the budget, a panel per data set; the ending of the file's name is its format.

    Raises:
        ImportError: matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ImportError(
            "--plot needs matplotlib: pip install 'langchain-ctxbudget[plots]'"
        ) from error
    names = list(dict.fromkeys(row.data for row in rows))
    systems = list(dict.fromkeys(row.system for row in rows))
    others = zip(
        (name for name in systems if name != OURS), cycle(COLOURS), cycle(MARKERS), strict=False
    )
    styles: Mapping[str, tuple[str, str]] = {
        name: (colour, marker) for name, colour, marker in others
    }
    figure = Figure(figsize=(4.2 * len(names) + 2.2, 4.2), dpi=100, layout="constrained")
    panels = figure.subplots(1, len(names), squeeze=False, sharey=True)[0]
    for panel, name in zip(panels, names, strict=True):
        for system in systems:
            points = sorted(
                (row.budget, row.recall) for row in rows if (row.data, row.system) == (name, system)
            )
            colour, marker = styles.get(system, ("black", "o"))
            width = 2.6 if system == OURS else 1.2
            panel.plot(
                *zip(*points, strict=True),
                label=system,
                color=colour,
                marker=marker,
                lw=width,
                ms=5,
            )
        budgets = sorted({row.budget for row in rows if row.data == name})
        panel.set_xscale("log", base=2)
        panel.set_xticks(budgets, [f"{budget:,}" for budget in budgets])
        panel.minorticks_off()
        panel.set(title=name, xlabel="budget, tokens", ylim=(0, 101))
        panel.grid(visible=True, axis="y", lw=0.4)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("evidence turns in the prompt, %")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", frameon=False)
    figure.savefig(path)
