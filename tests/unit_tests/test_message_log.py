"""Records, scopes and labels; the pure parts of the message log."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import EstimatingCounter, TiktokenCounter
from langchain_ctxbudget.budget import Fragment, Layer, Reason, Status
from langchain_ctxbudget.errors import InputError, StoreDataError
from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.history import Background, OpenConversation
from langchain_ctxbudget.history.log import Heads, News, fold, in_order, puts, read_heads, read_new
from langchain_ctxbudget.messages import content_id, fingerprint
from langchain_ctxbudget.stores import (
    LaneRecord,
    MessageRecord,
    Place,
    Scope,
    label,
    storable,
    stored,
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
    records = [record(at(n), text, "x") for n, text in enumerate(("one", "two", "three", "two"))]
    assert folded(records) == [("x", "one"), ("x~2", "two"), ("x~3", "three"), ("x~4", "two")]


def test_what_is_archived_is_no_message_and_is_found_by_its_id() -> None:
    result = fold([record(at(1), "one", "x", archived=True), record(at(2), "two", "x")])
    assert [(str(message.id), message.text) for _, message in result.messages] == [("x", "two")]
    assert result.archived == {at(1).key: "x"}


_RECORDS = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.sampled_from("abc"),
        st.sampled_from(["yes", "no"]),
        st.sampled_from([None, "x"]),
    ),
    max_size=9,
).map(
    lambda rows: [record(at(c, lane, n), text, key) for n, (c, lane, text, key) in enumerate(rows)]
)


@given(_RECORDS)
def test_no_id_stands_for_two_messages_and_no_record_is_lost(records: list[MessageRecord]) -> None:
    result = fold(in_order(records))
    ids = [message.id for _, message in result.messages]
    assert len(set(ids)) == len(ids)
    assert len(ids) + len(result.doubles) == len(records)


@given(_RECORDS, st.data())
def test_a_conversation_in_parts_is_the_one_read_at_once(
    records: list[MessageRecord], data: st.DataObject
) -> None:
    whole = OpenConversation(ADAS)
    whole.take_in(News(in_order(records)), whole=True)
    parts = OpenConversation(ADAS)
    left = list(data.draw(st.permutations(records)))
    while left:
        size = data.draw(st.integers(1, len(left)))
        parts.take_in(News(in_order(left[:size])))
        left = left[size:]
    assert parts.doubles == whole.doubles
    mine, theirs = (it.seen_with(COUNTER) for it in (parts, whole))
    assert (mine.digest, [*mine.costs], mine.total_tokens) == (
        theirs.digest,
        [*theirs.costs],
        theirs.total_tokens,
    )
    assert parts.table.positions == whole.table.positions


def test_records_behind_the_head_are_not_read() -> None:
    store = InMemoryStore()
    store.batch(
        puts(store, ADAS, {f"a/{n}": record(at(1, "a", n), str(n), str(n)) for n in range(3)})
    )
    store.put(ADAS.namespace("lanes"), "a", LaneRecord(born="b", clock=1, count=2).to_value())
    now = drive(read_heads(store, ADAS))
    assert [r.place.number for r in drive(read_new(store, ADAS, Heads(), now)).messages] == [0, 1]


def test_what_is_embedded_is_what_may_be_quoted_and_is_read_without_it() -> None:
    pinned = [
        HumanMessage("no", id="m", additional_kwargs={"ctxbudget": pin})
        for pin in ("drop", "summarize")
    ]
    for message, said in (
        (HumanMessage("the lantern", id="m", name="Ada"), "the lantern"),
        (
            AIMessage([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], id="m"),
            "one\ntwo",
        ),
        (HumanMessage("nul \0", id="m"), None),
        *((message, None) for message in pinned),
    ):
        record = MessageRecord.of(message, at(1))
        value = record.to_indexed_value()
        assert value.get("said") == said
        assert {key: part for key, part in value.items() if key != "said"} == record.to_value()
        assert MessageRecord.read(value, "x") == record


ANY_TEXT = st.text(st.characters(exclude_categories=[]), min_size=1)  # lone surrogates included
PLACE = Place(clock=1, lane="w", number=0)


@given(ANY_TEXT, ANY_TEXT)
def test_labels_are_different_and_plain_and_none_is_the_beginning_of_another(
    first: str, second: str
) -> None:
    assert (label(first) == label(second)) == (first == second)
    assert label(first).isascii()
    assert not set(label(first)) & set(".%_")
    assert not label(first + second).startswith(label(first))
    assert first == second or not label(second).startswith(label(first))
    assert (Scope(first, "c").namespace("x") == Scope(second, "c").namespace("x")) == (
        first == second
    )


@given(st.recursive(ANY_TEXT | st.none() | st.booleans() | st.integers(), st.lists))
def test_what_is_stored_reads_back_and_has_no_text_that_postgres_refuses(inner: Any) -> None:
    value = {"text": inner}
    plain = storable(value)
    text = json.dumps(plain, ensure_ascii=False)
    assert stored(plain) == value
    assert "\\u0000" not in text.replace("\\\\", "")
    assert text.encode()


def test_a_record_of_something_else_is_refused_with_its_place() -> None:
    with pytest.raises(StoreDataError, match="lane 'w' is not a LaneRecord"):
        LaneRecord.read({"clock": "soon"}, "lane 'w'")
    with pytest.raises(StoreDataError, match="colour"):
        LaneRecord.read({"clock": 1, "count": 1, "colour": "red"}, "x")
    for message in (
        {},
        {"type": "dream", "data": {}},
        {"type": "human"},
        {"type": "tool", "data": {}},
    ):
        with pytest.raises(StoreDataError, match="message 'w/0' is no message"):
            MessageRecord(place=PLACE, text=json.dumps(message)).to_message()


QUESTION = HumanMessage("What did we decide?", id="h1")
LINE = Fragment(
    layer=Layer.RETRIEVAL,
    id="m3",
    text="- user: The roof is blue.\n",
    tokens=9,
    reason=Reason.RELEVANT,
)
BACKGROUND = Background.of(QUESTION, "before", (LINE,))

fragments = st.builds(
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


@given(parts=st.lists(fragments, max_size=4).map(tuple))
def test_a_block_comes_back_from_json_as_it_was(parts: tuple[Fragment, ...]) -> None:
    background = Background.of(QUESTION, "before", parts)
    assert Background.from_dict(as_saved(background)) == background


def test_a_block_is_for_its_message_and_for_no_other() -> None:
    same = HumanMessage("What did we decide?", id="h1")
    assert BACKGROUND.is_for(same, "before")
    assert not BACKGROUND.is_for(same, "before that")
    for other in (
        HumanMessage("What did we decide?", id="h2"),
        HumanMessage("What did we decide? And when?", id="h1"),
        HumanMessage([{"type": "text", "text": "What did we decide?"}], id="h1"),
    ):
        assert not BACKGROUND.is_for(other, "before")


def test_every_counter_counts_the_lines_itself_whatever_the_state_says() -> None:
    saved = as_saved(BACKGROUND)
    saved["fragments"][0]["tokens"] = -1_000
    for counter in (TiktokenCounter(), EstimatingCounter()):
        [line] = Background.from_dict(saved).counted(counter)
        assert line == replace(LINE, tokens=counter.count_text(LINE.text))


def test_what_is_no_block_is_refused() -> None:
    saved = as_saved(BACKGROUND)
    for data in (None, {}, {**saved, "fragments": [{"text": "no layer"}]}):
        with pytest.raises(InputError, match="The background in the state cannot be read: "):
            Background.from_dict(data)
