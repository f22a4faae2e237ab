"""Reports and replays as pictures (the extra `plots`: matplotlib).

Every function returns a matplotlib `Figure`. pyplot is not used, so no backend and no state is touched; a notebook
shows the figure, and `figure.savefig("budget.svg")` keeps it. A layer has the same colour in every figure; the colours
stay apart for the colour-blind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from itertools import accumulate
from typing import Any, Protocol, TypeAlias

from langchain_ctxbudget.report.report import ContextReport
from langchain_ctxbudget.report.view import (
    FREE,
    LAYER_COLOURS,
    OTHERS,
    OVERHEAD,
    STATES,
    colours_of,
    label_of,
    plural,
    states_in_words,
)

try:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.ticker import FuncFormatter, MaxNLocator
except ImportError as error:  # pragma: no cover - the tests have it
    raise ImportError("Plots need matplotlib: pip install 'langchain-ctxbudget[plots]'") from error

ReportData: TypeAlias = ContextReport | Mapping[str, Any]
"""A report, or its data."""
Parts: TypeAlias = Mapping[str, int]
"""Tokens by part of the request (layers, overhead, free), or messages by state."""

INK, FAINT, PALE_GREY, GRID, WHITE = "#222222", "#8A8A8A", "#B0B0B0", "#E6E6E6", "#FFFFFF"
WIDTH, DPI = 8.0, 100
"""Inches and dots per inch: 800 pixels."""
MOST_NARROW = 40
"""More columns than these stand without gaps."""
STRATEGY_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#222222", "#5B1A6B")
"""For strategies that are replayed beside each other; apart for the colour-blind (six of Okabe and Ito)."""
THOUSANDS = FuncFormatter(lambda value, _: f"{value:,.0f}")
PERCENT = FuncFormatter(lambda value, _: f"{value:.0%}")
DASHED: dict[str, Any] = {"linestyle": (0, (4, 2))}
_LEGEND: dict[str, Any] = {"frameon": False, "handlelength": 1.0, "handleheight": 1.0, "fontsize": 9}
BESIDE = {**_LEGEND, "loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0.0}
BELOW = {**_LEGEND, "loc": "outside lower left", "ncols": 5, "columnspacing": 1.4}


class HasData(Protocol):
    """A `ReplayResult`, which this room does not know."""

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data."""


class BudgetFigure(Figure):
    """A matplotlib figure that notebooks show by itself.

    Example:
        >>> BudgetFigure()._repr_png_()[1:4]
        b'PNG'
    """

    def _repr_png_(self) -> bytes:
        buffer = BytesIO()
        self.savefig(buffer, format="png", dpi=DPI)
        return buffer.getvalue()


def plot_what_if(reports: Sequence[ReportData], *, shares: bool = False) -> BudgetFigure:
    """Draws the same prompt at several budgets, or by several strategies: its layers, and the states of the messages.

    Args:
        reports: from `ContextPipeline.what_if`, or any others; one column each, in the given order. They are named by
            their strategies where all have one budget.
        shares: True shows shares of their budget instead of tokens.

    Raises:
        ValueError: there are no reports.
    """
    many = _reports(reports)
    wholes = [report.budget_tokens if shares else 1 for report in many]
    figure = _new_figure(5.6)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(1.7, 1))
    layers = _stacked_columns(upper, [_used_parts(report) for report in many], wholes)
    for place, (report, whole) in enumerate(zip(many, wholes, strict=True), 1):
        at, used = (place, report.budget_tokens / whole), f"{report.total_tokens:,}"
        upper.annotate(used, at, (0, 2), textcoords="offset points", ha="center", color=INK, fontsize=9)
    states = _stacked_columns(lower, [_states(report) for report in many], [1] * len(many))
    strategies = [_words(report.allocation_strategy, 16) for report in many]
    same_budget = len({report.budget_tokens for report in many}) == 1 < len(set(strategies))
    names = strategies if same_budget else [f"{report.budget_tokens:,}" for report in many]
    lower.set_xticks(range(1, len(many) + 1), names)
    _tidy(upper, y=PERCENT if shares else THOUSANDS, labels=("", "share of the budget" if shares else "tokens"))
    _tidy(lower, y=THOUSANDS, labels=("" if same_budget else "budget, tokens", "messages"))
    upper.legend(handles=layers[::-1], **BESIDE)
    if states:
        lower.legend(handles=states[::-1], **BESIDE)
    return _headline(
        figure, f"What another {'strategy' if same_budget else 'budget'} gives (above each column: tokens used)"
    )


