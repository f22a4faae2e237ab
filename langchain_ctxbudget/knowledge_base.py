"""`KnowledgeBase`: documents in, chunks out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore

from langchain_ctxbudget.core.tokens import TiktokenCounter, TokenCounter
from langchain_ctxbudget.documents import search as documents
from langchain_ctxbudget.documents import writing
from langchain_ctxbudget.documents.loading import (
    Given,
    by_source,
    files_below,
    items_of,
    named,
    require_names_of_one,
)
from langchain_ctxbudget.documents.progress_bar import progress_bar
from langchain_ctxbudget.documents.records import owner_of
from langchain_ctxbudget.documents.splitting import CHUNK_TOKENS, OVERLAP_TOKENS, Splitter
from langchain_ctxbudget.documents.views import DocumentInfo, chunk_document, info_of, whole_document
from langchain_ctxbudget.documents.writing import Added, Writer
from langchain_ctxbudget.embeddings import LocalEmbeddings, local_embeddings_available
from langchain_ctxbudget.errors import InputError, InvalidSettingsError, MissingScopeError, StoreError
from langchain_ctxbudget.flow import Flow, adrive, drive

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel  # takes 0.2 s to import

__all__ = ["Added", "DocumentInfo", "KnowledgeBase"]

OnError = Literal["raise", "skip"]
# Inside the class, `list` is its method.
_Documents: TypeAlias = list[Document]
_Groups: TypeAlias = list[list[Given]]
_Infos: TypeAlias = list[DocumentInfo]


class KnowledgeBase:
    """Documents of a user, or of everyone, that prompts may quote.

    Give it the store of a pipeline, and the pipeline finds the documents by itself. Text, Markdown and PDF files,
    LangChain documents and loaders are split into chunks by tokens; a chunk keeps its headings or its page. Adding
    what is there already writes nothing, and of what has changed only the chunks that are new are embedded. Every
    document has a summary, for when it does not fit whole.

    A store with an index searches by meaning itself. Without one, words are searched (BM25), and vectors that are made
    in this process: the first 20,000 chunks of an owner.

    It may be shared by threads and tasks. Every method that reads or writes has an async twin.

    Example:
        >>> from langchain_ctxbudget import ContextPipeline, KnowledgeBase
        >>> pipeline = ContextPipeline()
        >>> knowledge = KnowledgeBase(pipeline.store, user_id="ada")
        >>> result = knowledge.add("The kettle is descaled with citric acid.", metadata={"source": "kettle.txt"})
        >>> [found.page_content for found in knowledge.search("How do I descale it?")]
        ['The kettle is descaled with citric acid.']
        >>> knowledge.add("The kettle is descaled with citric acid.", metadata={"source": "kettle.txt"}).added
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
        chunk_tokens: int = CHUNK_TOKENS,
        chunk_overlap_tokens: int = OVERLAP_TOKENS,
        summary_model: BaseChatModel | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Say whose documents they are; nothing is read or written.

        Args:
            store: any LangGraph store, as a rule `pipeline.store`; default: a private `ChromaStore` in memory.
            user_id: whose documents.
            shared: instead of a user: everyone's on this store.
            embeddings: for a store without an index; default: `LocalEmbeddings`, where they are installed.
            token_counter: how tokens are counted; default: exact o200k_base.
            chunk_tokens: the most that a chunk has, in tokens.
            chunk_overlap_tokens: about so much of a chunk is repeated in the next one, in tokens.
            summary_model: any chat model, to write summaries while documents are added; where it fails, and by
                default, sentences of the document itself stand instead.
            clock: tells when a write began, with its time zone.

        Raises:
            InvalidSettingsError: an argument of another kind, or a size that makes no sense.
            MissingScopeError: neither a user nor `shared`.
        """
        if user_id is not None and shared:
            raise InvalidSettingsError("Documents are a user's or everyone's: give user_id or shared=True, not both")
        if user_id is None and shared is not True:
            raise MissingScopeError("Give the user_id whose documents these are, or shared=True for everyone's")
        for name, value, kind in (
            ("store", store, BaseStore),
            ("embeddings", embeddings, Embeddings),
            ("token_counter", token_counter, TokenCounter),
        ):
            if value is not None and not isinstance(value, kind):
                raise InvalidSettingsError(f"{name} must be a {kind.__name__}, not {type(value).__name__}")
        if summary_model is not None and not callable(getattr(summary_model, "invoke", None)):
            raise InvalidSettingsError(f"summary_model must be a chat model, not {type(summary_model).__name__}")
        self.user_id = user_id
        self._owner = owner_of(user_id)
        self._splitter = Splitter(token_counter or TiktokenCounter(), chunk_tokens, chunk_overlap_tokens)
        self._summary_model, self._clock = summary_model, clock
        self._embeddings = embeddings
        self._store, self._owns_store, self._closed = store, store is None, False

    def __repr__(self) -> str:
        return f"KnowledgeBase({'shared=True' if self.user_id is None else f'user_id={self.user_id!r}'})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give back what was opened here; a store that was passed in stays open."""
        if self._owns_store and self._store is not None and hasattr(self._store, "close"):
            self._store.close()
        self._closed = True

    @property
    def store(self) -> BaseStore:
        """Where the documents are kept.

        Raises:
            StoreError: the knowledge base is closed.
        """
        if self._closed:
            raise StoreError("This knowledge base is closed; its store can no longer be used")
        if self._store is None:
            from langchain_ctxbudget.stores.chroma import ChromaStore  # noqa: PLC0415 - loads chromadb

            self._store = ChromaStore()
        return self._store

    @property
    def embeddings(self) -> Embeddings | None:
        """What a store without an index is searched with; None where none were given and none are installed."""
        if self._embeddings is None and local_embeddings_available():
            self._embeddings = LocalEmbeddings()
        return self._embeddings

    def add(
        self,
        documents: Given | Iterable[Given],
        *,
        metadata: Mapping[str, Any] | None = None,
        on_error: OnError = "raise",
        progress: bool | None = None,
    ) -> Added:
        """Add documents, or replace those with the same source.

        LangChain documents with the same `source` in their metadata, such as the pages of a PDF, are one document.
        The source of a file that is given by its path is its absolute path.

        Args:
            documents: one or several of: a `Document`, a string (the text itself), a path, a `BaseLoader`.
            metadata: of all of them: `source`, `title`, `date` (`YYYY-MM-DD`), `type`, and anything else.
            on_error: what a document that cannot be read, or a loader that fails, does: `raise`, or `skip` and be named
                in `failures`.
            progress: whether a progress bar is shown; None: on a terminal.

        Returns:
            Which documents are new, have changed, are unchanged.

        Raises:
            DocumentError: one cannot be read, or has no text, or a loader fails; those before it are added.
            StoreError: the store cannot be written, or the embeddings of its index fail; adding again goes on from
                there.
        """
        groups, skips = self._groups(documents, metadata), _skips(on_error)
        with progress_bar(len(groups), progress) as advance:
            flow = writing.add(self._writer, groups, metadata or {}, skip_unreadable=skips, advance=advance)
            return drive(flow)

    async def aadd(
        self,
        documents: Given | Iterable[Given],
        *,
        metadata: Mapping[str, Any] | None = None,
        on_error: OnError = "raise",
        progress: bool | None = None,
    ) -> Added:
        """Add documents, or replace those with the same source; see `add`."""
        groups, skips = self._groups(documents, metadata), _skips(on_error)
        with progress_bar(len(groups), progress) as advance:
            flow = writing.add(self._writer, groups, metadata or {}, skip_unreadable=skips, advance=advance)
            return await adrive(flow)

    def add_directory(
        self,
        path: str | PathLike[str],
        glob: str | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        on_error: OnError = "raise",
        progress: bool | None = None,
    ) -> Added:
        """Add the files of a directory, or replace those that have changed; their source is their absolute path.

        Links that lead out of the directory are left out. A file that is gone from it stays a document until `delete`.

        Args:
            path: of the directory.
            glob: which files, such as `"**/*.py"`; default: text, Markdown and PDF at any depth, but hidden ones.
            metadata: of all of them.
            on_error: what a file that cannot be read does: `raise`, or `skip` and be named in `failures`.
            progress: whether a progress bar is shown; None: on a terminal.

        Raises:
            DocumentError: there is no such directory, or a file cannot be read; those before it are added.
            InputError: a pattern that leads out of the directory.
            StoreError: the store cannot be written, or the embeddings of its index fail; adding again goes on from
                there.
        """
        groups, skips = self._groups(files_below(Path(path), glob), metadata), _skips(on_error)
        with progress_bar(len(groups), progress) as advance:
            flow = writing.add(self._writer, groups, metadata or {}, skip_unreadable=skips, advance=advance)
            return drive(flow)

    async def aadd_directory(
        self,
        path: str | PathLike[str],
        glob: str | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        on_error: OnError = "raise",
        progress: bool | None = None,
    ) -> Added:
        """Add the files of a directory, or replace those that have changed; see `add_directory`."""
        files = await asyncio.to_thread(files_below, Path(path), glob)
        groups, skips = self._groups(files, metadata), _skips(on_error)
        with progress_bar(len(groups), progress) as advance:
            flow = writing.add(self._writer, groups, metadata or {}, skip_unreadable=skips, advance=advance)
            return await adrive(flow)

    def update(
        self,
        source: str | PathLike[str],
        content: Document | str | PathLike[str],
        *,
        metadata: Mapping[str, Any] | None = None,
    ) -> Added:
        """Replace what a document says; its metadata stays where nothing new is given.

        A file, too, gives only its text: `add` takes title and date from it anew.

        Args:
            source: its source, or its id; of a file its path.
            content: the new content; the metadata of a `Document` are new.
            metadata: what changes of it.

        Raises:
            DocumentError: there is no such document, or the content cannot be read.
            StoreError: the store cannot be written, or the embeddings of its index fail.
        """
        return drive(writing.update(self._writer, named(source), items_of(content), metadata or {}))

    async def aupdate(
        self,
        source: str | PathLike[str],
        content: Document | str | PathLike[str],
        *,
        metadata: Mapping[str, Any] | None = None,
    ) -> Added:
        """Replace what a document says; see `update`."""
        return await adrive(writing.update(self._writer, named(source), items_of(content), metadata or {}))

    def delete(self, source: str | PathLike[str]) -> bool:
        """Delete a document, by its source or its id, with everything that was made of it; whether there was one.

        Raises:
            StoreError: the store cannot be written; deleting again goes on from there.
        """
        return drive(writing.delete(self._writer, named(source)))

    async def adelete(self, source: str | PathLike[str]) -> bool:
        """Delete a document; see `delete`."""
        return await adrive(writing.delete(self._writer, named(source)))

    def list(self) -> _Infos:
        """Every document, by source."""
        return [info_of(record) for record in drive(documents.listed(self.store, self._owner))]

    async def alist(self) -> _Infos:
        """Every document, by source."""
        return [info_of(record) for record in await adrive(documents.listed(self.store, self._owner))]

    def get(self, source: str | PathLike[str]) -> Document | None:
        """A document as it was given, whole, by its source or its id; None where there is none."""
        return drive(self._get(named(source)))

    async def aget(self, source: str | PathLike[str]) -> Document | None:
        """A document as it was given, whole; see `get`."""
        return await adrive(self._get(named(source)))

    def search(self, query: str, k: int = 4, *, max_tokens: int | None = None) -> _Documents:
        """The chunks that a query is about, best first.

        Their metadata has `id`, `document_id`, `source`, `title`, `date`, `type`, `heading`, `page`, `chunk` (its place
        in the document), `tokens`, `score` (0 to 1 within this result), `lexical`, `dense`, and what the caller gave.

        Args:
            query: what to look for.
            k: how many at most.
            max_tokens: what they may cost together, in tokens; a chunk that does not fit is skipped.

        Raises:
            InputError: a number that is not at least 1.
        """
        return drive(self._search(query, k, max_tokens))

    async def asearch(self, query: str, k: int = 4, *, max_tokens: int | None = None) -> _Documents:
        """The chunks that a query is about, best first; see `search`."""
        return await adrive(self._search(query, k, max_tokens))

    @property
    def _writer(self) -> Writer:
        return Writer(
            store=self.store,
            owner=self._owner,
            splitter=self._splitter,
            summary_model=self._summary_model,
            clock=self._clock,
        )

    @staticmethod
    def _groups(given: Given | Iterable[Given], metadata: Mapping[str, Any] | None) -> _Groups:
        groups = by_source(items_of(given))
        require_names_of_one(groups, metadata or {})
        return groups

    def _get(self, source: str) -> Flow[Document | None]:
        record = yield from writing.find(self._writer, source)
        if record is None:
            return None
        text = yield from documents.whole_text(self.store, self._owner, record)
        return None if text is None else whole_document(record, text)

    def _search(self, query: str, k: int, max_tokens: int | None) -> Flow[_Documents]:
        for name, value in (("k", k), ("max_tokens", max_tokens)):
            if (value is not None or name == "k") and (
                isinstance(value, bool) or not isinstance(value, int) or value < 1
            ):
                raise InputError(f"{name} must be a whole number of at least 1, not {value!r}")
        wanted = k if max_tokens is None else max(4 * k, documents.LEAST_POOL)
        hits = yield from documents.search(self.store, [self._owner], query, limit=wanted, embeddings=self.embeddings)
        found: _Documents = []
        left = max_tokens
        for hit in hits:
            if len(found) == k:
                break
            if left is not None:
                if hit.tokens > left:
                    continue
                left -= hit.tokens
            found.append(chunk_document(hit))
        return found


def _skips(on_error: str) -> bool:
    if on_error not in ("raise", "skip"):
        raise InputError(f"on_error must be 'raise' or 'skip', not {on_error!r}")
    return on_error == "skip"
