"""An open conversation and its log: bring it up to date, append to it, change what is there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

from langchain_core.messages import BaseMessage
from langgraph.store.base import BaseStore, GetOp, Item, PutOp

from langchain_ctxbudget.errors import StoreDataError, StoreError
from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.history import message_log
from langchain_ctxbudget.history.message_log import CUTS, Heads, News
from langchain_ctxbudget.history.open import OpenConversation
from langchain_ctxbudget.history.stored_summaries import deleting_besides
from langchain_ctxbudget.stores import bulk
from langchain_ctxbudget.stores.records import (
    ChangeRecord,
    CutsRecord,
    LaneRecord,
    MessageRecord,
    Place,
)

OnRemoval = Literal["archive", "forget"]
MOST_ATTEMPTS = 10
"""Times that a writer tells of itself while somebody deletes what it has told."""


def refresh(store: BaseStore, conversation: OpenConversation, *, listing: bool = False) -> Flow[None]:
    """Bring an open conversation up to date; where no writer has come further, that is one small read.

    Args:
        store: where it is kept; one in memory only is not.
        conversation: what is known of it.
        listing: whether all lanes are to be listed.
    """
    if not conversation.scope.is_kept:
        return
    known = conversation.heads
    now = yield from message_log.read_heads(store, conversation.scope, None if listing else known)
    goes_on = known is not None and now.goes_on(known)
    before = known if known is not None and goes_on else Heads()
    conversation.joined = conversation.joined and goes_on
    if not goes_on or now.lanes != before.lanes:
        news = yield from message_log.read_new(store, conversation.scope, before, now)
        conversation.heads = None  # a message that cannot be read is an error each time
        conversation.take_in(news, whole=not goes_on)
    conversation.heads = now


@dataclass(frozen=True, slots=True)
class Said:
    """A message that has an id, and its fingerprint."""

    message: BaseMessage
    fingerprint: str
    named: bool
    """Whether the application gave it its id."""

    @property
    def id(self) -> str:
        """The message's id."""
        return str(self.message.id)


def append(
    store: BaseStore,
    conversation: OpenConversation,
    new: Sequence[Said],
    lane: str,
    *,
    state: int | None = None,
    moves: bool = False,
) -> Flow[dict[str, str]]:
    """Write messages at the end of the writer's lane.

    Args:
        store: where to.
        conversation: which one.
        new: messages that it does not have.
        lane: the writer's.
        state: which of the agent's states they come from; None is the newest.
        moves: whether some are there at another place, from which they are taken next.

    Returns:
        the ids that they go by, where another writer has used theirs at the same moment, by their own.
    """
    if not new:
        return {}
    head, clock = _head(conversation, lane)
    made = records(new, lane, clock, head.count, conversation.newest_state if state is None else state)
    yield from _commit(store, conversation, lane, made, News(made), tidies=not moves)
    own = {record.place.key: one.id for record, one in zip(made, new, strict=True)}
    shown = (
        (own.pop(e.record.place.key, None), e.id) for e in takewhile(lambda _: own, reversed(conversation.entries))
    )
    return {key: name for key, name in shown if key is not None and key != name}


def records(new: Iterable[Said], lane: str, clock: int, first: int, state: int = 0) -> list[MessageRecord]:
    """The records of messages that follow each other in a lane, from a number on."""
    return [
        MessageRecord.of(one.message, Place(clock=clock, lane=lane, number=number, state=state), named=one.named)
        for number, one in enumerate(new, first)
    ]


