"""`pipeline.knowledge`: what is known about users, listed, edited and traced, and presence."""

from typing import Any

from langchain_ctxbudget.errors import checks_names
from langchain_ctxbudget.flow import adrive, drive
from langchain_ctxbudget.knowledge import records
from langchain_ctxbudget.knowledge.control_flows import (
    ControlFlows,
    KnownItem,
    KnownLine,
    SourceMessage,
)
from langchain_ctxbudget.knowledge.learning import Learning
from langchain_ctxbudget.knowledge.records import EntityProfile, Fact, TopicProfile
from langchain_ctxbudget.knowledge.standing_rules import StandingRule


@checks_names()
class UserKnowledge:
    """Rules, facts, topics and entities of users, where they come from, and presence.

    They are learned in the background and can be changed by hand here; a pipeline has this as
    `knowledge`. A change by hand shows in every conversation at its next turn, and nothing that is
    learned later overrides its text. Every method has an awaitable form, whose name begins with an
    `a`. Without a user, every method raises `MissingScopeError`.

    Example:
        >>> from langchain_ctxbudget import ContextPipeline
        >>> pipeline = ContextPipeline()
        >>> fact = pipeline.knowledge.add_fact(
        ...     "Lives in Lisbon", category="identity", user_id="ada"
        ... )
        >>> [fact.text for fact in pipeline.knowledge.list_facts(user_id="ada")]
        ['Lives in Lisbon']
    """

    def __init__(self, learning: Learning) -> None:
        self._flows = ControlFlows(learning)

    # Lists

    def list_facts(self, *, user_id: str, include_ended: bool = False) -> list[Fact]:
        """Lists the facts about a user in the order in which prompts show them.

        Args:
            user_id: The user.
            include_ended: Whether facts that have ended follow, the one that ended last first.
        """
        return drive(self._flows.list_facts(user_id, include_ended=include_ended))

    async def alist_facts(self, *, user_id: str, include_ended: bool = False) -> list[Fact]:
        """Lists the facts about a user; see `list_facts`."""
        return await adrive(self._flows.list_facts(user_id, include_ended=include_ended))

    def list_rules(self, *, user_id: str) -> list[StandingRule]:
        """Lists the standing rules of a user that hold in all conversations, in order of time.

        Those of one conversation are listed, added and lifted there: `Chat.rules`.
        """
        return drive(self._flows.list_rules(user_id))

    async def alist_rules(self, *, user_id: str) -> list[StandingRule]:
        """Lists the standing rules of a user; see `list_rules`."""
        return await adrive(self._flows.list_rules(user_id))

    def list_topics(self, *, user_id: str) -> list[TopicProfile]:
        """Lists the topics of a user, the most important one first."""
        return drive(self._flows.list_topics(user_id))

    async def alist_topics(self, *, user_id: str) -> list[TopicProfile]:
        """Lists the topics of a user; see `list_topics`."""
        return await adrive(self._flows.list_topics(user_id))

    def list_entities(self, *, user_id: str) -> list[EntityProfile]:
        """Lists a user's people, projects, organisations, tools and concepts.

        The most important one comes first.
        """
        return drive(self._flows.list_entities(user_id))

    async def alist_entities(self, *, user_id: str) -> list[EntityProfile]:
        """Lists the people and things of a user; see `list_entities`."""
        return await adrive(self._flows.list_entities(user_id))

    def list_bundles(self, *, user_id: str) -> list[records.ContextBundle]:
        """Lists the texts compiled from a user's knowledge, by id.

        Each tells how many prompts could use it as it was, and how many could not.
        """
        return drive(self._flows.list_bundles(user_id))

    async def alist_bundles(self, *, user_id: str) -> list[records.ContextBundle]:
        """Lists the texts compiled from a user's knowledge; see `list_bundles`."""
        return await adrive(self._flows.list_bundles(user_id))

    def list_known(self, *, user_id: str) -> list[KnownLine]:
        """Lists everything that is known of a user as lines to read.

        Rules that hold everywhere come first, then facts, then topics, then people and things.
        """
        return drive(self._flows.list_known(user_id))

    async def alist_known(self, *, user_id: str) -> list[KnownLine]:
        """Lists everything that is known of a user as lines to read; see `list_known`."""
        return await adrive(self._flows.list_known(user_id))

    def describe(self, *, user_id: str) -> str:
        """Returns all that is known of a user as a text, with the days on which it was said."""
        return drive(self._flows.describe(user_id))

    async def adescribe(self, *, user_id: str) -> str:
        """Returns all that is known of a user as a text; see `describe`."""
        return await adrive(self._flows.describe(user_id))

    def why(self, item_id: str, *, user_id: str) -> list[SourceMessage]:
        """Returns the messages that an item was learned from; none for one by hand.

        Args:
            item_id: The id of a rule that holds everywhere, a fact, also one that has ended, a
                topic or an entity.
            user_id: The user.

        Raises:
            InputError: There is no such item.
        """
        return drive(self._flows.why(item_id, user_id))

    async def awhy(self, item_id: str, *, user_id: str) -> list[SourceMessage]:
        """Returns the messages that an item was learned from; see `why`."""
        return await adrive(self._flows.why(item_id, user_id))

    # Changes by hand

    def add_fact(
        self,
        text: str,
        *,
        user_id: str,
        category: records.FactCategory = "preference",
        confidence: float = 1.0,
        slot: str = "",
        memory_type: records.MemoryType | None = None,
    ) -> Fact:
        """Adds a fact by hand, such as "Lives in Lisbon"; facts that it contradicts are superseded.

        Args:
            text: The fact, without a subject, in at most 2,000 characters.
            user_id: The user.
            category: What kind of fact it is: "project", "preference" or "identity".
            confidence: How sure it is, above 0, up to 1.
            slot: The question that it answers, such as "home": another value of it supersedes this
                one.
            memory_type: How much it counts where facts are sought: "core", "explicit" (as a fact by
                hand does without it) or "experience".

        Raises:
            InputError: A value is outside its range.
        """
        flow = self._flows.add_fact(
            text,
            user_id,
            category=category,
            confidence=confidence,
            slot=slot,
            memory_type=memory_type,
        )
        return drive(flow)

    async def aadd_fact(
        self,
        text: str,
        *,
        user_id: str,
        category: records.FactCategory = "preference",
        confidence: float = 1.0,
        slot: str = "",
        memory_type: records.MemoryType | None = None,
    ) -> Fact:
        """Adds a fact by hand; see `add_fact`."""
        flow = self._flows.add_fact(
            text,
            user_id,
            category=category,
            confidence=confidence,
            slot=slot,
            memory_type=memory_type,
        )
        return await adrive(flow)

    def add_topic(self, /, label: str, *, user_id: str, **fields: Any) -> TopicProfile:  # noqa: ANN401
        """Adds a topic by hand; its text is shown whole while a prompt has room for it.

        Args:
            label: Its name.
            user_id: The user.
            fields: Its other fields, as `edit` takes them.

        Raises:
            InputError: There is a topic of this name, no such field, or a value does not fit.
        """
        return drive(self._flows.add_topic(label, user_id, fields))

    async def aadd_topic(self, /, label: str, *, user_id: str, **fields: Any) -> TopicProfile:  # noqa: ANN401
        """Adds a topic by hand; see `add_topic`."""
        return await adrive(self._flows.add_topic(label, user_id, fields))

    def add_entity(self, /, name: str, *, user_id: str, **fields: Any) -> EntityProfile:  # noqa: ANN401
        """Adds a person or a thing by hand; its text is shown whole while there is room for it.

        Args:
            name: Its name.
            user_id: The user.
            fields: Its other fields, as `edit` takes them.

        Raises:
            InputError: There is one of this name and type, no such field, or a value does not fit.
        """
        return drive(self._flows.add_entity(name, user_id, fields))

    async def aadd_entity(self, /, name: str, *, user_id: str, **fields: Any) -> EntityProfile:  # noqa: ANN401
        """Adds a person or a thing by hand; see `add_entity`."""
        return await adrive(self._flows.add_entity(name, user_id, fields))

    def edit(self, /, item_id: str, *, user_id: str, **changes: Any) -> KnownItem:  # noqa: ANN401
        """Changes fields of a fact, a topic or an entity by hand, and returns it as it is then.

        Args:
            item_id: The id of the item.
            user_id: The user.
            changes: Of a fact: `text`, `category`, `confidence`, `memory_type`. Of a topic:
                `label`, `aliases`, `parent_slug`, `domain`, `proficiency_level`,
                `compiled_context`. Of an entity: `name`, `type`, `aliases`, `relationship`,
                `facts`, `attributes`, `relations`, `compiled_context`. `text` of a topic is its
                label, of an entity its name.

        Raises:
            InputError: There is no such item, no such field, or a value does not fit.
        """
        return drive(self._flows.edit(item_id, user_id, changes))

    async def aedit(self, /, item_id: str, *, user_id: str, **changes: Any) -> KnownItem:  # noqa: ANN401
        """Changes fields of a fact, a topic or an entity by hand; see `edit`."""
        return await adrive(self._flows.edit(item_id, user_id, changes))

    def delete(self, item_id: str, *, user_id: str) -> None:
        """Forgets a fact, a topic or an entity; its messages stay. A rule is lifted.

        Raises:
            InputError: There is no such item.
        """
        drive(self._flows.delete(item_id, user_id))

    async def adelete(self, item_id: str, *, user_id: str) -> None:
        """Forgets a fact, a topic or an entity; see `delete`."""
        await adrive(self._flows.delete(item_id, user_id))

    def clear(self, *, user_id: str) -> None:
        """Forgets everything that is known of a user.

        Conversations stay, and are not learned from once more. The rules that their messages state
        hold in them alone from then on.
        """
        drive(self._flows.clear(user_id))

    async def aclear(self, *, user_id: str) -> None:
        """Forgets everything that is known of a user; see `clear`."""
        await adrive(self._flows.clear(user_id))

    def pin(self, item_id: str, *, user_id: str, pinned: bool = True) -> KnownItem:
        """Keeps a fact, a topic or an entity whatever happens, and shows it first.

        Args:
            item_id: The id of the item.
            user_id: The user.
            pinned: False to take its pin.

        Raises:
            FactError: 10 facts are pinned already.
            InputError: There is no such item.
        """
        return drive(self._flows.pin(item_id, user_id, pinned=pinned))

    async def apin(self, item_id: str, *, user_id: str, pinned: bool = True) -> KnownItem:
        """Keeps a fact, a topic or an entity whatever happens; see `pin`."""
        return await adrive(self._flows.pin(item_id, user_id, pinned=pinned))

    # Presence

    def heartbeat(
        self,
        /,
        *,
        user_id: str,
        device_id: str,
        **opened: Any,  # noqa: ANN401
    ) -> records.ClientPresence:
        """Notes what a user has open on a device, and predicts the topics and entities to come.

        Their texts are compiled, and a conversation in front is read in the background, so that
        prompts find everything prepared.

        Args:
            user_id: The user.
            device_id: The device.
            opened: `active_conversation_id` in front, `visible_conversation_ids` (at most 100),
                `active_notebook_id`, `active_persona_id`, `path` in the application, `local_time`
                with its UTC offset, and `idle` for a user who does nothing, which ends the session
                of the conversation in front. No text has more than 2,000 characters.

        Raises:
            InputError: There is no such field, or a value does not fit.
        """
        return drive(self._flows.heartbeat(user_id, device_id, opened))

    async def aheartbeat(
        self,
        /,
        *,
        user_id: str,
        device_id: str,
        **opened: Any,  # noqa: ANN401
    ) -> records.ClientPresence:
        """Notes what a user has open on a device; see `heartbeat`."""
        return await adrive(self._flows.heartbeat(user_id, device_id, opened))

    def list_devices(self, *, user_id: str) -> list[records.ClientPresence]:
        """Lists what a user has open, a record for each device."""
        return drive(self._flows.list_devices(user_id))

    async def alist_devices(self, *, user_id: str) -> list[records.ClientPresence]:
        """Lists what a user has open on each device; see `list_devices`."""
        return await adrive(self._flows.list_devices(user_id))
