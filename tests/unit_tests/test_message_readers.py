"""Tests that messages of OpenAI, Anthropic and LangChain are read from every container."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.load import dumpd
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.base import message_to_dict
from langchain_core.messages.function import FunctionMessage

from langchain_ctxbudget.errors import ConversationFormatError
from langchain_ctxbudget.readers import ReadConversation, parse_conversations

HELLO = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good morning"}]


def only(value: object) -> ReadConversation:
    """The only conversation of a file with this JSON."""
    [conversation] = parse_conversations(json.dumps(value).encode()).conversations
    return conversation


def lines(*values: object) -> bytes:
    return "\n".join(map(json.dumps, values)).encode()


def complaint(value: object) -> str:
    with pytest.raises(ConversationFormatError) as error:
        parse_conversations(json.dumps(value).encode())
    return str(error.value)


def texts(conversation: ReadConversation) -> list[object]:
    return [message.content for message in conversation.messages]


AS_LIST = json.dumps(HELLO).encode()
AS_LINES = lines(*HELLO)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(AS_LIST, id="a list"),
        pytest.param(json.dumps(HELLO, indent=2).encode(), id="an indented list"),
        pytest.param(AS_LINES, id="lines"),
        pytest.param(AS_LINES + b"\n\n", id="lines and empty ones"),
        pytest.param(b"\xef\xbb\xbf" + AS_LIST, id="a byte order mark"),
        pytest.param(json.dumps({"model": "gpt", "messages": HELLO}).encode(), id="a request"),
    ],
)
def test_openai_messages_are_read_from_every_container(data: bytes) -> None:
    [conversation] = parse_conversations(data).conversations

    assert [(message.type, message.content) for message in conversation.messages] == [
        ("human", "Hello"),
        ("ai", "Good morning"),
    ]


def openai_call(arguments: object) -> dict[str, Any]:
    """An assistant's message with one call."""
    function = {"name": "find", "arguments": arguments}
    calls = [{"id": "c1", "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [('{"q": "rye"}', {"q": "rye"}), ("", {}), (None, {}), ({}, {})],
)
def test_calls_of_openai_are_read(arguments: object, expected: dict[str, str]) -> None:
    [message] = only([openai_call(arguments)]).messages

    assert isinstance(message, AIMessage)
    [call] = message.tool_calls
    assert call["args"] == expected


def test_a_call_of_openai_that_breaks_off_is_kept_as_invalid() -> None:
    [message] = only([openai_call('{"q": ')]).messages

    assert isinstance(message, AIMessage)
    assert [call["args"] for call in message.invalid_tool_calls] == ['{"q": ']


@pytest.mark.parametrize("key", ["created_at", "create_time", "timestamp"])
@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("2026-08-03T09:12:00+02:00", "2026-08-03T09:12:00+02:00"),
        (1_785_748_320, "2026-08-03T09:12:00+00:00"),
        (1_785_748_320_000, "2026-08-03T09:12:00+00:00"),
    ],
    ids=["text", "seconds", "milliseconds"],
)
def test_times_become_created_at(key: str, time: object, expected: str) -> None:
    [message] = only([{"role": "user", "content": "x", key: time}]).messages

    assert message.additional_kwargs == {"created_at": expected}


@pytest.mark.parametrize(
    "wrong",
    ["yesterday", 1e300, 10**400, [1], "2026-13-01"],
    ids=["a word", "a large float", "a large number", "a list", "no such month"],
)
def test_a_message_with_what_is_no_time_has_no_date(wrong: object) -> None:
    [message] = only([{"role": "user", "content": "x", "created_at": wrong}]).messages

    assert message.additional_kwargs == {}


LANGCHAIN: list[BaseMessage] = [
    SystemMessage("Be kind", id="s"),
    HumanMessage(
        "Find rye", id="h", name="Maya", additional_kwargs={"created_at": "2026-08-03T09:12:00"}
    ),
    HumanMessage([{"type": "text", "text": "Look"}, {"type": "image", "url": "u"}], id="parts"),
    AIMessage(
        "",
        id="a",
        tool_calls=[
            {"name": "find", "args": {"q": {"deep": [1]}}, "id": "c1", "type": "tool_call"}
        ],
    ),
    ToolMessage(
        "found", id="t", tool_call_id="c1", name="find", artifact={"rows": 2}, status="error"
    ),
    FunctionMessage("done", id="f", name="old"),
    ChatMessage("hm", id="c", role="critic"),
]


def dumped(message: BaseMessage) -> dict[str, Any]:
    return message.model_dump(mode="json")


@pytest.mark.parametrize("form", [message_to_dict, dumped, dumpd])
def test_langchain_messages_come_back_equal(form: Callable[[BaseMessage], Any]) -> None:
    values = [form(message) for message in LANGCHAIN]

    [from_list] = parse_conversations(json.dumps(values).encode()).conversations
    [from_lines] = parse_conversations(lines(*values)).conversations
    [from_thread] = parse_conversations(lines({"messages": values, "id": "thread"})).conversations

    assert from_list.messages == LANGCHAIN
    assert from_lines.messages == LANGCHAIN
    assert from_thread.messages == LANGCHAIN


def test_only_messages_are_constructed() -> None:
    template = ["langchain_core", "PromptTemplate"]

    assert complaint([{"lc": 1, "type": "constructor", "id": template, "kwargs": {}}])


RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "Rye 1200", "is_error": True}
GO_ON = {"type": "text", "text": "Go on.", "cache_control": {"type": "ephemeral"}}


def test_results_of_anthropics_form_are_messages_of_their_own() -> None:
    assert only([{"role": "user", "content": [RESULT, GO_ON]}]).messages == [
        ToolMessage("Rye 1200", tool_call_id="c1", status="error"),
        HumanMessage("Go on."),
    ]


def test_a_list_of_lists_has_a_conversation_each() -> None:
    other = [{"role": "user", "content": "Bye"}]

    result = parse_conversations(json.dumps([HELLO, other]).encode())

    assert [len(one.messages) for one in result.conversations] == [2, 1]


def test_a_conversation_without_an_id_keeps_its_name_when_it_goes_on() -> None:
    shorter = only(HELLO)
    longer = only([*HELLO, {"role": "user", "content": "More"}])

    assert shorter == only(HELLO)
    assert longer.conversation_id == shorter.conversation_id
    assert longer.messages[:2] == shorter.messages
