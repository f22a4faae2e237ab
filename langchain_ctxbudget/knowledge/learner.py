"""A pipeline that learns about its users: in the background, a few messages at a time, by rules or with a model.

Progress is kept with digests of everything before: where one does not fit, messages were edited or removed, and reading
goes on from the newest that fits. What came from messages that are no longer there is then dropped.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

import numpy as np
from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore

from langchain_ctxbudget.background import BackgroundWorker, Cancelled, beginning_anew, new_mutex
from langchain_ctxbudget.errors import BlockedLoopError, ExtractionError, InputError, InvalidSettingsError
from langchain_ctxbudget.flow import Flow, T, batch, drive, embed, locked, running_loop
from langchain_ctxbudget.history import Beginning, OpenConversation, editing
from langchain_ctxbudget.knowledge import known, learning, presence, records
from langchain_ctxbudget.knowledge.learning import Work
from langchain_ctxbudget.knowledge.presence import Prediction
from langchain_ctxbudget.knowledge.records import Learned, ProgressRecord
from langchain_ctxbudget.search import units
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores import Scope, bulk, embeddings_name, settings_in, settings_place, utc_now
from langchain_ctxbudget.tokens import TokenCounter

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from langchain_ctxbudget.knowledge.extraction import ChatModelExtractor

CLOSING_SECONDS = 5.0
"""The longest that closing waits for a job that has begun."""
PAUSE_SECONDS = 0.25
"""Nothing is learned before so much time without a prompt."""
MOST_MESSAGES = 50
"""The most that are read at once; a turn that comes up meanwhile waits for no more."""


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

    def recall(self, scope: Scope, body: Callable[[OpenConversation], Flow[T]]) -> Flow[T]:
        """Run a flow with a conversation that is up to date, alone."""


def take(
    store: BaseStore, conversation: OpenConversation, counter: TokenCounter, *, at_least: int
) -> Flow[Work | None]:
    """Returns the next messages to learn from; None where there are too few new ones."""
    epoch = known.epoch_of(store, conversation.scope.user_id)
    [item] = yield from batch(store, [records.progress_place(conversation.scope)])
    progress = records.found(ProgressRecord, item) or ProgressRecord()
    entries = conversation.entries
    last = next((mark for mark in reversed(progress.marks) if learning.fits(entries, mark)), (0, ""))
    first = last[0]
    changed = first < progress.position
    conversation.learned = last
    new = len(entries) - first
    if not changed and (not new or new < at_least):
        return None
    end = min(len(entries), first + MOST_MESSAGES)
    return Work(
        scope=conversation.scope,
        entries=Beginning(entries, end),
        costs=conversation.table.costs(counter).tokens[:end],
        first=first,
        progress=progress,
        there=still_there(conversation) if changed else None,
        epoch=epoch,
    )


def still_there(conversation: OpenConversation) -> dict[str, str]:
    """Returns the messages of a conversation with their fingerprints; archived ones are not among them."""
    entries = conversation.entries
    return {key: entries.fingerprint(position) for position, key in enumerate(entries.ids)}


def write(store: BaseStore, work: Work, learned: Learned | None, now: datetime) -> Flow[None]:
    """Merges what messages say into what is known of their user; None: rules tell what that is.

    It does nothing where something of the user was erased since they were taken, or somebody else has learned from the
    conversation: they are taken again.
    """
    from langchain_ctxbudget.knowledge import rules  # noqa: PLC0415 - it compiles tables

    user, place = work.scope.user_id, records.progress_place(work.scope)

    def body() -> Flow[None]:
        [item] = yield from batch(store, [place])
        was_read = (records.found(ProgressRecord, item) or ProgressRecord()) != work.progress
        if was_read or known.epoch_of(store, user) != work.epoch:
            return
        before = yield from known.read_all(store, user)
        conversation, phrases = work.scope.conversation_id, before.phrases
        state = before if work.there is None else learning.without(before, conversation, work.there)
        said = learned
        if said is None:
            said, phrases = rules.learn(work.said, state.phrases, conversation)
        after = learning.updated(replace(state, phrases=phrases), work, said, now)
        yield from known.save(store, user, before, learning.compiled(store, user, after, now))
        yield from bulk.write(store, [records.written(place, work.done)])

    yield from locked(known.lock_of(store, user), body())


def embed_topics(store: BaseStore, user_id: str, embeddings: Embeddings) -> Flow[None]:
    """Gives every topic of a user a vector that has none of this model.

    The model works while nobody waits, so what was changed meanwhile is left as it is.
    """
    model, epoch = embeddings_name(embeddings), known.epoch_of(store, user_id)
    knowledge = yield from known.read(store, user_id)
    missing = [". ".join(topic.names) for topic in knowledge.topics if topic.embedding_model != model]
    if not missing:
        return
    rows = yield from embed(embeddings, missing)
    made = dict(zip(missing, map(tuple, units(np.asarray(rows, np.float32)).round(6).tolist()), strict=True))

    def body() -> Flow[None]:
        if known.epoch_of(store, user_id) == epoch:
            before = yield from known.read_all(store, user_id)
            named = ((topic, made.get(". ".join(topic.names))) for topic in before.topics)
            topics = tuple(
                topic.model_copy(update={"embedding": vector, "embedding_model": model}) if vector else topic
                for topic, vector in named
            )
            yield from known.save(store, user_id, before, replace(before, topics=topics))

    yield from locked(known.lock_of(store, user_id), body())


class Learning:
    """One thread in which conversations are learned from, one at a time."""

    def __init__(
        self, owner: Owner, model: BaseChatModel | None = None, clock: Callable[[], datetime] | None = None
    ) -> None:
        """Set up; the thread begins with the first conversation that has enough to learn from."""
        self.clock = clock or utc_now
        self.owner = owner
        self._extractor: ChatModelExtractor | None = None
        if model is not None:
            from langchain_ctxbudget.knowledge.extraction import ChatModelExtractor  # noqa: PLC0415 - not without one

            self._extractor = ChatModelExtractor(model)
        self._mutex = new_mutex()
        self.begin_anew()
        self.worker: BackgroundWorker[Scope | str] = BackgroundWorker(self._run, pause_seconds=PAUSE_SECONDS)
        """Keyed by the conversation that is learned from, or by the user whose bundles are compiled."""
        beginning_anew(self)

    def begin_anew(self) -> None:
        """Leave to the parent what it was going to learn."""
        self._ending: set[Scope] = set()
        """Conversations whose session ends."""
        self._asking = False
        """True while a model works: nothing is written before that is over."""

    def close(self) -> None:
        """Begin nothing any more; a job that is in the store ends first, as the store may be closed next.

        An event loop is not held up: the job may be waiting for it.
        """
        self.worker.close()
        if not self._asking and running_loop() is None:
            with suppress(BlockedLoopError):  # the job itself closes the pipeline
                self.worker.flush(CLOSING_SECONDS)

    def note(self, conversation: OpenConversation) -> None:
        """Learn from a conversation in the background once it has enough new messages, or when some have changed."""
        settings, new = self.owner.settings, conversation.new_to_learn()
        if settings.learn and (new is None or new >= settings.learn_every):
            self.worker.submit(conversation.scope)

    def end_session(self, scope: Scope) -> bool:
        """Learn in the background from everything that is new in a conversation; whether that is going to happen."""
        if not self.owner.settings.learn:
            return False
        with self._mutex:
            self._ending.add(scope)
        return self.worker.submit(scope)

    def prewarm(self, user_id: str) -> None:
        """Have the texts of what is likely to come up compiled in the background."""
        if self.owner.settings.learn:
            self.worker.submit(user_id)

    def warm(self, user_id: str) -> Flow[Prediction]:
        """Predict what is likely to come up on a user's devices, which remember it, and compile the texts of it."""
        store, now = self.owner.store, self.clock()

        def body() -> Flow[Prediction]:
            before = yield from known.read_all(store, user_id)
            devices = yield from presence.devices(store, user_id, now)
            likely = presence.predict(devices, before.topics, before.entities, before.links.values(), now)
            topics, entities = (tuple(name for name, _ in some) for some in (likely.topics, likely.entities))
            yield from known.save(store, user_id, before, learning.compiled(store, user_id, before, now))
            told = {"predicted_topics": topics, "predicted_entities": entities}
            renewed = [(device, device.model_copy(update=told)) for device in devices if device.is_online]
            yield from bulk.write(store, [records.PRESENCE.put(user_id, new) for old, new in renewed if new != old])
            return likely

        return (yield from locked(known.lock_of(store, user_id), body()))

    def forget(self, scope: Scope, there: Mapping[str, str]) -> Flow[None]:
        """Take out of what is known what comes from messages that a conversation no longer has.

        Mentions in it are counted again when it is learned from next.
        """
        store, user, conversation, now = self.owner.store, scope.user_id, scope.conversation_id, self.clock()

        def body() -> Flow[None]:
            known.interrupted(store, user)
            before = yield from known.read_all(store, user)
            if before.is_empty:
                return
            state = learning.without(before, conversation, there)
            lost = learning.changed(before, state)
            gone = {key for key in state.links if key[1] == conversation and (key[0] in lost or not there)}
            links = {key: link for key, link in state.links.items() if key not in gone}
            state = replace(state, links=links)
            state = learning.measured_again(state, lost | {name for name, _ in gone}, now)
            yield from known.save(store, user, before, learning.compiled(store, user, state, now))

        yield from locked(known.lock_of(store, user), body())
        if there and self.owner.settings.learn:
            self.worker.submit(scope)

    # In the thread

    def _run(self, key: Scope | str, cancelled: Cancelled) -> None:
        atexit.register(self.close)  # so that a job that is in the store ends first
        try:
            if isinstance(key, Scope):
                with self._mutex:
                    ends = key in self._ending
                    self._ending.discard(key)
                self._learn_all(key, cancelled, ends=ends)
            elif self._settings_of(key).learn:
                drive(self.warm(key))
        finally:
            atexit.unregister(self.close)

    def _settings_of(self, user_id: str) -> ContextSettings:
        [saved] = drive(batch(self.owner.store, [settings_place(user_id, None)]))
        try:
            return self.owner.settings.override(settings_in(saved))
        except InvalidSettingsError:  # told of by every prompt
            return self.owner.settings

    def _learn_all(self, scope: Scope, cancelled: Cancelled, *, ends: bool) -> None:
        """Learns from a conversation until nothing is new; raises what the model failed with when that is done."""
        owner, settings, problem = self.owner, self._settings_of(scope.user_id), None
        extractor = None if settings.learn == "rules" else self._extractor
        if settings.learn == "model" and extractor is None:
            return
        at_least = 1 if ends else settings.learn_every

        def find(conversation: OpenConversation) -> Flow[Work | None]:
            yield from editing.refresh(owner.store, conversation)
            # From now on, others must be able to tell that its prompts show nothing yet.
            if conversation.snapshot_unsaved and conversation.entries:
                yield from batch(owner.store, [records.written(records.snapshot_place(scope), conversation.snapshot)])
                conversation.snapshot_unsaved = False
            return (yield from take(owner.store, conversation, owner.counter, at_least=at_least))

        while settings.learn and not cancelled and (work := drive(owner.using(scope, find))):
            learned: Learned | None = None
            if extractor is not None and any(one.from_user for one in work.said):
                try:
                    work, learned = self._asked(extractor, work)
                except (ExtractionError, InputError) as error:
                    problem = error
            if not cancelled:
                drive(write(owner.store, work, learned, self.clock()))
            self.worker.wait_for_pause()
        if not cancelled and owner.embeddings and drive(known.read(owner.store, scope.user_id)).topics:
            drive(embed_topics(owner.store, scope.user_id, owner.embeddings))
        if problem:
            raise ExtractionError(f"{problem}; rules have learned instead")

    def _asked(self, extractor: ChatModelExtractor, work: Work) -> tuple[Work, Learned]:
        """Asks the model; returns the messages that it was shown, and what they say."""
        knowledge = drive(known.read(self.owner.store, work.scope.user_id))
        self._asking = True
        try:
            count, learned = drive(extractor.extract(work.said, work.before, knowledge))
        finally:
            self._asking = False
        return work.until_said(count), learned
