"""The topics and entities that a message is about, declared and learned."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from langchain_ctxbudget.budget import Reason, Status, Tier
from langchain_ctxbudget.knowledge.detection import Detectable, Detection, Detector, Vector
from langchain_ctxbudget.knowledge.known import NOTHING, Knowledge
from langchain_ctxbudget.messages import Count, cached_until_forgotten, fences, fold, one_line
from langchain_ctxbudget.report import LISTED_OMISSIONS, ReportItem, preview
from langchain_ctxbudget.search import is_small_talk
from langchain_ctxbudget.settings import ContextSettings, Entity, Topic

Declared = tuple[Topic | Entity, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A topic or an entity that a message is about, with its text."""

    id: str
    line: str
    """Its text in the prompt; empty where none was compiled yet."""
    confidence: float = 1.0
    is_learned: bool = False
    """It has a bundle under its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The topics, or the entities, that a message is about."""

    subjects: tuple[Subject, ...] = ()
    """The surest first."""
    omitted: tuple[ReportItem, ...] = ()
    """Declared ones that are not among them, no more than a report lists."""
    more_omitted: Mapping[Reason, int] = field(default_factory=dict)
    """The number of all others, by reason."""

    def without(self, others: Collection[Subject], count: Count) -> "Found":
        """Returns it without some subjects, for which a usage limit leaves no place."""
        omitted = [
            left_out_item(subject.id, subject.line, Reason.USAGE_LIMIT, count) for subject in others
        ]
        return replace(
            self,
            subjects=tuple(subject for subject in self.subjects if subject not in others),
            omitted=(*self.omitted, *omitted),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Detected:
    """The topics and entities that a message is about."""

    topics: Found = field(default_factory=Found)
    entities: Found = field(default_factory=Found)

    def entity_names(self, knowledge: Knowledge) -> list[str]:
        """Returns the first names of the entities, or the ids of those that are declared."""
        names = knowledge.names_by_id
        return [names.get(entity.id, (entity.id,))[0] for entity in self.entities.subjects]


def detect(
    text: str,
    settings: ContextSettings,
    knowledge: Knowledge = NOTHING,
    *,
    recent: Sequence[str] = (),
    query: Vector | None = None,
    expected: Sequence[str] = (),
    places: Sequence[str] = (),
    count: Count = len,
) -> Detected:
    """Finds the topics and entities that a text is about.

    Declared ones are found by their names, in the text or in the places that the user has open,
    unless the text is small talk. Learned ones are also found by their terms and their vectors, and
    entities by having been named just before. Of two with one name, the declared one counts.

    Args:
        text: The text.
        settings: The settings, which declare topics and entities.
        knowledge: What is known about the user.
        recent: The messages before it, newest last.
        query: The vector of the text, where vectors are compared.
        expected: The ids of what is likely to come up, likeliest first, which decides between those
            found as surely.
        places: The names of the places that the user has open.
        count: Counts the tokens of a text, for the report.
    """
    declared_names: set[str] = set()
    all_declared: Declared = (*settings.topics, *settings.entities)
    for item in all_declared:
        declared_names.update(one_line(fold(name)) for name in item.names)

    if is_small_talk(text):
        places = ()
    found_topics = knowledge.topic_detector.detect(text, query=query, places=places)
    topics = _found(
        _declared_subjects(text, settings.topics, places),
        _learned_subjects(found_topics, knowledge, declared_names, expected),
        settings.topics,
        known=len(knowledge.topic_detector),
        count=count,
    )
    if settings.include_entities:
        least = settings.entity_context.min_relevance
        found_entities = [
            detection
            for detection in knowledge.entity_detector.detect(
                text, query=query, recent=recent, places=places
            )
            if detection.confidence >= least
        ]
        entities = _found(
            _declared_subjects(text, settings.entities, places),
            _learned_subjects(found_entities, knowledge, declared_names, expected),
            settings.entities,
            known=len(knowledge.entity_detector),
            count=count,
        )
    else:
        entities = _found(
            (),
            (),
            settings.entities,
            known=len(knowledge.entity_detector),
            count=count,
            reason=Reason.SWITCHED_OFF,
        )

    return Detected(topics=topics, entities=entities)


def _found(
    own: Sequence[Subject],
    learned: Sequence[Subject],
    declared: Declared,
    *,
    known: int,
    count: Count,
    reason: Reason = Reason.NOT_DETECTED,
) -> Found:
    """Returns the subjects of one kind, the surest first, and the account of those left out.

    Args:
        own: The declared ones that were found.
        learned: The learned ones that were found.
        declared: All that are declared.
        known: The number of all that were learned.
        count: Counts the tokens of a text.
        reason: Why the others are left out.
    """
    found_ids = {subject.id for subject in own}
    others = [item for item in declared if item.names[0] not in found_ids]
    listed = [
        left_out_item(item.names[0], declared_line(item), reason, count)
        for item in others[:LISTED_OMISSIONS]
    ]
    unlisted = known - len(learned) + len(others[LISTED_OMISSIONS:])
    return Found(
        subjects=tuple(sorted((*own, *learned), key=lambda subject: -subject.confidence)),
        omitted=tuple(listed),
        more_omitted={reason: unlisted} if unlisted else {},
    )


@cached_until_forgotten(64)
def _detector_of(declared: Declared) -> Detector:
    """Returns a detector whose ids are the places of what is declared."""
    return Detector(
        [Detectable(id=str(place), names=item.names) for place, item in enumerate(declared)]
    )


def _declared_subjects(text: str, declared: Declared, places: Sequence[str]) -> list[Subject]:
    """Returns the declared topics or entities that a text, or a place that is open, names."""
    if not declared:
        return []
    subjects = []
    for detection in _detector_of(declared).detect(text, places=places):
        if detection.how not in ("name", "alias", "open"):
            continue
        item = declared[int(detection.id)]
        subjects.append(
            Subject(id=item.names[0], line=declared_line(item), confidence=detection.confidence)
        )
    return subjects


def _learned_subjects(
    detections: Iterable[Detection],
    knowledge: Knowledge,
    declared_names: Collection[str],
    expected: Sequence[str],
) -> list[Subject]:
    """Returns the learned topics or entities that were found, the surest first.

    Those that the application declares, too, and those of which nothing is known but the name are
    left out.
    """
    likely = {name: place for place, name in enumerate(expected)}
    in_order = sorted(
        detections,
        key=lambda detection: (-detection.confidence, likely.get(detection.id, len(likely))),
    )
    subjects = []
    for detection in in_order:
        name = knowledge.names_by_id[detection.id][0]
        if one_line(fold(name)) in declared_names:
            continue
        bundle = knowledge.bundles.get(detection.id)
        if bundle is not None and not bundle.compiled_prompt:
            continue
        line = _line(bundle.compiled_prompt) if bundle else ""
        subjects.append(
            Subject(id=detection.id, line=line, confidence=detection.confidence, is_learned=True)
        )
    return subjects


def with_subjects(
    found: Found, confidences: Mapping[str, float], declared: Declared, knowledge: Knowledge
) -> Found:
    """Returns topics, or entities, in place of those that were detected.

    Args:
        found: What was detected.
        confidences: The ids of those that take their place, with how sure they are.
        declared: All that the settings declare.
        knowledge: What is known of the others.
    """
    lines = {item.names[0]: declared_line(item) for item in declared}
    subjects: list[Subject] = []
    for name, confidence in confidences.items():
        bundle = knowledge.bundles.get(name)
        line = lines.get(name)
        if not line:
            line = _line(bundle.compiled_prompt) if bundle else ""
        subjects.append(
            Subject(id=name, line=line, confidence=confidence, is_learned=bundle is not None)
        )
    return replace(
        found,
        subjects=tuple(subjects),
        omitted=tuple(item for item in found.omitted if item.id not in confidences),
    )


def within_tier(detected: Detected, tier: Tier, count: Count) -> Detected:
    """Returns the surest of the detected subjects, as many as a usage tier allows beside facts."""
    if tier.knowledge_items is None:
        return detected
    surest_first: list[tuple[Found, Subject]] = []
    for found in (detected.topics, detected.entities):
        surest_first += [(found, subject) for subject in found.subjects if subject.line]
    surest_first.sort(key=lambda pair: -pair[1].confidence)
    too_many = surest_first[tier.knowledge_items - tier.knowledge_items // 2 :]
    topics = [subject for found, subject in too_many if found is detected.topics]
    entities = [subject for found, subject in too_many if found is detected.entities]
    return Detected(
        topics=detected.topics.without(topics, count),
        entities=detected.entities.without(entities, count),
    )


def declared_line(item: Topic | Entity) -> str:
    """Returns the line of a declared topic or entity in the prompt."""
    kind = "" if isinstance(item, Topic) else f" ({item.type})"
    return _line(f"{item.names[0]}{kind}: {item.context.strip()}")


def _line(text: str) -> str:
    return f"- {fences.as_item(text)}\n" if text else ""


def left_out_item(name: str, line: str, reason: Reason, count: Count) -> ReportItem:
    """Returns what a report says of a text that is left out."""
    return ReportItem(
        id=name, tokens=count(line), status=Status.OMITTED, reason=reason, preview=preview(line)
    )
