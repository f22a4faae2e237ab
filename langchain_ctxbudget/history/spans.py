"""What is known of the spans of a conversation: the nodes of its compaction tree and their digests."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Protocol

from langchain_ctxbudget.core import tree
from langchain_ctxbudget.core.digest import Digest, Line
from langchain_ctxbudget.core.extractive import digest_messages, merge
from langchain_ctxbudget.core.tree import Node

MOST_ATTEMPTS = 3
"""Times that a model is asked about a span before its extraction stands for good."""


class Message(Protocol):
    """What of a message is read here."""

    fingerprint: str
    text: str

    @property
    def preservation(self) -> str | None:
        """What the application wants to become of it."""

    @property
    def id(self) -> str:
        """The message's id."""

    @property
    def mark(self) -> int:
        """A number that follows from what it says."""

    def as_line(self, position: int) -> Line:
        """The message as a summariser reads it."""


@dataclass(slots=True)
class Failure:
    """Why a model has not written about a span."""

    problem: str
    attempts: int


@dataclass(slots=True)
class Made:
    """What a model has written about spans, by the hash of their content: an unchanged span is never read twice."""

    digests: dict[str, Digest] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)
    looked_up: set[str] = field(default_factory=set)
    """Hashes that the store was asked for."""
    maker: str = ""
    """Which model, with which prompt; empty where there is none."""
    segment_messages: int = 0
    until: int = 0
    """The position up to which a model is to write about the messages."""
    asked_until: int = 0
    """The position up to which it was asked to."""
    finish: int = 0
    """The position up to which it is to write also about what is no whole segment yet."""

    def copy(self) -> Made:
        """The same, to go on by itself."""
        return replace(self, digests=dict(self.digests), failures=dict(self.failures), looked_up=set(self.looked_up))

    def key(self, content: str) -> str:
        """The hash under which this model's words about a content are kept."""
        return f"{content}-{self.maker}"

    def about(self, content: str, first: int, context: str) -> Digest | None:
        """What was written about a content, as far as it holds where it stands now.

        Args:
            content: its hash.
            first: the position of its first message.
            context: a digest of the messages before it.
        """
        digest = self.digests.get(self.key(content))
        return digest and digest.moved(first).after(context)

    def failed(self, key: str, problem: str) -> None:
        """Note that the model failed at a span."""
        before = self.failures.get(key)
        self.failures[key] = Failure(problem, (before.attempts if before else 0) + 1)

    def read_again(self) -> None:
        """Forget what was written, which the store has as far as it still holds."""
        self.digests, self.failures, self.looked_up = {}, {}, set()

    def given_up(self, key: str) -> bool:
        """Whether the model is not asked about a span again."""
        return key in self.failures and self.failures[key].attempts >= MOST_ATTEMPTS


class Spans:
    """The compaction tree of a conversation for one size of segments."""

    def __init__(self, segment_messages: int) -> None:
        """Begin with no messages.

        Args:
            segment_messages: messages that a segment should have.
        """
        self.segment_messages = segment_messages
        self.boundaries = [0]
        self.starts = {0}
        self.written = 0
        """Segments from the first on that a model has written about, with all that they make up."""
        self._extracted: dict[tuple[int, int], Digest] = {}
        self._keys: dict[tuple[int, int], str] = {}

    def copy(self) -> Spans:
        """The same tree, to grow by itself."""
        twin = Spans(self.segment_messages)
        twin.boundaries, twin.starts, twin.written = list(self.boundaries), set(self.starts), self.written
        twin._extracted, twin._keys = dict(self._extracted), dict(self._keys)
        return twin

    def grow(self, messages: Sequence[Message], safe: Sequence[bool]) -> None:
        """Take in what was appended."""
        known = len(self.boundaries)
        tree.grow(
            self.boundaries,
            safe,
            lambda at: len(messages[at].text),
            lambda at: messages[at].mark,
            self.segment_messages,
        )
        self.starts.update(self.boundaries[known:])

    def truncate(self, length: int) -> None:
        """Take back every segment that a message from here on belongs to, or ended."""
        while len(self.boundaries) > 1 and self.boundaries[-1] >= length:
            self.starts.remove(self.boundaries.pop())
        self.written = min(self.written, len(self.boundaries) - 1)
        self._extracted = {place: known for place, known in self._extracted.items() if self._has(*place)}
        self._keys = {place: known for place, known in self._keys.items() if self._has(*place)}

    def _has(self, level: int, index: int) -> bool:
        return bool((index + 1) * tree.FAN_OUT ** (level - 1) < len(self.boundaries))

    def segments_until(self, position: int) -> int:
        """How many segments end at or before a position."""
        return bisect_right(self.boundaries, position) - 1

    def frontier(self, position: int) -> list[Node]:
        """The nodes that stand for the whole segments before a position, oldest and coarsest first."""
        return tree.frontier(self.boundaries, self.segments_until(position))

    def complete(self, position: int, start: int = 0) -> list[Node]:
        """Every node before a position, each after its children; without those that end in the first segments."""
        return tree.complete(self.boundaries, self.segments_until(position), start)

    def find(self, level: int, index: int) -> Node | None:
        """A node by its place in the tree, or None where it is not complete."""
        return tree.node(self.boundaries, level, index) if self._has(level, index) else None

    def child(self, parent: Node, index: int) -> Node:
        """A child of a node by its index at the level below."""
        return tree.node(self.boundaries, parent.level - 1, index)

    def key(self, node: Node, messages: Sequence[Message]) -> str:
        """A hash of a node's content: who said what, wherever in the conversation it stands."""
        place = (node.level, node.index)
        if place not in self._keys:
            if node.level == 1:
                self._keys[place] = content_key(messages, node.first, node.end)
            else:
                content = blake2b(str(node.level).encode(), digest_size=16)
                for index in tree.children(node):
                    content.update(self.key(self.child(node, index), messages).encode())
                self._keys[place] = content.hexdigest()
        return self._keys[place]

    def extraction(self, node: Node, messages: Sequence[Message]) -> Digest:
        """What extraction keeps of a node; every message is read once."""
        place = (node.level, node.index)
        if place not in self._extracted:
            if node.level == 1:
                self._extracted[place] = extraction(messages, node.first, node.end)
            else:
                parts = [self.extraction(self.child(node, index), messages) for index in tree.children(node)]
                self._extracted[place] = merge(parts)
        return self._extracted[place]


def content_key(messages: Sequence[Message], first: int, end: int) -> str:
    """A hash of who said what in a row of messages."""
    content = blake2b(digest_size=16)
    for message in messages[first:end]:
        said = f"{message.id}\0{message.fingerprint}\0{message.preservation == 'drop'}\0"
        content.update(said.encode(errors="surrogatepass"))
    return content.hexdigest()


def extraction(messages: Sequence[Message], first: int, end: int) -> Digest:
    """What extraction keeps of messages that are no segment yet."""
    lines = [message.as_line(first + offset) for offset, message in enumerate(messages[first:end])]
    return digest_messages(lines, first, end)
