"""Words, sentences, dates and names of code in texts of any language."""

import re
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from functools import cache, lru_cache
from hashlib import blake2b
from importlib import resources
from typing import NamedTuple, ParamSpec, TypeAlias, TypeVar, cast

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
        self.__dict__[name] = pattern = re.compile(self[name])
        return pattern


def vocabulary(room: str) -> Vocabulary:
    """Returns the words and patterns of English that a room keeps in its lexicon, such as `search_english.toml`."""
    told = tomllib.loads(packaged(f"{room}/{room}_english.toml"))
    return Vocabulary({name: "".join(parts) for name, parts in told.items()})


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
    rf"(?:(?<={_ENDS})|(?<={_ENDS}{_CLOSING})|(?<={_ENDS}{_CLOSING}{{2}}))(?!(?<=\d\.)\s{ENGLISH['months_with_points']})\s+"
    rf"|(?<={_FULL_WIDTH_ENDS})(?!{_FULL_WIDTH_ENDS}|{_FULL_WIDTH_CLOSING})"
    rf"|(?<={_FULL_WIDTH_ENDS}{_FULL_WIDTH_CLOSING})"
    r"|\n+"
)
STOP_WORDS = frozenset(ENGLISH["stop_words"].split())


def remembering(most: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Keeps the last results of a function that is called with texts or words of users, until `forget_texts`."""

    def kept(function: Callable[P, T]) -> Callable[P, T]:
        cached = lru_cache(maxsize=most)(function)
        _forgetting.append(cached.cache_clear)
        return cast("Callable[P, T]", cached)

    return kept


_forgetting: list[Callable[[], None]] = [re.purge]
"""Functions that empty the caches of this process that have texts of users as keys; some names are
in patterns."""


def forget_texts() -> None:
    """Lets go of the texts of users that were kept to read them faster.

    To be done once some are erased.
    """
    for forget in _forgetting:
        forget()


def digest(text: str, size: int = 16) -> bytes:
    """Returns so many bytes by which a text is known without being kept alive."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).digest()


@remembering(65_536)
def stem(word: str) -> str:
    """Returns the Snowball stem of a lower-case word."""
    return str(Stemmer("english").stemWord(word))  # one of its own: it works in itself


@cache
def _words() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Returns the patterns of words of any script, and of those that are written without spaces."""
    return re.compile(rf"[{UNSPACED}]+|(?:[^\W_{UNSPACED}]+|[{MARKS}]+)+"), re.compile(
        rf"[{UNSPACED}]"
    )


def terms(text: str) -> list[str]:
    """Returns the search terms of a text: stems without stop words.

    Scripts without spaces as pairs of characters.
    """
    if "'" in text or "\u2019" in text:
        text = ENGLISH.contracted.sub(" ", text)
    if text.isascii():
        return [
            stem(word)
            for word in ENGLISH.ascii_words.findall(text.lower())
            if word not in STOP_WORDS
        ]
    found: list[str] = []
    words, unspaced = _words()
    for word in words.findall(fold(text)):
        if not word.isascii() and unspaced.match(word):
            found.extend(word[i : i + 2] for i in range(max(1, len(word) - 1)))
        elif word not in STOP_WORDS:
            found.append(stem(word))
    return found


def word_count(text: str) -> int:
    """Counts the words of a text; in scripts without spaces, two characters are about one."""
    if text.isascii():
        return len(ENGLISH.ascii_words.findall(text))
    words, unspaced = _words()
    return sum((len(word) + 1) // 2 if unspaced.match(word) else 1 for word in words.findall(text))


def mentions(folded: str, names: Iterable[str]) -> int:
    """Counts how often a folded text has one of these names as whole words, in any case and spacing."""
    return sum(len(_whole_words(name).findall(folded)) for name in names)


def without_mentions(folded: str, name: str) -> str:
    """Puts a mark wherever a folded text has a name as whole words."""
    return _whole_words(name).sub("\0", folded)


@remembering(4_096)
def _whole_words(name: str) -> re.Pattern[str]:
    """Returns the pattern of a name as whole words, in scripts with spaces."""
    parts = fold(name).split()
    left = rf"(?<![\w{MARKS}])" if _has_borders(parts[0][0]) else ""
    right = rf"(?![\w{MARKS}])" if _has_borders(parts[-1][-1]) else ""
    return re.compile(left + r"\s+".join(map(re.escape, parts)) + right)


def _has_borders(character: str) -> bool:
    return bool(re.match(rf"[\w{MARKS}]", character)) and not _words()[1].match(character)


def fold(text: str) -> str:
    """Returns one form for all ways to write the same text.

    Compatibility forms composed, no case.
    """
    return unicodedata.normalize("NFKC", text).casefold()


def sentences(text: str) -> list[str]:
    """Returns the sentences of a text, white space at their ends removed."""
    return [part.strip() for part in _SENTENCE_END.split(text) if part and part.strip()]


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
        created_at = created_at.strip()
        created_at = (
            float(created_at) if ENGLISH.unix_time.fullmatch(created_at) else _from_iso(created_at)
        )
    if isinstance(created_at, date) and not isinstance(created_at, datetime):
        created_at = datetime(created_at.year, created_at.month, created_at.day, tzinfo=UTC)
    if isinstance(created_at, datetime):
        return created_at if created_at.tzinfo else created_at.replace(tzinfo=UTC)
    if isinstance(created_at, bool) or not isinstance(created_at, int | float):
        return None
    if not created_at >= EARLIEST_SECONDS:  # it may be NaN
        return None
    with suppress(ValueError, OverflowError, OSError):  # it is no time: later than the year 9999
        is_in_seconds = created_at < EARLIEST_MILLISECONDS
        return datetime.fromtimestamp(created_at if is_in_seconds else created_at / 1_000, UTC)
    return None


def _from_iso(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def iso_date(created_at: object) -> str | None:
    """Returns the `YYYY-MM-DD` of an ISO 8601 time, or None."""
    if not isinstance(created_at, str) or not ENGLISH.iso_date.match(created_at):
        return None
    with suppress(ValueError):  # there is no such day
        return date.fromisoformat(created_at[:10]).isoformat()
    return None


LABEL_CHARACTERS = 60
"""Characters of a name or a time in a line that tells of something else."""


def one_line(text: str) -> str:
    """Returns a text with every run of white space as one space."""
    return " ".join(text.split())


def clipped(text: str, characters: int) -> str:
    """Returns the beginning of a text on one line, with an ellipsis where it was longer."""
    flat = one_line(text[: 4 * characters])
    if len(flat) <= characters and len(text) <= 4 * characters:
        return flat
    return flat[: characters - 1].rstrip() + "…"


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
    most = MAX_SENTENCE_CHARACTERS
    lines = (line.strip() for part in text.split(_FENCE)[::2] for line in part.split("\n"))
    found = (unit for line in lines for unit in _prose(line))
    return [unit if len(unit) <= most else unit[: most - 1].rstrip() + "…" for unit in found]


def without_pasted(text: str) -> str:
    """Returns a text without everything between its first and last mark of a paste.

    A paste may imitate its own end.

    Where something is left open, nothing of the end of the text stays; where no word is left,
    nothing.
    """
    marks = list(ENGLISH.paste.finditer(text))
    if not marks:
        return text
    is_open: dict[str, bool] = {}
    for mark in marks:
        if fence := mark["fence"]:
            is_open[fence[-1]] = not is_open.get(fence[-1])
        elif name := mark["name"]:
            is_open[name.casefold()] = not mark["closes"]
    left = (
        text[: marks[0].start()]
        + _LEFT_OUT
        + ("" if any(is_open.values()) else text[marks[-1].end() :])
    )
    return left if any(map(str.isalnum, left)) else ""


def begins_in_the_middle(sentence: str) -> bool:
    """Tells if a sentence begins with a word that refers to the one before it."""
    return bool(ENGLISH.anaphor.match(sentence))


def _prose(line: str) -> Iterator[str]:
    """Yields the sentences of a line.

    One that was split, or refers to the one before it, is joined to that.
    """
    is_table = line.startswith("|") and line.count("|") > 1
    is_json = line[:1] in ("{", "[") and line[-1:] in ("}", "]") and not line[1:2].isalpha()
    if ENGLISH.called.match(line):
        yield line if len(line) <= LINE_CHARACTERS else f"{line[: LINE_CHARACTERS - 2].rstrip()}…]"
    elif not (is_table or is_json or ENGLISH.ruler.match(line) or ENGLISH.code_line.match(line)):
        whole = ""
        for part in map(one_line, (*sentences(ENGLISH.markup.sub("", line)), "")):
            leans = (
                ENGLISH.anaphor.match(part)
                and len(whole) + len(part) < 2 * LINE_CHARACTERS
                and " " in whole
            )
            if part and whole and (leans or ENGLISH.abbreviation.search(whole[-12:])):
                whole += f" {part}"
                continue
            if whole and len(ENGLISH.symbol.findall(whole)) <= SYMBOL_SHARE * len(whole):
                yield whole
            whole = part


def artifacts(texts: Iterable[str]) -> tuple[str, ...]:
    """Returns the names of files in texts, and of functions and classes in code.

    The most mentioned first.
    """
    counts: Counter[str] = Counter()
    for text in texts:
        parts = ENGLISH.called.sub("[", text).split(_FENCE)
        for function, name in (
            found for code in parts[1::2] for found in ENGLISH.definition.findall(code)
        ):
            counts.update(
                [f"{name}()"]
                if function
                else [name]
                if ENGLISH.looks_like_code.search(name)
                else []
            )
        counts.update(
            filter(
                None,
                (_named(token) for prose in parts[::2] for token in ENGLISH.token.findall(prose)),
            )
        )
    return tuple(name for name, _ in counts.most_common())


def _named(token: str) -> str:
    """Returns the file or the function that a token of a text names, or nothing."""
    if "." not in token and "(" not in token:
        return ""
    name = token.lstrip(":-@").rstrip(".:-@")
    if len(name) > LINE_CHARACTERS or "://" in name:
        return ""
    if "(" in name:
        function = name.rstrip("()").rsplit("/", 1)[-1]
        named = ENGLISH.named_in_code.fullmatch(function) and (
            name.endswith(")") or ENGLISH.looks_like_code.search(function)
        )
        return f"{function}()" if named else ""
    return name.removeprefix("./") if ENGLISH.file.fullmatch(name) else ""


# Near-duplicates among short texts, told apart by their numbers, negations and names

NEAR_DUPLICATE = 0.8
"""Share of the terms of two texts that both have (Jaccard), from which on they say the same."""
_NUMBERS = ENGLISH["numbers"].split()
_NUMBER_WORD = re.compile(rf"\b(?:{'|'.join(_NUMBERS)})\b")


def says_the_same(one: str, other: str) -> bool:
    """Tells if two texts are near-duplicates.

    Nearly the same terms, the same numbers, both negated or neither.
    """
    first = _read(one)
    second = _read(other)
    if not first.terms or not second.terms:
        return fold(one_line(one)) == fold(one_line(other))
    return first.is_negated == second.is_negated and _alike(first, second)


def says_the_opposite(one: str, other: str) -> bool:
    """Tells if one of two texts is the other one, negated, or two terms and more that the other one begins with."""
    denied, said = sorted((_read(one), _read(other)), key=lambda it: not it.is_negated)
    begins = len(denied.terms) > 1 and said.terms[: len(denied.terms)] == denied.terms
    return (
        bool(denied.terms)
        and denied.is_negated != said.is_negated
        and (begins or _alike(denied, said))
    )


def says_more(text: str, other: str) -> bool:
    """Tells if a text has more terms than another one."""
    return len(_read(text).terms) > len(_read(other).terms)


class _Reading(NamedTuple):
    """A text as it is compared: its terms in order, without negations."""

    terms: tuple[str, ...]
    names: frozenset[str]
    numbers: tuple[str, ...]
    is_negated: bool


@remembering(4_096)
def _read(text: str) -> _Reading:
    plain = ENGLISH.thousands.sub("", ENGLISH.not_contracted.sub(" not ", fold(text)))
    plain = _NUMBER_WORD.sub(lambda found: str(_NUMBERS.index(found[0]) + 1), plain)
    return _Reading(
        terms=tuple(dict.fromkeys(terms(ENGLISH.negation.sub(" ", plain)))),
        names=frozenset(terms(" ".join(word for word in text.split()[1:] if word[:1].isupper()))),
        numbers=tuple(sorted(ENGLISH.number.findall(plain))),
        is_negated=any(not found[1] for found in ENGLISH.negation.finditer(plain)),
    )


def _alike(first: _Reading, second: _Reading) -> bool:
    one = set(first.terms)
    other = set(second.terms)
    both = one & other
    return (
        len(both) >= NEAR_DUPLICATE * len(one | other)
        and first.numbers == second.numbers
        and (first.names <= other or second.names <= one)
        and [term for term in first.terms if term in both]
        == [term for term in second.terms if term in both]
    )


MOST_STATED = 1_000
"""A message of more characters is a text about many things."""
UNNAMED_THINGS = ("home", "employer")
"""Things that a statement is about without naming them: "I live in Lisbon"."""
Statement: TypeAlias = tuple[str, str, frozenset[str], bool, bool]
"""A thing, the kind and form of its value, the value; whether it is new or the only one (a port),
whether it ended."""


def replaced(said: Mapping[int, tuple[str, str]]) -> Iterator[tuple[int, int, str]]:
    """Yields what a speaker's newest statement replaces, of messages by their order.

    The old, the new, the thing.
    """
    newest = dict[object, tuple[int, Statement]]()
    for at, (speaker, text) in sorted(said.items(), reverse=True):
        for statement in statements(text):
            later, new = newest.setdefault(statement_key(speaker, statement), (at, statement))
            *_, is_change, _ = new
            if later > at and is_change and is_replaced_by(statement, new):
                yield at, later, statement[0]


def statement_key(speaker: str, statement: Statement) -> tuple[str, str, frozenset[str]]:
    """Returns what statements about the same thing have in common.

    The speaker, the kind of value, the thing.
    """
    _, kind, *_ = statement
    return speaker, kind, frozenset(_terms_of_thing(statement))


def is_replaced_by(statement: Statement, later: Statement) -> bool:
    """Tells whether a later statement about the same thing gives it another value, or ends the one that it has."""
    _, _, value, _, has_ended = statement
    _, _, new, _, is_end = later
    is_same = new <= value or value <= new
    return is_same == is_end and not has_ended


def words_of_thing(statement: Statement) -> tuple[list[str], bool]:
    """Returns search terms of messages about the same thing, and whether such a message has all of them or any one."""
    thing = statement[0]
    if thing in UNNAMED_THINGS:
        return terms(ENGLISH[thing]), False
    return _terms_of_thing(statement), True


def _terms_of_thing(statement: Statement) -> list[str]:
    """Returns the terms of a thing, the same for "my bike" and "the colour of my bike"."""
    thing, kind, *_ = statement
    named = terms(ENGLISH.change.sub(" ", thing))
    if kind.startswith("colour"):
        of_what = [term for term in named if term not in ("colour", "color")]
        return of_what or named
    return named


@remembering(4_096)
def statements(text: str) -> list[Statement]:
    """Returns what a message states for sure.

    Nothing that is asked, supposed, planned, quoted, or of the past.
    """
    made: list[Statement] = []
    for said in sentences(without_pasted(text)) if len(text) <= MOST_STATED else ():
        for found in () if ENGLISH.unsure.search(said) else ENGLISH.states.finditer(said):
            kind = next(name for name in ("day", "time", "number", "colour", "name") if found[name])
            unit = re.sub(r"[\d\W_]", "", found[kind]).casefold()
            form = {"number": unit, "name": bool(found["what"]) and "moved" in found[0]}.get(
                kind, bool(unit)
            )
            thing = found["what"] or found["made"] or ("home" if found["home"] else "employer")
            is_change = bool(ENGLISH.change.search(said) or ENGLISH.of_one.search(thing))
            value = frozenset(_read(ENGLISH.in_figures.sub("", found[kind])).terms)
            made.append((thing, f"{kind} {form}", value, is_change, _read(found[0]).is_negated))
    return made
