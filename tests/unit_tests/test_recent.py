"""The latest prompts: found by what they say in every form, forgotten in order, safe among threads."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    message_to_dict,
    messages_from_dict,
)

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.pipeline import recent as recent_prompts
from langchain_ctxbudget.pipeline.recent import RecentPrompts
from langchain_ctxbudget.stores import Scope
from tests.unit_tests.test_report import example

REPORT = example()
SCOPE = Scope("ada", "c1")
BOOKS: Any = None


def picture(seed: int) -> str:
    return base64.b64encode(bytes((seed * n) % 251 for n in range(60))).decode()


def call(**changes: Any) -> dict[str, Any]:
    return {"id": "c1", "name": "find_flight", "args": {"city": "Köln", "seats": 2}, "type": "tool_call"} | changes


PROMPT: list[BaseMessage] = [
    SystemMessage("You are helpful."),
    HumanMessage("Which flight? ✈", name="ada", id="m1"),
    AIMessage("", tool_calls=[call()], id="m2"),
    ToolMessage("LH 1", tool_call_id="c1", name="find_flight"),
    HumanMessage(
        [
            {"type": "text", "text": "And these?"},
            {"type": "image", "base64": picture(7), "mime_type": "image/png"},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture(13)}"}},
            {"type": "image", "url": "https://example.org/a.png"},
            {"type": "file", "base64": picture(17), "mime_type": "application/pdf"},
            {"text": "Thanks."},
        ]
    ),
]


def through_json(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    return messages_from_dict(json.loads(json.dumps([message_to_dict(message) for message in messages])))


def with_a_cache_marker(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    block = {"type": "text", "text": messages[0].text, "cache_control": {"type": "ephemeral"}}
    return [messages[0].model_copy(update={"content": [block]}), *messages[1:]]


def holding(messages: Sequence[BaseMessage] = PROMPT) -> RecentPrompts:
    recent = RecentPrompts()
    recent.note(messages, lambda: REPORT, SCOPE, BOOKS)
    return recent


def test_a_prompt_is_found_in_every_form() -> None:
    for form in (list, through_json, with_a_cache_marker):
        assert holding().find(form(PROMPT)) == REPORT


def image(data: str) -> HumanMessage:
    words = {"type": "text", "text": "What is this?"}
    return HumanMessage([words, {"type": "image", "base64": data, "mime_type": "image/png"}])


OTHERS: list[tuple[list[BaseMessage], list[BaseMessage]]] = [
    ([HumanMessage("Hello")], [HumanMessage("Hello!")]),
    ([HumanMessage("Hello")], [SystemMessage("Hello")]),
    ([HumanMessage("a"), HumanMessage("b")], [HumanMessage("b"), HumanMessage("a")]),
    ([HumanMessage("a"), HumanMessage("b")], [HumanMessage(["a", "human", "b"])]),
    ([AIMessage("", tool_calls=[call()])], [AIMessage("", tool_calls=[call(args={"city": "Oslo"})])]),
    ([ToolMessage("1", tool_call_id="a")], [ToolMessage("1", tool_call_id="b")]),
]


def test_another_prompt_is_not_found() -> None:
    for one, other in OTHERS:
        assert holding(one).find(other) is None


def test_the_oldest_prompt_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_prompts, "MOST_REPORTS", 2)
    recent = RecentPrompts()
    for name in "abc":
        recent.note([HumanMessage(name)], lambda: REPORT, SCOPE, BOOKS)
    assert [recent.find([HumanMessage(name)]) is not None for name in "abc"] == [False, True, True]


def test_candidates_are_not_kept() -> None:
    pipeline = ContextPipeline()
    context = pipeline.assemble("Hello", user_id="ada", conversation_id="c1")
    found = pipeline.last_report(user_id="ada", conversation_id="c1")
    assert found == context.report
    with pytest.raises(InputError, match="no candidates"):
        found.reallocate(500)
