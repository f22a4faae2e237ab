"""How a budget is divided between layers, and the rules that every strategy keeps.

A name in the plural (`specs`, `situations`) makes examples, one in the singular (`spec`) is one.
"""

import json
from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from langchain_ctxbudget import budget
from langchain_ctxbudget.budget import Layer
from langchain_ctxbudget.errors import InvalidSettingsError, SystemPromptTooLargeError
from langchain_ctxbudget.settings import CustomLayer
from tests.integration_tests.strategies import allocations

QUICK = settings(suppress_health_check=[HealthCheck.too_slow], max_examples=25)
OWN_LAYERS = ("open files", "weather")


@st.composite
def specs(draw, name, most_tokens=300):
    tokens = st.integers(0, most_tokens)
    least, ideal, maximum = sorted(draw(st.tuples(tokens, tokens, tokens)))
    return budget.LayerSpec(
        name,
        least,
        ideal,
        maximum,
        priority=draw(st.sampled_from([0, 1, 50, 65, 66, 90, 100])),
        elasticity=draw(st.sampled_from([0.0, 0.3, 1.0])),
        usable_tokens=draw(st.none() | st.integers(0, 2 * most_tokens)),
    )


LAYER_NAMES = st.lists(
    st.sampled_from((*budget.Layer, *OWN_LAYERS)), unique=True, min_size=1, max_size=7
)


@dataclass
class Division:
    """What layers demand, and how many tokens there are for them."""

    demands: list[budget.LayerSpec]
    available_tokens: int
    changed: int
    """The place of one demand, which a test may raise."""
    more_tokens: int
    """By how much a test may raise it, or what is available."""

    @property
    def grants(self):
        return budget.divide(self.demands, self.available_tokens)


@st.composite
def divisions(draw):
    demands = [draw(specs(name)) for name in draw(LAYER_NAMES)]
    return Division(
        demands,
        available_tokens=draw(st.integers(-10, 1_500)),
        changed=draw(st.integers(0, len(demands) - 1)),
        more_tokens=draw(st.integers(1, 300)),
    )


# The rules of a division


@QUICK
@given(division=divisions())
def test_grants_add_up_to_what_is_available_at_most(division):
    assert sum(division.grants.values()) <= max(0, division.available_tokens)


@QUICK
@given(division=divisions())
def test_a_grant_is_nothing_or_between_floor_and_limit(division):
    grants = division.grants

    assert set(grants) == {demand.layer for demand in division.demands}
    for demand in division.demands:
        grant = grants[demand.layer]
        assert grant == 0 or demand.min_tokens <= grant <= demand.limit_tokens


@QUICK
@given(division=divisions())
def test_no_layer_passes_its_maximum_before_all_reach_theirs(division):
    grants = division.grants
    served = [
        demand for demand in division.demands if grants[demand.layer] > 0 or demand.min_tokens == 0
    ]

    if any(grants[demand.layer] > demand.max_tokens for demand in served):
        assert all(grants[demand.layer] >= demand.max_tokens for demand in served)


@QUICK
@given(division=divisions())
def test_the_order_of_the_layers_does_not_matter(division):
    reversed_demands = division.demands[::-1]

    assert budget.divide(reversed_demands, division.available_tokens) == division.grants


@QUICK
@given(division=divisions())
def test_a_higher_priority_never_means_less(division):
    demand = division.demands[division.changed]

    check_grant_when_raised(division, priority=demand.priority + division.more_tokens)


@QUICK
@given(division=divisions())
def test_a_higher_ideal_never_means_less(division):
    demand = division.demands[division.changed]
    ideal = demand.ideal_tokens + division.more_tokens

    check_grant_when_raised(division, ideal_tokens=min(demand.max_tokens, ideal))
    check_grant_when_raised(division, ideal_tokens=ideal, max_tokens=max(ideal, demand.max_tokens))


