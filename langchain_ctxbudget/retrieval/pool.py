"""Everything that may be quoted for a message, in one ranking.

The conversation's messages and what lies elsewhere.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from itertools import islice, pairwise
from typing import TypeAlias

import numpy as np
from langchain_core.embeddings import Embeddings
from numpy.typing import NDArray

from langchain_ctxbudget import search
from langchain_ctxbudget.flow import Flow, embed, embed_query, with_fallback
from langchain_ctxbudget.history import (
    NOWHERE,
    Conversation,
    Elsewhere,
    Entry,
    MessageIndex,
    OtherMessage,
    saying,
    searched_text,
    short_digest,
)  # fmt: skip
from langchain_ctxbudget.messages import digest, remembering, terms
from langchain_ctxbudget.stores import embeddings_name

SIMILAR = 0.25
PRIORITY_WEIGHT = 1.0
"""A text from elsewhere without a word of the message must be so similar to it; the weight of its
kind."""
FEW_ENOUGH = 4_096
SAMPLED = 512
"""Up to so many messages are all ranked; of more, those that may be worth it, and so many that
stand for all."""
LOOKED_AT = 512
WITH_NEIGHBOURS = 64
"""Messages looked at for their words, meaning, session and date each, and those whose neighbours
are, too."""
REMEMBERED_TEXTS = 4_096
"""Texts from elsewhere whose terms and vectors are kept, so that no turn reads them again."""
RARE_SHARE = 0.5
MOST_WORDS = 256
"""A message's vector is to this share that of its words by how rare they are in the conversation,
the first ones of it, and for the rest that of the embeddings, which know how rare they are in
general."""
LINE_OVERHEAD_TOKENS = 4
"""A line costs about so much more than its text."""
RENEWED = "embeddings: the stored vectors of the messages were made by others; all messages were embedded again"
_CHARACTERS_PER_TOKEN = 4
_WORD = re.compile(r"[^\W_]+")
_terms_of = remembering(REMEMBERED_TEXTS)(lambda text: Counter(terms(text)))
_first_person = remembering(REMEMBERED_TEXTS)(search.first_person)
_saying = remembering(REMEMBERED_TEXTS)(saying)
Other: TypeAlias = search.Candidate | OtherMessage
"""A text from elsewhere."""
Named: TypeAlias = tuple[search.Candidate | None, search.Candidate]
"""A document that a message names, which comes first: whole (None where it is too large), and its
summary."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Texts and their worth: first those from elsewhere, then the messages of the conversation."""

    question: search.Question
    others: tuple[Other, ...]
    places: NDArray[np.intp]
    """The positions of the conversation's messages that are ranked, ascending: all, or those that
    may be worth it."""
    ranking: search.Ranking
    evidence: search.Evidence
    costs: search.Numbers
    """About the tokens of the line of each."""
    meant: NDArray[np.bool_]
    """True for what may be quoted; of what lies elsewhere, what has to do with the question."""
    said: NDArray[np.int64]
    """Digests of who says what; `folded`, of what they say."""
    folded: NDArray[np.int64]
    searched: "Searched"
    shelf: search.LexicalIndex
    """The words of the question in what lies elsewhere."""
    likeness: search.Scores = field(default_factory=lambda: np.zeros(0))
    """Of what lies elsewhere: its cosine to the question or, without vectors, its share of the
    words; 0 to 1."""
    named: tuple[Named, ...] = ()
    found: Elsewhere = NOWHERE
    """What was searched in other conversations."""

    def position(self, number: int) -> int | None:
        """Returns which message of the conversation it is; None for a text from elsewhere."""
        return int(self.places[number - len(self.others)]) if number >= len(self.others) else None

    def text(self, number: int) -> Other | Entry:
        """Returns a text by its number."""
        position = self.position(number)
        return self.others[number] if position is None else self.searched.entries[position]

    def best(self, scores: search.Scores, most: int) -> list[int]:
        """Returns the numbers of what may be quoted with the highest scores, the highest first."""
        numbers: list[int] = search.highest(np.flatnonzero(self.meant), scores, most).tolist()
        return numbers


