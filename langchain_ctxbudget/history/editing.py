"""An open conversation and its log: bring it up to date, and change it.

Add messages, make it equal to others, edit.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Literal

from langchain_core.messages import BaseMessage
from langgraph.store.base import BaseStore, GetOp, Item, PutOp

from langchain_ctxbudget import stores
from langchain_ctxbudget.content import has_thoughts
from langchain_ctxbudget.errors import InputError, StoreError
from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.history import log, segments
from langchain_ctxbudget.history.backgrounds import SENT, Background, words_of
from langchain_ctxbudget.history.conversation import OpenConversation, require_known
from langchain_ctxbudget.history.derived import Change
from langchain_ctxbudget.history.derived_kinds import clear_derived, forget_derived
from langchain_ctxbudget.history.differences import (
    Difference,
    IdentifiedMessage,
    additions,
    begins_with_stored,
    difference_to_state,
    identify,
    records_of,
    with_fingerprints,
)
from langchain_ctxbudget.history.log import CUTS, LANES, PINS, Heads, News
from langchain_ctxbudget.messages import Preservation, is_user

OnRemoval = Literal["archive", "forget"]
GOES_ON = (
    "the agent's state has none of the %d messages that are stored, as after a restart, and the "
    "conversation goes on from the store; to begin anew, clear the conversation or take another "
    "thread"
)
MOST_ATTEMPTS = 10
"""How often a writer announces its lane while somebody deletes the conversation."""
_log = logging.getLogger(__name__)


def refresh(
    store: BaseStore, conversation: OpenConversation, *, listing: bool = False
) -> Flow[None]:
    """Brings an open conversation up to date; with `listing`, all lanes are listed in any case."""
    if not conversation.scope.is_kept:
        return
    if conversation.heads is None and not conversation.table:
        yield from segments.read(store, conversation)
    known = None if listing else conversation.heads
    heads = yield from log.read_heads(store, conversation.scope, known)
    yield from read_until(store, conversation, heads)


def read_until(store: BaseStore, conversation: OpenConversation, now: Heads) -> Flow[None]:
    """Brings an open conversation up to date with heads that were just read."""
    before = Heads()
    goes_on = conversation.heads is not None and now.goes_on(conversation.heads)
    if conversation.heads is not None and goes_on:
        before = conversation.heads
    conversation.joined = conversation.joined and goes_on
    if not (goes_on and now.lanes):
        # It may have been cleared, or handed over, and of an empty log nobody can tell.
        conversation.owned_thread = None

    if not goes_on or now.lanes != before.lanes:
        news = yield from log.read_new(store, conversation.scope, before, now)
        conversation.heads = None  # a message that cannot be read is an error each time
        conversation.take_in(news, whole=not goes_on)
        if conversation.stored_at is not None:
            conversation.stored_at |= news.stored_at
    conversation.heads = now


class Editor:
    """One writer's changes to a conversation that is open, up to date and held by the caller."""

    def __init__(
        self,
        store: BaseStore,
        conversation: OpenConversation,
        writer_id: str,
        on_removal: OnRemoval = "forget",
    ) -> None:
        """Takes up a conversation; `on_removal` is what happens to messages that go."""
        self.store = store
        self.on_removal = on_removal
        self.conversation = conversation
        self.scope = conversation.scope
        self.lane = writer_id
        if conversation.failed_writes:
            self.lane = f"{writer_id}.{conversation.failed_writes}"

    def add(self, messages: Sequence[BaseMessage]) -> Flow[list[str]]:
        """Appends the messages that are not there yet.

        Returns the ids of all given messages, in order.
        """
        return self._apply(partial(additions, self.conversation, messages))

    def sync(
        self,
        messages: Sequence[BaseMessage],
        *,
        goes_on: bool = False,
        task: bool = False,
    ) -> Flow[list[str]]:
        """Makes the conversation equal to an agent's state; returns the ids of its messages.

        Only what the same state once held is removed. A state that holds none of what is stored has
        forgotten it, as after a restart, and its messages follow what is stored; unless it
        `goes_on`, or is that of a `task` that another agent's tool runs. Where nothing of the
        conversation is kept, it changes in memory only.
        """
        if not self.scope.is_kept:
            hold(self.conversation, messages)
            return self.conversation.table.ids
        difference = partial(
            difference_to_state, self.conversation, messages, goes_on=goes_on, task=task
        )
        return (yield from self._apply(difference))

    def edit(self, message_id: str, message: BaseMessage) -> Flow[list[str]]:
        """Replaces a message; deletes what was derived from the old one."""

        def difference() -> Difference:
            require_known(self.conversation, [message_id])
            if message.id not in (None, message_id):
                raise InputError(
                    f"The new message of {message_id!r} has the id {message.id!r}. Leave its id out"
                )
            replacement = message.model_copy(update={"id": message_id})
            return Difference(ids=[message_id], edited=with_fingerprints([replacement]))

        return self._apply(difference)

    def remove(self, message_ids: Sequence[str]) -> Flow[list[str]]:
        """Takes messages out of the conversation; archived ones can still be forgotten."""

        def difference() -> Difference:
            archived: Collection[str] = ()
            if self.on_removal == "forget":
                archived = set(self.conversation.archived.values())
            require_known(self.conversation, message_ids, archived)
            return Difference(ids=message_ids, removed=list(dict.fromkeys(message_ids)))

        return self._apply(difference)

    def erase(self, keys: Sequence[str]) -> Flow[None]:
        """Deletes records of messages, archived ones among them, and what was derived from them.

        Args:
            keys: The keys of the records.
        """
        if keys:
            yield from self._be_known()
            yield from self._change(erased=keys)

    def begin_with(
        self,
        messages: Sequence[BaseMessage],
        pins: Mapping[str, Preservation],
        beside: Sequence[PutOp] = (),
    ) -> Flow[list[str]]:
        """Begins the conversation with messages of another one; returns their ids.

        What is derived from them is worked out again: nothing of it may tell of messages that are
        not here.
        """

        def difference() -> Difference:
            self._require_new()
            ids = [str(message.id) for message in messages]
            return Difference(ids=ids, appended=with_fingerprints(messages))

        puts = [*beside]
        if pins:
            record = stores.PinsRecord(pins=dict(pins))
            puts.insert(0, stores.put_of(self.scope.place(PINS), record))
        self._require_new()
        yield from clear_derived(self.store, self.scope)
        return (yield from self._apply(difference, beside=puts))

    def _require_new(self) -> None:
        if self.conversation.table or self.conversation.archived:
            raise InputError(
                f"There is a conversation {self.scope.conversation_id!r} already. "
                f"Fork to another id"
            )

    def _apply(
        self,
        find: Callable[[], Difference],
        beside: Sequence[PutOp] = (),
    ) -> Flow[list[str]]:
        """Writes a difference; returns the ids of the messages that were given.

        Args:
            find: Finds the difference; called again if others have written before this writer.
            beside: Writes that go with the first messages.
        """
        conversation = self.conversation
        difference = find()
        if difference.changes_log:
            digest = conversation.table.digest()
            yield from self._be_known()
            if digest != conversation.table.digest():
                difference = find()
        self._note_forgotten(difference)

        # What is to be told at another place is as it should be before it is appended, and appended
        # before it is taken from the old one: wherever it ends, nothing is missing, and nothing
        # there in two ways.
        yield from self._change(edited=difference.edited)
        moved: list[str] = []
        for message_id in difference.moved:
            moved += conversation.keys_of(message_id)
        new_ids = yield from self._append(difference.appended, difference.state, beside)
        yield from self._change(removed=difference.removed, moved=moved)
        if not new_ids:  # as nearly always, and there may be many
            return list(difference.ids)
        return [new_ids.get(message_id, message_id) for message_id in difference.ids]

    def _be_known(self) -> Flow[None]:
        """Makes sure that all readers know this writer's lane."""
        heads = self.conversation.heads or Heads()
        if not self.conversation.joined or self.lane not in heads.surely_polled():
            yield from self._join()

    def _note_forgotten(self, difference: Difference) -> None:
        """Notes that an agent's state has forgotten what is stored; the log is told once."""
        conversation = self.conversation
        conversation.forgotten = difference.forgotten
        if not difference.forgotten:
            return
        conversation.newest_state = difference.state or 0
        if not conversation.has_logged_forgotten:
            _log.info(
                "conversation %r: %s", self.scope.conversation_id, GOES_ON % difference.forgotten
            )
        conversation.has_logged_forgotten = True

    def _append(
        self, messages: Sequence[IdentifiedMessage], state: int | None, beside: Sequence[PutOp]
    ) -> Flow[dict[str, str]]:
        """Writes messages at the end of the lane.

        Returns the new ids of those whose ids somebody took meanwhile, by their old ones.
        """
        if not messages:
            return {}
        conversation = self.conversation
        head, clock = self._head_and_clock()
        records = records_of(
            messages,
            lane=self.lane,
            clock=clock,
            first=head.count,
            state=conversation.newest_state if state is None else state,
        )
        puts = [*beside, *self._background_puts(messages)]
        if conversation.cuts and not conversation.table:  # of the prompt for the first message
            cuts = stores.CutsRecord(cuts=tuple(conversation.cuts.values()))
            puts.append(stores.put_of(self.scope.place(CUTS), cuts))

        checks_all = conversation.backgrounds_read >= len(conversation.table)
        yield from self._commit(records, News(records), puts)
        if checks_all:
            conversation.backgrounds_read = len(conversation.table)
        return self._changed_ids(messages, records)

    def _background_puts(self, messages: Sequence[IdentifiedMessage]) -> Iterator[PutOp]:
        """Yields the writes of the backgrounds that messages to be appended were sent with."""
        conversation = self.conversation
        first = len(conversation.table)
        for position, message in enumerate(messages, first):
            background = conversation.backgrounds.get(position)
            if background and background.said == words_of(message.message):
                yield put_sent(self.scope, _of_thoughts(background, first, messages))

    def _changed_ids(
        self, messages: Sequence[IdentifiedMessage], records: Sequence[stores.MessageRecord]
    ) -> dict[str, str]:
        """Returns the ids under which appended messages stand, by the ids that they were given."""
        table = self.conversation.table
        ids = [message.id for message in messages]
        if table.ids[-len(ids) :] == ids:  # as nearly always
            return {}
        new_ids: dict[str, str] = {}
        for message_id, record in zip(ids, records, strict=True):
            position = table.at_place(record.place.key)
            if position is not None:
                new_ids[message_id] = table.ids[position]
        return new_ids

    def _change(
        self,
        *,
        edited: Sequence[IdentifiedMessage] = (),
        removed: Sequence[str] = (),
        moved: Sequence[str] = (),
        erased: Sequence[str] = (),
    ) -> Flow[None]:
        """Changes stored messages, and deletes what was derived from them.

        Args:
            edited: Messages in place of those that have their ids.
            removed: The ids of messages that go.
            moved: The keys of records that go, as their messages stand at another place now.
            erased: The keys of records that go, of whatever messages.
        """
        conversation = self.conversation
        changed: dict[str, stores.MessageRecord | None] = dict.fromkeys((*moved, *erased))
        for message in edited:
            changed |= self._edited_records(message)
        for message_id in removed:
            changed |= self._removed_records(message_id)
        if not changed:
            return

        is_forgotten = self.on_removal == "forget" and bool(edited or removed or erased)
        change = self._change_of(changed, is_forgotten=is_forgotten)
        notice = stores.ChangeRecord(changed=tuple(changed))
        yield from self._commit([notice], News([]))

        heads = conversation.heads
        conversation.heads = None  # a write that fails half-way is read again
        yield from forget_derived(self.store, change)
        yield from stores.bulk.write_messages(self.store, log.puts(self.store, self.scope, changed))
        conversation.heads = heads
        yield from self._commit([notice], News([], changed))

    def _edited_records(self, message: IdentifiedMessage) -> dict[str, stores.MessageRecord | None]:
        """Returns the records of a message that is edited, by key; None for its doubles."""
        table = self.conversation.table
        records: dict[str, stores.MessageRecord | None] = dict.fromkeys(
            self.conversation.keys_of(message.id)
        )
        position = table.positions.get(message.id)
        if position is not None:
            place = table.place(position)
            records[place.key] = stores.MessageRecord.of(message.message, place)
        return records

    def _removed_records(self, message_id: str) -> dict[str, stores.MessageRecord | None]:
        """Returns the records of a message that is removed, by key; None for those that go."""
        conversation = self.conversation
        records: dict[str, stores.MessageRecord | None] = dict.fromkeys(
            conversation.keys_of(message_id)
        )
        if self.on_removal == "forget":
            for key, archived_id in conversation.archived.items():
                if archived_id == message_id:
                    records[key] = None
            return records

        position = conversation.table.positions.get(message_id)
        if position is not None:
            record = conversation.table.record(position)
            records[record.place.key] = record.model_copy(update={"archived": True})
        return records

    def _change_of(self, records: Collection[str], *, is_forgotten: bool) -> Change:
        """Returns a change of some records, as what is derived from their messages sees it."""
        first = self._first_position(records)
        intact: set[str] = set()
        for tree in self.conversation.table.trees.values():
            intact.update(tree.key(node) for node in tree.complete(first))
        intact.discard("")
        return Change(
            scope=self.scope,
            first=first,
            records=records,
            is_forgotten=is_forgotten,
            intact_spans=intact,
        )

    def _first_position(self, keys: Iterable[str]) -> int:
        """Returns where the first of some records' messages stands; the end if none does."""
        table = self.conversation.table
        first = len(table)
        for key in keys:
            position = table.at_place(key)
            if position is not None:
                first = min(first, position)
        return first

    def _commit(
        self,
        records: Sequence[stores.MessageRecord | stores.ChangeRecord],
        news: News,
        beside: Sequence[PutOp] = (),
    ) -> Flow[None]:
        """Writes records, takes them in, and looks what others have written meanwhile.

        Args:
            records: The next records of the lane.
            news: What they tell, as a reader takes it in.
            beside: Writes that belong to them.
        """
        conversation = self.conversation
        known = conversation.heads or Heads()
        old_head, clock = self._head_and_clock()
        new_head = stores.LaneRecord(
            born=old_head.born, clock=clock, count=old_head.count + len(records)
        )
        by_key = {
            stores.place_key(self.lane, number): record
            for number, record in enumerate(records, old_head.count)
        }
        # Written in this order: what the head counts is there before it.
        puts = [
            *beside,
            *log.puts(self.store, self.scope, by_key),
            log.head_put(self.scope, self.lane, new_head),
        ]

        conversation.heads = None  # a write that fails half-way is read again
        try:
            yield from stores.bulk.write_messages(self.store, puts)
        except BaseException:
            # It may still arrive: the next one goes to another lane.
            conversation.failed_writes += 1
            raise
        conversation.take_in(news)
        written = Heads(known.joined, {**known.lanes, self.lane: new_head})
        conversation.heads = written

        try:
            yield from self._look_around(written, old_head)
        except Exception:  # noqa: BLE001 - it is written
            # What was not looked at now is looked at before the next write.
            conversation.heads = None
            conversation.joined = False

    def _look_around(self, written: Heads, old_head: stores.LaneRecord) -> Flow[None]:
        """Reads what others have written; joins again if they may not have seen this lane.

        Args:
            written: The heads after this writer's write.
            old_head: The lane's head before it.
        """
        conversation = self.conversation
        yield from refresh(self.store, conversation)
        heads = conversation.heads or Heads()
        if heads.joined == written.joined and heads.goes_on(written):
            meanwhile = Heads(None, {**heads.lanes, self.lane: old_head})
            if self.lane not in meanwhile.surely_polled():
                yield from self._join()
        elif self.lane in heads.lanes:
            # The conversation may have been deleted: a new head, or readers would not look.
            head = heads.lanes[self.lane].model_copy(update={"born": stores.new_token()})
            yield from batch(self.store, [log.head_put(self.scope, self.lane, head)])
            conversation.heads = None
            yield from refresh(self.store, conversation, listing=True)
            yield from self._join()

    def _join(self) -> Flow[None]:
        """Makes the lane known to all readers, and the lanes of others to this one."""
        for _ in range(MOST_ATTEMPTS):  # somebody may be deleting the conversation
            if self.lane not in (self.conversation.heads or Heads()).lanes:
                head = stores.LaneRecord(born=stores.new_token(), clock=0, count=0)
                yield from batch(self.store, [log.head_put(self.scope, self.lane, head)])
            yield from batch(self.store, [log.joined_put(self.scope)])
            yield from refresh(self.store, self.conversation, listing=True)
            heads = self.conversation.heads or Heads()
            if self.lane in heads.lanes and heads.joined is not None:
                break  # else what was told was deleted
        self.conversation.joined = True

    def _head_and_clock(self) -> tuple[stores.LaneRecord, int]:
        """Returns the lane's head, and the clock of its next record: behind all that are known."""
        heads = self.conversation.heads or Heads()
        if self.lane not in heads.lanes:
            raise StoreError(
                f"The conversation {self.scope.conversation_id!r} was deleted while it was "
                f"written. Nothing was written; try again"
            )
        return heads.lanes[self.lane], 1 + max(lane.clock for lane in heads.lanes.values())


