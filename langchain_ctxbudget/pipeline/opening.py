"""Reading what is stored beside the messages of a conversation, in one go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from langgraph.store.base import BaseStore, GetOp, Item

from langchain_ctxbudget.errors import StoreDataError
from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.history.message_log import CUTS, PINS
from langchain_ctxbudget.history.open import OpenConversation
from langchain_ctxbudget.knowledge import known
from langchain_ctxbudget.knowledge import repositories as repos
from langchain_ctxbudget.knowledge.known import Knowledge
from langchain_ctxbudget.knowledge.records import ClientPresence
from langchain_ctxbudget.stores import saved_settings
from langchain_ctxbudget.stores.records import CutRecord, CutsRecord, PinsRecord, Scope, SnapshotRecord

_DEVICE = "device"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What is stored beside the messages of a conversation."""

    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By the source."""
    knowledge: Knowledge = known.NOTHING
    expected: tuple[str, ...] = ()
    """Ids of topics and entities that are likely to come up on the device."""


def cuts_place(scope: Scope) -> GetOp:
    """Returns where the compaction cuts of a conversation are kept."""
    return GetOp(scope.namespace(CUTS), CUTS)


def pins_place(scope: Scope) -> GetOp:
    """Returns where the pins of a conversation are kept."""
    return GetOp(scope.namespace(PINS), PINS)


def read_stored(
    store: BaseStore,
    conversation: OpenConversation,
    persona_id: str | None,
    failures: list[str],
    device_id: str | None = None,
) -> Flow[Stored]:
    """Takes up the cuts and pins of a conversation and what it shows of the facts. All in one read.

    Nothing of it is needed for a prompt: where the read fails, that is noted, and the turn goes on.
    """
    scope = conversation.scope
    places = {"user": saved_settings.place(scope.user_id, None)}
    if persona_id is not None:
        places["persona"] = saved_settings.place(scope.user_id, persona_id)
    conversations = [cuts_place(scope), pins_place(scope), repos.snapshot_read(scope)]
    if device_id is not None:
        places[_DEVICE] = repos.PRESENCE.place(scope.user_id, device_id)
    try:
        cuts, pins, snapshot, mark, *found = yield from batch(
            store, [*conversations, repos.mark_read(scope.user_id), *places.values()]
        )
    except Exception as error:  # noqa: BLE001 - layers on top: the turn goes on without them
        failures.append(f"compaction cuts, pins and saved settings not read: {type(error).__name__}: {error}")
        return Stored(knowledge=known.last_known(store, scope.user_id))
    take_up_pins(conversation, pins, failures)
    take_up_cuts(conversation, cuts, failures)
    _take_up_snapshot(conversation, snapshot, failures)
    try:
        knowledge = yield from known.read(store, scope.user_id, mark, marked=True)
    except Exception as error:  # noqa: BLE001 - what was known before, or nothing, stands in
        failures.append(f"what is known about the user not read: {type(error).__name__}: {error}")
        knowledge = known.last_known(store, scope.user_id)
    items = dict(zip(places, found, strict=True))
    device = items.pop(_DEVICE, None)
    saved = {source: saved_settings.of_item(item) for source, item in items.items()}
    return Stored(settings=saved, knowledge=knowledge, expected=_expected(device, failures))


def _expected(found: object, failures: list[str]) -> tuple[str, ...]:
    try:
        device = repos.found(ClientPresence, found)
    except StoreDataError as error:
        failures.append(f"what is open on the device not read: {error}")
        return ()
    return (*device.predicted_topics, *device.predicted_entities) if device else ()


def _take_up_snapshot(conversation: OpenConversation, found: object, failures: list[str]) -> None:
    if conversation.snapshot_unsaved:
        return
    try:
        stored = repos.found(SnapshotRecord, found)
    except StoreDataError as error:  # derived data: it is chosen again
        failures.append(f"what the conversation shows of the facts not read: {error}")
        return
    conversation.snapshot = stored or conversation.snapshot


def take_up_pins(conversation: OpenConversation, found: object, failures: list[str]) -> None:
    """Makes the stored pins the conversation's."""
    try:
        pins = PinsRecord.read(found.value, "the pins").pins if isinstance(found, Item) else {}
    except StoreDataError as error:
        failures.append(f"pins not read: {error}")
        return
    if pins != conversation.pins:
        conversation.pin(pins)


def take_up_cuts(conversation: OpenConversation, found: object, failures: list[str]) -> None:
    """Takes up the stored cuts that were made for these messages."""
    stored: tuple[CutRecord, ...] = ()
    try:
        stored = CutsRecord.read(found.value, "the compaction cuts").cuts if isinstance(found, Item) else ()
    except StoreDataError as error:  # derived data: they are made again
        failures.append(f"compaction cuts not read: {error}")
    newer = {cut.cut_key: cut for cut in stored}
    before, conversation.cuts = conversation.cuts, {}
    for key in [*(key for key in newer if key not in before), *before]:  # what was used here last stays last
        cut = before[key] if key in before and (key not in newer or conversation.cuts_unsaved) else newer[key]
        if conversation.cut_is_valid(cut):
            conversation.use(cut)
