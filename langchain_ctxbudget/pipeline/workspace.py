"""A store, the conversations in it that are open, and what is kept in memory over it."""

import logging
import os
from collections.abc import Callable, Collection, Hashable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

from cachetools import LRUCache
from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore

from langchain_ctxbudget import history, stores
from langchain_ctxbudget.errors import InputError, StoreError
from langchain_ctxbudget.flow import Flow, T
from langchain_ctxbudget.llm import AnsweredCall
from langchain_ctxbudget.messages import forget_texts
from langchain_ctxbudget.pipeline.beside import BesideReader, Stored, read_marks
from langchain_ctxbudget.pipeline.recent import RecentPrompts
from langchain_ctxbudget.pipeline.threads import RunThread
from langchain_ctxbudget.pipeline.under_way import SessionsUnderWay
from langchain_ctxbudget.pipeline.usage import Prices
from langchain_ctxbudget.pipeline.workers import BusyWorkers, Workers
from langchain_ctxbudget.prompt import Request
from langchain_ctxbudget.retrieval import Sources
from langchain_ctxbudget.search import (
    Candidate,
    Encoder,
    LocalEmbeddings,
    Vectors,
    local_embeddings_available,
)
from langchain_ctxbudget.settings import ContextSettings, Source
from langchain_ctxbudget.tokens import ChatModel, TokenCounter
from langchain_ctxbudget.worker import AFTER_FORK, new_mutex

if TYPE_CHECKING:
    from langchain_ctxbudget.documents import Catalogue

_log = logging.getLogger(__name__)
V = TypeVar("V")
MOST_KEPT = 16
"""Workspaces and models of runs that are kept; one more is let go of, but not closed, as a run may
use it."""


class LruCache(Generic[V]):
    """A small cache for threads; the value that was unused for longest goes first."""

    def __init__(self) -> None:
        self._mutex = new_mutex()
        self._values: LRUCache[Hashable, V] = LRUCache(MOST_KEPT)

    def find(self, key: Hashable, make: Callable[[], V]) -> V:
        """Returns the value under a key; makes it if there is none."""
        with self._mutex:
            if key not in self._values:
                self._values[key] = make()
            return self._values[key]

    def all(self) -> list[V]:
        """Returns everything that is kept."""
        with self._mutex:
            return list(self._values.values())


