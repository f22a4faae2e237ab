"""What the pictures are drawn with: one look for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from langchain_ctxbudget.reporting.parts import FREE, HATCHES, LAYERS, RESERVE, Parts, in_order, seen

INK, FAINT, EDGE = "#222222", "#8A8A8A", "#FFFFFF"
WIDTH, DPI = 8.0, 100
"""Inches and dots per inch: 800 pixels."""
LEGEND_COLUMNS = 5
HEADROOM = 1.07
"""Heights of an axis and of its highest column: there is a number above it."""
LONGEST_NAME, LONGEST_TEXT = 19, 40
"""Characters of a layer's name, and of other texts, that have room."""


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


THOUSANDS = FuncFormatter(lambda value, _: f"{value:,.0f}")
PERCENT = FuncFormatter(lambda value, _: f"{value:.0%}")
BESIDE: dict[str, Any] = {
    "loc": "upper left",
    "bbox_to_anchor": (1.01, 1.0),
    "frameon": False,
    "borderaxespad": 0.0,
    "handlelength": 1.0,
    "handleheight": 1.0,
    "fontsize": 9,
}
BELOW: dict[str, Any] = {
    "loc": "outside lower left",
    "ncols": LEGEND_COLUMNS,
    "frameon": False,
    "handlelength": 1.0,
    "handleheight": 1.0,
    "columnspacing": 1.4,
    "fontsize": 9,
}


def new_figure(height: float) -> BudgetFigure:
    """An empty figure of the usual breadth.

    Args:
        height: in inches.
    """
    return BudgetFigure(figsize=(WIDTH, height), dpi=DPI, layout="constrained", facecolor="white")


def label_of(name: str) -> str:
    """What a part of a prompt is called."""
    return f"{name} {LAYERS[name][0]}" if name in LAYERS else words(name, LONGEST_NAME)


def words(text: str, most_characters: int = LONGEST_TEXT) -> str:
    """A text of the application's as it is written: matplotlib reads `$` as mathematics and hides a leading `_`."""
    short = text if len(text) <= most_characters else text[: most_characters - 1] + "…"
    safe = short.replace("$", r"\$")
    return f" {safe}" if safe.startswith("_") else safe


def look(name: str, colours: Mapping[str, str]) -> dict[str, Any]:
    """How a part is filled: what is not used is empty inside a thin line."""
    if name in (FREE, RESERVE):
        return {"facecolor": colours[name], "edgecolor": "#B0B0B0", "linewidth": 0.6, "hatch": HATCHES.get(name)}
    return {"facecolor": colours[name], "edgecolor": EDGE, "linewidth": 0.6}


def patch(colour: str, label: str) -> Patch:
    """A sample of a colour, for a legend."""
    return Patch(facecolor=colour, edgecolor="#B0B0B0", linewidth=0.6, label=label)


def part_patch(name: str, colours: Mapping[str, str]) -> Patch:
    """A sample of a part of a prompt, for a legend."""
    sample = patch(colours[name], label_of(name))
    if name in HATCHES:
        sample.set_hatch(HATCHES[name])
    return sample


def stacked_columns(
    axes: Axes, columns: Sequence[Parts], wholes: Sequence[int], colours: Mapping[str, str], *, narrow: bool = True
) -> list[str]:
    """Draw columns, with gaps between them where they are narrow; the parts that are seen in them."""
    breadth: dict[str, Any] = {"width": 0.78} if narrow else {"width": 1.0, "antialiased": False}
    bottoms = [0.0] * len(columns)
    for name in in_order(columns):
        heights = [parts.get(name, 0) / max(1, whole) for parts, whole in zip(columns, wholes, strict=True)]
        if any(heights):
            filled = look(name, colours) if narrow else look(name, colours) | {"linewidth": 0}
            axes.bar(range(len(columns)), heights, bottom=bottoms, **breadth, **filled)
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
    axes.set_ylim(0, max(bottoms) * HEADROOM or 1)
    return seen(columns)


def tidy(axes: Axes) -> None:
    """Take away what carries no information."""
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color("#B0B0B0")
    axes.tick_params(labelcolor=INK, labelsize=9, length=3, color="#B0B0B0")
    axes.tick_params(axis="y", length=0)
    axes.xaxis.label.set_color(INK)
    axes.yaxis.label.set_color(INK)


def headline(figure: BudgetFigure, title: str) -> None:
    """What the figure shows, above it."""
    figure.suptitle(title, x=0.012, ha="left", fontsize=10, weight="bold", color=INK)


def legend(figure: BudgetFigure, many: Sequence[Parts], colours: Mapping[str, str]) -> None:
    """One legend below, of what is seen."""
    figure.legend(handles=[part_patch(name, colours) for name in seen(many)], **BELOW)
