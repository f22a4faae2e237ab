"""What a device tells of itself, and what is predicted from it."""

from __future__ import annotations

import asyncio
import doctest
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget.errors import InputError, MissingScopeError
from langchain_ctxbudget.flow import adrive, drive
from langchain_ctxbudget.knowledge import presence
from langchain_ctxbudget.knowledge.presence import Heartbeat, Prediction, as_of, heartbeat, predict
from langchain_ctxbudget.knowledge.records import ClientPresence, EntityProfile, TopicConversation, TopicProfile
from langchain_ctxbudget.knowledge.repositories import PRESENCE

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


def every_minute(minutes: int, each: Heartbeat) -> list[tuple[timedelta, Heartbeat]]:
    return [(minute * MINUTE, each) for minute in range(minutes + 1)]


# Heartbeats


def test_the_first_heartbeat_begins_a_session() -> None:
    given = Heartbeat(
        device_id="phone",
        active_conversation_id="c1",
        visible_conversation_ids=("c2", "c3"),
        active_notebook_id="n",
        active_persona_id="p",
        path="/chat/c1",
        local_time=NOW.astimezone(timezone(HOUR)),
    )
    assert heartbeat(None, given, NOW).model_dump() == {
        "device_id": "phone",
        "active_conversation_id": "c1",
        "visible_conversation_ids": ("c2", "c3"),
        "active_notebook_id": "n",
        "active_persona_id": "p",
        "last_navigation_path": "/chat/c1",
        "navigation_history": ({"path": "/chat/c1", "at": NOW},),
        "local_time": NOW,
        "session_started_at": NOW,
        "idle_since": None,
        "predicted_topics": (),
        "predicted_entities": (),
        "last_heartbeat_at": NOW,
        "is_online": True,
    }


@pytest.mark.parametrize(("gap", "began"), [(30 * MINUTE, NOW), (30 * MINUTE + SECOND, NOW + 30 * MINUTE + SECOND)])
def test_a_session_ends_after_thirty_silent_minutes(gap: timedelta, began: datetime) -> None:
    assert after((0 * DAY, beat()), (gap, beat())).session_started_at == began


def test_a_session_goes_on_as_long_as_heartbeats_come() -> None:
    assert after(*((n * 29 * MINUTE, beat()) for n in range(10))).session_started_at == NOW


def test_what_is_open_is_what_the_last_heartbeat_said() -> None:
    first = beat(active_conversation_id="c1", visible_conversation_ids=("c2",), active_notebook_id="n")
    known = after((0 * DAY, first), (MINUTE, beat(active_persona_id="p")))
    assert (known.active_conversation_id, known.visible_conversation_ids) == (None, ())
    assert (known.active_notebook_id, known.active_persona_id) == (None, "p")


def test_the_history_has_each_place_once_in_a_row_newest_last() -> None:
    paths = ["/", "/", "/a", "/a", None, "/", "/b"]
    known = after(*((n * MINUTE, beat(path)) for n, path in enumerate(paths)))
    assert [(visit.path, visit.at - NOW) for visit in known.navigation_history] == [
        ("/", 0 * MINUTE),
        ("/a", 2 * MINUTE),
        ("/", 5 * MINUTE),
        ("/b", 6 * MINUTE),
    ]
    assert known.last_navigation_path == "/b"


def test_the_history_has_the_fifty_newest_places() -> None:
    known = after(*((n * SECOND, beat(f"/{n}")) for n in range(60)))
    assert [visit.path for visit in known.navigation_history] == [f"/{n}" for n in range(10, 60)]


def test_the_history_goes_on_in_the_next_session() -> None:
    known = after((0 * DAY, beat("/a")), (DAY, beat("/a")), (DAY + MINUTE, beat("/b")))
    assert [(visit.path, visit.at) for visit in known.navigation_history] == [
        ("/a", NOW + DAY),
        ("/b", NOW + DAY + MINUTE),
    ]


