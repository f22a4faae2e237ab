"""Sealed segments.

Derived data of a conversation's older messages, stored beside its log so that it is computed once.

A segment is a few hundred messages in a row, once more messages follow it, in parts: their texts;
what else is known of them; their vectors; their costs, for every counter. A head names the segments
with a hash of each part, and says of each how far into the lanes of the log it reaches: from there,
what is new is read as ever. All of it is derived: what is missing, damaged or of another version is
made again in the background; what stands behind a change is forgotten.

Behind the last whole segment, a conversation that rests has a tail: a segment of all that is left.
It is written anew, under the same number, when enough has been added to it, and gives its number to
a whole segment in the end.
"""

import json
import math
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from itertools import islice
from typing import Any, Literal, NamedTuple

import numpy as np
from langgraph.store.base import BaseStore, GetOp, Item, PutOp
from numpy.typing import NDArray
from pybase64 import b64decode, b64encode_as_string
from pydantic import Field

from langchain_ctxbudget.errors import StoreDataError
from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.history.arc import OpenQuestions
from langchain_ctxbudget.history.columns import UNKNOWN, Arrays, Costs
from langchain_ctxbudget.history.conversation import OpenConversation
from langchain_ctxbudget.history.extractive import Digest
from langchain_ctxbudget.history.log import Heads, read_items
from langchain_ctxbudget.history.table import FACTS, MessageTable, packed_texts
from langchain_ctxbudget.history.tree import Tree, frontier
from langchain_ctxbudget.search import PackedTerms
from langchain_ctxbudget.stores import (
    MessageRecord,
    Record,
    Scope,
    SegmentRecord,
    read_all,
    written,
)

