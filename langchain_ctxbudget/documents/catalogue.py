"""The records of documents, and how they are searched, found by name and listed.

Below `(ROOT, owner, "documents")`, `manifest` has one record per document with the keys of its
parts, and `parts` a namespace for each document: its chunks, which are searched, and its whole
text, by hashes of what they are. Only what a manifest names is shown. Words are always searched in
this process (BM25); vectors by the store where it has an index, else here. What was read of an
owner's documents is kept until their mark, which every change renews, is another one.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore, GetOp, Item, SearchItem, SearchOp
from numpy.typing import NDArray
from pydantic import Field

from langchain_ctxbudget.flow import Flow, batch, embed, embed_query, in_thread, with_fallback
from langchain_ctxbudget.messages import fold, mentions, one_line, remembering, terms
from langchain_ctxbudget.search import (
    Candidate,
    CentredVectors,
    LexicalIndex,
    Vectors,
    as_query,
    comparable,
    highest,
)
from langchain_ctxbudget.stores import ROOT, Record, has_index, label, read_all, require_id
from langchain_ctxbudget.worker import keep_newest, new_mutex

SHARED = "shared"
"""The label of everyone's documents; no user's label, since those end with `~`."""
MARK = "version"
LEAST_POOL = 50
"""At least this many chunks are taken by words, and as many by vectors, so that both can change the
order."""
NAMED_DOCUMENTS = 3
KEPT_OWNERS = 64
NAME_CHARACTERS = 3
READ_CHARACTERS = 50_000
"""A shorter name names nothing; the part of a message that is searched for names."""
_SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*://(?:www\.)?", re.IGNORECASE)
_log = logging.getLogger(__name__)


def owner_of(user_id: str | None) -> str:
    """Returns the label of a user's documents, or of everyone's for None."""
    return SHARED if user_id is None else label(require_id("user_id", user_id))


def namespace(owner: str, *below: str) -> tuple[str, ...]:
    """Returns the place of the mark, of the records of documents, or of the parts of one."""
    return (ROOT, owner, "documents", *below)


class DocumentInfo(Record):
    """A document: its description, and the keys of its parts."""

    id: str
    source: str
    """A path, an address, or any name that the caller gave."""
    title: str
    date: str | None = Field(default=None, pattern=r"^\d{4}-\d\d-\d\d$")
    type: str
    """`text`, `markdown`, `pdf`, or a type that the caller gave."""
    metadata: dict[str, Any]
    """Everything else that the caller or the loader gave; JSON."""
    hash: str
    """The hash of the whole text, which is kept under it."""
    tokens: int
    summary: str
    made_from: str
    """A digest of everything that it was made from, the limits of its chunks included."""
    parts: tuple[str, ...]

    @property
    def chunks(self) -> int:
        """The number of parts that are searched; a passage that comes twice is two."""
        return len(self.parts)

    @property
    def keys(self) -> set[str]:
        """The keys of all that is stored of it."""
        return {self.hash, *self.parts}

    def about(self) -> dict[str, str | None]:
        """Returns what stands in the metadata of its chunks, besides what the caller gave."""
        return {"source": self.source, "title": self.title, "date": self.date, "type": self.type}


class PartRecord(Record):
    """A chunk of a document, or its whole text exactly as it was given."""

    text: str
    tokens: int = 0
    heading: str = ""
    metadata: dict[str, Any] = Field(default_factory=dict)
    """Metadata that only this part of the document has; JSON."""


def beside(given: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Merges metadata; a given value under one of our names goes to `given_` and that name."""
    return {
        **{f"given_{name}" if name in own else name: value for name, value in given.items()},
        **own,
    }


@dataclass
class _Shelf:
    """An owner's documents as far as they were read.

    Keys are hashes, so no text can be out of date.
    """

    owner: str
    mark: str
    records: tuple[DocumentInfo, ...]
    texts: dict[str, PartRecord] = field(default_factory=dict)
    rows: dict[str, Vectors] = field(default_factory=dict)
    """Vectors; zeros where the embeddings gave no usable one."""
    candidates: dict[str, Candidate] = field(default_factory=dict)
    lexical: LexicalIndex | None = None
    vectors: CentredVectors | None = None
    """Both of all chunks; None until somebody searches."""

    @cached_property
    def chunks(self) -> dict[str, tuple[DocumentInfo, int]]:
        """Document and place of each chunk, by key, in order.

        Of a passage that comes twice, the first.
        """
        found: dict[str, tuple[DocumentInfo, int]] = {}
        for record in self.records:
            for place, key in enumerate(record.parts):
                found.setdefault(f"{record.id}/{key}", (record, place))
        return found


