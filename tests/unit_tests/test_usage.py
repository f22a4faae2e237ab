"""What a call used and what that costs; prices are data, and none is guessed."""

from __future__ import annotations

import json
import math
from importlib import resources
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_anthropic.chat_models import _create_usage_metadata as anthropic_usage
from langchain_openai.chat_models.base import _create_usage_metadata as openai_usage

from langchain_ctxbudget.core.usage import PRICES, PRICES_SOURCE, Price, Usage, load_prices, price_of, total, usage_of
from langchain_ctxbudget.errors import InputError, InvalidSettingsError

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
PRICE = st.floats(0, 1_000)
A_PRICE = st.builds(Price, input=PRICE, output=PRICE, cached_input=st.none() | PRICE, cache_write=st.none() | PRICE)
DETAILS = ("cache_read", "cache_creation", "priority_cache_read", "ephemeral_1h_input_tokens", "audio")
METADATA = st.fixed_dictionaries(
    {"input_tokens": COUNTS},
    optional={
        "output_tokens": COUNTS | st.none(),
        "total_tokens": COUNTS | st.none(),
        "input_token_details": st.none() | st.dictionaries(st.sampled_from(DETAILS), COUNTS | st.none()),
    },
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(DETAILS), inner),
    max_leaves=4,
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


# What a call costs


def test_input_and_output_have_their_own_price() -> None:
    assert cost(metadata(7, 3)) == pytest.approx(7 + 30)


def test_cached_input_has_its_own_price() -> None:
    assert cost(metadata(100, cache_read=60)) == pytest.approx(40 + 6)


def test_what_is_cached_now_has_its_own_price() -> None:
    assert cost(metadata(100, cache_read=60, cache_creation=20)) == pytest.approx(20 + 6 + 25)


def test_without_a_price_for_the_cache_it_costs_as_all_input() -> None:
    plain = {"m": Price(input=100, output=1_000)}
    assert cost(metadata(100, cache_read=60, cache_creation=20), plain) == pytest.approx(100)


def test_a_cache_that_costs_nothing_is_free() -> None:
    free = {"m": Price(input=100, cached_input=0, cache_write=0, output=0)}
    assert cost(metadata(100, cache_read=60, cache_creation=20), free) == pytest.approx(20)


def test_of_a_model_without_a_price_tokens_alone_are_counted() -> None:
    assert usage_of(metadata(100, 5, cache_read=60), "unheard-of", ROUND) == Usage(
        calls=1, input_tokens=100, cached_tokens=60, output_tokens=5, unpriced_calls=1
    )


def test_a_call_of_an_unnamed_model_has_no_price() -> None:
    assert usage_of(metadata(1), None, ROUND).unpriced_calls == 1


def test_a_free_model_has_a_price() -> None:
    assert usage_of(metadata(1), "m", {"m": Price(input=0, output=0)}).unpriced_calls == 0


# What providers say


def test_anthropic_counts_what_is_cached_for_an_hour_apart() -> None:
    from anthropic.types import CacheCreation, Usage as Reported  # noqa: PLC0415, I001

    reported = Reported(
        input_tokens=10,
        output_tokens=4,
        cache_read_input_tokens=60,
        cache_creation_input_tokens=30,
        cache_creation=CacheCreation(ephemeral_5m_input_tokens=20, ephemeral_1h_input_tokens=10),
    )
    assert cost(dict(anthropic_usage(reported))) == pytest.approx(10 + 6 + 30 * 1.25 + 40)


@pytest.mark.parametrize("tier", [None, "default", "priority", "flex"])
def test_openai_names_the_cache_after_the_tier_of_service(tier: str | None) -> None:
    reported = {
        "prompt_tokens": 100,
        "completion_tokens": 5,
        "total_tokens": 105,
        "prompt_tokens_details": {"cached_tokens": 60},
    }
    used = usage_of(openai_usage(reported, tier), "m", ROUND)
    assert (used.input_tokens, used.cached_tokens, used.output_tokens) == (100, 60, 5)


def test_the_parts_of_what_is_cached_are_not_counted_beside_the_whole() -> None:
    parts = metadata(100, cache_creation=40, ephemeral_5m_input_tokens=30, ephemeral_1h_input_tokens=10)
    assert cost(parts) == cost(metadata(100, cache_creation=40))


@pytest.mark.parametrize("details", [None, {}, {"cache_read": None, "cache_creation": None}])
def test_details_may_be_missing(details: dict[str, None] | None) -> None:
    assert cost({"input_tokens": 5, "output_tokens": 0, "input_token_details": details}) == pytest.approx(5)


