"""Holds the division of a budget between layers to its rules, under every strategy."""

import json
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from langchain_ctxbudget import budget
from langchain_ctxbudget.budget import Layer
from langchain_ctxbudget.errors import InvalidSettingsError, SystemPromptTooLargeError
from langchain_ctxbudget.settings import CustomLayer
from tests.integration_tests.strategies import allocations

QUICK = settings(suppress_health_check=[HealthCheck.too_slow], max_examples=60)
OWN = ("open files", "weather")


@st.composite
def specs(draw, name, most=300):
    tokens = st.integers(0, most)
    least, ideal, maximum = sorted(draw(st.tuples(tokens, tokens, tokens)))
    return budget.LayerSpec(
        name,
        least,
        ideal,
        maximum,
        priority=draw(st.sampled_from([0, 1, 50, 65, 66, 90, 100])),
        elasticity=draw(st.sampled_from([0.0, 0.3, 1.0])),
        usable_tokens=draw(st.none() | st.integers(0, 2 * most)),
    )


LAYER_NAMES = st.lists(st.sampled_from((*budget.Layer, *OWN)), unique=True, min_size=1, max_size=7)


@st.composite
def divisions(draw):
    """Demands of layers, tokens for them, the number of one layer, and more tokens."""
    demands = [draw(specs(name)) for name in draw(LAYER_NAMES)]
    available = draw(st.integers(-10, 1_500))
    number = draw(st.integers(0, len(demands) - 1))
    more = draw(st.integers(1, 300))
    return demands, available, number, more


def check_bounds(demands, available):
    """Grants add up to what is there at most, each nothing or between floor and limit."""
    grants = budget.divide(demands, available)

    assert sum(grants.values()) <= max(0, available)
    assert set(grants) == {demand.layer for demand in demands}
    for demand in demands:
        grant = grants[demand.layer]
        assert grant == 0 or demand.min_tokens <= grant <= demand.limit_tokens


def check_maxima(demands, available):
    """A layer passes its maximum only when all that get something have reached theirs."""
    grants = budget.divide(demands, available)
    filled = [demand for demand in demands if grants[demand.layer] > 0 or demand.min_tokens == 0]

    if any(grants[demand.layer] > demand.max_tokens for demand in filled):
        assert all(grants[demand.layer] >= demand.max_tokens for demand in filled)


def check_order(demands, available):
    """The order of the layers does not matter."""
    assert budget.divide(demands[::-1], available) == budget.divide(demands, available)


def raised_demands(demand, more):
    """The demand with a higher priority, a higher ideal, and a higher ideal and maximum."""
    ideal = demand.ideal_tokens + more
    return (
        replace(demand, priority=demand.priority + more),
        replace(demand, ideal_tokens=min(demand.max_tokens, ideal)),
        replace(demand, ideal_tokens=ideal, max_tokens=max(ideal, demand.max_tokens)),
    )


def check_raised(demands, available, number, more):
    """A higher priority or ideal never means less."""
    grants = budget.divide(demands, available)
    layer = demands[number].layer
    for raised in raised_demands(demands[number], more):
        after = budget.divide([*demands[:number], raised, *demands[number + 1 :]], available)
        assert after[layer] >= grants[layer]


def check_more_budget(demands, available, more):
    """More budget never means less, and rounding wastes less than a token per layer."""
    enough = sum(demand.min_tokens for demand in demands) + max(0, available)
    usable = min(enough, sum(demand.limit_tokens for demand in demands))
    small = budget.divide(demands, enough)
    large = budget.divide(demands, enough + more)

    for demand in demands:
        assert large[demand.layer] >= small[demand.layer] >= demand.min_tokens
    assert sum(small.values()) > usable - len(demands)


def check_ideals(demands):
    """Where all ideals fit, every layer has its own at least."""
    grants = budget.divide(demands, sum(demand.ideal_tokens for demand in demands))

    assert all(grants[demand.layer] >= demand.ideal_tokens for demand in demands)


@QUICK
@given(case=divisions())
def test_tokens_are_divided_by_rules(case):
    demands, available, number, more = case

    check_bounds(demands, available)
    check_maxima(demands, available)
    check_order(demands, available)
    check_raised(demands, available, number, more)
    check_more_budget(demands, available, more)
    check_ideals(demands)


