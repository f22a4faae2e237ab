"""The rules can fail.

Each of them on a request that breaks it, and none on requests that are good.
"""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from tests.integration_tests.provider_rules import check_anthropic
from tests.integration_tests.strict_openai_server import chat_problems, responses_problems

Body = dict[str, Any]
Change = Callable[[Body], Any]


def wire_call(key: str, name: str = "search", arguments: str = '{"page": 1}') -> Body:
    return {"id": key, "type": "function", "function": {"name": name, "arguments": arguments}}


FUNCTION = {
    "name": "search",
    "parameters": {"type": "object", "properties": {"page": {"type": "integer"}}},
}
TOOL = {"type": "function", "function": FUNCTION}
IMAGE = {"type": "image_url", "image_url": {"url": "https://x.invalid/a.png", "detail": "low"}}
CHAT: Body = {
    "model": "gpt-4o",
    "messages": [
        {"role": "system", "content": "You are a clerk."},
        {
            "role": "user",
            "name": "Ada",
            "content": [{"type": "text", "text": "Who ordered it?"}, IMAGE],
        },
        {"role": "assistant", "content": None, "tool_calls": [wire_call("a"), wire_call("b")]},
        {"role": "tool", "tool_call_id": "b", "content": "Nobody."},
        {"role": "tool", "tool_call_id": "a", "content": ""},
        {"role": "assistant", "content": "Nobody did."},
        {
            "role": "assistant",
            "content": None,
            "function_call": {"name": "search", "arguments": "{}"},
        },
        {"role": "function", "name": "search", "content": "Bea."},
        {"role": "user", "content": "Are you sure?"},
    ],
    "tools": [TOOL],
    "tool_choice": "auto",
    "temperature": 0.5,
}
RESPONSES: Body = {
    "model": "gpt-4o",
    "instructions": "You are a clerk.",
    "input": [
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "Who ordered it?"}],
        },
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Hm."}],
        },
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "a",
            "name": "search",
            "arguments": '{"page": 1}',
        },
        {
            "type": "function_call",
            "id": "fc_2",
            "call_id": "b",
            "name": "search",
            "arguments": "{}",
        },
        {"type": "function_call_output", "call_id": "b", "output": "Nobody."},
        {
            "type": "function_call_output",
            "call_id": "a",
            "output": [{"type": "input_text", "text": "Bea."}],
        },
        {"role": "user", "content": "Are you sure?"},
    ],
    "tools": [{"type": "function", **FUNCTION}],
    "store": False,
}


def say(role: str, content: object, **more: object) -> Change:
    return lambda body: body["messages"].append({"role": role, "content": content, **more})


def put(place: int, where: str = "messages", **changes: object) -> Change:
    return lambda body: body[where][place].update(changes)


def call_of(**changes: object) -> Change:
    return lambda body: body["messages"][2]["tool_calls"][0].update(changes)


def top(**changes: object) -> Change:
    return lambda body: body.update(changes)


def without(place: int, where: str = "messages") -> Change:
    return lambda body: body[where].pop(place)


def add(**item: object) -> Change:
    return lambda body: body["input"].append(item)


