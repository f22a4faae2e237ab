"""Where a conversation turns to another subject, though no time passes.

Sessions on one day, or without any times, are told apart as TextTiling does (Hearst 1997): a subject begins where a
person's message, with what follows it, is unlike what stood before it.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from langchain_ctxbudget.search.ranking import Numbers

BEFORE, AFTER = 4, 3
"""Texts before a place and from it on that are compared."""
UNLIKE = 0.15
"""A cosine below this says that two stretches of text have nothing to do with each other."""
UNLIKE_AFTER_GREETING = 0.3
"""One who greets begins something, unless it plainly goes on."""
NEVER = -2.0
"""Below every cosine."""
_GREETING = re.compile(
    r"\W*(?:hi|hello|hey|hiya|greetings|good (?:morning|afternoon|evening|day)|i['’]m back)\b",  # noqa: RUF001
    re.IGNORECASE,
)


def limit(text: str, *, from_user: bool) -> float:
    """Returns the cosine with what stands before it below which a text begins a subject."""
    if not from_user:
        return NEVER
    return UNLIKE_AFTER_GREETING if _GREETING.match(text) else UNLIKE


def links(vectors: NDArray[np.float32], start: int = 0) -> NDArray[np.float32]:
    """Returns the cosine of each text, with those after it, with those before it, `(texts - start,)`; 1 for the first.

    A text's link is final when `AFTER - 1` more texts follow.

    Args:
        vectors: of all texts, of length 1 or 0, shape `(texts, dimensions)`.
        start: the first text whose link is wanted.
    """
    first = max(0, start - BEFORE)
    rows = vectors[first:]
    before, after = np.zeros_like(rows), rows.copy()
    for distance in range(1, min(BEFORE, len(rows) - 1) + 1):
        before[distance:] += rows[:-distance]
    for distance in range(1, min(AFTER, len(rows))):
        after[:-distance] += rows[distance:]
    norms = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
    similarity: NDArray[np.float32] = np.einsum("ij,ij->i", before, after) / np.maximum(norms, np.float32(1e-9))
    if not first and len(similarity):
        similarity[0] = 1.0
    return similarity[start - first :]


def subjects(session: Numbers, links: NDArray[np.float32], limits: NDArray[np.float32]) -> Numbers:
    """Returns the number of every text's subject, from 0 and never falling: sessions, cut where a subject begins.

    Args:
        session: the number of every text's session by time, shape `(texts,)`.
        links: of the first texts, those that have a vector; the others begin nothing.
        limits: of every text.
    """
    starts = np.diff(session, prepend=session[:1]) > 0
    known = min(len(links), len(limits), len(session))
    starts[:known] |= links[:known] < limits[:known]
    return np.cumsum(starts, dtype=np.int32)
