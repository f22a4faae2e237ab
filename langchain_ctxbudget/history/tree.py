"""The compaction tree of a conversation, the frontier through it, and the digests of its spans.

Five spans make a node of the next level, five of those one of the next. The end of a span follows
from the messages themselves (content-defined chunking, Muthitacharoen et al. 2001): a message that
is removed changes two.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain, pairwise
from typing import Annotated

from pydantic import Field

from langchain_ctxbudget.history.columns import Entry
from langchain_ctxbudget.history.extractive import Digest, Line, digest_messages, merge
from langchain_ctxbudget.messages import digest


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
MOST_ATTEMPTS = 3
"""Times that a model's replies about a span may be of no use before its extraction stands for
good."""


@dataclass(frozen=True, slots=True, order=True)
class Node:
    """A span of messages that never changes: a span (level 1) or five nodes of the level below."""

    first: int
    end: int
    level: int
    index: int


@dataclass(frozen=True, slots=True)
class Tree:
    """The spans of a conversation that have ended, and a hash of the content of every node.

    A value.
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
        edges = [*self.starts]
        characters = 0
        for at in range(edges[-1], len(entries)):
            count = at - edges[-1]
            marked = (
                count >= shortest
                and int(entries[at - 1].fingerprint[:8], 16) % TREE.ends_one_in == 0
            )
            if (
                count
                and entries[at].safe_cut
                and (marked or count >= longest or characters >= TREE.most_characters)
            ):
                edges.append(at)
                characters = 0
            characters += len(entries[at].text)
        known = len(self.keys)
        if len(edges) - 1 == known:
            return self
        new = (
            digest(
                "".join(
                    f"{one.id}\0{one.fingerprint}\0{one.preservation == 'drop'}\0" for one in part
                )
            ).hex()
            for part in (entries[first:end] for first, end in pairwise(edges[known:]))
        )
        return replace(self, starts=tuple(edges), keys=(*self.keys, *new))

    def shortened(self, length: int) -> "Tree":
        """Returns the tree without every span that a message from `length` on belongs to, or ended."""
        starts = self.starts[: max(1, bisect_left(self.starts, length))]
        return replace(self, starts=starts, keys=self.keys[: len(starts) - 1])

    def __contains__(self, position: object) -> bool:
        """Returns True if a span begins at a position."""
        return isinstance(position, int) and self.starts[self.spans_until(position)] == position

    def spans_until(self, position: int) -> int:
        """Returns the number of spans that end at or before a position."""
        return bisect_right(self.starts, position) - 1

    def complete(self, position: int, known: int = 0) -> list[Node]:
        """Returns the nodes that end by a position, but not with one of `known` spans.

        Each after its children.
        """
        nodes: list[Node] = []
        for index in range(known, self.spans_until(position)):
            level = 1
            count = index + 1
            nodes.append(node_at(self.starts, level, index))
            while count % TREE.fan_out == 0:
                level = level + 1
                count = count // TREE.fan_out
                nodes.append(node_at(self.starts, level, count - 1))
        return nodes

    def children(self, parent: Node) -> list[Node]:
        """Returns the five nodes of the level below that a node consists of."""
        first = parent.index * TREE.fan_out
        return [
            node_at(self.starts, parent.level - 1, index)
            for index in range(first, first + TREE.fan_out)
        ]

    def key(self, span: Node) -> str:
        """Returns the hash of a node's content.

        Empty for a span that is no complete node of this tree.
        """
        width = TREE.fan_out ** (span.level - 1)
        keys = self.keys[span.index * width : (span.index + 1) * width]
        if len(keys) < width or node_at(self.starts, span.level, span.index) != span:
            return ""
        return keys[0] if span.level == 1 else digest("".join((str(span.level), *keys))).hex()


def node_at(starts: Sequence[int], level: int, index: int) -> Node:
    """Returns the node at a place in the tree whose spans begin at `starts`."""
    width = TREE.fan_out ** (level - 1)
    return Node(starts[index * width], starts[(index + 1) * width], level, index)


