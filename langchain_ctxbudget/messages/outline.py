"""Shortens a text that is too large.

Its ends stay, and between them the lines that matter most for its kind.

A log tells at its start what was run and at its end how it went; between them errors count. A diff
is told by its files and hunks, search hits by the first of every file, code by its signatures,
prose by its headings; all of them by lines that share rare words with what the text was looked at
for. JSON is written anew with shorter lists and texts.
"""

import json
import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress, islice
from typing import Any, NamedTuple

from langchain_ctxbudget.messages.text import (
    ENGLISH,
    LINE_CHARACTERS,
    cached_until_forgotten,
    terms,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlinePolicy:
    """Which pieces of a text stay, and how they are set off."""

    marked_share: float = 0.4
    """The largest share of the room for pieces that stand neither at the start nor at the end."""
    signature_worth: float = 0.3
    """The worth of a line that begins a function: less than that of a line that was looked for,
    which an edit may replace."""
    pieces_around_errors: int = 2
    """Pieces on both sides of an error that tell what it is about."""
    pieces_around_focus: int = 6
    """Pieces on both sides of what was looked for that tell what it is about."""
    edge_share: float = 1 / 8
    """The share of the head, and of the tail, that is given up to cut at a line break or at white
    space."""
    small_room: int = 300
    """Characters; in a smaller room the marks of gaps are short."""


POLICY = OutlinePolicy()
GAP = "\n[… lines left out: {:,} …]\n"
SHORT_GAP = "\n…\n"

_SENTENCE_BREAK = re.compile(r"(?<=[.!?;])\s+|(?<=[。！？])")  # noqa: RUF001 - these end sentences
_WORD_BREAK = re.compile(r"\s+")
_LINE_BREAK = re.compile(r"\r?\n|\r")
_SPACE = re.compile(r"\s")
_WORTH_IN_DIFF = (
    (re.compile(r"diff --git |--- "), 1.0),
    (re.compile(r"@@ "), 0.7),
    (re.compile("[+-]"), 0.4),
)


class _JsonSize(NamedTuple):
    """How much of a JSON text is shown."""

    items: int
    """The most items of a list."""
    characters: int
    """The most characters of a text."""

    @classmethod
    def at(cls, level: int) -> "_JsonSize":
        """Returns the size at a level: 0 is the finest, every further one shows a fifth less."""
        scale = 0.8**level
        items = max(1, int(8_192 * scale))
        characters = max(20, int(4_096 * scale))
        return cls(items, characters)


_JSON_SIZES = [_JsonSize.at(level) for level in range(41)]
"""From the finest form of JSON to the coarsest, in which a list has one item."""


@dataclass(frozen=True, slots=True)
class _Pieces:
    """A text in pieces, and what each of them is worth."""

    texts: list[str]
    worth: list[float]
    """What each piece says, by the kind of the text and what was looked for."""
    nearness: list[float]
    """How near each piece is to the start or the end of the text, from 0 to 1."""


def outline_of(
    text: str,
    characters: int,
    focus: frozenset[str],
    mark: Callable[[int], str],
    worth: tuple[float, ...] = (),
) -> str:
    """Returns about `characters` characters of a text, with marks in its gaps.

    Returns an empty text if nothing would stay.

    Args:
        text: What is too large.
        characters: The room for it, without the mark.
        focus: Search terms of what the text was looked at for.
        mark: Returns what stands in the largest gap, for the number of characters that are left
            out altogether.
        worth: What each line is worth; without it, that follows from the kind of the text, from
            the focus, and from how near the line is to an end.
    """
    json_form = _shorter_json(text, characters)
    if json_form:
        return json_form + mark(len(text) - len(json_form))

    gap_mark = GAP
    if worth or characters < POLICY.small_room:
        gap_mark = SHORT_GAP
    reserved = 0
    if not worth:
        reserved = int(characters * (1 - POLICY.marked_share))
    pieces = _pieces_of(text, focus, worth)
    choice = _Choice(pieces.texts, characters, len(gap_mark))
    choice.take_best(pieces.worth, reserved)
    choice.take_best(pieces.nearness)

    gaps = choice.gaps()
    is_room_wasted = choice.characters_left > characters // 4 and not choice.has_error()
    if not gaps or is_room_wasted:  # its lines are too long for this room
        return _ends_of(text, characters, mark)
    return _with_gaps(pieces.texts, gaps, choice.characters_left, mark, gap_mark)


class _Choice:
    """The pieces of a text that stay, and the room that is left for more."""

    def __init__(self, pieces: Sequence[str], characters: int, gap_characters: int) -> None:
        self._pieces = pieces
        self._is_chosen = [False] * len(pieces)
        self._gap_characters = gap_characters
        self.characters_left = characters

    def take_best(self, values: Sequence[float], reserved: int = 0) -> None:
        """Takes the pieces of most value that fit, and leaves the reserved characters free.

        The best one may take of these, too, so that it has its place even in a small room. With
        nothing reserved, the first one that does not fit is the last one that is looked at: ends
        are filled from outside.
        """
        candidates = [
            at for at, value in enumerate(values) if value > 0 and not self._is_chosen[at]
        ]
        candidates.sort(key=lambda at: (-values[at], at))
        for rank, at in enumerate(candidates):
            is_best = rank == 0
            room = self.characters_left if is_best else self.characters_left - reserved
            cost = self._cost_of(at)
            if cost <= room:
                self._is_chosen[at] = True
                self.characters_left -= cost
            elif not reserved:
                break

    def _cost_of(self, at: int) -> int:
        """Returns the characters of a piece, with the mark of the gap that it would open."""
        is_at_end = at in (0, len(self._pieces) - 1)
        if is_at_end or any(self._is_chosen[max(0, at - 1) : at + 2]):
            return len(self._pieces[at])
        return len(self._pieces[at]) + self._gap_characters

    def gaps(self) -> list[range]:
        """Returns the places of the pieces that are left out, gap by gap.

        A gap that is no longer than its mark is not made.
        """
        gaps: list[range] = []
        start = 0
        for at, is_chosen in enumerate([*self._is_chosen, True]):
            if is_chosen:
                if _length(self._pieces, range(start, at)) > self._gap_characters:
                    gaps.append(range(start, at))
                start = at + 1
        return gaps

    def has_error(self) -> bool:
        """Tells if a chosen piece tells of an error."""
        return any(map(ENGLISH.error.search, compress(self._pieces, self._is_chosen)))


def _length(pieces: Sequence[str], places: range) -> int:
    """Returns the characters of the pieces at some places."""
    return sum(map(len, pieces[places.start : places.stop]))


def _with_gaps(
    pieces: Sequence[str],
    gaps: Sequence[range],
    characters_left: int,
    mark: Callable[[int], str],
    gap_mark: str,
) -> str:
    """Returns the pieces that stay, with a mark in place of every gap.

    The largest gap has the mark that tells how much is left out. Where it begins within a line,
    the room that is left shows more of that line.
    """
    largest = max(gaps, key=lambda gap: _length(pieces, gap))
    first_left_out = pieces[largest.start]
    begun_line = ""
    if not first_left_out.endswith("\n"):
        begun_line = first_left_out[: head_end(first_left_out, characters_left)]
    left_out = sum(_length(pieces, gap) for gap in gaps) - len(begun_line)

    outline = ""
    shown_to = 0
    for gap in gaps:
        outline += "".join(pieces[shown_to : gap.start])
        gap_text = gap_mark.format(len(gap))
        if gap is largest:
            gap_text = begun_line + mark(left_out)
        if not outline or outline.endswith("\n"):
            gap_text = gap_text.lstrip("\n")
        outline += gap_text
        shown_to = gap.stop
    return outline + "".join(pieces[shown_to:])


# Pieces, and what they are worth


@cached_until_forgotten(256)
def _pieces_of(text: str, focus: frozenset[str], worth: tuple[float, ...]) -> _Pieces:
    """Returns the pieces of a text with their worth: the given one, or by kind and focus."""
    lines = [_parts_of(line) for line in text.splitlines(keepends=True)]
    pieces: list[str] = []
    for line in lines:
        pieces.extend(line)

    if worth:
        given_worth: list[float] = []
        for value, line in zip(worth, lines, strict=True):
            given_worth += [value] * len(line)
        return _Pieces(pieces, given_worth, [0.0] * len(pieces))

    values = _worth_by_kind(pieces)
    for at, piece in enumerate(pieces):
        if not piece.strip():
            values[at] = 0.0
    if focus:
        focus_values = _worth_by_focus(pieces, focus)
        values = [value + more for value, more in zip(values, focus_values, strict=True)]
    return _Pieces(pieces, values, _nearness(pieces, len(text)))


def _parts_of(line: str) -> list[str]:
    """Returns a line in parts that are no longer than a line should be."""
    parts: list[str] = []
    start = 0
    while len(line) - start > LINE_CHARACTERS:
        end = _end_of_part(line, start)
        parts.append(line[start:end])
        start = end
    parts.append(line[start:])
    return parts


def _end_of_part(line: str, start: int) -> int:
    """Returns where a part of a long line ends: with a sentence, else at a blank, else anywhere."""
    earliest = start + LINE_CHARACTERS // 4
    latest = start + LINE_CHARACTERS
    for pattern in (_SENTENCE_BREAK, _WORD_BREAK):
        breaks = list(pattern.finditer(line, earliest, latest))
        if breaks:
            return breaks[-1].end()
    return latest


def _nearness(pieces: Sequence[str], text_length: int) -> list[float]:
    """Returns how near the middle of each piece is to an end of the text: 0 is its middle."""
    nearness: list[float] = []
    start = 0
    for piece in pieces:
        end = start + len(piece)
        nearness.append(abs(1 - (start + end) / text_length))
        start = end
    return nearness


def _worth_by_focus(pieces: Sequence[str], focus: frozenset[str]) -> list[float]:
    """Returns how much each piece, with those around it, shares with the focus, from 0 to 1.

    A term counts more, the fewer pieces have it.
    """
    shared_terms = [focus.intersection(terms(piece)) for piece in pieces]
    pieces_with: Counter[str] = Counter()
    for shared in shared_terms:
        pieces_with.update(shared)
    rarity = {term: math.log(len(pieces) / count) for term, count in pieces_with.items()}

    rarities = [sum(rarity[term] for term in shared) for shared in shared_terms]
    values = _spread(rarities, POLICY.pieces_around_focus)
    highest = max(values) or 1.0
    return [value / highest for value in values]


def _spread(values: Sequence[float], around: int) -> list[float]:
    """Lends what a piece is worth to those around it, less with every piece between them."""
    spread = [0.0] * len(values)
    for at, value in enumerate(values):
        if value <= 0:
            continue
        first = max(0, at - around)
        end = min(len(values), at + around + 1)
        for near in range(first, end):
            distance = abs(near - at)
            spread[near] += value * (1 - distance / (around + 1))
    return spread


def _worth_by_kind(pieces: Sequence[str]) -> list[float]:
    """Returns what each piece says by the kind of its text, from 0 to 1."""
    if any(map(ENGLISH.diff.match, pieces)):
        return list(map(_worth_in_diff, pieces))

    files = list(map(_file_of_hit, pieces))
    hit_count = sum(map(bool, files))
    if hit_count > len(pieces) / 2:
        return _worth_of_first_hits(files)

    signatures = _ones_where(ENGLISH.signature.match, pieces)
    if sum(signatures) > 1:
        return [POLICY.signature_worth * value for value in signatures]

    errors = _ones_where(ENGLISH.error.search, pieces)
    near_errors = _spread(errors, POLICY.pieces_around_errors)
    headings = _ones_where(ENGLISH.heading.match, pieces)
    return [
        max(min(value, 1.0), heading) for value, heading in zip(near_errors, headings, strict=True)
    ]


def _ones_where(find: Callable[[str], re.Match[str] | None], pieces: Sequence[str]) -> list[float]:
    """Returns 1 for every piece in which a pattern is found, 0 for all others."""
    return [float(find(piece) is not None) for piece in pieces]


def _worth_in_diff(piece: str) -> float:
    """Returns what a piece of a diff says: names of files first, then hunks, then changed lines."""
    for pattern, worth in _WORTH_IN_DIFF:
        if pattern.match(piece):
            return worth
    return 0.0


def _file_of_hit(piece: str) -> str:
    """Returns the file that a hit of a search names; empty where the piece is no hit."""
    hit = ENGLISH.hit.match(piece)
    return hit[1] if hit else ""


def _worth_of_first_hits(files: Sequence[str]) -> list[float]:
    """Returns 1 for the first hit in each file, 0 for all others."""
    seen = {""}
    values: list[float] = []
    for file in files:
        values.append(float(file not in seen))
        seen.add(file)
    return values


# JSON, written anew in less room


@cached_until_forgotten(256)
def _shorter_json(text: str, characters: int) -> str:
    """Returns the most detailed form of a JSON text within a number of characters.

    Empty if there is none.
    """
    value = _json_value(text)
    if value is None:
        return ""

    def form(size: _JsonSize) -> str:
        return json.dumps(_smaller(value, size), ensure_ascii=False)

    def is_fit(size: _JsonSize) -> bool:
        return len(form(size)) <= characters

    try:
        finest = bisect_left(_JSON_SIZES, x=True, key=is_fit)
        return form(_JSON_SIZES[finest]) if finest < len(_JSON_SIZES) else ""
    except RecursionError:  # it is nested deeper than can be written
        return ""


@cached_until_forgotten(32)
def _json_value(text: str) -> object:
    """Returns the JSON object or list of a text; None of another text."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _smaller(value: Any, size: _JsonSize) -> Any:  # noqa: ANN401 - JSON can be anything
    """Returns a JSON value with lists and texts of at most a size."""
    if isinstance(value, str):
        return _smaller_text(value, size.characters)
    if isinstance(value, list):
        return [_smaller(item, size) for item in _ends_of_list(value, size.items)]
    if isinstance(value, dict):
        return _smaller_object(value, size)
    return value


def _smaller_text(text: str, characters: int) -> str:
    """Returns the beginning of a text, and how many characters follow."""
    left_out = len(text) - characters
    if left_out <= 0:
        return text
    return f"{text[:characters]}… {left_out:,} more"


def _ends_of_list(items: list[Any], most: int) -> list[Any]:
    """Returns the first and the last items of a list, and between them how many are left out."""
    left_out = len(items) - most
    if left_out <= 0:
        return items
    last_count = most // 2
    first = items[: most - last_count]
    last = items[len(items) - last_count :]
    return [*first, f"… {left_out:,} more", *last]


def _smaller_object(fields: dict[str, Any], size: _JsonSize) -> dict[str, Any]:
    """Returns the first fields of a JSON object: a few more of them than items of a list."""
    most = 4 * size.items + 8
    smaller = {key: _smaller(value, size) for key, value in islice(fields.items(), most)}
    left_out = len(fields) - most
    if left_out > 0:
        smaller["…"] = f"{left_out:,} more"
    return smaller


# The ends of a text, cut between words


def _ends_of(text: str, characters: int, mark: Callable[[int], str]) -> str:
    """Returns the head and the tail of a text, half of the characters each, and the mark between.

    Empty if nothing would stay.
    """
    tail_characters = characters // 2
    end_of_head = head_end(text, characters - tail_characters)
    start_of_tail = _tail_start(text, len(text) - tail_characters)
    head = text[:end_of_head]
    tail = text[start_of_tail:]
    if not head and not tail:
        return ""
    left_out = len(text) - len(head) - len(tail)
    return f"{head}{mark(left_out)}{tail}"


def head_end(text: str, end: int) -> int:
    """Returns where to cut a text to keep at most `end` characters.

    It is the place of a line break, else of white space, if one is near.
    """
    nearest = end - int(end * POLICY.edge_share)
    for pattern in (_LINE_BREAK, _SPACE):
        breaks = list(pattern.finditer(text, nearest, end + 1))
        if breaks:
            return breaks[-1].start()
    return end


def _tail_start(text: str, start: int) -> int:
    """Returns where the tail of a text begins that begins at `start` or a little later."""
    tail_characters = len(text) - start
    furthest = start + int(tail_characters * POLICY.edge_share)
    for pattern in (_LINE_BREAK, _SPACE):
        line_break = pattern.search(text, max(0, start - 1), furthest)
        if line_break:
            return line_break.end()
    return start
