"""A conversation's messages in a store that several writers append to at once; one order for every reader.

`put` is last-writer-wins on every backend, so each writer has a lane of its own, keys `lane/0`, `lane/1` ... without
gaps, and a head that says how many there are, written after them. A reader asks for the heads that it knows by id, and
then for what they count in addition. Changes are made in place, and a record in the writer's lane tells of them.

A writer that joins writes an empty head, then a new text to `joined`, then reads `joined` and lists the heads. A reader
lists them again when `joined` is another. So of two writers that join at the same moment, at least one sees the other.
For the same reason a writer looks at the heads again after it has written its own.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, cast

from langchain_core.messages import BaseMessage
from langgraph.store.base import BaseStore, GetOp, Item, PutOp, SearchItem, SearchOp
from langchain_ctxbudget import stores
from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.messages import content_id, date_of, fingerprint, plain_text, preservation_of, speaker
from langchain_ctxbudget.search import Candidate

MESSAGES, LANES, JOINED, CUTS, PINS = "messages", "lanes", "joined", "cuts", "pins"
POLLED = 32
"""Heads that a reader asks for each time: of the lanes that were written last."""
SURE = 16
"""A writer whose lane is not among this many that were written last joins again, as readers may not ask for it."""
OVERFETCH = 4
"""A search asks for this many times the wanted messages, as some may be the open conversation's."""
LANES_READ = 256
"""Heads of lanes among which those that were written last are looked for."""
FEWEST_EACH = 8
"""The fewest messages that are read of a lane in a store without an index, where it has so many."""


@dataclass(frozen=True, slots=True)
class Heads:
    """The heads of a conversation's lanes, as far as a reader knows them."""

    joined: str | None = None
    """The text of the `joined` record before the lanes were listed."""
    lanes: Mapping[str, stores.LaneRecord] = field(default_factory=dict)

    def polled(self, most: int = POLLED) -> list[str]:
        """Returns the lanes that are asked for each time: those that were written last."""
        return sorted(self.lanes, key=lambda name: (-self.lanes[name].clock, name))[:most]

    def goes_on(self, known: "Heads") -> bool:
        """Returns whether all known records are still there, so that only new ones have to be read."""
        return (self.joined is not None or known.joined is None) and all(
            (lane := self.lanes.get(name)) and lane.born == before.born and lane.count >= before.count
            for name, before in known.lanes.items()
        )


def read_heads(store: BaseStore, scope: stores.Scope, known: Heads | None = None) -> Flow[Heads]:
    """Reads how far the writers have come, by id; listed only where a writer has joined or a lane is gone."""
    namespace, polled = scope.namespace(LANES), known.polled() if known else []
    joined, *found = yield from batch(store, [GetOp(namespace, JOINED), *(GetOp(namespace, lane) for lane in polled)])
    # A damaged one, too, is only compared with what it was before.
    text = str(stores.stored(joined.value).get("text", joined.value)) if isinstance(joined, Item) else None
    pairs = zip(polled, found, strict=True)
    heads = {name: lane_of(name, item.value) for name, item in pairs if isinstance(item, Item)}
    if known and text == known.joined and len(heads) == len(polled):
        return Heads(text, {**known.lanes, **heads})
    items = yield from stores.read_all(store, namespace)
    return Heads(text, {item.key: lane_of(item.key, item.value) for item in items if item.key != JOINED})


def lane_of(name: str, value: dict[str, Any]) -> stores.LaneRecord:
    """Reads the head of a lane."""
    return stores.LaneRecord.read(value, f"lane {name!r}")


@dataclass(frozen=True, slots=True)
class News:
    """The records that were read from a log."""

    messages: Sequence[stores.MessageRecord]
    changed: Mapping[str, stores.MessageRecord | None] = field(default_factory=dict)
    """Records that were there before, by key, as they are now; None for one that was deleted."""


