"""Words, sentences and dates: how texts are read, in any language."""

from __future__ import annotations

import re
from functools import lru_cache

import snowballstemmer

# Scripts that are written without spaces: their characters are read in pairs.
_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af\u0e00-\u0e7f"
_WORDS = re.compile(rf"[{_UNSPACED}]+|[^\W_{_UNSPACED}]+")
_IS_UNSPACED = re.compile(rf"[{_UNSPACED}]")
# A sentence ends at its mark and white space, at the full-width marks, and at a line break.
_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"')\]]*\s+|(?<=[\u3002\uff01\uff1f])|\n+")
_ISO_DATE = re.compile(r"^\d{4}-\d{2}-\d{2}")

_STOP_WORDS = (
    "a about above after again all also am an and any are as at be because been before being below "
    "between both but by can could did do does doing down during each few for from further had has have "
    "having he her here hers him his how i if in into is it its just let me more most my no nor not of "
    "off on once only or other our out over own same she should so some such than that the their them "
    "then there these they this those through to too under until up us very was we were what when where "
    "which while who whom why will with would you your yours "
)
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""Words that say nothing about what a text is about."""


@lru_cache(maxsize=1)
def _stemmer() -> snowballstemmer.stemmer:
    return snowballstemmer.stemmer("english")


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """The Snowball stem of a lower-case word."""
    stemmed: str = _stemmer().stemWord(word)
    return stemmed


def terms(text: str) -> list[str]:
    """The search terms of a text: stems without stop words; scripts without spaces as pairs of characters."""
    found: list[str] = []
    for word in _WORDS.findall(text.lower()):
        if _IS_UNSPACED.match(word):
            found.extend(word[i : i + 2] for i in range(max(1, len(word) - 1)))
        elif word not in STOP_WORDS:
            found.append(stem(word))
    return found


def has_borders(character: str) -> bool:
    """Whether words of this character's script are told apart by what is not a letter."""
    return bool(re.match(r"\w", character)) and not _IS_UNSPACED.match(character)


def sentences(text: str) -> list[str]:
    """The sentences of a text, white space at their ends removed."""
    return [part.strip() for part in _SENTENCE_END.split(text) if part and part.strip()]


def iso_date(created_at: object) -> str | None:
    """The `YYYY-MM-DD` of an ISO 8601 time, or None."""
    if isinstance(created_at, str) and _ISO_DATE.match(created_at):
        return created_at[:10]
    return None


def one_line(text: str) -> str:
    """A text with every run of white space as one space."""
    return " ".join(text.split())
