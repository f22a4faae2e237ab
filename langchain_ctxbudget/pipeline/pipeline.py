"""`ContextPipeline`: the plain object over everything else; and `Chat`, one conversation of it."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Any, Self

from langchain_core.documents import BaseDocumentCompressor
from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, BaseMessage
from langgraph.store.base import BaseStore

from langchain_ctxbudget import errors, history, stores
from langchain_ctxbudget.errors import (
    InputError,
    InvalidSettingsError,
    checks_names,
    require_count,
    require_kind,
)
from langchain_ctxbudget.flow import Call, Flow, batch, twins
from langchain_ctxbudget.knowledge import UserKnowledge
from langchain_ctxbudget.messages import Preservation, checked, is_user, require_preservation
from langchain_ctxbudget.pipeline.bookkeeping import Prices, SnapshotBook, UsageBook
from langchain_ctxbudget.pipeline.engine import Engine
from langchain_ctxbudget.pipeline.runs import context_runnable
from langchain_ctxbudget.pipeline.workspace import ConversationStatus, Workspace
from langchain_ctxbudget.prompt import AssembledContext, Request, what_if
from langchain_ctxbudget.report import ContextReport, CoverageState
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.tokens import ModelTarget, TokenCounter

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel  # takes 0.2 s to import
    from langchain_core.runnables import Runnable

REPLAYED_TURNS = 24  # the last ones of a conversation whose prompts were not kept


@checks_names(ContextSettings.model_fields)
class ContextPipeline:
    """Decides what goes into the context window of every model call.

    It is shared by threads and tasks; a conversation is worked on by one at a time. Every method that reads or
    writes has an async twin. Without a user or a conversation, every method that needs one raises `MissingScopeError`;
    with a message that is none, `UnsupportedContentError`; where it is closed, `StoreError`. Its parts: `settings`,
    `knowledge` (about users), `usage` (tokens, costs and limits), `snapshots` (reports that are kept).

    Example:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> pipeline = ContextPipeline(system_prompt="You are helpful.")
        >>> chat = pipeline.conversation("c1", user_id="ada")
        >>> ids = chat.add(HumanMessage("My bike is blue."), AIMessage("Nice!"))
        >>> context = chat.assemble("Which colour is my bike?")
        >>> [message.type for message in context.messages]
        ['system', 'human', 'ai', 'human']
    """

    def __init__(
        self,
        settings: ContextSettings | Mapping[str, Any] | None = None,
        *,
        system_prompt: str = "",
        model: "BaseChatModel | str | None" = None,
        store: BaseStore | None = None,
        embeddings: Embeddings | None = None,
        token_counter: TokenCounter | None = None,
        summary_model: "BaseChatModel | None" = None,
        reranker: BaseDocumentCompressor | None = None,
        writer_id: str | None = None,
        clock: Callable[[], datetime] | None = None,
        prices: Prices | None = None,
    ) -> None:
        """Sets up a pipeline; nothing is read, written or loaded before it is needed.

        Args:
            settings: say how much may go in, and what.
            system_prompt: sent verbatim with every prompt, never cut.
            model: the target model or its name: tokenizer, window, output reserve; default: o200k_base, no window.
            store: any LangGraph store; default: a private one in memory.
            embeddings: any LangChain embeddings; default: `LocalEmbeddings`, where they are installed.
            token_counter: counts tokens; default: the model's.
            summary_model: writes summaries in the background; until it has, extracted sentences stand instead.
            reranker: any LangChain document compressor, for the best of what was found.
            writer_id: the name under which this pipeline appends, unique among its conversations' writers.
            clock: tells what time it is, in UTC where it names no offset; default: the computer's.
            prices: of models, in US dollars per million tokens: `{"my-model": {"input": 2.5, "output": 10}}`.
        """
        require_kind("system_prompt", system_prompt, str)
        if summary_model is not None and not callable(getattr(summary_model, "invoke", None)):
            raise InvalidSettingsError(
                f"summary_model must be a chat model, not {type(summary_model).__name__}"
            )
        require_kind("store", store, BaseStore)
        require_kind("embeddings", embeddings, Embeddings)
        require_kind("reranker", reranker, BaseDocumentCompressor)
        require_kind("writer_id", writer_id, str)
        self.settings = ContextSettings().override(settings)
        target = ModelTarget(model, token_counter)
        self._workspace = Workspace(
            self.settings,
            target.tokenizer,
            store=store,
            embeddings=embeddings,
            writer_id=writer_id,
            summary_model=summary_model,
            clock=stores.utc_now if clock is None else stores.with_offset(clock),
            prices=prices,
        )
        self.engine = Engine(self._workspace, target, system_prompt, reranker)
        self.knowledge = UserKnowledge(self._workspace.learning)
        self.usage = UsageBook(self._workspace.bookkeeping, self.settings, target.model_name)
        self.snapshots = SnapshotBook(self._workspace.bookkeeping.store)

    @property
    def token_counter(self) -> TokenCounter:
        """The counter of tokens, corrected by the usage that was observed."""
        return self.engine.target.counter

    @property
    def store(self) -> BaseStore:
        """The store that conversations are kept in."""
        return self._workspace.store

    @property
    def embeddings(self) -> Embeddings | None:
        """The embeddings of retrieval; None where none were given and none are installed."""
        return self._workspace.embeddings

    # Prompts

    def _assemble(
        self,
        message: str | BaseMessage | Sequence[BaseMessage],
        *,
        user_id: str,
        conversation_id: str,
        tools: Sequence[Any] = (),
        response_format: object = None,
        settings: ContextSettings | Mapping[str, Any] | None = None,
        persona_id: str | None = None,
        device_id: str | None = None,
    ) -> Flow[AssembledContext]:
        """Makes the prompt for the current turn, within its budget, with its report.

        Stores nothing that was said.

        Args:
            message: the user's words, or the turn so far: a list that goes on with an agent's calls and results.
            user_id: the user.
            conversation_id: the conversation; one that does not exist yet has no history.
            tools: what will be bound to the model; counted as it is sent.
            response_format: a schema that the model must answer in; counted as it is sent.
            settings: overrides for this call; below them lie the persona's saved settings, the user's, the pipeline's.
            persona_id: the persona whose saved settings apply on top of the user's.
            device_id: where the user is: what was predicted from what is open there comes first.

        Raises:
            BudgetTooSmallError: what must be sent does not fit; the message lists what it needs.
            EmptyMessageError: there is nothing to answer.
            InvalidSettingsError: an override outside its range.
            SystemPromptTooLargeError: the system prompt takes more than its share of the model's window.
        """
        request = Request(
            tools=tools,
            response_format=response_format,
            settings=settings,
            persona_id=persona_id,
            device_id=device_id,
        )
        return self.engine.assemble(stores.Scope(user_id, conversation_id), message, request)

    def as_runnable(
        self,
        *,
        default_user: str | None = None,
        tools: Sequence[Any] = (),
        response_format: object = None,
        runtime_store: bool = True,
    ) -> "Runnable[Any, list[BaseMessage]]":
        """Returns a step of a chain.

        Its input is the turn to answer, its output the messages to send.

        Its input is the current turn, as `assemble` takes it or as a prompt template gives it (system messages in front
        of it join the system prompt); nothing is stored. Or it is an agent's state, `{"messages": [...]}`: then the
        stored conversation is first made equal to the messages before the current turn. Options are as for
        `build_context_graph`.

        Example:
            >>> step = ContextPipeline(system_prompt="You are helpful.").as_runnable(
            ...     default_user="ada"
            ... )
            >>> [
            ...     message.type
            ...     for message in step.invoke("Hello", {"configurable": {"thread_id": "c1"}})
            ... ]
            ['system', 'human']
        """
        return context_runnable(
            self.engine, default_user, tools, response_format, runtime_store=runtime_store
        )

    def observe_usage(
        self,
        usage_metadata: Mapping[str, Any] | AIMessage | None,
        *,
        report: ContextReport | None = None,
        model: str | None = None,
    ) -> float:
        """Corrects the counts by what the provider measured for a prompt of this pipeline, and counts what it used.

        The last 16 prompts give a factor for every count, which is returned. One outlier changes
        nothing, nor does an answer that sums up several calls. The report is that of the prompt
        that was answered, by default the last one; the model is the one whose price counts, by
        default the one that the answer names, else the pipeline's.
        """
        return self.engine.observe(usage_metadata, report, model)

    def what_if(self, budgets: Sequence[int]) -> list[ContextReport]:
        """Returns the reports that other budgets, in tokens, would have given the last prompt.

        Does no I/O.
        """
        last = self.engine.recent.last and self.engine.recent.last.prompt
        if last is None:
            raise InputError("Nothing was assembled yet, so there are no candidates")
        return [what_if(last, budget) for budget in budgets]

    def last_report(self, *, user_id: str, conversation_id: str) -> ContextReport | None:
        """Returns the report of a conversation's newest prompt, where it is one of the latest 64 of this process."""
        scope = stores.Scope(user_id, conversation_id)
        noted = self.engine.recent.last_of(scope.user_id, scope.conversation_id)
        return noted.report() if noted else None

    # Conversations

    def conversation(self, conversation_id: str, *, user_id: str) -> "Chat":
        """Returns one conversation with the pipeline's methods, so that its ids are named once."""
        return Chat(self, conversation_id, user_id=user_id)

    def _add_messages(
        self, messages: Sequence[BaseMessage], *, user_id: str, conversation_id: str
    ) -> Flow[list[str]]:
        """Appends messages, and returns their ids.

        Known ones are left alone, and changed ones refused.
        """
        scope = stores.Scope(user_id, conversation_id)
        given = checked(messages, "messages")
        return self._workspace.change(scope, lambda editor: editor.add(given))

    def _sync(
        self,
        messages: Sequence[BaseMessage],
        *,
        user_id: str,
        conversation_id: str,
        on_removal: history.OnRemoval = "archive",
    ) -> Flow[list[str]]:
        """Makes a conversation equal to an agent's state, by id and content, and returns the ids of the messages.

        What is not there any more is archived or forgotten (`on_removal`); a state that has none
        has forgotten them.
        """
        return self._workspace.sync(messages, stores.Scope(user_id, conversation_id), on_removal)

    def _get_messages(self, *, user_id: str, conversation_id: str) -> Flow[list[BaseMessage]]:
        """Returns every message of a conversation as it was given.

        None for one that does not exist yet.
        """
        return (yield from self._page(stores.Scope(user_id, conversation_id))).messages

    def _get_page(
        self, *, user_id: str, conversation_id: str, limit: int = 50, before: str | None = None
    ) -> Flow[history.MessagePage]:
        """Reads a part of a conversation.

        Its newest messages, or the newest ones before a page (its `before`).
        """
        require_count("limit", limit)
        return self._page(stores.Scope(user_id, conversation_id), limit, before)

    def _page(
        self, scope: stores.Scope, limit: int | None = None, before: str | None = None
    ) -> Flow[history.MessagePage]:
        def body(conversation: history.OpenConversation) -> Flow[history.MessagePage]:
            yield from ()
            page = conversation.page(limit, before)
            return replace(
                page, messages=[message.model_copy(deep=True) for message in page.messages]
            )

        return self._workspace.recall(scope, body)

    def _list_conversations(self, *, user_id: str) -> Flow[list[str]]:
        """Returns the ids of a user's conversations, sorted."""
        return history.log.read_conversations(
            self._workspace.store, stores.require_id("user_id", user_id)
        )

    def _edit_message(
        self, message_id: str, message: BaseMessage, *, user_id: str, conversation_id: str
    ) -> Flow[None]:
        """Replaces a message under its id; everything derived from the old one is deleted."""
        scope = stores.Scope(user_id, conversation_id)
        [given] = checked([message], "message")
        yield from self._workspace.change(
            scope, lambda editor: editor.edit(message_id, given), "forget"
        )

    def _remove_messages(
        self,
        message_ids: str | Sequence[str],
        *,
        user_id: str,
        conversation_id: str,
        on_removal: history.OnRemoval = "archive",
    ) -> Flow[None]:
        """Takes messages out.

        No prompt shows them (`"archive"`), or nothing is left of them (`"forget"`).
        """
        scope = stores.Scope(user_id, conversation_id)
        ids = _ids(message_ids)
        yield from self._workspace.change(
            scope, lambda editor: editor.remove(ids, on_removal), on_removal
        )

    def _fork(
        self,
        new_conversation_id: str,
        *,
        user_id: str,
        conversation_id: str,
        until: str | None = None,
    ) -> Flow[list[str]]:
        """Begins a new conversation with the messages of another one, up to an id or all, and returns their ids."""
        scope = stores.Scope(user_id, conversation_id)
        new_scope = stores.Scope(user_id, new_conversation_id)

        def read(
            conversation: history.OpenConversation,
        ) -> Flow[tuple[list[BaseMessage], dict[str, Preservation]]]:
            if not conversation.table:
                raise InputError(f"There is no conversation {conversation_id!r} to begin with")
            history.require_known(conversation, [] if until is None else [until])
            yield from self._workspace.read_marks(conversation)
            end = (
                len(conversation.table)
                if until is None
                else conversation.table.positions[until] + 1
            )
            messages = [entry.message for entry in conversation.table[:end]]
            return messages, {
                str(m.id): conversation.pins[m.id] for m in messages if m.id in conversation.pins
            }

        def write(conversation: history.OpenConversation) -> Flow[list[str]]:
            editor = history.Editor(self._workspace.store, conversation, self._workspace.writer_id)
            beside = (
                [stores.written(new_scope.place(stores.owners.GUESTS), guests)] if guests else []
            )
            return editor.begin_with(messages, pins, beside)

        # One after the other: with one lock inside the other, two forks could wait for each other
        # for ever.
        messages, pins = yield from self._workspace.recall(scope, read)
        guests = yield from stores.guests.read_record(self._workspace.store, scope)
        return (yield from self._workspace.recall(new_scope, write))

    def _pin(
        self,
        message_ids: str | Sequence[str],
        *,
        user_id: str,
        conversation_id: str,
        preservation: Preservation | None = "keep",
    ) -> Flow[None]:
        """Sets how compaction treats messages.

        This outweighs the wish that a message carries itself.

        `"keep"`: verbatim while it fits; `"summarize"`: in short only; `"drop"`: left out of prompts, still found by
        the recall tool; None takes back what was said before.
        """
        if preservation is not None:
            require_preservation(preservation, "preservation")
        scope = stores.Scope(user_id, conversation_id)
        ids = _ids(message_ids)

        def body(conversation: history.OpenConversation) -> Flow[None]:
            history.require_known(conversation, ids)
            yield from self._workspace.read_marks(conversation)
            others = conversation.table.positions.keys() - set(ids)
            pins = {key: pinned for key, pinned in conversation.pins.items() if key in others}
            if preservation is not None:
                pins |= dict.fromkeys(ids, preservation)
            record = stores.PinsRecord(pins=pins) if pins else None
            yield from batch(
                self._workspace.store, [stores.written(scope.place(history.PINS), record)]
            )
            conversation.pin(pins)

        return self._workspace.recall(scope, body)

    def _coverage(
        self, *, user_id: str, conversation_id: str
    ) -> Flow[dict[CoverageState, list[str]]]:
        """Returns the ids of a conversation's messages by their state in its last prompt, in order.

        Every message is in exactly one: `verbatim`, also what came after the prompt, `summarized`
        (a line of summary or arc stands for it, or a shortened form of it), `retrieved`, or
        `omitted` (and found by the recall tool).
        """

        def body(conversation: history.OpenConversation) -> Flow[dict[CoverageState, list[str]]]:
            if conversation.last is None or conversation.last.coverage is None:
                yield from self._workspace.read_marks(conversation)
            return conversation.seen_with(self._workspace.counter).ledger()

        return self._workspace.recall(stores.Scope(user_id, conversation_id), body)

    def _get_compactions(
        self, *, user_id: str, conversation_id: str
    ) -> Flow[list[history.ConversationCompaction]]:
        """Returns the summaries of all spans that are no longer shown whole, each after those that it sums up."""

        def body(
            conversation: history.OpenConversation,
        ) -> Flow[list[history.ConversationCompaction]]:
            yield from self._workspace.read_marks(conversation)
            until = max((cut.position for cut in conversation.cuts.values()), default=0)
            seen = conversation.seen_with(self._workspace.counter)
            return (
                yield from history.compactions(
                    self._workspace.store, seen, self.settings.span_messages, until
                )
            )

        return self._workspace.recall(stores.Scope(user_id, conversation_id), body)

    def _end_session(self, *, user_id: str, conversation_id: str) -> Flow[bool]:
        """Says that a conversation pauses or ends.

        Returns True if its new messages are learned from now.
        """
        yield from ()
        return self._workspace.learning.end_session(stores.Scope(user_id, conversation_id))

    def _status(self, *, user_id: str, conversation_id: str) -> Flow[ConversationStatus]:
        """Returns the background work on a conversation, and the outcome of its last prompt (seed 001)."""
        scope = stores.Scope(user_id, conversation_id)
        learning = self._workspace.learning
        summarizing = self._workspace.summarizing
        progress = yield from learning.progress(scope)
        report = self.last_report(user_id=user_id, conversation_id=conversation_id)
        return ConversationStatus(
            is_extracting=learning.worker.has(scope),
            last_extraction=progress.at,
            is_compacting=summarizing is not None and summarizing.worker.has(scope),
            compaction_stage=report.history_strategy if report else "empty",
            saved_tokens=report.stability.saved_tokens if report else 0,
            extraction_waits_until=progress.waits_until,
            suspended=(progress.meanwhile or progress).passage.spans,
        )

    def _clear(self, *, user_id: str, conversation_id: str) -> Flow[None]:
        """Deletes a conversation and everything that was derived from it, and nothing else."""
        return self._workspace.clear(stores.Scope(user_id, conversation_id))

    # Threads of several users

    def shared_conversation(self, conversation_id: str) -> "Chat":
        """Returns the conversation of a thread that people share.

        See the setting `on_foreign_thread`.

        It has the methods of any other, for instance `messages` and `clear`. Its user is the thread
        itself.
        """
        thread = stores.require_id("conversation_id", conversation_id)
        return Chat(self, thread, user_id=stores.SharedThread.of(thread))

    def _hand_over(self, conversation_id: str, *, from_user: str, to_user: str) -> Flow[None]:
        """Gives a thread to another user.

        Its owner, its messages, pins and summaries, and those of its agents.

        What was learned from it about the one is forgotten, and learned about the other. Call it
        while nobody runs the thread in another process. It can be repeated: where it was cut off,
        it goes on.

        Args:
            conversation_id: the thread.
            from_user: whose it is, for instance what was the `default_user`.
            to_user: whose it is to be.

        Raises:
            ForeignUserError: it belongs to neither.
            InputError: both have a conversation of this id.
        """
        users = stores.require_id("user_id", from_user), stores.require_id("user_id", to_user)
        if from_user == to_user:
            raise InputError(f"from_user and to_user are both {from_user!r}")
        return self._workspace.hand_over(
            stores.require_id("conversation_id", conversation_id), *users
        )

    # Users

    def _export_user(self, *, user_id: str) -> Flow[list[str]]:
        """Returns all that is stored of a user, a line of JSON for each record.

        Joined by line breaks, a JSONL file.

        A line has its `kind` ("messages", "knowledge/facts", "settings"), the `conversation_id` where it is of one, its
        `value` and times. Messages are in order, as `messages_from_dict` reads them.
        """
        path = (stores.ROOT, stores.label(stores.require_id("user_id", user_id)))
        return stores.bulk.export_below(self._workspace.store, path, without=history.SEGMENTS)

    def _erase_user(self, *, user_id: str) -> Flow[int]:
        """Deletes every record of a user, and all that was derived from them.

        Returns how many records there were.
        """
        return self._workspace.erase(user_id)

    def _save_settings(
        self, settings: Mapping[str, Any], *, user_id: str, persona_id: str | None = None
    ) -> Flow[None]:
        """Saves the settings of a user, or of one of their personas, over earlier ones.

        An empty mapping removes them.

        They are plain data by setting: `{"allocation": {"strategy": "ratio", "memory": 0.35}}`.
        """
        if not isinstance(settings, Mapping):
            raise InvalidSettingsError(
                f"settings must be a mapping of their fields, not {type(settings).__name__}"
            )
        checked_settings = self.settings.override(settings)
        yield from stores.write_settings(
            self._workspace.store, stores.settings_place(user_id, persona_id), settings
        )
        if persona_id is not None:
            yield from self._workspace.learning.compile_persona(
                user_id, persona_id, checked_settings
            )

    def _get_settings(self, *, user_id: str, persona_id: str | None = None) -> Flow[dict[str, Any]]:
        """Returns the settings saved for a user, or for a persona of theirs.

        Empty if there are none.
        """
        return stores.read_settings(
            self._workspace.store, stores.settings_place(user_id, persona_id)
        )

    def _flush(self, timeout_seconds: float | None = None) -> Flow[bool]:
        """Waits for all that is under way in the background.

        Returns False where that took longer than the timeout.
        """
        until = inf if timeout_seconds is None else time.monotonic() + timeout_seconds
        done = True
        for worker in self._workspace.finish():
            left = None if until == inf else max(0.0, until - time.monotonic())
            done &= yield Call(partial(worker.flush, left), partial(worker.aflush, left))
        return done

    def close(self) -> None:
        """Closes what the pipeline opened itself and stops its background work.

        A store passed in stays open.
        """
        self._workspace.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    assemble, aassemble = twins(_assemble)
    add_messages, aadd_messages = twins(_add_messages)
    sync, a_sync = twins(_sync)
    get_messages, aget_messages = twins(_get_messages)
    get_page, aget_page = twins(_get_page)
    list_conversations, alist_conversations = twins(_list_conversations)
    edit_message, aedit_message = twins(_edit_message)
    remove_messages, aremove_messages = twins(_remove_messages)
    fork, afork = twins(_fork)
    pin, apin = twins(_pin)
    coverage, acoverage = twins(_coverage)
    get_compactions, aget_compactions = twins(_get_compactions)
    end_session, aend_session = twins(_end_session)
    status, astatus = twins(_status)
    clear, aclear = twins(_clear)
    hand_over, ahand_over = twins(_hand_over)
    export_user, aexport_user = twins(_export_user)
    erase_user, aerase_user = twins(_erase_user)
    save_settings, asave_settings = twins(_save_settings)
    get_settings, aget_settings = twins(_get_settings)
    flush, aflush = twins(_flush)


