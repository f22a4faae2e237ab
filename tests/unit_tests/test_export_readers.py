"""Tests that readers of exports and requests lose nothing, double nothing, and never break."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_ctxbudget.errors import ConversationFormatError
from langchain_ctxbudget.readers import parse_conversations
from tests.broken_json import broken
from tests.export_writers import EVERY_WRITER, EXPORTS, sentences


@st.composite
def conversations(draw: st.DrawFn) -> list[BaseMessage]:
    """Turns with up to two calls, one after the other; no sentence is said twice."""
    messages: list[BaseMessage] = []

    def sentence(what: str) -> str:
        words = draw(st.text('abc äß→\n"\\{[<&', max_size=8))
        return f"{what} {len(messages)} {words}."

    for _ in range(draw(st.integers(1, 4))):
        messages.append(HumanMessage(sentence("Question")))
        for _ in range(draw(st.integers(0, 2))):
            call = {"name": "find", "args": {"q": sentence("Call")}, "id": f"c{len(messages)}"}
            text = draw(st.sampled_from(["", sentence("Step")]))
            messages.append(AIMessage(text, tool_calls=[call]))
            messages.append(ToolMessage(sentence("Result"), tool_call_id=call["id"]))
        messages.append(AIMessage(sentence("Answer")))
    return messages


def as_file(name: str, messages: list[BaseMessage]) -> bytes:
    return json.dumps(EVERY_WRITER[name](messages)).encode()


@pytest.mark.parametrize("name", EVERY_WRITER)
@given(messages=conversations())
@settings(max_examples=10)
def test_every_sentence_comes_back_once(name: str, messages: list[BaseMessage]) -> None:
    [conversation] = parse_conversations(as_file(name, messages)).conversations

    assert sentences(conversation.messages) == sentences(messages)


EXAMPLE: list[BaseMessage] = [
    HumanMessage("Which flour?"),
    AIMessage("Let me look.", tool_calls=[{"name": "find", "args": {"q": "rye"}, "id": "c1"}]),
    ToolMessage("Rye 1200", tool_call_id="c1"),
    AIMessage("Rye."),
    HumanMessage("How much?"),
    AIMessage("500 g."),
]


@pytest.mark.parametrize("name", EVERY_WRITER)
def test_calls_are_paired_with_their_results(name: str) -> None:
    [conversation] = parse_conversations(as_file(name, EXAMPLE)).conversations

    calls = [one for one in conversation.messages if getattr(one, "tool_calls", [])]
    results = [one for one in conversation.messages if isinstance(one, ToolMessage)]
    [[called]] = [one.tool_calls for one in calls if isinstance(one, AIMessage)]
    assert [called["id"]] == [one.tool_call_id for one in results]


@pytest.mark.parametrize("name", EXPORTS)
def test_messages_are_dated(name: str) -> None:
    [conversation] = parse_conversations(as_file(name, EXAMPLE)).conversations

    times = [message.additional_kwargs["created_at"] for message in conversation.messages]
    assert all(time.startswith("2026-08-03T09:") for time in times)


@pytest.mark.parametrize("name", EXPORTS)
def test_other_branches_are_conversations_if_asked(name: str) -> None:
    result = parse_conversations(as_file(name, EXAMPLE), with_branches=True)

    others = [one.messages[-1].text for one in result.conversations[1:]]
    assert others
    assert set(others) == {"Another answer"}


EVERY_RECORD = {name: write(EXAMPLE) for name, write in EVERY_WRITER.items()}


def is_read_or_refused(data: bytes) -> bool:
    try:
        result = parse_conversations(data, with_branches=True)
    except ConversationFormatError:
        return True
    return all(conversation.messages for conversation in result.conversations)


@given(broken(EVERY_RECORD))
@settings(max_examples=50)
def test_a_broken_file_is_read_or_refused(records: Any) -> None:
    assert is_read_or_refused(json.dumps(records).encode())


@pytest.mark.slow
@given(broken(EVERY_RECORD), st.integers(0, 5_000))
@settings(max_examples=600)
def test_many_broken_files_are_read_or_refused(records: Any, cut: int) -> None:
    data = json.dumps(records).encode()

    assert is_read_or_refused(data)
    assert is_read_or_refused(data[:cut])
