"""The compaction tree: where segments end, and the frontier that stands for them."""

from hashlib import blake2b
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxbudget.core.tree import FAN_OUT, FINE_NODES, SEGMENT_CHARACTERS, complete, frontier, grow


def mark(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=4).digest())


def grown(texts: list[str], size: int = 20, safe: list[bool] | None = None, at_once: bool = True) -> list[int]:
    boundaries = [0]
    safe = [True] * len(texts) if safe is None else safe
    for end in [len(texts)] if at_once else range(1, len(texts) + 1):
        grow(boundaries, safe[:end], lambda at: len(texts[at]), lambda at: mark(texts[at]), size)
    return boundaries


def messages(count: int) -> list[str]:
    return [f"message {i}" for i in range(count)]


def test_segments_have_about_the_wanted_number_of_messages():
    boundaries = grown(messages(20_000))
    assert 19 <= 20_000 / len(boundaries) <= 22
    assert all(16 <= end - first <= 26 for first, end in pairwise(boundaries))


def test_a_segment_of_long_messages_ends_earlier():
    assert grown(["x" * (SEGMENT_CHARACTERS // 4)] * 10) == [0, 4, 8]


def test_a_segment_ends_where_a_cut_is_safe():
    safe = [i % 7 == 0 for i in range(200)]
    assert all(boundary % 7 == 0 for boundary in grown(messages(200), safe=safe))


@given(st.lists(st.text(max_size=3), max_size=120), st.integers(2, 30))
def test_segments_end_at_the_same_places_whether_messages_come_at_once_or_one_by_one(texts, size):
    assert grown(texts, size) == grown(texts, size, at_once=False)


def spans(texts: list[str]) -> list[tuple[str, ...]]:
    return [tuple(texts[first:end]) for first, end in pairwise(grown(texts))]


def test_a_removed_message_changes_two_segments_on_average_and_not_all_that_follow():
    texts = messages(400)
    before = set(spans(texts))
    changed = [len(before - set(spans(texts[:gone] + texts[gone + 1 :]))) for gone in range(400)]
    assert sum(changed) / len(changed) <= 2
    assert max(changed) <= len(before) / 2


@given(st.integers(0, 399))
def test_a_removed_message_leaves_the_segments_before_it(gone):
    texts = messages(400)
    ended = [span for span in spans(texts) if span[-1] in texts[: max(0, gone - 1)]]
    assert spans(texts[:gone] + texts[gone + 1 :])[: len(ended)] == ended


@given(st.integers(0, 3_000))
def test_a_frontier_covers_every_segment_once_in_order(segments):
    nodes = frontier(range(segments + 1), segments)
    assert [first for node in nodes for first in range(node.first, node.end)] == list(range(segments))


@given(st.integers(0, 3_000))
def test_a_frontier_is_coarser_the_older_and_has_few_nodes_of_every_level(segments):
    levels = [node.level for node in frontier(range(segments + 1), segments)]
    assert levels == sorted(levels, reverse=True)
    assert all(levels.count(level) <= FINE_NODES + FAN_OUT - 1 for level in levels)
    assert levels.count(1) >= min(segments, FINE_NODES)


def test_a_hundred_thousand_messages_have_a_frontier_of_a_few_nodes():
    assert len(frontier(range(5_001), 5_000)) <= 35


@given(st.integers(0, 700))
def test_every_node_comes_after_its_children(segments):
    seen = set()
    for node in complete(range(segments + 1), segments):
        children = range(node.index * FAN_OUT, (node.index + 1) * FAN_OUT)
        assert node.level == 1 or all((node.level - 1, child) in seen for child in children)
        seen.add((node.level, node.index))
    assert {(node.level, node.index) for node in frontier(range(segments + 1), segments)} <= seen


@given(st.integers(0, 300), st.integers(0, 300))
def test_nodes_that_ended_before_are_left_out(segments, start):
    every = complete(range(segments + 1), segments)
    assert complete(range(segments + 1), segments, start) == [node for node in every if node.end > start]
