"""`KnowledgeBase`: documents in, chunks out.

Files (text, Markdown, PDF), texts and LangChain documents are read.

A writer who is killed leaves nothing that is shown or lost, because the order of writes is always
the same: new chunks and texts; the manifest, which says what belongs to the document from now on;
deletion of what no longer does. Of two processes that write the same document at the same moment,
one may delete chunks of the other, which searches tell of.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from functools import partial
from os import PathLike
from os.path import abspath
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeAlias, cast

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore, GetOp, PutOp

from langchain_ctxbudget import errors
from langchain_ctxbudget.documents import addresses, catalogue
from langchain_ctxbudget.documents.catalogue import (
    Catalogue,
    DocumentInfo,
    PartRecord,
    beside,
    namespace,
)
from langchain_ctxbudget.errors import DocumentError
from langchain_ctxbudget.flow import Flow, Lock, T, batch, in_thread, locked, twins
from langchain_ctxbudget.history import Line, Sentence, choose, keep_sentences
from langchain_ctxbudget.messages import as_json_data, digest, iso_date, one_line
from langchain_ctxbudget.search import LocalEmbeddings, local_embeddings_available, shrink_to
from langchain_ctxbudget.stores import PrivateStore, bulk, has_index, new_token, read_all, written
from langchain_ctxbudget.tokens import TiktokenCounter, TokenCounter, encodable

TYPES = {".pdf": "pdf", ".md": "markdown", ".markdown": "markdown", ".mdx": "markdown"}
TITLE_CHARACTERS = 120
HEADINGS = " > "
_BORDERS = [
    r"\n[ \t]*\n",  # paragraphs
    r"\n",
    r"(?<=[.!?…])(?=\s)|(?<=[。！？])",  # noqa: RUF001 - sentences
    r"(?<=[,;:])(?=\s)|(?<=[、，；])",  # noqa: RUF001
    r"\s",
]
_HEADING = re.compile(r" {0,3}(#{1,6})(?=[ \t]|$)")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_BLANK_LINES = re.compile(r"\A(?:[^\S\n]*\n)+")
Given: TypeAlias = Document | str | PathLike[str]
SUMMARY_TOKENS = 200
SMALLEST_CHUNK_TOKENS = 16
_SEGMENT = 20
"""Chunks from which sentences are picked together."""
_locks = [Lock() for _ in range(256)]
"""Held while documents of an owner are written, by any store object."""

# Inside the class, `list` is its method.
_Documents: TypeAlias = list[Document]
_Infos: TypeAlias = list[DocumentInfo]


@dataclass(frozen=True, slots=True)
class Part:
    """A page of a document, or a section under a heading."""

    text: str
    heading: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Metadata that the rest of the document does not have, such as the `page`."""


class NewDocument(NamedTuple):
    """A document that was read and is not split yet."""

    about: Mapping[str, Any]
    """Its `source`, `title`, `date`, `type`, `metadata`, and a `hash` of its text."""
    parts: Sequence[Part]
    text: str


class Added(NamedTuple):
    """Ids of the documents that were added, in order."""

    added: tuple[str, ...]
    updated: tuple[str, ...]
    unchanged: tuple[str, ...]
    """Documents that were there and are the same: nothing was written."""


