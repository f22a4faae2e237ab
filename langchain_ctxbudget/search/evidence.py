"""How likely a text is needed for a message, as a probability: what has nothing to do with it stays out.

Ranks are relative, and half of all texts are above the average for "ok thanks". What counts here is absolute: how much
rare words the message shares with the best texts by their weight in this conversation, how far it leaves the current
subject, and that the best text is needed far more often than the hundredth. A logistic regression on the five
conversations of RealMem (Apache-2.0; 600 turns, 212 evidence turns), of which each was predicted from the other four.
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
WEAK, DISTINCT = -5.3, 0.02
"""Below this, in log-odds, a message has hardly anything to do with what was said, unless a text has words of it that
few others have."""
FULL = 0.5
"""How likely a text is needed that alone has all that the message is about."""
_PHATIC = (
    "afternoon alright amazing awesome bye cool dear evening everyone fine glad go going good goodbye got great haha "
    "happy hello hey hi know like lol lot love morning much need nice night no nope now oh ok okay perfect please "
    "really right see sorry sound sure tell thank thanks thankyou thing think thx today want way welcome well wow yeah "
    "yep yes"
)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What speaks for quoting anything at all for a message, and for each text."""

    strength: float
    """Of the message, in log-odds."""
    distinct: Scores
    """How likely each text is needed because it has words of the message that few others have; shape `(texts,)`."""

    @classmethod
    def of(cls, asked: Iterable[str], words: Scores, weight: float, cosines: Scores | None) -> Evidence:
        """Weighs a message against texts in the order of time, the newest messages last.

        By its terms that are about something, the BM25 score of every text for these, what a text would have that has
        all of them, and the likeness of every text, where that is known.
        """
        older = max(0, len(words) - NEWEST)
        change = 0.0
        if cosines is not None and older:
            change = _best(cosines[:older], BEST) - _best(cosines[older:], NEWEST_BEST)
        shared = np.log1p(_best(words[:older], BEST))
        count = len(dict.fromkeys(asked))
        share = np.minimum(words / weight, 1.0) if weight > 0 else np.zeros(len(words))
        alike = len(words) - np.searchsorted(np.sort(words), words)  # texts with as much of the message, or more
        return cls(
            strength=float(BASE + PER_WORDS * shared + PER_TERM * np.log1p(count) + PER_CHANGE * change),
            distinct=FULL * (share / alike) ** 2,
        )

    @property
    def is_weak(self) -> bool:
        """Hardly anything that was said has to do with the message."""
        return self.strength < WEAK and bool(self.distinct.max(initial=0.0) < DISTINCT)

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
