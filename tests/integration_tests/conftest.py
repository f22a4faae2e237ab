"""What the tests of the whole path share."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import pytest
from langgraph.store.base import BaseStore

from langchain_ctxbudget.worker import Worker
from tests.stores import EVERY_STORE, blocking_stores

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Call = Callable[..., Any]
Invoke = Callable[..., Any]
Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture
def run() -> Iterator[Run]:
    """Runs coroutines on one event loop in a thread of its own, which goes on like a server's."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, loop).result()
    asyncio.run_coroutine_threadsafe(_end(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def chat_file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "chat.json"
    path.write_text(json.dumps(request.module.CHAT), encoding="utf-8")
    return path


async def _end() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


@pytest.fixture
def call() -> Call:
    """Calls a method by its name.

    That its async twin gives the same is what `test_both_forms` says.
    """
    return lambda it, name, /, *args, **kwargs: getattr(it, name)(*args, **kwargs)


@pytest.fixture
def invoke() -> Invoke:
    """Awaits a runnable; `test_both_forms` says that the blocking form gives the same."""
    return lambda runnable, *args, **kwargs: asyncio.run(runnable.ainvoke(*args, **kwargs))


BACK_ENDS = {"test_export_and_erase", "test_isolation", "test_message_log"}
"""Modules about what a store keeps: they run on every store, all others on one."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "store" not in metafunc.fixturenames:
        return
    if metafunc._arg2fixturedefs["store"][-1].func is not new_store:
        return
    kinds: Sequence[str] = ("memory",)
    if module_of(metafunc.definition) in BACK_ENDS:
        kinds = EVERY_STORE
    metafunc.parametrize("store", kinds, indirect=True)


def module_of(item: pytest.Item) -> str:
    return Path(item.path).stem


_workers: WeakSet[Worker[Any]] = WeakSet()


@pytest.fixture(scope="session", autouse=True)
def _noted_workers() -> None:
    usual = Worker.__init__

    def noted(self: Worker[Any], *args: Any, **kwargs: Any) -> None:
        usual(self, *args, **kwargs)
        _workers.add(self)

    Worker.__init__ = noted  # type: ignore[method-assign]


def new_store(request: pytest.FixtureRequest) -> Iterator[BaseStore]:
    with blocking_stores(request.param, request) as new:
        yield new()
        # What still learns or summarizes needs the store.
        for worker in list(_workers):
            worker.flush(30)


store = pytest.fixture(new_store)

FIRST = {"test_isolation", "test_kills", "test_many_writers"}
"""Modules of tests that take minutes: they begin first, so that no worker ends long after the
others."""
LONG = {
    "test_chat_history",
    "test_chroma_folders",
    "test_chroma_properties",
    "test_chroma_server",
    "test_chroma_store",
    "test_dashboard_api",
    "test_export_and_erase",
    "test_kills",
    "test_many_writers",
    "test_recall_tool",
    "test_same_prompt",
    "test_summary_faults",
    "test_what_if",
}
"""Modules that are for the long suite."""


CHROMA = {"chroma", "chroma-folder", "chroma-server"}
"""Kinds of stores on which a back end's tests are for the long suite."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: module_of(item) not in FIRST)
    for item in items:
        if module_of(item) in LONG or is_of_chroma(item):
            item.add_marker(pytest.mark.slow)


def is_of_chroma(item: pytest.Item) -> bool:
    """Whether a test of what a store keeps runs on Chroma."""
    parameters = getattr(item, "callspec", None)
    if parameters is None or module_of(item) not in BACK_ENDS:
        return False
    kinds = {parameters.params.get("store"), parameters.params.get("kind")}
    return bool(kinds & CHROMA)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Headless Chromium; without one the test is skipped, and fails in CI."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - few tests need it

    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        if os.environ.get("CI") == "true":
            pytest.fail("there is no chromium: apt-get install chromium")
        pytest.skip("there is no chromium")
    arguments: list[str] = []
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        yield browser
        browser.close()
