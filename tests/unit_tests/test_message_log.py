"""The pure parts of the message log: one order and one message for every id, which lanes are asked for, bookmarks."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.history import OpenConversation
from langchain_ctxbudget.history.log import Heads, News, append, fold, in_order, read_heads, read_new
from langchain_ctxbudget.messages import content_id, fingerprint
from langchain_ctxbudget.stores import LaneRecord, MessageRecord, Place, Scope
from tests.conversations import COUNTER

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


def test_an_id_for_two_contents_goes_to_the_first_and_neither_is_lost() -> None:
    records = [record(at(n), text, "x") for n, text in enumerate(("one", "two", "three", "two"))]
    assert folded(records) == [("x", "one"), ("x~2", "two"), ("x~3", "three"), ("x~4", "two")]


def test_what_is_archived_is_no_message_and_is_found_by_its_id() -> None:
    result = fold([record(at(1), "one", "x", archived=True), record(at(2), "two", "x")])
    assert [(str(message.id), message.text) for _, message in result.messages] == [("x", "two")]
    assert {key: list(places) for key, places in result.archived.items()} == {"x": [at(1)]}


_RECORDS = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from("abc"), st.sampled_from(["yes", "no"]), st.sampled_from([None, "x"])),
    max_size=9,
).map(lambda rows: [record(at(c, lane, n), text, key) for n, (c, lane, text, key) in enumerate(rows)])


@settings(deadline=None)
@given(_RECORDS)
def test_no_id_stands_for_two_messages_and_no_record_is_lost(records: list[MessageRecord]) -> None:
    result = fold(in_order(records))
    ids = [message.id for _, message in result.messages]
    assert len(set(ids)) == len(ids)
    assert len(ids) + len(result.doubles) == len(records)


@settings(deadline=None)
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
    assert (mine.digest, [*mine.costs], mine.total_tokens) == (theirs.digest, [*theirs.costs], theirs.total_tokens)
    assert parts.positions == whole.positions


def test_records_behind_the_head_are_not_read() -> None:
    store = InMemoryStore()
    drive(append(store, ADAS, "a", HEAD, [record(at(1, "a", n), str(n), str(n)) for n in range(3)]))
    store.put(ADAS.namespace("lanes"), "a", LaneRecord(born="b", clock=1, count=2).to_value())
    now = drive(read_heads(store, ADAS))
    assert [r.place.number for r in drive(read_new(store, ADAS, Heads(), now)).messages] == [0, 1]


def test_what_is_embedded_is_what_may_be_quoted_and_is_read_without_it() -> None:
    pinned = [HumanMessage("no", id="m", additional_kwargs={"ctxbudget": pin}) for pin in ("drop", "summarize")]
    for message, said in (
        (HumanMessage("the lantern", id="m", name="Ada"), "the lantern"),
        (AIMessage([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], id="m"), "one\ntwo"),
        (HumanMessage("nul \0", id="m"), None),
        *((message, None) for message in pinned),
    ):
        record = MessageRecord.of(message, at(1))
        value = record.to_indexed_value()
        assert value.get("said") == said
        assert {key: part for key, part in value.items() if key != "said"} == record.to_value()
        assert MessageRecord.read(value, "x") == record
