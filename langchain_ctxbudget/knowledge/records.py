"""The records of the knowledge about a user, their places in a store, and the values of learning.

Below `(ROOT, user, "knowledge")` every kind of record has a namespace with one item per record. The
namespace itself holds a mark that every change renews. Progress and snapshots stand with their
conversation. Nothing here gets into a vector index.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Literal, NamedTuple, TypeAlias, TypeVar

from langgraph.store.base import BaseStore, GetOp, PutOp
from pydantic import Field

from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.messages import cached_until_forgotten, fold, vocabulary
from langchain_ctxbudget.stores import ROOT, Record, bulk, label, put_of, require_id

FactCategory = Literal["project", "preference", "identity"]
MemoryType = Literal["core", "explicit", "experience"]
Ending = Literal["superseded", "expired", "evicted"]
EntityType = Literal["person", "animal", "project", "organization", "tool", "concept"]
Domain = Literal["engineering", "personal", "creative", "business"]
Proficiency = Literal["unknown", "beginner", "intermediate", "expert"]
BundleType = Literal["identity_core", "global_prefs", "topic", "entity", "composite"]
BY_RULES = "rules"
BY_USER = "user"
"""Values of `made_by`; anything else is the name of a model."""
MOST_CHARACTERS = 2_000
"""Characters of a text that an application gives, or of the name of a place."""
MOST_TEXT_CHARACTERS = 200
"""Characters of one text that is learned about a person or a thing."""
MOST_SOURCES = 20
"""Messages that an item keeps as its sources; of more, the first and the newest ones."""
ENGLISH = vocabulary("knowledge")


@cached_until_forgotten(4_096)
def _speaks_of_a_relative_day(text: str) -> bool:
    return bool(ENGLISH.relative_day.search(fold(text)))


class Source(Record):
    """A message that an item comes from."""

    conversation_id: str
    message_id: str
    digest: str = ""
    """Fingerprint of the message's text; a different one now means that it was edited since."""
    day: str = ""
    """The day of the message, `YYYY-MM-DD`, where days are counted, as those of a phrase."""

    @property
    def place(self) -> tuple[str, str]:
        """The message, whatever it says."""
        return self.conversation_id, self.message_id


def joined(old: Iterable[Source], new: Iterable[Source]) -> tuple[Source, ...]:
    """Returns old and new sources, each message once with what it says now.

    Of more than an item keeps, the first one and the newest ones stay.
    """
    by_place = {source.place: source for source in (*old, *new)}
    sources = tuple(by_place.values())
    if len(sources) <= MOST_SOURCES:
        return sources
    return (sources[0], *sources[1 - MOST_SOURCES :])


def quotation(words: str) -> str:
    """Returns the text of a fact that is the user's own words."""
    return f'"{words}"'


def is_quotation(text: str) -> bool:
    """Returns whether the text of a fact is nothing but the user's own words."""
    return len(text) > len(quotation("")) and text[0] == text[-1] == '"'


def quoted_words(text: str) -> str:
    """Returns the user's own words in the text of a fact that is a quotation."""
    return text[1:-1]


class Fact(Record):
    """A statement about the user."""

    id: str
    text: str
    """Without a subject: "Prefers direct answers", "Lives in Lisbon". Or the user's own words, in
    quotation marks."""
    category: FactCategory
    confidence: float = Field(default=0.8, gt=0, le=1, strict=True)
    pinned: bool = False
    memory_type: MemoryType | None = None
    """The type of memory that the application gave it; None: by its category."""
    slot: str = ""
    """The questions that it answers ("home", or "job, employer"), of which a newer value supersedes
    it. Empty: none."""
    sources: tuple[Source, ...] = ()
    made_by: str = BY_RULES
    created_at: datetime
    last_seen: datetime
    ended: Ending | None = None
    ended_at: datetime | None = None
    superseded_by: str | None = None

    @property
    def is_current(self) -> bool:
        """Whether the fact still counts."""
        return self.ended is None

    @property
    def is_kept_by_hand(self) -> bool:
        """Whether the user has pinned or written it."""
        return self.pinned or self.made_by == BY_USER

    @property
    def shown(self) -> str:
        """The text that a prompt shows.

        A quotation, and what speaks of "next week", is followed by the day on which it was said.
        """
        if is_quotation(self.text) or _speaks_of_a_relative_day(self.text):
            return f"{self.text} (said {self.last_seen.date().isoformat()})"
        return self.text


