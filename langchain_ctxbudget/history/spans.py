"""The spans of a conversation as one prompt sees them, and what is known of spans by their content."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from langchain_ctxbudget.history.digest import Digest
from langchain_ctxbudget.history.extractive import digest_messages, merge
from langchain_ctxbudget.history.tree import Message, Node, Tree, content_key

MOST_ATTEMPTS = 3
"""Times that a model is asked about a span before its extraction stands for good."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why a model has not written about a span."""

    problem: str
    attempts: int


@dataclass(slots=True)
class KnownDigests:
    """Digests by the hash of their content: no span is read twice, by extraction or by a model.

    An entry never becomes wrong; those of messages that are gone are let go, since users may ask for it.
    """

    extracted: dict[tuple[str, str | None], Digest] = field(default_factory=dict)
    """By content and the date of the first message, which may be that of the message before it."""
    digests: dict[str, Digest] = field(default_factory=dict)
    """A model's, by content and model; see `key`."""
    failures: dict[str, Failure] = field(default_factory=dict)
    looked_up: set[str] = field(default_factory=set)
    """Keys that the store was asked for."""
    maker: str = ""
    """The summary model with its prompt; empty where there is none."""
    segment_messages: int = 0
    until: int = 0
    """The position up to which a model is to write about the messages."""
    asked_until: int = 0
    """The position up to which it was asked to."""
    finish: int = 0
    """The position up to which it is to write also about messages that are no whole segment yet."""

    def copy(self) -> KnownDigests:
        """Returns the same for a prompt that is no step of the conversation; finished digests are shared."""
        return replace(self, failures=dict(self.failures), looked_up=set(self.looked_up), digests=dict(self.digests))

    def key(self, content: str) -> str:
        """Returns the key under which this model's digest of a content is kept."""
        return f"{content}-{self.maker}"

    def failed(self, key: str, problem: str) -> None:
        """Notes that the model failed at a span."""
        before = self.failures.get(key)
        self.failures[key] = Failure(problem, (before.attempts if before else 0) + 1)

    def given_up(self, key: str) -> bool:
        """Returns True if the model is not asked about a span again."""
        return key in self.failures and self.failures[key].attempts >= MOST_ATTEMPTS

    def keep(self, trees: Iterable[Tree]) -> None:
        """Forgets the extractions of spans that stand in none of these trees."""
        contents = {key for tree in trees for level in tree.keys for key in level}
        self.extracted = {key: digest for key, digest in self.extracted.items() if key[0] in contents}

    def read_again(self) -> None:
        """Forgets what a model wrote: the store has it as far as it still holds."""
        self.digests, self.failures, self.looked_up = {}, {}, set()


@dataclass(frozen=True, slots=True)
class Spans:
    """The messages of a conversation, the tree of their spans, and the digest of each span."""

    messages: Sequence[Message]
    tree: Tree
    known: KnownDigests
    dropped: Sequence[int] = ()
    """Positions of the messages that are left out of prompts, in order."""

    def content(self, node: Node) -> str:
        """Returns the hash of a span's content; it may be no whole segment."""
        return self.tree.key(node) or content_key(self.messages, node.first, node.end)

    def context(self, position: int) -> str:
        """Returns a digest of the messages before a position, without those that are dropped."""
        if not position:
            return ""
        dropped = self.dropped[: bisect_left(self.dropped, position)]
        return "-".join([self.messages[position - 1].digest, *(self.messages[at].id for at in dropped)])

    def rest(self, end: int) -> Node | None:
        """Returns the messages before a position that are no whole segment yet, or None where there are none."""
        index = self.tree.segments_until(end)
        first = self.tree.starts[index]
        return Node(first, end, 1, index) if first < end else None

    def extracted(self, node: Node) -> Digest:
        """Returns the digest that extraction makes of a span; every message of a node is read once."""
        content = self.tree.key(node)
        key = content or "", self.messages[node.first].date
        if content is not None and key in self.known.extracted:
            return self.known.extracted[key].placed(node.first, "")
        if node.level > 1:
            made = merge([self.extracted(child) for child in self.tree.children(node)])
        else:
            lines = [message.as_line(at) for at, message in enumerate(self.messages[node.first : node.end], node.first)]
            made = digest_messages(lines, node.first, node.end)
        if content is not None:  # the rest grows with every message; only what is complete is kept
            self.known.extracted[key] = made
        return made

    def written(self, node: Node) -> Digest | None:
        """Returns the digest that a model wrote of a span, as far as it holds, or None where it wrote none."""
        digest = self.known.digests.get(self.known.key(self.content(node)))
        return digest and digest.placed(node.first, self.context(node.first))

    def digest(self, node: Node) -> Digest:
        """Returns the model's digest of a span, else that of extraction."""
        return self.written(node) or self.extracted(node)

    def before(self, cut: int) -> tuple[list[Digest], tuple[str, ...]]:
        """Returns the digests of everything before a cut, oldest and coarsest first, and the keys a model owes."""
        nodes, rest = self.tree.frontier(cut), self.rest(cut)
        keys = [self.known.key(self.content(node)) for node in nodes] if self.known.maker else []
        waiting = tuple(key for key in keys if key not in self.known.digests and not self.known.given_up(key))
        return [self.digest(node) for node in (*nodes, *([rest] if rest else []))], waiting
