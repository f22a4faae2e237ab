"""A document made ready to be written: split, summed up, and named by what it says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain_ctxbudget.core.digest import EXTRACTION
from langchain_ctxbudget.documents.loading import NewDocument
from langchain_ctxbudget.documents.records import (
    PIECE_CHARACTERS,
    ChunkRecord,
    DocumentRecord,
    PieceRecord,
    Section,
    digest,
)
from langchain_ctxbudget.documents.splitting import Splitter
from langchain_ctxbudget.documents.summary import SUMMARY_TOKENS, extract, written
from langchain_ctxbudget.flow import Call, Flow

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel  # takes 0.2 s to import


@dataclass(frozen=True, slots=True)
class Prepared:
    """A document that is ready to be written."""

    record: DocumentRecord
    contents: Mapping[str, ChunkRecord | PieceRecord]
    """By key of `DocumentRecord.keys`."""
    chunks: tuple[str, ...]
    """Its chunks, in order."""


def in_thread(work: Callable[[], Any]) -> Call:
    """Work that takes long, out of the way of an event loop."""
    return Call(work, lambda: asyncio.to_thread(work))


def is_same(old: DocumentRecord, new: NewDocument, splitter: Splitter, *, indexed: bool) -> bool:
    """Whether nothing would be written, but for a summary."""
    mine = (new.hash, splitter.name, indexed, new.title, new.date, new.type, dict(new.metadata))
    return mine == (old.hash, old.split, old.indexed, old.title, old.date, old.type, old.metadata)


def lacks_summary(old: DocumentRecord, model: BaseChatModel | None) -> bool:
    """Whether a model is to write the summary and has not done so, because it failed or there was none."""
    return model is not None and old.summary_by == EXTRACTION


def prepare(
    key: str,
    new: NewDocument,
    old: DocumentRecord | None,
    splitter: Splitter,
    model: BaseChatModel | None,
    *,
    indexed: bool,
) -> Flow[tuple[Prepared, str | None]]:
    """A document ready to be written, and what failed on the way; a model's summary of what has not changed stays.

    Args:
        key: its id.
        new: what was read.
        old: its record, where there is one.
        splitter: how it is split.
        model: writes the summary; None, or one that fails, leaves it to extraction.
        indexed: whether the store has an index.
    """
    prepared: Prepared = yield in_thread(lambda: _prepared(key, new, old, splitter, indexed=indexed))
    if model is None or (old and old.hash == new.hash and not lacks_summary(old, model)):
        return prepared, None
    summary, failure = yield from written(new.title, new.text, prepared.chunks, splitter.counter, model)
    if summary is None:
        return prepared, failure
    record = prepared.record.model_copy(update={"summary": summary.text, "summary_by": summary.made_by})
    return Prepared(record, prepared.contents, prepared.chunks), None


def _prepared(key: str, new: NewDocument, old: DocumentRecord | None, splitter: Splitter, *, indexed: bool) -> Prepared:
    counter = splitter.counter
    contents: dict[str, ChunkRecord | PieceRecord] = {}
    sections: list[Section] = []
    texts: list[str] = []
    for part in new.parts:
        chunks = splitter.split(part)
        names = [digest(chunk) for chunk in chunks]
        for name, chunk in zip(names, chunks, strict=True):
            contents[f"chunks/{key}/{name}"] = ChunkRecord(text=chunk, tokens=counter.count_text(chunk))
        sections.append(Section(heading=part.heading, page=part.page, chunks=tuple(names)))
        texts += chunks
    pieces = [new.text[start : start + PIECE_CHARACTERS] for start in range(0, len(new.text), PIECE_CHARACTERS)]
    contents |= {f"texts/{key}/{digest(piece)}": PieceRecord(piece=piece) for piece in pieces}
    stays = {"summary": old.summary, "summary_by": old.summary_by} if old and old.hash == new.hash else None
    record = DocumentRecord(
        id=key,
        source=new.source,
        title=new.title,
        date=new.date,
        type=new.type,
        metadata=dict(new.metadata),
        hash=new.hash,
        tokens=counter.count_text(new.text),
        split=splitter.name,
        indexed=indexed,
        sections=tuple(sections),
        pieces=tuple(map(digest, pieces)),
        **(stays or {"summary": extract(new.text, texts, counter, SUMMARY_TOKENS)}),
    )
    return Prepared(record, contents, tuple(texts))
