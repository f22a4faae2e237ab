"""Reasoning that nothing follows, as of an answer that was cut off.

Responses and Anthropic refuse it.
"""

from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import AssembledContext, BudgetedChatMessageHistory, ContextPipeline
from tests.integration_tests.provider_rules import ANTHROPIC, check_anthropic
from tests.integration_tests.strict_openai_server import responses_problems

SCOPE: dict[str, Any] = {"user_id": "ada", "conversation_id": "c1"}
RESPONSES = ChatOpenAI(model="gpt-5", api_key="x", use_responses_api=True)
WHO = HumanMessage("How long is it?", id="h1")
ASKED = HumanMessage("And how wide?", id="h2")
TEXT = {"type": "text", "text": "It is 5 m long.", "id": "msg_1"}
V1: dict[str, Any] = {"output_version": "v1", "model_provider": "openai"}
SEARCHED = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
CALL: dict[str, Any] = {"name": "look", "args": {}, "id": "call_1"}
FUNCTION_CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "look",
    "arguments": "{}",
}


def reasoning(number: int, **more: Any) -> dict[str, Any]:
    return {"type": "reasoning", "id": f"rs_{number}", "summary": [], **more}


def thought(number: int) -> dict[str, Any]:
    """Reasoning as LangChain's standard content has it."""
    return {"type": "reasoning", "id": f"rs_{number}", "reasoning": "Hm."}


CUT_OFF: dict[str, AIMessage] = {
    "at the end": AIMessage([TEXT, reasoning(1)], id="a1"),
    "twice at the end": AIMessage([reasoning(1), TEXT, reasoning(2), reasoning(3)], id="a1"),
    "encrypted": AIMessage([TEXT, reasoning(1, encrypted_content="gAAA")], id="a1"),
    "before white space": AIMessage(
        [TEXT, reasoning(1), {"type": "text", "text": " ", "id": "msg_2"}], id="a1"
    ),
    "behind a search": AIMessage([reasoning(1), SEARCHED, reasoning(2)], id="a1"),
    "standard": AIMessage([thought(1), TEXT, thought(2)], id="a1", response_metadata=V1),
    "wrapped": AIMessage(
        [TEXT, {"type": "non_standard", "value": reasoning(1)}], id="a1", response_metadata=V1
    ),
}
ALONE: dict[str, AIMessage] = {
    "one": AIMessage([reasoning(1)], id="a1"),
    "two": AIMessage([reasoning(1), reasoning(2)], id="a1"),
    "standard": AIMessage([thought(1)], id="a1", response_metadata=V1),
    "wrapped": AIMessage(
        [{"type": "non_standard", "value": reasoning(1)}], id="a1", response_metadata=V1
    ),
}


def items_of(messages: Sequence[BaseMessage]) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = RESPONSES._get_request_payload(list(messages))["input"]
    return items


def check(context: AssembledContext) -> None:
    items = items_of(context.messages)
    assert not responses_problems({"input": items})
    for item, following in zip(items, [*items[1:], {}], strict=True):
        if item.get("type") == "reasoning":
            assert following.get("type") in (
                "reasoning",
                "web_search_call",
                "function_call",
                "message",
            )


def in_history(answer: AIMessage) -> tuple[ContextPipeline, AssembledContext]:
    pipeline = ContextPipeline(model="gpt-5", store=InMemoryStore())
    pipeline.add_messages([WHO, answer], **SCOPE)
    return pipeline, pipeline.assemble(ASKED, **SCOPE)


@pytest.mark.parametrize("form", CUT_OFF)
def test_it_is_not_sent_in_history(form: str) -> None:
    pipeline, context = in_history(CUT_OFF[form])
    check(context)
    assert ("reasoning", "a1") in [(it.kind, it.message_id) for it in context.report.repairs]
    assert pipeline.get_messages(**SCOPE) == [WHO, CUT_OFF[form]]
    assert context.report.total_tokens == pipeline.token_counter.count_messages(context.messages)


@pytest.mark.parametrize("form", CUT_OFF)
def test_it_is_not_sent_in_the_current_turn(form: str) -> None:
    context = ContextPipeline(model="gpt-5").assemble(
        [ASKED, CUT_OFF[form], HumanMessage("Go on.")], **SCOPE
    )
    check(context)
    assert [it.kind for it in context.report.repairs][:1] in (["reasoning"], ["empty_content"])
    assert "reasoning" in [it.kind for it in context.report.repairs]


