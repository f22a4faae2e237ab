"""A content with something that is neither a text nor a block is refused on every way in."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import (
    BudgetedChatMessageHistory,
    ContextBudgetMiddleware,
    ContextPipeline,
    build_context_graph,
)
from langchain_ctxbudget.errors import UnsupportedContentError
from tests.cases import few_are_quick
from tests.integration_tests.agents import Scripted

SCOPE: dict[str, Any] = {"user_id": "ada", "conversation_id": "c1"}
RUN: RunnableConfig = {"configurable": {"user_id": "ada", "thread_id": "c1"}}
TEXT = {"type": "text", "text": "Measure the shed."}
CALL = {"name": "measure", "args": {}, "id": "c1", "type": "tool_call"}
TALK: list[BaseMessage] = [
    HumanMessage("Hello", id="h1"),
    AIMessage("Hello, Ada.", id="a1"),
]


def with_content(content: object) -> list[BaseMessage]:
    """Messages of every kind with a content that no constructor lets pass."""
    messages = [
        HumanMessage("x", id="h2"),
        AIMessage("x", id="a2", tool_calls=[CALL]),
        ToolMessage("x", id="t2", tool_call_id="c1"),
    ]
    return [message.model_copy(update={"content": content}) for message in messages]


def new_pipeline() -> ContextPipeline:
    return ContextPipeline({"learn": False, "max_context_tokens": 4_000}, store=InMemoryStore())


def added(pipeline: ContextPipeline, message: BaseMessage) -> None:
    pipeline.add_messages([message], **SCOPE)


def synced(pipeline: ContextPipeline, message: BaseMessage) -> None:
    pipeline.sync([*TALK, message], **SCOPE)


def edited(pipeline: ContextPipeline, message: BaseMessage) -> None:
    pipeline.edit_message("h1", message, **SCOPE)


def assembled(pipeline: ContextPipeline, message: BaseMessage) -> None:
    pipeline.assemble([HumanMessage("Well?", id="h3"), message], **SCOPE)


def run_by_graph(pipeline: ContextPipeline, message: BaseMessage) -> None:
    graph = build_context_graph(pipeline, runtime_store=False)
    graph.invoke({"messages": [*TALK, message]}, RUN)


def run_by_graph_before_the_turn(pipeline: ContextPipeline, message: BaseMessage) -> None:
    graph = build_context_graph(pipeline, runtime_store=False)
    graph.invoke({"messages": [*TALK, message, HumanMessage("Well?", id="h3")]}, RUN)


def answered_under_middleware(pipeline: ContextPipeline, message: BaseMessage) -> None:
    middleware = ContextBudgetMiddleware(pipeline, recall_tool=False, runtime_store=False)
    agent = create_agent(Scripted(responses=[AIMessage("5 m")]), middleware=[middleware])
    agent.invoke({"messages": [*TALK, message, HumanMessage("Well?", id="h3")]}, RUN)


def added_to_a_history(pipeline: ContextPipeline, message: BaseMessage) -> None:
    history = BudgetedChatMessageHistory("c1", user_id="ada", pipeline=pipeline)
    history.add_messages([message])


WAYS = [
    added,
    synced,
    edited,
    assembled,
    run_by_graph,
    run_by_graph_before_the_turn,
    answered_under_middleware,
    added_to_a_history,
]
Way = Callable[[ContextPipeline, BaseMessage], None]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize(
    "content", few_are_quick([[TEXT, None], 3, [3], [[]], [["x"]], [("x",)], None, [TEXT, b"x"]], 2)
)
@pytest.mark.parametrize("kind", few_are_quick([0, 1, 2]))
def test_it_is_refused_and_the_conversation_stays_readable(
    way: Way, content: object, kind: int
) -> None:
    pipeline = new_pipeline()
    pipeline.add_messages(TALK, **SCOPE)

    with pytest.raises(UnsupportedContentError, match=r"content.*neither a text nor"):
        way(pipeline, with_content(content)[kind])

    stored = pipeline.get_messages(**SCOPE)
    assert [message.content for message in stored] == ["Hello", "Hello, Ada."]


def test_the_error_says_where_it_stands() -> None:
    [message, *_] = with_content([TEXT, None])

    with pytest.raises(UnsupportedContentError, match=r"messages\[1\]\.content\[1\] is a NoneType"):
        new_pipeline().add_messages([TALK[0], message], **SCOPE)


def test_what_was_stored_before_is_read_as_json() -> None:
    store = InMemoryStore()
    ContextPipeline({"learn": False}, store=store).add_messages(TALK, **SCOPE)
    [namespace] = [name for name in store.list_namespaces() if "messages" in name]
    for item in store.search(namespace):
        message = json.loads(item.value["text"])
        message["data"]["content"] = [TEXT, None, 3]
        store.put(namespace, item.key, {**item.value, "text": json.dumps(message)})

    stored = ContextPipeline({"learn": False}, store=store).get_messages(**SCOPE)

    assert [message.content for message in stored] == [[TEXT, "null", "3"]] * 2
