"""Where verbatim history begins, and the tree of what stands before it."""

from hypothesis import example, given
from hypothesis import strategies as st

from langchain_ctxbudget.history.cutting import move_cut, strategy_for
from langchain_ctxbudget.history.tree import TREE, Tree, frontier
from tests.conversations import opened


@st.composite
def histories(draw, max_cost=60):
    costs = draw(st.lists(st.integers(1, max_cost), max_size=60))
    safe = draw(st.lists(st.booleans(), min_size=len(costs), max_size=len(costs)))
    starts = draw(st.sets(st.sampled_from([0, *(i for i, yes in enumerate(safe) if yes)])))
    return costs, safe, starts


def moved(costs, safe=None, starts=(), *, room=100, trigger=0.8, target=0.4, keep=0):
    safe = [True] * len(costs) if safe is None else safe
    return move_cut(
        costs.__getitem__, safe, set(starts), room=room, trigger=trigger, target=target, keep=keep
    )


@st.composite
def limits(draw):
    target = draw(st.floats(0.1, 0.7))
    return {
        "room": draw(st.integers(1, 500)),
        "keep": draw(st.integers(0, 10)),
        "target": target,
        "trigger": draw(st.floats(target, 1.0)),
    }


def test_the_cut_goes_down_to_the_target_at_a_safe_place_or_the_end_of_a_segment_that_is_near():
    unsafe = [True] * 5 + [False] * 2 + [True] * 2
    assert moved([10] * 9) == 5
    assert moved([10] * 9, unsafe) == 7
    assert moved([10] * 9, starts=[0, 4, 8]) == 4
    assert (
        moved([10] * 20, starts=[0, 13], target=0.4, trigger=0.8) == 16
    )  # that segment ends near the trigger
    assert moved([10] * 20, starts=[0, 14, 17]) == 17
    assert moved([10] * 4, starts=[0, 2]) == 0
    assert moved([]) == 0


def test_the_newest_messages_stay_where_they_are_kept():
    assert moved([10] * 9, keep=6) == 3
    assert moved([10] * 9, starts=[0, 6], keep=6) == 3
    assert moved([10] * 8, [True] + [False] * 7, room=20, keep=3) == 5  # no place is safe


@given(histories(), limits())
def test_the_cut_is_within_the_history_and_safe_and_the_newest_messages_stay(history, limit):
    costs, safe, starts = history
    assert moved(costs, starts=starts, **limit) <= max(0, len(costs) - limit["keep"])
    cut = moved(costs, safe, starts, **limit)
    assert 0 <= cut <= len(costs)
    assert cut in {0, len(costs), len(costs) - limit["keep"]} or safe[cut]


@given(histories(), limits())
@example(
    ([1, 1, 1, 1], [True, False, False, False], set()),
    {"room": 4, "keep": 1, "target": 0.5, "trigger": 1.0},
)
def test_what_stays_is_what_is_kept_or_half_way_to_the_trigger_or_one_group_that_the_room_holds(
    history, limit
):
    costs, safe, starts = history
    cut = moved(costs, safe, starts, **limit)
    most = limit["room"] * max(limit["target"], (limit["target"] + limit["trigger"]) / 2)
    one_group = not any(safe[cut + 1 :]) and sum(costs[cut:]) <= limit["room"]
    assert cut >= len(costs) - limit["keep"] or sum(costs[cut:]) <= most or one_group


def test_the_strategies_begin_at_the_ratios_of_the_seed():
    found = [strategy_for(tokens, 100) for tokens in (100, 250, 251, 800, 801)]
    assert found == ["windowed", "windowed", "compacted", "compacted", "multi_level"]


def grown(found, size=20):
    return Tree(size).grow(found)


@given(st.lists(st.text(max_size=3), max_size=120), st.integers(2, 30), st.integers(0, 120))
def test_a_tree_is_the_same_whether_messages_come_at_once_one_by_one_or_again(texts, size, again):
    found = opened(*texts).table
    tree = whole = grown(found, size)
    for end in range(min(again, len(found)), len(found) + 1):
        tree = tree.shortened(end).grow(found[:end])
    assert tree == whole
    by_one = Tree(size)
    for end in range(len(found) + 1):
        by_one = by_one.grow(found[:end])
    assert by_one == whole


@given(st.integers(0, 3_000))
def test_a_frontier_covers_every_segment_once_and_is_coarser_the_older(segments):
    nodes = frontier(range(segments + 1), segments)
    assert [first for node in nodes for first in range(node.first, node.end)] == list(
        range(segments)
    )
    levels = [node.level for node in nodes]
    assert levels == sorted(levels, reverse=True)
    assert all(levels.count(level) <= TREE.fine_nodes + TREE.fan_out - 1 for level in levels)
    assert levels.count(1) >= min(segments, TREE.fine_nodes)
    assert len(frontier(range(5_001), 5_000)) <= 35
