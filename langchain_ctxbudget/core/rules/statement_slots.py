"""What a statement about the user is, and which value of the user it gives."""

from __future__ import annotations

import re
from dataclasses import dataclass

from langchain_ctxbudget.core.rules.statement_patterns import Category
from langchain_ctxbudget.core.rules.statement_vocabulary import words
from langchain_ctxbudget.core.text import fold

MOST_WORDS, SHORT_WORD = 4, 3
"""A thing that one likes has at most so many words; a word that short has no ending taken off."""
PLAIN, HEDGED, ASKED = 0.9, 0.6, 0.95
"""How sure a statement is: said plainly, with a "maybe", or with the request to remember it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """Something that users say about themselves.

    Example:
        >>> Statement(text="Lives in Lisbon", category="identity", slot="home").ends
        False
    """

    text: str
    """About the user, without a subject: "Lives in Lisbon"."""
    category: Category
    confidence: float = PLAIN
    """Above 0, up to 1."""
    slot: str = ""
    """What it is a value of, if a person has one such value at a time: "home". A newer one supersedes it."""
    ends: bool = False
    """It only says that the old value of the slot is over."""


# What a preference is about.

_DIMENSIONS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), slot)
    for pattern, slot in (
        ((r"\b(?:short|brief|concise|terse|long|longer|shorter|detailed|thorough|in-depth|verbose|succinct"
            r"|to the point)\b.{0,30}\b(?:answers?|repl\w+|responses?|explanations?|summar\w+)|\b(?:answers?|repl\w+"
            r"|responses?|explanations?|it)\b.{0,30}\b(?:short|brief|concise|terse|long|detailed|thorough|succinct"
            r"|to the point)\b|be (?:brief|concise|succinct|thorough)"), "answer length"),
        (r"\b(?:dark|light) (?:mode|theme)", "theme"),
        (r"\b(?:metric|imperial)\b", "units"),
        (r"\b(?:in|use|using) (?:kilomet\w+|km|miles)\b", "distance unit"),
        (r"\b(?:in|use|using) (?:grams?|ounces|cups)\b", "weight unit"),
        (r"\b(?:british|american|canadian|australian) (?:english|spelling)\b", "spelling"),
        (r"\b(?:celsius|fahrenheit)\b", "temperature unit"),
        (r"^(?:use |using )?(?:tabs|spaces|(?:two|four|2|4) spaces)\b", "indentation"),
        ((r"\b(?:answer|reply|respond|speak|write|talk|answers|replies"
            r"|responses) (?:to me )?(?:always )?(?:to me )?in (?-i:[A-Z])"), "answer language"),
        (r"\bemojis?\b", "emojis"),
    )
)  # fmt: skip


def dimension(said: str) -> str:
    """The slot of a preference for a kind of answer or display; empty for any other."""
    return next((slot for pattern, slot in _DIMENSIONS if pattern.search(said)), "")


_OVER = re.compile(r"^(?P<one>.+?),? (?:over|to|rather than|instead of|than|more than) (?P<other>.+)$", re.IGNORECASE)
_TAIL = re.compile(
    r"\s(?:a lot|very much|so much|the most|more|now|best|too|at all|in general|these days|lately|when|because|since"
    r"|with|for|in|on|after|before|during|every|as|and|or|,).*$|,.*$|\s(?:\w+ (?:years|months|weeks|days) ago|(?:last"
    r"|this|next) \w+)\b.*$",
    re.IGNORECASE,
)


def liked(rest: str, verb: str = "") -> str:
    """The slot of a thing that one likes or does not."""
    if verb.startswith("prefer") and (compared := _OVER.match(rest)):
        pair = sorted(filter(None, (_thing(compared["one"]), _thing(compared["other"]))))
        return f"prefers:{' or '.join(pair)}" if pair else ""
    thing = _thing(rest)
    return f"prefers:{thing}" if thing else ""


def _thing(said: str) -> str:
    said = re.sub(
        r"^(?:to |the |an? |my |our |some |any |all (?:kinds of )?|really |drinking |eating |playing |watching "
        r"|using )+",
        "",
        _TAIL.sub("", said),
        flags=re.IGNORECASE,
    )
    words = fold(said).strip(" .,!").split()
    if not words or len(words) > MOST_WORDS or words[0] in _NOTHING or _ARTICLE.search(" ".join(words)):
        return ""
    return " ".join((*words[:-1], _singular(words[-1])))


_NOTHING = words("not being and or i we they it that this the a an is are")
# "creating a safe" is cut, "lord of the rings" is not.
_ARTICLE = re.compile(r"(?<!\bof)(?<!\bin)(?<!\bon)(?<!\bto) (?:an?|the|my|our|their|his|her|your|i|we|they)\b")
_IES = words("movies cookies brownies smoothies veggies zombies calories selfies hoodies series species")


def _singular(word: str) -> str:
    if len(word) > SHORT_WORD + 1 and word.endswith("ies") and word not in _IES:
        return word[:-3] + "y"
    if re.search(r"(?:ch|sh|x|ss|to)es$", word):
        return word[:-2]
    return word[:-1] if len(word) > SHORT_WORD and re.search(r"[^su]s$", word) and not word.endswith("is") else word


_SPELLING = (("favorite", "favourite"), ("color", "colour"), ("fave", "favourite"))


def slot_name(slot: str) -> str:
    """The one name of a slot, however it was written."""
    folded = re.sub(r"^(?:all-time|absolute|current) ", "", fold(slot))
    folded = re.sub(r"^fav ", "favourite ", folded)
    for american, british in _SPELLING:
        folded = re.sub(rf"\b{american}\b", british, folded)
    if folded.startswith(("favourite ", "least ")):
        folded = " ".join((*folded.split()[:-1], _singular(folded.split()[-1])))
    return _SAME_SLOT.get(folded, folded)


_SAME_SLOT = {
    "full name": "name", "first name": "name", "nickname": "called", "profession": "job", "occupation": "job",
    "job title": "job", "role": "job", "timezone": "time zone", "birth date": "birthday", "date of birth": "birthday",
    "birthdate": "birthday", "native language": "native language", "mother tongue": "native language",
    "first language": "native language", "ide": "editor", "os": "operating system", "home town": "origin",
    "hometown": "origin", "company": "employer", "workplace": "employer", "tech stack": "stack", "go-live": "launch",
    "launch date": "launch", "release date": "release",
}  # fmt: skip

PARTNER = re.compile(r"(?:wife|husband|spouse|partner|girlfriend|boyfriend|fianc[ée]e?)", re.IGNORECASE)
