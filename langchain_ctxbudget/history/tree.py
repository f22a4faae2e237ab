"""The compaction tree of a conversation, the frontier through it, and the digests of its spans.

Five spans make a node of the next level, five of those one of the next. The end of a span follows
from the messages themselves (content-defined chunking, Muthitacharoen et al. 2001): a message that
is removed changes two.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise
from typing import Annotated, TypeAlias

from pydantic import Field

from langchain_ctxbudget.history.columns import Entry
from langchain_ctxbudget.history.derived import key_of
from langchain_ctxbudget.history.extractive import Digest, Line, digest_messages, merge
from langchain_ctxbudget.history.readings import Readings
from langchain_ctxbudget.messages import digest
from langchain_ctxbudget.worker import keep_newest, new_mutex


@dataclass(frozen=True, slots=True, kw_only=True)
class TreePolicy:
    """Where spans end, and how many of them stand together."""

    fan_out: int = 5
    """So many nodes make one of the next level."""
    fine_nodes: int = 3
    """At every level, at least so many of the newest nodes are on the frontier."""
    slack: float = 0.25
    """The share of the wanted number of messages by which a span may be shorter or longer."""
    ends_one_in: int = 8
    """Within the slack one message in so many ends its span: about the wanted size on average."""
    most_characters: int = 40_000
    """A span of long messages ends here, after about 10,000 tokens. Characters are counted, so that
    spans are the same for all tokenizers."""


TREE = TreePolicy()
COARSE_LEVEL = 3
"""From this level on all extractions are kept: one for 25 spans, and fewer of the levels above."""
MOST_FINE = 512
"""The number of extractions below that level that are kept. They have most of the sentences, each
with its terms, and are made again in a few milliseconds where a cut needs an older one."""
MOST_ATTEMPTS = 3
"""The number of times that a model's replies about a span may be of no use before its extraction
stands for good."""


@dataclass(frozen=True, slots=True, order=True)
class Node:
    """A run of messages that never changes: a span (level 1) or five nodes of the level below."""

    first: int
    """The position of its first message."""
    end: int
    """The position behind its last message."""
    level: int
    index: int
    """Its number among the nodes of its level, from 0."""


@dataclass(frozen=True, slots=True)
class Tree:
    """The spans of a conversation that have ended, and a hash of the content of every node.

    It is a value: a conversation that grows gets another one.
    """

    span_messages: Annotated[int, Field(alias="segment_messages")]
    """About how many messages a span has."""
    starts: tuple[int, ...] = (0,)
    """Positions where spans begin; the last one is that of the span that has not ended."""
    keys: tuple[str, ...] = ()
    """The hashes of the spans; equal content has the same hash wherever it stands."""

    def grow(self, entries: Sequence[Entry]) -> "Tree":
        """Returns the tree with the spans that have ended by now.

        Only messages after the last start are read.
        """
        shortest = max(1, int(self.span_messages * (1 - TREE.slack)))
        longest = max(1, int(self.span_messages * (1 + TREE.slack)))
        start = self.starts[-1]
        new_starts: list[int] = []
        characters = 0
        for position in range(start, len(entries)):
            length = position - start
            if length > 0 and entries[position].safe_cut:
                is_marked = length >= shortest and _ends_span(entries[position - 1])
                is_long = length >= longest or characters >= TREE.most_characters
                if is_marked or is_long:
                    start = position
                    new_starts.append(start)
                    characters = 0
            characters += len(entries[position].text)
        if not new_starts:
            return self

        new_spans = pairwise((self.starts[-1], *new_starts))
        new_keys = [_content_key(entries[first:end]) for first, end in new_spans]
        return replace(self, starts=(*self.starts, *new_starts), keys=(*self.keys, *new_keys))

    def shortened(self, length: int) -> "Tree":
        """Returns the tree of the first `length` messages.

        A span whose end only the message behind them shows has not ended in it.
        """
        starts = self.starts[: max(1, bisect_left(self.starts, length))]
        return replace(self, starts=starts, keys=self.keys[: len(starts) - 1])

    def __contains__(self, position: object) -> bool:
        """Returns True if a span begins at a position."""
        return isinstance(position, int) and self.starts[self.spans_until(position)] == position

    def spans_until(self, position: int) -> int:
        """Returns the number of spans that end at or before a position."""
        return bisect_right(self.starts, position) - 1

    def complete(self, position: int, known: int = 0) -> list[Node]:
        """Returns the nodes that end by a position, each after its children.

        Nodes that end with one of the first `known` spans are not among them.
        """
        nodes: list[Node] = []
        for index in range(known, self.spans_until(position)):
            level = 1
            nodes_of_level = index + 1
            nodes.append(node_at(self.starts, level, index))
            while nodes_of_level % TREE.fan_out == 0:
                level += 1
                nodes_of_level //= TREE.fan_out
                nodes.append(node_at(self.starts, level, nodes_of_level - 1))
        return nodes

    def children(self, parent: Node) -> list[Node]:
        """Returns the five nodes of the level below that a node consists of."""
        first = parent.index * TREE.fan_out
        indices = range(first, first + TREE.fan_out)
        return [node_at(self.starts, parent.level - 1, index) for index in indices]

    def key(self, node: Node) -> str:
        """Returns the hash of a node's content.

        It is empty for what is no complete node of this tree.
        """
        width = TREE.fan_out ** (node.level - 1)
        keys = self.keys[node.index * width : (node.index + 1) * width]
        if len(keys) < width or node_at(self.starts, node.level, node.index) != node:
            return ""
        if node.level == 1:
            return keys[0]
        return digest("".join((str(node.level), *keys))).hex()


def _ends_span(entry: Entry) -> bool:
    """Returns whether a message ends its span, by its own hash, if the span is long enough."""
    return int(entry.fingerprint[:8], 16) % TREE.ends_one_in == 0


def _content_key(entries: Iterable[Entry]) -> str:
    """Returns the hash of a span's content."""
    parts: list[str] = []
    for entry in entries:
        is_dropped = entry.preservation == "drop"
        parts.append(f"{entry.id}\0{entry.fingerprint}\0{is_dropped}\0")
    return digest("".join(parts)).hex()


