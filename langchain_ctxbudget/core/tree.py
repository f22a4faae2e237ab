"""The compaction tree: segments of messages, five of which make a node of the next level, and the frontier through it.

Where a segment ends follows from the messages themselves, as in content-defined chunking (rsync, Muthitacharoen et al.
2001): at the first safe place after 0.8 of the wanted size where the message's own hash says so, at the latest after
1.3 of it. So every process finds the same segments, and a message that is removed changes two of them on average, not
all that follow. A segment that has ended never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

FAN_OUT = 5
"""Nodes that make one of the next level (seed 000: groups of 5)."""
FINE_NODES = 3
"""At every level, at least so many of the newest nodes are on the frontier (seed 000: three chunks at level 1)."""
SEGMENT_CHARACTERS = 40_000
"""A segment of long messages ends here, about 10,000 tokens; in characters, so that all tokenizers have the same."""
SHORTEST, LONGEST = 0.8, 1.3
"""Of the wanted number of messages."""
ENDS_ONE_IN = 8
"""Between the two, one message in so many ends its segment: about the wanted size on average."""


@dataclass(frozen=True, slots=True, order=True)
class Node:
    """A span of messages that never changes: a segment (level 1) or several nodes of the level below."""

    first: int
    """The position of its first message."""
    end: int
    """The position behind its last message."""
    level: int
    index: int
    """The how manieth node of its level it is, from 0."""


def grow(
    boundaries: list[int],
    safe: Sequence[bool],
    size: Callable[[int], int],
    mark: Callable[[int], int],
    segment_messages: int,
) -> None:
    """Append the ends of the segments that have ended by now.

    Args:
        boundaries: where segments begin, from 0 on; extended in place.
        safe: for every message, whether a cut right before it leaves calls and results together.
        size: characters of the message at a position.
        mark: a number that follows from its content.
        segment_messages: messages that a segment should have.
    """
    shortest, longest = max(1, int(segment_messages * SHORTEST)), max(1, int(segment_messages * LONGEST))
    characters = 0
    for at in range(boundaries[-1], len(safe)):
        count = at - boundaries[-1]
        marked = count >= shortest and mark(at - 1) % ENDS_ONE_IN == 0
        if count and safe[at] and (marked or count >= longest or characters >= SEGMENT_CHARACTERS):
            boundaries.append(at)
            characters = 0
        characters += size(at)


def node(boundaries: Sequence[int], level: int, index: int) -> Node:
    """A node by its place in the tree."""
    width = FAN_OUT ** (level - 1)
    return Node(boundaries[index * width], boundaries[(index + 1) * width], level, index)


def children(parent: Node) -> range:
    """The indexes of a node's children at the level below."""
    return range(parent.index * FAN_OUT, (parent.index + 1) * FAN_OUT)


def frontier(boundaries: Sequence[int], segments: int) -> list[Node]:
    """The nodes that stand for the first `segments` segments, oldest and coarsest first.

    Three to seven nodes of every level: so a conversation of any length has few, and one that grows changes only the
    newest until five of them become one of the next level.
    """
    nodes: list[Node] = []
    level, end = 1, segments
    while end:
        start = max(0, (end - FINE_NODES) // FAN_OUT * FAN_OUT)
        nodes[:0] = [node(boundaries, level, index) for index in range(start, end)]
        level, end = level + 1, start // FAN_OUT
    return nodes


def complete(boundaries: Sequence[int], segments: int, start: int = 0) -> list[Node]:
    """Every node that ends within the first `segments` segments, each after its children.

    Args:
        boundaries: where segments begin.
        segments: how many segments.
        start: nodes that end within so many segments are left out.
    """
    nodes = []
    for index in range(start, segments):
        nodes.append(node(boundaries, 1, index))
        level, count = 1, index + 1
        while count % FAN_OUT == 0:
            level, count = level + 1, count // FAN_OUT
            nodes.append(node(boundaries, level, count - 1))
    return nodes