class Catalogue:
    """The documents of a store, with a cache that threads and tasks share."""

    def __init__(self, store: BaseStore) -> None:
        self.store = store
        self._shelves: dict[str, _Shelf] = {}
        self._mutex = new_mutex()

    def forget(self, owner: str) -> None:
        """Empties the cache of an owner's documents."""
        with self._mutex:
            self._shelves.pop(owner, None)

    def named(
        self, user_id: str, texts: Sequence[str], *, max_tokens: int
    ) -> Flow[list[tuple[Candidate | None, Candidate]]]:
        """Returns documents of a user and of everyone that messages (oldest first) name, the last named first.

        Each is its whole text, or None where it has more than `max_tokens`, and its summary.
        """
        shelves = yield from self._read((owner_of(user_id), SHARED))
        records = [(shelf.owner, record) for shelf in shelves for record in shelf.records]
        names = [names_of(record.title, record.source) for _, record in records]
        found: list[tuple[Candidate | None, Candidate]] = []
        for number in newest_mentions(names, texts)[:NAMED_DOCUMENTS]:
            owner, one = records[number]
            summary = Candidate(
                id=one.id,
                source="documents",
                text=one.summary,
                title=one.title,
                date=one.date,
                kind="explicit",
            )
            text = (yield from self.whole_text(owner, one)) if one.tokens <= max_tokens else None
            found.append((None if text is None else replace(summary, text=text), summary))
        return found

    def listed(self, owner: str) -> Flow[list[DocumentInfo]]:
        """Returns an owner's documents, by source, as copies."""
        return [
            record.model_copy(deep=True)
            for shelf in (yield from self._read([owner]))
            for record in shelf.records
        ]

    def whole_text(self, owner: str, record: DocumentInfo) -> Flow[str | None]:
        """Returns a document's text exactly as it was given; None where it is not there."""
        found = yield from self.parts(owner, [f"{record.id}/{record.hash}"])
        return next((part.text for part in found.values()), None)

    def search(
        self,
        owners: Sequence[str],
        query: str,
        *,
        limit: int,
        embeddings: Embeddings | None = None,
        failures: list[str] | None = None,
    ) -> Flow[list[tuple[Candidate, dict[str, Any]]]]:
        """Returns the chunks of owners' documents that a query is about, best first.

        Each comes with its `tokens`, its `lexical` score (BM25), its `dense` one (cosine, or None),
        and its `score`: both scaled to 0 to 1 and averaged. Problems are logged and added to
        `failures`.
        """
        shelves = yield from self._read(owners)
        if not shelves or limit < 1 or not query.strip():
            return []
        pool = max(LEAST_POOL, 2 * limit)
        problems: list[str] = []
        lexical = dict[str, float]()
        dense = dict[str, float]()
        for shelf in shelves:
            index = yield from self._words(shelf, problems)
            lexical |= _best([*shelf.chunks], index.scores(terms(query)), pool, above=0)
        nearest: Flow[dict[str, float]] | None = None
        if has_index(self.store):
            nearest = self._nearest(shelves, query, pool)
        elif embeddings is not None:
            nearest = self._similar(shelves, query, pool, embeddings)
        if nearest is not None:
            dense = yield from with_fallback(
                nearest, dense, "documents not searched by vectors", problems
            )
        for problem in problems:
            _log.warning("%s", problem)
        if failures is not None:
            failures += problems
        scores = _fused(lexical, dense)
        found: list[tuple[Candidate, dict[str, Any]]] = []
        for shelf in shelves:
            for key in scores.keys() & shelf.texts.keys():
                candidate = shelf.candidates.get(key) or _candidate(
                    *shelf.chunks[key], shelf.texts[key]
                )
                shelf.candidates[key] = candidate
                own = {
                    "tokens": shelf.texts[key].tokens,
                    "score": scores[key],
                    "dense": dense.get(key),
                }
                found.append((candidate, {**own, "lexical": round(lexical.get(key, 0.0), 6)}))
        found.sort(
            key=lambda it: (-it[1]["score"], it[0].metadata["source"], it[0].id, it[0].place)
        )
        return found[:limit]

    def _read(self, owners: Sequence[str]) -> Flow[list[_Shelf]]:
        """Returns the shelves of owners, up to date; owners without documents are left out."""
        marks = yield from batch(self.store, [GetOp(namespace(owner), MARK) for owner in owners])
        shelves = []
        for owner, item in zip(owners, cast("list[Item | None]", marks), strict=True):
            if item is None:
                self.forget(owner)
                continue
            mark = str(item.value.get("mark"))
            with self._mutex:
                shelf = self._shelves.get(owner)
            if (
                shelf is None or shelf.mark != mark
            ):  # the mark was read before what it marks, so it is never newer
                items = yield from read_all(self.store, namespace(owner, "manifest"))
                records = [DocumentInfo.read(one.value, f"document {one.key!r}") for one in items]
                old = shelf
                shelf = _Shelf(
                    owner, mark, tuple(sorted(records, key=lambda it: (it.source, it.id)))
                )
                if old:  # what is known of chunks that are still there
                    shelf.texts = {key: old.texts[key] for key in shelf.chunks if key in old.texts}
                    shelf.rows = {key: old.rows[key] for key in shelf.chunks if key in old.rows}
            with self._mutex:
                keep_newest(self._shelves, owner, shelf, KEPT_OWNERS)
            shelves += [shelf] if shelf.records else []
        return shelves

    def parts(self, owner: str, keys: Sequence[str]) -> Flow[dict[str, PartRecord]]:
        """Returns those parts that are there, by `document/hash`, in order."""
        gets = [
            GetOp(namespace(owner, "parts", document), name)
            for document, name in (key.split("/") for key in keys)
        ]
        read = zip(
            keys, cast("list[Item | None]", (yield from batch(self.store, gets))), strict=True
        )
        return {key: PartRecord.read(item.value, f"part {key!r}") for key, item in read if item}

    def _words(self, shelf: _Shelf, problems: list[str]) -> Flow[LexicalIndex]:
        """Returns an index of the words of a shelf's chunks; none is read twice."""
        index = shelf.lexical or LexicalIndex()
        if shelf.lexical is None:
            shelf.texts |= yield from self.parts(
                shelf.owner, [key for key in shelf.chunks if key not in shelf.texts]
            )
            texts = [shelf.texts[key].text if key in shelf.texts else "" for key in shelf.chunks]
            yield in_thread(lambda: index.extend(map(terms, texts)))
            shelf.lexical = index
        if lost := sum(key not in shelf.texts for key in shelf.chunks):
            problems.append(
                f"{lost} chunks are not in the store; delete their documents and add them again"
            )
        return index

    def _nearest(self, shelves: Sequence[_Shelf], query: str, limit: int) -> Flow[dict[str, float]]:
        """Returns similarities by the store's index."""
        places = [namespace(shelf.owner, "parts") for shelf in shelves]
        results = yield from batch(
            self.store, [SearchOp(where, query=query, limit=limit) for where in places]
        )
        found: dict[str, float] = {}
        for shelf, items in zip(shelves, cast("list[list[SearchItem]]", results), strict=True):
            for item in items:
                key = f"{item.namespace[-1]}/{item.key}"
                # An item without a score was not compared; one outside of the manifest was left
                # behind by a writer.
                if item.score is not None and key in shelf.chunks:
                    found[key] = round(float(item.score), 6)
                    shelf.texts[key] = PartRecord.read(item.value, f"part {key!r}")
        return found

    def _similar(
        self, shelves: Sequence[_Shelf], query: str, limit: int, embeddings: Embeddings
    ) -> Flow[dict[str, float]]:
        """Returns cosines of vectors that this process makes, each once, after the mean of the chunks is taken off."""
        width = next((shelf.vectors.width for shelf in shelves if shelf.vectors), 0)
        target = as_query((yield from embed_query(embeddings, query)), width)
        for shelf in shelves:
            if shelf.vectors is None:
                missing = [key for key in shelf.chunks if key not in shelf.rows]
                texts = [shelf.texts[key].text if key in shelf.texts else "" for key in missing]
                new = comparable((yield from embed(embeddings, texts)), target.size)
                shelf.rows |= dict(zip(missing, new, strict=True))
                vectors = CentredVectors()
                vectors.extend(np.stack([shelf.rows[key] for key in shelf.chunks]))
                shelf.vectors = vectors
        # A few chunks have no mean worth taking off: those of the smaller owner are compared with
        # the larger one's.
        made = sorted(
            ((it.vectors, it.chunks) for it in shelves if it.vectors), key=lambda it: len(it[1])
        )
        *others, (largest, _) = made
        scores = largest.compared(
            np.concatenate([it.at() for it, _ in others]) if others else None
        ).cosines(target)
        return _best([key for _, keys in made for key in keys], scores, limit, above=-np.inf)


