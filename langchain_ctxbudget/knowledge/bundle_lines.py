"""The lines of a bundle, and as many of them as fit: what is known of a topic or an entity, as data.

Every field stands on one line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from langchain_ctxbudget.core.packing import ELLIPSIS, shrink_to
from langchain_ctxbudget.core.text import one_line, terms
from langchain_ctxbudget.knowledge.facts import shown
from langchain_ctxbudget.knowledge.records import EntityProfile, Fact, Highlight, TopicProfile

Count = Callable[[str], int]

FIRST_ATTRIBUTES = ("email", "phone", "title", "department", "location")
"""Those that come first, in this order (seed 004)."""
MOST_ATTRIBUTES = 5
MOST_LISTED = 8
BELOW, HEADED, LISTED = ("\n", "\n"), (": ", "; "), ("; ", "; ")
"""What stands behind the first line of a text, and behind the others."""

_CHARACTERS_PER_TOKEN = 20
"""No text has so many on average; more than that of a line is not even counted."""
_LEAST_TOKENS = 3
"""What is left is not worth another line."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a bundle."""

    text: str
    ids: tuple[str, ...] = ()
    """Of what it says; of a part of it, the first."""
    short: str = ""
    """What may stand in its place."""
    divisible: bool = False
    """Whether a part of it is better than nothing."""


def topic_shown(profile: TopicProfile) -> tuple[object, ...]:
    """What a topic's bundle shows of it, or would with facts: while this stays, it need not be compiled again."""
    lines = (*_context(profile.compiled_context), *_engagement(profile))
    said = (highlight.text for highlight in profile.highlights)
    return profile.label, *(line.text for line in lines), *said, profile.parent_slug, profile.related_memory_ids


def entity_shown(profile: EntityProfile) -> tuple[object, ...]:
    """What an entity's bundle shows of it, or would with facts: while this stays, it need not be compiled again."""
    return profile.name, profile.type, *(line.text for line in entity_lines(profile, ()))


def utc(time: datetime) -> datetime:
    """A time in UTC; one without an offset is UTC already."""
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


def holding(facts: Iterable[Fact], now: datetime) -> list[Fact]:
    """The facts that hold now."""
    return [
        fact
        for fact in facts
        if fact.is_current
        and (fact.valid_from is None or utc(fact.valid_from) <= utc(now))
        and (fact.valid_until is None or utc(fact.valid_until) > utc(now))
    ]


def fact_text(fact: Fact) -> str:
    """The line of a fact in a bundle."""
    return one_line(shown(fact))


def without_ended(text: str, facts: Iterable[Fact], now: datetime) -> str:
    """The text of a bundle without the facts that hold no more; none where that leaves nothing but a name.

    Args:
        text: of the bundle.
        facts: those that it shows, each in a line of its own.
        now: what time it is.
    """
    given = tuple(facts)
    ended = {fact_text(fact) for fact in given} - {fact_text(fact) for fact in holding(given, now)}
    lines = text.split(BELOW[0])
    left = [line for line in lines if line not in ended]
    if left == lines:
        return text
    return BELOW[0].join(left) if len(left) > 1 else ""


def topic_lines(
    profile: TopicProfile, facts: Iterable[Fact], parent: TopicProfile | None, children: Sequence[TopicProfile]
) -> list[Line]:
    """The lines of a topic, most important first; none where nothing is known of it."""
    head = one_line(profile.label) + (f" (part of {one_line(parent.label)})" if parent else "")
    context, told = _context(profile.compiled_context), tuple(facts)
    sources = {(one.conversation_id, one.message_id) for fact in told for one in fact.sources}
    known = [
        *(Line(fact_text(fact), (fact.id,)) for fact in told),
        *(
            Line(_dated(one))
            for one in reversed(profile.highlights)
            if (one.source.conversation_id, one.source.message_id) not in sources  # a fact says it already
        ),
        *listing("Includes: ", [(one_line(child.label), child.id) for child in children]),
    ]
    if not (context or known):  # how often it came up is not worth a token
        return []
    return [
        Line(head, (profile.id, *([parent.id] if parent else [])), divisible=True),
        *context,
        *_engagement(profile),
        *known,
    ]