def plot_frontier(reports: ReportData | Sequence[ReportData]) -> BudgetFigure:
    """Draws every message of the conversation as a strip, oldest at the left, by its state in the prompt.

    Args:
        reports: one prompt, or several of the same conversation: a strip each, named by its budget.

    Raises:
        ValueError: there are no reports.
    """
    many = _reports(reports if isinstance(reports, Sequence) else [reports])
    counts = [report.coverage_counts() for report in many]
    total = max(sum(parts.values()) for parts in counts)
    figure = _new_figure(1.35 + 0.42 * len(many))
    axes = figure.subplots()
    for place, report in enumerate(many):
        for state, (_, colour) in reversed(STATES.items()):  # rare ones last, and never thinner than a hairline
            spans = [(p.first - 0.5, p.last - p.first + 1) for p in report.coverage if p.state == state]
            edge = "#D0D0D0" if state == "omitted" else colour
            if spans:
                axes.broken_barh(spans, (place - 0.36, 0.72), facecolor=colour, edgecolor=edge, linewidth=0.5)
    axes.set_ylim(len(many) - 0.5, -0.5)
    axes.set_xlim(0.5, max(1, total) + 0.5)
    named = range(len(many)) if len(many) > 1 else []
    axes.set_yticks(named, [f"{many[place].budget_tokens:,}" for place in named])
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    _tidy(axes, x=THOUSANDS, labels=("message", "budget" if named else ""))
    figure.legend(handles=[_patch(name) for name, (said, _) in STATES.items() if any(c[name] for c in counts)], **BELOW)
    said = f" in {many[0].budget_tokens:,} tokens: {states_in_words(counts[0])}" if len(many) == 1 else ""
    return _headline(figure, f"{total:,} messages{said}" if total else "No messages yet")


def plot_turns(reports: Sequence[ReportData]) -> BudgetFigure:
    """Draws the prompts of a conversation in order: layers, budget, and the share that each has of the one before.

    Args:
        reports: in the order of the turns.

    Raises:
        ValueError: there are no reports.
    """
    many = _reports(reports)
    columns = [{name: tokens for name, tokens in _used_parts(report).items() if name != FREE} for report in many]
    budgets = [report.budget_tokens for report in many]
    steps = [number for number, report in enumerate(many, 1) if report.stability.compaction_step]
    figure = _new_figure(4.6)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3.2, 1))
    layers = _stacked_columns(upper, columns, [1] * len(many))
    edges = [place + 0.5 for place in range(len(many) + 1)]
    upper.stairs(budgets, edges, baseline=None, color=INK, linewidth=1.2, **DASHED)
    top = max(*budgets, *(sum(parts.values()) for parts in columns)) * 1.1
    upper.set_ylim(0, top)
    samples: list[Any] = [Line2D([], [], color=INK, linewidth=1.2, label="budget", **DASHED)]
    if steps:
        samples += upper.plot(steps, [top * 0.965] * len(steps), "v", color=INK, markersize=5, label="compaction step")
    shares = [report.stability.prompt_share or 0 for report in many]
    lower.stairs(shares, edges, fill=True, color=STATES["verbatim"][1], alpha=0.75)
    lower.set_ylim(0, 1)
    lower.set_yticks([0, 0.5, 1])
    lower.set_xlim(edges[0], edges[-1])
    lower.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    _tidy(upper, y=THOUSANDS, labels=("", "tokens"))
    _tidy(lower, x=THOUSANDS, y=PERCENT, labels=("prompt", "as before"))
    upper.legend(handles=[*samples, *layers[::-1]], **BESIDE)
    counted = f"{plural(len(many), 'prompt')}, {plural(len(steps), 'compaction step')}"
    return _headline(figure, f"{counted}; below: what a prompt shares with the last one")


def plot_replay(result: HasData) -> BudgetFigure:
    """Draws a panel per strategy with the tokens of every turn, cached ones pale, and below their running cost.

    Args:
        result: a `ReplayResult`.
    """
    data = result.to_dict()
    tracks, price_share = data["strategies"], data["price_share"]
    heights = [*[0.78] * len(tracks), 2.5]
    figure = _new_figure(0.7 + sum(heights))
    *panels, below = figure.subplots(len(tracks) + 1, 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0]
    most = max((turn["tokens"] for track in tracks for turn in track["turns"]), default=0) or 1
    lines: list[tuple[float, Line2D]] = []
    for place, (axes, track) in enumerate(zip(panels, tracks, strict=True)):
        colour, turns = STRATEGY_COLOURS[place % len(STRATEGY_COLOURS)], track["turns"]
        _replay_panel(axes, track, colour)
        axes.set_ylim(0, most * 1.05)
        sums = list(accumulate(turn["tokens"] - (1 - price_share) * turn["cached_tokens"] for turn in turns))
        [line] = below.plot([turn["number"] for turn in turns], sums, color=colour, linewidth=1.8)
        end = sums[-1] if sums else 0.0
        missing = f"\n({len(track['failures']):,} prompts missing)" if track["failures"] else ""
        line.set_label(f"{_words(track['name'])}: {end:,.0f}{missing}")
        lines.append((end, line))
    below.set_ylim(bottom=0)
    numbers = [turn["number"] for track in tracks for turn in track["turns"]] or [1]
    below.set_xlim(min(numbers) - 0.5, max(numbers) + 0.5)
    below.grid(visible=True, axis="y", color=GRID, linewidth=0.8)
    _tidy(below, x=THOUSANDS, y=THOUSANDS, labels=("turn", "paid for so far"))
    below.legend(handles=[line for _, line in sorted(lines, key=lambda one: -one[0])], **BESIDE)
    pale = f"pale: as in the prompt before, at {price_share:g} of the price"
    return _headline(figure, f"Tokens of every turn ({pale}), and what they cost")


