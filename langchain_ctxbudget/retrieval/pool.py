"""All texts that may be quoted for a message, in one ranking.

They are the messages of the conversation, and texts from elsewhere: messages of other
conversations, memories and documents.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from langchain_core.embeddings import Embeddings
from numpy.typing import NDArray

from langchain_ctxbudget import search
from langchain_ctxbudget.flow import Flow, in_thread, with_fallback
from langchain_ctxbudget.history import NOWHERE, Elsewhere, Entry, OtherMessage
from langchain_ctxbudget.messages import stands_alone, terms
from langchain_ctxbudget.retrieval.searched import (
    Other,
    Searched,
    counts_of,
    digest_of,
    document_of,
    first_person_of,
    question_of,
    saying_of,
    stands_for_others,
    tokens_of,
)
from langchain_ctxbudget.retrieval.similarity import Similar, similarities

NEAR_COSINE = 0.25
"""The least cosine to the question of a text from elsewhere that is quoted without having any of
its words."""
ALL_RANKED_UP_TO = 4_096
"""The most messages of a conversation that are all ranked; of more, only promising ones are."""
BEST_PER_SCORE = 512
"""How many messages are promising for each score: that of their words, their session, their meaning
and their date. About as many more are ranked as a sample of all messages."""
BEST_WITH_NEIGHBOURS = BEST_PER_SCORE // 8
"""How many of these have their neighbours ranked, too."""
MOST_WITH_IDENTIFIER = 64
"""An identifier that more messages may have than so many tells none of them apart."""
NamedDocument: TypeAlias = tuple[search.Candidate | None, search.Candidate]
"""A document that a message names: all of it (None if that is too large), and its summary."""


@dataclass(frozen=True, slots=True)
class Pool:
    """All texts that may be quoted for a message, and what they are worth.

    Texts are numbered: those from elsewhere first, then the ranked messages of the conversation.
    Unless a field says otherwise, its array has a value for each text, in this order.
    """

    question: search.Question
    others: tuple[Other, ...]
    """The texts from elsewhere."""
    places: NDArray[np.intp]
    """The positions of the ranked messages, ascending; in a large conversation only promising ones
    are ranked."""
    ranking: search.Ranking
    evidence: search.Evidence
    costs: search.Numbers
    """About the tokens of the line that quotes each text."""
    may_be_quoted: NDArray[np.bool_]
    """True for messages that may be quoted, and for texts from elsewhere that are near the
    question."""
    sayings: NDArray[np.int64]
    """A digest of who says what, so that texts that repeat each other have the same."""
    wordings: NDArray[np.int64]
    """A digest of what each text says, whoever says it."""
    searched: Searched
    """The messages of the conversation."""
    index_elsewhere: search.LexicalIndex
    """The words of the question in the texts from elsewhere."""
    likeness: search.Scores = field(default_factory=lambda: np.zeros(0))
    """How near each text from elsewhere is to the question, 0 to 1: its cosine or, without vectors,
    the share of the question's words that it has."""
    named_documents: tuple[NamedDocument, ...] = ()
    """The documents that the message names; they are quoted before all ranked texts."""
    other_conversations: Elsewhere = NOWHERE
    """The search through other conversations that has found some of the texts."""
    need_inputs: search.NeedInputs | None = None
    """What `evidence.need` was worked out from."""

    def position(self, number: int) -> int | None:
        """Returns a text's position in the conversation; None for a text from elsewhere."""
        if number < len(self.others):
            return None
        return int(self.places[number - len(self.others)])

    def text(self, number: int) -> Other | Entry:
        """Returns a text by its number."""
        position = self.position(number)
        return self.others[number] if position is None else self.searched.entries[position]

    def best(self, scores: search.Scores, most: int) -> list[int]:
        """Returns the numbers of texts that may be quoted, those with the highest scores first."""
        candidates = np.flatnonzero(self.may_be_quoted)
        numbers: list[int] = search.highest(candidates, scores, most).tolist()
        return numbers


