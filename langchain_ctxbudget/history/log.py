"""Reading and writing a conversation: open, append, make equal to an agent's state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Literal

from langchain_core.messages import BaseMessage
from langgraph.store.base import BaseStore

from langchain_ctxbudget.core.messages import content_id, fingerprint
from langchain_ctxbudget.core.tokens import TokenCounter
from langchain_ctxbudget.errors import MessageConflictError
from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.stores import compactions, message_log
from langchain_ctxbudget.stores.records import LaneRecord, MessageRecord, Place, Scope

OnRemoval = Literal["archive", "forget"]


def refresh(store: BaseStore, conversation: Conversation) -> Flow[None]:
    """Bring an open conversation up to date; where no writer has come further, that is one small read."""
    known = conversation.lanes
    latest, heads = yield from message_log.read_heads(store, conversation.scope, known or ())
    if known is not None and latest == conversation.latest and heads == known:
        return
    lanes = yield from message_log.read_lanes(store, conversation.scope)
    records = yield from message_log.read_messages(store, conversation.scope)
    conversation.update(records)
    conversation.lanes, conversation.latest = lanes, latest


def add(store: BaseStore, conversation: Conversation, messages: Sequence[BaseMessage], lane: str) -> Flow[list[str]]:
    """Append the messages that are not there yet.

    Returns:
        the ids of all given messages, in order.

    Raises:
        MessageConflictError: an id is known with other content; nothing was written.
    """
    yield from refresh(store, conversation)
    identified = _identify(messages, conversation.occurrences, conversation.positions)
    new: dict[str, tuple[BaseMessage, str]] = {}
    for message, said in identified:
        known = new[str(message.id)][1] if message.id in new else _known(conversation, str(message.id))
        if known is None:
            new[str(message.id)] = (message, said)
        elif known != said:
            raise MessageConflictError(
                f"The conversation {conversation.scope.conversation_id!r} knows message {message.id!r} with "
                f"other content, and add_messages only appends. Nothing was written. To change or remove "
                f"messages, call `sync` with all messages as they should be"
            )
    yield from _append(store, conversation, [message for message, _ in new.values()], lane)
    return [str(message.id) for message, _ in identified]


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
        the ids of all given messages, in order.

    Raises:
        MessageConflictError: `messages` has two messages of the same id with other content.
    """
    yield from refresh(store, conversation)
    wanted: dict[str, tuple[BaseMessage, str]] = {}
    for message, said in _identify(messages, Counter(), ()):
        if wanted.setdefault(str(message.id), (message, said))[1] != said:
            raise MessageConflictError(
                f"messages has two messages of id {message.id!r} with other content; ids must be unique"
            )
    removed = [entry.record for entry in conversation.entries if entry.id not in wanted]
    stay = [entry for entry in conversation.entries if entry.id in wanted]
    order = list(wanted)
    in_order = [entry.id for entry in stay] == order[: len(stay)]
    edited = [entry for entry in stay if wanted[entry.id][1] != entry.fingerprint]
    if in_order and not removed and not edited:
        yield from _append(store, conversation, [wanted[key][0] for key in order[len(stay) :]], lane)
        return order
    head, clock = _head(conversation, lane)
    put: list[MessageRecord] = []
    kept = len(stay) if in_order else _common_prefix([entry.id for entry in stay], order)
    places = {entry.id: entry.record.place for entry in stay[:kept]}
    changed = {entry.id for entry in edited}
    number = head.count
    for key in order:
        if key in places and key not in changed:
            continue
        place = places.get(key) or Place(clock=clock, lane=lane, number=number)
        number += key not in places
        put.append(MessageRecord.of(wanted[key][0], place))
    forgotten = [record.id for record in removed] if on_removal == "forget" else []
    touched = [conversation.positions[record.id] for record in removed] + [
        conversation.positions[entry.id] for entry in edited
    ]
    first = min([*touched, *([] if in_order else [kept])])
    # A model that wrote about later messages was told of this one: what is to be forgotten may stand there, too.
    forgets = on_removal == "forget" and (removed or edited)
    before = {
        tree.key(node, conversation.entries)
        for tree in (conversation.trees.values() if forgets else ())
        for node in tree.complete(first)
    }
    stale = (yield from compactions.written_besides(store, conversation.scope, before)) if forgets else []
    conversation.made.forget(stale)
    conversation.lanes = None  # whatever happens to the write, what is in the store is read again
    yield from message_log.write(
        store,
        conversation.scope,
        lane=lane,
        head=LaneRecord(clock=clock, count=number, edits=head.edits + 1),
        put=put,
        archive=[] if forgotten else removed,
        forget=forgotten,
        drop_cuts=not conversation.cuts or first < max(cut.position for cut in conversation.cuts.values()),
        derived=compactions.deleting(conversation.scope, stale),
    )
    yield from refresh(store, conversation)
    return order


def detached(scope: Scope, counter: TokenCounter, messages: Sequence[BaseMessage]) -> Conversation:
    """A conversation in memory only, for a turn whose history could not be written."""
    conversation = Conversation(scope, counter)
    for number, (message, _) in enumerate(_identify(messages, Counter(), ())):
        place = Place(clock=0, lane="", number=number)
        record = MessageRecord.of(message, place)
        conversation.append(record, record.to_message())
    return conversation


def _append(store: BaseStore, conversation: Conversation, messages: Sequence[BaseMessage], lane: str) -> Flow[None]:
    if not messages:
        return
    head, clock = _head(conversation, lane)
    records = [
        MessageRecord.of(message, Place(clock=clock, lane=lane, number=head.count + offset))
        for offset, message in enumerate(messages)
    ]
    new_head = LaneRecord(clock=clock, count=head.count + len(records), edits=head.edits)
    lanes, conversation.lanes = conversation.lanes, None  # a write that fails half-way is read again
    yield from message_log.write(store, conversation.scope, lane=lane, head=new_head, put=records)
    for record in records:
        conversation.append(record, record.to_message())
    conversation.lanes, conversation.latest = {**(lanes or {}), lane: new_head}, new_head.token(lane)


def _head(conversation: Conversation, lane: str) -> tuple[LaneRecord, int]:
    """How far a writer has come, and a clock past everything seen: also past messages whose write was cut off."""
    lanes = conversation.lanes or {}
    newest = conversation.entries[-1].record.place.clock if conversation.entries else 0
    return lanes.get(lane, LaneRecord(clock=0, count=0)), max(message_log.next_clock(lanes), newest + 1)


def _known(conversation: Conversation, message_id: str) -> str | None:
    position = conversation.positions.get(message_id)
    return None if position is None else conversation.entries[position].fingerprint


def _identify(
    messages: Sequence[BaseMessage], occurrences: Counter[str], known: Collection[str]
) -> list[tuple[BaseMessage, str]]:
    """Messages with ids, each with its fingerprint.

    Args:
        messages: some may have no id.
        occurrences: how often each fingerprint came before them.
        known: ids that a message without one must not get, for instance after an earlier one was removed.
    """
    seen = Counter(occurrences)
    given = {str(message.id) for message in messages if message.id}
    result: list[tuple[BaseMessage, str]] = []
    for message in messages:
        said = fingerprint(message)
        seen[said] += 1
        while not message.id and ((key := content_id(said, seen[said])) in known or key in given):
            seen[said] += 1
        named = message if message.id else message.model_copy(update={"id": content_id(said, seen[said])})
        result.append((named, said))
    return result


def _common_prefix(first: Sequence[str], second: Sequence[str]) -> int:
    return next(
        (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b),
        min(len(first), len(second)),
    )
