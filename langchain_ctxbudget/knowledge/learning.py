"""A pipeline that learns about its users.

In the background, a few messages at a time, by rules or with a model.

Progress is kept with digests of everything before: where messages were edited or removed, reading
goes on from the newest that fits, and what came from them is dropped. Everything can be done twice:
sources are sets, counts are absolute numbers per conversation, and progress is written last.

Where the model fails, progress stays where it is. The model is asked about the same messages again
after a wait that grows with every failure, and reads everything since, in order. Rules learn from
them meanwhile; their facts go when the model has read. Only where its replies cannot be used, or
its server refuses, six times in a row, is that given up.
"""

from __future__ import annotations

import atexit
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.store.base import BaseStore

from langchain_ctxbudget import history, llm, stores
from langchain_ctxbudget.errors import BlockedLoopError, InvalidSettingsError, ModelReplyError
from langchain_ctxbudget.flow import Flow, T, batch, drive, embed, locked, running_loop
from langchain_ctxbudget.history import Beginning, Entry, OpenConversation, Owner, editing
from langchain_ctxbudget.knowledge import facts, known, profiles, records
from langchain_ctxbudget.knowledge.known import Knowledge
from langchain_ctxbudget.knowledge.presence import NEW_SESSION_AFTER
from langchain_ctxbudget.knowledge.records import ENGLISH, EntityProfile, Fact, Source, TopicProfile
from langchain_ctxbudget.messages import fold, is_user, own_words, time_of, word_count
from langchain_ctxbudget.search import units
from langchain_ctxbudget.settings import ContextSettings, EntityContext
from langchain_ctxbudget.stores import Scope, bulk, embeddings_name, written
from langchain_ctxbudget.worker import Cancelled, Worker, keep_newest, new_mutex

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from langchain_ctxbudget.knowledge.extraction import ChatModelExtractor

S = TypeVar("S", Fact, TopicProfile, EntityProfile, records.PhraseRecord)
P = TypeVar("P", TopicProfile, EntityProfile)
CLOSING_SECONDS = 5.0
"""The longest that closing waits for a job that has begun."""
PAUSE_SECONDS = 0.25
"""Nothing is learned before so much time without a prompt."""
MOST_MESSAGES = 30
BEFORE_MESSAGES = 4
LOOK_BACK = 1_000
"""Messages that are read at once; those before them that a model is shown, and that tell who else
writes."""
LEAST_WORDS = 100
"""Words of the user for which a model is asked, unless the session ends; until then it waits for
more messages."""
MOST_MARKS = 32
"""The newest marks of progress, and the newest passages, that are kept of a conversation."""
MOST_REFUSALS = 6
"""Times in a row that a model is asked about messages where its server refuses, or its replies are
of no use."""
MOST_BEGUN = 256
"""Conversations that are waited for; of more, the sessions of the oldest end."""
DETAILS = ("relationship", "aliases", "facts", "attributes", "relations")
"""The fields of an entity that are said of it."""


# The messages that are learned from


