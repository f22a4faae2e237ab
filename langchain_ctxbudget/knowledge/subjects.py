"""The topics and entities that a message is about (L2, L3), and the application's own layers."""

from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from langchain_ctxbudget.budget import Fragment, Layer, Reason, Status, Tier
from langchain_ctxbudget.flow import Flow, in_thread
from langchain_ctxbudget.knowledge.detection import Detectable, Detection, Detector, Vector
from langchain_ctxbudget.knowledge.known import NOTHING, Knowledge
from langchain_ctxbudget.messages import (
    Count,
    cached_until_forgotten,
    clip_text,
    fences,
    fold,
    one_line,
    water_level,
)
from langchain_ctxbudget.report import LISTED_OMISSIONS, ReportItem, preview
from langchain_ctxbudget.search import pack, shrink_to
from langchain_ctxbudget.settings import ContextSettings, CustomLayer, Entity, LayerRequest, Topic

SECTIONS = {Layer.TOPICS: "## Topics\n", Layer.ENTITIES: "## People and things\n"}
MAX_TOPICS = 2
"""Topics that a prompt shows."""
PRIMARY_PERCENT = 70
"""The share of their room that the first of two topics gets."""
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


@dataclass(frozen=True, slots=True)
class Detected:
    """The topics and entities that a message is about."""

    subjects: Mapping[Layer, tuple[Subject, ...]] = field(default_factory=dict)
    """Topics, then entities, by their layer; of each the surest first."""
    omitted: tuple[tuple[Layer, ReportItem], ...] = ()
    """Declared ones that are not among them, no more than a report lists."""
    more_omitted: Mapping[Layer, dict[Reason, int]] = field(default_factory=dict)
    """The number of all others of a layer, by reason."""

    @property
    def topics(self) -> tuple[Subject, ...]:
        """The topics."""
        return self.subjects.get(Layer.TOPICS, ())

    @property
    def entities(self) -> tuple[Subject, ...]:
        """The entities."""
        return self.subjects.get(Layer.ENTITIES, ())

    @property
    def compiled(self) -> dict[str, dict[str, bool]]:
        """By layer, the compiled texts that are used, and whether each was there."""
        compiled: dict[str, dict[str, bool]] = {}
        for layer, subjects in self.subjects.items():
            compiled[layer] = {
                subject.id: bool(subject.line) for subject in subjects if subject.is_learned
            }
        return compiled


