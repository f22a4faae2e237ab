"""Sealed blocks: derived data of a conversation's older messages, stored beside its log so that it is computed once.

A block is a few hundred messages in a row, once more messages follow it, in parts: their texts; what else is known of
them; their vectors; their costs, for every counter. A head names the blocks with a hash of each part, and says of each
how far into the lanes of the log it reaches: from there, what is new is read as ever. All of it is derived: what is
missing, damaged or of another version is made again in the background; what stands behind a change is forgotten.
"""

import json
import math
import zlib
from collections.abc import Collection, Iterator, Mapping
from hashlib import blake2b
from itertools import islice
from typing import Any, Literal

import numpy as np
from langgraph.store.base import BaseStore, GetOp, Item, PutOp
from numpy.typing import NDArray
from pybase64 import b64decode, b64encode_as_string
from langchain_ctxbudget.errors import StoreDataError
from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.history.arc import OpenQuestions
from langchain_ctxbudget.history.columns import UNKNOWN, Arrays, Costs
from langchain_ctxbudget.history.conversation import OpenConversation
from langchain_ctxbudget.history.extractive import Digest
from langchain_ctxbudget.history.log import Heads
from langchain_ctxbudget.history.table import FACTS, MessageTable, packed_texts
from langchain_ctxbudget.history.tree import Tree, frontier
from langchain_ctxbudget.search import PackedTerms
from langchain_ctxbudget.stores import BlockRecord, MessageRecord, Record, Scope, read_all, written

BLOCKS, HEAD = "blocks", "head"
TEXTS, LOG, VECTORS, COSTS = "texts", "log", "vectors ", "costs "
"""Parts of a block: texts; messages; vectors by embeddings, and costs by a counter, whose name follows."""
BLOCK_MESSAGES = 512
FOLLOWING = 64
SEALED_AT_ONCE, READ_AT_ONCE = 2, 8
"""Blocks that are written together, and read: what a store answers is larger than what is kept of it."""
REMADE = "what was stored of older messages was damaged, or of another version; it is worked out again"


class Head(Record):
    """The blocks of a conversation, and what else is known of their messages."""

    version: Literal[8] = 8
    """The version of everything that is worked out from messages; blocks of another one are made anew."""
    vectors_by: str
    blocks: tuple[BlockRecord, ...]
    archived: dict[str, str]
    doubles: tuple[MessageRecord, ...]
    newest_state: int
    # What compaction has made of them, so that none is read for it again:
    trees: tuple[Tree, ...] = ()
    extracted: tuple[tuple[str, str | None, Digest], ...] = ()
    """Digests of the spans that stand for the oldest messages, by content and date."""
    questions: OpenQuestions = OpenQuestions()


def read(store: BaseStore, conversation: OpenConversation) -> Flow[None]:
    """Fills a new conversation from its stored blocks; newer messages are read from the log."""
    [item] = yield from batch(store, [GetOp(conversation.scope.namespace(BLOCKS), HEAD)])
    if not isinstance(item, Item):
        return
    conversation.remade = REMADE
    try:
        head = Head.read(item.value, "the head of the blocks")
    except StoreDataError:
        return
    table = MessageTable()
    whole = yield from _read_blocks(store, conversation.scope, head, table)
    table.search_index.vectors_by = head.vectors_by
    table.trees = {tree.segment_messages: tree.shortened(len(table)) for tree in head.trees}
    table.made.extracted = {(key, date): digest for key, date, digest in head.extracted}
    table.questions = head.questions
    lanes = whole[-1].lanes if whole else {}

    def holds(key: str) -> bool:
        lane, _, number = key.rpartition("/")
        return lane in lanes and int(number) < lanes[lane].count

    conversation.table, conversation.blocks, conversation.heads = table, whole, Heads(None, lanes)
    conversation.remade = "" if whole == [*head.blocks] else REMADE
    conversation.newest_state = head.newest_state
    conversation.doubles = [record for record in head.doubles if holds(record.place.key)]
    conversation.archived = {key: name for key, name in head.archived.items() if holds(key)}


def _read_blocks(store: BaseStore, scope: Scope, head: Head, table: MessageTable) -> Flow[list[BlockRecord]]:
    """Takes in the blocks before one that is missing or damaged; returns them."""
    namespace, vectors = scope.namespace(BLOCKS), VECTORS + head.vectors_by
    words, whole = list[PackedTerms](), list[BlockRecord]()
    for first in range(0, len(head.blocks), READ_AT_ONCE):
        some = head.blocks[first : first + READ_AT_ONCE]
        named = [[one for one in block.parts if one == vectors or not one.startswith(VECTORS)] for block in some]
        asked = [GetOp(namespace, _key(at, name)) for at, names in enumerate(named, first) for name in names]
        items = iter((yield from batch(store, asked)))
        for block, names in zip(some, named, strict=True):
            parts = {name: _checked(next(items), block.parts[name]) for name in names}
            if not all(parts.values()):
                break
            words.append(_unpack(table, parts))
            whole.append(block)
        if len(whole) < first + len(some):
            break
    table.search_index.lexical.restore(words)
    return whole


def _unpack(table: MessageTable, parts: Mapping[str, bytes]) -> PackedTerms:
    """Adds a block but for its words, which it returns; vectors and costs only where no block before lacks them."""
    index, log = table.search_index, _unpacked(parts[LOG])
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