def gather(
    searched: Searched,
    query: str,
    embeddings: Embeddings | None,
    failures: list[str],
    others: Iterable[Other],
    *,
    found: Elsewhere = NOWHERE,
) -> Flow[Pool]:
    """Ranks messages and texts from elsewhere, with the vectors that it makes for that.

    Without embeddings, or if they fail, words alone decide.

    Args:
        searched: The messages of the conversation.
        query: The text that the others are ranked for.
        embeddings: The embeddings that make the vectors.
        failures: Gets a line if the embeddings fail.
        others: Texts from elsewhere.
        found: The search through other conversations that has found some of them.
    """
    elsewhere = _each_once(others, searched.index.text_digests)
    if not search.is_need_loaded():
        yield in_thread(search.load_need)
    similar = None
    if embeddings is not None and (elsewhere or searched.entries):
        comparing = similarities(searched, query, embeddings, failures, elsewhere)
        similar = yield from with_fallback(comparing, None, "embeddings", failures)
    return pooled(searched, query, elsewhere, similar, found)


def _each_once(others: Iterable[Other], in_conversation: set[int]) -> list[Other]:
    """Returns the texts from elsewhere that the conversation does not have, in the pool's order.

    Texts that say the same, such as messages of forks, are in it once: the most important one, or
    the newest message. `in_conversation` has the digests of what the conversation says.
    """
    by_digest = {digest_of(other): other for other in sorted(others, key=_importance)}
    new = [other for digest, other in by_digest.items() if digest not in in_conversation]
    return sorted(new, key=_pool_order)


def _importance(other: Other) -> tuple[int, str, int, int]:
    """Returns a sort key by which the most important and newest text comes last."""
    age = other.age if isinstance(other, OtherMessage) else -1
    return search.PRIORITIES[other.kind], other.date or "", age, other.place


def _pool_order(other: Other) -> tuple[str, int, str, str, int]:
    """Returns a sort key by which the messages of one conversation come together."""
    if isinstance(other, OtherMessage):
        return other.source, other.age, other.title, "", other.place
    return other.source, -1, other.date or "", f"{other.title}\n{document_of(other)}", other.place


def pooled(
    searched: Searched,
    query: str,
    elsewhere: Sequence[Other] = (),
    similar: Similar | None = None,
    found: Elsewhere = NOWHERE,
) -> Pool:
    """Ranks messages and texts from elsewhere, by their words and, if known, by their vectors.

    Args:
        searched: The messages of the conversation.
        query: The text that the others are ranked for.
        elsewhere: Texts from elsewhere, in the pool's order.
        similar: The vectors of the query and of all texts; None where words alone decide.
        found: The search through other conversations that has found some of them.
    """
    question = question_of(searched, query)
    corpus = _Corpus(searched, question, elsewhere, found)
    session_scores = corpus.scores_of_sessions()
    ranked = _texts_to_rank(corpus, session_scores, similar)
    texts = _ranked_texts(corpus, ranked.places)
    alike = None
    cosines = None
    if similar is not None:
        compared = similar.compared(ranked.places)
        alike = compared.to_mean
        cosines = compared.cosines()

    ranking = _ranking(
        corpus, ranked, texts, session_scores=session_scores, cosines=cosines, alike=alike
    )
    matches = _matches(corpus, ranked, cosines, texts.day)
    first = corpus.first_message
    is_near = _are_near(corpus.word_scores[:first], cosines)
    likeness = matches.covered if cosines is None else cosines
    digests = np.array([saying_of(other) for other in elsewhere], np.int64).reshape(-1, 2)
    index = searched.index
    may_be_quoted = np.concatenate((is_near, searched.quotable[ranked.places]))
    need_inputs = _need_inputs(corpus, ranked, matches, may_be_quoted)
    need = 1.0 if question.is_broad else search.probability_of_need(need_inputs)
    evidence = search.Evidence.of(matches, need, searched=corpus.size_with_unlisted)
    return Pool(
        question=question,
        others=tuple(elsewhere),
        places=ranked.places,
        ranking=_with_priorities(_without_age_of_documents(ranking, elsewhere), elsewhere),
        evidence=evidence,
        costs=texts.costs + search.LINE_OVERHEAD_TOKENS,
        may_be_quoted=may_be_quoted,
        sayings=np.concatenate((digests[:, 0], index.sayings.values[ranked.places])),
        wordings=np.concatenate((digests[:, 1], index.folded.values[ranked.places])),
        searched=searched,
        index_elsewhere=corpus.index_elsewhere,
        likeness=likeness[:first].clip(0, 1),
        other_conversations=found,
        need_inputs=need_inputs,
    )