def is_deserted(store: BaseStore, conversation: OpenConversation) -> Flow[bool]:
    """Returns whether a conversation has no messages, and nobody has written since it was read."""
    if conversation.table or conversation.archived:
        return False
    now = yield from log.read_heads(store, conversation.scope)
    return now == conversation.heads


def dissolve(store: BaseStore, conversation: OpenConversation) -> Flow[bool]:
    """Deletes everything that is left of a conversation without messages.

    Returns False where another process has written to it at this very moment: then it goes on with
    what was written. The heads of the lanes are deleted first, and what stands behind them gets new
    ones; a writer that comes later finds its lane gone, and makes it known again.
    """
    scope = conversation.scope
    known = conversation.heads or Heads()
    yield from clear_derived(store, scope)
    in_log = (scope.namespace(LANES), scope.namespace(log.MESSAGES))
    namespaces = yield from stores.read_namespaces(store, scope.path)
    for namespace in namespaces:
        if namespace not in in_log:
            items = yield from stores.read_all(store, namespace)
            yield from stores.bulk.write(store, stores.bulk.deletions_of(items))

    heads = [GetOp(scope.namespace(LANES), name) for name in (log.JOINED, *known.lanes)]
    yield from batch(store, [stores.put_of(place, None) for place in heads])
    left = yield from log.read_behind_heads(store, scope, known)
    yield from stores.bulk.write(store, left.outdated)
    if left.heads:
        puts = [log.head_put(scope, lane, head) for lane, head in left.heads.items()]
        yield from batch(store, [*puts, log.joined_put(scope)])
    return not left.heads


