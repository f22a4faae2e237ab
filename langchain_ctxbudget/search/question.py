"""What a message asks: its words, and the speakers and days that it names."""

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from functools import cache

from langchain_ctxbudget.messages import (
    STOP_WORDS,
    ValueKind,
    cached_until_forgotten,
    fold,
    terms,
    values_in,
    vocabulary,
    without_mentions,
)
from langchain_ctxbudget.search.dates import DateRange, named_dates
from langchain_ctxbudget.sentences import Label, Said, read

ROLES = frozenset(
    {"user", "assistant", "human", "ai", "bot", "system", "tool", "function", "developer", "model"}
)
"""Names that say what a speaker does and not who it is."""
IDENTIFYING = frozenset(
    {ValueKind.EMAIL, ValueKind.HASH, ValueKind.ID, ValueKind.PATH, ValueKind.URL}
)
"""Kinds of values that stand for one thing; dates, times and amounts stand for many."""
_ENGLISH = vocabulary("search")
_FIRST_PERSON = frozenset(_ENGLISH["first_person"].split())


@dataclass(frozen=True, slots=True)
class MisspellingPolicy:
    """Which words are taken for misspelled names of speakers."""

    least_letters: int = 4
    """Letters of the shortest word that may be a name."""
    likeness: float = 0.75
    """How like the name a word must be, as `difflib` has it, 0 to 1."""
    most_characters: int = 2_000
    """The longest text in which names are corrected."""


MISSPELLING = MisspellingPolicy()


@dataclass(frozen=True, slots=True)
class SmallTalkPolicy:
    """Which messages may be small talk."""

    most_characters: int = 200
    """The longest one: no long message is read for this while a prompt waits."""
    most_terms_unquoted: int = 2
    """Terms, besides stop words, of one that is not worth quoting: of a longer one that is misread,
    too much would be lost."""
    texts_remembered: int = 1_024
    """For how many texts it is remembered whether they are."""


SMALL_TALK = SmallTalkPolicy()


@dataclass(frozen=True, slots=True)
class Question:
    """The terms of a message, the speakers whom it names, and the dates that it asks about.

    A message that asks nothing has no dates.
    """

    terms: tuple[str, ...]
    speakers: frozenset[int] = frozenset()
    """The numbers of the speakers whom it names."""
    dates: tuple[DateRange, ...] = ()
    text: str = ""

    @property
    def is_small_talk(self) -> bool:
        """Tells whether the message asks nothing and says nothing; see `is_small_talk`."""
        return is_small_talk(self.text)

    @property
    def is_broad(self) -> bool:
        """Tells whether the message asks for a summary, an order, a list or a number of times.

        Some of everything answers it, not the best.
        """
        return bool(_ENGLISH.everything.search(self.text))

    @property
    def matter(self) -> list[str]:
        """Its terms that are about something, without those that only ask: "summarise"."""
        asking = _terms_that_only_ask()
        return [term for term in about(self.terms) if term not in asking]

    @property
    def names_matter(self) -> bool:
        """Tells whether the message has any term that is about something: see `matter`."""
        return bool(self.matter)

    @property
    def identifiers(self) -> frozenset[str]:
        """The ids, paths, addresses and hashes that the message names, as they are written."""
        values = values_in(self.text, with_names=False)
        return frozenset(value.text for value in values if value.kind in IDENTIFYING)

    @property
    def asks_for_order(self) -> bool:
        """Tells whether the message asks in which order things were said or done."""
        return bool(_ENGLISH.order.search(self.text))

    @property
    def asks(self) -> bool:
        """Tells whether the message asks something."""
        return bool(_ENGLISH.asks.search(self.text))

    @classmethod
    def of(cls, text: str, names: Sequence[str] = (), today: date | None = None) -> "Question":
        """Reads a message.

        Args:
            text: The message.
            names: The names of those who speak.
            today: The day from which "yesterday" and "last week" are counted.
        """
        return cls(
            terms=tuple(terms(text)),
            speakers=_named_speakers(text, names),
            dates=named_dates(text, today) if _ENGLISH.asks.search(text) else (),
            text=text,
        )


def _named_speakers(text: str, names: Sequence[str]) -> frozenset[int]:
    """Returns the numbers of the speakers whom a text names.

    Where one name is part of another, the longest one is meant.
    """
    numbers_by_name: dict[str, set[int]] = {}
    for number, forms in enumerate(called(names)):
        for form in forms:
            name = " ".join(fold(form).split())
            numbers_by_name.setdefault(name, set()).add(number)

    speakers: set[int] = set()
    rest = fold(text)
    # Names of equal length cannot be parts of each other, so their order does not matter.
    for name in sorted(numbers_by_name, key=len, reverse=True):
        rest_without_name = without_mentions(rest, name)
        if rest_without_name != rest:
            speakers |= numbers_by_name[name]
            rest = rest_without_name
    return frozenset(speakers)