SEGMENTS = "blocks"
HEAD = "head"
TEXTS = "texts"
LOG = "log"
VECTORS = "vectors "
COSTS = "costs "
"""Parts of a segment: texts; messages; vectors by embeddings, and costs by a counter, whose name
follows."""
TIMES = "times"
"""The part with the time at which each message was stored; only who reads a conversation to search
it knows that."""
SEGMENT_MESSAGES = 512
FOLLOWING = 64
"""Messages behind a segment before it is made. A tail is written anew once so many have been added to
it; a shorter one, once it has doubled."""
SHORTEST_TAIL = 4
"""Messages: fewer are read from the log about as fast as from a segment."""
SEALED_AT_ONCE = 2
READ_AT_ONCE = 8
"""Segments that are written together, and read: what a store answers is larger than what is kept of
it."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
REMADE = (
    "what was stored of older messages was damaged, or of another version; it is worked out again"
)


class Head(Record):
    """The segments of a conversation, and what else is known of their messages."""

    version: Literal[8, 9] = 9
    """The version of everything that is worked out from messages; segments of another one are made
    anew. In version 8 there was no tail."""
    vectors_by: str
    segments: tuple[SegmentRecord, ...] = Field(alias="blocks")
    archived: dict[str, str]
    doubles: tuple[MessageRecord, ...]
    newest_state: int
    # What compaction has made of them, so that none is read for it again:
    trees: tuple[Tree, ...] = ()
    extracted: tuple[tuple[str, str | None, Digest], ...] = ()
    """Digests of the spans that stand for the oldest messages, by content and date."""
    questions: OpenQuestions = OpenQuestions()


def read(store: BaseStore, conversation: OpenConversation) -> Flow[None]:
    """Fills a new conversation from its stored segments; newer messages are read from the log."""
    yield from read_together(store, [conversation])


def read_together(store: BaseStore, conversations: Sequence[OpenConversation]) -> Flow[None]:
    """Fills new conversations from their stored segments, of which a few are read at a time."""
    items = yield from read_items(
        store, [GetOp(one.scope.namespace(SEGMENTS), HEAD) for one in conversations]
    )
    openings: list[_Opening] = []
    for conversation, item in zip(conversations, items, strict=True):
        if item is None:
            continue
        conversation.remade = REMADE
        with suppress(StoreDataError):
            openings.append(
                _Opening(conversation, Head.read(item.value, "the head of the segments"))
            )
    asked: list[tuple[_Opening, int]] = []
    messages = 0
    for opening in openings:
        for number in range(len(opening.head.segments)):
            asked.append((opening, number))
            messages += opening.messages(number)
            if messages >= READ_AT_ONCE * SEGMENT_MESSAGES:
                yield from _read_parts(store, asked)
                asked = []
                messages = 0
    yield from _read_parts(store, asked)
    for opening in openings:
        opening.finish()


def _read_parts(store: BaseStore, segments: Sequence[tuple["_Opening", int]]) -> Flow[None]:
    """Reads some segments, each by its number.

    Those behind one that is missing or damaged are not read.
    """
    asked = [(opening, number) for opening, number in segments if not opening.is_damaged]
    places = [place for opening, number in asked for place in opening.places(number)]
    items = iter((yield from batch(store, places)))
    for opening, number in asked:
        opening.take(number, [next(items) for _ in opening.places(number)])


class _Opening:
    """A conversation that is being filled from its segments.

    Of one that is only searched, costs are not read, and the times at which messages were stored
    are.
    """

    def __init__(self, conversation: OpenConversation, head: Head) -> None:
        self.conversation = conversation
        self.head = head
        self.is_damaged = False
        self._is_searched = conversation.stored_at is not None
        self._table = MessageTable()
        self._words: list[PackedTerms] = []
        self._times: list[datetime | None] = []
        self._whole: list[SegmentRecord] = []

    def messages(self, number: int) -> int:
        """Returns how many messages a segment has."""
        return self.head.segments[number].end - number * SEGMENT_MESSAGES

    def places(self, number: int) -> list[GetOp]:
        """Returns where the parts of a segment are that are wanted."""
        namespace = self.conversation.scope.namespace(SEGMENTS)
        return [GetOp(namespace, _key(number, name)) for name in self._wanted(number)]

    def take(self, number: int, items: Sequence[object]) -> None:
        """Takes in the parts of the next segment, unless one is missing or damaged."""
        segment = self.head.segments[number]
        named = zip(self._wanted(number), items, strict=True)
        parts = {name: _checked(item, segment.parts[name]) for name, item in named}
        if self.is_damaged or not all(parts.values()):
            self.is_damaged = True
            return
        self._words.append(_unpack(self._table, parts))
        self._times += _times_of(parts, len(self._table) - len(self._times))
        self._whole.append(segment)

    def finish(self) -> None:
        """Fills the conversation with what was read."""
        conversation = self.conversation
        head = self.head
        table = self._table
        whole = self._whole
        table.search_index.lexical.restore(self._words)
        table.search_index.vectors_by = head.vectors_by
        table.trees = {tree.span_messages: tree.shortened(len(table)) for tree in head.trees}
        table.made.extracted = {(key, date): digest for key, date, digest in head.extracted}
        table.questions = head.questions
        lanes = whole[-1].lanes if whole else {}

        def holds(key: str) -> bool:
            lane, _, number = key.rpartition("/")
            return lane in lanes and int(number) < lanes[lane].count

        conversation.table = table
        conversation.times = self._times
        conversation.segments, conversation.heads = whole, Heads(None, lanes)
        conversation.named_segments = head.segments
        conversation.remade = "" if whole == [*head.segments] else REMADE
        conversation.newest_state = head.newest_state
        conversation.doubles = [record for record in head.doubles if holds(record.place.key)]
        conversation.archived = {key: name for key, name in head.archived.items() if holds(key)}

    def _wanted(self, number: int) -> list[str]:
        return [name for name in self.head.segments[number].parts if self._is_wanted(name)]

    def _is_wanted(self, name: str) -> bool:
        if name.startswith(VECTORS):
            return name == VECTORS + self.head.vectors_by
        if name.startswith(COSTS):
            return not self._is_searched
        return name != TIMES or self._is_searched


def _times_of(parts: Mapping[str, bytes], messages: int) -> list[datetime | None]:
    """Returns when each message of a segment was stored.

    None for each where the segment does not tell.
    """
    if TIMES not in parts:
        return [None] * messages
    passed = _unpacked(parts[TIMES])[1][TIMES]
    return [EPOCH + timedelta(microseconds=microseconds) for microseconds in passed.tolist()]


def _unpack(table: MessageTable, parts: Mapping[str, bytes]) -> PackedTerms:
    """Adds a segment but for its words, which it returns.

    Vectors and costs only where no segment before lacks them.
    """
    index = table.search_index
    log = _unpacked(parts[LOG])
    for name, raw in parts.items():
        if name.startswith(VECTORS) and len(index.vectors) == len(table):
            arrays = _unpacked(raw)[1]
            index.vectors.rows.extend(arrays["vectors"])
            index.links.extend(arrays["_links"])
        elif name.startswith(COSTS):
            costs = table.counted.setdefault(name.removeprefix(COSTS), Costs())
            if len(costs.column) == len(table):
                costs.extend(_unpacked(raw)[1])
    table.unpack(*log, parts[TEXTS])
    return index.unpack(*log)


class Lacking(NamedTuple):
    """Parts of a segment that are computed but not stored."""

    number: int
    """The number of the segment."""
    end: int
    """The position behind its last message; where the stored segment has another one, it is made
    anew."""
    parts: Sequence[str]


def lacking(
    conversation: OpenConversation, *, rests: bool = False, with_vectors: bool = True
) -> Iterator[Lacking]:
    """Yields what is computed but not stored of the whole segments and, of a conversation that `rests`, of its tail."""
    table = conversation.table
    index = conversation.table.search_index
    has_vectors = index.final_vectors
    reach = {TEXTS: len(table), LOG: len(table)}
    reach |= {f"{COSTS}{name}": len(costs.column) for name, costs in table.counted.items()}
    whole = max(0, len(table) - FOLLOWING) // SEGMENT_MESSAGES
    for number in range(whole + rests):
        first = number * SEGMENT_MESSAGES
        end = first + SEGMENT_MESSAGES
        segment = conversation.segments[number] if number < len(conversation.segments) else None
        if number == whole:
            end = _end_of_tail(first, segment.end if segment else first, len(table))
            if len(index.links) == len(
                index.vectors
            ):  # the last links are worked out again when more follows
                has_vectors = len(index.vectors)
        if with_vectors:
            reach[VECTORS + index.vectors_by] = has_vectors
        is_stored = segment is not None and segment.end == end
        stored = conversation.segments[number].parts if is_stored else {}
        names = [
            name for name, known in sorted(reach.items()) if name not in stored and known >= end
        ]
        if TIMES not in stored and _tells_times(conversation, first, end):
            names.append(TIMES)
        if names and end > first:
            yield Lacking(number, end, names)


def _end_of_tail(first: int, stored_end: int, length: int) -> int:
    """Returns where the tail is to end.

    Where it ends now, unless so much was added that it is written anew.
    """
    added = length - stored_end
    enough = min(FOLLOWING, max(SHORTEST_TAIL, stored_end - first))
    return length if added >= enough else stored_end


def _tells_times(conversation: OpenConversation, first: int, end: int) -> bool:
    times = conversation.times[first:end]
    return len(times) == end - first and None not in times


@dataclass(frozen=True, slots=True)
class Sealed:
    """What is to be written of a conversation."""

    table: MessageTable
    """Its messages when that was worked out."""
    segments: Sequence[SegmentRecord]
    """All its segments, once it is written."""
    puts: Sequence[PutOp]


def prepare(
    conversation: OpenConversation, *, rests: bool = False, with_vectors: bool = True
) -> Sealed | None:
    """Works out the next parts of segments that are not stored yet; None where all are."""
    table = conversation.table
    pins = conversation.pins
    segments = [*conversation.segments]
    namespace = conversation.scope.namespace(SEGMENTS)
    lanes = conversation.heads.lanes if conversation.heads else {}
    puts: list[PutOp] = []
    missing = lacking(conversation, rests=rests, with_vectors=with_vectors)
    for number, end, names in islice(missing, SEALED_AT_ONCE):
        first = number * SEGMENT_MESSAGES
        if number == len(segments) or segments[number].end != end:
            counts = table.lane_counts(end, {name: lane.count for name, lane in lanes.items()})
            reached = {
                name: lane.model_copy(update={"count": counts[name]})
                for name, lane in lanes.items()
            }
            segments[number:] = [SegmentRecord(end=end, lanes=reached, parts={})]
        parts = dict(segments[number].parts)
        pinned = [at for key in pins if (at := table.positions.get(key, -1)) in range(first, end)]
        for name in names:
            raw = _part(conversation, name, first, end, pinned)
            parts[name] = _hash(raw)
            if name == TEXTS and not rests:
                table.keep_sealed(first, end, raw)
            puts.append(
                PutOp(
                    namespace, _key(number, name), {"data": b64encode_as_string(raw)}, index=False
                )
            )
        segments[number] = segments[number].model_copy(update={"parts": parts})
    return Sealed(table, segments, puts) if puts else None


def seal(store: BaseStore, conversation: OpenConversation) -> Flow[bool]:
    """Writes the next parts of segments that are known and not stored yet.

    Returns whether there may be more.
    """
    sealed = prepare(conversation)
    if sealed is None:
        return False
    conversation.segments = [*sealed.segments]
    table = conversation.table
    standing = {
        tree.key(node)
        for tree in table.trees.values()
        for cut in conversation.cuts.values()
        for node in frontier(tree.starts, tree.spans_until(cut.position))
    }
    head = Head(
        vectors_by=table.search_index.vectors_by,
        segments=tuple(sealed.segments),
        archived=conversation.archived,
        doubles=tuple(conversation.doubles),
        newest_state=conversation.newest_state,
        trees=tuple(table.trees.values()),
        extracted=tuple(
            (key, date, own) for (key, date), own in table.made.extracted.items() if key in standing
        ),
        questions=table.questions,
    )
    [item] = yield from batch(store, [GetOp(conversation.scope.namespace(SEGMENTS), HEAD)])
    yield from _write(store, conversation.scope, sealed, head, item)
    return True


def read_head(store: BaseStore, scope: Scope) -> Flow[Head | None]:
    """Returns the head of a conversation's segments; None where there is none that can be read."""
    [item] = yield from batch(store, [GetOp(scope.namespace(SEGMENTS), HEAD)])
    with suppress(StoreDataError):
        return Head.read(item.value, "the head of the segments") if isinstance(item, Item) else None
    return None


