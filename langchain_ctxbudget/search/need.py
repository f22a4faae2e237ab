"""How likely a message needs anything older than the newest messages.

A small network decides, from signs of the message: how it is worded, and what older texts have in
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
from langchain_ctxbudget.sentences import Wording, wording_of

NEWEST_IN_PROMPT = 10
"""The newest messages, which stand in the prompt anyway."""
WEIGHTS_FILE = "search/need.npz"
SIGNS = (
    "terms",
    "rarity",
    "rarity of a term",
    "best share",
    "second share",
    "fifth share",
    "best rarity",
    "second rarity",
    "best cosine",
    "second cosine",
    "tenth cosine",
    "deviations of the best cosine",
    "cosine of the newest",
    "share of the newest",
    "rarity of the newest",
    "change of subject",
    "best words",
    "fifth words",
    "words above the newest",
    "texts",
    "characters",
    "asks for everything",
    "asks for days",
    "asks",
    "names a speaker",
    "share of unknown terms",
    "wording",
)
"""What the network knows of a message, besides how likely its sentences have each label."""


class NeedInputs(NamedTuple):
    """What older texts have in common with a message; arrays have shape `(texts,)`."""

    text: str
    terms: int
    """The number of terms that the message is about."""
    rarity: float
    """How rare they are, added up."""
    shares: Scores
    """The share of the terms that each text has, by how rare they are."""
    words: Scores
    """BM25 scores."""
    cosines: Scores | None
    """None where no vectors are known."""
    is_older: NDArray[np.bool_]
    """True for texts that may be quoted, and are older than the newest messages."""
    is_newest: NDArray[np.bool_]
    """True for the newest messages."""
    texts: int
    """The number of all texts that were searched."""
    is_broad: bool
    has_dates: bool
    asks: bool
    names_speaker: bool
    unknown_share: float
    """The share of its terms that no text has, by how rare they are."""


class NeedWeights(NamedTuple):
    """The weights of the network, and those of the words of messages."""

    wording: Wording
    lows: NDArray[np.float32]
    """The lowest value of each sign in the training data; shape (signs,)."""
    highs: NDArray[np.float32]
    means: NDArray[np.float32]
    scales: NDArray[np.float32]
    hidden: NDArray[np.float32]
    """Shape (signs, units)."""
    hidden_bias: NDArray[np.float32]
    output: NDArray[np.float32]
    """Shape (units,)."""
    output_bias: NDArray[np.float32]
    """Shape (1,)."""

    def to_bytes(self) -> bytes:
        """Returns them as the content of a file."""
        stored = io.BytesIO()
        arrays = self._asdict()
        wording = arrays.pop("wording")
        np.savez_compressed(stored, by_bucket=wording.by_bucket, step=wording.step, **arrays)
        return stored.getvalue()

    @classmethod
    def of_bytes(cls, stored: bytes) -> "NeedWeights":
        """Returns the weights in the content of a file."""
        with np.load(io.BytesIO(stored), allow_pickle=False) as arrays:
            wording = Wording(arrays["by_bucket"], float(arrays["step"]))
            rest = {name: arrays[name] for name in cls._fields if name != "wording"}
            return cls(wording=wording, **rest)


@cache
def packaged_need() -> NeedWeights:
    """Returns the weights of the package, loaded when they are first used."""
    file = resources.files("langchain_ctxbudget").joinpath(WEIGHTS_FILE)
    return NeedWeights.of_bytes(file.read_bytes())


@dataclass(frozen=True, slots=True)
class NeedPolicy:
    """How much a message may draw, by how likely it needs anything."""

    nothing_below: float = 0.3
    """Below this probability, only texts that stand out are quoted, and few others."""
    all_from: float = 0.5
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


def probabilities_of(signs: NDArray[np.float32], weights: NeedWeights) -> NDArray[np.float32]:
    """Returns the probabilities of messages with some signs, shape (messages, signs).

    For a sign that is not known (NaN), its mean counts.
    """
    known = np.where(np.isnan(signs), weights.means, signs)
    clipped = np.clip(known, weights.lows, weights.highs)
    scaled = (clipped - weights.means) / weights.scales
    units = np.maximum(scaled @ weights.hidden + weights.hidden_bias, 0)
    odds = units @ weights.output + weights.output_bias
    found: NDArray[np.float32] = 1 / (1 + np.exp(-odds))
    return found


def signs_of(inputs: NeedInputs, wording: Wording) -> NDArray[np.float32]:
    """Returns the signs of a message, shape (signs,)."""
    shares = _best(inputs.shares[inputs.is_older], 5)
    words = _best(inputs.words[inputs.is_older], 5)
    all_cosines = np.full(len(inputs.words), np.nan) if inputs.cosines is None else inputs.cosines
    cosines = _best(all_cosines[inputs.is_older], 10)
    mean, deviation = _spread(all_cosines)
    newest_cosine = float(np.mean(_best(all_cosines[inputs.is_newest], 2)))
    newest_share = _highest(inputs.shares[inputs.is_newest])
    newest_words = _highest(inputs.words[inputs.is_newest])
    by_label, wording_score = wording_of(inputs.text, wording)
    own = (
        np.log1p(inputs.terms),
        np.log1p(inputs.rarity),
        inputs.rarity / max(1, inputs.terms),
        shares[0],
        shares[1],
        shares[4],
        shares[0] * inputs.rarity / 10,
        shares[1] * inputs.rarity / 10,
        cosines[0],
        cosines[1],
        cosines[9],
        (cosines[0] - mean) / max(deviation, 0.01),
        newest_cosine,
        newest_share,
        newest_share * inputs.rarity / 10,
        cosines[0] - newest_cosine,
        np.log1p(words[0]),
        np.log1p(words[4]),
        np.log1p(words[0]) - np.log1p(newest_words),
        np.log1p(inputs.texts),
        np.log1p(len(inputs.text)),
        inputs.is_broad,
        inputs.has_dates,
        inputs.asks,
        inputs.names_speaker,
        inputs.unknown_share,
        wording_score,
    )
    return np.concatenate((np.array(own, np.float32), by_label))


def _best(scores: Scores, most: int) -> Sequence[float]:
    """Returns the highest scores, the highest first.

    The lowest of them stands for missing ones.
    """
    best = np.sort(scores)[::-1][:most].tolist() or [0.0]
    return [*best, *[best[-1]] * (most - len(best))]


def _highest(scores: Scores) -> float:
    return float(scores.max(initial=0.0))


def _spread(scores: Scores) -> tuple[float, float]:
    """Returns mean and standard deviation of scores, 0 of none."""
    if not len(scores):
        return 0.0, 0.0
    return float(scores.mean()), float(scores.std())
