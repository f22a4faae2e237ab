"""What is done with the messages of an open conversation: add, make equal, edit, remove, fork.

Every flow begins with a conversation that is up to date.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.store.base import BaseStore, GetOp, Item, PutOp

from langchain_ctxbudget.core.messages import content_id, fingerprint, plainly_same
from langchain_ctxbudget.core.tokens import TokenCounter
from langchain_ctxbudget.errors import InputError, MessageConflictError, StoreDataError
from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.history.log import OnRemoval, Said, append, change, contents_before, prepare, records
from langchain_ctxbudget.stores import bulk
from langchain_ctxbudget.stores.compactions import COMPACTIONS
from langchain_ctxbudget.stores.message_log import CUTS, PINS, News
from langchain_ctxbudget.stores.records import (
    CutsRecord,
    MessageRecord,
    PinsRecord,
    Scope,
)


def add(store: BaseStore, conversation: Conversation, messages: Sequence[BaseMessage], lane: str) -> Flow[list[str]]:
    """Append the messages that are not there yet.

    Returns:
        the ids of all given messages, in order.

    Raises:
        MessageConflictError: an id is known with other content; nothing was written.
    """
    identified, new = _new(conversation, messages)
    if (new or conversation.untold) and (yield from prepare(store, conversation, lane)):
        identified, new = _new(conversation, messages)
    names = yield from append(store, conversation, new, lane)
    return [names.get(one.id, one.id) for one in identified]


def _new(conversation: Conversation, messages: Sequence[BaseMessage]) -> tuple[list[Said], list[Said]]:
    """Messages with their ids, and those of them that the conversation does not have."""
    identified = _identify(messages, conversation.occurrences, conversation.positions)
    new: dict[str, Said] = {}
    for one in identified:
        known = new[one.id].fingerprint if one.id in new else conversation.fingerprint_of(one.id)
        if known is None:
            new[one.id] = one
        elif known != one.fingerprint:
            raise MessageConflictError(
                f"The conversation {conversation.scope.conversation_id!r} knows message {one.id!r} with "
                f"other content, and add_messages only appends. Nothing was written. To change a message, call "
                f"`edit_message`; to change or remove several, call `sync` with all messages as they should be"
            )
    return identified, list(new.values())


def sync(
    store: BaseStore,
    conversation: Conversation,
    messages: Sequence[BaseMessage],
    lane: str,
    on_removal: OnRemoval,
) -> Flow[list[str]]:
    """Make the conversation equal to `messages`: append, replace, remove.

    Messages up to the first difference are not touched. Where messages were only added at the end, this is
    the same as appending. Without a difference nothing is written.

    Returns:
        the ids that all given messages go by, in order: of one that the conversation has under another id, that one.

    Raises:
        MessageConflictError: `messages` has two messages of the same id with other content.
    """
    wanted: dict[str, Said] = {}
    for one in _identify(messages, Counter(), (), named=True, entries=conversation):
        if wanted.setdefault(one.id, one).fingerprint != one.fingerprint:
            raise MessageConflictError(
                f"messages has two messages of id {one.id!r} with other content; ids must be unique"
            )
    changes = _Difference.between(conversation, wanted)
    if (conversation.untold or not changes.is_empty) and (yield from prepare(store, conversation, lane)):
        changes = _Difference.between(conversation, wanted)
    # What is to be told at another place is as it should be before it is appended, and appended before it is taken from
    # the old one: wherever it ends, nothing is missing, and nothing there in two ways.
    yield from change(store, conversation, lane, edited=changes.edited, on_removal=on_removal)
    moved = [place for key in changes.moved for place in conversation.places_of(key)]
    yield from append(store, conversation, changes.appended, lane, moves=bool(changes.moved))
    yield from change(
        store,
        conversation,
        lane,
        removed=changes.removed,
        moved=moved,
        on_removal=on_removal,
    )
    return list(changes.ids)


@dataclass(frozen=True, slots=True)
class _Difference:
    """What makes a conversation equal to other messages."""

    ids: Sequence[str]
    """Of all messages as they should be, in order."""
    appended: list[Said]
    edited: list[Said]
    removed: list[str]
    moved: list[str]
    """Ids of those that are appended, and are there already at another place."""

    @property
    def is_empty(self) -> bool:
        return not (self.appended or self.edited or self.removed)

    @classmethod
    def between(cls, conversation: Conversation, given: Mapping[str, Said]) -> _Difference:
        wanted = {one.id: one for one in _recognized(conversation, given)}
        order = list(wanted)
        stay = [entry.id for entry in conversation.entries if entry.id in wanted]
        kept = len(stay) if stay == order[: len(stay)] else _common_prefix(stay, order)
        return cls(
            ids=order,
            appended=[wanted[key] for key in order[kept:]],
            edited=[wanted[key] for key in stay if wanted[key].fingerprint != conversation.fingerprint_of(key)],
            removed=[entry.id for entry in conversation.entries if entry.id not in wanted],
            moved=stay[kept:],
        )


def _recognized(conversation: Conversation, given: Mapping[str, Said]) -> Iterable[Said]:
    """Messages with the ids that the conversation knows them by, where theirs are new and they say the same in order.

    Whoever keeps no ids gives the whole conversation with every turn, each message under a new id: it would replace all
    that is stored each time, and nothing that was made of it would hold any more.
    """
    gone: defaultdict[str, list[int]] = defaultdict(list)
    for place, entry in enumerate(conversation.entries):
        if entry.id not in given:
            gone[entry.fingerprint].append(place)
    begin = 0
    for key, one in given.items():
        position = conversation.positions.get(key)
        if position is None:
            places = gone.get(one.fingerprint, [])
            at = bisect_left(places, begin)
            position = places[at] if at < len(places) else None
        begin = begin if position is None else max(begin, position + 1)
        known = key if position is None else conversation.entries[position].id
        yield one if known == key else replace(one, message=one.message.model_copy(update={"id": known}))


def edit(store: BaseStore, conversation: Conversation, message_id: str, message: BaseMessage, lane: str) -> Flow[None]:
    """Put a message in the place of another; what was derived from that is deleted.

    Raises:
        InputError: the conversation has no such message, or the new one has another id.
    """
    if conversation.untold:
        yield from prepare(store, conversation, lane)
    require_known(conversation, [message_id])
    if message.id not in (None, message_id):
        raise InputError(
            f"The new message has the id {message.id!r}, but is to stand for {message_id!r}. Leave its id out"
        )
    named = message.model_copy(update={"id": message_id})
    said = Said(named, fingerprint(named), named=True)
    old = conversation.entries[conversation.positions[message_id]].record
    if MessageRecord.of(named, old.place).text != old.text:
        if (yield from prepare(store, conversation, lane)):
            require_known(conversation, [message_id])
        yield from change(store, conversation, lane, edited=[said], on_removal="forget")


def remove(
    store: BaseStore, conversation: Conversation, message_ids: Sequence[str], lane: str, on_removal: OnRemoval
) -> Flow[None]:
    """Take messages out of the conversation; what was archived before can still be forgotten.

    Raises:
        InputError: the conversation has no such message.
    """
    if conversation.untold:
        yield from prepare(store, conversation, lane)
    require_known(conversation, message_ids, () if on_removal == "archive" else conversation.archived)
    if (yield from prepare(store, conversation, lane)):
        require_known(conversation, message_ids, () if on_removal == "archive" else conversation.archived)
    yield from change(store, conversation, lane, removed=list(dict.fromkeys(message_ids)), on_removal=on_removal)


@dataclass(frozen=True, slots=True)
class Fork:
    """What another conversation begins with.

    Attributes:
        messages: those that it has from this one.
        items: what was derived from them and from nothing else, by kind and key.
    """

    messages: Sequence[BaseMessage]
    items: Mapping[tuple[str, str], dict[str, Any]]


def read_fork(store: BaseStore, conversation: Conversation, until: str | None) -> Flow[Fork]:
    """The messages up to one of them, or all, with what was derived from them.

    Raises:
        InputError: the conversation has no such message, or none at all.
    """
    require_known(conversation, [] if until is None else [until])
    if not conversation.entries:
        raise InputError(f"There is no conversation {conversation.scope.conversation_id!r} to begin with")
    end = len(conversation.entries) if until is None else conversation.positions[until] + 1
    messages = [entry.message for entry in conversation.entries[:end]]
    scope = conversation.scope
    places = [GetOp(scope.namespace(CUTS), CUTS), GetOp(scope.namespace(PINS), PINS)]
    cuts, pins = yield from batch(store, places)
    items: dict[tuple[str, str], dict[str, Any]] = {}
    with suppress(StoreDataError):  # derived: made again
        if isinstance(cuts, Item):
            made = [cut for cut in CutsRecord.read(cuts.value, "the compaction cuts").cuts if cut.position <= end]
            items[CUTS, CUTS] = CutsRecord(cuts=tuple(made)).to_value()
    if isinstance(pins, Item):
        ids = {message.id for message in messages}
        asked = {key: said for key, said in PinsRecord.read(pins.value, "the pins").pins.items() if key in ids}
        items[PINS, PINS] = PinsRecord(pins=asked).to_value()
    contents = contents_before(conversation, end)
    for item in (yield from bulk.read_all(store, scope.namespace(COMPACTIONS))):
        if item.key.partition("-")[0] in contents:
            items[COMPACTIONS, item.key] = item.value
    return Fork(messages, items)


def write_fork(store: BaseStore, conversation: Conversation, fork: Fork, lane: str) -> Flow[list[str]]:
    """Begin a conversation with what another one had; the ids of its messages.

    Raises:
        InputError: there is such a conversation already.
    """
    scope = conversation.scope
    yield from prepare(store, conversation, lane)
    if conversation.entries or conversation.archived:
        raise InputError(f"There is a conversation {scope.conversation_id!r} already; a fork needs an id of its own")
    items = fork.items.items()
    yield from bulk.write(store, [PutOp(scope.namespace(kind), key, it, index=False) for (kind, key), it in items])
    said = [Said(message, fingerprint(message), named=True) for message in fork.messages]
    yield from append(store, conversation, said, lane)
    return [one.id for one in said]


def detached(scope: Scope, counter: TokenCounter, messages: Sequence[BaseMessage]) -> Conversation:
    """A conversation in memory only, for a turn whose history could not be written."""
    conversation = Conversation(scope, counter)
    conversation.take_in(News(records(_identify(messages, Counter(), ()), "", 0, 0)))
    return conversation


def require_known(conversation: Conversation, ids: Sequence[str], others: Collection[str] = ()) -> None:
    """Make sure that a conversation has messages.

    Raises:
        InputError: it has not.
    """
    if unknown := [key for key in ids if key not in conversation.positions and key not in others]:
        raise InputError(
            f"The conversation {conversation.scope.conversation_id!r} has no messages {unknown}; ids are what "
            f"`add_messages` returns and `get_messages` shows"
        )


def _identify(
    messages: Sequence[BaseMessage],
    occurrences: Counter[str],
    known: Collection[str],
    *,
    named: bool = False,
    entries: Conversation | None = None,
) -> list[Said]:
    """Messages with ids, each with its fingerprint.

    Args:
        messages: some may have no id.
        occurrences: how often each fingerprint came before them.
        known: ids that a message without one must not get, for instance after an earlier one was removed.
        named: whether an id that is made here stands for this message, whoever appends it.
        entries: a conversation that has most of them already.
    """
    seen = Counter(occurrences)
    given = {str(message.id) for message in messages if message.id}
    result: list[Said] = []
    for message in messages:
        entry = entries.entry(message.id) if entries and message.id else None
        said = entry.fingerprint if entry and plainly_same(message, entry.message) else fingerprint(message)
        seen[said] += 1
        while not message.id and ((key := content_id(said, seen[said])) in known or key in given):
            seen[said] += 1
        with_id = message if message.id else message.model_copy(update={"id": content_id(said, seen[said])})
        result.append(Said(with_id, said, named=named or bool(message.id)))
    return result


def _common_prefix(first: Sequence[str], second: Sequence[str]) -> int:
    return next(
        (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b),
        min(len(first), len(second)),
    )
