"""Topics and entities that a message is about: found among those that are declared and those that were learned."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache

from langchain_ctxbudget.core import fences
from langchain_ctxbudget.core.assembly import Fragment
from langchain_ctxbudget.core.detection import Detection, Detector, Named, Vector
from langchain_ctxbudget.core.layers import Layer, Reason, Status
from langchain_ctxbudget.core.packing import shrink_to
from langchain_ctxbudget.core.report import LISTED_OMISSIONS, ReportItem, preview
from langchain_ctxbudget.core.text import fold, one_line
from langchain_ctxbudget.core.tiers import Tier
from langchain_ctxbudget.knowledge.bundle_lines import without_ended
from langchain_ctxbudget.knowledge.bundles import MAX_ENTITIES, MAX_TOPICS, equal_shares, is_fresh, shares
from langchain_ctxbudget.knowledge.known import NOTHING, Knowledge
from langchain_ctxbudget.knowledge.records import ContextBundle, Fact, TopicProfile
from langchain_ctxbudget.settings import ContextSettings, Entity, Topic

TOPICS_SECTION, ENTITIES_SECTION = "## Topics\n", "## People and things\n"
_MOST = {Layer.TOPICS: MAX_TOPICS, Layer.ENTITIES: MAX_ENTITIES}
SECTIONS = {Layer.TOPICS: TOPICS_SECTION, Layer.ENTITIES: ENTITIES_SECTION}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A topic or an entity that a message is about, with its text."""

    id: str
    """As it stands in the report."""
    line: str
    """Its text in the prompt; empty where none was compiled yet."""
    short: str = ""
    """The same in short, for when the whole does not fit."""
    confidence: float = 1.0
    """0 to 1."""
    bundle: str = ""
    """The id of the bundle that it comes from; empty for what is declared."""
    stale: bool = False
    """Whether the bundle is older than what is known."""


@dataclass(frozen=True, slots=True)
class Detected:
    """What a message is about, surest first."""

    topics: tuple[Subject, ...] = ()
    entities: tuple[Subject, ...] = ()
    omitted: tuple[tuple[Layer, ReportItem], ...] = ()
    """What is declared, and not among them; no more than a report lists."""
    learned_elsewhere: tuple[tuple[Layer, Reason, int], ...] = ()
    """How many others of a layer are not among them, and why."""

    def of(self, layer: Layer) -> tuple[Subject, ...]:
        """Those of one layer."""
        return self.topics if layer is Layer.TOPICS else self.entities

    @property
    def hits(self) -> list[str]:
        """The bundles that can be used as they are."""
        return [one.bundle for one in (*self.topics, *self.entities) if one.bundle and one.line and not one.stale]

    @property
    def misses(self) -> list[str]:
        """The bundles that are not there, or not up to date."""
        return [one.bundle for one in (*self.topics, *self.entities) if one.bundle and (one.stale or not one.line)]


@dataclass(frozen=True, slots=True)
class Bundles:
    """The text of what was detected, and the account of everything else."""

    fragments: tuple[Fragment, ...] = ()
    omitted: tuple[tuple[Layer, ReportItem], ...] = ()
    more_omitted: dict[Layer, dict[Reason, int]] = field(default_factory=dict)