@dataclass(frozen=True, slots=True)
class Searched:
    """The messages of a conversation that are searched.

    None at all where no conversation is open.
    """

    index: MessageIndex = field(default_factory=MessageIndex)
    entries: Sequence[Entry] = ()
    costs: search.Numbers = field(default_factory=lambda: np.zeros(0, np.int32))
    quotable: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    names: Collection[str] = ()
    """Of those who speak."""
    asked: tuple[str, Sequence[float]] | None = None
    today: date | None = None
    elsewhere: dict[bytes, search.Vectors] = field(default_factory=dict)
    """Vectors of texts from elsewhere, by digests of the texts; shared by searches, also those of
    other threads."""

    @classmethod
    def of(cls, conversation: Conversation, index: MessageIndex | None = None) -> "Searched":
        """Reads new messages into the index.

        Callers without the conversation's lock pass an index of their own.
        """
        index = index or (
            conversation.table.search_index if conversation.is_newest else MessageIndex()
        )
        index.read(conversation.entries)
        return cls(
            index,
            conversation.entries,
            conversation.cost_column,
            conversation.quotable,
            conversation.names,
        )


@dataclass(frozen=True, slots=True)
class Similar:
    """The vectors of a query, of the messages, and of texts from elsewhere."""

    target: search.Vectors
    own: search.CentredVectors
    others: search.Vectors


def gather(
    searched: Searched,
    query: str,
    embeddings: Embeddings | None,
    failures: list[str],
    others: Iterable[Other],
    *,
    found: Elsewhere = NOWHERE,
) -> Flow[Pool]:
    """Ranks messages and texts from elsewhere, by words alone where embeddings fail.

    `found` tells of the other conversations from which some of the `others` are.
    """
    said = searched.index.said
    by_text = {_digest_of(other): other for other in sorted(others, key=_weight)}
    # Of those that say the same, as forks do, the most important one, and of messages the newest.
    elsewhere = sorted((other for key, other in by_text.items() if key not in said), key=_order)
    similar = None
    if embeddings is not None and (elsewhere or searched.entries):
        finding = similarities(searched, query, embeddings, failures, elsewhere)
        similar = yield from with_fallback(finding, None, "embeddings", failures)
    return pooled(searched, query, elsewhere, similar, found)


def _digest_of(other: Other) -> int:
    """Returns a number that stands for what a text says."""
    return other.digest if isinstance(other, OtherMessage) else short_digest(other.text)


def _weight(other: Other) -> tuple[int, str, int, int]:
    """Returns the key by which the most important one of texts that say the same comes last."""
    age = other.age if isinstance(other, OtherMessage) else -1
    return search.PRIORITIES[other.kind], other.date or "", age, other.place


def _order(other: Other) -> tuple[str, int, str, str, int]:
    """Returns the key by which texts stand in order.

    Of messages, those of one conversation together.
    """
    if isinstance(other, OtherMessage):
        return other.source, other.age, other.title, "", other.place
    return other.source, -1, other.date or "", other.title, other.place


