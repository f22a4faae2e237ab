"""How a budget is divided between the layers: strategies are pure functions of the situation.

`docs/budgeting.md` explains each with a figure, and how to write one of your own.
"""

from langchain_ctxbudget.core.allocation.catalogue import strategy_of
from langchain_ctxbudget.core.allocation.elastic import ElasticAllocation
from langchain_ctxbudget.core.allocation.model import (
    MOST_EXCHANGES,
    Allocation,
    AllocationStrategy,
    Depth,
    Emphasis,
    Exchange,
    Situation,
    share_out,
)
from langchain_ctxbudget.core.allocation.prioritized import PrioritizedAllocation
from langchain_ctxbudget.core.allocation.shares import DynamicAllocation, FixedAllocation, RatioAllocation
from langchain_ctxbudget.core.allocation.solver import LayerSpec, divide

__all__ = [
    "MOST_EXCHANGES",
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
