"""What is done with the messages of an open conversation: add, make equal, edit, remove, fork.

Every flow begins with a conversation that is up to date.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.store.base import BaseStore, GetOp, Item, PutOp

from langchain_ctxbudget.errors import InputError, MessageConflictError, StoreDataError
from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.history.log import OnRemoval, Said, append, change, contents_before, prepare, records
from langchain_ctxbudget.history.message_log import CUTS, PINS, News
from langchain_ctxbudget.history.open import OpenConversation
from langchain_ctxbudget.history.stored_summaries import COMPACTIONS
from langchain_ctxbudget.messages.calls import is_user
from langchain_ctxbudget.messages.messages import content_id, fingerprint, plainly_same
from langchain_ctxbudget.stores import bulk
from langchain_ctxbudget.stores.records import (
    CutsRecord,
    MessageRecord,
    PinsRecord,
    Scope,
)

GOES_ON = (
    "the agent's state has none of the %d messages that are stored, and the conversation goes on from the store: keep "
    "the state with a checkpointer that persists; to begin anew, clear the conversation or take another thread"
)
TASK = -1
"""The state of agents that another one's tool runs: what it has is archived when the other one goes on."""
_log = logging.getLogger(__name__)


def add(
    store: BaseStore, conversation: OpenConversation, messages: Sequence[BaseMessage], lane: str
) -> Flow[list[str]]:
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


def _new(conversation: OpenConversation, messages: Sequence[BaseMessage]) -> tuple[list[Said], list[Said]]:
    """Messages with their ids, and those of them that the conversation does not have."""
    identified = _identify(messages, conversation.table.occurrences, conversation.positions)
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
    conversation: OpenConversation,
    messages: Sequence[BaseMessage],
    lane: str,
    on_removal: OnRemoval,
    *,
    goes_on: bool = False,
    task: bool = False,
) -> Flow[list[str]]:
    """Make the conversation equal to `messages`: append, replace, remove.

    Messages up to the first difference are not touched. Where messages were only added at the end, this is
    the same as appending. Without a difference nothing is written.

    Only what the same state once held is removed. A state that holds none of what is stored has forgotten it, as that
    of a new process without a persistent checkpointer: what is stored stays, and the messages follow it.

    Args:
        store: where it is kept.
        conversation: which one.
        messages: the agent's state.
        lane: the writer's.
        on_removal: what becomes of messages that the state has lost.
        goes_on: whether the state is known to be the one that was copied last, also where it holds nothing of it.
        task: whether it is that of an agent that another one's tool runs: it is all that there is for now.

    Returns:
        the ids that all given messages go by, in order: of one that the conversation has under another id, that one.

    Raises:
        MessageConflictError: `messages` has two messages of the same id with other content.
    """
    wanted: dict[str, Said] = {}
    identified = _identify(messages, Counter(), (), named=True, entries=conversation)
    for one in identified:
        if wanted.setdefault(one.id, one).fingerprint != one.fingerprint:
            raise MessageConflictError(
                f"messages has two messages of id {one.id!r} with other content; ids must be unique"
            )
    made = {one.id for one, message in zip(identified, messages, strict=True) if not message.id}
    changes = _Difference.between(conversation, wanted, made, goes_on=goes_on, task=task)
    if (conversation.untold or not changes.is_empty) and (yield from prepare(store, conversation, lane)):
        changes = _Difference.between(conversation, wanted, made, goes_on=goes_on, task=task)
    conversation.forgotten = changes.forgotten
    if changes.forgotten:
        conversation.newest_state = changes.state
        if not conversation.warned:
            _log.warning("conversation %r: %s", conversation.scope.conversation_id, GOES_ON % changes.forgotten)
        conversation.warned = True
    # What is to be told at another place is as it should be before it is appended, and appended before it is taken from
    # the old one: wherever it ends, nothing is missing, and nothing there in two ways.
    yield from change(store, conversation, lane, edited=changes.edited, on_removal=on_removal)
    moved = [place for key in changes.moved for place in conversation.places_of(key)]
    yield from append(store, conversation, changes.appended, lane, state=changes.state, moves=bool(changes.moved))
    yield from change(
        store,
        conversation,
        lane,
        removed=changes.removed,
        moved=moved,
        on_removal=on_removal,
    )
    return list(changes.ids)


def take_over(
    store: BaseStore,
    conversation: OpenConversation,
    messages: Sequence[BaseMessage],
    writer_id: str,
    *,
    goes_on: bool,
    task: bool,
) -> Flow[None]:
    """Make the conversation equal to an agent's messages: in the store, or in memory where nothing of it is kept."""
    if conversation.scope.is_kept:
        lane = conversation.lane(writer_id)
        yield from sync(store, conversation, messages, lane, "archive", goes_on=goes_on, task=task)
    else:
        hold(conversation, messages)