@dataclass(frozen=True, slots=True)
class Bundles:
    """The texts of a layer, and the account of everything left out."""

    fragments: tuple[Fragment, ...] = ()
    omitted: tuple[tuple[str, ReportItem], ...] = ()
    more_omitted: Mapping[Layer, dict[Reason, int]] = field(default_factory=dict)
    is_given: bool = False
    """Somebody else has written it, so it is not written anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _LayerDetected:
    """The topics, or the entities, that a message is about."""

    subjects: tuple[Subject, ...]
    """The surest first."""
    omitted: tuple[ReportItem, ...]
    """Declared ones that are not among them, no more than a report lists."""
    more_omitted: dict[Reason, int]
    """The number of all others, by reason."""


def detect(
    text: str,
    settings: ContextSettings,
    knowledge: Knowledge = NOTHING,
    *,
    recent: Sequence[str] = (),
    query: Vector | None = None,
    expected: Sequence[str] = (),
    count: Count = len,
) -> Detected:
    """Finds the topics and entities that a text is about.

    Declared ones are found by their names. Learned ones are also found by their terms and their
    vectors, and entities by having been named just before. Of two with one name, the declared one
    counts.

    Args:
        text: The text.
        settings: The settings, which declare topics and entities.
        knowledge: What is known about the user.
        recent: The messages before it, newest last.
        query: The vector of the text, where vectors are compared.
        expected: The ids of what is likely to come up, likeliest first, which decides between those
            found as surely.
        count: Counts the tokens of a text, for the report.
    """
    declared_names: set[str] = set()
    all_declared: Declared = (*settings.topics, *settings.entities)
    for item in all_declared:
        declared_names.update(one_line(fold(name)) for name in item.names)

    found_topics = knowledge.topic_detector.detect(text, query=query)
    topics = _in_layer(
        _declared_subjects(text, settings.topics),
        _learned_subjects(found_topics, knowledge, declared_names, expected),
        settings.topics,
        known=len(knowledge.topic_detector),
        count=count,
    )
    if settings.include_entities:
        found_entities = _relevant_entities(text, settings, knowledge, recent=recent, query=query)
        entities = _in_layer(
            _declared_subjects(text, settings.entities),
            _learned_subjects(found_entities, knowledge, declared_names, expected),
            settings.entities,
            known=len(knowledge.entity_detector),
            count=count,
        )
    else:
        entities = _in_layer(
            (),
            (),
            settings.entities,
            known=len(knowledge.entity_detector),
            count=count,
            reason=Reason.SWITCHED_OFF,
        )

    layers = {Layer.TOPICS: topics, Layer.ENTITIES: entities}
    omitted: list[tuple[Layer, ReportItem]] = []
    for layer, found in layers.items():
        omitted += [(layer, item) for item in found.omitted]
    return Detected(
        {layer: found.subjects for layer, found in layers.items()},
        tuple(omitted),
        {layer: found.more_omitted for layer, found in layers.items() if found.more_omitted},
    )


def _relevant_entities(
    text: str,
    settings: ContextSettings,
    knowledge: Knowledge,
    *,
    recent: Sequence[str],
    query: Vector | None,
) -> list[Detection]:
    """Returns the known entities that a text is about, as sure as the settings ask for."""
    least = settings.entity_context.min_relevance
    detections = knowledge.entity_detector.detect(text, query=query, recent=recent)
    return [detection for detection in detections if detection.confidence >= least]


def _in_layer(
    own: Sequence[Subject],
    learned: Sequence[Subject],
    declared: Declared,
    *,
    known: int,
    count: Count,
    reason: Reason = Reason.NOT_DETECTED,
) -> _LayerDetected:
    """Returns the subjects of a layer, the surest first, and the account of those left out.

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
        _left_out(item.names[0], declared_line(item), reason, count)
        for item in others[:LISTED_OMISSIONS]
    ]
    unlisted = known - len(learned) + len(others[LISTED_OMISSIONS:])
    return _LayerDetected(
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


def _declared_subjects(text: str, declared: Declared) -> list[Subject]:
    """Returns the declared topics or entities that a text names."""
    if not declared:
        return []
    subjects = []
    for detection in _detector_of(declared).detect(text):
        if detection.how not in ("name", "alias"):
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
    detected: Detected,
    confidences: Mapping[Layer, Mapping[str, float]],
    settings: ContextSettings,
    knowledge: Knowledge,
) -> Detected:
    """Returns topics and entities in place of those that were detected.

    Args:
        detected: What was detected.
        confidences: The ids of the topics and entities by layer, with how sure they are.
        settings: The settings, which declare some of them.
        knowledge: What is known of the others.
    """
    declared_by_layer: dict[Layer, Declared] = {
        Layer.TOPICS: settings.topics,
        Layer.ENTITIES: settings.entities,
    }
    chosen: dict[Layer, tuple[Subject, ...]] = {}
    for layer, declared in declared_by_layer.items():
        lines = {item.names[0]: declared_line(item) for item in declared}
        subjects = []
        for name, confidence in confidences[layer].items():
            bundle = knowledge.bundles.get(name)
            line = lines.get(name)
            if not line:
                line = _line(bundle.compiled_prompt) if bundle else ""
            subjects.append(
                Subject(id=name, line=line, confidence=confidence, is_learned=bundle is not None)
            )
        chosen[layer] = tuple(subjects)
    still_omitted = tuple(
        (layer, item) for layer, item in detected.omitted if item.id not in confidences[layer]
    )
    return replace(detected, subjects=chosen, omitted=still_omitted)


