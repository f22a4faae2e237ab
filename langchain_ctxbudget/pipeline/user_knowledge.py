"""The knowledge of a pipeline about its users, to look at and to change by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from langgraph.store.base import BaseStore

from langchain_ctxbudget.flow import Flow, adrive, drive, locked
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.knowledge import control, known, presence
from langchain_ctxbudget.knowledge.control import KnownItem, SourceMessage
from langchain_ctxbudget.knowledge.known import Knowledge
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
from langchain_ctxbudget.pipeline.engine import Engine
from langchain_ctxbudget.stores.records import Scope, require_id

P = TypeVar("P", TopicProfile, EntityProfile)


class UserKnowledge:
    """Facts, topics and entities that are known about users, where they come from, and what users have open.

    It is learned in the background and can be changed by hand here; a pipeline has it as `knowledge`. Every method has
    an async twin. Without a user, every method raises `MissingScopeError`.

    Args:
        engine: of the pipeline.

    Example:
        >>> from langchain_ctxbudget import ContextPipeline
        >>> pipeline = ContextPipeline()
        >>> fact = pipeline.knowledge.add_fact("Lives in Lisbon", category="identity", user_id="ada")
        >>> [fact.text for fact in pipeline.knowledge.list_facts(user_id="ada")]
        ['Lives in Lisbon']
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def list_facts(self, *, user_id: str, include_ended: bool = False) -> list[Fact]:
        """Lists the facts about a user in the order of prompts; then, if asked for, those that have ended."""
        return drive(control.read_facts(*self._of(user_id), include_ended=include_ended))

    async def alist_facts(self, *, user_id: str, include_ended: bool = False) -> list[Fact]:
        """Lists the facts about a user; see `list_facts`."""
        return await adrive(control.read_facts(*self._of(user_id), include_ended=include_ended))

    def list_topics(self, *, user_id: str) -> list[TopicProfile]:
        """Lists the topics of a user, most important first."""
        return _by_importance(drive(self._known(user_id)).topics, self._now)

    async def alist_topics(self, *, user_id: str) -> list[TopicProfile]:
        """Lists the topics of a user; see `list_topics`."""
        return _by_importance((await adrive(self._known(user_id))).topics, self._now)

    def list_entities(self, *, user_id: str) -> list[EntityProfile]:
        """Lists the people, projects, organisations, tools and concepts of a user, most important first."""
        return _by_importance(drive(self._known(user_id)).entities, self._now)

    async def alist_entities(self, *, user_id: str) -> list[EntityProfile]:
        """Lists the entities of a user; see `list_entities`."""
        return _by_importance((await adrive(self._known(user_id))).entities, self._now)

    def list_bundles(self, *, user_id: str) -> list[ContextBundle]:
        """Lists the texts that are compiled of what is known about a user, by id."""
        return [bundle for _, bundle in sorted(drive(self._known(user_id)).bundles.items())]

    async def alist_bundles(self, *, user_id: str) -> list[ContextBundle]:
        """Lists the compiled texts of a user; see `list_bundles`."""
        return [bundle for _, bundle in sorted((await adrive(self._known(user_id))).bundles.items())]

    def _known(self, user_id: str) -> Flow[Knowledge]:
        return known.read(*self._of(user_id))

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
        """Adds a fact by hand; facts that it contradicts are superseded.

        Args:
            text: without a subject, as in "Lives in Lisbon"; at most 2,000 characters.
            user_id: the user it is about.
            category: `"project"`, `"preference"` or `"identity"`.
            confidence: above 0, up to 1.
            pinned: it is kept and shown first in any case.
            slot: the question it answers, as "home": another value of it supersedes this one.

        Raises:
            FactError: 10 facts are pinned already.
            InputError: no text, or a value outside its range.
        """
        values = {"text": text, "category": category, "confidence": confidence, "slot": slot}
        return drive(control.add_fact(*self._of(user_id), values, self._now, pinned=pinned))

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
        """Adds a fact by hand; see `add_fact`."""
        values = {"text": text, "category": category, "confidence": confidence, "slot": slot}
        return await adrive(control.add_fact(*self._of(user_id), values, self._now, pinned=pinned))

    def edit(self, item_id: str, *, user_id: str, **changes: Any) -> KnownItem:  # noqa: ANN401 - fields of any kind
        """Changes a fact, a topic or an entity by hand, and returns it as it is then.

        Args:
            item_id: the item.
            user_id: the user.
            **changes: of a fact `text`, `category`, `confidence`, `slot`, `valid_from`, `valid_until`; of a topic
                `label`, `aliases`, `parent_slug`, `domain`, `proficiency_level`, `compiled_context`; of an entity
                `name`, `type`, `aliases`, `relationship`, `facts`, `attributes`, `relations`, `compiled_context`.

        Raises:
            InputError: there is no such item, no such field, or a value that does not fit.
        """
        return drive(control.edit(*self._of(user_id), item_id, changes, self._now))

    async def aedit(self, item_id: str, *, user_id: str, **changes: Any) -> KnownItem:  # noqa: ANN401
        """Changes a fact, a topic or an entity by hand; see `edit`."""
        return await adrive(control.edit(*self._of(user_id), item_id, changes, self._now))

    def delete(self, item_id: str, *, user_id: str) -> None:
        """Forgets a fact, a topic or an entity; its messages stay. Raises `InputError` where there is none."""
        drive(control.delete(*self._of(user_id), item_id, self._now))

    async def adelete(self, item_id: str, *, user_id: str) -> None:
        """Forgets a fact, a topic or an entity; see `delete`."""
        await adrive(control.delete(*self._of(user_id), item_id, self._now))

    def pin(self, item_id: str, *, user_id: str, pinned: bool = True) -> KnownItem:
        """Keeps a fact, a topic or an entity whatever happens and shows it first; `pinned=False` takes that back.

        Raises `FactError` where 10 facts are pinned already, and `InputError` where there is no such item.
        """
        return drive(control.pin(*self._of(user_id), item_id, self._now, pinned=pinned))

    async def apin(self, item_id: str, *, user_id: str, pinned: bool = True) -> KnownItem:
        """Keeps a fact, a topic or an entity whatever happens; see `pin`."""
        return await adrive(control.pin(*self._of(user_id), item_id, self._now, pinned=pinned))

    def why(self, item_id: str, *, user_id: str) -> list[SourceMessage]:
        """Returns the messages that an item is known from, none for what was said by hand; `InputError` for no item."""
        return drive(self._why(item_id, user_id))

    async def awhy(self, item_id: str, *, user_id: str) -> list[SourceMessage]:
        """Returns the messages that an item is known from; see `why`."""
        return await adrive(self._why(item_id, user_id))

    def _why(self, item_id: str, user_id: str) -> Flow[list[SourceMessage]]:
        sources = yield from control.sources_of(*self._of(user_id), item_id)
        found: dict[Source, SourceMessage] = {}
        for conversation_id in dict.fromkeys(source.conversation_id for source in sources):
            own = [source for source in sources if source.conversation_id == conversation_id]
            found |= yield from self._engine.recall(Scope(user_id, conversation_id), _finding(own))
        return [found[source] for source in sources]

    def heartbeat(self, *, user_id: str, device_id: str, **opened: Any) -> ClientPresence:  # noqa: ANN401
        """Notes what a user has open on a device, and compiles what is likely to come up in the background.

        Args:
            user_id: the user.
            device_id: the device.
            **opened: `active_conversation_id` in front, `visible_conversation_ids` (at most 100),
                `active_notebook_id`, `active_persona_id`, `path` in the application, `local_time` with its UTC offset,
                `idle` for a user who does nothing. No text has more than 2,000 characters.

        Raises:
            InputError: one of these is missing, too long or of another type.
        """
        return drive(self._beat(user_id, Heartbeat(device_id=device_id, **opened)))

    async def aheartbeat(self, *, user_id: str, device_id: str, **opened: Any) -> ClientPresence:  # noqa: ANN401
        """Notes what a user has open on a device; see `heartbeat`."""
        return await adrive(self._beat(user_id, Heartbeat(device_id=device_id, **opened)))

    def _beat(self, user_id: str, beat: Heartbeat) -> Flow[ClientPresence]:
        store = self._engine.store
        # Compiling writes devices as well: what they expect next.
        user_lock = known.lock_of(store, require_id("user_id", user_id))
        recorded = yield from locked(user_lock, presence.record(store, user_id, beat, self._now))
        self._engine.learning.prewarm(user_id)
        return recorded

    def list_devices(self, *, user_id: str) -> list[ClientPresence]:
        """Lists what a user has open, a record for each device."""
        return drive(presence.devices(*self._of(user_id), self._now))

    async def alist_devices(self, *, user_id: str) -> list[ClientPresence]:
        """Lists what a user has open; see `list_devices`."""
        return await adrive(presence.devices(*self._of(user_id), self._now))

    def prewarm(self, *, user_id: str) -> Prediction:
        """Predicts what is likely to come up, by what a user has open, and compiles the texts of it at once."""
        return drive(self._engine.learning.warm(require_id("user_id", user_id)))

    async def aprewarm(self, *, user_id: str) -> Prediction:
        """Predicts what is likely to come up; see `prewarm`."""
        return await adrive(self._engine.learning.warm(require_id("user_id", user_id)))

    def _of(self, user_id: str) -> tuple[BaseStore, str]:
        return self._engine.store, require_id("user_id", user_id)

    @property
    def _now(self) -> datetime:
        return self._engine.learning.clock()


def _by_importance(profiles: Iterable[P], now: datetime) -> list[P]:
    """Returns topics or entities with their importance now, the most important one first."""
    return sorted((as_of(profile, now) for profile in profiles), key=lambda one: (-one.importance_score, one.id))


def _finding(sources: Sequence[Source]) -> Callable[[Conversation], Flow[dict[Source, SourceMessage]]]:
    def body(conversation: Conversation) -> Flow[dict[Source, SourceMessage]]:
        yield from ()
        found = {}
        for source in sources:
            position = conversation.position(source.message_id)
            entry = conversation.entries[position] if position is not None else None
            found[source] = SourceMessage(
                conversation_id=source.conversation_id,
                message_id=source.message_id,
                message=entry.message.model_copy(deep=True) if entry else None,
                changed=entry is not None and bool(source.digest) and entry.fingerprint != source.digest,
            )
        return found

    return body
