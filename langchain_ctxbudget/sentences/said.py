"""What the sentences of messages are, and where each stands in its message."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from langchain_ctxbudget.messages import (
    digest,
    each_cached_until_forgotten,
    ends_in_quotation,
    one_line,
    prose_spans,
    somebody_elses_from,
    without_quotations,
    without_reported_speech,
)
from langchain_ctxbudget.sentences.features import PlacedSentence, placed
from langchain_ctxbudget.sentences.phrases import (
    plain_request,
    says_in_all_conversations,
    takes_back_last_rule,
)
from langchain_ctxbudget.sentences.reader import LABELS, Label, packaged_weights, probabilities

DECIMALS = 3
"""Of a probability: so many are the same on every machine."""
SPLITTING = 4
"""The version of how messages are split into sentences, and of what of them is read: what was read
with another one is read again."""
Span = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingPolicy:
    """How likely a sentence must be something to be taken for it, and how many are read."""

    rule: float = 0.35
    """The least probability of a rule: a lost rule does more harm than a sentence too many."""
    for_user: float = 0.6
    """Of a rule's probability, the least share of its holding everywhere for this user."""
    lifting: float = 0.05
    """The least probability of taking something back. It may be low, as no rule is lifted by a
    sentence that is not about it."""
    other: float = 0.5
    """The least probability of anything else."""
    most_sentences: int = 60
    """A message with more sentences is a document; only so many of its last ones are read."""


READING_POLICY = ReadingPolicy()


@cache
def reader_version() -> str:
    """Returns an id of this reader: of the data of its weights, of its policy and splitting."""
    policy = digest(f"{READING_POLICY!r} {SPLITTING}", 4).hex()
    return f"{packaged_weights().version}-{policy}"


class Said(NamedTuple):
    """A sentence of a message, and what the reader takes it for."""

    label: Label
    begin: int
    end: int
    certainty: float
    """The probability of its label; of a rule, that of both kinds of rules together."""
    lifting: float = 0.0
    """The probability that it takes something back, as a rule does that replaces another one."""

    def words_in(self, text: str) -> str:
        """Returns its words in the text of the message."""
        return text[self.begin : self.end]


def read(texts: Iterable[str]) -> list[tuple[Said, ...]]:
    """Returns what the sentences of some messages are, without those that are nothing.

    Only the user's own words take something back: not what stands in quotation marks, in a letter
    or in reported speech. Many messages at once take much less time each than one.

    Args:
        texts: What somebody says in each message in their own words.
    """
    sentences: list[PlacedSentence] = []
    spans_by_text: list[tuple[str, list[Span]]] = []
    for text in texts:
        spans = _spans_to_read(text)
        spans_by_text.append((text, spans))
        sentences += placed([_on_one_line(text[begin:end]) for begin, end in spans])
    rows = iter(_rows_of(sentences))
    said: list[tuple[Said, ...]] = []
    for text, spans in spans_by_text:
        found = [_said_by_user(text, span, next(rows)) for span in spans]
        said.append(tuple(one for one in found if one is not None))
    return said


def _rows_of(sentences: Sequence[PlacedSentence]) -> list[list[float]]:
    """Returns the probability of each label, for every sentence.

    A polite request is read without its politeness as well, as one that is no less a rule.
    """
    plain: dict[int, PlacedSentence] = {}
    for number, sentence in enumerate(sentences):
        words = plain_request(sentence.text)
        if words:
            plain[number] = sentence._replace(text=words)
    rows: list[list[float]] = probabilities(
        [*sentences, *plain.values()], packaged_weights()
    ).tolist()
    read_plain = rows[len(sentences) :]
    for number, row in zip(plain, read_plain, strict=True):
        if _rule_probability(row) > _rule_probability(rows[number]):
            rows[number] = row
    return rows[: len(sentences)]


def _rule_probability(row: Sequence[float]) -> float:
    """Returns how likely a sentence is a rule of either kind, by the probability of each label."""
    rule = round(row[LABELS.index(Label.RULE)], DECIMALS)
    rule_of_user = round(row[LABELS.index(Label.USER_RULE)], DECIMALS)
    return round(rule + rule_of_user, DECIMALS)


@each_cached_until_forgotten(16_384)
def statement_certainties(sentences: Sequence[str]) -> list[float]:
    """Returns how likely each sentence, read by itself, is a lasting statement."""
    alone = [sentence for text in sentences for sentence in placed([text])]
    column = probabilities(alone, packaged_weights())[:, LABELS.index(Label.STATEMENT)]
    return [round(certainty, DECIMALS) for certainty in column.tolist()]


