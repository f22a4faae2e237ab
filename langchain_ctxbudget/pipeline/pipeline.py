"""`ContextPipeline`: the plain object over everything else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self, cast

from langchain_core.documents import BaseDocumentCompressor
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import Runnable
from langgraph.store.base import BaseStore

from langchain_ctxbudget.errors import InputError, InvalidSettingsError
from langchain_ctxbudget.flow import Flow, twins
from langchain_ctxbudget.messages.messages import model_of
from langchain_ctxbudget.pipeline.bookkeeping import Prices
from langchain_ctxbudget.pipeline.conversations import ConversationMethods
from langchain_ctxbudget.pipeline.engine import Engine
from langchain_ctxbudget.pipeline.runnable import context_runnable
from langchain_ctxbudget.pipeline.snapshot_book import SnapshotBook
from langchain_ctxbudget.pipeline.usage_book import UsageBook
from langchain_ctxbudget.pipeline.user_knowledge import UserKnowledge
from langchain_ctxbudget.pipeline.workspace import Workspace
from langchain_ctxbudget.prompt.plan import AssembledContext
from langchain_ctxbudget.prompt.request import Request
from langchain_ctxbudget.report.report import ContextReport
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores.clock import with_offset
from langchain_ctxbudget.stores.records import Scope
from langchain_ctxbudget.tokens.calibration import is_of_one_call
from langchain_ctxbudget.tokens.counters import TokenCounter
from langchain_ctxbudget.tokens.target import ModelTarget


class ContextPipeline(ConversationMethods):
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
        summary_model: BaseChatModel | None = None,
        reranker: BaseDocumentCompressor | None = None,
        writer_id: str | None = None,
        clock: Callable[[], datetime] | None = None,
        prices: Prices | None = None,
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
            summary_model: any chat model, to write summaries in the background; until it has, and wherever it fails,
                sentences of the conversation itself stand instead. Default: those alone.
            reranker: any LangChain document compressor, to put the best of what was found in another order; it runs
                for every turn that retrieves. Default: none.
            writer_id: the name under which this pipeline appends to conversations that others append to as
                well; unique among them. Default: a random one.
            clock: tells what time it is: of summaries, facts and snapshots, and in which month usage counts; in
                UTC where it names no offset. Default: the computer's.
            prices: of models, by name, in US dollars per million tokens, over those that come with the package: for
                instance `{"my-model": {"input": 2.5, "output": 10}}`.

        Raises:
            InvalidSettingsError: a setting outside its range, or an argument of another kind.
        """
        if not isinstance(system_prompt, str):
            raise InvalidSettingsError(f"system_prompt must be a string, not {type(system_prompt).__name__}")
        if summary_model is not None and not callable(getattr(summary_model, "invoke", None)):
            raise InvalidSettingsError(f"summary_model must be a chat model, not {type(summary_model).__name__}")
        for name, value, kind in (
            ("store", store, BaseStore),
            ("embeddings", embeddings, Embeddings),
            ("reranker", reranker, BaseDocumentCompressor),
        ):
            if value is not None and not isinstance(value, kind):
                raise InvalidSettingsError(f"{name} must be a {kind.__name__}, not {type(value).__name__}")
        own, target = ContextSettings().override(settings), ModelTarget(model, token_counter)
        self.engine = Engine(
            settings=own,
            system_prompt=system_prompt,
            target=target,
            reranker=reranker,
            workspace=Workspace(
                settings=own,
                counter=target.tokenizer,
                store=store,
                embeddings=embeddings,
                writer_id=writer_id,
                summary_model=summary_model,
                clock=with_offset(clock) if clock is not None else None,
                prices=prices,
            ),
        )

    @property
    def knowledge(self) -> UserKnowledge:
        """What is known about users: to list, to change by hand, and to ask where it comes from."""
        return UserKnowledge(self.engine)

    @property
    def usage(self) -> UsageBook:
        """What conversations and users have used, and what is left of their limits."""
        return UsageBook(self.engine)

    @property
    def snapshots(self) -> SnapshotBook:
        """The reports of earlier prompts, where they are kept."""
        return SnapshotBook(self.engine)

    @property
    def settings(self) -> ContextSettings:
        """The pipeline's own settings; what a user saved and what a call says lie over them."""
        return self.engine.settings

    @property
    def token_counter(self) -> TokenCounter:
        """How tokens are counted, corrected by the usage that was observed."""
        return self.engine.target.counter

    @property
    def store(self) -> BaseStore:
        """Where conversations are kept."""
        return self.engine.store

    @property
    def embeddings(self) -> Embeddings | None:
        """What retrieval compares texts with; None where none were given and none are installed."""
        return self.engine.embeddings

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
        """The prompt for the current turn, within its budget, with its report. Stores nothing that was said.

        Args:
            message: the user's message as a string or a `HumanMessage`, or the turn so far: a list that goes on
                with the AI messages and tool results of an agent's loop.
            user_id: whose conversation it is.
            conversation_id: which one; one that does not exist yet has no history.
            tools: what will be bound to the model; counted as it is sent.
            response_format: a schema that the model must answer in; counted as it is sent.
            settings: overrides for this call; below them lie the persona's saved settings, the user's, the pipeline's.
            persona_id: whose saved settings apply on top of the user's.
            device_id: where the user is: of topics and people that are as likely to be meant, those that were predicted
                from what is open there come first (see `knowledge.heartbeat`).

        Raises:
            BudgetTooSmallError: what must be sent does not fit; the message lists what it needs.
            EmptyMessageError: there is nothing to answer.
            InvalidSettingsError: an override outside its range.
            MissingScopeError: no user or no conversation.
            SystemPromptTooLargeError: the system prompt takes more than its share of the model's window.
            UnsupportedContentError: `message` is not a message.
        """
        request = Request(
            tools=tools,
            response_format=response_format,
            settings=settings,
            persona_id=persona_id,
            device_id=device_id,
        )
        return self.engine.assemble(Scope(user_id, conversation_id), message, request)

    assemble, aassemble = twins(_assemble)

    def as_runnable(
        self,
        *,
        default_user: str | None = None,
        tools: Sequence[Any] = (),
        response_format: object = None,
        runtime_store: bool = True,
    ) -> Runnable[Any, list[BaseMessage]]:
        """The pipeline as a step of a chain: what is to be answered comes in, the messages to send come out.

        What comes in is the current turn, as `assemble` takes it or as a prompt template gives it (system messages in
        front of it join the system prompt); nothing is stored. Or it is an agent's state, `{"messages": [...]}`, with
        `ctxbudget_turn` where the state has it: then the stored conversation is first made equal to the messages before
        the current turn. Whose conversation it is says the run's config (`thread_id` or `session_id`, and `user_id`) or
        its context; without a thread it is a conversation of its own, in memory only.

        Args:
            default_user: the user where the run names none; without one that is an error.
            tools: what the model is bound to; counted as it is sent.
            response_format: a schema that the model must answer in; counted as it is sent.
            runtime_store: whether conversations are kept in the store of the LangGraph run that the step is part of,
                where there is one, and not in the pipeline's.

        Raises:
            InputError: in a call: a mapping without messages, or a turn with a history in front of it.
            MissingScopeError: in a call: the run names no user.

        Example:
            >>> step = ContextPipeline(system_prompt="You are helpful.").as_runnable(default_user="ada")
            >>> [message.type for message in step.invoke("Hello", {"configurable": {"thread_id": "c1"}})]
            ['system', 'human']
        """
        return context_runnable(
            self.engine,
            default_user,
            tools=tools,
            response_format=response_format,
            runtime_store=runtime_store,
        )

    def with_model(
        self, model: BaseChatModel | str | None, *, token_counter: TokenCounter | None = None
    ) -> ContextPipeline:
        """The same conversations for another model: its tokenizer, its window, what it reserves for the answer.

        Both pipelines go on side by side on one store. What is in memory of a conversation is counted again, not read
        again. The store still belongs to the pipeline that opened it.

        Args:
            model: the other model or its name.
            token_counter: how tokens are counted; default: the model's.

        Raises:
            InvalidSettingsError: one of them is something else.
        """
        twin = ContextPipeline.__new__(type(self))
        twin.engine = self.engine.with_model(model, token_counter)
        return twin

    def observe_usage(
        self,
        usage_metadata: Mapping[str, Any] | AIMessage | None,
        *,
        report: ContextReport | None = None,
        model: str | None = None,
    ) -> float:
        """Correct the counts by what the provider measured for a prompt of this pipeline, and count what it used.

        From the last 16 prompts come a factor for every count, and what the provider adds to every request, so that
        what is measured again and again is not counted below what was measured; one accident changes nothing. Where the
        tokenizer is known exactly, counts are only ever raised. A correction never refuses a prompt: what must be sent
        and fits without it is sent, and the report says so.

        Args:
            usage_metadata: of the model's answer: its `input_tokens` correct the counts, all of it counts as used. Or
                the answer itself: then usage that sums several calls (of a search that the provider runs, say) corrects
                nothing. None changes nothing.
            report: of the prompt that was answered; default: the last one that this pipeline assembled.
            model: which model answered, for its price, and because the usage of another one corrects nothing; default:
                what the answer names, else the pipeline's.

        Returns:
            what counts are multiplied by from now on.

        Raises:
            InputError: there is no `input_tokens` in it, or nothing was assembled yet.

        Example:
            >>> from langchain_ctxbudget import EstimatingCounter
            >>> pipeline = ContextPipeline(token_counter=EstimatingCounter())
            >>> context = pipeline.assemble("Tell me more. " * 100, user_id="ada", conversation_id="c1")
            >>> factor = pipeline.observe_usage({"input_tokens": context.report.total_tokens * 2})
            >>> factor >= 2
            True
        """
        comparable = True
        if isinstance(usage_metadata, AIMessage):
            model, comparable = model or model_of(usage_metadata), is_of_one_call(usage_metadata)
            usage_metadata = cast("Mapping[str, Any] | None", usage_metadata.usage_metadata)
        if usage_metadata is None:
            return self.engine.target.factor
        if not isinstance(usage_metadata, Mapping) or "input_tokens" not in usage_metadata:
            raise InputError(f"usage_metadata must be a mapping with input_tokens, not {usage_metadata!r}")
        if report is not None and not isinstance(report, ContextReport):
            raise InputError(f"report must be the ContextReport of a prompt, not {type(report).__name__}")
        answered = report or self.engine.last.report
        if answered is None:
            raise InputError("Nothing was assembled yet: pass the report of the prompt that this usage is for")
        return self.engine.observe(usage_metadata, answered, model, comparable=comparable)

    def what_if(self, budgets: Sequence[int]) -> list[ContextReport]:
        """What other budgets would have given the last prompt that this pipeline assembled; see `reallocate`.

        Args:
            budgets: of the whole request, in tokens.

        Raises:
            BudgetTooSmallError: what must be sent does not fit into one of them.
            InputError: nothing was assembled yet.
        """
        if isinstance(budgets, str | bytes) or not isinstance(budgets, Sequence):
            raise InputError(f"budgets must be a list of whole numbers, not {budgets!r}")
        if self.engine.last.report is None:
            raise InputError("Nothing was assembled yet, so there are no candidates")
        return [self.engine.last.report.reallocate(budget) for budget in budgets]

    def flush(self, timeout_seconds: float | None = None) -> bool:
        """Have everything written that is under way in the background, and wait for it; for scripts and tests.

        Summaries, what is learned about users, usage and snapshots.

        Args:
            timeout_seconds: how long to wait at most, in seconds; None: as long as it takes.

        Returns:
            whether it is done in that time; what it failed at is in the next report's `failures`.
        """
        until = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        return all(worker.flush(_left(until)) for worker in self.engine.finish())

    async def aflush(self, timeout_seconds: float | None = None) -> bool:
        """Have everything written that is under way in the background, and wait for it; see `flush`."""
        until = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        return all([await worker.aflush(_left(until)) for worker in self.engine.finish()])

    def close(self) -> None:
        """Give back what the pipeline opened itself and stop its background work; a store passed in stays open."""
        self.engine.close()

    def __enter__(self) -> Self:
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _left(until: float | None) -> float | None:
    """The seconds that are left; None: as many as it takes."""
    return None if until is None else max(0.0, until - time.monotonic())
