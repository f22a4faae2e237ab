"""What LangChain expects of every tool, of the recall tool: that it answers, in both modes, in a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tools import BaseTool
from langchain_tests.integration_tests import ToolsIntegrationTests
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, create_recall_tool


@pytest.fixture(autouse=True)
def in_a_run() -> Iterator[None]:
    """The standard tests give no config; like everything that is called in a run, the tool then has that of the run."""
    before = var_child_runnable_config.set({"configurable": {"user_id": "ada", "thread_id": "c1"}})
    yield
    var_child_runnable_config.reset(before)


class RecallTests(ToolsIntegrationTests):
    @property
    def tool_constructor(self) -> BaseTool:
        pipeline = ContextPipeline(store=InMemoryStore())
        pipeline.add_messages([HumanMessage("My bicycle is blue.")], user_id="ada", conversation_id="c1")
        return create_recall_tool(pipeline)


class TestByQuery(RecallTests):
    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"query": "bicycle"}


class TestByReference(RecallTests):
    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"reference": "1"}
