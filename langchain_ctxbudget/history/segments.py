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

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, Literal, NamedTuple

from langgraph.store.base import BaseStore
from pydantic import Field, model_validator

from langchain_ctxbudget.errors import StoreDataError
from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.history.conversation import OpenConversation
from langchain_ctxbudget.history.derived import Change, DerivedKind
from langchain_ctxbudget.history.log import Heads
from langchain_ctxbudget.history.segment_parts import (
    COSTS,
    ENCODED,
    LOG,
    TEXTS,
    TIMES,
    VECTORS,
    Range,
    checked_part,
    hash_of,
    key_of,
    part_of,
    stored_value,
    times_of,
    unpack_into,
)
from langchain_ctxbudget.history.table import MessageTable
from langchain_ctxbudget.history.tree import Extraction, Extractions, Tree, frontier
from langchain_ctxbudget.search import PackedTerms
from langchain_ctxbudget.sentences import reader_version
from langchain_ctxbudget.stores import (
    Address,
    MessageRecord,
    Record,
    Scope,
    SegmentRecord,
    Value,
    derived_place,
)

SEGMENTS = "blocks"
HEAD = "head"
SEGMENT_MESSAGES = 512
FOLLOWING = 64
"""Messages behind a segment before it is made. A tail is written anew once so many have been added
to it; a shorter one, once it has doubled."""
SHORTEST_TAIL = 4
"""Messages: fewer are read from the log about as fast as from a segment."""
SEALED_AT_ONCE = 2
"""Parts of segments that are written together."""
READ_AT_ONCE = 8
"""Segments that are read together: what a store answers is larger than what is kept of it."""
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
    extracted: tuple[Extraction, ...] = ()
    """Digests of the spans that stand for the oldest messages, by content and date."""
    reader: str = ""
    """The reader of sentences by which they were made; what another one made is made anew."""

    @model_validator(mode="before")
    @classmethod
    def _without_questions(cls, value: Value) -> Value:
        """Leaves out the open questions that earlier versions told without a model."""
        return {name: part for name, part in value.items() if name != "questions"}


def read(store: BaseStore, conversation: OpenConversation) -> Flow[None]:
    """Fills a new conversation from its stored segments; newer messages are read from the log."""
    yield from read_together(store, [conversation])


def read_together(store: BaseStore, conversations: Sequence[OpenConversation]) -> Flow[None]:
    """Fills new conversations from their stored segments, of which a few are read at a time."""
    addresses = [Address(opened.scope, SEGMENTS, HEAD) for opened in conversations]
    values = yield from derived_place(store).get(addresses)
    openings: list[_Opening] = []
    for conversation, value in zip(conversations, values, strict=True):
        if value is None:
            continue
        conversation.remade = REMADE
        head = _head_in(value)
        if head is not None:
            openings.append(_Opening(conversation, head))

    waiting: list[_OpeningSegment] = []
    messages = 0
    for opening in openings:
        for number in range(len(opening.head.segments)):
            waiting.append(_OpeningSegment(opening, number))
            messages += opening.messages(number)
            if messages >= READ_AT_ONCE * SEGMENT_MESSAGES:
                yield from _read_parts(store, waiting)
                waiting = []
                messages = 0
    yield from _read_parts(store, waiting)
    for opening in openings:
        opening.finish()


class _OpeningSegment(NamedTuple):
    """A segment that is to be read."""

    opening: "_Opening"
    number: int


