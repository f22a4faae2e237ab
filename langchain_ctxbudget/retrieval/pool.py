"""Everything that may be quoted for a message, in one ranking: the conversation's messages and what lies elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings
from numpy.typing import NDArray

from langchain_ctxbudget.flow import Flow, embed, embed_query
from langchain_ctxbudget.history import Conversation, Entry, MessageIndex, saying, searched_text, short_digest
from langchain_ctxbudget.messages import digest, remembering, terms
from langchain_ctxbudget.search import (
    NEIGHBOURHOOD,
    NEWEST,
    PRIORITIES,
    Candidate,
    CentredVectors,
    Evidence,
    LexicalIndex,
    LocalEmbeddings,
    Numbers,
    Population,
    Question,
    Ranking,
    Scores,
    Spread,
    Texts,
    Vectors,
    about,
    as_query,
    called,
    comparable,
    dated,
    day_number,
    first_person,
    rank,
    shortness,
    spelled,
    units,
)
from langchain_ctxbudget.stores import embeddings_name

SIMILAR, PRIORITY_WEIGHT = 0.25, 1.0
"""A text from elsewhere without a word of the message must be so similar to it; the weight of its kind."""
FEW_ENOUGH, SAMPLED = 4_096, 512
"""Up to so many messages are all ranked; of more, those that may be worth it, and so many that stand for all."""
LOOKED_AT, WITH_NEIGHBOURS = 512, 64
"""Messages looked at for their words, meaning, session and date each, and those whose neighbours are, too."""
REMEMBERED_TEXTS = 4_096
"""Texts from elsewhere whose terms and vectors are kept, so that no turn reads them again."""
RARE_SHARE, MOST_WORDS = 0.5, 256
"""A message's vector is to this share that of its words by how rare they are in the conversation, the first ones of it,
and for the rest that of the embeddings, which know how rare they are in general."""
RENEWED = "embeddings: the stored vectors of the messages were made by others; all messages were embedded again"
_CHARACTERS_PER_TOKEN = 4
_WORD = re.compile(r"[^\W_]+")
_ABSENT = np.zeros(0, np.float32)
"""Kept for a text that the embeddings gave no usable vector: it is not asked for again."""


@dataclass(frozen=True, slots=True)
class Named:
    """A document that a message names: it comes first, whole where it fits."""

    id: str
    whole: Candidate | None
    """None where it is too large in any case."""
    summary: Candidate


@dataclass(frozen=True, slots=True)
class Pool:
    """Texts and their worth: first those from elsewhere, then the messages of the conversation."""

    question: Question
    others: tuple[Candidate, ...]
    places: NDArray[np.intp]
    """The positions of the conversation's messages that are ranked, ascending: all, or those that may be worth it."""
    ranking: Ranking
    weigh: Callable[[], Evidence]
    meant: NDArray[np.bool_]
    """True for what may be quoted; of what lies elsewhere, what has to do with the question."""
    said: NDArray[np.int64]
    """Digests of who says what; `folded`, of what they say."""
    folded: NDArray[np.int64]
    searched: Searched
    named: tuple[Named, ...] = ()

    @property
    def evidence(self) -> Evidence:
        """What speaks for quoting anything."""
        return self.weigh()

    def position(self, number: int) -> int | None:
        """Returns which message of the conversation it is; None for a text from elsewhere."""
        return int(self.places[number - len(self.others)]) if number >= len(self.others) else None

    def best(self, scores: Scores, most: int) -> list[int]:
        """Returns the numbers of what may be quoted with the highest scores, the highest first."""
        order = np.argsort(-scores, kind="stable")
        numbers: list[int] = order[self.meant[order]][:most].tolist()
        return numbers

    def scores(self, number: int) -> dict[str, float]:
        """Returns what every part of the ranking says of a text."""
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
    def of(cls, conversation: Conversation, index: MessageIndex | None = None) -> Searched:
        """Returns the messages of a conversation, those that are new read into the index.

        Whoever does not hold the conversation's lock gives an index of its own.
        """
        index = index or (conversation.table.search_index if conversation.is_newest else MessageIndex())
        index.read(conversation.entries)
        return cls(index, conversation.entries, conversation.cost_column, conversation.quotable, conversation.names)


