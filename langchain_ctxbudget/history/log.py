"""A conversation's messages in a store that several writers append to at once.

One order for every reader.

`put` is last-writer-wins on every backend, so each writer has a lane of its own, keys `lane/0`, `lane/1` ... without
gaps, and a head that says how many there are, written after them. A reader asks for the heads that it knows by id, and
then for what they count in addition. Changes are made in place, and a record in the writer's lane tells of them.

A writer that joins writes an empty head, then a new text to `joined`, then reads `joined` and lists
the heads. A reader lists them again when `joined` is another. So of two writers that join at the
same moment, at least one sees the other. For the same reason a writer looks at the heads again
after it has written its own.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from typing import Any, cast

from langchain_core.messages import BaseMessage
from langgraph.store.base import BaseStore, GetOp, Item, PutOp, SearchItem, SearchOp

from langchain_ctxbudget import stores
from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.messages import content_id, fingerprint

MESSAGES = "messages"
LANES = "lanes"
JOINED = "joined"
CUTS = "cuts"
PINS = "pins"
GUESTS = stores.owners.GUESTS
POLLED = 32
"""Heads that a reader asks for each time: of the lanes that were written last."""


@dataclass(frozen=True, slots=True)
class Heads:
    """The heads of a conversation's lanes, as far as a reader knows them."""

    joined: str | None = None
    """The text of the `joined` record before the lanes were listed."""
    lanes: Mapping[str, stores.LaneRecord] = field(default_factory=dict)

    def polled(self) -> list[str]:
        """Returns the lanes that are asked for each time: those that were written last."""
        return self._newest(POLLED)

    def surely_polled(self) -> list[str]:
        """Returns the lanes that every reader asks for; one behind these has to be announced again."""
        return self._newest(POLLED // 2)

    def _newest(self, most: int) -> list[str]:
        return sorted(self.lanes, key=lambda name: (-self.lanes[name].clock, name))[:most]

    def goes_on(self, known: "Heads") -> bool:
        """Returns whether all known records are still there, so that only new ones have to be read."""
        return (self.joined is not None or known.joined is None) and all(
            (lane := self.lanes.get(name))
            and lane.born == before.born
            and lane.count >= before.count
            for name, before in known.lanes.items()
        )


def read_heads(store: BaseStore, scope: stores.Scope, known: Heads | None = None) -> Flow[Heads]:
    """Reads how far the writers have come, by id.

    Listed only where a writer has joined or a lane is gone.
    """
    namespace = scope.namespace(LANES)
    polled = known.polled() if known else []
    joined, *found = yield from batch(
        store, [GetOp(namespace, JOINED), *(GetOp(namespace, lane) for lane in polled)]
    )
    text = _text_of(joined) if isinstance(joined, Item) else None
    pairs = zip(polled, found, strict=True)
    heads = {name: lane_of(name, item.value) for name, item in pairs if isinstance(item, Item)}
    if known and text == known.joined and len(heads) == len(polled):
        return Heads(text, {**known.lanes, **heads})
    items = yield from stores.read_all(store, namespace)
    return Heads(
        text, {item.key: lane_of(item.key, item.value) for item in items if item.key != JOINED}
    )


def heads_in(items: Iterable[Item]) -> Heads:
    """Returns how far the writers have come, of all that is stored about a conversation's lanes."""
    joined: str | None = None
    lanes: dict[str, stores.LaneRecord] = {}
    for item in items:
        if item.key == JOINED:
            joined = _text_of(item)
        else:
            lanes[item.key] = lane_of(item.key, item.value)
    return Heads(joined, lanes)


def _text_of(joined: Item) -> str:
    """Returns the text of a `joined` record.

    A damaged one, too, is only compared with what it was before.
    """
    return str(stores.stored(joined.value).get("text", joined.value))


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
    starts = {name: lane.count for name, lane in known.lanes.items()}
    ends = {name: lane.count for name, lane in now.lanes.items()}
    keys = [
        stores.place_key(name, number)
        for name, end in ends.items()
        for number in range(starts.get(name, 0), end)
    ]
    stored_at: dict[str, datetime] = {}
    records = yield from _read_records(store, scope, keys, stored_at)
    messages = {
        key: record for key, record in records.items() if isinstance(record, stores.MessageRecord)
    }
    touched = {
        key
        for record in records.values()
        if isinstance(record, stores.ChangeRecord)
        for key in record.changed
    }
    # Read after the heads, so they are at least as new as what the heads tell of.
    found = yield from _read_records(store, scope, sorted(touched), stored_at)
    changed = {
        key: it if isinstance(it := found.get(key), stores.MessageRecord) else None
        for key in touched
    }
    stay = (changed.get(key, record) for key, record in messages.items())
    return News(
        messages=in_order(record for record in stay if record is not None),
        changed={key: record for key, record in changed.items() if key not in messages},
        stored_at=stored_at,
    )


def _read_records(
    store: BaseStore, scope: stores.Scope, keys: Sequence[str], stored_at: dict[str, datetime]
) -> Flow[dict[str, stores.MessageRecord | stores.ChangeRecord]]:
    """Returns records by key; adds the time at which each was stored to `stored_at`."""
    namespace = scope.namespace(MESSAGES)
    found: dict[str, stores.MessageRecord | stores.ChangeRecord] = {}
    for item in (yield from read_items(store, [GetOp(namespace, key) for key in keys])):
        if item is not None:
            kind = stores.ChangeRecord if "changed" in item.value else stores.MessageRecord
            found[item.key] = kind.read(item.value, f"message {item.key!r}")
            stored_at[item.key] = stores.utc(item.created_at)
    return found


def read_items(store: BaseStore, places: Sequence[GetOp]) -> Flow[list[Item | None]]:
    """Reads what stands at some places; None where nothing does."""
    found: list[Any] = []
    for first in range(0, len(places), stores.CHUNK):
        found += yield from batch(store, places[first : first + stores.CHUNK])
    return found


def in_order(records: Iterable[stores.MessageRecord]) -> list[stores.MessageRecord]:
    """Returns records in the order that every reader sees."""
    return sorted(records, key=lambda record: record.place.order)


@dataclass(frozen=True, slots=True)
class Folded:
    """The messages of a log, one for every id."""

    messages: Sequence[tuple[stores.MessageRecord, BaseMessage]]
    doubles: Sequence[stores.MessageRecord]
    archived: dict[str, str]


def fold(
    records: Iterable[stores.MessageRecord], known: Callable[[str], str | None] = lambda _: None
) -> Folded:
    """Makes a conversation of records that are in order.

    Where two writers have used one id, the same message is there once; of different ones both stay,
    the later one under another id. `known` gives the fingerprint of the message that an id stands
    for already.
    """
    shown: dict[str, BaseMessage] = {}
    messages: list[tuple[stores.MessageRecord, BaseMessage]] = []
    doubles: list[stores.MessageRecord] = []
    archived: dict[str, str] = {}

    def said(key: str) -> str | None:
        return fingerprint(shown[key]) if key in shown else known(key)

    for record in records:
        message = record.to_message()
        key = str(message.id)
        if record.archived:
            archived[record.place.key] = key
            continue
        if (before := said(key)) is not None:
            says = fingerprint(message)
            if record.named and says == before:
                doubles.append(record)
                continue
            ids = (
                (content_id(says, n) for n in count(2))
                if not record.named
                else (f"{key}~{n}" for n in count(2))
            )
            key = next(one for one in ids if said(one) is None)
            message = message.model_copy(update={"id": key})
        shown[key] = message
        messages.append((record, message))
    return Folded(messages, doubles, archived)


def puts(
    store: BaseStore,
    scope: stores.Scope,
    records: Mapping[str, stores.MessageRecord | stores.ChangeRecord | None],
) -> list[PutOp]:
    """Returns the writes of records by key, and behind them the deletions of those that are None.

    In a store with an index, what a message says is embedded.
    """
    made: list[PutOp] = []
    for key, record in sorted(records.items(), key=lambda item: item[1] is None):
        value = record.to_value() if record else {}
        if isinstance(record, stores.MessageRecord) and stores.has_index(store):
            value = record.to_indexed_value()
        said = stores.SAID in value
        made.append(
            PutOp(
                scope.namespace(MESSAGES),
                key,
                value or None,
                index=[stores.SAID] if said else False,
            )
        )
    return made


def head_put(scope: stores.Scope, lane: str, head: stores.LaneRecord) -> PutOp:
    """Returns the write that says how far a lane has come."""
    return stores.written(GetOp(scope.namespace(LANES), lane), head)


def read_conversations(store: BaseStore, user_id: str) -> Flow[list[str]]:
    """Reads the ids of a user's conversations, sorted."""
    namespaces = yield from stores.read_namespaces(
        store, (stores.ROOT, stores.label(user_id), LANES)
    )
    items = yield from read_items(store, [GetOp(one, JOINED) for one in namespaces])
    return sorted(conversation_of(item) for item in items if item is not None)


def read_behind(store: BaseStore, user_id: str, kind: str) -> Flow[list[str]]:
    """Reads the ids of conversations written to since their record of a kind, or where that has no marks or waits."""
    asked = [
        SearchOp((stores.ROOT, stores.label(user_id), one), limit=stores.CHUNK)
        for one in (LANES, kind)
    ]
    lanes, done = (cast("list[SearchItem]", result) for result in (yield from batch(store, asked)))
    begun = {item.namespace[-1] for item in done}
    records = [(item, stores.stored(item.value)) for item in done]
    finished = [
        item for item, record in records if record.get("marks") and not record.get("waits_until")
    ]
    done_at = {item.namespace[-1]: item.updated_at for item in finished}
    heads = ((item.namespace[-1], item.updated_at) for item in lanes if item.key != JOINED)
    behind = {
        name for name, at in heads if name in begun and (name not in done_at or at > done_at[name])
    }
    return sorted(
        conversation_of(item)
        for item in lanes
        if item.key == JOINED and item.namespace[-1] in behind
    )


def conversation_of(joined: Item) -> str:
    """Returns the id of a conversation, by its `joined` record."""
    return str(stores.stored(joined.value)["conversation_id"])


def message_reference(conversation_id: str, message_id: str) -> str:
    """Returns one text for both ids; an id may have a slash, too."""
    return f"{conversation_id.replace('%', '%25').replace('/', '%2F')}/{message_id}"
