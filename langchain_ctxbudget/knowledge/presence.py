"""Presence: heartbeats tell what a user has open on each device, and that predicts what comes up next."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

from langgraph.store.base import BaseStore
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.knowledge.records import PRESENCE, ClientPresence, Profile, TopicConversation, Visit
from langchain_ctxbudget.stores import bulk, later, utc

NEW_SESSION_AFTER, IDLE_AFTER, OFFLINE_AFTER = timedelta(minutes=30), timedelta(minutes=5), timedelta(minutes=2)
"""Silence that ends a session; time without a change; silence of a device that is still online."""
FORGOTTEN_AFTER = timedelta(days=90)
MOST_VISITS, MOST_VISIBLE, MOST_CHARACTERS = 50, 100, 2_000
"""Places in a device's history, conversations on its screen, characters of an id or a path."""

OPEN, RECENT, USUAL = 0.5, 0.3, 0.2
"""Weights in a prediction, whose score is from 0 to 1."""
ACTIVE, VISIBLE, BESIDE = 1.0, 0.6, 0.5
"""Weight of a conversation in front, of one that can be seen, and of a message one hour before or after."""
HALF_LIFE = timedelta(days=7)
NO_HABIT = 5
"""Messages added to a topic's at other hours, so that a single one is no habit."""
FLOOR, MOST_PREDICTED = 0.1, 5
"""The least score of a prediction, and the most topics, and entities, in one."""

_Text = Annotated[str, Field(max_length=MOST_CHARACTERS)]


