"""What a device tells of itself, and what is predicted from it."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import knowledge
from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.knowledge.presence import heartbeat, predict
from langchain_ctxbudget.knowledge.records import TopicConversation

NOW = datetime(2026, 3, 29, 9, 30, tzinfo=UTC)
INDIA = timezone(timedelta(hours=5, minutes=30))
Predicted = tuple[tuple[str, float], ...]
"""Ids with their scores, the best first."""


def ago(days: float | None) -> datetime | None:
    if days is None:
        return None
    return NOW - timedelta(days=days)


def topic(days_ago: float | None = None) -> knowledge.TopicProfile:
    return knowledge.TopicProfile(id="t", slug="t", label="t", last_engaged_at=ago(days_ago))


def entity(days_ago: float | None = None) -> knowledge.EntityProfile:
    return knowledge.EntityProfile(id="t", name="t", last_engaged_at=ago(days_ago))


def link(conversation: str, relevance: float = 0.0, hours: dict[int, int] | None = None) -> Any:
    """Says that the topic came up in a conversation, how much of it, and at which hours."""
    histogram: tuple[int, ...] = ()
    if hours:
        histogram = tuple(hours.get(hour, 0) for hour in range(24))
    return TopicConversation(
        topic_id="t", conversation_id=conversation, relevance_score=relevance, hours=histogram
    )


def beat(device_id: str, **fields: Any) -> knowledge.Heartbeat:
    return knowledge.Heartbeat(device_id=device_id, path="/", **fields)


def device(
    active: str | None = None,
    *visible: str,
    minutes_ago: int = 0,
    device_id: str = "phone",
) -> knowledge.ClientPresence:
    """A device with a conversation in front and others beside it, last heard some minutes ago."""
    news = beat(device_id, active_conversation_id=active, visible_conversation_ids=visible)
    return heartbeat(None, news, NOW - timedelta(minutes=minutes_ago))


def predicted(
    devices: Sequence[knowledge.ClientPresence] = (),
    links: Sequence[Any] = (),
    days_ago: float | None = None,
    now: datetime = NOW,
) -> tuple[Predicted, Predicted]:
    """What is predicted of a topic and an entity that are linked alike."""
    by_conversation = {(item.topic_id, item.conversation_id): item for item in links}
    state = knowledge.Knowledge(
        topics=(topic(days_ago),), entities=(entity(days_ago),), links=by_conversation
    )
    return predict(devices, state, now)


# What is open counts half


@pytest.mark.parametrize(
    ("devices", "links", "score"),
    [
        ([device("c1")], [link("c1", 0.8)], 0.4),  # .5 * 1.0 * .8
        ([device(None, "c1")], [link("c1", 0.8)], 0.24),  # .5 * .6 * .8
        ([device("c1", "c2")], [link("c1", 0.4), link("c2", 0.8)], 0.24),  # .5 * .6 * .8
        (
            [device("c1"), device(None, "c1", device_id="laptop")],
            [link("c1", 0.8)],
            0.4,
        ),
        ([device("c1")], [link("c1", 0.2)], 0.1),
    ],
    ids=["in front", "beside", "the better of two", "as it is most open", "at the floor"],
)
def test_what_is_open_counts_half(
    devices: list[knowledge.ClientPresence], links: list[Any], score: float
) -> None:
    assert predicted(devices, links) == ((("t", score),), (("t", score),))


def test_what_is_open_on_a_silent_device_does_not_count() -> None:
    assert predicted([device("c1", minutes_ago=3)], [link("c1", 0.8)]) == ((), ())


def test_what_is_below_the_floor_is_not_predicted() -> None:
    assert predicted([device("c1")], [link("c1", 0.19)]) == ((), ())


# What came up lately


@pytest.mark.parametrize(
    ("days_ago", "score"),
    [(0, 0.3), (7, 0.15), (3.5, 0.212132), (11, 0.100943), (-1, 0.3)],
    ids=["now", "a half-life", "half of it", "just above the floor", "another clock"],
)
def test_what_came_up_lately_counts_by_its_half_life(days_ago: float, score: float) -> None:
    assert predicted(days_ago=days_ago) == ((("t", score),), (("t", score),))


@pytest.mark.parametrize("days_ago", [12, None], ids=["long ago", "never"])
def test_what_did_not_come_up_lately_is_not_predicted(days_ago: float | None) -> None:
    assert predicted(days_ago=days_ago) == ((), ())


# What is usual at this hour


@pytest.mark.parametrize(
    ("hours", "score"),
    [
        ({9: 95}, 0.49),  # .3 + .2 * 95 / (95 + 5)
        ({8: 95, 10: 100}, 0.495),  # .3 + .2 * (95 + 100) / 200
        ({9: 1}, 0.333333),  # .3 + .2 * 1 / 6
    ],
    ids=["this hour", "hours beside it", "once is no habit"],
)
def test_what_is_usual_at_this_hour_counts_by_its_share(
    hours: dict[int, int], score: float
) -> None:
    links = [link("c1", hours=hours)]

    assert predicted(links=links, days_ago=0) == ((("t", score),), (("t", score),))


@pytest.mark.parametrize(("hour", "beside"), [(0, 23), (23, 0)])
def test_the_hours_beside_midnight_are_neighbours_in_any_zone(hour: int, beside: int) -> None:
    links = [link("c1", hours={hour: 55}), link("c2", hours={beside: 40}), link("c3")]
    now = NOW.replace(hour=hour).astimezone(INDIA)

    topics, _ = predicted(links=links, now=now)

    assert topics == (("t", 0.19),)  # .2 * 95 / 100


# Devices


@pytest.mark.parametrize(
    ("silence", "names"),
    [
        (timedelta(days=90), ["new", "old"]),
        (timedelta(days=90, seconds=1), ["new"]),
    ],
    ids=["ninety days", "a second more"],
)
def test_a_device_is_forgotten_after_ninety_silent_days(
    silence: timedelta, names: list[str]
) -> None:
    store = InMemoryStore()
    nothing = knowledge.NOTHING

    drive(knowledge.presence.renew(store, "ada", nothing, NOW, beat("old")))
    drive(knowledge.presence.renew(store, "ada", nothing, NOW + silence, beat("new")))

    devices = drive(knowledge.presence.devices(store, "ada", NOW))
    assert [presence.device_id for presence in devices] == names
