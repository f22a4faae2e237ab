"""Where a subject of a conversation ends: where texts have little in common with those before.

Below which cosine a subject ends is decided by the first texts: in a chat of short messages
neighbours have little in common within a subject, too. The method is TextTiling (Hearst 1997).
"""

import re

import numpy as np

from langchain_ctxbudget.messages import vocabulary
from langchain_ctxbudget.search.scores import Numbers
from langchain_ctxbudget.search.vectors import DECIMALS, FEW, NO_LENGTH, Vectors, texts_in_mean

BEFORE = 4
"""Texts before a place that are compared with those after it."""
AFTER = 3
"""Texts from a place on that are compared with those before it."""
UNLIKE = 0.15
"""The cosine below which two stretches of text have nothing to do with each other."""
UNLIKE_AFTER_GREETING = 0.3
"""The same where the user greets: then a new subject is likely."""
NEVER = -2.0
"""A limit that no cosine is below: an assistant begins no subject."""
UNUSUAL_DEVIATIONS = 1.5
"""Standard deviations below the mean from which a link is unusually weak."""
_GREETING = re.compile(vocabulary("search")["greeting"], re.IGNORECASE)


def limit(text: str, *, from_user: bool) -> float:
    """Returns the cosine with what stands before a text below which it begins a subject."""
    if not from_user:
        return NEVER
    if _GREETING.match(text):
        return UNLIKE_AFTER_GREETING
    return UNLIKE


def links(vectors: Vectors, start: int = 0) -> Vectors:
    """Returns how much each text, with those after it, has in common with those before it.

    A text's link is final when `AFTER - 1` more texts follow.

    Args:
        vectors: The vectors of the texts.
        start: The first text whose link is returned.

    Returns:
        Cosines, 1 for the first text; shape `(texts - start,)`.
    """
    first = max(0, start - BEFORE)
    rows = vectors[first:]
    before = np.zeros_like(rows)
    for distance in range(1, min(BEFORE, len(rows) - 1) + 1):
        before[distance:] += rows[:-distance]
    after = rows.copy()
    for distance in range(1, min(AFTER, len(rows))):
        after[:-distance] += rows[distance:]

    norms = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
    products = np.einsum("ij,ij->i", before, after)
    cosines: Vectors = products / np.maximum(norms, np.float32(NO_LENGTH))
    if first == 0 and len(cosines):
        cosines[0] = 1.0
    return cosines[start - first :]


def usual_limit(session: Numbers, links: Vectors) -> float:
    """Returns the limit below which a user's text begins a subject in a conversation.

    It is `UNLIKE`, or less where the links within the sessions of the first texts are so weak that
    many lie below it.

    Args:
        session: The number of every text's session.
        links: The links of the first texts. All must be final: then the limit depends on the texts
            alone.
    """
    if len(links) < FEW:
        return UNLIKE
    first = texts_in_mean(len(links))
    is_within = session[1:first] == session[: first - 1]
    within = links[1:first][is_within]
    if len(within) < FEW // 2:
        return UNLIKE
    mean = within.mean(dtype=np.float64)
    deviation = within.std(dtype=np.float64)
    unusual = float(mean - UNUSUAL_DEVIATIONS * deviation)
    return min(UNLIKE, round(unusual, DECIMALS))


def subjects(session: Numbers, links: Vectors, limits: Vectors, usual: float = UNLIKE) -> Numbers:
    """Returns the number of every text's subject, from 0 and never falling.

    A subject is a session, or a part of one that is cut where another subject begins.

    Args:
        session: The number of every text's session.
        links: How much texts have in common with those before.
        limits: The link below which each text begins a subject.
        usual: The limit of the user's texts that do not greet.
    """
    starts = np.diff(session, prepend=session[:1]) > 0
    known = min(len(links), len(limits), len(session))
    is_usual = limits[:known] == np.float32(UNLIKE)
    lowered = np.where(is_usual, np.float32(usual), limits[:known])
    starts[:known] |= links[:known] < lowered
    return np.cumsum(starts, dtype=np.int32)
