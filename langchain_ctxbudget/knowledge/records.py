"""What is known about a user, as it is kept: the models of seed 000 and the facts of seed 001.

All of it is derived from conversations, but for what the user or the application changed by hand. Times are UTC.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from langchain_ctxbudget.stores.records import Record

FactCategory = Literal["project", "preference", "identity"]
Ending = Literal["superseded", "expired", "evicted"]
EntityType = Literal["person", "project", "organization", "tool", "concept"]
Domain = Literal["engineering", "personal", "creative", "business"]
Proficiency = Literal["unknown", "beginner", "intermediate", "expert"]
BundleType = Literal["identity_core", "global_prefs", "topic", "entity", "conversation", "composite"]

BY_RULES, BY_USER = "rules", "user"
"""Who made an item; else the name of the model."""
MOST_SOURCES = 20
"""Messages that an item remembers to come from; of more, the first and the newest ones."""


class Source(Record):
    """A message that an item comes from."""

    conversation_id: str
    message_id: str
    digest: str = ""
    """A fingerprint of what the message said: another one means that it was edited since."""


class Fact(Record):
    """Something that is known about the user (seed 001, `MemoryFact`).

    Example:
        >>> from datetime import UTC, datetime
        >>> now = datetime(2026, 1, 1, tzinfo=UTC)
        >>> Fact(id="f1", text="Lives in Lisbon", category="identity", created_at=now, last_seen=now).is_current
        True
    """

    id: str
    text: str
    """About the user, without a subject: "Prefers direct answers", "Lives in Lisbon"."""
    category: FactCategory
    confidence: float = 0.8
    """Above 0, up to 1."""
    pinned: bool = False
    slot: str = ""
    """What it is a value of ("home", "favourite colour"): a newer value supersedes it. Empty: of nothing in
    particular."""
    sources: tuple[Source, ...] = ()
    made_by: str = BY_RULES
    created_at: datetime
    last_seen: datetime
    """When it was said last."""
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    """When it stopped being true, or will; None: not known."""
    ended: Ending | None = None
    """Why it is no longer current."""
    ended_at: datetime | None = None
    superseded_by: str | None = None
    """The id of the fact that stands in its place; of a current one, that will from its `valid_until` on."""

    @property
    def is_current(self) -> bool:
        """Whether it still counts."""
        return self.ended is None


class TopicConversation(Record):
    """What a conversation has to do with a topic (seed 000): absolute numbers, so that adding up is idempotent."""

    topic_id: str
    """The id of the topic, or of the entity."""
    conversation_id: str
    relevance_score: float = 0.5
    """Share of the conversation's messages that are about it, 0 to 1."""
    messages: int = 0
    """Messages that name it."""
    exchanges: int = 0
    """Of these, the user's: each begins an exchange (an ACU, atomic chat unit)."""
    tokens: int = 0
    """What these messages cost."""
    sentiment: float = 0.0
    """The sum over its messages of -1, 0 or 1 each."""
    first_at: datetime | None = None
    last_at: datetime | None = None
    hours: tuple[int, ...] = ()
    """Its messages by hour of the day, 24 numbers; empty where no message has a time."""
    days: tuple[str, ...] = ()
    """The newest days on which it came up, `YYYY-MM-DD`, in order."""
    until: int = 0
    """Messages of the conversation that were counted: their number from its beginning."""


class Highlight(Record):
    """A sentence that the user said about a topic."""

    text: str
    date: str | None = None
    """`YYYY-MM-DD`."""
    source: Source


class TopicProfile(Record):
    """A topic that a user comes back to (seed 000).

    Example:
        >>> TopicProfile(id="topic/home-brewing", slug="home-brewing", label="Home brewing").is_dirty
        True
    """

    id: str
    """`topic/` and the slug."""
    slug: str
    label: str
    aliases: tuple[str, ...] = ()
    parent_slug: str | None = None
    domain: Domain = "personal"
    total_conversations: int = 0
    total_acus: int = 0
    """Exchanges about it."""
    total_messages: int = 0
    total_tokens_spent: int = 0
    avg_session_depth: float = 0.0
    """Messages per conversation."""
    first_engaged_at: datetime | None = None
    last_engaged_at: datetime | None = None
    engagement_streak: int = 0
    """Days in a row, up to the last one, on which it came up."""
    peak_hour: int | None = None
    """0 to 23."""
    proficiency_level: Proficiency = "unknown"
    proficiency_signals: tuple[str, ...] = ()
    importance_score: float = 0.5
    """0 to 1."""
    pinned: bool = False
    compiled_context: str | None = None
    """What the user or the application said should be known when it comes up; the bundle begins with it."""
    context_version: int = 0
    is_dirty: bool = True
    """Whether its bundle is to be compiled again."""
    embedding: tuple[float, ...] = ()
    embedding_model: str | None = None
    related_memory_ids: tuple[str, ...] = ()
    """Facts about it."""
    highlights: tuple[Highlight, ...] = ()
    """What was said about it last, newest at the end."""
    related_acu_ids: tuple[str, ...] = ()
    """Its newest messages, each `conversation/message`."""
    sources: tuple[Source, ...] = ()
    made_by: str = BY_RULES
    created_at: datetime | None = None
    updated_at: datetime | None = None


