"""A pipeline that learns about its users: in the background, a few messages at a time, by rules or with a model.

Progress is kept with digests of everything before: where one does not fit, messages were edited or removed, and reading
goes on from the newest that fits. What came from messages that are no longer there is then dropped.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore

from langchain_ctxbudget.background import BackgroundWorker, Cancelled, beginning_anew, new_mutex
from langchain_ctxbudget.errors import BlockedLoopError, ExtractionError, InputError, InvalidSettingsError
from langchain_ctxbudget.flow import Flow, T, batch, drive, running_loop
from langchain_ctxbudget.history import OpenConversation, editing
from langchain_ctxbudget.knowledge import known, learning, records, rules
from langchain_ctxbudget.knowledge.extraction import ChatModelExtractor
from langchain_ctxbudget.knowledge.learning import Work, fits
from langchain_ctxbudget.knowledge.presence import Prediction
from langchain_ctxbudget.knowledge.records import Learned, PhraseRecord, ProgressRecord
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores import Scope, settings_in, settings_place, utc_now
from langchain_ctxbudget.tokens import TokenCounter

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

CLOSING_SECONDS = 5.0
"""The longest that closing waits for a job that has begun."""


MOST_MESSAGES = 200
"""The most that are read at once."""


class Owner(Protocol):
    """The engine that has the conversations open."""

    settings: ContextSettings
    counter: TokenCounter

    @property
    def store(self) -> BaseStore:
        """The store of the conversations."""

    @property
    def embeddings(self) -> Embeddings | None:
        """The embeddings of topics."""

    def using(self, scope: Scope, body: Callable[[OpenConversation], Flow[T]]) -> Flow[T]:
        """Run a flow with a conversation's working set, alone."""


def take(
    store: BaseStore, conversation: OpenConversation, counter: TokenCounter, *, at_least: int, from_tools: bool = False
) -> Flow[Work | None]:
    """Returns the next messages to learn from; None where there are too few new ones."""
    epoch = known.epoch_of(store, conversation.scope.user_id)
    [item] = yield from batch(store, [records.progress_place(conversation.scope)])
    progress = records.found(ProgressRecord, item) or ProgressRecord()
    entries = conversation.entries
    last = next((mark for mark in reversed(progress.marks) if fits(entries, mark)), (0, ""))
    first = last[0]
    changed = first < progress.position
    conversation.learned = last
    new = len(entries) - first
    if not changed and (not new or new < at_least):
        return None
    end = min(len(entries), first + MOST_MESSAGES)
    return Work(
        scope=conversation.scope,
        entries=entries[:end],
        costs=conversation.table.costs(counter).tokens[:end],
        first=first,
        progress=progress,
        there=still_there(conversation) if changed else None,
        epoch=epoch,
        from_tools=from_tools,
    )


def still_there(conversation: OpenConversation) -> dict[str, str]:
    """Returns the messages of a conversation with their fingerprints; archived ones are not among them."""
    return {one.id: one.fingerprint for one in conversation.entries}


