"""What short texts claim: which ones say the same, and which statement replaces another."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from langchain_ctxbudget.messages.prose import without_pasted
from langchain_ctxbudget.messages.text import (
    ENGLISH,
    cached_until_forgotten,
    fold,
    one_line,
    sentences,
    terms,
)

# Near-duplicates among short texts, told apart by their numbers, negations and names

NEAR_DUPLICATE = 0.8
"""Share of the terms of two texts that both have (Jaccard), from which on they say the same."""
_NUMBERS = ENGLISH["numbers"].split()
_NUMBER_WORD = re.compile(rf"\b(?:{'|'.join(_NUMBERS)})\b")


def says_the_same(text: str, other: str) -> bool:
    """Tells if two texts are near-duplicates.

    They have nearly the same terms and the same numbers, and both are negated or neither is.
    """
    first = _compared(text)
    second = _compared(other)
    if not first.terms or not second.terms:
        return fold(one_line(text)) == fold(one_line(other))
    return first.is_negated == second.is_negated and _are_alike(first, second)


def says_the_opposite(text: str, other: str) -> bool:
    """Tells if one of two texts is the other one, negated.

    It may also negate the beginning of the other one, if that is at least two terms long.
    """
    first = _compared(text)
    second = _compared(other)
    if first.is_negated == second.is_negated:
        return False
    negated = second
    affirmed = first
    if first.is_negated:
        negated = first
        affirmed = second
    if not negated.terms:
        return False
    term_count = len(negated.terms)
    is_beginning = term_count > 1 and affirmed.terms[:term_count] == negated.terms
    return is_beginning or _are_alike(negated, affirmed)


def gives_another_value(text: str, other: str) -> bool:
    """Tells if one of two statements of a speaker gives another value to what the other is about.

    Both say something else of the same named thing ("My name is Ada."), or they are the same
    sentence with other numbers ("I am 34 years old.").
    """
    return _differ_in_a_number(text, other) or _differ_in_a_statement(text, other)


def _differ_in_a_number(text: str, other: str) -> bool:
    """Tells if two texts are the same one with other numbers."""
    first = _compared(text)
    second = _compared(other)
    if first.numbers == second.numbers or len(first.numbers) != len(second.numbers):
        return False
    if first.is_negated or second.is_negated:
        return False
    first_terms = _terms_without_numbers(first)
    return bool(first_terms) and first_terms == _terms_without_numbers(second)


def _terms_without_numbers(compared: "_Compared") -> list[str]:
    return [term for term in compared.terms if not term[0].isdigit()]


def _differ_in_a_statement(text: str, other: str) -> bool:
    """Tells if two texts state different values of the same thing."""
    later_by_key = {statement_key("", later): later for later in statements(other)}
    for statement in statements(text):
        later = later_by_key.get(statement_key("", statement))
        if later is not None and is_replaced_by(statement, later):
            return True
    return False


def says_liking(text: str) -> bool:
    """Tells if a text says that somebody likes or dislikes something."""
    plain = ENGLISH.not_contracted.sub(" not ", fold(text))
    return bool(ENGLISH.likes.search(plain) or ENGLISH.dislikes.search(plain))


def says_more(text: str, other: str) -> bool:
    """Tells if a text has more terms than another one."""
    terms_of_text = _compared(text).terms
    terms_of_other = _compared(other).terms
    return len(terms_of_text) > len(terms_of_other)


def numbers_in(text: str) -> list[str]:
    """Returns the numbers of a text as digits; of those in words, the English ones up to twelve."""
    return digits_in(_NUMBER_WORD.sub(_digits_of, fold(text)))


def digits_in(text: str) -> list[str]:
    """Returns the numbers that a text has in digits, without commas between thousands."""
    return ENGLISH.number.findall(ENGLISH.thousands.sub("", fold(text)))


@dataclass(frozen=True, slots=True)
class _Compared:
    """A text as it is compared: its terms in order, without negations."""

    terms: tuple[str, ...]
    names: frozenset[str]
    numbers: tuple[str, ...]
    is_negated: bool


def _digits_of(word: re.Match[str]) -> str:
    """Returns a number in words as digits."""
    return str(_NUMBERS.index(word[0]) + 1)


@cached_until_forgotten(4_096)
def _compared(text: str) -> _Compared:
    """Returns a text as it is compared."""
    plain = ENGLISH.not_contracted.sub(" not ", fold(text))
    plain = ENGLISH.dislikes.sub(" not like ", plain)
    plain = ENGLISH.likes.sub(" like ", plain)
    plain = ENGLISH.thousands.sub("", plain)
    plain = _NUMBER_WORD.sub(_digits_of, plain)
    words_after_first = text.split()[1:]
    capitalized = [word for word in words_after_first if word[0].isupper()]
    affirmed = ENGLISH.unspaced_negation.sub("", plain)
    negations = ENGLISH.negation.finditer(affirmed)
    return _Compared(
        terms=tuple(dict.fromkeys(terms(ENGLISH.negation.sub(" ", affirmed)))),
        names=frozenset(terms(" ".join(capitalized))),
        numbers=tuple(sorted(ENGLISH.number.findall(plain))),
        is_negated=affirmed != plain or any(not negation[1] for negation in negations),
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


def replacements_in(messages: Mapping[int, tuple[str, str]]) -> Iterator[tuple[int, int, str]]:
    """Yields what a speaker's newest statement replaces: the old place, the new one, the thing.

    Args:
        messages: Speaker and text of messages by their place in the conversation.
    """
    newest: dict[object, tuple[int, Statement]] = {}
    for at, (speaker, text) in sorted(messages.items(), reverse=True):
        for statement in statements(text):
            key = statement_key(speaker, statement)
            later_at, later = newest.setdefault(key, (at, statement))
            if later_at > at and later.is_change and is_replaced_by(statement, later):
                yield at, later_at, statement.thing


def statement_key(speaker: str, statement: Statement) -> tuple[str, str, frozenset[str]]:
    """Returns what statements about the same thing share: speaker, kind of value, thing."""
    return speaker, statement.kind, frozenset(_terms_of_thing(statement))


def is_replaced_by(statement: Statement, later: Statement) -> bool:
    """Tells if a later statement about the same thing gives it another value, or ends this one."""
    is_same_value = later.value <= statement.value or statement.value <= later.value
    return is_same_value == later.is_end and not statement.is_end


def words_of_thing(statement: Statement) -> tuple[list[str], bool]:
    """Returns the search terms of messages about the thing that a statement is about.

    The second value is True if such a message has all of the terms, False if any one is enough.
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


@cached_until_forgotten(4_096)
def statements(text: str) -> list[Statement]:
    """Returns what a message states for sure.

    What it asks, supposes, plans or quotes is not among it, nor what it says of the past.
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
    """Returns what tells values of one kind apart.

    For a number that is its unit, for a name whether the thing moved there, for other kinds
    whether the value has letters.
    """
    unit = re.sub(r"[\d\W_]", "", match[kind]).casefold()
    if kind == "number":
        return unit
    if kind == "name":
        return bool(match["what"]) and "moved" in match[0]
    return bool(unit)
