"""Documents and chunks as callers see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.documents import Document

from langchain_ctxbudget.documents.records import DocumentRecord
from langchain_ctxbudget.documents.search import Hit


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentInfo:
    """What is known of a document."""

    id: str
    source: str
    """A path, an address, or whatever the caller named it."""
    title: str
    date: str | None
    """`YYYY-MM-DD`."""
    type: str
    """`text`, `markdown`, `pdf`, or what the caller said."""
    tokens: int
    """Of the whole text."""
    chunks: int
    hash: str
    """Of what it says."""
    summary: str
    summary_by: str
    """`extraction`, or the name of the model that wrote it."""
    metadata: Mapping[str, Any]
    """What the caller or the loader gave besides."""


def info_of(record: DocumentRecord) -> DocumentInfo:
    """What is known of a document."""
    return DocumentInfo(
        id=record.id,
        source=record.source,
        title=record.title,
        date=record.date,
        type=record.type,
        tokens=record.tokens,
        chunks=record.chunk_count,
        hash=record.hash,
        summary=record.summary,
        summary_by=record.summary_by,
        metadata=dict(record.metadata),
    )


def _metadata(record: DocumentRecord) -> dict[str, Any]:
    own = {"source": record.source, "title": record.title, "date": record.date, "type": record.type}
    return {**record.metadata, **own}


def whole_document(record: DocumentRecord, text: str) -> Document:
    """A document as it was given."""
    return Document(text, id=record.id, metadata=_metadata(record))


def chunk_document(hit: Hit) -> Document:
    """A chunk that was found, with where it stands and what it scored."""
    chunk, record = hit.chunk, hit.chunk.document
    place = f"{record.id}#{chunk.place}"
    own = {"document_id": record.id, "chunk": chunk.place, "heading": chunk.section.heading, "page": chunk.section.page}
    scores = {"tokens": hit.tokens, "score": hit.score, "lexical": hit.lexical, "dense": hit.dense}
    return Document(hit.text, id=place, metadata={**_metadata(record), "id": place, **own, **scores})
