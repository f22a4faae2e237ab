"""Stores that commit 962b675 wrote, opened anew: what was in memory, and a Chroma folder."""

import gzip
import json
import tarfile
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from langgraph.store.base import BaseStore, Op, PutOp, Result
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ChromaStore, ContextPipeline
from tests.data.store_962b675.write import SETTINGS, Summaries, Words
from tests.log_contract import Elsewhere

FOLDER = Path(__file__).parent / "data" / "store_962b675"
LATER = datetime(2026, 3, 20, tzinfo=UTC)
"""Some days after the stores were written."""


def in_memory() -> BaseStore:
    store = InMemoryStore()
    with gzip.open(FOLDER / "records.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            item = json.loads(line)
            store.put(tuple(item["namespace"]), item["key"], item["value"])
    return store


def in_folder(path: Path) -> ChromaStore:
    with tarfile.open(FOLDER / "folder.tar.xz") as archive:
        archive.extractall(path, filter="data")
    return ChromaStore(path)


class Recording(Elsewhere):
    """A store that remembers what is written into it."""

    def __init__(self, store: BaseStore) -> None:
        super().__init__(store)
        self.written: list[tuple[str, ...]] = []

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        todo = list(ops)
        self.written += [op.namespace for op in todo if isinstance(op, PutOp)]
        return super().batch(todo)

    def kinds(self) -> set[str]:
        """What was written of users, without the names of conversations."""
        return {namespace[2] for namespace in self.written}


class Embedded(Words):
    """The embeddings of the stores, which remember what they were asked for."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.texts += texts
        return super().embed_documents(texts)


def pipeline_over(store: BaseStore, **options: Any) -> ContextPipeline:
    given: dict[str, Any] = {
        "system_prompt": "You help Maya with the tool library.",
        "model": "gpt-4o",
        "embeddings": Embedded(),
        "summary_model": Summaries(),
        "writer_id": "later",
        "clock": lambda: LATER,
        **options,
    }
    return ContextPipeline(SETTINGS, store=store, **given)