def test_a_heartbeat_without_a_place_or_a_time_leaves_those_known() -> None:
    local = NOW.astimezone(timezone(5.5 * HOUR))
    known = after((0 * DAY, beat("/a", local_time=local)), (MINUTE, beat(None)))
    assert known.last_navigation_path == "/a"
    assert known.local_time == local


def test_what_was_predicted_stays_until_it_is_predicted_again() -> None:
    old = after((0 * DAY, beat())).model_copy(update={"predicted_topics": ("t",), "predicted_entities": ("e",)})
    new = heartbeat(old, beat("/a"), NOW + MINUTE)
    assert (new.predicted_topics, new.predicted_entities) == (("t",), ("e",))


def test_a_clock_that_is_behind_does_not_turn_time_back() -> None:
    known = after((MINUTE, beat("/a")), (0 * MINUTE, beat("/b")))
    assert known.last_heartbeat_at == NOW + MINUTE
    assert [visit.at for visit in known.navigation_history] == [NOW + MINUTE, NOW + MINUTE]


# Idle


def test_who_says_to_be_idle_is_so_since_it_was_said_first() -> None:
    known = after((0 * DAY, beat()), (MINUTE, beat(idle=True)), (2 * MINUTE, beat(idle=True)))
    assert known.idle_since == NOW + MINUTE


def test_a_first_heartbeat_may_be_idle() -> None:
    assert after((MINUTE, beat(idle=True))).idle_since == NOW + MINUTE


@pytest.mark.parametrize(("minutes", "since"), [(4, None), (5, 5), (9, 5)])
def test_who_changes_nothing_for_five_minutes_is_idle(minutes: int, since: int | None) -> None:
    expected = None if since is None else NOW + since * MINUTE
    assert after(*every_minute(minutes, beat())).idle_since == expected


@pytest.mark.parametrize(
    "change",
    [
        {"path": "/b"},
        {"active_conversation_id": "c1"},
        {"visible_conversation_ids": ("c1",)},
        {"active_notebook_id": "n"},
        {"active_persona_id": "p"},
    ],
    ids=lambda change: next(iter(change)),
)
@pytest.mark.parametrize("idle", [False, True], ids=["silent", "said so"])
def test_any_change_ends_idleness_for_five_minutes(change: dict[str, Any], idle: bool) -> None:
    idle_beats = every_minute(9, beat(idle=idle))
    assert after(*idle_beats).idle_since
    changed = [(minute * MINUTE, beat(**change)) for minute in range(10, 16)]
    assert after(*idle_beats, *changed[:1]).idle_since is None
    assert after(*idle_beats, *changed[:5]).idle_since is None
    assert after(*idle_beats, *changed).idle_since == NOW + 15 * MINUTE


def test_who_says_to_be_idle_no_more_is_active_for_five_minutes() -> None:
    beats = [*every_minute(9, beat(idle=True)), *((minute * MINUTE, beat()) for minute in range(10, 16))]
    assert after(*beats[:11]).idle_since is None
    assert after(*beats[:15]).idle_since is None
    assert after(*beats).idle_since == NOW + 15 * MINUTE


def test_who_is_idle_while_something_changes_is_so_since_then() -> None:
    assert after(*every_minute(3, beat(idle=True)), (4 * MINUTE, beat("/b", idle=True))).idle_since == NOW + 4 * MINUTE


def test_who_was_idle_at_a_change_and_is_so_no_more_is_active() -> None:
    known = after((0 * DAY, beat()), (MINUTE, beat("/b", idle=True)), (9 * MINUTE, beat("/b")))
    assert known.idle_since is None


def test_a_device_that_gives_no_paths_is_idle_only_when_it_says_so() -> None:
    assert after(*every_minute(9, beat(None))).idle_since is None
    assert after(*every_minute(9, beat(None)), (10 * MINUTE, beat(None, idle=True))).idle_since == NOW + 10 * MINUTE
    assert after((0 * DAY, beat(None, idle=True)), (MINUTE, beat(None))).idle_since is None