def spec(layer, *, least=0, ideal=100, maximum=100, priority=50, elasticity=0.0, usable=None):
    return budget.LayerSpec(layer, least, ideal, maximum, priority, elasticity, usable)


@pytest.mark.parametrize(
    ("demands", "available", "expected"),
    [
        pytest.param(
            [spec("a"), spec("b", ideal=50)],
            75,
            {"a": 50, "b": 25},
            id="layers of the same priority grow in proportion to what they want",
        ),
        pytest.param(
            [spec("a", priority=80), spec("b", priority=40)],
            90,
            {"a": 60, "b": 30},
            id="a higher priority grows faster",
        ),
        pytest.param(
            [spec("a", elasticity=1.0), spec("b")],
            90,
            {"a": 30, "b": 60},
            id="an elastic layer grows slower",
        ),
        pytest.param(
            [spec("a", ideal=10, maximum=10, priority=100), spec("b", priority=10)],
            60,
            {"a": 10, "b": 50},
            id="tokens that a full layer does not need go to the others",
        ),
        pytest.param(
            [spec("a", ideal=10, maximum=99), spec("b", ideal=10, maximum=30, priority=90)],
            50,
            {"a": 20, "b": 30},
            id="those that nobody wants go to the highest priority up to its maximum",
        ),
        pytest.param(
            [spec("a", usable=130), spec("b", priority=40, usable=400)],
            330,
            {"a": 130, "b": 200},
            id="then past it as far as usable",
        ),
        pytest.param(
            [spec("a", priority=90, usable=500), spec("b", ideal=50, maximum=120)],
            210,
            {"a": 100, "b": 110},
            id="past it only when the others have reached theirs",
        ),
        pytest.param(
            [spec("b", least=50), spec("a", least=50)],
            60,
            {"a": 60, "b": 0},
            id="layers of the same priority are served by name",
        ),
        pytest.param(
            [spec("a", least=20, priority=10), spec("b", least=50, priority=90)],
            60,
            {"a": 0, "b": 60},
            id="one whose floor does not fit gets nothing",
        ),
        pytest.param([], 100, {}, id="no layer"),
    ],
)
def test_a_division_by_hand(demands, available, expected):
    assert budget.divide(demands, available) == expected


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
    # More of a system prompt than this is refused before anything is divided.
    identity = draw(st.integers(0, min(total, 3_000)))
    # Without topics or entities there are no tokens of them.
    topic_tokens = draw(number) * min(topics, 1)
    entity_tokens = draw(number) * min(entities, 1)
    return budget.Situation(
        total_tokens=total,
        overhead_tokens=draw(st.integers(0, 300)),
        identity_tokens=identity,
        preferences_tokens=draw(number),
        memory_tokens=draw(number),
        message_tokens=draw(number),
        message_count=draw(st.integers(0, 60) | st.integers(0, 100_000)),
        history_tokens=history,
        keep_tokens=draw(st.integers(0, min(history, 3_000))),
        exchanges=tuple(budget.Exchange(1 + size % 4, size) for size in exchanges),
        topic_count=topics,
        topic_tokens=topic_tokens,
        entity_count=entities,
        entity_tokens=entity_tokens,
        custom=tuple(replace(draw(specs(name, 1_000)), usable_tokens=None) for name in OWN),
        depth=draw(st.sampled_from(["minimal", "standard", "deep"])),
        prioritize_history=draw(st.booleans()),
    )


def check_total(allocation, situation):
    """Layers, overhead and reserve fit the budget where what must be sent does."""
    must_be_sent = situation.overhead_tokens + situation.identity_tokens + situation.message_tokens
    grants = sum(allocation.tokens.values())
    if must_be_sent <= situation.total_tokens:
        total = grants + situation.overhead_tokens + allocation.reserve_tokens
        assert total <= situation.total_tokens

    assert min(allocation.reserve_tokens, *allocation.tokens.values()) >= 0
    assert set(allocation.tokens) == {*Layer, *OWN}


def check_demands(allocation):
    """Floor, ideal, maximum and limit of every layer are in order."""
    for demand in allocation.specs:
        assert 0 <= demand.min_tokens <= demand.ideal_tokens
        assert demand.ideal_tokens <= demand.max_tokens <= demand.limit_tokens


