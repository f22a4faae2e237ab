"""What a pipeline keeps beside conversations, to look at and to change by hand: knowledge, usage, earlier reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

from langgraph.store.base import BaseStore, GetOp, Item

from langchain_ctxbudget.budget import Standing, UsageLimits, standing
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.flow import Flow, batch, locked, twins
from langchain_ctxbudget.history import Conversation, Entry
from langchain_ctxbudget.knowledge import (
    ClientPresence,
    ContextBundle,
    EntityProfile,
    Fact,
    FactCategory,
    Heartbeat,
    KnownItem,
    Prediction,
    Source,
    SourceMessage,
    TopicProfile,
    as_of,
    control,
    known,
    presence,
)
from langchain_ctxbudget.pipeline.bookkeeping import SNAPSHOTS, ContextSnapshot, amounts, read_snapshot_items
from langchain_ctxbudget.pipeline.engine import Engine
from langchain_ctxbudget.prompt import merged
from langchain_ctxbudget.stores import Scope, month_of, read_settings, require_id, settings_place
from langchain_ctxbudget.tokens import Usage

P = TypeVar("P", TopicProfile, EntityProfile)

Snapshots: TypeAlias = list[ContextSnapshot]
MOST_SNAPSHOTS = 100
"""Snapshots that are given by default."""


class _Book:
    """A part of a pipeline."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine


class UserKnowledge(_Book):
    """Facts, topics and entities that are known about users, where they come from, and what users have open.

    It is learned in the background and can be changed by hand here; a pipeline has it as `knowledge`. Every method has
    an async twin. Without a user, every method raises `MissingScopeError`.

    Example:
        >>> from langchain_ctxbudget import ContextPipeline
        >>> pipeline = ContextPipeline()
        >>> fact = pipeline.knowledge.add_fact("Lives in Lisbon", category="identity", user_id="ada")
        >>> [fact.text for fact in pipeline.knowledge.list_facts(user_id="ada")]
        ['Lives in Lisbon']
    """

    def _list_facts(self, *, user_id: str, include_ended: bool = False) -> Flow[list[Fact]]:
        """Lists the facts about a user in the order of prompts; then, if asked for, those that have ended."""
        return control.read_facts(*self._of(user_id), include_ended=include_ended)

    list_facts, alist_facts = twins(_list_facts)

    def _list_topics(self, *, user_id: str) -> Flow[list[TopicProfile]]:
        """Lists the topics of a user, most important first."""
        return _by_importance((yield from known.read(*self._of(user_id))).topics, self._now)

    list_topics, alist_topics = twins(_list_topics)

    def _list_entities(self, *, user_id: str) -> Flow[list[EntityProfile]]:
        """Lists the people, projects, organisations, tools and concepts of a user, most important first."""
        return _by_importance((yield from known.read(*self._of(user_id))).entities, self._now)

    list_entities, alist_entities = twins(_list_entities)

    def _list_bundles(self, *, user_id: str) -> Flow[list[ContextBundle]]:
        """Lists the texts that are compiled of what is known about a user, by id."""
        knowledge = yield from known.read(*self._of(user_id))
        return [bundle for _, bundle in sorted(knowledge.bundles.items())]

    list_bundles, alist_bundles = twins(_list_bundles)

    def _add_fact(
        self,
        text: str,
        *,
        user_id: str,
        category: FactCategory = "preference",
        confidence: float = 1.0,
        pinned: bool = False,
        slot: str = "",
    ) -> Flow[Fact]:
        """Adds a fact by hand, such as "Lives in Lisbon"; facts that it contradicts are superseded.

        It has at most 2,000 characters and a `confidence` above 0, up to 1. One that is `pinned` is kept and shown
        first in any case. `slot` names the question it answers, as "home": another value of it supersedes this one.
        Raises `FactError` where 10 facts are pinned already, and `InputError` for a value outside its range.
        """
        values = {"text": text, "category": category, "confidence": confidence, "slot": slot}
        return control.add_fact(*self._of(user_id), values, self._now, pinned=pinned)

    add_fact, aadd_fact = twins(_add_fact)

    def _edit(self, /, item_id: str, *, user_id: str, **changes: Any) -> Flow[KnownItem]:  # noqa: ANN401 - any field
        """Changes fields of a fact, a topic or an entity by hand, and returns it as it is then.

        Of a fact: `text`, `category`, `confidence`, `slot`, `valid_from`, `valid_until`; of a topic: `label`,
        `aliases`, `parent_slug`, `domain`, `proficiency_level`, `compiled_context`; of an entity: `name`, `type`,
        `aliases`, `relationship`, `facts`, `attributes`, `relations`, `compiled_context`. Raises `InputError` where
        there is no such item, no such field, or a value does not fit.
        """
        return control.edit(*self._of(user_id), item_id, changes, self._now)

    edit, aedit = twins(_edit)

    def _delete(self, item_id: str, *, user_id: str) -> Flow[None]:
        """Forgets a fact, a topic or an entity; its messages stay. Raises `InputError` where there is none."""
        return control.delete(*self._of(user_id), item_id, self._now)

    delete, adelete = twins(_delete)

    def _pin(self, item_id: str, *, user_id: str, pinned: bool = True) -> Flow[KnownItem]:
        """Keeps a fact, a topic or an entity whatever happens and shows it first; `pinned=False` takes that back.

        Raises `FactError` where 10 facts are pinned already, and `InputError` where there is no such item.
        """
        return control.pin(*self._of(user_id), item_id, self._now, pinned=pinned)

    pin, apin = twins(_pin)

    def _why(self, item_id: str, *, user_id: str) -> Flow[list[SourceMessage]]:
        """Returns the messages that an item is known from, none for what was said by hand; `InputError` for no item."""
        sources = yield from control.sources_of(*self._of(user_id), item_id)
        found: dict[Source, SourceMessage] = {}

        def look(conversation: Conversation) -> Flow[None]:
            yield from ()
            for source in sources:
                position = conversation.position(source.message_id)
                if source.conversation_id == conversation.scope.conversation_id:
                    found[source] = _message_of(source, None if position is None else conversation.entries[position])

        for conversation_id in dict.fromkeys(source.conversation_id for source in sources):
            yield from self._engine.recall(Scope(user_id, conversation_id), look)
        return [found[source] for source in sources]

    why, awhy = twins(_why)

    def _heartbeat(self, /, *, user_id: str, device_id: str, **opened: Any) -> Flow[ClientPresence]:  # noqa: ANN401
        """Notes what a user has open on a device, and compiles what is likely to come up in the background.

        That is: `active_conversation_id` in front, `visible_conversation_ids` (at most 100), `active_notebook_id`,
        `active_persona_id`, `path` in the application, `local_time` with its UTC offset, `idle` for a user who does
        nothing. No text has more than 2,000 characters (`InputError`).
        """
        beat = Heartbeat(device_id=device_id, **opened)
        store, user_id = self._of(user_id)
        # Compiling writes devices as well: what they expect next.
        recording = presence.record(store, user_id, beat, self._now)
        recorded = yield from locked(known.lock_of(store, user_id), recording)
        self._engine.workspace.learning.prewarm(user_id)
        return recorded

    heartbeat, aheartbeat = twins(_heartbeat)

    def _list_devices(self, *, user_id: str) -> Flow[list[ClientPresence]]:
        """Lists what a user has open, a record for each device."""
        return presence.devices(*self._of(user_id), self._now)

    list_devices, alist_devices = twins(_list_devices)

    def _prewarm(self, *, user_id: str) -> Flow[Prediction]:
        """Predicts what is likely to come up, by what a user has open, and compiles the texts of it at once."""
        return self._engine.workspace.learning.warm(require_id("user_id", user_id))

    prewarm, aprewarm = twins(_prewarm)

    def _of(self, user_id: str) -> tuple[BaseStore, str]:
        return self._engine.workspace.store, require_id("user_id", user_id)

    @property
    def _now(self) -> datetime:
        return self._engine.workspace.learning.clock()


def _by_importance(profiles: Iterable[P], now: datetime) -> list[P]:
    """Returns topics or entities with their importance now, the most important one first."""
    return sorted((as_of(profile, now) for profile in profiles), key=lambda one: (-one.importance_score, one.id))


def _message_of(source: Source, entry: Entry | None) -> SourceMessage:
    return SourceMessage(
        conversation_id=source.conversation_id,
        message_id=source.message_id,
        message=entry.message.model_copy(deep=True) if entry else None,
        changed=entry is not None and bool(source.digest) and entry.fingerprint != source.digest,
    )


