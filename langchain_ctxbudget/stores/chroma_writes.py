"""What a ChromaStore checks before it writes, and the vectors of texts and queries."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, Self, TypeAlias

import numpy as np
from langchain_core.embeddings import Embeddings
from langgraph.store import base as base_store
from langgraph.store.base import IndexConfig, Op, PutOp
from numpy.typing import NDArray
from pybase64 import b64encode_as_string

from langchain_ctxbudget import errors
from langchain_ctxbudget.messages import encodable
from langchain_ctxbudget.stores.chroma_records import StoredItem, item_id

VectorsByText: TypeAlias = dict[str, NDArray[np.float64]]
"""The vector of each text, of length 1."""


@dataclass(frozen=True)
class TextIndex:
    """What a store embeds of its items, and how."""

    embeddings: Embeddings | None = None
    dims: int = 0
    fields: Sequence[str] = ()
    """Paths within a value; `$` is the whole value."""

    @classmethod
    def of(cls, config: IndexConfig | None) -> Self:
        """Reads LangGraph's configuration of an index; without one, nothing is embedded."""
        if not config:
            return cls()
        return cls(
            embeddings=base_store.ensure_embeddings(config["embed"]),
            dims=config["dims"],
            fields=config.get("fields") or ["$"],
        )

    def texts_of(
        self, value: Mapping[str, Any], fields: Literal[False] | Sequence[str] | None
    ) -> list[str]:
        """Returns the texts of a value that are embedded, each once.

        Args:
            value: the value of an item.
            fields: the paths that its write asks for; None for those of the index, False for none.
        """
        if fields is False or not self.fields:
            return []
        texts: list[str] = []
        for path in fields or self.fields:
            place = path if path == "$" else base_store.tokenize_path(path)
            texts += base_store.get_text_at_path(value, place)
        return list(dict.fromkeys(text for text in texts if text.strip()))

    def vectors_of_texts(self, texts: Iterable[str]) -> VectorsByText:
        """Embeds the texts of items."""
        return self._vectors(texts, as_queries=False)

    def vectors_of_queries(self, queries: Iterable[str]) -> VectorsByText:
        """Embeds the queries of searches, without those that are empty."""
        return self._vectors(queries, as_queries=True)

    def _vectors(self, texts: Iterable[str], *, as_queries: bool) -> VectorsByText:
        distinct = list(dict.fromkeys(filter(None, texts)))
        if self.embeddings is None or not distinct:
            return {}
        if as_queries:
            raw_vectors = [self.embeddings.embed_query(text) for text in distinct]
        else:
            raw_vectors = self.embeddings.embed_documents(distinct)
        self._require_dims(raw_vectors)

        vectors = np.asarray(raw_vectors, dtype=np.float64)
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.isfinite(norms).all():
            raise errors.StoreError("The embeddings gave numbers that are not finite.")
        return dict(zip(distinct, vectors / np.where(norms > 0, norms, 1), strict=True))

    def _require_dims(self, vectors: list[list[float]]) -> None:
        wrong_lengths = {len(vector) for vector in vectors} - {self.dims}
        if wrong_lengths:
            raise errors.EmbeddingMismatchError(
                f"The index has dims={self.dims}, but the embeddings gave vectors of length "
                f"{sorted(wrong_lengths)}. Set dims to what they give."
            )


@dataclass(frozen=True)
class CheckedPut:
    """A write that can be stored."""

    value: str | None
    """The value as JSON text; None deletes the item."""
    texts: Sequence[str] = ()
    """The texts whose vectors are stored with it."""

    def to_item(self, vectors: VectorsByText, *, created: int, updated: int) -> StoredItem | None:
        """Returns the item to store, None for a deletion.

        Args:
            vectors: the vector of each of its texts.
            created: when the item was first written, in microseconds since 1970.
            updated: when it is written now, in microseconds since 1970.
        """
        if self.value is None:
            return None
        flat = b"".join(vectors[text].astype("<f4").tobytes() for text in self.texts)
        return StoredItem(
            created=created, updated=updated, vectors=b64encode_as_string(flat), value=self.value
        )


def checked_puts(ops: Iterable[Op], index: TextIndex) -> dict[str, CheckedPut]:
    """Checks a batch and returns its writes by item id; the last write of an item counts.

    Raises:
        InputError: an operation that makes no sense.
    """
    puts: dict[str, CheckedPut] = {}
    for op in ops:
        base_store.validate_op_namespace(op)
        if isinstance(op, PutOp):
            puts[item_id(op.namespace, op.key)] = _checked_put(op, index)
    return puts


def texts_of(puts: Iterable[CheckedPut]) -> Iterable[str]:
    """Returns the texts of writes that are embedded."""
    return chain.from_iterable(put.texts for put in puts)


def _checked_put(op: PutOp, index: TextIndex) -> CheckedPut:
    if op.ttl is not None:
        raise errors.InputError(
            "Items of a ChromaStore do not end by themselves: put them without `ttl`."
        )
    if op.value is None:
        return CheckedPut(value=None)
    return CheckedPut(value=_json_text(op.value), texts=index.texts_of(op.value, op.index))


def _json_text(value: Mapping[str, Any]) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise errors.InputError(
            f"The value is not JSON: {error}. Store text, numbers, lists or dicts."
        ) from error
    if encodable(text) != text:  # half of a surrogate pair, which only an escape can carry
        return json.dumps(value, separators=(",", ":"))
    return text
