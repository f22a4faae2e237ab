"""Learning without a model: facts, names and recurring phrases of the user's own messages, by rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from langchain_ctxbudget.core.rules import phrases as wording
from langchain_ctxbudget.core.rules.naming import names
from langchain_ctxbudget.core.rules.statements import statements
from langchain_ctxbudget.core.text import fold, terms
from langchain_ctxbudget.knowledge.learned import Learned, LearnedEntity, LearnedFact, LearnedTopic, Said
from langchain_ctxbudget.knowledge.records import Domain, PhraseRecord, Source

Item = TypeVar("Item")

MOST_KEPT = 200
"""Phrases that are remembered of a user."""
MOST_SOURCES, MOST_COUNTED = 3, 8
"""Messages and conversations that a phrase remembers, the newest ones."""
NEARLY_AS_OFTEN = 0.6
"""A phrase is only part of a longer one that has this share of its messages."""

_DOMAINS: Mapping[Domain, frozenset[str]] = {
    "engineering": frozenset(
        terms(
            "api app backend bug build cache ci class cli cloud cluster code commit compiler container css data "
            "database debug deploy docker endpoint error framework frontend function git github hardware html index "
            "java javascript kubernetes latency library linux migration model module node package parser pipeline "
            "postgres prisma programming python query react refactor regex release repository rust schema script sdk "
            "server service software sql stack test thread typescript unit"
        )
    ),
    "business": frozenset(
        terms(
            "accounting advertising b2b board brand budget business campaign client company competitor contract "
            "customer finance founder funding hiring invoice investor kpi launch lead marketing meeting negotiation "
            "payroll pitch pricing product profit proposal quarter revenue roadmap sales salary seo shareholder "
            "stakeholder startup strategy supplier vendor"
        )
    ),
    "creative": frozenset(
        terms(
            "acrylic album art band camera canvas chapter character chord choir color comic compose design draft "
            "drawing fiction film guitar illustration lyrics melody music novel painting photo photography piano plot "
            "poem poetry pottery protagonist scene screenplay sculpture sewing sketch song story theatre watercolor "
            "writing"
        )
    ),
    "personal": frozenset(
        terms(
            "allergy apartment baby bake birthday bread children cook cooking daughter dentist diet doctor dog family "
            "flight friend garden gym health hike hobby holiday home hotel house husband kids kitchen marathon "
            "meal mom parents partner recipe rent running school sleep son sourdough tax therapy training travel trip "
            "vacation vegetarian vet visa wedding wife workout yoga"
        )
    ),
}
"""Words that say what an occupation belongs to."""


def learn(
    said: Sequence[Said], phrases: Sequence[PhraseRecord], conversation_id: str
) -> tuple[Learned, tuple[PhraseRecord, ...]]:
    """What the user's own messages teach, and the phrases that may become topics, brought up to date.

    A message that was learned from before is not counted again.

    Args:
        said: messages of one conversation, in their order; those that are not the user's are not read, nor is what
            tools gave.
        phrases: what the call before gave.
        conversation_id: the conversation of the messages.

    Example:
        >>> learned, phrases = learn([Said(id="m1", digest="", text="My tax return is due.")], (), "c1")
        >>> [phrase.phrase for phrase in phrases]
        ['tax', 'tax return']
        >>> learned, phrases = learn([Said(id="m2", digest="", text="Where is the tax return?")], phrases, "c2")
        >>> [topic.label for topic in learned.topics]
        ['Tax return']
    """
    own = list({message.id: message for message in said if message.from_user}.values())
    entities = _entities(own)
    counted = _counted(own, phrases, conversation_id, _named(entities))
    return (
        Learned(facts=_facts(own), entities=entities, topics=_topics(counted, conversation_id)),
        _kept(counted),
    )


def _facts(said: Iterable[Said]) -> tuple[LearnedFact, ...]:
    """What messages say about the user, in the order in which it was said last; what is said twice is one fact."""
    facts: dict[tuple[str, bool], LearnedFact] = {}
    for message in said:
        for statement in statements(message.text):
            if statement.ends and message.at is None:
                continue  # Nothing can end at an unknown time.
            known = facts.pop((fold(statement.text), statement.ends), None)
            facts[fold(statement.text), statement.ends] = LearnedFact(
                text=statement.text,
                category=statement.category,
                confidence=max(statement.confidence, known.confidence if known else 0.0),
                slot=statement.slot,
                message_ids=_union(known.message_ids if known else (), (message.id,)),
                valid_until=message.at if statement.ends else None,
            )
    return tuple(facts.values())


def _entities(said: Iterable[Said]) -> tuple[LearnedEntity, ...]:
    """Who and what messages name; one entity for a name and its aliases."""
    entities: dict[str, LearnedEntity] = {}
    for message in said:
        for name in names(message.text):
            new = LearnedEntity(
                name=name.name,
                type=name.kind,
                aliases=tuple(name.aliases),
                relationship=name.relationship,
                attributes=tuple(name.attributes),
                relations=tuple(name.relations),
                facts=tuple(name.facts),
                message_ids=(message.id,),
            )
            written = [fold(name.name), *map(fold, name.aliases)]
            known = next((entities[one] for one in written if one in entities), None)
            entity = _merged(known, new) if known else new
            for one in (*map(fold, entity.aliases), fold(entity.name)):
                entities[one] = entity
    return tuple({fold(entity.name): entity for entity in entities.values()}.values())


def _merged(known: LearnedEntity, new: LearnedEntity) -> LearnedEntity:
    aliases = _union(known.aliases, (new.name, *new.aliases))
    return replace(
        known,
        aliases=tuple(alias for alias in aliases if alias != known.name),
        relationship=new.relationship or known.relationship,
        attributes=tuple((dict(known.attributes) | dict(new.attributes)).items()),
        relations=_union(known.relations, new.relations),
        facts=_union(known.facts, new.facts),
        message_ids=_union(known.message_ids, new.message_ids),
    )


def _named(entities: Iterable[LearnedEntity]) -> set[str]:
    """The phrases that only name something: all words of a person's name, of others whatever has two words or more."""
    named: set[str] = set()
    for entity in entities:
        for name in map(wording.key, (entity.name, *entity.aliases)):
            named.add(name)
            named.update(part for part in _parts(name) if entity.type == "person" or " " in part)
    return named


