"""What the calls that the package makes itself add up to, and what they cost."""

from statistics import median

import pytest

from langchain_ctxbudget.providers import CacheTerms
from langchain_ctxbudget.tokens import PRICES, OwnCalls, Price, Purpose, Usage
from langchain_ctxbudget.tokens.own_calls import OUTPUT_PRICE

LEARNING = Usage(calls=2, input_tokens=1_000, cached_tokens=400, output_tokens=20, cost=0.01)
SUMMARY = Usage(calls=1, input_tokens=500, output_tokens=100, cost=0.02, estimated_calls=1)
BOTH = OwnCalls({Purpose.LEARNING: LEARNING, Purpose.SUMMARY: SUMMARY})
TERMS = CacheTerms(read_price=0.5)


def test_calls_of_a_purpose_are_kept_apart() -> None:
    calls = OwnCalls({Purpose.LEARNING: LEARNING}) + OwnCalls({Purpose.SUMMARY: SUMMARY})
    assert calls == BOTH


def test_the_total_is_that_of_all_purposes() -> None:
    assert BOTH.total == LEARNING + SUMMARY


def test_for_a_purpose_without_a_call_nothing_was_used() -> None:
    assert BOTH.used_for(Purpose.LEARNING_AND_SUMMARY) == Usage()


def test_what_was_used_since_is_the_difference() -> None:
    later = BOTH + OwnCalls({Purpose.LEARNING: LEARNING})
    assert later.since(BOTH) == OwnCalls({Purpose.LEARNING: LEARNING})


def test_nothing_was_used_since_more_was_told() -> None:
    assert OwnCalls().since(BOTH) == OwnCalls()


def test_dollars_are_compared_where_prices_are_known() -> None:
    price = Price(input=3, output=15)
    assert BOTH.effective_tokens(price, TERMS) == 10_000  # 0.03 dollars at 3 for a million


@pytest.mark.parametrize(
    ("calls", "price"),
    [
        (BOTH, None),
        (BOTH, Price(input=0, output=0)),
        (
            BOTH + OwnCalls({Purpose.LEARNING: Usage(calls=1, unpriced_calls=1)}),
            Price(input=3, output=15),
        ),
    ],
    ids=["unknown model", "free model", "unknown summary model"],
)
def test_else_tokens_are_compared(calls: OwnCalls, price: Price | None) -> None:
    # 1,100 new tokens, 400 cached ones at a half, 120 of output
    assert calls.effective_tokens(price, TERMS) == 1_100 + 200 + 120 * OUTPUT_PRICE


def test_the_price_of_output_is_the_median_of_the_packaged_prices() -> None:
    ratios = [price.output / price.input for price in PRICES.values() if price.input]
    assert median(ratios) == OUTPUT_PRICE
