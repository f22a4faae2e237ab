"""Clipping keeps the order of content, and an item never stands without what it needs."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.content import Kind, parts_of
from langchain_ctxbudget.messages import clip_message, excerpt, without_media
from langchain_ctxbudget.tokens import TiktokenCounter
from tests.cases import few_are_quick

SCOPE: dict[str, Any] = {"user_id": "ada", "conversation_id": "c1"}
COUNTER = TiktokenCounter()
RESPONSES = ChatOpenAI(model="gpt-5", api_key="x", use_responses_api=True)
PICTURE = "iVBORw0KGgo" + "A" * 400

ONE = "".join(f"The first reason is {number}. " for number in range(80))
TWO = "".join(f"The second reason is {number}. " for number in range(80))
CALL = {"name": "look", "args": {"place": "shed"}, "id": "call_1", "type": "tool_call"}


def text(words: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **fields}


def item(kind: str, number: int, **fields: Any) -> dict[str, Any]:
    beginning = {"reasoning": "rs", "function_call": "fc", "image_generation_call": "ig"}[kind]
    return {"type": kind, "id": f"{beginning}_{number}", **fields}


def thinking(words: str = "Hm.") -> dict[str, Any]:
    return {"type": "thinking", "thinking": words, "signature": "c2ln"}


def image() -> dict[str, Any]:
    return {"type": "image", "base64": PICTURE, "mime_type": "image/png"}


REASONS = item("reasoning", 1, summary=[])
OPENAI_CALL = item("function_call", 1, name="look", arguments="{}", call_id="call_1")
CLAUDE_CALL = {"type": "tool_use", "id": "call_1", "name": "look", "input": {"place": "shed"}}
MESSAGES: dict[str, BaseMessage] = {
    "OpenAI, an answer": AIMessage([REASONS, text(ONE, id="msg_1")]),
    "OpenAI, a call": AIMessage([REASONS, text(ONE, id="msg_1"), OPENAI_CALL], tool_calls=[CALL]),
    "OpenAI, two thoughts": AIMessage(
        [
            REASONS,
            text(ONE, id="msg_1"),
            item("reasoning", 2, summary=[]),
            text(TWO, id="msg_2"),
        ]
    ),
    "OpenAI, no id": AIMessage([REASONS, text(ONE)]),
    "OpenAI, a picture": AIMessage(
        [REASONS, item("image_generation_call", 1, result=PICTURE), text(ONE, id="msg_1")]
    ),
    "Claude, an answer": AIMessage([thinking(), text(ONE)]),
    "Claude, a call": AIMessage([thinking(), text(ONE), CLAUDE_CALL], tool_calls=[CALL]),
    "Claude, thoughts between": AIMessage(
        [thinking(), text(ONE), thinking("Or?"), text(TWO), CLAUDE_CALL], tool_calls=[CALL]
    ),
    "Claude, a text before": AIMessage([text(ONE), thinking(), CLAUDE_CALL], tool_calls=[CALL]),
    "a user's picture": HumanMessage([text(ONE), image(), text(TWO)]),
    "a picture first": HumanMessage([image(), text(ONE)]),
    "a tool's picture": ToolMessage([text(ONE), image(), text(TWO)], tool_call_id="call_1"),
}
EVERY_MESSAGE = pytest.mark.parametrize("message", MESSAGES.values(), ids=list(MESSAGES))


def order_of(message: BaseMessage) -> list[str]:
    """What stands in a message, one after the other: texts by their beginning, others by kind."""
    order: list[str] = []
    for part in parts_of(message):
        words = part.plain_text
        order += [word for word in ("first", "second") if word in (words or "")]
        if words is None:
            order.append(part.kind)
    return order


def is_in_order(shorter: Sequence[str], order: Sequence[str]) -> bool:
    rest = iter(order)
    return all(entry in rest for entry in shorter)


def check(message: BaseMessage, shorter: BaseMessage) -> None:
    assert is_in_order(order_of(shorter), order_of(message))
    assert lonely_items(message, shorter) == []
    kinds = [part.kind for part in parts_of(shorter)]
    assert kinds[-1:] != [Kind.REASONING]


def lonely_items(message: BaseMessage, shorter: BaseMessage) -> list[str]:
    """The ids of items that stand without another one, which they came with."""
    ids_before = [part.item.id for part in parts_of(message) if part.item]
    ids = [part.item.id for part in parts_of(shorter) if part.item]
    needs_thoughts = any(item_id.startswith("rs_") for item_id in ids_before)
    is_whole = ids == ids_before
    # A picture that the provider has made itself is known by its id.
    own = [item_id for item_id in ids if not item_id.startswith("ig_")]
    return [] if is_whole or not needs_thoughts else own


@EVERY_MESSAGE
@pytest.mark.parametrize("keeps_media", [True, False])
@pytest.mark.parametrize("tokens", few_are_quick([120, 60, 200, 400, 600, 900], quick=3))
def test_a_clipped_message_is_in_order(
    message: BaseMessage, tokens: int, *, keeps_media: bool
) -> None:
    clipped = clip_message(
        message, COUNTER.count_message, COUNTER.count_text, tokens, keeps_media=keeps_media
    )
    if clipped is not None:
        check(message, clipped)
        assert COUNTER.count_message(clipped) <= tokens


@EVERY_MESSAGE
def test_an_excerpt_is_in_order(message: BaseMessage) -> None:
    check(message, excerpt(message))


@EVERY_MESSAGE
def test_a_message_without_media_is_in_order(message: BaseMessage) -> None:
    shorter = without_media(message)

    assert lonely_items(message, shorter) == []


def test_texts_around_a_picture_are_clipped_each() -> None:
    clipped = clip_message(
        MESSAGES["a tool's picture"],
        COUNTER.count_message,
        COUNTER.count_text,
        1_800,
        keeps_media=True,
    )

    assert clipped is not None
    assert [part.kind for part in parts_of(clipped)] == [Kind.TEXT, Kind.IMAGE, Kind.TEXT]


def problems_of(items: Sequence[dict[str, Any]]) -> list[str]:
    """Thoughts that another thought, a user or nothing follows, which OpenAI refuses."""
    following = [*items[1:], {}]
    return [
        item["id"]
        for item, after in zip(items, following, strict=True)
        if item.get("type") == "reasoning"
        and (after.get("type") in (None, "reasoning") or after.get("role") == "user")
    ]


@pytest.mark.parametrize("preservation", ["summarize", "keep", "drop", None])
@pytest.mark.parametrize("budget", few_are_quick([4_000, 8_000, 128_000]))
def test_openai_is_sent_thoughts_with_what_they_led_to(budget: int, preservation: str) -> None:
    pipeline = ContextPipeline(
        model=RESPONSES, store=InMemoryStore(), settings={"max_context_tokens": budget}
    )
    beside = {"ctxbudget": preservation} if preservation else {}
    messages: list[BaseMessage] = []
    for number in range(1, 9):
        reasons = item("reasoning", number, summary=[])
        call_id = f"call_{number}"
        call = item("function_call", number, name="look", arguments="{}", call_id=call_id)
        content = [reasons, text(ONE, id=f"msg_{number}"), call]
        listed = {"name": "look", "args": {}, "id": call_id}
        messages += [
            HumanMessage("And now?"),
            AIMessage(content, tool_calls=[listed], additional_kwargs=beside),
            ToolMessage(TWO, tool_call_id=call_id),
        ]
    pipeline.add_messages(messages, **SCOPE)

    sent = pipeline.assemble("Is it done?", **SCOPE).messages

    payload = json.loads(json.dumps(RESPONSES._get_request_payload(list(sent))["input"]))
    assert problems_of(payload) == []
    thoughts = {it["id"][3:] for it in payload if it.get("type") == "reasoning"}
    others = {it["id"].partition("_")[2] for it in payload if "id" in it}
    assert thoughts == others
