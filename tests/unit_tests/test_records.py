"""Records, labels and scopes."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.store.base import PutOp
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget.errors import MissingScopeError, StoreDataError
from langchain_ctxbudget.stores.records import (
    ROOT,
    CutRecord,
    LaneRecord,
    MessageRecord,
    Place,
    Scope,
    label,
    storable,
    stored,
)

ANY_TEXT = st.text(st.characters(exclude_categories=[]), min_size=1)  # lone surrogates included
PLACE = Place(clock=1, lane="w", number=0)


@settings(deadline=None)
@given(ANY_TEXT, ANY_TEXT)
def test_different_texts_have_different_labels(first, second):
    assert (label(first) == label(second)) == (first == second)


@pytest.mark.parametrize(
    ("one", "other"), [(".", "%2E"), ("a.b", "a%2Eb"), ("%", "%25"), (" ", "%20"), ("é", "e\u0301")]
)
def test_a_text_that_looks_like_a_label_has_another_label(one, other):
    assert label(one) != label(other)


@settings(deadline=None)
@given(ANY_TEXT)
def test_a_label_is_not_empty_and_has_no_dots(text):
    assert label(text)
    assert "." not in label(text)


@settings(deadline=None)
@given(ANY_TEXT)
def test_a_label_is_plain_ascii(text):
    assert label(text).isascii()


@pytest.mark.parametrize("text", ["ada@example.com", ".", "..", "langgraph", "🙂", "\ud800", "a/b", " ", "\n", "\0"])
def test_any_text_is_a_label_that_langgraph_accepts(text):
    store = InMemoryStore()
    namespace = Scope(text, text).namespace("messages")
    store.put(namespace, "k", {"v": 1})
    assert store.list_namespaces() == [namespace]


def test_an_ordinary_id_can_be_read_in_its_label():
    assert label("user-42@b") == "user-42@b~"


@settings(deadline=None)
@given(ANY_TEXT, ANY_TEXT)
def test_no_label_is_the_beginning_of_another(first, second):
    assert first == second or not label(first + second).startswith(label(first))
    assert first == second or not label(second).startswith(label(first))


def test_long_texts_have_short_labels_of_their_own():
    one, other = "x" * 5_000, "x" * 5_001
    assert len(label(one)) < 300
    assert label(one) != label(other)


@settings(deadline=None)
@given(ANY_TEXT)
def test_a_label_has_no_wildcards_of_sql(text):
    assert not set(label(text)) & set("%_")


@settings(deadline=None)
@given(st.recursive(ANY_TEXT | st.none() | st.booleans() | st.integers(), st.lists))
def test_what_is_stored_reads_back_and_has_no_text_that_postgres_refuses(inner):
    value = {"text": inner}
    plain = storable(value)
    text = json.dumps(plain, ensure_ascii=False)
    assert stored(plain) == value
    assert "\\u0000" not in text.replace("\\\\", "")
    assert text.encode()


def test_a_namespace_is_under_our_root_and_then_the_users():
    assert Scope("a.b", "c1").namespace("cuts") == (ROOT, "a=2Eb~", "cuts", "c1~")


@settings(deadline=None)
@given(st.tuples(ANY_TEXT, ANY_TEXT), st.tuples(ANY_TEXT, ANY_TEXT))
def test_different_scopes_have_different_namespaces(first, second):
    assert (Scope(*first).namespace("x") == Scope(*second).namespace("x")) == (first == second)


@pytest.mark.parametrize("missing", ["", None, 5, b"ada", ["ada"]])
@pytest.mark.parametrize("name", ["user_id", "conversation_id"])
def test_a_scope_without_an_id_is_refused(name, missing):
    with pytest.raises(MissingScopeError, match=f"{name} must be a non-empty string, not "):
        Scope(**{"user_id": "ada", "conversation_id": "c1", name: missing})


MESSAGES = [
    HumanMessage("hi", id="m1", name="ada", additional_kwargs={"created_at": "2024-05-01"}),
    HumanMessage([{"type": "image_url", "image_url": {"url": "https://x.invalid"}}], id="m2"),
    AIMessage("", id="m3", tool_calls=[{"name": "f", "args": {"a": [1, None]}, "id": "c"}]),
    AIMessage("", id="m4", invalid_tool_calls=[{"name": "f", "args": "{", "id": "c", "error": "e"}]),
    ToolMessage("x", id="m5", tool_call_id="c", status="error", artifact={"rows": 2}),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: m.id)
def test_a_message_comes_back_from_its_record_as_it_was_given(message):
    value = json.loads(json.dumps(MessageRecord.of(message, PLACE).to_value()))
    assert MessageRecord.read(value, "x").to_message() == message


def test_bytes_in_a_message_become_base64():
    record = MessageRecord.of(HumanMessage("x", id="m", additional_kwargs={"raw": b"\xff\x00"}), PLACE)
    assert record.to_message().additional_kwargs == {"raw": "_wA="}


def test_what_is_not_json_in_a_message_is_kept_as_its_repr():
    record = MessageRecord.of(ToolMessage("x", id="m", tool_call_id="c", artifact=slice(1, 2)), PLACE)
    assert json.loads(record.text)["data"]["artifact"] == "slice(1, 2, None)"


def test_a_record_of_something_else_is_refused_with_its_place():
    with pytest.raises(StoreDataError, match="lane 'w' is not a LaneRecord"):
        LaneRecord.read({"clock": "soon"}, "lane 'w'")


def test_a_record_with_unknown_fields_is_refused():
    with pytest.raises(StoreDataError, match="colour"):
        LaneRecord.read({"clock": 1, "count": 1, "colour": "red"}, "x")


@pytest.mark.parametrize(
    "message", [{}, {"type": "dream", "data": {}}, {"type": "human"}, {"type": "tool", "data": {}}]
)
def test_a_record_without_a_message_is_refused_with_its_id(message):
    with pytest.raises(StoreDataError, match="message 'w/0' is no message"):
        MessageRecord(place=PLACE, text=json.dumps(message)).to_message()


def test_places_are_in_the_order_of_clock_lane_and_number():
    places = [Place(clock=c, lane=w, number=n) for c in (1, 2) for w in ("a", "b") for n in (0, 10)]
    shuffled = places[5:] + places[:5]
    assert sorted(shuffled, key=lambda place: place.order) == places


def test_a_cut_comes_back_from_a_store():
    cut = CutRecord(
        position=2,
        cut_key="100 tokens",
        digest="d",
        summary=({"position": 0, "heading": "[2024]\n", "text": "- a\n"},),
        arc=(),
    )
    store = InMemoryStore()
    store.batch([PutOp(("a",), "cut", cut.model_dump(mode="json"))])
    assert CutRecord.read(store.get(("a",), "cut").value, "x") == cut
