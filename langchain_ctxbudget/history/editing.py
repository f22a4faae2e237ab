"""An open conversation and its log: bring it up to date, and change it.

Add messages, make it equal to others, edit.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Literal, NamedTuple

from langchain_core.messages import BaseMessage
from langgraph.store.base import BaseStore, GetOp, Item, PutOp

from langchain_ctxbudget import stores
from langchain_ctxbudget.errors import InputError, MessageConflictError, StoreDataError, StoreError
from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.history import log, segments
from langchain_ctxbudget.history.backgrounds import SENT, Background, words_of
from langchain_ctxbudget.history.conversation import OpenConversation, require_known
from langchain_ctxbudget.history.log import CUTS, PINS, Heads, News
from langchain_ctxbudget.history.summarizing import COMPACTIONS
from langchain_ctxbudget.history.table import MessageTable
from langchain_ctxbudget.messages import (
    Preservation,
    SeenMessages,
    content_id,
    fingerprint,
    is_user,
    plainly_same,
    with_short_call_ids,
)
from langchain_ctxbudget.tokens import OPENAI_CALL_ID_CHARACTERS

OnRemoval = Literal["archive", "forget"]
GOES_ON = (
    "the agent's state has none of the %d messages that are stored, as after a restart, and the conversation goes on "
    "from the store; to begin anew, clear the conversation or take another thread"
)
TASK = -1
"""The state of an agent that runs inside another one's tool; its messages are archived when the
outer one goes on."""
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
    now = yield from log.read_heads(
        store, conversation.scope, None if listing else conversation.heads
    )
    yield from read_until(store, conversation, now)


def read_until(store: BaseStore, conversation: OpenConversation, now: Heads) -> Flow[None]:
    """Brings an open conversation up to date with heads that were just read."""
    known = conversation.heads
    goes_on = known is not None and now.goes_on(known)
    before = known if known is not None and goes_on else Heads()
    conversation.joined = conversation.joined and goes_on
    if (
        not goes_on or not now.lanes
    ):  # it may have been cleared, or handed over, and of an empty log nobody can tell
        conversation.owned_thread = None
    if not goes_on or now.lanes != before.lanes:
        news = yield from log.read_new(store, conversation.scope, before, now)
        conversation.heads = None  # a message that cannot be read is an error each time
        conversation.take_in(news, whole=not goes_on)
        if conversation.stored_at is not None:
            conversation.stored_at |= news.stored_at
    conversation.heads = now


class GivenMessage(NamedTuple):
    """A message that has an id, and its fingerprint."""

    message: BaseMessage
    fingerprint: str
    named: bool

    @property
    def id(self) -> str:
        """The message's id."""
        return str(self.message.id)


class Difference(NamedTuple):
    """The changes that turn a conversation into the wanted one."""

    ids: Sequence[str]
    appended: Sequence[GivenMessage] = ()
    edited: Sequence[GivenMessage] = ()
    removed: Sequence[str] = ()
    moved: Sequence[str] = ()
    """Ids of those that are appended, and are there already at another place."""
    state: int | None = None
    """Which of the agent's states they are, see `Place`; None for the newest."""
    forgotten: int = 0


