"""Reports and allocations as pictures (the extra `plots`: matplotlib).

Every function takes plain data and gives a matplotlib `Figure`. pyplot is not used, so no backend and no state is
touched; a notebook shows the figure, and `figure.savefig("budget.svg")` keeps it. A layer has the same colour in every
figure; the colours stay apart for the colour-blind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

from langchain_ctxbudget.reporting.parts import (
    AXES,
    FREE,
    HATCHES,
    LAYERS,
    OTHERS,
    OVERHEAD,
    RESERVE,
    STATES,
    Parts,
    ReportData,
    S,
    Strategy,
    colours_of,
    divided,
    in_order,
    messages_of,
    plain,
    seen,
    used_parts,
)

try:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch
    from matplotlib.ticker import FuncFormatter, NullFormatter
except ImportError as error:  # pragma: no cover - the tests have it
    raise ImportError("Plots need matplotlib: pip install 'langchain-ctxbudget[plots]'") from error

__all__ = ["BudgetFigure", "plot_allocation", "plot_report", "plot_strategies", "plot_what_if"]

INK, FAINT, EDGE = "#222222", "#8A8A8A", "#FFFFFF"
WIDTH, DPI = 8.0, 100
"""Inches and dots per inch: 800 pixels."""
WIDE_RANGE = 8
"""Budgets that differ by this factor get a logarithmic axis."""
BROAD, NARROW = 0.8, 0.42
"""Heights of the bars for what was planned and for what was used."""
LEGEND_COLUMNS = 5
HEADROOM = 1.07
"""Heights of an axis and of its highest column: there is a number above it."""
LABELLED = 0.055
"""Share of a bar from which on a number fits into a part."""
LONGEST_NAME, LONGEST_TEXT = 19, 40
"""Characters of a layer's name, and of other texts, that have room."""
MOST_TICKS = 6
BRIGHT = 150
"""Colours above this brightness (of 255) carry black numbers."""
REPORT_BOX = (0.19, 0.55)
"""Where the bars of a report begin, and how broad they are together; shares of the figure."""
COLUMNS = (1.14, 1.26, 1.42)
"""Right edges of the numbers beside them, in widths of the bars."""


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
    """One prompt: what every layer was to have (pale) and what it used (full).

    Args:
        report: a `ContextReport` or what its `to_dict` gives.

    Example:
        >>> from langchain_ctxbudget import ContextPipeline
        >>> context = ContextPipeline().assemble("Hello", user_id="ada", conversation_id="c1")
        >>> plot_report(context.report).axes[0].get_xlabel()
        'tokens'
    """
    data = plain(report)
    budget, total = data["budget_tokens"], data["total_tokens"]
    colours = colours_of(layer["layer"] for layer in data["layers"])
    rows = [
        (_label(part["layer"]), part["used_tokens"], part["allocated_tokens"], colours[part["layer"]])
        for part in data["layers"]
    ]
    rows += [(name.capitalize(), tokens, None, OTHERS[OVERHEAD]) for name, tokens in data["overhead_tokens"].items()]
    height = 1.5 + 0.3 * len(rows)
    figure = BudgetFigure(figsize=(WIDTH, height), dpi=DPI, facecolor="white")
    axes = figure.add_axes((REPORT_BOX[0], 0.55 / height, REPORT_BOX[1], 1 - 1.5 / height))
    for place, (label, used, planned, colour) in enumerate(rows):
        if planned is not None:
            axes.barh(place, planned, height=BROAD, color=colour, alpha=0.28, linewidth=0)
        axes.barh(place, used, height=NARROW, color=colour, linewidth=0)
        axes.text(-0.015, place, label, transform=axes.get_yaxis_transform(), ha="right", va="center", color=INK)
        cells = (f"{used:,}", f"{used / budget:.1%}" if budget else "", "" if planned is None else f"{planned:,}")
        _cells(axes, place, cells, INK)
    _cells(axes, -0.95, ("used", "share", "planned"), FAINT)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_yticks([])
    axes.set_xlabel("tokens")
    axes.xaxis.set_major_formatter(_THOUSANDS)
    axes.grid(visible=True, axis="x", color="#E6E6E6", linewidth=0.8)
    axes.set_axisbelow(True)
    _tidy(axes)
    forecast = ", forecast" if data["forecast"] else ""
    facts = (
        f"pale: planned, full: used; {_words(data['allocation_strategy'])} allocation, "
        f"{data['history_strategy']} history, {data['count_mode']} counts ({_words(data['tokenizer'])})"
    )
    for line, (text, weight, colour) in enumerate(
        ((f"{total:,} of {budget:,} tokens used{forecast}", "bold", INK), (facts, "normal", FAINT))
    ):
        figure.text(0.012, 1 - (0.12 + 0.22 * line) / height, text, va="top", color=colour, weight=weight)
    return figure


