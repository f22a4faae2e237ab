"""Bad input: a clear error, and nothing lost."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.errors import (
    EmptyMessageError,
    StoreDataError,
    StoreError,
    UnsupportedContentError,
)
from tests.integration_tests.conftest import Call

SCOPE = {"user_id": "ada", "conversation_id": "c1"}


@pytest.mark.parametrize("message", ["", "  \n", HumanMessage(""), HumanMessage([]), [], [HumanMessage(" ")]])
def test_an_empty_message_is_an_error(call: Call, message: Any) -> None:
    with pytest.raises(EmptyMessageError):
        call(ContextPipeline(store=InMemoryStore()), "assemble", message, **SCOPE)


@pytest.mark.parametrize(
    "message", [42, None, b"hello", {"role": "user"}, [42], AIMessage("I answer myself"), [RemoveMessage(id="x")]]
)
def test_content_of_an_unknown_kind_is_an_error_that_says_what_it_was(call: Call, message: Any) -> None:
    with pytest.raises(UnsupportedContentError, match="message"):
        call(ContextPipeline(store=InMemoryStore()), "assemble", message, **SCOPE)


def test_one_bad_message_keeps_the_others_out_of_the_store(call: Call) -> None:
    pipeline = ContextPipeline(store=InMemoryStore())
    with pytest.raises(UnsupportedContentError, match=r"messages\[1\] is a dict"):
        call(pipeline, "add_messages", [HumanMessage("a"), {"role": "user", "content": "b"}], **SCOPE)
    assert call(pipeline, "get_messages", **SCOPE) == []


def test_an_unknown_content_block_is_sent_and_counted(call: Call) -> None:
    message = HumanMessage([{"type": "hologram", "data": "x" * 400}])
    context = call(ContextPipeline(store=InMemoryStore()), "assemble", message, **SCOPE)
    assert context.messages[0].content == message.content
    assert context.report.total_tokens > 40


def test_a_record_that_is_not_one_is_an_error_that_says_where(call: Call) -> None:
    store = InMemoryStore()
    pipeline = ContextPipeline(store=store)
    call(pipeline, "add_messages", [HumanMessage("a")], **SCOPE)
    [namespace] = [name for name in store.list_namespaces() if "messages" in name]
    [item] = store.search(namespace)
    store.put(namespace, item.key, {"id": item.key, "from": "somewhere else"})
    with pytest.raises(StoreDataError, match=item.key):
        call(ContextPipeline(store=store), "get_messages", **SCOPE)


def test_a_closed_pipeline_says_so_and_those_that_share_its_store_go_on(call: Call) -> None:
    first = ContextPipeline({"learn": False})
    second = first.with_model("gpt-4.1")
    call(first, "add_messages", [HumanMessage("a", id="1")], **SCOPE)
    for closed, still in ((first, second), (second, None)):
        for _ in range(2):
            closed.close()
        for name, given in (("assemble", ["Hello"]), ("get_messages", []), ("add_messages", [[]])):
            with pytest.raises(StoreError, match="closed"):
                call(closed, name, *given, **SCOPE)
        assert still is None or [message.id for message in call(still, "get_messages", **SCOPE)] == ["1"]