class Editor:
    """One writer's changes to a conversation that is open, up to date and held by the caller."""

    def __init__(self, store: BaseStore, conversation: OpenConversation, writer_id: str) -> None:
        self.store = store
        self.conversation = conversation
        self.scope = conversation.scope
        self.lane = (
            f"{writer_id}.{conversation.failed_writes}" if conversation.failed_writes else writer_id
        )

    def add(self, messages: Sequence[BaseMessage]) -> Flow[list[str]]:
        """Appends the messages that are not there yet.

        Returns the ids of all given messages, in order.
        """
        return self._apply(partial(_added, self.conversation, messages))

    def sync(
        self,
        messages: Sequence[BaseMessage],
        on_removal: OnRemoval,
        *,
        goes_on: bool = False,
        task: bool = False,
    ) -> Flow[list[str]]:
        """Makes the conversation equal to an agent's state, in memory only where nothing of it is kept.

        Only what the same state once held is removed: one that holds none of what is stored has
        forgotten it, and its messages follow what is stored; unless it `goes_on`, or is that of a
        `task` that another agent's tool runs.
        """
        if not self.scope.is_kept:
            hold(self.conversation, messages)
            return self.conversation.table.ids
        found = partial(_difference, self.conversation, messages, goes_on=goes_on, task=task)
        return (yield from self._apply(found, on_removal))

    def edit(self, message_id: str, message: BaseMessage) -> Flow[list[str]]:
        """Replaces a message; deletes what was derived from the old one."""

        def difference() -> Difference:
            require_known(self.conversation, [message_id])
            if message.id not in (None, message_id):
                raise InputError(
                    f"The new message of {message_id!r} has the id {message.id!r}. Leave its id out"
                )
            return Difference(
                [message_id], edited=_given([message.model_copy(update={"id": message_id})])
            )

        return self._apply(difference)

    def remove(self, message_ids: Sequence[str], on_removal: OnRemoval) -> Flow[list[str]]:
        """Takes messages out of the conversation; archived ones can still be forgotten."""

        def difference() -> Difference:
            others = () if on_removal == "archive" else self.conversation.archived.values()
            require_known(self.conversation, message_ids, others)
            return Difference(message_ids, removed=list(dict.fromkeys(message_ids)))

        return self._apply(difference, on_removal)

    def begin_with(
        self,
        messages: Sequence[BaseMessage],
        pins: Mapping[str, Preservation],
        beside: Sequence[PutOp] = (),
    ) -> Flow[list[str]]:
        """Begins the conversation with messages of another one; returns their ids."""

        def difference() -> Difference:
            if self.conversation.table or self.conversation.archived:
                raise InputError(
                    f"There is a conversation {self.scope.conversation_id!r} already. Fork to another id"
                )
            return Difference([str(message.id) for message in messages], _given(messages))

        pinned = (
            [stores.written(self.scope.place(PINS), stores.PinsRecord(pins=dict(pins)))]
            if pins
            else []
        )
        return self._apply(difference, beside=[*pinned, *beside])

    def _apply(
        self,
        find: Callable[[], Difference],
        on_removal: OnRemoval = "forget",
        beside: Sequence[PutOp] = (),
    ) -> Flow[list[str]]:
        conversation = self.conversation
        todo = find()
        if todo.appended or todo.edited or todo.removed:
            digest = conversation.table.digest()
            if (
                not conversation.joined
                or self.lane not in (conversation.heads or Heads()).surely_polled()
            ):
                yield from self._join()
            if digest != conversation.table.digest():
                todo = find()
        conversation.forgotten = todo.forgotten
        if todo.forgotten:
            conversation.newest_state = todo.state or 0
            if not conversation.told:
                _log.info(
                    "conversation %r: %s", self.scope.conversation_id, GOES_ON % todo.forgotten
                )
            conversation.told = True
        # What is to be told at another place is as it should be before it is appended, and appended
        # before it is taken from the old one: wherever it ends, nothing is missing, and nothing
        # there in two ways.
        yield from self._change(on_removal, edited=todo.edited)
        moved = [key for name in todo.moved for key in conversation.keys_of(name)]
        names = yield from self._append(todo.appended, todo.state, beside)
        yield from self._change(on_removal, removed=todo.removed, moved=moved)
        return [names.get(key, key) for key in todo.ids] if names else [*todo.ids]

    def _append(
        self, new: Sequence[GivenMessage], state: int | None, beside: Sequence[PutOp]
    ) -> Flow[dict[str, str]]:
        """Writes messages at the end of the lane.

        Returns their ids, which are others where somebody took theirs.
        """
        if not new:
            return {}
        conversation, (head, clock) = self.conversation, self._head()
        made = _records(
            new, self.lane, clock, head.count, conversation.newest_state if state is None else state
        )
        was_known = conversation.sent_read >= len(conversation.table)
        places = (
            (conversation.sent.get(at), one.message)
            for at, one in enumerate(new, len(conversation.table))
        )
        puts = [
            put_sent(self.scope, background)
            for background, one in places
            if background and background.said == words_of(one)
        ]
        if (
            cuts := () if conversation.table else conversation.cuts
        ):  # of the prompt for the first message
            puts.append(
                stores.written(self.scope.place(CUTS), stores.CutsRecord(cuts=tuple(cuts.values())))
            )
        yield from self._commit(made, News(made), [*beside, *puts])
        if was_known:
            conversation.sent_read = len(conversation.table)
        table = conversation.table
        ids = [one.id for one in new]
        if table.ids[-len(ids) :] == ids:  # as nearly always
            return {}
        found = (table.at_place(record.place.key) for record in made)
        return {name: table.ids[at] for name, at in zip(ids, found, strict=True) if at is not None}

    def _change(
        self,
        on_removal: OnRemoval,
        *,
        edited: Sequence[GivenMessage] = (),
        removed: Sequence[str] = (),
        moved: Sequence[str] = (),
    ) -> Flow[None]:
        """Changes stored messages, and deletes what was derived from them and the records with the keys `moved`."""
        conversation = self.conversation
        entries = self.conversation.table
        changed: dict[str, stores.MessageRecord | None] = dict.fromkeys(moved)
        for one in edited:
            changed |= dict.fromkeys(conversation.keys_of(one.id))
            if (at := conversation.table.positions.get(one.id)) is not None:
                place = entries.place(at)
                changed[place.key] = stores.MessageRecord.of(one.message, place)
        for name in removed:
            changed |= dict.fromkeys(conversation.keys_of(name))
            if on_removal == "forget":
                changed |= dict.fromkeys(
                    key for key, known in conversation.archived.items() if known == name
                )
            elif (at := conversation.table.positions.get(name)) is not None:
                record = entries.record(at)
                changed[record.place.key] = record.model_copy(update={"archived": True})
        if not changed:
            return
        first = min(
            (at for key in changed if (at := entries.at_place(key)) is not None),
            default=len(entries),
        )
        derived = yield from self._stale(
            first, changed, forgets=on_removal == "forget" and bool(edited or removed)
        )
        notice = stores.ChangeRecord(changed=tuple(changed))
        yield from self._commit([notice], News([]))
        heads = conversation.heads
        conversation.heads = None  # a write that fails half-way is read again
        yield from stores.bulk.write_messages(
            self.store, [*log.puts(self.store, self.scope, changed), *derived]
        )
        conversation.heads = heads
        yield from self._commit([notice], News([], changed))

    def _stale(self, first: int, changed: Collection[str], *, forgets: bool) -> Flow[list[PutOp]]:
        """Returns the deletions of everything that was derived from messages from a position on."""
        scope = self.scope
        trees = self.conversation.table.trees.values()
        places = [scope.place(CUTS), GetOp(scope.namespace(segments.SEGMENTS), segments.HEAD)]
        item, head = yield from batch(self.store, places)
        deletions = yield from segments.forgotten(self.store, scope, head, first, changed)
        if item is not None:
            stay: tuple[stores.CutRecord, ...] = ()
            with suppress(StoreDataError):  # derived: none where it cannot be read
                known = stores.CutsRecord.found(item)
                stay = (
                    tuple(cut for cut in known.cuts if max(cut.position, cut.cleared) <= first)
                    if known
                    else ()
                )
            deletions.append(
                stores.written(scope.place(CUTS), stores.CutsRecord(cuts=stay) if stay else None)
            )
        # Any background that was sent may quote what is changed. Of what a model wrote, what stands
        # before it stays, and all of it where the message may still be told of: what it says of
        # other messages serves on.
        gone = yield from stores.bulk.read_all(self.store, scope.namespace(SENT))
        if forgets:
            stand = {
                key for tree in trees for node in tree.complete(first) if (key := tree.key(node))
            }
            written = yield from stores.bulk.read_all(self.store, scope.namespace(COMPACTIONS))
            gone += [item for item in written if item.key.partition("-")[0] not in stand]
        return [*deletions, *(PutOp(item.namespace, item.key, None) for item in gone)]

    def _commit(
        self,
        records: Sequence[stores.MessageRecord | stores.ChangeRecord],
        news: News,
        beside: Sequence[PutOp] = (),
    ) -> Flow[None]:
        """Writes records and what belongs to them, takes them in, and looks what others have written meanwhile."""
        conversation = self.conversation
        lane = self.lane
        known = conversation.heads or Heads()
        before, clock = self._head()
        conversation.heads = None  # a write that fails half-way is read again
        after = stores.LaneRecord(born=before.born, clock=clock, count=before.count + len(records))
        keyed = {
            stores.place_key(lane, number): record
            for number, record in enumerate(records, before.count)
        }
        puts = [
            *beside,
            *log.puts(self.store, self.scope, keyed),
            log.head_put(self.scope, lane, after),
        ]
        try:
            yield from stores.bulk.write_messages(
                self.store, puts
            )  # what the head counts is there before it
        except BaseException:
            conversation.failed_writes += (
                1  # it may still arrive: the next one goes to another lane
            )
            raise
        conversation.take_in(news)
        conversation.heads = written = Heads(known.joined, {**known.lanes, lane: after})
        try:
            yield from refresh(self.store, conversation)
            heads = conversation.heads or Heads()
            if heads.joined == written.joined and heads.goes_on(written):
                if lane not in Heads(None, {**heads.lanes, lane: before}).surely_polled():
                    yield from self._join()
            elif (
                lane in heads.lanes
            ):  # the conversation may have been deleted: a new head, or readers would not look
                head = heads.lanes[lane].model_copy(update={"born": stores.new_token()})
                yield from batch(self.store, [log.head_put(self.scope, lane, head)])
                conversation.heads = None
                yield from refresh(self.store, conversation, listing=True)
                yield from self._join()
        except Exception:  # noqa: BLE001 - it is written; what was not looked at now is looked at before the next write
            conversation.heads = None
            conversation.joined = False

    def _join(self) -> Flow[None]:
        """Makes the lane known to all readers, and the lanes of others to this one."""
        for _ in range(MOST_ATTEMPTS):  # somebody may be deleting the conversation
            if self.lane not in (self.conversation.heads or Heads()).lanes:
                head = stores.LaneRecord(born=stores.new_token(), clock=0, count=0)
                yield from batch(self.store, [log.head_put(self.scope, self.lane, head)])
            joined = stores.storable(
                {"text": stores.new_token(), "conversation_id": self.scope.conversation_id}
            )
            yield from batch(
                self.store,
                [PutOp(self.scope.namespace(log.LANES), log.JOINED, joined, index=False)],
            )
            yield from refresh(self.store, self.conversation, listing=True)
            heads = self.conversation.heads or Heads()
            if (
                self.lane in heads.lanes and heads.joined is not None
            ):  # else what was told was deleted
                break
        self.conversation.joined = True

    def _head(self) -> tuple[stores.LaneRecord, int]:
        heads = self.conversation.heads or Heads()
        if self.lane not in heads.lanes:
            raise StoreError(
                f"The conversation {self.scope.conversation_id!r} was deleted while it was written. Nothing was "
                f"written; try again"
            )
        return heads.lanes[self.lane], 1 + max(lane.clock for lane in heads.lanes.values())


