"""The words, vectors and circumstances that retrieval knows of every message, read at once or bit by bit."""

from datetime import timedelta
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage

from langchain_ctxbudget.history import Conversation, MessageIndex
from langchain_ctxbudget.history.columns import SESSION_GAP
from langchain_ctxbudget.search.boundaries import UNLIKE, usual_limit
from tests.conversations import COUNTER, SCOPE, conversation
from tests.stores import embed

WORDS = ("bike", "kettle", "garden", "I", "blue", "hello")
TIMES = (
    None,
    "2026-01-01",
    "2026-01-01T08:00:00Z",
    "2026-01-01T09:30:00+01:00",
    "2026-01-02T10:00:00",
)
QUERY = ["bike", "kettl"]

messages = st.lists(
    st.builds(
        lambda make, text, name, time: make(
            text or "well", name=name, additional_kwargs={"created_at": time}
        ),
        st.sampled_from([HumanMessage, AIMessage]),
        st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join),
        st.sampled_from([None, "Ann", "Bob"]),
        st.sampled_from(TIMES),
    ),
    max_size=40,
)
stops = st.lists(st.integers(0, 40), max_size=4)


def read(view, upto=None, *, vectors=True, index=None):
    """Returns an index that has read the first messages, with their vectors."""
    index = MessageIndex() if index is None else index
    entries = view.entries[:upto]
    index.read(entries)
    while vectors and (missing := index.texts_to_embed(entries)):
        index.vectors.extend(embed(missing))
    return index


def known(index, view):
    """Returns everything that an index says of the messages of a conversation."""
    about = index.texts(view.cost_column[: len(index)], np.arange(len(index)), index.subjects())
    return {
        **{name: getattr(about, name).tolist() for name in about.__dataclass_fields__},
        "words": index.lexical.scores(QUERY).tolist(),
        "sessions": index.lexical.scores(QUERY, groups=index.subjects()).tolist(),
        "speakers": index.speakers,
        "said": index.said,
        "vectors": index.vectors.at().tolist(),
    }


@settings(max_examples=60)
@given(messages, stops)
def test_messages_read_bit_by_bit_are_known_as_those_read_at_once(given, stops):
    view = conversation(given)
    index = MessageIndex()
    for stop in sorted(stops):
        known(read(view, stop, index=index), view)
    assert known(read(view, index=index), view) == known(read(view), view)


@settings(max_examples=60)
@given(messages, st.integers(0, 40), messages)
def test_a_shortened_index_goes_on_as_one_that_never_knew_the_others(given, length, more):
    view = conversation(given)
    index = read(view)
    known(index, view)
    length = min(length, len(given))
    left = conversation([*given[:length], *more])
    shortened = index.first(length)
    assert shortened.texts_to_embed(view.entries[:length]) == []  # vectors stay
    assert known(read(left, index=shortened), left) == known(read(left), left)


def test_a_session_ends_with_the_day_or_a_long_silence():
    assert timedelta(hours=4) == SESSION_GAP
    for times, sessions in [
        (["2026-01-01", "2026-01-01", "2026-01-02", "2026-01-02", "2026-01-05"], [0, 0, 1, 1, 2]),
        (["2026-01-01T08:00:00Z", "2026-01-01T12:00:00Z", "2026-01-01T16:00:01Z"], [0, 0, 1]),
        (["2026-01-01T08:00:00+00:00", "2026-01-01T13:00:00+05:00"], [0, 0]),
        (["2026-01-01T08:00:00", "2026-01-01T12:30:00Z"], [0, 1]),  # without a zone it is in UTC
        *([[time] * 3, [0, 0, 0]] for time in (None, "noon", "2026-13-01T00:00:00")),
    ]:
        said = [HumanMessage("well", additional_kwargs={"created_at": time}) for time in times]
        assert (times, read(conversation(said), vectors=False).subjects().tolist()) == (
            times,
            sessions,
        )


def test_a_user_may_begin_another_subject_within_a_session():
    bikes = ["bike chain tyre"] * 6
    kettles = ["kettle tea acid"] * 6
    for said, vectors, subjects in [
        ([*bikes, *kettles], True, [0] * 6 + [1] * 6),
        ([*bikes, *kettles], False, [0] * 12),
        ([*bikes, *map(AIMessage, kettles)], True, [0] * 12),
    ]:
        assert read(conversation(said), vectors=vectors).subjects().tolist() == subjects


SHORT_WORDS = [f"word{number}" for number in range(60)]


def chat_of_short_messages(days, messages_a_day=20):
    """Returns a chat whose neighbours share hardly a word, within a subject as across its border."""
    random = Random(7)
    return [
        HumanMessage(
            " ".join(random.choices(SHORT_WORDS, k=3)),
            additional_kwargs={"created_at": f"2026-{1 + day // 28:02}-{1 + day % 28:02}"},
        )
        for day in range(days)
        for _ in range(messages_a_day)
    ]


def test_subjects_do_not_shatter_a_chat_of_short_messages():
    subjects = read(conversation(chat_of_short_messages(days=52))).subjects()
    assert 52 <= subjects[-1] + 1 <= 2 * 52


def test_another_subject_is_still_cut_off_a_chat_of_short_messages():
    kettles = [HumanMessage("kettle tea acid", additional_kwargs={"created_at": "2026-01-10"})] * 6
    said = [*chat_of_short_messages(days=10), *kettles]
    subjects = read(conversation(said)).subjects()
    assert subjects[-7] < subjects[-6] == subjects[-1]


def test_sessions_that_are_unlike_each_other_do_not_lower_the_limit():
    matters = [
        ["bike chain tyre", "kettle tea acid", "garden bean hoe"][day % 3] for day in range(30)
    ]
    said = [
        HumanMessage(matter, additional_kwargs={"created_at": f"2026-01-{day + 1:02}"})
        for day, matter in enumerate(matters)
        for _ in range(6)
    ]
    index = read(conversation(said))
    index.subjects()
    assert usual_limit(index._session.values, index.links.values) == UNLIKE


@pytest.mark.parametrize("step", [1, 7, 50, 333])
def test_subjects_of_a_growing_chat_are_those_of_one_read_at_once(step):
    view = conversation(chat_of_short_messages(days=20))
    index = MessageIndex()
    for stop in range(step, 400 + step, step):
        read(view, stop, index=index).subjects()
    assert index.subjects().tolist() == read(view).subjects().tolist()


def test_other_embeddings_give_a_chat_its_limit_anew():
    view = conversation(chat_of_short_messages(days=20))
    index = MessageIndex()
    index.embedded_by("same for all")
    index.read(view.entries)
    index.vectors.extend(np.ones((400, 64), np.float32))
    index.subjects()
    index.embedded_by("bag of words")
    assert read(view, index=index).subjects().tolist() == read(view).subjects().tolist()


def test_a_pinned_message_is_not_quotable_and_costs_what_it_is_shown_as_until_the_pin_is_taken_off():
    for pin in ("drop", "summarize"):
        view = conversation(["one", HumanMessage("two " * 2_000, id="m1"), AIMessage("", id="m2")])
        index = read(view, index=view.table.search_index)
        pinned = view.table.changed(3, {1: pin})
        assert pinned.costs(view.counter).column.values[1] < 2_000 < view.costs[1]
        assert pinned.search_index is index  # nothing is read again
        seen = [
            Conversation(SCOPE, table, COUNTER) for table in (pinned, pinned.changed(3, {1: None}))
        ]
        assert [one.quotable.tolist() for one in seen] == [
            [True, False, False],
            [True, True, False],
        ]
