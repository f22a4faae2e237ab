"""Records, labels and scopes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_ctxbudget.errors import MissingScopeError, StoreDataError
from langchain_ctxbudget.stores import ROOT, LaneRecord, MessageRecord, Place, Scope, label, storable, stored

ANY_TEXT = st.text(st.characters(exclude_categories=[]), min_size=1)  # lone surrogates included
PLACE = Place(clock=1, lane="w", number=0)


@given(ANY_TEXT, ANY_TEXT)
def test_labels_are_different_and_plain_and_none_is_the_beginning_of_another(first: str, second: str) -> None:
    assert (label(first) == label(second)) == (first == second)
    assert label(first).isascii()
    assert not set(label(first)) & set(".%_")
    assert not label(first + second).startswith(label(first))
    assert first == second or not label(second).startswith(label(first))
    assert (Scope(first, "c").namespace("x") == Scope(second, "c").namespace("x")) == (first == second)


def test_labels_of_texts_that_look_alike() -> None:
    for one, other in ((".", "%2E"), ("a.b", "a%2Eb"), ("%", "%25"), ("é", "e\u0301"), ("x" * 5_000, "x" * 5_001)):
        assert label(one) != label(other)
        assert len(label(one)) < 300
    assert Scope("a.b", "c1").namespace("cuts") == (ROOT, "a=2Eb~", "cuts", "c1~")


@given(st.recursive(ANY_TEXT | st.none() | st.booleans() | st.integers(), st.lists))
def test_what_is_stored_reads_back_and_has_no_text_that_postgres_refuses(inner: Any) -> None:
    value = {"text": inner}
    plain = storable(value)
    text = json.dumps(plain, ensure_ascii=False)
    assert stored(plain) == value
    assert "\\u0000" not in text.replace("\\\\", "")
    assert text.encode()


def test_a_scope_without_an_id_is_refused() -> None:
    wrong: list[Any] = ["", None, 5, b"ada", ["ada"]]
    for missing in wrong:
        with pytest.raises(MissingScopeError, match="user_id must be a non-empty string, not "):
            Scope(missing, "c1")
        with pytest.raises(MissingScopeError, match="conversation_id must be a non-empty string, not "):
            Scope("ada", missing)


def test_a_message_comes_back_from_its_record_as_it_was_given() -> None:
    for message in (
        HumanMessage("hi", id="m1", name="ada", additional_kwargs={"created_at": "2024-05-01"}),
        HumanMessage([{"type": "image_url", "image_url": {"url": "https://x.invalid"}}], id="m2"),
        AIMessage("", id="m3", tool_calls=[{"name": "f", "args": {"a": [1, None]}, "id": "c"}]),
        AIMessage("", id="m4", invalid_tool_calls=[{"name": "f", "args": "{", "id": "c", "error": "e"}]),
        ToolMessage("x", id="m5", tool_call_id="c", status="error", artifact={"rows": 2}),
    ):
        value = json.loads(json.dumps(MessageRecord.of(message, PLACE).to_value()))
        assert MessageRecord.read(value, "x").to_message() == message


def test_a_record_of_something_else_is_refused_with_its_place() -> None:
    with pytest.raises(StoreDataError, match="lane 'w' is not a LaneRecord"):
        LaneRecord.read({"clock": "soon"}, "lane 'w'")
    with pytest.raises(StoreDataError, match="colour"):
        LaneRecord.read({"clock": 1, "count": 1, "colour": "red"}, "x")
    for message in ({}, {"type": "dream", "data": {}}, {"type": "human"}, {"type": "tool", "data": {}}):
        with pytest.raises(StoreDataError, match="message 'w/0' is no message"):
            MessageRecord(place=PLACE, text=json.dumps(message)).to_message()
