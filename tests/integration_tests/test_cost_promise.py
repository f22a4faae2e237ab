"""P10: at the prices of each provider, a conversation never costs more than sending everything."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage

from langchain_ctxbudget import ContextPipeline, ContextReport
from langchain_ctxbudget.prompt.extension import GROWTH_POLICY
from langchain_ctxbudget.providers import ANTHROPIC, COMMON, GOOGLE, OPENAI, CacheTerms
from langchain_ctxbudget.providers.compatible import COMPATIBLE
from tests.cases import few_are_quick

CLAUDE = ANTHROPIC.cache_terms_for("claude-opus-5")
GEMINI = GOOGLE.cache_terms_for("gemini-3.8-flash")
TERMS = [
    pytest.param(OPENAI.cache_terms_for("gpt-4.1"), id="GPT-4.1"),
    pytest.param(OPENAI.cache_terms_for("gpt-5"), id="GPT-5"),
    pytest.param(OPENAI.cache_terms_for("gpt-5.6"), id="GPT-5.6"),
    pytest.param(CLAUDE, id="Claude for five minutes"),
    pytest.param(CLAUDE.lasting(3_600), id="Claude for an hour"),
    pytest.param(GEMINI, id="Gemini"),
    pytest.param(COMPATIBLE.cache_terms_for("deepseek-v4"), id="DeepSeek"),
    pytest.param(OPENAI.cache_terms_for("gpt-4-turbo"), id="no cache"),
]
TOLERANCE = 1.05
"""A prompt sends what was found for earlier messages again, which everything does not have."""
FREE_TO_READ = 0.05
"""Where reading costs less than that, the price of one rebuild is never saved."""
SMALL_BUDGET = 5_000
WORDS = "river bike train garden invoice python roof oven letter museum violin ticket".split()


@dataclass
class Clock:
    """A clock that a test moves."""

    now: datetime = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def text(rng: random.Random, words: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(words)) + "."


def reports_of(
    terms: CacheTerms, budget: int, pauses: Sequence[float], seed: int
) -> Iterator[ContextReport]:
    """The reports of a conversation with one turn after each pause."""
    clock = Clock()
    rng = random.Random(seed)
    chosen = {
        "max_context_tokens": budget,
        "learn": False,
        "cache_lifetime_seconds": terms.lifetime_seconds,
    }
    pipeline = ContextPipeline(
        chosen,
        system_prompt="You are helpful.",
        provider=replace(COMMON, cache=terms),
        clock=clock,
    )
    with pipeline:
        chat = pipeline.conversation("c1", user_id="ada")
        for pause in pauses:
            clock.now += timedelta(seconds=pause)
            context = chat.assemble(HumanMessage(text(rng, rng.randint(5, 60))))
            yield context.report
            words = rng.randint(200, 900) * budget // SMALL_BUDGET
            chat.add(context.turn, AIMessage(text(rng, words)))


def turns_above(reports: Iterator[ContextReport], debt: float) -> list[int]:
    """The turns up to which a conversation has cost more than sending everything."""
    ours = 0
    everything = 0
    above = []
    for number, report in enumerate(reports, 1):
        ours += report.stability.effective_tokens
        everything += report.stability.whole_effective_tokens
        if ours > TOLERANCE * everything + debt:
            above.append(number)
    return above


@pytest.mark.slow
@pytest.mark.parametrize("terms", few_are_quick(TERMS, 2))
@settings(max_examples=2, deadline=None)
@given(
    pauses=st.lists(
        st.sampled_from([20, 60, 60, 290, 400, 2_000, 100_000]), min_size=16, max_size=20
    ),
    seed=st.integers(0, 1_000),
)
def test_no_conversation_costs_more_than_everything(
    terms: CacheTerms, pauses: list[float], seed: int
) -> None:
    budget = max(SMALL_BUDGET, 3 * terms.smallest_tokens)
    debt = 0.0
    if terms.read_price < FREE_TO_READ:
        debt = terms.cost(int(budget * GROWTH_POLICY.rebuild_share))

    assert turns_above(reports_of(terms, budget, pauses, seed), debt) == []


def notes_of(terms: CacheTerms, budget: int, turns: int) -> Sequence[str]:
    """The notes of the last report of a conversation."""
    return [*reports_of(terms, budget, [60] * turns, 1)][-1].notes


def test_a_budget_that_is_small_beside_the_smallest_cached_prompt_is_told() -> None:
    assert notes_of(GEMINI, 5_000, 20) == (
        (
            "a budget of 5,000 tokens is small beside the 4,096 of the smallest prompt that the "
            "provider caches: sending everything may cost less"
        ),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("budget", "turns"),
    [
        pytest.param(3_000, 2, id="everything is small, too"),
        pytest.param(12_000, 20, id="a larger budget"),
    ],
)
def test_other_budgets_have_no_such_note(budget: int, turns: int) -> None:
    assert notes_of(GEMINI, budget, turns) == ()
