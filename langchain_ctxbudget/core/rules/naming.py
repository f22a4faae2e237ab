"""Which people, projects, organisations and tools a user's message speaks of, read off the words around their names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast

from langchain_ctxbudget.core.prose import units
from langchain_ctxbudget.core.rules import naming_words as words
from langchain_ctxbudget.core.rules.naming_cues import classify
from langchain_ctxbudget.core.rules.naming_details import add_details
from langchain_ctxbudget.core.rules.naming_reading import Mention, Sentence, read
from langchain_ctxbudget.core.rules.naming_stated import WEAK
from langchain_ctxbudget.core.rules.naming_words import word_set

Kind = Literal["person", "project", "organization", "tool", "concept"]

_ORDER = ("email", "phone", "title", "department", "location")
"""Attributes in the order, the most telling first."""
_DROPPED_LINE = re.compile(r"^\s*(?:>|#{1,6}\s|\*\*[^*]*\*\*:?\s*$|import [^\n]{1,80} from ['\"]).*$", re.MULTILINE)
# What follows one of these is somebody else's text, or about nobody.
_PASTED = re.compile(
    r"\b(?:translat|summari[sz]|proofread|rewrit|rephras|paraphras|classif|correct|fix the|edit|analy[sz]|extract)\w*"
    r"[^\n:.]{0,60}:",
    re.IGNORECASE,
)
_INVENTED = re.compile(
    r"\b(?:stor(?:y|ies)|novel|poem|screenplay|fairy ?tale|fan ?fic\w*|limerick|role-?play\w*|pretend|imagine|suppose"
    r"|hypothetical\w*|fictional|fiction|protagonist|villain|d&d|dungeons|riddle|word problem|dummy|placeholder"
    r"|mock data|sample data|test data|for example|for instance|e\.g|let's say|example sentence\w*|trivia|biography"
    r"|^act as|^you are|^you're an?|baby names?|common name|names? like|the name \w+ (?:mean|come)|essay on|essay about"
    r"|sonnet|haiku)\b",
    re.IGNORECASE,
)
# One of these words is in all that the pattern finds.
_INVENTING = word_set(
    "name names story stories novel poem screenplay fairy fairytale fanfic fanfiction fan limerick role roleplay",
    "roleplaying play playing pretend pretending imagine suppose hypothetical hypothetically fictional fiction",
    "protagonist villain d riddle problem dummy placeholder mock sample test example instance e say act you you're",
    "essay biography sonnet haiku trivia",
)
_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")
_UNREAL = re.compile(
    r"imagin|suppos|pretend|hypoth|fictional|placeholder|dummy|exampl|instance|e\.g|say|sample|mock|test|act|you|name",
    re.IGNORECASE,
)
"""Where nobody is real, not even the user's own people."""
_LASTING = re.compile(
    r"stor|novel|screenplay|tale|fic|play|riddle|d&d|dungeons|pretend|imagine|word problem|act as", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """Somebody or something that a text speaks of.

    Example:
        >>> names("My manager Sarah works at Initech.")[0].relationship
        'manager'
    """

    name: str
    """As written, in its usual spelling: "Sarah Chen", "PostgreSQL"; of "Project Atlas", "Atlas"."""
    kind: Kind
    aliases: tuple[str, ...] = ()
    """What else the text calls it: "@sarah", "Sarah", "my cofounder"."""
    relationship: str | None = None
    """To the user: "cofounder", "sister"; of a pet, "cat"."""
    attributes: tuple[tuple[str, str], ...] = ()
    """Name and value; email, phone, title, department and location before all others."""
    relations: tuple[tuple[str, str], ...] = ()
    """Relation and the name of the other one: "works at", "Acme"."""
    facts: tuple[str, ...] = ()
    """What the text says about it, in short sentences as said."""
    confidence: float = 0.8


def names(text: str) -> list[Name]:
    """The people, projects, organisations and tools that a user's message speaks of, in order.

    Only ordinary sentences are read, no code, quotations, headings or invented stories.

    Example:
        >>> [(found.name, found.kind) for found in names("We use Terraform for our project Atlas.")]
        [('Terraform', 'tool'), ('Atlas', 'project')]
    """
    if ":" in text and (pasted := _PASTED.search(text)):
        text = text[: pasted.start()]
    if ">" in text or "#" in text or "**" in text or "import " in text:
        text = _DROPPED_LINE.sub("", text)
    may_be_invented = not _INVENTING.isdisjoint(_WORD.findall(text.lower()))
    mentions: list[Mention] = []
    kinds: dict[tuple[str, ...], str] = {}
    invented = False
    for unit in units(text):
        if unit[0] == "[" and unit[-1] == "]":
            continue
        invention = may_be_invented and _INVENTED.search(unit)
        sentence = read(unit)
        if sentence:
            found = classify(sentence)
            if invented or invention:
                unreal = bool(invention and _UNREAL.match(invention[0]))
                found = [
                    mention for mention in found if mention.kind == "tool" or (mention.relationship and not unreal)
                ]
            else:
                found = _known(sentence, kinds)
            add_details(sentence, found)
            mentions += found
            kinds.update({mention.words: mention.kind for mention in found if mention.kind != "tool"})
        invented = invented or bool(invention and _LASTING.search(invention[0]))
    return _merged(mentions)


def _known(sentence: Sentence, kinds: dict[tuple[str, ...], str]) -> list[Mention]:
    """The names of a sentence; also those that only an earlier sentence tells to be names."""
    for mention in sentence.mentions:
        if not mention.kind and mention.words in kinds and not mention.weak:
            mention.kind, mention.confidence = kinds[mention.words], WEAK
    return [mention for mention in sentence.mentions if mention.kind]


def _merged(mentions: list[Mention]) -> list[Name]:
    """One name for all mentions of the same."""
    groups: dict[str, list[Mention]] = {}
    firsts: dict[str, str] = {}
    companies: dict[str, str] = {}
    for mention in mentions:
        key = _key(mention)
        if mention.kind == "person" and " " in key:
            firsts.setdefault(mention.words[0], key)
        if short := _without_ending(mention).casefold():
            companies.setdefault(short, key)
    for mention in mentions:
        key = _key(mention)
        if mention.kind == "person" and len(mention.words) == 1:
            key = firsts.get(mention.words[0], key)
        groups.setdefault(companies.get(key, key), []).append(mention)
    return [_name(group) for group in groups.values()]


def _key(mention: Mention) -> str:
    return (mention.tool if mention.kind == "tool" and mention.tool else _canonical(mention)).casefold()


def _without_ending(mention: Mention) -> str:
    """A company's name without what it is in law: "Acme" of "Acme Inc."; empty for all others."""
    *first, last = mention.text.rstrip(".").split(" ")
    is_ending = mention.kind == "organization" and last.lower() in words.ORGANISATION_ENDS
    return " ".join(first).rstrip(" ,&") if is_ending else ""


def _canonical(mention: Mention) -> str:
    first, _, rest = mention.text.partition(" ")
    if mention.titled and first.lower() in words.KIN_TITLES:
        return rest
    return mention.text


def _name(group: list[Mention]) -> Name:
    """The name that some mentions stand for."""
    best = max(group, key=lambda mention: (mention.confidence, len(mention.text)))
    longest = max(group, key=lambda mention: len(mention.words))
    name = best.tool if best.kind == "tool" and best.tool else _canonical(longest)
    if best.kind == "person" and name.islower():
        name = name.capitalize()
    aliases = [alias for mention in group for alias in mention.aliases]
    for mention in group:
        aliases.append(mention.text)
        if mention.titled:
            aliases.append(mention.text.split(" ", 1)[1])
        if short := _without_ending(mention):
            aliases.append(short)
    attributes = dict(pair for mention in reversed(group) for pair in mention.attributes)
    return Name(
        name=name,
        kind=cast("Kind", best.kind),
        aliases=tuple(dict.fromkeys(alias for alias in aliases if alias.casefold() != name.casefold())),
        relationship=next((mention.relationship for mention in group if mention.relationship), None),
        attributes=tuple(
            sorted(attributes.items(), key=lambda pair: _ORDER.index(pair[0]) if pair[0] in _ORDER else 9)
        ),
        relations=tuple(dict.fromkeys(pair for mention in group for pair in mention.relations)),
        facts=tuple(dict.fromkeys(fact for mention in group for fact in mention.facts)),
        confidence=best.confidence,
    )