def test_output_that_is_missing_is_what_the_total_has_beyond_the_input() -> None:
    assert usage_of({"input_tokens": 5, "total_tokens": 12}, "m", ROUND).output_tokens == 7


def test_input_alone_is_a_usage() -> None:
    assert usage_of({"input_tokens": 5}, "m", ROUND) == Usage(calls=1, input_tokens=5, cost=5 * A_TOKEN)


def test_no_more_is_cached_than_was_given() -> None:
    used = usage_of(metadata(10, cache_read=60, cache_creation=20), "m", ROUND)
    assert (used.cached_tokens, used.cost) == (10, 1 * A_TOKEN)


def test_no_more_is_cached_now_than_was_left() -> None:
    assert cost(metadata(10, cache_read=6, cache_creation=20)) == pytest.approx(0.6 + 4 * 1.25)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"output_tokens": 5},
        {"input_tokens": None},
        {"input_tokens": -1},
        {"input_tokens": 5.0},
        {"input_tokens": True},
        {"input_tokens": "5"},
        {"input_tokens": 10**400},
        {"input_tokens": 5, "output_tokens": -1},
        {"input_tokens": 5, "output_tokens": math.nan},
        {"input_tokens": 5, "input_token_details": [1]},
        {"input_tokens": 5, "input_token_details": {"cache_read": -1}},
        {"input_tokens": 5, "input_token_details": {"cache_creation": 0.5}},
        [("input_tokens", 5)],
        None,
    ],
)
def test_usage_that_is_none_is_an_input_error(wrong: Any) -> None:
    with pytest.raises(InputError, match="token"):
        usage_of(wrong, "m", ROUND)


@given(
    st.dictionaries(st.sampled_from(["input_tokens", "output_tokens", "total_tokens", "input_token_details"]), ANYTHING)
)
def test_whatever_is_reported_there_is_a_usage_or_an_input_error(reported: dict[str, Any]) -> None:
    try:
        used = usage_of(reported, "m", ROUND)
    except InputError:
        return
    assert used.input_tokens == reported["input_tokens"]


@given(METADATA, A_PRICE)
def test_a_cost_is_never_below_nothing_and_never_above_its_dearest_price(used: dict[str, Any], price: Price) -> None:
    call = usage_of(used, "m", {"m": price})
    dearest = max(price.input, price.output, price.cached_input or 0, price.cache_write or 0)
    assert 0 <= call.cost <= call.total_tokens * dearest / 1e6 * (1 + 1e-12) + 1e-9
    assert call.cached_tokens <= call.input_tokens


# Sums


@given(USAGES, USAGES, USAGES)
def test_in_which_order_usages_are_added_does_not_matter(a: Usage, b: Usage, c: Usage) -> None:
    assert (a + b) + c == a + (b + c) == (c + a) + b


@given(st.lists(USAGES, max_size=50))
def test_a_sum_is_that_of_every_field(usages: list[Usage]) -> None:
    summed = total(usages)
    assert summed.calls == sum(usage.calls for usage in usages)
    assert summed.total_tokens == sum(usage.total_tokens for usage in usages)
    assert summed.cached_tokens == sum(usage.cached_tokens for usage in usages)
    assert summed.unpriced_calls == sum(usage.unpriced_calls for usage in usages)
    assert summed.cost == pytest.approx(math.fsum(usage.cost for usage in usages), abs=1e-6)


def test_many_small_costs_lose_nothing() -> None:
    call = usage_of(metadata(1), "gpt-5-nano", PRICES)
    assert total([call] * 100_000).cost == 100_000 * 0.05 / 1e6


def test_only_usages_are_added() -> None:
    with pytest.raises(TypeError):
        Usage() + 1  # type: ignore[operator]


def test_as_plain_data_it_has_its_total() -> None:
    assert Usage(calls=2, input_tokens=5, cached_tokens=1, output_tokens=3, cost=0.25, unpriced_calls=1).to_dict() == {
        "calls": 2,
        "input_tokens": 5,
        "cached_tokens": 1,
        "output_tokens": 3,
        "cost": 0.25,
        "unpriced_calls": 1,
        "total_tokens": 8,
    }


# Prices


def test_the_packaged_prices_say_where_they_come_from_and_of_which_day() -> None:
    assert PRICES_SOURCE == "litellm 1.109.1, 2026-11-22"


def test_every_line_of_the_packaged_file_is_a_price() -> None:
    text = resources.files("langchain_ctxbudget").joinpath("data/prices.json").read_text(encoding="utf-8")
    models = [name for name, _ in json.loads(text, object_pairs_hook=list)[-1][1]]
    assert list(PRICES) == models
    assert len(set(models)) == len(models) >= 60


