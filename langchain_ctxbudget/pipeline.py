"""`ContextPipeline`: the plain object over everything else."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langgraph.store.base import BaseStore

from langchain_ctxbudget.core.messages import checked, current_turn, split_instructions
from langchain_ctxbudget.core.tokens import TokenCounter, counter_for
from langchain_ctxbudget.draft import AssembledContext, Draft, Target
from langchain_ctxbudget.embeddings import LocalEmbeddings, local_embeddings_available
from langchain_ctxbudget.errors import InputError, InvalidSettingsError, MessageConflictError, StoreError
from langchain_ctxbudget.flow import Flow, adrive, drive
from langchain_ctxbudget.history import log
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.history.log import OnRemoval
from langchain_ctxbudget.history.open import OpenConversations
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.steps import STEPS, read_cut, run
from langchain_ctxbudget.stores.records import Scope

NO_EMBEDDINGS = "embeddings: none are installed, so retrieval is lexical only (pip install wordllama)"


class ContextPipeline:
    """Decides what goes into the context window of every model call.

    It is shared by threads and tasks; a conversation is worked on by one at a time. Every method that reads or
    writes has an async twin.

    Example:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> pipeline = ContextPipeline(system_prompt="You are helpful.")
        >>> history = [HumanMessage("My bike is blue."), AIMessage("Nice!")]
        >>> ids = pipeline.add_messages(history, user_id="ada", conversation_id="c1")
        >>> context = pipeline.assemble("Which colour is my bike?", user_id="ada", conversation_id="c1")
        >>> [message.type for message in context.messages]
        ['system', 'human', 'ai', 'human']
    """

    def __init__(
        self,
        settings: ContextSettings | Mapping[str, Any] | None = None,
        *,
        system_prompt: str = "",
        model: BaseChatModel | str | None = None,
        store: BaseStore | None = None,
        embeddings: Embeddings | None = None,
        token_counter: TokenCounter | None = None,
        writer_id: str | None = None,
    ) -> None:
        """Set up a pipeline; nothing is read, written or loaded before it is needed.

        Args:
            settings: how much may go in, and what; the defaults where none are given.
            system_prompt: sent verbatim with every prompt, never cut.
            model: the target model or its name: its tokenizer and, of a model object, its window and what it
                reserves for the answer. Default: exact o200k_base, no window.
            store: any LangGraph store; default: a private `ChromaStore` in memory.
            embeddings: any LangChain embeddings; default: `LocalEmbeddings`, where they are installed.
            token_counter: how tokens are counted; default: the model's.
            writer_id: the name under which this pipeline appends to conversations that others append to as
                well; unique among them. Default: a random one.

        Raises:
            InvalidSettingsError: a setting outside its range.
        """
        if not isinstance(system_prompt, str):
            raise InvalidSettingsError(f"system_prompt must be a string, not {type(system_prompt).__name__}")
        for name, value, kind in (
            ("store", store, BaseStore),
            ("embeddings", embeddings, Embeddings),
            ("token_counter", token_counter, TokenCounter),
        ):
            if value is not None and not isinstance(value, kind):
                raise InvalidSettingsError(f"{name} must be a {kind.__name__}, not {type(value).__name__}")
        self.settings = ContextSettings().override(settings)
        self.system_prompt = system_prompt
        profile: Mapping[str, Any] = getattr(model, "profile", None) or {}
        self._target = Target(
            counter=token_counter or counter_for(model),
            window_tokens=profile.get("max_input_tokens"),
            output_tokens=profile.get("max_output_tokens"),
        )
        self._store = store
        self._owns_store = store is None
        self._closed = False
        self._embeddings = embeddings
        self._writer_id = writer_id or uuid4().hex
        self._open = OpenConversations(self._target.counter)
        self._mutex = threading.Lock()

    @property
    def token_counter(self) -> TokenCounter:
        """How tokens are counted."""
        return self._target.counter

    @property
    def store(self) -> BaseStore:
        """Where conversations are kept."""
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

    def add_messages(self, messages: Sequence[BaseMessage], *, user_id: str, conversation_id: str) -> list[str]:
        """Append messages to a conversation; those whose id it knows already are left alone.

        A message without an id gets one from its content and from how often the conversation has it: a second
        "yes" is a second message.

        Returns:
            the ids of the given messages, in order.

        Raises:
            MessageConflictError: an id is known with other content; nothing was written.
            MissingScopeError: no user or no conversation.
            UnsupportedContentError: something that is not a message.
        """
        return drive(self._add(messages, Scope(user_id, conversation_id)))

    async def aadd_messages(self, messages: Sequence[BaseMessage], *, user_id: str, conversation_id: str) -> list[str]:
        """Append messages to a conversation; see `add_messages`."""
        return await adrive(self._add(messages, Scope(user_id, conversation_id)))

    def sync(
        self,
        messages: Sequence[BaseMessage],
        *,
        user_id: str,
        conversation_id: str,
        on_removal: OnRemoval = "archive",
    ) -> list[str]:
        """Make a conversation equal to an agent's state, by id and content.

        New messages are appended, an edited one replaces its predecessor, and what was derived from it is made
        again; one that is no longer there is kept aside or deleted.

        Args:
            messages: the whole conversation as it should be.
            user_id: whose conversation it is.
            conversation_id: which one.
            on_removal: `"archive"` keeps removed messages aside, `"forget"` deletes them.

        Returns:
            the ids of the given messages, in order.

        Raises:
            MessageConflictError: two of the messages have one id and other content.
            MissingScopeError: no user or no conversation.
            UnsupportedContentError: something that is not a message.
        """
        return drive(self._sync(messages, Scope(user_id, conversation_id), on_removal))

    async def a_sync(
        self,
        messages: Sequence[BaseMessage],
        *,
        user_id: str,
        conversation_id: str,
        on_removal: OnRemoval = "archive",
    ) -> list[str]:
        """Make a conversation equal to an agent's state; see `sync` (`async` is a keyword)."""
        return await adrive(self._sync(messages, Scope(user_id, conversation_id), on_removal))

    def get_messages(self, *, user_id: str, conversation_id: str) -> list[BaseMessage]:
        """Every message of a conversation as it was given; none for one that does not exist yet.

        Raises:
            MissingScopeError: no user or no conversation.
        """
        return drive(self._get(Scope(user_id, conversation_id)))

    async def aget_messages(self, *, user_id: str, conversation_id: str) -> list[BaseMessage]:
        """Every message of a conversation; see `get_messages`."""
        return await adrive(self._get(Scope(user_id, conversation_id)))

    def assemble(
        self,
        message: str | BaseMessage | Sequence[BaseMessage],
        *,
        user_id: str,
        conversation_id: str,
        tools: Sequence[Any] = (),
        response_format: object = None,
        settings: ContextSettings | Mapping[str, Any] | None = None,
    ) -> AssembledContext:
        """The prompt for the current turn, within its budget, with its report. Stores nothing that was said.

        Args:
            message: the user's message as a string or a `HumanMessage`, or the turn so far: a list that goes on
                with the AI messages and tool results of an agent's loop.
            user_id: whose conversation it is.
            conversation_id: which one; one that does not exist yet has no history.
            tools: what will be bound to the model; counted as it is sent.
            response_format: a schema that the model must answer in; counted as it is sent.
            settings: overrides for this call.

        Raises:
            BudgetTooSmallError: what must be sent does not fit; the message lists what it needs.
            EmptyMessageError: there is nothing to answer.
            InvalidSettingsError: an override outside its range.
            MissingScopeError: no user or no conversation.
            SystemPromptTooLargeError: the system prompt takes more than its share of the model's window.
            UnsupportedContentError: `message` is not a message.
        """
        scope = Scope(user_id, conversation_id)
        return drive(self._assemble(scope, message, tools, response_format, settings))

    async def aassemble(
        self,
        message: str | BaseMessage | Sequence[BaseMessage],
        *,
        user_id: str,
        conversation_id: str,
        tools: Sequence[Any] = (),
        response_format: object = None,
        settings: ContextSettings | Mapping[str, Any] | None = None,
    ) -> AssembledContext:
        """The prompt for the current turn; see `assemble`."""
        scope = Scope(user_id, conversation_id)
        return await adrive(self._assemble(scope, message, tools, response_format, settings))

    def close(self) -> None:
        """Give back what the pipeline opened itself; a store that was passed in stays open."""
        if self._owns_store and self._store is not None and hasattr(self._store, "close"):
            self._store.close()
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _add(self, messages: Sequence[BaseMessage], scope: Scope) -> Flow[list[str]]:
        given = checked(messages, "messages")
        return (
            yield from self._open.using(
                self.store, scope, lambda conversation: log.add(self.store, conversation, given, self._writer_id)
            )
        )

    def _sync(self, messages: Sequence[BaseMessage], scope: Scope, on_removal: OnRemoval) -> Flow[list[str]]:
        if on_removal not in ("archive", "forget"):
            raise InputError(f"on_removal must be 'archive' or 'forget', not {on_removal!r}")
        given = checked(messages, "messages")
        return (
            yield from self._open.using(
                self.store,
                scope,
                lambda conversation: log.sync(self.store, conversation, given, self._writer_id, on_removal),
            )
        )

    def _get(self, scope: Scope) -> Flow[list[BaseMessage]]:
        def body(conversation: Conversation) -> Flow[list[BaseMessage]]:
            yield from log.refresh(self.store, conversation)
            return [entry.record.to_message() for entry in conversation.entries]

        return (yield from self._open.using(self.store, scope, body))

    def _assemble(
        self,
        scope: Scope,
        message: str | BaseMessage | Sequence[BaseMessage],
        tools: Sequence[Any],
        response_format: object,
        overrides: ContextSettings | Mapping[str, Any] | None,
    ) -> Flow[AssembledContext]:
        turn = current_turn(message)
        settings = self.settings.override(overrides)

        def body(conversation: Conversation) -> Flow[AssembledContext]:
            started, calls = time.perf_counter(), self.token_counter.calls
            yield from log.refresh(self.store, conversation)
            draft = yield from self._open_draft(
                conversation, settings, turn, tools, response_format, started=started, calls_before=calls
            )
            for name in STEPS:
                yield from run(name, draft, self.store, self.embeddings)
            assert draft.context is not None  # noqa: S101 - the last step sets it
            return draft.context

        return (yield from self._open.using(self.store, scope, body))

    def _open_draft(
        self,
        conversation: Conversation,
        settings: ContextSettings,
        turn: list[BaseMessage],
        tools: Sequence[Any],
        response_format: object,
        *,
        started: float,
        calls_before: int,
    ) -> Flow[Draft]:
        """Begin a prompt for a conversation that is up to date."""
        draft = Draft(
            conversation=conversation,
            begun_with=conversation.digest,
            target=self._target,
            settings=settings,
            system_prompt=self.system_prompt,
            turn=turn,
            tools=tools,
            response_format=response_format,
            calls_before=calls_before,
        )
        if failure := (yield from read_cut(conversation, self.store)):
            draft.failures.append(failure)
        if self.embeddings is None:
            draft.failures.append(NO_EMBEDDINGS)
        draft.timings_ms["open"] = (time.perf_counter() - started) * 1000
        return draft

    def open_turn(
        self,
        scope: Scope,
        history: Sequence[BaseMessage],
        turn: Sequence[BaseMessage],
        tools: Sequence[Any] = (),
    ) -> Flow[Draft]:
        """Begin a prompt for an agent's state: history is copied into the store, the turn is to be answered.

        System messages at its beginning join the system prompt. Where the copy cannot be written, the draft goes
        on with the given messages and says so.
        """
        current = current_turn(turn)
        instructions, given = split_instructions(checked(history, "messages"))
        system_prompt = "\n\n".join(text for text in (self.system_prompt, *instructions) if text)

        def body(conversation: Conversation) -> Flow[Draft]:
            started, calls = time.perf_counter(), self.token_counter.calls
            failure = None
            try:
                yield from log.sync(self.store, conversation, given, self._writer_id, "archive")
            except InputError:
                raise
            except Exception as error:  # noqa: BLE001 - the state is the truth; the copy is tried again
                failure = f"history not copied to the store: {type(error).__name__}: {error}"
                conversation = log.detached(scope, self.token_counter, given)
            draft = yield from self._open_draft(
                conversation, self.settings, current, tools, None, started=started, calls_before=calls
            )
            draft.system_prompt = system_prompt
            if failure is not None:
                draft.failures.append(failure)
            return draft

        return (yield from self._open.using(self.store, scope, body))

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
            return (yield from run(name, draft, self.store, self.embeddings))

        return (yield from self._open.using(self.store, draft.conversation.scope, body))
