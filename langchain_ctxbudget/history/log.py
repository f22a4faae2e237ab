"""A conversation's messages in a store that several writers append to at once; one order for every reader.

`put` is last-writer-wins on every backend, so no two writers ever append the same record: each has a lane of its own,
a namespace of keys `lane/0`, `lane/1` ... without gaps, and a head that says how many there are. A record is there
from the moment that the head counts it: the head is written after it. A reader asks for the heads it knows by id, and
then for what they count in addition, so that reading what is new costs what is new.

A reader learns of a new writer by one more record, `joined`. Before its first record, a writer writes an empty head,
then a new text to `joined`, then reads `joined`, then lists the heads. A reader reads `joined` before it lists the
heads, and lists them again when the text is another. So of two writers that join at the same moment, at least one sees
the other's head in its list, and the other sees a text in `joined` that it does not know. That needs no more than
registers that keep the last value. For the same reason a writer looks at the heads again after it has written its own:
of two that append at the same moment, one sees the other's records before it returns, and tidies up where both have
said the same.

Changes are made where a message stands, and a record in the writer's lane tells what to read again. So a part of a
conversation, the newest messages or those since a bookmark, can be read without the rest of it.
"""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

from langchain_core.messages import BaseMessage
from langgraph.store.base import BaseStore, GetOp, Item, PutOp
from pydantic import TypeAdapter, ValidationError

from langchain_ctxbudget.errors import InputError, StoreDataError
from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.messages import content_id, fingerprint
from langchain_ctxbudget.stores import (
    CHUNK,
    ROOT,
    SAID,
    ChangeRecord,
    LaneRecord,
    MessageRecord,
    Place,
    Scope,
    bulk,
    label,
    new_token,
    place_key,
    read_all,
    read_namespaces,
    storable,
    stored,
)

MESSAGES, LANES, JOINED, CUTS, PINS, TOLD = "messages", "lanes", "joined", "cuts", "pins", "told"
POLLED = 32
"""Heads that a reader asks for each time: of the lanes that were written last."""
SURE = 16
"""A writer whose lane was not among so many of those that were written last joins again: its readers may not ask."""
LANES_AT_ONCE, FEWEST_READ = 4, 8
"""For a page: lanes that are read at a time, those with the newest messages first, and records of each at least."""


@dataclass(frozen=True, slots=True)
class Heads:
    """How far the writers of a conversation have come, as a reader knows it."""

    joined: str | None = None
    """What `joined` said before the lanes were listed."""
    lanes: Mapping[str, LaneRecord] = field(default_factory=dict)

    @property
    def clock(self) -> int:
        """The clock of the newest record."""
        return max((lane.clock for lane in self.lanes.values()), default=0)

    def polled(self, most: int = POLLED) -> list[str]:
        """Returns the lanes that are asked for each time: those that were written last."""
        return sorted(self.lanes, key=lambda name: (-self.lanes[name].clock, name))[:most]

    def goes_on(self, known: Heads) -> bool:
        """Returns whether everything that was known is still there, so that only what is new has to be read."""
        return (self.joined is not None or known.joined is None) and all(
            (lane := self.lanes.get(name)) and lane.born == before.born and lane.count >= before.count
            for name, before in known.lanes.items()
        )


def read_heads(store: BaseStore, scope: Scope, known: Heads | None = None) -> Flow[Heads]:
    """Reads how far the writers have come.

    By id, so that it costs the same however long the conversation is; listed only where nothing is known, or where a
    writer has joined or a lane is gone.
    """
    namespace = scope.namespace(LANES)
    polled = known.polled() if known else []
    joined, *found = yield from batch(store, [GetOp(namespace, JOINED), *(GetOp(namespace, lane) for lane in polled)])
    # A damaged one, too, is only compared with what it was before.
    text = str(stored(joined.value).get("text", joined.value)) if isinstance(joined, Item) else None
    pairs = zip(polled, found, strict=True)
    heads = {name: lane_of(name, item.value) for name, item in pairs if isinstance(item, Item)}
    if known and text == known.joined and len(heads) == len(polled):
        return Heads(text, {**known.lanes, **heads})
    items = yield from read_all(store, namespace)
    return Heads(text, {item.key: lane_of(item.key, item.value) for item in items if item.key != JOINED})