def _read_parts(store: BaseStore, segments: Sequence[_OpeningSegment]) -> Flow[None]:
    """Reads some segments.

    Those behind one that is missing or damaged are not read.
    """
    wanted = [segment for segment in segments if not segment.opening.is_damaged]
    addresses: list[Address] = []
    for opening, number in wanted:
        addresses += opening.addresses(number)
    values = iter((yield from derived_place(store).get(addresses)))
    for opening, number in wanted:
        opening.take(number, [*islice(values, len(opening.addresses(number)))])


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

    def addresses(self, number: int) -> list[Address]:
        """Returns where the parts of a segment are that are wanted."""
        scope = self.conversation.scope
        return [Address(scope, SEGMENTS, key_of(number, name)) for name in self._wanted(number)]

    def take(self, number: int, values: Sequence[Value | None]) -> None:
        """Takes in the parts of the next segment, unless one is missing or damaged."""
        segment = self.head.segments[number]
        named = zip(self._wanted(number), values, strict=True)
        parts = {name: checked_part(value, segment.parts[name]) for name, value in named}
        if self.is_damaged or not all(parts.values()):
            self.is_damaged = True
            return
        self._words.append(unpack_into(self._table, parts))
        self._times += times_of(parts, len(self._table) - len(self._times))
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
        if head.reader == reader_version():
            table.span_digests.extracted = Extractions(head.extracted)
        lanes = whole[-1].lanes if whole else {}

        def is_held(key: str) -> bool:
            """Returns True for the key of a message that is in the segments."""
            lane, _, number = key.rpartition("/")
            return lane in lanes and int(number) < lanes[lane].count

        conversation.table = table
        conversation.times = self._times
        conversation.segments = whole
        conversation.heads = Heads(None, lanes)
        conversation.named_segments = head.segments
        conversation.remade = "" if whole == [*head.segments] else REMADE
        conversation.newest_state = head.newest_state
        conversation.doubles = [record for record in head.doubles if is_held(record.place.key)]
        conversation.archived = {key: name for key, name in head.archived.items() if is_held(key)}

    def _wanted(self, number: int) -> list[str]:
        return [name for name in self.head.segments[number].parts if self._is_wanted(name)]

    def _is_wanted(self, name: str) -> bool:
        if name.startswith(VECTORS):
            return name == VECTORS + self.head.vectors_by
        if name.startswith((COSTS, ENCODED)):
            return not self._is_searched
        return name != TIMES or self._is_searched


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
    """Yields what is computed of segments but not stored.

    Of the whole segments and, of a conversation that `rests`, of its tail. Where nobody talks,
    segments with the readings of an earlier reader stay: nobody asks for these.
    """
    table = conversation.table
    index = table.search_index
    known_until = {TEXTS: len(table), LOG: len(table)}
    for counter, costs in table.counted.items():
        known_until[f"{COSTS}{counter}"] = len(costs.column)
    if index.encoded_by:
        known_until[ENCODED + index.encoded_by] = len(index.encoded)
    vectors = VECTORS + index.vectors_by
    if with_vectors:
        known_until[vectors] = index.final_vectors

    whole = max(0, len(table) - FOLLOWING) // SEGMENT_MESSAGES
    for number in range(whole):
        end = (number + 1) * SEGMENT_MESSAGES
        yield from _lacking_of(conversation, number, end, known_until)
    if rests:
        # The last links are worked out again when more messages follow.
        if with_vectors and len(index.links) == len(index.vectors):
            known_until[vectors] = len(index.vectors)
        end = _end_of_tail(conversation, whole)
        yield from _lacking_of(conversation, whole, end, known_until)
    else:
        yield from _outdated(conversation, whole)


def _outdated(conversation: OpenConversation, whole: int) -> Iterator[Lacking]:
    """Yields the segments that were written before this reader of sentences was there.

    `whole` is the number of whole segments. A tail that is about to give its number to a whole
    segment is none of them.
    """
    for number, segment in enumerate(conversation.segments):
        first = number * SEGMENT_MESSAGES
        is_standing = number >= whole or segment.end == first + SEGMENT_MESSAGES
        if is_standing and conversation.table.has_outdated_readings(first):
            yield Lacking(number, segment.end, [LOG])


def _lacking_of(
    conversation: OpenConversation, number: int, end: int, known_until: Mapping[str, int]
) -> Iterator[Lacking]:
    """Yields what is computed of one segment but not stored, if anything is.

    `known_until` says for each part of how many messages it is computed.
    """
    first = number * SEGMENT_MESSAGES
    stored = _stored_parts(conversation, number, end)
    computed = [name for name in sorted(known_until) if known_until[name] >= end]
    names = [name for name in computed if name not in stored]
    if TIMES not in stored and _tells_times(conversation, first, end):
        names.append(TIMES)
    if names and end > first:
        yield Lacking(number, end, names)


