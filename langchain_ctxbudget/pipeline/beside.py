"""What is stored beside the messages of a conversation: cuts, pins, settings, knowledge."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from langgraph.store.base import BaseStore, GetOp

from langchain_ctxbudget import history, stores
from langchain_ctxbudget.errors import StoreDataError, StoreError
from langchain_ctxbudget.flow import Flow, batch, with_fallback
from langchain_ctxbudget.knowledge import (
    NOTHING,
    ClientPresence,
    Knowledge,
    Learning,
    known,
    presence,
    records,
)
from langchain_ctxbudget.messages import Preservation
from langchain_ctxbudget.prompt import Request, merged_settings
from langchain_ctxbudget.settings import ContextSettings

R = TypeVar("R", bound=stores.Record)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The settings of a prompt, and what else is stored beside the messages of its conversation."""

    settings: ContextSettings
    settings_from: tuple[str, ...]
    knowledge: Knowledge
    """Where nothing is learned, what was written by hand."""
    expected: tuple[str, ...] = ()
    """Ids of topics and entities that are likely to come up on the device."""
    places: tuple[str, ...] = ()
    """The names of the places that are open on the device."""


@dataclass(frozen=True, slots=True)
class BesideReader:
    """Reads for one prompt what is stored beside its conversation, in one batch.

    Nothing of it is needed for a prompt: what cannot be read is told in `failures`, and the turn
    goes on.
    """

    store: BaseStore
    settings: ContextSettings
    """Those of the pipeline."""
    learning: Learning
    conversation: history.OpenConversation
    request: Request
    failures: list[str]

    def read(self) -> Flow[Stored]:
        """Takes up what is there into the conversation, and returns the rest."""
        if self.conversation.apart_because:
            settings, sources = merged_settings(
                self.settings, {}, self.request.settings, self.failures
            )
            return Stored(settings=settings, settings_from=sources, knowledge=NOTHING)

        items = yield from self._items()
        knowledge: Knowledge | None = None
        if items:
            yield from self._take_up(items)
            knowledge = yield from self._knowledge(items)

        saved = {source: stores.settings_in(items.get(source)) for source in ("user", "persona")}
        settings, sources = merged_settings(
            self.settings, saved, self.request.settings, self.failures
        )
        knowledge = knowledge or self._knowledge_in_memory()
        what = "what is open on the device"
        device = _read(ClientPresence, items.get("device"), what, self.failures)
        return Stored(
            settings=settings,
            settings_from=sources,
            knowledge=knowledge if settings.learn else knowledge.by_hand,
            expected=_expected(device),
            places=self._places_open(device),
        )

    def _items(self) -> Flow[dict[str, object]]:
        """Returns the stored items by name; none where they could not be read."""
        places = self._places()
        reading = batch(self.store, places.values())
        what = "compaction cuts, pins and saved settings not read"
        items = yield from with_fallback(reading, None, what, self.failures)
        return {} if items is None else dict(zip(places, items, strict=True))

    def _places(self) -> dict[str, GetOp]:
        scope = self.conversation.scope
        user = scope.user_id
        places = {
            "cuts": scope.place(history.CUTS),
            "pins": scope.place(history.PINS),
            "snapshot": scope.place(records.SNAPSHOT),
            "mark": records.mark_place(user),
            "user": stores.settings_place(user, None),
        }
        if self.settings.learn and not scope.is_shared:
            places["learning"] = scope.place(records.LEARNING)
        if self.request.persona_id is not None:
            places["persona"] = stores.settings_place(user, self.request.persona_id)
        if self.request.device_id is not None:
            device = stores.require_id("device_id", self.request.device_id)
            places["device"] = records.PRESENCE.place(user, device)
        return places

    def _take_up(self, items: Mapping[str, object]) -> Flow[None]:
        """Brings the conversation's marks and the progress of learning up to date."""
        conversation = self.conversation
        scope = conversation.scope
        take_up_pins(conversation, items["pins"], self.failures)
        take_up_cuts(conversation, items["cuts"], self.failures)
        if scope.is_kept and conversation.backgrounds_read < len(conversation.table):
            yield from history.editing.read_sent(self.store, conversation)

        if not conversation.snapshot_unsaved:
            what = "what the conversation shows of the facts"
            snapshot = _read(stores.SnapshotRecord, items["snapshot"], what, self.failures)
            conversation.snapshot = snapshot or conversation.snapshot

        if "learning" in items:
            what = "progress of learning"
            progress = _read(records.ProgressRecord, items["learning"], what, self.failures)
            progress = progress or records.ProgressRecord()
            conversation.suspended = progress.suspended
            self.learning.take_up(scope, progress)

    def _knowledge(self, items: Mapping[str, object]) -> Flow[Knowledge | None]:
        user = self.conversation.scope.user_id
        reading = known.read(self.store, user, items["mark"], marked=True)
        what = "what is known about the user not read"
        return (yield from with_fallback(reading, None, what, self.failures))

    def _knowledge_in_memory(self) -> Knowledge:
        kept = known.kept_of(self.store, self.conversation.scope.user_id)
        return kept.knowledge or Knowledge(is_read=False)

    def _places_open(self, device: ClientPresence | None) -> tuple[str, ...]:
        """Returns the names of the places that a device shows; none if it has gone silent."""
        if device is None or not presence.is_online(device, self.learning.owner.clock()):
            return ()
        return tuple(presence.places_open(device))


def _expected(device: ClientPresence | None) -> tuple[str, ...]:
    """Returns the ids of what is likely to come up on a device."""
    if device is None:
        return ()
    return (*device.predicted_topics, *device.predicted_entities)


def read_marks(store: BaseStore, conversation: history.OpenConversation) -> Flow[None]:
    """Reads a conversation's compaction cuts and its pins.

    A `StoreError` where the pins cannot be read; cuts are chosen again.
    """
    scope = conversation.scope
    cuts, pins = yield from batch(store, [scope.place(history.CUTS), scope.place(history.PINS)])
    failures: list[str] = []
    take_up_pins(conversation, pins, failures)  # a cut is valid for the messages as they are pinned
    take_up_cuts(conversation, cuts, [])
    if failures:
        raise StoreError(failures[0])


def take_up_pins(conversation: history.OpenConversation, item: object, failures: list[str]) -> None:
    """Takes the stored pins for those of the conversation, unless they cannot be read."""
    failures_before = len(failures)
    record = _read(stores.PinsRecord, item, "pins", failures)
    if len(failures) > failures_before:
        return
    pins: Mapping[str, Preservation] = record.pins if record else {}
    if pins != conversation.pins:
        conversation.pin(pins)


def take_up_cuts(conversation: history.OpenConversation, item: object, failures: list[str]) -> None:
    """Takes the stored cuts for those of the conversation, but for its own that are not stored."""
    record = _read(stores.CutsRecord, item, "compaction cuts", failures)
    stored = {cut.cut_key: cut for cut in record.cuts} if record else {}
    own = conversation.cuts
    conversation.cuts = {}
    # What was used here last stays last.
    added = [key for key in stored if key not in own]
    for key in (*added, *own):
        is_own_newer = key not in stored or conversation.cuts_unsaved
        cut = own[key] if key in own and is_own_newer else stored[key]
        if conversation.cut_is_valid(cut):
            conversation.use(cut)


def _read(record: type[R], item: object, what: str, failures: list[str]) -> R | None:
    """Returns a stored record; a damaged one counts as missing, as it can be derived again."""
    try:
        return record.of_item(item)
    except StoreDataError as error:
        failures.append(f"{what} not read: {error}")
        return None