class RuleRecord(Record):
    """A standing rule that is stored: one that holds everywhere, or that was changed by hand.

    Those that hold in one conversation follow from its messages, and are not stored.
    """

    id: str
    text: str
    """The user's own words."""
    since: datetime | None = None
    conversation_id: str = ""
    """The conversation in which it holds, or was said; empty for one by hand that holds
    everywhere."""
    message_id: str = ""
    digest: str = ""
    """Fingerprint of its message's text."""
    holds_everywhere: bool = False
    made_by: str = BY_RULES
    added_behind: str = ""
    """The id of the last message there was when it was added by hand in a conversation."""
    lifted_at: datetime | None = None
    """When it was taken back by hand, or in another conversation."""
    lifted_in: str = ""
    """The conversation whose message takes it back; empty if it was lifted by hand."""

    @property
    def is_by_hand_or_lifted(self) -> bool:
        """True if it was added by hand, or lifted in whichever way."""
        return self.made_by == BY_USER or self.lifted_at is not None

    @property
    def is_changed_by_hand(self) -> bool:
        """True if it was added or lifted by hand."""
        return self.made_by == BY_USER or (self.lifted_at is not None and not self.lifted_in)

    @property
    def is_lifted_elsewhere(self) -> bool:
        """True if another conversation than its own takes it back."""
        return self.lifted_at is not None and self.lifted_in not in ("", self.conversation_id)

    @property
    def source(self) -> Source:
        """The message that it comes from."""
        return Source(
            conversation_id=self.conversation_id, message_id=self.message_id, digest=self.digest
        )


class TopicConversation(Record):
    """How much of a conversation is about a topic or an entity.

    The numbers are totals, so counting again is harmless.
    """

    topic_id: str
    conversation_id: str
    relevance_score: float = 0.5
    messages: int = 0
    exchanges: int = 0
    tokens: int = 0
    first_at: datetime | None = None
    last_at: datetime | None = None
    hours: tuple[int, ...] = ()
    """By hour of the day, 24 numbers; empty where no message has a time."""
    days: tuple[str, ...] = ()
    """The newest days on which it came up, `YYYY-MM-DD`, in order."""
    until: int = 0
    """Messages counted so far, from the beginning of the conversation."""


class _Profile(Record):
    """The fields that topics and entities share."""

    id: str
    aliases: tuple[str, ...] = ()
    importance_score: float = 0.5
    pinned: bool = False
    compiled_context: str | None = None
    """Text by the user or the application; the bundle begins with it."""
    embedding: tuple[float, ...] = ()
    embedding_model: str | None = None
    sources: tuple[Source, ...] = ()
    made_by: str = BY_RULES
    created_at: datetime | None = None
    updated_at: datetime | None = None
    total_conversations: int = Field(default=0, ge=0)
    total_messages: int = Field(default=0, ge=0)
    total_acus: int = 0
    total_tokens_spent: int = 0
    first_engaged_at: datetime | None = None
    last_engaged_at: datetime | None = None
    engagement_streak: int = 0
    """Days in a row, up to the last one, on which it came up."""
    peak_hour: int | None = None

    @property
    def avg_session_depth(self) -> float:
        """How many messages of a conversation are about it, on average."""
        if not self.total_conversations:
            return 0.0
        return self.total_messages / self.total_conversations


class TopicProfile(_Profile):
    """A topic that a user comes back to; its id is `topic/` and the slug."""

    slug: str
    label: str
    parent_slug: str | None = None
    domain: Domain = "personal"
    proficiency_level: Proficiency = "unknown"

    @property
    def names(self) -> tuple[str, ...]:
        """The label, then the aliases."""
        return (self.label, *self.aliases)


