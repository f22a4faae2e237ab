"""A pipeline that learns about its users: in the background, a few messages at a time, by rules or with a model."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore

from langchain_ctxbudget.background import BackgroundWorker, Cancelled
from langchain_ctxbudget.core.estimate import estimate_tokens
from langchain_ctxbudget.errors import BlockedLoopError, ExtractionError, InputError, InvalidSettingsError
from langchain_ctxbudget.flow import Flow, T, batch, drive, running_loop
from langchain_ctxbudget.history import log
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.knowledge import known, learning, rules
from langchain_ctxbudget.knowledge import repositories as repos
from langchain_ctxbudget.knowledge.embedding import embed_topics
from langchain_ctxbudget.knowledge.extraction import ChatModelExtractor, Known
from langchain_ctxbudget.knowledge.learned import Learned
from langchain_ctxbudget.knowledge.presence import Prediction
from langchain_ctxbudget.knowledge.records import PhraseRecord
from langchain_ctxbudget.knowledge.taking import Work, take
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores import saved_settings
from langchain_ctxbudget.stores.records import Scope

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel


CLOSING_SECONDS = 5.0
"""The longest that closing waits for a job that has begun."""


class Owner(Protocol):
    """Who has the conversations open."""

    settings: ContextSettings

    @property
    def store(self) -> BaseStore:
        """Where they are kept."""

    @property
    def embeddings(self) -> Embeddings | None:
        """What texts are compared with."""

    def using(self, scope: Scope, body: Callable[[Conversation], Flow[T]]) -> Flow[T]:
        """Run a flow with a conversation's working set, alone."""


