"""Near-duplicates among short texts, told apart by their numbers, negations and names."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from langchain_ctxbudget.messages.text import fold, one_line, remembering, terms

NEAR_DUPLICATE = 0.8
"""Share of the terms of two texts that both have (Jaccard), from which on they say the same."""

_NEGATED = "not "
_CONTRACTED = re.compile(
    r"\b(?:ca|can|wo|do|does|did|is|are|was|were|would|should|could|have|has|had)n['’]?t\b|\bcannot\b"  # noqa: RUF001
)
_NEGATION = re.compile(r"\b(?:no longer|no more|not(?! (?:only|just)\b)|no|never|without|neither|nor|none|nothing)\b")
_STILL = re.compile(r"\b(?:any ?more|any longer)\b")
_CLAUSE_END = re.compile(r"[.,;:!?]+(?=\s|$)|\bbut\b")
_DIRECTION = re.compile(r"\b(?:over|than|instead|rather|before|after|from|to)\b")
"""Words beside which the order of the others matters."""
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_NUMBER_WORD = re.compile(rf"\b(?:{'|'.join(_NUMBERS)})\b")


def says_the_same(one: str, other: str) -> bool:
    """Tells if two texts are near-duplicates: nearly the same terms, the same numbers, nothing negated in only one.

    >>> says_the_same("Has 2 cats.", "has two cats"), says_the_same("Has 2 cats", "Has 3 cats")
    (True, False)
    >>> says_the_same("Likes tea", "Does not like tea"), says_the_same("Tabs over spaces", "Spaces over tabs")
    (False, False)
    """
    first, second = _read(one), _read(other)
    if not first.terms or not second.terms:
        return fold(one_line(one)) == fold(one_line(other))
    return _alike(first, second)


def says_the_opposite(one: str, other: str) -> bool:
    """Tells if one of two texts is the other one, negated.

    >>> says_the_opposite("Eats meat", "Doesn't eat meat anymore"), says_the_opposite("Eats meat", "Eats fish")
    (True, False)
    """
    first, second = _read(one), _read(other)
    return bool(first.terms) and _alike(first, replace(second, terms=tuple(map(_flipped, second.terms))))


def says_more(text: str, other: str) -> bool:
    """Tells if a text has more terms than another one."""
    return len(_read(text).terms) > len(_read(other).terms)


def names_another(text: str, other: str) -> bool:
    """Tells if a text has a name (a word with a capital, but for its first) that another one does not have.

    >>> names_another("No longer works at Acme", "Works at Globex"), names_another("Left the job", "Works at Globex")
    (True, False)
    """
    return bool(_read(text).names - _read(other).words)


@dataclass(frozen=True, slots=True)
class _Reading:
    """A text as it is compared."""

    terms: tuple[str, ...]
    """In order; those that are negated begin with "not "."""
    words: frozenset[str]
    """The same without negations."""
    names: frozenset[str]
    numbers: tuple[str, ...]
    has_direction: bool


@remembering(4_096)
def _read(text: str) -> _Reading:
    plain = _STILL.sub(" ", _CONTRACTED.sub(" not ", fold(text)))
    plain = _THOUSANDS.sub("", _NUMBER_WORD.sub(lambda found: str(_NUMBERS.index(found[0]) + 1), plain))
    found: list[str] = []
    for clause in _CLAUSE_END.split(plain):
        said, *negated = _NEGATION.split(clause)
        found += terms(said)
        found += [_NEGATED + term for part in negated for term in terms(part)]
    ordered = tuple(dict.fromkeys(found))
    capitalised = " ".join(word for word in text.split()[1:] if word[:1].isupper())
    return _Reading(
        terms=ordered,
        words=frozenset(term.removeprefix(_NEGATED) for term in ordered),
        names=frozenset(terms(capitalised)),
        numbers=tuple(sorted(_NUMBER.findall(plain))),
        has_direction=bool(_DIRECTION.search(plain)),
    )


def _alike(first: _Reading, second: _Reading) -> bool:
    one, other = set(first.terms), set(second.terms)
    both = one & other
    if len(both) < NEAR_DUPLICATE * len(one | other) or first.numbers != second.numbers:
        return False
    if any(_flipped(term) in other for term in one) or (first.names - second.words and second.names - first.words):
        return False
    in_order = [term for term in first.terms if term in both] == [term for term in second.terms if term in both]
    return in_order or not (first.has_direction or second.has_direction)


def _flipped(term: str) -> str:
    return term.removeprefix(_NEGATED) if term.startswith(_NEGATED) else _NEGATED + term
