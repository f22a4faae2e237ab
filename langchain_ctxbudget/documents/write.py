"""Writes, replaces and deletes documents so that a writer who is killed leaves nothing that is shown or lost.

The order is always the same: a note of the keys that are about to change; new chunks and texts; the manifest, which
says what belongs to the document from now on; deletion of what no longer does; deletion of the note. The next writer
finishes what abandoned notes tell of. In one process one writer works on a document at a time. Of two processes that
write the same document at the same moment, one may delete chunks of the other; adding it again heals it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from os import PathLike
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4
from weakref import WeakValueDictionary

from langchain_core.documents import Document
from langgraph.store.base import BaseStore, GetOp, Item, Op, PutOp, Result, SearchOp

from langchain_ctxbudget.background import in_child, new_mutex
from langchain_ctxbudget.documents.document_records import (
    PIECE_CHARACTERS,
    ChunkRecord,
    DocumentInfo,
    PieceRecord,
    Section,
    UnfinishedRecord,
    digest,
    document_id,
    mark_write,
    namespace,
)
from langchain_ctxbudget.documents.load import TYPES, Given, NewDocument, read
from langchain_ctxbudget.documents.split import Splitter
from langchain_ctxbudget.documents.summary import SUMMARY_TOKENS, extract, write_summary
from langchain_ctxbudget.errors import CtxBudgetError, DocumentError, StoreError
from langchain_ctxbudget.flow import Call, Flow, Lock, T, batch, in_thread
from langchain_ctxbudget.stores.bulk import has_index
from langchain_ctxbudget.stores.records import EXTRACTION

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

BATCH_CHUNKS = 128
"""The most records that are embedded and written together."""
GROUP_CHUNKS, GROUP_DOCUMENTS = 256, 64
"""From so many on, documents are written together."""
ABANDONED_AFTER = timedelta(hours=1)
"""Age from which another process's note is taken for that of a killed writer."""
_MANY_NOTES = 1_000
_ME = uuid4().hex
_ID = re.compile("[0-9a-f]{24}")

Advance = Callable[[int, int], None]
"""Is told how many more documents are done, and how many more records were written."""

