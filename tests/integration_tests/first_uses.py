"""A program: every async way in, each for the first time in a process.

Prints what blocked the event loop, by way.

`python -m tests.integration_tests.first_uses KIND`, where KIND is the store: `default`, `folder`,
or the URL of a server. A process that has only imported the package is forked for every way, so
nothing was loaded by another one.
"""

import asyncio
import json
import multiprocessing
import sys
import traceback
from collections.abc import Awaitable, Callable
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.base import BaseStore

from langchain_ctxbudget import (
    BudgetedChatMessageHistory,
    BudgetedRetriever,
    ContextPipeline,
    KnowledgeBase,
    build_context_graph,
    create_recall_tool,
)
from langchain_ctxbudget.memory import BudgetedMemory
from langchain_ctxbudget.middleware import ContextBudgetMiddleware

MESSAGES = [HumanMessage("My bike is blue.", id="1"), AIMessage("Nice!", id="2")]
SCOPE = {"user_id": "ada", "conversation_id": "c1"}
RUN: Any = {"configurable": {"user_id": "ada", "thread_id": "c1"}}
LARGE = (
    "chromadb",
    "tiktoken",
    "tokenizers",
    "safetensors",
    "httpx",
    "onnxruntime",
    "opentelemetry",
    "posthog",
)
"""Packages that take long to import."""


async def agent(pipeline: ContextPipeline) -> None:
    model = GenericFakeChatModel(messages=iter([AIMessage("Blue.")]))
    middleware: Any = [ContextBudgetMiddleware(pipeline, recall_tool=False)]
    agent: Any = create_agent(model, middleware=middleware, checkpointer=InMemorySaver())
    await agent.ainvoke({"messages": [HumanMessage("Which colour is my bike?")]}, RUN)


async def graph(pipeline: ContextPipeline) -> None:
    # LangGraph reads the sources of its nodes.
    graph = await asyncio.to_thread(build_context_graph, pipeline)
    await graph.ainvoke({"messages": [HumanMessage("Hi")]}, RUN)


async def documents(store: BaseStore | None = None) -> None:
    base = KnowledgeBase(store, user_id="ada")
    await base.aadd(["The bike is blue.", Path(__file__).with_name("ways_in.py")])
    await base.asearch("bike")
    await base.alist()
    await base.adelete("ways_in.py")


async def memory(pipeline: ContextPipeline) -> None:
    memory = BudgetedMemory(pipeline=pipeline, user_id="ada", conversation_id="c1")
    await memory.aload_memory_variables({"input": "Hi"})
    await memory.asave_context({"input": "Hi"}, {"output": "Hello"})


async def store(pipeline: ContextPipeline) -> None:
    await pipeline.store.aput(("a",), "b", {"c": 1})
    await pipeline.store.asearch(("a",), query="c")


WAYS: dict[str, Callable[[ContextPipeline], Awaitable[Any]]] = {
    "assemble": lambda p: p.aassemble("Which colour is my bike?", **SCOPE),
    "add": lambda p: p.aadd_messages(MESSAGES, **SCOPE),
    "sync": lambda p: p.a_sync(MESSAGES, **SCOPE),
    "list": lambda p: p.alist_conversations(user_id="ada"),
    "page": lambda p: p.aget_page(**SCOPE),
    "erase": lambda p: p.aerase_user(user_id="ada"),
    "settings": lambda p: p.asave_settings({"learn": False}, user_id="ada"),
    "facts": lambda p: p.knowledge.alist_facts(user_id="ada"),
    "heartbeat": lambda p: p.knowledge.alist_devices(user_id="ada"),
    "usage": lambda p: p.usage.astanding(**SCOPE, limits={"session_tokens": 10}),
    "snapshots": lambda p: p.snapshots.alist(**SCOPE),
    "agent": agent,
    "graph": graph,
    "runnable": lambda p: p.as_runnable().ainvoke("Hi", RUN),
    "history": lambda p: BudgetedChatMessageHistory("c1", user_id="ada", pipeline=p).awindow(1_000),
    "retriever": lambda p: BudgetedRetriever(pipeline=p, user_id="ada", max_tokens=500).ainvoke(
        "bike"
    ),
    "documents": lambda _: documents(),
    "documents of a store": lambda p: documents(p.store),
    "memory": memory,
    "tool": lambda p: create_recall_tool(p).ainvoke({"query": "bike"}, RUN),
    "store": store,
}


def innermost_place() -> str:
    """Where in the package this was called from, most closely."""
    stack = traceback.extract_stack()
    frames = [frame for frame in stack if "langchain_ctxbudget/" in frame.filename]
    if not frames:
        return "elsewhere"
    frame = frames[-1]
    return f"{Path(frame.filename).name}:{frame.lineno} {frame.name}"


class Recorder:
    """What has blocked, and which large packages were imported while an event loop ran."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def note(self, what: str) -> None:
        self.found.append(f"{what} at {innermost_place()}")

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return None
        if name in LARGE:
            self.note(f"import {name}")
        return None


def first_use(way: str, kind: str, results: Any) -> None:
    """Run one way in, and tell what blocked."""
    recorder = Recorder()
    buster = import_module("blockbuster.blockbuster")

    class Noted(buster.BlockingError):  # type: ignore[name-defined, misc]
        def __init__(self, function: str) -> None:
            super().__init__(function)
            recorder.note(function)

    buster.BlockingError = Noted
    sys.meta_path.insert(0, recorder)  # type: ignore[arg-type]
    problem = ""
    with TemporaryDirectory() as folder, buster.blockbuster_ctx("langchain_ctxbudget"):
        options = {}
        if kind != "default":
            options["store"] = new_chroma_store(kind, folder)

        async def main() -> None:
            async with ContextPipeline({"learn_every": 1}, **options) as pipeline:
                await WAYS[way](pipeline)

        try:
            asyncio.run(main())
        except Exception as error:  # noqa: BLE001 - told
            problem = repr(error)
    results.put((recorder.found, problem))


def new_chroma_store(kind: str, folder: str) -> Any:
    """A store of a folder, or of a server with this URL."""
    chroma: Any = import_module("langchain_ctxbudget.stores.chroma")
    if "://" in kind:
        return chroma.ChromaStore(url=kind)
    return chroma.ChromaStore(path=f"{folder}/store")


def main(kind: str) -> None:
    """Run every way in a process of its own."""
    imported = {"chromadb", "tokenizers"} & sys.modules.keys()
    assert not imported, "imported too early for anything to be seen"
    context = multiprocessing.get_context("fork")
    found: dict[str, list[str]] = {}
    for way in WAYS:
        results = context.SimpleQueue()
        child = context.Process(target=first_use, args=(way, kind, results))
        child.start()
        blocked, problem = results.get()
        child.join()
        found[way] = blocked
        if problem:
            found[way].append(problem)
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
