"""What summaries are made of: messages as a summariser reads them, and what it keeps of a span of them.

A span's digest is made once, by extraction or by a model, and kept for ever under a hash of the span's content. Every
rendering, at any budget, chooses from it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from langchain_ctxbudget.core.importance import Kind

EXTRACTION = "extraction"
"""Who made a digest that consists of sentences of the conversation itself."""


@dataclass(frozen=True, slots=True)
class Line:
    """A message as a summariser reads it."""

    position: int
    speaker: str
    date: str | None
    text: str
    from_user: bool


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence worth keeping."""

    position: int
    """Which message it comes from; of a model's sentence, the first message of its span."""
    order: int
    """Its place within that message, or within the model's summary."""
    speaker: str
    """Who said it; empty where it is a model's."""
    date: str | None
    text: str
    """One line."""
    score: float
    """How important it is."""
    kind: Kind
    terms: frozenset[str]
    """What it is about (stems)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """What is kept of a span of messages.

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

    def after(self, context: str) -> Digest:
        """What still holds of it after these messages: narrative and open questions tell of earlier words, too."""
        return self if context == self.context else replace(self, narrative="", open_questions=())

    def moved(self, first: int) -> Digest:
        """The same digest for the same messages at another place of the conversation."""
        shift = first - self.first
        if not shift:
            return self
        sentences = tuple(replace(sentence, position=sentence.position + shift) for sentence in self.sentences)
        return replace(self, first=first, end=self.end + shift, sentences=sentences)
