"""The flows behind `ContextPipeline`: what it does, once, for sync and async."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from langchain_core.embeddings import Embeddings
from langchain_core.messages import BaseMessage
from langgraph.store.base import BaseStore, PutOp

from langchain_ctxbudget.background import BackgroundWorker
from langchain_ctxbudget.core.messages import checked, current_turn, split_instructions
from langchain_ctxbudget.core.preservation import Preservation
from langchain_ctxbudget.core.report import ContextReport, CoverageState
from langchain_ctxbudget.core.schema_cost import require_schemas
from langchain_ctxbudget.core.tokens import TokenCounter
from langchain_ctxbudget.draft import AssembledContext, Draft, Target
from langchain_ctxbudget.embeddings import LocalEmbeddings, local_embeddings_available
from langchain_ctxbudget.errors import InputError, InvalidSettingsError, MessageConflictError, StoreError
from langchain_ctxbudget.flow import Flow, T, batch
from langchain_ctxbudget.history import log, summaries
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.history.ledger import ledger
from langchain_ctxbudget.history.log import OnRemoval
from langchain_ctxbudget.history.open import OpenConversations
from langchain_ctxbudget.opening import (
    Overrides,
    cuts_place,
    merged,
    pins_place,
    read_stored,
    take_up_cuts,
    take_up_pins,
)
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.steps import STEPS, run
from langchain_ctxbudget.stores import saved_settings
from langchain_ctxbudget.stores.compactions import ConversationCompaction
from langchain_ctxbudget.stores.records import PinsRecord, Scope
from langchain_ctxbudget.summarizing import Summarizing
from langchain_ctxbudget.target import Model, ModelTarget
from langchain_ctxbudget.what_if import Rerun
from langchain_ctxbudget.windows import with_setting

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

NO_EMBEDDINGS = "embeddings: none are installed, so retrieval is lexical only (pip install wordllama)"


class Engine:
    """One model, one store, and the conversations that are open; shared by threads and tasks."""

    def __init__(
        self,
        *,
        settings: ContextSettings,
        system_prompt: str,
        model: Model,
        store: BaseStore | None,
        embeddings: Embeddings | None,
        token_counter: TokenCounter | None,
        writer_id: str | None,
        summary_model: BaseChatModel | None,
        clock: Callable[[], datetime] | None = None,
        inherited: Mapping[Scope, Conversation] | None = None,
    ) -> None:
        """Set up; nothing is read, written or loaded before it is needed.

        Args:
            settings: of the pipeline.
            system_prompt: of the pipeline.
            model: the target.
            store: None makes a private one.
            embeddings: None takes the local ones, where they are installed.
            token_counter: None takes the model's.
            writer_id: None makes one.
            summary_model: writes summaries; None leaves them to extraction.
            clock: tells when a summary was written; None takes the computer's.
            inherited: conversations of another engine on the same store, which need not be read again.
        """
        self.settings = settings
        self.system_prompt = system_prompt
        self.last_report: ContextReport | None = None
        self.writer_id = writer_id or uuid4().hex
        self.target = ModelTarget(model, token_counter)
        self._store = store
        self._owns_store = store is None
        self._closed = False
        self._embeddings = embeddings
        self._open = OpenConversations(inherited)
        self.summarizing = Summarizing(summary_model, self, clock) if summary_model is not None else None
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

    def with_model(self, model: Model, token_counter: TokenCounter | None) -> Engine:
        """The same store, settings and open conversations for another model."""
        return Engine(
            settings=self.settings,
            system_prompt=self.system_prompt,
            model=model,
            store=self.store,
            embeddings=self._embeddings,
            token_counter=token_counter,
            writer_id=None,
            summary_model=self.summarizing.model if self.summarizing else None,
            clock=self.summarizing.clock if self.summarizing else None,
            inherited=self._open.working_sets(),
        )

    def finish(self) -> BackgroundWorker[Scope] | None:
        """Have everything written that a summary model can write about; the worker that does it, where there is one."""
        if self.summarizing is None:
            return None
        self.summarizing.finish(self._open.working_sets().values())
        return self.summarizing.worker

    def close(self) -> None:
        """Give back what was opened here; a store that was passed in stays open."""
        if self.summarizing:
            self.summarizing.worker.close()
        if self._owns_store and self._store is not None and hasattr(self._store, "close"):
            self._store.close()
        self._closed = True

    def add(self, messages: Sequence[BaseMessage], scope: Scope) -> Flow[list[str]]:
        """Append messages to a conversation."""
        given = checked(messages, "messages")
        return (
            yield from self.using(scope, lambda conversation: log.add(self.store, conversation, given, self.writer_id))
        )

    def sync(self, messages: Sequence[BaseMessage], scope: Scope, on_removal: OnRemoval) -> Flow[list[str]]:
        """Make a conversation equal to an agent's state."""
        if on_removal not in ("archive", "forget"):
            raise InputError(f"on_removal must be 'archive' or 'forget', not {on_removal!r}")
        given = checked(messages, "messages")
        return (
            yield from self.using(
                scope, lambda conversation: log.sync(self.store, conversation, given, self.writer_id, on_removal)
            )
        )

    def get(self, scope: Scope) -> Flow[list[BaseMessage]]:
        """Every message of a conversation."""

        def body(conversation: Conversation) -> Flow[list[BaseMessage]]:
            yield from log.refresh(self.store, conversation)
            return [entry.record.to_message() for entry in conversation.entries]

        return (yield from self.using(scope, body))

    def recall(self, scope: Scope, body: Callable[[Conversation], Flow[T]]) -> Flow[T]:
        """Read something from a conversation that is up to date."""

        def refreshed(conversation: Conversation) -> Flow[T]:
            yield from log.refresh(self.store, conversation)
            return (yield from body(conversation))

        return (yield from self.using(scope, refreshed))

    def pin(self, message_ids: Sequence[str], scope: Scope, preservation: Preservation | None) -> Flow[None]:
        """Say what is to become of messages; None takes back what was said."""

        def body(conversation: Conversation) -> Flow[None]:
            if unknown := [key for key in message_ids if key not in conversation.positions]:
                raise InputError(
                    f"The conversation {scope.conversation_id!r} has no messages {unknown}; ids are what "
                    f"`add_messages` returns and `get_messages` shows"
                )
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
            record = PinsRecord(pins=pins).model_dump(mode="json") if pins else None
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

    def save_settings(self, changes: Mapping[str, Any], user_id: str, persona_id: str | None) -> Flow[None]:
        """Keep settings of a user, or of a persona of theirs."""
        if not isinstance(changes, Mapping):
            raise InvalidSettingsError(f"settings must be a mapping of their fields, not {type(changes).__name__}")
        self.settings.override(changes)
        yield from saved_settings.write(self.store, saved_settings.place(user_id, persona_id), changes)

    def saved_settings(self, user_id: str, persona_id: str | None) -> Flow[dict[str, Any]]:
        """What was saved for a user, or for a persona of theirs."""
        return (yield from saved_settings.read(self.store, saved_settings.place(user_id, persona_id)))

    def assemble(
        self,
        scope: Scope,
        message: str | BaseMessage | Sequence[BaseMessage],
        *,
        tools: Sequence[Any],
        response_format: object,
        overrides: Overrides,
        persona_id: str | None,
    ) -> Flow[AssembledContext]:
        """The prompt for the current turn."""
        turn = current_turn(message)
        require_schemas(tools, response_format)
        self.settings.override(overrides)  # a mistake is told before anything is read

        def body(conversation: Conversation) -> Flow[AssembledContext]:
            started, calls = time.perf_counter(), self.target.tokenizer.calls
            yield from log.refresh(self.store, conversation)
            draft = yield from self._open_draft(
                conversation, turn, overrides, persona_id, started=started, calls_before=calls
            )
            draft.tools, draft.response_format = tools, response_format
            for name in STEPS:
                yield from run(name, draft, self.store, self.embeddings)
            return self._finished(draft)

        return (yield from self.using(scope, body))

    def open_turn(
        self,
        scope: Scope,
        history: Sequence[BaseMessage],
        turn: Sequence[BaseMessage],
        *,
        tools: Sequence[Any] = (),
        response_format: object = None,
        overrides: Overrides = None,
        persona_id: str | None = None,
    ) -> Flow[Draft]:
        """Begin a prompt for an agent's state: history is copied into the store, the turn is to be answered.

        System messages at its beginning join the system prompt. Where the copy cannot be written, the draft goes
        on with the given messages and says so.
        """
        current = current_turn(turn)
        require_schemas(tools, response_format)
        self.settings.override(overrides)
        instructions, given = split_instructions(checked(history, "messages"))
        system_prompt = "\n\n".join(text for text in (self.system_prompt, *instructions) if text)

        def body(conversation: Conversation) -> Flow[Draft]:
            started, calls = time.perf_counter(), self.target.tokenizer.calls
            failure = None
            try:
                yield from log.sync(self.store, conversation, given, self.writer_id, "archive")
            except InputError:
                raise
            except Exception as error:  # noqa: BLE001 - the state is the truth; the copy is tried again
                failure = f"history not copied to the store: {type(error).__name__}: {error}"
                conversation = log.detached(scope, self.target.counter, given)
            draft = yield from self._open_draft(
                conversation, current, overrides, persona_id, started=started, calls_before=calls
            )
            draft.system_prompt = system_prompt
            draft.tools, draft.response_format = tools, response_format
            if failure is not None:
                draft.failures.append(failure)
            return draft

        return (yield from self.using(scope, body))

    def run_step(self, name: str, draft: Draft) -> Flow[None]:
        """Run one of the six steps on a draft.

        Raises:
            MessageConflictError: another run has changed the conversation since the draft was begun.
        """

        def body(_: Conversation) -> Flow[None]:
            if draft.conversation.digest != draft.begun_with:
                raise MessageConflictError(
                    f"Another run changed the conversation {draft.conversation.scope.conversation_id!r} while its "
                    f"prompt was made. Run one turn of a thread at a time, or give each agent a thread_id of its own"
                )
            yield from run(name, draft, self.store, self.embeddings)
            if draft.context is not None:
                self._finished(draft)

        return (yield from self.using(draft.conversation.scope, body, draft.counter))

    def using(
        self, scope: Scope, body: Callable[[Conversation], Flow[T]], counter: TokenCounter | None = None
    ) -> Flow[T]:
        """Run a flow with a conversation's working set, alone."""
        return (yield from self._open.using(self.store, scope, counter or self.target.counter, body))

    def _finished(self, draft: Draft) -> AssembledContext:
        """The context of a finished draft; its report can be asked what another budget would have given."""
        assert draft.context is not None  # noqa: S101 - the last step sets it
        draft.cuts = dict(draft.conversation.cuts)
        draft.conversation.coverage = draft.context.report.coverage
        if self.summarizing:
            self.summarizing.submit(draft)
        self.last_report = draft.context.report.with_candidates(Rerun(draft))
        return draft.context

    def _open_draft(
        self,
        conversation: Conversation,
        turn: list[BaseMessage],
        overrides: Overrides,
        persona_id: str | None,
        *,
        started: float,
        calls_before: int,
    ) -> Flow[Draft]:
        """Begin a prompt for a conversation that is up to date."""
        failures: list[str] = []
        conversation.made.maker = self.summarizing.summarizer.fingerprint if self.summarizing else ""
        if self.summarizing and (problem := self.summarizing.worker.failure_of(conversation.scope)):
            failures.append(f"summaries: {problem}")
        saved = yield from read_stored(self.store, conversation, persona_id, failures)
        settings, sources = merged(self.settings, saved, overrides, failures)
        window = with_setting((yield from self.target.find_window()), settings.window_tokens)
        if window.failure:
            failures.append(window.failure)
        draft = Draft(
            conversation=conversation,
            begun_with=conversation.digest,
            message_count=len(conversation.entries),
            target=Target(counter=conversation.counter, window=window),
            settings=settings,
            settings_from=sources,
            system_prompt=self.system_prompt,
            turn=turn,
            calls_before=calls_before,
            failures=failures,
        )
        if self.summarizing and not settings.summarize_in_background:
            draft.write_summaries = self.summarizing.write_now
        if self.embeddings is None:
            draft.failures.append(NO_EMBEDDINGS)
        draft.timings_ms["open"] = (time.perf_counter() - started) * 1000
        return draft
