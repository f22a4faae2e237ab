"""An erased user stays erased where the threads of the checkpointer are deleted, too."""

from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.middleware import ContextBudgetMiddleware
from tests.integration_tests.agents import CONFIG, agent_of, scripted

USER = {"user_id": "ada"}
SECRET = "My locker code is 4711."


@pytest.mark.parametrize("deletes_threads", [True, False], ids=["with threads", "store alone"])
def test_a_thread_that_is_left_brings_its_messages_back(deletes_threads: bool) -> None:
    pipeline = ContextPipeline({"learn": False}, store=InMemoryStore())
    saver = InMemorySaver()
    agent: Any = agent_of(scripted(), ContextBudgetMiddleware(pipeline), checkpointer=saver)
    agent.invoke({"messages": [("human", SECRET)]}, CONFIG)
    if deletes_threads:
        for thread_id in pipeline.list_conversations(**USER):
            saver.delete_thread(thread_id)
    pipeline.erase_user(**USER)

    agent.invoke({"messages": [("human", "Hello")]}, CONFIG)

    is_back = any(SECRET in line for line in pipeline.export_user(**USER))
    assert is_back is not deletes_threads
