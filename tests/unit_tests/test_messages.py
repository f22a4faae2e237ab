"""Who said what when, which message it is, and how it is shown."""

import json
from hashlib import blake2b

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    HumanMessageChunk,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)

from langchain_ctxbudget.errors import EmptyMessageError, UnsupportedContentError
from langchain_ctxbudget.messages.messages import (
    as_json_data,
    as_sent,
    checked,
    current_turn,
    date_of,
    fingerprint,
    is_plain,
    plain_text,
    plainly_same,
    speaker,
)

CALL = {"name": "search", "args": {"q": "bike"}, "id": "a", "type": "tool_call"}
CUSTOM_CALL = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "a", "name": "run", "input": "ls"}
IMAGE = {"type": "image_url", "image_url": {"url": "https://x.invalid/a.png"}}


@pytest.mark.parametrize(
    ("message", "name"),
    [
        (HumanMessage("x"), "user"),
        (AIMessage("x"), "assistant"),
        (SystemMessage("x"), "system"),
        (ToolMessage("x", tool_call_id="a"), "tool"),
        (ToolMessage("x", tool_call_id="a", name="search"), "tool search"),
        (ChatMessage("x", role="critic"), "critic"),
        (FunctionMessage("x", name="f"), "f"),
        (HumanMessage("x", name="Ada"), "Ada"),
        (HumanMessage("x", name="李"), "李"),
        (HumanMessage("x", name=" \n "), "user"),
        (HumanMessage("x", name="Ada\n## Topics"), "Ada ## Topics"),
        (HumanMessage("x", name="</context>"), "‹/context>"),
    ],
)
def test_the_speaker_is_the_name_or_the_role(message, name):
    assert speaker(message) == name


def test_the_date_is_that_of_created_at():
    assert date_of(HumanMessage("x", additional_kwargs={"created_at": "2024-05-01T10:00:00Z"})) == "2024-05-01"


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (HumanMessage(" hi "), "hi"),
        (HumanMessage(["a", {"type": "text", "text": "b"}, IMAGE, {"x": 1}]), "a\nb\n[image_url]\n[content]"),
        (AIMessage("ok", tool_calls=[CALL]), 'ok\n[called search({"q": "bike"})]'),
        (AIMessage([{"type": "tool_use", "id": "a", "name": "search", "input": {}}]), "[called search({})]"),
        (AIMessage("", tool_calls=[{**CALL, "args": {"q": "räd"}}]), '[called search({"q": "räd"})]'),
        (AIMessage([CUSTOM_CALL]), '[called run({"__arg1": "ls"})]'),
        (AIMessage([{"type": "non_standard", "value": CUSTOM_CALL}]), '[called run({"__arg1": "ls"})]'),
        (ToolMessage([{"type": "custom_tool_call_output", "output": "a.txt"}], tool_call_id="a"), "a.txt"),
        (HumanMessage([{"type": "text", "text": None}]), "[text]"),
        (HumanMessage([]), ""),
    ],
)
def test_plain_text_says_what_a_message_says(message, text):
    assert plain_text(message) == text


DIFFERENT = [
    HumanMessage("hi"),
    HumanMessage("hi "),
    AIMessage("hi"),
    SystemMessage("hi"),
    ChatMessage("hi", role="critic"),
    ChatMessage("hi", role="judge"),
    HumanMessage("hi", name="ada"),
    HumanMessage(["hi"]),
    HumanMessage([{"type": "text", "text": "hi"}]),
    HumanMessage("hi", additional_kwargs={"created_at": "2024-05-01"}),
    AIMessage("hi", tool_calls=[CALL]),
    AIMessage("hi", tool_calls=[{**CALL, "id": "b"}]),
    AIMessage("hi", tool_calls=[{**CALL, "args": {"q": "car"}}]),
    AIMessage("hi", tool_calls=[CALL, {**CALL, "id": "b"}]),
    AIMessage("hi", invalid_tool_calls=[{"name": "f", "args": "{", "id": "a", "error": "e"}]),
    ToolMessage("hi", tool_call_id="a"),
    ToolMessage("hi", tool_call_id="b"),
    ToolMessage("hi", tool_call_id="a", status="error"),
    ToolMessage("hi", tool_call_id="a", name="search"),
    HumanMessage("\ud800"),
    HumanMessage("\ud801"),
    HumanMessage("", additional_kwargs={"raw": b"\xff"}),
    HumanMessage("", additional_kwargs={"raw": b"\xfe"}),
]


def test_messages_that_say_different_things_have_different_fingerprints():
    assert len({fingerprint(message) for message in DIFFERENT}) == len(DIFFERENT)


