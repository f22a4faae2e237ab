"""The lines of a bundle: what is known of a topic or an entity as data, one field per line, and the lines that fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from langchain_ctxbudget.knowledge.facts import shown
from langchain_ctxbudget.knowledge.records import EntityProfile, Fact, TopicProfile
from langchain_ctxbudget.messages.text import one_line, terms
from langchain_ctxbudget.search.packing import ELLIPSIS, shrink_to
from langchain_ctxbudget.stores.clock import utc

Count = Callable[[str], int]

FIRST_ATTRIBUTES = ("email", "phone", "title", "department", "location")
"""Attributes that come first, in this order (seed 004)."""
MOST_ATTRIBUTES = 5
MOST_LISTED = 8
BELOW, HEADED, LISTED = ("\n", "\n"), (": ", "; "), ("; ", "; ")
"""Separators: the one behind the first line, and the one behind all others."""

_CHARACTERS_PER_TOKEN = 20
"""No text has so many on average; a longer part of a line is not even counted."""
_LEAST_TOKENS = 3
"""Less room is not worth another line."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a bundle."""

    text: str
    ids: tuple[str, ...] = ()
    """The items that it shows; a part of it shows the first one."""
    short: str = ""
    """A text that may stand in its place."""
    divisible: bool = False
    """A part of it is better than nothing."""


def topic_shown(profile: TopicProfile) -> tuple[object, ...]:
    """Returns all that a bundle can show of a topic: while it stays, the bundle stays clean."""
    lines = (*_context(profile.compiled_context), *_engagement(profile))
    said = (highlight.text for highlight in profile.highlights)
    return profile.label, *(line.text for line in lines), *said, profile.parent_slug, profile.related_memory_ids


def entity_shown(profile: EntityProfile) -> tuple[object, ...]:
    """Returns all that a bundle can show of an entity: while it stays, the bundle stays clean."""
    return profile.name, profile.type, *(line.text for line in entity_lines(profile, ()))


def holding(facts: Iterable[Fact], now: datetime) -> list[Fact]:
    """Returns the facts that are true now."""
    return [
        fact
        for fact in facts
        if fact.is_current
        and (fact.valid_from is None or utc(fact.valid_from) <= utc(now))
        and (fact.valid_until is None or utc(fact.valid_until) > utc(now))
    ]


def fact_line(fact: Fact) -> Line:
    """Returns the line of a fact."""
    return Line(one_line(shown(fact)), (fact.id,))


def without_ended(text: str, facts: Iterable[Fact], now: datetime) -> str:
    """Returns the text of a bundle without those of its facts that are no longer true; "" if only a name is left."""
    given = tuple(facts)
    ended = {fact_line(fact).text for fact in given} - {fact_line(fact).text for fact in holding(given, now)}
    lines = text.split("\n")
    left = [line for line in lines if line not in ended]
    return text if left == lines else "\n".join(left) if len(left) > 1 else ""


def topic_lines(
    profile: TopicProfile, facts: Iterable[Fact], parent: TopicProfile | None, children: Sequence[TopicProfile]
) -> list[Line]:
    """Returns the lines of a topic, most important first; none where only its name and its counts are known."""
    context, told = _context(profile.compiled_context), tuple(facts)
    sources = {(one.conversation_id, one.message_id) for fact in told for one in fact.sources}
    known = [
        *map(fact_line, told),
        *(
            Line(f"{one.date}: {one_line(one.text)}" if one.date else one_line(one.text))
            for one in reversed(profile.highlights)
            if (one.source.conversation_id, one.source.message_id) not in sources  # a fact says it already
        ),
        *listing("Includes: ", [(one_line(child.label), child.id) for child in children]),
    ]
    if not (context or known):
        return []
    name = one_line(profile.label) + (f" (part of {one_line(parent.label)})" if parent else "")
    head = Line(name, (profile.id, *([parent.id] if parent else [])), divisible=True)
    return [head, *context, *_engagement(profile), *known]