def _stored_parts(conversation: OpenConversation, number: int, end: int) -> Collection[str]:
    """Returns the names of the stored parts of a segment; none where it ends elsewhere."""
    if number >= len(conversation.segments) or conversation.segments[number].end != end:
        return ()
    return conversation.segments[number].parts


def _end_of_tail(conversation: OpenConversation, number: int) -> int:
    """Returns where the tail is to end that has a number.

    Where it ends now, unless so much was added that it is written anew.
    """
    first = number * SEGMENT_MESSAGES
    stored_end = first
    if number < len(conversation.segments):
        stored_end = conversation.segments[number].end
    length = len(conversation.table)
    enough = min(FOLLOWING, max(SHORTEST_TAIL, stored_end - first))
    return length if length - stored_end >= enough else stored_end


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
    parts: Mapping[str, Value]
    """The new parts, by their keys."""


def prepare(
    conversation: OpenConversation, *, rests: bool = False, with_vectors: bool = True
) -> Sealed | None:
    """Works out the next parts of segments that are not stored yet; None where all are."""
    segments = [*conversation.segments]
    new_parts: dict[str, Value] = {}
    missing = lacking(conversation, rests=rests, with_vectors=with_vectors)
    for number, end, names in islice(missing, SEALED_AT_ONCE):
        messages = Range(number * SEGMENT_MESSAGES, end)
        if number == len(segments) or segments[number].end != end:
            segments[number:] = [_without_parts(conversation, end)]
        parts = dict(segments[number].parts)
        pinned = _pinned(conversation, messages)
        if any(name.startswith(ENCODED) for name in names):  # those of an earlier encoder go
            parts = {name: of for name, of in parts.items() if not name.startswith(ENCODED)}
        for name in names:
            part = part_of(conversation, name, messages, pinned)
            parts[name] = hash_of(part)
            if name == LOG:
                conversation.table.note_readings_stored(messages.first)
            if name == TEXTS and not rests:
                conversation.table.keep_sealed(messages.first, end, part)
            new_parts[key_of(number, name)] = stored_value(part)
        segments[number] = segments[number].model_copy(update={"parts": parts})
    return Sealed(conversation.table, segments, new_parts) if new_parts else None


def _without_parts(conversation: OpenConversation, end: int) -> SegmentRecord:
    """Returns a new segment that ends at a position, with its reach into the lanes of the log."""
    lanes = conversation.heads.lanes if conversation.heads else {}
    counts = conversation.table.lane_counts(end, {name: lane.count for name, lane in lanes.items()})
    reached = {
        name: lane.model_copy(update={"count": counts[name]}) for name, lane in lanes.items()
    }
    return SegmentRecord(end=end, lanes=reached, parts={})


def _pinned(conversation: OpenConversation, messages: Range) -> list[int]:
    """Returns the positions of the pinned messages of a segment."""
    positions = [conversation.table.positions.get(key, -1) for key in conversation.pins]
    return [position for position in positions if messages.first <= position < messages.end]


def seal(store: BaseStore, conversation: OpenConversation) -> Flow[bool]:
    """Writes the next parts of segments that are known and not stored yet.

    Returns whether there may be more.
    """
    sealed = prepare(conversation)
    if sealed is None:
        return False
    conversation.segments = [*sealed.segments]
    table = conversation.table
    standing = _keys_of_standing_spans(conversation)
    head = Head(
        vectors_by=table.search_index.vectors_by,
        segments=tuple(sealed.segments),
        archived=conversation.archived,
        doubles=tuple(conversation.doubles),
        newest_state=conversation.newest_state,
        trees=tuple(table.trees.values()),
        extracted=tuple(table.span_digests.extracted.of(standing)),
        reader=reader_version(),
    )
    yield from _write(store, conversation.scope, sealed, head)
    return True


def _keys_of_standing_spans(conversation: OpenConversation) -> set[str]:
    """Returns the keys of the spans that stand for messages before one of the cuts."""
    keys: set[str] = set()
    for tree in conversation.table.trees.values():
        for cut in conversation.cuts.values():
            nodes = frontier(tree.starts, tree.spans_until(cut.position))
            keys.update(map(tree.key, nodes))
    return keys