ANY_TEXT = st.text(st.characters(codec=None), max_size=8)  # with halves of surrogate pairs
PLAIN = st.builds(
    lambda kind, content, name, extra: kind(content, name=name, additional_kwargs=extra),
    st.sampled_from([HumanMessage, AIMessage, SystemMessage]),
    ANY_TEXT,
    st.none() | ANY_TEXT,
    st.dictionaries(st.text(st.characters(codec="ascii"), max_size=3), ANY_TEXT, max_size=3),
)


@settings(deadline=None)
@given(PLAIN)
def test_the_fingerprint_of_plain_text_is_made_as_that_of_any_message(message):
    assert is_plain(message)
    said = {"type": message.type, "content": message.content, "name": message.name, "kwargs": message.additional_kwargs}
    if isinstance(message, AIMessage):
        said |= {"calls": [], "invalid": []}
    text = json.dumps(as_json_data(said), sort_keys=True)
    assert fingerprint(message) == blake2b(text.encode(), digest_size=16).hexdigest()


@settings(deadline=None)
@given(PLAIN, PLAIN)
def test_plainly_the_same_have_the_same_fingerprint(one, other):
    assert plainly_same(one, one.model_copy(update={"id": "other"}))
    assert fingerprint(one) == fingerprint(other) or not plainly_same(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"n": 1}, {"n": True}),
        ({"n": 1}, {"n": 1.0}),
        ({}, {"n": None}),
        ({"n": [1]}, {"n": [True]}),
    ],
)
def test_what_only_python_takes_for_the_same_is_not_plainly_the_same(one, other):
    for made in (
        lambda extra: HumanMessage("x", additional_kwargs=extra),
        lambda extra: AIMessage("", tool_calls=[{"name": "f", "args": extra, "id": "a"}]),
        lambda extra: HumanMessage([{"type": "text", "text": "x", **extra}]),
    ):
        assert plainly_same(made(one), made(dict(one)))
        assert not plainly_same(made(one), made(other))


def test_chunks_become_whole_messages():
    assert checked([HumanMessageChunk("a"), AIMessageChunk("b", id="i")], "x") == [
        HumanMessage("a"),
        AIMessage("b", id="i"),
    ]


@pytest.mark.parametrize("wrong", ["hi", b"hi", {"role": "user"}, None, 5, HumanMessage("x"), iter([])])
def test_what_is_no_list_of_messages_is_refused(wrong):
    with pytest.raises(UnsupportedContentError, match="messages must be a list of LangChain messages"):
        checked(wrong, "messages")


@pytest.mark.parametrize("wrong", [("user", "hi"), {"role": "user", "content": "hi"}, "hi", None])
def test_what_is_no_message_is_refused_with_its_place_and_a_way_out(wrong):
    with pytest.raises(UnsupportedContentError, match=r"messages\[1\] is a \w+.*convert_to_messages"):
        checked([HumanMessage("x"), wrong], "messages")


def test_an_instruction_to_remove_is_refused_with_a_way_out():
    with pytest.raises(UnsupportedContentError, match=r"messages\[0\] is a RemoveMessage.*sync"):
        checked([RemoveMessage(id="a")], "messages")


@pytest.mark.parametrize("given", ["hi", HumanMessage("hi"), [HumanMessage("hi")]])
def test_a_turn_can_be_a_string_a_message_or_a_list(given):
    assert current_turn(given) == [HumanMessage("hi")]


@pytest.mark.parametrize(
    "empty",
    [
        "",
        " \n",
        [],
        HumanMessage(""),
        HumanMessage([]),
        [AIMessage("")],
        [HumanMessage("hi"), HumanMessage(" ")],
        [ToolMessage("x", tool_call_id="a")],
    ],
)
def test_a_turn_with_nothing_to_answer_is_refused(empty):
    with pytest.raises(EmptyMessageError):
        current_turn(empty)


@pytest.mark.parametrize("wrong", [AIMessage("x"), SystemMessage("x"), ToolMessage("x", tool_call_id="a")])
def test_a_single_message_that_is_not_human_is_refused(wrong):
    with pytest.raises(UnsupportedContentError, match=f"not a single {type(wrong).__name__}"):
        current_turn(wrong)


def test_a_name_is_sent_in_the_form_that_providers_accept():
    assert as_sent(HumanMessage("x", name="Ada L.")).name == "Ada_L_"


def test_a_heading_stands_on_its_own_line():
    assert as_sent(HumanMessage("x"), heading="[2024]").content == "[2024]\nx"


@pytest.mark.parametrize("name", ["assistant", "Assistant.", "ａｓｓｉｓｔａｎｔ", "– assistant", "assistant:"])
def test_a_name_that_looks_like_another_role_is_told_from_it(name):
    assert speaker(HumanMessage("Hi.", name=name)).startswith("user named ")
