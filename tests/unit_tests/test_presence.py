"""What a device tells of itself, and what is predicted from it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget.errors import InputError, MissingScopeError
from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.knowledge import ClientPresence, EntityProfile, Heartbeat, Prediction, TopicProfile, presence
from langchain_ctxbudget.knowledge.presence import as_of, heartbeat, predict
from langchain_ctxbudget.knowledge.records import TopicConversation

NOW = datetime(2026, 3, 29, 9, 30, tzinfo=UTC)
SECOND, MINUTE, HOUR, DAY = (timedelta(**{unit: 1}) for unit in ("seconds", "minutes", "hours", "days"))


def beat(path: str | None = "/", **rest: Any) -> Heartbeat:
    return Heartbeat(device_id=rest.pop("device_id", "phone"), path=path, **rest)


def after(*beats: tuple[timedelta, Heartbeat]) -> ClientPresence:
    """What is known after heartbeats, each so long after `NOW`."""
    known: ClientPresence | None = None
    for when, each in beats:
        known = heartbeat(known, each, NOW + when)
    assert known
    return known


def every_minute(first: int, last: int, each: Heartbeat) -> list[tuple[timedelta, Heartbeat]]:
    return [(minute * MINUTE, each) for minute in range(first, last + 1)]


# Heartbeats


def test_a_heartbeat_says_what_is_open_now() -> None:
    first = beat("/chat", active_conversation_id="c1", visible_conversation_ids=["c2", "c3"], active_notebook_id="n")
    known = after((0 * DAY, first))
    assert (known.active_conversation_id, known.visible_conversation_ids) == ("c1", ("c2", "c3"))
    assert (known.session_started_at, known.last_heartbeat_at, known.is_online) == (NOW, NOW, True)
    local = NOW.astimezone(timezone(5.5 * HOUR))
    known = after(
        (0 * DAY, first), (MINUTE, beat(None, active_persona_id="p", local_time=local)), (2 * MINUTE, beat(None))
    )
    assert (known.active_conversation_id, known.visible_conversation_ids, known.active_notebook_id) == (None, (), None)
    assert (known.last_navigation_path, known.local_time) == ("/chat", local)  # not told again, so as before


def test_a_session_ends_after_thirty_silent_minutes() -> None:
    for gap, began in ((30 * MINUTE, NOW), (30 * MINUTE + SECOND, NOW + 30 * MINUTE + SECOND)):
        assert after((0 * DAY, beat()), (gap, beat())).session_started_at == began
    assert after(*((n * 29 * MINUTE, beat()) for n in range(10))).session_started_at == NOW


def test_the_history_has_each_place_once_in_a_row_and_the_fifty_newest() -> None:
    paths = ["/", "/", "/a", "/a", None, "/", "/b"]
    known = after(*((n * MINUTE, beat(path)) for n, path in enumerate(paths)))
    visits = [(visit.path, (visit.at - NOW) / MINUTE) for visit in known.navigation_history]
    assert visits == [("/", 0), ("/a", 2), ("/", 5), ("/b", 6)]
    known = after(*((n * SECOND, beat(f"/{n}")) for n in range(60)))
    assert [visit.path for visit in known.navigation_history] == [f"/{n}" for n in range(10, 60)]


@pytest.mark.parametrize(
    ("beats", "since"),
    [
        ([*every_minute(0, 4, beat())], None),
        ([*every_minute(0, 9, beat())], 5),  # five minutes at one place
        ([(0 * DAY, beat()), *every_minute(1, 2, beat(idle=True))], 1),  # since it said so first
        ([*every_minute(0, 3, beat(idle=True)), (4 * MINUTE, beat("/b", idle=True))], 4),
        ([*every_minute(0, 9, beat(idle=True)), *every_minute(10, 14, beat())], None),  # says so no more
        ([*every_minute(0, 9, beat(idle=True)), *every_minute(10, 15, beat())], 15),
        ([*every_minute(0, 9, beat(None))], None),  # tells no paths
        ([*every_minute(0, 9, beat(None)), (10 * MINUTE, beat(None, idle=True))], 10),
        ([*every_minute(0, 9, beat()), (DAY, beat())], None),  # a new session
        *(
            ([*every_minute(0, 9, beat()), *every_minute(10, last, beat(**change))], since)
            for change in (
                {"path": "/b"},
                {"active_conversation_id": "c1"},
                {"visible_conversation_ids": ["c1"]},
                {"active_notebook_id": "n"},
                {"active_persona_id": "p"},
            )
            for last, since in ((14, None), (15, 15))
        ),
    ],
)
def test_a_device_is_idle_when_it_says_so_or_nothing_changes(beats: Any, since: int | None) -> None:
    assert after(*beats).idle_since == (None if since is None else NOW + since * MINUTE)


def test_a_device_is_online_for_two_silent_minutes() -> None:
    known = after((0 * DAY, beat()))
    assert [as_of(known, NOW + gap).is_online for gap in (2 * MINUTE, 2 * MINUTE + SECOND)] == [True, False]
    assert heartbeat(as_of(known, NOW + HOUR), beat(), NOW + HOUR).is_online


def test_what_no_device_can_have_open_is_refused() -> None:
    no_time = datetime(2026, 1, 1)  # noqa: DTZ001 - without its offset
    wrong: dict[str, list[Any]] = {
        "device_id": ["", None, 7, "d" * 2_001],
        "visible_conversation_ids": ["c1", None, ["c1", 5], ["c"] * 101, ["c" * 2_001]],
        **{name: [5] for name in ("active_conversation_id", "active_notebook_id", "active_persona_id")},
        "path": [5, "/" * 2_001],
        "local_time": ["2026-01-01", no_time],
        "idle": ["no"],
        "battery": [5],
    }
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(InputError, match=name):
                Heartbeat(**{"device_id": "d", name: value})


# Predictions


def topic(name: str, days_ago: float | None = None) -> TopicProfile:
    return TopicProfile(id=name, slug=name, label=name, last_engaged_at=_ago(days_ago))


def entity(name: str, days_ago: float | None = None) -> EntityProfile:
    return EntityProfile(id=name, name=name, last_engaged_at=_ago(days_ago))


def _ago(days: float | None) -> datetime | None:
    return None if days is None else NOW - days * DAY


def link(name: str, conversation: str, relevance: float = 0.0, hours: dict[int, int] | None = None) -> Any:
    histogram = tuple(hours.get(hour, 0) for hour in range(24)) if hours else ()
    return TopicConversation(topic_id=name, conversation_id=conversation, relevance_score=relevance, hours=histogram)


def opened(active: str | None = None, *visible: str, ago: timedelta = timedelta(), name: str = "d") -> ClientPresence:
    given = beat(device_id=name, active_conversation_id=active, visible_conversation_ids=visible)
    return heartbeat(None, given, NOW - ago)


@pytest.mark.parametrize(
    ("devices", "links", "score"),
    [
        ([opened("c1")], [link("t", "c1", 0.8)], 0.4),  # .5 * 1.0 * .8
        ([opened(None, "c1")], [link("t", "c1", 0.8)], 0.24),  # .5 * .6 * .8
        ([opened("c1", "c2")], [link("t", "c1", 0.4), link("t", "c2", 0.8)], 0.24),  # .5 * max(1.0 * .4, .6 * .8)
        ([opened("c1"), opened("c2", name="e")], [link("t", "c2", 0.8)], 0.4),  # on any device
        ([opened("c1"), opened(None, "c1", name="e")], [link("t", "c1", 0.8)], 0.4),  # as it is most open
        ([opened("c1", ago=3 * MINUTE)], [link("t", "c1", 0.8)], None),  # offline
        ([opened("c1")], [link("t", "c2", 0.8)], None),  # not open
        ([opened("c1")], [link("t", "c1", 0.2)], 0.1),  # at the floor
        ([opened("c1")], [link("t", "c1", 0.19)], None),  # below it
    ],
)
def test_what_is_open_counts_half(devices: Any, links: Any, score: float | None) -> None:
    expected = () if score is None else (("t", pytest.approx(score)),)
    assert predict(devices, [topic("t")], [], links, NOW).topics == expected
    assert predict(devices, [], [entity("t")], links, NOW).entities == expected


def test_what_came_up_lately_counts_by_its_half_life() -> None:
    # .3 * .5 ** (days / 7); of 12 days that is below the floor, and -1 is another clock
    for days, score in ((0, 0.3), (7, 0.15), (3.5, 0.212132), (11, 0.100943), (12, None), (-1, 0.3), (None, None)):
        expected = () if score is None else (("t", score),)
        assert predict([], [topic("t", days)], [entity("t", days)], [], NOW) == Prediction(expected, expected)


def test_what_is_usual_at_this_hour_counts_by_its_share() -> None:
    cases: list[tuple[dict[int, int], float]] = [
        ({9: 95}, 0.19),  # .2 * 95 / (95 + 5)
        ({8: 95}, 0.095),  # .2 * 47.5 / 100
        ({8: 95, 10: 100}, 0.0975),  # .2 * (47.5 + 50) / 200
        ({7: 95, 11: 95}, 0.0),
        ({9: 1}, 0.033333),  # .2 * 1 / 6: once is no habit
    ]
    for hours, usual in cases:
        expected = (("t", round(0.3 + usual, 6)),)  # it came up just now
        links = [link("t", "c1", hours=hours)]
        assert predict([], [topic("t", 0)], [entity("t", 0)], links, NOW) == Prediction(expected, expected)
    for hour, beside in ((0, 23), (23, 0)):
        links = [link("t", "c1", hours={hour: 55}), link("t", "c2", hours={beside: 40}), link("t", "c3")]
        for offset in (-11, 0, 5.5, 14):
            now = NOW.replace(hour=hour).astimezone(timezone(offset * HOUR))
            assert predict([], [topic("t")], [], links, now).topics == (("t", 0.15),)  # .2 * 75 / 100


def test_the_reasons_add_up_and_the_five_likeliest_are_named() -> None:
    links = [link("t", "c1", 1.0, {9: 95}), link("u", "c1", 0.5)]
    found = predict([opened("c1")], [topic("t", 7), topic("u")], [entity("e", 0)], links, NOW)
    assert found == Prediction((("t", 0.84), ("u", 0.25)), (("e", 0.3),))  # .5 + .15 + .19
    names = ["g", "b", "f", "a", "e", "c", "d"]
    for order in (names, names[::-1]):
        found = predict([], [topic(name, 1) for name in order] + [topic("z", 0)], [], [], NOW)
        assert [name for name, _ in found.topics] == ["z", "a", "b", "c", "d"]


# In a store


def test_every_device_of_a_user_is_known_and_of_nobody_else() -> None:
    store = InMemoryStore()
    for user, name, gap in (("ada", "tablet", 0), ("ada", "phone", 3), ("grace", "phone", 0)):
        drive(presence.record(store, user, beat(device_id=name), NOW + gap * MINUTE))
    known = drive(presence.devices(store, "ada", NOW + 3 * MINUTE))
    assert [(device.device_id, device.is_online) for device in known] == [("phone", True), ("tablet", False)]
    with pytest.raises(MissingScopeError):
        drive(presence.record(store, "", beat(), NOW))


def test_a_device_is_forgotten_after_ninety_silent_days() -> None:
    for gap, names in ((90 * DAY, ["new", "old"]), (90 * DAY + SECOND, ["new"])):
        store = InMemoryStore()
        drive(presence.record(store, "ada", beat(device_id="old"), NOW))
        drive(presence.record(store, "ada", beat(device_id="new"), NOW + gap))
        assert [one.device_id for one in drive(presence.devices(store, "ada", NOW))] == names
    back = drive(presence.record(store, "ada", beat("/b", device_id="new"), NOW + 300 * DAY))
    assert [visit.path for visit in back.navigation_history] == ["/b"]
