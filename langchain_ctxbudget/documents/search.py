"""Documents searched, named and listed: flows over a store.

A turn in which nothing is new reads two marks, and nothing else where there are no documents. Words are always searched
in this process (BM25); vectors are the store's where it has an index, else made here, each once per process.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore, SearchItem, SearchOp
from numpy.typing import NDArray

from langchain_ctxbudget.core.candidates import Candidate
from langchain_ctxbudget.core.text import terms
from langchain_ctxbudget.core.vectors import Vectors, as_query, units
from langchain_ctxbudget.documents.names import newest_mentions
from langchain_ctxbudget.documents.records import SHARED, ChunkRecord, DocumentRecord, namespace, owner_of
from langchain_ctxbudget.documents.shelves import (
    Chunk,
    Shelf,
    read_shelves,
    whole_text,
    with_texts,
    with_vectors,
)
from langchain_ctxbudget.flow import Flow, batch, embed_query
from langchain_ctxbudget.stores.indexing import has_index

__all__ = ["Hit", "NamedDocument", "candidates", "listed", "named", "search", "whole_text"]

LEAST_POOL = 50
"""At least so many chunks are taken by words and by vectors each, so that both can change the order."""
LEXICAL_WEIGHT, DENSE_WEIGHT = 0.5, 0.5
NAMED_DOCUMENTS = 3
FEW = 32
"""Fewer vectors than this have no mean worth taking off."""

_TINY = 1e-9

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A chunk that was found."""

    chunk: Chunk
    text: str
    tokens: int
    score: float
    """From 0 to 1, among what was found for the query."""
    lexical: float
    """BM25; 0 without a common word."""
    dense: float | None
    """Cosine; None where nothing tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedDocument:
    """A document that was named in a message."""

    id: str
    source: str
    title: str
    date: str | None
    type: str
    text: str | None
    """All of it; None where it is larger than was asked for."""
    summary: str
    tokens: int
    """Of the whole text."""


def candidates(
    store: BaseStore,
    user_id: str,
    query: str,
    *,
    limit: int,
    embeddings: Embeddings | None = None,
    failures: list[str] | None = None,
) -> Flow[list[Candidate]]:
    """The chunks of a user's documents, and of everyone's, that a query may be about; best first.

    Args:
        store: where they are.
        user_id: whose.
        query: what is asked.
        limit: how many at most.
        embeddings: for a store without an index; None leaves it to the words there.
        failures: what is to be reported; appended to.

    Raises:
        MissingScopeError: there is no user.
    """
    owners = owner_of(user_id), SHARED
    found = yield from search(store, owners, query, limit=limit, embeddings=embeddings, failures=failures)
    return [
        Candidate(
            id=f"{hit.chunk.document.id}#{hit.chunk.place}",
            source="documents",
            text=hit.text,
            title=hit.chunk.document.title,
            place=hit.chunk.place,
            date=hit.chunk.document.date,
        )
        for hit in found
    ]


def named(
    store: BaseStore, user_id: str, texts: Sequence[str], *, limit: int = NAMED_DOCUMENTS, max_tokens: int | None = None
) -> Flow[list[NamedDocument]]:
    """The documents of a user, and of everyone, that messages name; the one that was named last first.

    Args:
        store: where they are.
        user_id: whose.
        texts: the recent messages, oldest first.
        limit: how many at most.
        max_tokens: a larger document comes without its text.

    Raises:
        MissingScopeError: there is no user.
    """
    shelves = yield from read_shelves(store, (owner_of(user_id), SHARED))
    records = [(shelf.owner, record) for shelf in shelves for record in shelf.records]
    names = [name for shelf in shelves for name in shelf.names]
    found = []
    for owner, record in (records[number] for number in newest_mentions(names, texts)[:limit]):
        fits = max_tokens is None or record.tokens <= max_tokens
        found.append(
            NamedDocument(
                id=record.id,
                source=record.source,
                title=record.title,
                date=record.date,
                type=record.type,
                text=(yield from whole_text(store, owner, record)) if fits else None,
                summary=record.summary,
                tokens=record.tokens,
            )
        )
    return found


def listed(store: BaseStore, owner: str) -> Flow[tuple[DocumentRecord, ...]]:
    """An owner's documents, by source."""
    shelves = yield from read_shelves(store, [owner])
    return shelves[0].records if shelves else ()


