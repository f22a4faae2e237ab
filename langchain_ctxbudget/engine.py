"""The flows behind `ContextPipeline`: what it does, once, for sync and async."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from langchain_core.embeddings import Embeddings
from langchain_core.messages import BaseMessage
from langgraph.store.base import BaseStore

from langchain_ctxbudget.core.messages import checked, current_turn, split_instructions
from langchain_ctxbudget.core.report import ContextReport
from langchain_ctxbudget.core.schema_cost import require_schemas
from langchain_ctxbudget.core.tokens import TokenCounter
from langchain_ctxbudget.draft import AssembledContext, Draft, Target
from langchain_ctxbudget.embeddings import LocalEmbeddings, local_embeddings_available
from langchain_ctxbudget.errors import InputError, InvalidSettingsError, MessageConflictError, StoreError
from langchain_ctxbudget.flow import Flow, T, batch
from langchain_ctxbudget.history import log
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.history.log import OnRemoval
from langchain_ctxbudget.history.open import OpenConversations
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.steps import STEPS, cuts_place, run, take_up_cuts
from langchain_ctxbudget.stores import saved_settings
from langchain_ctxbudget.stores.records import Scope
from langchain_ctxbudget.target import Model, ModelTarget
from langchain_ctxbudget.what_if import Rerun
from langchain_ctxbudget.windows import with_setting

NO_EMBEDDINGS = "embeddings: none are installed, so retrieval is lexical only (pip install wordllama)"
Overrides = ContextSettings | Mapping[str, Any] | None


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
            inherited=self._open.working_sets(),
        )

    def close(self) -> None:
        """Give back what was opened here; a store that was passed in stays open."""
        if self._owns_store and self._store is not None and hasattr(self._store, "close"):
            self._store.close()
        self._closed = True

    def add(self, messages: Sequence[BaseMessage], scope: Scope) -> Flow[list[str]]:
        """Append messages to a conversation."""
        given = checked(messages, "messages")
        return (
            yield from self._using(scope, lambda conversation: log.add(self.store, conversation, given, self.writer_id))
        )

    def sync(self, messages: Sequence[BaseMessage], scope: Scope, on_removal: OnRemoval) -> Flow[list[str]]:
        """Make a conversation equal to an agent's state."""
        if on_removal not in ("archive", "forget"):
            raise InputError(f"on_removal must be 'archive' or 'forget', not {on_removal!r}")
        given = checked(messages, "messages")
        return (
            yield from self._using(
                scope, lambda conversation: log.sync(self.store, conversation, given, self.writer_id, on_removal)
            )
        )

    def get(self, scope: Scope) -> Flow[list[BaseMessage]]:
        """Every message of a conversation."""

        def body(conversation: Conversation) -> Flow[list[BaseMessage]]:
            yield from log.refresh(self.store, conversation)
            return [entry.record.to_message() for entry in conversation.entries]

        return (yield from self._using(scope, body))

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

        return (yield from self._using(scope, body))

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

        return (yield from self._using(scope, body))

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

        return (yield from self._using(draft.conversation.scope, body, draft.counter))

    def _using(
        self, scope: Scope, body: Callable[[Conversation], Flow[T]], counter: TokenCounter | None = None
    ) -> Flow[T]:
        return (yield from self._open.using(self.store, scope, counter or self.target.counter, body))

    def _finished(self, draft: Draft) -> AssembledContext:
        """The context of a finished draft; its report can be asked what another budget would have given."""
        assert draft.context is not None  # noqa: S101 - the last step sets it
        draft.cuts = dict(draft.conversation.cuts)
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
        stored, saved = yield from self._stored(conversation, persona_id, failures)
        settings, sources = self._merged(saved, overrides, failures)
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
        if failure := take_up_cuts(conversation, stored):
            draft.failures.append(failure)
        if self.embeddings is None:
            draft.failures.append(NO_EMBEDDINGS)
        draft.timings_ms["open"] = (time.perf_counter() - started) * 1000
        return draft

    def _stored(
        self, conversation: Conversation, persona_id: str | None, failures: list[str]
    ) -> Flow[tuple[object, dict[str, dict[str, Any]]]]:
        """The compaction cuts and the saved settings by their source, in one read; nothing where that fails."""
        user_id = conversation.scope.user_id
        places = {"user": saved_settings.place(user_id, None)}
        if persona_id is not None:
            places["persona"] = saved_settings.place(user_id, persona_id)
        try:
            cuts, *found = yield from batch(self.store, [cuts_place(conversation), *places.values()])
        except Exception as error:  # noqa: BLE001 - layers on top: the turn goes on without them
            failures.append(f"compaction cuts and saved settings not read: {type(error).__name__}: {error}")
            return None, {}
        return cuts, {source: saved_settings.of_item(item) for source, item in zip(places, found, strict=True)}

    def _merged(
        self, saved: Mapping[str, Mapping[str, Any]], overrides: Overrides, failures: list[str]
    ) -> tuple[ContextSettings, tuple[str, ...]]:
        """The pipeline's settings, over them what the user saved, then what was saved for the persona, then the call's.

        Saved settings that cannot be used are left out and reported.
        """
        settings, sources = self.settings, ["pipeline"]
        for source, changes in saved.items():
            if not changes:
                continue
            try:
                settings = settings.override(changes)
                sources.append(source)
            except InvalidSettingsError as error:
                failures.append(f"saved settings of the {source} not used: {error}")
        if isinstance(overrides, ContextSettings):
            return overrides, ("call",)
        if overrides is None:
            return settings, tuple(sources)
        try:
            return settings.override(overrides), (*sources, "call")
        except InvalidSettingsError as error:  # the call's own are sound: they were tried at the beginning
            saved_by = " and the ".join(sources[1:])
            failures.append(f"saved settings of the {saved_by} not used, as the call's do not go with them: {error}")
            return self.settings.override(overrides), ("pipeline", "call")
