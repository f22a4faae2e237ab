"""The records of documents, and how they are searched, found by name and listed.

Below `(ROOT, owner, "documents")` are four namespaces: `manifest` has one record per document with the keys of its
parts, `chunks` the parts that are searched, `texts` the whole text in pieces, and `unfinished` the keys that a writer
is about to write or delete. Chunks and pieces are keyed by a hash of their text, so versions share what is unchanged.
Only what a manifest names is shown. A mark in the namespace itself is renewed with every change.

Words are always searched in this process (BM25); vectors by the store where it has an index, else here, each made once
per process. What was read of an owner's documents is a shelf, kept until the mark of their namespace changes: a turn
in which nothing is new reads two marks.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, cast
from weakref import WeakKeyDictionary

import numpy as np
from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore, GetOp, Item, SearchItem, SearchOp
from numpy.typing import NDArray
from pydantic import Field

from langchain_ctxbudget.background import cached_property, new_mutex
from langchain_ctxbudget.flow import Flow, batch, embed, embed_query, in_thread
from langchain_ctxbudget.messages import fold, mentions, one_line, terms
from langchain_ctxbudget.search import Candidate, LexicalIndex, Vectors, as_query, comparable, units
from langchain_ctxbudget.stores import EXTRACTION, ROOT, Record, bulk, label, require_id

SHARED = "shared"
"""The label of everyone's documents; no user's label, since those end with `~`."""
MARK = "version"

Kind = Literal["manifest", "chunks", "texts", "unfinished"]

LEAST_POOL = 50
"""The fewest chunks taken by words and by vectors each, so that both can change the order."""
LEXICAL_WEIGHT, DENSE_WEIGHT = 0.5, 0.5
NAMED_DOCUMENTS = 3
SEARCHED_CHUNKS = 20_000
"""The most chunks of one owner that are searched here, the first ones by source; a store's index has all."""
KEPT_CHUNKS, KEPT_OWNERS = 50_000, 256
"""About the most that stays in memory of a store; the owners least recently asked for go first."""
EMBEDDED_TOGETHER = 256
FEW = 32
"""Fewer vectors than this have no mean worth taking off."""
NAME_CHARACTERS = 3
"""A shorter name names nothing."""
READ_CHARACTERS = 50_000
"""The part of a message that is searched for names."""
_TINY = 1e-9
_SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*://(?:www\.)?", re.IGNORECASE)
_ASCII_WORD, _PLAIN_WORD = re.compile("[a-z0-9]+"), re.compile(r"[^\W_]+")
_QUOTES = (('"', '"'), ("'", "'"), ("`", "`"), ("“", "”"), ("‘", "’"), ("«", "»"), ("„", "“"), ("「", "」"))  # noqa: RUF001

_log = logging.getLogger(__name__)


# Records.


def owner_of(user_id: str | None) -> str:
    """Returns the label of a user's documents, or of everyone's for None."""
    return SHARED if user_id is None else label(require_id("user_id", user_id))


def namespace(owner: str, *kind: Kind) -> tuple[str, ...]:
    """Returns the place of one kind of record, or of the mark."""
    return (ROOT, owner, "documents", *kind)


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


# Searching and reading.


class FoundChunk(NamedTuple):
    """A chunk that was found, with its scores."""

    candidate: Candidate
    tokens: int
    score: float
    """From 0 to 1, among what was found for the query."""
    lexical: float
    """BM25; 0 without a common word."""
    dense: float | None
    """Cosine; None where it is not known."""