def read_head(store: BaseStore, scope: Scope) -> Flow[Head | None]:
    """Returns the head of a conversation's segments; None where there is none that can be read."""
    [value] = yield from _SEGMENTS.get(store, scope, [HEAD])
    return None if value is None else _head_in(value)


def _head_in(value: Value) -> Head | None:
    """Returns a stored head; None for one that is damaged, or of another version."""
    try:
        return Head.read(value, "the head of the segments")
    except StoreDataError:
        return None


def write_resting(
    store: BaseStore, conversation: OpenConversation, sealed: Sealed, head_before: Head | None
) -> Flow[None]:
    """Writes what was prepared of a conversation that is only searched.

    What compaction has made of it stays, and so do the embeddings whose vectors are read: who talks
    there may use others than who searches it.
    """
    vectors_by = head_before.vectors_by if head_before else ""
    changes: dict[str, Any] = {
        "version": 9,
        "vectors_by": vectors_by or conversation.table.search_index.vectors_by,
        "segments": tuple(sealed.segments),
        "archived": dict(conversation.archived),
        "doubles": tuple(conversation.doubles),
        "newest_state": conversation.newest_state,
    }
    head = head_before.model_copy(update=changes) if head_before else Head(**changes)
    yield from _write(store, conversation.scope, sealed, head)


def _write(store: BaseStore, scope: Scope, sealed: Sealed, head: Head) -> Flow[None]:
    """Writes parts of segments, and the head behind them.

    Deletes the parts that the stored head alone names.
    """
    kept = set(_keys_of_parts(head.segments))
    stored = yield from _stored_keys(store, scope)
    yield from _SEGMENTS.put(store, scope, sealed.parts)
    yield from _SEGMENTS.forget(store, scope, [key for key in stored if key not in kept])
    yield from _SEGMENTS.put(store, scope, {HEAD: head.to_value()})


def _stored_keys(store: BaseStore, scope: Scope) -> Flow[list[str]]:
    """Returns the keys of the parts that the stored head names.

    All there are, where it cannot be read.
    """
    [value] = yield from _SEGMENTS.get(store, scope, [HEAD])
    if value is None:
        return []
    head = _head_in(value)
    if head is None:
        keys = yield from _SEGMENTS.keys(store, scope)
        return [key for key in keys if key != HEAD]
    return _keys_of_parts(head.segments)


def _keys_of_parts(segments: Sequence[SegmentRecord], first: int = 0) -> list[str]:
    """Returns the keys of the parts of segments, the first of which has a number."""
    keys: list[str] = []
    for number, segment in enumerate(segments, first):
        keys += [key_of(number, name) for name in segment.parts]
    return keys


class Segments(DerivedKind):
    """The segments of a conversation: a head, and their parts.

    Texts, words, vectors, costs and times are parts. The head has the version of all, and the
    digest of each.
    """

    name = SEGMENTS

    def forget_changed(self, store: BaseStore, change: Change) -> Flow[None]:
        """Deletes the segments that reach behind the first message that changes."""
        [value] = yield from self.get(store, change.scope, [HEAD])
        head = None if value is None else _head_in(value)
        if head is None:
            # Nobody knows what is there: somebody who was killed may have left parts without one.
            yield from self.clear(store, change.scope)
            return

        kept = [segment for segment in head.segments if segment.end <= change.first]
        keys = _keys_of_parts(head.segments[len(kept) :], len(kept))
        # They may have left parts of the next segments, too, which no head names yet.
        for number in range(len(head.segments), len(head.segments) + SEALED_AT_ONCE):
            keys += [key_of(number, TEXTS), key_of(number, LOG)]
        yield from self.forget(store, change.scope, keys)

        doubles = [record for record in head.doubles if record.place.key not in change.records]
        archived = {key: name for key, name in head.archived.items() if key not in change.records}
        shortened = head.model_copy(
            update={
                "segments": tuple(kept),
                "doubles": tuple(doubles),
                "archived": archived,
                "trees": (),
                "extracted": (),
            }
        )
        yield from self.put(store, change.scope, {HEAD: shortened.to_value()})


_SEGMENTS = Segments()
