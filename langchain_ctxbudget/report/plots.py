"""Reports, allocations and replays as pictures (the extra `plots`: matplotlib).

Every function returns a matplotlib `Figure`. pyplot is not used, so no backend and no state is touched; a notebook
shows the figure, and `figure.savefig("budget.svg")` keeps it. A layer has the same colour in every figure; the colours
stay apart for the colour-blind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from itertools import accumulate
from typing import Any, Protocol, TypeAlias

import numpy as np

from langchain_ctxbudget.budget import AllocationStrategy, Situation
from langchain_ctxbudget.errors import BudgetError
from langchain_ctxbudget.report.report import ContextReport
from langchain_ctxbudget.report.view import (
    FREE,
    LAYER_COLOURS,
    OTHERS,
    OVERHEAD,
    RESERVE,
    STATES,
    colours_of,
    label_of,
    parts_of,
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
"""Tokens by part of the request (layers, overhead, reserve, free), or messages by state."""

INK, FAINT, PALE_GREY, GRID, WHITE = "#222222", "#8A8A8A", "#B0B0B0", "#E6E6E6", "#FFFFFF"
WIDTH, DPI = 8.0, 100
"""Inches and dots per inch: 800 pixels."""
VISIBLE, LABELLED = 0.004, 0.055
"""Shares of a bar: below the first a part is too thin for the legend, from the second on it has room for a number."""
MOST_NARROW = 40
"""More columns than these stand without gaps."""
BRIGHT = 150
"""Colours above this brightness (of 255) carry black numbers."""
STRATEGY_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#222222", "#5B1A6B")
"""For strategies that are replayed beside each other; apart for the colour-blind (six of Okabe and Ito)."""
AXES = {"total_tokens": "budget, tokens", "message_count": "messages in the conversation"}
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


def plot_report(report: ReportData) -> BudgetFigure:
    """Draws one prompt: planned tokens of every layer (pale) and used ones (full)."""
    [found] = _reports([report])
    parts = parts_of(found)
    height = 1.5 + 0.3 * len(parts)
    figure = BudgetFigure(figsize=(WIDTH, height), dpi=DPI, facecolor="white")
    axes = figure.add_axes((0.19, 0.55 / height, 0.55, 1 - 1.5 / height))

    def cells(place: float, texts: Sequence[str], colour: str) -> None:
        for right, text in zip((-0.015, 1.14, 1.26, 1.42), texts, strict=True):
            axes.text(right, place, text, transform=axes.get_yaxis_transform(), ha="right", va="center", color=colour)

    for place, part in enumerate(parts):
        if part.planned is not None:
            axes.barh(place, part.planned, height=0.8, color=part.colour, alpha=0.28, linewidth=0)
        axes.barh(place, part.tokens, height=0.42, color=part.colour, linewidth=0)
        label = part.label if part.planned is None else _label(part.name)
        planned = "" if part.planned is None else f"{part.planned:,}"
        cells(place, (label, f"{part.tokens:,}", f"{part.share:.1%}", planned), INK)
    cells(-0.95, ("", "used", "share", "planned"), FAINT)
    axes.set_ylim(len(parts) - 0.4, -0.6)
    axes.set_yticks([])
    axes.set_xlabel("tokens")
    axes.grid(visible=True, axis="x", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    _tidy(axes, x=THOUSANDS)
    forecast = ", forecast" if found.forecast else ""
    facts = (
        f"pale: planned, full: used; {_words(found.allocation_strategy)} allocation, "
        f"{found.history_strategy} history, {found.count_mode} counts ({_words(found.tokenizer)})"
    )
    title = f"{found.total_tokens:,} of {found.budget_tokens:,} tokens used{forecast}"
    figure.text(0.012, 1 - 0.12 / height, title, va="top", color=INK, weight="bold")
    figure.text(0.012, 1 - 0.34 / height, facts, va="top", color=FAINT, weight="normal")
    return figure


def plot_what_if(reports: Sequence[ReportData], *, shares: bool = False) -> BudgetFigure:
    """Draws the same prompt at several budgets: the use of every layer, and the states of the messages.

    Args:
        reports: from `ContextPipeline.what_if`, or any others; one column each, in the given order.
        shares: True shows shares of their budget instead of tokens.

    Raises:
        ValueError: there are no reports.
    """
    many = _reports(reports)
    columns = [_used_parts(report) for report in many]
    colours = colours_of(name for parts in columns for name in parts)
    figure = _new_figure(5.6)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(1.7, 1))
    wholes = [report.budget_tokens if shares else 1 for report in many]
    shown = _stacked_columns(upper, columns, wholes, colours)
    for place, (report, whole) in enumerate(zip(many, wholes, strict=True), 1):
        at, used = (place, report.budget_tokens / whole), f"{report.total_tokens:,}"
        upper.annotate(used, at, (0, 2), textcoords="offset points", ha="center", color=INK, fontsize=9)
    upper.set_ylabel("share of the budget" if shares else "tokens")
    counts = [report.coverage_counts() for report in many]
    states: list[Parts] = [{state: parts[state] for state in STATES} for parts in counts]
    _stacked_columns(lower, states, [1] * len(many), {state: colour for state, (_, colour) in STATES.items()})
    lower.set_ylabel("messages")
    _tidy(upper, y=PERCENT if shares else THOUSANDS)
    _tidy(lower, y=THOUSANDS)
    lower.set_xticks(range(1, len(many) + 1), [f"{report.budget_tokens:,}" for report in many])
    lower.set_xlabel(AXES["total_tokens"])
    _headline(figure, "What another budget gives (above each column: tokens used)")
    if handles := _state_patches(counts):
        lower.legend(handles=handles[::-1], **BESIDE)
    upper.legend(handles=[_part_patch(name, colours) for name in reversed(shown)], **BESIDE)
    return figure


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
    axes.set_yticks([])
    if len(many) > 1:
        axes.set_yticks(range(len(many)), [f"{report.budget_tokens:,}" for report in many])
        axes.set_ylabel("budget")
    axes.set_xlabel("message")
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    _tidy(axes, x=THOUSANDS)
    said = f" in {many[0].budget_tokens:,} tokens: {states_in_words(counts[0])}" if len(many) == 1 else ""
    _headline(figure, f"{total:,} messages{said}" if total else "No messages yet")
    figure.legend(handles=_state_patches(counts), **BELOW)
    return figure


def plot_turns(reports: Sequence[ReportData]) -> BudgetFigure:
    """Draws the prompts of a conversation in order: layers, budget, and the share that each has of the one before.

    Args:
        reports: in the order of the turns.

    Raises:
        ValueError: there are no reports.
    """
    many = _reports(reports)
    columns = [{name: tokens for name, tokens in _used_parts(report).items() if name != FREE} for report in many]
    colours = colours_of(name for parts in columns for name in parts)
    budgets = [report.budget_tokens for report in many]
    steps = [number for number, report in enumerate(many, 1) if report.stability.compaction_step]
    figure = _new_figure(4.6)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3.2, 1))
    shown = _stacked_columns(upper, columns, [1] * len(many), colours)
    edges = [place + 0.5 for place in range(len(many) + 1)]
    upper.stairs(budgets, edges, baseline=None, color=INK, linewidth=1.2, **DASHED)
    top = max(*budgets, *(sum(parts.values()) for parts in columns)) * 1.1
    if steps:
        upper.plot(steps, [top * 0.965] * len(steps), "v", color=INK, markersize=5)
    upper.set_ylim(0, top)
    upper.set_ylabel("tokens")
    shares = [report.stability.prompt_share or 0 for report in many]
    lower.stairs(shares, edges, fill=True, color=STATES["verbatim"][1], alpha=0.75)
    lower.set_ylim(0, 1)
    lower.set_yticks([0, 0.5, 1])
    lower.set_ylabel("as before")
    lower.set_xlim(0.5, len(many) + 0.5)
    lower.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    lower.set_xlabel("prompt")
    _tidy(upper, y=THOUSANDS)
    _tidy(lower, x=THOUSANDS, y=PERCENT)
    line = Line2D([], [], color=INK, linewidth=1.2, label="budget", **DASHED)
    mark = Line2D([], [], color=INK, marker="v", markersize=5, linestyle="", label="compaction step")
    samples = [_part_patch(name, colours) for name in reversed(shown)]
    upper.legend(handles=[line, *([mark] if steps else []), *samples], **BESIDE)
    counted = f"{plural(len(many), 'prompt')}, {plural(len(steps), 'compaction step')}"
    _headline(figure, f"{counted}; below: what a prompt shares with the last one")
    return figure


def plot_strategies(situation: Situation, strategies: Sequence[AllocationStrategy]) -> BudgetFigure:
    """Draws several strategies' divisions of one budget in the same situation, before layers leave anything unspent.

    Args:
        situation: the situation to divide in.
        strategies: one bar each, in the given order; one that refuses the situation says so.

    Raises:
        ValueError: there are no strategies.
    """
    if not strategies:
        raise ValueError("plot_strategies needs at least one strategy")
    bars = [_divided(strategy, situation) for strategy in strategies]
    colours = colours_of(name for parts in bars for name in parts)
    figure = _new_figure(1.75 + 0.5 * len(bars))
    axes = figure.subplots()
    for place, parts in enumerate(bars):
        if not parts:
            axes.text(0, place, "  refuses this situation", va="center", color=FAINT, style="italic")
        start = 0
        for name, tokens in parts.items():
            if tokens:
                axes.barh(place, tokens, left=start, height=0.66, **_look(name, colours))
            if tokens >= situation.total_tokens * LABELLED and name != FREE:
                _number(axes, start + tokens / 2, place, tokens, colours[name])
            start += tokens
    axes.set_yticks(range(len(bars)), [_words(strategy.name) for strategy in strategies])
    axes.set_ylim(len(bars) - 0.5, -0.5)
    axes.set_xlim(0, situation.total_tokens)
    axes.set_xlabel("tokens")
    _tidy(axes, x=THOUSANDS)
    _headline(figure, f"One situation, {situation.total_tokens:,} tokens")
    figure.legend(handles=[_part_patch(name, colours) for name in _seen(bars)], **BELOW)
    return figure


def plot_allocation(
    strategies: AllocationStrategy | Sequence[AllocationStrategy],
    situations: Sequence[Situation],
    *,
    x: str = "total_tokens",
    shares: bool = False,
) -> BudgetFigure:
    """Draws a strategy's division of the budget as the situation changes; one panel per strategy.

    Where a strategy refuses a situation (a system prompt over its share, for instance) there is a gap.

    Args:
        strategies: one or several.
        situations: in the order of the axis.
        x: the field of the situation that changes, for instance `"message_count"`.
        shares: True shows shares of the budget instead of tokens.

    Raises:
        ValueError: there are no strategies, or fewer than two situations.
    """
    several = list(strategies) if isinstance(strategies, Sequence) else [strategies]
    if not several or len(situations) <= 1:
        raise ValueError("plot_allocation needs at least one strategy and two situations")
    places = [getattr(situation, x) for situation in situations]
    wholes = [situation.total_tokens if shares else 1 for situation in situations]
    columns = [[_divided(strategy, situation) for situation in situations] for strategy in several]
    drawn = [parts for column in columns for parts in column]
    colours = colours_of(name for parts in drawn for name in parts)
    figure = _new_figure(3.9)
    panels = figure.subplots(1, len(several), sharey=True, squeeze=False)[0]
    for axes, strategy, column in zip(panels, several, columns, strict=True):
        lows = [0.0 if parts else float("nan") for parts in column]
        for name in _in_order(column):
            heights = [parts.get(name, 0) / max(1, whole) for parts, whole in zip(column, wholes, strict=True)]
            highs = [low + height for low, height in zip(lows, heights, strict=True)]
            if any(heights):
                axes.fill_between(places, lows, highs, **_look(name, colours))
            lows = highs
        axes.set_title(_words(strategy.name), loc="left", fontsize=10, weight="bold", color=INK)
        axes.set_xlabel(AXES.get(x, x.replace("_", " ")))
        if x == "total_tokens" and max(places) > places[0] > 0:
            axes.set_xscale("log")
            axes.set_xticks(places[0] * 2 ** np.arange(int(np.log2(max(places) / places[0])) + 1))
            axes.minorticks_off()
        axes.set_xlim(places[0], places[-1])
        axes.set_ylim(0, max(s.total_tokens / whole for s, whole in zip(situations, wholes, strict=True)))
        _tidy(axes, x=THOUSANDS, y=PERCENT if shares else THOUSANDS)
    panels[0].set_ylabel("share of the budget" if shares else "tokens")
    figure.legend(handles=[_part_patch(name, colours) for name in _seen(drawn)], **BELOW)
    return figure


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
    ends: list[tuple[float, Patch]] = []
    for place, (axes, track) in enumerate(zip(panels, tracks, strict=True)):
        colour, turns = STRATEGY_COLOURS[place % len(STRATEGY_COLOURS)], track["turns"]
        _replay_panel(axes, track, colour)
        axes.set_ylim(0, most * 1.05)
        sums = list(accumulate(turn["tokens"] - (1 - price_share) * turn["cached_tokens"] for turn in turns))
        below.plot([turn["number"] for turn in turns], sums, color=colour, linewidth=1.8)
        end = sums[-1] if sums else 0.0
        missing = f"\n({len(track['failures']):,} prompts missing)" if track["failures"] else ""
        ends.append((end, _patch(colour, f"{_words(track['name'])}: {end:,.0f}{missing}")))
    below.set_ylim(bottom=0)
    numbers = [turn["number"] for track in tracks for turn in track["turns"]] or [1]
    below.set_xlim(min(numbers) - 0.5, max(numbers) + 0.5)
    below.set_ylabel("paid for so far")
    below.set_xlabel("turn")
    below.grid(visible=True, axis="y", color=GRID, linewidth=0.8)
    _tidy(below, x=THOUSANDS, y=THOUSANDS)
    below.legend(handles=[sample for _, sample in sorted(ends, key=lambda end: -end[0])], **BESIDE)
    pale = f"pale: as in the prompt before, at {price_share:g} of the price"
    _headline(figure, f"Tokens of every turn ({pale}), and what they cost")
    return figure


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
    """Returns the parts of a prompt; a strategy's reserve for the answer is free, as nobody used it."""
    return {
        **{str(layer.layer): layer.used_tokens for layer in report.layers},
        OVERHEAD: sum(report.overhead_tokens.values()),
        FREE: report.budget_tokens - report.total_tokens,
    }


