"""The flows behind `StoredConversations`: what is done with conversations apart from making prompts of them."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from langchain_core.embeddings import Embeddings
from langchain_core.messages import BaseMessage
from langgraph.store.base import BaseStore, PutOp

from langchain_ctxbudget.background import BackgroundWorker
from langchain_ctxbudget.core.messages import checked, split_instructions
from langchain_ctxbudget.core.preservation import Preservation
from langchain_ctxbudget.core.report import CoverageState
from langchain_ctxbudget.core.tokens import TokenCounter
from langchain_ctxbudget.documents.shelves import forget
from langchain_ctxbudget.embeddings import LocalEmbeddings, local_embeddings_available
from langchain_ctxbudget.errors import InputError, InvalidSettingsError, StoreError
from langchain_ctxbudget.flow import Call, Flow, T, batch, locked
from langchain_ctxbudget.history import editing, log, summaries
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.history.ledger import ledger
from langchain_ctxbudget.history.log import OnRemoval
from langchain_ctxbudget.history.open import OpenConversations, in_use
from langchain_ctxbudget.knowledge import known
from langchain_ctxbudget.knowledge.taking import still_there
from langchain_ctxbudget.learning import Learning
from langchain_ctxbudget.opening import (
    Request,
    Stored,
    cuts_place,
    merged,
    pins_place,
    read_stored,
    take_up_cuts,
    take_up_pins,
)
from langchain_ctxbudget.recent import Last
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores import bulk, message_log, message_pages, saved_settings
from langchain_ctxbudget.stores.compactions import ConversationCompaction
from langchain_ctxbudget.stores.message_log import JOINED, LANES
from langchain_ctxbudget.stores.message_pages import MessagePage
from langchain_ctxbudget.stores.records import ROOT, PinsRecord, Scope, label, require_id, stored
from langchain_ctxbudget.summarizing import Summarizing
from langchain_ctxbudget.target import ModelTarget

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel


_log = logging.getLogger(__name__)


class Keeper:
    """A store, and the conversations in it that are open; shared by threads and tasks."""

    def __init__(
        self,
        *,
        settings: ContextSettings,
        target: ModelTarget,
        store: BaseStore | None,
        embeddings: Embeddings | None,
        writer_id: str | None,
        summary_model: BaseChatModel | None,
        clock: Callable[[], datetime] | None,
        inherited: Mapping[Scope, Conversation] | None,
        sibling: Keeper | None = None,
    ) -> None:
        """Set up; nothing is read or written before it is needed.

        Args:
            settings: of the pipeline.
            target: how tokens are counted.
            store: None makes a private one.
            embeddings: None takes the local ones, where they are installed.
            writer_id: None makes one.
            summary_model: writes summaries; None leaves them to extraction.
            clock: tells what time it is; None takes the computer's.
            inherited: conversations of another keeper on the same store, which need not be read again.
            sibling: a keeper on the same store, whose open conversations and summary model it shares.
        """
        self.settings = settings
        self.target = target
        self.writer_id = label(writer_id) if writer_id else uuid4().hex
        self.last = Last()
        self.summarizing = Summarizing(summary_model, self, clock) if summary_model is not None else None
        self.learning = Learning(self, summary_model, clock)
        self._store = store
        self._owns_store = store is None
        self._embeddings = embeddings
        self._closed = False
        self.open_conversations = OpenConversations(inherited)
        self._shares = sibling is not None
        if sibling is not None:
            self.writer_id, self.last, self.summarizing = sibling.writer_id, sibling.last, sibling.summarizing
            self.learning = sibling.learning
            self.open_conversations = sibling.open_conversations
        self._mutex = threading.Lock()

    @property
    def store(self) -> BaseStore:
        """Where conversations are kept.

        Raises:
            StoreError: the pipeline is closed.
        """
        if self._closed:
            raise StoreError("This pipeline is closed; its store can no longer be used")
        with self._mutex:
            if self._store is None:
                from langchain_ctxbudget.stores.chroma import ChromaStore  # noqa: PLC0415 - loads chromadb

                self._store = ChromaStore()
            return self._store

    @property
    def embeddings(self) -> Embeddings | None:
        """What retrieval compares texts with; None where none were given and none are installed."""
        if self._embeddings is None and local_embeddings_available():
            self._embeddings = LocalEmbeddings()
        return self._embeddings

    def close(self) -> None:
        """Give back what was opened here; a store that was passed in stays open."""
        if not self._shares:
            self.learning.close()
            if self.summarizing:
                self.summarizing.worker.close()
        if self._owns_store and self._store is not None and hasattr(self._store, "close"):
            self._store.close()
        self._closed = True

    def finish(self) -> list[BackgroundWorker[Any]]:
        """Have everything written that a summary model can write about; the workers that are at it, or learn."""
        if self.summarizing is None:
            return [self.learning.worker]
        self.summarizing.finish(self.open_conversations.working_sets().values())
        return [self.learning.worker, self.summarizing.worker]

    def using(
        self, scope: Scope, body: Callable[[Conversation], Flow[T]], counter: TokenCounter | None = None
    ) -> Flow[T]:
        """Run a flow with a conversation's working set, alone; where it matters, counted with a certain counter."""
        known = counter or self.target.counter
        return (yield from self.open_conversations.using(self.store, scope, known, body, recount=counter is not None))

    def recall(
        self, scope: Scope, body: Callable[[Conversation], Flow[T]], counter: TokenCounter | None = None
    ) -> Flow[T]:
        """Read something from a conversation that is up to date."""

        def refreshed(conversation: Conversation) -> Flow[T]:
            yield from log.refresh(self.store, conversation)
            return (yield from body(conversation))

        return (yield from self.using(scope, refreshed, counter))

    def add(self, messages: Sequence[BaseMessage], scope: Scope) -> Flow[list[str]]:
        """Append messages to a conversation."""
        given = checked(messages, "messages")

        def body(conversation: Conversation) -> Flow[list[str]]:
            ids = yield from editing.add(self.store, conversation, given, conversation.lane(self.writer_id))
            self.learning.note(conversation)
            return ids

        return (yield from self.recall(scope, body))

    def sync(self, messages: Sequence[BaseMessage], scope: Scope, on_removal: OnRemoval) -> Flow[list[str]]:
        """Make a conversation equal to an agent's state."""
        _require_removal(on_removal)
        given = checked(messages, "messages")

        def body(conversation: Conversation) -> Flow[list[str]]:
            lane = conversation.lane(self.writer_id)
            ids = yield from editing.sync(self.store, self._with_tree(conversation), given, lane, on_removal)
            yield from self._relearn(conversation, forget=on_removal == "forget")
            return ids

        return (yield from self.recall(scope, body))

    def keep(self, scope: Scope, messages: Sequence[BaseMessage]) -> Flow[None]:
        """Copy an agent's state into the store; where that fails, the next prompt does it, or says that it cannot."""
        _, given = split_instructions(checked(messages, "messages"))
        try:
            yield from self.sync(given, scope, "archive")
        except Exception as error:  # noqa: BLE001 - the state is the truth; the copy is tried again
            _log.warning("conversation %r not copied to the store: %s", scope.conversation_id, error)

    def edit(self, message_id: str, message: BaseMessage, scope: Scope) -> Flow[None]:
        """Put a message in the place of another."""
        [given] = checked([message], "message")

        def body(conversation: Conversation) -> Flow[None]:
            lane = conversation.lane(self.writer_id)
            yield from editing.edit(self.store, self._with_tree(conversation), message_id, given, lane)
            yield from self._relearn(conversation, forget=True)

        yield from self.recall(scope, body)

    def remove(self, message_ids: Sequence[str], scope: Scope, on_removal: OnRemoval) -> Flow[None]:
        """Take messages out of a conversation."""
        _require_removal(on_removal)

        def body(conversation: Conversation) -> Flow[None]:
            lane = conversation.lane(self.writer_id)
            yield from editing.remove(self.store, self._with_tree(conversation), message_ids, lane, on_removal)
            yield from self._relearn(conversation, forget=on_removal == "forget")

        yield from self.recall(scope, body)

    def fork(self, scope: Scope, new: Scope, until: str | None) -> Flow[list[str]]:
        """Begin a conversation with what another one has."""

        def read(conversation: Conversation) -> Flow[editing.Fork]:
            return (yield from editing.read_fork(self.store, self._with_tree(conversation), until))

        def write(conversation: Conversation) -> Flow[list[str]]:
            return (yield from editing.write_fork(self.store, conversation, fork, conversation.lane(self.writer_id)))

        fork = yield from self.recall(scope, read)  # not one lock within the other: two forks could wait for each other
        return (yield from self.recall(new, write))

    def _relearn(self, conversation: Conversation, *, forget: bool) -> Flow[None]:
        """Have what was learned from messages that have changed taken back: now, or in the background."""
        if forget:
            yield from self.learning.forget(conversation.scope, still_there(conversation))
        self.learning.note(conversation)

    def _with_tree(self, conversation: Conversation) -> Conversation:
        """A conversation with its compaction tree, which tells what was derived from what."""
        conversation.spans(self.settings.segment_messages)
        return conversation

    def get(self, scope: Scope) -> Flow[list[BaseMessage]]:
        """Every message of a conversation."""

        def body(conversation: Conversation) -> Flow[list[BaseMessage]]:
            yield from ()
            return [entry.message.model_copy(deep=True) for entry in conversation.entries]

        return (yield from self.recall(scope, body))

    def page(self, scope: Scope, limit: int, before: str | None, after: str | None) -> Flow[MessagePage]:
        """A part of a conversation, read without the rest of it."""
        if before is not None and after is not None:
            raise InputError("A page is before or after a bookmark, not both. Leave one out")
        if after is not None:
            return (yield from message_pages.read_since(self.store, scope, after))
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise InputError(f"limit must be a whole number of at least 1, not {limit!r}")
        return (yield from message_pages.read_last(self.store, scope, limit, before))

    def conversations(self, user_id: str) -> Flow[list[str]]:
        """The ids of a user's conversations."""
        return (yield from message_log.read_conversations(self.store, require_id("user_id", user_id)))

    def clear(self, scope: Scope) -> Flow[None]:
        """Delete a conversation and everything that was derived from it."""

        def body(conversation: Conversation) -> Flow[None]:
            path = (ROOT, label(scope.user_id), "*", label(scope.conversation_id))
            yield from self.learning.forget(scope, {})
            try:
                yield from bulk.delete_below(self.store, path, LANES, JOINED)
            finally:  # wherever it ends, what is left is read again
                self._forget(conversation)

        yield from self.using(scope, body)

    def erase(self, user_id: str) -> Flow[int]:
        """Delete everything of a user; how many records there were."""
        path = (ROOT, label(require_id("user_id", user_id)))
        # Whatever is under way with a conversation ends before anything is deleted, in other pipelines of this process,
        # too; and what was begun in between is deleted in the end.
        count = 0
        for _ in range(2):
            yield from self._forget_all(user_id)
            known.erased(self.store, user_id)
            deletion = bulk.delete_below(self.store, path, LANES, JOINED)
            count += yield from locked(known.lock_of(self.store, user_id), deletion)
        yield from _purge(self.store, path)
        forget(self.store, label(user_id))
        return count

    def _forget_all(self, user_id: str) -> Flow[None]:
        def body(conversation: Conversation) -> Flow[None]:
            yield from ()
            self._forget(conversation)

        for scope in {**self.open_conversations.working_sets(), **dict.fromkeys(in_use(self.store))}:
            if scope.user_id == user_id:
                yield from self.using(scope, body)

    def _forget(self, conversation: Conversation) -> None:
        conversation.reset()
        self.last.forget(conversation.scope)

    def export(self, user_id: str) -> Flow[list[str]]:
        """Everything of a user, as lines of JSON."""
        lines = []
        for namespace in sorted(
            (yield from bulk.read_namespaces(self.store, (ROOT, label(require_id("user_id", user_id)))))
        ):
            items = yield from bulk.read_all(self.store, namespace)
            for item in sorted(items, key=lambda item: item.key):
                line = {"namespace": list(namespace), "key": item.key, "value": stored(item.value)}
                times = {"created_at": item.created_at.isoformat(), "updated_at": item.updated_at.isoformat()}
                lines.append(json.dumps(line | times))
        return lines

    def pin(self, message_ids: Sequence[str], scope: Scope, preservation: Preservation | None) -> Flow[None]:
        """Say what is to become of messages; None takes back what was said."""

        def body(conversation: Conversation) -> Flow[None]:
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
        """The state of every message of a conversation in its last prompt."""

        def body(conversation: Conversation) -> Flow[dict[CoverageState, list[str]]]:
            if conversation.coverage is None:
                [cuts] = yield from batch(self.store, [cuts_place(scope)])
                take_up_cuts(conversation, cuts, [])
            return ledger(conversation)

        return (yield from self.recall(scope, body))

    def compactions(self, scope: Scope) -> Flow[list[ConversationCompaction]]:
        """What stands for the spans of a conversation that no prompt shows whole any more."""

        def body(conversation: Conversation) -> Flow[list[ConversationCompaction]]:
            [cuts] = yield from batch(self.store, [cuts_place(scope)])
            take_up_cuts(conversation, cuts, [])
            until = max((cut.position for cut in conversation.cuts.values()), default=0)
            conversation.made.maker = self.summarizing.summarizer.fingerprint if self.summarizing else ""
            return (yield from summaries.known(self.store, conversation, self.settings.segment_messages, until))

        return (yield from self.recall(scope, body))

    def settings_for(
        self, conversation: Conversation, request: Request, failures: list[str]
    ) -> Flow[tuple[ContextSettings, tuple[str, ...], Stored]]:
        """The settings that apply to a prompt and where they come from, with what is stored beside the messages.

        Args:
            conversation: that is up to date; it takes up its cuts and pins.
            request: whose settings lie over all others.
            failures: what is to be reported; appended to.
        """
        conversation.made.maker = self.summarizing.summarizer.fingerprint if self.summarizing else ""
        found = read_stored(self.store, conversation, request.persona_id, failures, request.device_id)
        stored = yield from found
        return *merged(self.settings, stored.settings, request.settings, failures), stored

    def save_settings(self, changes: Mapping[str, Any], user_id: str, persona_id: str | None) -> Flow[None]:
        """Keep settings of a user, or of a persona of theirs."""
        if not isinstance(changes, Mapping):
            raise InvalidSettingsError(f"settings must be a mapping of their fields, not {type(changes).__name__}")
        self.settings.override(changes)
        yield from saved_settings.write(self.store, saved_settings.place(user_id, persona_id), changes)

    def saved_settings(self, user_id: str, persona_id: str | None) -> Flow[dict[str, Any]]:
        """What was saved for a user, or for a persona of theirs."""
        return (yield from saved_settings.read(self.store, saved_settings.place(user_id, persona_id)))


def _purge(store: BaseStore, path: tuple[str, ...]) -> Flow[None]:
    """Have a store that keeps something of what was deleted let go of it, where it can."""
    if hasattr(store, "purge") and hasattr(store, "apurge"):
        yield Call(lambda: store.purge(path), lambda: store.apurge(path), writes=True)


def _require_removal(on_removal: OnRemoval) -> None:
    if on_removal not in ("archive", "forget"):
        raise InputError(f"on_removal must be 'archive' or 'forget', not {on_removal!r}")
