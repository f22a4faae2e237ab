"""The records of documents, and how they are searched, found by name and listed.

Below `(ROOT, owner, "documents")`, `manifest` has one record per document with the keys of its parts, and `parts` a
namespace for each document: its chunks, which are searched, and its whole text in pieces. Both are keyed by a hash of
their text, so versions share what is unchanged. Only what a manifest names is shown. A mark in the namespace itself is
renewed with every change.

Words are always searched in this process (BM25); vectors by the store where it has an index, else here, each made once.
What was read of an owner's documents is a shelf, kept until the mark of their namespace changes: a turn in which
nothing is new reads two marks.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore, GetOp, Item, SearchItem, SearchOp
from numpy.typing import NDArray
from pydantic import Field

from langchain_ctxbudget.background import cached_property, new_mutex
from langchain_ctxbudget.flow import Flow, batch, embed, embed_query, in_thread
from langchain_ctxbudget.messages import fold, mentions, one_line, terms
from langchain_ctxbudget.search import Candidate, CentredVectors, LexicalIndex, Vectors, as_query, comparable
from langchain_ctxbudget.stores import CHUNK, EXTRACTION, ROOT, Record, has_index, label, read_all, require_id

SHARED = "shared"
"""The label of everyone's documents; no user's label, since those end with `~`."""
MARK = "version"

LEAST_POOL = 50
"""The fewest chunks taken by words and by vectors each, so that both can change the order."""
NAMED_DOCUMENTS = 3
SEARCHED_CHUNKS = 20_000
"""The most chunks of one owner that are searched here, the first ones by source; a store's index has all."""
KEPT_OWNERS = 64
"""The most owners whose documents stay in memory."""
EMBEDDED_TOGETHER = 256
NAME_CHARACTERS = 3
"""A shorter name names nothing."""
READ_CHARACTERS = 50_000
"""The part of a message that is searched for names."""
_SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*://(?:www\.)?", re.IGNORECASE)
_ASCII_WORD, _PLAIN_WORD = re.compile("[a-z0-9]+"), re.compile(r"[^\W_]+")
_QUOTES = (('"', '"'), ("'", "'"), ("`", "`"), ("“", "”"), ("‘", "’"), ("«", "»"), ("„", "“"), ("「", "」"))  # noqa: RUF001

_log = logging.getLogger(__name__)


def owner_of(user_id: str | None) -> str:
    """Returns the label of a user's documents, or of everyone's for None."""
    return SHARED if user_id is None else label(require_id("user_id", user_id))


def namespace(owner: str, *below: str) -> tuple[str, ...]:
    """Returns the place of the mark, of the records of documents, or of the parts of one."""
    return (ROOT, owner, "documents", *below)


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
        """The keys of its parts."""
        return {*self.pieces, *(key for section in self.sections for key in section.chunks)}

    def about(self) -> dict[str, str | None]:
        """Returns what stands in the metadata of its chunks, besides what the caller gave."""
        return {"source": self.source, "title": self.title, "date": self.date, "type": self.type}


class PartRecord(Record):
    """A chunk of a document, or a piece of its whole text exactly as it was given."""

    text: str
    tokens: int = 0


