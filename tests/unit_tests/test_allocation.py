"""Budgets are divided between layers by rules that can be relied on."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from types import FrameType
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.core.allocation import Allocation, ElasticAllocation, LayerSpec, Situation, divide
from langchain_ctxbudget.core.allocation.elastic import LEANS, history_share
from langchain_ctxbudget.core.layers import Layer

COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
QUICK, LONG = settings(COMMON, max_examples=100), settings(COMMON, max_examples=2_000)
NAMES = (*map(str, Layer), "open files", "weather", "L8", "")


class Division(NamedTuple):
    """Layers, and one of them to change."""

    wanted: list[LayerSpec]
    available_tokens: int
    index: int
    more: int
    """By how much something is raised."""
    shuffled: list[LayerSpec]

    @property
    def enough_tokens(self) -> int:
        """At least the sum of all floors."""
        return sum(s.min_tokens for s in self.wanted) + max(0, self.available_tokens)

    def with_one(self, **changes) -> list[LayerSpec]:
        return [replace(s, **changes) if i == self.index else s for i, s in enumerate(self.wanted)]

    @property
    def one(self) -> LayerSpec:
        return self.wanted[self.index]


@st.composite
def divisions(draw):
    wanted = [_spec(draw, name) for name in draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1, max_size=7))]
    return Division(
        wanted,
        draw(st.integers(-10, 1_500)),
        draw(st.integers(0, len(wanted) - 1)),
        draw(st.integers(1, 300)),
        draw(st.permutations(wanted)),
    )


def _spec(draw, name):
    low, ideal, high = sorted(draw(st.tuples(*[st.integers(0, 300)] * 3)))
    return LayerSpec(
        layer=name,
        min_tokens=low,
        ideal_tokens=ideal,
        max_tokens=high,
        priority=draw(st.sampled_from([0, 1, 50, 65, 66, 90, 100])),
        elasticity=draw(st.sampled_from([0.0, 0.3, 0.5, 0.7, 1.0])),
        usable_tokens=draw(st.none() | st.integers(0, 600)),
    )


def layers_together_get_no_more_than_there_is(case):
    assert sum(divide(case.wanted, case.available_tokens).values()) <= max(0, case.available_tokens)


def the_order_of_the_layers_does_not_matter(case):
    assert divide(case.shuffled, case.available_tokens) == divide(case.wanted, case.available_tokens)


def the_same_layers_get_the_same(case):
    again = [replace(s) for s in case.wanted]
    assert list(divide(again, case.available_tokens).items()) == list(
        divide(case.wanted, case.available_tokens).items()
    )


def every_layer_gets_nothing_or_something_between_its_floor_and_its_limit(case):
    tokens = divide(case.wanted, case.available_tokens)
    assert set(tokens) == {s.layer for s in case.wanted}
    assert all(tokens[s.layer] == 0 or s.min_tokens <= tokens[s.layer] <= s.limit_tokens for s in case.wanted)


def a_higher_priority_never_means_less(case):
    raised = case.with_one(priority=case.one.priority + case.more)
    before, after = (divide(wanted, case.available_tokens) for wanted in (case.wanted, raised))
    assert after[case.one.layer] >= before[case.one.layer]


def a_higher_ideal_never_means_less(case):
    raised = case.with_one(ideal_tokens=min(case.one.max_tokens, case.one.ideal_tokens + case.more))
    before, after = (divide(wanted, case.available_tokens) for wanted in (case.wanted, raised))
    assert after[case.one.layer] >= before[case.one.layer]


def a_higher_ideal_that_lifts_the_maximum_never_means_less(case):
    ideal = case.one.ideal_tokens + case.more
    raised = case.with_one(ideal_tokens=ideal, max_tokens=max(ideal, case.one.max_tokens))
    before, after = (divide(wanted, case.available_tokens) for wanted in (case.wanted, raised))
    assert after[case.one.layer] >= before[case.one.layer]


def where_the_floors_fit_a_larger_budget_never_means_less(case):
    small, large = divide(case.wanted, case.enough_tokens), divide(case.wanted, case.enough_tokens + case.more)
    assert all(large[layer] >= small[layer] for layer in small)


def where_the_floors_fit_every_layer_gets_its_floor(case):
    tokens = divide(case.wanted, case.enough_tokens)
    assert all(tokens[s.layer] >= s.min_tokens for s in case.wanted)


def where_the_ideals_fit_every_layer_gets_its_ideal(case):
    tokens = divide(case.wanted, sum(s.ideal_tokens for s in case.wanted) + max(0, case.available_tokens))
    assert all(tokens[s.layer] >= s.ideal_tokens for s in case.wanted)


def past_its_maximum_a_layer_grows_only_when_all_maxima_are_reached(case):
    tokens = divide(case.wanted, case.available_tokens)
    given_ = [s for s in case.wanted if tokens[s.layer] > 0 or s.min_tokens == 0]
    past = any(tokens[s.layer] > s.max_tokens for s in given_)
    assert not past or all(tokens[s.layer] >= s.max_tokens for s in given_)


def rounding_wastes_less_than_a_token_per_layer(case):
    useful = min(case.enough_tokens, sum(s.limit_tokens for s in case.wanted))
    assert sum(divide(case.wanted, case.enough_tokens).values()) >= useful - (len(case.wanted) - 1)


FACTS = (
    layers_together_get_no_more_than_there_is,
    the_order_of_the_layers_does_not_matter,
    the_same_layers_get_the_same,
    every_layer_gets_nothing_or_something_between_its_floor_and_its_limit,
    a_higher_priority_never_means_less,
    a_higher_ideal_never_means_less,
    a_higher_ideal_that_lifts_the_maximum_never_means_less,
    where_the_floors_fit_a_larger_budget_never_means_less,
    where_the_floors_fit_every_layer_gets_its_floor,
    where_the_ideals_fit_every_layer_gets_its_ideal,
    past_its_maximum_a_layer_grows_only_when_all_maxima_are_reached,
    rounding_wastes_less_than_a_token_per_layer,
)


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.__name__)
@QUICK
@given(case=divisions())
def test_when_tokens_are_divided(fact, case):
    fact(case)


@pytest.mark.slow
@LONG
@given(case=divisions())
def test_all_of_it_when_tokens_are_divided_on_many_more(case):
    for fact in FACTS:
        fact(case)


def spec(layer=Layer.TOPICS, *, low=0, ideal=100, high=100, priority=50, elasticity=0.0, usable=None):
    return LayerSpec(
        layer=layer,
        min_tokens=low,
        ideal_tokens=ideal,
        max_tokens=high,
        priority=priority,
        elasticity=elasticity,
        usable_tokens=usable,
    )


def operations(count: int, available_tokens: int) -> int:
    """Function calls, those of comparisons and of arithmetic in fractions included, to divide between layers."""
    wanted = [
        spec(f"layer {i * 7919 % count}", low=i % 5, ideal=50 + i % 60, high=200, priority=i % 101, usable=300)
        for i in range(count)
    ]
    seen: Counter[str] = Counter()

    def profile(_frame: FrameType, event: str, _argument: object) -> None:
        seen[event] += 1

    sys.setprofile(profile)
    try:
        divide(wanted, available_tokens)
    finally:
        sys.setprofile(None)
    return seen["call"] + seen["c_call"]


@pytest.mark.parametrize("each", [1, 30, 120, 250], ids=["floors do not fit", "contention", "leftovers", "past maxima"])
def test_ten_times_the_layers_are_hardly_more_than_ten_times_the_work(each):
    few, many = operations(100, 100 * each), operations(1_000, 1_000 * each)
    assert 9 * few < many < 16 * few  # n log n is 15 times; every pair of layers would be 100 times


def test_layers_of_the_same_priority_grow_in_proportion_to_what_they_want():
    tokens = divide([spec(Layer.TOPICS, ideal=100), spec(Layer.ENTITIES, ideal=50)], 75)
    assert tokens == {Layer.TOPICS: 50, Layer.ENTITIES: 25}


def test_a_higher_priority_grows_faster():
    tokens = divide([spec(Layer.TOPICS, priority=80), spec(Layer.ENTITIES, priority=40)], 90)
    assert tokens == {Layer.TOPICS: 60, Layer.ENTITIES: 30}


def test_an_elastic_layer_gives_way():
    tokens = divide([spec(Layer.TOPICS, elasticity=1.0), spec(Layer.ENTITIES)], 90)
    assert tokens == {Layer.TOPICS: 30, Layer.ENTITIES: 60}


def test_what_a_full_layer_does_not_need_goes_to_the_others():
    tokens = divide([spec(Layer.TOPICS, ideal=10, high=10, priority=100), spec(Layer.ENTITIES, priority=10)], 60)
    assert tokens == {Layer.TOPICS: 10, Layer.ENTITIES: 50}


def test_what_nobody_wants_goes_to_the_highest_priority_up_to_its_maximum():
    wanted = [spec(Layer.TOPICS, ideal=10, high=99), spec(Layer.ENTITIES, ideal=10, high=30, priority=90)]
    assert divide(wanted, 50) == {Layer.TOPICS: 20, Layer.ENTITIES: 30}


def test_what_still_nobody_wants_goes_past_a_maximum_as_far_as_it_is_usable():
    wanted = [spec(Layer.TOPICS, high=100, usable=130), spec(Layer.ENTITIES, high=100, priority=40, usable=400)]
    assert divide(wanted, 330) == {Layer.TOPICS: 130, Layer.ENTITIES: 200}


def test_what_is_usable_gives_no_claim_while_others_want_the_tokens():
    wanted = [spec(Layer.TOPICS, high=100, priority=90, usable=500), spec(Layer.ENTITIES, ideal=50, high=120)]
    assert divide(wanted, 210) == {Layer.TOPICS: 100, Layer.ENTITIES: 110}


def test_layers_of_the_same_priority_are_served_in_their_own_order():
    wanted = [spec(Layer.ENTITIES, low=50), spec(Layer.TOPICS, low=50)]
    assert divide(wanted, 60) == divide(wanted[::-1], 60) == {Layer.TOPICS: 60, Layer.ENTITIES: 0}


def test_a_layer_whose_floor_does_not_fit_gets_nothing():
    wanted = [spec(Layer.TOPICS, low=20, priority=10), spec(Layer.ENTITIES, low=50, priority=90)]
    assert divide(wanted, 60) == {Layer.TOPICS: 0, Layer.ENTITIES: 60}


def test_no_layers_get_nothing():
    assert divide([], 100) == {}


EMPHASES = pytest.mark.parametrize("emphasis", LEANS)
RATIOS = st.floats(0, 1e9)


@EMPHASES
def test_history_that_fits_the_pool_gets_all_of_it(emphasis):
    assert history_share(0.5, LEANS[emphasis]) == history_share(1, LEANS[emphasis]) == 1


@EMPHASES
@QUICK
@given(first=RATIOS, second=RATIOS)
def test_a_longer_history_never_gets_a_larger_share(emphasis, first, second):
    lean = LEANS[emphasis]
    less, more = history_share(max(first, second), lean), history_share(min(first, second), lean)
    assert 1 >= more >= less >= lean.least_share


@EMPHASES
def test_a_history_far_larger_than_the_pool_keeps_its_least_share(emphasis):
    assert history_share(1e12, LEANS[emphasis]) == pytest.approx(LEANS[emphasis].least_share, abs=1e-5)


@QUICK
@given(RATIOS)
def test_history_has_least_where_recall_is_worth_more_and_most_where_the_cache_is(ratio):
    shares = [history_share(ratio, LEANS[emphasis]) for emphasis in ("recall", "balanced", "cache")]
    assert shares == sorted(shares)


def situation(**changes):
    sizes = {
        "total_tokens": 12_000,
        "overhead_tokens": 50,
        "identity_tokens": 100,
        "preferences_tokens": 0,
        "message_tokens": 50,
        "message_count": 400,
        "history_tokens": 40_000,
    }
    return Situation(**{**sizes, **changes})


def allocated(**changes) -> Allocation:
    return ElasticAllocation().allocate(situation(**changes))


def test_a_short_history_goes_in_whole():
    assert allocated(history_tokens=5_000).fits_whole


def test_a_compacted_history_is_opened_again_only_well_below_the_room():
    assert allocated(history_tokens=8_000).fits_whole
    assert not allocated(history_tokens=8_000, compacted=True).fits_whole


def test_where_topics_are_empty_retrieval_grows():
    without = allocated().tokens[Layer.RETRIEVAL]
    with_ = allocated(topic_count=1, topic_tokens=2_000).tokens[Layer.RETRIEVAL]
    assert without > with_


def test_a_longer_history_leaves_more_to_retrieval():
    short, long = (allocated(history_tokens=n).tokens for n in (15_000, 100_000))
    assert long[Layer.RETRIEVAL] > short[Layer.RETRIEVAL]


@pytest.mark.parametrize("tokens", [100_000, 1_000_000])
def test_an_emphasis_changes_what_history_gets(tokens):
    recall, balanced, cache = (
        allocated(history_tokens=tokens, exchange_tokens=300, keep_tokens=600, emphasis=emphasis).tokens[Layer.HISTORY]
        for emphasis in ("recall", "balanced", "cache")
    )
    assert recall < balanced < cache


def test_where_history_fits_the_emphasis_changes_nothing():
    assert len({str(allocated(history_tokens=5_000, emphasis=emphasis).tokens) for emphasis in LEANS}) == 1


def test_many_deep_topics_stay_below_their_cap():
    tokens = allocated(depth="deep", topic_count=5, topic_tokens=9_000, history_tokens=0).tokens
    assert tokens[Layer.TOPICS] == 3_000


def test_the_ideal_of_history_does_not_depend_on_this_turn():
    def ideal(**changes):
        return next(s.ideal_tokens for s in allocated(**changes).specs if s.layer is Layer.HISTORY)

    assert ideal() == ideal(message_tokens=3_000, topic_count=2, topic_tokens=2_000)


@pytest.mark.parametrize("depth", ["minimal", "standard"])
def test_a_deeper_knowledge_gets_more(depth):
    shallow = allocated(depth=depth, topic_count=1, topic_tokens=9_000).tokens[Layer.TOPICS]
    deep = allocated(depth="deep", topic_count=1, topic_tokens=9_000).tokens[Layer.TOPICS]
    assert deep > shallow