@pytest.mark.parametrize("form", ALONE)
def test_a_message_of_reasoning_alone_is_left_out(form: str) -> None:
    _, context = in_history(ALONE[form])
    check(context)
    assert [message.id for message in context.messages] == ["h1", "h2"]
    assert [(it.kind, it.message_id) for it in context.report.repairs] == [("empty_message", "a1")]


@pytest.mark.parametrize("form", CUT_OFF)
def test_it_is_not_in_a_window(form: str) -> None:
    pipeline, _ = in_history(CUT_OFF[form])
    history = BudgetedChatMessageHistory("c1", user_id="ada", pipeline=pipeline)
    items = items_of([*history.window(1_000), ASKED])
    assert not responses_problems({"input": items})


LEADS_ON: dict[str, AIMessage] = {
    "to a text": AIMessage([reasoning(1), TEXT], id="a1"),
    "to a call": AIMessage([reasoning(1), FUNCTION_CALL], tool_calls=[CALL], id="a1"),
    "to a call behind a text": AIMessage(
        [TEXT, reasoning(1), FUNCTION_CALL], tool_calls=[CALL], id="a1"
    ),
    "to a call that stands beside the content": AIMessage(
        [reasoning(1)], tool_calls=[CALL], id="a1"
    ),
}


@pytest.mark.parametrize("form", LEADS_ON)
def test_reasoning_that_leads_on_stays(form: str) -> None:
    answer = LEADS_ON[form]
    turn = [
        ASKED,
        answer,
        *[ToolMessage("5 m.", tool_call_id=call["id"]) for call in answer.tool_calls],
    ]
    context = ContextPipeline(model="gpt-5").assemble(turn, **SCOPE)
    check(context)
    assert [
        item["id"] for item in items_of(context.messages) if item.get("type") == "reasoning"
    ] == ["rs_1"]
    assert context.report.repairs == ()


def test_reasoning_behind_the_last_call_is_not_sent() -> None:
    answer = AIMessage([FUNCTION_CALL, reasoning(1)], tool_calls=[CALL], id="a1")
    turn = [ASKED, answer, ToolMessage("5 m.", tool_call_id="call_1")]
    context = ContextPipeline(model="gpt-5").assemble(turn, **SCOPE)
    check(context)
    assert [(it.kind, it.message_id) for it in context.report.repairs] == [("reasoning", "a1")]


# -- Anthropic: "The final block in an assistant message cannot be `thinking`."

THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
HIDDEN = {"type": "redacted_thinking", "data": "ZGF0YQ=="}
TOOL_USE = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
PLAIN = {"type": "text", "text": "It is 5 m long."}


def blocks_sent(context: AssembledContext) -> list[str]:
    body = ANTHROPIC._get_request_payload(list(context.messages))
    [said] = [message["content"] for message in body["messages"] if message["role"] == "assistant"]
    return ["text"] if isinstance(said, str) else [block["type"] for block in said]


@pytest.mark.parametrize(
    ("content", "sent"),
    [
        ([PLAIN, THINKING], ["text"]),
        ([THINKING, PLAIN, HIDDEN], ["thinking", "text"]),
        ([THINKING, PLAIN], ["thinking", "text"]),
        ([HIDDEN, PLAIN], ["redacted_thinking", "text"]),
        ([THINKING, TOOL_USE], ["thinking", "tool_use"]),
        ([THINKING], ["thinking", "tool_use"]),
    ],
)
def test_thinking_is_sent_where_something_follows_it(content: list[Any], sent: list[str]) -> None:
    calls = [{"name": "look", "args": {}, "id": "toolu_1"}] if sent[-1] == "tool_use" else []
    turn = [ASKED, AIMessage(content, tool_calls=calls)]
    turn += [ToolMessage("5 m.", tool_call_id="toolu_1")] if calls else [HumanMessage("Go on.")]
    context = ContextPipeline().assemble(turn, **SCOPE)
    assert check_anthropic(context.messages) == []
    assert blocks_sent(context) == sent
