"""The flows that make prompts: open the conversation, run the six steps, write their changes."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any, cast

from langchain_core.documents import BaseDocumentCompressor
from langchain_core.messages import AIMessage
from langgraph.store.base import BaseStore

from langchain_ctxbudget import prompt as prompts
from langchain_ctxbudget.errors import InputError, TokenCountError
from langchain_ctxbudget.flow import Call, Flow, T
from langchain_ctxbudget.history import (
    Conversation,
    HistoryPlan,
    HistoryView,
    OpenConversation,
    editing,
)
from langchain_ctxbudget.messages import model_of, split_turn, unsent_extras_of
from langchain_ctxbudget.pipeline import finishing
from langchain_ctxbudget.pipeline.session import Messages, Session, SessionOpener, Turn
from langchain_ctxbudget.pipeline.workspace import LruCache, Workspace
from langchain_ctxbudget.prompt import STEPS, Access, AssembledContext, Prompt, Request
from langchain_ctxbudget.report import ContextReport
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores import Scope
from langchain_ctxbudget.tokens import (
    ModelTarget,
    is_of_one_call,
    model_names,
    target_key,
    unwrapped,
)

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel


class Engine:
    """One model over a workspace.

    Makes the prompts of a pipeline, also for threads and tasks that share it.
    """

    def __init__(
        self,
        workspace: Workspace,
        target: ModelTarget,
        system_prompt: str,
        reranker: BaseDocumentCompressor | None,
    ) -> None:
        self.workspace = workspace
        self.settings = workspace.settings
        self.recent = workspace.recent
        self.target = target
        self.system_prompt = system_prompt
        self.reranker = reranker
        self._opener = SessionOpener(workspace, target, system_prompt, reranker)
        self._of_runs: LruCache[Engine] = LruCache()
        self._is_loaded = False

    def over_store(self, store: BaseStore | None) -> "Engine":
        """Returns the same over the store that a run brought along; None is the engine's own."""
        workspace = self.workspace.over_store(store)
        if workspace is self.workspace:
            return self
        return self._of_runs.find(id(workspace), lambda: self._same(workspace, self.target))

    def for_model(self, model: "BaseChatModel") -> "Engine":
        """Returns the engine for the model of a run.

        What that does not tell of itself is taken for the engine's.
        """
        if unwrapped(model) is unwrapped(self.target.model):
            return self
        is_named = any(model_names(model))
        if not is_named and not getattr(model, "profile", None):
            return self
        counter = self.target.given_counter
        if counter is None and not is_named:
            counter = self.target.tokenizer
        target = ModelTarget(model, counter)
        return self._of_runs.find(target_key(model), lambda: self._same(self.workspace, target))

    def _same(self, workspace: Workspace, target: ModelTarget) -> "Engine":
        return Engine(workspace, target, self.system_prompt, self.reranker)

    def ready(self) -> Flow[None]:
        """Loads everything that a decision needs ahead of it.

        A blocking call loads it on first use.
        """

        def load() -> None:
            self.target.load()
            _ = self.workspace.embeddings

        if not self._is_loaded:
            yield Call(lambda: None, lambda: asyncio.to_thread(load))
            self._is_loaded = True

    def recall(
        self,
        scope: Scope,
        body: Callable[[Conversation], Flow[T]],
        held: Messages | None = None,
        thread: str | None = None,
    ) -> Flow[T]:
        """Runs a flow on the current conversation.

        One in memory only consists of the `held` messages. So does that of a run whose `thread` is
        another user's; where none are given, it is as the last prompt of this process had it.
        """

        def with_conversation(conversation: OpenConversation) -> Flow[T]:
            if not scope.is_kept:
                editing.hold(conversation, held or ())
            elif thread is not None:
                of_run = yield from self.workspace.of_run(conversation, thread, claims=False)
                if of_run is not conversation and held is not None:
                    editing.mirror(of_run, held)
                conversation = of_run
            return (yield from body(conversation.seen_with(self.target.counter)))

        yield from self.ready()
        return (yield from self.workspace.recall(scope, with_conversation))

    def assemble(
        self, scope: Scope, message: Turn, request: Request = prompts.NO_OPTIONS
    ) -> Flow[AssembledContext]:
        """Makes the prompt for the current turn."""
        session = yield from self._in_session(scope, message, None, request, self._run_all)
        return session.finished

    def forecast(
        self, scope: Scope, message: str, request: Request = prompts.NO_OPTIONS
    ) -> Flow[Prompt]:
        """Makes a prompt that nobody sends.

        Nothing is written, kept or counted, no summary asked for.
        """

        def finish(session: Session) -> Flow[Prompt]:
            plan = session.plan
            for step in STEPS.values():
                plan = yield from step(plan, session.access)
            session.plan = plan
            return (yield from self._assembled(session))

        return (yield from self._in_session(scope, message, None, request, finish))

    def answer(
        self,
        scope: Scope,
        history: Messages,
        turn: Messages,
        request: Request = prompts.NO_OPTIONS,
    ) -> Flow[Session]:
        """Makes the prompt for an agent's state, without anybody else coming in between."""
        return (yield from self._in_session(scope, turn, history, request, self._run_all))

    def run_node(
        self,
        name: str,
        scope: Scope,
        messages: Messages,
        request: Request,
        *,
        state: Mapping[str, Any],
    ) -> Flow[tuple[Session, dict[str, Any]]]:
        """Runs one step for an agent's messages, and returns also what it writes to the channels.

        It goes by what the channels of a state say of the steps before it; see `ContextState`.
        Where this process has just run those steps, and they have decided what the channels say, it
        goes on from there; else they are run again.
        """
        node = _Node(self, name, messages, request, state)
        yield from self.ready()
        return (yield from self.workspace.using(scope, node.run))

    def history(
        self,
        scope: Scope,
        planned: Callable[[Conversation, ContextSettings], HistoryPlan],
        request: Request,
    ) -> Flow[tuple[HistoryView, Conversation, list[str]]]:
        """Chooses the part of a conversation that fits a window without a turn.

        Also returns what failed.
        """
        workspace = self.workspace

        def body(
            conversation: OpenConversation,
        ) -> Flow[tuple[HistoryView, Conversation, list[str]]]:
            problems: list[str] = []
            settings = (yield from workspace.read_stored(conversation, request, problems)).settings
            seen = conversation.seen_with(self.target.counter, self.target.longest_call_id)
            access = Access(store=workspace.store)
            view, failures = yield from prompts.choose_history(planned(seen, settings), access)
            unwritten = yield from finishing.write(
                workspace.store,
                conversation,
                view.record,
                is_rebuilt=view.is_rebuilt,
                with_snapshot=False,
            )
            finishing.summarize(workspace, conversation, settings, view)
            return view, seen, [*problems, *failures, *unwritten]

        yield from self.ready()
        return (yield from workspace.recall(scope, body))

    def observe(
        self,
        usage_metadata: Mapping[str, Any] | AIMessage | None,
        report: ContextReport | None,
        model: str | None = None,
    ) -> float:
        """Corrects the estimates and books the usage; see `ContextPipeline.observe_usage`."""
        is_comparable = True
        if isinstance(usage_metadata, AIMessage):
            answer = usage_metadata
            model = model or model_of(answer)
            is_comparable = is_of_one_call(answer)
            usage_metadata = cast("Mapping[str, Any] | None", answer.usage_metadata)
        if usage_metadata is None:
            return self.target.calibration.factor

        report = report or self._last_report()
        self._book(usage_metadata, report, model or self.target.model_name)
        if is_comparable:
            tokenizer = self.target.tokenizer.name
            if report.tokenizer != tokenizer:
                raise InputError(
                    f"The report was counted with {report.tokenizer!r}, and this pipeline counts "
                    f"with {tokenizer!r}: pass usage to the pipeline that assembled the prompt"
                )
            self.target.observe(usage_metadata["input_tokens"], report.uncorrected_tokens)
        return self.target.calibration.factor

    def _last_report(self) -> ContextReport:
        if self.recent.last is None:
            raise InputError(
                "Nothing was assembled yet: pass the report of the prompt that this usage is for"
            )
        return self.recent.last.report()

    def _book(
        self, usage_metadata: Mapping[str, Any], report: ContextReport, model: str | None
    ) -> None:
        """Books the usage for a prompt in the books of its store."""
        if report.forecast:
            raise InputError("The report is a forecast: a prompt of it was never sent")
        recent = self.recent.last_of(report.user_id, report.conversation_id)
        if recent is None:
            scope = Scope(report.user_id, report.conversation_id)
            books = self.workspace.bookkeeping
        else:
            scope = recent.scope
            books = recent.books
        books.note(scope, usage_metadata, model)
        books.worker.submit(scope.user_id)

    def _in_session(
        self,
        scope: Scope,
        message: Turn,
        history: Messages | None,
        request: Request,
        finish: Callable[[Session], Flow[T]],
    ) -> Flow[T]:
        """Begins a prompt, and runs `finish` with it under the conversation's lock."""

        def body(conversation: OpenConversation) -> Flow[T]:
            session = yield from self._opener.open(conversation, message, history, request)
            return (yield from finish(session))

        yield from self.ready()
        return (yield from self.workspace.using(scope, body))

    def open_session(
        self, conversation: OpenConversation, turn: Messages, history: Messages, request: Request
    ) -> Flow[Session]:
        """Begins a prompt for an agent's state."""
        return self._opener.open(conversation, turn, history, request)

    def run_step(self, name: str, session: Session) -> Flow[None]:
        """Runs one of the six steps; the last one also writes what the prompt changes."""
        started = time.perf_counter()
        prompt: Prompt | None = None
        if name in STEPS:
            session.plan = yield from STEPS[name](session.plan, session.access)
        if name == prompts.LAST_STEP:
            prompt = yield from self._assembled(session)
        session.timings_ms[name] = (time.perf_counter() - started) * 1000
        if prompt is not None:
            yield from finishing.finish(self.workspace, session, prompt)

    def _assembled(self, session: Session) -> Flow[Prompt]:
        """Finishes a prompt.

        Where its recount differs, makes it again from the beginning, without known costs.
        """
        try:
            return prompts.assemble(session.plan)
        except TokenCountError as error:
            problem = prompts.MADE_AGAIN.format(problem=error)
        assert session.begun is not None  # noqa: S101 - it is set as the session is opened
        session.conversation.table.forget_costs(session.plan.counter)
        plan = prompts.without_caches(session.begun).with_failures(problem)
        for name, step in STEPS.items():
            plan = yield from step(plan, session.access)
            channel = prompts.CHANNELS[name]
            decided = session.decisions.get(name)
            if decided is not None and decided != channel.data_of(plan):
                plan = channel.taken(plan, decided)
        return prompts.assemble(plan)

    def _run_all(self, session: Session) -> Flow[Session]:
        for name in (*STEPS, prompts.LAST_STEP):
            yield from self.run_step(name, session)
        return session


