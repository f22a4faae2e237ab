"""Stores that search by meaning, and writing to them when their embeddings fail."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from langgraph.store.base import BaseStore, PutOp

from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.stores import bulk

_log = logging.getLogger(__name__)


def has_index(store: BaseStore) -> bool:
    """Returns whether a store searches by meaning.

    LangGraph's stores and `ChromaStore` tell by `index_config`; one that does not tell is taken to have none.
    """
    return bool(getattr(store, "index_config", None))


def write(store: BaseStore, puts: Sequence[PutOp]) -> Flow[None]:
    """Writes items; where that fails for one that is to be embedded, all of them without an index.

    Messages are kept also while the embeddings do not work; they are not found by meaning then.
    """
    try:
        yield from bulk.write(store, puts)
    except Exception as error:
        if not any(put.index for put in puts):
            raise
        _log.warning("Written again without the index: %s: %s", type(error).__name__, error)
        yield from bulk.write(store, [put._replace(index=False) if put.index else put for put in puts])
