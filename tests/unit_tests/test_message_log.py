"""Records, scopes and labels; the pure parts of the message log."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import EstimatingCounter, TiktokenCounter, TokenCounter
from langchain_ctxbudget.budget import Fragment, Layer, Reason, Status
from langchain_ctxbudget.errors import InputError, StoreDataError
from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.history import Background, OpenConversation
from langchain_ctxbudget.history.log import (
    Folded,
    Heads,
    News,
    fold,
    in_order,
    puts,
    read_heads,
    read_new,
)
from langchain_ctxbudget.messages import content_id, fingerprint
from langchain_ctxbudget.stores import (
    LaneRecord,
    MessageRecord,
    Place,
    Scope,
    from_stored,
    label,
    to_stored,
)
from tests.conversations import COUNTER

ADAS = Scope("ada", "c1")


def at(clock: int, lane: str = "a", number: int = 0) -> Place:
    return Place(clock=clock, lane=lane, number=number)


def record(
    place: Place, text: str, key: str | None = None, *, archived: bool = False
) -> MessageRecord:
    """The record of a message; without a key, of one that got its id from its content."""
    message = HumanMessage(text)
    message.id = key or content_id(fingerprint(message), 1)
    return MessageRecord.of(message, place, named=key is not None).model_copy(
        update={"archived": archived}
    )


def folded(records: Sequence[MessageRecord]) -> list[tuple[str, str]]:
    return [(str(message.id), message.text) for _, message in fold(in_order(records)).messages]


def test_an_id_for_two_contents_goes_to_the_first_and_neither_is_lost() -> None:
    texts = ("one", "two", "three", "two")

    records = [record(at(clock), text, "x") for clock, text in enumerate(texts)]

    assert folded(records) == [("x", "one"), ("x~2", "two"), ("x~3", "three"), ("x~4", "two")]


@pytest.fixture
def log_with_an_archived_message() -> Folded:
    return fold([record(at(1), "one", "x", archived=True), record(at(2), "two", "x")])


def test_what_is_archived_is_no_message(log_with_an_archived_message: Folded) -> None:
    [(_, message)] = log_with_an_archived_message.messages

    assert message.id == "x"
    assert message.text == "two"


def test_what_is_archived_is_found_by_its_id(log_with_an_archived_message: Folded) -> None:
    assert log_with_an_archived_message.archived == {at(1).key: "x"}


Row = tuple[int, str, str, str | None]
"""Clock, lane, text and key of a record."""


def records_of(rows: list[Row]) -> list[MessageRecord]:
    return [
        record(at(clock, lane, number), text, key)
        for number, (clock, lane, text, key) in enumerate(rows)
    ]


ROWS = st.tuples(
    st.integers(1, 4),
    st.sampled_from("abc"),
    st.sampled_from(["yes", "no"]),
    st.sampled_from([None, "x"]),
)
RECORDS = st.lists(ROWS, max_size=9).map(records_of)


@given(RECORDS)
def test_no_id_stands_for_two_messages_and_no_record_is_lost(records: list[MessageRecord]) -> None:
    log = fold(in_order(records))

    ids = [message.id for _, message in log.messages]
    assert len(set(ids)) == len(ids)
    assert len(ids) + len(log.doubles) == len(records)


@given(RECORDS, st.data())
def test_a_conversation_in_parts_is_the_one_read_at_once(
    records: list[MessageRecord], data: st.DataObject
) -> None:
    whole = OpenConversation(ADAS)
    whole.take_in(News(in_order(records)), whole=True)

    in_parts = OpenConversation(ADAS)
    rest = list(data.draw(st.permutations(records)))
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        in_parts.take_in(News(in_order(rest[:size])))
        rest = rest[size:]

    assert in_parts.doubles == whole.doubles
    assert in_parts.table.positions == whole.table.positions
    seen_in_parts = in_parts.seen_with(COUNTER)
    seen_whole = whole.seen_with(COUNTER)
    assert seen_in_parts.digest == seen_whole.digest
    assert [*seen_in_parts.costs] == [*seen_whole.costs]
    assert seen_in_parts.total_tokens == seen_whole.total_tokens


def test_records_behind_the_head_are_not_read() -> None:
    store = InMemoryStore()
    three = {f"a/{n}": record(at(1, "a", n), str(n), str(n)) for n in range(3)}
    store.batch(puts(store, ADAS, three))
    store.put(ADAS.namespace("lanes"), "a", LaneRecord(born="b", clock=1, count=2).to_value())

    heads = drive(read_heads(store, ADAS))
    news = drive(read_new(store, ADAS, Heads(), heads))

    assert [record.place.number for record in news.messages] == [0, 1]


# What is embedded


PINNED = [
    HumanMessage("no", id="m", additional_kwargs={"ctxbudget": "drop"}),
    HumanMessage("no", id="m", additional_kwargs={"ctxbudget": "summarize"}),
]
TWO_BLOCKS = AIMessage([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], id="m")
QUOTABLE = HumanMessage("the lantern", id="m", name="Ada")
REFUSED_BY_STORES = HumanMessage("nul \0", id="m")


def indexed_value(message: BaseMessage) -> dict[str, Any]:
    return MessageRecord.of(message, at(1)).to_indexed_value()


@pytest.mark.parametrize(
    ("message", "text"),
    [(QUOTABLE, "the lantern"), (TWO_BLOCKS, "one\ntwo")],
    ids=["text", "blocks"],
)
def test_what_may_be_quoted_is_embedded(message: BaseMessage, text: str) -> None:
    assert indexed_value(message)["said"] == text


@pytest.mark.parametrize(
    "message", [REFUSED_BY_STORES, *PINNED], ids=["not plain", "drop", "summarize"]
)
def test_what_may_not_be_quoted_is_not_embedded(message: BaseMessage) -> None:
    assert indexed_value(message).get("said") is None


@pytest.mark.parametrize(
    "message",
    [QUOTABLE, TWO_BLOCKS, REFUSED_BY_STORES, *PINNED],
    ids=["text", "blocks", "not plain", "drop", "summarize"],
)
def test_a_record_is_read_without_what_is_embedded(message: BaseMessage) -> None:
    record = MessageRecord.of(message, at(1))
    value = record.to_indexed_value()

    assert MessageRecord.read(value, "x") == record
    value.pop("said", None)
    assert value == record.to_value()


# Labels and values of a store


ANY_TEXT = st.text(st.characters(exclude_categories=[]), min_size=1)  # lone surrogates included


@given(ANY_TEXT, ANY_TEXT)
def test_labels_are_different_and_plain(first: str, second: str) -> None:
    assert (label(first) == label(second)) == (first == second)
    assert label(first).isascii()
    assert set(label(first)).isdisjoint(".%_")


@given(ANY_TEXT, ANY_TEXT)
def test_no_label_is_the_beginning_of_another(first: str, second: str) -> None:
    assert not label(first + second).startswith(label(first))
    assert first == second or not label(second).startswith(label(first))


@given(ANY_TEXT, ANY_TEXT)
def test_users_have_namespaces_of_their_own(first: str, second: str) -> None:
    mine = Scope(first, "c").namespace("x")
    theirs = Scope(second, "c").namespace("x")

    assert (mine == theirs) == (first == second)


@given(st.recursive(ANY_TEXT | st.none() | st.booleans() | st.integers(), st.lists))
def test_what_is_stored_reads_back_and_postgres_accepts_it(inner: Any) -> None:
    value = {"text": inner}

    plain = to_stored(value)

    assert from_stored(plain) == value
    text = json.dumps(plain, ensure_ascii=False)
    assert "\\u0000" not in text.replace("\\\\", "")
    assert text.encode(), "it has no lone surrogates"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"clock": "soon"}, "lane 'w' is not a LaneRecord"),
        ({"clock": 1, "count": 1, "colour": "red"}, "colour"),
    ],
)
def test_a_record_of_something_else_is_refused(value: dict[str, Any], message: str) -> None:
    with pytest.raises(StoreDataError, match=message):
        LaneRecord.read(value, "lane 'w'")


@pytest.mark.parametrize(
    "value",
    [{}, {"type": "dream", "data": {}}, {"type": "human"}, {"type": "tool", "data": {}}],
    ids=["empty", "unknown type", "no data", "no fields"],
)
def test_what_is_no_message_is_refused_with_its_place(value: dict[str, Any]) -> None:
    record = MessageRecord(place=at(1, "w"), text=json.dumps(value))
    with pytest.raises(StoreDataError, match="message 'w/0' is no message"):
        record.to_message()


# The background in the state


QUESTION = HumanMessage("What did we decide?", id="h1")
LINE = Fragment(
    layer=Layer.RETRIEVAL,
    id="m3",
    text="- user: The roof is blue.\n",
    tokens=9,
    reason=Reason.RELEVANT,
)
BACKGROUND = Background.of(QUESTION, "before", (LINE,))

FRAGMENTS = st.builds(
    Fragment,
    layer=st.sampled_from([Layer.TOPICS, Layer.RETRIEVAL, "open files", "日程"]),
    id=st.text(max_size=8),
    text=st.text(st.characters(), max_size=40),
    tokens=st.integers(0, 10**6),
    reason=st.sampled_from(list(Reason)),
    status=st.sampled_from(list(Status)),
    section=st.sampled_from(["", "## Topics\n"]),
    heading=st.text(max_size=8),
    value=st.floats(allow_nan=False, allow_infinity=False),
    covers=st.tuples(st.integers(0, 9), st.integers(0, 9)),
)


def as_saved(background: Background) -> Any:
    return json.loads(json.dumps(background.to_dict()))


@given(parts=st.lists(FRAGMENTS, max_size=4).map(tuple))
def test_a_background_comes_back_from_json_as_it_was(parts: tuple[Fragment, ...]) -> None:
    background = Background.of(QUESTION, "before", parts)
    assert Background.from_dict(as_saved(background)) == background


def test_a_background_is_for_its_message() -> None:
    same = HumanMessage("What did we decide?", id="h1")

    assert BACKGROUND.is_for(same, "before")
    assert not BACKGROUND.is_for(same, "before that")


@pytest.mark.parametrize(
    "other",
    [
        HumanMessage("What did we decide?", id="h2"),
        HumanMessage("What did we decide? And when?", id="h1"),
        HumanMessage([{"type": "text", "text": "What did we decide?"}], id="h1"),
    ],
    ids=["another id", "another text", "in blocks"],
)
def test_a_background_is_for_no_other_message(other: HumanMessage) -> None:
    assert not BACKGROUND.is_for(other, "before")


@pytest.mark.parametrize(
    "counter", [TiktokenCounter(), EstimatingCounter()], ids=["exact", "estimated"]
)
def test_a_counter_counts_the_lines_itself_whatever_the_state_says(counter: TokenCounter) -> None:
    saved = as_saved(BACKGROUND)
    saved["fragments"][0]["tokens"] = -1_000

    [line] = Background.from_dict(saved).counted(counter)

    assert line == replace(LINE, tokens=counter.count_text(LINE.text))


@pytest.mark.parametrize(
    "data",
    [None, {}, {**as_saved(BACKGROUND), "fragments": [{"text": "no layer"}]}],
    ids=["nothing", "empty", "a line without a layer"],
)
def test_what_is_no_background_is_refused(data: Any) -> None:
    with pytest.raises(InputError, match="The background in the state cannot be read: "):
        Background.from_dict(data)
