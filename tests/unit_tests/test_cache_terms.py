"""How providers cache prompts, and what they charge for that."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxbudget.prompt.savings import Savings
from langchain_ctxbudget.providers import (
    ANTHROPIC,
    COMMON,
    GOOGLE,
    OPENAI,
    CacheTerms,
    Profile,
)
from langchain_ctxbudget.providers.bedrock import BEDROCK_CONVERSE
from langchain_ctxbudget.providers.compatible import COMPATIBLE
from langchain_ctxbudget.tokens import PRICES, ModelTarget, Price, terms_at

CLAUDE = ANTHROPIC.cache
GPT_4O = OPENAI.cache_terms_for("gpt-4o")
GPT_5_6 = OPENAI.cache_terms_for("gpt-5.6-sol")
FREE_TO_READ = CacheTerms(read_price=0.0)
TERMS = [COMMON.cache, CLAUDE, CLAUDE.lasting(3_600), GPT_4O, GPT_5_6, GOOGLE.cache, FREE_TO_READ]


@pytest.mark.parametrize(
    ("terms", "tokens", "shared_tokens", "cost"),
    [
        pytest.param(COMMON.cache, 2_000, 1_000, 1_100, id="a tenth where nothing is known"),
        pytest.param(CLAUDE, 2_000, 0, 2_500, id="Claude charges for writing"),
        pytest.param(CLAUDE, 12_000, 10_000, 3_500, id="Claude reads at a tenth"),
        pytest.param(CLAUDE, 1_023, 1_000, 1_023, id="a small prompt is not cached"),
        pytest.param(CLAUDE, 2_000, 1_023, 2_500, id="a small beginning is not read"),
        pytest.param(CLAUDE.lasting(3_600), 2_000, 0, 4_000, id="an hour costs double"),
        pytest.param(GPT_4O, 2_000, 1_100, 1_488, id="steps of 128 at a half"),
        pytest.param(GPT_5_6, 2_048, 1_024, 1_382.4, id="GPT-5.6 charges for writing"),
        pytest.param(FREE_TO_READ, 2_000, 1_500, 500, id="reading costs nothing"),
    ],
)
def test_the_cost_of_a_prompt(
    terms: CacheTerms, tokens: int, shared_tokens: int, cost: float
) -> None:
    assert terms.cost(tokens, shared_tokens) == pytest.approx(cost)


@pytest.mark.parametrize(
    ("profile", "model", "smallest_tokens"),
    [
        (ANTHROPIC, "claude-sonnet-4-5", 1_024),
        (ANTHROPIC, "claude-haiku-4-5-20251001", 4_096),
        (ANTHROPIC, "us.anthropic.claude-opus-4-5-20251101-v1:0", 4_096),
        (ANTHROPIC, "anthropic/claude-opus-4-7", 2_048),
        (ANTHROPIC, "claude-opus-5", 512),
        (GOOGLE, "models/gemini-2.5-flash", 2_048),
        (GOOGLE, "gemini-3.8-flash", 4_096),
        (OPENAI, "gpt-5.2", 1_024),
        (COMMON, "", 0),
        (COMPATIBLE, "deepseek-v4", 0),
        (COMPATIBLE, "anthropic/claude-haiku-4-5", 4_096),
        (BEDROCK_CONVERSE, "us.anthropic.claude-haiku-4-5-20251001-v1:0", 4_096),
    ],
)
def test_the_smallest_cached_prompt_is_that_of_the_model(
    profile: Profile, model: str, smallest_tokens: int
) -> None:
    assert profile.cache_terms_for(model).smallest_tokens == smallest_tokens


@pytest.mark.parametrize(
    "model",
    [
        *("gpt-3.5-turbo", "gpt-4-turbo", "gpt-4o", "gpt-4o-mini", "gpt-4.1-nano", "gpt-5-mini"),
        *("gpt-5.5", "gpt-5.6", "gpt-6-sol", "o1", "o3", "o3-mini", "o4-mini"),
    ],
)
def test_the_terms_of_a_family_are_those_of_the_price_list(model: str) -> None:
    terms = OPENAI.cache_terms_for(model)

    assert terms_at(PRICES[model], terms) == terms


@pytest.mark.parametrize(
    ("model", "write_price"), [("gpt-5.1-codex", 1.0), ("gpt-5.5", 1.0), ("gpt-5.7", 1.25)]
)
def test_families_from_gpt_5_6_on_pay_for_writing(model: str, write_price: float) -> None:
    assert OPENAI.cache_terms_for(model).write_price == write_price


def test_a_given_price_counts_before_the_providers_own() -> None:
    prices = {"gpt-4o": Price(input=4, output=1, cached_input=1, cache_write=6)}

    terms = ModelTarget("gpt-4o", None, prices=prices).cache

    assert (terms.read_price, terms.write_price) == (0.25, 1.5)


@pytest.mark.parametrize("price", [None, Price(input=0, output=0)], ids=["no price", "free"])
def test_without_a_price_the_terms_stay(price: Price | None) -> None:
    assert terms_at(price, CLAUDE) is CLAUDE


@pytest.mark.parametrize(
    ("seconds", "write_price"), [(60, 1.25), (300, 1.25), (301, 2.0), (3_600, 2.0), (1e9, 1.25)]
)
def test_a_longer_lifetime_has_its_own_price(seconds: float, write_price: float) -> None:
    assert CLAUDE.lasting(seconds).write_price == write_price


# Savings at these prices

TOKENS = st.integers(min_value=0, max_value=100_000)


@given(terms=st.sampled_from(TERMS), own=TOKENS, extra=TOKENS, shorter_by=TOKENS)
def test_savings_never_count_more_than_was_saved(
    terms: CacheTerms, own: int, extra: int, shorter_by: int
) -> None:
    is_uncached = own + extra < terms.smallest_tokens
    savings = Savings(0, terms).after_prompts(
        prompts=1,
        shorter_by=shorter_by,
        extra_tokens=extra,
        uncached_tokens=own if is_uncached else 0,
    )

    cost = extra * terms.write_price + own * (1 if is_uncached else terms.read_price)
    cost_of_everything = (own + shorter_by) * terms.read_price
    assert savings.tokens <= cost_of_everything - cost + 1e-6


@given(terms=st.sampled_from(TERMS), saved=TOKENS)
def test_savings_pay_for_no_more_new_tokens_than_they_are_worth(
    terms: CacheTerms, saved: int
) -> None:
    savings = Savings(saved, terms)

    assert terms.cost(savings.new_tokens) <= saved


@given(terms=st.sampled_from(TERMS), total=TOKENS, shared=TOKENS)
def test_a_shared_beginning_never_makes_a_prompt_dearer(
    terms: CacheTerms, total: int, shared: int
) -> None:
    assert terms.cost(total, min(total, shared)) <= terms.cost(total)
