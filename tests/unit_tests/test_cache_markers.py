"""The marker at the end of the stable zone, and where it arrives at Anthropic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from langchain_ctxbudget.prompt.cache_markers import with_cache_marker
from langchain_ctxbudget.tokens.counters import EstimatingCounter, TiktokenCounter, TokenCounter

MARKER = {"type": "ephemeral"}
SYSTEM, WHO, NOBODY = SystemMessage("You are a clerk."), HumanMessage("Who ordered it?"), AIMessage("Nobody.")
CALLS = [{"name": "search", "args": {"page": 1}, "id": "a"}]
CALLING, RESULT = AIMessage("", tool_calls=CALLS), ToolMessage("No entry.", tool_call_id="a")
IMAGE = {"type": "image_url", "image_url": {"url": "https://x.invalid/a.png"}}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "x"}


def text(value: str, *, marked: bool = False) -> dict[str, Any]:
    return {"type": "text", "text": value, **({"cache_control": MARKER} if marked else {})}


def places(messages: Sequence[BaseMessage]) -> list[int]:
    """Which messages are marked."""
    return [number for number, message in enumerate(messages) if "cache_control" in str(message.content)]


@pytest.mark.parametrize("stable", [1, 2, 3])
def test_the_last_stable_message_is_marked(stable: int) -> None:
    marked = with_cache_marker([SYSTEM, WHO, NOBODY, HumanMessage("And why?")], stable)
    assert places(marked) == [stable - 1]


@pytest.mark.parametrize(
    "message",
    [
        CALLING,
        AIMessage([], tool_calls=CALLS),
        AIMessage([text("Let us see.")], tool_calls=CALLS, response_metadata={"output_version": "v1"}),
        AIMessage([THOUGHT], tool_calls=CALLS),
        ToolMessage("", tool_call_id="a"),
        HumanMessage([IMAGE]),
        HumanMessage(" \n"),
        HumanMessage([text("")]),
    ],
)
def test_a_message_without_text_is_passed_over(message: BaseMessage) -> None:
    marked = with_cache_marker([SYSTEM, WHO, message], 3)
    assert places(marked) == [1]
    assert marked[2] is message


# -- at Anthropic


@pytest.fixture(scope="module")
def anthropic() -> ChatAnthropic:
    return ChatAnthropic(model="claude-sonnet-4-5", api_key="x")


def sent(model: ChatAnthropic, messages: list[BaseMessage], stable: int) -> dict[str, Any]:
    """The one block of the request that is marked."""
    payload = model._get_request_payload(with_cache_marker(messages, stable))
    contents = [payload.get("system"), *(message["content"] for message in payload["messages"])]
    blocks = [block for content in contents if isinstance(content, list) for block in content]
    [marked] = [block for block in blocks if "cache_control" in str(block)]
    return dict(marked)


@pytest.mark.parametrize(
    ("stable", "block"),
    [
        (1, text("You are a clerk.", marked=True)),
        (2, text("Who ordered it?", marked=True)),
        (3, text("Let us see.", marked=True)),
        (
            4,
            {
                "type": "tool_result",
                "tool_use_id": "a",
                "content": [text("No entry.")],
                "is_error": False,
                "cache_control": MARKER,
            },
        ),
        (5, text("Nobody.", marked=True)),
    ],
    ids=["system", "human", "calls", "tool", "ai"],
)
def test_the_marker_arrives_at_its_block(anthropic: ChatAnthropic, stable: int, block: dict[str, Any]) -> None:
    messages = [SYSTEM, WHO, AIMessage("Let us see.", tool_calls=CALLS), RESULT, NOBODY, HumanMessage("And why?")]
    assert sent(anthropic, messages, stable) == block


def test_all_else_of_the_request_stays(anthropic: ChatAnthropic) -> None:
    messages = [SYSTEM, WHO, CALLING, RESULT, NOBODY, HumanMessage("And why?")]
    bare, marked = (
        anthropic._get_request_payload(with_cache_marker(messages, stable)) for stable in (0, len(messages))
    )
    assert marked["messages"].pop()["content"] == [text("And why?", marked=True)]
    assert bare["messages"].pop()["content"] == "And why?"
    assert marked == bare


# -- what it costs


@pytest.mark.parametrize("counter", [TiktokenCounter(), EstimatingCounter()], ids=["tiktoken", "estimating"])
@pytest.mark.parametrize(
    "message",
    [
        SYSTEM,
        WHO,
        NOBODY,
        RESULT,
        AIMessage("Let us see.", tool_calls=CALLS),
        HumanMessage([text("One. 北京"), IMAGE, text("Two.")]),
        HumanMessage(["One.", "Two."]),
        HumanMessage("<|endoftext|>", name="Ada"),
    ],
)
def test_a_marked_message_is_counted_as_the_unmarked_one(counter: TokenCounter, message: BaseMessage) -> None:
    [marked] = with_cache_marker([message], 1)
    assert marked != message
    assert counter.count_message(marked) == counter.count_message(message)
