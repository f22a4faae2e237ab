"""What a user says against what they said before, learned without a model.

A sentence such as "sorry, my name is Li" is not surely a statement by itself. Beside "My name is
Anna" it is: two sentences that cannot both be true are evidence for each other.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from langchain_ctxbudget.history import MessageTable
from langchain_ctxbudget.knowledge.own_messages import OwnMessage, all_own_messages
from langchain_ctxbudget.knowledge.own_statements import (
    STATEMENT_POLICY,
    category_of,
    is_sure,
    sentences_in,
)
from langchain_ctxbudget.knowledge.records import LearnedFact, quotation
from langchain_ctxbudget.messages import clauses, one_line, replaces
from langchain_ctxbudget.sentences import statement_certainties
from langchain_ctxbudget.stores import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectionPolicy:
    """How sure the reader must be of a sentence that replaces another one."""

    least_certainty: float = 0.1
    """The least probability that it is a lasting statement, of itself or of one of its clauses."""
    least_of_pair: float = STATEMENT_POLICY.least_certainty
    """The least sum of the probabilities of both, where neither was learned before."""
    look_back: int = 100
    """Messages before those to learn from among which the other one is looked for."""


CORRECTION_POLICY = CorrectionPolicy()


class _Sentence(NamedTuple):
    """A sentence of the user that could be kept."""

    position: int
    message_id: str
    text: str
    certainty: float
    is_learned: bool
    """True if it is learned anyway."""


def corrections_of(
    table: MessageTable, scope: Scope, first: int, end: int, not_own: Collection[str]
) -> Iterator[LearnedFact]:
    """Yields what the user may say in some messages against what they said before, in order.

    A note is uncertain where nothing that was said in the conversation before is replaced: it may
    still replace something that is known.

    Args:
        table: The conversation.
        scope: Whose it is.
        first: The position of the first message.
        end: The position behind the last one.
        not_own: The ids of messages that others have said in the user's thread.
    """
    positions = range(max(0, first - CORRECTION_POLICY.look_back), end)
    own = all_own_messages(table, scope, positions)
    sentences = _likely_in([message for message in own if message.entry.id not in not_own])
    for sentence in sentences:
        if sentence.is_learned or sentence.position < first:
            continue
        yield LearnedFact(
            text=quotation(one_line(sentence.text)),
            category=category_of(sentence.text),
            confidence=STATEMENT_POLICY.least_certainty,
            message_ids=(sentence.message_id,),
            is_uncertain=not _replaces_another(sentence, sentences),
        )


def _likely_in(own: Iterable[OwnMessage]) -> list[_Sentence]:
    """Returns the sentences of some messages that may be lasting statements, in order."""
    found: list[tuple[OwnMessage, str]] = []
    for message in own:
        found += [(message, text) for text in sentences_in(message.text)]
    certainties = _certainties([text for _, text in found])
    likely: list[_Sentence] = []
    for (message, text), certainty in zip(found, certainties, strict=True):
        if certainty < CORRECTION_POLICY.least_certainty:
            continue
        learned = [said.words_in(message.text) for said in message.sentences if is_sure(said)]
        likely.append(
            _Sentence(message.position, message.entry.id, text, certainty, text in learned)
        )
    return likely


def _certainties(texts: Iterable[str]) -> list[float]:
    """Returns how likely each sentence, or a clause of it, is a lasting statement by itself."""
    parts = [(text, *clauses(text)) for text in texts]
    rows = iter(statement_certainties([part for of_one in parts for part in of_one]))
    return [max(next(rows) for _ in of_one) for of_one in parts]


def _replaces_another(sentence: _Sentence, sentences: Iterable[_Sentence]) -> bool:
    """Tells whether a sentence replaces one before it, both together being sure enough."""
    least = CORRECTION_POLICY.least_of_pair - sentence.certainty
    earlier = [
        other
        for other in sentences
        if other.position < sentence.position and other.certainty >= least
    ]
    return any(replaces(sentence.text, other.text) for other in earlier)