def test_a_packaged_price_never_asks_more_for_what_is_cached() -> None:
    assert all((price.cached_input or 0) <= price.input <= price.output for price in PRICES.values())


def test_cached_packaged_writes_cost_at_least_the_input() -> None:
    assert all(price.cache_write is None or price.cache_write >= price.input for price in PRICES.values())


@pytest.mark.parametrize(
    ("model", "priced_as"),
    [
        ("gpt-4o", "gpt-4o"),
        ("openai/gpt-4o", "gpt-4o"),
        ("openai:gpt-4o", "gpt-4o"),
        ("openrouter/openai/gpt-4o", "gpt-4o"),
        ("gpt-4o-2024-08-06", "gpt-4o"),
        ("openai/gpt-4o-2024-08-06", "gpt-4o"),
        ("gpt-4o-2024-05-13", "gpt-4o-2024-05-13"),
        ("claude-opus-4-5-20251101", "claude-opus-4-5"),
        ("vertex_ai/claude-opus-4-5@20251101", "claude-opus-4-5"),
        ("models/gemini-2.5-pro", "gemini-2.5-pro"),
        ("gemini-2.5-pro-001", "gemini-2.5-pro"),
        ("openai/gpt-oss-20b", "openai/gpt-oss-20b"),
        ("groq/openai/gpt-oss-20b", "openai/gpt-oss-20b"),
    ],
)
def test_a_model_has_the_price_of(model: str, priced_as: str) -> None:
    assert price_of(model, PRICES) is PRICES[priced_as]


@pytest.mark.parametrize(
    "model",
    [
        None,
        "",
        "/",
        "openai/",
        "gpt-4o-audio-preview",
        "gpt-4o-mini-search-preview-2025-03-11",
        "ft:gpt-4o-2024-08-06:us::1",
        "ft:gpt-4o",
        "somewhere-else/gpt-4o",
        "gpt-4o-20240",
        "gpt-4o-2024-08-06-audio",
        "llama3.3:70b",
        "mistral-large-2411",
        "GPT-4o",
    ],
)
def test_a_model_that_only_looks_alike_has_no_price(model: str | None) -> None:
    assert price_of(model, PRICES) is None


def test_the_prices_of_an_application_lie_over_the_packaged_ones() -> None:
    prices = load_prices({"gpt-4o": {"input": 1, "output": 2}, "mine": Price(input=3, output=4)})
    assert prices["gpt-4o"] == Price(input=1, output=2)
    assert prices["mine"].input == 3
    assert prices["gpt-5"] is PRICES["gpt-5"]


def test_the_packaged_prices_stay_as_they_are() -> None:
    before = PRICES["gpt-4o"]
    load_prices({"gpt-4o": {"input": 1, "output": 2}})
    assert load_prices()["gpt-4o"] is before
    with pytest.raises(TypeError):
        PRICES["gpt-4o"] = Price(input=1, output=2)  # type: ignore[index]


def test_the_more_exact_name_counts_also_where_an_application_has_priced_another() -> None:
    prices = load_prices({"gpt-4o": {"input": 1, "output": 2}})
    assert price_of("gpt-4o-2024-05-13", prices) is PRICES["gpt-4o-2024-05-13"]
    assert price_of("gpt-4o-2024-08-06", prices) is prices["gpt-4o"]


@pytest.mark.parametrize("value", [-0.01, math.nan, math.inf, "2.5", True, [1], 1_000_001])
@pytest.mark.parametrize("name", ["input", "output", "cached_input", "cache_write"])
def test_a_price_that_is_no_number_of_dollars_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidSettingsError, match=rf"prices\['mine'\].* {name} .*{value!r}".replace("[1]", r"\[1\]")):
        load_prices({"mine": {"input": 1, "output": 2, name: value}})


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"mine": {"input": 1}}, "needs output"),
        ({"mine": {}}, "needs input and output"),
        ({"mine": {"input": 1, "output": 2, "per_image": 3}}, "no per_image"),
        ({"mine": {"input": None, "output": 2}}, "input must be"),
        ({"mine": 2.5}, "must be a mapping"),
        ({"": {"input": 1, "output": 2}}, "by the name"),
        ({4: {"input": 1, "output": 2}}, "by the name"),
        ([("mine", {"input": 1, "output": 2})], "must be a mapping"),
        ("gpt-4o", "must be a mapping"),
    ],
)
def test_prices_that_are_none_are_refused(wrong: Any, says: str) -> None:
    with pytest.raises(InvalidSettingsError, match=says):
        load_prices(wrong)
