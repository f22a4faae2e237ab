"""How a prompt is begun: the conversation up to date, and what the prompt is made of."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from langchain_core.documents import BaseDocumentCompressor
from langchain_core.messages import BaseMessage

from langchain_ctxbudget import history as histories
from langchain_ctxbudget.budget import Tier
from langchain_ctxbudget.errors import (
    EmbeddingsUnavailableError,
    EmptyMessageError,
    InputError,
)
from langchain_ctxbudget.flow import Flow, with_fallback
from langchain_ctxbudget.history import (
    Background,
    Conversation,
    OpenConversation,
    editing,
    late_calls,
)
from langchain_ctxbudget.knowledge import facts
from langchain_ctxbudget.messages import (
    checked_messages,
    is_sent_alone,
    split_instructions,
)
from langchain_ctxbudget.pipeline.rules import rules_in
from langchain_ctxbudget.pipeline.session import Session
from langchain_ctxbudget.pipeline.threads import conversation_holding, ids_of_users_messages
from langchain_ctxbudget.pipeline.tool_search import problems_of_limit, with_search
from langchain_ctxbudget.pipeline.turn_background import with_turn_background
from langchain_ctxbudget.pipeline.workspace import Workspace
from langchain_ctxbudget.prompt import (
    AboutUser,
    Access,
    Allowance,
    ModelCall,
    Plan,
    PromptRequest,
    Request,
)
from langchain_ctxbudget.providers import request_mark_of, system_mark_of
from langchain_ctxbudget.retrieval import Sources
from langchain_ctxbudget.search import Encoder
from langchain_ctxbudget.settings import ContextSettings, Source
from langchain_ctxbudget.stores import SharedThread
from langchain_ctxbudget.tokens import ModelTarget, require_schemas
from langchain_ctxbudget.tools import ToolSet

NO_THREAD = (
    "the run names no conversation (thread_id): it is one of its own, in memory only, and ends "
    "with the run"
)
NO_EMBEDDINGS = (
    "embeddings: none are installed, so retrieval is lexical only (pip install wordllama)"
)
Messages: TypeAlias = Sequence[BaseMessage]


@dataclass(frozen=True, slots=True)
class SessionOpener:
    """Brings a conversation up to date, and begins a prompt for it."""

    workspace: Workspace
    target: ModelTarget
    system_prompt: str
    reranker: BaseDocumentCompressor | None

    def open(
        self,
        conversation: OpenConversation,
        turn: list[BaseMessage],
        history: Messages | None,
        request: Request,
    ) -> Flow[Session]:
        """Begins a prompt for a conversation, which is first made equal to a given history.

        Args:
            conversation: the conversation, whose lock the caller holds.
            turn: the turn to answer, as `current_turn` gives it.
            history: the messages of an agent's state before the turn; None where there is no state.
            request: the options of the call.
        """
        self._require_options(request)
        state: list[BaseMessage] | None = None
        if history is not None:
            known = conversation.seen_state[0].messages
            checked = checked_messages(history, "messages", known)
            instructions, state = split_instructions(checked)
            request = replace(
                request,
                instructions=(*request.instructions, *instructions),
                system_mark=system_mark_of(checked) or request.system_mark,
            )
        started = time.perf_counter()
        texts_counted_before = self.target.tokenizer.calls
        failures = [*request.failures]
        try:
            yield from editing.refresh(self.workspace.store, conversation)
            if state is not None:
                conversation = yield from self._with_state(
                    conversation, turn, state, request, failures
                )
        except Exception as error:
            if state is None or isinstance(error, InputError):
                raise
            # The state is the truth; the copy is tried again.
            failures.append(f"history not copied to the store: {type(error).__name__}: {error}")
            conversation = self._in_memory_only(conversation, state, request.thread)

        if conversation.apart_because:
            # The background in the state may be of the owner's turn, and quote other threads.
            request = replace(request, background=None)
        session = yield from self._begin(conversation, turn, request, texts_counted_before)
        session.plan = session.plan.with_failures(*failures)
        session.plan_before_steps = session.plan
        session.timings_ms["open"] = (time.perf_counter() - started) * 1000
        return session

    def _require_options(self, request: Request) -> None:
        """Raises an error for options that cannot be used, before anything is read."""
        require_schemas(request.tools, request.response_format)
        settings = self.workspace.settings.override(request.settings)
        self.workspace.encoder_for(settings)

    def _with_state(
        self,
        conversation: OpenConversation,
        turn: Messages,
        state: Messages,
        request: Request,
        failures: list[str],
    ) -> Flow[OpenConversation]:
        """Makes a conversation equal to an agent's state, and returns it.

        One apart, in memory only, where the thread is another user's.
        """
        thread = self.workspace.thread_of_run(request.thread)
        if thread is not None:
            conversation = yield from thread.conversation_of_run(conversation)
            if conversation.apart_because:
                editing.mirror(conversation, state)
                noting = thread.note_guest(conversation, turn)
                what = "not noted that this user speaks in the thread"
                yield from with_fallback(noting, None, what, failures)
                return conversation

        goes_on = self._take_up_background(conversation, turn, request.background)
        goes_on = goes_on or histories.is_within(conversation, turn)
        if thread is not None:
            yield from thread.keep_guests(conversation, state)
        conversation.own_turn = ids_of_users_messages(turn)
        editor = editing.Editor(
            self.workspace.store, conversation, self.workspace.writer_id, "archive"
        )
        yield from editor.sync(state, goes_on=goes_on, task=request.task)
        if conversation.forgotten:
            failures.append(editing.GOES_ON % conversation.forgotten)
        return conversation

    def _take_up_background(
        self, conversation: OpenConversation, turn: Messages, in_state: object
    ) -> bool:
        """Takes up the background of the turn before from an agent's state.

        Returns whether there is one: then the state has not forgotten what it lacks.
        """
        goes_on = histories.is_of_earlier_turn(in_state, turn)
        if goes_on and self.workspace.settings.cache_lifetime_seconds:
            background = Background.from_dict(in_state)  # perhaps of another process
            conversation.backgrounds[background.position] = background
        return goes_on

    def _in_memory_only(
        self, conversation: OpenConversation, state: Messages, thread_id: str | None
    ) -> OpenConversation:
        """Returns a conversation that holds a state which could not be copied."""
        thread = self.workspace.thread_of_run(thread_id)
        if thread is None:
            return conversation_holding(conversation.scope, state)
        return thread.conversation_not_copied(conversation, state)

    def _begin(
        self,
        conversation: OpenConversation,
        turn: list[BaseMessage],
        request: Request,
        texts_counted_before: int,
    ) -> Flow[Session]:
        """Begins a prompt for a conversation that is up to date."""
        workspace = self.workspace
        scope = conversation.scope
        unread: list[str] = []
        stored = yield from workspace.read_stored(conversation, request, unread)
        workspace.workers.learning.retry()
        failures = [*self._failures_before(conversation), *unread]
        settings = stored.settings
        now = workspace.clock()
        tier, usage = yield from workspace.workers.bookkeeping.state(scope, settings, failures)
        window = (yield from self.target.find_window()).or_setting(settings.window_tokens)
        if window.failure:
            failures.append(window.failure)
        if not workspace.embeddings:
            failures.append(NO_EMBEDDINGS)
        encoder = self._encoder(conversation, settings, failures)

        rules = yield from rules_in(workspace, conversation, stored, failures)
        tools = ToolSet.of(request.tools)
        if settings.tool_tokens is not None:
            tools = with_search(tools, workspace.embeddings, self.target.counter)
            failures += problems_of_limit(tools, settings, self.target.counter)
        given_texts = (self.system_prompt, *request.instructions)
        system_texts = [text for text in given_texts if text.strip()]
        prompt_request = PromptRequest(
            turn=turn,
            system_prompt="\n\n".join(system_texts),
            system_mark=request.system_mark,
            settings=settings,
            settings_from=stored.settings_from,
            call=ModelCall(
                model=self.target.model_name or "",
                tools=tools,
                binds_chosen=request.binds_chosen_tools,
                response_format=request.response_format,
                cache=self.target.cache,
                cache_mark=request.cache_mark or request_mark_of(self.target.model),
            ),
            allowance=Allowance(window=window, tier=tier, usage=usage),
            user=AboutUser(
                knowledge=stored.knowledge,
                remembered=facts.facts_layer_of(stored.knowledge, conversation.snapshot),
                rules=rules,
                expected=stored.expected,
                places=stored.places,
                persona_id=request.persona_id,
                suspended=conversation.suspended,
            ),
            now=now,
            texts_counted_before=texts_counted_before,
            failures=tuple(failures),
        )
        access = Access(
            store=workspace.store,
            embeddings=workspace.embeddings,
            encoder=encoder,
            sources=self._sources(conversation, settings, tier),
            reranker=self.reranker,
        )
        profile = self.target.profile_for(request.tools)
        seen = conversation.seen_with(self.target.counter, profile)
        _require_calls(seen, turn)
        plan = Plan.begin(seen, prompt_request)
        plan = yield from with_turn_background(plan, access, request.background)
        return Session(workspace, conversation, plan, access, request)

    def _encoder(
        self, conversation: OpenConversation, settings: ContextSettings, failures: list[str]
    ) -> Encoder | None:
        """Returns the encoder of sentences, if settings ask for it, and has messages encoded."""
        try:
            encoder = self.workspace.encoder_for(settings)
        except EmbeddingsUnavailableError as error:  # a user's saved settings may ask for it
            failures.append(f"encoder: {error}")
            return None
        self.workspace.workers.encoding.note(conversation, settings)
        return encoder

    def _sources(
        self, conversation: OpenConversation, settings: ContextSettings, tier: Tier
    ) -> Sources:
        """Returns where retrieval looks besides the conversation."""
        scope = conversation.scope
        names: list[Source] = [*settings.sources]
        user_id = scope.user_id
        if conversation.apart_because:
            # The answer is for whoever has the thread: nothing personal goes into it.
            names = [name for name in names if name == "documents"]
            user_id = SharedThread.of(scope.conversation_id)
        if tier.documents == "none":
            names = [name for name in names if name != "documents"]
        return self.workspace.sources(
            user_id,
            names,
            without_conversation=scope.conversation_id,
            summaries_only=tier.documents == "summary",
        )

    def _failures_before(self, conversation: OpenConversation) -> list[str]:
        """Returns what went wrong before a prompt was begun, above all in the background."""
        failures: list[str] = []
        scope = conversation.scope
        if not scope.is_kept:
            failures.append(conversation.apart_because or NO_THREAD)
        if conversation.remade:
            failures.append(conversation.remade)
        failures += self.workspace.workers.problems_of(scope)
        failures += conversation.table.told_untimed()
        for line in self.workspace.workers.learning.problems_of(scope):
            failures.append(f"learning about the user: {line}")
        return failures


def _require_calls(conversation: Conversation, turn: Messages) -> None:
    """Raises an error for a turn of results alone for which the conversation has no call."""
    if any(map(is_sent_alone, turn)):
        return
    if not late_calls(conversation, turn, len(conversation.entries)):
        raise EmptyMessageError(
            "message has nothing that can be sent: its results answer no call of the conversation"
        )