@dataclass(frozen=True, slots=True)
class Similar:
    """The vectors of all texts, and how like a query they are: first those from elsewhere, then the messages."""

    own: CentredVectors
    others: Vectors
    absent: tuple[int, ...]
    """Numbers of the others that the embeddings gave no usable vector."""
    target: Vectors
    renewed: bool = False
    """Stored vectors of the messages were made by other embeddings."""

    def among(self, places: NDArray[np.intp]) -> Similar:
        """Returns the same for the messages at some places alone."""
        return self if len(places) == len(self.own) else replace(self, own=self.own.some(places))

    def cosines(self, target: Vectors | Scores) -> Scores:
        """Returns the cosine of every text with a vector."""
        scores = self.own.similarities(target, self.others)
        scores[list(self.absent)] = 0
        return scores

    def vectors(self, numbers: NDArray[np.intp]) -> Vectors:
        """Returns the vectors of some texts, by number."""
        first, is_own = len(self.others), numbers >= len(self.others)
        rows = np.zeros((len(numbers), self.others.shape[1]), np.float32)
        rows[~is_own] = self.others[numbers[~is_own]]
        if is_own.any():
            rows[is_own] = self.own.at(numbers[is_own] - first)
        return rows

    def to_mean(self, numbers: NDArray[np.intp], weights: Scores) -> Scores:
        """Returns the cosine of every text with the mean of some, by number and weight."""
        return self.cosines(weights @ self.vectors(numbers))

    @property
    def problem(self) -> str | None:
        """The line to be reported where texts have no vector."""
        if not (count := len(self.absent) + len(self.own.absent)):
            return RENEWED if self.renewed else None
        size = len(self.others) + len(self.own)
        return f"embeddings: no usable vector for {count} of {size} texts, found by their words alone"


def gather(
    searched: Searched, query: str, embeddings: Embeddings | None, others: Sequence[Candidate] = ()
) -> Flow[tuple[Pool, str | None]]:
    """Ranks the messages of a conversation and texts from elsewhere for a query; returns what failed, too.

    By words and vectors; without embeddings, or where they fail, by words alone. Who said it is left to the words: a
    name outweighs everything else in a mean of word vectors.
    """
    said = searched.index.said
    by_text = {other.text: other for other in sorted(others, key=lambda other: PRIORITIES[other.kind])}
    elsewhere = sorted(  # of those that say the same, as forks do, the most important one
        (other for text, other in by_text.items() if short_digest(text) not in said),
        key=lambda other: (other.source, other.date or "", other.title, other.place),
    )
    similar, failure = None, None
    if embeddings is not None and (elsewhere or searched.entries):
        try:
            similar = yield from similarities(searched, query, embeddings, [other.text for other in elsewhere])
            failure = similar.problem
        except Exception as error:  # noqa: BLE001 - whatever embeddings raise, lexical search still works
            failure = f"embeddings: {type(error).__name__}: {error}"
    return pooled(searched, query, elsewhere, similar), failure


