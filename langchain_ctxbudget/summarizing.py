"""A pipeline's summary model at work: in the background, or on a turn that waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from langgraph.store.base import BaseStore

from langchain_ctxbudget.background import BackgroundWorker, Cancelled
from langchain_ctxbudget.core.tokens import TokenCounter
from langchain_ctxbudget.draft import Draft
from langchain_ctxbudget.errors import SummaryError
from langchain_ctxbudget.flow import Flow, T, drive
from langchain_ctxbudget.history import log, summaries
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.history.summarizer import ChatModelSummarizer
from langchain_ctxbudget.stores.records import Scope

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

MOST_FAILURES = 2
"""After so many in a row, a run stops: the model is not to be had; a later one tries again."""


class Owner(Protocol):
    """Who has the conversations open."""

    @property
    def store(self) -> BaseStore:
        """Where they are kept."""

    def using(self, scope: Scope, body: Callable[[Conversation], Flow[T]]) -> Flow[T]:
        """Run a flow with a conversation's working set, alone."""


class Summarizing:
    """One summary model, and one thread in which it works."""

    def __init__(self, model: BaseChatModel, owner: Owner, clock: Callable[[], datetime] | None = None) -> None:
        """Set up; the thread begins with the first conversation that needs it.

        Args:
            model: any chat model.
            owner: who has the conversations open.
            clock: what time it is; default: UTC.
        """
        self.model, self.clock = model, clock or _now
        self.summarizer = ChatModelSummarizer(model)
        self._owner = owner
        self.worker: BackgroundWorker[Scope] = BackgroundWorker(self._run)

    def submit(self, draft: Draft) -> None:
        """Have the spans written about that came behind the cut, or are about to."""
        conversation, made = draft.conversation, draft.conversation.made
        new = draft.history.step or made.until > made.asked_until
        if new and draft.settings.summarize_in_background and summaries.wanted(conversation):
            if self.worker.submit(conversation.scope):
                made.asked_until = made.until
            else:
                draft.failures.append("summaries: too many conversations wait for the summary model")

    def finish(self, conversations: Iterable[Conversation]) -> None:
        """Have the model write also about what is behind a cut, but no whole segment yet.

        Args:
            conversations: all that are open.
        """
        for conversation in conversations:
            cut = max((cut.position for cut in list(conversation.cuts.values())), default=0)
            if conversation.made.until and cut > conversation.made.finish:
                conversation.made.finish = cut
                self.worker.submit(conversation.scope)

    def _run(self, scope: Scope, cancelled: Cancelled) -> None:
        """Write about span after span of one conversation; its lock is not held while the model works."""
        tried: set[str] = set()
        failures = 0

        def find(conversation: Conversation) -> Flow[tuple[summaries.Job | None, TokenCounter]]:
            yield from log.refresh(self._owner.store, conversation)
            job = yield from summaries.next_job(self._owner.store, conversation, tried)
            return job, conversation.counter

        while failures < MOST_FAILURES and not cancelled:
            job, counter = drive(self._owner.using(scope, find))
            if job is None:
                return
            tried.add(job.key)
            failures = 0 if self._write(scope, job, counter, cancelled) else failures + 1

    def _write(self, scope: Scope, job: summaries.Job, counter: TokenCounter, cancelled: Cancelled) -> bool:
        """Write about one span; whether the model did."""
        problem, digest = "", None
        try:
            digest = drive(self.summarizer.summarize(job.request, counter))
        except SummaryError as error:
            problem = str(error)

        def take_in(conversation: Conversation) -> Flow[None]:
            if digest is None:
                conversation.made.failed(job.key, problem)
            elif not cancelled:
                yield from log.refresh(self._owner.store, conversation)
                yield from summaries.apply(self._owner.store, conversation, job, digest, self.clock())

        drive(self._owner.using(scope, take_in))
        return digest is not None

    def write_now(self, store: BaseStore, conversation: Conversation) -> Flow[None]:
        """Write about everything that is wanted, while whoever holds the conversation waits."""
        tried: set[str] = set()
        failures = 0
        while failures < MOST_FAILURES:
            job = yield from summaries.next_job(store, conversation, tried)
            if job is None:
                return
            tried.add(job.key)
            try:
                digest = yield from self.summarizer.summarize(job.request, conversation.counter)
            except SummaryError as error:
                conversation.made.failed(job.key, str(error))
                failures += 1
                continue
            failures = 0
            yield from summaries.apply(store, conversation, job, digest, self.clock())


def _now() -> datetime:
    return datetime.now(UTC)
