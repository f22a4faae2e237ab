"""Reports and replays as pictures (the extra `plots`: matplotlib), made without pyplot's state.

A notebook shows the figure, `figure.savefig("budget.svg")` keeps it. Colours stay apart for the
colour-blind.
"""

from collections.abc import Mapping, Sequence
from io import BytesIO
from itertools import accumulate
from typing import Any, TypeAlias

from langchain_ctxbudget.errors import checks_names
from langchain_ctxbudget.installing import install_command
from langchain_ctxbudget.report import STATES, ContextReport, plural
from langchain_ctxbudget.report.colours import (
    FREE,
    LAYER_COLOURS,
    OTHERS,
    OVERHEAD,
    colours_of,
    label_of,
)

try:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.ticker import FuncFormatter, MaxNLocator
except ImportError as error:  # pragma: no cover - the tests have it
    raise ImportError(f"Plots need matplotlib: {install_command('plots')}") from error

Parts: TypeAlias = Mapping[str, int]
"""Tokens by part of the request (layers, overhead, free), or messages by state."""
INK = "#222222"
PALE_GREY = "#B0B0B0"
GRID = "#E6E6E6"
WHITE = "#FFFFFF"
WIDTH = 8.0
"""Inches; 800 pixels."""
DPI = 100
"""Dots per inch."""
MOST_COLUMNS_WITH_GAPS = 40
"""More columns than these stand side by side without gaps."""
STRATEGY_COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#222222",
    "#5B1A6B",
)
"""For strategies that are replayed beside each other; apart for the colour-blind (six of Okabe and
Ito)."""
THOUSANDS = FuncFormatter(lambda value, _: f"{value:,.0f}")
PERCENT = FuncFormatter(lambda value, _: f"{value:.0%}")
DASHED: dict[str, Any] = {"linestyle": (0, (4, 2)), "color": INK, "linewidth": 1.2}
LEGEND: dict[str, Any] = {"frameon": False, "handlelength": 1.0, "handleheight": 1.0, "fontsize": 9}
BESIDE = {**LEGEND, "loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0.0}


class BudgetFigure(Figure):
    """A matplotlib figure that notebooks show by itself."""

    def _repr_png_(self) -> bytes:
        buffer = BytesIO()
        self.savefig(buffer, format="png", dpi=DPI)
        return buffer.getvalue()


@checks_names()
def plot_what_if(reports: Sequence[ContextReport]) -> BudgetFigure:
    """Draws the layers and the states of messages of one prompt at several budgets or strategies.

    Args:
        reports: at least one, from `ContextPipeline.what_if` for instance; a column each, in the
            given order. They are named by their strategies where all have one budget.
    """
    figure, upper, lower = _two_panels(5.6, (1.7, 1))
    layers = _stacked_columns(
        upper,
        [_used(report) for report in reports],
        [report.budget_tokens for report in reports],
    )
    for place, report in enumerate(reports, 1):
        upper.annotate(
            f"{report.total_tokens:,}",
            (place, 1),
            (0, 2),
            textcoords="offset points",
            ha="center",
            color=INK,
            fontsize=9,
        )
    counts = [_messages_by_state(report) for report in reports]
    states = _stacked_columns(lower, counts, [1] * len(counts))

    allocations = [_words(report.allocation_strategy, 16) for report in reports]
    budgets = [f"{report.budget_tokens:,}" for report in reports]
    differ_in_allocation = len(set(budgets)) == 1 and len(set(allocations)) > 1
    if differ_in_allocation:
        names = allocations
        below = ""
        subject = "allocation"
    else:
        names = budgets
        below = "budget, tokens"
        subject = "budget"
    lower.set_xticks(range(1, len(reports) + 1), names)
    _tidy(upper, PERCENT, "share of the budget")
    _tidy(lower, THOUSANDS, "messages", below)
    upper.legend(handles=layers[::-1], **BESIDE)
    if states:
        lower.legend(handles=states[::-1], **BESIDE)
    return _headline(figure, f"What another {subject} gives (above each column: tokens used)")


def plot_turns(reports: Sequence[ContextReport]) -> BudgetFigure:
    """Draws the prompts of a conversation in order, and how much of each the one before had."""
    columns: list[Parts] = []
    for report in reports:
        parts = _used(report)
        del parts[FREE]
        columns.append(parts)
    budgets = [report.budget_tokens for report in reports]
    rebuilt = [
        number for number, report in enumerate(reports, 1) if report.stability.compaction_step
    ]
    figure, upper, lower = _two_panels(4.6, (3.2, 1))
    layers = _stacked_columns(upper, columns, [1] * len(reports))
    edges = [place + 0.5 for place in range(len(reports) + 1)]
    upper.stairs(budgets, edges, baseline=None, **DASHED)
    top = max(*budgets, *(sum(parts.values()) for parts in columns)) * 1.1
    upper.set_ylim(0, top)
    samples: list[Any] = [Line2D([], [], label="budget", **DASHED)]
    if rebuilt:
        samples += upper.plot(
            rebuilt,
            [top * 0.965] * len(rebuilt),
            "v",
            color=INK,
            markersize=5,
            label="rewritten",
        )
    shares = [report.stability.prompt_share or 0 for report in reports]
    lower.stairs(shares, edges, fill=True, color=STATES["verbatim"][1], alpha=0.75)
    lower.set_ylim(0, 1)
    lower.set_yticks([0, 0.5, 1])
    lower.set_xlim(edges[0], edges[-1])
    lower.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    _tidy(upper, THOUSANDS, "tokens")
    _tidy(lower, PERCENT, "as before", "prompt")
    upper.legend(handles=[*samples, *layers[::-1]], **BESIDE)
    counted = f"{plural(len(reports), 'prompt')}, {len(rebuilt):,} of them rewritten"
    return _headline(figure, f"{counted}; below: how much of a prompt the last one had")


def plot_replay(result: Any) -> BudgetFigure:  # noqa: ANN401 - a `ReplayResult`, of a room above
    """Draws the tokens of every turn of a `ReplayResult`, and below what they cost so far."""
    data = result.to_dict()
    figure, upper, lower = _two_panels(5.2, (1, 1))
    lines: list[tuple[float, Line2D]] = []
    for place, track in enumerate(data["strategies"]):
        colour = STRATEGY_COLOURS[place % len(STRATEGY_COLOURS)]
        turns = track["turns"]
        numbers = [turn["number"] for turn in turns]
        upper.plot(numbers, [turn["tokens"] for turn in turns], color=colour, linewidth=1.5)
        costs = [turn["effective_tokens"] for turn in turns]
        [line] = lower.plot(numbers, list(accumulate(costs)), color=colour, linewidth=1.5)
        line.set_label(_track_label(track))
        lines.append((track["effective_tokens"], line))
    for axes, label, below in ((upper, "sent", ""), (lower, "paid for so far", "turn")):
        axes.set_ylim(bottom=0)
        axes.grid(visible=True, axis="y", color=GRID, linewidth=0.8)
        axes.xaxis.set_major_formatter(THOUSANDS)
        _tidy(axes, THOUSANDS, label, below)
    dearest_first = sorted(lines, key=lambda track_line: -track_line[0])
    lower.legend(handles=[line for _, line in dearest_first], **BESIDE)
    return _headline(
        figure,
        "Tokens of every turn, and what they cost "
        f"(cached ones at {data['tariff']['read_share']:g} of the price)",
    )


def _track_label(track: Mapping[str, Any]) -> str:
    """Returns the name of a replayed strategy with what it cost and how much of it was cached."""
    lines = [f"{_words(track['name'])}: {track['effective_tokens']:,.0f}"]
    if track["failures"]:
        lines.append(f"({len(track['failures']):,} prompts missing)")
    lines.append(f"{track['tokens']:,} sent, {track['cached_share']:.0%} cached")
    return "\n".join(lines)


def _used(report: ContextReport) -> dict[str, int]:
    """Returns the tokens of every layer, of what no layer owns, and of what is free."""
    tokens = {layer.layer: layer.used_tokens for layer in report.layers}
    tokens[OVERHEAD] = sum(report.overhead_tokens.values())
    tokens[FREE] = report.budget_tokens - report.total_tokens
    return tokens


def _messages_by_state(report: ContextReport) -> Parts:
    counts = report.coverage_counts()
    return {state: counts[state] for state in STATES}


def _stacked_columns(axes: Axes, columns: Sequence[Parts], wholes: Sequence[int]) -> list[Patch]:
    """Draws stacked columns at 1, 2, 3, ..., each as shares of its whole.

    Returns:
        Samples of the parts for a legend, the lowest first.
    """
    names = _part_names(columns)
    colours = colours_of(names)
    colours |= {state: style.colour for state, style in STATES.items()}
    shape: dict[str, Any] = {"width": 0.78}
    if len(columns) > MOST_COLUMNS_WITH_GAPS:
        shape = {"width": 1.0, "linewidth": 0}
    bottoms = [0.0] * len(columns)
    samples: list[Patch] = []
    for name in names:
        heights = [parts.get(name, 0) / whole for parts, whole in zip(columns, wholes, strict=True)]
        if any(heights):
            colour = colours[name]
            look: dict[str, Any] = {"facecolor": colour, "linewidth": 0.6}
            samples.append(Patch(label=_part_label(name), edgecolor=PALE_GREY, **look))
            # A white part has a thin line around it.
            edge = PALE_GREY if colour == WHITE else WHITE
            look |= {"edgecolor": edge, **shape}
            axes.bar(range(1, len(columns) + 1), heights, bottom=bottoms, **look)
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
    # A number stands above the highest column.
    axes.set_ylim(0, max(bottoms) * 1.07 or 1)
    return samples


def _part_names(columns: Sequence[Parts]) -> list[str]:
    """Returns the names of all parts, those that no layer owns at the end."""
    names: dict[str, None] = {}
    for parts in columns:
        names.update(dict.fromkeys(parts))
    return sorted(names, key=lambda name: name in OTHERS)


def _part_label(name: str) -> str:
    if name in LAYER_COLOURS:
        return label_of(name)
    if name in STATES:
        return STATES[name].words
    return _words(name, 19)


def _words(text: str, most_characters: int = 40) -> str:
    """Returns a text in the form in which matplotlib draws it as it is.

    Matplotlib reads `$` as mathematics and hides a label that begins with `_`.
    """
    if len(text) > most_characters:
        text = text[: most_characters - 1] + "…"
    text = text.replace("$", r"\$")
    if text.startswith("_"):
        return f" {text}"
    return text


def _two_panels(height: float, ratios: tuple[float, float]) -> tuple[BudgetFigure, Axes, Axes]:
    figure = BudgetFigure(figsize=(WIDTH, height), dpi=DPI, layout="constrained", facecolor="white")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=ratios)
    return figure, upper, lower


def _tidy(axes: Axes, numbers: FuncFormatter, label: str, below: str = "") -> None:
    axes.yaxis.set_major_formatter(numbers)
    axes.set_ylabel(label, color=INK)
    axes.set_xlabel(below, color=INK)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(PALE_GREY)
    axes.tick_params(labelcolor=INK, labelsize=9, length=3, color=PALE_GREY)
    axes.tick_params(axis="y", length=0)


def _headline(figure: BudgetFigure, title: str) -> BudgetFigure:
    figure.suptitle(title, x=0.012, ha="left", fontsize=10, weight="bold", color=INK)
    return figure
