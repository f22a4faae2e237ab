"""Budgets are divided between layers by rules that can be relied on, under every strategy in every situation."""

import json
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from langchain_ctxbudget import budget
from langchain_ctxbudget.errors import InvalidSettingsError, SystemPromptTooLargeError
from langchain_ctxbudget.settings import CustomLayer
from tests.integration_tests import strategies as made

QUICK = settings(suppress_health_check=[HealthCheck.too_slow], max_examples=60)
OWN = ("open files", "weather")


@st.composite
def specs(draw, name, most=300):
    low, ideal, high = sorted(draw(st.tuples(*[st.integers(0, most)] * 3)))
    priority = draw(st.sampled_from([0, 1, 50, 65, 66, 90, 100]))
    elasticity = draw(st.sampled_from([0.0, 0.3, 1.0]))
    return budget.LayerSpec(
        name, low, ideal, high, priority, elasticity, draw(st.none() | st.integers(0, 2 * most))
    )


@st.composite
def divisions(draw):
    names = draw(
        st.lists(st.sampled_from((*budget.Layer, *OWN)), unique=True, min_size=1, max_size=7)
    )
    wanted = [draw(specs(name)) for name in names]
    return (
        wanted,
        draw(st.integers(-10, 1_500)),
        draw(st.integers(0, len(wanted) - 1)),
        draw(st.integers(1, 300)),
    )


@QUICK
@given(case=divisions())
def test_when_tokens_are_divided(case):
    wanted, available, number, more = case
    tokens = budget.divide(wanted, available)
    assert sum(tokens.values()) <= max(0, available)
    assert budget.divide(wanted[::-1], available) == tokens, (
        "the order of the layers does not matter"
    )
    assert set(tokens) == {s.layer for s in wanted}
    assert all(
        tokens[s.layer] == 0 or s.min_tokens <= tokens[s.layer] <= s.limit_tokens for s in wanted
    )
    filled = [s for s in wanted if tokens[s.layer] > 0 or s.min_tokens == 0]
    if any(tokens[s.layer] > s.max_tokens for s in filled):
        assert all(tokens[s.layer] >= s.max_tokens for s in filled), (
            "past its maximum only when all are reached"
        )

    one = wanted[number]
    ideal = one.ideal_tokens + more
    for raised in (
        replace(one, priority=one.priority + more),
        replace(one, ideal_tokens=min(one.max_tokens, ideal)),
        replace(one, ideal_tokens=ideal, max_tokens=max(ideal, one.max_tokens)),
    ):
        after = budget.divide([*wanted[:number], raised, *wanted[number + 1 :]], available)
        assert after[one.layer] >= tokens[one.layer], "a higher priority or ideal never means less"

    enough = sum(s.min_tokens for s in wanted) + max(0, available)
    small = budget.divide(wanted, enough)
    large = budget.divide(wanted, enough + more)
    assert all(large[s.layer] >= small[s.layer] >= s.min_tokens for s in wanted), (
        "more budget never means less"
    )
    useful = min(enough, sum(s.limit_tokens for s in wanted))
    assert sum(small.values()) > useful - len(wanted), "rounding wastes less than a token per layer"
    ideals = budget.divide(wanted, sum(s.ideal_tokens for s in wanted))
    assert all(ideals[s.layer] >= s.ideal_tokens for s in wanted)


def spec(layer, *, low=0, ideal=100, high=100, priority=50, elasticity=0.0, usable=None):
    return budget.LayerSpec(layer, low, ideal, high, priority, elasticity, usable)


def test_a_division_by_hand():
    for wanted, available, expected in (
        # Layers of the same priority grow in proportion to what they want,
        ([spec("a"), spec("b", ideal=50)], 75, {"a": 50, "b": 25}),
        # a higher priority faster, an elastic layer slower.
        ([spec("a", priority=80), spec("b", priority=40)], 90, {"a": 60, "b": 30}),
        ([spec("a", elasticity=1.0), spec("b")], 90, {"a": 30, "b": 60}),
        # Tokens that a full layer does not need go to the others,
        (
            [spec("a", ideal=10, high=10, priority=100), spec("b", priority=10)],
            60,
            {"a": 10, "b": 50},
        ),
        # those that nobody wants to the highest priority up to its maximum, and then past it as far
        # as usable.
        (
            [spec("a", ideal=10, high=99), spec("b", ideal=10, high=30, priority=90)],
            50,
            {"a": 20, "b": 30},
        ),
        ([spec("a", usable=130), spec("b", priority=40, usable=400)], 330, {"a": 130, "b": 200}),
        (
            [spec("a", priority=90, usable=500), spec("b", ideal=50, high=120)],
            210,
            {"a": 100, "b": 110},
        ),
        # Layers of the same priority are served by name; one whose floor does not fit gets nothing.
        ([spec("b", low=50), spec("a", low=50)], 60, {"a": 60, "b": 0}),
        ([spec("a", low=20, priority=10), spec("b", low=50, priority=90)], 60, {"a": 0, "b": 60}),
        ([], 100, {}),
    ):
        assert budget.divide(wanted, available) == expected