def search(
    store: BaseStore,
    owners: Sequence[str],
    query: str,
    *,
    limit: int,
    embeddings: Embeddings | None = None,
    failures: list[str] | None = None,
) -> Flow[list[Hit]]:
    """The chunks of some owners' documents that a query is about, best first.

    What words and vectors say is scaled to 0 to 1 each, and averaged. Without vectors, only chunks with a word of the
    query are found.

    Args:
        store: where they are.
        owners: of `owner_of`.
        query: what is asked.
        limit: how many at most.
        embeddings: for a store without an index.
        failures: what is to be reported besides the log; appended to.
    """
    shelves = yield from read_shelves(store, owners)
    if not shelves or limit < 1 or not query.strip():
        return []
    pool = max(LEAST_POOL, 2 * limit)
    dense: dict[str, float] = {}
    beside: dict[str, ChunkRecord] = {}
    if has_index(store):
        try:
            dense = yield from _nearest(store, shelves, query, pool, beside)
        except Exception as error:  # noqa: BLE001 - whatever embeddings raise, words are still searched
            _tell(failures, f"documents not searched by the store's index: {type(error).__name__}: {error}")
    lexical: dict[str, float] = {}
    for number, shelf in enumerate(shelves):
        shelves[number], index = yield from with_texts(store, shelf)
        lexical |= _best(shelf.searched, index.scores(terms(query)), pool)
    if not dense and embeddings is not None:
        try:
            dense = yield from _similar(store, shelves, query, pool, embeddings)
        except Exception as error:  # noqa: BLE001 - whatever embeddings raise, words are still searched
            _tell(failures, f"documents not searched by vectors: {type(error).__name__}: {error}")
        if absent := sum(len(shelf.absent) for shelf in shelves):
            size = sum(len(shelf.searched) for shelf in shelves)
            _tell(failures, f"documents: no usable vector for {absent} of {size} passages, found by their words alone")
    hits = []
    for key, score in _fused(lexical, dense).items():
        shelf = next(shelf for shelf in shelves if key in shelf.chunks)
        record = shelf.texts.get(key) or beside.get(key)
        if record is not None:
            words = round(lexical.get(key, 0.0), 6)
            hit = Hit(
                chunk=shelf.chunks[key],
                text=record.text,
                tokens=record.tokens,
                score=score,
                lexical=words,
                dense=dense.get(key),
            )
            hits.append(hit)
    hits.sort(key=lambda hit: (-hit.score, hit.chunk.document.source, hit.chunk.document.id, hit.chunk.place))
    return hits[:limit]


def _tell(failures: list[str] | None, problem: str) -> None:
    _log.warning("%s", problem)
    if failures is not None:
        failures.append(problem)


def _best(keys: Sequence[str], scores: NDArray[np.float64], limit: int) -> dict[str, float]:
    """The scores above 0 that are highest; of equal ones, the first."""
    order = np.argsort(-scores, kind="stable")[:limit].tolist()
    return {keys[place]: float(scores[place]) for place in order if scores[place] > 0}


def _nearest(
    store: BaseStore, shelves: Sequence[Shelf], query: str, limit: int, texts: dict[str, ChunkRecord]
) -> Flow[dict[str, float]]:
    """Similarities by a store's index; what is not among a document's chunks was left behind by a writer.

    Args:
        store: that has an index.
        shelves: whose chunks.
        query: what is asked.
        limit: how many of each.
        texts: gets those of the chunks that were found.
    """
    places = [namespace(shelf.owner, "chunks") for shelf in shelves]
    results = yield from batch(store, [SearchOp(where, query=query, limit=limit) for where in places])
    found: dict[str, float] = {}
    for shelf, items in zip(shelves, cast("list[list[SearchItem]]", results), strict=True):
        for item in items:
            # An item without a score was not compared: it is there by chance.
            if item.score is not None and item.key in shelf.chunks:
                found[item.key] = round(float(item.score), 6)
                texts[item.key] = ChunkRecord.read(item.value, f"chunk {item.key!r}")
    return found


def _similar(
    store: BaseStore, shelves: list[Shelf], query: str, limit: int, embeddings: Embeddings
) -> Flow[dict[str, float]]:
    """Similarities by vectors that are made here, without what all chunks have in common."""
    width = next((shelf.width for shelf in shelves if shelf.embeddings is embeddings and shelf.width), 0)
    [target] = units(as_query((yield from embed_query(embeddings, query)), width)[np.newaxis])
    for number, shelf in enumerate(shelves):
        shelves[number] = yield from with_vectors(store, shelf, embeddings, target.size)
    size = sum(len(shelf.searched) for shelf in shelves)
    mean = np.zeros_like(target)
    if size >= FEW:
        mean = (np.sum([shelf.sum for shelf in shelves], axis=0) / size).astype(np.float32)
    aim = target - mean
    keys = [key for shelf in shelves for key in shelf.searched]
    scores = np.concatenate([_cosines(shelf.matrix, mean, aim) for shelf in shelves])
    order = np.argsort(-scores, kind="stable")[:limit].tolist()
    absent = frozenset[str]().union(*(shelf.absent for shelf in shelves))
    return {keys[place]: float(scores[place]) for place in order if keys[place] not in absent}


def _cosines(rows: Vectors, mean: Vectors, aim: Vectors) -> NDArray[np.float64]:
    """Of rows of length 1, without the mean, with an aim that is already without it."""
    lengths = np.sqrt(np.maximum(1 - 2 * (rows @ mean) + mean @ mean, _TINY))
    cosines = (rows @ aim - mean @ aim) / (lengths * max(float(np.linalg.norm(aim)), _TINY))
    # Rounded, because the last bits depend on how many vectors are multiplied at once.
    rounded: NDArray[np.float64] = np.round(cosines, 6).astype(np.float64)
    return rounded


def _fused(lexical: Mapping[str, float], dense: Mapping[str, float]) -> dict[str, float]:
    if not dense:
        return _scaled(lexical)
    words, meanings = _scaled({**dict.fromkeys(dense, 0.0), **lexical}), _scaled(dense)
    return {
        key: round(LEXICAL_WEIGHT * words.get(key, 0.0) + DENSE_WEIGHT * meanings.get(key, 0.0), 6)
        for key in {**dense, **lexical}
    }


def _scaled(scores: Mapping[str, float]) -> dict[str, float]:
    """Scores from 0 to 1; where all are alike, each is 1, or 0 where they are 0."""
    low, high = min(scores.values(), default=0.0), max(scores.values(), default=0.0)
    if high <= low:
        return {key: float(score > 0) for key, score in scores.items()}
    return {key: (score - low) / (high - low) for key, score in scores.items()}
