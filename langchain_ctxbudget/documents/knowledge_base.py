"""`KnowledgeBase`: documents in, chunks out.

A writer who is killed leaves nothing behind that is shown, and loses nothing, because the order of
writes is always the same: first new chunks and texts; then the manifest, which says what belongs to
the document from now on; at last the deletion of what no longer does. Of two processes that write
the same document at the same moment, one may delete chunks of the other; searches tell of that.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import Any, NamedTuple, TypeAlias

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore, GetOp, PutOp

from langchain_ctxbudget import errors
from langchain_ctxbudget.documents import catalogue
from langchain_ctxbudget.documents.catalogue import (
    Catalogue,
    DocumentInfo,
    PartRecord,
    beside,
    namespace,
)
from langchain_ctxbudget.documents.reading import (
    Given,
    NewDocument,
    by_source,
    hash_of,
    read_document,
    source_of,
    text_document,
)
from langchain_ctxbudget.documents.splitting import SUMMARY_TOKENS, extract, split
from langchain_ctxbudget.errors import DocumentError
from langchain_ctxbudget.flow import Flow, Lock, T, adrive, batch, drive, in_thread, locked
from langchain_ctxbudget.messages import code_fences, one_line
from langchain_ctxbudget.receipts import OPERATION, traced
from langchain_ctxbudget.search import LocalEmbeddings, local_embeddings_available, shrink_to
from langchain_ctxbudget.stores import PrivateStore, bulk, has_index, new_token, put_of, read_all
from langchain_ctxbudget.tokens import TiktokenCounter, TokenCounter

SMALLEST_CHUNK_TOKENS = 16
_locks = [Lock() for _ in range(256)]
"""Held while documents of an owner are written, by any store object."""

# Inside the class, `list` is its method.
_Documents: TypeAlias = list[Document]
_Infos: TypeAlias = list[DocumentInfo]
_Texts: TypeAlias = list[str]


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
            store: any LangGraph store, as a rule `pipeline.store`; default: a private one in
                memory.
            user_id: the user who owns the documents.
            shared: True for everyone's documents, instead of a user's.
            embeddings: for a store without an index; default: `LocalEmbeddings`, where they are
                installed.
            token_counter: how tokens are counted; default: exact o200k_base.
            chunk_tokens: the most tokens of a chunk; a fence of code that is longer stays whole, up
                to four times as many.
            chunk_overlap_tokens: about so many tokens of a chunk are repeated in the next one.

        Raises:
            InvalidSettingsError: An argument is of another kind, or a size is out of range.
            MissingScopeError: There is neither a user nor `shared`.
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
        errors.require_count(
            "chunk_tokens", chunk_tokens, SMALLEST_CHUNK_TOKENS, kind=errors.InvalidSettingsError
        )
        # With a larger overlap, chunks would say mostly the same.
        errors.require_count(
            "chunk_overlap_tokens",
            chunk_overlap_tokens,
            0,
            chunk_tokens // 2,
            kind=errors.InvalidSettingsError,
        )
        if embeddings is None and local_embeddings_available():
            embeddings = LocalEmbeddings()
        self.user_id = user_id
        self.store = PrivateStore() if store is None else store
        self.embeddings = embeddings
        """For a store without an index; None where none were given and none are installed."""
        self._owner = catalogue.owner_of(user_id)
        self._catalogue = Catalogue(self.store)
        self._manifest = namespace(self._owner, "manifest")
        self._counter = token_counter or TiktokenCounter()
        self._chunk_tokens = chunk_tokens
        self._chunk_overlap_tokens = chunk_overlap_tokens

    def add(
        self,
        documents: Given | Iterable[Given] | None = None,
        *,
        text: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Added:
        """Adds documents, or replaces those with the same source.

        LangChain documents with the same `source` in their metadata, such as the pages of a PDF,
        are one document. The source of a file that is given by its path is its absolute path.

        Args:
            documents: one or several of: a `Document`, a string (the text itself), a path. Of a
                folder give `Path("docs").rglob("*.md")`, of a loader `loader.lazy_load()`. A string
                that is written as a path or as the address of a page is an error: a file is a
                `Path`.
            text: the text of one document, however it is written, in place of `documents`.
            metadata: of all of them: `source`, `title`, `date` (`YYYY-MM-DD`), `type`, `summary`,
                and anything else.

        Returns:
            The ids of the documents that are new, changed and unchanged.

        Raises:
            DocumentError: A document cannot be read, or has no text; those before it are added.
            StoreError: The store cannot be written, or the embeddings of its index fail; adding
                again goes on from there.
        """
        return drive(self._added(documents, text, metadata))

    async def aadd(
        self,
        documents: Given | Iterable[Given] | None = None,
        *,
        text: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Added:
        """Adds documents, or replaces those with the same source.

        LangChain documents with the same `source` in their metadata, such as the pages of a PDF,
        are one document. The source of a file that is given by its path is its absolute path.

        Args:
            documents: one or several of: a `Document`, a string (the text itself), a path. Of a
                folder give `Path("docs").rglob("*.md")`, of a loader `loader.lazy_load()`. A string
                that is written as a path or as the address of a page is an error: a file is a
                `Path`.
            text: the text of one document, however it is written, in place of `documents`.
            metadata: of all of them: `source`, `title`, `date` (`YYYY-MM-DD`), `type`, `summary`,
                and anything else.

        Returns:
            The ids of the documents that are new, changed and unchanged.

        Raises:
            DocumentError: A document cannot be read, or has no text; those before it are added.
            StoreError: The store cannot be written, or the embeddings of its index fail; adding
                again goes on from there.
        """
        return await adrive(self._added(documents, text, metadata))

    def delete(self, source: str | PathLike[str]) -> bool:
        """Deletes a document, by its source; returns False where there was none.

        Raises:
            StoreError: The store cannot be written; deleting again goes on from there.
        """
        return drive(self._deleted(source))

    async def adelete(self, source: str | PathLike[str]) -> bool:
        """Deletes a document, by its source; returns False where there was none.

        Raises:
            StoreError: The store cannot be written; deleting again goes on from there.
        """
        return await adrive(self._deleted(source))

    def list(self) -> _Infos:
        """Returns every document, by source."""
        return drive(self._listed())

    async def alist(self) -> _Infos:
        """Returns every document, by source."""
        return await adrive(self._listed())

    def get(self, source: str | PathLike[str]) -> Document | None:
        """Returns a document as it was given, whole, by its source; None where there is none."""
        return drive(self._whole(source))

    async def aget(self, source: str | PathLike[str]) -> Document | None:
        """Returns a document as it was given, whole, by its source; None where there is none."""
        return await adrive(self._whole(source))

    def search(self, query: str, k: int = 4) -> _Documents:
        """Returns the chunks that a query is about, best first.

        Their metadata have `id`, `document_id`, `source`, `title`, `date`, `type`, `heading`,
        `page`, `chunk` (its place in the document), `tokens`, `score` (0 to 1 within this result),
        `lexical`, `dense`, and everything that the caller or the loader gave: a name that is one of
        these stands under `given_` and the name.

        Args:
            query: the words to look for.
            k: the most chunks, at least 1.

        Raises:
            InputError: The query is no string, or `k` is below 1.
        """
        return drive(self._found(query, k))

    async def asearch(self, query: str, k: int = 4) -> _Documents:
        """Returns the chunks that a query is about, best first.

        Their metadata have `id`, `document_id`, `source`, `title`, `date`, `type`, `heading`,
        `page`, `chunk` (its place in the document), `tokens`, `score` (0 to 1 within this result),
        `lexical`, `dense`, and everything that the caller or the loader gave: a name that is one of
        these stands under `given_` and the name.

        Args:
            query: the words to look for.
            k: the most chunks, at least 1.

        Raises:
            InputError: The query is no string, or `k` is below 1.
        """
        return await adrive(self._found(query, k))

    def _added(
        self,
        documents: Given | Iterable[Given] | None,
        text: str | None,
        metadata: Mapping[str, Any] | None,
    ) -> Flow[Added]:
        if not isinstance(metadata, Mapping | None):
            raise DocumentError(
                f"metadata must be a mapping of names to values, not {type(metadata).__name__}"
            )
        metadata = metadata or {}
        if text is not None:
            documents = text_document(text, documents)
        ids_by_outcome: dict[str, _Texts] = {outcome: [] for outcome in Added._fields}
        groups = yield in_thread(partial(by_source, documents, metadata))
        for group in groups:
            document = yield in_thread(partial(read_document, group, metadata))
            document_id = self._id_of(document.about["source"])
            outcome = yield from self._alone(self._write(document_id, document))
            ids_by_outcome[outcome].append(document_id)
        return Added(
            added=tuple(ids_by_outcome["added"]),
            updated=tuple(ids_by_outcome["updated"]),
            unchanged=tuple(ids_by_outcome["unchanged"]),
        )

    def _deleted(self, source: str | PathLike[str]) -> Flow[bool]:
        document_id = self._id_of(source_of(source))

        def deletion() -> Flow[bool]:
            record = yield from self._record(document_id)
            if record is not None:
                without_document = PutOp(self._manifest, document_id, None)
                yield from batch(self.store, [without_document, self._new_mark()])
            yield from self._clear(document_id, set())
            return record is not None

        return (yield from self._alone(deletion()))

    def _listed(self) -> Flow[_Infos]:
        return (yield from self._catalogue.listed(self._owner))

    def _whole(self, source: str | PathLike[str]) -> Flow[Document | None]:
        record = yield from self._record(self._id_of(source_of(source)))
        if record is None:
            return None
        text = yield from self._catalogue.whole_text(self._owner, record)
        if text is None:
            return None
        return Document(text, id=record.id, metadata={**record.metadata, **record.about()})

    def _found(self, query: str, k: int) -> Flow[_Documents]:
        if not isinstance(query, str):
            raise errors.InputError(f"The query must be a string, not {type(query).__name__}")
        errors.require_count("k", k)
        search = self._catalogue.search([self._owner], query, limit=k, embeddings=self.embeddings)
        chunks = yield from traced(
            "retrieval",
            search,
            {OPERATION: "retrieval", "gen_ai.request.top_k": k},
            lambda found: {"ctxbudget.documents": len(found)},
        )
        documents = []
        for chunk, scores in chunks:
            metadata = beside(chunk.metadata, {"id": chunk.id, **scores})
            documents.append(Document(chunk.text, id=chunk.id, metadata=metadata))
        return documents

    def _id_of(self, source: str) -> str:
        """Returns the id of a document: the same for one source, another for every user."""
        return hash_of(f"{self._owner}\0{source}")

    def _alone(self, flow: Flow[T]) -> Flow[T]:
        """Runs a flow while nobody else in this process writes documents of the owner."""
        try:
            return (yield from locked(_locks[hash(self._owner) % len(_locks)], flow))
        except errors.CtxBudgetError:
            raise
        except Exception as error:
            raise errors.StoreError(
                "The store of the documents, or the embeddings of its index, failed "
                f"({type(error).__name__}: {error})"
            ) from error

    def _record(self, document_id: str) -> Flow[DocumentInfo | None]:
        [item] = yield from batch(self.store, [GetOp(self._manifest, document_id)])
        return DocumentInfo.of_item(item)

    def _new_mark(self) -> PutOp:
        """Returns the write by which readers see that something has changed."""
        return PutOp(namespace(self._owner), catalogue.MARK, {"mark": new_token()}, index=False)

    def _clear(self, document_id: str, kept: set[str]) -> Flow[None]:
        """Deletes the parts of a document but for some.

        This also clears up after a writer who was killed.
        """
        place = namespace(self._owner, "parts", document_id)
        items = yield from read_all(self.store, place)
        deletions = [PutOp(place, item.key, None) for item in items if item.key not in kept]
        yield from bulk.write(self.store, deletions)

    def _write(self, document_id: str, document: NewDocument) -> Flow[str]:
        """Writes a document in the order that survives a kill; returns a field of `Added`."""
        made_from = self._digest(document)
        old = yield from self._record(document_id)
        if old is not None and old.made_from == made_from:
            yield from self._clear(document_id, old.keys)
            return "unchanged"
        old_keys = old.keys if old is not None else set()
        record, parts = yield in_thread(partial(self._split, document_id, document, made_from))
        yield from bulk.write(self.store, [part for part in parts if part.key not in old_keys])
        manifest = put_of(GetOp(self._manifest, document_id), record)
        yield from batch(self.store, [manifest, self._new_mark()])
        yield from self._clear(document_id, record.keys)
        return "added" if old is None else "updated"

    def _digest(self, document: NewDocument) -> str:
        """Returns a digest of everything that the record of a document depends on."""
        parts = [(part.heading, part.metadata, len(part.text)) for part in document.parts]
        sizes = (self._chunk_tokens, self._chunk_overlap_tokens)
        made_from: tuple[object, ...] = (
            document.about,
            parts,
            sizes,
            self._counter.name,
            has_index(self.store),
        )
        # Earlier versions cut fences of code: such a document is split anew when it is added again.
        if code_fences(document.text):
            made_from = (*made_from, "whole fences")
        return hash_of(repr(made_from))

    def _split(
        self, document_id: str, document: NewDocument, made_from: str
    ) -> tuple[DocumentInfo, Sequence[PutOp]]:
        """Returns the record of a document, and the puts of its whole text and its chunks."""
        counter = self._counter
        place = namespace(self._owner, "parts", document_id)
        text_key = document.about["hash"]
        puts = {text_key: put_of(GetOp(place, text_key), PartRecord(text=document.text))}
        chunks: _Texts = []
        keys: _Texts = []
        for part in document.parts:
            for chunk in split(part.text, counter, self._chunk_tokens, self._chunk_overlap_tokens):
                own: dict[str, Any] = {"heading": part.heading, "metadata": dict(part.metadata)}
                key = hash_of(repr((chunk, own, has_index(self.store))))
                record = PartRecord(text=chunk, tokens=counter.count_text(chunk), **own)
                puts[key] = PutOp(place, key, record.to_value(), index=["text"])
                chunks.append(chunk)
                keys.append(key)
        info = DocumentInfo(
            id=document_id,
            **document.about,
            tokens=counter.count_text(document.text),
            summary=self._summary(document, chunks),
            made_from=made_from,
            parts=tuple(keys),
        )
        return info, [*puts.values()]

    def _summary(self, document: NewDocument, chunks: Sequence[str]) -> str:
        """Returns the summary in a document's metadata, else some of its own sentences."""
        given = one_line(str(document.about["metadata"].get("summary") or ""))
        shrunk = shrink_to(given, self._counter.count_text, SUMMARY_TOKENS)
        return shrunk or extract(document.text, chunks, self._counter)