def _added(conversation: OpenConversation, messages: Sequence[BaseMessage]) -> Difference:
    table = conversation.table
    new = dict[str, GivenMessage]()
    identified = _identify(messages, table, adds=True)
    for one in identified:
        at = table.positions.get(one.id)
        known = new.setdefault(one.id, one).fingerprint if at is None else table.fingerprint(at)
        if known != one.fingerprint and (at is None or not _is_as_sent(table[at].message, one)):
            raise MessageConflictError(
                f"The conversation {conversation.scope.conversation_id!r} knows message {one.id!r} with "
                f"other content, and add_messages only appends. Nothing was written. To change a message, call "
                f"`edit_message`; to change or remove several, call `sync` with all messages as they should be"
            )
    return Difference([one.id for one in identified], list(new.values()))


def _is_as_sent(stored: BaseMessage, given: GivenMessage) -> bool:
    """Returns whether a message comes back as it was sent to a model of OpenAI's, with digests for ids of calls."""
    [sent], _ = with_short_call_ids([stored], OPENAI_CALL_ID_CHARACTERS)
    return fingerprint(sent) == given.fingerprint


def _difference(
    conversation: OpenConversation, messages: Sequence[BaseMessage], *, goes_on: bool, task: bool
) -> Difference:
    table = conversation.table
    newest = conversation.newest_state
    new = messages[len(table) :]
    ids = [message.id for message in new]
    is_new = all(ids) and len({*ids}) == len(ids) and table.positions.keys().isdisjoint(ids)
    if is_new and _goes_on(
        conversation, messages
    ):  # as nearly always: what is stored, and then something new
        return Difference([*table.ids, *map(str, ids)], _given(new), state=TASK if task else newest)
    wanted = {one.id: one for one in _recognized(conversation, messages)}
    order = list(wanted)
    stay = [key for key in table.ids if key in wanted]
    gone = [key for key in table.ids if key not in wanted]
    kept = next(
        (i for i, (one, other) in enumerate(zip(stay, order, strict=False)) if one != other),
        len(stay),
    )
    state_of = dict(zip(table.ids, table.facts.values["state"].tolist(), strict=True))
    own = {TASK, *(state_of[key] for key in stay)}  # the states that these messages are of
    newest_gone = max((state_of[key] for key in gone), default=TASK)
    forgets = False
    if task:
        own.update(state_of[key] for key in gone)
    elif own == {TASK} and newest_gone > TASK:
        forgets = not goes_on or newest_gone < newest
        own.add(newest_gone + 1 if forgets else newest_gone)
    own_newest = newest if max(own) == TASK else max(own)
    fingerprints = {key: table.fingerprint(table.positions[key]) for key in stay}
    return Difference(
        ids=order,
        state=TASK if task else own_newest,
        appended=[wanted[key] for key in order[kept:]],
        edited=[wanted[key] for key in stay if wanted[key].fingerprint != fingerprints[key]],
        removed=[key for key in gone if state_of[key] in own],
        moved=stay[kept:],
        forgotten=len(gone) if forgets else 0,
    )


