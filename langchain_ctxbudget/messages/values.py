"""The values that texts name: amounts, dates, versions, ids, addresses, paths, hashes, and names.

They are what a summary loses first, and what cannot be said in other words. Digits of every script
are read. Names are seen where a script has capitals, and where a text does not give one to every
noun.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby


class ValueKind(StrEnum):
    """What kind of value a text names."""

    URL = "url"
    EMAIL = "email"
    PATH = "path"
    HASH = "hash"
    DATE = "date"
    TIME = "time"
    VERSION = "version"
    AMOUNT = "amount"
    ID = "id"
    NAME = "name"


@dataclass(frozen=True, slots=True)
class Value:
    """A value that a text names."""

    text: str
    """The value as it is written."""
    kind: ValueKind
    key: str
    """The same for every way in which the value is written, as far as that can be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuePolicy:
    """Which numbers and capitals are values."""

    least_digits: int = 3
    """A number without a unit is a value from so many digits on; "2" and "15" are everywhere."""
    most_capitals: float = 0.2
    """In a text with a larger share of capitalised words within sentences, as in German or in
    headings, capitals do not tell names."""


VALUES = ValuePolicy()
_NUMBER = r"\d+(?:[.,'\u2019\u066c\u066b\u00a0\u202f]\d+|(?:[ ]\d{3})+(?!\d))*"
_BEFORE = r"(?<![A-Za-z0-9_.])"
"""No number or word in Latin letters goes on here; some scripts have no blanks between words."""
_AFTER = r"(?![A-Za-z0-9_])"
_UNITS = (
    "[%‰٪]|°[CF]?|[munpμµ]?s|min|h|hrs?|hours?|days?|weeks?|months?|years?|[kmcnμµ]?m|km/h|mph|"
    "[kmμµ]?g|lbs?|oz|t|[mcdμµ]?l|[kmgt]i?b|[kmg]?hz|[km]?v|[km]?a|mah|[kmg]?wh?|px|[kmgt]?bps|"
    "usd|eur|gbp|jpy|cny|chf|inr|rub|dollars?|euros?|pounds?|yen|yuan|rupees?|k|[€$£¥₹₩₽]|"
    "元|円|万|公斤|公里|руб|кг|км|г"  # noqa: RUF001 - of other languages
)
_MONTHS = (
    "january|february|march|april|may|june|july|august|september|october|november|december|"
    "jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec|"
    "januar|februar|märz|mai|juni|juli|oktober|dezember|"
    "janvier|février|mars|avril|juin|juillet|août|septembre|octobre|novembre|décembre|"
    "enero|febrero|marzo|abril|mayo|junio|julio|agosto|septiembre|octubre|noviembre|diciembre"
)
_FILE_ENDINGS = (
    "py|js|jsx|ts|tsx|go|rs|java|c|h|cpp|rb|php|swift|kt|md|txt|pdf|csv|json|jsonl|toml|ya?ml|xml|"
    "html|css|sql|sh|ipynb|docx?|xlsx?|pptx?|png|jpe?g|svg|gz|zip|log|ini|cfg|conf|env|lock|db"
)
_PATTERNS: dict[ValueKind, str] = {
    ValueKind.URL: r"https?://[^\s<>\"'`)\]}|]*[^\s<>\"'`)\]}|.,;:!?]",
    ValueKind.EMAIL: r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
    ValueKind.PATH: (
        r"(?<![\w/.])(?:(?:[a-z]:\\|~/|\.{1,2}/)[\w.@\\/-]*\w|/[\w.@-]+/[\w.@/-]*\w)"
        rf"|\b[\w@-][\w.@/-]*\.(?:{_FILE_ENDINGS}){_AFTER}"
    ),
    ValueKind.HASH: (
        r"\b(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
        r"|(?=[0-9a-f]{0,63}[a-f])(?=[0-9a-f]{0,63}[0-9])[0-9a-f]{7,64})\b"
    ),
    ValueKind.DATE: (
        rf"{_BEFORE}(?:\d{{4}}-\d{{2}}-\d{{2}}(?:[T ]\d{{2}}:\d{{2}}(?::\d{{2}})?)?{_AFTER}"
        rf"|\d{{1,2}}[./-]\d{{1,2}}[./-]\d{{2,4}}{_AFTER}|\d{{4}}/\d{{1,2}}/\d{{1,2}}{_AFTER}"
        r"|\d{2,4}年(?:\d{1,2}月(?:\d{1,2}日)?)?|\d{1,2}月\d{1,2}日"
        rf"|\d{{1,2}}(?:st|nd|rd|th|\.)?\s(?:of\s|de\s)?(?:{_MONTHS})\b(?:,?\s\d{{4}}\b)?)"
        rf"|\b(?=[jfmasonde])(?:{_MONTHS})\s\d{{1,2}}(?:st|nd|rd|th)?\b(?:,?\s\d{{4}}\b)?"
    ),
    ValueKind.TIME: (
        rf"{_BEFORE}(?:\d{{1,2}}:\d{{2}}(?::\d{{2}})?(?:\s?[ap]\.?m\b)?{_AFTER}|\d{{1,2}}\s?[ap]\.?m\b)"
    ),
    ValueKind.VERSION: rf"\bv\d+(?:\.\d+)*\b|{_BEFORE}\d+(?:\.\d+){{2,}}(?:[-+]\w+)*",
    ValueKind.AMOUNT: (
        rf"[€$£¥₹₩₽]\s?{_NUMBER}(?:\s?(?:k|m|bn|million|billion|thousand)\b)?"
        rf"|{_BEFORE}{_NUMBER}(?:\s?(?:{_UNITS}))?{_AFTER}"
    ),
    ValueKind.ID: (
        rf"{_BEFORE}(?=[a-z_-]*\d)[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*{_AFTER}|(?<!\w)\#\d{{2,}}"
    ),
}
_VALUE = re.compile(
    "|".join(f"(?P<{kind.value}>{pattern})" for kind, pattern in _PATTERNS.items()), re.IGNORECASE
)
_END_OF_SENTENCE = re.compile(r"(?<=[^\W\d][.!?])\s|\n")
_SIGN_OF_VALUE = re.compile(r"[\d@/\\]|\.[A-Za-z]")
"""Sentences without one of these name no value; there are many, and searching them takes long."""
_WITHIN_SENTENCE = re.compile(r"(?<=[^\W\d_][ ,])\s?[^\W\d_]+(?:[ '\u2019-][^\W\d_]+)*")
_CONTRACTED = re.compile(r"['\u2019](?:m|re|ve|ll|d|t)$")
_POSSESSIVE = re.compile(r"['\u2019]s$")
_SEPARATED_THOUSANDS = re.compile(r"[.,'\u2019\u066c \u00a0\u202f](?=\d{3}(?!\d))")
_DIGIT = re.compile(r"\d")


