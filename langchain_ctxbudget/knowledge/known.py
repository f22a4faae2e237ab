"""What is known about a user, read once and kept in this process until its mark changes.

It is never changed, only replaced: a prompt that is being made goes on with what was there when it was begun.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from itertools import islice
from typing import TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from langgraph.store.base import BaseStore, Item

from langchain_ctxbudget.core.detection import Detector, Named
from langchain_ctxbudget.core.estimate import estimate_tokens
from langchain_ctxbudget.core.vectors import Vectors
from langchain_ctxbudget.flow import Flow, Lock, batch
from langchain_ctxbudget.knowledge import repositories as repos
from langchain_ctxbudget.knowledge.bundle_lines import utc
from langchain_ctxbudget.knowledge.bundles import ENTITY_TOKENS, TOPIC_TOKENS, compile_entity, compile_topic
from langchain_ctxbudget.knowledge.profiles import importance_at
from langchain_ctxbudget.knowledge.records import (
    BY_USER,
    ContextBundle,
    EntityDetails,
    EntityProfile,
    Fact,
    KnowledgeMark,
    PhraseRecord,
    TopicConversation,
    TopicProfile,
)

Profile: TypeAlias = TopicProfile | EntityProfile

KEPT_USERS = 64
"""About the most users of a store whose knowledge stays in memory; those not asked for longest go first."""
KEPT_LEARNERS = 8
"""Of these, those who were asked for last, what is only needed to learn more about them stays as well."""


@dataclass(frozen=True)
class Knowledge:
    """What is known about one user."""

    mark: KnowledgeMark = field(default_factory=lambda: KnowledgeMark(mark=""))
    facts: tuple[Fact, ...] = ()
    """The current ones."""
    topics: tuple[TopicProfile, ...] = ()
    entities: tuple[EntityProfile, ...] = ()
    bundles: Mapping[str, ContextBundle] = field(default_factory=dict)
    is_read: bool = True
    """False: it could not be read, so nothing follows from what is not in it."""

    @cached_property
    def topic_detector(self) -> Detector:
        """Finds topics in a message."""
        return detector(self.topics)

    @cached_property
    def entity_detector(self) -> Detector:
        """Finds entities in a message."""
        return detector(self.entities)

    @cached_property
    def by_id(self) -> dict[str, Fact | Profile]:
        """Everything, by id."""
        items: tuple[Fact | Profile, ...] = (*self.facts, *self.profiles)
        return {item.id: item for item in items}

    @cached_property
    def has_vectors(self) -> bool:
        """Whether a message's vector can be compared with topics."""
        return any(topic.embedding for topic in self.topics)

    @cached_property
    def expires_at(self) -> datetime | None:
        """When the first of the texts is to be compiled again."""
        return min((utc(bundle.expires_at) for bundle in self.bundles.values() if bundle.expires_at), default=None)

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """Topics, then entities."""
        return (*self.topics, *self.entities)

    @cached_property
    def by_hand(self) -> Knowledge:
        """What of it the user or the application has said by hand; the texts say no more than that."""
        topics = tuple(_topic_by_hand(topic) for topic in self.topics if topic.made_by == BY_USER)
        entities = tuple(entity_by_hand(entity) for entity in self.entities if entity.made_by == BY_USER)
        profiles: tuple[Profile, ...] = (*topics, *entities)
        return replace(
            self,
            facts=tuple(fact for fact in self.facts if fact.made_by == BY_USER),
            topics=topics,
            entities=entities,
            bundles={
                profile.id: _text_by_hand(profile, bundle)
                for profile in profiles
                if (bundle := self.bundles.get(profile.id))
            },
        )


def entity_by_hand(entity: EntityProfile) -> EntityProfile:
    """An entity without what was learned about it."""
    return entity.model_copy(update={name: getattr(entity.by_hand, name) for name in EntityDetails.model_fields})


def _topic_by_hand(topic: TopicProfile) -> TopicProfile:
    counted = {"total_conversations": 0, "first_engaged_at": None, "last_engaged_at": None}
    level = "unknown" if topic.proficiency_signals else topic.proficiency_level  # a level by hand has no signals
    return topic.model_copy(update={**counted, "highlights": (), "proficiency_level": level})


def _text_by_hand(profile: Profile, bundle: ContextBundle) -> ContextBundle:
    """The bundle of a topic or an entity of which nothing was learned; as nothing in it ends, it does not expire."""
    now = bundle.compiled_at
    if isinstance(profile, TopicProfile):
        made = compile_topic(profile, (), None, (), now=now, count=estimate_tokens, cap_tokens=TOPIC_TOKENS)
    else:
        made = compile_entity(profile, (), now=now, count=estimate_tokens, cap_tokens=ENTITY_TOKENS)
    return made.model_copy(update={"expires_at": None})


