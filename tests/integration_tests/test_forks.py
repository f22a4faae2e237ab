"""What the child of a fork does with stores and pipelines of its parent: gunicorn --preload, Celery, multiprocessing.

The time limits are for a child that hangs; nothing is measured.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
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
    """A forked process that does something; what it says or raises is `result`."""

    def __init__(self, work: Callable[[], Any]) -> None:
        context = multiprocessing.get_context("fork")
        self._results = context.SimpleQueue()
        self._process = context.Process(target=self._run, args=(work,))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # a process with threads: that is what is tested
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


def test_a_store_of_one_process_refuses_the_child_of_a_fork_and_the_parent_keeps_it(
    opened: ContextPipeline, tmp_path: Path
) -> None:
    folder = tmp_path / "store"
    kind = StoreLockedError if folder.exists() else StoreError
    with busy(opened):
        for _ in range(2):
            error = Child(lambda: add(opened, "From the child")).result()
            assert type(error) is kind
            assert "after the fork" in str(error)
            assert "ChromaStore(url=...)" in str(error)
            assert Child(opened.close).result() is None
    add(opened, "Still here")
    assert "Still here" in [message.content for message in opened.get_messages(**SCOPE)]
    if folder.exists():  # and it is still locked
        assert type(Child(lambda: ChromaStore(folder)).result()) is StoreLockedError


def test_a_pipeline_that_is_busy_goes_on_in_the_child_of_a_fork_with_workers_of_its_own() -> None:
    with ContextPipeline({"learn_every": 1}, store=InMemoryStore()) as pipeline:

        def work() -> tuple[int, bool, bool]:
            facts = pipeline.knowledge.list_facts(user_id="bob")
            pipeline.add_messages([HumanMessage("I am a nurse.")], user_id="bob", conversation_id="c2")
            add(pipeline, "From the child")
            tokens = pipeline.assemble("What is new?", **SCOPE).report.total_tokens
            flushed = pipeline.flush(SAFETY_SECONDS / 2)
            return tokens, flushed, pipeline.knowledge.list_facts(user_id="bob") != facts

        with busy(pipeline):
            for _ in range(3):
                tokens, flushed, learned = Child(work).result()
                assert tokens
                assert flushed
                assert learned


def test_a_fork_in_the_middle_of_whatever_a_thread_makes_once_leaves_a_child_that_can_make_it_too() -> None:
    said = [HumanMessage("I work on Project Apollo with Bob Smith in Berlin.", id="1")]
    stopped: SimpleQueue[str] = SimpleQueue()
    goes_on: SimpleQueue[None] = SimpleQueue()

    def assemble() -> int:
        return pipeline.assemble("How goes Project Apollo with Bob?", **SCOPE).report.total_tokens

    def stop(frame: FrameType, event: str, _: Any) -> None:
        caller = frame.f_back
        if event == "call" and caller and caller.f_code is cached_property.__get__.__code__:
            stopped.put(frame.f_code.co_name)
            goes_on.get()

    def work() -> None:
        sys.setprofile(stop)
        assemble()
        stopped.put("")

    with ContextPipeline({"learn_every": 1}, store=InMemoryStore()) as pipeline:
        pipeline.add_messages(said, **SCOPE)
        assert pipeline.flush(SAFETY_SECONDS)
        assemble()
        pipeline.knowledge.add_fact("Ada likes tea", user_id="ada")  # and what is known is new
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        made = []
        while name := stopped.get(timeout=SAFETY_SECONDS):
            made.append(name)
            assert isinstance(Child(assemble).result(), int), name
            goes_on.put(None)
        thread.join()
        assert made