def _spans_to_read(text: str) -> list[Span]:
    """Returns where the sentences stand that are read, of a long text the last ones."""
    spans = [span for span in prose_spans(text) if _has_letters(text, span)]
    return spans[-READING_POLICY.most_sentences :]


def _on_one_line(sentence: str) -> str:
    """Returns a sentence without the line breaks of a text that was wrapped."""
    return one_line(sentence) if "\n" in sentence else sentence


def _has_letters(text: str, span: Span) -> bool:
    begin, end = span
    return any(map(str.isalpha, text[begin:end]))


def _said_by_user(text: str, span: Span, row: Sequence[float]) -> Said | None:
    """Returns what a sentence of a message is; None if it is nothing.

    Args:
        text: The text of the message.
        span: Where the sentence stands.
        row: The probability of each label.
    """
    begin, end = span
    if takes_back_last_rule(text[begin:end]) and takes_back_last_rule(_own_words(text, span)):
        return Said(Label.LIFTING, begin, end, certainty=1.0, lifting=1.0)
    said = _said(span, row)
    if said is None or _is_quoted_rule(said, text):
        return None
    if said.label is Label.RULE and says_in_all_conversations(_own_words(text, span)):
        said = said._replace(label=Label.USER_RULE)
    return _with_own_lifting(said, text)


def _is_quoted_rule(said: Said, text: str) -> bool:
    """Tells whether a sentence is a rule only by what a quotation says that goes on behind it.

    Args:
        said: What the sentence is.
        text: The text of its message.
    """
    is_rule = said.label in (Label.RULE, Label.USER_RULE)
    if not is_rule or not ends_in_quotation(text, said.begin, said.end):
        return False
    own_words = _own_words(text, (said.begin, said.end))
    return _rule_probability(_row_of(own_words)) < READING_POLICY.rule


def _with_own_lifting(said: Said, text: str) -> Said | None:
    """Returns what a sentence is if only the user's own words take something back.

    It is None if the sentence is nothing then.

    Args:
        said: What it is.
        text: The text of its message.
    """
    if said.lifting < READING_POLICY.lifting:
        return said
    lifting = min(said.lifting, _own_lifting(said, text))
    if said.label is not Label.LIFTING:
        return said._replace(lifting=lifting)
    if lifting < READING_POLICY.lifting:
        return None
    return said._replace(certainty=lifting, lifting=lifting)


def _own_lifting(said: Said, text: str) -> float:
    """Returns how likely the user's own words in a sentence take something back."""
    own_words = _own_words(text, (said.begin, said.end))
    if own_words == one_line(said.words_in(text)):
        return said.lifting
    return _lifting_of(own_words)


def _own_words(text: str, span: Span) -> str:
    """Returns what of a sentence are the user's own words, on one line."""
    begin, end = span
    if begin >= somebody_elses_from(text):
        return ""
    return without_reported_speech(one_line(without_quotations(text, begin, end)))


def _lifting_of(sentence: str) -> float:
    """Returns how likely a sentence takes something back, as a probability."""
    return round(_row_of(sentence)[LABELS.index(Label.LIFTING)], DECIMALS)


def _row_of(sentence: str) -> list[float]:
    """Returns the probability of each label of a sentence by itself; 0 if it has no letters."""
    if not any(map(str.isalpha, sentence)):
        return [0.0] * len(LABELS)
    [row] = _rows_of(placed([sentence]))
    return row


def _said(span: Span, row: Sequence[float]) -> Said | None:
    """Returns what a sentence is; None if it is nothing, or nothing that is likely enough.

    Args:
        span: Where it stands.
        row: The probability of each label.
    """
    begin, end = span
    by_label = {
        label: round(probability, DECIMALS) for label, probability in zip(LABELS, row, strict=True)
    }
    lifting = by_label[Label.LIFTING]
    rule = _rule_probability(row)
    if rule >= max(READING_POLICY.rule, lifting):
        is_for_user = by_label[Label.USER_RULE] >= READING_POLICY.for_user * rule
        label = Label.USER_RULE if is_for_user else Label.RULE
        return Said(label, begin, end, certainty=rule, lifting=lifting)
    best = max(by_label, key=by_label.__getitem__)
    if best not in (Label.NONE, Label.LIFTING) and by_label[best] >= READING_POLICY.other:
        return Said(best, begin, end, certainty=by_label[best], lifting=lifting)
    if lifting >= READING_POLICY.lifting:
        return Said(Label.LIFTING, begin, end, certainty=lifting, lifting=lifting)
    return None