def test_a_change_at_the_place_where_it_was_counts() -> None:
    opens = [(minute * MINUTE, beat(None, active_conversation_id="c1")) for minute in range(4, 10)]
    assert after((0 * DAY, beat()), *opens[:-1]).idle_since is None
    assert after((0 * DAY, beat()), *opens).idle_since == NOW + 9 * MINUTE


def test_a_new_session_begins_active() -> None:
    assert after(*every_minute(9, beat()), (DAY, beat())).idle_since is None


@pytest.mark.parametrize(("gap", "online"), [(2 * MINUTE, True), (2 * MINUTE + SECOND, False)])
def test_a_device_is_online_for_two_silent_minutes(gap: timedelta, online: bool) -> None:
    assert as_of(after((0 * DAY, beat())), NOW + gap).is_online is online


def test_a_heartbeat_brings_a_device_back_online() -> None:
    gone = as_of(after((0 * DAY, beat())), NOW + HOUR)
    assert heartbeat(gone, beat(), NOW + HOUR).is_online


@pytest.mark.parametrize("name", ["", None, 7])
def test_a_heartbeat_names_its_device(name: Any) -> None:
    with pytest.raises(InputError, match="device_id"):
        Heartbeat(device_id=name)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("visible_conversation_ids", "c1", "list of ids, not 'c1'"),
        ("visible_conversation_ids", None, "list of ids, not None"),
        ("visible_conversation_ids", ["c1", 5], "list of ids, not of 5"),
        ("visible_conversation_ids", ["c"] * 101, "at most 100 ids, not 101"),
        ("visible_conversation_ids", ["c" * 2_001], "at most 2,000 characters, not 2,001"),
        ("active_conversation_id", 5, "active_conversation_id must be a string or None, not 5"),
        ("active_notebook_id", 5, "active_notebook_id must be"),
        ("active_persona_id", b"p", "active_persona_id must be"),
        ("path", 5, "path must be a string or None, not 5"),
        ("path", "/" * 2_001, "path must have at most 2,000 characters, not 2,001"),
        ("device_id", "d" * 2_001, "device_id must have at most 2,000 characters, not 2,001"),
        ("local_time", "2026-01-01", "local_time must be a datetime or None, not '2026-01-01'"),
        ("idle", "no", "idle must be true or false, not 'no'"),
    ],
)
def test_what_no_device_can_have_open_is_refused(name: str, value: Any, told: str) -> None:
    with pytest.raises(InputError, match=re.escape(told)):
        Heartbeat(**{"device_id": "d", name: value})


def test_a_list_of_what_is_visible_is_the_same_as_a_tuple() -> None:
    as_list, as_tuple = (beat(visible_conversation_ids=kind(["c1", "c2"])) for kind in (list, tuple))
    assert after((0 * DAY, as_tuple), (6 * MINUTE, as_list)) == after((0 * DAY, as_list), (6 * MINUTE, as_tuple))


def test_a_local_time_without_an_offset_is_refused() -> None:
    with pytest.raises(InputError, match="UTC offset"):
        beat(local_time=datetime(2026, 1, 1))  # noqa: DTZ001


# Predictions


def topic(name: str, days_ago: float | None = None) -> TopicProfile:
    return TopicProfile(id=name, slug=name, label=name, last_engaged_at=_ago(days_ago))


def entity(name: str, days_ago: float | None = None) -> EntityProfile:
    return EntityProfile(id=name, name=name, last_mentioned_at=_ago(days_ago))


def _ago(days: float | None) -> datetime | None:
    return None if days is None else NOW - days * DAY


