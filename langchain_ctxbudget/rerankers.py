"""Rerankers: what puts found texts into a better order, as LangChain's document compressors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from langchain_core.callbacks import Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from pydantic import ConfigDict, Field, ValidationError

from langchain_ctxbudget.core.lexical import LexicalIndex
from langchain_ctxbudget.core.ranking import z_scores
from langchain_ctxbudget.core.text import terms
from langchain_ctxbudget.errors import InvalidSettingsError

PRIOR_WEIGHT = 1.25
"""How much the order in which documents come counts beside their words: so little that the only one to share a word
with the query comes first, wherever it stood."""


class LexicalReranker(BaseDocumentCompressor):
    """Puts documents first that share rare words with the query, without a model or a network.

    Words are compared by their stems, in any script, and weighed by BM25 over the given documents; the order in which
    they come counts as well. It is for what a search by embeddings alone has found, which misses names and numbers. The
    search of a `ContextPipeline` reads the words itself and gains nothing by it.

    Raises:
        InvalidSettingsError: a field has a value or a name that is not known.

    Example:
        >>> documents = [Document("A red car."), Document("Two blue bikes.")]
        >>> [found.page_content for found in LexicalReranker(top_n=1).compress_documents(documents, "Which bike?")]
        ['Two blue bikes.']
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    top_n: int | None = Field(default=None, strict=True, ge=1)
    """So many documents are given back at most; None: all."""

    def __init__(self, **fields: Any) -> None:  # noqa: ANN401 - the fields above; pydantic would hide our errors
        try:
            super().__init__(**fields)
        except ValidationError as error:
            wrong = (f"{'.'.join(map(str, each['loc']))}={each['input']!r}: {each['msg']}" for each in error.errors())
            raise InvalidSettingsError(f"LexicalReranker cannot have {'; '.join(wrong)}") from error

    def compress_documents(
        self,
        documents: Sequence[Document],
        query: str,
        callbacks: Callbacks | None = None,  # noqa: ARG002 - as the base class has it
    ) -> list[Document]:
        """The documents in their new order, each a copy with its score as `relevance_score` in the metadata.

        Args:
            documents: best first, as they were found.
            query: what they were found for.
            callbacks: not used.
        """
        index = LexicalIndex()
        index.extend(terms(document.page_content) for document in documents)
        prior = -np.log(np.arange(1, len(documents) + 1, dtype=np.float64))
        scores = z_scores(index.scores(terms(query))) + PRIOR_WEIGHT * prior
        order = np.argsort(-scores, kind="stable")[: self.top_n].tolist()
        return [_scored(documents[number], float(scores[number])) for number in order]


def _scored(document: Document, score: float) -> Document:
    return document.model_copy(update={"metadata": {**document.metadata, "relevance_score": score}})
