"""OpenAI keeps responses: a model that goes on with one reads all that is kept there, and not the prompt it is sent."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore
from pydantic import SecretStr

from langchain_ctxbudget import BudgetedChatMessageHistory, ContextPipeline

pytestmark = pytest.mark.usefixtures("offline_tiktoken")
SCOPE = {"user_id": "ada", "conversation_id": "c1"}
ANSWER: list[Any] = [
    {"type": "reasoning", "id": "rs_1", "summary": []},
    {"type": "text", "text": "It is 5 m long.", "id": "msg_1"},
]
SAID = [
    HumanMessage("How long is it?", id="h1"),
    AIMessage(ANSWER, id="resp_1", response_metadata={"id": "resp_1", "model_provider": "openai", "model": "gpt-5"}),
]
ASKED = HumanMessage("And how wide?", id="h2")


def keeping(*said: BaseMessage) -> ContextPipeline:
    pipeline = ContextPipeline(store=InMemoryStore())
    pipeline.add_messages(said, **SCOPE)
    return pipeline


def request_of(messages: list[BaseMessage]) -> dict[str, Any]:
    model = ChatOpenAI(model="gpt-5", api_key=SecretStr("x"), use_previous_response_id=True)
    return model._get_request_payload(messages)


def test_without_the_package_only_what_comes_after_the_answer_is_sent() -> None:
    sent = request_of([*SAID, ASKED])
    assert (sent["previous_response_id"], len(sent["input"])) == ("resp_1", 1)


def test_the_whole_prompt_or_window_is_sent_with_the_ids_of_its_items() -> None:
    pipeline = keeping(*SAID)
    sent = request_of(pipeline.assemble(ASKED, **SCOPE).messages)
    assert "previous_response_id" not in sent
    assert [part.get("role", part["type"]) for part in sent["input"]] == ["user", "reasoning", "assistant", "user"]
    assert [part["id"] for part in sent["input"] if "id" in part] == ["rs_1", "msg_1"]
    history = BudgetedChatMessageHistory("c1", user_id="ada", pipeline=pipeline)
    assert "previous_response_id" not in request_of([*history.window(500), ASKED])


# Ids of items that come twice: a turn that was copied, an edited branch, an answer that was put together of two


def test_a_search_that_was_sent_before_is_left_out_and_its_words_stay() -> None:
    found: Any = [{"type": "web_search_call", "id": "ws_1", "status": "completed"}, {"type": "text", "text": "5 m."}]
    pipeline = ContextPipeline(store=InMemoryStore())
    for _ in range(2):
        pipeline.add_messages([HumanMessage("How long?"), AIMessage(found)], **SCOPE)
    context = pipeline.assemble(ASKED, **SCOPE)
    model = ChatOpenAI(model="gpt-5", api_key=SecretStr("x"), use_responses_api=True)
    items = model._get_request_payload(context.messages)["input"]
    assert [part["type"] for part in items].count("web_search_call") == 1
    assert str(items).count("5 m.") == 2
    assert [repair.kind for repair in context.report.repairs] == ["item_id"]
