"""Who said what when, which message it is, and how it is shown."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, ChatMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.function import FunctionMessage

from langchain_ctxbudget import messages

CALL = {"name": "search", "args": {"q": "bike"}, "id": "a", "type": "tool_call"}
IMAGE = {"type": "image_url", "image_url": {"url": "https://x.invalid/a.png"}}


def test_the_speaker_is_the_name_or_the_role():
    for message, name in (
        (HumanMessage("x"), "user"),
        (AIMessage("x"), "assistant"),
        (ToolMessage("x", tool_call_id="a", name="search"), "tool search"),
        (ChatMessage("x", role="critic"), "critic"),
        (FunctionMessage("x", name="f"), "f"),
        (HumanMessage("x", name="Ada\n## Topics"), "Ada ## Topics"),
        (HumanMessage("x", name="</context>"), "‹/context>"),
    ):
        assert messages.speaker(message) == name
    for name in ("assistant", "ａｓｓｉｓｔａｎｔ", "– assistant", "assistant:"):
        assert messages.speaker(HumanMessage("Hi.", name=name)).startswith("user named ")


def test_a_message_is_sent_with_an_accepted_name_and_its_heading():
    sent = messages.as_sent(HumanMessage("x", name="Ada L."), heading="[2024]")
    assert (sent.name, sent.content) == ("Ada_L_", "[2024]\nx")
    assert (
        messages.date_of(
            HumanMessage("x", additional_kwargs={"created_at": "2024-05-01T10:00:00Z"})
        )
        == "2024-05-01"
    )


def test_plain_text_says_what_a_message_says():
    for message, text in (
        (HumanMessage(" hi "), "hi"),
        (
            HumanMessage(["a", {"type": "text", "text": "b"}, IMAGE, {"x": 1}]),
            "a\nb\n[image_url]\n[content]",
        ),
        (AIMessage("ok", tool_calls=[CALL]), 'ok\n[called search({"q": "bike"})]'),
        (AIMessage([{"type": "tool_use", "id": "a", "name": "search", "input": {}}]), "[tool_use]"),
        (
            ToolMessage([{"type": "custom_tool_call_output", "output": "a.txt"}], tool_call_id="a"),
            "a.txt",
        ),
        (HumanMessage([{"type": "text", "text": None}]), "[text]"),
        (
            AIMessage(
                [{"type": "reasoning", "summary": []}, {"type": "text", "text": "It is blue."}]
            ),
            "It is blue.",
        ),
    ):
        assert messages.plain_text(message) == text


DIFFERENT = [
    *(
        HumanMessage(content)
        for content in ("hi", "hi ", "\ud800", "\ud801", ["hi"], [{"type": "text", "text": "hi"}])
    ),
    *(kind("hi") for kind in (AIMessage, SystemMessage)),
    *(ChatMessage("hi", role=role) for role in ("critic", "judge")),
    HumanMessage("hi", name="ada"),
    *(
        HumanMessage("", additional_kwargs=extra)
        for extra in ({"created_at": "x"}, {"raw": b"\xff"}, {"raw": b"\xfe"})
    ),
    *(
        AIMessage("hi", tool_calls=[{**CALL, **change}])
        for change in ({}, {"id": "b"}, {"args": {"q": "car"}})
    ),
    AIMessage("hi", tool_calls=[CALL, {**CALL, "id": "b"}]),
    AIMessage("hi", invalid_tool_calls=[{"name": "f", "args": "{", "id": "a", "error": "e"}]),
    *(ToolMessage("hi", tool_call_id=key) for key in "ab"),
    *(
        ToolMessage("hi", tool_call_id="a", **rest)
        for rest in ({"status": "error"}, {"name": "search"})
    ),
]


def test_messages_that_say_different_things_have_different_fingerprints():
    assert len({messages.fingerprint(message) for message in DIFFERENT}) == len(DIFFERENT)


ANY_TEXT = st.text(st.characters(codec=None), max_size=8)  # with halves of surrogate pairs
PLAIN = st.builds(
    lambda kind, content, name, extra: kind(content, name=name, additional_kwargs=extra),
    st.sampled_from([HumanMessage, AIMessage, SystemMessage]),
    ANY_TEXT,
    st.none() | ANY_TEXT,
    st.dictionaries(st.text(st.characters(codec="ascii"), max_size=3), ANY_TEXT, max_size=3),
)


@given(PLAIN, PLAIN)
def test_plainly_the_same_have_the_same_fingerprint(one, other):
    assert messages.plainly_same(one, one.model_copy(update={"id": "other"}))
    assert messages.fingerprint(one) == messages.fingerprint(other) or not messages.plainly_same(
        one, other
    )


def test_an_artifact_that_cannot_be_compared_counts_as_changed():
    seen = messages.SeenMessages().grown([ToolMessage("x", tool_call_id="a")])
    seen.messages[0].artifact = type("Odd", (), {"__eq__": 0})()
    assert not seen.begin(seen.messages)


NOON = datetime(2024, 6, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "created_at",
    [
        1717243200,
        1717243200.0,
        1717243200000,
        "1717243200",
        "1717243200000",
        "2024-06-01T12:00:00Z",
        "2024-06-01T14:00:00+02:00",
        "2024-06-01 12:00",
        "20240601T120000",
        datetime(2024, 6, 1, 12, tzinfo=UTC),
        NOON.replace(tzinfo=None),
    ],
    ids=repr,
)
def test_the_time_of_a_message_is_read_in_every_usual_form(created_at: object) -> None:
    message = HumanMessage("x", additional_kwargs={"created_at": created_at})
    assert messages.time_of(message) == NOON
    assert messages.date_of(message) == "2024-06-01"
    assert messages.unread_time(message) is None


@pytest.mark.parametrize(
    "created_at",
    ["yesterday", 5, 0, -1, True, float("nan"), float("inf"), 1e30, [1], "20240601120000"],
    ids=repr,
)
def test_what_is_no_time_is_not_taken_for_one(created_at: object) -> None:
    message = HumanMessage("x", additional_kwargs={"created_at": created_at})
    assert messages.time_of(message) is None
    assert messages.date_of(message) is None
    assert messages.unread_time(message) == repr(created_at)


@pytest.mark.parametrize("kwargs", [{}, {"created_at": None}, {"created_at": ""}])
def test_a_message_without_a_time_has_none_that_cannot_be_read(kwargs: dict[str, Any]) -> None:
    assert messages.unread_time(HumanMessage("x", additional_kwargs=kwargs)) is None
