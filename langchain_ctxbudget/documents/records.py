"""What is kept of a document, and where.

Below `(ROOT, owner, "documents")` are four kinds of records:

- `manifest`: one record per document: what it is called, and the keys of its chunks and of its text;
- `chunks`: the parts that are searched, each embedded by itself; `texts`: the whole text in pieces;
- `unfinished`: which keys a writer is about to write or to delete. It is written before and deleted after them, so that
  what a killed writer left behind is known, without looking for it.

Chunks and pieces are known by a hash of what they say: a new version of a document shares with the old one what has
not changed, and that is not embedded again. Only what a manifest names is ever shown. A mark in the namespace itself
is renewed with every change; whoever has seen it need not read the manifest again.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Literal

from langgraph.store.base import GetOp, PutOp

from langchain_ctxbudget.core.digest import EXTRACTION
from langchain_ctxbudget.core.tokens import encodable
from langchain_ctxbudget.stores.records import ROOT, Record, label, require_id

SHARED = "shared"
"""Where everyone's documents are; no user's label, since those end with `~`."""
Kind = Literal["manifest", "chunks", "texts", "unfinished"]
MARK = "version"
PIECE_CHARACTERS = 50_000
"""The most that one record of a whole text holds."""


def owner_of(user_id: str | None) -> str:
    """The label of a user's documents; of everyone's for None."""
    return SHARED if user_id is None else label(require_id("user_id", user_id))


def namespace(owner: str, kind: Kind) -> tuple[str, ...]:
    """Where one kind of record is."""
    return (ROOT, owner, "documents", kind)


def mark_read(owner: str) -> GetOp:
    """Reads the mark that every change renews."""
    return GetOp((ROOT, owner, "documents"), MARK)


def mark_write(owner: str, mark: str | None) -> PutOp:
    """Renews the mark; None removes it."""
    return PutOp((ROOT, owner, "documents"), MARK, None if mark is None else {"mark": mark}, index=False)


def document_id(owner: str, source: str) -> str:
    """The id of a document: the same for one source, another for every user."""
    return digest(f"{owner}\0{source}")


def digest(text: str) -> str:
    """A short name for a text that no other text has."""
    return blake2b(text.encode(errors="surrogatepass"), digest_size=12).hexdigest()


def searchable(text: str) -> str:
    """A text as an index can take it: without NUL and half characters."""
    return encodable(text).replace("\0", "")


class Section(Record):
    """Chunks in a row that stand under one heading, or on one page."""

    heading: str = ""
    """The path of headings, joined by ` > `."""
    page: int | None = None
    """From 1, of documents that have pages."""
    chunks: tuple[str, ...]
    """Their hashes, in order."""


class DocumentRecord(Record):
    """One document."""

    id: str
    source: str
    title: str
    date: str | None = None
    type: str
    metadata: dict[str, Any]
    """What the caller or the loader gave besides; JSON."""
    hash: str
    """Of what it says."""
    tokens: int
    """Of its whole text."""
    summary: str
    summary_by: str = EXTRACTION
    """`extraction`, or the name of the model that wrote it."""
    split: str
    """How it was split: other limits split it again."""
    indexed: bool
    """Whether its chunks were put into a store with an index."""
    sections: tuple[Section, ...]
    pieces: tuple[str, ...]
    """The hashes of its whole text, in order."""

    @property
    def chunk_count(self) -> int:
        """How many chunks it has; a passage that comes twice is two."""
        return sum(len(section.chunks) for section in self.sections)

    @property
    def last_chunk(self) -> str | None:
        """The hash of its last chunk; None where it has none."""
        return next((section.chunks[-1] for section in reversed(self.sections) if section.chunks), None)

    def keys(self) -> Iterator[str]:
        """The keys of everything that belongs to it, each as `kind/document/hash`."""
        yield from dict.fromkeys(f"chunks/{self.id}/{key}" for section in self.sections for key in section.chunks)
        yield from dict.fromkeys(f"texts/{self.id}/{key}" for key in self.pieces)


class ChunkRecord(Record):
    """A part of a document that is found by itself."""

    text: str
    tokens: int


class PieceRecord(Record):
    """A part of the whole text, exactly as it was given."""

    piece: str


class UnfinishedRecord(Record):
    """What a writer is about to write or to delete."""

    keys: tuple[str, ...]
    writer: str
    """The process, by a name of its own."""
    since: str
    """ISO 8601."""


def put(owner: str, key: str, record: ChunkRecord | PieceRecord | None) -> PutOp:
    """Writes what belongs to a document, by its key of `DocumentRecord.keys`; None deletes it."""
    kind, _, name = key.partition("/")
    value = None if record is None else record.to_value()
    where = namespace(owner, "chunks" if kind == "chunks" else "texts")
    return PutOp(where, name, value, index=["text"] if isinstance(record, ChunkRecord) else False)