class Learning:
    """One thread in which conversations are learned from, one at a time."""

    def __init__(
        self, owner: Owner, model: BaseChatModel | None = None, clock: Callable[[], datetime] | None = None
    ) -> None:
        """Set up; the thread begins with the first conversation that has enough to learn from."""
        self.clock = clock or utc_now
        self._owner = owner
        self._extractor = ChatModelExtractor(model) if model is not None else None
        self._ending: set[Scope] = set()
        self._outdated: set[str] = set()
        """Users whose topics have vectors of other embeddings."""
        self._asking = False
        """True while a model works: nothing is written before that is over."""
        self._mutex = new_mutex()
        self.worker: BackgroundWorker[Scope | str] = BackgroundWorker(self._run)
        """Keyed by the conversation that is learned from, or by the user whose bundles are compiled."""
        _all.add(beginning_anew(self))

    def begin_anew(self) -> None:
        """Leave to the parent what it was going to learn."""
        self._ending, self._outdated, self._asking = set(), set(), False

    def close(self) -> None:
        """Begin nothing any more; a job that is in the store ends first, as the store may be closed next.

        An event loop is not held up: the job may be waiting for it.
        """
        self.worker.close()
        if not self._asking and running_loop() is None:
            with suppress(BlockedLoopError):  # the job itself closes the pipeline
                self.worker.flush(CLOSING_SECONDS)

    def note(self, conversation: OpenConversation) -> None:
        """Learn from a conversation in the background once it has enough new messages, or when some have changed.

        Learning brings texts up to date that have expired; where nothing is to be learned yet, that is done by itself.
        """
        settings, new, scope = self._owner.settings, conversation.new_to_learn(), conversation.scope
        if not settings.learn:
            return
        if new is None or new >= settings.learn_every:
            self.worker.submit(scope)
        elif known.is_to_be_renewed(self._owner.store, scope.user_id, self.clock()):
            self.worker.submit(scope.user_id)

    def problem(self, conversation: OpenConversation) -> str:
        """Returns what failed when a conversation was learned from last; empty where nothing did."""
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

    def renew_vectors(self, user_id: str, model: str) -> None:
        """Have the vectors of a user's topics made by the embeddings of this name, if any, in the background."""
        if model and known.lacks_vectors(self._owner.store, user_id, model):
            with self._mutex:
                self._outdated.add(user_id)
            self.worker.submit(user_id)

    def warm(self, user_id: str) -> Flow[Prediction]:
        """Predict what is likely to come up, and compile the texts of it."""
        return learning.warm(self._owner.store, user_id, self.clock())

    def forget(self, scope: Scope, there: Mapping[str, str]) -> Flow[None]:
        """Take out of what is known what comes from messages that a conversation no longer has."""
        yield from learning.forget_messages(self._owner.store, scope, there, self.clock())
        if there and self._owner.settings.learn:
            self.worker.submit(scope)

    def _run(self, key: Scope | str, cancelled: Cancelled) -> None:
        if not isinstance(key, str):
            self._learn_all(key, cancelled)
            return
        with self._mutex:
            outdated = key in self._outdated
            self._outdated.discard(key)
        if outdated and self._owner.embeddings:
            drive(learning.embed_topics(self._owner.store, key, self._owner.embeddings, anew=True))
        if self._settings_of(key).learn:
            drive(self.warm(key))

    def _learn_all(self, scope: Scope, cancelled: Cancelled) -> None:
        with self._mutex:
            ends = scope in self._ending
            self._ending.discard(scope)
        owner, settings = self._owner, self._settings_of(scope.user_id)
        at_least = 1 if ends else settings.learn_every

        def find(conversation: OpenConversation) -> Flow[Work | None]:
            yield from editing.refresh(owner.store, conversation)
            # From now on, others must be able to tell that its prompts show nothing yet.
            if conversation.snapshot_unsaved and conversation.entries:
                yield from batch(owner.store, [records.written(records.snapshot_place(scope), conversation.snapshot)])
                conversation.snapshot_unsaved = False
            from_tools = settings.learn_from_tools
            return (yield from take(owner.store, conversation, owner.counter, at_least=at_least, from_tools=from_tools))

        while settings.learn and not cancelled:
            work = drive(owner.using(scope, find))
            if work is None:
                break
            self._learn(work, cancelled)
        if not cancelled and drive(known.read(owner.store, scope.user_id)).topics and owner.embeddings:
            drive(learning.embed_topics(owner.store, scope.user_id, owner.embeddings))

    def _settings_of(self, user_id: str) -> ContextSettings:
        [saved] = drive(batch(self._owner.store, [settings_place(user_id, None)]))
        try:
            return self._owner.settings.override(settings_in(saved))
        except InvalidSettingsError:  # told of by every prompt
            return self._owner.settings

    def _learn(self, work: Work, cancelled: Cancelled) -> None:
        by_model: Learned | None = None
        problem = ""
        if self._extractor is not None and work.said:
            try:
                work = work.until_said(max(1, self._extractor.fits(work.said)))
                knowledge = drive(known.read(self._owner.store, work.scope.user_id))
                self._asking = True
                by_model = drive(self._extractor.extract(work.said, work.before, knowledge))
            except (ExtractionError, InputError) as error:
                problem = f"{error}; rules have learned instead"
            finally:
                self._asking = False
        if self._extractor is not None:

            def note(conversation: OpenConversation) -> Flow[None]:
                yield from ()
                conversation.learning_problem = problem

            drive(self._owner.using(work.scope, note))
        if cancelled:
            return

        def extract(phrases: Sequence[PhraseRecord]) -> tuple[Learned, Sequence[PhraseRecord]]:
            if by_model is not None:
                return by_model, phrases
            return rules.learn(work.said, phrases, work.scope.conversation_id)

        drive(learning.learn(self._owner.store, work, extract, self.clock()))


_all: WeakSet[Learning] = WeakSet()


@atexit.register
def _close_all() -> None:
    for one in list(_all):
        one.close()
