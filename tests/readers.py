"""A reader of sentences whose readings are plain, so that tests do not hang on trained weights."""

from collections.abc import Sequence

import numpy as np

from langchain_ctxbudget.sentences import Label
from langchain_ctxbudget.sentences.features import PlacedSentence
from langchain_ctxbudget.sentences.reader import LABELS, Probabilities, Weights

NO_PUSH = "From now on, never push to main without asking me first."
BULLETS = "From now on, answer in bullet points."
NO_EMOJIS = "In every chat, never use emojis."
"""A rule that holds everywhere."""
PUSH_AGAIN = "You may push to main again without asking me first."
EMOJIS_AGAIN = "You may use emojis again in every chat."


def plain_probabilities(sentences: Sequence[PlacedSentence], _weights: Weights) -> Probabilities:
    """Takes a sentence for what its first words say that it is."""
    rows = np.zeros((len(sentences), len(LABELS)), np.float32)
    for row, sentence in zip(rows, sentences, strict=True):
        row[LABELS.index(_label_of(sentence.text))] = 1
    return rows


def _label_of(text: str) -> Label:
    if text.startswith(("From now on", "Always ask me")):
        return Label.RULE
    if text.startswith("In every chat"):
        return Label.USER_RULE
    if text.startswith("You may"):
        return Label.LIFTING
    return Label.NONE