def beside(given: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Merges metadata; given ones with the name of one of ours are renamed to `given_` and the name.

    >>> beside({"page": 3, "score": 5}, {"score": 0.9})
    {'page': 3, 'given_score': 5, 'score': 0.9}
    """
    return {**{f"given_{name}" if name in own else name: value for name, value in given.items()}, **own}


@dataclass
class _Shelf:
    """What was read of an owner's documents; keys are hashes, so no text can be out of date."""

    owner: str
    mark: str
    records: tuple[DocumentInfo, ...]
    """By source."""
    texts: dict[str, PartRecord] = field(default_factory=dict)
    lexical: LexicalIndex | None = None
    """Over `searched`; None until somebody searches."""
    maker: Embeddings | None = None
    rows: dict[str, Vectors] = field(default_factory=dict)
    """Vectors by the embeddings that made them; zeros where they gave no usable one."""
    vectors: CentredVectors | None = None
    """Of `searched`."""

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
    def names(self) -> list[list[tuple[str, str]]]:
        """The names of each document."""
        return [names_of(record.title, record.source) for record in self.records]

    def renewed(self, mark: str, records: tuple[DocumentInfo, ...]) -> _Shelf:
        """Returns a shelf of the documents as they are now, with what is known of chunks that are still there."""
        new = _Shelf(self.owner, mark, records, maker=self.maker)
        new.texts = {key: self.texts[key] for key in new.searched if key in self.texts}
        new.rows = {key: self.rows[key] for key in new.searched if key in self.rows}
        return new


class Catalogue:
    """The documents of a store; what was read of them is kept for threads and tasks."""

    def __init__(self, store: BaseStore) -> None:
        self.store = store
        self._shelves: OrderedDict[str, _Shelf] = OrderedDict()
        self._mutex = new_mutex()

    def forget(self, owner: str) -> None:
        """Lets go of what was read of an owner's documents."""
        with self._mutex:
            self._shelves.pop(owner, None)

    def named(
        self, user_id: str, texts: Sequence[str], *, limit: int = NAMED_DOCUMENTS, max_tokens: int | None = None
    ) -> Flow[list[tuple[DocumentInfo, str | None]]]:
        """Returns the documents of a user and of everyone that messages (oldest first) name, the last named first.

        Each comes with its whole text, or None where it has more than `max_tokens`.
        """
        shelves = yield from self._read((owner_of(user_id), SHARED))
        records = [(shelf.owner, record) for shelf in shelves for record in shelf.records]
        found = []
        for number in newest_mentions([names for shelf in shelves for names in shelf.names], texts)[:limit]:
            owner, record = records[number]
            fits = max_tokens is None or record.tokens <= max_tokens
            found.append((record, (yield from self.whole_text(owner, record)) if fits else None))
        return found

    def listed(self, owner: str) -> Flow[list[DocumentInfo]]:
        """Returns an owner's documents, by source, as copies."""
        shelves = yield from self._read([owner])
        return [record.model_copy(deep=True) for shelf in shelves for record in shelf.records]

    def whole_text(self, owner: str, record: DocumentInfo) -> Flow[str | None]:
        """Returns a document's text exactly as it was given; None where it was replaced at this moment."""
        keys = [f"{record.id}/{name}" for name in record.pieces]
        found = yield from self._parts(owner, keys)
        return "".join(found[key].text for key in keys) if found.keys() >= {*keys} else None

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

        Each comes with its `tokens`, its `lexical` score (BM25), its `dense` one (cosine, or None), and its `score`:
        both are scaled to 0 to 1 and averaged. Without vectors, only chunks that share a word with the query are
        found. Problems are logged and added to `failures`.
        """
        shelves = yield from self._read(owners)
        if not shelves or limit < 1 or not query.strip():
            return []
        pool, texts = max(LEAST_POOL, 2 * limit), dict[str, PartRecord]()
        dense, lexical = dict[str, float](), dict[str, float]()
        for shelf in shelves:
            lexical |= _best(shelf.searched, (yield from self._words(shelf)).scores(terms(query)), pool, above=0)
            texts |= shelf.texts
        try:
            if has_index(self.store):
                dense = yield from self._nearest(shelves, query, pool, texts)
            elif embeddings is not None:
                dense = yield from self._similar(shelves, query, pool, embeddings)
        except Exception as error:  # noqa: BLE001 - whatever embeddings raise, words are still searched
            problem = f"documents not searched by vectors: {type(error).__name__}: {error}"
            _log.warning("%s", problem)
            if failures is not None:
                failures.append(problem)
        chunks = {key: chunk for shelf in shelves for key, chunk in shelf.chunks.items()}
        fused = {key: score for key, score in _fused(lexical, dense).items() if key in texts}
        found = [(_candidate(*chunks[key], texts[key].text), key) for key in fused]
        found.sort(key=lambda it: (-fused[it[1]], it[0].metadata["source"], it[0].id, it[0].place))
        result = []
        for candidate, key in found[:limit]:
            words, dense_score = round(lexical.get(key, 0.0), 6), dense.get(key)
            own = {"tokens": texts[key].tokens, "score": fused[key], "lexical": words, "dense": dense_score}
            result.append((candidate, own))
        return result

    # Reading

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
                shelf = self._shelves.get(owner) or _Shelf(owner, "", ())
            if shelf.mark != mark:  # the mark was read before what it marks, so it is never newer
                items = yield from read_all(self.store, namespace(owner, "manifest"))
                records = [DocumentInfo.read(one.value, f"document {one.key!r}") for one in items]
                shelf = shelf.renewed(mark, tuple(sorted(records, key=lambda record: (record.source, record.id))))
            with self._mutex:
                self._shelves[owner] = shelf
                self._shelves.move_to_end(owner)
                if len(self._shelves) > KEPT_OWNERS:
                    self._shelves.popitem(last=False)
            if shelf.records:
                shelves.append(shelf)
        return shelves

    def _parts(self, owner: str, keys: Sequence[str]) -> Flow[dict[str, PartRecord]]:
        """Returns those parts that are there, by `document/hash`, in order."""
        found: dict[str, PartRecord] = {}
        for first in range(0, len(keys), CHUNK):
            some = keys[first : first + CHUNK]
            places = [key.split("/") for key in some]
            gets = [GetOp(namespace(owner, "parts", document), name) for document, name in places]
            items = cast("list[Item | None]", (yield from batch(self.store, gets)))
            read = zip(some, items, strict=True)
            found |= {key: PartRecord.read(item.value, f"part {key!r}") for key, item in read if item}
        return found

    # Searching

    def _words(self, shelf: _Shelf) -> Flow[LexicalIndex]:
        """Returns an index of the words of a shelf's chunks; none is read twice."""
        if shelf.lexical is None:
            missing = [key for key in shelf.searched if key not in shelf.texts]
            shelf.texts |= yield from self._parts(shelf.owner, missing)

            def indexed() -> LexicalIndex:
                index = LexicalIndex()
                # A chunk that is not there was replaced at this moment, and the mark will say so.
                index.extend(terms(shelf.texts[key].text) if key in shelf.texts else () for key in shelf.searched)
                return index

            shelf.lexical = yield in_thread(indexed)
        return shelf.lexical

    def _nearest(
        self, shelves: Sequence[_Shelf], query: str, limit: int, texts: dict[str, PartRecord]
    ) -> Flow[dict[str, float]]:
        """Returns similarities by the store's index, and adds the texts that it found."""
        places = [namespace(shelf.owner, "parts") for shelf in shelves]
        results = yield from batch(self.store, [SearchOp(where, query=query, limit=limit) for where in places])
        found: dict[str, float] = {}
        for shelf, items in zip(shelves, cast("list[list[SearchItem]]", results), strict=True):
            for item in items:
                key = f"{item.namespace[-1]}/{item.key}"
                # An item without a score was not compared; one outside of the manifest was left behind by a writer.
                if item.score is not None and key in shelf.chunks:
                    found[key] = round(float(item.score), 6)
                    texts[key] = PartRecord.read(item.value, f"part {key!r}")
        return found

    def _similar(
        self, shelves: Sequence[_Shelf], query: str, limit: int, embeddings: Embeddings
    ) -> Flow[dict[str, float]]:
        """Returns similarities by vectors that are made here, without what the chunks have in common."""
        width = next((it.vectors.width for it in shelves if it.vectors and it.maker is embeddings), 0)
        target = as_query((yield from embed_query(embeddings, query)), width)
        for shelf in shelves:
            yield from self._embed(shelf, embeddings, target.size)
        # The few of one owner have no mean of their own: they join those of the other.
        ordered = sorted(((it, cast("CentredVectors", it.vectors)) for it in shelves), key=lambda it: len(it[1]))
        keys = [key for shelf, _ in ordered for key in shelf.searched]
        others = [vectors.units for _, vectors in ordered[:-1]]
        scores = ordered[-1][1].similarities(target, np.concatenate(others) if others else None)
        return _best(keys, scores, limit, above=-np.inf)

    def _embed(self, shelf: _Shelf, embeddings: Embeddings, width: int) -> Flow[None]:
        """Makes the vectors of a shelf's chunks, none of them twice."""
        if shelf.maker is not embeddings:
            shelf.maker, shelf.rows, shelf.vectors = embeddings, {}, None
        missing = [key for key in shelf.searched if key not in shelf.rows]
        for first in range(0, len(missing), EMBEDDED_TOGETHER):
            keys = missing[first : first + EMBEDDED_TOGETHER]
            made = yield from embed(embeddings, [shelf.texts[key].text if key in shelf.texts else "" for key in keys])
            shelf.rows |= dict(zip(keys, comparable(made, width)[0], strict=True))
        if shelf.vectors is None:
            rows, vectors = np.stack([shelf.rows[key] for key in shelf.searched]), CentredVectors()
            vectors.extend(rows, np.flatnonzero(~rows.any(axis=1)).tolist())
            shelf.vectors = vectors


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


def _best(keys: Sequence[str], scores: NDArray[np.float64], limit: int, *, above: float) -> dict[str, float]:
    """Returns the highest scores; of equal ones, the first."""
    order = np.argsort(-scores, kind="stable")[:limit].tolist()
    return {keys[place]: float(scores[place]) for place in order if scores[place] > above}


def _fused(lexical: Mapping[str, float], dense: Mapping[str, float]) -> dict[str, float]:
    """Averages both, scaled to 0 to 1; where all are alike, each is 1, or 0 where they are 0."""

    def scaled(scores: Mapping[str, float]) -> dict[str, float]:
        low, high = min(scores.values(), default=0.0), max(scores.values(), default=0.0)
        if high <= low:
            return {key: float(score > 0) for key, score in scores.items()}
        return {key: (score - low) / (high - low) for key, score in scores.items()}

    if not dense:
        return scaled(lexical)
    words, meanings = scaled({**dict.fromkeys(dense, 0.0), **lexical}), scaled(dense)
    keys = {**dense, **lexical}
    return {key: round(0.5 * words.get(key, 0.0) + 0.5 * meanings.get(key, 0.0), 6) for key in keys}


# Documents that messages name


def names_of(title: str, source: str) -> list[tuple[str, str]]:
    """Returns what a document is called, folded, each with a word that is said with it (empty: none is known).

    Those are its address, the ends of its path that have a suffix (others could be any word), and its title, of one
    word only in quotation marks.

    Example:
        >>> [name for _, name in names_of("A guide", "docs/linux/setup.md")]
        ['docs/linux/setup.md', 'linux/setup.md', 'setup.md', 'a guide']
    """
    place, called = fold(_SCHEME.sub("", source.replace("\\", "/"))).strip("/"), one_line(fold(title))
    parts = place.split("/")
    names = ["/".join(parts[start:]) for start in range(len(parts))] if "." in parts[-1] and "\n" not in place else []
    names += [place] if _SCHEME.match(source) and place not in names else []
    names += [f"{left}{called}{right}" for left, right in _QUOTES] if _PLAIN_WORD.fullmatch(called) else [called]
    words = (_ASCII_WORD.search(name) if name.isascii() else None for name in names)
    return [
        (word[0] if word else "", name) for word, name in zip(words, names, strict=True) if len(name) >= NAME_CHARACTERS
    ]


def newest_mentions(names: Sequence[Sequence[tuple[str, str]]], texts: Sequence[str]) -> list[int]:
    """Returns the numbers of the documents that messages (oldest first) name, the last named first.

    Of files with one name, those are meant whose path fits the longest.
    """
    found: dict[int, None] = {}
    for text in reversed(texts):
        said = one_line(fold(text[:READ_CHARACTERS]))
        words = {"", *_ASCII_WORD.findall(said)}  # looking a word up is a hundred times as fast as looking for a name
        fitting: dict[int, str] = {}
        for number, names_of_one in enumerate(names):
            fits = [it for word, it in names_of_one if word in words and it in said and mentions(said, [it])]
            if fits:
                fitting[number] = max(fits, key=len)
        shorter = {name[at + 1 :] for name in fitting.values() for at, sign in enumerate(name) if sign == "/"}
        places = sorted((said.find(name), number) for number, name in fitting.items() if name not in shorter)
        found |= dict.fromkeys(number for _, number in places)
    return list(found)
