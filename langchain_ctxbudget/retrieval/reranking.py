"""What a reranker says of the best texts."""

from collections.abc import Iterable, Sequence

import numpy as np
from langchain_core.documents import BaseDocumentCompressor, Document

from langchain_ctxbudget.flow import Call, Flow
from langchain_ctxbudget.history import Conversation
from langchain_ctxbudget.retrieval.found_documents import document
from langchain_ctxbudget.retrieval.pool import Pool, in_places_of

MOST_RERANKED = 50
"""The most texts that a reranker is given."""


def rerank(
    pool: Pool,
    reranker: BaseDocumentCompressor,
    failures: list[str],
    conversation: Conversation | None,
    most: int | None,
) -> Flow[Pool]:
    """Puts the best texts of a pool in a reranker's order, what it leaves out after them.

    Args:
        pool: All texts, ranked.
        reranker: Orders documents by a query.
        failures: Gets a line if the reranker fails, or gives back fewer documents.
        conversation: The conversation that is open.
        most: How many texts it is given at most.
    """
    best = pool.best(pool.ranking.keys, most or MOST_RERANKED)
    if not best:
        return pool
    name = type(reranker).__name__
    query = pool.question.text
    documents = [_for_reranker(document(pool, number, conversation)) for number in best]
    numbers = {text.metadata["id"]: number for text, number in zip(documents, best, strict=True)}
    try:
        answer: Sequence[Document] = yield Call(
            lambda: reranker.compress_documents(documents, query),
            lambda: reranker.acompress_documents(documents, query),
        )
        chosen = _numbers_in_answer(answer, numbers)
    except Exception as error:  # noqa: BLE001 - whatever a reranker raises, there is an order without it
        failures.append(f"reranker {name}: {type(error).__name__}: {error}")
        return pool
    if len(chosen) < len(best):
        failures.append(
            f"reranker {name}: gave back {len(chosen)} of {len(best)} documents; "
            "others follow as found"
        )
    order = list(dict.fromkeys((*chosen, *best)))
    return in_places_of(pool, np.array(order, np.intp), "reranker")


def _for_reranker(text: Document) -> Document:
    """Returns a document with the name of who said it in its text: a question may name them."""
    speaker = text.metadata["speaker"]
    if speaker:
        text.page_content = f"{speaker}: {text.page_content}"
    return text


def _numbers_in_answer(answer: Iterable[Document], numbers: dict[str, int]) -> list[int]:
    """Returns the numbers of the documents that a reranker gave back, each once.

    Many rerankers copy text and metadata alone, so documents are known by an id in their metadata.
    """
    ids = [str(text.metadata.get("id")) for text in answer]
    return list(dict.fromkeys(numbers[text_id] for text_id in ids if text_id in numbers))
