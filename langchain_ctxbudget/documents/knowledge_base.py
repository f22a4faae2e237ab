"""`KnowledgeBase`: documents in, chunks out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore

from langchain_ctxbudget.documents import find
from langchain_ctxbudget.documents.find import DocumentInfo, owner_of
from langchain_ctxbudget.documents.load import (
    CHUNK_TOKENS,
    OVERLAP_TOKENS,
    Given,
    Splitter,
    by_source,
    files_below,
    items_of,
    source_of,
)
from langchain_ctxbudget.documents.write import Added, Writer
from langchain_ctxbudget.errors import InputError, InvalidSettingsError, MissingScopeError, StoreError
from langchain_ctxbudget.flow import Flow, in_thread, twins
from langchain_ctxbudget.search import LocalEmbeddings, local_embeddings_available
from langchain_ctxbudget.stores import Clock, PrivateStore, utc_now, with_offset
from langchain_ctxbudget.tokens import TiktokenCounter, TokenCounter

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel  # takes 0.2 s to import

__all__ = ["Added", "DocumentInfo", "KnowledgeBase"]

OnError = Literal["raise", "skip"]


# Inside the class, `list` is its method.
_Documents: TypeAlias = list[Document]
_Infos: TypeAlias = list[DocumentInfo]


class KnowledgeBase:
    """Keeps documents of a user, or of everyone, that prompts may quote.

    Give it the store of a pipeline, and the pipeline finds the documents by itself. Text, Markdown and PDF files,
    LangChain documents and loaders are split into chunks by tokens; a chunk keeps its headings or its page. Adding
    what is there already writes nothing; of a changed document only the new chunks are embedded. Every document has a
    summary, for when it does not fit whole.

    A store with an index searches by meaning itself. Without one, words are searched (BM25), and vectors that are made
    in this process, of the first 20,000 chunks of an owner.

    Threads and tasks may share it. Every method that reads or writes has an async twin.

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
        clock: Clock = utc_now,
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
            summary_model: any chat model, to write summaries while documents are added; where it fails, and by
                default, sentences of the document itself stand instead.
            clock: tells when a write began, in UTC where it names no offset.

        Raises:
            InvalidSettingsError: an argument of another kind, or a size outside its range.
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
        self._summary_model, self._clock = summary_model, with_offset(clock)
        self._embeddings = embeddings
        self._store, self._owns_store, self._closed = store, store is None, False

    def __repr__(self) -> str:
        return f"KnowledgeBase({'shared=True' if self.user_id is None else f'user_id={self.user_id!r}'})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes a store that was opened here; a store that was passed in stays open."""
        if self._owns_store and isinstance(self._store, PrivateStore):
            self._store.close()
        self._closed = True

    @property
    def store(self) -> BaseStore:
        """The store of the documents.

        Raises:
            StoreError: the knowledge base is closed.
        """
        if self._closed:
            raise StoreError("This knowledge base is closed; its store can no longer be used")
        if self._store is None:
            self._store = PrivateStore()
        return self._store

    @property
    def embeddings(self) -> Embeddings | None:
        """The embeddings for a store without an index; None where none were given and none are installed."""
        if self._embeddings is None and local_embeddings_available():
            self._embeddings = LocalEmbeddings()
        return self._embeddings

    def _add(
        self,
        documents: Given | Iterable[Given],
        *,
        metadata: Mapping[str, Any] | None = None,
        on_error: OnError = "raise",
        progress: bool | None = None,
    ) -> Flow[Added]:
        """Adds documents, or replaces those with the same source.

        LangChain documents with the same `source` in their metadata, such as the pages of a PDF, are one document.
        The source of a file that is given by its path is its absolute path.

        Args:
            documents: one or several of: a `Document`, a string (the text itself), a path, a `BaseLoader`.
            metadata: of all of them: `source`, `title`, `date` (`YYYY-MM-DD`), `type`, and anything else.
            on_error: `raise`, or `skip` a document that cannot be read and name it in `failures`.
            progress: True shows a progress bar; None shows it on a terminal.

        Returns:
            the ids of documents that are new, have changed, and are unchanged.

        Raises:
            DocumentError: one cannot be read, or has no text, or a loader fails; those before it are added.
            StoreError: the store cannot be written, or the embeddings of its index fail; adding again goes on from
                there.
        """
        if on_error not in ("raise", "skip"):
            raise InputError(f"on_error must be 'raise' or 'skip', not {on_error!r}")
        given = metadata or {}
        groups = by_source(items_of(documents), given)
        with _progress_bar(len(groups), progress) as advance:
            return (yield from self._writer.add(groups, given, advance, skip_unreadable=on_error == "skip"))

    add, aadd = twins(_add)

    def _add_directory(
        self,
        path: str | PathLike[str],
        glob: str | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        on_error: OnError = "raise",
        progress: bool | None = None,
    ) -> Flow[Added]:
        """Adds the files of a directory, or replaces those that have changed; see `add`.

        Links that lead out of the directory are left out. A file that is gone from it stays a document until `delete`.

        Args:
            path: of the directory.
            glob: which files, such as `"**/*.py"`; default: text, Markdown and PDF at any depth, but hidden ones.
            metadata: of all of them.
            on_error: as for `add`.
            progress: as for `add`.

        Raises:
            DocumentError: there is no such directory, or a file cannot be read; those before it are added.
            InputError: a pattern that leads out of the directory.
        """
        files = yield in_thread(lambda: files_below(Path(path), glob))
        return (yield from self._add(files, metadata=metadata, on_error=on_error, progress=progress))

    add_directory, aadd_directory = twins(_add_directory)

    def _update(
        self,
        source: str | PathLike[str],
        content: Document | str | PathLike[str],
        *,
        metadata: Mapping[str, Any] | None = None,
    ) -> Flow[Added]:
        """Replaces the text of a document; its metadata stay where nothing new is given.

        A file, too, gives only its text: `add` takes title and date from it anew.

        Args:
            source: its source, or its id; of a file its path.
            content: the new content; the metadata of a `Document` are new.
            metadata: the metadata that change.

        Raises:
            DocumentError: there is no such document, or the content cannot be read.
            StoreError: the store cannot be written, or the embeddings of its index fail.
        """
        return (yield from self._writer.update(source_of(source), items_of(content), metadata or {}))

    update, aupdate = twins(_update)

    def _delete(self, source: str | PathLike[str]) -> Flow[bool]:
        """Deletes a document, by its source or its id; returns False where there was none.

        Raises:
            StoreError: the store cannot be written; deleting again goes on from there.
        """
        return (yield from self._writer.delete(source_of(source)))

    delete, adelete = twins(_delete)

    def _list(self) -> Flow[_Infos]:
        """Returns every document, by source."""
        return (yield from find.listed(self.store, self._owner))

    list, alist = twins(_list)

    def _get(self, source: str | PathLike[str]) -> Flow[Document | None]:
        """Returns a document as it was given, whole, by its source or its id; None where there is none."""
        record = yield from self._writer.find(source_of(source))
        text = (yield from find.whole_text(self.store, self._owner, record)) if record else None
        if record is None or text is None:
            return None
        return Document(text, id=record.id, metadata={**record.metadata, **record.about()})

    get, aget = twins(_get)

    def _search(self, query: str, k: int = 4, *, max_tokens: int | None = None) -> Flow[_Documents]:
        """Returns the chunks that a query is about, best first.

        Their metadata have `id`, `document_id`, `source`, `title`, `date`, `type`, `heading`, `page`, `chunk` (its
        place in the document), `tokens`, `score` (0 to 1 within this result), `lexical`, `dense`, and everything that
        the caller or the loader gave: a name that is one of these stands under `given_` and the name.

        Args:
            query: what to look for.
            k: how many at most.
            max_tokens: what they may cost together, in tokens; a chunk that does not fit is skipped.

        Raises:
            InputError: a number that is not at least 1.
        """
        for name, value in (("k", k), ("max_tokens", 1 if max_tokens is None else max_tokens)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"{name} must be a whole number of at least 1, not {value!r}")
        wanted = k if max_tokens is None else max(4 * k, find.LEAST_POOL)
        embeddings = yield in_thread(lambda: self.embeddings)
        chunks = yield from find.search(self.store, [self._owner], query, limit=wanted, embeddings=embeddings)
        found: _Documents = []
        for it, tokens, score, lexical, dense in chunks:
            if len(found) < k and (max_tokens is None or tokens <= max_tokens):
                max_tokens = max_tokens and max_tokens - tokens
                own = {"id": it.id, "tokens": tokens, "score": score, "lexical": lexical, "dense": dense}
                found.append(Document(it.text, id=it.id, metadata=find.beside(it.metadata, own)))
        return found

    search, asearch = twins(_search)

    @property
    def _writer(self) -> Writer:
        return Writer(self.store, self._owner, self._splitter, self._summary_model, self._clock)


@contextmanager
def _progress_bar(total: int, shown: bool | None) -> Iterator[Callable[[int], None]]:  # noqa: FBT001 - the caller's own
    """Shows a progress bar on stderr; yields the function that moves it on."""
    if not (sys.stderr.isatty() if shown is None else shown):
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 - not needed where nobody looks
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("documents", total=total)
        yield lambda done: progress.advance(task, done)