CHAT_FAULTS: list[tuple[Change, str]] = [
    (top(messages=[]), "at least one message"),
    (say("critic", "No."), "unknown role 'critic'"),
    (say("system", "Be brief."), "not the first"),
    (put(1, name="Ada Lovelace"), "refused name 'Ada Lovelace'"),
    (call_of(function={"name": "search", "arguments": "{"}), "not the text of a JSON object"),
    (call_of(id=""), "needs an id"),
    (say("assistant", "x", tool_calls=[]), "at least one call"),
    (say("assistant", None), "without content or tool_calls"),
    (say("assistant", [IMAGE]), "no part of type 'image_url'"),
    (say("user", " \n"), "an empty text"),
    (without(3), "without a response message before it: ['b']"),
    (say("tool", "Bea.", tool_call_id="z"), "must be a response to a preceding message"),
    (
        lambda body: body["messages"].insert(5, dict(body["messages"][4])),
        "must be a response to a preceding message",
    ),
    (lambda body: body["messages"].extend(copy.deepcopy(body["messages"][2:5])), "'a' 2 times"),
    (without(6), "must follow the call of its function"),
]
RESPONSES_FAULTS: list[tuple[Change, str]] = [
    (add(type="tool_use", id="a"), "unknown item type 'tool_use'"),
    (
        add(role="assistant", content=[{"type": "output_text", "text": ""}]),
        "without content or calls",
    ),
    (without(5, "input"), "no tool output found for function calls ['b']"),
    (add(type="function_call_output", call_id="z", output="x"), "no tool call found"),
    (add(type="function_call_output", call_id="a", output="x"), "a second function call output"),
    (put(4, "input", call_id="a"), "'a' of 2 function calls"),
    (put(4, "input", id="fc_1"), "duplicate item id 'fc_1'"),
    (lambda body: body["input"][1].pop("summary"), "needs a summary"),
    (lambda body: body["input"].insert(5, body["input"].pop(1)), "required following"),
    (top(previous_response_id="resp_0"), "not found"),
]


def problems_after(change: Change, good: Body, judge: Callable[[Body], list[str]]) -> str:
    """Returns what is wrong with a good request after a change."""
    body = copy.deepcopy(good)
    change(body)
    return "; ".join(judge(body))


def test_a_good_chat_request_is_accepted() -> None:
    assert chat_problems(CHAT) == []


@pytest.mark.parametrize(("change", "problem"), CHAT_FAULTS)
def test_a_faulty_chat_request_is_refused(change: Change, problem: str) -> None:
    assert problem in problems_after(change, CHAT, chat_problems)


def test_a_good_responses_request_is_accepted() -> None:
    assert responses_problems(RESPONSES) == []


@pytest.mark.parametrize(("change", "problem"), RESPONSES_FAULTS)
def test_a_faulty_responses_request_is_refused(change: Change, problem: str) -> None:
    assert problem in problems_after(change, RESPONSES, responses_problems)


# -- Anthropic


WHO = HumanMessage("Who ordered it?")


def calling(*ids: str, name: str = "search") -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": {"page": 1}, "id": key} for key in ids])


def result(key: str) -> ToolMessage:
    return ToolMessage("Nobody.", tool_call_id=key)


def test_a_good_request_to_anthropic_is_accepted() -> None:
    system = SystemMessage("Be kind.")
    messages = [system, WHO, calling("a", "b"), result("b"), result("a"), WHO]
    assert check_anthropic(messages) == []


IMAGE_OF_AN_ASSISTANT = {"type": "image", "source": {"type": "url", "url": "x"}}
OUTPUT_OF_OPENAI = {"type": "function_call_output", "call_id": "a", "output": "x"}
ANTHROPIC_FAULTS: list[tuple[list[BaseMessage], str]] = [
    ([calling("a"), result("a")], "first message"),
    ([WHO, calling("a", "b"), result("a")], "for calls"),
    ([WHO, calling("a")], "at the end"),
    ([WHO, result("a")], "for calls"),
    ([WHO, calling("a"), result("a"), calling("a"), result("a")], "unique"),
    ([WHO, calling("a"), WHO, result("a")], "behind other content"),
    ([HumanMessage(" ")], "non-empty"),
    ([WHO, AIMessage([IMAGE_OF_AN_ASSISTANT])], "'image'"),
    ([WHO, calling(""), result("")], "refused id"),
    ([WHO, calling("a", name="web search"), result("a")], "refused id"),
    ([HumanMessage([OUTPUT_OF_OPENAI])], "'function_call_output'"),
    ([SystemMessage([{"type": "text", "text": ""}]), WHO], "is no text"),
    ([WHO, SystemMessage("Be brief."), WHO], "cannot be sent"),
]


@pytest.mark.parametrize(("messages", "problem"), ANTHROPIC_FAULTS)
def test_a_faulty_request_to_anthropic_is_refused(
    messages: list[BaseMessage], problem: str
) -> None:
    assert problem in "; ".join(check_anthropic(messages))
