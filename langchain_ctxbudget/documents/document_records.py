"""The records of a document and their places in the store.

Below `(ROOT, owner, "documents")` are four namespaces: `manifest` has one record per document with the keys of its
parts, `chunks` the parts that are searched, `texts` the whole text in pieces, and `unfinished` the keys that a writer
is about to write or delete. Chunks and pieces are keyed by a hash of their text, so versions share what is unchanged.
Only what a manifest names is shown. A mark in the namespace itself is renewed with every change.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Literal

from pydantic import Field

from langchain_ctxbudget.stores.records import EXTRACTION, ROOT, Record, label, require_id

SHARED = "shared"
"""The label of everyone's documents; no user's label, since those end with `~`."""
MARK = "version"

Kind = Literal["manifest", "chunks", "texts", "unfinished"]


def owner_of(user_id: str | None) -> str:
    """Returns the label of a user's documents, or of everyone's for None."""
    return SHARED if user_id is None else label(require_id("user_id", user_id))


def namespace(owner: str, *kind: Kind) -> tuple[str, ...]:
    """Returns the place of one kind of record, or of the mark."""
    return (ROOT, owner, "documents", *kind)


def digest(text: str) -> str:
    """Returns a short hash of a text."""
    return blake2b(text.encode(errors="surrogatepass"), digest_size=12).hexdigest()


class Section(Record):
    """Chunks in a row under one heading, or on one page."""

    heading: str = ""
    page: int | None = None
    chunks: tuple[str, ...]
    """Their hashes, in order."""
    metadata: dict[str, Any] = Field(default_factory=dict)
    """Metadata that only this part of the document has; JSON."""


class DocumentInfo(Record):
    """A document: its description, and the keys of its parts.

    Attributes:
        source: a path, an address, or any name that the caller gave.
        date: `YYYY-MM-DD`.
        type: `text`, `markdown`, `pdf`, or a type that the caller gave.
        metadata: everything else that the caller or the loader gave; JSON.
        hash: of the text.
        tokens: of the whole text.
        summary_by: `extraction`, or the name of the model that wrote it.
        split: the name of the splitter: other limits split the document again.
        indexed: True where its chunks were put into a store with an index.
        pieces: hashes of the parts of its whole text, in order.
    """

    id: str
    source: str
    title: str
    date: str | None = Field(default=None, pattern=r"^\d{4}-\d\d-\d\d$")
    type: str
    metadata: dict[str, Any]
    hash: str
    tokens: int
    summary: str
    summary_by: str = EXTRACTION
    split: str
    indexed: bool
    sections: tuple[Section, ...]
    pieces: tuple[str, ...]

    @property
    def chunks(self) -> int:
        """The number of parts that are searched; a passage that comes twice is two."""
        return sum(len(section.chunks) for section in self.sections)

    @property
    def keys(self) -> set[str]:
        """The keys of everything that belongs to it, each as `kind/document/hash`."""
        chunks = {f"chunks/{self.id}/{key}" for section in self.sections for key in section.chunks}
        return chunks | {f"texts/{self.id}/{key}" for key in self.pieces}

    def about(self) -> dict[str, str | None]:
        """Returns what stands in the metadata of its chunks, besides what the caller gave."""
        return {"source": self.source, "title": self.title, "date": self.date, "type": self.type}


class ChunkRecord(Record):
    """A part of a document that is found by itself."""

    text: str
    tokens: int


class PieceRecord(Record):
    """A part of the whole text, exactly as it was given."""

    piece: str


class UnfinishedRecord(Record):
    """A note of a writer about keys that it is about to write or delete."""

    keys: tuple[str, ...]
    """Each as `kind/document/hash`."""
    writer: str
    """The process, by a name of its own."""
    since: str
    """ISO 8601."""
