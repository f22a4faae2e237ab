"""The flows behind `ContextPipeline`: what it does, once, for sync and async."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from langchain_core.embeddings import Embeddings
from langchain_core.messages import BaseMessage
from langgraph.store.base import BaseStore

from langchain_ctxbudget.core.messages import checked, current_turn, split_instructions
from langchain_ctxbudget.core.schema_cost import require_schemas
from langchain_ctxbudget.core.tokens import TokenCounter
from langchain_ctxbudget.draft import AssembledContext, Draft, Target
from langchain_ctxbudget.embeddings import LocalEmbeddings, local_embeddings_available
from langchain_ctxbudget.errors import InputError, MessageConflictError
from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.history import editing, log
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.keeper import Keeper
from langchain_ctxbudget.opening import (
    Overrides,
    merged,
    read_stored,
)
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.steps import STEPS, run
from langchain_ctxbudget.stores.records import Scope
from langchain_ctxbudget.target import Model, ModelTarget
from langchain_ctxbudget.what_if import Rerun
from langchain_ctxbudget.windows import with_setting

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

NO_EMBEDDINGS = "embeddings: none are installed, so retrieval is lexical only (pip install wordllama)"


class Engine(Keeper):
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
        super().__init__(
            settings=settings,
            target=ModelTarget(model, token_counter),
            store=store,
            writer_id=writer_id,
            summary_model=summary_model,
            clock=clock,
            inherited=inherited,
        )
        self.system_prompt = system_prompt
        self._embeddings = embeddings

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
                yield from log.refresh(self.store, conversation)
                yield from editing.sync(self.store, conversation, given, conversation.lane(self.writer_id), "archive")
            except InputError:
                raise
            except Exception as error:  # noqa: BLE001 - the state is the truth; the copy is tried again
                failure = f"history not copied to the store: {type(error).__name__}: {error}"
                conversation = editing.detached(scope, self.target.counter, given)
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

    def _finished(self, draft: Draft) -> AssembledContext:
        """The context of a finished draft; its report can be asked what another budget would have given."""
        assert draft.context is not None  # noqa: S101 - the last step sets it
        draft.cuts = dict(draft.conversation.cuts)
        draft.conversation.coverage = draft.context.report.coverage
        if self.summarizing:
            self.summarizing.submit(draft)
        self.last_report, self.last_scope = draft.context.report.with_candidates(Rerun(draft)), draft.conversation.scope
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
