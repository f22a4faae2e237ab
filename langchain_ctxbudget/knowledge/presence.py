"""What a user has open on their devices, and what they are likely to speak of next.

A device tells of itself by heartbeats. What is open on it, what came up lately and what usually comes up at this hour
say which topics and entities are likely next, so that their bundles can be built before they are asked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from langgraph.store.base import BaseStore

from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.knowledge.records import (
    ClientPresence,
    EntityProfile,
    TopicConversation,
    TopicProfile,
    Visit,
)
from langchain_ctxbudget.knowledge.repositories import PRESENCE
from langchain_ctxbudget.stores import bulk

NEW_SESSION_AFTER = timedelta(minutes=30)
"""Without a heartbeat; the next one begins a session."""
IDLE_AFTER = timedelta(minutes=5)
"""Without a change; a device that gives no paths is idle only when it says so."""
OFFLINE_AFTER = timedelta(minutes=2)
"""Without a heartbeat."""
FORGOTTEN_AFTER = timedelta(days=90)
"""Without a heartbeat."""
MOST_VISITS = 50
"""In a device's navigation history."""
MOST_VISIBLE = 100
"""Conversations that one device can show at once."""
MOST_CHARACTERS = 2_000
"""Of an id or a path that a device tells."""

OPEN, RECENT, USUAL = 0.5, 0.3, 0.2
"""What counts how much for a prediction; a score is from 0 to 1."""
ACTIVE, VISIBLE = 1.0, 0.6
"""What an open conversation counts."""
HALF_LIFE = timedelta(days=7)
"""After which what came up counts half as recent."""
BESIDE = 0.5
"""What a message counts for the hour before and the hour after its own."""
NO_HABIT = 5
"""Messages that are added to all of a topic's at other hours, so that a single one is no habit."""
FLOOR = 0.1
"""The least score of a prediction: that of what came up eleven days ago, and nothing else speaks for."""
MOST_PREDICTED = 5
"""Topics, and as many entities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """What a device tells of itself, every minute or so and when something changes.

    Raises:
        InputError: no device, more than `MOST_VISIBLE` conversations, a text of more than `MOST_CHARACTERS`, a local
            time without its UTC offset, or a value of another type.

    Example:
        >>> Heartbeat(device_id="phone", active_conversation_id="c1", path="/chat/c1").idle
        False
    """

    device_id: str
    active_conversation_id: str | None = None
    visible_conversation_ids: Sequence[str] = ()
    active_notebook_id: str | None = None
    active_persona_id: str | None = None
    path: str | None = None
    """Where in the application; None: where it was before."""
    local_time: datetime | None = None
    """With its UTC offset."""
    idle: bool = False
    """Whether the user is known to do nothing."""

    def __post_init__(self) -> None:
        if not isinstance(self.device_id, str) or not self.device_id:
            raise InputError(f"device_id must be a non-empty string that names the device, not {self.device_id!r}")
        _require_short("device_id", self.device_id)
        for name in ("active_conversation_id", "active_notebook_id", "active_persona_id", "path"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise InputError(f"{name} must be a string or None, not {value!r:.100}")
            _require_short(name, value or "")
        _require_ids("visible_conversation_ids", self.visible_conversation_ids)
        if self.local_time is not None and not isinstance(self.local_time, datetime):
            raise InputError(f"local_time must be a datetime or None, not {self.local_time!r:.100}")
        if self.local_time is not None and self.local_time.utcoffset() is None:
            raise InputError(f"local_time must have a UTC offset, as `datetime.now().astimezone()`: {self.local_time}")
        if not isinstance(self.idle, bool):
            raise InputError(f"idle must be true or false, not {self.idle!r}")


def _require_ids(name: str, ids: object) -> None:
    if not isinstance(ids, Sequence) or isinstance(ids, str | bytes):
        raise InputError(f"{name} must be a list of ids, not {ids!r:.100}")
    if len(ids) > MOST_VISIBLE:
        raise InputError(f"{name} must have at most {MOST_VISIBLE} ids, not {len(ids):,}")
    for one in ids:
        if not isinstance(one, str):
            raise InputError(f"{name} must be a list of ids, not of {one!r:.100}")
        _require_short(name, one)


def _require_short(name: str, text: str) -> None:
    if len(text) > MOST_CHARACTERS:
        raise InputError(f"{name} must have at most {MOST_CHARACTERS:,} characters, not {len(text):,}")


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is likely to come up next: ids with their scores from 0 to 1, highest first.

    Example:
        >>> Prediction(topics=(("topic/cycling", 0.8),)).entities
        ()
    """

    topics: tuple[tuple[str, float], ...] = ()
    entities: tuple[tuple[str, float], ...] = ()