@dataclass(slots=True)
class _Counted:
    """A phrase, and what the messages that are read now add to it."""

    record: PhraseRecord
    messages: int = 0
    was_topic: bool = False
    labels: list[str] = field(default_factory=list)
    new: list[Said] = field(default_factory=list)

    @property
    def is_topic(self) -> bool:
        """Recurring; a single word, which is more easily met by chance, only by its messages."""
        is_compound = " " in self.record.phrase
        return wording.is_topic(self.messages, len(self.record.counts) if is_compound else 1)


def _counted(
    said: Sequence[Said], phrases: Iterable[PhraseRecord], conversation_id: str, named: set[str]
) -> list[_Counted]:
    """All phrases with these messages counted, the ones that came up last at the end; no mere names."""
    found: dict[str, _Counted] = {}
    for record in phrases:
        found[record.phrase] = _Counted(record, sum(count for _, count in record.counts))
    heard: dict[str, _Counted] = {}
    for message in said:
        for phrase in wording.key_phrases(message.text):
            counted = found.pop(phrase.key, None) or _Counted(PhraseRecord(phrase=phrase.key, label=phrase.label))
            counted.labels.append(phrase.label)
            counted.new.append(message)
            heard[phrase.key] = found[phrase.key] = counted
    for counted in heard.values():
        _count(counted, conversation_id)
    return [counted for key, counted in found.items() if key not in named]


