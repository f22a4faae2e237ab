"""A child of a fork is refused its parent's stores and pipelines, and makes its own.

As with gunicorn --preload, and with Celery.
"""

import multiprocessing
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ChromaStore, ContextPipeline
from langchain_ctxbudget.errors import StoreError, StoreLockedError

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

SAFETY_SECONDS = 60
SCOPE: Any = {"user_id": "ada", "conversation_id": "c1"}


class Child:
    """A forked process that does some work."""

    def __init__(self, work: Callable[[], Any]) -> None:
        context = multiprocessing.get_context("fork")
        self._results = context.SimpleQueue()
        self._process = context.Process(target=self._run, args=(work,))
        with warnings.catch_warnings():
            # A process with threads is forked: that is what is tested.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._process.start()

    def _run(self, work: Callable[[], Any]) -> None:
        try:
            self._results.put(work())
        except Exception as error:  # noqa: BLE001 - the parent looks at it
            self._results.put(error)

    def result(self) -> Any:
        """Returns what the work gave, or the error that it ended with."""
        self._process.join(SAFETY_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
            pytest.fail("the child hangs")
        assert self._process.exitcode == 0
        return self._results.get()


def add(pipeline: ContextPipeline, text: str) -> list[str]:
    return pipeline.add_messages([HumanMessage(text, id=text)], **SCOPE)


@contextmanager
def busy(pipeline: ContextPipeline) -> Iterator[None]:
    """Threads that work with the pipeline all the time.

    So a fork finds locks held and work half done.
    """
    ends = threading.Event()

    def work(name: str) -> None:
        number = 0
        while not ends.is_set():
            number += 1
            add(pipeline, f"{name} {number}: My bike is blue.")
            pipeline.assemble("Which colour is my bike?", **SCOPE)

    threads = [threading.Thread(target=work, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ends.set()
        for thread in threads:
            thread.join()


@pytest.fixture(params=["default", "folder"])
def pipeline(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ContextPipeline]:
    """A pipeline over a store of this process that is in use."""
    store = ChromaStore(tmp_path / "store") if request.param == "folder" else None
    with ContextPipeline({"learn_every": 1}, store=store) as opened:
        add(opened, "Hello")
        yield opened
    if store is not None:
        store.close()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[ChromaStore]:
    """A folder that this process has opened and uses."""
    with ChromaStore(tmp_path / "store") as store:
        with ContextPipeline({"learn_every": 1}, store=store) as pipeline:
            add(pipeline, "Hello")
        yield store


@pytest.mark.slow
def test_a_pipeline_of_the_parent_refuses_a_child(pipeline: ContextPipeline) -> None:
    with busy(pipeline):
        errors = [Child(lambda: add(pipeline, "From the child")).result() for _ in range(2)]
    assert [type(error) for error in errors] == [StoreError, StoreError]
    assert "after the fork" in str(errors[0])
    assert "after the fork" in str(errors[1])


@pytest.mark.slow
def test_a_pipeline_that_a_child_closes_stays_open_in_the_parent(
    pipeline: ContextPipeline,
) -> None:
    with busy(pipeline):
        results = [Child(pipeline.close).result() for _ in range(2)]
    add(pipeline, "Still here")
    contents = [message.content for message in pipeline.get_messages(**SCOPE)]
    assert results == [None, None]
    assert "Still here" in contents


@pytest.mark.slow
def test_a_child_refused_by_a_pipeline_may_close_it(pipeline: ContextPipeline) -> None:
    with busy(pipeline):
        Child(lambda: add(pipeline, "From the child")).result()
        assert Child(pipeline.close).result() is None
    add(pipeline, "Still here")
    contents = [message.content for message in pipeline.get_messages(**SCOPE)]
    assert "Still here" in contents
    assert "From the child" not in contents


def test_a_folder_of_the_parent_is_locked_for_a_child(folder: ChromaStore, tmp_path: Path) -> None:
    Child(folder.close).result()
    error = Child(lambda: ChromaStore(tmp_path / "store")).result()
    assert type(error) is StoreLockedError


def test_a_store_of_the_parent_refuses_a_child(folder: ChromaStore) -> None:
    error = Child(lambda: folder.get(("n",), "k")).result()
    assert type(error) is StoreError


def work_with_a_new_pipeline() -> int:
    """Returns the tokens of a prompt of a pipeline of this process."""
    with ContextPipeline({"learn_every": 1}) as pipeline:
        add(pipeline, "From the child")
        tokens = pipeline.assemble("What is new?", **SCOPE).report.total_tokens
        assert pipeline.flush(SAFETY_SECONDS / 2)
        return tokens


@pytest.mark.slow
def test_a_pipeline_made_in_a_child_works_while_the_parents_is_busy() -> None:
    with ContextPipeline({"learn_every": 1}, store=InMemoryStore()) as parents, busy(parents):
        results = [Child(work_with_a_new_pipeline).result() for _ in range(3)]
    assert min(results) > 0