def pooled(  # noqa: PLR0915
    searched: Searched,
    query: str,
    elsewhere: Sequence[Other] = (),
    similar: Similar | None = None,
    found: Elsewhere = NOWHERE,
) -> Pool:
    """Ranks the messages of a conversation and texts from elsewhere, by words and, where they are known, by vectors."""
    index = searched.index
    first = len(elsewhere)
    question = _asked(searched, query)
    shelf = _shelf_of(elsewhere, question.terms, found)
    groups = _sessions_of(elsewhere)
    session = index.subjects()
    words = search.scores_together(shelf, index.lexical, question.terms)
    sessions: search.Scores | None = None
    sample: search.Places = search.ALL
    short = search.shortness(session) if len(index) > FEW_ENOUGH else None
    if short is None or short > search.NEGLIGIBLE:
        in_groups = shelf.scores(question.terms, groups=groups)[groups]
        sessions = np.concatenate(
            (in_groups, index.lexical.scores(question.terms, groups=session)[session])
        )
    places = np.arange(len(index) if short is None else 0)
    if short is not None:
        telling = [scores[first:] for scores in (words, sessions) if scores is not None]
        places, sample = _worth_a_look(searched, question, telling, similar)
        sample += first
    chosen = np.concatenate((np.arange(first), first + places))
    of_all: search.Places = search.ALL
    if shelf.unlisted.texts:
        typical = np.flatnonzero([_is_typical(other) for other in elsewhere])
        of_all = np.concatenate((typical, np.arange(first, first + len(index))))
        sample = np.concatenate(
            (typical, np.arange(first, len(chosen)) if isinstance(sample, slice) else sample)
        )
        short = search.shortness(session) if short is None and len(index) else short
    texts = _texts(
        elsewhere, shelf, groups, index.speakers, index.texts(searched.costs, places, session)
    )
    compared = similar.own.compared(similar.others, places) if similar else None
    dense = compared.cosines(similar.target) if similar and compared else None
    together = None if sessions is None else search.z_scores(sessions, of_all, chosen)
    meaning = None if dense is None else search.z_scores(dense, sample)
    scores = search.z_scores(words, of_all, chosen), meaning, together
    alike = compared.to_mean if compared else None
    ranking = search.rank(texts, question, *scores, alike=alike, short=short, sample=sample)
    ranking = _with_priorities(ranking, elsewhere)
    about = search.about(question.terms)
    rare = index.lexical.rarities(about, shelf)
    shared = (
        words
        if len(about) == len(question.terms)
        else search.scores_together(shelf, index.lexical, about)
    )
    covered = np.concatenate((shelf.covered(rare), index.lexical.covered(rare, places)))
    are_of = [_are_of(kind, elsewhere, len(chosen)) for kind in ("documents", "conversations")]
    given = (about, shared[chosen], covered, sum(rare.values()), dense)
    days = search.dated(texts.day, question.dates)
    is_certain = (
        bool(question.speakers) or question.is_broad or question.refers_to(index.lexical.postings)
    )
    texts_there = shelf.size + len(index) if shelf.unlisted.texts else 0
    which = partial(search.Evidence.of, documents=are_of[0], elsewhere=are_of[1], days=days)
    evidence = which(*given, is_certain=is_certain, searched=texts_there)
    near = words[:first] > 0 if dense is None else (words[:first] > 0) | (dense[:first] >= SIMILAR)
    sayings = np.array([*map(_sayings_of, elsewhere)], np.int64).reshape(-1, 2)
    meant = np.concatenate((near, searched.quotable[places]))
    said = np.concatenate((sayings[:, 0], index.sayings.values[places]))
    folded = np.concatenate((sayings[:, 1], index.folded.values[places]))
    known = ranking, evidence, texts.costs + LINE_OVERHEAD_TOKENS, meant, said, folded
    likeness = (covered if dense is None else dense)[:first].clip(0, 1)
    return Pool(question, tuple(elsewhere), places, *known, searched, shelf, likeness, found=found)


def _sessions_of(elsewhere: Sequence[Other]) -> search.Numbers:
    """Returns the number of every text's session, from 0: texts of one title and day are one."""
    keys = [(other.source, other.date, other.title) for other in elsewhere]
    return np.cumsum(
        [bool(at) and key != keys[at - 1] for at, key in enumerate(keys)], dtype=np.int32
    )


def _asked(searched: Searched, query: str) -> search.Question:
    """Returns a message as it is understood in a conversation."""
    speakers = list(searched.index.speakers)
    return search.Question.of(
        search.spelled(query, speakers, searched.index.lexical.postings), speakers, searched.today
    )


def _with_priorities(ranking: search.Ranking, elsewhere: Sequence[Other]) -> search.Ranking:
    """Returns a ranking in which texts from elsewhere, the first ones, have a part for their kind."""
    if not elsewhere:
        return ranking
    low = min(search.PRIORITIES.values())
    high = max(search.PRIORITIES.values())
    weights = np.array([search.PRIORITIES[other.kind] - low for other in elsewhere]) / (high - low)
    return ranking.with_part(
        "priority", np.pad(PRIORITY_WEIGHT * weights, (0, len(ranking.keys) - len(elsewhere)))
    )


def _are_of(source: str, elsewhere: Sequence[Other], size: int) -> NDArray[np.bool_]:
    """Returns which of so many texts, of which the first ones are from elsewhere, are of a source."""
    is_of = np.zeros(size, np.bool_)
    is_of[: len(elsewhere)] = [other.source == source for other in elsewhere]
    return is_of