def plot_what_if(reports: Sequence[ReportData], *, shares: bool = False) -> BudgetFigure:
    """The same prompt at several budgets: what every layer uses, and what becomes of the messages.

    Args:
        reports: from `ContextPipeline.what_if`, or any others; one column each, in the given order.
        shares: whether columns show shares of their budget instead of tokens.

    Raises:
        ValueError: there are no reports.
    """
    many = [plain(report) for report in reports]
    if not many:
        raise ValueError("plot_what_if needs at least one report")
    figure = _figure(5.6)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(1.7, 1))
    columns = [used_parts(data) for data in many]
    colours = colours_of(name for parts in columns for name in parts)
    wholes = [data["budget_tokens"] if shares else 1 for data in many]
    shown = _stacked_columns(upper, columns, wholes, colours)
    for place, (data, whole) in enumerate(zip(many, wholes, strict=True)):
        top, used = data["budget_tokens"] / max(1, whole), f"{data['total_tokens']:,}"
        upper.annotate(used, (place, top), (0, 2), textcoords="offset points", ha="center", color=INK, fontsize=9)
    upper.set_ylabel("share of the budget" if shares else "tokens")
    upper.yaxis.set_major_formatter(_PERCENT if shares else _THOUSANDS)
    counts = [messages_of(data) for data in many]
    _stacked_columns(lower, counts, [1] * len(many), {state: colour for state, (_, colour) in STATES.items()})
    lower.set_ylabel("messages")
    lower.yaxis.set_major_formatter(_THOUSANDS)
    lower.set_xticks(range(len(many)), [f"{data['budget_tokens']:,}" for data in many])
    lower.set_xlabel(AXES["total_tokens"])
    for axes in (upper, lower):
        _tidy(axes)
    _headline(figure, "What another budget gives (above each column: tokens used)")
    if states := [state for state in STATES if any(parts[state] for parts in counts)]:
        lower.legend(handles=[_patch(STATES[state][1], STATES[state][0]) for state in reversed(states)], **_BESIDE)
    upper.legend(handles=[_part_patch(name, colours) for name in reversed(shown)], **_BESIDE)
    return figure


def plot_strategies(situation: S, strategies: Sequence[Strategy[S]]) -> BudgetFigure:
    """How several strategies divide one budget in the same situation, before producers leave anything unspent.

    Args:
        situation: what there is to divide.
        strategies: one bar each, in the given order; one that refuses the situation says so.

    Raises:
        ValueError: there are no strategies.
    """
    if not strategies:
        raise ValueError("plot_strategies needs at least one strategy")
    bars = [divided(strategy, situation) for strategy in strategies]
    colours = colours_of(name for parts in bars if parts for name in parts)
    figure = _figure(1.75 + 0.5 * len(bars))
    axes = figure.subplots()
    for place, parts in enumerate(bars):
        if parts is None:
            axes.text(0, place, "  refuses this situation", va="center", color=FAINT, style="italic")
            continue
        start = 0
        for name, tokens in ((name, tokens) for name, tokens in parts.items() if tokens):
            axes.barh(place, tokens, left=start, height=0.66, **_look(name, colours))
            if tokens >= situation.total_tokens * LABELLED and name != FREE:
                _number(axes, start + tokens / 2, place, tokens, colours[name])
            start += tokens
    axes.set_yticks(range(len(bars)), [_words(strategy.name) for strategy in strategies])
    axes.set_ylim(len(bars) - 0.5, -0.5)
    axes.set_xlim(0, situation.total_tokens)
    axes.set_xlabel("tokens")
    axes.xaxis.set_major_formatter(_THOUSANDS)
    _tidy(axes)
    _headline(figure, f"One situation, {situation.total_tokens:,} tokens")
    _legend(figure, [parts for parts in bars if parts], colours)
    return figure


