"""The compaction tree: segments of messages, five of which make a node of the next level, and the frontier through it.

The end of a segment follows from the messages themselves, as in content-defined chunking (rsync, Muthitacharoen et al.
2001): it is the first safe place after 0.8 of the wanted size where the message's own hash says so, at the latest after
1.3 of it. So every process finds the same segments, and a message that is removed changes two of them on average, not
all that follow. A segment that has ended never changes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Protocol

from langchain_ctxbudget.history.digest import Line

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


class Message(Protocol):
    """A message as the tree and its digests read it."""

    @property
    def fingerprint(self) -> str:
        """A hex digest of the message's content."""

    @property
    def digest(self) -> str:
        """A digest of this message and all before it."""

    @property
    def date(self) -> str | None:
        """The day on which it was said."""

    @property
    def safe_cut(self) -> bool:
        """True if a cut right before the message leaves calls and results together."""

    @property
    def text(self) -> str:
        """Its words."""

    @property
    def id(self) -> str:
        """The message's id."""

    @property
    def preservation(self) -> str | None:
        """The application's wish for the message: keep, summarize or drop."""

    def as_line(self, position: int) -> Line:
        """Returns the message as a summariser reads it."""


@dataclass(frozen=True, slots=True, order=True)
class Node:
    """A span of messages that never changes: a segment (level 1) or five nodes of the level below."""

    first: int
    """The position of its first message."""
    end: int
    """The position behind its last message."""
    level: int
    index: int
    """Its place among the nodes of its level, from 0."""


@dataclass(frozen=True, slots=True)
class Tree:
    """The segments of a conversation that have ended, and a hash of the content of every node they make up.

    A tree is a value: `grow` and `shortened` return another one.
    """

    segment_messages: int
    """Messages that a segment should have."""
    starts: tuple[int, ...] = (0,)
    """Positions where segments begin; the last one is that of the segment that has not ended."""
    keys: tuple[tuple[str, ...], ...] = ()
    """The nodes' hashes by level, level 1 first; equal content has the same hash wherever it stands."""

    def grow(self, messages: Sequence[Message]) -> Tree:
        """Returns the tree with the segments that have ended by now; only messages after the last start are read."""
        shortest = max(1, int(self.segment_messages * SHORTEST))
        longest = max(1, int(self.segment_messages * LONGEST))
        starts: list[int] = []
        start, characters = self.starts[-1], 0
        for at in range(start, len(messages)):
            count = at - start
            marked = count >= shortest and int(messages[at - 1].fingerprint[:8], 16) % ENDS_ONE_IN == 0
            if count and messages[at].safe_cut and (marked or count >= longest or characters >= SEGMENT_CHARACTERS):
                starts.append(at)
                start, characters = at, 0
            characters += len(messages[at].text)
        if not starts:
            return self
        edges = (*self.starts, *starts)
        level = [*(self.keys[0] if self.keys else ())]
        level += [content_key(messages, edges[i], edges[i + 1]) for i in range(len(level), len(edges) - 1)]
        keys = [tuple(level)]
        while len(keys[-1]) >= FAN_OUT:
            below, number = keys[-1], len(keys) + 1
            known = self.keys[number - 1] if len(self.keys) >= number else ()
            new = (
                _parent_key(number, below[i * FAN_OUT :][:FAN_OUT]) for i in range(len(known), len(below) // FAN_OUT)
            )
            keys.append((*known, *new))
        return replace(self, starts=edges, keys=tuple(keys))

    def shortened(self, length: int) -> Tree:
        """Returns the tree without every segment that a message from `length` on belongs to, or ended."""
        starts = self.starts[: max(1, bisect_left(self.starts, length))]
        keys = (level[: (len(starts) - 1) // FAN_OUT**depth] for depth, level in enumerate(self.keys))
        return replace(self, starts=starts, keys=tuple(level for level in keys if level))

    def __contains__(self, position: object) -> bool:
        """Returns True if a segment begins at a position."""
        return isinstance(position, int) and self.starts[self.segments_until(position)] == position

    def segments_until(self, position: int) -> int:
        """Returns the number of segments that end at or before a position."""
        return bisect_right(self.starts, position) - 1

    def frontier(self, position: int) -> list[Node]:
        """Returns the nodes that stand for the whole segments before a position, oldest and coarsest first."""
        return frontier(self.starts, self.segments_until(position))

    def complete(self, position: int) -> list[Node]:
        """Returns every node that ends before or at a position, each after its children."""
        nodes: list[Node] = []
        for index in range(self.segments_until(position)):
            nodes.append(self.node(1, index))
            level, count = 1, index + 1
            while count % FAN_OUT == 0:
                level, count = level + 1, count // FAN_OUT
                nodes.append(self.node(level, count - 1))
        return nodes

    def node(self, level: int, index: int) -> Node:
        """Returns a complete node by its place in the tree."""
        return node(self.starts, level, index)

    def children(self, parent: Node) -> list[Node]:
        """Returns the five nodes of the level below that a node consists of."""
        first = parent.index * FAN_OUT
        return [self.node(parent.level - 1, index) for index in range(first, first + FAN_OUT)]

    def key(self, span: Node) -> str | None:
        """Returns the hash of a node's content, or None for a span that is no complete node of this tree."""
        known = self.keys[span.level - 1] if len(self.keys) >= span.level else ()
        return known[span.index] if span.index < len(known) and self.node(span.level, span.index) == span else None


def node(starts: Sequence[int], level: int, index: int) -> Node:
    """Returns the node at a place in the tree whose segments begin at `starts`."""
    width = FAN_OUT ** (level - 1)
    return Node(starts[index * width], starts[(index + 1) * width], level, index)


def frontier(starts: Sequence[int], segments: int) -> list[Node]:
    """Returns the nodes that stand for the first `segments` segments, oldest and coarsest first.

    Three to seven nodes of every level: so a conversation of any length has few, and one that grows changes only the
    newest until five of them become one of the next level.
    """
    nodes: list[Node] = []
    level, end = 1, segments
    while end:
        start = max(0, (end - FINE_NODES) // FAN_OUT * FAN_OUT)
        nodes[:0] = [node(starts, level, index) for index in range(start, end)]
        level, end = level + 1, start // FAN_OUT
    return nodes


def content_key(messages: Sequence[Message], first: int, end: int) -> str:
    """Returns a hash of who said what in a row of messages."""
    content = blake2b(digest_size=16)
    for message in messages[first:end]:
        said = f"{message.id}\0{message.fingerprint}\0{message.preservation == 'drop'}\0"
        content.update(said.encode(errors="surrogatepass"))
    return content.hexdigest()


def _parent_key(level: int, children: Sequence[str]) -> str:
    content = blake2b(str(level).encode(), digest_size=16)
    for key in children:
        content.update(key.encode())
    return content.hexdigest()
