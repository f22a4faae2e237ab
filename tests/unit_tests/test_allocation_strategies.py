"""Every strategy, in every situation, keeps the rules; and each does what it is chosen for."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.core.allocation import (
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
from langchain_ctxbudget.core.layers import Layer
from langchain_ctxbudget.errors import InvalidSettingsError, SystemPromptTooLargeError
from langchain_ctxbudget.settings import ContextSettings, CustomLayer
from tests.integration_tests import strategies as made

COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
QUICK, LONG = settings(COMMON, max_examples=100), settings(COMMON, max_examples=2_000)
OWN = ("open files", "weather")


class Case(NamedTuple):
    """A situation, a strategy of every kind, and something to change."""

    situation: Situation
    strategies: tuple[AllocationStrategy, ...]
    index: int
    more: int

    def allocations(self) -> list[Allocation]:
        return [strategy.allocate(self.situation) for strategy in self.strategies]

    def divisions(self) -> list[tuple[list[LayerSpec], int]]:
        """What every strategy wants divided, and between how many tokens."""
        return [(list(a.specs), self.situation.free_tokens - a.reserve_tokens) for a in self.allocations()]

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


def the_order_of_the_layers_does_not_matter(case):
    for specs, tokens in case.divisions():
        turned = specs[case.index % len(specs) :] + specs[: case.index % len(specs)]
        assert divide(turned, tokens) == divide(specs[::-1], tokens) == divide(specs, tokens)


def the_order_of_the_applications_own_layers_does_not_matter(case):
    turned = Case(replace(case.situation, custom=case.situation.custom[::-1]), *case[1:])
    for before, after in zip(case.allocations(), turned.allocations(), strict=True):
        assert after.tokens == before.tokens, before.strategy


def a_higher_priority_never_means_less(case):
    for specs, tokens in case.divisions():
        raised, layer = case.raised(specs, priority=case.more)
        assert divide(raised, tokens)[layer] >= divide(specs, tokens)[layer]


def a_higher_ideal_never_means_less(case):
    for specs, tokens in case.divisions():
        raised, layer = case.raised(specs, ideal_tokens=case.more)
        assert divide(raised, tokens)[layer] >= divide(specs, tokens)[layer]


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


def with_wants_held_fixed_a_larger_budget_never_means_less(case):
    for specs, tokens in case.divisions():
        enough = max(tokens, sum(spec.min_tokens for spec in specs))
        small, large = divide(specs, enough), divide(specs, enough + case.more)
        assert all(large[layer] >= small[layer] for layer in small)


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


FACTS = (
    it_fits_whenever_what_must_be_sent_does,
    no_layer_gets_less_than_nothing,
    every_layer_is_named,
    the_same_situation_has_the_same_allocation,
    what_a_layer_wants_is_in_order,
    the_order_of_the_layers_does_not_matter,
    the_order_of_the_applications_own_layers_does_not_matter,
    a_higher_priority_never_means_less,
    a_higher_ideal_never_means_less,
    a_higher_priority_of_an_own_layer_never_means_less,
    a_higher_ideal_of_an_own_layer_never_means_less,
    with_wants_held_fixed_a_larger_budget_never_means_less,
    no_knowledge_gets_more_than_it_holds,
    an_own_layer_is_left_out_rather_than_below_its_floor,
    a_history_that_fits_whole_is_given_all_it_needs,
    a_history_that_does_not_fit_leaves_something_to_retrieve_with,
    the_newest_messages_that_stay_have_room,
)


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.__name__)
@QUICK
@given(case=cases)
def test_in_every_situation(fact, case):
    fact(case)


@pytest.mark.slow
@LONG
@given(case=cases)
def test_all_of_it_in_many_more_situations(case):
    for fact in FACTS:
        fact(case)


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


def test_settings_take_a_name_a_mapping_or_a_strategy():
    for value in ("ratio", {"strategy": "ratio"}, RatioAllocation()):
        assert ContextSettings(allocation=value).strategy == RatioAllocation()


def test_a_strategy_has_the_defaults_that_settings_have():
    assert ContextSettings().strategy == strategy_of("elastic") == ElasticAllocation(profile="adaptive")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("greedy", "allocation must name one of elastic, ratio, fixed, dynamic, prioritized, not 'greedy'"),
        ({"memory": 0.3}, "must name one of .* not None"),
        ({"strategy": "ratio", "retrieval": 0.3}, "allocation 'ratio' has no retrieval; it has memory, history"),
        ({"strategy": "elastic", "profile": "generous"}, "profile must be 'adaptive' or 'seed', not 'generous'"),
        (None, "allocation must be the name of a strategy"),
        (0.3, "allocation must be the name of a strategy"),
        (RatioAllocation, "allocation must be the name of a strategy"),
        (object(), "allocation must be the name of a strategy"),
    ],
)
def test_what_is_no_strategy_is_refused(value, message):
    with pytest.raises(InvalidSettingsError, match=message):
        ContextSettings(allocation=value)


class HistoryFirst:
    name = "history first"

    def allocate(self, given_):
        most = given_.history_tokens
        wanted = LayerSpec(layer=Layer.HISTORY, min_tokens=0, ideal_tokens=most, max_tokens=most, priority=90)
        return share_out(self.name, given_, [wanted], fits_whole=most <= given_.free_tokens, reserve_tokens=4_000)


def test_a_strategy_of_ones_own_is_any_object_with_a_name_and_an_allocate():
    strategy = ContextSettings(allocation=HistoryFirst()).strategy
    assert parts(strategy.allocate(situation())) == (0, 6_000, 4_000)


def test_a_reserve_is_never_more_than_what_is_free():
    allocation = HistoryFirst().allocate(situation(total_tokens=1_000, message_tokens=400))
    assert (allocation.reserve_tokens, allocation.tokens[Layer.HISTORY]) == (600, 0)


def test_a_layer_that_no_strategy_names_gets_nothing():
    allocation = HistoryFirst().allocate(situation(custom=(own_layer(),)))
    assert allocation.tokens["open files"] == allocation.limit_of("open files") == 0


# Ratio


@pytest.mark.parametrize("sums_to", [0.95, 0.96, 1.0, 1.05])
def test_ratios_within_a_twentieth_of_one_are_accepted(sums_to):
    memory, history, reserve = parts(
        RatioAllocation(memory=0.25, history=0.5, reserve=sums_to - 0.75).allocate(situation())
    )
    assert (memory, history, reserve) == (2_500, 5_000, 2_500)


@pytest.mark.parametrize("sums_to", [0.5, 0.94, 1.06, 1.4])
def test_ratios_further_from_one_are_refused(sums_to):
    with pytest.raises(InvalidSettingsError, match=rf"must add up to 1, give or take 0.05, not {sums_to:.2f}"):
        RatioAllocation(memory=0.25, history=0.2, reserve=sums_to - 0.45)


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), "0.3", True, None])
@pytest.mark.parametrize("strategy", [RatioAllocation, FixedAllocation])
def test_a_share_that_is_no_share_is_refused(strategy, value):
    with pytest.raises(InvalidSettingsError, match="a share must be a number from 0 to 1, not "):
        strategy(history=value)


@pytest.mark.parametrize("value", [-1, MOST_EXCHANGES + 1, 2.5, True, None])
def test_a_number_of_exchanges_outside_its_range_is_refused(value):
    with pytest.raises(InvalidSettingsError, match="min_exchanges must be a whole number from 0 to 10, not "):
        RatioAllocation(min_exchanges=value)


def test_three_exchanges_stay_even_over_the_share_of_history_and_memory_gives_way():
    allocation = RatioAllocation().allocate(situation(exchanges=newest(2_000, 2_000, 2_000, 2_000)))
    assert parts(allocation) == (1_000, 6_000, 3_000)
    assert allocation.keep_messages == 6


def test_the_reserve_gives_way_only_after_all_of_memory():
    allocation = RatioAllocation().allocate(situation(exchanges=newest(3_000, 3_000, 2_500)))
    assert parts(allocation) == (0, 8_500, 1_500)


def test_of_exchanges_that_are_more_than_everything_the_newest_stay():
    allocation = RatioAllocation().allocate(situation(exchanges=newest(9_000, 9_000, 9_000)))
    assert parts(allocation) == (0, 9_000, 1_000)  # the newest one; a second one does not fit


def test_exchanges_within_the_share_change_nothing():
    allocation = RatioAllocation().allocate(situation(exchanges=newest(100, 100, 100)))
    assert parts(allocation) == (3_000, 4_000, 3_000)


def test_no_exchanges_may_be_asked_for():
    allocation = RatioAllocation(min_exchanges=0).allocate(situation(exchanges=newest(9_000)))
    assert (parts(allocation), allocation.keep_messages) == ((3_000, 4_000, 3_000), 0)


def test_a_system_prompt_of_a_quarter_of_the_budget_is_accepted():
    assert parts(RatioAllocation().allocate(situation(identity_tokens=2_500))) == (2_250, 3_000, 2_250)


def test_a_system_prompt_over_a_quarter_of_the_budget_is_refused():
    with pytest.raises(
        SystemPromptTooLargeError, match="2,501 tokens, over 25% of the budget, which is 2,500"
    ) as caught:
        RatioAllocation().allocate(situation(identity_tokens=2_501))
    assert caught.value.floors == {"L0 system prompt": 2_501}
    assert "max_system_share" in str(caught.value)


def test_the_share_of_the_system_prompt_can_be_raised():
    assert (
        RatioAllocation(max_system_share=0.5).allocate(situation(identity_tokens=2_501)).tokens[Layer.IDENTITY] == 2_501
    )


def test_history_borrows_what_memory_leaves_unused():
    talk = situation(history_tokens=6_000)
    strict, borrowing = (RatioAllocation(borrow=borrow).allocate(talk) for borrow in (False, True))
    assert (strict.fits_whole, parts(strict)) == (False, (3_000, 4_000, 3_000))
    assert (borrowing.fits_whole, parts(borrowing)) == (True, (0, 6_000, 3_000))


def test_memory_borrows_what_history_leaves_unused():
    talk = situation(history_tokens=1_000, custom=(own_layer(ideal_tokens=5_000),))
    strict, borrowing = (RatioAllocation(borrow=borrow).allocate(talk) for borrow in (False, True))
    assert parts(strict) == (3_000, 1_000, 3_000)
    assert parts(borrowing) == (5_000, 1_000, 3_000)


def test_topics_and_entities_leave_something_of_their_bucket_to_retrieval():
    """Their ideals come first, 720 and 400 of 3,000, but not their caps of 2,500 and 1,200."""
    full = {"topic_count": 1, "topic_tokens": 9_000, "entity_count": 1, "entity_tokens": 9_000}
    tokens = RatioAllocation().allocate(situation(**full)).tokens
    assert [tokens[layer] for layer in (Layer.TOPICS, Layer.ENTITIES, Layer.RETRIEVAL)] == [720, 400, 1_880]


def test_retrieval_has_a_claim_even_where_ideals_fill_the_bucket():
    full = {"topic_count": 4, "topic_tokens": 9_000, "entity_count": 4, "entity_tokens": 9_000, "depth": "deep"}
    allocation = RatioAllocation(memory=0.1, history=0.6).allocate(situation(**full))
    assert allocation.tokens[Layer.RETRIEVAL] > 0


def test_borrowing_never_takes_from_the_reserve():
    talk = situation(history_tokens=6_900, custom=(own_layer(ideal_tokens=9_000),))
    assert RatioAllocation(borrow=True).allocate(talk).reserve_tokens == 3_000


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


def test_adaptive_ratios_never_take_more_than_there_is():
    strategy = RatioAllocation(memory=0.05, history=0.65, adaptive=True)
    assert parts(strategy.allocate(situation(message_count=50))) == (0, 7_000, 3_000)


@pytest.mark.parametrize(
    ("reserved", "expected"),
    [
        (1_000, (3_000, 4_000, 2_000)),  # of a window of 10,000: the ratio's reserve is 3,000, a third of it is there
        (3_000, (3_000, 4_000, 0)),
        (5_000, (2_142, 2_857, 1)),  # more than the ratio's: the others shrink together, 3/7 and 4/7 of 5,000
    ],
)
def test_the_output_reserve_of_a_small_window_counts_for_the_ratios_reserve(reserved, expected):
    talk = situation(total_tokens=10_000 - reserved, reserved_tokens=reserved)
    assert parts(RatioAllocation().allocate(talk)) == expected


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


def test_without_borrowing_what_a_fixed_share_does_not_use_stays_free():
    fixed = FixedAllocation(system=0.1, history=0.4, entities=0.1, retrieval=0.3, query=0.1)
    allocation = fixed.allocate(situation())  # nothing known, no system prompt, no message
    assert sum(allocation.tokens.values()) == 4_000 + 3_000
    assert allocation.limit_of(Layer.RETRIEVAL) == 3_000


def test_with_borrowing_the_others_use_it():
    fixed = FixedAllocation(system=0.1, history=0.4, entities=0.1, retrieval=0.3, query=0.1, borrow=True)
    allocation = fixed.allocate(situation())
    assert sum(allocation.tokens.values()) == 10_000
    assert fixed.allocate(situation(history_tokens=6_500)).fits_whole


@pytest.mark.parametrize("strategy", [FixedAllocation(), DynamicAllocation()])
def test_the_newest_messages_stay_even_over_the_share_of_history(strategy):
    assert strategy.allocate(situation(keep_tokens=6_000)).tokens[Layer.HISTORY] >= 6_000


def test_a_dynamic_split_without_room_for_the_history_keeps_the_share_of_retrieval():
    """Shares are scaled down before it is asked whether the whole history fits."""
    talk = situation(total_tokens=4_000, identity_tokens=2_000, message_count=3, history_tokens=1_700)
    allocation = DynamicAllocation().allocate(talk)
    assert not allocation.fits_whole
    assert allocation.tokens[Layer.RETRIEVAL] > 0


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


def test_own_layers_that_the_order_does_not_name_come_last_by_their_priority():
    layers = (own_layer("open files", ideal_tokens=600), own_layer("weather", ideal_tokens=600, priority=80))
    tokens = PrioritizedAllocation().allocate(situation(history_tokens=9_000, custom=layers)).tokens
    assert (tokens[Layer.HISTORY], tokens["weather"], tokens["open files"]) == (9_000, 600, 400)


def test_the_newest_messages_stay_in_any_order():
    tokens = PrioritizedAllocation(order=("retrieval",)).allocate(situation(keep_tokens=700)).tokens
    assert (tokens[Layer.HISTORY], tokens[Layer.RETRIEVAL]) == (700, 9_300)


def test_an_own_layer_below_its_floor_is_left_out_and_the_next_one_gets_its_tokens():
    layers = (own_layer("open files", min_tokens=500, ideal_tokens=600, priority=80), own_layer("weather"))
    tokens = PrioritizedAllocation().allocate(situation(history_tokens=9_600, custom=layers)).tokens
    assert (tokens["open files"], tokens["weather"]) == (0, 400)


def test_a_layer_that_is_not_there_is_refused_with_those_that_are():
    strategy = PrioritizedAllocation(order=("history", "files", "weather"))
    known = "the layers are preferences, history, topics, entities, retrieval, open files"
    with pytest.raises(InvalidSettingsError, match=f"order names 'files', 'weather'; {known}"):
        strategy.allocate(situation(custom=(own_layer(),)))


@pytest.mark.parametrize("order", ["history", ["history", ""], ["history", 7], ["history", "topics", "history"]])
def test_an_order_that_is_no_list_of_different_names_is_refused(order):
    with pytest.raises(InvalidSettingsError, match=r"^order "):
        PrioritizedAllocation(order=order)
