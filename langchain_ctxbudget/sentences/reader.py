"""How likely a sentence of a user's message is a rule, a statement, a question, and so on.

The reader is a multinomial regression over hashed features. Its weights are part of the package;
they are trained from sentences that were written for this (`training/` in the repository).
"""

import io
from collections.abc import Sequence
from enum import StrEnum
from functools import cache
from hashlib import blake2b
from importlib import resources
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from langchain_ctxbudget.sentences.features import BUCKETS, PlacedSentence, features_of

WEIGHTS_FILE = "sentences/weights.npz"
SENTENCES_AT_ONCE = 512
"""Sentences that are read together: more take more memory, and as much time each."""
RARITY_STEP = 1 / 255
"""The step in which the rarity of a feature, 0 to 1, is stored in a byte."""
Probabilities = NDArray[np.float32]


class Label(StrEnum):
    """What a sentence is."""

    RULE = "rule"
    """A standing instruction for this conversation."""
    USER_RULE = "user rule"
    """A standing instruction that says it holds everywhere for this user."""
    LIFTING = "lifting"
    """The user takes a rule back."""
    STATEMENT = "statement"
    """Something lasting about the speaker or their world."""
    COURTESY = "courtesy"
    """A greeting, thanks, praise, small talk."""
    DECISION = "decision"
    """Something is settled."""
    QUESTION = "question"
    """A question whose answer is wanted, or which stays open."""
    NONE = "none"
    """Everything else, such as a request for this once."""


LABELS = tuple(Label)


class Weights(NamedTuple):
    """The weights of a trained reader."""

    by_bucket: NDArray[np.int8]
    """Shape (buckets, labels), in steps of `step`."""
    step: float
    bias: NDArray[np.float32]
    """Shape (labels,)."""
    rarity: NDArray[np.uint8]
    """How rare the feature of each bucket is, shape (buckets,), in steps of `RARITY_STEP`."""
    marks: NDArray[np.uint8]
    """The mark of the feature that each bucket stands for, shape (buckets,).

    Many features of a sentence are not in the training data. Without marks each would count as the
    feature that its bucket stands for."""

    @property
    def version(self) -> str:
        """A digest of them: readings by other weights are made again."""
        digest = blake2b(repr(self.step).encode(), digest_size=6)
        for array in (self.by_bucket, self.bias, self.rarity, self.marks):
            digest.update(array.tobytes())
        return digest.hexdigest()

    def to_bytes(self) -> bytes:
        """Returns them as the content of a file."""
        stored = io.BytesIO()
        np.savez_compressed(
            stored,
            by_bucket=self.by_bucket,
            step=np.float32(self.step),
            bias=self.bias,
            rarity=self.rarity,
            marks=self.marks,
        )
        return stored.getvalue()

    @classmethod
    def of_bytes(cls, stored: bytes) -> "Weights":
        """Returns the weights in the content of a file."""
        with np.load(io.BytesIO(stored), allow_pickle=False) as arrays:
            return cls(
                by_bucket=arrays["by_bucket"],
                step=float(arrays["step"]),
                bias=arrays["bias"],
                rarity=arrays["rarity"],
                marks=arrays["marks"],
            )


@cache
def packaged_weights() -> Weights:
    """Returns the weights of the package, loaded when they are first used."""
    file = resources.files("langchain_ctxbudget").joinpath(WEIGHTS_FILE)
    weights = Weights.of_bytes(file.read_bytes())
    assert weights.by_bucket.shape == (BUCKETS, len(LABELS))  # noqa: S101 - of this version
    return weights


def probabilities(sentences: Sequence[PlacedSentence], weights: Weights) -> Probabilities:
    """Returns the probability of every label for each sentence, shape (sentences, labels)."""
    if not sentences:
        return np.zeros((0, len(LABELS)), np.float32)
    parts = [
        _probabilities_at_once(sentences[first : first + SENTENCES_AT_ONCE], weights)
        for first in range(0, len(sentences), SENTENCES_AT_ONCE)
    ]
    return np.concatenate(parts)


def _probabilities_at_once(sentences: Sequence[PlacedSentence], weights: Weights) -> Probabilities:
    """Returns the same for a few sentences, at least one."""
    features = features_of(sentences)
    scales = features.scaled(weights.rarity * np.float32(RARITY_STEP), weights.marks)
    weighted = weights.by_bucket[features.buckets] * scales[:, np.newaxis]
    firsts = np.searchsorted(features.owners, np.arange(len(sentences)))
    scores = np.add.reduceat(weighted, firsts) * np.float32(weights.step) + weights.bias
    scores -= scores.max(axis=1, keepdims=True)
    exponentials = np.exp(scores)
    by_label: Probabilities = exponentials / exponentials.sum(axis=1, keepdims=True)
    return by_label
