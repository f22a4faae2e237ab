"""A pipeline that learns about its users in the background, without or with a model.

A conversation is read a few messages at a time, and progress is written last, so that everything
can be done twice. What is read, and the progress, is in `work.py`; what knowledge becomes of it, in
`merging.py`.

Where the model fails, progress stays where it is. The model is asked about the same messages again
after a wait that grows with every failure, and reads everything since, in order. Rules learn from
them meanwhile; their facts go when the model has read. Only where its replies cannot be used, or
its server refuses, six times in a row, is that given up.

Where rules alone learn, a prompt shows what they learn from all that was due before it, however far
the thread has come: it does itself what is left (`catch_up`). Nobody waits for a model.

What the user lays down or takes back for all conversations is due at once, with a model too: the
next prompt of every conversation has it.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
from cachetools import FIFOCache, LRUCache
from langchain_core.embeddings import Embeddings

from langchain_ctxbudget import history, stores
from langchain_ctxbudget.errors import BlockedLoopError, InvalidSettingsError, ModelReplyError
from langchain_ctxbudget.flow import (
    Flow,
    T,
    batch,
    drive,
    embed,
    locked,
    running_loop,
    with_fallback,
)
from langchain_ctxbudget.history import OpenConversation, Owner
from langchain_ctxbudget.knowledge import known, merging, records, standing_rules
from langchain_ctxbudget.knowledge.bundles import Compiler
from langchain_ctxbudget.knowledge.detection import DECIMALS
from langchain_ctxbudget.knowledge.due_readings import DueReading, DueReadings
from langchain_ctxbudget.knowledge.known import Knowledge
from langchain_ctxbudget.knowledge.outages import Outages, waiting_in_words
from langchain_ctxbudget.knowledge.reading import EVERYTHING, Reader, Threshold, threshold_of
from langchain_ctxbudget.knowledge.records import EntityProfile, Profile, TopicProfile
from langchain_ctxbudget.knowledge.sessions import MOST_OPEN, Sessions
from langchain_ctxbudget.knowledge.work import LEARNING_POLICY, Work, still_there
from langchain_ctxbudget.llm import AnsweredCall
from langchain_ctxbudget.receipts import CONVERSATION, OPERATION, traced
from langchain_ctxbudget.search import units
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores import Scope, bulk, embeddings_name, put_of
from langchain_ctxbudget.tokens import ChatModel, TokenCounter
from langchain_ctxbudget.worker import PATIENCE_SECONDS, PAUSE_SECONDS, Cancelled, Worker

if TYPE_CHECKING:
    from langchain_ctxbudget.knowledge.extraction import ChatModelExtractor
    from langchain_ctxbudget.knowledge.joint_reading import JointReader

P = TypeVar("P", TopicProfile, EntityProfile)
MOST_CAUGHT_UP = 4_000
"""Messages that rules read at most before a prompt, two seconds' work; what an import brings
beyond that is learned in the background, and a report says so until it is done."""
_BEHIND = "messages before this one are still being learned from, in the background"


class _Owner(Owner, Protocol):
    """The engine that has the conversations open."""

    settings: ContextSettings
    counter: TokenCounter

    @property
    def embeddings(self) -> Embeddings | None: ...
    def using(self, scope: Scope, body: Callable[[OpenConversation], Flow[T]]) -> Flow[T]: ...
    def read_ahead(self, scope: Scope, words: str) -> None: ...
    def note_call(self, scope: Scope, call: AnsweredCall) -> None: ...


class Learning:
    """One thread in which conversations are learned from, one at a time."""

    def __init__(self, owner: _Owner, model: ChatModel | None) -> None:
        """Sets up; the thread begins with the first conversation that has enough to learn from."""
        self.owner = owner
        self._extractor: ChatModelExtractor | None = None
        if model is not None:
            from langchain_ctxbudget.knowledge.extraction import ChatModelExtractor  # noqa: PLC0415

            self._extractor = ChatModelExtractor(model)
        self._summarizing: history.Summarizing | None = None
        self._joint_reader: JointReader | None = None
        self._sessions = Sessions()
        self._outages = Outages()
        self._due = DueReadings()
        self._due_rules = DueReadings()
        """The conversations in which something was said of standing rules since they were read."""
        self._rules_noted: LRUCache[Scope, int] = LRUCache(MOST_OPEN)
        """The positions behind the last messages that were looked through for that."""
        self._behind: LRUCache[Scope, str] = LRUCache(MOST_OPEN)
        """What has kept prompts from showing all that was to be learned before them."""
        self.reader = Reader(owner, self._outages)
        self._users_seen: FIFOCache[str, bool] = FIFOCache(MOST_OPEN)
        """Users whose sessions that ended with their process were looked for."""
        self._is_asking = False
        """True while a model works: nothing is written before that is over."""
        self.worker: Worker[Scope] = Worker(self._run, pause_seconds=PAUSE_SECONDS)

    def read_with(self, summarizing: history.Summarizing) -> None:
        """Has spans summed up in the calls that learn from them, where both are due at once."""
        if self._extractor is None:
            return
        from langchain_ctxbudget.knowledge.joint_reading import JointReader  # noqa: PLC0415

        self._summarizing = summarizing
        self._joint_reader = JointReader(self._extractor, summarizing.summarizer)

    # When a conversation is learned from

    def note(self, conversation: OpenConversation) -> None:
        """Has a conversation learned from in the background if it has enough news.

        Sessions that have been idle for half an hour end.
        """
        self.retry()
        if not self.owner.settings.learn or conversation.scope.is_shared:
            return
        position, digest = conversation.learned
        is_changed = not conversation.table.holds(position, digest)
        length = len(conversation.table)
        # Whether what is due is done yet must not tell when the next reading is due.
        position = max(position, self._due.end_of(conversation.scope))
        if is_changed or length > position:
            is_enough = is_changed or length - position >= self.owner.settings.learn_every
            self._note_rules(conversation, 0 if is_changed else position, surely=is_enough)
            self._note_news(conversation.scope, position, length, is_changed=is_changed)

    def _note_rules(self, conversation: OpenConversation, first: int, *, surely: bool) -> None:
        """Has what new messages say of rules read before the next prompt of their user.

        Args:
            conversation: The conversation.
            first: The position of the first new message.
            surely: Whether they are many, so that they are not looked through here.
        """
        scope = conversation.scope
        first = max(first, self._rules_noted.get(scope, 0))
        self._rules_noted[scope] = len(conversation.table)
        if surely or standing_rules.speaks_of_rules(conversation.table, first):
            self._due_rules.add(scope, DueReading(self.owner.clock()))
            self.worker.submit(scope)

    def _note_news(self, scope: Scope, position: int, length: int, *, is_changed: bool) -> None:
        """Has a conversation learned from, or waits for more of it.

        Args:
            scope: The conversation.
            position: The position of the first new message.
            length: The number of its messages.
            is_changed: Whether messages have changed that were learned from.
        """
        is_enough = is_changed or length - position >= self.owner.settings.learn_every
        if is_enough and self._is_by_rules:
            self._submit(scope, DueReading(self.owner.clock(), length))
        elif is_enough or not self._sessions.is_open(scope):
            self.worker.submit(scope)
        # A model may find too few words in enough messages, and wait for more.
        if is_changed or (is_enough and self._extractor is None):
            self._sessions.drop(scope)
        else:
            self._sessions.note_news(scope, self.owner.clock())
        for idle in self._sessions.idle(self.owner.clock()):
            self.end_session(idle)

    def end_session(self, scope: Scope, least_words: int = 1) -> bool:
        """Has everything new in a conversation learned from in the background.

        Returns whether that is going to happen.
        """
        if not self.owner.settings.learn or scope.is_shared:
            return False
        if self._is_by_rules:
            self._sessions.drop(scope)
            return self._submit(scope, DueReading(self.owner.clock()))
        self._sessions.end(scope, least_words)
        return self.worker.submit(scope)

    @property
    def _is_by_rules(self) -> bool:
        """Whether no model of this pipeline learns, so that a prompt need not wait for one."""
        return self._extractor is None or self.owner.settings.learn == "rules"

    def _submit(self, scope: Scope, reading: DueReading) -> bool:
        """Notes that rules are to learn from messages, and has that done in the background.

        Returns whether that is going to happen.
        """
        self._due.add(scope, reading)
        is_submitted = self.worker.submit(scope)
        if not is_submitted:
            self._due.remove(scope, reading)
        return is_submitted

    def catch_up(self, scope: Scope) -> Flow[None]:
        """Has rules learn what is due of a user before a prompt of a conversation is made.

        As a rule the thread has done it by then, as the user was reading. How much is done here is
        limited by a number of messages and by no time, which would differ from run to run. The
        caller holds no conversation's lock.
        """
        self._behind.pop(scope, None)
        problems = yield from self.catch_up_with_rules(scope.user_id)
        messages_left = MOST_CAUGHT_UP

        def goes_on(number_read: int) -> bool:
            nonlocal messages_left
            messages_left -= number_read
            return messages_left > 0

        what = "what was said before was not learned from"
        for read_scope in self._due.scopes_of(scope.user_id):
            yield from with_fallback(self._read_due(read_scope, goes_on), None, what, problems)
            if messages_left <= 0:
                problems.append(_BEHIND)
                break
        if problems:
            self._behind[scope] = "; ".join(dict.fromkeys(problems))

    def catch_up_with_rules(self, user_id: str) -> Flow[list[str]]:
        """Reads what a user has said of rules in any conversation; returns what has failed."""
        problems: list[str] = []
        what = "what was said of rules in another conversation was not read"
        for scope in self._due_rules.scopes_of(user_id):
            reading = self._read_due_rules(scope, MOST_CAUGHT_UP)
            is_read = yield from with_fallback(reading, None, what, problems)
            if is_read is False:
                problems.append(_BEHIND)
        return problems

    def _read_due_rules(self, scope: Scope, most_messages: int | None = None) -> Flow[bool]:
        """Reads what a conversation says of rules if that is due; returns whether it was done.

        Args:
            scope: The conversation.
            most_messages: The most new messages that are read; None for all.
        """
        due = self._due_rules.first_of(scope)
        while due is not None:
            is_read = yield from self._read_rules(scope, due.at, most_messages)
            if not is_read:
                return False
            self._due_rules.remove(scope, due)
            due = self._due_rules.first_of(scope)
        return True

    def _read_rules(self, scope: Scope, at: datetime, most_messages: int | None) -> Flow[bool]:
        """Reads what a conversation says of rules, and stores what holds elsewhere, too.

        Returns False where more messages are new than may be read.
        """
        settings = yield from self._settings_of(scope.user_id)
        if not settings.learn:
            return True
        reading = partial(self.reader.rule_events, most_messages=most_messages)
        kept = known.kept_of(self.owner.store, scope.user_id)
        events = yield from self.owner.using(scope, reading)
        if events is None:
            return False
        writing = self._write_rules(scope, events, kept, at)
        yield from locked(known.lock_of(self.owner.store, scope.user_id), writing)
        return True

    def _write_rules(
        self,
        scope: Scope,
        events: tuple[standing_rules.RuleEvent, ...],
        kept: known.KeptKnowledge,
        at: datetime,
    ) -> Flow[None]:
        """Stores what a conversation says of rules, if anything of it is new.

        Where something of the user was erased since it was read, nothing is written.
        """
        store = self.owner.store
        before = yield from known.read(store, scope.user_id)
        if known.kept_of(store, scope.user_id) is not kept:
            return
        rules = merging.rules_with(before, scope.conversation_id, events, at)
        if rules != before.rules:
            yield from self.rewritten(scope.user_id, lambda state: replace(state, rules=rules))

    def retry(self) -> None:
        """Has conversations learned from again on which the model has failed, after their waits."""
        for scope in self._outages.take_due(self.owner.clock()):
            self.worker.submit(scope)

    def take_up(self, scope: Scope, progress: records.ProgressRecord) -> None:
        """Notes what the store says of a conversation.

        Another process may have left it while its model failed.
        """
        until = progress.waits_until
        if until is None or self._extractor is None or self.owner.settings.learn == "rules":
            self._outages.end(scope)
        elif self._outages.problem_of(scope) is None:
            first = progress.marks[-1][0] if progress.marks else 0
            self._outages.go_on(scope, until, first)

    def problems_of(self, scope: Scope) -> list[str]:
        """Returns what a report says of learning from a conversation that has failed."""
        problem = self.worker.failure_of(scope) or self._outages.problem_of(scope)
        problem = problem or self._behind.get(scope)
        return [problem] if problem else []

    def close(self) -> None:
        """Begins nothing any more.

        A job that is in the store ends first, as the store may be closed next.
        """
        open_scopes = self._sessions.open_scopes()
        if self._extractor is not None:
            self.worker.close()
        elif open_scopes and not isinstance(self.owner.store, stores.PrivateStore):
            for scope in open_scopes:  # rules take no time
                self.end_session(scope)
        # An event loop is not held up, as the job may be waiting for it.
        if not self._is_asking and running_loop() is None:
            with suppress(BlockedLoopError):  # the job itself closes the pipeline
                self.worker.flush(PATIENCE_SECONDS)
        self.worker.close()

    # What is known of a user

    def forget(self, scope: Scope, conversation: OpenConversation | None = None) -> Flow[None]:
        """Removes the knowledge from messages that a conversation no longer has.

        Without a conversation, the knowledge from all of its messages.
        """
        store = self.owner.store
        user_id = scope.user_id
        conversation_id = scope.conversation_id
        now = self.owner.clock()
        there = still_there(conversation) if conversation else {}

        def change(before: Knowledge) -> Knowledge:
            return merging.without_messages(
                before, conversation_id, there, now, is_gone=conversation is None
            )

        known.interrupted(store, user_id)
        yield from locked(known.lock_of(store, user_id), self.rewritten(user_id, change))
        if there and self.owner.settings.learn and not scope.is_shared:
            self.worker.submit(scope)

    def forget_older(self, user_id: str, before: datetime, *, keep_pinned: bool) -> Flow[int]:
        """Removes what has not come up for long of what is known of a user, and their devices.

        Returns how many devices there were.

        Args:
            user_id: The user.
            before: What came up last before this time goes.
            keep_pinned: Whether what is pinned, or written by hand, stays.
        """
        now = self.owner.clock()

        def change(state: Knowledge) -> Knowledge:
            return merging.without_older(state, before, now, keep_pinned=keep_pinned)

        devices = yield from self.old_devices(user_id, before)
        deletions = records.PRESENCE.changes(user_id, devices, ())
        yield from bulk.write(self.owner.store, deletions)
        yield from locked(
            known.lock_of(self.owner.store, user_id),
            self.rewritten(user_id, change, edited=True),
        )
        return len(devices)

    def old_devices(self, user_id: str, before: datetime) -> Flow[list[records.ClientPresence]]:
        """Returns the devices of a user that have been silent since before a time."""
        devices = yield from records.PRESENCE.all(self.owner.store, user_id)
        return [device for device in devices if device.last_heartbeat_at < before]

    def rewritten(
        self, user_id: str, change: Callable[[Knowledge], Knowledge], *, edited: bool = False
    ) -> Flow[Knowledge]:
        """Reads, changes, compiles and writes a user's knowledge, and returns it as it is then.

        The caller holds the user's lock.

        Args:
            user_id: The user.
            change: Returns the knowledge as it is to be.
            edited: Whether it is changed by hand, so that conversations show it at once.
        """
        store = self.owner.store
        before = yield from known.read(store, user_id)
        changed = change(before)
        uses = known.take_uses(store, user_id)
        shown = self.owner.settings.entity_context
        after = merging.compiled(changed, uses, self.owner.clock(), shown)
        yield from known.save(store, user_id, before, after, edited=edited)
        return after

    def compile_persona(
        self, user_id: str, persona_id: str, settings: ContextSettings
    ) -> Flow[None]:
        """Compiles what a persona's settings say of the assistant, as prompts of it show that."""

        def change(before: Knowledge) -> Knowledge:
            compiler = Compiler(now=self.owner.clock(), old=before.bundles)
            bundle = compiler.persona(persona_id, settings)
            return replace(before, bundles={**before.bundles, bundle.id: bundle})

        yield from locked(known.lock_of(self.owner.store, user_id), self.rewritten(user_id, change))

    # What the worker does

    def _run(self, scope: Scope, cancelled: Cancelled) -> None:
        atexit.register(self.close)  # so that a job that is in the store ends first
        try:
            self._end_earlier_sessions(scope)
            if not self._due_rules.first_of(scope):
                drive(self._read_rules(scope, self.owner.clock(), None))
            drive(self._read_due_rules(scope))
            if self._is_by_rules:
                self._learn_by_rules(scope, cancelled)
            else:
                self._learn_all(scope, cancelled)
        finally:
            atexit.unregister(self.close)

    def _end_earlier_sessions(self, scope: Scope) -> None:
        """Ends a user's sessions that ended with their process, once, when the user is seen."""
        store = self.owner.store
        user_id = scope.user_id
        if user_id not in self._users_seen and not isinstance(store, stores.PrivateStore):
            for name in drive(history.log.read_behind(store, user_id, records.LEARNING)):
                if name != scope.conversation_id:
                    earlier = Scope(user_id, name)  # no prompt waits for it: there may be many
                    self._sessions.end(earlier, LEARNING_POLICY.least_words)
                    self.worker.submit(earlier)
        self._users_seen[user_id] = True

    def _settings_of(self, user_id: str) -> Flow[ContextSettings]:
        [saved] = yield from batch(self.owner.store, [stores.settings_place(user_id, None)])
        try:
            return self.owner.settings.override(stores.settings_in(saved))
        except InvalidSettingsError:  # every prompt tells of it
            return self.owner.settings

    def _learn_by_rules(self, scope: Scope, cancelled: Cancelled) -> None:
        """Has rules learn what is due in a conversation, with a pause wherever somebody waits."""

        def goes_on(_number_read: int) -> bool:
            self.worker.wait_for_pause()
            return not cancelled

        if self._sessions.take_ended(scope) is not None:
            self._due.add(scope, DueReading(self.owner.clock()))
        if self._due.first_of(scope) is None:  # only noted, so that a later process takes it up
            self._due.add(scope, DueReading(self.owner.clock(), 0))
        drive(self._read_due(scope, goes_on))

    def _read_due(self, scope: Scope, goes_on: Callable[[int], bool]) -> Flow[None]:
        """Has rules learn what is due in a conversation.

        Somebody else may do so at the same time. Where it fails, it is due again with more news.

        Args:
            scope: The conversation.
            goes_on: Is told how many messages were read, and tells whether more of them are.
        """
        reading = self._due.first_of(scope)
        try:
            while reading is not None:
                is_done = yield from self._read(scope, reading, goes_on)
                if not is_done:
                    return
                self._due.remove(scope, reading)
                reading = self._due.first_of(scope)
        except Exception:
            self._due.drop(scope)
            raise

    def _read(
        self, scope: Scope, reading: DueReading, goes_on: Callable[[int], bool]
    ) -> Flow[bool]:
        """Has rules learn from messages, a few at a time; returns whether it was done to its end.

        Where a user has fewer messages learned from than are due, they wait for more.
        """
        user_id = scope.user_id
        store = self.owner.store
        settings = yield from self._settings_of(user_id)
        if not settings.learn or settings.learn == "model":
            self._sessions.drop(scope)  # what is said while learning is off is not waited for
            return True

        threshold = EVERYTHING
        if reading.end is not None:
            threshold = Threshold(messages=settings.learn_every)
        while True:
            taking = partial(self.reader.next_work, threshold, by_model=False, until=reading.end)
            work = yield from self.owner.using(scope, taking)
            if work is None:
                break
            writing = self._write(work, None, reading.at)
            yield from locked(known.lock_of(store, user_id), writing)
            threshold = EVERYTHING
            if not goes_on(len(work.entries) - work.first):
                return False
        if self.owner.embeddings:
            embedding = self._embed(user_id, self.owner.embeddings)
            yield from locked(known.lock_of(store, user_id), embedding)
        return True

    def _learn_all(self, scope: Scope, cancelled: Cancelled) -> None:
        """Learns from a conversation with the model until little is new.

        What the model has failed on is left to a later run, which reads everything; rules read it
        meanwhile.

        Raises:
            ModelReplyError: What the model has failed with, once everything was read.
        """
        settings = drive(self._settings_of(scope.user_id))
        words_at_end = self._sessions.take_ended(scope)
        extractor = None if settings.learn == "rules" else self._extractor
        if not settings.learn or (settings.learn == "model" and extractor is None):
            self._sessions.drop(scope)  # what is said while learning is off is not waited for
            return

        threshold = threshold_of(settings, words_at_end, by_model=extractor is not None)
        problems = self._read_all(scope, threshold, extractor, cancelled)
        if not cancelled and self.owner.embeddings:
            embedding = self._embed(scope.user_id, self.owner.embeddings)
            drive(locked(known.lock_of(self.owner.store, scope.user_id), embedding))
        outage = self._outages.problem_of(scope)
        if outage is not None:
            problems.append(outage)
        if problems:
            raise ModelReplyError("; ".join(dict.fromkeys(problems)))

    def _read_all(
        self,
        scope: Scope,
        threshold: Threshold,
        extractor: ChatModelExtractor | None,
        cancelled: Cancelled,
    ) -> list[str]:
        """Learns from a conversation until its news does not reach a threshold.

        Returns what the model has failed with.
        """
        problems: list[str] = []
        while not cancelled:
            taking = partial(self.reader.next_work, threshold, by_model=extractor is not None)
            work = drive(self.owner.using(scope, taking))
            if work is None:
                break
            if work.is_retry:  # all of it was to be read when the model failed
                threshold = EVERYTHING
            is_for_model = not work.is_ahead and work.own_words() >= threshold.words_for_model
            reader = extractor if is_for_model else None
            request = self._summary_due(work, reader)
            if request is not None:
                work = work.with_end(request.node.end)
            problem = self._learn_from(work, reader, cancelled, request)
            if problem:
                problems.append(problem)
            self.worker.wait_for_pause()
        return problems

    def _summary_due(
        self, work: Work, extractor: ChatModelExtractor | None
    ) -> history.SummaryRequest | None:
        """Returns the request to sum up the span that ends in some messages, if there is one.

        Where the model has failed before, or learning does not read all that a summary tells of,
        both are asked for apart.
        """
        if self._summarizing is None or extractor is None:
            return None
        if work.is_retry or work.there is not None or not work.is_read_whole(work.first):
            return None
        request = drive(self._summarizing.due_at(work.scope, work.first))
        if request is None or request.node.end > len(work.entries):
            return None
        return request if work.is_read_whole(request.node.first) else None

    # What is learned from it

    def _learn_from(
        self,
        work: Work,
        extractor: ChatModelExtractor | None,
        cancelled: Cancelled,
        request: history.SummaryRequest | None = None,
    ) -> str:
        """Learns from some messages, by rules where there is no extractor.

        Returns what the model has failed with; empty where it has not.
        """
        learned: records.Learned | None = None
        put_off: records.ProgressRecord | None = None
        problem = ""
        calls: list[AnsweredCall] = []
        if extractor is not None:
            try:
                learned = self._ask_jointly(work, request, calls) if request else None
                if learned is None:
                    learned = self._ask(extractor, work, calls)
            except ModelReplyError as error:
                put_off = work.put_off(error, self.owner.clock())
                problem = _failure_in_words(work, error, put_off)
            booking = self._book(work, calls)
            drive(locked(known.lock_of(self.owner.store, work.scope.user_id), booking))
        if not cancelled:
            outcome = self._write_outcome(work, learned, put_off, problem)
            drive(locked(known.lock_of(self.owner.store, work.scope.user_id), outcome))
        return problem

    def _write_outcome(
        self,
        work: Work,
        learned: records.Learned | None,
        put_off: records.ProgressRecord | None,
        problem: str,
    ) -> Flow[None]:
        """Writes what was learned, or that the model is asked again later."""
        if put_off is not None:
            return self._put_off(work, put_off, problem)
        return self._write(work, learned, self.owner.clock())

    def _book(self, work: Work, calls: Iterable[AnsweredCall]) -> Flow[None]:
        """Counts calls of the model as usage, unless their user was erased meanwhile."""
        yield from ()
        if self._is_same_user(work):
            for call in calls:
                self.owner.note_call(work.scope, call)

    def _ask_jointly(
        self, work: Work, request: history.SummaryRequest, calls: list[AnsweredCall]
    ) -> records.Learned | None:
        """Returns what the model learns from messages, and stores the summary of their span.

        None where their prompt does not fit its window.

        Raises:
            ModelReplyError: It has learned nothing.
        """
        if self._joint_reader is None or self._summarizing is None:
            return None
        from langchain_ctxbudget.knowledge.joint_reading import JointQuestion  # noqa: PLC0415

        question = JointQuestion(
            said=work.messages_read(),
            before=work.read_between(request.node.first, work.first),
            known=drive(known.read(self.owner.store, work.scope.user_id)),
            request=request,
        )
        self._is_asking = True
        try:
            answer = self._joint_reader.read(question, self.owner.counter, calls.append)
        finally:
            self._is_asking = False
        if answer is None:
            return None
        learned, digest = answer
        drive(self._summarizing.keep(work.scope, request, digest))
        return learned

    def _ask(
        self, extractor: ChatModelExtractor, work: Work, calls: list[AnsweredCall]
    ) -> records.Learned:
        """Returns what the model learns from messages; adds the calls that it has answered.

        Raises:
            ModelReplyError: It has learned nothing.
        """
        knowledge = drive(known.read(self.owner.store, work.scope.user_id))
        self._is_asking = True
        try:
            return extractor.extract(
                work.messages_read(), work.messages_before(), knowledge, calls.append
            )
        finally:
            self._is_asking = False

    def _put_off(self, work: Work, progress: records.ProgressRecord, problem: str) -> Flow[None]:
        """Notes that the model has failed on messages, unless they are out of date."""
        scope = work.scope
        is_up_to_date = yield from self._is_up_to_date(work)
        if is_up_to_date and progress.waits_until is not None:
            self._outages.begin(scope, progress.waits_until, problem)
            place = scope.place(records.LEARNING)
            yield from bulk.write(self.owner.store, [put_of(place, progress)])

    def _write(self, work: Work, learned: records.Learned | None, now: datetime) -> Flow[None]:
        """Merges what was learned from messages into their user's knowledge, and writes progress.

        Where the user was erased, or the conversation was learned from, since the messages were
        taken up, nothing is written, and they are taken up again.

        Args:
            work: The messages.
            learned: What the model has learned from them; None to have rules learn here.
            now: The time at which they are learned from.
        """
        scope = work.scope
        begun: dict[str, str | int] = {
            OPERATION: "upsert_memory",
            CONVERSATION: scope.conversation_id,
            "ctxbudget.messages": len(work.entries) - work.first,
            "ctxbudget.by_model": learned is not None,
        }
        return traced("upsert_memory", self._merged(work, learned, now), begun, lambda _: {})

    def _merged(self, work: Work, learned: records.Learned | None, now: datetime) -> Flow[None]:
        scope = work.scope

        def change(before: Knowledge) -> Knowledge:
            return merging.with_work(before, work, learned, now)

        is_up_to_date = yield from self._is_up_to_date(work)
        if is_up_to_date:
            yield from self.rewritten(scope.user_id, change)
            done = work.done(now, by_model=learned is not None)
            place = scope.place(records.LEARNING)
            yield from bulk.write(self.owner.store, [put_of(place, done)])

    def _is_up_to_date(self, work: Work) -> Flow[bool]:
        """Returns whether nothing was erased or learned since messages were taken up."""
        scope = work.scope
        progress = yield from self.reader.progress(scope)
        return self._is_same_user(work) and progress == work.progress

    def _is_same_user(self, work: Work) -> bool:
        """Returns whether nothing of the user was erased since messages were taken up."""
        return known.kept_of(self.owner.store, work.scope.user_id) is work.kept_before

    def _embed(self, user_id: str, embeddings: Embeddings) -> Flow[None]:
        """Gives every topic and entity of a user a vector that has none of this model."""
        store = self.owner.store
        model = embeddings_name(embeddings)
        before = yield from known.read(store, user_id)
        missing = [profile for profile in before.profiles if profile.embedding_model != model]
        if not missing:
            return
        rows = yield from embed(embeddings, [_embedded_text(profile) for profile in missing])
        vectors = units(np.asarray(rows, np.float32)).round(DECIMALS).tolist()
        vector_of = {
            profile.id: tuple(vector) for profile, vector in zip(missing, vectors, strict=True)
        }

        def with_vectors(profiles: Iterable[P]) -> tuple[P, ...]:
            changed = []
            for profile in profiles:
                changes: dict[str, object] = {}
                if profile.id in vector_of:
                    changes = {"embedding": vector_of[profile.id], "embedding_model": model}
                changed.append(profile.model_copy(update=changes))
            return tuple(changed)

        after = replace(
            before, topics=with_vectors(before.topics), entities=with_vectors(before.entities)
        )
        yield from known.save(store, user_id, before, after)


def _failure_in_words(
    work: Work, error: ModelReplyError, put_off: records.ProgressRecord | None
) -> str:
    """Returns what a report says of a model that has failed on some messages."""
    if put_off is not None and put_off.waits_until is not None:
        return f"{error}; {waiting_in_words(work.first, put_off.waits_until)}"
    which = f"messages {work.first + 1} to {len(work.entries)}"
    times = LEARNING_POLICY.most_refusals
    return f"{error}; {which} were given up after {times} times, and rules have learned instead"


def _embedded_text(profile: Profile) -> str:
    """Returns the text whose vector stands for a topic or an entity: its names, and its kin."""
    parts = list(profile.names)
    if isinstance(profile, EntityProfile) and profile.relationship:
        parts.append(profile.relationship)
    return ". ".join(part for part in parts if part)