def _candidate(record: DocumentInfo, place: int, part: PartRecord) -> Candidate:
    given = {"page": None, **record.metadata, **part.metadata}
    own = {**record.about(), "document_id": record.id, "chunk": place, "heading": part.heading}
    return Candidate(
        id=f"{record.id}#{place}",
        source="documents",
        text=part.text,
        title=record.title,
        place=place,
        date=record.date,
        metadata=beside(given, own),
    )


def _best(
    keys: Sequence[str], scores: NDArray[np.float64], limit: int, *, above: float
) -> dict[str, float]:
    """Returns the highest scores; of equal ones, the first."""
    return {
        keys[at]: float(scores[at])
        for at in highest(np.flatnonzero(scores > above), scores, limit).tolist()
    }


def _fused(lexical: Mapping[str, float], dense: Mapping[str, float]) -> dict[str, float]:
    """Averages both, scaled to 0 to 1; where all are alike, each is 1, or 0 where they are 0."""

    def scaled(scores: Mapping[str, float]) -> dict[str, float]:
        low = min(scores.values(), default=0.0)
        high = max(scores.values(), default=0.0)
        return {
            key: (score - low) / (high - low) if high > low else float(score > 0)
            for key, score in scores.items()
        }

    parts = [scaled(one) for one in ({**dict.fromkeys(dense, 0.0), **lexical}, dense) if one]
    return {
        key: round(sum(one.get(key, 0.0) for one in parts) / len(parts), 6)
        for key in dict(lexical) | dict(dense)
    }


