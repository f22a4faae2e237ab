"""The pure parts of the message log: one order and one message for every id, which lanes are asked for, bookmarks."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.history import OpenConversation
from langchain_ctxbudget.history.log import (
    POLLED,
    Heads,
    News,
    append,
    fold,
    in_order,
    read_heads,
    read_last,
    read_new,
    read_since,
)
from langchain_ctxbudget.messages import content_id, fingerprint
from langchain_ctxbudget.stores import LaneRecord, MessageRecord, Place, Scope
from tests.open_conversations import COUNTER

ADAS = Scope("ada", "c1")
HEAD = LaneRecord(born="a", clock=1, count=3)


def at(clock: int, lane: str = "a", number: int = 0) -> Place:
    return Place(clock=clock, lane=lane, number=number)


def record(place: Place, text: str, key: str | None = None, *, archived: bool = False) -> MessageRecord:
    """The record of a message; without a key, of one that got its id from its content."""
    message = HumanMessage(text)
    message.id = key or content_id(fingerprint(message), 1)
    return MessageRecord.of(message, place, named=key is not None).model_copy(update={"archived": archived})


def folded(records: Sequence[MessageRecord]) -> list[tuple[str, str]]:
    return [(str(message.id), message.text) for _, message in fold(in_order(records)).messages]


def heads(**lanes: tuple[int, int]) -> Heads:
    """Lanes by name, each with its clock and count."""
    return Heads("x", {n: LaneRecord(born=n, clock=clock, count=count) for n, (clock, count) in lanes.items()})


# -- order


@given(st.permutations([at(c, lane, n) for c in (1, 2, 10) for lane in ("a", "b") for n in (0, 2, 10)]))
def test_order_is_by_clock_then_lane_then_number_whatever_is_read_first(places: list[Place]) -> None:
    ordered = in_order(record(place, str(place.key), str(place.key)) for place in places)
    assert [r.place for r in ordered] == [at(c, lane, n) for c in (1, 2, 10) for lane in ("a", "b") for n in (0, 2, 10)]


# -- one message for every id


def test_the_same_message_of_two_writers_is_there_once_where_it_was_said_first() -> None:
    first, second = record(at(1), "hello", "x"), record(at(1, "b"), "hello", "x")
    result = fold(in_order([second, first]))
    assert [r for r, _ in result.messages] == [first]
    assert list(result.doubles) == [second]


def test_an_id_for_two_contents_goes_to_the_first_and_neither_is_lost() -> None:
    records = [record(at(n), text, "x") for n, text in enumerate(("one", "two", "three", "two"))]
    assert folded(records) == [("x", "one"), ("x~2", "two"), ("x~3", "three"), ("x~4", "two")]


def test_an_id_that_was_made_for_another_is_left_to_whom_it_was_given() -> None:
    records = [record(at(1), "one", "x"), record(at(2), "two", "x~2"), record(at(3), "three", "x")]
    assert folded(records) == [("x", "one"), ("x~2", "two"), ("x~3", "three")]


def test_a_word_without_id_that_two_writers_say_is_two_messages() -> None:
    said = fingerprint(HumanMessage("yes"))
    records = [record(at(1), "yes"), record(at(1, "b"), "yes")]
    assert folded(records) == [(content_id(said, 1), "yes"), (content_id(said, 2), "yes")]


def test_what_is_archived_is_no_message_and_is_found_by_its_id() -> None:
    result = fold([record(at(1), "one", "x", archived=True), record(at(2), "two", "x")])
    assert [(str(message.id), message.text) for _, message in result.messages] == [("x", "two")]
    assert {key: list(places) for key, places in result.archived.items()} == {"x": [at(1)]}


_RECORDS = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from("abc"), st.sampled_from(["yes", "no"]), st.sampled_from([None, "x"])),
    max_size=9,
).map(lambda rows: [record(at(c, lane, n), text, key) for n, (c, lane, text, key) in enumerate(rows)])


@given(_RECORDS)
def test_no_id_stands_for_two_messages_and_no_record_is_lost(records: list[MessageRecord]) -> None:
    result = fold(in_order(records))
    ids = [message.id for _, message in result.messages]
    assert len(set(ids)) == len(ids)
    assert len(ids) + len(result.doubles) == len(records)


@given(_RECORDS, st.data())
def test_a_conversation_read_in_parts_is_the_one_read_at_once(
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
    assert (mine.digest, mine.costs, mine.total_tokens) == (theirs.digest, theirs.costs, theirs.total_tokens)
    assert (parts.positions, +parts.table.occurrences) == (whole.positions, +whole.table.occurrences)


def test_a_record_that_is_told_of_twice_is_one_record() -> None:
    conversation = OpenConversation(ADAS)
    one = record(at(1), "one", "x")
    conversation.take_in(News([], {one.place.key: one}))
    conversation.take_in(News([one]))
    assert conversation.places_of("x") == [one.place]


# -- how far the writers are


def test_the_lanes_that_were_written_last_are_asked_for() -> None:
    lanes = {f"w{number:03}": (number, 1) for number in range(POLLED + 5)}
    assert heads(**lanes).polled() == [f"w{number:03}" for number in reversed(range(5, POLLED + 5))]


@pytest.mark.parametrize(
    ("now", "goes_on"),
    [
        (heads(a=(1, 1)), True),
        (heads(a=(5, 9), b=(1, 1)), True),
        (heads(a=(1, 0)), False),
        (heads(b=(1, 1)), False),
        (Heads("x", {"a": LaneRecord(born="another", clock=9, count=9)}), False),
    ],
)
def test_a_log_goes_on_where_everything_known_is_still_there(now: Heads, goes_on: bool) -> None:
    assert now.goes_on(heads(a=(1, 1))) is goes_on


def test_records_behind_the_head_are_not_read() -> None:
    store = InMemoryStore()
    drive(append(store, ADAS, "a", HEAD, [record(at(1, "a", n), str(n), str(n)) for n in range(3)]))
    store.put(ADAS.namespace("lanes"), "a", LaneRecord(born="b", clock=1, count=2).to_value())
    now = drive(read_heads(store, ADAS))
    assert [r.place.number for r in drive(read_new(store, ADAS, Heads(), now)).messages] == [0, 1]


# -- bookmarks


def bookmark(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode()


@pytest.mark.parametrize("text", ["", "?", "ä", bookmark([1]), bookmark({"a": 1}), bookmark({"a": ["x", 1]}), "e"])
def test_what_is_no_bookmark_is_an_error_that_says_so(text: str) -> None:
    for flow in (read_last(InMemoryStore(), ADAS, 5, text), read_since(InMemoryStore(), ADAS, text)):
        with pytest.raises(InputError, match="bookmark"):
            drive(flow)