def _divided(strategy: AllocationStrategy, situation: Situation) -> Parts:
    """Returns a strategy's plan, which is empty where it refuses."""
    try:
        allocation = strategy.allocate(situation)
    except BudgetError:
        return {}
    order = dict.fromkeys([*LAYER_COLOURS, *map(str, allocation.tokens)])
    parts = {name: allocation.tokens.get(name, 0) for name in order}
    parts |= {OVERHEAD: situation.overhead_tokens, RESERVE: allocation.reserve_tokens}
    return {**parts, FREE: max(0, allocation.total_tokens - sum(parts.values()))}


def _in_order(many: Sequence[Parts]) -> list[str]:
    """Returns the names of all parts: layers first, overhead and the like last."""
    return sorted(dict.fromkeys(name for parts in many for name in parts), key=lambda name: name in OTHERS)


def _seen(many: Sequence[Parts]) -> list[str]:
    """Returns the parts that are more than a hairline in some bar, in their order."""
    return [name for name in _in_order(many) if any(p.get(name, 0) > VISIBLE * sum(p.values()) for p in many)]


def _new_figure(height: float) -> BudgetFigure:
    return BudgetFigure(figsize=(WIDTH, height), dpi=DPI, layout="constrained", facecolor="white")


def _label(name: str) -> str:
    return label_of(name) if name in LAYER_COLOURS else _words(name, 19)