@cached_until_forgotten(SMALL_TALK.texts_remembered)
def is_small_talk(text: str) -> bool:
    """Tells whether a message asks nothing and says nothing: "Thanks, Bob! See you on Monday.".

    Besides courtesies it has only stop words, days and times of day, if any.
    """
    if len(text) > SMALL_TALK.most_characters or _ENGLISH.asks.search(text):
        return False
    [said] = read([text])
    if any(sentence.label is Label.QUESTION for sentence in said):
        return False
    return _is_courtesy(text, said)


def _is_courtesy(text: str, said: Sequence[Said]) -> bool:
    """Tells whether a message has only courtesies, stop words, days and times of day."""
    rest = _without_courtesies(text, said)
    for pattern in (_ENGLISH.weekday, _ENGLISH.hour):
        rest = pattern.sub(" ", rest)
    return not about(terms(rest))


def _without_courtesies(text: str, said: Sequence[Said]) -> str:
    """Returns the text of a message without those of its sentences that are courtesies."""
    rest: list[str] = []
    begin = 0
    for sentence in said:
        if sentence.label is Label.COURTESY:
            rest.append(text[begin : sentence.begin])
            begin = sentence.end
    rest.append(text[begin:])
    return "\n".join(rest)


@cached_until_forgotten(SMALL_TALK.texts_remembered)
def says_nothing(text: str) -> bool:
    """Tells whether a message is not worth quoting: short courtesies, or stop words alone.

    Whoever is named in a greeting, it says nothing about them: "Hello Kate. How are you today?".
    """
    matter = set(about(terms(text)))
    if not matter:
        return True
    if len(matter) > SMALL_TALK.most_terms_unquoted or len(text) > SMALL_TALK.most_characters:
        return False
    without_greeting = _ENGLISH.greeting_by_name.sub(" ", text)
    [said] = read([without_greeting])
    return _is_courtesy(without_greeting, said)


def about(question: Sequence[str]) -> list[str]:
    """Returns the terms of a message that are about something: those of no stop word."""
    stop_terms = _stop_terms()
    return [term for term in question if term not in stop_terms]


@cache
def _stop_terms() -> frozenset[str]:
    """Returns the terms of the stop words of messages."""
    return frozenset(terms(_ENGLISH["stop_words"]))


@cache
def _terms_that_only_ask() -> frozenset[str]:
    """Returns the terms that say how a message asks about everything, and not about what."""
    return frozenset(terms(_ENGLISH["asks_about_everything"]))


def is_name(name: str) -> bool:
    """Tells whether a speaker's name says who it is, and not what it does."""
    return bool(name.strip()) and fold(name).strip() not in ROLES


def called(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Returns what a text may call each speaker: the whole name, or a first name of nobody else."""
    words_of_names = [_words_of_name(name) for name in names]
    first_names = Counter(fold(words[0]) for words in words_of_names if words)
    result: list[tuple[str, ...]] = []
    for name, words in zip(names, words_of_names, strict=True):
        if not words:
            result.append(())
            continue
        forms = [name, " ".join(words)]
        if len(words) > 1 and _is_telling(fold(words[0]), first_names):
            forms.append(words[0])
        result.append(tuple(forms))
    return result


def _words_of_name(name: str) -> list[str]:
    if not is_name(name):
        return []
    return _ENGLISH.word.findall(name)


def _is_telling(first_name: str, first_names: Counter[str]) -> bool:
    """Tells whether a first name is that of one speaker, and no common word such as "will"."""
    return len(first_name) > 1 and first_names[first_name] == 1 and first_name not in STOP_WORDS


def spelled(text: str, names: Sequence[str], known: Container[str]) -> str:
    """Returns a text in which misspelled names of speakers are corrected.

    Args:
        text: What somebody asks.
        names: The names of those who speak.
        known: The terms of what was said; a word with one of them is no misspelled name.
    """
    parts = {fold(part): part for name in names for part in _words_of_name(name)}
    if not parts or len(text) > MISSPELLING.most_characters:
        return text

    return _ENGLISH.word.sub(lambda match: _corrected(match[0], parts, known), text)


def _corrected(word: str, parts: Mapping[str, str], known: Container[str]) -> str:
    """Returns the part of a name that a word is nearly; the word itself if it is none.

    Args:
        word: A word of a question.
        parts: The parts of the speakers' names, by their folded form.
        known: The terms of what was said.
    """
    folded = fold(word)
    may_be_name = len(word) >= MISSPELLING.least_letters and word[0].isupper()
    if not may_be_name or folded in parts:
        return word
    if any(term in known for term in terms(word)):
        return word
    nearest = get_close_matches(folded, parts, n=1, cutoff=MISSPELLING.likeness)
    return parts[nearest[0]] if nearest else word


def first_person(text: str) -> float:
    """Returns the share of words such as "I" and "my" among all words, 0 to 1."""
    words = _ENGLISH.word.findall(text.lower())
    if not words:
        return 0.0
    return sum(word in _FIRST_PERSON for word in words) / len(words)