@st.composite
def situations(draw):
    number = st.integers(0, 3_000)
    topics = draw(st.integers(0, 4))
    entities = draw(st.integers(0, 12))
    history = draw(st.one_of(number, st.integers(0, 10**6)))
    exchanges = draw(
        st.lists(st.integers(0, history // budget.MOST_EXCHANGES), max_size=budget.MOST_EXCHANGES)
    )
    total = draw(st.one_of(st.integers(1, 500), st.integers(1, 20_000), st.integers(1, 200_000)))
    return budget.Situation(
        total_tokens=total,
        overhead_tokens=draw(st.integers(0, 300)),
        identity_tokens=draw(
            st.integers(0, min(total, 3_000))
        ),  # more is refused before anything is divided
        preferences_tokens=draw(number),
        memory_tokens=draw(number),
        message_tokens=draw(number),
        message_count=draw(st.integers(0, 60) | st.integers(0, 100_000)),
        history_tokens=history,
        keep_tokens=draw(st.integers(0, min(history, 3_000))),
        exchanges=tuple(budget.Exchange(1 + size % 4, size) for size in exchanges),
        topic_count=topics,
        topic_tokens=draw(number) if topics else 0,
        entity_count=entities,
        entity_tokens=draw(number) if entities else 0,
        custom=tuple(replace(draw(specs(name, 1_000)), usable_tokens=None) for name in OWN),
        depth=draw(st.sampled_from(["minimal", "standard", "deep"])),
        prioritize_history=draw(st.booleans()),
    )


strategies = st.tuples(*made.allocations(OWN).values()).map(
    lambda values: [*map(budget.strategy_of, values)]
)


@QUICK
@given(s=situations(), strategies=strategies, more=st.integers(1, 500))
def test_in_every_situation(s, strategies, more):
    for strategy in strategies:
        check_strategy(strategy, s, more)


def check_strategy(strategy, s, more):
    a = strategy.allocate(s)
    tokens = a.tokens
    if s.overhead_tokens + s.identity_tokens + s.message_tokens <= s.total_tokens:
        assert sum(tokens.values()) + s.overhead_tokens + a.reserve_tokens <= s.total_tokens, (
            "it fits"
        )
    assert min(a.reserve_tokens, *tokens.values()) >= 0
    assert set(tokens) == {*budget.Layer, *OWN}
    assert all(
        0 <= w.min_tokens <= w.ideal_tokens <= w.max_tokens <= w.limit_tokens for w in a.specs
    )
    assert strategy.allocate(replace(s, custom=s.custom[::-1])).tokens == tokens, (
        "own layers come in any order"
    )
    assert not a.fits_whole or tokens[budget.Layer.HISTORY] == s.history_tokens

    assert tokens[budget.Layer.TOPICS] <= s.topic_tokens
    assert tokens[budget.Layer.ENTITIES] <= s.entity_tokens
    assert tokens[budget.Layer.PREFERENCES] <= s.preferences_tokens + s.memory_tokens
    for own in s.custom:
        assert tokens[own.layer] == 0 or own.min_tokens <= tokens[own.layer] <= own.limit_tokens
        others = [other for other in s.custom if other is not own]
        ideal = min(own.max_tokens, own.ideal_tokens + more)
        for raised in (
            replace(own, priority=own.priority + more),
            replace(own, ideal_tokens=ideal),
        ):
            after = strategy.allocate(replace(s, custom=(*others, raised)))
            assert after.tokens[own.layer] >= tokens[own.layer], (
                "a higher priority or ideal never means less"
            )

    kept = s.keep_tokens
    if isinstance(strategy, budget.RatioAllocation):
        kept = sum(exchange.tokens for exchange in s.exchanges[: strategy.min_exchanges])
    if not isinstance(strategy, budget.ElasticAllocation) and kept <= s.free_tokens:
        assert tokens[budget.Layer.HISTORY] >= kept, "the newest messages that stay have room"
    if isinstance(
        strategy, budget.DynamicAllocation
    ):  # over ten entities take it by the seed's own formula
        a = strategy.allocate(replace(s, custom=(), entity_count=min(10, s.entity_count)))
        if (
            not a.fits_whole
            and s.free_tokens - a.tokens[budget.Layer.HISTORY] - a.tokens[budget.Layer.ARC] > 10
        ):
            assert a.spec_of(budget.Layer.RETRIEVAL).limit_tokens > 0, (
                "a history that does not fit is retrieved from"
            )


def situation(**changes):
    empty = dict.fromkeys(
        ("overhead_tokens", "identity_tokens", "preferences_tokens", "message_tokens"), 0
    )
    return budget.Situation(
        **{
            **empty,
            "total_tokens": 10_000,
            "message_count": 25,
            "history_tokens": 50_000,
            **changes,
        }
    )


def elastic(**changes):
    talk = {
        "total_tokens": 12_000,
        "identity_tokens": 100,
        "message_count": 400,
        "history_tokens": 40_000,
    }
    return budget.ElasticAllocation().allocate(situation(**{**talk, **changes})).tokens


def test_a_strategy_comes_from_json_and_is_named_in_reports():
    for value, name in (
        ("elastic", "elastic"),
        ({"strategy": "elastic", "profile": "seed"}, "elastic (seed)"),
        ("ratio", "ratio 30/40/30"),
        ({"strategy": "fixed", "system": 0.1}, "fixed"),
        ("dynamic", "dynamic"),
        (
            {"strategy": "prioritized", "order": ["retrieval", "history"]},
            "prioritized: retrieval, history",
        ),
    ):
        strategy = budget.strategy_of(json.loads(json.dumps(value)))
        assert strategy.name == strategy.allocate(situation()).strategy == name


def test_ratios_further_from_one_are_refused():
    for sums_to in (0.5, 0.94, 1.06):
        with pytest.raises(
            InvalidSettingsError, match=rf"must add up to 1, give or take 0.05, not {sums_to:.2f}"
        ):
            budget.RatioAllocation(memory=0.25, history=0.2, reserve=sums_to - 0.45)


def test_a_system_prompt_over_a_quarter_of_the_budget_is_refused():
    said = "2,501 tokens, over 25% of the budget, which is 2,500"
    with pytest.raises(SystemPromptTooLargeError, match=said) as caught:
        budget.RatioAllocation().allocate(situation(identity_tokens=2_501))
    assert caught.value.floors == {"L0 system prompt": 2_501}
    assert "max_system_share" in str(caught.value)


def test_shares_of_more_than_everything_are_refused():
    with pytest.raises(InvalidSettingsError, match=r"at most 1 together, not 1\.10"):
        budget.FixedAllocation(system=0.1, history=0.4, entities=0.1, retrieval=0.4, query=0.1)


def test_a_system_prompt_over_its_share_shrinks_the_others_together():
    fixed = budget.FixedAllocation(system=0.1, history=0.4, entities=0.1, retrieval=0.3, query=0.1)
    full = {"topic_count": 1, "topic_tokens": 5_000, "message_tokens": 1_000, "message_count": 0}
    for identity, expected in ((1_000, [4_000, 1_000, 3_000]), (5_000, [2_000, 500, 1_500])):
        tokens = fixed.allocate(situation(identity_tokens=identity, **full)).tokens
        assert [
            tokens[layer]
            for layer in (budget.Layer.HISTORY, budget.Layer.TOPICS, budget.Layer.RETRIEVAL)
        ] == expected


FULL = {
    "preferences_tokens": 500,
    "topic_count": 2,
    "topic_tokens": 2_000,
    "entity_count": 1,
    "entity_tokens": 1_000,
}
FILES = CustomLayer(name="open files", items=(), ideal_tokens=5_000).spec


def test_layers_are_filled_one_after_the_other():
    for order, expected in (
        (
            (),
            {"L1": 500, "L6": 8_000, "L2": 1_500, "L3": 0},
        ),  # the default: preferences, history, topics, entities
        (
            ("entities", "topics", "history", "preferences"),
            {"L3": 1_000, "L2": 2_000, "L6": 7_000, "L1": 0},
        ),
        (
            ("retrieval",),
            {"L5": 0, "L6": 8_000},
        ),  # the whole history is there: nothing to retrieve from it
        (
            ("open files", "topics"),
            {"open files": 5_000, "L2": 2_000, "L1": 500, "L6": 2_500, "L3": 0},
        ),
    ):
        talk = situation(history_tokens=8_000, message_count=0, custom=(FILES,), **FULL)
        tokens = budget.PrioritizedAllocation(order=order).allocate(talk).tokens
        assert {layer: tokens[layer] for layer in expected} == expected


def test_a_layer_that_is_not_there_is_refused_with_those_that_are():
    known = "the layers are preferences, history, topics, entities, retrieval, open files"
    with pytest.raises(InvalidSettingsError, match=f"order names 'files', 'weather'; {known}"):
        budget.PrioritizedAllocation(order=("history", "files", "weather")).allocate(
            situation(custom=(FILES,))
        )


def test_a_step_gives_arc_and_learned_facts_their_share_of_what_the_prompt_may_grow_to():
    long = {
        "message_count": 600,
        "history_tokens": 60_000,
        "memory_tokens": 900,
        "learned_tokens": 900,
    }
    at_once, at_a_step = (
        budget.ElasticAllocation()
        .allocate(situation(total_tokens=4_000, grown_tokens=grown, **long))
        .tokens
        for grown in (0, 10_000)
    )
    for layer in (budget.Layer.ARC, budget.Layer.PREFERENCES):
        assert at_once[layer] < at_a_step[layer] <= 2.5 * at_once[layer] + 1, layer
