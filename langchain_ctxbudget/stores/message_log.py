"""A conversation's messages in a store: append, replace, remove, read; one order for every reader."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from langgraph.store.base import BaseStore, GetOp, Item, Op, PutOp, SearchOp

from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.stores.records import LaneRecord, MessageRecord, Scope

MESSAGES, ARCHIVE, LANES, LATEST, CUTS, PINS = "messages", "archive", "lanes", "latest", "cuts", "pins"
PAGE = 100_000
"""Items per search: every page reads the namespace again."""


def read_all(store: BaseStore, namespace: tuple[str, ...]) -> Flow[list[Item]]:
    """Every item of a namespace."""
    items: list[Item] = []
    while True:
        results = yield from batch(store, [SearchOp(namespace, limit=PAGE, offset=len(items))])
        page = cast("list[Item]", results[0])
        items.extend(page)
        if len(page) < PAGE:
            return [item for item in items if item.namespace == namespace]


def read_heads(store: BaseStore, scope: Scope, known: Iterable[str]) -> Flow[tuple[str | None, dict[str, LaneRecord]]]:
    """The last write's token, and how far the known writers have come: what tells whether anything is new.

    Read by id, so that it costs the same however long the conversation is. A writer that is not known shows
    by its token; should another writer's token hide it, by its next write.
    """
    lanes = list(known)
    gets = [GetOp(scope.namespace(LATEST), LATEST), *(GetOp(scope.namespace(LANES), lane) for lane in lanes)]
    latest, *heads = yield from batch(store, gets)
    token = str(latest.value["token"]) if isinstance(latest, Item) else None
    found = zip(lanes, heads, strict=True)
    return token, {lane: _lane(head) for lane, head in found if isinstance(head, Item)}


def read_lanes(store: BaseStore, scope: Scope) -> Flow[dict[str, LaneRecord]]:
    """How far every writer of a conversation has come."""
    items = yield from read_all(store, scope.namespace(LANES))
    return {item.key: _lane(item) for item in items}


def _lane(item: Item) -> LaneRecord:
    return LaneRecord.read(item.value, f"lane {item.key!r}")


def read_messages(store: BaseStore, scope: Scope) -> Flow[list[MessageRecord]]:
    """Every message of a conversation, in order."""
    items = yield from read_all(store, scope.namespace(MESSAGES))
    records: list[MessageRecord] = [MessageRecord.read(item.value, f"message {item.key!r}") for item in items]
    return sorted(records, key=lambda record: record.place.key)


def write(
    store: BaseStore,
    scope: Scope,
    *,
    lane: str,
    head: LaneRecord,
    put: Sequence[MessageRecord] = (),
    archive: Sequence[MessageRecord] = (),
    forget: Sequence[str] = (),
    drop_cuts: bool = False,
    derived: Sequence[PutOp] = (),
) -> Flow[None]:
    """Write messages, and then that they are written.

    The lane's record comes last: a reader that was cut off in between still finds every message, because a
    conversation that is opened is read whole.

    Args:
        store: where to.
        scope: whose conversation.
        lane: the writer.
        head: how far it will have come.
        put: messages to add or replace.
        archive: messages to take out of the conversation and keep aside.
        forget: ids of messages to delete, here and from what was kept aside.
        drop_cuts: also delete the compaction cuts, whose summaries quote messages that are no longer there.
        derived: deletions of what else was derived from them.
    """
    operations: list[Op] = [_put(scope.namespace(MESSAGES), record) for record in put]
    operations += [_put(scope.namespace(ARCHIVE), record) for record in archive]
    yield from batch(store, operations)
    gone = [record.id for record in archive] + list(forget)
    removals: list[Op] = [PutOp(scope.namespace(MESSAGES), message_id, None) for message_id in gone]
    removals += [PutOp(scope.namespace(ARCHIVE), message_id, None) for message_id in forget]
    removals += derived
    if drop_cuts:
        removals.append(PutOp(scope.namespace(CUTS), CUTS, None))
    progress: list[Op] = [
        PutOp(scope.namespace(LANES), lane, head.model_dump(), index=False),
        PutOp(scope.namespace(LATEST), LATEST, {"token": head.token(lane)}, index=False),
    ]
    yield from batch(store, [*removals, *progress])


def _put(namespace: tuple[str, ...], record: MessageRecord) -> PutOp:
    return PutOp(namespace, record.id, record.model_dump(), index=False)


def next_clock(lanes: Mapping[str, LaneRecord]) -> int:
    """A clock past everything that was seen."""
    return 1 + max((lane.clock for lane in lanes.values()), default=0)