class Workspace:
    """A store, the conversations in it that are open, and the workers over them.

    Shared by threads and tasks. What is done with one conversation is `StoredConversation`.
    """

    def __init__(
        self,
        settings: ContextSettings,
        counter: TokenCounter,
        *,
        store: BaseStore | None = None,
        embeddings: Embeddings | None = None,
        writer_id: str | None = None,
        summary_model: "ChatModel | None" = None,
        clock: stores.Clock,
        prices: Prices | None = None,
        recent: RecentPrompts | None = None,
    ) -> None:
        """Sets up as `ContextPipeline` says; nothing is read or written before it is needed."""
        self.settings = settings
        self.counter = counter
        self.clock = clock
        self.writer_id = stores.label(writer_id) if writer_id else stores.new_token()
        self.recent = recent or RecentPrompts()
        self.open_conversations = history.OpenConversations()
        self.sessions_under_way = SessionsUnderWay()
        self.vectors: dict[bytes, Vectors] = {}
        """Vectors of texts that were found outside of open conversations, by digests of the
        texts."""
        self._store = stores.PrivateStore() if store is None else store
        self._embeddings = embeddings
        self._summary_model = summary_model
        self._prices = prices
        self._closed = False
        self._process = os.getpid()
        self._of_runs: LruCache[Workspace] = LruCache()
        self._has_told_of_own = False
        self.workers = Workers(self, summary_model, prices)
        self.libraries = history.Libraries(self.workers.sealing.note_other)
        """The other conversations of users, as prompts search them."""
        self.read_ahead = self.workers.sealing.read_ahead

    def note_call(self, scope: stores.Scope, call: AnsweredCall) -> None:
        """Counts a call of the model that learns and sums up as usage of a conversation."""
        bookkeeping = self.workers.bookkeeping
        with suppress(InputError):  # a provider's numbers that are none
            bookkeeping.note_own(scope, call)
            bookkeeping.worker.submit(scope.user_id)

    # The store

    @property
    def store(self) -> BaseStore:
        """The store of the conversations.

        A `StoreError` where the pipeline is closed, or of another process.
        """
        self._require_store()
        return self._store

    def _require_store(self) -> None:
        """Raises a `StoreError` where the pipeline is closed, or of another process.

        In the child of a fork, nobody lets go of a conversation's lock any more.
        """
        if self._closed:
            raise StoreError("This pipeline is closed; its store can no longer be used")
        if self._process != os.getpid():
            raise StoreError(
                "This pipeline belongs to the parent of this process, which was forked. "
                f"{AFTER_FORK}"
            )

    @property
    def store_name(self) -> str:
        """The store in short, also where the pipeline is closed."""
        if type(self._store).__repr__ is object.__repr__:
            return f"{type(self._store).__name__}()"
        return repr(self._store)

    def over_store(self, store: BaseStore | None) -> "Workspace":
        """Returns the same over the store that a run brought along; None is this one."""
        if store is None or store is self._store:
            return self
        return self._of_runs.find(id(store), lambda: self._same_over(store))

    def _same_over(self, store: BaseStore) -> "Workspace":
        return Workspace(
            self.settings,
            self.counter,
            store=store,
            embeddings=self._embeddings,
            summary_model=self._summary_model,
            clock=self.clock,
            prices=self._prices,
            recent=self.recent,
        )

    def of_runs(self) -> list["Workspace"]:
        """Returns the workspaces over the stores that runs brought along."""
        return self._of_runs.all()

    def where_kept(self) -> "Workspace":
        """Returns the workspace over the store in which the conversations are.

        A pipeline that was given no store, and whose own one is empty, has its conversations in
        the store that its runs have brought along.

        Raises:
            StoreError: Runs have brought several, so that nobody can tell which one is meant.
        """
        places = self.places_kept()
        if len(places) > 1:
            names = ", ".join(place.store_name for place in places)
            raise StoreError(
                f"This pipeline was given no store, and its runs have brought {len(places)} "
                f"({names}), so it cannot tell which one to read or write. Make a pipeline over "
                "the one you mean: ContextPipeline(store=...)"
            )
        return places[0]

    def places_kept(self) -> list["Workspace"]:
        """Returns the workspaces in which the conversations may be; nearly always one."""
        of_runs = self.of_runs()
        if not of_runs or not isinstance(self._store, stores.PrivateStore):
            return [self]
        if self._store.is_empty():
            return of_runs
        if not self._has_told_of_own:
            self._has_told_of_own = True
            _log.warning(
                "A pipeline without a store reads what it has in memory, and not what its runs "
                "keep in %s. Give it that store: ContextPipeline(store=...)",
                ", ".join(place.store_name for place in of_runs),
            )
        return [self]

    def everywhere(self, body: Callable[["Workspace"], Flow[T]]) -> Flow[list[T]]:
        """Runs a flow in this workspace and in those over the stores that runs brought along.

        It runs in all of them, also where one of the stores fails; then the first error is raised.
        """
        results: list[T] = []
        errors: list[Exception] = []
        for workspace in (self, *self.of_runs()):
            try:
                results.append((yield from body(workspace)))
            except Exception as error:  # noqa: BLE001 - raised below
                errors.append(error)
        if errors:
            raise errors[0]
        return results

    def close(self) -> None:
        """Writes everything that is pending and ends the background work.

        A store that was passed in stays open.
        """
        if self._process != os.getpid():
            return
        for other in self.of_runs():
            other.close()
        self.workers.close()
        self._closed = True

    def busy_workers(self) -> BusyWorkers:
        """Returns the workers that have to be waited for, over all stores."""
        workers = self.workers.busy()
        for other in self.of_runs():
            workers += other.busy_workers()
        return workers

    # What is searched

    @cached_property
    def catalogue(self) -> "Catalogue":
        """The documents of the store, with a cache of those that were read."""
        from langchain_ctxbudget.documents import Catalogue  # noqa: PLC0415

        return Catalogue(self.store)

    @cached_property
    def embeddings(self) -> Embeddings | None:
        """The embeddings of retrieval; None where none were given and none are installed."""
        return self._embeddings or (LocalEmbeddings() if local_embeddings_available() else None)

    @cached_property
    def encoder(self) -> Encoder:
        """The encoder of sentences; an `EmbeddingsUnavailableError` where it is not installed."""
        return Encoder()

    def encoder_for(self, settings: ContextSettings) -> Encoder | None:
        """Returns the encoder of sentences, where settings ask for it."""
        return self.encoder if settings.encoder else None

    def sources(
        self,
        user_id: str,
        names: Collection[Source],
        *,
        without_conversation: str | None,
        memories: Sequence[Candidate] = (),
        summaries_only: bool = False,
    ) -> Sources:
        """Returns where a search for a user looks, besides the conversation that is open.

        Args:
            user_id: the user.
            names: the sources that are searched.
            without_conversation: the conversation that is open, if any.
            memories: the facts about the user, where they are searched.
            summaries_only: True if documents come as their summaries.
        """
        others = history.OtherConversations()
        if "conversations" in names:
            others = self.libraries.of(user_id)
        return Sources(
            catalogue=self.catalogue,
            user_id=user_id,
            names=names,
            embeddings=self.embeddings,
            encoder=self.encoder_for(self.settings),
            without_conversation=without_conversation,
            memories=memories,
            summaries_only=summaries_only,
            vectors=self.vectors,
            others=others,
        )

    # Open conversations

    def open_messages(self, scope: stores.Scope) -> int | None:
        """Returns how many messages an open conversation has; None where it is not open."""
        conversation = self.open_conversations.find(scope)
        return None if conversation is None else len(conversation.table)

    def using(
        self, scope: stores.Scope, body: Callable[[history.OpenConversation], Flow[T]]
    ) -> Flow[T]:
        """Runs a flow with a conversation, alone."""
        self._require_store()
        self.workers.sweeping.note()
        return self.open_conversations.using(scope, body)

    def recall(
        self, scope: stores.Scope, body: Callable[[history.OpenConversation], Flow[T]]
    ) -> Flow[T]:
        """Runs a flow with a conversation that is up to date, alone."""
        self.workers.rest()

        def refreshed(conversation: history.OpenConversation) -> Flow[T]:
            yield from history.editing.refresh(self.store, conversation)
            return (yield from body(conversation))

        return self.using(scope, refreshed)

    def thread_of_run(self, thread_id: str | None) -> RunThread | None:
        """Returns the thread whose state a run has; None where it has no thread."""
        if thread_id is None:
            return None
        return RunThread(
            id=thread_id,
            store=self.store,
            refuses_foreign=self.settings.on_foreign_thread == "error",
        )

    def forget(self, conversation: history.OpenConversation) -> Flow[None]:
        """Lets go of what an open conversation holds, and of the reports that quote it."""
        yield from ()
        conversation.reset()
        self.forget_prompts(lambda scope: scope == conversation.scope)

    def forget_prompts(self, is_gone: Callable[[stores.Scope], bool]) -> None:
        """Lets go of reports of some conversations, and of prompts that are under way there."""
        self.recent.forget(is_gone)
        self.sessions_under_way.forget(is_gone)

    def forget_by_text(self) -> None:
        """Lets go of what is kept by texts, of whichever conversation: their forms and vectors."""
        forget_texts()
        self.vectors.clear()

    def forget_apart(self, is_chosen: Callable[[stores.Scope], bool]) -> Flow[None]:
        """Forgets what runs in other users' threads have in memory, of the chosen conversations."""

        def forget(conversation: history.OpenConversation) -> Flow[None]:
            yield from ()
            conversation.apart = None

        for scope, conversation in self.open_conversations.all().items():
            if conversation.apart is not None and is_chosen(scope):
                yield from self.using(scope, forget)
        self.forget_prompts(lambda scope: not scope.is_kept and is_chosen(scope))

    # What is stored beside a conversation

    def read_stored(
        self, conversation: history.OpenConversation, request: Request, failures: list[str]
    ) -> Flow[Stored]:
        """Reads what is stored beside a conversation; what cannot be read goes to `failures`."""
        self._name_maker(conversation)
        reader = BesideReader(
            self.store, self.settings, self.workers.learning, conversation, request, failures
        )
        return (yield from reader.read())

    def read_marks(self, conversation: history.OpenConversation) -> Flow[None]:
        """Reads a conversation's compaction cuts and its pins.

        A `StoreError` where the pins cannot be read.
        """
        self._name_maker(conversation)
        yield from read_marks(self.store, conversation)

    def _name_maker(self, conversation: history.OpenConversation) -> None:
        """Names in a conversation the model that writes its summaries."""
        summarizing = self.workers.summarizing
        maker = summarizing.summarizer.fingerprint if summarizing else ""
        conversation.table.span_digests.maker = maker
