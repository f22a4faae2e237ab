"""Presence.

Heartbeats tell what a user has open on each device, and that predicts what comes up next.
"""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Annotated, TypeAlias

from langgraph.store.base import BaseStore
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.knowledge.known import Knowledge
from langchain_ctxbudget.knowledge.records import (
    ENGLISH,
    MOST_CHARACTERS,
    PRESENCE,
    ClientPresence,
    Profile,
)
from langchain_ctxbudget.stores import bulk, utc

NEW_SESSION_AFTER = timedelta(minutes=30)
OFFLINE_AFTER = timedelta(minutes=2)
"""Silence that ends a session; silence of a device that is still online."""
FORGOTTEN_AFTER = timedelta(days=90)
MOST_LISTED = 100
"""Places in a device's history, and conversations on its screen."""
OPEN = 0.5
RECENT = 0.3
USUAL = 0.2
"""Weights in a prediction, whose score is from 0 to 1."""
ACTIVE = 1.0
VISIBLE = 0.6
"""Weight of a conversation in front, and of what is named; of one that can be seen."""
HALF_LIFE = timedelta(days=7)
NO_HABIT = 5
"""Messages added to a topic's at other hours, so that a single one is no habit."""
FLOOR = 0.1
MOST_PREDICTED = 5
"""The least score of a prediction, and the most topics, and entities, in one."""
_Text = Annotated[str, Field(max_length=MOST_CHARACTERS)]
Scored: TypeAlias = tuple[tuple[str, float], ...]
"""Ids of what is likely to come up next, with their scores from 0 to 1, highest first."""


class Heartbeat(BaseModel):
    """The news of a device about itself, every minute or so and when something changes."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    device_id: Annotated[_Text, Field(min_length=1)]
    active_conversation_id: _Text | None = None
    visible_conversation_ids: Annotated[
        tuple[_Text, ...] | list[_Text], Field(max_length=MOST_LISTED)
    ] = ()
    active_notebook_id: _Text | None = None
    active_persona_id: _Text | None = None
    path: _Text | None = None
    """The place in the application; None: the same as before."""
    local_time: AwareDatetime | None = None
    idle: bool = False


def heartbeat(old: ClientPresence | None, beat: Heartbeat, now: datetime) -> ClientPresence:
    """Returns the presence of a device after a heartbeat."""
    before = old or ClientPresence(
        device_id=beat.device_id, session_started_at=now, last_heartbeat_at=now
    )
    is_new = now - before.last_heartbeat_at > NEW_SESSION_AFTER
    history = before.navigation_history
    if beat.path not in (None, before.last_navigation_path):
        history = (*history, (beat.path, now))[-MOST_LISTED:]
    changes = {
        "visible_conversation_ids": tuple(beat.visible_conversation_ids),
        "navigation_history": history,
        "local_time": beat.local_time or before.local_time,
        "session_started_at": now if is_new else before.session_started_at,
        "idle_since": ((not is_new and before.idle_since) or now) if beat.idle else None,
        "last_heartbeat_at": now,
        "is_online": True,
    }
    opened = beat.model_dump(
        include={"active_conversation_id", "active_notebook_id", "active_persona_id"}
    )
    return before.model_copy(update=opened | changes)


def predict(
    devices: Iterable[ClientPresence], state: Knowledge, now: datetime
) -> tuple[Scored, Scored]:
    """Predicts the topics and the entities that are likely to come up next.

    A score adds up what is open on a device that is online, how lately it came up, and its share of
    messages within an hour of now. One below `FLOOR` is left out. Messages without a time count as of when
    they were learned from.
    """
    online = [device for device in devices if is_online(device, now)]
    opened: dict[str, float] = defaultdict(float)
    for device in online:
        places = (device.last_navigation_path, device.active_notebook_id, device.active_persona_id)
        for words in (ENGLISH.no_word.sub(" ", place) for place in places if place):
            opened |= dict.fromkeys(
                (*state.topic_detector.named(words), *state.entity_detector.named(words)), ACTIVE
            )
    weights = dict.fromkeys(
        (name for device in online for name in device.visible_conversation_ids), VISIBLE
    )
    weights |= {
        device.active_conversation_id: ACTIVE for device in online if device.active_conversation_id
    }
    hours: dict[str, list[int]] = defaultdict(lambda: [0] * 24)
    for link in state.links.values():
        weight = weights.get(link.conversation_id, 0.0) * link.relevance_score
        opened[link.topic_id] = max(opened[link.topic_id], weight)
        for hour, number in enumerate(link.hours):
            hours[link.topic_id][hour] += number

    def score(profile: Profile) -> float:
        last = profile.last_engaged_at or profile.updated_at
        hour = utc(now).hour
        usual = hours[profile.id]
        recent = 0.0 if last is None else float(0.5 ** (max(now - last, timedelta()) / HALF_LIFE))
        near = usual[hour - 1] + usual[hour] + usual[(hour + 1) % 24]
        return round(
            OPEN * opened[profile.id] + RECENT * recent + USUAL * near / (sum(usual) + NO_HABIT), 6
        )

    def likeliest(profiles: Iterable[Profile]) -> Scored:
        scores = sorted((-score(profile), profile.id) for profile in profiles)
        return tuple(
            (name, -negative) for negative, name in scores[:MOST_PREDICTED] if -negative >= FLOOR
        )

    return likeliest(state.topics), likeliest(state.entities)


def is_online(device: ClientPresence, now: datetime) -> bool:
    """Tells whether a device has been heard of lately."""
    return now - device.last_heartbeat_at <= OFFLINE_AFTER


def renew(
    store: BaseStore, user_id: str, state: Knowledge, now: datetime, beat: Heartbeat
) -> Flow[ClientPresence]:
    """Writes a heartbeat and its predictions; forgets devices that were silent for 90 days."""
    before = yield from devices(store, user_id, now)
    left = {one.device_id: one for one in before if now - one.last_heartbeat_at <= FORGOTTEN_AFTER}
    left[beat.device_id] = heartbeat(left.get(beat.device_id), beat, now)
    topics, entities = (
        tuple(name for name, _ in some) for some in predict(left.values(), state, now)
    )
    told = {"predicted_topics": topics, "predicted_entities": entities}
    left |= {
        name: device.model_copy(update=told) for name, device in left.items() if device.is_online
    }
    yield from bulk.write(store, PRESENCE.changes(user_id, before, left.values()))
    return left[beat.device_id]


def devices(store: BaseStore, user_id: str, now: datetime) -> Flow[list[ClientPresence]]:
    """Reads the devices of a user as they are now, sorted by id."""
    found = yield from PRESENCE.all(store, user_id)
    return [device.model_copy(update={"is_online": is_online(device, now)}) for device in found]
