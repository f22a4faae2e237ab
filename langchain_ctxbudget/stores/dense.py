"""The index of a store: which texts become vectors, made by which embeddings. Vectors have length 1."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from langchain_core.embeddings import Embeddings
from langgraph.store.base import IndexConfig, ensure_embeddings
from langgraph.store.base.embed import EmbeddingsLambda
from numpy.typing import NDArray

from langchain_ctxbudget.errors import EmbeddingMismatchError, StoreError
from langchain_ctxbudget.stores.operations import Plan

Vector = NDArray[np.float64]


def identity(embeddings: Embeddings) -> str:
    """What embeddings are called in a store: their model, else their function or class."""
    if isinstance(embeddings, EmbeddingsLambda):
        function = getattr(embeddings, "func", None) or embeddings.afunc
        return str(getattr(function, "__name__", type(function).__name__))
    names = (getattr(embeddings, name, None) for name in ("model", "model_name"))
    return next((name for name in names if isinstance(name, str) and name), type(embeddings).__name__)


@dataclass(frozen=True, slots=True)
class Embedded:
    """The vectors of a batch, by text."""

    documents: Mapping[str, Vector]
    queries: Mapping[str, Vector]


@dataclass(frozen=True, slots=True)
class DenseIndex:
    """LangGraph's `IndexConfig`, resolved."""

    embeddings: Embeddings
    dims: int
    fields: Sequence[str]

    @classmethod
    def from_config(cls, config: IndexConfig) -> Self:
        """Read a configuration as LangGraph's stores do; without fields, whole values are embedded."""
        return cls(ensure_embeddings(config["embed"]), config["dims"], config.get("fields") or ["$"])

    def embed(self, batch: Plan) -> Embedded:
        """Make the vectors that a batch needs.

        Raises:
            EmbeddingMismatchError: the embeddings gave vectors of another length than `dims`.
        """
        documents = self.embeddings.embed_documents(list(batch.texts)) if batch.texts else []
        queries = [self.embeddings.embed_query(query) for query in batch.queries]
        return Embedded(self._units(batch.texts, documents), self._units(batch.queries, queries))

    async def aembed(self, batch: Plan) -> Embedded:
        """The same as `embed`, through the asynchronous methods of the embeddings."""
        documents = await self.embeddings.aembed_documents(list(batch.texts)) if batch.texts else []
        queries = await asyncio.gather(*map(self.embeddings.aembed_query, batch.queries))
        return Embedded(self._units(batch.texts, documents), self._units(batch.queries, queries))

    def _units(self, texts: Sequence[str], embedded: Sequence[Sequence[float]]) -> dict[str, Vector]:
        lengths = {len(vector) for vector in embedded}
        if len(embedded) != len(texts) or lengths - {self.dims}:
            raise EmbeddingMismatchError(
                f"The index has dims={self.dims}, but for {len(texts)} texts {identity(self.embeddings)} gave "
                f"{len(embedded)} vectors of length {sorted(lengths)}. Set dims to what the embeddings give."
            )
        vectors = np.asarray(embedded, dtype=np.float64).reshape(len(texts), self.dims)
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.isfinite(norms).all():
            raise StoreError(f"{identity(self.embeddings)} gave numbers that are not finite.")
        units = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
        return dict(zip(texts, units, strict=True))
