"""The sentences of a text that have most to do with a question."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from langchain_ctxbudget.messages import cached_until_forgotten, prose_spans, terms
from langchain_ctxbudget.sentences import Label, read


@dataclass(frozen=True, slots=True)
class ExcerptPolicy:
    """Which sentences of a text may be quoted without the rest of it."""

    least_characters: int = 20
    """A shorter sentence says too little by itself."""
    most_characters: int = 240
    """The longest sentence that is quoted, and the longest excerpt."""
    line_characters: int = 100
    """A sentence that is not longer stands whole in a line of an index."""
    line_share: float = 0.5
    """Such a sentence comes before a longer one if it is worth so much of that."""
    looked_through_characters: int = 6_000
    """Sentences are looked for in so many characters at the beginning of a text."""
    least_worth: float = 2.5
    """The least that the terms which a sentence shares with the question are worth: each as much as
    it is rare. A term that one message in fifty has is worth 4, one that every third has 1."""
    quoted_question: float = 0.5
    """What a term of the quoted question counts, beside one of the message itself."""
    most_sentences: int = 2
    """The most sentences of an excerpt."""
    second_share: float = 0.6
    """A second sentence comes along if it is worth so much of the best one."""
    texts_remembered: int = 1_024
    """The texts whose sentences are kept, so that no turn splits them again."""


EXCERPTS = ExcerptPolicy()
_ASKS_OR_ANNOUNCES = ("?", ":", "？", "：")  # noqa: RUF001
"""How sentences end that ask back, or say that something follows."""
_HEADING = re.compile(r"\s*#{1,6}\s")
Worths = Mapping[str, float]
"""What each term is worth."""


class _Sentence(NamedTuple):
    text: str
    terms: frozenset[str]


def answering(reply: str, message: Worths, question: Worths) -> str:
    """Returns the sentences of a reply that answer a question; empty if none seems to.

    They are the best one, and another one that is nearly as good, in the order of the reply.

    Args:
        reply: The reply.
        message: The terms of the message that the question is quoted for.
        question: The terms of the question that it replies to.
    """
    worths = {term: EXCERPTS.quoted_question * worth for term, worth in question.items()}
    worths |= message
    sentences = _sentences_of(reply[: EXCERPTS.looked_through_characters])
    worth_of = [sum(worths.get(term, 0.0) for term in one.terms) for one in sentences]
    news_of = [len(one.terms - worths.keys()) for one in sentences]

    def order(number: int) -> tuple[float, int]:
        """Returns a sort key: of equal sentences, the one comes first that says more besides."""
        return -worth_of[number], -news_of[number]

    least = EXCERPTS.least_worth
    chosen: list[int] = []
    for number in sorted(range(len(sentences)), key=order):
        if worth_of[number] < least:
            break
        if _is_courtesy(sentences[number].text):
            continue
        if not chosen:
            least = max(least, EXCERPTS.second_share * worth_of[number])
        chosen.append(number)
        if len(chosen) == EXCERPTS.most_sentences:
            break
    return _joined(sentences, chosen)


def most_telling(text: str, worths: Worths) -> str:
    """Returns the sentence of a text whose terms are worth most, or its first one.

    One that fits in a line comes before one that would be cut.

    Args:
        text: The text.
        worths: The terms that are looked for.
    """
    beginning = text[: EXCERPTS.looked_through_characters]
    spans = prose_spans(beginning) or [(0, len(beginning))]
    sentences = [beginning[begin:end] for begin, end in spans]
    telling = [one for one in sentences if len(one) >= EXCERPTS.least_characters]

    def worth(sentence: str) -> float:
        return sum(worths.get(term, 0.0) for term in set(terms(sentence)))

    best = max(telling or sentences, key=worth)
    short = [one for one in telling if len(one) <= EXCERPTS.line_characters]
    best_short = max(short, key=worth, default=best)
    if worth(best_short) >= EXCERPTS.line_share * worth(best):
        return best_short
    return best


def _joined(sentences: Sequence[_Sentence], chosen: Sequence[int]) -> str:
    """Returns the chosen sentences in their order; the best alone where both are too long."""
    if not chosen:
        return ""
    both = " … ".join(sentences[number].text for number in sorted(chosen))
    if len(both) > EXCERPTS.most_characters:
        return sentences[chosen[0]].text
    return both


@cached_until_forgotten(EXCERPTS.texts_remembered)
def _sentences_of(text: str) -> tuple[_Sentence, ...]:
    """Returns the sentences of a text that say something by themselves."""
    sentences: list[_Sentence] = []
    for begin, end in prose_spans(text):
        length = end - begin
        if not EXCERPTS.least_characters <= length <= EXCERPTS.most_characters:
            continue
        words = text[begin:end]
        line = text[text.rfind("\n", 0, begin) + 1 : begin]
        if not _HEADING.match(line) and not words.endswith(_ASKS_OR_ANNOUNCES):
            sentences.append(_Sentence(words, frozenset(terms(words))))
    return tuple(sentences)


@cached_until_forgotten(EXCERPTS.texts_remembered)
def _is_courtesy(sentence: str) -> bool:
    """Tells whether a sentence is politeness and nothing else: "That's a great question!"."""
    [said] = read([sentence])
    return any(one.label is Label.COURTESY for one in said)
