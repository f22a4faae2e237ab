"""Whether the names and numbers of what a model notes stand in the messages that it names.

A model that learns may invent. What it notes is in its own words, so these cannot be compared; a
name and a number are the same in any words. Dates are the exception, as "yesterday" is noted as a
date.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from langchain_ctxbudget.knowledge.records import ENGLISH, ReadMessage
from langchain_ctxbudget.messages import STOP_WORDS, digits_in, fold, numbers_in, sentences, terms
from langchain_ctxbudget.search import NamedDate, named_dates

_WORD = re.compile(r"[^\W_]+")
_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundingPolicy:
    """How nearly a name or a date must be the one in a message."""

    whole_characters: int = 4
    """A name of at most so many characters must stand at the beginning of a word."""
    long_characters: int = 7
    """From so many on, its last two characters may differ ("Helsinki", "Helsingissä"); between the
    two, the last one."""
    english_share: float = 1 / 4
    """The share of stop words in a text from which on it is taken for English."""
    near_days: int = 31
    """A date that is so near to the day of a message may stand for "yesterday" or "next week"."""


GROUNDING = GroundingPolicy()


class Ground:
    """What some messages say, for what is noted of them to be held against."""

    def __init__(self, said: Sequence[ReadMessage], known: Iterable[str] = ()) -> None:
        """Reads messages.

        Args:
            said: The messages.
            known: Texts that are known to be right, such as the fact that a note refines.
        """
        texts = [*known]
        for message in said:
            texts += [message.text, message.speaker]
        joined = "\n".join(texts)
        self._days = [message.at.date() for message in said if message.at]
        self._words = set(_WORD.findall(_bare(joined)))
        self._terms = set(terms(joined))
        self._is_english = _is_english(joined)
        self._numbers = _with_parts(numbers_in(joined))
        for day in self._days:
            self._numbers.update(str(day.year + years) for years in (-1, 0, 1))
        for message in said:
            today = message.at.date() if message.at else None
            self._add_dates(_dates_in(message.text, today))

    def bears(self, text: str) -> bool:
        """Returns whether all names and numbers of a text stand in the messages.

        A text without any must share a term with them, if they are in English: in another language
        it may be a translation. So must a text in a script without capitals, which shows no names.
        """
        dates = [named for named in _dates_in(text) if self._is_near(named)]
        months = [named.month for named in dates]
        numbers = self._numbers.union(*map(_numbers_of, dates))
        in_digits = digits_in(text)
        if not all(_stands_among(number, numbers) for number in in_digits):
            return False
        names = list(_names_in(text))
        if not all(self._has_name(name) or _is_month(name, months) for name in names):
            return False
        if _has_capitals(text) and (names or in_digits or not self._is_english):
            return True
        return self.shared_terms(text) > 0 or not terms(text)

    def names(self, name: str) -> bool:
        """Returns whether a name stands in the messages, or is made of words that do."""
        words = _WORD.findall(_bare(name))
        return self.bears(name) and (self.shared_terms(name) > 0 or any(map(self._has_name, words)))

    def shared_terms(self, text: str) -> int:
        """Returns how many terms of a text stand in the messages, numbers aside."""
        shared = self._terms.intersection(terms(text))
        return sum(not numbers_in(term) for term in shared)

    def _add_dates(self, dates: Iterable[NamedDate]) -> None:
        """Takes in dates that the messages name, so that they may be written in another way."""
        for named in dates:
            self._numbers.update(_numbers_of(named))
            self._words.add(_MONTHS[named.month - 1])

    def _has_name(self, name: str) -> bool:
        """Returns whether a word begins as a name does, whatever its ending."""
        beginning = name
        if len(name) >= GROUNDING.long_characters:
            beginning = name[:-2]
        elif len(name) > GROUNDING.whole_characters:
            beginning = name[:-1]
        return any(word.startswith(beginning) for word in self._words)

    def _is_near(self, named: NamedDate) -> bool:
        """Returns whether a date or a month is near the day of one of the messages."""
        return any(_is_near(named, day) for day in self._days)


def _bare(text: str) -> str:
    """Returns a text without case and accents."""
    decomposed = unicodedata.normalize("NFKD", text)
    letters = [character for character in decomposed if not unicodedata.combining(character)]
    return "".join(letters).casefold()


def _has_capitals(text: str) -> bool:
    """Returns whether a text is in a script with capitals, as far as it has letters at all."""
    letters = [character for character in text if character.isalpha()]
    return not letters or any(letter.lower() != letter.upper() for letter in letters)


def _names_in(text: str) -> Iterator[str]:
    """Yields the words of a text that are names, without case and accents.

    These are the words with a capital. Of a sentence's first word, a capital alone tells nothing.
    """
    for sentence in sentences(text):
        for number, match in enumerate(_WORD.finditer(sentence)):
            word = match[0]
            told_by = word if number else word[1:]
            is_name = len(word) > 1 and any(letter.isupper() for letter in told_by)
            if is_name and not ENGLISH.nobody.fullmatch(fold(word)):
                yield _bare(word)


def _is_english(text: str) -> bool:
    """Returns whether so many words of a text are frequent in English that it is English."""
    words = _WORD.findall(fold(text))
    frequent = sum(word in STOP_WORDS for word in words)
    return frequent >= GROUNDING.english_share * len(words)


def _parts(number: str) -> list[str]:
    """Returns the digits of a number between points, commas and colons, without leading zeros."""
    return [str(int(part)) for part in re.findall(r"\d+", number)]


def _with_parts(numbers: Iterable[str]) -> set[str]:
    """Returns numbers and their parts."""
    found = set(numbers)
    for number in tuple(found):
        found.update(_parts(number))
    return found


def _stands_among(number: str, numbers: set[str]) -> bool:
    """Returns whether a number, or every part of it, is among others."""
    return number in numbers or numbers.issuperset(_parts(number))


# Dates


def _dates_in(text: str, today: date | None = None) -> list[NamedDate]:
    """Returns the days and months that a text names; of a range, the first and the last."""
    dates: list[NamedDate] = []
    for named in named_dates(text, today):
        dates += [named.first, named.last]
    return dates


def _numbers_of(named: NamedDate) -> set[str]:
    """Returns the numbers with which a date is written."""
    return {str(number) for number in named if number}


def _is_month(name: str, months: Iterable[int]) -> bool:
    """Returns whether a word names one of some months, in English."""
    names = [_MONTHS[month - 1] for month in months]
    return any(name in (whole, whole[:3]) for whole in names)


def _is_near(named: NamedDate, day: date) -> bool:
    """Returns whether a date is at most a month from a day, or a month next to that of the day."""
    year = named.year or day.year
    if not named.day:
        return abs(12 * (year - day.year) + named.month - day.month) <= 1
    try:
        days = abs((date(year, named.month, named.day) - day).days)
    except ValueError:  # 29 February of another year
        return False
    return days <= GROUNDING.near_days
