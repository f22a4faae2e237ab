"""The part of a long text that is about a query."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from langchain_ctxbudget.messages.text import terms

_PIECE = re.compile(r"[^\n.!?。！？]*(?:[.!?。！？]+[\"')\]”’»」』）]*|\n+|$)\s*")  # noqa: RUF001 - marks of sentences
_LONGEST_PIECE = 400
_MOST_PIECES = 8_192
"""A text of more short sentences has several in one piece."""


class Piece(NamedTuple):
    """A sentence: where it begins and ends, and its terms."""

    start: int
    end: int
    terms: frozenset[str]


def pieces(text: str) -> tuple[Piece, ...]:
    """The sentences of a text, one after the other, with all characters of it; very long ones in parts.

    In texts of many thousand sentences, very short ones are taken together.

    >>> [text[piece.start : piece.end] for text in ["One. Two!"] for piece in pieces(text)]
    ['One. ', 'Two!']
    """
    found: list[Piece] = []
    least, begin = min(len(text) // _MOST_PIECES, _LONGEST_PIECE), 0
    for match in _PIECE.finditer(text):
        if match.end() - begin < least and match.end() < len(text):
            continue
        for start in range(begin, match.end(), _LONGEST_PIECE):
            end = min(start + _LONGEST_PIECE, match.end())
            found.append(Piece(start, end, frozenset(terms(text[start:end]))))
        begin = match.end()
    return tuple(found)


def passage(found: tuple[Piece, ...], wanted: Collection[str], most_characters: int) -> tuple[int, int] | None:
    """The characters of a text that say most of what is wanted: where they begin, and where they end.

    Sentences in a row with the most different wanted terms; of those with equally many, the shortest, and of these the
    first. Where there is room, it goes on with what follows.

    Args:
        found: the sentences of the text.
        wanted: terms.
        most_characters: how long it may be.

    Returns:
        None where no sentence has a wanted term, or none of those fits.
    """
    wanted = frozenset(wanted)
    best: tuple[int, int, int] | None = None
    for first, piece in enumerate(found):
        if not piece.terms & wanted:
            continue
        shared: frozenset[str] = frozenset()
        for last in range(first, len(found)):
            length = found[last].end - piece.start
            if length > most_characters:
                break
            if not (new := (found[last].terms & wanted) - shared):
                continue
            shared |= new
            if best is None or (len(shared), -length) > (best[0], found[best[1]].start - found[best[2]].end):
                best = (len(shared), first, last)
    if best is None:
        return None
    _, first, last = best
    while last + 1 < len(found) and found[last + 1].end - found[first].start <= most_characters:
        last += 1
    while first and found[last].end - found[first - 1].start <= most_characters:
        first -= 1
    return found[first].start, found[last].end