class _Corpus:
    """All texts that are searched for a question.

    They are numbered: first those from elsewhere, then all messages of the conversation. In the
    pool only ranked messages are numbered, so a message may have another number there.
    """

    def __init__(
        self,
        searched: Searched,
        question: search.Question,
        elsewhere: Sequence[Other],
        other_conversations: Elsewhere,
    ) -> None:
        self.searched = searched
        self.index = searched.index
        self.question = question
        self.elsewhere = elsewhere
        self.first_message = len(elsewhere)
        """The number of the conversation's first message."""
        self.index_elsewhere = _index_of(elsewhere, question.terms, other_conversations)
        self.sessions_elsewhere = _sessions_of(elsewhere)
        """The number of the session of each text from elsewhere."""
        self.sessions_here = self.index.subjects()
        """The number of the session of each message; a subject counts as a session."""

    @property
    def is_large(self) -> bool:
        """Tells whether there are so many messages that only promising ones are ranked."""
        return len(self.index) > ALL_RANKED_UP_TO

    @property
    def size_with_unlisted(self) -> int:
        """The number of all texts that were searched, with those in other conversations.

        It is 0 if all of these are among the texts from elsewhere.
        """
        if not self.index_elsewhere.unlisted.texts:
            return 0
        return self.index_elsewhere.size + len(self.index)

    @cached_property
    def shortness(self) -> float:
        """How short the sessions of the conversation are, see `search.shortness`."""
        return search.shortness(self.sessions_here)

    @cached_property
    def word_scores(self) -> search.Scores:
        """BM25 scores of all texts for the question."""
        return self.scores(self.question.terms)

    def scores(self, terms: Sequence[str]) -> search.Scores:
        """Returns BM25 scores of all texts for some terms."""
        return search.scores_together(self.index_elsewhere, self.index.lexical, terms)

    def unknown_share(self) -> float:
        """Returns the share of what the question is about that no text has, by rarity, 0 to 1."""
        about = search.about(self.question.terms)
        rarities = self.index.lexical.rarities(about, self.index_elsewhere)
        counts = {
            term: self.index.lexical.count(term) + self.index_elsewhere.count(term)
            for term in rarities
        }
        unknown = sum(rarity for term, rarity in rarities.items() if not counts[term])
        return unknown / max(sum(rarities.values()), 1e-9)

    def scores_of_sessions(self) -> search.Scores | None:
        """Returns for each text the BM25 score of its session, taken as one text.

        Returns None for a large conversation with sessions so long that their scores say next to
        nothing.
        """
        if self.is_large and self.shortness <= search.NEGLIGIBLE:
            return None
        terms = self.question.terms
        scores_elsewhere = self.index_elsewhere.scores(terms, groups=self.sessions_elsewhere)
        scores_here = self.index.lexical.scores(terms, groups=self.sessions_here)
        return np.concatenate(
            (scores_elsewhere[self.sessions_elsewhere], scores_here[self.sessions_here])
        )


def _sessions_of(elsewhere: Sequence[Other]) -> search.Numbers:
    """Returns the number of each text's session, from 0.

    Neighbours of the same source, date and title are in one session; of documents, chunks of one.
    """
    sessions: list[int] = []
    session = 0
    key_before = None
    for other in elsewhere:
        key = (other.source, other.date, other.title, document_of(other))
        if key_before is not None and key != key_before:
            session += 1
        sessions.append(session)
        key_before = key
    return np.array(sessions, np.int32)


def _index_of(
    elsewhere: Sequence[Other], terms: Sequence[str], other_conversations: Elsewhere
) -> search.LexicalIndex:
    """Returns an index of some terms in texts from elsewhere.

    How rare a term is depends on all messages of other conversations, also on those that are not
    among these texts.
    """
    index_elsewhere = search.LexicalIndex()
    messages = 0
    total_length = 0
    messages_with = Counter[str]()
    for other in elsewhere:
        if isinstance(other, OtherMessage):
            counts = other.lexical.counts_of(other.place, terms)
            index_elsewhere.add_counted(counts, other.length, other.distinct_terms)
            messages += 1
            total_length += other.length
            messages_with.update(counts.keys())
        else:
            index_elsewhere.extend([counts_of(other)], terms)
    all_messages = other_conversations.looked_through
    if all_messages.texts > messages:
        index_elsewhere.unlisted = search.UnlistedTexts(
            texts=all_messages.texts - messages,
            total_length=all_messages.total_length - total_length,
            counts={
                term: max(0, number - messages_with[term])
                for term, number in all_messages.counts.items()
            },
        )
    return index_elsewhere