def _count(counted: _Counted, conversation_id: str) -> None:
    """Add the messages that are new to a phrase to its record.

    Messages come in order, so whatever stands before one that is known was counted too, even if it is no longer among
    the sources. Of as few messages as make a topic, all are among the sources.
    """
    record, counted.was_topic = counted.record, counted.is_topic
    known = {source.message_id for source in record.sources if source.conversation_id == conversation_id}
    last = max((at for at, message in enumerate(counted.new) if message.id in known), default=-1)
    counted.new = counted.new[last + 1 :]
    if not counted.new:
        return
    counts = dict(record.counts)
    counts[conversation_id] = counts.pop(conversation_id, 0) + len(counted.new)
    sources = [
        Source(conversation_id=conversation_id, message_id=message.id, digest=message.digest)
        for message in counted.new[-MOST_SOURCES:]
    ]
    times = [at for at in (record.last_at, *(message.at for message in counted.new)) if at]
    counted.record = record.model_copy(
        update={
            "counts": tuple(counts.items())[-MOST_COUNTED:],
            "last_at": max(times, default=None),
            "sources": (*record.sources, *sources)[-MOST_SOURCES:],
        }
    )
    counted.messages = sum(count for _, count in counted.record.counts)


def _kept(phrases: Sequence[_Counted]) -> tuple[PhraseRecord, ...]:
    """The most promising phrases: those of many messages, and those that came up last, which stand at the end."""
    surplus = len(phrases) - MOST_KEPT
    if surplus <= 0:
        return tuple(phrase.record for phrase in phrases)
    by_promise = sorted(range(len(phrases)), key=lambda at: phrases[at].messages ** 2 / (len(phrases) - at))
    return tuple(phrases[at].record for at in sorted(by_promise[surplus:]))


def _topics(counted: Iterable[_Counted], conversation_id: str) -> tuple[LearnedTopic, ...]:
    """The recurring phrases that came up now; not those that are only part of a longer one."""
    recurring = {phrase.record.phrase: phrase for phrase in counted if phrase.is_topic}
    for phrase in list(recurring.values()):
        for part in _parts(phrase.record.phrase):
            if part in recurring and phrase.messages >= NEARLY_AS_OFTEN * recurring[part].messages:
                del recurring[part]
    return tuple(_topic(phrase, recurring, conversation_id) for phrase in recurring.values() if phrase.new)


def _topic(phrase: _Counted, recurring: Mapping[str, _Counted], conversation_id: str) -> LearnedTopic:
    record = phrase.record
    parents = [recurring[part].record for part in _parts(record.phrase) if part in recurring]
    earlier = () if phrase.was_topic else record.sources
    return LearnedTopic(
        label=record.label,
        aliases=tuple(label for label in dict.fromkeys(phrase.labels) if label != record.label),
        parent=parents[0].label if parents else None,
        domain=_domain(record.phrase, phrase.new),
        message_ids=_union(
            (source.message_id for source in earlier if source.conversation_id == conversation_id),
            (message.id for message in phrase.new),
        ),
    )


def _parts(phrase: str) -> list[str]:
    """The shorter phrases in a phrase, the longest first."""
    words = phrase.split()
    return [
        " ".join(words[start : start + size])
        for size in range(len(words) - 1, 0, -1)
        for start in range(len(words) - size + 1)
    ]


def _domain(phrase: str, said: Iterable[Said]) -> Domain | None:
    """The domain that most words belong to, those of the phrase counting most; None where none does."""
    words = phrase.split() * 3
    for message in said:
        words += set(terms(message.text[: wording.READ_CHARACTERS]))
    scores: dict[Domain, int] = {domain: sum(word in known for word in words) for domain, known in _DOMAINS.items()}
    best = max(scores, key=scores.__getitem__)
    return best if scores[best] else None


def _union(first: Iterable[Item], second: Iterable[Item]) -> tuple[Item, ...]:
    """Both, in order, each once."""
    return tuple(dict.fromkeys([*first, *second]))
