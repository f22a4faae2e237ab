"""A store, the conversations in it that are open, and the workers over them."""

import logging
import os
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from cachetools import LRUCache
from langchain_core.embeddings import Embeddings
from langchain_core.messages import BaseMessage
from langgraph.store.base import BaseStore

from langchain_ctxbudget import history, stores
from langchain_ctxbudget.errors import (
    ForeignUserError,
    InputError,
    InvalidSettingsError,
    StoreError,
)
from langchain_ctxbudget.flow import Call, Flow, T, drive
from langchain_ctxbudget.knowledge import Learning
from langchain_ctxbudget.messages import checked_messages, forget_texts, split_instructions
from langchain_ctxbudget.pipeline.beside import BesideReader, Stored, read_marks
from langchain_ctxbudget.pipeline.recent import RecentPrompts
from langchain_ctxbudget.pipeline.usage import Bookkeeping, Prices
from langchain_ctxbudget.prompt import Request
from langchain_ctxbudget.retrieval import Sources, search
from langchain_ctxbudget.search import LocalEmbeddings, Vectors, local_embeddings_available
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.tokens import ChatModel, TokenCounter
from langchain_ctxbudget.worker import AFTER_FORK, PAUSE_SECONDS, Cancelled, Worker, new_mutex

if TYPE_CHECKING:
    from langchain_ctxbudget.documents import Catalogue