class UsageBook(_Book):
    """Usage in tokens and US dollars, per conversation and per user and month (UTC), and what is left of limits.

    A pipeline has it as `usage`. It is fed by `ContextUsageHandler`, by the middleware, by `pipeline.observe_usage`,
    and by `record` where none of these sees an answer. Models without a known price count tokens only. Every method
    has an async twin. Without a user or a conversation, it raises `MissingScopeError`.

    Example:
        >>> from langchain_ctxbudget import ContextPipeline
        >>> pipeline = ContextPipeline()
        >>> usage = {"input_tokens": 1_000, "output_tokens": 200, "total_tokens": 1_200}
        >>> spent = pipeline.usage.record(usage, user_id="ada", conversation_id="c1", model="gpt-4o")
        >>> pipeline.usage.of_session(user_id="ada", conversation_id="c1").total_tokens
        1200
    """

    def _record(
        self, usage_metadata: Mapping[str, Any], *, user_id: str, conversation_id: str, model: str | None = None
    ) -> Flow[Usage]:
        """Counts the usage of an answer, of the pipeline's model or another one, and returns it once it is written.

        Raises `InputError` where it is no usage, and what the store raised. It is counted all the same then and
        written later: do not record it again.
        """
        scope, engine = Scope(user_id, conversation_id), self._engine
        return engine.workspace.bookkeeping.record(scope, usage_metadata, model or engine.target.model_name)

    record, arecord = twins(_record)

    def _of_session(self, *, user_id: str, conversation_id: str) -> Flow[Usage]:
        """Returns the usage of a conversation."""
        session, _ = yield from self._engine.workspace.bookkeeping.used(Scope(user_id, conversation_id))
        return session

    of_session, aof_session = twins(_of_session)

    def _of_month(self, *, user_id: str, month: str | None = None) -> Flow[Usage]:
        """Returns the usage of a user in a month (this one, or such as `2026-11`; else `InputError`).

        It is that of all conversations, also of those that were deleted since.
        """
        workspace = self._engine.workspace
        books = workspace.bookkeeping
        return books.ledger.of_month(workspace.store, user_id, month or month_of(books.clock()))

    of_month, aof_month = twins(_of_month)

    def _standing(
        self, *, user_id: str, conversation_id: str, limits: UsageLimits | Mapping[str, Any] | None = None
    ) -> Flow[Standing | None]:
        """Returns how much is left of the most restrictive limit; None where none is set.

        The limits are the pipeline's, under what the user has saved, where none are given; `InvalidSettingsError` for
        something else.
        """
        scope, workspace = Scope(user_id, conversation_id), self._engine.workspace
        if limits is None:
            saved = yield from read_settings(workspace.store, settings_place(user_id, None))
            limits = merged(workspace.settings, {"user": saved}, None, failures=[])[0].usage_limits
        if limits is None:
            return None
        return standing(UsageLimits.of(limits), amounts(*(yield from workspace.bookkeeping.used(scope))))

    standing, astanding = twins(_standing)


class SnapshotBook(_Book):
    """The reports of earlier prompts, where `keep_snapshots` says that they are kept.

    A pipeline has it as `snapshots`. They are written in the background, so the newest may be missing for a moment
    (`pipeline.flush()` waits for it). Every method has an async twin. Without a user or a conversation, it raises
    `MissingScopeError`.

    Example:
        >>> from langchain_ctxbudget import ContextPipeline
        >>> pipeline = ContextPipeline({"keep_snapshots": 10})
        >>> for question in ("Hello", "Hello again"):
        ...     context = pipeline.assemble(question, user_id="ada", conversation_id="c1")
        >>> pipeline.flush()
        True
        >>> [one.report.total_tokens for one in pipeline.snapshots.list(user_id="ada", conversation_id="c1")]
        [8, 9]
    """

    def _latest(self, *, user_id: str, conversation_id: str) -> Flow[ContextSnapshot | None]:
        """Returns the newest snapshot of a conversation; None where there is none."""
        found = yield from self._list(user_id=user_id, conversation_id=conversation_id, limit=1)
        return found[0] if found else None

    latest, alatest = twins(_latest)

    def _get(self, snapshot_id: str, *, user_id: str, conversation_id: str) -> Flow[ContextSnapshot | None]:
        """Returns one snapshot; None where the conversation has none of this id."""
        scope = Scope(user_id, conversation_id)
        [found] = yield from batch(self._engine.workspace.store, [GetOp(scope.namespace(SNAPSHOTS), snapshot_id)])
        return ContextSnapshot.of_item(scope, found) if isinstance(found, Item) else None

    get, aget = twins(_get)

    def _list(self, *, user_id: str, conversation_id: str, limit: int = MOST_SNAPSHOTS) -> Flow[Snapshots]:
        """Returns the newest snapshots of a conversation, oldest first, at most `limit`; `InputError` for no count."""
        scope = Scope(user_id, conversation_id)
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise InputError(f"limit must be a whole number of at least 1, not {limit!r}")
        items = yield from read_snapshot_items(self._engine.workspace.store, scope)
        return [ContextSnapshot.of_item(scope, item) for item in items[-limit:]]

    list, alist = twins(_list)
