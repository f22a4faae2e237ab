"""The context block of a turn as plain data, and the message that it is for."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage

from langchain_ctxbudget import EstimatingCounter, TiktokenCounter
from langchain_ctxbudget.budget import Fragment, Layer, Reason, Status
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.history import TurnBlock

QUESTION = HumanMessage("What did we decide?", id="h1")
LINE = Fragment(layer=Layer.RETRIEVAL, id="m3", text="- user: The roof is blue.\n", tokens=9, reason=Reason.RELEVANT)
BLOCK = TurnBlock.of([QUESTION], 0, "before", (LINE,), {Layer.RETRIEVAL: {Reason.NO_ROOM: 3}})

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


def as_saved(block: TurnBlock) -> Any:
    return json.loads(json.dumps(block.to_dict()))


@given(
    parts=st.lists(fragments, max_size=4).map(tuple), counts=st.dictionaries(st.sampled_from(Reason), st.integers(0))
)
def test_a_block_comes_back_from_json_as_it_was(parts: tuple[Fragment, ...], counts: dict[Reason, int]) -> None:
    block = TurnBlock.of([QUESTION], 0, "before", parts, {Layer.TOPICS: counts})
    assert TurnBlock.from_dict(as_saved(block)) == block


def test_a_block_keeps_no_scores_and_half_of_a_surrogate_pair() -> None:
    scored = replace(LINE, text="- a \ud83d b\n", scores={"lexical": 1.25, "dense": -0.5})
    block = TurnBlock.of([QUESTION], 0, "before", (scored,), {})
    assert "scores" not in json.dumps(as_saved(block))
    assert TurnBlock.from_dict(as_saved(block)) == block


def test_a_block_is_for_its_message_and_for_no_other() -> None:
    same = HumanMessage("What did we decide?", id="h1")
    assert BLOCK.is_for(same, "before")
    assert not BLOCK.is_for(same, "before that")
    for other in (
        HumanMessage("What did we decide?", id="h2"),
        HumanMessage("What did we decide? And when?", id="h1"),
        HumanMessage([{"type": "text", "text": "What did we decide?"}], id="h1"),
    ):
        assert not BLOCK.is_for(other, "before")


def test_every_counter_counts_the_lines_itself_whatever_the_state_says() -> None:
    saved = as_saved(BLOCK)
    saved["fragments"][0]["tokens"] = -1_000
    for counter in (TiktokenCounter(), EstimatingCounter()):
        [line] = TurnBlock.from_dict(saved).counted(counter)
        assert line == replace(LINE, tokens=counter.count_text(LINE.text))


def test_what_is_no_block_is_refused() -> None:
    for data in (
        *(None, [], {}, {"message_id": "h1"}),
        {**as_saved(BLOCK), "fragments": {"0": 1}},
        {**as_saved(BLOCK), "fragments": [{"text": "no layer"}]},
        {**as_saved(BLOCK), "fragments": [{**as_saved(BLOCK)["fragments"][0], "reason": "because"}]},
        {**as_saved(BLOCK), "left_out": {"L5": {"no_room": "many"}}},
    ):
        with pytest.raises(InputError, match="The context block in the state cannot be read: "):
            TurnBlock.from_dict(data)
