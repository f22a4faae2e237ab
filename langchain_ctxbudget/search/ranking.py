"""Ranks texts for a message.

Each text gets a *relevance*, how like the question it is, and a *key*, how good a use of tokens it
is to quote it. Both are sums of parts: `RankingWeights` names them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from langchain_ctxbudget.search.dates import dated
from langchain_ctxbudget.search.question import Question
from langchain_ctxbudget.search.scores import ALL, Numbers, Places, Scores, highest, z_scores

Alike: TypeAlias = Callable[[NDArray[np.intp], Scores], Scores]
"""Returns how like some texts every text is, given the numbers of these and their weights."""
NEIGHBOURHOOD = 2
"""How many texts before a text, and how many behind it, lend it their scores."""
LINE_OVERHEAD_TOKENS = 4
"""About how many tokens the line of a quote costs besides its text."""
FIRST_FOUND = 10
"""To how many of the most relevant texts all others are compared: what is like them matters too."""
NEGLIGIBLE = 0.01
"""Sessions up to this `shortness` are too long to say anything about their texts."""


@dataclass(frozen=True, slots=True)
class RankingWeights:
    """The weights of the parts of relevance and of the key; 0 switches a part off."""

    lexical: float = 0.2
    """Of relevance: the words that a text shares with the question."""
    dense: float = 0.4
    """Of relevance: how near its meaning is to that of the question."""
    neighbours: float = 0.1
    """Of relevance: the words and the meaning of the texts beside it."""
    session_best: float = 0.25
    """Of relevance: the words and the meaning of the best text of its session."""
    session: float = 0.7
    """Of relevance: the words of its session."""
    session_alike: float = 0.6
    """Of relevance: how like the best texts its session is."""
    relevance: float = 1.5
    """Of the key: the logarithm of relevance."""
    length: float = 0.8
    """Taken off the key: the logarithm of its tokens, as a budget buys tokens and not items."""
    variety: float = 0.5
    """Of the key: the logarithm of its different words, as "Show me." says nothing."""
    speaker_length: float = 0.3
    """Taken off the key: how much longer than others this speaker's texts are."""
    speaker: float = 1.0
    """Of the key: the message names this speaker and no other."""
    first_person: float = 2.5
    """Of the key: the share of words such as "I" and "my"."""
    date: float = 1.5
    """Of the key: it is of a day that the message names."""
    opening: float = 1.2
    """Of the key: it opens its session."""
    recency: float = 0.25
    """Taken off the key: the logarithm of the number of sessions since."""


@dataclass(frozen=True, slots=True)
class RankingScale:
    """The measures by which parts of a key are scaled."""

    least_relevance: float = 0.2
    """Relevance is scaled to 0 to 1, and this is added before its logarithm is taken."""
    per_deviation: float = 0.2
    """A standard deviation of relevance adds this to that logarithm: a text that stands out may be
    long."""
    full_spread: float = 0.75
    """Length counts in full if the logarithms of costs have at least this standard deviation, and
    less if texts are of about one length, as a shorter one saves little then."""
    short_session: int = 8
    """A session of so many texts is still about one thing."""


RANKING_WEIGHTS = RankingWeights()
SCALE = RankingScale()


@dataclass(frozen=True, slots=True)
class Texts:
    """What is known of every text besides its words and its meaning.

    Texts are in the order of time; each array has shape `(texts,)`.
    """

    session: Numbers
    """The number of its session, from 0 and never falling."""
    costs: Numbers
    """Its tokens."""
    distinct_terms: Numbers
    """The number of its different terms."""
    speaker: Numbers
    """The number of its speaker, -1 where there is none."""
    first_person: NDArray[np.float32]
    """Words of the first person, as a share of all."""
    day: Numbers
    """Year * 10,000 + month * 100 + day, 0 where there is none."""
    place: NDArray[np.intp]
    """Its place among all texts, of which these may be only some."""
    opens: NDArray[np.bool_]
    """True for the first text of a session."""

    def __len__(self) -> int:
        return len(self.session)


@dataclass(frozen=True, slots=True)
class Ranking:
    """The worth of every text; each array has shape `(texts,)`."""

    keys: Scores
    """How good a use of tokens each text is: texts are quoted in the order of this."""
    relevance: Scores
    """How like the question each text is, whatever it costs."""
    components: Mapping[str, Scores] = field(default_factory=dict)
    """The parts that keys and relevance are sums of."""

    def scores(self, number: int) -> dict[str, float]:
        """Returns the parts of a text's relevance and key, by name."""
        return {name: round(float(part[number]), 3) for name, part in self.components.items()}

    def with_part(self, name: str, part: Scores) -> "Ranking":
        """Returns the ranking with one more part in its keys."""
        return replace(self, keys=self.keys + part, components={**self.components, name: part})


def shortness(session: Numbers) -> float:
    """Returns a measure of sessions: 1 if they are short on average, less the longer they are.

    The scores of a session say much of each text only if it is about one thing.
    """
    sessions = int(session[-1]) - int(session[0]) + 1
    return min(1.0, SCALE.short_session * sessions / len(session)) ** 2