class Relation(Record):
    """How an entity is related to another one."""

    relation: str
    """"works at", "married to"."""
    target: str
    """The name of the other one."""


class EntityDetails(Record):
    """What of an entity may be learned as well as said by hand."""

    relationship: str | None = None
    aliases: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    relations: tuple[Relation, ...] = ()


class EntityProfile(Record):
    """A person, project, organisation, tool or concept that a user speaks of (seed 000; attributes of seed 004).

    Example:
        >>> EntityProfile(id="entity/person/sarah", name="Sarah", type="person", relationship="cofounder").name
        'Sarah'
    """

    id: str
    """`entity/`, the type and the folded name."""
    name: str
    type: EntityType = "concept"
    aliases: tuple[str, ...] = ()
    relationship: str | None = None
    """To the user: "cofounder", "sister"."""
    sentiment: float = 0.0
    """-1 to 1, the mean of its messages."""
    facts: tuple[str, ...] = ()
    """What was said about it, newest last."""
    attributes: tuple[tuple[str, str], ...] = ()
    """Name and value, in the order in which they were learned."""
    relations: tuple[Relation, ...] = ()
    mention_count: int = 0
    conversation_count: int = 0
    first_mentioned_at: datetime | None = None
    last_mentioned_at: datetime | None = None
    importance_score: float = 0.5
    pinned: bool = False
    compiled_context: str | None = None
    """What the user or the application said should be known about it; the bundle begins with it."""
    context_version: int = 0
    is_dirty: bool = True
    embedding: tuple[float, ...] = ()
    embedding_model: str | None = None
    sources: tuple[Source, ...] = ()
    made_by: str = BY_RULES
    by_hand: EntityDetails = EntityDetails()
    """What of the above was said by hand; the rest was learned."""
    created_at: datetime | None = None
    updated_at: datetime | None = None


class ContextBundle(Record):
    """A text that is compiled before it is needed (seed 000).

    Example:
        >>> from datetime import UTC, datetime
        >>> now = datetime(2026, 1, 1, tzinfo=UTC)
        >>> bundle = ContextBundle(
        ...     id="topic/cycling", bundle_type="topic", compiled_prompt="Cycling", token_count=2, compiled_at=now
        ... )
        >>> bundle.version
        1
    """

    id: str
    """That of the topic or entity; else the type and whose it is."""
    bundle_type: BundleType
    topic_profile_id: str | None = None
    entity_profile_id: str | None = None
    conversation_id: str | None = None
    persona_id: str | None = None
    compiled_prompt: str
    compressed_prompt: str = ""
    """A line of it, for when the whole does not fit."""
    token_count: int
    compressed_token_count: int = 0
    composition: tuple[str, ...] = ()
    """The ids of what it was made of: facts, topics, entities, messages."""
    version: int = 1
    is_dirty: bool = False
    priority: float = 0.5
    compiled_at: datetime
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    use_count: int = 0
    hit_count: int = 0
    miss_count: int = 0


class Visit(Record):
    """A place of the application that a user has been to."""

    path: str
    at: datetime


class ClientPresence(Record):
    """What a user has open on one device (seed 000)."""

    device_id: str
    active_conversation_id: str | None = None
    visible_conversation_ids: tuple[str, ...] = ()
    active_notebook_id: str | None = None
    active_persona_id: str | None = None
    last_navigation_path: str | None = None
    navigation_history: tuple[Visit, ...] = ()
    local_time: datetime | None = None
    """With the device's own UTC offset."""
    session_started_at: datetime
    idle_since: datetime | None = None
    predicted_topics: tuple[str, ...] = ()
    """Ids, most likely first."""
    predicted_entities: tuple[str, ...] = ()
    last_heartbeat_at: datetime
    is_online: bool = True


class PhraseRecord(Record):
    """A phrase that may become a topic when it comes up often enough."""

    phrase: str
    """Its stems, joined by blanks: one key for all of its forms."""
    label: str
    """As it was written first."""
    counts: tuple[tuple[str, int], ...] = ()
    """Conversations in which it came up, and how many messages have it there."""
    last_at: datetime | None = None
    sources: tuple[Source, ...] = ()


class ProgressRecord(Record):
    """How far a conversation was learned from."""

    position: int = 0
    """Messages that were read."""
    marks: tuple[tuple[int, str], ...] = ()
    """Positions, and the digest of all messages before each: the newest, and some older ones."""


class SnapshotRecord(Record):
    """What a conversation shows of the facts, until it is renewed."""

    facts: tuple[tuple[str, str], ...] = ()
    """The id of each, and a fingerprint of its text: what is deleted must not live on here."""
    edited: str = ""
    """The mark of the user's last change by hand that it has taken in."""


class KnowledgeMark(Record):
    """That something has changed."""

    mark: str
    """Another one after every change."""
    edited: str = ""
    """Another one after every change by hand."""
