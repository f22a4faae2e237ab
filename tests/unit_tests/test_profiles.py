"""The numbers of topics and entities, computed from their conversations; formulas with hand-computed values."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, ToolMessage

from langchain_ctxbudget.knowledge.learning import counted
from langchain_ctxbudget.knowledge.profiles import (
    Engagement,
    engaged,
    entity_metrics,
    importance,
    sentiment_of,
    similar,
    slug,
    topic_id,
    topic_metrics,
)
from langchain_ctxbudget.knowledge.records import EntityProfile, ProgressRecord, TopicConversation, TopicProfile
from langchain_ctxbudget.knowledge.taking import Work, still_there
from tests.open_conversations import COUNTER, SCOPE, opened

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(day, hour=9):
    return datetime(2026, 1, day, hour, tzinfo=UTC)


def said(when=None, *, tokens=10, from_user=True, sentiment=0):
    return Engagement(at=when, tokens=tokens, from_user=from_user, sentiment=sentiment)


def link(*messages, conversation="c1", until=0):
    empty = TopicConversation(topic_id="t", conversation_id=conversation)
    return engaged(empty, messages, until=until)


def topic(label="Cycling", **rest):
    return TopicProfile(id=topic_id(slug(label)), slug=slug(label), label=label, **rest)


def entity(**rest):
    return EntityProfile(id="entity/person/sarah", name="Sarah", type="person", **rest)


def measured(*links, **rest):
    return topic_metrics(topic(**rest), links, NOW)


def test_a_link_counts_messages_exchanges_tokens_and_mood():
    counted = link(
        said(tokens=7, sentiment=1), said(tokens=5, from_user=False, sentiment=-1), said(tokens=1, sentiment=1)
    )
    assert (counted.messages, counted.exchanges, counted.tokens, counted.sentiment) == (3, 2, 13, 1)


MOMENTS = st.none() | st.datetimes(datetime(2025, 1, 1), datetime(2025, 3, 1), timezones=st.just(UTC))  # noqa: DTZ001
SAID = st.lists(
    st.builds(
        Engagement,
        at=MOMENTS,
        tokens=st.integers(0, 99),
        from_user=st.booleans(),
        sentiment=st.sampled_from([-1, 0, 1]),
    )
)


@given(SAID, SAID)
def test_counting_in_two_steps_is_counting_at_once(first, second):
    assert engaged(link(*first), second) == link(*first, *second)


BEER = TopicProfile(id="topic/beer", slug="beer", label="Beer", aliases=("ale",))
SARAH = EntityProfile(id="entity/person/sarah", name="Sarah", type="person")
TEXTS = ("I like beer.", "Nothing.", "Ale with Sarah!", "Sarah.", "Beer and beer and ale.", "No.")


def count(links, texts=TEXTS, first=0, end=None, new=(), *, changed=False):
    """Counts a conversation from a message on; returns the links, and messages and exchanges about beer and Sarah."""
    whole = opened(*texts)
    seen, there = whole.seen_with(COUNTER), still_there(whole) if changed else None
    progress = ProgressRecord()
    work = Work(
        scope=SCOPE, entries=seen.entries[:end], costs=seen.costs, first=first, progress=progress, there=there, epoch=0
    )
    after, touched = counted(links, [BEER], [SARAH], work, new)
    found = [after.get((thing.id, "c1")) for thing in (BEER, SARAH)]
    return after, [(one.messages, one.exchanges) if one else (0, 0) for one in found], touched


def test_a_message_counts_once_however_often_it_names_something():
    assert count({})[1] == [(3, 3), (2, 2)]
    assert count({}, first=4, new=[BEER.id])[1][0] == (3, 3)  # of what is new, older messages count too
    assert count(links := count({})[0]) == (links, [(3, 3), (2, 2)], set())  # taken again, it counts no more


def test_results_of_tools_do_not_count_and_answers_begin_no_exchange():
    for message, expected in ((AIMessage("Beer."), (1, 0)), (ToolMessage("Beer.", tool_call_id="1"), (0, 0))):
        assert count({}, [message])[1][0] == expected


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_a_conversation_counted_in_parts_is_the_one_counted_at_once(sizes):
    texts = [TEXTS[number % len(TEXTS)] for number in range(sum(sizes))]
    links, first = {}, 0
    for size in sizes:
        links, first = count(links, texts, first, first + size)[0], first + size
    shown = {"messages", "exchanges", "tokens", "sentiment"}
    parts, at_once = (
        {key: one.model_dump(include=shown) for key, one in it.items()} for it in (links, count({}, texts)[0])
    )
    assert parts == at_once


def test_after_a_change_the_whole_conversation_is_counted_again():
    elsewhere = TopicConversation(topic_id=BEER.id, conversation_id="c2", messages=7)
    links = {**count({})[0], (BEER.id, "c2"): elsewhere}
    after, numbers, touched = count(links, ["Beer.", "No."], 1, changed=True)
    assert numbers == [(1, 1), (0, 0)]
    assert after[BEER.id, "c2"] == elsewhere
    assert touched == {BEER.id, SARAH.id}


def test_a_topic_adds_up_its_conversations():
    first = link(said(at(3)), said(at(3), from_user=False), said(at(4)))
    second = link(said(at(8), tokens=4), conversation="c2")
    after = measured(first, second)
    assert (after.total_conversations, after.total_messages, after.total_acus, after.total_tokens_spent) == (
        2,
        4,
        3,
        34,
    )
    assert (after.avg_session_depth, after.first_engaged_at, after.last_engaged_at) == (2.0, at(3), at(8))


@pytest.mark.parametrize(
    ("days", "streak"),
    [([5], 1), ([3, 4, 5], 3), ([1, 2, 4, 5], 2), ([1, 2, 3, 9], 1), ([5, 5, 4], 2), ([], 0)],
)
def test_a_streak_is_days_in_a_row_up_to_the_last_one(days, streak):
    assert measured(link(*(said(at(day)) for day in days), said())).engagement_streak == streak


@pytest.mark.parametrize(
    ("signals", "level"),
    [
        ((), "unknown"),
        (("expert",), "expert"),
        (("beginner", "beginner", "expert"), "beginner"),
        (("beginner", "expert"), "expert"),
        (("expert", "beginner"), "beginner"),
        (("expert: maintains one",), "expert"),
        (("nonsense",), "unknown"),
        (("beginner",) * 9 + ("expert",) * 10, "expert"),
    ],
)
def test_the_level_is_what_most_of_the_newest_signals_say(signals, level):
    assert measured(proficiency_signals=signals).proficiency_level == level


@pytest.mark.parametrize(
    ("messages", "conversations", "days", "score"),
    [
        (0, 0, None, 0.0),
        (100, 10, 0, 1.0),
        (5_000, 500, 0, 1.0),
        (100, 10, 30, 0.8),  # 0.4 * 0.5 + 0.35 + 0.25
        (100, 10, 60, 0.7),  # 0.4 * 0.25 + 0.6
        (100, 5, 30, 0.675),  # 0.2 + 0.35 + 0.125
        (1, 1, 0, 0.47757),  # 0.4 + 0.35 * 0.6931472 / 4.6151205 + 0.025
        (9, 1, None, 0.19962),  # 0.35 * 2.3025851 / 4.6151205 + 0.025
        (100, 10, -5, 1.0),
    ],
)
def test_importance_is_recency_frequency_and_breadth(messages, conversations, days, score):
    last = None if days is None else NOW - timedelta(days=days)
    assert importance(messages, conversations, last, NOW, pinned=False) == pytest.approx(score, abs=1e-5)


def test_an_entity_adds_up_its_conversations():
    first = link(said(at(3), sentiment=1), said(at(4), sentiment=1), said(at(4)))
    second = link(said(at(8), sentiment=-1), conversation="c2")
    after = entity_metrics(entity(), [first, second], NOW)
    assert (after.mention_count, after.conversation_count, after.sentiment) == (4, 2, 0.25)
    assert (after.first_mentioned_at, after.last_mentioned_at) == (at(3), at(8))
    assert after.importance_score == pytest.approx(importance(4, 2, at(8), NOW, pinned=False))


CLEAN = {"is_dirty": False}


def test_another_message_of_the_same_day_does_not_make_a_topic_dirty():
    before = topic_metrics(topic(), [link(said(at(3)))], NOW).model_copy(update=CLEAN)
    after = topic_metrics(before, [link(said(at(3)), said(at(3, 22)))], NOW + timedelta(days=9))
    assert after.total_messages == 2
    assert not after.is_dirty


@pytest.mark.parametrize(
    ("text", "mood"),
    [
        ("I love it", 1),
        ("This is terrible", -1),
        ("It is Tuesday", 0),
        ("", 0),
        ("not good", -1),
        ("not bad at all", 1),
        ("It isn't a very good idea", -1),
        ("It isn’t good", -1),
        ("No, it is good", 1),
        ("I'm not sure what to say about this good cake", 1),
        ("good but terrible", 0),
        ("GREAT!", 1),
        ("I like it", 1),
        ("I don't like it", -1),
        ("It looks like rain", 0),
        ("no problem", 1),
        ("goodness", 0),
    ],
)
def test_mood_is_read_from_words_and_negations(text, mood):
    assert sentiment_of(text) == mood


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("Home brewing", "brewing at home", True),
        ("Home brewing", "HOME BREW", True),
        ("Home brewing", "Brewing", False),
        ("C", "C++", False),
        ("C#", "C++", False),
        (".NET", "net", False),
        ("Node.js", "node js", True),
        ("To do", "To do", True),
        ("To do", "What is", False),
        ("東京旅行", "東京旅行", True),
        ("🙂", "🙃", False),
    ],
)
def test_topics_are_the_same_with_the_same_stems(first, second, same):
    assert similar(topic(first), topic(second)) is same
    assert similar(topic(second), topic(first)) is same


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("Home brewing", "home-brewing"),
        ("  Prisma  ORM! ", "prisma-orm"),
        ("C", "c"),
        ("C++", "c-plus-plus"),
        ("C#", "c-sharp"),
        (".NET", "dot-net"),
        ("Node.js", "node-js"),
        ("Ｆull", "full"),
        ("हिन्दी", "हिन्दी"),
        ("東京", "東京"),
        ("🙂", "u1f642"),
        (" ", ""),
    ],
)
def test_a_slug_is_the_folded_words(label, expected):
    assert slug(label) == expected