class Learning:
    """One thread in which conversations are learned from, one at a time."""

    def __init__(
        self, owner: Owner, model: BaseChatModel | None = None, clock: Callable[[], datetime] | None = None
    ) -> None:
        """Set up; the thread begins with the first conversation that has enough to learn from.

        Args:
            owner: who has the conversations open.
            model: any chat model that extracts; None: deterministic rules do.
            clock: what time it is, in UTC where it names no offset; default: the computer's.
        """
        self.clock = _with_offset(clock) if clock else _now
        self._owner = owner
        self._extractor = ChatModelExtractor(model) if model is not None else None
        self._ending: set[Scope] = set()
        self._asking = False
        """Whether a model is being waited for: nothing is written before that is over."""
        self._mutex = threading.Lock()
        self.worker: BackgroundWorker[Scope | str] = BackgroundWorker(self._run)
        """Keyed by the conversation that is learned from, or by the user whose bundles are compiled."""
        _all.add(self)

    def close(self) -> None:
        """Begin nothing any more; a job that is in the store ends first, as the store may be closed next.

        An event loop is not held up: the job may be waiting for it.
        """
        self.worker.close()
        if not self._asking and running_loop() is None:
            with suppress(BlockedLoopError):  # the job itself closes the pipeline
                self.worker.flush(CLOSING_SECONDS)

    def note(self, conversation: Conversation) -> None:
        """Learn from a conversation in the background once it has enough new messages, or when some have changed.

        Learning brings texts up to date that have expired; where nothing is to be learned yet, that is done by itself.
        """
        settings, new, scope = self._owner.settings, conversation.new_to_learn(), conversation.scope
        if not settings.learn:
            return
        if new is None or new >= settings.learn_every:
            self.worker.submit(scope)
        elif known.is_to_be_renewed(self._owner.store, scope.user_id, self.clock()):
            self.prewarm(scope.user_id)

    def problem(self, conversation: Conversation) -> str:
        """What went wrong when a conversation was learned from last; empty where nothing did."""
        return self.worker.failure_of(conversation.scope) or conversation.learning_problem

    def end_session(self, scope: Scope) -> bool:
        """Learn in the background from everything that is new in a conversation; whether that is going to happen."""
        if not self._owner.settings.learn:
            return False
        with self._mutex:
            self._ending.add(scope)
        return self.worker.submit(scope)

    def prewarm(self, user_id: str) -> None:
        """Have the texts of what is likely to come up compiled in the background."""
        if self._owner.settings.learn:
            self.worker.submit(user_id)

    def warm(self, user_id: str) -> Flow[Prediction]:
        """Predict what is likely to come up, and compile the texts of it."""
        return (yield from learning.warm(self._owner.store, user_id, self.clock(), estimate_tokens))

    def forget(self, scope: Scope, there: Mapping[str, str]) -> Flow[None]:
        """Take out of what is known what comes from messages that a conversation no longer has.

        Args:
            scope: the conversation.
            there: the messages that it has, and a fingerprint of each.
        """
        yield from learning.forget_messages(self._owner.store, scope, there, self.clock(), estimate_tokens)
        if there and self._owner.settings.learn:
            self.worker.submit(scope)

    def _run(self, key: Scope | str, cancelled: Cancelled) -> None:
        if not isinstance(key, str):
            self._learn_all(key, cancelled)
        elif self._settings_of(key).learn:
            drive(self.warm(key))

    def _learn_all(self, scope: Scope, cancelled: Cancelled) -> None:
        """Learn from one conversation until nothing is new; its lock is not held while the model works."""
        with self._mutex:
            ends = scope in self._ending
            self._ending.discard(scope)
        store = self._owner.store
        settings = self._settings_of(scope.user_id)
        at_least = 1 if ends else settings.learn_every

        def find(conversation: Conversation) -> Flow[Work | None]:
            yield from log.refresh(store, conversation)
            # From now on, others must be able to tell that its prompts show nothing yet.
            if conversation.snapshot_unsaved and conversation.entries:
                yield from batch(store, [repos.snapshot_write(scope, conversation.snapshot)])
                conversation.snapshot_unsaved = False
            return (yield from take(store, conversation, at_least=at_least, from_tools=settings.learn_from_tools))

        while settings.learn and not cancelled:
            work = drive(self._owner.using(scope, find))
            if work is None:
                break
            self._learn(work, cancelled)
        if not cancelled and drive(known.read(store, scope.user_id)).topics and self._owner.embeddings:
            drive(embed_topics(store, scope.user_id, self._owner.embeddings))

    def _settings_of(self, user_id: str) -> ContextSettings:
        """The settings with those that a user has saved."""
        [saved] = drive(batch(self._owner.store, [saved_settings.place(user_id, None)]))
        try:
            return self._owner.settings.override(saved_settings.of_item(saved))
        except InvalidSettingsError:  # told of by every prompt
            return self._owner.settings

    def _learn(self, work: Work, cancelled: Cancelled) -> None:
        """Learn from some messages; where the model cannot, the rules do."""
        by_model: Learned | None = None
        problem = ""
        if self._extractor is not None and work.said:
            try:
                work = work.until_said(max(1, self._extractor.fits(work.said)))
                knowledge = drive(known.read(self._owner.store, work.scope.user_id))
                shown = Known(facts=knowledge.facts, topics=knowledge.topics, entities=knowledge.entities)
                self._asking = True
                by_model = drive(self._extractor.extract(work.said, work.before, shown))
            except (ExtractionError, InputError) as error:
                problem = str(error)
            finally:
                self._asking = False
        if self._extractor is not None:
            drive(self._owner.using(work.scope, _noting(problem)))
        if cancelled:
            return

        def extract(phrases: Sequence[PhraseRecord]) -> tuple[Learned, Sequence[PhraseRecord]]:
            if by_model is not None:
                return by_model, phrases
            return rules.learn(work.said, phrases, work.scope.conversation_id)

        drive(learning.learn(self._owner.store, work, extract, self.clock(), estimate_tokens))


def _noting(problem: str) -> Callable[[Conversation], Flow[None]]:
    def body(conversation: Conversation) -> Flow[None]:
        yield from ()
        conversation.learning_problem = f"{problem}; rules have learned instead" if problem else ""

    return body


def _with_offset(clock: Callable[[], datetime]) -> Callable[[], datetime]:
    def now() -> datetime:
        time = clock()
        return time if time.tzinfo else time.replace(tzinfo=UTC)

    return now


def _now() -> datetime:
    return datetime.now(UTC)


_all: WeakSet[Learning] = WeakSet()


@atexit.register
def _close_all() -> None:
    """A thread that is in a database while the interpreter ends could crash it."""
    for one in list(_all):
        one.close()
