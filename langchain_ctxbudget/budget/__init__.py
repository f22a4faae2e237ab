"""Divides a budget between the layers: strategies are pure functions of the situation.

`docs/internals/budgeting.md` explains each with a figure, and how to write one of your own.
"""

from langchain_ctxbudget.budget.allocation import (
    MEMORIES_HEADING, MOST_EXCHANGES, TITLES, Allocation, AllocationStrategy, Depth, Emphasis,
    Exchange, Fragment, Layer, LayerSpec, Layout, Reason, Situation, Status, divide, share_out,
    title_of,
)  # fmt: skip
from langchain_ctxbudget.budget.demands import DEPTH_FACTOR, MEMORY_MAX
from langchain_ctxbudget.budget.elastic import ElasticAllocation
from langchain_ctxbudget.budget.parameters import (
    HEALTHY, THRESHOLDS, TIERS, Flag, Forced, NonNegative, Parameters, Positive, Share,
    ShareOrNone, Standing, Text, Tier, TierName, UsageLimits, relaxed, standing, tier_of,
)  # fmt: skip
from langchain_ctxbudget.budget.strategies import (
    STRATEGIES, DynamicAllocation, FixedAllocation, PrioritizedAllocation, RatioAllocation,
    strategy_of,
)  # fmt: skip

__all__ = [
    "DEPTH_FACTOR", "HEALTHY", "MEMORIES_HEADING", "MEMORY_MAX", "MOST_EXCHANGES", "STRATEGIES",
    "THRESHOLDS", "TIERS", "TITLES", "Allocation", "AllocationStrategy", "Depth",
    "DynamicAllocation", "ElasticAllocation", "Emphasis", "Exchange", "FixedAllocation", "Flag",
    "Forced", "Fragment", "Layer", "LayerSpec", "Layout", "NonNegative", "Parameters", "Positive",
    "PrioritizedAllocation", "RatioAllocation", "Reason", "Share", "ShareOrNone", "Situation",
    "Standing", "Status", "Text", "Tier", "TierName", "UsageLimits", "divide", "relaxed",
    "share_out", "standing", "strategy_of", "tier_of", "title_of",
]  # fmt: skip
