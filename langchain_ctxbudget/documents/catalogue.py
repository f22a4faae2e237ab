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
from functools import cached_property, partial
from itertools import chain
from typing import Any, cast

import numpy as np
from cachetools import LRUCache
from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore, GetOp, Item, SearchItem, SearchOp
from numpy.typing import NDArray
from pydantic import Field

from langchain_ctxbudget.flow import Flow, batch, embed, embed_query, in_thread, with_fallback
from langchain_ctxbudget.messages import cached_until_forgotten, fold, mentions, one_line, terms
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
from langchain_ctxbudget.worker import new_mutex

SHARED = "shared"
"""The label of everyone's documents; no user's label, since those end with `~`."""
MARK = "version"
LEAST_POOL = 50
"""At least this many chunks are taken by words, and as many by vectors, so that both can change the
order."""
NAMED_DOCUMENTS = 3
"""The most documents that messages name."""
KEPT_OWNERS = 64
"""Owners whose documents are kept in memory."""
SHORTEST_NAME = 3
"""Characters; a shorter name names nothing."""
READ_CHARACTERS = 50_000
"""The part of a message that is searched for names."""
_SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*://(?:www\.)?", re.IGNORECASE)
_QUOTATION_MARKS = (('"', '"'), ("“", "”"), ("«", "»"), ("「", "」"))
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
    merged: dict[str, Any] = {}
    for name, value in given.items():
        key = f"given_{name}" if name in own else name
        merged[key] = value
    return {**merged, **own}


@dataclass
class _Shelf:
    """An owner's documents as far as they were read; keys are hashes, so no text is out of date."""

    owner: str
    mark: str
    records: tuple[DocumentInfo, ...]
    texts: dict[str, PartRecord] = field(default_factory=dict)
    rows: dict[str, Vectors] = field(default_factory=dict)
    """Vectors of chunks; zeros where the embeddings gave no usable one."""
    candidates: dict[str, Candidate] = field(default_factory=dict)
    lexical: LexicalIndex | None = None
    """The words of all chunks; None until somebody searches."""
    vectors: CentredVectors | None = None
    """The vectors of all chunks; None until somebody searches by meaning here."""

    @cached_property
    def chunks(self) -> dict[str, tuple[DocumentInfo, int]]:
        """Document and place of each chunk, by key, in order; of equal chunks, of the first."""
        chunks: dict[str, tuple[DocumentInfo, int]] = {}
        for record in self.records:
            for place, key in enumerate(record.parts):
                chunks.setdefault(f"{record.id}/{key}", (record, place))
        return chunks

    def take_over(self, old: "_Shelf") -> None:
        """Takes over what is known of chunks that are still there."""
        self.texts = {key: old.texts[key] for key in self.chunks if key in old.texts}
        self.rows = {key: old.rows[key] for key in self.chunks if key in old.rows}

    def text_of(self, key: str) -> str:
        """Returns the text of a chunk; empty where the store does not have it."""
        return self.texts[key].text if key in self.texts else ""

    def candidate(self, key: str) -> Candidate:
        """Returns a chunk as a candidate for a prompt."""
        candidate = self.candidates.get(key)
        if candidate is None:
            record, place = self.chunks[key]
            candidate = _candidate(record, place, self.texts[key])
            self.candidates[key] = candidate
        return candidate


