"""Reasoning that nothing follows, as of an answer that was cut off.

Responses and Anthropic refuse it.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall, ToolMessage
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import AssembledContext, BudgetedChatMessageHistory, ContextPipeline
from tests.doubles.openai_responses import responses_problems
from tests.doubles.providers import CLAUDE, check_anthropic

SCOPE: dict[str, Any] = {"user_id": "ada", "conversation_id": "c1"}
RESPONSES = ChatOpenAI(model="gpt-5", api_key="x", use_responses_api=True)
QUESTION = HumanMessage("How long is it?", id="h1")
NEXT_QUESTION = HumanMessage("And how wide?", id="h2")
TEXT = {"type": "text", "text": "It is 5 m long.", "id": "msg_1"}
V1: dict[str, Any] = {"output_version": "v1", "model_provider": "openai"}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
CALL = ToolCall(name="look", args={}, id="call_1")
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
    "behind a search": AIMessage([reasoning(1), SEARCH, reasoning(2)], id="a1"),
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
RESULT = ToolMessage("5 m.", tool_call_id="call_1")

EVERY_CUT_OFF = pytest.mark.parametrize("answer", CUT_OFF.values(), ids=list(CUT_OFF))
EVERY_ALONE = pytest.mark.parametrize("answer", ALONE.values(), ids=list(ALONE))
EVERY_LEADING = pytest.mark.parametrize("answer", LEADS_ON.values(), ids=list(LEADS_ON))


def items_of(messages: Sequence[BaseMessage]) -> list[dict[str, Any]]:
    """What is sent of messages with Responses."""
    items: list[dict[str, Any]] = RESPONSES._get_request_payload(list(messages))["input"]
    return items


def types_behind_reasoning(items: Sequence[dict[str, Any]]) -> set[str | None]:
    """The types of all items that follow reasoning, with None for the end."""
    types = [item.get("type") for item in items]
    return {behind for before, behind in pairwise([*types, None]) if before == "reasoning"}


FOLLOWERS = {"reasoning", "web_search_call", "function_call", "message"}
"""What may stand behind reasoning."""


def check_reasoning_is_followed(context: AssembledContext) -> None:
    items = items_of(context.messages)
    assert responses_problems({"input": items}) == []
    assert types_behind_reasoning(items) <= FOLLOWERS


def repairs_of(context: AssembledContext) -> list[tuple[str, str]]:
    return [(repair.kind, repair.message_id) for repair in context.report.repairs]


def pipeline_with(answer: AIMessage) -> ContextPipeline:
    """A pipeline in whose conversation the answer stands."""
    pipeline = ContextPipeline(model="gpt-5", store=InMemoryStore())
    pipeline.add_messages([QUESTION, answer], **SCOPE)
    return pipeline


def prompt_of(*turn: BaseMessage) -> AssembledContext:
    """The prompt of a turn without a conversation before it."""
    return ContextPipeline(model="gpt-5").assemble(list(turn), **SCOPE)


# -- reasoning at the end of an answer


@EVERY_CUT_OFF
def test_trailing_reasoning_is_not_sent_in_history(answer: AIMessage) -> None:
    context = pipeline_with(answer).assemble(NEXT_QUESTION, **SCOPE)

    check_reasoning_is_followed(context)
    assert ("reasoning", "a1") in repairs_of(context)


@pytest.mark.slow
@EVERY_CUT_OFF
def test_trailing_reasoning_stays_stored(answer: AIMessage) -> None:
    pipeline = pipeline_with(answer)

    pipeline.assemble(NEXT_QUESTION, **SCOPE)

    assert pipeline.get_messages(**SCOPE) == [QUESTION, answer]


@EVERY_CUT_OFF
def test_trailing_reasoning_is_not_counted(answer: AIMessage) -> None:
    pipeline = pipeline_with(answer)

    context = pipeline.assemble(NEXT_QUESTION, **SCOPE)

    tokens = pipeline.token_counter.count_messages(context.messages)
    assert context.report.total_tokens == tokens


@EVERY_CUT_OFF
def test_trailing_reasoning_is_not_sent_in_the_turn(answer: AIMessage) -> None:
    context = prompt_of(NEXT_QUESTION, answer, HumanMessage("Go on."))

    check_reasoning_is_followed(context)
    kinds = [kind for kind, _ in repairs_of(context)]
    assert kinds[0] in ("reasoning", "empty_content")
    assert "reasoning" in kinds


@EVERY_CUT_OFF
def test_trailing_reasoning_is_not_in_a_window(answer: AIMessage) -> None:
    pipeline = pipeline_with(answer)
    pipeline.assemble(NEXT_QUESTION, **SCOPE)
    history = BudgetedChatMessageHistory("c1", user_id="ada", pipeline=pipeline)

    items = items_of([*history.window(1_000), NEXT_QUESTION])

    assert responses_problems({"input": items}) == []


@EVERY_ALONE
def test_a_message_of_reasoning_alone_is_left_out(answer: AIMessage) -> None:
    context = pipeline_with(answer).assemble(NEXT_QUESTION, **SCOPE)

    check_reasoning_is_followed(context)
    assert [message.id for message in context.messages] == ["h1", "h2"]
    assert repairs_of(context) == [("empty_message", "a1")]


def test_reasoning_behind_the_last_call_is_not_sent() -> None:
    answer = AIMessage([FUNCTION_CALL, reasoning(1)], tool_calls=[CALL], id="a1")

    context = prompt_of(NEXT_QUESTION, answer, RESULT)

    check_reasoning_is_followed(context)
    assert repairs_of(context) == [("reasoning", "a1")]


# -- reasoning that leads on


@EVERY_LEADING
def test_reasoning_that_leads_on_stays(answer: AIMessage) -> None:
    results = [RESULT] if answer.tool_calls else []

    context = prompt_of(NEXT_QUESTION, answer, *results)

    check_reasoning_is_followed(context)
    items = items_of(context.messages)
    assert [item["id"] for item in items if item.get("type") == "reasoning"] == ["rs_1"]
    assert context.report.repairs == ()


# -- Anthropic: "The final block in an assistant message cannot be `thinking`."

THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
HIDDEN = {"type": "redacted_thinking", "data": "ZGF0YQ=="}
TOOL_USE = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
PLAIN = {"type": "text", "text": "It is 5 m long."}


TOOL_CALL = ToolCall(name="look", args={}, id="toolu_1")


def types_of_blocks_sent(context: AssembledContext) -> list[str]:
    """The types of the blocks of the only assistant's message."""
    body = CLAUDE._get_request_payload(list(context.messages))
    [content] = [
        message["content"] for message in body["messages"] if message["role"] == "assistant"
    ]
    if isinstance(content, str):
        return ["text"]
    return [block["type"] for block in content]