def pooled(searched: Searched, query: str, elsewhere: Sequence[Candidate] = (), similar: Similar | None = None) -> Pool:
    """Ranks the messages of a conversation and texts from elsewhere, by words and, where they are known, by vectors."""
    index = searched.index
    query = spelled(query, list(index.speakers), index.lexical.postings)
    question = Question.of(query, list(index.speakers))
    shelf = LexicalIndex()
    shelf.extend(_terms_of(searched_text(other.speaker, other.text)) for other in elsewhere)
    keys = [(other.source, other.date, other.title) for other in elsewhere]
    begins = np.array([bool(number) and key != keys[number - 1] for number, key in enumerate(keys)], np.bool_)
    groups = np.cumsum(begins, dtype=np.int32)  # what stands under one title and date
    session, own_words = index.subjects(), index.lexical.scores(question.terms, background=shelf)
    of_sessions = index.lexical.scores(question.terms, groups=session)
    places = np.arange(len(index))
    if len(index) > FEW_ENOUGH:
        places = _worth_a_look(searched, session, question, (own_words, of_sessions), similar)
    texts = _texts(elsewhere, shelf, groups, index.speakers, index.texts(searched.costs, places, session))
    some = similar and similar.among(places)
    population = None
    if len(places) < len(index):
        population = Population(
            words=Spread.of(own_words),
            sessions=Spread.of(of_sessions, np.bincount(session)),
            sample=len(elsewhere) + np.searchsorted(places, _sampled(len(index))),
            shortness=shortness(session),
        )
    words = np.concatenate((shelf.scores(question.terms, background=index.lexical), own_words[places]))
    sessions = np.concatenate((shelf.scores(question.terms, groups=groups), of_sessions))
    dense, alike = (None, None) if some is None else (some.cosines(some.target), some.to_mean)
    ranking = rank(texts, question, words, dense, sessions, alike=alike, population=population)
    if elsewhere:
        low, high = min(PRIORITIES.values()), max(PRIORITIES.values())
        priority = np.zeros(len(texts))
        priority[: len(elsewhere)] = [
            PRIORITY_WEIGHT * (PRIORITIES[other.kind] - low) / (high - low) for other in elsewhere
        ]
        ranking = ranking.with_part("priority", priority)

    @cache
    def evidence() -> Evidence:
        asked, shared = about(question.terms), words
        if len(asked) < len(question.terms):
            own_shared = index.lexical.scores(asked, background=shelf)[places]
            shared = np.concatenate((shelf.scores(asked, background=index.lexical), own_shared))
        documents = np.zeros(len(texts), np.bool_)
        documents[: len(elsewhere)] = [other.source == "documents" for other in elsewhere]
        rare = index.lexical.rarities(asked, shelf)
        covered = np.concatenate((shelf.covered(rare), index.lexical.covered(rare)[places]))
        weight, names_speaker = sum(rare.values()), bool(question.speakers)
        return Evidence.of(asked, shared, covered, weight, dense, documents=documents, names_speaker=names_speaker)

    near = (words > 0) if dense is None else (words > 0) | (dense >= SIMILAR)
    sayings = [saying(other.speaker, other.text) for other in elsewhere]
    said, folded = (np.array([one[place] for one in sayings], np.int64) for place in (0, 1))
    return Pool(
        question=question,
        others=tuple(elsewhere),
        places=places,
        ranking=ranking,
        weigh=evidence,
        meant=np.concatenate((near[: len(elsewhere)], searched.quotable[places])),
        said=np.concatenate((said, index.sayings[places])),
        folded=np.concatenate((folded, index.folded[places])),
        searched=searched,
    )


def _worth_a_look(
    searched: Searched,
    session: Numbers,
    question: Question,
    scores: tuple[Scores, Scores],
    similar: Similar | None,
) -> NDArray[np.intp]:
    """Returns the places of messages that may be worth quoting, and of a few that stand for all others.

    They are those that share most words with a question, or are most like it, each with its neighbours; those of the
    best sessions, of the days that it names, and the newest ones.
    """
    of_words, of_sessions = scores
    chosen = np.zeros(len(session), np.bool_)
    chosen[_sampled(len(session))] = chosen[-NEWEST:] = True
    best = [_highest(of_words, LOOKED_AT)]
    if similar is not None:
        best.append(_highest(similar.own.likeness(similar.target), LOOKED_AT))
    beside = np.arange(-NEIGHBOURHOOD, NEIGHBOURHOOD + 1)
    for found in best:
        chosen[found] = True
        chosen[(found[:WITH_NEIGHBOURS, np.newaxis] + beside).clip(0, len(session) - 1)] = True
    lengths, sessions = np.bincount(session), _highest(of_sessions, LOOKED_AT)
    starts = np.cumsum(lengths) - lengths
    for one in sessions[np.cumsum(lengths[sessions]) <= LOOKED_AT].tolist():
        chosen[starts[one] : starts[one] + lengths[one]] = True
    if question.dates:
        chosen[np.flatnonzero(dated(searched.index.days, question.dates))[-LOOKED_AT:]] = True
    return np.flatnonzero(chosen)