def _replay_panel(axes: Axes, track: Mapping[str, Any], colour: str) -> None:
    """Draws the turns of one strategy: its tokens, and at the bottom of each the new ones."""
    turns = {turn["number"]: turn for turn in track["turns"]}
    places = range(min(turns, default=1), max(turns, default=1) + 1)
    edges = [place - 0.5 for place in (*places, places[-1] + 1)]
    sent = [turns[place]["tokens"] if place in turns else 0 for place in places]
    new = [total - turns[place]["cached_tokens"] if total else 0 for place, total in zip(places, sent, strict=True)]
    axes.stairs(new, edges, fill=True, color=colour, linewidth=0)
    axes.stairs(sent, edges, baseline=new, fill=True, color=colour, alpha=0.35, linewidth=0)
    if track["budget_tokens"] is not None:
        axes.axhline(track["budget_tokens"], color=FAINT, linewidth=0.8, **DASHED)
    name = f"{_words(track['name'])}\n{track['tokens']:,} sent\n{track['cached_share']:.0%} cached"
    axes.text(1.02, 0.5, name, transform=axes.transAxes, va="center", color=INK, fontsize=9)
    axes.locator_params(axis="y", nbins=3)
    _tidy(axes, y=THOUSANDS)


def _reports(reports: Sequence[ReportData]) -> list[ContextReport]:
    if not reports:
        raise ValueError("A plot needs at least one report")
    return [one if isinstance(one, ContextReport) else ContextReport.from_dict(one) for one in reports]


def _used_parts(report: ContextReport) -> Parts:
    return {
        **{str(layer.layer): layer.used_tokens for layer in report.layers},
        OVERHEAD: sum(report.overhead_tokens.values()),
        FREE: report.budget_tokens - report.total_tokens,
    }


def _states(report: ContextReport) -> Parts:
    counts = report.coverage_counts()
    return {state: counts[state] for state in STATES}


def _stacked_columns(axes: Axes, columns: Sequence[Parts], wholes: Sequence[int]) -> list[Patch]:
    """Draws columns at 1, 2, 3, ..., the many without gaps, and returns samples of their parts for a legend."""
    names = sorted(dict.fromkeys(name for parts in columns for name in parts), key=lambda name: name in OTHERS)
    narrow: dict[str, Any] = {"width": 0.78} if len(columns) <= MOST_NARROW else {"width": 1.0, "linewidth": 0}
    bottoms = [0.0] * len(columns)
    samples: list[Patch] = []
    for name in names:
        heights = [parts.get(name, 0) / whole for parts, whole in zip(columns, wholes, strict=True)]
        if any(heights):
            samples.append(_patch(name, names))
            axes.bar(range(1, len(columns) + 1), heights, bottom=bottoms, **{**_look(name, names), **narrow})
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
    axes.set_ylim(0, max(bottoms) * 1.07 or 1)  # there is a number above the highest column
    return samples


def _patch(name: str, names: Sequence[str] = ()) -> Patch:
    label = STATES[name][0] if name in STATES else label_of(name) if name in LAYER_COLOURS else _words(name, 19)
    return Patch(label=label, **{**_look(name, names), "edgecolor": PALE_GREY})


def _look(name: str, names: Sequence[str]) -> dict[str, Any]:
    """Returns the filling of a part and its edge; a white one has a thin line around it."""
    colour = STATES[name][1] if name in STATES else colours_of(names)[name]
    return {"facecolor": colour, "edgecolor": PALE_GREY if colour == WHITE else WHITE, "linewidth": 0.6}


def _words(text: str, most_characters: int = 40) -> str:
    """Returns a text as it is written: matplotlib reads `$` as mathematics and hides a leading `_`."""
    short = text if len(text) <= most_characters else text[: most_characters - 1] + "…"
    safe = short.replace("$", r"\$")
    return f" {safe}" if safe.startswith("_") else safe


def _new_figure(height: float) -> BudgetFigure:
    return BudgetFigure(figsize=(WIDTH, height), dpi=DPI, layout="constrained", facecolor="white")


def _tidy(
    axes: Axes, *, x: FuncFormatter | None = None, y: FuncFormatter | None = None, labels: tuple[str, str] = ("", "")
) -> None:
    """Names the axes, writes their numbers as asked, and takes away lines that carry no information."""
    for axis, formatter, label in ((axes.xaxis, x, labels[0]), (axes.yaxis, y, labels[1])):
        if formatter:
            axis.set_major_formatter(formatter)
        axis.set_label_text(label, color=INK)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(PALE_GREY)
    axes.tick_params(labelcolor=INK, labelsize=9, length=3, color=PALE_GREY)
    axes.tick_params(axis="y", length=0)


def _headline(figure: BudgetFigure, title: str) -> BudgetFigure:
    figure.suptitle(title, x=0.012, ha="left", fontsize=10, weight="bold", color=INK)
    return figure