def check_grant_when_raised(division, **changes):
    """Checks that a layer gets no less when its demand is raised by these changes."""
    demand = division.demands[division.changed]
    demands = list(division.demands)
    demands[division.changed] = replace(demand, **changes)
    raised_grants = budget.divide(demands, division.available_tokens)

    assert raised_grants[demand.layer] >= division.grants[demand.layer]


@QUICK
@given(division=divisions())
def test_once_floors_fit_more_budget_never_means_less(division):
    enough = enough_for_floors(division)
    small = budget.divide(division.demands, enough)
    large = budget.divide(division.demands, enough + division.more_tokens)

    for demand in division.demands:
        assert large[demand.layer] >= small[demand.layer] >= demand.min_tokens


@QUICK
@given(division=divisions())
def test_rounding_wastes_less_than_a_token_per_layer(division):
    enough = enough_for_floors(division)
    usable = min(enough, sum(demand.limit_tokens for demand in division.demands))
    grants = budget.divide(division.demands, enough)

    assert sum(grants.values()) > usable - len(division.demands)


def enough_for_floors(division):
    """Returns tokens for all floors, and what is available on top of them."""
    floors = sum(demand.min_tokens for demand in division.demands)
    return floors + max(0, division.available_tokens)


@QUICK
@given(division=divisions())
def test_where_all_ideals_fit_every_layer_has_its_own(division):
    ideals = sum(demand.ideal_tokens for demand in division.demands)
    grants = budget.divide(division.demands, ideals)

    assert all(grants[demand.layer] >= demand.ideal_tokens for demand in division.demands)


# Divisions worked out by hand


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
            id="tokens over all ideals go to the highest priority, up to its maximum",
        ),
        pytest.param(
            [spec("a", usable=130), spec("b", priority=40, usable=400)],
            330,
            {"a": 130, "b": 200},
            id="tokens over all maxima go to the highest priority, as far as it can use them",
        ),
        pytest.param(
            [spec("a", priority=90, usable=500), spec("b", ideal=50, maximum=120)],
            210,
            {"a": 100, "b": 110},
            id="a layer waits at its maximum until the others have reached theirs",
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
            id="a layer whose floor does not fit gets nothing",
        ),
        pytest.param([], 100, {}, id="no layer"),
    ],
)
def test_tokens_are_divided_as_worked_out_by_hand(demands, available, expected):
    assert budget.divide(demands, available) == expected


# The rules of every strategy


