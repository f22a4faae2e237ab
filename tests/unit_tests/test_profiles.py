"""Topics and entities: what is learned is merged, and their numbers add up conversations."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxbudget.knowledge import (
    BY_USER,
    EntityProfile,
    Knowledge,
    ProgressRecord,
    Source,
    TopicProfile,
    profiles,
)
from langchain_ctxbudget.knowledge.known import KeptKnowledge
from langchain_ctxbudget.knowledge.merging import updated
from langchain_ctxbudget.knowledge.records import (
    Learned,
    LearnedEntity,
    LearnedTopic,
    TopicConversation,
)
from langchain_ctxbudget.knowledge.work import Work
from tests.conversations import COUNTER, SCOPE, opened

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SOURCES = {"m0": Source(conversation_id="c1", message_id="m0", digest="d0")}


def topic(label: str = "Cycling", **fields: Any) -> TopicProfile:
    slug = profiles.slug(label)
    return TopicProfile(id=f"topic/{slug}", slug=slug, label=label, **fields)


# Names


def are_same(first: str, second: str) -> bool:
    """Tells if two labels name the same topic, whichever of them was first."""
    forth = profiles.is_called(topic(first), second)
    back = profiles.is_called(topic(second), first)
    assert forth == back
    return forth


@pytest.mark.parametrize("label", ["brewing at home", "HOME BREW"])
def test_topics_are_the_same_with_the_same_stems(label: str) -> None:
    assert are_same("Home brewing", label)


@pytest.mark.parametrize(
    ("first", "second"), [("Home brewing", "Brewing"), ("C#", "C++"), (".NET", "net")]
)
def test_topics_are_different_with_other_stems_or_signs(first: str, second: str) -> None:
    assert not are_same(first, second)


# Numbers of a topic


def at(day: int, hour: int = 9) -> datetime:
    return datetime(2026, 1, day, hour, tzinfo=UTC)


def message(
    when: datetime | None = None, *, tokens: int = 10, from_user: bool = True
) -> profiles.Engagement:
    return profiles.Engagement(at=when, tokens=tokens, from_user=from_user)


def link(*messages: profiles.Engagement, conversation: str = "c1") -> TopicConversation:
    """A conversation in which messages are about a topic."""
    return profiles.engaged(TopicConversation(topic_id="t", conversation_id=conversation), messages)


MOMENTS = st.none() | st.datetimes(
    datetime(2025, 1, 1),
    datetime(2025, 3, 1),
    timezones=st.just(UTC),
)
ENGAGEMENTS = st.lists(
    st.builds(profiles.Engagement, at=MOMENTS, tokens=st.integers(0, 99), from_user=st.booleans())
)


@given(ENGAGEMENTS, ENGAGEMENTS)
def test_counting_in_two_steps_is_counting_at_once(
    first: list[profiles.Engagement], second: list[profiles.Engagement]
) -> None:
    assert profiles.engaged(link(*first), second) == link(*first, *second)


@pytest.fixture
def topic_of_two_conversations() -> TopicProfile:
    """Three messages of 10 tokens in one, and one of 4 tokens in the other."""
    first = link(message(at(3)), message(at(3), from_user=False), message(at(4, 20)))
    second = link(message(at(8), tokens=4), conversation="c2")
    return profiles.measured(topic(), [first, second])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("total_conversations", 2),
        ("total_messages", 4),
        ("total_acus", 3),
        ("total_tokens_spent", 34),
        ("peak_hour", 9),
        ("first_engaged_at", at(3)),
        ("last_engaged_at", at(8)),
    ],
)
def test_a_topic_adds_up_its_conversations(
    topic_of_two_conversations: TopicProfile, field: str, value: Any
) -> None:
    assert getattr(topic_of_two_conversations, field) == value


@pytest.mark.parametrize(
    ("days", "streak"),
    [
        ([5], 1),
        ([3, 4, 5], 3),
        ([1, 2, 4, 5], 2),
        ([1, 2, 3, 9], 1),
        ([5, 5, 4], 2),
        ([], 0),
    ],
)
def test_a_streak_is_days_in_a_row_up_to_the_last_one(days: list[int], streak: int) -> None:
    without_a_time = message()
    conversation = link(*(message(at(day)) for day in days), without_a_time)

    assert profiles.measured(topic(), [conversation]).engagement_streak == streak


def topic_with(messages: int, conversations: int, days_ago: int | None) -> TopicProfile:
    last = None
    if days_ago is not None:
        last = NOW - timedelta(days=days_ago)
    return topic(total_messages=messages, total_conversations=conversations, last_engaged_at=last)


IMPORTANCE = pytest.mark.parametrize(
    ("measured", "importance"),
    [
        (topic_with(0, 0, None), 0.5),
        (topic_with(5_000, 500, 0), 1.0),
        (topic_with(100, 10, 30), 0.8),  # 0.4 * 0.5 + 0.35 + 0.25
        (topic_with(1, 1, 0), 0.47757),  # 0.4 + 0.35 * 0.6931472 / 4.6151205 + 0.025
        (topic_with(9, 1, None), 0.19962),  # 0.35 * 2.3025851 / 4.6151205 + 0.025
        (topic_with(100, 10, -5), 1.0),
    ],
    ids=["not known yet", "a lot", "a month ago", "once", "at no time", "in the future"],
)


@IMPORTANCE
def test_importance_is_recency_frequency_and_breadth(
    measured: TopicProfile, importance: float
) -> None:
    assert profiles.importance_at(measured, NOW) == pytest.approx(importance, abs=1e-5)


@IMPORTANCE
def test_a_pinned_topic_is_as_important_as_can_be(
    measured: TopicProfile, importance: float
) -> None:
    del importance  # where it is not pinned
    pinned = measured.model_copy(update={"pinned": True})

    assert profiles.importance_at(pinned, NOW) == 1.0


# Counting a conversation


BEER = TopicProfile(id="topic/beer", slug="beer", label="Beer", aliases=("ale",), made_by=BY_USER)
SARAH = EntityProfile(id="entity/person/sarah", name="Sarah", type="person", made_by=BY_USER)
BEER_AND_SARAH = Knowledge(topics=(BEER,), entities=(SARAH,))
TEXTS = ("I like beer.", "Nothing.", "Ale with Sarah!", "Sarah.", "Beer and beer and ale.", "No.")


def counted(state: Knowledge, first: int = 0) -> Knowledge:
    """Counts the conversation from a message on."""
    view = opened(*TEXTS).seen_with(COUNTER)
    work = Work(
        scope=SCOPE,
        entries=view.entries,
        costs=view.costs,
        first=first,
        progress=ProgressRecord(),
        there=None,
        kept_before=KeptKnowledge(),
    )
    return updated(state, work, Learned(), NOW)


def messages_and_exchanges(
    state: Knowledge, thing: TopicProfile | EntityProfile
) -> tuple[int, int]:
    link_to_thing = state.links[thing.id, "c1"]
    return link_to_thing.messages, link_to_thing.exchanges


def test_a_message_counts_once_however_often_it_names_something() -> None:
    state = counted(BEER_AND_SARAH)

    assert messages_and_exchanges(state, BEER) == (3, 3)
    assert messages_and_exchanges(state, SARAH) == (2, 2)


def test_messages_before_a_topic_was_known_do_not_count() -> None:
    assert messages_and_exchanges(counted(BEER_AND_SARAH, first=4), BEER) == (1, 1)


def test_a_conversation_that_is_counted_again_counts_no_more() -> None:
    once = counted(BEER_AND_SARAH)

    assert counted(once) == once


# Learning


def with_topic(
    topics: tuple[TopicProfile, ...], label: str, **fields: Any
) -> tuple[TopicProfile, ...]:
    learned = Learned(topics=(LearnedTopic(label=label, message_ids=("m0",), **fields),))
    return profiles.merge_topics(topics, learned, SOURCES, NOW)


def with_people(
    people: tuple[EntityProfile, ...], *names: str, **fields: Any
) -> tuple[EntityProfile, ...]:
    new = tuple(
        LearnedEntity(name=name, type="person", message_ids=("m0",), **fields) for name in names
    )
    return profiles.merge_entities(people, Learned(entities=new), SOURCES, NOW)


def test_learning_again_from_the_same_messages_changes_nothing() -> None:
    details: dict[str, Any] = {
        "relationship": "sister",
        "attributes": (("age", "7"),),
        "relations": (("works at", "Acme"),),
        "facts": ("Sings",),
    }
    people = with_people((), "Sarah", **details)

    assert with_people(people, "Sarah", **details) == people


def test_a_topic_is_part_of_one_that_is_not_part_of_it() -> None:
    topics = with_topic((), "A one")
    topics = with_topic(topics, "B two", parent="A one")
    topics = with_topic(topics, "A one", parent="B two")
    topics = with_topic(topics, "A one", parent="A one")

    parents = {topic.label: topic.parent_slug for topic in topics}
    assert parents == {"A one": None, "B two": "a-one"}


def test_a_cat_is_nobodys_brother_of_its_name() -> None:
    brother = with_people((), "Max", relationship="brother")
    cat = LearnedEntity(name="Max", relationship="mother's cat", message_ids=("m0",))

    both = profiles.merge_entities(brother, Learned(entities=(cat,)), SOURCES, NOW)

    assert {one.relationship for one in both} == {"brother", "mother's cat"}


@pytest.fixture
def sarah_chen() -> EntityProfile:
    """Known by her first name before."""
    [sarah] = with_people(with_people((), "Sarah"), "Sarah Chen")
    return sarah


def test_a_full_name_completes_a_first_name(sarah_chen: EntityProfile) -> None:
    assert sarah_chen.id == "entity/person/sarah"
    assert sarah_chen.name == "Sarah Chen"
    assert sarah_chen.aliases == ("Sarah",)


def test_a_first_name_that_one_has_is_theirs(sarah_chen: EntityProfile) -> None:
    assert len(with_people((sarah_chen,), "Sarah")) == 1


def test_a_first_name_that_two_have_is_nobodys() -> None:
    two = with_people((), "Sarah Chen", "Sarah Lee")

    assert len(with_people(two, "Sarah")) == 3
