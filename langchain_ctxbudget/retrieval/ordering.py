"""The order of found texts: one for prompts and for searches.

It is the ranking of all texts, then what an application, its user and a reranker add to it.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

import numpy as np
from langchain_core.documents import BaseDocumentCompressor
from langchain_core.embeddings import Embeddings
from numpy.typing import NDArray

from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.history import NOWHERE, Conversation, Elsewhere, Entry
from langchain_ctxbudget.messages import fold
from langchain_ctxbudget.retrieval.pool import Pool, gather
from langchain_ctxbudget.retrieval.reranking import rerank
from langchain_ctxbudget.retrieval.searched import Other, Searched
from langchain_ctxbudget.retrieval.selecting import SELECTION
from langchain_ctxbudget.search import PRIORITIES
from langchain_ctxbudget.settings import RetrievalSettings

_YEAR_DAYS = 365


@dataclass(frozen=True, slots=True)
class BoostPolicy:
    """What texts gain at most, as shares of the distance between the best key and the last."""

    recency: float = 0.2
    """For a text of today."""
    names: float = 0.3
    """For a text with all entities of the message."""


BOOST = BoostPolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordering:
    """What is asked of the order of found texts, besides the ranking."""

    settings: RetrievalSettings = field(default_factory=RetrievalSettings)
    names: Collection[str] = ()
    """The names of the entities of the message."""
    today: date | None = None
    """The day on which the message is written."""
    reranker: BaseDocumentCompressor | None = None


def in_order(
    searched: Searched,
    query: str,
    embeddings: Embeddings | None,
    failures: list[str],
    *,
    others: Sequence[Other] = (),
    found: Elsewhere = NOWHERE,
    conversation: Conversation | None = None,
    ordering: Ordering,
) -> Flow[Pool]:
    """Ranks messages and texts from elsewhere for a query; texts are taken by the highest keys.

    Args:
        searched: The messages of the conversation.
        query: The text that the others are ranked for.
        embeddings: The embeddings that make the vectors.
        failures: Gets a line if embeddings or reranker fail.
        others: Texts from elsewhere.
        found: The search through other conversations that has found some of them.
        conversation: The conversation that is open.
        ordering: What is asked of the order besides.
    """
    searched = replace(searched, today=ordering.today)
    pool = yield from gather(searched, query, embeddings, failures, others, found=found)
    pool = weighted(pool, ordering.settings.memory_weights, ordering.today)
    pool = boosted(pool, ordering.settings, ordering.names, ordering.today)
    if ordering.reranker is not None:
        most = ordering.settings.candidates
        pool = yield from rerank(pool, ordering.reranker, failures, conversation, most)
    return pool


def boosted(
    pool: Pool, settings: RetrievalSettings, names: Collection[str], today: date | None
) -> Pool:
    """Raises new texts, and texts with the message's entities, as far as the settings say.

    Args:
        pool: All texts, ranked.
        settings: The weights of both.
        names: The names of the entities of the message.
        today: The day on which the message is written.
    """
    raises_new = bool(settings.recency_weight and today)
    raises_named = bool(settings.entity_weight and names)
    if not raises_new and not raises_named:
        return pool
    best = pool.best(pool.ranking.keys, settings.candidates or SELECTION.candidates)
    folded_names = {fold(name) for name in names}
    boost = np.zeros(len(pool.ranking.keys))
    for number in best:
        boost[number] = _boost_of(pool.text(number), settings, folded_names, today)
    distance = float(np.ptp(pool.ranking.keys[best])) if best else 0.0
    return replace(pool, ranking=pool.ranking.with_part("boost", boost * distance))


def _boost_of(
    text: Other | Entry,
    settings: RetrievalSettings,
    folded_names: Collection[str],
    today: date | None,
) -> float:
    """Returns by how much a text is raised, as a share of the distance of keys."""
    recency = 0.0
    if text.date and today:
        recency = _recency(text.date, today)
    share_of_names = _share_of_names(text.text, folded_names)
    for_recency = settings.recency_weight * BOOST.recency * recency
    return for_recency + settings.entity_weight * BOOST.names * share_of_names


def _share_of_names(text: str, folded_names: Collection[str]) -> float:
    """Returns the share of some names that a text has, 0 to 1."""
    if not folded_names:
        return 0.0
    folded = fold(text)
    return sum(name in folded for name in folded_names) / len(folded_names)


def weighted(pool: Pool, weights: Sequence[float] | None, today: date | None) -> Pool:
    """Puts memories into the order of their weighted parts, at the places that they have.

    Args:
        pool: All texts, ranked.
        weights: The weights of likeness, certainty, recency and importance; None leaves the order.
        today: The day on which the message is written.
    """
    if weights is None:
        return pool
    numbers = [
        number
        for number, text in enumerate(pool.others)
        if text.source == "memories" and pool.may_be_quoted[number]
    ]
    if not numbers:
        return pool
    at = np.array(numbers, np.intp)
    parts = [_parts_of_memory(pool.others[number], today) for number in numbers]
    scores = np.column_stack((pool.likeness[at], parts)) @ weights
    return _in_order(pool, at[np.argsort(-scores, kind="stable")], "memories")


def _parts_of_memory(memory: Other, today: date | None) -> list[float]:
    """Returns the certainty, the recency and the importance of a memory, 0 to 1 each."""
    return [memory.certainty, _recency(memory.date, today), PRIORITIES[memory.kind] / 100]


def _in_order(pool: Pool, numbers: NDArray[np.intp], why: str) -> Pool:
    """Gives the values of some texts to these in another order, best first."""
    keys = pool.ranking.keys.copy()
    keys[numbers] = np.sort(keys[numbers])[::-1]
    return replace(pool, ranking=pool.ranking.with_part(why, keys - pool.ranking.keys))


def _recency(day: str | None, today: date | None) -> float:
    """Returns 1 for a text of today or of an unknown day, and 1 / e for one that is a year old."""
    days = 0
    if day and today:
        days = max(0, (today - date.fromisoformat(day)).days)
    return float(np.exp(-days / _YEAR_DAYS))