def read_sent(store: BaseStore, conversation: OpenConversation) -> Flow[None]:
    """Reads the backgrounds that another process wrote, of messages that a cut may still show."""
    end = len(conversation.table)
    begun = min((cut.begun for cut in conversation.cuts.values() if cut.prefix), default=end)
    first = max(begun, conversation.backgrounds_read)
    positions = [at for at in range(first, end) if is_user(conversation.table[at].message)]
    conversation.backgrounds |= yield from sent_at(store, conversation.scope, positions)
    conversation.backgrounds_read = end


def sent_at(
    store: BaseStore, scope: stores.Scope, positions: Sequence[int]
) -> Flow[dict[int, Background]]:
    """Returns the stored backgrounds of the messages at some positions."""
    places = [GetOp(scope.namespace(SENT), str(position)) for position in positions]
    items = yield from batch(store, places)
    backgrounds: dict[int, Background] = {}
    for position, item in zip(positions, items, strict=True):
        if isinstance(item, Item):
            with suppress(InputError):  # derived: the message is shown without it
                backgrounds[position] = Background.from_dict(stores.from_stored(item.value))
    return backgrounds


def _of_thoughts(
    background: Background, first: int, messages: Sequence[IdentifiedMessage]
) -> Background:
    """Returns a background without what it says of answers that have no thoughts.

    Args:
        background: The background.
        first: The position of the first message that is to be stored with it.
        messages: These messages.
    """
    answers = {
        position: digest
        for position, digest in background.answers.items()
        if not first <= position < first + len(messages)
        or has_thoughts(messages[position - first].message)
    }
    return replace(background, answers=answers)


def put_sent(scope: stores.Scope, background: Background) -> PutOp:
    """Returns the write that stores the background of a message."""
    return PutOp(
        scope.namespace(SENT),
        str(background.position),
        stores.to_stored(background.to_dict()),
        index=False,
    )


def hold(conversation: OpenConversation, messages: Sequence[BaseMessage]) -> None:
    """Gives messages to a conversation that is in memory only, unless it has some already."""
    if not conversation.table:
        identified = identify(messages, conversation.table)
        conversation.take_in(News(records_of(identified)))


def mirror(conversation: OpenConversation, messages: Sequence[BaseMessage]) -> None:
    """Makes a conversation that is in memory only consist of some messages.

    Those that it has already are not read again.
    """
    with_ids = messages
    if not all(message.id for message in messages):
        with_ids = [identified.message for identified in identify(messages, conversation.table)]
    is_shorter = len(with_ids) < len(conversation.table)
    if is_shorter or not begins_with_stored(conversation, with_ids):
        because = conversation.apart_because
        conversation.reset()
        conversation.apart_because = because

    first = len(conversation.table)
    added = with_ids[first:]
    if added:
        conversation.take_in(News(records_of(with_fingerprints(added), first=first)))
