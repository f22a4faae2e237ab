"""Topics and entities that the application declares: which ones a message names, and their text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from langchain_ctxbudget.core import fences
from langchain_ctxbudget.core.assembly import Fragment
from langchain_ctxbudget.core.candidates import Candidate
from langchain_ctxbudget.core.last_resort import MEMORIES_HEADING
from langchain_ctxbudget.core.layers import Layer, Reason, Status
from langchain_ctxbudget.core.packing import pack, shrink_to
from langchain_ctxbudget.core.report import ReportItem, preview
from langchain_ctxbudget.core.text import fold, mentions
from langchain_ctxbudget.settings import ContextSettings, Entity, Topic

T = TypeVar("T")

TOPICS_SECTION, ENTITIES_SECTION = "## Topics\n", "## People and things\n"
SMALLEST_MEMORY_TOKENS = 4
_MEMORY = "memory"

PRIMARY_SHARE = 0.70
"""The first topic gets this share of the layer, the second the rest (seed 000)."""
MAX_TOPICS, MAX_ENTITIES = 2, 3


@dataclass(frozen=True, slots=True)
class Detected:
    """What a message names, most often named first."""

    topics: tuple[Topic, ...] = ()
    entities: tuple[Entity, ...] = ()


@dataclass(frozen=True, slots=True)
class Bundles:
    """The text of what was detected, and the account of everything declared."""

    fragments: tuple[Fragment, ...] = ()
    omitted: tuple[tuple[Layer, ReportItem], ...] = ()


def detect(text: str, settings: ContextSettings) -> Detected:
    """The declared topics and entities that a text names, by label or alias, whole words, any case."""
    folded = fold(text)
    return Detected(
        topics=_named(folded, settings.topics, lambda topic: topic.names),
        entities=_named(folded, settings.entities, lambda entity: entity.names),
    )


def _named(folded: str, declared: Iterable[T], names: Callable[[T], tuple[str, ...]]) -> tuple[T, ...]:
    counted = [(mentions(folded, names(item)), item) for item in declared]
    found = [(count, item) for count, item in counted if count]
    return tuple(item for _, item in sorted(found, key=lambda pair: -pair[0]))


def topic_line(topic: Topic) -> str:
    """A topic as it stands in the prompt."""
    return f"- {fences.as_item(f'{topic.label}: {topic.context.strip()}')}\n"


def entity_line(entity: Entity) -> str:
    """An entity as it stands in the prompt."""
    return f"- {fences.as_item(f'{entity.name} ({entity.type}): {entity.context.strip()}')}\n"


def bundles(
    detected: Detected,
    settings: ContextSettings,
    count: Callable[[str], int],
    *,
    topic_tokens: int,
    entity_tokens: int,
) -> Bundles:
    """The text of the detected topics and entities within their layers' budgets.

    Args:
        detected: what the message names.
        settings: everything that is declared.
        count: tokens of a text.
        topic_tokens: what topics may cost together.
        entity_tokens: what entities may cost together.
    """
    primary = topic_tokens if len(detected.topics) < MAX_TOPICS else int(topic_tokens * PRIMARY_SHARE)
    shares = (primary, topic_tokens - primary)
    people = detected.entities if settings.include_entities else ()
    each = entity_tokens // max(1, min(len(people), MAX_ENTITIES))
    fragments: list[Fragment] = []
    omitted: list[tuple[Layer, ReportItem]] = []

    def place(layer: Layer, name: str, line: str, room: int, rank: int) -> None:
        if rank >= (MAX_TOPICS if layer is Layer.TOPICS else MAX_ENTITIES):
            omitted.append((layer, _left_out(name, line, Reason.RANKED_LOWER, count)))
            return
        shrunk = shrink_to(line.removesuffix("\n"), lambda part: count(part + "\n"), room)
        if shrunk is None:
            omitted.append((layer, _left_out(name, line, Reason.NO_ROOM, count)))
            return
        text = shrunk + "\n"
        whole = text == line
        fragments.append(
            Fragment(
                layer=layer,
                id=name,
                text=text,
                tokens=count(text),
                reason=Reason.DETECTED if whole else Reason.NO_ROOM,
                status=Status.INCLUDED if whole else Status.SHRUNK,
                section=TOPICS_SECTION if layer is Layer.TOPICS else ENTITIES_SECTION,
                value=-float(rank),
            )
        )

    for rank, topic in enumerate(detected.topics):
        place(Layer.TOPICS, topic.label, topic_line(topic), shares[min(rank, 1)], rank)
    for rank, entity in enumerate(people):
        place(Layer.ENTITIES, entity.name, entity_line(entity), each, rank)
    omitted += _undetected(detected, settings, count)
    return Bundles(tuple(fragments), tuple(omitted))


def _undetected(
    detected: Detected, settings: ContextSettings, count: Callable[[str], int]
) -> list[tuple[Layer, ReportItem]]:
    result = [
        (Layer.TOPICS, _left_out(topic.label, topic_line(topic), Reason.NOT_DETECTED, count))
        for topic in settings.topics
        if topic not in detected.topics
    ]
    for entity in settings.entities:
        if entity in detected.entities and settings.include_entities:
            continue
        reason = Reason.NOT_DETECTED if settings.include_entities else Reason.SWITCHED_OFF
        result.append((Layer.ENTITIES, _left_out(entity.name, entity_line(entity), reason, count)))
    return result


def _left_out(name: str, line: str, reason: Reason, count: Callable[[str], int]) -> ReportItem:
    return ReportItem(id=name, tokens=count(line), status=Status.OMITTED, reason=reason, preview=preview(line))


def preference_fragments(settings: ContextSettings, count: Callable[[str], int]) -> tuple[Fragment, ...]:
    """The preferences given in the settings, as lines."""
    return _configured(settings.preferences, "preference", "", count)


def memory_fragments(settings: ContextSettings, count: Callable[[str], int]) -> tuple[Fragment, ...]:
    """What the settings know about the user, as lines; worth less than any preference."""
    return _configured(settings.memories, _MEMORY, MEMORIES_HEADING, count, first=len(settings.preferences) + 1)


def as_candidates(fragments: Iterable[Fragment]) -> tuple[Candidate, ...]:
    """What is known about the user, as texts that retrieval may quote."""
    return tuple(
        Candidate(id=part.id, source="memories", text=part.text.removeprefix("- ").strip(), place=place, kind="fact")
        for place, part in enumerate(fragments)
        if part.id.startswith(_MEMORY)
    )


def _configured(
    texts: Iterable[str], name: str, heading: str, count: Callable[[str], int], first: int = 1
) -> tuple[Fragment, ...]:
    lines = [f"- {fences.as_item(text.strip())}\n" for text in texts]
    return tuple(
        Fragment(
            layer=Layer.PREFERENCES,
            id=f"{name} {number}",
            text=line,
            tokens=count(line),
            reason=Reason.CONFIGURED,
            heading=heading,
            value=-float(first + number),
        )
        for number, line in enumerate(lines, 1)
    )


def fitting(fragments: Sequence[Fragment], budget_tokens: int) -> tuple[Fragment, ...]:
    """The first fragments that fit a budget together."""
    used = 0
    result: list[Fragment] = []
    for fragment in fragments:
        if used + fragment.tokens > budget_tokens:
            break
        used += fragment.tokens
        result.append(fragment)
    return tuple(result)


def packed(fragments: Sequence[Fragment], count: Callable[[str], int], budget_tokens: int) -> tuple[Fragment, ...]:
    """As many fragments as fit a budget with their common heading; one that is too large is skipped."""
    if not fragments:
        return ()
    room = budget_tokens - count(fragments[0].heading)
    costs = [fragment.tokens for fragment in fragments]
    taken = pack(range(len(fragments)), costs.__getitem__, room, SMALLEST_MEMORY_TOKENS)
    return tuple(fragments[number] for number in sorted(taken))
