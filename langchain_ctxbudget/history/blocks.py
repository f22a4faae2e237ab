"""Sealed blocks: what is known of the older messages of a conversation, beside its log, so that it is worked out once.

A block is a few hundred messages in a row, once more messages follow it. It has parts: the messages themselves and what
follows from those before them; their words; their vectors; their costs, for every counter. A head names the blocks with
a hash of each part, and says of each how far into the lanes of the log it reaches: from there, what is new is read as
ever. So whoever opens a conversation is where the last writer of blocks was, as if it had been open all the time.

All of it is derived. What is missing, damaged or of another version is made again from the messages, in the background;
what stands behind a change is forgotten with it.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from langgraph.store.base import BaseStore, GetOp, Item, PutOp
from numpy.typing import NDArray
from pydantic import TypeAdapter

from langchain_ctxbudget.errors import StoreDataError
from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.history.arc import OpenQuestions
from langchain_ctxbudget.history.entry import FACTS
from langchain_ctxbudget.history.extractive import Digest
from langchain_ctxbudget.history.table import MessageTable
from langchain_ctxbudget.history.tree import Tree, frontier
from langchain_ctxbudget.stores import LaneRecord, MessageRecord, Place, Record, Scope, read_all

if TYPE_CHECKING:
    from langchain_ctxbudget.history.open import OpenConversation

BLOCKS, HEAD = "blocks", "head"
LOG, WORDS, VECTORS, COSTS = "log", "words", "vectors ", "costs "
"""Parts of a block: messages; words; vectors by embeddings, and costs by a counter, whose name follows."""
BLOCK_MESSAGES = 512
FOLLOWING = 64
"""A block is sealed when so many messages follow it."""
SEALED_AT_ONCE, READ_AT_ONCE = 2, 16
"""Blocks."""
REMADE = "what was stored of older messages was damaged, or of another version; it is worked out again"
Words = tuple[list[str], NDArray[Any], int]

Data = tuple[dict[str, Any], dict[str, NDArray[Any]]]
"""Plain data and arrays."""


class Block(Record):
    """What the head says of a block."""

    end: int
    """The position behind its last message."""
    lanes: dict[str, LaneRecord]
    """How far it reaches into the lanes."""
    parts: dict[str, str]
    """A hash of each part, by name."""


class Head(Record):
    """The blocks of a conversation, and what else is known of their messages."""

    version: Literal[1] = 1
    """Of everything that is worked out from messages; blocks of another one are made anew."""
    vectors_by: str
    """The name of the embeddings."""
    blocks: tuple[Block, ...]
    archived: dict[str, tuple[Place, ...]]
    doubles: tuple[MessageRecord, ...]
    renamed: tuple[str, ...]
    newest_state: int
    derived: str
    """What was made of them for compaction, as JSON."""


@dataclass(slots=True)
class _Derived:
    """What compaction has made of messages, so that none of them is read for it again."""

    trees: list[Tree]
    extracted: list[tuple[str, str | None, Digest]]
    """Digests of the spans that stand for the oldest messages, by content and date."""
    questions: OpenQuestions
    questions_of: str = ""
    """A digest of the messages that the open questions were read from."""


_DERIVED = TypeAdapter(_Derived)


@dataclass(frozen=True, slots=True)
class Opened:
    """What was read of the blocks of a conversation."""

    head: Head | None
    blocks: list[Block]
    """Those that can be read, with the parts of each that can be."""
    table: MessageTable
    damaged: bool

    @property
    def lanes(self) -> Mapping[str, LaneRecord]:
        """How far into the lanes the blocks reach."""
        return self.blocks[-1].lanes if self.blocks else {}

    def holds(self, place: Place) -> bool:
        """Returns whether a record was read for the blocks."""
        return place.lane in self.lanes and place.number < self.lanes[place.lane].count


def read(store: BaseStore, scope: Scope) -> Flow[Opened | None]:
    """Returns what can be read of the blocks of a conversation; None where there are none."""
    [item] = yield from batch(store, [GetOp(scope.namespace(BLOCKS), HEAD)])
    if not isinstance(item, Item):
        return None
    try:
        head = Head.read(item.value, "the head of the blocks")
    except StoreDataError:
        return Opened(None, [], MessageTable(), damaged=True)
    table, words = MessageTable(), list[Words]()
    vectors = VECTORS + head.vectors_by
    every = dict.fromkeys(name for block in head.blocks for name in block.parts)
    parts = [name for name in every if name == vectors or not name.startswith(VECTORS)]
    whole = dict.fromkeys(parts, 0)
    for first in range(0, len(head.blocks), READ_AT_ONCE):
        some = list(enumerate(head.blocks[first : first + READ_AT_ONCE], first))
        asked = [(number, name) for number, block in some for name in parts if name in block.parts]
        found = yield from batch(store, [GetOp(scope.namespace(BLOCKS), _key(*one)) for one in asked])
        for (number, name), stored in zip(asked, found, strict=True):
            # A part is of use as far as it is there without a gap, and no further than the messages.
            if whole[name] == number < whole[LOG] + (name == LOG):
                data = _unpacked(stored, head.blocks[number].parts[name])
                if data is not None:
                    whole[name] += 1
                    _restore(table, name, data, words)
    table.index.lexical.restore(words)
    table.index.stored_by = table.index.vectors_by = head.vectors_by
    kept = [
        block.model_copy(update={"parts": {name: h for name, h in block.parts.items() if whole[name] > number}})
        for number, block in enumerate(head.blocks[: whole.get(LOG, 0)])
    ]
    asked_for = (sum(name in block.parts for name in parts) for block in head.blocks)
    damaged = sum(asked_for) > sum(whole.values())
    _restore_derived(table, head.derived)
    return Opened(head, kept, table, damaged=damaged)


def _restore(table: MessageTable, name: str, data: Data, words: list[Words]) -> None:
    """Takes one part of a block into a table."""
    if name == LOG:
        table.unpack(*data)
    elif name == WORDS:
        words.append(table.index.unpack(*data))
    elif name.startswith(VECTORS):
        table.index.restore_vectors(*data)
    else:
        known = table.stored_costs.setdefault(name.removeprefix(COSTS), {})
        for column, numbers in data[1].items():
            known[column] = np.concatenate((known[column], numbers)) if column in known else numbers


def lacking(conversation: OpenConversation) -> Iterator[tuple[int, list[str]]]:
    """Yields the blocks of which parts are known that are not stored, with the names of these."""
    table, index = conversation.table, conversation.table.index
    reach = {LOG: len(table), WORDS: len(index), VECTORS + index.vectors_by: index.final_vectors}
    reach |= {f"{COSTS}{costs.counter.identity}": len(costs.column) for costs in table.counted}
    for number in range(max(0, len(table) - FOLLOWING) // BLOCK_MESSAGES):
        stored = conversation.blocks[number].parts if number < len(conversation.blocks) else {}
        end = (number + 1) * BLOCK_MESSAGES
        if names := [name for name, length in reach.items() if length >= end and name not in stored]:
            yield number, names


def seal(store: BaseStore, conversation: OpenConversation) -> Flow[bool]:
    """Writes the next parts of blocks that are known and not stored yet; returns whether there may be more.

    The caller holds the conversation, which is up to date.
    """
    table, blocks, pins = conversation.table, conversation.blocks, conversation.pins
    namespace = conversation.scope.namespace(BLOCKS)
    lanes = conversation.heads.lanes if conversation.heads else {}
    puts: list[PutOp] = []
    for number, names in islice(lacking(conversation), SEALED_AT_ONCE):
        first, end = number * BLOCK_MESSAGES, (number + 1) * BLOCK_MESSAGES
        if number == len(blocks):
            counts = table.entries.marks(end, {name: lane.count for name, lane in lanes.items()})
            reached = {name: lane.model_copy(update={"count": counts[name]}) for name, lane in lanes.items()}
            blocks.append(Block(end=end, lanes=reached, parts={}))
        parts = dict(blocks[number].parts)
        for name in names:
            value = _packed(_part(conversation, name, first, end), deflated=not name.startswith(VECTORS))
            puts.append(PutOp(namespace, _key(number, name), value, index=False))
            if name.startswith(VECTORS):
                others = [other for other in parts if other.startswith(VECTORS)]
                puts += [PutOp(namespace, _key(number, other), None) for other in others]
                parts = {key: found for key, found in parts.items() if key not in others}
            parts[name] = value["hash"]
        blocks[number] = blocks[number].model_copy(update={"parts": parts})
        table.entries.let_go(first, end, table.pinned_in(first, end, pins))
    yield from batch(store, puts)
    yield from batch(store, [_put_head(conversation)] if puts else [])
    return bool(puts)


def _part(conversation: OpenConversation, name: str, first: int, end: int) -> Data:
    """Returns a part of a block, as if no message was pinned: pins come and go."""
    table, pins = conversation.table, conversation.pins
    if name == LOG:
        return table.packed(first, end, pins)
    if name == WORDS:
        return table.index.packed(first, end, table.entries)
    if name.startswith(VECTORS):
        return table.index.packed_vectors(first, end)
    costs = next(costs for costs in table.counted if name == f"{COSTS}{costs.counter.identity}")
    return {}, costs.packed(first, end, table.pinned_in(first, end, pins))


def _put_head(conversation: OpenConversation) -> PutOp:
    """Returns the write of the head."""
    head = Head(
        vectors_by=conversation.table.index.vectors_by,
        blocks=tuple(conversation.blocks),
        archived={key: tuple(places) for key, places in conversation.archived.items()},
        doubles=tuple(conversation.doubles),
        renamed=tuple(sorted(conversation.renamed)),
        newest_state=conversation.newest_state,
        derived=_derived_of(conversation),
    )
    return PutOp(conversation.scope.namespace(BLOCKS), HEAD, head.to_value(), index=False)


def forgotten(
    store: BaseStore, scope: Scope, stored: object, first: int, changed: Collection[str]
) -> Flow[list[PutOp]]:
    """Returns the writes after which no block tells of the messages behind a position, whoever has stored it.

    Args:
        store: where they are.
        scope: of the conversation.
        stored: the head as it was read.
        first: the position.
        changed: the keys of the records that are changed.
    """
    if not isinstance(stored, Item):
        return []
    namespace = scope.namespace(BLOCKS)
    try:
        head = Head.read(stored.value, "the head of the blocks")
    except StoreDataError:  # nobody knows what is there
        return [PutOp(namespace, item.key, None) for item in (yield from read_all(store, namespace))]
    stale = [(number, block) for number, block in enumerate(head.blocks) if block.end > first]
    gone = [PutOp(namespace, _key(number, name), None) for number, block in stale for name in block.parts]
    kept = head.blocks[: len(head.blocks) - len(stale)]
    doubles = tuple(record for record in head.doubles if record.place.key not in changed)
    left = head.model_copy(update={"blocks": kept, "doubles": doubles, "derived": ""})
    return [PutOp(namespace, HEAD, left.to_value(), index=False), *gone]


def _key(number: int, part: str) -> str:
    return f"{number} {blake2b(part.encode(), digest_size=8).hexdigest() if ' ' in part else part}"


def _derived_of(conversation: OpenConversation) -> str:
    table = conversation.table
    standing = {
        tree.key(node)
        for tree in table.trees.values()
        for cut in conversation.cuts.values()
        for node in frontier(tree.starts, tree.segments_until(cut.position))
    }
    spans = [(key, date, digest) for (key, date), digest in table.made.extracted.items() if key in standing]
    questions_of = table.entries.digest(table.questions.read_until)
    return _DERIVED.dump_json(_Derived([*table.trees.values()], spans, table.questions, questions_of)).decode()


def _restore_derived(table: MessageTable, text: str) -> None:
    try:
        known = _DERIVED.validate_json(text)
    except ValueError:  # made again
        return
    table.trees = {tree.segment_messages: tree.shortened(len(table)) for tree in known.trees}
    table.made.extracted = {(key, date): digest for key, date, digest in known.extracted}
    if table.holds(known.questions.read_until, known.questions_of):
        table.questions = known.questions


def _packed(data: Data, *, deflated: bool) -> dict[str, Any]:
    """Returns the stored form of plain data and arrays."""
    arrays = [(name, array.dtype.str, array.shape) for name, array in data[1].items()]
    plain = json.dumps([data[0], arrays]).encode()
    raw = b"".join([len(plain).to_bytes(4, "little"), plain, *(array.tobytes() for array in data[1].values())])
    stored = zlib.compress(raw, 1) if deflated else raw
    return {"data": b64encode(stored).decode(), "deflated": deflated, "hash": _hash(stored)}


def _unpacked(item: object, hashed: str) -> Data | None:
    """Reads the stored form; None where it is not what the head names."""
    if not isinstance(item, Item):
        return None
    try:
        stored = b64decode(item.value["data"], validate=True)
        if _hash(stored) != hashed:
            return None
        raw = memoryview(zlib.decompress(stored) if item.value["deflated"] else stored)
    except (KeyError, TypeError, ValueError, zlib.error):
        return None
    begin = 4 + int.from_bytes(raw[:4], "little")
    data, shapes = json.loads(bytes(raw[4:begin]))
    arrays: dict[str, NDArray[Any]] = {}
    for name, kind, shape in shapes:
        dtype = FACTS if name == "facts" else np.dtype(kind)
        size = int(np.prod(shape))
        arrays[name] = np.frombuffer(raw, dtype, size, begin).reshape(shape)
        begin += size * dtype.itemsize
    return data, arrays


def _hash(stored: bytes) -> str:
    return blake2b(stored, digest_size=16).hexdigest()
