"""Tests that readers of sessions and traces lose nothing, double nothing, and never break."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_ctxbudget.errors import ConversationFormatError
from langchain_ctxbudget.readers import parse_conversations
from langchain_ctxbudget.readers.growing import Request
from langchain_ctxbudget.readers.requests import Requests
from tests.broken_json import broken
from tests.trace_writers import WRITERS, Record, as_lines, said

DATED = [name for name in WRITERS if name not in ("codex of old", "gemini")]
IN_LINES = [name for name in WRITERS if name != "langfuse"]


@st.composite
def conversations(draw: st.DrawFn) -> list[BaseMessage]:
    """Turns with up to three rounds of calls each; no sentence is said twice."""
    messages: list[BaseMessage] = []

    def sentence(what: str) -> str:
        words = draw(st.text('abc äß→\n"\\{[<', max_size=8))
        return f"{what} {len(messages)} {words}."

    for _ in range(draw(st.integers(1, 3))):
        messages.append(HumanMessage(sentence("Question")))
        for _ in range(draw(st.integers(0, 2))):
            text = draw(st.sampled_from(["", sentence("Step")]))
            calls = [
                {"name": "find", "args": {"q": sentence(f"Call {number}")}, "id": ""}
                for number in range(draw(st.integers(1, 3)))
            ]
            for number, call in enumerate(calls):
                call["id"] = f"call-{len(messages)}-{number}"
            messages.append(AIMessage(text, tool_calls=calls))
            messages += [
                ToolMessage(sentence(f"Result of {call['id']},"), tool_call_id=call["id"])
                for call in calls
            ]
        messages.append(AIMessage(sentence("Answer")))
    return messages


def require_each_sentence_once(name: str, messages: list[BaseMessage]) -> None:
    result = parse_conversations(as_lines(WRITERS[name](messages)))

    [conversation] = result.conversations
    own = [one for one in conversation.messages if "lc_source" not in one.additional_kwargs]
    assert said(own) == said(messages)


@pytest.mark.parametrize("name", WRITERS)
@given(messages=conversations())
@settings(max_examples=5)
def test_every_sentence_comes_back_once(name: str, messages: list[BaseMessage]) -> None:
    require_each_sentence_once(name, messages)


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITERS)
@given(messages=conversations())
@settings(max_examples=60)
def test_every_sentence_of_many_comes_back_once(name: str, messages: list[BaseMessage]) -> None:
    require_each_sentence_once(name, messages)


EXAMPLE: list[BaseMessage] = [
    HumanMessage("Which flour?"),
    AIMessage(
        "Let me look.",
        tool_calls=[
            {"name": "find", "args": {"q": "rye"}, "id": "c1"},
            {"name": "find", "args": {"q": "oats"}, "id": "c2"},
        ],
    ),
    ToolMessage("Rye 1200", tool_call_id="c1"),
    ToolMessage("no oats", tool_call_id="c2"),
    AIMessage("Rye."),
    HumanMessage("How much?"),
    AIMessage("500 g."),
]


@pytest.mark.parametrize("name", DATED)
def test_messages_are_dated(name: str) -> None:
    [conversation] = parse_conversations(as_lines(WRITERS[name](EXAMPLE))).conversations

    times = [message.additional_kwargs["created_at"] for message in conversation.messages]
    assert all(time.startswith("2026-03-05T10:") for time in times)


@pytest.mark.parametrize("name", IN_LINES)
def test_a_file_cut_off_is_read_up_to_there(name: str) -> None:
    data = as_lines(WRITERS[name](EXAMPLE))

    result = parse_conversations(data[: len(data) - 20])

    assert result.conversations[0].messages[0].text
    assert len(result.skipped) == 1


EVERY_RECORD = {name: write(EXAMPLE) for name, write in WRITERS.items()}


def is_read_or_refused(data: bytes) -> bool:
    try:
        result = parse_conversations(data, with_branches=True)
    except ConversationFormatError:
        return True
    return all(conversation.messages for conversation in result.conversations)


class Counted(Requests):
    """Counts how often a request is read."""

    def __init__(self) -> None:
        self.times = 0

    def request_of(self, call: Record) -> Request:
        self.times += 1
        return super().request_of(call)


def test_each_call_is_read_once() -> None:
    reader = Counted()
    bodies = [{"model": "m", "messages": [{"role": "user", "content": f"{n}?"}]} for n in range(9)]

    assert len(list(reader.conversations(bodies))) == 9
    assert reader.times == 9


@given(broken(EVERY_RECORD))
@settings(max_examples=30)
def test_a_broken_file_is_read_or_refused(records: list[Any]) -> None:
    assert is_read_or_refused(as_lines(records))


@pytest.mark.slow
@given(broken(EVERY_RECORD), st.integers(0, 5_000))
@settings(max_examples=600)
def test_many_broken_files_are_read_or_refused(records: list[Any], cut: int) -> None:
    assert is_read_or_refused(json.dumps(records).encode())
    assert is_read_or_refused(as_lines(records)[:cut])
