"""The rules can fail: each of them on a request that breaks it, and none on requests that are accepted."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from tests.integration_tests.provider_rules import check_anthropic, check_openai

ASK = HumanMessage("hello")
IMAGE = {"type": "image_url", "image_url": {"url": "https://x.invalid/a.png"}}


def ai(*ids: str | None, content: str | list[str | dict[str, object]] = "", name: str = "search") -> AIMessage:
    return AIMessage(content, tool_calls=[{"name": name, "args": {}, "id": key, "type": "tool_call"} for key in ids])


def result(call_id: str, content: str | list[str | dict[str, object]] = "found") -> ToolMessage:
    return ToolMessage(content, tool_call_id=call_id)


def use(call_id: str) -> dict[str, object]:
    return {"type": "tool_use", "id": call_id, "name": "search", "input": {}}


def answer(call_id: str) -> dict[str, object]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "found"}


ACCEPTED: dict[str, list[BaseMessage]] = {
    "a question": [ASK],
    "system first": [SystemMessage("Be brief."), ASK, AIMessage("hi"), ASK],
    "parallel calls": [ASK, ai("a", "b"), result("b"), result("a"), AIMessage("done")],
    "calls one after the other": [ASK, ai("a"), result("a"), ai("b"), result("b")],
    "a call that the content repeats": [ASK, ai("a", content=[use("a")]), result("a")],
    "answers in a row": [ASK, AIMessage("one"), AIMessage("two"), ASK],
    "an image": [HumanMessage([IMAGE])],
    "a result without content": [ASK, ai("a"), result("a", "")],
    "a speaker": [HumanMessage("hello", name="Ada-1")],
}

REFUSED: dict[str, list[BaseMessage]] = {
    "a system message in the middle": [ASK, SystemMessage("Be brief."), ASK],
    "a call without a result": [ASK, ai("a"), ASK],
    "a call without a result at the end": [ASK, ai("a")],
    "a result that comes later": [ASK, ai("a"), ASK, result("a")],
    "a result of no call": [ASK, result("a")],
    "a second result": [ASK, ai("a"), result("a"), result("a")],
    "a call id used twice": [ASK, ai("a"), result("a"), ai("a"), result("a")],
    "a call without an id": [ASK, ai(None), result("")],
    "a refused name of a call": [ASK, ai("a", name="web search"), result("a")],
    "a refused name": [HumanMessage("hello", name="Ada Lovelace")],
    "an answer without content": [ASK, AIMessage(""), ASK],
    "an empty list": [HumanMessage([])],
    "a role of its own": [ASK, ChatMessage("hm", role="critic")],
    "a result as a block, of no call": [HumanMessage([answer("a")])],
}

ANTHROPIC_REFUSES: dict[str, list[BaseMessage]] = {
    "an answer first": [AIMessage("hi"), ASK],
    "no message": [],
    "an empty question": [HumanMessage(" \n")],
    "an empty text block": [HumanMessage([{"type": "text", "text": ""}, IMAGE])],
    "white space before a call": [ASK, ai("a", content=" "), result("a")],
    "an empty text block in a result": [ASK, ai("a"), result("a", [{"type": "text", "text": ""}])],
    "a call in the content alone": [ASK, AIMessage([use("a")]), ASK],
    "an id used twice in the content": [ASK, AIMessage([use("a"), use("a")]), result("a"), result("a")],
    "a result behind words": [ASK, ai("a"), HumanMessage([{"type": "text", "text": "so"}, answer("a")])],
    "an invalid call, which is not sent": [
        ASK,
        AIMessage("x", invalid_tool_calls=[{"name": "f", "args": "{", "id": "a", "error": None}]),
        result("a"),
    ],
    "a function's result": [
        ASK,
        AIMessage("", additional_kwargs={"function_call": {"name": "f", "arguments": "{}"}}),
        FunctionMessage("found", name="f"),
    ],
    "a result in an answer": [ASK, ai("a"), AIMessage([answer("a")]), result("a")],
}


def labelled(cases: dict[str, list[BaseMessage]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("messages", cases.values(), ids=cases)


@labelled(ACCEPTED)
def test_what_both_accept(messages: Sequence[BaseMessage]) -> None:
    assert check_openai(messages) == check_anthropic(messages) == []


@labelled(REFUSED)
def test_what_both_refuse(messages: Sequence[BaseMessage]) -> None:
    assert check_openai(messages)
    assert check_anthropic(messages)


@labelled(ANTHROPIC_REFUSES)
def test_what_anthropic_refuses(messages: Sequence[BaseMessage]) -> None:
    assert check_anthropic(messages)


def test_anthropic_accepts_calls_and_results_in_its_own_form() -> None:
    said = HumanMessage([answer("a"), {"type": "text", "text": "so?"}])
    assert check_anthropic([ASK, AIMessage([use("a")]), said]) == []
