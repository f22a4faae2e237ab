"""Draws what each strategy gives to the layers, over length and budget, and a replay; offline, the same bytes every time.

    python research/budgeting_figures.py [FOLDER]

The folder is `research/figures` where none is given.
"""  # noqa: INP001 - a script, not a package

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.budget import (
    AllocationStrategy,
    ElasticAllocation,
    Exchange,
    Layer,
    LayerSpec,
    PrioritizedAllocation,
    Situation,
)
from langchain_ctxbudget.demo import DEMO_QUESTION, DEMO_SETTINGS, DEMO_SYSTEM_PROMPT, demo_messages
from langchain_ctxbudget.errors import BudgetError
from langchain_ctxbudget.replay import replay
from langchain_ctxbudget.report.plots import LEGEND, BudgetFigure, plot_replay, plot_what_if
from langchain_ctxbudget.report.report import OVERHEAD, colours_of, label_of

BELOW = {**LEGEND, "loc": "outside lower left", "ncols": 5, "columnspacing": 1.4}
FOLDER = Path(__file__).parent / "figures"
BUDGET_TOKENS, MESSAGE_TOKENS, KEPT = 8_000, 75, 6
LENGTHS = range(0, 401, 5)
BUDGETS = [round(1_000 * 2 ** (step / 16)) for step in range(16 * 5 + 1)]
OTHER_BUDGETS = [500, 1_000, 2_000, 3_000, 4_000, 8_000, 16_000, 24_000]
REPRODUCIBLE: Any = {"svg.hashsalt": "langchain-ctxbudget", "svg.fonttype": "none"}
PATH_LINE, COORDINATE = re.compile(r'^.*(?:\bd="M|^L) .*$', re.MULTILINE), re.compile(r"\d+\.\d+")

PAIRS: dict[str, tuple[AllocationStrategy, AllocationStrategy]] = {
    "elastic": (ElasticAllocation(), ElasticAllocation(profile="seed")),
    "prioritized": (PrioritizedAllocation(), PrioritizedAllocation(order=("topics", "entities", "history"))),
}


def situation(messages: int, budget_tokens: int = BUDGET_TOKENS, *, custom: tuple[LayerSpec, ...] = ()) -> Situation:
    """A conversation of messages of 75 tokens, with one topic, two entities, preferences and memories."""
    return Situation(
        total_tokens=budget_tokens,
        overhead_tokens=150,
        identity_tokens=300,
        preferences_tokens=100,
        memory_tokens=300,
        message_tokens=80,
        message_count=messages,
        history_tokens=messages * MESSAGE_TOKENS,
        keep_tokens=min(messages, KEPT) * MESSAGE_TOKENS,
        exchanges=tuple(Exchange(2, 2 * MESSAGE_TOKENS) for _ in range(min(10, messages // 2))),
        topic_count=1,
        topic_tokens=450,
        entity_count=2,
        entity_tokens=300,
        custom=custom,
    )


def areas(
    strategies: Sequence[AllocationStrategy],
    situations: Sequence[Situation],
    places: Sequence[int],
    label: str,
    *,
    shares: bool = False,
) -> BudgetFigure:
    """The division of a budget as the situation changes, a panel for each strategy; gaps where one refuses."""
    figure = BudgetFigure(figsize=(8, 3.9), layout="constrained", facecolor="white")
    panels = figure.subplots(1, len(strategies), sharey=True)
    whole = [one.total_tokens if shares else 1 for one in situations]
    for axes, strategy in zip(panels, strategies, strict=True):
        columns = [divided(strategy, one) for one in situations]
        names = list(dict.fromkeys(name for column in columns for name in column))
        rows = [
            [column.get(name, np.nan) / most for column, most in zip(columns, whole, strict=True)] for name in names
        ]
        colours = [colours_of(names)[name] for name in names]
        labels = [label_of(name) for name in names]
        axes.stackplot(places, rows, colors=colours, labels=labels, edgecolor="white", linewidth=0.6)
        axes.set_title(strategy.name, loc="left", fontsize=10, weight="bold")
        axes.set_xlabel(label)
        axes.set_xlim(places[0], places[-1])
        axes.set_ylim(0, max(one.total_tokens // most for one, most in zip(situations, whole, strict=True)))
        axes.spines[["top", "right", "left"]].set_visible(False)
        if shares:
            axes.set_xscale("log")
            axes.set_xticks([1_000 * 2**step for step in range(6)], [f"{2**step}K" for step in range(6)])
            axes.minorticks_off()
    panels[0].set_ylabel("share of the budget" if shares else "tokens")
    figure.legend(*panels[0].get_legend_handles_labels(), **BELOW)
    return figure


def divided(strategy: AllocationStrategy, one: Situation) -> dict[str, int]:
    """A strategy's plan for a situation; nothing where it refuses."""
    try:
        allocation = strategy.allocate(one)
    except BudgetError:
        return {}
    parts = {name: allocation.tokens.get(name, 0) for name in map(str, Layer)}
    return {**parts, OVERHEAD: one.overhead_tokens}


def figures() -> Iterator[tuple[str, BudgetFigure]]:
    """Every figure with its name."""
    lengths = [situation(messages) for messages in LENGTHS]
    for name, pair in PAIRS.items():
        yield name, areas(pair, lengths, LENGTHS, "messages in the conversation")
    budgets = [situation(400, budget_tokens) for budget_tokens in BUDGETS]
    yield "budgets", areas(PAIRS["elastic"], budgets, BUDGETS, "budget, tokens", shares=True)
    scope = {"user_id": "maya", "conversation_id": "tool-library"}
    settings = {
        "max_context_tokens": 3_000,
        **DEMO_SETTINGS,
        "learn": False,  # it takes its time, and the figure must not depend on it
    }
    with ContextPipeline(settings, system_prompt=DEMO_SYSTEM_PROMPT) as pipeline:
        pipeline.add_messages(demo_messages(), **scope)
        by_strategy = [
            pipeline.assemble(DEMO_QUESTION, settings={"allocation": pair[0]}, **scope).report
            for pair in PAIRS.values()
        ]
        yield "strategies", plot_what_if(by_strategy)
        pipeline.assemble(DEMO_QUESTION, **scope)
        yield "what_if", plot_what_if(pipeline.what_if(OTHER_BUDGETS))
    replayed = ("elastic", "recency", "prioritized", "full")
    result = replay(demo_messages(), replayed, budget=4_000, system_prompt=DEMO_SYSTEM_PROMPT)
    yield "replay", plot_replay(result)


def shortened(svg: str) -> str:
    """The same picture with coordinates of two decimals, and no white space at the ends of lines."""
    rounded = PATH_LINE.sub(lambda line: COORDINATE.sub(lambda number: f"{float(number[0]):.2f}", line[0]), svg)
    return "".join(f"{line.rstrip()}\n" for line in rounded.splitlines())


def main(folder: Path = FOLDER) -> None:
    """Writes every figure as an SVG and prints its size."""
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(REPRODUCIBLE)
        for name, figure in figures():
            path = folder / f"{name}.svg"
            drawn = StringIO()
            figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
            path.write_text(shortened(drawn.getvalue()), encoding="utf-8")
            sys.stdout.write(f"{path.stat().st_size:>8,} bytes  {path.name}\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