@dataclass(frozen=True, kw_only=True)
class Work:
    """Messages that are to be learned from."""

    scope: Scope
    entries: Sequence[Entry]
    """The conversation from its beginning to the last of them."""
    costs: Sequence[int]
    first: int
    progress: records.ProgressRecord
    """As it was found."""
    there: Mapping[str, str] | None
    """The fingerprints of all messages by id; None: those that were learned from have not
    changed."""
    kept: known.Kept
    """What was kept of the user when they were taken up."""
    passage: records.Passage = records.NO_PASSAGE
    """The game that was being played when they begin."""
    is_ahead: bool = False
    """The model is not to be had: rules read them now, and the model later."""
    is_retry: bool = False
    """The model has failed on them before."""
    not_own: frozenset[str] = frozenset()
    """What others have said in the user's thread."""
    read_ahead: frozenset[str] = frozenset()
    """The messages from the first of these on, where rules have learned from any of them in place
    of the model."""

    def said(self, before: int = 0) -> list[records.Said]:
        """The words that may be learned from.

        With `before`, those of that many messages right before them instead.
        """
        others = others_in(self.entries[max(0, self.first - LOOK_BACK) :], self.scope.user_id)
        entries = (
            self.entries[max(0, self.first - before) : self.first]
            if before
            else self.entries[self.first :]
        )
        return as_said([entry for entry in entries if entry.id not in self.not_own], others)

    def own_words(self) -> int:
        """Returns the number of the user's words in them."""
        return sum(word_count(one.text) for one in self.said() if one.from_user)

    def done(
        self, now: datetime, passage: records.Passage, *, by_model: bool
    ) -> records.ProgressRecord | None:
        """Returns the progress once they were learned from; None where no message is left."""
        if not self.entries:
            return None
        here = (len(self.entries), self.entries[-1].digest)
        before = tuple(mark for mark in self.progress.marks if _fits(self.entries, mark))
        if self.is_ahead:
            ahead = records.ReadAhead(mark=here, passage=passage)
            changes = {"at": now, "marks": before, "played": False, "meanwhile": ahead}
            return self.progress.model_copy(update=changes)
        meanwhile = self.progress.meanwhile
        if by_model or (meanwhile is not None and meanwhile.mark[0] <= len(self.entries)):
            meanwhile = None
        marks = (*before, here)[-MOST_MARKS:]
        return records.ProgressRecord(at=now, marks=marks, passage=passage, meanwhile=meanwhile)

    def put_off(self, error: ModelReplyError, now: datetime) -> records.ProgressRecord | None:
        """Returns the progress once the model has failed on them.

        None where it is not asked about them again.
        """
        refusals = self.progress.refusals + (not error.is_passing)
        if refusals >= MOST_REFUSALS:
            return None
        failures = self.progress.failures + 1
        waits_until = now + llm.wait_after(failures)
        changes = {"failures": failures, "refusals": refusals, "waits_until": waits_until}
        return self.progress.model_copy(update=changes)

    def told_spans(self, played: Collection[str]) -> tuple[tuple[int, int], ...]:
        """Returns the passages so far with those of these messages, by the first and the last message of each."""
        places = {
            entry.id: place
            for place, entry in enumerate(self.entries[self.first :], self.first + 1)
        }
        spans = [*self.passage.spans]
        goes_on = self.passage.left > 0
        for entry in self.entries[self.first :]:
            if not is_user(entry.message):
                continue
            if entry.id not in played:
                goes_on = False
            elif goes_on and spans:
                spans[-1] = (spans[-1][0], places[entry.id])
            else:
                spans.append((places[entry.id], places[entry.id]))
                goes_on = True
        return tuple(spans[-MOST_MARKS:])


def _fits(entries: Sequence[Entry], mark: tuple[int, str]) -> bool:
    """Returns whether nothing before a mark of progress has changed since."""
    position, digest = mark
    return 0 < position <= len(entries) and entries[position - 1].digest == digest


def others_in(entries: Sequence[Entry], user_id: str) -> frozenset[str]:
    """Returns the names of those who write beside the user, who is the only one, without a name, or named by the id."""
    people = [entry.message for entry in entries if isinstance(entry.message, HumanMessage)]
    names = {message.name for message in people if message.name}
    if len(names) == 1 and not any(is_user(message) and not message.name for message in people):
        return frozenset()
    return frozenset(
        name
        for name in names
        if ENGLISH.word.findall(fold(name)) != ENGLISH.word.findall(fold(user_id))
    )


def as_said(entries: Sequence[Entry], others: Collection[str] = ()) -> list[records.Said]:
    """Returns messages as an extraction reads them.

    Words of people and of the assistant, and nothing else.
    """
    return [
        records.Said(
            id=entry.id,
            digest=entry.fingerprint,
            text=text,
            from_user=is_user(entry.message) and entry.message.name not in others,
            speaker=entry.speaker,
            at=time_of(entry.message),
        )
        for entry in entries
        if (text := _words(entry)) and entry.preservation != "drop"
    ]


def _words(entry: Entry) -> str:
    return own_words(entry.message) if isinstance(entry.message, HumanMessage | AIMessage) else ""


def _still_there(conversation: OpenConversation) -> dict[str, str]:
    """Returns the messages of a conversation with their fingerprints.

    Archived ones are not among them.
    """
    return {
        key: conversation.table.fingerprint(position)
        for position, key in enumerate(conversation.table.ids)
    }


# What they say is merged


def updated(state: Knowledge, work: Work, learned: records.Learned, now: datetime) -> Knowledge:
    """Returns the state after some messages."""
    conversation = work.scope.conversation_id
    # What an assistant or somebody else says teaches nothing, whatever a model makes of it.
    said = [one for one in work.said() if one.from_user]
    own = {
        one.id: Source(conversation_id=conversation, message_id=one.id, digest=one.digest)
        for one in said
    }
    said_at = {one.id: one.at for one in said if one.at}
    every = facts.learn(
        (*state.facts, *state.ended), learned.facts, own, now, learned.made_by, said_at=said_at
    )
    after = replace(
        state.with_facts(facts.pruned(every, now)),
        topics=profiles.merge_topics(state.topics, learned, own, now),
        entities=profiles.merge_entities(state.entities, learned, own, now),
    )
    return measured_again(_counted(after, work), now)


