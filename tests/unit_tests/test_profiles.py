"""The numbers of topics and entities, computed from their conversations; formulas with hand-computed values."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxbudget.knowledge.known import detector
from langchain_ctxbudget.knowledge.profiles import (
    MOST_DAYS,
    Engagement,
    as_of,
    engaged,
    entity_id,
    entity_metrics,
    importance,
    sentiment_of,
    similar,
    slug,
    topic_id,
    topic_metrics,
)
from langchain_ctxbudget.knowledge.records import EntityProfile, TopicConversation, TopicProfile

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


def test_a_link_knows_its_first_and_last_time_whatever_the_order():
    counted = link(said(at(5)), said(at(3)), said(at(4)))
    assert (counted.first_at, counted.last_at) == (at(3), at(5))


def test_a_link_counts_hours_in_utc():
    elsewhere = datetime(2026, 1, 5, 1, tzinfo=timezone(timedelta(hours=2)))
    counted = link(said(elsewhere), said(at(5, 23)))
    assert counted.hours == (*[0] * 23, 2)


def test_a_time_without_an_offset_is_utc():
    assert link(said(datetime(2026, 1, 5, 23))).days == ("2026-01-05",)  # noqa: DTZ001


def test_messages_without_a_time_leave_times_as_they_are():
    counted = engaged(link(said(at(5))), [said()])
    assert (counted.messages, counted.last_at, sum(counted.hours), counted.days) == (2, at(5), 1, ("2026-01-05",))


def test_a_link_without_any_time_has_no_hours():
    assert link(said()).hours == ()


def test_a_link_remembers_the_newest_days():
    start = datetime(2026, 1, 1, tzinfo=UTC)
    counted = link(*(said(start + timedelta(days=n)) for n in range(MOST_DAYS + 2)))
    assert (len(counted.days), counted.days[0]) == (MOST_DAYS, "2026-01-03")


def test_relevance_is_the_share_of_the_messages():
    counted = link(said(), said(), until=8)
    assert (counted.relevance_score, counted.until) == (0.25, 8)


def test_relevance_stays_where_the_number_of_messages_is_not_known():
    assert (link(said()).relevance_score, link(said()).until) == (0.5, 0)


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


def test_a_conversation_without_a_message_about_it_does_not_count():
    assert measured(link(said(at(3))), link(conversation="c2")).total_conversations == 1


def test_a_topic_that_never_came_up_has_no_numbers():
    after = measured()
    assert (after.avg_session_depth, after.last_engaged_at, after.peak_hour, after.engagement_streak) == (
        0,
        None,
        None,
        0,
    )


def test_computing_again_gives_the_same():
    links = [link(said(at(3)), said(at(4)))]
    once = topic_metrics(topic(), links, NOW)
    assert topic_metrics(once, links, NOW) == once


@pytest.mark.parametrize(
    ("days", "streak"),
    [([5], 1), ([3, 4, 5], 3), ([1, 2, 4, 5], 2), ([1, 2, 3, 9], 1), ([5, 5, 4], 2), ([], 0)],
)
def test_a_streak_is_days_in_a_row_up_to_the_last_one(days, streak):
    assert measured(link(*(said(at(day)) for day in days), said())).engagement_streak == streak


def test_a_streak_goes_on_in_another_conversation_and_over_the_turn_of_the_year():
    old = link(said(datetime(2025, 12, 31, tzinfo=UTC)))
    assert measured(link(said(at(1))), old.model_copy(update={"conversation_id": "c2"})).engagement_streak == 2


@pytest.mark.parametrize(("hours", "peak"), [([9, 9, 20], 9), ([20, 9], 9), ([0], 0), ([], None)])
def test_the_peak_hour_is_the_one_with_most_messages_and_of_several_the_earliest(hours, peak):
    assert measured(link(*(said(at(3, hour)) for hour in hours), said())).peak_hour == peak


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


def test_a_level_that_was_given_stays_without_signals():
    assert measured(proficiency_level="expert").proficiency_level == "expert"


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


def test_what_is_pinned_is_most_important():
    assert measured(pinned=True).importance_score == 1.0
    assert entity_metrics(entity(pinned=True), (), NOW).importance_score == 1.0


OLD_LINKS = [link(*(said(datetime(2024, 1, 1, tzinfo=UTC)) for _ in range(5)))]
OLD_NOW = datetime(2024, 1, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "old", [topic_metrics(topic(), OLD_LINKS, OLD_NOW), entity_metrics(entity(), OLD_LINKS, OLD_NOW)]
)
def test_importance_fades_though_nothing_is_counted_again(old):
    assert as_of(old, OLD_NOW) == old
    assert as_of(old, NOW).importance_score == pytest.approx(importance(5, 1, OLD_NOW, NOW, pinned=False), abs=1e-5)


def test_of_two_topics_named_alike_what_came_up_since_comes_first():
    old = topic_metrics(topic("Archery"), OLD_LINKS, OLD_NOW)
    new = topic_metrics(topic("Cycling"), [link(said(NOW))], NOW)
    found = detector([old, new]).detect("Archery or cycling?")
    assert old.importance_score > new.importance_score
    assert [one.id for one in found] == [new.id, old.id]


def test_an_entity_adds_up_its_conversations():
    first = link(said(at(3), sentiment=1), said(at(4), sentiment=1), said(at(4)))
    second = link(said(at(8), sentiment=-1), conversation="c2")
    after = entity_metrics(entity(), [first, second], NOW)
    assert (after.mention_count, after.conversation_count, after.sentiment) == (4, 2, 0.25)
    assert (after.first_mentioned_at, after.last_mentioned_at) == (at(3), at(8))
    assert after.importance_score == pytest.approx(importance(4, 2, at(8), NOW, pinned=False))


CLEAN = {"is_dirty": False}


def test_another_day_makes_a_topic_dirty():
    before = topic_metrics(topic(), [link(said(at(3)))], NOW).model_copy(update=CLEAN)
    assert topic_metrics(before, [link(said(at(3)), said(at(4)))], NOW).is_dirty


def test_another_conversation_makes_a_topic_dirty():
    before = topic_metrics(topic(), [link(said(at(3)))], NOW).model_copy(update=CLEAN)
    assert topic_metrics(before, [link(said(at(3))), link(said(at(3)), conversation="c2")], NOW).is_dirty


def test_another_message_of_the_same_day_does_not_make_a_topic_dirty():
    before = topic_metrics(topic(), [link(said(at(3)))], NOW).model_copy(update=CLEAN)
    after = topic_metrics(before, [link(said(at(3)), said(at(3, 22)))], NOW + timedelta(days=9))
    assert after.total_messages == 2
    assert not after.is_dirty


def test_another_mention_does_not_make_an_entity_dirty():
    after = entity_metrics(entity(**CLEAN), [link(said(at(3), sentiment=1))], NOW)
    assert after.mention_count == 1
    assert not after.is_dirty


def test_what_is_dirty_stays_dirty():
    assert topic_metrics(topic(), (), NOW).is_dirty


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


def test_a_topic_is_the_same_as_one_whose_label_is_its_alias():
    first, second = topic("Kubernetes", aliases=("k8s",)), topic("K8S")
    assert similar(first, second)
    assert similar(second, first)


def test_topics_that_share_an_alias_are_not_the_same():
    assert not similar(topic("Python", aliases=("py",)), topic("Pizza", aliases=("py",)))


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


@given(st.text(max_size=20))
def test_every_label_that_says_something_has_a_slug_without_blanks(label):
    assert bool(slug(label)) == bool(label.strip())
    assert not any(character.isspace() for character in slug(label))


def test_ids_say_what_they_are_of():
    assert topic_id("home-brewing") == "topic/home-brewing"
    assert entity_id("person", "Sarah\n Chen") == entity_id("person", "SARAH CHEN") == "entity/person/sarah chen"