_locks: WeakValueDictionary[str, Lock] = WeakValueDictionary()
_under_way: set[str] = set()
"""Ids of the documents that this process writes now; by id, because several store objects lead to the same records."""
_mutex = new_mutex()
in_child(_under_way.clear)


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """Ids of the documents that an addition has changed, in order."""

    added: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    """Documents that were there and are the same: nothing was written."""
    failures: tuple[str, ...] = ()
    """Problems that did not stop the addition: skipped documents, failed summaries."""

    @property
    def ids(self) -> tuple[str, ...]:
        """Every document that is there now."""
        return (*self.added, *self.updated, *self.unchanged)

    def __add__(self, other: Added) -> Added:
        return Added(
            added=self.added + other.added,
            updated=self.updated + other.updated,
            unchanged=self.unchanged + other.unchanged,
            failures=self.failures + other.failures,
        )


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes the documents of one owner to a store."""

    store: BaseStore
    owner: str
    splitter: Splitter
    summary_model: BaseChatModel | None
    clock: Callable[[], datetime]
    advance: Advance

    def add(
        self, groups: Sequence[Sequence[Given]], metadata: Mapping[str, Any], *, skip_unreadable: bool = False
    ) -> Flow[Added]:
        """Writes documents; those that are there already and the same are left alone.

        Raises:
            DocumentError: one cannot be read; those before it are written.
            StoreError: the store cannot be written, or its embeddings fail; adding again goes on from there.
        """
        done = Added()
        yield from self._repair()
        waiting: list[NewDocument] = []
        for group in groups:
            for outcome in (yield _reading(group, metadata)):
                if isinstance(outcome, NewDocument):
                    waiting.append(outcome)
                elif skip_unreadable:
                    done += Added(failures=(str(outcome),))
                    self.advance(1, 0)
                else:
                    yield from self._write(waiting)
                    raise outcome
                chunks = sum(1 + len(new.text) // 1_000 for new in waiting)
                if len(waiting) >= GROUP_DOCUMENTS or chunks >= GROUP_CHUNKS:
                    done += yield from self._write(waiting)
                    waiting = []
        return done + (yield from self._write(waiting))

    def update(self, source: str, group: Sequence[Given], metadata: Mapping[str, Any]) -> Flow[Added]:
        """Replaces the text of a document.

        Raises:
            DocumentError: there is no such document, or its new content cannot be read.
        """

        def flow() -> Flow[Added]:
            old = yield from self.find(source)
            if old is None:
                raise DocumentError(f"There is no document {source!r} to update; `add` adds one")
            kept = {**_metadata_kept(old, group), **metadata, "source": old.source}
            outcomes = (yield _reading(group, kept)) if group else []
            if len(outcomes) != 1:
                raise DocumentError(f"{source!r} is one document, but {len(outcomes)} were given")
            [new] = outcomes
            if isinstance(new, DocumentError):
                raise new
            return (yield from self._write_each({old.id: new}))

        return (yield from _alone(self._ids(source), flow()))

    def delete(self, source: str) -> Flow[bool]:
        """Deletes a document and everything of it; returns False where there was none."""
        keys = self._ids(source)

        def flow() -> Flow[bool]:
            known = yield from self._known(keys)
            doomed = {
                key: sorted({*_keys(old), *(note.keys if note else ())})
                for key, (old, note) in known.items()
                if old or note
            }
            if not doomed:
                return False
            yield from self._batch([self._note(key, keys) for key, keys in doomed.items()])
            manifest = namespace(self.owner, "manifest")
            gone = [PutOp(manifest, key, None) for key in doomed]
            yield from self._batch([*gone, mark_write(self.owner, uuid4().hex)])
            yield from self._finish(doomed)
            return True

        return (yield from _alone(keys, flow()))

    def find(self, source: str) -> Flow[DocumentInfo | None]:
        """Returns the record of a document, by its source or its id."""
        known = yield from self._known(self._ids(source))
        return next((record for record, _ in known.values() if record), None)

    def _ids(self, source: str) -> list[str]:
        return [*([source] if _ID.fullmatch(source) else ()), document_id(self.owner, source)]

    def _batch(self, operations: Iterable[Op]) -> Flow[list[Result]]:
        try:
            return (yield from batch(self.store, operations))
        except CtxBudgetError:
            raise
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            raise StoreError(
                f"The store of the documents, or the embeddings of its index, failed ({problem})"
            ) from error

    def _known(self, keys: Iterable[str]) -> Flow[dict[str, tuple[DocumentInfo | None, UnfinishedRecord | None]]]:
        """Returns for each document its record and the note of a writer who has not finished."""
        wanted = list(keys)
        manifest, notes = namespace(self.owner, "manifest"), namespace(self.owner, "unfinished")
        found = yield from self._batch([GetOp(where, key) for key in wanted for where in (manifest, notes)])
        pairs = cast("list[Item | None]", found)
        return {
            key: (
                DocumentInfo.read(record.value, f"document {key!r}") if record else None,
                UnfinishedRecord.read(note.value, f"note {key!r}") if note else None,
            )
            for key, record, note in zip(wanted, pairs[::2], pairs[1::2], strict=True)
        }

    def _write(self, documents: Sequence[NewDocument]) -> Flow[Added]:
        given = {document_id(self.owner, new.source): new for new in documents}
        return (yield from _alone(given, self._write_each(given)))

    def _write_each(self, given: Mapping[str, NewDocument]) -> Flow[Added]:
        """Writes documents, by id, that nobody else in this process writes."""
        known = yield from self._known(given)
        broken = yield from self._broken([old for old, _ in known.values() if old])
        prepared: list[_Prepared] = []
        done, indexed = Added(), has_index(self.store)
        for key, new in given.items():
            old, note = known[key]
            left = note.keys if note else ()
            intact = old is not None and key not in broken and old.indexed == indexed
            same = old is not None and intact and not left and self._is_same(old, new)
            split = None
            if old is None or not same or self._lacks_summary(old):
                split, failure = yield from self._prepared(key, new, old)
                done += Added(failures=(failure,) if failure else ())
            if split is None or (same and split.record.summary_by == EXTRACTION):
                done += Added(unchanged=(key,))
                self.advance(1, 0)
                continue
            there = _keys(old) if intact else set()
            split.missing = [name for name in split.contents if name not in there]
            split.superseded = sorted({*_keys(old), *left} - split.contents.keys())
            prepared.append(split)
            done += Added(updated=(key,)) if old else Added(added=(key,))
        if prepared:
            yield from self._write_group(prepared)
        return done

    def _broken(self, records: Sequence[DocumentInfo]) -> Flow[set[str]]:
        """Returns the documents that have lost chunks; the last one tells, which nearly every change changes."""
        last = {record.id: record.chunk_keys[-1] for record in records if record.chunks}
        where = namespace(self.owner, "chunks")
        found = yield from self._batch([GetOp(where, f"{key}/{name}") for key, name in last.items()])
        return {key for key, item in zip(last, found, strict=True) if item is None}

    def _is_same(self, old: DocumentInfo, new: NewDocument) -> bool:
        parts, sections = [part.metadata for part in new.parts], [section.metadata for section in old.sections]
        mine = (new.hash, self.splitter.name, new.title, new.date, new.type, dict(new.metadata))
        return mine == (old.hash, old.split, old.title, old.date, old.type, old.metadata) and parts == sections

    def _lacks_summary(self, old: DocumentInfo) -> bool:
        return self.summary_model is not None and old.summary_by == EXTRACTION

    def _prepared(self, key: str, new: NewDocument, old: DocumentInfo | None) -> Flow[tuple[_Prepared, str | None]]:
        """Splits a document and sums it up; returns also the failure of a summary."""
        indexed = has_index(self.store)
        prepared: _Prepared = yield in_thread(lambda: _split(key, new, old, self.splitter, indexed=indexed))
        if self.summary_model is None or (old and old.hash == new.hash and not self._lacks_summary(old)):
            return prepared, None
        counter = self.splitter.counter
        changed, failure = yield from write_summary(new.title, new.text, prepared.chunks, counter, self.summary_model)
        prepared.record = prepared.record.model_copy(update=changed)
        return prepared, failure

    def _write_group(self, prepared: Sequence[_Prepared]) -> Flow[None]:
        """Writes documents in the order that survives a kill."""
        yield from self._batch([self._note(it.record.id, [*it.missing, *it.superseded]) for it in prepared])
        for some in _batches([self._put(name, it.contents[name]) for it in prepared for name in it.missing]):
            yield from self._batch(some)
            self.advance(0, sum(one.index is not False for one in some))
        manifest = namespace(self.owner, "manifest")
        records = [PutOp(manifest, it.record.id, it.record.to_value(), index=False) for it in prepared]
        yield from self._batch([*records, mark_write(self.owner, uuid4().hex)])
        yield from self._finish({it.record.id: it.superseded for it in prepared}, told=True)
        self.advance(len(prepared), 0)

    def _put(self, name: str, record: ChunkRecord | PieceRecord | None) -> PutOp:
        """Returns the operation that writes a part by `kind/document/hash`, or deletes it."""
        kind, _, key = name.partition("/")
        where = namespace(self.owner, "chunks" if kind == "chunks" else "texts")
        index: Any = ["text"] if isinstance(record, ChunkRecord) else False
        return PutOp(where, key, None if record is None else record.to_value(), index=index)

    def _note(self, key: str, keys: Sequence[str]) -> PutOp:
        note = UnfinishedRecord(keys=tuple(keys), writer=_ME, since=self.clock().isoformat())
        return PutOp(namespace(self.owner, "unfinished"), key, note.to_value(), index=False)

    def _finish(self, superseded: Mapping[str, Sequence[str]], *, told: bool = False) -> Flow[None]:
        """Deletes what no longer belongs to documents, tells readers unless they are told, and deletes the notes."""
        for some in _batches([self._put(name, None) for names in superseded.values() for name in names]):
            yield from self._batch(some)
        if not told:
            manifest = SearchOp(namespace(self.owner, "manifest"), limit=1)
            [rest] = yield from self._batch([manifest])
            if not rest:
                yield from self._batch([mark_write(self.owner, None)])
                [rest] = yield from self._batch([manifest])  # a document added meanwhile would be hidden
            if rest:
                yield from self._batch([mark_write(self.owner, uuid4().hex)])
        notes = namespace(self.owner, "unfinished")
        yield from self._batch([PutOp(notes, key, None) for key in superseded])

    def _repair(self) -> Flow[None]:
        """Deletes what abandoned notes tell of and no document has."""
        [found] = yield from self._batch([SearchOp(namespace(self.owner, "unfinished"), limit=_MANY_NOTES)])
        notes = {
            item.key: UnfinishedRecord.read(item.value, f"note {item.key!r}") for item in cast("list[Item]", found)
        }
        left = [key for key, note in notes.items() if key not in _under_way and self._is_abandoned(note)]

        def clean() -> Flow[None]:
            known = yield from self._known(left)
            superseded = {
                key: sorted({*note.keys} - _keys(record))
                for key, (record, note) in known.items()
                if note and self._is_abandoned(note)
            }
            if superseded:
                yield from self._finish(superseded)

        if left:
            yield from _alone(left, clean())

    def _is_abandoned(self, note: UnfinishedRecord) -> bool:
        return note.writer == _ME or self.clock() - datetime.fromisoformat(note.since) >= ABANDONED_AFTER


@dataclass(slots=True)
class _Prepared:
    """A document that is split and summed up."""

    record: DocumentInfo
    contents: Mapping[str, ChunkRecord | PieceRecord]
    """By `kind/document/hash`."""
    chunks: Sequence[str]
    missing: Sequence[str] = ()
    """Keys that the store does not have yet."""
    superseded: Sequence[str] = ()
    """Keys that do not belong to the document any more."""


def _split(key: str, new: NewDocument, old: DocumentInfo | None, splitter: Splitter, *, indexed: bool) -> _Prepared:
    counter = splitter.counter
    contents: dict[str, ChunkRecord | PieceRecord] = {}
    sections: list[Section] = []
    texts: list[str] = []
    for part in new.parts:
        chunks = splitter.split(part)
        names = tuple(map(digest, chunks))
        for name, chunk in zip(names, chunks, strict=True):
            contents[f"chunks/{key}/{name}"] = ChunkRecord(text=chunk, tokens=counter.count_text(chunk))
        sections.append(Section(heading=part.heading, page=part.page, chunks=names, metadata=dict(part.metadata)))
        texts += chunks
    pieces = [new.text[start : start + PIECE_CHARACTERS] for start in range(0, len(new.text), PIECE_CHARACTERS)]
    contents |= {f"texts/{key}/{digest(piece)}": PieceRecord(piece=piece) for piece in pieces}
    keeps = old is not None and old.hash == new.hash
    about = {name: getattr(new, name) for name in ("source", "title", "date", "type", "metadata", "hash")}
    record = DocumentInfo(
        id=key,
        **about,
        tokens=counter.count_text(new.text),
        summary=old.summary if old and keeps else extract(new.text, texts, counter, SUMMARY_TOKENS),
        summary_by=old.summary_by if old and keeps else EXTRACTION,
        split=splitter.name,
        indexed=indexed,
        sections=tuple(sections),
        pieces=tuple(map(digest, pieces)),
    )
    return _Prepared(record, contents, texts)


def _reading(group: Sequence[Given], metadata: Mapping[str, Any]) -> Call:
    return in_thread(lambda: read(group, metadata))


def _keys(record: DocumentInfo | None) -> set[str]:
    return record.keys if record else set()


def _batches(puts: Sequence[PutOp]) -> Iterable[Sequence[PutOp]]:
    return (puts[first : first + BATCH_CHUNKS] for first in range(0, len(puts), BATCH_CHUNKS))


def _metadata_kept(old: DocumentInfo, group: Sequence[Given]) -> dict[str, Any]:
    """Returns the metadata of a document that its new content does not say; a file's suffix says its type."""
    told = {name for item in group if isinstance(item, Document) for name in item.metadata}
    if old.type in {*TYPES.values(), "text"} and any(isinstance(item, PathLike) for item in group):
        told.add("type")
    known = {"title": old.title, "type": old.type, "date": old.date, **old.metadata}
    return {name: value for name, value in known.items() if name not in told and value is not None}


def _alone(documents: Iterable[str], flow: Flow[T]) -> Flow[T]:
    """Runs a flow while nobody else in this process writes the same documents."""
    with _mutex:  # in one order, so that no two wait for each other
        locks = {key: _locks.setdefault(key, Lock()) for key in sorted(documents)}
    held: list[str] = []
    try:
        for key, lock in locks.items():
            yield Call(lock.acquire, lock.aacquire)
            held.append(key)
            _under_way.add(key)
        return (yield from flow)
    finally:
        for key in held:
            _under_way.discard(key)
            locks[key].release()