def check_held(allocation, situation):
    """No layer gets more than it holds; a history that fits whole gets what it holds."""
    tokens = allocation.tokens

    assert tokens[Layer.TOPICS] <= situation.topic_tokens
    assert tokens[Layer.ENTITIES] <= situation.entity_tokens
    assert tokens[Layer.PREFERENCES] <= situation.preferences_tokens + situation.memory_tokens
    if allocation.fits_whole:
        assert tokens[Layer.HISTORY] == situation.history_tokens


def check_own_layers(strategy, tokens, situation, more):
    """Own layers come in any order; a higher priority or ideal never means less."""
    reversed_layers = replace(situation, custom=situation.custom[::-1])
    assert strategy.allocate(reversed_layers).tokens == tokens

    for own in situation.custom:
        grant = tokens[own.layer]
        assert grant == 0 or own.min_tokens <= grant <= own.limit_tokens

        others = [other for other in situation.custom if other is not own]
        ideal = min(own.max_tokens, own.ideal_tokens + more)
        for raised in (
            replace(own, priority=own.priority + more),
            replace(own, ideal_tokens=ideal),
        ):
            after = strategy.allocate(replace(situation, custom=(*others, raised)))
            assert after.tokens[own.layer] >= grant


def check_kept_messages(strategy, tokens, situation):
    """The newest messages that stay have room; an elastic strategy promises less."""
    if isinstance(strategy, budget.ElasticAllocation):
        return

    kept = situation.keep_tokens
    if isinstance(strategy, budget.RatioAllocation):
        exchanges = situation.exchanges[: strategy.min_exchanges]
        kept = sum(exchange.tokens for exchange in exchanges)
    if kept <= situation.free_tokens:
        assert tokens[Layer.HISTORY] >= kept


def check_retrieval(strategy, situation):
    """A history that does not fit is retrieved from.

    Not so for more than ten entities, which take it by the seed's own formula.
    """
    if not isinstance(strategy, budget.DynamicAllocation):
        return

    few_entities = replace(situation, custom=(), entity_count=min(10, situation.entity_count))
    allocation = strategy.allocate(few_entities)
    history = allocation.tokens[Layer.HISTORY] + allocation.tokens[Layer.ARC]
    if not allocation.fits_whole and situation.free_tokens - history > 10:
        assert allocation.spec_of(Layer.RETRIEVAL).limit_tokens > 0


ALLOCATIONS = allocations(OWN)


@QUICK
@given(
    situation=situations(),
    values=st.tuples(*ALLOCATIONS.values()),
    more=st.integers(1, 500),
)
def test_every_strategy_keeps_its_rules_in_every_situation(situation, values, more):
    for value in values:
        strategy = budget.strategy_of(value)
        allocation = strategy.allocate(situation)

        check_total(allocation, situation)
        check_demands(allocation)
        check_held(allocation, situation)
        check_own_layers(strategy, allocation.tokens, situation, more)
        check_kept_messages(strategy, allocation.tokens, situation)
        check_retrieval(strategy, situation)


def situation(**changes):
    """A history of 25 messages that is five times as large as the budget."""
    fields = {
        "total_tokens": 10_000,
        "overhead_tokens": 0,
        "identity_tokens": 0,
        "preferences_tokens": 0,
        "message_tokens": 0,
        "message_count": 25,
        "history_tokens": 50_000,
    }
    return budget.Situation(**(fields | changes))


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("elastic", "elastic"),
        ({"strategy": "elastic", "profile": "seed"}, "elastic (seed)"),
        ("ratio", "ratio 30/40/30"),
        ({"strategy": "fixed", "system": 0.1}, "fixed"),
        ("dynamic", "dynamic"),
        (
            {"strategy": "prioritized", "order": ["retrieval", "history"]},
            "prioritized: retrieval, history",
        ),
    ],
)
def test_a_strategy_comes_from_json_and_is_named_in_reports(value, name):
    strategy = budget.strategy_of(json.loads(json.dumps(value)))

    assert strategy.name == name
    assert strategy.allocate(situation()).strategy == name


