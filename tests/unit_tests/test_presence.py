"""What a device tells of itself, and what is predicted from it."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import knowledge
from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.knowledge.presence import heartbeat, predict
from langchain_ctxbudget.knowledge.records import TopicConversation

NOW = datetime(2026, 3, 29, 9, 30, tzinfo=UTC)
SECOND, MINUTE, HOUR, DAY = (
    timedelta(**{unit: 1}) for unit in ("seconds", "minutes", "hours", "days")
)


def beat(path: str | None = "/", **rest: Any) -> knowledge.Heartbeat:
    return knowledge.Heartbeat(device_id=rest.pop("device_id", "phone"), path=path, **rest)


def topic(name: str, days_ago: float | None = None) -> knowledge.TopicProfile:
    return knowledge.TopicProfile(id=name, slug=name, label=name, last_engaged_at=_ago(days_ago))


def entity(name: str, days_ago: float | None = None) -> knowledge.EntityProfile:
    return knowledge.EntityProfile(id=name, name=name, last_engaged_at=_ago(days_ago))


def _ago(days: float | None) -> datetime | None:
    return None if days is None else NOW - days * DAY


def link(
    name: str, conversation: str, relevance: float = 0.0, hours: dict[int, int] | None = None
) -> Any:
    histogram = tuple(hours.get(hour, 0) for hour in range(24)) if hours else ()
    return TopicConversation(
        topic_id=name, conversation_id=conversation, relevance_score=relevance, hours=histogram
    )


def opened(
    active: str | None = None, *visible: str, ago: timedelta = timedelta(), name: str = "d"
) -> knowledge.ClientPresence:
    given = beat(device_id=name, active_conversation_id=active, visible_conversation_ids=visible)
    return heartbeat(None, given, NOW - ago)


def predicted(devices: Any, topics: Any, entities: Any, links: Any, now: datetime) -> Any:
    of = {(one.topic_id, one.conversation_id): one for one in links}
    return predict(
        devices, knowledge.Knowledge(topics=tuple(topics), entities=tuple(entities), links=of), now
    )


def test_what_is_open_counts_half() -> None:
    cases: list[tuple[list[knowledge.ClientPresence], list[Any], float | None]] = [
        ([opened("c1")], [link("t", "c1", 0.8)], 0.4),  # .5 * 1.0 * .8
        ([opened(None, "c1")], [link("t", "c1", 0.8)], 0.24),  # .5 * .6 * .8
        (
            [opened("c1", "c2")],
            [link("t", "c1", 0.4), link("t", "c2", 0.8)],
            0.24,
        ),  # .5 * max(1.0 * .4, .6 * .8)
        (
            [opened("c1"), opened(None, "c1", name="e")],
            [link("t", "c1", 0.8)],
            0.4,
        ),  # as it is most open
        ([opened("c1", ago=3 * MINUTE)], [link("t", "c1", 0.8)], None),  # offline
        ([opened("c1")], [link("t", "c1", 0.2)], 0.1),  # at the floor
        ([opened("c1")], [link("t", "c1", 0.19)], None),  # below it
    ]
    for devices, links, score in cases:
        expected = () if score is None else (("t", score),)
        assert predicted(devices, [topic("t")], [entity("t")], links, NOW) == (expected, expected)


def test_what_came_up_lately_counts_by_its_half_life() -> None:
    # .3 * .5 ** (days / 7); of 12 days that is below the floor, and -1 is another clock
    for days, score in (
        (0, 0.3),
        (7, 0.15),
        (3.5, 0.212132),
        (11, 0.100943),
        (12, None),
        (-1, 0.3),
        (None, None),
    ):
        expected = () if score is None else (("t", score),)
        assert predicted([], [topic("t", days)], [entity("t", days)], [], NOW) == (
            expected,
            expected,
        )


def test_what_is_usual_at_this_hour_counts_by_its_share() -> None:
    cases: list[tuple[dict[int, int], float]] = [
        ({9: 95}, 0.19),  # .2 * 95 / (95 + 5)
        ({8: 95, 10: 100}, 0.195),  # .2 * (95 + 100) / 200
        ({9: 1}, 0.033333),  # .2 * 1 / 6: once is no habit
    ]
    for hours, usual in cases:
        expected = (("t", round(0.3 + usual, 6)),)  # it came up just now
        links = [link("t", "c1", hours=hours)]
        assert predicted([], [topic("t", 0)], [entity("t", 0)], links, NOW) == (expected, expected)
    for hour, beside in ((0, 23), (23, 0)):
        links = [
            link("t", "c1", hours={hour: 55}),
            link("t", "c2", hours={beside: 40}),
            link("t", "c3"),
        ]
        now = NOW.replace(hour=hour).astimezone(timezone(5.5 * HOUR))
        assert predicted([], [topic("t")], [], links, now)[0] == (
            ("t", 0.19),
        )  # .2 * (55 + 40) / 100


def test_a_device_is_forgotten_after_ninety_silent_days() -> None:
    for gap, names in ((90 * DAY, ["new", "old"]), (90 * DAY + SECOND, ["new"])):
        store = InMemoryStore()
        drive(knowledge.presence.renew(store, "ada", knowledge.NOTHING, NOW, beat(device_id="old")))
        drive(
            knowledge.presence.renew(
                store, "ada", knowledge.NOTHING, NOW + gap, beat(device_id="new")
            )
        )
        assert [
            one.device_id for one in drive(knowledge.presence.devices(store, "ada", NOW))
        ] == names
