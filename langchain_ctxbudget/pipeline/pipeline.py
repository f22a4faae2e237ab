"""`ContextPipeline`: the plain object over everything else."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

from langchain_core.documents import BaseDocumentCompressor
from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, BaseMessage, MessageLikeRepresentation
from langgraph.store.base import BaseStore

from langchain_ctxbudget import errors, history, stores
from langchain_ctxbudget.errors import (
    InputError,
    InvalidSettingsError,
    checks_names,
    require_kind,
)
from langchain_ctxbudget.flow import adrive, drive
from langchain_ctxbudget.knowledge import UserKnowledge
from langchain_ctxbudget.messages import Preservation, Turn, is_user
from langchain_ctxbudget.pipeline import retention, users
from langchain_ctxbudget.pipeline.chat import Chat
from langchain_ctxbudget.pipeline.engine import Engine
from langchain_ctxbudget.pipeline.forecast import CostForecast
from langchain_ctxbudget.pipeline.retention import SweepResult
from langchain_ctxbudget.pipeline.runs import context_runnable
from langchain_ctxbudget.pipeline.stored import ConversationStatus, StoredConversation
from langchain_ctxbudget.pipeline.usage import Prices, UsageBook
from langchain_ctxbudget.pipeline.workers import flushed
from langchain_ctxbudget.pipeline.workspace import Workspace
from langchain_ctxbudget.prompt import AssembledContext, what_if
from langchain_ctxbudget.report import ContextReport, CoverageState
from langchain_ctxbudget.settings import ContextSettings, RetentionPolicy
from langchain_ctxbudget.tokens import ModelTarget, TokenCounter, load_prices

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel  # takes 0.2 s to import
    from langchain_core.runnables import Runnable

    from langchain_ctxbudget.pipeline.snapshots import SnapshotBook
    from langchain_ctxbudget.providers import Profile

REPLAYED_TURNS = 24
"""The last turns of a conversation for which prompts are made again, where none were kept."""


@checks_names(ContextSettings.model_fields)
class ContextPipeline:
    """Decides what goes into the context window of every model call.

    It is shared by threads and tasks; a conversation is worked on by one at a time. Every method
    that reads or writes has an async form, whose name begins with an `a`. Without a user or a
    conversation, every method that needs one raises `MissingScopeError`; with a message that is
    none, `UnsupportedContentError`; where the pipeline is closed, `StoreError`. Its parts:
    `settings`, `knowledge` (about users), `usage` (tokens, costs and limits), `snapshots` (reports
    that are kept).

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
        model: "Runnable[Any, Any] | str | None" = None,
        store: BaseStore | None = None,
        embeddings: Embeddings | None = None,
        token_counter: TokenCounter | None = None,
        summary_model: "BaseChatModel | None" = None,
        reranker: BaseDocumentCompressor | None = None,
        writer_id: str | None = None,
        clock: Callable[[], datetime] | None = None,
        prices: Prices | None = None,
        provider: "Profile | str | None" = None,
    ) -> None:
        """Sets up a pipeline; nothing is read, written or loaded before it is needed.

        Args:
            settings: say how much may go in, and what.
            system_prompt: sent verbatim with every prompt, never cut.
            model: the target model, also bound or with fallbacks, or its name: tokenizer, window,
                output reserve; default: o200k_base, no window.
            store: any LangGraph store; default: that of the agent or graph in which the pipeline
                runs, where it was compiled with one, else a private one in memory.
            embeddings: any LangChain embeddings; default: `LocalEmbeddings`, where they are
                installed.
            token_counter: counts tokens; default: the model's.
            summary_model: writes summaries in the background; until it has, extracted sentences
                stand instead.
            reranker: any LangChain document compressor; what it says of the best of what was found
                adds to their ranking.
            writer_id: the name under which this pipeline appends, unique among its conversations'
                writers.
            clock: tells what time it is, in UTC where it names no offset; default: the computer's.
            prices: of models, in US dollars per million tokens:
                `{"my-model": {"input": 2.5, "output": 10}}`.
            provider: whose rules hold for what is sent, whatever the model is: the name of a
                profile, such as `"anthropic"`, or a changed one; default: the model's own
                provider.
        """
        require_kind("system_prompt", system_prompt, str)
        if summary_model is not None and not callable(getattr(summary_model, "invoke", None)):
            raise InvalidSettingsError(
                f"summary_model must be a chat model, not {type(summary_model).__name__}"
            )
        if store is not None and not isinstance(store, BaseStore):
            raise InvalidSettingsError(
                f"store must be a LangGraph store, not {store!r}: pass "
                'ChromaStore("memory") for a folder of that name, or leave it out to keep '
                "everything in memory"
            )
        require_kind("embeddings", embeddings, Embeddings)
        require_kind("reranker", reranker, BaseDocumentCompressor)
        require_kind("writer_id", writer_id, str)

        self.settings = ContextSettings().override(settings)
        target = ModelTarget(model, token_counter, provider, prices=load_prices(prices))
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
        self._workspace.encoder_for(self.settings)  # raises where it is not installed
        self.engine = Engine(self._workspace, target, system_prompt, reranker)

    def __repr__(self) -> str:
        """Names the budget, the model and the store."""
        parts = [f"max_context_tokens={self.settings.max_context_tokens}"]
        model_name = self.engine.target.model_name
        if model_name:
            parts.append(f"model={model_name!r}")
        names = [place.store_name for place in self._workspace.places_kept()]
        parts.append(f"store={' or '.join(names)}")
        return f"ContextPipeline({', '.join(parts)})"

    @property
    def token_counter(self) -> TokenCounter:
        """The counter of tokens, corrected by the usage that was observed."""
        return self.engine.target.counter

    @property
    def store(self) -> BaseStore:
        """The store that conversations are kept in.

        For a pipeline without one, that is the store of the agent or graph it ran in, if there is
        one; a `StoreError` if there are several.
        """
        return self._kept.store

    @property
    def _kept(self) -> Workspace:
        """The workspace over that store."""
        return self._workspace.where_kept()

    @property
    def embeddings(self) -> Embeddings | None:
        """The embeddings of retrieval; None where none were given and none are installed."""
        return self._workspace.embeddings

    @property
    def knowledge(self) -> UserKnowledge:
        """What is known about users."""
        return UserKnowledge(self._kept.workers.learning)

    @property
    def usage(self) -> UsageBook:
        """The tokens and costs of users, and what is left of limits."""
        return UsageBook(
            self._kept.workers.bookkeeping, self.settings, self.engine.target.model_name
        )

    @cached_property
    def snapshots(self) -> "SnapshotBook":
        """The reports of earlier prompts, where `keep_snapshots` says that they are kept."""
        from langchain_ctxbudget.pipeline.snapshots import (  # noqa: PLC0415 - few keep any
            SnapshotBook,
        )

        return SnapshotBook(lambda: self.store)

    # Prompts

    def assemble(
        self,
        message: Turn,
        *,
        user_id: str,
        conversation_id: str,
        tools: Sequence[Any] = (),
        response_format: object = None,
        settings: ContextSettings | Mapping[str, Any] | None = None,
        persona_id: str | None = None,
        device_id: str | None = None,
    ) -> AssembledContext:
        """Makes the prompt for the current turn, within its budget, with its report.

        Stores nothing that was said.

        Args:
            message: the user's words, or the turn so far: a list that goes on with an agent's calls
                and results.
            user_id: the user.
            conversation_id: the conversation; one that does not exist yet has no history.
            tools: what will be bound to the model; counted as it is sent.
            response_format: a schema that the model must answer in; counted as it is sent.
            settings: overrides for this call; below them lie the persona's saved settings, the
                user's, the pipeline's.
            persona_id: the persona whose saved settings apply on top of the user's.
            device_id: where the user is: what is open there counts as mentioned, and what was
                predicted from it comes first.

        Raises:
            BudgetTooSmallError: what must be sent does not fit; the message lists what it needs.
            EmptyMessageError: there is nothing to answer.
            InvalidSettingsError: an override outside its range.
            SystemPromptTooLargeError: the system prompt takes more than its share of the model's
                window.
        """
        chat = self.conversation(conversation_id, user_id=user_id)
        return chat.assemble(
            message,
            tools=tools,
            response_format=response_format,
            settings=settings,
            persona_id=persona_id,
            device_id=device_id,
        )

    async def aassemble(
        self,
        message: Turn,
        *,
        user_id: str,
        conversation_id: str,
        tools: Sequence[Any] = (),
        response_format: object = None,
        settings: ContextSettings | Mapping[str, Any] | None = None,
        persona_id: str | None = None,
        device_id: str | None = None,
    ) -> AssembledContext:
        """Makes the prompt for the current turn; the async form of `assemble`."""
        chat = self.conversation(conversation_id, user_id=user_id)
        return await chat.aassemble(
            message,
            tools=tools,
            response_format=response_format,
            settings=settings,
            persona_id=persona_id,
            device_id=device_id,
        )

    def forecast(
        self,
        message: Turn,
        *,
        user_id: str,
        conversation_id: str,
        tools: Sequence[Any] = (),
        response_format: object = None,
        settings: ContextSettings | Mapping[str, Any] | None = None,
        persona_id: str | None = None,
        device_id: str | None = None,
    ) -> CostForecast:
        """Tells what the prompt for a turn would cost, now and once the provider's cache is cold.

        Makes the prompt that `assemble` would make, and sends it to nobody: of the turn nothing is
        written, kept or counted.

        Args:
            message: the user's words, or the turn so far.
            user_id: the user.
            conversation_id: the conversation.
            tools: what would be bound to the model.
            response_format: a schema that the model would have to answer in.
            settings: overrides for this call, as for `assemble`.
            persona_id: the persona whose saved settings apply on top of the user's.
            device_id: where the user is: what is open there counts as mentioned.

        Raises:
            BudgetTooSmallError: what must be sent does not fit.
            EmptyMessageError: there is nothing to answer.
            InvalidSettingsError: an override outside its range.
            SystemPromptTooLargeError: the system prompt takes more than its share of the model's
                window.
        """
        chat = self.conversation(conversation_id, user_id=user_id)
        return chat.forecast(
            message,
            tools=tools,
            response_format=response_format,
            settings=settings,
            persona_id=persona_id,
            device_id=device_id,
        )

    async def aforecast(
        self,
        message: Turn,
        *,
        user_id: str,
        conversation_id: str,
        tools: Sequence[Any] = (),
        response_format: object = None,
        settings: ContextSettings | Mapping[str, Any] | None = None,
        persona_id: str | None = None,
        device_id: str | None = None,
    ) -> CostForecast:
        """Tells what the prompt for a turn would cost; the async form of `forecast`."""
        chat = self.conversation(conversation_id, user_id=user_id)
        return await chat.aforecast(
            message,
            tools=tools,
            response_format=response_format,
            settings=settings,
            persona_id=persona_id,
            device_id=device_id,
        )

    def as_runnable(
        self,
        *,
        default_user: str | None = None,
        tools: Sequence[Any] = (),
        response_format: object = None,
        runtime_store: bool = True,
    ) -> "Runnable[Any, list[BaseMessage]]":
        """Returns a step of a chain, from the turn to answer to the messages to send.

        Its input is the current turn, as `assemble` takes it or as a prompt template gives it
        (system messages in front of it join the system prompt); nothing is stored. Or it is an
        agent's state, `{"messages": [...]}`: then the stored conversation is first made equal to
        the messages before the current turn. Options are as for `build_context_graph`.

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
        seconds: float | None = None,
    ) -> float:
        """Corrects the counts by what the provider measured for a prompt, and books its usage.

        The last 16 prompts give a factor for every count. One outlier changes nothing, nor does an
        answer that sums up several calls.

        Args:
            usage_metadata: the answer, or its usage as LangChain gives it.
            report: that of the prompt that was answered; default: the last one.
            model: the one whose price counts; default: the one that the answer names, else the
                pipeline's.
            seconds: how long the answer took, if that is known.

        Returns:
            The factor.
        """
        return self.engine.observe(usage_metadata, report, model, seconds)

    def what_if(self, budgets: Sequence[int]) -> list[ContextReport]:
        """Returns the reports that other budgets, in tokens, would have given the last prompt.

        Does no I/O.
        """
        last = self.engine.recent.last
        if last is None or last.prompt is None:
            raise InputError("Nothing was assembled yet, so there are no candidates")
        return [what_if(last.prompt, budget) for budget in budgets]

    def last_report(self, *, user_id: str, conversation_id: str) -> ContextReport | None:
        """Returns the report of a conversation's newest prompt.

        None where it is not one of the latest 64 of this process.
        """
        return self.conversation(conversation_id, user_id=user_id).last_report()

    # Conversations

    def conversation(self, conversation_id: str, *, user_id: str) -> Chat:
        """Returns one conversation with the pipeline's methods, so that its ids are named once."""
        return Chat(self, conversation_id, user_id=user_id)

    def add_messages(
        self, messages: Sequence[MessageLikeRepresentation], *, user_id: str, conversation_id: str
    ) -> list[str]:
        """Appends messages, and returns their ids.

        Messages may have any form that LangChain's chat models take. Those that the conversation
        knows are left alone, and changed ones are refused.

        Raises:
            MessageConflictError: a known id came with other content.
            UnsupportedContentError: something is not a message; the error names its place.
        """
        return drive(self._stored(user_id, conversation_id).add(messages))

    async def aadd_messages(
        self, messages: Sequence[MessageLikeRepresentation], *, user_id: str, conversation_id: str
    ) -> list[str]:
        """Appends messages, and returns their ids; the async form of `add_messages`."""
        return await adrive(self._stored(user_id, conversation_id).add(messages))

    def sync(
        self,
        messages: Sequence[MessageLikeRepresentation],
        *,
        user_id: str,
        conversation_id: str,
        on_removal: history.OnRemoval = "archive",
    ) -> list[str]:
        """Makes a conversation equal to an agent's state, by id and content.

        Args:
            messages: the state's messages; a state that has none has forgotten them.
            user_id: the user.
            conversation_id: the conversation.
            on_removal: whether what the state has no more is archived or forgotten.

        Returns:
            The ids of the messages.
        """
        chat = self.conversation(conversation_id, user_id=user_id)
        return chat.sync(messages, on_removal=on_removal)

    async def a_sync(
        self,
        messages: Sequence[MessageLikeRepresentation],
        *,
        user_id: str,
        conversation_id: str,
        on_removal: history.OnRemoval = "archive",
    ) -> list[str]:
        """Makes a conversation equal to an agent's state; the async form of `sync`."""
        chat = self.conversation(conversation_id, user_id=user_id)
        return await chat.a_sync(messages, on_removal=on_removal)

    def get_messages(self, *, user_id: str, conversation_id: str) -> list[BaseMessage]:
        """Returns every message of a conversation as it was given.

        A conversation that does not exist yet has none.
        """
        return self.conversation(conversation_id, user_id=user_id).messages()

    async def aget_messages(self, *, user_id: str, conversation_id: str) -> list[BaseMessage]:
        """Returns every message of a conversation; the async form of `get_messages`."""
        return await self.conversation(conversation_id, user_id=user_id).amessages()

    def get_page(
        self, *, user_id: str, conversation_id: str, limit: int = 50, before: str | None = None
    ) -> history.MessagePage:
        """Returns the newest messages of a conversation, or the newest ones before a page.

        Args:
            user_id: the user.
            conversation_id: the conversation.
            limit: the most messages to return.
            before: the `before` of the page after this one.
        """
        return self.conversation(conversation_id, user_id=user_id).page(limit=limit, before=before)

    async def aget_page(
        self, *, user_id: str, conversation_id: str, limit: int = 50, before: str | None = None
    ) -> history.MessagePage:
        """Returns the newest messages before a page; the async form of `get_page`."""
        chat = self.conversation(conversation_id, user_id=user_id)
        return await chat.apage(limit=limit, before=before)

    def list_conversations(self, *, user_id: str) -> list[str]:
        """Returns the ids of a user's conversations, sorted."""
        return drive(users.conversation_ids(self._kept, user_id))

    async def alist_conversations(self, *, user_id: str) -> list[str]:
        """Returns the ids of a user's conversations; the async form of `list_conversations`."""
        return await adrive(users.conversation_ids(self._kept, user_id))

    def edit_message(
        self,
        message_id: str,
        message: MessageLikeRepresentation,
        *,
        user_id: str,
        conversation_id: str,
    ) -> None:
        """Replaces a message under its id; everything derived from the old one is deleted."""
        self.conversation(conversation_id, user_id=user_id).edit(message_id, message)

    async def aedit_message(
        self,
        message_id: str,
        message: MessageLikeRepresentation,
        *,
        user_id: str,
        conversation_id: str,
    ) -> None:
        """Replaces a message under its id; the async form of `edit_message`."""
        await self.conversation(conversation_id, user_id=user_id).aedit(message_id, message)

    def remove_messages(
        self,
        message_ids: str | Sequence[str],
        *,
        user_id: str,
        conversation_id: str,
        on_removal: history.OnRemoval = "archive",
    ) -> None:
        """Takes messages out of a conversation.

        Args:
            message_ids: an id, or several.
            user_id: the user.
            conversation_id: the conversation.
            on_removal: `"archive"`: no prompt shows them; `"forget"`: nothing is left of them.
        """
        chat = self.conversation(conversation_id, user_id=user_id)
        chat.remove(message_ids, on_removal=on_removal)

    async def aremove_messages(
        self,
        message_ids: str | Sequence[str],
        *,
        user_id: str,
        conversation_id: str,
        on_removal: history.OnRemoval = "archive",
    ) -> None:
        """Takes messages out of a conversation; the async form of `remove_messages`."""
        chat = self.conversation(conversation_id, user_id=user_id)
        await chat.aremove(message_ids, on_removal=on_removal)

    def fork(
        self,
        new_conversation_id: str,
        *,
        user_id: str,
        conversation_id: str,
        until: str | None = None,
    ) -> list[str]:
        """Begins a new conversation with the messages of another one.

        Args:
            new_conversation_id: the id of the new conversation.
            user_id: the user of both.
            conversation_id: the conversation whose messages are taken over.
            until: the id of the last message to take over; default: all are.

        Returns:
            The ids of the messages.
        """
        return drive(self._stored(user_id, conversation_id).fork(new_conversation_id, until))

    async def afork(
        self,
        new_conversation_id: str,
        *,
        user_id: str,
        conversation_id: str,
        until: str | None = None,
    ) -> list[str]:
        """Begins a new conversation with the messages of another one; the async form of `fork`."""
        stored = self._stored(user_id, conversation_id)
        return await adrive(stored.fork(new_conversation_id, until))

    def pin(
        self,
        message_ids: str | Sequence[str],
        *,
        user_id: str,
        conversation_id: str,
        preservation: Preservation | None = "keep",
    ) -> None:
        """Sets how compaction treats messages.

        This outweighs the wish that a message carries itself.

        Args:
            message_ids: an id, or several.
            user_id: the user.
            conversation_id: the conversation.
            preservation: `"keep"`: verbatim while it fits; `"summarize"`: in short only; `"drop"`:
                left out of prompts, still found by the recall tool; None takes back what was said
                before.
        """
        chat = self.conversation(conversation_id, user_id=user_id)
        chat.pin(message_ids, preservation=preservation)

    async def apin(
        self,
        message_ids: str | Sequence[str],
        *,
        user_id: str,
        conversation_id: str,
        preservation: Preservation | None = "keep",
    ) -> None:
        """Sets how compaction treats messages; the async form of `pin`."""
        chat = self.conversation(conversation_id, user_id=user_id)
        await chat.apin(message_ids, preservation=preservation)

    def coverage(self, *, user_id: str, conversation_id: str) -> dict[CoverageState, list[str]]:
        """Returns the ids of a conversation's messages by their state in its last prompt, in order.

        Every message is in exactly one: `verbatim`, also what came after the prompt, `summarized`
        (a line of summary or arc stands for it, or a shortened form of it), `retrieved`, or
        `omitted` (and found by the recall tool).
        """
        return self.conversation(conversation_id, user_id=user_id).coverage()

    async def acoverage(
        self, *, user_id: str, conversation_id: str
    ) -> dict[CoverageState, list[str]]:
        """Returns the ids of messages by their state; the async form of `coverage`."""
        return await self.conversation(conversation_id, user_id=user_id).acoverage()

    def get_compactions(
        self, *, user_id: str, conversation_id: str
    ) -> list[history.ConversationCompaction]:
        """Returns the summaries of all spans that are no longer shown whole.

        Each stands after those that it sums up.
        """
        return self.conversation(conversation_id, user_id=user_id).compactions()

    async def aget_compactions(
        self, *, user_id: str, conversation_id: str
    ) -> list[history.ConversationCompaction]:
        """Returns the summaries of spans not shown whole; the async form of `get_compactions`."""
        return await self.conversation(conversation_id, user_id=user_id).acompactions()

    def end_session(self, *, user_id: str, conversation_id: str) -> bool:
        """Says that a conversation pauses or ends.

        Returns:
            True if its new messages are learned from now.
        """
        return self.conversation(conversation_id, user_id=user_id).end_session()

    async def aend_session(self, *, user_id: str, conversation_id: str) -> bool:
        """Says that a conversation pauses or ends; the async form of `end_session`."""
        return await self.conversation(conversation_id, user_id=user_id).aend_session()

    def status(self, *, user_id: str, conversation_id: str) -> ConversationStatus:
        """Returns the background work on a conversation, and the outcome of its last prompt."""
        return self.conversation(conversation_id, user_id=user_id).status()

    async def astatus(self, *, user_id: str, conversation_id: str) -> ConversationStatus:
        """Returns the background work on a conversation; the async form of `status`."""
        return await self.conversation(conversation_id, user_id=user_id).astatus()

    def clear(self, *, user_id: str, conversation_id: str) -> None:
        """Deletes a conversation and everything that was derived from it, and nothing else."""
        self.conversation(conversation_id, user_id=user_id).clear()

    async def aclear(self, *, user_id: str, conversation_id: str) -> None:
        """Deletes a conversation and everything derived from it; the async form of `clear`."""
        await self.conversation(conversation_id, user_id=user_id).aclear()

    def _stored(self, user_id: str, conversation_id: str) -> StoredConversation:
        """Returns the flows of one conversation, for methods that its `Chat` has in another form.

        `Chat.add` takes messages one by one, and `Chat.fork` returns a conversation.
        """
        return StoredConversation(self._kept, stores.Scope(user_id, conversation_id))

    # Threads of several users

    def shared_conversation(self, conversation_id: str) -> Chat:
        """Returns the conversation of a thread that people share.

        It has the methods of any other, for instance `messages` and `clear`. Its user is the thread
        itself. See the setting `on_foreign_thread`.
        """
        thread = stores.require_id("conversation_id", conversation_id)
        return Chat(self, thread, user_id=stores.SharedThread.of(thread))

    def hand_over(self, conversation_id: str, *, from_user: str, to_user: str) -> None:
        """Gives a thread to another user, with its messages, pins and summaries.

        Its agents' conversations go with it. What was learned from it about the one is forgotten,
        and learned about the other. Call it while nobody runs the thread in another process. It can
        be repeated: where it was cut off, it goes on.

        Args:
            conversation_id: the thread.
            from_user: whose it is, for instance what was the `default_user`.
            to_user: whose it is to be.

        Raises:
            ForeignUserError: it belongs to neither.
            InputError: both have a conversation of this id.
        """
        from langchain_ctxbudget.pipeline import handover  # noqa: PLC0415 - few need it

        drive(handover.hand_over(self._workspace, conversation_id, from_user, to_user))

    async def ahand_over(self, conversation_id: str, *, from_user: str, to_user: str) -> None:
        """Gives a thread to another user; the async form of `hand_over`."""
        from langchain_ctxbudget.pipeline import handover  # noqa: PLC0415 - few need it

        await adrive(handover.hand_over(self._workspace, conversation_id, from_user, to_user))

    # Users

    def export_user(self, *, user_id: str) -> list[str]:
        """Returns all that is stored of a user, a line of JSON for each record.

        Joined by line breaks, the lines are a JSONL file. A line has its `kind` ("messages",
        "knowledge/facts", "settings"), the `conversation_id` where it is of one, its `value` and
        times. Messages are in order, as `messages_from_dict` reads them.
        """
        return drive(users.export(self._workspace, user_id))

    async def aexport_user(self, *, user_id: str) -> list[str]:
        """Returns all that is stored of a user; the async form of `export_user`."""
        return await adrive(users.export(self._workspace, user_id))

    def erase_user(self, *, user_id: str) -> int:
        """Deletes every record of a user, and all that was derived from them.

        An agent's checkpointer is another store: what its threads hold is stored again when they
        run. So delete them there, too, by `checkpointer.delete_thread` for each of
        `list_conversations`, before this.

        Args:
            user_id: the user.

        Returns:
            How many records there were.
        """
        return drive(users.erase(self._workspace, user_id))

    async def aerase_user(self, *, user_id: str) -> int:
        """Deletes every record of a user; the async form of `erase_user`."""
        return await adrive(users.erase(self._workspace, user_id))

    def sweep(
        self,
        policy: RetentionPolicy | Mapping[str, Any] | None = None,
        *,
        dry_run: bool = False,
    ) -> SweepResult:
        """Erases of all users what is older than a policy says, and all that was derived from it.

        What is erased leaves no trace in the store: summaries, vectors and quotes of a message go
        with it, and the facts that no younger message tells. It can be called as often as you like,
        by several processes; a conversation that has nothing to erase is not opened. A turn that
        another process has under way at that moment may still quote what is erased.

        Args:
            policy: how many days of what are kept, such as `{"messages": 90}`; default: the setting
                `retention`, or that in the settings saved for a user.
            dry_run: True to tell what would be erased, and write nothing.

        Raises:
            InvalidSettingsError: a policy outside its range.
        """
        checked = None if policy is None else RetentionPolicy.of(policy)
        return drive(retention.sweep(self._workspace, checked, is_dry_run=dry_run))

    async def asweep(
        self,
        policy: RetentionPolicy | Mapping[str, Any] | None = None,
        *,
        dry_run: bool = False,
    ) -> SweepResult:
        """Erases of all users what is older than a policy says; the async form of `sweep`."""
        checked = None if policy is None else RetentionPolicy.of(policy)
        return await adrive(retention.sweep(self._workspace, checked, is_dry_run=dry_run))

    def sweep_user(
        self,
        policy: RetentionPolicy | Mapping[str, Any] | None = None,
        *,
        user_id: str,
        dry_run: bool = False,
    ) -> SweepResult:
        """Erases of one user what is older than a policy says; see `sweep`."""
        checked = None if policy is None else RetentionPolicy.of(policy)
        flow = retention.sweep_user(self._workspace, checked, user_id, is_dry_run=dry_run)
        return drive(flow)

    async def asweep_user(
        self,
        policy: RetentionPolicy | Mapping[str, Any] | None = None,
        *,
        user_id: str,
        dry_run: bool = False,
    ) -> SweepResult:
        """Erases of one user what is older than a policy says; the async form of `sweep_user`."""
        checked = None if policy is None else RetentionPolicy.of(policy)
        flow = retention.sweep_user(self._workspace, checked, user_id, is_dry_run=dry_run)
        return await adrive(flow)

    def save_settings(
        self, settings: Mapping[str, Any], *, user_id: str, persona_id: str | None = None
    ) -> None:
        """Saves the settings of a user, or of one of their personas, over earlier ones.

        Args:
            settings: plain data by setting, such as
                `{"allocation": {"strategy": "ratio", "memory": 0.35}}`; an empty mapping removes
                what was saved.
            user_id: the user.
            persona_id: the persona; default: the settings are the user's.
        """
        drive(users.save_settings(self._kept, settings, user_id, persona_id))

    async def asave_settings(
        self, settings: Mapping[str, Any], *, user_id: str, persona_id: str | None = None
    ) -> None:
        """Saves the settings of a user or a persona; the async form of `save_settings`."""
        await adrive(users.save_settings(self._kept, settings, user_id, persona_id))

    def get_settings(self, *, user_id: str, persona_id: str | None = None) -> dict[str, Any]:
        """Returns the settings saved for a user, or for a persona of theirs.

        Empty if there are none.
        """
        return drive(users.saved_settings(self._kept, user_id, persona_id))

    async def aget_settings(self, *, user_id: str, persona_id: str | None = None) -> dict[str, Any]:
        """Returns the settings saved for a user or a persona; the async form of `get_settings`."""
        return await adrive(users.saved_settings(self._kept, user_id, persona_id))

    # Background work

    def flush(self, timeout_seconds: float | None = None) -> bool:
        """Waits for all that is under way in the background.

        Args:
            timeout_seconds: the longest to wait; default: as long as it takes.

        Returns:
            False where it took longer than the timeout.
        """
        return drive(flushed(self._workspace.busy_workers(), timeout_seconds))

    async def aflush(self, timeout_seconds: float | None = None) -> bool:
        """Waits for all that is under way in the background; the async form of `flush`."""
        return await adrive(flushed(self._workspace.busy_workers(), timeout_seconds))

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


def name_conversation(pipeline: ContextPipeline, scope: stores.Scope, title: str) -> None:
    """Stores the title by which the dashboard lists a conversation."""
    place = scope.place(stores.TITLE)
    pipeline.store.put(place.namespace, place.key, {"text": title}, index=False)


def replay_last_turns(
    pipeline: ContextPipeline, messages: Sequence[BaseMessage], scope: stores.Scope
) -> None:
    """Stores a conversation, and makes a prompt for each of its last turns on the way."""
    chat = pipeline.conversation(scope.conversation_id, user_id=scope.user_id)
    users_places = [place for place, message in enumerate(messages) if is_user(message)]
    begins = users_places[-REPLAYED_TURNS:]
    chat.add(messages[: begins[0] if begins else None])
    pipeline.flush()
    for begin, end in pairwise([*begins, len(messages)]):
        with suppress(errors.BudgetError, errors.EmptyMessageError):
            chat.assemble(messages[begin : begin + 1])
        chat.add(messages[begin:end])
        # What a turn teaches is known in the next one, as in a conversation of people.
        pipeline.flush()