NOTHING = Knowledge()
_UNREAD = Knowledge(is_read=False)


@dataclass(frozen=True, slots=True)
class Counts:
    """What only those need who learn about a user: how often what came up, what may become a topic, what has ended."""

    links: Mapping[tuple[str, str], TopicConversation] = field(default_factory=dict)
    """By topic or entity, and conversation."""
    phrases: tuple[PhraseRecord, ...] = ()
    ended: tuple[Fact, ...] = ()
    """Facts that are no longer current."""


def detector(profiles: Sequence[Profile]) -> Detector:
    """Finds profiles in a message, by name and by what they are about; of equals, the more important one first.

    They are as important as when the newest of them came up, so that none fades while nothing is learned.
    """
    times = (one.last_engaged_at if isinstance(one, TopicProfile) else one.last_mentioned_at for one in profiles)
    newest = max((utc(time) for time in times if time), default=datetime.max.replace(tzinfo=UTC))
    compared = (one.model_copy(update={"importance_score": importance_at(one, newest)}) for one in profiles)
    return Detector(things(compared), _vectors(profiles))


def by_names(profiles: Iterable[Profile]) -> Detector:
    """Finds profiles in a text by name alone; where nobody is called otherwise, it is the one that was built before."""
    return _by_names(tuple((thing.id, thing.names) for thing in things(profiles)))


@lru_cache(maxsize=4)
def _by_names(named: tuple[tuple[str, tuple[str, ...]], ...]) -> Detector:
    return Detector([Named(id=thing, names=names) for thing, names in named])


def things(profiles: Iterable[Profile]) -> list[Named]:
    """Profiles as something that can be detected; a first name is that of the only person who has it."""
    first_names = [(profile, _first_name(profile)) for profile in profiles]
    times = Counter(name for _, name in first_names if name)
    return [_named(profile, [name] if times[name] == 1 else []) for profile, name in first_names]


def _first_name(profile: Profile) -> str:
    """Of a person who is known by more than one name."""
    if isinstance(profile, TopicProfile) or profile.type != "person":
        return ""
    first, _, rest = profile.name.partition(" ")
    return first if rest and first.isalpha() else ""


def _named(profile: Profile, also: Sequence[str]) -> Named:
    if isinstance(profile, TopicProfile):
        label, about = profile.label, profile.compiled_context or ""
    else:
        label, about = profile.name, ""
    names = (label, *profile.aliases, *also)
    return Named(id=profile.id, names=names, text=about, importance=profile.importance_score)


def _vectors(profiles: Sequence[Profile]) -> Vectors | None:
    """A row for each profile; none of another model's than the most common one."""
    models = Counter((profile.embedding_model, len(profile.embedding)) for profile in profiles if profile.embedding)
    if not models:
        return None
    model, dimensions = max(models, key=lambda one: (models[one], str(one)))
    rows = np.zeros((len(profiles), dimensions), np.float32)
    for row, profile in zip(rows, profiles, strict=True):
        if (profile.embedding_model, len(profile.embedding)) == (model, dimensions):
            row[:] = profile.embedding
    return rows


def shown(knowledge: Knowledge, *, learned: bool) -> Knowledge:
    """What of a user's knowledge a prompt may show.

    Args:
        knowledge: all of it.
        learned: whether that includes what was learned, or only what the user or the application said by hand.
    """
    return knowledge if learned else knowledge.by_hand


class _Kept:
    """What is kept of one user beside their knowledge."""

    def __init__(self) -> None:
        self.lock = Lock()
        """Held by whoever changes their knowledge."""
        self.epoch = 0
        """How often something of theirs was erased: what was begun before must not be written."""
        self.knowledge: Knowledge | None = None
        self.counts: tuple[KnowledgeMark, Counts] | None = None
        """With the mark of the knowledge that they belong to."""
        self.hits: Counter[str] = Counter()
        self.misses: Counter[str] = Counter()
        """Of bundles, by id, since they were counted last."""
        self.renewed = ""
        """The mark of the knowledge whose expired texts somebody was told to compile."""


_kept: WeakKeyDictionary[BaseStore, OrderedDict[str, _Kept]] = WeakKeyDictionary()
_mutex = threading.Lock()


def _of(store: BaseStore, user_id: str) -> _Kept:
    with _mutex:
        users = _kept.setdefault(store, OrderedDict())
        kept = users.setdefault(user_id, _Kept())
        users.move_to_end(user_id)
        # Whoever is first behind the newest ones has just become that. Their lock stays: somebody may hold it.
        for other in islice(reversed(users.values()), KEPT_USERS, KEPT_USERS + 1):
            other.knowledge = None
        for other in islice(reversed(users.values()), KEPT_LEARNERS, KEPT_LEARNERS + 1):
            other.counts = None
        return kept


