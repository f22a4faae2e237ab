"""What a reranker says of the best texts, added to what they are worth.

It has read question and texts together, and knows nothing of their costs, dates and speakers. So it
has a say in the order and does not replace it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from statistics import NormalDist, fmean

import numpy as np
from langchain_core.documents import BaseDocumentCompressor, Document

from langchain_ctxbudget.flow import Call, Flow
from langchain_ctxbudget.history import Conversation
from langchain_ctxbudget.retrieval.found_documents import document
from langchain_ctxbudget.retrieval.pool import Pool
from langchain_ctxbudget.search import Scores, z_scores


@dataclass(frozen=True, slots=True)
class RerankingPolicy:
    """How much a reranker has to say."""

    weight: float = 0.5
    """What a standard deviation of its scores adds to the key of a text."""
    most_texts: int = 50
    """The most texts that it is given."""


RERANKING = RerankingPolicy()
SCORE_NAMES = ("relevance_score", "rerank_score", "query_similarity_score", "score")
"""Metadata in which rerankers leave their scores; the first that is there counts. More is
better."""


def rerank(
    pool: Pool,
    reranker: BaseDocumentCompressor,
    failures: list[str],
    conversation: Conversation | None,
    most: int | None,
) -> Flow[Pool]:
    """Adds a reranker's scores to the keys of the best texts of a pool.

    Args:
        pool: All texts, ranked.
        reranker: Scores documents for a query, or orders them.
        failures: Gets a line if the reranker fails, or gives back fewer documents.
        conversation: The conversation that is open.
        most: How many texts it is given at most.
    """
    best = pool.best(pool.ranking.keys, most or RERANKING.most_texts)
    if not best:
        return pool
    name = type(reranker).__name__
    query = pool.question.text
    given = [_for_reranker(document(pool, number, conversation)) for number in best]
    scores_given = {text.metadata["id"]: _scores_in(text) for text in given}
    try:
        answer: Sequence[Document] = yield Call(
            lambda: reranker.compress_documents(given, query),
            lambda: reranker.acompress_documents(given, query),
        )
        verdicts = _verdicts(answer, scores_given)
    except Exception as error:  # noqa: BLE001 - whatever a reranker raises, there is an order without it
        failures.append(f"reranker {name}: {type(error).__name__}: {error}")
        return pool
    if len(verdicts) < len(best):
        failures.append(
            f"reranker {name}: gave back {len(verdicts)} of {len(best)} documents; "
            "the others count as ranked below"
        )
    added = np.zeros(len(pool.ranking.keys))
    added[best] = RERANKING.weight * _standardised(verdicts, [*scores_given])
    return replace(pool, ranking=pool.ranking.with_part("reranker", added))


def _for_reranker(text: Document) -> Document:
    """Returns a document with the name of who said it in its text: a question may name them."""
    speaker = text.metadata["speaker"]
    if speaker:
        text.page_content = f"{speaker}: {text.page_content}"
    return text


def _scores_in(text: Document) -> dict[str, float]:
    """Returns what stands in the metadata of a document under the names of scores."""
    scores: dict[str, float] = {}
    for name in SCORE_NAMES:
        value = text.metadata.get(name)
        if isinstance(value, Real) and math.isfinite(value):
            scores[name] = float(value)
    return scores


def _verdicts(
    answer: Iterable[Document], scores_given: Mapping[str, Mapping[str, float]]
) -> dict[str, float | None]:
    """Returns the score of each document that a reranker gave back, in its order, by their ids.

    None stands for a document without a score: under each name there is what it came with. (Many
    rerankers copy text and metadata alone, so documents are known by an id in their metadata.)
    """
    verdicts: dict[str, float | None] = {}
    for text in answer:
        text_id = str(text.metadata.get("id"))
        if text_id not in scores_given or text_id in verdicts:
            continue
        before = scores_given[text_id].items()
        new = [score for name, score in _scores_in(text).items() if (name, score) not in before]
        verdicts[text_id] = next(iter(new), None)
    return verdicts


def _standardised(verdicts: Mapping[str, float | None], ids: Sequence[str]) -> Scores:
    """Returns a reranker's scores with mean 0 and deviation 1, in the order of some ids.

    Where it has not scored all documents, its order counts, as if its scores were distributed
    normally; documents that it left out share the places behind the others.
    """
    scores = [verdicts.get(text_id) for text_id in ids]
    known = [score for score in scores if score is not None]
    if len(known) == len(ids):
        return z_scores(np.array(known))

    by_place = [NormalDist().inv_cdf(1 - (place + 0.5) / len(ids)) for place in range(len(ids))]
    rest = by_place[len(verdicts) :]
    of_rest = fmean(rest) if rest else 0.0
    by_id = dict(zip(verdicts, by_place, strict=False))
    return np.array([by_id.get(text_id, of_rest) for text_id in ids])