def _shelf_of(
    elsewhere: Sequence[Other], asked: Sequence[str], found: Elsewhere
) -> search.LexicalIndex:
    """Returns the words of a question in texts from elsewhere.

    In how rare they are, all messages there count.
    """
    shelf = search.LexicalIndex()
    listed = Counter[str]()
    texts = total_length = 0
    for other in elsewhere:
        if isinstance(other, OtherMessage):
            counts = other.lexical.counts_of(other.place, asked)
            shelf.add_counted(counts, other.length, other.distinct)
            listed.update(counts.keys())
            texts += 1
            total_length += other.length
        else:
            shelf.extend([_terms_of(searched_text(other.speaker, other.text))], asked)
    every = found.looked_through
    if every.texts > texts:
        left = {term: max(0, number - listed[term]) for term, number in every.counts.items()}
        shelf.unlisted = search.UnlistedTexts(
            every.texts - texts, every.total_length - total_length, left
        )
    return shelf


def _is_typical(other: Other) -> bool:
    """Tells whether a text stands for others, too.

    Those that were chosen for their words stand for none.
    """
    return other.is_typical if isinstance(other, OtherMessage) else other.source != "conversations"


def _sayings_of(other: Other) -> tuple[int, int]:
    return other.saying if isinstance(other, OtherMessage) else _saying(other.speaker, other.text)