def _recognized(
    conversation: OpenConversation, messages: Sequence[BaseMessage]
) -> Iterator[GivenMessage]:
    """Yields messages under the conversation's ids for them.

    Their own, else that of a message with the same words.

    Whoever keeps no ids gives each message under a new one with every turn. Who has forgotten says
    "hello" again: words count only among the messages of the states that ids tell of, else of the
    newest one.
    """
    table = conversation.table
    given = dict[str, GivenMessage]()
    for one in _identify(messages, table):
        if given.setdefault(one.id, one).fingerprint != one.fingerprint:
            raise MessageConflictError(
                f"messages has id {one.id!r} twice, with other content; ids must be unique"
            )
    own = {
        key: at
        for key, one in given.items()
        if one.named and (at := table.positions.get(key)) is not None
    }
    state_of = table.facts.values["state"]
    states = {*state_of[list(own.values())].tolist()} or {conversation.newest_state}
    saying: defaultdict[str, list[int]] = defaultdict(list)
    for at, key in enumerate(table.ids if len(own) < len(given) else ()):
        if state_of[at] in states and key not in own:
            saying[table.fingerprint(at)].append(at)
    taken = {*given, *table.ids}
    begin = 0
    for key, one in given.items():
        name = key
        found = own.get(key)
        if found is None:
            found = next((at for at in saying[one.fingerprint] if at >= begin), None)
        if found is not None:
            name = table.ids[found]
            begin = max(begin, found + 1)
        elif key in table.positions:  # made of what another message says, too
            name = next(
                name for n in count(1) if (name := content_id(one.fingerprint, n)) not in taken
            )
            taken.add(name)
        message = one.message if name == key else one.message.model_copy(update={"id": name})
        yield GivenMessage(message, one.fingerprint, named=True)


