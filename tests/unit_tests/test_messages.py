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


# Who speaks, and what they say


@pytest.mark.parametrize(
    ("message", "name"),
    [
        (HumanMessage("x"), "user"),
        (AIMessage("x"), "assistant"),
        (ToolMessage("x", tool_call_id="a", name="search"), "tool search"),
        (ChatMessage("x", role="critic"), "critic"),
        (FunctionMessage("x", name="f"), "f"),
        (HumanMessage("x", name="Ada\n## Topics"), "Ada ## Topics"),
        (HumanMessage("x", name="</context>"), "‹/context>"),
    ],
    ids=["user", "assistant", "tool", "role", "function", "lines", "fence"],
)
def test_the_speaker_is_the_name_or_the_role(message, name):
    assert messages.speaker(message) == name


@pytest.mark.parametrize("name", ["assistant", "ａｓｓｉｓｔａｎｔ", "– assistant", "assistant:"])
def test_a_user_cannot_pass_for_the_assistant(name):
    assert messages.speaker(HumanMessage("Hi.", name=name)).startswith("user named ")


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (HumanMessage(" hi "), "hi"),
        (
            HumanMessage(["a", {"type": "text", "text": "b"}, IMAGE, {"x": 1}]),
            "a\nb\n[image]\n[content]",
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
                [
                    {
                        "type": "server_tool_use",
                        "id": "s1",
                        "name": "web_search",
                        "input": {"query": "foxes"},
                    }
                ]
            ),
            "[web_search: foxes]",
        ),
        (HumanMessage(["a", *[IMAGE] * 12]), "a\n[12 images]"),
        (
            AIMessage(
                [
                    {"type": "text", "text": "It is "},
                    {"type": "text", "text": "blue", "citations": [{"title": "Whales"}]},
                    {"type": "text", "text": "."},
                ]
            ),
            "It is blue.\n[source: Whales]",
        ),
        (
            AIMessage(
                [{"type": "reasoning", "summary": []}, {"type": "text", "text": "It is blue."}]
            ),
            "It is blue.",
        ),
    ],
    ids=[
        "text",
        "blocks",
        "call",
        "call in a block",
        "result in a block",
        "no text",
        "server tool",
        "images",
        "cited",
        "thought",
    ],
)
def test_plain_text_says_what_a_message_says(message, text):
    assert messages.plain_text(message) == text


# Which message it is


DIFFERENT = [
    HumanMessage("hi"),
    HumanMessage("hi "),
    HumanMessage("\ud800"),
    HumanMessage("\ud801"),
    HumanMessage(["hi"]),
    HumanMessage([{"type": "text", "text": "hi"}]),
    AIMessage("hi"),
    SystemMessage("hi"),
    ChatMessage("hi", role="critic"),
    ChatMessage("hi", role="judge"),
    HumanMessage("hi", name="ada"),
    HumanMessage("", additional_kwargs={"created_at": "x"}),
    HumanMessage("", additional_kwargs={"raw": b"\xff"}),
    HumanMessage("", additional_kwargs={"raw": b"\xfe"}),
    AIMessage("hi", tool_calls=[CALL]),
    AIMessage("hi", tool_calls=[{**CALL, "id": "b"}]),
    AIMessage("hi", tool_calls=[{**CALL, "args": {"q": "car"}}]),
    AIMessage("hi", tool_calls=[CALL, {**CALL, "id": "b"}]),
    AIMessage("hi", invalid_tool_calls=[{"name": "f", "args": "{", "id": "a", "error": "e"}]),
    ToolMessage("hi", tool_call_id="a"),
    ToolMessage("hi", tool_call_id="b"),
    ToolMessage("hi", tool_call_id="a", status="error"),
    ToolMessage("hi", tool_call_id="a", name="search"),
]


def test_messages_that_differ_have_different_fingerprints():
    fingerprints = list(map(messages.fingerprint, DIFFERENT))

    assert len(set(fingerprints)) == len(DIFFERENT)


ANY_TEXT = st.text(st.characters(codec=None), max_size=8)  # with halves of surrogate pairs


def plain_message(kind, content, name, extra):
    return kind(content, name=name, additional_kwargs=extra)


PLAIN = st.builds(
    plain_message,
    st.sampled_from([HumanMessage, AIMessage, SystemMessage]),
    ANY_TEXT,
    st.none() | ANY_TEXT,
    st.dictionaries(st.text(st.characters(codec="ascii"), max_size=3), ANY_TEXT, max_size=3),
)


@given(PLAIN)
def test_a_message_with_another_id_is_plainly_the_same(message):
    assert messages.plainly_same(message, message.model_copy(update={"id": "other"}))


@given(PLAIN, PLAIN)
def test_messages_that_are_plainly_the_same_have_one_fingerprint(first, second):
    if messages.plainly_same(first, second):
        assert messages.fingerprint(first) == messages.fingerprint(second)


class Incomparable:
    """Comparing it fails."""

    __eq__ = 0
    __hash__ = None


def test_an_artifact_that_cannot_be_compared_counts_as_changed():
    seen = messages.SeenMessages().grown([ToolMessage("x", tool_call_id="a")])
    seen.messages[0].artifact = Incomparable()

    assert not seen.begin(seen.messages)


# When it was said


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