def _worth_a_look(
    searched: Searched,
    question: search.Question,
    found: Sequence[search.Scores],
    similar: Similar | None,
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Returns the places of messages that may be worth quoting, and which of them are a few that stand for all."""
    size = len(searched.index)
    chosen = np.zeros(size, np.bool_)
    sampled = np.arange(0, size, max(1, size // SAMPLED))
    chosen[sampled] = chosen[-search.NEWEST :] = True
    beside = np.arange(-search.NEIGHBOURHOOD, search.NEIGHBOURHOOD + 1)
    for scores in (*found, *([similar.own.likeness(similar.target)] if similar else ())):
        best = search.highest(
            np.flatnonzero(scores > 0), scores, LOOKED_AT
        )  # most have none of the words
        chosen[best] = True
        chosen[(best[:WITH_NEIGHBOURS, np.newaxis] + beside).clip(0, size - 1)] = True
    if question.dates:
        near = search.dated(searched.index.days.values, question.dates)
        chosen[search.highest(np.flatnonzero(near), near, LOOKED_AT)] = True
    return (places := np.flatnonzero(chosen)), np.searchsorted(places, sampled)


def without_names(query: str, names: Iterable[str]) -> str:
    """Returns a query without the speakers' names; the query itself where nothing else is in it."""
    spoken = {one for own in search.called(list(names)) for one in own}
    pattern = "|".join(re.escape(name) for name in sorted({*names, *spoken}, key=len, reverse=True))
    rest = re.sub(rf"(?<!\w)(?:{pattern})(?:['’]s)?(?!\w)", "", query) if pattern else query  # noqa: RUF001
    return rest if rest.strip() else query


def _texts(
    others: Sequence[Other],
    shelf: search.LexicalIndex,
    groups: search.Numbers,
    speakers: Mapping[str, int],
    own: search.Texts,
) -> search.Texts:
    """Returns the circumstances of texts; what lies elsewhere is older than the conversation."""
    if not others:
        return own
    steps = [1, *(_distance(before, other) for before, other in pairwise(others))]
    places = np.cumsum(steps, dtype=np.intp) - 1
    elsewhere = search.Texts(
        session=groups,
        costs=np.array([*map(_tokens_of, others)], np.int32),
        distinct=shelf.distinct,
        speaker=np.array([speakers.get(other.speaker, -1) for other in others], np.int32),
        first_person=np.array([*map(_first_person_of, others)], np.float32),
        day=np.array([search.day_number(other.date) for other in others], np.int32),
        place=places,
        opens=np.diff(groups, prepend=-1) != 0,
    )
    own = replace(
        own, session=own.session + int(groups[-1]) + 1, place=own.place + int(places[-1]) + 1
    )
    parts = search.Texts.__dataclass_fields__
    return search.Texts(
        **{part: np.concatenate((getattr(elsewhere, part), getattr(own, part))) for part in parts}
    )


def _distance(before: Other, other: Other) -> int:
    """Returns how far a text is from the one before it.

    Messages that do not follow each other are no neighbours.
    """
    if (
        not (isinstance(before, OtherMessage) and isinstance(other, OtherMessage))
        or before.table is not other.table
    ):
        return 1
    return min(other.place - before.place, search.NEIGHBOURHOOD + 1)


def _tokens_of(other: Other) -> int:
    return (
        other.tokens
        if isinstance(other, OtherMessage)
        else len(other.text) // _CHARACTERS_PER_TOKEN + 1
    )


def _first_person_of(other: Other) -> float:
    return other.first_person if isinstance(other, OtherMessage) else _first_person(other.text)


def similarities(
    searched: Searched,
    query: str,
    embeddings: Embeddings,
    failures: list[str],
    others: Sequence[Other],
) -> Flow[Similar]:
    """Returns the vectors of all texts and of a query.

    No text is embedded twice, whatever came of it.
    """
    index = searched.index
    known = searched.elsewhere
    asked = without_names(
        search.spelled(query, list(index.speakers), index.lexical.postings), searched.names
    )
    known_query = searched.asked if searched.asked and searched.asked[0] == asked else None
    vector = known_query[1] if known_query else (yield from embed_query(embeddings, asked))
    name = f"{embeddings_name(embeddings)} {len(vector)}"
    own = index.vectors
    renewed = index.embedded_by(name)
    keys, texts_of, found = _known_vectors(others, name, known)
    target = search.as_query(vector, own.width or next((len(row) for row in found.values()), 0))
    if isinstance(embeddings, search.LocalEmbeddings):
        words = (
            (word, terms(word)) for word in islice(dict.fromkeys(_WORD.findall(asked)), MOST_WORDS)
        )
        if rare := {
            word: max(index.lexical.rarities(stems).values()) for word, stems in words if stems
        }:
            by_words = search.units(np.asarray(embeddings.embed_words(rare), np.float32))
            target = RARE_SHARE * by_words + (1 - RARE_SHARE) * search.units(target)
    lost = 0
    while texts := index.texts_to_embed(searched.entries):
        rows = search.comparable((yield from embed(embeddings, texts)), target.size)
        lost += _without_vector(texts, rows)
        own.extend(rows)
        if len(texts) <= REMEMBERED_TEXTS // 8:  # other conversations will look at them
            keyed = zip(texts, rows, strict=True)
            known |= {digest(f"{name} {text}"): row for text, row in keyed if row.any()}
    missing = {key: text for key, text in texts_of.items() if key not in found}
    rows = search.comparable((yield from embed(embeddings, [*missing.values()])), target.size)
    if len(known) > REMEMBERED_TEXTS:
        known.clear()
    found |= zip(missing, rows, strict=True)
    known |= {key: found[key] for key in missing if isinstance(key, bytes) and found[key].any()}
    if lost := lost + _without_vector([*missing.values()], rows):
        failures.append(
            f"embeddings: no usable vector for {lost} texts, found by their words alone"
        )
    elif renewed:
        failures.append(RENEWED)
    rows = np.array([found[key] for key in keys], np.float32).reshape(len(keys), target.size)
    return Similar(target, own, rows)


def _known_vectors(
    others: Sequence[Other], name: str, known: Mapping[bytes, search.Vectors]
) -> tuple[list[int | bytes], dict[int | bytes, str], dict[int | bytes, search.Vectors]]:
    """Returns a key for each text, the texts by key that may have to be embedded, and the vectors that are known."""
    keys: list[int | bytes] = []
    texts: dict[int | bytes, str] = {}
    found: dict[int | bytes, search.Vectors] = {}
    for number, other in enumerate(others):
        if (
            isinstance(other, OtherMessage)
            and other.vector is not None
            and other.vectors_by == name
        ):
            keys.append(number)
            found[number] = other.vector
            continue
        key = digest(f"{name} {other.text}")
        keys.append(key)
        texts[key] = other.text
        if (row := known.get(key)) is not None:
            found[key] = row
    return keys, texts, found


def _without_vector(texts: Sequence[str], rows: search.Vectors) -> int:
    """Returns how many texts have no vector though they say something."""
    return sum(bool(texts[number].strip()) for number in np.flatnonzero(~rows.any(axis=1)).tolist())
