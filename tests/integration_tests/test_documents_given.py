"""What is given as documents: paths, loaders, directories, and metadata that an update keeps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from langchain_core.document_loaders import BaseLoader
from langchain_core.documents import Document
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import KnowledgeBase
from langchain_ctxbudget.errors import DocumentError, InputError
from tests.integration_tests.conftest import Call
from tests.integration_tests.test_knowledge_base import BIKE, GUIDE, KETTLE, call, pdf

__all__ = ["call"]


@pytest.fixture
def knowledge() -> KnowledgeBase:
    return KnowledgeBase(InMemoryStore(), user_id="ada")


class Loader(BaseLoader):
    """Gives what it was told to give, and raises what is an error."""

    def __init__(self, *items: Any) -> None:
        self.items = items

    def lazy_load(self) -> Iterator[Document]:
        for item in self.items:
            if isinstance(item, Exception):
                raise item
            yield item


def named(text: str, source: str, **metadata: Any) -> Document:
    return Document(text, metadata={"source": source, **metadata})


def sources(knowledge: KnowledgeBase) -> list[str]:
    return [info.source for info in knowledge.list()]


# What an update keeps

LEASE = {"source": "lease.txt", "title": "My lease", "date": "2024-07-01", "type": "contract", "signed_by": "Maya"}


@pytest.mark.parametrize("kind", ["string", "document", "path", "markdown", "pdf"])
def test_an_update_keeps_the_metadata_of_which_nothing_new_is_given(
    knowledge: KnowledgeBase, call: Call, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "new.md").write_text(GUIDE)
    (tmp_path / "new.txt").write_text(BIKE)
    new = {
        "string": BIKE,
        "document": Document(BIKE),
        "path": tmp_path / "new.txt",
        "markdown": tmp_path / "new.md",
        "pdf": pdf(tmp_path / "new.pdf", "Oil the chain.", title="Bikes"),
    }
    call(knowledge, "add", Document(KETTLE, metadata=LEASE))
    call(knowledge, "update", "lease.txt", new[kind])
    [info] = call(knowledge, "list")
    kept = {"source": info.source, "title": info.title, "date": info.date, "type": info.type, **info.metadata}
    assert kept == LEASE
    assert call(knowledge, "get", "lease.txt").page_content != KETTLE


# Loaders


def test_what_cannot_be_read_is_skipped_where_that_is_asked_for(knowledge: KnowledgeBase, call: Call) -> None:
    loader = Loader(named("Good.", "1"), named(" ", "2"), named("Good, too.", "3"))
    done = call(knowledge, "add", [loader, "", named(KETTLE, "4")], on_error="skip")
    assert (len(done.added), len(done.failures)) == (3, 2)
    assert sources(knowledge) == ["1", "3", "4"]


def test_a_loader_that_raises_loses_nothing_that_came_before(knowledge: KnowledgeBase, call: Call) -> None:
    loader = Loader(named("Good.", "2"), named("Good, too.", "3"), RuntimeError("net down"))
    with pytest.raises(DocumentError, match=r"Loader .*RuntimeError: net down") as raised:
        call(knowledge, "add", [named(KETTLE, "1"), loader, named(BIKE, "4")])
    assert isinstance(raised.value.__cause__, RuntimeError)
    assert sources(knowledge) == ["1", "2", "3"]


@pytest.mark.parametrize("pages", [1, 2])
def test_of_a_loader_that_raises_no_half_document_is_added(knowledge: KnowledgeBase, call: Call, pages: int) -> None:
    half = [named(f"Page {number}.", "a.pdf", page=number) for number in range(1, pages + 1)]
    loader = Loader(named("Good.", "1"), *half, RuntimeError("net down"))
    call(knowledge, "add", loader, on_error="skip")
    assert sources(knowledge) == ["1"]


@pytest.mark.parametrize("name", ["source", "title"])
def test_a_loader_of_many_documents_takes_no_source_of_one(knowledge: KnowledgeBase, call: Call, name: str) -> None:
    with pytest.raises(DocumentError, match="those of one document"):
        call(knowledge, "add", Loader(named("A.", "1"), named("B.", "2")), metadata={name: "x"})


# Paths


def test_a_path_is_the_way_to_what_was_added_by_it(knowledge: KnowledgeBase, call: Call, tmp_path: Path) -> None:
    path = tmp_path / "kettle.txt"
    path.write_text(KETTLE)
    call(knowledge, "add", path)
    assert call(knowledge, "get", path).page_content == KETTLE
    assert call(knowledge, "update", path, BIKE).updated
    assert call(knowledge, "get", path).page_content == BIKE
    assert call(knowledge, "delete", path)
    assert sources(knowledge) == []


def test_a_file_has_one_source_however_its_path_is_written(
    knowledge: KnowledgeBase, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "kettle.txt").write_text(KETTLE)
    monkeypatch.chdir(tmp_path)
    first = call(knowledge, "add_directory", "docs").added
    assert call(knowledge, "add_directory", tmp_path / "docs").unchanged == first
    assert call(knowledge, "add", Path("docs") / ".." / "docs" / "kettle.txt").unchanged == first
    assert call(knowledge, "get", Path("docs/kettle.txt")).page_content == KETTLE
    assert sources(knowledge) == [(tmp_path / "docs" / "kettle.txt").as_posix()]


# Directories


def test_a_link_that_leads_out_of_a_directory_is_left_out(knowledge: KnowledgeBase, call: Call, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("The password is swordfish.")
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "kettle.txt").write_text(KETTLE)
    (docs / "inside.txt").symlink_to(docs / "kettle.txt")
    (docs / "outside.txt").symlink_to(tmp_path / "secret.txt")
    (docs / "above").symlink_to(tmp_path)
    (docs / "dead.txt").symlink_to(tmp_path / "nothing")
    for pattern in (None, "**/*", "*/*.txt"):
        call(knowledge, "add_directory", docs, pattern)
    assert [Path(source).name for source in sources(knowledge)] == ["inside.txt", "kettle.txt"]


def test_a_pattern_of_what_is_not_below_is_refused(knowledge: KnowledgeBase, call: Call, tmp_path: Path) -> None:
    for pattern in ["/etc/*.conf", "../*.txt", "sub/../../*.txt", "", 7]:
        with pytest.raises(InputError, match="glob"):
            call(knowledge, "add_directory", tmp_path, pattern)


# Metadata


def test_metadata_of_the_wrong_kind_is_refused(knowledge: KnowledgeBase, call: Call) -> None:
    for name, value in [("source", 7), ("title", 9), ("type", ["x"]), ("date", "2024-13-99"), ("date", 20240101)]:
        with pytest.raises(DocumentError, match=name):
            call(knowledge, "add", KETTLE, metadata={name: value})
        with pytest.raises(DocumentError, match=name):
            call(knowledge, "add", Document(KETTLE, metadata={name: value}))
        assert sources(knowledge) == []


def test_a_date_may_be_written_in_these_ways(knowledge: KnowledgeBase, call: Call) -> None:
    for given, kept in [
        ("2024-07-01", "2024-07-01"),
        ("2024-07-01T10:00:00Z", "2024-07-01"),
        (date(2024, 7, 1), "2024-07-01"),
        (datetime(2024, 7, 1, 23, tzinfo=UTC), "2024-07-01"),
        (None, None),
        ("", None),
    ]:
        call(knowledge, "add", KETTLE, metadata={"date": given})
        assert [info.date for info in call(knowledge, "list")] == [kept]


def test_metadata_that_json_cannot_hold_is_skipped_with_its_document(knowledge: KnowledgeBase, call: Call) -> None:
    endless: dict[str, Any] = {}
    endless["self"] = endless
    given: Iterable[Document] = [named(BIKE, "bad", endless=endless), named(KETTLE, "good")]
    assert len(call(knowledge, "add", given, on_error="skip").failures) == 1
    assert sources(knowledge) == ["good"]