def heartbeat(old: ClientPresence | None, beat: Heartbeat, now: datetime) -> ClientPresence:
    """What is known of a device after a heartbeat.

    Args:
        old: what was known before, if anything.
        beat: what it tells.
        now: when, in UTC.
    """
    if old is None or now - old.last_heartbeat_at > NEW_SESSION_AFTER:
        session, is_active = now, True
    else:
        now = max(now, old.last_heartbeat_at)  # another process's clock may be ahead
        session, is_active = old.session_started_at, _has_changed(old, beat) or _is_back(old, beat)
    history = _visits(old.navigation_history if old else (), beat.path, now, is_active=is_active)
    idle_since = None
    if beat.idle:
        idle_since = now if is_active or old is None else old.idle_since or now
    elif not is_active and (end := _end_of(history)) and now >= end:
        idle_since = end
    return ClientPresence(
        device_id=beat.device_id,
        active_conversation_id=beat.active_conversation_id,
        visible_conversation_ids=tuple(beat.visible_conversation_ids),
        active_notebook_id=beat.active_notebook_id,
        active_persona_id=beat.active_persona_id,
        last_navigation_path=history[-1].path if history else None,
        navigation_history=history,
        local_time=beat.local_time or (old.local_time if old else None),
        session_started_at=session,
        idle_since=idle_since,
        predicted_topics=old.predicted_topics if old else (),
        predicted_entities=old.predicted_entities if old else (),
        last_heartbeat_at=now,
    )


def _has_changed(old: ClientPresence, beat: Heartbeat) -> bool:
    return (
        beat.active_conversation_id,
        tuple(beat.visible_conversation_ids),
        beat.active_notebook_id,
        beat.active_persona_id,
        beat.path if beat.path is not None else old.last_navigation_path,
    ) != (
        old.active_conversation_id,
        old.visible_conversation_ids,
        old.active_notebook_id,
        old.active_persona_id,
        old.last_navigation_path,
    )


def _is_back(old: ClientPresence, beat: Heartbeat) -> bool:
    """Whether the device said that it was idle, and says so no more; it does not say so of mere silence."""
    return not beat.idle and old.idle_since not in (None, _end_of(old.navigation_history))


def _end_of(history: Sequence[Visit]) -> datetime | None:
    """When a device counts as idle if nothing changes; None for one that gives no paths, where changes have no time."""
    return history[-1].at + IDLE_AFTER if history else None


def _visits(history: tuple[Visit, ...], path: str | None, now: datetime, *, is_active: bool) -> tuple[Visit, ...]:
    """The places that a device has been to; the time of each is that of the last activity there."""
    if path is None and history:
        path = history[-1].path
    if path is None or not is_active:
        return history
    before = history[:-1] if history and history[-1].path == path else history
    return (*before, Visit(path=path, at=now))[-MOST_VISITS:]


def as_of(presence: ClientPresence, now: datetime) -> ClientPresence:
    """What is known of a device at a later time: whether it is still online."""
    return presence.model_copy(update={"is_online": now - presence.last_heartbeat_at <= OFFLINE_AFTER})