def _engagement(profile: TopicProfile) -> Iterator[Line]:
    if profile.proficiency_level != "unknown":
        yield Line(f"The user's level: {profile.proficiency_level}")
    if number := profile.total_conversations:
        days = [utc(time).date().isoformat() for time in (profile.first_engaged_at, profile.last_engaged_at) if time]
        span = " to ".join(dict.fromkeys(days))
        yield Line(f"Came up in {number} conversation{'s' * (number > 1)}{', ' * bool(span)}{span}")


def entity_lines(profile: EntityProfile, facts: Iterable[Fact]) -> list[Line]:
    """Returns the lines of an entity in the order of seed 004; none where only its name is known."""
    own = [set(terms(text)) for text in profile.facts]
    values = {name: value for name, value in profile.attributes if value.strip()}  # the newest of each
    place = {name: number for number, name in enumerate(FIRST_ATTRIBUTES)}
    names = sorted(values, key=lambda name: place.get(name.casefold(), len(place)))[:MOST_ATTRIBUTES]
    known = [
        *_context(profile.compiled_context),
        *([Line(one_line(profile.relationship))] if profile.relationship else []),
        *(Line(one_line(f"{name}: {values[name]}")) for name in names),
        *listing("Related: ", [(one_line(f"{one.relation} {one.target}"), "") for one in profile.relations]),
        *(Line(one_line(text)) for text in reversed(profile.facts)),
        # A fact that says no more than the entity's own is left out.
        *(fact_line(fact) for fact in facts if not any(len(one) > 1 and one <= set(terms(fact.text)) for one in own)),
    ]
    head = Line(f"{one_line(profile.name)} ({profile.type})", (profile.id,), divisible=True)
    return [head, *known] if known else []


def _context(text: str | None) -> list[Line]:
    return [Line(one_line(text), divisible=True)] if text else []


def listing(heading: str, items: Sequence[tuple[str, str]]) -> list[Line]:
    """Returns one line of several names, each given with its id."""
    named = [(name, key) for name, key in items if name][:MOST_LISTED]
    text = heading + ", ".join(name for name, _ in named)
    return [Line(text, tuple(key for _, key in named if key), short=heading + named[0][0])] if named else []


def fitted(
    lines: Iterable[Line], marks: tuple[str, str], count: Count, cap_tokens: int
) -> tuple[str, int, tuple[str, ...]]:
    """Takes lines in order as long as they fit a cap, each text once; returns text, tokens and the ids that it shows.

    A line that does not fit is cut if it is divisible, else skipped.
    """
    text, tokens, number = "", 0, 0
    ids: dict[str, None] = {}
    seen: set[str] = set()
    for line in lines:
        if not line.text or line.text in seen or cap_tokens - tokens < _LEAST_TOKENS:
            continue
        seen.add(line.text)
        lead = text + marks[min(number - 1, 1)] if number else ""
        for part in _parts(line, lead, count, cap_tokens):
            if part and (cost := count(lead + part)) <= cap_tokens:
                text, tokens, number = lead + part, cost, number + 1
                ids |= dict.fromkeys(line.ids if part == line.text else line.ids[:1])
                break
    return text, tokens, tuple(ids)


def _parts(line: Line, lead: str, count: Count, cap_tokens: int) -> Iterator[str]:
    """Yields the texts that may stand for a line, the best first."""
    text = line.text[: _CHARACTERS_PER_TOKEN * cap_tokens]
    if len(text) == len(line.text):
        yield text
    yield line.short
    if line.divisible:
        yield shrink_to(text, lambda part: count(lead + part), cap_tokens) or ""
        yield _first_words(text, lambda part: count(lead + part), cap_tokens)


def _first_words(text: str, count: Count, cap_tokens: int) -> str:
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(text[:middle] + ELLIPSIS) <= cap_tokens else (low, middle - 1)
    words = text[:low].rpartition(" ")[0] or text[:low]
    return words + ELLIPSIS if words else ""
