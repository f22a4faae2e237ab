"""Tokens: counters, what messages, tools and images cost, prices, and how large windows are."""

from langchain_ctxbudget.tokens.calibration import Calibration, is_of_one_call
from langchain_ctxbudget.tokens.counters import (
    CalibratedCounter,
    ChatModel,
    CountMode,
    EstimatingCounter,
    HuggingFaceCounter,
    ModelCounter,
    TiktokenCounter,
    TokenCounter,
    counter_for,
    estimate_tokens,
)
from langchain_ctxbudget.tokens.deferred_tools import (
    ToolsInWindow,
    has_deferred_part,
    is_deferred,
)
from langchain_ctxbudget.tokens.own_calls import NO_OWN_CALLS, OUTPUT_PRICE, OwnCalls, Purpose
from langchain_ctxbudget.tokens.prices import (
    NO_USAGE,
    PRICES,
    Price,
    Usage,
    load_prices,
    price_of,
    terms_at,
    total,
    usage_of,
    with_time,
)
from langchain_ctxbudget.tokens.schemas import (
    TOOLS_END_TOKENS,
    compact_json,
    require_schemas,
    response_schema,
    schemas_text,
    tool_schema,
)
from langchain_ctxbudget.tokens.target import ModelTarget, target_key
from langchain_ctxbudget.tokens.window import Window, token_count

__all__ = [
    "NO_OWN_CALLS",
    "NO_USAGE",
    "OUTPUT_PRICE",
    "PRICES",
    "TOOLS_END_TOKENS",
    "CalibratedCounter",
    "Calibration",
    "ChatModel",
    "CountMode",
    "EstimatingCounter",
    "HuggingFaceCounter",
    "ModelCounter",
    "ModelTarget",
    "OwnCalls",
    "Price",
    "Purpose",
    "TiktokenCounter",
    "TokenCounter",
    "ToolsInWindow",
    "Usage",
    "Window",
    "compact_json",
    "counter_for",
    "estimate_tokens",
    "has_deferred_part",
    "is_deferred",
    "is_of_one_call",
    "load_prices",
    "price_of",
    "require_schemas",
    "response_schema",
    "schemas_text",
    "target_key",
    "terms_at",
    "token_count",
    "tool_schema",
    "total",
    "usage_of",
    "with_time",
]
