"""Words, sentences and dates in texts of any language."""

import re
import tomllib
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from functools import cache, lru_cache, wraps
from hashlib import blake2b
from importlib import resources
from itertools import pairwise
from typing import ParamSpec, TypeVar, cast

from Stemmer import Stemmer

P = ParamSpec("P")
T = TypeVar("T")


def packaged(file: str) -> str:
    """Returns the text of a file of this package, such as `search/search_english.toml`."""
    return resources.files("langchain_ctxbudget").joinpath(file).read_text(encoding="utf-8")


class Vocabulary(dict[str, str]):
    """Words and patterns of English.

    An attribute is the pattern of that name, compiled when it is first used.
    """

    def __getattr__(self, name: str) -> re.Pattern[str]:
        """Compiles a pattern, once."""
        if name not in self:
            raise AttributeError(name)
        pattern = re.compile(self[name])
        self.__dict__[name] = pattern
        return pattern


def vocabulary(room: str, kind: str = "english") -> Vocabulary:
    """Returns the words and patterns of a room, such as `search_english.toml`."""
    parts_by_name = tomllib.loads(packaged(f"{room}/{room}_{kind}.toml"))
    return Vocabulary({name: "".join(parts) for name, parts in parts_by_name.items()})


ENGLISH = vocabulary("messages")
UNSPACED = ENGLISH["unspaced"]
MARKS = ENGLISH["marks"]
STATEMENT_ENDS = ".!\u06d4\u0964\u0965\u1362\u0589\u104b\u17d4\u3002\uff01"
"""Marks at the end of a sentence that states something: Latin, Urdu, Hindi, Ethiopic, Armenian,
Burmese, Khmer and full-width ones. Thai has none."""
QUESTION_MARKS = "?\u061f\u1367\uff1f"
"""Marks at the end of a question: Latin, Arabic, Ethiopic and full-width ones."""
_ELLIPSIS = "\u2026"
_CLOSING = "\"')]\u201d\u2019\u00bb"
_FULL_WIDTH_CLOSING = "\u300d\u300f\uff09"
# A sentence ends at its mark (and the quotation mark or bracket that closes there) before white
# space, at a full-width mark, and at a line break; not within "17. Oktober".
_FULL_WIDTH = "\u3002\uff01\uff1f"
_ALL_ENDS = STATEMENT_ENDS + QUESTION_MARKS + _ELLIPSIS
_END = f"[{re.escape(''.join(mark for mark in _ALL_ENDS if mark not in _FULL_WIDTH))}]"
_CLOSED = f"[{re.escape(_CLOSING)}]"
_FULL_WIDTH_END = f"[{_FULL_WIDTH}]"
_FULL_WIDTH_CLOSED = f"[{_FULL_WIDTH_CLOSING}\u201d\u2019]"
_SENTENCE_END = re.compile(
    rf"(?:(?<={_END})|(?<={_END}{_CLOSED})|(?<={_END}{_CLOSED}{{2}}))"
    rf"(?!(?<=\d\.)\s{ENGLISH['months_with_points']})\s+"
    rf"|(?<={_FULL_WIDTH_END})(?!{_FULL_WIDTH_END}|{_FULL_WIDTH_CLOSED})"
    rf"|(?<={_FULL_WIDTH_END}{_FULL_WIDTH_CLOSED})"
    r"|\n+"
)
STOP_WORDS = frozenset(ENGLISH["stop_words"].split())


# What is kept of the texts of users in the memory of this process

_cache_clearers: list[Callable[[], None]] = [re.purge]
"""Functions that empty the caches of this process that have texts of users as keys; some names are
in patterns."""