@dataclass(frozen=True, slots=True)
class _Ranked:
    """Which texts are ranked, and a sample that shows the mean and the deviation of scores.

    Texts that were chosen for a high score are not in the sample.
    """

    places: NDArray[np.intp]
    """The positions of the messages that are ranked."""
    numbers: NDArray[np.intp]
    """The numbers, among all texts, of those that are ranked."""
    sample: search.Places
    """The places of the sample among the ranked texts."""
    sample_of_all: search.Places
    """The numbers of a larger sample, for scores that are known of all texts."""
    session_shortness: float | None
    """The shortness of the sessions of all messages; None if the ranked texts show it."""


def _texts_to_rank(
    corpus: _Corpus, session_scores: search.Scores | None, similar: Similar | None
) -> _Ranked:
    """Returns which texts are ranked: all, or in a large conversation only promising messages."""
    first = corpus.first_message
    messages = len(corpus.index)
    places = np.arange(messages)
    sample: search.Places = search.ALL
    sample_of_all: search.Places = search.ALL
    session_shortness = None
    if corpus.is_large:
        message_scores = [corpus.word_scores[first:]]
        if session_scores is not None:
            message_scores.append(session_scores[first:])
        places, sampled = _promising(corpus, message_scores, similar)
        sample = first + sampled
        session_shortness = corpus.shortness
    numbers = np.concatenate((np.arange(first), first + places))

    if corpus.index_elsewhere.unlisted.texts:
        # Most texts from elsewhere were chosen for their words. They must not be in a sample.
        typical = np.flatnonzero([stands_for_others(other) for other in corpus.elsewhere])
        if isinstance(sample, slice):
            sample = np.arange(first, len(numbers))
        sample = np.concatenate((typical, sample))
        sample_of_all = np.concatenate((typical, np.arange(first, first + messages)))
        if messages:
            session_shortness = corpus.shortness
    return _Ranked(
        places=places,
        numbers=numbers,
        sample=sample,
        sample_of_all=sample_of_all,
        session_shortness=session_shortness,
    )