class Catalogue:
    """The documents of a store, with a cache that threads and tasks share."""

    def __init__(self, store: BaseStore) -> None:
        self.store = store
        self._shelves: LRUCache[str, _Shelf] = LRUCache(KEPT_OWNERS)
        self._mutex = new_mutex()

    def forget(self, owner: str) -> None:
        """Empties the cache of an owner's documents."""
        with self._mutex:
            self._shelves.pop(owner, None)

    def named_documents(
        self, user_id: str, texts: Sequence[str], *, max_tokens: int
    ) -> Flow[list[tuple[Candidate | None, Candidate]]]:
        """Returns the documents of a user and of everyone that messages name, the last named first.

        Args:
            user_id: the user.
            texts: of the messages, oldest first.
            max_tokens: the most tokens of a document that is returned whole.

        Returns:
            Each document whole, or None where it is too long, and its summary.
        """
        shelves = yield from self._read((owner_of(user_id), SHARED))
        records: list[tuple[str, DocumentInfo]] = []
        for shelf in shelves:
            records += [(shelf.owner, record) for record in shelf.records]
        names = [names_of(record.title, record.source) for _, record in records]
        documents: list[tuple[Candidate | None, Candidate]] = []
        for number in newest_mentions(names, texts)[:NAMED_DOCUMENTS]:
            owner, record = records[number]
            summary = Candidate(
                id=record.id,
                source="documents",
                text=record.summary,
                title=record.title,
                date=record.date,
                kind="explicit",
                metadata=record.about(),
            )
            whole = None
            if record.tokens <= max_tokens:
                text = yield from self.whole_text(owner, record)
                if text is not None:
                    whole = replace(summary, text=text)
            documents.append((whole, summary))
        return documents

    def listed(self, owner: str) -> Flow[list[DocumentInfo]]:
        """Returns an owner's documents, by source, as copies."""
        shelves = yield from self._read([owner])
        records = chain.from_iterable(shelf.records for shelf in shelves)
        return [record.model_copy(deep=True) for record in records]

    def whole_text(self, owner: str, record: DocumentInfo) -> Flow[str | None]:
        """Returns a document's text exactly as it was given; None where it is not there."""
        parts = yield from self.parts(owner, [f"{record.id}/{record.hash}"])
        return next((part.text for part in parts.values()), None)

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
        and its `score`: both scaled to 0 to 1 and averaged.

        Args:
            owners: their labels.
            query: the words to look for.
            limit: the most chunks.
            embeddings: for a store without an index.
            failures: a list that takes what went wrong; it is logged as well.
        """
        shelves = yield from self._read(owners)
        if not shelves or limit < 1 or not query.strip():
            return []
        pool = max(LEAST_POOL, 2 * limit)
        problems: list[str] = []
        lexical: dict[str, float] = {}
        for shelf in shelves:
            index = yield from self._words(shelf, problems)
            lexical |= _best([*shelf.chunks], index.scores(terms(query)), pool, above=0)
        dense: dict[str, float] = {}
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
        return _results(shelves, lexical, dense)[:limit]

    def _read(self, owners: Sequence[str]) -> Flow[list[_Shelf]]:
        """Returns the shelves of owners, up to date; owners without documents are left out."""
        marks = yield from batch(self.store, [GetOp(namespace(owner), MARK) for owner in owners])
        shelves: list[_Shelf] = []
        for owner, item in zip(owners, cast("list[Item | None]", marks), strict=True):
            if item is None:
                self.forget(owner)
                continue
            # The mark was read before what it marks, so it is never newer.
            mark = str(item.value.get("mark"))
            with self._mutex:
                shelf = self._shelves.get(owner)
            if shelf is None or shelf.mark != mark:
                shelf = yield from self._new_shelf(owner, mark, shelf)
            with self._mutex:
                self._shelves[owner] = shelf
            if shelf.records:
                shelves.append(shelf)
        return shelves

    def _new_shelf(self, owner: str, mark: str, old: _Shelf | None) -> Flow[_Shelf]:
        """Reads the records of an owner's documents."""
        items = yield from read_all(self.store, namespace(owner, "manifest"))
        records = [DocumentInfo.read(item.value, f"document {item.key!r}") for item in items]
        records.sort(key=lambda record: (record.source, record.id))
        shelf = _Shelf(owner, mark, tuple(records))
        if old is not None:
            shelf.take_over(old)
        return shelf

    def parts(self, owner: str, keys: Sequence[str]) -> Flow[dict[str, PartRecord]]:
        """Returns those parts that are there, by `document/hash`, in order."""
        gets = []
        for key in keys:
            document, name = key.split("/")
            gets.append(GetOp(namespace(owner, "parts", document), name))
        items = cast("list[Item | None]", (yield from batch(self.store, gets)))
        return {
            key: PartRecord.read(item.value, f"part {key!r}")
            for key, item in zip(keys, items, strict=True)
            if item
        }

    def _words(self, shelf: _Shelf, problems: list[str]) -> Flow[LexicalIndex]:
        """Returns an index of the words of a shelf's chunks; none is read twice."""
        index = shelf.lexical
        if index is None:
            index = LexicalIndex()
            unread = [key for key in shelf.chunks if key not in shelf.texts]
            shelf.texts |= yield from self.parts(shelf.owner, unread)
            texts = [shelf.text_of(key) for key in shelf.chunks]
            yield in_thread(partial(index.extend, map(terms, texts)))
            shelf.lexical = index
        lost = sum(key not in shelf.texts for key in shelf.chunks)
        if lost:
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
        similarities: dict[str, float] = {}
        for shelf, items in zip(shelves, cast("list[list[SearchItem]]", results), strict=True):
            for item in items:
                key = f"{item.namespace[-1]}/{item.key}"
                # An item without a score was not compared; one outside of the manifest was left
                # behind by a writer.
                if item.score is not None and key in shelf.chunks:
                    similarities[key] = round(float(item.score), 6)
                    shelf.texts[key] = PartRecord.read(item.value, f"part {key!r}")
        return similarities

    def _similar(
        self, shelves: Sequence[_Shelf], query: str, limit: int, embeddings: Embeddings
    ) -> Flow[dict[str, float]]:
        """Returns cosines of vectors that this process makes, each once."""
        width = next((shelf.vectors.width for shelf in shelves if shelf.vectors), 0)
        target = as_query((yield from embed_query(embeddings, query)), width)
        for shelf in shelves:
            if shelf.vectors is None:
                missing = [key for key in shelf.chunks if key not in shelf.rows]
                texts = [shelf.text_of(key) for key in missing]
                vectors = comparable((yield from embed(embeddings, texts)), target.size)
                shelf.rows |= dict(zip(missing, vectors, strict=True))
                shelf.vectors = CentredVectors()
                shelf.vectors.extend(np.stack([shelf.rows[key] for key in shelf.chunks]))
        return _cosines(shelves, target, limit)


