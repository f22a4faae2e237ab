"""Budgets are divided between layers by rules that can be relied on."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.core.allocation import LayerSpec, Situation, divide, elastic
from langchain_ctxbudget.core.allocation.elastic import HISTORY_MIN_SHARE, history_share
from langchain_ctxbudget.core.layers import Layer

RUNS = settings(deadline=None, max_examples=500)


@st.composite
def specs(draw):
    layers = draw(st.lists(st.sampled_from(list(Layer)), unique=True, max_size=6))
    result = []
    for layer in layers:
        low, ideal, high = sorted(draw(st.tuples(*[st.integers(0, 300)] * 3)))
        result.append(
            LayerSpec(
                layer=layer,
                min_tokens=low,
                ideal_tokens=ideal,
                max_tokens=high,
                priority=draw(st.sampled_from([0, 1, 50, 65, 90, 100])),
                elasticity=draw(st.sampled_from([0.0, 0.3, 0.5, 0.7, 1.0])),
            )
        )
    return result


SOME = specs().filter(bool)
TOKENS = st.integers(-10, 1_500)


def spec(layer=Layer.TOPICS, *, low=0, ideal=100, high=100, priority=50, elasticity=0.0):
    return LayerSpec(
        layer=layer,
        min_tokens=low,
        ideal_tokens=ideal,
        max_tokens=high,
        priority=priority,
        elasticity=elasticity,
    )


@RUNS
@given(specs(), TOKENS)
def test_layers_together_get_no_more_than_there_is(wanted, available):
    assert sum(divide(wanted, available).values()) <= max(0, available)


@RUNS
@given(specs(), TOKENS, st.randoms(use_true_random=False))
def test_the_order_of_the_layers_does_not_matter(wanted, available, random):
    shuffled = random.sample(wanted, len(wanted))
    assert divide(shuffled, available) == divide(wanted, available)


@RUNS
@given(specs(), TOKENS)
def test_every_layer_gets_nothing_or_something_between_its_floor_and_its_maximum(wanted, available):
    tokens = divide(wanted, available)
    assert set(tokens) == {s.layer for s in wanted}
    assert all(tokens[s.layer] == 0 or s.min_tokens <= tokens[s.layer] <= s.max_tokens for s in wanted)


@RUNS
@given(SOME, TOKENS, st.integers(1, 100), st.data())
def test_a_higher_priority_never_means_less(wanted, available, more, data):
    index = data.draw(st.integers(0, len(wanted) - 1))
    raised = list(wanted)
    raised[index] = replace(raised[index], priority=raised[index].priority + more)
    layer = raised[index].layer
    assert divide(raised, available)[layer] >= divide(wanted, available)[layer]


@RUNS
@given(SOME, TOKENS, st.integers(1, 300), st.data())
def test_a_higher_ideal_never_means_less(wanted, available, more, data):
    index = data.draw(st.integers(0, len(wanted) - 1))
    raised = list(wanted)
    ideal = min(raised[index].max_tokens, raised[index].ideal_tokens + more)
    raised[index] = replace(raised[index], ideal_tokens=ideal)
    layer = raised[index].layer
    assert divide(raised, available)[layer] >= divide(wanted, available)[layer]


@RUNS
@given(specs(), st.integers(0, 1_500), st.integers(0, 200))
def test_where_the_floors_fit_a_larger_budget_never_means_less(wanted, spare, more):
    available = sum(s.min_tokens for s in wanted) + spare
    small, large = divide(wanted, available), divide(wanted, available + more)
    assert all(large[layer] >= small[layer] for layer in small)


@RUNS
@given(specs(), st.integers(0, 1_500))
def test_where_the_floors_fit_every_layer_gets_its_floor(wanted, spare):
    tokens = divide(wanted, sum(s.min_tokens for s in wanted) + spare)
    assert all(tokens[s.layer] >= s.min_tokens for s in wanted)


@RUNS
@given(specs(), st.integers(0, 1_500))
def test_where_the_ideals_fit_every_layer_gets_its_ideal(wanted, spare):
    tokens = divide(wanted, sum(s.ideal_tokens for s in wanted) + spare)
    assert all(tokens[s.layer] >= s.ideal_tokens for s in wanted)


@RUNS
@given(specs(), st.integers(0, 1_500))
def test_rounding_wastes_less_than_a_token_per_layer(wanted, spare):
    available = sum(s.min_tokens for s in wanted) + spare
    useful = min(available, sum(s.max_tokens for s in wanted))
    assert sum(divide(wanted, available).values()) >= useful - max(0, len(wanted) - 1)


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


def test_layers_of_the_same_priority_are_served_in_their_own_order():
    wanted = [spec(Layer.ENTITIES, low=50), spec(Layer.TOPICS, low=50)]
    assert divide(wanted, 60) == divide(wanted[::-1], 60) == {Layer.TOPICS: 60, Layer.ENTITIES: 0}


def test_a_layer_whose_floor_does_not_fit_gets_nothing():
    wanted = [spec(Layer.TOPICS, low=20, priority=10), spec(Layer.ENTITIES, low=50, priority=90)]
    assert divide(wanted, 60) == {Layer.TOPICS: 0, Layer.ENTITIES: 60}


def test_no_layers_get_nothing():
    assert divide([], 100) == {}


def test_history_that_fits_the_pool_gets_all_of_it():
    assert history_share(0.5) == history_share(1) == 1


def test_history_four_times_the_pool_gets_half_of_it():
    assert history_share(4) == 0.5


@settings(deadline=None)
@given(st.floats(0, 1e9), st.floats(0, 1e9))
def test_a_longer_history_never_gets_a_larger_share(first, second):
    assert 1 >= history_share(min(first, second)) >= history_share(max(first, second)) >= HISTORY_MIN_SHARE


@st.composite
def situations(draw):
    number = st.integers(0, 5_000)
    topics, entities = draw(st.integers(0, 5)), draw(st.integers(0, 5))
    history = draw(st.one_of(number, st.integers(0, 10**7)))
    return Situation(
        total_tokens=draw(st.one_of(st.integers(1, 500), st.integers(1, 200_000))),
        overhead_tokens=draw(st.integers(0, 300)),
        identity_tokens=draw(number),
        preferences_tokens=draw(number),
        message_tokens=draw(number),
        message_count=draw(st.integers(0, 100_000)),
        history_tokens=history,
        keep_tokens=draw(st.integers(0, min(history, 3_000))),
        topic_count=topics,
        topic_tokens=draw(number) if topics else 0,
        entity_count=entities,
        entity_tokens=draw(number) if entities else 0,
        compacted=draw(st.booleans()),
        depth=draw(st.sampled_from(["minimal", "standard", "deep"])),
        prioritize_history=draw(st.booleans()),
    )


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


@RUNS
@given(situations())
def test_an_allocation_fits_whenever_what_must_be_sent_does(given_):
    fixed = given_.overhead_tokens + given_.identity_tokens + given_.message_tokens
    assume(fixed <= given_.total_tokens)
    assert sum(elastic(given_).tokens.values()) + given_.overhead_tokens <= given_.total_tokens


@RUNS
@given(situations())
def test_no_layer_gets_less_than_nothing(given_):
    assert min(elastic(given_).tokens.values()) >= 0


@RUNS
@given(situations())
def test_an_allocation_names_every_layer(given_):
    assert set(elastic(given_).tokens) == set(Layer)


@RUNS
@given(situations())
def test_what_a_layer_wants_is_in_order(given_):
    assert all(0 <= s.min_tokens <= s.ideal_tokens <= s.max_tokens for s in elastic(given_).specs)


@RUNS
@given(situations())
def test_the_same_situation_has_the_same_allocation(given_):
    assert elastic(given_) == elastic(replace(given_))


@RUNS
@given(situations())
def test_no_knowledge_gets_more_than_it_holds(given_):
    tokens = elastic(given_).tokens
    assert tokens[Layer.TOPICS] <= given_.topic_tokens
    assert tokens[Layer.ENTITIES] <= given_.entity_tokens
    assert tokens[Layer.PREFERENCES] <= given_.preferences_tokens


@RUNS
@given(situations())
def test_a_history_that_fits_whole_is_given_all_it_needs(given_):
    allocation = elastic(given_)
    assert not allocation.fits_whole or allocation.tokens[Layer.HISTORY] == given_.history_tokens


def test_a_short_history_goes_in_whole():
    assert elastic(situation(history_tokens=5_000)).fits_whole


def test_a_compacted_history_is_opened_again_only_well_below_the_room():
    assert elastic(situation(history_tokens=8_000)).fits_whole
    assert not elastic(situation(history_tokens=8_000, compacted=True)).fits_whole


def test_where_topics_are_empty_retrieval_grows():
    without = elastic(situation()).tokens[Layer.RETRIEVAL]
    with_ = elastic(situation(topic_count=1, topic_tokens=2_000)).tokens[Layer.RETRIEVAL]
    assert without > with_


def test_a_longer_history_leaves_more_to_retrieval():
    short, long = (elastic(situation(history_tokens=n)).tokens for n in (15_000, 100_000))
    assert long[Layer.RETRIEVAL] > short[Layer.RETRIEVAL]


def test_many_deep_topics_stay_below_their_cap():
    tokens = elastic(situation(depth="deep", topic_count=5, topic_tokens=9_000, history_tokens=0)).tokens
    assert tokens[Layer.TOPICS] == 3_000


def test_the_ideal_of_history_does_not_depend_on_this_turn():
    def ideal(**changes):
        return next(s.ideal_tokens for s in elastic(situation(**changes)).specs if s.layer is Layer.HISTORY)

    assert ideal() == ideal(message_tokens=3_000, topic_count=2, topic_tokens=2_000)


@pytest.mark.parametrize("depth", ["minimal", "standard"])
def test_a_deeper_knowledge_gets_more(depth):
    shallow = elastic(situation(depth=depth, topic_count=1, topic_tokens=9_000)).tokens[Layer.TOPICS]
    deep = elastic(situation(depth="deep", topic_count=1, topic_tokens=9_000)).tokens[Layer.TOPICS]
    assert deep > shallow
