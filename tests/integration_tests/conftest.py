"""What the tests of the whole path share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ChromaStore, ContextPipeline

ASYNC_TWINS = {"sync": "a_sync"}

Call = Callable[..., Any]


@pytest.fixture(params=["sync", "async"])
def call(request: pytest.FixtureRequest) -> Call:
    """Calls a method of a pipeline by its name, in its blocking or its async form."""

    def sync(pipeline: ContextPipeline, name: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(pipeline, name)(*args, **kwargs)

    def asynchronous(pipeline: ContextPipeline, name: str, *args: Any, **kwargs: Any) -> Any:
        twin = getattr(pipeline, ASYNC_TWINS.get(name, f"a{name}"))
        return asyncio.run(twin(*args, **kwargs))

    return sync if request.param == "sync" else asynchronous


@pytest.fixture(params=["memory", "chroma", "chroma-folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BaseStore]:
    """Every store that this part runs on."""
    if request.param == "memory":
        yield InMemoryStore()
        return
    with ChromaStore(tmp_path / "store") if request.param == "chroma-folder" else ChromaStore() as chroma:
        yield chroma