@dataclass(frozen=True, slots=True)
class _Difference:
    """What makes a conversation equal to other messages."""

    ids: Sequence[str]
    """Of all messages as they should be, in order."""
    state: int
    """Which of the agent's states they are; see `Place`."""
    appended: list[Said]
    edited: list[Said]
    removed: list[str]
    moved: list[str]
    """Ids of those that are appended, and are there already at another place."""
    forgotten: int
    """How many messages there are, where the state holds none of them."""

    @property
    def is_empty(self) -> bool:
        return not (self.appended or self.edited or self.removed)

    @classmethod
    def between(
        cls,
        conversation: OpenConversation,
        given: Mapping[str, Said],
        made: Collection[str],
        *,
        goes_on: bool,
        task: bool,
    ) -> _Difference:
        """What makes a conversation equal to messages by their ids, some of which were made here."""
        wanted = {one.id: one for one in _recognized(conversation, given, made)}
        order = list(wanted)
        stay = [entry.id for entry in conversation.entries if entry.id in wanted]
        kept = len(stay) if stay == order[: len(stay)] else _common_prefix(stay, order)
        gone = [entry for entry in conversation.entries if entry.id not in wanted]
        held = {conversation.entries[conversation.positions[key]].state for key in stay} | {TASK}
        last = max((entry.state for entry in gone), default=TASK)
        if forgets := not task and held == {TASK} and last > TASK:
            forgets = not goes_on or last < conversation.newest_state
            held.add(last + forgets)
        if task:
            held.update(entry.state for entry in gone)
        lasting = max(held) if max(held) > TASK else conversation.newest_state
        return cls(
            ids=order,
            state=TASK if task else lasting,
            appended=[wanted[key] for key in order[kept:]],
            edited=[wanted[key] for key in stay if wanted[key].fingerprint != conversation.fingerprint_of(key)],
            removed=[entry.id for entry in gone if entry.state in held],
            moved=stay[kept:],
            forgotten=len(gone) if forgets else 0,
        )


def _recognized(conversation: OpenConversation, given: Mapping[str, Said], made: Collection[str]) -> Iterable[Said]:
    """Messages with the ids that the conversation knows them by, where theirs are new and they say the same in order.

    Whoever keeps no ids gives the whole conversation with every turn, each message under a new id: it would replace all
    that is stored each time, and nothing that was made of it would hold any more.

    Words prove less than ids: who has forgotten a conversation says "hello" again. So they count among the messages of
    the states that ids tell of, else of the newest one; and of earlier ones where that begins otherwise, and most of
    what they have is there, more than one exchange of it.
    """
    entries, newest = conversation.entries, conversation.newest_state
    known = (conversation.positions.get(key) for key in given if key not in made)
    held = {entries[position].state for position in known if position is not None}
    places = _places(conversation, given, made, held or {newest})
    begins = [entry.fingerprint for entry in entries if entry.state == newest][:1]
    if newest and not held and begins != [one.fingerprint for one in given.values()][:1]:
        everywhere = _places(conversation, given, made, range(newest + 1))
        older = [entry for position in everywhere.values() if (entry := entries[position]).state < newest]
        most = 2 * len(older) > sum(entry.state < newest for entry in entries)
        if most and sum(is_user(entry.message) for entry in older) > 1:
            places = everywhere
    names = {*given, *conversation.positions}
    for key, one in given.items():
        name = key
        if key in places:
            name = entries[places[key]].id
        elif key in made and key in conversation.positions:
            name = next(name for n in count(1) if (name := content_id(one.fingerprint, n)) not in names)
            names.add(name)
        yield one if name == key else replace(one, message=one.message.model_copy(update={"id": name}))


def _places(
    conversation: OpenConversation, given: Mapping[str, Said], made: Collection[str], states: Collection[int]
) -> dict[str, int]:
    """Where a conversation has messages: by their ids, else by what they say, in order and among these states."""
    gone: defaultdict[str, list[int]] = defaultdict(list)
    for place, entry in enumerate(conversation.entries):
        if (entry.id not in given or entry.id in made) and entry.state in states:
            gone[entry.fingerprint].append(place)
    found: dict[str, int] = {}
    begin = 0
    for key, one in given.items():
        position = None if key in made else conversation.positions.get(key)
        if position is None:
            places = gone.get(one.fingerprint, [])
            at = bisect_left(places, begin)
            position = places[at] if at < len(places) else None
        if position is not None:
            found[key], begin = position, max(begin, position + 1)
    return found


def edit(
    store: BaseStore, conversation: OpenConversation, message_id: str, message: BaseMessage, lane: str
) -> Flow[None]:
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
    store: BaseStore, conversation: OpenConversation, message_ids: Sequence[str], lane: str, on_removal: OnRemoval
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


def read_fork(store: BaseStore, conversation: OpenConversation, until: str | None) -> Flow[Fork]:
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


def write_fork(store: BaseStore, conversation: OpenConversation, fork: Fork, lane: str) -> Flow[list[str]]:
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


def detached(scope: Scope, messages: Sequence[BaseMessage]) -> OpenConversation:
    """Returns a conversation in memory only, for a turn whose history could not be written."""
    conversation = OpenConversation(scope)
    hold(conversation, messages)
    return conversation


def hold(conversation: OpenConversation, messages: Sequence[BaseMessage]) -> None:
    """Have a conversation in memory only hold messages, unless it holds some already."""
    if not conversation.entries:
        conversation.take_in(News(records(_identify(messages, Counter(), ()), "", 0, 0)))


def require_known(conversation: OpenConversation, ids: Sequence[str], others: Collection[str] = ()) -> None:
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
    entries: OpenConversation | None = None,
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
