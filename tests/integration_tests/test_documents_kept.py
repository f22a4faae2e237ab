"""Documents that several write at once, whose writers are killed, or whose store fails, stay whole."""

import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from langchain_core.documents import Document
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ChromaStore, KnowledgeBase, LocalEmbeddings
from langchain_ctxbudget.errors import StoreError
from langchain_ctxbudget.stores import stored
from tests.integration_tests.test_knowledge_base import KETTLE, everything, named, words
from tests.log_contract import Elsewhere, Faulty


def require_whole(store: BaseStore, documents: dict[str, str]) -> None:
    """The store has these documents, everything that belongs to them and nothing else."""
    knowledge = KnowledgeBase(store, user_id="ada")
    whole = {info.source: knowledge.get(info.source) for info in knowledge.list()}
    assert {source: it.page_content for source, it in whole.items() if it} == documents
    items = everything(store)
    manifest = [stored(item.value) for item in items if item.namespace[3:] == ("manifest",)]
    keys = {(one["id"], key) for one in manifest for key in one["parts"]}
    keys |= {(one["id"], one["hash"]) for one in manifest}
    assert {(item.namespace[4], item.key) for item in items if item.namespace[3] == "parts"} == keys
    assert len(items) == len(keys) + len(documents)


def small(store: BaseStore) -> KnowledgeBase:
    return KnowledgeBase(store, user_id="ada", chunk_tokens=16, chunk_overlap_tokens=0)


# Writers who are cut off


def test_whoever_is_cut_off_is_finished_by_the_next_change(store: BaseStore) -> None:
    faulty = Faulty(store)
    knowledge = small(faulty)
    whole = words(1, 30)
    knowledge.add(named(whole, "one"))
    for writes in range(20):
        faulty.writes_left = writes
        text = words(2 * writes + 2, 30)
        done = True
        try:
            knowledge.add(named(text, "one"))
        except StoreError:
            done = False
        faulty.writes_left = None
        shown = knowledge.get("one")
        assert shown is not None
        assert shown.page_content in ((text,) if done else (text, whole))
        if writes % 2:  # what is there already clears up as well as what is new
            knowledge.add(named(shown.page_content, "one"))
            require_whole(store, {"one": shown.page_content})
        whole = words(2 * writes + 3, 30)
        knowledge.add(named(whole, "one"))
        require_whole(store, {"one": whole})
        if done:
            return
    pytest.fail("it was never done")


KILLED = """
import sys
from langchain_ctxbudget import ChromaStore
from tests.integration_tests.test_documents_kept import given, small
knowledge = small(ChromaStore(sys.argv[1]))
print("ready", flush=True)
for version in range(int(sys.argv[2]), 1000):
    knowledge.add(given(version))
"""


def given(version: int) -> list[Document]:
    return [named(words(10 * version + number, 8), f"doc{number}") for number in range(4)]


@pytest.mark.slow
def test_whoever_is_killed_at_any_moment_leaves_nothing_behind(tmp_path: Path) -> None:
    chance = random.Random(7)
    for round_ in range(5):
        arguments = [sys.executable, "-c", KILLED, str(tmp_path / "store"), str(100 * round_)]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            time.sleep(chance.uniform(0, 0.3))
            process.kill()
        with ChromaStore(tmp_path / "store") as store:
            knowledge = small(store)
            assert all(knowledge.get(info.source) for info in knowledge.list())
            knowledge.add(given(99_999))
            require_whole(store, {it.metadata["source"]: it.page_content for it in given(99_999)})


# Several store objects over the same records, as where every request opens its own


def test_threads_with_store_objects_of_their_own_lose_nothing(store: BaseStore) -> None:
    def work(number: int) -> None:
        knowledge = small(Elsewhere(store))
        for part in range(4):
            knowledge.add(
                [
                    named(words(10 * number + part, 3), f"shared {part % 2}"),
                    named(words(number, 3), f"{number}"),
                ]
            )
            assert f"Item {number}-0" in knowledge.search(f"m{number}x0", k=1)[0].page_content
            knowledge.delete(f"shared {number % 2}")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    for source in ("shared 0", "shared 1"):
        small(store).delete(source)
    require_whole(store, {str(number): words(number, 3) for number in range(6)})


# What fails


class Sometimes(LocalEmbeddings):
    broken = True

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        if self.broken:
            raise OSError("gone")
        return super().embed_documents(texts)


def test_a_store_whose_embeddings_fail_says_so_and_loses_nothing() -> None:
    embeddings = Sometimes()
    knowledge = KnowledgeBase(
        InMemoryStore(index={"dims": 256, "embed": embeddings, "fields": ["text"]}), user_id="ada"
    )
    with pytest.raises(StoreError, match="OSError: gone") as raised:
        knowledge.add(named(KETTLE, "kettle"))
    assert isinstance(raised.value.__cause__, OSError)
    assert knowledge.list() == []
    embeddings.broken = False
    assert knowledge.add(named(KETTLE, "kettle")).added
    assert knowledge.search("kettle", k=1)[0].metadata["dense"] is not None
