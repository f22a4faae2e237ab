"""How a message is worded: a score by weights of the reader's features."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from langchain_ctxbudget.messages import prose_spans
from langchain_ctxbudget.sentences.features import features_of, placed
from langchain_ctxbudget.sentences.reader import RARITY_STEP, packaged_weights

MOST_SENTENCES = 12
"""Of a message, so many of its last sentences are read."""


class Wording(NamedTuple):
    """Weights of the reader's features that tell messages of two kinds apart."""

    by_bucket: NDArray[np.int8]
    """Shape (buckets,), in steps of `step`."""
    step: float


def score_of_wording(text: str, wording: Wording) -> float:
    """Returns the score of a message's mean sentence; 0 for a message without sentences."""
    sentences = last_sentences(text)
    if not sentences:
        return 0.0
    buckets, scales = buckets_of(sentences)
    return float((wording.by_bucket[buckets] * scales).sum() * wording.step / len(sentences))


def last_sentences(text: str) -> list[str]:
    """Returns the last sentences of a message."""
    spans = prose_spans(text)[-MOST_SENTENCES:]
    return [text[begin:end] for begin, end in spans]


def buckets_of(sentences: list[str]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Returns the features of sentences, by bucket, and how much each counts."""
    weights = packaged_weights()
    features = features_of(placed(sentences))
    scales = features.scaled(weights.rarity * np.float32(RARITY_STEP), weights.marks)
    return features.buckets, scales
