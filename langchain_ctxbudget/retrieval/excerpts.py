"""The sentences of a reply that answer its question."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import NamedTuple

from langchain_ctxbudget.messages import cached_until_forgotten, prose_spans, terms
from langchain_ctxbudget.sentences import Label, read


@dataclass(frozen=True, slots=True)
class ExcerptPolicy:
    """Which sentences of a text may be quoted without the rest of it."""

    least_characters: int = 20
    """A shorter sentence says too little by itself."""
    most_characters: int = 140
    """The longest sentence that is quoted, and the longest excerpt: shorter ones leave room for the
    replies of other questions."""
    looked_through_characters: int = 6_000
    """Sentences are looked for in so many characters at the beginning of a text."""
    least_worth: float = 1.5
    """The least that the terms which a sentence shares with the question are worth: each as much as
    it is rare. A term that one message in fifty has is worth 4, one that every third has 1."""
    quoted_question: float = 0.5
    """What a term of the quoted question counts, beside one of the message itself."""
    most_of_short_reply: int = 2
    """The first sentence of a reply with more sentences is not quoted: as a rule it repeats the
    question ("I'm glad that your back is better.")."""
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

    They are the best one, and one more if it has other words of the question; in their order.

    Args:
        reply: The reply.
        message: The terms of the message that the question is quoted for.
        question: The terms of the question that it replies to.
    """
    worths = {term: EXCERPTS.quoted_question * worth for term, worth in question.items()}
    worths |= message
    sentences = _sentences_of(reply[: EXCERPTS.looked_through_characters])
    if len(sentences) > EXCERPTS.most_of_short_reply and reply.startswith(sentences[0].text):
        sentences = sentences[1:]
    first = _most_worth(sentences, worths)
    if first is None:
        return ""
    rest = {term: worth for term, worth in worths.items() if term not in first.terms}
    second = _most_worth(sentences, rest)
    if second is None:
        return first.text
    both = " … ".join(one.text for one in sorted((first, second), key=sentences.index))
    return both if len(both) <= EXCERPTS.most_characters else first.text


def _most_worth(sentences: Sequence[_Sentence], worths: Worths) -> _Sentence | None:
    """Returns the sentence whose terms are worth most; None if none is worth enough.

    Of equal sentences, it is the one that says more besides.
    """

    def worth(sentence: _Sentence) -> float:
        return fsum(worths.get(term, 0.0) for term in sentence.terms)

    def order(sentence: _Sentence) -> tuple[float, int]:
        return worth(sentence), len(sentence.terms - worths.keys())

    for sentence in sorted(sentences, key=order, reverse=True):
        if worth(sentence) < EXCERPTS.least_worth:
            return None
        if not is_courtesy(sentence.text):
            return sentence
    return None


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
def is_courtesy(sentence: str) -> bool:
    """Tells whether a sentence is politeness and nothing else: "That's a great question!"."""
    [said] = read([sentence])
    return any(one.label is Label.COURTESY for one in said)
