"""Tokens: counters, what providers charge for messages, tools and images, and how large windows are."""

from __future__ import annotations

from langchain_ctxbudget.tokens.cost import Count, require_schemas
from langchain_ctxbudget.tokens.counters import (
    EstimatingCounter,
    HuggingFaceCounter,
    ModelCounter,
    TiktokenCounter,
    TokenCounter,
    counter_for,
    encodable,
    estimate_tokens,
    model_names,
    unwrapped,
)
from langchain_ctxbudget.tokens.prices import PRICES, Price, Usage, load_prices, price_of, total, usage_of
from langchain_ctxbudget.tokens.target import (
    CalibratedCounter,
    Calibration,
    Model,
    ModelTarget,
    is_of_one_call,
    kind_of,
)
from langchain_ctxbudget.tokens.windows import Window, token_count, with_setting

__all__ = [
    "PRICES", "CalibratedCounter", "Calibration", "Count", "EstimatingCounter", "HuggingFaceCounter", "Model",
    "ModelCounter", "ModelTarget", "Price", "TiktokenCounter", "TokenCounter", "Usage", "Window", "counter_for",
    "encodable", "estimate_tokens", "is_of_one_call", "kind_of", "load_prices", "model_names", "price_of",
    "require_schemas", "token_count", "total", "unwrapped", "usage_of", "with_setting",
]  # fmt: skip