def _words(text: str, most_characters: int = 40) -> str:
    """Returns a text as it is written: matplotlib reads `$` as mathematics and hides a leading `_`."""
    short = text if len(text) <= most_characters else text[: most_characters - 1] + "…"
    safe = short.replace("$", r"\$")
    return f" {safe}" if safe.startswith("_") else safe


def _look(name: str, colours: Mapping[str, str]) -> dict[str, Any]:
    """Returns the filling of a part; one that is white or nearly so has a thin line around it."""
    edge = PALE_GREY if colours[name] in (WHITE, OTHERS[RESERVE]) else WHITE
    look = {"facecolor": colours[name], "edgecolor": edge, "linewidth": 0.6}
    return {**look, "hatch": "////"} if name == RESERVE else look


def _patch(colour: str, label: str) -> Patch:
    return Patch(facecolor=colour, edgecolor=PALE_GREY, linewidth=0.6, label=label)


def _part_patch(name: str, colours: Mapping[str, str]) -> Patch:
    sample = _patch(colours[name], _label(name))
    if name == RESERVE:
        sample.set_hatch("////")
    return sample


def _state_patches(counts: Sequence[Mapping[Any, int]]) -> list[Patch]:
    return [_patch(colour, said) for state, (said, colour) in STATES.items() if any(parts[state] for parts in counts)]


