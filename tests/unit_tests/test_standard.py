"""What LangChain expects of every tool, of the recall tool: how it is made and what it takes."""

from __future__ import annotations

from typing import Any

from langchain_core.tools import BaseTool
from langchain_tests.unit_tests import ToolsUnitTests
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, create_recall_tool


class TestRecallTool(ToolsUnitTests):
    @property
    def tool_constructor(self) -> BaseTool:
        return create_recall_tool(ContextPipeline(store=InMemoryStore()))

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"query": "bicycle"}