def measured_again(state: Knowledge, now: datetime) -> Knowledge:
    """Returns the state with new metrics where links have changed, without profiles that nothing speaks for."""
    of: defaultdict[str, list[records.TopicConversation]] = defaultdict(list)
    for (name, _), link in state.links.items():
        of[name].append(link)

    def rank(one: records.Profile) -> tuple[bool, bool, float, str]:
        return (
            not one.pinned,
            one.made_by != records.BY_USER,
            -profiles.importance_at(one, now),
            one.id,
        )

    def those_left(every: Iterable[P]) -> tuple[P, ...]:
        both = ((one, profiles.measured(one, of[one.id])) for one in every)
        renewed = (old if new == old else profiles.as_of(new, now) for old, new in both)
        left = [
            p
            for p in renewed
            if p.sources or p.total_messages or p.pinned or p.made_by == records.BY_USER
        ]
        return tuple(sorted(sorted(left, key=rank)[: known.MOST_ITEMS], key=lambda one: one.id))

    after = replace(state, topics=those_left(state.topics), entities=those_left(state.entities))
    return replace(
        after, links={key: link for key, link in state.links.items() if key[0] in after.names_by_id}
    )


def _counted(state: Knowledge, work: Work) -> Knowledge:
    """Returns a state with links in which the new messages are counted.

    All of them where some have changed.
    """
    conversation = work.scope.conversation_id
    detector = known.detector(state.profiles)
    first = work.first
    links = dict(state.links)
    if work.there is not None:
        first = 0
        links = {key: link for key, link in links.items() if key[1] != conversation}
    found: defaultdict[str, list[profiles.Engagement]] = defaultdict(list)
    for position in range(first, len(work.entries)):
        entry = work.entries[position]
        said = profiles.Engagement(
            time_of(entry.message), work.costs[position], is_user(entry.message)
        )
        for name in detector.named(_words(entry)):
            if (link := links.get((name, conversation))) is None or position >= link.until:
                found[name].append(said)
    for name, messages in found.items():
        link = links.get(
            (name, conversation),
            records.TopicConversation(topic_id=name, conversation_id=conversation),
        )
        links[name, conversation] = profiles.engaged(link, messages, until=len(work.entries))
    return replace(state, links=links)


def without_rules(
    state: Knowledge, conversation_id: str, message_ids: Collection[str]
) -> Knowledge:
    """Returns the state without the facts that rules have learned from these messages of a conversation alone.

    What is kept by hand stays. A fact that they superseded counts again.
    """

    def is_of_these(source: Source) -> bool:
        return source.conversation_id == conversation_id and source.message_id in message_ids

    every = (*state.facts, *state.ended)
    by_rules = [
        fact for fact in every if fact.made_by == records.BY_RULES and not fact.is_kept_by_hand
    ]
    gone = {
        fact.id: fact.superseded_by
        for fact in by_rules
        if fact.sources and all(map(is_of_these, fact.sources))
    }
    return state.with_facts(_counting_again(fact, gone) for fact in every if fact.id not in gone)


def _counting_again(fact: Fact, gone: Mapping[str, str | None]) -> Fact:
    """Returns a fact that counts again where it was superseded by one that is gone, and nothing stands in its place."""
    by = fact.superseded_by
    while by is not None and by in gone:
        by = gone[by]
    back = {"ended": None, "ended_at": None} if by is None and fact.superseded_by else {}
    return fact.model_copy(update={**back, "superseded_by": by})


def without(state: Knowledge, conversation_id: str, there: Mapping[str, str]) -> Knowledge:
    """Returns the state without what came from messages that are no longer there, or say something else.

    What is kept by hand stays; what a model has written goes with any of its messages, as it may
    say something of each. A fact that they superseded counts again, unless something else stands in
    its place.
    """

    def left(item: S, **lost: object) -> S:
        """Returns an item with the sources that are still there.

        With other fields where one is not.
        """
        sources = tuple(
            source
            for source in item.sources
            if source.conversation_id != conversation_id
            or there.get(source.message_id) == source.digest
        )
        return (
            item
            if sources == item.sources
            else item.model_copy(update={"sources": sources, **lost})
        )

    every = [(fact, left(fact)) for fact in (*state.facts, *state.ended)]
    gone = {
        fact.id: fact.superseded_by
        for fact, now in every
        if now != fact
        and not fact.is_kept_by_hand
        and (not now.sources or fact.made_by != records.BY_RULES)
    }

    no_details = {name: EntityProfile.model_fields[name].default for name in DETAILS}
    entities = (
        left(one, **({} if one.made_by == records.BY_USER else no_details))
        for one in state.entities
    )
    return replace(
        state.with_facts(_counting_again(now, gone) for fact, now in every if fact.id not in gone),
        topics=tuple(map(left, state.topics)),
        entities=tuple(entities),
        phrases=tuple(phrase for phrase in map(left, state.phrases) if phrase.sources),
    )


