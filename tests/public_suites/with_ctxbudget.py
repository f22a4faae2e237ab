"""A pytest plugin for the test suites of other packages.

It puts this package where `CTXBUDGET_WHERE` says.

- `middleware`: last in the list of every agent of `create_agent`;
- `hook`: before the model of every agent of `create_react_agent` that has no hook of its own;
- `store`: in the place of every `InMemoryStore`;
- `nowhere` is what to compare with; there an agent that would have our hook has one that hands on
  the messages as they are.

What became of every test is written to the file `CTXBUDGET_OUTCOMES`, and for which of them one of
these was made.

It is imported before any test module is, so that those import what it puts there.
"""

import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import langchain.agents
import langchain.agents.factory
import langgraph.prebuilt
import langgraph.prebuilt.chat_agent_executor
import langgraph.store.memory
import pytest

from langchain_ctxbudget import ChromaStore, build_context_graph
from langchain_ctxbudget.middleware import ContextBudgetMiddleware

WHERE = os.environ["CTXBUDGET_WHERE"]
SETTINGS = {"max_context_tokens": 1_000_000}
failures: dict[str, str] = {}
passed: set[str] = set()
concerned: set[str] = set()
"""Tests for which an agent or a store was made."""
running: list[str] = []


def with_middleware(create: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(create)
    def create_agent(*args: Any, middleware: Any = (), **kwargs: Any) -> Any:
        concerned.update(running)
        all_middleware = list(middleware)
        if WHERE == "middleware":
            all_middleware.append(ContextBudgetMiddleware(SETTINGS, default_user="ada"))
        return create(*args, middleware=all_middleware, **kwargs)

    return create_agent


def with_hook(create: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(create)
    def create_react_agent(*args: Any, pre_model_hook: Any = None, **kwargs: Any) -> Any:
        concerned.update(running)
        if pre_model_hook is None:
            pre_model_hook = new_hook()
        return create(*args, pre_model_hook=pre_model_hook, **kwargs)

    return create_react_agent


def new_hook() -> Any:
    if WHERE == "hook":
        return build_context_graph(SETTINGS, default_user="ada")
    return as_they_are


def as_they_are(state: Any) -> dict[str, Any]:
    if isinstance(state, dict):
        return {"llm_input_messages": state["messages"]}
    return {"llm_input_messages": state.messages}


def counted(kind: type[Any]) -> type[Any]:
    class Store(kind):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            concerned.update(running)
            super().__init__(*args, **kwargs)

    return Store


create_agent: Any = with_middleware(langchain.agents.factory.create_agent)
langchain.agents.create_agent = create_agent
langchain.agents.factory.create_agent = create_agent

create_react_agent: Any = with_hook(langgraph.prebuilt.chat_agent_executor.create_react_agent)
langgraph.prebuilt.create_react_agent = create_react_agent
langgraph.prebuilt.chat_agent_executor.create_react_agent = create_react_agent

store_kind: type[Any] = langgraph.store.memory.InMemoryStore
if WHERE == "store":
    store_kind = ChromaStore
langgraph.store.memory.InMemoryStore = counted(store_kind)  # type: ignore[misc]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    running[:] = [item.nodeid]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        failures[report.nodeid] = f"{failures.get(report.nodeid, '')}{report.longreprtext}"
    elif report.passed and report.when == "call":
        passed.add(report.nodeid)


def pytest_sessionfinish() -> None:
    outcomes = {
        "passed": sorted(passed - set(failures)),
        "failures": failures,
        "concerned": sorted(concerned),
    }
    Path(os.environ["CTXBUDGET_OUTCOMES"]).write_text(json.dumps(outcomes), encoding="utf-8")