def frontier(starts: Sequence[int], spans: int) -> list[Node]:
    """Returns the nodes that stand for the first `spans` spans, oldest first.

    Three to seven of every level.
    """
    nodes: list[Node] = []
    level = 1
    end = spans
    while end:
        start = max(0, (end - TREE.fine_nodes) // TREE.fan_out * TREE.fan_out)
        nodes[:0] = [node_at(starts, level, index) for index in range(start, end)]
        level = level + 1
        end = start // TREE.fan_out
    return nodes


@dataclass(slots=True)
class KnownDigests:
    """Digests by the hash of their content: no span is read twice, by extraction or by a model."""

    extracted: dict[tuple[str, str | None], Digest] = field(default_factory=dict)
    """By content and the date of the first message, which may be that of the message before it."""
    digests: dict[str, Digest] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    """The last reason why there is no digest under a key."""
    refusals: dict[str, int] = field(default_factory=dict)
    """The times that the model's reply under a key could not be used, or that its server refused
    the request."""
    waits_until: datetime | None = None
    """The model has failed, and is not asked again before this time."""
    failed: int = 0
    """The times in a row that it has failed."""
    looked_up: set[str] = field(default_factory=set)
    maker: str = ""
    """The summary model with its prompt; empty where there is none."""
    span_messages: int = 0
    until: int = 0
    """The position up to which a model is to write about the messages."""
    asked_until: int = 0
    """The position up to which it was asked to."""

    def copy(self, trees: Iterable[Tree]) -> "KnownDigests":
        """Returns the same for another table, but for the extractions of spans that stand in none of its trees."""
        contents = {tree.key(node) for tree in trees for node in tree.complete(tree.starts[-1])}
        return replace(
            self,
            extracted={key: made for key, made in self.extracted.items() if key[0] in contents},
        )

    def lacks(self, key: str) -> bool:
        """Returns True if the model has not written under a key, and may still be asked."""
        return key not in self.digests and self.refusals.get(key, 0) < MOST_ATTEMPTS

    def has_news(self, waiting: Sequence[str]) -> bool:
        """Returns whether the model has written under some of these keys, and is done with all of them."""
        written = [key in self.digests for key in waiting]
        return any(written) and all(key in self.digests or key in self.failures for key in waiting)


@dataclass(frozen=True, slots=True)
class Spans:
    """The messages of a conversation, the tree of their spans, and the digest of each span."""

    entries: Sequence[Entry]
    tree: Tree
    known: KnownDigests

    def key(self, span: Node) -> str:
        """Returns the key under which the model's digest of a span is kept."""
        return f"{self.tree.key(span)}-{self.known.maker}"

    def lines(self, span: Node) -> list[Line]:
        """Returns the messages of a span as a summariser reads them."""
        return [
            entry.as_line(at)
            for at, entry in enumerate(self.entries[span.first : span.end], span.first)
        ]

    def extracted(self, span: Node) -> Digest:
        """Returns the digest that extraction makes of a span.

        Every message of a node is read once.
        """
        content = self.tree.key(span)
        key = content, self.entries[span.first].date
        if content and key in self.known.extracted:
            return self.known.extracted[key].placed(span.first)
        if span.level > 1:
            made = merge([self.extracted(child) for child in self.tree.children(span)])
        else:
            made = digest_messages(self.lines(span), span.first, span.end)
        if content:  # the rest grows with every message; only what is complete is kept
            self.known.extracted[key] = made
        return made

    def written(self, span: Node) -> Digest | None:
        """Returns the digest that a model wrote of a span, or None where it wrote none."""
        digest = self.known.digests.get(self.key(span))
        return digest and digest.placed(span.first)

    def digest(self, span: Node) -> Digest:
        """Returns the model's digest of a span, else that of extraction."""
        return self.written(span) or self.extracted(span)

    def before(self, cut: int) -> tuple[list[Digest], tuple[str, ...]]:
        """Returns the digests of everything before a cut, oldest and coarsest first, and the keys a model owes."""
        nodes = self._nodes(cut)
        keys = (self.key(span) for span in nodes if self.known.maker and self.tree.key(span))
        return [*map(self.digest, nodes)], tuple(filter(self.known.lacks, keys))

    def important(self, cut: int) -> list[int]:
        """Returns the messages before a cut that have said most, by their best sentences, the most important first."""
        worth: dict[int, float] = {}
        for sentence in chain.from_iterable(
            self.extracted(span).sentences for span in self._nodes(cut)
        ):
            worth[sentence.position] = max(worth.get(sentence.position, 0.0), sentence.score)
        return sorted(worth, key=lambda at: (-worth[at], at))

    def _nodes(self, cut: int) -> list[Node]:
        spans = self.tree.spans_until(cut)
        rest = Node(self.tree.starts[spans], cut, 1, spans)  # no whole span yet
        return [*frontier(self.tree.starts, spans), *([rest] if rest.first < cut else [])]