class Heartbeat(BaseModel):
    """The news of a device about itself, every minute or so and when something changes.

    Raises:
        InputError: no device, more than 100 conversations, a text of more than 2,000 characters, a local time without
            its UTC offset, or a value of another type.

    Example:
        >>> Heartbeat(device_id="phone", active_conversation_id="c1", path="/chat/c1").idle
        False
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    device_id: Annotated[_Text, Field(min_length=1)]
    active_conversation_id: _Text | None = None
    visible_conversation_ids: Annotated[tuple[_Text, ...] | list[_Text], Field(max_length=MOST_VISIBLE)] = ()
    active_notebook_id: _Text | None = None
    active_persona_id: _Text | None = None
    path: _Text | None = None
    """The place in the application; None: the same as before."""
    local_time: AwareDatetime | None = None
    idle: bool = False
    """The user is known to do nothing."""

    def __init__(self, **told: Any) -> None:  # noqa: ANN401 - checked below
        try:
            super().__init__(**told)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise InputError(f"heartbeat: {where}: {first['msg']}, not {first.get('input')!r:.100}") from error


@dataclass(frozen=True, slots=True)
class Prediction:
    """Topics and entities that are likely to come up next: ids with their scores from 0 to 1, highest first."""

    topics: tuple[tuple[str, float], ...] = ()
    entities: tuple[tuple[str, float], ...] = ()


def heartbeat(old: ClientPresence | None, beat: Heartbeat, now: datetime) -> ClientPresence:
    """Returns what is known of a device after a heartbeat, given what was known before."""
    if old is None or now - old.last_heartbeat_at > NEW_SESSION_AFTER:
        session, is_active = now, True
    else:
        now = max(now, old.last_heartbeat_at)  # another process's clock may be ahead
        session, is_active = old.session_started_at, _is_active(old, beat)
    history = old.navigation_history if old else ()
    path = beat.path or (history[-1].path if history else None)
    if path is not None and is_active:
        before = history[:-1] if history and history[-1].path == path else history
        history = (*before, Visit(path=path, at=now))[-MOST_VISITS:]
    idle_since = None
    if beat.idle:
        idle_since = now if is_active or old is None else old.idle_since or now
    elif not is_active and (end := _idle_from(history)) and now >= end:
        idle_since = end
    return ClientPresence(
        **beat.model_dump(include=set(_OPENED)),
        device_id=beat.device_id,
        visible_conversation_ids=tuple(beat.visible_conversation_ids),
        navigation_history=history,
        local_time=beat.local_time or (old.local_time if old else None),
        session_started_at=session,
        idle_since=idle_since,
        predicted_topics=old.predicted_topics if old else (),
        predicted_entities=old.predicted_entities if old else (),
        last_heartbeat_at=now,
    )


_OPENED = ("active_conversation_id", "active_notebook_id", "active_persona_id")


def _is_active(old: ClientPresence, beat: Heartbeat) -> bool:
    """Tells that something has changed on a device, or that it is idle no more; mere silence does not count."""
    return (
        any(getattr(old, name) != getattr(beat, name) for name in _OPENED)
        or old.visible_conversation_ids != tuple(beat.visible_conversation_ids)
        or beat.path not in (None, old.last_navigation_path)
        or (not beat.idle and old.idle_since not in (None, _idle_from(old.navigation_history)))
    )


def _idle_from(history: Sequence[Visit]) -> datetime | None:
    """Returns the time from which a device is idle if nothing changes; None for one that tells no paths."""
    return later(history[-1].at, IDLE_AFTER) if history else None


def as_of(presence: ClientPresence, now: datetime) -> ClientPresence:
    """Returns a device at a later time, when it may have gone offline."""
    return presence.model_copy(update={"is_online": now - presence.last_heartbeat_at <= OFFLINE_AFTER})


def predict(
    presence: Iterable[ClientPresence],
    topics: Iterable[Profile],
    entities: Iterable[Profile],
    links: Iterable[TopicConversation],
    now: datetime,
) -> Prediction:
    """Predicts what is likely to come up next.

    A score is `OPEN` times its relevance to what is open on a device that is online, plus `RECENT` times
    `0.5 ** (age / HALF_LIFE)`, plus `USUAL` times the share of its messages at this hour. A score below `FLOOR` is
    left out; of equal ones, the id decides. Messages without a time count as of when they were learned from.
    """
    online = [device for device in presence if as_of(device, now).is_online]
    weights = dict.fromkeys((name for device in online for name in device.visible_conversation_ids), VISIBLE)
    weights |= {device.active_conversation_id: ACTIVE for device in online if device.active_conversation_id}
    opened: dict[str, float] = defaultdict(float)
    hours: dict[str, list[int]] = defaultdict(lambda: [0] * 24)
    for link in links:
        weight = weights.get(link.conversation_id, 0.0) * link.relevance_score
        opened[link.topic_id] = max(opened[link.topic_id], weight)
        if link.hours:
            hours[link.topic_id] = [a + b for a, b in zip(hours[link.topic_id], link.hours, strict=True)]

    def score(profile: Profile) -> float:
        last, hour, usual = profile.last_engaged_at or profile.updated_at, utc(now).hour, hours[profile.id]
        recent = 0.0 if last is None else float(0.5 ** (max(now - last, timedelta()) / HALF_LIFE))
        near = usual[hour] + BESIDE * (usual[hour - 1] + usual[(hour + 1) % 24])
        share = near / (sum(usual) + NO_HABIT)
        return round(OPEN * opened[profile.id] + RECENT * recent + USUAL * share, 6)

    def likeliest(profiles: Iterable[Profile]) -> tuple[tuple[str, float], ...]:
        scores = sorted((-score(profile), profile.id) for profile in profiles)
        return tuple((name, -negative) for negative, name in scores[:MOST_PREDICTED] if -negative >= FLOOR)

    return Prediction(likeliest(topics), likeliest(entities))


def record(store: BaseStore, user_id: str, beat: Heartbeat, now: datetime) -> Flow[ClientPresence]:
    """Writes what a heartbeat tells, and forgets devices that have been silent for 90 days."""
    known = yield from PRESENCE.all(store, user_id)
    silent = {device.device_id for device in known if now - device.last_heartbeat_at > FORGOTTEN_AFTER}
    old = next((one for one in known if one.device_id == beat.device_id and one.device_id not in silent), None)
    new = heartbeat(old, beat, now)
    gone = [PRESENCE.delete(user_id, name) for name in silent - {beat.device_id}]
    yield from bulk.write(store, [PRESENCE.put(user_id, new), *gone])
    return new


def devices(store: BaseStore, user_id: str, now: datetime) -> Flow[list[ClientPresence]]:
    """Reads the devices of a user as they are now, sorted by id, without those that are to be forgotten."""
    known = yield from PRESENCE.all(store, user_id)
    return [as_of(device, now) for device in known if now - device.last_heartbeat_at <= FORGOTTEN_AFTER]
