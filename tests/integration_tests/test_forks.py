"""What the child of a fork does with stores and pipelines of its parent.

Gunicorn --preload, Celery.
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
    def __init__(self, work: Callable[[], Any]) -> None:
        context = multiprocessing.get_context("fork")
        self._results = context.SimpleQueue()
        self._process = context.Process(target=self._run, args=(work,))
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", DeprecationWarning
            )  # a process with threads: that is what is tested
            self._process.start()

    def _run(self, work: Callable[[], Any]) -> None:
        try:
            self._results.put(work())
        except Exception as error:  # noqa: BLE001 - told
            self._results.put(error)

    def result(self) -> Any:
        self._process.join(SAFETY_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
            pytest.fail("the child hangs")
        assert not self._process.exitcode
        return self._results.get()


def add(pipeline: ContextPipeline, text: str) -> list[str]:
    return pipeline.add_messages([HumanMessage(text, id=text)], **SCOPE)


@contextmanager
def busy(pipeline: ContextPipeline) -> Iterator[None]:
    """Threads that work with the pipeline all the time, so that a fork finds locks held and work half done."""
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
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ContextPipeline]:
    """A pipeline over a store of this process that is in use."""
    store = ChromaStore(tmp_path / "store") if request.param == "folder" else None
    with ContextPipeline({"learn_every": 1}, store=store) as pipeline:
        add(pipeline, "Hello")
        yield pipeline
    if store:
        store.close()


def test_what_the_parent_has_refuses_the_child_and_stays(
    opened: ContextPipeline, tmp_path: Path
) -> None:
    folder = tmp_path / "store"
    with busy(opened):
        for _ in range(2):
            error = Child(lambda: add(opened, "From the child")).result()
            assert type(error) is StoreError
            assert "after the fork" in str(error)
            assert Child(opened.close).result() is None
    add(opened, "Still here")
    assert "Still here" in [message.content for message in opened.get_messages(**SCOPE)]
    if folder.exists():  # and it is still locked
        assert type(Child(lambda: ChromaStore(folder)).result()) is StoreLockedError
        assert type(Child(lambda: opened.store.get(("n",), "k")).result()) is StoreError


def test_a_pipeline_that_is_made_in_the_child_works_while_that_of_the_parent_is_busy() -> None:
    def work() -> int:
        with ContextPipeline({"learn_every": 1}) as pipeline:
            add(pipeline, "From the child")
            tokens = pipeline.assemble("What is new?", **SCOPE).report.total_tokens
            return tokens if pipeline.flush(SAFETY_SECONDS / 2) else 0

    with ContextPipeline({"learn_every": 1}, store=InMemoryStore()) as pipeline, busy(pipeline):
        assert all(Child(work).result() for _ in range(3))
