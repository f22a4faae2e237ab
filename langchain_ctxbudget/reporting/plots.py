"""Reports, allocations and replays as pictures (the extra `plots`: matplotlib).

Every function takes plain data and gives a matplotlib `Figure`. pyplot is not used, so no backend and no state is
touched; a notebook shows the figure, and `figure.savefig("budget.svg")` keeps it. A layer has the same colour in every
figure; the colours stay apart for the colour-blind.
"""

from __future__ import annotations

try:
    from langchain_ctxbudget.reporting.allocation_plots import plot_allocation, plot_strategies
    from langchain_ctxbudget.reporting.drawing import BudgetFigure
    from langchain_ctxbudget.reporting.replay_plots import plot_replay
    from langchain_ctxbudget.reporting.report_plots import plot_frontier, plot_report, plot_turns, plot_what_if
except ImportError as error:  # pragma: no cover - the tests have it
    raise ImportError("Plots need matplotlib: pip install 'langchain-ctxbudget[plots]'") from error

__all__ = [
    "BudgetFigure",
    "plot_allocation",
    "plot_frontier",
    "plot_replay",
    "plot_report",
    "plot_strategies",
    "plot_turns",
    "plot_what_if",
]
