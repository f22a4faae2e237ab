"""The topics and entities that a message is about (L2, L3), and layers of the application's own, as text."""

from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from langchain_ctxbudget.budget import Fragment, Layer, Reason, Status, Tier
from langchain_ctxbudget.flow import Flow, in_thread
from langchain_ctxbudget.knowledge.known import (
    NOTHING,
    Detectable,
    Detection,
    Detector,
    Knowledge,
    Vector,
)
from langchain_ctxbudget.messages import (
    Count,
    clip_text,
    fences,
    fold,
    one_line,
    remembering,
    water_level,
)
from langchain_ctxbudget.report import LISTED_OMISSIONS, ReportItem, preview
from langchain_ctxbudget.search import pack, shrink_to
from langchain_ctxbudget.settings import ContextSettings, CustomLayer, Entity, LayerRequest, Topic

SECTIONS = {Layer.TOPICS: "## Topics\n", Layer.ENTITIES: "## People and things\n"}
MAX_TOPICS = 2
PRIMARY_PERCENT = 70
"""Share of the first of two topics (seed 000)."""
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
        found = self.subjects.items()
        return {
            layer: {one.id: bool(one.line) for one in several if one.is_learned}
            for layer, several in found
        }


@dataclass(frozen=True, slots=True)
class Bundles:
    """The texts of the detected subjects, and the account of everything left out."""

    fragments: tuple[Fragment, ...] = ()
    omitted: tuple[tuple[str, ReportItem], ...] = ()
    more_omitted: Mapping[Layer, dict[Reason, int]] = field(default_factory=dict)
    is_given: bool = False
    """Somebody else has written it, so it is not written anew."""


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

    Declared ones are found by their names; learned ones also by their terms and the message's
    vector (`query`), and entities by having been named in `recent` messages. Of two with one name,
    the declared one counts; of two found as surely, the one that is `expected`, likeliest first.
    """
    names = {
        one_line(fold(name))
        for items in _by_layer(settings).values()
        for item in items
        for name in item.names
    }
    detectors = {Layer.TOPICS: knowledge.topic_detector, Layer.ENTITIES: knowledge.entity_detector}
    found: dict[Layer, tuple[Subject, ...]] = {}
    omitted: list[tuple[Layer, ReportItem]] = []
    more: dict[Layer, dict[Reason, int]] = {}
    for layer, declared in _by_layer(settings).items():
        is_on = layer is Layer.TOPICS or settings.include_entities
        before = recent if layer is Layer.ENTITIES else ()
        least = settings.entity_context.min_relevance if layer is Layer.ENTITIES else 0.0
        own = _declared(text, declared) if is_on else []
        others = detectors[layer].detect(text, query=query, recent=before) if is_on else []
        learned = _learned(
            [one for one in others if one.confidence >= least], knowledge, names, expected
        )
        reason = Reason.NOT_DETECTED if is_on else Reason.SWITCHED_OFF
        rest = [item for item in declared if item.names[0] not in {one.id for one in own}]
        omitted += [
            (layer, _left_out(i.names[0], declared_line(i), reason, count))
            for i in rest[:LISTED_OMISSIONS]
        ]
        if number := len(detectors[layer]) - len(learned) + len(rest[LISTED_OMISSIONS:]):
            more[layer] = {reason: number}
        found[layer] = tuple(sorted((*own, *learned), key=lambda one: -one.confidence))
    return Detected(found, tuple(omitted), more)


def _by_layer(settings: ContextSettings) -> dict[Layer, Declared]:
    """Returns the topics and entities that the application declares."""
    return {Layer.TOPICS: settings.topics, Layer.ENTITIES: settings.entities}


def named(
    detected: Detected,
    found: Mapping[Layer, Mapping[str, float]],
    settings: ContextSettings,
    knowledge: Knowledge,
) -> Detected:
    """Returns the topics and entities of these ids, with how sure they are, in place of those that were detected."""
    chosen = dict[Layer, tuple[Subject, ...]]()
    for layer, declared in _by_layer(settings).items():
        lines = {item.names[0]: declared_line(item) for item in declared}
        texts = {
            key: bundle.compiled_prompt
            for key in found[layer]
            if (bundle := knowledge.bundles.get(key))
        }
        chosen[layer] = tuple(
            Subject(
                id=key,
                line=lines.get(key) or _line(texts.get(key, "")),
                confidence=sure,
                is_learned=key in texts,
            )
            for key, sure in found[layer].items()
        )
    left = tuple((layer, item) for layer, item in detected.omitted if item.id not in found[layer])
    return replace(detected, subjects=chosen, omitted=left)


def within(detected: Detected, tier: Tier, count: Count) -> Detected:
    """Returns the detected subjects of highest confidence, as many as a usage tier allows beside its facts."""
    if tier.knowledge_items is None:
        return detected
    every = (
        (layer, one) for layer, found in detected.subjects.items() for one in found if one.line
    )
    order = sorted(every, key=lambda layer_and_one: -layer_and_one[1].confidence)
    gone = order[tier.knowledge_items - tier.knowledge_items // 2 :]
    told = ((layer, _left_out(one.id, one.line, Reason.USAGE_LIMIT, count)) for layer, one in gone)
    stay = {
        layer: tuple(it for it in found if (layer, it) not in gone)
        for layer, found in detected.subjects.items()
    }
    return replace(detected, subjects=stay, omitted=(*detected.omitted, *told))


def declared_line(item: Topic | Entity) -> str:
    """Returns the line of a declared topic or entity in the prompt."""
    kind = "" if isinstance(item, Topic) else f" ({item.type})"
    return _line(f"{item.names[0]}{kind}: {item.context.strip()}")


def _line(text: str) -> str:
    return f"- {fences.as_item(text)}\n" if text else ""


@remembering(64)
def _detector(declared: Declared) -> Detector:
    return Detector(
        [Detectable(id=str(number), names=item.names) for number, item in enumerate(declared)]
    )


def _declared(text: str, declared: Declared) -> list[Subject]:
    found = _detector(declared).detect(text) if declared else []
    items = [
        (declared[int(one.id)], one.confidence) for one in found if one.how in ("name", "alias")
    ]
    return [
        Subject(id=item.names[0], line=declared_line(item), confidence=sure) for item, sure in items
    ]


def _learned(
    found: Iterable[Detection],
    knowledge: Knowledge,
    declared: Collection[str],
    expected: Sequence[str],
) -> list[Subject]:
    likely = {name: rank for rank, name in enumerate(expected)}
    subjects: list[Subject] = []
    for one in sorted(found, key=lambda one: (-one.confidence, likely.get(one.id, len(likely)))):
        bundle, [name, *_] = knowledge.bundles.get(one.id), knowledge.names_by_id[one.id]
        # Without a text nothing is known of it but the name.
        if one_line(fold(name)) not in declared and not (bundle and not bundle.compiled_prompt):
            line = _line(bundle.compiled_prompt) if bundle else ""
            subjects.append(
                Subject(id=one.id, line=line, confidence=one.confidence, is_learned=True)
            )
    return subjects


def render(
    detected: Detected, count: Count, *, topic_tokens: int, entity_tokens: int, most_entities: int
) -> Bundles:
    """Writes the detected topics and entities within the budgets of their layers.

    The first topic gets 70 %, the second what it leaves (seed 000); entities share theirs equally,
    and what one leaves. Where the whole does not fit into its share, its first lines stand for it,
    or the first sentences of a declared one.
    """
    fragments: list[Fragment] = []
    omitted = list(detected.omitted)
    for layer, subjects in detected.subjects.items():
        compiled = [one for one in subjects if one.line]
        omitted += [
            (layer, _left_out(one.id, one.id, Reason.NOT_COMPILED, count))
            for one in subjects
            if not one.line
        ]
        primary = topic_tokens * PRIMARY_PERCENT // 100
        costs = [count(one.line) for one in compiled[:most_entities]]
        rooms = [water_level(costs, entity_tokens)] * len(costs)
        if layer is Layer.TOPICS:
            rooms = (
                [primary, topic_tokens - primary] if len(compiled) >= MAX_TOPICS else [topic_tokens]
            )
        for rank, subject in enumerate(compiled):
            fragment = (
                _fragment(layer, subject, rank, rooms[rank], count) if rank < len(rooms) else None
            )
            if fragment is None:
                reason = Reason.NO_ROOM if rank < len(rooms) else Reason.RANKED_LOWER
                omitted.append((layer, _left_out(subject.id, subject.line, reason, count)))
            else:
                fragments.append(fragment)
                if layer is Layer.TOPICS and not rank:
                    rooms[1:] = [topic_tokens - fragment.tokens]
    return Bundles(tuple(fragments), tuple(omitted), detected.more_omitted)


def _fragment(
    layer: Layer, subject: Subject, rank: int, room: int, count: Count
) -> Fragment | None:
    text = subject.line
    is_whole = count(subject.line) <= room
    if (
        not is_whole and subject.is_learned
    ):  # its first lines are the most important ones; the name alone says nothing
        lines = text.splitlines(keepends=True)
        parts = ("".join(lines[:number]) for number in range(len(lines) - 1, 1, -1))
        text = next((part for part in parts if count(part) <= room), "")
    elif not is_whole:
        shrunk = shrink_to(text[:-1], lambda part: count(part + "\n"), room)
        text = f"{shrunk}\n" if shrunk else ""
    if not text:
        return None
    return Fragment(
        layer=layer,
        id=subject.id,
        text=text,
        tokens=count(text),
        reason=Reason.DETECTED if is_whole else Reason.NO_ROOM,
        status=Status.INCLUDED if is_whole else Status.SHRUNK,
        section=SECTIONS[layer],
        value=-float(rank),
        scores={"confidence": subject.confidence} if subject.is_learned else {},
    )


def _left_out(name: str, line: str, reason: Reason, count: Count) -> ReportItem:
    return ReportItem(
        id=name, tokens=count(line), status=Status.OMITTED, reason=reason, preview=preview(line)
    )


# Layers of the application's own


def fetch(layer: CustomLayer, request: LayerRequest) -> Flow[tuple[str, ...]]:
    """Gets the items of a layer; a function is called in a worker thread under async.

    Raises whatever the function raises, and `TypeError` where it gives something else than strings.
    """
    given: Any = layer.items
    if callable(given):
        given = yield in_thread(partial(given, request))
    if isinstance(given, Coroutine):
        given.close()
        raise TypeError(
            "its function is async; a plain function is called in a worker thread under async"
        )
    items: tuple[Any, ...] = (given,) if isinstance(given, str | bytes) else tuple(given)
    if wrong := [item for item in items if not isinstance(item, str)]:
        raise TypeError(f"an item is {wrong[0]!r}, not a string")
    return items


def own_section(layer: CustomLayer) -> str:
    """Returns the line above the items of a layer."""
    return f"## {fences.as_data(one_line(layer.name))}\n"


def render_own(
    layer: CustomLayer, items: Sequence[str], count: Count, budget_tokens: int
) -> Bundles:
    """Writes the items of a layer that fit a budget, heading included.

    The first that does not fit is shrunk.
    """
    section = own_section(layer)
    given = {place: item.strip() for place, item in enumerate(items, 1) if item.strip()}
    costs = {place: count(_line(item)) for place, item in given.items()}
    room = budget_tokens - count(section)
    taken = set(pack(costs, room))
    left = room - sum(costs[place] for place in taken)

    def part(place: int, text: str, status: Status, reason: Reason) -> Fragment:
        about: dict[str, Any] = {
            "section": section,
            "value": -float(place),
            "status": status,
            "reason": reason,
        }
        return Fragment(
            layer=layer.name, id=f"{layer.name} {place}", text=text, tokens=count(text), **about
        )

    fragments: list[Fragment] = []
    omitted: list[tuple[str, ReportItem]] = []
    for place, item in given.items():
        if place in taken:
            fragments.append(part(place, _line(item), Status.INCLUDED, Reason.CONFIGURED))
            continue
        shorter = clip_text(item, lambda text: count(_line(text)), left) if left > 0 else None
        left = 0  # only the first one is shrunk
        if shorter is None:
            omitted.append(
                (layer.name, _left_out(f"{layer.name} {place}", _line(item), Reason.NO_ROOM, count))
            )
        else:
            fragments.append(part(place, _line(shorter.strip()), Status.SHRUNK, Reason.CLIPPED))
    return Bundles(tuple(fragments), tuple(omitted))
