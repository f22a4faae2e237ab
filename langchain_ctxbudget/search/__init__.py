"""Finding texts: words, vectors, ranking and packing. Pure."""

from __future__ import annotations

from langchain_ctxbudget.search.embeddings import LocalEmbeddings, local_embeddings_available
from langchain_ctxbudget.search.lexical import LexicalIndex, passage, pieces
from langchain_ctxbudget.search.packing import ELLIPSIS, PRIORITIES, Candidate, Kind, pack, shrink_to
from langchain_ctxbudget.search.ranking import (
    COMPARED,
    Numbers,
    Question,
    Ranking,
    Scores,
    Texts,
    called,
    day_number,
    first_person,
    is_name,
    rank,
    without_repetition,
    z_scores,
)
from langchain_ctxbudget.search.vectors import (
    AFTER,
    CentredVectors,
    Rows,
    Vectors,
    as_query,
    comparable,
    limit,
    links,
    subjects,
    units,
)

__all__ = [
    "AFTER", "COMPARED", "ELLIPSIS", "PRIORITIES", "Candidate", "CentredVectors", "Kind", "LexicalIndex",
    "LocalEmbeddings", "Numbers", "Question", "Ranking", "Rows", "Scores", "Texts", "Vectors", "as_query", "called",
    "comparable", "day_number", "first_person", "is_name", "limit", "links", "local_embeddings_available", "pack",
    "passage", "pieces", "rank", "shrink_to", "subjects", "units", "without_repetition", "z_scores",
]  # fmt: skip