class EntityProfile(_Profile):
    """A person, animal, project, organisation, tool or concept that a user speaks of.

    Its id is `entity/`, the type and the folded name.
    """

    name: str
    type: EntityType = "concept"
    relationship: str | None = None
    facts: tuple[str, ...] = ()
    """Sentences about it, newest last."""
    attributes: tuple[tuple[str, str], ...] = ()
    """Name and value, in the order in which they were learned."""
    relations: tuple[tuple[str, str], ...] = ()
    """To other entities: "works at" and the name of the other one."""

    @property
    def names(self) -> tuple[str, ...]:
        """The name, then the aliases."""
        return (self.name, *self.aliases)


Profile: TypeAlias = TopicProfile | EntityProfile


class ContextBundle(Record):
    """A text compiled before it is needed; that of a topic or an entity has its id."""

    id: str
    bundle_type: BundleType
    compiled_prompt: str
    token_count: int
    made_from: str = ""
    """A digest of everything it could show; another one means that it is to be compiled again."""
    version: int = 1
    priority: float = 0.5
    compiled_at: datetime
    last_used_at: datetime | None = None
    hit_count: int = 0
    miss_count: int = 0


class ClientPresence(Record):
    """A device of a user, and what is open on it."""

    device_id: str
    active_conversation_id: str | None = None
    visible_conversation_ids: tuple[str, ...] = ()
    active_notebook_id: str | None = None
    active_persona_id: str | None = None
    navigation_history: tuple[tuple[str, datetime], ...] = ()
    """Places of the application, and when the user came there."""
    local_time: datetime | None = None
    session_started_at: datetime
    idle_since: datetime | None = None
    predicted_topics: tuple[str, ...] = ()
    predicted_entities: tuple[str, ...] = ()
    last_heartbeat_at: datetime
    is_online: bool = True

    @property
    def last_navigation_path(self) -> str | None:
        """The place in the application; None for a device that tells none."""
        if not self.navigation_history:
            return None
        path, _ = self.navigation_history[-1]
        return path


class PhraseRecord(Record):
    """A phrase that becomes a topic once it comes up often enough."""

    phrase: str
    """Its stems, joined by blanks: one key for all of its forms."""
    label: str
    sources: tuple[Source, ...] = ()


class Passage(Record):
    """What of a conversation is a game or a supposition, so that nothing was learned from it."""

    left: int = 0
    """Earlier versions wrote it; it is only read now."""
    at: datetime | None = None
    """Earlier versions wrote it; it is only read now."""
    spans: tuple[tuple[int, int], ...] = ()
    """Where its messages stand, as positions begin and end."""


NO_PASSAGE = Passage()


class ReadAhead(Record):
    """What rules have read of a conversation while its model cannot be reached.

    The model reads it later.
    """

    mark: tuple[int, str]
    """The position up to which they have read, with the digest of all messages before it."""
    passage: Passage = NO_PASSAGE
    """Earlier versions wrote it; it is only read now."""


class ProgressRecord(Record):
    """Progress of learning in a conversation."""

    at: datetime | None = None
    """When it was learned from last."""
    marks: tuple[tuple[int, str], ...] = ()
    """Positions with the digest of all messages before each, the newest last.

    What is behind the last one was not read."""
    played: bool = False
    """Earlier versions wrote it; it is only read now."""
    passage: Passage = NO_PASSAGE
    """The user's messages from which nothing was learned, as they are no statements of theirs."""
    waits_until: datetime | None = None
    """The model has failed on the messages behind the last mark, and is not asked again before this
    time."""
    failures: int = 0
    """How often in a row it has failed on them."""
    refusals: int = 0
    """How often of these its reply could not be used, or its server refused the request."""
    meanwhile: ReadAhead | None = None

    @property
    def suspended(self) -> tuple[tuple[int, int], ...]:
        """Where messages stand from which nothing was learned, as positions begin and end."""
        return self.passage.spans


class KnowledgeMark(Record):
    """A token that every change of a user's knowledge renews.

    Whoever has seen it need not read again.
    """

    mark: str
    edited: str = ""
    """A token that only changes by hand renew."""