def write_resting(
    store: BaseStore, conversation: OpenConversation, sealed: Sealed, known: Head | None
) -> Flow[None]:
    """Writes what was prepared of a conversation that is only searched.

    What compaction has made of it stays.

    So do the embeddings whose vectors are read: who talks there may use others than who searches
    it.
    """
    vectors_by = known.vectors_by if known else ""
    changes: dict[str, Any] = {
        "vectors_by": vectors_by or conversation.table.search_index.vectors_by,
        "segments": tuple(sealed.segments),
        "archived": dict(conversation.archived),
        "doubles": tuple(conversation.doubles),
        "newest_state": conversation.newest_state,
    }
    head = known.model_copy(update={"version": 9, **changes}) if known else Head(**changes)
    [item] = yield from batch(store, [GetOp(conversation.scope.namespace(SEGMENTS), HEAD)])
    yield from _write(store, conversation.scope, sealed, head, item)


def _write(
    store: BaseStore, scope: Scope, sealed: Sealed, head: Head, stored: object
) -> Flow[None]:
    """Writes parts of segments, and the head behind them.

    Deletes the parts that the stored head alone names.
    """
    namespace = scope.namespace(SEGMENTS)
    kept = {
        _key(number, name) for number, segment in enumerate(head.segments) for name in segment.parts
    }
    gone = [key for key in (yield from _keys_named(store, namespace, stored)) if key not in kept]
    yield from batch(store, [*sealed.puts, *(PutOp(namespace, key, None) for key in gone)])
    yield from batch(store, [written(GetOp(namespace, HEAD), head)])


