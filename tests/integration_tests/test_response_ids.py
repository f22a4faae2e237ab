"""OpenAI keeps responses: a model that goes on with one reads all that is kept there, and not the prompt it is sent."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore
from pydantic import SecretStr

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.history_window import window
from langchain_ctxbudget.stores.records import Scope
from tests.integration_tests.conftest import Call

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


def made(call: Call) -> ContextPipeline:
    pipeline = ContextPipeline(store=InMemoryStore())
    call(pipeline, "add_messages", SAID, **SCOPE)
    return pipeline


def request_of(messages: list[BaseMessage]) -> dict[str, Any]:
    model = ChatOpenAI(model="gpt-5", api_key=SecretStr("x"), use_previous_response_id=True)
    return model._get_request_payload(messages)


def test_without_the_package_only_what_comes_after_the_answer_is_sent() -> None:
    sent = request_of([*SAID, ASKED])
    assert (sent["previous_response_id"], len(sent["input"])) == ("resp_1", 1)


def test_the_whole_prompt_is_sent(call: Call) -> None:
    sent = request_of(call(made(call), "assemble", ASKED, **SCOPE).messages)
    assert "previous_response_id" not in sent
    assert [part.get("role", part["type"]) for part in sent["input"]] == ["user", "reasoning", "assistant", "user"]


def test_the_whole_window_is_sent(call: Call) -> None:
    sent = request_of([*drive(window(made(call).engine, Scope("ada", "c1"), 500)), ASKED])
    assert "previous_response_id" not in sent


def test_the_answer_of_the_current_turn_is_sent_too(call: Call) -> None:
    asks = AIMessage(
        "", tool_calls=[{"name": "measure", "args": {}, "id": "k"}], response_metadata={"id": "resp_2"}, id="a2"
    )
    turn = [ASKED, asks, ToolMessage("2 m", tool_call_id="k", id="t")]
    sent = request_of(call(made(call), "assemble", turn, **SCOPE).messages)
    assert "previous_response_id" not in sent


def test_items_keep_their_ids(call: Call) -> None:
    sent = request_of(call(made(call), "assemble", ASKED, **SCOPE).messages)
    assert [part["id"] for part in sent["input"] if "id" in part] == ["rs_1", "msg_1"]


def test_what_is_stored_keeps_the_id_of_its_response(call: Call) -> None:
    assert call(made(call), "get_messages", **SCOPE)[-1].response_metadata == SAID[-1].response_metadata


def test_the_id_of_another_provider_is_left_alone(call: Call) -> None:
    pipeline = ContextPipeline(store=InMemoryStore())
    other = AIMessage("5 m.", id="a", response_metadata={"id": "msg_1"})
    call(pipeline, "add_messages", [SAID[0], other], **SCOPE)
    assert call(pipeline, "assemble", ASKED, **SCOPE).messages[-2].response_metadata == {"id": "msg_1"}
