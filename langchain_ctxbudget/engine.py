"""The flows behind `ContextPipeline`: what it does, once, for sync and async."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from langchain_core.documents import BaseDocumentCompressor
from langchain_core.embeddings import Embeddings
from langchain_core.messages import BaseMessage
from langgraph.store.base import BaseStore

from langchain_ctxbudget.background import BackgroundWorker
from langchain_ctxbudget.bookkeeping import Bookkeeping, Prices
from langchain_ctxbudget.core.messages import checked, current_turn, split_instructions
from langchain_ctxbudget.core.report import ContextReport
from langchain_ctxbudget.core.schema_cost import require_schemas
from langchain_ctxbudget.core.tokens import TokenCounter, model_names, unwrapped
from langchain_ctxbudget.draft import AssembledContext, Draft, Target
from langchain_ctxbudget.errors import InputError, MessageConflictError
from langchain_ctxbudget.flow import Flow, T
from langchain_ctxbudget.forecasting import forecast
from langchain_ctxbudget.history import editing, log
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.keeper import Keeper
from langchain_ctxbudget.kin import Kin
from langchain_ctxbudget.knowledge import known, remembered
from langchain_ctxbudget.opening import NOTHING_ELSE, Request
from langchain_ctxbudget.recent import RecentPrompts
from langchain_ctxbudget.retrieval.search import Sources
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.steps import STEPS, WITHOUT_LOCK, run, take_up_block
from langchain_ctxbudget.stores.records import Scope
from langchain_ctxbudget.target import Model, ModelTarget, kind_of
from langchain_ctxbudget.what_if import Rerun
from langchain_ctxbudget.windows import with_setting

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

RECENT_MESSAGES = 6
"""The newest messages of which who was spoken of in them may still be meant."""
NO_EMBEDDINGS = "embeddings: none are installed, so retrieval is lexical only (pip install wordllama)"


class Engine(Keeper):
    """One model, one store, and the conversations that are open; shared by threads and tasks."""

    def __init__(
        self,
        *,
        settings: ContextSettings,
        system_prompt: str,
        target: ModelTarget,
        store: BaseStore | None,
        embeddings: Embeddings | None,
        writer_id: str | None,
        summary_model: BaseChatModel | None,
        reranker: BaseDocumentCompressor | None = None,
        clock: Callable[[], datetime] | None = None,
        prices: Prices | None = None,
        inherited: Mapping[Scope, Conversation] | None = None,
        sibling: Engine | None = None,
    ) -> None:
        """Set up; nothing is read, written or loaded yet.

        Args:
            settings: of the pipeline.
            system_prompt: of the pipeline.
            target: the model.
            store: None makes a private one.
            embeddings: None takes the local ones, where they are installed.
            writer_id: None makes one.
            summary_model: writes summaries; None leaves them to extraction.
            reranker: puts what was found in another order; None leaves it as it is.
            clock: tells what time it is; None takes the computer's.
            prices: of models, over those that come with the package.
            inherited: conversations of another engine on the same store, which need not be read again.
            sibling: an engine on the same store, whose open conversations it shares.
        """
        super().__init__(
            settings=settings,
            target=target,
            store=store,
            embeddings=embeddings,
            writer_id=writer_id,
            summary_model=summary_model,
            clock=clock,
            inherited=inherited,
            sibling=sibling,
        )
        self.system_prompt = system_prompt
        self.reranker = reranker
        self.bookkeeping: Bookkeeping = sibling.bookkeeping if sibling else Bookkeeping(self, clock, prices)
        self._stores: Kin[Engine] = Kin()
        self._models: Kin[Engine] = Kin()

    @property
    def recent(self) -> RecentPrompts:
        """The reports of the last few prompts, by what they say."""
        return self.last.recent

    def with_model(self, model: Model, token_counter: TokenCounter | None) -> Engine:
        """The same store, settings and open conversations for another model."""
        target = ModelTarget(model, token_counter)
        return self._twin(target, self.store, inherited=self.open_conversations.working_sets())

    def over(self, store: BaseStore | None) -> Engine:
        """The same model and settings for another store, which a run brought along; None is the engine's own."""
        if store is None or store is self._store:
            return self
        engine = self._stores.find(id(store), store, lambda: self._twin(self.target, store))
        engine.last = self.last
        return engine

    def for_model(self, model: BaseChatModel) -> Engine:
        """The same conversations for the model of a run; one that tells nothing of itself is taken for the engine's.

        Of one that tells its window but not its name, the tokenizer is taken for the engine's.
        """
        named = any(model_names(model))
        if unwrapped(model) is unwrapped(self.target.model) or not (named or getattr(model, "profile", None)):
            return self
        counter = self.target.given_counter or (None if named else self.target.tokenizer)
        return self._models.find(
            kind_of(model), None, lambda: self._twin(ModelTarget(model, counter), self.store, sibling=self)
        )

    def _twin(
        self,
        target: ModelTarget,
        store: BaseStore,
        *,
        inherited: Mapping[Scope, Conversation] | None = None,
        sibling: Engine | None = None,
    ) -> Engine:
        return Engine(
            settings=self.settings,
            system_prompt=self.system_prompt,
            target=target,
            store=store,
            embeddings=self._embeddings,
            reranker=self.reranker,
            writer_id=None,
            summary_model=self.summarizing.model if self.summarizing and sibling is None else None,
            clock=self.learning.clock,
            prices=self.bookkeeping.prices,
            inherited=inherited,
            sibling=sibling,
        )

    def close(self) -> None:
        """Give back what was opened here; a store that was passed in stays open."""
        for engine in (*self._stores.all(), *self._models.all()):
            engine.close()
        if not self._shares:
            self.bookkeeping.close()
        super().close()

    def erase(self, user_id: str) -> Flow[int]:
        """Delete everything of a user, also in the stores that runs brought along; how many records there were."""
        self.bookkeeping.erase(user_id)
        count = yield from super().erase(user_id)
        for engine in self._stores.all():
            count += yield from engine.erase(user_id)
        return count

    def clear(self, scope: Scope) -> Flow[None]:
        """Delete a conversation and everything that was derived from it, also in stores that runs brought along."""
        self.bookkeeping.forget(scope)
        yield from super().clear(scope)
        for engine in self._stores.all():
            yield from engine.clear(scope)

    def finish(self) -> list[BackgroundWorker[Any]]:
        """Have everything written that a summary model can write about; the workers that do it."""
        own = [*super().finish(), self.bookkeeping.finish()]
        return [*own, *(worker for engine in self._stores.all() for worker in engine.finish())]

    def assemble(
        self, scope: Scope, message: str | BaseMessage | Sequence[BaseMessage], request: Request = NOTHING_ELSE
    ) -> Flow[AssembledContext]:
        """The prompt for the current turn."""
        return self._drafted(scope, message, request, self._run_all)

    def forecast(self, scope: Scope, message: str, request: Request = NOTHING_ELSE) -> Flow[ContextReport]:
        """The report of a prompt that nobody sends: nothing is written, kept or counted, and no summary asked for."""
        return self._drafted(scope, message, request, lambda draft: forecast(draft, self.store, self.embeddings))

    def _drafted(
        self,
        scope: Scope,
        message: str | BaseMessage | Sequence[BaseMessage],
        request: Request,
        finish: Callable[[Draft], Flow[T]],
    ) -> Flow[T]:
        """What becomes of a draft for the current turn, while its conversation is held."""
        turn = current_turn(message)
        self._require(request)

        def body(conversation: Conversation) -> Flow[T]:
            started, calls = time.perf_counter(), self.target.tokenizer.calls
            yield from log.refresh(self.store, conversation)
            draft = yield from self._open_draft(conversation, turn, request, started=started, calls_before=calls)
            return (yield from finish(draft))

        return (yield from self.using(scope, body, self.target.counter))

    def answer(
        self,
        scope: Scope,
        history: Sequence[BaseMessage],
        turn: Sequence[BaseMessage],
        request: Request = NOTHING_ELSE,
    ) -> Flow[Draft]:
        """The finished prompt for an agent's state, made without anybody else coming in between; see `open_turn`."""
        begin = self._beginning(scope, history, turn, request)

        def body(conversation: Conversation) -> Flow[Draft]:
            draft = yield from begin(conversation)
            yield from self._run_all(draft)
            return draft

        return (yield from self.using(scope, body, self.target.counter))

    def open_turn(
        self,
        scope: Scope,
        history: Sequence[BaseMessage],
        turn: Sequence[BaseMessage],
        request: Request = NOTHING_ELSE,
    ) -> Flow[Draft]:
        """Begin a prompt for an agent's state: history is copied into the store, the turn is to be answered.

        System messages at its beginning join the system prompt. Where the copy cannot be written, the draft goes
        on with the given messages and says so.
        """
        begin = self._beginning(scope, history, turn, request)
        return (yield from self.using(scope, begin, self.target.counter))

    def _beginning(
        self, scope: Scope, history: Sequence[BaseMessage], turn: Sequence[BaseMessage], request: Request
    ) -> Callable[[Conversation], Flow[Draft]]:
        """What begins a prompt for an agent's state, once its conversation is there."""
        current = current_turn(turn)
        self._require(request)
        instructions, given = split_instructions(checked(history, "messages"))
        request = replace(request, instructions=(*request.instructions, *instructions))

        def begin(conversation: Conversation) -> Flow[Draft]:
            started, calls = time.perf_counter(), self.target.tokenizer.calls
            failures = [*request.failures]
            try:
                yield from log.refresh(self.store, conversation)
                yield from editing.sync(self.store, conversation, given, conversation.lane(self.writer_id), "archive")
            except InputError:
                raise
            except Exception as error:  # noqa: BLE001 - the state is the truth; the copy is tried again
                failures.append(f"history not copied to the store: {type(error).__name__}: {error}")
                conversation = editing.detached(scope, self.target.counter, given)
            draft = yield from self._open_draft(conversation, current, request, started=started, calls_before=calls)
            draft.failures += failures
            return draft

        return begin

    def run_step(self, name: str, draft: Draft) -> Flow[None]:
        """Run one of the six steps on a draft.

        Raises:
            MessageConflictError: another run has changed the conversation since the draft was begun.
        """

        def body(_: Conversation) -> Flow[None]:
            if draft.conversation.digest != draft.begun_with:
                raise MessageConflictError(
                    f"Another run changed the conversation {draft.conversation.scope.conversation_id!r} while its "
                    f"prompt was made. Run one turn of a thread at a time, or give each agent a conversation of its "
                    f"own: RunContext(conversation_id=...)"
                )
            yield from run(name, draft, self.store, self.embeddings)
            if draft.context is not None:
                self._finished(draft)

        if name in WITHOUT_LOCK:
            yield from run(name, draft, self.store, self.embeddings)
        else:
            yield from self.using(draft.conversation.scope, body, draft.counter)

    def observe(self, usage_metadata: Mapping[str, Any], report: ContextReport, model: str | None = None) -> float:
        """Correct the counts by what a provider measured for a prompt, and count what it used; the factor from now on.

        Raises:
            InputError: it is no usage, or cannot be that of this prompt.
        """
        scope = Scope(report.user_id, report.conversation_id)
        books, name = self.last.books_of(scope) or self.bookkeeping, model or self.target.model_name
        try:
            factor = self.target.observe(usage_metadata["input_tokens"], report)
        except InputError:
            with suppress(InputError):  # what was used was used, also where it cannot correct anything
                if not report.forecast:
                    books.note_usage(scope, usage_metadata, name)
            raise
        books.note_usage(scope, usage_metadata, name)
        return factor

    def _require(self, request: Request) -> None:
        """Refuse what cannot be meant, before anything is read."""
        require_schemas(request.tools, request.response_format)
        self.settings.override(request.settings)

    def _run_all(self, draft: Draft) -> Flow[AssembledContext]:
        for name in STEPS:
            yield from run(name, draft, self.store, self.embeddings)
        return self._finished(draft)

    def _finished(self, draft: Draft) -> AssembledContext:
        """The context of a finished draft; its report can be asked what another budget would have given."""
        context, conversation = draft.context, draft.conversation
        assert context is not None  # noqa: S101 - the last step sets it
        draft.cuts = dict(conversation.cuts)
        known.note_use(self.store, conversation.scope.user_id, draft.detected.hits, draft.detected.misses)
        conversation.coverage = context.report.coverage
        conversation.turn = draft.turn
        conversation.chosen = (draft.block, draft.settings) if draft.block else None
        if self.summarizing:
            self.summarizing.submit(draft)
        report = context.report.attach_candidates(Rerun(draft))
        self.last.note(context.messages, report, conversation.scope, self.bookkeeping)
        self.bookkeeping.note_prompt(
            report, conversation.scope, len(conversation.entries), draft.settings.keep_snapshots
        )
        return context

    def _open_draft(
        self,
        conversation: Conversation,
        turn: list[BaseMessage],
        request: Request,
        *,
        started: float,
        calls_before: int,
    ) -> Flow[Draft]:
        """Begin a prompt for a conversation that is up to date."""
        failures: list[str] = []
        if self.summarizing and (problem := self.summarizing.worker.failure_of(conversation.scope)):
            failures.append(f"summaries: {problem}")
        if problem := self.learning.problem(conversation):
            failures.append(f"learning about the user: {problem}")
        if problem := self.bookkeeping.problem(conversation.scope):
            failures.append(f"snapshots and usage not written: {problem}")
        settings, sources, stored = yield from self.settings_for(conversation, request, failures)
        now = self.learning.clock()
        tier, usage = yield from self.bookkeeping.state(conversation.scope, settings, failures)
        knowledge = known.shown(stored.knowledge, learned=settings.learn)
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
            system_prompt="\n\n".join(text for text in (self.system_prompt, *request.instructions) if text),
            turn=turn,
            tools=request.tools,
            response_format=request.response_format,
            calls_before=calls_before,
            failures=failures,
            knowledge=knowledge,
            expected=stored.expected,
            remembered=remembered.remembered(knowledge, conversation.snapshot, now),
            recent=tuple(entry.text for entry in conversation.entries[-RECENT_MESSAGES:]),
            now=now,
            tier=tier,
            usage=usage,
        )
        scope, draft.reranker = conversation.scope, self.reranker
        draft.sources = Sources(
            self.store,
            scope.user_id,
            [name for name in settings.sources if name != "documents" or draft.tier.documents != "none"],
            self.embeddings,
            without_conversation=scope.conversation_id,
            summaries_only=draft.tier.documents == "summary",
        )
        if self.summarizing and not settings.summarize_in_background:
            draft.write_summaries = self.summarizing.write_now
        if self.embeddings is None:
            draft.failures.append(NO_EMBEDDINGS)
        yield from take_up_block(draft, request.block, self.store, self.embeddings)
        draft.timings_ms["open"] = (time.perf_counter() - started) * 1000
        return draft