def within_tier(detected: Detected, tier: Tier, count: Count) -> Detected:
    """Returns the surest of the detected subjects, as many as a usage tier allows beside facts."""
    if tier.knowledge_items is None:
        return detected
    with_text: list[tuple[Layer, Subject]] = []
    for layer, subjects in detected.subjects.items():
        with_text += [(layer, subject) for subject in subjects if subject.line]
    with_text.sort(key=lambda pair: -pair[1].confidence)
    too_many = with_text[tier.knowledge_items - tier.knowledge_items // 2 :]

    remaining: dict[Layer, tuple[Subject, ...]] = {}
    for layer, subjects in detected.subjects.items():
        remaining[layer] = tuple(
            subject for subject in subjects if (layer, subject) not in too_many
        )
    omitted = [
        (layer, _left_out(subject.id, subject.line, Reason.USAGE_LIMIT, count))
        for layer, subject in too_many
    ]
    return replace(detected, subjects=remaining, omitted=(*detected.omitted, *omitted))


def declared_line(item: Topic | Entity) -> str:
    """Returns the line of a declared topic or entity in the prompt."""
    kind = "" if isinstance(item, Topic) else f" ({item.type})"
    return _line(f"{item.names[0]}{kind}: {item.context.strip()}")


def _line(text: str) -> str:
    return f"- {fences.as_item(text)}\n" if text else ""


def _left_out(name: str, line: str, reason: Reason, count: Count) -> ReportItem:
    return ReportItem(
        id=name, tokens=count(line), status=Status.OMITTED, reason=reason, preview=preview(line)
    )


# Topics and entities as text


def render(
    detected: Detected, count: Count, *, topic_tokens: int, entity_tokens: int, most_entities: int
) -> Bundles:
    """Writes the detected topics and entities within the budgets of their layers.

    The first topic gets 70 %, the second what it leaves. Entities share theirs equally, and what
    one leaves. Where the whole does not fit into its share, its first lines stand for it, or the
    first sentences of a declared one.

    Args:
        detected: The topics and entities.
        count: Counts the tokens of a text.
        topic_tokens: The budget of all topics.
        entity_tokens: The budget of all entities.
        most_entities: How many entities may share it.
    """
    fragments: list[Fragment] = []
    omitted: list[tuple[str, ReportItem]] = list(detected.omitted)
    for layer, subjects in detected.subjects.items():
        with_text = [subject for subject in subjects if subject.line]
        for subject in subjects:
            if not subject.line:
                item = _left_out(subject.id, subject.id, Reason.NOT_COMPILED, count)
                omitted.append((layer, item))

        if layer is Layer.TOPICS:
            shown = with_text[:MAX_TOPICS]
            rendered = _rendered_topics(shown, topic_tokens, count)
        else:
            shown = with_text[:most_entities]
            rendered = _rendered_entities(shown, entity_tokens, count)
        for subject, fragment in zip(shown, rendered, strict=True):
            if fragment is not None:
                fragments.append(fragment)
            else:
                item = _left_out(subject.id, subject.line, Reason.NO_ROOM, count)
                omitted.append((layer, item))
        for subject in with_text[len(shown) :]:
            item = _left_out(subject.id, subject.line, Reason.RANKED_LOWER, count)
            omitted.append((layer, item))
    return Bundles(tuple(fragments), tuple(omitted), detected.more_omitted)


def _rendered_topics(
    topics: Sequence[Subject], budget_tokens: int, count: Count
) -> list[Fragment | None]:
    """Returns the texts of topics: one has the whole budget, the second what the first leaves."""
    room_tokens = budget_tokens
    reserved_tokens = 0
    if len(topics) == MAX_TOPICS:
        room_tokens = budget_tokens * PRIMARY_PERCENT // 100
        reserved_tokens = budget_tokens - room_tokens
    rendered = []
    for rank, topic in enumerate(topics):
        fragment = _fragment(Layer.TOPICS, topic, rank, room_tokens, count)
        rendered.append(fragment)
        room_tokens = reserved_tokens if fragment is None else budget_tokens - fragment.tokens
    return rendered


def _rendered_entities(
    entities: Sequence[Subject], budget_tokens: int, count: Count
) -> list[Fragment | None]:
    """Returns the texts of entities, each cut to the same share of the budget."""
    costs = [count(entity.line) for entity in entities]
    room_tokens = water_level(costs, budget_tokens)
    return [
        _fragment(Layer.ENTITIES, entity, rank, room_tokens, count)
        for rank, entity in enumerate(entities)
    ]


def _fragment(
    layer: Layer, subject: Subject, rank: int, room_tokens: int, count: Count
) -> Fragment | None:
    """Returns the text of a topic or an entity, shrunk to its room; None where nothing fits."""
    text = subject.line
    reason = Reason.DETECTED
    status = Status.INCLUDED
    if count(text) > room_tokens:
        text = _shrunk(subject, room_tokens, count)
        reason = Reason.NO_ROOM
        status = Status.SHRUNK
    if not text:
        return None
    scores = {}
    if subject.is_learned:
        scores["confidence"] = subject.confidence
    return Fragment(
        layer=layer,
        id=subject.id,
        text=text,
        tokens=count(text),
        reason=reason,
        status=status,
        section=SECTIONS[layer],
        value=-float(rank),
        scores=scores,
    )


def _shrunk(subject: Subject, room_tokens: int, count: Count) -> str:
    """Returns the first lines of a compiled text, or sentences of a declared one, that fit a room.

    Empty where nothing fits, or only the name.
    """
    if not subject.is_learned:
        sentences = shrink_to(subject.line[:-1], lambda part: count(part + "\n"), room_tokens)
        return f"{sentences}\n" if sentences else ""
    lines = subject.line.splitlines(keepends=True)
    for number in range(len(lines) - 1, 1, -1):
        text = "".join(lines[:number])
        if count(text) <= room_tokens:
            return text
    return ""


# Layers of the application's own


def fetch(layer: CustomLayer, request: LayerRequest) -> Flow[tuple[str, ...]]:
    """Returns the items of a layer; a function is called in a worker thread under async.

    Raises:
        TypeError: The function gives something else than strings.
        Exception: Whatever the function raises.
    """
    items: Any = layer.items
    if callable(items):
        items = yield in_thread(partial(items, request))
    if isinstance(items, Coroutine):
        items.close()
        raise TypeError(
            "its function is async; a plain function is called in a worker thread under async"
        )
    texts: tuple[Any, ...] = (items,) if isinstance(items, str | bytes) else tuple(items)
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"an item is {text!r}, not a string")
    return texts