@remembering(4_096)
def names_of(title: str, source: str) -> list[str]:
    """Returns what a document is called, folded.

    Its address or path, the name of its file, its title.

    Other parts of a path could be any word and do not count; a title of one word counts in
    quotation marks only.
    """
    place = fold(_SCHEME.sub("", source.replace("\\", "/"))).strip("/")
    called = one_line(fold(title))
    file = place.rpartition("/")[2]
    names = (
        [place, file]
        if "." in file and "\n" not in place
        else [place]
        if _SCHEME.match(source)
        else []
    )
    names += (
        [called]
        if re.search(r"[\W_]", called)
        else [f"{a}{called}{b}" for a, b in ('""', "“”", "«»", "「」")]
    )
    return [name for name in names if len(name) >= NAME_CHARACTERS]


def newest_mentions(names: Sequence[Sequence[str]], texts: Sequence[str]) -> list[int]:
    """Returns the numbers of the documents that messages (oldest first) name, the last named first.

    Where several files have the same name, only those whose whole path is named count.
    """
    found: dict[int, None] = {}
    for text in reversed(texts):
        said = one_line(fold(text[:READ_CHARACTERS]))
        fitting: dict[int, str] = {}
        for number, of_one in enumerate(names):
            if fits := [name for name in of_one if name in said and mentions(said, [name])]:
                fitting[number] = max(fits, key=len)
        files = {name.rpartition("/")[2] for name in fitting.values() if "/" in name}
        places = sorted(
            (said.find(name), number) for number, name in fitting.items() if name not in files
        )
        found |= dict.fromkeys(number for _, number in places)
    return list(found)
