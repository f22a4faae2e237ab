"""A store and everything that a pipeline keeps beside it: open conversations, workers, and what was assembled last."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from langchain_core.embeddings import Embeddings
from langchain_core.messages import BaseMessage
from langgraph.store.base import BaseStore, PutOp

from langchain_ctxbudget.background import BackgroundWorker, beginning_anew, new_mutex, renamed
from langchain_ctxbudget.documents.find import forget
from langchain_ctxbudget.errors import InputError, InvalidSettingsError, StoreError
from langchain_ctxbudget.flow import Flow, T, batch, locked
from langchain_ctxbudget.history import editing, log, message_log, message_pages
from langchain_ctxbudget.history.coverage import ledger
from langchain_ctxbudget.history.log import OnRemoval
from langchain_ctxbudget.history.message_log import JOINED, LANES
from langchain_ctxbudget.history.message_pages import MessagePage
from langchain_ctxbudget.history.open import OpenConversation, OpenConversations, in_use
from langchain_ctxbudget.history.stored_summaries import ConversationCompaction
from langchain_ctxbudget.history.summarizing import Summarizing, compactions
from langchain_ctxbudget.knowledge import known
from langchain_ctxbudget.knowledge.learner import Learning
from langchain_ctxbudget.knowledge.taking import still_there
from langchain_ctxbudget.messages.messages import checked, split_instructions
from langchain_ctxbudget.messages.preservation import Preservation
from langchain_ctxbudget.messages.text import forget_texts
from langchain_ctxbudget.pipeline.bookkeeping import Bookkeeping, Prices
from langchain_ctxbudget.pipeline.opening import (
    Stored,
    cuts_place,
    pins_place,
    read_stored,
    take_up_cuts,
    take_up_pins,
)
from langchain_ctxbudget.pipeline.recent import Last
from langchain_ctxbudget.prompt.request import Request, merged
from langchain_ctxbudget.report.report import CoverageState
from langchain_ctxbudget.search.embeddings import LocalEmbeddings, local_embeddings_available
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores import bulk, saved_settings
from langchain_ctxbudget.stores.bulk import PrivateStore
from langchain_ctxbudget.stores.records import ROOT, PinsRecord, Scope, label, require_id
from langchain_ctxbudget.tokens.counters import TokenCounter

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

_log = logging.getLogger(__name__)


class Workspace:
    """A store, the conversations in it that are open, and the workers over them; shared by threads and tasks.

    Pipelines for several models share one. What it has opened is closed with the last of them.
    """

    def __init__(
        self,
        *,
        settings: ContextSettings,
        counter: TokenCounter,
        store: BaseStore | None,
        embeddings: Embeddings | None,
        writer_id: str | None,
        summary_model: BaseChatModel | None,
        clock: Callable[[], datetime] | None,
        prices: Prices | None,
    ) -> None:
        """Sets up; nothing is read or written before it is needed.

        Args:
            settings: of the pipeline.
            counter: how summaries and what is learned are counted.
            store: None makes a private one.
            embeddings: None takes the local ones, where they are installed.
            writer_id: None makes one.
            summary_model: writes summaries; None leaves them to extraction.
            clock: tells what time it is; None takes the computer's.
            prices: of models, over those that come with the package.
        """
        self.settings, self.counter = settings, counter
        self.writer_id = label(writer_id) if writer_id else uuid4().hex
        self.last = Last()
        self.open_conversations = OpenConversations()
        self._store, self._owns_store = store, store is None
        self._embeddings = embeddings
        self._users, self._closed = 1, False
        self._mutex = new_mutex()
        self.summarizing = Summarizing(summary_model, self, clock) if summary_model is not None else None
        self.learning = Learning(self, summary_model, clock)
        self.bookkeeping = Bookkeeping(self, clock, prices)
        beginning_anew(self)

    def begin_anew(self) -> None:
        """Writes under a name of its own in the child of a fork."""
        self.writer_id = renamed(self.writer_id)

    def over(self, store: BaseStore) -> Workspace:
        """Returns a workspace of the same kind over another store, which a run brought along."""
        other = Workspace(
            settings=self.settings,
            counter=self.counter,
            store=store,
            embeddings=self._embeddings,
            writer_id=None,
            summary_model=self.summarizing.model if self.summarizing else None,
            clock=self.learning.clock,
            prices=self.bookkeeping.prices,
        )
        other.last = self.last
        return other

    @property
    def store(self) -> BaseStore:
        """Where conversations are kept.

        Raises:
            StoreError: the pipeline is closed.
        """
        with self._mutex:
            if self._closed:
                raise StoreError("This pipeline is closed; its store can no longer be used")
            if self._store is None:
                self._store = PrivateStore()
            return self._store

    def is_over(self, store: BaseStore | None) -> bool:
        """Returns whether a store is this one, or none."""
        return store is None or store is self._store

    @property
    def embeddings(self) -> Embeddings | None:
        """What retrieval compares texts with; None where none were given and none are installed."""
        if self._embeddings is None and local_embeddings_available():
            self._embeddings = LocalEmbeddings()
        return self._embeddings

    def share(self) -> Workspace:
        """Returns the workspace for one pipeline more."""
        with self._mutex:
            self._users += 1
        return self

    def close(self) -> None:
        """Gives back what was opened here, once no pipeline uses it; a store that was passed in stays open."""
        with self._mutex:
            self._users = max(0, self._users - 1)
            if self._users:
                return
        self.bookkeeping.close()
        self.learning.close()
        if self.summarizing:
            self.summarizing.worker.close()
        if self._owns_store and isinstance(self._store, PrivateStore):
            self._store.close()
        self._closed = True

    def finish(self) -> list[BackgroundWorker[Any]]:
        """Has everything written that a summary model can write about; returns the workers that are busy."""
        workers: list[BackgroundWorker[Any]] = [self.learning.worker]
        if self.summarizing is not None:
            self.summarizing.finish(self.open_conversations.all().values())
            workers.append(self.summarizing.worker)
        return [*workers, self.bookkeeping.finish()]

    def using(self, scope: Scope, body: Callable[[OpenConversation], Flow[T]]) -> Flow[T]:
        """Runs a flow with a conversation, alone."""
        return (yield from self.open_conversations.using(self.store, scope, body))

    def recall(self, scope: Scope, body: Callable[[OpenConversation], Flow[T]]) -> Flow[T]:
        """Runs a flow with a conversation that is up to date, alone."""

        def refreshed(conversation: OpenConversation) -> Flow[T]:
            yield from log.refresh(self.store, conversation)
            return (yield from body(conversation))

        return (yield from self.using(scope, refreshed))

    def add(self, messages: Sequence[BaseMessage], scope: Scope) -> Flow[list[str]]:
        """Appends messages to a conversation."""
        given = checked(messages, "messages")

        def body(conversation: OpenConversation) -> Flow[list[str]]:
            ids = yield from editing.add(self.store, conversation, given, conversation.lane(self.writer_id))
            self.learning.note(conversation)
            return ids

        return (yield from self.recall(scope, body))

    def sync(
        self, messages: Sequence[BaseMessage], scope: Scope, on_removal: OnRemoval, *, task: bool = False
    ) -> Flow[list[str]]:
        """Makes a conversation equal to an agent's state; see `editing.sync`."""
        _require_removal(on_removal)
        given = checked(messages, "messages")

        def body(conversation: OpenConversation) -> Flow[list[str]]:
            lane = conversation.lane(self.writer_id)
            before = len(conversation.entries), conversation.digest
            ids = yield from editing.sync(self.store, self._with_tree(conversation), given, lane, on_removal, task=task)
            yield from self._relearn(conversation, on_removal, changed=not conversation.table.holds(*before))
            return ids

        return (yield from self.recall(scope, body))

    def copy_state(self, scope: Scope, messages: Sequence[BaseMessage], *, task: bool = False) -> Flow[None]:
        """Copies an agent's state into the store; where that fails, the next prompt does it, or says that it cannot."""
        _, given = split_instructions(checked(messages, "messages"))
        try:
            yield from self.sync(given, scope, "archive", task=task)
        except Exception as error:  # noqa: BLE001 - the state is the truth; the copy is tried again
            _log.warning("conversation %r not copied to the store: %s", scope.conversation_id, error)

    def edit(self, message_id: str, message: BaseMessage, scope: Scope) -> Flow[None]:
        """Puts a message in the place of another."""
        [given] = checked([message], "message")

        def body(conversation: OpenConversation) -> Flow[None]:
            lane = conversation.lane(self.writer_id)
            yield from editing.edit(self.store, self._with_tree(conversation), message_id, given, lane)
            yield from self._relearn(conversation, "forget")

        yield from self.recall(scope, body)

    def remove(self, message_ids: Sequence[str], scope: Scope, on_removal: OnRemoval) -> Flow[None]:
        """Takes messages out of a conversation."""
        _require_removal(on_removal)

        def body(conversation: OpenConversation) -> Flow[None]:
            lane = conversation.lane(self.writer_id)
            yield from editing.remove(self.store, self._with_tree(conversation), message_ids, lane, on_removal)
            yield from self._relearn(conversation, on_removal)

        yield from self.recall(scope, body)

    def fork(self, scope: Scope, new: Scope, until: str | None) -> Flow[list[str]]:
        """Begins a conversation with what another one has."""

        def read(conversation: OpenConversation) -> Flow[editing.Fork]:
            return (yield from editing.read_fork(self.store, self._with_tree(conversation), until))

        def write(conversation: OpenConversation) -> Flow[list[str]]:
            return (yield from editing.write_fork(self.store, conversation, fork, conversation.lane(self.writer_id)))

        fork = yield from self.recall(scope, read)  # not one lock within the other: two forks could wait for each other
        return (yield from self.recall(new, write))

    def _relearn(self, conversation: OpenConversation, on_removal: OnRemoval, *, changed: bool = True) -> Flow[None]:
        """Takes back what was learned from messages that have changed, and learns from the others in the background."""
        if changed:
            yield from self.learning.forget(conversation.scope, still_there(conversation))
            if on_removal == "forget":
                forget_texts()
        self.learning.note(conversation)

    def _with_tree(self, conversation: OpenConversation) -> OpenConversation:
        """Returns a conversation with its compaction tree, which tells what was derived from what."""
        conversation.table.tree(self.settings.segment_messages)
        return conversation

    def get(self, scope: Scope) -> Flow[list[BaseMessage]]:
        """Reads every message of a conversation."""

        def body(conversation: OpenConversation) -> Flow[list[BaseMessage]]:
            yield from ()
            return [entry.message.model_copy(deep=True) for entry in conversation.entries]

        return (yield from self.recall(scope, body))

    def page(self, scope: Scope, limit: int, before: str | None, after: str | None) -> Flow[MessagePage]:
        """Reads a part of a conversation without the rest of it."""
        if before is not None and after is not None:
            raise InputError("A page is before or after a bookmark, not both. Leave one out")
        if after is not None:
            return (yield from message_pages.read_since(self.store, scope, after))
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise InputError(f"limit must be a whole number of at least 1, not {limit!r}")
        return (yield from message_pages.read_last(self.store, scope, limit, before))

    def conversations(self, user_id: str) -> Flow[list[str]]:
        """Reads the ids of a user's conversations."""
        return (yield from message_log.read_conversations(self.store, require_id("user_id", user_id)))

    def clear(self, scope: Scope) -> Flow[None]:
        """Deletes a conversation and everything that was derived from it."""
        self.bookkeeping.forget(scope)

        def body(conversation: OpenConversation) -> Flow[None]:
            path = (ROOT, label(scope.user_id), "*", label(scope.conversation_id))
            yield from self.learning.forget(scope, {})
            try:
                yield from bulk.delete_below(self.store, path, LANES, JOINED)
            finally:  # wherever it ends, what is left is read again
                self._forget(conversation)
                forget_texts()

        yield from self.using(scope, body)

    def erase(self, user_id: str) -> Flow[int]:
        """Deletes everything of a user; returns how many records there were."""
        self.bookkeeping.erase(user_id)
        path = (ROOT, label(require_id("user_id", user_id)))
        # Whatever is under way with a conversation ends before anything is deleted, in other pipelines of this process,
        # too; and what was begun in between is deleted in the end.
        count = 0
        for _ in range(2):
            yield from self._forget_all(user_id)
            known.erased(self.store, user_id)
            deletion = bulk.delete_below(self.store, path, LANES, JOINED)
            count += yield from locked(known.lock_of(self.store, user_id), deletion)
        forget(self.store, label(user_id))
        self.last.erase(user_id)
        self.open_conversations.let_go(user_id)
        forget_texts()
        return count

    def _forget_all(self, user_id: str) -> Flow[None]:
        def body(conversation: OpenConversation) -> Flow[None]:
            yield from ()
            self._forget(conversation)

        for scope in {**self.open_conversations.all(), **dict.fromkeys(in_use(self.store))}:
            if scope.user_id == user_id:
                yield from self.using(scope, body)

    def _forget(self, conversation: OpenConversation) -> None:
        conversation.reset()
        self.last.forget(conversation.scope)

    def export(self, user_id: str) -> Flow[list[str]]:
        """Reads everything of a user, as lines of JSON."""
        return (yield from bulk.export_below(self.store, (ROOT, label(require_id("user_id", user_id)))))

    def pin(self, message_ids: Sequence[str], scope: Scope, preservation: Preservation | None) -> Flow[None]:
        """Says what is to become of messages; None takes back what was said."""

        def body(conversation: OpenConversation) -> Flow[None]:
            editing.require_known(conversation, message_ids)
            place = pins_place(scope)
            [found] = yield from batch(self.store, [place])
            failures: list[str] = []
            take_up_pins(conversation, found, failures)
            if failures:
                raise StoreError(failures[0])
            pins = {key: said for key, said in conversation.pins.items() if key in conversation.positions}
            for key in message_ids:
                pins.pop(key, None)
                if preservation is not None:
                    pins[key] = preservation
            record = PinsRecord(pins=pins).to_value() if pins else None
            yield from batch(self.store, [PutOp(place.namespace, place.key, record, index=False)])
            conversation.pin(pins)

        return (yield from self.recall(scope, body))

    def coverage(self, scope: Scope) -> Flow[dict[CoverageState, list[str]]]:
        """Returns the state of every message of a conversation in its last prompt."""

        def body(conversation: OpenConversation) -> Flow[dict[CoverageState, list[str]]]:
            if conversation.last is None or conversation.last.coverage is None:
                [cuts] = yield from batch(self.store, [cuts_place(scope)])
                take_up_cuts(conversation, cuts, [])
            return ledger(conversation.seen_with(self.counter))

        return (yield from self.recall(scope, body))

    def compactions(self, scope: Scope) -> Flow[list[ConversationCompaction]]:
        """Returns what stands for the spans of a conversation that no prompt shows whole any more."""

        def body(conversation: OpenConversation) -> Flow[list[ConversationCompaction]]:
            [cuts] = yield from batch(self.store, [cuts_place(scope)])
            take_up_cuts(conversation, cuts, [])
            until = max((cut.position for cut in conversation.cuts.values()), default=0)
            self._name_maker(conversation)
            seen = conversation.seen_with(self.counter)
            return (yield from compactions(self.store, seen, self.settings.segment_messages, until))

        return (yield from self.recall(scope, body))

    def settings_for(
        self, conversation: OpenConversation, request: Request, failures: list[str]
    ) -> Flow[tuple[ContextSettings, tuple[str, ...], Stored]]:
        """Returns the settings of a prompt and where they come from, with what is stored beside the messages.

        Args:
            conversation: that is up to date; it takes up its cuts and pins.
            request: its settings lie over all others.
            failures: what is to be reported; appended to.
        """
        self._name_maker(conversation)
        stored = yield from read_stored(self.store, conversation, request.persona_id, failures, request.device_id)
        return *merged(self.settings, stored.settings, request.settings, failures), stored

    def _name_maker(self, conversation: OpenConversation) -> None:
        conversation.table.made.maker = self.summarizing.summarizer.fingerprint if self.summarizing else ""

    def save_settings(self, changes: Mapping[str, Any], user_id: str, persona_id: str | None) -> Flow[None]:
        """Keeps settings of a user, or of a persona of theirs."""
        if not isinstance(changes, Mapping):
            raise InvalidSettingsError(f"settings must be a mapping of their fields, not {type(changes).__name__}")
        self.settings.override(changes)
        yield from saved_settings.write(self.store, saved_settings.place(user_id, persona_id), changes)

    def saved_settings(self, user_id: str, persona_id: str | None) -> Flow[dict[str, Any]]:
        """Reads what was saved for a user, or for a persona of theirs."""
        return (yield from saved_settings.read(self.store, saved_settings.place(user_id, persona_id)))


def _require_removal(on_removal: OnRemoval) -> None:
    if on_removal not in ("archive", "forget"):
        raise InputError(f"on_removal must be 'archive' or 'forget', not {on_removal!r}")
