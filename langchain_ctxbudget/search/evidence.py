"""How likely a text is needed for a message, as a probability: what has nothing to do with it stays out.

Ranks are relative; what counts here is absolute. Two logistic regressions on the conversations of RealMem (Apache-2.0):
of 212 evidence turns, and of 341 questions against small talk and general knowledge (docs/internals/decisions.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from langchain_ctxbudget.messages import terms
from langchain_ctxbudget.search.ranking import Scores

BASE, PER_RANK, PER_WORDS, PER_TERM, PER_CHANGE, PER_LENGTH = -6.32, -1.12, 1.71, -0.69, 2.07, 0.34
BEST, NEWEST, NEWEST_BEST = 10, 6, 2
"""Texts that show what there is; newest messages, which the message may go on with; the best of these."""
RELATED, PER_SHARED, PER_COSINE = -10.5, 4.34, 6.45
"""A message has to do with what was said by the words that its best text shares, and the cosine of its nearest."""
TYPICAL_COSINE, TYPICAL_TEXTS = 0.38, 600
"""Where no cosine is known; and a conversation's length where the weight of words is as it is."""
NAMED_WORDS, ALL_WORDS, LEAST_COVERED, LEAST_WEIGHT = 0.5, 0.95, 0.45, 8.0
"""A document that has so much of the message by the weight of its words is what the message is about; so is any text,
however long, that has all of it, or about half of it and two rare words or more."""
FULL = 0.5
"""How likely a text is needed that alone has all that the message is about."""
_PHATIC = (
    "absolutely afternoon agree alright amazing appreciate awesome bye cool course dear definitely evening everyone "
    "exactly fine glad go going good goodbye got great haha happy hello help helpful hey hi know like lol lot love "
    "morning much need next nice night no nope now oh ok okay perfect please really right see sorry sound sure tell "
    "thank thanks thankyou thing think thx today understand want way welcome well wow yeah yep yes"
)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What speaks for quoting anything at all for a message, and for each text."""

    strength: float
    """Of the message, in log-odds."""
    distinct: Scores
    """How likely each text is needed because it has words of the message that few others have; shape `(texts,)`."""
    is_weak: bool
    """Hardly anything that was said has to do with the message."""

    @classmethod
    def of(
        cls,
        asked: Iterable[str],
        words: Scores,
        covered: Scores,
        weight: float,
        cosines: Scores | None,
        *,
        documents: NDArray[np.bool_],
        names_speaker: bool,
    ) -> Evidence:
        """Weighs a message against texts in the order of time, the newest messages last.

        By the terms that it asks for, the BM25 score of every text for these, the share of them that it has by weight,
        the weight of them all, and the likeness of every text, where that is known.
        """
        older = max(0, len(words) - NEWEST)
        per_word = np.log1p(TYPICAL_TEXTS) / np.log1p(max(1, len(words)))  # a rare word weighs more among many texts
        change = 0.0
        if cosines is not None and older:
            change = _best(cosines[:older], BEST) - _best(cosines[older:], NEWEST_BEST)
        shared = np.log1p(_best(words[:older], BEST))
        asked = dict.fromkeys(asked)
        share = np.minimum(words / weight, 1.0) if weight > 0 else np.zeros(len(words))
        has_rare = (covered >= LEAST_COVERED) & (covered * weight * per_word >= LEAST_WEIGHT)
        share = np.where(has_rare, np.maximum(covered, share), share)
        alike = len(share) - np.searchsorted(np.sort(share), share)  # texts with as much of the message, or more
        highest = words[:older].max(initial=0.0) * per_word
        nearest = TYPICAL_COSINE if cosines is None else cosines[:older].max(initial=0.0)
        is_related = RELATED + PER_SHARED * np.log1p(highest) + PER_COSINE * nearest > 0
        is_certain = names_speaker or bool(
            has_rare.any() or (covered >= ALL_WORDS).any() or (share[documents] >= NAMED_WORDS).any()
        )
        return cls(
            strength=float(BASE + PER_WORDS * shared + PER_TERM * np.log1p(len(asked)) + PER_CHANGE * change),
            distinct=FULL * share**2 / np.where(documents, alike, alike**2),
            is_weak=not (is_related or is_certain),
        )

    def probabilities(self, order: NDArray[np.intp], costs: NDArray[np.int32]) -> Scores:
        """Returns how likely texts are needed, given in the order of their worth; costs are in tokens."""
        ranks = np.arange(len(order))
        odds = self.strength + PER_RANK * np.log1p(ranks) + PER_LENGTH * np.log(np.maximum(costs, 1))
        likely: Scores = np.maximum(1 / (1 + np.exp(-odds)), self.distinct[order])
        return likely


def about(question: Sequence[str]) -> list[str]:
    """Returns the terms of a message that are about something."""
    return [term for term in question if term not in _phatic()]


@cache
def _phatic() -> frozenset[str]:
    """Returns the terms that keep a talk going and are about nothing."""
    return frozenset(terms(_PHATIC))


def _best(scores: Scores, most: int) -> float:
    """Returns the mean of the highest scores; 0 of none."""
    if not len(scores):
        return 0.0
    highest = np.partition(scores, len(scores) - most)[-most:] if len(scores) > most else scores
    return float(highest.mean())