def _sampled(size: int) -> NDArray[np.intp]:
    return np.arange(0, size, max(1, size // SAMPLED))


def _highest(scores: NDArray[Any], most: int) -> NDArray[np.intp]:
    """Returns the places of the highest scores above 0, the highest first; of equal ones, the first."""
    least = np.partition(scores, len(scores) - most)[len(scores) - most] if len(scores) > most else 0
    places = np.flatnonzero(scores >= least) if least > 0 else np.flatnonzero(scores)
    return places[np.argsort(-scores[places], kind="stable")][:most]


def without_names(query: str, names: Iterable[str]) -> str:
    """Returns a query without the speakers' names; the query itself where nothing else is in it."""
    spoken = {one for own in called(list(names)) for one in own}
    pattern = "|".join(re.escape(name) for name in sorted({*names, *spoken}, key=len, reverse=True))
    rest = re.sub(rf"(?<!\w)(?:{pattern})(?:['’]s)?(?!\w)", "", query) if pattern else query  # noqa: RUF001
    return rest if rest.strip() else query


def _rarities(index: LexicalIndex, text: str) -> dict[str, float]:
    """Returns the words of a text that say something, each with how rare it is in the conversation."""
    words = islice(dict.fromkeys(_WORD.findall(text)), MOST_WORDS)
    return {word: max(index.rarities(found).values()) for word in words if (found := terms(word))}


@remembering(REMEMBERED_TEXTS)
def _terms_of(text: str) -> tuple[str, ...]:
    return tuple(terms(text))


def _texts(
    others: Sequence[Candidate], shelf: LexicalIndex, groups: Numbers, speakers: Mapping[str, int], own: Texts
) -> Texts:
    """Returns the circumstances of texts; what lies elsewhere is older than the conversation."""
    if not others:
        return own
    elsewhere = Texts(
        session=groups,
        costs=np.array([len(other.text) // _CHARACTERS_PER_TOKEN + 1 for other in others], np.int32),
        distinct=shelf.distinct,
        speaker=np.array([speakers.get(other.speaker, -1) for other in others], np.int32),
        first_person=np.array([first_person(other.text) for other in others], np.float32),
        day=np.array([day_number(other.date) for other in others], np.int32),
        place=np.arange(len(others)),
        opens=np.diff(groups, prepend=-1) != 0,
    )
    own = replace(own, session=own.session + int(groups[-1]) + 1, place=own.place + len(others))
    return Texts(
        **{name: np.concatenate((getattr(elsewhere, name), getattr(own, name))) for name in Texts.__dataclass_fields__}
    )


def similarities(searched: Searched, query: str, embeddings: Embeddings, others: Sequence[str]) -> Flow[Similar]:
    """Returns the vectors of all texts and of a query; no text is embedded twice, whatever came of it."""
    index, known = searched.index, searched.index.elsewhere
    asked = without_names(spelled(query, list(index.speakers), index.lexical.postings), searched.names)
    known_query = searched.asked if searched.asked and searched.asked[0] == asked else None
    vector = known_query[1] if known_query else (yield from embed_query(embeddings, asked))
    renewed = index.embedded_by(f"{embeddings_name(embeddings)} {len(vector)}")
    own = index.vectors
    target = as_query(vector, own.width or max((len(row) for row in known.values()), default=0))
    if isinstance(embeddings, LocalEmbeddings) and (rare := _rarities(index.lexical, asked)):
        by_words = units(np.asarray(embeddings.embed_words(rare), np.float32))
        target = RARE_SHARE * by_words + (1 - RARE_SHARE) * units(target)
    while texts := index.texts_to_embed(searched.entries):
        rows, absent = comparable((yield from embed(embeddings, texts)), target.size)
        own.extend(rows, [number for number in absent if texts[number].strip()])  # a blank one loses nothing
    keys = list(map(digest, others))
    missing = {key: text for key, text in zip(keys, others, strict=True) if key not in known}
    rows, absent = comparable((yield from embed(embeddings, list(missing.values()))), target.size)
    for number, key in enumerate(missing):
        known[key] = _ABSENT if number in absent else rows[number].copy()
    needed = frozenset(keys)
    for key in [key for key in known if key not in needed][: max(0, len(known) - REMEMBERED_TEXTS)]:
        del known[key]
    vectors = np.zeros((len(others), target.size), np.float32)
    for number, key in enumerate(keys):
        vectors[number] = known[key] if known[key].size else 0
    absent = tuple(number for number, key in enumerate(keys) if not known[key].size)
    return Similar(own, units(vectors), absent, target, renewed=renewed)