def read_new(store: BaseStore, scope: stores.Scope, known: Heads, now: Heads) -> Flow[News]:
    """Reads the records that the lanes have gained since `known`, in order."""
    starts = {name: lane.count for name, lane in known.lanes.items()}
    ends = {name: lane.count for name, lane in now.lanes.items()}
    keys = [stores.place_key(name, number) for name, end in ends.items() for number in range(starts.get(name, 0), end)]
    records = yield from _read_records(store, scope, keys)
    messages = {key: record for key, record in records.items() if isinstance(record, stores.MessageRecord)}
    touched = {key for record in records.values() if isinstance(record, stores.ChangeRecord) for key in record.changed}
    # Read after the heads, so they are at least as new as what the heads tell of.
    found = yield from _read_records(store, scope, sorted(touched))
    changed = {key: it if isinstance(it := found.get(key), stores.MessageRecord) else None for key in touched}
    stay = (changed.get(key, record) for key, record in messages.items())
    return News(
        messages=in_order(record for record in stay if record is not None),
        changed={key: record for key, record in changed.items() if key not in messages},
    )


def _read_records(
    store: BaseStore, scope: stores.Scope, keys: Sequence[str]
) -> Flow[dict[str, stores.MessageRecord | stores.ChangeRecord]]:
    namespace = scope.namespace(MESSAGES)
    found: dict[str, stores.MessageRecord | stores.ChangeRecord] = {}
    for item in (yield from read_items(store, [GetOp(namespace, key) for key in keys])):
        if item is not None:
            kind = stores.ChangeRecord if "changed" in item.value else stores.MessageRecord
            found[item.key] = kind.read(item.value, f"message {item.key!r}")
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


def fold(records: Iterable[stores.MessageRecord], known: Callable[[str], str | None] = lambda _: None) -> Folded:
    """Makes a conversation of records that are in order.

    Where two writers have used one id, the same message is there once; of different ones both stay, the later one under
    another id. `known` gives the fingerprint of the message that an id stands for already.
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
            ids = (content_id(says, n) for n in count(2)) if not record.named else (f"{key}~{n}" for n in count(2))
            key = next(one for one in ids if said(one) is None)
            message = message.model_copy(update={"id": key})
        shown[key] = message
        messages.append((record, message))
    return Folded(messages, doubles, archived)


def puts(
    store: BaseStore, scope: stores.Scope, records: Mapping[str, stores.MessageRecord | stores.ChangeRecord | None]
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
        made.append(PutOp(scope.namespace(MESSAGES), key, value or None, index=[stores.SAID] if said else False))
    return made


def head_put(scope: stores.Scope, lane: str, head: stores.LaneRecord) -> PutOp:
    """Returns the write that says how far a lane has come."""
    return stores.written(GetOp(scope.namespace(LANES), lane), head)


def read_conversations(store: BaseStore, user_id: str) -> Flow[list[str]]:
    """Reads the ids of a user's conversations, sorted."""
    namespaces = yield from stores.read_namespaces(store, (stores.ROOT, stores.label(user_id), LANES))
    items = yield from read_items(store, [GetOp(one, JOINED) for one in namespaces])
    return sorted(_conversation_of(item) for item in items if item is not None)


def read_behind(store: BaseStore, user_id: str, kind: str) -> Flow[list[str]]:
    """Reads the ids of conversations written to since their record of a kind, or where that has no marks or waits."""
    asked = [SearchOp((stores.ROOT, stores.label(user_id), one), limit=LANES_READ) for one in (LANES, kind)]
    lanes, done = (cast("list[SearchItem]", result) for result in (yield from batch(store, asked)))
    begun = {item.namespace[-1] for item in done}
    records = [(item, stores.stored(item.value)) for item in done]
    finished = [item for item, record in records if record.get("marks") and not record.get("waits_until")]
    done_at = {item.namespace[-1]: item.updated_at for item in finished}
    heads = ((item.namespace[-1], item.updated_at) for item in lanes if item.key != JOINED)
    behind = {name for name, at in heads if name in begun and (name not in done_at or at > done_at[name])}
    return sorted(_conversation_of(item) for item in lanes if item.key == JOINED and item.namespace[-1] in behind)


def _conversation_of(joined: Item) -> str:
    return str(stores.stored(joined.value)["conversation_id"])


