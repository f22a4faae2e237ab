"""Budgets are divided between layers by rules that can be relied on, under every strategy in every situation."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.budget import (
    MOST_EXCHANGES,
    Allocation,
    AllocationStrategy,
    DynamicAllocation,
    ElasticAllocation,
    Exchange,
    FixedAllocation,
    LayerSpec,
    PrioritizedAllocation,
    RatioAllocation,
    Situation,
    divide,
    share_out,
    strategy_of,
)
from langchain_ctxbudget.budget.elastic import LEANS, history_share
from langchain_ctxbudget.budget.layers import Layer
from langchain_ctxbudget.errors import InvalidSettingsError, SystemPromptTooLargeError
from langchain_ctxbudget.settings import ContextSettings, CustomLayer
from tests.integration_tests import strategies as made

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


@QUICK
@given(case=divisions())
def test_when_tokens_are_divided(case):
    for fact in FACTS:
        fact(case)


@pytest.mark.slow
@LONG
@given(case=divisions())
def test_when_tokens_are_divided_on_many_more(case):
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


DIVIDED = {
    "layers of the same priority grow in proportion to what they want": (
        [spec("a", ideal=100), spec("b", ideal=50)],
        75,
        {"a": 50, "b": 25},
    ),
    "a higher priority grows faster": ([spec("a", priority=80), spec("b", priority=40)], 90, {"a": 60, "b": 30}),
    "an elastic layer gives way": ([spec("a", elasticity=1.0), spec("b")], 90, {"a": 30, "b": 60}),
    "tokens that a full layer does not need go to the others": (
        [spec("a", ideal=10, high=10, priority=100), spec("b", priority=10)],
        60,
        {"a": 10, "b": 50},
    ),
    "tokens that nobody wants go to the highest priority up to its maximum": (
        [spec("a", ideal=10, high=99), spec("b", ideal=10, high=30, priority=90)],
        50,
        {"a": 20, "b": 30},
    ),
    "and then past a maximum as far as they are usable": (
        [spec("a", high=100, usable=130), spec("b", high=100, priority=40, usable=400)],
        330,
        {"a": 130, "b": 200},
    ),
    "usable tokens are no claim while others want them": (
        [spec("a", high=100, priority=90, usable=500), spec("b", ideal=50, high=120)],
        210,
        {"a": 100, "b": 110},
    ),
    "layers of the same priority are served by name": (
        [spec("b", low=50), spec("a", low=50)],
        60,
        {"a": 60, "b": 0},
    ),
    "a layer whose floor does not fit gets nothing": (
        [spec("a", low=20, priority=10), spec("b", low=50, priority=90)],
        60,
        {"a": 0, "b": 60},
    ),
    "no layers get nothing": ([], 100, {}),
}


@pytest.mark.parametrize("rule", DIVIDED)
def test_a_division_by_hand(rule):
    wanted, available, expected = DIVIDED[rule]
    assert divide(wanted, available) == divide(wanted[::-1], available) == expected


# Every strategy, in every situation


OWN = ("open files", "weather")


class Case(NamedTuple):
    """A situation, a strategy of every kind, and something to change."""

    situation: Situation
    strategies: tuple[AllocationStrategy, ...]
    index: int
    more: int

    def allocations(self) -> list[Allocation]:
        return [strategy.allocate(self.situation) for strategy in self.strategies]

    def raised(self, specs: list[LayerSpec], **changes: int) -> tuple[list[LayerSpec], str]:
        """The specs with one of them raised, and which."""
        number = self.index % len(specs)
        one = specs[number]
        values = {field: getattr(one, field) + more for field, more in changes.items()}
        values["max_tokens"] = max(one.max_tokens, values.get("ideal_tokens", 0))
        return [replace(one, **values) if i == number else s for i, s in enumerate(specs)], one.layer


@st.composite
def situations(draw):
    number = st.integers(0, 3_000)
    topics, entities = draw(st.integers(0, 4)), draw(st.integers(0, 12))
    history = draw(st.one_of(number, st.integers(0, 10**6)))
    sizes = draw(st.lists(st.integers(0, history // MOST_EXCHANGES), max_size=MOST_EXCHANGES))
    total = draw(st.one_of(st.integers(1, 500), st.integers(1, 20_000), st.integers(1, 200_000)))
    return Situation(
        total_tokens=total,
        overhead_tokens=draw(st.integers(0, 300)),
        identity_tokens=draw(st.integers(0, min(total, 3_000))),  # more is refused before anything is divided
        preferences_tokens=draw(number),
        memory_tokens=draw(number),
        message_tokens=draw(number),
        message_count=draw(st.integers(0, 60) | st.integers(0, 100_000)),
        history_tokens=history,
        keep_tokens=draw(st.integers(0, min(history, 3_000))),
        exchanges=tuple(Exchange(1 + size % 4, size) for size in sizes),
        topic_count=topics,
        topic_tokens=draw(number) if topics else 0,
        entity_count=entities,
        entity_tokens=draw(number) if entities else 0,
        custom=tuple(_custom(draw, name) for name in OWN),
        reserved_tokens=draw(st.sampled_from([0, 0, 500, 5_000])),
        compacted=draw(st.booleans()),
        depth=draw(st.sampled_from(["minimal", "standard", "deep"])),
        prioritize_history=draw(st.booleans()),
    )


def _custom(draw, name):
    low, ideal, high = sorted(draw(st.tuples(*[st.integers(0, 1_000)] * 3)))
    layer = CustomLayer(
        name=name,
        items=(),
        min_tokens=low,
        ideal_tokens=ideal,
        max_tokens=high,
        priority=draw(st.integers(0, 100)),
        elasticity=draw(st.sampled_from([0.0, 0.5, 1.0])),
    )
    return layer.spec


cases = st.builds(
    Case,
    situations(),
    st.tuples(*made.allocations(OWN).values()).map(lambda values: tuple(map(strategy_of, values))),
    st.integers(0, 20),
    st.integers(1, 500),
)


def it_fits_whenever_what_must_be_sent_does(case):
    s = case.situation
    if s.overhead_tokens + s.identity_tokens + s.message_tokens <= s.total_tokens:
        for a in case.allocations():
            assert sum(a.tokens.values()) + s.overhead_tokens + a.reserve_tokens <= s.total_tokens, a.strategy


def no_layer_gets_less_than_nothing(case):
    assert all(min(a.reserve_tokens, *a.tokens.values()) >= 0 for a in case.allocations())


def every_layer_is_named(case):
    assert all(set(a.tokens) == {*Layer, *OWN} for a in case.allocations())


def the_same_situation_has_the_same_allocation(case):
    again = Case(replace(case.situation), *case[1:])
    assert again.allocations() == case.allocations()


def what_a_layer_wants_is_in_order(case):
    for a in case.allocations():
        assert all(0 <= s.min_tokens <= s.ideal_tokens <= s.max_tokens <= s.limit_tokens for s in a.specs), a.strategy


def the_order_of_the_applications_own_layers_does_not_matter(case):
    turned = Case(replace(case.situation, custom=case.situation.custom[::-1]), *case[1:])
    for before, after in zip(case.allocations(), turned.allocations(), strict=True):
        assert after.tokens == before.tokens, before.strategy


def a_higher_priority_of_an_own_layer_never_means_less(case):
    raised, layer = case.raised(list(case.situation.custom), priority=case.more)
    after = Case(replace(case.situation, custom=tuple(raised)), *case[1:]).allocations()
    for before, then in zip(case.allocations(), after, strict=True):
        assert then.tokens[layer] >= before.tokens[layer], before.strategy


def a_higher_ideal_of_an_own_layer_never_means_less(case):
    custom = list(case.situation.custom)
    number = case.index % len(custom)
    ideal = min(custom[number].max_tokens, custom[number].ideal_tokens + case.more)
    custom[number] = replace(custom[number], ideal_tokens=ideal)
    after = Case(replace(case.situation, custom=tuple(custom)), *case[1:]).allocations()
    for before, then in zip(case.allocations(), after, strict=True):
        assert then.tokens[custom[number].layer] >= before.tokens[custom[number].layer], before.strategy


def no_knowledge_gets_more_than_it_holds(case):
    s = case.situation
    for a in case.allocations():
        assert a.tokens[Layer.TOPICS] <= s.topic_tokens, a.strategy
        assert a.tokens[Layer.ENTITIES] <= s.entity_tokens, a.strategy
        assert a.tokens[Layer.PREFERENCES] <= s.preferences_tokens + s.memory_tokens, a.strategy
        assert all(a.tokens[own.layer] <= own.limit_tokens for own in s.custom), a.strategy


def an_own_layer_is_left_out_rather_than_below_its_floor(case):
    for a in case.allocations():
        for own in case.situation.custom:
            assert a.tokens[own.layer] == 0 or a.tokens[own.layer] >= own.min_tokens, a.strategy


def a_history_that_fits_whole_is_given_all_it_needs(case):
    for a in case.allocations():
        assert not a.fits_whole or a.tokens[Layer.HISTORY] == case.situation.history_tokens, a.strategy


def a_history_that_does_not_fit_leaves_something_to_retrieve_with(case):
    """The dynamic split gives the share of retrieval away only where there is nothing to retrieve."""
    dynamic = next(s for s in case.strategies if isinstance(s, DynamicAllocation))
    few = min(10, case.situation.entity_count)  # more entities take it by the seed's own formula
    a = dynamic.allocate(replace(case.situation, custom=(), entity_count=few))
    if not a.fits_whole and case.situation.free_tokens - a.tokens[Layer.HISTORY] - a.tokens[Layer.ARC] > 10:
        spec = next(s for s in a.specs if s.layer is Layer.RETRIEVAL)
        assert spec.limit_tokens > 0


def the_newest_messages_that_stay_have_room(case):
    s = case.situation
    for a, strategy in zip(case.allocations(), case.strategies, strict=True):
        kept = s.keep_tokens
        if isinstance(strategy, RatioAllocation):
            kept = sum(exchange.tokens for exchange in s.exchanges[: strategy.min_exchanges])
        if not isinstance(strategy, ElasticAllocation) and kept <= s.free_tokens:
            assert a.tokens[Layer.HISTORY] >= kept, a.strategy


EVERYWHERE = (
    it_fits_whenever_what_must_be_sent_does,
    no_layer_gets_less_than_nothing,
    every_layer_is_named,
    the_same_situation_has_the_same_allocation,
    what_a_layer_wants_is_in_order,
    the_order_of_the_applications_own_layers_does_not_matter,
    a_higher_priority_of_an_own_layer_never_means_less,
    a_higher_ideal_of_an_own_layer_never_means_less,
    no_knowledge_gets_more_than_it_holds,
    an_own_layer_is_left_out_rather_than_below_its_floor,
    a_history_that_fits_whole_is_given_all_it_needs,
    a_history_that_does_not_fit_leaves_something_to_retrieve_with,
    the_newest_messages_that_stay_have_room,
)


@QUICK
@given(case=cases)
def test_in_every_situation(case):
    for fact in EVERYWHERE:
        fact(case)


@pytest.mark.slow
@LONG
@given(case=cases)
def test_in_many_more_situations(case):
    for fact in EVERYWHERE:
        fact(case)


# The default strategy


@QUICK
@given(first=st.floats(0, 1e9), second=st.floats(0, 1e9))
def test_a_longer_history_never_gets_a_larger_share_of_the_pool(first, second):
    for lean in LEANS.values():
        less, more = history_share(max(first, second), lean), history_share(min(first, second), lean)
        assert 1 == history_share(1, lean) >= more >= less >= lean.least_share
    shares = [history_share(first, LEANS[emphasis]) for emphasis in ("recall", "balanced", "cache")]
    assert shares == sorted(shares)


HISTORY = (Layer.ARC, Layer.HISTORY)
MEMORY = (Layer.PREFERENCES, Layer.TOPICS, Layer.ENTITIES, Layer.RETRIEVAL, *OWN)


def situation(**changes):
    sizes = {
        "total_tokens": 10_000,
        "overhead_tokens": 0,
        "identity_tokens": 0,
        "preferences_tokens": 0,
        "message_tokens": 0,
        "message_count": 25,
        "history_tokens": 50_000,
    }
    return Situation(**{**sizes, **changes})


def own_layer(name="open files", **sizes):
    return CustomLayer(name=name, items=(), **{"ideal_tokens": 5_000, **sizes}).spec


def parts(allocation: Allocation) -> tuple[int, int, int]:
    """Memory, history and reserve."""
    memory, history = (sum(allocation.tokens.get(layer, 0) for layer in layers) for layers in (MEMORY, HISTORY))
    return memory, history, allocation.reserve_tokens


def newest(*tokens: int) -> tuple[Exchange, ...]:
    return tuple(Exchange(2, each) for each in tokens)


def elastic(**changes):
    talk = {"total_tokens": 12_000, "overhead_tokens": 50, "identity_tokens": 100, "message_tokens": 50}
    return ElasticAllocation().allocate(
        situation(**{**talk, "message_count": 400, "history_tokens": 40_000, **changes})
    )


def test_retrieval_grows_where_topics_are_empty_and_history_is_long():
    retrieval = [
        elastic(**changes).tokens[Layer.RETRIEVAL]
        for changes in (
            {"topic_count": 1, "topic_tokens": 2_000, "history_tokens": 15_000},
            {"history_tokens": 15_000},
            {"history_tokens": 100_000},
        )
    ]
    assert retrieval == sorted(set(retrieval))


def test_an_emphasis_changes_what_history_gets_where_it_does_not_fit_whole():
    for history in (100_000, 1_000_000):
        talk = {"history_tokens": history, "exchange_tokens": 300, "keep_tokens": 600}
        given_ = [elastic(**talk, emphasis=emphasis).tokens[Layer.HISTORY] for emphasis in LEANS]
        assert given_ == sorted(set(given_))
    assert len({str(elastic(history_tokens=5_000, emphasis=emphasis).tokens) for emphasis in LEANS}) == 1


# Names and mappings


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("elastic", "elastic"),
        ({"strategy": "elastic", "profile": "adaptive"}, "elastic"),
        ({"strategy": "elastic", "profile": "seed"}, "elastic (seed)"),
        ("ratio", "ratio 30/40/30"),
        ({"strategy": "ratio", "memory": 0.35, "history": 0.35}, "ratio 35/35/30"),
        ({"strategy": "ratio", "adaptive": True, "borrow": True}, "ratio 30/40/30, adaptive, borrowing"),
        ("fixed", "fixed"),
        ({"strategy": "fixed", "borrow": True}, "fixed, borrowing"),
        ("dynamic", "dynamic"),
        ({"strategy": "dynamic", "borrow": True}, "dynamic, borrowing"),
        ("prioritized", "prioritized"),
        ({"strategy": "prioritized", "order": ["retrieval", "history"]}, "prioritized: retrieval, history"),
    ],
)
def test_a_strategy_comes_from_json_and_is_named_in_reports(value, name):
    strategy = strategy_of(json.loads(json.dumps(value)))
    assert strategy.name == strategy.allocate(situation()).strategy == name


class HistoryFirst:
    name = "history first"

    def allocate(self, given_):
        most = given_.history_tokens
        wanted = LayerSpec(layer=Layer.HISTORY, min_tokens=0, ideal_tokens=most, max_tokens=most, priority=90)
        return share_out(self.name, given_, [wanted], fits_whole=most <= given_.free_tokens, reserve_tokens=4_000)


def test_a_strategy_of_ones_own_is_any_object_with_a_name_and_an_allocate():
    strategy = ContextSettings(allocation=HistoryFirst()).strategy
    assert parts(strategy.allocate(situation())) == (0, 6_000, 4_000)


# Ratio


@pytest.mark.parametrize("sums_to", [0.5, 0.94, 1.06, 1.4])
def test_ratios_further_from_one_are_refused(sums_to):
    with pytest.raises(InvalidSettingsError, match=rf"must add up to 1, give or take 0.05, not {sums_to:.2f}"):
        RatioAllocation(memory=0.25, history=0.2, reserve=sums_to - 0.45)


def test_three_exchanges_stay_even_over_the_share_of_history_and_memory_gives_way():
    allocation = RatioAllocation().allocate(situation(exchanges=newest(2_000, 2_000, 2_000, 2_000)))
    assert parts(allocation) == (1_000, 6_000, 3_000)
    assert allocation.keep_messages == 6


def test_the_reserve_gives_way_only_after_all_of_memory():
    allocation = RatioAllocation().allocate(situation(exchanges=newest(3_000, 3_000, 2_500)))
    assert parts(allocation) == (0, 8_500, 1_500)


def test_a_system_prompt_over_a_quarter_of_the_budget_is_refused():
    with pytest.raises(
        SystemPromptTooLargeError, match="2,501 tokens, over 25% of the budget, which is 2,500"
    ) as caught:
        RatioAllocation().allocate(situation(identity_tokens=2_501))
    assert caught.value.floors == {"L0 system prompt": 2_501}
    assert "max_system_share" in str(caught.value)


def test_history_borrows_what_memory_leaves_unused():
    talk = situation(history_tokens=6_000)
    strict, borrowing = (RatioAllocation(borrow=borrow).allocate(talk) for borrow in (False, True))
    assert (strict.fits_whole, parts(strict)) == (False, (3_000, 4_000, 3_000))
    assert (borrowing.fits_whole, parts(borrowing)) == (True, (0, 6_000, 3_000))


@pytest.mark.parametrize(
    ("message_count", "topic_count", "depth", "expected"),
    [
        (0, 0, "standard", (4_000, 3_000, 3_000)),  # a tenth from history to memory
        (25, 0, "standard", (3_000, 4_000, 3_000)),  # in between
        (40, 0, "standard", (2_400, 4_600, 3_000)),  # 2 * 40/50 - 1 = 0.6 of a tenth
        (50, 0, "standard", (2_000, 5_000, 3_000)),  # a tenth from memory to history
        (9_999, 0, "standard", (2_000, 5_000, 3_000)),  # and never more than a tenth
        (50, 2, "standard", (3_000, 4_000, 3_000)),  # long, and about several topics
        (50, 0, "deep", (3_000, 4_000, 3_000)),
        (0, 2, "deep", (4_000, 3_000, 3_000)),
    ],
)
def test_adaptive_ratios_move_at_most_a_tenth(message_count, topic_count, depth, expected):
    talk = situation(message_count=message_count, topic_count=topic_count, depth=depth)
    assert parts(RatioAllocation(adaptive=True).allocate(talk)) == expected


# Fixed, dynamic


def test_shares_of_more_than_everything_are_refused():
    with pytest.raises(InvalidSettingsError, match=r"at most 1 together, not 1\.10"):
        FixedAllocation(system=0.1, history=0.4, entities=0.1, retrieval=0.4, query=0.1)


def test_a_system_prompt_over_its_share_shrinks_the_others_together():
    fixed = FixedAllocation(system=0.1, history=0.4, entities=0.1, retrieval=0.3, query=0.1)
    full = {"topic_count": 1, "topic_tokens": 5_000, "message_tokens": 1_000, "message_count": 0}
    within = fixed.allocate(situation(identity_tokens=1_000, **full)).tokens
    over = fixed.allocate(situation(identity_tokens=5_000, **full)).tokens  # 4,000 of the 8,000 of the others
    assert [within[layer] for layer in (Layer.HISTORY, Layer.TOPICS, Layer.RETRIEVAL)] == [4_000, 1_000, 3_000]
    assert [over[layer] for layer in (Layer.HISTORY, Layer.TOPICS, Layer.RETRIEVAL)] == [2_000, 500, 1_500]


# Prioritized


FULL = {"preferences_tokens": 500, "topic_count": 2, "topic_tokens": 2_000, "entity_count": 1, "entity_tokens": 1_000}


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ((), {"L1": 500, "L6": 8_000, "L2": 1_500, "L3": 0}),  # the default: preferences, history, topics, entities
        (("topics", "entities"), {"L2": 2_000, "L3": 1_000, "L1": 500, "L6": 6_500}),
        (("entities", "topics", "history", "preferences"), {"L3": 1_000, "L2": 2_000, "L6": 7_000, "L1": 0}),
        (("retrieval",), {"L5": 0, "L6": 8_000}),  # the whole history is there: nothing to retrieve from it
        (("open files", "topics"), {"open files": 5_000, "L2": 2_000, "L1": 500, "L6": 2_500, "L3": 0}),
        (("history", "open files"), {"L6": 8_000, "open files": 2_000, "L1": 0}),
    ],
)
def test_layers_are_filled_one_after_the_other(order, expected):
    talk = situation(history_tokens=8_000, message_count=0, custom=(own_layer(),), **FULL)
    tokens = PrioritizedAllocation(order=order).allocate(talk).tokens
    assert {layer: tokens[layer] for layer in expected} == expected


def test_a_layer_that_is_not_there_is_refused_with_those_that_are():
    strategy = PrioritizedAllocation(order=("history", "files", "weather"))
    known = "the layers are preferences, history, topics, entities, retrieval, open files"
    with pytest.raises(InvalidSettingsError, match=f"order names 'files', 'weather'; {known}"):
        strategy.allocate(situation(custom=(own_layer(),)))