def _cosines(shelves: Sequence[_Shelf], target: Vectors, limit: int) -> dict[str, float]:
    """Returns the highest cosines of all chunks, after the mean of the chunks is taken off.

    A few chunks have no mean worth taking off: those of the smaller owners are compared with the
    mean of the largest one's.
    """
    searched = [shelf for shelf in shelves if shelf.vectors]
    searched.sort(key=lambda shelf: len(shelf.chunks))
    keys = list(chain.from_iterable(shelf.chunks for shelf in searched))
    *smaller, largest = [shelf.vectors for shelf in searched if shelf.vectors]
    others = np.concatenate([vectors.at() for vectors in smaller]) if smaller else None
    return _best(keys, largest.compared(others).cosines(target), limit, above=-np.inf)


def _results(
    shelves: Sequence[_Shelf], lexical: Mapping[str, float], dense: Mapping[str, float]
) -> list[tuple[Candidate, dict[str, Any]]]:
    """Returns the chunks that have a score, best first, with what they were ranked by."""
    scores = _fused(lexical, dense)
    results: list[tuple[Candidate, dict[str, Any]]] = []
    for shelf in shelves:
        for key in scores.keys() & shelf.texts.keys():
            about = {
                "tokens": shelf.texts[key].tokens,
                "score": scores[key],
                "dense": dense.get(key),
                "lexical": round(lexical.get(key, 0.0), 6),
            }
            results.append((shelf.candidate(key), about))

    def rank(result: tuple[Candidate, dict[str, Any]]) -> tuple[float, str, str, int]:
        candidate, about = result
        return -about["score"], candidate.metadata["source"], candidate.id, candidate.place

    return sorted(results, key=rank)


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
    best = highest(np.flatnonzero(scores > above), scores, limit)
    return {keys[position]: float(scores[position]) for position in best.tolist()}


def _fused(lexical: Mapping[str, float], dense: Mapping[str, float]) -> dict[str, float]:
    """Averages both scores, scaled to 0 to 1; of words, what was found by meaning alone has 0."""
    by_words = {**dict.fromkeys(dense, 0.0), **lexical}
    scaled = [_scaled(scores) for scores in (by_words, dense) if scores]
    fused: dict[str, float] = {}
    for key in {**lexical, **dense}:
        total = sum(scores.get(key, 0.0) for scores in scaled)
        fused[key] = round(total / len(scaled), 6)
    return fused


def _scaled(scores: Mapping[str, float]) -> dict[str, float]:
    """Scales scores to 0 to 1; where all are alike, each is 1, or 0 where they are 0."""
    low = min(scores.values())
    high = max(scores.values())
    if high == low:
        return {key: float(score > 0) for key, score in scores.items()}
    return {key: (score - low) / (high - low) for key, score in scores.items()}


@cached_until_forgotten(4_096)
def names_of(title: str, source: str) -> tuple[str, ...]:
    """Returns the names of a document, folded: its address or path, its file's name, its title.

    Other parts of a path could be any word and do not count; a title of one word counts in
    quotation marks only.
    """
    place = fold(_SCHEME.sub("", source.replace("\\", "/"))).strip("/")
    file = place.rpartition("/")[2]
    names: list[str] = []
    if "." in file and "\n" not in place:
        names = [place, file]
    elif _SCHEME.match(source):
        names = [place]
    folded_title = one_line(fold(title))
    if re.search(r"[\W_]", folded_title):
        names.append(folded_title)
    else:
        names += [f"{opening}{folded_title}{closing}" for opening, closing in _QUOTATION_MARKS]
    return tuple(name for name in names if len(name) >= SHORTEST_NAME)


def newest_mentions(names: Sequence[Sequence[str]], texts: Sequence[str]) -> list[int]:
    """Returns the numbers of the documents that messages name, the last named first.

    Where several files have the same name, only those whose whole path is named count.

    Args:
        names: of each document.
        texts: of the messages, oldest first.
    """
    numbers: dict[int, None] = {}
    for text in reversed(texts):
        numbers |= dict.fromkeys(_mentioned(names, one_line(fold(text[:READ_CHARACTERS]))))
    return list(numbers)


def _mentioned(names: Sequence[Sequence[str]], text: str) -> list[int]:
    """Returns the numbers of the documents that a text names, in the order of their places.

    Where it names a file with its path, other files of that name are not meant.
    """
    longest = _longest_mentioned(names, text)
    files_with_path = {name.rpartition("/")[2] for name in longest.values() if "/" in name}
    places: list[tuple[int, int]] = []
    for number, name in longest.items():
        if name not in files_with_path:
            places.append((text.find(name), number))
    return [number for _, number in sorted(places)]


def _longest_mentioned(names: Sequence[Sequence[str]], text: str) -> dict[int, str]:
    """Returns the longest name by which a text names each document, by the document's number."""
    longest: dict[int, str] = {}
    for number, document_names in enumerate(names):
        mentioned = [name for name in document_names if name in text and mentions(text, [name])]
        if mentioned:
            longest[number] = max(mentioned, key=len)
    return longest