def _promising(
    corpus: _Corpus, message_scores: Sequence[search.Scores], similar: Similar | None
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Returns the positions of the messages that are ranked, and the places of a sample among them.

    Besides promising messages, these are the newest ones and the sample.

    Args:
        corpus: The texts that are searched.
        message_scores: Scores of all messages; a message with one of the highest is promising.
        similar: The vectors of the messages and of the query, if they are known.
    """
    size = len(corpus.index)
    is_chosen = np.zeros(size, np.bool_)
    sampled = np.arange(0, size, max(1, size // BEST_PER_SCORE))
    is_chosen[sampled] = True
    is_chosen[-search.NEWEST :] = True

    all_scores: list[NDArray[np.float64] | NDArray[np.int16]] = [*message_scores]
    if similar is not None:
        all_scores += similar.likeness()
    neighbours = np.arange(-search.NEIGHBOURHOOD, search.NEIGHBOURHOOD + 1)
    for scores in all_scores:
        candidates = np.flatnonzero(scores > 0)  # most messages have none of the words
        best = search.highest(candidates, scores, BEST_PER_SCORE)
        is_chosen[best] = True
        beside = best[:BEST_WITH_NEIGHBOURS, np.newaxis] + neighbours
        is_chosen[beside.clip(0, size - 1)] = True
    if corpus.question.dates:
        near = search.dated(corpus.index.days.values, corpus.question.dates)
        is_chosen[search.highest(np.flatnonzero(near), near, BEST_PER_SCORE)] = True
    places = np.flatnonzero(is_chosen)
    return places, np.searchsorted(places, sampled)


def _ranking(
    corpus: _Corpus,
    ranked: _Ranked,
    texts: search.Texts,
    *,
    session_scores: search.Scores | None,
    cosines: search.Scores | None,
    alike: search.Alike | None,
) -> search.Ranking:
    """Returns the worth of the ranked texts, by how far each of their scores is from the mean.

    Args:
        corpus: The texts that are searched.
        ranked: Which of them are ranked.
        texts: What else is known of the ranked texts.
        session_scores: The scores of the sessions of all texts; None where they do not count.
        cosines: The cosines of the ranked texts to the question, if there are vectors.
        alike: Compares the ranked texts with some of them, if there are vectors.
    """
    sessions = None
    if session_scores is not None:
        sessions = search.z_scores(session_scores, ranked.sample_of_all, ranked.numbers)
    meaning = None
    if cosines is not None:
        meaning = search.z_scores(cosines, ranked.sample)
    return search.rank(
        texts,
        corpus.question,
        words=search.z_scores(corpus.word_scores, ranked.sample_of_all, ranked.numbers),
        meaning=meaning,
        sessions=sessions,
        alike=alike,
        session_shortness=ranked.session_shortness,
        sample=ranked.sample,
    )


def _ranked_texts(corpus: _Corpus, places: NDArray[np.intp]) -> search.Texts:
    """Returns session, costs, speaker and more of the texts from elsewhere and the ranked messages.

    Texts from elsewhere count as older than the conversation.
    """
    own = corpus.index.texts(corpus.searched.costs, places, corpus.sessions_here)
    others = corpus.elsewhere
    if not others:
        return own
    elsewhere = _texts_elsewhere(corpus)
    own = replace(
        own,
        session=own.session + int(elsewhere.session[-1]) + 1,
        place=own.place + int(elsewhere.place[-1]) + 1,
    )
    columns = {
        column.name: np.concatenate((getattr(elsewhere, column.name), getattr(own, column.name)))
        for column in fields(search.Texts)
    }
    return search.Texts(**columns)


def _texts_elsewhere(corpus: _Corpus) -> search.Texts:
    """Returns session, costs, speaker and more of the texts from elsewhere."""
    others = corpus.elsewhere
    begins_session = np.diff(corpus.sessions_elsewhere, prepend=-1) != 0
    speakers: Mapping[str, int] = corpus.index.speakers
    distances = [1]
    for before, other in pairwise(others):
        distances.append(_distance(before, other))
    return search.Texts(
        session=corpus.sessions_elsewhere,
        costs=np.array([tokens_of(other) for other in others], np.int32),
        distinct_terms=corpus.index_elsewhere.distinct_terms,
        speaker=np.array([speakers.get(other.speaker, -1) for other in others], np.int32),
        first_person=np.array([first_person_of(other) for other in others], np.float32),
        day=np.array([search.day_number(other.date) for other in others], np.int32),
        place=np.cumsum(distances, dtype=np.intp) - 1,
        # What is found first of a document opens nothing.
        opens=begins_session & ~_are_from("documents", others, len(others)),
    )


def _distance(before: Other, other: Other) -> int:
    """Returns how many places a text is behind the one before it.

    Messages of one conversation, and chunks of one document, are as far apart as they are there, so
    that only real neighbours count as neighbours.
    """
    if isinstance(before, OtherMessage) and isinstance(other, OtherMessage):
        is_one_text = before.table is other.table
    else:
        is_one_text = bool(document_of(other)) and document_of(before) == document_of(other)
    if not is_one_text:
        return 1
    return min(other.place - before.place, search.NEIGHBOURHOOD + 1)


def _without_age_of_documents(
    ranking: search.Ranking, elsewhere: Sequence[Other]
) -> search.Ranking:
    """Returns a ranking in which all documents are as old as the newest.

    They stand in the order of their titles, of which nothing follows.
    """
    recency = ranking.components.get("recency")
    are_documents = np.flatnonzero(_are_from("documents", elsewhere, len(elsewhere)))
    if recency is None or not len(are_documents):
        return ranking
    of_documents = recency[are_documents]
    raised = np.zeros_like(recency)
    raised[are_documents] = of_documents.max() - of_documents
    parts = {**ranking.components, "recency": recency + raised}
    return replace(ranking, keys=ranking.keys + raised, components=parts)


def _with_priorities(ranking: search.Ranking, elsewhere: Sequence[Other]) -> search.Ranking:
    """Returns a ranking in which the kinds of texts from elsewhere count, too.

    The most important kind adds 1 to the key of a text, the least important one 0, as a message of
    the conversation.
    """
    if not elsewhere:
        return ranking
    low = min(search.PRIORITIES.values())
    high = max(search.PRIORITIES.values())
    priorities = np.array([search.PRIORITIES[other.kind] for other in elsewhere])
    messages = len(ranking.keys) - len(elsewhere)
    part = np.pad((priorities - low) / (high - low), (0, messages))
    return ranking.with_part("priority", part)


def _matches(
    corpus: _Corpus, ranked: _Ranked, cosines: search.Scores | None, days: search.Numbers
) -> search.Matches:
    """Returns how much of what the question is about each ranked text has."""
    question = corpus.question
    about = search.about(question.terms)
    rarities = corpus.index.lexical.rarities(about, corpus.index_elsewhere)
    word_scores = corpus.word_scores
    if len(about) < len(question.terms):
        word_scores = corpus.scores(about)
    covered_elsewhere = corpus.index_elsewhere.covered(rarities)
    covered_here = corpus.index.lexical.covered(rarities, ranked.places)
    texts = len(ranked.numbers)
    return search.Matches(
        terms=rarities.keys(),
        words=word_scores[ranked.numbers],
        covered=np.concatenate((covered_elsewhere, covered_here)),
        weight=sum(rarities.values()),
        cosines=cosines,
        days=search.dated(days, question.dates),
        identified=_have_identifier(corpus, ranked),
        documents=_are_from("documents", corpus.elsewhere, texts),
        elsewhere=_are_from("conversations", corpus.elsewhere, texts),
    )


def _have_identifier(corpus: _Corpus, ranked: _Ranked) -> NDArray[np.bool_]:
    """Returns which of the ranked texts are messages with an identifier that the question names."""
    places: set[int] = set()
    ranked_places = set(ranked.places.tolist())
    for identifier in corpus.question.identifiers:
        with_its_words = corpus.index.lexical.having(terms(identifier), every=True)
        if len(with_its_words) <= MOST_WITH_IDENTIFIER:
            places.update(
                place
                for place in ranked_places.intersection(with_its_words)
                if stands_alone(identifier, corpus.searched.entries[place].text)
            )
    have_it = np.zeros(len(ranked.numbers), np.bool_)
    have_it[corpus.first_message :] = np.isin(ranked.places, [*places])
    return have_it


def _need_inputs(
    corpus: _Corpus,
    ranked: _Ranked,
    matches: search.Matches,
    may_be_quoted: NDArray[np.bool_],
) -> search.NeedInputs:
    """Returns what is known of how likely the message needs anything."""
    newest = len(corpus.index) - search.NEWEST_IN_PROMPT
    is_newest = np.zeros(len(ranked.numbers), np.bool_)
    is_newest[corpus.first_message :] = ranked.places >= newest
    question = corpus.question
    return search.NeedInputs(
        text=question.text,
        terms=len(matches.terms),
        rarity=matches.weight,
        unknown_share=corpus.unknown_share(),
        shares=matches.covered,
        words=matches.words,
        cosines=matches.cosines,
        is_older=may_be_quoted & ~is_newest,
        is_newest=is_newest,
        asks=question.asks,
        is_broad=question.is_broad,
    )


def _are_from(source: str, elsewhere: Sequence[Other], texts: int) -> NDArray[np.bool_]:
    """Returns which of so many texts are from a source; the first ones are those from elsewhere."""
    are_from = np.zeros(texts, np.bool_)
    are_from[: len(elsewhere)] = [other.source == source for other in elsewhere]
    return are_from


def _are_near(word_scores: search.Scores, cosines: search.Scores | None) -> NDArray[np.bool_]:
    """Returns which texts from elsewhere have a word of the question, or are near it in meaning.

    Args:
        word_scores: Their BM25 scores.
        cosines: The cosines of all texts to the question, if there are vectors.
    """
    has_words: NDArray[np.bool_] = word_scores > 0
    if cosines is None:
        return has_words
    return has_words | (cosines[: len(word_scores)] >= NEAR_COSINE)
