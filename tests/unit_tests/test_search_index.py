"""What retrieval knows of every message, whether it was told at once or bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage

from langchain_ctxbudget.core.tokens import EstimatingCounter, TiktokenCounter
from langchain_ctxbudget.history import editing, search_index
from langchain_ctxbudget.history.search_index import SESSION_GAP_SECONDS, SearchIndex
from langchain_ctxbudget.stores.records import Scope
from tests.store_contract import embed

WORDS = ("bike", "kettle", "garden", "I", "blue", "hello")
TIMES = (None, "2026-01-01", "2026-01-01T08:00:00Z", "2026-01-01T09:30:00+01:00", "2026-01-02T10:00:00")
QUERY = ["bike", "kettl"]

texts = st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join)
messages = st.lists(
    st.builds(
        lambda make, text, name, time, keep: make(
            text or "well", name=name, additional_kwargs={"created_at": time, "ctxbudget": keep}
        ),
        st.sampled_from([HumanMessage, AIMessage]),
        texts,
        st.sampled_from([None, "Ann", "Bob"]),
        st.sampled_from(TIMES),
        st.sampled_from(["keep", "drop", "summarize"]),
    ),
    max_size=40,
)
counts = st.lists(st.integers(0, 40), max_size=4)


def conversation(given, counter=None):
    return editing.detached(Scope("ada", "c1"), counter or TiktokenCounter(), given)


def said(*given, **fields):
    return [HumanMessage(text, **fields) for text in given]


def at(*times):
    return [HumanMessage("well", additional_kwargs={"created_at": time}) for time in times]


def read(entries, upto=None, *, vectors=True, index=None):
    """An index that has read the first entries, with their vectors."""
    index = SearchIndex() if index is None else index
    entries = entries[:upto]
    index.read(entries)
    while vectors and (missing := index.texts_to_embed(entries)):
        index.vectors.extend(embed(missing))
    return index


def known(index):
    """Everything that an index says."""
    about = index.texts()
    return {
        **{name: getattr(about, name).tolist() for name in about.__dataclass_fields__},
        "quotable": index.quotable.tolist(),
        "words": index.lexical.scores(QUERY).tolist(),
        "sessions": index.lexical.group_scores(QUERY, index.subjects()).tolist(),
        "speakers": index.speakers,
        "said": {text: count for text, count in index.said.items() if count},
        "vectors": index.vectors.units.tolist(),
    }


def sessions(given):
    return read(conversation(given).entries, vectors=False).texts().session.tolist()


@settings(deadline=None, max_examples=60)
@given(messages, counts)
def test_messages_that_are_read_bit_by_bit_are_known_as_those_that_are_read_at_once(given, stops):
    entries = conversation(given).entries
    index = SearchIndex()
    for stop in sorted(stops):
        known(read(entries, stop, index=index))
    assert known(read(entries, index=index)) == known(read(entries))


@settings(deadline=None, max_examples=60)
@given(messages, st.integers(0, 40), messages)
def test_a_truncated_index_goes_on_as_one_that_never_knew_the_others(given, length, more):
    index = read(conversation(given).entries)
    known(index)
    left = conversation([*given[:length], *more]).entries
    assert known(read(left, index=index.truncated(left[: min(length, len(given))]))) == known(read(left))


@settings(deadline=None, max_examples=60)
@given(messages, messages)
def test_a_copy_grows_by_itself(given, more):
    index = read(conversation(given).entries)
    before = known(index)
    twin = index.copy()
    longer = conversation([*given, *more]).entries
    assert known(read(longer, index=twin)) == known(read(longer))
    assert known(index) == before


def test_an_index_that_is_not_longer_than_what_is_left_stays():
    entries = conversation(said("one", "two", "three")).entries
    index = read(entries, 2)
    assert index.truncated(entries) is index


def test_vectors_outlive_a_truncation():
    entries = conversation(said("one", "two", "three")).entries
    left = entries[:2]
    assert read(entries).truncated(left).texts_to_embed(left) == []


def test_no_text_is_embedded_twice_and_never_too_many_at_once(monkeypatch):
    monkeypatch.setattr(search_index, "EMBEDDED_AT_ONCE", 2)
    entries = conversation(said("one", "two", "three")).entries
    index = SearchIndex()
    asked = []
    while missing := index.texts_to_embed(entries):
        asked.append(missing)
        index.vectors.extend(embed(missing))
    assert asked == [["one", "two"], ["three"]]


# What changes later


@pytest.mark.parametrize("pin", ["drop", "summarize"])
def test_a_message_that_is_pinned_later_is_quotable_no_more_until_the_pin_is_taken_off(pin):
    open_conversation = conversation(said("one", "two", "three"))
    index = read(open_conversation.entries, index=open_conversation.search)
    open_conversation.pin({open_conversation.entries[1].id: pin})
    assert index.quotable.tolist() == [True, False, True]
    open_conversation.pin({})
    assert index.quotable.tolist() == [True, True, True]


def test_what_a_pin_makes_a_message_cost_is_known():
    open_conversation = conversation([*said("one"), HumanMessage("two " * 2_000)])
    index = read(open_conversation.entries, index=open_conversation.search)
    open_conversation.pin({open_conversation.entries[1].id: "summarize"})
    assert index.texts().costs.tolist() == open_conversation.costs
    assert index.texts().costs[1] < 2_000


def test_a_pin_of_a_message_that_was_not_read_yet_is_known_when_it_is():
    open_conversation = conversation(said("one", "two", "three"))
    index = read(open_conversation.entries, 1, index=open_conversation.search)
    open_conversation.pin({open_conversation.entries[2].id: "drop"})
    read(open_conversation.entries, index=index)
    assert index.quotable.tolist() == [True, True, False]


def test_after_a_recount_the_costs_are_those_of_the_new_counter():
    open_conversation = conversation(said("one", "two words", "three of these words"))
    index = read(open_conversation.entries, index=open_conversation.search)
    open_conversation.recount(EstimatingCounter())
    fresh = conversation(said("one", "two words", "three of these words"), EstimatingCounter())
    assert index.texts().costs.tolist() == fresh.costs


def test_a_message_that_says_nothing_is_not_quotable():
    entries = conversation([AIMessage("", id="a"), *said("one")]).entries
    assert read(entries, vectors=False).quotable.tolist() == [False, True]


# Sessions


def test_another_day_is_another_session():
    assert sessions(at("2026-01-01", "2026-01-01", "2026-01-02", "2026-01-02", "2026-01-05")) == [0, 0, 1, 1, 2]


def test_a_long_silence_ends_a_session():
    assert SESSION_GAP_SECONDS == 4 * 3_600
    times = at("2026-01-01T08:00:00Z", "2026-01-01T12:00:00Z", "2026-01-01T16:00:01Z", "2026-01-01T16:05:00Z")
    assert sessions(times) == [0, 0, 1, 1]


def test_a_silence_is_measured_across_time_zones():
    assert sessions(at("2026-01-01T08:00:00+00:00", "2026-01-01T13:00:00+05:00")) == [0, 0]


def test_a_time_without_a_zone_is_in_utc():
    assert sessions(at("2026-01-01T08:00:00", "2026-01-01T12:30:00Z")) == [0, 1]


def test_messages_without_times_are_one_session():
    assert sessions(said(*WORDS)) == [0] * len(WORDS)


@pytest.mark.parametrize("time", ["noon", 5, "2026-13-01T00:00:00", ""])
def test_a_time_that_cannot_be_read_begins_no_session(time):
    assert sessions(at(time, time, time)) == [0, 0, 0]


# Subjects


def test_another_subject_of_one_session_is_told_apart_by_its_vectors():
    entries = conversation(said(*["bike chain tyre"] * 6, *["kettle tea acid"] * 6)).entries
    assert read(entries).subjects().tolist() == [0] * 6 + [1] * 6


def test_without_vectors_a_session_is_one_subject():
    entries = conversation(said(*["bike chain tyre"] * 6, *["kettle tea acid"] * 6)).entries
    assert not read(entries, vectors=False).subjects().any()


def test_an_answer_begins_no_subject():
    answers = [AIMessage("kettle tea acid") for _ in range(6)]
    assert not read(conversation([*said(*["bike chain tyre"] * 6), *answers]).entries).subjects().any()


# Speakers


def test_who_has_a_name_is_found_by_it():
    entries = conversation([HumanMessage("hello", name="Ann"), AIMessage("hello")]).entries
    scores = read(entries).lexical.scores(["ann"])
    assert scores[0] > 0
    assert not scores[1]


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_role_is_no_word_to_search_by(role):
    entries = conversation([HumanMessage("hello"), AIMessage("hello")]).entries
    assert not read(entries).lexical.scores([role]).any()


def test_every_speaker_has_a_number():
    entries = conversation([HumanMessage("a", name="Ann"), AIMessage("b"), HumanMessage("c", name="Ann")]).entries
    index = read(entries, vectors=False)
    assert index.texts().speaker.tolist() == [index.speakers[name] for name in ("Ann", "assistant", "Ann")]


# Sentences


def test_the_sentences_of_a_message_are_read_once_and_of_few_messages_remembered(monkeypatch):
    monkeypatch.setattr(search_index, "MOST_IN_PIECES", 2)
    entries = conversation(said("One. Two.", "Three.", "Four.")).entries
    index = SearchIndex()
    first = index.pieces(entries[0])
    assert [entries[0].text[piece.start : piece.end] for piece in first] == ["One. ", "Two."]
    assert index.pieces(entries[0]) is first
    for entry in entries:
        index.pieces(entry)
    assert len(index._pieces) == 2
    assert index.pieces(entries[0]) == first


def test_nothing_read_is_nothing_known():
    index = SearchIndex()
    assert len(index) == len(index.texts()) == 0
    assert index.quotable.dtype == np.bool_
