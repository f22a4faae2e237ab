"""What a prompt begins with: the settings that apply, and what was stored beside the messages of its conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langgraph.store.base import BaseStore, GetOp, Item

from langchain_ctxbudget.errors import InvalidSettingsError, StoreDataError
from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.knowledge import known
from langchain_ctxbudget.knowledge import repositories as repos
from langchain_ctxbudget.knowledge.known import Knowledge
from langchain_ctxbudget.knowledge.records import ClientPresence, SnapshotRecord
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores import saved_settings
from langchain_ctxbudget.stores.message_log import CUTS, PINS
from langchain_ctxbudget.stores.records import CutRecord, CutsRecord, PinsRecord, Scope

_DEVICE = "device"
Overrides = ContextSettings | Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked for beside the words of the turn."""

    tools: Sequence[Any] = ()
    response_format: object = None
    settings: Overrides = None
    """These lie over all others."""
    persona_id: str | None = None
    device_id: str | None = None
    """Where the user is: what is open there says what is likely to come up."""
    block: object = None
    """The context block that an agent's state has of the turn, as plain data."""
    instructions: Sequence[str] = ()
    """What joins the system prompt."""
    failures: Sequence[str] = ()
    """What whoever asks could not do, for the report."""


NOTHING_ELSE = Request()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What was stored beside the messages of a conversation."""

    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By the source."""
    knowledge: Knowledge = known.NOTHING
    """What is known about the user."""
    expected: tuple[str, ...] = ()
    """Ids of topics and entities that are likely to come up on the device."""


def cuts_place(scope: Scope) -> GetOp:
    """Where the compaction cuts of a conversation are kept."""
    return GetOp(scope.namespace(CUTS), CUTS)


def pins_place(scope: Scope) -> GetOp:
    """Where the pins of a conversation are kept."""
    return GetOp(scope.namespace(PINS), PINS)


def read_stored(
    store: BaseStore,
    conversation: Conversation,
    persona_id: str | None,
    failures: list[str],
    device_id: str | None = None,
) -> Flow[Stored]:
    """Take up the cuts and pins of a conversation and what it shows of the facts. All in one read.

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
    """What was predicted from what is open on a device."""
    try:
        device = repos.found(ClientPresence, found)
    except StoreDataError as error:
        failures.append(f"what is open on the device not read: {error}")
        return ()
    return (*device.predicted_topics, *device.predicted_entities) if device else ()


def _take_up_snapshot(conversation: Conversation, found: object, failures: list[str]) -> None:
    """Make what the conversation was stored to show of the facts what it shows."""
    if conversation.snapshot_unsaved:
        return
    try:
        stored = repos.found(SnapshotRecord, found)
    except StoreDataError as error:  # derived data: it is chosen again
        failures.append(f"what the conversation shows of the facts not read: {error}")
        return
    conversation.snapshot = stored or conversation.snapshot


def take_up_pins(conversation: Conversation, found: object, failures: list[str]) -> None:
    """Make the stored pins the conversation's."""
    try:
        pins = PinsRecord.read(found.value, "the pins").pins if isinstance(found, Item) else {}
    except StoreDataError as error:
        failures.append(f"pins not read: {error}")
        return
    if pins != conversation.pins:
        conversation.pin(pins)


def take_up_cuts(conversation: Conversation, found: object, failures: list[str]) -> None:
    """Take up the stored cuts that were made for these messages."""
    stored: tuple[CutRecord, ...] = ()
    try:
        stored = CutsRecord.read(found.value, "the compaction cuts").cuts if isinstance(found, Item) else ()
    except StoreDataError as error:  # derived data: they are made again
        failures.append(f"compaction cuts not read: {error}")
    newer = {cut.made_for: cut for cut in stored}
    known = conversation.cuts
    conversation.cuts = {}
    for key in [*(key for key in newer if key not in known), *known]:  # what was used here last stays last
        cut = known[key] if key in known and (key not in newer or conversation.cuts_unsaved) else newer[key]
        if conversation.cut_is_valid(cut):
            conversation.use(cut)


def merged(
    settings: ContextSettings, saved: Mapping[str, Mapping[str, Any]], overrides: Overrides, failures: list[str]
) -> tuple[ContextSettings, tuple[str, ...]]:
    """The pipeline's settings, over them what the user saved, then what was saved for the persona, then the call's.

    Saved settings that cannot be used are left out and reported.

    Args:
        settings: the pipeline's.
        saved: what was saved, by source.
        overrides: the call's, which were tried on the pipeline's already.
        failures: what is to be reported; appended to.

    Returns:
        the settings and where they came from.
    """
    own, sources = settings, ["pipeline"]
    for source, changes in saved.items():
        if not changes:
            continue
        try:
            settings = settings.override(changes)
            sources.append(source)
        except InvalidSettingsError as error:
            failures.append(f"saved settings of the {source} not used: {error}")
    if isinstance(overrides, ContextSettings):
        return overrides, ("call",)
    if overrides is None:
        return settings, tuple(sources)
    try:
        return settings.override(overrides), (*sources, "call")
    except InvalidSettingsError as error:
        saved_by = " and the ".join(sources[1:])
        failures.append(f"saved settings of the {saved_by} not used, as the call's do not go with them: {error}")
        return own.override(overrides), ("pipeline", "call")