@checks_names(ContextSettings.model_fields)
class Chat:
    """One conversation of a pipeline.

    Its methods without `user_id` and `conversation_id`, in both forms.

    Example:
        >>> from langchain_core.messages import AIMessage
        >>> from langchain_ctxbudget import ContextPipeline
        >>> chat = ContextPipeline().conversation("c1", user_id="ada")
        >>> context = chat.assemble("My bike is blue.")
        >>> ids = chat.add(context.turn, AIMessage("Noted!"))
        >>> [message.text for message in chat.messages()]
        ['My bike is blue.', 'Noted!']
    """

    def __init__(self, pipeline: ContextPipeline, conversation_id: str, *, user_id: str) -> None:
        stores.Scope(user_id, conversation_id)
        self.pipeline = pipeline
        self.conversation_id = conversation_id
        self.user_id = user_id
        self._ids: Any = {"user_id": user_id, "conversation_id": conversation_id}

    def _assemble(
        self,
        message: str | BaseMessage | Sequence[BaseMessage],
        *,
        tools: Sequence[Any] = (),
        response_format: object = None,
        settings: ContextSettings | Mapping[str, Any] | None = None,
        persona_id: str | None = None,
        device_id: str | None = None,
    ) -> Flow[AssembledContext]:
        """Makes the prompt for the current turn; see `ContextPipeline.assemble`."""
        return self.pipeline._assemble(
            message,
            tools=tools,
            response_format=response_format,
            settings=settings,
            persona_id=persona_id,
            device_id=device_id,
            **self._ids,
        )

    def _add(self, *messages: BaseMessage | Sequence[BaseMessage]) -> Flow[list[str]]:
        """Appends messages, one by one or in lists, and returns their ids.

        See `ContextPipeline.add_messages`.
        """
        given = [
            one for part in messages for one in ([part] if isinstance(part, BaseMessage) else part)
        ]
        return self.pipeline._add_messages(given, **self._ids)

    def _sync(
        self, messages: Sequence[BaseMessage], *, on_removal: history.OnRemoval = "archive"
    ) -> Flow[list[str]]:
        """Makes the conversation equal to an agent's state; see `ContextPipeline.sync`."""
        return self.pipeline._sync(messages, on_removal=on_removal, **self._ids)

    def _messages(self) -> Flow[list[BaseMessage]]:
        """Returns every message as it was given."""
        return self.pipeline._get_messages(**self._ids)

    def _page(self, *, limit: int = 50, before: str | None = None) -> Flow[history.MessagePage]:
        """Reads the newest messages, or the newest ones before a page (its `before`)."""
        return self.pipeline._get_page(limit=limit, before=before, **self._ids)

    def _edit(self, message_id: str, message: BaseMessage) -> Flow[None]:
        """Puts a message in the place of another; see `ContextPipeline.edit_message`."""
        return self.pipeline._edit_message(message_id, message, **self._ids)

    def _remove(
        self, message_ids: str | Sequence[str], *, on_removal: history.OnRemoval = "archive"
    ) -> Flow[None]:
        """Takes messages out of the conversation; see `ContextPipeline.remove_messages`."""
        return self.pipeline._remove_messages(message_ids, on_removal=on_removal, **self._ids)

    def _pin(
        self, message_ids: str | Sequence[str], *, preservation: Preservation | None = "keep"
    ) -> Flow[None]:
        """Sets how compaction treats messages; see `ContextPipeline.pin`."""
        return self.pipeline._pin(message_ids, preservation=preservation, **self._ids)

    def _fork(self, new_conversation_id: str, *, until: str | None = None) -> "Flow[Chat]":
        """Begins a new conversation with the messages of this one, up to an id or all, and returns it."""
        yield from self.pipeline._fork(new_conversation_id, until=until, **self._ids)
        return Chat(self.pipeline, new_conversation_id, user_id=self.user_id)

    def _coverage(self) -> Flow[dict[CoverageState, list[str]]]:
        """Returns the ids of its messages by their state in the last prompt.

        See `ContextPipeline.coverage`.
        """
        return self.pipeline._coverage(**self._ids)

    def _compactions(self) -> Flow[list[history.ConversationCompaction]]:
        """Returns the summaries of all spans that are no longer shown whole."""
        return self.pipeline._get_compactions(**self._ids)

    def _end_session(self) -> Flow[bool]:
        """Says that the conversation pauses or ends.

        Returns True if its new messages are learned from now.
        """
        return self.pipeline._end_session(**self._ids)

    def _status(self) -> Flow[ConversationStatus]:
        """Returns the background work on it, and the outcome of its last prompt."""
        return self.pipeline._status(**self._ids)

    def _clear(self) -> Flow[None]:
        """Deletes the conversation and everything that was derived from it."""
        return self.pipeline._clear(**self._ids)

    def last_report(self) -> ContextReport | None:
        """Returns the report of its last prompt in this process; None where there was none."""
        return self.pipeline.last_report(**self._ids)

    assemble, aassemble = twins(_assemble)
    add, aadd = twins(_add)
    sync, a_sync = twins(_sync)
    messages, amessages = twins(_messages)
    page, apage = twins(_page)
    edit, aedit = twins(_edit)
    remove, aremove = twins(_remove)
    pin, apin = twins(_pin)
    fork, afork = twins(_fork)
    coverage, acoverage = twins(_coverage)
    compactions, acompactions = twins(_compactions)
    end_session, aend_session = twins(_end_session)
    status, astatus = twins(_status)
    clear, aclear = twins(_clear)


def replay_last_turns(
    pipeline: ContextPipeline, messages: Sequence[BaseMessage], scope: stores.Scope
) -> None:
    """Stores a conversation, and makes a prompt for each of its last turns on the way."""
    chat = pipeline.conversation(scope.conversation_id, user_id=scope.user_id)
    begins = [place for place, message in enumerate(messages) if is_user(message)][-REPLAYED_TURNS:]
    chat.add(messages[: begins[0] if begins else None])
    for begin, end in pairwise([*begins, len(messages)]):
        with suppress(errors.BudgetError, errors.EmptyMessageError):
            chat.assemble(messages[begin : begin + 1])
        chat.add(messages[begin:end])
    pipeline.flush()


def _ids(message_ids: str | Sequence[str]) -> list[str]:
    ids = [message_ids] if isinstance(message_ids, str) else message_ids
    if not isinstance(ids, Sequence) or not all(isinstance(key, str) for key in ids):
        raise InputError(f"message_ids must be an id or a list of ids, not {message_ids!r}")
    return list(ids)