def _dated(highlight: Highlight) -> str:
    said = one_line(highlight.text)
    return f"{highlight.date}: {said}" if highlight.date else said


def _engagement(profile: TopicProfile) -> Iterator[Line]:
    if profile.proficiency_level != "unknown":
        yield Line(f"The user's level: {profile.proficiency_level}")
    if not (number := profile.total_conversations):
        return
    days = [utc(time).date().isoformat() for time in (profile.first_engaged_at, profile.last_engaged_at) if time]
    span = " to ".join(dict.fromkeys(days))
    yield Line(f"Came up in {number} conversation{'s' * (number > 1)}{', ' * bool(span)}{span}")


def entity_lines(profile: EntityProfile, facts: Iterable[Fact]) -> list[Line]:
    """The lines of an entity in the order of seed 004: what the application said first, facts last.

    None where nothing is known of it but its name.
    """
    related = [(one_line(f"{relation.relation} {relation.target}"), "") for relation in profile.relations]
    known = [
        *_context(profile.compiled_context),
        *([Line(one_line(profile.relationship))] if profile.relationship else []),
        *(Line(one_line(f"{name}: {value}")) for name, value in _key_attributes(profile)),
        *listing("Related: ", related),
        *(Line(one_line(text)) for text in reversed(profile.facts)),
        *(Line(fact_text(fact), (fact.id,)) for fact in facts if not _says_no_more(fact, profile.facts)),
    ]
    head = Line(f"{one_line(profile.name)} ({profile.type})", (profile.id,), divisible=True)
    return [head, *known] if known else []


def _says_no_more(fact: Fact, texts: Iterable[str]) -> bool:
    """Whether one of some texts says of an entity what a fact says of it and the user."""
    said = set(terms(fact.text))
    return any(own and own <= said and len(own) > 1 for own in (set(terms(text)) for text in texts))


def _key_attributes(profile: EntityProfile) -> list[tuple[str, str]]:
    """The attributes that are shown, each with its newest value."""
    newest = {name: value for name, value in profile.attributes if value.strip()}
    place = {name: number for number, name in enumerate(FIRST_ATTRIBUTES)}
    return sorted(newest.items(), key=lambda item: place.get(item[0].casefold(), len(place)))[:MOST_ATTRIBUTES]


def _context(text: str | None) -> list[Line]:
    return [Line(one_line(text), divisible=True)] if text else []


def described(entity: EntityProfile) -> str:
    """An entity in a few words."""
    return f"{one_line(entity.name)} ({one_line(entity.relationship or entity.type)})"


def listing(heading: str, items: Sequence[tuple[str, str]]) -> list[Line]:
    """One line of several things, with the id of each."""
    named = [(name, key) for name, key in items if name][:MOST_LISTED]
    text = heading + ", ".join(name for name, _ in named)
    return [Line(text, tuple(key for _, key in named if key), short=heading + named[0][0])] if named else []


def fitted(
    lines: Iterable[Line], marks: tuple[str, str], count: Count, cap_tokens: int
) -> tuple[str, int, tuple[str, ...]]:
    """As much of some lines as a cap allows, in their order: the text, its tokens, the ids of what it says.

    A line that does not fit is skipped, or cut where a part of it is better than nothing; none stands there twice.
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
    """What may stand for a line behind what leads to it, the best first."""
    text = line.text[: _CHARACTERS_PER_TOKEN * cap_tokens]
    if len(text) == len(line.text):
        yield text
    yield line.short
    if line.divisible:
        yield shrink_to(text, lambda part: count(lead + part), cap_tokens) or ""
        yield _cut(text, lambda part: count(lead + part), cap_tokens)


def _cut(text: str, count: Count, cap_tokens: int) -> str:
    """The beginning of a text, as long as fits, to the end of a word where there is one."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if count(text[:middle] + ELLIPSIS) <= cap_tokens:
            low = middle
        else:
            high = middle - 1
    words = text[:low].rpartition(" ")[0] or text[:low]
    return words + ELLIPSIS if words else ""
