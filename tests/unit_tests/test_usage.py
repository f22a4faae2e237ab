"""What a call used and what that costs; prices are data, and none is guessed."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxbudget.errors import InputError, InvalidSettingsError
from langchain_ctxbudget.tokens import PRICES, Price, Usage, load_prices, price_of, total, usage_of

ROUND = {"m": Price(input=100, cached_input=10, cache_write=125, output=1_000)}
"""In ten-thousandths of a dollar: 1 a token of input, 0.1 cached, 1.25 cached now, 10 of output."""
A_TOKEN = 0.0001

COUNTS = st.integers(0, 10**9)
USAGES = st.builds(
    Usage,
    calls=COUNTS,
    input_tokens=COUNTS,
    cached_tokens=COUNTS,
    output_tokens=COUNTS,
    cost=st.floats(0, 10_000),
    unpriced_calls=COUNTS,
)


def metadata(input_tokens: int, output_tokens: int = 0, **details: Any) -> dict[str, Any]:
    return {
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "total_tokens": input_tokens + output_tokens,
        "input_token_details": details,
    }


def cost(used: dict[str, Any], prices: dict[str, Price] = ROUND) -> float:
    return usage_of(used, "m", prices).cost / A_TOKEN


COSTS: list[tuple[dict[str, Any], float]] = [
    (metadata(7, 3), 7 + 30),
    (metadata(100, cache_read=60), 40 + 6),
    (metadata(100, cache_read=60, cache_creation=20), 20 + 6 + 25),
    (metadata(10, cache_read=6, cache_creation=20), 0.6 + 4 * 1.25),  # no more is cached now than was left
    (metadata(10, cache_read=60, cache_creation=20), 1),
    # Anthropic's parts are not counted beside the whole, and the whole may be 0 where they are given.
    (metadata(100, cache_creation=40, ephemeral_5m_input_tokens=30, ephemeral_1h_input_tokens=10), 60 + 50),
    (metadata(100, cache_creation=0, ephemeral_5m_input_tokens=30, ephemeral_1h_input_tokens=10), 60 + 50),
    ({"input_tokens": 5}, 5),
    ({"input_tokens": 5, "total_tokens": 12}, 5 + 70),
    ({"input_tokens": 5, "output_tokens": 0, "input_token_details": None}, 5),
    ({"input_tokens": 5, "output_tokens": 0, "input_token_details": {"cache_read": None}}, 5),
]
WRONG: list[Any] = [
    {},
    {"output_tokens": 5},
    *({"input_tokens": value} for value in (None, -1, 5.0, True)),
    {"input_tokens": 5, "input_token_details": {"cache_read": -1}},
    [("input_tokens", 5)],
    None,
]


def test_every_kind_of_tokens_has_its_price() -> None:
    for used, tokens in COSTS:
        assert cost(used) == pytest.approx(tokens), used
    cached = metadata(100, cache_read=60, cache_creation=20)
    assert cost(cached, {"m": Price(input=100, output=1_000)}) == pytest.approx(100)
    assert cost(cached, {"m": Price(input=100, cached_input=0, cache_write=0, output=0)}) == pytest.approx(20)
    for wrong in WRONG:
        with pytest.raises(InputError, match="token"):
            usage_of(wrong, "m", ROUND)


def test_of_a_model_without_a_price_tokens_alone_are_counted() -> None:
    assert usage_of(metadata(100, 5, cache_read=60), "unheard-of", ROUND) == Usage(
        calls=1, input_tokens=100, cached_tokens=60, output_tokens=5, unpriced_calls=1
    )
    assert usage_of(metadata(1), None, ROUND).unpriced_calls == 1
    assert usage_of(metadata(1), "m", {"m": Price(input=0, output=0)}).unpriced_calls == 0


@given(USAGES, USAGES, USAGES)
def test_in_which_order_usages_are_added_does_not_matter(a: Usage, b: Usage, c: Usage) -> None:
    assert (a + b) + c == a + (b + c) == (c + a) + b == total([a, b, c])
    assert total([a, b]).total_tokens == a.total_tokens + b.total_tokens


def test_small_costs_lose_nothing() -> None:
    call = usage_of(metadata(1), "gpt-5-nano", PRICES)
    assert total([call] * 10_000).cost == 10_000 * 0.05 / 1e6


PRICED = {
    "gpt-4o": "gpt-4o openai/gpt-4o openai:gpt-4o openrouter/openai/gpt-4o gpt-4o-2024-08-06 openai/gpt-4o-2024-08-06",
    "gpt-4o-2024-05-13": "gpt-4o-2024-05-13",
    "claude-opus-4-5": "claude-opus-4-5-20251101 vertex_ai/claude-opus-4-5@20251101",
    "gemini-2.5-pro": "models/gemini-2.5-pro gemini-2.5-pro-001",
    "openai/gpt-oss-20b": "openai/gpt-oss-20b groq/openai/gpt-oss-20b",
}
UNPRICED = """/ openai/ gpt-4o-audio-preview gpt-4o-mini-search-preview-2025-03-11 ft:gpt-4o-2024-08-06:us::1 ft:gpt-4o
    somewhere-else/gpt-4o gpt-4o-20240 gpt-4o-2024-08-06-audio llama3.3:70b mistral-large-2411 GPT-4o"""
REFUSED: list[tuple[Any, str]] = [
    ({"mine": {"input": 1}}, r"prices\['mine'\].*output"),
    ({"": {"input": 1, "output": 2}}, "must be a mapping"),
    ("gpt-4o", "must be a mapping"),
]


def test_a_model_has_the_price_of_its_name_and_none_is_guessed() -> None:
    for priced_as, models in PRICED.items():
        assert [price_of(model, PRICES) is PRICES[priced_as] for model in models.split()] == [True] * len(
            models.split()
        )
    assert {price_of(model, PRICES) for model in [None, "", *UNPRICED.split()]} == {None}


def test_the_prices_of_an_application_lie_over_the_packaged_ones() -> None:
    before = PRICES["gpt-4o"]
    prices = load_prices({"gpt-4o": {"input": 1, "output": 2}, "mine": Price(input=3, output=4)})
    assert prices["gpt-4o"] == Price(input=1, output=2)
    assert (prices["mine"].input, prices["gpt-5"]) == (3, PRICES["gpt-5"])
    assert price_of("gpt-4o-2024-05-13", prices) is PRICES["gpt-4o-2024-05-13"]
    assert price_of("gpt-4o-2024-08-06", prices) is prices["gpt-4o"]
    assert load_prices()["gpt-4o"] is before
    with pytest.raises(TypeError):
        PRICES["gpt-4o"] = Price(input=1, output=2)  # type: ignore[index]


def test_prices_that_cannot_be_used_are_refused_by_name() -> None:
    for value in (-0.01, math.nan, "2.5", True, 1_000_001):
        with pytest.raises(InvalidSettingsError, match=r"prices\['mine'\].* cached_input must be .*, not "):
            load_prices({"mine": {"input": 1, "output": 2, "cached_input": value}})
    for wrong, says in REFUSED:
        with pytest.raises(InvalidSettingsError, match=says):
            load_prices(wrong)
