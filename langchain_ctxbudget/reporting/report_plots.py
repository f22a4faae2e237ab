"""Pictures of prompts that were assembled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from langchain_ctxbudget.reporting.drawing import (
    BELOW,
    BESIDE,
    DPI,
    FAINT,
    INK,
    PERCENT,
    THOUSANDS,
    WIDTH,
    BudgetFigure,
    headline,
    label_of,
    new_figure,
    part_patch,
    patch,
    stacked_columns,
    tidy,
    words,
)
from langchain_ctxbudget.reporting.parts import (
    AXES,
    FREE,
    OTHERS,
    OVERHEAD,
    STATES,
    ReportData,
    colours_of,
    messages_of,
    plain,
    states_in_words,
    used_parts,
)

MOST_NARROW = 40
"""More columns than these stand without gaps."""
BROAD, NARROW = 0.8, 0.42
"""Heights of the bars for what was planned and for what was used."""
REPORT_BOX = (0.19, 0.55)
"""Where the bars of a report begin, and how broad they are together; shares of the figure."""
COLUMNS = (1.14, 1.26, 1.42)
"""Right edges of the numbers beside them, in widths of the bars."""


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
        (label_of(part["layer"]), part["used_tokens"], part["allocated_tokens"], colours[part["layer"]])
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
    axes.xaxis.set_major_formatter(THOUSANDS)
    axes.grid(visible=True, axis="x", color="#E6E6E6", linewidth=0.8)
    axes.set_axisbelow(True)
    tidy(axes)
    forecast = ", forecast" if data["forecast"] else ""
    facts = (
        f"pale: planned, full: used; {words(data['allocation_strategy'])} allocation, "
        f"{data['history_strategy']} history, {data['count_mode']} counts ({words(data['tokenizer'])})"
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
    figure = new_figure(5.6)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(1.7, 1))
    columns = [used_parts(data) for data in many]
    colours = colours_of(name for parts in columns for name in parts)
    wholes = [data["budget_tokens"] if shares else 1 for data in many]
    shown = stacked_columns(upper, columns, wholes, colours)
    for place, (data, whole) in enumerate(zip(many, wholes, strict=True)):
        top, used = data["budget_tokens"] / max(1, whole), f"{data['total_tokens']:,}"
        upper.annotate(used, (place, top), (0, 2), textcoords="offset points", ha="center", color=INK, fontsize=9)
    upper.set_ylabel("share of the budget" if shares else "tokens")
    upper.yaxis.set_major_formatter(PERCENT if shares else THOUSANDS)
    counts = [messages_of(data) for data in many]
    stacked_columns(lower, counts, [1] * len(many), {state: colour for state, (_, colour) in STATES.items()})
    lower.set_ylabel("messages")
    lower.yaxis.set_major_formatter(THOUSANDS)
    lower.set_xticks(range(len(many)), [f"{data['budget_tokens']:,}" for data in many])
    lower.set_xlabel(AXES["total_tokens"])
    for axes in (upper, lower):
        tidy(axes)
    headline(figure, "What another budget gives (above each column: tokens used)")
    if states := [state for state in STATES if any(parts[state] for parts in counts)]:
        lower.legend(handles=[patch(STATES[state][1], STATES[state][0]) for state in reversed(states)], **BESIDE)
    upper.legend(handles=[part_patch(name, colours) for name in reversed(shown)], **BESIDE)
    return figure


def plot_frontier(reports: ReportData | Sequence[ReportData]) -> BudgetFigure:
    """Every message of the conversation as a strip, oldest at the left: where the prompt has it, and where it has not.

    Args:
        reports: one prompt, or several of the same conversation: a strip each, named by its budget.

    Raises:
        ValueError: there are no reports.

    Example:
        >>> from langchain_ctxbudget import ContextPipeline
        >>> context = ContextPipeline().assemble("Hello", user_id="ada", conversation_id="c1")
        >>> plot_frontier(context.report).axes[0].get_xlabel()
        'message'
    """
    many = [plain(report) for report in (reports if isinstance(reports, Sequence) else [reports])]
    if not many:
        raise ValueError("plot_frontier needs at least one report")
    counts = [messages_of(data) for data in many]
    total = max(sum(parts.values()) for parts in counts)
    figure = new_figure(1.35 + 0.42 * len(many))
    axes = figure.subplots()
    for place, data in enumerate(many):
        _strip(axes, place, data["coverage"])
    axes.set_ylim(len(many) - 0.5, -0.5)
    axes.set_xlim(0.5, max(1, total) + 0.5)
    axes.set_yticks([])
    if len(many) > 1:
        axes.set_yticks(range(len(many)), [f"{data['budget_tokens']:,}" for data in many])
        axes.set_ylabel("budget")
    axes.set_xlabel("message")
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.xaxis.set_major_formatter(THOUSANDS)
    tidy(axes)
    said = f" in {many[0]['budget_tokens']:,} tokens: {states_in_words(counts[0])}" if len(many) == 1 else ""
    headline(figure, f"{total:,} messages{said}" if total else "No messages yet")
    used = [state for state in STATES if any(parts[state] for parts in counts)]
    figure.legend(handles=[patch(STATES[state][1], STATES[state][0]) for state in used], **BELOW)
    return figure


def plot_turns(reports: Sequence[ReportData]) -> BudgetFigure:
    """The prompts of a conversation, one after the other: layers, budget, and what each has of the one before it.

    Args:
        reports: in the order of the turns.

    Raises:
        ValueError: there are no reports.
    """
    many = [plain(report) for report in reports]
    if not many:
        raise ValueError("plot_turns needs at least one report")
    columns = [{name: tokens for name, tokens in used_parts(data).items() if name != FREE} for data in many]
    colours = colours_of(name for parts in columns for name in parts)
    budgets = [data["budget_tokens"] for data in many]
    steps = [place for place, data in enumerate(many) if data["stability"]["compaction_step"]]
    figure = new_figure(4.6)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3.2, 1))
    shown = stacked_columns(upper, columns, [1] * len(many), colours, narrow=len(many) <= MOST_NARROW)
    edges = [place - 0.5 for place in range(len(many) + 1)]
    upper.stairs(budgets, edges, baseline=None, color=INK, linewidth=1.2, linestyle=(0, (4, 2)))
    top = max(*budgets, *(sum(parts.values()) for parts in columns)) * 1.1
    if steps:
        upper.plot(steps, [top * 0.965] * len(steps), "v", color=INK, markersize=5)
    upper.set_ylim(0, top)
    upper.set_ylabel("tokens")
    upper.yaxis.set_major_formatter(THOUSANDS)
    shares = [data["stability"]["prompt_share"] or 0 for data in many]
    lower.stairs(shares, edges, fill=True, color=STATES["verbatim"][1], alpha=0.75)
    lower.set_ylim(0, 1)
    lower.set_yticks([0, 0.5, 1])
    lower.yaxis.set_major_formatter(PERCENT)
    lower.set_ylabel("as before")
    lower.set_xlim(-0.5, len(many) - 0.5)
    marks = [
        1,
        *(int(mark) for mark in MaxNLocator(8, integer=True).tick_values(1, len(many)) if 1 < mark <= len(many)),
    ]
    lower.set_xticks([mark - 1 for mark in marks], [f"{mark:,}" for mark in marks])
    lower.set_xlabel("prompt")
    for axes in (upper, lower):
        tidy(axes)
    line = Line2D([], [], color=INK, linewidth=1.2, linestyle=(0, (4, 2)), label="budget")
    mark = Line2D([], [], color=INK, marker="v", markersize=5, linestyle="", label="compaction step")
    samples = [part_patch(name, colours) for name in reversed(shown)]
    upper.legend(handles=[line, *([mark] if steps else []), *samples], **BESIDE)
    plural = "" if len(steps) == 1 else "s"
    prompts = "1 prompt" if len(many) == 1 else f"{len(many):,} prompts"
    headline(
        figure, f"{prompts}, {len(steps):,} compaction step{plural}; below: what a prompt shares with the last one"
    )
    return figure


def _strip(axes: Axes, place: int, coverage: Sequence[Mapping[str, Any]]) -> None:
    """The messages of one prompt; what is rare is drawn last, and never thinner than a hairline."""
    for state, (_, colour) in reversed(STATES.items()):
        spans = [(part["first"] - 0.5, part["last"] - part["first"] + 1) for part in coverage if part["state"] == state]
        edge = "#D0D0D0" if state == "omitted" else colour
        if spans:
            axes.broken_barh(spans, (place - 0.36, 0.72), facecolor=colour, edgecolor=edge, linewidth=0.5)


def _cells(axes: Axes, place: float, cells: Sequence[str], colour: str) -> None:
    """Numbers beside a bar, right-aligned in columns."""
    for right, cell in zip(COLUMNS, cells, strict=True):
        axes.text(right, place, cell, transform=axes.get_yaxis_transform(), ha="right", va="center", color=colour)