def plot_allocation(
    strategies: Strategy[S] | Sequence[Strategy[S]],
    situations: Sequence[S],
    *,
    x: str = "total_tokens",
    shares: bool = False,
) -> BudgetFigure:
    """How a strategy divides the budget as the situation changes; one panel per strategy.

    Where a strategy refuses a situation (a system prompt over its share, for instance) there is a gap.

    Args:
        strategies: one or several.
        situations: in the order of the axis.
        x: the field of the situation that changes, for instance `"message_count"`.
        shares: whether to show shares of the budget instead of tokens.

    Raises:
        ValueError: there are no strategies, or fewer than two situations.
    """
    several: list[Strategy[S]] = list(strategies) if isinstance(strategies, Sequence) else [strategies]
    if not several or len(situations) <= 1:
        raise ValueError("plot_allocation needs at least one strategy and two situations")
    places = [getattr(situation, x) for situation in situations]
    wholes = [situation.total_tokens if shares else 1 for situation in situations]
    columns = [[divided(strategy, situation) for situation in situations] for strategy in several]
    drawn = [parts for column in columns for parts in column if parts]
    colours = colours_of(name for parts in drawn for name in parts)
    figure = _figure(3.9)
    panels = figure.subplots(1, len(several), sharey=True, squeeze=False)[0]
    for axes, strategy, column in zip(panels, several, columns, strict=True):
        _areas(axes, places, column, wholes, colours)
        axes.set_title(_words(strategy.name), loc="left", fontsize=10, weight="bold", color=INK)
        axes.set_xlabel(AXES.get(x, x.replace("_", " ")))
        if x == "total_tokens" and min(places) > 0 and max(places) >= WIDE_RANGE * min(places):
            axes.set_xscale("log")
            axes.set_xticks(_doublings(min(places), max(places)))
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.minorticks_off()
        axes.set_xlim(places[0], places[-1])
        axes.set_ylim(0, max(s.total_tokens / whole for s, whole in zip(situations, wholes, strict=True)))
        axes.xaxis.set_major_formatter(_THOUSANDS)
        axes.yaxis.set_major_formatter(_PERCENT if shares else _THOUSANDS)
        _tidy(axes)
    panels[0].set_ylabel("share of the budget" if shares else "tokens")
    _legend(figure, drawn, colours)
    return figure


# Drawing

_THOUSANDS = FuncFormatter(lambda value, _: f"{value:,.0f}")
_PERCENT = FuncFormatter(lambda value, _: f"{value:.0%}")
_BESIDE: dict[str, Any] = {
    "loc": "upper left",
    "bbox_to_anchor": (1.01, 1.0),
    "frameon": False,
    "borderaxespad": 0.0,
    "handlelength": 1.0,
    "handleheight": 1.0,
    "fontsize": 9,
}


def _doublings(first: int, last: int) -> list[int]:
    """Round numbers between two that grow twofold, or fourfold where there are many."""
    marks = [500 * 2**power for power in range(16) if first <= 500 * 2**power <= last]
    return marks[:: 2 if len(marks) > MOST_TICKS else 1]


def _figure(height: float) -> BudgetFigure:
    return BudgetFigure(figsize=(WIDTH, height), dpi=DPI, layout="constrained", facecolor="white")


def _label(name: str) -> str:
    return f"{name} {LAYERS[name][0]}" if name in LAYERS else _words(name, LONGEST_NAME)


