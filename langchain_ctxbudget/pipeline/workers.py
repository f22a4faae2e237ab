"""The background work of a workspace: learning, summaries, segments and usage."""

import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_ctxbudget import history, stores
from langchain_ctxbudget.flow import Call, Flow, drive
from langchain_ctxbudget.knowledge import Learning
from langchain_ctxbudget.pipeline.encoding import Encoding
from langchain_ctxbudget.pipeline.sweeping import LAST_SWEEP, Sweeping
from langchain_ctxbudget.pipeline.usage import Bookkeeping, Prices
from langchain_ctxbudget.retrieval import search
from langchain_ctxbudget.tokens import ChatModel
from langchain_ctxbudget.worker import PAUSE_SECONDS, Cancelled, Worker

if TYPE_CHECKING:
    from langchain_ctxbudget.pipeline.workspace import Workspace

BusyWorkers: TypeAlias = list[Worker[Any]]


class Workers:
    """Everything that works in the background for the conversations of a workspace."""

    def __init__(
        self, workspace: "Workspace", summary_model: "ChatModel | None", prices: Prices | None
    ) -> None:
        """Sets up; each thread begins with its first job."""
        self.learning = Learning(workspace, summary_model)
        self.summarizing: history.Summarizing | None = None
        if summary_model is not None:
            self.summarizing = history.Summarizing(summary_model, workspace)
            self.learning.read_with(self.summarizing)
        self.sealing = Sealing(workspace)
        self.encoding = Encoding(workspace)
        self.sweeping = Sweeping(workspace)
        self.bookkeeping = Bookkeeping(lambda: workspace.store, workspace.clock, prices)

    def rest(self) -> None:
        """Puts off what can wait, because somebody waits for something else."""
        self.learning.worker.rest()
        self.sealing.of_others.rest()
        self.encoding.worker.rest()
        self.sweeping.worker.rest()

    def busy(self) -> BusyWorkers:
        """Returns the workers to wait for; what is not booked yet is being booked."""
        workers: BusyWorkers = [
            self.learning.worker,
            self.encoding.worker,  # what it has encoded is sealed
            self.sealing.of_prompts,
            self.sealing.of_others,
            self.sweeping.worker,
        ]
        if self.summarizing:
            workers.append(self.summarizing.worker)
        workers.append(self.bookkeeping.finish())
        return workers

    def close(self) -> None:
        """Writes everything that is pending, and ends all work."""
        self.encoding.worker.close()
        self.sweeping.worker.close()
        self.sealing.of_prompts.close()
        self.sealing.of_others.close()
        self.learning.close()
        if self.summarizing:
            self.summarizing.worker.close()
        self.bookkeeping.close()  # last, as models' calls are booked until then

    def problems_of(self, scope: stores.Scope) -> list[str]:
        """Returns what failed for a conversation in the background, learning aside."""
        problems: dict[str, str | None] = {}
        if self.summarizing:
            problems["summaries"] = self.summarizing.worker.failure_of(scope)
        problems["encoder"] = self.encoding.worker.failure_of(scope)
        problems["usage not written"] = self.bookkeeping.worker.failure_of(scope.user_id)
        problems["old messages not erased"] = self.sweeping.worker.failure_of(LAST_SWEEP)
        problems["segments of older messages not written, or read ahead"] = (
            self.sealing.of_prompts.failure_of(scope)
        )
        problems["segments for prompts of other conversations not written"] = (
            self.sealing.of_others.failure_of(scope)
        )
        return [f"{what}: {problem}" for what, problem in problems.items() if problem]


def flushed(workers: Sequence[Worker[Any]], timeout_seconds: float | None) -> Flow[bool]:
    """Waits until workers are idle; returns False where that took too long."""
    until = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    is_done = True
    for worker in workers:
        seconds_left = None if until is None else max(0.0, until - time.monotonic())
        is_idle = yield Call(
            partial(worker.flush, seconds_left), partial(worker.aflush, seconds_left)
        )
        is_done = is_done and is_idle
    return is_done


class Sealing:
    """Stores in segments what is derived from older messages, and reads conversations ahead."""

    def __init__(self, workspace: "Workspace") -> None:
        self._workspace = workspace
        self._words_ahead: dict[stores.Scope, str] = {}
        """Words that are likely to come up, by the conversations that wait to be read ahead."""
        self.of_prompts: Worker[stores.Scope] = Worker(self._seal)
        self.of_others: Worker[stores.Scope] = Worker(self._seal_other, pause_seconds=PAUSE_SECONDS)
        """Stores conversations that were read for prompts of others."""

    def note(self, conversation: history.OpenConversation) -> None:
        """Has segments of a conversation stored, if any are lacking."""
        if not conversation.scope.is_kept or self._is_in_memory():
            return
        if next(history.segments.lacking(conversation), None):
            self.of_prompts.submit(conversation.scope)

    def note_other(self, scope: stores.Scope) -> None:
        """Has a conversation stored in segments that a prompt of another one has read."""
        if not self._is_in_memory():
            self.of_others.rest()  # the prompt is not made yet
            self.of_others.submit(scope)

    def read_ahead(self, scope: stores.Scope, words: str) -> None:
        """Has a conversation opened and ranked for some words, so its next prompt embeds little."""
        self._words_ahead[scope] = words
        self.of_prompts.submit(scope)

    def _is_in_memory(self) -> bool:
        """Returns whether the store ends with the process: then nothing is sealed."""
        return isinstance(self._workspace.store, stores.PrivateStore)

    def _seal(self, scope: stores.Scope, cancelled: Cancelled) -> None:
        words = self._words_ahead.pop(scope, None)
        if words is not None:
            drive(self._workspace.recall(scope, partial(self._rank, words)))
        while not (cancelled or self._is_in_memory()):
            sealing = partial(history.segments.seal, self._workspace.store)
            if not drive(self._workspace.recall(scope, sealing)):
                break

    def _seal_other(self, scope: stores.Scope, cancelled: Cancelled) -> None:
        workspace = self._workspace
        open_conversations = workspace.open_conversations

        def step() -> Flow[bool]:
            opened = open_conversations.find(scope)
            return (yield from workspace.libraries.seal(workspace.store, scope, opened))

        while not cancelled and drive(open_conversations.alone(scope, step())):
            self.of_others.wait_for_pause()

    def _rank(self, words: str, conversation: history.OpenConversation) -> Flow[None]:
        workspace = self._workspace
        scope = conversation.scope
        sources = workspace.sources(
            scope.user_id,
            workspace.settings.sources if words else (),
            without_conversation=scope.conversation_id,
        )
        yield from search(sources, words, 0, conversation.seen_with(workspace.counter))
