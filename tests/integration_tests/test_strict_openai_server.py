"""The strict server: every rule refuses a request that breaks it, and none refuses a good one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.integration_tests.strict_openai_server import (
    chat_problems,
    responses_problems,
)

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

Body = dict[str, Any]
Change = Callable[[Body], Any]


def made_call(key: str, name: str = "search", arguments: str = '{"page": 1}') -> Body:
    return {"id": key, "type": "function", "function": {"name": name, "arguments": arguments}}


TOOL = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Look it up.",
        "parameters": {"type": "object", "properties": {"page": {"type": "integer"}}},
    },
}
IMAGE = {"type": "image_url", "image_url": {"url": "https://x.invalid/a.png", "detail": "low"}}
CHAT: Body = {
    "model": "gpt-4o",
    "messages": [
        {"role": "system", "content": "You are a clerk."},
        {"role": "user", "name": "Ada", "content": [{"type": "text", "text": "Who ordered it?"}, IMAGE]},
        {"role": "assistant", "content": None, "tool_calls": [made_call("a"), made_call("b")]},
        {"role": "tool", "tool_call_id": "b", "content": "Nobody."},
        {"role": "tool", "tool_call_id": "a", "content": ""},
        {"role": "assistant", "content": "Nobody did."},
        {"role": "assistant", "content": None, "function_call": {"name": "search", "arguments": "{}"}},
        {"role": "function", "name": "search", "content": "Bea."},
        {"role": "user", "content": "Are you sure?"},
    ],
    "tools": [TOOL],
    "tool_choice": "auto",
    "temperature": 0.5,
}
FLAT_TOOL = {"type": "function", **TOOL["function"]}  # type: ignore[dict-item]
RESPONSES: Body = {
    "model": "gpt-4o",
    "instructions": "You are a clerk.",
    "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Who ordered it?"}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Let us see."}],
        },
        {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "search", "arguments": '{"page": 1}'},
        {"type": "function_call", "id": "fc_2", "call_id": "b", "name": "search", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "b", "output": "Nobody."},
        {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "Bea."}]},
        {"role": "user", "content": "Are you sure?"},
    ],
    "tools": [FLAT_TOOL],
    "store": False,
}


def say(role: str, content: object, **more: object) -> Change:
    """Adds a message at the end."""
    return lambda body: body["messages"].append({"role": role, "content": content, **more})


def put(position: int, **changes: object) -> Change:
    return lambda body: body["messages"][position].update(changes)


def call_of(**changes: object) -> Change:
    return lambda body: body["messages"][2]["tool_calls"][0].update(changes)


def called(**changes: object) -> Change:
    return lambda body: body["messages"][2]["tool_calls"][0]["function"].update(changes)


def function(**changes: object) -> Change:
    return lambda body: body["tools"][0]["function"].update(changes)


def top(**changes: object) -> Change:
    return lambda body: body.update(changes)


def without(position: int) -> Change:
    return lambda body: body["messages"].pop(position)


CHAT_FAULTS: Mapping[str, tuple[Change, str]] = {
    "no model": (lambda body: body.pop("model"), "model"),
    "no messages": (top(messages=[]), "at least one message"),
    "an unknown key of the request": (top(cache_control={"type": "ephemeral"}), "unknown parameter 'cache_control'"),
    "an unknown role": (say("critic", "No."), "unknown role 'critic'"),
    "a system message in the middle": (say("system", "Be brief."), "not the first"),
    "a name with a space": (put(1, name="Ada Lovelace"), "refused name 'Ada Lovelace'"),
    "arguments that are no JSON": (called(arguments="{"), "not the text of a JSON object"),
    "a call without an id": (call_of(id=""), "needs an id"),
    "an empty list of calls": (say("assistant", "x", tool_calls=[]), "at least one call"),
    "an assistant without content": (say("assistant", None), "without content or tool_calls"),
    "an assistant with an image": (say("assistant", [IMAGE]), "no part of type 'image_url'"),
    "a user with an empty text": (say("user", " \n"), "an empty text"),
    "a missing result": (without(3), "without a response message before it: ['b']"),
    "an orphan": (say("tool", "Bea.", tool_call_id="z"), "must be a response to a preceding message"),
    "a second result": (
        lambda body: body["messages"].insert(5, copy.deepcopy(body["messages"][4])),
        "must be a response to a preceding message",
    ),
    "an id twice in a request": (
        lambda body: body["messages"].extend(copy.deepcopy(body["messages"][2:5])),
        "'a' 2 times",
    ),
    "a function's result without its call": (without(6), "must follow the call of its function"),
    "a choice without tools": (lambda body: body.pop("tools"), "only allowed when tools are given"),
    "two tools of one name": (lambda body: body["tools"].append(TOOL), "2 tools named 'search'"),
}


def add(**item: object) -> Change:
    """Adds an item at the end."""
    return lambda body: body["input"].append(item)


def item(position: int, **changes: object) -> Change:
    return lambda body: body["input"][position].update(changes)


RESPONSES_FAULTS: Mapping[str, tuple[Change, str]] = {
    "an unknown key of the request": (top(messages=[]), "unknown parameter 'messages'"),
    "an unknown item": (add(type="tool_use", id="a"), "unknown item type 'tool_use'"),
    "an assistant that says nothing": (
        add(role="assistant", content=[{"type": "output_text", "text": ""}]),
        "without content or calls",
    ),
    "a call without an output": (lambda body: body["input"].pop(5), "no tool output found for function calls ['b']"),
    "an output without a call": (add(type="function_call_output", call_id="z", output="x"), "no tool call found"),
    "a second output": (add(type="function_call_output", call_id="a", output="x"), "a second function call output"),
    "a call id twice": (item(4, call_id="a"), "'a' of 2 function calls"),
    "an item id twice": (item(4, id="fc_1"), "duplicate item id 'fc_1'"),
    "reasoning without a summary": (lambda body: body["input"][1].pop("summary"), "needs a summary"),
    "reasoning that leads to nothing": (
        lambda body: body["input"].insert(5, body["input"].pop(1)),
        "required following",
    ),
    "another response's successor": (top(previous_response_id="resp_0"), "not found"),
}


def changed(body: Body, change: Change) -> Body:
    changed_body = copy.deepcopy(body)
    change(changed_body)
    return changed_body


# -- the rules


def test_good_requests_have_no_problems() -> None:
    assert chat_problems(CHAT) == []
    assert responses_problems(RESPONSES) == []


def test_chat_completions_refuses() -> None:
    for fault, (change, told) in CHAT_FAULTS.items():
        assert told in "; ".join(chat_problems(changed(CHAT, change))), fault


def test_responses_refuses() -> None:
    for fault, (change, told) in RESPONSES_FAULTS.items():
        assert told in "; ".join(responses_problems(changed(RESPONSES, change))), fault


# -- over HTTP, and sizes