def rank(
    texts: Texts,
    question: Question,
    words: Scores,
    meaning: Scores | None = None,
    sessions: Scores | None = None,
    *,
    alike: Alike | None = None,
    session_shortness: float | None = None,
    sample: Places = ALL,
    weights: RankingWeights = RANKING_WEIGHTS,
) -> Ranking:
    """Returns the relevance and the key of every text.

    Args:
        texts: What is known of the texts besides their words and their meaning.
        question: What is asked.
        words: How much of the question's words each text has, as z-scores.
        meaning: How near each text is to the question, as z-scores; None if no vectors are known:
            then the words count in its place.
        sessions: How much of the question's words each text's session has, as z-scores.
        alike: Compares all texts with some of them, where vectors are known.
        session_shortness: The `shortness` of the sessions of all texts, if `texts` are only some.
        sample: Those of the texts from which mean and deviation are taken, if not from all.
        weights: The weight of each part.
    """
    if not len(texts):
        return Ranking(np.zeros(0), np.zeros(0))
    if session_shortness is None:
        session_shortness = shortness(texts.session)
    if meaning is None:
        meaning = words

    words_and_meaning = words + meaning
    by_session = _Sessions(texts.session)
    session_scores = weights.session_best * by_session.best(words_and_meaning)
    if sessions is not None:
        session_scores += weights.session * sessions
    parts = {
        "lexical": weights.lexical * words,
        "dense": weights.dense * meaning,
        "neighbours": weights.neighbours * _lent_by_neighbours(texts, words_and_meaning),
        "session": session_shortness * session_scores,
    }
    if alike is not None and session_shortness > NEGLIGIBLE:
        likeness = _likeness_to_best(_sum(parts), alike)
        alike_sessions = z_scores(by_session.mean(likeness), sample)
        parts["session"] += weights.session_alike * session_shortness * alike_sessions
    relevance = _sum(parts)

    worth = _worth_per_token(texts, question, relevance, weights, session_shortness)
    worth["relevance"] += weights.relevance * SCALE.per_deviation * z_scores(relevance, sample)
    return Ranking(keys=_sum(worth), relevance=relevance, components={**parts, **worth})


def _sum(parts: Mapping[str, Scores]) -> Scores:
    """Returns the sum of parts, for every text."""
    total: Scores = np.add.reduce([*parts.values()])
    return total


class _Sessions:
    """Gives every text of a session one score, made of the scores of all texts of that session."""

    def __init__(self, session: Numbers) -> None:
        self._starts = np.flatnonzero(np.diff(session, prepend=session[:1] - 1))
        self._lengths = np.diff(self._starts, append=len(session))

    def best(self, scores: Scores) -> Scores:
        """Returns the best score in the session of every text."""
        best: Scores = np.maximum.reduceat(scores, self._starts)
        return np.repeat(best, self._lengths)

    def mean(self, scores: Scores) -> Scores:
        """Returns the mean score in the session of every text."""
        means: Scores = np.add.reduceat(scores, self._starts) / self._lengths
        return np.repeat(means, self._lengths)


def _lent_by_neighbours(texts: Texts, scores: Scores) -> Scores:
    """Returns, for every text, the sum of the scores of its neighbours in its session."""
    lent = np.zeros_like(scores)
    for distance in range(1, NEIGHBOURHOOD + 1):
        # Texts between these two may be missing, so their places decide.
        are_neighbours = texts.place[distance:] - texts.place[:-distance] <= NEIGHBOURHOOD
        are_neighbours &= texts.session[distance:] == texts.session[:-distance]
        lent[distance:] += scores[:-distance] * are_neighbours
        lent[:-distance] += scores[distance:] * are_neighbours
    return lent


def _likeness_to_best(relevance: Scores, alike: Alike) -> Scores:
    """Returns how like the most relevant texts every text is; the best of these count most."""
    best = highest(np.arange(len(relevance)), relevance, FIRST_FOUND)
    return alike(best, np.exp(relevance[best] - relevance[best].max()))


def _worth_per_token(
    texts: Texts,
    question: Question,
    relevance: Scores,
    weights: RankingWeights,
    session_shortness: float,
) -> dict[str, Scores]:
    """Returns the parts of the keys: what speaks for spending tokens on a text, and against it."""
    scaled = (relevance - relevance.min()) / (np.ptp(relevance) or 1.0)
    costs = np.log(texts.costs + LINE_OVERHEAD_TOKENS)
    spread = min(1.0, float(costs.std()) / SCALE.full_spread)
    sessions_since = (texts.session[-1] - texts.session).astype(np.float64)
    return {
        "relevance": weights.relevance * np.log(scaled + SCALE.least_relevance),
        "length": -weights.length * spread * costs,
        "variety": weights.variety * np.log1p(texts.distinct_terms.astype(np.float64)),
        "speaker_length": -weights.speaker_length * _length_of_speaker(texts),
        "speaker": weights.speaker * _is_by_named_speaker(texts, question),
        "first_person": weights.first_person * texts.first_person.astype(np.float64),
        "date": weights.date * dated(texts.day, question.dates),
        "opening": weights.opening * session_shortness * texts.opens,
        "recency": -weights.recency * session_shortness * np.log1p(sessions_since),
    }


def _length_of_speaker(texts: Texts) -> Scores:
    """Returns, for every text, how much longer its speaker's texts are than those of others.

    It is the logarithm of the speaker's mean costs, less the mean of these logarithms.
    """
    speakers = texts.speaker + 1  # 0 where there is none
    counts = np.bincount(speakers)
    mean_costs = np.bincount(speakers, texts.costs) / np.maximum(counts, 1)
    lengths = np.log(mean_costs + 1)
    lengths -= lengths[counts > 0].mean()
    of_texts: Scores = lengths[speakers]
    return of_texts


def _is_by_named_speaker(texts: Texts, question: Question) -> NDArray[np.bool_]:
    """Returns which texts are by the speaker whom a message names; none if it names several."""
    if len(question.speakers) != 1:
        return np.zeros(len(texts), np.bool_)
    return np.isin(texts.speaker, list(question.speakers))
