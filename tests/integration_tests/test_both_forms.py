"""The blocking form of every public method gives what its async twin gives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import HumanMessage
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import (
    BudgetedChatMessageHistory,
    BudgetedRetriever,
    ContextPipeline,
    KnowledgeBase,
    build_context_graph,
    create_recall_tool,
)
from langchain_ctxbudget.demo import demo_messages
from langchain_ctxbudget.integrations.memory import BudgetedMemory

IDS: dict[str, Any] = {"user_id": "ada", "conversation_id": "c1"}
CONFIG: dict[str, Any] = {"configurable": {"thread_id": "c1", "user_id": "ada"}}
Do = Callable[..., Any]


def blocking(it: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    return getattr(it, name)(*args, **kwargs)


def awaited(it: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    return asyncio.run(getattr(it, f"a{name}")(*args, **kwargs))


def documents(pipeline: ContextPipeline, do: Do, folder: Path) -> list[Any]:
    knowledge = KnowledgeBase(pipeline.store, user_id="ada")
    (folder / "kettle.txt").write_text("The kettle is descaled with citric acid.")
    given = [Document("The chain needs oil.", metadata={"source": "bike"})]
    return [
        do(knowledge, "add", given),
        do(knowledge, "add_directory", folder),
        do(knowledge, "update", "bike", "The tyres need air."),
        do(knowledge, "list"),
        do(knowledge, "get", "bike"),
        do(knowledge, "search", "kettle", k=1),
        do(knowledge, "delete", "bike"),
        do(knowledge, "list"),
    ]


def history(pipeline: ContextPipeline, do: Do, _folder: Path) -> list[Any]:
    chat = BudgetedChatMessageHistory("c1", user_id="ada", pipeline=pipeline)
    given = [HumanMessage("My bike is blue.", id="m")]
    return [do(chat, "add_messages", given), chat.messages, do(chat, "window", 900), do(chat, "clear"), chat.messages]


def memory(pipeline: ContextPipeline, do: Do, _folder: Path) -> list[Any]:
    window, whole = (BudgetedMemory(pipeline=pipeline, whole_prompt=whole, **IDS) for whole in (False, True))
    return [
        do(window, "save_context", {"input": "My bike is blue."}, {"output": "Nice!"}),
        do(window, "load_memory_variables", {}),
        do(whole, "load_memory_variables", {"input": "Which colour?"}),
        do(window, "clear"),
        do(window, "load_memory_variables", {}),
    ]


def runnables(pipeline: ContextPipeline, do: Do, _folder: Path) -> list[Any]:
    graph = build_context_graph(pipeline)
    state = {"messages": [*demo_messages(), HumanMessage("And now?", id="q")]}
    return [
        do(pipeline.as_runnable(), "invoke", "Which colour has my bike?", CONFIG),
        do(BudgetedRetriever(pipeline=pipeline, user_id="ada"), "invoke", "What do the labels cost?"),
        do(create_recall_tool(pipeline), "invoke", {"query": "labels"}, CONFIG),
        do(graph, "invoke", state, CONFIG)["llm_input_messages"],
    ]


@pytest.mark.parametrize("use", [documents, history, memory, runnables])
def test_the_blocking_form_gives_what_the_async_one_gives(use: Callable[..., list[Any]], tmp_path: Path) -> None:
    results = []
    for do in (blocking, awaited):
        with ContextPipeline({"max_context_tokens": 2_000, "learn": False}, store=InMemoryStore()) as pipeline:
            pipeline.add_messages(demo_messages(), **IDS)
            results.append(use(pipeline, do, tmp_path))
    assert results[0] == results[1]