def cached_until_forgotten(maxsize: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Returns a decorator: `lru_cache` for functions of users' texts, emptied by `forget_texts`.

    Unlike `lru_cache`, it keeps the signature of the function for type checkers.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        cached = lru_cache(maxsize=maxsize)(function)
        _cache_clearers.append(cached.cache_clear)
        return cast("Callable[P, T]", cached)

    return decorate


def each_cached_until_forgotten(
    maxsize: int,
) -> Callable[[Callable[[Sequence[str]], Sequence[T]]], Callable[[Sequence[str]], list[T]]]:
    """Returns a decorator: the same for functions that read many texts at once, each by itself.

    They are called with the texts that they have not read yet. When more texts than `maxsize` would
    be kept, those before are forgotten.
    """

    def decorate(
        function: Callable[[Sequence[str]], Sequence[T]],
    ) -> Callable[[Sequence[str]], list[T]]:
        kept: dict[str, T] = {}
        _cache_clearers.append(kept.clear)

        @wraps(function)
        def cached(texts: Sequence[str]) -> list[T]:
            results = {text: result for text in texts if (result := kept.get(text)) is not None}
            unread = [text for text in dict.fromkeys(texts) if text not in results]
            if unread:
                read = dict(zip(unread, function(unread), strict=True))
                results |= read
                if len(kept) + len(read) > maxsize:
                    kept.clear()
                kept.update(read)
            return [results[text] for text in texts]

        return cached

    return decorate


def forget_texts() -> None:
    """Empties the caches that hold texts of users.

    Whoever erases stored texts calls this.
    """
    for clear in _cache_clearers:
        clear()


def digest(text: str, size: int = 16) -> bytes:
    """Returns a digest of a text, by which it is recognised without being kept in memory."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).digest()


def encodable(text: str) -> str:
    """Returns a text that UTF-8 can hold.

    Halves of a character are joined; a half without another one is replaced.
    """
    # Most texts are, and Python knows it without looking at them.
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


# Words and terms


@cached_until_forgotten(65_536)
def stem(word: str) -> str:
    """Returns the Snowball stem of a lower-case word."""
    # A stemmer of its own for every word: one that threads share would work in itself.
    return str(Stemmer("english").stemWord(word))


@cache
def _any_word() -> re.Pattern[str]:
    """Returns the pattern of a word of any script."""
    return re.compile(rf"[{UNSPACED}]+|(?:[^\W_{UNSPACED}]+|[{MARKS}]+)+")


@cache
def _unspaced_character() -> re.Pattern[str]:
    """Returns the pattern of a character of a script that is written without spaces."""
    return re.compile(rf"[{UNSPACED}]")


def is_unspaced(word: str) -> bool:
    """Tells if a word begins in a script that is written without spaces."""
    return _unspaced_character().match(word) is not None


def terms(text: str) -> list[str]:
    """Returns the search terms of a text: stems without stop words.

    In scripts without spaces, every pair of characters is a term.
    """
    if "'" in text or "\u2019" in text:
        text = ENGLISH.contracted.sub(" ", text)
    if text.isascii():
        words = ENGLISH.ascii_words.findall(text.lower())
        return [stem(word) for word in words if word not in STOP_WORDS]

    word_terms: list[str] = []
    for word in _any_word().findall(fold(text)):
        if not word.isascii() and is_unspaced(word):
            word_terms += _pairs(word)
        elif word not in STOP_WORDS:
            word_terms.append(stem(word))
    return word_terms


def _pairs(word: str) -> list[str]:
    """Returns every two characters in a row; of a single character, itself."""
    if len(word) == 1:
        return [word]
    return list(map("".join, pairwise(word)))


def word_count(text: str) -> int:
    """Counts the words of a text; in scripts without spaces, two characters are about one."""
    if text.isascii():
        return len(ENGLISH.ascii_words.findall(text))
    count = 0
    for word in _any_word().findall(text):
        if is_unspaced(word):
            count += (len(word) + 1) // 2
        else:
            count += 1
    return count


def words_of(text: str) -> list[str]:
    """Returns the words of a text as they stand; in scripts without spaces, its characters."""
    words: list[str] = []
    for word in _any_word().findall(text):
        words += word if is_unspaced(word) else [word]
    return words


def mentions(folded: str, names: Iterable[str]) -> int:
    """Counts how often a folded text has one of these names as whole words.

    Case and spacing of the names do not matter.
    """
    return sum(len(_whole_words(name).findall(folded)) for name in names)


def without_mentions(folded: str, name: str) -> str:
    """Puts a mark wherever a folded text has a name as whole words."""
    return _whole_words(name).sub("\0", folded)


@cached_until_forgotten(4_096)
def _whole_words(name: str) -> re.Pattern[str]:
    """Returns the pattern of a name as whole words, in scripts with spaces."""
    words = fold(name).split()
    pattern = r"\s+".join(map(re.escape, words))
    if _has_borders(words[0][0]):
        pattern = rf"(?<![\w{MARKS}]){pattern}"
    if _has_borders(words[-1][-1]):
        pattern = rf"{pattern}(?![\w{MARKS}])"
    return re.compile(pattern)


def _has_borders(character: str) -> bool:
    """Tells if a character belongs to words that are set off from others by spaces."""
    is_of_word = re.match(rf"[\w{MARKS}]", character) is not None
    return is_of_word and not is_unspaced(character)


def fold(text: str) -> str:
    """Returns one form for all ways to write the same text.

    Unicode's compatibility forms are composed, and there is no case.
    """
    return unicodedata.normalize("NFKC", text).casefold()


def sentences(text: str) -> list[str]:
    """Returns the sentences of a text, white space at their ends removed."""
    return [text[begin:end] for begin, end in sentence_spans(text)]


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Returns where the sentences of a text begin and end, without white space at their ends."""
    spans: list[tuple[int, int]] = []
    begin = 0
    ends = [(found.start(), found.end()) for found in _SENTENCE_END.finditer(text)]
    for stop, next_begin in [*ends, (len(text), len(text))]:
        part = text[begin:stop]
        words = part.strip()
        if words:
            first = begin + len(part) - len(part.lstrip())
            spans.append((first, first + len(words)))
        begin = next_begin
    return spans


def ends_as_statement(sentence: str) -> bool:
    """Tells if a sentence ends with a mark of a statement, or that and what closes there."""
    return sentence.rstrip(_CLOSING + _FULL_WIDTH_CLOSING).endswith(tuple(STATEMENT_ENDS))


def is_at_end_of_sentence(text: str) -> bool:
    """Tells if a text ends with a mark behind which a new sentence begins, as a colon is one."""
    bare = text.rstrip(_CLOSING + _FULL_WIDTH_CLOSING)
    return bare.endswith((*_ALL_ENDS, ":", "\uff1a"))


# Dates and times

EARLIEST_SECONDS = 1e8
"""Unix time of March 1973: a smaller number counts something else than seconds."""
EARLIEST_MILLISECONDS = EARLIEST_SECONDS * 1_000
"""The same day in milliseconds; as seconds this is the year 5138."""


def read_time(created_at: object) -> datetime | None:
    """Returns the time that a value tells, in UTC if it names no offset; None if it tells none.

    The value is a datetime, a date, a text in ISO 8601, or Unix time: seconds or milliseconds, as a
    number or a text of one.
    """
    if isinstance(created_at, str):
        return _time_from_text(created_at.strip())
    if isinstance(created_at, datetime):
        return created_at if created_at.tzinfo else created_at.replace(tzinfo=UTC)
    if isinstance(created_at, date):
        return datetime(created_at.year, created_at.month, created_at.day, tzinfo=UTC)
    if isinstance(created_at, int | float) and not isinstance(created_at, bool):
        return _time_from_number(created_at)
    return None


def _time_from_text(text: str) -> datetime | None:
    if ENGLISH.unix_time.fullmatch(text):
        return _time_from_number(float(text))
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _time_from_number(number: float) -> datetime | None:
    if not number >= EARLIEST_SECONDS:  # it may be NaN
        return None
    seconds = number if number < EARLIEST_MILLISECONDS else number / 1_000
    with suppress(ValueError, OverflowError, OSError):  # later than the year 9999
        return datetime.fromtimestamp(seconds, UTC)
    return None


def iso_date(created_at: object) -> str | None:
    """Returns the `YYYY-MM-DD` of an ISO 8601 time, or None."""
    if not isinstance(created_at, str) or not ENGLISH.iso_date.match(created_at):
        return None
    with suppress(ValueError):  # there is no such day
        return date.fromisoformat(created_at[:10]).isoformat()
    return None


# Texts on one line

LINE_CHARACTERS = 120
"""A longer line is told by its beginning or in parts, and a longer name is no name. A sentence that
begins with "It" or "That" is read with the one before it while both have less than two lines."""
CHARACTERS_PER_TOKEN = 4
"""About the characters of a token, where it is not worth counting."""
LABEL_CHARACTERS = 60
"""Characters of a name or a time in a line that tells of something else."""


def one_line(text: str) -> str:
    """Returns a text with every run of white space as one space."""
    return " ".join(text.split())


def clipped(text: str, characters: int) -> str:
    """Returns the beginning of a text on one line, with an ellipsis where it was longer."""
    beginning = one_line(text[: 4 * characters])
    if len(beginning) <= characters and len(text) <= 4 * characters:
        return beginning
    return beginning[: characters - 1].rstrip() + "…"
