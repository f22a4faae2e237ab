"""The parts of a sealed segment in their stored form.

A part is plain data and arrays, one after the other in one text of bytes.
"""

import json
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pybase64 import b64decode, b64encode_as_string

from langchain_ctxbudget.history.columns import UNKNOWN, Arrays, Costs
from langchain_ctxbudget.history.conversation import OpenConversation
from langchain_ctxbudget.history.table import FACTS, MessageTable, packed_texts
from langchain_ctxbudget.search import PackedTerms
from langchain_ctxbudget.stores import Value

TEXTS = "texts"
"""The part with the texts of the messages."""
LOG = "log"
"""The part with all else that is known of them, and their words."""
VECTORS = "vectors "
"""A part with their vectors; the name of the embeddings follows."""
ENCODED = "encoded "
"""A part with their sentence vectors; the name of the encoder follows."""
COSTS = "costs "
"""A part with their costs; the name of a counter follows."""
TIMES = "times"
"""The part with the time at which each message was stored; only who reads a conversation to search
it knows that."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Range(NamedTuple):
    """The messages of a segment by their positions."""

    first: int
    end: int


def key_of(number: int, part: str) -> str:
    """Returns the key below which a part of a segment is stored."""
    if " " in part:
        part = blake2b(part.encode(), digest_size=8).hexdigest()
    return f"{number} {part}"


def hash_of(stored: bytes) -> str:
    """Returns what tells of damage; who writes the store may change messages, too."""
    return f"{zlib.crc32(stored):08x} {len(stored)}"


def stored_value(part: bytes) -> Value:
    """Returns a part as it is kept."""
    return {"data": b64encode_as_string(part)}


def checked_part(value: Value | None, expected_hash: str) -> bytes:
    """Returns a stored part; nothing where it is not what the head names."""
    if value is None:
        return b""
    try:
        stored = b64decode(value["data"], validate=True)
    except (KeyError, TypeError, ValueError):
        return b""
    return stored if hash_of(stored) == expected_hash else b""


def part_of(
    conversation: OpenConversation, name: str, messages: Range, pinned: Iterable[int]
) -> bytes:
    """Returns a part of a segment in its stored form, as if no message was pinned.

    Pins come and go.
    """
    first, end = messages
    table = conversation.table
    index = table.search_index
    if name == TEXTS:
        return packed_texts(table[first:end])
    if name == TIMES:
        return _packed({}, {TIMES: _microseconds(conversation.times[first:end])})
    if name == LOG:
        index.read(table)
        data, arrays = table.packed(first, end, [*pinned])
        words_data, words_arrays = index.packed(first, end, table)
        return _packed({**data, **words_data}, {**arrays, **words_arrays})
    if name.startswith(VECTORS):
        vectors = index.vectors.rows.values[first:end]
        links = index.links.values[first:end]
        return _packed({}, {"vectors": vectors, "_links": links})
    if name.startswith(ENCODED):
        return _packed({}, {"encoded": index.encoded.rows.values[first:end]})
    arrays = table.counted[name.removeprefix(COSTS)].arrays(first, end)
    arrays["column"][[position - first for position in pinned]] = UNKNOWN
    return _packed({}, arrays)


def _microseconds(times: Sequence[datetime | None]) -> NDArray[np.int64]:
    passed = [time - EPOCH for time in times if time is not None]
    return np.array([time // timedelta(microseconds=1) for time in passed], np.int64)


def times_of(parts: Mapping[str, bytes], messages: int) -> list[datetime | None]:
    """Returns when each message of a segment was stored.

    None for each where the segment does not tell.
    """
    if TIMES not in parts:
        return [None] * messages
    _, arrays = _unpacked(parts[TIMES])
    return [EPOCH + timedelta(microseconds=passed) for passed in arrays[TIMES].tolist()]


def unpack_into(table: MessageTable, parts: Mapping[str, bytes]) -> PackedTerms:
    """Adds a segment to a table but for its words, which it returns.

    Vectors and costs only where no segment before lacks them.
    """
    index = table.search_index
    data, arrays = _unpacked(parts[LOG])
    for name, stored in parts.items():
        if name.startswith(VECTORS) and len(index.vectors) == len(table):
            _, of_vectors = _unpacked(stored)
            index.vectors.rows.extend(of_vectors["vectors"])
            index.links.extend(of_vectors["_links"])
        elif name.startswith(ENCODED) and len(index.encoded) == len(table):
            index.encoded_with(name.removeprefix(ENCODED))
            _, of_sentences = _unpacked(stored)
            index.encoded.rows.extend(of_sentences["encoded"])
        elif name.startswith(COSTS):
            costs = table.counted.setdefault(name.removeprefix(COSTS), Costs())
            if len(costs.column) == len(table):
                _, of_costs = _unpacked(stored)
                costs.extend(of_costs)
    table.unpack(data, arrays, parts[TEXTS])
    return index.unpack(data, arrays)


def _packed(plain: dict[str, Any], arrays: Arrays) -> bytes:
    shapes = [(name, array.dtype.str, array.shape) for name, array in arrays.items()]
    text = json.dumps([plain, shapes]).encode()
    length = len(text).to_bytes(4, "little")
    return b"".join([length, text, *(array.tobytes() for array in arrays.values())])


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
