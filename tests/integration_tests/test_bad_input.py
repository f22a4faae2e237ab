"""Bad input: a clear error, and nothing lost."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.errors import (
    BudgetTooSmallError,
    EmptyMessageError,
    StoreDataError,
    StoreError,
    UnsupportedContentError,
)
from tests.integration_tests.conftest import Call

SCOPE = {"user_id": "ada", "conversation_id": "c1"}


def windowed(tokens: int, answer: int | None = None) -> FakeListChatModel:
    """A model that knows its window."""
    profile: dict[str, Any] = {"max_input_tokens": tokens}
    if answer is not None:
        profile["max_output_tokens"] = answer
    return FakeListChatModel(responses=["ok"], profile=profile)


def test_a_budget_below_the_floors_names_every_floor(call: Call) -> None:
    pipeline = ContextPipeline(
        {"max_context_tokens": 20}, system_prompt="You are helpful. " * 10, store=InMemoryStore()
    )
    with pytest.raises(BudgetTooSmallError) as caught:
        call(pipeline, "assemble", "Hello", tools=[{"type": "web_search"}], **SCOPE)
    assert set(caught.value.floors) == {"L0 system prompt", "L7 current message", "tool schemas", "framing"}
    assert "The budget is 20 tokens" in str(caught.value)
    assert "Raise max_context_tokens" in str(caught.value)


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


def test_the_output_reserve_is_kept_free_in_the_window(call: Call) -> None:
    pipeline = ContextPipeline(model=windowed(1000, answer=300), store=InMemoryStore())
    report = call(pipeline, "assemble", "Hello", **SCOPE).report
    assert (report.budget_tokens, report.output_reserve_tokens, report.window_tokens) == (700, 300, 1000)


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
