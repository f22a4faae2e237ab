"""Everything that may be quoted for a message, in one ranking: the conversation's messages and what lies elsewhere."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from langchain_core.embeddings import Embeddings
from numpy.typing import NDArray

from langchain_ctxbudget.flow import Flow, embed, embed_query
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.history.entry import Entry
from langchain_ctxbudget.history.message_index import MessageIndex, searched_text
from langchain_ctxbudget.messages.text import digest, remembering, terms
from langchain_ctxbudget.search.lexical import LexicalIndex
from langchain_ctxbudget.search.packing import PRIORITIES, Candidate
from langchain_ctxbudget.search.ranking import (
    COMPARED,
    Numbers,
    Question,
    Ranking,
    Scores,
    Texts,
    called,
    day_number,
    first_person,
    rank,
    without_repetition,
)
from langchain_ctxbudget.search.vectors import CentredVectors, Vectors, as_query, comparable, units

SIMILAR = 0.25
"""A text from elsewhere without a word of the message must be so similar to it."""
PRIORITY_WEIGHT = 1.0
"""What the kind of a text counts, from the least to the most important one."""
REMEMBERED_TEXTS = 4_096
"""Texts from elsewhere whose terms and vectors are kept, so that no turn reads them again."""
_CHARACTERS_PER_TOKEN = 4
_ABSENT = np.zeros(0, np.float32)
"""Kept for a text that the embeddings gave no usable vector: it is not asked for again."""


class Named(NamedTuple):
    """A document that a message names: it comes first, whole where it fits."""

    id: str
    whole: Candidate | None
    """None where it is too large in any case."""
    summary: Candidate


@dataclass(frozen=True, slots=True)
class Pool:
    """Texts and what they are worth, in the order of `ranking`: first the others, then the conversation's messages."""

    question: Question
    others: tuple[Candidate, ...]
    own: int
    """How many of the conversation's messages there are."""
    ranking: Ranking
    meant: NDArray[np.bool_]
    """What may be quoted; of what lies elsewhere, what has to do with the question."""
    named: tuple[Named, ...] = ()
    """Documents that recent messages name."""

    def number(self, position: int) -> int:
        """Where a message of the conversation stands in the ranking."""
        return len(self.others) + position

    def position(self, number: int) -> int | None:
        """Which message of the conversation it is; None for a text from elsewhere."""
        return number - len(self.others) if number >= len(self.others) else None

    def scores(self, number: int) -> dict[str, float]:
        """What every part of the ranking says of a text."""
        return {name: round(float(part[number]), 3) for name, part in self.ranking.components.items()}


@dataclass(frozen=True, slots=True)
class Searched:
    """The messages of a conversation that are searched; none at all where no conversation is open."""

    index: MessageIndex = field(default_factory=MessageIndex)
    entries: Sequence[Entry] = ()
    costs: Numbers = field(default_factory=lambda: np.zeros(0, np.int32))
    quotable: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    names: Collection[str] = ()
    """Of those who speak."""
    asked: tuple[str, Sequence[float]] | None = None
    """A query that was embedded already, and its vector."""

    @classmethod
    def of(cls, conversation: Conversation) -> Searched:
        """Returns those of a conversation that is up to date, by whoever holds its lock."""
        index = conversation.table.index if conversation.is_newest else MessageIndex()
        return cls.by(index, conversation)

    @classmethod
    def by(cls, index: MessageIndex, conversation: Conversation) -> Searched:
        """Returns those of a conversation by an index, which reads what it does not have yet."""
        index.read(conversation.entries)
        return cls(index, conversation.entries, conversation.cost_column, conversation.quotable, conversation.names)