def lane_of(name: str, value: dict[str, Any]) -> LaneRecord:
    """Reads the head of a lane."""
    return LaneRecord.read(value, f"lane {name!r}")


@dataclass(frozen=True, slots=True)
class News:
    """What was read from a log."""

    messages: Sequence[MessageRecord]
    changed: Mapping[str, MessageRecord | None] = field(default_factory=dict)
    """Records that were there before, by key, as they are now; None for one that was deleted."""


def read_new(store: BaseStore, scope: Scope, known: Heads, now: Heads) -> Flow[News]:
    """Reads what the lanes have in addition to what was known, in order."""
    starts = {name: lane.count for name, lane in known.lanes.items()}
    records = yield from _read_from(store, scope, starts, {name: lane.count for name, lane in now.lanes.items()})
    messages = {key: record for key, record in records.items() if isinstance(record, MessageRecord)}
    touched = {key for record in records.values() if isinstance(record, ChangeRecord) for key in record.changed}
    # Read after the heads, so they are at least as new as what the heads tell of.
    changed = yield from _read_records(store, scope, sorted(touched))
    current = {key: found if isinstance(found := changed.get(key), MessageRecord) else None for key in touched}
    stay = [current.get(key, record) for key, record in messages.items()]
    return News(
        messages=in_order(record for record in stay if record is not None),
        changed={key: record for key, record in current.items() if key not in messages},
    )


_Records = dict[str, MessageRecord | ChangeRecord]


def _read_from(store: BaseStore, scope: Scope, starts: Mapping[str, int], ends: Mapping[str, int]) -> Flow[_Records]:
    """Reads the records of lanes between two numbers each."""
    keys = [place_key(name, n) for name, end in ends.items() for n in range(starts.get(name, 0), end)]
    return (yield from _read_records(store, scope, keys))


def _read_records(store: BaseStore, scope: Scope, keys: Sequence[str]) -> Flow[_Records]:
    """Reads records by their keys; what was deleted is left out."""
    namespace = scope.namespace(MESSAGES)
    found: _Records = {}
    for first in range(0, len(keys), CHUNK):
        some = keys[first : first + CHUNK]
        items = yield from batch(store, [GetOp(namespace, key) for key in some])
        for key, item in zip(some, items, strict=True):
            if isinstance(item, Item):
                kind = ChangeRecord if "changed" in item.value else MessageRecord
                found[key] = record = kind.read(item.value, f"message {key!r}")
                if isinstance(record, MessageRecord) and record.place.key != key:
                    raise StoreDataError(f"message {key!r} is stored as {record.place.key!r}, so it has no place")
    return found


def in_order(records: Iterable[MessageRecord]) -> list[MessageRecord]:
    """Returns records in the order that every reader sees."""
    return sorted(records, key=lambda record: record.place.order)


@dataclass(frozen=True, slots=True)
class Folded:
    """What a log says: one message for every id."""

    messages: Sequence[tuple[MessageRecord, BaseMessage]]
    """Those of the conversation, in order, each under the id that it goes by."""
    doubles: Sequence[MessageRecord]
    """Records of messages that were appended twice under one id, but for the first."""
    renamed: Sequence[str]
    """Keys of the records whose messages go by another id than they have."""
    archived: Mapping[str, Sequence[Place]]
    """Where the messages are that were taken out and kept aside, by id."""


def fold(records: Iterable[MessageRecord], known: Callable[[str], str | None] = lambda _: None) -> Folded:
    """Makes a conversation of records that are in order.

    Two writers can append under one id at the same moment. The same message is there once; where they differ, both
    stay, the later one under another id, which is the same for every reader. `known` gives the fingerprint of the
    message that an id stands for already.
    """
    shown: dict[str, BaseMessage] = {}
    messages: list[tuple[MessageRecord, BaseMessage]] = []
    doubles: list[MessageRecord] = []
    renamed: list[str] = []
    archived: defaultdict[str, list[Place]] = defaultdict(list)

    def said(key: str) -> str | None:
        return fingerprint(shown[key]) if key in shown else known(key)

    for record in records:
        message = record.to_message()
        key = str(message.id)
        if record.archived:
            archived[key].append(record.place)
            continue
        if (before := said(key)) is not None:
            says = fingerprint(message)
            if record.named and says == before:
                doubles.append(record)
                continue
            ids = (content_id(says, n) for n in count(2)) if not record.named else (f"{key}~{n}" for n in count(2))
            key = next(one for one in ids if said(one) is None)
            message = message.model_copy(update={"id": key})
            renamed.append(record.place.key)
        shown[key] = message
        messages.append((record, message))
    return Folded(messages, doubles, renamed, archived)


