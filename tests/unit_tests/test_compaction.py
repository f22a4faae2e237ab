"""Holds the cut to its limits, and the tree of spans before it to one shape however it grows."""

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from langchain_ctxbudget.history.cutting import move_cut, strategy_for
from langchain_ctxbudget.history.tree import TREE, Tree, frontier
from tests.conversations import opened


@st.composite
def histories(draw, max_cost=60):
    """Draws what each message costs, where a cut is safe, and where spans begin."""
    costs = draw(st.lists(st.integers(1, max_cost), max_size=60))
    safe = draw(st.lists(st.booleans(), min_size=len(costs), max_size=len(costs)))
    safe_positions = [position for position, is_safe in enumerate(safe) if is_safe]
    span_starts = draw(st.sets(st.sampled_from([0, *safe_positions])))
    return costs, safe, span_starts


@st.composite
def limits(draw):
    target = draw(st.floats(0.1, 0.7))
    return {
        "room": draw(st.integers(1, 500)),
        "keep": draw(st.integers(0, 10)),
        "target": target,
        "trigger": draw(st.floats(target, 1.0)),
    }


def cut_of(costs, safe=None, span_starts=(), *, room=100, trigger=0.8, target=0.4, keep=0):
    """Returns the cut; without further words every place is safe."""
    if safe is None:
        safe = [True] * len(costs)

    return move_cut(
        costs.__getitem__,
        safe,
        set(span_starts),
        room=room,
        trigger=trigger,
        target=target,
        keep=keep,
    )


def test_without_messages_the_cut_is_at_the_beginning():
    assert cut_of([]) == 0


def test_the_cut_leaves_what_the_target_allows():
    assert cut_of([10] * 9) == 5


def test_the_cut_moves_on_to_a_safe_place():
    assert cut_of([10] * 9, [True] * 5 + [False] * 2 + [True] * 2) == 7


@pytest.mark.parametrize(
    ("messages", "span_starts", "cut"),
    [
        pytest.param(9, [0, 4, 8], 4, id="a span ends near the target"),
        pytest.param(20, [0, 13], 16, id="a span ends near the trigger"),
        pytest.param(20, [0, 14, 17], 17, id="of two spans the one behind the target"),
        pytest.param(4, [0, 2], 0, id="all fit"),
    ],
)
def test_the_cut_prefers_the_end_of_a_span_near_the_target(messages, span_starts, cut):
    assert cut_of([10] * messages, span_starts=span_starts) == cut


def test_the_newest_messages_stay_where_they_are_kept():
    assert cut_of([10] * 9, keep=6) == 3


def test_kept_messages_end_at_the_end_of_a_span_too():
    assert cut_of([10] * 9, span_starts=[0, 6], keep=6) == 3


def test_kept_messages_stay_where_no_place_is_safe():
    assert cut_of([10] * 8, [True] + [False] * 7, room=20, keep=3) == 5


@given(histories(), limits())
def test_the_cut_is_safe_and_the_newest_messages_stay(history, limit):
    costs, safe, span_starts = history

    cut_where_all_is_safe = cut_of(costs, span_starts=span_starts, **limit)
    cut = cut_of(costs, safe, span_starts, **limit)

    assert cut_where_all_is_safe <= max(0, len(costs) - limit["keep"])
    assert 0 <= cut <= len(costs)
    assert cut in {0, len(costs), len(costs) - limit["keep"]} or safe[cut]


@given(histories(), limits())
@example(
    ([1, 1, 1, 1], [True, False, False, False], set()),
    {"room": 4, "keep": 1, "target": 0.5, "trigger": 1.0},
)
def test_what_stays_fits_half_way_to_the_trigger(history, limit):
    """More stays only where it is kept, or is one group that the room holds."""
    costs, safe, span_starts = history

    cut = cut_of(costs, safe, span_starts, **limit)

    tokens_behind = sum(costs[cut:])
    half_way = (limit["target"] + limit["trigger"]) / 2
    is_kept = cut >= len(costs) - limit["keep"]
    fits = tokens_behind <= limit["room"] * max(limit["target"], half_way)
    is_one_group = not any(safe[cut + 1 :]) and tokens_behind <= limit["room"]
    assert is_kept or fits or is_one_group


@pytest.mark.parametrize(
    ("tokens", "strategy"),
    [
        (100, "windowed"),
        (250, "windowed"),
        (251, "compacted"),
        (800, "compacted"),
        (801, "multi_level"),
    ],
)
def test_the_strategies_begin_at_the_ratios_of_the_seed(tokens, strategy):
    assert strategy_for(tokens, 100) == strategy


@given(
    st.lists(st.text(max_size=3), max_size=120),
    st.integers(2, 30),
    st.integers(0, 120),
)
def test_a_tree_is_the_same_however_its_messages_come(texts, size, shortened_to):
    entries = opened(*texts).table
    at_once = Tree(size).grow(entries)

    one_by_one = Tree(size)
    for end in range(len(entries) + 1):
        one_by_one = one_by_one.grow(entries[:end])

    again = at_once
    for end in range(min(shortened_to, len(entries)), len(entries) + 1):
        again = again.shortened(end).grow(entries[:end])

    assert one_by_one == at_once
    assert again == at_once


SPANS = st.integers(0, 3_000)


def frontier_of(spans):
    return frontier(range(spans + 1), spans)


def levels_of(spans):
    return [node.level for node in frontier_of(spans)]


@given(SPANS)
def test_a_frontier_covers_every_span_once(spans):
    covered = [range(node.first, node.end) for node in frontier_of(spans)]

    assert list(itertools.chain(*covered)) == list(range(spans))


@given(SPANS)
def test_a_frontier_is_coarser_the_older(spans):
    levels = levels_of(spans)

    assert levels == sorted(levels, reverse=True)


@given(SPANS)
def test_a_frontier_has_few_nodes_of_a_level(spans):
    levels = levels_of(spans)

    assert all(levels.count(level) <= TREE.fine_nodes + TREE.fan_out - 1 for level in levels)


@given(SPANS)
def test_a_frontier_shows_the_newest_spans_one_by_one(spans):
    assert levels_of(spans).count(1) >= min(spans, TREE.fine_nodes)


def test_a_frontier_of_five_thousand_spans_has_at_most_35_nodes():
    assert len(frontier_of(5_000)) <= 35