def gather(
    searched: Searched, query: str, embeddings: Embeddings | None, others: Sequence[Candidate] = ()
) -> Flow[tuple[Pool, str | None]]:
    """Rank the messages of a conversation and texts from elsewhere for a query, and say what failed on the way.

    Lexical and dense scores over all of them; without embeddings, or where they fail, lexical alone. Who said it is
    left to the lexical score: a name outweighs everything else in a mean of word vectors.

    Args:
        searched: what is searched; what is new of it is read.
        query: what is asked.
        embeddings: for the vectors.
        others: texts from elsewhere. What the conversation itself says is not looked for there.
    """
    index = searched.index
    by_text = {other.text: other for other in sorted(others, key=lambda other: PRIORITIES[other.kind])}
    elsewhere = sorted(  # of those that say the same, as forks do, the most important one
        (other for text, other in by_text.items() if text not in index.said),
        key=lambda other: (other.source, other.date or "", other.title, other.place),
    )
    question = Question.of(query, list(index.speakers))
    shelf = LexicalIndex()
    shelf.extend(_terms_of(searched_text(other.speaker, other.text)) for other in elsewhere)
    similar, failure = None, None
    if embeddings is not None and (elsewhere or searched.entries):
        try:
            similar = yield from similarities(searched, query, embeddings, [other.text for other in elsewhere])
            failure = similar.problem
        except Exception as error:  # noqa: BLE001 - whatever embeddings raise, lexical search still works
            failure = f"embeddings: {type(error).__name__}: {error}"
    groups, subjects = _groups(elsewhere), index.subjects()
    words = _joined(
        shelf.scores(question.terms, background=index.lexical), index.lexical.scores(question.terms, background=shelf)
    )
    sessions = _joined(
        shelf.scores(question.terms, groups=groups), index.lexical.scores(question.terms, groups=subjects)
    )
    dense, alike = (None, None) if similar is None else (similar.scores, similar.to)
    ranking = rank(_texts(elsewhere, shelf, groups, searched), question, words, dense, sessions, alike=alike)
    if elsewhere:
        ranking = _with(ranking, "priority", _priorities(elsewhere, len(words)))
    if similar is not None:
        ranking = _with(ranking, "repetition", _repetitions(ranking.keys, similar))
    near = (words > 0) if dense is None else (words > 0) | (dense >= SIMILAR)
    meant = np.concatenate((near[: len(elsewhere)], searched.quotable))
    return Pool(question, tuple(elsewhere), len(index), ranking, meant), failure


def by_words(conversation: Conversation, query: str) -> Pool:
    """The messages of a conversation ranked by their words alone, without any I/O."""
    index = MessageIndex()  # of its own: nobody holds the conversation's lock for a forecast
    searched = Searched.by(index, conversation)
    question = Question.of(query, list(index.speakers))
    words = index.lexical.scores(question.terms)
    sessions = index.lexical.scores(question.terms, groups=index.subjects())
    return Pool(
        question,
        (),
        len(index),
        rank(index.texts(searched.costs), question, words, None, sessions),
        searched.quotable.copy(),
    )


def without_names(query: str, names: Iterable[str]) -> str:
    """A query without the speakers' names; the query itself where nothing else is in it."""
    spoken = {one for own in called(list(names)) for one in own}
    pattern = "|".join(re.escape(name) for name in sorted({*names, *spoken}, key=len, reverse=True))
    rest = re.sub(rf"(?<!\w)(?:{pattern})(?:['’]s)?(?!\w)", "", query) if pattern else query  # noqa: RUF001
    return rest if rest.strip() else query


@remembering(REMEMBERED_TEXTS)
def _terms_of(text: str) -> tuple[str, ...]:
    return tuple(terms(text))


def _joined(first: Scores, second: Scores) -> Scores:
    return np.concatenate((first, second)) if len(first) else second


def _groups(others: Sequence[Candidate]) -> NDArray[np.int32]:
    """A number for everything that stands under one title and date, never falling."""
    keys = [(other.source, other.date, other.title) for other in others]
    begins = [bool(number) and key != keys[number - 1] for number, key in enumerate(keys)]
    return np.cumsum(begins, dtype=np.int32)


