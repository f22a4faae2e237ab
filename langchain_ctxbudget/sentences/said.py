"""What the sentences of messages are, and where they stand in them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from langchain_ctxbudget.messages import digest, prose_spans
from langchain_ctxbudget.sentences.features import PlacedSentence, placed
from langchain_ctxbudget.sentences.reader import LABELS, Label, packaged_weights, probabilities

DECIMALS = 3
"""Of a probability: so many are the same on every machine."""
Span = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingPolicy:
    """How sure the reader must be that a sentence is something, as a probability."""

    rule: float = 0.4
    """That it is a rule: one that is lost does more harm than a sentence that is shown as one."""
    for_user: float = 0.6
    """Of a rule, that it holds everywhere for this user."""
    lifting: float = 0.05
    """That it takes something back: whether it does, a rule that it is about tells, too."""
    other: float = 0.5
    """That it is anything else."""
    most_sentences: int = 60
    """A message with more sentences is a document; only so many of its last ones are read."""


READING_POLICY = ReadingPolicy()


@cache
def reader_version() -> str:
    """Returns what tells this reader from one of other data, or with another policy."""
    policy = digest(repr(READING_POLICY), 4).hex()
    return f"{packaged_weights().version}-{policy}"


class Said(NamedTuple):
    """A sentence of a message that is something."""

    label: Label
    begin: int
    end: int
    certainty: float
    """The probability of its label; of a rule, that of either kind."""
    lifting: float = 0.0
    """The probability that it takes something back; a rule may replace another one."""

    def words_in(self, text: str) -> str:
        """Returns its words in the text of the message."""
        return text[self.begin : self.end]


def read(texts: Iterable[str]) -> list[tuple[Said, ...]]:
    """Returns what the sentences of some messages are; those that are nothing are left out.

    Many messages at once take much less time each than one.

    Args:
        texts: What somebody says in each message in their own words.
    """
    sentences: list[PlacedSentence] = []
    spans_by_text: list[list[Span]] = []
    for text in texts:
        spans = [span for span in prose_spans(text) if any(map(str.isalpha, text[slice(*span)]))]
        spans = spans[-READING_POLICY.most_sentences :]
        spans_by_text.append(spans)
        sentences += placed([text[begin:end] for begin, end in spans])
    rows = iter(probabilities(sentences, packaged_weights()).tolist())
    said: list[tuple[Said, ...]] = []
    for spans in spans_by_text:
        found = [_said(span, next(rows)) for span in spans]
        said.append(tuple(one for one in found if one is not None))
    return said


def _said(span: Span, row: Sequence[float]) -> Said | None:
    """Returns what a sentence is; None if it is nothing, or it is not sure what.

    Args:
        span: Where it stands.
        row: The probability of each label.
    """
    by_label = {
        label: round(probability, DECIMALS) for label, probability in zip(LABELS, row, strict=True)
    }
    lifting = by_label[Label.LIFTING]
    rule = round(by_label[Label.RULE] + by_label[Label.USER_RULE], DECIMALS)
    if rule >= READING_POLICY.rule:
        is_for_user = by_label[Label.USER_RULE] >= READING_POLICY.for_user * rule
        return Said(Label.USER_RULE if is_for_user else Label.RULE, *span, rule, lifting)
    best = max(by_label, key=by_label.__getitem__)
    if best not in (Label.NONE, Label.LIFTING) and by_label[best] >= READING_POLICY.other:
        return Said(best, *span, by_label[best], lifting)
    if lifting >= READING_POLICY.lifting:
        return Said(Label.LIFTING, *span, lifting, lifting)
    return None