def link(
    name: str, conversation: str, relevance: float = 0.0, hours: dict[int, int] | None = None
) -> TopicConversation:
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
        ([opened("c1", "c1")], [link("t", "c1", 0.8)], 0.4),  # the one that is active is visible, too
        ([opened("c1", "c2")], [link("t", "c1", 0.4), link("t", "c2", 0.8)], 0.24),  # .5 * max(1.0 * .4, .6 * .8)
        ([opened("c1", "c2")], [link("t", "c2", 0.8), link("t", "c1", 0.4)], 0.24),
        ([opened("c1"), opened("c2", name="e")], [link("t", "c2", 0.8)], 0.4),  # on any device
        ([opened(None, "c1"), opened("c1", name="e")], [link("t", "c1", 0.8)], 0.4),  # as it is most open
        ([opened("c1"), opened(None, "c1", name="e")], [link("t", "c1", 0.8)], 0.4),
        ([opened("c1", ago=3 * MINUTE)], [link("t", "c1", 0.8)], None),  # offline
        ([opened("c1")], [link("t", "c2", 0.8)], None),  # not open
        ([opened("c1")], [link("u", "c1", 0.8)], None),  # of something else
        ([opened("c1")], [link("t", "c1", 0.2)], 0.1),  # at the floor
        ([opened("c1")], [link("t", "c1", 0.19)], None),  # below it
    ],
)
def test_what_is_open_counts_half(
    devices: list[ClientPresence], links: list[TopicConversation], score: float | None
) -> None:
    expected = () if score is None else (("t", pytest.approx(score)),)
    assert predict(devices, [topic("t")], [], links, NOW).topics == expected
    assert predict(devices, [], [entity("t")], links, NOW).entities == expected


@pytest.mark.parametrize(
    ("days", "score"),
    [
        (0, 0.3),
        (7, 0.15),  # .3 / 2
        (3.5, 0.212132),  # .3 / sqrt(2)
        (11, 0.100943),  # .3 * .5 ** (11 / 7)
        (12, None),  # .091424
        (-1, 0.3),  # another clock
        (None, None),
    ],
)
def test_what_came_up_lately_counts_by_its_half_life(days: float | None, score: float | None) -> None:
    expected = () if score is None else (("t", score),)
    assert predict([], [topic("t", days)], [], [], NOW).topics == expected
    assert predict([], [], [entity("t", days)], [], NOW).entities == expected


@pytest.mark.parametrize(
    ("hours", "usual"),
    [
        ({9: 95}, 0.19),  # .2 * 95 / (95 + 5)
        ({8: 95}, 0.095),  # .2 * 47.5 / 100
        ({8: 95, 10: 100}, 0.0975),  # .2 * (47.5 + 50) / 200
        ({9: 60, 10: 30, 20: 5}, 0.15),  # .2 * (60 + 15) / 100
        ({7: 95, 11: 95}, 0.0),
        ({9: 1}, 0.033333),  # .2 * 1 / 6: once is no habit
        (dict.fromkeys(range(24), 100), 0.016632),  # .2 * 200 / 2,405
    ],
)
def test_what_is_usual_at_this_hour_counts_by_its_share(hours: dict[int, int], usual: float) -> None:
    links = [link("t", "c1", hours=hours)]
    expected = (("t", round(0.3 + usual, 6)),)  # it came up just now
    assert predict([], [topic("t", 0)], [], links, NOW).topics == expected
    assert predict([], [], [entity("t", 0)], links, NOW).entities == expected


@pytest.mark.parametrize(("hour", "beside"), [(0, 23), (23, 0)])
def test_midnight_is_an_hour_like_others(hour: int, beside: int) -> None:
    links = [link("t", "c1", hours={hour: 55, beside: 40})]
    assert predict([], [topic("t")], [], links, NOW.replace(hour=hour)).topics == (("t", 0.15),)  # .2 * 75 / 100


def test_hours_of_all_conversations_are_added_up() -> None:
    links = [link("t", "c1", hours={9: 50}), link("t", "c2", hours={9: 25, 20: 20}), link("t", "c3")]
    assert predict([], [topic("t")], [], links, NOW).topics == (("t", 0.15),)


@pytest.mark.parametrize("offset", [-11, 0, 5.5, 14])
def test_the_hour_is_the_same_wherever_the_clock_stands(offset: float) -> None:
    now = NOW.astimezone(timezone(offset * HOUR))
    assert predict([], [topic("t")], [], [link("t", "c1", hours={9: 95})], now).topics == (("t", 0.19),)


