"""The flows that make prompts: open the conversation, run the six steps, write their changes."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING, Any, cast

from langchain_core.documents import BaseDocumentCompressor
from langchain_core.messages import AIMessage, BaseMessage
from langgraph.store.base import BaseStore, Op, PutOp

from langchain_ctxbudget import history as histories
from langchain_ctxbudget import prompt as prompts
from langchain_ctxbudget.errors import BudgetError, InputError, TokenCountError
from langchain_ctxbudget.flow import Call, Flow, T, batch, with_fallback
from langchain_ctxbudget.history import (
    Background,
    Conversation,
    HistoryPlan,
    HistoryView,
    OpenConversation,
    editing,
)
from langchain_ctxbudget.knowledge import facts, known, records
from langchain_ctxbudget.messages import (
    checked,
    current_turn,
    flattened,
    is_user,
    model_of,
    split_instructions,
    split_turn,
)
from langchain_ctxbudget.pipeline.snapshots import keep_report
from langchain_ctxbudget.pipeline.workspace import LruCache, Workspace, conversation_apart
from langchain_ctxbudget.prompt import (
    STEPS,
    Access,
    AssembledContext,
    Plan,
    Prompt,
    PromptRequest,
    Request,
)
from langchain_ctxbudget.report import ContextReport
from langchain_ctxbudget.retrieval import Sources
from langchain_ctxbudget.settings import ContextSettings, Source
from langchain_ctxbudget.stores import CutRecord, CutsRecord, Scope, SharedThread, guests, written
from langchain_ctxbudget.tokens import (
    ModelTarget,
    is_of_one_call,
    model_names,
    require_schemas,
    target_key,
    unwrapped,
)

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

NO_THREAD = "the run names no conversation (thread_id): it is one of its own, in memory only, and ends with the run"
NOT_KNOWN_OWNER = "it is not known whether the thread %r is this user's: the prompt is made from the run's state, in memory only"
NO_EMBEDDINGS = (
    "embeddings: none are installed, so retrieval is lexical only (pip install wordllama)"
)
Messages = Sequence[BaseMessage]
Turn = str | BaseMessage | Messages


@dataclass(slots=True)
class Session:
    """A prompt that is being made.

    Its plan, and the conversation that it changes once it is finished.
    """

    plan: Plan
    access: Access
    conversation: OpenConversation
    timings_ms: dict[str, float] = field(default_factory=dict)
    context: AssembledContext | None = None
    asked: object = None
    """What it is made for, where it is made step by step."""
    begun: Plan | None = None
    """The plan before the first step, from which the prompt can be made again."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """What the channels of a state say of its steps, where they have decided otherwise."""

    @property
    def finished(self) -> AssembledContext:
        """The finished prompt, after the last step."""
        assert self.context is not None  # noqa: S101 - the last step sets it
        return self.context


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
        self._of_runs: LruCache[Engine] = LruCache()
        self._loaded = False

    def over(self, store: BaseStore | None) -> "Engine":
        """Returns the same over the store that a run brought along; None is the engine's own."""
        workspace = self.workspace.over(store)
        if workspace is self.workspace:
            return self
        return self._of_runs.find(id(workspace), lambda: self._twin(workspace, self.target))

    def for_model(self, model: "BaseChatModel") -> "Engine":
        """Returns the engine for the model of a run.

        What that does not tell of itself is taken for the engine's.
        """
        named = any(model_names(model))
        if unwrapped(model) is unwrapped(self.target.model) or not (
            named or getattr(model, "profile", None)
        ):
            return self
        counter = self.target.given_counter or (None if named else self.target.tokenizer)
        return self._of_runs.find(
            target_key(model), lambda: self._twin(self.workspace, ModelTarget(model, counter))
        )

    def _twin(self, workspace: Workspace, target: ModelTarget) -> "Engine":
        return Engine(workspace, target, self.system_prompt, self.reranker)

    def ready(self) -> Flow[None]:
        """Loads everything that a decision needs ahead of it.

        A blocking call loads it on first use.
        """

        def load() -> None:
            self.target.load()
            _ = self.workspace.embeddings

        if not self._loaded:
            yield Call(lambda: None, lambda: asyncio.to_thread(load))
            self._loaded = True

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

        def seen(conversation: OpenConversation) -> Flow[T]:
            if not scope.is_kept:
                editing.hold(conversation, held or ())
            elif thread is not None:
                seen_here = yield from self.workspace.of_run(conversation, thread, claims=False)
                if seen_here is not conversation and held is not None:
                    editing.mirror(seen_here, held)
                conversation = seen_here
            return (yield from body(conversation.seen_with(self.target.counter)))

        yield from self.ready()
        return (yield from self.workspace.recall(scope, seen))

    def assemble(
        self, scope: Scope, message: Turn, request: Request = prompts.NOTHING_ELSE
    ) -> Flow[AssembledContext]:
        """Makes the prompt for the current turn."""
        return (yield from self._in_session(scope, message, None, request, self._run_all)).finished

    def forecast(
        self, scope: Scope, message: str, request: Request = prompts.NOTHING_ELSE
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
        request: Request = prompts.NOTHING_ELSE,
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
        """Runs one step for an agent's messages, as the channels of a state say of those before it; see `ContextState`.

        Returns also what it writes to the channels. Where this process has just run the steps before it, and they have
        decided what the channels say, it goes on from there; else they are run again.
        """
        asked = (self, messages, request)
        before = [*takewhile(lambda step: step != name, prompts.CHANNELS)]
        given = {step: state.get(channel.name) for step, channel in prompts.CHANNELS.items()}

        def goes_on(known: object) -> bool:
            if not isinstance(known, Session) or known.asked != asked or name in known.timings_ms:
                return False
            ran = [step for step in before if step in known.timings_ms]
            plan = known.plan
            same = all(
                given[step] in (None, prompts.CHANNELS[step].written(plan)) for step in ran[:-1]
            )
            return (
                bool(same and ran) and known.conversation.table.digest() == plan.conversation.digest
            )

        def body(conversation: OpenConversation) -> Flow[tuple[Session, dict[str, Any]]]:
            if is_live := goes_on(conversation.under_way):
                session = cast("Session", conversation.under_way)
            else:
                history, turn = split_turn(messages)
                told = replace(request, failures=(*request.failures, *flattened(messages)))
                session = yield from self._open_session(conversation, turn, history, told)
                session.asked = asked
            conversation.under_way = session
            session.given = {step: given[step] for step in before if given[step] is not None}
            for step in before:
                said = given[step]
                channel = prompts.CHANNELS[step]
                if step not in session.timings_ms and (said is None or not is_live):
                    yield from self._run(step, session)
                if said not in (None, channel.written(session.plan)):
                    session.plan = channel.taken(session.plan, said)
            yield from self._run(name, session)
            conversation.under_way = session if session.context is None else None
            if session.context is not None:
                return session, {}
            now = {step: prompts.CHANNELS[step].written(session.plan) for step in (*before, name)}
            changed = (
                step for step in prompts.CHANNELS if step == name or now.get(step) != given[step]
            )
            return session, {prompts.CHANNELS[step].name: now.get(step) for step in changed}

        yield from self.ready()
        return (yield from self.workspace.using(scope, body))

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
            failures += yield from self._write(
                conversation, view.record, is_rebuilt=view.is_rebuilt, with_snapshot=False
            )
            self._summarize(conversation, settings, view)
            return view, seen, [*problems, *failures]

        yield from self.ready()
        return (yield from workspace.recall(scope, body))

    def observe(
        self,
        used: Mapping[str, Any] | AIMessage | None,
        report: ContextReport | None,
        model: str | None = None,
    ) -> float:
        """Corrects the estimates and books the usage; see `ContextPipeline.observe_usage`."""
        comparable = True
        if isinstance(used, AIMessage):
            model = model or model_of(used)
            comparable = is_of_one_call(used)
            used = cast("Mapping[str, Any] | None", used.usage_metadata)
        if used is None:
            return self.target.calibration.factor
        report = report or (self.recent.last.report() if self.recent.last else None)
        if report is None:
            raise InputError(
                "Nothing was assembled yet: pass the report of the prompt that this usage is for"
            )
        if report.forecast:
            raise InputError("The report is a forecast: a prompt of it was never sent")
        ids = report.user_id, report.conversation_id
        noted = self.recent.last_of(*ids)
        scope, books = (
            (noted.scope, noted.books) if noted else (Scope(*ids), self.workspace.bookkeeping)
        )
        books.note(scope, used, model or self.target.model_name)
        books.worker.submit(scope.user_id)
        mine = self.target.tokenizer.name
        if comparable and report.tokenizer != mine:
            raise InputError(
                f"The report was counted with {report.tokenizer!r}, and this pipeline counts with {mine!r}: pass usage "
                f"to the pipeline that assembled the prompt"
            )
        if comparable:
            self.target.observe(used["input_tokens"], report.uncorrected_tokens)
        return self.target.calibration.factor

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
            return (
                yield from finish(
                    (yield from self._open_session(conversation, message, history, request))
                )
            )

        yield from self.ready()
        return (yield from self.workspace.using(scope, body))

    def _checked(
        self, known: Messages, message: Turn, history: Messages | None, request: Request
    ) -> tuple[list[BaseMessage], list[BaseMessage] | None, Request]:
        """Returns the turn, the history where one is given, and the request with the instructions of that."""
        turn = current_turn(message)
        require_schemas(request.tools, request.response_format)
        self.settings.override(request.settings)  # refused before anything is read
        if history is None:
            return turn, None, request
        instructions, given = split_instructions(checked(history, "messages", known))
        return turn, given, replace(request, instructions=(*request.instructions, *instructions))

    def _open_session(
        self,
        conversation: OpenConversation,
        message: Turn,
        history: Messages | None,
        request: Request,
    ) -> Flow[Session]:
        """Brings a conversation up to date, or makes it equal to a given history, and begins a prompt for it."""
        workspace = self.workspace
        scope = conversation.scope
        turn, given, request = self._checked(
            conversation.seen[0].messages, message, history, request
        )
        started = time.perf_counter()
        calls = self.target.tokenizer.calls
        failures = [*request.failures]
        try:
            yield from editing.refresh(workspace.store, conversation)
            if given is not None and request.thread is not None:
                conversation = yield from workspace.of_run(conversation, request.thread)
            if given is not None and conversation.apart_because:
                editing.mirror(conversation, given)
                noting = self._note_guest(conversation, turn, request.thread)
                yield from with_fallback(
                    noting, None, "not noted that this user speaks in the thread", failures
                )
            elif given is not None:
                goes_on = histories.is_of_earlier_turn(request.background, turn)
                if goes_on and self.settings.cache_lifetime_seconds:
                    begun = Background.from_dict(request.background)  # perhaps of another process
                    conversation.sent[begun.position] = begun
                yield from workspace.keep_guests(conversation, given, request.thread)
                conversation.own_turn = _said_in(turn)
                editor = editing.Editor(workspace.store, conversation, workspace.writer_id)
                yield from editor.sync(given, "archive", goes_on=goes_on, task=request.task)
                if conversation.forgotten:
                    failures.append(editing.GOES_ON % conversation.forgotten)
        except Exception as error:
            if given is None or isinstance(error, InputError):
                raise
            # The state is the truth; the copy is tried again.
            failures.append(f"history not copied to the store: {type(error).__name__}: {error}")
            is_owned = (
                request.thread is None
                or scope.is_shared
                or conversation.owned_thread == request.thread
            )
            conversation = (
                OpenConversation(scope)
                if is_owned
                else conversation_apart(scope, NOT_KNOWN_OWNER % request.thread)
            )
            editing.hold(conversation, given)
        if (
            conversation.apart_because
        ):  # the background in the state may be of the owner's turn, and quote other threads
            request = replace(request, background=None)
        session = yield from self._new_session(conversation, turn, request, calls)
        session.plan = session.begun = session.plan.failed(*failures)
        session.timings_ms["open"] = (time.perf_counter() - started) * 1000
        return session

    def _note_guest(
        self, conversation: OpenConversation, turn: Messages, thread: str | None
    ) -> Flow[None]:
        """Notes what a user says in another user's thread, so that it is not taken for the owner's words."""
        said = _said_in(turn)
        if thread is not None and said != conversation.own_turn:
            yield from guests.note(
                self.workspace.store, thread, conversation.scope.user_id, sorted(said)
            )
            conversation.own_turn = said

    def _new_session(
        self,
        conversation: OpenConversation,
        turn: list[BaseMessage],
        request: Request,
        calls_before: int,
    ) -> Flow[Session]:
        """Begins a prompt for a conversation that is up to date."""
        workspace = self.workspace
        scope = conversation.scope
        unread: list[str] = []
        stored = yield from workspace.read_stored(conversation, request, unread)
        workspace.learning.retry()
        failures = [*self._failures_before(conversation), *unread]
        settings = stored.settings
        now = workspace.clock()
        names: Sequence[Source] = settings.sources
        source_user = scope.user_id
        if (
            conversation.apart_because
        ):  # the answer is for whoever has the thread: nothing personal goes into it
            names = [name for name in names if name == "documents"]
            source_user = SharedThread.of(scope.conversation_id)
        tier, usage = yield from workspace.bookkeeping.state(scope, settings, failures)
        window = (yield from self.target.find_window()).or_setting(settings.window_tokens)
        failures += [window.failure] if window.failure else []
        failures += [] if workspace.embeddings else [NO_EMBEDDINGS]
        asked = PromptRequest(
            turn=turn,
            system_prompt="\n\n".join(
                text for text in (self.system_prompt, *request.instructions) if text
            ),
            settings=settings,
            settings_from=stored.settings_from,
            tools=request.tools,
            response_format=request.response_format,
            window=window,
            tier=tier,
            usage=usage,
            knowledge=stored.knowledge,
            remembered=facts.facts_of(stored.knowledge, conversation.snapshot),
            expected=stored.expected,
            now=now,
            persona_id=request.persona_id,
            model=self.target.model_name or "",
            calls_before=calls_before,
            failures=tuple(failures),
        )
        sources = Sources(
            workspace.catalogue,
            source_user,
            [name for name in names if name != "documents" or tier.documents != "none"],
            workspace.embeddings,
            without_conversation=scope.conversation_id,
            summaries_only=tier.documents == "summary",
            vectors=workspace.vectors,
            others=workspace.libraries.of(scope.user_id),
        )
        access = Access(
            store=workspace.store,
            embeddings=workspace.embeddings,
            sources=sources,
            reranker=self.reranker,
        )
        seen = conversation.seen_with(self.target.counter, self.target.longest_call_id)
        plan = Plan.begin(seen, asked)
        return Session(
            (yield from self._with_background(plan, access, request.background)),
            access,
            conversation,
        )

    def _failures_before(self, conversation: OpenConversation) -> list[str]:
        """Returns what a prompt is to report that went wrong before it was begun, above all in the background."""
        workspace = self.workspace
        scope = conversation.scope
        in_background = {
            "summaries": workspace.summarizing and workspace.summarizing.worker.failure_of(scope),
            "usage not written": workspace.bookkeeping.worker.failure_of(scope.user_id),
            "segments of older messages not written, or read ahead": workspace.sealing.failure_of(
                scope
            ),
            "segments for prompts of other conversations not written": workspace.sealing_others.failure_of(
                scope
            ),
        }
        told = [f"{what}: {problem}" for what, problem in in_background.items() if problem]
        told += conversation.table.told_untimed()
        told += [f"learning about the user: {line}" for line in workspace.learning.told(scope)]
        unkept = "" if scope.is_kept else conversation.apart_because or NO_THREAD
        return [*filter(None, (unkept, conversation.remade)), *told]

    def _with_background(self, plan: Plan, access: Access, given: object) -> Flow[Plan]:
        """Goes on with the background that was chosen when the turn began, where an agent is in the middle of one.

        It is what the agent's state has, else what this process remembers, else what was stored as
        the prompt was written anew within the turn, else what is chosen for the human message
        alone, as when the turn began.
        """
        turn = plan.request.turn
        history = plan.conversation.digest
        last = plan.conversation.last
        first = prompts.asking(turn)
        if first is None or first + 1 == len(turn):
            return plan
        known = [last.background] if last and last.settings == plan.request.settings else []
        if given is not None:
            try:
                known.insert(0, Background.from_dict(given))
            except InputError as error:  # derived: it is chosen again
                plan = plan.failed(str(error))
        background = next((one for one in known if one and one.is_for(turn[first], history)), None)
        if background is None:
            begun = Plan.begin(
                plan.conversation, replace(plan.request, turn=turn[: first + 1], failures=())
            )
            try:
                for step in STEPS.values():
                    begun = yield from step(begun, access)
                begun = prompts.settle(begun).plan
            except BudgetError:  # the prompt itself tells what it needs
                begun = begun.but(background=None)
            position = len(plan.conversation.entries) + first
            keys = [cut.cut_key for cut in begun.cuts if cut]
            background = begun.background or Background.of(
                turn[first], history, (), position=position
            )
            problems: list[str] = []
            reading = editing.sent_at(access.store, plan.conversation.scope, [position])
            sent = yield from with_fallback(
                reading, None, "the turn's background not read", problems
            )
            stored = sent.get(position) if sent else None
            if stored and stored.cut_key in keys and stored.is_for(turn[first], history):
                background = stored
            plan = plan.failed(*problems, *begun.failures)
        return plan.but(request=replace(plan.request, background=background)).with_background(
            background
        )

    def _run(self, name: str, session: Session) -> Flow[None]:
        started = time.perf_counter()
        if name in STEPS:
            session.plan = yield from STEPS[name](session.plan, session.access)
        prompt = (yield from self._assembled(session)) if name == prompts.LAST_STEP else None
        session.timings_ms[name] = (time.perf_counter() - started) * 1000
        if prompt is not None:
            yield from self._finish(session, prompt)

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
        plan = prompts.without_caches(session.begun).failed(problem)
        for name, step in STEPS.items():
            plan = yield from step(plan, session.access)
            channel = prompts.CHANNELS[name]
            said = session.given.get(name)
            if said not in (None, channel.written(plan)):
                plan = channel.taken(plan, said)
        return prompts.assemble(plan)

    def _run_all(self, session: Session) -> Flow[Session]:
        for name in (*STEPS, prompts.LAST_STEP):
            yield from self._run(name, session)
        return session

    def _finish(self, session: Session, prompt: Prompt) -> Flow[None]:
        workspace = self.workspace
        conversation = session.conversation
        changes = prompt.changes
        settings = prompt.plan.request.settings
        scope = conversation.scope
        if changes.snapshot is not None:
            conversation.snapshot_unsaved |= changes.snapshot != conversation.snapshot
            conversation.snapshot = changes.snapshot
        # One that shows nothing because nothing is known is written by whoever learns something.
        knows = prompt.plan.request.knowledge.mark.mark != ""
        if prompt.plan.grows and (background := prompt.plan.background) is not None:
            conversation.sent[background.position] = background
        problems = yield from self._write(
            conversation, changes.cut, is_rebuilt=changes.is_rebuilt, with_snapshot=knows
        )
        known.note_use(workspace.store, scope.user_id, changes.used)
        conversation.last = changes.last
        conversation.remade = ""
        self._summarize(conversation, settings, prompt.plan.history)
        workspace.note_segments(conversation)
        context = prompt.context
        timings = dict(session.timings_ms)

        def told() -> ContextReport:
            made = context.report
            return replace(
                made, timings_ms=timings, failures=tuple(dict.fromkeys((*made.failures, *problems)))
            )

        if scope.is_kept and (keep := settings.keep_snapshots):
            try:
                yield from keep_report(
                    workspace.store, conversation, told(), workspace.clock(), keep
                )
            except Exception as error:  # noqa: BLE001
                problems.append(f"snapshot not written: {type(error).__name__}: {error}")
        report = cache(told)
        session.context = replace(context, account=report)
        session.plan = prompt.plan
        self.recent.note(prompt, report, scope, workspace.bookkeeping)

    def _summarize(
        self, conversation: OpenConversation, settings: ContextSettings, view: HistoryView
    ) -> None:
        if self.workspace.summarizing:
            made = conversation.table.made
            made.span_messages, made.until = settings.span_messages, max(view.cut, view.next_cut)
            self.workspace.summarizing.submit(conversation, is_rebuilt=view.is_rebuilt)

    def _write(
        self,
        conversation: OpenConversation,
        cut: CutRecord | None,
        *,
        is_rebuilt: bool,
        with_snapshot: bool,
    ) -> Flow[list[str]]:
        """Stores a new cut, which a restart continues from, and the snapshot of facts.

        Returns what failed.
        """
        scope = conversation.scope
        end = len(conversation.table)
        puts = list[Op]()
        has_calls = cut is not None and cut.turn_groups > 1
        if cut is not None:
            conversation.use(cut)
            conversation.cuts_unsaved |= is_rebuilt
        if cut is not None and is_rebuilt:
            gone = [
                at
                for at, background in conversation.sent.items()
                if at < cut.begun and background.cut_key == cut.cut_key
            ]
            sent = scope.namespace(histories.SENT)
            puts += [PutOp(sent, str(at), None) for at in gone if at < end]
            for at in gone:
                del conversation.sent[at]
            if has_calls:  # the turn's background was chosen with another cut, which is gone
                puts += [
                    editing.put_sent(scope, background)
                    for at, background in conversation.sent.items()
                    if at >= end
                ]
        if conversation.cuts_unsaved and (
            conversation.table or has_calls
        ):  # else it is written with the first message
            puts.append(
                written(
                    scope.place(histories.CUTS), CutsRecord(cuts=tuple(conversation.cuts.values()))
                )
            )
        with_snapshot = with_snapshot and conversation.snapshot_unsaved
        if with_snapshot:
            puts.append(written(scope.place(records.SNAPSHOT), conversation.snapshot))
        problems: list[str] = []
        writing = batch(self.workspace.store, puts if scope.is_kept else [])
        yield from with_fallback(
            writing, None, "compaction cuts not saved", problems
        )  # the next step tries again
        if not problems:
            conversation.cuts_unsaved &= not (conversation.table or has_calls)
            conversation.snapshot_unsaved &= not with_snapshot
        return problems


def _said_in(turn: Messages) -> frozenset[str]:
    """Returns the ids of what the user says in a turn."""
    return frozenset(str(message.id) for message in turn if is_user(message) and message.id)
