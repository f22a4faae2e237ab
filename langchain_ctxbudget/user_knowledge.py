"""What a pipeline knows about its users, to look at and to change by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from langchain_ctxbudget.engine import Engine
from langchain_ctxbudget.flow import Flow, adrive, drive, locked
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.knowledge import control, known, presence
from langchain_ctxbudget.knowledge.control import KnownItem, SourceMessage
from langchain_ctxbudget.knowledge.presence import Heartbeat, Prediction
from langchain_ctxbudget.knowledge.profiles import as_of
from langchain_ctxbudget.knowledge.records import (
    ClientPresence,
    ContextBundle,
    EntityProfile,
    Fact,
    FactCategory,
    Source,
    TopicProfile,
)
from langchain_ctxbudget.stores.records import Scope, require_id

P = TypeVar("P", TopicProfile, EntityProfile)


class UserKnowledge:
    """Facts, topics and entities that are known about users, where they come from, and what users have open.

    It is learned in the background, and can be changed by hand here; a pipeline has it as `knowledge`. Every method
    has an async twin.

    Example:
        >>> from langchain_ctxbudget import ContextPipeline
        >>> pipeline = ContextPipeline()
        >>> fact = pipeline.knowledge.add_fact("Lives in Lisbon", category="identity", user_id="ada")
        >>> [fact.text for fact in pipeline.knowledge.list_facts(user_id="ada")]
        ['Lives in Lisbon']
    """

    def __init__(self, engine: Engine) -> None:
        """Over the store of a pipeline.

        Args:
            engine: of the pipeline.
        """
        self._engine = engine

    def list_facts(self, *, user_id: str, include_ended: bool = False) -> list[Fact]:
        """The facts about a user, in the order in which a prompt shows them.

        Args:
            user_id: whose.
            include_ended: whether those that were superseded, expired or evicted come after them, with the reason.

        Raises:
            MissingScopeError: no user.
        """
        return drive(control.read_facts(self._engine.store, _user(user_id), include_ended=include_ended))

    async def alist_facts(self, *, user_id: str, include_ended: bool = False) -> list[Fact]:
        """The facts about a user; see `list_facts`."""
        return await adrive(control.read_facts(self._engine.store, _user(user_id), include_ended=include_ended))

    def list_topics(self, *, user_id: str) -> list[TopicProfile]:
        """The topics of a user, most important first.

        Raises:
            MissingScopeError: no user.
        """
        return drive(self._topics(user_id))

    async def alist_topics(self, *, user_id: str) -> list[TopicProfile]:
        """The topics of a user; see `list_topics`."""
        return await adrive(self._topics(user_id))

    def _topics(self, user_id: str) -> Flow[list[TopicProfile]]:
        knowledge = yield from known.read(self._engine.store, _user(user_id))
        return _by_importance(knowledge.topics, self._now)

    def list_entities(self, *, user_id: str) -> list[EntityProfile]:
        """The people, projects, organisations, tools and concepts of a user, most important first.

        Raises:
            MissingScopeError: no user.
        """
        return drive(self._entities(user_id))

    async def alist_entities(self, *, user_id: str) -> list[EntityProfile]:
        """The entities of a user; see `list_entities`."""
        return await adrive(self._entities(user_id))

    def _entities(self, user_id: str) -> Flow[list[EntityProfile]]:
        knowledge = yield from known.read(self._engine.store, _user(user_id))
        return _by_importance(knowledge.entities, self._now)

    def list_bundles(self, *, user_id: str) -> list[ContextBundle]:
        """The texts that are compiled of what is known about a user, by id.

        Raises:
            MissingScopeError: no user.
        """
        return drive(self._bundles(user_id))

    async def alist_bundles(self, *, user_id: str) -> list[ContextBundle]:
        """The compiled texts of a user; see `list_bundles`."""
        return await adrive(self._bundles(user_id))

    def _bundles(self, user_id: str) -> Flow[list[ContextBundle]]:
        knowledge = yield from known.read(self._engine.store, _user(user_id))
        return [knowledge.bundles[key] for key in sorted(knowledge.bundles)]

    def add_fact(
        self,
        text: str,
        *,
        user_id: str,
        category: FactCategory = "preference",
        confidence: float = 1.0,
        pinned: bool = False,
        slot: str = "",
    ) -> Fact:
        """Say something about a user by hand; what it contradicts is superseded.

        Args:
            text: without a subject, as in "Lives in Lisbon".
            user_id: whom it is about.
            category: `"project"`, `"preference"` or `"identity"`.
            confidence: above 0, up to 1.
            pinned: whether it is kept and shown first in any case.
            slot: what it is a value of, as "home": another value of it supersedes this one.

        Raises:
            FactError: 10 facts are pinned already.
            InputError: no text, or a value outside its range.
            MissingScopeError: no user.
        """
        return drive(self._add(text, user_id, category, confidence=confidence, pinned=pinned, slot=slot))

    async def aadd_fact(
        self,
        text: str,
        *,
        user_id: str,
        category: FactCategory = "preference",
        confidence: float = 1.0,
        pinned: bool = False,
        slot: str = "",
    ) -> Fact:
        """Say something about a user by hand; see `add_fact`."""
        return await adrive(self._add(text, user_id, category, confidence=confidence, pinned=pinned, slot=slot))

    def _add(
        self, text: str, user_id: str, category: FactCategory, *, confidence: float, pinned: bool, slot: str
    ) -> Flow[Fact]:
        return control.add_fact(
            self._engine.store,
            _user(user_id),
            text,
            category,
            self._now,
            confidence=confidence,
            pinned=pinned,
            slot=slot,
        )

    def edit(self, item_id: str, *, user_id: str, **changes: Any) -> KnownItem:  # noqa: ANN401 - fields of any kind
        """Change a fact, a topic or an entity by hand.

        Args:
            item_id: which one.
            user_id: whose.
            **changes: of a fact `text`, `category`, `confidence`, `slot`, `valid_from`, `valid_until`; of a topic
                `label`, `aliases`, `parent_slug`, `domain`, `proficiency_level`, `compiled_context`; of an entity
                `name`, `type`, `aliases`, `relationship`, `facts`, `attributes`, `relations`, `compiled_context`.

        Returns:
            the item as it is now.

        Raises:
            InputError: there is no such item, no such field, or a value that does not fit.
            MissingScopeError: no user.
        """
        return drive(control.edit(self._engine.store, _user(user_id), item_id, changes, self._now))

    async def aedit(self, item_id: str, *, user_id: str, **changes: Any) -> KnownItem:  # noqa: ANN401
        """Change a fact, a topic or an entity by hand; see `edit`."""
        return await adrive(control.edit(self._engine.store, _user(user_id), item_id, changes, self._now))

    def delete(self, item_id: str, *, user_id: str) -> None:
        """Forget a fact, a topic or an entity; the messages that it comes from stay.

        Raises:
            InputError: there is no such item.
            MissingScopeError: no user.
        """
        drive(control.delete(self._engine.store, _user(user_id), item_id, self._now))

    async def adelete(self, item_id: str, *, user_id: str) -> None:
        """Forget a fact, a topic or an entity; see `delete`."""
        await adrive(control.delete(self._engine.store, _user(user_id), item_id, self._now))

    def pin(self, item_id: str, *, user_id: str, pinned: bool = True) -> KnownItem:
        """Keep a fact, a topic or an entity whatever happens, and show it first; or no longer.

        Args:
            item_id: which one.
            user_id: whose.
            pinned: False takes it back.

        Raises:
            FactError: 10 facts are pinned already.
            InputError: there is no such item.
            MissingScopeError: no user.
        """
        return drive(control.pin(self._engine.store, _user(user_id), item_id, self._now, pinned=pinned))

    async def apin(self, item_id: str, *, user_id: str, pinned: bool = True) -> KnownItem:
        """Keep a fact, a topic or an entity whatever happens; see `pin`."""
        return await adrive(control.pin(self._engine.store, _user(user_id), item_id, self._now, pinned=pinned))

    def why(self, item_id: str, *, user_id: str) -> list[SourceMessage]:
        """The messages that a fact, a topic or an entity is known from; none for what was said by hand.

        Raises:
            InputError: there is no such item.
            MissingScopeError: no user.
        """
        return drive(self._why(item_id, user_id))

    async def awhy(self, item_id: str, *, user_id: str) -> list[SourceMessage]:
        """The messages that something is known from; see `why`."""
        return await adrive(self._why(item_id, user_id))

    def _why(self, item_id: str, user_id: str) -> Flow[list[SourceMessage]]:
        sources = yield from control.sources_of(self._engine.store, _user(user_id), item_id)
        found: dict[tuple[str, str], SourceMessage] = {}
        for conversation_id in dict.fromkeys(source.conversation_id for source in sources):
            own = [source for source in sources if source.conversation_id == conversation_id]
            messages = yield from self._engine.recall(Scope(user_id, conversation_id), _finding(own))
            found |= {(one.conversation_id, one.message_id): one for one in messages}
        return [found[source.conversation_id, source.message_id] for source in sources]

    def heartbeat(
        self,
        *,
        user_id: str,
        device_id: str,
        active_conversation_id: str | None = None,
        visible_conversation_ids: Sequence[str] = (),
        active_notebook_id: str | None = None,
        active_persona_id: str | None = None,
        path: str | None = None,
        local_time: datetime | None = None,
        idle: bool = False,
    ) -> ClientPresence:
        """Say what a user has open on a device, and have what is likely to come up compiled in the background.

        Args:
            user_id: whose device.
            device_id: which one.
            active_conversation_id: the conversation in front.
            visible_conversation_ids: all that can be seen.
            active_notebook_id: the notebook in front.
            active_persona_id: the persona that is talked to.
            path: where in the application the user is.
            local_time: the device's own time, with its UTC offset.
            idle: whether the user is not doing anything.

        Raises:
            InputError: no device, more than 100 visible conversations, a text of more than 2,000 characters, a local
                time without its UTC offset, or a value of another type.
            MissingScopeError: no user.
        """
        beat = Heartbeat(
            device_id=device_id,
            active_conversation_id=active_conversation_id,
            visible_conversation_ids=visible_conversation_ids,
            active_notebook_id=active_notebook_id,
            active_persona_id=active_persona_id,
            path=path,
            local_time=local_time,
            idle=idle,
        )
        return drive(self._beat(user_id, beat))

    async def aheartbeat(
        self,
        *,
        user_id: str,
        device_id: str,
        active_conversation_id: str | None = None,
        visible_conversation_ids: Sequence[str] = (),
        active_notebook_id: str | None = None,
        active_persona_id: str | None = None,
        path: str | None = None,
        local_time: datetime | None = None,
        idle: bool = False,
    ) -> ClientPresence:
        """Say what a user has open on a device; see `heartbeat`."""
        beat = Heartbeat(
            device_id=device_id,
            active_conversation_id=active_conversation_id,
            visible_conversation_ids=visible_conversation_ids,
            active_notebook_id=active_notebook_id,
            active_persona_id=active_persona_id,
            path=path,
            local_time=local_time,
            idle=idle,
        )
        return await adrive(self._beat(user_id, beat))

    def _beat(self, user_id: str, beat: Heartbeat) -> Flow[ClientPresence]:
        store = self._engine.store
        # Whoever compiles writes devices, too: what they expect next.
        alone = locked(known.lock_of(store, _user(user_id)), presence.record(store, user_id, beat, self._now))
        recorded = yield from alone
        self._engine.learning.prewarm(user_id)
        return recorded

    def list_devices(self, *, user_id: str) -> list[ClientPresence]:
        """What a user has open, a record for each device.

        Raises:
            MissingScopeError: no user.
        """
        return drive(presence.devices(self._engine.store, _user(user_id), self._now))

    async def alist_devices(self, *, user_id: str) -> list[ClientPresence]:
        """What a user has open; see `list_devices`."""
        return await adrive(presence.devices(self._engine.store, _user(user_id), self._now))

    def prewarm(self, *, user_id: str) -> Prediction:
        """Predict what is likely to come up, by what a user has open, and compile the texts of it, now.

        Raises:
            MissingScopeError: no user.
        """
        return drive(self._engine.learning.warm(_user(user_id)))

    async def aprewarm(self, *, user_id: str) -> Prediction:
        """Predict what is likely to come up; see `prewarm`."""
        return await adrive(self._engine.learning.warm(_user(user_id)))

    @property
    def _now(self) -> datetime:
        return self._engine.learning.clock()


def _user(user_id: str) -> str:
    return require_id("user_id", user_id)


def _by_importance(profiles: Iterable[P], now: datetime) -> list[P]:
    """Topics or entities as important as they are now, the most important one first."""
    return sorted((as_of(profile, now) for profile in profiles), key=lambda one: (-one.importance_score, one.id))


def _finding(sources: Sequence[Source]) -> Callable[[Conversation], Flow[list[SourceMessage]]]:
    def body(conversation: Conversation) -> Flow[list[SourceMessage]]:
        yield from ()
        found = []
        for source in sources:
            position = conversation.positions.get(source.message_id)
            entry = conversation.entries[position] if position is not None else None
            found.append(
                SourceMessage(
                    conversation_id=source.conversation_id,
                    message_id=source.message_id,
                    message=entry.message.model_copy(deep=True) if entry else None,
                    changed=entry is not None and bool(source.digest) and entry.fingerprint != source.digest,
                )
            )
        return found

    return body
