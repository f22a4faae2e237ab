"""Words, sentences, dates and names of code in texts of any language."""

import re
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cache, lru_cache
from hashlib import blake2b
from importlib import resources
from typing import NamedTuple, ParamSpec, TypeVar, cast

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


def vocabulary(room: str) -> Vocabulary:
    """Returns the words and patterns of English of a room, such as `search_english.toml`."""
    parts_by_name = tomllib.loads(packaged(f"{room}/{room}_english.toml"))
    return Vocabulary({name: "".join(parts) for name, parts in parts_by_name.items()})


ENGLISH = vocabulary("messages")
UNSPACED = ENGLISH["unspaced"]
MARKS = ENGLISH["marks"]
# A sentence ends at its mark (and the quotation mark or bracket that closes there) before white
# space, at a full-width mark, and at a line break; not within "17. Oktober".
_ENDS = r"[.!?…؟۔।॥]"  # noqa: RUF001
_CLOSING = r"[\"')\]”’»]"  # noqa: RUF001
_FULL_WIDTH_ENDS = "[。！？]"  # noqa: RUF001
_FULL_WIDTH_CLOSING = "[」』）”’]"  # noqa: RUF001
_SENTENCE_END = re.compile(
    rf"(?:(?<={_ENDS})|(?<={_ENDS}{_CLOSING})|(?<={_ENDS}{_CLOSING}{{2}}))"
    rf"(?!(?<=\d\.)\s{ENGLISH['months_with_points']})\s+"
    rf"|(?<={_FULL_WIDTH_ENDS})(?!{_FULL_WIDTH_ENDS}|{_FULL_WIDTH_CLOSING})"
    rf"|(?<={_FULL_WIDTH_ENDS}{_FULL_WIDTH_CLOSING})"
    r"|\n+"
)
STOP_WORDS = frozenset(ENGLISH["stop_words"].split())


# What is kept of the texts of users in the memory of this process

_cache_clearers: list[Callable[[], None]] = [re.purge]
"""Functions that empty the caches of this process that have texts of users as keys; some names are
in patterns."""


