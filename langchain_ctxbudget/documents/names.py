"""By which names documents are meant in a message: titles, file names, paths and addresses. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from langchain_ctxbudget.core.text import fold, mentions, one_line

READ_CHARACTERS = 50_000
"""So much of a message is looked at."""
LEAST_CHARACTERS = 3
"""A shorter name means nothing."""
_SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*://(?:www\.)?", re.IGNORECASE)
_ASCII_WORD = re.compile("[a-z0-9]+")
_PLAIN_WORD = re.compile(r"[^\W_]+")
_QUOTES = (('"', '"'), ("'", "'"), ("`", "`"), ("“", "”"), ("‘", "’"), ("«", "»"), ("„", "“"), ("「", "」"))  # noqa: RUF001


@dataclass(frozen=True, slots=True)
class Names:
    """What a document may be called, folded."""

    titles: tuple[str, ...]
    """Its title, and its address where it has one; a title of one word or number only in quotation marks."""
    paths: tuple[str, ...]
    """The end of its path, the longest first, the file's name last."""
    words: frozenset[str]
    """One of these is in every message that names it; none where that cannot be told."""


def names_of(title: str, source: str) -> Names:
    """What a document may be called.

    Example:
        >>> names_of("Setup", "docs/linux/setup.md").paths
        ('docs/linux/setup.md', 'linux/setup.md', 'setup.md')
    """
    place = fold(_SCHEME.sub("", source.replace("\\", "/"))).strip("/")
    parts = place.split("/")
    ends = ["/".join(parts[start:]) for start in range(len(parts))]
    is_address = bool(_SCHEME.match(source))
    named = one_line(fold(title))
    titles = [f"{left}{named}{right}" for left, right in _QUOTES] if _PLAIN_WORD.fullmatch(named) else [named]
    if is_address:
        titles.append(place)
    # What looks like no file's name could be any word.
    paths = [end for end in ends if "." in end.rpartition("/")[2]] if "\n" not in source else []
    titles, paths = list(filter(_says_something, titles)), list(filter(_says_something, paths))
    first = [_ASCII_WORD.search(name) if name.isascii() else None for name in (*titles, *paths[-1:])]
    words = frozenset(found[0] for found in first if found) if all(first) else frozenset[str]()
    return Names(tuple(titles), tuple(paths), words)


def _says_something(name: str) -> bool:
    return len(name) >= LEAST_CHARACTERS


def newest_mentions(names: Sequence[Names], texts: Sequence[str]) -> list[int]:
    """Which documents are named in messages, as indexes, the one that was named last first.

    Of files with one name, those are meant whose path fits the longest.

    Args:
        names: of every document.
        texts: messages, oldest first.
    """
    found: dict[int, None] = {}
    for text in reversed(texts):
        said = one_line(fold(text[:READ_CHARACTERS]))
        words = set(_ASCII_WORD.findall(said))
        # Looking a word up is a hundred times as fast as looking for a name.
        maybe = [number for number, name in enumerate(names) if not name.words or not words.isdisjoint(name.words)]
        titles = {number: place for number in maybe if (place := _first(said, names[number].titles)[1]) >= 0}
        paths = {number: fit for number in maybe if (fit := _first(said, names[number].paths))[1] >= 0}
        longest: dict[str, int] = {}
        for number, (end, _) in paths.items():
            file = names[number].paths[-1]
            longest[file] = max(longest.get(file, 0), end.count("/"))
        places = {
            number: place
            for number, (end, place) in paths.items()
            if end.count("/") == longest[names[number].paths[-1]]
        } | titles
        found |= dict.fromkeys(sorted(places, key=lambda number: (places[number], number)))
    return list(found)


def _first(said: str, names: Sequence[str]) -> tuple[str, int]:
    """The first name that is said as whole words, and where; -1 where none is."""
    for name in names:
        place = said.find(name)  # much faster than looking for whole words
        if place >= 0 and mentions(said, [name]):
            return name, place
    return "", -1