@dataclass(frozen=True, slots=True)
class _Node:
    """One step, as a node of a graph runs it between nodes of the application."""

    engine: Engine
    name: str
    messages: Messages
    request: Request
    state: Mapping[str, Any]

    def run(self, conversation: OpenConversation) -> Flow[tuple[Session, dict[str, Any]]]:
        """Runs the step, and returns what it writes to the channels of the state."""
        is_live = self._goes_on(conversation.under_way)
        if is_live:
            session = cast("Session", conversation.under_way)
        else:
            session = yield from self._opened(conversation)
        conversation.under_way = session
        before = self._steps_before()
        decided = self._decided()
        session.decisions = {step: decided[step] for step in before if decided[step] is not None}

        for step in before:
            is_needed = decided[step] is None or not is_live
            if is_needed and step not in session.timings_ms:
                yield from self.engine.run_step(step, session)
            _take_up_decision(session, step, decided[step])
        yield from self.engine.run_step(self.name, session)

        if session.context is not None:
            conversation.under_way = None
            return session, {}
        return session, self._written(session, before, decided)

    def _request_key(self) -> object:
        return (self.engine, self.messages, self.request)

    def _steps_before(self) -> list[str]:
        return [*takewhile(lambda step: step != self.name, prompts.CHANNELS)]

    def _decided(self) -> dict[str, Any]:
        """Returns what the channels of the state say, by the step that each belongs to."""
        return {step: self.state.get(channel.name) for step, channel in prompts.CHANNELS.items()}

    def _goes_on(self, session: object) -> bool:
        """Returns whether a session has run the steps before, as the channels say of them."""
        if not isinstance(session, Session) or session.request_key != self._request_key():
            return False
        if self.name in session.timings_ms:
            return False
        ran = [step for step in self._steps_before() if step in session.timings_ms]
        decided = self._decided()
        for step in ran[:-1]:
            written = prompts.CHANNELS[step].data_of(session.plan)
            if decided[step] is not None and decided[step] != written:
                return False
        is_unchanged = session.conversation.table.digest() == session.plan.conversation.digest
        return bool(ran) and is_unchanged

    def _opened(self, conversation: OpenConversation) -> Flow[Session]:
        history, turn = split_turn(self.messages)
        failures = (*self.request.failures, *unsent_extras_of(self.messages))
        request = replace(self.request, failures=failures)
        session = yield from self.engine.open_session(conversation, turn, history, request)
        session.request_key = self._request_key()
        return session

    def _written(
        self, session: Session, before: list[str], decided: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns what the channels are to say now, where that is not what they say."""
        now = {step: prompts.CHANNELS[step].data_of(session.plan) for step in (*before, self.name)}
        changed: dict[str, Any] = {}
        for step, channel in prompts.CHANNELS.items():
            if step == self.name or now.get(step) != decided[step]:
                changed[channel.name] = now.get(step)
        return changed


def _take_up_decision(session: Session, step: str, decided: object) -> None:
    """Makes the plan of a session say what the channel of a step says."""
    channel = prompts.CHANNELS[step]
    if decided is not None and decided != channel.data_of(session.plan):
        session.plan = channel.taken(session.plan, decided)