_log = logging.getLogger(__name__)
V = TypeVar("V")
FOREIGN_THREAD = (
    "the thread %r is another user's: the prompt is made from the run's state, and nothing of it "
    "is stored, learned or found later; to hand the thread over, call `hand_over`; where people "
    "share threads, set on_foreign_thread='share'"
)
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

    Shared by threads and tasks.
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
        self._store = stores.PrivateStore() if store is None else store
        self._embeddings = embeddings
        self._summary_model = summary_model
        self._prices = prices
        self._closed = False
        self._process = os.getpid()
        self._of_runs: LruCache[Workspace] = LruCache()
        self.summarizing: history.Summarizing | None = None
        if summary_model is not None:
            self.summarizing = history.Summarizing(summary_model, self)
        self.sealing: Worker[stores.Scope] = Worker(self._seal)
        self.sealing_others: Worker[stores.Scope] = Worker(
            self._seal_other, pause_seconds=PAUSE_SECONDS
        )
        """Stores conversations in segments that were read for prompts of others."""
        self.libraries = history.Libraries(self._note_other)
        """The other conversations of users, as prompts search them."""
        self.vectors: dict[bytes, Vectors] = {}
        """Vectors of texts that were found outside of open conversations, by digests of the
        texts."""
        self._ahead: dict[stores.Scope, str] = {}
        """Words that are likely to come up, by the conversations that wait to be read ahead."""
        self.learning = Learning(self, summary_model)
        self.bookkeeping = Bookkeeping(lambda: self.store, clock, prices)

    @property
    def store(self) -> BaseStore:
        """The store of the conversations.

        A `StoreError` where the pipeline is closed, or of another process.
        """
        if self._closed:
            raise StoreError("This pipeline is closed; its store can no longer be used")
        if self._process != os.getpid():
            raise StoreError(
                "This pipeline belongs to the parent of this process, which was forked. "
                f"{AFTER_FORK}"
            )
        return self._store

    @property
    def store_name(self) -> str:
        """The store in short, also where the pipeline is closed."""
        if type(self._store).__repr__ is object.__repr__:
            return f"{type(self._store).__name__}()"
        return repr(self._store)

    def open_messages(self, scope: stores.Scope) -> int | None:
        """Returns how many messages an open conversation has; None where it is not open."""
        conversation = self.open_conversations.find(scope)
        return None if conversation is None else len(conversation.table)

    @cached_property
    def catalogue(self) -> "Catalogue":
        """The documents of the store, with a cache of those that were read."""
        from langchain_ctxbudget.documents import Catalogue  # noqa: PLC0415

        return Catalogue(self.store)

    @cached_property
    def embeddings(self) -> Embeddings | None:
        """The embeddings of retrieval; None where none were given and none are installed."""
        return self._embeddings or (LocalEmbeddings() if local_embeddings_available() else None)

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

    def close(self) -> None:
        """Writes everything that is pending and ends the background work.

        A store that was passed in stays open.
        """
        if self._process != os.getpid():
            return
        for other in self.of_runs():
            other.close()
        self.bookkeeping.close()
        self.sealing.close()
        self.sealing_others.close()
        self.learning.close()
        if self.summarizing:
            self.summarizing.worker.close()
        self._closed = True

    def finish(self) -> list[Worker[Any]]:
        """Returns the workers that are busy."""
        workers: list[Worker[Any]] = [self.learning.worker, self.sealing, self.sealing_others]
        if self.summarizing:
            workers.append(self.summarizing.worker)
        workers.append(self.bookkeeping.finish())
        for other in self.of_runs():
            workers += other.finish()
        return workers

    def flush(self, timeout_seconds: float | None) -> Flow[bool]:
        """Waits for all background work; returns False where that took too long."""
        until = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        is_done = True
        for worker in self.finish():
            seconds_left = None if until is None else max(0.0, until - time.monotonic())
            flushed = yield Call(
                partial(worker.flush, seconds_left), partial(worker.aflush, seconds_left)
            )
            is_done = is_done and flushed
        return is_done

    def using(
        self, scope: stores.Scope, body: Callable[[history.OpenConversation], Flow[T]]
    ) -> Flow[T]:
        """Runs a flow with a conversation, alone."""
        _ = self.store  # in the child of a fork, nobody lets go of the conversation's lock any more
        return self.open_conversations.using(scope, body)

    def recall(
        self, scope: stores.Scope, body: Callable[[history.OpenConversation], Flow[T]]
    ) -> Flow[T]:
        """Runs a flow with a conversation that is up to date, alone."""
        self.learning.worker.rest()  # somebody waits for this
        self.sealing_others.rest()

        def refreshed(conversation: history.OpenConversation) -> Flow[T]:
            yield from history.editing.refresh(self.store, conversation)
            return (yield from body(conversation))

        return self.using(scope, refreshed)

    def of_run(
        self, conversation: history.OpenConversation, thread: str, *, claims: bool = True
    ) -> Flow[history.OpenConversation]:
        """Returns the conversation that a run's messages belong to.

        One apart, where the thread is another user's.

        A thread that is nobody's yet becomes the user's, where the run `claims` it. One that was
        found to be the user's is not looked for again while the log goes on; another user's is, as
        it may be handed over.
        """
        scope = conversation.scope
        if not scope.is_kept or scope.is_shared or conversation.owned_thread == thread:
            return conversation
        if claims:
            is_foreign = not (yield from stores.owners.claim(self.store, scope, thread))
        else:
            is_foreign = yield from stores.owners.belongs_to_another(
                self.store, scope.user_id, thread
            )
        if not is_foreign:
            conversation.apart = None
            conversation.owned_thread = thread if claims else None
            return conversation
        because = FOREIGN_THREAD % thread
        if self.settings.on_foreign_thread == "error":
            raise ForeignUserError(
                f"The thread {thread!r} is another user's, and on_foreign_thread is 'error'. Take "
                "another thread_id, hand the thread over with `hand_over`, or set "
                "on_foreign_thread to 'show' or 'share'"
            )
        if conversation.apart is None:
            conversation.apart = conversation_apart(scope, because)
            _log.warning("%s", because)
        return conversation.apart

    def keep_guests(
        self,
        conversation: history.OpenConversation,
        messages: Sequence[BaseMessage],
        thread: str | None,
    ) -> Flow[None]:
        """Keeps which messages of an agent's state are not those of the thread's owner.

        Call it before they are copied.
        """
        scope = conversation.scope
        if thread is None or not scope.is_kept or scope.is_shared:
            return
        known_ids = conversation.table.positions
        newest_first: list[BaseMessage] = []
        for message in reversed(messages):
            if not message.id or message.id in known_ids:
                break
            newest_first.append(message)
        new_messages = newest_first[::-1]
        yield from stores.guests.keep(
            self.store, scope, thread, new_messages, conversation.own_turn
        )

    def change(
        self,
        scope: stores.Scope,
        change: Callable[[history.Editor], Flow[T]],
        on_removal: history.OnRemoval | None = None,
        *,
        surely: bool = True,
    ) -> Flow[T]:
        """Changes a conversation, and has it learned from in the background."""
        if on_removal not in (None, "archive", "forget"):
            raise InputError(f"on_removal must be 'archive' or 'forget', not {on_removal!r}")

        def body(conversation: history.OpenConversation) -> Flow[T]:
            table = conversation.table
            table.tree(self.settings.span_messages)  # it tells what was derived from what
            length = len(table)
            digest = table.digest()
            result = yield from change(history.Editor(self.store, conversation, self.writer_id))
            table = conversation.table
            is_only_extended = table.holds(length, digest)
            if not is_only_extended:  # what was edited or removed must not live on there
                yield from self.libraries.forget(scope)
            if on_removal is not None and (surely or not is_only_extended):
                yield from self.learning.forget(scope, conversation)
                if on_removal == "forget":
                    self.forget_by_text()
            table.read_ahead(length, self.settings.span_messages)
            self.learning.note(conversation)
            self.note_segments(conversation)
            return result

        return self.recall(scope, body)

    def note_segments(self, conversation: history.OpenConversation) -> None:
        """Stores in the background what is derived from older messages, if it is not stored."""
        if not conversation.scope.is_kept or isinstance(self.store, stores.PrivateStore):
            return
        if next(history.segments.lacking(conversation), None):
            self.sealing.submit(conversation.scope)

    def read_ahead(self, scope: stores.Scope, words: str) -> None:
        """Opens a conversation in the background and ranks it for some words.

        Its next prompt then embeds little.
        """
        self._ahead[scope] = words
        self.sealing.submit(scope)

    def _note_other(self, scope: stores.Scope) -> None:
        """Stores a conversation, which a prompt of another one has read, in segments."""
        if not isinstance(self.store, stores.PrivateStore):
            self.sealing_others.rest()  # the prompt is not made yet
            self.sealing_others.submit(scope)

    def _seal(self, scope: stores.Scope, cancelled: Cancelled) -> None:
        words = self._ahead.pop(scope, None)
        if words is not None:
            drive(self.recall(scope, partial(self._rank, words)))
        while not (cancelled or isinstance(self.store, stores.PrivateStore)):
            if not drive(self.recall(scope, partial(history.segments.seal, self.store))):
                break

    def _seal_other(self, scope: stores.Scope, cancelled: Cancelled) -> None:
        def step() -> Flow[bool]:
            opened = self.open_conversations.find(scope)
            return (yield from self.libraries.seal(self.store, scope, opened))

        while not cancelled and drive(self.open_conversations.alone(scope, step())):
            self.sealing_others.wait_for_pause()

    def _rank(self, words: str, conversation: history.OpenConversation) -> Flow[None]:
        scope = conversation.scope
        sources = Sources(
            catalogue=self.catalogue,
            user_id=scope.user_id,
            names=self.settings.sources if words else (),
            embeddings=self.embeddings,
            without_conversation=scope.conversation_id,
            vectors=self.vectors,
            others=self.libraries.of(scope.user_id),
        )
        yield from search(sources, words, 0, conversation.seen_with(self.counter))

    def sync(
        self,
        messages: Sequence[BaseMessage],
        scope: stores.Scope,
        on_removal: history.OnRemoval,
        *,
        task: bool = False,
    ) -> Flow[list[str]]:
        """Makes a conversation equal to an agent's state; see `Editor.sync`."""
        state = checked_messages(messages, "messages")
        return self.change(
            scope,
            lambda editor: editor.sync(state, on_removal, task=task),
            on_removal,
            surely=False,
        )

    def copy_state(
        self,
        scope: stores.Scope,
        messages: Sequence[BaseMessage],
        *,
        thread: str | None,
        task: bool = False,
    ) -> Flow[None]:
        """Copies an agent's state into the store, unless its thread is another user's.

        Where that fails, the next prompt does it, or says that it cannot.
        """
        _, state = split_instructions(checked_messages(messages, "messages"))

        def copy(editor: history.Editor) -> Flow[None]:
            if thread is not None:
                conversation = yield from self.of_run(editor.conversation, thread)
                if conversation is not editor.conversation:
                    return
                yield from self.keep_guests(conversation, state, thread)
            yield from editor.sync(state, "archive", task=task)

        try:
            yield from self.change(scope, copy, "archive", surely=False)
        except Exception as error:  # noqa: BLE001 - the state is the truth; the copy is tried again
            _log.warning(
                "conversation %r not copied to the store: %s", scope.conversation_id, error
            )

    def ask_for_rebuild(self, scope: stores.Scope, *, thread: str | None) -> Flow[None]:
        """Has the next prompt of a conversation written anew, with older messages compacted."""

        def body(conversation: history.OpenConversation) -> Flow[None]:
            if thread is not None:
                conversation = yield from self.of_run(conversation, thread, claims=False)
            if conversation.scope.is_kept:
                yield from self.read_marks(conversation)
            cuts = conversation.cuts.items()
            conversation.cuts = {key: cut.model_copy(update={"prefix": ""}) for key, cut in cuts}
            conversation.cuts_unsaved = True

        return self.recall(scope, body)

    def forget(self, conversation: history.OpenConversation) -> Flow[None]:
        """Lets go of what an open conversation holds, and of the reports that quote it."""
        yield from ()
        conversation.reset()
        self.recent.forget(lambda scope: scope == conversation.scope)

    def forget_by_text(self) -> None:
        """Lets go of what is kept by texts, of whichever conversation: their forms and vectors."""
        forget_texts()
        self.vectors.clear()

    def read_stored(
        self, conversation: history.OpenConversation, request: Request, failures: list[str]
    ) -> Flow[Stored]:
        """Reads what is stored beside a conversation; what cannot be read goes to `failures`."""
        self._name_maker(conversation)
        reader = BesideReader(
            self.store, self.settings, self.learning, conversation, request, failures
        )
        return (yield from reader.read())

    def read_marks(self, conversation: history.OpenConversation) -> Flow[None]:
        """Reads a conversation's compaction cuts and its pins.

        A `StoreError` where the pins cannot be read.
        """
        self._name_maker(conversation)
        yield from read_marks(self.store, conversation)

    def save_settings(
        self, settings: Mapping[str, Any], user_id: str, persona_id: str | None
    ) -> Flow[None]:
        """Saves the settings of a user or a persona; see `ContextPipeline.save_settings`."""
        if not isinstance(settings, Mapping):
            raise InvalidSettingsError(
                f"settings must be a mapping of their fields, not {type(settings).__name__}"
            )
        merged_settings = self.settings.override(settings)
        place = stores.settings_place(user_id, persona_id)
        yield from stores.write_settings(self.store, place, settings)
        if persona_id is not None:
            yield from self.learning.compile_persona(user_id, persona_id, merged_settings)

    def saved_settings(self, user_id: str, persona_id: str | None) -> Flow[dict[str, Any]]:
        """Returns the saved settings of a user or a persona; empty if there are none."""
        return stores.read_settings(self.store, stores.settings_place(user_id, persona_id))

    def export(self, user_id: str) -> Flow[list[str]]:
        """Returns all that is stored of a user; see `ContextPipeline.export_user`."""
        path = (stores.ROOT, stores.label(stores.require_id("user_id", user_id)))
        return stores.bulk.export_below(self.store, path, without=history.remade_kinds())

    def _name_maker(self, conversation: history.OpenConversation) -> None:
        maker = self.summarizing.summarizer.fingerprint if self.summarizing else ""
        conversation.table.span_digests.maker = maker


def conversation_apart(scope: stores.Scope, because: str) -> history.OpenConversation:
    """Returns an empty conversation in memory only, for a run whose thread is not the user's."""
    conversation = history.OpenConversation(replace(scope, is_kept=False))
    conversation.apart_because = because
    return conversation