def append(
    store: BaseStore, scope: Scope, lane: str, head: LaneRecord, records: Sequence[MessageRecord | ChangeRecord]
) -> Flow[None]:
    """Writes records at the end of a lane, and then `head`, which counts them."""
    first = head.count - len(records)
    puts = [_put(store, scope, place_key(lane, number), record) for number, record in enumerate(records, first)]
    yield from bulk.write_messages(store, puts)
    yield from write_head(store, scope, lane, head)


def write_head(store: BaseStore, scope: Scope, lane: str, head: LaneRecord) -> Flow[None]:
    """Says how far a lane has come."""
    yield from batch(store, [PutOp(scope.namespace(LANES), lane, head.to_value(), index=False)])


def tell(store: BaseStore, scope: Scope) -> Flow[None]:
    """Has every reader list the heads again; readers of the user's other conversations, too."""
    text, told = new_token(), told_place(scope.user_id)
    joined = storable({"text": text, "conversation_id": scope.conversation_id})
    yield from batch(
        store,
        [
            PutOp(scope.namespace(LANES), JOINED, joined, index=False),
            PutOp(told.namespace, told.key, {"text": text}, index=False),
        ],
    )


def told_place(user_id: str) -> GetOp:
    """Returns what is written anew when somebody begins to write to a conversation of a user."""
    return GetOp((ROOT, label(user_id), TOLD), TOLD)


def rewrite(
    store: BaseStore, scope: Scope, changed: Mapping[str, MessageRecord | None], derived: Sequence[PutOp]
) -> Flow[None]:
    """Writes records by key where they stand, deletes those that are None, and writes what is derived."""
    gone = [PutOp(scope.namespace(MESSAGES), key, None) for key, record in changed.items() if record is None]
    stay = [_put(store, scope, key, record) for key, record in changed.items() if record is not None]
    yield from bulk.write_messages(store, [*stay, *gone, *derived])


def _put(store: BaseStore, scope: Scope, key: str, record: MessageRecord | ChangeRecord) -> PutOp:
    """Returns the write of a record; in a store with an index, what a message says is embedded."""
    indexed = isinstance(record, MessageRecord) and bulk.has_index(store)
    value = record.to_indexed_value() if indexed and isinstance(record, MessageRecord) else record.to_value()
    return PutOp(scope.namespace(MESSAGES), key, value, index=[SAID] if SAID in value else False)


def read_conversations(store: BaseStore, user_id: str) -> Flow[list[str]]:
    """Reads the ids of a user's conversations, sorted."""
    namespaces = yield from read_namespaces(store, (ROOT, label(user_id), LANES))
    found: list[str] = []
    for first in range(0, len(namespaces), CHUNK):
        items = yield from batch(store, [GetOp(one, JOINED) for one in namespaces[first : first + CHUNK]])
        found += [_conversation_of(item) for item in items if isinstance(item, Item)]
    return sorted(found)


def _conversation_of(joined: Item) -> str:
    key = stored(joined.value).get("conversation_id")
    if not isinstance(key, str):
        raise StoreDataError(
            f"the record {joined.key!r} below {'/'.join(joined.namespace)!r} does not say of which conversation it is; "
            f"the next message that is added to the conversation writes it anew"
        )
    return key


class Mark(NamedTuple):
    """A place in a lane."""

    number: int
    """So many of its records are before it."""
    clock: int
    """None of them is past it."""
    born: str
    """Of the lane; another one means that the lane is not the one that was meant."""


Bookmark = Mapping[str, Mark]
"""A place in a conversation, by lane."""
_BOOKMARK: TypeAdapter[dict[str, Mark]] = TypeAdapter(dict[str, Mark])