def change(
    store: BaseStore,
    conversation: OpenConversation,
    lane: str,
    *,
    on_removal: OnRemoval,
    edited: Sequence[Said] = (),
    removed: Sequence[str] = (),
    moved: Sequence[Place] = (),
) -> Flow[None]:
    """Change what is there, and delete what was derived from it; what is not there any more is left out."""
    rewritten: list[MessageRecord] = []
    gone: list[Place] = list(moved)
    for one in edited:
        if places := conversation.places_of(one.id):
            rewritten.append(MessageRecord.of(one.message, places[0]))
            gone += places[1:]
    for key in removed:
        entry, places = conversation.entry(key), conversation.places_of(key)
        if on_removal == "forget":
            gone += [*places, *conversation.archived.get(key, ())]
        elif entry is not None:
            rewritten.append(entry.record.model_copy(update={"archived": True}))
            gone += places[1:]
    places = [*(record.place for record in rewritten), *gone]
    if not places:
        return
    keys = dict.fromkeys(place.key for place in places)
    touched = (position for position, entry in enumerate(conversation.entries) if entry.record.place.key in keys)
    first = next(touched, len(conversation.entries))
    forgets = on_removal == "forget" and bool(edited or removed)
    derived = yield from _stale(store, conversation, first, forgets=forgets)
    yield from _rewrite(store, conversation, lane, rewritten=rewritten, gone=gone, derived=derived)


def _rewrite(
    store: BaseStore,
    conversation: OpenConversation,
    lane: str,
    *,
    rewritten: Sequence[MessageRecord],
    gone: Sequence[Place],
    derived: Sequence[PutOp] = (),
) -> Flow[None]:
    """Write over records where they stand, delete others, and tell the readers, before it and after it."""
    changed = dict.fromkeys((place.key for place in gone), None) | {r.place.key: r for r in rewritten}
    notice = ChangeRecord(changed=tuple(changed))
    yield from _commit(store, conversation, lane, [notice], News([]), tidies=False)
    heads, conversation.heads = conversation.heads, None  # a write that fails half-way is read again
    conversation.untold.update(changed)
    stay = message_log.rewriting(store, conversation.scope, rewritten)
    go = message_log.deleting(conversation.scope, [place for place in gone if changed[place.key] is None])
    yield from bulk.write_messages(store, [*stay, *go, *derived])
    conversation.heads = heads
    yield from _commit(store, conversation, lane, [notice], News([], changed))
    conversation.untold.difference_update(changed)


def _stale(store: BaseStore, conversation: OpenConversation, first: int, *, forgets: bool) -> Flow[list[PutOp]]:
    """The deletions of what was derived from the messages from a position on.

    Args:
        store: where to look.
        conversation: as it was.
        first: the position of the first message that changes.
        forgets: whether nothing may tell of it any more, also what a model wrote that was only told of it.
    """
    scope = conversation.scope
    [item] = yield from batch(store, [GetOp(scope.namespace(CUTS), CUTS)])
    deletions: list[PutOp] = []
    if isinstance(item, Item):
        try:
            cuts = CutsRecord.read(item.value, "the compaction cuts").cuts
        except StoreDataError:  # made again
            cuts = ()
        stay = tuple(cut for cut in cuts if max(cut.position, cut.cleared) <= first)
        value = CutsRecord(cuts=stay).to_value() if stay else None
        deletions.append(PutOp(scope.namespace(CUTS), CUTS, value, index=False))
    if forgets:
        deletions += yield from deleting_besides(store, scope, contents_before(conversation, first))
    return deletions


def contents_before(conversation: OpenConversation, position: int) -> set[str]:
    """Hashes of the spans before a position."""
    trees = conversation.table.trees.values()
    return {key for tree in trees for node in tree.complete(position) if (key := tree.key(node))}


def _commit(
    store: BaseStore,
    conversation: OpenConversation,
    lane: str,
    records: Sequence[MessageRecord | ChangeRecord],
    news: News,
    *,
    tidies: bool = True,
) -> Flow[None]:
    """Write records, take them in, and look what others have written in the meantime."""
    heads = conversation.heads or Heads()
    head, clock = _head(conversation, lane)
    conversation.heads = None  # a write that fails half-way is read again
    try:
        new = yield from message_log.append(store, conversation.scope, lane, head, records, clock=clock)
    except BaseException:
        conversation.failed_writes += 1  # it may still arrive: the next one goes to another lane
        raise
    conversation.take_in(news)
    conversation.heads = Heads(heads.joined, {**heads.lanes, lane: new})
    try:
        yield from _look_again(store, conversation, lane, head)
        if tidies:
            yield from _tidy(store, conversation, lane)
    except Exception:  # noqa: BLE001 - it is written; what could not be looked at now is looked at before the next write
        conversation.heads, conversation.joined = None, False