def test_the_three_reasons_add_up() -> None:
    links = [link("t", "c1", 1.0, {9: 95}), link("u", "c1", 0.5)]
    found = predict([opened("c1")], [topic("t", 7), topic("u")], [entity("e", 0)], links, NOW)
    assert found == Prediction((("t", 0.84), ("u", 0.25)), (("e", 0.3),))  # .5 + .15 + .19


def test_the_five_likeliest_are_named_and_of_equals_the_first() -> None:
    names = ["g", "b", "f", "a", "e", "c", "d"]
    for order in (names, names[::-1]):
        found = predict([], [topic(name, 1) for name in order] + [topic("z", 0)], [], [], NOW)
        assert [name for name, _ in found.topics] == ["z", "a", "b", "c", "d"]
    found = predict([], [], [entity(name, 1) for name in names], [], NOW)
    assert [name for name, _ in found.entities] == ["a", "b", "c", "d", "e"]


def test_nothing_is_predicted_of_nothing() -> None:
    assert predict([], [], [], [], NOW) == Prediction((), ())


# In a store

Run = Callable[[Any], Any]


@pytest.fixture(params=["sync", "async"])
def run(request: pytest.FixtureRequest) -> Run:
    return drive if request.param == "sync" else lambda flow: asyncio.run(adrive(flow))


def test_a_heartbeat_is_taken_in(run: Run) -> None:
    store = InMemoryStore()
    run(presence.record(store, "ada", beat("/a"), NOW))
    known = run(presence.record(store, "ada", beat("/b"), NOW + MINUTE))
    assert known == after((0 * DAY, beat("/a")), (MINUTE, beat("/b")))
    assert run(presence.devices(store, "ada", NOW + MINUTE)) == [known]


def test_every_device_of_a_user_is_known(run: Run) -> None:
    store = InMemoryStore()
    for user, name, gap in (("ada", "tablet", 0), ("ada", "phone", 3), ("grace", "phone", 0)):
        run(presence.record(store, user, beat(device_id=name), NOW + gap * MINUTE))
    known = run(presence.devices(store, "ada", NOW + 3 * MINUTE))
    assert [(device.device_id, device.is_online) for device in known] == [("phone", True), ("tablet", False)]


@pytest.mark.parametrize(("gap", "names"), [(90 * DAY, ["new", "old"]), (90 * DAY + SECOND, ["new"])])
def test_a_device_is_forgotten_after_ninety_silent_days(run: Run, gap: timedelta, names: list[str]) -> None:
    store = InMemoryStore()
    run(presence.record(store, "ada", beat(device_id="old"), NOW))
    assert [d.device_id for d in run(presence.devices(store, "ada", NOW + gap))] == names[1:]
    run(presence.record(store, "ada", beat(device_id="new"), NOW + gap))
    assert [d.device_id for d in run(PRESENCE.all(store, "ada"))] == names


def test_a_forgotten_device_that_comes_back_is_a_new_one(run: Run) -> None:
    store = InMemoryStore()
    run(presence.record(store, "ada", beat("/a"), NOW))
    known = run(presence.record(store, "ada", beat("/b"), NOW + 91 * DAY))
    assert [visit.path for visit in known.navigation_history] == ["/b"]
    assert run(presence.devices(store, "ada", NOW + 91 * DAY)) == [known]


def test_a_heartbeat_is_one_read_and_one_write() -> None:
    store = InMemoryStore()
    drive(presence.record(store, "ada", beat(device_id="old"), NOW))
    calls = []
    flow = presence.record(store, "ada", beat(), NOW + 91 * DAY)
    call = next(flow)
    with suppress(StopIteration):
        while True:
            calls.append(call.writes)
            call = flow.send(call.sync())
    assert calls == [False, True]


def test_nothing_is_taken_in_without_a_user(run: Run) -> None:
    with pytest.raises(MissingScopeError):
        run(presence.record(InMemoryStore(), "", beat(), NOW))


def test_the_examples_run() -> None:
    assert doctest.testmod(presence).failed == 0
