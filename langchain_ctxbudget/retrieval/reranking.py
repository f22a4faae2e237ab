"""Reranks what a search has found by any LangChain document compressor; a compressor that fails leaves the order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from langchain_core.callbacks import Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document

from langchain_ctxbudget.documents.find import beside
from langchain_ctxbudget.flow import Call, Flow

if TYPE_CHECKING:
    from langchain_ctxbudget.retrieval.search import Hit


def reranked(
    hits: Sequence[Hit], query: str, reranker: BaseDocumentCompressor, *, callbacks: Callbacks = None
) -> Flow[tuple[list[Hit], str | None]]:
    """Returns hits in the order of a reranker, and the problem it had, or None.

    Only the order changes: the hits' scores are handed out anew, highest first, and a reranker's own `relevance_score`
    joins `scores`. Where it gives back fewer documents, the others follow as found. Where it raises, or gives back
    none, one twice, or one that it was not given, the order stays.
    """
    given = list(hits)
    if not given:
        return given, None
    name, documents = type(reranker).__name__, [document(hit) for hit in given]
    for said, hit in zip(documents, given, strict=True):  # a question may name who said it
        if hit.candidate.speaker:
            said.page_content = f"{hit.candidate.speaker}: {said.page_content}"
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
    """Returns a hit as a LangChain document; a message also names its `conversation_id` and `reference`."""
    candidate = hit.candidate
    given = {name: value for name, value in candidate.metadata.items() if name not in ("source", "title", "date")}
    metadata = {
        "id": candidate.id,
        "found_in": candidate.source,
        "source": candidate.metadata.get("source", candidate.source),
        "title": candidate.title,
        "date": candidate.date or "",
        "speaker": candidate.speaker,
        "score": hit.score,
        "scores": dict(hit.scores),
    }
    if candidate.source == "conversations":
        metadata |= {"conversation_id": candidate.title, "reference": candidate.id.partition("/")[2]}
    return Document(candidate.text, id=candidate.id, metadata=beside(given, metadata))


def _chosen(hits: Sequence[Hit], answer: object) -> list[Hit]:
    """Returns the hits that a reranker's answer is about, in its order.

    Raises:
        ValueError: the answer is no sequence of the documents that were given.
    """
    known = {hit.candidate.id: hit for hit in hits}
    chosen: dict[str, Hit] = {}
    for found in answer if isinstance(answer, Iterable) else [answer]:
        if not isinstance(found, Document):
            raise ValueError(f"gave back a {type(found).__name__} in place of documents")  # noqa: TRY004
        key = found.id if found.id in known else found.metadata.get("id")  # many copy the text and metadata alone
        if not isinstance(key, str) or key not in known:
            raise ValueError("gave back a document that it was not given")
        if key in chosen:
            raise ValueError(f"gave back the document {key!r} twice")
        score = found.metadata.get("relevance_score")
        hit = known[key]
        chosen[key] = hit if score is None else replace(hit, scores={**hit.scores, "reranker": float(score)})
    if not chosen:
        raise ValueError("gave back no documents")
    return list(chosen.values())