@dataclass(slots=True)
class OtherConversations:
    """Candidates from the user's other conversations, kept with the conversation that is open.

    A store with an index gives the messages that are nearest in meaning to a query. One without gives the last ones of
    the lanes that were written last: a set to choose from, and no ranking; it is read again when one was written to.
    """

    _read_for: object = None
    _found: Sequence[Candidate] = ()

    def read(
        self, store: BaseStore, user_id: str, query: str, *, without_conversation: str | None, limit: int
    ) -> Flow[Sequence[Candidate]]:
        """Reads at most `limit` messages of a user's other conversations."""
        user = (stores.ROOT, stores.label(stores.require_id("user_id", user_id)))
        without = None if without_conversation is None else stores.label(without_conversation)
        if query.strip() and stores.has_index(store):
            # The open conversation cannot be left out of a search, only of what it finds; and some stores keep the
            # vector of a message that is archived now.
            most = limit if without is None else limit * OVERFETCH
            search = SearchOp((*user, MESSAGES), filter={"archived": False}, limit=most, query=query)
            [result] = yield from batch(store, [search])
            scored = [item for item in cast("list[SearchItem]", result) if item.score is not None]
            return (yield from _candidates(store, _within(scored, (*user, MESSAGES), without)))[:limit]
        asked = [SearchOp((*user, kind), limit=LANES_READ) for kind in (LANES, PINS)]
        written, pins = (cast("list[SearchItem]", result) for result in (yield from batch(store, asked)))
        lanes = [item for item in _within(written, (*user, LANES), without) if item.key != JOINED]
        lanes.sort(key=lambda item: (-item.updated_at.timestamp(), item.namespace, item.key))
        lanes = lanes[: max(1, limit // FEWEST_EACH)]
        seen = [(item.namespace, item.key, item.value) for item in (*lanes, *pins)]
        if (read_for := (user_id, without_conversation, limit, seen)) != self._read_for:
            of_each = limit // max(1, len(lanes))
            places = [
                GetOp((*user, MESSAGES, item.namespace[-1]), stores.place_key(item.key, number))
                for item in lanes
                for number in reversed(range(lane_of(item.key, item.value).count)[-of_each:])
            ]
            records = yield from batch(store, places)
            newest = [item for item in records if isinstance(item, Item) and "changed" not in item.value]
            self._read_for, self._found = read_for, (yield from _candidates(store, newest))[:limit]
        return self._found


def _within(items: Iterable[SearchItem], prefix: tuple[str, ...], without: str | None) -> list[SearchItem]:
    """Returns the items that are a conversation's, and not of one of them; a store may look for a prefix as text."""
    return [item for item in items if item.namespace[:-1] == prefix and item.namespace[-1] != without]


def _candidates(store: BaseStore, found: Sequence[Item]) -> Flow[list[Candidate]]:
    records: defaultdict[tuple[str, ...], list[stores.MessageRecord]] = defaultdict(list)
    for item in found:
        records[item.namespace].append(stores.MessageRecord.read(item.value, f"message {item.key!r}"))
    asked = [GetOp((*of[:2], kind, of[-1]), key) for of in records for kind, key in ((LANES, JOINED), (PINS, PINS))]
    about = iter((yield from batch(store, asked)))
    made: dict[tuple[tuple[str, ...], str], Candidate] = {}
    for of, its in records.items():
        joined, pins = next(about), next(about)
        if not isinstance(joined, Item):  # it is being deleted
            continue
        conversation_id = _conversation_of(joined)
        pinned = known.pins if (known := stores.PinsRecord.found(pins)) else {}
        for record in in_order(record for record in its if not record.archived):
            message = record.to_message()
            text, name = plain_text(message), str(message.id)
            if text and (pinned.get(name) or preservation_of(message)) not in stores.UNQUOTED:
                made[of, record.place.key] = Candidate(
                    id=message_reference(conversation_id, name),
                    source="conversations",
                    text=text,
                    title=conversation_id,
                    place=record.place.number,
                    speaker=speaker(message),
                    date=date_of(message),
                    kind="experience",
                )
    return [made[at] for item in found if (at := (item.namespace, item.key)) in made]


def message_reference(conversation_id: str, message_id: str) -> str:
    """Returns one text for both ids; an id may have a slash, too."""
    return f"{conversation_id.replace('%', '%25').replace('/', '%2F')}/{message_id}"