def node_at(starts: Sequence[int], level: int, index: int) -> Node:
    """Returns the node at a place in the tree whose spans begin at `starts`."""
    width = TREE.fan_out ** (level - 1)
    return Node(starts[index * width], starts[(index + 1) * width], level, index)


def frontier(starts: Sequence[int], spans: int) -> list[Node]:
    """Returns the nodes that stand for the first `spans` spans, oldest first.

    They are three to seven of every level.
    """
    nodes: list[Node] = []
    level = 1
    end = spans
    while end > 0:
        start = max(0, (end - TREE.fine_nodes) // TREE.fan_out * TREE.fan_out)
        nodes_of_level = [node_at(starts, level, index) for index in range(start, end)]
        nodes = nodes_of_level + nodes
        level += 1
        end = start // TREE.fan_out
    return nodes


Extraction: TypeAlias = tuple[str, str | None, Digest]
"""The hash of a node's content; the date of its first message, which may be that of the message
before it; and the digest."""


class Extractions:
    """What extraction has made of nodes; of those of the lowest levels, only the newest are kept.

    For threads: a report may be asked for another budget while a prompt is made.
    """

    def __init__(self, extractions: Iterable[Extraction] = ()) -> None:
        self._mutex = new_mutex()
        self._coarse: dict[tuple[str, str | None], Digest] = {}
        self._fine: dict[tuple[str, str | None], Digest] = {}
        for content, date, made in extractions:
            self.keep(content, date, made)

    def __iter__(self) -> Iterator[Extraction]:
        with self._mutex:
            kept = {**self._coarse, **self._fine}
        for (content, date), made in kept.items():
            yield content, date, made

    def find(self, content: str, date: str | None) -> Digest | None:
        """Returns the digest of a node, by its content and the date of its first message."""
        return self._fine.get((content, date)) or self._coarse.get((content, date))

    def keep(self, content: str, date: str | None, made: Digest) -> None:
        """Keeps the digest of a node."""
        with self._mutex:
            if made.level >= COARSE_LEVEL:
                self._coarse[content, date] = made
            else:
                keep_newest(self._fine, (content, date), made, MOST_FINE)

    def of(self, contents: Collection[str]) -> "Extractions":
        """Returns the digests of those nodes alone that have some contents."""
        return Extractions(extraction for extraction in self if extraction[0] in contents)


@dataclass(slots=True)
class KnownDigests:
    """Digests by the hash of their content: no span is read twice, by extraction or by a model."""

    extracted: Extractions = field(default_factory=Extractions)
    digests: dict[str, Digest] = field(default_factory=dict)
    """What the model wrote, by key."""
    failures: dict[str, str] = field(default_factory=dict)
    """The last reason why there is no digest under a key."""
    refusals: dict[str, int] = field(default_factory=dict)
    """How often the model's reply under a key could not be used, or its server refused the
    request."""
    waits_until: datetime | None = None
    """The model has failed, and is not asked again before this time."""
    failed: int = 0
    """How often in a row it has failed."""
    looked_up: set[str] = field(default_factory=set)
    """The keys that were looked up in the store."""
    maker: str = ""
    """The summary model with its prompt; empty where there is none."""
    span_messages: int = 0
    until: int = 0
    """The position up to which a model is to write about the messages."""
    asked_until: int = 0
    """The position up to which it was asked to."""

    def copy(self, trees: Iterable[Tree]) -> "KnownDigests":
        """Returns the same for another table, whose trees are given.

        Extractions of spans that stand in none of them are left out.
        """
        contents: set[str] = set()
        for tree in trees:
            contents.update(tree.key(node) for node in tree.complete(tree.starts[-1]))
        return replace(self, extracted=self.extracted.of(contents))

    def lacks(self, key: str) -> bool:
        """Returns whether the model has not written under a key, and may still be asked."""
        return key not in self.digests and self.refusals.get(key, 0) < MOST_ATTEMPTS

    def has_news(self, waiting: Sequence[str]) -> bool:
        """Returns whether the model is done with all of these keys, and has written under some."""
        has_written = any(key in self.digests for key in waiting)
        return has_written and all(key in self.digests or key in self.failures for key in waiting)


@dataclass(frozen=True, slots=True)
class Spans:
    """The messages of a conversation, the tree of their spans, and the digest of each span."""

    entries: Sequence[Entry]
    tree: Tree
    span_digests: KnownDigests
    readings: Readings
    """What the user's sentences are."""

    def key(self, node: Node) -> str:
        """Returns the key under which the model's digest of a node is kept."""
        return key_of(self.tree.key(node), self.span_digests.maker)

    def lines(self, node: Node) -> list[Line]:
        """Returns the messages of a node as a summariser reads them."""
        return self.readings.lines(self.entries, node.first, node.end)

    def extracted(self, node: Node) -> Digest:
        """Returns the digest that extraction makes of a node.

        Every message of a node is read once.
        """
        content = self.tree.key(node)
        date = self.entries[node.first].date
        known = self.span_digests.extracted.find(content, date)
        if known is not None:
            return known.placed(node.first)

        if node.level > 1:
            extraction = merge([self.extracted(child) for child in self.tree.children(node)])
        else:
            extraction = digest_messages(self.lines(node), node.first, node.end)
        if content:  # the rest grows with every message; only what is complete is kept
            self.span_digests.extracted.keep(content, date, extraction)
        return extraction

    def model_digest(self, node: Node) -> Digest | None:
        """Returns the digest that a model wrote of a node, or None where it wrote none."""
        written = self.span_digests.digests.get(self.key(node))
        return written.placed(node.first) if written else None

    def digest(self, node: Node) -> Digest:
        """Returns the model's digest of a span, else that of extraction."""
        return self.model_digest(node) or self.extracted(node)

    def before(self, cut: int) -> tuple[list[Digest], tuple[str, ...]]:
        """Returns the digests of everything before a cut, and the keys that a model owes.

        The digests are oldest and coarsest first.
        """
        nodes = self._nodes(cut)
        owed: list[str] = []
        if self.span_digests.maker:
            keys = [self.key(node) for node in nodes if self.tree.key(node)]
            owed = [key for key in keys if self.span_digests.lacks(key)]
        return [self.digest(node) for node in nodes], tuple(owed)

    def important(self, cut: int) -> list[int]:
        """Returns the messages before a cut by their best sentences, the most important first."""
        scores: dict[int, float] = {}
        for node in self._nodes(cut):
            for sentence in self.extracted(node).sentences:
                best = scores.get(sentence.position, 0.0)
                scores[sentence.position] = max(best, sentence.score)
        return sorted(scores, key=lambda position: (-scores[position], position))

    def _nodes(self, cut: int) -> list[Node]:
        """Returns the nodes that stand for the messages before a cut, oldest first."""
        spans = self.tree.spans_until(cut)
        nodes = frontier(self.tree.starts, spans)
        rest = Node(self.tree.starts[spans], cut, level=1, index=spans)  # no whole span yet
        if rest.first < cut:
            nodes.append(rest)
        return nodes