# What is learned


class ReadMessage(NamedTuple):
    """A message to learn from."""

    id: str
    digest: str
    text: str
    from_user: bool = True
    """False: the assistant or another person says it."""
    speaker: str = ""
    at: datetime | None = None


class LearnedFact(NamedTuple):
    """Something about the user."""

    text: str
    category: FactCategory
    confidence: float = 0.8
    slot: str = ""
    message_ids: tuple[str, ...] = ()
    supersedes: tuple[str, ...] = ()
    same_as: str = ""
    """The id of the known fact that it says again, or more precisely."""
    is_uncertain: bool = False
    """It is learned only where it takes the place of a known fact: the two are evidence."""


class LearnedEntity(NamedTuple):
    """Somebody or something that was spoken of; the details are those of `EntityProfile`."""

    name: str
    type: EntityType = "concept"
    aliases: tuple[str, ...] = ()
    relationship: str = ""
    facts: tuple[str, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    relations: tuple[tuple[str, str], ...] = ()
    message_ids: tuple[str, ...] = ()


class LearnedTopic(NamedTuple):
    """A subject that was spoken about."""

    label: str
    aliases: tuple[str, ...] = ()
    parent: str = ""
    domain: Domain | Literal[""] = ""
    proficiency: Proficiency = "unknown"
    message_ids: tuple[str, ...] = ()


class Learned(NamedTuple):
    """All that came out of some messages."""

    facts: tuple[LearnedFact, ...] = ()
    entities: tuple[LearnedEntity, ...] = ()
    topics: tuple[LearnedTopic, ...] = ()
    made_by: str = BY_RULES


# Their places in a store

KNOWLEDGE = "knowledge"
LEARNING = "learning"
SNAPSHOT = "snapshot"
R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True)
class Repository(Generic[R]):
    """All records of one kind."""

    kind: str
    """The last part of their namespace."""
    record: type[R]
    key: Callable[[R], str]
    """Returns the name of a record, unique for the user."""

    def all(self, store: BaseStore, user_id: str) -> Flow[list[R]]:
        """Reads every record of a user, sorted by key.

        Raises:
            StoreDataError: One cannot be read; the message names it.
        """
        items = yield from bulk.read_all(store, (*_namespace_of(user_id), self.kind))
        found = [self.record.of_item(item) for item in items]
        return sorted((record for record in found if record is not None), key=self.key)

    def place(self, user_id: str, name: str) -> GetOp:
        """Returns the place of the record with a name."""
        return GetOp((*_namespace_of(user_id), self.kind), label(name))

    def changes(self, user_id: str, before: Iterable[R], after: Iterable[R]) -> list[PutOp]:
        """Returns the writes that turn some records into others, deletions first."""
        old = {self.key(record): record for record in before}
        new = {self.key(record): record for record in after}
        changed = [key for key in {**old, **new} if old.get(key) != new.get(key)]
        deletions_first = sorted(changed, key=new.__contains__)
        return [put_of(self.place(user_id, key), new.get(key)) for key in deletions_first]


FACTS = Repository("facts", Fact, lambda fact: fact.id)
RULES = Repository("rules", RuleRecord, lambda rule: rule.id)
TOPICS = Repository("topics", TopicProfile, lambda topic: topic.id)
ENTITIES = Repository("entities", EntityProfile, lambda entity: entity.id)
LINKS = Repository(
    "links", TopicConversation, lambda link: f"{label(link.topic_id)}{label(link.conversation_id)}"
)
BUNDLES = Repository("bundles", ContextBundle, lambda bundle: bundle.id)
PRESENCE = Repository("presence", ClientPresence, lambda presence: presence.device_id)
PHRASES = Repository("phrases", PhraseRecord, lambda phrase: phrase.phrase)


def mark_place(user_id: str) -> GetOp:
    """Returns the place of the mark of a user's knowledge."""
    return GetOp(_namespace_of(user_id), "mark")


def _namespace_of(user_id: str) -> tuple[str, ...]:
    return (ROOT, label(require_id("user_id", user_id)), KNOWLEDGE)