def values_in(text: str, *, with_names: bool) -> Iterator[Value]:
    """Yields the values that a text names, in its order; names come last.

    Args:
        text: the text.
        with_names: True where capitals tell names in it, see `capitals_tell_names`.
    """
    for sentence in filter(_SIGN_OF_VALUE.search, _END_OF_SENTENCE.split(text)):
        for match in _VALUE.finditer(sentence):
            kind = ValueKind(match.lastgroup or "")
            written = match[0]
            if kind is not ValueKind.AMOUNT or _is_large_or_measured(written):
                yield Value(written, kind, key_of(written, kind))
    if with_names:
        for name in _names_in(text):
            yield Value(name, ValueKind.NAME, name.casefold())


def stands_alone(written: str, text: str) -> bool:
    """Tells whether a value stands in a text, and not only as a part of a longer one.

    "$50" does not stand in "$500" or "$50.25", and "ORD-12" not in "ORD-123".
    """
    if written not in text:  # as nearly always, and a search by a pattern takes longer
        return False
    pattern = re.escape(written)
    if written[0].isascii() and written[0].isalnum():
        pattern = r"(?<![A-Za-z0-9])" + pattern
    if written[-1].isascii() and written[-1].isalnum():
        pattern += r"(?![A-Za-z0-9]|[.,]\d)"
    return re.search(pattern, text) is not None


def capitals_tell_names(texts: Iterable[str]) -> bool:
    """Tells whether capitals within sentences stand for names in some texts.

    In German they stand for nouns, and in headings for anything.
    """
    words = 0
    capitals = 0
    for text in texts:
        for run in _runs_within_sentences(text):
            words += len(run)
            capitals += sum(word[0].isupper() for word in run)
    return capitals <= VALUES.most_capitals * words


def _is_large_or_measured(written: str) -> bool:
    """Tells whether a number has a unit, or enough digits to be a value without one."""
    is_measured = not (written[0].isdigit() and written[-1].isdigit())
    return is_measured or len(_DIGIT.findall(written)) >= VALUES.least_digits


def key_of(written: str, kind: ValueKind) -> str:
    """Returns what is the same for every way in which a value is written.

    A large amount is the same with another word for its unit, and with or without separators of
    thousands.
    """
    folded = _with_ascii_digits(written).casefold()
    if kind is not ValueKind.AMOUNT:
        return "".join(folded.split())
    amount = _SEPARATED_THOUSANDS.sub("", folded)
    number = "".join(mark for mark in amount if mark.isdigit() or mark == ".").strip(".")
    if len(_DIGIT.findall(number)) >= VALUES.least_digits:
        return number
    return "".join(amount.split())


def _with_ascii_digits(text: str) -> str:
    """Returns a text whose digits are those from 0 to 9, whatever script they are from."""
    if text.isascii():
        return text
    return _DIGIT.sub(lambda match: str(unicodedata.digit(match[0])), text)


def _runs_within_sentences(text: str) -> Iterator[list[str]]:
    """Yields the words in a row that do not begin a sentence."""
    for match in _WITHIN_SENTENCE.finditer(text):
        yield match[0].split()


def _names_in(text: str) -> Iterator[str]:
    """Yields the words with a capital within sentences, those in a row as one name."""
    for run in _runs_within_sentences(text):
        for is_name, words in groupby(run, _may_be_name):
            if is_name:
                yield _POSSESSIVE.sub("", " ".join(words))


def _may_be_name(word: str) -> bool:
    """Tells whether a word has a capital, and is no abbreviation in capitals and no "I'm"."""
    return word[0].isupper() and not word.isupper() and not _CONTRACTED.search(word)
