"""Whether anything that was said has to do with a message, and how likely each text is needed.

Ranks are relative; what counts here is absolute. The weights are those of two logistic regressions
on RealMem's conversations: of 212 evidence turns, and of 341 questions against small talk and
general knowledge (docs/internals/decisions.md).
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from langchain_ctxbudget.search.need import NEED_POLICY
from langchain_ctxbudget.search.ranking import FIRST_FOUND
from langchain_ctxbudget.search.scores import ALL, Places, Scores, z_scores

NEWEST = 6
"""The newest messages, which a message may simply go on with."""
NEWEST_BEST = 2
"""The best of the newest messages, whose mean cosine counts."""


@dataclass(frozen=True, slots=True)
class NeedWeights:
    """How likely a text is needed, in log-odds."""

    base: float = -6.3
    """For any text."""
    per_rank: float = -1.1
    """For the logarithm of a text's rank."""
    per_words: float = 1.7
    """For the logarithm of the mean BM25 score of the best texts."""
    per_term: float = -0.7
    """For the logarithm of the number of terms of the message."""
    per_change: float = 2.0
    """For the cosine by which the best texts are nearer to the message than the newest ones."""
    per_length: float = 0.3
    """For the logarithm of a text's tokens."""
    alone: float = 0.5
    """How likely a text is needed that alone has all that the message is about, 0 to 1."""


NEED = NeedWeights()


@dataclass(frozen=True, slots=True)
class StandingOutPolicy:
    """Which texts are surely what a message is about."""

    typical_texts: int = 600
    """Length of a conversation in which a word counts as it is; among more texts, rare ones count
    for more."""
    half: float = 0.5
    """Share of a message's words, by their rarity, with which a document is what it is about; with
    rare words, any text is."""
    almost_all: float = 0.9
    """Share of a message's words, not all of them frequent, with which any text is what it is
    about."""
    rare_weight: float = 8.0
    """Added rarity of about two words that few texts have."""
    one_rare_word: float = 4.0
    """Rarity of about one such word."""
    near_deviations: float = 1.5
    """Standard deviations above the mean from which the cosine of a text is unusually high."""


STANDING_OUT = StandingOutPolicy()


