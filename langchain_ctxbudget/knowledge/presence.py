"""What a user has open on each device, and which topics and entities that makes likely."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, TypeAlias

from langgraph.store.base import BaseStore
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.knowledge.detection import DECIMALS
from langchain_ctxbudget.knowledge.known import Knowledge
from langchain_ctxbudget.knowledge.records import (
    ENGLISH,
    MOST_CHARACTERS,
    PRESENCE,
    ClientPresence,
    Profile,
    TopicConversation,
)
from langchain_ctxbudget.stores import bulk, utc


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionPolicy:
    """How likely a topic or an entity is to come up next, 0 to 1."""

    open: float = 0.5
    """The weight of what is open on a device now."""
    recent: float = 0.3
    """The weight of how lately it came up."""
    usual: float = 0.2
    """The weight of how much of it comes up at this hour."""
    visible: float = 0.6
    """How open a conversation is that can be seen; one in front, and what is named, counts 1."""
    half_life: timedelta = timedelta(days=7)
    """The time after which it counts half how lately it came up."""
    no_habit: int = 5
    """Messages added to its messages at other hours, so that a single one is no habit."""
    least: float = 0.1
    """The least score of a prediction."""
    most: int = 5
    """The most topics, and entities, that are predicted."""


PREDICTION = PredictionPolicy()
NEW_SESSION_AFTER = timedelta(minutes=30)
"""Silence that ends a session."""
OFFLINE_AFTER = timedelta(minutes=2)
"""Silence after which a device is not online any more."""
FORGOTTEN_AFTER = timedelta(days=90)
"""Silence after which a device is forgotten."""
MOST_LISTED = 100
"""Places in a device's history, and conversations on its screen."""
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
    history = before.navigation_history
    if beat.path is not None and beat.path != before.last_navigation_path:
        history = (*history, (beat.path, now))[-MOST_LISTED:]

    session_started_at = before.session_started_at
    idle_since = before.idle_since
    if now - before.last_heartbeat_at > NEW_SESSION_AFTER:
        session_started_at = now
        idle_since = None
    if not beat.idle:
        idle_since = None
    elif idle_since is None:
        idle_since = now

    changes = {
        "active_conversation_id": beat.active_conversation_id,
        "active_notebook_id": beat.active_notebook_id,
        "active_persona_id": beat.active_persona_id,
        "visible_conversation_ids": tuple(beat.visible_conversation_ids),
        "navigation_history": history,
        "local_time": beat.local_time or before.local_time,
        "session_started_at": session_started_at,
        "idle_since": idle_since,
        "last_heartbeat_at": now,
        "is_online": True,
    }
    return before.model_copy(update=changes)


# What comes up next


def predict(
    devices: Iterable[ClientPresence], knowledge: Knowledge, now: datetime
) -> tuple[Scored, Scored]:
    """Returns the topics, and the entities, that are likely to come up next.

    A score adds up how open it is on a device that is online, how lately it came up, and its share
    of messages within an hour of now. Messages without a time count as of when they were learned
    from. What scores too little is left out.
    """
    online = [device for device in devices if is_online(device, now)]
    links = list(knowledge.links.values())
    openness = _openness(online, knowledge, links)
    messages_by_hour = _messages_by_hour(links)

    def likeliest(profiles: Iterable[Profile]) -> Scored:
        scores: dict[str, float] = {}
        for profile in profiles:
            usual = _share_within_an_hour(messages_by_hour.get(profile.id), now)
            score = (
                PREDICTION.open * openness.get(profile.id, 0.0)
                + PREDICTION.recent * _recency(profile, now)
                + PREDICTION.usual * usual
            )
            scores[profile.id] = round(score, DECIMALS)
        best = sorted(scores.items(), key=lambda scored: (-scored[1], scored[0]))
        return tuple(
            (name, score) for name, score in best[: PREDICTION.most] if score >= PREDICTION.least
        )

    return likeliest(knowledge.topics), likeliest(knowledge.entities)


