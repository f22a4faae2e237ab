"""Documents that several write at once, that have lost something, or whose store or summary failed, stay whole."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.documents import Document
from langgraph.store.base import BaseStore, Op, PutOp, Result, SearchOp
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import KnowledgeBase, LocalEmbeddings
from langchain_ctxbudget.errors import StoreError
from langchain_ctxbudget.stores.records import ROOT, label
from tests.integration_tests.conftest import Call
from tests.integration_tests.summary_models import Scripted
from tests.integration_tests.test_knowledge_base import BIKE, KETTLE, call, plainly, require_whole, texts, words
from tests.log_contract import Elsewhere

__all__ = ["call"]

CHUNKS = (ROOT, label("ada"), "documents", "chunks")


class Interrupted(Elsewhere):
    """A store object of its own, where something happens once, right after an operation."""

    def __init__(self, store: BaseStore, after: Callable[[Op], bool], happens: Callable[[], object]) -> None:
        super().__init__(store)
        self._after, self._happens = after, [happens]

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        todo = list(ops)
        results = super().batch(todo)
        if self._happens and any(map(self._after, todo)):
            self._happens.pop()()
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return self.batch(ops)


def writes_chunks(op: Op) -> bool:
    return isinstance(op, PutOp) and op.namespace[-1] == "chunks"


def looks_for_documents(op: Op) -> bool:
    return isinstance(op, SearchOp) and op.namespace_prefix[-1] == "manifest"


def named(text: str, source: str = "kettle.txt") -> Document:
    return Document(text, metadata={"source": source})


# Several store objects over the same records, as where every request opens its own


def test_another_store_object_leaves_what_is_being_written_alone(call: Call) -> None:
    store = InMemoryStore()
    other = KnowledgeBase(Elsewhere(store), user_id="ada")
    mine = KnowledgeBase(Interrupted(store, writes_chunks, lambda: other.add(named(BIKE, "bike"))), user_id="ada")
    call(mine, "add", named(KETTLE))
    require_whole(store, plainly, {"kettle.txt": KETTLE, "bike": BIKE})


@pytest.mark.parametrize(("name", "arguments"), [("add", [named(BIKE)]), ("delete", ["kettle.txt"])])
def test_of_two_store_objects_that_write_one_document_the_last_one_counts(
    call: Call, name: str, arguments: list[Any]
) -> None:
    store = InMemoryStore()
    other = KnowledgeBase(Elsewhere(store), user_id="ada")
    waiting = threading.Thread(target=getattr(other, name), args=arguments)

    def at_once() -> None:
        waiting.start()
        waiting.join(0.2)  # long enough for one that does not wait

    mine = KnowledgeBase(Interrupted(store, writes_chunks, at_once), user_id="ada")
    call(mine, "add", named(KETTLE))
    waiting.join()
    if name == "delete":
        assert list(store.search((ROOT,))) == []
    else:
        require_whole(store, plainly, {"kettle.txt": BIKE})


def test_what_is_added_while_the_last_document_is_deleted_is_shown(call: Call) -> None:
    store = InMemoryStore()
    other = KnowledgeBase(Elsewhere(store), user_id="ada")
    other.add(named(KETTLE))
    happens = Interrupted(store, looks_for_documents, lambda: other.add(named(BIKE, "bike")))
    assert call(KnowledgeBase(happens, user_id="ada"), "delete", "kettle.txt")
    require_whole(store, plainly, {"bike": BIKE})


def test_threads_with_store_objects_of_their_own_lose_nothing() -> None:
    store = InMemoryStore()

    def work(number: int) -> None:
        knowledge = KnowledgeBase(Elsewhere(store), user_id="ada", chunk_tokens=16, chunk_overlap_tokens=0)
        for part in range(6):
            knowledge.add(
                [named(words(10 * number + part, 3), f"shared {part % 2}"), named(words(number, 3), f"{number}")]
            )
            knowledge.delete(f"shared {number % 2}")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    for source in ("shared 0", "shared 1"):
        KnowledgeBase(store, user_id="ada").delete(source)
    require_whole(store, plainly, {str(number): words(number, 3) for number in range(6)})


# What has lost something


@pytest.mark.parametrize("text", [KETTLE, KETTLE + " Let it cool."], ids=["same", "longer"])
def test_adding_again_heals_a_document_whose_chunks_are_gone(call: Call, text: str) -> None:
    store = InMemoryStore()
    knowledge = KnowledgeBase(store, user_id="ada", chunk_tokens=16, chunk_overlap_tokens=0)
    call(knowledge, "add", named(f"{words(1, 9)} {KETTLE}"))
    for item in store.search(CHUNKS, limit=100):
        store.delete(item.namespace, item.key)
    again = named(f"{words(1, 9)} {text}")
    assert len(call(knowledge, "add", again).updated) == 1
    require_whole(store, plainly, {"kettle.txt": again.page_content})
    assert len(call(knowledge, "add", again).unchanged) == 1


# Stores and embeddings that fail


class Sometimes(LocalEmbeddings):
    """Embeddings that can be broken."""

    broken = True

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        if self.broken:
            raise OSError("gone")
        return super().embed_documents(texts)


def test_a_store_whose_embeddings_fail_says_so_and_loses_nothing(call: Call) -> None:
    embeddings = Sometimes()
    store = InMemoryStore(index={"dims": 256, "embed": embeddings, "fields": ["text"]})
    knowledge = KnowledgeBase(store, user_id="ada")
    with pytest.raises(StoreError, match="OSError: gone") as raised:
        call(knowledge, "add", named(KETTLE))
    assert isinstance(raised.value.__cause__, OSError)
    assert call(knowledge, "list") == []
    embeddings.broken = False
    assert call(knowledge, "add", named(KETTLE)).added
    assert call(knowledge, "search", "kettle", k=1)[0].metadata["dense"] is not None


# Summaries that failed


def down(_: str) -> str:
    raise OSError("no model")


@pytest.mark.parametrize(("name", "arguments"), [("add", [named(KETTLE)]), ("update", ["kettle.txt", KETTLE])])
def test_a_summary_that_failed_is_tried_again(call: Call, name: str, arguments: list[Any]) -> None:
    store = InMemoryStore()
    call(KnowledgeBase(store, user_id="ada", summary_model=Scripted(answer=down)), "add", named(KETTLE))
    model = Scripted(answer=lambda _: "It is about kettles.")
    knowledge = KnowledgeBase(store, user_id="ada", summary_model=model)
    assert len(call(knowledge, name, *arguments).updated) == 1
    assert [(info.summary, info.summary_by) for info in call(knowledge, "list")] == [
        ("It is about kettles.", "Scripted")
    ]
    assert len(call(knowledge, name, *arguments).unchanged) == len(model.read) == 1
    assert texts(call(knowledge, "search", "kettle")) == [KETTLE]
