"""Pictures of how strategies divide a budget, before anything is assembled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from langchain_ctxbudget.reporting.drawing import (
    FAINT,
    INK,
    PERCENT,
    THOUSANDS,
    BudgetFigure,
    headline,
    legend,
    look,
    new_figure,
    tidy,
    words,
)
from langchain_ctxbudget.reporting.parts import AXES, FREE, Parts, S, Strategy, colours_of, divided, in_order

WIDE_RANGE = 8
"""Budgets that differ by this factor get a logarithmic axis."""
LABELLED = 0.055
"""Share of a bar from which on a number fits into a part."""
MOST_TICKS = 6
BRIGHT = 150
"""Colours above this brightness (of 255) carry black numbers."""


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
    figure = new_figure(1.75 + 0.5 * len(bars))
    axes = figure.subplots()
    for place, parts in enumerate(bars):
        if parts is None:
            axes.text(0, place, "  refuses this situation", va="center", color=FAINT, style="italic")
            continue
        start = 0
        for name, tokens in ((name, tokens) for name, tokens in parts.items() if tokens):
            axes.barh(place, tokens, left=start, height=0.66, **look(name, colours))
            if tokens >= situation.total_tokens * LABELLED and name != FREE:
                _number(axes, start + tokens / 2, place, tokens, colours[name])
            start += tokens
    axes.set_yticks(range(len(bars)), [words(strategy.name) for strategy in strategies])
    axes.set_ylim(len(bars) - 0.5, -0.5)
    axes.set_xlim(0, situation.total_tokens)
    axes.set_xlabel("tokens")
    axes.xaxis.set_major_formatter(THOUSANDS)
    tidy(axes)
    headline(figure, f"One situation, {situation.total_tokens:,} tokens")
    legend(figure, [parts for parts in bars if parts], colours)
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
    figure = new_figure(3.9)
    panels = figure.subplots(1, len(several), sharey=True, squeeze=False)[0]
    for axes, strategy, column in zip(panels, several, columns, strict=True):
        _areas(axes, places, column, wholes, colours)
        axes.set_title(words(strategy.name), loc="left", fontsize=10, weight="bold", color=INK)
        axes.set_xlabel(AXES.get(x, x.replace("_", " ")))
        if x == "total_tokens" and min(places) > 0 and max(places) >= WIDE_RANGE * min(places):
            axes.set_xscale("log")
            axes.set_xticks(_doublings(min(places), max(places)))
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.minorticks_off()
        axes.set_xlim(places[0], places[-1])
        axes.set_ylim(0, max(s.total_tokens / whole for s, whole in zip(situations, wholes, strict=True)))
        axes.xaxis.set_major_formatter(THOUSANDS)
        axes.yaxis.set_major_formatter(PERCENT if shares else THOUSANDS)
        tidy(axes)
    panels[0].set_ylabel("share of the budget" if shares else "tokens")
    legend(figure, drawn, colours)
    return figure


def _doublings(first: int, last: int) -> list[int]:
    """Round numbers between two that grow twofold, or fourfold where there are many."""
    marks = [500 * 2**power for power in range(16) if first <= 500 * 2**power <= last]
    return marks[:: 2 if len(marks) > MOST_TICKS else 1]


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
            axes.fill_between(places, lows, highs, **look(name, colours))
        lows = highs


def _number(axes: Axes, x: float, y: float, tokens: int, colour: str) -> None:
    """A number in the middle of a part, black or white, whichever is read better on its colour."""
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    ink = INK if 0.299 * red + 0.587 * green + 0.114 * blue > BRIGHT else "#FFFFFF"
    box = {"facecolor": colour, "edgecolor": "none", "pad": 1.5}
    axes.text(x, y, f"{tokens:,}", ha="center", va="center", color=ink, fontsize=8, bbox=box)