def _texts(others: Sequence[Candidate], shelf: LexicalIndex, groups: NDArray[np.int32], searched: Searched) -> Texts:
    """What is known of all texts; what lies elsewhere is older than the conversation."""
    index, own = searched.index, searched.index.texts(searched.costs)
    if not others:
        return own
    elsewhere = Texts(
        session=groups,
        costs=np.array([len(other.text) // _CHARACTERS_PER_TOKEN + 1 for other in others], np.int32),
        distinct=shelf.distinct,
        speaker=np.array([index.speakers.get(other.speaker, -1) for other in others], np.int32),
        first_person=np.array([first_person(other.text) for other in others], np.float32),
        day=np.array([day_number(other.date) for other in others], np.int32),
    )
    own = replace(own, session=own.session + int(groups[-1]) + 1)
    return Texts(
        **{name: np.concatenate((getattr(elsewhere, name), getattr(own, name))) for name in Texts.__dataclass_fields__}
    )


def _with(ranking: Ranking, name: str, part: Scores) -> Ranking:
    """A ranking with one part more in its keys."""
    return replace(ranking, keys=ranking.keys + part, components={**ranking.components, name: part})


def _priorities(others: Sequence[Candidate], size: int) -> Scores:
    """What the kind of a text from elsewhere counts."""
    low, high = min(PRIORITIES.values()), max(PRIORITIES.values())
    result = np.zeros(size)
    result[: len(others)] = [PRIORITY_WEIGHT * (PRIORITIES[other.kind] - low) / (high - low) for other in others]
    return result


@dataclass(frozen=True, slots=True)
class Similar:
    """How like a query all texts are by their vectors: first those from elsewhere, then the conversation's messages."""

    scores: Scores
    others: Vectors
    """Of what lies elsewhere, of length 1 or 0."""
    own: CentredVectors
    absent: tuple[int, ...] = ()
    """Numbers of the others that the embeddings gave no usable vector."""

    @property
    def problem(self) -> str | None:
        """What is to be reported where texts have no vector."""
        if not (count := len(self.absent) + len(self.own.absent)):
            return None
        return f"embeddings: no usable vector for {count} of {len(self.scores)} texts, found by their words alone"

    def to(self, numbers: NDArray[np.intp], weights: Scores) -> Scores:
        """The cosine of every text with the mean of some, by number and weight."""
        return _compared(self.own, weights @ self.of(numbers), self.others, self.absent)

    def of(self, numbers: NDArray[np.intp]) -> Vectors:
        """The vectors of some texts, by number."""
        first, is_own = len(self.others), numbers >= len(self.others)
        rows = np.zeros((len(numbers), self.others.shape[1]), np.float32)
        rows[~is_own] = self.others[numbers[~is_own]]
        if is_own.any():
            rows[is_own] = self.own.units[numbers[is_own] - first]
        return rows


def _compared(own: CentredVectors, target: NDArray[Any], others: Vectors, absent: Sequence[int]) -> Scores:
    scores = own.similarities(target, others)
    scores[list(absent)] = 0
    return scores


def _repetitions(keys: Scores, similar: Similar) -> Scores:
    """What the best texts lose where they say what a better one says."""
    best = np.argpartition(-keys, COMPARED)[:COMPARED] if len(keys) > COMPARED else np.arange(len(keys))
    best.sort()
    result = np.zeros(len(keys))
    result[best] = without_repetition(keys[best], similar.of(best)) - keys[best]
    return result


def similarities(searched: Searched, query: str, embeddings: Embeddings, others: Sequence[str]) -> Flow[Similar]:
    """How alike the vectors of all texts are to that of a query; no text is embedded twice, whatever came of it."""
    index, own, known = searched.index, searched.index.vectors, searched.index.elsewhere
    asked = without_names(query, searched.names)
    known_query = searched.asked if searched.asked and searched.asked[0] == asked else None
    vector = known_query[1] if known_query else (yield from embed_query(embeddings, asked))
    target = as_query(vector, own.width or max((len(row) for row in known.values()), default=0))
    while texts := index.texts_to_embed(searched.entries):
        rows, absent = comparable((yield from embed(embeddings, texts)), target.size)
        own.extend(rows, [number for number in absent if texts[number].strip()])  # a blank one loses nothing
    keys = list(map(digest, others))
    missing = {key: text for key, text in zip(keys, others, strict=True) if key not in known}
    rows, absent = comparable((yield from embed(embeddings, list(missing.values()))), target.size)
    known.update((key, row.copy()) for key, row in zip(missing, rows, strict=True))
    known.update((list(missing)[number], _ABSENT) for number in absent)
    wanted = frozenset(keys)
    for key in [key for key in known if key not in wanted][: max(0, len(known) - REMEMBERED_TEXTS)]:
        del known[key]
    absent = tuple(number for number, key in enumerate(keys) if not known[key].size)
    vectors = np.zeros((len(others), target.size), np.float32)
    for number, key in enumerate(keys):
        vectors[number] = known[key] if known[key].size else 0
    return Similar(_compared(own, target, vectors, absent), units(vectors), own, absent)
