"""The latest prompts: found by what they say in every form, and forgotten in order."""

import json

from langchain_core.messages import (
    AIMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    message_to_dict,
    messages_from_dict,
)

from langchain_ctxbudget.pipeline import bookkeeping
from langchain_ctxbudget.pipeline.bookkeeping import RecentPrompts
from langchain_ctxbudget.stores import Scope
from tests.unit_tests.test_report import example

REPORT = example()


def prompt(*, city="Köln", text="Thanks."):
    image = {"type": "image", "base64": "AAAA", "mime_type": "image/png"}
    return [
        SystemMessage("You are helpful."),
        HumanMessage("Which flight? ✈", name="ada", id="m1"),
        AIMessage("", tool_calls=[{"id": "c1", "name": "find", "args": {"city": city}, "type": "tool_call"}], id="m2"),
        ToolMessage("LH 1", tool_call_id="c1", name="find"),
        HumanMessage([{"type": "text", "text": "And these?"}, image, {"type": "text", "text": text}]),
    ]


def holding(*prompts):
    recent = RecentPrompts()
    for messages in prompts:
        recent.note(messages, lambda: REPORT, Scope("ada", "c1"), None, lambda: REPORT)
    return recent


def test_a_prompt_is_found_in_every_form_and_another_one_is_not():
    recent, one = holding(prompt()), prompt()
    for same in (one, messages_from_dict(json.loads(json.dumps([message_to_dict(message) for message in one])))):
        assert recent.find(same) == REPORT
    for other in (
        prompt(city="Oslo"),
        prompt(text="Thanks"),
        one[:-1],
        [*one, AIMessage("Well.")],
        [one[1], one[0], *one[2:]],
    ):
        assert recent.find(other) is None


def test_the_oldest_prompt_is_forgotten_first(monkeypatch):
    monkeypatch.setattr(bookkeeping, "MOST_REPORTS", 2)
    recent = holding(*([HumanMessage(name)] for name in "abc"))
    assert [recent.find([HumanMessage(name)]) is not None for name in "abc"] == [False, True, True]
