"""How likely a message needs anything older than the newest messages.

A logistic regression over signs of the message: how it is worded, and what older texts have in
common with it. It is trained on conversations that were written for this, in which each message of
the user names the older ones that it needs (`training/` in the repository).
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from langchain_ctxbudget.search.scores import Scores
from langchain_ctxbudget.sentences import Wording, score_of_wording

NEWEST_IN_PROMPT = 10
"""The newest messages, which stand in the prompt anyway."""
WEIGHTS_FILE = "search/need.npz"
SIGNS = (
    "terms",
    "rarity",
    "best share",
    "second share",
    "best rarity",
    "second rarity",
    "best cosine",
    "second cosine",
    "tenth cosine",
    "deviations of the best cosine",
    "cosine of the newest",
    "best words",
    "fifth words",
    "words above the newest",
    "share of unknown terms",
    "asks",
    "asks for everything",
    "wording",
)
"""What is known of a message, in this order."""


class NeedInputs(NamedTuple):
    """What older texts have in common with a message; arrays have shape `(texts,)`."""

    text: str
    terms: int
    """The number of terms that the message is about."""
    rarity: float
    """How rare they are, added up."""
    unknown_share: float
    """The share of the terms that no text has, by how rare they are."""
    shares: Scores
    """The share of the terms that each text has."""
    words: Scores
    """BM25 scores."""
    cosines: Scores | None
    """None where no vectors are known."""
    is_older: NDArray[np.bool_]
    """True for texts that may be quoted, and are older than the newest messages."""
    is_newest: NDArray[np.bool_]
    """True for the newest messages."""
    asks: bool
    is_broad: bool


class TrainedNeed(NamedTuple):
    """What was learned: the weights of the signs, and those of the words of messages."""

    wording: Wording
    lows: NDArray[np.float32]
    """The lowest value of each sign in the training data; shape (signs,)."""
    highs: NDArray[np.float32]
    """The highest value of each."""
    means: NDArray[np.float32]
    """The mean of each, which counts where a sign is not known."""
    weights: NDArray[np.float32]
    """What each sign counts."""
    bias: NDArray[np.float32]
    """Shape (1,)."""

    def to_bytes(self) -> bytes:
        """Returns them as the content of a file."""
        stored = io.BytesIO()
        arrays = self._asdict()
        wording = arrays.pop("wording")
        np.savez_compressed(stored, by_bucket=wording.by_bucket, step=wording.step, **arrays)
        return stored.getvalue()

    @classmethod
    def of_bytes(cls, stored: bytes) -> "TrainedNeed":
        """Returns the weights in the content of a file."""
        with np.load(io.BytesIO(stored), allow_pickle=False) as arrays:
            wording = Wording(arrays["by_bucket"], float(arrays["step"]))
            rest = {name: arrays[name] for name in cls._fields if name != "wording"}
            return cls(wording=wording, **rest)


@cache
def packaged_need() -> TrainedNeed:
    """Returns the weights of the package, loaded when they are first used."""
    file = resources.files("langchain_ctxbudget").joinpath(WEIGHTS_FILE)
    return TrainedNeed.of_bytes(file.read_bytes())


LEAST_DEVIATION = 0.01
"""Cosines that deviate less from their mean are all alike."""


def load_need() -> None:
    """Reads the files of the weights, if they were not read yet."""
    score_of_wording("Where?", packaged_need().wording)


def is_need_loaded() -> bool:
    """Tells whether the files of the weights were read."""
    return packaged_need.cache_info().currsize > 0


@dataclass(frozen=True, slots=True)
class NeedPolicy:
    """How much a message may draw, by how likely it needs anything."""

    nothing_below: float = 0.45
    """Below this probability, only texts that stand out are quoted, and few others."""
    all_from: float = 0.62
    """From this probability on, quotes may take all the room that they have."""
    least_share: float = 0.015
    """The share of the budget for quotes of a message that hardly needs any."""

    def share(self, probability: float) -> float:
        """Returns the share of the budget that quotes may take: it rises with the probability."""
        rise = (probability - self.nothing_below) / (self.all_from - self.nothing_below)
        rise = min(1.0, max(0.0, rise))
        return self.least_share + (1 - self.least_share) * rise**2


NEED_POLICY = NeedPolicy()


def probability_of_need(inputs: NeedInputs) -> float:
    """Returns how likely a message needs anything older than the newest messages, 0 to 1."""
    if not inputs.is_older.any():
        return 0.0
    weights = packaged_need()
    signs = signs_of(inputs, weights.wording)
    return float(probabilities_of(signs[np.newaxis], weights)[0])


def probabilities_of(signs: NDArray[np.float32], weights: TrainedNeed) -> NDArray[np.float32]:
    """Returns the probabilities of messages with some signs, shape (messages, signs).

    A sign beyond those of the training data counts as the furthest of these. For one that is not
    known (NaN), its mean counts.
    """
    known = np.where(np.isnan(signs), weights.means, signs)
    odds = np.clip(known, weights.lows, weights.highs) @ weights.weights + weights.bias
    found: NDArray[np.float32] = 1 / (1 + np.exp(-odds))
    return found


def signs_of(inputs: NeedInputs, wording: Wording) -> NDArray[np.float32]:
    """Returns the signs of a message, shape (signs,)."""
    shares = _best(inputs.shares[inputs.is_older], 2)
    words = _best(inputs.words[inputs.is_older], 5)
    newest_words = float(inputs.words[inputs.is_newest].max(initial=0.0))
    all_cosines = np.full(len(inputs.words), np.nan) if inputs.cosines is None else inputs.cosines
    cosines = _best(all_cosines[inputs.is_older], 10)
    deviation = max(float(all_cosines.std()), LEAST_DEVIATION)
    signs = (
        np.log1p(inputs.terms),
        np.log1p(inputs.rarity),
        shares[0],
        shares[1],
        shares[0] * inputs.rarity,
        shares[1] * inputs.rarity,
        cosines[0],
        cosines[1],
        cosines[9],
        (cosines[0] - float(all_cosines.mean())) / deviation,
        float(np.mean(_best(all_cosines[inputs.is_newest], 2))),
        np.log1p(words[0]),
        np.log1p(words[4]),
        np.log1p(words[0]) - np.log1p(newest_words),
        inputs.unknown_share,
        inputs.asks,
        inputs.is_broad,
        score_of_wording(inputs.text, wording),
    )
    return np.array(signs, np.float32)


def _best(scores: Scores, most: int) -> Sequence[float]:
    """Returns the highest scores, the highest first.

    The lowest of them stands for missing ones.
    """
    best = np.sort(scores)[::-1][:most].tolist() or [0.0]
    return [*best, *[best[-1]] * (most - len(best))]