def _keys_named(store: BaseStore, namespace: tuple[str, ...], stored: object) -> Flow[list[str]]:
    """Returns the keys of the parts that a stored head names.

    All there are, where it cannot be read.
    """
    if not isinstance(stored, Item):
        return []
    try:
        head = Head.read(stored.value, "the head of the segments")
    except StoreDataError:
        return [item.key for item in (yield from read_all(store, namespace)) if item.key != HEAD]
    return [
        _key(number, name) for number, segment in enumerate(head.segments) for name in segment.parts
    ]


def _part(
    conversation: OpenConversation, name: str, first: int, end: int, pinned: list[int]
) -> bytes:
    """Returns a part of a segment in its stored form, as if no message was pinned.

    Pins come and go.
    """
    table = conversation.table
    index = conversation.table.search_index
    if name == TEXTS:
        return packed_texts(table[first:end])
    if name == TIMES:
        passed = [
            (at - EPOCH) // timedelta(microseconds=1)
            for at in conversation.times[first:end]
            if at is not None
        ]
        return _packed(({}, {TIMES: np.array(passed, np.int64)}))
    if name == LOG:
        index.read(table)
        (data, arrays), (said, words) = (
            table.packed(first, end, pinned),
            index.packed(first, end, table),
        )
        return _packed(({**data, **said}, {**arrays, **words}))
    if name.startswith(VECTORS):
        arrays = {
            "vectors": index.vectors.rows.values[first:end],
            "_links": index.links.values[first:end],
        }
        return _packed(({}, arrays))
    arrays = table.counted[name.removeprefix(COSTS)].arrays(first, end)
    arrays["column"][[position - first for position in pinned]] = UNKNOWN
    return _packed(({}, arrays))