def beside(given: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Merges metadata; given ones with the name of one of ours are renamed to `given_` and the name.

    >>> beside({"page": 3, "score": 5}, {"score": 0.9})
    {'page': 3, 'given_score': 5, 'score': 0.9}
    """
    return {**{f"given_{name}" if name in own else name: value for name, value in given.items()}, **own}


def named(
    store: BaseStore, user_id: str, texts: Sequence[str], *, limit: int = NAMED_DOCUMENTS, max_tokens: int | None = None
) -> Flow[list[tuple[DocumentInfo, str | None]]]:
    """Returns the documents of a user and of everyone that messages (oldest first) name, the last named first.

    Each comes with its whole text, or None where it has more than `max_tokens`.
    """
    shelves = yield from _read_shelves(store, (owner_of(user_id), SHARED))
    records = [(shelf.owner, record) for shelf in shelves for record in shelf.records]
    found = []
    for number in newest_mentions([names for shelf in shelves for names in shelf.names], texts)[:limit]:
        owner, record = records[number]
        fits = max_tokens is None or record.tokens <= max_tokens
        found.append((record, (yield from whole_text(store, owner, record)) if fits else None))
    return found


def listed(store: BaseStore, owner: str) -> Flow[list[DocumentInfo]]:
    """Returns an owner's documents, by source, as copies."""
    shelves = yield from _read_shelves(store, [owner])
    return [record.model_copy(deep=True) for shelf in shelves for record in shelf.records]


def whole_text(store: BaseStore, owner: str, record: DocumentInfo) -> Flow[str | None]:
    """Returns a document's text exactly as it was given; None where it was replaced at this moment."""
    items = yield from _read(store, owner, "texts", [f"{record.id}/{name}" for name in record.pieces])
    texts = [PieceRecord.read(item.value, f"text {item.key!r}").piece for item in items]
    return "".join(texts) if len(texts) == len(record.pieces) else None


def search(
    store: BaseStore,
    owners: Sequence[str],
    query: str,
    *,
    limit: int,
    embeddings: Embeddings | None = None,
    failures: list[str] | None = None,
) -> Flow[list[FoundChunk]]:
    """Returns the chunks of owners' documents that a query is about, best first.

    The scores of words and of vectors are scaled to 0 to 1 each, and averaged. Without vectors, only chunks that share
    a word with the query are found. Problems are logged and added to `failures`.
    """
    shelves = yield from _read_shelves(store, owners)
    if not shelves or limit < 1 or not query.strip():
        return []
    pool, problems = max(LEAST_POOL, 2 * limit), list[str]()
    dense, lexical = dict[str, float](), dict[str, float]()
    texts: dict[str, ChunkRecord] = {}
    try:
        if bulk.has_index(store):
            dense = yield from _nearest(store, shelves, query, pool, texts)
    except Exception as error:  # noqa: BLE001 - whatever embeddings raise, words are still searched
        problems.append(f"documents not searched by the store's index: {type(error).__name__}: {error}")
    for shelf in shelves:
        lexical |= _best(shelf.searched, (yield from _index_of(store, shelf)).scores(terms(query)), pool)
        texts |= shelf.texts
    try:
        if not dense and embeddings is not None:
            dense = yield from _similar(shelves, query, pool, embeddings, problems)
    except Exception as error:  # noqa: BLE001 - as above
        problems.append(f"documents not searched by vectors: {type(error).__name__}: {error}")
    for problem in problems:
        _log.warning("%s", problem)
    if failures is not None:
        failures += problems
    chunks = {key: chunk for shelf in shelves for key, chunk in shelf.chunks.items()}
    found = [
        FoundChunk(
            _candidate(*chunks[key], texts[key].text),
            texts[key].tokens,
            score,
            round(lexical.get(key, 0.0), 6),
            dense.get(key),
        )
        for key, score in _fused(lexical, dense).items()
        if key in texts
    ]
    found.sort(key=lambda it: (-it.score, it.candidate.metadata["source"], it.candidate.id, it.candidate.place))
    return found[:limit]


def _candidate(record: DocumentInfo, section: Section, place: int, text: str) -> Candidate:
    given = {**record.metadata, **section.metadata}
    page = given.pop("page", None) if section.page is None else section.page
    own = {**record.about(), "document_id": record.id, "chunk": place, "heading": section.heading, "page": page}
    return Candidate(
        id=f"{record.id}#{place}",
        source="documents",
        text=text,
        title=record.title,
        place=place,
        date=record.date,
        metadata=beside(given, own),
    )


@dataclass(frozen=True, slots=True)
class Names:
    """The names of a document, folded."""

    titles: tuple[str, ...]
    """Title and address; a title of one word only in quotation marks."""
    paths: tuple[str, ...]
    """Ends of its path, the longest first, the file's name last."""
    words: frozenset[str]
    """Every message that names it has one of these; empty where that cannot be told."""

    @classmethod
    def of(cls, title: str, source: str) -> Names:
        """Returns the names of a document.

        Example:
            >>> Names.of("Setup", "docs/linux/setup.md").paths
            ('docs/linux/setup.md', 'linux/setup.md', 'setup.md')
        """
        place = fold(_SCHEME.sub("", source.replace("\\", "/"))).strip("/")
        parts, called = place.split("/"), one_line(fold(title))
        titles = [f"{left}{called}{right}" for left, right in _QUOTES] if _PLAIN_WORD.fullmatch(called) else [called]
        titles += [place] if _SCHEME.match(source) else []
        ends = ["/".join(parts[start:]) for start in range(len(parts))]
        # An end without a suffix could be any word.
        paths = [end for end in ends if "." in end.rpartition("/")[2]] if "\n" not in source else []
        titles, paths = ([name for name in names if len(name) >= NAME_CHARACTERS] for names in (titles, paths))
        first = [_ASCII_WORD.search(name) if name.isascii() else None for name in (*titles, *paths[-1:])]
        words = frozenset(found[0] for found in first if found) if all(first) else frozenset[str]()
        return cls(tuple(titles), tuple(paths), words)


def newest_mentions(names: Sequence[Names], texts: Sequence[str]) -> list[int]:
    """Returns the numbers of the documents that messages (oldest first) name, the last named first.

    Of files with one name, those are meant whose path fits the longest.
    """
    found: dict[int, None] = {}
    for text in reversed(texts):
        said = one_line(fold(text[:READ_CHARACTERS]))
        words = set(_ASCII_WORD.findall(said))
        # Looking a word up is a hundred times as fast as looking for a name.
        maybe = [number for number, name in enumerate(names) if not name.words or not words.isdisjoint(name.words)]
        places = {number: place for number in maybe if (place := _first(said, names[number].titles)[1]) >= 0}
        paths = {number: fit for number in maybe if (fit := _first(said, names[number].paths))[1] >= 0}
        longest: dict[str, int] = {}
        for number, (end, _) in paths.items():
            file = names[number].paths[-1]
            longest[file] = max(longest.get(file, 0), end.count("/"))
        for number, (end, place) in paths.items():
            if end.count("/") == longest[names[number].paths[-1]]:
                places.setdefault(number, place)
        found |= dict.fromkeys(sorted(places, key=lambda number: (places[number], number)))
    return list(found)


def _first(said: str, names: Sequence[str]) -> tuple[str, int]:
    """Returns the first name that is said as whole words, and its place, or -1."""
    for name in names:
        place = said.find(name)  # much faster than looking for whole words
        if place >= 0 and mentions(said, [name]):
            return name, place
    return "", -1


@dataclass
class Shelf:
    """Keeps the documents of an owner that this process has read; keys are hashes, so no text can be out of date."""

    owner: str
    mark: str
    records: tuple[DocumentInfo, ...]
    """By source."""
    texts: dict[str, ChunkRecord] = field(default_factory=dict)
    terms: dict[str, Sequence[str]] = field(default_factory=dict)
    lexical: LexicalIndex | None = None
    """Over `searched`; None until somebody searches."""
    vectors: tuple[Embeddings | None, dict[str, Vectors]] = (None, {})
    """By the embeddings that made them; zeros where they gave no usable one."""

    @cached_property
    def chunks(self) -> dict[str, tuple[DocumentInfo, Section, int]]:
        """Document, section and place of each chunk, by key, in order; of a passage that comes twice, the first."""
        found: dict[str, tuple[DocumentInfo, Section, int]] = {}
        for record in self.records:
            places = ((name, section) for section in record.sections for name in section.chunks)
            for place, (name, section) in enumerate(places):
                found.setdefault(f"{record.id}/{name}", (record, section, place))
        return found

    @cached_property
    def searched(self) -> tuple[str, ...]:
        """The keys of the chunks that are searched here, in order."""
        return tuple(self.chunks)[:SEARCHED_CHUNKS]

    @cached_property
    def names(self) -> tuple[Names, ...]:
        """The names of each document."""
        return tuple(Names.of(record.title, record.source) for record in self.records)


_shelves: WeakKeyDictionary[BaseStore, OrderedDict[str, Shelf]] = WeakKeyDictionary()
"""By store, for all pipelines and knowledge bases over it: of an erased user, none of them keeps anything."""
_mutex = new_mutex()


def forget(store: BaseStore, owner: str) -> None:
    """Lets go of what was read of an owner's documents."""
    with _mutex:
        _shelves.get(store, OrderedDict[str, Shelf]()).pop(owner, None)


def _read_shelves(store: BaseStore, owners: Sequence[str]) -> Flow[list[Shelf]]:
    """Returns the shelves of owners, up to date; owners without documents are left out."""
    marks = yield from batch(store, [GetOp(namespace(owner), MARK) for owner in owners])
    shelves = []
    for owner, item in zip(owners, cast("list[Item | None]", marks), strict=True):
        if item is None:
            forget(store, owner)
            continue
        with _mutex:
            shelf = _shelves.get(store, OrderedDict[str, Shelf]()).get(owner)
        mark = str(item.value.get("mark"))
        if shelf is None or shelf.mark != mark:  # the mark was read before what it marks, so it is never newer
            shelf = yield from _read_shelf(store, owner, mark, shelf)
        with _mutex:
            kept = _shelves.setdefault(store, OrderedDict())
            kept[owner] = shelf
            kept.move_to_end(owner)
            size = sum(len(one.texts) for one in kept.values())
            while len(kept) > 1 and (size > KEPT_CHUNKS or len(kept) > KEPT_OWNERS):
                size -= len(kept.popitem(last=False)[1].texts)
        if shelf.records:
            shelves.append(shelf)
    return shelves


def _read_shelf(store: BaseStore, owner: str, mark: str, old: Shelf | None) -> Flow[Shelf]:
    """Reads a shelf, and keeps what was known of chunks that are still there."""
    items = yield from bulk.read_all(store, namespace(owner, "manifest"))
    records = [DocumentInfo.read(item.value, f"document {item.key!r}") for item in items]
    shelf = Shelf(owner, mark, tuple(sorted(records, key=lambda record: (record.source, record.id))))
    if old is not None:
        embeddings, vectors = old.vectors
        shelf.texts = {key: old.texts[key] for key in shelf.searched if key in old.texts}
        shelf.terms = {key: old.terms[key] for key in shelf.searched if key in old.terms}
        shelf.vectors = embeddings, {key: vectors[key] for key in shelf.searched if key in vectors}
    return shelf


def _index_of(store: BaseStore, shelf: Shelf) -> Flow[LexicalIndex]:
    """Returns an index of the words of a shelf's chunks; none is read or split into words twice."""
    if shelf.lexical is None:
        missing = [key for key in shelf.searched if key not in shelf.texts]
        items = yield from _read(store, shelf.owner, "chunks", missing)
        shelf.texts |= {item.key: ChunkRecord.read(item.value, f"chunk {item.key!r}") for item in items}

        def indexed() -> LexicalIndex:
            shelf.terms |= {key: tuple(terms(it.text)) for key, it in shelf.texts.items() if key not in shelf.terms}
            index = LexicalIndex()
            # A chunk that is not there was replaced at this moment, and the mark will say so.
            index.extend(shelf.terms.get(key, ()) for key in shelf.searched)
            return index

        shelf.lexical = yield in_thread(indexed)
    return shelf.lexical


def _vectors_of(shelf: Shelf, embeddings: Embeddings, width: int) -> Flow[Vectors]:
    """Returns the vectors of a shelf's chunks, a row each; none is made twice."""
    if shelf.vectors[0] is not embeddings:
        shelf.vectors = embeddings, {}
    known = shelf.vectors[1]
    missing = [key for key in shelf.searched if key not in known]
    for first in range(0, len(missing), EMBEDDED_TOGETHER):
        keys = missing[first : first + EMBEDDED_TOGETHER]
        texts = [shelf.texts[key].text if key in shelf.texts else "" for key in keys]
        rows, _ = comparable((yield from embed(embeddings, texts)), width)
        known |= dict(zip(keys, units(rows), strict=True))
    return np.stack([known[key] for key in shelf.searched])


def _read(store: BaseStore, owner: str, kind: Kind, keys: Sequence[str]) -> Flow[list[Item]]:
    """Returns those items that are there."""
    items: list[Item | None] = []
    for first in range(0, len(keys), bulk.CHUNK):
        gets = [GetOp(namespace(owner, kind), key) for key in keys[first : first + bulk.CHUNK]]
        items += cast("list[Item | None]", (yield from batch(store, gets)))
    return [item for item in items if item]


def _nearest(
    store: BaseStore, shelves: Sequence[Shelf], query: str, limit: int, texts: dict[str, ChunkRecord]
) -> Flow[dict[str, float]]:
    """Returns similarities by a store's index, and adds the texts that it found."""
    places = [namespace(shelf.owner, "chunks") for shelf in shelves]
    results = yield from batch(store, [SearchOp(where, query=query, limit=limit) for where in places])
    found: dict[str, float] = {}
    for shelf, items in zip(shelves, cast("list[list[SearchItem]]", results), strict=True):
        for item in items:
            # An item without a score was not compared; one outside of the manifest was left behind by a writer.
            if item.score is not None and item.key in shelf.chunks:
                found[item.key] = round(float(item.score), 6)
                texts[item.key] = ChunkRecord.read(item.value, f"chunk {item.key!r}")
    return found


def _similar(
    shelves: Sequence[Shelf], query: str, limit: int, embeddings: Embeddings, problems: list[str]
) -> Flow[dict[str, float]]:
    """Returns similarities by vectors that are made here, without what all chunks have in common."""
    known = (vectors for shelf in shelves for maker, vectors in [shelf.vectors] if maker is embeddings)
    width = next((len(row) for vectors in known for row in vectors.values()), 0)
    [target] = units(as_query((yield from embed_query(embeddings, query)), width)[np.newaxis])
    found: list[Vectors] = []
    for shelf in shelves:
        found.append((yield from _vectors_of(shelf, embeddings, target.size)))  # noqa: PERF401 - a flow
    rows, keys = np.concatenate(found), [key for shelf in shelves for key in shelf.searched]
    mean = rows.mean(axis=0, dtype=np.float64).astype(np.float32) if len(rows) >= FEW else np.zeros_like(target)
    scores, absent = _cosines(rows, mean, target - mean), np.logical_not(np.any(rows, axis=1))
    if count := int(absent.sum()):
        problems.append(f"documents: no usable vector for {count} of {len(keys)} passages, found by their words alone")
    order = np.argsort(-scores, kind="stable")[:limit].tolist()
    return {keys[place]: float(scores[place]) for place in order if not absent[place]}


def _best(keys: Sequence[str], scores: NDArray[np.float64], limit: int) -> dict[str, float]:
    """Returns the highest scores above 0; of equal ones, the first."""
    order = np.argsort(-scores, kind="stable")[:limit].tolist()
    return {keys[place]: float(scores[place]) for place in order if scores[place] > 0}


def _cosines(rows: Vectors, mean: Vectors, aim: Vectors) -> NDArray[np.float64]:
    """Returns the cosines of rows of length 1, without the mean, with an aim that is already without it."""
    lengths = np.sqrt(np.maximum(1 - 2 * (rows @ mean) + mean @ mean, _TINY))
    cosines = (rows @ aim - mean @ aim) / (lengths * max(float(np.linalg.norm(aim)), _TINY))
    # Rounded, because the last bits depend on how many vectors are multiplied at once.
    rounded: NDArray[np.float64] = np.round(cosines, 6).astype(np.float64)
    return rounded


def _fused(lexical: Mapping[str, float], dense: Mapping[str, float]) -> dict[str, float]:
    if not dense:
        return _scaled(lexical)
    words, meanings = _scaled({**dict.fromkeys(dense, 0.0), **lexical}), _scaled(dense)
    return {
        key: round(LEXICAL_WEIGHT * words.get(key, 0.0) + DENSE_WEIGHT * meanings.get(key, 0.0), 6)
        for key in {**dense, **lexical}
    }


def _scaled(scores: Mapping[str, float]) -> dict[str, float]:
    """Scales scores to 0 to 1; where all are alike, each is 1, or 0 where they are 0."""
    low, high = min(scores.values(), default=0.0), max(scores.values(), default=0.0)
    if high <= low:
        return {key: float(score > 0) for key, score in scores.items()}
    return {key: (score - low) / (high - low) for key, score in scores.items()}