def compiled(
    store: BaseStore, user_id: str, state: Knowledge, now: datetime, shown: EntityContext
) -> Knowledge:
    """Returns the state with every missing or changed text compiled, and uses counted."""
    compiler = profiles.Compiler(now=now, old=state.bundles, entities=shown)
    detector = known.detector(state.profiles)
    ranked = facts.ranked(state.facts)
    about: defaultdict[str, list[Fact]] = defaultdict(list)
    for fact in ranked:
        for name in detector.named(fact.text):
            about[name].append(fact)
    by_slug = {topic.slug: topic for topic in state.topics}
    made = [
        *(
            compiler.topic(one, about[one.id], by_slug.get(one.parent_slug or ""))
            for one in state.topics
        ),
        *(compiler.entity(one, about[one.id]) for one in state.entities),
        *(compiler.of_facts(kind, ranked) for kind in profiles.OF_FACTS),
    ]
    made += [
        text
        for text in state.bundles.values()
        if text.bundle_type == "composite" and text.compiled_prompt
    ]
    texts = {text.id: text for text in made if "/" in text.id or text.compiled_prompt}
    kept = known.kept_of(store, user_id)
    uses = kept.uses
    kept.uses = Counter()
    return replace(state, bundles=with_uses(texts, uses, now))


def with_uses(
    texts: Mapping[str, records.ContextBundle], uses: Mapping[tuple[str, bool], int], now: datetime
) -> dict[str, records.ContextBundle]:
    """Returns compiled texts by id, with the hits and misses that were counted since they were written."""
    counted = dict(sorted(texts.items()))
    for (key, is_hit), number in uses.items():
        if old := counted.get(key):
            counts = (
                {"hit_count": old.hit_count + number}
                if is_hit
                else {"miss_count": old.miss_count + number}
            )
            counted[key] = old.model_copy(update={**counts, "last_used_at": now})
    return counted


# In the background


@dataclass(frozen=True)
class _Waiting:
    """A conversation that the model has failed on."""

    until: datetime
    """The time at which the model is asked again."""
    problem: str
    """What a report says of it."""


_FAILED_BEFORE = "its model has failed before"


def _waits(first: int, until: datetime) -> str:
    """Returns that messages wait for the model, in words.

    `first` is the position of the first one.
    """
    again = f"it reads everything from message {first + 1} on again, not before {llm.told(until)}"
    return f"{again}; rules learn meanwhile"


def _told_of(work: Work, error: ModelReplyError, put_off: records.ProgressRecord | None) -> str:
    """Returns what a report says of a model that has failed."""
    if put_off is not None and put_off.waits_until is not None:
        return f"{error}; {_waits(work.first, put_off.waits_until)}"
    given_up = f"messages {work.first + 1} to {len(work.entries)} were given up after {MOST_REFUSALS} times"
    return f"{error}; {given_up}, and rules have learned instead"


def _passage_at(progress: records.ProgressRecord, first: int) -> records.Passage:
    """Returns the passage of a game in which reading goes on at a position."""
    if not first:
        return records.NO_PASSAGE
    if progress.played:
        from langchain_ctxbudget.knowledge import rules  # noqa: PLC0415 - it compiles tables

        return records.Passage(left=rules.MOST_PLAYED)
    return progress.passage


class _Owner(Owner, Protocol):
    """The engine that has the conversations open."""

    settings: ContextSettings

    @property
    def embeddings(self) -> Embeddings | None: ...
    def using(self, scope: Scope, body: Callable[[OpenConversation], Flow[T]]) -> Flow[T]: ...
    def read_ahead(self, scope: Scope, words: str) -> None: ...