def read_sent(store: BaseStore, conversation: OpenConversation) -> Flow[None]:
    """Reads the backgrounds that another process has written, of messages that a cut may still show."""
    end = len(conversation.table)
    read = conversation.sent_read
    begun = min((cut.begun for cut in conversation.cuts.values() if cut.prefix), default=end)
    asked = [at for at in range(max(begun, read), end) if is_user(conversation.table[at].message)]
    conversation.sent |= yield from sent_at(store, conversation.scope, asked)
    conversation.sent_read = end


def sent_at(
    store: BaseStore, scope: stores.Scope, positions: Sequence[int]
) -> Flow[dict[int, Background]]:
    """Returns the backgrounds that are stored of the messages at some positions."""
    items = yield from batch(store, [GetOp(scope.namespace(SENT), str(at)) for at in positions])
    found = dict[int, Background]()
    for at, item in zip(positions, items, strict=True):
        if isinstance(item, Item):
            with suppress(InputError):  # derived: the message is shown without it
                found[at] = Background.from_dict(stores.stored(item.value))
    return found


def put_sent(scope: stores.Scope, background: Background) -> PutOp:
    """Returns what stores the background of a message."""
    return PutOp(
        scope.namespace(SENT),
        str(background.position),
        stores.storable(background.to_dict()),
        index=False,
    )