def _openness(
    online: Iterable[ClientPresence], knowledge: Knowledge, links: Iterable[TopicConversation]
) -> Mapping[str, float]:
    """Returns by id how open topics and entities are on a user's devices, 0 to 1.

    One that the name of a place names is fully open. Any other is as open as the conversation in
    which it comes up, by its share of that.
    """
    openness: defaultdict[str, float] = defaultdict(float)
    visible: dict[str, float] = {}
    in_front: dict[str, float] = {}
    for device in online:
        for words in places_open(device):
            for name in knowledge.topic_detector.named_ids(words):
                openness[name] = 1.0
            for name in knowledge.entity_detector.named_ids(words):
                openness[name] = 1.0
        for conversation_id in device.visible_conversation_ids:
            visible[conversation_id] = PREDICTION.visible
        if device.active_conversation_id:
            in_front[device.active_conversation_id] = 1.0

    conversations = visible | in_front
    for link in links:
        share = conversations.get(link.conversation_id, 0.0) * link.relevance_score
        openness[link.topic_id] = max(openness[link.topic_id], share)
    return openness


def places_open(device: ClientPresence) -> list[str]:
    """Returns the words in the names of the places that a device shows."""
    places = (device.last_navigation_path, device.active_notebook_id, device.active_persona_id)
    return [ENGLISH.no_word.sub(" ", place) for place in places if place]


def _messages_by_hour(links: Iterable[TopicConversation]) -> Mapping[str, list[int]]:
    """Returns by id how many messages are about a topic or an entity at each hour of the day."""
    messages: defaultdict[str, list[int]] = defaultdict(lambda: [0] * 24)
    for link in links:
        totals = messages[link.topic_id]
        for hour, count in enumerate(link.hours):
            totals[hour] += count
    return messages


def _share_within_an_hour(messages_by_hour: list[int] | None, now: datetime) -> float:
    """Returns the share of messages in this hour of the day, the one before and the one after."""
    if messages_by_hour is None:
        return 0.0
    hour = utc(now).hour
    near = messages_by_hour[hour - 1] + messages_by_hour[hour] + messages_by_hour[(hour + 1) % 24]
    return near / (sum(messages_by_hour) + PREDICTION.no_habit)


def _recency(profile: Profile, now: datetime) -> float:
    """Returns how lately a topic or an entity came up: 1 now, half after a half-life."""
    last = profile.last_engaged_at or profile.updated_at
    if last is None:
        return 0.0
    age = max(now - last, timedelta())
    return float(0.5 ** (age / PREDICTION.half_life))


# Devices in the store


def is_online(device: ClientPresence, now: datetime) -> bool:
    """Returns whether a device has been heard of lately."""
    return now - device.last_heartbeat_at <= OFFLINE_AFTER


def renew(
    store: BaseStore, user_id: str, knowledge: Knowledge, now: datetime, beat: Heartbeat
) -> Flow[ClientPresence]:
    """Writes a heartbeat and what it predicts; forgets devices that were silent for 90 days."""
    before = yield from devices(store, user_id, now)
    after = {
        device.device_id: device
        for device in before
        if now - device.last_heartbeat_at <= FORGOTTEN_AFTER
    }
    after[beat.device_id] = heartbeat(after.get(beat.device_id), beat, now)

    topics, entities = predict(after.values(), knowledge, now)
    predictions = {
        "predicted_topics": tuple(name for name, _ in topics),
        "predicted_entities": tuple(name for name, _ in entities),
    }
    for name, device in after.items():
        if device.is_online:
            after[name] = device.model_copy(update=predictions)
    yield from bulk.write(store, PRESENCE.changes(user_id, before, after.values()))
    return after[beat.device_id]


def devices(store: BaseStore, user_id: str, now: datetime) -> Flow[list[ClientPresence]]:
    """Reads the devices of a user as they are now, sorted by id."""
    found = yield from PRESENCE.all(store, user_id)
    return [device.model_copy(update={"is_online": is_online(device, now)}) for device in found]
