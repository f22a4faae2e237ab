"""What retrieval knows of every message (words, vectors and circumstances), read in any steps."""

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


def message(kind, text, name, time):
    return kind(text or "well", name=name, additional_kwargs={"created_at": time})


def dated(text, time):
    return message(HumanMessage, text, None, time)


MESSAGES = st.lists(
    st.builds(
        message,
        st.sampled_from([HumanMessage, AIMessage]),
        st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join),
        st.sampled_from([None, "Ann", "Bob"]),
        st.sampled_from(TIMES),
    ),
    max_size=40,
)
STOPS = st.lists(st.integers(0, 40), max_size=4)


def embed_missing(index, entries):
    missing = index.texts_to_embed(entries)
    while missing:
        index.vectors.extend(embed(missing))
        missing = index.texts_to_embed(entries)


def read_words(view, upto=None, index=None):
    """Returns an index that has read the first messages."""
    if index is None:
        index = MessageIndex()
    index.read(view.entries[:upto])
    return index


def read(view, upto=None, index=None):
    """Returns an index that has read the first messages, with their vectors."""
    index = read_words(view, upto, index)
    embed_missing(index, view.entries[:upto])
    return index


def contents(index, view):
    """Returns everything that an index says of the messages of a conversation."""
    about = index.texts(view.cost_column[: len(index)], np.arange(len(index)), index.subjects())
    columns = {name: getattr(about, name).tolist() for name in about.__dataclass_fields__}
    return {
        **columns,
        "words": index.lexical.scores(QUERY).tolist(),
        "sessions": index.lexical.scores(QUERY, groups=index.subjects()).tolist(),
        "speakers": index.speakers,
        "said": index.text_digests,
        "vectors": index.vectors.at().tolist(),
    }


def subjects_of(messages):
    return read(conversation(messages)).subjects().tolist()


# Read in any steps


@pytest.mark.slow
@settings(max_examples=60)
@given(MESSAGES, STOPS)
def test_messages_read_bit_by_bit_are_known_as_those_read_at_once(messages, stops):
    view = conversation(messages)
    index = MessageIndex()

    for stop in sorted(stops):
        contents(read(view, stop, index), view)

    assert contents(read(view, index=index), view) == contents(read(view), view)


@pytest.mark.slow
@settings(max_examples=60)
@given(MESSAGES, st.integers(0, 40), MESSAGES)
def test_a_shortened_index_goes_on_as_if_it_never_knew_the_others(messages, length, more):
    view = conversation(messages)
    index = read(view)
    contents(index, view)
    first = view.entries[:length]

    shortened = index.first(len(first))

    assert shortened.texts_to_embed(first) == [], "vectors stay"
    other_view = conversation([*messages[:length], *more])
    resumed = read(other_view, index=shortened)
    assert contents(resumed, other_view) == contents(read(other_view), other_view)


# Sessions


def test_a_silence_is_long_after_four_hours():
    assert timedelta(hours=4) == SESSION_GAP


@pytest.mark.parametrize(
    ("times", "sessions"),
    [
        (["2026-01-01", "2026-01-01", "2026-01-02", "2026-01-02", "2026-01-05"], [0, 0, 1, 1, 2]),
        (["2026-01-01T08:00:00Z", "2026-01-01T12:00:00Z", "2026-01-01T16:00:01Z"], [0, 0, 1]),
        (["2026-01-01T08:00:00+00:00", "2026-01-01T13:00:00+05:00"], [0, 0]),
        (["2026-01-01T08:00:00", "2026-01-01T12:30:00Z"], [0, 1]),
        ([None, None, None], [0, 0, 0]),
        (["noon", "noon", "noon"], [0, 0, 0]),
        (["2026-13-01T00:00:00"] * 3, [0, 0, 0]),
    ],
    ids=["days", "silence", "zones", "without a zone it is in UTC", "no time", "a word", "no date"],
)
def test_a_session_ends_with_the_day_or_a_long_silence(times, sessions):
    messages = [dated("well", time) for time in times]

    assert read_words(conversation(messages)).subjects().tolist() == sessions


# Subjects within a session


BIKES = ["bike chain tyre"] * 6
KETTLES = ["kettle tea acid"] * 6


def test_a_user_may_begin_another_subject_within_a_session():
    assert subjects_of([*BIKES, *KETTLES]) == [0] * 6 + [1] * 6


