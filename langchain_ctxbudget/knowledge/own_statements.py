"""What is learned about a user without a model: their own sentences, word for word.

A fact is a sentence that the reader of sentences takes for a lasting statement, together with the
sentence that limits it. It is neither shortened nor put into another person. Only sentences that
can be understood alone are kept, and none that stand in quotation marks, as these may be somebody
else's words.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from langchain_ctxbudget.history import MessageTable
from langchain_ctxbudget.knowledge.games import is_played
from langchain_ctxbudget.knowledge.own_messages import own_messages
from langchain_ctxbudget.knowledge.records import ENGLISH, FactCategory, LearnedFact, quotation
from langchain_ctxbudget.messages import (
    QUESTION_MARKS,
    begins_in_the_middle,
    cached_until_forgotten,
    ends_as_statement,
    one_line,
    prose_spans,
    says_liking,
    word_count,
)
from langchain_ctxbudget.sentences import Label, Said
from langchain_ctxbudget.stores import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementPolicy:
    """Which sentences are kept as facts."""

    least_certainty: float = 0.7
    """The least probability that a sentence is a lasting statement."""
    fewest_words: int = 3
    """A sentence of fewer words cannot be understood alone."""
    most_characters: int = 200
    """A longer sentence is not learned, rather than shortened."""
    most_limit_characters: int = 80
    """A longer sentence is not taken for a limit of the one before it."""
    most_message_characters: int = 1_000
    """A longer message is a document that was pasted without a mark."""


STATEMENT_POLICY = StatementPolicy()
_INCOMPLETE_ENDS = (*QUESTION_MARKS, "\u2026", "...", ":", "\uff1a", ",")
"""Ends of sentences that ask, break off, or announce something."""
_ANNOUNCES = (": ", "\uff1a")
"""Behind one of these may be words that are not the speaker's: "Write a bio: I ..."."""
_LIST_MARK = re.compile(r"^[ \t]*(?:\d{1,3}[.)]|[-*\u2022])[ \t]*\Z", re.MULTILINE)
"""A text that ends with the mark of an item of a list."""
_QUOTES = {"\u201c": "\u201d", "\u201e": "\u201c\u201d", "\u00ab": "\u00bb", "\u300c": "\u300d"}
"""Opening quotation marks, with those that close each."""
Span = tuple[int, int]


def statements_of(table: MessageTable, scope: Scope, first: int, end: int) -> Iterator[LearnedFact]:
    """Yields what the user says of themselves in some messages of a conversation, in order.

    Args:
        table: The conversation.
        scope: Whose it is.
        first: The position of the first message.
        end: The position behind the last one.
    """
    positions = range(first, end)
    for message in own_messages(table, scope, positions, frozenset({Label.STATEMENT})):
        yield from statements_in(message.entry.id, message.text, message.sentences)


def statements_in(message_id: str, text: str, read: Iterable[Said]) -> list[LearnedFact]:
    """Returns the lasting statements of one message as facts.

    Args:
        message_id: The id of the message.
        text: What the user says in it in their own words.
        read: What its sentences are.
    """
    if not _is_own_prose(text):
        return []
    by_begin = {said.begin: said for said in read}
    spans = prose_spans(text)
    facts: list[LearnedFact] = []
    for place, (begin, end) in enumerate(spans):
        said = by_begin.get(begin)
        if said is None or not _is_fact(said, text):
            continue
        end_of_fact = end
        if place + 1 < len(spans) and _limits(text, spans[place + 1], by_begin):
            _, end_of_fact = spans[place + 1]
        facts.append(
            LearnedFact(
                text=quotation(one_line(text[begin:end_of_fact])),
                category=category_of(text[begin:end]),
                confidence=said.certainty,
                message_ids=(message_id,),
            )
        )
    return facts


@cached_until_forgotten(4_096)
def sentences_in(text: str) -> tuple[str, ...]:
    """Returns the sentences of one message that could be kept, whatever they are."""
    if not _is_own_prose(text):
        return ()
    spans = [span for span in prose_spans(text) if _can_be_kept(text, *span)]
    return tuple(text[begin:end] for begin, end in spans)


def category_of(sentence: str) -> FactCategory:
    """Returns the category of a statement: what is liked is a preference."""
    return "preference" if says_liking(sentence) else "identity"


def is_sure(said: Said) -> bool:
    """Tells whether a sentence is surely a lasting statement."""
    is_statement = said.label is Label.STATEMENT
    return is_statement and said.certainty >= STATEMENT_POLICY.least_certainty


def _is_own_prose(text: str) -> bool:
    """Tells whether a message is neither a document nor a line of a play."""
    is_short = len(text) <= STATEMENT_POLICY.most_message_characters
    return is_short and not is_played(text)


def _is_fact(said: Said, text: str) -> bool:
    """Tells whether a sentence is a lasting statement that can be kept."""
    return is_sure(said) and _can_be_kept(text, said.begin, said.end)


def _can_be_kept(text: str, begin: int, end: int) -> bool:
    """Tells whether a sentence of a text is the speaker's own and can be understood alone."""
    sentence = text[begin:end]
    if _is_quoted(text, begin) or _is_title(text, begin, sentence):
        return False
    return _stands_alone(sentence)


def _stands_alone(sentence: str) -> bool:
    """Tells whether a sentence can be understood without those around it."""
    if len(sentence) > STATEMENT_POLICY.most_characters:
        return False
    if sentence.endswith(_INCOMPLETE_ENDS) or begins_in_the_middle(sentence):
        return False
    if any(mark in sentence for mark in _ANNOUNCES):
        return False
    return word_count(sentence) >= STATEMENT_POLICY.fewest_words and _is_about_speaker(sentence)


def _is_title(text: str, begin: int, sentence: str) -> bool:
    """Tells whether a sentence is an item of a list that does not end like a sentence."""
    return bool(_LIST_MARK.search(text[:begin])) and not ends_as_statement(sentence)


def _is_about_speaker(sentence: str) -> bool:
    """Tells whether a sentence names the speaker; in other languages than English, none has to."""
    if ENGLISH.only_english.search(sentence) is None:
        return True
    return ENGLISH.first_person.search(sentence) is not None


def _is_quoted(text: str, begin: int) -> bool:
    """Tells whether quotation marks are open in a text up to a place, the sign there included."""
    before = text[: begin + 1]
    if before.count('"') % 2:
        return True
    for opening, closing in _QUOTES.items():
        opened_at = before.rfind(opening)
        if opened_at >= 0 and not any(mark in before[opened_at + 1 :] for mark in closing):
            return True
    return False


def _limits(text: str, span: Span, read: Mapping[int, Said]) -> bool:
    """Tells whether a sentence limits the statement before it, as "But only at night." does.

    Args:
        text: The text of the message.
        span: Where the sentence stands.
        read: What the sentences are, by where they begin.
    """
    begin, end = span
    said = read.get(begin)
    if said is not None and said.label is not Label.LIFTING:
        return False
    sentence = text[begin:end]
    if len(sentence) > STATEMENT_POLICY.most_limit_characters:
        return False
    if sentence.endswith(_INCOMPLETE_ENDS):
        return False
    return ENGLISH.limits_the_one_before.match(sentence) is not None
