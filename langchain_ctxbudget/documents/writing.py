"""Documents written, replaced and deleted, so that a writer who is killed leaves nothing that is shown or lost.

The order is always the same: what is about to change is noted; new chunks and texts are written; the manifest says what
belongs to the document now; what no longer does is deleted, and then the note. Whoever writes next finishes what notes
tell of. In one process one writer works on a document at a time, through whatever store object. Of two processes that
write the same document at the same moment, one may delete chunks of the other; adding the document again heals one
that has lost its last chunk.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from os import PathLike
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

from langchain_core.documents import Document
from langgraph.store.base import BaseStore, GetOp, Item, Op, PutOp, Result, SearchOp

from langchain_ctxbudget.core.digest import EXTRACTION
from langchain_ctxbudget.documents.alone import alone, under_way
from langchain_ctxbudget.documents.loading import KINDS, Given, NewDocument, read
from langchain_ctxbudget.documents.preparing import Prepared, in_thread, is_same, lacks_summary, prepare
from langchain_ctxbudget.documents.records import (
    DocumentRecord,
    UnfinishedRecord,
    document_id,
    mark_write,
    namespace,
    put,
)
from langchain_ctxbudget.documents.splitting import Splitter
from langchain_ctxbudget.errors import CtxBudgetError, DocumentError, StoreError
from langchain_ctxbudget.flow import Call, Flow, batch
from langchain_ctxbudget.stores.indexing import has_index

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

BATCH_CHUNKS = 128
"""The most chunks that are embedded and written together."""
GROUP_CHUNKS, GROUP_DOCUMENTS = 256, 64
"""From so many on, documents are written together."""
ABANDONED_AFTER = timedelta(hours=1)
"""A note of another process that is older is of a writer who was killed."""
_MANY_NOTES = 1_000
_ME = uuid4().hex
_ID = re.compile("[0-9a-f]{24}")

Advance = Callable[[int, int], None]
"""Is told how many more documents are done, and how many more chunks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """What adding documents did; ids of documents, in order."""

    added: tuple[str, ...] = ()
    """That are new."""
    updated: tuple[str, ...] = ()
    """That were known and have changed."""
    unchanged: tuple[str, ...] = ()
    """That were known and are the same: nothing was written."""
    failures: tuple[str, ...] = ()
    """What was skipped, or done in a simpler way: what is unreadable where that was asked for, summaries."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """Whose documents are written, where and how."""

    store: BaseStore
    owner: str
    splitter: Splitter
    summary_model: BaseChatModel | None
    clock: Callable[[], datetime]


@dataclass(slots=True)
class _Group:
    """Documents that are written together."""

    ready: list[Prepared] = field(default_factory=list)
    superseded: dict[str, list[str]] = field(default_factory=dict)
    """By document: keys that do not belong to it any more."""
    new: dict[str, list[str]] = field(default_factory=dict)
    """By document: keys to be written."""


def add(
    writer: Writer,
    groups: Sequence[Sequence[Given]],
    metadata: Mapping[str, Any],
    *,
    skip_unreadable: bool = False,
    advance: Advance | None = None,
) -> Flow[Added]:
    """Write documents; those that are there already and the same are left alone.

    Args:
        writer: where and how.
        groups: what was given, by source.
        metadata: of all of them.
        skip_unreadable: whether what cannot be read is only told of.
        advance: is told of progress.

    Raises:
        DocumentError: something cannot be read; what came before it is written.
        StoreError: the store cannot be written, or its embeddings fail; adding again goes on from there.
    """
    done = Added()
    tell = advance or _untold
    yield from _repair(writer)
    waiting: list[NewDocument] = []
    for group in groups:
        for outcome in (yield _reading(group, metadata)):
            if isinstance(outcome, NewDocument):
                waiting.append(outcome)
            elif skip_unreadable:
                done += Added(failures=(str(outcome),))
                tell(1, 0)
            else:
                yield from _write(writer, waiting, tell)
                raise outcome
            if len(waiting) >= GROUP_DOCUMENTS or sum(map(_weight, waiting)) >= GROUP_CHUNKS:
                done += yield from _write(writer, waiting, tell)
                waiting = []
    return done + (yield from _write(writer, waiting, tell))


def _weight(new: NewDocument) -> int:
    """About how many chunks it has."""
    return 1 + len(new.text) // 1_000


def _reading(group: Sequence[Given], metadata: Mapping[str, Any]) -> Call:
    return in_thread(lambda: read(group, metadata))


def _batch(store: BaseStore, operations: Iterable[Op]) -> Flow[list[Result]]:
    """Run store operations.

    Raises:
        StoreError: the store fails, or the embeddings of its index do.
    """
    try:
        return (yield from batch(store, operations))
    except CtxBudgetError:
        raise
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        raise StoreError(f"The store of the documents, or the embeddings of its index, failed ({problem})") from error


def _write(writer: Writer, documents: Sequence[NewDocument], advance: Advance) -> Flow[Added]:
    """Write documents that were read; of those with one source, the last."""
    given = {document_id(writer.owner, new.source): new for new in documents}
    return (yield from alone(given, _write_each(writer, given, advance)))


def _write_each(writer: Writer, given: Mapping[str, NewDocument], advance: Advance) -> Flow[Added]:
    """Write documents, by id, that nobody else in this process writes."""
    known = yield from _known(writer, given)
    broken = yield from _broken(writer, [old for old, _ in known.values() if old])
    group, done, indexed = _Group(), Added(), has_index(writer.store)
    for key, new in given.items():
        old, note = known[key]
        left = note.keys if note else ()
        same = old and not left and key not in broken and is_same(old, new, writer.splitter, indexed=indexed)
        split = None
        if not (old and same) or lacks_summary(old, writer.summary_model):
            split, failure = yield from prepare(key, new, old, writer.splitter, writer.summary_model, indexed=indexed)
            done += Added(failures=(failure,) if failure else ())
        if split is None or (same and split.record.summary_by == EXTRACTION):
            done += Added(unchanged=(key,))
            advance(1, 0)
            continue
        mine, before = set(split.record.keys()), set(old.keys()) if old else set()
        group.ready.append(split)
        # An index that is new has none of it.
        there = before if old and old.indexed == indexed and key not in broken else set()
        group.new[key] = [name for name in split.contents if name not in there]
        group.superseded[key] = sorted((before | set(left)) - mine)
        done += Added(updated=(key,)) if old else Added(added=(key,))
    if group.ready:
        yield from _write_group(writer, group, advance)
    return done


def _broken(writer: Writer, records: Iterable[DocumentRecord]) -> Flow[set[str]]:
    """Which documents have lost chunks, as far as their last chunk tells, which nearly every change changes."""
    last = {record.id: name for record in records if (name := record.last_chunk)}
    where = namespace(writer.owner, "chunks")
    found = yield from _batch(writer.store, [GetOp(where, f"{key}/{name}") for key, name in last.items()])
    return {key for key, item in zip(last, found, strict=True) if item is None}


def _known(
    writer: Writer, keys: Iterable[str]
) -> Flow[dict[str, tuple[DocumentRecord | None, UnfinishedRecord | None]]]:
    """By document its record, and the note of a writer who has not finished."""
    wanted = list(keys)
    kinds = [namespace(writer.owner, "manifest"), namespace(writer.owner, "unfinished")]
    found = yield from _batch(writer.store, [GetOp(where, key) for key in wanted for where in kinds])
    pairs = cast("list[Item | None]", found)
    return {
        key: (
            DocumentRecord.read(record.value, f"document {key!r}") if record else None,
            UnfinishedRecord.read(note.value, f"note {key!r}") if note else None,
        )
        for key, record, note in zip(wanted, pairs[::2], pairs[1::2], strict=True)
    }


def _write_group(writer: Writer, group: _Group, advance: Advance) -> Flow[None]:
    """Write documents in the order that survives a kill."""
    store, owner = writer.store, writer.owner
    keys = [split.record.id for split in group.ready]
    yield from _batch(store, [_note(writer, key, [*group.new[key], *group.superseded[key]]) for key in keys])
    puts = [put(owner, name, split.contents[name]) for split in group.ready for name in group.new[split.record.id]]
    for some in _batches(puts):
        yield from _batch(store, some)
        advance(0, sum(one.index is not False for one in some))
    manifest = namespace(owner, "manifest")
    records = [PutOp(manifest, split.record.id, split.record.to_value(), index=False) for split in group.ready]
    yield from _batch(store, [*records, mark_write(owner, uuid4().hex)])
    yield from _finish(writer, group.superseded, renewed=True)
    advance(len(keys), 0)


def _note(writer: Writer, key: str, keys: Sequence[str]) -> PutOp:
    note = UnfinishedRecord(keys=tuple(keys), writer=_ME, since=writer.clock().isoformat())
    return PutOp(namespace(writer.owner, "unfinished"), key, note.to_value(), index=False)


def _batches(puts: Sequence[PutOp]) -> Iterator[Sequence[PutOp]]:
    return (puts[first : first + BATCH_CHUNKS] for first in range(0, len(puts), BATCH_CHUNKS))


def _finish(writer: Writer, superseded: Mapping[str, Sequence[str]], *, renewed: bool = False) -> Flow[None]:
    """Delete what no longer belongs to documents, and then the notes about it.

    Args:
        writer: where.
        superseded: keys, by document.
        renewed: whether readers have been told; else they are, and where no document is left, nothing is.
    """
    doomed = [put(writer.owner, name, None) for names in superseded.values() for name in names]
    for some in _batches(doomed):
        yield from _batch(writer.store, some)
    if not renewed:
        yield from _tell(writer)
    notes = namespace(writer.owner, "unfinished")
    yield from _batch(writer.store, [PutOp(notes, key, None) for key in superseded])


def _tell(writer: Writer) -> Flow[None]:
    """Tell readers of a change; where no document is left, there is nobody to tell."""
    manifest, owner = namespace(writer.owner, "manifest"), writer.owner
    [rest] = yield from _batch(writer.store, [SearchOp(manifest, limit=1)])
    if not rest:
        yield from _batch(writer.store, [mark_write(owner, None)])
        [rest] = yield from _batch(writer.store, [SearchOp(manifest, limit=1)])  # added meanwhile, it would be hidden
    if rest:
        yield from _batch(writer.store, [mark_write(owner, uuid4().hex)])


def _repair(writer: Writer) -> Flow[None]:
    """Finish what writers have left behind who are not there any more."""
    [found] = yield from _batch(writer.store, [SearchOp(namespace(writer.owner, "unfinished"), limit=_MANY_NOTES)])
    notes = [(item.key, UnfinishedRecord.read(item.value, f"note {item.key!r}")) for item in cast("list[Item]", found)]
    left = [key for key, note in notes if key not in under_way and _is_abandoned(note, writer.clock())]
    if left:
        yield from alone(left, _clean(writer, left))


def _is_abandoned(note: UnfinishedRecord, now: datetime) -> bool:
    """Whether whoever wrote a note does not write any more; one of this process that is under way is no such note."""
    return note.writer == _ME or now - datetime.fromisoformat(note.since) >= ABANDONED_AFTER


def _clean(writer: Writer, left: Sequence[str]) -> Flow[None]:
    """Delete what abandoned notes tell of and no document has."""
    known = yield from _known(writer, left)
    superseded = {}
    for key, (record, note) in known.items():
        if note and _is_abandoned(note, writer.clock()):
            mine = set(record.keys()) if record else set()
            superseded[key] = [name for name in note.keys if name not in mine]
    if superseded:
        yield from _finish(writer, superseded)


def update(writer: Writer, source: str, group: Sequence[Given], metadata: Mapping[str, Any]) -> Flow[Added]:
    """Replace what a document says.

    Raises:
        DocumentError: there is none, or its new content cannot be read.
    """
    return (yield from alone(_ids(writer.owner, source), _update(writer, source, group, metadata)))


def _update(writer: Writer, source: str, group: Sequence[Given], metadata: Mapping[str, Any]) -> Flow[Added]:
    old = yield from find(writer, source)
    if old is None:
        raise DocumentError(f"There is no document {source!r} to update; `add` adds one")
    stays = {**_known_of(old, group), **metadata, "source": old.source}
    outcomes = (yield _reading(group, stays)) if group else []
    if len(outcomes) != 1:
        raise DocumentError(f"{source!r} is one document, but {len(outcomes)} were given")
    [new] = outcomes
    if isinstance(new, DocumentError):
        raise new
    return (yield from _write_each(writer, {old.id: new}, _untold))


def _known_of(old: DocumentRecord, group: Sequence[Given]) -> dict[str, Any]:
    """What was known of a document, and its new content does not say; how a file is read, its ending says."""
    told = {name for item in group if isinstance(item, Document) for name in item.metadata}
    if old.type in KINDS and any(isinstance(item, PathLike) for item in group):
        told.add("type")
    known = {"title": old.title, "type": old.type, "date": old.date, **old.metadata}
    return {name: value for name, value in known.items() if name not in told and value is not None}


def _untold(_documents: int, _chunks: int) -> None:
    """Tells nobody of progress."""


def delete(writer: Writer, source: str) -> Flow[bool]:
    """Delete a document and everything of it; whether there was one.

    Args:
        writer: where.
        source: its source, or its id.
    """
    keys = _ids(writer.owner, source)
    return (yield from alone(keys, _delete(writer, keys)))


def _delete(writer: Writer, keys: Sequence[str]) -> Flow[bool]:
    known = yield from _known(writer, keys)
    there = {key: (old, note) for key, (old, note) in known.items() if old or note}
    if not there:
        return False
    doomed = {
        key: [*dict.fromkeys([*(old.keys() if old else ()), *(note.keys if note else ())])]
        for key, (old, note) in there.items()
    }
    yield from _batch(writer.store, [_note(writer, key, keys) for key, keys in doomed.items()])
    manifest = namespace(writer.owner, "manifest")
    records = [PutOp(manifest, key, None) for key in doomed]
    yield from _batch(writer.store, [*records, mark_write(writer.owner, uuid4().hex)])
    yield from _finish(writer, doomed)
    return True


def _ids(owner: str, source: str) -> list[str]:
    """What a document may be meant by: its id, or its source."""
    return [*([source] if _ID.fullmatch(source) else ()), document_id(owner, source)]


def find(writer: Writer, source: str) -> Flow[DocumentRecord | None]:
    """A document, by its source or its id."""
    known = yield from _known(writer, _ids(writer.owner, source))
    return next((record for record, _ in known.values() if record), None)