def detect(
    text: str,
    settings: ContextSettings,
    knowledge: Knowledge = NOTHING,
    *,
    now: datetime | None = None,
    recent: Sequence[str] = (),
    query: Vector | None = None,
    expected: Sequence[str] = (),
    count: Callable[[str], int] = len,
) -> Detected:
    """The topics and entities that a text is about.

    What is declared is found by its names; what was learned also by what it is about, and entities by having been
    named right before. Where both have one name, what is declared counts.

    Args:
        text: the words of the current message.
        settings: what is declared.
        knowledge: what was learned.
        now: whether a bundle has expired depends on it.
        recent: the messages before, newest last.
        query: the message's vector, where topics have some.
        expected: ids of learned ones that are likely to come up, most likely first: of two as sure, these come first.
        count: tokens of a text.
    """
    entities = settings.entities if settings.include_entities else ()
    declared_topics = _declared(text, settings.topics)
    declared_entities = _declared(text, entities)
    taken = _names((*settings.topics, *settings.entities)) if knowledge.topics or knowledge.entities else frozenset()
    found_topics = knowledge.topic_detector.detect(text, query=query) if knowledge.topics else []
    found_entities = (
        knowledge.entity_detector.detect(text, recent=recent, salience=True)
        if knowledge.entities and settings.include_entities
        else []
    )
    learned_topics = _learned(found_topics, knowledge, taken, now, expected)
    learned_entities = _learned(found_entities, knowledge, taken, now, expected)
    topics_named, entities_named = {one.id for one in declared_topics}, {one.id for one in declared_entities}
    other_topics = [topic for topic in settings.topics if topic.label not in topics_named]
    other_entities = [entity for entity in settings.entities if entity.name not in entities_named]
    reason = Reason.NOT_DETECTED if settings.include_entities else Reason.SWITCHED_OFF
    omitted = [
        *(
            (Layer.TOPICS, _left_out(topic.label, topic_line(topic), Reason.NOT_DETECTED, count))
            for topic in other_topics[:LISTED_OMISSIONS]
        ),
        *(
            (Layer.ENTITIES, _left_out(entity.name, entity_line(entity), reason, count))
            for entity in other_entities[:LISTED_OMISSIONS]
        ),
    ]
    unlisted_topics = len(knowledge.topics) - len(learned_topics) + len(other_topics[LISTED_OMISSIONS:])
    unlisted_entities = len(knowledge.entities) - len(learned_entities) + len(other_entities[LISTED_OMISSIONS:])
    rest = ((Layer.TOPICS, Reason.NOT_DETECTED, unlisted_topics), (Layer.ENTITIES, reason, unlisted_entities))
    return Detected(
        topics=_surest((*declared_topics, *learned_topics)),
        entities=_surest((*declared_entities, *learned_entities)),
        omitted=tuple(omitted),
        learned_elsewhere=tuple(one for one in rest if one[2]),
    )


def facts_within(tier: Tier) -> int | None:
    """How many facts about the user a usage tier lets in: the smaller half of its items, in every prompt the same."""
    return None if tier.knowledge_items is None else tier.knowledge_items // 2


def within(detected: Detected, tier: Tier, count: Callable[[str], int]) -> Detected:
    """What a usage tier lets in of what was detected, the surest first; facts have the other half of its items.

    Args:
        detected: what a message is about.
        tier: how many items may be shown.
        count: tokens of a text.
    """
    if tier.knowledge_items is None:
        return detected
    both = [(Layer.TOPICS, one) for one in detected.topics] + [(Layer.ENTITIES, one) for one in detected.entities]
    most = tier.knowledge_items - tier.knowledge_items // 2
    order = sorted((one for one in both if one[1].line), key=lambda one: -one[1].confidence)
    gone = order[most:]
    items = tuple((layer, _left_out(one.id, one.line, Reason.USAGE_LIMIT, count)) for layer, one in gone)
    return replace(
        detected,
        topics=tuple(one for one in detected.topics if (Layer.TOPICS, one) not in gone),
        entities=tuple(one for one in detected.entities if (Layer.ENTITIES, one) not in gone),
        omitted=(*detected.omitted, *items),
    )


def _surest(subjects: Sequence[Subject]) -> tuple[Subject, ...]:
    return tuple(sorted(subjects, key=lambda one: -one.confidence))


def topic_line(topic: Topic) -> str:
    """A declared topic as it stands in the prompt."""
    return _line(f"{topic.label}: {topic.context.strip()}")


def entity_line(entity: Entity) -> str:
    """A declared entity as it stands in the prompt."""
    return _line(f"{entity.name} ({entity.type}): {entity.context.strip()}")


def _line(text: str) -> str:
    return f"- {fences.as_item(text)}\n" if text else ""


@lru_cache(maxsize=64)
def _detector(declared: tuple[Topic | Entity, ...]) -> Detector:
    return Detector([Named(id=str(number), names=item.names) for number, item in enumerate(declared)])


@lru_cache(maxsize=64)
def _names(declared: tuple[Topic | Entity, ...]) -> frozenset[str]:
    return frozenset(_compared(name) for item in declared for name in item.names)


def _declared(text: str, declared: tuple[Topic | Entity, ...]) -> list[Subject]:
    found = _detector(declared).detect(text) if declared else []
    items = [(declared[int(one.id)], one.confidence) for one in found if one.how in ("name", "alias")]
    return [
        Subject(id=item.label, line=topic_line(item), confidence=confidence)
        if isinstance(item, Topic)
        else Subject(id=item.name, line=entity_line(item), confidence=confidence)
        for item, confidence in items
    ]


