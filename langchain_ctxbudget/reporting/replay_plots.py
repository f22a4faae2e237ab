"""A picture of a replay: what several strategies sent, turn by turn, and what that adds up to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from matplotlib.axes import Axes

from langchain_ctxbudget.reporting.drawing import (
    BESIDE,
    FAINT,
    INK,
    THOUSANDS,
    BudgetFigure,
    headline,
    new_figure,
    patch,
    tidy,
    words,
)
from langchain_ctxbudget.reporting.parts import STRATEGY_COLOURS, ReportData, plain

PANEL, TOTALS = 0.78, 2.5
"""Heights of a strategy's panel and of the one below them, in inches."""
PALE = 0.35


def plot_replay(result: ReportData) -> BudgetFigure:
    """A panel per strategy with the tokens of every turn, those that a cache has pale, and below what they add up to.

    Args:
        result: a `ReplayResult` or what its `to_dict` gives.

    Example:
        >>> from langchain_ctxbudget.demo import demo_messages
        >>> from langchain_ctxbudget.replay import replay
        >>> figure = plot_replay(replay(demo_messages()[:20], ["recency", "full"], budget=800))
        >>> len(figure.axes)
        3
    """
    data = plain(result)
    tracks: Sequence[Mapping[str, Any]] = data["strategies"]
    figure = new_figure(0.7 + PANEL * len(tracks) + TOTALS)
    *panels, below = figure.subplots(
        len(tracks) + 1, 1, sharex=True, height_ratios=[PANEL] * len(tracks) + [TOTALS], squeeze=False
    )[:, 0]
    colours = [STRATEGY_COLOURS[place % len(STRATEGY_COLOURS)] for place in range(len(tracks))]
    most = max((turn["tokens"] for track in tracks for turn in track["turns"]), default=0) or 1
    for axes, track, colour in zip(panels, tracks, colours, strict=True):
        _panel(axes, track, colour)
        axes.set_ylim(0, most * 1.05)
    ends: list[tuple[float, str, str]] = []
    for track, colour in zip(tracks, colours, strict=True):
        turns = track["turns"]
        sums = list(accumulate(turn["tokens"] - (1 - data["price_share"]) * turn["cached_tokens"] for turn in turns))
        below.plot([turn["number"] for turn in turns], sums, color=colour, linewidth=1.8)
        total = f"{words(track['name'])}: {sums[-1] if sums else 0:,.0f}"
        missing = f"\n({len(track['failures']):,} prompts missing)" if track["failures"] else ""
        ends.append((sums[-1] if sums else 0.0, colour, total + missing))
    below.set_ylim(bottom=0)
    numbers = [turn["number"] for track in tracks for turn in track["turns"]] or [1]
    below.set_xlim(min(numbers) - 0.5, max(numbers) + 0.5)
    below.set_ylabel("paid for so far")
    below.set_xlabel("turn")
    below.yaxis.set_major_formatter(THOUSANDS)
    below.xaxis.set_major_formatter(THOUSANDS)
    below.grid(visible=True, axis="y", color="#E6E6E6", linewidth=0.8)
    tidy(below)
    ordered = sorted(ends, key=lambda end: -end[0])
    below.legend(handles=[patch(colour, said) for _, colour, said in ordered], **BESIDE)
    headline(
        figure,
        f"Tokens of every turn (pale: as in the prompt before, at {data['price_share']:g} of the price), "
        "and what they cost",
    )
    return figure


def _panel(axes: Axes, track: Mapping[str, Any], colour: str) -> None:
    """The turns of one strategy: what it sent, and at the bottom of each what is new."""
    turns = {turn["number"]: turn for turn in track["turns"]}
    places = range(min(turns, default=1), max(turns, default=1) + 1)
    edges = [place - 0.5 for place in (*places, places[-1] + 1)]
    sent = [turns[place]["tokens"] if place in turns else 0 for place in places]
    new = [total - turns[place]["cached_tokens"] if total else 0 for place, total in zip(places, sent, strict=True)]
    axes.stairs(new, edges, fill=True, color=colour, linewidth=0)
    axes.stairs(sent, edges, baseline=new, fill=True, color=colour, alpha=PALE, linewidth=0)
    if track["budget_tokens"] is not None:
        axes.axhline(track["budget_tokens"], color=FAINT, linewidth=0.8, linestyle=(0, (4, 2)))
    name = f"{words(track['name'])}\n{track['tokens']:,} sent\n{track['cached_share']:.0%} cached"
    axes.text(1.02, 0.5, name, transform=axes.transAxes, va="center", color=INK, fontsize=9)
    axes.yaxis.set_major_formatter(THOUSANDS)
    axes.locator_params(axis="y", nbins=3)
    tidy(axes)
