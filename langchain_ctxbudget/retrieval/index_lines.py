"""The sentence of a text that stands for it in an index of everything about a question."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from langchain_ctxbudget.messages import (
    QUESTION_MARKS,
    cached_until_forgotten,
    ends_as_statement,
    prose_spans,
    terms,
    vocabulary,
)
from langchain_ctxbudget.retrieval.excerpts import is_courtesy
from langchain_ctxbudget.search import about

Worths = Mapping[str, float]
"""What each term is worth."""
Rarities = Callable[[Iterable[str]], Worths]
"""Returns how rare each term is."""


@dataclass(frozen=True, slots=True)
class IndexLinePolicy:
    """Which sentence of a text tells most of it in one line."""

    looked_through_characters: int = 6_000
    """Sentences are looked for in so many characters at the beginning of a text."""
    least_terms: int = 3
    """A sentence of a longer text with fewer terms that are about something says too little by
    itself."""
    line_characters: int = 100
    """So much of a sentence stands in its line; what is behind it does not count."""
    cut_share: float = 0.5
    """What a longer sentence counts, beside one that stands in its line whole."""
    carried_share: float = 0.1
    """What a term counts that is not of the question, beside one that is as rare; a name or a
    number counts twice as much."""
    most_courtesy_terms: int = 4
    """The most terms that are about something in a courtesy: "Good luck with your event!"."""
    heading_words: int = 8
    """The most words of a heading that no mark shows as one."""
    texts_remembered: int = 1_024
    """The texts whose sentences are kept, so that no turn splits them again."""


INDEX_LINES = IndexLinePolicy()
_MARKED_HEADING = re.compile(r"\s*(?:#{1,6}\s|(?:[-*•>]\s+)?(\*\*|__)[^*_]+\1\W*$)")
"""A line that begins as a heading, or that is bold from end to end."""
_CLOSING_MARKS = "*_\"')]\u201d\u2019 "
"""What may stand behind the last mark of a sentence."""
_LONG_WORD = re.compile(r"[^\W\d_]{4,}")
_NAME_OR_NUMBER = re.compile(r"\w*\d\w*|(?<=[^\W\d_][ ,])\s?(?=[^\W\d_])[A-Z]\w+")
_ENGLISH = vocabulary("search")


class _Sentence(NamedTuple):
    text: str
    asks: bool
    """Whether it has a question mark: "**When do you travel?** (a month will do)"."""
    matter: tuple[str, ...]
    """The terms that are about something, each once, of as much of it as stands in its line."""
    names: frozenset[str]
    """The terms of names and numbers among them."""


def says_something(text: str, *, with_questions: bool) -> bool:
    """Tells whether any sentence of a short text says something.

    Args:
        text: The text.
        with_questions: Whether questions say something.
    """
    return any(
        sentence.matter and not _is_courtesy(sentence)
        for sentence in _sentences_of(text)
        if with_questions or not sentence.asks
    )


def most_telling(text: str, worths: Worths, rarities: Rarities, *, with_questions: bool) -> str:
    """Returns the sentence of a text that tells most of what is looked for; empty if none does.

    What counts is what a line has room for: above all the terms that are looked for, then how much
    it carries besides: names, numbers, and words that are rare in the conversation.

    Args:
        text: The text.
        worths: The terms that are looked for.
        rarities: Returns how rare each term is in the conversation.
        with_questions: Whether questions say something.
    """
    telling = [
        sentence
        for sentence in _sentences_of(text[: INDEX_LINES.looked_through_characters])
        if len(sentence.matter) >= INDEX_LINES.least_terms and (with_questions or not sentence.asks)
    ]
    rarity = rarities({term for sentence in telling for term in sentence.matter})

    def worth(sentence: _Sentence) -> float:
        total = 0.0
        for term in sentence.matter:
            if term in worths:
                total += worths[term]
            elif term in sentence.names:
                total += 2 * INDEX_LINES.carried_share * rarity[term]
            else:
                total += INDEX_LINES.carried_share * rarity[term]
        if len(sentence.text) > INDEX_LINES.line_characters:
            total *= INDEX_LINES.cut_share
        return total

    for sentence in sorted(telling, key=worth, reverse=True):
        if not _is_courtesy(sentence):
            return sentence.text
    return ""


def _is_courtesy(sentence: _Sentence) -> bool:
    """Tells whether a sentence is politeness and nothing else, which only a short one can be."""
    is_short = len(sentence.matter) <= INDEX_LINES.most_courtesy_terms
    return is_short and is_courtesy(sentence.text)


@cached_until_forgotten(INDEX_LINES.texts_remembered)
def _sentences_of(text: str) -> tuple[_Sentence, ...]:
    """Returns the sentences of a text, without headings and announcements."""
    sentences: list[_Sentence] = []
    for begin, end in prose_spans(text):
        sentence = _sentence(text[begin:end])
        if not (_is_heading(text, begin, end) or _only_announces(sentence)):
            sentences.append(sentence)
    return tuple(sentences)


def _sentence(text: str) -> _Sentence:
    line = text[: INDEX_LINES.line_characters]
    names = " ".join(found[0] for found in _NAME_OR_NUMBER.finditer(line))
    return _Sentence(
        text=text,
        asks=any(mark in text for mark in QUESTION_MARKS),
        matter=tuple(dict.fromkeys(about(terms(line)))),
        names=frozenset(terms(names)),
    )


def _only_announces(sentence: _Sentence) -> bool:
    """Tells whether a sentence says that something follows, or how somebody likes something."""
    text = sentence.text.rstrip(_CLOSING_MARKS)
    if text.endswith((":", "\uff1a")) or _ENGLISH.announcement.match(text):
        return True
    return not sentence.names and bool(_ENGLISH.reaction.match(sentence.text))


def _is_heading(text: str, begin: int, end: int) -> bool:
    """Tells whether a sentence stands in a heading of its text."""
    next_line = text.find("\n", end)
    line = text[text.rfind("\n", 0, begin) + 1 : next_line if next_line >= 0 else len(text)]
    return bool(_MARKED_HEADING.match(line)) or _reads_as_heading(line.strip(), text[begin:end])


def _reads_as_heading(line: str, sentence: str) -> bool:
    """Tells whether a line is a heading without marks: "Action Plan for This Week"."""
    if not line.endswith(sentence) or ends_as_statement(sentence) or ": " in sentence:
        return False
    words = _LONG_WORD.findall(sentence)
    if not 1 < len(words) <= INDEX_LINES.heading_words or any(map(str.isdigit, sentence)):
        return False
    return all(word[0].isupper() for word in words)