@dataclass(frozen=True, slots=True)
class MessagePage:
    """A part of a conversation.

    Attributes:
        messages: in the order of the conversation.
        before: where the page begins: `get_page(before=...)` gives the messages before it. None at the beginning.
        after: where it ends: `get_page(after=...)` gives what has been said since.

    Example:
        >>> from langchain_core.messages import HumanMessage
        >>> from langchain_ctxbudget import ContextPipeline
        >>> pipeline, ada = ContextPipeline(), {"user_id": "ada", "conversation_id": "c1"}
        >>> ids = pipeline.add_messages([HumanMessage(word) for word in ("one", "two", "three")], **ada)
        >>> page = pipeline.get_page(limit=2, **ada)
        >>> [message.content for message in page.messages]
        ['two', 'three']
        >>> [message.content for message in pipeline.get_page(before=page.before, **ada).messages]
        ['one']
    """

    messages: list[BaseMessage]
    before: str | None
    after: str


def read_last(store: BaseStore, scope: Scope, limit: int, before: str | None) -> Flow[MessagePage]:
    """Reads the newest messages, or the newest before a bookmark."""
    now = _ends((yield from read_heads(store, scope)))
    ends = now if before is None else _still_there(_parsed(before), now)
    unread = dict(ends)
    found: list[MessageRecord] = []
    while True:
        oldest = found[-limit].place.order if len(found) >= limit else (0, "", 0)
        # What is not read of a lane yet comes before this.
        lanes = [lane for lane, mark in unread.items() if mark.number and (mark.clock, lane, mark.number) > oldest]
        if not lanes:
            break
        lanes = sorted(lanes, key=lambda lane: -unread[lane].clock)[:LANES_AT_ONCE]
        size = max(FEWEST_READ, limit - len(found))
        starts = {lane: max(0, unread[lane].number - size) for lane in lanes}
        records = yield from _read_from(store, scope, starts, {lane: unread[lane].number for lane in lanes})
        for record in records.values():
            if isinstance(record, MessageRecord):
                mark = unread[record.place.lane]
                unread[record.place.lane] = mark._replace(clock=min(mark.clock, record.place.clock))
                if not record.archived:
                    found.append(record)
        unread |= {lane: unread[lane]._replace(number=starts[lane]) for lane in lanes}
        found = in_order(found)
    page, left = found[-limit:], found[:-limit]
    starts = {lane: mark.number for lane, mark in unread.items()}
    for record in left:  # read, but no part of the page
        starts[record.place.lane] = max(starts[record.place.lane], record.place.number + 1)
    clock = page[0].place.clock if page else 0
    begins = {
        lane: Mark(number, min(ends[lane].clock, clock), ends[lane].born) for lane, number in starts.items() if number
    }
    return MessagePage(_shown(page), _text(begins) if begins else None, _text(ends))


def read_since(store: BaseStore, scope: Scope, after: str) -> Flow[MessagePage]:
    """Reads everything that was said since a bookmark."""
    now = _ends((yield from read_heads(store, scope)))
    known = _still_there(_parsed(after), now)
    starts = {lane: mark.number for lane, mark in known.items()}
    records = yield from _read_from(store, scope, starts, {lane: mark.number for lane, mark in now.items()})
    new = in_order(r for r in records.values() if isinstance(r, MessageRecord) and not r.archived)
    return MessagePage(_shown(new), _text(known) if known else None, _text(now))


def _shown(records: Sequence[MessageRecord]) -> list[BaseMessage]:
    return [message for _, message in fold(records).messages]


def _ends(heads: Heads) -> Bookmark:
    return {name: Mark(lane.count, lane.clock, lane.born) for name, lane in heads.lanes.items()}


def _still_there(bookmark: Bookmark, now: Bookmark) -> Bookmark:
    """Returns what a bookmark says of the lanes that are still there, no more than they have."""
    return {
        lane: mark._replace(number=min(max(mark.number, 0), now[lane].number))
        for lane, mark in bookmark.items()
        if lane in now and mark.born == now[lane].born
    }


def _text(bookmark: Bookmark) -> str:
    return base64.urlsafe_b64encode(json.dumps(bookmark, separators=(",", ":")).encode()).decode()


def _parsed(text: str) -> Bookmark:
    try:
        return _BOOKMARK.validate_json(base64.urlsafe_b64decode(text))
    except (ValidationError, ValueError, TypeError) as error:
        raise InputError(f"{text!r} is no bookmark; pass `before` or `after` of an earlier page") from error
