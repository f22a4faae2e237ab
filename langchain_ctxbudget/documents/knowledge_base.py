"""`KnowledgeBase`: documents in, chunks out.

A writer who is killed leaves nothing that is shown or lost, because the order of writes is always the same: new chunks
and texts; the manifest, which says what belongs to the document from now on; deletion of what no longer does. Of two
processes that write the same document at the same moment, one may delete chunks of the other, which searches tell of.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import Any, NamedTuple, TypeAlias

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore, GetOp, PutOp

from langchain_ctxbudget import errors
from langchain_ctxbudget.documents import catalogue, load
from langchain_ctxbudget.documents.catalogue import Catalogue, DocumentInfo, PartRecord, beside, namespace
from langchain_ctxbudget.documents.load import Given, NewDocument, digest
from langchain_ctxbudget.flow import Flow, Lock, T, batch, in_thread, locked, twins
from langchain_ctxbudget.history import Line, Sentence, choose, keep_sentences
from langchain_ctxbudget.messages import one_line
from langchain_ctxbudget.search import LocalEmbeddings, local_embeddings_available, shrink_to
from langchain_ctxbudget.stores import PrivateStore, bulk, has_index, new_token, read_all, written
from langchain_ctxbudget.tokens import TiktokenCounter, TokenCounter

SUMMARY_TOKENS, SMALLEST_CHUNK_TOKENS = 200, 16
_SEGMENT = 20
"""Chunks from which sentences are picked together."""
_locks = [Lock() for _ in range(256)]
"""Held by whoever writes documents of an owner, through whichever store object."""

# Inside the class, `list` is its method.
_Documents: TypeAlias = list[Document]
_Infos: TypeAlias = list[DocumentInfo]


class Added(NamedTuple):
    """Ids of the documents that were added, in order."""

    added: tuple[str, ...]
    updated: tuple[str, ...]
    unchanged: tuple[str, ...]
    """Documents that were there and are the same: nothing was written."""


@errors.checks_names()
class KnowledgeBase:
    """Keeps documents of a user, or of everyone, that prompts may quote.

    Give it the store of a pipeline, and the pipeline finds the documents by itself. Text, Markdown and PDF files and
    LangChain documents are split into chunks by tokens; a chunk keeps its headings or its page. Adding
    what is there already writes nothing; of a changed document only the new chunks are embedded. Every document has a
    summary, for when it does not fit whole: the `summary` in its metadata, else some of its own sentences.

    A store with an index searches by meaning itself. Without one, words are searched (BM25), and vectors that are made
    in this process. Threads and tasks may share it.

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

        An argument of another kind, or a size outside its range, is an `InvalidSettingsError`; where there is neither a
        user nor `shared`, that is a `MissingScopeError`.
        """
        if user_id is not None and shared:
            raise errors.InvalidSettingsError("Documents are a user's or everyone's: user_id or shared=True, not both")
        if user_id is None and shared is not True:
            raise errors.MissingScopeError("Give the user_id whose documents these are, or shared=True for everyone's")
        errors.require_kind("store", store, BaseStore)
        errors.require_kind("embeddings", embeddings, Embeddings)
        errors.require_kind("token_counter", token_counter, TokenCounter)
        wrong = errors.InvalidSettingsError
        errors.require_count("chunk_tokens", chunk_tokens, SMALLEST_CHUNK_TOKENS, kind=wrong)
        most = chunk_tokens // 2  # with more, chunks would say mostly the same
        errors.require_count("chunk_overlap_tokens", chunk_overlap_tokens, 0, most, kind=wrong)
        self.user_id = user_id
        self.store = PrivateStore() if store is None else store
        self.embeddings = embeddings or (LocalEmbeddings() if local_embeddings_available() else None)
        """For a store without an index; None where none were given and none are installed."""
        self._owner = catalogue.owner_of(user_id)
        self._catalogue = Catalogue(self.store)
        self._manifest = namespace(self._owner, "manifest")
        self._counter = token_counter or TiktokenCounter()
        self._sizes = (chunk_tokens, chunk_overlap_tokens)

    def _add(self, documents: Given | Iterable[Given], *, metadata: Mapping[str, Any] | None = None) -> Flow[Added]:
        """Adds documents, or replaces those with the same source; returns which are new, changed and unchanged.

        LangChain documents with the same `source` in their metadata, such as the pages of a PDF, are one document.
        The source of a file that is given by its path is its absolute path.

        Args:
            documents: one or several of: a `Document`, a string (the text itself), a path. Of a folder give
                `Path("docs").rglob("*.md")`, of a loader `loader.lazy_load()`.
            metadata: of all of them: `source`, `title`, `date` (`YYYY-MM-DD`), `type`, `summary`, and anything else.

        One that cannot be read, or has no text, is a `DocumentError`; those before it are added. Where the store cannot
        be written, or the embeddings of its index fail, that is a `StoreError`; adding again goes on from there.
        """
        given = metadata or {}
        done = {outcome: list[str]() for outcome in Added._fields}
        for group in (yield in_thread(lambda: load.by_source(documents, given))):
            new = yield in_thread(partial(load.read, group, given))
            id_ = self._id_of(new.about["source"])
            outcome = yield from self._alone(self._write(id_, new))
            done[outcome].append(id_)
        return Added(*map(tuple, done.values()))

    def _delete(self, source: str | PathLike[str]) -> Flow[bool]:
        """Deletes a document, by its source; returns False where there was none.

        Raises `StoreError` where the store cannot be written; deleting again goes on from there.
        """
        id_ = self._id_of(load.source_of(source))

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
        record = yield from self._record(self._id_of(load.source_of(source)))
        text = (yield from self._catalogue.whole_text(self._owner, record)) if record else None
        if record is None or text is None:
            return None
        return Document(text, id=record.id, metadata={**record.metadata, **record.about()})

    def _search(self, query: str, k: int = 4) -> Flow[_Documents]:
        """Returns the chunks that a query is about, best first, `k` at most (at least 1, else `InputError`).

        Their metadata have `id`, `document_id`, `source`, `title`, `date`, `type`, `heading`, `page`, `chunk` (its
        place in the document), `tokens`, `score` (0 to 1 within this result), `lexical`, `dense`, and everything that
        the caller or the loader gave: a name that is one of these stands under `given_` and the name.
        """
        errors.require_count("k", k)
        found = yield from self._catalogue.search([self._owner], query, limit=k, embeddings=self.embeddings)
        return [Document(it.text, id=it.id, metadata=beside(it.metadata, {"id": it.id, **own})) for it, own in found]

    def _id_of(self, source: str) -> str:
        """Returns the id of a document: the same for one source, another for every user."""
        return digest(f"{self._owner}\0{source}")

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
        there = [item.key for item in (yield from read_all(self.store, where)) if item.key not in kept]
        yield from bulk.write(self.store, [PutOp(where, key, None) for key in there])

    def _write(self, id_: str, new: NewDocument) -> Flow[str]:
        """Writes a document, while nobody else does, in the order that survives a kill; returns a field of `Added`."""
        cut = [(part.heading, part.metadata, len(part.text)) for part in new.parts]
        made_from = digest(repr((new.about, cut, self._sizes, self._counter.name, has_index(self.store))))
        old = yield from self._record(id_)
        if old and old.made_from == made_from:
            yield from self._clear(id_, old.keys)
            return "unchanged"
        record, parts = yield in_thread(partial(self._split, id_, new, made_from))
        yield from bulk.write(self.store, [part for part in parts if not old or part.key not in old.keys])
        yield from batch(self.store, [written(GetOp(self._manifest, id_), record), self._new_mark()])
        yield from self._clear(id_, record.keys)
        return "updated" if old else "added"

    def _split(self, id_: str, new: NewDocument, made_from: str) -> tuple[DocumentInfo, Sequence[PutOp]]:
        """Returns the record of a document, and the puts of its whole text and its chunks."""
        counter = self._counter
        where, whole = namespace(self._owner, "parts", id_), new.about["hash"]
        puts = {whole: written(GetOp(where, whole), PartRecord(text=new.text))}
        chunks, keys = list[str](), list[str]()
        for part in new.parts:
            for chunk in load.split(part.text, counter, *self._sizes):
                told = {"heading": part.heading, "metadata": dict(part.metadata)}
                keys.append(key := digest(repr((chunk, told, has_index(self.store)))))
                value = PartRecord(text=chunk, tokens=counter.count_text(chunk), **told).to_value()
                puts[key] = PutOp(where, key, value, index=["text"])
                chunks.append(chunk)
        given = one_line(str(new.about["metadata"].get("summary") or ""))
        record = DocumentInfo(
            id=id_,
            **new.about,
            tokens=counter.count_text(new.text),
            summary=shrink_to(given, counter.count_text, SUMMARY_TOKENS) or extract(new.text, chunks, counter),
            made_from=made_from,
            parts=tuple(keys),
        )
        return record, list(puts.values())

    add, aadd = twins(_add)
    delete, adelete = twins(_delete)
    list, alist = twins(_list)
    get, aget = twins(_get)
    search, asearch = twins(_search)


def extract(text: str, chunks: Sequence[str], counter: TokenCounter, budget_tokens: int = SUMMARY_TOKENS) -> str:
    """Returns the most telling sentences of a document, in order; the whole text where it fits."""
    if counter.count_text(text) <= budget_tokens:
        return text
    kept: list[Sentence] = []
    for first in range(0, len(chunks), _SEGMENT):
        segment = enumerate(chunks[first : first + _SEGMENT], first)
        kept += keep_sentences(Line(number, "", None, chunk, from_user=False) for number, chunk in segment)
    # A space more for each, since what is joined may be counted in other pieces.
    chosen = choose(kept, [counter.count_text(sentence.text) + 1 for sentence in kept], budget_tokens)
    picked = " ".join(kept[number].text for number in chosen)
    # A text without sentences (a table, a log, one long word) gives its beginning.
    return shrink_to(picked or text[:budget_tokens], counter.count_text, budget_tokens) or text[: budget_tokens // 4]