def predict(
    presence: Sequence[ClientPresence],
    topics: Iterable[TopicProfile],
    entities: Iterable[EntityProfile],
    links: Iterable[TopicConversation],
    now: datetime,
) -> Prediction:
    """What is likely to come up next.

    A score is `OPEN` times how relevant it is to what is open on a device that is online, plus `RECENT` times
    `0.5 ** (age / HALF_LIFE)`, plus `USUAL` times the share of its messages at this hour of the day. What is below
    `FLOOR` is left out; of equal scores, the id decides.

    What came up in messages that tell no time counts as of when it was learned.

    Args:
        presence: what is known of the user's devices.
        topics: all that the user has.
        entities: all that the user has.
        links: of both, to conversations.
        now: in UTC. So are the hours of links, and their difference is the same in any local time.
    """
    weights = _open(as_of(device, now) for device in presence)
    opened: dict[str, float] = defaultdict(float)
    hours: dict[str, list[int]] = defaultdict(lambda: [0] * 24)
    for link in links:
        weight = weights.get(link.conversation_id, 0.0) * link.relevance_score
        opened[link.topic_id] = max(opened[link.topic_id], weight)
        if link.hours:
            hours[link.topic_id] = [a + b for a, b in zip(hours[link.topic_id], link.hours, strict=True)]
    hour = now.astimezone(UTC).hour

    def score(name: str, last: datetime | None) -> float:
        usual = _usual(hours[name], hour) if name in hours else 0.0
        return round(OPEN * opened.get(name, 0.0) + RECENT * _recent(last, now) + USUAL * usual, 6)

    return Prediction(
        _likeliest({topic.id: score(topic.id, topic.last_engaged_at or topic.updated_at) for topic in topics}),
        _likeliest({entity.id: score(entity.id, entity.last_mentioned_at or entity.updated_at) for entity in entities}),
    )


def _open(devices: Iterable[ClientPresence]) -> dict[str, float]:
    """What each open conversation counts."""
    online = [device for device in devices if device.is_online]
    weights = dict.fromkeys((name for device in online for name in device.visible_conversation_ids), VISIBLE)
    return weights | {device.active_conversation_id: ACTIVE for device in online if device.active_conversation_id}


def _recent(last: datetime | None, now: datetime) -> float:
    return 0.0 if last is None else float(0.5 ** (max(now - last, timedelta()) / HALF_LIFE))


def _usual(hours: Sequence[int], hour: int) -> float:
    near = hours[hour] + BESIDE * (hours[hour - 1] + hours[(hour + 1) % 24])
    return near / (sum(hours) + NO_HABIT)


def _likeliest(scores: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    likely = sorted((-score, name) for name, score in scores.items() if score >= FLOOR)
    return tuple((name, -score) for score, name in likely[:MOST_PREDICTED])


def record(store: BaseStore, user_id: str, beat: Heartbeat, now: datetime) -> Flow[ClientPresence]:
    """Take in a heartbeat, and forget devices that have been silent for `FORGOTTEN_AFTER`."""
    known = yield from PRESENCE.all(store, user_id)
    silent = [device.device_id for device in known if _is_forgotten(device, now)]
    old = next((device for device in known if device.device_id == beat.device_id), None)
    new = heartbeat(None if beat.device_id in silent else old, beat, now)
    gone = [PRESENCE.delete(user_id, name) for name in silent if name != beat.device_id]
    yield from bulk.write(store, [PRESENCE.put(user_id, new), *gone])
    return new


def devices(store: BaseStore, user_id: str, now: datetime) -> Flow[list[ClientPresence]]:
    """The devices of a user as they are now, sorted by id; without those that are to be forgotten."""
    known = yield from PRESENCE.all(store, user_id)
    return [as_of(device, now) for device in known if not _is_forgotten(device, now)]


def _is_forgotten(device: ClientPresence, now: datetime) -> bool:
    return now - device.last_heartbeat_at > FORGOTTEN_AFTER
