"""The flows that make prompts: a conversation is opened, the six steps run, and what they change is written."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from langchain_core.documents import BaseDocumentCompressor
from langchain_core.embeddings import Embeddings
from langchain_core.messages import BaseMessage
from langgraph.store.base import BaseStore, Op, PutOp

from langchain_ctxbudget.background import BackgroundWorker, new_mutex
from langchain_ctxbudget.errors import BudgetError, InputError, MessageConflictError
from langchain_ctxbudget.flow import Call, Flow, T, batch
from langchain_ctxbudget.history import editing, log
from langchain_ctxbudget.history.compact import HistoryPlan, HistoryRoom, HistoryView
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.history.open import OpenConversation
from langchain_ctxbudget.history.turn_block import TurnBlock, is_of_earlier_turn
from langchain_ctxbudget.knowledge import facts_layer, known
from langchain_ctxbudget.knowledge import repositories as repos
from langchain_ctxbudget.messages.messages import checked, current_turn, split_instructions
from langchain_ctxbudget.pipeline.bookkeeping import Bookkeeping
from langchain_ctxbudget.pipeline.corrections import KeptCounts, observe
from langchain_ctxbudget.pipeline.lru_cache import LruCache
from langchain_ctxbudget.pipeline.opening import cuts_place
from langchain_ctxbudget.pipeline.recent import Last, RecentPrompts
from langchain_ctxbudget.pipeline.workspace import Workspace
from langchain_ctxbudget.prompt.assembly import asking
from langchain_ctxbudget.prompt.plan import AssembledContext, Plan, Prompt
from langchain_ctxbudget.prompt.request import NOTHING_ELSE, PromptRequest, Request
from langchain_ctxbudget.prompt.steps import (
    LAST_STEP,
    STEPS,
    WITHOUT_LOCK,
    Access,
    WriteSummaries,
    assemble,
    choose_history,
    settle,
)
from langchain_ctxbudget.prompt.what_if import WhatIf
from langchain_ctxbudget.report.report import ContextReport
from langchain_ctxbudget.retrieval.search import Sources
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores.records import CutRecord, CutsRecord, Scope
from langchain_ctxbudget.tokens.counters import TokenCounter, model_names, unwrapped
from langchain_ctxbudget.tokens.schema_cost import require_schemas
from langchain_ctxbudget.tokens.target import Model, ModelTarget, kind_of
from langchain_ctxbudget.tokens.windows import with_setting

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from langchain_ctxbudget.history.summarizing import Summarizing
    from langchain_ctxbudget.knowledge.learner import Learning

NO_EMBEDDINGS = "embeddings: none are installed, so retrieval is lexical only (pip install wordllama)"


@dataclass(slots=True)
class Session:
    """A prompt that is being made: its plan, and the conversation that it changes once it is finished."""

    plan: Plan
    access: Access
    conversation: OpenConversation
    timings_ms: dict[str, float] = field(default_factory=dict)
    context: AssembledContext | None = None
    """The finished prompt."""
    _mutex: Any = field(default_factory=new_mutex)

    def advance(self, before: Plan, after: Plan) -> None:
        """Takes in what a step has made of a plan; another step may have gone on with it meanwhile."""
        changes = {
            one.name: value
            for one in fields(Plan)
            if (value := getattr(after, one.name)) is not getattr(before, one.name)
        }
        with self._mutex:
            if "failures" in changes:
                changes["failures"] = (*self.plan.failures, *after.failures[len(before.failures) :])
            self.plan = replace(self.plan, **changes)


class Engine:
    """One model over a workspace; shared by threads and tasks."""

    def __init__(
        self,
        *,
        settings: ContextSettings,
        system_prompt: str,
        target: ModelTarget,
        workspace: Workspace,
        reranker: BaseDocumentCompressor | None = None,
    ) -> None:
        """Sets up; nothing is read, written or loaded yet.

        Args:
            settings: of the pipeline.
            system_prompt: of the pipeline.
            target: the model.
            workspace: the store, and what is kept beside it.
            reranker: puts what was found in another order; None leaves it as it is.
        """
        self.settings, self.system_prompt = settings, system_prompt
        self.target, self.workspace, self.reranker = target, workspace, reranker
        self._kept_counts = KeptCounts(target)
        self._loaded = self._closed = False
        self._stores: LruCache[Engine] = LruCache()
        self._models: LruCache[Engine] = LruCache()

    @property
    def store(self) -> BaseStore:
        """Where conversations are kept.

        Raises:
            StoreError: the pipeline is closed.
        """
        return self.workspace.store

    @property
    def embeddings(self) -> Embeddings | None:
        """What retrieval compares texts with; None where none were given and none are installed."""
        return self.workspace.embeddings

    @property
    def learning(self) -> Learning:
        """The worker that learns about users."""
        return self.workspace.learning

    @property
    def summarizing(self) -> Summarizing | None:
        """The summary model at work."""
        return self.workspace.summarizing

    @property
    def bookkeeping(self) -> Bookkeeping:
        """The worker that writes snapshots and usage."""
        return self.workspace.bookkeeping

    @property
    def last(self) -> Last:
        """What was assembled last."""
        return self.workspace.last

    @property
    def recent(self) -> RecentPrompts:
        """The reports of the last few prompts, by what they say."""
        return self.last.recent

    def with_model(self, model: Model, token_counter: TokenCounter | None) -> Engine:
        """Returns the same store, settings and open conversations for another model."""
        return self._twin(ModelTarget(model, token_counter), self.workspace.share())

    def over(self, store: BaseStore | None) -> Engine:
        """Returns the same for another store, which a run brought along; None is the engine's own."""
        if store is None or self.workspace.is_over(store):
            return self
        return self._stores.find(id(store), store, lambda: self._twin(self.target, self.workspace.over(store)))

    def for_model(self, model: BaseChatModel) -> Engine:
        """Returns the engine for the model of a run; one that tells nothing of itself is taken for the engine's.

        Of one that tells its window but not its name, the tokenizer is taken for the engine's.
        """
        named = any(model_names(model))
        if unwrapped(model) is unwrapped(self.target.model) or not (named or getattr(model, "profile", None)):
            return self
        counter = self.target.given_counter or (None if named else self.target.tokenizer)
        return self._models.find(kind_of(model), None, lambda: self._twin(ModelTarget(model, counter), self.workspace))

    def _twin(self, target: ModelTarget, workspace: Workspace) -> Engine:
        return Engine(
            settings=self.settings,
            system_prompt=self.system_prompt,
            target=target,
            workspace=workspace,
            reranker=self.reranker,
        )

    def close(self) -> None:
        """Gives back what was opened here; a store that was passed in stays open."""
        if not self._closed:
            self._closed = True
            for engine in self._stores.all():
                engine.close()
            self.workspace.close()

    def erase(self, user_id: str) -> Flow[int]:
        """Deletes everything of a user, also in the stores that runs brought along; returns the number of records."""
        count = yield from self.workspace.erase(user_id)
        for engine in self._stores.all():
            count += yield from engine.erase(user_id)
        return count

    def clear(self, scope: Scope) -> Flow[None]:
        """Deletes a conversation and everything that was derived from it, also in stores that runs brought along."""
        yield from self.workspace.clear(scope)
        for engine in self._stores.all():
            yield from engine.clear(scope)

    def finish(self) -> list[BackgroundWorker[Any]]:
        """Has everything written that is to be written; returns the workers that do it."""
        return [*self.workspace.finish(), *(worker for engine in self._stores.all() for worker in engine.finish())]

    def ready(self) -> Flow[None]:
        """Loads what is needed to decide anything; a blocking call loads it where it is needed."""
        if not self._loaded:
            yield Call(lambda: None, lambda: asyncio.to_thread(self._load))
            self._loaded = True

    def _load(self) -> None:
        self.target.load()
        _ = self.embeddings

    def recall(
        self, scope: Scope, body: Callable[[Conversation], Flow[T]], *, held: Sequence[BaseMessage] = ()
    ) -> Flow[T]:
        """Runs a flow that reads a conversation as it is now, counted for the model.

        Args:
            scope: of the conversation.
            body: the flow.
            held: the messages that it has where it is in memory only.
        """

        def seen(conversation: OpenConversation) -> Flow[T]:
            if not scope.is_kept:
                editing.hold(conversation, held)
            return (yield from body(conversation.seen_with(self.target.counter)))

        yield from self.ready()
        return (yield from self.workspace.recall(scope, seen))

    def assemble(
        self, scope: Scope, message: str | BaseMessage | Sequence[BaseMessage], request: Request = NOTHING_ELSE
    ) -> Flow[AssembledContext]:
        """Makes the prompt for the current turn."""
        return (yield from self._with_session(scope, self._beginning(message, request), self._run_all))

    def forecast(self, scope: Scope, message: str, request: Request = NOTHING_ELSE) -> Flow[ContextReport]:
        """Makes the report of a prompt that nobody sends: nothing is written, kept or counted, no summary asked for."""

        def finish(session: Session) -> Flow[ContextReport]:
            prompt = yield from self._made(session, replace(session.access, write_summaries=None))
            return prompt.context.report.attach_candidates(WhatIf(prompt))

        return (yield from self._with_session(scope, self._beginning(message, request), finish))

    def answer(
        self,
        scope: Scope,
        history: Sequence[BaseMessage],
        turn: Sequence[BaseMessage],
        request: Request = NOTHING_ELSE,
    ) -> Flow[Session]:
        """Makes the prompt for an agent's state, without anybody else coming in between; see `open_turn`."""

        def finish(session: Session) -> Flow[Session]:
            yield from self._run_all(session)
            return session

        return (yield from self._with_session(scope, self._beginning_of_state(scope, history, turn, request), finish))

    def open_turn(
        self,
        scope: Scope,
        history: Sequence[BaseMessage],
        turn: Sequence[BaseMessage],
        request: Request = NOTHING_ELSE,
    ) -> Flow[Session]:
        """Begins a prompt for an agent's state: history is copied into the store, the turn is to be answered.

        System messages at its beginning join the system prompt. Where the copy cannot be written, the prompt goes
        on with the given messages and says so.
        """

        def finish(session: Session) -> Flow[Session]:
            yield from ()
            return session

        return (yield from self._with_session(scope, self._beginning_of_state(scope, history, turn, request), finish))

    def run_step(self, name: str, session: Session) -> Flow[None]:
        """Runs one of the six steps of a prompt.

        Raises:
            MessageConflictError: another run has changed the conversation since the prompt was begun.
        """

        def body(_: OpenConversation) -> Flow[None]:
            if session.conversation.digest != session.plan.conversation.digest:
                raise MessageConflictError(
                    f"Another run changed the conversation {session.conversation.scope.conversation_id!r} while its "
                    f"prompt was made. Run one turn of a thread at a time, or give each agent a conversation of its "
                    f"own: RunContext(conversation_id=...)"
                )
            yield from self._run(name, session)

        if name in WITHOUT_LOCK:
            yield from self._run(name, session)
        else:
            yield from self.workspace.using(session.conversation.scope, body)

    def observe(
        self, used: Mapping[str, Any], report: ContextReport, model: str | None = None, *, comparable: bool = True
    ) -> float:
        """Corrects the counts by what a provider measured, and counts what it used; see `corrections.observe`."""
        scope = self.last.scope_of(report)
        books = self.last.books_of(scope) or self.bookkeeping
        return observe(self.target, books, scope, used, report, model=model, comparable=comparable)

    def _with_session(
        self,
        scope: Scope,
        begin: Callable[[OpenConversation], Flow[Session]],
        finish: Callable[[Session], Flow[T]],
    ) -> Flow[T]:
        """Begins a prompt and goes on with it while its conversation is held."""

        def body(conversation: OpenConversation) -> Flow[T]:
            yield from self._kept_counts.read(self.store)
            return (yield from finish((yield from begin(conversation))))

        yield from self.ready()
        return (yield from self.workspace.using(scope, body))

    def _require(self, request: Request) -> None:
        """Refuses what cannot be meant, before anything is read."""
        require_schemas(request.tools, request.response_format)
        self.settings.override(request.settings)

    def _beginning(
        self, message: str | BaseMessage | Sequence[BaseMessage], request: Request
    ) -> Callable[[OpenConversation], Flow[Session]]:
        turn = current_turn(message)
        self._require(request)

        def begin(conversation: OpenConversation) -> Flow[Session]:
            started, calls = time.perf_counter(), self.target.tokenizer.calls
            yield from log.refresh(self.store, conversation)
            return (yield from self._open(conversation, turn, request, started=started, calls_before=calls))

        return begin

    def _beginning_of_state(
        self, scope: Scope, history: Sequence[BaseMessage], turn: Sequence[BaseMessage], request: Request
    ) -> Callable[[OpenConversation], Flow[Session]]:
        current = current_turn(turn)
        self._require(request)
        instructions, given = split_instructions(checked(history, "messages"))
        request = replace(request, instructions=(*request.instructions, *instructions))

        def begin(conversation: OpenConversation) -> Flow[Session]:
            started, calls = time.perf_counter(), self.target.tokenizer.calls
            failures = [*request.failures]
            try:
                yield from log.refresh(self.store, conversation)
                goes_on = is_of_earlier_turn(request.block, current)
                yield from editing.take_over(
                    self.store, conversation, given, self.workspace.writer_id, goes_on=goes_on, task=request.task
                )
                if conversation.forgotten:
                    failures.append(editing.GOES_ON % conversation.forgotten)
            except InputError:
                raise
            except Exception as error:  # noqa: BLE001 - the state is the truth; the copy is tried again
                failures.append(f"history not copied to the store: {type(error).__name__}: {error}")
                conversation = editing.detached(scope, given)
            session = yield from self._open(conversation, current, request, started=started, calls_before=calls)
            session.plan = session.plan.failed(*failures)
            return session

        return begin

    def _open(
        self,
        conversation: OpenConversation,
        turn: list[BaseMessage],
        request: Request,
        *,
        started: float,
        calls_before: int,
    ) -> Flow[Session]:
        """Begins a prompt for a conversation that is up to date."""
        scope = conversation.scope
        failures = [*filter(None, [self._kept_counts.problem])]
        if not scope.is_kept:
            failures.append(self.last.no_thread())
        if self.summarizing and (problem := self.summarizing.worker.failure_of(scope)):
            failures.append(f"summaries: {problem}")
        if problem := self.learning.problem(conversation):
            failures.append(f"learning about the user: {problem}")
        if problem := self.bookkeeping.problem(scope):
            failures.append(f"snapshots and usage not written: {problem}")
        settings, sources, stored = yield from self.workspace.settings_for(conversation, request, failures)
        now = self.learning.clock()
        tier, usage = yield from self.bookkeeping.state(scope, settings, failures)
        knowledge = known.shown(stored.knowledge, learned=settings.learn)
        window = with_setting((yield from self.target.find_window()), settings.window_tokens)
        failures += [window.failure] if window.failure else []
        failures += [] if self.embeddings else [NO_EMBEDDINGS]
        asked = PromptRequest(
            turn=turn,
            system_prompt="\n\n".join(text for text in (self.system_prompt, *request.instructions) if text),
            settings=settings,
            settings_from=sources,
            tools=request.tools,
            response_format=request.response_format,
            window=window,
            tier=tier,
            usage=usage,
            knowledge=knowledge,
            remembered=facts_layer.facts_of(knowledge, conversation.snapshot, now),
            expected=stored.expected,
            now=now,
            calls_before=calls_before,
            failures=tuple(failures),
        )
        plan = Plan.begin(conversation.seen_with(self.target.counter), asked)
        session = Session(plan, self._access(conversation, settings, asked), conversation)
        yield from self._go_on_with_block(session, request.block)
        session.timings_ms["open"] = (time.perf_counter() - started) * 1000
        return session

    def _access(self, conversation: OpenConversation, settings: ContextSettings, asked: PromptRequest) -> Access:
        scope, documents = conversation.scope, asked.tier.documents
        return Access(
            store=self.store,
            lock=conversation.lock,
            embeddings=self.embeddings,
            sources=Sources(
                self.store,
                scope.user_id,
                [name for name in settings.sources if name != "documents" or documents != "none"],
                self.embeddings,
                without_conversation=scope.conversation_id,
                summaries_only=documents == "summary",
            ),
            other_conversations=conversation.other_conversations,
            reranker=self.reranker,
            write_summaries=self._writer(scope, settings),
        )

    def _go_on_with_block(self, session: Session, given: object) -> Flow[None]:
        """Goes on with the context block that was chosen when the turn began, where an agent is in the middle of one.

        It is what the agent's state has, else what this process remembers, else what is chosen for the human message
        alone: that follows from what was stored before it, as it did when the turn began.
        """
        plan = session.plan
        turn, history, last = plan.request.turn, plan.conversation.digest, plan.conversation.last
        first = asking(turn)
        if first is None or first + 1 == len(turn):
            return
        message = turn[first]
        block: TurnBlock | None = None
        if given is not None:
            try:
                block = TurnBlock.from_dict(given)
            except InputError as error:  # derived: it is chosen again
                plan = plan.failed(str(error))
        if (block is None or not block.is_for(message, history)) and last and last.settings == plan.request.settings:
            block = last.block
        if block is None or not block.is_for(message, history):
            begun = Plan.begin(plan.conversation, replace(plan.request, turn=turn[: first + 1], failures=()))
            try:
                for step in STEPS.values():
                    begun = yield from step(begun, session.access)
                begun = settle(begun).plan
            except BudgetError:  # the prompt itself tells what it needs
                begun = begun.but(block=None)
            block = begun.block or TurnBlock.of(message, history, (), {})
            plan = plan.failed(*begun.failures)
        session.plan = plan.but(request=replace(plan.request, block=block)).with_block(block)

    def _run(self, name: str, session: Session) -> Flow[None]:
        started = time.perf_counter()
        if name == LAST_STEP:
            prompt = assemble(session.plan)
            session.timings_ms[name] = (time.perf_counter() - started) * 1000
            yield from self._finish(session, prompt)
        else:
            before = session.plan
            session.advance(before, (yield from STEPS[name](before, session.access)))
            session.timings_ms[name] = (time.perf_counter() - started) * 1000

    def _run_all(self, session: Session) -> Flow[AssembledContext]:
        for name in (*STEPS, LAST_STEP):
            yield from self._run(name, session)
        assert session.context is not None  # noqa: S101 - the last step sets it
        return session.context

    def _made(self, session: Session, access: Access) -> Flow[Prompt]:
        """Makes a prompt of which nothing is written."""
        plan = session.plan
        for step in STEPS.values():
            plan = yield from step(plan, access)
        return assemble(plan)

    def _finish(self, session: Session, prompt: Prompt) -> Flow[None]:
        """Writes what a prompt changes, and remembers it."""
        conversation, changes, scope = session.conversation, prompt.changes, session.conversation.scope
        settings = prompt.plan.request.settings
        if changes.snapshot is not None:
            conversation.snapshot_unsaved |= changes.snapshot != conversation.snapshot
            conversation.snapshot = changes.snapshot
        # One that shows nothing because nothing is known is written by whoever learns something.
        knows = prompt.plan.request.knowledge.mark.mark != ""
        problems = yield from self._write(conversation, changes.cut, step=changes.step, with_snapshot=knows)
        known.note_use(self.store, scope.user_id, changes.hits, changes.misses)
        self.learning.renew_vectors(scope.user_id, changes.lacks_vectors)
        conversation.last = changes.last
        problems += self._summarize(conversation, settings, prompt.plan.history)
        report = prompt.context.report
        timings = {step: session.timings_ms[step] for step in ("open", *STEPS, LAST_STEP) if step in session.timings_ms}
        failures = tuple(dict.fromkeys((*report.failures, *problems)))
        report = replace(report, timings_ms=timings, failures=failures).attach_candidates(WhatIf(prompt))
        session.context = replace(prompt.context, report=report)
        session.plan = prompt.plan
        self.last.note(session.context.messages, report, scope, self.bookkeeping)
        keep = settings.keep_snapshots if scope.is_kept else 0
        self.bookkeeping.note_prompt(report, scope, len(conversation.entries), keep)

    def _summarize(self, conversation: OpenConversation, settings: ContextSettings, view: HistoryView) -> list[str]:
        """Has a model write about what is behind a cut, or is about to be; returns what is to be reported."""
        if self.summarizing is None:
            return []
        made = conversation.table.made
        made.segment_messages, made.until = settings.segment_messages, max(view.cut, view.next_cut)
        return self.summarizing.submit(conversation, step=view.step) if settings.summarize_in_background else []

    def _write(
        self, conversation: OpenConversation, cut: CutRecord | None, *, step: bool, with_snapshot: bool
    ) -> Flow[list[str]]:
        """Stores a new cut, so that a restart goes on with it, and what is shown of the facts about the user."""
        scope = conversation.scope
        if cut is not None:
            conversation.use(cut)
            conversation.cuts_unsaved |= step
        puts: list[Op] = []
        if conversation.cuts_unsaved:
            place, record = cuts_place(scope), CutsRecord(cuts=tuple(conversation.cuts.values()))
            puts.append(PutOp(place.namespace, place.key, record.to_value(), index=False))
        with_snapshot = with_snapshot and conversation.snapshot_unsaved
        if with_snapshot:
            puts.append(repos.snapshot_write(scope, conversation.snapshot))
        try:
            yield from batch(self.store, puts if scope.is_kept else [])
        except Exception as error:  # noqa: BLE001 - derived data: the next step writes it again
            return [f"compaction cuts not saved: {type(error).__name__}: {error}"]
        conversation.cuts_unsaved = False
        conversation.snapshot_unsaved &= not with_snapshot
        return []

    def history(
        self, scope: Scope, room: Callable[[Conversation, ContextSettings], HistoryRoom]
    ) -> Flow[tuple[HistoryView, Conversation, list[str]]]:
        """Chooses what of a conversation alone goes into some room; returns what went wrong, too."""

        def body(conversation: OpenConversation) -> Flow[tuple[HistoryView, Conversation, list[str]]]:
            problems: list[str] = []
            settings, *_ = yield from self.workspace.settings_for(conversation, NOTHING_ELSE, problems)
            seen = conversation.seen_with(self.target.counter)
            access = Access(store=self.store, lock=conversation.lock, write_summaries=self._writer(scope, settings))
            view, failures = yield from choose_history(HistoryPlan(seen, room(seen, settings)), access)
            failures += yield from self._write(conversation, view.record, step=view.step, with_snapshot=False)
            failures += self._summarize(conversation, settings, view)
            return view, seen, [*problems, *failures]

        yield from self.ready()
        return (yield from self.workspace.recall(scope, body))

    def _writer(self, scope: Scope, settings: ContextSettings) -> WriteSummaries | None:
        """Returns what writes summaries while a turn waits for it, where it is to wait."""
        waits = self.summarizing and scope.is_kept and not settings.summarize_in_background
        return self.summarizing.write_now if self.summarizing and waits else None