@errors.checks_names()
class KnowledgeBase:
    """Keeps documents of a user, or of everyone, that prompts may quote.

    Give it the store of a pipeline, and the pipeline finds the documents by itself. Text, Markdown
    and PDF files and LangChain documents are split into chunks by tokens; a chunk keeps its
    headings or its page. Adding what is there already writes nothing; of a changed document only
    the new chunks are embedded. Every document has a summary, for when it does not fit whole: the
    `summary` in its metadata, else some of its own sentences.

    A store with an index searches by meaning itself. Without one, words are searched (BM25), and
    vectors that are made in this process. Threads and tasks may share it.

    Example:
        >>> from langchain_ctxbudget import ContextPipeline, KnowledgeBase
        >>> pipeline = ContextPipeline()
        >>> knowledge = KnowledgeBase(pipeline.store, user_id="ada")
        >>> result = knowledge.add(
        ...     "The kettle is descaled with citric acid.", metadata={"source": "kettle.txt"}
        ... )
        >>> [found.page_content for found in knowledge.search("How do I descale it?")]
        ['The kettle is descaled with citric acid.']
        >>> knowledge.add(
        ...     "The kettle is descaled with citric acid.", metadata={"source": "kettle.txt"}
        ... ).added
        ()
    """

    def __init__(
        self,
        store: BaseStore | None = None,
        *,
        user_id: str | None = None,
        shared: bool = False,
        embeddings: Embeddings | None = None,
        token_counter: TokenCounter | None = None,
        chunk_tokens: int = 256,
        chunk_overlap_tokens: int = 32,
    ) -> None:
        """Names the owner of the documents; nothing is read or written.

        Args:
            store: any LangGraph store, as a rule `pipeline.store`; default: a private one in memory.
            user_id: the user who owns the documents.
            shared: True for everyone's documents, instead of a user's.
            embeddings: for a store without an index; default: `LocalEmbeddings`, where they are installed.
            token_counter: how tokens are counted; default: exact o200k_base.
            chunk_tokens: the most tokens of a chunk.
            chunk_overlap_tokens: about so many tokens of a chunk are repeated in the next one.

        An argument of another kind, or a size outside its range, is an `InvalidSettingsError`;
        where there is neither a user nor `shared`, that is a `MissingScopeError`.
        """
        if user_id is not None and shared:
            raise errors.InvalidSettingsError(
                "Documents are a user's or everyone's: user_id or shared=True, not both"
            )
        if user_id is None and shared is not True:
            raise errors.MissingScopeError(
                "Give the user_id whose documents these are, or shared=True for everyone's"
            )
        errors.require_kind("store", store, BaseStore)
        errors.require_kind("embeddings", embeddings, Embeddings)
        errors.require_kind("token_counter", token_counter, TokenCounter)
        wrong = errors.InvalidSettingsError
        errors.require_count("chunk_tokens", chunk_tokens, SMALLEST_CHUNK_TOKENS, kind=wrong)
        most = chunk_tokens // 2  # with more, chunks would say mostly the same
        errors.require_count("chunk_overlap_tokens", chunk_overlap_tokens, 0, most, kind=wrong)
        self.user_id = user_id
        self.store = PrivateStore() if store is None else store
        self.embeddings = embeddings or (
            LocalEmbeddings() if local_embeddings_available() else None
        )
        """For a store without an index; None where none were given and none are installed."""
        self._owner = catalogue.owner_of(user_id)
        self._catalogue = Catalogue(self.store)
        self._manifest = namespace(self._owner, "manifest")
        self._counter = token_counter or TiktokenCounter()
        self._sizes = (chunk_tokens, chunk_overlap_tokens)

    def _add(
        self,
        documents: Given | Iterable[Given] | None = None,
        *,
        text: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Flow[Added]:
        """Adds documents, or replaces those with the same source.

        Returns which are new, changed and unchanged.

        LangChain documents with the same `source` in their metadata, such as the pages of a PDF,
        are one document. The source of a file that is given by its path is its absolute path.

        Args:
            documents: one or several of: a `Document`, a string (the text itself), a path. Of a folder give
                `Path("docs").rglob("*.md")`, of a loader `loader.lazy_load()`. A string that is written as a path or as
                the address of a page is an error: a file is a `Path`.
            text: the text of one document, however it is written, in place of `documents`.
            metadata: of all of them: `source`, `title`, `date` (`YYYY-MM-DD`), `type`, `summary`, and anything else.

        One that cannot be read, or has no text, is a `DocumentError`; those before it are added.
        Where the store cannot be written, or the embeddings of its index fail, that is a
        `StoreError`; adding again goes on from there.
        """
        if not isinstance(metadata, Mapping | None):
            raise DocumentError(
                f"metadata must be a mapping of names to values, not {type(metadata).__name__}"
            )
        given = metadata or {}
        if text is not None:
            documents = _as_document(text, documents)
        done = {outcome: list[str]() for outcome in Added._fields}
        for group in (yield in_thread(partial(by_source, documents, given))):
            new = yield in_thread(partial(read_document, group, given))
            id_ = self._id_of(new.about["source"])
            outcome = yield from self._alone(self._write(id_, new))
            done[outcome].append(id_)
        return Added(*map(tuple, done.values()))

    def _delete(self, source: str | PathLike[str]) -> Flow[bool]:
        """Deletes a document, by its source; returns False where there was none.

        Raises `StoreError` where the store cannot be written; deleting again goes on from there.
        """
        id_ = self._id_of(source_of(source))

        def flow() -> Flow[bool]:
            record = yield from self._record(id_)
            if record:
                yield from batch(self.store, [PutOp(self._manifest, id_, None), self._new_mark()])
            yield from self._clear(id_, set())
            return record is not None

        return (yield from self._alone(flow()))

    def _list(self) -> Flow[_Infos]:
        """Returns every document, by source."""
        return (yield from self._catalogue.listed(self._owner))

    def _get(self, source: str | PathLike[str]) -> Flow[Document | None]:
        """Returns a document as it was given, whole, by its source; None where there is none."""
        record = yield from self._record(self._id_of(source_of(source)))
        text = (yield from self._catalogue.whole_text(self._owner, record)) if record else None
        if record is None or text is None:
            return None
        return Document(text, id=record.id, metadata={**record.metadata, **record.about()})

    def _search(self, query: str, k: int = 4) -> Flow[_Documents]:
        """Returns the chunks that a query is about, best first, `k` at most (at least 1, else `InputError`).

        Their metadata have `id`, `document_id`, `source`, `title`, `date`, `type`, `heading`,
        `page`, `chunk` (its place in the document), `tokens`, `score` (0 to 1 within this result),
        `lexical`, `dense`, and everything that the caller or the loader gave: a name that is one of
        these stands under `given_` and the name.
        """
        if not isinstance(query, str):
            raise errors.InputError(f"The query must be a string, not {type(query).__name__}")
        errors.require_count("k", k)
        found = yield from self._catalogue.search(
            [self._owner], query, limit=k, embeddings=self.embeddings
        )
        return [
            Document(it.text, id=it.id, metadata=beside(it.metadata, {"id": it.id, **own}))
            for it, own in found
        ]

    def _id_of(self, source: str) -> str:
        """Returns the id of a document: the same for one source, another for every user."""
        return _hash(f"{self._owner}\0{source}")

    def _alone(self, flow: Flow[T]) -> Flow[T]:
        """Runs a flow that writes, while nobody else in this process writes documents of the owner."""
        try:
            return (yield from locked(_locks[hash(self._owner) % len(_locks)], flow))
        except errors.CtxBudgetError:
            raise
        except Exception as error:
            raise errors.StoreError(
                f"The store of the documents, or the embeddings of its index, failed ({type(error).__name__}: {error})"
            ) from error

    def _record(self, id_: str) -> Flow[DocumentInfo | None]:
        [item] = yield from batch(self.store, [GetOp(self._manifest, id_)])
        return DocumentInfo.found(item)

    def _new_mark(self) -> PutOp:
        return PutOp(namespace(self._owner), catalogue.MARK, {"mark": new_token()}, index=False)

    def _clear(self, id_: str, kept: set[str]) -> Flow[None]:
        """Deletes the parts of a document but for some, which also clears up after a writer who was killed."""
        where = namespace(self._owner, "parts", id_)
        there = [
            item.key for item in (yield from read_all(self.store, where)) if item.key not in kept
        ]
        yield from bulk.write(self.store, [PutOp(where, key, None) for key in there])

    def _write(self, id_: str, new: NewDocument) -> Flow[str]:
        """Writes a document, while nobody else does, in the order that survives a kill.

        Returns a field of `Added`.
        """
        cut = [(part.heading, part.metadata, len(part.text)) for part in new.parts]
        made_from = _hash(
            repr((new.about, cut, self._sizes, self._counter.name, has_index(self.store)))
        )
        old = yield from self._record(id_)
        if old and old.made_from == made_from:
            yield from self._clear(id_, old.keys)
            return "unchanged"
        record, parts = yield in_thread(partial(self._split, id_, new, made_from))
        yield from bulk.write(
            self.store, [part for part in parts if not old or part.key not in old.keys]
        )
        yield from batch(
            self.store, [written(GetOp(self._manifest, id_), record), self._new_mark()]
        )
        yield from self._clear(id_, record.keys)
        return "updated" if old else "added"

    def _split(
        self, id_: str, new: NewDocument, made_from: str
    ) -> tuple[DocumentInfo, Sequence[PutOp]]:
        """Returns the record of a document, and the puts of its whole text and its chunks."""
        counter = self._counter
        where = namespace(self._owner, "parts", id_)
        whole = new.about["hash"]
        puts = {whole: written(GetOp(where, whole), PartRecord(text=new.text))}
        chunks = list[str]()
        keys = list[str]()
        for part in new.parts:
            for chunk in split(part.text, counter, *self._sizes):
                told = {"heading": part.heading, "metadata": dict(part.metadata)}
                keys.append(key := _hash(repr((chunk, told, has_index(self.store)))))
                value = PartRecord(text=chunk, tokens=counter.count_text(chunk), **told).to_value()
                puts[key] = PutOp(where, key, value, index=["text"])
                chunks.append(chunk)
        given = one_line(str(new.about["metadata"].get("summary") or ""))
        record = DocumentInfo(
            id=id_,
            **new.about,
            tokens=counter.count_text(new.text),
            summary=shrink_to(given, counter.count_text, SUMMARY_TOKENS)
            or extract(new.text, chunks, counter),
            made_from=made_from,
            parts=tuple(keys),
        )
        return record, list(puts.values())

    add, aadd = twins(_add)
    delete, adelete = twins(_delete)
    list, alist = twins(_list)
    get, aget = twins(_get)
    search, asearch = twins(_search)


def extract(
    text: str, chunks: Sequence[str], counter: TokenCounter, budget_tokens: int = SUMMARY_TOKENS
) -> str:
    """Returns the most telling sentences of a document, in order; the whole text where it fits."""
    if counter.count_text(text) <= budget_tokens:
        return text
    kept: list[Sentence] = []
    for first in range(0, len(chunks), _SEGMENT):
        segment = enumerate(chunks[first : first + _SEGMENT], first)
        kept += keep_sentences(
            Line(number, "", None, chunk, from_user=False) for number, chunk in segment
        )
    # A space more for each, since what is joined may be counted in other pieces.
    chosen = choose(
        kept, [counter.count_text(sentence.text) + 1 for sentence in kept], budget_tokens
    )
    picked = " ".join(kept[number].text for number in chosen)
    # A text without sentences (a table, a log, one long word) gives its beginning.
    return (
        shrink_to(picked or text[:budget_tokens], counter.count_text, budget_tokens)
        or text[: budget_tokens // 4]
    )


def by_source(
    given: Given | Iterable[Given] | None, metadata: Mapping[str, Any]
) -> list[list[Given]]:
    """Groups LangChain documents with the same source, such as pages.

    Every other item is a group of its own.
    """
    if isinstance(
        given, Mapping | bytes | bytearray
    ):  # to read them one by one would keep names, or refuse numbers
        raise DocumentError(
            f"A document is a LangChain Document, a string (its text) or a path, not {type(given).__name__}: give "
            f"Document(page_content=..., metadata=...), or the text of bytes that were decoded"
        )
    single = isinstance(given, Document | str | PathLike) or not isinstance(given, Iterable)
    groups: dict[object, list[Given]] = {}
    for number, item in enumerate(
        cast("list[Given]", [given]) if single else cast("Iterable[Given]", given)
    ):
        if not isinstance(item, Document | str | PathLike):
            raise DocumentError(
                f"A document is a LangChain Document, a string (its text) or a path, not {item!r}"
            )
        source = str(item.metadata.get("source") or "") if isinstance(item, Document) else ""
        groups.setdefault(source or number, []).append(item)
    if len(groups) > 1 and not metadata.keys().isdisjoint({"source", "title"}):
        raise DocumentError(
            "`source` and `title` are those of one document; give each document its own metadata"
        )
    return list(groups.values())


def source_of(source: object) -> str:
    """Returns the source a document is known by.

    A string as it is, a path as absolute, links not followed.
    """
    if isinstance(source, PathLike):
        return Path(abspath(Path(source))).as_posix()  # noqa: PTH100 - `resolve` follows links
    if not isinstance(source, str):
        raise DocumentError(
            f"A document is known by its source, a string or a path, not {type(source).__name__}"
        )
    return source


def read_document(group: Sequence[Given], metadata: Mapping[str, Any]) -> NewDocument:
    """Reads a document: a file, a text, or LangChain documents with one source.

    `metadata` outweigh theirs.
    """
    first = group[0]
    if isinstance(first, PathLike):
        return _merged(_of_file(Path(first)), metadata)
    if isinstance(first, Document):
        return _merged(cast("Sequence[Document]", group), metadata)
    _refuse_address(first)
    return _merged([Document(first)], metadata)


def _as_document(text: object, documents: object) -> Document:
    """Returns a text as a document.

    An error where something else is given with it, or it is no text.
    """
    if documents is not None:
        raise DocumentError("Give documents, or the text of one document as `text`, not both")
    if not isinstance(text, str):
        raise DocumentError(
            f"`text` is the text of one document, a string, not {type(text).__name__}"
        )
    return Document(text)


def _refuse_address(text: str) -> None:
    """Raises a `DocumentError` for a string that says where a document is, and not what stands in it."""
    otherwise = "If this is the text of a document, give it as text=..."
    if addresses.exists(text):
        path = Path(text).expanduser()
        given = f"Path({str(path)!r})"
        if path.is_dir():
            raise DocumentError(
                f"{text!r} is a folder. Give its files: {given}.rglob('*.md'). {otherwise}"
            )
        raise DocumentError(
            f"{text!r} is a file, but a string is a document's text. Give {given}. {otherwise}"
        )
    if addresses.looks_like_path(text):
        raise DocumentError(
            f"{text!r} looks like the path of a file, and there is none (in {Path.cwd().as_posix()!r}, if it is "
            f"relative). Give the path of a file that is there, as Path(...). {otherwise}"
        )
    if addresses.is_address(text):
        raise DocumentError(
            f"{text!r} is an address, and nothing is fetched from there. Give the page's text, or the documents of a "
            f"LangChain loader. {otherwise}"
        )


def _of_file(path: Path) -> list[Document]:
    """Returns the text of a file as a document, or one for each page of a PDF, as LangChain's loaders do."""
    known = {"source": source_of(path), "type": TYPES.get(path.suffix.lower(), "text")}
    try:
        known["date"] = datetime.fromtimestamp(path.stat().st_mtime, UTC).date().isoformat()
        if known["type"] != "pdf":
            return [Document(_decoded(path), metadata=known)]
        from pypdf import PdfReader  # noqa: PLC0415 - an extra

        reader = PdfReader(path)
        known["title"] = one_line(str(getattr(reader.metadata, "title", None) or ""))
        pages = [page.extract_text() for page in reader.pages] or [""]
        return [
            Document(text, metadata={**known, "page": number})
            for number, text in enumerate(pages, 1)
        ]
    except ImportError as error:
        hint = "pip install 'langchain-ctxbudget[documents]'"
        raise DocumentError(f"{path} is a PDF, and pypdf is not installed: {hint}") from error
    except Exception as error:  # pypdf raises anything on a broken file
        raise DocumentError(f"{path} cannot be read ({type(error).__name__}: {error})") from error


def _decoded(path: Path) -> str:
    data = path.read_bytes()
    if b"\0" in data:
        raise ValueError("no text in UTF-8: it has NUL bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("cp1252", errors="replace")
    return text.replace("\r\n", "\n")


def _merged(documents: Sequence[Document], metadata: Mapping[str, Any]) -> NewDocument:
    first = documents[0].metadata
    shared = {
        name: value
        for name, value in first.items()
        if all(it.metadata.get(name) == value for it in documents)
    }
    known = {**shared, **metadata}
    said = {name: str(known.get(name) or "").strip() for name in ("source", "title", "type")}
    text = "\n\n".join(document.page_content for document in documents)
    source = said["source"] or documents[0].id or f"text:{_hash(text)}"
    kind = one_line(said["type"]) or TYPES.get(PurePosixPath(source).suffix.lower(), "text")
    if not text.strip():
        hint = ": its pages are pictures; recognise their text first (OCR)" if kind == "pdf" else ""
        raise DocumentError(f"The document {source!r} has no text{hint}")
    parts: list[Part] = []
    for document in documents:
        own = {
            name: value
            for name, value in document.metadata.items()
            if name not in known and name != "source"
        }
        page = encodable(document.page_content).replace(
            "\0", ""
        )  # an index refuses NUL and half characters
        for part in markdown_parts(page) if kind == "markdown" else [Part(page)]:
            parts += [replace(part, metadata=_as_json(own))] if part.text.strip() else []
    headed = next((part.heading.split(HEADINGS)[0] for part in parts if part.heading), "")
    stem = "" if source.startswith("text:") else PurePosixPath(source.replace("\\", "/")).stem
    title = said["title"] or headed or stem or text.strip().partition("\n")[0]
    others = {
        name: value
        for name, value in known.items()
        if name not in ("source", "title", "date", "type")
    }
    about = {
        "source": source,
        "title": one_line(title)[:TITLE_CHARACTERS],
        "date": _date(metadata.get("date") or shared.get("date"), source),
        "type": kind,
        "metadata": _as_json(others),
        "hash": _hash(text),
    }
    return NewDocument(about, parts, text)


def _hash(text: str) -> str:
    return digest(text, 12).hex()


def _date(value: object, source: str) -> str | None:
    found = (
        value.isoformat()[:10] if isinstance(value, date) else iso_date(value)
    )  # a datetime is a date
    if found is None and value not in (None, ""):
        raise DocumentError(
            f"The date of {source!r} is a date, or is written as YYYY-MM-DD, not {value!r}"
        )
    return found


def _as_json(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return cast("dict[str, Any]", as_json_data(dict(sorted(metadata.items()))))


def split(text: str, counter: TokenCounter, chunk_tokens: int, overlap_tokens: int) -> list[str]:
    """Splits a text into chunks, in order, each a piece of it.

    At paragraphs, lines, sentences and words.

    LangChain's recursive splitter does the work; text without a border is halved until it fits.
    """
    from langchain_text_splitters import RecursiveCharacterTextSplitter  # noqa: PLC0415 - when something is split

    def within(text: str) -> list[str]:
        middle = len(text) // 2
        fits = counter.count_text(text) <= chunk_tokens or not middle
        return [text] if fits else [*within(text[:middle]), *within(text[middle:])]

    recursive = RecursiveCharacterTextSplitter(
        separators=_BORDERS,
        is_separator_regex=True,
        keep_separator=True,
        strip_whitespace=False,
        chunk_size=chunk_tokens,
        chunk_overlap=overlap_tokens,
        length_function=counter.count_text,
    )
    fits = counter.count_text(text) <= chunk_tokens
    chunks = (
        [text]
        if fits
        else [small for chunk in recursive.split_text(text) for small in within(chunk)]
    )
    return [trimmed for chunk in chunks if (trimmed := _BLANK_LINES.sub("", chunk).rstrip())]


def markdown_parts(text: str) -> list[Part]:
    """Cuts a Markdown text before its headings.

    A heading with nothing under it goes with the next part.

    LangChain's `MarkdownHeaderTextSplitter` takes the indentation from code.
    """
    cut: list[tuple[str, list[str]]] = [("", [])]
    path: dict[int, str] = {}
    fence = ""
    has_body = False
    for line in text.splitlines(keepends=True):
        if border := _FENCE.match(line):
            fence = ("" if border[1].startswith(fence) else fence) if fence else border[1]
        if not fence and (found := _HEADING.match(line)):
            path = {level: title for level, title in path.items() if level < len(found[1])}
            path[len(found[1])] = line[found.end() :].strip().rstrip("#").strip()
            before = [] if has_body else cut.pop()[1]
            cut.append((HEADINGS.join(title for title in path.values() if title), before))
            has_body = False
        else:
            has_body = has_body or bool(line.strip())
        cut[-1][1].append(line)
    return [Part(text, heading) for heading, lines in cut if (text := "".join(lines)).strip()]
