"""The compaction tree: where segments end, the frontier that stands for them, and the hashes of their content."""

from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxbudget.history import Line
from langchain_ctxbudget.history.tree import (
    FAN_OUT,
    FINE_NODES,
    SEGMENT_CHARACTERS,
    KnownDigests,
    Spans,
    Tree,
    frontier,
    node_at,
)


@dataclass(frozen=True)
class Message:
    """A message as the tree reads it."""

    text: str
    id: str = ""
    safe_cut: bool = True
    preservation: str | None = None
    date: str | None = None
    digest: str = ""

    @property
    def fingerprint(self) -> str:
        return blake2b(self.text.encode(), digest_size=16).hexdigest()

    def as_line(self, position: int) -> Line:
        return Line(position, "ada", self.date, self.text, from_user=True)


def messages(count: int) -> list[Message]:
    return [Message(f"The message number {i} is here.", id=str(i)) for i in range(count)]


def grown(found: list[Message], size: int = 20) -> Tree:
    return Tree(size).grow(found)


def test_segments_have_about_the_wanted_number_of_messages():
    starts = grown(messages(20_000)).starts
    assert 19 <= 20_000 / len(starts) <= 22
    assert all(16 <= end - first <= 26 for first, end in pairwise(starts))
    assert grown([Message("x" * (SEGMENT_CHARACTERS // 4))] * 10).starts == (0, 4, 8)


@given(st.lists(st.text(max_size=3), max_size=120), st.integers(2, 30), st.integers(0, 120))
def test_a_tree_is_the_same_whether_messages_come_at_once_one_by_one_or_again(texts, size, again):
    found = [Message(text, id=str(i)) for i, text in enumerate(texts)]
    tree = whole = grown(found, size)
    for end in range(min(again, len(found)), len(found) + 1):
        tree = tree.shortened(end).grow(found[:end])
    assert tree == whole
    by_one = Tree(size)
    for end in range(len(found) + 1):
        by_one = by_one.grow(found[:end])
    assert by_one == whole


def test_a_removed_message_changes_two_segments_on_average_and_not_all_that_follow():
    def spans(found: list[Message]) -> set[tuple[str, ...]]:
        return {tuple(message.text for message in found[a:b]) for a, b in pairwise(grown(found).starts)}

    found = messages(400)
    changed = [len(spans(found) - spans(found[:gone] + found[gone + 1 :])) for gone in range(0, 400, 4)]
    assert sum(changed) / len(changed) <= 2
    assert max(changed) <= len(spans(found)) / 2


@given(st.integers(0, 3_000))
def test_a_frontier_covers_every_segment_once_and_is_coarser_the_older(segments):
    nodes = frontier(range(segments + 1), segments)
    assert [first for node in nodes for first in range(node.first, node.end)] == list(range(segments))
    levels = [node.level for node in nodes]
    assert levels == sorted(levels, reverse=True)
    assert all(levels.count(level) <= FINE_NODES + FAN_OUT - 1 for level in levels)
    assert levels.count(1) >= min(segments, FINE_NODES)
    assert len(frontier(range(5_001), 5_000)) <= 35


def test_a_key_follows_from_the_content_of_a_span_wherever_it_stands():
    found = messages(600)
    tree = grown(found)
    keys = {node: tree.key(node) for node in tree.complete(600)}
    assert len(set(keys.values())) == len(keys)
    assert None not in keys.values()
    dropped = [*found[:-1], replace(found[-1], preservation="drop"), *messages(50)]
    assert tree.shortened(599).grow(dropped).keys[0][: len(tree.keys[0]) - 1] == tree.keys[0][:-1]
    first = node_at(tree.starts, 1, 0)
    moved = Spans([Message("Before.", id="x"), *found], grown([Message("Before.", id="x"), *found]), KnownDigests())
    assert tree.key(first) == moved.content(replace(first, first=1, end=first.end + 1))


def test_no_span_is_read_twice_also_after_an_edit():
    found = messages(600)
    known, read = KnownDigests(), []

    class Watched(Message):
        def as_line(self, position: int) -> Line:
            read.append(position)
            return super().as_line(position)

    watched = [Watched(message.text, id=message.id) for message in found]
    tree = grown(watched)
    before, waiting = Spans(watched, tree, known).before(600)
    assert (before[0].first, before[-1].end, waiting) == (0, 600, ())
    assert max(map(read.count, range(tree.starts[-1]))) == 1
    read.clear()
    watched[300] = Watched("Other words now.", id="300")
    tree = tree.shortened(300)
    known.keep([tree])
    assert "message number 300" not in str(known)
    tree = tree.grow(watched)
    after, _ = Spans(watched, tree, known).before(600)
    assert min(read) >= 300 - 2 * 26
    assert max(map(read.count, range(tree.starts[-1]))) == 1
    assert [digest for digest in after if digest.end < 250] == [digest for digest in before if digest.end < 250]
