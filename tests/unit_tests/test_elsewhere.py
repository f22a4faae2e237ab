"""The pure parts of what is read of other conversations, and of what is written so that it is found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_ctxbudget.history.other_conversations import last_keys, shared
from langchain_ctxbudget.stores import LaneRecord, MessageRecord, Place
from langchain_ctxbudget.stores.records import EMBEDDED_CHARACTERS

PLACE = Place(clock=1, lane="w", number=0)


def lane(count: int, clock: int) -> LaneRecord:
    return LaneRecord(born=str(clock), clock=clock, count=count)


@given(sizes=st.lists(st.integers(0, 50), max_size=12), limit=st.integers(0, 200))
def test_shares_use_the_limit_up_and_nobody_has_more_than_somebody_who_could_have_more(
    sizes: list[int], limit: int
) -> None:
    shares = shared(sizes, limit)
    assert sum(shares) == min(limit, sum(sizes))
    assert all(share <= size for share, size in zip(shares, sizes, strict=True))
    wanting = [share for share, size in zip(shares, sizes, strict=True) if share < size]
    assert max(shares, default=0) <= min(wanting, default=50) + 1


def test_the_last_keys_are_those_of_the_lane_that_was_written_last() -> None:
    lanes = {"old": lane(5, 3), "new": lane(2, 9)}
    assert last_keys(lanes, 4) == ["new/1", "new/0", "old/4", "old/3"]
    assert last_keys(lanes, 1) == ["new/1"]
    assert last_keys(lanes, 99) == ["new/1", "new/0", *(f"old/{number}" for number in (4, 3, 2, 1, 0))]
    assert last_keys(lanes, 0) == []


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (HumanMessage("the lantern", id="m", name="Ada"), "the lantern"),
        (AIMessage([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], id="m"), "one\ntwo"),
        (HumanMessage("x" * 9_000, id="m"), "x" * EMBEDDED_CHARACTERS),
        (HumanMessage("half \ud83d", id="m"), "half ?"),
        (HumanMessage("nul \0", id="m"), None),
        (HumanMessage(" ", id="m"), None),
        (HumanMessage("no", id="m", additional_kwargs={"ctxbudget": "drop"}), None),
        (HumanMessage("no", id="m", additional_kwargs={"ctxbudget": "summarize"}), None),
        (HumanMessage("yes", id="m", additional_kwargs={"ctxbudget": "keep"}), "yes"),
    ],
    ids=["text", "blocks", "long", "surrogate", "nul", "blank", "drop", "summarize", "keep"],
)
def test_what_is_embedded_is_what_may_be_quoted_and_is_read_without_it(message: BaseMessage, said: str | None) -> None:
    record = MessageRecord.of(message, PLACE)
    value = record.to_indexed_value()
    assert value.get("said") == said
    assert {key: part for key, part in value.items() if key != "said"} == record.to_value()
    assert MessageRecord.read(value, "x") == record


def test_an_archived_message_is_not_embedded() -> None:
    record = MessageRecord.of(HumanMessage("the lantern", id="m"), PLACE).model_copy(update={"archived": True})
    assert record.to_indexed_value() == record.to_value()
