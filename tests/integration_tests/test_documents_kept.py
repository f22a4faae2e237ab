"""Documents stay whole though several write at once, writers are killed, or the store fails."""

import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from langchain_core.documents import Document
from langgraph.store.base import BaseStore, Item
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ChromaStore, KnowledgeBase, LocalEmbeddings
from langchain_ctxbudget.errors import StoreError
from langchain_ctxbudget.stores import from_stored
from tests.integration_tests.test_knowledge_base import KETTLE, everything, named, words
from tests.log_contract import Elsewhere, Faulty
from tests.processes import FORKED


def require_whole(store: BaseStore, documents: dict[str, str]) -> None:
    """The store has these documents, everything that belongs to them and nothing else."""
    assert shown_texts(KnowledgeBase(store, user_id="ada")) == documents

    items = everything(store)
    expected = expected_parts(items)
    parts = [item for item in items if item.namespace[3] == "parts"]
    assert {(item.namespace[4], item.key) for item in parts} == expected
    assert len(items) == len(expected) + len(documents)


def expected_parts(items: list[Item]) -> set[tuple[str, str]]:
    """Whose parts there are to be, and their keys, as the documents' manifests say."""
    expected: set[tuple[str, str]] = set()
    for item in items:
        if item.namespace[3:] == ("manifest",):
            manifest = from_stored(item.value)
            keys = [*manifest["parts"], manifest["hash"]]
            expected |= {(manifest["id"], key) for key in keys}
    return expected


def shown_texts(knowledge: KnowledgeBase) -> dict[str, str | None]:
    """The text of each document that is listed."""
    return {info.source: text_of(knowledge, info.source) for info in knowledge.list()}


def text_of(knowledge: KnowledgeBase, source: str) -> str | None:
    document = knowledge.get(source)
    return None if document is None else document.page_content


def small(store: BaseStore) -> KnowledgeBase:
    return KnowledgeBase(store, user_id="ada", chunk_tokens=16, chunk_overlap_tokens=0)


# Writers who are cut off


class CutOff:
    """A document of thirty words whose next change is cut off after some writes."""

    def __init__(self, store: BaseStore) -> None:
        self.store = store
        self.faulty = Faulty(store)
        self.knowledge = small(self.faulty)
        self.before = words(1, 30)
        self.after = words(2, 30)
        self.knowledge.add(named(self.before, "one"))

    def change(self, writes: int) -> bool:
        """Changes the document; returns whether that was done within so many writes."""
        self.faulty.writes_left = writes
        try:
            self.knowledge.add(named(self.after, "one"))
        except StoreError:
            return False
        finally:
            self.faulty.writes_left = None
        return True


MOST_WRITES = 20
"""More than a change needs."""


@pytest.mark.parametrize("writes", range(MOST_WRITES))
def test_a_change_that_is_cut_off_shows_the_old_or_the_new_text(
    store: BaseStore, writes: int
) -> None:
    cut_off = CutOff(store)
    done = cut_off.change(writes)
    shown = text_of(cut_off.knowledge, "one")
    if done:
        assert shown == cut_off.after
    else:
        assert shown in (cut_off.after, cut_off.before)


@pytest.mark.parametrize("writes", range(MOST_WRITES))
def test_adding_what_is_shown_clears_up_after_a_cut(store: BaseStore, writes: int) -> None:
    cut_off = CutOff(store)
    cut_off.change(writes)
    shown = text_of(cut_off.knowledge, "one") or ""
    cut_off.knowledge.add(named(shown, "one"))
    require_whole(store, {"one": shown})


@pytest.mark.parametrize("writes", range(MOST_WRITES))
def test_adding_another_text_clears_up_after_a_cut(store: BaseStore, writes: int) -> None:
    cut_off = CutOff(store)
    cut_off.change(writes)
    text = words(3, 30)
    cut_off.knowledge.add(named(text, "one"))
    require_whole(store, {"one": text})


def test_a_change_is_done_within_twenty_writes_and_not_without_any(store: BaseStore) -> None:
    assert not CutOff(store).change(0)
    assert CutOff(store).change(MOST_WRITES - 1)