@pytest.mark.parametrize(("reserve", "total"), [(0.05, "0.50"), (0.49, "0.94"), (0.61, "1.06")])
def test_ratios_further_from_one_are_refused(reserve, total):
    complaint = f"must add up to 1, give or take 0.05, not {total}"

    with pytest.raises(InvalidSettingsError, match=complaint):
        budget.RatioAllocation(memory=0.25, history=0.2, reserve=reserve)


def test_a_system_prompt_over_a_quarter_of_the_budget_is_refused():
    complaint = "2,501 tokens, over 25% of the budget, which is 2,500"

    with pytest.raises(SystemPromptTooLargeError, match=complaint) as caught:
        budget.RatioAllocation().allocate(situation(identity_tokens=2_501))

    assert caught.value.floors == {"L0 system prompt": 2_501}
    assert "max_system_share" in str(caught.value)


def test_shares_of_more_than_everything_are_refused():
    with pytest.raises(InvalidSettingsError, match=r"at most 1 together, not 1\.10"):
        budget.FixedAllocation(system=0.1, history=0.4, entities=0.1, retrieval=0.4, query=0.1)


@pytest.mark.parametrize(
    ("identity_tokens", "history", "topics", "retrieval"),
    [(1_000, 4_000, 1_000, 3_000), (5_000, 2_000, 500, 1_500)],
)
def test_a_system_prompt_over_its_share_shrinks_the_others_together(
    identity_tokens, history, topics, retrieval
):
    fixed = budget.FixedAllocation(system=0.1, history=0.4, entities=0.1, retrieval=0.3, query=0.1)

    tokens = fixed.allocate(
        situation(
            identity_tokens=identity_tokens,
            topic_count=1,
            topic_tokens=5_000,
            message_tokens=1_000,
            message_count=0,
        )
    ).tokens

    assert tokens[Layer.HISTORY] == history
    assert tokens[Layer.TOPICS] == topics
    assert tokens[Layer.RETRIEVAL] == retrieval


FILES = CustomLayer(name="open files", items=(), ideal_tokens=5_000).spec


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        pytest.param((), {"L1": 500, "L6": 8_000, "L2": 1_500, "L3": 0}, id="the default"),
        pytest.param(
            ("entities", "topics", "history", "preferences"),
            {"L3": 1_000, "L2": 2_000, "L6": 7_000, "L1": 0},
            id="the other way round",
        ),
        pytest.param(
            ("retrieval",),
            {"L5": 0, "L6": 8_000},
            id="nothing to retrieve from a whole history",
        ),
        pytest.param(
            ("open files", "topics"),
            {"open files": 5_000, "L2": 2_000, "L1": 500, "L6": 2_500, "L3": 0},
            id="an own layer first",
        ),
    ],
)
def test_layers_are_filled_one_after_the_other(order, expected):
    tokens = (
        budget.PrioritizedAllocation(order=order)
        .allocate(
            situation(
                history_tokens=8_000,
                message_count=0,
                custom=(FILES,),
                preferences_tokens=500,
                topic_count=2,
                topic_tokens=2_000,
                entity_count=1,
                entity_tokens=1_000,
            )
        )
        .tokens
    )

    assert {layer: tokens[layer] for layer in expected} == expected


def test_a_layer_that_is_not_there_is_refused_with_those_that_are():
    names = "the layers are preferences, history, topics, entities, retrieval, open files"

    with pytest.raises(InvalidSettingsError, match=f"order names 'files', 'weather'; {names}"):
        budget.PrioritizedAllocation(order=("history", "files", "weather")).allocate(
            situation(custom=(FILES,))
        )


@pytest.mark.parametrize("layer", [Layer.ARC, Layer.PREFERENCES])
def test_a_rebuilt_prompt_shares_out_what_it_may_grow_to(layer):
    long = situation(
        total_tokens=4_000,
        message_count=600,
        history_tokens=60_000,
        memory_tokens=900,
        learned_tokens=900,
    )
    elastic = budget.ElasticAllocation()

    extended = elastic.allocate(replace(long, grown_tokens=0)).tokens
    rebuilt = elastic.allocate(replace(long, grown_tokens=10_000)).tokens

    assert extended[layer] < rebuilt[layer] <= 2.5 * extended[layer] + 1
