"""What LangChain expects of every tool, of the recall tool, and of every retriever.

That they answer, in both modes.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tools import BaseTool
from langchain_tests.integration_tests import RetrieversIntegrationTests, ToolsIntegrationTests
from langchain_tests.unit_tests import ToolsUnitTests
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import BudgetedRetriever, ContextPipeline, create_recall_tool


@pytest.fixture(autouse=True)
def in_a_run() -> Iterator[None]:
    """The standard tests give no config.

    Like everything that is called in a run, the tool then has that of the run.
    """
    before = var_child_runnable_config.set({"configurable": {"user_id": "ada", "thread_id": "c1"}})
    yield
    var_child_runnable_config.reset(before)


class RecallTests(ToolsIntegrationTests):
    @property
    def tool_constructor(self) -> BaseTool:
        pipeline = ContextPipeline(store=InMemoryStore())
        pipeline.add_messages(
            [HumanMessage("My bicycle is blue.")], user_id="ada", conversation_id="c1"
        )
        return create_recall_tool(pipeline)


class TestRecallTool(ToolsUnitTests):
    @property
    def tool_constructor(self) -> BaseTool:
        return create_recall_tool(ContextPipeline(store=InMemoryStore()))

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"query": "bicycle"}


class TestByQuery(RecallTests):
    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"query": "bicycle"}


class TestByReference(RecallTests):
    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"reference": "1"}


class TestRetriever(RetrieversIntegrationTests):
    @property
    def retriever_constructor(self) -> type[BudgetedRetriever]:
        return BudgetedRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        pipeline = ContextPipeline(store=InMemoryStore())
        messages = [
            HumanMessage(f"Bicycle number {number} is in the cellar.") for number in range(1, 6)
        ]
        pipeline.add_messages(messages, user_id="ada", conversation_id="c1")
        return {"pipeline": pipeline, "k": 2}

    @property
    def retriever_query_example(self) -> str:
        return "Which bicycle is in the cellar?"

    @pytest.mark.parametrize("k", [1, 3])
    async def test_ainvoke_with_k_kwarg(self, retriever: BudgetedRetriever, k: int) -> None:
        """The async form of `test_invoke_with_k_kwarg`, which the suite does not have."""
        documents = await retriever.ainvoke(self.retriever_query_example, None, k=k)
        assert len(documents) == k