def documents_of(version: int) -> list[Document]:
    return [named(words(10 * version + number, 8), f"doc{number}") for number in range(4)]


def write_versions_without_end(folder: str, version: int, connection: Connection) -> None:
    """Writes one version of documents after another, and tells when it begins."""
    knowledge = small(ChromaStore(folder))
    connection.send("ready")
    while True:
        knowledge.add(documents_of(version))
        version += 1


def write_and_be_killed(folder: Path, version: int, seconds: float) -> None:
    """Lets another process write versions of documents, and kills it after a while."""
    receiver, sender = FORKED.Pipe(duplex=False)
    process = FORKED.Process(target=write_versions_without_end, args=(str(folder), version, sender))
    process.start()
    sender.close()
    with receiver:
        assert receiver.recv() == "ready"
        time.sleep(seconds)
        process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.slow
def test_whoever_is_killed_at_any_moment_leaves_nothing_behind(tmp_path: Path) -> None:
    chance = random.Random(7)
    folder = tmp_path / "store"
    documents = documents_of(99_999)
    for kill in range(5):
        write_and_be_killed(folder, 100 * kill, chance.uniform(0, 0.3))
        with ChromaStore(folder) as store:
            knowledge = small(store)
            texts = shown_texts(knowledge)
            assert [source for source, text in texts.items() if not text] == []
            knowledge.add(documents)
            require_whole(store, {each.metadata["source"]: each.page_content for each in documents})


# Several store objects over the same records, as where every request opens its own


def test_threads_with_store_objects_of_their_own_lose_nothing(store: BaseStore) -> None:
    def work(number: int) -> list[str]:
        """Adds, searches and deletes; returns what it finds of its own document."""
        knowledge = small(Elsewhere(store))
        texts = []
        for part in range(4):
            shared = named(words(10 * number + part, 3), f"shared {part % 2}")
            own = named(words(number, 3), f"{number}")
            knowledge.add([shared, own])
            texts.append(knowledge.search(f"m{number}x0", k=1)[0].page_content)
            knowledge.delete(f"shared {number % 2}")
        return texts

    with ThreadPoolExecutor(6) as pool:
        texts_by_thread = list(pool.map(work, range(6)))
    small(store).delete("shared 0")
    small(store).delete("shared 1")

    others: list[str] = []
    for number, texts in enumerate(texts_by_thread):
        others += [text for text in texts if f"Item {number}-0" not in text]
    assert others == []
    require_whole(store, {str(number): words(number, 3) for number in range(6)})


# What fails


class Sometimes(LocalEmbeddings):
    """Embeddings that fail until they are mended."""

    broken = True

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        if self.broken:
            raise OSError("gone")
        return super().embed_documents(texts)


@pytest.fixture
def embeddings() -> Sometimes:
    return Sometimes()


@pytest.fixture
def knowledge(embeddings: Sometimes) -> KnowledgeBase:
    store = InMemoryStore(index={"dims": 256, "embed": embeddings, "fields": ["text"]})
    return KnowledgeBase(store, user_id="ada")


def test_a_store_whose_embeddings_fail_says_so(knowledge: KnowledgeBase) -> None:
    with pytest.raises(StoreError, match="OSError: gone") as raised:
        knowledge.add(named(KETTLE, "kettle"))
    assert isinstance(raised.value.__cause__, OSError)


def test_a_document_that_could_not_be_embedded_is_not_listed(knowledge: KnowledgeBase) -> None:
    with pytest.raises(StoreError):
        knowledge.add(named(KETTLE, "kettle"))
    assert knowledge.list() == []


def test_a_document_that_could_not_be_embedded_is_added_later(
    knowledge: KnowledgeBase, embeddings: Sometimes
) -> None:
    with pytest.raises(StoreError):
        knowledge.add(named(KETTLE, "kettle"))
    embeddings.broken = False
    assert knowledge.add(named(KETTLE, "kettle")).added
    assert knowledge.search("kettle", k=1)[0].metadata["dense"] is not None