def forgotten(
    store: BaseStore, scope: Scope, stored: object, first: int, changed: Collection[str]
) -> Flow[list[PutOp]]:
    """Returns the writes after which no segment tells of messages behind a position, or of records that are changed."""
    if not isinstance(stored, Item):
        return []
    namespace = scope.namespace(SEGMENTS)
    try:
        head = Head.read(stored.value, "the head of the segments")
    except StoreDataError:  # nobody knows what is there
        return [
            PutOp(namespace, item.key, None) for item in (yield from read_all(store, namespace))
        ]
    stale = [
        (number, segment) for number, segment in enumerate(head.segments) if segment.end > first
    ]
    gone = [
        PutOp(namespace, _key(number, name), None)
        for number, segment in stale
        for name in segment.parts
    ]
    # Somebody who was killed may have left parts of the next segments, which no head names yet.
    following = range(len(head.segments), len(head.segments) + SEALED_AT_ONCE)
    gone += [
        PutOp(namespace, _key(number, name), None) for number in following for name in (TEXTS, LOG)
    ]
    kept = head.segments[: len(head.segments) - len(stale)]
    doubles = tuple(record for record in head.doubles if record.place.key not in changed)
    derived = {"trees": (), "extracted": (), "questions": OpenQuestions()}
    left = head.model_copy(update={"segments": kept, "doubles": doubles, **derived})
    return [written(GetOp(namespace, HEAD), left), *gone]


def _key(number: int, part: str) -> str:
    return f"{number} {blake2b(part.encode(), digest_size=8).hexdigest() if ' ' in part else part}"


def _packed(data: tuple[dict[str, Any], Arrays]) -> bytes:
    plain, arrays = data
    text = json.dumps(
        [plain, [(name, array.dtype.str, array.shape) for name, array in arrays.items()]]
    ).encode()
    return b"".join(
        [len(text).to_bytes(4, "little"), text, *(array.tobytes() for array in arrays.values())]
    )


def _unpacked(stored: bytes) -> tuple[dict[str, Any], Arrays]:
    begin = 4 + int.from_bytes(stored[:4], "little")
    plain, shapes = json.loads(stored[4:begin])
    arrays: dict[str, NDArray[Any]] = {}
    for name, kind, shape in shapes:
        dtype = FACTS if name == "facts" else np.dtype(kind)
        size = math.prod(shape)
        arrays[name] = np.frombuffer(stored, dtype, size, begin).reshape(shape)
        begin += size * dtype.itemsize
    return plain, arrays


def _checked(item: object, hashed: str) -> bytes:
    """Returns a stored part; nothing where it is not what the head names."""
    try:
        raw = b64decode(item.value["data"], validate=True) if isinstance(item, Item) else b""
    except (KeyError, TypeError, ValueError):
        return b""
    return raw if _hash(raw) == hashed else b""


def _hash(stored: bytes) -> str:
    # tells of damage; who writes the store may change messages, too
    return f"{zlib.crc32(stored):08x} {len(stored)}"