def test_without_vectors_there_is_one_subject_in_a_session():
    view = conversation([*BIKES, *KETTLES])

    assert read_words(view).subjects().tolist() == [0] * 12


def test_an_assistant_begins_no_subject():
    assert subjects_of([*BIKES, *map(AIMessage, KETTLES)]) == [0] * 12


SHORT_WORDS = [f"word{number}" for number in range(60)]


def date_of(day):
    """The date of a day of months that have 28 days each."""
    return f"2026-{1 + day // 28:02}-{1 + day % 28:02}"


def chat_of_short_messages(days):
    """Returns a chat of 20 messages a day.

    Neighbours share hardly a word, within a subject or not.
    """
    random = Random(7)
    messages = []
    for number in range(20 * days):
        text = " ".join(random.choices(SHORT_WORDS, k=3))
        messages.append(dated(text, date_of(number // 20)))
    return messages


@pytest.mark.slow
def test_subjects_do_not_shatter_a_chat_of_short_messages():
    last = subjects_of(chat_of_short_messages(days=52))[-1]

    assert 52 <= last + 1 <= 104


def test_another_subject_is_still_cut_off_a_chat_of_short_messages():
    kettles = [dated("kettle tea acid", "2026-01-10")] * 6

    subjects = subjects_of([*chat_of_short_messages(days=10), *kettles])

    assert subjects[-7] < subjects[-6] == subjects[-1]


def test_sessions_that_are_unlike_each_other_do_not_lower_the_limit():
    matters = ["bike chain tyre", "kettle tea acid", "garden bean hoe"] * 10
    messages = []
    for day, matter in enumerate(matters):
        messages += [dated(matter, f"2026-01-{day + 1:02}")] * 6
    index = read(conversation(messages))
    index.subjects()

    sessions = np.repeat(np.arange(30), 6)
    assert usual_limit(sessions, index.links.values) == UNLIKE


# Subjects of a chat that grows


@pytest.fixture(scope="module")
def short_messages():
    """A chat of 400 messages."""
    return conversation(chat_of_short_messages(days=20))


@pytest.fixture(scope="module")
def subjects_at_once(short_messages):
    return read(short_messages).subjects().tolist()


@pytest.mark.parametrize("step", [1, 7, 50, 333])
def test_subjects_of_a_growing_chat_are_those_of_one_read_at_once(
    short_messages, subjects_at_once, step
):
    index = MessageIndex()

    for stop in range(step, 400 + step, step):
        read(short_messages, stop, index).subjects()

    assert index.subjects().tolist() == subjects_at_once


def test_other_embeddings_give_a_chat_its_limit_anew(short_messages, subjects_at_once):
    index = MessageIndex()
    index.embedded_by("same for all")
    index.read(short_messages.entries)
    index.vectors.extend(np.ones((400, 64), np.float32))
    index.subjects()

    index.embedded_by("bag of words")

    assert read(short_messages, index=index).subjects().tolist() == subjects_at_once


# Pins


def pinned_conversation(pin):
    """Three messages, of which the second is long and pinned and the third empty; and its index."""
    view = conversation(["one", HumanMessage("two " * 2_000, id="m1"), AIMessage("", id="m2")])
    index = read(view, index=view.table.search_index)
    return view.table.changed(3, {1: pin}), index


def quotable(table):
    return Conversation(SCOPE, table, COUNTER).quotable.tolist()


PINS = pytest.mark.parametrize("pin", ["drop", "summarize"])


@PINS
def test_a_pinned_message_costs_what_it_is_shown_as(pin):
    pinned, _ = pinned_conversation(pin)
    unpinned = pinned.changed(3, {1: None})

    assert pinned.costs(COUNTER).column.values[1] < 2_000
    assert unpinned.costs(COUNTER).column.values[1] > 2_000


@PINS
def test_a_pin_does_not_make_an_index_read_again(pin):
    pinned, index = pinned_conversation(pin)

    assert pinned.search_index is index


@PINS
def test_a_pinned_message_is_not_quotable_until_the_pin_is_taken_off(pin):
    pinned, _ = pinned_conversation(pin)

    assert quotable(pinned) == [True, False, False]
    assert quotable(pinned.changed(3, {1: None})) == [True, True, False]