def _learned(
    found: Iterable[Detection],
    knowledge: Knowledge,
    taken: Collection[str],
    now: datetime | None,
    expected: Sequence[str],
) -> list[Subject]:
    subjects: list[Subject] = []
    likely = {name: rank for rank, name in enumerate(expected)}
    for one in sorted(found, key=lambda one: (-one.confidence, likely.get(one.id, len(likely)))):
        profile = knowledge.by_id[one.id]
        if isinstance(profile, Fact):
            continue
        label = profile.label if isinstance(profile, TopicProfile) else profile.name
        if _compared(label) in taken:
            continue
        bundle = _bundle(one.id, knowledge, now)
        if bundle is not None and not bundle.compiled_prompt:  # nothing is known but the name
            continue
        subjects.append(
            Subject(
                id=one.id,
                line=_line(bundle.compiled_prompt) if bundle else "",
                short=_line(bundle.compressed_prompt) if bundle else "",
                confidence=one.confidence,
                bundle=one.id,
                stale=bundle is not None and (profile.is_dirty or not _fresh(bundle, now)),
            )
        )
    return subjects


def _bundle(name: str, knowledge: Knowledge, now: datetime | None) -> ContextBundle | None:
    """The bundle of a topic or an entity, without what has ended since it was compiled; then there is none in short."""
    bundle = knowledge.bundles.get(name)
    if bundle is None or now is None or is_fresh(bundle, now):
        return bundle
    items = (knowledge.by_id.get(part) for part in bundle.composition)
    text = without_ended(bundle.compiled_prompt, (item for item in items if isinstance(item, Fact)), now)
    if text == bundle.compiled_prompt:
        return bundle
    return bundle.model_copy(update={"compiled_prompt": text, "compressed_prompt": ""})


def _compared(name: str) -> str:
    return one_line(fold(name))


def _fresh(bundle: ContextBundle, now: datetime | None) -> bool:
    return is_fresh(bundle, now) if now else not bundle.is_dirty


def render(
    detected: Detected,
    count: Callable[[str], int],
    *,
    topic_tokens: int,
    entity_tokens: int,
) -> Bundles:
    """The text of the detected topics and entities within their layers' budgets.

    The first topic gets 70 %, the second the rest (seed 000); at most three entities share theirs equally. Where the
    whole does not fit into its share, what was compiled in short stands for it, or its first sentences.

    Args:
        detected: what the message is about.
        count: tokens of a text.
        topic_tokens: what topics may cost together.
        entity_tokens: what entities may cost together.
    """
    fragments: list[Fragment] = []
    omitted = list(detected.omitted)
    for layer, tokens in ((Layer.TOPICS, topic_tokens), (Layer.ENTITIES, entity_tokens)):
        compiled = [one for one in detected.of(layer) if one.line]
        omitted += [
            (layer, _left_out(one.id, one.id, Reason.NOT_COMPILED, count)) for one in detected.of(layer) if not one.line
        ]
        divide = shares if layer is Layer.TOPICS else equal_shares
        rooms = divide(tokens, min(len(compiled), _MOST[layer]))
        for rank, subject in enumerate(compiled):
            if rank >= len(rooms):
                omitted.append((layer, _left_out(subject.id, subject.line, Reason.RANKED_LOWER, count)))
                continue
            fragment = _fragment(layer, subject, rank, rooms[rank], count)
            if fragment is None:
                omitted.append((layer, _left_out(subject.id, subject.line, Reason.NO_ROOM, count)))
            else:
                fragments.append(fragment)
    more = {layer: {reason: number} for layer, reason, number in detected.learned_elsewhere}
    return Bundles(tuple(fragments), tuple(omitted), more)


def _fragment(layer: Layer, subject: Subject, rank: int, room: int, count: Callable[[str], int]) -> Fragment | None:
    text: str | None = subject.line
    if count(subject.line) > room:
        text = subject.short if subject.short and count(subject.short) <= room else None
        if text is None and not subject.bundle:
            shrunk = shrink_to(subject.line.removesuffix("\n"), lambda part: count(part + "\n"), room)
            text = None if shrunk is None else shrunk + "\n"
    if text is None:
        return None
    whole = text == subject.line
    reason = Reason.NO_ROOM if not whole else Reason.STALE if subject.stale else Reason.DETECTED
    return Fragment(
        layer=layer,
        id=subject.id,
        text=text,
        tokens=count(text),
        reason=reason,
        status=Status.INCLUDED if whole else Status.SHRUNK,
        section=SECTIONS[layer],
        value=-float(rank),
        scores={"confidence": subject.confidence} if subject.bundle else {},
    )


def _left_out(name: str, line: str, reason: Reason, count: Callable[[str], int]) -> ReportItem:
    return ReportItem(id=name, tokens=count(line), status=Status.OMITTED, reason=reason, preview=preview(line))