def own_section(layer: CustomLayer) -> str:
    """Returns the line above the items of a layer."""
    return f"## {fences.as_data(one_line(layer.name))}\n"


def render_own(
    layer: CustomLayer, items: Sequence[str], count: Count, budget_tokens: int
) -> Bundles:
    """Writes the items of a layer that fit a budget, heading included.

    The first one that does not fit is shrunk.

    Args:
        layer: The layer.
        items: Its items, the most important first.
        count: Counts the tokens of a text.
        budget_tokens: The budget.
    """
    section = own_section(layer)
    texts = {place: item.strip() for place, item in enumerate(items, 1) if item.strip()}
    costs = {place: count(_line(text)) for place, text in texts.items()}
    room_tokens = budget_tokens - count(section)
    whole = set(pack(costs, room_tokens))
    tokens_left = room_tokens - sum(costs[place] for place in whole)

    fragments: list[Fragment] = []
    omitted: list[tuple[str, ReportItem]] = []
    for place, text in texts.items():
        if place in whole:
            fragment = _own_fragment(layer, place, _line(text), count)
            fragments.append(fragment)
            continue
        shorter = None
        if tokens_left > 0:
            shorter = clip_text(text, lambda part: count(_line(part)), tokens_left)
            tokens_left = 0  # only the first one is shrunk
        if shorter is None:
            name = f"{layer.name} {place}"
            omitted.append((layer.name, _left_out(name, _line(text), Reason.NO_ROOM, count)))
            continue
        fragment = _own_fragment(layer, place, _line(shorter.strip()), count)
        fragments.append(replace(fragment, status=Status.SHRUNK, reason=Reason.CLIPPED))
    return Bundles(tuple(fragments), tuple(omitted))


def _own_fragment(layer: CustomLayer, place: int, line: str, count: Count) -> Fragment:
    return Fragment(
        layer=layer.name,
        id=f"{layer.name} {place}",
        text=line,
        tokens=count(line),
        section=own_section(layer),
        value=-float(place),
        status=Status.INCLUDED,
        reason=Reason.CONFIGURED,
    )
