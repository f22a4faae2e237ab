"""The values that summaries are made of: messages as a summariser reads them, and the digest of a span of them.

A span's digest is made once, by extraction or by a model, and kept for ever under a hash of the span's content. Every
rendering, at any budget, chooses from it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from langchain_ctxbudget.history.importance import Kind
from langchain_ctxbudget.stores.records import EXTRACTION


@dataclass(frozen=True, slots=True)
class Line:
    """A message as a summariser reads it."""

    position: int
    speaker: str
    date: str | None
    text: str
    from_user: bool
    tokens: int = 0
    """The message's cost in a prompt; only key messages are chosen by it."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence worth keeping."""

    position: int
    """The message it comes from; of a model's sentence, the first message of its span."""
    order: int
    """Its place within that message, or within the model's summary."""
    speaker: str
    """Empty where a model wrote it."""
    date: str | None
    text: str
    """One line."""
    score: float
    """Its importance."""
    kind: Kind
    terms: frozenset[str]
    """The stems of its words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """The digest of a span of messages: the sentences and names worth keeping.

    Decisions and open questions are among the sentences, by their kind.
    """

    first: int
    """The position of its first message."""
    end: int
    """The position behind its last message."""
    level: int
    """1 for messages, 2 for five digests of level 1, and so on."""
    sentences: tuple[Sentence, ...]
    """In order."""
    artifacts: tuple[str, ...] = ()
    """Names of files, functions and the like, the most mentioned first."""
    made_by: str = EXTRACTION
    """`extraction`, or the name of the model that wrote it."""
    narrative: str = ""
    """The conversation up to the end of the span in two or three sentences, by a model; empty for extraction."""
    open_questions: tuple[str, ...] = ()
    """Everything that is open at the end of the span, also from before it, by a model; empty for extraction."""
    context: str = ""
    """A digest of the messages before the span, of which the model was told; empty for extraction."""

    def placed(self, first: int, context: str) -> Digest:
        """Returns what holds of the digest for the same messages at another place of the conversation."""
        here = self if context == self.context else replace(self, narrative="", open_questions=())
        shift = first - self.first
        if not shift:
            return here
        sentences = tuple(replace(sentence, position=sentence.position + shift) for sentence in self.sentences)
        return replace(here, first=first, end=self.end + shift, sentences=sentences)