def _look_again(store: BaseStore, conversation: OpenConversation, lane: str, before: LaneRecord) -> Flow[None]:
    """After a write, look what others have written at the same moment.

    Args:
        store: where.
        conversation: whose.
        lane: the writer's.
        before: its head before the write.
    """
    written = conversation.heads
    yield from refresh(store, conversation)
    heads = conversation.heads or Heads()
    if written is not None and (heads.joined != written.joined or not heads.goes_on(written)):
        if lane in heads.lanes:  # the conversation may have been deleted: another lane now, or readers would not look
            left = message_log.new_head(heads.lanes[lane].clock, heads.lanes[lane].count)
            yield from message_log.write_head(store, conversation.scope, lane, left)
            conversation.heads = None
            yield from refresh(store, conversation, listing=True)
            yield from _join(store, conversation, lane)
    elif lane not in Heads(None, {**heads.lanes, lane: before}).polled(message_log.SURE):
        yield from _join(store, conversation, lane)


def prepare(store: BaseStore, conversation: OpenConversation, lane: str) -> Flow[bool]:
    """Make a writer known before it writes; whether the conversation may be another one now."""
    digest = conversation.digest
    if not conversation.joined or lane not in (conversation.heads or Heads()).polled(message_log.SURE):
        yield from _join(store, conversation, lane)
    yield from _tidy(store, conversation, lane)
    if untold := sorted(conversation.untold):
        yield from _commit(store, conversation, lane, [ChangeRecord(changed=tuple(untold))], News([]))
        conversation.untold.difference_update(untold)
    return digest != conversation.digest


def _join(store: BaseStore, conversation: OpenConversation, lane: str) -> Flow[None]:
    """Make a lane known to all readers, and the lanes of others to this one."""
    scope = conversation.scope
    for _ in range(MOST_ATTEMPTS):  # somebody may be deleting the conversation
        if lane not in (conversation.heads or Heads()).lanes:
            yield from message_log.write_head(store, scope, lane, message_log.new_head())
        yield from message_log.tell(store, scope)
        yield from refresh(store, conversation, listing=True)
        heads = conversation.heads or Heads()
        if lane in heads.lanes and heads.joined is not None:  # else the register went after it had been told
            break
    conversation.joined = True


def _tidy(store: BaseStore, conversation: OpenConversation, lane: str) -> Flow[None]:
    """Make the log say what a reader makes of it, where two writers have used one id."""
    if conversation.doubles or conversation.renamed:
        entries = (entry for entry in conversation.entries if entry.record.place.key in conversation.renamed)
        # Still without a name of its own where it had none: others may find that another one is called so, too.
        rewritten = [MessageRecord.of(e.message, e.record.place, named=e.record.named) for e in entries]
        gone = [record.place for record in conversation.doubles]
        yield from _rewrite(store, conversation, lane, rewritten=rewritten, gone=gone)


def _head(conversation: OpenConversation, lane: str) -> tuple[LaneRecord, int]:
    """How far a writer has come, and a clock past everything seen.

    Raises:
        StoreError: the conversation was deleted by somebody else at this moment.
    """
    heads = conversation.heads or Heads()
    if lane not in heads.lanes:
        raise StoreError(
            f"The conversation {conversation.scope.conversation_id!r} was deleted while it was written. Nothing was "
            f"written; try again"
        )
    return heads.lanes[lane], heads.clock + 1
