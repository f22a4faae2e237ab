"""A conversation's messages in a store that several writers append to at once.

Every reader sees them in one order.

`put` is last-writer-wins on every backend, so each writer has a lane of its own, keys `lane/0`,
`lane/1` ... without gaps, and a head that says how many there are, written after them. A reader
asks for the heads that it knows by id, and then for what they count in addition. Changes are made
in place, and a record in the writer's lane tells of them.

A writer that joins writes an empty head, then a new text to `joined`, then reads `joined` and lists
the heads. A reader lists them again when `joined` is another. So of two writers that join at the
same moment, at least one sees the other. For the same reason a writer looks at the heads again
after it has written its own.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from typing import Any, cast

from langchain_core.messages import BaseMessage
from langgraph.store.base import BaseStore, GetOp, Item, PutOp, SearchItem, SearchOp

from langchain_ctxbudget import stores
from langchain_ctxbudget.errors import StoreDataError
from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.messages import content_id, fingerprint

MESSAGES = "messages"
LANES = "lanes"
JOINED = "joined"
CUTS = "cuts"
PINS = "pins"
GUESTS = stores.owners.GUESTS
POLLED = 32
"""The number of heads that a reader asks for each time: of the lanes that were written last."""

LogRecord = stores.MessageRecord | stores.ChangeRecord
"""What a lane consists of."""


@dataclass(frozen=True, slots=True)
class Heads:
    """The heads of a conversation's lanes, as far as a reader knows them."""

    joined: str | None = None
    """The text of the `joined` record before the lanes were listed."""
    lanes: Mapping[str, stores.LaneRecord] = field(default_factory=dict)

    def polled(self) -> list[str]:
        """Returns the lanes that a reader asks for each time: those that were written last."""
        return self._newest(POLLED)

    def surely_polled(self) -> list[str]:
        """Returns the lanes that every reader asks for, though it may know others as newer.

        A writer whose lane is not among them joins again.
        """
        return self._newest(POLLED // 2)

    def _newest(self, most: int) -> list[str]:
        return sorted(self.lanes, key=lambda name: (-self.lanes[name].clock, name))[:most]

    def goes_on(self, known: "Heads") -> bool:
        """Returns whether all known records are still there, so that only new ones are read."""
        if self.joined is None and known.joined is not None:
            return False
        return all(self._continues(name, head) for name, head in known.lanes.items())

    def _continues(self, name: str, known: stores.LaneRecord) -> bool:
        """Returns whether a lane has all records that it is known to have."""
        head = self.lanes.get(name)
        return head is not None and head.born == known.born and head.count >= known.count


def read_heads(store: BaseStore, scope: stores.Scope, known: Heads | None = None) -> Flow[Heads]:
    """Reads how far the writers have come.

    The heads of known lanes are read by id; all are listed only where a writer has joined or a lane
    is gone.
    """
    namespace = scope.namespace(LANES)
    polled = known.polled() if known else []
    places = [GetOp(namespace, name) for name in (JOINED, *polled)]
    joined, *items = yield from batch(store, places)
    text = None
    if isinstance(joined, Item):
        text = _text_of(joined)
    heads = _heads_by_name(item for item in items if isinstance(item, Item))
    if known and text == known.joined and len(heads) == len(polled):
        return Heads(text, {**known.lanes, **heads})

    listed = yield from stores.read_all(store, namespace)
    return Heads(text, _heads_by_name(listed))


def heads_in(items: Iterable[Item]) -> Heads:
    """Returns how far the writers have come, by all that is stored about a conversation's lanes."""
    items = list(items)
    text: str | None = None
    for item in items:
        if item.key == JOINED:
            text = _text_of(item)
    return Heads(text, _heads_by_name(items))


def _heads_by_name(items: Iterable[Item]) -> dict[str, stores.LaneRecord]:
    """Returns the heads among the records about lanes, by the names of their lanes."""
    return {item.key: lane_of(item.key, item.value) for item in items if item.key != JOINED}


def _text_of(joined: Item) -> str:
    """Returns the text of a `joined` record.

    A damaged one, too, is only compared with what it was before.
    """
    return str(stores.from_stored(joined.value).get("text", joined.value))


def lane_of(name: str, value: dict[str, Any]) -> stores.LaneRecord:
    """Reads the head of a lane."""
    return stores.LaneRecord.read(value, f"lane {name!r}")


@dataclass(frozen=True, slots=True)
class News:
    """The records that were read from a log."""

    messages: Sequence[stores.MessageRecord]
    changed: Mapping[str, stores.MessageRecord | None] = field(default_factory=dict)
    """Records that were there before, by key, as they are now; None for one that was deleted."""
    stored_at: Mapping[str, datetime] = field(default_factory=dict)
    """The time at which each record was stored, by key."""


def read_new(store: BaseStore, scope: stores.Scope, known: Heads, now: Heads) -> Flow[News]:
    """Reads the records that the lanes have gained since `known`, in order."""
    added = yield from _read_records(store, scope, _new_keys(known, now))
    messages: dict[str, stores.MessageRecord] = {}
    changed_keys: set[str] = set()
    for key, record in added.records.items():
        if isinstance(record, stores.MessageRecord):
            messages[key] = record
        else:
            changed_keys.update(record.changed)

    # Read after the heads, so they are at least as new as what the heads tell of.
    read = yield from _read_records(store, scope, sorted(changed_keys))
    changed: dict[str, stores.MessageRecord | None] = {}
    for key in changed_keys:
        found = read.records.get(key)
        message = found if isinstance(found, stores.MessageRecord) else None
        if key not in messages:
            changed[key] = message
        elif message is None:
            del messages[key]
        else:
            messages[key] = message
    return News(
        messages=in_order(messages.values()),
        changed=changed,
        stored_at={**added.stored_at, **read.stored_at},
    )


def _new_keys(known: Heads, now: Heads) -> list[str]:
    """Returns the keys of the records that lanes have gained since `known`."""
    keys: list[str] = []
    for name, head in now.lanes.items():
        first = known.lanes[name].count if name in known.lanes else 0
        keys += [stores.place_key(name, number) for number in range(first, head.count)]
    return keys


@dataclass(frozen=True, slots=True)
class _ReadRecords:
    """Records of a log, and the times at which they were stored, by key."""

    records: Mapping[str, LogRecord]
    stored_at: Mapping[str, datetime]


def _read_records(store: BaseStore, scope: stores.Scope, keys: Sequence[str]) -> Flow[_ReadRecords]:
    """Reads the records of a log that stand under some keys."""
    namespace = scope.namespace(MESSAGES)
    items = yield from read_items(store, [GetOp(namespace, key) for key in keys])
    records: dict[str, LogRecord] = {}
    stored_at: dict[str, datetime] = {}
    for item in items:
        if item is None:
            continue
        kind = stores.ChangeRecord if "changed" in item.value else stores.MessageRecord
        records[item.key] = kind.read(item.value, f"message {item.key!r}")
        stored_at[item.key] = stores.utc(item.created_at)
    return _ReadRecords(records, stored_at)


def read_items(store: BaseStore, places: Sequence[GetOp]) -> Flow[list[Item | None]]:
    """Reads what stands at some places; None where nothing does."""
    items: list[Any] = []
    for first in range(0, len(places), stores.CHUNK):
        items += yield from batch(store, places[first : first + stores.CHUNK])
    return items


def in_order(records: Iterable[stores.MessageRecord]) -> list[stores.MessageRecord]:
    """Returns records in the order that every reader sees."""
    return sorted(records, key=lambda record: record.place.order)


@dataclass(frozen=True, slots=True)
class Folded:
    """The messages of a log, one for every id."""

    messages: Sequence[tuple[stores.MessageRecord, BaseMessage]]
    doubles: Sequence[stores.MessageRecord]
    """Records of messages that are there already under the same id."""
    archived: dict[str, str]
    """The ids of messages that were taken out and kept aside, by the keys of their records."""


def fold(
    records: Iterable[stores.MessageRecord], known: Callable[[str], str | None] = lambda _: None
) -> Folded:
    """Makes a conversation of records that are in order.

    Where two writers have used one id, the same message is there once; of different ones both stay,
    the later one under another id.

    Args:
        records: The records.
        known: Returns the fingerprint of the message that an id stands for already.
    """
    by_id: dict[str, BaseMessage] = {}
    messages: list[tuple[stores.MessageRecord, BaseMessage]] = []
    doubles: list[stores.MessageRecord] = []
    archived: dict[str, str] = {}

    def fingerprint_under(message_id: str) -> str | None:
        if message_id in by_id:
            return fingerprint(by_id[message_id])
        return known(message_id)

    for record in records:
        message = record.to_message()
        message_id = str(message.id)
        if record.archived:
            archived[record.place.key] = message_id
            continue

        earlier = fingerprint_under(message_id)
        if earlier is not None:
            content = fingerprint(message)
            if record.named and content == earlier:
                doubles.append(record)
                continue
            candidates = _other_ids(message_id, content, named=record.named)
            message_id = next(other for other in candidates if fingerprint_under(other) is None)
            message = message.model_copy(update={"id": message_id})
        by_id[message_id] = message
        messages.append((record, message))
    return Folded(messages, doubles, archived)


def _other_ids(message_id: str, content: str, *, named: bool) -> Iterator[str]:
    """Yields ids for a message whose own one is taken."""
    for number in count(2):
        yield f"{message_id}~{number}" if named else content_id(content, number)


def puts(
    store: BaseStore, scope: stores.Scope, records: Mapping[str, LogRecord | None]
) -> list[PutOp]:
    """Returns the writes of records by key, and behind them the deletions of those that are None.

    In a store with an index, what a message says is embedded.
    """
    writes = [_put(store, scope, key, record) for key, record in records.items() if record]
    deletions = [
        PutOp(scope.namespace(MESSAGES), key, None, index=False)
        for key, record in records.items()
        if record is None
    ]
    return writes + deletions


def _put(store: BaseStore, scope: stores.Scope, key: str, record: LogRecord) -> PutOp:
    """Returns the write of a record."""
    if isinstance(record, stores.MessageRecord) and stores.has_index(store):
        value = record.to_indexed_value()
    else:
        value = record.to_value()
    namespace = scope.namespace(MESSAGES)
    if stores.SAID in value:
        return PutOp(namespace, key, value, index=[stores.SAID])
    return PutOp(namespace, key, value, index=False)


def head_put(scope: stores.Scope, lane: str, head: stores.LaneRecord) -> PutOp:
    """Returns the write that says how far a lane has come."""
    return stores.put_of(GetOp(scope.namespace(LANES), lane), head)


def joined_put(scope: stores.Scope) -> PutOp:
    """Returns the write by which readers see that a lane may have joined."""
    value = stores.to_stored({"text": stores.new_token(), "conversation_id": scope.conversation_id})
    return PutOp(scope.namespace(LANES), JOINED, value, index=False)


@dataclass(frozen=True, slots=True)
class BehindHeads:
    """What stands in a log besides the records that known heads count."""

    outdated: Sequence[PutOp]
    """The deletions of the records that the heads count."""
    heads: Mapping[str, stores.LaneRecord]
    """Heads for the lanes of all other records."""


def read_behind_heads(store: BaseStore, scope: stores.Scope, known: Heads) -> Flow[BehindHeads]:
    """Reads which records stand in a log behind heads that were known."""
    items = yield from stores.read_all(store, scope.namespace(MESSAGES))
    outdated: list[PutOp] = []
    heads: dict[str, stores.LaneRecord] = {}
    for item in items:
        lane, _, number = item.key.rpartition("/")
        head = known.lanes.get(lane)
        if head is not None and int(number) < head.count:
            outdated.append(PutOp(item.namespace, item.key, None))
            continue
        last = heads.get(lane) or head
        heads[lane] = stores.LaneRecord(
            born=stores.new_token(),
            clock=max(_clock_of(item), last.clock if last else 0),
            count=max(int(number) + 1, last.count if last else 0),
        )
    return BehindHeads(outdated, heads)


def _clock_of(item: Item) -> int:
    """Returns the clock of a record; 0 for one that tells of a change, or is damaged."""
    try:
        return stores.MessageRecord.read(item.value, f"message {item.key!r}").place.clock
    except StoreDataError:
        return 0


def read_conversations(store: BaseStore, user_id: str) -> Flow[list[str]]:
    """Reads the ids of a user's conversations, sorted."""
    lanes_of_user = (stores.ROOT, stores.label(user_id), LANES)
    namespaces = yield from stores.read_namespaces(store, lanes_of_user)
    items = yield from read_items(store, [GetOp(namespace, JOINED) for namespace in namespaces])
    return sorted(conversation_of(item) for item in items if item is not None)


def read_behind(store: BaseStore, user_id: str, kind: str) -> Flow[list[str]]:
    """Reads the ids of conversations that a background job has begun on, and has to go on with.

    They were written to since their record of the job, or that has no marks, or waits.

    Args:
        store: The store.
        user_id: Whose conversations.
        kind: The kind of the job's records.
    """
    searches = [
        SearchOp((stores.ROOT, stores.label(user_id), name), limit=stores.CHUNK)
        for name in (LANES, kind)
    ]
    results = yield from batch(store, searches)
    lanes, progress = (cast("list[SearchItem]", result) for result in results)

    begun = {item.namespace[-1] for item in progress}
    written = {item.namespace[-1] for item in lanes if item.key != JOINED}
    behind = (begun & written) - _finished(lanes, progress)
    return sorted(
        conversation_of(item)
        for item in lanes
        if item.key == JOINED and item.namespace[-1] in behind
    )


def _finished(lanes: Iterable[SearchItem], progress: Iterable[SearchItem]) -> set[str]:
    """Returns the conversations to which nobody has written since a job was done with them."""
    finished_at: dict[str, datetime] = {}
    for item in progress:
        record = stores.from_stored(item.value)
        if record.get("marks") and not record.get("waits_until"):
            finished_at[item.namespace[-1]] = item.updated_at

    finished = set(finished_at)
    for item in lanes:
        conversation = item.namespace[-1]
        is_head = item.key != JOINED
        if is_head and conversation in finished and item.updated_at > finished_at[conversation]:
            finished.remove(conversation)
    return finished


def conversation_of(joined: Item) -> str:
    """Returns the id of a conversation, by its `joined` record.

    Raises:
        StoreDataError: the record does not name it.
    """
    value = stores.from_stored(joined.value)
    if "conversation_id" not in value:
        raise StoreDataError(
            f"{joined.key!r} in {'/'.join(joined.namespace)} names no conversation_id"
        )
    return str(value["conversation_id"])


def message_reference(conversation_id: str, message_id: str) -> str:
    """Returns one text for both ids; an id may have a slash, too."""
    return f"{conversation_id.replace('%', '%25').replace('/', '%2F')}/{message_id}"