@pytest.mark.parametrize(
    ("content", "types"),
    [
        ([PLAIN, THINKING], ["text"]),
        ([THINKING, PLAIN, HIDDEN], ["thinking", "text"]),
        ([THINKING, PLAIN], ["thinking", "text"]),
        ([HIDDEN, PLAIN], ["redacted_thinking", "text"]),
    ],
)
def test_thinking_is_sent_where_a_text_follows_it(content: list[Any], types: list[str]) -> None:
    turn = [NEXT_QUESTION, AIMessage(content), HumanMessage("Go on.")]

    context = ContextPipeline().assemble(turn, **SCOPE)

    assert check_anthropic(context.messages) == []
    assert types_of_blocks_sent(context) == types


@pytest.mark.parametrize(
    "content", [[THINKING, TOOL_USE], [THINKING]], ids=["in the content", "beside the content"]
)
def test_thinking_is_sent_where_a_call_follows_it(content: list[Any]) -> None:
    answer = AIMessage(content, tool_calls=[TOOL_CALL])
    result = ToolMessage("5 m.", tool_call_id="toolu_1")

    context = ContextPipeline().assemble([NEXT_QUESTION, answer, result], **SCOPE)

    assert check_anthropic(context.messages) == []
    assert types_of_blocks_sent(context) == ["thinking", "tool_use"]