def lacking(conversation: OpenConversation) -> Iterator[tuple[int, list[str]]]:
    """Yields the numbers of the blocks with parts that are computed but not stored, and the names of these parts."""
    table, index = conversation.table, conversation.table.search_index
    reach = {TEXTS: len(table), LOG: len(table), VECTORS + index.vectors_by: index.final_vectors}
    reach |= {f"{COSTS}{name}": len(costs.column) for name, costs in table.counted.items()}
    for number in range(max(0, len(table) - FOLLOWING) // BLOCK_MESSAGES):
        stored = conversation.blocks[number].parts if number < len(conversation.blocks) else {}
        end = (number + 1) * BLOCK_MESSAGES
        if names := [name for name, known in sorted(reach.items()) if name not in stored and known >= end]:
            yield number, names


def seal(store: BaseStore, conversation: OpenConversation) -> Flow[bool]:
    """Writes the next parts of blocks that are known and not stored yet; returns whether there may be more."""
    table, blocks, pins = conversation.table, conversation.blocks, conversation.pins
    namespace, lanes = conversation.scope.namespace(BLOCKS), conversation.heads.lanes if conversation.heads else {}
    puts: list[PutOp] = []
    for number, names in islice(lacking(conversation), SEALED_AT_ONCE):
        first, end = number * BLOCK_MESSAGES, (number + 1) * BLOCK_MESSAGES
        if number == len(blocks):
            counts = table.lane_counts(end, {name: lane.count for name, lane in lanes.items()})
            reached = {name: lane.model_copy(update={"count": counts[name]}) for name, lane in lanes.items()}
            blocks.append(BlockRecord(end=end, lanes=reached, parts={}))
        parts = dict(blocks[number].parts)
        pinned = [at for key in pins if (at := table.positions.get(key, -1)) in range(first, end)]
        for name in names:
            raw = _part(conversation, name, first, end, pinned)
            parts[name] = _hash(raw)
            if name == TEXTS:
                table.keep_sealed(first, end, raw)
            puts.append(PutOp(namespace, _key(number, name), {"data": b64encode_as_string(raw)}, index=False))
        blocks[number] = blocks[number].model_copy(update={"parts": parts})
    if not puts:
        return False
    standing = {
        tree.key(node)
        for tree in table.trees.values()
        for cut in conversation.cuts.values()
        for node in frontier(tree.starts, tree.segments_until(cut.position))
    }
    head = Head(
        vectors_by=table.search_index.vectors_by,
        blocks=tuple(blocks),
        archived=conversation.archived,
        doubles=tuple(conversation.doubles),
        newest_state=conversation.newest_state,
        trees=tuple(table.trees.values()),
        extracted=tuple((key, date, own) for (key, date), own in table.made.extracted.items() if key in standing),
        questions=table.questions,
    )
    yield from batch(store, puts)
    yield from batch(store, [written(GetOp(namespace, HEAD), head)])
    return True


def _part(conversation: OpenConversation, name: str, first: int, end: int, pinned: list[int]) -> bytes:
    """Returns a part of a block in its stored form, as if no message was pinned: pins come and go."""
    table, index = conversation.table, conversation.table.search_index
    if name == TEXTS:
        return packed_texts(table[first:end])
    if name == LOG:
        index.read(table)
        (data, arrays), (said, words) = table.packed(first, end, pinned), index.packed(first, end, table)
        return _packed(({**data, **said}, {**arrays, **words}))
    if name.startswith(VECTORS):
        arrays = {"vectors": index.vectors.rows.values[first:end], "_links": index.links.values[first:end]}
        return _packed(({}, arrays))
    arrays = table.counted[name.removeprefix(COSTS)].arrays(first, end)
    arrays["column"][[position - first for position in pinned]] = UNKNOWN
    return _packed(({}, arrays))


def forgotten(
    store: BaseStore, scope: Scope, stored: object, first: int, changed: Collection[str]
) -> Flow[list[PutOp]]:
    """Returns the writes after which no block tells of messages behind a position, or of records that are changed."""
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
    derived = {"trees": (), "extracted": (), "questions": OpenQuestions()}
    left = head.model_copy(update={"blocks": kept, "doubles": doubles, **derived})
    return [written(GetOp(namespace, HEAD), left), *gone]


def _key(number: int, part: str) -> str:
    return f"{number} {blake2b(part.encode(), digest_size=8).hexdigest() if ' ' in part else part}"


def _packed(data: tuple[dict[str, Any], Arrays]) -> bytes:
    plain, arrays = data
    text = json.dumps([plain, [(name, array.dtype.str, array.shape) for name, array in arrays.items()]]).encode()
    return b"".join([len(text).to_bytes(4, "little"), text, *(array.tobytes() for array in arrays.values())])


def _unpacked(stored: bytes) -> tuple[dict[str, Any], Arrays]:
    begin = 4 + int.from_bytes(stored[:4], "little")
    plain, shapes = json.loads(stored[4:begin])
    arrays: dict[str, NDArray[Any]] = {}
    for name, kind, shape in shapes:
        dtype, size = FACTS if name == "facts" else np.dtype(kind), math.prod(shape)
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
    return f"{zlib.crc32(stored):08x} {len(stored)}"  # tells of damage; who writes the store may change messages, too