def _words(text: str, most_characters: int = LONGEST_TEXT) -> str:
    """A text of the application's as it is written: matplotlib reads `$` as mathematics and hides a leading `_`."""
    short = text if len(text) <= most_characters else text[: most_characters - 1] + "…"
    safe = short.replace("$", r"\$")
    return f" {safe}" if safe.startswith("_") else safe


def _look(name: str, colours: Mapping[str, str]) -> dict[str, Any]:
    """How a part is filled: what is not used is empty inside a thin line."""
    if name in (FREE, RESERVE):
        return {"facecolor": colours[name], "edgecolor": "#B0B0B0", "linewidth": 0.6, "hatch": HATCHES.get(name)}
    return {"facecolor": colours[name], "edgecolor": EDGE, "linewidth": 0.6}


def _patch(colour: str, label: str) -> Patch:
    return Patch(facecolor=colour, edgecolor="#B0B0B0", linewidth=0.6, label=label)


def _part_patch(name: str, colours: Mapping[str, str]) -> Patch:
    patch = _patch(colours[name], _label(name))
    if name in HATCHES:
        patch.set_hatch(HATCHES[name])
    return patch


def _stacked_columns(
    axes: Axes, columns: Sequence[Parts], wholes: Sequence[int], colours: Mapping[str, str]
) -> list[str]:
    """Draw columns; the parts that are seen in them."""
    bottoms = [0.0] * len(columns)
    for name in in_order(columns):
        heights = [parts.get(name, 0) / max(1, whole) for parts, whole in zip(columns, wholes, strict=True)]
        if any(heights):
            axes.bar(range(len(columns)), heights, bottom=bottoms, width=0.78, **_look(name, colours))
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
    axes.set_ylim(0, max(bottoms) * HEADROOM or 1)
    return seen(columns)


def _areas(
    axes: Axes, places: Sequence[int], column: Sequence[Parts | None], wholes: Sequence[int], colours: Mapping[str, str]
) -> None:
    """Draw stacked areas, with gaps where there is nothing."""
    gap = float("nan")
    lows = [gap if parts is None else 0.0 for parts in column]
    for name in in_order([parts for parts in column if parts]):
        heights = [(parts or {}).get(name, 0) / max(1, whole) for parts, whole in zip(column, wholes, strict=True)]
        highs = [low + height for low, height in zip(lows, heights, strict=True)]
        if any(heights):
            axes.fill_between(places, lows, highs, **_look(name, colours))
        lows = highs


def _cells(axes: Axes, place: float, cells: Sequence[str], colour: str) -> None:
    """Numbers beside a bar, right-aligned in columns."""
    for right, cell in zip(COLUMNS, cells, strict=True):
        axes.text(right, place, cell, transform=axes.get_yaxis_transform(), ha="right", va="center", color=colour)


def _tidy(axes: Axes) -> None:
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color("#B0B0B0")
    axes.tick_params(labelcolor=INK, labelsize=9, length=3, color="#B0B0B0")
    axes.tick_params(axis="y", length=0)
    axes.xaxis.label.set_color(INK)
    axes.yaxis.label.set_color(INK)


def _number(axes: Axes, x: float, y: float, tokens: int, colour: str) -> None:
    """A number in the middle of a part, black or white, whichever is read better on its colour."""
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    ink = INK if 0.299 * red + 0.587 * green + 0.114 * blue > BRIGHT else "#FFFFFF"
    box = {"facecolor": colour, "edgecolor": "none", "pad": 1.5}
    axes.text(x, y, f"{tokens:,}", ha="center", va="center", color=ink, fontsize=8, bbox=box)


def _headline(figure: BudgetFigure, title: str) -> None:
    figure.suptitle(title, x=0.012, ha="left", fontsize=10, weight="bold", color=INK)


def _legend(figure: BudgetFigure, many: Sequence[Parts], colours: Mapping[str, str]) -> None:
    """One legend below, of what is seen."""
    figure.legend(
        handles=[_part_patch(name, colours) for name in seen(many)],
        loc="outside lower left",
        ncols=LEGEND_COLUMNS,
        frameon=False,
        handlelength=1.0,
        handleheight=1.0,
        columnspacing=1.4,
        fontsize=9,
    )
