"""The latest prompts: found by what they say in every form, forgotten in order, safe among threads."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import GenericFakeChatModel
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
from langchain_ctxbudget.recent import RecentPrompts
from tests.unit_tests.test_report import example

REPORT = example()


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
            {"type": "image", "source_type": "base64", "data": picture(11), "mime_type": "image/png"},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture(13)}"}},
            {"type": "image", "url": "https://example.org/a.png"},
            {"type": "file", "base64": picture(17), "mime_type": "application/pdf"},
            {"text": "Thanks."},
        ]
    ),
]


class Listener(BaseCallbackHandler):
    """Keeps the prompt as a callback handler is shown it."""

    prompt: list[BaseMessage]

    def on_chat_model_start(self, serialized: dict[str, Any], messages: list[list[BaseMessage]], **_: Any) -> None:
        self.prompt = messages[0]


def as_handlers_see_it(messages: list[BaseMessage]) -> list[BaseMessage]:
    listener = Listener()
    GenericFakeChatModel(messages=iter(["Hi"])).invoke(messages, config={"callbacks": [listener]})
    return listener.prompt


def through_dicts(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    return messages_from_dict([message_to_dict(message) for message in messages])


def through_json(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    return messages_from_dict(json.loads(json.dumps([message_to_dict(message) for message in messages])))


def with_other_ids(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    return [message.model_copy(update={"id": f"other-{n}"}) for n, message in enumerate(messages)]


def with_a_cache_marker(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    block = {"type": "text", "text": messages[0].text, "cache_control": {"type": "ephemeral"}}
    return [messages[0].model_copy(update={"content": [block]}), *messages[1:]]


def holding(messages: Sequence[BaseMessage] = PROMPT) -> RecentPrompts:
    recent = RecentPrompts()
    recent.add(messages, REPORT)
    return recent


@pytest.mark.parametrize(
    "form", [list, deepcopy, through_dicts, through_json, with_other_ids, with_a_cache_marker, as_handlers_see_it]
)
def test_a_prompt_is_found_in_the_form(form: Callable[[list[BaseMessage]], list[BaseMessage]]) -> None:
    assert holding().find(form(PROMPT)) == REPORT


def test_handlers_do_see_another_form() -> None:
    assert as_handlers_see_it(PROMPT)[-1].content != PROMPT[-1].content


def image(data: str) -> HumanMessage:
    words = {"type": "text", "text": "What is this?"}
    return HumanMessage([words, {"type": "image", "base64": data, "mime_type": "image/png"}])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([HumanMessage("Hello")], [HumanMessage("Hello!")]),
        ([HumanMessage("Hello")], [SystemMessage("Hello")]),
        ([HumanMessage("Hello")], [HumanMessage("Hello", name="ada")]),
        ([HumanMessage("a"), HumanMessage("b")], [HumanMessage("b"), HumanMessage("a")]),
        ([HumanMessage("ab")], [HumanMessage("a"), HumanMessage("b")]),
        ([HumanMessage("a"), HumanMessage("b")], [HumanMessage(["a", "human", "b"])]),
        ([HumanMessage("a")], [HumanMessage("a"), AIMessage("b")]),
        ([AIMessage("", tool_calls=[call()])], [AIMessage("", tool_calls=[call(args={"city": "Oslo"})])]),
        ([AIMessage("", tool_calls=[call()])], [AIMessage("", tool_calls=[call(id="c2")])]),
        ([AIMessage("", tool_calls=[call()])], [AIMessage("", tool_calls=[call(name="book")])]),
        ([ToolMessage("1", tool_call_id="a")], [ToolMessage("1", tool_call_id="b")]),
        ([image(picture(7))], [image(picture(11))]),
        ([image(picture(7))], [HumanMessage("What is this?")]),
    ],
)
def test_another_prompt_is_not_found(one: list[BaseMessage], other: list[BaseMessage]) -> None:
    assert holding(one).find(other) is None


TEXTS = st.lists(st.text(max_size=3) | st.sampled_from(["human", '", "', "\0", "\ud800"]), max_size=3)


@settings(deadline=None)
@given(st.lists(TEXTS, max_size=3), st.lists(TEXTS, max_size=3))
def test_two_prompts_are_the_same_only_where_every_message_is(one: list[list[str]], other: list[list[str]]) -> None:
    found = holding([HumanMessage(list(texts)) for texts in one]).find([HumanMessage(list(texts)) for texts in other])
    assert (found is not None) == (one == other)


def test_arguments_that_json_does_not_know_are_no_error() -> None:
    odd = [AIMessage("", tool_calls=[call(args={"when": {1, 2}, "by": {("a", "b"): 1}, "data": b"x"})])]
    assert holding(odd).find(odd) == REPORT


def test_of_prompts_that_say_the_same_the_later_report_is_found() -> None:
    recent = holding()
    recent.add(with_other_ids(PROMPT), replace(REPORT, total_tokens=16))
    found = recent.find(PROMPT)
    assert found is not None
    assert found.total_tokens == 16


def texts(recent: RecentPrompts, *names: str) -> list[bool]:
    return [recent.find([HumanMessage(name)]) is not None for name in names]


def test_the_oldest_prompt_is_forgotten_first() -> None:
    recent = RecentPrompts(limit=2)
    for name in "abc":
        recent.add([HumanMessage(name)], REPORT)
    assert texts(recent, "a", "b", "c") == [False, True, True]


def test_a_prompt_that_is_made_again_is_the_newest() -> None:
    recent = RecentPrompts(limit=2)
    for name in "abac":
        recent.add([HumanMessage(name)], REPORT)
    assert texts(recent, "a", "b", "c") == [True, False, True]


def test_candidates_are_not_kept() -> None:
    context = ContextPipeline().assemble("Hello", user_id="ada", conversation_id="c1")
    recent = RecentPrompts()
    recent.add(context.messages, context.report)
    found = recent.find(context.messages)
    assert found == context.report
    with pytest.raises(InputError, match="no candidates"):
        found.reallocate(500)


def test_threads_never_find_the_prompts_of_others() -> None:
    recent = RecentPrompts(limit=64)

    def work(number: int) -> bool:
        prompt = [HumanMessage(f"Question {number}")]
        recent.add(prompt, replace(REPORT, total_tokens=number))
        found = recent.find(prompt)
        return found is None or found.total_tokens == number  # None: others were faster

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(2_000)))
    assert sum(texts(recent, *(f"Question {number}" for number in range(2_000)))) == 64
