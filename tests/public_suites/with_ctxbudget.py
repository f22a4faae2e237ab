"""A pytest plugin for the test suites of other packages.

It puts this package where `CTXBUDGET_WHERE` says.

`middleware`: last in the list of every agent of `create_agent`; `hook`: before the model of every agent of
`create_react_agent` that has no hook of its own; `store`: in the place of every `InMemoryStore`. `nowhere` is what to
compare with; there an agent that would have our hook has one that hands on the messages as they are. What became of
every test is written to the file `CTXBUDGET_OUTCOMES`, and for which of them one of these was made.

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
        ours = (
            [ContextBudgetMiddleware(SETTINGS, default_user="ada")] if WHERE == "middleware" else []
        )
        return create(*args, middleware=[*middleware, *ours], **kwargs)

    return create_agent


def with_hook(create: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(create)
    def create_react_agent(*args: Any, pre_model_hook: Any = None, **kwargs: Any) -> Any:
        concerned.update(running)
        if pre_model_hook is None:
            ours = WHERE == "hook"
            pre_model_hook = (
                build_context_graph(SETTINGS, default_user="ada") if ours else as_they_are
            )
        return create(*args, pre_model_hook=pre_model_hook, **kwargs)

    return create_react_agent


def as_they_are(state: Any) -> dict[str, Any]:
    return {"llm_input_messages": state["messages"] if isinstance(state, dict) else state.messages}


def counted(kind: type[Any]) -> type[Any]:
    class Store(kind):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            concerned.update(running)
            super().__init__(*args, **kwargs)

    return Store


langchain.agents.create_agent = langchain.agents.factory.create_agent = with_middleware(  # type: ignore[assignment]
    langchain.agents.factory.create_agent
)
langgraph.prebuilt.create_react_agent = (
    langgraph.prebuilt.chat_agent_executor.create_react_agent
) = with_hook(langgraph.prebuilt.chat_agent_executor.create_react_agent)
langgraph.store.memory.InMemoryStore = counted(  # type: ignore[misc]
    ChromaStore if WHERE == "store" else langgraph.store.memory.InMemoryStore
)


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
