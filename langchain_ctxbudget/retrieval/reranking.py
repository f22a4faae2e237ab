"""Reranking what a search has found, by any LangChain document compressor, whose faults cost nothing but the order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from langchain_core.callbacks import Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document

from langchain_ctxbudget.flow import Call, Flow

if TYPE_CHECKING:
    from langchain_ctxbudget.retrieval.search import Hit


def reranked(
    hits: Sequence[Hit], query: str, reranker: BaseDocumentCompressor, *, callbacks: Callbacks = None
) -> Flow[tuple[list[Hit], str | None]]:
    """Hits in the order that a reranker puts them in, and what went wrong with it, or None.

    Nothing is added, changed or dropped but the order. The hits' own scores are handed out anew, so that the first one
    has the highest; what a reranker says of a document (`relevance_score` in its metadata) joins `scores`. Where it
    gives back fewer documents, as one with a `top_n` does, the others follow in the order without it. Where it raises,
    gives back none, one twice, or one that it was not given, the order without it stands.

    Args:
        hits: best first, each with an id of its own.
        query: what they were found for.
        reranker: sees every hit as a document, with its speaker in front of the text.
        callbacks: of the run that asks, for the reranker's own runs.
    """
    given = list(hits)
    if not given:
        return given, None
    name, documents = type(reranker).__name__, [_as_said(hit) for hit in given]
    try:
        answer: object = yield Call(
            lambda: reranker.compress_documents(documents, query, callbacks=callbacks),
            lambda: reranker.acompress_documents(documents, query, callbacks=callbacks),
        )
        chosen = _chosen(given, answer)
    except Exception as error:  # noqa: BLE001 - whatever a reranker raises, there is an order without it
        return given, f"reranker {name}: {type(error).__name__}: {error}"
    leading = {hit.candidate.id for hit in chosen}
    order = [*chosen, *(hit for hit in given if hit.candidate.id not in leading)]
    scores = sorted((hit.score for hit in given), reverse=True)
    problem = None
    if len(chosen) < len(given):
        problem = f"reranker {name}: gave back {len(chosen)} of {len(given)} documents; the others follow as found"
    return [replace(hit, score=score) for hit, score in zip(order, scores, strict=True)], problem


def document(hit: Hit) -> Document:
    """A hit as a LangChain document, with every field of the metadata filled.

    A message also names its `conversation_id`, and the `reference` by which the recall tool quotes it.
    """
    candidate = hit.candidate
    metadata = {
        "id": candidate.id,
        "source": candidate.source,
        "title": candidate.title,
        "date": candidate.date or "",
        "speaker": candidate.speaker,
        "score": hit.score,
        "scores": dict(hit.scores),
    }
    if candidate.source == "conversations":
        metadata |= {"conversation_id": candidate.title, "reference": candidate.id.partition("/")[2]}
    return Document(candidate.text, id=candidate.id, metadata=metadata)


def _as_said(hit: Hit) -> Document:
    """A hit as rerankers read it: a question may name who said it."""
    said = document(hit)
    if hit.candidate.speaker:
        said.page_content = f"{hit.candidate.speaker}: {said.page_content}"
    return said


def _chosen(hits: Iterable[Hit], answer: object) -> list[Hit]:
    """The hits that a reranker's answer is about, in its order.

    Raises:
        TypeError: it is no sequence of documents.
        ValueError: they are not those that were given.
    """
    left = {hit.candidate.id: hit for hit in hits}
    known = set(left)
    chosen: list[Hit] = []
    for found in answer if isinstance(answer, Iterable) else [answer]:
        if not isinstance(found, Document):
            raise TypeError(f"gave back a {type(found).__name__} in place of documents")
        key = found.id if found.id in known else found.metadata.get("id")  # many copy the text and metadata alone
        if not isinstance(key, str) or key not in known:
            raise ValueError("gave back a document that it was not given")
        if key not in left:
            raise ValueError(f"gave back the document {key!r} twice")
        chosen.append(_scored(left.pop(key), found.metadata.get("relevance_score")))
    if not chosen:
        raise ValueError("gave back no documents")
    return chosen


def _scored(hit: Hit, score: object) -> Hit:
    """A hit with what a reranker said of it, where that is a number (its own kind of float, perhaps)."""
    try:
        value = float(score)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return hit
    return replace(hit, scores={**hit.scores, "reranker": value})