@st.composite
def situations(draw):
    tokens = st.integers(0, 3_000)
    topics = draw(st.integers(0, 4))
    entities = draw(st.integers(0, 12))
    history = draw(st.one_of(tokens, st.integers(0, 10**6)))
    exchange_tokens = draw(
        st.lists(st.integers(0, history // budget.MOST_EXCHANGES), max_size=budget.MOST_EXCHANGES)
    )
    exchanges = [budget.Exchange(1 + size % 4, size) for size in exchange_tokens]
    total = draw(st.one_of(st.integers(1, 500), st.integers(1, 20_000), st.integers(1, 200_000)))
    # More of a system prompt than this is refused before anything is divided.
    identity = draw(st.integers(0, min(total, 3_000)))
    topic_tokens = draw(tokens) if topics else 0
    entity_tokens = draw(tokens) if entities else 0
    return budget.Situation(
        total_tokens=total,
        overhead_tokens=draw(st.integers(0, 300)),
        identity_tokens=identity,
        preferences_tokens=draw(tokens),
        memory_tokens=draw(tokens),
        message_tokens=draw(tokens),
        message_count=draw(st.integers(0, 60) | st.integers(0, 100_000)),
        history_tokens=history,
        keep_tokens=draw(st.integers(0, min(history, 3_000))),
        exchanges=tuple(exchanges),
        topic_count=topics,
        topic_tokens=topic_tokens,
        entity_count=entities,
        entity_tokens=entity_tokens,
        custom=tuple(
            replace(draw(specs(name, most_tokens=1_000)), usable_tokens=None) for name in OWN_LAYERS
        ),
        depth=draw(st.sampled_from(["minimal", "standard", "deep"])),
        prioritize_history=draw(st.booleans()),
    )


def check_total(allocation, situation):
    """Layers, overhead and reserve fit the budget, unless what must be sent is over it.

    Every layer has its tokens, and none has less than nothing.
    """
    must_be_sent = situation.overhead_tokens + sum(situation.required.values())
    grants = sum(allocation.tokens.values())
    if must_be_sent <= situation.total_tokens:
        total = grants + situation.overhead_tokens + allocation.reserve_tokens
        assert total <= situation.total_tokens

    assert min(allocation.reserve_tokens, *allocation.tokens.values()) >= 0
    assert set(allocation.tokens) == {*Layer, *OWN_LAYERS}


def check_demands(allocation):
    """Floor, ideal, maximum and limit of every layer are in order."""
    for demand in allocation.specs:
        assert 0 <= demand.min_tokens <= demand.ideal_tokens
        assert demand.ideal_tokens <= demand.max_tokens <= demand.limit_tokens


def check_contents(allocation, situation):
    """No layer gets more than its texts cost; a history that fits whole gets just that."""
    tokens = allocation.tokens

    assert tokens[Layer.TOPICS] <= situation.topic_tokens
    assert tokens[Layer.ENTITIES] <= situation.entity_tokens
    assert tokens[Layer.PREFERENCES] <= situation.preferences_tokens + situation.memory_tokens
    if allocation.fits_whole:
        assert tokens[Layer.HISTORY] == situation.history_tokens


def check_own_layers(strategy, tokens, situation):
    """Own layers get nothing, or between floor and limit, in whichever order they come."""
    for own in situation.custom:
        grant = tokens[own.layer]
        assert grant == 0 or own.min_tokens <= grant <= own.limit_tokens

    reversed_layers = replace(situation, custom=situation.custom[::-1])
    assert strategy.allocate(reversed_layers).tokens == tokens


def check_raised_own_layers(strategy, tokens, situation, more_tokens):
    """A higher priority or ideal of an own layer never means less."""
    for own in situation.custom:
        others = [other for other in situation.custom if other is not own]
        ideal = min(own.max_tokens, own.ideal_tokens + more_tokens)
        more_important = replace(own, priority=own.priority + more_tokens)
        more_wanted = replace(own, ideal_tokens=ideal)
        for raised in (more_important, more_wanted):
            after = strategy.allocate(replace(situation, custom=(*others, raised)))
            assert after.tokens[own.layer] >= tokens[own.layer]


def check_kept_messages(strategy, tokens, situation):
    """The newest messages have room to stay; only an elastic strategy does not promise that."""
    if isinstance(strategy, budget.ElasticAllocation):
        return

    kept = situation.keep_tokens
    if isinstance(strategy, budget.RatioAllocation):
        exchanges = situation.exchanges[: strategy.min_exchanges]
        kept = sum(exchange.tokens for exchange in exchanges)
    if kept <= situation.free_tokens:
        assert tokens[Layer.HISTORY] >= kept


def check_retrieval(strategy, situation):
    """Where the history does not fit, the dynamic strategy leaves room for quotes from it.

    Only with more than ten entities, these may take all of it.
    """
    if not isinstance(strategy, budget.DynamicAllocation):
        return

    few_entities = replace(situation, custom=(), entity_count=min(10, situation.entity_count))
    allocation = strategy.allocate(few_entities)
    history = allocation.tokens[Layer.HISTORY] + allocation.tokens[Layer.ARC]
    if not allocation.fits_whole and situation.free_tokens - history > 10:
        assert allocation.spec_of(Layer.RETRIEVAL).limit_tokens > 0


ALLOCATIONS = allocations(OWN_LAYERS)


@pytest.mark.parametrize("values", ALLOCATIONS.values(), ids=ALLOCATIONS)
@QUICK
@given(data=st.data(), situation=situations(), more_tokens=st.integers(1, 500))
def test_a_strategy_keeps_its_rules_in_every_situation(values, data, situation, more_tokens):
    strategy = budget.strategy_of(data.draw(values))
    allocation = strategy.allocate(situation)

    check_total(allocation, situation)
    check_demands(allocation)
    check_contents(allocation, situation)
    check_own_layers(strategy, allocation.tokens, situation)
    check_raised_own_layers(strategy, allocation.tokens, situation, more_tokens)
    check_kept_messages(strategy, allocation.tokens, situation)
    check_retrieval(strategy, situation)


# Strategies by example


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
def test_ratios_that_do_not_add_up_to_one_are_refused(reserve, total):
    complaint = f"must add up to 1, give or take 0.05, not {total}"

    with pytest.raises(InvalidSettingsError, match=complaint):
        budget.RatioAllocation(memory=0.25, history=0.2, reserve=reserve)


def test_a_system_prompt_over_a_quarter_of_the_budget_is_refused():
    complaint = "2,501 tokens, over 25% of the budget, which is 2,500"

    with pytest.raises(SystemPromptTooLargeError, match=complaint) as caught:
        budget.RatioAllocation().allocate(situation(identity_tokens=2_501))

    assert caught.value.floors == {"system prompt": 2_501}
    assert "max_system_share" in str(caught.value)


def test_shares_over_one_together_are_refused():
    with pytest.raises(InvalidSettingsError, match=r"at most 1 together, not 1\.10"):
        budget.FixedAllocation(system=0.1, history=0.4, entities=0.1, retrieval=0.4, query=0.1)


@pytest.mark.parametrize(
    ("identity_tokens", "history", "topics", "retrieval"),
    [(1_000, 4_000, 1_000, 3_000), (5_000, 2_000, 500, 1_500)],
)
def test_a_system_prompt_over_its_share_shrinks_all_others_alike(
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
def test_prioritized_layers_are_filled_one_after_the_other(order, expected):
    short_history = situation(
        history_tokens=8_000,
        message_count=0,
        custom=(FILES,),
        preferences_tokens=500,
        topic_count=2,
        topic_tokens=2_000,
        entity_count=1,
        entity_tokens=1_000,
    )
    tokens = budget.PrioritizedAllocation(order=order).allocate(short_history).tokens

    assert {layer: tokens[layer] for layer in expected} == expected


def test_an_unknown_layer_is_refused_and_the_known_ones_are_named():
    names = "the layers are preferences, history, topics, entities, retrieval, open files"

    prioritized = budget.PrioritizedAllocation(order=("history", "files", "weather"))

    with pytest.raises(InvalidSettingsError, match=f"order names 'files', 'weather'; {names}"):
        prioritized.allocate(situation(custom=(FILES,)))


@pytest.mark.parametrize("layer", [Layer.ARC, Layer.PREFERENCES])
def test_a_layer_is_as_large_as_the_grown_prompt_allows(layer):
    rebuilt = situation(
        total_tokens=4_000,
        message_count=600,
        history_tokens=60_000,
        memory_tokens=900,
        learned_tokens=900,
    )
    elastic = budget.ElasticAllocation()

    for_its_own_size = elastic.allocate(replace(rebuilt, grown_tokens=0)).tokens[layer]
    for_grown_size = elastic.allocate(replace(rebuilt, grown_tokens=10_000)).tokens[layer]

    assert for_its_own_size < for_grown_size <= 2.5 * for_its_own_size + 1


@pytest.mark.parametrize(
    ("total_tokens", "expected"), [(2_000, 150), (4_096, 204), (8_192, 409), (32_000, 500)]
)
def test_learned_facts_have_room_beside_a_long_conversation(total_tokens, expected):
    long_conversation = situation(
        total_tokens=total_tokens,
        message_count=600,
        history_tokens=200_000,
        preferences_tokens=0,
        memory_tokens=900,
        learned_tokens=900,
    )

    allocation = budget.ElasticAllocation().allocate(long_conversation)

    assert allocation.tokens[Layer.PREFERENCES] == expected