def remembering(maxsize: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Returns a decorator: `lru_cache` for functions of users' texts, emptied by `forget_texts`.

    Unlike `lru_cache`, it keeps the signature of the function for type checkers.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        cached = lru_cache(maxsize=maxsize)(function)
        _cache_clearers.append(cached.cache_clear)
        return cast("Callable[P, T]", cached)

    return decorate


def forget_texts() -> None:
    """Lets go of the texts of users that were kept to read them faster.

    To be done once some are erased.
    """
    for clear in _cache_clearers:
        clear()


def digest(text: str, size: int = 16) -> bytes:
    """Returns so many bytes by which a text is known without being kept alive."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).digest()


# Words and terms


@remembering(65_536)
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


def _is_unspaced(word: str) -> bool:
    """Tells if a word begins in a script that is written without spaces."""
    return _unspaced_character().match(word) is not None


def terms(text: str) -> list[str]:
    """Returns the search terms of a text: stems without stop words.

    Scripts without spaces as pairs of characters.
    """
    if "'" in text or "\u2019" in text:
        text = ENGLISH.contracted.sub(" ", text)
    if text.isascii():
        words = ENGLISH.ascii_words.findall(text.lower())
        return [stem(word) for word in words if word not in STOP_WORDS]

    found: list[str] = []
    for word in _any_word().findall(fold(text)):
        if not word.isascii() and _is_unspaced(word):
            found.extend(_pairs(word))
        elif word not in STOP_WORDS:
            found.append(stem(word))
    return found


def _pairs(word: str) -> list[str]:
    """Returns the pairs of characters in a row; of a single character, itself."""
    return [word[at : at + 2] for at in range(max(1, len(word) - 1))]


def word_count(text: str) -> int:
    """Counts the words of a text; in scripts without spaces, two characters are about one."""
    if text.isascii():
        return len(ENGLISH.ascii_words.findall(text))
    count = 0
    for word in _any_word().findall(text):
        count += (len(word) + 1) // 2 if _is_unspaced(word) else 1
    return count


def mentions(folded: str, names: Iterable[str]) -> int:
    """Counts how often a folded text has one of these names as whole words.

    In any case and spacing.
    """
    return sum(len(_whole_words(name).findall(folded)) for name in names)


def without_mentions(folded: str, name: str) -> str:
    """Puts a mark wherever a folded text has a name as whole words."""
    return _whole_words(name).sub("\0", folded)


@remembering(4_096)
def _whole_words(name: str) -> re.Pattern[str]:
    """Returns the pattern of a name as whole words, in scripts with spaces."""
    words = fold(name).split()
    left = rf"(?<![\w{MARKS}])" if _has_borders(words[0][0]) else ""
    right = rf"(?![\w{MARKS}])" if _has_borders(words[-1][-1]) else ""
    return re.compile(left + r"\s+".join(map(re.escape, words)) + right)


def _has_borders(character: str) -> bool:
    """Tells if a character belongs to words that are set off from others by spaces."""
    return bool(re.match(rf"[\w{MARKS}]", character)) and not _is_unspaced(character)


def fold(text: str) -> str:
    """Returns one form for all ways to write the same text.

    Compatibility forms composed, no case.
    """
    return unicodedata.normalize("NFKC", text).casefold()


def sentences(text: str) -> list[str]:
    """Returns the sentences of a text, white space at their ends removed."""
    return [part.strip() for part in _SENTENCE_END.split(text) if part and part.strip()]


# Dates and times

EARLIEST_SECONDS = 1e8
"""Unix time of March 1973: a smaller number counts something else than seconds."""
EARLIEST_MILLISECONDS = EARLIEST_SECONDS * 1_000
"""The same day in milliseconds; as seconds this is the year 5138."""


def read_time(created_at: object) -> datetime | None:
    """Returns the time that a value tells, in UTC where it names no offset.

    None where it tells none.

    It is a datetime, a date, a text in ISO 8601, or Unix time: seconds or milliseconds, as a number
    or a text of one.
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


# Sentences of a message, and the files and functions that it names

MAX_SENTENCE_CHARACTERS = 400
"""A longer sentence is cut here, with an ellipsis."""
LINE_CHARACTERS = 120
"""A longer line is told by its beginning or in parts, and a longer name is no name. A sentence that
begins with "It" or "That" is read with the one before it while both have less than two lines."""
SYMBOL_SHARE = 0.2
"""A line with more brackets and operators than this is no sentence."""
_FENCE = "```"
_LEFT_OUT = "\n[\u2026]\n"
"""No sentence, so that nobody reads what stands before and after it as one."""


def units(text: str) -> list[str]:
    """Returns a text sentence by sentence, each on one line and cut where it is too long.

    Code, tables, JSON and lines without words are no sentences; a tool call is one.
    """
    found: list[str] = []
    for prose in text.split(_FENCE)[::2]:
        for line in prose.split("\n"):
            found.extend(_prose_of(line.strip()))
    return [_cut_sentence(sentence) for sentence in found]


def _cut_sentence(sentence: str) -> str:
    if len(sentence) <= MAX_SENTENCE_CHARACTERS:
        return sentence
    return sentence[: MAX_SENTENCE_CHARACTERS - 1].rstrip() + "…"


def without_pasted(text: str) -> str:
    """Returns a text without everything between its first and last mark of a paste.

    A paste may imitate its own end.

    Where something is left open, nothing of the end of the text stays; where no word is left,
    nothing.
    """
    marks = list(ENGLISH.paste.finditer(text))
    if not marks:
        return text
    before = text[: marks[0].start()]
    after = "" if _leave_open(marks) else text[marks[-1].end() :]
    rest = before + _LEFT_OUT + after
    return rest if any(map(str.isalnum, rest)) else ""


def _leave_open(marks: Sequence[re.Match[str]]) -> bool:
    """Tells if marks open a fence or a tag that none of them closes."""
    is_open: dict[str, bool] = {}
    for mark in marks:
        fence = mark["fence"]
        tag = mark["name"]
        if fence:
            character = fence[-1]
            is_open[character] = not is_open.get(character)
        elif tag:
            is_open[tag.casefold()] = not mark["closes"]
    return any(is_open.values())


def begins_in_the_middle(sentence: str) -> bool:
    """Tells if a sentence begins with a word that refers to the one before it."""
    return bool(ENGLISH.anaphor.match(sentence))


def _prose_of(line: str) -> list[str]:
    """Returns the sentences of a line: none where it is no prose; a call as one, its beginning."""
    if ENGLISH.called.match(line):
        is_short = len(line) <= LINE_CHARACTERS
        return [line if is_short else f"{line[: LINE_CHARACTERS - 2].rstrip()}…]"]
    if not _is_prose(line):
        return []
    whole_sentences = _joined_sentences(sentences(ENGLISH.markup.sub("", line)))
    return [sentence for sentence in whole_sentences if _is_in_words(sentence)]


def _is_prose(line: str) -> bool:
    """Tells if a line is neither of a table, nor JSON, a ruler or code."""
    if line.startswith("|") and line.count("|") > 1:
        return False
    if line.startswith(("{", "[")) and line.endswith(("}", "]")) and not line[1:2].isalpha():
        return False
    return not (ENGLISH.ruler.match(line) or ENGLISH.code_line.match(line))


def _is_in_words(sentence: str) -> bool:
    """Tells if a sentence has few enough brackets and operators."""
    return len(ENGLISH.symbol.findall(sentence)) <= SYMBOL_SHARE * len(sentence)


def _joined_sentences(parts: Iterable[str]) -> list[str]:
    """Joins a sentence to the one before it where it was split from it, or refers to it."""
    joined: list[str] = []
    for part in map(one_line, parts):
        if joined and _continues(joined[-1], part):
            joined[-1] += f" {part}"
        else:
            joined.append(part)
    return joined


def _continues(before: str, sentence: str) -> bool:
    """Tells if a sentence goes on from the one before it."""
    if ENGLISH.abbreviation.search(before[-12:]):
        return True
    is_short = len(before) + len(sentence) < 2 * LINE_CHARACTERS
    return is_short and " " in before and begins_in_the_middle(sentence)


def artifacts(texts: Iterable[str]) -> tuple[str, ...]:
    """Returns the names of files in texts, and of functions and classes in code.

    The most mentioned first.
    """
    counts: Counter[str] = Counter()
    for text in texts:
        parts = ENGLISH.called.sub("[", text).split(_FENCE)
        for code in parts[1::2]:
            counts.update(_defined_in(code))
        for prose in parts[::2]:
            named = map(_named, ENGLISH.token.findall(prose))
            counts.update(filter(None, named))
    return tuple(name for name, _ in counts.most_common())


def _defined_in(code: str) -> list[str]:
    """Returns the names of functions and classes that code defines."""
    names: list[str] = []
    for function_word, name in ENGLISH.definition.findall(code):
        if function_word:
            names.append(f"{name}()")
        elif ENGLISH.looks_like_code.search(name):
            names.append(name)
    return names


def _named(token: str) -> str:
    """Returns the file or the function that a token of a text names, or nothing."""
    if "." not in token and "(" not in token:
        return ""
    name = token.lstrip(":-@").rstrip(".:-@")
    if len(name) > LINE_CHARACTERS or "://" in name:
        return ""
    if "(" in name:
        return _function_of(name)
    return name.removeprefix("./") if ENGLISH.file.fullmatch(name) else ""


def _function_of(call: str) -> str:
    """Returns the function that a token with a bracket calls, or nothing."""
    function = call.rstrip("()").rsplit("/", 1)[-1]
    if not ENGLISH.named_in_code.fullmatch(function):
        return ""
    is_function = call.endswith(")") or ENGLISH.looks_like_code.search(function)
    return f"{function}()" if is_function else ""


# Near-duplicates among short texts, told apart by their numbers, negations and names

NEAR_DUPLICATE = 0.8
"""Share of the terms of two texts that both have (Jaccard), from which on they say the same."""
_NUMBERS = ENGLISH["numbers"].split()
_NUMBER_WORD = re.compile(rf"\b(?:{'|'.join(_NUMBERS)})\b")


def says_the_same(one: str, other: str) -> bool:
    """Tells if two texts are near-duplicates.

    Nearly the same terms, the same numbers, both negated or neither.
    """
    first = _compared(one)
    second = _compared(other)
    if not first.terms or not second.terms:
        return fold(one_line(one)) == fold(one_line(other))
    return first.is_negated == second.is_negated and _are_alike(first, second)


def says_the_opposite(one: str, other: str) -> bool:
    """Tells if one of two texts is the other one, negated.

    Or two terms and more that the other one begins with, negated.
    """
    first = _compared(one)
    second = _compared(other)
    if first.is_negated == second.is_negated:
        return False
    negated = first if first.is_negated else second
    affirmed = second if first.is_negated else first
    if not negated.terms:
        return False
    term_count = len(negated.terms)
    is_beginning = term_count > 1 and affirmed.terms[:term_count] == negated.terms
    return is_beginning or _are_alike(negated, affirmed)


def says_more(text: str, other: str) -> bool:
    """Tells if a text has more terms than another one."""
    return len(_compared(text).terms) > len(_compared(other).terms)


@dataclass(frozen=True, slots=True)
class _Compared:
    """A text as it is compared: its terms in order, without negations."""

    terms: tuple[str, ...]
    names: frozenset[str]
    numbers: tuple[str, ...]
    is_negated: bool


@remembering(4_096)
def _compared(text: str) -> _Compared:
    plain = ENGLISH.thousands.sub("", ENGLISH.not_contracted.sub(" not ", fold(text)))
    plain = _NUMBER_WORD.sub(lambda word: str(_NUMBERS.index(word[0]) + 1), plain)
    capitalized = [word for word in text.split()[1:] if word[:1].isupper()]
    negations = ENGLISH.negation.finditer(plain)
    return _Compared(
        terms=tuple(dict.fromkeys(terms(ENGLISH.negation.sub(" ", plain)))),
        names=frozenset(terms(" ".join(capitalized))),
        numbers=tuple(sorted(ENGLISH.number.findall(plain))),
        is_negated=any(not negation[1] for negation in negations),
    )


def _are_alike(first: _Compared, second: _Compared) -> bool:
    """Tells if two texts have nearly the same terms in the same order, and the same numbers."""
    if first.numbers != second.numbers:
        return False
    first_terms = set(first.terms)
    second_terms = set(second.terms)
    shared = first_terms & second_terms
    if len(shared) < NEAR_DUPLICATE * len(first_terms | second_terms):
        return False
    if not (first.names <= second_terms or second.names <= first_terms):
        return False
    first_order = [term for term in first.terms if term in shared]
    second_order = [term for term in second.terms if term in shared]
    return first_order == second_order


# What a message states of a thing, and which statement replaces another

MOST_STATED = 1_000
"""A message of more characters is a text about many things."""
UNNAMED_THINGS = ("home", "employer")
"""Things that a statement is about without naming them: "I live in Lisbon"."""
_KINDS_OF_VALUES = ("day", "time", "number", "colour", "name")


class Statement(NamedTuple):
    """A value that a message gives to a thing."""

    thing: str
    kind: str
    """Kind and form of the value: values of two kinds do not replace each other."""
    value: frozenset[str]
    """The terms of the value."""
    is_change: bool
    """True if the value is new, or the thing has one value at a time, as a port has."""
    is_end: bool
    """True if the thing has this value no longer."""


def replaced(said: Mapping[int, tuple[str, str]]) -> Iterator[tuple[int, int, str]]:
    """Yields what a speaker's newest statement replaces: the old place, the new one, the thing.

    Args:
        said: Speaker and text of messages by their place in the conversation.
    """
    newest: dict[object, tuple[int, Statement]] = {}
    for at, (speaker, text) in sorted(said.items(), reverse=True):
        for statement in statements(text):
            key = statement_key(speaker, statement)
            later, new = newest.setdefault(key, (at, statement))
            if later > at and new.is_change and is_replaced_by(statement, new):
                yield at, later, statement.thing


def statement_key(speaker: str, statement: Statement) -> tuple[str, str, frozenset[str]]:
    """Returns what statements about the same thing have in common.

    The speaker, the kind of value, the thing.
    """
    return speaker, statement.kind, frozenset(_terms_of_thing(statement))


def is_replaced_by(statement: Statement, later: Statement) -> bool:
    """Tells if a later statement about the same thing gives it another value, or ends this one."""
    is_same_value = later.value <= statement.value or statement.value <= later.value
    return is_same_value == later.is_end and not statement.is_end


def words_of_thing(statement: Statement) -> tuple[list[str], bool]:
    """Returns search terms of messages about a thing, and whether such a message has all of them.

    Else it has any one.
    """
    if statement.thing in UNNAMED_THINGS:
        return terms(ENGLISH[statement.thing]), False
    return _terms_of_thing(statement), True


def _terms_of_thing(statement: Statement) -> list[str]:
    """Returns the terms of a thing, the same for "my bike" and "the colour of my bike"."""
    thing_terms = terms(ENGLISH.change.sub(" ", statement.thing))
    if not statement.kind.startswith("colour"):
        return thing_terms
    without_colour = [term for term in thing_terms if term not in ("colour", "color")]
    return without_colour or thing_terms


@remembering(4_096)
def statements(text: str) -> list[Statement]:
    """Returns what a message states for sure.

    Nothing that is asked, supposed, planned, quoted, or of the past.
    """
    if len(text) > MOST_STATED:
        return []
    stated: list[Statement] = []
    for sentence in sentences(without_pasted(text)):
        if ENGLISH.unsure.search(sentence):
            continue
        for match in ENGLISH.states.finditer(sentence):
            stated.append(_statement_of(match, sentence))  # noqa: PERF401 - reads as two loops
    return stated


def _statement_of(match: re.Match[str], sentence: str) -> Statement:
    """Returns the statement that a pattern has found in a sentence."""
    kind = next(name for name in _KINDS_OF_VALUES if match[name])
    value = match[kind]
    unnamed_thing = "home" if match["home"] else "employer"
    thing = match["what"] or match["made"] or unnamed_thing
    return Statement(
        thing=thing,
        kind=f"{kind} {_form_of(kind, match)}",
        value=frozenset(_compared(ENGLISH.in_figures.sub("", value)).terms),
        is_change=bool(ENGLISH.change.search(sentence) or ENGLISH.of_one.search(thing)),
        is_end=_compared(match[0]).is_negated,
    )


def _form_of(kind: str, match: re.Match[str]) -> object:
    """Returns the form of a value: its unit, or whether the thing moved there, or is in words."""
    unit = re.sub(r"[\d\W_]", "", match[kind]).casefold()
    if kind == "number":
        return unit
    if kind == "name":
        return bool(match["what"]) and "moved" in match[0]
    return bool(unit)
