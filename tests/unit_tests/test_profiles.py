"""Topics and entities.

What is learned of them is merged, and their numbers are added up from conversations.
"""

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
from langchain_ctxbudget.knowledge.known import Kept
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
MANY = 40
SOURCES = {
    f"m{n}": Source(conversation_id="c1", message_id=f"m{n}", digest=f"d{n}") for n in range(MANY)
}


def topic(label: str = "Cycling", **rest: Any) -> TopicProfile:
    return TopicProfile(
        id=f"topic/{profiles.slug(label)}", slug=profiles.slug(label), label=label, **rest
    )


def test_topics_are_the_same_with_the_same_stems() -> None:
    for first, second, same in (
        ("Home brewing", "brewing at home", True),
        ("Home brewing", "HOME BREW", True),
        ("Home brewing", "Brewing", False),
        ("C#", "C++", False),
        (".NET", "net", False),
    ):
        assert (
            profiles.is_called(topic(first), second)
            is profiles.is_called(topic(second), first)
            is same
        )


def at(day: int, hour: int = 9) -> datetime:
    return datetime(2026, 1, day, hour, tzinfo=UTC)


def said(
    when: datetime | None = None, *, tokens: int = 10, from_user: bool = True
) -> profiles.Engagement:
    return profiles.Engagement(at=when, tokens=tokens, from_user=from_user)


def link(*messages: profiles.Engagement, conversation: str = "c1") -> TopicConversation:
    return profiles.engaged(TopicConversation(topic_id="t", conversation_id=conversation), messages)


MOMENTS = st.none() | st.datetimes(
    datetime(2025, 1, 1),
    datetime(2025, 3, 1),
    timezones=st.just(UTC),
)
SAID = st.lists(
    st.builds(profiles.Engagement, at=MOMENTS, tokens=st.integers(0, 99), from_user=st.booleans())
)


@given(SAID, SAID)
def test_counting_in_two_steps_is_counting_at_once(
    first: list[profiles.Engagement], second: list[profiles.Engagement]
) -> None:
    assert profiles.engaged(link(*first), second) == link(*first, *second)


def test_a_topic_adds_up_its_conversations() -> None:
    first = link(said(at(3)), said(at(3), from_user=False), said(at(4, 20)))
    after = profiles.measured(topic(), [first, link(said(at(8), tokens=4), conversation="c2")])
    assert (after.total_conversations, after.total_messages, after.total_acus) == (2, 4, 3)
    assert (after.total_tokens_spent, after.peak_hour) == (34, 9)
    assert (after.first_engaged_at, after.last_engaged_at) == (at(3), at(8))


def test_a_streak_is_days_in_a_row_up_to_the_last_one() -> None:
    for days, streak in (
        ([5], 1),
        ([3, 4, 5], 3),
        ([1, 2, 4, 5], 2),
        ([1, 2, 3, 9], 1),
        ([5, 5, 4], 2),
        ([], 0),
    ):
        links = [link(*(said(at(day)) for day in days), said())]
        assert profiles.measured(topic(), links).engagement_streak == streak


def test_importance_is_recency_frequency_and_breadth() -> None:
    cases: list[tuple[int, int, int | None, float]] = [
        (0, 0, None, 0.5),  # not known yet
        (5_000, 500, 0, 1.0),
        (100, 10, 30, 0.8),  # 0.4 * 0.5 + 0.35 + 0.25
        (1, 1, 0, 0.47757),  # 0.4 + 0.35 * 0.6931472 / 4.6151205 + 0.025
        (9, 1, None, 0.19962),  # 0.35 * 2.3025851 / 4.6151205 + 0.025
        (100, 10, -5, 1.0),
    ]
    for messages, conversations, days, score in cases:
        last = None if days is None else NOW - timedelta(days=days)
        one = topic(
            total_messages=messages, total_conversations=conversations, last_engaged_at=last
        )
        assert profiles.importance_at(one, NOW) == pytest.approx(score, abs=1e-5)
        assert profiles.importance_at(one.model_copy(update={"pinned": True}), NOW) == 1.0


BEER = TopicProfile(id="topic/beer", slug="beer", label="Beer", aliases=("ale",), made_by=BY_USER)
SARAH = EntityProfile(id="entity/person/sarah", name="Sarah", type="person", made_by=BY_USER)
TEXTS = ("I like beer.", "Nothing.", "Ale with Sarah!", "Sarah.", "Beer and beer and ale.", "No.")
Counts = list[tuple[int, int]]


def count(
    state: Knowledge, texts: Any = TEXTS, first: int = 0, end: int | None = None
) -> tuple[Knowledge, Counts]:
    """Counts a conversation from a message on.

    Returns messages and exchanges about beer and Sarah.
    """
    seen = opened(*texts).seen_with(COUNTER)
    entries = seen.entries[:end]
    progress = ProgressRecord()
    work = Work(
        scope=SCOPE,
        entries=entries,
        costs=seen.costs,
        first=first,
        progress=progress,
        there=None,
        kept=Kept(),
    )
    after = updated(state, work, Learned(), NOW)
    found = [after.links.get((thing.id, "c1")) for thing in (BEER, SARAH)]
    return after, [(one.messages, one.exchanges) if one else (0, 0) for one in found]


KNOWN = Knowledge(topics=(BEER,), entities=(SARAH,))


def test_a_message_counts_once_however_often_it_names_something() -> None:
    once, numbers = count(KNOWN)
    assert numbers == [(3, 3), (2, 2)]
    assert count(KNOWN, first=4)[1][0] == (1, 1)  # what came before it was known does not count
    assert count(once) == (once, [(3, 3), (2, 2)])  # taken again, it counts no more


def topics(
    known: tuple[TopicProfile, ...], *labels: str, **fields: Any
) -> tuple[TopicProfile, ...]:
    new = tuple(LearnedTopic(label=label, **{"message_ids": ("m0",), **fields}) for label in labels)
    return profiles.merge_topics(known, Learned(topics=new), SOURCES, NOW)


def entities(
    known: tuple[EntityProfile, ...], *names: str, **fields: Any
) -> tuple[EntityProfile, ...]:
    new = tuple(
        LearnedEntity(name=name, **{"type": "person", "message_ids": ("m0",), **fields})
        for name in names
    )
    return profiles.merge_entities(known, Learned(entities=new), SOURCES, NOW)


def test_learning_again_from_the_same_messages_changes_nothing() -> None:
    relations = (("works at", "Acme"),)
    details = {
        "relationship": "sister",
        "attributes": (("age", "7"),),
        "relations": relations,
        "facts": ("Sings",),
    }
    people = entities((), "Sarah", **details)
    assert entities(people, "Sarah", **details) == people


def test_a_topic_is_part_of_one_that_is_not_part_of_it() -> None:
    known = topics(topics((), "A one"), "B two", parent="A one")
    known = topics(known, "A one", parent="B two")
    known = topics(known, "A one", parent="A one")
    assert {one.label: one.parent_slug for one in known} == {"A one": None, "B two": "a-one"}


def test_a_full_name_completes_a_first_name_and_a_first_name_that_two_have_is_nobodys() -> None:
    [sarah] = entities(entities((), "Sarah"), "Sarah Chen")
    assert (sarah.id, sarah.name, sarah.aliases) == (
        "entity/person/sarah",
        "Sarah Chen",
        ("Sarah",),
    )
    assert len(entities((sarah,), "Sarah")) == 1
    assert len(entities(entities((), "Sarah Chen", "Sarah Lee"), "Sarah")) == 3