@dataclass(frozen=True, slots=True)
class Matches:
    """What texts have of a message; arrays have shape `(texts,)`, the newest messages last.

    The texts are all that were searched, or those of them that may be worth it.
    """

    terms: Collection[str]
    """What the message is about."""
    words: Scores
    """BM25 scores for the terms."""
    covered: Scores
    """The share of the terms that each text has, by how rare they are."""
    weight: float
    """How rare the terms are, added up."""
    cosines: Scores | None
    days: Scores
    """How much each text is of the days that the message names, from `dated`."""
    identified: NDArray[np.bool_]
    """True for texts that have an identifier of the message."""
    documents: NDArray[np.bool_]
    """True for texts of documents."""
    elsewhere: NDArray[np.bool_]
    """True for messages of other conversations."""

    @property
    def older(self) -> int:
        """The number of texts before the newest messages."""
        return max(0, len(self.words) - NEWEST)

    @property
    def are_of_days(self) -> NDArray[np.bool_]:
        """True for texts of the named day or, where there are none, of the named month."""
        are_nearest: NDArray[np.bool_] = self.days >= max(1.0, self.days.max(initial=0.0))
        return are_nearest


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence for quoting anything at all for a message, and for quoting each text."""

    strength: Scores
    """For quoting anything, in log-odds; for messages of other conversations, what was said there
    counts; `(texts,)`."""
    distinctness: Scores
    """How likely each text is needed because few others have as many words of the message, or as
    many beside an identifier of it, or are of a named day; `(texts,)`."""
    need: float
    """How likely the message needs anything older than the newest messages, 0 to 1."""
    stands_out: NDArray[np.bool_]
    """True for texts with about half of the message and rare words of it, and for those of a
    document that the message is about; `(texts,)`."""
    identified: NDArray[np.bool_]
    """True for texts that have an identifier of the message."""
    asked_for: NDArray[np.bool_]
    """True for texts of a day that the message names, or of a month."""
    are_related: NDArray[np.bool_]
    """True for texts that share a word with the message, or are unusually near to it in meaning."""

    @classmethod
    def of(cls, matches: Matches, need: float, *, searched: int = 0) -> "Evidence":
        """Weighs what texts have of a message.

        Args:
            matches: What the texts have of it.
            need: How likely it needs anything older than the newest messages, 0 to 1.
            searched: The number of texts that were searched, if the matches are only some of them.
        """
        # A rare word weighs more among many texts.
        texts = max(1, searched, len(matches.words))
        per_word = np.log1p(STANDING_OUT.typical_texts) / np.log1p(texts)
        has_rare = _has_rare_words(matches, per_word)
        share = _share_of_message(matches, has_rare)
        of_elsewhere = np.flatnonzero(matches.elsewhere[: matches.older])
        return cls(
            strength=np.where(
                matches.elsewhere, _strength(matches, of_elsewhere), _strength(matches, ALL)
            ),
            distinctness=_distinctness(matches, share),
            need=need,
            stands_out=has_rare | _are_named(matches, share, per_word),
            identified=matches.identified,
            asked_for=matches.are_of_days,
            are_related=_are_related(matches),
        )

    @property
    def is_weak(self) -> bool:
        """Tells whether hardly anything that was said has to do with the message."""
        return self.need < NEED_POLICY.nothing_below

    def probabilities(self, order: NDArray[np.intp], costs: NDArray[np.int32]) -> Scores:
        """Returns how likely texts are needed.

        Args:
            order: The numbers of the texts, the one of the most worth first.
            costs: The tokens of each, in the same order.
        """
        ranks = np.log1p(np.arange(len(order)))
        lengths = np.log(np.maximum(costs, 1))
        odds = self.strength[order] + NEED.per_rank * ranks + NEED.per_length * lengths
        likely: Scores = np.maximum(1 / (1 + np.exp(-odds)), self.distinctness[order])
        return likely


def _strength(matches: Matches, places: Places) -> float:
    """Returns what speaks for quoting any of the older texts at some places, in log-odds."""
    older = matches.older
    words = np.log1p(_mean_of_best(matches.words[:older][places], FIRST_FOUND))
    change = 0.0
    if matches.cosines is not None and older:
        best = _mean_of_best(matches.cosines[:older][places], FIRST_FOUND)
        change = best - _mean_of_best(matches.cosines[older:], NEWEST_BEST)
    return float(
        NEED.base
        + NEED.per_words * words
        + NEED.per_term * np.log1p(len(matches.terms))
        + NEED.per_change * change
    )


def _are_related(matches: Matches) -> NDArray[np.bool_]:
    """Returns which texts share a word with the message, or are unusually near to it in meaning."""
    have_words: NDArray[np.bool_] = matches.covered > 0
    if matches.cosines is None:
        return have_words
    are_near: NDArray[np.bool_] = z_scores(matches.cosines) >= STANDING_OUT.near_deviations
    return have_words | are_near


def _has_rare_words(matches: Matches, per_word: float) -> NDArray[np.bool_]:
    """Returns which texts have about half of the message, rare words among it."""
    has_many = matches.covered >= STANDING_OUT.half
    is_rare: NDArray[np.bool_] = (
        matches.covered * matches.weight * per_word >= STANDING_OUT.rare_weight
    )
    return has_many & is_rare


def _share_of_message(matches: Matches, has_rare: NDArray[np.bool_]) -> Scores:
    """Returns how much of the message each text has, 0 to 1; less where the text is long.

    Rare words count in full, however long the text is.
    """
    share = np.zeros(len(matches.words))
    if matches.weight > 0:
        share = np.minimum(matches.words / matches.weight, 1.0)
    return np.where(has_rare, np.maximum(matches.covered, share), share)


def _are_named(matches: Matches, share: Scores, per_word: float) -> NDArray[np.bool_]:
    """Returns which texts a message names: parts of its document, and texts with all its words."""
    are_of_document = matches.documents & (share >= STANDING_OUT.half)
    have_all_words: NDArray[np.bool_] = matches.covered >= STANDING_OUT.almost_all
    if matches.weight * per_word < STANDING_OUT.one_rare_word:
        return are_of_document
    return are_of_document | have_all_words


def _distinctness(matches: Matches, share: Scores) -> Scores:
    """Returns how likely each text is needed because few others have so much of the message.

    Parts of a document say the same more often than messages do, so their number counts less.
    """
    with_as_much = len(share) - np.searchsorted(np.sort(share), share)
    by_words = share**2 / np.where(matches.documents, with_as_much, with_as_much**2)
    are_of_days = matches.are_of_days
    by_days = are_of_days / max(1, are_of_days.sum())
    likely: Scores = np.maximum(by_words, by_days)
    likely[matches.identified] = np.maximum(
        likely[matches.identified], _by_identifiers(matches.covered[matches.identified])
    )
    return NEED.alone * likely


def _by_identifiers(covered: Scores) -> Scores:
    """Returns how likely each text that has an identifier of the message is needed for it, 0 to 1.

    The one with most other words of the message most likely says what is asked about it.

    Args:
        covered: The share of the message that each of these texts has.
    """
    with_as_much = len(covered) - np.searchsorted(np.sort(covered), covered)
    likely: Scores = 1 / with_as_much**2
    return likely


def _mean_of_best(scores: Scores, most: int) -> float:
    """Returns the mean of the highest scores; 0 of none."""
    if not len(scores):
        return 0.0
    if len(scores) > most:
        scores = np.partition(scores, len(scores) - most)[-most:]
    return float(scores.mean())