def _stacked_columns(
    axes: Axes, columns: Sequence[Parts], wholes: Sequence[int], colours: Mapping[str, str]
) -> list[str]:
    """Draws columns at 1, 2, 3, ..., the many without gaps, and returns the parts that are seen in them."""
    narrow: dict[str, Any] = {"width": 0.78} if len(columns) <= MOST_NARROW else {"width": 1.0, "linewidth": 0}
    bottoms = [0.0] * len(columns)
    for name in _in_order(columns):
        heights = [parts.get(name, 0) / whole for parts, whole in zip(columns, wholes, strict=True)]
        if any(heights):
            axes.bar(range(1, len(columns) + 1), heights, bottom=bottoms, **{**_look(name, colours), **narrow})
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
    axes.set_ylim(0, max(bottoms) * 1.07 or 1)  # there is a number above the highest column
    return _seen(columns)


def _number(axes: Axes, x: float, y: float, tokens: int, colour: str) -> None:
    """Writes a number in the middle of a part, black or white, whichever is read better on its colour."""
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    ink = INK if 0.299 * red + 0.587 * green + 0.114 * blue > BRIGHT else WHITE
    box = {"facecolor": colour, "edgecolor": "none", "pad": 1.5}
    axes.text(x, y, f"{tokens:,}", ha="center", va="center", color=ink, fontsize=8, bbox=box)


def _tidy(axes: Axes, *, x: FuncFormatter | None = None, y: FuncFormatter | None = None) -> None:
    """Writes the numbers of the axes as asked, and takes away lines that carry no information."""
    if x:
        axes.xaxis.set_major_formatter(x)
    if y:
        axes.yaxis.set_major_formatter(y)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(PALE_GREY)
    axes.tick_params(labelcolor=INK, labelsize=9, length=3, color=PALE_GREY)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.label.set_color(INK)
    axes.yaxis.label.set_color(INK)


def _headline(figure: BudgetFigure, title: str) -> None:
    figure.suptitle(title, x=0.012, ha="left", fontsize=10, weight="bold", color=INK)