class Learning:
    """One thread in which conversations are learned from, one at a time."""

    def __init__(self, owner: _Owner, model: BaseChatModel | None) -> None:
        """Set up; the thread begins with the first conversation that has enough to learn from."""
        self.owner = owner
        self._extractor: ChatModelExtractor | None = None
        if model is not None:
            from langchain_ctxbudget.knowledge.extraction import ChatModelExtractor  # noqa: PLC0415

            self._extractor = ChatModelExtractor(model)
        self._ending: dict[Scope, int] = {}
        """Sessions that have ended, with the fewest words of the user for which a model is
        asked."""
        self._begun: dict[Scope, datetime] = {}
        """Conversations with a few messages that were not learned from, and when the last one came;
        oldest first."""
        self._looked: set[str] = set()
        """Users whose earlier sessions were looked for: those that ended with their process are
        learned from."""
        self._waiting: dict[Scope, _Waiting] = {}
        """Conversations that the model has failed on, until it is asked again."""
        self._passages: dict[Scope, tuple[tuple[int, int], ...]] = {}
        """Conversations that have passages from which rules do not learn, by their first and last
        messages."""
        self._mutex = new_mutex()
        self._asking = False
        """True while a model works: nothing is written before that is over."""
        self.worker: Worker[Scope] = Worker(self._run, pause_seconds=PAUSE_SECONDS)

    def close(self) -> None:
        """Begin nothing any more.

        A job that is in the store ends first, as the store may be closed next.
        """
        if self._extractor is not None:
            self.worker.close()
        elif self._begun and not isinstance(
            self.owner.store, stores.PrivateStore
        ):  # rules take no time
            for scope in [*self._begun]:
                self.end_session(scope)
        if (
            not self._asking and running_loop() is None
        ):  # a loop is not held up: the job may be waiting for it
            with suppress(BlockedLoopError):  # the job itself closes the pipeline
                self.worker.flush(CLOSING_SECONDS)
        self.worker.close()

    def note(self, conversation: OpenConversation) -> None:
        """Learn in the background from a conversation with enough news.

        Sessions idle for half an hour end.
        """
        self.retry()
        settings = self.owner.settings
        scope = conversation.scope
        now = self.owner.clock()
        table = conversation.table
        learned = conversation.learned
        new = (
            len(table) - learned[0] if table.holds(*learned) else None
        )  # None: what it learned from has changed
        if not settings.learn or new == 0 or scope.is_shared:
            return
        if new is None or new >= settings.learn_every or scope not in self._begun:
            self.worker.submit(scope)
        with self._mutex:
            self._begun.pop(scope, None)
            if new is not None and (new < settings.learn_every or self._extractor):
                self._begun[scope] = now
            full = len(self._begun) > MOST_BEGUN
            oldest = [*self._begun.items()][:2]
            idle = [one for one, at in oldest if full or now - at > NEW_SESSION_AFTER]
        for ended in idle:
            self.end_session(ended)

    def retry(self) -> None:
        """Learn in the background from conversations that the model has failed on, once their waits are over."""
        if not self._waiting:
            return
        now = self.owner.clock()
        with self._mutex:
            due = [scope for scope, waiting in self._waiting.items() if waiting.until <= now]
            for scope in due:
                del self._waiting[scope]
        for scope in due:
            self.worker.submit(scope)

    def take_up(self, scope: Scope, progress: records.ProgressRecord) -> None:
        """Notes what the store says of a conversation.

        Another process may have left it while its model failed.
        """
        self._tell_passages(scope, (progress.meanwhile or progress).passage)
        until = progress.waits_until
        with self._mutex:
            if until is None or self._extractor is None or self.owner.settings.learn == "rules":
                self._waiting.pop(scope, None)
            elif scope not in self._waiting:
                first = next((position for position, _ in reversed(progress.marks)), 0)
                problem = f"{_FAILED_BEFORE}; {_waits(first, until)}"
                keep_newest(
                    self._waiting, scope, _Waiting(until=until, problem=problem), MOST_BEGUN
                )

    def told(self, scope: Scope) -> list[str]:
        """Returns what a report is to say of learning from a conversation.

        Failures, and what rules do not read.
        """
        failure = self.worker.failure_of(scope)
        waiting = self._waiting.get(scope)
        lines = [failure] if failure else []
        if waiting is not None and failure is None:
            lines.append(waiting.problem)
        if spans := self._passages.get(scope):
            where = ", ".join(f"{first} to {last}" for first, last in spans)
            lines.append(
                f"suspended for messages {where}: a part is played there, or texts are worked on"
            )
        return lines

    def end_session(self, scope: Scope, least_words: int = 1) -> bool:
        """Learn in the background from everything that is new in a conversation.

        Whether that is going to happen.
        """
        if not self.owner.settings.learn or scope.is_shared:
            return False
        self._begun.pop(scope, None)
        self._ending[scope] = min(least_words, self._ending.get(scope, least_words))
        return self.worker.submit(scope)

    def forget(self, scope: Scope, conversation: OpenConversation | None = None) -> Flow[None]:
        """Removes knowledge from messages that a conversation no longer has; None.

        From all of its messages.
        """
        store = self.owner.store
        user = scope.user_id
        where = scope.conversation_id
        now = self.owner.clock()
        there = _still_there(conversation) if conversation else {}

        def change(before: Knowledge) -> Knowledge:
            state = without(before, where, there)
            if state == before and there:
                return before
            links = {key: link for key, link in state.links.items() if key[1] != where}
            return measured_again(replace(state, links=links), now)

        known.interrupted(store, user)
        yield from locked(known.lock_of(store, user), self.rewritten(user, change))
        if there and self.owner.settings.learn and not scope.is_shared:
            self.worker.submit(scope)

    def rewritten(
        self, user_id: str, change: Callable[[Knowledge], Knowledge], *, edited: bool = False
    ) -> Flow[Knowledge]:
        """Reads, changes, compiles and writes a user's knowledge.

        The caller holds the user's lock.
        """
        store = self.owner.store
        shown = self.owner.settings.entity_context
        before = yield from known.read(store, user_id)
        after = compiled(store, user_id, change(before), self.owner.clock(), shown)
        yield from known.save(store, user_id, before, after, edited=edited)
        return after

    def compile_persona(
        self, user_id: str, persona_id: str, settings: ContextSettings
    ) -> Flow[None]:
        """Compiles what a persona's settings say of the assistant, as it stands in prompts of that persona."""

        def change(state: Knowledge) -> Knowledge:
            text = profiles.Compiler(now=self.owner.clock(), old=state.bundles).persona(
                persona_id, settings
            )
            return replace(state, bundles={**state.bundles, text.id: text})

        yield from locked(known.lock_of(self.owner.store, user_id), self.rewritten(user_id, change))

    def _run(self, scope: Scope, cancelled: Cancelled) -> None:
        atexit.register(self.close)  # so that a job that is in the store ends first
        try:
            self._look_back(scope)
            self._learn_all(scope, cancelled)
        finally:
            atexit.unregister(self.close)

    def _look_back(self, scope: Scope) -> None:
        """Ends the sessions of a user that were left when their process ended, the first time that the user is seen."""
        store = self.owner.store
        user = scope.user_id
        if user not in self._looked and not isinstance(store, stores.PrivateStore):
            for name in drive(history.log.read_behind(store, user, records.LEARNING)):
                if name != scope.conversation_id:
                    self.end_session(Scope(user, name), LEAST_WORDS)
        self._looked = {user, *(self._looked if len(self._looked) < MOST_BEGUN else ())}

    def _settings_of(self, user_id: str) -> ContextSettings:
        [saved] = drive(batch(self.owner.store, [stores.settings_place(user_id, None)]))
        try:
            return self.owner.settings.override(stores.settings_in(saved))
        except InvalidSettingsError:  # told of by every prompt
            return self.owner.settings

    def _learn_all(self, scope: Scope, cancelled: Cancelled) -> None:
        """Learns from a conversation until little is new.

        Raises what the model failed with when that is done.

        What the model has failed on is left to a later run, which reads everything; rules read it
        meanwhile.
        """
        store = self.owner.store
        user = scope.user_id
        settings = self._settings_of(user)
        problems: list[str] = []
        fewest = self._ending.pop(scope, 0)
        at_least = 1 if fewest else settings.learn_every
        extractor = None if settings.learn == "rules" else self._extractor
        least_words = LEAST_WORDS if extractor and at_least > 1 else 0
        if not settings.learn or (settings.learn == "model" and extractor is None):
            self._begun.pop(scope, None)  # what is said while learning is off is not waited for
            return
        by_model = extractor is not None

        def take_next() -> Work | None:
            body = partial(self._next, at_least, least_words, by_model=by_model)
            return drive(self.owner.using(scope, body))

        while not cancelled and (work := take_next()):
            if work.is_retry:  # all of it was to be read when the model failed
                at_least = 1
                least_words = fewest = 0
            says_enough = work.own_words() >= max(1, fewest)
            reader = extractor if says_enough and not work.is_ahead else None
            if problem := self._learn_from(work, reader, cancelled):
                problems.append(problem)
            self.worker.wait_for_pause()
        if not cancelled and self.owner.embeddings:
            drive(locked(known.lock_of(store, user), self._embed(user, self.owner.embeddings)))
        waiting = self._waiting.get(scope)
        if waiting is not None:
            problems.append(waiting.problem)
        if problems:
            raise ModelReplyError("; ".join(dict.fromkeys(problems)))

    def _learn_from(
        self, work: Work, extractor: ChatModelExtractor | None, cancelled: Cancelled
    ) -> str:
        """Learns from some messages, by rules where there is no extractor.

        Returns what the model failed with.
        """
        learned: records.Learned | None = None
        put_off: records.ProgressRecord | None = None
        problem = ""
        if extractor is not None:
            try:
                learned = self._extracted(extractor, work)
            except ModelReplyError as error:
                put_off = work.put_off(error, self.owner.clock())
                problem = _told_of(work, error, put_off)
        if not cancelled:
            step = self._put_off(work, put_off, problem) if put_off else self._write(work, learned)
            drive(locked(known.lock_of(self.owner.store, work.scope.user_id), step))
        return problem

    def _extracted(self, extractor: ChatModelExtractor, work: Work) -> records.Learned:
        """Returns what the model learns from messages.

        A `ModelReplyError` where it learns nothing.
        """
        knowledge = drive(known.read(self.owner.store, work.scope.user_id))
        self._asking = True
        try:
            return extractor.extract(work.said(), work.said(BEFORE_MESSAGES), knowledge)
        finally:
            self._asking = False

    def _put_off(self, work: Work, progress: records.ProgressRecord, problem: str) -> Flow[None]:
        """Notes that the model has failed on messages; see `_write`."""
        scope = work.scope
        found = yield from self.progress(scope)
        is_same_user = known.kept_of(self.owner.store, scope.user_id) is work.kept
        if found == work.progress and is_same_user and progress.waits_until is not None:
            waiting = _Waiting(until=progress.waits_until, problem=problem)
            with self._mutex:
                keep_newest(self._waiting, scope, waiting, MOST_BEGUN)
            yield from bulk.write(
                self.owner.store, [written(scope.place(records.LEARNING), progress)]
            )

    def _is_waiting(
        self, scope: Scope, progress: records.ProgressRecord, first: int, *, by_model: bool
    ) -> bool:
        """Returns whether a conversation waits for its model, and remembers when it is asked again."""
        until = progress.waits_until
        with self._mutex:
            if not by_model or until is None or until <= self.owner.clock():
                self._waiting.pop(scope, None)
                return False
            before = self._waiting.get(scope)
            problem = before.problem if before else f"{_FAILED_BEFORE}; {_waits(first, until)}"
            keep_newest(self._waiting, scope, _Waiting(until=until, problem=problem), MOST_BEGUN)
            return True

    def _next(
        self, at_least: int, least_words: int, conversation: OpenConversation, *, by_model: bool
    ) -> Flow[Work | None]:
        """Returns the next messages to learn from.

        None where there are too few new ones, or they say too little.
        """
        store = self.owner.store
        scope = conversation.scope
        yield from editing.refresh(store, conversation)
        entries = conversation.table  # a new one, where it was erased elsewhere
        kept = known.kept_of(store, scope.user_id)
        progress = yield from self.progress(scope)
        last = next((mark for mark in reversed(progress.marks) if _fits(entries, mark)), (0, ""))
        conversation.learned = last
        first = last[0]
        is_changed = bool(progress.marks) and last != progress.marks[-1]
        passage = _passage_at(progress, first)
        is_ahead = self._is_waiting(scope, progress, first, by_model=by_model)
        is_retry = by_model and progress.waits_until is not None and not is_ahead
        read_ahead: frozenset[str] = frozenset()
        if is_ahead:
            least_words = 0
            meanwhile = progress.meanwhile
            if meanwhile is not None and not _fits(entries, meanwhile.mark):
                is_changed = True
            elif meanwhile is not None:
                first = meanwhile.mark[0]
                passage = meanwhile.passage
        elif is_retry:
            at_least = 1
            least_words = 0
        if progress.meanwhile is not None and not is_ahead:
            read_ahead = frozenset(entries.ids[first:])
        self._tell_passages(
            scope, progress.meanwhile.passage if is_ahead and progress.meanwhile else passage
        )
        new = len(entries) - first
        end = min(len(entries), first + MOST_MESSAGES)
        own = (_words(entry) for entry in Beginning(entries, end)[first:] if is_user(entry.message))
        waits = new < at_least or (new < MOST_MESSAGES and least_words > sum(map(word_count, own)))
        if not is_changed and (not new or waits):
            if new and not progress.marks:  # only what was begun is taken up where its process ends
                yield from batch(store, [written(scope.place(records.LEARNING), progress)])
            elif is_retry:  # what the model failed on is gone
                done = records.ProgressRecord(
                    at=progress.at, marks=progress.marks, passage=progress.passage
                )
                yield from batch(store, [written(scope.place(records.LEARNING), done)])
            return None
        # From now on, others must be able to tell that its prompts show nothing yet.
        if conversation.snapshot_unsaved and entries:
            yield from batch(store, [written(scope.place(records.SNAPSHOT), conversation.snapshot)])
            conversation.snapshot_unsaved = False
        return Work(
            scope=scope,
            entries=Beginning(entries, end),
            costs=entries.costs(self.owner.counter).column.values[:end].tolist(),
            first=first,
            progress=progress,
            there=_still_there(conversation) if is_changed else None,
            kept=kept,
            passage=passage,
            is_ahead=is_ahead,
            is_retry=is_retry,
            not_own=(yield from stores.guests.read(store, scope)),
            read_ahead=read_ahead,
        )

    def _tell_passages(self, scope: Scope, passage: records.Passage) -> None:
        """Has reports tell of the passages from which rules do not learn."""
        with self._mutex:
            self._passages.pop(scope, None)
            if passage.spans:
                keep_newest(self._passages, scope, passage.spans, MOST_BEGUN)

    def progress(self, scope: Scope) -> Flow[records.ProgressRecord]:
        """Reads how far a conversation was learned from, and when that was."""
        [item] = yield from batch(self.owner.store, [scope.place(records.LEARNING)])
        return records.ProgressRecord.found(item) or records.ProgressRecord()

    def pass_over(self, conversation: OpenConversation) -> Flow[None]:
        """Notes that the messages which a conversation has now are not learned from any more."""
        scope = conversation.scope
        conversation.learned = (len(conversation.table), conversation.table.digest())
        before = yield from self.progress(scope)
        marks = (*before.marks, conversation.learned)[-MOST_MARKS:]
        done = records.ProgressRecord(at=before.at, marks=marks, passage=before.passage)
        yield from batch(self.owner.store, [written(scope.place(records.LEARNING), done)])

    def _write(self, work: Work, learned: records.Learned | None) -> Flow[None]:
        """Merges what was learned from messages into their user's knowledge; None.

        Rules learn from them here.

        Where the user was erased, or the conversation was learned from, since they were taken, they
        are taken again.
        """
        from langchain_ctxbudget.knowledge import rules  # noqa: PLC0415 - it compiles tables

        store = self.owner.store
        scope = work.scope
        now = self.owner.clock()
        said = work.said()
        played, passage = rules.played_in(said, work.passage)
        if learned is None:
            passage = passage.model_copy(update={"spans": work.told_spans(played)})

        def change(before: Knowledge) -> Knowledge:
            state = (
                before if work.there is None else without(before, scope.conversation_id, work.there)
            )
            if learned is not None:
                state = without_rules(state, scope.conversation_id, work.read_ahead)
                return updated(state, work, learned, now)
            by_rules, phrases = rules.learn(
                said, state.phrases, scope.conversation_id, work.passage
            )
            return updated(replace(state, phrases=phrases), work, by_rules, now)

        progress = yield from self.progress(scope)
        if progress == work.progress and known.kept_of(store, scope.user_id) is work.kept:
            yield from self.rewritten(scope.user_id, change)
            done = work.done(now, passage, by_model=learned is not None)
            yield from bulk.write(store, [written(scope.place(records.LEARNING), done)])
            self._tell_passages(scope, passage)

    def _embed(self, user_id: str, embeddings: Embeddings) -> Flow[None]:
        """Gives every topic and entity of a user a vector that has none of this model."""
        store = self.owner.store
        model = embeddings_name(embeddings)
        before = yield from known.read(store, user_id)
        missing = [one for one in before.profiles if one.embedding_model != model]
        if not missing:
            return
        of_kin = (
            (*one.names, one.relationship if isinstance(one, EntityProfile) else None)
            for one in missing
        )
        rows = yield from embed(embeddings, [". ".join(filter(None, names)) for names in of_kin])
        vectors = units(np.asarray(rows, np.float32)).round(6).tolist()
        made = [{"embedding": tuple(vector), "embedding_model": model} for vector in vectors]
        changes = dict(zip((one.id for one in missing), made, strict=True))

        def with_vectors(every: Iterable[P]) -> tuple[P, ...]:
            return tuple(one.model_copy(update=changes.get(one.id)) for one in every)

        after = replace(
            before, topics=with_vectors(before.topics), entities=with_vectors(before.entities)
        )
        yield from known.save(store, user_id, before, after)
