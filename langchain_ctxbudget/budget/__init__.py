"""Divides a budget between the layers: strategies are pure functions of the situation.

`docs/budgeting.md` explains each with a figure, and how to write one of your own.
"""

from langchain_ctxbudget.budget.allocation import (
    MOST_EXCHANGES,
    Allocation,
    AllocationStrategy,
    Depth,
    Emphasis,
    Exchange,
    LayerSpec,
    Situation,
    divide,
    share_out,
)
from langchain_ctxbudget.budget.elastic import ElasticAllocation
from langchain_ctxbudget.budget.strategies import (
    STRATEGIES,
    DynamicAllocation,
    FixedAllocation,
    PrioritizedAllocation,
    RatioAllocation,
    strategy_of,
)

__all__ = [
    "MOST_EXCHANGES",
    "STRATEGIES",
    "Allocation",
    "AllocationStrategy",
    "Depth",
    "DynamicAllocation",
    "ElasticAllocation",
    "Emphasis",
    "Exchange",
    "FixedAllocation",
    "LayerSpec",
    "PrioritizedAllocation",
    "RatioAllocation",
    "Situation",
    "divide",
    "share_out",
    "strategy_of",
]