def lock_of(store: BaseStore, user_id: str) -> Lock:
    """The lock that whoever changes a user's knowledge holds, shared by every pipeline of this process."""
    return _of(store, user_id).lock


def epoch_of(store: BaseStore, user_id: str) -> int:
    """Another number after something of the user was erased."""
    return _of(store, user_id).epoch


def interrupted(store: BaseStore, user_id: str) -> None:
    """Note that messages of a user are being deleted: what is being learned from them is not written."""
    _of(store, user_id).epoch += 1


def erased(store: BaseStore, user_id: str) -> None:
    """Note that something of a user is erased: what is under way is not written, what was read is read again."""
    kept = _of(store, user_id)
    kept.epoch += 1
    kept.knowledge = kept.counts = None
    _by_names.cache_clear()
    kept.hits, kept.misses = Counter(), Counter()


def note_use(store: BaseStore, user_id: str, hits: list[str], misses: list[str]) -> None:
    """Count which bundles a prompt could use; written when something is learned next."""
    kept = _of(store, user_id)
    kept.hits.update(hits)
    kept.misses.update(misses)


def take_use(store: BaseStore, user_id: str) -> tuple[Counter[str], Counter[str]]:
    """The uses of bundles that were not written yet; they are forgotten here."""
    kept = _of(store, user_id)
    hits, misses = kept.hits, kept.misses
    kept.hits, kept.misses = Counter(), Counter()
    return hits, misses


def is_to_be_renewed(store: BaseStore, user_id: str, now: datetime) -> bool:
    """Whether some text of what was read last has expired; True once, as whoever asks has it compiled."""
    kept = _of(store, user_id)
    knowledge = kept.knowledge
    if knowledge is None or knowledge.expires_at is None or knowledge.expires_at > utc(now):
        return False
    asked, kept.renewed = kept.renewed, knowledge.mark.mark
    return asked != knowledge.mark.mark


def read(store: BaseStore, user_id: str, found: object = None, *, marked: bool = False) -> Flow[Knowledge]:
    """What is known about a user, read where its mark has changed.

    Args:
        store: where.
        user_id: whose.
        found: the item of the mark, where it was read already.
        marked: whether it was.
    """
    if not marked:
        [found] = yield from batch(store, [repos.mark_read(user_id)])
    kept = _of(store, user_id)
    if not isinstance(found, Item):
        kept.knowledge = kept.counts = None
        return NOTHING
    mark = KnowledgeMark.read(found.value, "the mark of what is known")
    known = kept.knowledge
    if known is not None and known.mark == mark:
        return known
    known = Knowledge(  # the mark was read before what it marks: never newer than that
        mark=mark,
        facts=tuple((yield from repos.FACTS.all(store, user_id))),
        topics=tuple((yield from repos.TOPICS.all(store, user_id))),
        entities=tuple((yield from repos.ENTITIES.all(store, user_id))),
        bundles={bundle.id: bundle for bundle in (yield from repos.BUNDLES.all(store, user_id))},
    )
    _of(store, user_id).knowledge = known
    return known


def read_counts(store: BaseStore, user_id: str, mark: KnowledgeMark) -> Flow[Counts]:
    """What is needed to learn more about a user, read where the mark has changed.

    Args:
        store: where.
        user_id: whose.
        mark: of the knowledge that was read.
    """
    kept = _of(store, user_id).counts
    if kept is not None and kept[0] == mark:
        return kept[1]
    links = yield from repos.LINKS.all(store, user_id)
    phrases = yield from repos.PHRASES.all(store, user_id)
    ended = yield from repos.ENDED.all(store, user_id)
    counts = Counts(
        {(link.topic_id, link.conversation_id): link for link in links}, _newest_last(phrases), tuple(ended)
    )
    _of(store, user_id).counts = mark, counts
    return counts


def _newest_last(phrases: Iterable[PhraseRecord]) -> tuple[PhraseRecord, ...]:
    """The order in which they came up, in every process the same."""
    return tuple(sorted(phrases, key=lambda one: (one.last_at is not None and one.last_at.timestamp(), one.phrase)))


def last_known(store: BaseStore, user_id: str) -> Knowledge:
    """What was read last; for when reading fails."""
    return _of(store, user_id).knowledge or _UNREAD


def drop(store: BaseStore, user_id: str) -> None:
    """Read what is known again, as it may have been written in part."""
    kept = _of(store, user_id)
    kept.knowledge = kept.counts = None


def keep(store: BaseStore, user_id: str, knowledge: Knowledge, counts: Counts) -> None:
    """Know what was just written, so that it need not be read, and no prompt has to wait for what finds it."""
    knowledge.topic_detector.detect("")
    knowledge.entity_detector.detect("")
    kept = _of(store, user_id)
    kept.knowledge = knowledge
    kept.counts = knowledge.mark, replace(counts, phrases=_newest_last(counts.phrases))
