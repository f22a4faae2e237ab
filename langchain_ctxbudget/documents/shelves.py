"""What was read of an owner's documents, kept in this process until the mark of their namespace changes.

A shelf is never changed, only replaced: whoever uses one while another reads goes on with what was there before.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import cast
from weakref import WeakKeyDictionary

import numpy as np
from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore, GetOp, Item
from numpy.typing import NDArray

from langchain_ctxbudget.core.lexical import LexicalIndex
from langchain_ctxbudget.core.text import terms
from langchain_ctxbudget.core.vectors import Vectors, comparable, units
from langchain_ctxbudget.documents.names import Names, names_of
from langchain_ctxbudget.documents.preparing import in_thread
from langchain_ctxbudget.documents.records import (
    ChunkRecord,
    DocumentRecord,
    PieceRecord,
    Section,
    mark_read,
    namespace,
)
from langchain_ctxbudget.flow import Flow, batch, embed
from langchain_ctxbudget.stores import bulk

SEARCHED_CHUNKS = 20_000
"""The most chunks of one owner that are searched here; of more, the first ones by source. A store's index has all."""
KEPT_CHUNKS = 50_000
"""About the most chunks of a store that stay in memory; owners who were not asked for longest go first."""
KEPT_OWNERS = 256
EMBEDDED_TOGETHER = 256


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a document, where it stands."""

    document: DocumentRecord
    section: Section
    place: int
    """From 0, in the document."""


@dataclass(frozen=True)
class Shelf:
    """What is known of an owner's documents."""

    owner: str
    mark: str
    records: tuple[DocumentRecord, ...]
    """By source."""
    texts: Mapping[str, ChunkRecord] = field(default_factory=dict)
    """Of `searched`, by key, as far as they were read."""
    terms: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Of `texts`, so that after a change only what is new is read for words."""
    lexical: LexicalIndex | None = None
    """Over `searched`; None until somebody searches."""
    vectors: Mapping[str, Vectors] = field(default_factory=dict)
    """Of `searched`, each of length 1, as far as they were made."""
    absent: frozenset[str] = frozenset()
    """Keys of texts that the embeddings gave no usable vector; zeros stand for it."""
    embeddings: Embeddings | None = None
    """What made them."""

    @cached_property
    def chunks(self) -> dict[str, Chunk]:
        """By key, in order; of a passage that comes twice, the first."""
        found: dict[str, Chunk] = {}
        for record in self.records:
            place = 0
            for section in record.sections:
                for name in section.chunks:
                    found.setdefault(f"{record.id}/{name}", Chunk(record, section, place))
                    place += 1
        return found

    @cached_property
    def searched(self) -> tuple[str, ...]:
        """The keys of the chunks that are searched here, in order."""
        return tuple(self.chunks)[:SEARCHED_CHUNKS]

    @cached_property
    def names(self) -> tuple[Names, ...]:
        """What each document may be called."""
        return tuple(names_of(record.title, record.source) for record in self.records)

    @property
    def width(self) -> int:
        """Of the vectors; 0 while there are none."""
        return len(next(iter(self.vectors.values()), ()))

    @cached_property
    def matrix(self) -> Vectors:
        """The vectors of `searched`, a row each."""
        return np.stack([self.vectors[key] for key in self.searched])

    @cached_property
    def sum(self) -> NDArray[np.float64]:
        """Of all rows of `matrix`."""
        total: NDArray[np.float64] = self.matrix.sum(axis=0, dtype=np.float64)
        return total


_shelves: WeakKeyDictionary[BaseStore, OrderedDict[str, Shelf]] = WeakKeyDictionary()
_mutex = threading.Lock()


def read_shelves(store: BaseStore, owners: Sequence[str]) -> Flow[list[Shelf]]:
    """What owners have, up to date; those without documents are left out."""
    marks = cast("list[Item | None]", (yield from batch(store, [mark_read(owner) for owner in owners])))
    shelves = []
    for owner, item in zip(owners, marks, strict=True):
        with _mutex:
            known = _shelves.get(store, OrderedDict[str, Shelf]()).get(owner)
        if item is None:
            forget(store, owner)
            continue
        mark = str(item.value.get("mark"))
        if known is None or known.mark != mark:  # the mark was read before what it marks: never newer than that
            known = yield from _renewed(store, owner, mark, known)
        _keep(store, known)
        if known.records:
            shelves.append(known)
    return shelves


def _renewed(store: BaseStore, owner: str, mark: str, old: Shelf | None) -> Flow[Shelf]:
    """A shelf read again; what was known of its chunks and is there still need not be."""
    items = yield from bulk.read_all(store, namespace(owner, "manifest"))
    records = [DocumentRecord.read(item.value, f"document {item.key!r}") for item in items]
    shelf = Shelf(owner, mark, tuple(sorted(records, key=lambda record: (record.source, record.id))))
    if old is None:
        return shelf
    alive = set(shelf.searched)
    return replace(
        shelf,
        texts={key: text for key, text in old.texts.items() if key in alive},
        terms={key: found for key, found in old.terms.items() if key in alive},
        vectors={key: vector for key, vector in old.vectors.items() if key in alive},
        absent=old.absent & alive,
        embeddings=old.embeddings,
    )


def with_texts(store: BaseStore, shelf: Shelf) -> Flow[tuple[Shelf, LexicalIndex]]:
    """A shelf whose chunks can be searched for words."""
    if shelf.lexical is not None:
        return shelf, shelf.lexical
    missing = [key for key in shelf.searched if key not in shelf.texts]
    items = yield from _read(store, namespace(shelf.owner, "chunks"), missing)
    new = {item.key: ChunkRecord.read(item.value, f"chunk {item.key!r}") for item in items if item}
    texts = {**shelf.texts, **new}
    said, lexical = yield in_thread(lambda: _indexed(shelf, texts))
    full = replace(shelf, texts=texts, terms=said, lexical=lexical)
    _keep(store, full)
    return full, lexical


def _indexed(shelf: Shelf, texts: Mapping[str, ChunkRecord]) -> tuple[dict[str, Sequence[str]], LexicalIndex]:
    said = {key: shelf.terms.get(key) or tuple(terms(record.text)) for key, record in texts.items()}
    index = LexicalIndex()
    # One that is not there was replaced at this moment, and the mark will say so.
    index.extend(said.get(key, ()) for key in shelf.searched)
    return said, index


def with_vectors(store: BaseStore, shelf: Shelf, embeddings: Embeddings, width: int) -> Flow[Shelf]:
    """A shelf whose texts were read, with a vector of some width for each; none is made twice."""
    if shelf.embeddings is not embeddings:
        shelf = replace(shelf, vectors={}, absent=frozenset(), embeddings=embeddings)
    missing = [key for key in shelf.searched if key not in shelf.vectors]
    for first in range(0, len(missing), EMBEDDED_TOGETHER):
        keys = missing[first : first + EMBEDDED_TOGETHER]
        texts = [shelf.texts[key].text if key in shelf.texts else "" for key in keys]
        rows, absent = comparable((yield from embed(embeddings, texts)), width)
        shelf = replace(
            shelf,
            vectors={**shelf.vectors, **dict(zip(keys, units(rows), strict=True))},
            absent=shelf.absent.union(keys[number] for number in absent),
        )
        _keep(store, shelf)  # each time: what the next ones cannot undo need not be made again
    return shelf


def whole_text(store: BaseStore, owner: str, record: DocumentRecord) -> Flow[str | None]:
    """What a document says, exactly as it was given; None where it was replaced at this moment."""
    items = yield from _read(store, namespace(owner, "texts"), [f"{record.id}/{name}" for name in record.pieces])
    texts = [PieceRecord.read(item.value, f"text {item.key!r}").piece for item in items if item]
    return "".join(texts) if len(texts) == len(items) else None


def _read(store: BaseStore, where: tuple[str, ...], keys: Sequence[str]) -> Flow[list[Item | None]]:
    items: list[Item | None] = []
    for first in range(0, len(keys), bulk.CHUNK):
        gets = [GetOp(where, key) for key in keys[first : first + bulk.CHUNK]]
        items += cast("list[Item | None]", (yield from batch(store, gets)))
    return items


def _keep(store: BaseStore, shelf: Shelf) -> None:
    """Know a shelf, and forget those that were not asked for longest where that is too much."""
    with _mutex:
        shelves = _shelves.setdefault(store, OrderedDict())
        shelves[shelf.owner] = shelf
        shelves.move_to_end(shelf.owner)
        size = sum(len(kept.texts) for kept in shelves.values())
        while len(shelves) > 1 and (size > KEPT_CHUNKS or len(shelves) > KEPT_OWNERS):
            _, gone = shelves.popitem(last=False)
            size -= len(gone.texts)


def forget(store: BaseStore, owner: str) -> None:
    """Let go of what was read of an owner's documents."""
    with _mutex:
        _shelves.get(store, OrderedDict[str, Shelf]()).pop(owner, None)
