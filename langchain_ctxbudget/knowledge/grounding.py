"""Whether the names and numbers in a model's note stand in the messages that the note cites.

A model that learns may invent. Its notes are in its own words, which cannot be compared with the
user's; names and numbers can, as they stay the same. Dates are the exception: "yesterday" is noted
as a date.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from langchain_ctxbudget.knowledge.records import ENGLISH, ReadMessage
from langchain_ctxbudget.messages import (
    STOP_WORDS,
    digits_in,
    fold,
    numbers_in,
    sentences,
    terms,
    word_count,
)
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
    """A word must begin with the whole name, if that has at most so many characters."""
    long_characters: int = 7
    """The last two characters of a name of at least so many may differ ("Helsinki", "Helsingissä"),
    and the last one of a name between the two."""
    english_share: float = 1 / 4
    """A text with at least this share of English stop words is in English."""
    most_affirming_words: int = 8
    """A message of more words says something itself, besides yes."""
    near_days: int = 31
    """A date at most so many days from a message may stand for "yesterday" or "next week"."""


GROUNDING = GroundingPolicy()


def said_by_user(said: Sequence[ReadMessage]) -> list[ReadMessage]:
    """Returns the messages of the user, and those of others to which the user then says yes.

    Names and numbers that only an assistant has said are no facts about the user.

    Args:
        said: Messages, in order.
    """
    own: list[ReadMessage] = []
    for number, message in enumerate(said):
        following = said[number + 1 : number + 2]
        if message.from_user or any(map(_affirms, following)):
            own.append(message)
    return own


def _affirms(message: ReadMessage) -> bool:
    """Tells whether a user says no more than yes to what was said before: "yes, that one"."""
    is_short = word_count(message.text) <= GROUNDING.most_affirming_words
    return message.from_user and is_short and bool(ENGLISH.affirms.match(message.text))


class Ground:
    """What some messages say, with which notes about them are compared."""

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

        A text without names and numbers must share a term with the messages if these are in
        English; in another language, it may be a translation. A text in a script without capitals
        must share one, too, as its names cannot be seen.
        """
        near_dates = [named for named in _dates_in(text) if self._is_near(named)]
        numbers = digits_in(text)
        names = list(_names_in(text))
        if not self._has_numbers(numbers, near_dates) or not self._has_names(names, near_dates):
            return False
        if _has_capitals(text) and (names or numbers or not self._is_english):
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

    def _has_numbers(self, numbers: Iterable[str], near_dates: Iterable[NamedDate]) -> bool:
        """Returns whether all numbers stand in the messages, or belong to a date near these."""
        known = self._numbers.union(*map(_numbers_of, near_dates))
        return all(_stands_among(number, known) for number in numbers)

    def _has_names(self, names: Iterable[str], near_dates: Iterable[NamedDate]) -> bool:
        """Returns whether all names stand in the messages, or are months of a date near these."""
        months = [named.month for named in near_dates]
        return all(self._has_name(name) or _is_month(name, months) for name in names)

    def _add_dates(self, dates: Iterable[NamedDate]) -> None:
        """Adds the dates that the messages name, so that a note may write them in another way."""
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
        return any(_is_near_day(named, day) for day in self._days)


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

    A name has a capital; in the first word of a sentence, one that is not its first letter.
    """
    for sentence in sentences(text):
        for number, word in enumerate(_WORD.findall(sentence)):
            letters = word if number else word[1:]
            is_name = len(word) > 1 and any(letter.isupper() for letter in letters)
            if is_name and not ENGLISH.nobody.fullmatch(fold(word)):
                yield _bare(word)


def _is_english(text: str) -> bool:
    """Returns whether enough words of a text are English stop words."""
    words = _WORD.findall(fold(text))
    stop_words = [word for word in words if word in STOP_WORDS]
    return len(stop_words) >= GROUNDING.english_share * len(words)


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


def _is_near_day(named: NamedDate, day: date) -> bool:
    """Returns whether a date is near a day; a month is, if it is the day's or next to that."""
    year = named.year or day.year
    if not named.day:
        return abs(12 * (year - day.year) + named.month - day.month) <= 1
    try:
        days = abs((date(year, named.month, named.day) - day).days)
    except ValueError:  # 29 February of another year
        return False
    return days <= GROUNDING.near_days