def hold(conversation: OpenConversation, messages: Sequence[BaseMessage]) -> None:
    """Gives messages to a conversation that is in memory only, unless it has some already."""
    if not conversation.table:
        conversation.take_in(News(_records(_identify(messages, conversation.table), "", 0, 0, 0)))


def mirror(conversation: OpenConversation, messages: Sequence[BaseMessage]) -> None:
    """Makes a conversation that is in memory only consist of some messages.

    Of those it has, only others are read.
    """
    named = (
        [one.message for one in _identify(messages, conversation.table)]
        if _lacks_ids(messages)
        else messages
    )
    if len(named) < len(conversation.table) or not _goes_on(conversation, named):
        because = conversation.apart_because
        conversation.reset()
        conversation.apart_because = because
    first = len(conversation.table)
    if new := named[first:]:
        conversation.take_in(News(_records(_given(new), "", 0, first, 0)))


def _lacks_ids(messages: Iterable[BaseMessage]) -> bool:
    return not all(message.id for message in messages)


def _given(messages: Iterable[BaseMessage]) -> list[GivenMessage]:
    return [GivenMessage(message, fingerprint(message), named=True) for message in messages]


def _records(
    new: Iterable[GivenMessage], lane: str, clock: int, first: int, state: int
) -> list[stores.MessageRecord]:
    placed = (
        (one, stores.Place(clock=clock, lane=lane, number=at, state=state))
        for at, one in enumerate(new, first)
    )
    return [stores.MessageRecord.of(one.message, place, named=one.named) for one, place in placed]


def _goes_on(conversation: OpenConversation, messages: Sequence[BaseMessage]) -> bool:
    """Returns whether an agent's messages begin with the stored ones.

    Those checked before are compared by identity.
    """
    table, (seen, digest), end = conversation.table, conversation.seen, len(conversation.table)
    if not (table.holds(len(seen.messages), digest) and seen.begin(messages)):
        seen = SeenMessages()
    new = messages[(known := len(seen.messages)) : end]
    if [message.id for message in new] != table.ids[known:] or not all(
        map(partial(_says, table), count(known), new)
    ):
        return False
    if known < end:
        conversation.seen = seen.grown(messages[:end]), table.digest()
    return True


def _says(table: MessageTable, position: int, message: BaseMessage) -> bool:
    """Returns whether a message says what the one at a position says, without decoding that one."""
    entry = table.decoded.get(position)
    return (
        plainly_same(message, entry.message)
        if entry
        else fingerprint(message) == table.fingerprint(position)
    )


def _identify(
    messages: Sequence[BaseMessage], table: MessageTable, *, adds: bool = False
) -> list[GivenMessage]:
    """Returns messages with ids and fingerprints.

    An id is made of what a message says, and how often.
    """
    seen: Counter[str] = Counter()
    taken = {str(message.id) for message in messages if message.id}
    result: list[GivenMessage] = []
    for message in messages:
        at = table.positions.get(message.id or "")
        said = (
            table.fingerprint(at)
            if at is not None and _says(table, at, message)
            else fingerprint(message)
        )
        if adds and said not in seen:
            seen[said] = table.times_said(said)
        seen[said] += 1
        while not message.id and (
            (key := content_id(said, seen[said])) in taken or (adds and key in table.positions)
        ):
            seen[said] += 1
        with_id = (
            message
            if message.id
            else message.model_copy(update={"id": content_id(said, seen[said])})
        )
        result.append(GivenMessage(with_id, said, named=bool(message.id)))
    return result
